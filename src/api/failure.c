/*
 * failure.c - from the first sign of trouble to one root cause that every rank reports.
 *
 * Whoever sees trouble (a lost peer, calls that do not match, a deadline) tells everyone its cause and
 * waits a moment for what others have seen. The best cause by ddl_notice_precedes is then final: it ends
 * all operations in flight, or else the next call. For a mismatch everyone also tells its own call, so
 * that all find the same lowest disagreeing pair. Who has itself read what cannot be does not wait: only a
 * mismatch, or the same from a lower rank, could have taken precedence.
 *
 * Where not all pairs are connected (ddl_comm.sparse), what is for all goes to those that are connected and
 * to the neighbours in the overlay, and who hears news passes them on: a cause that is better than what it
 * knew, and who has entered an operation, and how rank 0 called it. The lowest disagreeing pair has rank 0 in
 * it, if any pair disagrees at all.
 */
#include "api/issue.h"
#include "api/lateness.h"
#include "api/votes.h"
#include "api/watching.h"

#include "base/dtype.h"
#include "base/log.h"
#include "protocol/overlay.h"
#include "protocol/sightings.h"

#include <stdio.h>
#include <string.h>

enum {
    SETTLE_MS = 50,           /* for the causes that others have seen to arrive */
    SETTLE_MISMATCH_MS = 200, /* and for ranks that have not come to the call */
    SETTLE_SPARSE_MS = 200,   /* if they come by way of others */
    SETTLE_UNNAMED_MS = 400,  /* for somebody who knows more, when this rank can blame nobody */
    SETTLE_LATE_MS = 200,     /* for the rank that is late to say why */
    SETTLE_MORE_MS = 300,     /* at most, for earlier and earlier calls that turn out to differ */
    TELL_AFTER_MS =
        100, /* an operation that takes longer is told to everyone, so that late ranks can be named */
    TELL_AGAIN_MS = 1000, /* one that others wait behind */
    WARN_EVERY_MS = 900,  /* of what is waited for, at most */
};

static bool same_signature(const ddl_signature *a, const ddl_signature *b)
{
    return a->collective == b->collective && a->dtype == b->dtype && a->op == b->op &&
           a->algorithm == b->algorithm && a->root == b->root && a->count == b->count;
}

static ddl_signature signature_of(const ddl_frame *frame)
{
    return (ddl_signature){ .collective = frame->collective,
                            .dtype = frame->dtype,
                            .op = frame->op,
                            .algorithm = frame->algorithm,
                            .root = frame->root,
                            .count = frame->count };
}

/* "allreduce(count 20, float32, sum, by ring)" */
static void describe_call(const ddl_signature *signature, char *text, size_t capacity)
{
    size_t rows;
    const ddl_algorithm *catalogue = ddl_catalogue(&rows);
    if (signature->collective == DDL_SIGNATURE_FREE || signature->collective == DDL_SIGNATURE_SPLIT) {
        snprintf(text, capacity, "comm_%s()", signature->collective == DDL_SIGNATURE_FREE ? "free" : "split");
        return;
    }
    const char *name = signature->collective < DDL_COLLECTIVE_COUNT
                           ? ddl_collective_name((ddl_collective)signature->collective)
                           : "an unknown operation";
    char root[32] = "", op[32] = "", dtype[32] = "", count[64] = "";
    if (signature->root >= 0 && signature->collective != DDL_COLLECTIVE_SEND)
        snprintf(root, sizeof root, ", root %d", (int)signature->root);
    if (signature->op != 0xff)
        snprintf(op, sizeof op, ", %s", ddl_op_name((ddl_op)signature->op));
    if (signature->dtype != 0xff) {
        snprintf(dtype, sizeof dtype, ", %s", ddl_dtype_name((ddl_dtype)signature->dtype));
        if (signature->collective == DDL_COLLECTIVE_ALLTOALLV)
            snprintf(count, sizeof count, "counts of its own");
        else if (signature->collective < DDL_COLLECTIVE_COUNT &&
                 ddl_call_is_uneven((ddl_collective)signature->collective))
            snprintf(count, sizeof count, "counts #%016llx", (unsigned long long)signature->count);
        else
            snprintf(count, sizeof count, "count %llu", (unsigned long long)signature->count);
    }
    snprintf(text, capacity, "%s(%s%s%s%s) by %s", name, count, dtype, op, root,
             signature->algorithm < rows ? catalogue[signature->algorithm].name : "?");
}

const char *ddl_comm_describe(const ddl_comm *comm, int rank, char *text, size_t capacity)
{
    const ddl_member *member = &comm->roster->members[rank];
    snprintf(text, capacity, "rank %d (pid %d on %s)", rank, (int)member->pid, member->host);
    return text;
}

/* ---- what this rank has issued ---- */

const ddl_request *ddl_failure_find_collective(const ddl_comm *comm, uint64_t sequence)
{
    DDL_LIST_FOR_EACH (link, &comm->by_sequence[sequence % DDL_COMM_BUCKETS]) {
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, same_bucket);
        if (ddl_request_is_collective(request) && request->task.sequence == sequence &&
            (ddl_task_is_running(&request->task) || request->stage != DDL_VOTE_NONE))
            return request;
    }
    return NULL;
}

/* Each direction of a pair counts by itself. */
static const ddl_request *find_point_to_point(const ddl_comm *comm, ddl_collective direction, int peer,
                                              uint64_t sequence)
{
    DDL_LIST_FOR_EACH (link, &comm->by_sequence[sequence % DDL_COMM_BUCKETS]) {
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, same_bucket);
        const ddl_task *task = &request->task;
        if (task->channel % 2 == DDL_CHANNEL_POINT_TO_POINT && task->sequence == sequence &&
            task->shape.root == peer && task->algorithm->collective == direction)
            return request;
    }
    return NULL;
}

