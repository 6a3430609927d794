/* store_file_meeting.c - the record at the meeting place: taken over, asked, left. */
#include "rendezvous/store_file_meeting.h"

#include "base/failpoint.h"
#include "io/host.h"
#include "rendezvous/store_file_answers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    ECHO_LIMIT_MS = 900, /* for whoever may have the place to answer who wants it */
    PLACE_TRIES = 10,
    LEAVING_TRIES = 12, /* half a second */
};

static ddl_status read_meet(const ddl_file_run *file, ddl_meet *meet, bool *found, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_bytes content = { 0 };
    ddl_file_run_place_path(file, path, "meet");
    DDL_TRY(ddl_desk_read(&file->desk, path, DDL_MEET_ROOM, &content, found, err));
    ddl_status status =
        *found ? ddl_meet_decode(&file->self, ddl_bytes_view(&content), path, meet, err) : DDL_OK;
    ddl_bytes_fini(&content);
    return status;
}

static bool names_run(const ddl_meet *meet, const uint8_t *run_id)
{
    return memcmp(meet->host.run_id, run_id, DDL_RUN_ID_BYTES) == 0;
}

/* When meet was written, if reference was just now: both by the clock of whatever serves these files. */
static int64_t meet_written_ns(const ddl_file_run *file, const char *reference)
{
    char path[DDL_RECORD_PATH];
    ddl_file_run_place_path(file, path, "meet");
    const int64_t age_s = ddl_desk_age_s(&file->desk, path, reference);
    return ddl_meet_written_ns(age_s >= 0 && age_s < INT64_MAX / 1000 ? age_s * 1000 : -1);
}

ddl_status ddl_file_meeting_check_directory(const ddl_file_run *file, ddl_error *err)
{
    char path[DDL_FILE_PLACE_ROOM];
    memcpy(path, file->place, sizeof path);
    *strrchr(path, '/') = '\0';
    const char *directory = path[0] != '\0' ? path : "/";
    if (ddl_desk_find(&file->desk, directory) != ENOENT)
        return DDL_OK;
    return DDL_FAIL(err, DDL_ESTORE,
                    "file store: the directory %s has been removed; make it again on a file system that all "
                    "hosts share, and start all ranks",
                    directory);
}

ddl_status ddl_file_meeting_check(const ddl_file_run *file, ddl_error *err)
{
    ddl_meet meet;
    bool found;
    DDL_TRY(read_meet(file, &meet, &found, err));
    if (found && names_run(&meet, file->base.run_id))
        return DDL_OK;
    if (!found) {
        DDL_TRY(ddl_file_meeting_check_directory(file, err));
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s/meet has been removed", file->place);
    }
    return DDL_FAIL(err, DDL_ECONFIG,
                    "another rank 0, %s[%d], has taken the meeting place %s; do two jobs share it?",
                    meet.host.host, (int)meet.host.pid, file->place);
}

/* ---- rank 0 ---- */

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

/* The last name in the path of our run; empty: there is none, or it is another's. */
static const char *name_of_run(const ddl_file_run *file)
{
    const char *slash = strrchr(file->run, '/');
    return slash != NULL ? slash + 1 : "";
}

static bool begins_with(const char *name, const char *beginning)
{
    return strncmp(name, beginning, strlen(beginning)) == 0;
}

/* As long as the place is ours every other run that is there was left by the dead, or has lost; so was a
 * record that was not put in its place. Whoever is about to do that, as no lock keeps him out, tries again.
 */
