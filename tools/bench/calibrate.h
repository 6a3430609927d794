/*
 * calibrate.h - measures the constants by which the library chooses algorithms, and writes them as a profile.
 */
#ifndef DDL_BENCH_CALIBRATE_H
#define DDL_BENCH_CALIBRATE_H

#include "options.h"

/* Every rank calls it, in no world; returns the exit code. Rank 0 writes options->profile, or leaves what was
 * there as it was. */
int calibrate(const struct bench_options *options);

#endif
