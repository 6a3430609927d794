/* store_file_meeting_enter.c - the others ask the run that the record names, until rank 0 has answered. */
#include "rendezvous/store_file_meeting_parts.h"

#include "rendezvous/failed_runs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ROOM_LOOK_MS = 1000 }; /* who waits so long for rank 0 looks once whether the disk is full */

/* Whether the run of meet is settled, and lives: the rank in it that we are would be, and then we are the
 * second, or rank 0 where there is none of our number. */
static bool is_latecomer(const ddl_file_run *file, const ddl_meet *meet)
{
    const int rank = file->self.rank < meet->host.nranks ? file->self.rank : 0;
    char path[DDL_RECORD_PATH], key[32], token[DDL_TOKEN_TEXT];
    ddl_bytes record = { 0 };
    bool found = false, late = false;
    ddl_file_run_key_path(file, path, DDL_STORE_SETTLED);
    if (ddl_desk_find(&file->desk, path) != 0)
        return false;
    snprintf(key, sizeof key, "member.%d", rank);
    ddl_file_run_key_path(file, path, key);
    if (ddl_desk_read(&file->desk, path, DDL_FILE_VALUE_BYTES, &record, &found, NULL) == DDL_OK && found &&
        record.bytes >= DDL_TOKEN_BYTES) {
        ddl_meet_hex(record.data, DDL_TOKEN_BYTES, token);
        ddl_file_run_path(file, path, "here", token);
        late = ddl_desk_life_of(&file->desk, path) == DDL_RECORD_LIVES;
    }
    ddl_bytes_fini(&record);
    return late;
}

/* As if it had answered. */
static ddl_status report_other_job(const ddl_file_run *file, const ddl_meet *meet, ddl_error *err)
{
    const ddl_seal seal = ddl_file_run_seal(file);
    return ddl_meet_hear_echo(meet, &file->self, &seal, file->token, (ddl_view){ NULL, 0 }, file->place, err);
}

static ddl_status hear_echo(const ddl_file_run *file, const ddl_meet *meet, bool *heard, ddl_error *err)
{
    const ddl_seal seal = ddl_file_run_seal(file);
    char path[DDL_RECORD_PATH];
    ddl_bytes sealed = { 0 };
    ddl_file_run_path(file, path, "echo", file->token);
    DDL_TRY(ddl_desk_read(&file->desk, path, DDL_SEAL_BYTES, &sealed, heard, err));
    ddl_status status = *heard ? ddl_meet_hear_echo(meet, &file->self, &seal, file->token,
                                                    ddl_bytes_view(&sealed), file->place, err)
                               : DDL_OK;
    ddl_bytes_fini(&sealed);
    return status;
}

/* What another version has written is told at once if its rank 0 is seen to live; else it may be a leftover.
 */
static ddl_status pass_over(ddl_file_run *file, const ddl_meet *meet, const ddl_error *odd, bool *found,
                            ddl_error *err)
{
    char token[DDL_TOKEN_TEXT], lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH];
    ddl_file_run_name(file, meet->host.run_id);
    ddl_meet_hex(meet->token, DDL_TOKEN_BYTES, token);
    ddl_file_run_here_paths(file, token, lock, host);
    if (ddl_desk_life_of(&file->desk, lock) == DDL_RECORD_LIVES) {
        *err = *odd;
        return odd->code;
    }
    file->odd_meet = *odd;
    *found = false;
    return DDL_OK;
}

/*
 * One look at the place: has the run that meet names answered? asked is the run that was asked last; it is
 * asked once only.
 */
static ddl_status try_enter(ddl_file_run *file, ddl_meet *meet, uint8_t asked[DDL_RUN_ID_BYTES], bool *found,
                            bool *entered, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_error why;
    *entered = false;
    file->odd_meet.code = DDL_OK;
    ddl_desk_refresh(&file->desk, file->place);
    ddl_status status = ddl_file_meeting_read(file, meet, found, &why);
    if (status == DDL_EPROTO)
        return pass_over(file, meet, &why, found, err);
    if (status == DDL_ESTORE && (why.os_errno == EBADMSG || why.os_errno == ELOOP)) { /* rank 0 replaces it */
        file->odd_meet = why;
        *found = false;
    } else if (status != DDL_OK) {
        *err = why;
        return status;
    }
    if (!*found)
        return ddl_file_meeting_check_directory(file, err);
    ddl_file_run_name(file, meet->host.run_id);
    if (!ddl_file_meeting_names_run(meet, asked)) {
        bool has_asked;
        DDL_TRY(ddl_file_meeting_ask(file, path, &has_asked, err));
        if (has_asked)
            memcpy(asked, meet->host.run_id, DDL_RUN_ID_BYTES);
        file->written_ns = ddl_file_meeting_written_ns(file, path);
        return DDL_OK;
    }
    ddl_file_run_path(file, path, "echo", "");
    ddl_desk_refresh(&file->desk, path);
    DDL_TRY(hear_echo(file, meet, entered, err));
    if (*entered || !is_latecomer(file, meet))
        return DDL_OK;
    *entered = true;
    return meet->is_proved ? DDL_OK : report_other_job(file, meet, err);
}

