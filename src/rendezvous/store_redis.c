/*
 * store_redis.c - a store in a Redis server that all hosts reach: redis://host:port, rediss:// with TLS.
 *
 *     P:PLACE:meet       which run is on, written by rank 0; PLACE is MASTER_ADDR:MASTER_PORT
 *     P:PLACE:ask        "are you there?", from ranks that have read meet
 *     P:RUN:k:KEY        a value, with the token of who set it
 *     P:RUN:echo:TOKEN   rank 0's answer to the rank of that token, sealed
 *     P:RUN:end          what the run came to: settled, or failed, whichever came first
 *     P:RUN:wills        what the run fails with if a rank that has set a key ends; or that one needs no more
 *     P:RUN:all          the names of these keys, so that rank 0 can remove them
 *     P:alive:TOKEN      a channel; who takes part subscribes to it on a connection of its own
 *
 * All keys but the last are streams. An entry with the fixed id 1-1 can be added to a stream once, so it is a
 * value that is set once; and a read that blocks, on several streams, is how ranks wait without asking again
 * and again. Redis counts the subscribers of a channel, and so knows at once when a process has ended.
 *
 * meet may have been left by a run that was killed, so nobody trusts it: a rank asks with a fresh token, and
 * goes on only when rank 0 echoes it under that run. Everything expires: after an hour beyond the start-up.
 * What is in meet, echo, k, end and wills is sealed (seal.h), as others may write to the same server. Who
 * forges can hold a run up; nobody takes anything in from him. Nothing that Redis says is believed beyond
 * that, but who subscribes and who set a key: replies are bounded, names from it are checked.
 */
#include "rendezvous/store.h"

#include "base/assert.h"
#include "base/list.h"
#include "io/host.h"
#include "io/socket.h"
#include "protocol/store_wire.h"
#include "rendezvous/meet.h"
#include "rendezvous/redis_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLICE_MS = 1000,        /* so long does Redis hold a request of one who waits */
    POLL_INTERVAL_MS = 100, /* between looks at how the run comes out, while the mesh is made */
    LIFE_INTERVAL_MS = 800, /* between looks at who still lives */
    LIFE_AGAIN_MS = 200,    /* before somebody who seems to be gone is looked for once more */
    ECHO_LIMIT_MS = 800,    /* for a rank 0 that seems to live, to show it; seen: 330 among 128 on 2 cores */
    ASK_AGAIN_MS = 30000,
    ASK_EXPIRY_S = 120,
    EXPIRY_S = 3600,
    CLAIM_TRIES = 20,
    ROUNDS_MOST = 4096, /* of reading on, BATCH at a time: a server could go on for ever */
    NAME_TEXT = 600,
    WHERE_TEXT = NAME_TEXT + 400,
    ID_TEXT = 48,
    KEY_TEXT = DDL_STORE_KEY_LIMIT + 1,
    MOST_REPLIES = 12,
    BATCH = 64, /* entries, channels or keys in one request */
};

/* Somebody else who takes part, as rank 0 knows it. */
struct member {
    char token[DDL_TOKEN_TEXT];
    ddl_bytes will;
    char key[KEY_TEXT]; /* the will counts if this rank has set this */
    bool is_done;       /* has heard that the run is settled */
    bool is_gone;       /* its will was executed, or it left */
    bool missed;        /* was not there at the last look */
};

struct store_redis {
    ddl_store base; /* held: the connections of link */
    ddl_hello_party self;
    ddl_redis_link *link;
    char prefix[DDL_REDIS_PREFIX_TEXT];
    char place[NAME_TEXT - 200];                        /* "ddl:10.0.0.1:29500" */
    char run[DDL_REDIS_PREFIX_TEXT + DDL_RUN_TEXT + 2]; /* "ddl:RUN" */
    char token[DDL_TOKEN_TEXT], host_token[DDL_TOKEN_TEXT];
    char expiry[16]; /* seconds, as text */
    ddl_deadline next_life_look, next_poll;
    bool host_missed;
    ddl_error odd_meet; /* why the record at the place was passed over */
    int64_t written_ns; /* the record there, whose run we asked, or that we have replaced */
    bool has_begun;     /* rank 0: meet names our run */
    bool came_late;     /* entered a run that was settled already */
    bool has_will, settled, failed;
    char first_key[KEY_TEXT]; /* that we have created; "" if none */
    bool is_forged;           /* failed, since nobody of the run has said how it came out */
    ddl_error will, failure;
    struct member *members; /* rank 0 */
    int member_count, member_room;
    char ask_from[ID_TEXT], wills_from[ID_TEXT]; /* rank 0: what has been read of these */
};

static struct store_redis *as_redis(ddl_store *store)
{
    DDL_ASSERT(store->ops == &ddl_store_redis);
    return DDL_CONTAINER(store, struct store_redis, base);
}

/* ---- requests: several commands that go out together ---- */

static ddl_view word(const char *text)
{
    return (ddl_view){ text, strlen(text) };
}

#define ADD(request, ...)                                             \
    ddl_redis_request_add(request, (const ddl_view[]){ __VA_ARGS__ }, \
                          sizeof((const ddl_view[]){ __VA_ARGS__ }) / sizeof(ddl_view))

/* Names of keys. */
struct name {
    char text[NAME_TEXT];
};

static ddl_view name_of(struct name *name, const char *owner, const char *what, const char *item)
{
    int bytes = snprintf(name->text, sizeof name->text, "%s:%s%s", owner, what, item);
    DDL_ASSERT(bytes > 0);
    DDL_ASSERT((size_t)bytes < sizeof name->text);
    return (ddl_view){ name->text, (size_t)bytes };
}

static ddl_view key_name(const struct store_redis *redis, struct name *name, const char *key)
{
    return strcmp(key, DDL_STORE_SETTLED) == 0 ? name_of(name, redis->run, "end", "")
                                               : name_of(name, redis->run, "k:", key);
}

static ddl_view channel_name(const struct store_redis *redis, struct name *name, const char *token)
{
    return name_of(name, redis->prefix, "alive:", token);
}

/* ---- seals ---- */

static ddl_seal seal_of(const struct store_redis *redis)
{
    return (ddl_seal){ redis->self.prover, redis->base.run_id };
}

/* Names under which is sealed what a rank tells rank 0: "will/TOKEN". */
enum { TOLD_NAME = DDL_TOKEN_TEXT + 8 };

static const char *told_name(const char *field, const char *token, char name[TOLD_NAME])
{
    snprintf(name, TOLD_NAME, "%s/%s", field, token);
    return name;
}

/* Whether a rank of this run has said this under this name; what is *value then. */
static bool is_sealed(const struct store_redis *redis, const char *name, ddl_view said, ddl_view *value)
{
    const ddl_seal seal = seal_of(redis);
    return said.data != NULL && ddl_seal_get(&seal, name, said, value, NULL);
}

/* An error, sealed under this name: to be released. Nothing when out of memory. */
static bool seal_error(const struct store_redis *redis, const char *name, const ddl_error *error,
                       ddl_bytes *out)
{
    const ddl_seal seal = seal_of(redis);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    return ddl_seal_put(&seal, redis->self.rank, name,
                        (ddl_view){ value, ddl_store_error_encode(error, value) }, out);
}

/* Set name once, to one field, with our token; and see to its removal. Part of a transaction, its first. */
static void add_create(ddl_redis_request *request, const struct store_redis *redis, ddl_view name,
                       const char *field, ddl_view value)
{
    struct name all;
    ddl_view index = name_of(&all, redis->run, "all", "");
    ADD(request, word("XADD"), name, word("1-1"), word("by"), word(redis->token), word(field), value);
    ADD(request, word("EXPIRE"), name, word(redis->expiry));
    ADD(request, word("SADD"), index, name);
    ADD(request, word("EXPIRE"), index, word(redis->expiry));
}

/* Tell rank 0 our will, which counts once we have set key, or that we need nothing more. Part of a
 * transaction. */
static void add_word_to_host(ddl_redis_request *request, const struct store_redis *redis, const char *field,
                             ddl_view value, const char *key)
{
    const ddl_seal seal = seal_of(redis);
    struct name wills;
    char told[TOLD_NAME];
    ddl_bytes sealed = { 0 };
    ddl_view name = name_of(&wills, redis->run, "wills", "");
    if (!ddl_seal_put(&seal, redis->self.rank, told_name(field, redis->token, told), value, &sealed))
        request->incomplete = true;
    ADD(request, word("XADD"), name, word("*"), word("by"), word(redis->token), word("key"), word(key),
        word(field), ddl_bytes_view(&sealed));
    ddl_bytes_fini(&sealed);
    ADD(request, word("EXPIRE"), name, word(redis->expiry));
}

