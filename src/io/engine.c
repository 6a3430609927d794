/*
 * engine.c - baton, ways of waiting, and the background thread.
 *
 * Order of sleeping, which nothing may be lost in: a waiter that finds the baton taken counts itself in
 * `sleepers` and looks at the baton again under the lock; whoever gives the baton back looks at `sleepers`
 * afterwards. Both sides use sequentially consistent accesses, so at least one sees the other.
 */
#include "io/engine.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/thread.h"
#include "io/gate.h"
#include "io/host.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

enum {
    TICK_MS = 20,
    LOCATE_MS = 4, /* ranks that begin unevenly on CPUs take half as long again for each call until then */
    LONG_TICK_MS = 100, /* once so many in a row were in vain: 50 a second take 0.1 % of a core */
    TICKS_IN_VAIN = 50,
    LISTEN_NS = 1000 * 1000,
    IDLE_MS = 200,              /* see is_unattended */
    SPIN_NS = 60 * 1000,        /* about twice what waking a sleeper on another core costs */
    LONG_SPIN_NS = 1000 * 1000, /* where it costs more; see learn_patience */
    PAUSE_NS =
        8 * 1000, /* of it, alone on the core; then the core is offered to others, who may be the peer */
    LOOP_EVERY_NS = 20 * 1000, /* while spinning, the loop is looked at this often */
    LOOP_EVERY_YIELDS = 8,
    MISSES_PER_CLOCK = 4, /* reading it takes as long as looking at memory that another core writes */
    YIELDS = 60,
    LINGER_LOOKS = 100,
    LOOKS_AT_ONCE = 64, /* of them without a pause, which takes half as long as a line from another core */
    LINGER_YIELDS = 16,
    TAKEN_NS = 400 * 1000,
    SWITCH_NS = 1000,                /* a yield that nobody takes is half of it */
    TURN_NS = 100 * 1000,            /* whoever gives the core back sooner takes turns with us */
    PATROL_NS = 100 * 1000,          /* from one look of the patrol to the next, at least */
    CROWDED_PATROL_NS = 1000 * 1000, /* where each of many ranks has one */
    LONG_PATROL_NS = 3200 * 1000,    /* and at most; see patrol */
    FIRST_ALARM_NS = 100 * 1000,     /* from a call for a sweep; see is_overdue */
    LAST_ALARM_NS = 1600 * 1000,
    QUIET_LOOKS = 10,         /* in a row, after which the patrol ends */
    BATCH_BYTES = 128 * 1024, /* see let_more_come */
    LEAST_BATCH_BYTES = 16 * 1024,
    BATCH_NS = 1000 * 1000,
    LEAST_BATCH_NS = 100 * 1000,
    MAKE_WAY_NS = 1000 * 1000,
    SWEEPS_BETWEEN_TICKS = 256 /* while something moves all the time */
};

struct ddl_engine {
    ddl_engine_client client;
    bool crowded;
    uv_loop_t loop;
    bool loop_open;
    bool moved;             /* holder: a loop callback moved something */
    bool takes_turns;       /* holder: another process that yields, as peers do, is on this core */
    int64_t spin_ns;        /* holder: how long polling in vain goes on */
    uint64_t received;      /* holder: bytes */
    size_t to_come;         /* holder: at least so many more, of a message of which some have come */
    int64_t next_tick_ns;   /* holder */
    int64_t next_locate_ns; /* holder */
    int64_t progress_ns;    /* holder: when there was any */

    atomic_bool baton;      /* true: held. Paired with `sleepers`, see above */
    atomic_int sleepers;    /* threads in or on their way to pthread_cond_wait */
    atomic_bool watcher;    /* a waiter sleeps at the gate, without the baton */
    atomic_int entrants;    /* threads that want the baton, and not to wait for an operation */
    pthread_mutex_t lock;   /* of `changed`, `jobs`, `background_ended` */
    pthread_cond_t changed; /* the baton was given back, or an operation ended, or the background thread */
    ddl_list jobs;
    atomic_int njobs; /* so that the holder looks without the lock */

    ddl_gate *gate;            /* of waiters */
    ddl_gate *background_gate; /* of the background thread; one-shot */
    atomic_bool alarm;         /* is set, and not answered. Paired with the baton, see enter_in_background */
    atomic_long alarm_ns;      /* from one to the next */
    atomic_int_least64_t called_ns; /* when a sweep was called for last */
    atomic_bool sweep_due;         /* whoever has the baton sweeps before it is free. Paired with the baton */
    bool put_off;                  /* background thread: the alarm has rung in vain once */
    atomic_bool left;              /* something is in flight, left to the patrol. Paired with `patrols` */
    atomic_uint visits;            /* how often it was */
    atomic_uint sweeps;            /* by anybody */
    atomic_int_least64_t given_up; /* one more than there had been when somebody waited in vain; 0: never */
    atomic_uint loops;             /* likewise, runs of the loop */
    unsigned loops_seen;           /* background thread */
    atomic_bool in_use;            /* somebody has waited for the baton, as who opens it does */
    atomic_bool patrols;           /* the background thread does */
    atomic_bool background_watching; /* the background gate watches the loop */
    atomic_bool background_ticking;  /* the background thread wakes every nap_ms */
    atomic_int nap_ms;
    atomic_int vain_ticks;  /* in a row, with nothing else between them */
    atomic_int vain_before; /* what there had been of them before something else came */
    atomic_bool woke;       /* another rank, since this one was woken */
    atomic_bool stopping;
    bool has_background, background_ended;
    pthread_t background;
    atomic_int_least64_t move; /* a thread, and the CPU to which the background thread is to move it; or 0 */
};

