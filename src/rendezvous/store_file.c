/*
 * store_file.c - a store in a directory that all hosts share: file:///directory.
 *
 *     DIR/ddl-PLACE/                 the meeting place; PLACE is "10.0.0.1_29500"
 *         rank0                      locked by the rank 0 that has the place
 *         meet                       which run is on, written by rank 0
 *         RUN/                       one run, named by its id in hex
 *             key/KEY                values, with the token of who set them
 *             ask/RANK.TOKEN         "are you there?", from a rank that has read meet
 *             echo/TOKEN             rank 0's answer, sealed
 *             here/TOKEN             locked by the process of this token while it takes part
 *             will/TOKEN             what the run fails with if that process ends
 *             failed                 what the run has failed with
 *
 * meet may have been left by a run that was killed. So nobody trusts it: a rank asks with a fresh token
 * under that run, and goes on only when rank 0 echoes it. When meet changes, it asks again there.
 * What is in meet, echo, key, will and failed is sealed (seal.h): the folders are the user's alone, but
 * others may be that user too, on a network file system. Who forges can hold a run up; nobody takes anything
 * in from him. Waiting is polling with back-off. Locks show who lives only to processes on the same host and
 * mount, as the host file beside each of them tells; nothing but the early notice of a death depends on them.
 * So a rank 0 that finds meet, and no lock of its own host that would tell, asks as well, and a thread of the
 * one that has the place answers, as long as that has it: by a clock of its own, as the service loop and the
 * program are not to wait for a file system that hangs. For the same reason a clerk does all calls on files.
 */
#include "rendezvous/store.h"

#include "base/assert.h"
#include "base/list.h"
#include "io/host.h"
#include "rendezvous/store_file_answers.h"
#include "rendezvous/store_file_meeting.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_AT_ONCE = 64 /* values, between looks at the store */ };

static ddl_file_run *as_file(ddl_store *store)
{
    DDL_ASSERT(store->ops == &ddl_store_file);
    return DDL_CONTAINER(store, ddl_file_run, base);
}

/* ---- looking around ---- */

/* Execute the will of the first process found dead. */
static ddl_status execute_will(ddl_file_run *file, const char *token, ddl_error *err)
{
    char path[DDL_RECORD_PATH], name[DDL_FILE_WILL_NAME];
    bool found = false;
    ddl_error will, first;
    ddl_file_run_path(file, path, "will", token);
    ddl_status status =
        ddl_file_run_read_error(file, path, ddl_file_run_will_name(token, name), &found, &will, err);
    if (!found || status != DDL_OK)
        return status;
    DDL_TRY(ddl_file_run_fail(file, &will, &first));
    return ddl_file_run_failure(file, err);
}

static ddl_status look_for_dead(ddl_file_run *file, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_status status = DDL_OK;
    ddl_file_run_path(file, path, "will", "");
    ddl_bytes names = ddl_desk_list(&file->desk, path);
    for (const char *name = NULL; status == DDL_OK && ddl_desk_has_time_to_spare(&file->desk) &&
                                  (name = ddl_desk_next(&names, name)) != NULL;)
        if (ddl_meet_is_token(name) && strcmp(name, file->token) != 0 && ddl_file_run_has_ended(file, name))
            status = execute_will(file, name, err);
    ddl_bytes_fini(&names);
    return status;
}

/* Rank 0 takes the run's folder along when it leaves. */
static bool is_gone(ddl_file_run *file)
{
    file->base.is_lost = file->base.is_lost || ddl_desk_find(&file->desk, file->run) == ENOENT;
    return file->base.is_lost;
}

static ddl_status report_gone(const ddl_file_run *file, ddl_error *err)
{
    DDL_TRY(ddl_file_meeting_check_directory(file, err));
    if (file->self.rank == 0) {
        DDL_TRY(ddl_file_meeting_check(file, err));
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s has been removed", file->run);
    }
    (void)DDL_FAIL(err, DDL_EPEERLOST,
                   "rank 0 left the meeting place %s before all ranks were connected; look at its "
                   "output",
                   file->place);
    return ddl_error_blame(err, 0), DDL_EPEERLOST;
}

