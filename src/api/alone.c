/* alone.c - NCCL's communicator of one rank, and a call at a time. */
#include "api/alone.h"

#include "api/abort.h"
#include "api/errand.h"
#include "api/gpu.h"
#include "api/offloading.h"
#include "api/turns.h"
#include "api/votes.h"
#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

enum {
    NEAR_MS = 5, /* most calls end in microseconds, so they are looked at without sleeping for a while */
    LOOK_US = 20
};

struct ddl_alone {
    ddl_offloading offloading; /* on the GPU of the first call */
    bool is_open;
    uint64_t nbegun;
};

/* ---- waiting ---- */

typedef struct patience {
    const ddl_comm *comm;
    ddl_deadline near, end;
} patience;

static patience until(const ddl_comm *comm, ddl_deadline deadline)
{
    return (patience){ comm, ddl_deadline_in_ms(NEAR_MS), deadline };
}

/* False: for no longer, as it is late, or another thread has aborted the communicator. */
static bool wait_a_moment(const patience *left)
{
    if (ddl_deadline_passed(left->end) || ddl_abort_of_alone(left->comm))
        return false;
    if (ddl_deadline_passed(left->near))
        ddl_pause_us(LOOK_US);
    return true;
}

static ddl_status no_longer(const ddl_comm *comm, const char *what, ddl_error *err)
{
    DDL_TRY(ddl_abort_check_alone(comm, err));
    return DDL_FAIL(
        err, DDL_EDEVICE,
        "GPU %d: NCCL has not %s within %lld ms (DDL_TIMEOUT); does it hang? NCCL_DEBUG=INFO tells more",
        comm->alone->offloading.gpu, what, (long long)comm->timeout_ms);
}

static ddl_status await(const ddl_comm *comm, const ddl_errand *errand, ddl_deadline deadline, ddl_error *err)
{
    const patience left = until(comm, deadline);
    while (!ddl_errand_is_done(errand))
        if (!wait_a_moment(&left))
            return no_longer(comm, "come up", err);
    return DDL_OK;
}

/* ---- the communicator ---- */

static ddl_status find(const ddl_comm *comm, ddl_deadline deadline, ddl_offload_facts *facts, ddl_error *err)
{
    ddl_alone *alone = comm->alone;
    ddl_errand *errand;
    DDL_TRY(ddl_errand_look(alone->offloading.gpu, &errand, err));
    ddl_status status = await(comm, errand, deadline, err);
    if (status == DDL_OK)
        status = ddl_errand_found(errand, &alone->offloading.ops, facts, err);
    ddl_errand_leave(errand, 0);
    return status;
}

static ddl_status name(const ddl_comm *comm, ddl_deadline deadline, uint8_t id[DDL_OFFLOAD_ID_BYTES],
                       ddl_error *err)
{
    ddl_errand *errand;
    DDL_TRY(ddl_errand_name(comm->alone->offloading.ops, comm->alone->offloading.gpu, &errand, err));
    ddl_status status = await(comm, errand, deadline, err);
    if (status == DDL_OK)
        status = ddl_errand_named(errand, id, err);
    ddl_errand_leave(errand, 0);
    return status;
}

static ddl_status begin_to_open(const ddl_comm *comm, ddl_deadline deadline,
                                const uint8_t id[DDL_OFFLOAD_ID_BYTES], ddl_error *err)
{
    ddl_alone *alone = comm->alone;
    ddl_errand *errand;
    DDL_TRY(ddl_errand_open(alone->offloading.ops, alone->offloading.gpu, id, 0, 1, &errand, err));
    ddl_status status = await(comm, errand, deadline, err);
    if (status == DDL_OK)
        status = ddl_errand_opened(errand, &alone->offloading.offload, err);
    ddl_errand_leave(errand, 0);
    return status;
}

static ddl_status open_it(ddl_comm *comm, ddl_deadline deadline, ddl_error *err)
{
    ddl_alone *alone = comm->alone;
    const ddl_offloading *own = &alone->offloading;
    const patience left = until(comm, deadline);
    ddl_offload_facts facts;
    uint8_t id[DDL_OFFLOAD_ID_BYTES];
    bool is_others = false; /* there are none */
    DDL_TRY(find(comm, deadline, &facts, err));
    DDL_TRY(name(comm, deadline, id, err));
    DDL_TRY(begin_to_open(comm, deadline, id, err));
    DDL_TRY(own->ops->look_at_opening(own->offload, &alone->is_open, &is_others, err));
    while (!alone->is_open) {
        if (!wait_a_moment(&left))
            return no_longer(comm, "come up", err);
        DDL_TRY(own->ops->look_at_opening(own->offload, &alone->is_open, &is_others, err));
    }
    ddl_offloading_tell_usable(comm->pool->prefix, &facts);
    return DDL_OK;
}

/* It was asked for, so there is no going on without it. */
static ddl_status make(ddl_comm *comm, ddl_deadline deadline, ddl_error *err)
{
    ddl_error why;
    const ddl_status status = open_it(comm, deadline, &why);
    if (status == DDL_OK)
        return DDL_OK;
    if (status == DDL_EABORTED)
        return *err = why, status;
    return ddl_offloading_unusable(err, why.text);
}

