/* issue.c - numbers an operation, starts it or hands it to the holder of the baton, and waits if asked to. */
#include "api/issue.h"

#include "api/abort.h"
#include "api/failure.h"
#include "api/last_error.h"
#include "api/repeat.h"
#include "api/settings.h"
#include "api/votes.h"
#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

enum {
    ALLTOALLV_BLOCK_BYTES = 16 * 1024, /* an alltoallv is taken for one of those, which it may well not be */
    UNVOTED_BYTES = 32 * 1024
};

int ddl_issue_blocks(const ddl_comm *comm, ddl_collective collective)
{
    return ddl_collective_has_blocks(collective) ? comm->nranks : 1;
}

const ddl_algorithm *ddl_issue_algorithm(const ddl_comm *comm, ddl_collective collective, double total_bytes)
{
    const ddl_algorithm *forced = comm->world->config.forced[collective];
    if (forced != NULL)
        return ddl_algorithm_takes(forced, comm->nranks) ? forced : NULL;
    if (collective ==
        DDL_COLLECTIVE_ALLTOALLV) /* each rank knows its own counts only, so these cannot decide */
        total_bytes = (double)comm->nranks * ALLTOALLV_BLOCK_BYTES;
    return ddl_choose(&comm->model, collective, &comm->placement, total_bytes);
}

static double total_bytes(const ddl_comm *comm, const ddl_call *call, size_t element_bytes)
{
    if (call->collective == DDL_COLLECTIVE_ALLTOALLV) /* see ddl_issue_algorithm */
        return 0;
    if (call->counts == NULL)
        return (double)call->count * (double)element_bytes * ddl_issue_blocks(comm, call->collective);
    double sum = 0;
    for (int rank = 0; rank < comm->nranks; rank++)
        sum += (double)call->counts[rank];
    return sum * (double)element_bytes;
}

/* As ddl_issue_algorithm, for the issuing thread: sizes that come again need not be weighed again. */
static const ddl_algorithm *choose(ddl_comm *comm, const ddl_call *call, size_t element_bytes)
{
    double bytes = total_bytes(comm, call, element_bytes);
    if (call->as != 0) /* ddl's own call, split or free: what a user forces is not meant for it */
        return ddl_choose(&comm->model, call->collective, &comm->placement, bytes);
    struct ddl_chosen *last = &comm->chosen[call->collective][ddl_choice_place(bytes)];
    if (last->algorithm == NULL || last->total_bytes != bytes) {
        last->algorithm = ddl_issue_algorithm(comm, call->collective, bytes);
        last->total_bytes = bytes;
    }
    return last->algorithm;
}

static void complete(ddl_request *request, ddl_status status)
{
    ddl_comm *comm = request->comm;
    if (ddl_link_linked(&request->link))
        ddl_comm_untrack(request);
    request->status = status;
    ddl_request_end(request);
    if (comm->engine != NULL)
        ddl_engine_wake(comm->engine);
}

/* While a cause settles nothing counts as done any more, but for what is before the first call that differs:
 * it ends with the others. */
void ddl_issue_finished(ddl_task *task)
{
    ddl_request *request = DDL_CONTAINER(task, ddl_request, task);
    if (!ddl_failure_is_known(request->comm) || ddl_failure_cause_is_later_than(request->comm, request))
        complete(request, DDL_OK);
}

static void fail(ddl_comm *comm, ddl_request *request, const ddl_error *error)
{
    ddl_notice notice = { .code = error->code, .culprit = comm->rank, .witness = comm->rank };
    notice.sequence = request->task.sequence;
    char who[160];
    snprintf(notice.text, sizeof notice.text, "%s: %.300s",
             ddl_comm_describe(comm, comm->rank, who, sizeof who), error->text);
    if (comm->mesh != NULL) {
        ddl_failure_raise(comm, &notice);
        return;
    }
    if (error->code == DDL_ENOMEM) /* which broke nothing */
        comm->pool->cause = notice;
    else
        ddl_failure_end_alone(comm, &notice);
    request->root_cause = true;
    complete(request, error->code);
}

/* What is still due of it is cancelled when the cause is final, or by the end of its deadline. */
static void task_failed(ddl_task *task, const ddl_error *error)
{
    ddl_request *request = DDL_CONTAINER(task, ddl_request, task);
    ddl_comm *comm = request->comm;
    /* Who has let its stream go on tells why, and cancels it. */
    if (ddl_hold_is_over(task->hold) && (ddl_failure_is_known(comm) || !ddl_hold_is_overdue(task->hold)))
        return;
    fail(comm, request, error);
}

