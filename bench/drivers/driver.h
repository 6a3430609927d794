/*
 * driver.h - what a library gives in order to be measured beside the others.
 *
 * driver.c has the checks and the timing loop. It is compiled once and linked with every library, so all of
 * them are timed by the same instructions. A library is one more file, which defines `measured`. Its calls
 * block, and end the process if they fail.
 *
 *     DRIVER COLLECTIVE SECONDS LIMIT_S BYTES...
 *
 * SECONDS is the time for one size; a process that spends more than LIMIT_S on one ends itself by SIGALRM,
 * so nothing is left behind whatever a launcher does. BYTES is the size of a rank's greater buffer: for
 * allgather what it receives, for reduce_scatter what it sends, for alltoall either, for gather and scatter
 * what rank 0 receives or sends. For each size rank 0 prints a line of JSON; a rank with a wrong result
 * prints another one and ends with 1.
 */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H

#include <stddef.h>

/* Elements are float32, all buffers are separate, but those of allreduce if they are the same. `count` is
 * that of one rank's block where there are blocks: allgather, reduce_scatter, alltoall, gather, scatter. Rank
 * 0 is the root. */
typedef void collective(const float *in, float *out, size_t count);

struct library {
    const char *name; /* with its version */
    void (*join)(int *argc, char ***argv, int *rank, int *nranks);
    void (*leave)(void);
    collective *allreduce; /* the sum */
    collective *allgather;
    collective *reduce_scatter; /* the sum; NULL where a library has none */
    collective *alltoall;
    collective *broadcast;           /* out of rank 0 to out of all; `in` is not used */
    collective *barrier;             /* nothing is used */
    collective *reduce;              /* the sum, in out of rank 0 */
    collective *gather;              /* in of all to out of rank 0 */
    collective *scatter;             /* in of rank 0 to out of all */
    void *(*allocate)(size_t bytes); /* a buffer, and back; NULL: of malloc */
    void (*release)(void *buffer);
};

#ifdef __cplusplus
extern "C" {
#endif

extern const struct library measured;

#ifdef __cplusplus
}
#endif

#endif
