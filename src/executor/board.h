/*
 * board.h - what a rank has to say to all others of its host, written once where all of them can read it.
 *
 * Each rank owns a pad of sheets in memory that all have mapped and writes them in turn; all post with each
 * operation, if only that they have come. An operation is done with when those have posted from whom
 * something is needed. So one that needs nothing, as the root of a broadcast, may be ahead: a rank posts only
 * when it has seen that all others have posted with its post so many (ahead) before. Who has posted has read
 * what was posted before; and who posts twice as far has seen that one from all. So with twice as many sheets
 * everybody sees each post of everybody before it is written over, and nobody has to say that he has read.
 *
 * What is longer than a sheet is in one of two places beside them, in turn. It is posted only when all have
 * posted with the last post.
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
    DDL_POST_BYTES = 256 * 1024, /* a post says at most */
    DDL_AHEAD = 64,              /* at most: where ranks are few */
    DDL_SHEETS = 2 * DDL_AHEAD,
    DDL_BOARD_RANKS = 64,
    DDL_BOARD_FEW = 8, /* all sheets of that many are mapped by each of them; of more two, so 1 ahead */
    DDL_SIGNATURE_WORDS = sizeof(ddl_signature) / sizeof(uint64_t)
};
_Static_assert(sizeof(ddl_signature) % sizeof(uint64_t) == 0, "a signature is whole words");

typedef uint64_t ddl_board_ranks; /* a bit for each */

/* In shared memory; all zero is an empty one. What others write into it is believed no further than its
 * length goes: readers read as many bytes as they expect. */
typedef struct ddl_sheet {
    _Alignas(128) _Atomic(uint64_t) number;           /* of the post: ddl_board_number, and its turn */
    _Atomic(uint64_t) signature[DDL_SIGNATURE_WORDS]; /* a ddl_signature */
    _Atomic(uint64_t) tells; /* a ddl_told, in posts of which all know that they may tell a place */
    /* The first of them in the line of the number. Sheets are no power of two apart, as the lines that are
     * written most would all be in one set of a cache. */
    uint8_t bytes[17 * 128 - (2 + DDL_SIGNATURE_WORDS) * sizeof(uint64_t)];
} ddl_sheet;

enum { DDL_SHEET_BYTES = sizeof(((ddl_sheet *)NULL)->bytes) };

/* All that a rank writes. */
typedef struct ddl_pad {
    ddl_sheet sheets[DDL_SHEETS];
    uint8_t pages[2][DDL_POST_BYTES]; /* of posts that are longer than a sheet */
} ddl_pad;

/* What a sheet has in place of bytes, and of what is withdrawn: what was read there may be anything. */
typedef enum ddl_told { DDL_TOLD_BYTES, DDL_TOLD_PLACE, DDL_TOLD_WITHDRAWN } ddl_told;

/* Where the buffers of a call are in memory of that rank which all others reach: from this piece on, and for
 * how many. */
typedef struct ddl_board_place {
    uint64_t in, out, npieces;
} ddl_board_place;

typedef struct ddl_posted {
    uint64_t number;   /* with its turn */
    uint64_t sequence; /* of the operation, in its communicator */
    ddl_signature signature;
} ddl_posted;

typedef struct ddl_board {
    int rank, nranks;
    unsigned ahead, nsheets; /* powers of two */
    ddl_board_ranks others;
    ddl_pad *pads[DDL_BOARD_RANKS]; /* of each rank */
    uint64_t posts;                 /* of this rank */
    uint64_t seen;                  /* up to which of them all others have been seen to have posted */
    size_t said_bytes;              /* by the last one */
    ddl_outlet outlet;
    /* Of the last posts, that of number n at n % DDL_AHEAD: what they were, and who has not been seen to have
     * posted with them, but never this rank. */
    ddl_posted posted[DDL_AHEAD];
    ddl_board_ranks unseen[DDL_AHEAD];
} ddl_board;

/*
 * Operations of communicators that use the same sheets one after the other have numbers of their own. The
 * last bit is left for the turn: what was posted on the same sheet the time before, and is all that can still
 * be there, differs in it, whichever operation and piece that was of.
 */
static inline uint64_t ddl_board_number(uint32_t communicator, uint64_t sequence)
{
    return ((uint64_t)communicator + 1) << 32 | (uint32_t)(sequence << 1);
}

/*
 * Take over the own pad. is_new: nobody had it before, and it is all zero. Members of the board that had it
 * have met, but may still compare what was posted last with their own: they see that it is gone before
 * anything is written there.
 */
void ddl_board_begin(ddl_board *board, bool is_new);

/* A board of so many ranks, of which this is one; its pads are still to be set. */
ddl_board ddl_board_of(int rank, int nranks);

/* From now on this rank is not ahead by more than one post: somebody may never come. */
static inline void ddl_board_stay_near(ddl_board *board)
{
    board->ahead = 1;
}

