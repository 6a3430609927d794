/* meshing_outgoing.c - one attempt after the other, each with its handshake, until a rank is connected. */
#include "rendezvous/meshing_outgoing.h"

#include "io/host.h"
#include "io/interface.h"
#include "io/local.h"
#include "io/socket.h"
#include "rendezvous/meshing_usher.h"

#include <stdio.h>
#include <string.h>

enum {
    CALL_LIMIT_MS = 5000, /* connecting, and again the handshake */
    /* Connecting to one of several addresses, until the next has its turn: a first packet that was lost is
     * repeated after a second. */
    TURN_LIMIT_MS = 2500,
    REACH_LIMIT_MS = 10000, /* for a rank whose address refuses or swallows every call */
    FIRST_PAUSE_MS =
        10, /* before a knock, too: mostly both want to connect, and the higher one calls by itself */
    LAST_PAUSE_MS = 500,
    STOPPED_MS = 1000,  /* an alarm that is so late was so for lack of a CPU */
    CROWD_PAUSE_MS = 50 /* there may be too many at its door: who calls often has its turn sooner */
};

#define NO_LIMIT_MS (INT64_MAX / 2)

/* What a call waits for -> what comes next. An attempt that does not do goes back to RESTING. */
enum call_state {
    RESTING,    /* the end of a pause -> CONNECTING */
    CONNECTING, /* the network -> ENCRYPTING, or GREETING below level tls */
    ENCRYPTING, /* the TLS handshake -> GREETING */
    GREETING,   /* the hello of who is called -> CONFIRMING; KNOCKED if this rank is the lower one */
    CONFIRMING, /* the door's byte -> over, or CONNECTING for a further connection; INTRODUCED at the usher */
    INTRODUCED, /* what the usher has to say -> over */
    KNOCKED,    /* the call of who was asked for it -> over; after a while CONNECTING, to knock again */
    FAILED      /* its owner, who takes the reason along */
};

/* What depends on when a call is made: all ranks are being started, or have met, and one is wanted now. */
struct policy {
    bool fails_alone;       /* its owner is told that it failed; else the start has failed */
    bool may_be_gone;       /* who is called has been there, and may have left */
    ddl_status unreachable; /* how it fails if the network does not connect */
};

static const struct policy at_start = { false, false, DDL_ENETWORK };
static const struct policy on_demand = { true, true, DDL_EUNREACHABLE };

/* One rank being called. */
struct ddl_outgoing {
    ddl_meshing *meshing;
    int rank;
    bool widens; /* it is for further connections */
    const struct policy *policy;
    ddl_wire wire;
    enum call_state state;
    ddl_address addresses[1 + DDL_NETWORK_CALL_MAX]; /* tried in turn; of the usher first the Unix socket */
    int address_count, address_at;
    ddl_watch *watch;
    ddl_alarm *alarm; /* to give up an attempt, or to begin the next */
    int64_t since_ns, pause_ms;
    int64_t limit_ms;       /* since then, for all of it */
    ddl_deadline last_call; /* from then on who cannot be reached is named */
    int64_t due_ns;         /* when the alarm goes off */
    bool was_heard;         /* said its last word on a connection that ended */
    ddl_error error;        /* of one that has failed */
    ddl_hello hello;
};

void ddl_outgoing_describe(const ddl_outgoing *call, char *text, size_t text_bytes)
{
    const ddl_member *member = &call->meshing->roster->members[call->rank];
    char address[DDL_ADDRESS_FULL_TEXT];
    ddl_address_text(&call->addresses[call->address_at], address);
    snprintf(text, text_bytes, "rank %d on %s[%d] at %s", call->rank, member->host, (int)member->pid,
             address);
}

static void set_alarm(ddl_outgoing *call, int64_t ms)
{
    call->due_ns = ddl_now_ns() + ms * DDL_NS_PER_MS;
    ddl_alarm_set(call->alarm, ms);
}

static void rest_alarm(ddl_outgoing *call)
{
    call->due_ns = INT64_MAX;
    ddl_alarm_rest(call->alarm);
}

/* Who was stopped, or got no CPU, has heard nothing because of that. */
static void forgive_own_stop(ddl_outgoing *call)
{
    const int64_t now_ns = ddl_now_ns(), overdue_ns = now_ns - call->due_ns;
    if (overdue_ns <= STOPPED_MS * DDL_NS_PER_MS)
        return;
    call->since_ns += overdue_ns;
    call->due_ns = now_ns;
}

