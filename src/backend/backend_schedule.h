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
    const ddl_signature *sent_signatures, *received_signatures; /* of each rank; see ddl_binding */
    /* One of the two is called once, from progress, unless start said that the task was done, or failed. */
    void (*finished)(ddl_task *task);
    void (*failed)(ddl_task *task, const ddl_error *error); /* must cancel the task, now or soon */
    /* The backend's. */
    ddl_backend *backend;
    ddl_plan_run *run;
    uint32_t next_piece, pieces_left, phase;
};

/* peers: of each rank of the schedules, its number in the transport; NULL: the same. It must outlive the
 * backend. */
DDL_MUST_USE ddl_status ddl_backend_create(ddl_transport *transport, const int *peers, ddl_compute *compute,
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
