/* engine_wait.c - how a thread drives while it waits: it polls, then sleeps. */
#include "io/engine_state.h"

#include <sched.h>

enum {
    LONG_TICK_MS = 100, /* OFTEN_MS after somebody has wanted more: 50 a second take 0.1 % of a core */
    OFTEN_MS = 1000,
    LONG_SPIN_NS = 1000 * 1000, /* where waking a sleeper costs more than usual; see adapt_spin */
    PAUSE_NS = 8 * 1000,        /* of spinning alone on the core, which is then offered to others, who may be
                                   the peer */
    LOOP_EVERY_NS = 20 * 1000,  /* while spinning, the loop is looked at this often */
    LOOP_EVERY_YIELDS = 8,
    MISSES_PER_CLOCK = 4, /* reading it takes as long as looking at memory that another core writes */
    YIELDS = 60,
    FIRST_LOOKS = 200, /* a look takes 1 ns or 2 while the line that is looked at stays here */
    LINGER_LOOKS = 100,
    LOOKS_AT_ONCE = 64, /* of them without a pause, which takes half as long as a line from another core */
    LINGER_YIELDS = 16,
    TAKEN_NS = 400 * 1000,
    SWITCH_NS = 1000,     /* a yield that nobody takes is half of it */
    TURN_NS = 100 * 1000, /* whoever gives the core back sooner takes turns with us */
    MAKE_WAY_NS = 1000 * 1000,
    SWEEPS_BETWEEN_TICKS = 256 /* while something moves all the time */
};

/* ---- polling ---- */

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
    engine->yields = engine->crowded || engine->takes_turns;
    return away_ns > TAKEN_NS;
}

void ddl_engine_give_way(ddl_engine *engine)
{
    if (engine->crowded)
        sched_yield();
}

int ddl_engine_looks(const ddl_engine *engine)
{
    return engine->yields ? 0 : FIRST_LOOKS;
}

