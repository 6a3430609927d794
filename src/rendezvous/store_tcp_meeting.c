/* store_tcp_meeting.c - calls at the address of rank 0 until that lets this rank in. */
#include "rendezvous/store_tcp_run.h"

#include "io/connect.h"
#include "io/host.h"
#include "io/interface.h"
#include "io/socket.h"
#include "rendezvous/failed_runs.h"
#include "rendezvous/network_master.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    HANDSHAKE_LIMIT_MS = 5000,
    CONNECT_LIMIT_MS = 5000,
    NO_ROUTE_LIMIT_MS = 10000, /* how long a network that is not there may take to come up */
    VERDICT_LIMIT_MS = 10000,  /* how long rank 0 may take to come elsewhere, after one that refused us */
    LOOK_AGAIN_MS = 3000,      /* after that, a name is looked up again */
    LOOKUP_LIMIT_MS = 2000,    /* then */
    FIRST_PAUSE_MS = 1,        /* ranks that start together are a fraction of that apart */
    LAST_PAUSE_MS = 500,
    /* Of one that closes there may be too many at the door: who calls often has its turn sooner. If that has
     * not come after so many calls in a row, what listens may be something else. */
    CROWD_CALLS = 400,
    CROWD_PAUSE_MS = 50,
    CROWD_LATER_MS = 200,
    FEW_CALLS = 20,         /* more of them in a row are told of at the deadline */
    SHORT_ATTEMPT_MS = 1000 /* cut short by the deadline, and tells less than the one before it */
};

/* What an attempt came to. */
enum attempt { ENTERED, AGAIN, SENT_AWAY, NO_ROUTE, REFUSED, GIVE_UP };

static enum attempt no_answer(const char *where, ddl_error *err)
{
    (void)DDL_FAIL(err, DDL_ETIMEDOUT, "%s accepts connections but does not answer", where);
    return AGAIN;
}

/* At level tls: make a session of the connection. host: as it was named. */
static enum attempt shake_hands(const ddl_store_options *options, const ddl_hello_party *self,
                                const char *host, const ddl_address *to, ddl_wire *wire, ddl_hello *hello,
                                ddl_deadline deadline, ddl_error *err)
{
    char where[DDL_ADDRESS_FULL_TEXT];
    ddl_address numeric;
    ddl_error why;
    bool done = false;
    ddl_address_text(to, where);
    if (ddl_encryption_call(options->encryption, self, where, wire, err) != DDL_OK)
        return GIVE_UP;
    for (;;) {
        ddl_status status =
            ddl_encryption_shake(options->encryption, self->rank, false, wire, hello, &done, &why);
        if (status == DDL_OK && done)
            /* An address that a name server gave says nothing of who is there. */
            status = ddl_encryption_check_peer(options->encryption, wire, self->peer, host,
                                               ddl_address_parse(host, 0, &numeric) ? to : NULL, &why);
        if (status != DDL_OK) {
            (void)DDL_FAIL(err, status, "store at %s: %s", where, why.text);
            err->os_errno = why.os_errno;
            return status == DDL_ENETWORK ? SENT_AWAY : GIVE_UP;
        }
        if (done)
            return ENTERED;
        if (!ddl_socket_wait(wire->fd, ddl_wire_has_unsent(wire) ? POLLIN | POLLOUT : POLLIN, deadline))
            return no_answer(where, err);
    }
}

/* Move the handshake's bytes until it has come to something. */
static enum attempt greet(ddl_wire *wire, const char *where, ddl_hello *hello, ddl_deadline deadline,
                          ddl_error *err)
{
    uint8_t data[512];
    for (;;) {
        ddl_view out = ddl_hello_output(hello);
        size_t wanted = ddl_hello_wants(hello);
        bool sent = out.bytes == 0 && ddl_wire_flush(wire);
        if (sent && wanted == 0)
            break;
        ssize_t count = -1;
        if (out.bytes > 0)
            count = ddl_wire_write(wire, out.data, out.bytes);
        else if (wanted > 0)
            count = ddl_wire_read(wire, data, wanted < sizeof data ? wanted : sizeof data);
        if (count < 0 && errno == EBADMSG) {
            (void)DDL_FAIL(err, DDL_EAUTH, "store at %s: TLS failed: %s", where, ddl_wire_problem(wire));
            return GIVE_UP;
        }
        if (count == 0 || (count < 0 && errno != EAGAIN)) {
            (void)DDL_FAIL(err, DDL_ENETWORK, "%s closed the connection before it answered", where);
            return SENT_AWAY;
        }
        bool writes = out.bytes > 0 || ddl_wire_has_unsent(wire);
        if (count < 0 && !ddl_socket_wait(wire->fd, writes ? POLLOUT : POLLIN, deadline))
            return no_answer(where, err);
        if (count > 0 && out.bytes > 0)
            ddl_hello_sent(hello, (size_t)count);
        else if (count > 0)
            ddl_hello_feed(hello, data, (size_t)count);
    }
    if (hello->state == DDL_HELLO_ACCEPTED)
        return ENTERED;
    char place[DDL_ADDRESS_FULL_TEXT + 16];
    snprintf(place, sizeof place, "store at %s", where);
    (void)ddl_hello_fail(hello, place, err);
    return GIVE_UP;
}

