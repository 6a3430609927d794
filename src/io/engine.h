/*
 * engine.h - the data engine: a libuv loop and whoever waits, driving it in turns.
 *
 * Exactly one thread at a time drives: the holder of the baton. A thread that waits for an operation takes
 * the baton and drives itself, so a small operation pays no hand-over between threads. A background thread
 * drives only when operations are in flight, or a sweep was called for, and nobody waits. Nobody holds the
 * baton while it blocks, and the loop is only ever run without waiting.
 *
 * What is driven is the client's: a sweep over its sockets, and ticks while something is in flight.
 * Everything the client owns is touched by the holder of the baton only.
 */
#ifndef DDL_IO_ENGINE_H
#define DDL_IO_ENGINE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"

#include <stdatomic.h>
#include <uv.h>

typedef struct ddl_engine ddl_engine;

typedef struct ddl_engine_client {
    /* Holder: flush what is queued and look at expected sources without the loop. True: something moved. */
    bool (*sweep)(void *arg);
    /* Holder: whether sources are left that only the loop tells of, so that every sweep must run it. */
    bool (*needs_loop)(void *arg);
    /* Holder: work that was submitted. */
    void (*job)(void *arg, ddl_link *job);
    /* Holder, about every 20 ms while busy, every 100 ms after a second of nothing: deadlines. */
    void (*tick)(void *arg, int64_t now_ns);
    /* Holder, a thread of the program, about every 4 ms while it waits: it may tell where it runs. Or NULL.
     */
    void (*locate)(void *arg, int64_t now_ns);
    /* Holder: whether operations are in flight. */
    bool (*busy)(void *arg);
    /* Holder, about to sleep or to leave what is in flight to a sleeper: have what comes end that sleep, then
     * look. True: something is there already that the next sweep will find. */
    bool (*doze)(void *arg);
    void *arg;
} ddl_engine_client;

/* crowded: ranks outnumber the CPUs here, so that waiting must yield rather than spin. Starts the background
 * thread. */
DDL_MUST_USE ddl_status ddl_engine_create(const ddl_engine_client *client, bool crowded, ddl_engine **engine,
                                          ddl_error *err);

/* Stop the background thread. Nobody may be waiting. Close handles before, with the baton held. NULL is fine.
 * False: that thread has not ended by the deadline, or most of a second; the engine stays, and its client. */
bool ddl_engine_destroy(ddl_engine *engine, ddl_deadline deadline);

/* Holder: the loop. Handles may be opened and closed on it. */
uv_loop_t *ddl_engine_loop(ddl_engine *engine);

/*
 * Holder: uv_poll_start, of a handle on that loop, for the first time or for other events. libuv takes the
 * descriptor out of what it watches at once, and puts it back only when it runs; so that this is done before
 * anybody sleeps, no other way is to be used.
 */
int ddl_engine_watch(ddl_engine *engine, uv_poll_t *poll, int events, uv_poll_cb heard);

/*
 * Take the baton if nobody has it. The taker must call ddl_engine_leave soon. Thread: any.
 */
bool ddl_engine_try_enter(ddl_engine *engine);

/* Take the baton, waiting for it until the deadline; false if it did not become free, or is kept. Thread:
 * any. */
bool ddl_engine_enter(ddl_engine *engine, ddl_deadline deadline);

/* Give the baton back; wakes who waits for it, or leaves what is in flight to the background thread. */
void ddl_engine_leave(ddl_engine *engine);

/* Hand a job to the holder of the baton, now or soon. Jobs of one thread stay in order. Thread: any. */
void ddl_engine_submit(ddl_engine *engine, ddl_link *job);

/* Holder: do the jobs that were submitted before. */
void ddl_engine_drain(ddl_engine *engine);

/* Holder: sweep once, look at deadlines, run the loop once without waiting. True: something moved. */
bool ddl_engine_progress(ddl_engine *engine);

