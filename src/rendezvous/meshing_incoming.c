/* meshing_incoming.c - judges who stands at the door, keeps one connection of each number. */
#include "rendezvous/meshing_incoming.h"

#include "io/socket.h"
#include "rendezvous/meshing_outgoing.h"

#include <string.h>

/* Certificates were compared with the host that the caller gave as its own: it must be the rank's. */
static bool is_host_of(const ddl_meshing *meshing, int rank, const char *host)
{
    return meshing->encryption == NULL || strcmp(meshing->roster->members[rank].host, host) == 0;
}

/* Whether a rank is to have a connection of this number to this one, as far as is known. */
static bool is_one_of(const ddl_meshing *meshing, int rank, int stream)
{
    if (stream == 0 || meshing->roster == NULL)
        return stream == 0;
    return stream <= ddl_roster_most_streams(meshing->roster, rank);
}

/* What a connection of this number is made for. */
static ddl_wish wish_of(const ddl_meshing *meshing, int rank, int stream)
{
    return (ddl_wish){ rank, stream > 0 && ddl_pairs_may_widen(meshing, rank) };
}

/* With the bell's lock: the last connection to this rank, if that is the one of this number and nobody has
 * taken it yet; NULL: there is none. */
static ddl_wire *last_of(const ddl_meshing *meshing, int rank, int stream)
{
    if (stream != meshing->nwires[rank] - 1)
        return NULL;
    ddl_wire *wire = stream == 0 ? &meshing->wires[rank] : &ddl_pairs_streams(meshing, rank)[stream - 1];
    return wire->fd >= 0 ? wire : NULL;
}

static bool is_broken(const ddl_wire *wire)
{
    uint8_t byte;
    ssize_t count = ddl_socket_peek(wire->fd, &byte, sizeof byte);
    return count == 0 || (count < 0 && errno != EAGAIN);
}

/* A process has one call to a rank at a time: what it had before has come to its end, at its side at least.
 */
static bool is_same_caller(const ddl_caller *caller, const ddl_hello_party *peer)
{
    return caller->pid == peer->pid && strcmp(caller->host, peer->host) == 0;
}

/* Whether the connection of this number is there and its caller was not told that it is in, so that another
 * one may take its place. */
static bool may_replace(ddl_meshing *meshing, const ddl_hello_party *peer, const ddl_address *from)
{
    /* Who is in by a Unix socket knows it; and who came another way first is handed nothing. */
    if (meshing->callers[peer->rank].is_local || from->socket.ss_family == AF_UNIX)
        return false;
    ddl_bell_lock(&meshing->bell);
    const ddl_wire *last = last_of(meshing, peer->rank, peer->stream);
    bool may = last != NULL && (is_same_caller(&meshing->callers[peer->rank], peer) || is_broken(last));
    ddl_bell_unlock(&meshing->bell);
    return may;
}

static void judge(void *arg, ddl_hello *hello, const ddl_address *from)
{
    ddl_meshing *meshing = arg;
    int rank = hello->peer.rank, stream = hello->peer.stream;
    const ddl_wish wish = wish_of(meshing, rank, stream);
    bool knocks = rank < meshing->self.rank && (wish.widens || ddl_pairs_is_late(meshing, rank));
    if (rank <= meshing->self.rank && !knocks)
        ddl_hello_judge(hello, DDL_HELLO_BAD_RANK);
    else if (meshing->roster != NULL && !is_host_of(meshing, rank, hello->peer.host))
        ddl_hello_judge(hello, DDL_HELLO_OTHER_NAME);
    else if ((!knocks && stream > meshing->nwires[rank]) || !is_one_of(meshing, rank, stream) ||
             (wish.widens && !meshing->met[rank]))
        ddl_hello_judge(hello, DDL_HELLO_BAD_STREAM);
    else if ((ddl_pairs_is_settled(meshing, wish) || (!knocks && stream < meshing->nwires[rank])) &&
             !may_replace(meshing, &hello->peer, from))
        ddl_hello_judge(hello, DDL_HELLO_TAKEN);
    else
        ddl_hello_judge(hello, DDL_HELLO_WELCOME);
    hello->mark = meshing->callers[rank].nplaced;
}

