/* meshing.c - calls to lower ranks, and a door for higher ones. */
#include "rendezvous/meshing.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "io/bell.h"
#include "io/host.h"
#include "io/socket.h"
#include "io/watch.h"
#include "rendezvous/listener.h"

#include <stdio.h>
#include <string.h>

enum {
    CALL_LIMIT_MS = 5000,   /* connecting, and again the handshake */
    TURN_LIMIT_MS = 2500,   /* connecting to one of several addresses, until the next has its turn: a first
                             * packet that was lost is repeated after a second */
    REACH_LIMIT_MS = 10000, /* for a rank whose address refuses or swallows every call */
    FIRST_PAUSE_MS = 10,
    LAST_PAUSE_MS = 500
};

enum call_state { RESTING, CONNECTING, ENCRYPTING, GREETING, ESTABLISHED };

/* One lower rank being called. */
struct call {
    ddl_meshing *meshing;
    int rank;
    ddl_wire wire;
    enum call_state state;
    ddl_address addresses[DDL_NETWORK_CALL_MAX]; /* tried in turn */
    int address_count, address_at;
    ddl_watch *watch;
    ddl_alarm *alarm; /* to give up an attempt, or to begin the next */
    int64_t since_ns, pause_ms;
    ddl_hello hello;
};

struct ddl_meshing {
    ddl_service *service;
    ddl_hello_party self;
    ddl_listener *listeners[DDL_NETWORK_LISTEN_MAX];
    const ddl_encryption *encryption;
    const ddl_roster *roster;
    struct call *calls;           /* self.rank of them */
    ddl_wire *wires;              /* service thread writes, under the bell; none: not connected */
    char (*hosts)[DDL_HOST_TEXT]; /* of those who called before the roster was here: as they said */
    ddl_bell bell; /* guards wires, missing, status, error; rings when status or missing settle */
    int missing;
    ddl_status status;
    ddl_error error;
};

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

