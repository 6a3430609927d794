/* store_redis_meeting.c - the record at the meeting place: read, asked for, replaced, removed. */
#include "rendezvous/store_redis_meeting.h"

#include "io/host.h"
#include "rendezvous/failed_runs.h"

#include <stdio.h>
#include <string.h>

enum {
    ECHO_LIMIT_MS = 800, /* for a rank 0 that seems to live, to show it; seen: 330 among 128 on 2 cores */
    ASK_AGAIN_MS = 30000,
    ASK_EXPIRY_S = 120,
    WRITE_LOOK_MS = 1000, /* who waits so long for rank 0 looks once whether anybody could write */
    CLAIM_TRIES = 20,
    WHERE_TEXT = DDL_REDIS_NAME_TEXT + 400,
};

static const char *where_meet_is(const ddl_redis_run *redis, char text[WHERE_TEXT])
{
    snprintf(text, WHERE_TEXT, "%s:meet in %s", redis->place, ddl_redis_link_where(redis->link));
    return text;
}

/* What the place says, without waiting. A record that makes no sense is passed over, and why remembered. */
static ddl_status read_meet(ddl_redis_run *redis, ddl_meet *meet, char id[DDL_REDIS_ID_TEXT], bool *found,
                            ddl_error *err)
{
    ddl_redis_name name;
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    char where[WHERE_TEXT];
    size_t count;
    snprintf(id, DDL_REDIS_ID_TEXT, "0-0");
    *found = false;
    redis->odd_meet.code = DDL_OK;
    ddl_redis_reading_add(&reading, ddl_redis_name_of(&name, redis->place, "meet", ""), "0-0");
    ddl_redis_request_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    ddl_redis_reply *const *entries = ddl_redis_entries_of(reply, name.text, &count);
    if (status == DDL_OK && count > 0) {
        ddl_meet got;
        ddl_redis_note_id(entries[count - 1], id);
        ddl_status decoded = ddl_meet_decode(&redis->self, ddl_redis_field_of(entries[count - 1], "meet"),
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
static ddl_status ask(ddl_redis_run *redis, const ddl_meet *meet, const char *id, bool *present,
                      bool *settled, ddl_error *err)
{
    ddl_redis_name asks, end;
    char run[DDL_RUN_TEXT], host[DDL_TOKEN_TEXT], expiry[16], room[16];
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    ddl_redis_reply *replies[6] = { NULL };
    ddl_view name = ddl_redis_name_of(&asks, redis->place, "ask", "");
    size_t count;
    ddl_redis_run_name(redis, meet->host.run_id);
    ddl_meet_hex(meet->host.run_id, DDL_RUN_ID_BYTES, run);
    ddl_meet_hex(meet->token, DDL_TOKEN_BYTES, host);
    snprintf(expiry, sizeof expiry, "%d", ASK_EXPIRY_S);
    snprintf(room, sizeof room, "%d", DDL_REDIS_ELEMENTS);
    DDL_REDIS_ADD(&request, ddl_redis_word("MULTI"));
    DDL_REDIS_ADD(&request, ddl_redis_word("XADD"), name, ddl_redis_word("MAXLEN"), ddl_redis_word("~"),
                  ddl_redis_word(room), ddl_redis_word("*"), ddl_redis_word("run"), ddl_redis_word(run),
                  ddl_redis_word("by"), ddl_redis_word(redis->token));
    DDL_REDIS_ADD(&request, ddl_redis_word("EXPIRE"), name, ddl_redis_word(expiry));
    DDL_REDIS_ADD(&request, ddl_redis_word("EXEC"));
    ddl_redis_run_count(&request, redis, host);
    ddl_redis_reading_add(&reading, ddl_redis_name_of(&end, redis->run, "end", ""), "0-0");
    ddl_redis_request_read(&request, &reading, 0);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), replies, err));
    ddl_status status = ddl_redis_link_check(redis->link, replies, 6, err);
    ddl_redis_reply *const *entries = ddl_redis_entries_of(replies[5], end.text, &count);
    *present = status == DDL_OK && ddl_redis_is_there(replies[4], 0);
    redis->written_ns = ddl_meet_written_ns(status == DDL_OK ? ddl_redis_ms_after(id, replies[3], 0) : -1);
    ddl_view said = count > 0 ? ddl_redis_field_of(entries[0], "settled") : (ddl_view){ NULL, 0 }, value;
    *settled =
        meet->is_proved ? ddl_redis_run_is_sealed(redis, DDL_STORE_SETTLED, said, &value) : said.data != NULL;
    ddl_redis_link_release(replies, 6);
    return status;
}

