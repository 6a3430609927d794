/*
 * store_redis.c - a store in a Redis server that all hosts reach: redis://host:port, rediss:// with TLS.
 *
 *     P:PLACE:meet       which run is on, written by rank 0; PLACE is MASTER_ADDR:MASTER_PORT
 *     P:PLACE:ask        "are you there?", from ranks that have read meet
 *     P:PLACE:try:TOKEN  gone in the same moment: whether the server takes writes at all
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
#include "rendezvous/store_redis_life.h"
#include "rendezvous/store_redis_meeting.h"

#include <stdio.h>
#include <string.h>

enum {
    POLL_INTERVAL_MS = 100, /* between looks at how the run comes out, while the mesh is made */
    EXPIRY_S = 3600,
};

static ddl_redis_run *as_redis(ddl_store *store)
{
    DDL_ASSERT(store->ops == &ddl_store_redis);
    return DDL_CONTAINER(store, ddl_redis_run, base);
}

/* ---- opening ---- */

/* Keys outlast the start-up by an hour. */
static void choose_expiry(ddl_redis_run *redis, ddl_deadline deadline)
{
    snprintf(redis->expiry, sizeof redis->expiry, "%d", EXPIRY_S + ddl_deadline_left_ms(deadline) / 1000);
}

static void redis_destroy(ddl_store *store, ddl_deadline deadline);

static ddl_status open_place(ddl_redis_run *redis, const ddl_store_options *options, const char *rest,
                             bool is_tls, ddl_deadline deadline, ddl_error *err)
{
    uint8_t token[DDL_TOKEN_BYTES];
    ddl_redis_url url;
    ddl_redis_name channel;
    DDL_TRY(ddl_redis_url_parse(rest, is_tls, &url, err));
    url.must_be_private = options->encryption != NULL;
    memcpy(redis->prefix, url.prefix, sizeof redis->prefix);
    if ((size_t)snprintf(redis->place, sizeof redis->place, "%s:%s", url.prefix, options->place) >=
        sizeof redis->place)
        return DDL_FAIL(err, DDL_ECONFIG, "MASTER_ADDR is too long for a store");
    DDL_TRY(ddl_host_random(token, sizeof token, err));
    ddl_meet_hex(token, sizeof token, redis->token);
    (void)ddl_redis_run_channel(redis, &channel, redis->token);
    choose_expiry(redis, deadline);
    const ddl_status status =
        ddl_redis_link_create(&url, channel.text, redis->base.held, deadline, &redis->link, err);
    if (status == DDL_ETIMEDOUT) /* a file of this rank's */
        (void)ddl_error_blame(err, redis->self.rank);
    DDL_TRY(status);
    ddl_redis_link_address(redis->link, redis->base.address, sizeof redis->base.address);
    if (redis->self.rank == 0)
        DDL_TRY(ddl_redis_life_init(redis, err));
    DDL_TRY(redis->self.rank == 0 ? ddl_redis_meeting_begin(redis, token, err)
                                  : ddl_redis_meeting_find(redis, options, deadline, err));
    redis->next_life_look = ddl_deadline_in_ms(DDL_REDIS_LIFE_INTERVAL_MS);
    return DDL_OK;
}

