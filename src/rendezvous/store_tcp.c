/*
 * store_tcp.c - a store served by rank 0 at tcp://host:port.
 *
 * Rank 0 binds exactly that address and is a client of its own server. The others connect again and again
 * until it is there, and stay connected: so the server knows who is still present.
 */
#include "rendezvous/store.h"

#include "base/assert.h"
#include "base/list.h"
#include "base/log.h"
#include "io/connect.h"
#include "io/host.h"
#include "io/interface.h"
#include "io/socket.h"
#include "protocol/store_wire.h"
#include "rendezvous/meet.h"
#include "rendezvous/port_owner.h"
#include "rendezvous/store_server.h"

#include <ctype.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    HANDSHAKE_LIMIT_MS = 5000,
    CONNECT_LIMIT_MS = 5000,
    NO_ROUTE_LIMIT_MS = 10000, /* how long a network that is not there may take to come up */
    LOOK_AGAIN_MS = 3000,      /* after that, a name is looked up again */
    LOOKUP_LIMIT_MS = 2000,    /* then */
    ASK_LIMIT_MS = 900,        /* for an answer that the server gives at once */
    FIRST_PAUSE_MS = 10,
    LAST_PAUSE_MS = 500,
    /* Of one that closes there may be too many at the door: who calls often has its turn sooner. If that has
     * not come after so many calls in a row, what listens may be something else. */
    CROWD_CALLS = 400,
    CROWD_PAUSE_MS = 50,
    CROWD_LATER_MS = 200,
    SHORT_ATTEMPT_MS = 1000, /* cut short by the deadline, and tells less than the one before it */
    READ_BYTES = 16 << 10
};

struct store_tcp {
    ddl_store base; /* held[0]: the connection's descriptor */
    ddl_wire wire;
    uint32_t next_id;
    ddl_store_inbox inbox;
    ddl_bytes rest;           /* of a message that was cut by its deadline: it goes before the next */
    ddl_store_server *server; /* rank 0 */
    ddl_deadline end;         /* of all questions: beyond the deadline of the start */
    bool is_silent;           /* it has left a question without an answer, and said nothing since */
    bool failed;
    ddl_error failure;
    char where[DDL_ADDRESS_FULL_TEXT];
};

static struct store_tcp *as_tcp(ddl_store *store)
{
    DDL_ASSERT(store->ops == &ddl_store_tcp);
    return DDL_CONTAINER(store, struct store_tcp, base);
}

/* ---- entering ---- */

/* What an attempt came to. */
enum attempt { ENTERED, AGAIN, SENT_AWAY, NO_ROUTE, GIVE_UP };

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

