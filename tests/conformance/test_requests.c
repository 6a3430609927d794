/*
 * test_requests.c - requests in the company of threads, of each other, and of the end of their communicator.
 * Ranks are threads of this process that meet at a mem:// store.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ddl/ddl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RANKS = 2, MANY = 100 };

typedef struct rank_thread {
    int rank;
    const char *store;
    void (*play)(struct rank_thread *me);
    ddl_comm *world;
    pthread_t thread;
    char complaint[1024]; /* of this rank; looked at by the main thread, as cmocka wants */
} rank_thread;

#define EXPECT(me, condition)                                                                             \
    do {                                                                                                  \
        if (!(condition) && (me)->complaint[0] == '\0')                                                   \
            snprintf((me)->complaint, sizeof(me)->complaint, "rank %d, line %d: %s (%.120s)", (me)->rank, \
                     __LINE__, #condition, ddl_last_error()->text);                                       \
    } while (0)

static void doze(long ms)
{
    struct timespec moment = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&moment, NULL);
}

static void *live(void *arg)
{
    rank_thread *me = arg;
    ddl_options options = DDL_OPTIONS_INIT;
    options.rank = me->rank;
    options.world_size = RANKS;
    options.store = me->store;
    options.timeout_ms = 20000;
    EXPECT(me, ddl_init(&me->world, &options) == DDL_OK);
    if (me->world != NULL)
        me->play(me);
    ddl_comm_free(&me->world);
    return NULL;
}

static void play(const char *store, void (*part)(rank_thread *me))
{
    rank_thread ranks[RANKS];
    memset(ranks, 0, sizeof ranks);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].rank = i;
        ranks[i].store = store;
        ranks[i].play = part;
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, live, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].complaint[0] != '\0')
            fail_msg("%s", ranks[i].complaint);
}

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
    doze(300);
    EXPECT(me, ddl_send(out, mine, DDL_INT32, 1 - me->rank, me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_wait(&request) == DDL_OK);
    EXPECT(me, in[theirs - 1] == 100 * (1 - me->rank) + (int)theirs - 1);
}

static void directions_of_a_pair_may_differ_in_size(void **state)
{
    (void)state;
    play("mem://directions", receive_before_sending);
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
    play("mem://free", free_under_a_waiter);
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
    play("mem://many", mismatch_under_many);
}

static void wait_for_ever(rank_thread *me)
{
    int32_t x = me->rank + 1;
    ddl_request *requests[2] = { NULL, NULL };
    size_t index = 9;
    EXPECT(me, ddl_comm_set_timeout(me->world, INT64_MAX) == DDL_OK);
    if (me->rank == 1)
        doze(100);
    EXPECT(me, ddl_allreduce(&x, &x, 1, DDL_INT32, DDL_SUM, me->world, &requests[1]) == DDL_OK);
    EXPECT(me, ddl_wait_any(2, requests, &index) == DDL_OK);
    EXPECT(me, index == 1);
    EXPECT(me, requests[1] == NULL);
    EXPECT(me, x == 3);
}

static void deadline_may_be_as_far_as_there_is(void **state)
{
    (void)state;
    play("mem://ever", wait_for_ever);
}

static void be_quiet(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directions_of_a_pair_may_differ_in_size),
        cmocka_unit_test(threads_may_wait_while_the_communicator_is_freed),
        cmocka_unit_test(mismatch_is_found_among_many_in_flight),
        cmocka_unit_test(deadline_may_be_as_far_as_there_is),
    };
    ddl_set_log(be_quiet, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
