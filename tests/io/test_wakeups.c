/*
 * test_wakeups.c - who sleeps hears at once that there is something to do.
 *
 * Ticks would hide a wake-up that is lost, so they are far apart here, or what wakes up is counted. The
 * client is made so that each case meets what is rare otherwise: something comes just as a thread goes to
 * sleep.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/engine_state.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { NAP_MS = 6000, SOON_MS = NAP_MS / 2, PATIENCE_MS = 20000 };

typedef struct bench {
    ddl_engine *engine;
    atomic_bool busy, done;
    atomic_int dozes, sweeps;
    /* What a thread does as it goes to sleep, once; or NULL. True: it has missed something. */
    bool (*_Atomic as_it_dozes)(struct bench *b);
    atomic_bool has_missed; /* the next sweep finds it, and is done; */
    bool is_for_waiters;    /* that of a thread that waits */
    ddl_link job;
    pthread_t other;
    atomic_bool has_gone; /* the other thread */
    int pipe[2];          /* watched, as nobody sleeps over a loop that watches nothing */
    uv_poll_t poll;
} bench;

static bool sweep(void *arg)
{
    bench *b = arg;
    atomic_fetch_add(&b->sweeps, 1);
    if ((b->is_for_waiters && ddl_thread_is_own()) || !atomic_exchange(&b->has_missed, false))
        return false;
    atomic_store(&b->busy, false);
    atomic_store(&b->done, true);
    ddl_engine_wake(b->engine);
    return true;
}

static bool needs_no_loop(void *arg)
{
    (void)arg;
    return false;
}

static void run_job(void *arg, ddl_link *job)
{
    (void)job;
    atomic_store(&((bench *)arg)->done, true);
}

static void tick(void *arg, int64_t now_ns)
{
    (void)arg, (void)now_ns;
}

static bool is_busy(void *arg)
{
    return atomic_load(&((bench *)arg)->busy);
}

static bool doze(void *arg)
{
    bench *b = arg;
    bool (*const act)(bench *) = atomic_exchange(&b->as_it_dozes, NULL);
    const bool missed = act != NULL && act(b);
    atomic_fetch_add(&b->dozes, 1);
    return missed;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    char byte;
    (void)status, (void)events;
    DDL_ASSERT(read(((bench *)poll->data)->pipe[0], &byte, 1) == 1);
}

static void act_once(bench *b, bool (*act)(bench *b))
{
    atomic_store(&b->as_it_dozes, act);
}

static void enter(bench *b)
{
    assert_true(ddl_engine_enter(b->engine, ddl_deadline_in_ms(PATIENCE_MS)));
}

static void open_bench(bench *b, int nap_ms)
{
    memset(b, 0, sizeof *b);
    const ddl_engine_client client = { sweep, needs_no_loop, run_job, tick, NULL, is_busy, doze, b };
    assert_int_equal(ddl_engine_create(&client, false, &b->engine, NULL), DDL_OK);
    ddl_engine_set_nap(b->engine, nap_ms);
    assert_int_equal(pipe(b->pipe), 0);
    enter(b);
    assert_int_equal(uv_poll_init(ddl_engine_loop(b->engine), &b->poll, b->pipe[0]), 0);
    b->poll.data = b;
    assert_int_equal(ddl_engine_watch(b->engine, &b->poll, UV_READABLE, on_readable), 0);
    ddl_engine_progress(b->engine);
    ddl_engine_leave(b->engine);
}

static void close_bench(bench *b)
{
    enter(b);
    uv_close((uv_handle_t *)&b->poll, NULL);
    ddl_engine_progress(b->engine);
    ddl_engine_leave(b->engine);
    assert_true(ddl_engine_destroy(b->engine, ddl_deadline_in_ms(PATIENCE_MS)));
    close(b->pipe[0]);
    close(b->pipe[1]);
}

static void *wait_until_done(void *arg)
{
    bench *b = arg;
    DDL_ASSERT(ddl_engine_wait(b->engine, &b->done, ddl_deadline_in_ms(PATIENCE_MS)));
    atomic_store(&b->has_gone, true);
    return NULL;
}

static void sleep_elsewhere(bench *b)
{
    assert_int_equal(pthread_create(&b->other, NULL, wait_until_done, b), 0);
    while (atomic_load(&b->dozes) == 0)
        sched_yield();
}

static void expect_soon(int64_t begin_ns)
{
    assert_true(ddl_now_ns() - begin_ns < SOON_MS * DDL_NS_PER_MS);
}