/* A call that failed because the run's folder is gone says so. */
static ddl_status explain(ddl_file_run *file, ddl_status status, ddl_error *err)
{
    return status == DDL_ESTORE && is_gone(file) ? report_gone(file, err) : status;
}

static ddl_status look_who_lives(ddl_file_run *file, ddl_error *err)
{
    if (file->self.rank == 0)
        DDL_TRY(
            ddl_file_meeting_check(file, err)); /* first: who has taken the place has removed our folder */
    if (is_gone(file))
        return report_gone(file, err);
    if (file->self.rank == 0)
        return look_for_dead(file, err);
    return ddl_file_run_has_ended(file, file->host_token) ? execute_will(file, file->host_token, err)
                                                          : DDL_OK;
}

/* With a slow file server that takes long, and is to be no more than a part of what is done. */
static ddl_status look_who_lives_in_turn(ddl_file_run *file, ddl_error *err)
{
    const int64_t start_ns = ddl_now_ns();
    if (!ddl_deadline_passed(file->next_life_check))
        return DDL_OK;
    const ddl_status status = look_who_lives(file, err);
    file->next_life_check = ddl_deadline_in_ms(ddl_file_run_life_pause_ms(ddl_now_ns() - start_ns));
    return status;
}

/* One look at the store, for whoever waits: has the run failed, has somebody died, does somebody ask? */
static ddl_status look(ddl_file_run *file, ddl_error *err)
{
    ddl_error unwanted;
    ddl_status status = ddl_file_run_failure(file, err);
    if (file->self.rank == 0 &&
        !ddl_file_run_is_settled(file)) { /* also of a run that has failed: they are to hear that */
        ddl_status answered = ddl_file_answers_give(file, status == DDL_OK ? err : &unwanted);
        status = status == DDL_OK ? answered : status;
    }
    DDL_TRY(status);
    return ddl_file_run_is_settled(file) ? DDL_OK : look_who_lives_in_turn(file, err);
}

/* ---- opening ---- */

static ddl_status name_place(ddl_file_run *file, const char *rest, const char *place, ddl_error *err)
{
    if (rest[0] != '/')
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_STORE=file://%s: write the whole path, from / on, which makes three slashes: "
                        "file:///shared/directory",
                        rest);
    int folder_bytes = (int)strlen(rest);
    while (folder_bytes > 1 && rest[folder_bytes - 1] == '/')
        folder_bytes--;
    int used = snprintf(file->place, sizeof file->place, "%.*s/" DDL_RECORD_PLACE, folder_bytes, rest);
    if (used < 0 || (size_t)used + strlen(place) >= sizeof file->place)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_STORE=file://%.80s... is longer than %zu bytes", rest,
                        sizeof file->place);
    char *at = file->place + used;
    for (; *place != '\0'; place++)
        *at++ = isalnum((unsigned char)*place) || *place == '.' || *place == '-' ? *place : '_';
    *at = '\0';
    return DDL_OK;
}

static void file_destroy(ddl_store *store, ddl_deadline deadline);

static ddl_status open_place(ddl_file_run *file, const ddl_store_options *options, const char *rest,
                             ddl_deadline deadline, ddl_error *err)
{
    uint8_t token[DDL_TOKEN_BYTES];
    DDL_TRY(name_place(file, rest, options->place, err));
    DDL_TRY(ddl_host_random(token, sizeof token, err));
    ddl_meet_hex(token, sizeof token, file->token);
    const int error = ddl_desk_find(&file->desk, rest);
    if (error != 0 && error != ETIMEDOUT)
        return DDL_FAIL_OS(err, DDL_ESTORE, error,
                           "DDL_STORE=file://%s: make that directory on a file system that all "
                           "hosts share",
                           rest);
    DDL_TRY(ddl_file_meeting_make(file, err));
    file->has_place = true;
    ddl_host_id(file->kernel);
    ddl_put_u64(file->kernel + DDL_HOST_ID_BYTES, (uint64_t)ddl_desk_device(&file->desk, file->place));
    return file->self.rank == 0 ? ddl_file_meeting_begin(file, token, err)
                                : ddl_file_meeting_find(file, options, deadline, err);
}