static void connected(ddl_meshing *meshing, int rank, ddl_wire wire)
{
    ddl_bell_lock(&meshing->bell);
    DDL_ASSERT(meshing->wires[rank].fd < 0);
    meshing->wires[rank] = wire;
    if (--meshing->missing == 0)
        ddl_bell_ring(&meshing->bell);
    ddl_bell_unlock(&meshing->bell);
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

/* Close this attempt; the next begins after a pause, or at once if there is an address that was not tried. */
static void hang_up(struct call *call)
{
    ddl_watch_close(call->watch);
    call->watch = NULL;
    ddl_wire_close(&call->wire);
    call->state = RESTING;
    call->address_at = (call->address_at + 1) % call->address_count;
    if (call->address_at > 0) {
        ddl_alarm_set(call->alarm, 0);
        return;
    }
    ddl_alarm_set(call->alarm, call->pause_ms);
    call->pause_ms = call->pause_ms * 2 < LAST_PAUSE_MS ? call->pause_ms * 2 : LAST_PAUSE_MS;
}

/* The network says no. A peer listens before its address is known, so this is not for long. */
static void unreachable(struct call *call, int os_errno)
{
    char who[256], ours[DDL_ADDRESS_HOST_TEXT + DDL_HOST_TEXT + 32];
    ddl_error error;
    const ddl_roster *roster = call->meshing->roster;
    if (ddl_now_ns() - call->since_ns < REACH_LIMIT_MS * DDL_NS_PER_MS) {
        hang_up(call);
        return;
    }
    describe(call, who, sizeof who);
    snprintf(ours, sizeof ours, "%s (%s)", roster->members[roster->rank].host,
             roster->members[roster->rank].address);
    (void)DDL_FAIL_OS(&error, DDL_ENETWORK, os_errno,
                      "rank %d on %s cannot connect to %s; check firewalls (DDL_PORT_RANGE holds ports "
                      "together) and routes "
                      "between them, or choose another network with DDL_IFACE",
                      roster->rank, ours, who);
    error.culprit = call->rank;
    hang_up(call);
    fail(call->meshing, &error);
}

static void establish(struct call *call)
{
    ddl_wire wire = call->wire;
    ddl_watch_close(call->watch);
    call->watch = NULL;
    call->wire = ddl_no_wire;
    call->state = ESTABLISHED;
    ddl_alarm_rest(call->alarm);
    ddl_encryption_trust(&wire);
    connected(call->meshing, call->rank, wire);
}

static void be_refused(struct call *call)
{
    char who[256];
    ddl_error error;
    describe(call, who, sizeof who);
    (void)ddl_hello_fail(&call->hello, who, &error);
    error.culprit = call->rank;
    hang_up(call);
    fail(call->meshing, &error);
}

/* What answers will not do; another attempt would not help. */
static void give_up(struct call *call, ddl_status status, const char *why)
{
    char who[256];
    ddl_error error;
    describe(call, who, sizeof who);
    (void)DDL_FAIL(&error, status, "%s: %s", who, why);
    error.culprit = call->rank;
    hang_up(call);
    fail(call->meshing, &error);
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
    if (status == DDL_OK && done)
        status = ddl_encryption_check_peer(meshing->encryption, &call->wire, call->rank, member->host,
                                           &call->addresses[call->address_at], &error);
    if (status == DDL_ENETWORK)
        hang_up(call); /* it may have had too many at its door */
    else if (status != DDL_OK)
        give_up(call, status, error.text);
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
    for (;;) {
        ddl_view out = ddl_hello_output(&call->hello);
        size_t wanted = ddl_hello_wants(&call->hello);
        bool sent = out.bytes == 0 && ddl_wire_flush(&call->wire);
        if (sent && wanted == 0)
            break;
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
        if (count < 0 && errno == EBADMSG) {
            char why[DDL_HELLO_REASON_TEXT];
            snprintf(why, sizeof why, "TLS failed: %.300s", ddl_wire_problem(&call->wire));
            give_up(call, DDL_EAUTH, why);
            return;
        }
        if (count <= 0) {
            hang_up(call); /* it may have had too many at its door */
            return;
        }
        if (out.bytes > 0)
            ddl_hello_sent(&call->hello, (size_t)count);
        else
            ddl_hello_feed(&call->hello, data, (size_t)count);
    }
    if (call->hello.state == DDL_HELLO_ACCEPTED)
        establish(call);
    else
        be_refused(call);
}

static void on_call(void *arg, int events)
{
    struct call *call = arg;
    ddl_meshing *meshing = call->meshing;
    (void)events;
    if (call->state == CONNECTING) {
        int error = ddl_socket_error(call->wire.fd);
        if (error != 0) {
            unreachable(call, error);
            return;
        }
        ddl_hello_party self = meshing->self;
        self.peer = call->rank;
        ddl_error failure;
        if (ddl_host_random(self.nonce, sizeof self.nonce, &failure) != DDL_OK) {
            hang_up(call);
            fail(meshing, &failure);
            return;
        }
        ddl_hello_start_client(&call->hello, &self);
        call->state = meshing->encryption != NULL ? ENCRYPTING : GREETING;
        ddl_alarm_set(call->alarm, CALL_LIMIT_MS);
        char where[DDL_ADDRESS_FULL_TEXT];
        ddl_address_text(&call->addresses[call->address_at], where);
        if (meshing->encryption != NULL &&
            ddl_encryption_call(meshing->encryption, &self, where, &call->wire, &failure) != DDL_OK) {
            hang_up(call);
            fail(meshing, &failure);
            return;
        }
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
    if (status == DDL_ENETWORK) {
        unreachable(call, error.os_errno);
    } else if (status != DDL_OK) {
        hang_up(call);
        fail(call->meshing, &error);
    } else {
        call->state = CONNECTING;
        ddl_watch_set(call->watch, DDL_WRITABLE);
        ddl_alarm_set(call->alarm, call->address_count > 1 ? TURN_LIMIT_MS : CALL_LIMIT_MS);
    }
}

static void on_alarm(void *arg)
{
    struct call *call = arg;
    if (call->state == RESTING)
        begin(call);
    else if (call->state == CONNECTING)
        unreachable(call, ETIMEDOUT);
    else if (call->state == ENCRYPTING || call->state == GREETING)
        hang_up(call); /* connected, but busy: only the owner's deadline ends this */
}

/* ---- being called ---- */

/* Certificates were compared with the host that the caller gave as its own: it must be the rank's. */
static bool is_host_of(const ddl_meshing *meshing, int rank, const char *host)
{
    return meshing->encryption == NULL || strcmp(meshing->roster->members[rank].host, host) == 0;
}

static void judge(void *arg, ddl_hello *hello, const ddl_address *from)
{
    ddl_meshing *meshing = arg;
    int rank = hello->peer.rank;
    (void)from;
    ddl_bell_lock(&meshing->bell);
    bool taken = rank > meshing->self.rank && meshing->wires[rank].fd >= 0;
    ddl_bell_unlock(&meshing->bell);
    if (rank > meshing->self.rank && meshing->roster != NULL && !is_host_of(meshing, rank, hello->peer.host))
        ddl_hello_judge(hello, DDL_HELLO_OTHER_NAME);
    else if (rank <= meshing->self.rank)
        ddl_hello_judge(hello, DDL_HELLO_BAD_RANK);
    else
        ddl_hello_judge(hello, taken ? DDL_HELLO_TAKEN : DDL_HELLO_WELCOME);
}

static void entered(void *arg, ddl_wire wire, const ddl_hello *hello, const ddl_address *from)
{
    ddl_meshing *meshing = arg;
    int rank = hello->peer.rank;
    (void)from;
    if (meshing->wires[rank].fd >= 0) { /* two handshakes of one rank at a time: the first stands */
        ddl_wire_close(&wire);
        return;
    }
    if (meshing->roster == NULL)
        memcpy(meshing->hosts[rank], hello->peer.host, DDL_HOST_TEXT);
    connected(meshing, rank, wire);
}

static const ddl_listener_events door = { judge, NULL, entered };

/* ---- the owner's side ---- */

struct open_call {
    ddl_meshing *meshing;
    const ddl_network_place *place;
    ddl_port_range ports;
    uint16_t *found;
    ddl_status status;
    ddl_error *err;
};

static void open_on_service(void *arg)
{
    struct open_call *call = arg;
    ddl_meshing *meshing = call->meshing;
    const ddl_listener_options options = { .service = meshing->service,
                                           .ports = call->ports,
                                           .self = meshing->self,
                                           .encryption = meshing->encryption,
                                           .events = &door,
                                           .arg = meshing };
    for (int i = 0; i < call->place->nlisten && call->status == DDL_OK; i++) {
        ddl_address bound;
        call->status =
            ddl_listener_open(&options, &call->place->listen[i], &bound, &meshing->listeners[i], call->err);
        if (call->status == DDL_OK)
            call->found[i] = ddl_address_port(&bound);
    }
    for (int rank = 0; rank < meshing->self.rank && call->status == DDL_OK; rank++)
        call->status = ddl_alarm_open(meshing->service, on_alarm, &meshing->calls[rank],
                                      &meshing->calls[rank].alarm, call->err);
}

ddl_status ddl_meshing_open(ddl_service *service, const ddl_hello_party *self,
                            const ddl_encryption *encryption, const ddl_network_place *place,
                            ddl_port_range ports, uint16_t found[DDL_NETWORK_LISTEN_MAX], ddl_meshing **out,
                            ddl_error *err)
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
    ddl_bell_init(&meshing->bell);
    meshing->wires = ddl_alloc_array((size_t)nranks, sizeof *meshing->wires);
    meshing->hosts = ddl_alloc_array((size_t)nranks, sizeof *meshing->hosts);
    meshing->calls = ddl_alloc_array((size_t)self->rank, sizeof *meshing->calls);
    struct open_call call = {
        .meshing = meshing, .place = place, .ports = ports, .found = found, .err = err
    };
    if (meshing->wires == NULL || meshing->hosts == NULL || meshing->calls == NULL) {
        ddl_meshing_close(meshing);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to connect %d ranks", nranks);
    }
    for (int rank = 0; rank < nranks; rank++)
        meshing->wires[rank] = ddl_no_wire;
    for (int rank = 0; rank < self->rank; rank++)
        meshing->calls[rank] = (struct call){ .meshing = meshing, .rank = rank, .wire = ddl_no_wire };
    ddl_service_call(service, open_on_service, &call);
    if (call.status != DDL_OK) {
        ddl_meshing_close(meshing);
        return call.status;
    }
    *out = meshing;
    return DDL_OK;
}

struct start_call {
    ddl_meshing *meshing;
    const ddl_roster *roster;
};

/* Who called before the roster was here may not be on the host that it says. */
static void check_early_hosts(ddl_meshing *meshing)
{
    for (int rank = meshing->self.rank + 1; rank < meshing->self.nranks; rank++) {
        ddl_error error;
        if (meshing->wires[rank].fd < 0 || is_host_of(meshing, rank, meshing->hosts[rank]))
            continue;
        (void)ddl_error_set(&error, DDL_EAUTH, "rank %d called from %s, but belongs on %s", rank,
                            meshing->hosts[rank], meshing->roster->members[rank].host);
        error.culprit = rank;
        fail(meshing, &error);
    }
}

static void start_on_service(void *arg)
{
    struct start_call *start = arg;
    ddl_meshing *meshing = start->meshing;
    meshing->roster = start->roster;
    check_early_hosts(meshing);
    /* The nearest first, so that not everybody calls rank 0 at once. */
    for (int rank = meshing->self.rank - 1; rank >= 0; rank--) {
        struct call *call = &meshing->calls[rank];
        const ddl_roster *roster = meshing->roster;
        const ddl_member *member = &roster->members[rank];
        call->since_ns = ddl_now_ns();
        call->pause_ms = FIRST_PAUSE_MS;
        call->address_count = ddl_network_call(&roster->members[roster->rank], member,
                                               ddl_roster_is_neighbour(roster, rank), call->addresses);
        if (call->address_count > 0) {
            begin(call);
            continue;
        }
        ddl_error error;
        (void)ddl_error_set(&error, DDL_EPROTO, "rank %d gave %s as its address", rank, member->address);
        error.culprit = rank;
        fail(meshing, &error);
    }
}

void ddl_meshing_start(ddl_meshing *meshing, const ddl_roster *roster)
{
    DDL_ASSERT(roster->nranks == meshing->self.nranks);
    struct start_call start = { meshing, roster };
    ddl_service_call(meshing->service, start_on_service, &start);
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
    ddl_bell_lock(&meshing->bell);
    for (int rank = 0; rank < meshing->self.nranks; rank++)
        is_connected[rank] = rank == meshing->self.rank || meshing->wires[rank].fd >= 0;
    ddl_bell_unlock(&meshing->bell);
}

void ddl_meshing_take(ddl_meshing *meshing, ddl_wire wires[])
{
    ddl_bell_lock(&meshing->bell);
    DDL_ASSERT(meshing->missing == 0);
    for (int rank = 0; rank < meshing->self.nranks; rank++) {
        wires[rank] = meshing->wires[rank];
        meshing->wires[rank] = ddl_no_wire;
    }
    ddl_bell_unlock(&meshing->bell);
}

static void close_on_service(void *arg)
{
    ddl_meshing *meshing = arg;
    for (int i = 0; i < DDL_NETWORK_LISTEN_MAX; i++)
        ddl_listener_close(meshing->listeners[i]);
    for (int rank = 0; rank < meshing->self.rank; rank++) {
        struct call *call = &meshing->calls[rank];
        ddl_watch_close(call->watch);
        ddl_alarm_close(call->alarm);
        ddl_wire_close(&call->wire);
    }
    for (int rank = 0; rank < meshing->self.nranks; rank++)
        ddl_wire_close(&meshing->wires[rank]);
}

void ddl_meshing_close(ddl_meshing *meshing)
{
    if (meshing == NULL)
        return;
    if (meshing->calls != NULL && meshing->wires != NULL && meshing->hosts != NULL)
        ddl_service_call(meshing->service, close_on_service, meshing);
    ddl_bell_fini(&meshing->bell);
    ddl_free(meshing->calls);
    ddl_free(meshing->wires);
    ddl_free(meshing->hosts);
    ddl_free(meshing);
}