static ddl_status check_host(ddl_file_run *file, const ddl_meet *meet, ddl_error *err)
{
    ddl_error refusal, first;
    ddl_hello_verdict verdict = ddl_meet_check(meet, &file->self, &refusal);
    if (verdict == DDL_HELLO_WELCOME)
        return DDL_OK;
    ddl_status status = refusal.code;
    if (ddl_hello_ends_run(verdict))
        (void)!ddl_file_run_fail(file, &refusal, &first); /* whether or not the others can be told */
    if (file->failed)
        ddl_failed_runs_add(file->base.run_id, file->self.rank);
    *err = refusal;
    return status;
}

/* On a full disk rank 0 can leave no word of that: who waits for it finds out by itself. */
static ddl_status look_for_room(const ddl_file_run *file, ddl_error *err)
{
    char path[DDL_RECORD_PATH], name[DDL_TOKEN_TEXT + 16];
    ddl_error why = { .code = DDL_OK };
    bool created;
    snprintf(name, sizeof name, "meet" DDL_RECORD_NEW "%s", file->token); /* a leftover, should we die here */
    ddl_file_run_place_path(file, path, name);
    if (ddl_file_meeting_make(file, &why) == DDL_OK) /* rank 0 may have taken it along */
        (void)!ddl_desk_create(&file->desk, path, (ddl_view){ file->token, DDL_TOKEN_BYTES }, &created, &why);
    (void)ddl_desk_remove(&file->desk, path);
    if (why.os_errno != ENOSPC && why.os_errno != EDQUOT)
        return DDL_OK;
    *err = why;
    return why.code;
}

ddl_status ddl_file_meeting_find(ddl_file_run *file, const ddl_store_options *options, ddl_deadline deadline,
                                 ddl_error *err)
{
    ddl_meet meet = { .host = { .rank = 0 } };
    uint8_t asked[DDL_RUN_ID_BYTES] = { 0 };
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS, start_ns = ddl_now_ns();
    ddl_deadline room_look = ddl_deadline_in_ms(ROOM_LOOK_MS);
    for (;;) {
        char path[DDL_RECORD_PATH], text[DDL_MEET_SILENT_TEXT];
        bool found, entered;
        DDL_TRY(try_enter(file, &meet, asked, &found, &entered, err));
        if (entered)
            break;
        ddl_file_run_place_path(file, path, "meet");
        const char *there = found ? ddl_meet_tell_silent(path, file->written_ns, text)
                                  : ddl_meet_tell_odd(&file->odd_meet, text);
        if (ddl_deadline_passed(deadline)) {
            (void)DDL_FAIL(
                err, DDL_ETIMEDOUT,
                "rank 0 did not come to the meeting place %s within %.1f s; start rank 0, check that all "
                "hosts share that directory and all ranks have the same DDL_STORE, MASTER_ADDR and "
                "MASTER_PORT, or raise DDL_START_TIMEOUT%s%s",
                file->place, (double)(ddl_now_ns() - start_ns) / 1e9,
                meet.host.nranks > 0 && !meet.is_proved ? " (a job with another secret was there)" : "",
                there);
            return ddl_error_blame(err, 0), DDL_ETIMEDOUT;
        }
        if (!found && ddl_deadline_passed(room_look)) {
            DDL_TRY(look_for_room(file, err));
            room_look = DDL_DEADLINE_NEVER;
        }
        ddl_progress_tell(options->progress, "rank 0 at %s%s", file->place, there);
        ddl_file_pause(&pause, deadline);
    }
    ddl_meet_hex(meet.token, DDL_TOKEN_BYTES, file->host_token);
    return check_host(file, &meet, err);
}
