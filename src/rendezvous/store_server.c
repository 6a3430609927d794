/* store_server.c - keys, waiting gets and clients of one run. */
#include "rendezvous/store_server.h"

#include "base/assert.h"
#include "base/bell.h"
#include "base/list.h"
#include "base/log.h"
#include "io/watch.h"
#include "protocol/store_wire.h"
#include "rendezvous/listener.h"
#include "rendezvous/store.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    KEYS_PER_RANK = 16,
    KEYS_MORE = 1024,
    WAITS_PER_CLIENT = 64,
    STORED_LIMIT = 64 << 20,
    /* A client that does not read its replies is not served above this: one roster, and one more value. */
    OUTBOX_LIMIT = DDL_STORE_ROSTER_LIMIT + DDL_STORE_VALUE_LIMIT + 2 * DDL_STORE_SEAL_ROOM,
    READ_BYTES = 16 << 10
};

/* A key, or the place of one that is waited for. */
struct entry {
    struct entry *next; /* in its bucket */
    ddl_link in_owner;  /* linked while whoever set it is still connected */
    ddl_list waits;
    bool is_set;
    ddl_bytes value;
    size_t key_bytes;
    uint8_t key[DDL_STORE_KEY_LIMIT];
};

struct wait {
    ddl_link in_entry, in_client;
    struct entry *entry;
    struct client *client;
    uint32_t id;
};

struct client {
    ddl_link link;
    ddl_store_server *server;
    ddl_wire wire;
    ddl_watch *watch;
    ddl_hello_party party;
    ddl_store_inbox inbox;
    ddl_bytes outbox;
    size_t sent;           /* of outbox */
    ddl_list waits, owned; /* owned: entries that it set */
    int wait_count;
    bool has_will, knows_outcome, closing;
    bool behind; /* requests wait in inbox until it has read replies */
    ddl_error will;
};

struct ddl_store_server {
    ddl_service *service;
    ddl_deadline start_limit; /* of the run; its thread has as long for what rank 0 asks */
    ddl_hello_party self;
    ddl_listener *listeners[DDL_STORE_SERVER_DOORS];
    int listener_count;
    const ddl_encryption *encryption;
    ddl_list clients;
    int client_count, closing_count; /* closing_count: clients given up and not yet removed */
    struct entry **buckets;
    size_t bucket_count, key_count, stored_bytes;
    bool failed, settled;
    bool told_rogue; /* of a client that was given up for what it said */
    ddl_error failure;
    ddl_bell bell;          /* guards all_know and is_awaited_here; rings when one turns true */
    bool all_know, leaving; /* leaving: somebody waits for the bell */
    const char *awaited;    /* kind of the keys that rank 0 waits for, or NULL */
    int awaited_count;      /* so many keys of it are missing */
    bool is_awaited_here;   /* they have come, or the run has failed */
    struct {                /* a door that is to be opened, and what came of it */
        ddl_address address, bound;
        ddl_status status;
        ddl_error error;
    } opening;
};

/* ---- keys ---- */

static struct entry **bucket_of(ddl_store_server *server, ddl_view key)
{
    const uint8_t *at = key.data;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < key.bytes; i++)
        hash = (hash ^ at[i]) * 16777619u;
    return &server->buckets[hash % server->bucket_count];
}

static struct entry *find(ddl_store_server *server, ddl_view key)
{
    for (struct entry *entry = *bucket_of(server, key); entry != NULL; entry = entry->next)
        if (entry->key_bytes == key.bytes && memcmp(entry->key, key.data, key.bytes) == 0)
            return entry;
    return NULL;
}

/* The key of this kind that a rank has set; NULL: it has not. */
static struct entry *find_of_rank(ddl_store_server *server, const char *kind, int rank)
{
    char key[DDL_STORE_NAME_BYTES];
    ddl_store_name(kind, rank, key);
    struct entry *entry = find(server, (ddl_view){ key, strlen(key) });
    return entry != NULL && entry->is_set ? entry : NULL;
}