static ddl_status open_store(const ddl_store_options *options, const char *rest, bool is_tls,
                             ddl_deadline deadline, ddl_store **out, ddl_error *err)
{
    ddl_error unwanted;
    ddl_redis_run *redis = ddl_alloc(sizeof *redis);
    if (redis == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a store");
    redis->base.ops = &ddl_store_redis;
    redis->base.held[0] = redis->base.held[1] = -1;
    redis->self = *options->self;
    redis->is_modest = options->is_modest;
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

/* Take in what a read of several streams has found beside the value that was waited for. */
static ddl_status hear(ddl_redis_run *redis, const ddl_redis_reply *reply, ddl_error *err)
{
    ddl_redis_name name;
    size_t count;
    (void)ddl_redis_name_of(&name, redis->run, "end", "");
    ddl_redis_reply *const *entries = ddl_redis_entries_of(reply, name.text, &count);
    if (count > 0)
        ddl_redis_run_hear_end(redis, entries[0]);
    if (redis->self.rank != 0)
        return DDL_OK;
    (void)ddl_redis_name_of(&name, redis->run, "wills", "");
    entries = ddl_redis_entries_of(reply, name.text, &count);
    for (size_t i = 0; i < count; i++)
        ddl_redis_life_hear_will(redis, entries[i]);
    (void)ddl_redis_name_of(&name, redis->place, "ask", "");
    entries = ddl_redis_entries_of(reply, name.text, &count);
    return count > 0 ? ddl_redis_meeting_hear_asks(redis, entries, count, err) : DDL_OK;
}

static ddl_status tell_host(ddl_redis_run *redis, const char *field, ddl_view value, ddl_deadline deadline,
                            ddl_error *err)
{
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *replies[DDL_REDIS_MOST_REPLIES] = { NULL };
    DDL_REDIS_ADD(&request, ddl_redis_word("MULTI"));
    ddl_redis_run_tell(&request, redis, field, value, redis->first_key);
    DDL_REDIS_ADD(&request, ddl_redis_word("EXEC"));
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
static ddl_status value_of(const ddl_redis_run *redis, const ddl_redis_reply *entry, const char *key,
                           ddl_bytes *value, ddl_error *err)
{
    ddl_view said = ddl_redis_field_of(entry, strcmp(key, DDL_STORE_SETTLED) == 0 ? "settled" : "value");
    if (said.data == NULL || said.bytes > DDL_STORE_ROSTER_LIMIT + DDL_STORE_SEAL_ROOM)
        return DDL_FAIL(err, DDL_ESTORE, "Redis at %s: the key %s of this run holds no value of ours",
                        ddl_redis_link_where(redis->link), key);
    return copy_value(said, value, err);
}

/* The key is there: who set it, and is that one still there? *outcome is as it was if the key is not there.
 */
static ddl_status read_existing(ddl_redis_run *redis, const char *key, bool repeated, ddl_deadline deadline,
                                ddl_store_outcome *outcome, ddl_bytes *existing, bool *found, ddl_error *err)
{
    ddl_redis_name name;
    char owner[DDL_TOKEN_TEXT] = "";
    ddl_redis_request request = { .count = 0 }, count_of = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL, *there = NULL;
    size_t count;
    ddl_redis_reading_add(&reading, ddl_redis_run_key(redis, &name, key), "0-0");
    ddl_redis_request_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, &reply, err));
    ddl_redis_reply *const *entries = ddl_redis_entries_of(reply, name.text, &count);
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    *found = status == DDL_OK && count > 0;
    if (*found && ddl_redis_token_of(entries[0], "by", owner) && repeated && strcmp(owner, redis->token) == 0)
        *outcome = DDL_STORE_CREATED; /* by ourselves, and the answer was lost */
    else if (*found) {
        if (strcmp(key, DDL_STORE_SETTLED) == 0)
            ddl_redis_run_hear_end(redis, entries[0]);
        if ((status = ddl_redis_run_failure(redis, err)) == DDL_OK)
            status = value_of(redis, entries[0], key, existing, err);
        ddl_redis_run_count(&count_of, redis, owner);
        if (status == DDL_OK)
            status = ddl_redis_link_exchange(redis->link, &count_of, deadline, &there, err);
        if (status == DDL_OK)
            *outcome = ddl_redis_is_there(there, 0) ? DDL_STORE_TAKEN : DDL_STORE_ABANDONED;
        else
            ddl_bytes_fini(&count_of.bytes);
    }
    ddl_redis_link_release(&reply, 1);
    ddl_redis_link_release(&there, 1);
    return status;
}

/* What we have set may be in a run that was over before. */
static ddl_status leave_old_run(ddl_redis_run *redis, ddl_error *err)
{
    bool gone = false;
    DDL_TRY(ddl_redis_life_look_twice(redis, &gone, err));
    if (!gone)
        return DDL_OK;
    return ddl_redis_life_mourn(redis, err);
}

/* The run was settled when we came: whoever has our number is in it, unless the run is just being removed. */
static ddl_status come_late(ddl_redis_run *redis, const char *key, ddl_deadline deadline,
                            ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    bool found = false, gone = false;
    DDL_TRY(read_existing(redis, key, false, deadline, outcome, existing, &found, err));
    if (found)
        return DDL_OK;
    DDL_TRY(ddl_redis_life_look_twice(redis, &gone, err));
    if (gone)
        return ddl_redis_life_report_lost(redis, err);
    return DDL_FAIL(err, DDL_ECONFIG, "the run at %s in %s is complete: all its ranks are connected",
                    redis->place, ddl_redis_link_where(redis->link));
}

/* What Redis has said to the creation of a key. */
struct creation {
    bool created;
    bool repeated;              /* the key may be there by an earlier try */
    bool host_there;            /* rank 0 takes part in the run */
    ddl_redis_reply *commanded; /* what came of each command of the transaction; to be destroyed */
};

/* The key, and with the first one the will, so that who dies before the next request has one. */
static void request_creation(ddl_redis_request *request, ddl_redis_run *redis, const char *key,
                             ddl_view value)
{
    ddl_redis_name name;
    uint8_t will[DDL_STORE_ERROR_BYTES];
    const bool settles = strcmp(key, DDL_STORE_SETTLED) == 0;
    DDL_REDIS_ADD(request, ddl_redis_word("MULTI"));
    ddl_redis_run_create(request, redis, ddl_redis_run_key(redis, &name, key), settles ? "settled" : "value",
                         value);
    if (redis->has_will && redis->first_key[0] == '\0')
        ddl_redis_run_tell(request, redis, "will",
                           (ddl_view){ will, ddl_store_error_encode(&redis->will, will) }, key);
    DDL_REDIS_ADD(request, ddl_redis_word("EXEC"));
}

/* Ask for it, whether rank 0 is there, and how the run has come out: if that has failed, so does this. */
static ddl_status ask_to_create(ddl_redis_run *redis, const char *key, ddl_view value, ddl_deadline deadline,
                                struct creation *creation, ddl_error *err)
{
    ddl_redis_name end;
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    ddl_redis_reply *replies[DDL_REDIS_MOST_REPLIES] = { NULL };
    request_creation(&request, redis, key, value);
    const int exec = request.count - 1, host = exec + 1, news = exec + 2;
    ddl_redis_run_count(&request, redis, redis->host_token);
    ddl_redis_reading_add(&reading, ddl_redis_name_of(&end, redis->run, "end", ""), "0-0");
    ddl_redis_request_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, replies, err));
    ddl_status status = ddl_redis_link_check(redis->link, replies, news + 1, err);
    if (status == DDL_OK && (replies[exec]->kind != DDL_REDIS_ARRAY || replies[exec]->item_count == 0))
        status = ddl_redis_link_refused(redis->link, replies[exec], err);
    if (status == DDL_OK)
        status = hear(redis, replies[news], err);
    if (status == DDL_OK)
        status = ddl_redis_run_failure(redis, err);
    if (status == DDL_OK) {
        *creation = (struct creation){ .created = replies[exec]->items[0]->kind == DDL_REDIS_TEXT,
                                       .repeated = request.repeated,
                                       .host_there = ddl_redis_is_there(replies[host], 0),
                                       .commanded = replies[exec] };
        replies[exec] = NULL;
    }
    ddl_redis_link_release(replies, news + 1);
    return status;
}