static ddl_status file_open(const ddl_store_options *options, const char *rest, ddl_deadline deadline,
                            ddl_store **out, ddl_error *err)
{
    ddl_error unwanted;
    ddl_file_run *file = ddl_alloc(sizeof *file);
    if (file == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a store");
    file->base.ops = &ddl_store_file;
    file->base.held[0] = file->base.held[1] = -1;
    file->self = *options->self;
    file->is_modest = options->is_modest;
    file->answer_limit = DDL_DEADLINE_NEVER;
    file->desk.until = deadline;
    ddl_status status = ddl_clerk_create(&file->desk.clerk, err);
    if (status == DDL_OK)
        status = open_place(file, options, rest, deadline, err != NULL ? err : &unwanted);
    if (status != DDL_OK) {
        file_destroy(&file->base, ddl_now_ns());
        return status;
    }
    *out = &file->base;
    return DDL_OK;
}

/* ---- requests ---- */

/* A value is kept behind the token of who set it. */
static ddl_status read_key(const ddl_file_run *file, const char *key, ddl_bytes *value,
                           char token[DDL_TOKEN_TEXT], bool *found, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_bytes record = { 0 };
    ddl_file_run_key_path(file, path, key);
    DDL_TRY(ddl_desk_read(&file->desk, path, DDL_FILE_VALUE_BYTES, &record, found, err));
    if (*found && record.bytes < DDL_TOKEN_BYTES) {
        ddl_bytes_fini(&record);
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s is no value of ours", path);
    }
    if (*found) {
        ddl_meet_hex(record.data, DDL_TOKEN_BYTES, token);
        record.bytes -= DDL_TOKEN_BYTES;
        memmove(record.data, record.data + DDL_TOKEN_BYTES, record.bytes);
        *value = record;
    }
    return DDL_OK;
}

static ddl_status write_key(const ddl_file_run *file, const char *key, ddl_view value, bool *created,
                            ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_bytes record = { 0 };
    uint8_t token[DDL_TOKEN_BYTES];
    for (int i = 0; i < DDL_TOKEN_BYTES; i++) {
        char pair[3] = { file->token[2 * i], file->token[2 * i + 1], '\0' };
        token[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    ddl_file_run_key_path(file, path, key);
    if (!ddl_bytes_append(&record, token, sizeof token) ||
        !ddl_bytes_append(&record, value.data, value.bytes)) {
        ddl_bytes_fini(&record);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a value of %zu bytes", value.bytes);
    }
    ddl_status status = ddl_desk_create(&file->desk, path, ddl_bytes_view(&record), created, err);
    ddl_bytes_fini(&record);
    return status;
}

/* A rank that is refused has no say, also when it dies before it can leave. */
static void withdraw_will(ddl_file_run *file)
{
    char path[DDL_RECORD_PATH];
    if (file->has_set || !file->has_will)
        return;
    ddl_file_run_path(file, path, "will", file->token);
    (void)ddl_desk_remove(&file->desk, path);
    file->has_will = false;
}

static ddl_status set_new(ddl_file_run *file, const char *key, ddl_view value, ddl_deadline deadline,
                          ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    char token[DDL_TOKEN_TEXT];
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS;
    bool created = false, found = false;
    DDL_TRY(look(file, err));
    DDL_TRY(ddl_file_run_be_here(file, err));
    DDL_TRY(write_key(file, key, value, &created, err));
    if (created) {
        file->has_set = true;
        file->settled = file->settled || strcmp(key, DDL_STORE_SETTLED) == 0;
        *outcome = DDL_STORE_CREATED;
        return DDL_OK;
    }
    do {
        DDL_TRY(read_key(file, key, existing, token, &found, err));
        if (found) {
            withdraw_will(file);
            *outcome = ddl_file_run_has_left(file, token) || ddl_file_run_has_ended(file, token)
                           ? DDL_STORE_ABANDONED
                           : DDL_STORE_TAKEN;
            return DDL_OK;
        }
        ddl_file_pause(&pause, deadline);
    } while (!ddl_deadline_passed(deadline));
    return DDL_FAIL(err, DDL_ESTORE, "file store: %s exists in %s, but cannot be read", key, file->run);
}

static ddl_status file_set_new(ddl_store *store, const char *key, ddl_view value, ddl_deadline deadline,
                               ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    ddl_file_run *file = as_file(store);
    return explain(file, set_new(file, key, value, deadline, outcome, existing, err), err);
}

static ddl_status file_get(ddl_store *store, const char *key, ddl_deadline deadline, ddl_bytes *value,
                           ddl_error *err)
{
    ddl_file_run *file = as_file(store);
    char token[DDL_TOKEN_TEXT], folder[DDL_RECORD_PATH];
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS;
    bool found = false;
    ddl_file_run_path(file, folder, "key", "");
    for (;;) {
        DDL_TRY(look(file, err));
        DDL_TRY(read_key(file, key, value, token, &found, err));
        if (found)
            break;
        if (ddl_deadline_passed(deadline))
            return DDL_FAIL(err, DDL_ETIMEDOUT, "%s was not set in the store %s", key, file->place);
        ddl_file_pause(&pause, deadline);
        ddl_desk_refresh(&file->desk, folder);
    }
    if (strcmp(key, DDL_STORE_SETTLED) == 0) { /* rank 0 need not wait for us to hear it */
        file->settled = true;
        ddl_file_run_path(file, folder, "will", file->token);
        (void)ddl_desk_remove(&file->desk, folder);
    }
    return DDL_OK;
}

static ddl_status read_member_value(const ddl_file_run *file, const ddl_store_many *many, int rank,
                                    ddl_error *err)
{
    char key[DDL_STORE_NAME_BYTES], token[DDL_TOKEN_TEXT];
    ddl_bytes sealed = { 0 };
    bool found = false;
    ddl_store_name(many->kind, rank, key);
    DDL_TRY(read_key(file, key, &sealed, token, &found, err));
    ddl_status status = DDL_OK;
    if (found)
        status = ddl_store_found(&file->base, many, rank, ddl_bytes_view(&sealed), err);
    ddl_bytes_fini(&sealed);
    return status;
}

/* A file of this name in key/: note which of these keys it is, if any. *nnew counts those that were not known
 * to be there. */
static ddl_status note_listed_key(const ddl_file_run *file, const ddl_store_many *many, const char *name,
                                  int *nnew, ddl_error *err)
{
    const int rank = ddl_file_run_rank_of(name, many->kind, many->count);
    if (rank < 0 || many->present[rank])
        return DDL_OK;
    if (many->names_suffice)
        many->present[rank] = true;
    else
        DDL_TRY(read_member_value(file, many, rank, err));
    if (many->present[rank])
        (*nnew)++;
    return DDL_OK;
}

/*
 * Note which of the keys are there, by one listing of the folder and the files that it names. *nnew: how many
 * more there are now; after READ_AT_ONCE, or where time gets short, the others are left; but not where names
 * suffice.
 */
static ddl_status scan_keys(const ddl_file_run *file, const ddl_store_many *many, int *nnew, ddl_error *err)
{
    const bool must_read = !many->names_suffice;
    char folder[DDL_RECORD_PATH];
    ddl_bytes names = { 0 };
    *nnew = 0;
    ddl_file_run_path(file, folder, "key", "");
    DDL_TRY(ddl_desk_names(&file->desk, folder, &names, err));
    ddl_status status = DDL_OK;
    for (const char *name = NULL; status == DDL_OK && (name = ddl_desk_next(&names, name)) != NULL;) {
        if (must_read && (*nnew == READ_AT_ONCE || !ddl_desk_has_time_to_spare(&file->desk)))
            break;
        status = note_listed_key(file, many, name, nnew, err);
    }
    ddl_bytes_fini(&names);
    return status;
}

static int first_missing(const ddl_store_many *many)
{
    int rank = 0;
    while (rank < many->count && many->present[rank])
        rank++;
    return rank;
}

static ddl_status get_many(ddl_file_run *file, const ddl_store_many *many, ddl_deadline deadline,
                           ddl_error *err)
{
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS;
    for (int rank, nnew; (rank = first_missing(many)) < many->count;) {
        const bool is_late = ddl_deadline_passed(deadline);
        DDL_TRY(look(file, err));
        DDL_TRY(scan_keys(file, many, &nnew, err));
        if (nnew > 0) /* others are about to come */
            pause = DDL_FILE_FIRST_PAUSE_MS;
        else if (is_late)
            return DDL_FAIL(err, DDL_ETIMEDOUT, "%s.%d was not set in the store %s", many->kind, rank,
                            file->place);
        if (nnew < READ_AT_ONCE)
            ddl_file_pause(&pause, deadline);
    }
    return DDL_OK;
}

static ddl_status file_get_many(ddl_store *store, const ddl_store_many *many, ddl_deadline deadline,
                                ddl_error *err)
{
    ddl_file_run *file = as_file(store);
    return explain(file, get_many(file, many, deadline, err), err);
}

static ddl_status will(ddl_file_run *file, const ddl_error *last_will, ddl_error *err)
{
    char path[DDL_RECORD_PATH], name[DDL_FILE_WILL_NAME];
    bool created;
    DDL_TRY(look(file, err));
    DDL_TRY(ddl_file_run_be_here(file, err));
    ddl_file_run_path(file, path, "will", file->token);
    DDL_TRY(ddl_file_run_create_error(file, path, ddl_file_run_will_name(file->token, name), last_will,
                                      &created, err));
    file->will = *last_will;
    file->has_will = true;
    return DDL_OK;
}

static ddl_status file_will(ddl_store *store, const ddl_error *last_will, ddl_deadline deadline,
                            ddl_error *err)
{
    ddl_file_run *file = as_file(store);
    (void)deadline;
    return explain(file, will(file, last_will, err), err);
}

static ddl_status file_fail(ddl_store *store, const ddl_error *cause, ddl_deadline deadline, ddl_error *first)
{
    ddl_file_run *file = as_file(store);
    ddl_desk_limit(&file->desk, ddl_deadline_earlier(deadline, file->desk.until));
    return ddl_file_run_fail(file, cause, first);
}

static ddl_status file_check(ddl_store *store, ddl_error *err)
{
    return look(as_file(store), err);
}

/* ---- closing ---- */

static void file_destroy(ddl_store *store, ddl_deadline deadline)
{
    ddl_file_run *file = as_file(store);
    ddl_error first;
    if (file->desk.clerk != NULL)
        ddl_desk_limit(&file->desk, ddl_deadline_earlier(deadline, file->desk.until));
    if (file->has_will && file->has_set && !file->failed && !ddl_file_run_is_settled(file))
        (void)!ddl_file_run_fail(file, &file->will,
                                 &first); /* nobody is left to tell if that does not work */
    if (file->settled)                    /* the start is over */
        ddl_desk_limit(&file->desk, deadline);
    if (file->base.held[1] >= 0)
        ddl_file_run_be_gone(file);
    if (file->base.held[0] >= 0)
        ddl_file_meeting_leave(file, deadline);
    if (file->has_place) /* stays if somebody is at it, of this run or already of the next */
        (void)ddl_desk_remove_folder(&file->desk, file->place);
    ddl_clerk_destroy(file->desk.clerk);
    ddl_file_hosts_fini(&file->hosts);
    ddl_free(file);
}

const struct ddl_store_ops ddl_store_file = {
    .scheme = "file",
    .form = "/directory",
    .outlives = true,
    .open = file_open,
    .set_new = file_set_new,
    .get = file_get,
    .get_many = file_get_many,
    .will = file_will,
    .fail = file_fail,
    .check = file_check,
    .destroy = file_destroy,
};
