/* issue.h - from checked arguments to an operation in flight. */
#ifndef DDL_API_ISSUE_H
#define DDL_API_ISSUE_H

#include "api/comm.h"

typedef struct ddl_call { /* what a public function has been asked to do, checked */
    ddl_collective collective;
    const void *in;
    void *out;
    size_t count, stride;
    const size_t *counts, *out_counts; /* v forms; out_counts: of alltoallv */
    ddl_dtype dtype;                   /* but of a barrier */
    ddl_op op;                         /* of what reduces */
    int root;                          /* or the peer */
    ddl_extent extent;
    bool in_place;
    bool is_repeated;     /* it is like the one that is kept (repeat.h) */
    ddl_staging *staging; /* buffers are memory of its GPU; NULL: of the host */
    ddl_hold hold;        /* of the stream that it is an operation of */
    ddl_error *refusal;   /* why they cannot be used, for ddl_issue to take; NULL: they can */
    bool lacks;           /* there is no memory for it */
    uint8_t as; /* what the peers are told it is, if not its collective: DDL_SIGNATURE_FREE or _SPLIT */
} ddl_call;

/* Block until done if request is NULL. */
ddl_status ddl_issue(ddl_comm *comm, const ddl_call *call, ddl_request **request);

/* The algorithm that a call with so many bytes in all would run: the vector, or all blocks together. NULL:
 * the user forces one that does not work for so many ranks. */
const ddl_algorithm *ddl_issue_algorithm(const ddl_comm *comm, ddl_collective collective, double total_bytes);

/* Blocks of so many elements each: how many of them a call of this collective has. */
int ddl_issue_blocks(const ddl_comm *comm, ddl_collective collective);

/* Holder: begin the operation of a request that was submitted to the engine by its job. */
void ddl_issue_job(ddl_link *job);

/* Steps of an issue, for who takes only some of them (repeat.c). Holder: the collective is the last one that
 * this rank has entered. */
static inline ddl_past *ddl_issue_remember(ddl_comm *comm, const ddl_task *task)
{
    ddl_past *past = &comm->history[task->sequence % DDL_HISTORY];
    past->sequence = task->sequence;
    past->signature = task->signature;
    comm->entered[comm->rank] = task->sequence;
    return past;
}
/* Holder: perform it on this rank's host. */
void ddl_issue_begin(ddl_request *request);
/* Holder: it cannot be performed. */
void ddl_issue_fail(ddl_request *request, const ddl_error *error);
/* Its time runs from now on. */
void ddl_issue_set_deadline(ddl_request *request);
/* Holder: what has passed of its time since then does not count. */
void ddl_issue_put_off(ddl_request *request, int64_t since_ns, int64_t now_ns);
/* Holder: it has ended well; what tasks of requests are finished with. */
void ddl_issue_finished(ddl_task *task);

#endif