/* Connect to one of these addresses and shake hands. */
static enum attempt enter_once(struct store_tcp *tcp, const ddl_store_options *options, const char *host,
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
    self.channel = DDL_CHANNEL_STORE;
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
    if (attempt != ENTERED) {
        ddl_wire_close(&wire);
        put_last(addresses, count, which);
        return attempt;
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

static void tell_progress(ddl_progress *progress, const char *rest, const ddl_error *last)
{
    char reason[128];
    bool known = last->os_errno != 0 && strerror_r(last->os_errno, reason, sizeof reason) == 0;
    if (known)
        reason[0] = (char)tolower((unsigned char)reason[0]);
    ddl_progress_tell(progress, "rank 0 at %s (%s)", rest, known ? reason : last->text);
}

static bool is_among(const ddl_address *one, const ddl_address addresses[], int count)
{
    for (int i = 0; i < count; i++)
        if (ddl_address_same_host(one, &addresses[i]))
            return true;
    return false;
}

/* A name may still have been that of an earlier rank 0's host. While it means the same addresses their order
 * stays, as what did not let us in is last. */
static void look_up_again(const ddl_network *network, const char *host, ddl_address addresses[], int *count,
                          int64_t *looked_ns, ddl_deadline deadline)
{
    ddl_address found[DDL_NETWORK_MASTER_MAX];
    int nfound = 0;
    if (ddl_now_ns() - *looked_ns < LOOK_AGAIN_MS * DDL_NS_PER_MS)
        return;
    *looked_ns = ddl_now_ns();
    if (ddl_network_find_master(network, false, host, ddl_address_port(&addresses[0]),
                                ddl_deadline_earlier(deadline, ddl_deadline_in_ms(LOOKUP_LIMIT_MS)), found,
                                &nfound, NULL) != DDL_OK)
        return;
    bool differs = nfound != *count;
    for (int i = 0; i < nfound; i++)
        differs = differs || !is_among(&found[i], addresses, *count);
    if (differs) {
        memcpy(addresses, found, (size_t)nfound * sizeof found[0]);
        *count = nfound;
    }
}

/* Rank 0 calls at the one address where it listens; for others addresses has room for all of a name. */
static ddl_status enter(struct store_tcp *tcp, const ddl_store_options *options, const char *host,
                        ddl_address addresses[], int count, const char *rest, ddl_deadline deadline,
                        ddl_error *err)
{
    int64_t looked_ns = ddl_now_ns();
    const int64_t start_ns = options->progress != NULL ? options->progress->start_ns : ddl_now_ns();
    int64_t no_route_ns = INT64_MAX; /* since when there is none */
    int sent_away = 0;               /* calls in a row */
    ddl_error last = { .code = DDL_OK };
    for (int64_t pause = FIRST_PAUSE_MS;;
         pause = pause * 3 / 2 < LAST_PAUSE_MS ? pause * 3 / 2 : LAST_PAUSE_MS) {
        ddl_error why = { .code = DDL_OK };
        const int64_t attempt_ns = ddl_now_ns();
        enum attempt attempt = enter_once(tcp, options, host, addresses, count, deadline, &why);
        if (attempt == ENTERED)
            return DDL_OK;
        if (attempt == GIVE_UP) {
            if (err != NULL)
                *err = why;
            return why.code;
        }
        const int64_t now_ns = ddl_now_ns();
        if (last.code == DDL_OK || !ddl_deadline_passed(deadline) ||
            now_ns - attempt_ns >= SHORT_ATTEMPT_MS * DDL_NS_PER_MS)
            last = why;
        if (attempt != NO_ROUTE)
            no_route_ns = INT64_MAX;
        else if (no_route_ns > attempt_ns)
            no_route_ns = attempt_ns;
        if (now_ns - no_route_ns > NO_ROUTE_LIMIT_MS * DDL_NS_PER_MS) {
            char known[256];
            ddl_interfaces_text(known, sizeof known);
            return DDL_FAIL(err, DDL_ENETWORK,
                            "%s; is MASTER_ADDR right, is there a network to it, and does its firewall let "
                            "MASTER_PORT through? This host has: %s",
                            last.text, known);
        }
        if (ddl_deadline_passed(deadline))
            break;
        tell_progress(options->progress, rest, &last);
        sent_away = attempt == SENT_AWAY ? sent_away + 1 : 0;
        const int64_t most_ms = sent_away == 0             ? LAST_PAUSE_MS
                                : sent_away <= CROWD_CALLS ? CROWD_PAUSE_MS
                                                           : CROWD_LATER_MS;
        pause_ms(pause < most_ms ? pause : most_ms, deadline);
        if (options->self->rank != 0)
            look_up_again(options->network, host, addresses, &count, &looked_ns, deadline);
    }
    if (last.code == DDL_ETIMEDOUT)
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "what listens at the meeting place %s did not answer within %.1f s; is rank 0 stopped, or short "
            "of descriptors, or does another program hold that port? Its output tells; or raise "
            "DDL_START_TIMEOUT",
            rest, (double)(ddl_now_ns() - start_ns) / 1e9);
    else if (last.os_errno == ETIMEDOUT)
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "nothing has answered at the meeting place %s within %.1f s (%s): its host is down, or a "
            "firewall there drops what comes to that port; let it through, check MASTER_ADDR and "
            "MASTER_PORT and that rank 0 was started, or raise DDL_START_TIMEOUT",
            rest, (double)(ddl_now_ns() - start_ns) / 1e9, last.text);
    else
        (void)DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "rank 0 did not open the meeting place %s within %.1f s (%s); start rank 0, or look why it "
            "has ended, check MASTER_ADDR and MASTER_PORT, or raise DDL_START_TIMEOUT",
            rest, (double)(ddl_now_ns() - start_ns) / 1e9, last.text);
    ddl_error_blame(err, 0);
    return DDL_ETIMEDOUT;
}