/* The own call of this sequence: in flight, or among the last ones. NULL: not issued, or long ago. */
static const ddl_signature *own_signature(const ddl_comm *comm, uint64_t sequence)
{
    const ddl_past *past = &comm->history[sequence % DDL_HISTORY];
    if (past->sequence == sequence)
        return &past->signature;
    const ddl_request *request = ddl_failure_find_collective(comm, sequence);
    return request != NULL ? &request->task.signature : NULL;
}

/* Of an alltoallv that was issued here, not long ago: counts sent to each rank, then received from each. */
static const size_t *own_counts(const ddl_comm *comm, uint64_t sequence)
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
    const size_t *counts = own_counts(comm, sequence);
    return counts != NULL ? counts + comm->nranks : NULL;
}

/* The own call as a frame from this peer about it has to have it. */
static ddl_signature expected_of(const ddl_comm *comm, int peer, const ddl_frame *frame,
                                 const ddl_signature *own)
{
    ddl_signature expected = *own;
    const size_t *counts = own_counts(comm, frame->sequence);
    bool from_receiver = ddl_frame_is_from_receiver(frame->type) || frame->type == DDL_FRAME_ENTER;
    if (own->collective == DDL_COLLECTIVE_ALLTOALLV && counts != NULL)
        expected.count = counts[from_receiver ? peer : comm->nranks + peer];
    return expected;
}

/* ---- causes ---- */

enum { FROM_SENDER, FROM_RECEIVER };

/* In the piece of an enter frame of a collective: its sender says nothing of itself; it was in the operation,
 * but knows no more how. What is between them is in votes_state.h. */
enum { PASSED_ON = 1, FORGOTTEN = 5 };

static bool is_from_receiver(const ddl_frame *frame)
{
    return ddl_frame_is_from_receiver(frame->type) ||
           (frame->type == DDL_FRAME_ENTER && frame->piece == FROM_RECEIVER);
}

/* Whether what is for peer, or for all with peer -1, goes to this rank. */
static bool is_told(const ddl_comm *comm, int peer, int rank)
{
    if (peer >= 0 || rank == comm->rank)
        return rank == peer;
    return !comm->sparse || ddl_mesh_is_linked(comm->mesh, comm->members[rank]) ||
           ddl_overlay_has(comm->nranks, comm->rank, rank);
}

/* Queue a frame for one rank, or for all others with peer -1. */
static void tell(ddl_comm *comm, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    for (int rank = 0; rank < comm->nranks; rank++)
        if (is_told(comm, peer, rank))
            ddl_mesh_tell(comm->mesh, comm->members[rank], frame, notice);
}

ddl_frame ddl_failure_enter_frame(uint32_t channel, uint64_t sequence, const ddl_signature *signature)
{
    return (ddl_frame){ .type = DDL_FRAME_ENTER,
                        .channel = channel,
                        .sequence = sequence,
                        .collective = signature->collective,
                        .dtype = signature->dtype,
                        .op = signature->op,
                        .algorithm = signature->algorithm,
                        .root = signature->root,
                        .count = signature->count };
}

/* What concerns a pair alone is not compared between others. */
static ddl_signature common_part(const ddl_signature *signature)
{
    ddl_signature common = *signature;
    if (signature->collective == DDL_COLLECTIVE_ALLTOALLV)
        common.count = 0;
    return common;
}

