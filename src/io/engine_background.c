/* engine_background.c - the thread that drives what nobody waits for. */
#include "io/engine_state.h"

#include "base/failpoint.h"
#include "base/thread.h"
#include "io/host.h"

#include <errno.h>
#include <limits.h>

enum {
    IDLE_MS = 100,                   /* see is_unattended */
    PATROL_NS = 100 * 1000,          /* from one look of the patrol to the next, at least */
    CROWDED_PATROL_NS = 1000 * 1000, /* where each of many ranks has one */
    LONG_PATROL_NS = 3200 * 1000,    /* and at most; see patrol */
    LAST_ALARM_NS = 1600 * 1000,     /* from a call for a sweep, at most; see is_overdue */
    QUIET_LOOKS = 10,                /* in a row, after which the patrol ends */
    BATCH_BYTES = 128 * 1024,        /* see let_more_come */
    LEAST_BATCH_BYTES = 16 * 1024,
    BATCH_NS = 1000 * 1000,
    LEAST_BATCH_NS = 100 * 1000
};

/* ---- moving others ---- */

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

/* ---- the alarm ---- */

bool ddl_engine_call_for_sweep(ddl_engine *engine, int64_t now_ns, bool is_first)
{
    atomic_store_explicit(&engine->called_ns, now_ns, memory_order_relaxed);
    if (is_first)
        atomic_store_explicit(&engine->alarm_ns, DDL_ENGINE_FIRST_ALARM_NS, memory_order_relaxed);
    if (atomic_exchange(&engine->alarm, true) && !is_first) /* before it can ring */
        return true;
    if (ddl_gate_set_alarm(engine->background_gate, atomic_load(&engine->alarm_ns)))
        return true;
    atomic_store(&engine->alarm, false);
    return false;
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

/* ---- the patrol ---- */

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

/* ---- its work ---- */

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
            const int idle_ms =
                ddl_engine_somebody_waits(engine) ? 2 * IDLE_MS : IDLE_MS; /* he looks himself */
            const ddl_gate_end end =
                ddl_gate_wait(engine->background_gate, ticks ? ddl_engine_nap_of(engine, INT_MAX) : idle_ms);
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
        ddl_engine_tick(engine, ddl_now_ns());
        if (!engine->client.busy(engine->client.arg))
            atomic_store(&engine->background_ticking, false);
        const bool missed = ddl_engine_do_leave(engine, true);
        engine->loops_seen = atomic_load_explicit(&engine->loops, memory_order_relaxed); /* it may be alone */
        ddl_engine_let_others_in(engine);
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

/* ---- life ---- */

int ddl_engine_start_background(ddl_engine *engine)
{
    const int error =
        DDL_FAILPOINT("io.thread") ? EAGAIN : ddl_thread_start(background_main, engine, &engine->background);
    engine->has_background = error == 0;
    return error;
}

bool ddl_engine_end_background(ddl_engine *engine, ddl_deadline deadline)
{
    ddl_gate_ring(engine->background_gate);
    pthread_mutex_lock(&engine->lock);
    for (int tick = 0; !engine->background_ended &&
                       (tick < DDL_ENGINE_GRACE_MS / DDL_ENGINE_TICK_MS || !ddl_deadline_passed(deadline));
         tick++)
        ddl_engine_sleep_a_tick(engine);
    const bool ended = engine->background_ended;
    pthread_mutex_unlock(&engine->lock);
    if (ended)
        pthread_join(engine->background, NULL);
    return ended;
}
