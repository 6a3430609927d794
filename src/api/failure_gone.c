/* failure_gone.c - when it is a failure that a peer is gone. */
#include "api/failure_parts.h"

#include "api/lateness.h"
#include "api/votes.h"
#include "io/socket.h"

#include <stdio.h>
#include <string.h>

/* With what the system said, if this becomes the cause. */
static void raise_seen(ddl_comm *comm, ddl_notice *notice, int os_errno)
{
    const ddl_link *first = ddl_list_first(&comm->in_flight);
    const ddl_notice *cause = &comm->failure.cause;
    if (first != NULL)
        notice->sequence = DDL_CONTAINER(first, ddl_request, link)->task.sequence;
    ddl_failure_raise(comm, notice);
    if (cause->code == notice->code && cause->culprit == notice->culprit && cause->witness == comm->rank)
        comm->failure.os_errno = os_errno;
}

/* The program has closed a descriptor that is not its own: its peers see this rank go. */
static void raise_closed_here(ddl_comm *comm, int peer, int os_errno)
{
    ddl_notice notice = { .code = DDL_EPEERLOST, .culprit = comm->rank, .witness = comm->rank };
    char who[160], reason[96];
    if (strerror_r(os_errno, reason, sizeof reason) != 0)
        reason[0] = '\0';
    snprintf(
        notice.text, sizeof notice.text,
        "%s: the descriptor of its connection with rank %d is that no more (%s): has this program closed a "
        "descriptor that was not its own, or put another file in its place?",
        ddl_comm_describe(comm, comm->rank, who, sizeof who), peer, reason);
    raise_seen(comm, &notice, os_errno);
}

static void raise_lost(ddl_comm *comm, int peer, int os_errno, const char *how)
{
    const bool is_cut_off = ddl_socket_is_cut_off(os_errno);
    ddl_notice notice = { .code = is_cut_off ? DDL_EUNREACHABLE : DDL_EPEERLOST,
                          .culprit = peer,
                          .witness = comm->rank,
                          .broke = os_errno != 0 };
    const ddl_member *member = &comm->roster->members[peer];
    char who[160];
    ddl_comm_describe(comm, peer, who, sizeof who);
    if (is_cut_off)
        snprintf(notice.text, sizeof notice.text,
                 "%s %s:%u: %s; is its host down, or cut off from rank %d's?", who, member->address,
                 member->port, how, comm->rank);
    else
        snprintf(notice.text, sizeof notice.text, "%s %s:%u: %s; look at the output of rank %d", who,
                 member->address, member->port, how, peer);
    raise_seen(comm, &notice, os_errno);
}

void ddl_failure_lost(ddl_comm *comm, int peer, int os_errno, const ddl_error *error)
{
    comm->ngone++;
    ddl_failure_doubt_gone(comm, peer);
    if (comm->failure.told_by[peer])
        return;
    if (ddl_socket_is_closed_here(os_errno)) {
        raise_closed_here(comm, peer, os_errno);
        return;
    }
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
        snprintf(how, sizeof how,
                 ddl_socket_is_cut_off(os_errno) ? "its connection was given up by the system (%s)"
                                                 : "its process ended or its connection broke (%s)",
                 reason);
    raise_lost(comm, peer, os_errno, how);
}

typedef struct peer_search { /* for the lowest of the peers that are gone whose messages an operation waits
                                for */
    const ddl_comm *comm;
    int found; /* or -1 */
} peer_search;

static void look_at_pending(void *arg, int peer, bool outgoing)
{
    (void)outgoing;
    peer_search *search = arg;
    if (!ddl_mesh_is_gone(search->comm->mesh, search->comm->members[peer]))
        return;
    if (search->found < 0 || peer < search->found)
        search->found = peer;
}

static int lowest_gone(const ddl_comm *comm, const ddl_request *request)
{
    peer_search pending = { comm, -1 };
    ddl_backend_visit_pending(&request->task, look_at_pending, &pending);
    ddl_votes_visit_pending(comm, request, look_at_pending, &pending);
    return pending.found;
}

static const char LEFT[] = "it has left: its process ended, or freed the communicator, before this operation";
static const char LEFT_INSIDE[] =
    "it has left: its process ended, or freed the communicator, in this operation";

void ddl_failure_check_gone(ddl_comm *comm, const ddl_request *request)
{
    if (comm->ngone == 0 || ddl_failure_is_known(comm))
        return;
    int gone = lowest_gone(comm, request);
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
    bool is_inside = request->vote.stage > DDL_VOTE_OPEN || ddl_backend_is_halfway(&request->task);
    raise_lost(comm, gone, 0, is_inside ? LEFT_INSIDE : LEFT);
}

void ddl_failure_left(ddl_comm *comm, int peer)
{
    comm->ngone++;
    ddl_failure_doubt_gone(comm, peer);
    if (comm->board != NULL) /* or calls that need nothing of it would go on for as many as may be ahead */
        ddl_board_stay_near(comm->board);
    DDL_LIST_FOR_EACH (link, &comm->in_flight)
        ddl_failure_check_gone(comm, DDL_CONTAINER(link, ddl_request, link));
}
