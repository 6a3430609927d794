/* store_file_meeting_leave.c - rank 0 takes its run along, and the place if that is free. */
#include "rendezvous/store_file_meeting_parts.h"

#include "base/log.h"
#include "rendezvous/store_file_answers.h"

#include <errno.h>
#include <string.h>

enum { LEAVING_TRIES = 12 /* half a second */ };

static bool begins_with(const char *name, const char *beginning)
{
    return strncmp(name, beginning, strlen(beginning)) == 0;
}

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
        stays = stays ||
                !(strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || begins_with(name, ".nfs") ||
                  begins_with(name, ".fuse_hidden") || strcmp(name, ddl_file_meeting_run_name(file)) == 0);
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

/* What cannot be looked at is not removed. */
static void tell_what_stays(const ddl_file_run *file, const ddl_error *why)
{
    if (why->os_errno == EMFILE || why->os_errno == ENFILE)
        ddl_log(DDL_LOG_WARNING,
                "%s stays, as this process may open no more files; remove it, if no run is to meet there "
                "again (%s)",
                file->place, why->text);
}

void ddl_file_meeting_leave(ddl_file_run *file, ddl_deadline deadline)
{
    char path[DDL_RECORD_PATH];
    int64_t pause = DDL_FILE_FIRST_PAUSE_MS;
    ddl_meet meet;
    ddl_error why = { .os_errno = 0 };
    bool found = false, ours = file->run[0] != '\0' && ddl_file_meeting_check(file, &why) == DDL_OK;
    while (ours && !all_know(file) && !ddl_deadline_passed(deadline))
        ddl_file_pause(&pause, deadline);
    ddl_file_answers_stop(file);
    ours = ours && ddl_file_meeting_check(file, &why) == DDL_OK;
    ddl_file_run_place_path(file, path, "meet");
    if (ours)
        (void)ddl_desk_remove(&file->desk, path);
    bool is_free = ours || (ddl_file_meeting_read(file, &meet, &found, NULL) == DDL_OK && !found);
    if (file->run[0] != '\0')
        ddl_desk_remove_tree(&file->desk, file->run);
    ddl_file_run_place_path(file, path, "rank0");
    if (is_free)
        (void)ddl_desk_remove(&file->desk, path);
    ddl_desk_close(&file->desk, &file->base.held[0]);
    if (is_free)
        remove_place(file, path);
    else
        tell_what_stays(file, &why);
}
