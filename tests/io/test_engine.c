/*
 * test_engine.c - who drives, who sleeps, and that nobody is forgotten.
 *
 * The client here is a pipe: a byte read from it counts as an operation that ends. Threads write, wait and
 * submit at the same time; a wake-up that gets lost shows as a wait that takes ticks, or never ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/eventually.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/thread.h"
#include "idle_client.h"
#include "io/engine.h"
#include "io/host.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <sys/timerfd.h>
#endif
#include <unistd.h>

enum { WAITERS = 4, ROUNDS = 300, PATIENCE_MS = 20000 };

typedef struct bench {
    ddl_engine *engine;
    int pipe[2]; /* or a timer, and what is not used */
    size_t event_size;
    size_t event_bytes, to_come; /* that it counts for, and comes before */
    uv_poll_t poll;
    bool swept_too;        /* the sweep reads as well, as the mesh does */
    atomic_bool rewatches; /* the sweep changes the watch, as the mesh does where a socket is full */
    int awaited;           /* holder: bytes that must still come */
    atomic_int arrived;
    atomic_bool *flags; /* one per byte, in order */
    int ticks, located;
    int64_t located_ns, least_gap_ns;
    atomic_int jobs, sweeps;
    atomic_bool dozes; /* since the last sweep */
    bool slept;        /* has dozed at all */
} bench;

static bool take_bytes(bench *b)
{
    uint64_t event;
    bool any = false;
    while (read(b->pipe[0], &event, b->event_size) > 0) {
        int index = atomic_fetch_add(&b->arrived, 1);
        b->awaited--;
        ddl_engine_received(b->engine, b->event_bytes, b->to_come);
        atomic_store_explicit(&b->flags[index], true, memory_order_release);
        ddl_engine_wake(b->engine);
        any = true;
    }
    return any;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    bench *b = poll->data;
    if (take_bytes(b))
        ddl_engine_moved(b->engine);
}

static void watch(bench *b)
{
    assert_int_equal(ddl_engine_watch(b->engine, &b->poll, UV_READABLE, on_readable), 0);
}

static bool sweep(void *arg)
{
    bench *b = arg;
    if (atomic_load(&b->rewatches))
        watch(b);
    atomic_store(&b->dozes, false);
    atomic_fetch_add(&b->sweeps, 1);
    return b->swept_too && take_bytes(b);
}

typedef struct job {
    ddl_link link;
    bench *bench;
} job;

static void run_job(void *arg, ddl_link *link)
{
    bench *b = arg;
    atomic_fetch_add(&b->jobs, 1);
    b->awaited++;
    free(DDL_CONTAINER(link, job, link));
}

static void tick(void *arg, int64_t now_ns)
{
    (void)now_ns;
    ((bench *)arg)->ticks++;
}

static void locate(void *arg, int64_t now_ns)
{
    bench *b = arg;
    assert_false(ddl_thread_is_own());
    const int64_t gap_ns = now_ns - b->located_ns;
    if (b->located++ > 0 && (b->least_gap_ns == 0 || gap_ns < b->least_gap_ns))
        b->least_gap_ns = gap_ns;
    b->located_ns = now_ns;
}

static bool busy(void *arg)
{
    return ((bench *)arg)->awaited > 0;
}

/* All that comes, comes through the loop. */
static bool doze(void *arg)
{
    bench *b = arg;
    atomic_store(&b->dozes, true);
    b->slept = true;
    return false;
}

static ddl_engine_client client_of(bench *b)
{
    return (ddl_engine_client){ sweep, idle_never, run_job, tick, locate, busy, doze, b };
}

static void open_bench_on(bench *b, bool crowded, bool swept_too)
{
    b->swept_too = swept_too;
    b->flags = calloc(WAITERS * ROUNDS + 1, sizeof *b->flags);
    fcntl(b->pipe[0], F_SETFL, O_NONBLOCK);
    const ddl_engine_client client = client_of(b);
    assert_int_equal(ddl_engine_create(&client, crowded, &b->engine, NULL), DDL_OK);
    assert_true(ddl_engine_enter(b->engine, ddl_deadline_in_ms(PATIENCE_MS)));
    assert_int_equal(uv_poll_init(ddl_engine_loop(b->engine), &b->poll, b->pipe[0]), 0);
    b->poll.data = b;
    watch(b);
    ddl_engine_leave(b->engine);
}

static void open_bench(bench *b, bool crowded, bool swept_too)
{
    memset(b, 0, sizeof *b);
    assert_int_equal(pipe(b->pipe), 0);
    b->event_size = 1;
    open_bench_on(b, crowded, swept_too);
}

static void close_bench(bench *b)
{
    assert_true(ddl_engine_enter(b->engine, ddl_deadline_in_ms(PATIENCE_MS)));
    uv_close((uv_handle_t *)&b->poll, NULL);
    ddl_engine_progress(b->engine);
    ddl_engine_leave(b->engine);
    assert_true(ddl_engine_destroy(b->engine, ddl_deadline_in_ms(5000)));
    close(b->pipe[0]);
    close(b->pipe[1]);
    free(b->flags);
}

static void baton_is_held_by_one(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, false, true);
    assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
    assert_false(ddl_engine_try_enter(b.engine));
    assert_false(ddl_engine_enter(b.engine, ddl_deadline_in_ms(30)));
    ddl_engine_leave(b.engine);
    assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
    ddl_engine_leave(b.engine);
    close_bench(&b);
}