static void end_call(ddl_outgoing *call)
{
    ddl_watch_close(call->watch);
    ddl_alarm_close(call->alarm);
    call->watch = NULL;
    call->alarm = NULL;
    ddl_wire_close(&call->wire);
}

const ddl_error *ddl_outgoing_error(const ddl_outgoing *call)
{
    return &call->error;
}

void ddl_outgoing_forget(ddl_outgoing *call)
{
    end_call(call);
    call->meshing->calls[call->rank] = NULL;
    ddl_free(call);
}

static ddl_wish wish_of(const ddl_outgoing *call)
{
    return (ddl_wish){ call->rank, call->widens };
}

static const struct policy *policy_of(const ddl_meshing *meshing, ddl_wish wish)
{
    return wish.widens || ddl_pairs_is_late(meshing, wish.rank) ? &on_demand : &at_start;
}

static bool is_on_demand(const ddl_outgoing *call)
{
    return call->policy == &on_demand;
}

/* Of what is made on demand: it is not. */
static void miss(ddl_meshing *meshing, ddl_wish wish)
{
    (wish.widens ? meshing->widened : meshing->met)[wish.rank] = true;
    ddl_bell_lock(&meshing->bell);
    ddl_pairs_drop(meshing, wish);
    ddl_pairs_settle(meshing, wish);
    ddl_bell_unlock(&meshing->bell);
    ddl_pairs_tell(meshing);
}

static void give_up(ddl_outgoing *call, const ddl_error *error)
{
    end_call(call);
    call->error = *error;
    call->state = FAILED;
    miss(call->meshing, wish_of(call));
}

static int64_t used_ms(const ddl_outgoing *call)
{
    return (ddl_now_ns() - call->since_ns) / DDL_NS_PER_MS;
}

/* Who waits may have less, and ends by itself. */
static bool is_out_of_time(const ddl_outgoing *call)
{
    return used_ms(call) >= call->limit_ms;
}

/* So long an alarm may be set, within the time of the call. */
static int64_t within_limit_ms(const ddl_outgoing *call, int64_t ms)
{
    const int64_t left_ms = call->limit_ms - used_ms(call);
    return left_ms < ms ? left_ms : ms;
}

/* For the network to connect. Addresses that have not had their turn share what is left before the last call;
 * a moment each has then, too. */
static int64_t connect_ms(const ddl_outgoing *call)
{
    enum { MOMENT_MS = 50 };
    const int64_t limit_ms = within_limit_ms(call, call->address_count > 1 ? TURN_LIMIT_MS : CALL_LIMIT_MS);
    const int64_t share_ms = ddl_deadline_left_ms(call->last_call) / (call->address_count - call->address_at);
    if (share_ms >= limit_ms)
        return limit_ms;
    return share_ms < MOMENT_MS ? MOMENT_MS : share_ms;
}

/* Whether the network has had all the time that it has. */
static bool is_out_of_reach(const ddl_outgoing *call)
{
    const bool was_last_call =
        call->address_at + 1 == call->address_count && ddl_deadline_passed(call->last_call);
    return is_out_of_time(call) || used_ms(call) >= REACH_LIMIT_MS || was_last_call;
}

static void be_ignored(ddl_outgoing *call)
{
    char who[256];
    ddl_error error;
    ddl_outgoing_describe(call, who, sizeof who);
    (void)DDL_FAIL(&error, DDL_EUNRESPONSIVE,
                   "%s did not answer a connection within %.1f s though its host does; is the process "
                   "stopped, or in a debugger? Or raise DDL_UNRESP_TIMEOUT and DDL_START_TIMEOUT",
                   who, (double)(ddl_now_ns() - call->since_ns) / 1e9);
    give_up(call, &error);
}

/* Close this attempt; the next begins after a pause, or at once if there is an address that was not tried. */
static void hang_up(ddl_outgoing *call)
{
    ddl_watch_close(call->watch);
    call->watch = NULL;
    ddl_wire_close(&call->wire);
    if (is_out_of_time(call)) {
        be_ignored(call);
        return;
    }
    call->state = RESTING;
    call->address_at = (call->address_at + 1) % call->address_count;
    if (call->address_at > 0) {
        set_alarm(call, 0);
        return;
    }
    set_alarm(call, call->pause_ms);
    call->pause_ms = call->pause_ms * 2 < LAST_PAUSE_MS ? call->pause_ms * 2 : LAST_PAUSE_MS;
}

