/* store_file_meeting_take.c - rank 0 takes the place from nobody, or from a run that is dead. */
#include "rendezvous/store_file_meeting_parts.h"

#include "base/failpoint.h"
#include "io/host.h"
#include "rendezvous/store_file_answers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ECHO_LIMIT_MS = 900 /* for whoever may have the place to answer who wants it */ };

static ddl_status hold_place(ddl_file_run *file, bool *held, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_file_run_place_path(file, path, "rank0");
    ddl_status status = ddl_desk_lock(&file->desk, path, &file->base.held[0], held, err);
    for (int tries = 1; tries < DDL_FILE_PLACE_TRIES && status != DDL_OK && err->os_errno == ENOENT;
         tries++) {
        DDL_TRY(ddl_file_meeting_make(file, err));
        status = ddl_desk_lock(&file->desk, path, &file->base.held[0], held, err);
    }
    return status;
}

/* meet may be NULL. */
static ddl_status refuse_second(const ddl_file_run *file, const ddl_meet *meet, ddl_error *err)
{
    if (meet != NULL)
        (void)DDL_FAIL(err, DDL_ECONFIG,
                       "rank 0 is at %s already: it is %s[%d], and this is %s[%d]; two processes "
                       "were started with RANK=0, or two jobs share the place%s",
                       file->place, meet->host.host, (int)meet->host.pid, file->self.host,
                       (int)file->self.pid,
                       meet->is_proved ? "" : "; that one does not have the secret of this job");
    else
        (void)DDL_FAIL(err, DDL_ECONFIG,
                       "rank 0 is at %s already; two processes were started with RANK=0, or two "
                       "jobs share the place",
                       file->place);
    return ddl_error_blame(err, 0), DDL_ECONFIG;
}

/* What is in the folder of a run has to be of this one, so it must be new. *made: it is ours to remove. */
static ddl_status make_run_folders(const ddl_file_run *file, bool *made, ddl_error *err)
{
    static const char *const folders[] = { "key", "ask", "echo", "here", "will" };
    char path[DDL_RECORD_PATH];
    *made = false;
    ddl_status status = ddl_desk_new_folder(&file->desk, file->run, err);
    if (status == DDL_ESTORE && err->os_errno == EEXIST)
        return DDL_FAIL_OS(err, DDL_ESTORE, EEXIST,
                           "file store: %s, named after a random number that this run alone should have, has "
                           "something in it already; remove it, and see who made it",
                           file->run);
    DDL_TRY(status);
    *made = true;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", file->run, folders[i]);
        DDL_TRY(ddl_desk_folder(&file->desk, path, err));
    }
    return DDL_OK;
}

/* As long as the place is ours every other run that is there was left by the dead, or has lost; so was a
 * record that was not put in its place. Whoever is about to do that, as no lock keeps him out, tries again.
 */
static void remove_leftovers(const ddl_file_run *file)
{
    ddl_bytes names = ddl_desk_list(&file->desk, file->place);
    for (const char *name = NULL; (name = ddl_desk_next(&names, name)) != NULL;) {
        char path[DDL_RECORD_PATH];
        const bool is_record = strncmp(name, "meet" DDL_RECORD_NEW, sizeof "meet" DDL_RECORD_NEW - 1) == 0;
        const bool is_run = ddl_meet_is_token(name) &&
                            strcmp(name, ddl_file_meeting_run_name(file)) != 0; /* an id looks so */
        if (!is_record && !is_run)
            continue;
        if (ddl_file_meeting_check(file, NULL) != DDL_OK)
            break;
        ddl_file_run_place_path(file, path, name);
        if (is_record)
            (void)ddl_desk_remove(&file->desk, path);
        else
            ddl_desk_remove_tree(&file->desk, path);
    }
    ddl_bytes_fini(&names);
}

/* What rank 0 finds at the place. */
struct found_record {
    bool exists;    /* some record */
    bool names_run; /* meet's */
    ddl_meet meet;
    ddl_error unreadable; /* unless DDL_OK, why it is none of ours */
};

/* A network file system may fail to read what was replaced a moment ago: that there is no whole record takes
 * a few looks. */
