/* store_server_clients.c - clients of the store's server, each until it is given up. */
#include "rendezvous/store_server_parts.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    /* A client that does not read its replies is not served above this: one roster, and one more value. */
    OUTBOX_LIMIT = DDL_STORE_ROSTER_LIMIT + DDL_STORE_VALUE_LIMIT + 2 * DDL_STORE_SEAL_ROOM,
    READ_BYTES = 16 << 10
};

static size_t unsent(const ddl_store_client *client)
{
    return client->outbox.bytes - client->sent;
}

bool ddl_store_client_has_room(const ddl_store_client *client)
{
    return unsent(client) < OUTBOX_LIMIT;
}

/* Whether the socket has all that was said. */
static bool is_silent(const ddl_store_client *client)
{
    return unsent(client) == 0 && !ddl_wire_has_unsent(&client->wire);
}

static void announce_outcome(ddl_store_server *server)
{
    bool all_know = true;
    if (!server->leaving)
        return;
    DDL_LIST_FOR_EACH (link, &server->clients) {
        ddl_store_client *client = DDL_CONTAINER(link, ddl_store_client, link);
        /* One that has heard of a failure leaves; only then is it sure to have it. */
        all_know = all_know && server->settled && client->knows_outcome && is_silent(client);
    }
    ddl_bell_lock(&server->bell);
    server->all_know = all_know;
    if (all_know)
        ddl_bell_ring(&server->bell);
    ddl_bell_unlock(&server->bell);
}

static void attend(ddl_store_client *client)
{
    int events = !is_silent(client) || client->behind ? DDL_WRITABLE : 0;
    if (ddl_store_client_has_room(client) && !client->behind)
        events |= DDL_READABLE;
    ddl_watch_set(client->watch, events);
}

void ddl_store_client_give_up(ddl_store_client *client)
{
    if (!client->closing)
        client->server->closing_count++;
    client->closing = true;
}

static void flush(ddl_store_client *client)
{
    while (client->sent < client->outbox.bytes && !client->closing) {
        ssize_t count = ddl_wire_write(&client->wire, client->outbox.data + client->sent,
                                       client->outbox.bytes - client->sent);
        if (count < 0) {
            if (errno != EAGAIN)
                ddl_store_client_give_up(client);
            return;
        }
        client->sent += (size_t)count;
    }
    ddl_bytes_fini(&client->outbox); /* a roster for each of many ranks is much, and few ask twice */
    client->sent = 0;
    if (!client->closing && !ddl_wire_flush(&client->wire) && errno != EAGAIN)
        ddl_store_client_give_up(client);
}

void ddl_store_client_say(ddl_store_client *client, ddl_store_kind kind, uint8_t flags, uint32_t id,
                          ddl_view value)
{
    ddl_store_message message = { .kind = kind, .flags = flags, .id = id, .value = value };
    if (client->closing)
        return;
    if (client->sent > 0) {
        memmove(client->outbox.data, client->outbox.data + client->sent, client->outbox.bytes - client->sent);
        client->outbox.bytes -= client->sent;
        client->sent = 0;
    }
    if (!ddl_store_message_encode(&message, &client->outbox)) {
        ddl_store_client_give_up(client);
        return;
    }
    flush(client);
    if (!client->closing)
        attend(client);
}

void ddl_store_client_say_error(ddl_store_client *client, ddl_store_kind kind, uint32_t id,
                                const ddl_error *error)
{
    uint8_t value[DDL_STORE_ERROR_BYTES];
    size_t bytes = ddl_store_error_encode(error, value);
    ddl_store_client_say(client, kind, 0, id, (ddl_view){ value, bytes });
}

void ddl_store_client_refuse(ddl_store_client *client, uint32_t id, const char *format, ...)
{
    ddl_error error = { .code = DDL_ESTORE, .rank = -1, .culprit = -1 };
    va_list args;
    va_start(args, format);
    vsnprintf(error.text, sizeof error.text, format, args);
    va_end(args);
    ddl_store_client_say_error(client, DDL_STORE_REFUSED, id, &error);
}

void ddl_store_server_fail(ddl_store_server *server, const ddl_error *cause)
{
    if (server->failed || server->settled)
        return;
    server->failed = true;
    server->failure = *cause;
    DDL_LIST_FOR_EACH (link, &server->clients)
        ddl_store_client_say_error(DDL_CONTAINER(link, ddl_store_client, link), DDL_STORE_FAILED, 0, cause);
    ddl_store_server_end_waiting(server);
    announce_outcome(server);
}