/*
 * A connect to a port of this machine on which nobody listens can meet itself, where the system happens
 * to pick that very port for it.
 */
static bool met_itself(int fd, const ddl_address *to)
{
    ddl_address local;
    char ours[DDL_ADDRESS_FULL_TEXT], theirs[DDL_ADDRESS_FULL_TEXT];
    ddl_socket_local(fd, &local);
    ddl_address_text(&local, ours);
    ddl_address_text(to, theirs);
    return strcmp(ours, theirs) == 0;
}

static enum attempt connect_once(const ddl_address to[], int count, int *which, int *fd,
                                 ddl_deadline deadline, ddl_error *err)
{
    ddl_status status = ddl_connect_any(to, count, deadline, fd, which, err);
    if (status == DDL_OK && met_itself(*fd, &to[*which])) {
        char where[DDL_ADDRESS_FULL_TEXT];
        ddl_address_text(&to[*which], where);
        ddl_socket_drop(fd); /* rank 0 is to have that port */
        status = DDL_FAIL_OS(err, DDL_ENETWORK, ECONNREFUSED, "cannot connect to %s", where);
    }
    if (status == DDL_OK)
        return ENTERED;
    if (status == DDL_ERESOURCE)
        return GIVE_UP;
    return ddl_connect_lacks_route(err->os_errno) ? NO_ROUTE : AGAIN;
}

/* Where somebody answered and was not rank 0, rank 0 may still be at another address. */
static void put_last(ddl_address addresses[], int count, int which)
{
    ddl_address moved = addresses[which];
    memmove(&addresses[which], &addresses[which + 1], (size_t)(count - which - 1) * sizeof *addresses);
    addresses[count - 1] = moved;
}

/* Who gave up: what only one with this job's secret can have said is sure, what a stranger may have said is
 * not. */
static enum attempt weigh_verdict(const ddl_hello *hello, ddl_status status)
{
    const bool is_sure = (status != DDL_EPROTO && status != DDL_EAUTH) || ddl_hello_ends_run(hello->verdict);
    return is_sure ? GIVE_UP : REFUSED;
}

/* Connect to one of these addresses and shake hands. */
static enum attempt enter_once(ddl_tcp_run *tcp, const ddl_store_options *options, const char *host,
                               ddl_address addresses[], int count, ddl_deadline deadline, ddl_error *err)
{
    int which = 0;
    ddl_wire wire = ddl_no_wire;
    ddl_hello hello;
    ddl_hello_party self = *options->self;
    enum attempt attempt =
        connect_once(addresses, count, &which, &wire.fd,
                     ddl_deadline_earlier(deadline, ddl_deadline_in_ms(CONNECT_LIMIT_MS)), err);
    if (attempt != ENTERED)
        return attempt;
    self.channel = DDL_HELLO_FOR_STORE;
    self.peer = 0;
    if (ddl_host_random(self.nonce, sizeof self.nonce, err) != DDL_OK) {
        ddl_wire_close(&wire);
        return GIVE_UP;
    }
    ddl_hello_start_client(&hello, &self);
    ddl_address_text(&addresses[which], tcp->where);
    const ddl_deadline limit = ddl_deadline_earlier(deadline, ddl_deadline_in_ms(HANDSHAKE_LIMIT_MS));
    if (options->encryption != NULL)
        attempt = shake_hands(options, &self, host, &addresses[which], &wire, &hello, limit, err);
    if (attempt == ENTERED)
        attempt = greet(&wire, tcp->where, &hello, limit, err);
    if (ddl_hello_ends_run(hello.verdict))
        ddl_failed_runs_add(hello.peer.run_id, self.rank);
    if (attempt != ENTERED) {
        ddl_wire_close(&wire);
        put_last(addresses, count, which);
        return attempt == GIVE_UP ? weigh_verdict(&hello, err->code) : attempt;
    }
    ddl_encryption_trust(&wire);
    ddl_address local;
    ddl_socket_local(wire.fd, &local);
    ddl_address_host(&local, tcp->base.address);
    memcpy(tcp->base.run_id, hello.peer.run_id, DDL_RUN_ID_BYTES);
    tcp->wire = wire;
    tcp->base.held[0] = wire.fd;
    return ENTERED;
}

