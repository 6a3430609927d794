/*
 * python.c - the driver as a shared object, for a library that is called through Python: a program there says
 * with use_library what is measured, and calls main.
 */
#include "driver.h"

#include <stdio.h>

void use_library(const struct library *library); /* before main */

static struct library used;
static char name[128];

void use_library(const struct library *library)
{
    used = *library;
    snprintf(name, sizeof name, "%s", library->name);
}

static void join(int *argc, char ***argv, int *rank, int *nranks)
{
    used.join(argc, argv, rank, nranks);
}

static void leave(void)
{
    used.leave();
}

static void allreduce(const float *in, float *out, size_t count)
{
    used.allreduce(in, out, count);
}

static void allgather(const float *in, float *out, size_t count)
{
    used.allgather(in, out, count);
}

static void reduce_scatter(const float *in, float *out, size_t count)
{
    used.reduce_scatter(in, out, count);
}

static void alltoall(const float *in, float *out, size_t count)
{
    used.alltoall(in, out, count);
}

static void broadcast(const float *in, float *out, size_t count)
{
    used.broadcast(in, out, count);
}

static void barrier(const float *in, float *out, size_t count)
{
    used.barrier(in, out, count);
}

static void reduce(const float *in, float *out, size_t count)
{
    used.reduce(in, out, count);
}

static void gather(const float *in, float *out, size_t count)
{
    used.gather(in, out, count);
}

static void scatter(const float *in, float *out, size_t count)
{
    used.scatter(in, out, count);
}

const struct library measured = { .name = name,
                                  .join = join,
                                  .leave = leave,
                                  .allreduce = allreduce,
                                  .allgather = allgather,
                                  .reduce_scatter = reduce_scatter,
                                  .alltoall = alltoall,
                                  .broadcast = broadcast,
                                  .barrier = barrier,
                                  .reduce = reduce,
                                  .gather = gather,
                                  .scatter = scatter };