static ddl_alone *create(int gpu)
{
    ddl_alone *alone = ddl_alloc(sizeof *alone);
    if (alone == NULL)
        return NULL;
    ddl_offloading_init(&alone->offloading);
    alone->offloading.gpu = gpu;
    return alone;
}

void ddl_alone_begin_close(ddl_alone *alone, ddl_deadline latest)
{
    if (alone != NULL)
        ddl_offloading_begin_close(&alone->offloading, false, latest);
}

void ddl_alone_free(ddl_alone *alone)
{
    ddl_alone_begin_close(alone, DDL_DEADLINE_NEVER);
    if (alone != NULL)
        ddl_offloading_close(&alone->offloading);
    ddl_free(alone);
}

/* ---- calls ---- */

/* As where there are more ranks, but for what NCCL has no call of its own for. */
static bool is_for_offload(const ddl_comm *comm, const ddl_call *call)
{
    return comm->world->config.gpu == DDL_GPU_NCCL && call->count > 0 &&
           ddl_votes_kind(call->collective) < DDL_OFFLOAD_REDUCE_SCATTERV &&
           (!ddl_collective_reduces(call->collective) || ddl_votes_takes_op(call->op, call->dtype)) &&
           !ddl_gpu_is_managed(call->in) && !ddl_gpu_is_managed(call->out);
}

static ddl_status run(ddl_comm *comm, const ddl_call *call, ddl_deadline deadline, ddl_error *err)
{
    ddl_alone *alone = comm->alone;
    const ddl_offloading *own = &alone->offloading;
    const patience left = until(comm, deadline);
    const ddl_offload_call what = { .kind = ddl_votes_kind(call->collective),
                                    .in = call->extent.in_bytes > 0 ? call->in : call->out,
                                    .out = call->out,
                                    .count = call->count,
                                    .dtype = call->dtype,
                                    .op = call->op,
                                    .nranks = 1 };
    bool taken = false, is_others = false;
    uint64_t nended = 0;
    DDL_TRY(own->ops->start(own->offload, &what, &taken, err));
    alone->nbegun += taken; /* always: nothing is under way */
    DDL_TRY(own->ops->look(own->offload, &nended, &is_others, err));
    while (nended < alone->nbegun) {
        if (!wait_a_moment(&left))
            return no_longer(comm, "finished", err);
        DDL_TRY(own->ops->look(own->offload, &nended, &is_others, err));
    }
    return DDL_OK;
}

/* After a failure. What does not stop may still write, and nothing else goes to that GPU in this process: the
 * turn is kept. */
static void stop(const ddl_comm *comm, ddl_deadline deadline, ddl_error *error)
{
    ddl_offloading *own = &comm->alone->offloading;
    const int left_ms = ddl_deadline_left_ms(deadline);
    const int most_ms = left_ms < DDL_OFFLOADING_STOP_MS - DDL_OFFLOADING_STOP_LATE_MS
                            ? left_ms + DDL_OFFLOADING_STOP_LATE_MS
                            : DDL_OFFLOADING_STOP_MS;
    ddl_offloading_abort(own);
    if (own->offload != NULL && !own->ops->settle(own->offload, most_ms)) {
        size_t there = strlen(error->text);
        snprintf(error->text + there, sizeof error->text - there, DDL_OFFLOADING_MAY_WRITE);
        ddl_offloading_give_up_on(own, comm->pool->prefix);
        return;
    }
    ddl_turn_give(own->gpu);
}

/* As a call of an exit handler that comes later, or of another thread. */
static ddl_status check_not_exiting(const ddl_comm *comm, ddl_error *err)
{
    return atomic_load(&comm->world->ends_alone) ? DDL_FAIL(err, DDL_EABORTED, DDL_REQUEST_EXITED) : DDL_OK;
}

ddl_status ddl_alone_perform(ddl_comm *comm, const ddl_call *call, ddl_deadline deadline, bool *taken,
                             ddl_error *err)
{
    const int gpu = call->staging->gpu;
    *taken = false;
    if (!is_for_offload(comm, call))
        return DDL_OK;
    if (comm->alone == NULL && (comm->alone = create(gpu)) == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for NCCL");
    const ddl_offloading *own = &comm->alone->offloading;
    if (own->gpu != gpu || !ddl_turn_take(gpu, own->turn))
        return DDL_OK;
    atomic_store(&comm->abort.alone_in_offload, true); /* before it is seen whether the process exits */
    ddl_status status = check_not_exiting(comm, err);
    if (status == DDL_OK && !comm->alone->is_open)
        status = make(comm, deadline, err);
    if (status == DDL_OK)
        status = run(comm, call, deadline, err);
    if (status != DDL_OK)
        stop(comm, deadline, err);
    atomic_store(&comm->abort.alone_in_offload, false); /* and nothing there calls the driver any more */
    if (status != DDL_OK) {
        if (status == DDL_ENOMEM && comm->alone->is_open)
            status = err->code = DDL_EDEVICE; /* what has been stopped has no second call */
        return status;
    }
    ddl_turn_give(gpu);
    *taken = true;
    return DDL_OK;
}
