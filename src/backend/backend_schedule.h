/*
 * backend_schedule.h - performs operations by running schedules: plan cache, scratch, pieces in flight.
 *
 * Everything here is for the holder of the engine's baton only.
 */
#ifndef DDL_BACKEND_BACKEND_SCHEDULE_H
#define DDL_BACKEND_BACKEND_SCHEDULE_H

#include "backend/plan.h"
#include "executor/executor.h"

typedef struct ddl_backend ddl_backend;

/* One operation being performed. Embedded in a request; all zero before the start. */
typedef struct ddl_task ddl_task;
struct ddl_task {
    /* Set by the caller. */
    const ddl_algorithm *algorithm;
    ddl_shape shape;
    const void *in;
    void *out;
    ddl_dtype dtype;
    ddl_op op;
    uint32_t channel;
    uint64_t sequence;
    ddl_signature signature;
    void (*finished)(ddl_task *task); /* called once, from progress; not if start said that it was done */
    /* The backend's. */
    ddl_backend *backend;
    ddl_plan_run *run;
    uint32_t next_piece, pieces_left;
};

DDL_MUST_USE ddl_status ddl_backend_create(ddl_transport *transport, ddl_compute *compute,
                                           ddl_backend **backend, ddl_error *err);

/* No task may be running. NULL is fine. */
void ddl_backend_destroy(ddl_backend *backend);

/* Begin. *done: everything is done already. On failure nothing has been started. */
DDL_MUST_USE ddl_status ddl_backend_start(ddl_backend *backend, ddl_task *task, bool *done, ddl_error *err);

/* Stop a started task that has not finished; finished will not be called and buffers are not touched any
 * more. */
void ddl_backend_cancel(ddl_task *task);

/* Peers whose messages a started task still waits for. */
void ddl_backend_visit_pending(const ddl_task *task, void (*visit)(void *arg, int peer, bool outgoing),
                               void *arg);

#endif
