/* report.h - what rank 0 shows: a progress line on a terminal, a table, a JSON file. */
#ifndef DDL_BENCH_REPORT_H
#define DDL_BENCH_REPORT_H

#include "measure.h"
#include "options.h"
#include "workload.h"

struct report;

/* NULL, after saying why, when out of memory or when the JSON file cannot be written. Other ranks have no
 * report. */
struct report *report_open(const struct bench_options *options, int nranks, int nodes);

/* What is being measured now; a terminal shows it until the next line. */
void report_progress(struct report *report, const char *algorithm, size_t bytes);

struct report_row {
    const char *algorithm;
    bool chosen; /* one of several, and the one that the library chooses: marked by a star */
    size_t bytes, count;
    double bus_factor;
    struct measurement measurement;
};

void report_row(struct report *report, const struct report_row *row);

/* At the end of a size of which all algorithms were measured: how far the chosen one is from the best. */
void report_choice(struct report *report, const struct report_row *chosen, const struct report_row *best);

/* A line for an algorithm that cannot run here. */
void report_left_out(struct report *report, const char *algorithm, const char *reason);

/* Write the JSON file if all results are there; false, after saying why, if that fails. Releases the report.
 * NULL is fine. */
bool report_close(struct report *report, bool complete);

#endif
