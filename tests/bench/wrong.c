/*
 * wrong.c - a library for one rank whose allreduce spoils one element, and whose alltoall never returns; nor
 * does its end where WRONG_END is set.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void join(int *argc, char ***argv, int *rank, int *nranks)
{
    (void)argc;
    (void)argv;
    *rank = 0;
    *nranks = 1;
}

static void leave(void)
{
    while (getenv("WRONG_END") != NULL)
        pause();
}

static void copy(const float *in, float *out, size_t count)
{
    memmove(out, in, count * sizeof *out);
}

static void copy_badly(const float *in, float *out, size_t count)
{
    copy(in, out, count);
    if (count > 100)
        out[100] = 0;
}

static void hang(const float *in, float *out, size_t count)
{
    (void)in;
    (void)out;
    (void)count;
    for (;;)
        pause();
}

static void keep(const float *in, float *out, size_t count)
{
    (void)in;
    (void)out;
    (void)count;
}

const struct library measured = {
    .name = "wrong",
    .join = join,
    .leave = leave,
    .allreduce = copy_badly,
    .allgather = copy,
    .reduce_scatter = copy,
    .alltoall = hang,
    .broadcast = keep,
    .barrier = keep,
};
