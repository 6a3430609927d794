/* store_redis_run.c - what is in the keys of a run in a Redis server, under which seal. */
#include "rendezvous/store_redis_run.h"

#include <stdio.h>
#include <string.h>

/* ---- names ---- */

ddl_view ddl_redis_run_key(const ddl_redis_run *redis, ddl_redis_name *name, const char *key)
{
    return strcmp(key, DDL_STORE_SETTLED) == 0 ? ddl_redis_name_of(name, redis->run, "end", "")
                                               : ddl_redis_name_of(name, redis->run, "k:", key);
}

ddl_view ddl_redis_run_channel(const ddl_redis_run *redis, ddl_redis_name *name, const char *token)
{
    return ddl_redis_name_of(name, redis->prefix, "alive:", token);
}

void ddl_redis_run_name(ddl_redis_run *redis, const uint8_t *run_id)
{
    char text[DDL_RUN_TEXT];
    ddl_meet_hex(run_id, DDL_RUN_ID_BYTES, text);
    memcpy(redis->base.run_id, run_id, DDL_RUN_ID_BYTES);
    snprintf(redis->run, sizeof redis->run, "%s:%s", redis->prefix, text);
}

void ddl_redis_run_count(ddl_redis_request *request, const ddl_redis_run *redis, const char *token)
{
    ddl_redis_name channel;
    DDL_REDIS_ADD(request, ddl_redis_word("PUBSUB"), ddl_redis_word("NUMSUB"),
                  ddl_redis_run_channel(redis, &channel, token));
}

/* ---- seals ---- */

ddl_seal ddl_redis_run_seal(const ddl_redis_run *redis)
{
    return (ddl_seal){ redis->self.prover, redis->base.run_id };
}

const char *ddl_redis_run_told(const char *field, const char *token, char name[DDL_REDIS_TOLD_NAME])
{
    snprintf(name, DDL_REDIS_TOLD_NAME, "%s/%s", field, token);
    return name;
}

bool ddl_redis_run_is_sealed(const ddl_redis_run *redis, const char *name, ddl_view said, ddl_view *value)
{
    const ddl_seal seal = ddl_redis_run_seal(redis);
    return said.data != NULL && ddl_seal_get(&seal, name, said, value);
}

/* An error, sealed under this name: to be released. Nothing when out of memory. */
static bool seal_error(const ddl_redis_run *redis, const char *name, const ddl_error *error, ddl_bytes *out)
{
    const ddl_seal seal = ddl_redis_run_seal(redis);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    return ddl_seal_put(&seal, redis->self.rank, name,
                        (ddl_view){ value, ddl_store_error_encode(error, value) }, out);
}

void ddl_redis_run_create(ddl_redis_request *request, const ddl_redis_run *redis, ddl_view name,
                          const char *field, ddl_view value)
{
    ddl_redis_name all;
    ddl_view index = ddl_redis_name_of(&all, redis->run, "all", "");
    DDL_REDIS_ADD(request, ddl_redis_word("XADD"), name, ddl_redis_word("1-1"), ddl_redis_word("by"),
                  ddl_redis_word(redis->token), ddl_redis_word(field), value);
    DDL_REDIS_ADD(request, ddl_redis_word("EXPIRE"), name, ddl_redis_word(redis->expiry));
    DDL_REDIS_ADD(request, ddl_redis_word("SADD"), index, name);
    DDL_REDIS_ADD(request, ddl_redis_word("EXPIRE"), index, ddl_redis_word(redis->expiry));
}

void ddl_redis_run_tell(ddl_redis_request *request, const ddl_redis_run *redis, const char *field,
                        ddl_view value, const char *key)
{
    const ddl_seal seal = ddl_redis_run_seal(redis);
    ddl_redis_name wills;
    char told[DDL_REDIS_TOLD_NAME];
    ddl_bytes sealed = { 0 };
    ddl_view name = ddl_redis_name_of(&wills, redis->run, "wills", "");
    if (!ddl_seal_put(&seal, redis->self.rank, ddl_redis_run_told(field, redis->token, told), value, &sealed))
        request->incomplete = true;
    DDL_REDIS_ADD(request, ddl_redis_word("XADD"), name, ddl_redis_word("*"), ddl_redis_word("by"),
                  ddl_redis_word(redis->token), ddl_redis_word("key"), ddl_redis_word(key),
                  ddl_redis_word(field), ddl_bytes_view(&sealed));
    ddl_bytes_fini(&sealed);
    DDL_REDIS_ADD(request, ddl_redis_word("EXPIRE"), name, ddl_redis_word(redis->expiry));
}

