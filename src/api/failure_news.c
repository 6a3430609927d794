/*
 * failure_news.c - what ranks pass on of an operation where not all pairs are connected.
 *
 * There (ddl_comm.sparse) what is for all goes to those that are connected and to the neighbours in the
 * overlay, and who hears news passes them on: a cause that is better than what it knew (failure.c), and who
 * has entered an operation, and how rank 0 called it. The lowest disagreeing pair has rank 0 in it, if any
 * pair disagrees at all.
 */
#include "api/failure_parts.h"

#include "protocol/sightings.h"

/* What this rank knows of who is in this operation, as the payload of an enter frame. */
static ddl_view sightings(const ddl_comm *comm, uint64_t sequence, uint8_t bytes[DDL_FRAME_NOTICE_LIMIT])
{
    ddl_sightings known = { .nranks = comm->nranks };
    ddl_signature first = comm->news.first;
    const ddl_signature *own = comm->rank == 0 ? ddl_failure_own_signature(comm, sequence) : NULL;
    if (comm->nranks > DDL_SIGHTINGS_RANKS)
        return (ddl_view){ bytes, 0 };
    if (own != NULL)
        first = ddl_failure_common_part(own);
    if (own != NULL || (comm->rank != 0 && comm->news.first_sequence == sequence)) {
        known.has_first = true;
        known.first = first;
    }
    return (ddl_view){ bytes, ddl_sightings_encode(&known, comm->entered, sequence, bytes) };
}

/* Whether this operation was told of before; from now on it was. */
static bool was_told(ddl_comm *comm, uint64_t sequence)
{
    uint64_t *told = &comm->news.told[sequence % DDL_HISTORY];
    if (*told >= sequence)
        return true;
    *told = sequence;
    return false;
}

void ddl_failure_pass_on(ddl_comm *comm, int peer, uint64_t sequence, const ddl_signature *signature)
{
    uint8_t bytes[DDL_FRAME_NOTICE_LIMIT];
    static const ddl_signature nothing = { 0 };
    const size_t *counts = NULL;
    bool is_in = signature != NULL && sequence <= comm->entered[comm->rank];
    if (is_in && signature->collective == DDL_COLLECTIVE_ALLTOALLV) {
        counts = ddl_failure_own_counts(comm, sequence);
        is_in = counts != NULL;
    }
    ddl_frame enter = ddl_failure_enter_frame(ddl_channel_of(comm->id, DDL_CHANNEL_COLLECTIVE), sequence,
                                              is_in ? signature : &nothing);
    ddl_view known = sightings(comm, sequence, bytes);
    enter.number = 1; /* who knows more says so, unasked */
    enter.piece = is_in ? DDL_ENTER_IN : DDL_ENTER_PASSED_ON;
    (void)was_told(comm, sequence);
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (!ddl_failure_is_told(comm, peer, rank))
            continue;
        if (counts != NULL)
            enter.signature.count = counts[comm->nranks + rank];
        ddl_mesh_tell_bytes(comm->mesh, comm->members[rank], &enter, known);
    }
}

void ddl_failure_pay_news(ddl_comm *comm)
{
    struct ddl_news *news = &comm->news;
    while (news->ndue > 0) {
        uint64_t sequence = news->due[--news->ndue];
        ddl_failure_pass_on(comm, -1, sequence, ddl_failure_own_signature(comm, sequence));
    }
}

/* There is something new to tell of this operation, with the next tick. */
static void owe_news(ddl_comm *comm, uint64_t sequence)
{
    struct ddl_news *news = &comm->news;
    for (int i = 0; i < news->ndue; i++)
        if (news->due[i] == sequence)
            return;
    if (news->ndue == DDL_NEWS)
        ddl_failure_pay_news(comm);
    news->due[news->ndue++] = sequence;
}

/* How rank 0 called this operation. False: this rank has called another. */
static bool compare_with_first(ddl_comm *comm, const ddl_frame *frame, const ddl_signature *first)
{
    const ddl_signature *own = ddl_failure_own_signature(comm, frame->sequence);
    if (own == NULL || comm->rank == 0)
        return true;
    ddl_signature ours = ddl_failure_common_part(own);
    const bool fits = ddl_signature_same(&ours, first);
    if (!fits) {
        const ddl_notice notice = ddl_failure_mismatch(comm, frame, &ours, 0, first);
        ddl_failure_raise(comm, &notice);
    }
    return fits;
}

bool ddl_failure_fits_first(ddl_comm *comm, const ddl_request *request)
{
    const ddl_task *task = &request->task;
    if (comm->news.first_sequence != task->sequence || !ddl_request_is_collective(request))
        return true;
    const ddl_frame frame = ddl_failure_enter_frame(task->channel, task->sequence, &comm->news.first);
    return compare_with_first(comm, &frame, &comm->news.first);
}

void ddl_failure_knows(ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload)
{
    ddl_sightings theirs;
    ddl_error ignored; /* who sends nonsense helps nobody */
    const uint64_t sequence = frame->sequence;
    if (ddl_sightings_decode(payload, comm->nranks, &theirs, &ignored) != DDL_OK)
        return;
    bool is_new = !was_told(comm, sequence), knows_more = false;
    ddl_failure_note_asked(comm, sequence);
    for (int rank = 0; rank < comm->nranks; rank++) {
        bool seen = ddl_sightings_has(&theirs, rank);
        knows_more = knows_more || (!seen && comm->entered[rank] >= sequence);
        if (!seen || comm->entered[rank] >= sequence || rank == comm->rank)
            continue;
        comm->entered[rank] = sequence;
        is_new = true;
    }
    if (theirs.has_first && comm->news.first_sequence < sequence) {
        comm->news.first_sequence = sequence;
        comm->news.first = theirs.first;
        is_new = true;
        (void)compare_with_first(comm, frame, &comm->news.first);
    }
    if (is_new)
        owe_news(comm, sequence);
    else if (knows_more && ddl_mesh_may_answer(comm->mesh, comm->members[peer]))
        ddl_failure_pass_on(comm, peer, sequence, ddl_failure_own_signature(comm, sequence));
}