/* Holder, before something is begun: progress, if there was none for a millisecond. */
void ddl_engine_listen(ddl_engine *engine);

/* Holder: how often the loop has been run; wraps around. */
unsigned ddl_engine_loops(const ddl_engine *engine);

/* Holder: sweep once, and no more. */
void ddl_engine_sweep(ddl_engine *engine);

/* Holder, who never gives the baton back: whoever waits, or will, does so in vain and no longer. */
void ddl_engine_keep(ddl_engine *engine);

/*
 * Holder: there is something that the next sweep is to do, which nobody else tells of. The background thread
 * sweeps once nobody has called like this for a while: within 100 us in a series that has just begun
 * (is_first), within as long as it went on in a longer one, and within 1.6 ms. False: it cannot.
 */
bool ddl_engine_call_for_sweep(ddl_engine *engine, int64_t now_ns, bool is_first);

/* Holder: an operation has ended; threads that wait for it must look. */
void ddl_engine_wake(ddl_engine *engine);

/* Another rank slept, and has been woken. Thread: any. */
void ddl_engine_woke(ddl_engine *engine);

/* Holder, from doze: there is something that nobody tells of, so whoever sleeps looks every so many ms; 0: at
 * ticks. */
void ddl_engine_set_nap(ddl_engine *engine, int ms);

/* Holder: the next tick is due; whoever drives calls it before it sleeps. */
void ddl_engine_tick_soon(ddl_engine *engine);

/* Holder: something has begun that ticks bring forward, so they are to come every 20 ms for a second. */
void ddl_engine_tick_often(ddl_engine *engine);

/* Holder: something moved from within a loop callback. */
void ddl_engine_moved(ddl_engine *engine);

/* Holder: likewise, so many bytes from a connection; to_come: more of the same message, for which alone the
 * background thread may wait a little (1 ms) before it looks at anything again. */
void ddl_engine_received(ddl_engine *engine, size_t bytes, size_t to_come);

/* Where ranks share CPUs, let another have this one for a moment. Thread: any. */
void ddl_engine_give_way(ddl_engine *engine);

/*
 * Holder: wait for something that is about to happen, without driving, for some microseconds, or some turns
 * of others where ranks share CPUs; ready says whether it has. True: it has.
 */
bool ddl_engine_linger(ddl_engine *engine, bool (*ready)(void *arg), void *arg);

/* Holder: how often to look for what another rank is about to write, before anything else is done: for
 * some hundred ns, as a line of memory takes that at most from one CPU to another. 0 where ranks share CPUs.
 */
int ddl_engine_looks(const ddl_engine *engine);

/* Holder: have the background thread move this one to a CPU, soon, by ddl_host_move_thread: by itself it gets
 * there only when whoever uses that CPU lets it. */
void ddl_engine_move(ddl_engine *engine, int cpu);

enum { DDL_ENGINE_GRACE_MS = 800 }; /* more than a failure may take to settle after a deadline */

/*
 * Drive, or sleep while another thread drives, until *done. Returns *done; false means that the deadline
 * and a grace of 800 ms have passed, in which this process ran, and nobody could drive: the engine is stuck;
 * or that its baton is kept.
 * The client's tick is what ends operations at their deadlines. Thread: any, without the baton.
 */
bool ddl_engine_wait(ddl_engine *engine, const atomic_bool *done, ddl_deadline deadline);

/* As wait, by a thread that has the baton already; it is given back before the return. */
bool ddl_engine_wait_entered(ddl_engine *engine, const atomic_bool *done, ddl_deadline deadline);

/* As wait, for any of n flags, with the first of their deadlines; NULL flags are skipped. */
bool ddl_engine_wait_any(ddl_engine *engine, const atomic_bool *const done[], size_t n,
                         ddl_deadline deadline);

/* In a forked child: close descriptors. */
void ddl_engine_close_in_child(ddl_engine *engine);

#endif