/* A read of streams, each from behind an id. It waits if block_ms is above 0. */
struct reading {
    ddl_view names[BATCH], ids[BATCH];
    size_t count;
};

static void read_from(struct reading *reading, ddl_view name, const char *id)
{
    reading->names[reading->count] = name;
    reading->ids[reading->count++] = word(id);
}

static void add_read(ddl_redis_request *request, const struct reading *reading, int64_t block_ms)
{
    ddl_view words[6 + 2 * BATCH];
    char block[24], batch[24];
    size_t used = 0;
    snprintf(block, sizeof block, "%lld", (long long)block_ms);
    snprintf(batch, sizeof batch, "%d", BATCH);
    words[used++] = word("XREAD");
    words[used++] = word("COUNT");
    words[used++] = word(batch);
    if (block_ms > 0) {
        words[used++] = word("BLOCK");
        words[used++] = word(block);
        request->block_ms = block_ms;
    }
    words[used++] = word("STREAMS");
    for (size_t i = 0; i < reading->count; i++) {
        words[used + i] = reading->names[i];
        words[used + reading->count + i] = reading->ids[i];
    }
    ddl_redis_request_add(request, words, used + 2 * reading->count);
}

static void add_count_of(ddl_redis_request *request, const struct store_redis *redis, const char *token)
{
    struct name channel;
    ADD(request, word("PUBSUB"), word("NUMSUB"), channel_name(redis, &channel, token));
}

/* ---- replies ---- */

static bool is_text(const ddl_redis_reply *reply, const char *text)
{
    return reply->kind == DDL_REDIS_TEXT && reply->text_bytes == strlen(text) &&
           memcmp(reply->text, text, reply->text_bytes) == 0;
}

/* The entries that a read has found in a stream; *count of them, 0 if none. */
static ddl_redis_reply *const *entries_of(const ddl_redis_reply *reply, const char *name, size_t *count)
{
    *count = 0;
    for (size_t i = 0; reply->kind == DDL_REDIS_ARRAY && i < reply->item_count; i++) {
        const ddl_redis_reply *stream = reply->items[i];
        if (stream->kind == DDL_REDIS_ARRAY && stream->item_count == 2 && is_text(stream->items[0], name) &&
            stream->items[1]->kind == DDL_REDIS_ARRAY) {
            *count = stream->items[1]->item_count;
            return stream->items[1]->items;
        }
    }
    return NULL;
}

/* A field of an entry; data is NULL if it has no such. */
static ddl_view field_of(const ddl_redis_reply *entry, const char *field)
{
    const ddl_redis_reply *fields =
        entry->kind == DDL_REDIS_ARRAY && entry->item_count == 2 ? entry->items[1] : NULL;
    for (size_t i = 0; fields != NULL && fields->kind == DDL_REDIS_ARRAY && i + 1 < fields->item_count;
         i += 2)
        if (is_text(fields->items[i], field) && fields->items[i + 1]->kind == DDL_REDIS_TEXT)
            return (ddl_view){ fields->items[i + 1]->text, fields->items[i + 1]->text_bytes };
    return (ddl_view){ NULL, 0 };
}

/* A token in a field; false if there is none. */
static bool token_of(const ddl_redis_reply *entry, const char *field, char token[DDL_TOKEN_TEXT])
{
    ddl_view view = field_of(entry, field);
    if (view.bytes != DDL_TOKEN_TEXT - 1)
        return false;
    memcpy(token, view.data, view.bytes);
    token[view.bytes] = '\0';
    return ddl_meet_is_token(token);
}

/* What is no id is left alone. */
static void copy_id(const ddl_redis_reply *given, char id[ID_TEXT])
{
    if (given->kind == DDL_REDIS_TEXT && given->text_bytes < ID_TEXT && given->text_bytes > 0 &&
        strspn(given->text, "0123456789-") == given->text_bytes)
        memcpy(id, given->text, given->text_bytes + 1);
}

/* Remember the id of an entry as what has been read. */
static void note_id(const ddl_redis_reply *entry, char id[ID_TEXT])
{
    if (entry->kind == DDL_REDIS_ARRAY && entry->item_count == 2)
        copy_id(entry->items[0], id);
}

/* When Redis gave this id, in ms by its clock; whatever it is. */
static int64_t ms_of_id(const char *id)
{
    int64_t ms = strtoll(id, NULL, 10);
    return ms > 0 ? ms : 0;
}

/* How long after the entry of id that one was added whose id is at index of what EXEC says; below 0:
 * unknown. */
static int64_t ms_after(const char *id, const ddl_redis_reply *done, size_t index)
{
    char added[ID_TEXT] = "";
    if (done->kind == DDL_REDIS_ARRAY && done->item_count > index)
        copy_id(done->items[index], added);
    return added[0] != '\0' ? ms_of_id(added) - ms_of_id(id) : -1;
}

/* How many subscribe to the channel at index of a reply to PUBSUB NUMSUB. */
static bool is_there(const ddl_redis_reply *reply, size_t index)
{
    return reply->kind == DDL_REDIS_ARRAY && reply->item_count > 2 * index + 1 &&
           reply->items[2 * index + 1]->kind == DDL_REDIS_INTEGER && reply->items[2 * index + 1]->integer > 0;
}

/* ---- how the run comes out ---- */

static ddl_status known_failure(const struct store_redis *redis, ddl_error *err)
{
    if (redis->failed && err != NULL)
        *err = redis->failure;
    return redis->failed ? redis->failure.code : DDL_OK;
}

/* What nobody of this run has said ends the run, but is not passed on. */
static void hear_end(struct store_redis *redis, const ddl_redis_reply *entry)
{
    char name[sizeof redis->run + 8];
    ddl_view value;
    redis->settled = is_sealed(redis, DDL_STORE_SETTLED, field_of(entry, "settled"), &value);
    redis->failed = !redis->settled;
    redis->is_forged = redis->failed && (!is_sealed(redis, "failed", field_of(entry, "failed"), &value) ||
                                         ddl_store_error_decode(value, &redis->failure, NULL) != DDL_OK);
    if (!redis->is_forged)
        return;
    snprintf(name, sizeof name, "%s:end", redis->run);
    if (redis->self.prover != NULL)
        (void)ddl_seal_fail(name, ddl_redis_link_where(redis->link), &redis->failure);
    else
        (void)ddl_error_set(&redis->failure, DDL_ESTORE, "Redis at %s: the key %s holds no word of ours",
                            ddl_redis_link_where(redis->link), name);
}

/* Fail the run, unless it is settled or has failed. */
static ddl_status fail_run(struct store_redis *redis, const ddl_error *cause, ddl_deadline deadline,
                           ddl_error *err)
{
    ddl_bytes sealed = { 0 };
    struct name end;
    ddl_redis_request request = { .count = 0 };
    struct reading reading = { .count = 0 };
    ddl_redis_reply *replies[MOST_REPLIES] = { NULL };
    ddl_view name = name_of(&end, redis->run, "end", "");
    request.incomplete = !seal_error(redis, "failed", cause, &sealed);
    ADD(&request, word("MULTI"));
    add_create(&request, redis, name, "failed", ddl_bytes_view(&sealed));
    ADD(&request, word("EXEC"));
    ddl_bytes_fini(&sealed);
    read_from(&reading, name, "0-0");
    add_read(&request, &reading, 0);
    const int commands = request.count;
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, replies, err));
    ddl_status status = ddl_redis_link_check(redis->link, replies, commands, err);
    size_t count;
    ddl_redis_reply *const *entries = entries_of(replies[commands - 1], end.text, &count);
    if (status == DDL_OK && count > 0)
        hear_end(redis, entries[0]);
    if (status == DDL_OK && !redis->failed && !redis->settled)
        status = ddl_redis_link_refused(redis->link, replies[commands - 1], err);
    ddl_redis_link_release(replies, commands);
    return status;
}

/* ---- rank 0: who asks, and who takes part ---- */

