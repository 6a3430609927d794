/* issue.c - numbers an operation, starts it or hands it to the holder of the baton, and waits if asked to. */
#include "api/issue.h"

#include "api/last_error.h"
#include "base/dtype.h"

#include <stdio.h>

static bool is_point_to_point(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_SEND || collective == DDL_COLLECTIVE_RECV;
}

const ddl_algorithm *ddl_issue_algorithm(const ddl_comm *comm, ddl_collective collective, size_t count,
                                         size_t element_bytes)
{
    if (comm->config.forced[collective] != NULL)
        return comm->config.forced[collective];
    bool of_blocks = collective == DDL_COLLECTIVE_ALLGATHER || collective == DDL_COLLECTIVE_REDUCE_SCATTER ||
                     collective == DDL_COLLECTIVE_ALLTOALL;
    double total = (double)count * (double)element_bytes * (of_blocks ? comm->config.nranks : 1);
    const ddl_placement placement = { comm->config.nranks, comm->roster->node_count, comm->roster->node_of };
    return ddl_choose(&comm->model, collective, &placement, total);
}

/* As ddl_issue_algorithm, for the issuing thread: a call like the last one need not be weighed again. */
static const ddl_algorithm *choose(ddl_comm *comm, ddl_collective collective, size_t count,
                                   size_t element_bytes)
{
    struct ddl_chosen *last = &comm->chosen[collective];
    if (last->algorithm == NULL || last->count != count || last->element_bytes != element_bytes) {
        last->algorithm = ddl_issue_algorithm(comm, collective, count, element_bytes);
        last->count = count;
        last->element_bytes = element_bytes;
    }
    return last->algorithm;
}

static void complete(ddl_request *request, ddl_status status)
{
    ddl_comm *comm = request->comm;
    if (ddl_link_linked(&request->link))
        ddl_list_remove(&request->link);
    request->status = status;
    atomic_store(&request->done, true); /* pairs with pool->waiters, see ddl_request_pool */
    if (comm->engine != NULL)
        ddl_engine_wake(comm->engine);
}

/* While a cause settles nothing counts as done any more: it ends with the others. */
static void task_finished(ddl_task *task)
{
    ddl_request *request = DDL_CONTAINER(task, ddl_request, task);
    if (!request->comm->failure.failing)
        complete(request, DDL_OK);
}

static void remember(ddl_comm *comm, const ddl_task *task)
{
    if (task->channel != DDL_CHANNEL_COLLECTIVE)
        return;
    ddl_past *past = &comm->history[task->sequence % DDL_HISTORY];
    past->sequence = task->sequence;
    past->signature = task->signature;
    comm->entered[comm->roster->rank] = task->sequence;
}

