/*
 * votes.h - calls that all ranks can leave to their GPUs: how ranks agree on each before it is performed.
 *
 * Only where all ranks may use NCCL. Whether a call is put to the vote follows from what is the same
 * on all ranks, so each knows that all others vote on it, and which ballot it is. With DDL_GPU=nccl all calls
 * are that could go there, and not to be able to is a failure; else a sample of them (sampling.h), and hosts
 * go on without. A rank says whether its buffers are its GPU's, and begins when it has heard the word of all:
 * at its host, unless all have said the same. So any mixture of buffers is a call as always, nobody enters
 * NCCL for whom another might not come, and no rank is further ahead of another than there is room for
 * words. A communicator of NCCL is made for the first call on which all agree.
 *
 * In one process and on one GPU, one communicator at a time has calls that go there: calls of others that
 * come meanwhile are their hosts'. So no two of them can wait for each other.
 *
 * For the holder of the baton.
 */
#ifndef DDL_API_VOTES_H
#define DDL_API_VOTES_H

#include "api/comm.h"
#include "backend/offload.h"

/* Whether NCCL answers as the rules for numbers say, and by which of its calls. Thread: any. */
bool ddl_votes_takes_op(ddl_op op, ddl_dtype dtype);
ddl_offload_kind ddl_votes_kind(ddl_collective collective);

/* Of a communicator that is being made; nothing where NCCL cannot be used. DDL_ENOMEM. Thread: any,
 * without the baton. */
DDL_MUST_USE ddl_status ddl_votes_create(ddl_comm *comm, ddl_error *err);

/* Start of a call, where comm->votes is not NULL. True: it waits for words, or for its turn, and goes on by
 * itself, or the communicator has failed; false: it is no call to vote on, and is to begin on this rank's
 * host.
 */
bool ddl_votes_begin(ddl_comm *comm, ddl_request *request);

/* Whether a frame is a word, and what it says. */
bool ddl_votes_is_word(const ddl_frame *frame);
void ddl_votes_heard(ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload);

/* Go on with what can. True: something moved. */
bool ddl_votes_progress(ddl_comm *comm);

/* Words that may have been lost, as they came before their receiver had the communicator, are asked for. */
void ddl_votes_tick(ddl_comm *comm, int64_t now_ns);

/* Of a request that waits here: whom it waits for. */
void ddl_votes_visit_pending(const ddl_comm *comm, const ddl_request *request,
                             void (*visit)(void *arg, int rank, bool outgoing), void *arg);

/* Whether it waits for NCCL or GPUs, and for no rank; and then: what kept it until its deadline. */
bool ddl_votes_is_stuck(const ddl_comm *comm, const ddl_request *request);
void ddl_votes_raise_stuck(ddl_comm *comm, const ddl_request *request);

/* The communicator has failed, or the process exits: stop what GPUs do. */
void ddl_votes_abort(ddl_comm *comm);
/* Blocks until that is done, but not for longer than that. */
void ddl_votes_await_abort(ddl_comm *comm, ddl_deadline deadline);
/* Whether buffers are not touched any more, or that has been waited for long enough. */
bool ddl_votes_have_stopped(ddl_comm *comm, int64_t now_ns);
/* The end of all requests here, after waiting for so long that GPUs stop; false: they may still touch
 * buffers.
 */
bool ddl_votes_cancel(ddl_comm *comm, int timeout_ms);

/* Nothing waits here, nor will again: begin to close what is at NCCL. Until `latest` at most ddl_votes_free
 * waits for that. Once is enough. */
void ddl_votes_begin_close(ddl_comm *comm, ddl_deadline latest);

/* At the end; nothing waits here. Thread: any, without the baton. */
void ddl_votes_free(ddl_comm *comm);

#endif