static void look_at_place(const ddl_file_run *file, struct found_record *found)
{
    char path[DDL_RECORD_PATH];
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS;
    ddl_file_run_place_path(file, path, "meet");
    *found = (struct found_record){ .unreadable = { .code = DDL_OK } };
    for (int tries = 0; tries < DDL_FILE_PLACE_TRIES; tries++) {
        bool is_whole = false;
        ddl_desk_refresh(&file->desk, file->place);
        ddl_status status = ddl_file_meeting_read(file, &found->meet, &is_whole, &found->unreadable);
        found->names_run = (status == DDL_OK && is_whole) || status == DDL_EPROTO;
        found->exists = found->names_run || status != DDL_OK || ddl_desk_find(&file->desk, path) == 0;
        if (found->names_run || status != DDL_OK || !found->exists)
            return;
        ddl_file_pause(&pause, DDL_DEADLINE_NEVER);
    }
}

/* Whether the place still has the record that was found there. */
static bool is_still_there(const ddl_file_run *file, const struct found_record *found)
{
    ddl_meet meet = { .host = { .rank = 0 } };
    bool is_whole;
    (void)!ddl_file_meeting_read(file, &meet, &is_whole, NULL);
    return ddl_file_meeting_names_run(&meet, found->meet.host.run_id);
}

/* Whether somebody has put his record there since, or removed what was there, or our run: then what was
 * written is not there, though no call failed. */
static bool is_overtaken(const ddl_file_run *file, const struct found_record *found, const ddl_error *why)
{
    struct found_record now;
    if (why->os_errno == 0 && ddl_desk_find(&file->desk, file->run) == ENOENT)
        return true;
    look_at_place(file, &now);
    if (!now.exists)
        return found->exists;
    return now.names_run && !ddl_file_meeting_names_run(&now.meet, file->base.run_id) &&
           !(found->names_run && ddl_file_meeting_names_run(&now.meet, found->meet.host.run_id));
}

/* Of the run that was named last: whoever answers lives, whatever he knows. Whoever leaves takes his run
 * along. The pauses make up the limit, not the clock: while the machine stood still he could not answer. */
static bool await_answer(const ddl_file_run *file)
{
    char folder[DDL_RECORD_PATH], path[DDL_RECORD_PATH];
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS;
    bool answered = false, gone = false;
    ddl_file_run_path(file, folder, "echo", "");
    ddl_file_run_path(file, path, "echo", file->token);
    for (int64_t left_ms = ECHO_LIMIT_MS; !answered && !gone && left_ms > 0;) {
        const ddl_deadline limit = ddl_deadline_in_ms(left_ms);
        left_ms -= pause;
        ddl_file_pause(&pause, limit);
        ddl_desk_refresh(&file->desk, folder);
        answered = ddl_desk_find(&file->desk, path) == 0;
        gone = ddl_desk_find(&file->desk, folder) == ENOENT;
    }
    (void)ddl_desk_remove(&file->desk, path);
    return answered;
}

/* Where the lock of the one who has left this cannot tell, he is asked. */
static ddl_status is_alive(ddl_file_run *file, const struct found_record *found, bool *alive, ddl_error *err)
{
    char token[DDL_TOKEN_TEXT], ask[DDL_RECORD_PATH];
    bool asked;
    *alive = false;
    ddl_file_run_name(file, found->meet.host.run_id);
    ddl_meet_hex(found->meet.token, DDL_TOKEN_BYTES, token);
    if (ddl_file_run_has_ended(file, token))
        return DDL_OK;
    DDL_TRY(ddl_file_meeting_ask(file, ask, &asked, err));
    if (!asked)
        return DDL_OK;
    *alive = file->is_modest || await_answer(file);
    (void)ddl_desk_remove(&file->desk, ask);
    return DDL_OK;
}

