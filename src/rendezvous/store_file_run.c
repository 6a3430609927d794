/* store_file_run.c - what is in the files of a run, under which seal. */
#include "rendezvous/store_file_run.h"

#include "base/assert.h"
#include "io/socket.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_PAUSE_MS = 100 };

/* ---- names ---- */

void ddl_file_run_path(const ddl_file_run *file, char path[DDL_RECORD_PATH], const char *folder,
                       const char *item)
{
    int bytes = snprintf(path, DDL_RECORD_PATH, "%s/%s/%s", file->run, folder, item);
    DDL_ASSERT(bytes > 0);
    DDL_ASSERT(bytes < DDL_RECORD_PATH);
}

/* A key that is no good name of a file, or too long for one, is told from others by a hash of the whole. */
void ddl_file_run_key_path(const ddl_file_run *file, char path[DDL_RECORD_PATH], const char *key)
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
    ddl_file_run_path(file, path, "key", name);
}

int ddl_file_run_rank_of(const char *name, const char *kind, int count)
{
    const size_t bytes = strlen(kind);
    if (name[0] != '=' || strncmp(name + 1, kind, bytes) != 0 || name[1 + bytes] != '.')
        return -1;
    const char *digits = name + bytes + 2;
    char *end;
    const long rank = strtol(digits, &end, 10);
    return isdigit((unsigned char)*digits) && *end == '\0' && rank < count ? (int)rank : -1;
}

void ddl_file_run_place_path(const ddl_file_run *file, char path[DDL_RECORD_PATH], const char *item)
{
    snprintf(path, DDL_RECORD_PATH, "%s/%s", file->place, item);
}

void ddl_file_run_name(ddl_file_run *file, const uint8_t *run_id)
{
    char text[DDL_RUN_TEXT];
    ddl_meet_hex(run_id, DDL_RUN_ID_BYTES, text);
    memcpy(file->base.run_id, run_id, DDL_RUN_ID_BYTES);
    snprintf(file->run, sizeof file->run, "%s/%s", file->place, text);
}

ddl_seal ddl_file_run_seal(const ddl_file_run *file)
{
    return (ddl_seal){ file->self.prover, file->base.run_id };
}

const char *ddl_file_run_will_name(const char *token, char name[DDL_FILE_WILL_NAME])
{
    snprintf(name, DDL_FILE_WILL_NAME, "will/%s", token);
    return name;
}

/* ---- who lives ---- */

void ddl_file_run_here_paths(const ddl_file_run *file, const char *token, char lock[DDL_RECORD_PATH],
                             char host[DDL_RECORD_PATH])
{
    char name[DDL_TOKEN_TEXT + 8];
    snprintf(name, sizeof name, "%s.host", token);
    ddl_file_run_path(file, lock, "here", token);
    ddl_file_run_path(file, host, "here", name);
}

/* Whether a process is on this host, and sees the directory by the same mount. */
static bool is_ours(ddl_file_run *file, const char *token, const char *host)
{
    ddl_bytes id = { 0 };
    bool ours = false, found = false;
    if (ddl_file_hosts_find(&file->hosts, token, &ours))
        return ours;
    if (ddl_desk_read(&file->desk, host, DDL_FILE_KERNEL_BYTES, &id, &found, NULL) == DDL_OK && found) {
        ours = id.bytes == DDL_FILE_KERNEL_BYTES && memcmp(id.data, file->kernel, DDL_FILE_KERNEL_BYTES) == 0;
        ddl_file_hosts_add(&file->hosts, token, ours);
    }
    ddl_bytes_fini(&id);
    return ours;
}

/* Only a lock in this host's own kernel, on the same mount, is proof of a death. */
bool ddl_file_run_has_ended(ddl_file_run *file, const char *token)
{
    char lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH];
    ddl_file_run_here_paths(file, token, lock, host);
    return ddl_host_id_is_sure(file->kernel) && is_ours(file, token, host) &&
           ddl_desk_life_of(&file->desk, lock) == DDL_RECORD_ENDED;
}

int ddl_file_run_life_pause_ms(int64_t took_ns)
{
    enum { LEAST_MS = 200, MOST_MS = 5000, SHARE = 10 };
    const int64_t pause_ms = took_ns / DDL_NS_PER_MS * SHARE;
    return pause_ms < LEAST_MS ? LEAST_MS : pause_ms > MOST_MS ? MOST_MS : (int)pause_ms;
}

bool ddl_file_run_has_left(const ddl_file_run *file, const char *token)
{
    char lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH], folder[DDL_RECORD_PATH];
    ddl_file_run_path(file, folder, "here", "");
    ddl_desk_refresh(&file->desk, folder);
    ddl_file_run_here_paths(file, token, lock, host);
    return ddl_desk_find(&file->desk, lock) == ENOENT;
}

ddl_status ddl_file_run_be_here(ddl_file_run *file, ddl_error *err)
{
    char lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH];
    bool created, held = false;
    if (file->base.held[1] >= 0)
        return DDL_OK;
    ddl_file_run_here_paths(file, file->token, lock, host);
    DDL_TRY(ddl_desk_lock(&file->desk, lock, &file->base.held[1], &held, err));
    return ddl_desk_create(&file->desk, host, (ddl_view){ file->kernel, DDL_FILE_KERNEL_BYTES }, &created,
                           err);
}