/* Echo every rank that asks for this run. */
static ddl_status hear_asks(struct store_redis *redis, ddl_redis_reply *const entries[], size_t count,
                            ddl_error *err)
{
    const ddl_seal seal = seal_of(redis);
    struct name echo, all;
    ddl_bytes sealed = { 0 };
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *replies[3 * BATCH + 3] = { NULL };
    const char *run = redis->run + strlen(redis->prefix) + 1;
    ddl_view index = name_of(&all, redis->run, "all", "");
    ADD(&request, word("MULTI"));
    for (size_t i = 0; i < count && i < BATCH; i++) {
        char asked[DDL_TOKEN_TEXT], token[DDL_TOKEN_TEXT];
        note_id(entries[i], redis->ask_from);
        if (!token_of(entries[i], "run", asked) || strcmp(asked, run) != 0 ||
            !token_of(entries[i], "by", token))
            continue;
        ddl_view name = name_of(&echo, redis->run, "echo:", token);
        request.incomplete = !ddl_meet_echo(&seal, token, &sealed) || request.incomplete;
        ADD(&request, word("XADD"), name, word("1-1"), word("echo"), ddl_bytes_view(&sealed));
        sealed.bytes = 0;
        ADD(&request, word("EXPIRE"), name, word(redis->expiry));
        ADD(&request, word("SADD"), index, name);
    }
    ddl_bytes_fini(&sealed);
    ADD(&request, word("EXPIRE"), index, word(redis->expiry));
    ADD(&request, word("EXEC"));
    const int commands = request.count;
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), replies, err));
    ddl_status status = ddl_redis_link_check(redis->link, replies, commands, err);
    ddl_redis_link_release(replies, commands);
    return status;
}

static struct member *member_of(struct store_redis *redis, const char *token)
{
    for (int i = 0; i < redis->member_count; i++)
        if (strcmp(redis->members[i].token, token) == 0)
            return &redis->members[i];
    if (redis->member_count == redis->member_room)
        return NULL; /* strangers: there are more than ranks that could have come */
    struct member *member = &redis->members[redis->member_count++];
    memcpy(member->token, token, DDL_TOKEN_TEXT);
    return member;
}

/* What nobody of this run has said there is passed over: whoever can write could remove it as well. */
static void hear_will(struct store_redis *redis, const ddl_redis_reply *entry)
{
    char token[DDL_TOKEN_TEXT], name[TOLD_NAME];
    ddl_view will = { NULL, 0 }, nothing;
    note_id(entry, redis->wills_from);
    if (!token_of(entry, "by", token) || strcmp(token, redis->token) == 0)
        return;
    const bool is_done = is_sealed(redis, told_name("done", token, name), field_of(entry, "done"), &nothing);
    if (!is_done && !is_sealed(redis, told_name("will", token, name), field_of(entry, "will"), &will))
        return;
    struct member *member = member_of(redis, token);
    if (member == NULL)
        return;
    ddl_view key = field_of(entry, "key");
    member->is_done = member->is_done || is_done;
    snprintf(member->key, sizeof member->key, "%.*s", key.bytes < KEY_TEXT ? (int)key.bytes : 0,
             (const char *)key.data);
    member->will.bytes = 0;
    if (will.bytes <= DDL_STORE_ERROR_BYTES)
        (void)!ddl_bytes_append(&member->will, will.data, will.bytes);
}

/* Take in what a read of several streams has found beside the value that was waited for. */
static ddl_status hear(struct store_redis *redis, const ddl_redis_reply *reply, ddl_error *err)
{
    struct name name;
    size_t count;
    (void)name_of(&name, redis->run, "end", "");
    ddl_redis_reply *const *entries = entries_of(reply, name.text, &count);
    if (count > 0)
        hear_end(redis, entries[0]);
    if (redis->self.rank != 0)
        return DDL_OK;
    (void)name_of(&name, redis->run, "wills", "");
    entries = entries_of(reply, name.text, &count);
    for (size_t i = 0; i < count; i++)
        hear_will(redis, entries[i]);
    (void)name_of(&name, redis->place, "ask", "");
    entries = entries_of(reply, name.text, &count);
    return count > 0 ? hear_asks(redis, entries, count, err) : DDL_OK;
}

/* ---- who lives ---- */

/* Look for up to BATCH members from *at on; those that are not there are marked as missed, the others not. */
static ddl_status look_for_some(struct store_redis *redis, int *at, ddl_error *err)
{
    ddl_view words[2 + BATCH] = { word("PUBSUB"), word("NUMSUB") };
    struct name channels[BATCH];
    struct member *members[BATCH];
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    size_t count = 0;
    for (; *at < redis->member_count && count < BATCH; (*at)++) {
        if (redis->members[*at].is_done || redis->members[*at].is_gone)
            continue;
        members[count] = &redis->members[*at];
        words[2 + count] = channel_name(redis, &channels[count], members[count]->token);
        count++;
    }
    if (count == 0)
        return DDL_OK;
    ddl_redis_request_add(&request, words, 2 + count);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    for (size_t i = 0; i < count && status == DDL_OK; i++) {
        bool gone = !is_there(reply, i);
        members[i]->is_gone = gone && members[i]->missed && !ddl_redis_link_is_unsteady(redis->link);
        members[i]->missed = gone;
    }
    ddl_redis_link_release(&reply, 1);
    return status;
}

static ddl_status read_meet(struct store_redis *redis, ddl_meet *meet, char id[ID_TEXT], bool *found,
                            ddl_error *err);

/* A newer rank 0 may have taken the place, if our connection was away for long enough. */
static ddl_status check_meet(struct store_redis *redis, ddl_error *err)
{
    ddl_meet meet;
    char id[ID_TEXT];
    bool found;
    DDL_TRY(read_meet(redis, &meet, id, &found, err));
    if (!found)
        return DDL_FAIL(err, DDL_ESTORE, "Redis at %s: %s:meet has been %s",
                        ddl_redis_link_where(redis->link), redis->place,
                        redis->odd_meet.code == DDL_OK
                            ? "removed"
                            : "replaced by what is no record of this version of ddl");
    if (memcmp(meet.host.run_id, redis->base.run_id, DDL_RUN_ID_BYTES) == 0)
        return DDL_OK;
    return DDL_FAIL(err, DDL_ECONFIG,
                    "another rank 0, %s[%d], has taken the meeting place %s; do two jobs share it?%s",
                    meet.host.host, (int)meet.host.pid, redis->place,
                    meet.is_proved ? "" : " That one does not have the secret of this job");
}

