/*
 * test_requests.c - requests in the company of threads, of each other, and of the end of their communicator.
 * Ranks are threads of this process that meet at a mem:// store.
 */
#define _GNU_SOURCE /* for processors of threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/now.h"
#include "api/comm.h"
#include "base/failpoint.h"
#include "oracle.h"
#include "ranks.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, MANY = 100 };

/* Long enough that both announce what they wait for; the two directions have nothing to do with each other.
 */
static void receive_before_sending(rank_thread *me)
{
    int32_t in[20] = { 0 }, out[20];
    size_t mine = me->rank == 0 ? 10 : 20, theirs = me->rank == 0 ? 20 : 10;
    for (int i = 0; i < 20; i++)
        out[i] = 100 * me->rank + i;
    ddl_request *request = NULL;
    EXPECT(me, ddl_recv(in, theirs, DDL_INT32, 1 - me->rank, me->world, &request) == DDL_OK);
    nap_us(300 * 1000);
    EXPECT(me, ddl_send(out, mine, DDL_INT32, 1 - me->rank, me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_wait(&request) == DDL_OK);
    EXPECT(me, in[theirs - 1] == 100 * (1 - me->rank) + (int)theirs - 1);
}

static void directions_of_a_pair_may_differ_in_size(void **state)
{
    (void)state;
    ranks_play("mem://directions", RANKS, receive_before_sending, NULL);
}

enum { IN_FRONT = 5000 };

/* More receives are in front of it than each tick of the library looks at. */
static void time_out_behind_many(rank_thread *me)
{
    static int32_t in[IN_FRONT];
    static ddl_request *in_front[IN_FRONT];
    if (me->rank == 0) {
        int32_t late = 0;
        ddl_request *request = NULL;
        for (int i = 0; i < IN_FRONT; i++)
            EXPECT(me, ddl_recv(&in[i], 1, DDL_INT32, 1, me->world, &in_front[i]) == DDL_OK);
        EXPECT(me, ddl_comm_set_timeout(me->world, 1000) == DDL_OK);
        EXPECT(me, ddl_recv(&late, 1, DDL_INT32, 2, me->world, &request) == DDL_OK);
        EXPECT(me, ddl_wait(&request) == DDL_ETIMEDOUT);
        EXPECT(me, ddl_last_error()->culprit == 2);
        EXPECT(me, ddl_wait_all(IN_FRONT, in_front) == DDL_ETIMEDOUT);
    }
    ranks_meet(me);
    (void)ddl_comm_free(&me->world); /* by which others hear of it */
}

static void a_deadline_is_kept_behind_thousands_of_operations(void **state)
{
    (void)state;
    ranks_play("mem://behind", 3, time_out_behind_many, NULL);
}

typedef struct waiter {
    ddl_request *request;
    ddl_status status;
    pthread_t thread;
} waiter;

static void *wait_elsewhere(void *arg)
{
    waiter *me = arg;
    me->status = ddl_wait(&me->request);
    return NULL;
}

/* Another thread waits for an operation that ends only as the communicator is freed. */
static void free_under_a_waiter(rank_thread *me)
{
    for (int round = 0; round < 20; round++) {
        int32_t x[64] = { 1 };
        waiter other = { NULL, DDL_EINTERNAL, me->thread };
        EXPECT(me, ddl_allreduce(x, x, 64, DDL_INT32, DDL_SUM, me->world, &other.request) == DDL_OK);
        EXPECT(me, pthread_create(&other.thread, NULL, wait_elsewhere, &other) == 0);
        if (round == 19)
            EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
        pthread_join(other.thread, NULL);
        EXPECT(me, other.status == DDL_OK);
        EXPECT(me, x[0] == RANKS);
    }
}

static void threads_may_wait_while_the_communicator_is_freed(void **state)
{
    (void)state;
    ranks_play("mem://free", RANKS, free_under_a_waiter, NULL);
}

/* More in flight than the library remembers of the past; the first does not match. */
static void mismatch_under_many(rank_thread *me)
{
    static int32_t buffers[RANKS][MANY];
    ddl_request *requests[MANY] = { NULL };
    for (int i = 0; i < MANY; i++)
        EXPECT(me, ddl_broadcast(&buffers[me->rank][i], 1, i == 0 && me->rank == 1 ? DDL_FLOAT32 : DDL_INT32,
                                 1, me->world, &requests[i]) == DDL_OK);
    ddl_status status = ddl_wait_all(MANY, requests);
    if (status == DDL_OK) /* the root may have been done before it heard */
        status = ddl_barrier(me->world, NULL);
    EXPECT(me, status == DDL_EMISMATCH);
    EXPECT(me, ddl_last_error()->culprit == 1);
}

static void mismatch_is_found_among_many_in_flight(void **state)
{
    (void)state;
    ranks_play("mem://many", RANKS, mismatch_under_many, NULL);
}

static void wait_for_ever(rank_thread *me)
{
    int32_t x = me->rank + 1;
    ddl_request *requests[2] = { NULL, NULL };
    size_t index = 9;
    EXPECT(me, ddl_comm_set_timeout(me->world, INT64_MAX) == DDL_OK);
    if (me->rank == 1)
        nap_us(100 * 1000);
    EXPECT(me, ddl_allreduce(&x, &x, 1, DDL_INT32, DDL_SUM, me->world, &requests[1]) == DDL_OK);
    EXPECT(me, ddl_wait_any(2, requests, &index) == DDL_OK);
    EXPECT(me, index == 1);
    EXPECT(me, requests[1] == NULL);
    EXPECT(me, x == 3);
}

static void deadline_may_be_as_far_as_there_is(void **state)
{
    (void)state;
    ranks_play("mem://ever", RANKS, wait_for_ever, NULL);
}

/* ---- many in flight, in any order ---- */

enum { IN_FLIGHT = 64, LONG_COUNT = 30000 };

static ddl_status start_one(rank_thread *me, int i, int32_t *x, size_t *count, ddl_request **request)
{
    *count = i % 8 == 0 ? LONG_COUNT : (size_t)i;
    for (size_t k = 0; k < *count; k++)
        x[k] = (int32_t)k + i + me->rank;
    switch (i % 3) {
    case 0:
        return ddl_allreduce(x, x, *count, DDL_INT32, DDL_SUM, me->world, request);
    case 1:
        return ddl_broadcast(x, *count, DDL_INT32, i % me->nranks, me->world, request);
    default:
        return ddl_reduce(x, x, *count, DDL_INT32, DDL_MAX, i % me->nranks, me->world, request);
    }
}

static bool ended_well(const rank_thread *me, int i, const int32_t *x, size_t count)
{
    int n = me->nranks, root = i % n;
    for (size_t k = 0; k < count; k++) {
        int32_t own = (int32_t)k + i + me->rank, first = (int32_t)k + i;
        int32_t want = i % 3 == 0         ? n * first + n * (n - 1) / 2
                       : i % 3 == 1       ? first + root
                       : me->rank == root ? first + n - 1
                                          : own;
        if (x[k] != want)
            return false;
    }
    return true;
}

static void keep_many_in_flight(rank_thread *me)
{
    int32_t *x = calloc((size_t)IN_FLIGHT * LONG_COUNT, sizeof *x);
    ddl_request *requests[IN_FLIGHT] = { NULL };
    size_t counts[IN_FLIGHT];
    uint64_t random = (uint64_t)me->rank + 5;

    for (int i = 0; i < IN_FLIGHT; i++)
        EXPECT(me, start_one(me, i, x + (size_t)i * LONG_COUNT, &counts[i], &requests[i]) == DDL_OK);
    for (int left = IN_FLIGHT; left > 0 && !me->complained;) {
        size_t index = oracle_below(&random, IN_FLIGHT);
        bool done = false;
        if (oracle_below(&random, 4) == 0) {
            EXPECT(me, ddl_wait_any(IN_FLIGHT, requests, &index) == DDL_OK);
            done = true;
        } else if (requests[index] == NULL) {
            continue;
        } else if (oracle_below(&random, 2) == 0) {
            EXPECT(me, ddl_wait(&requests[index]) == DDL_OK);
            done = true;
        } else {
            EXPECT(me, ddl_test(&requests[index], &done) == DDL_OK);
        }
        if (!done)
            continue;
        EXPECT(me, requests[index] == NULL);
        EXPECT(me, ended_well(me, (int)index, x + index * LONG_COUNT, counts[index]));
        left--;
    }
    free(x);
}

static void many_in_flight_complete_in_any_order(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 4; nranks++)
        ranks_play("mem://in-flight", nranks, keep_many_in_flight, NULL);
}

