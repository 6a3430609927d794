/* meshing_pairs.c - counts the connections to each rank, tells when those that are to be there are. */
#include "rendezvous/meshing_pairs.h"

#include "base/assert.h"

bool ddl_pairs_is_late(const ddl_meshing *meshing, int rank)
{
    return meshing->roster != NULL && !ddl_roster_connects(meshing->roster, rank);
}

void ddl_pairs_fail(ddl_meshing *meshing, const ddl_error *error)
{
    ddl_bell_lock(&meshing->bell);
    if (meshing->status == DDL_OK) {
        meshing->status = error->code;
        meshing->error = *error;
    }
    ddl_bell_ring(&meshing->bell);
    ddl_bell_unlock(&meshing->bell);
}

void ddl_pairs_tell(ddl_meshing *meshing)
{
    ddl_bell_lock(&meshing->bell);
    void (*hear)(void *arg) = meshing->nsettled > 0 ? meshing->tell : NULL;
    ddl_bell_unlock(&meshing->bell);
    if (hear != NULL)
        hear(meshing->tell_arg);
}

void ddl_pairs_settle(ddl_meshing *meshing, ddl_wish wish)
{
    meshing->settled[meshing->nsettled++] = wish;
}

ddl_wire *ddl_pairs_streams(const ddl_meshing *meshing, int rank)
{
    return meshing->streams + (size_t)rank * (size_t)meshing->nstreams;
}

bool ddl_pairs_may_widen(const ddl_meshing *meshing, int rank)
{
    const ddl_roster *roster = meshing->roster;
    return roster != NULL && ddl_roster_most_streams(roster, rank) > ddl_roster_streams(roster, rank);
}

bool ddl_pairs_is_settled(const ddl_meshing *meshing, ddl_wish wish)
{
    return wish.widens ? meshing->widened[wish.rank] : meshing->met[wish.rank];
}

/* How many connections the pair is to have now. */
static int goal_of(const ddl_meshing *meshing, int rank)
{
    return 1 + (meshing->met[rank] ? ddl_roster_most_streams(meshing->roster, rank)
                                   : ddl_roster_streams(meshing->roster, rank));
}

bool ddl_pairs_is_whole(const ddl_meshing *meshing, int rank)
{
    return meshing->roster != NULL && meshing->nwires[rank] == goal_of(meshing, rank);
}

bool ddl_pairs_is_last(const ddl_meshing *meshing, int rank)
{
    return meshing->nwires[rank] + 1 == goal_of(meshing, rank);
}

void ddl_pairs_be_met(ddl_meshing *meshing, int rank)
{
    const bool widens = meshing->met[rank];
    meshing->met[rank] = true;
    meshing->widened[rank] = widens;
    if (widens || ddl_pairs_is_late(meshing, rank))
        ddl_pairs_settle(meshing, (ddl_wish){ rank, widens });
    else if (--meshing->missing == 0)
        ddl_bell_ring(&meshing->bell);
}

bool ddl_pairs_connected(ddl_meshing *meshing, int rank, ddl_wire wire)
{
    const int number = meshing->nwires[rank]++;
    const bool whole = ddl_pairs_is_whole(meshing, rank);
    ddl_bell_lock(&meshing->bell);
    ddl_wire *place = number == 0 ? &meshing->wires[rank] : &ddl_pairs_streams(meshing, rank)[number - 1];
    DDL_ASSERT(place->fd < 0);
    *place = wire;
    if (whole)
        ddl_pairs_be_met(meshing, rank);
    ddl_bell_unlock(&meshing->bell);
    if (whole)
        ddl_pairs_tell(meshing);
    return whole;
}

void ddl_pairs_drop(ddl_meshing *meshing, ddl_wish wish)
{
    if (!wish.widens)
        ddl_wire_close(&meshing->wires[wish.rank]);
    for (int i = 0; i < meshing->nstreams; i++)
        ddl_wire_close(&ddl_pairs_streams(meshing, wish.rank)[i]);
}
