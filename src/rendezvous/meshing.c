/*
 * meshing.c - calls to lower ranks, and a door for higher ones.
 *
 * Of a pair the higher rank calls, so two calls never cross. Where pairs connect late the lower one may be
 * the first that wants to: it knocks. A knock is a call like others, whose handshake says who it is; whoever
 * hears it hangs up and calls.
 *
 * A caller has said the last word of the handshake, and cannot know that it was heard: a door at which too
 * many stand may have closed. So the door says one more byte, and only when that has come is the pair
 * connected.
 *
 * Where a pair is to have further connections these are called one after the other, each once the door has
 * confirmed the one before with that byte. A door says it only when it has the roster, so nobody calls with a
 * connection that it cannot judge.
 *
 * Where all pairs of a host are connected at the start, each of its ranks calls its usher (introducer.h) by
 * way of a Unix socket, and is handed connections to the others of the host. Whoever cannot do that calls
 * them all.
 */
#include "rendezvous/meshing.h"

#include "base/assert.h"
#include "base/bell.h"
#include "base/bytes.h"
#include "io/host.h"
#include "io/interface.h"
#include "io/local.h"
#include "io/socket.h"
#include "io/watch.h"
#include "rendezvous/introducer.h"
#include "rendezvous/listener.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CALL_LIMIT_MS = 5000, /* connecting, and again the handshake */
    /* Connecting to one of several addresses, until the next has its turn: a first packet that was lost is
     * repeated after a second. */
    TURN_LIMIT_MS = 2500,
    REACH_LIMIT_MS = 10000, /* for a rank whose address refuses or swallows every call */
    LAST_WORD_MS = 700,     /* or until so long before the start is over, so that this is what is told */
    FIRST_PAUSE_MS =
        10, /* before a knock, too: mostly both want to connect, and the higher one calls by itself */
    LAST_PAUSE_MS = 500,
    SILENT_USHER_MS = 1000, /* it has stopped, and not they whom it has not introduced */
    CROWD_PAUSE_MS = 50     /* there may be too many at its door: who calls often has its turn sooner */
};

enum call_state { RESTING, CONNECTING, ENCRYPTING, GREETING, CONFIRMING, INTRODUCED, KNOCKED, FAILED };

/* One rank being called. */
struct call {
    ddl_meshing *meshing;
    int rank;
    ddl_wire wire;
    enum call_state state;
    ddl_address addresses[1 + DDL_NETWORK_CALL_MAX]; /* tried in turn; of the usher first the Unix socket */
    int address_count, address_at;
    ddl_watch *watch;
    ddl_alarm *alarm; /* to give up an attempt, or to begin the next */
    int64_t since_ns, pause_ms;
    bool was_heard;  /* said its last word on a connection that ended */
    ddl_error error; /* of one that has failed */
    ddl_hello hello;
};

/* Who has called, as it says; of one who did before the roster was here that is all that is known. */
struct caller {
    char host[DDL_HOST_TEXT];
    int32_t pid;
    unsigned nplaced; /* connections of it that got a place, those that lost it again included */
    bool is_local;    /* by way of a Unix socket */
};

struct ddl_meshing {
    ddl_service *service;
    ddl_hello_party self;
    ddl_listener *listeners[DDL_NETWORK_LISTEN_MAX];
    ddl_listener *local_door;   /* for ranks of this host, if this is their usher; NULL: there is none */
    ddl_introducer *introducer; /* of the usher */
    int usher;                  /* who introduces this rank to others; -1: nobody */
    const ddl_encryption *encryption;
    const ddl_roster *roster;
    struct call **calls; /* to each rank; NULL: none. Service thread, but failed ones: under the bell */
    ddl_wire *wires;     /* service thread writes, under the bell; none: not connected, or taken */
    ddl_wire *streams;   /* likewise: further ones, nstreams of each rank. NULL: there are none */
    int nstreams;
    int *nwires;            /* service thread: how many there were, of both kinds */
    struct caller *callers; /* service thread */
    bool *met;              /* service thread: is, or was, connected, or has failed */
    struct {                /* calls to the service thread: what they are about, and their outcome */
        ddl_network_place place;
        ddl_port_range ports;
        bool local;
        uint16_t found[DDL_NETWORK_LISTEN_MAX];
        const ddl_roster *roster;
        ddl_status status;
        ddl_error error;
    } asked;
    ddl_bell bell; /* guards what follows; rings when status or missing settle */
    int missing;
    int unmet;        /* those whom this rank's usher has not introduced yet */
    int64_t heard_ns; /* when it said something, or let this rank in */
    int untold;       /* of the usher: who has to take first what is under way to it; -1: nobody */
    ddl_status status;
    ddl_error error;
    ddl_deadline last_call; /* of those connected at the start: who cannot be reached then is named */

    /* Pairs that connect late. */
    ddl_poke *poke;       /* somebody is wanted */
    int *wanted, nwanted; /* who; each rank at most once */
    bool *was_wanted;
    int *settled, nsettled;  /* whose outcome is to be taken */
    int64_t limit_ms;        /* for each of them to answer, from the first call or knock */
    void (*tell)(void *arg); /* of an outcome; NULL: not yet */
    void *tell_arg;
};

static bool is_late(const ddl_meshing *meshing, int rank)
{
    return meshing->roster != NULL && !ddl_roster_connects(meshing->roster, rank);
}

