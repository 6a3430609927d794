/* votes_offload.c - how NCCL's communicator comes up, or calls go on without it. */
#include "api/votes_state.h"

#include "api/failure.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { UP_MS = 30000 /* see is_too_late */ };

/* ---- trouble ---- */

static void raise_device(ddl_comm *comm, const ddl_request *request, int culprit, const char *text)
{
    ddl_notice notice = { .code = DDL_EDEVICE, .culprit = culprit, .witness = comm->rank };
    notice.sequence = request->task.sequence;
    snprintf(notice.operation, sizeof notice.operation, "%s", ddl_request_operation(request));
    snprintf(notice.text, sizeof notice.text, "%s", text);
    ddl_failure_raise(comm, &notice);
}

/* It was asked for, so there is no going on without it. */
static void raise_unusable(ddl_comm *comm, const ddl_request *request, int culprit, const char *reason)
{
    ddl_error error;
    (void)ddl_offloading_unusable(&error, reason);
    raise_device(comm, request, culprit, error.text);
}

static void raise_own(ddl_comm *comm, const ddl_request *request, const ddl_error *error)
{
    char who[160], reason[340];
    snprintf(reason, sizeof reason, "%.120s: %.200s", ddl_comm_describe(comm, comm->rank, who, sizeof who),
             error->text);
    raise_unusable(comm, request, comm->rank, reason);
}

void ddl_votes_blame_others(ddl_comm *comm, const ddl_request *request, const ddl_error *error)
{
    char who[160];
    ddl_notice notice = { .code = DDL_EDEVICE, .culprit = -1, .witness = comm->rank };
    notice.sequence = request->task.sequence;
    snprintf(notice.text, sizeof notice.text, "%s: %.300s",
             ddl_comm_describe(comm, comm->rank, who, sizeof who), error->text);
    ddl_failure_raise(comm, &notice);
}

/* ---- where it is optional ---- */

static void end_errand(ddl_votes *votes)
{
    ddl_errand_leave(votes->errand, 0);
    votes->errand = NULL;
}

static ddl_status take_opened(ddl_votes *votes, ddl_error *err)
{
    const ddl_status status = ddl_errand_opened(votes->errand, &votes->offloading.offload, err);
    end_errand(votes);
    return status;
}

/* From now on hosts perform all calls of this communicator, for this reason. */
static void go_without(ddl_comm *comm, ddl_log_level level, const char *reason)
{
    ddl_votes *votes = comm->votes;
    ddl_error error;
    if (votes->progress == DDL_OFFLOAD_OPENING && votes->errand != NULL &&
        ddl_errand_is_done(votes->errand) && take_opened(votes, &error) != DDL_OK)
        ddl_log(DDL_LOG_DEBUG, "%s: %s", comm->pool->prefix, error.text);
    votes->progress = DDL_OFFLOAD_UNUSABLE;
    end_errand(votes);
    ddl_offloading_abort(&votes->offloading); /* it has no calls yet, so nobody waits for its end */
    ddl_log(level, "%s: calls on buffers of GPUs go through the hosts, as NCCL cannot be used: %s",
            comm->pool->prefix, reason);
}

/* Hosts wait for an NCCL that they can do without for UP_MS, and not so long that a call that waits for it
 * would have no time left. */
static bool is_too_late(const ddl_comm *comm)
{
    const int64_t now_ns = ddl_now_ns();
    if (!comm->votes->is_optional)
        return false;
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        const bool waits = request->vote.stage != DDL_VOTE_NOT_VOTED ||
                           request->task.signature.collective == DDL_SIGNATURE_FREE;
        const int64_t waited_ms = (now_ns - request->issued_ns) / DDL_NS_PER_MS;
        if (waits && request->issued_ns != 0 && waited_ms > request->timeout_ms / 4 * 3)
            return true;
    }
    return now_ns - comm->votes->begun_ns > UP_MS * DDL_NS_PER_MS;
}

/* ---- finding it ---- */

