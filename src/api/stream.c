/* stream.c - calls that are operations of a stream of the program. */
#include "api/stream.h"

#include "api/alone_copy.h"
#include "api/gpu.h"
#include "api/last_error.h"
#include "base/log.h"

#include <ddl/cuda.h>

enum { STREAMED = 16, LET_GO_MS = 2000, HAND_OVER_MS = 100 };

/* ---- what nobody waits for ---- */

static void keep(ddl_comm *comm, ddl_request *request)
{
    ddl_list_append(&comm->streamed, &request->streamed);
    comm->nstreamed++;
}

/* Whether it has ended, or will now that the driver lets it: a program that has waited for its stream, which
 * has gone on without it, is to be told. */
static bool is_to_be_told(const ddl_request *request)
{
    return ddl_request_is_done(request) || ddl_hold_is_over(request->task.hold);
}

/* Those that are done, from the oldest on; all: also behind one that is not, as of another stream. */
static ddl_status reap(ddl_comm *comm, bool all, ddl_error *error)
{
    ddl_status first = DDL_OK;
    DDL_LIST_FOR_EACH (link, &comm->streamed) {
        ddl_request *request = DDL_CONTAINER(link, ddl_request, streamed);
        if (!is_to_be_told(request) && !all)
            break;
        if (!is_to_be_told(request))
            continue;
        ddl_list_remove(link);
        comm->nstreamed--;
        ddl_status status = ddl_wait(&request);
        /* DDL_EABORTED only says that something failed before. */
        if (status != DDL_OK && (first == DDL_OK || (first == DDL_EABORTED && status != DDL_EABORTED))) {
            first = status;
            *error = *ddl_last_error();
        }
    }
    return first;
}

ddl_status ddl_stream_reap(ddl_comm *comm)
{
    ddl_error error;
    const bool all = comm->nstreamed > comm->most_streamed;
    const ddl_status first = reap(comm, all, &error);
    if (all || comm->nstreamed == 0) /* all not in each call */
        comm->most_streamed = 2 * comm->nstreamed + STREAMED;
    return first == DDL_OK || comm->is_given_up ? DDL_OK : ddl_last_error_keep(&error);
}

/* ---- together ---- */

/* When the stream goes on whatever happens: later than all is over that whoever can drive does at the
 * deadline. */
static ddl_deadline let_go_by(const ddl_comm *comm)
{
    const int64_t now_ns = ddl_now_ns(), most_ms = (DDL_DEADLINE_NEVER - now_ns) / DDL_NS_PER_MS - LET_GO_MS;
    return comm->timeout_ms < most_ms ? now_ns + (comm->timeout_ms + LET_GO_MS) * DDL_NS_PER_MS
                                      : DDL_DEADLINE_NEVER;
}

/* Nothing has begun, and the others are not told: it is as any other argument that is wrong. */
static ddl_status refuse_other_gpu(const ddl_comm *comm, const ddl_call *call)
{
    return ddl_last_error_set(DDL_EINVAL, comm->rank, ddl_collective_name(call->collective),
                              "the buffers are memory of GPU %d, but the stream of ddl_stream_begin is of "
                              "GPU %d; give a stream of the GPU that has the buffers",
                              call->staging->gpu, comm->stream_gpu);
}

static void tell_how_it_waits(ddl_comm *comm, const ddl_call *call)
{
    if (comm->has_told_how_it_waits)
        return;
    comm->has_told_how_it_waits = true;
    ddl_log(DDL_LOG_DEBUG, "%s: streams of GPU %d wait for operations %s", comm->pool->prefix,
            call->staging->gpu,
            call->hold.latch->waits_in_function
                ? "in functions of the host (cuLaunchHostFunc), as the driver declines to wait for memory"
                : "at words in memory (cuStreamWaitValue32)");
}

static ddl_status hold_stream(ddl_comm *comm, ddl_call *call, ddl_error *err)
{
    ddl_staging_make_stock(call->staging);
    if (!ddl_list_empty(&call->staging->stock) &&
        ddl_engine_enter(comm->engine, ddl_deadline_in_ms(HAND_OVER_MS))) { /* or next time */
        ddl_staging_take_stock(call->staging);
        ddl_engine_leave(comm->engine);
    }
    DDL_TRY(ddl_staging_shut(call->staging, comm->stream, comm, let_go_by(comm), &call->hold, err));
    tell_how_it_waits(comm, call);
    return DDL_OK;
}

ddl_status ddl_stream_issue(ddl_comm *comm, ddl_call *call, ddl_request **handle)
{
    ddl_error error;
    if (comm->has_stream && comm->stream_gpu >= 0 && call->staging->gpu != comm->stream_gpu)
        return refuse_other_gpu(comm, call);
    if (comm->engine == NULL)
        return ddl_alone_copy_issue(comm, call, handle);
    if (hold_stream(comm, call, &error) != DDL_OK) {
        ddl_gpu_refuse(call, &error);
        return ddl_issue(comm, call, handle);
    }
    ddl_request *request = NULL;
    ddl_status status = ddl_issue(comm, call, &request);
    if (status != DDL_OK)
        ddl_hold_end(call->hold);
    else if (handle != NULL)
        *handle = request;
    else if (ddl_request_is_done(request) && request->status != DDL_OK) /* nothing has begun */
        status = ddl_request_finish(request);
    else
        keep(comm, request);
    return status;
}

/* ---- the calls ---- */

ddl_status ddl_stream_begin(ddl_comm *comm, void *stream)
{
    const struct ddl_device_ops *ops;
    ddl_error error;
    DDL_TRY(ddl_comm_check_open(comm, "stream_begin"));
    if (comm->has_stream)
        return ddl_last_error_set(DDL_EINVAL, comm->rank, "stream_begin",
                                  "the communicator has a stream already; call ddl_stream_end first");
    DDL_TRY(ddl_stream_reap(comm));
    if (ddl_gpu_plugin(&ops, &error) != DDL_OK)
        return ddl_last_error_set(error.code, comm->rank, "stream_begin", "%s", error.text);
    comm->has_stream = true;
    comm->stream = stream;
    comm->stream_gpu = ops->gpu_of_stream(stream);
    return DDL_OK;
}

ddl_status ddl_stream_end(ddl_comm *comm)
{
    DDL_TRY(ddl_comm_check_open(comm, "stream_end"));
    if (!comm->has_stream)
        return ddl_last_error_set(DDL_EINVAL, comm->rank, "stream_end",
                                  "the communicator has no stream; call ddl_stream_begin first");
    comm->has_stream = false;
    return ddl_stream_reap(comm);
}
