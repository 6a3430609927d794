/* lateness.c - see lateness.h. */
#include "api/lateness.h"

#include "api/failure.h"
#include "api/votes.h"
#include "base/log.h"

#include <stdio.h>

/* Whether that rank has not come to the operation, as far as this one knows; or has not gone on in it, where
 * none can go on without all. Who waits for long asks, and all who are, or were, in the operation answer
 * (ddl_failure_tell_entered). Who has gone does not: that is another matter, if something is waited for from
 * there. */
static bool is_late(const ddl_comm *comm, const ddl_task *task, int rank)
{
    const bool is_last = task->signature.collective == DDL_SIGNATURE_FREE;
    if (rank == comm->rank || ddl_backend_has_posted(task, rank))
        return false;
    if (!is_last && ddl_mesh_is_gone(comm->mesh, comm->members[rank]))
        return false;
    return ddl_backend_is_halfway(task) || comm->entered[rank] < task->sequence;
}

int ddl_lateness_find(const ddl_comm *comm, const ddl_request *request, int *nlate)
{
    const ddl_task *task = &request->task;
    *nlate = 1;
    if (!ddl_request_is_collective(request))
        return task->shape.root;
    int late = -1;
    *nlate = 0;
    for (int rank = comm->nranks - 1; rank >= 0; rank--)
        if (is_late(comm, task, rank)) {
            late = rank;
            ++*nlate;
        }
    return late;
}

/* ---- out of time ---- */

/* For a printf of the rank, its GPU and its limit. Nobody else can see what keeps it. */
static const char *why_gpu_is_late(const ddl_task *task)
{
    if (ddl_hold_is_overdue(task->hold))
        return "%s: calls of the driver of GPU %d did not return within %s, so the stream has gone on "
               "without it; does the program load kernels or free memory while operations are in its "
               "streams?";
    if (ddl_backend_waits_for_stream(task))
        return "%s: the stream of GPU %d has not come to it within %s; does the work before it hang, or wait "
               "for a later operation?";
    return "%s: GPU %d has not copied its buffers within %s; does other work keep it busy, or does it hang?";
}

static void raise_stuck_gpu(ddl_comm *comm, const ddl_request *request, int64_t now_ns)
{
    ddl_notice notice = {
        .code = DDL_EDEVICE, .culprit = comm->rank, .witness = comm->rank, .sequence = request->task.sequence
    };
    char who[160], limit[64];
    int64_t waited_ms = (now_ns - request->issued_ns) / DDL_NS_PER_MS;
    if (now_ns >= request->deadline)
        snprintf(limit, sizeof limit, "%lld ms (%s)", (long long)request->timeout_ms, request->limit);
    else
        snprintf(limit, sizeof limit, "%lld ms, as DDL_TIMEOUT of another rank ended", (long long)waited_ms);
    snprintf(notice.operation, sizeof notice.operation, "%s", ddl_request_operation(request));
    snprintf(notice.text, sizeof notice.text, why_gpu_is_late(&request->task),
             ddl_comm_describe(comm, comm->rank, who, sizeof who), request->task.staging->gpu, limit);
    ddl_failure_raise(comm, &notice);
}

/* What a rank that is late has not done. */
static const char *what_is_missing(const ddl_task *task)
{
    if (!ddl_channel_is_collective(task->channel))
        return task->algorithm->collective == DDL_COLLECTIVE_SEND ? "taken all of it" : "sent all of it";
    /* In the middle of a call over the board nobody lacks what he needs for the next post. */
    return ddl_backend_is_halfway(task) ? "gone on in it" : "entered it";
}

/* The same for all ranks, of which only the two at the ends of a message know of it. */
static void describe_missing(const ddl_comm *comm, const ddl_request *request, char *text, size_t capacity)
{
    const ddl_task *task = &request->task;
    const bool is_sent = task->algorithm->collective == DDL_COLLECTIVE_SEND;
    if (!ddl_request_is_collective(request))
        snprintf(text, capacity, "%s all of what rank %d %s (%s#%llu)", is_sent ? "taken" : "sent",
                 comm->rank, is_sent ? "sends" : "receives", ddl_request_operation(request),
                 (unsigned long long)task->sequence);
    else if (ddl_collective_is_uneven(task->algorithm->collective))
        snprintf(text, capacity, "%s, or exchanged less than rank %d expects,", what_is_missing(task),
                 comm->rank);
    else
        snprintf(text, capacity, "%s", what_is_missing(task));
}

