/*
 * world.h - what all communicators of one ddl_init share: the connections, the engine that drives them, and
 * which communicators there are.
 *
 * A communicator is known on the wire by its id, which all its members give it. A world lives until its last
 * root communicator is freed: the one that ddl_init made, and those that came from shrinking a root.
 */
#ifndef DDL_API_WORLD_H
#define DDL_API_WORLD_H

#include "api/config.h"
#include "backend/choice.h"
#include "executor/board.h"
#include "io/engine.h"
#include "io/service.h"
#include "protocol/notice.h"
#include "protocol/roster.h"
#include "protocol/vigil.h"
#include "rendezvous/bootstrap.h"
#include "transport/balance.h"
#include "transport/transport_mesh.h"

#include <pthread.h>
#include <stdatomic.h>

enum { DDL_WORLD_BUCKETS = 64 };

/* That a process sees, at most. */
enum { DDL_COMM_GPUS = 64 };

/* Of each rank; each is one communicator's at a time. */
enum { DDL_BOARDS = 16 };

/* The most for which who leaves waits until its last words have come to the other hosts. */
enum { DDL_WORLD_PARTING_MS = 1000 };

/* Of communicators; ids of parts begin at 1 (ddl_world_id). */
enum { DDL_ID_WORLD = 0, DDL_ID_LIMIT = 0x7fffffff };

/* Which calls ranks vote on, whether they are left to GPUs (votes.h). */
typedef enum ddl_voting {
    DDL_VOTING_NEVER,
    DDL_VOTING_SAMPLED, /* now and then; always, where that has brought something (sampling.h) */
    DDL_VOTING_ALWAYS
} ddl_voting;

typedef struct ddl_world {
    /* Constant after init. */
    ddl_config config;
    ddl_voting voting_rule;     /* the same on all ranks */
    bool may_have_gpus;         /* likewise: some rank of it */
    ddl_prover *prover;         /* NULL: level off, or a world of one */
    ddl_encryption *encryption; /* NULL below level tls */
    ddl_roster *roster;
    ddl_service *service; /* NULL in a world of one, as are the next five */
    ddl_bootstrap *bootstrap;
    ddl_wire *wires;  /* until it is made: what the mesh gets, for a forked child to close */
    ddl_lanes *lanes; /* NULL without shared memory */
    ddl_heap *heap;   /* also in a world of one */
    ddl_engine *engine;
    ddl_mesh *mesh;
    ddl_link link;      /* in the list of worlds (contexts.h) */
    bool made;          /* all of it is there */
    bool forked;        /* set in a forked child only */
    atomic_bool exited; /* the exit handler has said goodbye; the baton is never given back */

    /* Any thread. */
    atomic_bool ends_alone;  /* it exits: ranks alone go to NCCL no more (alone.c) */
    atomic_uint offers;      /* numbers for ids that this rank has offered */
    atomic_bool arrived;     /* arrivals is submitted */
    atomic_bool has_aborts;  /* aborts is submitted */
    atomic_uint free_boards; /* a bit each; none where some pair of this host has no memory in common */
    atomic_uint used_boards; /* that communicators have had, likewise */
    bool has_common_heaps;   /* all ranks of this host reach the heaps of all; set before there are others */
    pthread_mutex_t lock;
    ddl_list comms; /* all, by ddl_comm.sibling; with the lock */
    int nroots;     /* with the lock */

    /* Holder of the baton. */
    ddl_list by_id[DDL_WORLD_BUCKETS]; /* ddl_comm.same_bucket */
    ddl_list active;                   /* ddl_comm.active: those with an id in the buckets */
    ddl_list early_words;              /* for communicators that do not exist here yet */
    int nearly_words;
    uint32_t *freed; /* ids, in order: what still comes for them is dropped */
    size_t nfreed, freed_capacity;
    ddl_list posting;  /* ddl_posting.link of those that have posted something and wait */
    ddl_list staged;   /* ddl_staging.link of those with operations under way */
    int64_t copied_ns; /* when something last moved there */
    ddl_deadline hangs_until[DDL_COMM_GPUS]; /* of each GPU (staging.h) */
    ddl_list voting;     /* ddl_comm.voting of those with calls that wait for votes, or for GPUs */
    int64_t voted_ns;    /* when something last moved there */
    ddl_link arrivals;   /* submitted to the engine when ranks that connect late have come */
    ddl_link aborts;     /* likewise when aborts were left to the holder (ddl_comm.abort) */
    bool posts_held;     /* lists of what is in flight are being walked: no post may end meanwhile */
    int nbusy;           /* operations in flight, failures that settle, agreements under way */
    int64_t warned_ns;   /* when it was told last who is waited for */
    ddl_balance balance; /* of ranks over CPUs */
    ddl_vigil *vigils;   /* over each rank */
    int64_t watched_ns;
    int64_t ticked_ns;
    int wary_ticks;   /* ticks that are to come in time before one that is late tells of a stop */
    bool is_watching; /* in this tick: those who are waited for are to show that they live */
} ddl_world;

struct ddl_comm;

/* Meet the others and connect. */
DDL_MUST_USE ddl_status ddl_world_create(const ddl_options *options, ddl_world **world, ddl_error *err);

/* Say goodbye and close. Accepts NULL; no communicator may be left. DDL_ETIMEDOUT: a thread of it is stuck,
 * and was at the deadline, and most of a second after the call; the world is lost to it, and its memory. */
ddl_status ddl_world_destroy(ddl_world *world, ddl_deadline deadline, ddl_error *err);

/* A number that this rank has offered to no other communicator. Thread: any. */
uint32_t ddl_world_offer(ddl_world *world);

/* The id that follows from the offer of the rank that has this number in the world; above DDL_ID_LIMIT if
 * there are no more. */
uint64_t ddl_world_id(const ddl_world *world, int world_rank, uint32_t offer);

/* Holder: this rank never makes the communicator of this id: whoever asks it there who is left is told so.
 * False: it has made it, or no memory. */
bool ddl_world_forgo(ddl_world *world, uint32_t id);

/*
 * One of this rank's boards for a communicator, which no other gets until it is given back; -1: none is free.
 * Which of its own each member takes is its affair, so as long as there are enough it does not matter what
 * other threads take meanwhile. Thread: any.
 */
int ddl_world_take_board(ddl_world *world);
void ddl_world_give_board(ddl_world *world, int board);

/* Whether these are as many ranks as can have boards, and all of one host. */
bool ddl_world_may_have_boards(const ddl_world *world, const int members[], int nranks);

/* What a rank of this host has of a board. */
ddl_pad *ddl_world_pad(ddl_world *world, int world_rank, int board);

/* Some communicator has an abort left to the holder (ddl_abort_do_pending). Thread: any. */
void ddl_world_tell_aborts(ddl_world *world);

/* From now on what comes for comm->id reaches it, beginning with what has come already. Holder. False: no
 * memory to remember, one day, that it was freed. */
bool ddl_world_admit(ddl_world *world, struct ddl_comm *comm);
/* From now on what comes for comm->id is dropped. Holder. */
void ddl_world_dismiss(ddl_world *world, struct ddl_comm *comm);

#endif