void ddl_file_run_be_gone(ddl_file_run *file)
{
    char lock[DDL_RECORD_PATH], host[DDL_RECORD_PATH], will[DDL_RECORD_PATH];
    ddl_file_run_here_paths(file, file->token, lock, host);
    ddl_file_run_path(file, will, "will", file->token);
    (void)ddl_desk_remove(&file->desk, will);
    (void)ddl_desk_remove(&file->desk, lock);
    (void)ddl_desk_remove(&file->desk, host);
    ddl_desk_close(&file->desk, &file->base.held[1]);
}

/* ---- how the run came out ---- */

ddl_status ddl_file_run_read_error(const ddl_file_run *file, const char *path, const char *name, bool *found,
                                   ddl_error *error, ddl_error *err)
{
    const ddl_seal seal = ddl_file_run_seal(file);
    ddl_bytes content = { 0 };
    ddl_view value;
    DDL_TRY(ddl_desk_read(&file->desk, path, DDL_STORE_ERROR_BYTES + DDL_SEAL_BYTES, &content, found, err));
    ddl_status status = DDL_OK;
    if (*found)
        status = ddl_seal_get(&seal, name, ddl_bytes_view(&content), &value)
                     ? ddl_store_error_decode(value, error, err)
                     : ddl_seal_fail(name, file->run, err);
    ddl_bytes_fini(&content);
    return status;
}

ddl_status ddl_file_run_create_error(const ddl_file_run *file, const char *path, const char *name,
                                     const ddl_error *error, bool *created, ddl_error *err)
{
    const ddl_seal seal = ddl_file_run_seal(file);
    uint8_t value[DDL_STORE_ERROR_BYTES];
    ddl_view content = { value, ddl_store_error_encode(error, value) };
    ddl_bytes sealed = { 0 };
    ddl_status status = ddl_seal_put(&seal, file->self.rank, name, content, &sealed)
                            ? ddl_desk_create(&file->desk, path, ddl_bytes_view(&sealed), created, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for an error");
    ddl_bytes_fini(&sealed);
    return status;
}

ddl_status ddl_file_run_failure(ddl_file_run *file, ddl_error *err)
{
    char path[DDL_RECORD_PATH];
    bool found = false;
    ddl_error failure;
    if (!file->failed) {
        snprintf(path, sizeof path, "%s/failed", file->run);
        ddl_status status = ddl_file_run_read_error(file, path, "failed", &found, &failure, err);
        if (status != DDL_OK || !found)
            return status;
        file->failed = true;
        file->failure = failure;
    }
    if (err != NULL)
        *err = file->failure;
    return file->failure.code;
}

bool ddl_file_run_is_settled(ddl_file_run *file)
{
    const ddl_seal seal = ddl_file_run_seal(file);
    char path[DDL_RECORD_PATH];
    ddl_bytes record = { 0 };
    ddl_view value;
    bool found = false;
    ddl_file_run_key_path(file, path, DDL_STORE_SETTLED);
    if (file->settled || ddl_desk_find(&file->desk, path) != 0)
        return file->settled;
    file->settled =
        ddl_desk_read(&file->desk, path, DDL_FILE_VALUE_BYTES, &record, &found, NULL) == DDL_OK && found &&
        record.bytes >= DDL_TOKEN_BYTES &&
        ddl_seal_get(&seal, DDL_STORE_SETTLED,
                     (ddl_view){ record.data + DDL_TOKEN_BYTES, record.bytes - DDL_TOKEN_BYTES }, &value);
    ddl_bytes_fini(&record);
    return file->settled;
}

/* On a full disk what is said last takes the place of what was to be said in case of death. */
static ddl_status create_failure(ddl_file_run *file, const ddl_error *cause, ddl_error *err)
{
    char path[DDL_RECORD_PATH], will[DDL_RECORD_PATH];
    bool created = false;
    snprintf(path, sizeof path, "%s/failed", file->run);
    ddl_status status = ddl_file_run_create_error(file, path, "failed", cause, &created, err);
    if (status == DDL_OK || !file->has_will)
        return status;
    ddl_file_run_path(file, will, "will", file->token);
    (void)ddl_desk_remove(&file->desk, will);
    file->has_will = false;
    return ddl_file_run_create_error(file, path, "failed", cause, &created, err);
}

ddl_status ddl_file_run_fail(ddl_file_run *file, const ddl_error *cause, ddl_error *err)
{
    if (ddl_file_run_is_settled(file)) {
        *err = *cause;
        return DDL_OK;
    }
    DDL_TRY(create_failure(file, cause, err));
    ddl_error failure;
    ddl_status status = ddl_file_run_failure(file, &failure);
    *err = status == DDL_OK ? *cause : failure;
    return file->failed ? DDL_OK : DDL_ESTORE;
}

void ddl_file_pause(int64_t *ms, ddl_deadline deadline)
{
    ddl_deadline until = ddl_deadline_in_ms(*ms);
    (void)ddl_socket_wait(-1, 0, until < deadline ? until : deadline);
    *ms = *ms * 3 / 2 + 1 < LAST_PAUSE_MS ? *ms * 3 / 2 + 1 : LAST_PAUSE_MS;
}