void ddl_store_client_remove(ddl_store_client *client)
{
    ddl_store_server *server = client->server;
    ddl_store_client_drop_waits(client);
    while (ddl_list_take_first(&client->owned) != NULL)
        continue;
    ddl_watch_close(client->watch);
    ddl_wire_close(&client->wire);
    ddl_list_remove(&client->link);
    server->client_count--;
    ddl_store_inbox_fini(&client->inbox);
    ddl_bytes_fini(&client->outbox);
    ddl_free(client);
}

/* A will can make further writes fail, so go round until nobody is left to remove. */
void ddl_store_server_sweep(ddl_store_server *server)
{
    while (server->closing_count > 0) {
        ddl_store_client *client = NULL;
        DDL_LIST_FOR_EACH (link, &server->clients) {
            client = DDL_CONTAINER(link, ddl_store_client, link);
            if (client->closing)
                break;
        }
        ddl_error will = client->will;
        bool has_will = client->has_will && !ddl_list_empty(&client->owned);
        server->closing_count--;
        ddl_store_client_remove(client);
        if (has_will)
            ddl_store_server_fail(server, &will);
    }
    announce_outcome(server);
}

/* It has not left, but cannot be heard any more. */
static void put_in_will(ddl_store_client *client, const char *what, const char *why)
{
    const ddl_error will = client->will;
    if (!client->has_will)
        return;
    (void)ddl_error_set(&client->will, DDL_EPROTO, "rank %d at the meeting place: %s%s", client->party.rank,
                        what, why);
    client->will.rank = will.rank;
    client->will.culprit = client->party.rank;
}

/* Told once: at level off anybody comes here. */
void ddl_store_client_give_up_for(ddl_store_client *client, const ddl_error *why)
{
    if (!client->server->failed && !client->server->told_rogue)
        ddl_log(DDL_LOG_WARNING, "rank %d ended the connection of rank %d on %s[%d] to the meeting place: %s",
                client->server->self.rank, client->party.rank, client->party.host, (int)client->party.pid,
                why->text);
    client->server->told_rogue = true;
    put_in_will(client, "", why->text);
    ddl_store_client_give_up(client);
}

static void on_client(void *arg, int events)
{
    ddl_store_client *client = arg;
    ddl_store_server *server = client->server;
    if (events & DDL_WRITABLE) {
        flush(client);
        ddl_store_client_serve(client);
    }
    if ((events & DDL_READABLE) && !client->closing && !client->behind) {
        uint8_t data[READ_BYTES];
        ssize_t count = ddl_wire_read(&client->wire, data, sizeof data);
        if (count < 0 && errno == EBADMSG)
            put_in_will(client, "TLS failed: ", ddl_wire_problem(&client->wire));
        if (count == 0 || (count < 0 && errno != EAGAIN))
            ddl_store_client_give_up(client);
        else if (count > 0 && ddl_store_inbox_feed(&client->inbox, data, (size_t)count, NULL) != DDL_OK)
            ddl_store_client_give_up(client);
        else
            ddl_store_client_serve(client);
    }
    if (!client->closing)
        attend(client);
    ddl_store_server_sweep(server); /* may free client */
}

void ddl_store_client_add(ddl_store_server *server, ddl_wire wire, const ddl_hello_party *party)
{
    ddl_store_client *client = ddl_alloc(sizeof *client);
    if (client == NULL ||
        ddl_watch_open(server->service, wire.fd, on_client, client, &client->watch, NULL) != DDL_OK) {
        ddl_free(client);
        ddl_wire_close(&wire);
        return;
    }
    client->server = server;
    client->wire = wire;
    client->party = *party;
    client->inbox.from_client = true;
    client->inbox.value_limit =
        DDL_STORE_SEAL_ROOM + (party->rank == 0 ? DDL_STORE_ROSTER_LIMIT : DDL_STORE_VALUE_LIMIT);
    ddl_list_init(&client->waits);
    ddl_list_init(&client->owned);
    ddl_list_append(&server->clients, &client->link);
    server->client_count++;
    attend(client);
    if (server->failed)
        ddl_store_client_say_error(client, DDL_STORE_FAILED, 0, &server->failure);
    ddl_store_server_sweep(server);
}