static ddl_status find(ddl_comm *comm, int gpu, ddl_error *err)
{
    ddl_votes *votes = comm->votes;
    if (votes->errand == NULL) {
        DDL_TRY(ddl_errand_look(gpu, &votes->errand, err));
        votes->begun_ns = ddl_now_ns();
    }
    if (!ddl_errand_is_done(votes->errand))
        return is_too_late(comm) ? DDL_FAIL(err, DDL_ETIMEDOUT, "it is still being loaded") : DDL_OK;
    DDL_TRY(ddl_errand_found(votes->errand, &votes->offloading.ops, &votes->facts[comm->rank], err));
    end_errand(votes);
    votes->offloading.gpu = gpu;
    votes->progress = DDL_OFFLOAD_FOUND;
    return DDL_OK;
}

void ddl_votes_find(ddl_comm *comm, const ddl_request *request, int gpu)
{
    ddl_error error;
    if (find(comm, gpu, &error) == DDL_OK)
        return;
    end_errand(comm->votes);
    if (comm->votes->is_optional)
        go_without(comm, DDL_LOG_INFO, error.text);
    else
        raise_own(comm, request, &error);
}

/* ---- making it ---- */

/* Once, to all: whether this rank's part has come up. */
static void say_up(ddl_comm *comm, const ddl_request *request, bool is_up)
{
    const uint8_t byte = is_up ? 1 : 0;
    ddl_frame frame = ddl_votes_frame_about(comm, request->task.sequence, &request->task.signature);
    frame.piece = DDL_ENTER_NCCL_UP;
    ddl_votes_tell(comm, -1, frame, (ddl_view){ &byte, 1 });
}

/* On all ranks the same: they judge the same facts. */
static bool agree(ddl_comm *comm, const ddl_request *request)
{
    const ddl_offload_facts *facts = comm->votes->facts;
    char one[160], other[160], reason[340];
    for (int high = 1; high < comm->nranks; high++)
        for (int low = 0; low < high; low++) {
            const ddl_offload_facts *a = &facts[low], *b = &facts[high];
            bool same_gpu = memcmp(a->gpu_id, b->gpu_id, DDL_GPU_ID_BYTES) == 0;
            bool is_allowed = !same_gpu || (a->shares_gpu && b->shares_gpu);
            if (a->version == b->version && is_allowed)
                continue;
            ddl_comm_describe(comm, low, one, sizeof one);
            ddl_comm_describe(comm, high, other, sizeof other);
            if (!is_allowed)
                snprintf(reason, sizeof reason,
                         "%.120s and %.120s use the same GPU, without NCCL_MULTI_RANK_GPU_ENABLE=1 on both",
                         one, other);
            else
                snprintf(reason, sizeof reason, "%.120s has NCCL %u, but %.120s has %u", one, a->version,
                         other, b->version);
            if (comm->votes->is_optional)
                go_without(comm, same_gpu ? DDL_LOG_DEBUG : DDL_LOG_WARNING, reason);
            else
                raise_unusable(comm, request, high, reason);
            return false;
        }
    return true;
}

/* By rank 0, only now, as NCCL keeps what it has made for an id until all have met by it. */
static ddl_status make_id(ddl_comm *comm, const ddl_request *request, ddl_error *err)
{
    ddl_votes *votes = comm->votes;
    if (votes->errand == NULL)
        DDL_TRY(ddl_errand_name(votes->offloading.ops, votes->offloading.gpu, &votes->errand, err));
    if (!ddl_errand_is_done(votes->errand))
        return DDL_OK;
    ddl_status status = ddl_errand_named(votes->errand, votes->id, err);
    end_errand(votes);
    if (status != DDL_OK)
        return status;
    votes->has_id = true;
    ddl_frame frame = ddl_votes_frame_about(comm, request->task.sequence, &request->task.signature);
    frame.piece = DDL_ENTER_NCCL_ID;
    ddl_votes_tell(comm, -1, frame, (ddl_view){ votes->id, sizeof votes->id });
    return DDL_OK;
}