/* NULL: over the limit, or out of memory. */
static struct entry *find_or_add(ddl_store_server *server, ddl_view key)
{
    struct entry *entry = find(server, key);
    size_t limit = (size_t)server->self.nranks * KEYS_PER_RANK + KEYS_MORE;
    if (entry != NULL || server->key_count >= limit || (entry = ddl_alloc(sizeof *entry)) == NULL)
        return entry;
    struct entry **bucket = bucket_of(server, key);
    ddl_list_init(&entry->waits);
    entry->key_bytes = key.bytes;
    memcpy(entry->key, key.data, key.bytes);
    entry->next = *bucket;
    *bucket = entry;
    server->key_count++;
    return entry;
}

/* An entry that nobody has set and nobody waits for any more is dropped. */
static void tidy(ddl_store_server *server, struct entry *entry)
{
    if (entry->is_set || !ddl_list_empty(&entry->waits))
        return;
    struct entry **at = bucket_of(server, (ddl_view){ entry->key, entry->key_bytes });
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    server->key_count--;
    ddl_bytes_fini(&entry->value);
    ddl_free(entry);
}

static void drop_wait(struct wait *wait)
{
    ddl_list_remove(&wait->in_entry);
    ddl_list_remove(&wait->in_client);
    wait->client->wait_count--;
    ddl_free(wait);
}

/* ---- clients ---- */

static size_t unsent(const struct client *client)
{
    return client->outbox.bytes - client->sent;
}

/* Whether the socket has all that was said. */
static bool is_silent(const struct client *client)
{
    return unsent(client) == 0 && !ddl_wire_has_unsent(&client->wire);
}

static void announce_outcome(ddl_store_server *server)
{
    bool all_know = true;
    if (!server->leaving)
        return;
    DDL_LIST_FOR_EACH (link, &server->clients) {
        struct client *client = DDL_CONTAINER(link, struct client, link);
        /* One that has heard of a failure leaves; only then is it sure to have it. */
        all_know = all_know && server->settled && client->knows_outcome && is_silent(client);
    }
    ddl_bell_lock(&server->bell);
    server->all_know = all_know;
    if (all_know)
        ddl_bell_ring(&server->bell);
    ddl_bell_unlock(&server->bell);
}

static void attend(struct client *client)
{
    int events = !is_silent(client) || client->behind ? DDL_WRITABLE : 0;
    if (unsent(client) < OUTBOX_LIMIT && !client->behind)
        events |= DDL_READABLE;
    ddl_watch_set(client->watch, events);
}

/* Mark for removal; on_client or sweep does it, so that no caller up the stack holds a freed client. */
static void give_up(struct client *client)
{
    if (!client->closing)
        client->server->closing_count++;
    client->closing = true;
}

static void flush(struct client *client)
{
    while (client->sent < client->outbox.bytes && !client->closing) {
        ssize_t count = ddl_wire_write(&client->wire, client->outbox.data + client->sent,
                                       client->outbox.bytes - client->sent);
        if (count < 0) {
            if (errno != EAGAIN)
                give_up(client);
            return;
        }
        client->sent += (size_t)count;
    }
    ddl_bytes_fini(&client->outbox); /* a roster for each of many ranks is much, and few ask twice */
    client->sent = 0;
    if (!client->closing && !ddl_wire_flush(&client->wire) && errno != EAGAIN)
        give_up(client);
}

static void say(struct client *client, ddl_store_kind kind, uint8_t flags, uint32_t id, ddl_view value)
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
        give_up(client);
        return;
    }
    flush(client);
    if (!client->closing)
        attend(client);
}

static void say_error(struct client *client, ddl_store_kind kind, uint32_t id, const ddl_error *error)
{
    uint8_t value[DDL_STORE_ERROR_BYTES];
    size_t bytes = ddl_store_error_encode(error, value);
    say(client, kind, 0, id, (ddl_view){ value, bytes });
}

__attribute__((format(printf, 3, 4))) static void refuse(struct client *client, uint32_t id,
                                                         const char *format, ...)
{
    ddl_error error = { .code = DDL_ESTORE, .rank = -1, .culprit = -1 };
    va_list args;
    va_start(args, format);
    vsnprintf(error.text, sizeof error.text, format, args);
    va_end(args);
    say_error(client, DDL_STORE_REFUSED, id, &error);
}

/* What rank 0 waits for is there, or will not come. */
static void end_waiting(ddl_store_server *server)
{
    server->awaited = NULL;
    ddl_bell_lock(&server->bell);
    server->is_awaited_here = true;
    ddl_bell_ring(&server->bell);
    ddl_bell_unlock(&server->bell);
}

