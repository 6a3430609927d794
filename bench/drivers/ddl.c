/*
 * ddl.c - the driver of ddl. DDL_TRANSPORT says how ranks talk; with BENCH_MEMORY=shared buffers are of
 * ddl_mem_alloc.
 */
#include "driver.h"

#include <ddl/ddl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static bool shares_buffers(void)
{
    const char *memory = getenv("BENCH_MEMORY");
    return memory != NULL && strcmp(memory, "shared") == 0;
}

static void *allocate(size_t bytes)
{
    void *buffer = NULL;
    bytes = bytes > 0 ? bytes : 1;
    if (shares_buffers())
        must(ddl_mem_alloc(world, bytes, &buffer));
    else if (posix_memalign(&buffer, 4096, bytes) != 0)
        buffer = NULL;
    return buffer;
}

static void release(void *buffer)
{
    if (shares_buffers())
        must(ddl_mem_free(world, buffer));
    else
        free(buffer);
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

static void reduce(const float *in, float *out, size_t count)
{
    must(ddl_reduce(in, out, count, DDL_FLOAT32, DDL_SUM, 0, world, NULL));
}

static void gather(const float *in, float *out, size_t count)
{
    must(ddl_gather(in, out, count, DDL_FLOAT32, 0, world, NULL));
}

static void scatter(const float *in, float *out, size_t count)
{
    must(ddl_scatter(in, out, count, DDL_FLOAT32, 0, world, NULL));
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
    .allocate = allocate,
    .release = release,
    .allreduce = allreduce,
    .allgather = allgather,
    .reduce_scatter = reduce_scatter,
    .alltoall = alltoall,
    .broadcast = broadcast,
    .barrier = barrier,
    .reduce = reduce,
    .gather = gather,
    .scatter = scatter,
};
