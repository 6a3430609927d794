/* world_mesh.c - hands what comes over the mesh to the communicator that it is for. */
#include "api/world_parts.h"

#include "api/failure.h"
#include "api/votes.h"

static bool on_heard(void *arg, int peer, const ddl_frame *frame)
{
    ddl_world *world = arg;
    uint32_t id = ddl_channel_communicator(frame->channel);
    ddl_comm *comm = ddl_world_find(world, id);
    if (comm == NULL)
        return !ddl_world_is_freed(world, id);
    int rank = comm->rank_of[peer];
    if (rank < 0 || ddl_failure_is_final(comm))
        return false;
    return ddl_failure_heard(comm, rank, frame);
}

static void on_told(void *arg, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    ddl_world *world = arg;
    uint32_t id = ddl_channel_communicator(frame->channel);
    ddl_comm *comm = ddl_world_find(world, id);
    ddl_notice told = *notice;
    told.is_final = frame->number != 0;
    ddl_world_finish_with(world);
    if (comm == NULL) {
        if (!ddl_world_is_freed(world, id))
            ddl_world_hold_notice(world, peer, frame, &told);
        return;
    }
    int rank = comm->rank_of[peer];
    if (rank >= 0)
        ddl_failure_told(comm, rank, &told);
}

static bool on_agreement(void *arg, int peer, const ddl_frame *frame, ddl_view payload, ddl_error *err)
{
    ddl_world *world = arg;
    const uint32_t id = ddl_channel_communicator(frame->channel);
    ddl_comm *comm = ddl_world_find(world, id);
    int rank = comm != NULL ? comm->rank_of[peer] : -1;
    if (comm == NULL && ddl_world_is_freed(world, id))
        ddl_world_answer_apart(world, peer, frame, payload);
    else if (comm == NULL)
        ddl_world_hold_report(world, peer, frame, payload);
    return rank < 0 || ddl_shrink_heard(comm, rank, frame, payload, err);
}

/* Single operations are not cancelled, but for the last one, which may be left alone. */
static bool on_unwanted(void *arg, const ddl_frame *frame)
{
    const ddl_comm *comm = ddl_world_find(arg, ddl_channel_communicator(frame->channel));
    return comm != NULL && (ddl_failure_is_known(comm) || comm->is_abandoned ||
                            frame->signature.collective == DDL_SIGNATURE_FREE);
}

static void on_left(void *arg, int peer)
{
    ddl_world *world = arg;
    ddl_world_finish_with(world);
    DDL_LIST_FOR_EACH (link, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, active);
        int rank = comm->rank_of[peer];
        if (rank < 0)
            continue;
        ddl_failure_left(comm, rank);
        ddl_shrink_gone(comm, rank);
    }
}

static void on_lost(void *arg, int peer, int os_errno, const ddl_error *error)
{
    ddl_world *world = arg;
    ddl_world_finish_with(world);
    DDL_LIST_FOR_EACH (link, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, active);
        int rank = comm->rank_of[peer];
        if (rank < 0)
            continue;
        ddl_failure_lost(comm, rank, os_errno, error);
        ddl_shrink_gone(comm, rank);
    }
}

static void on_knows(void *arg, int peer, const ddl_frame *frame, ddl_view payload)
{
    ddl_world *world = arg;
    ddl_comm *comm = ddl_world_find(world, ddl_channel_communicator(frame->channel));
    int rank = comm != NULL ? comm->rank_of[peer] : -1;
    bool is_collective = ddl_channel_is_collective(frame->channel);
    if (rank >= 0 && ddl_votes_is_word(frame))
        ddl_votes_heard(comm, rank, frame, payload);
    else if (rank >= 0 && is_collective && comm->sparse && !ddl_failure_is_final(comm))
        ddl_failure_knows(comm, rank, frame, payload);
}

static void on_reach(void *arg, int peer)
{
    ddl_bootstrap_reach(((ddl_world *)arg)->bootstrap, peer);
}

static void on_widen(void *arg, int peer)
{
    ddl_bootstrap_widen(((ddl_world *)arg)->bootstrap, peer);
}

static void on_met(void *arg, int peer)
{
    ddl_world *world = arg;
    DDL_LIST_FOR_EACH (link, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, active);
        if (comm->rank_of[peer] >= 0)
            ddl_failure_met(comm, comm->rank_of[peer]);
    }
}

ddl_mesh_owner ddl_world_mesh_owner(ddl_world *world)
{
    return (ddl_mesh_owner){ .heard = on_heard,
                             .told = on_told,
                             .agrees = on_agreement,
                             .left = on_left,
                             .lost = on_lost,
                             .cancels = on_unwanted,
                             .arg = world,
                             .reach = on_reach,
                             .met = on_met,
                             .widen = on_widen,
                             .knows = on_knows };
}
