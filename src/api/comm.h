/*
 * comm.h - a communicator: who its ranks are, and which operations are in flight on it.
 *
 * Two kinds of fields: those that the issuing thread touches, which the caller serialises, and those that
 * belong to the holder of the engine's baton. Which is which is said below.
 */
#ifndef DDL_API_COMM_H
#define DDL_API_COMM_H

#include "api/failure_state.h"
#include "api/request.h"
#include "api/world.h"
#include "backend/backend_schedule.h"

/* In place of a collective in signatures: what communicators are made and freed with. */
enum { DDL_SIGNATURE_SPLIT = 0xfd, DDL_SIGNATURE_FREE = 0xfe };

/* Freeing takes 5 s at most: a wait may outlast its deadline by the engine's grace of 800 ms, and threads
 * that wait for requests are given a moment to see that these have ended. Where a thread is stuck that is
 * found out by the same time, and nothing of what it may touch is freed. */
enum { DDL_NEWS = 8, DDL_HISTORY = 256, DDL_COMM_FREE_MS = 4000, DDL_COMM_GRACE_MS = 400 };

typedef struct ddl_past { /* an operation that was issued here */
    uint64_t sequence;
    ddl_signature signature;
    size_t *counts; /* of an alltoallv: sent to each rank, then received from each; kept for the next one */
} ddl_past;

/* Of all messages to a rank, or from it: the last one that was begun here, and the last of those that had no
 * elements, and so were done at once. */
typedef struct ddl_past_messages {
    uint64_t sequence, empty_sequence;
} ddl_past_messages;

struct ddl_shrinking;
typedef struct ddl_votes ddl_votes;
typedef struct ddl_alone ddl_alone;

/* How large the buffers of a call are on this rank, and where in one of them the other one lies if the call
 * is in place. */
typedef struct ddl_extent {
    size_t in_bytes, out_bytes;
    size_t in_inside, out_inside; /* bytes from the start of the other one; 0 unless it is one block of it */
} ddl_extent;

/* A call that went over the board, kept as it was described: the next one that is like it starts at
 * once. */
typedef struct ddl_repeat {
    ddl_request *request; /* NULL: there is none */
    ddl_plan *plan;       /* held while there is one */
    size_t count;
    ddl_dtype dtype;
    ddl_op op;
    int root;
    bool in_place;
    ddl_extent extent;
} ddl_repeat;

struct ddl_comm {
    /* Constant after creation. */
    ddl_world *world;
    uint32_t id;
    int rank, nranks;
    int *members; /* of each rank: its number in the world */
    int *rank_of; /* of each number in the world: its rank, or -1 */
    bool sparse;  /* some pairs may not be connected: what all are to hear is passed on from rank to rank */
    ddl_roster *roster;
    ddl_placement placement;
    ddl_cost_model model;
    size_t piece_bytes; /* of the largest message of a piece; the same on all ranks */
    ddl_engine *engine; /* NULL with a single rank, as is the next one */
    ddl_mesh *mesh;
    ddl_board *board;    /* of communicators inside one host; NULL: there is none */
    int board_index;     /* of this rank's; -1 */
    bool is_taken_along; /* by its world: its handle may still be freed */
    bool shares_cpus;    /* ranks of the world share CPUs */
    bool board_is_done;  /* nobody reads its sheets any more: it may go to another communicator */
    ddl_backend *backend;
    ddl_request_pool *pool;
    struct ddl_comm *root; /* with which it is freed; a root is its own */

    ddl_link sibling, same_bucket, active, voting; /* see ddl_world */

    /* The issuing thread. */
    int64_t timeout_ms;     /* of the next operation */
    int64_t set_timeout_ms; /* the last that was set by a call, here or where this was split from */
    uint64_t issued;        /* collective operations */
    uint64_t *sent_to, *received_from; /* point-to-point operations, per peer */
    size_t *starts;                    /* room for those of v forms: of one buffer, then of the other */
    void *cards;        /* what ranks tell each other in a split (split.c); made by the first */
    struct ddl_chosen { /* by cost: the last choice for a size of those that share a place */
        const ddl_algorithm *algorithm;
        double total_bytes;
    } chosen[DDL_COLLECTIVE_COUNT][DDL_CHOICES];
    ddl_repeat repeats[DDL_COLLECTIVE_COUNT];
    uint32_t nrepeated;
    bool has_stream;            /* calls are operations of this stream of the program (stream.c) */
    bool has_told_how_it_waits; /* in a line of the log */
    bool is_given_up;           /* by ddl_comm_shrink: what its streams have come to needs no telling */
    void *stream;
    int stream_gpu; /* -1: any */
    ddl_list
        streamed; /* ddl_request.streamed, oldest first: they end by themselves, and later calls tell how */
    size_t nstreamed, most_streamed; /* how many; and of how many all are looked at */
    ddl_alone *alone;        /* calls that go to NCCL on the GPU of a rank alone (alone.h); NULL: none has */
    struct ddl_abort {       /* by any thread (abort.c) */
        atomic_bool pending; /* left to the holder, who could not be had; set with the world's lock */
        ddl_notice pending_notice;    /* then: of which the first counts */
        atomic_bool alone;            /* where a rank is alone; it ends what waits there */
        ddl_notice alone_cause;       /* then: why */
        atomic_bool alone_in_offload; /* a call of a rank alone is (alone.c) */
    } abort;
    ddl_staging *stagings[DDL_COMM_GPUS]; /* of each GPU whose memory was used (gpu.c); what they do is the
                                             holder's, or the issuing thread's where there is no engine */

