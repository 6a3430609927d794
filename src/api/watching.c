/* watching.c - see watching.h. */
#include "api/watching.h"

#include "api/failure.h"
#include "api/votes.h"

#include <stdio.h>

enum {
    LOOK_AFTER_MS = 500, /* most operations end before anybody looks */
    TRIES = 3            /* to send something again; fewer may be chance */
};

typedef struct watch {
    ddl_comm *comm;
    int64_t now_ns;
    int found; /* the lowest that gives no sign, or -1 */
    ddl_vigil_verdict verdict;
} watch;

static ddl_vigil_limits limits_of(const ddl_world *world)
{
    return (ddl_vigil_limits){ world->config.unresponsive_ms * DDL_NS_PER_MS,
                               world->config.unreachable_ms * DDL_NS_PER_MS };
}

static ddl_vigil_verdict look(ddl_world *world, int member, int64_t now_ns)
{
    const ddl_vigil_limits limits = limits_of(world);
    ddl_signs signs;
    bool ping;
    ddl_vigil *vigil = &world->vigils[member];
    if (vigil->looked_ns == now_ns) /* for another operation */
        return vigil->verdict;
    if (!ddl_mesh_see(world->mesh, member, &signs))
        return DDL_VIGIL_ALIVE;
    (void)ddl_vigil_look(vigil, &signs, &limits, now_ns, &ping);
    if (ping)
        ddl_mesh_ping(world->mesh, member);
    return vigil->verdict;
}

ddl_vigil_verdict ddl_watching_look(ddl_comm *comm, int peer, int64_t now_ns)
{
    return look(comm->world, comm->members[peer], now_ns);
}

static void watch_pending(void *arg, int peer, bool outgoing)
{
    watch *it = arg;
    const ddl_vigil_verdict verdict = ddl_watching_look(it->comm, peer, it->now_ns);
    (void)outgoing;
    if (verdict != DDL_VIGIL_ALIVE && (it->found < 0 || peer < it->found)) {
        it->found = peer;
        it->verdict = verdict;
    }
}

static void raise_no_sign(ddl_comm *comm, const ddl_request *request, int peer, ddl_vigil_verdict verdict)
{
    const ddl_member *member = &comm->roster->members[peer];
    const ddl_config *config = &comm->world->config;
    const bool is_gone = verdict == DDL_VIGIL_UNREACHABLE;
    const ddl_vigil_limits limits = limits_of(comm->world);
    const bool is_heard = ddl_vigil_hears(&comm->world->vigils[comm->members[peer]], &limits);
    const bool host_answers = comm->world->vigils[comm->members[peer]].signs.has_acks &&
                              comm->roster->node_of[peer] != comm->roster->node_of[comm->rank];
    ddl_notice notice = { .code = is_gone ? DDL_EUNREACHABLE : DDL_EUNRESPONSIVE,
                          .culprit = peer,
                          .witness = comm->rank,
                          .sequence = ddl_request_is_collective(request) ? request->task.sequence : 0 };
    char who[160];
    snprintf(notice.operation, sizeof notice.operation, "%s", ddl_request_operation(request));
    ddl_comm_describe(comm, peer, who, sizeof who);
    if (is_gone && is_heard)
        snprintf(notice.text, sizeof notice.text,
                 "%s %s:%u is heard, but its host has acknowledged nothing for %.1f s (DDL_UNREACH_TIMEOUT); "
                 "does something between it and rank %d drop large packets (look at the MTU), or all in "
                 "that direction?",
                 who, member->address, member->port, (double)config->unreachable_ms / 1000, comm->rank);
    else if (is_gone)
        snprintf(notice.text, sizeof notice.text,
                 "%s %s:%u: its host has acknowledged nothing for %.1f s (DDL_UNREACH_TIMEOUT); is it down, "
                 "or cut off from rank %d's?",
                 who, member->address, member->port, (double)config->unreachable_ms / 1000, comm->rank);
    else
        snprintf(
            notice.text, sizeof notice.text,
            "%s has given no sign of life for %.1f s (DDL_UNRESP_TIMEOUT)%s; is its process stopped, or in "
            "a debugger?",
            who, (double)config->unresponsive_ms / 1000, host_answers ? ", though its host has" : "");
    ddl_failure_raise(comm, &notice);
}