/* The first failure stands. */
static void fail(ddl_meshing *meshing, const ddl_error *error)
{
    ddl_bell_lock(&meshing->bell);
    if (meshing->status == DDL_OK) {
        meshing->status = error->code;
        meshing->error = *error;
    }
    ddl_bell_ring(&meshing->bell);
    ddl_bell_unlock(&meshing->bell);
}

static void tell(ddl_meshing *meshing)
{
    ddl_bell_lock(&meshing->bell);
    void (*hear)(void *arg) = meshing->nsettled > 0 ? meshing->tell : NULL;
    ddl_bell_unlock(&meshing->bell);
    if (hear != NULL)
        hear(meshing->tell_arg);
}

/* With the bell's lock: the outcome for a rank that connects late stands. */
static void settle(ddl_meshing *meshing, int rank)
{
    meshing->settled[meshing->nsettled++] = rank;
}

static ddl_wire *streams_of(const ddl_meshing *meshing, int rank)
{
    return meshing->streams + (size_t)rank * (size_t)meshing->nstreams;
}

/* Service: whether all connections to this rank are, or were, there. */
static bool is_whole(const ddl_meshing *meshing, int rank)
{
    return meshing->roster != NULL && meshing->nwires[rank] == 1 + ddl_roster_streams(meshing->roster, rank);
}

/* With the bell's lock, once the roster is here. */
static void be_met(ddl_meshing *meshing, int rank)
{
    meshing->met[rank] = true;
    if (is_late(meshing, rank))
        settle(meshing, rank);
    else if (--meshing->missing == 0)
        ddl_bell_ring(&meshing->bell);
}

/* One more connection to this rank. True: that is all. */
static bool connected(ddl_meshing *meshing, int rank, ddl_wire wire)
{
    const int number = meshing->nwires[rank]++;
    const bool whole = is_whole(meshing, rank);
    ddl_bell_lock(&meshing->bell);
    ddl_wire *place = number == 0 ? &meshing->wires[rank] : &streams_of(meshing, rank)[number - 1];
    DDL_ASSERT(place->fd < 0);
    *place = wire;
    if (whole)
        be_met(meshing, rank);
    ddl_bell_unlock(&meshing->bell);
    if (whole)
        tell(meshing);
    return whole;
}

/* With the bell's lock: what there is of a pair that will not be whole. */
static void drop_wires(ddl_meshing *meshing, int rank)
{
    ddl_wire_close(&meshing->wires[rank]);
    for (int i = 0; i < meshing->nstreams; i++)
        ddl_wire_close(&streams_of(meshing, rank)[i]);
}

/* ---- calling ---- */

static void describe(const struct call *call, char *text, size_t text_bytes)
{
    const ddl_member *member = &call->meshing->roster->members[call->rank];
    char address[DDL_ADDRESS_FULL_TEXT];
    ddl_address_text(&call->addresses[call->address_at], address);
    snprintf(text, text_bytes, "rank %d on %s[%d] at %s", call->rank, member->host, (int)member->pid,
             address);
}

static void end_call(struct call *call)
{
    ddl_watch_close(call->watch);
    ddl_alarm_close(call->alarm);
    call->watch = NULL;
    call->alarm = NULL;
    ddl_wire_close(&call->wire);
}

static void forget_call(struct call *call)
{
    end_call(call);
    call->meshing->calls[call->rank] = NULL;
    ddl_free(call);
}

/* Of a pair that connects late: it does not. */
static void give_up(struct call *call, const ddl_error *error)
{
    ddl_meshing *meshing = call->meshing;
    end_call(call);
    call->error = *error;
    call->error.culprit = call->rank;
    call->state = FAILED;
    meshing->met[call->rank] = true;
    ddl_bell_lock(&meshing->bell);
    drop_wires(meshing, call->rank);
    settle(meshing, call->rank);
    ddl_bell_unlock(&meshing->bell);
    tell(meshing);
}

static int64_t used_ms(const struct call *call)
{
    return (ddl_now_ns() - call->since_ns) / DDL_NS_PER_MS;
}

/* Of a pair that connects late: it has had all the time that it has. Who waits may have less, and ends by
 * itself. */
static bool is_over(const struct call *call)
{
    return is_late(call->meshing, call->rank) && used_ms(call) >= call->meshing->limit_ms;
}

/* For the next thing to happen. */
static int64_t patience_ms(const struct call *call, int64_t limit_ms)
{
    int64_t left_ms = call->meshing->limit_ms - used_ms(call);
    return is_late(call->meshing, call->rank) && left_ms < limit_ms ? left_ms : limit_ms;
}

/* For the network to connect. Addresses that have not had their turn share what is left before the last call;
 * a moment each has then, too. */
static int64_t reach_ms(const struct call *call)
{
    enum { MOMENT_MS = 50 };
    const int64_t limit_ms = patience_ms(call, call->address_count > 1 ? TURN_LIMIT_MS : CALL_LIMIT_MS);
    const int64_t left_ms =
        ddl_deadline_left_ms(call->meshing->last_call) / (call->address_count - call->address_at);
    if (is_late(call->meshing, call->rank) || left_ms >= limit_ms)
        return limit_ms;
    return left_ms < MOMENT_MS ? MOMENT_MS : left_ms;
}

/* Whether the network has had all the time that it has. */
static bool is_out_of_reach(const struct call *call)
{
    return is_over(call) || used_ms(call) >= REACH_LIMIT_MS ||
           (!is_late(call->meshing, call->rank) && call->address_at + 1 == call->address_count &&
            ddl_deadline_passed(call->meshing->last_call));
}

