/* failure_calls.c - whether the calls of other ranks fit those of this one. */
#include "api/failure_parts.h"

/* Of an operation that is not in flight, and whose call, if there was one, is not remembered. */
static bool is_stray(const ddl_comm *comm, int peer, const ddl_frame *frame)
{
    const bool of_message = frame->type == DDL_FRAME_EAGER || frame->type == DDL_FRAME_ASK ||
                            frame->type == DDL_FRAME_OFFER || frame->type == DDL_FRAME_GRANT ||
                            frame->type == DDL_FRAME_PLACE || frame->type == DDL_FRAME_SOURCE;
    if (ddl_failure_is_known(comm))
        return false;
    if (ddl_channel_is_collective(frame->channel))
        return of_message && frame->sequence <= comm->entered[comm->rank];
    /* Who receives may still ask for what was sent without being asked, and who sends have said that he waits
     * for what has come since, by another connection: of these only the last is known to have been empty. */
    const bool from_receiver = ddl_failure_is_from_receiver(frame);
    const ddl_past_messages *past = &comm->messages[(from_receiver ? 0 : comm->nranks) + peer];
    if (frame->type == DDL_FRAME_ENTER || from_receiver)
        return frame->sequence == past->empty_sequence;
    return of_message && frame->sequence <= past->sequence;
}

/* What peer called there. It may be heard before the cause by which it is of interest, as that may come from
 * another rank. */
static void note_call(ddl_comm *comm, int peer, uint64_t sequence, const ddl_signature *theirs)
{
    ddl_failure *failure = &comm->failure;
    ddl_told_call *told = &failure->calls[peer];
    if (sequence > comm->entered[peer])
        comm->entered[peer] = sequence;
    const bool is_settling = ddl_failure_is_known(comm) && ddl_failure_is_of_calls(&failure->cause);
    if (!is_settling || told->sequence != failure->cause.sequence || sequence == told->sequence)
        *told = (ddl_told_call){ sequence, ddl_failure_common_part(theirs) };
}

void ddl_failure_note_asked(ddl_comm *comm, uint64_t sequence)
{
    ddl_failure *failure = &comm->failure;
    if (sequence <= comm->entered[comm->rank])
        return;
    failure->asked = sequence > failure->asked ? sequence : failure->asked;
    failure->is_asked = true;
}

/* A peer that waits for long wants to know who is, or was, in the operation too. */
static void answer(ddl_comm *comm, int peer, uint64_t sequence, const ddl_signature *ours)
{
    const ddl_request *mine = ddl_failure_find_collective(comm, sequence);
    ddl_failure_note_asked(comm, sequence);
    if (sequence > comm->entered[comm->rank] || !ddl_mesh_may_answer(comm->mesh, comm->members[peer]))
        return;
    /* What this rank told says nothing of what it sends there, where counts differ from pair to pair. */
    const bool peer_knows =
        mine != NULL && mine->told && mine->task.signature.collective != DDL_COLLECTIVE_ALLTOALLV;
    if (ours != NULL && !peer_knows)
        ddl_failure_tell_entered(comm, peer, sequence, ours, true);
    else if (!peer_knows)
        ddl_failure_tell_forgotten(comm, peer, sequence);
}

bool ddl_failure_heard(ddl_comm *comm, int peer, const ddl_frame *frame)
{
    const ddl_signature theirs = frame->signature;
    const ddl_signature *ours = NULL;
    if (frame->type == DDL_FRAME_ENTER && ddl_channel_is_collective(frame->channel) &&
        (frame->piece == DDL_ENTER_PASSED_ON || frame->piece == DDL_ENTER_FORGOTTEN)) {
        if (frame->piece == DDL_ENTER_FORGOTTEN && frame->sequence > comm->entered[peer])
            comm->entered[peer] = frame->sequence;
        return true;
    }
    if (ddl_channel_is_collective(frame->channel)) {
        note_call(comm, peer, frame->sequence, &theirs);
        ours = ddl_failure_own_signature(comm, frame->sequence);
        if (frame->type == DDL_FRAME_ENTER && frame->number == 0 && !ddl_failure_is_known(comm))
            answer(comm, peer, frame->sequence, ours);
    } else {
        /* A send hears grants, a receive everything else. */
        ddl_collective direction =
            ddl_failure_is_from_receiver(frame) ? DDL_COLLECTIVE_SEND : DDL_COLLECTIVE_RECV;
        const ddl_request *request = ddl_failure_find_message(comm, direction, peer, frame->sequence);
        if (request != NULL)
            ours = &request->task.signature;
    }
    if (ours == NULL) {
        if (is_stray(comm, peer, frame)) {
            const ddl_notice notice = ddl_failure_stray(comm, frame, peer, &theirs);
            ddl_failure_raise(comm, &notice);
        }
        return true;
    }
    ddl_signature expected = ddl_failure_expected_of(comm, peer, frame, ours);
    const bool fits = ddl_signature_same(&expected, &theirs);
    if (!fits) {
        const ddl_notice notice = ddl_failure_mismatch(comm, frame, &expected, peer, &theirs);
        ddl_failure_raise(comm, &notice);
    }
    return fits;
}