static ddl_status name_it(ddl_comm *comm, const ddl_request *request, ddl_error *err)
{
    ddl_votes *votes = comm->votes;
    if (comm->rank == 0)
        DDL_TRY(make_id(comm, request, err));
    if (!votes->has_id)
        return DDL_OK;
    DDL_TRY(ddl_errand_open(votes->offloading.ops, votes->offloading.gpu, votes->id, comm->rank, comm->nranks,
                            &votes->errand, err));
    votes->progress = DDL_OFFLOAD_OPENING;
    return DDL_OK;
}

static ddl_status open_it(ddl_comm *comm, const ddl_request *request, bool *is_others, ddl_error *err)
{
    ddl_votes *votes = comm->votes;
    bool is_open = false;
    if (votes->errand != NULL && !ddl_errand_is_done(votes->errand))
        return DDL_OK;
    if (votes->errand != NULL)
        DDL_TRY(take_opened(votes, err));
    DDL_TRY(votes->offloading.ops->look_at_opening(votes->offloading.offload, &is_open, is_others, err));
    if (!is_open)
        return DDL_OK;
    votes->progress = DDL_OFFLOAD_AWAITING_OTHERS;
    votes->nup++;
    if (votes->is_optional)
        say_up(comm, request, true);
    return DDL_OK;
}

static void await_others(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    if (votes->is_optional && votes->nup < comm->nranks)
        return;
    votes->progress = DDL_OFFLOAD_USABLE;
    ddl_offloading_tell_usable(comm->pool->prefix, &votes->facts[comm->rank]);
}

static void not_made(ddl_comm *comm, const ddl_request *request, bool is_others, const ddl_error *error)
{
    if (comm->votes->is_optional) {
        say_up(comm, request, false);
        go_without(comm, DDL_LOG_WARNING, error->text);
    } else if (is_others) {
        ddl_votes_blame_others(comm, request, error);
    } else {
        raise_own(comm, request, error);
    }
}

static void go_further(ddl_comm *comm, const ddl_request *request)
{
    ddl_votes *votes = comm->votes;
    ddl_error error;
    ddl_status status = DDL_OK;
    bool is_others = false; /* what has failed */
    switch (votes->progress) {
    case DDL_OFFLOAD_FOUND:
        if (agree(comm, request)) {
            votes->progress = DDL_OFFLOAD_NAMING;
            votes->begun_ns = ddl_now_ns();
        }
        break;
    case DDL_OFFLOAD_NAMING:
        status = name_it(comm, request, &error);
        break;
    case DDL_OFFLOAD_OPENING:
        status = open_it(comm, request, &is_others, &error);
        break;
    case DDL_OFFLOAD_AWAITING_OTHERS:
        await_others(comm);
        break;
    case DDL_OFFLOAD_FINDING: /* never: this rank has said that it has found it */
    case DDL_OFFLOAD_USABLE:
    case DDL_OFFLOAD_UNUSABLE:
        break;
    }
    /* Who has said that it is up keeps to that. */
    if (status == DDL_OK && votes->progress < DDL_OFFLOAD_AWAITING_OTHERS && is_too_late(comm))
        status = DDL_FAIL(&error, DDL_ETIMEDOUT, "it has not come up in time");
    if (status != DDL_OK)
        not_made(comm, request, is_others, &error);
}

bool ddl_votes_make(ddl_comm *comm, const ddl_request *request, bool *moved)
{
    ddl_votes *votes = comm->votes;
    ddl_offload_progress before;
    do {
        before = votes->progress;
        if (ddl_votes_is_coming_up(votes) && votes->is_down)
            go_without(comm, DDL_LOG_DEBUG, "another rank tells why");
        else
            go_further(comm, request);
        *moved = *moved || votes->progress != before;
    } while (votes->progress != before);
    return votes->progress == DDL_OFFLOAD_USABLE;
}