/* Whether enough has been seen for a post of so many bytes; else all others have to be seen to have posted
 * with board->seen + 1. */
static inline bool ddl_board_may_post(const ddl_board *board, size_t bytes)
{
    return board->posts < board->seen + (bytes > DDL_SHEET_BYTES ? 1 : board->ahead);
}

/* Say these parts of a buffer, one after the other, of so many bytes and at most DDL_POST_BYTES, to all; see
 * above. number: ddl_board_number. */
void ddl_board_post(ddl_board *board, uint64_t number, uint64_t sequence, const ddl_signature *signature,
                    const void *buffer, const ddl_slice parts[], int nparts, size_t bytes);

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

enum {
    DDL_LINE_BYTES = 64,
    DDL_HEAD_BYTES = DDL_LINE_BYTES - offsetof(ddl_sheet, bytes) /* beside the number */
};

/* One of the last DDL_AHEAD posts of this rank. */
static inline const ddl_posted *ddl_board_posted(const ddl_board *board, uint64_t post)
{
    return &board->posted[post % DDL_AHEAD];
}

/*
 * The next sheet's first lines are still with whoever read them last; to ask for them back while the last
 * post is dealt with takes a third off a small call, where cores are far from each other. Of what is longer
 * the first line has to be last, and would be taken away again meanwhile by who waits for it.
 */
static inline void ddl_board_fetch_next(const ddl_board *board)
{
#if defined(__x86_64__) /* elsewhere nothing was measured */
    const char *next =
        (const char *)&board->pads[board->rank]->sheets[(board->posts + 1) & (board->nsheets - 1)];
    if (board->said_bytes > DDL_HEAD_BYTES + DDL_LINE_BYTES)
        return;
    __asm__ volatile("prefetchw %0" : : "m"(next[0])); /* does nothing where there is no such thing */
    if (board->said_bytes > DDL_HEAD_BYTES)
        __asm__ volatile("prefetchw %0" : : "m"(next[DDL_LINE_BYTES]));
#else
    (void)board;
#endif
}

/* Of a rank that has posted with this post, what it posted. */
static inline const ddl_sheet *ddl_board_sheet(const ddl_board *board, uint64_t post, int rank)
{
    return &board->pads[rank]->sheets[post & (board->nsheets - 1)];
}

/* The same of the last post; is_long: it is longer than a sheet. */
static inline const uint8_t *ddl_board_bytes(const ddl_board *board, int rank, bool is_long)
{
    return is_long ? board->pads[rank]->pages[board->posts % 2]
                   : ddl_board_sheet(board, board->posts, rank)->bytes;
}

/* Of a rank that has posted. If its pad is another board's since, that may be writing it: it is to be
 * believed only if the rank still has posted after that. */
static inline ddl_signature ddl_board_signature(const ddl_board *board, uint64_t post, int rank)
{
    const ddl_sheet *sheet = ddl_board_sheet(board, post, rank);
    uint64_t words[DDL_SIGNATURE_WORDS];
    ddl_signature signature;
    for (int i = 0; i < DDL_SIGNATURE_WORDS; i++)
        words[i] = atomic_load_explicit(&sheet->signature[i], memory_order_relaxed);
    memcpy(&signature, words, sizeof signature);
    return signature;
}

/* Of a rank that has posted, after a look at its signature: whether it was that of this post, and not that of
 * a board that has the pad since. */
static inline bool ddl_board_still_has_posted(const ddl_board *board, uint64_t post, int rank)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&ddl_board_sheet(board, post, rank)->number, memory_order_relaxed) ==
           ddl_board_posted(board, post)->number;
}

/* Who of these has not been seen to have posted with a post. */
static inline ddl_board_ranks ddl_board_unseen(const ddl_board *board, uint64_t post, ddl_board_ranks among)
{
    return board->unseen[post % DDL_AHEAD] & among;
}

/* Whether a rank has; whatever its signature is. Its sheet is valid until this rank has posted as
 * often again as the board lets it be ahead. */
static inline bool ddl_board_has_posted(const ddl_board *board, uint64_t post, int rank)
{
    const ddl_sheet *sheet = ddl_board_sheet(board, post, rank);
    __builtin_prefetch((const char *)sheet + 64); /* comes with the number, if it comes */
    return atomic_load_explicit(&sheet->number, memory_order_acquire) ==
           ddl_board_posted(board, post)->number;
}

/* It has been seen. */
static inline void ddl_board_see(ddl_board *board, uint64_t post, int rank)
{
    board->unseen[post % DDL_AHEAD] &= ~((ddl_board_ranks)1 << rank);
    while (board->seen < board->posts && board->unseen[(board->seen + 1) % DDL_AHEAD] == 0)
        board->seen++;
}

#endif