/* Whether a member has set the key that its will came with. One that came second has not, and has no say. */
static ddl_status has_a_say(struct store_redis *redis, const struct member *member, bool *has_say,
                            ddl_error *err)
{
    struct name name;
    char owner[DDL_TOKEN_TEXT] = "";
    ddl_redis_request request = { .count = 0 };
    struct reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    size_t count;
    read_from(&reading, key_name(redis, &name, member->key), "0-0");
    add_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    ddl_redis_reply *const *entries = entries_of(reply, name.text, &count);
    *has_say = status == DDL_OK && count > 0 && token_of(entries[0], "by", owner) &&
               strcmp(owner, member->token) == 0;
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Rank 0: execute the will of the first rank that is not there, twice in a row. */
static ddl_status look_for_dead(struct store_redis *redis, ddl_error *err)
{
    DDL_TRY(check_meet(redis, err));
    for (int at = 0; at < redis->member_count;)
        DDL_TRY(look_for_some(redis, &at, err));
    for (int i = 0; i < redis->member_count; i++) {
        struct member *member = &redis->members[i];
        ddl_error will;
        if (member->missed && !member->is_gone)
            redis->next_life_look = ddl_deadline_in_ms(LIFE_AGAIN_MS);
        if (!member->is_gone || member->is_done || member->will.bytes == 0 ||
            ddl_store_error_decode(ddl_bytes_view(&member->will), &will, NULL) != DDL_OK)
            continue;
        bool has_say;
        DDL_TRY(has_a_say(redis, member, &has_say, err));
        member->is_done = !has_say;
        if (!has_say)
            continue;
        DDL_TRY(fail_run(redis, &will, ddl_now_ns(), err));
        return known_failure(redis, err);
    }
    return DDL_OK;
}

static void remove_run(struct store_redis *redis, const char *run);

/* The run is over without a word; what was set in it since rank 0 removed it is removed too. */
static ddl_status report_lost(struct store_redis *redis, ddl_error *err)
{
    redis->base.is_lost = true;
    remove_run(redis, redis->run);
    (void)DDL_FAIL(err, DDL_EPEERLOST,
                   "rank 0 left the meeting place %s at %s before all ranks were connected; look at its "
                   "output",
                   redis->place, ddl_redis_link_where(redis->link));
    return ddl_error_blame(err, 0), DDL_EPEERLOST;
}

/* Rank 0 is gone: fail with its will, if it has left one. Unlike others it leaves the place with its run. */
static ddl_status mourn_host(struct store_redis *redis, ddl_error *err)
{
    struct name wills;
    char from[ID_TEXT] = "0-0";
    ddl_view name = name_of(&wills, redis->run, "wills", "");
    size_t count = BATCH;
    for (int rounds = 0; count == BATCH && rounds < ROUNDS_MOST; rounds++) {
        ddl_redis_request request = { .count = 0 };
        struct reading reading = { .count = 0 };
        ddl_redis_reply *reply = NULL;
        ddl_error will = { .code = DDL_OK };
        read_from(&reading, name, from);
        add_read(&request, &reading, 0);
        DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
        ddl_redis_reply *const *entries = entries_of(reply, wills.text, &count);
        for (size_t i = 0; i < count && will.code == DDL_OK; i++) {
            char token[DDL_TOKEN_TEXT], told[TOLD_NAME];
            ddl_view said;
            note_id(entries[i], from);
            if (!token_of(entries[i], "by", token) || strcmp(token, redis->host_token) != 0 ||
                !is_sealed(redis, told_name("will", token, told), field_of(entries[i], "will"), &said) ||
                ddl_store_error_decode(said, &will, NULL) != DDL_OK)
                will.code = DDL_OK;
        }
        ddl_redis_link_release(&reply, 1);
        if (will.code != DDL_OK) {
            DDL_TRY(fail_run(redis, &will, ddl_now_ns(), err));
            DDL_TRY(known_failure(redis, err));
        }
    }
    return report_lost(redis, err);
}

/* Whether rank 0 is still there. *gone needs two looks in a row, and that we have been connected for long
 * enough. */
static ddl_status look_for_host(struct store_redis *redis, bool *gone, ddl_error *err)
{
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    add_count_of(&request, redis, redis->host_token);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    bool missed = status == DDL_OK && !is_there(reply, 0);
    ddl_redis_link_release(&reply, 1);
    *gone = missed && redis->host_missed && !ddl_redis_link_is_unsteady(redis->link);
    redis->host_missed = missed;
    redis->next_life_look = ddl_deadline_in_ms(missed ? LIFE_AGAIN_MS : LIFE_INTERVAL_MS);
    return status;
}

/* From time to time while we wait: are we still seen, and are the others? */
static ddl_status look_around(struct store_redis *redis, ddl_error *err)
{
    bool gone = false;
    if (redis->settled || !ddl_deadline_passed(redis->next_life_look))
        return DDL_OK;
    redis->next_life_look = ddl_deadline_in_ms(LIFE_INTERVAL_MS);
    DDL_TRY(ddl_redis_link_keep_presence(redis->link, err));
    if (redis->self.rank == 0)
        return look_for_dead(redis, err);
    DDL_TRY(look_for_host(redis, &gone, err));
    return gone ? mourn_host(redis, err) : DDL_OK;
}

/* ---- meeting ---- */

static void name_run(struct store_redis *redis, const uint8_t *run_id)
{
    char text[DDL_RUN_TEXT];
    ddl_meet_hex(run_id, DDL_RUN_ID_BYTES, text);
    memcpy(redis->base.run_id, run_id, DDL_RUN_ID_BYTES);
    snprintf(redis->run, sizeof redis->run, "%s:%s", redis->prefix, text);
}

static const char *where_meet_is(const struct store_redis *redis, char text[WHERE_TEXT])
{
    snprintf(text, WHERE_TEXT, "%s:meet in %s", redis->place, ddl_redis_link_where(redis->link));
    return text;
}

/* What the place says, without waiting. A record that makes no sense is passed over, and why remembered. */
static ddl_status read_meet(struct store_redis *redis, ddl_meet *meet, char id[ID_TEXT], bool *found,
                            ddl_error *err)
{
    struct name name;
    ddl_redis_request request = { .count = 0 };
    struct reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    char where[WHERE_TEXT];
    size_t count;
    snprintf(id, ID_TEXT, "0-0");
    *found = false;
    redis->odd_meet.code = DDL_OK;
    read_from(&reading, name_of(&name, redis->place, "meet", ""), "0-0");
    add_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    ddl_redis_reply *const *entries = entries_of(reply, name.text, &count);
    if (status == DDL_OK && count > 0) {
        ddl_meet got;
        note_id(entries[count - 1], id);
        ddl_status decoded = ddl_meet_decode(&redis->self, field_of(entries[count - 1], "meet"),
                                             where_meet_is(redis, where), &got, &redis->odd_meet);
        *found = decoded == DDL_OK;
        if (decoded == DDL_OK || decoded == DDL_EPROTO)
            *meet = got;
    }
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Ask under the run of meet, whose record has this id. *present: its rank 0 subscribes to its channel;
 * *settled: that run is, or, of another job's, is said to be. */
static ddl_status ask(struct store_redis *redis, const ddl_meet *meet, const char *id, bool *present,
                      bool *settled, ddl_error *err)
{
    struct name asks, end;
    char run[DDL_RUN_TEXT], host[DDL_TOKEN_TEXT], expiry[16], room[16];
    ddl_redis_request request = { .count = 0 };
    struct reading reading = { .count = 0 };
    ddl_redis_reply *replies[6] = { NULL };
    ddl_view name = name_of(&asks, redis->place, "ask", "");
    size_t count;
    name_run(redis, meet->host.run_id);
    ddl_meet_hex(meet->host.run_id, DDL_RUN_ID_BYTES, run);
    ddl_meet_hex(meet->token, DDL_TOKEN_BYTES, host);
    snprintf(expiry, sizeof expiry, "%d", ASK_EXPIRY_S);
    snprintf(room, sizeof room, "%d", DDL_REDIS_ELEMENTS);
    ADD(&request, word("MULTI"));
    ADD(&request, word("XADD"), name, word("MAXLEN"), word("~"), word(room), word("*"), word("run"),
        word(run), word("by"), word(redis->token));
    ADD(&request, word("EXPIRE"), name, word(expiry));
    ADD(&request, word("EXEC"));
    add_count_of(&request, redis, host);
    read_from(&reading, name_of(&end, redis->run, "end", ""), "0-0");
    add_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), replies, err));
    ddl_status status = ddl_redis_link_check(redis->link, replies, 6, err);
    ddl_redis_reply *const *entries = entries_of(replies[5], end.text, &count);
    *present = status == DDL_OK && is_there(replies[4], 0);
    redis->written_ns = ddl_meet_written_ns(status == DDL_OK ? ms_after(id, replies[3], 0) : -1);
    ddl_view said = count > 0 ? field_of(entries[0], "settled") : (ddl_view){ NULL, 0 }, value;
    *settled = meet->is_proved ? is_sealed(redis, DDL_STORE_SETTLED, said, &value) : said.data != NULL;
    ddl_redis_link_release(replies, 6);
    return status;
}

/* Wait for the echo, or for another record at the place than that of this id. *echo, unless NULL, becomes the
 * answer that came: to be released. */
static ddl_status await_echo(struct store_redis *redis, const char *id, bool has_asked, int64_t ms,
                             bool *echoed, ddl_bytes *echo, ddl_error *err)
{
    struct name meet, echo_name;
    ddl_redis_request request = { .count = 0 };
    struct reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL, *const *entries = NULL;
    size_t count = 0;
    read_from(&reading, name_of(&meet, redis->place, "meet", ""), id);
    if (has_asked)
        read_from(&reading, name_of(&echo_name, redis->run, "echo:", redis->token), "0-0");
    add_read(&request, &reading, ms);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    if (has_asked)
        entries = entries_of(reply, echo_name.text, &count);
    *echoed = count > 0;
    if (status == DDL_OK && count > 0 && echo != NULL) {
        ddl_view said = field_of(entries[0], "echo");
        if (!ddl_bytes_append(echo, said.data, said.bytes <= DDL_SEAL_BYTES ? said.bytes : 0))
            status = DDL_FAIL(err, DDL_ENOMEM, "no memory for an answer");
    }
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Remove a run with all its keys; best effort. Only names that belong to it are taken from the index. */
static void remove_run(struct store_redis *redis, const char *run)
{
    struct name all, wills, owner;
    char batch[16];
    ddl_error unwanted;
    ddl_view index = name_of(&all, run, "all", "");
    snprintf(batch, sizeof batch, "%d", BATCH);
    size_t prefix_bytes = name_of(&owner, run, "", "").bytes;
    bool more = true;
    for (int rounds = 0; more && rounds < ROUNDS_MOST; rounds++) {
        ddl_redis_request request = { .count = 0 };
        ddl_redis_reply *reply = NULL;
        ddl_view words[1 + BATCH] = { word("DEL") };
        size_t count = 1;
        ADD(&request, word("SPOP"), index, word(batch));
        if (ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, &unwanted) != DDL_OK)
            return;
        more = reply->kind == DDL_REDIS_ARRAY && reply->item_count > 0;
        for (size_t i = 0; more && i < reply->item_count && count <= BATCH; i++) {
            const ddl_redis_reply *item = reply->items[i];
            if (item->kind == DDL_REDIS_TEXT && item->text_bytes > prefix_bytes &&
                memcmp(item->text, owner.text, prefix_bytes) == 0)
                words[count++] = (ddl_view){ item->text, item->text_bytes };
        }
        ddl_redis_request removal = { .count = 0 };
        ddl_redis_reply *removed = NULL;
        if (!more)
            words[count++] = name_of(&wills, run, "wills", "");
        ddl_redis_request_add(&removal, words, count);
        if (count == 1)
            ddl_bytes_fini(&removal.bytes);
        else if (ddl_redis_link_exchange(redis->link, &removal, ddl_now_ns(), &removed, &unwanted) != DDL_OK)
            more = false;
        ddl_redis_link_release(&reply, 1);
        ddl_redis_link_release(&removed, 1);
    }
}

