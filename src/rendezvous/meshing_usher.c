/* meshing_usher.c - connects to whom the usher has introduced; is the usher where this rank is the lowest. */
#include "rendezvous/meshing_usher.h"

#include "io/local.h"

#include <stdio.h>

/* The usher has nothing more to say. */
static void all_are_met(ddl_meshing *meshing)
{
    ddl_bell_lock(&meshing->bell);
    meshing->unmet = 0;
    if (--meshing->missing == 0)
        ddl_bell_ring(&meshing->bell);
    ddl_bell_unlock(&meshing->bell);
}

void ddl_meshing_usher_do_without(ddl_meshing *meshing)
{
    all_are_met(meshing);
    for (int rank = meshing->self.rank - 1; rank >= 0; rank--)
        if (rank != meshing->usher && ddl_roster_is_neighbour(meshing->roster, rank))
            ddl_outgoing_start(meshing, (ddl_wish){ rank, false });
}

static void lose_usher(ddl_meshing *meshing, ddl_outgoing *call, ddl_status status, ddl_error *error)
{
    const int rank = meshing->usher;
    const bool is_own = status == DDL_ERESOURCE || status == DDL_EUNSUPPORTED; /* what this rank lacks */
    const ddl_error cause = *error;
    char who[256];
    ddl_outgoing_describe(call, who, sizeof who);
    if (status == DDL_EPEERLOST)
        (void)ddl_error_set(error, status,
                            "%s, by way of which ranks of its host are connected, ended before they were; "
                            "look at its output",
                            who);
    else if (!is_own)
        (void)ddl_error_set(error, status, "%s: %.300s", who, cause.text);
    if (!is_own)
        error->culprit = rank;
    ddl_outgoing_forget(call);
    ddl_pairs_fail(meshing, error);
}

static void meet(ddl_meshing *meshing, const ddl_introductions *introductions)
{
    for (int i = 0; i < introductions->count; i++) {
        const int rank = introductions->ranks[i];
        ddl_wire wire = { introductions->fds[i], NULL };
        if (wire.fd >= 0 && meshing->nwires[rank] == 0)
            ddl_pairs_connected(meshing, rank, wire);
        else if (wire.fd >= 0)
            ddl_wire_close(&wire);
        else if (rank < meshing->self.rank)
            ddl_outgoing_start(meshing, (ddl_wish){ rank, false });
    }
}

void ddl_meshing_usher_hear(ddl_meshing *meshing, ddl_outgoing *call)
{
    ddl_introductions introductions;
    ddl_error error;
    for (bool more = true; more;) {
        ddl_status status = ddl_introductions_take(meshing->roster, meshing->wires[meshing->usher].fd,
                                                   &introductions, &error);
        if (status == DDL_ETIMEDOUT)
            return;
        if (status != DDL_OK) {
            lose_usher(meshing, call, status, &error);
            return;
        }
        ddl_bell_lock(&meshing->bell);
        meshing->unmet -= introductions.count;
        meshing->heard_ns = ddl_now_ns();
        ddl_bell_unlock(&meshing->bell);
        more = meshing->unmet > 0;
        if (!more)
            ddl_outgoing_forget(call);
        meet(meshing, &introductions);
        if (!more)
            all_are_met(meshing);
    }
}

void ddl_meshing_usher_open_door(ddl_meshing *meshing, ddl_listener_options options)
{
    ddl_address address, bound;
    _Static_assert((int)DDL_RUN_ID_BYTES == (int)DDL_LOCAL_ID_BYTES, "a run names its doors");
    options.ports = (ddl_port_range){ 0, 0 };
    if (meshing->asked.local && meshing->encryption == NULL && meshing->self.nranks > 2 &&
        ddl_local_address(meshing->self.run_id, meshing->self.rank, &address) &&
        ddl_listener_open(&options, &address, &bound, &meshing->local_door, NULL) != DDL_OK)
        meshing->local_door = NULL;
}

/* Everybody of this host has come; when all have been told of everybody else the usher has done its work. */
static void told(void *arg, int left, const ddl_error *denied)
{
    ddl_meshing *meshing = arg;
    ddl_error error;
    if (denied != NULL) {
        (void)DDL_FAIL(&error, denied->code,
                       "rank %d cannot be connected to others of this host, as some were before: %s "
                       "(DDL_TRANSPORT=tcp needs none)",
                       left, denied->text);
        ddl_pairs_fail(meshing, &error);
    }
    ddl_listener_close(meshing->local_door);
    meshing->local_door = NULL;
    ddl_bell_lock(&meshing->bell);
    meshing->untold = left;
    if (left < 0 && --meshing->missing == 0)
        ddl_bell_ring(&meshing->bell);
    ddl_bell_unlock(&meshing->bell);
}

bool ddl_meshing_usher_settle(ddl_meshing *meshing)
{
    const ddl_roster *roster = meshing->roster;
    const int usher = meshing->local_door != NULL && ddl_introduces(roster) ? ddl_usher_of(roster) : -1;
    const bool is_usher = usher == meshing->self.rank;
    ddl_error error;
    if (is_usher && ddl_introducer_open(meshing->service, roster, told, meshing, &meshing->introducer,
                                        &error) != DDL_OK) {
        ddl_pairs_fail(meshing, &error);
        return false;
    }
    if (!is_usher) {
        ddl_listener_close(meshing->local_door);
        meshing->local_door = NULL;
    }
    ddl_bell_lock(&meshing->bell);
    meshing->missing += usher >= 0; /* of the usher its work, of others its last word: their connection is
                                       their owner's after that only */
    meshing->usher = is_usher ? -1 : usher;
    meshing->unmet = meshing->usher >= 0 ? roster->local_size_of[roster->rank] - 2 : 0;
    ddl_bell_unlock(&meshing->bell);
    return true;
}

void ddl_meshing_usher_welcome_early(ddl_meshing *meshing)
{
    for (int rank = 0; rank < meshing->self.nranks && meshing->introducer != NULL; rank++) {
        const int fd = meshing->wires[rank].fd;
        if (fd >= 0 && ddl_roster_is_neighbour(meshing->roster, rank))
            ddl_introducer_welcome(meshing->introducer, rank, meshing->callers[rank].is_local ? fd : -1);
    }
}