/* Nobody writes to a place that is not there yet; time passes in poll. */
static void pause_ms(int64_t ms, ddl_deadline deadline)
{
    (void)ddl_socket_wait(-1, 0, ddl_deadline_earlier(deadline, ddl_deadline_in_ms(ms)));
}

static void tell_progress(ddl_progress *progress, const char *rest, const ddl_address *at,
                          const ddl_error *last)
{
    char reason[128];
    bool known = last->os_errno != 0 && strerror_r(last->os_errno, reason, sizeof reason) == 0;
    if (known)
        reason[0] = (char)tolower((unsigned char)reason[0]);
    ddl_progress_tell(progress, "rank 0 at %s (%s%s)", rest, known ? reason : last->text,
                      ddl_address_is_loopback(at) ? "; that is this host itself" : "");
}

/* The calls of one rank. */
struct search {
    const char *host; /* as it was named */
    ddl_address
        *addresses; /* the last nrefused of them are where somebody refused us, who may be a stranger */
    int count, nrefused;
    int sent_away;           /* calls in a row */
    bool was_there;          /* something has let this rank connect */
    ddl_error last, verdict; /* what the last attempt that had its time came to; the first refusal */
    int64_t verdict_ns;      /* when that was */
    int64_t no_route_ns;     /* since when there is none; INT64_MAX: there is one */
    int64_t looked_ns;       /* when the name was looked up last */
};

/* A name may still have been that of an earlier rank 0's host. While it means the same addresses their order
 * stays, as what did not let us in is last. */
static void look_up_again(struct search *search, const ddl_network *network, ddl_deadline deadline)
{
    ddl_address found[DDL_NETWORK_MASTER_MAX];
    int nfound = 0;
    if (ddl_now_ns() - search->looked_ns < LOOK_AGAIN_MS * DDL_NS_PER_MS)
        return;
    search->looked_ns = ddl_now_ns();
    if (ddl_master_addresses_to_call(network, search->host, ddl_address_port(&search->addresses[0]),
                                     ddl_deadline_earlier(deadline, ddl_deadline_in_ms(LOOKUP_LIMIT_MS)),
                                     found, &nfound, NULL) != DDL_OK)
        return;
    bool differs = nfound != search->count;
    for (int i = 0; i < nfound; i++)
        differs = differs || !ddl_address_is_among(&found[i], search->addresses, search->count);
    if (differs) {
        memcpy(search->addresses, found, (size_t)nfound * sizeof found[0]);
        search->count = nfound;
        search->nrefused = 0;
    }
}

static ddl_status tell_no_route(const ddl_address *to, const ddl_error *last, ddl_error *err)
{
    char known[256];
    if (ddl_socket_lacks_port(to, last->os_errno))
        return DDL_FAIL(err, DDL_ERESOURCE, "%s; " DDL_SOCKET_NO_PORT, last->text);
    ddl_interfaces_text(known, sizeof known);
    return DDL_FAIL(err, DDL_ENETWORK,
                    "%s; is MASTER_ADDR right, is there a network to it, and does its firewall let "
                    "MASTER_PORT through? This host has: %s",
                    last->text, known);
}

/* At the deadline. */
static ddl_status tell_in_vain(const struct search *search, const char *rest, int64_t start_ns,
                               ddl_error *err)
{
    const ddl_error *last = &search->last;
    const double waited_s = (double)(ddl_now_ns() - start_ns) / 1e9;
    if (last->code == DDL_ETIMEDOUT)
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "what listens at the meeting place %s did not answer within %.1f s; is rank 0 stopped, or short "
            "of descriptors, or does another program hold that port? Its output tells; or raise "
            "DDL_START_TIMEOUT",
            rest, waited_s);
    else if (last->os_errno == ETIMEDOUT)
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "nothing has answered at the meeting place %s within %.1f s (%s): its host is down, or a "
            "firewall there drops what comes to that port; let it through, check that rank 0 was "
            "started, with the same MASTER_ADDR, MASTER_PORT and DDL_STORE, or raise DDL_START_TIMEOUT",
            rest, waited_s, last->text);
    else if (search->sent_away >= FEW_CALLS)
        (void)DDL_FAIL(err, DDL_ETIMEDOUT,
                       "what listens at the meeting place %s has closed %d connections in a row before it "
                       "answered, the last after %.1f s; does another program hold that port, or do too many "
                       "call there? The output of rank 0 tells; or raise DDL_START_TIMEOUT",
                       rest, search->sent_away, waited_s);
    else if (search->was_there && last->os_errno == ECONNREFUSED)
        (void)DDL_FAIL(err, DDL_ETIMEDOUT,
                       "what listened at the meeting place %s has gone before this rank came in, and nothing "
                       "came in its place within %.1f s (%s); look at the output of rank 0, or raise "
                       "DDL_START_TIMEOUT",
                       rest, waited_s, last->text);
    else
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "rank 0 did not open the meeting place %s within %.1f s (%s); start rank 0, or look why it "
            "has ended, check that it has the same MASTER_ADDR, MASTER_PORT and DDL_STORE, or raise "
            "DDL_START_TIMEOUT",
            rest, waited_s, last->text);
    ddl_error_blame(err, 0);
    return DDL_ETIMEDOUT;
}