    /* Holder of the baton. */
    ddl_list in_flight;    /* requests, oldest first */
    ddl_table by_sequence; /* the same; ddl_request.by_sequence */
    uint64_t *entered; /* of each rank: the highest collective sequence that it is known to have entered */
    ddl_past history[DDL_HISTORY]; /* collective operations by sequence modulo its size */
    ddl_past_messages *messages;   /* sends to each rank, then receives from each */
    int ngone;                     /* peers that left or were lost */
    bool is_parting;               /* all have met to free it: who goes now is nobody's failure */
    bool is_abandoned;             /* it is being freed: what was in flight was cancelled */
    ddl_votes *votes;              /* on which calls go to GPUs (votes.h); NULL: none can */
    struct ddl_news {              /* where pairs may not be connected: what is passed on (failure_news.c) */
        uint64_t due[DDL_NEWS];    /* operations of which there is something new to tell */
        int ndue;
        uint64_t told[DDL_HISTORY]; /* by sequence modulo its size: the last one that was told of */
        uint64_t first_sequence;    /* how rank 0 called this operation is known: */
        ddl_signature first;
    } news;
    struct ddl_shrinking *shrinking; /* agreement on who is left (shrink.c); NULL: none was begun */
    ddl_failure failure;             /* written by failure*.c alone, and read by others through failure.h */
};

/*
 * A communicator of the ranks `members`, given by their numbers in the world, of which `rank` is this
 * process. boards: of each member the one that it has taken for this communicator, whose it is from now on;
 * NULL: it has none. root NULL: it is a root itself. Known to the world once this returns. A world that has
 * no other communicator goes with a failure, as it goes with its last communicator.
 */
DDL_MUST_USE ddl_status ddl_comm_create(ddl_world *world, uint32_t id, const int members[], int nranks,
                                        int rank, const int boards[], ddl_comm *root, int64_t timeout_ms,
                                        ddl_comm **comm, ddl_error *err);

/* At once, without a word to the others; nothing may be in flight. NULL is fine. Frees the world with its
 * last root. DDL_ETIMEDOUT: a thread is stuck, and was at the deadline; it or the world is lost. */
ddl_status ddl_comm_destroy(ddl_comm *comm, ddl_deadline deadline, ddl_error *err);

/* What requests have in by_sequence: collectives their sequence, sends and receives (direction) this. */
uint64_t ddl_comm_message_hash(ddl_collective direction, int peer, uint64_t sequence);

/* Holder: requests in flight are counted, so that the world knows whether there is work. */
void ddl_comm_track(ddl_comm *comm, ddl_request *request);
void ddl_comm_untrack(ddl_request *request);

/* Agreement on who is left (shrink.c). Holder. */
bool ddl_shrink_heard(ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload, ddl_error *err);
void ddl_shrink_gone(ddl_comm *comm, int peer);
void ddl_shrink_tick(ddl_comm *comm, int64_t now_ns);
void ddl_shrink_free(ddl_comm *comm);

/* What every call on a communicator asks first: that it is one, and not in a forked child. */
ddl_status ddl_comm_check(const ddl_comm *comm, const char *operation);

/* Why the engine was not to be entered: it is stuck, or this process is exiting. */
ddl_status ddl_comm_kept_out(const ddl_comm *comm, ddl_error *err);

/* And every one that needs the other ranks: that this one has not left them at its exit. */
DDL_MUST_USE ddl_status ddl_comm_check_open(const ddl_comm *comm, const char *operation);

/* What has set a limit of so many milliseconds: "DDL_TIMEOUT"; some calls have limits of their own. */
const char *ddl_comm_timeout_name(const ddl_comm *comm, int64_t timeout_ms);

/* "rank 3 (pid 812 on node7)" */
const char *ddl_comm_describe(const ddl_comm *comm, int rank, char *text, size_t capacity);

#endif