/* ---- how the run comes out ---- */

ddl_status ddl_redis_run_failure(const ddl_redis_run *redis, ddl_error *err)
{
    if (redis->failed && err != NULL)
        *err = redis->failure;
    return redis->failed ? redis->failure.code : DDL_OK;
}

void ddl_redis_run_hear_end(ddl_redis_run *redis, const ddl_redis_reply *entry)
{
    char name[sizeof redis->run + 8];
    ddl_view value;
    redis->settled =
        ddl_redis_run_is_sealed(redis, DDL_STORE_SETTLED, ddl_redis_field_of(entry, "settled"), &value);
    redis->failed = !redis->settled;
    redis->is_forged =
        redis->failed &&
        (!ddl_redis_run_is_sealed(redis, "failed", ddl_redis_field_of(entry, "failed"), &value) ||
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

ddl_status ddl_redis_run_fail(ddl_redis_run *redis, const ddl_error *cause, ddl_deadline deadline,
                              ddl_error *err)
{
    ddl_bytes sealed = { 0 };
    ddl_redis_name end;
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    ddl_redis_reply *replies[DDL_REDIS_MOST_REPLIES] = { NULL };
    ddl_view name = ddl_redis_name_of(&end, redis->run, "end", "");
    request.incomplete = !seal_error(redis, "failed", cause, &sealed);
    DDL_REDIS_ADD(&request, ddl_redis_word("MULTI"));
    ddl_redis_run_create(&request, redis, name, "failed", ddl_bytes_view(&sealed));
    DDL_REDIS_ADD(&request, ddl_redis_word("EXEC"));
    ddl_bytes_fini(&sealed);
    ddl_redis_reading_add(&reading, name, "0-0");
    ddl_redis_request_read(&request, &reading, 0);
    const int commands = request.count;
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, deadline, replies, err));
    ddl_status status = ddl_redis_link_check(redis->link, replies, commands, err);
    size_t count;
    ddl_redis_reply *const *entries = ddl_redis_entries_of(replies[commands - 1], end.text, &count);
    if (status == DDL_OK && count > 0)
        ddl_redis_run_hear_end(redis, entries[0]);
    if (status == DDL_OK && !redis->failed && !redis->settled)
        status = ddl_redis_link_refused(redis->link, replies[commands - 1], err);
    ddl_redis_link_release(replies, commands);
    return status;
}

void ddl_redis_run_remove(ddl_redis_run *redis, const char *run)
{
    ddl_redis_name all, wills, owner;
    char batch[16];
    ddl_error unwanted;
    ddl_view index = ddl_redis_name_of(&all, run, "all", "");
    snprintf(batch, sizeof batch, "%d", DDL_REDIS_BATCH);
    size_t prefix_bytes = ddl_redis_name_of(&owner, run, "", "").bytes;
    bool more = true;
    for (int rounds = 0; more && rounds < DDL_REDIS_ROUNDS_MOST; rounds++) {
        ddl_redis_request request = { .count = 0 };
        ddl_redis_reply *reply = NULL;
        ddl_view words[1 + DDL_REDIS_BATCH] = { ddl_redis_word("DEL") };
        size_t count = 1;
        DDL_REDIS_ADD(&request, ddl_redis_word("SPOP"), index, ddl_redis_word(batch));
        if (ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, &unwanted) != DDL_OK)
            return;
        more = reply->kind == DDL_REDIS_ARRAY && reply->item_count > 0;
        for (size_t i = 0; more && i < reply->item_count && count <= DDL_REDIS_BATCH; i++) {
            const ddl_redis_reply *item = reply->items[i];
            if (item->kind == DDL_REDIS_TEXT && item->text_bytes > prefix_bytes &&
                memcmp(item->text, owner.text, prefix_bytes) == 0)
                words[count++] = (ddl_view){ item->text, item->text_bytes };
        }
        ddl_redis_request removal = { .count = 0 };
        ddl_redis_reply *removed = NULL;
        if (!more)
            words[count++] = ddl_redis_name_of(&wills, run, "wills", "");
        ddl_redis_request_add(&removal, words, count);
        if (count == 1)
            ddl_bytes_fini(&removal.bytes);
        else if (ddl_redis_link_exchange(redis->link, &removal, ddl_now_ns(), &removed, &unwanted) != DDL_OK)
            more = false;
        ddl_redis_link_release(&reply, 1);
        ddl_redis_link_release(&removed, 1);
    }
}