static ddl_status judge_creation(ddl_redis_run *redis, const char *key, const struct creation *creation,
                                 ddl_deadline deadline, ddl_store_outcome *outcome, ddl_bytes *existing,
                                 ddl_error *err)
{
    bool found = false;
    if (creation->created)
        *outcome = DDL_STORE_CREATED;
    else
        DDL_TRY(read_existing(redis, key, creation->repeated, deadline, outcome, existing, &found, err));
    if (!creation->created && !found)
        return ddl_redis_link_refused(redis->link, creation->commanded->items[0], err);
    if (*outcome != DDL_STORE_CREATED)
        return DDL_OK;
    if (!creation->host_there && !redis->settled)
        DDL_TRY(leave_old_run(redis, err));
    if (redis->first_key[0] == '\0')
        snprintf(redis->first_key, sizeof redis->first_key, "%s", key);
    return DDL_OK;
}

static ddl_status set_new(ddl_redis_run *redis, const char *key, ddl_view value, ddl_deadline deadline,
                          ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    struct creation creation;
    DDL_TRY(ddl_redis_run_failure(redis, err));
    if (redis->came_late)
        return come_late(redis, key, deadline, outcome, existing, err);
    DDL_TRY(ask_to_create(redis, key, value, deadline, &creation, err));
    const ddl_status status = judge_creation(redis, key, &creation, deadline, outcome, existing, err);
    ddl_redis_reply_destroy(creation.commanded);
    return status;
}

static ddl_status redis_set_new(ddl_store *store, const char *key, ddl_view value, ddl_deadline deadline,
                                ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    return set_new(as_redis(store), key, value, deadline, outcome, existing, err);
}

