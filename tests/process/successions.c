/*
 * successions - small calls that follow each other, of ranks that only send and ranks that only receive: all
 * of it arrives, in order, also between larger ones, beside another thread, and when a sender does not call
 * again.
 */
#include <ddl/ddl.h>

#include "../support/now.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 20000, PER_KIND = 60, AWAY_MS = 3000, SOON_MS = 1500 };

typedef enum kind { BROADCAST, SCATTER, REDUCE, GATHER, SEND, KINDS } kind;

static ddl_comm *world;
static int rank, nranks;
static int32_t in[ELEMENTS], out[ELEMENTS];
static atomic_bool ended;

static int failed(const char *what)
{
    fprintf(stderr, "successions: rank %d: %s: %s\n", rank, what, ddl_last_error()->text);
    return 1;
}

static unsigned mixed(unsigned x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* Of rank r in the call. */
static int32_t value_of(unsigned call, int r, size_t i)
{
    return (int32_t)(mixed(call * 31 + (unsigned)r) % 1000 + i % 7);
}

static size_t count_of(unsigned call)
{
    static const size_t counts[] = { 1, 16, 250, 1000, 1024, 1300, 17000 };
    const unsigned which = mixed(call + 77) % 32;
    return counts[which < 28 ? which % 5 : which < 31 ? 5 : 6] / (size_t)nranks + 1;
}

/* Most call again at once; a few compute for a while. */
static void compute(unsigned call)
{
    if (mixed(call + (unsigned)rank) % 50 != 0)
        return;
    nap_us((long)(mixed(call) % 400));
}

static ddl_status run(unsigned call, kind what, int root, size_t count)
{
    const int next = (root + 1) % nranks;
    switch (what) {
    case BROADCAST:
        return ddl_broadcast(rank == root ? in : out, count, DDL_INT32, root, world, NULL);
    case SCATTER:
        return ddl_scatter(in, out, count, DDL_INT32, root, world, NULL);
    case REDUCE:
        return ddl_reduce(in, out, count, DDL_INT32, DDL_SUM, root, world, NULL);
    case GATHER:
        return ddl_gather(in, out, count, DDL_INT32, root, world, NULL);
    default:
        (void)call;
        return rank == root   ? ddl_send(in, count, DDL_INT32, next, world, NULL)
               : rank == next ? ddl_recv(out, count, DDL_INT32, root, world, NULL)
                              : DDL_OK;
    }
}

static int32_t expected(unsigned call, kind what, int root, size_t count, size_t i)
{
    int32_t sum = 0;
    switch (what) {
    case SCATTER:
        return value_of(call, root, (size_t)rank * count + i);
    case GATHER:
        return value_of(call, (int)(i / count), i % count);
    case REDUCE:
        for (int r = 0; r < nranks; r++)
            sum += value_of(call, r, i);
        return sum;
    default:
        return value_of(call, root, i);
    }
}

static bool receives(kind what, int root)
{
    return what == BROADCAST ? rank != root
           : what == SEND    ? rank == (root + 1) % nranks
           : what == SCATTER ? true
                             : rank == root;
}

static int call_once(unsigned call, kind what, int root)
{
    const size_t count = count_of(call);
    for (size_t i = 0; i < count * (size_t)(what == SCATTER ? nranks : 1); i++)
        in[i] = value_of(call, rank, i);
    if (run(call, what, root, count) != DDL_OK)
        return failed("a call");
    const size_t n = receives(what, root) ? count * (size_t)(what == GATHER ? nranks : 1) : 0;
    for (size_t i = 0; i < n; i++)
        if (out[i] != expected(call, what, root, count, i)) {
            fprintf(stderr, "successions: rank %d: call %u of kind %d: element %zu of %zu is %d\n", rank,
                    call, (int)what, i, n, out[i]);
            return 1;
        }
    memset(in, 0xdd, sizeof in[0] * count); /* they are the program's again */
    compute(call);
    return 0;
}

/* Roots that do not call again for a while: what they have sent comes all the same. */
static int leave_alone(void)
{
    const int root = nranks - 1;
    if (ddl_barrier(world, NULL) != DDL_OK)
        return failed("barrier");
    for (int i = 0; i < 100; i++) {
        int64_t sent_ms = now_ms();
        if (ddl_broadcast(&sent_ms, 1, DDL_INT64, root, world, NULL) != DDL_OK)
            return failed("broadcast");
        if (rank != root && now_ms() - sent_ms > SOON_MS) {
            fprintf(stderr, "successions: rank %d: broadcast %d took %lld ms\n", rank, i,
                    (long long)(now_ms() - sent_ms));
            return 1;
        }
    }
    if (rank == root)
        nap_us(AWAY_MS * 1000);
    return 0;
}

static void *other_thread(void *arg)
{
    ddl_comm *comm = arg;
    while (true) {
        int32_t stop = atomic_load(&ended) ? 1 : 0, all = 0;
        if (ddl_allreduce(&stop, &all, 1, DDL_INT32, DDL_MIN, comm, NULL) != DDL_OK)
            return "allreduce in the other thread";
        if (all == 1)
            return NULL;
        nap_us(300);
    }
}

int main(int argc, char **argv)
{
    const unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
    ddl_comm *other = NULL;
    if (ddl_init(&world, NULL) != DDL_OK)
        return failed("init");
    rank = ddl_rank(world);
    nranks = ddl_size(world);
    if (ddl_comm_split(world, 0, rank, &other) != DDL_OK)
        return failed("split");
    for (int beside = 0; beside < 2; beside++) {
        pthread_t thread;
        void *problem = NULL;
        atomic_store(&ended, false);
        if (beside && pthread_create(&thread, NULL, other_thread, other) != 0)
            return failed("thread");
        for (unsigned round = 0; round < rounds; round++)
            for (unsigned i = 0; i < PER_KIND; i++)
                if (call_once((unsigned)beside * 1000000 + round * PER_KIND + i, (kind)(round % KINDS),
                              (int)(mixed(round) % (unsigned)nranks)) != 0)
                    return 1;
        if (leave_alone() != 0)
            return 1;
        atomic_store(&ended, true);
        if (beside)
            pthread_join(thread, &problem);
        if (problem != NULL)
            return failed(problem);
    }
    if (ddl_comm_free(&other) != DDL_OK || ddl_comm_free(&world) != DDL_OK)
        return failed("free");
    return 0;
}
