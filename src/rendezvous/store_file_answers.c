/* store_file_answers.c - echoes the tokens in ask/. */
#include "rendezvous/store_file_answers.h"

#include "base/failpoint.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>

enum {
    ANSWER_LIMIT_MS = 500,
    KEEP_INTERVAL_MS = 300, /* between looks of whoever has the place at who wants it */
};

/* To whoever asks: that this run is alive, and of this job. */
static ddl_status echo(const ddl_file_run *file, const ddl_desk *desk, const char *token, ddl_error *err)
{
    const ddl_seal seal = ddl_file_run_seal(file);
    char path[DDL_RECORD_PATH];
    ddl_bytes sealed = { 0 };
    bool created;
    ddl_file_run_path(file, path, "echo", token);
    ddl_status status = ddl_meet_echo(&seal, token, &sealed)
                            ? ddl_desk_create(desk, path, ddl_bytes_view(&sealed), &created, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for an answer");
    ddl_bytes_fini(&sealed);
    return status;
}

/* Answer all who ask, or only who wants the place. *failure is why somebody could not be answered. */
static void answer(const ddl_file_run *file, const ddl_desk *desk, bool all, ddl_error *failure)
{
    char path[DDL_RECORD_PATH];
    ddl_file_run_path(file, path, "ask", "");
    ddl_bytes names = ddl_desk_list(desk, path);
    for (const char *name = NULL;
         (name = ddl_desk_next(&names, name)) != NULL && ddl_desk_has_time_to_spare(desk);) {
        const char *dot = strchr(name, '.');
        if (dot == NULL || !ddl_meet_is_token(dot + 1) || (!all && strncmp(name, "0.", 2) != 0))
            continue;
        if (echo(file, desk, dot + 1, failure) != DDL_OK)
            continue;
        ddl_file_run_path(file, path, "ask", name);
        (void)ddl_desk_remove(desk, path);
    }
    ddl_bytes_fini(&names);
}

ddl_status ddl_file_answers_give(ddl_file_run *file, ddl_error *err)
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
    ddl_file_run *file = arg;
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

void ddl_file_answers_start(ddl_file_run *file)
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
            "come, if file locks do not cross hosts; see ulimit -u and -v",
            file->place, error);
}

void ddl_file_answers_stop(ddl_file_run *file)
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
