/* posting.c - the queue of operations that share a board. */
#include "backend/posting.h"

#include "base/assert.h"

#include <string.h>

void ddl_posting_init(ddl_posting *posting, const ddl_posting_owner *owner, ddl_compute *compute)
{
    posting->owner = *owner;
    posting->compute = compute;
    ddl_list_init(&posting->posts);
}

static void post(ddl_posting *posting, ddl_post *next)
{
    ddl_slice says = ddl_oneshot_posts(next->oneshot);
    const char *from = says.buffer == DDL_BUFFER_IN ? next->in : next->out;
    next->is_posted = true;
    ddl_board_post(posting->owner.board, next->number, next->signature,
                   says.bytes > 0 ? from + says.offset : NULL, says.bytes);
}

static bool same(const ddl_signature *a, const ddl_signature *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Whether all have posted the same operation as this, which is on the board. */
static bool is_complete(ddl_posting *posting, ddl_post *post)
{
    int nranks = posting->owner.board->nranks, rank;
    while ((rank = ddl_board_next(posting->owner.board)) >= 0 && rank < nranks) {
        ddl_signature theirs = ddl_board_sheet(posting->owner.board, rank)->signature;
        if (same(&theirs, post->signature))
            continue;
        post->is_spoilt = true;
        post->differs(post, rank, &theirs);
    }
    return rank == nranks && !post->is_spoilt;
}

static void take_off(ddl_posting *posting, ddl_post *post)
{
    ddl_list_remove(&post->link);
    if (ddl_list_empty(&posting->posts))
        ddl_list_remove(&posting->link);
}

/* Of the oldest. Who posts last need not wait until his post is seen everywhere to look at the others'. */
static bool try_to_finish(ddl_posting *posting, ddl_post *oldest)
{
    bool is_new = !oldest->is_posted;
    if (is_new)
        post(posting, oldest);
    bool complete = is_complete(posting, oldest);
    if (is_new)
        posting->owner.posted(posting->owner.arg);
    if (!complete)
        return false;
    take_off(posting, oldest);
    ddl_oneshot_finish(oldest->oneshot, posting->owner.board, oldest->in, oldest->out, posting->compute,
                       oldest->dtype, oldest->op);
    return true;
}

bool ddl_posting_start(ddl_posting *posting, ddl_post *post)
{
    bool is_first = ddl_list_empty(&posting->posts);
    DDL_ASSERT(post->sequence > posting->newest);
    posting->newest = post->sequence;
    if (is_first)
        ddl_list_append(posting->owner.busy, &posting->link);
    ddl_list_append(&posting->posts, &post->link);
    return is_first && try_to_finish(posting, post);
}

bool ddl_posting_progress(ddl_posting *posting)
{
    bool moved = false;
    for (ddl_link *first; (first = ddl_list_first(&posting->posts)) != NULL;) {
        ddl_post *oldest = DDL_CONTAINER(first, ddl_post, link);
        if (!try_to_finish(posting, oldest))
            break;
        oldest->finished(oldest);
        moved = true;
    }
    return moved;
}

void ddl_posting_cancel(ddl_posting *posting, ddl_post *post)
{
    if (ddl_link_linked(&post->link))
        take_off(posting, post);
}

bool ddl_posting_has_posted(const ddl_posting *posting, const ddl_post *post, int rank)
{
    return ddl_link_linked(&post->link) && post->is_posted &&
           ddl_board_has_posted(posting->owner.board, rank);
}

void ddl_posting_visit_pending(const ddl_posting *posting, const ddl_post *post,
                               void (*visit)(void *arg, int rank, bool outgoing), void *arg)
{
    const ddl_board *board = posting->owner.board;
    for (int rank = 0; rank < board->nranks; rank++)
        if (rank != board->rank && !ddl_posting_has_posted(posting, post, rank))
            visit(arg, rank, false);
}