static void a_tick_that_is_due_soon_is_the_next(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, false, false);
    assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
    for (int i = 0; i < 5; i++) {
        ddl_engine_tick_soon(b.engine);
        ddl_engine_progress(b.engine);
        assert_int_equal(b.ticks, i + 1);
    }
    ddl_engine_leave(b.engine);
    close_bench(&b);
}

static void who_drives_tells_where_it_is_every_few_milliseconds(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, false, false);
    assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
    ddl_engine_progress(b.engine);
    const int64_t begin_ns = ddl_now_ns();
    while (b.located < 10 && ddl_now_ns() - begin_ns < PATIENCE_MS * DDL_NS_PER_MS)
        ddl_engine_progress(b.engine);
    assert_int_equal(b.located, 10);
    assert_in_range(b.least_gap_ns, 4 * DDL_NS_PER_MS, 12 * DDL_NS_PER_MS);
    ddl_engine_leave(b.engine);
    close_bench(&b);
}

/* The system may take it elsewhere before it looks, so it asks again. */
static void who_drives_can_be_moved(void **state)
{
    (void)state;
    bench b;
    int cpus[2];
    if (ddl_host_cpu() < 0 || ddl_host_list_cpus(cpus, 2) < 2)
        skip();
    open_bench(&b, false, false);
    for (int i = 0; i < 4; i++) {
        bool was_there = false;
        assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
        for (int tries = 0; tries < 50 && !was_there; tries++) {
            ddl_engine_move(b.engine, cpus[i % 2]);
            for (const int64_t end_ns = ddl_now_ns() + 100 * DDL_NS_PER_MS;
                 ddl_now_ns() < end_ns && !was_there;)
                was_there = ddl_host_cpu() == cpus[i % 2];
        }
        ddl_engine_leave(b.engine);
        assert_true(was_there);
    }
    close_bench(&b);
}

static void *write_later(void *arg)
{
    bench *b = arg;
    ddl_pause_us(5 * 1000); /* long enough for the waiter to fall asleep */
    DDL_ASSERT(write(b->pipe[1], "x", 1) == 1);
    return NULL;
}

static void sleeper_wakes_for_a_descriptor_and_not_only_for_a_tick(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        bench b;
        open_bench(&b, crowded == 1, true);
        for (int round = 0; round < 5; round++) {
            pthread_t writer;
            assert_int_equal(pthread_create(&writer, NULL, write_later, &b), 0);
            assert_true(ddl_engine_wait(b.engine, &b.flags[round], ddl_deadline_in_ms(PATIENCE_MS)));
            pthread_join(writer, NULL);
        }
        close_bench(&b);
    }
}

/* Who polls offers the core to those who compute, and would lose it for longer than it polls. */
static bool is_first;

static int be_first_if_allowed(void **state)
{
    (void)state;
#ifdef __linux__
    const struct sched_param first = { .sched_priority = 1 };
    is_first = sched_setscheduler(0, SCHED_FIFO, &first) == 0;
#endif
    return 0;
}

static int be_like_others(void **state)
{
    (void)state;
    is_first = false;
#ifdef __linux__
    const struct sched_param normal = { 0 };
    return sched_setscheduler(0, SCHED_OTHER, &normal);
#else
    return 0;
#endif
}

#ifdef __linux__
static _Thread_local struct yields {
    int count;
    int64_t first_ns;
} yields; /* of this thread */

/* In place of the C library's, for the engine too. */
int sched_yield(void)
{
    if (yields.count++ == 0)
        yields.first_ns = ddl_now_ns();
    return (int)syscall(SYS_sched_yield);
}

/* What a long wait does, of a rank that nobody has waited with before. */
static struct yields yields_of_wait(bool crowded)
{
    bench b;
    pthread_t writer;
    open_bench(&b, crowded, true);
    assert_int_equal(pthread_create(&writer, NULL, write_later, &b), 0);
    yields = (struct yields){ 0 };
    const int64_t begin_ns = ddl_now_ns();
    assert_true(ddl_engine_wait(b.engine, &b.flags[0], ddl_deadline_in_ms(PATIENCE_MS)));
    const struct yields seen = { yields.count, yields.first_ns - begin_ns };
    pthread_join(writer, NULL);
    close_bench(&b);
    return seen;
}

/* Where ranks share CPUs the one that is awaited may have to run here. Else it is about to write. */
static void who_waits_yields_at_once_where_it_shares_its_cpu_and_else_later(void **state)
{
    enum { TRIES = 100, PAUSE_NS = 8000, LEAST = 24, MOST = 64 /* yields, then it sleeps */ };
    int64_t soonest_ns = INT64_MAX;
    int most = 0;
    (void)state;
    /* Who may not be first loses its CPU now and then, for longer than it yields. */
    for (int i = 0; i < TRIES && (soonest_ns >= PAUSE_NS || most < LEAST); i++) {
        const struct yields alone = yields_of_wait(false), crowded = yields_of_wait(true);
        assert_true(alone.count == 0 || alone.first_ns >= PAUSE_NS);
        assert_in_range(crowded.count, 0, MOST);
        if (crowded.count > 0 && crowded.first_ns < soonest_ns)
            soonest_ns = crowded.first_ns;
        most = crowded.count > most ? crowded.count : most;
    }
#ifndef __SANITIZE_THREAD__ /* which takes as long by itself */
    assert_in_range(soonest_ns, 0, PAUSE_NS - 1);
#endif
    assert_in_range(most, LEAST, MOST);
}
#endif