/* ---- testing and progress ---- */

/* Only when rank 0 has tested a thousand times does the other enter: a test that waited for it would wait for
 * good. */
static void test_while_alone(rank_thread *me)
{
    enum { TESTS = 1000, COUNT = 100000 };
    int32_t *x = calloc(4, COUNT * sizeof *x), *in = x + 2 * COUNT, peer = 1 - me->rank;
    ddl_request *requests[4] = { NULL };
    double began = now_s(), longest = 0;

    for (int i = 0; i < TESTS && me->rank == 0 && !me->complained; i++) {
        double before;
        bool done = true;
        if (i == 0) {
            EXPECT(me, ddl_allreduce(x, x, COUNT, DDL_INT32, DDL_SUM, me->world, &requests[0]) == DDL_OK);
            EXPECT(me, ddl_barrier(me->world, &requests[1]) == DDL_OK);
            EXPECT(me, ddl_broadcast(x + COUNT, COUNT, DDL_INT32, 1, me->world, &requests[2]) == DDL_OK);
            EXPECT(me, ddl_recv(in, COUNT, DDL_INT32, peer, me->world, &requests[3]) == DDL_OK);
        }
        before = now_s();
        EXPECT(me, ddl_test(&requests[i % 4], &done) == DDL_OK);
        if (now_s() - before > longest)
            longest = now_s() - before;
        EXPECT(me, !done);
        EXPECT(me, requests[i % 4] != NULL);
    }
    EXPECT(me, longest < 5); /* of a busy machine's scheduler */
    EXPECT(me, now_s() - began < RANKS_TIMEOUT_MS / 1000.0 / 2);
    ranks_meet(me);
    if (me->rank == 1) {
        EXPECT(me, ddl_allreduce(x, x, COUNT, DDL_INT32, DDL_SUM, me->world, &requests[0]) == DDL_OK);
        EXPECT(me, ddl_barrier(me->world, &requests[1]) == DDL_OK);
        EXPECT(me, ddl_broadcast(x + COUNT, COUNT, DDL_INT32, 1, me->world, &requests[2]) == DDL_OK);
        EXPECT(me, ddl_send(in, COUNT, DDL_INT32, peer, me->world, &requests[3]) == DDL_OK);
    }
    for (int left = 4; left > 0 && !me->complained;)
        for (int i = 0; i < 4; i++) {
            bool done = false;
            if (requests[i] == NULL)
                continue;
            EXPECT(me, ddl_test(&requests[i], &done) == DDL_OK); /* by its deadline it fails */
            left -= done;
        }
    free(x);
}