static void be_ignored(struct call *call)
{
    char who[256];
    ddl_error error;
    describe(call, who, sizeof who);
    (void)DDL_FAIL(&error, DDL_EUNRESPONSIVE,
                   "%s did not answer a connection within %.1f s though its host does; is the process "
                   "stopped? Or raise DDL_START_TIMEOUT",
                   who, (double)(ddl_now_ns() - call->since_ns) / 1e9);
    give_up(call, &error);
}

/* Close this attempt; the next begins after a pause, or at once if there is an address that was not tried. */
static void hang_up(struct call *call)
{
    ddl_watch_close(call->watch);
    call->watch = NULL;
    ddl_wire_close(&call->wire);
    if (is_over(call)) {
        be_ignored(call);
        return;
    }
    call->state = RESTING;
    call->address_at = (call->address_at + 1) % call->address_count;
    if (call->address_at > 0) {
        ddl_alarm_set(call->alarm, 0);
        return;
    }
    ddl_alarm_set(call->alarm, call->pause_ms);
    call->pause_ms = call->pause_ms * 2 < LAST_PAUSE_MS ? call->pause_ms * 2 : LAST_PAUSE_MS;
}

/* Closed by the other side before anything was settled. */
static void be_sent_away(struct call *call)
{
    if (call->pause_ms > CROWD_PAUSE_MS)
        call->pause_ms = CROWD_PAUSE_MS;
    hang_up(call);
}

/* Of one that had met everybody, as all have that others connect to late. */
static void be_gone(struct call *call)
{
    ddl_error error;
    (void)ddl_error_set(&error, DDL_EPEERLOST, "rank %d is not there any more", call->rank);
    give_up(call, &error);
}

static void fail_call(struct call *call, const ddl_error *error)
{
    if (is_late(call->meshing, call->rank)) {
        give_up(call, error);
        return;
    }
    hang_up(call);
    fail(call->meshing, error);
}

/* Whether this attempt goes by way of a Unix socket. */
static bool is_local(const struct call *call)
{
    return call->addresses[call->address_at].socket.ss_family == AF_UNIX;
}

/* The network says no. A peer listens before its address is known, so this is not for long. */
static void unreachable(struct call *call, int os_errno)
{
    char who[256], ours[DDL_ADDRESS_HOST_TEXT + DDL_HOST_TEXT + 32], known[160];
    ddl_error error;
    const ddl_roster *roster = call->meshing->roster;
    bool late = is_late(call->meshing, call->rank);
    if (is_local(call)) { /* there is another way */
        hang_up(call);
        return;
    }
    if (late && os_errno == ECONNREFUSED && call->address_at + 1 == call->address_count) {
        be_gone(call);
        return;
    }
    if (!is_out_of_reach(call)) {
        hang_up(call);
        return;
    }
    describe(call, who, sizeof who);
    snprintf(ours, sizeof ours, "%s (%s)", roster->members[roster->rank].host,
             roster->members[roster->rank].address);
    ddl_interfaces_text(known, sizeof known);
    (void)DDL_FAIL_OS(&error, late ? DDL_EUNREACHABLE : DDL_ENETWORK, os_errno,
                      "rank %d on %s cannot connect to %s; check firewalls (DDL_PORT_RANGE holds ports "
                      "together) and routes between them, that this is its address (DDL_ADVERTISE, DDL_IFACE "
                      "there), or choose another network with DDL_IFACE (here: %s)",
                      roster->rank, ours, who, known);
    error.culprit = call->rank;
    fail_call(call, &error);
}

static void begin(struct call *call);
static void start_call(ddl_meshing *meshing, int rank);

/* The usher has nothing more to say. */
static void all_are_met(ddl_meshing *meshing)
{
    ddl_bell_lock(&meshing->bell);
    meshing->unmet = 0;
    if (--meshing->missing == 0)
        ddl_bell_ring(&meshing->bell);
    ddl_bell_unlock(&meshing->bell);
}

/* The usher has nothing to hand to this rank, nor of it to others. */
static void call_neighbours(ddl_meshing *meshing)
{
    all_are_met(meshing);
    for (int rank = meshing->self.rank - 1; rank >= 0; rank--)
        if (rank != meshing->usher && ddl_roster_is_neighbour(meshing->roster, rank))
            start_call(meshing, rank);
}

static void lose_usher(struct call *call, ddl_status status, ddl_error *error)
{
    ddl_meshing *meshing = call->meshing;
    const int rank = call->rank;
    char who[256];
    describe(call, who, sizeof who);
    if (status == DDL_EPEERLOST)
        (void)ddl_error_set(error, status,
                            "%s, by way of which ranks of its host are connected, ended before they were; "
                            "look at its output",
                            who);
    else if (status != DDL_ERESOURCE) /* which is this rank's */
        (void)ddl_error_set(error, status, "%s: %.300s", who, error->text);
    if (status != DDL_ERESOURCE)
        error->culprit = rank;
    forget_call(call);
    fail(meshing, error);
}

static void meet(ddl_meshing *meshing, const ddl_introductions *introductions)
{
    for (int i = 0; i < introductions->count; i++) {
        const int rank = introductions->ranks[i];
        ddl_wire wire = { introductions->fds[i], NULL };
        if (wire.fd >= 0 && meshing->nwires[rank] == 0)
            connected(meshing, rank, wire);
        else if (wire.fd >= 0)
            ddl_wire_close(&wire);
        else if (rank < meshing->self.rank)
            start_call(meshing, rank);
    }
}

