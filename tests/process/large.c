/*
 * large - one of a few ranks that give more than 4 GiB in one call.
 *
 *     ddl-launch --nproc_per_node 2 large [MIB]
 *
 * Each rank holds one buffer of MIB (4301: more elements of one byte than 32 bits count) and calls, in place:
 * broadcast, reduce_scatter, allgatherv with most of it in one block, allreduce. Every byte is looked at.
 */
#include <ddl/ddl.h>

#include "../support/now.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MIB = 4301, TAIL = 3 };

/* Byte i of what a rank gives in a call; no two places that are a power of two apart have the same for long.
 */
static uint8_t byte_of(size_t i, int salt)
{
    return (uint8_t)((i + (size_t)salt * 977) * 0x9e3779b97f4a7c15u >> 56);
}

static void fill(uint8_t *x, size_t begin, size_t end, int salt)
{
    for (size_t i = begin; i < end; i++)
        x[i] = byte_of(i, salt);
}

static void die(const char *what)
{
    fprintf(stderr, "large: %s: %s\n", what, ddl_last_error()->text);
    exit(1);
}

static void tell(const ddl_comm *world, const char *what, size_t bytes, double began)
{
    double took = now_s() - began;
    if (ddl_rank(world) == 0)
        printf("%s of %.2f GiB: %.1f s, %.2f GiB/s\n", what, (double)bytes / (1 << 30), took,
               (double)bytes / (1 << 30) / took);
    fflush(stdout);
}

/* All begin at once, so that it is the call whose time is told. */
static double start_together(ddl_comm *world)
{
    if (ddl_barrier(world, NULL) != DDL_OK)
        die("barrier");
    return now_s();
}

static void check(bool good, const char *what, size_t i)
{
    if (good)
        return;
    fprintf(stderr, "large: %s: byte %zu is wrong\n", what, i);
    exit(1);
}

int main(int argc, char *argv[])
{
    size_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : DEFAULT_MIB, bytes, block, begin, counts[64];
    ddl_comm *world = NULL;
    int rank, nranks;
    uint8_t *x;
    double began;

    if (ddl_init(&world, NULL) != DDL_OK)
        die("init");
    rank = ddl_rank(world);
    nranks = ddl_size(world);
    bytes = (mib << 20) + TAIL;
    bytes += (size_t)nranks - bytes % (size_t)nranks; /* blocks for all, of an odd size where that can be */
    if (nranks > 64 || (x = malloc(bytes)) == NULL)
        die("no memory");

    if (rank == nranks - 1)
        fill(x, 0, bytes, 1);
    else
        memset(x, 0, bytes);
    began = start_together(world);
    if (ddl_broadcast(x, bytes, DDL_INT8, nranks - 1, world, NULL) != DDL_OK)
        die("broadcast");
    tell(world, "broadcast", bytes, began);
    for (size_t i = 0; i < bytes; i++)
        check(x[i] == byte_of(i, 1), "broadcast", i);

    block = bytes / (size_t)nranks;
    begin = block * (size_t)rank;
    fill(x, 0, bytes, rank);
    began = start_together(world);
    if (ddl_reduce_scatter(x, x + begin, block, DDL_UINT8, DDL_SUM, world, NULL) != DDL_OK)
        die("reduce_scatter");
    tell(world, "reduce_scatter", bytes, began);
    for (size_t i = 0; i < bytes; i++) {
        unsigned sum = byte_of(i, rank);
        for (int r = 0; r < nranks && i >= begin && i < begin + block; r++)
            sum += r == rank ? 0 : byte_of(i, r);
        check(x[i] == (uint8_t)sum, "reduce_scatter", i);
    }

    for (int r = 0; r < nranks; r++)
        counts[r] = r == 0 ? bytes - (size_t)(nranks - 1) * 1000 : 1000;
    begin = rank == 0 ? 0 : counts[0] + 1000 * (size_t)(rank - 1);
    memset(x, 0, bytes);
    fill(x, begin, begin + counts[rank], 5);
    began = start_together(world);
    if (ddl_allgatherv(x + begin, x, counts, DDL_UINT8, world, NULL) != DDL_OK)
        die("allgatherv");
    tell(world, "allgatherv", bytes, began);
    for (size_t i = 0; i < bytes; i++)
        check(x[i] == byte_of(i, 5), "allgatherv", i);

    began = start_together(world);
    if (ddl_allreduce(x, x, bytes, DDL_UINT8, DDL_SUM, world, NULL) != DDL_OK)
        die("allreduce");
    tell(world, "allreduce", bytes, began);
    for (size_t i = 0; i < bytes; i++)
        check(x[i] == (uint8_t)(byte_of(i, 5) * (unsigned)nranks), "allreduce", i);

    if (ddl_comm_free(&world) != DDL_OK)
        die("free");
    free(x);
    if (rank == 0)
        printf("ok\n");
    return 0;
}