static void testing_never_blocks_and_gets_things_done(void **state)
{
    (void)state;
    ranks_play("mem://testing", RANKS, test_while_alone, NULL);
}

/* One rank has started its part and is not in the library while the others block in it, and end. */
static void leave_it_to_the_engine(rank_thread *me)
{
    enum { COUNT = 300000 };
    int32_t *x = calloc(COUNT, sizeof *x);
    ddl_request *request = NULL;

    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < COUNT; i++)
            x[i] = i + me->rank;
        EXPECT(me, ddl_allreduce(x, x, COUNT, DDL_INT32, DDL_SUM, me->world,
                                 me->rank == round % me->nranks ? &request : NULL) == DDL_OK);
        ranks_meet(me); /* all others are done with it */
        EXPECT(me, ddl_wait(&request) == DDL_OK);
        for (int i = 0; i < COUNT; i++)
            EXPECT(me, x[i] == me->nranks * i + me->nranks * (me->nranks - 1) / 2);
        ranks_meet(me);
    }
    free(x);
}

static void operations_go_on_while_their_caller_is_elsewhere(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 4; nranks++)
        ranks_play("mem://elsewhere", nranks, leave_it_to_the_engine, NULL);
}

/* Rank 0 aborts while the others are in the free, or about to be. */
static void free_after_an_error(rank_thread *me)
{
    bool done;
    EXPECT(me, ddl_test(NULL, &done) == DDL_EINVAL && done); /* or who tests until it is would never end */
    ranks_meet(me);
    if (me->rank == 0) {
        nap_us(20 * 1000);
        EXPECT(me, ddl_comm_abort(me->world, "enough") == DDL_OK);
    }
    EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
    EXPECT(me, ddl_last_error()->code == DDL_EINVAL);
}

static void a_free_that_returns_ok_leaves_the_last_error(void **state)
{
    (void)state;
    ranks_play("mem://last-error", 3, free_after_an_error, NULL);
}

/* ---- by tests, where ranks share a CPU ---- */

#ifdef __linux__
static atomic_int ntests;

static void test_what_takes_turns(rank_thread *me)
{
    enum { CALLS = 40, COUNT = 20000 };
    int32_t *x = calloc(COUNT, sizeof *x);
    for (int call = 0; call < CALLS && !me->complained; call++) {
        ddl_request *request = NULL;
        EXPECT(me, ddl_allreduce(x, x, COUNT, DDL_INT32, DDL_SUM, me->world, &request) == DDL_OK);
        for (bool done = false; !done; atomic_fetch_add(&ntests, 1))
            EXPECT(me, ddl_test(&request, &done) == DDL_OK);
    }
    free(x);
}

/* Who finds nothing to do lets the others go on: else each of them tests for a time slice, a thousand times
 * and more. */
static void tests_give_way_to_who_shares_the_cpu(void **state)
{
    (void)state;
    enum { NRANKS = 3, CALLS = 40, MOST = 100 };
    cpu_set_t all, one;
    if (ranks_hosts() > 1) /* which have CPUs of their own */
        skip();
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    ranks_play("mem://turns", NRANKS, test_what_takes_turns, NULL);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_in_range(atomic_load(&ntests), NRANKS * CALLS, NRANKS * CALLS * MOST);
}
#endif

