/*
 * test_torture.c - every call that can fail for a reason outside ddl is made to fail, one after the other.
 *
 * Two ranks, as threads, live a whole life: meet, reduce, exchange, part. Life n is lived with the nth
 * fallible call failing; the lives end when there is no nth call any more. Whatever fails, every call
 * returns in time, results that are called a success are right, and nothing leaks (the address sanitizer
 * looks on). DDL_TORTURE_STRIDE tortures every so many calls only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"

#include <ddl/ddl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef DDL_FAILPOINTS

enum { RANKS = 2, COUNT = 50000, TIMEOUT_MS = 400, LIFE_MS = 15000 };

typedef struct life {
    int rank;
    const char *store;
    pthread_t thread;
    bool wrong;   /* a success that was none */
    bool unnamed; /* a failure without a text */
} life;

static void judge(life *me, ddl_status status)
{
    if (status == DDL_OK)
        return;
    const ddl_error *error = ddl_last_error();
    me->unnamed = me->unnamed || error->code != status || error->text[0] == '\0';
}

static void reduce_and_exchange(life *me, ddl_comm *world, int32_t *in, int32_t *out)
{
    ddl_request *request = NULL;
    for (int i = 0; i < COUNT; i++)
        in[i] = i + me->rank;
    ddl_status status = ddl_allreduce(in, out, COUNT, DDL_INT32, DDL_SUM, world, NULL);
    judge(me, status);
    for (int i = 0; i < COUNT && status == DDL_OK; i++)
        me->wrong = me->wrong || out[i] != 2 * i + 1;

    status = ddl_allreduce(in, out, 3, DDL_INT32, DDL_SUM, world, NULL);
    judge(me, status);
    for (int i = 0; i < 3 && status == DDL_OK; i++)
        me->wrong = me->wrong || out[i] != 2 * i + 1;

    status = ddl_alltoall(in, out, COUNT / RANKS, DDL_INT32, world, &request);
    judge(me, status);
    if (status == DDL_OK) {
        status = ddl_wait(&request);
        judge(me, status);
        for (int i = 0; i < COUNT / RANKS && status == DDL_OK; i++)
            me->wrong = me->wrong || out[i] != i + me->rank * (COUNT / RANKS);
    }
    judge(me, ddl_barrier(world, NULL));
}

static void *live(void *arg)
{
    life *me = arg;
    ddl_options options = DDL_OPTIONS_INIT;
    options.rank = me->rank;
    options.world_size = RANKS;
    options.store = me->store;
    options.start_timeout_ms = TIMEOUT_MS;
    options.timeout_ms = TIMEOUT_MS;
    int32_t *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    ddl_comm *world = NULL;
    ddl_status status = ddl_init(&world, &options);
    judge(me, status);
    if (status == DDL_OK) {
        reduce_and_exchange(me, world, in, out);
        judge(me, ddl_comm_free(&world));
    }
    free(in);
    free(out);
    return NULL;
}

static void be_quiet(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

/* Live once with the nth call failing (0: none); returns how many calls there were. */
static uint64_t live_with(uint64_t nth)
{
    char store[64], setting[32];
    snprintf(store, sizeof store, "mem://torture-%llu", (unsigned long long)nth);
    snprintf(setting, sizeof setting, "*:%llu", (unsigned long long)nth);
    ddl_failpoint_arm(nth > 0 ? setting : NULL);
    life lives[RANKS] = { { 0 } };
    int64_t before_ns = ddl_now_ns();
    for (int rank = 0; rank < RANKS; rank++) {
        lives[rank].rank = rank;
        lives[rank].store = store;
        assert_int_equal(pthread_create(&lives[rank].thread, NULL, live, &lives[rank]), 0);
    }
    for (int rank = 0; rank < RANKS; rank++)
        pthread_join(lives[rank].thread, NULL);
    int64_t took_ms = (ddl_now_ns() - before_ns) / DDL_NS_PER_MS;
    uint64_t hits = ddl_failpoint_hits();
    ddl_failpoint_arm(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        if (lives[rank].wrong)
            fail_msg("call %d failing: rank %d got a wrong result and was told success", (int)nth, rank);
        if (lives[rank].unnamed)
            fail_msg("call %d failing: rank %d got a failure without a text", (int)nth, rank);
    }
    if (took_ms > LIFE_MS)
        fail_msg("call %d failing: a life of %d ms", (int)nth, (int)took_ms);
    return hits;
}

static void every_failing_call_is_survived(void **state)
{
    (void)state;
    const char *text = getenv("DDL_TORTURE_STRIDE");
    uint64_t stride = text != NULL ? strtoull(text, NULL, 10) : 1;
    ddl_set_log(be_quiet, NULL);
    live_with(0);
    uint64_t nth = 1;
    while (live_with(nth) >= nth)
        nth += stride > 0 ? stride : 1;
    ddl_set_log(NULL, NULL);
    print_message("%d calls were made to fail\n", (int)(nth / (stride > 0 ? stride : 1)));
    assert_true(nth > 50);
}

#endif

int main(void)
{
#ifdef DDL_FAILPOINTS
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_failing_call_is_survived) };
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    return 77; /* meson: skipped; built without -Dfailpoints=true */
#endif
}