/* Holder of the baton: begin. */
static void start(ddl_comm *comm, ddl_request *request)
{
    if (comm->failure.failed) {
        request->root_cause = !comm->failure.reported;
        comm->failure.reported = true;
        complete(request, request->root_cause ? comm->failure.cause.code : DDL_EABORTED);
        return;
    }
    remember(comm, &request->task);
    ddl_list_append(&comm->in_flight, &request->link);
    if (comm->mesh != NULL)
        ddl_failure_check_early(comm, request);
    bool done = false;
    ddl_error error;
    ddl_status status = ddl_backend_start(comm->backend, &request->task, &done, &error);
    if (status != DDL_OK) {
        ddl_notice notice = { .code = status, .culprit = comm->roster->rank, .witness = comm->roster->rank };
        notice.sequence = request->task.sequence;
        char who[160];
        snprintf(notice.text, sizeof notice.text, "%s: %.300s",
                 ddl_comm_describe(comm, comm->roster->rank, who, sizeof who), error.text);
        if (comm->mesh != NULL) {
            ddl_failure_raise(comm, &notice);
            return;
        }
        comm->pool->cause = notice;
        request->root_cause = true;
        complete(request, status);
        return;
    }
    if (done)
        task_finished(&request->task);
    else if (comm->mesh != NULL)
        ddl_failure_check_gone(comm, request);
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

static void describe(ddl_comm *comm, const ddl_call *call, ddl_request *request)
{
    ddl_task *task = &request->task;
    bool point_to_point = is_point_to_point(call->collective);
    size_t element_bytes = call->has_dtype ? ddl_dtype_bytes(call->dtype) : 1;
    task->algorithm = choose(comm, call->collective, call->count, element_bytes);
    task->shape = (ddl_shape){ .rank = comm->roster->rank,
                               .nranks = comm->config.nranks,
                               .root = call->root,
                               .count = call->count,
                               .stride = call->stride,
                               .element_bytes = element_bytes,
                               .in_place = call->in_place,
                               .average = call->has_op && call->op == DDL_AVG };
    task->in = call->in;
    task->out = call->out;
    task->dtype = call->dtype;
    task->op = call->op;
    task->channel = point_to_point ? DDL_CHANNEL_POINT_TO_POINT : DDL_CHANNEL_COLLECTIVE;
    task->signature = (ddl_signature){
        .collective = (uint8_t)(point_to_point ? DDL_COLLECTIVE_SEND : call->collective),
        .dtype = call->has_dtype ? (uint8_t)call->dtype : 0xff,
        .op = call->has_op ? (uint8_t)call->op : 0xff,
        .algorithm = point_to_point ? 0xff : (uint8_t)ddl_catalogue_index(task->algorithm),
        .root = call->has_root ? call->root : -1,
        .count = call->count,
    };
    if (call->parting)
        task->signature.collective = DDL_SIGNATURE_FREE;
    task->finished = task_finished;
    request->comm = comm;
    request->engine = comm->engine;
    request->timeout_ms = comm->timeout_ms;
    request->issued_ns = ddl_now_ns();
    request->deadline = request->timeout_ms > (DDL_DEADLINE_NEVER - request->issued_ns) / DDL_NS_PER_MS
                            ? DDL_DEADLINE_NEVER
                            : request->issued_ns + request->timeout_ms * DDL_NS_PER_MS;
}

ddl_status ddl_issue(ddl_comm *comm, const ddl_call *call, ddl_request **handle)
{
    ddl_request *request = ddl_request_take(comm->pool);
    if (request == NULL)
        return ddl_last_error_set(DDL_ENOMEM, comm->roster->rank, ddl_collective_name(call->collective),
                                  "no memory for a request");
    describe(comm, call, request);
    number(comm, &request->task);
    if (comm->engine == NULL) {
        start(comm, request);
    } else if (ddl_engine_try_enter(comm->engine)) {
        start(comm, request);
        ddl_mesh_flush(comm->mesh);
        if (handle == NULL && !atomic_load_explicit(&request->done, memory_order_relaxed))
            ddl_engine_wait_entered(comm->engine, &request->done, request->deadline);
        else
            ddl_engine_leave(comm->engine);
    } else {
        ddl_engine_submit(comm->engine, &request->job);
    }
    if (handle == NULL)
        return ddl_wait(&request);
    *handle = request;
    return DDL_OK;
}

/* ---- for the engine ---- */

bool ddl_issue_sweep(void *arg)
{
    return ddl_mesh_sweep(((ddl_comm *)arg)->mesh);
}

bool ddl_issue_needs_loop(void *arg)
{
    return ddl_mesh_needs_loop(((ddl_comm *)arg)->mesh);
}

void ddl_issue_job(void *arg, ddl_link *job)
{
    ddl_comm *comm = arg;
    start(comm, DDL_CONTAINER(job, ddl_request, job));
    ddl_mesh_flush(comm->mesh);
}

void ddl_issue_tick(void *arg, int64_t now_ns)
{
    ddl_failure_tick(arg, now_ns);
}

bool ddl_issue_busy(void *arg)
{
    const ddl_comm *comm = arg;
    return !ddl_list_empty(&comm->in_flight) || (comm->failure.failing && !comm->failure.failed);
}