/* Put our record in the place of what was found there; *put is false if there is something else by now. */
static ddl_status put_meet(ddl_file_run *file, const ddl_meet *meet, const struct found_record *found,
                           bool *put, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_bytes record = { 0 };
    ddl_status status;
    *put = false;
    if (found->names_run && !is_still_there(file, found))
        return DDL_OK;
    ddl_file_run_place_path(file, path, "meet");
    if (found->exists)
        ddl_meet_tell_replaced(path, ddl_file_meeting_written_ns(file, file->run));
    if (!ddl_meet_encode(meet, &record)) {
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory for a record");
    } else if (found->exists) {
        status = ddl_desk_replace(&file->desk, path, ddl_bytes_view(&record), err);
        *put = status == DDL_OK;
    } else {
        status = ddl_desk_create(&file->desk, path, ddl_bytes_view(&record), put, err);
    }
    ddl_bytes_fini(&record);
    return status;
}

/* Our run, and then our record in the place of what was found there. */
static ddl_status put_run(ddl_file_run *file, const ddl_meet *meet, const struct found_record *found,
                          bool *made, bool *put, ddl_error *err)
{
    *put = false;
    DDL_TRY(make_run_folders(file, made, err));
    DDL_TRY(ddl_file_run_be_here(file, err));
    return put_meet(file, meet, found, put, err);
}

/* made: the folder is ours to remove; the next attempt makes it anew. */
static void undo_attempt(ddl_file_run *file, bool made)
{
    ddl_file_run_be_gone(file);
    if (made)
        ddl_desk_remove_tree(&file->desk, file->run);
    else
        file->run[0] = '\0'; /* who leaves must not remove what is another's */
}

enum outcome {
    TAKEN,
    OVERTAKEN, /* somebody else has put something there, or removed what was there: try again */
    FAILED     /* as *err says */
};

/* One attempt. */
static enum outcome take_place(ddl_file_run *file, const ddl_meet *meet, ddl_error *err)
{
    struct found_record found;
    bool alive = false, made = false, put;
    if (ddl_file_meeting_make(file, err) != DDL_OK)
        return FAILED;
    look_at_place(file, &found);
    ddl_status status = found.names_run ? is_alive(file, &found, &alive, err) : DDL_OK;
    ddl_file_run_name(file, meet->host.run_id);
    if (status != DDL_OK)
        return FAILED;
    if (alive) {
        if (found.unreadable.code != DDL_OK)
            *err = found.unreadable;
        else
            (void)!refuse_second(file, &found.meet, err);
        return FAILED;
    }
    status = put_run(file, meet, &found, &made, &put, err);
    if (put)
        return TAKEN;
    const bool was_overtaken =
        status == DDL_OK ||
        (status == DDL_ESTORE && (err->os_errno == ENOENT || is_overtaken(file, &found, err)));
    undo_attempt(file, made);
    return was_overtaken ? OVERTAKEN : FAILED;
}

ddl_status ddl_file_meeting_begin(ddl_file_run *file, const uint8_t token[DDL_TOKEN_BYTES], ddl_error *err)
{
    ddl_meet meet = { .host = file->self };
    bool held = false, found = false;
    enum outcome outcome = OVERTAKEN;
    DDL_TRY(hold_place(file, &held, err));
    if (!held) {
        DDL_TRY(ddl_file_meeting_read(file, &meet, &found, err));
        return refuse_second(file, found ? &meet : NULL, err);
    }
    if (DDL_FAILPOINT_SKIP("rendezvous.run_id"))
        memset(meet.host.run_id, 1, DDL_RUN_ID_BYTES);
    else
        DDL_TRY(ddl_host_random(meet.host.run_id, DDL_RUN_ID_BYTES, err));
    memcpy(meet.token, token, DDL_TOKEN_BYTES);
    memcpy(file->host_token, file->token, DDL_TOKEN_TEXT);
    for (int tries = 0; tries < DDL_FILE_PLACE_TRIES && outcome == OVERTAKEN; tries++)
        outcome = take_place(file, &meet, err);
    if (outcome == FAILED)
        return err->code;
    if (outcome == OVERTAKEN)
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s/meet changed %d times while it was being taken",
                        file->place, DDL_FILE_PLACE_TRIES);
    DDL_TRY(ddl_file_meeting_check(file, err));
    ddl_file_answers_start(
        file); /* first: what is to be removed may be much, and others wait for an answer */
    remove_leftovers(file);
    return DDL_OK;
}