/* ---- a watch that is changed ---- */

typedef struct sleeper {
    bench *bench;
    const atomic_bool *done;
    int64_t heard_ns;
} sleeper;

static void *sleep_until_heard(void *arg)
{
    sleeper *me = arg;
    DDL_ASSERT(ddl_engine_wait(me->bench->engine, me->done, ddl_deadline_in_ms(PATIENCE_MS)));
    me->heard_ns = ddl_now_ns();
    return NULL;
}

static void change_and_leave(bench *b)
{
    assert_true(ddl_engine_enter(b->engine, ddl_deadline_in_ms(PATIENCE_MS)));
    watch(b);
    ddl_engine_leave(b->engine);
}

/* In vain, as the last that is done with the baton. */
static void change_and_wait(bench *b, sleeper *behind, pthread_t *thread)
{
    const int before = atomic_load(&b->sweeps);
    const ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    atomic_store(&b->rewatches, true);
    assert_int_equal(pthread_create(thread, NULL, sleep_until_heard, behind), 0);
    while ((atomic_load(&b->sweeps) == before || !atomic_load(&b->dozes)) && !ddl_deadline_passed(deadline))
        sched_yield();
    atomic_store(&b->rewatches, false);
}

/* How long a thread that sleeps does not hear what comes just after that; -1: it may not have slept. */
static int64_t deaf_ns(bool waits)
{
    enum { ASLEEP_MS = 10 }; /* and it looks by itself after 20 */
    bench b;
    pthread_t first, second;
    open_bench(&b, true, false);
    sleeper asleep = { &b, &b.flags[0], 0 }, behind = asleep;
    job *work = calloc(1, sizeof *work);
    ddl_engine_submit(b.engine, &work->link);
    const int64_t start_ns = ddl_now_ns();
    assert_int_equal(pthread_create(&first, NULL, sleep_until_heard, &asleep), 0);
    while (!atomic_load(&b.dozes) && ddl_now_ns() - start_ns < PATIENCE_MS * DDL_NS_PER_MS)
        sched_yield();
    if (waits)
        change_and_wait(&b, &behind, &second);
    else
        change_and_leave(&b);
    const int64_t written_ns = ddl_now_ns();
    assert_int_equal(write(b.pipe[1], "x", 1), 1);
    pthread_join(first, NULL);
    if (waits)
        pthread_join(second, NULL);
    close_bench(&b);
    return written_ns - start_ns < ASLEEP_MS * DDL_NS_PER_MS ? asleep.heard_ns - written_ns : -1;
}

/* libuv takes a descriptor out of what it watches when that is changed, and puts it back when it runs. */
static void who_sleeps_hears_although_another_changes_the_watch(void **state)
{
    (void)state;
    enum { TRIES = 20, SOON_NS = 5000 * 1000 };
    for (int waits = 0; waits < 2; waits++) {
        int soon = 0, late = 0;
        for (int i = 0; i < TRIES; i++) {
            const int64_t ns = deaf_ns(waits == 1);
            soon += ns >= 0 && ns < SOON_NS;
            late += ns >= SOON_NS;
        }
#ifndef __SANITIZE_THREAD__ /* where no try may be quick enough to count */
        assert_in_range(soon, 1, TRIES);
#endif
        assert_in_range(late, 0, soon); /* half of them, as others may have the CPU */
    }
}

static void *wait_for_first(void *arg)
{
    bench *b = arg;
    DDL_ASSERT(ddl_engine_wait(b->engine, &b->flags[0], ddl_deadline_in_ms(PATIENCE_MS)));
    return NULL;
}

/* However many threads wait: while all of them sleep, what comes has been told to wake them. */
static void nobody_sleeps_without_having_dozed(void **state)
{
    (void)state;
    enum { SAMPLES = 200, WAITING = 3 };
    bench b;
    open_bench(&b, false, true);
    for (int waiting = 1; waiting <= WAITING; waiting++) {
        pthread_t waiters[WAITING];
        int dozing = 0;
        for (int i = 0; i < waiting; i++)
            assert_int_equal(pthread_create(&waiters[i], NULL, wait_for_first, &b), 0);
        for (int i = 0; i < SAMPLES; i++) {
            ddl_pause_us(1000);
            dozing += atomic_load(&b.dozes);
        }
        assert_int_equal(write(b.pipe[1], "x", 1), 1);
        for (int i = 0; i < waiting; i++)
            pthread_join(waiters[i], NULL);
        assert_true(dozing > SAMPLES * 3 / 4); /* the others fell between a sweep and the sleep after it */
        atomic_store(&b.arrived, 0);
        atomic_store(&b.flags[0], false);
    }
    close_bench(&b);
}

static void wait_on_a_stuck_engine_ends_soon_after_its_deadline(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, false, true);
    assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
    int64_t before = ddl_now_ns();
    assert_false(ddl_engine_wait(b.engine, &b.flags[0], ddl_deadline_in_ms(50)));
    assert_true(ddl_now_ns() - before < 1050 * DDL_NS_PER_MS);
    /* And is known to be stuck, so that of many calls not each takes as long... */
    before = ddl_now_ns();
    for (int i = 0; i < 10; i++)
        assert_false(ddl_engine_wait(b.engine, &b.flags[0], 0));
    assert_true(ddl_now_ns() - before < 4 * DDL_NS_PER_S); /* of 8 */
    /* ... until somebody has driven it. */
    ddl_engine_progress(b.engine);
    before = ddl_now_ns();
    assert_false(ddl_engine_wait(b.engine, &b.flags[0], 0));
    assert_true(ddl_now_ns() - before > 700 * DDL_NS_PER_MS);
    ddl_engine_leave(b.engine);
    close_bench(&b);
}