/* What this rank knows of who is in this operation, as the payload of an enter frame. */
static ddl_view sightings(const ddl_comm *comm, uint64_t sequence, uint8_t bytes[DDL_FRAME_NOTICE_LIMIT])
{
    ddl_sightings known = { .nranks = comm->nranks };
    ddl_signature first = comm->news.first;
    const ddl_signature *own = comm->rank == 0 ? own_signature(comm, sequence) : NULL;
    if (comm->nranks > DDL_SIGHTINGS_RANKS)
        return (ddl_view){ bytes, 0 };
    if (own != NULL)
        first = common_part(own);
    if (own != NULL || (comm->rank != 0 && comm->news.first_sequence == sequence)) {
        known.has_first = true;
        known.collective = first.collective;
        known.dtype = first.dtype;
        known.op = first.op;
        known.algorithm = first.algorithm;
        known.root = first.root;
        known.count = first.count;
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

/* Tell peer (-1: all) what is known of this operation: that this rank is, or was, in it, if signature is how;
 * and who else is. */
static void pass_on(ddl_comm *comm, int peer, uint64_t sequence, const ddl_signature *signature)
{
    uint8_t bytes[DDL_FRAME_NOTICE_LIMIT];
    static const ddl_signature nothing = { 0 };
    const size_t *counts = NULL;
    bool is_in = signature != NULL && sequence <= comm->entered[comm->rank];
    if (is_in && signature->collective == DDL_COLLECTIVE_ALLTOALLV) {
        counts = own_counts(comm, sequence);
        is_in = counts != NULL;
    }
    ddl_frame enter = ddl_failure_enter_frame(comm->id * 2 + DDL_CHANNEL_COLLECTIVE, sequence,
                                              is_in ? signature : &nothing);
    ddl_view known = sightings(comm, sequence, bytes);
    enter.number = 1; /* who knows more says so, unasked */
    enter.piece = is_in ? 0 : PASSED_ON;
    (void)was_told(comm, sequence);
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (!is_told(comm, peer, rank))
            continue;
        if (counts != NULL)
            enter.count = counts[comm->nranks + rank];
        ddl_mesh_tell_bytes(comm->mesh, comm->members[rank], &enter, known);
    }
}

/* Tell peer (-1: all) that this rank is, or was, in this operation. An answer to the same is not answered. */
static void tell_entered(ddl_comm *comm, int peer, uint64_t sequence, const ddl_signature *signature,
                         bool is_answer)
{
    if (comm->sparse) {
        pass_on(comm, peer, sequence, signature);
        return;
    }
    ddl_frame enter = ddl_failure_enter_frame(comm->id * 2 + DDL_CHANNEL_COLLECTIVE, sequence, signature);
    enter.number = is_answer;
    if (signature->collective != DDL_COLLECTIVE_ALLTOALLV) {
        tell(comm, peer, &enter, NULL);
        return;
    }
    /* What it expects of each is what each of them can compare. */
    const size_t *counts = own_counts(comm, sequence);
    for (int rank = 0; counts != NULL && rank < comm->nranks; rank++) {
        enter.count = counts[comm->nranks + rank];
        if (rank != comm->rank && (peer < 0 || peer == rank))
            tell(comm, rank, &enter, NULL);
    }
}

/* Tell peer that this rank was in this operation, so long ago that it is not remembered how. */
static void tell_forgotten(ddl_comm *comm, int peer, uint64_t sequence)
{
    static const ddl_signature nothing = { 0 };
    if (comm->sparse) {
        pass_on(comm, peer, sequence, NULL);
        return;
    }
    ddl_frame enter = ddl_failure_enter_frame(comm->id * 2 + DDL_CHANNEL_COLLECTIVE, sequence, &nothing);
    enter.number = 1; /* no question */
    enter.piece = FORGOTTEN;
    tell(comm, peer, &enter, NULL);
}

/* Point to point: only the other end need know. The piece says from which end this comes. */
static void tell_other_end(ddl_comm *comm, const ddl_task *task)
{
    ddl_frame enter = ddl_failure_enter_frame(task->channel, task->sequence, &task->signature);
    enter.piece = task->algorithm->collective == DDL_COLLECTIVE_SEND ? FROM_SENDER : FROM_RECEIVER;
    tell(comm, task->shape.root, &enter, NULL);
}

/* With peer -1 all others. */
static void tell_cause(ddl_comm *comm, int peer)
{
    const ddl_notice *cause = &comm->failure.cause;
    ddl_frame frame = { .type = DDL_FRAME_ABORT,
                        .channel = comm->id * 2 + DDL_CHANNEL_COLLECTIVE,
                        .sequence = cause->sequence,
                        .number = comm->failure.failed || cause->is_final };
    tell(comm, peer, &frame, cause);
}

/* Two ranks that do not reach each other hear of each other by whoever reaches both. */
static bool is_by_others(const ddl_comm *comm, const ddl_notice *notice)
{
    return comm->sparse || notice->code == DDL_EUNREACHABLE || notice->code == DDL_EUNRESPONSIVE;
}

/* Of a mismatch more is known when all ranks have come to the call. */
static int64_t settle_ms(const ddl_comm *comm, const ddl_notice *notice)
{
    if (notice->code == DDL_EPROTO && notice->witness == comm->rank && !comm->sparse)
        return 0;
    if (notice->culprit < 0)
        return SETTLE_UNNAMED_MS;
    if (notice->code == DDL_ETIMEDOUT)
        return SETTLE_LATE_MS;
    bool may_know_more = notice->code == DDL_EMISMATCH && comm->nranks > 2;
    if (may_know_more)
        return SETTLE_MISMATCH_MS + (comm->sparse ? SETTLE_SPARSE_MS : 0);
    return is_by_others(comm, notice) ? SETTLE_SPARSE_MS : SETTLE_MS;
}

/* Whether a cause is that calls of a collective operation differ, rather than a message and who expects it.
 */
static bool is_of_calls(const ddl_notice *cause)
{
    return cause->code == DDL_EMISMATCH && cause->sequence > 0;
}

/* Of the cause that is known now: all that others need of it. */
static void tell_all(ddl_comm *comm, bool with_cause)
{
    const ddl_notice *cause = &comm->failure.cause;
    if (with_cause)
        tell_cause(comm, -1);
    const ddl_signature *own = is_of_calls(cause) ? own_signature(comm, cause->sequence) : NULL;
    if (own != NULL)
        tell_entered(comm, -1, cause->sequence, own, true);
}

/* Whatever it is; and ranks that are late may have something better to say than that they are. */
static bool ends_any_call(ddl_status code)
{
    return code != DDL_EMISMATCH && code != DDL_EPROTO && code != DDL_ETIMEDOUT;
}

/* Whether this is the cause rather than the one known. That which ranks have had as their end stands, even if
 * a better one is known here: they have heard less than who comes late. */
static bool precedes(const ddl_notice *notice, const ddl_notice *cause)
{
    if (notice->is_final != cause->is_final)
        return notice->is_final;
    return ddl_notice_precedes(notice, cause);
}

/* Begin to settle, or take a better cause than the one known. True: it is taken, and nobody told so far. */
static bool take(ddl_comm *comm, const ddl_notice *notice)
{
    struct ddl_failure *failure = &comm->failure;
    const bool is_why_held = failure->is_held && ends_any_call(notice->code);
    if (failure->failed)
        return false;
    if (failure->failing && !is_why_held && !precedes(notice, &failure->cause))
        return false;
    bool is_why_late = failure->cause.code == DDL_ETIMEDOUT && notice->code != DDL_ETIMEDOUT;
    if (!failure->failing || failure->cause.culprit < 0 || is_why_late || is_why_held) {
        int64_t wait_ms = settle_ms(comm, notice);
        failure->settle_ns = ddl_now_ns() + wait_ms * DDL_NS_PER_MS;
        failure->latest_ns = failure->settle_ns + SETTLE_MORE_MS * DDL_NS_PER_MS;
        if (wait_ms == 0)
            ddl_engine_tick_soon(comm->engine);
    }
    if (failure->failing && is_of_calls(notice) && notice->sequence != failure->cause.sequence) {
        /* To hear how others called that. */
        int64_t least_ns = ddl_now_ns() + SETTLE_MS * DDL_NS_PER_MS;
        least_ns = least_ns < failure->latest_ns ? least_ns : failure->latest_ns;
        failure->settle_ns = failure->settle_ns > least_ns ? failure->settle_ns : least_ns;
    }
    if (notice->is_final) {
        const int64_t most_ns = ddl_now_ns() + SETTLE_MS * DDL_NS_PER_MS; /* for others' ends */
        failure->settle_ns = failure->settle_ns < most_ns ? failure->settle_ns : most_ns;
    }
    if (!failure->failing)
        comm->world->nbusy++;
    if (!failure->failing)
        ddl_votes_abort(comm);
    ddl_engine_tick_often(comm->engine);
    failure->failing = true;
    failure->cause = *notice;
    return true;
}

static void adopt(ddl_comm *comm, const ddl_notice *notice, bool tell)
{
    if (!take(comm, notice))
        return;
    comm->failure.is_held = false;
    tell_all(comm, tell);
}

/*
 * A board shows what others called before the loop has been run, which may have to tell why they have given
 * that call up: who comes late with another one is not to hear that they differ. Nothing is passed on by
 * whoever has seen that, so this may wait until the loop has been run.
 */
static void hold(ddl_comm *comm, const ddl_notice *notice)
{
    struct ddl_failure *failure = &comm->failure;
    if (!take(comm, notice))
        return;
    failure->is_held = true;
    failure->held_loops = ddl_engine_loops(comm->engine);
    ddl_engine_tick_soon(comm->engine);
}

static void release(ddl_comm *comm)
{
    const int64_t least_ns = ddl_now_ns() + settle_ms(comm, &comm->failure.cause) * DDL_NS_PER_MS;
    if (comm->failure.settle_ns < least_ns)
        comm->failure.settle_ns = least_ns;
    comm->failure.is_held = false;
    tell_all(comm, true);
}

/* True: with this tick others are told. */
static bool release_held(ddl_comm *comm)
{
    if (ddl_engine_loops(comm->engine) == comm->failure.held_loops) {
        ddl_engine_tick_soon(comm->engine);
        return false;
    }
    release(comm);
    return true;
}

/*
 * Who comes late to a call that others have given up may read why from one of them, and only then what
 * another had sent in it, which is not the call that he makes. That is no news; a mismatch that others tell
 * of is.
 */
void ddl_failure_raise(ddl_comm *comm, const ddl_notice *notice)
{
    const struct ddl_failure *failure = &comm->failure;
    if (notice->code != DDL_EMISMATCH || !failure->failing || !ends_any_call(failure->cause.code))
        adopt(comm, notice, true);
}

static void mismatch_text(const ddl_comm *comm, ddl_notice *notice, const ddl_signature *low,
                          const ddl_signature *high)
{
    char low_call[112], high_call[112], low_rank[112], high_rank[112];
    describe_call(low, low_call, sizeof low_call);
    describe_call(high, high_call, sizeof high_call);
    snprintf(notice->text, sizeof notice->text,
             "%s called %s, but %s called %s; every rank must make the same call",
             ddl_comm_describe(comm, notice->witness, low_rank, sizeof low_rank), low_call,
             ddl_comm_describe(comm, notice->culprit, high_rank, sizeof high_rank), high_call);
}

/* Both are in the same alltoallv, but do not agree on what one sends to the other. */
static void pair_text(const ddl_comm *comm, ddl_notice *notice, int sender, uint64_t sent, int receiver,
                      uint64_t expected)
{
    char from[112], to[112];
    snprintf(notice->text, sizeof notice->text,
             "in alltoallv %s sends %llu elements to %s, which expects %llu; send_counts of the one must be "
             "recv_counts of the other",
             ddl_comm_describe(comm, sender, from, sizeof from), (unsigned long long)sent,
             ddl_comm_describe(comm, receiver, to, sizeof to), (unsigned long long)expected);
}

/* Of a send and a receive that meet. */
static void message_text(const ddl_comm *comm, ddl_notice *notice, int sender, const ddl_signature *sent,
                         int receiver, const ddl_signature *expected)
{
    char from[112], to[112];
    snprintf(notice->text, sizeof notice->text,
             "%s sends %llu %s to %s, which expects %llu %s; ddl_send of the one must have the count and the "
             "type of ddl_recv of the other",
             ddl_comm_describe(comm, sender, from, sizeof from), (unsigned long long)sent->count,
             ddl_dtype_name((ddl_dtype)sent->dtype), ddl_comm_describe(comm, receiver, to, sizeof to),
             (unsigned long long)expected->count, ddl_dtype_name((ddl_dtype)expected->dtype));
}

static bool same_but_count(const ddl_signature *a, const ddl_signature *b)
{
    ddl_signature with_count = *a;
    with_count.count = b->count;
    return same_signature(&with_count, b);
}

static void name_operation(ddl_notice *notice, const ddl_signature *call)
{
    const bool is_collective = call->collective < DDL_COLLECTIVE_COUNT;
    snprintf(notice->operation, sizeof notice->operation, "%s",
             is_collective ? ddl_collective_name((ddl_collective)call->collective) : "");
}

/* What a frame from peer says, `theirs`, is not what this rank expects of it. */
static ddl_notice mismatch(const ddl_comm *comm, const ddl_frame *frame, const ddl_signature *ours, int peer,
                           const ddl_signature *theirs)
{
    int own = comm->rank;
    const bool of_message = frame->channel % 2 == DDL_CHANNEL_POINT_TO_POINT;
    ddl_notice notice = { .code = DDL_EMISMATCH, .sequence = of_message ? 0 : frame->sequence };
    notice.witness = own < peer ? own : peer;
    notice.culprit = own < peer ? peer : own;
    const ddl_signature *low = own < peer ? ours : theirs, *high = own < peer ? theirs : ours;
    name_operation(&notice, low);
    bool of_pair = ours->collective == DDL_COLLECTIVE_ALLTOALLV && same_but_count(ours, theirs);
    bool we_send = is_from_receiver(frame) || (frame->type == DDL_FRAME_ENTER && !of_message);
    if (of_message && we_send)
        message_text(comm, &notice, own, ours, peer, theirs);
    else if (of_message)
        message_text(comm, &notice, peer, theirs, own, ours);
    else if (!of_pair)
        mismatch_text(comm, &notice, low, high);
    else if (we_send)
        pair_text(comm, &notice, own, ours->count, peer, theirs->count);
    else
        pair_text(comm, &notice, peer, theirs->count, own, ours->count);
    return notice;
}

static void raise_mismatch(ddl_comm *comm, const ddl_frame *frame, const ddl_signature *ours, int peer,
                           const ddl_signature *theirs)
{
    const ddl_notice notice = mismatch(comm, frame, ours, peer, theirs);
    ddl_failure_raise(comm, &notice);
}

/* The peer has a message for this rank, or waits for one, in an operation that this rank was done with so
 * long ago that it remembers nothing of it but that: with no elements, or blocks of none, a rank may be done
 * without the others. */
static void raise_stray(ddl_comm *comm, const ddl_frame *frame, int peer, const ddl_signature *theirs)
{
    if (theirs->collective == DDL_COLLECTIVE_ALLTOALLV || frame->channel % 2 == DDL_CHANNEL_POINT_TO_POINT) {
        ddl_signature nothing = *theirs;
        nothing.count = 0;
        raise_mismatch(comm, frame, &nothing, peer, theirs);
        return;
    }
    char call[112], who[112], own[112];
    ddl_notice notice = { .code = DDL_EMISMATCH, .sequence = frame->sequence };
    notice.witness = comm->rank < peer ? comm->rank : peer;
    notice.culprit = comm->rank < peer ? peer : comm->rank;
    describe_call(theirs, call, sizeof call);
    snprintf(
        notice.text, sizeof notice.text,
        "%s called %s and wants to exchange with %s, which did not in its call of the same place; every rank "
        "must make the same call",
        ddl_comm_describe(comm, peer, who, sizeof who), call,
        ddl_comm_describe(comm, comm->rank, own, sizeof own));
    ddl_failure_raise(comm, &notice);
}

/* Of an operation that is not in flight, and whose call, if there was one, is not remembered. */
static bool is_stray(const ddl_comm *comm, int peer, const ddl_frame *frame)
{
    const bool of_message = frame->type == DDL_FRAME_EAGER || frame->type == DDL_FRAME_ASK ||
                            frame->type == DDL_FRAME_OFFER || frame->type == DDL_FRAME_GRANT ||
                            frame->type == DDL_FRAME_PLACE || frame->type == DDL_FRAME_SOURCE;
    if (comm->failure.failing)
        return false;
    if (frame->channel % 2 == DDL_CHANNEL_COLLECTIVE)
        return of_message && frame->sequence <= comm->entered[comm->rank];
    /* Who receives may still ask for what was sent without being asked, and who sends have said that he waits
     * for what has come since, by another connection: of these only the last is known to have been empty. */
    const bool from_receiver = is_from_receiver(frame);
    const ddl_past_messages *past = &comm->messages[(from_receiver ? 0 : comm->nranks) + peer];
    if (frame->type == DDL_FRAME_ENTER || from_receiver)
        return frame->sequence == past->empty_sequence;
    return of_message && frame->sequence <= past->sequence;
}

/* ---- what peers say ---- */

/* What peer called there. It may be heard before the cause by which it is of interest, as that may come from
 * another rank. */
static void note_call(ddl_comm *comm, int peer, uint64_t sequence, const ddl_signature *theirs)
{
    struct ddl_failure *failure = &comm->failure;
    struct ddl_told_call *told = &failure->calls[peer];
    if (sequence > comm->entered[peer])
        comm->entered[peer] = sequence;
    const bool is_settling = failure->failing && is_of_calls(&failure->cause);
    if (!is_settling || told->sequence != failure->cause.sequence || sequence == told->sequence)
        *told = (struct ddl_told_call){ sequence, common_part(theirs) };
}

bool ddl_failure_heard(ddl_comm *comm, int peer, const ddl_frame *frame)
{
    ddl_signature theirs = signature_of(frame);
    const ddl_signature *ours = NULL;
    if (frame->type == DDL_FRAME_ENTER && frame->channel % 2 == DDL_CHANNEL_COLLECTIVE &&
        (frame->piece == PASSED_ON || frame->piece == FORGOTTEN)) {
        if (frame->piece == FORGOTTEN && frame->sequence > comm->entered[peer])
            comm->entered[peer] = frame->sequence;
        return true;
    }
    if (frame->channel % 2 == DDL_CHANNEL_COLLECTIVE) {
        note_call(comm, peer, frame->sequence, &theirs);
        ours = own_signature(comm, frame->sequence);
        /* A peer that waits for long wants to know who is, or was, in the operation too. */
        bool is_question = frame->type == DDL_FRAME_ENTER && frame->number == 0;
        const ddl_request *mine = is_question ? ddl_failure_find_collective(comm, frame->sequence) : NULL;
        /* What this rank told says nothing of what it sends there, where counts differ from pair to pair. */
        bool peer_knows =
            mine != NULL && mine->told && mine->task.signature.collective != DDL_COLLECTIVE_ALLTOALLV;
        bool was_here = ours != NULL || frame->sequence <= comm->entered[comm->rank];
        const bool is_due = is_question && !comm->failure.failing && was_here && !peer_knows;
        if (is_due && ours != NULL)
            tell_entered(comm, peer, frame->sequence, ours, true);
        else if (is_due)
            tell_forgotten(comm, peer, frame->sequence);
    } else {
        /* A send hears grants, a receive everything else. */
        ddl_collective direction = is_from_receiver(frame) ? DDL_COLLECTIVE_SEND : DDL_COLLECTIVE_RECV;
        const ddl_request *request = find_point_to_point(comm, direction, peer, frame->sequence);
        if (request != NULL)
            ours = &request->task.signature;
    }
    if (ours == NULL) {
        if (is_stray(comm, peer, frame))
            raise_stray(comm, frame, peer, &theirs);
        return true;
    }
    ddl_signature expected = expected_of(comm, peer, frame, ours);
    const bool fits = same_signature(&expected, &theirs);
    if (!fits)
        raise_mismatch(comm, frame, &expected, peer, &theirs);
    return fits;
}

void ddl_failure_differs(ddl_comm *comm, uint64_t sequence, const ddl_signature *ours, int rank,
                         const ddl_signature *theirs)
{
    const struct ddl_failure *failure = &comm->failure;
    const ddl_frame frame = ddl_failure_enter_frame(comm->id * 2 + DDL_CHANNEL_COLLECTIVE, sequence, theirs);
    const ddl_notice notice = mismatch(comm, &frame, ours, rank, theirs);
    note_call(comm, rank, sequence, theirs);
    if (!failure->failing || failure->is_held)
        hold(comm, &notice);
    else
        ddl_failure_raise(comm, &notice);
}

static void pay_news(ddl_comm *comm)
{
    struct ddl_news *news = &comm->news;
    while (news->ndue > 0) {
        uint64_t sequence = news->due[--news->ndue];
        pass_on(comm, -1, sequence, own_signature(comm, sequence));
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
        pay_news(comm);
    news->due[news->ndue++] = sequence;
}

/* How rank 0 called this operation. False: this rank has called another. */
static bool compare_with_first(ddl_comm *comm, const ddl_frame *frame, const ddl_signature *first)
{
    const ddl_signature *own = own_signature(comm, frame->sequence);
    if (own == NULL || comm->rank == 0)
        return true;
    ddl_signature ours = common_part(own);
    const bool fits = same_signature(&ours, first);
    if (!fits)
        raise_mismatch(comm, frame, &ours, 0, first);
    return fits;
}

void ddl_failure_knows(ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload)
{
    ddl_sightings theirs;
    ddl_error ignored; /* who sends nonsense helps nobody */
    const uint64_t sequence = frame->sequence;
    if (ddl_sightings_decode(payload, comm->nranks, &theirs, &ignored) != DDL_OK)
        return;
    bool is_new = !was_told(comm, sequence), knows_more = false;
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
        comm->news.first = (ddl_signature){ .collective = theirs.collective,
                                            .dtype = theirs.dtype,
                                            .op = theirs.op,
                                            .algorithm = theirs.algorithm,
                                            .root = theirs.root,
                                            .count = theirs.count };
        is_new = true;
        (void)compare_with_first(comm, frame, &comm->news.first);
    }
    if (is_new)
        owe_news(comm, sequence);
    else if (knows_more)
        pass_on(comm, peer, sequence, own_signature(comm, sequence));
}

void ddl_failure_met(ddl_comm *comm, int peer)
{
    if (comm->failure.failing && !comm->failure.is_held)
        tell_cause(comm, peer);
}

void ddl_failure_told(ddl_comm *comm, int peer, const ddl_notice *notice)
{
    ddl_notice sound = *notice;
    if (sound.culprit >= comm->nranks)
        sound.culprit = -1;
    if (sound.witness >= comm->nranks)
        sound.witness = -1;
    comm->failure.told_by[peer] = true;
    adopt(comm, &sound, is_by_others(comm, &sound));
    if (comm->failure.is_held && sound.code == DDL_EMISMATCH)
        release(comm); /* as others know of it, it is their cause, whatever the loop has yet to tell here */
    if (sound.code == DDL_ETIMEDOUT && sound.culprit == comm->rank)
        ddl_engine_tick_soon(comm->engine); /* to say why, if it is known */
}

static void raise_lost(ddl_comm *comm, int peer, int os_errno, const char *how)
{
    ddl_notice notice = { .code = DDL_EPEERLOST, .culprit = peer, .witness = comm->rank };
    const ddl_member *member = &comm->roster->members[peer];
    char who[160];
    ddl_link *first = ddl_list_first(&comm->in_flight);
    if (first != NULL)
        notice.sequence = DDL_CONTAINER(first, ddl_request, link)->task.sequence;
    snprintf(notice.text, sizeof notice.text, "%s %s:%u: %s; look at the output of rank %d",
             ddl_comm_describe(comm, peer, who, sizeof who), member->address, member->port, how, peer);
    ddl_failure_raise(comm, &notice);
    const ddl_notice *cause = &comm->failure.cause;
    if (cause->code == notice.code && cause->culprit == peer && cause->witness == comm->rank)
        comm->failure.os_errno = os_errno;
}

void ddl_failure_lost(ddl_comm *comm, int peer, int os_errno, const ddl_error *error)
{
    comm->ngone++;
    if (comm->failure.told_by[peer])
        return;
    if (error != NULL && error->code == DDL_EPEERLOST) {
        raise_lost(comm, peer, os_errno, error->text);
        return;
    }
    if (error != NULL && (error->code == DDL_ENOMEM || error->code == DDL_ERESOURCE)) {
        ddl_notice own = { .code = error->code, .culprit = comm->rank, .witness = comm->rank };
        char who[160];
        snprintf(own.text, sizeof own.text, "%s: %.200s",
                 ddl_comm_describe(comm, comm->rank, who, sizeof who), error->text);
        ddl_failure_raise(comm, &own);
        return;
    }
    if (error != NULL) {
        ddl_notice notice = { .code = error->code, .culprit = peer, .witness = comm->rank };
        char who[160];
        const bool is_sent = error->code == DDL_EPROTO, is_about = error->code == DDL_EUNREACHABLE;
        snprintf(notice.text, sizeof notice.text, "%s%s%.300s",
                 is_sent || is_about ? ddl_comm_describe(comm, peer, who, sizeof who) : "",
                 is_sent    ? " sent "
                 : is_about ? ": "
                            : "",
                 error->text);
        ddl_failure_raise(comm, &notice);
        return;
    }
    char how[160] = "its process ended (connection closed)", reason[96];
    if (os_errno != 0 && strerror_r(os_errno, reason, sizeof reason) == 0)
        snprintf(how, sizeof how, "its process ended or its connection broke (%s)", reason);
    raise_lost(comm, peer, os_errno, how);
}

typedef struct peer_search { /* for the lowest of the peers whose messages an operation waits for */
    const ddl_comm *comm;
    bool gone_only;
    int found; /* or -1 */
} peer_search;

static void look_at_pending(void *arg, int peer, bool outgoing)
{
    (void)outgoing;
    peer_search *search = arg;
    if (search->gone_only && !ddl_mesh_is_gone(search->comm->mesh, search->comm->members[peer]))
        return;
    if (search->found < 0 || peer < search->found)
        search->found = peer;
}

static int lowest_pending(const ddl_comm *comm, const ddl_request *request, bool gone_only)
{
    peer_search pending = { comm, gone_only, -1 };
    ddl_backend_visit_pending(&request->task, look_at_pending, &pending);
    ddl_votes_visit_pending(comm, request, look_at_pending, &pending);
    return pending.found;
}

static const char LEFT[] = "it has left: its process ended, or freed the communicator, before this operation";
static const char LEFT_INSIDE[] =
    "it has left: its process ended, or freed the communicator, in this operation";

void ddl_failure_check_gone(ddl_comm *comm, const ddl_request *request)
{
    if (comm->ngone == 0 || comm->failure.failing)
        return;
    int gone = lowest_pending(comm, request, true);
    if (gone < 0)
        return;
    /* Who has waited for all to free the communicator, and gone alone, is not to blame as long as it is
     * another one that does not come. */
    const bool is_last = request->task.signature.collective == DDL_SIGNATURE_FREE;
    if (is_last && comm->entered[gone] >= request->task.sequence) {
        int nlate;
        const int late = ddl_lateness_find(comm, request, &nlate);
        if (late >= 0 && !ddl_mesh_is_gone(comm->mesh, comm->members[late]))
            return;
        gone = late >= 0 ? late : gone;
    }
    bool is_inside = request->stage > DDL_VOTE_OPEN || ddl_backend_is_halfway(&request->task);
    raise_lost(comm, gone, 0, is_inside ? LEFT_INSIDE : LEFT);
}

void ddl_failure_left(ddl_comm *comm, int peer)
{
    (void)peer;
    comm->ngone++;
    DDL_LIST_FOR_EACH (link, &comm->in_flight)
        ddl_failure_check_gone(comm, DDL_CONTAINER(link, ddl_request, link));
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

bool ddl_failure_is_before(const ddl_comm *comm, const ddl_request *request)
{
    return ddl_request_is_collective(request) && is_of_calls(&comm->failure.cause) &&
           comm->failure.cause.sequence < request->task.sequence;
}

bool ddl_failure_is_behind(const ddl_comm *comm, const ddl_request *request)
{
    return ddl_request_is_collective(request) && is_of_calls(&comm->failure.cause) &&
           comm->failure.cause.sequence > request->task.sequence;
}

bool ddl_failure_check_early(ddl_comm *comm, const ddl_request *request)
{
    early_look look = { comm, true };
    if (comm->news.first_sequence == request->task.sequence && ddl_request_is_collective(request)) {
        const ddl_frame frame =
            ddl_failure_enter_frame(request->task.channel, request->task.sequence, &comm->news.first);
        look.fits = compare_with_first(comm, &frame, &comm->news.first);
    }
    ddl_mesh_visit_early(comm->mesh, request->task.channel, request->task.sequence, hear_early, &look);
    const struct ddl_failure *failure = &comm->failure;
    const bool is_awaited =
        failure->failing && is_of_calls(&failure->cause) && failure->cause.sequence == request->task.sequence;
    if ((is_awaited || !look.fits) && ddl_request_is_collective(request)) /* it may send nothing else */
        tell_entered(comm, -1, request->task.sequence, &request->task.signature, true);
    return look.fits;
}

/* ---- the end ---- */

/* Whether it is known how this rank called the operation that the cause is about. */
static bool is_known(const struct ddl_failure *failure, int rank)
{
    return failure->calls[rank].sequence == failure->cause.sequence;
}

/* Of all calls that were told, the lowest pair that disagrees. */
static void find_lowest_pair(ddl_comm *comm)
{
    struct ddl_failure *failure = &comm->failure;
    const struct ddl_told_call *calls = failure->calls;
    const ddl_signature *own = own_signature(comm, failure->cause.sequence);
    if (own != NULL)
        failure->calls[comm->rank] = (struct ddl_told_call){ failure->cause.sequence, common_part(own) };
    for (int low = 0; low < comm->nranks; low++)
        for (int high = low + 1; high < comm->nranks; high++) {
            if (!is_known(failure, low) || !is_known(failure, high) ||
                same_signature(&calls[low].signature, &calls[high].signature))
                continue;
            ddl_notice notice = failure->cause;
            notice.witness = low;
            notice.culprit = high;
            if (ddl_notice_precedes(&notice, &failure->cause)) {
                name_operation(&notice, &calls[low].signature);
                mismatch_text(comm, &notice, &calls[low].signature, &calls[high].signature);
                failure->cause = notice;
            }
            return;
        }
}

static void say_not_stopped(ddl_notice *cause)
{
    size_t there = strlen(cause->text);
    snprintf(cause->text + there, sizeof cause->text - there,
             "; NCCL does not stop here, and may still write to the buffers of its calls");
}

static void settle(ddl_comm *comm)
{
    struct ddl_failure *failure = &comm->failure;
    if (is_of_calls(&failure->cause) && !failure->cause.is_final)
        find_lowest_pair(comm);
    failure->failed = true;
    comm->world->nbusy--;
    comm->pool->cause = failure->cause;
    if (failure->cause.code == DDL_EPEERLOST && failure->cause.witness == comm->rank)
        comm->pool->cause_os_errno = failure->os_errno;
    /* Once more, from every rank: who comes late may read any of them first, and then that it has left. */
    tell_cause(comm, -1);
    ddl_mesh_flush(comm->mesh);
    /* A part that nobody is using has no news: the world tells. */
    const bool is_of_work = failure->cause.code == DDL_EMISMATCH || failure->cause.code == DDL_EPROTO;
    bool is_news =
        (comm->root == comm || !ddl_list_empty(&comm->in_flight)) && (is_of_work || !comm->is_parting);
    ddl_log(is_news ? DDL_LOG_ERROR : DDL_LOG_DEBUG, "%s %s%s%s: %s", ddl_status_name(failure->cause.code),
            failure->cause.operation, failure->cause.operation[0] != '\0' ? " " : "", comm->pool->prefix,
            failure->cause.text);
    if (!ddl_votes_cancel(comm, 0))
        say_not_stopped(&comm->pool->cause);
    /* First cancel everything, then tell the waiters: buffers are free when a wait returns. */
    const ddl_staging *hanging = NULL;
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        ddl_task *task = &DDL_CONTAINER(link, ddl_request, link)->task;
        ddl_backend_cancel(task);
        if (task->staging != NULL && task->staging->hangs)
            hanging = task->staging;
    }
    if (hanging != NULL)
        ddl_staging_tell_hanging(hanging, comm->pool->cause.text, sizeof comm->pool->cause.text);
    ddl_mesh_forget(comm->mesh, comm->id * 2, 2);
    failure->reported = !ddl_list_empty(&comm->in_flight);
    for (ddl_link *first; (first = ddl_list_first(&comm->in_flight)) != NULL;) {
        ddl_request *request = DDL_CONTAINER(first, ddl_request, link);
        ddl_comm_untrack(request);
        request->status = failure->cause.code;
        request->root_cause = true;
        ddl_request_end(request);
    }
    ddl_engine_wake(comm->engine);
}

/* What this rank waits for may be that others begin an operation that is done here: who did something else
 * there knows only if it is told, and hears it only once he has come there. */
static void tell_what_is_before(ddl_comm *comm, int64_t now_ns)
{
    struct ddl_failure *failure = &comm->failure;
    uint64_t sequence;
    const ddl_signature *before = ddl_backend_waits_behind(comm->backend, &sequence);
    if (before == NULL || sequence != failure->behind) {
        failure->behind = before != NULL ? sequence : 0;
        failure->behind_tell_ns = now_ns + TELL_AFTER_MS * DDL_NS_PER_MS;
    } else if (now_ns >= failure->behind_tell_ns) {
        tell_entered(comm, -1, sequence, before, false);
        failure->behind_tell_ns = now_ns + TELL_AGAIN_MS * DDL_NS_PER_MS;
    }
}

void ddl_failure_tick(ddl_comm *comm, int64_t now_ns)
{
    if (comm->failure.failed)
        return;
    if (comm->failure.is_held && !release_held(comm))
        return;
    if (comm->failure.failing) {
        ddl_lateness_explain(comm, now_ns);
        if (comm->failure.cause.code == DDL_EMISMATCH)
            pay_news(comm);
        if (now_ns >= comm->failure.settle_ns && ddl_votes_have_stopped(comm, now_ns))
            settle(comm);
        return;
    }
    pay_news(comm);
    ddl_votes_tick(comm, now_ns);
    if (!ddl_list_empty(&comm->in_flight))
        tell_what_is_before(comm, now_ns);
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        int64_t tell_after_ms =
            request->timeout_ms / 4 < TELL_AFTER_MS ? request->timeout_ms / 4 : TELL_AFTER_MS;
        bool is_long = now_ns - request->issued_ns > tell_after_ms * DDL_NS_PER_MS;
        if (is_long && !request->told) {
            request->told = true;
            if (ddl_request_is_collective(request))
                tell_entered(comm, -1, request->task.sequence, &request->task.signature, false);
            else
                tell_other_end(comm, &request->task);
        }
        ddl_failure_check_gone(comm, request);
        if (comm->world->is_watching && !comm->failure.failing)
            ddl_watching_look_for_signs(comm, request, now_ns);
        if (!comm->failure.failing && now_ns >= request->warn_ns && now_ns < request->deadline) {
            /* One for all that are in flight, and for all communicators, as it may take a while to write. */
            if (now_ns - comm->world->warned_ns >= WARN_EVERY_MS * DDL_NS_PER_MS &&
                ddl_lateness_warn(comm, request, now_ns))
                comm->world->warned_ns = now_ns;
            request->warn_ns = now_ns + (now_ns - request->issued_ns);
        }
        if (!comm->failure.failing && now_ns >= request->deadline)
            ddl_lateness_raise(comm, request, now_ns);
        if (comm->failure.failing)
            break;
    }
    ddl_mesh_flush(comm->mesh);
}
