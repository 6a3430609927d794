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

/* Whether these ranks have posted the same as this one has with this post. */
static bool have_posted(ddl_posting *posting, uint64_t post, ddl_board_ranks among)
{
    ddl_board *board = posting->owner.board;
    const ddl_posted *own = ddl_board_posted(board, post);
    for (ddl_board_ranks left = ddl_board_unseen(board, post, among); left != 0; left &= left - 1) {
        const int rank = __builtin_ctzll(left);
        if (!ddl_board_has_posted(board, post, rank))
            return false;
        ddl_board_see(board, post, rank);
        const ddl_signature theirs = ddl_board_signature(board, post, rank);
        if (ddl_signature_same(&theirs, &own->signature) || !ddl_board_still_has_posted(board, post, rank))
            continue;
        posting->is_spoilt = true;
        posting->owner.differs(posting->owner.arg, rank, own->sequence, &own->signature, &theirs);
    }
    return !posting->is_spoilt;
}

/* As far as all others have come: whether they have posted the same as this rank in all calls until here.
 * Kept out of the path of small calls (noinline). */
static __attribute__((noinline)) bool look_back(ddl_posting *posting)
{
    const ddl_board *board = posting->owner.board;
    while (board->seen < board->posts && have_posted(posting, board->seen + 1, board->others))
        continue;
    return !posting->is_spoilt;
}

/* It is among the busy ones until all have been seen to have come to what was posted last. */
static void note_whether_busy(ddl_posting *posting)
{
    const ddl_board *board = posting->owner.board;
    bool is_busy = !ddl_list_empty(&posting->posts) || (board->seen < board->posts && !posting->is_spoilt);
    if (is_busy == ddl_link_linked(&posting->link))
        return;
    if (is_busy)
        ddl_list_append(posting->owner.busy, &posting->link);
    else
        ddl_list_remove(&posting->link);
}

static const ddl_oneshot_round *round_of(const ddl_post *post)
{
    return ddl_oneshot_round_of(post->oneshot, post->round);
}

static bool may_post(const ddl_posting *posting, const ddl_post *next)
{
    return ddl_board_may_post(posting->owner.board, round_of(next)->bytes);
}

/* Whether the first of these that have not been seen to have posted is missing still, which is what is looked
 * at while waiting. */
static bool is_missing(const ddl_board *board, uint64_t post, ddl_board_ranks among)
{
    const ddl_board_ranks left = ddl_board_unseen(board, post, among);
    return left != 0 && !ddl_board_has_posted(board, post, __builtin_ctzll(left));
}

/* For what the oldest needs, or to be posted. */
static bool has_to_wait(const ddl_posting *posting, const ddl_post *oldest)
{
    const ddl_board *board = posting->owner.board;
    if (oldest->is_posted)
        return is_missing(board, board->posts, round_of(oldest)->needs);
    return !may_post(posting, oldest) && is_missing(board, board->seen + 1, board->others);
}

static void post(ddl_posting *posting, ddl_post *next)
{
    ddl_board_place place;
    const ddl_oneshot_round *round = round_of(next);
    const ddl_slice *parts = round->parts;
    int nparts = round->nparts;
    size_t bytes = round->bytes;
    const void *from = nparts > 0 && parts[0].buffer == DDL_BUFFER_IN ? next->in : next->out;
    if (ddl_post_may_tell(next))
        bytes = ddl_telling_choose(posting, next, &place, &from, &parts, &nparts);
    next->is_posted = true;
    ddl_board_post(posting->owner.board, next->number, next->sequence, next->signature, from, parts, nparts,
                   bytes);
}

/* Of the oldest, a round of a piece. Who posts last need not wait until his post is seen everywhere to look
 * at the others'. */
static bool try_to_finish_round(ddl_posting *posting, ddl_post *oldest, int looks)
{
    ddl_board *board = posting->owner.board;
    const ddl_board_ranks needs = round_of(oldest)->needs;
    const bool is_new = !oldest->is_posted;
    while (is_new && !may_post(posting, oldest))
        if (!have_posted(posting, board->seen + 1, board->others))
            return false;
    if (is_new)
        post(posting, oldest);
    bool complete = have_posted(posting, board->posts, needs);
    if (is_new)
        posting->owner.posted(posting->owner.arg);
    for (int i = 0; i < looks && !complete; i++)
        if (!has_to_wait(posting, oldest))
            complete = have_posted(posting, board->posts, needs);
    if (!complete) {
        if (is_new)
            (void)look_back(posting);
        return false;
    }
    if (needs == board->others && board->seen < board->posts && !look_back(posting))
        return false;
    if (ddl_post_may_tell(oldest))
        return ddl_telling_finish(posting, oldest);
    ddl_board_fetch_next(board);
    ddl_oneshot_finish(oldest->oneshot, oldest->round, board, oldest->in, oldest->out, posting->compute,
                       oldest->dtype, oldest->op, oldest->past_caches);
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
        (void)look_back(posting);
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

const ddl_signature *ddl_posting_waits_behind(ddl_posting *posting, uint64_t *sequence)
{
    const ddl_board *board = posting->owner.board;
    const ddl_link *first = ddl_list_first(&posting->posts);
    const ddl_post *oldest = first != NULL ? DDL_CONTAINER(first, ddl_post, link) : NULL;
    if (oldest == NULL || posting->is_spoilt || !look_back(posting) || oldest->is_held ||
        board->seen == board->posts)
        return NULL;
    const ddl_posted *behind = ddl_board_posted(board, board->seen + 1);
    *sequence = behind->sequence;
    return behind->sequence < oldest->sequence ? &behind->signature : NULL;
}

static bool have_all_posted(const ddl_board *board, uint64_t post)
{
    ddl_board_ranks left = board->others;
    while (left != 0 && ddl_board_has_posted(board, post, __builtin_ctzll(left)))
        left &= left - 1;
    return left == 0;
}

/* The first post of this operation that not all others have posted; the last one if all have. */
static uint64_t first_missing(const ddl_board *board, uint64_t sequence)
{
    uint64_t missing = board->seen + 1;
    while (missing < board->posts &&
           (ddl_board_posted(board, missing)->sequence != sequence || have_all_posted(board, missing)))
        missing++;
    return board->posts < missing ? board->posts : missing;
}

bool ddl_posting_has_posted(const ddl_posting *posting, const ddl_post *post, int rank)
{
    const ddl_board *board = posting->owner.board;
    return ddl_link_linked(&post->link) && (post->is_posted || post->ndone > 0) &&
           ddl_board_has_posted(board, first_missing(board, post->sequence), rank);
}

bool ddl_posting_is_begun(const ddl_posting *posting, const ddl_post *post)
{
    const ddl_board *board = posting->owner.board;
    return board->seen > 0 && board->posts - board->seen < DDL_AHEAD &&
           ddl_board_posted(board, board->seen)->sequence == post->sequence;
}

void ddl_posting_visit_pending(const ddl_posting *posting, const ddl_post *post,
                               void (*visit)(void *arg, int rank, bool outgoing), void *arg)
{
    const ddl_board *board = posting->owner.board;
    const bool is_first = ddl_list_first(&posting->posts) == &post->link;
    const ddl_board_ranks awaited = post->is_posted ? round_of(post)->needs : board->others;
    const uint64_t behind = !post->is_posted && !may_post(posting, post) ? board->seen + 1 : board->posts;
    for (int rank = 0; rank < board->nranks; rank++)
        if ((posting->missed >> rank & 1) != 0 ||
            ((awaited >> rank & 1) != 0 && !(is_first && ddl_board_has_posted(board, behind, rank))))
            visit(arg, rank, false);
}