/* For one who comes late to it, as his process was stopped, it is not: he can drive, and sees the end. */
static void wait_begun_after_its_deadline_drives_all_the_same(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, false, true);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_later, &b), 0);
    assert_true(ddl_engine_wait(b.engine, &b.flags[0], 0));
    pthread_join(writer, NULL);
    close_bench(&b);
}

/* ---- one operation that moves all the time ---- */

typedef struct mill {
    ddl_engine *engine;
    atomic_bool never, stop;
} mill;

static bool grind(void *arg)
{
    return !atomic_load(&((mill *)arg)->stop);
}

static void end_when_told(void *arg, int64_t now_ns)
{
    mill *m = arg;
    (void)now_ns;
    if (atomic_load(&m->stop))
        atomic_store(&m->never, true);
}

static void *wait_for_the_mill(void *arg)
{
    mill *m = arg;
    DDL_ASSERT(ddl_engine_wait(m->engine, &m->never, ddl_deadline_in_ms(PATIENCE_MS)));
    return NULL;
}

/* Who drives what never rests lets those in who want the baton for a moment, as to abort it. */
static void who_drives_all_the_time_lets_others_in(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        mill m = { .engine = NULL };
        ddl_engine_client client = idle_client(&m);
        client.sweep = grind;
        client.tick = end_when_told;
        assert_int_equal(ddl_engine_create(&client, crowded == 1, &m.engine, NULL), DDL_OK);
        pthread_t driver;
        assert_int_equal(pthread_create(&driver, NULL, wait_for_the_mill, &m), 0);
        while (ddl_engine_try_enter(m.engine)) /* until the other thread has it */
            ddl_engine_leave(m.engine);
        for (int i = 0; i < 20; i++) {
            assert_true(ddl_engine_enter(m.engine, ddl_deadline_in_ms(1000)));
            ddl_engine_leave(m.engine);
        }
        atomic_store(&m.stop, true);
        pthread_join(driver, NULL);
        assert_true(ddl_engine_destroy(m.engine, ddl_deadline_in_ms(PATIENCE_MS)));
    }
}

/* Nobody waits: what is in flight must end all the same, by the background thread. */
static void background_thread_drives_what_was_left_behind(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, false, false);
    for (int round = 0; round < 50; round++) {
        job *work = calloc(1, sizeof *work);
        ddl_engine_submit(b.engine, &work->link);
        assert_int_equal(write(b.pipe[1], "x", 1), 1);
        ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
        while (!atomic_load(&b.flags[round]))
            assert_false(ddl_deadline_passed(deadline));
    }
    ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    while (atomic_load(&b.jobs) < 50) /* the byte of the last one may have been read before it was taken */
        assert_false(ddl_deadline_passed(deadline));
    assert_int_equal(atomic_load(&b.jobs), 50);
    close_bench(&b);
}

/* Whatever the patrol is doing when nobody comes back: at each pause it looks, sleeps on, or has just ended.
 */
static void what_is_left_is_taken_over_at_any_time(void **state)
{
    (void)state;
    enum { LONGEST_US = 4000, STEP_US = 37 };
    bench b;
    open_bench(&b, false, true);
    int round = 0;
    for (int pause_us = 0; pause_us < LONGEST_US; pause_us += STEP_US, round++) {
        job *work = calloc(1, sizeof *work);
        usleep((useconds_t)pause_us);
        ddl_engine_submit(b.engine, &work->link);
        assert_int_equal(write(b.pipe[1], "x", 1), 1);
        ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
        while (!atomic_load(&b.flags[round])) {
            assert_false(ddl_deadline_passed(deadline));
            usleep(50);
        }
    }
    assert_int_equal(atomic_load(&b.arrived), round);
    close_bench(&b);
}

/* Starts one operation after another, and drives none of them. True: half of them were done meanwhile. */
static bool starts_are_driven(void)
{
    enum { STARTS = 1000, APART_NS = 10 * 1000 };
    bench b;
    open_bench(&b, false, true);
    for (int i = 0; i < STARTS; i++) {
        job *work = calloc(1, sizeof *work);
        ddl_engine_submit(b.engine, &work->link);
        assert_int_equal(write(b.pipe[1], "x", 1), 1);
        for (int64_t until_ns = ddl_now_ns() + APART_NS; ddl_now_ns() < until_ns;)
            continue;
    }
    const bool driven = atomic_load(&b.arrived) >= STARTS / 2;
    ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    while (atomic_load(&b.arrived) < STARTS)
        assert_false(ddl_deadline_passed(deadline));
    close_bench(&b);
    return driven;
}

/* Whoever only starts is driven for all the same. Who may not be first finds the other CPU taken for longer
 * than this lasts, on a busy machine. */
static void who_only_starts_is_driven_for(void **state)
{
    (void)state;
    int cpus[2], driven = 0, tries = 0;
    if (ddl_host_list_cpus(cpus, 2) < 2)
        skip(); /* who starts takes all of it */
    for (; tries < 50 && driven < 4; tries++)
        driven += starts_are_driven();
    assert_in_range(driven, 4, tries);
    assert_true(!is_first || tries <= 6);
}