/* Closed by the other side before anything was settled. */
static void be_sent_away(ddl_outgoing *call)
{
    if (call->pause_ms > CROWD_PAUSE_MS)
        call->pause_ms = CROWD_PAUSE_MS;
    hang_up(call);
}

/* Of one that had met everybody, as all have that others connect to late. */
static void be_gone(ddl_outgoing *call)
{
    ddl_error error;
    (void)ddl_error_set(&error, DDL_EPEERLOST, "rank %d is not there any more", call->rank);
    give_up(call, &error);
}

static void fail_call(ddl_outgoing *call, const ddl_error *error)
{
    if (call->policy->fails_alone) {
        give_up(call, error);
        return;
    }
    hang_up(call);
    ddl_pairs_fail(call->meshing, error);
}

/* Whether this attempt goes by way of a Unix socket. */
static bool is_local(const ddl_outgoing *call)
{
    return call->addresses[call->address_at].socket.ss_family == AF_UNIX;
}

enum next { TRY_ON, BE_GONE, FAIL };

/* The network says no. A peer listens before its address is known, so this is not for long. */
static enum next after_refusal(const ddl_outgoing *call, int os_errno)
{
    if (is_local(call)) /* there is another way */
        return TRY_ON;
    const bool all_refuse = os_errno == ECONNREFUSED && call->address_at + 1 == call->address_count;
    if (call->policy->may_be_gone && all_refuse)
        return call->widens ? FAIL : BE_GONE; /* one that widens is there, and something on the way refuses */
    return is_out_of_reach(call) ? FAIL : TRY_ON;
}

static void tell_unreachable(const ddl_outgoing *call, int os_errno, ddl_error *error)
{
    char who[256], ours[DDL_ADDRESS_HOST_TEXT + DDL_HOST_TEXT + 32], known[160];
    const ddl_roster *roster = call->meshing->roster;
    ddl_outgoing_describe(call, who, sizeof who);
    snprintf(ours, sizeof ours, "%s (%s)", roster->members[roster->rank].host,
             roster->members[roster->rank].address);
    if (ddl_socket_lacks_port(&call->addresses[call->address_at], os_errno)) {
        (void)DDL_FAIL_OS(error, DDL_ERESOURCE, os_errno,
                          "rank %d on %s cannot connect to %s: " DDL_SOCKET_NO_PORT, roster->rank, ours, who);
        error->culprit = roster->rank;
        return;
    }
    ddl_interfaces_text(known, sizeof known);
    (void)DDL_FAIL_OS(error, call->policy->unreachable, os_errno,
                      "rank %d on %s cannot connect to %s; check firewalls (DDL_PORT_RANGE holds ports "
                      "together) and routes between them, that this is its address (DDL_ADVERTISE, DDL_IFACE "
                      "there), or choose another network with DDL_IFACE (here: %s)",
                      roster->rank, ours, who, known);
    error->culprit = call->rank;
}

static void be_unreachable(ddl_outgoing *call, int os_errno)
{
    ddl_error error;
    switch (after_refusal(call, os_errno)) {
    case TRY_ON:
        hang_up(call);
        return;
    case BE_GONE:
        be_gone(call);
        return;
    case FAIL:
        tell_unreachable(call, os_errno, &error);
        fail_call(call, &error);
        return;
    }
}

static void begin(ddl_outgoing *call);

static void establish(ddl_outgoing *call)
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
        ddl_pairs_connected(meshing, rank, wire);
        ddl_meshing_usher_hear(meshing, call);
        return;
    }
    ddl_watch_close(call->watch); /* first: the owner may watch it at once */
    call->watch = NULL;
    call->wire = ddl_no_wire;
    if (ddl_pairs_is_last(meshing, rank)) {
        ddl_outgoing_forget(call);
        ddl_pairs_connected(meshing, rank, wire);
        if (rank == meshing->usher)
            ddl_meshing_usher_do_without(meshing);
        return;
    }
    ddl_pairs_connected(meshing, rank, wire);
    if (!is_on_demand(call))
        call->since_ns = ddl_now_ns();
    call->pause_ms = FIRST_PAUSE_MS;
    begin(call);
}