void ddl_failure_differs(ddl_comm *comm, uint64_t sequence, const ddl_signature *ours, int rank,
                         const ddl_signature *theirs)
{
    const ddl_frame frame =
        ddl_failure_enter_frame(ddl_channel_of(comm->id, DDL_CHANNEL_COLLECTIVE), sequence, theirs);
    const ddl_notice notice = ddl_failure_mismatch(comm, &frame, ours, rank, theirs);
    note_call(comm, rank, sequence, theirs);
    if (comm->failure.phase <= DDL_FAILURE_HELD)
        ddl_failure_hold(comm, &notice);
    else
        ddl_failure_raise(comm, &notice);
}

typedef struct early_look {
    ddl_comm *comm;
    bool fits;
} early_look;

static void hear_early(void *arg, int world_peer, const ddl_frame *frame)
{
    early_look *look = arg;
    const int peer = look->comm->rank_of[world_peer];
    if (peer >= 0 && !ddl_failure_heard(look->comm, peer, frame))
        look->fits = false;
}

/* Whether somebody has asked who is in this operation. From now on this rank is. */
static bool was_asked(ddl_comm *comm, const ddl_request *request)
{
    ddl_failure *failure = &comm->failure;
    const bool is_so = failure->is_asked && request->task.sequence <= failure->asked;
    if (ddl_request_is_collective(request) && request->task.sequence >= failure->asked)
        failure->is_asked = false;
    return is_so;
}

bool ddl_failure_check_early(ddl_comm *comm, const ddl_request *request)
{
    early_look look = { comm, ddl_failure_fits_first(comm, request) };
    ddl_mesh_visit_early(comm->mesh, request->task.channel, request->task.sequence, hear_early, &look);
    const ddl_failure *failure = &comm->failure;
    const bool is_awaited = ddl_failure_is_known(comm) && ddl_failure_is_of_calls(&failure->cause) &&
                            failure->cause.sequence == request->task.sequence;
    const bool is_asked = was_asked(comm, request);
    /* It may send nothing else: a root that posts on the board goes on, whatever the others call. */
    if ((is_awaited || is_asked || !look.fits) && ddl_request_is_collective(request))
        ddl_failure_tell_entered(comm, -1, request->task.sequence, &request->task.signature, true);
    return look.fits;
}

bool ddl_failure_has_told_of_freeing(const ddl_comm *comm, int peer, uint64_t sequence)
{
    const ddl_told_call *last = &comm->failure.calls[peer];
    return last->sequence == sequence && last->signature.collective == DDL_SIGNATURE_FREE;
}

/* Whether it is known how this rank called the operation that the cause is about. */
static bool is_call_known(const ddl_failure *failure, int rank)
{
    return failure->calls[rank].sequence == failure->cause.sequence;
}

bool ddl_failure_knows_all_calls(const ddl_comm *comm)
{
    const ddl_failure *failure = &comm->failure;
    bool all = ddl_failure_is_of_calls(&failure->cause) &&
               ddl_failure_own_signature(comm, failure->cause.sequence) != NULL;
    for (int rank = 0; all && rank < comm->nranks; rank++)
        all = rank == comm->rank || is_call_known(failure, rank);
    return all;
}

void ddl_failure_find_lowest_pair(ddl_comm *comm)
{
    ddl_failure *failure = &comm->failure;
    const ddl_told_call *calls = failure->calls;
    const ddl_signature *own = ddl_failure_own_signature(comm, failure->cause.sequence);
    if (own != NULL)
        failure->calls[comm->rank] = (ddl_told_call){ failure->cause.sequence, ddl_failure_common_part(own) };
    for (int low = 0; low < comm->nranks; low++)
        for (int high = low + 1; high < comm->nranks; high++) {
            if (!is_call_known(failure, low) || !is_call_known(failure, high) ||
                ddl_signature_same(&calls[low].signature, &calls[high].signature))
                continue;
            ddl_notice notice = failure->cause;
            notice.witness = low;
            notice.culprit = high;
            if (ddl_notice_precedes(&notice, &failure->cause)) {
                ddl_failure_describe_pair(comm, &notice, &calls[low].signature, &calls[high].signature);
                failure->cause = notice;
            }
            return;
        }
}