static void who_sleeps_hears_that_another_has_ended_its_operation(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, NAP_MS);
    sleep_elsewhere(&b);
    const int64_t begin_ns = ddl_now_ns();
    enter(&b);
    atomic_store(&b.done, true);
    ddl_engine_wake(b.engine);
    ddl_engine_leave(b.engine);
    pthread_join(b.other, NULL);
    expect_soon(begin_ns);
    close_bench(&b);
}

static bool submit(bench *b)
{
    ddl_engine_submit(b->engine, &b->job);
    return false;
}

static void a_job_that_comes_as_a_thread_goes_to_sleep_wakes_it(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, NAP_MS);
    act_once(&b, submit);
    const int64_t begin_ns = ddl_now_ns();
    assert_true(ddl_engine_wait(b.engine, &b.done, ddl_deadline_in_ms(PATIENCE_MS)));
    expect_soon(begin_ns);
    close_bench(&b);
}

static bool miss(bench *b)
{
    atomic_store(&b->has_missed, true);
    return true;
}

/* Until nobody has swept for a while. */
static void await_quiet(bench *b)
{
    for (int sweeps = -1; sweeps != atomic_load(&b->sweeps); usleep(50 * 1000))
        sweeps = atomic_load(&b->sweeps);
}

static void what_the_background_thread_misses_as_it_goes_to_sleep_wakes_it(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, NAP_MS);
    enter(&b);
    atomic_store(&b.busy, true);
    ddl_engine_leave(b.engine);
    while (atomic_load(&b.dozes) == 0)
        sched_yield();
    await_quiet(&b);
    act_once(&b, miss);
    const int64_t begin_ns = ddl_now_ns();
    assert_int_equal(write(b.pipe[1], "x", 1), 1);
    while (!atomic_load(&b.done) && ddl_now_ns() - begin_ns < PATIENCE_MS * DDL_NS_PER_MS)
        usleep(1000);
    expect_soon(begin_ns);
    close_bench(&b);
}

/* The first sleeps for both; what the second misses is for the first. */
static void what_a_second_waiter_misses_wakes_who_sleeps(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, NAP_MS);
    b.is_for_waiters = true;
    sleep_elsewhere(&b);
    enter(&b);
    act_once(&b, miss);
    const int64_t begin_ns = ddl_now_ns();
    assert_true(ddl_engine_wait_entered(b.engine, &b.done, ddl_deadline_in_ms(PATIENCE_MS)));
    pthread_join(b.other, NULL);
    expect_soon(begin_ns);
    close_bench(&b);
}

/* ---- nobody waits any more, and something is in flight: the background thread is told of it ---- */

/* By now, and it looks at once. Without that it looks ten times a second. */
static unsigned told_the_background(const bench *b)
{
    return atomic_load(&b->engine->visits);
}

static void what_the_last_waiter_gives_up_is_driven(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, 0);
    atomic_store(&b.busy, true);
    const unsigned before = told_the_background(&b);
    assert_false(ddl_engine_wait(b.engine, &b.done, ddl_now_ns()));
    assert_int_equal(told_the_background(&b), before + 1);
    atomic_store(&b.busy, false);
    close_bench(&b);
}

static void end_other(bench *b)
{
    atomic_store(&b->done, true);
    ddl_engine_wake(b->engine);
}

static bool let_the_other_go(bench *b)
{
    end_other(b);
    while (!pthread_equal(pthread_self(), b->other) && !atomic_load(&b->has_gone))
        sched_yield();
    return false;
}

/* Who leaves the engine to one that waits looks whether he still does. */
static void what_is_left_to_a_waiter_who_is_done_is_driven(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, 0);
    enter(&b);
    atomic_store(&b.busy, true);
    const unsigned before = told_the_background(&b);
    assert_int_equal(pthread_create(&b.other, NULL, wait_until_done, &b), 0);
    while (!ddl_engine_somebody_waits(b.engine))
        sched_yield();
    act_once(&b, let_the_other_go);
    ddl_engine_leave(b.engine);
    assert_true(told_the_background(&b) > before);
    end_other(&b); /* it may just have been between two naps, behind this thread */
    pthread_join(b.other, NULL);
    atomic_store(&b.busy, false);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_sleeps_hears_that_another_has_ended_its_operation),
        cmocka_unit_test(a_job_that_comes_as_a_thread_goes_to_sleep_wakes_it),
        cmocka_unit_test(what_the_background_thread_misses_as_it_goes_to_sleep_wakes_it),
        cmocka_unit_test(what_a_second_waiter_misses_wakes_who_sleeps),
        cmocka_unit_test(what_the_last_waiter_gives_up_is_driven),
        cmocka_unit_test(what_is_left_to_a_waiter_who_is_done_is_driven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
