/* votes_end.c - how calls end that NCCL does not finish. */
#include "api/votes_state.h"

#include "api/failure.h"
#include "api/gpu.h"
#include "api/turns.h"

#include <stdio.h>

/* ---- out of time ---- */

static bool is_on_errand(const ddl_votes *votes)
{
    return votes->errand != NULL && !ddl_errand_is_done(votes->errand);
}

bool ddl_votes_is_stuck(const ddl_comm *comm, const ddl_request *request)
{
    return request->vote.stage > DDL_VOTE_OPEN ||
           (request->vote.stage == DDL_VOTE_WAITS && is_on_errand(comm->votes));
}

void ddl_votes_raise_stuck(ddl_comm *comm, const ddl_request *request)
{
    const ddl_votes *votes = comm->votes;
    bool is_own = is_on_errand(votes); /* nobody else has a part in that */
    ddl_notice notice = { .code = DDL_EDEVICE,
                          .culprit = is_own ? comm->rank : -1,
                          .witness = comm->rank,
                          .sequence = request->task.sequence };
    char who[160], where[32] = "";
    int gpu = request->task.staging != NULL ? request->task.staging->gpu : votes->offloading.gpu;
    ddl_comm_describe(comm, comm->rank, who, sizeof who);
    if (gpu >= 0) /* else it is an earlier call that keeps one with buffers on the host */
        snprintf(where, sizeof where, "GPU %d: ", gpu);
    snprintf(notice.operation, sizeof notice.operation, "%s", ddl_request_operation(request));
    if (is_own)
        snprintf(notice.text, sizeof notice.text,
                 "%s: %sNCCL has not come up within %lld ms (DDL_TIMEOUT); is what it is loaded from slow, "
                 "or does it hang? NCCL_DEBUG=INFO tells more",
                 who, where, (long long)request->timeout_ms);
    else
        snprintf(notice.text, sizeof notice.text,
                 "%s: %sNCCL has not %s within %lld ms (DDL_TIMEOUT), though every rank has called it; "
                 "does a GPU hang, or the network between them? NCCL_DEBUG=INFO tells more",
                 who, where, votes->progress == DDL_OFFLOAD_USABLE ? "finished" : "connected all ranks",
                 (long long)request->timeout_ms);
    ddl_failure_raise(comm, &notice);
}

/* ---- stopping ---- */

void ddl_votes_abort(ddl_comm *comm)
{
    if (comm->votes != NULL)
        ddl_offloading_abort(&comm->votes->offloading);
}

void ddl_votes_await_abort(ddl_comm *comm, ddl_deadline deadline)
{
    const ddl_votes *votes = comm->votes;
    if (votes != NULL && votes->offloading.offload != NULL)
        (void)votes->offloading.ops->settle(votes->offloading.offload, ddl_deadline_left_ms(deadline));
}

static bool is_running(const ddl_votes *votes)
{
    return votes != NULL && votes->nended < votes->nbegun;
}

/* Beyond their deadlines waiters wait a little, and would not be told why. */
static int64_t stop_limit(const ddl_comm *comm, int64_t limit_ns)
{
    const int64_t most_ns = DDL_OFFLOADING_STOP_LATE_MS * DDL_NS_PER_MS;
    DDL_LIST_FOR_EACH (link, &comm->in_flight) { /* of any kind: all end together */
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        int64_t late_ns = request->deadline < DDL_DEADLINE_NEVER - most_ns ? request->deadline + most_ns
                                                                           : DDL_DEADLINE_NEVER;
        if (late_ns < limit_ns)
            limit_ns = late_ns;
    }
    return limit_ns;
}

bool ddl_votes_have_stopped(ddl_comm *comm, int64_t now_ns)
{
    ddl_votes *votes = comm->votes;
    if (!is_running(votes))
        return true;
    ddl_votes_abort(comm); /* again, where there was no thread for it */
    if (votes->offloading.ops->settle(votes->offloading.offload, 0))
        return true;
    if (votes->stop_ns == 0) { /* it may wait for all that is under way on the GPU, as it gives memory back */
        ddl_gpu_let_go(comm);
        votes->stop_ns = now_ns + DDL_OFFLOADING_STOP_MS * DDL_NS_PER_MS;
    }
    votes->stop_ns = stop_limit(comm, votes->stop_ns);
    return now_ns >= votes->stop_ns;
}

bool ddl_votes_cancel(ddl_comm *comm, int timeout_ms)
{
    ddl_votes *votes = comm->votes;
    bool stopped = true;
    if (votes == NULL)
        return true;
    ddl_offloading *own = &votes->offloading;
    if (is_running(votes)) {
        ddl_gpu_let_go(comm);
        ddl_offloading_abort(own);
        stopped = own->ops->settle(own->offload, timeout_ms);
    }
    if (!stopped) { /* who copies on that GPU does not wait for it either; nothing else goes to NCCL there in
                       this process, as the turn is kept */
        comm->world->hangs_until[own->gpu] = ddl_deadline_in_ms(DDL_HANGS_MS);
        ddl_offloading_give_up_on(own, comm->pool->prefix);
    } else if (votes->nwanted > 0) {
        ddl_turn_give(own->gpu);
    }
    votes->nwanted = 0;
    votes->nended = votes->nbegun;
    for (ddl_link *first; (first = ddl_list_first(&votes->requests)) != NULL;)
        ddl_votes_leave(comm, ddl_votes_request_of(first));
    return stopped;
}
