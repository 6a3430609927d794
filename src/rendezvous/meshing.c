/* meshing.c - what its owner asks of it, by way of the service thread. */
#include "rendezvous/meshing.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "rendezvous/meshing_incoming.h"
#include "rendezvous/meshing_usher.h"

#include <string.h>
#include <unistd.h>

enum {
    LAST_WORD_MS = 700,    /* calls end so long before the start does, so that what came of them is told */
    SILENT_USHER_MS = 1000 /* it has stopped, and not they whom it has not introduced */
};

/* What a call to the service thread came to. */
static ddl_status outcome_of(const ddl_meshing *meshing, ddl_error *err)
{
    if (meshing->asked.status != DDL_OK && err != NULL)
        *err = meshing->asked.error;
    return meshing->asked.status;
}

static void open_on_service(void *arg)
{
    ddl_meshing *meshing = arg;
    const ddl_network_place *place = &meshing->asked.place;
    const ddl_listener_options options = { .service = meshing->service,
                                           .ports = meshing->asked.ports,
                                           .self = meshing->self,
                                           .encryption = meshing->encryption,
                                           .events = &ddl_incoming_events,
                                           .arg = meshing };
    for (int i = 0; i < place->nlisten && meshing->asked.status == DDL_OK; i++) {
        ddl_address bound;
        meshing->asked.status = ddl_listener_open(&options, &place->listen[i], &bound, &meshing->listeners[i],
                                                  &meshing->asked.error);
        if (meshing->asked.status == DDL_OK)
            meshing->asked.found[i] = ddl_address_port(&bound);
    }
    if (meshing->asked.status == DDL_OK)
        ddl_meshing_usher_open_door(meshing, options);
}

static bool has_memory(const ddl_meshing *meshing)
{
    return meshing->wires != NULL && meshing->callers != NULL && meshing->calls != NULL &&
           meshing->met != NULL && meshing->widened != NULL && meshing->nwires != NULL &&
           meshing->wanted != NULL && meshing->was_wanted[0] != NULL && meshing->was_wanted[1] != NULL &&
           meshing->settled != NULL;
}

/* The service thread knows nothing of it, or no more. */
static void free_meshing(ddl_meshing *meshing)
{
    ddl_bell_fini(&meshing->bell);
    ddl_free(meshing->calls);
    ddl_free(meshing->wires);
    ddl_free(meshing->streams);
    ddl_free(meshing->nwires);
    ddl_free(meshing->callers);
    ddl_free(meshing->met);
    ddl_free(meshing->widened);
    ddl_free(meshing->wanted);
    ddl_free(meshing->was_wanted[0]);
    ddl_free(meshing->was_wanted[1]);
    ddl_free(meshing->settled);
    ddl_free(meshing);
}