/* Who is back at once finds the baton free, and nothing armed that others would have to ring for. */
static void who_is_back_at_once_drives(void **state)
{
    (void)state;
    enum { TURNS = 20000 };
    bench b;
    open_bench(&b, false, false);
    job *work = calloc(1, sizeof *work);
    ddl_engine_submit(b.engine, &work->link);
    int taken = 0, dozed = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        if (!ddl_engine_try_enter(b.engine)) {
            taken++;
            continue;
        }
        ddl_engine_sweep(b.engine);
        ddl_engine_leave(b.engine);
        dozed += atomic_load(&b.dozes);
    }
    assert_in_range(taken, 0, TURNS / 2); /* this thread may lose its CPU for longer than the patrol waits */
    assert_in_range(dozed, 0, TURNS / 2);
    assert_int_equal(write(b.pipe[1], "x", 1), 1);
    assert_true(ddl_engine_wait(b.engine, &b.flags[0], ddl_deadline_in_ms(PATIENCE_MS)));
    close_bench(&b);
}

/* While somebody is always back the patrol comes rarely: threads that wake up thousands of times a second
 * keep other programs from running. */
static void who_is_always_back_is_seldom_looked_after(void **state)
{
    (void)state;
    enum { MS = 300, NAPS = 3 * MS / 2 }; /* one in 3.3 ms, or two; every 400 us would be 750 */
    bench b;
    struct rusage before, after;
    open_bench(&b, false, false);
    job *work = calloc(1, sizeof *work);
    ddl_engine_submit(b.engine, &work->link);
    getrusage(RUSAGE_SELF, &before);
    for (int64_t until_ns = ddl_now_ns() + MS * DDL_NS_PER_MS; ddl_now_ns() < until_ns;) {
        if (!ddl_engine_try_enter(b.engine))
            continue;
        ddl_engine_sweep(b.engine);
        ddl_engine_leave(b.engine);
    }
    getrusage(RUSAGE_SELF, &after);
    assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 0, NAPS);
    assert_int_equal(write(b.pipe[1], "x", 1), 1);
    assert_true(ddl_engine_wait(b.engine, &b.flags[0], ddl_deadline_in_ms(PATIENCE_MS)));
    close_bench(&b);
}

/* A sweep is called for, once or again and again, and nobody comes back. */
static void who_calls_for_a_sweep_gets_it(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, false, true);
    for (int round = 0; round < 100; round++) {
        assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
        for (int call = 0; call <= round % 4; call++) {
            for (int64_t until_ns = ddl_now_ns() + round * 3000; ddl_now_ns() < until_ns;)
                continue; /* the alarm may ring now, with the baton held */
            if (!ddl_engine_call_for_sweep(b.engine, ddl_now_ns(), call == 0)) {
                ddl_engine_leave(b.engine); /* there are no alarms in the portable build */
                close_bench(&b);
                skip();
            }
        }
        assert_int_equal(write(b.pipe[1], "x", 1), 1); /* which nobody awaits, so nothing else drives */
        ddl_engine_leave(b.engine);
        ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
        while (!atomic_load(&b.flags[round]))
            assert_false(ddl_deadline_passed(deadline));
    }
    close_bench(&b);
}

/* The alarm rings when something else has rung, too, and is left to the patrol. */
static void a_call_is_not_lost_where_something_else_is_left(void **state)
{
    (void)state;
    enum { TIMES = 400 };
    bench b;
    open_bench(&b, false, true);
    for (int i = 0, came = 0; i < TIMES; i++) {
        assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
        b.awaited = 0; /* a byte that nobody awaited has come, too */
        const bool called = ddl_engine_call_for_sweep(b.engine, ddl_now_ns(), true);
        ddl_engine_leave(b.engine);
        if (!called) {
            close_bench(&b);
            skip();
        }
        for (int64_t until_ns = ddl_now_ns() + (60 + i % 100) * 1000; ddl_now_ns() < until_ns;)
            continue;
        job *work = calloc(1, sizeof *work);
        ddl_engine_submit(b.engine, &work->link); /* it is left, and the thread rung */
        assert_int_equal(write(b.pipe[1], "x", 1), 1);
        assert_true(ddl_engine_wait(b.engine, &b.flags[came++], ddl_deadline_in_ms(PATIENCE_MS)));

        assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
        assert_true(ddl_engine_call_for_sweep(b.engine, ddl_now_ns(), false));
        assert_int_equal(write(b.pipe[1], "x", 1), 1);
        ddl_engine_leave(b.engine);
        ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
        while (!atomic_load(&b.flags[came]))
            assert_false(ddl_deadline_passed(deadline));
        came++;
    }
    close_bench(&b);
}

/* The alarm rings while somebody has the baton, all the time but for moments. */
static void who_keeps_the_baton_sweeps_when_it_is_due(void **state)
{
    (void)state;
    enum { MOST_TURNS = 20000 };
    bench b;
    open_bench(&b, false, true);
    for (int round = 0; round < 50; round++) {
        assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
        const bool called = ddl_engine_call_for_sweep(b.engine, ddl_now_ns(), true);
        assert_int_equal(write(b.pipe[1], "x", 1), 1);
        int turns = 0;
        for (; called && !atomic_load(&b.flags[round]) && turns < MOST_TURNS; turns++) {
            for (int64_t until_ns = ddl_now_ns() + 100 * 1000; ddl_now_ns() < until_ns;)
                continue;
            ddl_engine_leave(b.engine);
            assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
        }
        ddl_engine_leave(b.engine);
        if (!called) {
            close_bench(&b);
            skip();
        }
        assert_in_range(turns, 1, MOST_TURNS - 1); /* 2, if the background thread has a CPU */
    }
    close_bench(&b);
}

