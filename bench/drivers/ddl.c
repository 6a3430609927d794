/*
 * ddl.c - the driver of ddl. DDL_TRANSPORT says how ranks talk.
 */
#include "driver.h"

#include <ddl/ddl.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_(number) #number
#define TEXT(number)  TEXT_(number)

static ddl_comm *world;

static void must(ddl_status status)
{
    if (status == DDL_OK)
        return;
    fprintf(stderr, "%s\n", ddl_last_error()->text);
    exit(2);
}

static void join(int *argc, char ***argv, int *rank, int *nranks)
{
    (void)argc;
    (void)argv;
    must(ddl_init(&world, NULL));
    *rank = ddl_rank(world);
    *nranks = ddl_size(world);
}

static void leave(void)
{
    must(ddl_comm_free(&world));
}

static void allreduce(const float *in, float *out, size_t count)
{
    must(ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, world, NULL));
}

static void allgather(const float *in, float *out, size_t count)
{
    must(ddl_allgather(in, out, count, DDL_FLOAT32, world, NULL));
}

static void reduce_scatter(const float *in, float *out, size_t count)
{
    must(ddl_reduce_scatter(in, out, count, DDL_FLOAT32, DDL_SUM, world, NULL));
}

static void alltoall(const float *in, float *out, size_t count)
{
    must(ddl_alltoall(in, out, count, DDL_FLOAT32, world, NULL));
}

static void broadcast(const float *in, float *out, size_t count)
{
    (void)in;
    must(ddl_broadcast(out, count, DDL_FLOAT32, 0, world, NULL));
}

static void barrier(const float *in, float *out, size_t count)
{
    (void)in;
    (void)out;
    (void)count;
    must(ddl_barrier(world, NULL));
}

const struct library measured = {
    .name = "ddl " TEXT(DDL_VERSION_MAJOR) "." TEXT(DDL_VERSION_MINOR) "." TEXT(DDL_VERSION_PATCH),
    .join = join,
    .leave = leave,
    .allreduce = allreduce,
    .allgather = allgather,
    .reduce_scatter = reduce_scatter,
    .alltoall = alltoall,
    .broadcast = broadcast,
    .barrier = barrier,
};
