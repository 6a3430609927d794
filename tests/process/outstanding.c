/*
 * outstanding - very many messages and collectives between two ranks that are all begun before one is waited
 * for.
 *
 *     outstanding COUNT SECONDS
 *
 * What each costs is not to rise with how many there are: all of them take at most SECONDS of a CPU, of each
 * rank. What rank 1 receives is what rank 0 sent, and sums are right. The memory that they took is let go.
 */
#include <ddl/ddl.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MOST_KEPT = 48 * 1024 * 1024, MOST_KEPT_OF_LARGE = 100 * 1024 * 1024 };

static int failed(const char *what)
{
    fprintf(stderr, "outstanding: %s: %s\n", what, ddl_last_error()->text);
    return 1;
}

static double cpu_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Bytes that malloc has given out; 0 where it does not tell. */
static size_t bytes_in_use(void)
{
#ifdef __GLIBC__
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

/* All have ended, and value i is step * i + 1. */
static int finish(const char *what, const int64_t values[], ddl_request *requests[], int count, int64_t step)
{
    if (ddl_wait_all((size_t)count, requests) != DDL_OK)
        return failed(what);
    for (int i = 0; i < count; i++)
        if (values[i] != step * i + 1)
            return fprintf(stderr, "outstanding: %s: value %d is %lld\n", what, i, (long long)values[i]), 1;
    return 0;
}

/* is_late: no message is received before all are sent. */
static int send_and_receive(ddl_comm *world, int64_t values[], ddl_request *requests[], int count,
                            bool is_late)
{
    const int rank = ddl_rank(world);
    if (rank == 1 && is_late && ddl_barrier(world, NULL) != DDL_OK)
        return failed("barrier");
    for (int i = 0; i < count; i++) {
        values[i] = rank == 0 ? 3 * (int64_t)i + 1 : -1;
        ddl_status status = rank == 0 ? ddl_send(&values[i], 1, DDL_INT64, 1, world, &requests[i])
                                      : ddl_recv(&values[i], 1, DDL_INT64, 0, world, &requests[i]);
        if (status != DDL_OK)
            return failed("a message");
    }
    if (rank == 0 && is_late && ddl_barrier(world, NULL) != DDL_OK)
        return failed("barrier");
    return finish("waiting for messages", values, requests, count, 3);
}

/* With other counts in each, in a window; sources are all ones. */
static int exchange(ddl_comm *world, ddl_request *requests[], int count)
{
    enum { WINDOW = 4000, MOST = 64 };
    static uint8_t in[2 * MOST], out[WINDOW][2 * MOST];
    const int rank = ddl_rank(world);
    memset(in, 1, sizeof in);
    for (int i = 0; i < count + WINDOW; i++) {
        if (i >= WINDOW && ddl_wait(&requests[i - WINDOW]) != DDL_OK)
            return failed("waiting for an alltoallv");
        if (i >= count)
            continue;
        /* Own block and the other rank's: what goes from 0 to 1 and from 1 to 0 differs. */
        const size_t own = (size_t)(i % 61), there = (size_t)((i / 61 + 7 * rank) % 64),
                     here = (size_t)((i / 61 + 7 * (1 - rank)) % 64);
        const size_t to[] = { rank == 0 ? own : there, rank == 0 ? there : own };
        const size_t from[] = { rank == 0 ? own : here, rank == 0 ? here : own };
        if (ddl_alltoallv(in, to, out[i % WINDOW], from, DDL_UINT8, world, &requests[i]) != DDL_OK)
            return failed("an alltoallv");
    }
    return 0;
}

static int sum_up(ddl_comm *world, int64_t values[], ddl_request *requests[], int count)
{
    for (int i = 0; i < count; i++) {
        values[i] = i + ddl_rank(world);
        if (ddl_allreduce(&values[i], &values[i], 1, DDL_INT64, DDL_SUM, world, &requests[i]) != DDL_OK)
            return failed("an allreduce");
    }
    return finish("waiting for allreduces", values, requests, count, 2);
}

/* As gradients of a large model are: over TCP each takes scratch of its own size and more. */
static int sum_up_large(ddl_comm *world, ddl_request *requests[], int count)
{
    enum { VALUES = 32 * 1024 };
    int64_t *values = calloc((size_t)count * VALUES, sizeof *values);
    if (values == NULL)
        return fprintf(stderr, "outstanding: no memory\n"), 1;
    int bad = 0;
    for (int i = 0; i < count && !bad; i++) {
        int64_t *own = &values[(size_t)i * VALUES];
        own[VALUES - 1] = i + ddl_rank(world);
        if (ddl_allreduce(own, own, VALUES, DDL_INT64, DDL_SUM, world, &requests[i]) != DDL_OK)
            bad = failed("a large allreduce");
    }
    if (!bad && ddl_wait_all((size_t)count, requests) != DDL_OK)
        bad = failed("waiting for large allreduces");
    for (int i = 0; i < count && !bad; i++)
        if (values[(size_t)(i + 1) * VALUES - 1] != 2 * i + 1)
            bad = fprintf(stderr, "outstanding: large allreduce %d is wrong\n", i);
    free(values);
    return bad;
}

/* Nonzero: more is taken than before, by so much. */
static int keeps_too_much(size_t least, size_t most, const char *after)
{
    const size_t taken = bytes_in_use(), kept = taken > least ? taken - least : 0;
    return kept <= most ? 0
                        : fprintf(stderr, "outstanding: %zu bytes are kept after %s, more than %zu\n", kept,
                                  after, most);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return fprintf(stderr, "usage: outstanding COUNT SECONDS\n"), 2;
    const int count = (int)strtol(argv[1], NULL, 10);
    const double limit = strtod(argv[2], NULL);
    ddl_comm *world;
    if (ddl_init(&world, NULL) != DDL_OK)
        return failed("init");
    int64_t *values = calloc((size_t)count, sizeof *values);
    ddl_request **requests = calloc((size_t)count, sizeof *requests);
    if (values == NULL || requests == NULL)
        return fprintf(stderr, "outstanding: no memory\n"), 1;
    const double before = cpu_seconds();
    const size_t least = bytes_in_use();
    int bad = send_and_receive(world, values, requests, count, false) ||
              send_and_receive(world, values, requests, count, true) ||
              sum_up(world, values, requests, count) || exchange(world, requests, count / 4);
    const double taken = cpu_seconds() - before;
    if (!bad && taken > limit)
        bad = fprintf(stderr, "outstanding: %d of each took %.1f s of a CPU, more than %.1f\n", count, taken,
                      limit);
    bad = bad || keeps_too_much(least, MOST_KEPT, "small calls") ||
          sum_up_large(world, requests, count / 250) ||
          keeps_too_much(least, MOST_KEPT_OF_LARGE, "large calls");
    free(requests);
    free(values);
    if (ddl_comm_free(&world) != DDL_OK)
        return failed("free");
    return bad != 0;
}