/* Counts of an alltoallv are this rank's own: peers compare them pair by pair. */
static bool remember_counts(ddl_comm *comm, ddl_past *past, const ddl_shape *shape)
{
    size_t n = (size_t)comm->nranks;
    if (past->counts == NULL && (past->counts = ddl_alloc_array(2 * n, sizeof *past->counts)) == NULL)
        return false;
    memcpy(past->counts, shape->blocks.counts, n * sizeof *past->counts);
    memcpy(past->counts + n, shape->out_blocks.counts, n * sizeof *past->counts);
    return true;
}

static void remember_message(ddl_comm *comm, const ddl_task *task)
{
    const bool sends = task->algorithm->collective == DDL_COLLECTIVE_SEND;
    ddl_past_messages *past = &comm->messages[(sends ? 0 : comm->nranks) + task->shape.root];
    past->sequence = task->sequence;
    if (task->signature.count == 0)
        past->empty_sequence = task->sequence;
}

/* Among those that it has entered. False: no memory for its counts. */
static bool remember(ddl_comm *comm, const ddl_request *request)
{
    const ddl_task *task = &request->task;
    if (!ddl_request_is_collective(request)) {
        remember_message(comm, task);
        return true;
    }
    ddl_past *past = ddl_issue_remember(comm, task);
    return task->shape.out_blocks.counts == NULL || remember_counts(comm, past, &task->shape);
}

void ddl_issue_fail(ddl_request *request, const ddl_error *error)
{
    fail(request->comm, request, error);
}

void ddl_issue_begin(ddl_request *request)
{
    ddl_comm *comm = request->comm;
    ddl_error error;
    if (request->task.staging != NULL && comm->engine != NULL)
        comm->world->copied_ns = ddl_now_ns();
    bool done = false;
    if (ddl_backend_start(comm->backend, &request->task, &done, &error) != DDL_OK)
        fail(comm, request, &error);
    else if (done)
        ddl_issue_finished(&request->task);
    else if (comm->mesh != NULL)
        ddl_failure_check_gone(comm, request);
}

/* Holder. */
static void start(ddl_comm *comm, ddl_request *request)
{
    if (comm->engine == NULL)
        (void)ddl_abort_hear(comm);
    if (ddl_failure_is_final(comm)) {
        const ddl_status cause = ddl_failure_report(comm);
        request->root_cause =
            !request->is_late; /* it may have been issued before, and waited for the baton */
        complete(request, request->root_cause ? cause : DDL_EABORTED);
        return;
    }
    ddl_error error;
    ddl_comm_track(comm, request);
    /* It ends with the cause; only where calls differ need the others know of this one, and not of what is
     * behind the first that do. */
    if (ddl_failure_is_known(comm) &&
        (ddl_failure_cause(comm)->code != DDL_EMISMATCH || ddl_failure_cause_is_earlier_than(comm, request)))
        return;
    if (request->lacks) {
        DDL_FAIL(&error, DDL_ENOMEM, "no memory for this call");
        fail(comm, request, &error);
        return;
    }
    if (!remember(comm, request)) {
        DDL_FAIL(&error, DDL_ENOMEM, "no memory for %d counts", comm->nranks);
        fail(comm, request, &error);
        return;
    }
    if (request->refusal != NULL) {
        fail(comm, request, request->refusal);
        return;
    }
    if (comm->mesh != NULL && !ddl_failure_check_early(comm, request))
        return;
    if (comm->votes != NULL && ddl_votes_begin(comm, request))
        ddl_failure_check_gone(comm, request);
    else
        ddl_issue_begin(request);
}

static void number(ddl_comm *comm, ddl_task *task)
{
    switch (task->algorithm->collective) {
    case DDL_COLLECTIVE_SEND:
        task->sequence = ++comm->sent_to[task->shape.root];
        break;
    case DDL_COLLECTIVE_RECV:
        task->sequence = ++comm->received_from[task->shape.root];
        break;
    default:
        task->sequence = ++comm->issued;
    }
}

/* Starts of blocks that are packed. */
static ddl_uneven uneven(const ddl_comm *comm, const size_t *counts, size_t *starts)
{
    size_t start = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        starts[rank] = start;
        start += counts[rank];
    }
    return (ddl_uneven){ counts, starts };
}

