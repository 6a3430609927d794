/*
 * test_threads.c - threads as ranks: worlds that meet at a mem:// store inside one process. The same random
 * cases as over processes, where the thread sanitizer can see every rank at once.
 */
#include "../support/now.h"
#include "cases.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MEMBERS_AT_MOST = 5, TIMEOUT_MS = 120000 };

struct member {
    const char *store;
    int rank, nranks, cycles;
    cases_plan plan;
    int64_t start_timeout_ms;
    pthread_t thread;
    ddl_status status; /* of ddl_init */
    atomic_int *ended; /* counts those who are done; NULL: nobody wants to know */
    bool waits;        /* once in the world, until somebody is */
    char failure[CASES_FAILURE_BYTES];
};

static void wait_for_an_end(const struct member *m)
{
    for (int ms = 0; m->waits && atomic_load(m->ended) == 0 && ms < m->start_timeout_ms; ms++)
        nap_us(1000);
}

static void live_through(struct member *m)
{
    ddl_options options = DDL_OPTIONS_INIT;

    options.rank = m->rank;
    options.world_size = m->nranks;
    options.store = m->store;
    options.start_timeout_ms = m->start_timeout_ms;
    options.timeout_ms = TIMEOUT_MS;
    for (int i = 0; i < m->cycles; i++) {
        ddl_comm *world = NULL;
        m->status = ddl_init(&world, &options);
        if (m->status != DDL_OK) {
            snprintf(m->failure, sizeof m->failure, "rank %d: %s", m->rank, ddl_last_error()->text);
            return;
        }
        wait_for_an_end(m);
        if (!cases_run(world, &m->plan, m->failure)) {
            ddl_comm_free(&world);
            return;
        }
        if (ddl_comm_free(&world) != DDL_OK) {
            snprintf(m->failure, sizeof m->failure, "rank %d: free: %s", m->rank, ddl_last_error()->text);
            return;
        }
    }
}

static void *live(void *arg)
{
    struct member *m = arg;
    if (ranks_go_to_host(m->rank))
        live_through(m);
    else
        snprintf(m->failure, sizeof m->failure, "rank %d has no host", m->rank);
    if (m->ended != NULL)
        atomic_fetch_add(m->ended, 1);
    return NULL;
}

static void world_start(struct member members[], const char *store, int nranks, int ncases, int cycles,
                        uint64_t seed)
{
    memset(members, 0, MEMBERS_AT_MOST * sizeof members[0]);
    for (int r = 0; r < nranks; r++) {
        struct member *m = &members[r];
        m->store = store;
        m->rank = r;
        m->nranks = nranks;
        m->cycles = cycles;
        m->start_timeout_ms = TIMEOUT_MS;
        m->plan = (cases_plan){ .seed = seed, .ncases = ncases, .max_count = 20000, .only = -1 };
        assert_int_equal(pthread_create(&m->thread, NULL, live, m), 0);
    }
}

static void world_finish(struct member members[], int nranks)
{
    for (int r = 0; r < nranks; r++)
        assert_int_equal(pthread_join(members[r].thread, NULL), 0);
    for (int r = 0; r < nranks; r++)
        if (members[r].failure[0] != '\0')
            fail_msg("%s", members[r].failure);
}

static int cases_wanted(int cases)
{
    const char *scale = getenv("DDL_TEST_SCALE"); /* percent */
    int wanted = scale == NULL ? cases : (int)(cases * strtol(scale, NULL, 10) / 100);
    return wanted > 0 ? wanted : 1;
}

static void random_cases_agree_with_the_oracle(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= MEMBERS_AT_MOST; nranks++) {
        struct member members[MEMBERS_AT_MOST];
        world_start(members, "mem://conformance", nranks, cases_wanted(200), 1, (uint64_t)nranks);
        world_finish(members, nranks);
    }
}

static void two_worlds_in_one_process_never_meet(void **state)
{
    struct member left[MEMBERS_AT_MOST], right[MEMBERS_AT_MOST];
    (void)state;
    world_start(left, "mem://left", 3, cases_wanted(150), 1, 11);
    world_start(right, "mem://right", 2, cases_wanted(150), 1, 12);
    world_finish(left, 3);
    world_finish(right, 2);
}

static void worlds_follow_one_another_in_one_store(void **state)
{
    struct member members[MEMBERS_AT_MOST];
    (void)state;
    world_start(members, "mem://again", 3, 5, 10, 21);
    world_finish(members, 3);
}

static void a_missing_thread_is_named(void **state)
{
    struct member members[MEMBERS_AT_MOST] = { { 0 } };
    (void)state;
    members[0] = (struct member){ .store = "mem://missing", .rank = 0, .nranks = 2, .cycles = 1 };
    members[0].start_timeout_ms = 1000;
    live(&members[0]);
    assert_int_equal(members[0].status, DDL_ETIMEDOUT);
    assert_non_null(strstr(members[0].failure, "1"));
}

static void a_second_thread_of_the_same_rank_is_refused(void **state)
{
    struct member members[MEMBERS_AT_MOST], twins[2];
    int refused = 0;
    atomic_int ended = 0;

    (void)state;
    memset(twins, 0, sizeof twins);
    for (int i = 0; i < 2; i++) {
        twins[i] = (struct member){ .store = "mem://twins", .rank = 1, .nranks = 2, .cycles = 1 };
        twins[i].start_timeout_ms = 20000;
        twins[i].ended = &ended;
        twins[i].plan = (cases_plan){ .seed = 5, .ncases = 3, .max_count = 100, .only = -1 };
    }
    members[0] = twins[0];
    members[0].rank = 0;
    members[0].waits = true; /* the world is there until the second twin has come, however late that is */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&twins[i].thread, NULL, live, &twins[i]), 0);
    assert_int_equal(pthread_create(&members[0].thread, NULL, live, &members[0]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(twins[i].thread, NULL), 0);
    assert_int_equal(pthread_join(members[0].thread, NULL), 0);
    for (int i = 0; i < 2; i++)
        refused += twins[i].status == DDL_ECONFIG;
    assert_int_equal(refused, 1);
    if (members[0].failure[0] != '\0')
        fail_msg("%s", members[0].failure);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases_agree_with_the_oracle),
        cmocka_unit_test(two_worlds_in_one_process_never_meet),
        cmocka_unit_test(worlds_follow_one_another_in_one_store),
        cmocka_unit_test(a_missing_thread_is_named),
        cmocka_unit_test(a_second_thread_of_the_same_rank_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
