/* world_links.c - connections that the mesh gets beside those that it begins with. */
#include "api/world_parts.h"

#include "base/log.h"
#include "io/wire.h"

/* Large messages to and from a rank go over these. */
static ddl_status widen(ddl_world *world, int rank, const ddl_wire streams[], ddl_error *err)
{
    int count = ddl_roster_streams(world->roster, rank);
    return count > 0 ? ddl_mesh_widen(world->mesh, rank, streams, count, err) : DDL_OK;
}

static ddl_status widen_all(ddl_world *world, ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (int rank = 0; rank < world->config.nranks && status == DDL_OK; rank++) {
        ddl_wire streams[DDL_STREAMS_MAX];
        if (!ddl_roster_connects(world->roster, rank))
            continue;
        ddl_bootstrap_take_streams(world->bootstrap, rank, streams);
        status = widen(world, rank, streams, err);
    }
    return status;
}

static void let_choose(ddl_world *world)
{
    for (int rank = 0; rank < world->config.nranks; rank++) {
        const int most = ddl_roster_most_streams(world->roster, rank);
        if (most > 0)
            ddl_mesh_let_choose(world->mesh, rank, most);
    }
}

ddl_status ddl_world_widen(ddl_world *world, ddl_error *err)
{
    if (!world->roster->chooses_streams)
        return widen_all(world, err);
    let_choose(world);
    return DDL_OK;
}

/* ---- ranks that connect late ---- */

/* Or all goes on as it does. */
static void widen_late(ddl_world *world, ddl_meshing_outcome *outcome)
{
    ddl_status status = outcome->error.code;
    if (outcome->has_come)
        status = ddl_mesh_widen_late(world->mesh, outcome->rank, outcome->streams, &outcome->error);
    if (status != DDL_OK)
        ddl_log(DDL_LOG_INFO, "rank %d: large messages to rank %d go on over one connection: %s",
                world->config.rank, outcome->rank, outcome->error.text);
}

static void meet_late(ddl_world *world, ddl_meshing_outcome *outcome)
{
    if (outcome->has_come && widen(world, outcome->rank, outcome->streams, &outcome->error) != DDL_OK)
        ddl_wire_close(&outcome->wire);
    if (outcome->wire.fd >= 0)
        ddl_mesh_meet(world->mesh, outcome->rank, outcome->wire);
    else
        ddl_mesh_miss(world->mesh, outcome->rank, &outcome->error);
}

/* Thread: service. */
static void on_arrival(void *arg)
{
    ddl_world *world = arg;
    if (!atomic_exchange(&world->arrived, true))
        ddl_engine_submit(world->engine, &world->arrivals);
}

void ddl_world_await_arrivals(ddl_world *world)
{
    ddl_bootstrap_listen(world->bootstrap, on_arrival, world);
}

void ddl_world_take_arrivals(ddl_world *world)
{
    ddl_meshing_outcome outcome;
    atomic_store(&world->arrived, false); /* first: what comes from now on is submitted again */
    ddl_world_finish_posts(world);
    while (ddl_bootstrap_next(world->bootstrap, &outcome))
        (outcome.widens ? widen_late : meet_late)(world, &outcome);
    ddl_engine_wake(world->engine); /* who waits must see that there is a new connection to wait for */
}