/* It will make no more of them, as some could not be made. */
static void be_given_up(ddl_outgoing *call)
{
    ddl_error error;
    (void)ddl_error_set(&error, DDL_EUNREACHABLE, "rank %d has given up making more", call->rank);
    give_up(call, &error);
}

/* What answers where a rank was that had met everybody is something else, or another run. */
static bool is_successor(ddl_hello_verdict verdict)
{
    return verdict == DDL_HELLO_NOT_DDL || verdict == DDL_HELLO_OTHER_RUN ||
           verdict == DDL_HELLO_NOT_PROVEN || verdict == DDL_HELLO_OTHER_CHANNEL ||
           verdict == DDL_HELLO_OTHER_RANK || verdict == DDL_HELLO_OTHER_SIZE;
}

static void be_refused(ddl_outgoing *call)
{
    char who[256];
    ddl_error error;
    if (call->hello.verdict == DDL_HELLO_TAKEN && call->widens) {
        be_given_up(call);
        return;
    }
    /* It has called, and its last word is on its way; or the door does not know yet that a connection broke.
     */
    if (call->hello.verdict == DDL_HELLO_TAKEN && (is_on_demand(call) || call->was_heard)) {
        hang_up(call);
        return;
    }
    if (call->policy->may_be_gone && is_successor(call->hello.verdict)) {
        be_gone(call);
        return;
    }
    ddl_outgoing_describe(call, who, sizeof who);
    (void)ddl_hello_fail(&call->hello, who, &error);
    error.culprit = call->rank;
    fail_call(call, &error);
}

/* What answers will not do; another attempt would not help. */
static void reject(ddl_outgoing *call, ddl_status status, const char *why)
{
    char who[256];
    ddl_error error;
    ddl_outgoing_describe(call, who, sizeof who);
    (void)DDL_FAIL(&error, status, "rank %d cannot connect to %s: %s", call->meshing->self.rank, who, why);
    error.culprit = call->rank;
    fail_call(call, &error);
}

/* Reading or writing did not do, as errno says. */
static void break_off(ddl_outgoing *call)
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
static void confirm(ddl_outgoing *call)
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
static void be_welcome(ddl_outgoing *call)
{
    const ddl_meshing *meshing = call->meshing;
    ddl_encryption_trust(&call->wire);
    if (call->rank > meshing->self.rank) {
        hang_up(call);
        if (call->state == RESTING) {
            call->state = KNOCKED;
            set_alarm(call, within_limit_ms(call, CALL_LIMIT_MS));
        }
    } else {
        call->state = CONFIRMING; /* to hang up now could end what the other side takes for the connection */
        ddl_watch_set(call->watch, DDL_READABLE);
        if (is_on_demand(call))
            set_alarm(call, within_limit_ms(call, CALL_LIMIT_MS));
        else
            rest_alarm(call);
        confirm(call);
    }
}