/* The run that the record of this id names has been found dead, or there is none: put meet in its place,
 * unless that changes meanwhile. */
static ddl_status claim(struct store_redis *redis, const ddl_meet *meet, const char *id, int watched,
                        bool *claimed, ddl_error *err)
{
    struct name meets, asks;
    ddl_bytes record = { 0 };
    ddl_redis_request request = { .once = true };
    ddl_redis_reply *replies[5] = { NULL };
    ddl_view name = name_of(&meets, redis->place, "meet", "");
    *claimed = false;
    if (ddl_redis_link_generation(redis->link) != watched)
        return DDL_OK; /* once more, from the start */
    request.incomplete = !ddl_meet_encode(meet, &record);
    ADD(&request, word("MULTI"));
    ADD(&request, word("DEL"), name, name_of(&asks, redis->place, "ask", ""));
    ADD(&request, word("XADD"), name, word("*"), word("meet"), ddl_bytes_view(&record));
    ddl_bytes_fini(&record);
    ADD(&request, word("EXPIRE"), name, word(redis->expiry));
    ADD(&request, word("EXEC"));
    ddl_status status = ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), replies, err);
    if (status == DDL_ENETWORK)
        return DDL_OK;
    if (status != DDL_OK)
        return status;
    status = ddl_redis_link_check(redis->link, replies, 5, err);
    *claimed = status == DDL_OK && replies[4]->kind == DDL_REDIS_ARRAY;
    redis->written_ns = ddl_meet_written_ns(*claimed ? ms_after(id, replies[4], 1) : -1);
    ddl_redis_link_release(replies, 5);
    return status;
}

