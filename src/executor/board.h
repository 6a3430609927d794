/*
 * board.h - what a rank has to say to all others of its host, written once where all of them can read it.
 *
 * Each rank owns two sheets in memory that all have mapped and writes them in turn; all post with each
 * operation, if only that they have come. An operation is done with when those have posted from whom
 * something is needed; but a rank posts again only when all others have posted with its last post, so
 * whoever posts for the second time after a post knows that everybody has read that one: two sheets are
 * enough, and nobody has to say that he has read.
 *
 * Order: a sheet is written before its number is published (release), and read after that was seen (acquire).
 * Nothing here waits or makes a system call.
 *
 * Thread: one at a time.
 */
#ifndef DDL_EXECUTOR_BOARD_H
#define DDL_EXECUTOR_BOARD_H

#include "base/outlet.h"
#include "executor/transport.h"
#include "schedule/schedule.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

enum {
    DDL_SHEET_BYTES = 256 * 1024,
    DDL_BOARD_RANKS = 64,
    DDL_SIGNATURE_WORDS = sizeof(ddl_signature) / sizeof(uint64_t)
};
_Static_assert(sizeof(ddl_signature) % sizeof(uint64_t) == 0, "a signature is whole words");

typedef uint64_t ddl_board_ranks; /* a bit for each */

/* In shared memory; all zero is an empty one. What others write into it is believed no further than its
 * length goes: readers read as many bytes as they expect. */
typedef struct ddl_sheet {
    _Alignas(128) _Atomic(uint64_t) number;           /* of the post: ddl_board_number, and its turn */
    _Atomic(uint64_t) signature[DDL_SIGNATURE_WORDS]; /* a ddl_signature */
    _Atomic(uint64_t) tells;        /* a ddl_told, in posts of which all know that they may tell a place */
    uint8_t bytes[DDL_SHEET_BYTES]; /* the first of them in the line of the number */
} ddl_sheet;

/* What a sheet has in place of bytes, and of what is withdrawn: what was read there may be anything. */
typedef enum ddl_told { DDL_TOLD_BYTES, DDL_TOLD_PLACE, DDL_TOLD_WITHDRAWN } ddl_told;

/* Where the buffers of a call are in memory of that rank which all others reach: from this piece on, and for
 * how many. */
typedef struct ddl_board_place {
    uint64_t in, out, npieces;
} ddl_board_place;

typedef struct ddl_board {
    int rank, nranks;
    ddl_sheet *sheets[DDL_BOARD_RANKS]; /* of each rank: its two */
    uint64_t posts;
    uint64_t number;   /* of the last post, with its turn */
    size_t said_bytes; /* by it */
    ddl_sheet *next;   /* for the next one, after the first */
    ddl_outlet outlet;
    ddl_board_ranks unseen; /* who has not been seen to have posted with it; never this rank */
} ddl_board;

/* All others. */
static inline ddl_board_ranks ddl_board_others(const ddl_board *board)
{
    ddl_board_ranks all =
        board->nranks < DDL_BOARD_RANKS ? ((ddl_board_ranks)1 << board->nranks) - 1 : ~(ddl_board_ranks)0;
    return all & ~((ddl_board_ranks)1 << board->rank);
}

/*
 * Operations of communicators that use the same sheets one after the other have numbers of their own. The
 * last bit is left for the turn: what was posted two posts before on the same sheet, and is all that can
 * still be there, differs in it, whichever operation and piece that was of.
 */
static inline uint64_t ddl_board_number(uint32_t communicator, uint64_t sequence)
{
    return ((uint64_t)communicator + 1) << 32 | (uint32_t)(sequence << 1);
}

/*
 * Take over the own sheets from whatever board had them. Members of that one have met, but may still compare
 * what was posted last with their own: they see that it is gone before anything is written there.
 */
void ddl_board_begin(ddl_board *board);

/* Say these parts of a buffer, one after the other and at most DDL_SHEET_BYTES, to all. All must have posted
 * with this rank's last post. */
void ddl_board_post(ddl_board *board, uint64_t number, const ddl_signature *signature, const void *buffer,
                    const ddl_slice parts[], int nparts);

/* Before a post of which all know that it may tell a place: whether it does, and has a ddl_board_place for
 * bytes. */
void ddl_board_tell(ddl_board *board, ddl_told told);

/* Nobody may rely any more on what this rank last told of a place; to be called before anything else is
 * written there. */
void ddl_board_withdraw(ddl_board *board);

/* Of a rank that has posted, where a place may be told: whether it is. */
bool ddl_board_tells_place(const ddl_board *board, int rank, ddl_board_place *place);

/* Whether a rank whose place was read had not withdrawn it until all was read. */
bool ddl_board_still_tells(const ddl_board *board, int rank);

/* The next of these ranks that has posted with this rank's last post; -1: wait for one, nranks: that were
 * all. A rank's sheet is valid until this rank posts again. */
int ddl_board_next(ddl_board *board, ddl_board_ranks among);

enum {
    DDL_LINE_BYTES = 64,
    DDL_HEAD_BYTES = DDL_LINE_BYTES - offsetof(ddl_sheet, bytes) /* beside the number */
};

/*
 * Once all have posted with the last post nobody reads the other sheet any more. Its first lines are still
 * with whoever read them last; to ask for them back while the last post is dealt with takes a third off a
 * small call, where cores are far from each other. Of what is longer the first line has to be last, and would
 * be taken away again meanwhile by who waits for it.
 */
static inline void ddl_board_fetch_next(const ddl_board *board)
{
#if defined(__x86_64__) /* elsewhere nothing was measured */
    const char *next = (const char *)board->next;
    if (board->said_bytes > DDL_HEAD_BYTES + DDL_LINE_BYTES)
        return;
    __asm__ volatile("prefetchw %0" : : "m"(next[0])); /* does nothing where there is no such thing */
    if (board->said_bytes > DDL_HEAD_BYTES)
        __asm__ volatile("prefetchw %0" : : "m"(next[DDL_LINE_BYTES]));
#else
    (void)board;
#endif
}

/* What a rank that has posted it posted. */
static inline const ddl_sheet *ddl_board_sheet(const ddl_board *board, int rank)
{
    return &board->sheets[rank][board->posts & 1];
}

/* Of a rank that has posted. If its sheets are another board's since, that may be writing them: it is to be
 * believed only if the rank still has posted after that. */
static inline ddl_signature ddl_board_signature(const ddl_board *board, int rank)
{
    const ddl_sheet *sheet = ddl_board_sheet(board, rank);
    uint64_t words[DDL_SIGNATURE_WORDS];
    ddl_signature signature;
    for (int i = 0; i < DDL_SIGNATURE_WORDS; i++)
        words[i] = atomic_load_explicit(&sheet->signature[i], memory_order_relaxed);
    memcpy(&signature, words, sizeof signature);
    return signature;
}

/* Of a rank that has posted, after a look at its signature: whether it was that of this post, and not that of
 * a board that has the sheets since. */
static inline bool ddl_board_still_has_posted(const ddl_board *board, int rank)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&ddl_board_sheet(board, rank)->number, memory_order_relaxed) == board->number;
}

/* Whether a rank has; whatever its signature is. */
static inline bool ddl_board_has_posted(const ddl_board *board, int rank)
{
    const ddl_sheet *sheet = ddl_board_sheet(board, rank);
    __builtin_prefetch((const char *)sheet + 64); /* comes with the number, if it comes */
    return atomic_load_explicit(&sheet->number, memory_order_acquire) == board->number;
}

#endif