/* What the usher has to say. Nobody looks at its connection any more when it may be the owner's. */
static void be_introduced(struct call *call)
{
    ddl_meshing *meshing = call->meshing;
    ddl_introductions introductions;
    ddl_error error;
    for (bool more = true; more;) {
        ddl_status status =
            ddl_introductions_take(meshing->roster, meshing->wires[call->rank].fd, &introductions, &error);
        if (status == DDL_ETIMEDOUT)
            return;
        if (status != DDL_OK) {
            lose_usher(call, status, &error);
            return;
        }
        ddl_bell_lock(&meshing->bell);
        meshing->unmet -= introductions.count;
        meshing->heard_ns = ddl_now_ns();
        ddl_bell_unlock(&meshing->bell);
        more = meshing->unmet > 0;
        if (!more)
            forget_call(call);
        meet(meshing, &introductions);
        if (!more)
            all_are_met(meshing);
    }
}

static void establish(struct call *call)
{
    ddl_meshing *meshing = call->meshing;
    ddl_wire wire = call->wire;
    int rank = call->rank;
    if (rank == meshing->usher && is_local(call)) {
        call->wire = ddl_no_wire;
        call->state = INTRODUCED;
        ddl_bell_lock(&meshing->bell);
        meshing->heard_ns = ddl_now_ns();
        ddl_bell_unlock(&meshing->bell);
        connected(meshing, rank, wire);
        be_introduced(call);
        return;
    }
    ddl_watch_close(call->watch); /* first: the owner may watch it at once */
    call->watch = NULL;
    call->wire = ddl_no_wire;
    if (meshing->nwires[rank] == ddl_roster_streams(meshing->roster, rank)) {
        forget_call(call);
        connected(meshing, rank, wire);
        if (rank == meshing->usher)
            call_neighbours(meshing);
        return;
    }
    connected(meshing, rank, wire);
    if (!is_late(meshing, rank))
        call->since_ns = ddl_now_ns();
    call->pause_ms = FIRST_PAUSE_MS;
    begin(call);
}

/* What answers where a rank was that had met everybody is something else, or another run. */
static bool is_successor(ddl_hello_verdict verdict)
{
    return verdict == DDL_HELLO_NOT_DDL || verdict == DDL_HELLO_OTHER_RUN ||
           verdict == DDL_HELLO_NOT_PROVEN || verdict == DDL_HELLO_OTHER_CHANNEL ||
           verdict == DDL_HELLO_OTHER_RANK || verdict == DDL_HELLO_OTHER_SIZE;
}

static void be_refused(struct call *call)
{
    char who[256];
    ddl_error error;
    bool late = is_late(call->meshing, call->rank);
    /* It has called, and its last word is on its way; or the door does not know yet that a connection broke.
     */
    if (call->hello.verdict == DDL_HELLO_TAKEN && (late || call->was_heard)) {
        hang_up(call);
        return;
    }
    if (late && is_successor(call->hello.verdict)) {
        be_gone(call);
        return;
    }
    describe(call, who, sizeof who);
    (void)ddl_hello_fail(&call->hello, who, &error);
    error.culprit = call->rank;
    fail_call(call, &error);
}

/* What answers will not do; another attempt would not help. */
static void reject(struct call *call, ddl_status status, const char *why)
{
    char who[256];
    ddl_error error;
    describe(call, who, sizeof who);
    (void)DDL_FAIL(&error, status, "rank %d cannot connect to %s: %s", call->meshing->self.rank, who, why);
    error.culprit = call->rank;
    fail_call(call, &error);
}

/* Reading or writing did not do, as errno says. */
static void break_off(struct call *call)
{
    char why[DDL_HELLO_REASON_TEXT];
    if (errno != EBADMSG) {
        be_sent_away(call);
        return;
    }
    snprintf(why, sizeof why, "TLS failed: %.300s", ddl_wire_problem(&call->wire));
    reject(call, call->state == CONFIRMING ? DDL_EPROTO : DDL_EAUTH, why); /* who had proved itself by then */
}

/* The door says that this rank is in. */
static void confirm(struct call *call)
{
    uint8_t word;
    ssize_t count = ddl_wire_read(&call->wire, &word, sizeof word);
    if (count < 0 && errno == EAGAIN)
        return;
    call->was_heard = count <= 0;
    if (count == (ssize_t)sizeof word)
        establish(call);
    else if (count == 0)
        be_sent_away(call);
    else
        break_off(call);
}

/* The handshake is over: the connection stands, or the knock was heard. */
static void be_welcome(struct call *call)
{
    const ddl_meshing *meshing = call->meshing;
    ddl_encryption_trust(&call->wire);
    if (call->rank > meshing->self.rank) {
        hang_up(call);
        if (call->state == RESTING) {
            call->state = KNOCKED;
            ddl_alarm_set(call->alarm, patience_ms(call, CALL_LIMIT_MS));
        }
    } else {
        call->state = CONFIRMING; /* to hang up now could end what the other side takes for the connection */
        ddl_watch_set(call->watch, DDL_READABLE);
        if (is_late(meshing, call->rank))
            ddl_alarm_set(call->alarm, patience_ms(call, meshing->limit_ms));
        else
            ddl_alarm_rest(call->alarm);
        confirm(call);
    }
}

