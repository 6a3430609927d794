/*
 * posting.h - operations over a board: begun in order, one at a time, and finished when those have posted
 * from whom something is needed.
 *
 * Everything here is for the holder of the engine's baton only.
 */
#ifndef DDL_BACKEND_POSTING_H
#define DDL_BACKEND_POSTING_H

#include "executor/oneshot.h"

/* Memory of each rank that all others of the board reach. */
typedef struct ddl_commons {
    /* Whether all of it is in this rank's, and at which offset. */
    bool (*find)(void *arg, const void *data, size_t bytes, size_t *offset);
    /* Where so many bytes of another rank's are here. NULL: nowhere, as it is lost, or told nonsense. */
    void *(*reach)(void *arg, int rank, uint64_t offset, size_t bytes);
    /* Nobody is to write there any more who was told of these whole pages. */
    void (*withdraw)(void *arg, void *pages, size_t bytes);
    size_t (*page_bytes)(void);
} ddl_commons;

typedef struct ddl_posting_owner {
    ddl_board *board;          /* NULL: there is none, and nothing is ever started */
    void (*posted)(void *arg); /* something was: wake those of the others who sleep */
    /* Another rank has posted something else with this operation; called once for each of them. If the
     * operation is still under way, it may not finish, and is to be cancelled. */
    void (*differs)(void *arg, int rank, uint64_t sequence, const ddl_signature *ours,
                    const ddl_signature *theirs);
    void *arg;
    ddl_list
        *busy; /* of ddl_posting.link, while something is under way, or others have not come to the last */
    const ddl_commons *commons; /* NULL: there are none */
} ddl_posting_owner;

typedef struct ddl_posting { /* of one communicator */
    ddl_posting_owner owner;
    ddl_compute *compute;
    ddl_list posts; /* ddl_post, oldest first: the first one is on the board, or about to be */
    ddl_link link;
    uint64_t newest; /* sequence of the last one */
    bool is_spoilt;  /* somebody has posted something else, or is one of these */
    ddl_board_ranks
        missed; /* who has taken back what it told, or is not reached: they are waited for in vain */
} ddl_posting;

typedef struct ddl_post ddl_post;

struct ddl_post { /* an operation; embedded in a task, all zero before the start */
    ddl_link link;
    /* Set by the caller. */
    const ddl_oneshot *oneshot; /* of a piece */
    const ddl_signature *signature;
    uint64_t number, sequence; /* of the operation: on the board, and in its communicator */
    void *in, *out;            /* where the piece is */
    void *vector;              /* all of OUT, where pieces are of a vector, */
    size_t vector_bytes;       /* and how much that is */
    ddl_dtype dtype;
    ddl_op op;
    bool past_caches; /* see ddl_binding */
    /* A piece is done: describe the next one, by oneshot, in, out and is_held; false: it was the
     * last. NULL: there is but one. */
    bool (*next)(ddl_post *post);
    void (*finished)(ddl_post *post); /* once, from progress, unless start said that it was done */
    bool is_held; /* what it says is not there yet: nothing is posted while it is the oldest */
    /* The posting's. */
    int round;      /* that the piece is in; once all is done: how many there were */
    bool is_posted; /* in that */
    void *told;     /* OUT as others were told its place, and so many bytes of it; 0: they were not */
    size_t told_bytes;
    bool all_tell;  /* so all were, after the first round */
    uint32_t ndone; /* pieces, but the last; all have begun if there is one */
};

void ddl_posting_init(ddl_posting *posting, const ddl_posting_owner *owner, ddl_compute *compute);

/* In the order of their sequences, as the other ranks do. looks: for what others have not posted yet, so many
 * more times before it is left to ddl_posting_progress. True: it is done already. */
bool ddl_posting_start(ddl_posting *posting, ddl_post *post, int looks);

/* Finish what can be. True: something did. */
bool ddl_posting_progress(ddl_posting *posting);

/* At the end; nothing may be under way. */
void ddl_posting_fini(ddl_posting *posting);

/* Nothing is called any more, and buffers are not touched. */
void ddl_posting_cancel(ddl_posting *posting, ddl_post *post);

/* To be asked now and then while something waits: look at what others have posted since. Of the first
 * operation before the oldest one that not all are known to have come to: *sequence. NULL: there is none, or
 * nothing waits. */
const ddl_signature *ddl_posting_waits_behind(ddl_posting *posting, uint64_t *sequence);

/* Whether a rank is known to have come as far in this operation as any that is waited for: of those that have
 * not come to the round that this one is in, none is behind it. Who waits for one that is behind is not late.
 */
bool ddl_posting_has_posted(const ddl_posting *posting, const ddl_post *post, int rank);

/* Whether all others are known to have begun this operation. */
bool ddl_posting_is_begun(const ddl_posting *posting, const ddl_post *post);

/* Ranks that have not posted what this one waits for: with this operation, or with the one before; and those
 * that it can do nothing more with. */
void ddl_posting_visit_pending(const ddl_posting *posting, const ddl_post *post,
                               void (*visit)(void *arg, int rank, bool outgoing), void *arg);

#endif
