/*
 * request.h - one operation in flight, from issue to wait.
 *
 * A request outlives its communicator if need be: what it needs after its end is in itself and in its
 * pool, which both hold.
 */
#ifndef DDL_API_REQUEST_H
#define DDL_API_REQUEST_H

#include "backend/backend_schedule.h"
#include "base/clock.h"
#include "base/table.h"
#include "protocol/channel.h"
#include "protocol/notice.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ddl_request_pool { /* of one communicator */
    _Atomic(ddl_request *) spare; /* one idle request, for who takes and gives back one after the other */
    pthread_mutex_t lock;
    ddl_list idle;         /* other requests, */
    unsigned nidle;        /* so many of them, at most REQUESTS_KEPT (request.c) */
    ddl_request *reserve;  /* of a call for which there is no memory, so that it fails as others do */
    atomic_int references; /* the communicator's, and one per request that is out */
    /* Threads between looking at `done` and leaving the engine. Both are accessed sequentially consistently,
     * so that ddl_comm_free sees them, or they see `done`. */
    atomic_int waiters;
    int rank;
    ddl_notice cause; /* of the communicator's failure; written once, before any request is done with it */
    int cause_os_errno;
    atomic_bool is_told;    /* a call has returned the cause to the program */
    atomic_bool has_exited; /* the exit handler has said goodbye: nothing more will be done */
    char prefix[128];       /* "comm=world rank 3@node7", for messages */
} ddl_request_pool;

/* Why nothing is done any more once its pool has exited; nor, for a rank alone, at NCCL once
 * the process exits. */
#define DDL_REQUEST_EXITED "this process is exiting; call before main returns, or before exit is called"

/* Of a call that may go to GPUs (votes.h). */
typedef enum ddl_vote_stage {
    DDL_VOTE_NOT_VOTED, /* it is not put to the vote, or this is over */
    DDL_VOTE_WAITS,     /* this rank has said no word on it yet */
    DDL_VOTE_OPEN,      /* it has; words of others are missing */
    DDL_VOTE_HOST,      /* it goes by hosts */
    DDL_VOTE_GPU,       /* it goes by GPUs, when it is its turn */
    DDL_VOTE_RUNNING    /* GPUs have begun it */
} ddl_vote_stage;

typedef struct ddl_request_vote {
    ddl_link link; /* in its communicator's votes, while the stage is another than DDL_VOTE_NOT_VOTED */
    ddl_vote_stage stage;
    uint64_t candidate; /* among the calls that could be put to the vote; 0: it could not */
    uint64_t ballot;    /* among those that were */
    uint64_t number;    /* among those that GPUs have begun */
} ddl_request_vote;

struct ddl_request {
    ddl_link link;             /* in comm->in_flight, or in the pool */
    ddl_hashed by_sequence;    /* in comm->by_sequence, likewise */
    ddl_link job;              /* in the engine's mailbox */
    ddl_link streamed;         /* in comm->streamed: nobody waits for it */
    ddl_comm *comm;            /* valid until done */
    struct ddl_engine *engine; /* NULL in a world of one; valid until done */
    ddl_request_pool *pool;
    ddl_task task;
    void *kept; /* copies of the caller's arrays; room that stays with the request */
    size_t kept_bytes;
    ddl_error *refusal;             /* why it must fail rather than begin; NULL: it begins */
    bool lacks;                     /* it fails, as there is no memory for it */
    _Atomic(ddl_deadline) deadline; /* the holder may put it off, though others wait for it */
    int64_t issued_ns;
    ddl_deadline warn_ns; /* if it waits for longer, it is told for whom */
    int64_t timeout_ms;
    const char *limit;     /* what set that, for messages */
    ddl_deadline stuck_by; /* whose tests could not drive since the deadline gives up then; 0: they could */
    ddl_request_vote vote;
    bool is_large;     /* worth a vote where nobody asks for it */
    bool is_empty;     /* this rank has no element in it */
    bool told;         /* peers know that this rank is in the operation */
    bool is_late;      /* issued when the program had been told why the communicator has failed */
    ddl_status status; /* valid once done */
    bool root_cause;   /* failed with pool->cause, rather than after it */
    atomic_bool done;  /* stored with release by the holder after everything else; loaded by waiters */
};

/* With so many requests for a start. NULL: no memory. */
ddl_request_pool *ddl_request_pool_create(int rank, const char *prefix, int nrequests);
void ddl_request_pool_release(ddl_request_pool *pool);

/* Whether it counts among the collective operations of its communicator. */
static inline bool ddl_request_is_collective(const ddl_request *request)
{
    return ddl_channel_is_collective(request->task.channel);
}

static inline bool ddl_request_is_done(const ddl_request *request)
{
    return atomic_load(&request->done);
}

/* Of an alltoallv: elements sent to each rank, then those received from each. NULL: of another. */
const size_t *ddl_request_pair_counts(const ddl_request *request);

/* "allreduce", ..., "comm_split", "comm_free" */
const char *ddl_request_operation(const ddl_request *request);

/* A zeroed request, but for what it keeps; NULL: no memory. */
ddl_request *ddl_request_take(ddl_request_pool *pool);

/* Likewise, then; NULL: it is in use. */
ddl_request *ddl_request_take_reserve(ddl_request_pool *pool);
void ddl_request_give_back(ddl_request *request);

/* Holder: its status is set. Whoever waits may take it away from now on, and a stream that waits goes on. */
void ddl_request_end(ddl_request *request);

/* As ddl_wait, by a thread that has the engine's baton, which is given back; it waits but once, also where
 * the engine is stuck then. */
ddl_status ddl_request_wait_entered(ddl_request **handle);

/* Of a done request: keep its failure for ddl_last_error, give it back, return its status. */
ddl_status ddl_request_finish(ddl_request *request);

#endif
