/* store_server_requests.c - does what clients of the store's server ask for. */
#include "rendezvous/store_server_parts.h"

#include "base/assert.h"

#include <string.h>

enum { WAITS_PER_CLIENT = 64, STORED_LIMIT = 64 << 20 };

struct wait {
    ddl_link in_entry, in_client;
    ddl_store_entry *entry;
    ddl_store_client *client;
    uint32_t id;
};

static void drop_wait(struct wait *wait)
{
    ddl_list_remove(&wait->in_entry);
    ddl_list_remove(&wait->in_client);
    wait->client->wait_count--;
    ddl_free(wait);
}

void ddl_store_client_drop_waits(ddl_store_client *client)
{
    ddl_link *link;
    while ((link = ddl_list_first(&client->waits)) != NULL) {
        struct wait *wait = DDL_CONTAINER(link, struct wait, in_client);
        ddl_store_entry *entry = wait->entry;
        drop_wait(wait);
        ddl_store_keys_tidy(&client->server->keys, entry);
    }
}

static bool is_settled_key(ddl_view key)
{
    return key.bytes == strlen(DDL_STORE_SETTLED) && memcmp(key.data, DDL_STORE_SETTLED, key.bytes) == 0;
}

static void serve_waits(ddl_store_entry *entry)
{
    ddl_link *link;
    bool outcome = is_settled_key((ddl_view){ entry->key, entry->key_bytes });
    while ((link = ddl_list_first(&entry->waits)) != NULL) {
        struct wait *wait = DDL_CONTAINER(link, struct wait, in_entry);
        ddl_store_client *client = wait->client;
        uint32_t id = wait->id;
        drop_wait(wait);
        client->knows_outcome = client->knows_outcome || outcome;
        ddl_store_client_say(client, DDL_STORE_VALUE, 0, id, ddl_bytes_view(&entry->value));
    }
}

static void do_set_new(ddl_store_client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    ddl_store_entry *entry = ddl_store_keys_add(&server->keys, message->key);
    if (entry == NULL || message->value.bytes > STORED_LIMIT - server->stored_bytes) {
        ddl_store_client_refuse(client, message->id,
                                "the store holds %zu keys and %zu bytes, and takes no more",
                                server->keys.count, server->stored_bytes);
        if (entry != NULL)
            ddl_store_keys_tidy(&server->keys, entry);
        return;
    }
    if (entry->is_set) {
        uint8_t gone = ddl_link_linked(&entry->in_owner) ? 0 : DDL_STORE_GONE;
        ddl_store_client_say(client, DDL_STORE_EXISTS, gone, message->id, ddl_bytes_view(&entry->value));
        return;
    }
    if (!ddl_bytes_append(&entry->value, message->value.data, message->value.bytes)) {
        ddl_store_client_refuse(client, message->id, "rank 0 has no memory for %zu more bytes",
                                message->value.bytes);
        ddl_store_keys_tidy(&server->keys, entry);
        return;
    }
    entry->is_set = true;
    ddl_list_append(&client->owned, &entry->in_owner);
    server->stored_bytes += message->value.bytes;
    if (is_settled_key(message->key)) {
        server->settled = true;
        client->knows_outcome = true;
    }
    ddl_store_client_say(client, DDL_STORE_DONE, 0, message->id, (ddl_view){ NULL, 0 });
    serve_waits(entry);
    ddl_store_server_count_awaited(server, message->key);
}

static void do_get(ddl_store_client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    ddl_store_entry *entry = ddl_store_keys_find(&server->keys, message->key);
    if (entry != NULL && entry->is_set) {
        client->knows_outcome = client->knows_outcome || is_settled_key(message->key);
        ddl_store_client_say(client, DDL_STORE_VALUE, 0, message->id, ddl_bytes_view(&entry->value));
        return;
    }
    if ((message->flags & DDL_STORE_WAIT) == 0) {
        ddl_store_client_say(client, DDL_STORE_MISSING, 0, message->id, (ddl_view){ NULL, 0 });
        return;
    }
    struct wait *wait = NULL;
    if (client->wait_count >= WAITS_PER_CLIENT ||
        (entry = ddl_store_keys_add(&server->keys, message->key)) == NULL ||
        (wait = ddl_alloc(sizeof *wait)) == NULL) {
        ddl_store_client_refuse(client, message->id,
                                "the store holds %d waiting requests of this rank, and takes no more",
                                client->wait_count);
        if (entry != NULL)
            ddl_store_keys_tidy(&server->keys, entry);
        return;
    }
    wait->entry = entry;
    wait->client = client;
    wait->id = message->id;
    client->wait_count++;
    ddl_list_append(&entry->waits, &wait->in_entry);
    ddl_list_append(&client->waits, &wait->in_client);
}

