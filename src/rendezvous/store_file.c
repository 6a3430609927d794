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
#include "base/bell.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "io/host.h"
#include "io/socket.h"
#include "protocol/store_wire.h"
#include "rendezvous/clerk.h"
#include "rendezvous/meet.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKEN_BYTES = DDL_TOKEN_BYTES,
    TOKEN_TEXT = DDL_TOKEN_TEXT,
    KERNEL_BYTES = DDL_HOST_ID_BYTES + 8,
    FIRST_PAUSE_MS = 1,
    LAST_PAUSE_MS = 100,
    LIFE_INTERVAL_MS = 200, /* between looks at who still lives */
    ANSWER_LIMIT_MS = 500,
    KEEP_INTERVAL_MS = 300, /* between looks of whoever has the place at who wants it */
    ECHO_LIMIT_MS = 900,    /* for whoever may have the place to answer who wants it */
    PLACE_TRIES = 10,
    LEAVING_TRIES = 12,                                                       /* half a second */
    VALUE_BYTES = TOKEN_BYTES + DDL_STORE_SEAL_ROOM + DDL_STORE_ROSTER_LIMIT, /* of a key's file, at most */
    PLACE_ROOM = 512 /* leaves room for the longest key within DDL_RECORD_PATH */
};

struct store_file {
    ddl_store base; /* held[0]: rank0, held[1]: here/TOKEN */
    ddl_desk desk;  /* of whoever uses the store, who may wait for a file server as long as for the store to
                     * be opened, but for the last words; its keeper has another */
    ddl_hello_party self;
    char place[PLACE_ROOM];
    bool has_place; /* it is there, and ours */
    char run[PLACE_ROOM + 40];
    char token[TOKEN_TEXT];
    uint8_t kernel[KERNEL_BYTES]; /* whose locks we see: the host's, on this mount of the directory */
    char host_token[TOKEN_TEXT];  /* rank 0's */
    int64_t written_ns;           /* the record at the place whose run we asked */
    ddl_error odd_meet;           /* why the record at the place was passed over */
    ddl_deadline next_life_check;
    ddl_deadline answer_limit;               /* rank 0: for answers that could not be written yet */
    bool has_will, has_set, settled, failed; /* has_set: created a key */
    ddl_error will, failure;
    ddl_bell bell; /* rank 0: with the next, how its keeper is told to stop */
    bool is_kept, stops;
    pthread_t keeper; /* while is_kept */
    ddl_desk keepers_desk;
};

static struct store_file *as_file(ddl_store *store)
{
    DDL_ASSERT(store->ops == &ddl_store_file);
    return DDL_CONTAINER(store, struct store_file, base);
}

/* ---- names ---- */

/* Path of an item of the run: path_in(file, path, "echo", token). */
static void path_in(const struct store_file *file, char path[DDL_RECORD_PATH], const char *folder,
                    const char *item)
{
    int bytes = snprintf(path, DDL_RECORD_PATH, "%s/%s/%s", file->run, folder, item);
    DDL_ASSERT(bytes > 0);
    DDL_ASSERT(bytes < DDL_RECORD_PATH);
}

/* A key that is no good name of a file, or too long for one, is told from others by a hash of the whole. */
static void path_of_key(const struct store_file *file, char path[DDL_RECORD_PATH], const char *key)
{
    enum { PLAIN_BYTES = 128 };
    char name[PLAIN_BYTES + 24] = "="; /* so that no name begins with a dot */
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    size_t bytes = 1;
    bool plain = strlen(key) < PLAIN_BYTES;
    for (const char *at = key; *at != '\0'; at++) {
        bool good = isalnum((unsigned char)*at) || *at == '.' || *at == '-';
        hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
        plain = plain && good;
        if (bytes < PLAIN_BYTES)
            name[bytes++] = good ? *at : '_';
    }
    name[bytes] = '\0';
    if (!plain)
        snprintf(name + bytes, sizeof name - bytes, "=%08x%08x", (unsigned)(hash >> 32), (unsigned)hash);
    path_in(file, path, "key", name);
}

static void path_at_place(const struct store_file *file, char path[DDL_RECORD_PATH], const char *item)
{
    snprintf(path, DDL_RECORD_PATH, "%s/%s", file->place, item);
}

static void name_run(struct store_file *file, const uint8_t *run_id)
{
    char text[DDL_RUN_TEXT];
    ddl_meet_hex(run_id, DDL_RUN_ID_BYTES, text);
    memcpy(file->base.run_id, run_id, DDL_RUN_ID_BYTES);
    snprintf(file->run, sizeof file->run, "%s/%s", file->place, text);
}

static ddl_seal seal_of(const struct store_file *file)
{
    return (ddl_seal){ file->self.prover, file->base.run_id };
}

/* ---- the meeting record ---- */