static void only_who_has_a_cpu_looks_again_at_once(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        bench b = { 0 };
        open_bench(&b, crowded == 1, false);
        assert_int_equal(ddl_engine_looks(b.engine) == 0, crowded == 1);
        close_bench(&b);
    }
}

/* Its client may not be complete before whoever makes it has taken the baton. */
static void nothing_is_swept_before_it_is_opened(void **state)
{
    (void)state;
    bench b = { 0 };
    const ddl_engine_client client = client_of(&b);
    assert_int_equal(ddl_engine_create(&client, false, &b.engine, NULL), DDL_OK);
    usleep(500 * 1000); /* twice as long as it takes to look, and more */
    assert_int_equal(atomic_load(&b.sweeps), 0);
    assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
    ddl_engine_leave(b.engine);
    EVENTUALLY(atomic_load(&b.sweeps) > 0);
    assert_true(ddl_engine_destroy(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
}

/* Who is in no call is to hear of others' failures by the time for which these wait for it (api/failure.c);
 * a busy machine may keep it from that, but not three times in a row. */
static void who_is_idle_looks_ten_times_a_second(void **state)
{
    (void)state;
    enum { LOOKS = 10, WITHIN_MS = 1300 }; /* one every 100 ms */
    bench b;
    int looks = 0;
    open_bench(&b, false, false);
    for (int tries = 0; tries < 3 && looks < LOOKS; tries++) {
        const int before = atomic_load(&b.sweeps);
        usleep(WITHIN_MS * 1000);
        looks = atomic_load(&b.sweeps) - before;
    }
    assert_true(looks >= LOOKS);
    close_bench(&b);
}

/* Whose last call ran the loop counts as having looked, but not for longer than 200 ms after that. */
static void who_becomes_idle_looks_within_200_ms(void **state)
{
    (void)state;
    enum { TIMES = 5, WITHIN_MS = 230, IN_TURN_MS = 37 };
    bench b;
    open_bench(&b, false, false);
    for (int round = 0; round < TIMES; round++) {
        bool has_looked = false;
        for (int tries = 0; tries < 3 && !has_looked; tries++) {
            usleep((IN_TURN_MS + round) * 1000); /* whenever it has looked last */
            assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
            ddl_engine_progress(b.engine);
            ddl_engine_leave(b.engine);
            const int before = atomic_load(&b.sweeps);
            usleep(WITHIN_MS * 1000);
            has_looked = atomic_load(&b.sweeps) > before;
        }
        assert_true(has_looked);
    }
    close_bench(&b);
}

/* With nothing in flight, and nobody in a call or somebody in one after the other. */
static void what_comes_unasked_is_heard_of(void **state)
{
    (void)state;
    for (int calls_on = 0; calls_on < 2; calls_on++) {
        bench b;
        open_bench(&b, calls_on == 1, false);
        for (int round = 0; round < 3; round++) {
            assert_int_equal(write(b.pipe[1], "x", 1), 1);
            const ddl_deadline late = ddl_deadline_in_ms(PATIENCE_MS);
            while (!atomic_load(&b.flags[round]) && !ddl_deadline_passed(late)) {
                if (calls_on == 0)
                    usleep(1000);
                else if (ddl_engine_try_enter(b.engine))
                    ddl_engine_leave(b.engine);
            }
            assert_true(atomic_load(&b.flags[round]));
            assert_true(ddl_deadline_left_ms(late) > PATIENCE_MS / 2);
        }
        close_bench(&b);
    }
}

/* The background thread drives while a byte comes every 50 us and counts for so many, of a message of which
 * so many are to come. Returns its sweeps for each ms. */
static double sweeps_while_bytes_come(size_t event_bytes, size_t to_come)
{
    enum { EVENTS = 4 * ROUNDS };
    bench b;
    open_bench(&b, false, false);
    b.event_bytes = event_bytes;
    b.to_come = to_come;
    for (int i = 0; i < EVENTS; i++) {
        job *work = calloc(1, sizeof *work);
        ddl_engine_submit(b.engine, &work->link);
    }
    const int64_t start_ns = ddl_now_ns();
    for (int i = 0; i < EVENTS; i++) {
        for (const int64_t until_ns = ddl_now_ns() + 50 * 1000; ddl_now_ns() < until_ns;)
            continue; /* from the last one, however late that was */
        assert_int_equal(write(b.pipe[1], "x", 1), 1);
    }
    const double ms = (double)(ddl_now_ns() - start_ns) / DDL_NS_PER_MS;
    const int sweeps = atomic_load(&b.sweeps);
    ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    while (!atomic_load(&b.flags[EVENTS - 1]))
        assert_false(ddl_deadline_passed(deadline));
    close_bench(&b);
    return sweeps / ms;
}

/*
 * Of a large message that comes at 160 MB/s batches of 128 KiB are taken, one in 0.8 ms, for each of which it
 * sweeps two or three times. Else it sweeps about 30 times in a ms: where these bytes are the last of
 * messages, and where batches come sooner than it would. A busy machine may need more than one try to show
 * that.
 */
static void a_large_message_is_taken_in_batches(void **state)
{
    (void)state;
    enum { SLOW = 8 * 1024, FAST = 16 * 1024 * 1024, MUCH = 1024 * 1024, LITTLE = 64 * 1024, MANY = 10 };
    int cpus[2], tries = 0;
    if (ddl_host_list_cpus(cpus, 2) < 2)
        skip(); /* which writes, and waits for that, all the time */
    while (sweeps_while_bytes_come(SLOW, LITTLE) < MANY)
        assert_in_range(++tries, 1, 200);
    while (sweeps_while_bytes_come(FAST, MUCH) < MANY)
        assert_in_range(++tries, 1, 200);
    assert_true(sweeps_while_bytes_come(SLOW, MUCH) < MANY);
}

/* Alarms that are put off all the time do not keep the patrol from looking. */
static void what_is_left_is_taken_over_beside_calls_for_sweeps(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, false, true);
    for (int round = 0; round < 20; round++) {
        job *work = calloc(1, sizeof *work);
        ddl_engine_submit(b.engine, &work->link);
        for (int64_t start_ns = ddl_now_ns(), now_ns = start_ns; now_ns < start_ns + 10 * DDL_NS_PER_MS;
             now_ns = ddl_now_ns()) {
            if (!ddl_engine_try_enter(b.engine))
                continue;
            const bool called = ddl_engine_call_for_sweep(b.engine, now_ns, now_ns == start_ns);
            ddl_engine_leave(b.engine);
            if (!called) {
                close_bench(&b);
                skip();
            }
        }
        assert_int_equal(write(b.pipe[1], "x", 1), 1);
        const int64_t start_ns = ddl_now_ns();
        while (!atomic_load(&b.flags[round]) && ddl_now_ns() < start_ns + PATIENCE_MS * DDL_NS_PER_MS) {
            if (!ddl_engine_try_enter(b.engine))
                continue;
            assert_true(ddl_engine_call_for_sweep(b.engine, ddl_now_ns(), false));
            ddl_engine_leave(b.engine);
        }
        assert_true(atomic_load(&b.flags[round]));
    }
    close_bench(&b);
}

/* Whoever calls for sweeps all the time is at work, and is left alone more and more. */
static void who_calls_for_sweeps_all_the_time_is_seldom_woken_for(void **state)
{
    (void)state;
    enum { MS = 300, NAPS = MS }; /* one in 1.6 ms; every 100 us would be 3000 */
    bench b;
    struct rusage before, after;
    open_bench(&b, false, true);
    getrusage(RUSAGE_SELF, &before);
    bool is_the_first = true;
    for (int64_t now_ns = ddl_now_ns(), until_ns = now_ns + MS * DDL_NS_PER_MS; now_ns < until_ns;
         now_ns = ddl_now_ns()) {
        if (!ddl_engine_try_enter(b.engine))
            continue;
        const bool called = ddl_engine_call_for_sweep(b.engine, now_ns, is_the_first);
        ddl_engine_leave(b.engine);
        if (!called) {
            close_bench(&b);
            skip();
        }
        is_the_first = false;
    }
    getrusage(RUSAGE_SELF, &after);
    assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 0, NAPS);
    assert_true(ddl_engine_enter(b.engine, ddl_deadline_in_ms(PATIENCE_MS)));
    assert_true(
        ddl_engine_call_for_sweep(b.engine, ddl_now_ns(), false)); /* the last, which nobody follows */
    assert_int_equal(write(b.pipe[1], "x", 1), 1);
    ddl_engine_leave(b.engine);
    ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    while (!atomic_load(&b.flags[0]))
        assert_false(ddl_deadline_passed(deadline));
    close_bench(&b);
}

