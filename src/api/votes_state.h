/*
 * votes_state.h - the votes of a communicator, as the files of votes share them. What their users need is in
 * votes.h.
 *
 * All of it is for the holder of the baton, but until the votes are created and once they are freed.
 */
#ifndef DDL_API_VOTES_STATE_H
#define DDL_API_VOTES_STATE_H

#include "api/errand.h"
#include "api/offloading.h"
#include "api/sampling.h"
#include "api/votes.h"

enum { DDL_VOTES_BALLOTS = 64 /* whose words are kept */ };

typedef struct ddl_word { /* of a rank, on a ballot */
    uint64_t ballot;      /* 0: it has said none here */
    uint64_t sequence;    /* of its call */
    bool for_gpu;         /* else its host performs that */
} ddl_word;

/* Of NCCL's communicator. From FINDING to OPENING there may be an errand, of the kind that the name says. */
typedef enum ddl_offload_progress {
    DDL_OFFLOAD_FINDING,         /* NCCL is found for the first call of this rank that could go there */
    DDL_OFFLOAD_FOUND,           /* this rank can say so, and which GPU is its own */
    DDL_OFFLOAD_NAMING,          /* all have said so; rank 0 makes what names it, the others wait for that */
    DDL_OFFLOAD_OPENING,         /* this rank's part comes up */
    DDL_OFFLOAD_AWAITING_OTHERS, /* it is up; where hosts can go on without, all parts have to be */
    DDL_OFFLOAD_USABLE,
    DDL_OFFLOAD_UNUSABLE /* hosts perform all calls */
} ddl_offload_progress;

struct ddl_votes {
    ddl_list requests;        /* by vote, oldest first */
    bool is_optional;         /* where NCCL cannot be used hosts go on without, as nobody asks for it */
    ddl_sampling sampling;    /* which candidates are put to the vote */
    uint64_t ncandidates;     /* calls that could be */
    uint64_t nballots;        /* calls that were */
    uint64_t ndecided;        /* the first so many of them, by all words */
    ddl_word *words;          /* of each rank, its own too, by ballot modulo DDL_VOTES_BALLOTS */
    ddl_offload_facts *facts; /* of each rank, as it said with its words for GPUs */
    ddl_offload_move *moves;
    ddl_offloading offloading;
    ddl_errand *errand; /* what calls wait for, or NULL */
    ddl_offload_progress progress;
    int64_t begun_ns; /* when what it waits for, to be found or to come up, was begun */
    int nup;          /* ranks whose part has come up */
    bool is_down;     /* another rank's has not */
    bool *has_spoken; /* of each other rank: has said whether its has */
    bool has_id;
    uint8_t id[DDL_OFFLOAD_ID_BYTES];
    bool is_heard; /* something was that may let requests go on */
    int nwanted;   /* own words for GPUs whose calls have not ended: it has the turn */
    uint64_t nbegun, nended;
    int64_t ask_ns; /* when missing words are asked for; 0 */
    int64_t ask_after_ms;
    uint64_t asked;  /* the oldest ballot that was not decided then */
    int left_ticks;  /* since it was noticed that a rank has left */
    int64_t stop_ns; /* until when GPUs are waited for after a failure; 0 */
};

static inline ddl_request *ddl_votes_request_of(ddl_link *link)
{
    return DDL_CONTAINER(link, ddl_request, vote.link);
}

/* It is named or opened, or others are awaited. */
static inline bool ddl_votes_is_coming_up(const ddl_votes *votes)
{
    return votes->progress >= DDL_OFFLOAD_NAMING && votes->progress <= DDL_OFFLOAD_AWAITING_OTHERS;
}

/* ---- votes.c: the way of a call ---- */

/* One call more on that GPU; false: another communicator of this process has it. One call less. */
bool ddl_votes_take_turn(ddl_votes *votes, int gpu);
void ddl_votes_give_turn(ddl_votes *votes);

/* The request waits here no longer. */
void ddl_votes_leave(ddl_comm *comm, ddl_request *request);

/* ---- votes_words.c: what ranks say of a call ---- */

/* An enter frame about a call of this rank's, without a word in its piece yet. */
ddl_frame ddl_votes_frame_about(const ddl_comm *comm, uint64_t sequence, const ddl_signature *signature);

/* To one rank, or to all others with peer -1. */
void ddl_votes_tell(ddl_comm *comm, int peer, ddl_frame frame, ddl_view payload);

/* Say of what waits as much as can be said now, and decide what all have spoken of. */
void ddl_votes_vote(ddl_comm *comm);

/* ---- votes_offload.c: NCCL's communicator ---- */

/* While it is being found: go on with that, for a request with buffers of this GPU. If that goes on, or it
 * could not be found and the communicator has failed for it, progress stays what it is. */
void ddl_votes_find(ddl_comm *comm, const ddl_request *request, int gpu);

/* Once it is found: as far as it goes now, for a request that waits for it. True: it can be used. *moved: set
 * if something changed. */
bool ddl_votes_make(ddl_comm *comm, const ddl_request *request, bool *moved);

/* The communicator fails, and who is to blame for that another rank knows. */
void ddl_votes_blame_others(ddl_comm *comm, const ddl_request *request, const ddl_error *error);

/* ---- votes_calls.c: calls that NCCL performs ---- */

/* True: it is under way, or has failed. */
bool ddl_votes_start(ddl_comm *comm, ddl_request *request);

/* Calls at NCCL end in the order in which they began. True: one has, or something is wrong. */
bool ddl_votes_finish(ddl_comm *comm);

#endif
