/* telling.c - telling where a piece is, using what others told, and taking it back.
 *
 * Kept out of the path of small calls, which is the shorter for it (noinline).
 */
#include "backend/telling.h"

#include "base/size.h"

enum { MOST_TOLD_BYTES = 4 * 1024 * 1024 };

/* ---- this rank's ---- */

/*
 * Whether all others may have the piece where it is, and those that follow. Should that have to be withdrawn,
 * whole pages are, so what else is on them has to be of the same call.
 */
static bool find_place(const ddl_posting *posting, ddl_post *post, ddl_board_place *place)
{
    const ddl_commons *commons = posting->owner.commons;
    const size_t piece_bytes = ddl_oneshot_common_bytes(post->oneshot);
    if (commons == NULL)
        return false;
    const size_t page_bytes = commons->page_bytes();
    const uintptr_t out = (uintptr_t)post->out, begin = out / page_bytes * page_bytes;
    const uintptr_t vector = (uintptr_t)post->vector,
                    end = (vector + post->vector_bytes) / page_bytes * page_bytes;
    if (begin < vector || end < out + piece_bytes)
        return false;
    const size_t npieces =
        ddl_size_min((end - out) / piece_bytes, ddl_size_max(MOST_TOLD_BYTES / piece_bytes, 1));
    size_t in_at, out_at;
    if (!commons->find(posting->owner.arg, post->in, npieces * piece_bytes, &in_at) ||
        !commons->find(posting->owner.arg, post->out, npieces * piece_bytes, &out_at))
        return false;
    *place = (ddl_board_place){ in_at, out_at, npieces };
    post->told = post->out;
    post->told_bytes = npieces * piece_bytes;
    return true;
}

__attribute__((noinline)) size_t ddl_telling_choose(const ddl_posting *posting, ddl_post *next,
                                                    ddl_board_place *place, const void **from,
                                                    const ddl_slice **parts, int *nparts)
{
    static const ddl_slice all = { .bytes = sizeof *place };
    const size_t bytes = ddl_oneshot_round_of(next->oneshot, next->round)->bytes;
    if (next->round > 0) {
        *nparts = next->all_tell ? 0 : *nparts;
        return next->all_tell ? 0 : bytes;
    }
    const bool tells = find_place(posting, next, place);
    ddl_board_tell(posting->owner.board, tells ? DDL_TOLD_PLACE : DDL_TOLD_BYTES);
    if (tells) {
        *from = place;
        *parts = &all;
        *nparts = 1;
    }
    return tells ? sizeof *place : bytes;
}

/* ---- the others' ---- */

/* How many pieces all have told the places of; 0: some say this one on their sheets. */
static size_t count_told(const ddl_posting *posting, const ddl_post *post, ddl_board_place places[])
{
    const ddl_board *board = posting->owner.board;
    size_t count = post->told_bytes / ddl_oneshot_common_bytes(post->oneshot);
    for (int rank = 0; rank < board->nranks; rank++) {
        places[rank].npieces = 0;
        if (rank == board->rank)
            continue;
        if (!ddl_board_tells_place(board, rank, &places[rank]))
            places[rank].npieces = 0;
        count = ddl_size_min(count, places[rank].npieces);
    }
    return count;
}

static void miss(ddl_posting *posting, int rank)
{
    posting->is_spoilt = true;
    posting->missed |= (ddl_board_ranks)1 << rank;
}

/* Find the buffers of those who told where they are. False: they cannot be reached. */
static bool reach_buffers(ddl_posting *posting, const ddl_board_place places[], size_t bytes,
                          ddl_oneshot_buffers buffers[])
{
    const ddl_commons *commons = posting->owner.commons;
    void *arg = posting->owner.arg;
    for (int rank = 0; rank < posting->owner.board->nranks; rank++) {
        buffers[rank] = (ddl_oneshot_buffers){ NULL, NULL };
        if (places[rank].npieces == 0)
            continue;
        if (commons != NULL)
            buffers[rank].in = commons->reach(arg, rank, places[rank].in, bytes);
        if (buffers[rank].in != NULL)
            buffers[rank].out = commons->reach(arg, rank, places[rank].out, bytes);
        if (buffers[rank].out == NULL)
            miss(posting, rank);
    }
    return !posting->is_spoilt;
}

static void finish_piece(const ddl_posting *posting, ddl_post *post, const ddl_oneshot_buffers buffers[])
{
    ddl_oneshot_finish_in(post->oneshot, posting->owner.board, buffers, post->in, post->out, posting->compute,
                          post->dtype, post->op, post->past_caches);
}

/*
 * The first round of a piece of which some told the place; if all did, of as many pieces as they all told.
 * This rank reads there, and writes there what comes of it. Who has given up meanwhile may have written where
 * this rank read: then it goes no further, and so nor does anybody else.
 */
static bool finish_first(ddl_posting *posting, ddl_post *post)
{
    const ddl_board *board = posting->owner.board;
    const size_t piece_bytes = ddl_oneshot_common_bytes(post->oneshot);
    ddl_board_place places[DDL_BOARD_RANKS];
    ddl_oneshot_buffers buffers[DDL_BOARD_RANKS];
    const size_t count = count_told(posting, post, places);
    if (!reach_buffers(posting, places, ddl_size_max(count, 1) * piece_bytes, buffers))
        return false;
    post->all_tell = count > 0;
    finish_piece(posting, post, buffers);
    for (size_t i = 1; i < count; i++) {
        post->next(post);
        post->ndone++;
        for (int rank = 0; rank < board->nranks; rank++)
            if (buffers[rank].out != NULL) {
                buffers[rank].in += piece_bytes;
                buffers[rank].out += piece_bytes;
            }
        finish_piece(posting, post, buffers);
    }
    for (int rank = 0; rank < board->nranks; rank++)
        if (places[rank].npieces > 0 && !ddl_board_still_tells(board, rank))
            miss(posting, rank);
    return !posting->is_spoilt;
}

/* To whoever told where it is, all others have written what is theirs before they posted again. */
static void finish_second(ddl_posting *posting, ddl_post *post)
{
    if (post->told_bytes == 0)
        ddl_oneshot_finish(post->oneshot, post->round, posting->owner.board, post->in, post->out,
                           posting->compute, post->dtype, post->op, post->past_caches);
    post->told_bytes = 0;
}

__attribute__((noinline)) bool ddl_telling_finish(ddl_posting *posting, ddl_post *post)
{
    if (post->round == 0)
        return finish_first(posting, post);
    finish_second(posting, post);
    return true;
}

/* ---- giving up ---- */

/* What is on whole pages of this rank that others may still write is nobody's then. */
void ddl_telling_withdraw(const ddl_posting *posting, ddl_post *post)
{
    if (post->told_bytes == 0)
        return;
    const size_t page_bytes = posting->owner.commons->page_bytes();
    const uintptr_t begin = (uintptr_t)post->told / page_bytes * page_bytes;
    const size_t bytes = (uintptr_t)post->told + post->told_bytes - begin;
    ddl_board_withdraw(posting->owner.board);
    posting->owner.commons->withdraw(posting->owner.arg, (void *)begin,
                                     (bytes + page_bytes - 1) / page_bytes * page_bytes);
    post->told_bytes = 0;
}
