/* votes_calls.c - calls as NCCL performs them. */
#include "api/votes_state.h"

#include "api/failure.h"
#include "api/issue.h"

/* ---- which it has ---- */

bool ddl_votes_takes_op(ddl_op op, ddl_dtype dtype)
{
    if (dtype == DDL_INT16 || dtype == DDL_UINT16)
        return false;
    bool is_float = dtype >= DDL_FLOAT16;
    return op == DDL_SUM || op == DDL_PROD || (!is_float && (op == DDL_MIN || op == DDL_MAX));
}

ddl_offload_kind ddl_votes_kind(ddl_collective collective)
{
    switch (collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
        return DDL_OFFLOAD_ALLREDUCE;
    case DDL_COLLECTIVE_REDUCE:
        return DDL_OFFLOAD_REDUCE;
    case DDL_COLLECTIVE_REDUCE_SCATTER:
        return DDL_OFFLOAD_REDUCE_SCATTER;
    case DDL_COLLECTIVE_ALLGATHER:
        return DDL_OFFLOAD_ALLGATHER;
    case DDL_COLLECTIVE_BROADCAST:
        return DDL_OFFLOAD_BROADCAST;
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
        return DDL_OFFLOAD_REDUCE_SCATTERV;
    default:
        return DDL_OFFLOAD_MOVES;
    }
}

/* ---- what it moves ---- */

/* Bytes from the start of a buffer of one block for each rank. */
static size_t block_start(const ddl_shape *shape, int rank)
{
    size_t start = shape->blocks.counts != NULL ? shape->blocks.starts[rank] : (size_t)rank * shape->stride;
    return start * shape->element_bytes;
}

static size_t block_bytes(const ddl_shape *shape, int rank)
{
    return (shape->blocks.counts != NULL ? shape->blocks.counts[rank] : shape->count) * shape->element_bytes;
}

static size_t received_start(const ddl_shape *shape, int rank)
{
    return shape->out_blocks.counts != NULL ? shape->out_blocks.starts[rank] * shape->element_bytes
                                            : block_start(shape, rank);
}

static size_t received_bytes(const ddl_shape *shape, int rank)
{
    return shape->out_blocks.counts != NULL ? shape->out_blocks.counts[rank] * shape->element_bytes
                                            : block_bytes(shape, rank);
}

/* What a rank has for each to be reduced there, and what it gets. */
static void describe_reductions(const ddl_comm *comm, const ddl_task *task)
{
    const ddl_shape *shape = &task->shape;
    for (int rank = 0; rank < comm->nranks; rank++)
        comm->votes->moves[rank] =
            (ddl_offload_move){ .from = (const char *)task->in + block_start(shape, rank),
                                .sent_bytes = block_bytes(shape, rank),
                                .to = rank == comm->rank ? task->out : NULL };
}

/* Which of its blocks a rank sends and receives, for what NCCL has no call of its own. */
static void describe_moves(const ddl_comm *comm, const ddl_task *task)
{
    const ddl_shape *shape = &task->shape;
    const char *in = task->in;
    char *out = task->out;
    ddl_collective collective = task->algorithm->collective;
    bool gathers = collective == DDL_COLLECTIVE_GATHER || collective == DDL_COLLECTIVE_GATHERV;
    bool scatters = collective == DDL_COLLECTIVE_SCATTER || collective == DDL_COLLECTIVE_SCATTERV;
    bool sends_own = gathers || collective == DDL_COLLECTIVE_ALLGATHERV;
    for (int rank = 0; rank < comm->nranks; rank++) {
        ddl_offload_move *move = &comm->votes->moves[rank];
        size_t own_bytes = block_bytes(shape, comm->rank), its_bytes = block_bytes(shape, rank);
        *move = (ddl_offload_move){ .sent_bytes = 0 };
        if (rank == comm->rank && shape->in_place)
            continue;
        if (sends_own && (!gathers || rank == shape->root)) {
            move->from = in;
            move->sent_bytes = own_bytes;
        } else if (!sends_own && (!scatters || comm->rank == shape->root)) {
            move->from = in + block_start(shape, rank);
            move->sent_bytes = its_bytes;
        }
        if (scatters && rank == shape->root) {
            move->to = out;
            move->received_bytes = own_bytes;
        } else if (!scatters && (!gathers || comm->rank == shape->root)) {
            move->to = out + received_start(shape, rank);
            move->received_bytes = received_bytes(shape, rank);
        }
    }
}

/* ---- from start to end ---- */

bool ddl_votes_start(ddl_comm *comm, ddl_request *request)
{
    ddl_votes *votes = comm->votes;
    const ddl_task *task = &request->task;
    ddl_offload_call call = { .kind = ddl_votes_kind(task->algorithm->collective),
                              .in = task->in,
                              .out = task->out,
                              .count = task->shape.count,
                              .dtype = task->dtype,
                              .op = task->op,
                              .root = task->shape.root,
                              .nranks = comm->nranks,
                              .moves = votes->moves };
    if (call.kind == DDL_OFFLOAD_BROADCAST)
        call.in = task->out;
    if (call.kind == DDL_OFFLOAD_REDUCE_SCATTERV)
        describe_reductions(comm, task);
    if (call.kind == DDL_OFFLOAD_MOVES)
        describe_moves(comm, task);
    bool taken = false;
    ddl_error error;
    ddl_status status = votes->offloading.ops->start(votes->offloading.offload, &call, &taken, &error);
    if (status == DDL_OK && !taken)
        return false;
    request->vote.stage = DDL_VOTE_RUNNING;
    request->vote.number = votes->nbegun++;
    if (status != DDL_OK) /* a part of it may be under way */
        ddl_issue_fail(request, &error);
    return true;
}

bool ddl_votes_finish(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    ddl_error error;
    bool is_others = false;
    uint64_t nended = votes->nended;
    ddl_request *first = ddl_votes_request_of(ddl_list_first(&votes->requests));
    ddl_status status = votes->offloading.ops->look(votes->offloading.offload, &nended, &is_others, &error);
    if (status != DDL_OK && is_others)
        ddl_votes_blame_others(comm, first, &error);
    else if (status != DDL_OK)
        ddl_issue_fail(first, &error);
    bool moved = status != DDL_OK || nended > votes->nended;
    votes->nended = nended;
    DDL_LIST_FOR_EACH (link, &votes->requests) {
        ddl_request *request = ddl_votes_request_of(link);
        if (ddl_failure_is_known(comm) || request->vote.stage != DDL_VOTE_RUNNING ||
            request->vote.number >= nended)
            break;
        ddl_votes_leave(comm, request);
        ddl_votes_give_turn(votes);
        ddl_issue_finished(&request->task);
    }
    return moved;
}