/* ---- serving ---- */

/* Which has put a store of its own where it tells ranks to meet. */
static bool is_of_torchrun(uint16_t port)
{
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE"), *told = getenv("MASTER_PORT");
    return agent != NULL && strcasecmp(agent, "true") == 0 && told != NULL && atoi(told) == port;
}

static ddl_status explain_listen(const ddl_hello_party *self, const char *host, const ddl_address *at,
                                 const ddl_error *why, ddl_error *err)
{
    char known[256], owner[DDL_PORT_OWNER_TEXT];
    const uint16_t port = ddl_address_port(at);
    if (why->os_errno == EADDRINUSE) {
        const bool is_run = ddl_port_owner_text(self, at, owner);
        if (!is_run && is_of_torchrun(port))
            return DDL_FAIL_OS(err, DDL_ENETWORK, EADDRINUSE,
                               "port %u on %s is in use, by torchrun perhaps, whose own store is at "
                               "MASTER_ADDR:MASTER_PORT; give ddl another place: DDL_STORE=tcp://%s:PORT",
                               port, host, strchr(host, ':') != NULL ? "[ADDRESS]" : host);
        return DDL_FAIL_OS(err, DDL_ENETWORK, EADDRINUSE,
                           "port %u on %s is in use by %s; %schoose another --master_port (MASTER_PORT)",
                           port, host, owner,
                           is_run ? "was rank 0 (--node_rank 0) started twice? If not, " : "");
    }
    if (why->os_errno == EADDRNOTAVAIL) {
        ddl_interfaces_text(known, sizeof known);
        return DDL_FAIL_OS(
            err, DDL_ENETWORK, EADDRNOTAVAIL,
            "rank 0 must listen on MASTER_ADDR %s, which is no address of this machine; it has: %s; behind a "
            "NAT, set DDL_ADVERTISE",
            host, known);
    }
    if (why->os_errno == EACCES)
        return DDL_FAIL_OS(err, DDL_ENETWORK, EACCES, "port %u on %s is for root only; choose one above 1023",
                           port, host);
    if (err != NULL)
        *err = *why;
    return why->code;
}

/* What lets everybody in. */
static void warn_of_address(const char *host, const ddl_address *bound)
{
    if (ddl_address_is_any(bound))
        ddl_log(DDL_LOG_WARNING,
                "MASTER_ADDR %s: rank 0 listens on all addresses of this host; name the one that the other "
                "ranks use",
                host);
}

/* By its run another job is told whose port it wanted. */
static void tell_of_run(const ddl_hello_party *self, const ddl_address *bound)
{
    char run[DDL_RUN_TEXT], at[DDL_ADDRESS_FULL_TEXT];
    ddl_meet_hex(self->run_id, DDL_RUN_ID_BYTES, run);
    ddl_address_text(bound, at);
    ddl_log(DDL_LOG_DEBUG, "rank 0 of run %s listens at %s", run, at);
}

/* Whoever comes by another address of the same name, in the other family perhaps, is served there too, and
 * not by another program. */
static ddl_status serve_also(struct store_tcp *tcp, const ddl_hello_party *self, const char *host,
                             const ddl_address *bound, const ddl_address addresses[], int count,
                             ddl_deadline deadline, ddl_error *err)
{
    char text[DDL_ADDRESS_FULL_TEXT];
    int doors = ddl_address_is_loopback(bound) ? DDL_STORE_SERVER_DOORS : 1;
    for (int i = 0; i < count && doors < DDL_STORE_SERVER_DOORS; i++) {
        ddl_error why;
        if (ddl_address_same_host(bound, &addresses[i]) || is_among(&addresses[i], addresses, i))
            continue;
        ddl_status status = ddl_store_server_open_also(tcp->server, &addresses[i], deadline, &why);
        doors += status == DDL_OK;
        if (status == DDL_ENETWORK && why.os_errno == EADDRINUSE)
            return explain_listen(self, host, &addresses[i], &why, err);
        if (status == DDL_OK || status == DDL_ENETWORK) {
            ddl_address_text(&addresses[i], text);
            ddl_log(DDL_LOG_DEBUG, "rank 0 %s %s", status == DDL_OK ? "also listens at" : "has no use for",
                    text);
            continue;
        }
        if (err != NULL)
            *err = why;
        return status;
    }
    return DDL_OK;
}

