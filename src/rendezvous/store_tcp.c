/*
 * store_tcp.c - a store served by rank 0 at tcp://host:port.
 *
 * Rank 0 binds exactly that address and is a client of its own server. The others connect again and again
 * until it is there, and stay connected: so the server knows who is still present.
 */
#include "rendezvous/store_tcp_run.h"

#include "base/assert.h"
#include "base/list.h"
#include "io/socket.h"
#include "rendezvous/network_master.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum {
    ASK_LIMIT_MS = 900, /* for an answer that the server gives at once */
    READ_BYTES = 16 << 10
};

static ddl_tcp_run *as_tcp(ddl_store *store)
{
    DDL_ASSERT(store->ops == &ddl_store_tcp);
    return DDL_CONTAINER(store, ddl_tcp_run, base);
}

/* ---- opening ---- */

static void tcp_destroy(ddl_store *store, ddl_deadline deadline)
{
    ddl_tcp_run *tcp = as_tcp(store);
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
    const bool is_rank_0 = options->self->rank == 0;
    DDL_TRY(
        is_rank_0
            ? ddl_master_addresses_to_listen(options->network, host, port, deadline, addresses, &count, err)
            : ddl_master_addresses_to_call(options->network, host, port, deadline, addresses, &count, err));
    ddl_tcp_run *tcp = ddl_alloc(sizeof *tcp);
    if (tcp == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a store");
    tcp->base.ops = &ddl_store_tcp;
    tcp->base.held[0] = tcp->base.held[1] = -1;
    tcp->wire = ddl_no_wire;
    tcp->end = deadline + ddl_deadline_earlier(ASK_LIMIT_MS * DDL_NS_PER_MS, DDL_DEADLINE_NEVER - deadline);
    tcp->inbox.value_limit = DDL_STORE_ROSTER_LIMIT + DDL_STORE_SEAL_ROOM;
    if (is_rank_0) {
        if ((status = ddl_tcp_run_serve(tcp, options, addresses, count, host, deadline, &bound, err)) !=
            DDL_OK)
            goto fail;
        if ((status = ddl_tcp_run_enter(tcp, options, host, &bound, 1, rest, deadline, err)) != DDL_OK)
            goto fail;
    } else if ((status = ddl_tcp_run_enter(tcp, options, host, addresses, count, rest, deadline, err)) !=
               DDL_OK) {
        goto fail;
    }
    *out = &tcp->base;
    return DDL_OK;
fail:
    tcp_destroy(&tcp->base, ddl_now_ns());
    return status;
}

/* ---- requests ---- */

static ddl_status lost(ddl_tcp_run *tcp, ddl_error *err)
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
static ddl_status broke(ddl_tcp_run *tcp, ddl_error *err)
{
    if (errno != EBADMSG)
        return lost(tcp, err);
    (void)DDL_FAIL(err, DDL_EPROTO, "rank 0, at the meeting place %s: TLS failed: %s", tcp->where,
                   ddl_wire_problem(&tcp->wire));
    ddl_error_blame(err, 0);
    return DDL_EPROTO;
}

static ddl_status failed(const ddl_tcp_run *tcp, ddl_error *err)
{
    if (err != NULL)
        *err = tcp->failure;
    return tcp->failure.code;
}

static ddl_status late(ddl_tcp_run *tcp, ddl_error *err)
{
    (void)DDL_FAIL(err, DDL_ETIMEDOUT, "rank 0 does not answer at %s", tcp->where);
    ddl_error_blame(err, 0);
    return DDL_ETIMEDOUT;
}

/* Read what is there; *any: something was. DDL_EPEERLOST at the end of the stream. */
static ddl_status take_in(ddl_tcp_run *tcp, bool *any, ddl_error *err)
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
static ddl_status next_message(ddl_tcp_run *tcp, ddl_store_message *message, bool *found, ddl_error *err)
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
static bool has_told_failure(ddl_tcp_run *tcp)
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

static ddl_status send_some(ddl_tcp_run *tcp, const ddl_bytes *out, size_t *sent, ddl_deadline deadline,
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

static ddl_status send_rest(ddl_tcp_run *tcp, ddl_deadline deadline, ddl_error *err)
{
    size_t sent = 0;
    if (tcp->rest.bytes == 0)
        return DDL_OK;
    ddl_status status = send_some(tcp, &tcp->rest, &sent, deadline, err);
    tcp->rest.bytes -= sent;
    memmove(tcp->rest.data, tcp->rest.data + sent, tcp->rest.bytes);
    return status;
}

static ddl_status send_bytes(ddl_tcp_run *tcp, const ddl_bytes *out, ddl_deadline deadline, ddl_error *err)
{
    size_t sent = 0;
    DDL_TRY(send_rest(tcp, deadline, err));
    ddl_status status = send_some(tcp, out, &sent, deadline, err);
    if (status == DDL_ETIMEDOUT && sent > 0 &&
        !ddl_bytes_append(&tcp->rest, out->data + sent, out->bytes - sent))
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a request to the store");
    return status;
}

static ddl_status send_all(ddl_tcp_run *tcp, const ddl_bytes *out, ddl_deadline deadline, ddl_error *err)
{
    ddl_status status = send_bytes(tcp, out, deadline, err);
    bool is_broken = status == DDL_EPEERLOST || status == DDL_EPROTO;
    if (!is_broken || !has_told_failure(tcp))
        return status;
    tcp->base.is_lost = false; /* the run has failed; that rank 0 has gone comes of it */
    return failed(tcp, err);
}

static ddl_status send_message(ddl_tcp_run *tcp, const ddl_store_message *message, ddl_deadline deadline,
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
static ddl_status await_reply(ddl_tcp_run *tcp, uint32_t id, ddl_deadline deadline, ddl_store_message *reply,
                              ddl_error *err)
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

static ddl_status unexpected(const ddl_tcp_run *tcp, const ddl_store_message *reply, ddl_error *err)
{
    return DDL_FAIL(err, DDL_EPROTO, "the store at %s gave a reply of kind %d that does not fit the request",
                    tcp->where, (int)reply->kind);
}

/* For what the server answers at once: until the deadline, and also when the caller's time is over, since a
 * question deserves its answer; but only one waits in vain, and none beyond the end. */
static ddl_deadline limit_of_asking(const ddl_tcp_run *tcp, ddl_deadline deadline)
{
    const ddl_deadline least = ddl_deadline_in_ms(tcp->is_silent ? 0 : ASK_LIMIT_MS);
    return ddl_deadline_earlier(deadline > least ? deadline : least, tcp->end);
}

static ddl_status ask(ddl_tcp_run *tcp, ddl_store_message *request, ddl_deadline deadline,
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
    ddl_tcp_run *tcp = as_tcp(store);
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

static ddl_status get_waiting(ddl_tcp_run *tcp, const char *key, ddl_deadline deadline,
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
    ddl_tcp_run *tcp = as_tcp(store);
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
static ddl_status ask_for_some(ddl_tcp_run *tcp, const ddl_store_many *many, int *rank,
                               int ranks[ASKED_AT_ONCE], int *count, ddl_bytes *out, ddl_error *err)
{
    *count = 0;
    for (; *rank < many->count && *count < ASKED_AT_ONCE; ++*rank) {
        char key[DDL_STORE_NAME_BYTES];
        if (many->present[*rank])
            continue;
        ddl_store_name(many->kind, *rank, key);
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
static ddl_status take_answers(ddl_tcp_run *tcp, const ddl_store_many *many, const int ranks[], int count,
                               ddl_deadline limit, bool *all, ddl_error *err)
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

static ddl_status not_all_were_set(const ddl_tcp_run *tcp, const ddl_store_many *many, ddl_error *err)
{
    return DDL_FAIL(err, DDL_ETIMEDOUT, "not all keys of the kind %s were set in the store at %s", many->kind,
                    tcp->where);
}

/* Once, in one question, as all ranks may ask at the same time. */
static ddl_status look_for_kind(ddl_tcp_run *tcp, const ddl_store_many *many, ddl_error *err)
{
    uint8_t count[DDL_STORE_COUNT_BYTES];
    ddl_store_message request = { .kind = DDL_STORE_LOOK,
                                  .key = key_view(many->kind),
                                  .value = { count, sizeof count } },
                      reply;
    bool all = true;
    ddl_put_u32(count, (uint32_t)many->count);
    DDL_TRY(ask(tcp, &request, 0, &reply, err));
    if (reply.kind != DDL_STORE_VALUE || reply.value.bytes != ((size_t)many->count + 7) / 8)
        return unexpected(tcp, &reply, err);
    const uint8_t *bits = reply.value.data;
    for (int rank = 0; rank < many->count; rank++) {
        many->present[rank] = many->present[rank] || (bits[rank / 8] >> (rank % 8) & 1) != 0;
        all = all && many->present[rank];
    }
    return all ? DDL_OK : not_all_were_set(tcp, many, err);
}

/* Once, for many keys at a time: the way to the server and back is what takes long. */
static ddl_status look_for_many(ddl_tcp_run *tcp, const ddl_store_many *many, ddl_error *err)
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
    return status == DDL_OK && !all ? not_all_were_set(tcp, many, err) : status;
}

/* Rank 0 is where they are. */
static ddl_status tcp_get_many(ddl_store *store, const ddl_store_many *many, ddl_deadline deadline,
                               ddl_error *err)
{
    ddl_tcp_run *tcp = as_tcp(store);
    if (tcp->server == NULL && !ddl_deadline_passed(deadline))
        return ddl_store_get_each(store, many, deadline, err);
    if (tcp->server == NULL)
        return many->values == NULL ? look_for_kind(tcp, many, err) : look_for_many(tcp, many, err);
    return ddl_store_server_get_many(tcp->server, store, many, deadline, err);
}

static ddl_status tcp_will(ddl_store *store, const ddl_error *will, ddl_deadline deadline, ddl_error *err)
{
    ddl_tcp_run *tcp = as_tcp(store);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    ddl_store_message request = { .kind = DDL_STORE_WILL }, reply;
    request.value = (ddl_view){ value, ddl_store_error_encode(will, value) };
    DDL_TRY(ask(tcp, &request, deadline, &reply, err));
    return reply.kind == DDL_STORE_DONE ? DDL_OK : unexpected(tcp, &reply, err);
}

static ddl_status tcp_fail(ddl_store *store, const ddl_error *cause, ddl_deadline deadline, ddl_error *first)
{
    ddl_tcp_run *tcp = as_tcp(store);
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
    ddl_tcp_run *tcp = as_tcp(store);
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