/* At level tls, before the hello. */
static void encrypt(ddl_outgoing *call)
{
    const ddl_meshing *meshing = call->meshing;
    const ddl_member *member = &meshing->roster->members[call->rank];
    ddl_error error;
    bool done = false;
    ddl_status status = ddl_encryption_shake(meshing->encryption, meshing->self.rank, false, &call->wire,
                                             &call->hello, &done, &error);
    if ((status == DDL_EAUTH || status == DDL_EPROTO) && ddl_pairs_is_late(meshing, call->rank) &&
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
static void greet(ddl_outgoing *call)
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
static bool begin_to_greet(ddl_outgoing *call)
{
    const ddl_meshing *meshing = call->meshing;
    ddl_hello_party self = meshing->self;
    char where[DDL_ADDRESS_FULL_TEXT];
    ddl_error failure;
    self.peer = call->rank;
    self.stream = call->rank < self.rank ? meshing->nwires[call->rank] : call->widens;
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
    set_alarm(call, within_limit_ms(call, CALL_LIMIT_MS));
    return true;
}

static void on_call(void *arg, int events)
{
    ddl_outgoing *call = arg;
    (void)events;
    forgive_own_stop(call);
    if (call->state == CONFIRMING) {
        confirm(call);
        return;
    }
    if (call->state == INTRODUCED) {
        ddl_meshing_usher_hear(call->meshing, call);
        return;
    }
    if (call->state == CONNECTING) {
        int error = ddl_socket_error(call->wire.fd);
        if (error != 0) {
            be_unreachable(call, error);
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

static void begin(ddl_outgoing *call)
{
    ddl_error error;
    ddl_status status = ddl_socket_connect(&call->addresses[call->address_at], &call->wire.fd, &error);
    if (status == DDL_OK)
        status = ddl_watch_open(call->meshing->service, call->wire.fd, on_call, call, &call->watch, &error);
    if (status == DDL_OK && is_local(call) && !ddl_local_is_own_user(call->wire.fd))
        status = DDL_FAIL_OS(&error, DDL_ENETWORK, EACCES, "a process of another user listens there");
    if (status == DDL_ENETWORK) {
        be_unreachable(call, error.os_errno);
    } else if (status != DDL_OK) {
        fail_call(call, &error);
    } else {
        call->state = CONNECTING;
        set_alarm(call, connect_ms(call));
        if (ddl_socket_is_connected(call->wire.fd)) /* inside a host at once: there is nothing to wait for */
            on_call(call, DDL_WRITABLE);
        else
            ddl_watch_set(call->watch, DDL_WRITABLE);
    }
}

static void on_alarm(void *arg)
{
    ddl_outgoing *call = arg;
    bool pauses = call->state == RESTING || call->state == KNOCKED;
    forgive_own_stop(call);
    if (pauses && is_out_of_time(call))
        be_ignored(call);
    else if (pauses)
        begin(call);
    else if (call->state == CONNECTING)
        be_unreachable(call, ETIMEDOUT);
    else if (call->state == ENCRYPTING || call->state == GREETING)
        hang_up(call); /* connected, but busy: only the owner's deadline ends this */
    else if (call->state == CONFIRMING && is_out_of_time(call))
        be_ignored(call);
    else if (call->state == CONFIRMING)
        set_alarm(call, within_limit_ms(call, CALL_LIMIT_MS)); /* a stop is seen by an alarm that is late */
}

/* There was not even a first attempt. */
static void fail_to_start(ddl_outgoing *call, const ddl_error *error)
{
    if (call->policy->fails_alone)
        give_up(call, error);
    else
        ddl_pairs_fail(call->meshing, error);
}

void ddl_outgoing_start(ddl_meshing *meshing, ddl_wish wish)
{
    const int rank = wish.rank;
    const ddl_member *member = &meshing->roster->members[rank];
    const struct policy *policy = policy_of(meshing, wish);
    ddl_error error;
    if (ddl_pairs_is_settled(meshing, wish) || meshing->calls[rank] != NULL)
        return;
    ddl_outgoing *call = ddl_alloc(sizeof *call);
    (void)ddl_error_set(&error, DDL_ENOMEM, "no memory to call rank %d", rank);
    if (call == NULL) {
        if (policy->fails_alone)
            miss(meshing, wish);
        else
            ddl_pairs_fail(meshing, &error);
        return;
    }
    *call = (ddl_outgoing){ .meshing = meshing,
                            .rank = rank,
                            .widens = wish.widens,
                            .policy = policy,
                            .wire = ddl_no_wire,
                            .since_ns = ddl_now_ns(),
                            .pause_ms = FIRST_PAUSE_MS,
                            .limit_ms = policy == &on_demand ? meshing->limit_ms : NO_LIMIT_MS,
                            .last_call = policy == &on_demand ? DDL_DEADLINE_NEVER : meshing->last_call };
    meshing->calls[rank] = call;
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
    const char *zone = strchr(member->address, '%');
    if (found <= 0) {
        if (zone != NULL)
            (void)ddl_error_set(
                &error, DDL_ENETWORK,
                "rank %d is at %s, and this host has no interface %s; for addresses that hold "
                "for one link interfaces have the same name on all hosts, or DDL_IFACE names "
                "a network with others",
                rank, member->address, zone + 1);
        else
            (void)ddl_error_set(&error, DDL_EPROTO, "rank %d gave %s as its address", rank, member->address);
        error.culprit = rank;
        fail_to_start(call, &error);
    } else if (rank < meshing->self.rank) {
        begin(call);
    } else {
        set_alarm(call, FIRST_PAUSE_MS);
    }
}

void ddl_outgoing_hurry(ddl_meshing *meshing, ddl_wish wish)
{
    ddl_outgoing *call = meshing->calls[wish.rank];
    if (call == NULL) {
        ddl_outgoing_start(meshing, wish);
    } else if (call->state == RESTING) { /* the pause that it takes is over */
        rest_alarm(call);
        begin(call);
    }
}