typedef struct waiter {
    bench *bench;
    pthread_t thread;
    int index;
} waiter;

/* Each thread submits an operation, lets it end, and waits for all up to its own number. */
static void *wait_many(void *arg)
{
    waiter *me = arg;
    bench *b = me->bench;
    for (int round = 0; round < ROUNDS; round++) {
        job *work = calloc(1, sizeof *work);
        DDL_ASSERT(work != NULL);
        ddl_engine_submit(b->engine, &work->link);
        DDL_ASSERT(write(b->pipe[1], "x", 1) == 1);
        int last = round * WAITERS + me->index; /* ends at the latest when every thread is in this round */
        DDL_ASSERT(ddl_engine_wait(b->engine, &b->flags[last], ddl_deadline_in_ms(PATIENCE_MS)));
    }
    return NULL;
}

static void many_threads_wait_at_once_and_all_return(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        bench b;
        open_bench(&b, variant % 2 == 1, variant >= 2);
        waiter waiters[WAITERS];
        for (int i = 0; i < WAITERS; i++) {
            waiters[i] = (waiter){ .bench = &b, .index = i };
            assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_many, &waiters[i]), 0);
        }
        for (int i = 0; i < WAITERS; i++)
            pthread_join(waiters[i].thread, NULL);
        assert_int_equal(atomic_load(&b.arrived), WAITERS * ROUNDS);
        assert_int_equal(atomic_load(&b.jobs), WAITERS * ROUNDS);
        close_bench(&b);
    }
}

static void wait_any_returns_for_whichever_comes_first(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, false, true);
    atomic_bool never = false;
    const atomic_bool *flags[] = { &never, NULL, &b.flags[0] };
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_later, &b), 0);
    assert_true(ddl_engine_wait_any(b.engine, flags, 3, ddl_deadline_in_ms(PATIENCE_MS)));
    pthread_join(writer, NULL);
    close_bench(&b);
}