static void count_awaited(ddl_store_server *server, ddl_view key)
{
    const size_t kind_bytes = server->awaited != NULL ? strlen(server->awaited) : 0;
    if (kind_bytes > 0 && key.bytes > kind_bytes && memcmp(key.data, server->awaited, kind_bytes) == 0 &&
        --server->awaited_count == 0)
        end_waiting(server);
}

/* The first cause stands; everybody hears it at once, asked or not. */
static void fail_run(ddl_store_server *server, const ddl_error *cause)
{
    if (server->failed || server->settled)
        return;
    server->failed = true;
    server->failure = *cause;
    DDL_LIST_FOR_EACH (link, &server->clients)
        say_error(DDL_CONTAINER(link, struct client, link), DDL_STORE_FAILED, 0, cause);
    end_waiting(server);
    announce_outcome(server);
}

static void remove_client(struct client *client)
{
    ddl_store_server *server = client->server;
    ddl_link *link;
    while ((link = ddl_list_first(&client->waits)) != NULL) {
        struct wait *wait = DDL_CONTAINER(link, struct wait, in_client);
        struct entry *entry = wait->entry;
        drop_wait(wait);
        tidy(server, entry);
    }
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

/*
 * Remove all that were given up, and execute their wills. A will can make further writes fail, so go round
 * until nobody is left to remove.
 */
static void sweep(ddl_store_server *server)
{
    while (server->closing_count > 0) {
        struct client *client = NULL;
        DDL_LIST_FOR_EACH (link, &server->clients) {
            client = DDL_CONTAINER(link, struct client, link);
            if (client->closing)
                break;
        }
        ddl_error will = client->will;
        bool has_will = client->has_will && !ddl_list_empty(&client->owned);
        server->closing_count--;
        remove_client(client);
        if (has_will)
            fail_run(server, &will);
    }
    announce_outcome(server);
}

/* ---- requests ---- */

static bool is_settled_key(ddl_view key)
{
    return key.bytes == strlen(DDL_STORE_SETTLED) && memcmp(key.data, DDL_STORE_SETTLED, key.bytes) == 0;
}

static void serve_waits(struct entry *entry)
{
    ddl_link *link;
    bool outcome = is_settled_key((ddl_view){ entry->key, entry->key_bytes });
    while ((link = ddl_list_first(&entry->waits)) != NULL) {
        struct wait *wait = DDL_CONTAINER(link, struct wait, in_entry);
        struct client *client = wait->client;
        uint32_t id = wait->id;
        drop_wait(wait);
        client->knows_outcome = client->knows_outcome || outcome;
        say(client, DDL_STORE_VALUE, 0, id, ddl_bytes_view(&entry->value));
    }
}

static void do_set_new(struct client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    struct entry *entry = find_or_add(server, message->key);
    if (entry == NULL || message->value.bytes > STORED_LIMIT - server->stored_bytes) {
        refuse(client, message->id, "the store holds %zu keys and %zu bytes, and takes no more",
               server->key_count, server->stored_bytes);
        if (entry != NULL)
            tidy(server, entry);
        return;
    }
    if (entry->is_set) {
        uint8_t gone = ddl_link_linked(&entry->in_owner) ? 0 : DDL_STORE_GONE;
        say(client, DDL_STORE_EXISTS, gone, message->id, ddl_bytes_view(&entry->value));
        return;
    }
    if (!ddl_bytes_append(&entry->value, message->value.data, message->value.bytes)) {
        refuse(client, message->id, "rank 0 has no memory for %zu more bytes", message->value.bytes);
        tidy(server, entry);
        return;
    }
    entry->is_set = true;
    ddl_list_append(&client->owned, &entry->in_owner);
    server->stored_bytes += message->value.bytes;
    if (is_settled_key(message->key)) {
        server->settled = true;
        client->knows_outcome = true;
    }
    say(client, DDL_STORE_DONE, 0, message->id, (ddl_view){ NULL, 0 });
    serve_waits(entry);
    count_awaited(server, message->key);
}

static void do_get(struct client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    struct entry *entry = find(server, message->key);
    if (entry != NULL && entry->is_set) {
        client->knows_outcome = client->knows_outcome || is_settled_key(message->key);
        say(client, DDL_STORE_VALUE, 0, message->id, ddl_bytes_view(&entry->value));
        return;
    }
    if ((message->flags & DDL_STORE_WAIT) == 0) {
        say(client, DDL_STORE_MISSING, 0, message->id, (ddl_view){ NULL, 0 });
        return;
    }
    struct wait *wait = NULL;
    if (client->wait_count >= WAITS_PER_CLIENT || (entry = find_or_add(server, message->key)) == NULL ||
        (wait = ddl_alloc(sizeof *wait)) == NULL) {
        refuse(client, message->id, "the store holds %d waiting requests of this rank, and takes no more",
               client->wait_count);
        if (entry != NULL)
            tidy(server, entry);
        return;
    }
    wait->entry = entry;
    wait->client = client;
    wait->id = message->id;
    client->wait_count++;
    ddl_list_append(&entry->waits, &wait->in_entry);
    ddl_list_append(&client->waits, &wait->in_client);
}

static void do_look(struct client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    const uint32_t limit = (uint32_t)server->self.nranks + KEYS_MORE;
    const uint32_t count =
        message->value.bytes == DDL_STORE_COUNT_BYTES ? ddl_get_u32(message->value.data) : UINT32_MAX;
    char kind[DDL_STORE_NAME_BYTES] = "";
    ddl_bytes bits = { 0 };
    bool has_room = true;
    if (count > limit || message->key.bytes >= sizeof kind) {
        refuse(client, message->id, "the store looks for %lu keys at most, with names of less than %zu bytes",
               (unsigned long)limit, sizeof kind);
        return;
    }
    memcpy(kind, message->key.data, message->key.bytes);
    for (uint32_t first = 0; first < count && has_room; first += 8) {
        uint8_t byte = 0;
        for (uint32_t i = first; i < first + 8 && i < count; i++)
            byte |= (uint8_t)((find_of_rank(server, kind, (int)i) != NULL) << (i - first));
        has_room = ddl_bytes_append(&bits, &byte, 1);
    }
    if (has_room)
        say(client, DDL_STORE_VALUE, 0, message->id, ddl_bytes_view(&bits));
    else
        refuse(client, message->id, "rank 0 has no memory for %lu bits", (unsigned long)count);
    ddl_bytes_fini(&bits);
}

static void do_cancel(struct client *client, const ddl_store_message *message)
{
    DDL_LIST_FOR_EACH (link, &client->waits) {
        struct wait *wait = DDL_CONTAINER(link, struct wait, in_client);
        if (wait->id != message->id)
            continue;
        struct entry *entry = wait->entry;
        drop_wait(wait);
        tidy(client->server, entry);
        return;
    }
}

/* It has not left, but cannot be heard any more. */
static void put_in_will(struct client *client, const char *what, const char *why)
{
    const ddl_error will = client->will;
    if (!client->has_will)
        return;
    (void)ddl_error_set(&client->will, DDL_EPROTO, "rank %d at the meeting place: %s%s", client->party.rank,
                        what, why);
    client->will.rank = will.rank;
    client->will.culprit = client->party.rank;
}

/* It says what no rank says: if it takes part, as its will says, that ends the run. Told once: at level off
 * anybody comes here. */
static void give_up_for(struct client *client, const ddl_error *why)
{
    if (!client->server->failed && !client->server->told_rogue)
        ddl_log(DDL_LOG_WARNING, "rank %d ended the connection of rank %d on %s[%d] to the meeting place: %s",
                client->server->self.rank, client->party.rank, client->party.host, (int)client->party.pid,
                why->text);
    client->server->told_rogue = true;
    put_in_will(client, "", why->text);
    give_up(client);
}

static void do_will(struct client *client, const ddl_store_message *message)
{
    ddl_error will, why;
    if (ddl_store_error_decode(message->value, &will, &why) != DDL_OK) {
        give_up_for(client, &why);
        return;
    }
    client->will = will;
    client->has_will = true;
    say(client, DDL_STORE_DONE, 0, message->id, (ddl_view){ NULL, 0 });
}

static void do_fail(struct client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    ddl_error cause, why;
    if (ddl_store_error_decode(message->value, &cause, &why) != DDL_OK) {
        give_up_for(client, &why);
        return;
    }
    fail_run(server, &cause);
    /* A settled run cannot fail: say so with what was asked. */
    say_error(client, DDL_STORE_FAILED, message->id, server->failed ? &server->failure : &cause);
}

static void serve(struct client *client, const ddl_store_message *message)
{
    ddl_store_server *server = client->server;
    if (server->failed) {
        if (message->kind != DDL_STORE_CANCEL)
            say_error(client, DDL_STORE_FAILED, message->id, &server->failure);
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
static void serve_all(struct client *client)
{
    ddl_store_message message;
    ddl_error why;
    bool found = true, has_looked = false;
    while (found && !has_looked && !client->closing && unsent(client) < OUTBOX_LIMIT) {
        if (ddl_store_inbox_next(&client->inbox, &message, &found, &why) != DDL_OK)
            give_up_for(client, &why);
        else if (found)
            serve(client, &message);
        has_looked = found && message.kind == DDL_STORE_LOOK;
    }
    client->behind = found;
}

static void on_client(void *arg, int events)
{
    struct client *client = arg;
    ddl_store_server *server = client->server;
    if (events & DDL_WRITABLE) {
        flush(client);
        serve_all(client);
    }
    if ((events & DDL_READABLE) && !client->closing && !client->behind) {
        uint8_t data[READ_BYTES];
        ssize_t count = ddl_wire_read(&client->wire, data, sizeof data);
        if (count < 0 && errno == EBADMSG)
            put_in_will(client, "TLS failed: ", ddl_wire_problem(&client->wire));
        if (count == 0 || (count < 0 && errno != EAGAIN))
            give_up(client);
        else if (count > 0 && ddl_store_inbox_feed(&client->inbox, data, (size_t)count, NULL) != DDL_OK)
            give_up(client);
        else
            serve_all(client);
    }
    if (!client->closing)
        attend(client);
    sweep(server); /* may free client */
}

/* ---- the door ---- */

/* Of the clients that have set nothing, and so take no part, the one that came first; NULL if there is none.
 */
static struct client *first_idle(ddl_store_server *server)
{
    DDL_LIST_FOR_EACH (link, &server->clients) {
        struct client *client = DDL_CONTAINER(link, struct client, link);
        if (ddl_list_empty(&client->owned))
            return client;
    }
    return NULL;
}

static bool is_full(const ddl_store_server *server)
{
    return server->client_count >= 4 * server->self.nranks + 64;
}

static void judge(void *arg, ddl_hello *hello, const ddl_address *from)
{
    ddl_store_server *server = arg;
    (void)from;
    bool room = !is_full(server) || first_idle(server) != NULL;
    ddl_hello_judge(hello, room ? DDL_HELLO_WELCOME : DDL_HELLO_TAKEN);
}

/* A rank of ours that is not like the others: nobody can go on, and everybody is told why. */
static void refused(void *arg, const ddl_hello *hello, const ddl_address *from)
{
    ddl_store_server *server = arg;
    ddl_error cause;
    (void)from;
    if (!ddl_hello_ends_run(hello->verdict) || hello->peer.nranks <= 0)
        return;
    (void)ddl_error_set(&cause, ddl_hello_verdict_status(hello->verdict), "%s", hello->reason);
    cause.culprit = hello->peer.rank;
    fail_run(server, &cause);
    sweep(server);
}

static void entered(void *arg, ddl_wire wire, const ddl_hello *hello, const ddl_address *from)
{
    ddl_store_server *server = arg;
    (void)from;
    /* Only who has proved to belong here takes another's place. */
    struct client *idle = is_full(server) ? first_idle(server) : NULL;
    if (idle != NULL) {
        give_up(idle);
        sweep(server);
    }
    struct client *client = is_full(server) ? NULL : ddl_alloc(sizeof *client);
    if (client == NULL ||
        ddl_watch_open(server->service, wire.fd, on_client, client, &client->watch, NULL) != DDL_OK) {
        ddl_free(client);
        ddl_wire_close(&wire);
        return;
    }
    client->server = server;
    client->wire = wire;
    client->party = hello->peer;
    client->inbox.from_client = true;
    client->inbox.value_limit =
        DDL_STORE_SEAL_ROOM + (hello->peer.rank == 0 ? DDL_STORE_ROSTER_LIMIT : DDL_STORE_VALUE_LIMIT);
    ddl_list_init(&client->waits);
    ddl_list_init(&client->owned);
    ddl_list_append(&server->clients, &client->link);
    server->client_count++;
    attend(client);
    if (server->failed)
        say_error(client, DDL_STORE_FAILED, 0, &server->failure);
    sweep(server);
}

static const ddl_listener_events door = { judge, refused, entered };

/* ---- rank 0's own questions ---- */

/* Kept if the service thread does not come back from it. */
struct look {
    ddl_store_server *server;
    const char *kind;
    bool waits;
    int missing;
    ddl_status status;
    ddl_error error;
    int count;
    struct looked {
        bool wanted, found;
        ddl_bytes value;
    } keys[];
};

static void look_on_service(void *arg)
{
    struct look *look = arg;
    ddl_store_server *server = look->server;
    look->missing = 0;
    if (server->failed) {
        look->error = server->failure;
        look->status = server->failure.code;
    }
    for (int rank = 0; rank < look->count && look->status == DDL_OK; rank++) {
        struct looked *looked = &look->keys[rank];
        if (!looked->wanted)
            continue;
        const struct entry *entry = find_of_rank(server, look->kind, rank);
        looked->found = entry != NULL;
        if (!looked->found)
            look->missing++;
        else if (!ddl_bytes_append(&looked->value, entry->value.data, entry->value.bytes))
            look->status =
                DDL_FAIL(&look->error, DDL_ENOMEM, "no memory for a value of %zu bytes", entry->value.bytes);
    }
    server->awaited = look->waits && look->missing > 0 ? look->kind : NULL;
    server->awaited_count = look->missing;
    server->is_awaited_here = false;
}

static ddl_status take_found(struct look *look, const ddl_store *store, const ddl_store_many *many,
                             ddl_error *err)
{
    for (int rank = 0; rank < look->count; rank++) {
        struct looked *looked = &look->keys[rank];
        if (!looked->wanted || !looked->found)
            continue;
        DDL_TRY(ddl_store_found(store, many, rank, ddl_bytes_view(&looked->value), err));
        ddl_bytes_fini(&looked->value);
        looked->wanted = false;
    }
    return DDL_OK;
}

/* Once, by the service thread, and what it found taken over. */
static ddl_status look_once(struct look *look, const ddl_store *store, const ddl_store_many *many,
                            ddl_deadline deadline, ddl_error *err)
{
    if (deadline < look->server->start_limit) /* who only looks once does not take a slow thread for lost */
        deadline = look->server->start_limit;
    DDL_TRY(ddl_service_call(look->server->service, "looking for what the ranks have set", look_on_service,
                             look, deadline, err));
    if (look->status != DDL_OK && err != NULL)
        *err = look->error;
    return look->status != DDL_OK ? look->status : take_found(look, store, many, err);
}

/* Keys of more ranks than there are can end the waiting early: then it begins anew. */
static ddl_status look_until(struct look *look, const ddl_store *store, const ddl_store_many *many,
                             ddl_deadline deadline, ddl_error *err)
{
    ddl_store_server *server = look->server;
    look->waits = !ddl_deadline_passed(deadline);
    for (;;) {
        DDL_TRY(look_once(look, store, many, deadline, err));
        if (look->missing == 0)
            return DDL_OK;
        if (!look->waits)
            return DDL_FAIL(err, DDL_ETIMEDOUT, "%d keys of the kind %s were not set in the store",
                            look->missing, many->kind);
        ddl_bell_lock(&server->bell);
        while (!server->is_awaited_here && look->waits)
            look->waits = ddl_bell_wait(&server->bell, deadline);
        ddl_bell_unlock(&server->bell);
    }
}

ddl_status ddl_store_server_get_many(ddl_store_server *server, const ddl_store *store,
                                     const ddl_store_many *many, ddl_deadline deadline, ddl_error *err)
{
    struct look *look = ddl_alloc(sizeof *look + (size_t)many->count * sizeof look->keys[0]);
    if (look == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the keys of %d ranks", many->count);
    *look = (struct look){ .server = server, .kind = many->kind, .count = many->count };
    for (int rank = 0; rank < look->count; rank++)
        look->keys[rank].wanted = !many->present[rank];
    ddl_status status = look_until(look, store, many, deadline, err);
    if (ddl_service_may_use(server->service, look))
        return status;
    for (int rank = 0; rank < look->count; rank++)
        ddl_bytes_fini(&look->keys[rank].value);
    ddl_free(look);
    return status;
}

/* ---- opening and closing ---- */

static void open_on_service(void *arg)
{
    ddl_store_server *server = arg;
    const ddl_listener_options options = {
        .service = server->service,
        .self = server->self,
        .encryption = server->encryption,
        .events = &door,
        .arg = server,
    };
    server->opening.status =
        ddl_listener_open(&options, &server->opening.address, &server->opening.bound,
                          &server->listeners[server->listener_count], &server->opening.error);
    server->listener_count += server->opening.status == DDL_OK;
}

static ddl_status open_door(ddl_store_server *server, const ddl_address *address, ddl_address *bound,
                            ddl_deadline deadline, ddl_error *err)
{
    server->opening.address = *address;
    DDL_TRY(ddl_service_call(server->service, "opening the store's door", open_on_service, server, deadline,
                             err));
    if (server->opening.status == DDL_OK)
        *bound = server->opening.bound;
    else if (err != NULL)
        *err = server->opening.error;
    return server->opening.status;
}

static void free_server(ddl_store_server *server)
{
    for (size_t i = 0; server->buckets != NULL && i < server->bucket_count; i++) {
        struct entry *entry;
        while ((entry = server->buckets[i]) != NULL) {
            server->buckets[i] = entry->next;
            ddl_bytes_fini(&entry->value);
            ddl_free(entry);
        }
    }
    ddl_free(server->buckets);
    ddl_bell_fini(&server->bell);
    ddl_free(server);
}

ddl_status ddl_store_server_open(ddl_service *service, const ddl_hello_party *self,
                                 const ddl_encryption *encryption, const ddl_address *address,
                                 ddl_deadline deadline, ddl_address *bound, ddl_store_server **out,
                                 ddl_error *err)
{
    ddl_store_server *server = ddl_alloc(sizeof *server);
    if (server == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the store's server");
    server->service = service;
    server->start_limit = deadline;
    server->self = *self;
    server->self.channel = DDL_CHANNEL_STORE;
    server->encryption = encryption;
    ddl_list_init(&server->clients);
    ddl_bell_init(&server->bell);
    server->bucket_count = (size_t)self->nranks * 4 + 61;
    server->buckets = ddl_alloc_array(server->bucket_count, sizeof(struct entry *));
    ddl_status status = server->buckets != NULL
                            ? open_door(server, address, bound, deadline, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for the store's server");
    if (status != DDL_OK) {
        if (!ddl_service_may_use(service, server))
            free_server(server);
        return status;
    }
    *out = server;
    return DDL_OK;
}

ddl_status ddl_store_server_open_also(ddl_store_server *server, const ddl_address *address,
                                      ddl_deadline deadline, ddl_error *err)
{
    ddl_address bound;
    DDL_ASSERT(server->listener_count < DDL_STORE_SERVER_DOORS);
    return open_door(server, address, &bound, deadline, err);
}

static void stop_listening(void *arg)
{
    ddl_store_server *server = arg;
    while (server->listener_count > 0)
        ddl_listener_close(server->listeners[--server->listener_count]);
    server->leaving = true;
    sweep(server);
}

static void close_on_service(void *arg)
{
    ddl_store_server *server = arg;
    DDL_LIST_FOR_EACH (link, &server->clients)
        remove_client(DDL_CONTAINER(link, struct client, link));
}

void ddl_store_server_close(ddl_store_server *server, ddl_deadline deadline)
{
    if (server == NULL)
        return;
    if (ddl_service_call(server->service, "closing the store's door", stop_listening, server, deadline,
                         NULL) != DDL_OK)
        return; /* the thread may still touch it, whenever it wakes up */
    ddl_bell_lock(&server->bell);
    while (!server->all_know && ddl_bell_wait(&server->bell, deadline))
        continue;
    ddl_bell_unlock(&server->bell);
    if (ddl_service_call(server->service, "closing the store's connections", close_on_service, server,
                         deadline, NULL) == DDL_OK)
        free_server(server);
}