static void take_jobs(ddl_engine *engine)
{
    while (atomic_load(&engine->njobs) > 0) {
        pthread_mutex_lock(&engine->lock);
        ddl_link *job = ddl_list_take_first(&engine->jobs);
        if (job != NULL)
            atomic_fetch_sub(&engine->njobs, 1);
        pthread_mutex_unlock(&engine->lock);
        if (job == NULL)
            return;
        engine->client.job(engine->client.arg, job);
        engine->moved = true;
    }
}

void ddl_engine_drain(ddl_engine *engine)
{
    if (atomic_load(&engine->njobs) > 0) /* which is rare, and looked for twice in each call */
        take_jobs(engine);
}

/* Holder, who alone counts. */
static void count(atomic_uint *what)
{
    atomic_store_explicit(what, atomic_load_explicit(what, memory_order_relaxed) + 1, memory_order_relaxed);
}

static bool run_loop(ddl_engine *engine)
{
    engine->moved = false;
    count(&engine->loops);
    uv_run(&engine->loop, UV_RUN_NOWAIT);
    return engine->moved;
}

static bool is_sweep_due(ddl_engine *engine)
{
    return atomic_load(&engine->sweep_due);
}

static bool sweep(ddl_engine *engine)
{
    engine->moved = false;
    if (is_sweep_due(engine))
        atomic_store(&engine->sweep_due, false); /* first: what it was set for is swept now */
    count(&engine->sweeps);
    ddl_engine_drain(engine);
    bool moved = engine->client.sweep(engine->client.arg);
    return moved || engine->moved;
}

static void locate(ddl_engine *engine, int64_t now_ns)
{
    if (now_ns < engine->next_locate_ns || engine->client.locate == NULL || ddl_thread_is_own())
        return;
    engine->next_locate_ns = now_ns + LOCATE_MS * DDL_NS_PER_MS;
    engine->client.locate(engine->client.arg, now_ns);
}

static void tick(ddl_engine *engine, int64_t now_ns)
{
    locate(engine, now_ns);
    if (now_ns < engine->next_tick_ns)
        return;
    engine->next_tick_ns = now_ns + TICK_MS * DDL_NS_PER_MS;
    engine->client.tick(engine->client.arg, now_ns);
}

/* ---- the baton ---- */

bool ddl_engine_try_enter(ddl_engine *engine)
{
    bool expected = false;
    if (atomic_load(&engine->baton) || !atomic_compare_exchange_strong(&engine->baton, &expected, true))
        return false;
    if (atomic_load_explicit(&engine->left, memory_order_relaxed))
        atomic_store_explicit(&engine->left, false, memory_order_relaxed);
    if (atomic_load_explicit(&engine->background_watching, memory_order_relaxed)) {
        atomic_store(&engine->background_watching, false);
        ddl_gate_watch(engine->background_gate, false);
    }
    return true;
}