static ddl_status watch_meet(struct store_redis *redis, ddl_error *err)
{
    struct name meet;
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    ADD(&request, word("WATCH"), name_of(&meet, redis->place, "meet", ""));
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Whether the rank 0 of meet is there: it echoes, or its run is settled and it has not left. */
static ddl_status is_alive(struct store_redis *redis, const ddl_meet *meet, const char *id, bool *alive,
                           bool *settled, ddl_error *err)
{
    bool present;
    DDL_TRY(ask(redis, meet, id, &present, settled, err));
    *alive = present && *settled;
    if (!present || *alive)
        return DDL_OK;
    DDL_TRY(await_echo(redis, id, true, ECHO_LIMIT_MS, alive, NULL, err));
    if (!*alive) { /* it answers no more once its run is settled, which that may be by now */
        DDL_TRY(ask(redis, meet, id, &present, settled, err));
        *alive = present && *settled;
    }
    return DDL_OK;
}

static ddl_status refuse_second(const struct store_redis *redis, const ddl_meet *meet, bool settled,
                                ddl_error *err)
{
    (void)DDL_FAIL(
        err, DDL_ECONFIG,
        "rank 0 is at %s in %s already: it is %s[%d], and this is %s[%d]; two processes were started with "
        "RANK=0, or two jobs share the place%s%s",
        redis->place, ddl_redis_link_where(redis->link), meet->host.host, (int)meet->host.pid,
        redis->self.host, (int)redis->self.pid,
        meet->is_proved ? "" : "; that one does not have the secret of this job",
        settled ? "; if its host has died, which Redis may not notice for minutes, take another MASTER_PORT"
                : "");
    return ddl_error_blame(err, 0), DDL_ECONFIG;
}

/* The record there is of another version: told at once if its rank 0 is there; else it may be a leftover. */
static ddl_status refuse_other_version(struct store_redis *redis, const ddl_meet *meet, ddl_error *err)
{
    char token[DDL_TOKEN_TEXT];
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    if (redis->odd_meet.code != DDL_EPROTO)
        return DDL_OK;
    ddl_meet_hex(meet->token, DDL_TOKEN_BYTES, token);
    add_count_of(&request, redis, token);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    if (status == DDL_OK && is_there(reply, 0)) {
        *err = redis->odd_meet;
        status = err->code;
    }
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Of a meeting record that was found dead: *same, whether it is still there. */
static ddl_status watch_again(struct store_redis *redis, const char *dead_id, int *watched, bool *same,
                              ddl_error *err)
{
    ddl_meet meet;
    char id[ID_TEXT];
    bool found = false;
    DDL_TRY(watch_meet(redis, err));
    *watched = ddl_redis_link_generation(redis->link);
    DDL_TRY(read_meet(redis, &meet, id, &found, err));
    *same = found && strcmp(id, dead_id) == 0;
    return DDL_OK;
}

static ddl_status begin_run(struct store_redis *redis, const uint8_t token[DDL_TOKEN_BYTES], ddl_error *err)
{
    ddl_meet ours = { .host = redis->self }, meet;
    char id[ID_TEXT], where[WHERE_TEXT];
    bool found = false, is_replaced = false, claimed = false;
    redis->member_room = 4 * redis->self.nranks + BATCH;
    redis->members = ddl_alloc_array((size_t)redis->member_room, sizeof *redis->members);
    if (redis->members == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d ranks", redis->self.nranks);
    DDL_TRY(ddl_host_random(ours.host.run_id, DDL_RUN_ID_BYTES, err));
    memcpy(ours.token, token, DDL_TOKEN_BYTES);
    for (int tries = 0; !claimed; tries++) {
        bool alive = false, settled = false;
        if (tries == CLAIM_TRIES)
            return DDL_FAIL(err, DDL_ESTORE, "Redis at %s: %s:meet changed %d times while it was being taken",
                            ddl_redis_link_where(redis->link), redis->place, tries);
        DDL_TRY(watch_meet(redis, err));
        int watched = ddl_redis_link_generation(redis->link);
        DDL_TRY(read_meet(redis, &meet, id, &found, err));
        if (found && memcmp(meet.host.run_id, ours.host.run_id, DDL_RUN_ID_BYTES) == 0)
            break; /* claimed already, though the reply was lost */
        DDL_TRY(refuse_other_version(redis, &meet, err));
        if (found)
            DDL_TRY(is_alive(redis, &meet, id, &alive, &settled, err));
        if (alive)
            return refuse_second(redis, &meet, settled, err);
        bool same = true;
        if (found) /* that has ended the watch */
            DDL_TRY(watch_again(redis, id, &watched, &same, err));
        is_replaced = found;
        if (same)
            DDL_TRY(claim(redis, &ours, id, watched, &claimed, err));
    }
    if (is_replaced || (claimed && strcmp(id, "0-0") != 0))
        ddl_meet_tell_replaced(where_meet_is(redis, where), redis->written_ns);
    if (is_replaced)
        remove_run(redis, redis->run); /* what the dead left */
    name_run(redis, ours.host.run_id);
    memcpy(redis->host_token, redis->token, DDL_TOKEN_TEXT);
    redis->has_begun = true;
    return DDL_OK;
}

static ddl_status check_host(struct store_redis *redis, const ddl_meet *meet, ddl_error *err)
{
    ddl_error refusal, unwanted;
    ddl_hello_verdict verdict = ddl_meet_check(meet, &redis->self, &refusal);
    if (verdict == DDL_HELLO_WELCOME)
        return DDL_OK;
    if (ddl_hello_ends_run(verdict))
        (void)!fail_run(redis, &refusal, ddl_now_ns(), &unwanted); /* whether or not the others can be told */
    *err = refusal;
    return refusal.code;
}

/* there: what is to be said of a record there whose run does not answer, or that was passed over. */
static ddl_status report_no_host(const struct store_redis *redis, const ddl_meet *meet, int64_t start_ns,
                                 const char *there, ddl_error *err)
{
    (void)DDL_FAIL(
        err, DDL_ETIMEDOUT,
        "rank 0 did not come to the meeting place %s in %s within %.1f s; start rank 0, check that all "
        "ranks have the same DDL_STORE, MASTER_ADDR and MASTER_PORT, or raise DDL_START_TIMEOUT%s%s",
        redis->place, ddl_redis_link_where(redis->link), (double)(ddl_now_ns() - start_ns) / 1e9,
        meet->host.nranks > 0 && !meet->is_proved ? " (a job with another secret was there)" : "", there);
    return ddl_error_blame(err, 0), DDL_ETIMEDOUT;
}

/* What has answered us is rank 0 of this job, and lives. */
static ddl_status hear_echo(const struct store_redis *redis, const ddl_meet *meet, ddl_view echo,
                            ddl_error *err)
{
    const ddl_seal seal = seal_of(redis);
    char place[sizeof redis->place + 300];
    snprintf(place, sizeof place, "%s in %s", redis->place, ddl_redis_link_where(redis->link));
    return ddl_meet_hear_echo(meet, &redis->self, &seal, redis->token, echo, place, err);
}

static ddl_status find_run(struct store_redis *redis, const ddl_store_options *options, ddl_deadline deadline,
                           ddl_error *err)
{
    const int64_t start_ns = ddl_now_ns();
    uint8_t asked[DDL_RUN_ID_BYTES] = { 0 };
    ddl_deadline ask_again = 0;
    ddl_meet meet = { .host = { .rank = 0 } };
    ddl_bytes echo = { 0 };
    bool entered = false, has_asked = false;
    for (;;) {
        char id[ID_TEXT], where[WHERE_TEXT], text[DDL_MEET_SILENT_TEXT];
        bool found, present = false;
        DDL_TRY(read_meet(redis, &meet, id, &found, err));
        DDL_TRY(refuse_other_version(redis, &meet, err));
        if (found &&
            (memcmp(asked, meet.host.run_id, DDL_RUN_ID_BYTES) != 0 || ddl_deadline_passed(ask_again))) {
            DDL_TRY(ask(redis, &meet, id, &present, &redis->came_late, err));
            redis->came_late = entered = present && redis->came_late && meet.is_proved;
            memcpy(asked, meet.host.run_id, DDL_RUN_ID_BYTES);
            ask_again = ddl_deadline_in_ms(present ? SLICE_MS : ASK_AGAIN_MS); /* may have settled just now */
            has_asked = true;
        }
        int64_t left_ms = ddl_deadline_left_ms(deadline);
        if (!entered && left_ms > 0)
            DDL_TRY(await_echo(redis, id, has_asked, left_ms < SLICE_MS ? left_ms : SLICE_MS, &entered, &echo,
                               err));
        if (entered)
            break;
        const char *there = found ? ddl_meet_tell_silent(where_meet_is(redis, where), redis->written_ns, text)
                                  : ddl_meet_tell_odd(&redis->odd_meet, text);
        if (ddl_deadline_passed(deadline))
            return report_no_host(redis, &meet, start_ns, there, err);
        DDL_TRY(ddl_redis_link_keep_presence(redis->link, err));
        ddl_progress_tell(options->progress, "rank 0 at %s in %s%s", redis->place,
                          ddl_redis_link_where(redis->link), there);
    }
    ddl_status status = redis->came_late ? DDL_OK : hear_echo(redis, &meet, ddl_bytes_view(&echo), err);
    ddl_bytes_fini(&echo);
    DDL_TRY(status);
    ddl_meet_hex(meet.token, DDL_TOKEN_BYTES, redis->host_token);
    return check_host(redis, &meet, err);
}

/* ---- opening ---- */

/* Keys outlast the start-up by an hour. */
static void choose_expiry(struct store_redis *redis, ddl_deadline deadline)
{
    snprintf(redis->expiry, sizeof redis->expiry, "%d", EXPIRY_S + ddl_deadline_left_ms(deadline) / 1000);
}

static void redis_destroy(ddl_store *store, ddl_deadline deadline);

static ddl_status open_place(struct store_redis *redis, const ddl_store_options *options, const char *rest,
                             bool is_tls, ddl_deadline deadline, ddl_error *err)
{
    uint8_t token[DDL_TOKEN_BYTES];
    ddl_redis_url url;
    struct name channel;
    DDL_TRY(ddl_redis_url_parse(rest, is_tls, &url, err));
    url.must_be_private = options->encryption != NULL;
    memcpy(redis->prefix, url.prefix, sizeof redis->prefix);
    if ((size_t)snprintf(redis->place, sizeof redis->place, "%s:%s", url.prefix, options->place) >=
        sizeof redis->place)
        return DDL_FAIL(err, DDL_ECONFIG, "MASTER_ADDR is too long for a store");
    DDL_TRY(ddl_host_random(token, sizeof token, err));
    ddl_meet_hex(token, sizeof token, redis->token);
    (void)channel_name(redis, &channel, redis->token);
    choose_expiry(redis, deadline);
    DDL_TRY(ddl_redis_link_create(&url, channel.text, redis->base.held, deadline, &redis->link, err));
    ddl_redis_link_address(redis->link, redis->base.address, sizeof redis->base.address);
    DDL_TRY(redis->self.rank == 0 ? begin_run(redis, token, err) : find_run(redis, options, deadline, err));
    redis->next_life_look = ddl_deadline_in_ms(LIFE_INTERVAL_MS);
    return DDL_OK;
}

static ddl_status open_store(const ddl_store_options *options, const char *rest, bool is_tls,
                             ddl_deadline deadline, ddl_store **out, ddl_error *err)
{
    ddl_error unwanted;
    struct store_redis *redis = ddl_alloc(sizeof *redis);
    if (redis == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a store");
    redis->base.ops = &ddl_store_redis;
    redis->base.held[0] = redis->base.held[1] = -1;
    redis->self = *options->self;
    snprintf(redis->ask_from, sizeof redis->ask_from, "0-0");
    snprintf(redis->wills_from, sizeof redis->wills_from, "0-0");
    ddl_status status = open_place(redis, options, rest, is_tls, deadline, err != NULL ? err : &unwanted);
    if (status != DDL_OK) {
        redis_destroy(&redis->base, ddl_now_ns());
        return status;
    }
    *out = &redis->base;
    return DDL_OK;
}

static ddl_status redis_open(const ddl_store_options *options, const char *rest, ddl_deadline deadline,
                             ddl_store **store, ddl_error *err)
{
    return open_store(options, rest, false, deadline, store, err);
}

static ddl_status rediss_open(const ddl_store_options *options, const char *rest, ddl_deadline deadline,
                              ddl_store **store, ddl_error *err)
{
    return open_store(options, rest, true, deadline, store, err);
}

/* ---- requests of the store's callers ---- */

static ddl_status tell_host(struct store_redis *redis, const char *field, ddl_view value,
                            ddl_deadline deadline, ddl_error *err)
{
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *replies[MOST_REPLIES] = { NULL };
    ADD(&request, word("MULTI"));
    add_word_to_host(&request, redis, field, value, redis->first_key);
    ADD(&request, word("EXEC"));
    const int commands = request.count;
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, replies, err));
    ddl_status status = ddl_redis_link_check(redis->link, replies, commands, err);
    ddl_redis_link_release(replies, commands);
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

/* The value that an entry of a key's stream holds. */
static ddl_status value_of(const struct store_redis *redis, const ddl_redis_reply *entry, const char *key,
                           ddl_bytes *value, ddl_error *err)
{
    ddl_view said = field_of(entry, strcmp(key, DDL_STORE_SETTLED) == 0 ? "settled" : "value");
    if (said.data == NULL || said.bytes > DDL_STORE_ROSTER_LIMIT + DDL_STORE_SEAL_ROOM)
        return DDL_FAIL(err, DDL_ESTORE, "Redis at %s: the key %s of this run holds no value of ours",
                        ddl_redis_link_where(redis->link), key);
    return copy_value(said, value, err);
}

/* The key is there: who set it, and is that one still there? *outcome is as it was if the key is not there.
 */
static ddl_status read_existing(struct store_redis *redis, const char *key, bool repeated,
                                ddl_deadline deadline, ddl_store_outcome *outcome, ddl_bytes *existing,
                                bool *found, ddl_error *err)
{
    struct name name;
    char owner[DDL_TOKEN_TEXT] = "";
    ddl_redis_request request = { .count = 0 }, count_of = { .count = 0 };
    struct reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL, *there = NULL;
    size_t count;
    read_from(&reading, key_name(redis, &name, key), "0-0");
    add_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, &reply, err));
    ddl_redis_reply *const *entries = entries_of(reply, name.text, &count);
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    *found = status == DDL_OK && count > 0;
    if (*found && token_of(entries[0], "by", owner) && repeated && strcmp(owner, redis->token) == 0)
        *outcome = DDL_STORE_CREATED; /* by ourselves, and the answer was lost */
    else if (*found) {
        if (strcmp(key, DDL_STORE_SETTLED) == 0)
            hear_end(redis, entries[0]);
        if ((status = known_failure(redis, err)) == DDL_OK)
            status = value_of(redis, entries[0], key, existing, err);
        add_count_of(&count_of, redis, owner);
        if (status == DDL_OK)
            status = ddl_redis_link_exchange(redis->link, &count_of, deadline, &there, err);
        if (status == DDL_OK)
            *outcome = is_there(there, 0) ? DDL_STORE_TAKEN : DDL_STORE_ABANDONED;
        else
            ddl_bytes_fini(&count_of.bytes);
    }
    ddl_redis_link_release(&reply, 1);
    ddl_redis_link_release(&there, 1);
    return status;
}

/* Rank 0 seems to have left: look a moment later whether that is so. */
static ddl_status look_twice_for_host(struct store_redis *redis, bool *gone, ddl_error *err)
{
    redis->host_missed = true;
    (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(LIFE_AGAIN_MS));
    return look_for_host(redis, gone, err);
}

/* What we have set may be in a run that was over before. */
static ddl_status leave_old_run(struct store_redis *redis, ddl_error *err)
{
    bool gone = false;
    DDL_TRY(look_twice_for_host(redis, &gone, err));
    if (!gone)
        return DDL_OK;
    return mourn_host(redis, err);
}

/* The run was settled when we came: whoever has our number is in it, unless the run is just being removed. */
static ddl_status come_late(struct store_redis *redis, const char *key, ddl_deadline deadline,
                            ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    bool found = false, gone = false;
    DDL_TRY(read_existing(redis, key, false, deadline, outcome, existing, &found, err));
    if (found)
        return DDL_OK;
    DDL_TRY(look_twice_for_host(redis, &gone, err));
    if (gone)
        return report_lost(redis, err);
    return DDL_FAIL(err, DDL_ECONFIG, "the run at %s in %s is complete: all its ranks are connected",
                    redis->place, ddl_redis_link_where(redis->link));
}

static ddl_status set_new(struct store_redis *redis, const char *key, ddl_view value, ddl_deadline deadline,
                          ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    struct name name;
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *replies[MOST_REPLIES] = { NULL };
    struct reading reading = { .count = 0 };
    struct name end;
    uint8_t will[DDL_STORE_ERROR_BYTES];
    bool found = false;
    const bool settles = strcmp(key, DDL_STORE_SETTLED) == 0;
    DDL_TRY(known_failure(redis, err));
    if (redis->came_late)
        return come_late(redis, key, deadline, outcome, existing, err);
    ADD(&request, word("MULTI"));
    add_create(&request, redis, key_name(redis, &name, key), settles ? "settled" : "value", value);
    if (redis->has_will && redis->first_key[0] == '\0') /* who dies before the next request has a will */
        add_word_to_host(&request, redis, "will",
                         (ddl_view){ will, ddl_store_error_encode(&redis->will, will) }, key);
    ADD(&request, word("EXEC"));
    const int exec = request.count - 1;
    add_count_of(&request, redis, redis->host_token);
    read_from(&reading, name_of(&end, redis->run, "end", ""), "0-0");
    add_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, replies, err));
    const bool repeated = request.repeated;
    ddl_status status = ddl_redis_link_check(redis->link, replies, exec + 3, err);
    const ddl_redis_reply *done = replies[exec];
    bool created = false, host_there = false;
    if (status == DDL_OK && (done->kind != DDL_REDIS_ARRAY || done->item_count == 0))
        status = ddl_redis_link_refused(redis->link, done, err);
    if (status == DDL_OK) {
        created = done->items[0]->kind == DDL_REDIS_TEXT;
        host_there = is_there(replies[exec + 1], 0);
        status = hear(redis, replies[exec + 2], err);
    }
    if (status == DDL_OK)
        status = known_failure(redis, err);
    if (status == DDL_OK && !created)
        status = read_existing(redis, key, repeated, deadline, outcome, existing, &found, err);
    if (status == DDL_OK && !created && !found)
        status = ddl_redis_link_refused(redis->link, done->items[0], err);
    ddl_redis_link_release(replies, exec + 3);
    DDL_TRY(status);
    if (created)
        *outcome = DDL_STORE_CREATED;
    if (*outcome != DDL_STORE_CREATED)
        return DDL_OK;
    if (!host_there && !redis->settled)
        DDL_TRY(leave_old_run(redis, err));
    if (redis->first_key[0] == '\0')
        snprintf(redis->first_key, sizeof redis->first_key, "%s", key);
    return DDL_OK;
}