/* At level tls, before the hello. */
static void encrypt(struct call *call)
{
    const ddl_meshing *meshing = call->meshing;
    const ddl_member *member = &meshing->roster->members[call->rank];
    ddl_error error;
    bool done = false;
    ddl_status status = ddl_encryption_shake(meshing->encryption, meshing->self.rank, false, &call->wire,
                                             &call->hello, &done, &error);
    if ((status == DDL_EAUTH || status == DDL_EPROTO) && is_late(meshing, call->rank) &&
        !ddl_encryption_bad_certificate(&call->wire)) {
        be_gone(call); /* others of the job had spoken to it so; this is something else, or another run */
        return;
    }
    if (status == DDL_OK && done)
        status = ddl_encryption_check_peer(meshing->encryption, &call->wire, call->rank, member->host,
                                           &call->addresses[call->address_at], &error);
    if (status == DDL_ENETWORK)
        be_sent_away(call);
    else if (status != DDL_OK)
        reject(call, status, error.text);
    else if (done)
        call->state = GREETING;
    else
        ddl_watch_set(call->watch,
                      ddl_wire_has_unsent(&call->wire) ? DDL_READABLE | DDL_WRITABLE : DDL_READABLE);
}

/* Move the handshake's bytes. */
static void greet(struct call *call)
{
    uint8_t data[512];
    bool has_spoken = false;
    for (;;) {
        ddl_view out = ddl_hello_output(&call->hello);
        size_t wanted = ddl_hello_wants(&call->hello);
        bool sent = out.bytes == 0 && ddl_wire_flush(&call->wire);
        if (sent && wanted == 0)
            break;
        if (sent && has_spoken) { /* it will have read that before it answers */
            ddl_watch_set(call->watch, DDL_READABLE);
            return;
        }
        ssize_t count = -1;
        if (out.bytes > 0)
            count = ddl_wire_write(&call->wire, out.data, out.bytes);
        else if (wanted > 0)
            count = ddl_wire_read(&call->wire, data, wanted < sizeof data ? wanted : sizeof data);
        if (count < 0 && errno == EAGAIN) {
            bool writes = out.bytes > 0 || ddl_wire_has_unsent(&call->wire);
            ddl_watch_set(call->watch, writes ? DDL_WRITABLE : DDL_READABLE);
            return;
        }
        if (count == 0) {
            be_sent_away(call);
            return;
        }
        if (count < 0) {
            break_off(call);
            return;
        }
        has_spoken = out.bytes > 0;
        if (has_spoken)
            ddl_hello_sent(&call->hello, (size_t)count);
        else
            ddl_hello_feed(&call->hello, data, (size_t)count);
    }
    if (call->hello.state == DDL_HELLO_ACCEPTED)
        be_welcome(call);
    else
        be_refused(call);
}

/* The connection is there: say who calls, at level tls inside a session. False: that failed. */
static bool begin_to_greet(struct call *call)
{
    const ddl_meshing *meshing = call->meshing;
    ddl_hello_party self = meshing->self;
    char where[DDL_ADDRESS_FULL_TEXT];
    ddl_error failure;
    self.peer = call->rank;
    self.stream = call->rank < self.rank ? meshing->nwires[call->rank] : 0;
    ddl_status status = ddl_host_random(self.nonce, sizeof self.nonce, &failure);
    if (status == DDL_OK && meshing->encryption != NULL) {
        ddl_address_text(&call->addresses[call->address_at], where);
        status = ddl_encryption_call(meshing->encryption, &self, where, &call->wire, &failure);
    }
    if (status != DDL_OK) {
        fail_call(call, &failure);
        return false;
    }
    ddl_hello_start_client(&call->hello, &self);
    call->state = meshing->encryption != NULL ? ENCRYPTING : GREETING;
    ddl_alarm_set(call->alarm, patience_ms(call, CALL_LIMIT_MS));
    return true;
}

static void on_call(void *arg, int events)
{
    struct call *call = arg;
    (void)events;
    if (call->state == CONFIRMING) {
        confirm(call);
        return;
    }
    if (call->state == INTRODUCED) {
        be_introduced(call);
        return;
    }
    if (call->state == CONNECTING) {
        int error = ddl_socket_error(call->wire.fd);
        if (error != 0) {
            unreachable(call, error);
            return;
        }
        if (!begin_to_greet(call))
            return;
    }
    if (call->state == ENCRYPTING)
        encrypt(call);
    if (call->state == GREETING)
        greet(call);
}

static void begin(struct call *call)
{
    ddl_error error;
    ddl_status status = ddl_socket_connect(&call->addresses[call->address_at], &call->wire.fd, &error);
    if (status == DDL_OK)
        status = ddl_watch_open(call->meshing->service, call->wire.fd, on_call, call, &call->watch, &error);
    if (status == DDL_OK && is_local(call) && !ddl_local_is_own_user(call->wire.fd))
        status = DDL_FAIL_OS(&error, DDL_ENETWORK, EACCES, "a process of another user listens there");
    if (status == DDL_ENETWORK) {
        unreachable(call, error.os_errno);
    } else if (status != DDL_OK) {
        fail_call(call, &error);
    } else {
        call->state = CONNECTING;
        ddl_alarm_set(call->alarm, reach_ms(call));
        if (ddl_socket_is_connected(call->wire.fd)) /* inside a host at once: there is nothing to wait for */
            on_call(call, DDL_WRITABLE);
        else
            ddl_watch_set(call->watch, DDL_WRITABLE);
    }
}

static void on_alarm(void *arg)
{
    struct call *call = arg;
    bool pauses = call->state == RESTING || call->state == KNOCKED;
    if (pauses && is_over(call))
        be_ignored(call);
    else if (pauses)
        begin(call);
    else if (call->state == CONNECTING)
        unreachable(call, ETIMEDOUT);
    else if (call->state == ENCRYPTING || call->state == GREETING)
        hang_up(call); /* connected, but busy: only the owner's deadline ends this */
    else if (call->state == CONFIRMING)
        be_ignored(call);
}

