/*
 * engine_state.h - the engine, as its files share it. What a user of the engine needs is in engine.h.
 *
 * Order of sleeping, which nothing may be lost in: a waiter that finds the baton taken counts itself in
 * `sleepers` and looks at the baton again under the lock; whoever gives the baton back looks at `sleepers`
 * afterwards. Both sides use sequentially consistent accesses, so at least one sees the other.
 *
 * Who sleeps at a gate hears of what the loop watches. A descriptor whose watch was changed since the loop
 * ran last is not among that (`unwatched`): a holder who leaves it to a sleeper wakes the sleeper, who runs
 * the loop before it sleeps again, and nobody falls asleep over one.
 *
 * Small operations go through what is inline here.
 */
#ifndef DDL_IO_ENGINE_STATE_H
#define DDL_IO_ENGINE_STATE_H

#include "io/engine.h"
#include "io/gate.h"

#include <pthread.h>

enum {
    DDL_ENGINE_TICK_MS = 20,
    DDL_ENGINE_SPIN_NS = 60 * 1000,        /* about twice what waking a sleeper on another core costs */
    DDL_ENGINE_FIRST_ALARM_NS = 100 * 1000 /* from a call for a sweep; see is_overdue */
};

struct ddl_engine {
    ddl_engine_client client;
    bool crowded;
    uv_loop_t loop;
    bool loop_open;
    bool moved;             /* holder: a loop callback moved something */
    bool unwatched;         /* holder: ddl_engine_watch was called since the loop ran last */
    bool takes_turns;       /* holder: another process that yields, as peers do, is on this core */
    bool yields;            /* holder: so while this one waits it yields as well, or ranks are crowded */
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
    atomic_bool is_kept;    /* the baton, for good; see ddl_engine_keep */
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
    atomic_int_least64_t often_ns; /* since when ticks come often; 0: from the next sleep on */
    atomic_bool woke;              /* another rank, since this one was woken */
    atomic_bool stopping;
    bool has_background, background_ended;
    pthread_t background;
    atomic_int_least64_t move; /* a thread, and the CPU to which the background thread is to move it; or 0 */
};

/* Holder, who alone counts. */
static inline void ddl_engine_count(atomic_uint *what)
{
    atomic_store_explicit(what, atomic_load_explicit(what, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline bool ddl_engine_is_sweep_due(ddl_engine *engine)
{
    return atomic_load(&engine->sweep_due);
}

/* Whether a thread is there that will drive what is left in flight. */
static inline bool ddl_engine_somebody_waits(ddl_engine *engine)
{
    return atomic_load(&engine->sleepers) > 0 || atomic_load(&engine->watcher);
}

/* Holder. True: something moved. */
static inline bool ddl_engine_run_loop(ddl_engine *engine)
{
    engine->moved = engine->unwatched = false;
    ddl_engine_count(&engine->loops);
    uv_run(&engine->loop, UV_RUN_NOWAIT);
    return engine->moved;
}

/* Holder. True: something moved. */
static inline bool ddl_engine_do_sweep(ddl_engine *engine)
{
    engine->moved = false;
    if (ddl_engine_is_sweep_due(engine))
        atomic_store(&engine->sweep_due, false); /* first: what it was set for is swept now */
    ddl_engine_count(&engine->sweeps);
    ddl_engine_drain(engine);
    bool moved = engine->client.sweep(engine->client.arg);
    return moved || engine->moved;
}

/* ---- engine.c: the baton ---- */

/* Give the baton back and nothing else. */
void ddl_engine_release(ddl_engine *engine);

/* in_background: by the background thread, to whom what is in flight is left as soon as it has events. True:
 * there is something already that the next sweep will find. */
bool ddl_engine_do_leave(ddl_engine *engine, bool in_background);

/* ---- engine_step.c: one step of who drives ---- */

/* Holder: what the client is to do every now and then, if it is time. */
void ddl_engine_tick(ddl_engine *engine, int64_t now_ns);

/* ---- engine_wait.c: how a thread drives and sleeps ---- */

/* How long whoever drives may sleep, with so much left until a deadline. */
int ddl_engine_nap_of(ddl_engine *engine, int left_ms);

/* With the lock: until `changed` or a tick has passed. */
void ddl_engine_sleep_a_tick(ddl_engine *engine);

/* Between two turns of who drives: others would find the baton free for a moment only. */
void ddl_engine_let_others_in(ddl_engine *engine);

/* ---- engine_background.c: the background thread ---- */

/* Returns an errno: why there can be no thread. */
DDL_MUST_USE int ddl_engine_start_background(ddl_engine *engine);

/* `stopping` is set. False: it has not ended. The grace is counted in ticks: where this process hardly runs
 * they take longer, as for the thread. */
bool ddl_engine_end_background(ddl_engine *engine, ddl_deadline deadline);

#endif