static ddl_status read_meet(const struct store_file *file, ddl_meet *meet, bool *found, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_bytes content = { 0 };
    path_at_place(file, path, "meet");
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
static int64_t meet_written_ns(const struct store_file *file, const char *reference)
{
    char path[DDL_RECORD_PATH];
    path_at_place(file, path, "meet");
    const int64_t age_s = ddl_desk_age_s(&file->desk, path, reference);
    return ddl_meet_written_ns(age_s >= 0 && age_s < INT64_MAX / 1000 ? age_s * 1000 : -1);
}

/* ---- who lives ---- */

/* The two files of a process in here/: the one that it holds, and the one that says on which host. */
static void here_paths(const struct store_file *file, const char *token, char lock[DDL_RECORD_PATH],
                       char host[DDL_RECORD_PATH])
{
    char name[TOKEN_TEXT + 8];
    snprintf(name, sizeof name, "%s.host", token);
    path_in(file, lock, "here", token);
    path_in(file, host, "here", name);
}

/* Only a lock in this host's own kernel, on the same mount, is proof of a death. */
static bool has_ended(const struct store_file *file, const char *token)
{
    char lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH];
    ddl_bytes id = { 0 };
    bool found = false;
    here_paths(file, token, lock, host);
    bool ours = ddl_host_id_is_sure(file->kernel) &&
                ddl_desk_read(&file->desk, host, KERNEL_BYTES, &id, &found, NULL) == DDL_OK && found &&
                id.bytes == KERNEL_BYTES && memcmp(id.data, file->kernel, KERNEL_BYTES) == 0;
    ddl_bytes_fini(&id);
    return ours && ddl_desk_life_of(&file->desk, lock) == DDL_RECORD_ENDED;
}

/* Whoever parts in peace takes its files along. */
static bool has_left(const struct store_file *file, const char *token)
{
    char lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH], folder[DDL_RECORD_PATH];
    path_in(file, folder, "here", "");
    ddl_desk_refresh(&file->desk, folder);
    here_paths(file, token, lock, host);
    return ddl_desk_find(&file->desk, lock) == ENOENT;
}

/* Show that this process takes part, if it has not yet. */
static ddl_status be_here(struct store_file *file, ddl_error *err)
{
    char lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH];
    bool created, held = false;
    if (file->base.held[1] >= 0)
        return DDL_OK;
    here_paths(file, file->token, lock, host);
    DDL_TRY(ddl_desk_lock(&file->desk, lock, &file->base.held[1], &held, err));
    return ddl_desk_create(&file->desk, host, (ddl_view){ file->kernel, KERNEL_BYTES }, &created, err);
}

static void be_gone(struct store_file *file)
{
    char lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH], will[DDL_RECORD_PATH];
    here_paths(file, file->token, lock, host);
    path_in(file, will, "will", file->token);
    (void)ddl_desk_remove(&file->desk, will);
    (void)ddl_desk_remove(&file->desk, lock);
    (void)ddl_desk_remove(&file->desk, host);
    ddl_desk_close(&file->desk, &file->base.held[1]);
}

/* ---- how the run came out ---- */

/* An error that a rank left at path under this name. */
static ddl_status read_error(const struct store_file *file, const char *path, const char *name, bool *found,
                             ddl_error *error, ddl_error *err)
{
    const ddl_seal seal = seal_of(file);
    ddl_bytes content = { 0 };
    ddl_view value;
    DDL_TRY(ddl_desk_read(&file->desk, path, DDL_STORE_ERROR_BYTES + DDL_SEAL_BYTES, &content, found, err));
    ddl_status status = DDL_OK;
    if (*found)
        status = ddl_seal_get(&seal, name, ddl_bytes_view(&content), &value, NULL)
                     ? ddl_store_error_decode(value, error, err)
                     : ddl_seal_fail(name, file->run, err);
    ddl_bytes_fini(&content);
    return status;
}

