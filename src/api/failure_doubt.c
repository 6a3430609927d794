/*
 * failure_doubt.c - whether a rank that some have lost was lost by all.
 *
 * A process that ends is lost to everybody within moments. A connection that is reset on the way is lost to
 * two ranks, each of which takes the other one for the culprit. So who is told that a rank was lost, and has
 * not lost it once the loop has been run, denies that: it tells all others the cause as it has heard it. They
 * wait for longer then, until each of the two knows what the other one says, and all take the lower one. Who
 * loses the rank after all says so, in its own name, and then nobody waits for longer.
 *
 * Where pairs connect late all causes are passed on, and waited for, anyway.
 */
#include "api/failure_parts.h"

#include <stdio.h>
#include <string.h>

enum {
    DENIED_MS = 200,  /* to settle, as with all that comes by way of others */
    CONFIRMED_MS = 50 /* and if nobody denies it any more */
};

/* What a process that ends closes may come late to some, behind what it had sent; so of that nobody doubts.
 */
bool ddl_failure_may_be_cut(const ddl_comm *comm, const ddl_notice *cause)
{
    return !comm->sparse && comm->nranks > 2 && cause->code == DDL_EPEERLOST && cause->culprit >= 0 &&
           cause->witness >= 0 && cause->witness != cause->culprit && cause->broke;
}

static bool is_in_doubt(const ddl_comm *comm)
{
    const ddl_failure *failure = &comm->failure;
    return failure->phase == DDL_FAILURE_SETTLING && !failure->cause.is_final &&
           ddl_failure_may_be_cut(comm, &failure->cause);
}

static bool has_not_lost(const ddl_comm *comm, int rank)
{
    return rank == comm->rank || ddl_mesh_is_linked(comm->mesh, comm->members[rank]);
}

static void set_denial(ddl_comm *comm, int rank, bool denies)
{
    ddl_failure *failure = &comm->failure;
    if (failure->denied_by[rank] == denies)
        return;
    failure->denied_by[rank] = denies;
    failure->ndenials += denies ? 1 : -1;
    const int64_t now_ns = ddl_now_ns();
    const int64_t denied_ns = ddl_deadline_earlier(now_ns + DENIED_MS * DDL_NS_PER_MS, failure->latest_ns);
    if (denies && failure->ndenials == 1 && failure->settle_ns < denied_ns)
        failure->settle_ns = denied_ns;
    else if (failure->ndenials == 0)
        failure->settle_ns = ddl_deadline_earlier(failure->settle_ns, now_ns + CONFIRMED_MS * DDL_NS_PER_MS);
}

void ddl_failure_doubt_anew(ddl_comm *comm)
{
    ddl_failure *failure = &comm->failure;
    failure->is_doubted = false;
    if (failure->ndenials > 0)
        memset(failure->denied_by, 0, (size_t)comm->nranks * sizeof *failure->denied_by);
    failure->ndenials = 0;
}

void ddl_failure_doubt_told(ddl_comm *comm, int peer, const ddl_notice *notice)
{
    ddl_failure *failure = &comm->failure;
    if (!is_in_doubt(comm) || !ddl_failure_may_be_cut(comm, notice) ||
        notice->culprit != failure->cause.culprit)
        return;
    set_denial(comm, peer, peer != notice->witness);
    if (failure->is_doubted || failure->denied_by[comm->rank] || !has_not_lost(comm, notice->culprit))
        return;
    failure->is_doubted = true;
    failure->doubted_loops = ddl_engine_loops(comm->engine);
    ddl_engine_tick_soon(comm->engine);
}

void ddl_failure_doubt_tick(ddl_comm *comm)
{
    ddl_failure *failure = &comm->failure;
    if (!failure->is_doubted || !is_in_doubt(comm))
        return;
    if (ddl_engine_loops(comm->engine) == failure->doubted_loops) {
        ddl_engine_tick_soon(comm->engine);
        return;
    }
    failure->is_doubted = false;
    if (!has_not_lost(comm, failure->cause.culprit))
        return;
    set_denial(comm, comm->rank, true);
    ddl_failure_tell_cause(comm, -1);
}

void ddl_failure_doubt_gone(ddl_comm *comm, int peer)
{
    ddl_failure *failure = &comm->failure;
    if (!is_in_doubt(comm) || failure->cause.culprit != peer)
        return;
    failure->is_doubted = false;
    if (!failure->denied_by[comm->rank])
        return;
    set_denial(comm, comm->rank, false);
    ddl_notice own = failure->cause;
    own.witness = comm->rank;
    const ddl_frame frame = { .type = DDL_FRAME_ABORT,
                              .channel = ddl_channel_of(comm->id, DDL_CHANNEL_COLLECTIVE),
                              .sequence = own.sequence };
    ddl_failure_tell(comm, -1, &frame, &own);
}

void ddl_failure_doubt_end(ddl_comm *comm)
{
    ddl_notice *cause = &comm->failure.cause;
    const size_t length = strlen(cause->text);
    if (is_in_doubt(comm) && comm->failure.ndenials > 0)
        snprintf(cause->text + length, sizeof cause->text - length,
                 "; others have not lost it: if it lives, the connection between it and rank %d was cut on "
                 "the way",
                 cause->witness);
}