/* Wait for the echo, or for another record at the place than that of this id. *echo, unless NULL, becomes the
 * answer that came: to be released. */
static ddl_status await_echo(ddl_redis_run *redis, const char *id, bool has_asked, int64_t ms, bool *echoed,
                             ddl_bytes *echo, ddl_error *err)
{
    ddl_redis_name meet, echo_name;
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reading reading = { .count = 0 };
    ddl_redis_reply *reply = NULL, *const *entries = NULL;
    size_t count = 0;
    ddl_redis_reading_add(&reading, ddl_redis_name_of(&meet, redis->place, "meet", ""), id);
    if (has_asked)
        ddl_redis_reading_add(&reading, ddl_redis_name_of(&echo_name, redis->run, "echo:", redis->token),
                              "0-0");
    ddl_redis_request_read(&request, &reading, ms);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    if (has_asked)
        entries = ddl_redis_entries_of(reply, echo_name.text, &count);
    *echoed = count > 0;
    if (status == DDL_OK && count > 0 && echo != NULL) {
        ddl_view said = ddl_redis_field_of(entries[0], "echo");
        if (!ddl_bytes_append(echo, said.data, said.bytes <= DDL_SEAL_BYTES ? said.bytes : 0))
            status = DDL_FAIL(err, DDL_ENOMEM, "no memory for an answer");
    }
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* The run that the record of this id names has been found dead, or there is none: put meet in its place,
 * unless that changes meanwhile. */
static ddl_status claim(ddl_redis_run *redis, const ddl_meet *meet, const char *id, int watched,
                        bool *claimed, ddl_error *err)
{
    ddl_redis_name meets, asks;
    ddl_bytes record = { 0 };
    ddl_redis_request request = { .once = true };
    ddl_redis_reply *replies[5] = { NULL };
    ddl_view name = ddl_redis_name_of(&meets, redis->place, "meet", "");
    *claimed = false;
    if (ddl_redis_link_generation(redis->link) != watched)
        return DDL_OK; /* once more, from the start */
    request.incomplete = !ddl_meet_encode(meet, &record);
    DDL_REDIS_ADD(&request, ddl_redis_word("MULTI"));
    DDL_REDIS_ADD(&request, ddl_redis_word("DEL"), name, ddl_redis_name_of(&asks, redis->place, "ask", ""));
    DDL_REDIS_ADD(&request, ddl_redis_word("XADD"), name, ddl_redis_word("*"), ddl_redis_word("meet"),
                  ddl_bytes_view(&record));
    ddl_bytes_fini(&record);
    DDL_REDIS_ADD(&request, ddl_redis_word("EXPIRE"), name, ddl_redis_word(redis->expiry));
    DDL_REDIS_ADD(&request, ddl_redis_word("EXEC"));
    ddl_status status = ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), replies, err);
    if (status == DDL_ENETWORK)
        return DDL_OK;
    if (status != DDL_OK)
        return status;
    status = ddl_redis_link_check(redis->link, replies, 5, err);
    *claimed = status == DDL_OK && replies[4]->kind == DDL_REDIS_ARRAY;
    redis->written_ns = ddl_meet_written_ns(*claimed ? ddl_redis_ms_after(id, replies[4], 1) : -1);
    ddl_redis_link_release(replies, 5);
    return status;
}