static ddl_status redis_set_new(ddl_store *store, const char *key, ddl_view value, ddl_deadline deadline,
                                ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    return set_new(as_redis(store), key, value, deadline, outcome, existing, err);
}

/* What everybody listens to beside what he waits for. */
static void read_news(struct store_redis *redis, struct reading *reading, struct name names[3])
{
    if (redis->settled)
        return;
    read_from(reading, name_of(&names[0], redis->run, "end", ""), "0-0");
    if (redis->self.rank == 0) {
        read_from(reading, name_of(&names[1], redis->place, "ask", ""), redis->ask_from);
        read_from(reading, name_of(&names[2], redis->run, "wills", ""), redis->wills_from);
    }
}

/* Wait for key up to block_ms, or look once if that is 0; hear what else is said. */
static ddl_status await_key(struct store_redis *redis, const char *key, int64_t block_ms,
                            ddl_deadline deadline, ddl_bytes *value, bool *found, ddl_error *err)
{
    struct name name, news[3];
    ddl_redis_request request = { .count = 0 };
    struct reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    size_t count;
    const bool settles = strcmp(key, DDL_STORE_SETTLED) == 0;
    (void)key_name(redis, &name, key);
    if (!settles || redis->settled)
        read_from(&reading, word(name.text), "0-0");
    read_news(redis, &reading, news);
    add_read(&request, &reading, block_ms);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    if (status == DDL_OK)
        status = hear(redis, reply, err);
    if (status == DDL_OK)
        status = known_failure(redis, err);
    ddl_redis_reply *const *entries = entries_of(reply, name.text, &count);
    *found = status == DDL_OK && count > 0;
    if (*found)
        status = value_of(redis, entries[0], key, value, err);
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Rank 0 need not wait for us, and Redis need not keep what we ask on. */
static void hear_settled(struct store_redis *redis, ddl_deadline deadline)
{
    if (redis->self.rank == 0)
        return;
    ddl_error unwanted; /* a courtesy: the run is settled, and cannot fail any more */
    if (redis->first_key[0] != '\0')
        (void)!tell_host(redis, "done", (ddl_view){ "", 0 }, deadline, &unwanted);
    ddl_redis_link_rest(redis->link);
}

/* How long to wait at a time: 0 once the deadline has passed. */
static int64_t slice_ms(const struct store_redis *redis, ddl_deadline deadline)
{
    int64_t left_ms = ddl_deadline_left_ms(deadline);
    int64_t look_ms = redis->settled ? SLICE_MS : ddl_deadline_left_ms(redis->next_life_look) + 1;
    int64_t slice = look_ms < SLICE_MS ? look_ms : SLICE_MS;
    return left_ms < slice ? left_ms : slice;
}

static ddl_status redis_get(ddl_store *store, const char *key, ddl_deadline deadline, ddl_bytes *value,
                            ddl_error *err)
{
    struct store_redis *redis = as_redis(store);
    ddl_bytes got = { 0 };
    for (bool found = false; !found;) {
        DDL_TRY(known_failure(redis, err));
        DDL_TRY(look_around(redis, err));
        int64_t block_ms = slice_ms(redis, deadline);
        DDL_TRY(await_key(redis, key, block_ms, deadline, &got, &found, err));
        if (!found && block_ms == 0)
            return DDL_FAIL(err, DDL_ETIMEDOUT, "%s was not set in the store %s", key,
                            ddl_redis_link_where(redis->link));
    }
    if (strcmp(key, DDL_STORE_SETTLED) == 0)
        hear_settled(redis, deadline);
    *value = got;
    return DDL_OK;
}

static ddl_status take_key(const struct store_redis *redis, const ddl_store_many *many, int rank,
                           const ddl_redis_reply *entry, ddl_error *err)
{
    char key[DDL_STORE_NAME_BYTES];
    ddl_bytes sealed = { 0 };
    ddl_store_name(many, rank, key);
    DDL_TRY(value_of(redis, entry, key, &sealed, err));
    ddl_status status = ddl_store_found(&redis->base, many, rank, ddl_bytes_view(&sealed), err);
    ddl_bytes_fini(&sealed);
    return status;
}

/* Look for those keys that are missing, several with each request. */
static ddl_status look_for_keys(struct store_redis *redis, const ddl_store_many *many, ddl_deadline deadline,
                                ddl_error *err)
{
    for (int at = 0; at < many->count;) {
        struct name names[BATCH];
        int ranks[BATCH];
        ddl_redis_request request = { .count = 0 };
        struct reading reading = { .count = 0 };
        ddl_redis_reply *reply = NULL;
        for (; at < many->count && reading.count < BATCH; at++) {
            char key[DDL_STORE_NAME_BYTES];
            if (many->present[at])
                continue;
            ddl_store_name(many, at, key);
            ranks[reading.count] = at;
            read_from(&reading, key_name(redis, &names[reading.count], key), "0-0");
        }
        if (reading.count == 0)
            return DDL_OK;
        add_read(&request, &reading, 0);
        DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, &reply, err));
        ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
        for (size_t i = 0; i < reading.count && status == DDL_OK; i++) {
            size_t count;
            ddl_redis_reply *const *entries = entries_of(reply, names[i].text, &count);
            if (count > 0)
                status = take_key(redis, many, ranks[i], entries[0], err);
        }
        ddl_redis_link_release(&reply, 1);
        DDL_TRY(status);
    }
    return DDL_OK;
}

