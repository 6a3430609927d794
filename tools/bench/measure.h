/*
 * measure.h - how long an operation of all ranks takes.
 *
 * Operations run back to back, and each rank stamps each of its own. The figures are the greatest over the
 * ranks, the same on all of them.
 */
#ifndef DDL_BENCH_MEASURE_H
#define DDL_BENCH_MEASURE_H

#include "options.h"

struct measurement {
    long iterations;
    double median_us, p99_us, mean_us;
};

/* What is measured: all ranks of a world call run(arg) equally often. */
struct measured {
    ddl_comm *world;
    ddl_status (*run)(void *arg);
    void *arg;
};

/* Warm up, choose how many operations to time, time them. Every rank calls it. */
ddl_status measure(const struct measured *measured, const struct bench_options *options,
                   struct measurement *measurement);

/* For sorting times. */
int measure_compare(const void *a, const void *b);

/* Of a clock that only goes forward. */
double measure_now_us(void);

#endif