static ddl_status watch_meet(ddl_redis_run *redis, ddl_error *err)
{
    ddl_redis_name meet;
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    DDL_REDIS_ADD(&request, ddl_redis_word("WATCH"), ddl_redis_name_of(&meet, redis->place, "meet", ""));
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Whether the rank 0 of meet is there: it echoes, or its run is settled and it has not left. */
static ddl_status is_alive(ddl_redis_run *redis, const ddl_meet *meet, const char *id, bool *alive,
                           bool *settled, ddl_error *err)
{
    bool present;
    DDL_TRY(ask(redis, meet, id, &present, settled, err));
    *alive = present && (*settled || redis->is_modest);
    if (!present || *alive)
        return DDL_OK;
    DDL_TRY(await_echo(redis, id, true, ECHO_LIMIT_MS, alive, NULL, err));
    if (!*alive) { /* it answers no more once its run is settled, which that may be by now */
        DDL_TRY(ask(redis, meet, id, &present, settled, err));
        *alive = present && *settled;
    }
    return DDL_OK;
}

static ddl_status refuse_second(const ddl_redis_run *redis, const ddl_meet *meet, bool settled,
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
static ddl_status refuse_other_version(ddl_redis_run *redis, const ddl_meet *meet, ddl_error *err)
{
    char token[DDL_TOKEN_TEXT];
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *reply = NULL;
    if (redis->odd_meet.code != DDL_EPROTO)
        return DDL_OK;
    ddl_meet_hex(meet->token, DDL_TOKEN_BYTES, token);
    ddl_redis_run_count(&request, redis, token);
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), &reply, err));
    ddl_status status = ddl_redis_link_check(redis->link, &reply, 1, err);
    if (status == DDL_OK && ddl_redis_is_there(reply, 0)) {
        *err = redis->odd_meet;
        status = err->code;
    }
    ddl_redis_link_release(&reply, 1);
    return status;
}

/* Of a meeting record that was found dead: *same, whether it is still there. */
static ddl_status watch_again(ddl_redis_run *redis, const char *dead_id, int *watched, bool *same,
                              ddl_error *err)
{
    ddl_meet meet;
    char id[DDL_REDIS_ID_TEXT];
    bool found = false;
    DDL_TRY(watch_meet(redis, err));
    *watched = ddl_redis_link_generation(redis->link);
    DDL_TRY(read_meet(redis, &meet, id, &found, err));
    *same = found && strcmp(id, dead_id) == 0;
    return DDL_OK;
}

ddl_status ddl_redis_meeting_begin(ddl_redis_run *redis, const uint8_t token[DDL_TOKEN_BYTES], ddl_error *err)
{
    ddl_meet ours = { .host = redis->self }, meet;
    char id[DDL_REDIS_ID_TEXT], where[WHERE_TEXT];
    bool found = false, is_replaced = false, claimed = false;
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
        ddl_redis_run_remove(redis, redis->run); /* what the dead left */
    ddl_redis_run_name(redis, ours.host.run_id);
    memcpy(redis->host_token, redis->token, DDL_TOKEN_TEXT);
    redis->has_begun = true;
    return DDL_OK;
}

static ddl_status check_host(ddl_redis_run *redis, const ddl_meet *meet, ddl_error *err)
{
    ddl_error refusal, unwanted;
    ddl_hello_verdict verdict = ddl_meet_check(meet, &redis->self, &refusal);
    if (verdict == DDL_HELLO_WELCOME)
        return DDL_OK;
    if (ddl_hello_ends_run(verdict))
        (void)!ddl_redis_run_fail(redis, &refusal, ddl_now_ns(),
                                  &unwanted); /* whether or not the others can be told */
    if (redis->failed)
        ddl_failed_runs_add(redis->base.run_id, redis->self.rank);
    *err = refusal;
    return refusal.code;
}