/* Between attempts, of which so many in a row were sent away. */
static int64_t longest_pause_ms(int sent_away)
{
    return sent_away == 0 ? LAST_PAUSE_MS : sent_away <= CROWD_CALLS ? CROWD_PAUSE_MS : CROWD_LATER_MS;
}

static void note_attempt(struct search *search, enum attempt attempt, int64_t attempt_ns,
                         const ddl_error *why, ddl_deadline deadline)
{
    const bool is_cut_short = search->last.code != DDL_OK && ddl_deadline_passed(deadline) &&
                              ddl_now_ns() - attempt_ns < SHORT_ATTEMPT_MS * DDL_NS_PER_MS;
    if (!is_cut_short) {
        search->last = *why;
        search->sent_away = attempt == SENT_AWAY ? search->sent_away + 1 : 0;
    }
    if (attempt != NO_ROUTE)
        search->no_route_ns = INT64_MAX;
    else if (search->no_route_ns > attempt_ns)
        search->no_route_ns = attempt_ns;
    search->was_there = search->was_there || attempt == SENT_AWAY || why->code == DDL_ETIMEDOUT;
    if (attempt == REFUSED && search->nrefused++ == 0 && search->verdict.code == DDL_OK) {
        search->verdict = *why;
        search->verdict_ns = ddl_now_ns();
    }
}

/* Whether rank 0 will not be found at the addresses that are left either. */
static bool is_verdict_final(const struct search *search, enum attempt attempt, ddl_deadline deadline)
{
    if (search->nrefused == 0)
        return false;
    return search->nrefused == search->count || attempt == NO_ROUTE || ddl_deadline_passed(deadline) ||
           ddl_now_ns() - search->verdict_ns > VERDICT_LIMIT_MS * DDL_NS_PER_MS;
}

static ddl_status hand_over(const ddl_error *why, ddl_error *err)
{
    if (err != NULL)
        *err = *why;
    return why->code;
}

/* What is sent there goes nowhere, and nothing tells. */
static bool is_cut_off_from_itself(const ddl_address *address)
{
    return ddl_interface_is_local(address) && ddl_interface_no_loopback();
}

ddl_status ddl_tcp_run_enter(ddl_tcp_run *tcp, const ddl_store_options *options, const char *host,
                             ddl_address addresses[], int count, const char *rest, ddl_deadline deadline,
                             ddl_error *err)
{
    if (is_cut_off_from_itself(&addresses[0]))
        return DDL_FAIL(err, DDL_ENETWORK,
                        "the meeting place %s is on this machine, which cannot reach itself, as its loopback "
                        "interface is down; ip link set lo up",
                        rest);
    struct search search = { .host = host,
                             .addresses = addresses,
                             .count = count,
                             .no_route_ns = INT64_MAX,
                             .looked_ns = ddl_now_ns() };
    const int64_t start_ns = options->progress != NULL ? options->progress->start_ns : ddl_now_ns();
    for (int64_t pause = FIRST_PAUSE_MS;;
         pause = pause * 3 / 2 + 1 < LAST_PAUSE_MS ? pause * 3 / 2 + 1 : LAST_PAUSE_MS) {
        ddl_error why = { .code = DDL_OK };
        const int64_t attempt_ns = ddl_now_ns();
        enum attempt attempt =
            enter_once(tcp, options, host, addresses, search.count - search.nrefused, deadline, &why);
        if (attempt == ENTERED)
            return DDL_OK;
        if (attempt == GIVE_UP)
            return hand_over(&why, err);
        note_attempt(&search, attempt, attempt_ns, &why, deadline);
        if (is_verdict_final(&search, attempt, deadline))
            return hand_over(&search.verdict, err);
        if (ddl_now_ns() - search.no_route_ns > NO_ROUTE_LIMIT_MS * DDL_NS_PER_MS)
            return tell_no_route(&addresses[0], &search.last, err);
        if (ddl_deadline_passed(deadline) && ddl_socket_lacks_port(&addresses[0], search.last.os_errno))
            return tell_no_route(&addresses[0], &search.last, err);
        if (ddl_deadline_passed(deadline))
            return tell_in_vain(&search, rest, start_ns, err);
        tell_progress(options->progress, rest, &addresses[0], &search.last);
        const int64_t most_ms = longest_pause_ms(search.sent_away);
        pause_ms(pause < most_ms ? pause : most_ms, deadline);
        if (options->self->rank != 0)
            look_up_again(&search, options->network, deadline);
    }
}