/* There was not even a first attempt. */
static void fail_to_start(struct call *call, const ddl_error *error)
{
    if (is_late(call->meshing, call->rank))
        give_up(call, error);
    else
        fail(call->meshing, error);
}

/* Call a rank, or knock at its door. */
static void start_call(ddl_meshing *meshing, int rank)
{
    const ddl_member *member = &meshing->roster->members[rank];
    struct call *call = meshing->met[rank] || meshing->calls[rank] != NULL ? NULL : ddl_alloc(sizeof *call);
    ddl_error error;
    if (meshing->met[rank] || meshing->calls[rank] != NULL)
        return;
    (void)ddl_error_set(&error, DDL_ENOMEM, "no memory to call rank %d", rank);
    if (call == NULL) {
        if (!is_late(meshing, rank)) {
            fail(meshing, &error);
            return;
        }
        meshing->met[rank] = true;
        ddl_bell_lock(&meshing->bell);
        drop_wires(meshing, rank);
        settle(meshing, rank);
        ddl_bell_unlock(&meshing->bell);
        tell(meshing);
        return;
    }
    *call =
        (struct call){ .meshing = meshing, .rank = rank, .wire = ddl_no_wire, .pause_ms = FIRST_PAUSE_MS };
    meshing->calls[rank] = call;
    call->since_ns = ddl_now_ns();
    if (ddl_alarm_open(meshing->service, on_alarm, call, &call->alarm, &error) != DDL_OK) {
        fail_to_start(call, &error);
        return;
    }
    const bool by_door =
        rank == meshing->usher && ddl_local_address(meshing->self.run_id, rank, &call->addresses[0]);
    const int found =
        ddl_network_call(&meshing->roster->members[meshing->self.rank], member,
                         ddl_roster_is_neighbour(meshing->roster, rank), call->addresses + by_door);
    call->address_count = by_door + found;
    if (found <= 0) {
        (void)ddl_error_set(&error, DDL_EPROTO, "rank %d gave %s as its address", rank, member->address);
        error.culprit = rank;
        fail_to_start(call, &error);
    } else if (rank < meshing->self.rank) {
        begin(call);
    } else {
        ddl_alarm_set(call->alarm, FIRST_PAUSE_MS);
    }
}

/* ---- being called ---- */

/* Certificates were compared with the host that the caller gave as its own: it must be the rank's. */
static bool is_host_of(const ddl_meshing *meshing, int rank, const char *host)
{
    return meshing->encryption == NULL || strcmp(meshing->roster->members[rank].host, host) == 0;
}

/* Whether a rank is to have a connection of this number to this one, as far as is known. */
static bool is_one_of(const ddl_meshing *meshing, int rank, int stream)
{
    return stream == 0 || (meshing->roster != NULL && stream <= ddl_roster_streams(meshing->roster, rank));
}

/* With the bell's lock: the last connection to this rank, if that is the one of this number and nobody has
 * taken it yet; NULL: there is none. */
static ddl_wire *last_of(const ddl_meshing *meshing, int rank, int stream)
{
    if (stream != meshing->nwires[rank] - 1)
        return NULL;
    ddl_wire *wire = stream == 0 ? &meshing->wires[rank] : &streams_of(meshing, rank)[stream - 1];
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
static bool is_same_caller(const struct caller *caller, const ddl_hello_party *peer)
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
    bool knocks = rank < meshing->self.rank && is_late(meshing, rank);
    if (rank <= meshing->self.rank && !knocks)
        ddl_hello_judge(hello, DDL_HELLO_BAD_RANK);
    else if (meshing->roster != NULL && !is_host_of(meshing, rank, hello->peer.host))
        ddl_hello_judge(hello, DDL_HELLO_OTHER_NAME);
    else if (knocks ? stream != 0 : stream > meshing->nwires[rank] || !is_one_of(meshing, rank, stream))
        ddl_hello_judge(hello, DDL_HELLO_BAD_STREAM);
    else if ((meshing->met[rank] || stream < meshing->nwires[rank]) &&
             !may_replace(meshing, &hello->peer, from))
        ddl_hello_judge(hello, DDL_HELLO_TAKEN);
    else
        ddl_hello_judge(hello, DDL_HELLO_WELCOME);
    hello->mark = meshing->callers[rank].nplaced;
}

/* That it is in, which it waits for. So little fits the buffer of a fresh connection; if the connection has
 * broken its reader will see. */
static void let_in(const ddl_meshing *meshing, ddl_wire *wire)
{
    const uint8_t word = 1;
    if (meshing->roster != NULL)
        (void)ddl_wire_write(wire, &word, sizeof word);
}

static void hear_knock(ddl_meshing *meshing, int rank)
{
    struct call *call = meshing->calls[rank];
    if (call == NULL) {
        start_call(meshing, rank);
    } else if (call->state == RESTING) { /* the pause that it takes is over */
        ddl_alarm_rest(call->alarm);
        begin(call);
    }
}

