/* engine.c - the baton, from hand to hand. */
#include "io/engine_state.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/thread.h"

#include <unistd.h>

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

void ddl_engine_release(ddl_engine *engine)
{
    atomic_store(&engine->baton, false);
    wake_sleepers(engine);
}

/* The background thread, as holder: events are to wake it. */
static void arm_background(ddl_engine *engine)
{
    ddl_engine_run_loop(engine); /* libuv registers changed watchers only when it runs */
    atomic_store(&engine->background_watching, true);
    ddl_gate_watch(engine->background_gate, true);
    if (!atomic_exchange(&engine->background_ticking, true))
        ddl_engine_tick_often(engine);
}

/* Holder: the patrol comes by, and finds what is in flight if nobody is back before. */
static void leave_to_patrol(ddl_engine *engine)
{
    ddl_engine_count(&engine->visits);
    atomic_store(&engine->left, true);
}

bool ddl_engine_do_leave(ddl_engine *engine, bool in_background)
{
    for (;;) {
        ddl_engine_drain(engine);
        if (ddl_engine_is_sweep_due(engine))
            ddl_engine_progress(engine);
        bool busy = engine->client.busy(engine->client.arg), waits = ddl_engine_somebody_waits(engine);
        bool missed = false;
        if (busy && !waits && !in_background)
            leave_to_patrol(engine);
        else if (busy && !waits)
            arm_background(engine);
        if (busy && (waits || in_background))
            missed = engine->client.doze(engine->client.arg) || engine->unwatched;
        ddl_engine_release(engine);
        if (busy && !waits && !in_background && !atomic_load(&engine->patrols))
            ddl_gate_ring(engine->background_gate);
        if (missed) /* not before the release: who wakes up wants the baton */
            ddl_gate_ring(waits ? engine->gate : engine->background_gate);
        /*
         * Look again: a job may have come after the drain, a sweep may be due, and who waited may have
         * stopped waiting before it could take the baton. It tries to take it after it has stopped, so one of
         * us two leaves it.
         */
        bool abandoned = busy && waits && !ddl_engine_somebody_waits(engine);
        if ((!abandoned && atomic_load(&engine->njobs) == 0 && !ddl_engine_is_sweep_due(engine)) ||
            !ddl_engine_try_enter(engine))
            return missed;
    }
}

void ddl_engine_leave(ddl_engine *engine)
{
    (void)ddl_engine_do_leave(engine, false);
}

void ddl_engine_wake(ddl_engine *engine)
{
    wake_sleepers(engine);
    if (atomic_load(&engine->watcher))
        ddl_gate_ring(engine->gate);
}

void ddl_engine_keep(ddl_engine *engine)
{
    atomic_store(&engine->is_kept, true);
    ddl_engine_wake(engine);
}

/* ---- jobs ---- */

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

/* ---- life ---- */

ddl_status ddl_engine_create(const ddl_engine_client *client, bool crowded, ddl_engine **out, ddl_error *err)
{
    ddl_engine *engine = ddl_alloc(sizeof *engine);
    if (engine == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for an engine");
    engine->client = *client;
    engine->crowded = engine->yields = crowded;
    engine->spin_ns = DDL_ENGINE_SPIN_NS;
    engine->alarm_ns = DDL_ENGINE_FIRST_ALARM_NS;
    ddl_engine_set_nap(engine, 0);
    ddl_list_init(&engine->jobs);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#ifndef __APPLE__ /* which has no such call; see ddl_engine_sleep_a_tick */
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&engine->changed, &attributes);
    pthread_condattr_destroy(&attributes);

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
    const int error = ddl_engine_start_background(engine);
    if (error != 0) {
        status = DDL_FAIL_OS(err, DDL_ERESOURCE, error, "cannot start a thread (" DDL_THREAD_LIMITS ")");
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
    if (engine->has_background && !ddl_engine_end_background(engine, deadline))
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

uv_loop_t *ddl_engine_loop(ddl_engine *engine)
{
    return &engine->loop;
}

int ddl_engine_watch(ddl_engine *engine, uv_poll_t *poll, int events, uv_poll_cb heard)
{
    engine->unwatched = true;
    return uv_poll_start(poll, events, heard);
}

void ddl_engine_close_in_child(ddl_engine *engine)
{
    ddl_gate_close_in_child(engine->gate);
    ddl_gate_close_in_child(engine->background_gate);
    close(uv_backend_fd(&engine->loop));
}