static bool is_watched(const ddl_request *request, int64_t now_ns)
{
    return now_ns - request->issued_ns >= LOOK_AFTER_MS * DDL_NS_PER_MS &&
           request->task.signature.collective != DDL_SIGNATURE_FREE; /* which has a limit of its own */
}

void ddl_watching_look_for_signs(ddl_comm *comm, const ddl_request *request, int64_t now_ns)
{
    watch it = { comm, now_ns, -1, DDL_VIGIL_ALIVE };
    if (!is_watched(request, now_ns))
        return;
    ddl_backend_visit_pending(&request->task, watch_pending, &it);
    ddl_votes_visit_pending(comm, request, watch_pending, &it);
    if (it.found >= 0)
        raise_no_sign(comm, request, it.found, it.verdict);
}

/* The oldest operation of a communicator that is well, if it has waited for long enough. */
static const ddl_request *oldest_watched(const ddl_comm *comm, int64_t now_ns)
{
    const ddl_link *first = ddl_list_first(&comm->in_flight);
    const ddl_request *oldest = first != NULL ? DDL_CONTAINER(first, ddl_request, link) : NULL;
    return oldest != NULL && !ddl_failure_is_known(comm) && is_watched(oldest, now_ns) ? oldest : NULL;
}

static void raise_unreachable(ddl_world *world, int member, int64_t now_ns)
{
    DDL_LIST_FOR_EACH (link, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, active);
        const ddl_request *oldest = oldest_watched(comm, now_ns);
        if (oldest != NULL && comm->rank_of[member] >= 0)
            raise_no_sign(comm, oldest, comm->rank_of[member], DDL_VIGIL_UNREACHABLE);
    }
}

static bool anything_is_watched(const ddl_world *world, int64_t now_ns)
{
    DDL_LIST_FOR_EACH (link, &world->active)
        if (oldest_watched(DDL_CONTAINER(link, ddl_comm, active), now_ns) != NULL)
            return true;
    return false;
}

void ddl_watching_look_at_acks(ddl_world *world, int64_t now_ns)
{
    ddl_signs signs;
    if (!anything_is_watched(world, now_ns))
        return;
    for (int member = 0; member < world->config.nranks; member++)
        if (ddl_mesh_may_await_acks(world->mesh, member) && ddl_mesh_see(world->mesh, member, &signs) &&
            signs.awaits_acks && look(world, member, now_ns) == DDL_VIGIL_UNREACHABLE)
            raise_unreachable(world, member, now_ns);
}

void ddl_watching_answer(ddl_comm *comm, int peer)
{
    const ddl_member *member = &comm->roster->members[peer];
    ddl_notice notice = { .code = DDL_EUNREACHABLE, .culprit = peer, .witness = comm->rank };
    ddl_signs signs;
    char who[160];
    if (!ddl_mesh_see(comm->mesh, comm->members[peer], &signs) || !signs.awaits_acks || signs.tries < TRIES)
        return;
    snprintf(
        notice.text, sizeof notice.text,
        "%s %s:%u hears nothing of rank %d, which lives, and its host acknowledges nothing of what that "
        "sends again and again; does something between them drop large packets (look at the MTU), or all in "
        "that direction?",
        ddl_comm_describe(comm, peer, who, sizeof who), member->address, member->port, comm->rank);
    ddl_failure_raise(comm, &notice);
}

void ddl_watching_look_at_connections(ddl_world *world, int64_t now_ns)
{
    const ddl_vigil_limits limits = limits_of(world);
    ddl_mesh_watch_stripes(world->mesh, &limits, now_ns);
}