static void remember(ddl_meshing *meshing, const ddl_hello_party *peer)
{
    struct caller *caller = &meshing->callers[peer->rank];
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
    const struct caller *caller = &meshing->callers[hello->peer.rank];
    const bool called_again = hello->mark == caller->nplaced && is_same_caller(caller, &hello->peer);
    ddl_bell_lock(&meshing->bell); /* till it has the place: a late pair's owner may take the last one */
    ddl_wire *last = last_of(meshing, hello->peer.rank, hello->peer.stream);
    const bool by_network = !caller->is_local && from->socket.ss_family != AF_UNIX;
    const bool replaces = last != NULL && by_network && (called_again || is_broken(last));
    if (replaces) {
        remember(meshing, &hello->peer);
        let_in(meshing, wire);
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
    const int fd = wire.fd;
    if (rank < meshing->self.rank) {
        ddl_wire_close(&wire);
        hear_knock(meshing, rank);
        return;
    }
    /* It was judged before there was a roster, and calls again to be told what is wrong. */
    if (meshing->roster != NULL && !is_host_of(meshing, rank, hello->peer.host)) {
        ddl_wire_close(&wire);
        return;
    }
    if (replace(meshing, &wire, hello, from))
        return;
    if (meshing->met[rank] || hello->peer.stream != meshing->nwires[rank]) {
        ddl_wire_close(&wire); /* two handshakes of one rank at a time: the first stands */
        return;
    }
    remember(meshing, &hello->peer);
    meshing->callers[rank].is_local = from->socket.ss_family == AF_UNIX;
    let_in(meshing, &wire);
    /* Until it is whole, the own knock's patience is what ends it. */
    struct call *knock = meshing->calls[rank];
    if (connected(meshing, rank, wire) && knock != NULL)
        forget_call(knock);
    if (meshing->introducer != NULL && ddl_roster_is_neighbour(meshing->roster, rank))
        ddl_introducer_welcome(meshing->introducer, rank, meshing->callers[rank].is_local ? fd : -1);
}

static const ddl_listener_events door = { judge, NULL, entered };

/* ---- the owner's side ---- */

/* What a call to the service thread came to. */
static ddl_status outcome_of(const ddl_meshing *meshing, ddl_error *err)
{
    if (meshing->asked.status != DDL_OK && err != NULL)
        *err = meshing->asked.error;
    return meshing->asked.status;
}

/* Whether this rank will be the usher of its host only the roster says. Who finds no door calls as it calls
 * ranks of other hosts. */
static void open_local_door(ddl_meshing *meshing, ddl_listener_options options)
{
    ddl_address address, bound;
    _Static_assert((int)DDL_RUN_ID_BYTES == (int)DDL_LOCAL_ID_BYTES, "a run names its doors");
    options.ports = (ddl_port_range){ 0, 0 };
    if (meshing->asked.local && meshing->encryption == NULL && meshing->self.nranks > 2 &&
        ddl_local_address(meshing->self.run_id, meshing->self.rank, &address) &&
        ddl_listener_open(&options, &address, &bound, &meshing->local_door, NULL) != DDL_OK)
        meshing->local_door = NULL;
}

static void open_on_service(void *arg)
{
    ddl_meshing *meshing = arg;
    const ddl_network_place *place = &meshing->asked.place;
    const ddl_listener_options options = { .service = meshing->service,
                                           .ports = meshing->asked.ports,
                                           .self = meshing->self,
                                           .encryption = meshing->encryption,
                                           .events = &door,
                                           .arg = meshing };
    for (int i = 0; i < place->nlisten && meshing->asked.status == DDL_OK; i++) {
        ddl_address bound;
        meshing->asked.status = ddl_listener_open(&options, &place->listen[i], &bound, &meshing->listeners[i],
                                                  &meshing->asked.error);
        if (meshing->asked.status == DDL_OK)
            meshing->asked.found[i] = ddl_address_port(&bound);
    }
    if (meshing->asked.status == DDL_OK)
        open_local_door(meshing, options);
}

static bool has_memory(const ddl_meshing *meshing)
{
    return meshing->wires != NULL && meshing->callers != NULL && meshing->calls != NULL &&
           meshing->met != NULL && meshing->nwires != NULL && meshing->wanted != NULL &&
           meshing->was_wanted != NULL && meshing->settled != NULL;
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
    ddl_free(meshing->wanted);
    ddl_free(meshing->was_wanted);
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
    meshing->self.channel = DDL_CHANNEL_MESH;
    meshing->encryption = encryption;
    meshing->missing = nranks - 1;
    meshing->usher = meshing->untold = -1;
    ddl_bell_init(&meshing->bell);
    meshing->wires = ddl_alloc_array((size_t)nranks, sizeof *meshing->wires);
    meshing->callers = ddl_alloc_array((size_t)nranks, sizeof *meshing->callers);
    meshing->calls = ddl_alloc_array((size_t)nranks, sizeof(struct call *));
    meshing->met = ddl_alloc_array((size_t)nranks, sizeof *meshing->met);
    meshing->nwires = ddl_alloc_array((size_t)nranks, sizeof *meshing->nwires);
    meshing->wanted = ddl_alloc_array((size_t)nranks, sizeof *meshing->wanted);
    meshing->was_wanted = ddl_alloc_array((size_t)nranks, sizeof *meshing->was_wanted);
    meshing->settled = ddl_alloc_array((size_t)nranks, sizeof *meshing->settled);
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

/* Who called before the roster was here may not be on the host that it says. */
static void check_early_hosts(ddl_meshing *meshing)
{
    for (int rank = meshing->self.rank + 1; rank < meshing->self.nranks; rank++) {
        ddl_error error;
        if (meshing->wires[rank].fd < 0 || is_host_of(meshing, rank, meshing->callers[rank].host))
            continue;
        (void)ddl_error_set(&error, DDL_EAUTH, "rank %d called from %s, but belongs on %s", rank,
                            meshing->callers[rank].host, meshing->roster->members[rank].host);
        error.culprit = rank;
        fail(meshing, &error);
    }
}

static bool make_streams(ddl_meshing *meshing)
{
    const size_t count = (size_t)meshing->self.nranks * (size_t)meshing->roster->nstreams;
    ddl_error error;
    meshing->streams = count > 0 ? ddl_alloc_array(count, sizeof *meshing->streams) : NULL;
    if (count > 0 && meshing->streams == NULL) {
        (void)ddl_error_set(&error, DDL_ENOMEM, "no memory for %d connections to each of %d ranks",
                            meshing->roster->nstreams, meshing->self.nranks);
        fail(meshing, &error);
        return false;
    }
    meshing->nstreams = meshing->roster->nstreams;
    for (size_t i = 0; i < count; i++)
        meshing->streams[i] = ddl_no_wire;
    return true;
}

/* Everybody of this host has come; when all have been told of everybody else the usher has done its work. */
static void told(void *arg, int left)
{
    ddl_meshing *meshing = arg;
    ddl_listener_close(meshing->local_door);
    meshing->local_door = NULL;
    ddl_bell_lock(&meshing->bell);
    meshing->untold = left;
    if (left < 0 && --meshing->missing == 0)
        ddl_bell_ring(&meshing->bell);
    ddl_bell_unlock(&meshing->bell);
}

/* Who introduces the ranks of this host. */
static bool settle_usher(ddl_meshing *meshing)
{
    const ddl_roster *roster = meshing->roster;
    const int usher = meshing->local_door != NULL && ddl_introduces(roster) ? ddl_usher_of(roster) : -1;
    const bool is_usher = usher == meshing->self.rank;
    ddl_error error;
    if (is_usher && ddl_introducer_open(meshing->service, roster, told, meshing, &meshing->introducer,
                                        &error) != DDL_OK) {
        fail(meshing, &error);
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

/* Those who came before there was a roster. */
static void welcome_early(ddl_meshing *meshing)
{
    for (int rank = 0; rank < meshing->self.nranks && meshing->introducer != NULL; rank++) {
        const int fd = meshing->wires[rank].fd;
        if (fd >= 0 && ddl_roster_is_neighbour(meshing->roster, rank))
            ddl_introducer_welcome(meshing->introducer, rank, meshing->callers[rank].is_local ? fd : -1);
    }
}

static void start_on_service(void *arg)
{
    ddl_meshing *meshing = arg;
    meshing->roster = meshing->asked.roster;
    check_early_hosts(meshing);
    if (!make_streams(meshing) || !settle_usher(meshing))
        return;
    ddl_bell_lock(&meshing->bell);
    for (int rank = 0; rank < meshing->self.nranks; rank++) {
        if (rank != meshing->self.rank && is_late(meshing, rank))
            meshing->missing--;
        if (meshing->wires[rank].fd < 0)
            continue;
        let_in(meshing, &meshing->wires[rank]); /* came before this rank had the roster */
        if (is_whole(meshing, rank))
            be_met(meshing, rank);
    }
    if (meshing->missing == 0)
        ddl_bell_ring(&meshing->bell);
    ddl_bell_unlock(&meshing->bell);
    welcome_early(meshing);
    /* The nearest first, so that not everybody calls rank 0 at once. */
    for (int rank = meshing->self.rank - 1; rank >= 0; rank--) {
        const bool is_introduced =
            meshing->usher >= 0 && rank != meshing->usher && ddl_roster_is_neighbour(meshing->roster, rank);
        if (!is_late(meshing, rank) && !is_introduced)
            start_call(meshing, rank);
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
        is_connected[rank] = rank == meshing->self.rank || is_late(meshing, rank) ||
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
        if (is_late(meshing, rank)) /* is told later, if it has come already */
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
        streams[i] = streams_of(meshing, rank)[i];
        streams_of(meshing, rank)[i] = ddl_no_wire;
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
        int rank = meshing->nwanted > 0 ? meshing->wanted[--meshing->nwanted] : -1;
        ddl_bell_unlock(&meshing->bell);
        if (rank < 0)
            return;
        start_call(meshing, rank);
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
    tell(meshing);
}

void ddl_meshing_reach(ddl_meshing *meshing, int rank)
{
    ddl_bell_lock(&meshing->bell);
    if (meshing->poke != NULL && !meshing->was_wanted[rank]) {
        meshing->was_wanted[rank] = true;
        meshing->wanted[meshing->nwanted++] = rank;
        ddl_poke_ring(meshing->poke);
    }
    ddl_bell_unlock(&meshing->bell);
}

bool ddl_meshing_next(ddl_meshing *meshing, ddl_meshing_outcome *outcome)
{
    ddl_bell_lock(&meshing->bell);
    bool found = meshing->nsettled > 0;
    if (found) {
        int rank = outcome->rank = meshing->settled[--meshing->nsettled];
        outcome->wire = meshing->wires[rank];
        meshing->wires[rank] = ddl_no_wire;
        hand_over_streams(meshing, rank, outcome->streams);
        struct call *failed = outcome->wire.fd < 0 ? meshing->calls[rank] : NULL;
        if (failed != NULL)
            outcome->error = failed->error;
        else
            (void)ddl_error_set(&outcome->error, DDL_ENOMEM, "no memory to call rank %d", rank);
    }
    ddl_bell_unlock(&meshing->bell);
    return found;
}

void ddl_meshing_close_in_child(ddl_meshing *meshing)
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
            forget_call(meshing->calls[rank]);
    for (int rank = 0; rank < meshing->self.nranks; rank++)
        drop_wires(meshing, rank);
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