/* there: what is to be said of a record there whose run does not answer, or that was passed over. */
static ddl_status report_no_host(const ddl_redis_run *redis, const ddl_meet *meet, int64_t start_ns,
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
static ddl_status hear_echo(const ddl_redis_run *redis, const ddl_meet *meet, ddl_view echo, ddl_error *err)
{
    const ddl_seal seal = ddl_redis_run_seal(redis);
    char place[sizeof redis->place + 300];
    snprintf(place, sizeof place, "%s in %s", redis->place, ddl_redis_link_where(redis->link));
    return ddl_meet_hear_echo(meet, &redis->self, &seal, redis->token, echo, place, err);
}

/* Where Redis takes no writes rank 0 can leave no word of that: who waits for it finds out by a key of its
 * own, which is gone at once. */
static ddl_status look_for_refusal(ddl_redis_run *redis, ddl_error *err)
{
    ddl_redis_name tried;
    char expiry[16];
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *replies[5] = { NULL };
    ddl_view name = ddl_redis_name_of(&tried, redis->place, "try:", redis->token);
    snprintf(expiry, sizeof expiry, "%d", ASK_EXPIRY_S);
    DDL_REDIS_ADD(&request, ddl_redis_word("MULTI"));
    DDL_REDIS_ADD(&request, ddl_redis_word("XADD"), name, ddl_redis_word("*"), ddl_redis_word("by"),
                  ddl_redis_word(redis->token));
    DDL_REDIS_ADD(&request, ddl_redis_word("EXPIRE"), name, ddl_redis_word(expiry));
    DDL_REDIS_ADD(&request, ddl_redis_word("DEL"), name);
    DDL_REDIS_ADD(&request, ddl_redis_word("EXEC"));
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), replies, err));
    ddl_status status = ddl_redis_link_check(redis->link, replies, 5, err);
    ddl_redis_link_release(replies, 5);
    return status;
}