/* What everybody listens to beside what he waits for. */
static void read_news(ddl_redis_run *redis, ddl_redis_reading *reading, ddl_redis_name names[3])
{
    if (redis->settled)
        return;
    ddl_redis_reading_add(reading, ddl_redis_name_of(&names[0], redis->run, "end", ""), "0-0");
    if (redis->self.rank == 0) {
        ddl_redis_reading_add(reading, ddl_redis_name_of(&names[1], redis->place, "ask", ""),
                              redis->ask_from);
        ddl_redis_reading_add(reading, ddl_redis_name_of(&names[2], redis->run, "wills", ""),
                              redis->wills_from);
    }
}

/* Wait for key up to block_ms, or look once if that is 0; hear what else is said. */
static ddl_status await_key(ddl_redis_run *redis, const char *key, int64_t block_ms, ddl_deadline deadline,
                            ddl_bytes *value, bool *found, ddl_error *err)
{
    ddl_redis_name name, news[3];
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    size_t count;
    const bool settles = strcmp(key, DDL_STORE_SETTLED) == 0;
    (void)ddl_redis_run_key(redis, &name, key);
    if (!settles || redis->settled)
        ddl_redis_reading_add(&reading, ddl_redis_word(name.text), "0-0");
    read_news(redis, &reading, news);
    ddl_redis_request_read(&request, &reading, block_ms);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    if (status == DDL_OK)
        status = hear(redis, reply, err);
    if (status == DDL_OK)
        status = ddl_redis_run_failure(redis, err);
    ddl_redis_reply *const *entries = ddl_redis_entries_of(reply, name.text, &count);
    *found = status == DDL_OK && count > 0;
    if (*found)
        status = value_of(redis, entries[0], key, value, err);
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Rank 0 need not wait for us, and Redis need not keep what we ask on. */
static void hear_settled(ddl_redis_run *redis, ddl_deadline deadline)
{
    if (redis->self.rank == 0)
        return;
    ddl_error unwanted; /* a courtesy: the run is settled, and cannot fail any more */
    if (redis->first_key[0] != '\0')
        (void)!tell_host(redis, "done", (ddl_view){ "", 0 }, deadline, &unwanted);
    ddl_redis_link_rest(redis->link);
}

/* How long to wait at a time: 0 once the deadline has passed. */
static int64_t slice_ms(const ddl_redis_run *redis, ddl_deadline deadline)
{
    int64_t left_ms = ddl_deadline_left_ms(deadline);
    int64_t look_ms = redis->settled ? DDL_REDIS_SLICE_MS : ddl_deadline_left_ms(redis->next_life_look) + 1;
    int64_t slice = look_ms < DDL_REDIS_SLICE_MS ? look_ms : DDL_REDIS_SLICE_MS;
    return left_ms < slice ? left_ms : slice;
}

static ddl_status redis_get(ddl_store *store, const char *key, ddl_deadline deadline, ddl_bytes *value,
                            ddl_error *err)
{
    ddl_redis_run *redis = as_redis(store);
    ddl_bytes got = { 0 };
    for (bool found = false; !found;) {
        DDL_TRY(ddl_redis_run_failure(redis, err));
        DDL_TRY(ddl_redis_life_look(redis, err));
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

static ddl_status take_key(const ddl_redis_run *redis, const ddl_store_many *many, int rank,
                           const ddl_redis_reply *entry, ddl_error *err)
{
    char key[DDL_STORE_NAME_BYTES];
    ddl_bytes sealed = { 0 };
    ddl_store_name(many->kind, rank, key);
    DDL_TRY(value_of(redis, entry, key, &sealed, err));
    ddl_status status = ddl_store_found(&redis->base, many, rank, ddl_bytes_view(&sealed), err);
    ddl_bytes_fini(&sealed);
    return status;
}

/* Look for those keys that are missing, several with each request. */
static ddl_status look_for_keys(ddl_redis_run *redis, const ddl_store_many *many, ddl_deadline deadline,
                                ddl_error *err)
{
    for (int at = 0; at < many->count;) {
        ddl_redis_name names[DDL_REDIS_BATCH];
        int ranks[DDL_REDIS_BATCH];
        ddl_redis_request request = { .count = 0 };
        ddl_redis_reading reading = { .count = 0 };
        ddl_redis_reply *reply = NULL;
        for (; at < many->count && reading.count < DDL_REDIS_BATCH; at++) {
            char key[DDL_STORE_NAME_BYTES];
            if (many->present[at])
                continue;
            ddl_store_name(many->kind, at, key);
            ranks[reading.count] = at;
            ddl_redis_reading_add(&reading, ddl_redis_run_key(redis, &names[reading.count], key), "0-0");
        }
        if (reading.count == 0)
            return DDL_OK;
        ddl_redis_request_read(&request, &reading, 0);
        DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, &reply, err));
        ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
        for (size_t i = 0; i < reading.count && status == DDL_OK; i++) {
            size_t count;
            ddl_redis_reply *const *entries = ddl_redis_entries_of(reply, names[i].text, &count);
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
    ddl_redis_run *redis = as_redis(store);
    for (int rank; (rank = last_missing(many)) >= 0;) {
        char key[DDL_STORE_NAME_BYTES];
        ddl_bytes sealed = { 0 };
        ddl_store_name(many->kind, rank, key);
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
    ddl_redis_run *redis = as_redis(store);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    DDL_TRY(ddl_redis_run_failure(redis, err));
    redis->will = *will;
    redis->has_will = true;
    if (redis->first_key[0] == '\0')
        return DDL_OK; /* it is told with the first key */
    return tell_host(redis, "will", (ddl_view){ value, ddl_store_error_encode(will, value) }, deadline, err);
}

static ddl_status redis_fail(ddl_store *store, const ddl_error *cause, ddl_deadline deadline,
                             ddl_error *first)
{
    ddl_redis_run *redis = as_redis(store);
    ddl_error unwanted;
    ddl_redis_link_hurry(redis->link, deadline);
    if (redis->base.is_lost)
        return DDL_ESTORE; /* nobody is there to be told */
    if (!redis->failed)
        DDL_TRY(ddl_redis_run_fail(redis, cause, deadline, &unwanted));
    *first = redis->failed && !redis->is_forged ? redis->failure : *cause;
    return DDL_OK;
}

/* ---- looking without waiting ---- */

static ddl_status redis_check(ddl_store *store, ddl_error *err)
{
    ddl_redis_run *redis = as_redis(store);
    ddl_redis_name news[3];
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    if (redis->self.rank != 0) /* of whom others ask that have not heard of it */
        DDL_TRY(ddl_redis_run_failure(redis, err));
    if (redis->settled)
        return DDL_OK;
    ddl_redis_reply *reply = ddl_redis_link_collect(redis->link);
    if (reply != NULL) {
        ddl_status status = hear(redis, reply, err);
        ddl_redis_reply_destroy(reply);
        DDL_TRY(status);
        DDL_TRY(ddl_redis_run_failure(redis, err));
    }
    if (ddl_deadline_passed(redis->next_poll) && ddl_redis_link_is_idle(redis->link)) {
        redis->next_poll = ddl_deadline_in_ms(POLL_INTERVAL_MS);
        read_news(redis, &reading, news);
        ddl_redis_request_read(&request, &reading, 0);
        ddl_redis_link_post(redis->link, &request);
    }
    /* Others look twice within DDL_REDIS_LIFE_AGAIN_MS before they take us for dead, so we look oftener than
     * that. */
    DDL_TRY(ddl_redis_link_keep_presence(redis->link, err));
    DDL_TRY(ddl_redis_life_look(redis, err)); /* also for a server that stalls, or a connection that broke */
    return ddl_redis_run_failure(redis, err);
}

/* ---- closing ---- */

static void close_place(ddl_redis_run *redis, ddl_deadline deadline)
{
    ddl_error unwanted;
    bool all = false;
    for (int64_t block_ms = 0; !all && ddl_redis_life_all_know(redis, block_ms, &all, &unwanted) == DDL_OK;
         block_ms = 20)
        if (ddl_deadline_passed(deadline))
            break;
    ddl_redis_run_remove(redis, redis->run);
    ddl_redis_meeting_leave(redis);
}

static void redis_destroy(ddl_store *store, ddl_deadline deadline)
{
    ddl_redis_run *redis = as_redis(store);
    ddl_error unwanted;
    if (redis->link != NULL && redis->settled)
        ddl_redis_link_started(redis->link);
    if (redis->link != NULL)
        ddl_redis_link_hurry(redis->link, deadline);
    if (redis->has_will && redis->first_key[0] != '\0' && !redis->failed && !redis->settled &&
        !redis->base.is_lost)
        (void)!ddl_redis_run_fail(redis, &redis->will, deadline,
                                  &unwanted); /* nobody is left to tell if that does not work */
    if (redis->has_begun)
        close_place(redis, deadline);
    ddl_redis_link_destroy(redis->link);
    ddl_redis_life_fini(redis);
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