static void wake_sleepers(ddl_engine *engine)
{
    if (atomic_load(&engine->sleepers) == 0)
        return;
    pthread_mutex_lock(&engine->lock);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* Give the baton back and nothing else. */
static void release(ddl_engine *engine)
{
    atomic_store(&engine->baton, false);
    wake_sleepers(engine);
}

/* The background thread, as holder: events are to wake it. */
static void arm_background(ddl_engine *engine)
{
    run_loop(engine); /* libuv registers changed watchers only when it runs */
    atomic_store(&engine->background_watching, true);
    ddl_gate_watch(engine->background_gate, true);
    atomic_store(&engine->background_ticking, true);
}

/* Holder: the patrol comes by, and finds what is in flight if nobody is back before. */
static void leave_to_patrol(ddl_engine *engine)
{
    count(&engine->visits);
    atomic_store(&engine->left, true);
}

/* Whether a thread is there that will drive what is left in flight. */
static bool somebody_waits(ddl_engine *engine)
{
    return atomic_load(&engine->sleepers) > 0 || atomic_load(&engine->watcher);
}

/* in_background: by the background thread, to whom what is in flight is left as soon as it has events. True:
 * there is something already that the next sweep will find. */
static bool leave(ddl_engine *engine, bool in_background)
{
    for (;;) {
        ddl_engine_drain(engine);
        if (is_sweep_due(engine))
            ddl_engine_progress(engine);
        bool busy = engine->client.busy(engine->client.arg), waits = somebody_waits(engine);
        bool missed = false;
        if (busy && !waits && !in_background)
            leave_to_patrol(engine);
        else if (busy && !waits)
            arm_background(engine);
        if (busy && (waits || in_background))
            missed = engine->client.doze(engine->client.arg);
        release(engine);
        if (busy && !waits && !in_background && !atomic_load(&engine->patrols))
            ddl_gate_ring(engine->background_gate);
        if (missed) /* not before the release: who wakes up wants the baton */
            ddl_gate_ring(waits ? engine->gate : engine->background_gate);
        /*
         * Look again: a job may have come after the drain, a sweep may be due, and who waited may have
         * stopped waiting before it could take the baton. It tries to take it after it has stopped, so one of
         * us two leaves it.
         */
        bool abandoned = busy && waits && !somebody_waits(engine);
        if ((!abandoned && atomic_load(&engine->njobs) == 0 && !is_sweep_due(engine)) ||
            !ddl_engine_try_enter(engine))
            return missed;
    }
}

void ddl_engine_leave(ddl_engine *engine)
{
    (void)leave(engine, false);
}

void ddl_engine_submit(ddl_engine *engine, ddl_link *job)
{
    pthread_mutex_lock(&engine->lock);
    ddl_list_append(&engine->jobs, job);
    atomic_fetch_add(&engine->njobs, 1); /* with the lock: who sees 0 after this knows that it was taken */
    pthread_mutex_unlock(&engine->lock);
    if (ddl_engine_try_enter(engine))
        ddl_engine_leave(engine);
    else if (atomic_load(&engine->watcher))
        ddl_gate_ring(engine->gate);
}

uv_loop_t *ddl_engine_loop(ddl_engine *engine)
{
    return &engine->loop;
}

bool ddl_engine_progress(ddl_engine *engine)
{
    bool moved = sweep(engine);
    engine->progress_ns = ddl_now_ns();
    tick(engine, engine->progress_ns);
    return run_loop(engine) || moved;
}

void ddl_engine_listen(ddl_engine *engine)
{
    if (ddl_now_ns() - engine->progress_ns > LISTEN_NS)
        ddl_engine_progress(engine);
}

unsigned ddl_engine_loops(const ddl_engine *engine)
{
    return atomic_load_explicit(&engine->loops, memory_order_relaxed);
}

void ddl_engine_sweep(ddl_engine *engine)
{
    sweep(engine);
}

void ddl_engine_moved(ddl_engine *engine)
{
    engine->moved = true;
}

void ddl_engine_received(ddl_engine *engine, size_t bytes, size_t to_come)
{
    engine->moved = true;
    engine->received += bytes;
    engine->to_come = to_come;
}

void ddl_engine_tick_soon(ddl_engine *engine)
{
    engine->next_tick_ns = 0;
}

void ddl_engine_tick_often(ddl_engine *engine)
{
    atomic_store_explicit(&engine->vain_ticks, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->vain_before, 0, memory_order_relaxed);
}

void ddl_engine_tick_as_before(ddl_engine *engine)
{
    const int before = atomic_load_explicit(&engine->vain_before, memory_order_relaxed);
    if (before > TICKS_IN_VAIN)
        atomic_store_explicit(&engine->vain_ticks, before, memory_order_relaxed);
}

bool ddl_engine_call_for_sweep(ddl_engine *engine, int64_t now_ns, bool is_first)
{
    atomic_store_explicit(&engine->called_ns, now_ns, memory_order_relaxed);
    if (is_first)
        atomic_store_explicit(&engine->alarm_ns, FIRST_ALARM_NS, memory_order_relaxed);
    if (atomic_exchange(&engine->alarm, true) && !is_first) /* before it can ring */
        return true;
    if (ddl_gate_set_alarm(engine->background_gate, atomic_load(&engine->alarm_ns)))
        return true;
    atomic_store(&engine->alarm, false);
    return false;
}

void ddl_engine_wake(ddl_engine *engine)
{
    wake_sleepers(engine);
    if (atomic_load(&engine->watcher))
        ddl_gate_ring(engine->gate);
}

void ddl_engine_woke(ddl_engine *engine)
{
    atomic_store_explicit(&engine->woke, true, memory_order_relaxed);
}

void ddl_engine_set_nap(ddl_engine *engine, int ms)
{
    atomic_store(&engine->nap_ms, ms > 0 ? ms : TICK_MS);
}

/* ---- waiting ---- */

typedef struct goal {
    const atomic_bool *const *done;
    size_t n;
} wait_goal;

static bool reached(const wait_goal *goal)
{
    for (size_t i = 0; i < goal->n; i++)
        if (goal->done[i] != NULL && atomic_load_explicit(goal->done[i], memory_order_acquire))
            return true;
    return false;
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/*
 * Offer the core to others. True if one took it for long: it computes rather than takes turns, and a
 * thread that is woken from sleep gets the core back sooner than one that yields again and again.
 */
static bool yield_was_taken(ddl_engine *engine)
{
    int64_t before_ns = ddl_now_ns();
    sched_yield();
    int64_t away_ns = ddl_now_ns() - before_ns;
    engine->takes_turns = away_ns > SWITCH_NS && away_ns < TURN_NS;
    return away_ns > TAKEN_NS;
}

void ddl_engine_give_way(ddl_engine *engine)
{
    if (engine->crowded)
        sched_yield();
}

bool ddl_engine_linger(ddl_engine *engine, bool (*ready)(void *arg), void *arg)
{
    const bool yields = engine->crowded || engine->takes_turns;
    int most = yields ? LINGER_YIELDS : LINGER_LOOKS;
    for (int i = 0; i < most; i++) {
        if (ready(arg))
            return true;
        if (atomic_load_explicit(&engine->njobs, memory_order_relaxed) > 0)
            return false;
        if (!yields && i >= LOOKS_AT_ONCE)
            pause_cpu();
        else if (yields && yield_was_taken(engine))
            return ready(arg);
    }
    return false;
}

/*
 * Holder: poll until the goal is reached or polling has been in vain for long enough, since *missed_ns then.
 */
static bool poll_for(ddl_engine *engine, const wait_goal *goal, int64_t *missed_ns)
{
    int misses = 0, sweeps = 0;
    int64_t first_miss_ns = 0, loop_ns = 0;
    while (!reached(goal)) {
        bool moved = sweep(engine);
        if (reached(goal))
            return true;
        if (engine->client.needs_loop(engine->client.arg))
            moved = run_loop(engine) || moved;
        if (++sweeps % SWEEPS_BETWEEN_TICKS == 0) {
            tick(engine, ddl_now_ns());
            if (atomic_load_explicit(&engine->entrants, memory_order_relaxed) > 0)
                return false;
        }
        if (moved) {
            misses = 0;
            continue;
        }
        misses++;
        if (engine->crowded) {
            bool taken = false;
            if (misses > YIELDS)
                return false;
            if (misses % LOOP_EVERY_YIELDS == 0 && run_loop(engine))
                misses = 0;
            else
                taken = yield_was_taken(engine);
            if (taken)
                return false;
            continue;
        }
        if (misses % MISSES_PER_CLOCK != 1 && !engine->takes_turns) {
            pause_cpu();
            continue;
        }
        int64_t now_ns = ddl_now_ns();
        if (misses == 1)
            first_miss_ns = loop_ns = now_ns;
        if (now_ns - loop_ns > LOOP_EVERY_NS) {
            loop_ns = now_ns;
            tick(engine, now_ns);
            if (run_loop(engine)) {
                misses = 0;
                continue;
            }
        }
        if (now_ns - first_miss_ns > engine->spin_ns) {
            *missed_ns = first_miss_ns;
            return false;
        }
        if (now_ns - first_miss_ns <= PAUSE_NS && !engine->takes_turns)
            pause_cpu();
        else
            (void)yield_was_taken(engine);
    }
    return true;
}

/*
 * Holder, once it has been woken: it had polled in vain since missed_ns. Who has woken another rank before,
 * and then was soon woken itself, is one of two who wake each other in turns, and would go on so: a sleeper
 * costs its waker a system call and comes late, by 30 us or by 1 ms on one virtual machine, so that the
 * waker, who waits for it next, falls asleep too. So they poll for longer; who only waits for somebody who
 * computes does not, and leaves the CPU to him. The growth is that of halt polling in KVM
 * (Documentation/virt/kvm/halt-polling.rst in Linux).
 */
static void learn_patience(ddl_engine *engine, int64_t missed_ns)
{
    const bool in_turns = atomic_exchange_explicit(&engine->woke, false, memory_order_relaxed) &&
                          ddl_now_ns() - missed_ns <= LONG_SPIN_NS;
    const int64_t spin_ns = in_turns ? engine->spin_ns * 2 : engine->spin_ns / 2;
    engine->spin_ns = spin_ns > LONG_SPIN_NS ? LONG_SPIN_NS : spin_ns < SPIN_NS ? SPIN_NS : spin_ns;
}

/* How long whoever drives may sleep, with so much left until a deadline. */
static int nap_of(const ddl_engine *engine, int left_ms)
{
    int ms = atomic_load(&engine->nap_ms);
    if (ms == TICK_MS && left_ms > LONG_TICK_MS &&
        atomic_load_explicit(&engine->vain_ticks, memory_order_relaxed) > TICKS_IN_VAIN)
        ms = LONG_TICK_MS;
    return left_ms > 0 && left_ms < ms ? left_ms : ms;
}

static ddl_gate_end nap(ddl_engine *engine, ddl_gate *gate, int most_ms)
{
    const ddl_gate_end end = ddl_gate_wait(gate, most_ms);
    if (end == DDL_GATE_TIME)
        atomic_fetch_add_explicit(&engine->vain_ticks, 1, memory_order_relaxed);
    else
        atomic_store_explicit(&engine->vain_before,
                              atomic_exchange_explicit(&engine->vain_ticks, 0, memory_order_relaxed),
                              memory_order_relaxed);
    return end;
}

/*
 * Holder at entry, not at exit: sleep at the gate. Returns at an event, a doorbell or a tick; false: nothing
 * has happened until that.
 */
static bool sleep_at_gate(ddl_engine *engine, const wait_goal *goal, ddl_deadline deadline)
{
    atomic_store(&engine->watcher, true);
    bool moved = sweep(engine) || run_loop(engine);
    tick(engine, ddl_now_ns());
    int loop_ms = uv_backend_timeout(&engine->loop);
    bool stay_awake =
        moved || reached(goal) || atomic_load(&engine->njobs) > 0 || engine->client.doze(engine->client.arg);
    int nap_ms = nap_of(engine, ddl_deadline_left_ms(deadline)); /* doze may have set it */
    int timeout_ms = loop_ms >= 0 && loop_ms < nap_ms ? loop_ms : nap_ms;
    release(engine);
    const bool happened =
        stay_awake || is_sweep_due(engine) || nap(engine, engine->gate, timeout_ms) != DDL_GATE_TIME;
    atomic_store(&engine->watcher, false);
    return happened;
}

/* With the lock: until `changed` or a tick has passed. */
static void sleep_a_tick(ddl_engine *engine)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * DDL_NS_PER_MS;
    until.tv_sec += until.tv_nsec / DDL_NS_PER_S;
    until.tv_nsec %= DDL_NS_PER_S;
    pthread_cond_timedwait(&engine->changed, &engine->lock, &until);
}

/* Another thread drives or watches: sleep until it stops, an operation ends, or a tick has passed. */
static void sleep_behind_driver(ddl_engine *engine, const wait_goal *goal)
{
    atomic_fetch_add(&engine->sleepers, 1);
    pthread_mutex_lock(&engine->lock);
    bool for_baton = goal->n == 0;
    if (!reached(goal) && (atomic_load(&engine->baton) || (!for_baton && atomic_load(&engine->watcher))))
        sleep_a_tick(engine);
    pthread_mutex_unlock(&engine->lock);
    atomic_fetch_sub(&engine->sleepers, 1);
}

/* Between two turns of who drives: others would find the baton free for a moment only. */
static void let_others_in(ddl_engine *engine)
{
    if (atomic_load(&engine->entrants) == 0)
        return;
    const int64_t end_ns = ddl_now_ns() + MAKE_WAY_NS;
    while (atomic_load(&engine->entrants) > 0 && !atomic_load(&engine->baton) && ddl_now_ns() < end_ns)
        sched_yield();
}

/* For others to drive, of who waits by a clock of his own. */
typedef struct patience {
    ddl_deadline end;
    int64_t looked_ns; /* 0: not yet */
} patience;

static int64_t sweeps_and_one(ddl_engine *engine)
{
    return (int64_t)atomic_load(&engine->sweeps) + 1;
}

/*
 * Who has waited in vain, until a deadline and for a grace, has met an engine that is stuck, if only this
 * process had the time to do anything: while it was stopped, by a debugger for one, or others had its CPUs,
 * nothing has been waited for. Of an engine that somebody has given up before, and that nobody has driven
 * since, nothing more is hoped.
 */
static bool is_lost(patience *hope, ddl_engine *engine, ddl_deadline deadline)
{
    const int64_t now_ns = ddl_now_ns(), most_ns = DDL_DEADLINE_NEVER - DDL_ENGINE_GRACE_MS * DDL_NS_PER_MS;
    if (hope->looked_ns == 0) {
        const bool is_known = atomic_load(&engine->given_up) == sweeps_and_one(engine);
        const ddl_deadline from = deadline < now_ns && !is_known ? now_ns : deadline;
        hope->end = from < most_ns ? from + DDL_ENGINE_GRACE_MS * DDL_NS_PER_MS : DDL_DEADLINE_NEVER;
    } else if (hope->end < most_ns && now_ns - hope->looked_ns > LONG_TICK_MS * DDL_NS_PER_MS) {
        hope->end += now_ns - hope->looked_ns - LONG_TICK_MS * DDL_NS_PER_MS;
    }
    hope->looked_ns = now_ns;
    if (now_ns < hope->end)
        return false;
    atomic_store(&engine->given_up, sweeps_and_one(engine));
    return true;
}

/* entered: the caller has the baton. */
static bool wait_for(ddl_engine *engine, const wait_goal *goal, ddl_deadline deadline, bool entered)
{
    patience hope = { 0 };
    if (!entered && reached(goal))
        return true;
    /* Behind a watcher each thread polls once: what comes later wakes the watcher, who drives for all. */
    bool polled = false;
    bool in_vain = false;  /* who has just slept until a tick only looks, as part of going to sleep again */
    int64_t missed_ns = 0; /* 0: it has not given up polling */
    ddl_engine_tick_often(engine);
    while (entered || !reached(goal)) {
        bool behind = polled && atomic_load(&engine->watcher);
        if (entered || (!behind && ddl_engine_try_enter(engine))) {
            entered = false;
            polled = true;
            if (!in_vain) {
                if (missed_ns != 0)
                    learn_patience(engine, missed_ns);
                missed_ns = 0;
                if (poll_for(engine, goal, &missed_ns)) {
                    ddl_engine_leave(engine);
                    return true;
                }
            }
            if (!atomic_load(&engine->watcher)) {
                in_vain = !sleep_at_gate(engine, goal, deadline);
                let_others_in(engine);
                if (!is_lost(&hope, engine, deadline))
                    continue;
                break;
            }
            /* The watcher will take the baton at the next event; this thread's polling has kept it from
             * hearing of one. */
            bool missed = engine->client.doze(engine->client.arg);
            release(engine);
            if (missed || is_sweep_due(engine))
                ddl_gate_ring(engine->gate);
        }
        sleep_behind_driver(engine, goal);
        in_vain = false;
        if (is_lost(&hope, engine, deadline))
            break;
    }
    /* This thread may have been the reason why nobody armed the background thread; see ddl_engine_leave. */
    if (ddl_engine_try_enter(engine))
        ddl_engine_leave(engine);
    return reached(goal);
}

bool ddl_engine_wait(ddl_engine *engine, const atomic_bool *done, ddl_deadline deadline)
{
    wait_goal one = { &done, 1 };
    return wait_for(engine, &one, deadline, false);
}

bool ddl_engine_wait_entered(ddl_engine *engine, const atomic_bool *done, ddl_deadline deadline)
{
    wait_goal one = { &done, 1 };
    return wait_for(engine, &one, deadline, true);
}

bool ddl_engine_wait_any(ddl_engine *engine, const atomic_bool *const done[], size_t n, ddl_deadline deadline)
{
    wait_goal any = { done, n };
    return wait_for(engine, &any, deadline, false);
}

bool ddl_engine_enter(ddl_engine *engine, ddl_deadline deadline)
{
    const wait_goal nothing = { NULL, 0 };
    bool entered = ddl_engine_try_enter(engine), waits = !entered;
    if (waits)
        atomic_fetch_add(&engine->entrants, 1);
    for (int spins = 0; !entered; spins++) {
        if (spins < 100)
            sched_yield();
        else
            sleep_behind_driver(engine, &nothing);
        entered = ddl_engine_try_enter(engine);
        if (spins >= 100 && ddl_deadline_passed(deadline))
            break;
    }
    if (waits)
        atomic_fetch_sub(&engine->entrants, 1);
    if (entered)
        atomic_store(&engine->in_use, true);
    return entered;
}

/* ---- the background thread ---- */

enum { CPU_BITS = 16 };

void ddl_engine_move(ddl_engine *engine, int cpu)
{
    atomic_store(&engine->move, (int64_t)ddl_host_thread() << CPU_BITS | cpu);
    ddl_gate_ring(engine->background_gate);
}

static void do_move(ddl_engine *engine)
{
    const int64_t move = atomic_load_explicit(&engine->move, memory_order_relaxed) != 0
                             ? atomic_exchange(&engine->move, 0)
                             : 0;
    if (move != 0)
        ddl_host_move_thread((int)(move >> CPU_BITS), (int)(move & ((1 << CPU_BITS) - 1)));
}

/*
 * The alarm has rung. False: somebody has called again just now, and it is set for as long after that; the
 * second time in a row for twice as long.
 */
static bool is_overdue(ddl_engine *engine)
{
    const int64_t since_ns = ddl_now_ns() - atomic_load(&engine->called_ns);
    long pause_ns = atomic_load(&engine->alarm_ns);
    if (since_ns > pause_ns / 2) {
        engine->put_off = false;
        return true;
    }
    if (engine->put_off && pause_ns < LAST_ALARM_NS) {
        pause_ns *= 2;
        atomic_store(&engine->alarm_ns, pause_ns);
    }
    engine->put_off = !engine->put_off;
    return !ddl_gate_set_alarm(engine->background_gate, since_ns > 0 ? pause_ns - (long)since_ns : pause_ns);
}

/* True: before that time an alarm had to be answered. */
static bool rest(ddl_engine *engine, long ns)
{
    const int64_t until_ns = ddl_now_ns() + ns;
    for (int64_t left_ns = ns; left_ns > 0; left_ns = until_ns - ddl_now_ns())
        if (ddl_gate_rest(engine->background_gate, (long)left_ns) && is_overdue(engine))
            return true;
    return false;
}

/*
 * Whoever starts an operation and goes is mostly back at once, to wait for it or to test it. To have events
 * wake this thread for what was left takes five system calls, as many when they are back, and one of each
 * peer that sends meanwhile. So this thread only looks, at first, whether anybody has driven since the last
 * look. True: something was left then and is now, and nobody has, though more may have been started. False:
 * nothing was left for a while.
 *
 * The longer it goes on, the less often it comes, and soon again only once after something was left: where
 * threads of a group (a session's, a container's) that runs wake up thousands of times a second, Linux 6.18
 * was seen to let nobody else run for seconds.
 */
static bool patrol(ddl_engine *engine)
{
    const long least_ns = engine->crowded ? CROWDED_PATROL_NS : PATROL_NS;
    long pause_ns = least_ns;
    unsigned visits = atomic_load(&engine->visits), sweeps = atomic_load(&engine->sweeps);
    bool was_left = true; /* or this would not have begun */
    bool looks_again = false;
    for (int quiet = 0; quiet < QUIET_LOOKS && !atomic_load(&engine->stopping);) {
        if (rest(engine, looks_again ? least_ns : pause_ns))
            return true;
        do_move(engine);
        const unsigned visits_before = visits, sweeps_before = sweeps;
        const bool is_left = atomic_load(&engine->left);
        visits = atomic_load(&engine->visits);
        sweeps = atomic_load(&engine->sweeps);
        if (is_left && was_left && sweeps == sweeps_before)
            return true;
        was_left = is_left;
        quiet = visits == visits_before ? quiet + 1 : 0;
        looks_again = is_left && !looks_again;
        if (pause_ns < LONG_PATROL_NS)
            pause_ns *= 2;
    }
    return false;
}

/*
 * Take the baton to see to what the alarm was set for, or anything else. Whoever finds the alarm set leaves
 * it to it, so it is taken for answered first; who has the baton then may have found it set, and sweeps when
 * it gives the baton back.
 */
static bool enter_in_background(ddl_engine *engine)
{
    if (!atomic_exchange(&engine->alarm, false))
        return ddl_engine_try_enter(engine);
    atomic_store(&engine->sweep_due, true);
    return ddl_engine_try_enter(engine);
}

/*
 * Where nothing is in flight nobody drives, nor does anybody whose calls are done at once; and yet a rank may
 * be lost, or abort. So the loop is run every now and then, whoever has the baton.
 */
static bool is_unattended(ddl_engine *engine)
{
    const unsigned loops = atomic_load_explicit(&engine->loops, memory_order_relaxed);
    const bool is_so = loops == engine->loops_seen && atomic_load(&engine->in_use);
    engine->loops_seen = loops;
    if (is_so)
        atomic_store(&engine->alarm, true);
    return is_so;
}

/* Until there may be something for this thread to drive: what was left, an event, a tick; or the end. */
static void await_work(ddl_engine *engine)
{
    for (;;) {
        if (!atomic_load(&engine->left)) {
            const bool ticks = atomic_load(&engine->background_ticking);
            const int idle_ms = somebody_waits(engine) ? 2 * IDLE_MS : IDLE_MS; /* he looks himself */
            const ddl_gate_end end =
                nap(engine, engine->background_gate, ticks ? nap_of(engine, INT_MAX) : idle_ms);
            do_move(engine);
            if (end == DDL_GATE_ALARM && !is_overdue(engine))
                continue;
            if (end == DDL_GATE_TIME && !ticks && !is_unattended(engine))
                continue;
            if (end == DDL_GATE_ALARM || !atomic_load(&engine->left))
                return;
        }
        atomic_store(&engine->patrols, true);
        const bool found = patrol(engine);
        atomic_store(&engine->patrols, false); /* who leaves something now rings */
        if (found || atomic_load(&engine->stopping))
            return;
    }
}

/* What has come over connections, to this thread, since then. */
struct batch {
    int64_t since_ns;
    uint64_t bytes;
};

/*
 * A large message would wake this thread for every few packets of it, and take the CPU from who computes for
 * two switches and a dozen system calls each time. So while BATCH_BYTES of one are still to come it stays
 * away for as long as they take at the rate of the last, as network cards hold back interrupts; not where
 * they come sooner than a thread that is woken. True: an alarm has ended that.
 */
static bool let_more_come(ddl_engine *engine, struct batch *batch, size_t to_come)
{
    const int64_t now_ns = ddl_now_ns(), took_ns = now_ns - batch->since_ns;
    const bool goes_on = took_ns <= 2 * BATCH_NS;
    if (goes_on && batch->bytes < LEAST_BATCH_BYTES)
        return false;
    const int64_t bytes = (int64_t)batch->bytes;
    *batch = (struct batch){ .since_ns = now_ns };
    if (!goes_on || to_come < BATCH_BYTES)
        return false;
    const int64_t ns = took_ns * BATCH_BYTES / bytes;
    if (ns < LEAST_BATCH_NS)
        return false;
    atomic_store(&engine->patrols, true); /* who leaves something now need not ring */
    const bool is_due = rest(engine, ns < BATCH_NS ? (long)ns : BATCH_NS);
    atomic_store(&engine->patrols, false);
    return is_due;
}

static void *background_main(void *arg)
{
    ddl_engine *engine = arg;
    struct batch batch = { 0 };
    ddl_thread_be_own();
    bool is_due = false;
    while (!atomic_load(&engine->stopping)) {
        if (!is_due)
            await_work(engine);
        is_due = false;
        if (atomic_load(&engine->stopping) || DDL_FAILPOINT_SKIP("io.drive") || !enter_in_background(engine))
            continue; /* whoever has the baton leaves it to this thread again if need be */
        const uint64_t before = engine->received;
        engine->to_come = 0;
        while (ddl_engine_progress(engine) &&
               atomic_load_explicit(&engine->entrants, memory_order_relaxed) == 0)
            continue;
        const size_t to_come = engine->to_come;
        batch.bytes += engine->received - before;
        tick(engine, ddl_now_ns());
        if (!engine->client.busy(engine->client.arg))
            atomic_store(&engine->background_ticking, false);
        const bool missed = leave(engine, true);
        let_others_in(engine);
        if (!missed)
            is_due = let_more_come(engine, &batch, to_come);
    }
    DDL_FAILPOINT_STALL("io.background");
    pthread_mutex_lock(&engine->lock);
    engine->background_ended = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

/* The grace is counted in ticks: where this process hardly runs they take longer, as for the thread. */
static bool end_background(ddl_engine *engine, ddl_deadline deadline)
{
    ddl_gate_ring(engine->background_gate);
    pthread_mutex_lock(&engine->lock);
    for (int tick = 0; !engine->background_ended &&
                       (tick < DDL_ENGINE_GRACE_MS / TICK_MS || !ddl_deadline_passed(deadline));
         tick++)
        sleep_a_tick(engine);
    const bool ended = engine->background_ended;
    pthread_mutex_unlock(&engine->lock);
    if (ended)
        pthread_join(engine->background, NULL);
    return ended;
}

static bool start_background(ddl_engine *engine)
{
    engine->has_background =
        !DDL_FAILPOINT("io.thread") && ddl_thread_start(background_main, engine, &engine->background) == 0;
    return engine->has_background;
}

ddl_status ddl_engine_create(const ddl_engine_client *client, bool crowded, ddl_engine **out, ddl_error *err)
{
    ddl_engine *engine = ddl_alloc(sizeof *engine);
    if (engine == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for an engine");
    engine->client = *client;
    engine->crowded = crowded;
    engine->spin_ns = SPIN_NS;
    engine->alarm_ns = FIRST_ALARM_NS;
    ddl_engine_set_nap(engine, 0);
    ddl_list_init(&engine->jobs);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
#ifndef __APPLE__ /* where the wait is relative to the real-time clock; a tick late at worst */
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&engine->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);

    ddl_status status = DDL_OK;
    int code = DDL_FAILPOINT("io.loop") ? UV_EMFILE : uv_loop_init(&engine->loop);
    if (code != 0) {
        status = DDL_FAIL_OS(err, DDL_ERESOURCE, -code, "cannot make an event loop");
        goto fail;
    }
    engine->loop_open = true;
    if ((status = ddl_gate_create(uv_backend_fd(&engine->loop), false, &engine->gate, err)) != DDL_OK)
        goto fail;
    if ((status = ddl_gate_create(uv_backend_fd(&engine->loop), true, &engine->background_gate, err)) !=
        DDL_OK)
        goto fail;
    if (!start_background(engine)) {
        status = DDL_FAIL(err, DDL_ERESOURCE, "cannot start a thread (see ulimit -u)");
        goto fail;
    }
    *out = engine;
    return DDL_OK;
fail:
    (void)ddl_engine_destroy(engine, ddl_now_ns()); /* which has no thread */
    return status;
}

bool ddl_engine_destroy(ddl_engine *engine, ddl_deadline deadline)
{
    if (engine == NULL)
        return true;
    atomic_store(&engine->stopping, true);
    if (engine->has_background && !end_background(engine, deadline))
        return false;
    if (engine->loop_open) {
        /* Run the close callbacks of handles that the client has closed. */
        uv_run(&engine->loop, UV_RUN_NOWAIT);
        int code = uv_loop_close(&engine->loop);
        DDL_ASSERT(code == 0);
    }
    ddl_gate_destroy(engine->gate);
    ddl_gate_destroy(engine->background_gate);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->lock);
    ddl_free(engine);
    return true;
}

void ddl_engine_close_in_child(ddl_engine *engine)
{
    ddl_gate_close_in_child(engine->gate);
    ddl_gate_close_in_child(engine->background_gate);
    close(uv_backend_fd(&engine->loop));
}
