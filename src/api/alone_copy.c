/* alone_copy.c - calls of a rank alone on buffers of its GPU, which mostly need no more than a copy there. */
#include "api/alone_copy.h"

#include "api/abort.h"
#include "api/alone.h"
#include "api/failure.h"
#include "api/gpu.h"
#include "api/last_error.h"

enum { NEAR_MS = 5, LOOK_US = 20 /* after that */ };

static bool is_only_copied(const ddl_call *call)
{
    return call->in_place || call->extent.in_bytes == call->extent.out_bytes;
}

/* Nobody else is needed, and nobody drives: the stream copies by itself. */
static ddl_status copy_along(ddl_comm *comm, const ddl_call *call, ddl_error *err)
{
    const ddl_staging *staging = call->staging;
    return staging->ops->copy_along(staging->device, comm->stream, call->out, call->in,
                                    call->in_place ? 0 : call->extent.out_bytes, err);
}

/* False: it is late, or another thread has aborted the communicator. */
static bool may_wait(const ddl_comm *comm, ddl_deadline deadline)
{
    return !ddl_deadline_passed(deadline) && !ddl_abort_of_alone(comm);
}

/* Mostly it is there in a few microseconds, so it is looked at without sleeping for a while. */
static ddl_status await_copy(const ddl_comm *comm, ddl_staging *staging, ddl_deadline deadline,
                             ddl_error *err)
{
    ddl_deadline near = ddl_deadline_in_ms(NEAR_MS);
    bool is_copied = false;
    DDL_TRY(ddl_staging_look(staging, &is_copied, err));
    while (!is_copied && may_wait(comm, deadline)) {
        if (ddl_deadline_passed(near))
            ddl_pause_us(LOOK_US);
        DDL_TRY(ddl_staging_look(staging, &is_copied, err));
    }
    if (is_copied)
        return DDL_OK;
    DDL_TRY(ddl_abort_check_alone(comm, err));
    return DDL_FAIL(err, DDL_EDEVICE, "GPU %d has not copied its buffers within %lld ms (DDL_TIMEOUT)",
                    staging->gpu, (long long)comm->timeout_ms);
}

/* Nobody else is needed, nor the host's memory: the GPU copies by itself. */
static ddl_status copy_now(ddl_comm *comm, const ddl_call *call, ddl_deadline deadline, ddl_error *err)
{
    ddl_staging *staging = call->staging;
    if (call->in_place || call->extent.out_bytes == 0)
        return DDL_OK;
    ddl_status status = ddl_staging_copy(staging, call->out, call->in, call->extent.out_bytes, err);
    if (status == DDL_OK)
        status = await_copy(comm, staging, deadline, err);
    if (status != DDL_OK) {
        ddl_staging_drop(staging);
        ddl_staging_tell_hanging(staging, err->text, sizeof err->text);
        if (ddl_abort_hear(comm)) /* then that is what the call ends with */
            ddl_staging_tell_hanging(staging, comm->pool->cause.text, sizeof comm->pool->cause.text);
    }
    return status;
}

/* Until the stream has done what it has now. */
static ddl_status wait_for_stream(ddl_comm *comm, const ddl_call *call, ddl_deadline deadline, ddl_error *err)
{
    ddl_hold hold;
    bool reached = false;
    DDL_TRY(ddl_staging_shut(call->staging, comm->stream, comm, deadline, &hold, err));
    ddl_hold_end(hold);
    DDL_TRY(hold.latch->ops->look_at_latch(hold.latch, &reached, err));
    while (!reached && may_wait(comm, deadline)) {
        ddl_pause_us(LOOK_US);
        DDL_TRY(hold.latch->ops->look_at_latch(hold.latch, &reached, err));
    }
    if (reached)
        return DDL_OK;
    DDL_TRY(ddl_abort_check_alone(comm, err));
    return DDL_FAIL(err, DDL_EDEVICE, "the stream of GPU %d has not come to it within %lld ms (DDL_TIMEOUT)",
                    call->staging->gpu, (long long)comm->timeout_ms);
}

/* Whoever waits for a request finds the copy made. */
static ddl_status copy_alone(ddl_comm *comm, const ddl_call *call, bool has_request, ddl_error *err)
{
    if (comm->has_stream && !has_request)
        return copy_along(comm, call, err);
    ddl_deadline deadline = ddl_deadline_in_ms(comm->timeout_ms);
    bool is_performed = false;
    if (comm->has_stream)
        DDL_TRY(wait_for_stream(comm, call, deadline, err));
    else
        DDL_TRY(ddl_alone_perform(comm, call, deadline, &is_performed, err));
    return is_performed ? DDL_OK : copy_now(comm, call, deadline, err);
}

/* Of what is done. */
static ddl_status give_request(ddl_comm *comm, const ddl_call *call, ddl_request **handle)
{
    ddl_request *request = ddl_request_take(comm->pool);
    if (request == NULL)
        return ddl_last_error_set(DDL_ENOMEM, comm->rank, ddl_collective_name(call->collective),
                                  "no memory for a request");
    request->comm = comm;
    ddl_request_end(request);
    *handle = request;
    return DDL_OK;
}

ddl_status ddl_alone_copy_issue(ddl_comm *comm, ddl_call *call, ddl_request **handle)
{
    ddl_error error;
    ddl_status status = DDL_OK;
    (void)ddl_abort_hear(comm);
    if (!ddl_failure_is_final(comm) && is_only_copied(call)) {
        status = copy_alone(comm, call, handle != NULL, &error);
        if (status == DDL_OK)
            return handle != NULL ? give_request(comm, call, handle) : DDL_OK;
    } else if (!ddl_failure_is_final(comm) && comm->has_stream) {
        status = wait_for_stream(comm, call, ddl_deadline_in_ms(comm->timeout_ms), &error);
    }
    if (status != DDL_OK)
        ddl_gpu_refuse(call, &error);
    return ddl_issue(comm, call, handle);
}