static void remove_leftovers(const ddl_file_run *file)
{
    ddl_bytes names = ddl_desk_list(&file->desk, file->place);
    for (const char *name = NULL; (name = ddl_desk_next(&names, name)) != NULL;) {
        char path[DDL_RECORD_PATH];
        const bool is_record = begins_with(name, "meet" DDL_RECORD_NEW);
        const bool is_run =
            ddl_meet_is_token(name) && strcmp(name, name_of_run(file)) != 0; /* an id looks so */
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

ddl_status ddl_file_meeting_make(const ddl_file_run *file, ddl_error *err)
{
    ddl_status status = ddl_desk_folder(&file->desk, file->place, err);
    for (int tries = 1; tries < PLACE_TRIES && status != DDL_OK && err->os_errno == ENOENT; tries++)
        status = ddl_desk_folder(&file->desk, file->place, err);
    return status == DDL_ESTORE && ddl_file_meeting_check_directory(file, err) != DDL_OK ? DDL_ESTORE
                                                                                         : status;
}

static ddl_status hold_place(ddl_file_run *file, bool *held, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_file_run_place_path(file, path, "rank0");
    ddl_status status = ddl_desk_lock(&file->desk, path, &file->base.held[0], held, err);
    for (int tries = 1; tries < PLACE_TRIES && status != DDL_OK && err->os_errno == ENOENT; tries++) {
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

/* What there is at the place, as rank 0 finds it. */
struct left {
    bool exists;    /* some record */
    bool names_run; /* meet's */
    ddl_meet meet;
    ddl_error odd; /* unless DDL_OK, why it is none of ours */
};

/* A network file system may fail to read what was replaced a moment ago: that there is no whole record takes
 * a few looks. */
static void find_left(const ddl_file_run *file, struct left *left)
{
    char path[DDL_RECORD_PATH];
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS;
    ddl_file_run_place_path(file, path, "meet");
    *left = (struct left){ .odd = { .code = DDL_OK } };
    for (int tries = 0; tries < PLACE_TRIES; tries++) {
        bool found = false;
        ddl_desk_refresh(&file->desk, file->place);
        ddl_status status = read_meet(file, &left->meet, &found, &left->odd);
        left->names_run = (status == DDL_OK && found) || status == DDL_EPROTO;
        left->exists = left->names_run || status != DDL_OK || ddl_desk_find(&file->desk, path) == 0;
        if (left->names_run || status != DDL_OK || !left->exists)
            return;
        ddl_file_pause(&pause, DDL_DEADLINE_NEVER);
    }
}

/* Whether that is there still. */
static bool is_same(const ddl_file_run *file, const struct left *left)
{
    ddl_meet meet = { .host = { .rank = 0 } };
    bool found;
    (void)!read_meet(file, &meet, &found, NULL);
    return names_run(&meet, left->meet.host.run_id);
}

/* Whether somebody has put his record there since, or removed what was there, or our run: then what was
 * written is not there, though no call failed. */
static bool is_overtaken(const ddl_file_run *file, const struct left *left, const ddl_error *why)
{
    struct left now;
    if (why->os_errno == 0 && ddl_desk_find(&file->desk, file->run) == ENOENT)
        return true;
    find_left(file, &now);
    if (!now.exists)
        return left->exists;
    return now.names_run && !names_run(&now.meet, file->base.run_id) &&
           !(left->names_run && names_run(&now.meet, left->meet.host.run_id));
}

/* Ask the run that was named last, by this file; *asked is false if its folder is gone, so that it is over.
 */
static ddl_status leave_ask(const ddl_file_run *file, char path[DDL_RECORD_PATH], bool *asked, ddl_error *err)
{
    char ask[DDL_TOKEN_TEXT + 16];
    snprintf(ask, sizeof ask, "%d.%s", file->self.rank, file->token);
    ddl_file_run_path(file, path, "ask", ask);
    const int error = ddl_desk_touch(&file->desk, path);
    *asked = error == 0 || error == EEXIST;
    if (!*asked && error != ENOENT)
        return DDL_FAIL_OS(err, DDL_ESTORE, error, "file store: creating %s failed", path);
    return DDL_OK;
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
static ddl_status is_alive(ddl_file_run *file, const struct left *left, bool *alive, ddl_error *err)
{
    char token[DDL_TOKEN_TEXT], ask[DDL_RECORD_PATH];
    bool asked;
    *alive = false;
    ddl_file_run_name(file, left->meet.host.run_id);
    ddl_meet_hex(left->meet.token, DDL_TOKEN_BYTES, token);
    if (ddl_file_run_has_ended(file, token))
        return DDL_OK;
    DDL_TRY(leave_ask(file, ask, &asked, err));
    if (!asked)
        return DDL_OK;
    *alive = file->is_modest || await_answer(file);
    (void)ddl_desk_remove(&file->desk, ask);
    return DDL_OK;
}

/* Put our record in the place of what was found there; *put is false if there is something else by now. */
static ddl_status put_meet(ddl_file_run *file, const ddl_meet *meet, const struct left *left, bool *put,
                           ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_bytes record = { 0 };
    ddl_status status;
    *put = false;
    if (left->names_run && !is_same(file, left))
        return DDL_OK;
    ddl_file_run_place_path(file, path, "meet");
    if (left->exists)
        ddl_meet_tell_replaced(path, meet_written_ns(file, file->run));
    if (!ddl_meet_encode(meet, &record)) {
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory for a record");
    } else if (left->exists) {
        status = ddl_desk_replace(&file->desk, path, ddl_bytes_view(&record), err);
        *put = status == DDL_OK;
    } else {
        status = ddl_desk_create(&file->desk, path, ddl_bytes_view(&record), put, err);
    }
    ddl_bytes_fini(&record);
    return status;
}

/* One attempt; unless it is *taken, somebody else has put something there, or removed what was there. */
static ddl_status take_place(ddl_file_run *file, const ddl_meet *meet, bool *taken, ddl_error *err)
{
    struct left left;
    bool alive = false, made = false;
    DDL_TRY(ddl_file_meeting_make(file, err));
    find_left(file, &left);
    ddl_status status = left.names_run ? is_alive(file, &left, &alive, err) : DDL_OK;
    ddl_file_run_name(file, meet->host.run_id);
    if (status != DDL_OK)
        return status;
    if (alive && left.odd.code != DDL_OK)
        return *err = left.odd, err->code;
    if (alive)
        return refuse_second(file, &left.meet, err);
    status = make_run_folders(file, &made, err);
    if (status == DDL_OK)
        status = ddl_file_run_be_here(file, err);
    if (status == DDL_OK)
        status = put_meet(file, meet, &left, taken, err);
    if (!*taken)
        ddl_file_run_be_gone(file);
    bool again = status == DDL_ESTORE && (err->os_errno == ENOENT || is_overtaken(file, &left, err));
    if (!*taken && made)
        ddl_desk_remove_tree(&file->desk, file->run); /* the next attempt makes it anew */
    if (!made)
        file->run[0] = '\0'; /* who leaves must not remove what is another's */
    return again ? DDL_OK : status;
}

ddl_status ddl_file_meeting_begin(ddl_file_run *file, const uint8_t token[DDL_TOKEN_BYTES], ddl_error *err)
{
    ddl_meet meet = { .host = file->self };
    bool held = false, found = false, taken = false;
    DDL_TRY(hold_place(file, &held, err));
    if (!held) {
        DDL_TRY(read_meet(file, &meet, &found, err));
        return refuse_second(file, found ? &meet : NULL, err);
    }
    if (DDL_FAILPOINT_SKIP("rendezvous.run_id"))
        memset(meet.host.run_id, 1, DDL_RUN_ID_BYTES);
    else
        DDL_TRY(ddl_host_random(meet.host.run_id, DDL_RUN_ID_BYTES, err));
    memcpy(meet.token, token, DDL_TOKEN_BYTES);
    memcpy(file->host_token, file->token, DDL_TOKEN_TEXT);
    for (int tries = 0; tries < PLACE_TRIES && !taken; tries++)
        DDL_TRY(take_place(file, &meet, &taken, err));
    if (!taken)
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s/meet changed %d times while it was being taken",
                        file->place, PLACE_TRIES);
    DDL_TRY(ddl_file_meeting_check(file, err));
    ddl_file_answers_start(
        file); /* first: what is to be removed may be much, and others wait for an answer */
    remove_leftovers(file);
    return DDL_OK;
}

/* ---- the others ---- */

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
    ddl_status status = read_meet(file, meet, found, &why);
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
    if (!names_run(meet, asked)) {
        bool has_asked;
        DDL_TRY(leave_ask(file, path, &has_asked, err));
        if (has_asked)
            memcpy(asked, meet->host.run_id, DDL_RUN_ID_BYTES);
        file->written_ns = meet_written_ns(file, path);
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
    *err = refusal;
    return status;
}

ddl_status ddl_file_meeting_find(ddl_file_run *file, const ddl_store_options *options, ddl_deadline deadline,
                                 ddl_error *err)
{
    ddl_meet meet = { .host = { .rank = 0 } };
    uint8_t asked[DDL_RUN_ID_BYTES] = { 0 };
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS, start_ns = ddl_now_ns();
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
                "hosts share that directory, or raise DDL_START_TIMEOUT%s%s",
                file->place, (double)(ddl_now_ns() - start_ns) / 1e9,
                meet.host.nranks > 0 && !meet.is_proved ? " (a job with another secret was there)" : "",
                there);
            return ddl_error_blame(err, 0), DDL_ETIMEDOUT;
        }
        ddl_progress_tell(options->progress, "rank 0 at %s%s", file->place, there);
        ddl_file_pause(&pause, deadline);
    }
    ddl_meet_hex(meet.token, DDL_TOKEN_BYTES, file->host_token);
    return check_host(file, &meet, err);
}

/* ---- leaving ---- */

/* Whether nobody else has a will: all have heard that the run is settled, or have left. */
static bool all_know(ddl_file_run *file)
{
    char path[DDL_RECORD_PATH];
    bool all = true;
    ddl_file_run_path(file, path, "will", "");
    ddl_bytes names = ddl_desk_list(&file->desk, path);
    for (const char *name = NULL; (name = ddl_desk_next(&names, name)) != NULL;)
        all = all && (!ddl_meet_is_token(name) || strcmp(name, file->token) == 0 ||
                      ddl_file_run_has_ended(file, name));
    ddl_bytes_fini(&names);
    return all;
}

/* A network file system hides a file that is removed while it is open, and removes it a moment after it was
 * closed: until then its folder is not empty. Whether nothing but such files, by the names that NFS and FUSE
 * give them, keeps the place; they may be in our run, too. */
static bool is_emptying(const ddl_file_run *file)
{
    bool stays = false;
    ddl_bytes names = ddl_desk_list(&file->desk, file->place);
    for (const char *name = NULL; (name = ddl_desk_next(&names, name)) != NULL;)
        stays = stays || !(strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || begins_with(name, ".nfs") ||
                           begins_with(name, ".fuse_hidden") || strcmp(name, name_of_run(file)) == 0);
    ddl_bytes_fini(&names);
    return !stays;
}

/* With nobody's lock at the place. */
static void remove_place(const ddl_file_run *file, const char *lock)
{
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS;
    for (int tries = 0; tries < LEAVING_TRIES; tries++) {
        if (file->run[0] != '\0')
            ddl_desk_remove_tree(&file->desk, file->run);
        const int error = ddl_desk_remove_folder(&file->desk, file->place);
        if ((error != ENOTEMPTY && error != EEXIST) || ddl_desk_find(&file->desk, lock) == 0 ||
            !is_emptying(file))
            return;
        ddl_file_pause(&pause, DDL_DEADLINE_NEVER);
    }
}

void ddl_file_meeting_leave(ddl_file_run *file, ddl_deadline deadline)
{
    char path[DDL_RECORD_PATH];
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS;
    ddl_meet meet;
    bool found = false, ours = file->run[0] != '\0' && ddl_file_meeting_check(file, NULL) == DDL_OK;
    while (ours && !all_know(file) && !ddl_deadline_passed(deadline))
        ddl_file_pause(&pause, deadline);
    ddl_file_answers_stop(file);
    ours = ours && ddl_file_meeting_check(file, NULL) == DDL_OK;
    ddl_file_run_place_path(file, path, "meet");
    if (ours)
        (void)ddl_desk_remove(&file->desk, path);
    bool is_free = ours || (read_meet(file, &meet, &found, NULL) == DDL_OK && !found);
    if (file->run[0] != '\0')
        ddl_desk_remove_tree(&file->desk, file->run);
    ddl_file_run_place_path(file, path, "rank0");
    if (is_free)
        (void)ddl_desk_remove(&file->desk, path);
    ddl_desk_close(&file->desk, &file->base.held[0]);
    if (is_free)
        remove_place(file, path);
}
