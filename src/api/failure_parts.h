/*
 * failure_parts.h - what the files of failure share. What their users need is in failure.h.
 *
 * All of it is for the holder of the baton.
 */
#ifndef DDL_API_FAILURE_PARTS_H
#define DDL_API_FAILURE_PARTS_H

#include "api/failure.h"

static inline bool ddl_failure_is_from_receiver(const ddl_frame *frame)
{
    return ddl_frame_is_from_receiver(frame->type) ||
           (frame->type == DDL_FRAME_ENTER && frame->piece == DDL_ENTER_FROM_RECEIVER);
}

/* Whether a cause is that calls of a collective operation differ, rather than a message and who expects it.
 */
static inline bool ddl_failure_is_of_calls(const ddl_notice *cause)
{
    return cause->code == DDL_EMISMATCH && cause->sequence > 0;
}

/* What concerns a pair alone is not compared between others. */
static inline ddl_signature ddl_failure_common_part(const ddl_signature *signature)
{
    ddl_signature common = *signature;
    if (signature->collective == DDL_COLLECTIVE_ALLTOALLV)
        common.count = 0;
    return common;
}

/* ---- failure.c: the cause ---- */

/* Raise what a board has shown, once the loop has been run. */
void ddl_failure_hold(ddl_comm *comm, const ddl_notice *notice);

/* With peer -1 all others are told. */
void ddl_failure_tell_cause(ddl_comm *comm, int peer);

/* ---- failure_doubt.c: whether who was lost by some was lost by all ---- */

/* Whether others may still have the culprit of this cause. */
bool ddl_failure_may_be_cut(const ddl_comm *comm, const ddl_notice *cause);
/* There is another cause. */
void ddl_failure_doubt_anew(ddl_comm *comm);
/* A peer has told this, which is the cause now, or was told before. */
void ddl_failure_doubt_told(ddl_comm *comm, int peer, const ddl_notice *notice);
/* This rank has lost peer, too. */
void ddl_failure_doubt_gone(ddl_comm *comm, int peer);
void ddl_failure_doubt_tick(ddl_comm *comm);
/* The cause is to be final: it says so where only a connection broke. */
void ddl_failure_doubt_end(ddl_comm *comm);

/* ---- failure_own.c: calls of this rank ---- */

/* In flight, or among the last ones; NULL: not issued, or long ago. */
const ddl_signature *ddl_failure_own_signature(const ddl_comm *comm, uint64_t sequence);

/* Of an alltoallv, likewise: counts sent to each rank, then received from each. */
const size_t *ddl_failure_own_counts(const ddl_comm *comm, uint64_t sequence);

/* The send or the receive that is in flight; each direction of a pair counts by itself. */
const ddl_request *ddl_failure_find_message(const ddl_comm *comm, ddl_collective direction, int peer,
                                            uint64_t sequence);

/* The own call as a frame from this peer about it has to have it. */
ddl_signature ddl_failure_expected_of(const ddl_comm *comm, int peer, const ddl_frame *frame,
                                      const ddl_signature *own);

/* ---- failure_mismatch.c: what is said of calls that differ ---- */

/* What a frame from peer says, `theirs`, is not what this rank expects of it. */
ddl_notice ddl_failure_mismatch(const ddl_comm *comm, const ddl_frame *frame, const ddl_signature *ours,
                                int peer, const ddl_signature *theirs);

/* Of the witness and the culprit of a notice: what they called. */
void ddl_failure_describe_pair(const ddl_comm *comm, ddl_notice *notice, const ddl_signature *low,
                               const ddl_signature *high);

/* Arrays of counts are compared by a digest, from which nobody can tell where they differ; so each rank whose
 * call is in flight tells its own program what it has. */
void ddl_failure_add_own_counts(const ddl_comm *comm, ddl_notice *cause);

/* The peer has a message for this rank, or waits for one, in an operation that this rank was done with so
 * long ago that it remembers nothing of it but that: with no elements, or blocks of none, a rank may be done
 * without the others. */
ddl_notice ddl_failure_stray(const ddl_comm *comm, const ddl_frame *frame, int peer,
                             const ddl_signature *theirs);

/* ---- failure_calls.c: calls of others ---- */

/* Whether all ranks have told how they called the operation in which calls differ. */
bool ddl_failure_knows_all_calls(const ddl_comm *comm);

/* Somebody has asked who is in this operation; if this rank is not, it says so once it is. */
void ddl_failure_note_asked(ddl_comm *comm, uint64_t sequence);

/* Of all calls that were told, the lowest pair that disagrees becomes the cause. */
void ddl_failure_find_lowest_pair(ddl_comm *comm);

/* ---- failure_tell.c: who is in an operation ---- */

/* Whether what is for peer, or for all with peer -1, goes to this rank. */
bool ddl_failure_is_told(const ddl_comm *comm, int peer, int rank);

/* Queue a frame for one rank, or for all others with peer -1. */
void ddl_failure_tell(ddl_comm *comm, int peer, const ddl_frame *frame, const ddl_notice *notice);

/* Tell peer (-1: all) that this rank is, or was, in this operation. An answer to the same is not answered. */
void ddl_failure_tell_entered(ddl_comm *comm, int peer, uint64_t sequence, const ddl_signature *signature,
                              bool is_answer);

/* Tell peer that this rank was in this operation, so long ago that it is not remembered how. */
void ddl_failure_tell_forgotten(ddl_comm *comm, int peer, uint64_t sequence);

/* Point to point: only the other end need know. */
void ddl_failure_tell_other_end(ddl_comm *comm, const ddl_task *task);

/* ---- failure_news.c: the same, from rank to rank ---- */

/* Tell peer (-1: all) what is known of this operation: that this rank is, or was, in it, if signature is how;
 * and who else is. */
void ddl_failure_pass_on(ddl_comm *comm, int peer, uint64_t sequence, const ddl_signature *signature);

/* What is owed. */
void ddl_failure_pay_news(ddl_comm *comm);

/* False: rank 0 is known to have called this operation in another way than this rank. */
bool ddl_failure_fits_first(ddl_comm *comm, const ddl_request *request);

#endif