static ddl_status serve(struct store_tcp *tcp, const ddl_store_options *options,
                        const ddl_address addresses[], int count, const char *host, ddl_deadline deadline,
                        ddl_address *bound, ddl_error *err)
{
    const ddl_address *failed = &addresses[0];
    ddl_hello_party self = *options->self;
    ddl_error why = { .code = DDL_OK };
    DDL_TRY(ddl_host_random(self.run_id, sizeof self.run_id, err));
    for (int i = 0; i < count; i++) {
        ddl_error last = { .code = DDL_OK };
        if (ddl_store_server_open(options->service, &self, options->encryption, &addresses[i], deadline,
                                  bound, &tcp->server, &last) == DDL_OK) {
            warn_of_address(host, bound);
            tell_of_run(&self, bound);
            return serve_also(tcp, &self, host, bound, &addresses[i + 1], count - i - 1, deadline, err);
        }
        /* Of several addresses the one that is ours tells most. */
        if (i == 0 || last.os_errno != EADDRNOTAVAIL) {
            why = last;
            failed = &addresses[i];
        }
        if (last.os_errno == EADDRINUSE || last.code == DDL_ETIMEDOUT)
            break;
    }
    return explain_listen(&self, host, failed, &why, err);
}

static void tcp_destroy(ddl_store *store, ddl_deadline deadline)
{
    struct store_tcp *tcp = as_tcp(store);
    ddl_wire_close(&tcp->wire);
    ddl_store_server_close(tcp->server, deadline);
    ddl_store_inbox_fini(&tcp->inbox);
    ddl_bytes_fini(&tcp->rest);
    ddl_free(tcp);
}

