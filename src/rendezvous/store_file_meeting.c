/* store_file_meeting.c - the place and the record at it, as all ranks look at them. */
#include "rendezvous/store_file_meeting_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

ddl_status ddl_file_meeting_read(const ddl_file_run *file, ddl_meet *meet, bool *found, ddl_error *err)
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

bool ddl_file_meeting_names_run(const ddl_meet *meet, const uint8_t *run_id)
{
    return memcmp(meet->host.run_id, run_id, DDL_RUN_ID_BYTES) == 0;
}

int64_t ddl_file_meeting_written_ns(const ddl_file_run *file, const char *reference)
{
    char path[DDL_RECORD_PATH];
    ddl_file_run_place_path(file, path, "meet");
    const int64_t age_s = ddl_desk_age_s(&file->desk, path, reference);
    return ddl_meet_written_ns(age_s >= 0 && age_s < INT64_MAX / 1000 ? age_s * 1000 : -1);
}

ddl_status ddl_file_meeting_make(const ddl_file_run *file, ddl_error *err)
{
    ddl_status status = ddl_desk_folder(&file->desk, file->place, err);
    for (int tries = 1; tries < DDL_FILE_PLACE_TRIES && status != DDL_OK && err->os_errno == ENOENT; tries++)
        status = ddl_desk_folder(&file->desk, file->place, err);
    return status == DDL_ESTORE && ddl_file_meeting_check_directory(file, err) != DDL_OK ? DDL_ESTORE
                                                                                         : status;
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
    DDL_TRY(ddl_file_meeting_read(file, &meet, &found, err));
    if (found && ddl_file_meeting_names_run(&meet, file->base.run_id))
        return DDL_OK;
    if (!found) {
        DDL_TRY(ddl_file_meeting_check_directory(file, err));
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s/meet has been removed", file->place);
    }
    return DDL_FAIL(err, DDL_ECONFIG,
                    "another rank 0, %s[%d], has taken the meeting place %s; do two jobs share it?",
                    meet.host.host, (int)meet.host.pid, file->place);
}

const char *ddl_file_meeting_run_name(const ddl_file_run *file)
{
    const char *slash = strrchr(file->run, '/');
    return slash != NULL ? slash + 1 : "";
}

ddl_status ddl_file_meeting_ask(const ddl_file_run *file, char path[DDL_RECORD_PATH], bool *asked,
                                ddl_error *err)
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
