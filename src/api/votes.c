/* votes.c - the way of a call from its start to where it is performed. */
#include "api/votes_state.h"

#include "api/failure.h"
#include "api/issue.h"
#include "api/turns.h"
#include "base/bytes.h"

/* ---- life ---- */

ddl_status ddl_votes_create(ddl_comm *comm, ddl_error *err)
{
    size_t nranks = (size_t)comm->nranks;
    if (comm->world->voting_rule == DDL_VOTING_NEVER || comm->mesh == NULL)
        return DDL_OK;
    ddl_votes *votes = comm->votes = ddl_alloc(sizeof *votes);
    if (votes == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for votes");
    ddl_list_init(&votes->requests);
    votes->is_optional = comm->world->voting_rule == DDL_VOTING_SAMPLED;
    ddl_sampling_init(&votes->sampling, !votes->is_optional);
    ddl_offloading_init(&votes->offloading);
    votes->words = ddl_alloc_array(nranks * DDL_VOTES_BALLOTS, sizeof *votes->words);
    votes->facts = ddl_alloc_array(nranks, sizeof *votes->facts);
    votes->has_spoken = ddl_alloc_array(nranks, sizeof *votes->has_spoken);
    votes->moves = ddl_alloc_array(nranks, sizeof *votes->moves);
    if (votes->words == NULL || votes->facts == NULL || votes->has_spoken == NULL || votes->moves == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for votes of %d ranks", comm->nranks);
    return DDL_OK;
}

void ddl_votes_begin_close(ddl_comm *comm, ddl_deadline latest)
{
    if (comm->votes != NULL)
        ddl_offloading_begin_close(&comm->votes->offloading, ddl_failure_is_final(comm), latest);
}

void ddl_votes_free(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    if (votes == NULL)
        return;
    ddl_votes_begin_close(comm, DDL_DEADLINE_NEVER);
    ddl_errand_leave(votes->errand, ddl_deadline_left_ms(votes->offloading.close_by));
    ddl_offloading_close(&votes->offloading);
    ddl_free(votes->words);
    ddl_free(votes->facts);
    ddl_free(votes->has_spoken);
    ddl_free(votes->moves);
    ddl_free(votes);
    comm->votes = NULL;
}

/* ---- turns ---- */

bool ddl_votes_take_turn(ddl_votes *votes, int gpu)
{
    if (votes->nwanted == 0 && !ddl_turn_take(gpu, votes->offloading.turn))
        return false;
    votes->nwanted++;
    return true;
}

void ddl_votes_give_turn(ddl_votes *votes)
{
    if (--votes->nwanted == 0)
        ddl_turn_give(votes->offloading.gpu);
}

/* ---- which calls ---- */

static bool has_blocks(const ddl_shape *shape)
{
    for (int rank = 0; rank < shape->nranks; rank++)
        if (shape->blocks.counts[rank] > 0)
            return true;
    return false;
}

/* Whether there is something to do, as far as that is known to all. */
static bool has_elements(const ddl_shape *shape)
{
    bool is_secret = shape->out_blocks.counts != NULL; /* of an alltoallv each rank knows its own part */
    return is_secret || (shape->blocks.counts != NULL ? has_blocks(shape) : shape->count > 0);
}

/* Whether it could be put to the vote: the same on all ranks, if they make the same call. */
static bool is_candidate(const ddl_comm *comm, const ddl_request *request)
{
    const ddl_task *task = &request->task;
    if (task->signature.collective >= DDL_COLLECTIVE_COUNT) /* ddl's own call: split, free */
        return false;
    const ddl_collective collective = task->algorithm->collective;
    if (!ddl_collective_has_data(collective) || ddl_collective_is_point_to_point(collective))
        return false;
    if (ddl_collective_reduces(collective) && !ddl_votes_takes_op(task->op, task->dtype))
        return false;
    if (!has_elements(&task->shape))
        return false;
    return comm->votes->is_optional ? request->is_large : !ddl_backend_goes_by_board(comm->backend, task);
}

/* ---- the way of each ---- */

/* Whether it has to wait for what was called before it: boards are used in the order of calls, and whether a
 * candidate goes by one may not be known yet. */
static bool is_behind(const ddl_votes *votes, const ddl_request *request)
{
    if (!votes->is_optional || request->task.shape.post_bytes == 0)
        return false;
    DDL_LIST_FOR_EACH (link, &votes->requests) {
        ddl_vote_stage stage = ddl_votes_request_of(link)->vote.stage;
        if (stage == DDL_VOTE_WAITS || stage == DDL_VOTE_HOST)
            return true;
    }
    return false;
}

bool ddl_votes_begin(ddl_comm *comm, ddl_request *request)
{
    ddl_votes *votes = comm->votes;
    if (!ddl_request_is_collective(request))
        return false;
    bool is_first = ddl_list_empty(&votes->requests);
    if (is_candidate(comm, request)) {
        request->vote.candidate = ++votes->ncandidates;
        if (is_first && ddl_sampling_of(&votes->sampling, request->vote.candidate, true) == DDL_SAMPLED_OUT)
            return false;
    } else if (!is_behind(votes, request)) {
        return false;
    }
    if (ddl_failure_is_known(comm)) /* by what early frames said; it ends with that */
        return true;
    if (is_first)
        ddl_list_append(&comm->world->voting, &comm->voting);
    request->vote.stage = DDL_VOTE_WAITS;
    ddl_list_append(&votes->requests, &request->vote.link);
    votes->is_heard = true;
    comm->world->posts_held = true; /* who is lost meanwhile would have this list walked inside this walk */
    ddl_votes_vote(comm);
    comm->world->posts_held = false;
    return true;
}

void ddl_votes_leave(ddl_comm *comm, ddl_request *request)
{
    ddl_list_remove(&request->vote.link);
    request->vote.stage = DDL_VOTE_NOT_VOTED;
    if (ddl_list_empty(&comm->votes->requests))
        ddl_list_remove(&comm->voting);
}

/* Those that go by hosts do at once; the others in their order, which is that of all ranks. */
static bool go_on(ddl_comm *comm)
{
    bool moved = false, in_turn = true;
    DDL_LIST_FOR_EACH (link, &comm->votes->requests) {
        ddl_request *request = ddl_votes_request_of(link);
        if (ddl_failure_is_known(comm))
            return true;
        if (request->vote.stage == DDL_VOTE_HOST) {
            ddl_votes_leave(comm, request);
            ddl_issue_begin(request);
            moved = true;
        } else if (request->vote.stage == DDL_VOTE_GPU && in_turn) {
            in_turn = ddl_votes_make(comm, request, &moved) && ddl_votes_start(comm, request);
            moved = moved || in_turn;
            if (comm->votes->progress == DDL_OFFLOAD_UNUSABLE) {
                in_turn = moved = true;
                ddl_votes_give_turn(comm->votes);
                ddl_votes_leave(comm, request);
                ddl_issue_begin(request);
            }
        }
    }
    return moved;
}

bool ddl_votes_progress(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    bool moved = false;
    if (ddl_failure_is_known(comm))
        return false;
    if (votes->nended < votes->nbegun)
        moved = ddl_votes_finish(comm);
    bool may_go_on = votes->is_heard || moved || votes->errand != NULL || ddl_votes_is_coming_up(votes) ||
                     votes->nended < votes->nbegun;
    votes->is_heard = false;
    if (may_go_on && !ddl_failure_is_known(comm) && !ddl_list_empty(&votes->requests)) {
        ddl_votes_vote(comm);
        moved = go_on(comm) || moved;
    }
    if (moved)
        comm->world->voted_ns = ddl_now_ns();
    return moved;
}