/* A hash, in which any one count that differs shows, and more of them but for one time in 2^64. */
static uint64_t digest(const ddl_comm *comm, const size_t *counts)
{
    uint64_t hash = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        hash = (hash ^ counts[rank]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

static void describe_blocks(ddl_comm *comm, const ddl_call *call, ddl_task *task)
{
    if (call->counts == NULL)
        return;
    task->shape.blocks = uneven(comm, call->counts, comm->starts);
    if (call->collective == DDL_COLLECTIVE_ALLTOALLV) {
        task->shape.out_blocks = uneven(comm, call->out_counts, comm->starts + comm->nranks);
        task->signature.count = 0; /* differs from pair to pair */
    } else {
        task->signature.count = digest(comm, call->counts);
    }
}

/* An alltoallv may be, as far as all ranks know. */
static bool is_large(const ddl_comm *comm, const ddl_call *call, size_t element_bytes)
{
    return call->collective == DDL_COLLECTIVE_ALLTOALLV ||
           total_bytes(comm, call, element_bytes) > UNVOTED_BYTES;
}

/*
 * What goes over a board is not put to the vote (votes.h), so where all calls may be, only what is small
 * does. The choice of algorithms must not depend on that: ranks that differ in it are to be told so. And it
 * goes in the order of calls: where there may be GPUs, and each rank has a CPU, what is not small goes by
 * messages, so that it need not wait for another stream.
 */
static size_t post_bytes(const ddl_comm *comm, const ddl_call *call, size_t element_bytes)
{
    const double bytes = total_bytes(comm, call, element_bytes);
    const bool is_small = bytes <= UNVOTED_BYTES;
    const bool is_for_vote = comm->world->voting_rule == DDL_VOTING_ALWAYS && comm->votes != NULL;
    const bool has_streams = comm->world->may_have_gpus && comm->model.crowding <= 1;
    if (comm->board == NULL || (!is_small && (is_for_vote || has_streams)) ||
        call->as == DDL_SIGNATURE_FREE) /* who has left a board does not look at it again */
        return 0;
    if (ddl_collective_is_rooted(call->collective) && comm->shares_cpus &&
        !ddl_choice_posts_for_root(&comm->model, call->collective, comm->nranks, bytes))
        return 0;
    return ddl_choice_post_bytes(&comm->model, call->collective, comm->nranks, bytes);
}

static void describe(ddl_comm *comm, const ddl_call *call, const ddl_algorithm *algorithm,
                     ddl_request *request)
{
    ddl_task *task = &request->task;
    bool point_to_point = ddl_collective_is_point_to_point(call->collective);
    size_t element_bytes = ddl_collective_has_data(call->collective) ? ddl_dtype_bytes(call->dtype) : 1;
    task->algorithm = algorithm;
    task->shape = (ddl_shape){ .rank = comm->rank,
                               .nranks = comm->nranks,
                               .root = call->root,
                               .count = call->count,
                               .stride = call->stride,
                               .placement = comm->placement,
                               .element_bytes = element_bytes,
                               .message_bytes = comm->piece_bytes,
                               .post_bytes = post_bytes(comm, call, element_bytes),
                               .in_place = call->in_place,
                               .average = ddl_collective_reduces(call->collective) && call->op == DDL_AVG,
                               .is_staged = call->staging != NULL };
    task->staging = call->staging;
    task->hold = call->hold;
    task->in = call->in;
    task->out = call->out;
    task->dtype = call->dtype;
    task->op = call->op;
    task->channel =
        ddl_channel_of(comm->id, point_to_point ? DDL_CHANNEL_POINT_TO_POINT : DDL_CHANNEL_COLLECTIVE);
    task->signature = (ddl_signature){
        .collective = (uint8_t)(point_to_point ? DDL_COLLECTIVE_SEND : call->collective),
        .dtype = ddl_collective_has_data(call->collective) ? (uint8_t)call->dtype : 0xff,
        .op = ddl_collective_reduces(call->collective) ? (uint8_t)call->op : 0xff,
        .algorithm = point_to_point ? 0xff : (uint8_t)ddl_catalogue_index(task->algorithm),
        .root = ddl_collective_is_rooted(call->collective) ? call->root : -1,
        .count = call->count,
    };
    describe_blocks(comm, call, task);
    if (call->as != 0)
        task->signature.collective = call->as;
    task->finished = ddl_issue_finished;
    task->failed = task_failed;
    request->comm = comm;
    request->engine = comm->engine;
    request->timeout_ms = comm->timeout_ms;
    request->limit = ddl_comm_timeout_name(comm, request->timeout_ms);
    request->refusal = call->refusal;
    request->is_empty = call->extent.in_bytes == 0 && call->extent.out_bytes == 0;
    request->is_large = comm->votes != NULL && is_large(comm, call, element_bytes);
}

void ddl_issue_put_off(ddl_request *request, int64_t since_ns, int64_t now_ns)
{
    const int64_t from_ns = since_ns > request->issued_ns ? since_ns : request->issued_ns;
    const ddl_deadline deadline = atomic_load(&request->deadline);
    if (now_ns > from_ns && deadline < DDL_DEADLINE_NEVER - (now_ns - from_ns))
        atomic_store(&request->deadline, deadline + (now_ns - from_ns));
    if (now_ns > from_ns && request->warn_ns < DDL_DEADLINE_NEVER - (now_ns - from_ns))
        request->warn_ns += now_ns - from_ns;
}

/* Saturates. */
static ddl_deadline later_by_ms(int64_t ns, int64_t ms)
{
    return ms > (DDL_DEADLINE_NEVER - ns) / DDL_NS_PER_MS ? DDL_DEADLINE_NEVER : ns + ms * DDL_NS_PER_MS;
}

void ddl_issue_set_deadline(ddl_request *request)
{
    request->issued_ns = ddl_now_ns();
    atomic_store_explicit(&request->deadline, later_by_ms(request->issued_ns, request->timeout_ms),
                          memory_order_relaxed);
    request->warn_ns = later_by_ms(request->issued_ns, request->comm->world->config.warn_ms);
}

const size_t *ddl_request_pair_counts(const ddl_request *request)
{
    return request->task.shape.out_blocks.counts != NULL ? request->kept : NULL;
}

/*
 * What a request needs of the caller's arrays, should it begin after the call has returned: one allocation,
 * kept by the request. In an alltoallv also the signature of each pair.
 */
static bool keep_arrays(ddl_comm *comm, ddl_request *request)
{
    ddl_shape *shape = &request->task.shape;
    size_t n = (size_t)comm->nranks;
    bool pairs = shape->out_blocks.counts != NULL;
    if (shape->blocks.counts == NULL)
        return true;
    size_t bytes = 4 * n * sizeof(size_t) + 2 * n * sizeof(ddl_signature);
    if (request->kept_bytes < bytes) {
        ddl_free(request->kept);
        request->kept = ddl_alloc(bytes);
        request->kept_bytes = request->kept != NULL ? bytes : 0;
        if (request->kept == NULL) {
            shape->blocks = shape->out_blocks =
                (ddl_uneven){ NULL, NULL }; /* not the caller's, which may go */
            return false;
        }
    }
    size_t *counts = request->kept, *out_counts = counts + n, *starts = out_counts + n,
           *out_starts = starts + n;
    memcpy(counts, shape->blocks.counts, n * sizeof *counts);
    memcpy(starts, shape->blocks.starts, n * sizeof *starts);
    shape->blocks = (ddl_uneven){ counts, starts };
    if (!pairs)
        return true;
    memcpy(out_counts, shape->out_blocks.counts, n * sizeof *counts);
    memcpy(out_starts, shape->out_blocks.starts, n * sizeof *starts);
    shape->out_blocks = (ddl_uneven){ out_counts, out_starts };
    ddl_signature *sent = (ddl_signature *)(out_starts + n), *received = sent + n;
    for (size_t i = 0; i < n; i++) {
        sent[i] = received[i] = request->task.signature;
        sent[i].count = counts[i];
        received[i].count = out_counts[i];
    }
    request->task.sent_signatures = sent;
    request->task.received_signatures = received;
    return true;
}

static ddl_status refuse_forced(const ddl_comm *comm, ddl_collective collective)
{
    char setting[DDL_SETTING_NAME];
    ddl_setting_of(collective, setting);
    return ddl_last_error_set(DDL_ECONFIG, comm->rank, ddl_collective_name(collective),
                              "%s=%s, but that does not work for the %d ranks of %s", setting,
                              comm->world->config.forced[collective]->name, comm->nranks, comm->pool->prefix);
}

static bool finish_post(void *arg)
{
    ddl_request *request = arg;
    ddl_backend_progress(request->comm->backend);
    return ddl_request_is_done(request);
}

/* Holder: the others are about to post, if they call it together; as long as nothing else is under way. */
static void linger(ddl_comm *comm, ddl_request *request)
{
    if (ddl_link_linked(&request->task.post.link) && comm->world->nbusy == 1)
        ddl_engine_linger(comm->engine, finish_post, request);
}

/* Where a rank is alone nobody drives; what takes time then is copies only. */
static void finish_alone(ddl_comm *comm, ddl_request *request)
{
    ddl_issue_set_deadline(request);
    while (!ddl_request_is_done(request) && !ddl_deadline_passed(request->deadline))
        if (!ddl_backend_progress_staged(request->task.staging) && !ddl_request_is_done(request))
            ddl_pause_us(20);
    ddl_backend_cancel(&request->task); /* unless it has ended well, there is something */
    if (ddl_request_is_done(request))
        return;
    ddl_error error;
    DDL_FAIL(&error, DDL_EDEVICE, "GPU %d has not copied its buffers within %lld ms (DDL_TIMEOUT)",
             request->task.staging->gpu, (long long)request->timeout_ms);
    fail(comm, request, &error);
}

/* A call that is not the last one's repetition, whose path is the shorter without it (noinline). */
static __attribute__((noinline)) ddl_status issue_new(ddl_comm *comm, const ddl_call *call,
                                                      ddl_request **handle)
{
    size_t element_bytes = ddl_collective_has_data(call->collective) ? ddl_dtype_bytes(call->dtype) : 1;
    const ddl_algorithm *algorithm = choose(comm, call, element_bytes);
    if (algorithm == NULL) {
        ddl_free(call->refusal);
        return refuse_forced(comm, call->collective);
    }
    ddl_request *request = ddl_request_take(comm->pool);
    const bool lacks = call->lacks || request == NULL;
    if (request == NULL)
        request = ddl_request_take_reserve(comm->pool);
    if (request == NULL) { /* and another call has failed so, which ends this communicator */
        ddl_free(call->refusal);
        return ddl_last_error_set(DDL_ENOMEM, comm->rank, ddl_collective_name(call->collective),
                                  "no memory for a request");
    }
    describe(comm, call, algorithm, request);
    request->lacks = !keep_arrays(comm, request) || lacks;
    number(comm, &request->task);
    request->is_late = atomic_load_explicit(&comm->pool->is_told, memory_order_relaxed);
    if (comm->engine == NULL) {
        start(comm, request);
        if (!ddl_request_is_done(request))
            finish_alone(comm, request);
    } else if (ddl_engine_try_enter(comm->engine)) {
        ddl_engine_drain(comm->engine);       /* earlier calls may be among them, and posts go in order */
        if (ddl_list_empty(&comm->in_flight)) /* what others have ended meanwhile is not to be begun */
            ddl_engine_listen(comm->engine);
        start(comm, request);
        ddl_plan *plan = request->task.posted_plan;
        if (handle == NULL && call->staging == NULL)
            linger(comm, request);
        bool done = ddl_request_is_done(request);
        if (done && handle == NULL && ddl_repeat_keep(comm, call, request, plan)) {
            ddl_repeat_leave(comm);
            return DDL_OK;
        }
        if (!done)
            ddl_issue_set_deadline(request); /* once what it sends is on its way */
        ddl_mesh_flush(comm->mesh);
        if (!done && handle == NULL)
            return ddl_request_wait_entered(&request);
        if (done && plan != NULL)
            ddl_repeat_leave(comm);
        else
            ddl_engine_leave(comm->engine);
    } else {
        ddl_issue_set_deadline(request);
        ddl_engine_submit(comm->engine, &request->job);
    }
    if (handle == NULL)
        return ddl_wait(&request);
    *handle = request;
    return DDL_OK;
}

ddl_status ddl_issue(ddl_comm *comm, const ddl_call *call, ddl_request **handle)
{
    ddl_status status;
    if (handle == NULL && call->staging == NULL && call->refusal == NULL &&
        ddl_repeat_call(comm, call, &status))
        return status;
    return issue_new(comm, call, handle);
}

void ddl_issue_job(ddl_link *job)
{
    ddl_request *request = DDL_CONTAINER(job, ddl_request, job);
    start(request->comm, request);
}