bool ddl_engine_linger(ddl_engine *engine, bool (*ready)(void *arg), void *arg)
{
    const bool yields = engine->yields;
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

typedef struct polling { /* in vain */
    int misses;          /* looks since something moved */
    int64_t first_miss_ns, loop_ns;
} polling;

/* Ranks share CPUs, and nothing has moved. False: it is time to sleep. */
static bool yield_after_miss(ddl_engine *engine, polling *p)
{
    if (p->misses > YIELDS)
        return false;
    if (p->misses % LOOP_EVERY_YIELDS != 0 || !ddl_engine_run_loop(engine))
        return !yield_was_taken(engine);
    p->misses = 0;
    return true;
}

/* Each rank has a CPU, and nothing has moved. False: it is time to sleep. */
static bool spin_after_miss(ddl_engine *engine, polling *p)
{
    if (p->misses % MISSES_PER_CLOCK != 1 && !engine->takes_turns) {
        pause_cpu();
        return true;
    }
    const int64_t now_ns = ddl_now_ns();
    if (p->misses == 1)
        p->first_miss_ns = p->loop_ns = now_ns;
    if (now_ns - p->loop_ns > LOOP_EVERY_NS) {
        p->loop_ns = now_ns;
        ddl_engine_tick(engine, now_ns);
        if (ddl_engine_run_loop(engine)) {
            p->misses = 0;
            return true;
        }
    }
    if (now_ns - p->first_miss_ns > engine->spin_ns)
        return false;
    if (now_ns - p->first_miss_ns <= PAUSE_NS && !engine->takes_turns)
        pause_cpu();
    else
        (void)yield_was_taken(engine);
    return true;
}

/*
 * Holder: poll until the goal is reached, or somebody else wants the baton, or polling has been in vain for
 * long enough: since *missed_ns, where each rank has a CPU.
 */
static bool poll_for(ddl_engine *engine, const wait_goal *goal, int64_t *missed_ns)
{
    polling p = { 0 };
    for (int sweeps = 1; !reached(goal); sweeps++) {
        bool moved = ddl_engine_do_sweep(engine);
        if (reached(goal))
            return true;
        if (engine->client.needs_loop(engine->client.arg))
            moved = ddl_engine_run_loop(engine) || moved;
        if (sweeps % SWEEPS_BETWEEN_TICKS == 0) {
            ddl_engine_tick(engine, ddl_now_ns());
            if (atomic_load_explicit(&engine->entrants, memory_order_relaxed) > 0)
                return false;
        }
        p.misses = moved ? 0 : p.misses + 1;
        if (moved || (engine->crowded ? yield_after_miss(engine, &p) : spin_after_miss(engine, &p)))
            continue;
        *missed_ns = p.first_miss_ns;
        return false;
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
static void adapt_spin(ddl_engine *engine, int64_t missed_ns)
{
    const bool in_turns = atomic_exchange_explicit(&engine->woke, false, memory_order_relaxed) &&
                          ddl_now_ns() - missed_ns <= LONG_SPIN_NS;
    const int64_t spin_ns = in_turns ? engine->spin_ns * 2 : engine->spin_ns / 2;
    engine->spin_ns = spin_ns > LONG_SPIN_NS         ? LONG_SPIN_NS
                      : spin_ns < DDL_ENGINE_SPIN_NS ? DDL_ENGINE_SPIN_NS
                                                     : spin_ns;
}

void ddl_engine_woke(ddl_engine *engine)
{
    atomic_store_explicit(&engine->woke, true, memory_order_relaxed);
}

/* ---- sleeping ---- */

void ddl_engine_set_nap(ddl_engine *engine, int ms)
{
    atomic_store(&engine->nap_ms, ms > 0 ? ms : DDL_ENGINE_TICK_MS);
}

void ddl_engine_tick_often(ddl_engine *engine)
{
    atomic_store_explicit(&engine->often_ns, 0, memory_order_relaxed);
}

/* Before a sleep. What comes meanwhile, a ping for one, changes nothing. */
static bool come_often(ddl_engine *engine)
{
    const int64_t since_ns = atomic_load_explicit(&engine->often_ns, memory_order_relaxed);
    const int64_t now_ns = ddl_now_ns();
    if (since_ns != 0)
        return now_ns - since_ns < OFTEN_MS * DDL_NS_PER_MS;
    atomic_store_explicit(&engine->often_ns, now_ns, memory_order_relaxed);
    return true;
}

int ddl_engine_nap_of(ddl_engine *engine, int left_ms)
{
    int ms = atomic_load(&engine->nap_ms);
    if (ms == DDL_ENGINE_TICK_MS && left_ms > LONG_TICK_MS && !come_often(engine))
        ms = LONG_TICK_MS;
    return left_ms > 0 && left_ms < ms ? left_ms : ms;
}

/*
 * Holder at entry, not at exit: sleep at the gate. Returns at an event, a doorbell or a tick; false: nothing
 * has happened until that. A job that comes after the sweep rings, as its thread sees that there is a
 * watcher.
 */
static bool sleep_at_gate(ddl_engine *engine, const wait_goal *goal, ddl_deadline deadline)
{
    atomic_store(&engine->watcher, true);
    bool moved = ddl_engine_do_sweep(engine) || ddl_engine_run_loop(engine);
    ddl_engine_tick(engine, ddl_now_ns());
    int loop_ms = uv_backend_timeout(&engine->loop);
    bool stay_awake = moved || reached(goal) || engine->client.doze(engine->client.arg) || engine->unwatched;
    int nap_ms = ddl_engine_nap_of(engine, ddl_deadline_left_ms(deadline)); /* doze may have set it */
    int timeout_ms = loop_ms >= 0 && loop_ms < nap_ms ? loop_ms : nap_ms;
    ddl_engine_release(engine);
    const bool happened = stay_awake || ddl_engine_is_sweep_due(engine) ||
                          ddl_gate_wait(engine->gate, timeout_ms) != DDL_GATE_TIME;
    atomic_store(&engine->watcher, false);
    return happened;
}

void ddl_engine_sleep_a_tick(ddl_engine *engine)
{
#ifdef __APPLE__ /* whose condition variables know the wall clock, or how long */
    const struct timespec tick = { .tv_nsec = DDL_ENGINE_TICK_MS * DDL_NS_PER_MS };
    pthread_cond_timedwait_relative_np(&engine->changed, &engine->lock, &tick);
#else
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += DDL_ENGINE_TICK_MS * DDL_NS_PER_MS;
    until.tv_sec += until.tv_nsec / DDL_NS_PER_S;
    until.tv_nsec %= DDL_NS_PER_S;
    pthread_cond_timedwait(&engine->changed, &engine->lock, &until);
#endif
}

/* Another thread drives or watches: sleep until it stops, an operation ends, or a tick has passed. */
static void sleep_behind_driver(ddl_engine *engine, const wait_goal *goal)
{
    atomic_fetch_add(&engine->sleepers, 1);
    pthread_mutex_lock(&engine->lock);
    bool for_baton = goal->n == 0;
    if (!reached(goal) && (atomic_load(&engine->baton) || (!for_baton && atomic_load(&engine->watcher))))
        ddl_engine_sleep_a_tick(engine);
    pthread_mutex_unlock(&engine->lock);
    atomic_fetch_sub(&engine->sleepers, 1);
}

void ddl_engine_let_others_in(ddl_engine *engine)
{
    if (atomic_load(&engine->entrants) == 0)
        return;
    const int64_t end_ns = ddl_now_ns() + MAKE_WAY_NS;
    while (atomic_load(&engine->entrants) > 0 && !atomic_load(&engine->baton) && ddl_now_ns() < end_ns)
        sched_yield();
}

/* ---- waiting ---- */

/* Who waits looks by a clock of his own whether others still drive. */
typedef struct stuck_watch {
    ddl_deadline end;  /* when he takes the engine for stuck */
    int64_t looked_ns; /* 0: not yet */
} stuck_watch;

static int64_t sweeps_and_one(ddl_engine *engine)
{
    return (int64_t)atomic_load(&engine->sweeps) + 1;
}

/*
 * Who has waited in vain, until a deadline and for a grace, has met an engine that is stuck, if only this
 * process had the time to do anything: while it was stopped, by a debugger for one, or others had its CPUs,
 * nothing has been waited for. Of an engine that somebody has given up before, and that nobody has driven
 * since, nothing more is hoped, and nothing of one whose baton is kept.
 */
static bool is_stuck(stuck_watch *watch, ddl_engine *engine, ddl_deadline deadline)
{
    if (atomic_load(&engine->is_kept))
        return true;
    const int64_t now_ns = ddl_now_ns(), most_ns = DDL_DEADLINE_NEVER - DDL_ENGINE_GRACE_MS * DDL_NS_PER_MS;
    if (watch->looked_ns == 0) {
        const bool is_known = atomic_load(&engine->given_up) == sweeps_and_one(engine);
        const ddl_deadline from = deadline < now_ns && !is_known ? now_ns : deadline;
        watch->end = from < most_ns ? from + DDL_ENGINE_GRACE_MS * DDL_NS_PER_MS : DDL_DEADLINE_NEVER;
    } else if (watch->end < most_ns && now_ns - watch->looked_ns > LONG_TICK_MS * DDL_NS_PER_MS) {
        watch->end += now_ns - watch->looked_ns - LONG_TICK_MS * DDL_NS_PER_MS;
    }
    watch->looked_ns = now_ns;
    if (now_ns < watch->end)
        return false;
    atomic_store(&engine->given_up, sweeps_and_one(engine));
    return true;
}

/* How far a thread is with its waiting. */
typedef struct waiting {
    bool entered;      /* it has the baton */
    bool polled;       /* once, at least */
    bool in_vain;      /* it has just slept until a tick, and only looks, as part of going to sleep again */
    int64_t missed_ns; /* since when it had polled in vain, when it gave that up; 0: it has not */
} waiting;

/* How a thread's turn ended. */
typedef enum turn {
    REACHED, /* the goal */
    SLEPT,   /* at the gate, as the watcher */
    BEHIND   /* another thread, who drives or watches */
} turn;

/* Holder: poll, and then sleep, if nobody else watches. The baton is given back. */
static turn drive(waiting *w, ddl_engine *engine, const wait_goal *goal, ddl_deadline deadline)
{
    w->entered = false;
    w->polled = true;
    if (!w->in_vain) {
        if (w->missed_ns != 0)
            adapt_spin(engine, w->missed_ns);
        w->missed_ns = 0;
        if (poll_for(engine, goal, &w->missed_ns)) {
            ddl_engine_leave(engine);
            return REACHED;
        }
    }
    if (!atomic_load(&engine->watcher)) {
        w->in_vain = !sleep_at_gate(engine, goal, deadline);
        ddl_engine_let_others_in(engine);
        return SLEPT;
    }
    /* The watcher will take the baton at the next event; this thread's polling has kept it from hearing of
     * one. */
    bool missed = engine->client.doze(engine->client.arg) || engine->unwatched;
    ddl_engine_release(engine);
    if (missed || ddl_engine_is_sweep_due(engine))
        ddl_gate_ring(engine->gate);
    return BEHIND;
}

/* Behind a watcher each thread polls once: what comes later wakes the watcher, who drives for all. */
static bool gets_turn(const waiting *w, ddl_engine *engine)
{
    const bool is_behind = w->polled && atomic_load(&engine->watcher);
    return w->entered || (!is_behind && ddl_engine_try_enter(engine));
}

/* entered: the caller has the baton. */
static bool wait_for(ddl_engine *engine, const wait_goal *goal, ddl_deadline deadline, bool entered)
{
    waiting w = { .entered = entered };
    stuck_watch watch = { 0 };
    if (!entered && reached(goal))
        return true;
    ddl_engine_tick_often(engine);
    while (w.entered || !reached(goal)) {
        const turn end = gets_turn(&w, engine) ? drive(&w, engine, goal, deadline) : BEHIND;
        if (end == REACHED)
            return true;
        if (end == BEHIND) {
            sleep_behind_driver(engine, goal);
            w.in_vain = false;
        }
        if (is_stuck(&watch, engine, deadline))
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
        if ((spins >= 100 && ddl_deadline_passed(deadline)) || atomic_load(&engine->is_kept))
            break;
    }
    if (waits)
        atomic_fetch_sub(&engine->entrants, 1);
    if (entered)
        atomic_store(&engine->in_use, true);
    return entered;
}
