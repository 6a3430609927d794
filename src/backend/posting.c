/* posting.c - the queue of operations that share a board. */
#include "backend/posting.h"

#include "backend/telling.h"
#include "base/assert.h"

#include <string.h>

void ddl_posting_init(ddl_posting *posting, const ddl_posting_owner *owner, ddl_compute *compute)
{
    posting->owner = *owner;
    posting->compute = compute;
    ddl_list_init(&posting->posts);
}

void ddl_posting_fini(ddl_posting *posting)
{
    DDL_ASSERT(ddl_list_empty(&posting->posts));
    if (ddl_link_linked(&posting->link))
        ddl_list_remove(&posting->link);
}

static void post(ddl_posting *posting, ddl_post *next)
{
    ddl_board_place place;
    const ddl_slice *parts;
    int nparts = ddl_oneshot_posts(next->oneshot, next->round, &parts);
    const void *from = nparts > 0 && parts[0].buffer == DDL_BUFFER_IN ? next->in : next->out;
    if (ddl_post_may_tell(next))
        ddl_telling_choose(posting, next, &place, &from, &parts, &nparts);
    next->is_posted = true;
    posting->posted_sequence = next->sequence;
    posting->posted_signature = *next->signature;
    ddl_board_post(posting->owner.board, next->number, next->signature, from, parts, nparts);
}

/* Whether these ranks have posted the same as this one has last. */
static bool have_posted(ddl_posting *posting, ddl_board_ranks among)
{
    ddl_board *board = posting->owner.board;
    int rank;
    while ((rank = ddl_board_next(board, among)) >= 0 && rank < board->nranks) {
        const ddl_signature theirs = ddl_board_signature(board, rank);
        if (ddl_signature_same(&theirs, &posting->posted_signature) ||
            !ddl_board_still_has_posted(board, rank))
            continue;
        posting->is_spoilt = true;
        posting->owner.differs(posting->owner.arg, rank, posting->posted_sequence, &posting->posted_signature,
                               &theirs);
    }
    return rank >= 0 && !posting->is_spoilt;
}

/* It is among the busy ones until all have been seen to have come to what was posted last. */
static void note_whether_busy(ddl_posting *posting)
{
    bool is_busy =
        !ddl_list_empty(&posting->posts) || (posting->owner.board->unseen != 0 && !posting->is_spoilt);
    if (is_busy == ddl_link_linked(&posting->link))
        return;
    if (is_busy)
        ddl_list_append(posting->owner.busy, &posting->link);
    else
        ddl_list_remove(&posting->link);
}

/* Whether one is missing from whom the oldest needs something, which is what is looked at while waiting. */
static bool has_to_wait(const ddl_posting *posting, const ddl_post *oldest)
{
    const ddl_board *board = posting->owner.board;
    ddl_board_ranks left =
        board->unseen &
        (oldest->is_posted ? ddl_oneshot_needs(oldest->oneshot, oldest->round) : ddl_board_others(board));
    return left != 0 && !ddl_board_has_posted(board, __builtin_ctzll(left));
}

/* Of the oldest, a round of a piece. Who posts last need not wait until his post is seen everywhere to look
 * at the others'. */
static bool try_to_finish_round(ddl_posting *posting, ddl_post *oldest, int looks)
{
    bool is_new = !oldest->is_posted;
    if (is_new && posting->owner.board->unseen != 0 &&
        !have_posted(posting, ddl_board_others(posting->owner.board)))
        return false;
    if (is_new)
        post(posting, oldest);
    bool complete = have_posted(posting, ddl_oneshot_needs(oldest->oneshot, oldest->round));
    if (is_new)
        posting->owner.posted(posting->owner.arg);
    for (int i = 0; i < looks && !complete; i++)
        if (!has_to_wait(posting, oldest))
            complete = have_posted(posting, ddl_oneshot_needs(oldest->oneshot, oldest->round));
    if (!complete)
        return false;
    if (ddl_post_may_tell(oldest))
        return ddl_telling_finish(posting, oldest);
    if (posting->owner.board->unseen == 0)
        ddl_board_fetch_next(posting->owner.board);
    ddl_oneshot_finish(oldest->oneshot, oldest->round, posting->owner.board, oldest->in, oldest->out,
                       posting->compute, oldest->dtype, oldest->op, oldest->past_caches);
    return true;
}

