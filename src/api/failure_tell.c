/* failure_tell.c - tells other ranks which operations this one has entered. */
#include "api/failure_parts.h"

#include "protocol/overlay.h"

bool ddl_failure_is_told(const ddl_comm *comm, int peer, int rank)
{
    if (peer >= 0 || rank == comm->rank)
        return rank == peer;
    return !comm->sparse || ddl_mesh_is_linked(comm->mesh, comm->members[rank]) ||
           ddl_overlay_has(comm->nranks, comm->rank, rank);
}

void ddl_failure_tell(ddl_comm *comm, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    for (int rank = 0; rank < comm->nranks; rank++)
        if (ddl_failure_is_told(comm, peer, rank))
            ddl_mesh_tell(comm->mesh, comm->members[rank], frame, notice);
}

ddl_frame ddl_failure_enter_frame(uint32_t channel, uint64_t sequence, const ddl_signature *signature)
{
    return (ddl_frame){
        .type = DDL_FRAME_ENTER, .channel = channel, .sequence = sequence, .signature = *signature
    };
}

void ddl_failure_tell_entered(ddl_comm *comm, int peer, uint64_t sequence, const ddl_signature *signature,
                              bool is_answer)
{
    if (comm->sparse) {
        ddl_failure_pass_on(comm, peer, sequence, signature);
        return;
    }
    ddl_frame enter =
        ddl_failure_enter_frame(ddl_channel_of(comm->id, DDL_CHANNEL_COLLECTIVE), sequence, signature);
    enter.number = is_answer;
    if (signature->collective != DDL_COLLECTIVE_ALLTOALLV) {
        ddl_failure_tell(comm, peer, &enter, NULL);
        return;
    }
    /* What it expects of each is what each of them can compare. */
    const size_t *counts = ddl_failure_own_counts(comm, sequence);
    for (int rank = 0; counts != NULL && rank < comm->nranks; rank++) {
        enter.signature.count = counts[comm->nranks + rank];
        if (rank != comm->rank && (peer < 0 || peer == rank))
            ddl_failure_tell(comm, rank, &enter, NULL);
    }
}

void ddl_failure_tell_next(ddl_comm *comm, const ddl_signature *signature)
{
    ddl_failure_tell_entered(comm, -1, comm->issued + 1, signature, true);
}

void ddl_failure_tell_forgotten(ddl_comm *comm, int peer, uint64_t sequence)
{
    static const ddl_signature nothing = { 0 };
    if (comm->sparse) {
        ddl_failure_pass_on(comm, peer, sequence, NULL);
        return;
    }
    ddl_frame enter =
        ddl_failure_enter_frame(ddl_channel_of(comm->id, DDL_CHANNEL_COLLECTIVE), sequence, &nothing);
    enter.number = 1; /* no question */
    enter.piece = DDL_ENTER_FORGOTTEN;
    ddl_failure_tell(comm, peer, &enter, NULL);
}

void ddl_failure_tell_other_end(ddl_comm *comm, const ddl_task *task)
{
    ddl_frame enter = ddl_failure_enter_frame(task->channel, task->sequence, &task->signature);
    enter.piece =
        task->algorithm->collective == DDL_COLLECTIVE_SEND ? DDL_ENTER_FROM_SENDER : DDL_ENTER_FROM_RECEIVER;
    ddl_failure_tell(comm, task->shape.root, &enter, NULL);
}
