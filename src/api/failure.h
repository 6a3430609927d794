/*
 * failure.h - what a communicator is told that may be the end of it, until all its ranks report one cause.
 *
 * All for the holder of the baton. Peers are ranks of comm.
 */
#ifndef DDL_API_FAILURE_H
#define DDL_API_FAILURE_H

#include "api/comm.h"

/* ---- failure.c: the cause ---- */

/* False: no memory. */
DDL_MUST_USE bool ddl_failure_init(ddl_comm *comm);
void ddl_failure_fini(ddl_comm *comm); /* also of what is half made */

/* Something is wrong, and there is a cause, if not the last word on it. */
static inline bool ddl_failure_is_known(const ddl_comm *comm)
{
    return comm->failure.phase != DDL_FAILURE_NONE;
}
/* All that was in flight has ended with that, and nothing begins any more. */
static inline bool ddl_failure_is_final(const ddl_comm *comm)
{
    return comm->failure.phase >= DDL_FAILURE_FINAL;
}
static inline bool ddl_failure_is_reported(const ddl_comm *comm)
{
    return comm->failure.phase == DDL_FAILURE_REPORTED;
}
/* Zeroed as long as none is known. */
static inline const ddl_notice *ddl_failure_cause(const ddl_comm *comm)
{
    return &comm->failure.cause;
}
/* Whether it is that ranks differ in an operation before this one. */
bool ddl_failure_cause_is_earlier_than(const ddl_comm *comm, const ddl_request *request);
/* The same, behind this one: who is still in it is to come to that, and to be heard. */
bool ddl_failure_cause_is_later_than(const ddl_comm *comm, const ddl_request *request);

void ddl_failure_raise(ddl_comm *comm, const ddl_notice *notice);
/* A peer says what it takes for the cause. */
void ddl_failure_told(ddl_comm *comm, int peer, const ddl_notice *notice);
/* peer has just been connected. */
void ddl_failure_met(ddl_comm *comm, int peer);
void ddl_failure_tick(ddl_comm *comm, int64_t now_ns);
/* Of a rank alone, for the thread that issues: this is final, as nobody else knows a better cause. */
void ddl_failure_end_alone(ddl_comm *comm, const ddl_notice *cause);
/* The final cause, for a call that returns it. */
ddl_status ddl_failure_report(ddl_comm *comm);
/* Cancel all that is in flight, before the first who waits is told: buffers are free when a wait returns.
 * What GPUs do has so long to stop; what goes on all the same is appended to a text of at most so many bytes.
 */
void ddl_failure_cancel(ddl_comm *comm, int timeout_ms, char *text, size_t bytes);

/* ---- failure_own.c: calls of this rank ---- */

/* In flight, or NULL. Not what was issued while a cause settles: it is not begun, and ends with that
 * cause. */
const ddl_request *ddl_failure_find_collective(const ddl_comm *comm, uint64_t sequence);
/* Of an alltoallv: what is expected of each rank, which an enter frame for it has as its count. NULL: it is
 * another, or not remembered. */
const size_t *ddl_failure_expected_counts(const ddl_comm *comm, uint64_t sequence);

/* ---- failure_calls.c: calls of others ---- */

/* False: what it says, and what comes with it, is of another call than this rank's of the same place, which
 * is not to have it: others would take for theirs what came of that. */
bool ddl_failure_heard(ddl_comm *comm, int peer, const ddl_frame *frame);
/* Another rank has posted something else on the board with this operation. */
void ddl_failure_differs(ddl_comm *comm, uint64_t sequence, const ddl_signature *ours, int rank,
                         const ddl_signature *theirs);
/* Compare what peers said about this operation before it was issued here. False: something does not fit, and
 * the operation is not to begin; it ends with that. */
bool ddl_failure_check_early(ddl_comm *comm, const ddl_request *request);
/* Nothing is wrong, and nobody waits in an operation to which this rank has not come. */
static inline bool ddl_failure_is_quiet(const ddl_comm *comm)
{
    return comm->failure.phase == DDL_FAILURE_NONE && !comm->failure.is_asked;
}
/* Whether peer has told that its call with this number frees the communicator. */
bool ddl_failure_has_told_of_freeing(const ddl_comm *comm, int peer, uint64_t sequence);

/* ---- failure_tell.c, failure_news.c: who is in an operation ---- */

/* A frame that tells it. */
ddl_frame ddl_failure_enter_frame(uint32_t channel, uint64_t sequence, const ddl_signature *signature);
/* To all: this rank has come to its next operation, which is this one. */
void ddl_failure_tell_next(ddl_comm *comm, const ddl_signature *signature);
/* What peer knows of who is in the operation of frame. */
void ddl_failure_knows(ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload);

/* ---- failure_gone.c: peers that are gone ---- */

void ddl_failure_left(ddl_comm *comm, int peer);
void ddl_failure_lost(ddl_comm *comm, int peer, int os_errno, const ddl_error *error);
/* Whether this request needs one that has left. */
void ddl_failure_check_gone(ddl_comm *comm, const ddl_request *request);

#endif