ddl_status ddl_meshing_open(ddl_service *service, const ddl_hello_party *self,
                            const ddl_encryption *encryption, const ddl_network_place *place,
                            ddl_port_range ports, bool local, ddl_deadline deadline,
                            uint16_t found[DDL_NETWORK_LISTEN_MAX], ddl_meshing **out, ddl_error *err)
{
    const int nranks = self->nranks;
    ddl_meshing *meshing = ddl_alloc(sizeof *meshing);
    if (meshing == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to connect %d ranks", nranks);
    meshing->service = service;
    meshing->self = *self;
    meshing->self.channel = DDL_HELLO_FOR_MESH;
    meshing->encryption = encryption;
    meshing->missing = nranks - 1;
    meshing->usher = meshing->untold = -1;
    ddl_bell_init(&meshing->bell);
    meshing->wires = ddl_alloc_array((size_t)nranks, sizeof *meshing->wires);
    meshing->callers = ddl_alloc_array((size_t)nranks, sizeof *meshing->callers);
    meshing->calls = ddl_alloc_array((size_t)nranks, sizeof(ddl_outgoing *));
    meshing->met = ddl_alloc_array((size_t)nranks, sizeof *meshing->met);
    meshing->widened = ddl_alloc_array((size_t)nranks, sizeof *meshing->widened);
    meshing->nwires = ddl_alloc_array((size_t)nranks, sizeof *meshing->nwires);
    meshing->wanted = ddl_alloc_array(2 * (size_t)nranks, sizeof *meshing->wanted);
    meshing->was_wanted[0] = ddl_alloc_array((size_t)nranks, sizeof *meshing->was_wanted[0]);
    meshing->was_wanted[1] = ddl_alloc_array((size_t)nranks, sizeof *meshing->was_wanted[1]);
    meshing->settled = ddl_alloc_array(2 * (size_t)nranks, sizeof *meshing->settled);
    if (!has_memory(meshing)) {
        free_meshing(meshing);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to connect %d ranks", nranks);
    }
    for (int rank = 0; rank < nranks; rank++)
        meshing->wires[rank] = ddl_no_wire;
    meshing->asked.place = *place;
    meshing->asked.ports = ports;
    meshing->asked.local = local;
    ddl_status status =
        ddl_service_call(service, "listening for other ranks", open_on_service, meshing, deadline, err);
    if (status != DDL_OK) {
        if (!ddl_service_may_use(service, meshing))
            free_meshing(meshing);
        return status;
    }
    if ((status = outcome_of(meshing, err)) != DDL_OK) {
        (void)ddl_meshing_close(meshing, deadline, NULL);
        return status;
    }
    memcpy(found, meshing->asked.found, sizeof meshing->asked.found);
    *out = meshing;
    return DDL_OK;
}

static bool make_streams(ddl_meshing *meshing)
{
    const size_t count = (size_t)meshing->self.nranks * (size_t)meshing->roster->nstreams;
    ddl_error error;
    meshing->streams = count > 0 ? ddl_alloc_array(count, sizeof *meshing->streams) : NULL;
    if (count > 0 && meshing->streams == NULL) {
        (void)ddl_error_set(&error, DDL_ENOMEM, "no memory for %d connections to each of %d ranks",
                            meshing->roster->nstreams, meshing->self.nranks);
        ddl_pairs_fail(meshing, &error);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        meshing->streams[i] = ddl_no_wire;
    meshing->nstreams = meshing->roster->nstreams; /* which a forked child goes by */
    return true;
}

static void start_on_service(void *arg)
{
    ddl_meshing *meshing = arg;
    meshing->roster = meshing->asked.roster;
    ddl_incoming_check_early(meshing);
    if (!make_streams(meshing) || !ddl_meshing_usher_settle(meshing))
        return;
    ddl_bell_lock(&meshing->bell);
    for (int rank = 0; rank < meshing->self.nranks; rank++) {
        if (rank != meshing->self.rank && ddl_pairs_is_late(meshing, rank))
            meshing->missing--;
        if (meshing->wires[rank].fd < 0)
            continue;
        ddl_incoming_let_in(meshing, &meshing->wires[rank]); /* came before this rank had the roster */
        if (ddl_pairs_is_whole(meshing, rank))
            ddl_pairs_be_met(meshing, rank);
    }
    if (meshing->missing == 0)
        ddl_bell_ring(&meshing->bell);
    ddl_bell_unlock(&meshing->bell);
    ddl_meshing_usher_welcome_early(meshing);
    /* The nearest first, so that not everybody calls rank 0 at once. */
    for (int rank = meshing->self.rank - 1; rank >= 0; rank--) {
        const bool is_introduced =
            meshing->usher >= 0 && rank != meshing->usher && ddl_roster_is_neighbour(meshing->roster, rank);
        if (!ddl_pairs_is_late(meshing, rank) && !is_introduced)
            ddl_outgoing_start(meshing, (ddl_wish){ rank, false });
    }
}

ddl_status ddl_meshing_start(ddl_meshing *meshing, const ddl_roster *roster, int64_t limit_ms,
                             ddl_deadline deadline, ddl_error *err)
{
    const int64_t left_ms = ddl_deadline_left_ms(deadline);
    meshing->limit_ms = limit_ms;
    meshing->last_call = deadline - (left_ms / 4 < LAST_WORD_MS ? left_ms / 4 : LAST_WORD_MS) * DDL_NS_PER_MS;
    meshing->asked.roster = roster;
    DDL_ASSERT(roster->nranks == meshing->self.nranks);
    return ddl_service_call(meshing->service, "calling other ranks", start_on_service, meshing, deadline,
                            err);
}

ddl_status ddl_meshing_wait(ddl_meshing *meshing, ddl_deadline deadline, ddl_error *err)
{
    bool in_time = true;
    ddl_bell_lock(&meshing->bell);
    while (meshing->missing > 0 && meshing->status == DDL_OK && in_time)
        in_time = ddl_bell_wait(&meshing->bell, deadline);
    ddl_status status = meshing->status;
    int missing = meshing->missing;
    if (status != DDL_OK && err != NULL)
        *err = meshing->error;
    ddl_bell_unlock(&meshing->bell);
    if (status == DDL_OK && missing > 0)
        return DDL_FAIL(err, DDL_ETIMEDOUT, "%d ranks are not connected yet", missing);
    return status;
}

void ddl_meshing_connected(ddl_meshing *meshing, bool is_connected[])
{
    bool all = true;
    ddl_bell_lock(&meshing->bell);
    for (int rank = 0; rank < meshing->self.nranks; rank++) {
        is_connected[rank] = rank == meshing->self.rank || ddl_pairs_is_late(meshing, rank) ||
                             (meshing->met[rank] && rank != meshing->untold);
        all = all && is_connected[rank];
    }
    /* An usher that waits for others says so five times a second. */
    if (meshing->usher >= 0 && meshing->unmet > 0 &&
        (all || ddl_now_ns() - meshing->heard_ns > SILENT_USHER_MS * DDL_NS_PER_MS))
        is_connected[meshing->usher] = false;
    ddl_bell_unlock(&meshing->bell);
}

void ddl_meshing_take(ddl_meshing *meshing, ddl_wire wires[])
{
    ddl_bell_lock(&meshing->bell);
    DDL_ASSERT(meshing->missing == 0);
    for (int rank = 0; rank < meshing->self.nranks; rank++) {
        wires[rank] = ddl_no_wire;
        if (ddl_pairs_is_late(meshing, rank)) /* is told later, if it has come already */
            continue;
        wires[rank] = meshing->wires[rank];
        meshing->wires[rank] = ddl_no_wire;
    }
    ddl_bell_unlock(&meshing->bell);
}

/* With the bell's lock. */
static void hand_over_streams(ddl_meshing *meshing, int rank, ddl_wire streams[])
{
    for (int i = 0; i < meshing->nstreams; i++) {
        streams[i] = ddl_pairs_streams(meshing, rank)[i];
        ddl_pairs_streams(meshing, rank)[i] = ddl_no_wire;
    }
}

void ddl_meshing_take_streams(ddl_meshing *meshing, int rank, ddl_wire streams[])
{
    ddl_bell_lock(&meshing->bell);
    hand_over_streams(meshing, rank, streams);
    ddl_bell_unlock(&meshing->bell);
}

/* ---- late pairs ---- */

static void on_poke(void *arg)
{
    ddl_meshing *meshing = arg;
    for (;;) {
        ddl_bell_lock(&meshing->bell);
        const bool found = meshing->nwanted > 0;
        const ddl_wish wish = found ? meshing->wanted[--meshing->nwanted] : (ddl_wish){ -1, false };
        ddl_bell_unlock(&meshing->bell);
        if (!found)
            return;
        ddl_outgoing_start(meshing, wish);
    }
}

static void serve_on_service(void *arg)
{
    ddl_meshing *meshing = arg;
    meshing->asked.status =
        ddl_poke_open(meshing->service, on_poke, meshing, &meshing->poke, &meshing->asked.error);
}

ddl_status ddl_meshing_serve(ddl_meshing *meshing, ddl_deadline deadline, ddl_error *err)
{
    DDL_TRY(ddl_service_call(meshing->service, "getting ready for late connections", serve_on_service,
                             meshing, deadline, err));
    return outcome_of(meshing, err);
}

void ddl_meshing_listen(ddl_meshing *meshing, void (*hear)(void *arg), void *arg)
{
    ddl_bell_lock(&meshing->bell);
    meshing->tell = hear;
    meshing->tell_arg = arg;
    ddl_bell_unlock(&meshing->bell);
    ddl_pairs_tell(meshing);
}

static void want(ddl_meshing *meshing, ddl_wish wish)
{
    ddl_bell_lock(&meshing->bell);
    bool *was_wanted = &meshing->was_wanted[wish.widens][wish.rank];
    if (meshing->poke != NULL && !*was_wanted) {
        *was_wanted = true;
        meshing->wanted[meshing->nwanted++] = wish;
        ddl_poke_ring(meshing->poke);
    }
    ddl_bell_unlock(&meshing->bell);
}

void ddl_meshing_reach(ddl_meshing *meshing, int rank)
{
    want(meshing, (ddl_wish){ rank, false });
}

void ddl_meshing_widen(ddl_meshing *meshing, int rank)
{
    want(meshing, (ddl_wish){ rank, true });
}

/* With the bell's lock. */
static void hand_over_first(ddl_meshing *meshing, int rank, ddl_meshing_outcome *outcome)
{
    outcome->wire = meshing->wires[rank];
    meshing->wires[rank] = ddl_no_wire;
    if (!meshing->roster->chooses_streams) /* else they are another outcome */
        hand_over_streams(meshing, rank, outcome->streams);
}

bool ddl_meshing_next(ddl_meshing *meshing, ddl_meshing_outcome *outcome)
{
    ddl_bell_lock(&meshing->bell);
    bool found = meshing->nsettled > 0;
    if (found) {
        const ddl_wish wish = meshing->settled[--meshing->nsettled];
        outcome->rank = wish.rank;
        outcome->widens = wish.widens;
        outcome->wire = ddl_no_wire;
        if (wish.widens)
            hand_over_streams(meshing, wish.rank, outcome->streams);
        else
            hand_over_first(meshing, wish.rank, outcome);
        outcome->has_come = (wish.widens ? outcome->streams : &outcome->wire)->fd >= 0;
        /* What has come may be followed by another call. */
        ddl_outgoing *failed = !outcome->has_come ? meshing->calls[wish.rank] : NULL;
        if (outcome->has_come)
            outcome->error = (ddl_error){ .code = DDL_OK };
        else if (failed != NULL)
            outcome->error = *ddl_outgoing_error(failed);
        else
            (void)ddl_error_set(&outcome->error, DDL_ENOMEM, "no memory to call rank %d", wish.rank);
    }
    ddl_bell_unlock(&meshing->bell);
    return found;
}

void ddl_meshing_close_in_child(const ddl_meshing *meshing)
{
    for (int rank = 0; rank < meshing->self.nranks; rank++)
        if (meshing->wires[rank].fd >= 0)
            close(meshing->wires[rank].fd);
    for (int i = 0; i < meshing->nstreams * meshing->self.nranks; i++)
        if (meshing->streams[i].fd >= 0)
            close(meshing->streams[i].fd);
}

/* ---- the end ---- */

static void close_on_service(void *arg)
{
    ddl_meshing *meshing = arg;
    for (int i = 0; i < DDL_NETWORK_LISTEN_MAX; i++)
        ddl_listener_close(meshing->listeners[i]);
    ddl_listener_close(meshing->local_door);
    ddl_introducer_close(meshing->introducer);
    ddl_bell_lock(&meshing->bell);
    ddl_poke_close(meshing->poke);
    meshing->poke = NULL;
    ddl_bell_unlock(&meshing->bell);
    for (int rank = 0; rank < meshing->self.nranks; rank++)
        if (meshing->calls[rank] != NULL)
            ddl_outgoing_forget(meshing->calls[rank]);
    for (int rank = 0; rank < meshing->self.nranks; rank++)
        ddl_pairs_drop(meshing, (ddl_wish){ rank, false });
}

ddl_status ddl_meshing_close(ddl_meshing *meshing, ddl_deadline deadline, ddl_error *err)
{
    if (meshing == NULL)
        return DDL_OK;
    DDL_TRY(ddl_service_call(meshing->service, "closing its door to other ranks", close_on_service, meshing,
                             deadline, err));
    free_meshing(meshing);
    return DDL_OK;
}
