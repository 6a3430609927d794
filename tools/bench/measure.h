/*
 * measure.h - how long a workload takes.
 *
 * Operations run back to back, and each rank stamps each of its own. The figures are the greatest over the
 * ranks, the same on all of them.
 */
#ifndef DDL_BENCH_MEASURE_H
#define DDL_BENCH_MEASURE_H

#include "options.h"
#include "workload.h"

struct measurement {
    long iterations;
    double median_us, p99_us, mean_us;
};

/* Warm up, choose how many operations to time, time them. Every rank calls it. */
ddl_status measure(struct workload *workload, const struct bench_options *options,
                   struct measurement *measurement);

#endif
