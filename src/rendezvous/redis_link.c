/* redis_link.c - sockets, TLS, passwords, limits and trying again. */
#include "rendezvous/redis_link.h"

#include "base/assert.h"
#include "io/resolve.h"
#include "io/socket.h"
#include "io/stream.h"
#include "protocol/hello.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    COMMAND_LIMIT_MS = 5000, /* for the reply to a request, connecting again and waiting included */
    LAST_WORD_MS = 900,      /* what requests get when the time of the caller is over */
    CONNECT_LEAST_MS = 1000, /* for one of several addresses */
    FIRST_PAUSE_MS = 10,
    LAST_PAUSE_MS = 250,
    PRESENCE_LEAST_MS = 100, /* between two times that we make it */
    UNSTEADY_MS = 1000,      /* after connecting again; all ranks have by then, unless the server is slow */
    READ_BYTES = 16 << 10,
    SAID_TEXT = 160,   /* of what Redis says */
    REASON_TEXT = 360, /* and what to do about it */
    LOGIN_BYTES = DDL_REDIS_WORD_TEXT + DDL_REDIS_PASSWORD_BYTES + 128,
    CHANNEL_TEXT = 128
};

struct connection {
    ddl_stream *stream; /* NULL: not connected */
    ddl_redis_reader *reader;
    int owed; /* replies to requests that nobody waits for any more */
};

enum { COMMANDS, PRESENCE };

struct ddl_redis_link {
    ddl_redis_url url;
    char channel[CHANNEL_TEXT];
    char where[300]; /* "redis://host:port/db" */
    ddl_address addresses[DDL_RESOLVE_MAX];
    int address_count;
    ddl_tls_party *tls; /* NULL: plain */
    struct connection connections[2];
    int *held;                /* the owner's; what a forked child has to close */
    ddl_deadline start_limit; /* of the start-up; a request gets its full time before it */
    ddl_deadline end;         /* of everything */
    ddl_deadline unsteady_until, presence_pause;
    int generation;    /* how often we have connected for requests */
    bool is_met;       /* something at one of the addresses has taken a connection */
    bool has_answered; /* in words of Redis */
    bool is_broken;    /* Redis could not be reached; why tells */
    ddl_error why;
};

static ddl_deadline later(ddl_deadline a, ddl_deadline b)
{
    return a > b ? a : b;
}

static void set_limit(ddl_redis_link *link, ddl_deadline limit)
{
    link->start_limit = limit;
    link->end = limit + ddl_deadline_earlier(LAST_WORD_MS * DDL_NS_PER_MS, DDL_DEADLINE_NEVER - limit);
}

/* ---- requests and replies ---- */

static ddl_view word(const char *text)
{
    return (ddl_view){ text, strlen(text) };
}

void ddl_redis_request_add(ddl_redis_request *request, const ddl_view words[], size_t count)
{
    request->incomplete = !ddl_redis_command(&request->bytes, words, count) || request->incomplete;
    request->count++;
}

#define ADD(request, ...)                                             \
    ddl_redis_request_add(request, (const ddl_view[]){ __VA_ARGS__ }, \
                          sizeof((const ddl_view[]){ __VA_ARGS__ }) / sizeof(ddl_view))

void ddl_redis_link_release(ddl_redis_reply *replies[], int count)
{
    for (int i = 0; i < count; i++) {
        ddl_redis_reply_destroy(replies[i]);
        replies[i] = NULL;
    }
}

static bool is_error(const ddl_redis_reply *reply, const char *begins)
{
    return reply->kind == DDL_REDIS_ERROR && strncmp(reply->text, begins, strlen(begins)) == 0;
}

