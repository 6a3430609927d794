/* store_redis_link.c - the patience of a link to Redis: what is tried again, for how long. */
#include "rendezvous/store_redis_link_parts.h"

#include "base/assert.h"
#include "io/socket.h"
#include "rendezvous/store_redis_remedy.h"

#include <stdio.h>
#include <string.h>

enum {
    COMMAND_LIMIT_MS = 5000, /* for the reply to a request, connecting again and waiting included */
    LAST_WORD_MS = 900,      /* what requests get when the time of the caller is over */
    FIRST_PAUSE_MS = 10,
    LAST_PAUSE_MS = 250
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

static void pause_ms(int64_t *ms, ddl_deadline deadline)
{
    (void)ddl_socket_wait(-1, 0, ddl_deadline_earlier(ddl_deadline_in_ms(*ms), deadline));
    *ms = *ms * 3 / 2 + 1 < LAST_PAUSE_MS ? *ms * 3 / 2 + 1 : LAST_PAUSE_MS;
}

/* ---- requests ---- */

void ddl_redis_link_release(ddl_redis_reply *replies[], int count)
{
    for (int i = 0; i < count; i++) {
        ddl_redis_reply_destroy(replies[i]);
        replies[i] = NULL;
    }
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

/* A server that loads its data, or runs a script, refuses everything until it has. To MULTI it says yes, and
 * refuses what follows; then EXEC does nothing. */
static const ddl_redis_reply *find_not_yet(ddl_redis_reply *const replies[], int count)
{
    for (int i = 0; i < count; i++)
        if (ddl_redis_is_not_yet(replies[i]))
            return replies[i];
    return NULL;
}

static ddl_status try_request(ddl_redis_link *link, const ddl_redis_request *request, ddl_deadline limit,
                              ddl_redis_reply *replies[], ddl_error *why)
{
    if (link->connections[DDL_REDIS_COMMANDS].stream == NULL) {
        if (request->once)
            return DDL_FAIL(why, DDL_ENETWORK, "the connection broke");
        DDL_TRY(ddl_redis_link_up(link, DDL_REDIS_COMMANDS, limit, why));
    }
    ddl_status status =
        ddl_redis_link_talk(link, &link->connections[DDL_REDIS_COMMANDS], request, limit, replies, why);
    const ddl_redis_reply *not_yet = status == DDL_OK ? find_not_yet(replies, request->count) : NULL;
    if (not_yet != NULL) {
        char reason[DDL_REDIS_REASON_TEXT];
        ddl_redis_reason(not_yet, reason);
        ddl_redis_link_release(replies, request->count);
        status = DDL_FAIL(why, DDL_ENETWORK, "%s", reason);
    }
    if (status != DDL_OK)
        ddl_redis_link_drop(link, DDL_REDIS_COMMANDS);
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

ddl_status ddl_redis_link_refused(const ddl_redis_link *link, const ddl_redis_reply *reply, ddl_error *err)
{
    char reason[DDL_REDIS_REASON_TEXT];
    if (reply->kind != DDL_REDIS_ERROR)
        return DDL_FAIL(err, DDL_ESTORE, "Redis at %s: it has given a reply that does not fit the request",
                        link->where);
    ddl_redis_reason(reply, reason);
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

/* ---- presence ---- */

ddl_status ddl_redis_link_renew_presence(ddl_redis_link *link, ddl_deadline limit, ddl_error *err)
{
    ddl_redis_connection *connection = &link->connections[DDL_REDIS_PRESENCE];
    const int64_t start_ns = ddl_now_ns();
    ddl_error why = { .code = DDL_OK };
    ddl_status status = DDL_OK;
    uint8_t unwanted[DDL_REDIS_READ_BYTES];
    size_t count;
    if (connection->stream != NULL &&
        ddl_stream_read(connection->stream, unwanted, sizeof unwanted, ddl_now_ns(), &count, &why) != DDL_OK)
        ddl_redis_link_drop(link, DDL_REDIS_PRESENCE);
    if (connection->stream == NULL && !ddl_deadline_passed(link->presence_pause)) /* not round and round */
        (void)ddl_socket_wait(-1, 0, ddl_deadline_earlier(link->presence_pause, limit));
    int64_t pause = FIRST_PAUSE_MS;
    while (connection->stream == NULL) {
        const ddl_error before = why;
        const bool is_cut_short = ddl_deadline_left_ms(limit) < DDL_REDIS_CONNECT_LEAST_MS;
        status = ddl_redis_link_up(link, DDL_REDIS_PRESENCE, limit, &why);
        if (status == DDL_OK)
            break;
        if (status == DDL_ETIMEDOUT && is_cut_short && before.code != DDL_OK) { /* which says more */
            why = before;
            status = why.code;
        }
        if (!may_pass(status) || ddl_deadline_passed(limit)) {
            status = explain(link, &why, start_ns, &link->why);
            link->is_broken = status == DDL_ESTORE;
            return ddl_redis_link_say_why(link, err);
        }
        pause_ms(&pause, limit);
    }
    return DDL_OK;
}

ddl_status ddl_redis_link_keep_presence(ddl_redis_link *link, ddl_error *err)
{
    if (link->is_broken) /* what could not be reached is not called for as long again */
        return ddl_redis_link_say_why(link, err);
    ddl_deadline limit = ddl_deadline_earlier(ddl_deadline_in_ms(COMMAND_LIMIT_MS),
                                              later(link->start_limit, ddl_deadline_in_ms(LAST_WORD_MS)));
    return ddl_redis_link_renew_presence(link, ddl_deadline_earlier(limit, link->end), err);
}

/* ---- posts ---- */

bool ddl_redis_link_is_idle(const ddl_redis_link *link)
{
    return link->connections[DDL_REDIS_COMMANDS].stream != NULL &&
           link->connections[DDL_REDIS_COMMANDS].owed == 0;
}

/* A connection that breaks here is left to the next request: that one has the time to connect again. */
void ddl_redis_link_post(ddl_redis_link *link, ddl_redis_request *request)
{
    ddl_redis_connection *connection = &link->connections[DDL_REDIS_COMMANDS];
    ddl_error unwanted;
    DDL_ASSERT(request->count == 1);
    DDL_ASSERT(ddl_redis_link_is_idle(link));
    ddl_redis_reader_begin(connection->reader);
    if (!request->incomplete && ddl_stream_write(connection->stream, request->bytes.data,
                                                 request->bytes.bytes, ddl_now_ns(), &unwanted) == DDL_OK)
        connection->owed = 1;
    else
        ddl_redis_link_drop(link, DDL_REDIS_COMMANDS);
    ddl_bytes_fini(&request->bytes);
}

ddl_redis_reply *ddl_redis_link_collect(ddl_redis_link *link)
{
    ddl_redis_connection *connection = &link->connections[DDL_REDIS_COMMANDS];
    ddl_redis_reply *reply = NULL;
    ddl_error unwanted;
    if (connection->stream == NULL || connection->owed == 0)
        return NULL;
    if (ddl_redis_link_next(link, connection, ddl_now_ns(), &reply, &unwanted) != DDL_OK)
        ddl_redis_link_drop(link, DDL_REDIS_COMMANDS);
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
    DDL_TRY(ddl_redis_access_read(&link->url, link->start_limit, &link->access, err));
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
    held[DDL_REDIS_COMMANDS] = held[DDL_REDIS_PRESENCE] = -1;
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
    ddl_redis_link_drop(link, DDL_REDIS_COMMANDS);
    ddl_redis_link_drop(link, DDL_REDIS_PRESENCE);
    ddl_redis_access_destroy(link->access);
    ddl_free(link);
}

void ddl_redis_link_rest(ddl_redis_link *link)
{
    ddl_redis_link_drop(link, DDL_REDIS_COMMANDS);
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
    ddl_stream_local(link->connections[DDL_REDIS_PRESENCE].stream, &local);
    ddl_address_host(&local, text);
    snprintf(address, address_bytes, "%s", text);
}
