/* failure_own.c - how this rank made its calls, as far as it remembers. */
#include "api/failure_parts.h"

const ddl_request *ddl_failure_find_collective(const ddl_comm *comm, uint64_t sequence)
{
    DDL_LIST_FOR_EACH (link, ddl_table_row(&comm->by_sequence, sequence)) {
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, by_sequence.link);
        if (ddl_request_is_collective(request) && request->task.sequence == sequence &&
            (ddl_task_is_running(&request->task) || request->vote.stage != DDL_VOTE_NOT_VOTED))
            return request;
    }
    return NULL;
}

const ddl_request *ddl_failure_find_message(const ddl_comm *comm, ddl_collective direction, int peer,
                                            uint64_t sequence)
{
    const uint64_t hash = ddl_comm_message_hash(direction, peer, sequence);
    DDL_LIST_FOR_EACH (link, ddl_table_row(&comm->by_sequence, hash)) {
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, by_sequence.link);
        const ddl_task *task = &request->task;
        if (!ddl_channel_is_collective(task->channel) && task->sequence == sequence &&
            task->shape.root == peer && task->algorithm->collective == direction)
            return request;
    }
    return NULL;
}

const ddl_signature *ddl_failure_own_signature(const ddl_comm *comm, uint64_t sequence)
{
    const ddl_past *past = &comm->history[sequence % DDL_HISTORY];
    if (past->sequence == sequence)
        return &past->signature;
    const ddl_request *request = ddl_failure_find_collective(comm, sequence);
    return request != NULL ? &request->task.signature : NULL;
}

const size_t *ddl_failure_own_counts(const ddl_comm *comm, uint64_t sequence)
{
    const ddl_past *past = &comm->history[sequence % DDL_HISTORY];
    if (past->sequence == sequence && past->signature.collective == DDL_COLLECTIVE_ALLTOALLV)
        return past->counts;
    const ddl_request *request =
        ddl_failure_find_collective(comm, sequence); /* many others were issued since */
    return request != NULL ? ddl_request_pair_counts(request) : NULL;
}

const size_t *ddl_failure_expected_counts(const ddl_comm *comm, uint64_t sequence)
{
    const size_t *counts = ddl_failure_own_counts(comm, sequence);
    return counts != NULL ? counts + comm->nranks : NULL;
}

ddl_signature ddl_failure_expected_of(const ddl_comm *comm, int peer, const ddl_frame *frame,
                                      const ddl_signature *own)
{
    ddl_signature expected = *own;
    if (own->collective != DDL_COLLECTIVE_ALLTOALLV)
        return expected;
    const size_t *counts = ddl_failure_own_counts(comm, frame->sequence);
    bool from_receiver = ddl_frame_is_from_receiver(frame->type) || frame->type == DDL_FRAME_ENTER;
    if (counts != NULL)
        expected.count = counts[from_receiver ? peer : comm->nranks + peer];
    return expected;
}