/* How far this rank is with an operation that has not ended, as far as that is known. */
static void describe_done(const ddl_comm *comm, const ddl_task *task, char *text, size_t capacity)
{
    const double share = ddl_backend_share_done(task);
    if (share >= 1) /* messages end with a word of their receiver, or of their sender */
        snprintf(text, capacity, "; rank %d has moved all of its part, and waits for a last word",
                 comm->rank);
    else if (share >= 0)
        snprintf(text, capacity, "; rank %d has done %d %% of its part", comm->rank, (int)(100 * share));
}

static void raise_timeout(ddl_comm *comm, const ddl_request *request)
{
    const ddl_task *task = &request->task;
    int nlate;
    const int late = ddl_lateness_find(comm, request, &nlate);
    /* Sends and receives are counted apart, so that theirs is neither before nor after a collective's. */
    const bool is_collective = ddl_request_is_collective(request);
    ddl_notice notice = { .code = DDL_ETIMEDOUT,
                          .culprit = late,
                          .witness = comm->rank,
                          .sequence = is_collective ? task->sequence : 0 };
    snprintf(notice.operation, sizeof notice.operation, "%s", ddl_request_operation(request));
    char who[160] = "", done[80] = "", missing[96];
    if (!is_collective || late < 0)
        describe_done(comm, task, done, sizeof done);
    if (late < 0)
        snprintf(notice.text, sizeof notice.text,
                 "not finished after %lld ms (%s), though every rank has entered it%s; is a link slow?",
                 (long long)request->timeout_ms, request->limit, done);
    else {
        describe_missing(comm, request, missing, sizeof missing);
        snprintf(notice.text, sizeof notice.text, "%s has not %s within %lld ms (%s)%s%s",
                 ddl_comm_describe(comm, late, who, sizeof who), missing, (long long)request->timeout_ms,
                 request->limit, nlate > 1 ? ", nor have others" : "", done);
    }
    ddl_failure_raise(comm, &notice);
}

typedef struct awaited_search {
    int rank;
    bool found;
} awaited_search;

static void look_for_awaited(void *arg, int peer, bool outgoing)
{
    awaited_search *search = arg;
    (void)outgoing;
    search->found = search->found || peer == search->rank;
}

/* Of all that wait for a rank one speaks, the lowest that has come; and who waits for it directly, where
 * others may be through: in a tree, or with uneven blocks. But all wait for a root. */
static bool speaks_for_all(const ddl_comm *comm, const ddl_request *request, int late)
{
    const ddl_task *task = &request->task;
    const ddl_collective collective = task->algorithm->collective;
    const bool is_rooted = ddl_collective_is_rooted(collective);
    if (!ddl_request_is_collective(request))
        return true;
    if ((is_rooted && late != task->shape.root) || (!is_rooted && ddl_collective_is_uneven(collective))) {
        awaited_search search = { late, false };
        ddl_backend_visit_pending(task, look_for_awaited, &search);
        if (search.found)
            return true;
    }
    for (int rank = 0; rank < comm->rank; rank++)
        if (comm->entered[rank] >= task->sequence)
            return false;
    return true;
}

/* For how long nothing has been heard of it, s; 0 if it is not long: then what is known of it is not stale.
 */
static int silence_of(const ddl_comm *comm, int rank)
{
    enum { LONG_S = 5 };
    const int silent_s = (int)(comm->world->vigils[comm->members[rank]].silent_ns / DDL_NS_PER_S);
    return silent_s >= LONG_S ? silent_s : 0;
}