ddl_status ddl_redis_meeting_find(ddl_redis_run *redis, const ddl_store_options *options,
                                  ddl_deadline deadline, ddl_error *err)
{
    const int64_t start_ns = ddl_now_ns();
    uint8_t asked[DDL_RUN_ID_BYTES] = { 0 };
    ddl_deadline ask_again = 0, write_look = ddl_deadline_in_ms(WRITE_LOOK_MS);
    ddl_meet meet = { .host = { .rank = 0 } };
    ddl_bytes echo = { 0 };
    bool entered = false, has_asked = false;
    for (;;) {
        char id[DDL_REDIS_ID_TEXT], where[WHERE_TEXT], text[DDL_MEET_SILENT_TEXT];
        bool found, present = false;
        DDL_TRY(read_meet(redis, &meet, id, &found, err));
        DDL_TRY(refuse_other_version(redis, &meet, err));
        if (found &&
            (memcmp(asked, meet.host.run_id, DDL_RUN_ID_BYTES) != 0 || ddl_deadline_passed(ask_again))) {
            DDL_TRY(ask(redis, &meet, id, &present, &redis->came_late, err));
            redis->came_late = entered = present && redis->came_late && meet.is_proved;
            memcpy(asked, meet.host.run_id, DDL_RUN_ID_BYTES);
            ask_again = ddl_deadline_in_ms(present ? DDL_REDIS_SLICE_MS
                                                   : ASK_AGAIN_MS); /* may have settled just now */
            has_asked = true;
        }
        int64_t left_ms = ddl_deadline_left_ms(deadline);
        if (!entered && left_ms > 0)
            DDL_TRY(await_echo(redis, id, has_asked,
                               left_ms < DDL_REDIS_SLICE_MS ? left_ms : DDL_REDIS_SLICE_MS, &entered, &echo,
                               err));
        if (entered)
            break;
        const char *there = found ? ddl_meet_tell_silent(where_meet_is(redis, where), redis->written_ns, text)
                                  : ddl_meet_tell_odd(&redis->odd_meet, text);
        if (ddl_deadline_passed(deadline))
            return report_no_host(redis, &meet, start_ns, there, err);
        if (!found && ddl_deadline_passed(write_look)) {
            DDL_TRY(look_for_refusal(redis, err));
            write_look = DDL_DEADLINE_NEVER;
        }
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

ddl_status ddl_redis_meeting_check(ddl_redis_run *redis, ddl_error *err)
{
    ddl_meet meet;
    char id[DDL_REDIS_ID_TEXT];
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

ddl_status ddl_redis_meeting_hear_asks(ddl_redis_run *redis, ddl_redis_reply *const entries[], size_t count,
                                       ddl_error *err)
{
    const ddl_seal seal = ddl_redis_run_seal(redis);
    ddl_redis_name echo, all;
    ddl_bytes sealed = { 0 };
    ddl_redis_request request = { .count = 0 };
    ddl_redis_reply *replies[3 * DDL_REDIS_BATCH + 3] = { NULL };
    const char *run = redis->run + strlen(redis->prefix) + 1;
    ddl_view index = ddl_redis_name_of(&all, redis->run, "all", "");
    DDL_REDIS_ADD(&request, ddl_redis_word("MULTI"));
    for (size_t i = 0; i < count && i < DDL_REDIS_BATCH; i++) {
        char asked[DDL_TOKEN_TEXT], token[DDL_TOKEN_TEXT];
        ddl_redis_note_id(entries[i], redis->ask_from);
        if (!ddl_redis_token_of(entries[i], "run", asked) || strcmp(asked, run) != 0 ||
            !ddl_redis_token_of(entries[i], "by", token))
            continue;
        ddl_view name = ddl_redis_name_of(&echo, redis->run, "echo:", token);
        request.incomplete = !ddl_meet_echo(&seal, token, &sealed) || request.incomplete;
        DDL_REDIS_ADD(&request, ddl_redis_word("XADD"), name, ddl_redis_word("1-1"), ddl_redis_word("echo"),
                      ddl_bytes_view(&sealed));
        sealed.bytes = 0;
        DDL_REDIS_ADD(&request, ddl_redis_word("EXPIRE"), name, ddl_redis_word(redis->expiry));
        DDL_REDIS_ADD(&request, ddl_redis_word("SADD"), index, name);
    }
    ddl_bytes_fini(&sealed);
    DDL_REDIS_ADD(&request, ddl_redis_word("EXPIRE"), index, ddl_redis_word(redis->expiry));
    DDL_REDIS_ADD(&request, ddl_redis_word("EXEC"));
    const int commands = request.count;
    DDL_TRY(ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), replies, err));
    ddl_status status = ddl_redis_link_check(redis->link, replies, commands, err);
    ddl_redis_link_release(replies, commands);
    return status;
}

static bool still_ours(ddl_redis_run *redis)
{
    ddl_meet meet;
    ddl_error unwanted;
    char id[DDL_REDIS_ID_TEXT];
    bool found = false;
    return watch_meet(redis, &unwanted) == DDL_OK &&
           read_meet(redis, &meet, id, &found, &unwanted) == DDL_OK && found &&
           memcmp(meet.host.run_id, redis->base.run_id, DDL_RUN_ID_BYTES) == 0;
}

void ddl_redis_meeting_leave(ddl_redis_run *redis)
{
    ddl_redis_name meet, asks;
    ddl_error unwanted;
    if (!still_ours(redis))
        return;
    ddl_redis_request request = { .once = true };
    ddl_redis_reply *replies[3] = { NULL };
    DDL_REDIS_ADD(&request, ddl_redis_word("MULTI"));
    DDL_REDIS_ADD(&request, ddl_redis_word("DEL"), ddl_redis_name_of(&meet, redis->place, "meet", ""),
                  ddl_redis_name_of(&asks, redis->place, "ask", ""));
    DDL_REDIS_ADD(&request, ddl_redis_word("EXEC"));
    if (ddl_redis_link_exchange(redis->link, &request, ddl_now_ns(), replies, &unwanted) == DDL_OK)
        ddl_redis_link_release(replies, 3);
}
