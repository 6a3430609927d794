/*
 * consistency.h - times collectives beside pairs of others that together do the same.
 *
 * Whoever needs an allreduce should never be better off with a reduce and a broadcast.
 */
#ifndef DDL_BENCH_CONSISTENCY_H
#define DDL_BENCH_CONSISTENCY_H

#include "options.h"

/* Every rank calls it, in no world; returns the exit code: 1 also if one took longer than two, by more than
 * the tolerance. */
int consistency(const struct bench_options *options);

#endif