/* As far as it goes, but no further than to the end of a piece: others are looked at, too. */
static bool try_to_finish(ddl_posting *posting, ddl_post *oldest, int looks)
{
    if (oldest->is_held || posting->is_spoilt)
        return false;
    while (try_to_finish_round(posting, oldest, looks)) {
        oldest->is_posted = false;
        if (++oldest->round < ddl_oneshot_rounds(oldest->oneshot))
            continue;
        if (oldest->next == NULL || !oldest->next(oldest))
            return true;
        oldest->round = 0;
        oldest->ndone++;
        return false;
    }
    return false;
}

bool ddl_posting_start(ddl_posting *posting, ddl_post *post, int looks)
{
    DDL_ASSERT(post->sequence > posting->newest);
    posting->newest = post->sequence;
    bool done = ddl_list_empty(&posting->posts) && try_to_finish(posting, post, looks);
    if (!done)
        ddl_list_append(&posting->posts, &post->link);
    note_whether_busy(posting);
    return done;
}

bool ddl_posting_progress(ddl_posting *posting)
{
    bool moved = false;
    for (ddl_link *first; (first = ddl_list_first(&posting->posts)) != NULL;) {
        ddl_post *oldest = DDL_CONTAINER(first, ddl_post, link);
        if (has_to_wait(posting, oldest))
            return moved;
        const int round = oldest->round;
        const uint32_t ndone = oldest->ndone;
        const bool finished = try_to_finish(posting, oldest, 0);
        moved = moved || oldest->round > round || oldest->ndone > ndone;
        if (!finished)
            break;
        ddl_list_remove(&oldest->link);
        oldest->finished(oldest);
    }
    if (ddl_list_empty(&posting->posts) && ddl_link_linked(&posting->link))
        (void)have_posted(posting, ddl_board_others(posting->owner.board));
    note_whether_busy(posting);
    return moved;
}

void ddl_posting_cancel(ddl_posting *posting, ddl_post *post)
{
    if (!ddl_link_linked(&post->link))
        return;
    ddl_list_remove(&post->link);
    ddl_telling_withdraw(posting, post);
    note_whether_busy(posting);
}

const ddl_signature *ddl_posting_waits_behind(const ddl_posting *posting, uint64_t *sequence)
{
    const ddl_link *first = ddl_list_first(&posting->posts);
    const ddl_post *oldest = first != NULL ? DDL_CONTAINER(first, ddl_post, link) : NULL;
    if (oldest == NULL || oldest->is_posted || oldest->ndone > 0 || oldest->is_held || posting->is_spoilt)
        return NULL;
    *sequence = posting->posted_sequence;
    return &posting->posted_signature;
}

bool ddl_posting_has_posted(const ddl_posting *posting, const ddl_post *post, int rank)
{
    return ddl_link_linked(&post->link) && (post->is_posted || post->ndone > 0) &&
           ddl_board_has_posted(posting->owner.board, rank);
}

void ddl_posting_visit_pending(const ddl_posting *posting, const ddl_post *post,
                               void (*visit)(void *arg, int rank, bool outgoing), void *arg)
{
    const ddl_board *board = posting->owner.board;
    bool is_first = ddl_list_first(&posting->posts) == &post->link;
    ddl_board_ranks others = ddl_board_others(board);
    ddl_board_ranks awaited = post->is_posted ? ddl_oneshot_needs(post->oneshot, post->round) : others;
    for (int rank = 0; rank < board->nranks; rank++)
        if ((posting->missed >> rank & 1) != 0 ||
            ((awaited >> rank & 1) != 0 && !(is_first && ddl_board_has_posted(board, rank))))
            visit(arg, rank, false);
}