#ifdef __linux__
/* Wait for what comes after so long, having woken another rank or not. True: it fell asleep. */
static bool sleeps_for(bench *b, bool wakes, int64_t ns)
{
    const struct itimerspec after = { .it_value = { ns / DDL_NS_PER_S, ns % DDL_NS_PER_S } };
    atomic_store(&b->dozes, false);
    atomic_store(&b->arrived, 0);
    atomic_store(&b->flags[0], false);
    b->slept = false;
    if (wakes)
        ddl_engine_woke(b->engine);
    assert_int_equal(timerfd_settime(b->pipe[0], 0, &after, NULL), 0);
    assert_true(ddl_engine_wait(b->engine, &b->flags[0], ddl_deadline_in_ms(PATIENCE_MS)));
    return b->slept;
}

/* Whether that is so, or not, so many times in a row, at last. */
static bool comes_to(bench *b, bool wakes, int64_t ns, bool sleeps, int in_a_row)
{
    const ddl_deadline end = ddl_deadline_in_ms(PATIENCE_MS);
    for (int n = 0; !ddl_deadline_passed(end);) {
        n = sleeps_for(b, wakes, ns) == sleeps ? n + 1 : 0;
        if (n == in_a_row)
            return true;
    }
    return false;
}

/* What comes 300 us after it is asked for does not put to sleep for long who wakes others each time, and what
 * comes in milliseconds does, and makes 300 us long again; so does who wakes nobody. */
static void who_wakes_and_is_woken_in_turns_polls_instead(void **state)
{
    (void)state;
    enum { SOON_NS = 300 * 1000, LATER_NS = 4000 * 1000 };
    if (!is_first)
        skip();
    bench b;
    memset(&b, 0, sizeof b);
    b.pipe[0] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    b.pipe[1] = dup(b.pipe[0]);
    assert_true(b.pipe[0] >= 0 && b.pipe[1] >= 0);
    b.event_size = sizeof(uint64_t);
    open_bench_on(&b, false, true);
    assert_true(comes_to(&b, false, SOON_NS, true, 20));
    for (int i = 0; i < 2; i++) {
        assert_true(comes_to(&b, true, SOON_NS, false, 20));
        assert_true(comes_to(&b, true, LATER_NS, true, 5));
        assert_true(comes_to(&b, true, SOON_NS, true, 1));
        assert_true(comes_to(&b, true, SOON_NS, false, 20));
        assert_true(comes_to(&b, false, LATER_NS, true, 5));
        assert_true(comes_to(&b, false, SOON_NS, true, 20));
    }
    close_bench(&b);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(baton_is_held_by_one),
        cmocka_unit_test(only_who_has_a_cpu_looks_again_at_once),
        cmocka_unit_test(a_tick_that_is_due_soon_is_the_next),
        cmocka_unit_test_setup_teardown(who_drives_tells_where_it_is_every_few_milliseconds,
                                        be_first_if_allowed, be_like_others),
        cmocka_unit_test(who_drives_can_be_moved),
        cmocka_unit_test(sleeper_wakes_for_a_descriptor_and_not_only_for_a_tick),
#ifdef __linux__
        cmocka_unit_test_setup_teardown(who_waits_yields_at_once_where_it_shares_its_cpu_and_else_later,
                                        be_first_if_allowed, be_like_others),
#endif
        cmocka_unit_test(who_sleeps_hears_although_another_changes_the_watch),
        cmocka_unit_test(nobody_sleeps_without_having_dozed),
        cmocka_unit_test(wait_on_a_stuck_engine_ends_soon_after_its_deadline),
        cmocka_unit_test(wait_begun_after_its_deadline_drives_all_the_same),
        cmocka_unit_test(who_drives_all_the_time_lets_others_in),
        cmocka_unit_test(background_thread_drives_what_was_left_behind),
        cmocka_unit_test(what_is_left_is_taken_over_at_any_time),
        cmocka_unit_test_setup_teardown(who_only_starts_is_driven_for, be_first_if_allowed, be_like_others),
        cmocka_unit_test(who_is_back_at_once_drives),
        cmocka_unit_test(who_is_always_back_is_seldom_looked_after),
        cmocka_unit_test(who_calls_for_a_sweep_gets_it),
        cmocka_unit_test(a_call_is_not_lost_where_something_else_is_left),
        cmocka_unit_test(who_keeps_the_baton_sweeps_when_it_is_due),
        cmocka_unit_test(nothing_is_swept_before_it_is_opened),
        cmocka_unit_test(who_is_idle_looks_ten_times_a_second),
        cmocka_unit_test(who_becomes_idle_looks_within_200_ms),
        cmocka_unit_test(what_comes_unasked_is_heard_of),
        cmocka_unit_test_setup_teardown(a_large_message_is_taken_in_batches, be_first_if_allowed,
                                        be_like_others),
        cmocka_unit_test(what_is_left_is_taken_over_beside_calls_for_sweeps),
        cmocka_unit_test(who_calls_for_sweeps_all_the_time_is_seldom_woken_for),
        cmocka_unit_test(many_threads_wait_at_once_and_all_return),
        cmocka_unit_test(wait_any_returns_for_whichever_comes_first),
#ifdef __linux__
        cmocka_unit_test_setup_teardown(who_wakes_and_is_woken_in_turns_polls_instead, be_first_if_allowed,
                                        be_like_others),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
