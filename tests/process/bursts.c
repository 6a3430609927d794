/*
 * bursts - many small operations in flight at once, while another thread of each rank uses another
 * communicator: they begin in order on every rank, whoever has the baton, and end.
 */
#include <ddl/ddl.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 150, BURST = 200, BLOCKING_EVERY = 37 };

static int failed(const char *what)
{
    fprintf(stderr, "bursts: %s: %s\n", what, ddl_last_error()->text);
    return 1;
}

static int64_t expected(int64_t value, int nranks)
{
    return value * nranks + (int64_t)nranks * (nranks - 1) / 2;
}

/* Its own calls, one after the other, until the last of them says that all have ended. */
static void *other_thread(void *arg)
{
    ddl_comm *comm = arg;
    for (int64_t i = 0;; i++) {
        int64_t value = i + ddl_rank(comm), sum = 0;
        if (ddl_allreduce(&value, &sum, 1, DDL_INT64, DDL_SUM, comm, NULL) != DDL_OK)
            return "allreduce in the other thread";
        if (sum != expected(i, ddl_size(comm)))
            return "a wrong sum in the other thread";
        if (i == (int64_t)ROUNDS * 20)
            return NULL;
    }
}

static int burst(ddl_comm *world, int64_t round)
{
    static int64_t values[BURST], sums[BURST];
    ddl_request *requests[BURST] = { NULL };
    for (int i = 0; i < BURST; i++) {
        values[i] = round * BURST + i + ddl_rank(world);
        bool blocks = i % BLOCKING_EVERY == BLOCKING_EVERY - 1;
        if (ddl_allreduce(&values[i], &sums[i], 1, DDL_INT64, DDL_SUM, world, blocks ? NULL : &requests[i]) !=
            DDL_OK)
            return failed("allreduce");
    }
    if (ddl_wait_all(BURST, requests) != DDL_OK)
        return failed("wait_all");
    for (int i = 0; i < BURST; i++)
        if (sums[i] != expected(round * BURST + i, ddl_size(world))) {
            fprintf(stderr, "bursts: sum %d of round %lld is %lld\n", i, (long long)round,
                    (long long)sums[i]);
            return 1;
        }
    return 0;
}

int main(void)
{
    ddl_comm *world = NULL, *other = NULL;
    pthread_t thread;
    void *wrong = NULL;
    if (ddl_init(&world, NULL) != DDL_OK)
        return failed("init");
    if (ddl_comm_split(world, 0, 0, &other) != DDL_OK)
        return failed("comm_split");
    if (pthread_create(&thread, NULL, other_thread, other) != 0)
        return 1;
    int status = 0;
    for (int64_t round = 0; round < ROUNDS && status == 0; round++)
        status = burst(world, round);
    if (status != 0)
        exit(status);
    pthread_join(thread, &wrong);
    if (wrong != NULL) {
        fprintf(stderr, "bursts: %s\n", (const char *)wrong);
        return 1;
    }
    if (ddl_comm_free(&other) != DDL_OK || ddl_comm_free(&world) != DDL_OK)
        return failed("comm_free");
    return 0;
}
