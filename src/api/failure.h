/*
 * failure.h - what a communicator is told that may be the end of it, until all its ranks report one cause.
 *
 * All for the holder of the baton. Peers are ranks of comm.
 */
#ifndef DDL_API_FAILURE_H
#define DDL_API_FAILURE_H

#include "api/comm.h"

/* ---- failure.c: the cause ---- */

void ddl_failure_raise(ddl_comm *comm, const ddl_notice *notice);
/* A peer says what it takes for the cause. */
void ddl_failure_told(ddl_comm *comm, int peer, const ddl_notice *notice);
/* peer has just been connected. */
void ddl_failure_met(ddl_comm *comm, int peer);
/* Whether the cause that settles is that ranks differ in an operation before this one. */
bool ddl_failure_cause_is_earlier_than(const ddl_comm *comm, const ddl_request *request);
/* The same, behind this one: who is still in it is to come to that, and to be heard. */
bool ddl_failure_cause_is_later_than(const ddl_comm *comm, const ddl_request *request);
void ddl_failure_tick(ddl_comm *comm, int64_t now_ns);
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

/* ---- failure_tell.c, failure_news.c: who is in an operation ---- */

/* A frame that tells it. */
ddl_frame ddl_failure_enter_frame(uint32_t channel, uint64_t sequence, const ddl_signature *signature);
/* To all: this rank has come to its next operation, which is this one. */
void ddl_failure_tell_next(ddl_comm *comm, const ddl_signature *signature);
/* What peer knows of who is in the operation of frame. */
void ddl_failure_knows(ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload);

/* ---- failure_gone.c: peers that are gone ---- */

void ddl_failure_left(ddl_comm *comm);
void ddl_failure_lost(ddl_comm *comm, int peer, int os_errno, const ddl_error *error);
/* Whether this request needs one that has left. */
void ddl_failure_check_gone(ddl_comm *comm, const ddl_request *request);

#endif
