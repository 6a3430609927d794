/*
 * backend_schedule.h - performs operations by running schedules: plan cache, scratch, pieces in flight.
 *
 * Everything here is for the holder of the engine's baton only.
 */
#ifndef DDL_BACKEND_BACKEND_SCHEDULE_H
#define DDL_BACKEND_BACKEND_SCHEDULE_H

#include "backend/plan.h"
#include "backend/posting.h"
#include "backend/staging.h"
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
    ddl_staging
        *staging;  /* in and out are memory of its GPU; NULL: of the host. shape.is_staged says so too */
    ddl_hold hold; /* of the stream after whose work it begins; none: at once */
    /* One of the two is called once, from progress, unless start said that the task was done, or failed. */
    void (*finished)(ddl_task *task);
    void (*failed)(ddl_task *task, const ddl_error *error); /* must cancel the task, now or soon */
    /* The backend's. */
    ddl_backend *backend;
    ddl_plan_run *run;
    uint32_t next_piece, pieces_left, phase;
    ddl_post post;         /* over the board instead */
    ddl_plan *posted_plan; /* held while it runs */
    bool piece_is_done;    /* next_piece over the board, of which the GPU is yet to be told */
    ddl_staged *staged;
};

/* peers: of each rank of the schedules, its number in the transport; NULL: the same. It must outlive the
 * backend, as must the owner's board, by which calls of one round or two go.
 */
DDL_MUST_USE ddl_status ddl_backend_create(ddl_transport *transport, const int *peers, ddl_compute *compute,
                                           const ddl_posting_owner *owner, ddl_backend **backend,
                                           ddl_error *err);

/* Look at the board no more. No task may be running. NULL is fine. */
void ddl_backend_close(ddl_backend *backend);

/* No task may be running. NULL is fine. */
void ddl_backend_destroy(ddl_backend *backend);

/* Whether such a task goes over the board, on all ranks; where it cannot be told for want of memory, it will
 * fail at its start. */
bool ddl_backend_goes_by_board(ddl_backend *backend, const ddl_task *task);

/* Begin. *done: everything is done already. On failure nothing has been started. */
DDL_MUST_USE ddl_status ddl_backend_start(ddl_backend *backend, ddl_task *task, bool *done, ddl_error *err);

/* Begin a task again that has finished over the board, with other buffers and another sequence; somebody has
 * held its plan meanwhile. looks: as of ddl_posting_start. True: it is done already. */
bool ddl_backend_repeat(ddl_task *task, ddl_plan *plan, int looks);

/* Finish what the others have posted for, as ddl_posting_progress. */
void ddl_backend_progress(ddl_backend *backend);

/* Look at copies of all tasks that use this, and let them go on. True: something moved. */
bool ddl_backend_progress_staged(ddl_staging *staging);

/* Whether it was started, and has neither finished nor been cancelled. */
static inline bool ddl_task_is_running(const ddl_task *task)
{
    return task->run != NULL || ddl_link_linked(&task->post.link) || task->staged != NULL;
}

/* Stop a started task that has not finished; finished will not be called and buffers are not touched any
 * more. */
void ddl_backend_cancel(ddl_task *task);

/* Whether it waits for its own GPU: for copies, or for what the stream that it is ordered in has before it.
 */
bool ddl_backend_waits_for_gpu(const ddl_task *task);
bool ddl_backend_waits_for_stream(const ddl_task *task);

/* Whether the rank is known, by the board, to have come as far in this running task as any that it waits for
 * (ddl_posting_has_posted); and whether all are known to have begun it, and this one has gone on. */
bool ddl_backend_has_posted(const ddl_task *task, int rank);
bool ddl_backend_is_halfway(const ddl_task *task);

/* How much of a running task this rank has done, from 0 to 1; -1: that is not known here. */
double ddl_backend_share_done(const ddl_task *task);

/* What the running tasks wait to be begun by all: an operation over the board that is done here. NULL: none.
 */
const ddl_signature *ddl_backend_waits_behind(ddl_backend *backend, uint64_t *sequence);

/* Peers whose messages a started task still waits for. */
void ddl_backend_visit_pending(const ddl_task *task, void (*visit)(void *arg, int peer, bool outgoing),
                               void *arg);

#endif