static int last_missing(const ddl_store_many *many)
{
    int rank = many->count - 1;
    while (rank >= 0 && many->present[rank])
        rank--;
    return rank;
}

/* Who is waited for is the last one that is missing, as ranks are mostly started in order: the others have
 * come meanwhile. */
static ddl_status redis_get_many(ddl_store *store, const ddl_store_many *many, ddl_deadline deadline,
                                 ddl_error *err)
{
    struct store_redis *redis = as_redis(store);
    for (int rank; (rank = last_missing(many)) >= 0;) {
        char key[DDL_STORE_NAME_BYTES];
        ddl_bytes sealed = { 0 };
        ddl_store_name(many, rank, key);
        ddl_status status = redis_get(store, key, deadline, &sealed, err);
        if (status == DDL_OK)
            status = ddl_store_found(store, many, rank, ddl_bytes_view(&sealed), err);
        ddl_bytes_fini(&sealed);
        if (status != DDL_OK && status != DDL_ETIMEDOUT)
            return status;
        DDL_TRY(look_for_keys(redis, many, deadline, err));
        if (status == DDL_ETIMEDOUT && last_missing(many) >= 0)
            return status;
    }
    return DDL_OK;
}

static ddl_status redis_will(ddl_store *store, const ddl_error *will, ddl_deadline deadline, ddl_error *err)
{
    struct store_redis *redis = as_redis(store);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    DDL_TRY(known_failure(redis, err));
    redis->will = *will;
    redis->has_will = true;
    if (redis->first_key[0] == '\0')
        return DDL_OK; /* it is told with the first key */
    return tell_host(redis, "will", (ddl_view){ value, ddl_store_error_encode(will, value) }, deadline, err);
}

static ddl_status redis_fail(ddl_store *store, const ddl_error *cause, ddl_deadline deadline,
                             ddl_error *first)
{
    struct store_redis *redis = as_redis(store);
    ddl_error unwanted;
    ddl_redis_link_hurry(redis->link, deadline);
    if (redis->base.is_lost)
        return DDL_ESTORE; /* nobody is there to be told */
    if (!redis->failed)
        DDL_TRY(fail_run(redis, cause, deadline, &unwanted));
    *first = redis->failed && !redis->is_forged ? redis->failure : *cause;
    return DDL_OK;
}

/* ---- looking without waiting ---- */

static ddl_status redis_check(ddl_store *store, ddl_error *err)
{
    struct store_redis *redis = as_redis(store);
    struct name news[3];
    ddl_redis_request request = { .count = 0 };
    struct reading reading = { .count = 0 };
    if (redis->self.rank != 0) /* of whom others ask that have not heard of it */
        DDL_TRY(known_failure(redis, err));
    if (redis->settled)
        return DDL_OK;
    ddl_redis_reply *reply = ddl_redis_link_collect(redis->link);
    if (reply != NULL) {
        ddl_status status = hear(redis, reply, err);
        ddl_redis_reply_destroy(reply);
        DDL_TRY(status);
        DDL_TRY(known_failure(redis, err));
    }
    if (ddl_deadline_passed(redis->next_poll) && ddl_redis_link_is_idle(redis->link)) {
        redis->next_poll = ddl_deadline_in_ms(POLL_INTERVAL_MS);
        read_news(redis, &reading, news);
        add_read(&request, &reading, 0);
        ddl_redis_link_post(redis->link, &request);
    }
    /* Others look twice within LIFE_AGAIN_MS before they take us for dead, so we look oftener than that. */
    DDL_TRY(ddl_redis_link_keep_presence(redis->link, err));
    DDL_TRY(look_around(redis, err)); /* also for a server that stalls, or a connection that broke */
    return known_failure(redis, err);
}

/* ---- closing ---- */

/* Whether nobody else has to hear anything more: all know that the run is settled, or have left. */
static ddl_status all_know(struct store_redis *redis, int64_t block_ms, bool *all, ddl_error *err)
{
    struct name wills;
    ddl_redis_request request = { .count = 0 };
    struct reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    read_from(&reading, name_of(&wills, redis->run, "wills", ""), redis->wills_from);
    add_read(&request, &reading, block_ms);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    size_t count;
    ddl_redis_reply *const *entries = entries_of(reply, wills.text, &count);
    for (size_t i = 0; i < count; i++)
        hear_will(redis, entries[i]);
    ddl_redis_link_release(&reply, 1);
    *all = status == DDL_OK && count < BATCH;
    for (int at = 0; at < redis->member_count && status == DDL_OK;)
        status = look_for_some(redis, &at, err);
    for (int i = 0; i < redis->member_count; i++)
        *all = *all && (redis->members[i].is_done || redis->members[i].missed);
    return status;
}

static bool still_ours(struct store_redis *redis)
{
    ddl_meet meet;
    ddl_error unwanted;
    char id[ID_TEXT];
    bool found = false;
    return watch_meet(redis, &unwanted) == DDL_OK &&
           read_meet(redis, &meet, id, &found, &unwanted) == DDL_OK && found &&
           memcmp(meet.host.run_id, redis->base.run_id, DDL_RUN_ID_BYTES) == 0;
}

static void close_place(struct store_redis *redis, ddl_deadline deadline)
{
    struct name meet, asks;
    ddl_error unwanted;
    bool all = false;
    for (int64_t block_ms = 0; !all && all_know(redis, block_ms, &all, &unwanted) == DDL_OK; block_ms = 20)
        if (ddl_deadline_passed(deadline))
            break;
    remove_run(redis, redis->run);
    if (!still_ours(redis))
        return;
    ddl_redis_request request = { .once = true };
    ddl_redis_reply *replies[3] = { NULL };
    ADD(&request, word("MULTI"));
    ADD(&request, word("DEL"), name_of(&meet, redis->place, "meet", ""),
        name_of(&asks, redis->place, "ask", ""));
    ADD(&request, word("EXEC"));
    if (ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), replies, &unwanted) == DDL_OK)
        ddl_redis_link_release(replies, 3);
}

static void redis_destroy(ddl_store *store, ddl_deadline deadline)
{
    struct store_redis *redis = as_redis(store);
    ddl_error unwanted;
    if (redis->link != NULL && redis->settled)
        ddl_redis_link_started(redis->link);
    if (redis->link != NULL)
        ddl_redis_link_hurry(redis->link, deadline);
    if (redis->has_will && redis->first_key[0] != '\0' && !redis->failed && !redis->settled &&
        !redis->base.is_lost)
        (void)!fail_run(redis, &redis->will, deadline,
                        &unwanted); /* nobody is left to tell if that does not work */
    if (redis->has_begun)
        close_place(redis, deadline);
    ddl_redis_link_destroy(redis->link);
    for (int i = 0; i < redis->member_count; i++)
        ddl_bytes_fini(&redis->members[i].will);
    ddl_free(redis->members);
    ddl_free(redis);
}

const struct ddl_store_ops ddl_store_redis = {
    .scheme = "redis",
    .form = "host:port",
    .outlives = true,
    .open = redis_open,
    .set_new = redis_set_new,
    .get = redis_get,
    .get_many = redis_get_many,
    .will = redis_will,
    .fail = redis_fail,
    .check = redis_check,
    .destroy = redis_destroy,
};

/* Only opens; what it opens is a ddl_store_redis. */
const struct ddl_store_ops ddl_store_rediss = { .scheme = "rediss",
                                                .form = "host:port",
                                                .open = rediss_open };