/* What to do about an error that Redis gives; NULL: unknown. */
static const char *remedy_of(const ddl_redis_reply *reply)
{
    static const struct {
        const char *begins, *remedy;
    } known[] = {
        { "NOAUTH", "it wants a password: name a file with it, as in redis://:/home/me/password@host:6379" },
        { "NOPERM", "a user needs ~PREFIX:* &PREFIX:* +select +multi +exec +watch +xadd +xread +expire +sadd "
                    "+spop +del "
                    "+subscribe +pubsub|numsub, for the ?prefix= of DDL_STORE or ddl" },
        { "READONLY", "it is a replica: name its master in DDL_STORE" },
        { "MASTERDOWN", "it is a replica: name its master in DDL_STORE" },
        { "NOREPLICAS", "it takes nothing without its replicas: see its min-replicas-to-write" },
        { "OOM", "its memory is full: raise its maxmemory, or use another server" },
        { "MISCONF", "it cannot save to its disk, and takes nothing until it can: see its log" },
        { "MOVED", "it is a node of a cluster, which does not do: name a server by itself" },
        { "ASK ", "it is a node of a cluster, which does not do: name a server by itself" },
        { "CROSSSLOT", "it is a node of a cluster, which does not do: name a server by itself" },
        { "CLUSTERDOWN", "it is a node of a cluster, which does not do: name a server by itself" },
        { "LOADING", "wait until it has" },
        { "DENIED", "it lets only its own host in: set its bind and requirepass" },
        { "ERR max number of clients", "raise its maxclients: each rank needs two" },
        { "ERR DB index", "it has fewer databases than the /N of DDL_STORE says" },
        { "WRONGTYPE",
          "something else has written keys that begin with the prefix of ddl: remove them, or choose another "
          "by ?prefix= behind DDL_STORE" },
        { "ERR unknown command", "it has to be Redis 5 or newer, no sentinel, with no command renamed" },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (is_error(reply, known[i].begins))
            return known[i].remedy;
    return NULL;
}

/* What Redis says, made fit to be shown, and what to do about it. */
static void reason_of(const ddl_redis_reply *reply, char reason[REASON_TEXT])
{
    const char *remedy = remedy_of(reply);
    snprintf(reason, SAID_TEXT, "%s", reply->text);
    ddl_hello_clean(reason);
    const size_t used = strlen(reason);
    if (remedy != NULL)
        snprintf(reason + used, REASON_TEXT - used, "; %s", remedy);
}

/* ---- the connections ---- */

static void drop(ddl_redis_link *link, int which)
{
    struct connection *connection = &link->connections[which];
    link->held[which] = -1;
    ddl_stream_close(connection->stream);
    ddl_redis_reader_destroy(connection->reader);
    *connection = (struct connection){ .stream = NULL };
}

static ddl_status keep_presence(ddl_redis_link *link, ddl_deadline limit, ddl_error *err);

static ddl_status say_why(const ddl_redis_link *link, ddl_error *err)
{
    if (err != NULL)
        *err = link->why;
    return link->why.code;
}

/*
 * Wait for bytes on a connection. While that lasts, a presence that breaks is made anew at once: others would
 * take us for dead. A failure of that shows here by the same deadline.
 */
static void wait_for_bytes(ddl_redis_link *link, const struct connection *connection, ddl_deadline deadline)
{
    struct pollfd items[2] = { { .fd = link->held[COMMANDS], .events = POLLIN },
                               { .fd = link->held[PRESENCE], .events = POLLIN } };
    ddl_error unwanted;
    if (connection != &link->connections[COMMANDS] || items[0].fd < 0 || items[1].fd < 0)
        (void)ddl_socket_wait(ddl_stream_descriptor(connection->stream), POLLIN, deadline);
    else if (poll(items, 2, ddl_deadline_left_ms(deadline)) > 0 && items[0].revents == 0)
        (void)!keep_presence(link, deadline, &unwanted);
}

/* Read until there is a reply; NULL if none came by the deadline, whatever else keeps coming. */
static ddl_status next_reply(ddl_redis_link *link, struct connection *connection, ddl_deadline deadline,
                             ddl_redis_reply **reply, ddl_error *err)
{
    for (;;) {
        uint8_t data[READ_BYTES];
        size_t count;
        bool late = ddl_deadline_passed(deadline);
        DDL_TRY(ddl_redis_reader_next(connection->reader, reply, err));
        if (*reply != NULL)
            return DDL_OK;
        DDL_TRY(ddl_stream_read(connection->stream, data, sizeof data, ddl_now_ns(), &count, err));
        if (count > 0)
            DDL_TRY(ddl_redis_reader_feed(connection->reader, data, count, err));
        if (late)
            return ddl_redis_reader_next(connection->reader, reply, err);
        if (count == 0)
            wait_for_bytes(link, connection, deadline);
        if (link->is_broken) /* as the presence could not be made anew */
            return say_why(link, err);
    }
}

/* Send a request and take its replies. Those of earlier ones that nobody waited for come first. */
static ddl_status talk(ddl_redis_link *link, struct connection *connection, const ddl_redis_request *request,
                       ddl_deadline deadline, ddl_redis_reply *replies[], ddl_error *err)
{
    ddl_status status =
        ddl_stream_write(connection->stream, request->bytes.data, request->bytes.bytes, deadline, err);
    int got = 0;
    if (connection->owed == 0)
        ddl_redis_reader_begin(connection->reader);
    while (status == DDL_OK && got < request->count) {
        ddl_redis_reply *reply = NULL;
        status = next_reply(link, connection, deadline, &reply, err);
        if (status == DDL_OK && reply == NULL)
            status = DDL_FAIL(err, DDL_ETIMEDOUT, "it does not answer");
        else if (status == DDL_OK && connection->owed > 0)
            connection->owed--, ddl_redis_reply_destroy(reply);
        else if (status == DDL_OK)
            replies[got++] = reply;
    }
    link->has_answered = link->has_answered || got > 0;
    if (status != DDL_OK)
        ddl_redis_link_release(replies, got);
    return status;
}

/* Our words only: an old Redis repeats what it does not understand, the password included. */
static ddl_status judge_login(const ddl_redis_link *link, const ddl_redis_reply *reply, ddl_error *err)
{
    if (reply->kind != DDL_REDIS_ERROR)
        return DDL_OK;
    const char *who = link->url.user[0] != '\0' ? link->url.user : "default";
    const char *remedy = remedy_of(reply);
    if (is_error(reply, "WRONGPASS") || is_error(reply, "ERR invalid password"))
        return DDL_FAIL(err, DDL_EAUTH,
                        "wrong password, or no user %s; see the first line of %s, and the user in DDL_STORE",
                        who, link->url.password_file);
    if (is_error(reply, "ERR Client sent AUTH, but no password is set") ||
        is_error(reply, "ERR AUTH <password> called without any password"))
        return DDL_FAIL(err, DDL_ECONFIG, "it has no password, but DDL_STORE names one: leave %s out of it",
                        link->url.password_file);
    if (remedy != NULL) /* it refuses everybody */
        return DDL_FAIL(err, DDL_ESTORE, "it does not log in user %s; %s", who, remedy);
    return DDL_FAIL(err, DDL_EAUTH, "it refuses to log in user %s", who);
}

static ddl_status log_in(ddl_redis_link *link, struct connection *connection, ddl_deadline deadline,
                         ddl_error *err)
{
    char password[DDL_REDIS_PASSWORD_BYTES] = "";
    ddl_redis_reply *reply = NULL;
    ddl_redis_request request = { .count = 0 };
    if (link->url.password_file[0] != '\0')
        DDL_TRY(ddl_redis_password_read(link->url.password_file, password, err));
    /* Large enough at once: memory that is moved as it grows would leave the password where it was. */
    request.bytes.data = ddl_alloc(LOGIN_BYTES);
    request.bytes.capacity = request.bytes.data != NULL ? LOGIN_BYTES : 0;
    if (link->url.user[0] != '\0')
        ADD(&request, word("AUTH"), word(link->url.user), word(password));
    else if (link->url.password_file[0] != '\0')
        ADD(&request, word("AUTH"), word(password));
    ddl_clear(password, sizeof password);
    ddl_status status = request.incomplete ? DDL_FAIL(err, DDL_ENOMEM, "no memory to log in") : DDL_OK;
    if (status == DDL_OK && request.count > 0)
        status = talk(link, connection, &request, deadline, &reply, err);
    if (status == DDL_OK && request.count > 0)
        status = judge_login(link, reply, err);
    ddl_clear(request.bytes.data, request.bytes.bytes);
    ddl_bytes_fini(&request.bytes);
    ddl_redis_reply_destroy(reply);
    return status;
}

/* A command with one argument that a connection begins with. By itself: who refuses a connection does so
 * once, and hangs up. */
static ddl_status begin_with(ddl_redis_link *link, struct connection *connection, const char *command,
                             const char *argument, ddl_deadline deadline, ddl_error *err)
{
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    ADD(&request, word(command), word(argument));
    ddl_status status = request.incomplete ? DDL_FAIL(err, DDL_ENOMEM, "no memory for a request") : DDL_OK;
    if (status == DDL_OK)
        status = talk(link, connection, &request, deadline, &reply, err);
    if (status == DDL_OK && reply->kind == DDL_REDIS_ERROR) {
        char reason[REASON_TEXT];
        reason_of(reply, reason);
        status =
            DDL_FAIL(err, is_error(reply, "LOADING") ? DDL_ENETWORK : DDL_ESTORE, "%s: %s", command, reason);
    }
    ddl_redis_reply_destroy(reply);
    ddl_bytes_fini(&request.bytes);
    return status;
}

static ddl_status enter(ddl_redis_link *link, int which, const ddl_address *address,
                        ddl_deadline connected_by, ddl_deadline deadline, ddl_error *err)
{
    struct connection *connection = &link->connections[which];
    DDL_TRY(ddl_stream_open(address, link->tls, link->url.host, connected_by, &connection->stream, err));
    link->is_met = true;
    DDL_TRY(ddl_redis_reader_create(&connection->reader, err));
    DDL_TRY(log_in(link, connection, deadline, err));
    if (link->url.db != 0) {
        char db[16];
        snprintf(db, sizeof db, "%d", link->url.db);
        DDL_TRY(begin_with(link, connection, "SELECT", db, deadline, err));
    }
    /* Say on the second connection that we are here, for as long as it stands. */
    return which == PRESENCE ? begin_with(link, connection, "SUBSCRIBE", link->channel, deadline, err)
                             : DDL_OK;
}

/* One try of all addresses. What the first of them said counts for more than that the last refused. */
static ddl_status link_up(ddl_redis_link *link, int which, ddl_deadline deadline, ddl_error *err)
{
    ddl_status status = DDL_ENETWORK;
    ddl_error why = { .code = DDL_OK };
    for (int i = 0; i < link->address_count && status == DDL_ENETWORK; i++) {
        ddl_deadline least = ddl_deadline_in_ms(CONNECT_LEAST_MS);
        bool is_last = i + 1 == link->address_count;
        status = enter(link, which, &link->addresses[i],
                       is_last ? deadline : ddl_deadline_earlier(least, deadline), deadline, err);
        if (status != DDL_OK)
            drop(link, which);
        if (status == DDL_ENETWORK && why.code == DDL_OK && err->os_errno != ECONNREFUSED)
            why = *err;
    }
    if (status == DDL_ENETWORK && why.code != DDL_OK)
        *err = why;
    if (status != DDL_OK)
        return status;
    if (which == PRESENCE ? link->presence_pause > 0 : link->generation > 0)
        link->unsteady_until = ddl_deadline_in_ms(UNSTEADY_MS);
    if (which == PRESENCE)
        link->presence_pause = ddl_deadline_in_ms(PRESENCE_LEAST_MS);
    link->generation += which == COMMANDS;
    link->held[which] = ddl_stream_descriptor(link->connections[which].stream);
    return DDL_OK;
}

static void pause_ms(int64_t *ms, ddl_deadline deadline)
{
    (void)ddl_socket_wait(-1, 0, ddl_deadline_earlier(ddl_deadline_in_ms(*ms), deadline));
    *ms = *ms * 3 / 2 + 1 < LAST_PAUSE_MS ? *ms * 3 / 2 + 1 : LAST_PAUSE_MS;
}

/* What hangs up or is silent may wait for TLS, or know nothing of it. */
static const char *scheme_hint(const ddl_redis_link *link, const ddl_error *why)
{
    static const char tls[] = "TLS with ";
    if (link->has_answered || why->code == DDL_EAUTH || why->code == DDL_ECONFIG)
        return "";
    if (link->url.is_tls)
        return strncmp(why->text, tls, sizeof tls - 1) == 0 ? "; if that port is without TLS, say redis://"
                                                            : "";
    return link->is_met && why->code != DDL_EPROTO ? "; if it wants TLS on that port, say rediss://" : "";
}

/* What came of talking to Redis, as the store's error. What is not Redis's fault keeps its code. */
static ddl_status explain(const ddl_redis_link *link, const ddl_error *why, int64_t start_ns, ddl_error *err)
{
    double waited_s = (double)(ddl_now_ns() - start_ns) / 1e9;
    bool is_network = why->code == DDL_ENETWORK || why->code == DDL_ETIMEDOUT;
    ddl_status code = is_network || why->code == DDL_EPROTO ? DDL_ESTORE : why->code;
    if (is_network)
        (void)DDL_FAIL(err, code, "Redis at %s: %s, for %.1f s%s", link->where, why->text, waited_s,
                       scheme_hint(link, why));
    else
        (void)DDL_FAIL(err, code, "Redis at %s: %s%s", link->where, why->text, scheme_hint(link, why));
    if (err != NULL)
        err->os_errno = why->os_errno;
    return code;
}

static bool may_pass(ddl_status status)
{
    return status == DDL_ENETWORK;
}

static ddl_status try_request(ddl_redis_link *link, const ddl_redis_request *request, ddl_deadline limit,
                              ddl_redis_reply *replies[], ddl_error *why)
{
    if (link->connections[COMMANDS].stream == NULL) {
        if (request->once)
            return DDL_FAIL(why, DDL_ENETWORK, "the connection broke");
        DDL_TRY(link_up(link, COMMANDS, limit, why));
    }
    ddl_status status = talk(link, &link->connections[COMMANDS], request, limit, replies, why);
    if (status == DDL_OK && is_error(replies[0], "LOADING")) {
        ddl_redis_link_release(replies, request->count);
        status = DDL_FAIL(why, DDL_ENETWORK, "it is loading its data; wait until it has");
    }
    if (status != DDL_OK)
        drop(link, COMMANDS);
    return status;
}

/* What says at once that nothing has come by the end of the time is no server to be asked round and round. */
static void wait_in_its_place(int64_t start_ns, int64_t block_ms)
{
    if (ddl_now_ns() - start_ns < block_ms * DDL_NS_PER_MS / 2)
        (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(block_ms < LAST_PAUSE_MS ? block_ms : LAST_PAUSE_MS));
}

ddl_status ddl_redis_link_exchange(ddl_redis_link *link, ddl_redis_request *request, ddl_deadline deadline,
                                   ddl_redis_reply *replies[], ddl_error *err)
{
    const int64_t start_ns = ddl_now_ns();
    ddl_deadline least = ddl_deadline_in_ms(request->block_ms + LAST_WORD_MS);
    ddl_deadline limit = ddl_deadline_earlier(ddl_deadline_in_ms(COMMAND_LIMIT_MS),
                                              later(later(link->start_limit, deadline), least));
    ddl_status status = link->is_broken ? link->why.code : DDL_OK;
    ddl_error why = link->why;
    limit = ddl_deadline_earlier(limit, link->end);
    if (status == DDL_OK && request->incomplete)
        status = DDL_FAIL(&why, DDL_ENOMEM, "no memory for a request to Redis");
    if (status == DDL_OK) {
        int64_t pause = FIRST_PAUSE_MS;
        while (may_pass(status = try_request(link, request, limit, replies, &why)) && !request->once &&
               !ddl_deadline_passed(limit)) {
            request->repeated = true;
            pause_ms(&pause, limit);
        }
        if (link->is_broken) { /* the presence could not be made anew, and it has been told why */
            why = link->why;
            status = why.code;
        } else if (status != DDL_OK && !(request->once && may_pass(status))) {
            ddl_error said;
            status = explain(link, &why, start_ns, &said);
            link->is_broken = status == DDL_ESTORE;
            link->why = why = said;
        }
    }
    ddl_bytes_fini(&request->bytes);
    if (status == DDL_OK && request->block_ms > 0 && replies[0]->kind == DDL_REDIS_NIL)
        wait_in_its_place(start_ns, request->block_ms);
    if (status != DDL_OK && err != NULL)
        *err = why;
    return status;
}

/* What Redis says no to. */
ddl_status ddl_redis_link_refused(const ddl_redis_link *link, const ddl_redis_reply *reply, ddl_error *err)
{
    char reason[REASON_TEXT];
    if (reply->kind != DDL_REDIS_ERROR)
        return DDL_FAIL(err, DDL_ESTORE, "Redis at %s: it has given a reply that does not fit the request",
                        link->where);
    reason_of(reply, reason);
    return DDL_FAIL(err, DDL_ESTORE, "Redis at %s says: %s", link->where, reason);
}

ddl_status ddl_redis_link_check(const ddl_redis_link *link, ddl_redis_reply *const replies[], int count,
                                ddl_error *err)
{
    for (int i = 0; i < count; i++)
        if (replies[i]->kind == DDL_REDIS_ERROR)
            return ddl_redis_link_refused(link, replies[i], err);
    return DDL_OK;
}

/* The connection that shows that we are here may have broken without anybody having read from it. */
static ddl_status keep_presence(ddl_redis_link *link, ddl_deadline limit, ddl_error *err)
{
    struct connection *connection = &link->connections[PRESENCE];
    const int64_t start_ns = ddl_now_ns();
    ddl_error why = { .code = DDL_OK };
    ddl_status status = DDL_OK;
    uint8_t unwanted[READ_BYTES];
    size_t count;
    if (connection->stream != NULL &&
        ddl_stream_read(connection->stream, unwanted, sizeof unwanted, ddl_now_ns(), &count, &why) != DDL_OK)
        drop(link, PRESENCE);
    if (connection->stream == NULL && !ddl_deadline_passed(link->presence_pause)) /* not round and round */
        (void)ddl_socket_wait(-1, 0, ddl_deadline_earlier(link->presence_pause, limit));
    int64_t pause = FIRST_PAUSE_MS;
    while (connection->stream == NULL) {
        const ddl_error before = why;
        const bool is_cut_short = ddl_deadline_left_ms(limit) < CONNECT_LEAST_MS;
        status = link_up(link, PRESENCE, limit, &why);
        if (status == DDL_OK)
            break;
        if (status == DDL_ETIMEDOUT && is_cut_short && before.code != DDL_OK) { /* which says more */
            why = before;
            status = why.code;
        }
        if (!may_pass(status) || ddl_deadline_passed(limit)) {
            status = explain(link, &why, start_ns, &link->why);
            link->is_broken = status == DDL_ESTORE;
            return say_why(link, err);
        }
        pause_ms(&pause, limit);
    }
    return DDL_OK;
}

ddl_status ddl_redis_link_keep_presence(ddl_redis_link *link, ddl_error *err)
{
    if (link->is_broken) /* what could not be reached is not called for as long again */
        return say_why(link, err);
    ddl_deadline limit = ddl_deadline_earlier(ddl_deadline_in_ms(COMMAND_LIMIT_MS),
                                              later(link->start_limit, ddl_deadline_in_ms(LAST_WORD_MS)));
    return keep_presence(link, ddl_deadline_earlier(limit, link->end), err);
}

/* ---- posts ---- */

bool ddl_redis_link_is_idle(const ddl_redis_link *link)
{
    return link->connections[COMMANDS].stream != NULL && link->connections[COMMANDS].owed == 0;
}

/* A connection that breaks here is left to the next request: that one has the time to connect again. */
void ddl_redis_link_post(ddl_redis_link *link, ddl_redis_request *request)
{
    struct connection *connection = &link->connections[COMMANDS];
    ddl_error unwanted;
    DDL_ASSERT(request->count == 1);
    DDL_ASSERT(ddl_redis_link_is_idle(link));
    ddl_redis_reader_begin(connection->reader);
    if (!request->incomplete && ddl_stream_write(connection->stream, request->bytes.data,
                                                 request->bytes.bytes, ddl_now_ns(), &unwanted) == DDL_OK)
        connection->owed = 1;
    else
        drop(link, COMMANDS);
    ddl_bytes_fini(&request->bytes);
}

ddl_redis_reply *ddl_redis_link_collect(ddl_redis_link *link)
{
    struct connection *connection = &link->connections[COMMANDS];
    ddl_redis_reply *reply = NULL;
    ddl_error unwanted;
    if (connection->stream == NULL || connection->owed == 0)
        return NULL;
    if (next_reply(link, connection, ddl_now_ns(), &reply, &unwanted) != DDL_OK)
        drop(link, COMMANDS);
    else if (reply != NULL)
        connection->owed--;
    return reply;
}

/* ---- the whole ---- */

static void name_server(ddl_redis_link *link)
{
    const ddl_redis_url *url = &link->url;
    bool is_v6 = strchr(url->host, ':') != NULL;
    snprintf(link->where, sizeof link->where, "%s://%s%s%s:%u/%d", url->is_tls ? "rediss" : "redis",
             is_v6 ? "[" : "", url->host, is_v6 ? "]" : "", url->port, url->db);
}

static ddl_status set_up_tls(ddl_redis_link *link, ddl_error *err)
{
    const ddl_redis_url *url = &link->url;
    const ddl_tls_options options = { .ca_file = url->ca_file[0] != '\0' ? url->ca_file : NULL,
                                      .cert_file = url->cert_file[0] != '\0' ? url->cert_file : NULL,
                                      .key_file = url->key_file[0] != '\0' ? url->key_file : NULL };
    return url->is_tls ? ddl_tls_party_create(&options, &link->tls, err) : DDL_OK;
}

/* Where a job is encrypted, so is what it stores on its way through a network. */
static ddl_status refuse_to_be_read(const ddl_redis_link *link, ddl_error *err)
{
    bool stays_here = true;
    for (int i = 0; i < link->address_count; i++)
        stays_here = stays_here && ddl_address_is_loopback(&link->addresses[i]);
    if (!link->url.must_be_private || link->url.is_tls || stays_here)
        return DDL_OK;
    return DDL_FAIL(err, DDL_ECONFIG,
                    "DDL_SECURITY=tls, but what ranks store in Redis at %s could be read on its way; say "
                    "rediss:// and a port where Redis speaks TLS, or take the tcp store, which is encrypted",
                    link->where);
}

static ddl_status set_up(ddl_redis_link *link, ddl_error *err)
{
    DDL_TRY(set_up_tls(link, err));
    DDL_TRY(ddl_resolve_soon(link->url.host, link->url.port, link->start_limit, link->addresses,
                             &link->address_count, err));
    DDL_TRY(refuse_to_be_read(link, err));
    return ddl_redis_link_keep_presence(link, err);
}

ddl_status ddl_redis_link_create(const ddl_redis_url *url, const char *channel, int held[2],
                                 ddl_deadline start_limit, ddl_redis_link **out, ddl_error *err)
{
    ddl_redis_link *link = ddl_alloc(sizeof *link);
    if (link == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a connection to Redis");
    DDL_ASSERT(strlen(channel) < sizeof link->channel);
    link->url = *url;
    link->held = held;
    set_limit(link, start_limit);
    snprintf(link->channel, sizeof link->channel, "%s", channel);
    held[COMMANDS] = held[PRESENCE] = -1;
    name_server(link);
    ddl_status status = set_up(link, err);
    if (status != DDL_OK) {
        ddl_redis_link_destroy(link);
        return status;
    }
    *out = link;
    return DDL_OK;
}

void ddl_redis_link_destroy(ddl_redis_link *link)
{
    if (link == NULL)
        return;
    drop(link, COMMANDS);
    drop(link, PRESENCE);
    ddl_tls_party_destroy(link->tls);
    ddl_free(link);
}

void ddl_redis_link_rest(ddl_redis_link *link)
{
    drop(link, COMMANDS);
}

void ddl_redis_link_hurry(ddl_redis_link *link, ddl_deadline limit)
{
    set_limit(link, ddl_deadline_earlier(link->start_limit, limit));
}

void ddl_redis_link_started(ddl_redis_link *link)
{
    set_limit(link, DDL_DEADLINE_NEVER);
}

bool ddl_redis_link_is_unsteady(const ddl_redis_link *link)
{
    return !ddl_deadline_passed(link->unsteady_until);
}

int ddl_redis_link_generation(const ddl_redis_link *link)
{
    return link->generation;
}

const char *ddl_redis_link_where(const ddl_redis_link *link)
{
    return link->where;
}

void ddl_redis_link_address(const ddl_redis_link *link, char address[], size_t address_bytes)
{
    ddl_address local;
    char text[DDL_ADDRESS_HOST_TEXT];
    ddl_stream_local(link->connections[PRESENCE].stream, &local);
    ddl_address_host(&local, text);
    snprintf(address, address_bytes, "%s", text);
}