bool ddl_lateness_warn(const ddl_comm *comm, const ddl_request *request, int64_t now_ns)
{
    int nlate;
    const int late = ddl_lateness_find(comm, request, &nlate);
    char who[160], others[48] = "", silence[64] = "";
    if (late < 0 || ddl_backend_waits_for_gpu(&request->task) || !speaks_for_all(comm, request, late))
        return false;
    if (nlate == 2)
        snprintf(others, sizeof others, ", nor has another");
    else if (nlate > 2)
        snprintf(others, sizeof others, ", nor have %d others", nlate - 1);
    if (silence_of(comm, late) > 0)
        snprintf(silence, sizeof silence, ", as far as is known: it is not heard for %d s",
                 silence_of(comm, late));
    ddl_log(DDL_LOG_WARNING, "%s#%llu %s: waiting for %.1f s: %s has not %s%s%s; %d s left (%s)",
            ddl_request_operation(request), (unsigned long long)request->task.sequence, comm->pool->prefix,
            (double)(now_ns - request->issued_ns) / DDL_NS_PER_S,
            ddl_comm_describe(comm, late, who, sizeof who), what_is_missing(&request->task), others, silence,
            ddl_deadline_left_ms(request->deadline) / 1000, request->limit);
    return true;
}

/* The first operation, up to this one, that this rank is still in because of its GPU. */
static const ddl_request *find_kept_by_gpu(const ddl_comm *comm, uint64_t sequence)
{
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        if (ddl_request_is_collective(request) && request->task.sequence <= sequence &&
            ddl_backend_waits_for_gpu(&request->task))
            return request;
    }
    return NULL;
}

/* The first operation before this one that this rank is still in. */
static const ddl_request *find_before(const ddl_comm *comm, uint64_t sequence)
{
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        if (ddl_request_is_collective(request) && request->task.sequence < sequence)
            return request;
    }
    return NULL;
}

void ddl_lateness_explain(ddl_comm *comm, int64_t now_ns)
{
    const ddl_notice *cause = ddl_failure_cause(comm);
    bool is_unnamed = cause->culprit < 0 && (cause->code == DDL_ETIMEDOUT || cause->code == DDL_EDEVICE);
    const bool is_blamed = cause->code == DDL_ETIMEDOUT && cause->culprit == comm->rank;
    const ddl_request *kept = is_blamed ? find_kept_by_gpu(comm, cause->sequence) : NULL;
    const ddl_request *request = is_unnamed ? ddl_failure_find_collective(comm, cause->sequence) : NULL;
    if (is_blamed)
        request = find_before(comm, cause->sequence);
    if (kept != NULL)
        raise_stuck_gpu(comm, kept, now_ns);
    else if (request != NULL && ddl_votes_is_stuck(comm, request))
        ddl_votes_raise_stuck(comm, request);
    else if (request != NULL && ddl_backend_waits_for_gpu(&request->task))
        raise_stuck_gpu(comm, request, now_ns);
    else if (request != NULL)
        raise_timeout(comm, request);
    ddl_mesh_flush(comm->mesh);
}

/* Others still work: this rank leaves without them, and does not break what they do. */
static void leave_alone(ddl_comm *comm, ddl_request *request)
{
    int nlate;
    const int late = ddl_lateness_find(comm, request, &nlate);
    char who[160] = "";
    ddl_backend_cancel(&request->task);
    ddl_comm_untrack(request);
    comm->pool->cause = (ddl_notice){ .code = DDL_ETIMEDOUT, .culprit = late, .witness = comm->rank };
    snprintf(comm->pool->cause.text, sizeof comm->pool->cause.text,
             "left alone: %s did not free the communicator in time%s; ddl_comm_free waits for %.0f s at most",
             late < 0 ? "others" : ddl_comm_describe(comm, late, who, sizeof who),
             late >= 0 && nlate > 1 ? ", nor did others" : "", DDL_COMM_FREE_MS / 1e3);
    ddl_log(DDL_LOG_WARNING, "%s#%llu %s: %s", ddl_request_operation(request),
            (unsigned long long)request->task.sequence, comm->pool->prefix, comm->pool->cause.text);
    request->status = DDL_ETIMEDOUT;
    request->root_cause = true;
    ddl_request_end(request);
    ddl_engine_wake(comm->engine);
}

void ddl_lateness_raise(ddl_comm *comm, ddl_request *request, int64_t now_ns)
{
    if (request->task.signature.collective == DDL_SIGNATURE_FREE)
        leave_alone(comm, request);
    else if (ddl_votes_is_stuck(comm, request))
        ddl_votes_raise_stuck(comm, request);
    else if (ddl_backend_waits_for_gpu(&request->task))
        raise_stuck_gpu(comm, request, now_ns);
    else
        raise_timeout(comm, request);
}
