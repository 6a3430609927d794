/* store_redis_life.c - looks for subscribers of channels, one of which each process of the run is. */
#include "rendezvous/store_redis_life.h"

#include "io/socket.h"
#include "rendezvous/store_redis_meeting.h"

#include <stdio.h>
#include <string.h>

/* Somebody else who takes part, as rank 0 knows it. */
struct ddl_redis_member {
    char token[DDL_TOKEN_TEXT];
    ddl_bytes will;
    char key[DDL_REDIS_KEY_TEXT]; /* the will counts if this rank has set this */
    bool is_done;                 /* has heard that the run is settled */
    bool is_gone;                 /* its will was executed, or it left */
    bool missed;                  /* was not there at the last look */
};

ddl_status ddl_redis_life_init(ddl_redis_run *redis, ddl_error *err)
{
    redis->member_room = 4 * redis->self.nranks + DDL_REDIS_BATCH;
    redis->members = ddl_alloc_array((size_t)redis->member_room, sizeof *redis->members);
    if (redis->members == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d ranks", redis->self.nranks);
    return DDL_OK;
}

void ddl_redis_life_fini(ddl_redis_run *redis)
{
    for (int i = 0; i < redis->member_count; i++)
        ddl_bytes_fini(&redis->members[i].will);
    ddl_free(redis->members);
}

static struct ddl_redis_member *member_of(ddl_redis_run *redis, const char *token)
{
    for (int i = 0; i < redis->member_count; i++)
        if (strcmp(redis->members[i].token, token) == 0)
            return &redis->members[i];
    if (redis->member_count == redis->member_room)
        return NULL; /* strangers: there are more than ranks that could have come */
    struct ddl_redis_member *member = &redis->members[redis->member_count++];
    memcpy(member->token, token, DDL_TOKEN_TEXT);
    return member;
}

void ddl_redis_life_hear_will(ddl_redis_run *redis, const ddl_redis_reply *entry)
{
    char token[DDL_TOKEN_TEXT], name[DDL_REDIS_TOLD_NAME];
    ddl_view will = { NULL, 0 }, nothing;
    ddl_redis_note_id(entry, redis->wills_from);
    if (!ddl_redis_token_of(entry, "by", token) || strcmp(token, redis->token) == 0)
        return;
    const bool is_done = ddl_redis_run_is_sealed(redis, ddl_redis_run_told("done", token, name),
                                                 ddl_redis_field_of(entry, "done"), &nothing);
    if (!is_done && !ddl_redis_run_is_sealed(redis, ddl_redis_run_told("will", token, name),
                                             ddl_redis_field_of(entry, "will"), &will))
        return;
    struct ddl_redis_member *member = member_of(redis, token);
    if (member == NULL)
        return;
    ddl_view key = ddl_redis_field_of(entry, "key");
    member->is_done = member->is_done || is_done;
    snprintf(member->key, sizeof member->key, "%.*s", key.bytes < DDL_REDIS_KEY_TEXT ? (int)key.bytes : 0,
             (const char *)key.data);
    member->will.bytes = 0;
    if (will.bytes <= DDL_STORE_ERROR_BYTES)
        (void)!ddl_bytes_append(&member->will, will.data, will.bytes);
}

/* Look for up to DDL_REDIS_BATCH members from *at on; those that are not there are marked as missed, the
 * others not. */
static ddl_status look_for_some(ddl_redis_run *redis, int *at, ddl_error *err)
{
    ddl_view words[2 + DDL_REDIS_BATCH] = { ddl_redis_word("PUBSUB"), ddl_redis_word("NUMSUB") };
    ddl_redis_name channels[DDL_REDIS_BATCH];
    struct ddl_redis_member *members[DDL_REDIS_BATCH];
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    size_t count = 0;
    for (; *at < redis->member_count && count < DDL_REDIS_BATCH; (*at)++) {
        if (redis->members[*at].is_done || redis->members[*at].is_gone)
            continue;
        members[count] = &redis->members[*at];
        words[2 + count] = ddl_redis_run_channel(redis, &channels[count], members[count]->token);
        count++;
    }
    if (count == 0)
        return DDL_OK;
    ddl_redis_request_add(&request, words, 2 + count);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    for (size_t i = 0; i < count && status == DDL_OK; i++) {
        bool gone = !ddl_redis_is_there(reply, i);
        members[i]->is_gone = gone && members[i]->missed && !ddl_redis_link_is_unsteady(redis->link);
        members[i]->missed = gone;
    }
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Whether a member has set the key that its will came with. One that came second has not, and has no say. */
static ddl_status has_a_say(ddl_redis_run *redis, const struct ddl_redis_member *member, bool *has_say,
                            ddl_error *err)
{
    ddl_redis_name name;
    char owner[DDL_TOKEN_TEXT] = "";
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    size_t count;
    ddl_redis_reading_add(&reading, ddl_redis_run_key(redis, &name, member->key), "0-0");
    ddl_redis_request_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    ddl_redis_reply *const *entries = ddl_redis_entries_of(reply, name.text, &count);
    *has_say = status == DDL_OK && count > 0 && ddl_redis_token_of(entries[0], "by", owner) &&
               strcmp(owner, member->token) == 0;
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Rank 0: execute the will of the first rank that is not there, twice in a row. */
static ddl_status look_for_dead(ddl_redis_run *redis, ddl_error *err)
{
    DDL_TRY(ddl_redis_meeting_check(redis, err));
    for (int at = 0; at < redis->member_count;)
        DDL_TRY(look_for_some(redis, &at, err));
    for (int i = 0; i < redis->member_count; i++) {
        struct ddl_redis_member *member = &redis->members[i];
        ddl_error will;
        if (member->missed && !member->is_gone)
            redis->next_life_look = ddl_deadline_in_ms(DDL_REDIS_LIFE_AGAIN_MS);
        if (!member->is_gone || member->is_done || member->will.bytes == 0 ||
            ddl_store_error_decode(ddl_bytes_view(&member->will), &will, NULL) != DDL_OK)
            continue;
        bool has_say;
        DDL_TRY(has_a_say(redis, member, &has_say, err));
        member->is_done = !has_say;
        if (!has_say)
            continue;
        DDL_TRY(ddl_redis_run_fail(redis, &will, ddl_now_ns(), err));
        return ddl_redis_run_failure(redis, err);
    }
    return DDL_OK;
}

ddl_status ddl_redis_life_report_lost(ddl_redis_run *redis, ddl_error *err)
{
    redis->base.is_lost = true;
    ddl_redis_run_remove(redis, redis->run);
    (void)DDL_FAIL(err, DDL_EPEERLOST,
                   "rank 0 left the meeting place %s at %s before all ranks were connected; look at its "
                   "output",
                   redis->place, ddl_redis_link_where(redis->link));
    return ddl_error_blame(err, 0), DDL_EPEERLOST;
}

ddl_status ddl_redis_life_mourn(ddl_redis_run *redis, ddl_error *err)
{
    ddl_redis_name wills;
    char from[DDL_REDIS_ID_TEXT] = "0-0";
    ddl_view name = ddl_redis_name_of(&wills, redis->run, "wills", "");
    size_t count = DDL_REDIS_BATCH;
    for (int rounds = 0; count == DDL_REDIS_BATCH && rounds < DDL_REDIS_ROUNDS_MOST; rounds++) {
        ddl_redis_request request = { .count = 0 };
        ddl_redis_reading reading = { .count = 0 };
        ddl_redis_reply *reply = NULL;
        ddl_error will = { .code = DDL_OK };
        ddl_redis_reading_add(&reading, name, from);
        ddl_redis_request_read(&request, &reading, 0);
        DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
        ddl_redis_reply *const *entries = ddl_redis_entries_of(reply, wills.text, &count);
        for (size_t i = 0; i < count && will.code == DDL_OK; i++) {
            char token[DDL_TOKEN_TEXT], told[DDL_REDIS_TOLD_NAME];
            ddl_view said;
            ddl_redis_note_id(entries[i], from);
            if (!ddl_redis_token_of(entries[i], "by", token) || strcmp(token, redis->host_token) != 0 ||
                !ddl_redis_run_is_sealed(redis, ddl_redis_run_told("will", token, told),
                                         ddl_redis_field_of(entries[i], "will"), &said) ||
                ddl_store_error_decode(said, &will, NULL) != DDL_OK)
                will.code = DDL_OK;
        }
        ddl_redis_link_release(&reply, 1);
        if (will.code != DDL_OK) {
            DDL_TRY(ddl_redis_run_fail(redis, &will, ddl_now_ns(), err));
            DDL_TRY(ddl_redis_run_failure(redis, err));
        }
    }
    return ddl_redis_life_report_lost(redis, err);
}

/* Whether rank 0 is still there. *gone needs two looks in a row, and that we have been connected for long
 * enough. */
static ddl_status look_for_host(ddl_redis_run *redis, bool *gone, ddl_error *err)
{
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    ddl_redis_run_count(&request, redis, redis->host_token);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    bool missed = status == DDL_OK && !ddl_redis_is_there(reply, 0);
    ddl_redis_link_release(&reply, 1);
    *gone = missed && redis->host_missed && !ddl_redis_link_is_unsteady(redis->link);
    redis->host_missed = missed;
    redis->next_life_look = ddl_deadline_in_ms(missed ? DDL_REDIS_LIFE_AGAIN_MS : DDL_REDIS_LIFE_INTERVAL_MS);
    return status;
}

ddl_status ddl_redis_life_look(ddl_redis_run *redis, ddl_error *err)
{
    bool gone = false;
    if (redis->settled || !ddl_deadline_passed(redis->next_life_look))
        return DDL_OK;
    redis->next_life_look = ddl_deadline_in_ms(DDL_REDIS_LIFE_INTERVAL_MS);
    DDL_TRY(ddl_redis_link_keep_presence(redis->link, err));
    if (redis->self.rank == 0)
        return look_for_dead(redis, err);
    DDL_TRY(look_for_host(redis, &gone, err));
    return gone ? ddl_redis_life_mourn(redis, err) : DDL_OK;
}

ddl_status ddl_redis_life_look_twice(ddl_redis_run *redis, bool *gone, ddl_error *err)
{
    redis->host_missed = true;
    (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(DDL_REDIS_LIFE_AGAIN_MS));
    return look_for_host(redis, gone, err);
}

ddl_status ddl_redis_life_all_know(ddl_redis_run *redis, int64_t block_ms, bool *all, ddl_error *err)
{
    ddl_redis_name wills;
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    ddl_redis_reading_add(&reading, ddl_redis_name_of(&wills, redis->run, "wills", ""), redis->wills_from);
    ddl_redis_request_read(&request, &reading, block_ms);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    size_t count;
    ddl_redis_reply *const *entries = ddl_redis_entries_of(reply, wills.text, &count);
    for (size_t i = 0; i < count; i++)
        ddl_redis_life_hear_will(redis, entries[i]);
    ddl_redis_link_release(&reply, 1);
    *all = status == DDL_OK && count < DDL_REDIS_BATCH;
    for (int at = 0; at < redis->member_count && status == DDL_OK;)
        status = look_for_some(redis, &at, err);
    for (int i = 0; i < redis->member_count; i++)
        *all = *all && (redis->members[i].is_done || redis->members[i].missed);
    return status;
}