static void be_quiet(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

/* ---- by ddl_test alone: the engine's own thread does not drive ---- */

#ifdef DDL_FAILPOINTS
enum { PATIENCE_S = 10 };

/* Test until it is done, without a moment in which anything else drives. */
static void test_until_done(rank_thread *me, ddl_request **request)
{
    double began = now_s();
    bool done = false;
    while (!done && now_s() - began < PATIENCE_S)
        EXPECT(me, ddl_test(request, &done) == DDL_OK);
    EXPECT(me, done);
    EXPECT(me, ddl_wait(request) == DDL_OK); /* which drives, if it was not */
}

/* Each rank is the first to come in turn; who comes last may be done as he comes. */
static void reduce_by_tests(rank_thread *me)
{
    size_t count = *(const size_t *)me->arg;
    int32_t *x = calloc(count, sizeof *x);

    for (int round = 0; round < 2 * me->nranks && !me->complained; round++) {
        ddl_request *request = NULL;
        for (size_t i = 0; i < count; i++)
            x[i] = (int32_t)i + me->rank;
        if (me->rank != round % me->nranks)
            ranks_meet(me);
        EXPECT(me, ddl_allreduce(x, x, count, DDL_INT32, DDL_SUM, me->world, &request) == DDL_OK);
        if (me->rank == round % me->nranks)
            ranks_meet(me);
        test_until_done(me, &request);
        for (size_t i = 0; i < count; i++)
            EXPECT(me, x[i] == me->nranks * (int32_t)i + me->nranks * (me->nranks - 1) / 2);
        ranks_meet(me);
    }
    free(x);
}

static void complete_by_tests(const char *store, const char *transport, size_t count)
{
    for (int nranks = 2; nranks <= 3; nranks++) {
        char complaint[1024];
        setenv("DDL_TRANSPORT", transport, 1);
        ddl_failpoint_arm("io.drive");
        ranks_try(store, nranks, reduce_by_tests, &count, complaint);
        ddl_failpoint_arm(NULL);
        unsetenv("DDL_TRANSPORT");
        if (complaint[0] != '\0')
            fail_msg("%s, of %d ranks: %s", store, nranks, complaint);
    }
}

static void tests_alone_complete_what_is_small(void **state)
{
    (void)state;
    complete_by_tests("mem://alone-small", "auto", 2); /* over a board, if there is one */
    complete_by_tests("mem://alone-small-tcp", "tcp", 2);
}

static void tests_alone_complete_what_is_large(void **state)
{
    (void)state;
    complete_by_tests("mem://alone-large", "auto", 1000000);
    complete_by_tests("mem://alone-large-tcp", "tcp", 1000000);
}

/* Rank 1 never comes: no test waits for it, and they see the deadline. */
static void test_for_nobody(rank_thread *me)
{
    enum { COUNT = 1000000, LIMIT_MS = 300, MOST_MS = 5 /* a quarter of the engine's tick */ };
    int32_t *x = calloc(COUNT, sizeof *x), y[2] = { 1, 2 };
    ddl_request *requests[2] = { NULL, NULL };

    if (me->rank == 0) {
        double began = now_s();
        int tests = 0, slow = 0;
        EXPECT(me, ddl_comm_set_timeout(me->world, LIMIT_MS) == DDL_OK);
        EXPECT(me, ddl_allreduce(x, x, COUNT, DDL_INT32, DDL_SUM, me->world, &requests[0]) == DDL_OK);
        EXPECT(me, ddl_allreduce(y, y, 2, DDL_INT32, DDL_SUM, me->world, &requests[1]) == DDL_OK);
        for (; (requests[0] != NULL || requests[1] != NULL) && now_s() - began < PATIENCE_S; tests++) {
            bool done = false;
            int i = requests[tests % 2] != NULL ? tests % 2 : 1 - tests % 2;
            double before = now_s();
            ddl_status status = ddl_test(&requests[i], &done);
            slow += now_s() - before > MOST_MS / 1000.0;
            EXPECT(me, status == (done ? DDL_ETIMEDOUT : DDL_OK));
            EXPECT(me, !done || ddl_last_error()->culprit == 1);
        }
        EXPECT(me, requests[0] == NULL && requests[1] == NULL);
        EXPECT(me, tests > 10);
        EXPECT(me, slow <= tests / 2); /* a busy machine stops some */
        (void)ddl_wait_all(2, requests);
    }
    ranks_meet(me);
    (void)ddl_comm_free(&me->world); /* which has failed on rank 0: whatever it says */
    free(x);
}

static void tests_are_short_where_nobody_comes(void **state)
{
    (void)state;
    char complaint[1024];
    ddl_failpoint_arm("io.drive");
    ranks_try("mem://nobody", 2, test_for_nobody, NULL, complaint);
    ddl_failpoint_arm(NULL);
    if (complaint[0] != '\0')
        fail_msg("%s", complaint);
}
#endif

/* More operations than a rank remembers may follow an alltoallv, whose counts its peers compare pair by pair.
 */
static void issue_far_ahead(rank_thread *me)
{
    enum { AHEAD = 80 };
    const size_t mine[2] = { me->rank == 0 ? 5 : 3, 2 },
                 theirs[2] = { me->rank == 0 ? 5 : 2, me->rank == 0 ? 3 : 2 };
    const size_t *sent = mine, *received = theirs;
    int32_t in[16], out[16] = { 0 };
    ddl_request *requests[AHEAD + 1] = { NULL };
    for (int i = 0; i < 16; i++)
        in[i] = 100 * me->rank + i;
    if (me->rank == 1)
        ranks_meet(me); /* rank 0 has issued everything */
    EXPECT(me, ddl_alltoallv(in, sent, out, received, DDL_INT32, me->world, &requests[0]) == DDL_OK);
    for (int i = 1; i <= AHEAD; i++)
        EXPECT(me, ddl_barrier(me->world, &requests[i]) == DDL_OK);
    if (me->rank == 0)
        ranks_meet(me);
    EXPECT(me, ddl_wait_all(AHEAD + 1, requests) == DDL_OK);
    EXPECT(me, out[received[0]] == (me->rank == 0 ? 100 : 103));
}

static void many_operations_may_follow_an_alltoallv(void **state)
{
    (void)state;
    ranks_play("mem://far-ahead", 2, issue_far_ahead, NULL);
}

/*
 * Rank 0 waits for rank 2, and has said so, when rank 1 comes and sends it what it does not expect. What rank
 * 0 said was of no use to rank 1 then, so it must say again what it expects.
 */
static void send_what_is_not_expected(rank_thread *me)
{
    static const size_t sent[3][3] = { { 0, 0, 10 }, { 100000, 0, 0 }, { 10, 0, 0 } };
    static const size_t expected[3][3] = { { 0, 0, 10 }, { 0, 0, 0 }, { 10, 0, 0 } };
    int32_t *in = calloc(100000, sizeof *in), *out = calloc(100000, sizeof *out), token = 0;
    ddl_request *open = NULL;
    EXPECT(me, in != NULL && out != NULL);
    EXPECT(me, ddl_barrier(me->world, NULL) == DDL_OK);
    if (me->rank == 1) /* something is in flight, so that the engine hears what is said */
        EXPECT(me, ddl_recv(&token, 1, DDL_INT32, 2, me->world, &open) == DDL_OK);
    if (me->rank == 1)
        nap_us(400 * 1000); /* until it is told */
    if (me->rank != 2) {
        ddl_status status =
            ddl_alltoallv(in, sent[me->rank], out, expected[me->rank], DDL_INT32, me->world, NULL);
        EXPECT(me, status == DDL_EMISMATCH);
        EXPECT(me, ddl_last_error()->culprit == 1);
        EXPECT(me, strstr(ddl_last_error()->text, "sends 100000 elements") != NULL);
    }
    ranks_meet(me); /* rank 2 comes only when the others have found out */
    EXPECT(me, ddl_wait(&open) == (me->rank == 1 ? DDL_EMISMATCH : DDL_OK));
    (void)ddl_comm_free(&me->world); /* which has failed by now: whatever it says */
    free(in);
    free(out);
}

static void unexpected_sender_is_answered_by_who_waits_for_another(void **state)
{
    (void)state;
    ddl_set_log(be_quiet, NULL);
    ranks_play("mem://unexpected", 3, send_what_is_not_expected, NULL);
    ddl_set_log(NULL, NULL);
}

/* A part whose operation nobody answers costs freeing its world no more than the 5 s that are promised. */
static void free_beside_an_unanswered_part(rank_thread *me)
{
    ddl_comm *part = NULL;
    ddl_request *unanswered = NULL;
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
    if (me->rank == 0) {
        EXPECT(me, ddl_barrier(part, &unanswered) == DDL_OK);
        double begin = now_s();
        EXPECT(me, ddl_comm_free(&me->world) == DDL_ETIMEDOUT);
        EXPECT(me, now_s() - begin < 5.5); /* half a second for a busy machine */
        EXPECT(me, ddl_wait(&unanswered) == DDL_EABORTED);
        EXPECT(me, ddl_last_error()->culprit == -1); /* as several are awaited */
    }
    ranks_meet(me);
    if (me->rank != 0)
        (void)ddl_comm_free(&me->world); /* rank 0 is gone: whatever it says */
}

static void freeing_is_bounded_though_a_part_is_not_answered(void **state)
{
    (void)state;
    ddl_set_log(be_quiet, NULL);
    ranks_play("mem://unanswered", 3, free_beside_an_unanswered_part, NULL);
    ddl_set_log(NULL, NULL);
}

/* Rank 0 frees the world and leaves alone after 5 s, while rank 1 still waits there, a second longer: for
 * rank 2, which calls when both are gone. */
static void leave_one_after_the_other(rank_thread *me)
{
    int32_t x[3] = { 0 };
    ddl_comm *part = NULL;
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
    if (me->rank == 1)
        nap_us(1000 * 1000);
    if (me->rank < 2) {
        EXPECT(me, ddl_comm_free(&me->world) == DDL_ETIMEDOUT);
        EXPECT(me, ddl_last_error()->culprit == 2);
    }
    ranks_meet(me);
    if (me->rank == 2) {
        EXPECT(me, ddl_gather(&x[2], x, 1, DDL_INT32, 2, part, NULL) == DDL_EPEERLOST);
        EXPECT(me, ddl_last_error()->culprit == 0);
    }
}

static void of_those_who_left_alone_the_lowest_is_blamed_by_who_comes_later(void **state)
{
    (void)state;
    ranks_play("mem://one-by-one", 3, leave_one_after_the_other, NULL);
}

/* Around one that times out, two operations on a communicator that is aborted. */
static void fail_in_two_ways(rank_thread *me)
{
    int32_t x[3];
    ddl_comm *part = NULL;
    ddl_request *requests[3] = { NULL };
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
    if (me->rank == 0) {
        EXPECT(me, ddl_comm_set_timeout(me->world, 300) == DDL_OK);
        for (int i = 0; i < 3; i++)
            EXPECT(me, ddl_recv(&x[i], 1, DDL_INT32, 1, i == 1 ? me->world : part, &requests[i]) == DDL_OK);
        EXPECT(me, ddl_comm_abort(part, "nobody needs it") == DDL_OK);
        EXPECT(me, ddl_wait_all(3, requests) == DDL_ETIMEDOUT);
        EXPECT(me, ddl_last_error()->code == DDL_ETIMEDOUT && ddl_last_error()->culprit == 1);
    }
    ranks_meet(me);
    (void)ddl_comm_free(&me->world); /* which tells of that */
}

static void waiting_for_all_tells_the_cause_rather_than_that_some_were_aborted(void **state)
{
    (void)state;
    ranks_play("mem://two-ways", RANKS, fail_in_two_ways, NULL);
}

#ifndef __SANITIZE_ADDRESS__
/* ---- an engine that nobody can drive (what is given up there is never freed) ---- */

/* Of several requests the one whose deadline is first is given up, by who waits and by who only tests. */
static void give_up_what_is_stuck(rank_thread *me)
{
    static int32_t x[3]; /* whoever is stuck may still write there */
    ddl_request *requests[3] = { NULL };
    ranks_meet(me);
    if (me->rank == 0) {
        static const int64_t limits_ms[] = { 60000, 300, 400 };
        for (int i = 0; i < 3; i++) {
            EXPECT(me, ddl_comm_set_timeout(me->world, limits_ms[i]) == DDL_OK);
            EXPECT(me, ddl_recv(&x[i], 1, DDL_INT32, 1, me->world, &requests[i]) == DDL_OK);
        }
        EXPECT(me, ddl_engine_enter(me->world->engine, ddl_deadline_in_ms(5000)));
        const int64_t begin_ns = ddl_now_ns();
        size_t index = 0;
        EXPECT(me, ddl_wait_any(2, requests, &index) == DDL_ETIMEDOUT);
        EXPECT(me, index == 1 && requests[1] == NULL);
        bool done = false;
        ddl_status status = DDL_OK;
        while (!done && ddl_now_ns() - begin_ns < 20 * DDL_NS_PER_S)
            status = ddl_test(&requests[2], &done);
        EXPECT(me, done && status == DDL_ETIMEDOUT);
        EXPECT(me, ddl_now_ns() - begin_ns < 10 * DDL_NS_PER_S);
        ddl_engine_leave(me->world->engine);
        EXPECT(me, ddl_wait(&requests[0]) != DDL_OK); /* the deadlines have ended all of it by then */
    }
    ranks_meet(me);
    if (me->rank == 1)
        (void)ddl_comm_free(&me->world); /* which tells of that */
}

static void a_stuck_engine_is_given_up_at_the_first_deadline(void **state)
{
    (void)state;
    ddl_set_log(be_quiet, NULL);
    ranks_play("mem://stuck", RANKS, give_up_what_is_stuck, NULL);
    ddl_set_log(NULL, NULL);
}
#endif

/* ---- who is left, and a peer that is broken ---- */

/* Rank 1 tells rank 0 who is left in words that are none: it is lost, and the others go on without it. */
static void shrink_beside_nonsense(rank_thread *me)
{
    const size_t *bytes = me->arg;
    ddl_comm *left = NULL;
    if (me->rank == 1) {
        static const uint8_t nonsense[9] = { 9 };
        const ddl_frame frame = { .type = DDL_FRAME_AGREE,
                                  .channel = ddl_channel_of(me->world->id, DDL_CHANNEL_COLLECTIVE),
                                  .sequence = 1 };
        EXPECT(me, ddl_engine_enter(me->world->engine, ddl_deadline_in_ms(5000)));
        ddl_mesh_tell_bytes(me->world->mesh, 0, &frame, (ddl_view){ nonsense, *bytes });
        ddl_mesh_flush(me->world->mesh);
        ddl_engine_leave(me->world->engine);
    } else if (me->rank == 0) {
        int32_t x;
        EXPECT(me, ddl_recv(&x, 1, DDL_INT32, 1, me->world, NULL) == DDL_EPROTO);
        EXPECT(me, ddl_last_error()->culprit == 1);
    }
    ranks_meet(me);
    if (me->rank == 1) {
        EXPECT(me, ddl_comm_shrink(me->world, &left) == DDL_EABORTED && left == NULL);
    } else {
        EXPECT(me, ddl_comm_shrink(me->world, &left) == DDL_OK);
        EXPECT(me, ddl_size(left) == 2 && ddl_barrier(left, NULL) == DDL_OK);
        EXPECT(me, ddl_comm_free(&left) == DDL_OK);
    }
    ranks_meet(me);
    (void)ddl_comm_free(&me->world); /* which tells of that */
}

static void a_broken_word_of_who_is_left_ends_its_rank(void **state)
{
    (void)state;
    ddl_set_log(be_quiet, NULL);
    for (size_t bytes = 0; bytes <= 9; bytes += 9)
        ranks_play("mem://nonsense", 3, shrink_beside_nonsense, &bytes);
}

/* Say this of who is left of a communicator, in words of this test, and be sure that the other has heard it.
 */
static void report_in(rank_thread *me, int to, uint32_t id, uint64_t agreement, const uint8_t words[9])
{
    int32_t x = 0;
    const ddl_frame frame = { .type = DDL_FRAME_AGREE,
                              .channel = ddl_channel_of(id, DDL_CHANNEL_COLLECTIVE),
                              .sequence = agreement };
    EXPECT(me, ddl_engine_enter(me->world->engine, ddl_deadline_in_ms(5000)));
    ddl_mesh_tell_bytes(me->world->mesh, to, &frame, (ddl_view){ words, 9 });
    ddl_mesh_flush(me->world->mesh);
    ddl_engine_leave(me->world->engine);
    EXPECT(me, ddl_send(&x, 1, DDL_INT32, to, me->world, NULL) == DDL_OK);
}

static void report(rank_thread *me, int to, uint32_t id, const uint8_t words[9])
{
    report_in(me, to, id, 1, words);
}

static void hear_report(rank_thread *me, int from)
{
    int32_t x = 0;
    EXPECT(me, ddl_recv(&x, 1, DDL_INT32, from, me->world, NULL) == DDL_OK);
}

enum { LOST = 1, ACCEPTED, DECIDED, GIVEN_UP, OFFER = 7 };

/* Of a communicator that rank 0 has not made yet, rank 1 says that it wants to go on with whoever is left. */
static void say_early_who_is_left(rank_thread *me)
{
    enum { LIMIT_MS = 400 };
    const ddl_world *world = me->world->world;
    ddl_comm *left = NULL, *again = NULL;
    const uint32_t id = (uint32_t)ddl_world_id(world, 0, 0); /* by the first offer of rank 0 */
    static const uint8_t lost_nobody[9] = { LOST };
    if (me->rank == 1)
        report(me, 0, id, lost_nobody);
    else
        hear_report(me, 1);
    EXPECT(me, ddl_comm_shrink(me->world, &left) == DDL_OK && left->id == id);
    if (me->rank == 0) {
        EXPECT(me, ddl_comm_set_timeout(left, LIMIT_MS) == DDL_OK);
        EXPECT(me, ddl_comm_shrink(left, &again) == DDL_ETIMEDOUT);
        EXPECT(me, strstr(ddl_last_error()->text, "has called ddl_comm_shrink") != NULL);
    }
    ranks_meet(me);
    (void)ddl_comm_free(&left);
    EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
}

static void who_is_left_may_be_told_before_there_is_a_communicator(void **state)
{
    (void)state;
    ddl_set_log(be_quiet, NULL);
    ranks_play("mem://early", 2, say_early_who_is_left, NULL);
    ddl_set_log(NULL, NULL);
}

typedef enum lateness { HAS_GIVEN_UP, FREES_WHAT_WAS_DECIDED, FREES_WHAT_WAS_PROPOSED } lateness;

/*
 * Rank 2 gives up, as the others do, or frees the communicator after it was decided who is left, or proposed,
 * and it has waited in vain for more. It is counted in; so it tells the others that it is not there, and
 * whenever it is asked.
 */
static void be_counted_in_too_late(rank_thread *me)
{
    const lateness how = *(const lateness *)me->arg;
    static const uint8_t gives_up[9] = { GIVEN_UP }, decided[9] = { DECIDED, [4] = OFFER },
                         proposed[9] = { ACCEPTED, [2] = 1, [4] = OFFER }, lost_nobody[9] = { LOST };
    const uint32_t id = (uint32_t)ddl_world_id(me->world->world, 0, OFFER);
    const bool frees = how != HAS_GIVEN_UP;
    ddl_comm *part = NULL, *left = NULL;
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
    if (me->rank == 2) {
        if (how != FREES_WHAT_WAS_PROPOSED)
            hear_report(me, 0);
        if (how != FREES_WHAT_WAS_DECIDED)
            hear_report(me, 1);
        if (how == FREES_WHAT_WAS_PROPOSED)
            EXPECT(me, ddl_comm_set_timeout(part, 300) == DDL_OK);
        if (how != FREES_WHAT_WAS_DECIDED)
            EXPECT(me, ddl_comm_shrink(part, &left) == (frees ? DDL_ETIMEDOUT : DDL_EABORTED));
    } else if (how == HAS_GIVEN_UP) {
        report(me, 2, part->id, gives_up);
    } else if (me->rank == (how == FREES_WHAT_WAS_DECIDED ? 0 : 1)) {
        report(me, 2, part->id, how == FREES_WHAT_WAS_DECIDED ? decided : proposed);
    }
    ranks_meet(me);
    if (!frees && me->rank == 0)
        report(me, 2, part->id, decided);
    else if (!frees && me->rank == 2)
        hear_report(me, 0);
    if (me->rank == 2) {
        EXPECT(me, ddl_comm_abort(part, "nobody need come to its end") == DDL_OK);
        (void)ddl_comm_free(&part);
    }
    ranks_meet(me);
    if (me->rank == 2) {
        hear_report(me, 0);
        report(me, 0, DDL_ID_LIMIT, lost_nobody); /* so that all before it has come */
    } else if (me->rank == 0) {
        report(me, 2, id, lost_nobody);
        hear_report(me, 2);
        EXPECT(me, ddl_engine_enter(me->world->engine, ddl_deadline_in_ms(5000)));
        EXPECT(me,
               me->world->world->nearly_words == 3); /* what rank 2 has told, answered, and reported here */
        ddl_engine_leave(me->world->engine);
    }
    ranks_meet(me);
    if (me->rank != 2)
        (void)ddl_comm_free(&part);
    EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
}

static void who_is_counted_in_and_does_not_go_on_says_so(void **state)
{
    (void)state;
    ddl_set_log(be_quiet, NULL);
    for (lateness how = HAS_GIVEN_UP; how <= FREES_WHAT_WAS_PROPOSED; how++)
        ranks_play("mem://counted", 3, be_counted_in_too_late, &how);
    ddl_set_log(NULL, NULL);
}

/*
 * Rank 1 is counted in by what rank 0 has proposed, and then gives up; what rank 2 has said so far is that it
 * wants to go on. It comes after that, and all of them are decided to be left; so rank 1 is left behind, and
 * the others go on without it at once.
 */
static void leave_behind_who_gave_up(rank_thread *me)
{
    static const uint8_t lost_nobody[9] = { LOST };
    ddl_comm *part = NULL, *left = NULL, *again = NULL;
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
    if (me->rank == 2)
        for (int to = 0; to < 2; to++)
            report(me, to, part->id, lost_nobody);
    else
        hear_report(me, 2);
    if (me->rank == 1) {
        EXPECT(me, ddl_comm_set_timeout(part, 300) == DDL_OK);
        EXPECT(me, ddl_comm_shrink(part, &left) == DDL_ETIMEDOUT);
        EXPECT(me, ddl_comm_abort(part, "nobody need come to its end") == DDL_OK);
        (void)ddl_comm_free(&part);
        report(me, 2, DDL_ID_LIMIT, lost_nobody); /* so that all before it has come */
    } else {
        if (me->rank == 2)
            hear_report(me, 1);
        EXPECT(me, ddl_comm_shrink(part, &left) == DDL_OK && ddl_size(left) == 3);
        EXPECT(me, ddl_barrier(left, NULL) == DDL_EPEERLOST && ddl_last_error()->culprit == 1);
        EXPECT(me, ddl_comm_shrink(left, &again) == DDL_OK && ddl_size(again) == 2);
        EXPECT(me, ddl_barrier(again, NULL) == DDL_OK);
    }
    ranks_meet(me);
    (void)ddl_comm_free(&me->world);
}

static void who_gave_up_after_it_was_counted_in_is_left_behind(void **state)
{
    (void)state;
    ranks_play("mem://left-behind", 3, leave_behind_who_gave_up, NULL);
}

#ifdef __linux__
static _Thread_local bool lacks_memory;

ddl_status __real_ddl_comm_create(ddl_world *world, uint32_t id, const int members[], int nranks, int rank,
                                  const int boards[], ddl_comm *root, int64_t timeout_ms, ddl_comm **out,
                                  ddl_error *err);
ddl_status __wrap_ddl_comm_create(ddl_world *world, uint32_t id, const int members[], int nranks, int rank,
                                  const int boards[], ddl_comm *root, int64_t timeout_ms, ddl_comm **out,
                                  ddl_error *err);

ddl_status __wrap_ddl_comm_create(ddl_world *world, uint32_t id, const int members[], int nranks, int rank,
                                  const int boards[], ddl_comm *root, int64_t timeout_ms, ddl_comm **out,
                                  ddl_error *err)
{
    if (lacks_memory)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a communicator");
    return __real_ddl_comm_create(world, id, members, nranks, rank, boards, root, timeout_ms, out, err);
}

/* Rank 2 has no memory for the communicator of those who are left, itself among them. */
static void be_unable_to_go_on(rank_thread *me)
{
    ddl_comm *left = NULL;
    lacks_memory = me->rank == 2;
    const ddl_status status = ddl_comm_shrink(me->world, &left);
    lacks_memory = false;
    if (me->rank == 2) {
        EXPECT(me, status == DDL_ENOMEM && left == NULL);
    } else {
        EXPECT(me, status == DDL_OK && ddl_size(left) == 3);
        EXPECT(me, ddl_comm_set_timeout(left, 10000) == DDL_OK);
        EXPECT(me, ddl_barrier(left, NULL) == DDL_EPEERLOST && ddl_last_error()->culprit == 2);
    }
    ranks_meet(me);
    (void)ddl_comm_free(&me->world);
}

static void who_cannot_make_what_was_agreed_upon_says_so(void **state)
{
    (void)state;
    ranks_play("mem://unmade", 3, be_unable_to_go_on, NULL);
}
#endif

#ifdef DDL_FAILPOINTS
/* Rank 1 speaks of an agreement that is far ahead: none are made for that. */
static void speak_of_what_is_far_ahead(rank_thread *me)
{
    enum { FAR = 100000 };
    static const uint8_t lost_nobody[9] = { LOST };
    const uint64_t before = ddl_failpoint_hits(); /* for one, each call that allocates */
    if (me->rank == 1)
        report_in(me, 0, me->world->id, FAR, lost_nobody);
    else
        hear_report(me, 1);
    EXPECT(me, ddl_failpoint_hits() - before < FAR);
}

static void no_agreements_are_made_for_what_is_said_of_one_far_ahead(void **state)
{
    (void)state;
    ranks_play("mem://ahead", 2, speak_of_what_is_far_ahead, NULL);
}
#endif

/* On a communicator of two of the three ranks one blames the third. */
static void blame_who_is_not_there(rank_thread *me)
{
    ddl_comm *part = NULL;
    EXPECT(me, ddl_comm_split(me->world, me->rank == 2, 0, &part) == DDL_OK);
    if (me->rank == 1) {
        int32_t x = 0;
        const ddl_notice notice = {
            .code = DDL_EPEERLOST, .culprit = 2, .witness = 2, .text = "rank 2 is gone"
        };
        const ddl_frame frame = { .type = DDL_FRAME_ABORT,
                                  .channel = ddl_channel_of(part->id, DDL_CHANNEL_COLLECTIVE),
                                  .number = true };
        EXPECT(me, ddl_engine_enter(me->world->engine, ddl_deadline_in_ms(5000)));
        ddl_mesh_tell(me->world->mesh, 0, &frame, &notice);
        ddl_mesh_flush(me->world->mesh);
        ddl_engine_leave(me->world->engine);
        EXPECT(me, ddl_send(&x, 1, DDL_INT32, 0, me->world, NULL) == DDL_OK);
    } else if (me->rank == 0) {
        hear_report(me, 1);
        EXPECT(me, ddl_barrier(part, NULL) == DDL_EPEERLOST && ddl_last_error()->culprit == -1);
    }
    ranks_meet(me);
    (void)ddl_comm_free(&me->world);
}

static void a_culprit_that_is_no_rank_is_nobody(void **state)
{
    (void)state;
    ranks_play("mem://blame", 3, blame_who_is_not_there, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directions_of_a_pair_may_differ_in_size),
        cmocka_unit_test(threads_may_wait_while_the_communicator_is_freed),
        cmocka_unit_test(mismatch_is_found_among_many_in_flight),
        cmocka_unit_test(a_deadline_is_kept_behind_thousands_of_operations),
        cmocka_unit_test(deadline_may_be_as_far_as_there_is),
        cmocka_unit_test(many_in_flight_complete_in_any_order),
        cmocka_unit_test(testing_never_blocks_and_gets_things_done),
        cmocka_unit_test(a_free_that_returns_ok_leaves_the_last_error),
#ifdef __linux__
        cmocka_unit_test(tests_give_way_to_who_shares_the_cpu),
#endif
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(tests_alone_complete_what_is_small),
        cmocka_unit_test(tests_alone_complete_what_is_large),
        cmocka_unit_test(tests_are_short_where_nobody_comes),
#endif
        cmocka_unit_test(many_operations_may_follow_an_alltoallv),
        cmocka_unit_test(unexpected_sender_is_answered_by_who_waits_for_another),
        cmocka_unit_test(freeing_is_bounded_though_a_part_is_not_answered),
        cmocka_unit_test(of_those_who_left_alone_the_lowest_is_blamed_by_who_comes_later),
        cmocka_unit_test(waiting_for_all_tells_the_cause_rather_than_that_some_were_aborted),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(a_stuck_engine_is_given_up_at_the_first_deadline),
#endif
        cmocka_unit_test(a_broken_word_of_who_is_left_ends_its_rank),
        cmocka_unit_test(who_is_left_may_be_told_before_there_is_a_communicator),
        cmocka_unit_test(who_is_counted_in_and_does_not_go_on_says_so),
        cmocka_unit_test(who_gave_up_after_it_was_counted_in_is_left_behind),
#ifdef __linux__
        cmocka_unit_test(who_cannot_make_what_was_agreed_upon_says_so),
#endif
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(no_agreements_are_made_for_what_is_said_of_one_far_ahead),
#endif
        cmocka_unit_test(a_culprit_that_is_no_rank_is_nobody),
        cmocka_unit_test(operations_go_on_while_their_caller_is_elsewhere),
    };
    ddl_set_log(be_quiet, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