/* So little fits the buffer of a fresh connection; if the connection has
 * broken its reader will see. */
void ddl_incoming_let_in(const ddl_meshing *meshing, ddl_wire *wire)
{
    const uint8_t word = 1;
    if (meshing->roster != NULL)
        (void)ddl_wire_write(wire, &word, sizeof word);
}

static void remember(ddl_meshing *meshing, const ddl_hello_party *peer)
{
    ddl_caller *caller = &meshing->callers[peer->rank];
    memcpy(caller->host, peer->host, sizeof caller->host);
    caller->pid = peer->pid;
    caller->nplaced++;
}

/*
 * Give this connection the place of the last one, if that has broken or the same process called with this
 * one when the other was there already: of two handshakes of one rank at a time the first stands.
 */
static bool replace(ddl_meshing *meshing, ddl_wire *wire, const ddl_hello *hello, const ddl_address *from)
{
    const ddl_caller *caller = &meshing->callers[hello->peer.rank];
    const bool called_again = hello->mark == caller->nplaced && is_same_caller(caller, &hello->peer);
    ddl_bell_lock(&meshing->bell); /* till it has the place: a late pair's owner may take the last one */
    ddl_wire *last = last_of(meshing, hello->peer.rank, hello->peer.stream);
    const bool by_network = !caller->is_local && from->socket.ss_family != AF_UNIX;
    const bool replaces = last != NULL && by_network && (called_again || is_broken(last));
    if (replaces) {
        remember(meshing, &hello->peer);
        ddl_incoming_let_in(meshing, wire);
        ddl_wire_close(last);
        *last = *wire;
    }
    ddl_bell_unlock(&meshing->bell);
    return replaces;
}

static void entered(void *arg, ddl_wire wire, const ddl_hello *hello, const ddl_address *from)
{
    ddl_meshing *meshing = arg;
    int rank = hello->peer.rank;
    const ddl_wish wish = wish_of(meshing, rank, hello->peer.stream);
    const int fd = wire.fd;
    if (rank < meshing->self.rank) {
        ddl_wire_close(&wire);
        ddl_outgoing_hurry(meshing, wish);
        return;
    }
    /* It was judged before there was a roster, and calls again to be told what is wrong. */
    if (meshing->roster != NULL && !is_host_of(meshing, rank, hello->peer.host)) {
        ddl_wire_close(&wire);
        return;
    }
    if (replace(meshing, &wire, hello, from))
        return;
    if (ddl_pairs_is_settled(meshing, wish) || hello->peer.stream != meshing->nwires[rank]) {
        ddl_wire_close(&wire); /* two handshakes of one rank at a time: the first stands */
        return;
    }
    remember(meshing, &hello->peer);
    meshing->callers[rank].is_local = from->socket.ss_family == AF_UNIX;
    ddl_incoming_let_in(meshing, &wire);
    /* Until it is whole, the own knock's patience is what ends it. */
    ddl_outgoing *knock = meshing->calls[rank];
    if (ddl_pairs_connected(meshing, rank, wire) && knock != NULL)
        ddl_outgoing_forget(knock);
    if (meshing->introducer != NULL && ddl_roster_is_neighbour(meshing->roster, rank))
        ddl_introducer_welcome(meshing->introducer, rank, meshing->callers[rank].is_local ? fd : -1);
}

const ddl_listener_events ddl_incoming_events = { judge, NULL, entered };

void ddl_incoming_check_early(ddl_meshing *meshing)
{
    for (int rank = meshing->self.rank + 1; rank < meshing->self.nranks; rank++) {
        ddl_error error;
        if (meshing->wires[rank].fd < 0 || is_host_of(meshing, rank, meshing->callers[rank].host))
            continue;
        (void)ddl_error_set(&error, DDL_EAUTH, "rank %d called from %s, but belongs on %s", rank,
                            meshing->callers[rank].host, meshing->roster->members[rank].host);
        error.culprit = rank;
        ddl_pairs_fail(meshing, &error);
    }
}