static void do_look(ddl_store_client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    const uint32_t limit = (uint32_t)server->self.nranks + DDL_STORE_KEYS_MORE;
    const uint32_t count =
        message->value.bytes == DDL_STORE_COUNT_BYTES ? ddl_get_u32(message->value.data) : UINT32_MAX;
    char kind[DDL_STORE_NAME_BYTES] = "";
    ddl_bytes bits = { 0 };
    bool has_room = true;
    if (count > limit || message->key.bytes >= sizeof kind) {
        ddl_store_client_refuse(client, message->id,
                                "the store looks for %lu keys at most, with names of less than %zu bytes",
                                (unsigned long)limit, sizeof kind);
        return;
    }
    memcpy(kind, message->key.data, message->key.bytes);
    for (uint32_t first = 0; first < count && has_room; first += 8) {
        uint8_t byte = 0;
        for (uint32_t i = first; i < first + 8 && i < count; i++)
            byte |=
                (uint8_t)((ddl_store_keys_find_of_rank(&server->keys, kind, (int)i) != NULL) << (i - first));
        has_room = ddl_bytes_append(&bits, &byte, 1);
    }
    if (has_room)
        ddl_store_client_say(client, DDL_STORE_VALUE, 0, message->id, ddl_bytes_view(&bits));
    else
        ddl_store_client_refuse(client, message->id, "rank 0 has no memory for %lu bits",
                                (unsigned long)count);
    ddl_bytes_fini(&bits);
}

static void do_cancel(ddl_store_client *client, const ddl_store_message *message)
{
    DDL_LIST_FOR_EACH (link, &client->waits) {
        struct wait *wait = DDL_CONTAINER(link, struct wait, in_client);
        if (wait->id != message->id)
            continue;
        ddl_store_entry *entry = wait->entry;
        drop_wait(wait);
        ddl_store_keys_tidy(&client->server->keys, entry);
        return;
    }
}

static void do_will(ddl_store_client *client, const ddl_store_message *message)
{
    ddl_error will, why;
    if (ddl_store_error_decode(message->value, &will, &why) != DDL_OK) {
        ddl_store_client_give_up_for(client, &why);
        return;
    }
    client->will = will;
    client->has_will = true;
    ddl_store_client_say(client, DDL_STORE_DONE, 0, message->id, (ddl_view){ NULL, 0 });
}

static void do_fail(ddl_store_client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    ddl_error cause, why;
    if (ddl_store_error_decode(message->value, &cause, &why) != DDL_OK) {
        ddl_store_client_give_up_for(client, &why);
        return;
    }
    ddl_store_server_fail(server, &cause);
    /* A settled run cannot fail: say so with what was asked. */
    ddl_store_client_say_error(client, DDL_STORE_FAILED, message->id,
                               server->failed ? &server->failure : &cause);
}

static void serve(ddl_store_client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    if (server->failed) {
        if (message->kind != DDL_STORE_CANCEL)
            ddl_store_client_say_error(client, DDL_STORE_FAILED, message->id, &server->failure);
        return;
    }
    switch (message->kind) {
    case DDL_STORE_SET_NEW:
        do_set_new(client, message);
        break;
    case DDL_STORE_GET:
        do_get(client, message);
        break;
    case DDL_STORE_LOOK:
        do_look(client, message);
        break;
    case DDL_STORE_CANCEL:
        do_cancel(client, message);
        break;
    case DDL_STORE_WILL:
        do_will(client, message);
        break;
    case DDL_STORE_FAIL:
        do_fail(client, message);
        break;
    default:
        DDL_ASSERT(!"a kind that the inbox lets through");
    }
}

/* A few bytes can ask for many: replies that are not read hold up what was asked behind them, and so does a
 * look until others had their turn, which goes over as many keys as there are ranks. */
void ddl_store_client_serve(ddl_store_client *client)
{
    ddl_store_message message;
    ddl_error why;
    bool found = true, has_looked = false;
    while (found && !has_looked && !client->closing && ddl_store_client_has_room(client)) {
        if (ddl_store_inbox_next(&client->inbox, &message, &found, &why) != DDL_OK)
            ddl_store_client_give_up_for(client, &why);
        else if (found)
            serve(client, &message);
        has_looked = found && message.kind == DDL_STORE_LOOK;
    }
    client->behind = found;
}