static ddl_status tcp_open(const ddl_store_options *options, const char *rest, ddl_deadline deadline,
                           ddl_store **out, ddl_error *err)
{
    char host[256];
    uint16_t port;
    int count = 0;
    ddl_address addresses[DDL_NETWORK_MASTER_MAX], bound;
    ddl_error why;
    ddl_status status;
    if (strchr(rest, '@') != NULL) /* it may be a password, which no text repeats */
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_STORE=tcp://ADDRESS: an address has no @ in it; a user is only for redis://");
    if (ddl_address_split("ADDRESS", rest, host, sizeof host, &port, &why) != DDL_OK)
        return DDL_FAIL(err, why.code, "DDL_STORE=tcp://ADDRESS: %s", why.text);
    DDL_TRY(ddl_network_find_master(options->network, options->self->rank == 0, host, port, deadline,
                                    addresses, &count, err));
    struct store_tcp *tcp = ddl_alloc(sizeof *tcp);
    if (tcp == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a store");
    tcp->base.ops = &ddl_store_tcp;
    tcp->base.held[0] = tcp->base.held[1] = -1;
    tcp->wire = ddl_no_wire;
    tcp->end = deadline + ddl_deadline_earlier(ASK_LIMIT_MS * DDL_NS_PER_MS, DDL_DEADLINE_NEVER - deadline);
    tcp->inbox.value_limit = DDL_STORE_ROSTER_LIMIT + DDL_STORE_SEAL_ROOM;
    if (options->self->rank == 0) {
        if ((status = serve(tcp, options, addresses, count, host, deadline, &bound, err)) != DDL_OK)
            goto fail;
        if ((status = enter(tcp, options, host, &bound, 1, rest, deadline, err)) != DDL_OK)
            goto fail;
    } else if ((status = enter(tcp, options, host, addresses, count, rest, deadline, err)) != DDL_OK) {
        goto fail;
    }
    *out = &tcp->base;
    return DDL_OK;
fail:
    tcp_destroy(&tcp->base, ddl_now_ns());
    return status;
}

/* ---- requests ---- */

static ddl_status lost(struct store_tcp *tcp, ddl_error *err)
{
    tcp->base.is_lost = true;
    (void)DDL_FAIL(err, DDL_EPEERLOST,
                   "rank 0 left the meeting place at %s before all ranks were connected; look at "
                   "its output",
                   tcp->where);
    ddl_error_blame(err, 0);
    return DDL_EPEERLOST;
}

/* Reading or writing failed, as errno says. */
static ddl_status broke(struct store_tcp *tcp, ddl_error *err)
{
    if (errno != EBADMSG)
        return lost(tcp, err);
    (void)DDL_FAIL(err, DDL_EPROTO, "rank 0, at the meeting place %s: TLS failed: %s", tcp->where,
                   ddl_wire_problem(&tcp->wire));
    ddl_error_blame(err, 0);
    return DDL_EPROTO;
}

static ddl_status failed(const struct store_tcp *tcp, ddl_error *err)
{
    if (err != NULL)
        *err = tcp->failure;
    return tcp->failure.code;
}

static ddl_status late(struct store_tcp *tcp, ddl_error *err)
{
    (void)DDL_FAIL(err, DDL_ETIMEDOUT, "rank 0 does not answer at %s", tcp->where);
    ddl_error_blame(err, 0);
    return DDL_ETIMEDOUT;
}

/* Read what is there; *any: something was. DDL_EPEERLOST at the end of the stream. */
static ddl_status take_in(struct store_tcp *tcp, bool *any, ddl_error *err)
{
    uint8_t data[READ_BYTES];
    ssize_t count = ddl_wire_read(&tcp->wire, data, sizeof data);
    *any = count > 0;
    if (count > 0)
        return ddl_store_inbox_feed(&tcp->inbox, data, (size_t)count, err);
    if (count == 0)
        return lost(tcp, err);
    return errno == EAGAIN ? DDL_OK : broke(tcp, err);
}

/* The next message, if one is there; a failure of the run is remembered and returned. */
static ddl_status next_message(struct store_tcp *tcp, ddl_store_message *message, bool *found, ddl_error *err)
{
    DDL_TRY(ddl_store_inbox_next(&tcp->inbox, message, found, err));
    tcp->is_silent = tcp->is_silent && !*found;
    if (!*found || message->kind != DDL_STORE_FAILED)
        return DDL_OK;
    if (!tcp->failed)
        DDL_TRY(ddl_store_error_decode(message->value, &tcp->failure, err));
    tcp->failed = true;
    return failed(tcp, err);
}

/* Whether rank 0 has said that the run failed, among all that it said before the connection broke. */
static bool has_told_failure(struct store_tcp *tcp)
{
    ddl_store_message message;
    ddl_error ignored;
    bool any = true;
    while (any && !tcp->failed) {
        bool found = true;
        while (found)
            if (next_message(tcp, &message, &found, &ignored) != DDL_OK)
                return tcp->failed;
        if (take_in(tcp, &any, &ignored) != DDL_OK)
            any = false;
    }
    return tcp->failed;
}

static ddl_status send_some(struct store_tcp *tcp, const ddl_bytes *out, size_t *sent, ddl_deadline deadline,
                            ddl_error *err)
{
    while (*sent < out->bytes || !ddl_wire_flush(&tcp->wire)) {
        ssize_t count =
            *sent < out->bytes ? ddl_wire_write(&tcp->wire, out->data + *sent, out->bytes - *sent) : -1;
        if (count > 0)
            *sent += (size_t)count;
        else if (count < 0 && errno != EAGAIN)
            return broke(tcp, err);
        else if (!ddl_socket_wait(tcp->wire.fd, POLLOUT, deadline))
            return late(tcp, err);
    }
    return DDL_OK;
}

static ddl_status send_rest(struct store_tcp *tcp, ddl_deadline deadline, ddl_error *err)
{
    size_t sent = 0;
    if (tcp->rest.bytes == 0)
        return DDL_OK;
    ddl_status status = send_some(tcp, &tcp->rest, &sent, deadline, err);
    tcp->rest.bytes -= sent;
    memmove(tcp->rest.data, tcp->rest.data + sent, tcp->rest.bytes);
    return status;
}

static ddl_status send_bytes(struct store_tcp *tcp, const ddl_bytes *out, ddl_deadline deadline,
                             ddl_error *err)
{
    size_t sent = 0;
    DDL_TRY(send_rest(tcp, deadline, err));
    ddl_status status = send_some(tcp, out, &sent, deadline, err);
    if (status == DDL_ETIMEDOUT && sent > 0 &&
        !ddl_bytes_append(&tcp->rest, out->data + sent, out->bytes - sent))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a request to the store");
    return status;
}

static ddl_status send_all(struct store_tcp *tcp, const ddl_bytes *out, ddl_deadline deadline, ddl_error *err)
{
    ddl_status status = send_bytes(tcp, out, deadline, err);
    bool is_broken = status == DDL_EPEERLOST || status == DDL_EPROTO;
    if (!is_broken || !has_told_failure(tcp))
        return status;
    tcp->base.is_lost = false; /* the run has failed; that rank 0 has gone comes of it */
    return failed(tcp, err);
}

static ddl_status send_message(struct store_tcp *tcp, const ddl_store_message *message, ddl_deadline deadline,
                               ddl_error *err)
{
    ddl_bytes out = { 0 };
    ddl_status status = ddl_store_message_encode(message, &out)
                            ? send_all(tcp, &out, deadline, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for a request to the store");
    ddl_bytes_fini(&out);
    return status;
}

/* Wait for the reply to request id; its views hold until the next request. DDL_ETIMEDOUT: not by the
 * deadline. */
static ddl_status await_reply(struct store_tcp *tcp, uint32_t id, ddl_deadline deadline,
                              ddl_store_message *reply, ddl_error *err)
{
    for (;;) {
        bool found, any;
        DDL_TRY(next_message(tcp, reply, &found, err));
        if (found && reply->id == id)
            break;
        if (found)
            continue; /* the reply to a request that was given up */
        if (!ddl_socket_wait(tcp->wire.fd, POLLIN, deadline))
            return late(tcp, err);
        DDL_TRY(take_in(tcp, &any, err));
    }
    if (reply->kind == DDL_STORE_REFUSED) {
        ddl_error refusal;
        DDL_TRY(ddl_store_error_decode(reply->value, &refusal, err));
        if (err != NULL)
            *err = refusal;
        return refusal.code;
    }
    return DDL_OK;
}

static ddl_status unexpected(const struct store_tcp *tcp, const ddl_store_message *reply, ddl_error *err)
{
    return DDL_FAIL(err, DDL_EPROTO, "the store at %s gave a reply of kind %d that does not fit the request",
                    tcp->where, (int)reply->kind);
}

/* For what the server answers at once: until the deadline, and also when the caller's time is over, since a
 * question deserves its answer; but only one waits in vain, and none beyond the end. */
static ddl_deadline limit_of_asking(const struct store_tcp *tcp, ddl_deadline deadline)
{
    const ddl_deadline least = ddl_deadline_in_ms(tcp->is_silent ? 0 : ASK_LIMIT_MS);
    return ddl_deadline_earlier(deadline > least ? deadline : least, tcp->end);
}

static ddl_status ask(struct store_tcp *tcp, ddl_store_message *request, ddl_deadline deadline,
                      ddl_store_message *reply, ddl_error *err)
{
    const ddl_deadline limit = limit_of_asking(tcp, deadline);
    if (tcp->failed)
        return failed(tcp, err);
    request->id = ++tcp->next_id;
    DDL_TRY(send_message(tcp, request, limit, err));
    ddl_status status = await_reply(tcp, request->id, limit, reply, err);
    tcp->is_silent = status == DDL_ETIMEDOUT;
    return status;
}

static ddl_status copy_value(ddl_view value, ddl_bytes *out, ddl_error *err)
{
    ddl_bytes copy = { 0 };
    if (!ddl_bytes_append(&copy, value.data, value.bytes))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a value of %zu bytes", value.bytes);
    *out = copy;
    return DDL_OK;
}

static ddl_view key_view(const char *key)
{
    return (ddl_view){ key, strlen(key) };
}

static ddl_status tcp_set_new(ddl_store *store, const char *key, ddl_view value, ddl_deadline deadline,
                              ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    struct store_tcp *tcp = as_tcp(store);
    ddl_store_message request = { .kind = DDL_STORE_SET_NEW, .key = key_view(key), .value = value }, reply;
    DDL_TRY(ask(tcp, &request, deadline, &reply, err));
    if (reply.kind == DDL_STORE_DONE) {
        *outcome = DDL_STORE_CREATED;
        return DDL_OK;
    }
    if (reply.kind != DDL_STORE_EXISTS)
        return unexpected(tcp, &reply, err);
    DDL_TRY(copy_value(reply.value, existing, err));
    *outcome = reply.flags & DDL_STORE_GONE ? DDL_STORE_ABANDONED : DDL_STORE_TAKEN;
    return DDL_OK;
}

static ddl_status get_waiting(struct store_tcp *tcp, const char *key, ddl_deadline deadline,
                              ddl_store_message *reply, ddl_error *err)
{
    ddl_store_message request = {
        .kind = DDL_STORE_GET, .flags = DDL_STORE_WAIT, .id = ++tcp->next_id, .key = key_view(key)
    };
    if (tcp->failed)
        return failed(tcp, err);
    DDL_TRY(send_message(tcp, &request, deadline, err));
    ddl_status status = await_reply(tcp, request.id, deadline, reply, err);
    if (status == DDL_ETIMEDOUT && !tcp->failed) {
        ddl_store_message cancel = { .kind = DDL_STORE_CANCEL, .id = request.id };
        DDL_TRY(send_message(tcp, &cancel, ddl_deadline_in_ms(ASK_LIMIT_MS), err));
    }
    return status;
}

static ddl_status tcp_get(ddl_store *store, const char *key, ddl_deadline deadline, ddl_bytes *value,
                          ddl_error *err)
{
    struct store_tcp *tcp = as_tcp(store);
    ddl_store_message request = { .kind = DDL_STORE_GET, .key = key_view(key) }, reply;
    if (ddl_deadline_passed(deadline))
        DDL_TRY(ask(tcp, &request, deadline, &reply, err));
    else
        DDL_TRY(get_waiting(tcp, key, deadline, &reply, err));
    if (reply.kind == DDL_STORE_MISSING)
        return DDL_FAIL(err, DDL_ETIMEDOUT, "%s was not set in the store at %s", key, tcp->where);
    if (reply.kind != DDL_STORE_VALUE)
        return unexpected(tcp, &reply, err);
    return copy_value(reply.value, value, err);
}

enum { ASKED_AT_ONCE = 64 }; /* keys */

/* Put questions for the keys of the next ranks from *rank on that are not present together. */
static ddl_status ask_for_some(struct store_tcp *tcp, const ddl_store_many *many, int *rank,
                               int ranks[ASKED_AT_ONCE], int *count, ddl_bytes *out, ddl_error *err)
{
    *count = 0;
    for (; *rank < many->count && *count < ASKED_AT_ONCE; ++*rank) {
        char key[DDL_STORE_NAME_BYTES];
        if (many->present[*rank])
            continue;
        ddl_store_name(many, *rank, key);
        const ddl_store_message request = { .kind = DDL_STORE_GET,
                                            .id = ++tcp->next_id,
                                            .key = key_view(key) };
        if (!ddl_store_message_encode(&request, out))
            return DDL_FAIL(err, DDL_ENOMEM, "no memory for requests to the store");
        ranks[(*count)++] = *rank;
    }
    return DDL_OK;
}

/* To the last questions. */
static ddl_status take_answers(struct store_tcp *tcp, const ddl_store_many *many, const int ranks[],
                               int count, ddl_deadline limit, bool *all, ddl_error *err)
{
    const uint32_t first_id = tcp->next_id - (uint32_t)count + 1;
    for (int i = 0; i < count; i++) {
        ddl_store_message reply;
        ddl_status status = await_reply(tcp, first_id + (uint32_t)i, limit, &reply, err);
        tcp->is_silent = status == DDL_ETIMEDOUT;
        if (status != DDL_OK)
            return status;
        if (reply.kind == DDL_STORE_VALUE)
            DDL_TRY(ddl_store_found(&tcp->base, many, ranks[i], reply.value, err));
        else if (reply.kind != DDL_STORE_MISSING)
            return unexpected(tcp, &reply, err);
        *all = *all && reply.kind == DDL_STORE_VALUE;
    }
    return DDL_OK;
}

/* Once, for many keys at a time: the way to the server and back is what takes long. */
static ddl_status look_for_many(struct store_tcp *tcp, const ddl_store_many *many, ddl_error *err)
{
    const ddl_deadline limit = limit_of_asking(tcp, 0);
    ddl_status status = tcp->failed ? failed(tcp, err) : DDL_OK;
    bool all = true;
    for (int rank = 0, count = 1; status == DDL_OK && count > 0;) {
        int ranks[ASKED_AT_ONCE];
        ddl_bytes out = { 0 };
        status = ask_for_some(tcp, many, &rank, ranks, &count, &out, err);
        if (status == DDL_OK)
            status = send_all(tcp, &out, limit, err);
        if (status == DDL_OK)
            status = take_answers(tcp, many, ranks, count, limit, &all, err);
        ddl_bytes_fini(&out);
    }
    if (status == DDL_OK && !all)
        status = DDL_FAIL(err, DDL_ETIMEDOUT, "not all keys of the kind %s were set in the store at %s",
                          many->kind, tcp->where);
    return status;
}

/* Rank 0 is where they are. */
static ddl_status tcp_get_many(ddl_store *store, const ddl_store_many *many, ddl_deadline deadline,
                               ddl_error *err)
{
    struct store_tcp *tcp = as_tcp(store);
    if (tcp->server == NULL)
        return ddl_deadline_passed(deadline) ? look_for_many(tcp, many, err)
                                             : ddl_store_get_each(store, many, deadline, err);
    return ddl_store_server_get_many(tcp->server, store, many, deadline, err);
}

static ddl_status tcp_will(ddl_store *store, const ddl_error *will, ddl_deadline deadline, ddl_error *err)
{
    struct store_tcp *tcp = as_tcp(store);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    ddl_store_message request = { .kind = DDL_STORE_WILL }, reply;
    request.value = (ddl_view){ value, ddl_store_error_encode(will, value) };
    DDL_TRY(ask(tcp, &request, deadline, &reply, err));
    return reply.kind == DDL_STORE_DONE ? DDL_OK : unexpected(tcp, &reply, err);
}

static ddl_status tcp_fail(ddl_store *store, const ddl_error *cause, ddl_deadline deadline, ddl_error *first)
{
    struct store_tcp *tcp = as_tcp(store);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    ddl_store_message request = { .kind = DDL_STORE_FAIL }, reply;
    ddl_error ignored;
    request.value = (ddl_view){ value, ddl_store_error_encode(cause, value) };
    (void)ask(tcp, &request, tcp->is_silent ? 0 : deadline, &reply, &ignored);
    if (!tcp->failed)
        return DDL_ESTORE; /* rank 0 could not be told */
    *first = tcp->failure;
    return DDL_OK;
}

static ddl_status tcp_check(ddl_store *store, ddl_error *err)
{
    struct store_tcp *tcp = as_tcp(store);
    ddl_store_message message;
    bool found, any;
    if (tcp->failed)
        return failed(tcp, err);
    ddl_status status = take_in(tcp, &any, err);
    do {
        DDL_TRY(next_message(tcp, &message, &found, err));
    } while (found);
    return status;
}

const struct ddl_store_ops ddl_store_tcp = {
    .scheme = "tcp",
    .form = "host:port",
    .open = tcp_open,
    .set_new = tcp_set_new,
    .get = tcp_get,
    .get_many = tcp_get_many,
    .will = tcp_will,
    .fail = tcp_fail,
    .check = tcp_check,
    .destroy = tcp_destroy,
};