static ddl_status create_error(const struct store_file *file, const char *path, const char *name,
                               const ddl_error *error, bool *created, ddl_error *err)
{
    const ddl_seal seal = seal_of(file);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    ddl_view content = { value, ddl_store_error_encode(error, value) };
    ddl_bytes sealed = { 0 };
    ddl_status status = ddl_seal_put(&seal, file->self.rank, name, content, &sealed)
                            ? ddl_desk_create(&file->desk, path, ddl_bytes_view(&sealed), created, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for an error");
    ddl_bytes_fini(&sealed);
    return status;
}

static ddl_status read_failure(struct store_file *file, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    bool found = false;
    ddl_error failure;
    if (!file->failed) {
        snprintf(path, sizeof path, "%s/failed", file->run);
        ddl_status status = read_error(file, path, "failed", &found, &failure, err);
        if (status != DDL_OK || !found)
            return status;
        file->failed = true;
        file->failure = failure;
    }
    if (err != NULL)
        *err = file->failure;
    return file->failure.code;
}

/* Whether a rank of this run has set the key; a forged one is left for those who read its value. */
static bool is_settled(struct store_file *file)
{
    const ddl_seal seal = seal_of(file);
    char path[DDL_RECORD_PATH];
    ddl_bytes record = { 0 };
    ddl_view value;
    bool found = false;
    path_of_key(file, path, DDL_STORE_SETTLED);
    if (file->settled || ddl_desk_find(&file->desk, path) != 0)
        return file->settled;
    file->settled =
        ddl_desk_read(&file->desk, path, VALUE_BYTES, &record, &found, NULL) == DDL_OK && found &&
        record.bytes >= TOKEN_BYTES &&
        ddl_seal_get(&seal, DDL_STORE_SETTLED,
                     (ddl_view){ record.data + TOKEN_BYTES, record.bytes - TOKEN_BYTES }, &value, NULL);
    ddl_bytes_fini(&record);
    return file->settled;
}

/* On a full disk what is said last takes the place of what was to be said in case of death. */
static ddl_status create_failure(struct store_file *file, const ddl_error *cause, ddl_error *err)
{
    char path[DDL_RECORD_PATH], will[DDL_RECORD_PATH];
    bool created = false;
    snprintf(path, sizeof path, "%s/failed", file->run);
    ddl_status status = create_error(file, path, "failed", cause, &created, err);
    if (status == DDL_OK || !file->has_will)
        return status;
    path_in(file, will, "will", file->token);
    (void)ddl_desk_remove(&file->desk, will);
    file->has_will = false;
    return create_error(file, path, "failed", cause, &created, err);
}

/* *err becomes the error that the run has failed with, now or before. */
static ddl_status fail_run(struct store_file *file, const ddl_error *cause, ddl_error *err)
{
    if (is_settled(file)) {
        *err = *cause;
        return DDL_OK;
    }
    DDL_TRY(create_failure(file, cause, err));
    ddl_error failure;
    ddl_status status = read_failure(file, &failure);
    *err = status == DDL_OK ? *cause : failure;
    return file->failed ? DDL_OK : DDL_ESTORE;
}

/* ---- what rank 0 does whenever it looks at the store ---- */

/* To whoever asks: that this run is alive, and of this job. */
static ddl_status echo(const struct store_file *file, const ddl_desk *desk, const char *token, ddl_error *err)
{
    const ddl_seal seal = seal_of(file);
    char path[DDL_RECORD_PATH];
    ddl_bytes sealed = { 0 };
    bool created;
    path_in(file, path, "echo", token);
    ddl_status status = ddl_meet_echo(&seal, token, &sealed)
                            ? ddl_desk_create(desk, path, ddl_bytes_view(&sealed), &created, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for an answer");
    ddl_bytes_fini(&sealed);
    return status;
}

/* Answer all who ask, or only who wants the place. *failure is why somebody could not be answered. */
static void answer(const struct store_file *file, const ddl_desk *desk, bool all, ddl_error *failure)
{
    char path[DDL_RECORD_PATH];
    path_in(file, path, "ask", "");
    ddl_bytes names = ddl_desk_list(desk, path);
    for (const char *name = NULL; (name = ddl_desk_next(&names, name)) != NULL;) {
        const char *dot = strchr(name, '.');
        if (dot == NULL || !ddl_meet_is_token(dot + 1) || (!all && strncmp(name, "0.", 2) != 0))
            continue;
        if (echo(file, desk, dot + 1, failure) != DDL_OK)
            continue;
        path_in(file, path, "ask", name);
        (void)ddl_desk_remove(desk, path);
    }
    ddl_bytes_fini(&names);
}

/* A disk may have room when we look again; but not for ever, as whoever asks cannot tell what keeps us. */
static ddl_status answer_asks(struct store_file *file, ddl_error *err)
{
    ddl_error failure = { .code = DDL_OK };
    answer(file, &file->desk, true, &failure);
    if (failure.code == DDL_OK) {
        file->answer_limit = DDL_DEADLINE_NEVER;
        return DDL_OK;
    }
    if (file->answer_limit == DDL_DEADLINE_NEVER)
        file->answer_limit = ddl_deadline_in_ms(ANSWER_LIMIT_MS);
    if (!ddl_deadline_passed(file->answer_limit))
        return DDL_OK;
    if (err != NULL)
        *err = failure;
    return failure.code;
}

/* What it looks at does not change while it runs. */
static void *keep_place(void *arg)
{
    struct store_file *file = arg;
    ddl_error unwanted;
    ddl_bell_lock(&file->bell);
    for (ddl_deadline next = ddl_deadline_in_ms(KEEP_INTERVAL_MS); !file->stops;) {
        if (ddl_bell_wait(&file->bell, next))
            continue;
        ddl_bell_unlock(&file->bell);
        answer(file, &file->keepers_desk, false, &unwanted);
        next = ddl_deadline_in_ms(KEEP_INTERVAL_MS);
        ddl_bell_lock(&file->bell);
    }
    ddl_bell_unlock(&file->bell);
    return NULL;
}

/* Without a thread the lock alone keeps the place, and whoever looks at the store during the start-up. */
static void start_keeper(struct store_file *file)
{
    ddl_bell_init(&file->bell);
    file->keepers_desk = (ddl_desk){ file->desk.clerk, DDL_DEADLINE_NEVER }; /* a server may come back */
    const int error =
        DDL_FAILPOINT("rendezvous.thread") ? EAGAIN : ddl_thread_start(keep_place, file, &file->keeper);
    file->is_kept = error == 0;
    if (file->is_kept)
        return;
    ddl_bell_fini(&file->bell);
    ddl_log(DDL_LOG_WARNING,
            "no thread to keep the meeting place %s (error %d): another job may take it once all ranks have "
            "come, if file locks do not cross hosts; see ulimit -u",
            file->place, error);
}

static void stop_keeper(struct store_file *file)
{
    if (!file->is_kept)
        return;
    ddl_bell_lock(&file->bell);
    file->stops = true;
    ddl_bell_ring(&file->bell);
    ddl_bell_unlock(&file->bell);
    ddl_desk_limit(&file->keepers_desk, file->desk.until);
    pthread_join(file->keeper, NULL);
    ddl_bell_fini(&file->bell);
    file->is_kept = false;
}

enum { WILL_NAME = TOKEN_TEXT + 8 };

static const char *will_name(const char *token, char name[WILL_NAME])
{
    snprintf(name, WILL_NAME, "will/%s", token);
    return name;
}

/* Execute the will of the first process found dead. */
static ddl_status execute_will(struct store_file *file, const char *token, ddl_error *err)
{
    char path[DDL_RECORD_PATH], name[WILL_NAME];
    bool found = false;
    ddl_error will, first;
    path_in(file, path, "will", token);
    ddl_status status = read_error(file, path, will_name(token, name), &found, &will, err);
    if (!found || status != DDL_OK)
        return status;
    DDL_TRY(fail_run(file, &will, &first));
    return read_failure(file, err);
}

static ddl_status look_for_dead(struct store_file *file, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_status status = DDL_OK;
    path_in(file, path, "will", "");
    ddl_bytes names = ddl_desk_list(&file->desk, path);
    for (const char *name = NULL; status == DDL_OK && (name = ddl_desk_next(&names, name)) != NULL;)
        if (ddl_meet_is_token(name) && strcmp(name, file->token) != 0 && has_ended(file, name))
            status = execute_will(file, name, err);
    ddl_bytes_fini(&names);
    return status;
}

/* Nobody of ddl removes the directory that the user names; who does takes the place along. */
static ddl_status check_directory(const struct store_file *file, ddl_error *err)
{
    char path[PLACE_ROOM];
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

/* A newer rank 0 may have taken the place, where locks do not keep it out. */
static ddl_status check_meet(const struct store_file *file, ddl_error *err)
{
    ddl_meet meet;
    bool found;
    DDL_TRY(read_meet(file, &meet, &found, err));
    if (found && names_run(&meet, file->base.run_id))
        return DDL_OK;
    if (!found) {
        DDL_TRY(check_directory(file, err));
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s/meet has been removed", file->place);
    }
    return DDL_FAIL(err, DDL_ECONFIG,
                    "another rank 0, %s[%d], has taken the meeting place %s; do two jobs share it?",
                    meet.host.host, (int)meet.host.pid, file->place);
}

/* Rank 0 takes the run's folder along when it leaves. */
static bool is_gone(struct store_file *file)
{
    file->base.is_lost = file->base.is_lost || ddl_desk_find(&file->desk, file->run) == ENOENT;
    return file->base.is_lost;
}

static ddl_status report_gone(const struct store_file *file, ddl_error *err)
{
    DDL_TRY(check_directory(file, err));
    if (file->self.rank == 0) {
        DDL_TRY(check_meet(file, err));
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s has been removed", file->run);
    }
    (void)DDL_FAIL(err, DDL_EPEERLOST,
                   "rank 0 left the meeting place %s before all ranks were connected; look at its "
                   "output",
                   file->place);
    return ddl_error_blame(err, 0), DDL_EPEERLOST;
}

/* A call that failed because the run's folder is gone says so. */
static ddl_status explain(struct store_file *file, ddl_status status, ddl_error *err)
{
    return status == DDL_ESTORE && is_gone(file) ? report_gone(file, err) : status;
}

/* One look at the store, for whoever waits: has the run failed, has somebody died, does somebody ask? */
static ddl_status look(struct store_file *file, ddl_error *err)
{
    ddl_error unwanted;
    ddl_status status = read_failure(file, err);
    if (file->self.rank == 0 &&
        !is_settled(file)) { /* also of a run that has failed: they are to hear that */
        ddl_status answered = answer_asks(file, status == DDL_OK ? err : &unwanted);
        status = status == DDL_OK ? answered : status;
    }
    DDL_TRY(status);
    if (is_settled(file))
        return DDL_OK;
    bool due = ddl_deadline_passed(file->next_life_check);
    if (!due)
        return DDL_OK;
    file->next_life_check = ddl_deadline_in_ms(LIFE_INTERVAL_MS);
    if (file->self.rank == 0)
        DDL_TRY(check_meet(file, err)); /* first: who has taken the place has removed our folder */
    if (is_gone(file))
        return report_gone(file, err);
    if (file->self.rank == 0)
        return look_for_dead(file, err);
    return has_ended(file, file->host_token) ? execute_will(file, file->host_token, err) : DDL_OK;
}

static void pause_ms(int64_t *ms, ddl_deadline deadline)
{
    ddl_deadline until = ddl_deadline_in_ms(*ms);
    (void)ddl_socket_wait(-1, 0, until < deadline ? until : deadline);
    *ms = *ms * 3 / 2 + 1 < LAST_PAUSE_MS ? *ms * 3 / 2 + 1 : LAST_PAUSE_MS;
}

/* ---- opening ---- */

/* What is in the folder of a run has to be of this one, so it must be new. *made: it is ours to remove. */
static ddl_status make_run_folders(const struct store_file *file, bool *made, ddl_error *err)
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

/* As long as the place is ours every other run that is there was left by the dead, or has lost. */
static void remove_old_runs(const struct store_file *file)
{
    const char *ours = strrchr(file->run, '/') + 1;
    ddl_bytes names = ddl_desk_list(&file->desk, file->place);
    for (const char *name = NULL; (name = ddl_desk_next(&names, name)) != NULL;) {
        char path[DDL_RECORD_PATH];
        if (!ddl_meet_is_token(name) || strcmp(name, ours) == 0) /* a run's id looks like one */
            continue;
        if (check_meet(file, NULL) != DDL_OK)
            break;
        path_at_place(file, path, name);
        ddl_desk_remove_tree(&file->desk, path);
    }
    ddl_bytes_fini(&names);
}

/* The folder is made and removed by all: somebody who leaves may remove it before there is a file in it. */
static ddl_status make_place(const struct store_file *file, ddl_error *err)
{
    ddl_status status = ddl_desk_folder(&file->desk, file->place, err);
    for (int tries = 1; tries < PLACE_TRIES && status != DDL_OK && err->os_errno == ENOENT; tries++)
        status = ddl_desk_folder(&file->desk, file->place, err);
    return status == DDL_ESTORE && check_directory(file, err) != DDL_OK ? DDL_ESTORE : status;
}

static ddl_status hold_place(struct store_file *file, bool *held, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    path_at_place(file, path, "rank0");
    ddl_status status = ddl_desk_lock(&file->desk, path, &file->base.held[0], held, err);
    for (int tries = 1; tries < PLACE_TRIES && status != DDL_OK && err->os_errno == ENOENT; tries++) {
        DDL_TRY(make_place(file, err));
        status = ddl_desk_lock(&file->desk, path, &file->base.held[0], held, err);
    }
    return status;
}

/* meet may be NULL. */
static ddl_status refuse_second(const struct store_file *file, const ddl_meet *meet, ddl_error *err)
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
static void find_left(const struct store_file *file, struct left *left)
{
    char path[DDL_RECORD_PATH];
    int64_t pause = FIRST_PAUSE_MS;
    path_at_place(file, path, "meet");
    *left = (struct left){ .odd = { .code = DDL_OK } };
    for (int tries = 0; tries < PLACE_TRIES; tries++) {
        bool found = false;
        ddl_desk_refresh(&file->desk, file->place);
        ddl_status status = read_meet(file, &left->meet, &found, &left->odd);
        left->names_run = (status == DDL_OK && found) || status == DDL_EPROTO;
        left->exists = left->names_run || status != DDL_OK || ddl_desk_find(&file->desk, path) == 0;
        if (left->names_run || status != DDL_OK || !left->exists)
            return;
        pause_ms(&pause, DDL_DEADLINE_NEVER);
    }
}

/* Whether that is there still. */
static bool is_same(const struct store_file *file, const struct left *left)
{
    ddl_meet meet = { .host = { .rank = 0 } };
    bool found;
    (void)!read_meet(file, &meet, &found, NULL);
    return names_run(&meet, left->meet.host.run_id);
}

/* Whether somebody has put his record there since, or removed what was there, or our run: then what was
 * written is not there, though no call failed. */
static bool is_overtaken(const struct store_file *file, const struct left *left, const ddl_error *why)
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
static ddl_status leave_ask(const struct store_file *file, char path[DDL_RECORD_PATH], bool *asked,
                            ddl_error *err)
{
    char ask[TOKEN_TEXT + 16];
    snprintf(ask, sizeof ask, "%d.%s", file->self.rank, file->token);
    path_in(file, path, "ask", ask);
    const int error = ddl_desk_touch(&file->desk, path);
    *asked = error == 0 || error == EEXIST;
    if (!*asked && error != ENOENT)
        return DDL_FAIL_OS(err, DDL_ESTORE, error, "file store: creating %s failed", path);
    return DDL_OK;
}

/* Of the run that was named last: whoever answers lives, whatever he knows. Whoever leaves takes his run
 * along. The pauses make up the limit, not the clock: while the machine stood still he could not answer. */
static bool await_answer(const struct store_file *file)
{
    char folder[DDL_RECORD_PATH], path[DDL_RECORD_PATH];
    int64_t pause = FIRST_PAUSE_MS;
    bool answered = false, gone = false;
    path_in(file, folder, "echo", "");
    path_in(file, path, "echo", file->token);
    for (int64_t left_ms = ECHO_LIMIT_MS; !answered && !gone && left_ms > 0;) {
        const ddl_deadline limit = ddl_deadline_in_ms(left_ms);
        left_ms -= pause;
        pause_ms(&pause, limit);
        ddl_desk_refresh(&file->desk, folder);
        answered = ddl_desk_find(&file->desk, path) == 0;
        gone = ddl_desk_find(&file->desk, folder) == ENOENT;
    }
    (void)ddl_desk_remove(&file->desk, path);
    return answered;
}

/* Where the lock of the one who has left this cannot tell, he is asked. */
static ddl_status is_alive(struct store_file *file, const struct left *left, bool *alive, ddl_error *err)
{
    char token[TOKEN_TEXT], ask[DDL_RECORD_PATH];
    bool asked;
    *alive = false;
    name_run(file, left->meet.host.run_id);
    ddl_meet_hex(left->meet.token, TOKEN_BYTES, token);
    if (has_ended(file, token))
        return DDL_OK;
    DDL_TRY(leave_ask(file, ask, &asked, err));
    if (!asked)
        return DDL_OK;
    *alive = await_answer(file);
    (void)ddl_desk_remove(&file->desk, ask);
    return DDL_OK;
}

/* Put our record in the place of what was found there; *put is false if there is something else by now. */
static ddl_status put_meet(struct store_file *file, const ddl_meet *meet, const struct left *left, bool *put,
                           ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_bytes record = { 0 };
    ddl_status status;
    *put = false;
    if (left->names_run && !is_same(file, left))
        return DDL_OK;
    path_at_place(file, path, "meet");
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
static ddl_status take_place(struct store_file *file, const ddl_meet *meet, bool *taken, ddl_error *err)
{
    struct left left;
    bool alive = false, made = false;
    DDL_TRY(make_place(file, err));
    find_left(file, &left);
    ddl_status status = left.names_run ? is_alive(file, &left, &alive, err) : DDL_OK;
    name_run(file, meet->host.run_id);
    if (status != DDL_OK)
        return status;
    if (alive && left.odd.code != DDL_OK)
        return *err = left.odd, err->code;
    if (alive)
        return refuse_second(file, &left.meet, err);
    status = make_run_folders(file, &made, err);
    if (status == DDL_OK)
        status = be_here(file, err);
    if (status == DDL_OK)
        status = put_meet(file, meet, &left, taken, err);
    if (!*taken)
        be_gone(file);
    bool again = status == DDL_ESTORE && (err->os_errno == ENOENT || is_overtaken(file, &left, err));
    if (!*taken && made)
        ddl_desk_remove_tree(&file->desk, file->run); /* the next attempt makes it anew */
    if (!made)
        file->run[0] = '\0'; /* who leaves must not remove what is another's */
    return again ? DDL_OK : status;
}

static ddl_status begin_run(struct store_file *file, const uint8_t token[TOKEN_BYTES], ddl_error *err)
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
    memcpy(meet.token, token, TOKEN_BYTES);
    memcpy(file->host_token, file->token, TOKEN_TEXT);
    for (int tries = 0; tries < PLACE_TRIES && !taken; tries++)
        DDL_TRY(take_place(file, &meet, &taken, err));
    if (!taken)
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s/meet changed %d times while it was being taken",
                        file->place, PLACE_TRIES);
    DDL_TRY(check_meet(file, err));
    start_keeper(file); /* first: what is to be removed may be much, and others wait for an answer */
    remove_old_runs(file);
    return DDL_OK;
}

/* Whether the run of meet is settled, and lives: the rank in it that we are would be, and then we are the
 * second, or rank 0 where there is none of our number. */
static bool is_latecomer(const struct store_file *file, const ddl_meet *meet)
{
    const int rank = file->self.rank < meet->host.nranks ? file->self.rank : 0;
    char path[DDL_RECORD_PATH], key[32], token[TOKEN_TEXT];
    ddl_bytes record = { 0 };
    bool found = false, late = false;
    path_of_key(file, path, DDL_STORE_SETTLED);
    if (ddl_desk_find(&file->desk, path) != 0)
        return false;
    snprintf(key, sizeof key, "member.%d", rank);
    path_of_key(file, path, key);
    if (ddl_desk_read(&file->desk, path, VALUE_BYTES, &record, &found, NULL) == DDL_OK && found &&
        record.bytes >= TOKEN_BYTES) {
        ddl_meet_hex(record.data, TOKEN_BYTES, token);
        path_in(file, path, "here", token);
        late = ddl_desk_life_of(&file->desk, path) == DDL_RECORD_LIVES;
    }
    ddl_bytes_fini(&record);
    return late;
}

/* As if it had answered. */
static ddl_status report_other_job(const struct store_file *file, const ddl_meet *meet, ddl_error *err)
{
    const ddl_seal seal = seal_of(file);
    return ddl_meet_hear_echo(meet, &file->self, &seal, file->token, (ddl_view){ NULL, 0 }, file->place, err);
}

static ddl_status hear_echo(const struct store_file *file, const ddl_meet *meet, bool *heard, ddl_error *err)
{
    const ddl_seal seal = seal_of(file);
    char path[DDL_RECORD_PATH];
    ddl_bytes sealed = { 0 };
    path_in(file, path, "echo", file->token);
    DDL_TRY(ddl_desk_read(&file->desk, path, DDL_SEAL_BYTES, &sealed, heard, err));
    ddl_status status = *heard ? ddl_meet_hear_echo(meet, &file->self, &seal, file->token,
                                                    ddl_bytes_view(&sealed), file->place, err)
                               : DDL_OK;
    ddl_bytes_fini(&sealed);
    return status;
}

/* What another version has written is told at once if its rank 0 is seen to live; else it may be a leftover.
 */
static ddl_status pass_over(struct store_file *file, const ddl_meet *meet, const ddl_error *odd, bool *found,
                            ddl_error *err)
{
    char token[TOKEN_TEXT], lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH];
    name_run(file, meet->host.run_id);
    ddl_meet_hex(meet->token, TOKEN_BYTES, token);
    here_paths(file, token, lock, host);
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
static ddl_status try_enter(struct store_file *file, ddl_meet *meet, uint8_t asked[DDL_RUN_ID_BYTES],
                            bool *found, bool *entered, ddl_error *err)
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
        return check_directory(file, err);
    name_run(file, meet->host.run_id);
    if (!names_run(meet, asked)) {
        bool has_asked;
        DDL_TRY(leave_ask(file, path, &has_asked, err));
        if (has_asked)
            memcpy(asked, meet->host.run_id, DDL_RUN_ID_BYTES);
        file->written_ns = meet_written_ns(file, path);
        return DDL_OK;
    }
    path_in(file, path, "echo", "");
    ddl_desk_refresh(&file->desk, path);
    DDL_TRY(hear_echo(file, meet, entered, err));
    if (*entered || !is_latecomer(file, meet))
        return DDL_OK;
    *entered = true;
    return meet->is_proved ? DDL_OK : report_other_job(file, meet, err);
}

static ddl_status check_host(struct store_file *file, const ddl_meet *meet, ddl_error *err)
{
    ddl_error refusal, first;
    ddl_hello_verdict verdict = ddl_meet_check(meet, &file->self, &refusal);
    if (verdict == DDL_HELLO_WELCOME)
        return DDL_OK;
    ddl_status status = refusal.code;
    if (ddl_hello_ends_run(verdict))
        (void)!fail_run(file, &refusal, &first); /* whether or not the others can be told */
    *err = refusal;
    return status;
}

static ddl_status find_run(struct store_file *file, const ddl_store_options *options, ddl_deadline deadline,
                           ddl_error *err)
{
    ddl_meet meet = { .host = { .rank = 0 } };
    uint8_t asked[DDL_RUN_ID_BYTES] = { 0 };
    int64_t pause = FIRST_PAUSE_MS, start_ns = ddl_now_ns();
    for (;;) {
        char path[DDL_RECORD_PATH], text[DDL_MEET_SILENT_TEXT];
        bool found, entered;
        DDL_TRY(try_enter(file, &meet, asked, &found, &entered, err));
        if (entered)
            break;
        path_at_place(file, path, "meet");
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
        pause_ms(&pause, deadline);
    }
    ddl_meet_hex(meet.token, TOKEN_BYTES, file->host_token);
    return check_host(file, &meet, err);
}

static ddl_status name_place(struct store_file *file, const char *rest, const char *place, ddl_error *err)
{
    if (rest[0] != '/')
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_STORE=file://%s: write the whole path, from / on, which makes three slashes: "
                        "file:///shared/directory",
                        rest);
    int folder_bytes = (int)strlen(rest);
    while (folder_bytes > 1 && rest[folder_bytes - 1] == '/')
        folder_bytes--;
    int used = snprintf(file->place, sizeof file->place, "%.*s/ddl-", folder_bytes, rest);
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

static ddl_status open_place(struct store_file *file, const ddl_store_options *options, const char *rest,
                             ddl_deadline deadline, ddl_error *err)
{
    uint8_t token[TOKEN_BYTES];
    DDL_TRY(name_place(file, rest, options->place, err));
    DDL_TRY(ddl_host_random(token, sizeof token, err));
    ddl_meet_hex(token, sizeof token, file->token);
    const int error = ddl_desk_find(&file->desk, rest);
    if (error != 0 && error != ETIMEDOUT)
        return DDL_FAIL_OS(err, DDL_ESTORE, error,
                           "DDL_STORE=file://%s: make that directory on a file system that all "
                           "hosts share",
                           rest);
    DDL_TRY(make_place(file, err));
    file->has_place = true;
    ddl_host_id(file->kernel);
    ddl_put_u64(file->kernel + DDL_HOST_ID_BYTES, (uint64_t)ddl_desk_device(&file->desk, file->place));
    return file->self.rank == 0 ? begin_run(file, token, err) : find_run(file, options, deadline, err);
}

static ddl_status file_open(const ddl_store_options *options, const char *rest, ddl_deadline deadline,
                            ddl_store **out, ddl_error *err)
{
    ddl_error unwanted;
    struct store_file *file = ddl_alloc(sizeof *file);
    if (file == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a store");
    file->base.ops = &ddl_store_file;
    file->base.held[0] = file->base.held[1] = -1;
    file->self = *options->self;
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
static ddl_status read_key(const struct store_file *file, const char *key, ddl_bytes *value,
                           char token[TOKEN_TEXT], bool *found, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_bytes record = { 0 };
    path_of_key(file, path, key);
    DDL_TRY(ddl_desk_read(&file->desk, path, VALUE_BYTES, &record, found, err));
    if (*found && record.bytes < TOKEN_BYTES) {
        ddl_bytes_fini(&record);
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s is no value of ours", path);
    }
    if (*found) {
        ddl_meet_hex(record.data, TOKEN_BYTES, token);
        record.bytes -= TOKEN_BYTES;
        memmove(record.data, record.data + TOKEN_BYTES, record.bytes);
        *value = record;
    }
    return DDL_OK;
}

static ddl_status write_key(const struct store_file *file, const char *key, ddl_view value, bool *created,
                            ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    ddl_bytes record = { 0 };
    uint8_t token[TOKEN_BYTES];
    for (int i = 0; i < TOKEN_BYTES; i++) {
        char pair[3] = { file->token[2 * i], file->token[2 * i + 1], '\0' };
        token[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    path_of_key(file, path, key);
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
static void withdraw_will(struct store_file *file)
{
    char path[DDL_RECORD_PATH];
    if (file->has_set || !file->has_will)
        return;
    path_in(file, path, "will", file->token);
    (void)ddl_desk_remove(&file->desk, path);
    file->has_will = false;
}

static ddl_status set_new(struct store_file *file, const char *key, ddl_view value, ddl_deadline deadline,
                          ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    char token[TOKEN_TEXT];
    int64_t pause = FIRST_PAUSE_MS;
    bool created = false, found = false;
    DDL_TRY(look(file, err));
    DDL_TRY(be_here(file, err));
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
            *outcome =
                has_left(file, token) || has_ended(file, token) ? DDL_STORE_ABANDONED : DDL_STORE_TAKEN;
            return DDL_OK;
        }
        pause_ms(&pause, deadline);
    } while (!ddl_deadline_passed(deadline));
    return DDL_FAIL(err, DDL_ESTORE, "file store: %s exists in %s, but cannot be read", key, file->run);
}

static ddl_status file_set_new(ddl_store *store, const char *key, ddl_view value, ddl_deadline deadline,
                               ddl_store_outcome *outcome, ddl_bytes *existing, ddl_error *err)
{
    struct store_file *file = as_file(store);
    return explain(file, set_new(file, key, value, deadline, outcome, existing, err), err);
}

static ddl_status file_get(ddl_store *store, const char *key, ddl_deadline deadline, ddl_bytes *value,
                           ddl_error *err)
{
    struct store_file *file = as_file(store);
    char token[TOKEN_TEXT], folder[DDL_RECORD_PATH];
    int64_t pause = FIRST_PAUSE_MS;
    bool found = false;
    path_in(file, folder, "key", "");
    for (;;) {
        DDL_TRY(look(file, err));
        DDL_TRY(read_key(file, key, value, token, &found, err));
        if (found)
            break;
        if (ddl_deadline_passed(deadline))
            return DDL_FAIL(err, DDL_ETIMEDOUT, "%s was not set in the store %s", key, file->place);
        pause_ms(&pause, deadline);
        ddl_desk_refresh(&file->desk, folder);
    }
    if (strcmp(key, DDL_STORE_SETTLED) == 0) { /* rank 0 need not wait for us to hear it */
        file->settled = true;
        path_in(file, folder, "will", file->token);
        (void)ddl_desk_remove(&file->desk, folder);
    }
    return DDL_OK;
}

static ddl_status will(struct store_file *file, const ddl_error *last_will, ddl_error *err)
{
    char path[DDL_RECORD_PATH], name[WILL_NAME];
    bool created;
    DDL_TRY(look(file, err));
    DDL_TRY(be_here(file, err));
    path_in(file, path, "will", file->token);
    DDL_TRY(create_error(file, path, will_name(file->token, name), last_will, &created, err));
    file->will = *last_will;
    file->has_will = true;
    return DDL_OK;
}

static ddl_status file_will(ddl_store *store, const ddl_error *last_will, ddl_deadline deadline,
                            ddl_error *err)
{
    struct store_file *file = as_file(store);
    (void)deadline;
    return explain(file, will(file, last_will, err), err);
}

static ddl_status file_fail(ddl_store *store, const ddl_error *cause, ddl_deadline deadline, ddl_error *first)
{
    struct store_file *file = as_file(store);
    ddl_desk_limit(&file->desk, ddl_deadline_earlier(deadline, file->desk.until));
    return fail_run(file, cause, first);
}

static ddl_status file_check(ddl_store *store, ddl_error *err)
{
    return look(as_file(store), err);
}

/* ---- closing ---- */

/* Whether nobody else has a will: all have heard that the run is settled, or have left. */
static bool all_know(const struct store_file *file)
{
    char path[DDL_RECORD_PATH];
    bool all = true;
    path_in(file, path, "will", "");
    ddl_bytes names = ddl_desk_list(&file->desk, path);
    for (const char *name = NULL; (name = ddl_desk_next(&names, name)) != NULL;)
        all = all && (!ddl_meet_is_token(name) || strcmp(name, file->token) == 0 || has_ended(file, name));
    ddl_bytes_fini(&names);
    return all;
}

/* With nobody's lock at the place. A network file system hides a file that is removed while it is open, and
 * removes it a moment after it was closed: until then its folder is not empty. */
static void remove_place(const struct store_file *file, const char *lock)
{
    int64_t pause = FIRST_PAUSE_MS;
    for (int tries = 0; tries < LEAVING_TRIES; tries++) {
        if (file->run[0] != '\0')
            ddl_desk_remove_tree(&file->desk, file->run);
        const int error = ddl_desk_remove_folder(&file->desk, file->place);
        if ((error != ENOTEMPTY && error != EEXIST) || ddl_desk_find(&file->desk, lock) == 0)
            return;
        pause_ms(&pause, DDL_DEADLINE_NEVER);
    }
}

/* What is at the place by then may be another's, where locks did not keep him out. */
static void close_place(struct store_file *file, ddl_deadline deadline)
{
    char path[DDL_RECORD_PATH];
    int64_t pause = FIRST_PAUSE_MS;
    ddl_meet meet;
    bool found = false, ours = file->run[0] != '\0' && check_meet(file, NULL) == DDL_OK;
    while (ours && !all_know(file) && !ddl_deadline_passed(deadline))
        pause_ms(&pause, deadline);
    stop_keeper(file);
    ours = ours && check_meet(file, NULL) == DDL_OK;
    path_at_place(file, path, "meet");
    if (ours)
        (void)ddl_desk_remove(&file->desk, path);
    bool is_free = ours || (read_meet(file, &meet, &found, NULL) == DDL_OK && !found);
    if (file->run[0] != '\0')
        ddl_desk_remove_tree(&file->desk, file->run);
    path_at_place(file, path, "rank0");
    if (is_free)
        (void)ddl_desk_remove(&file->desk, path);
    ddl_desk_close(&file->desk, &file->base.held[0]);
    if (is_free)
        remove_place(file, path);
}

static void file_destroy(ddl_store *store, ddl_deadline deadline)
{
    struct store_file *file = as_file(store);
    ddl_error first;
    if (file->desk.clerk != NULL)
        ddl_desk_limit(&file->desk, ddl_deadline_earlier(deadline, file->desk.until));
    if (file->has_will && file->has_set && !file->failed && !is_settled(file))
        (void)!fail_run(file, &file->will, &first); /* nobody is left to tell if that does not work */
    if (file->settled)                              /* the start is over */
        ddl_desk_limit(&file->desk, deadline);
    if (file->base.held[1] >= 0)
        be_gone(file);
    if (file->base.held[0] >= 0)
        close_place(file, deadline);
    if (file->has_place) /* stays if somebody is at it, of this run or already of the next */
        (void)ddl_desk_remove_folder(&file->desk, file->place);
    ddl_clerk_destroy(file->desk.clerk);
    ddl_free(file);
}

const struct ddl_store_ops ddl_store_file = {
    .scheme = "file",
    .form = "/directory",
    .outlives = true,
    .open = file_open,
    .set_new = file_set_new,
    .get = file_get,
    .get_many = ddl_store_get_each,
    .will = file_will,
    .fail = file_fail,
    .check = file_check,
    .destroy = file_destroy,
};
