/* guardian_start.c - what a guardian needs is made, and its ranks are started. */
#include "guardian_parts.h"

#include "base/failpoint.h"
#include "io/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* One that the launcher found closed is not. */
static bool is_writable(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/* Whether what ranks write to their two streams goes to one place, where two writers would tear lines. */
static bool outputs_meet(void)
{
    struct stat out, err;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
           out.st_ino == err.st_ino && is_writable(STDOUT_FILENO) == is_writable(STDERR_FILENO);
}

static ddl_status make_rooms(struct guardian *g, ddl_error *err)
{
    size_t count = (size_t)g->options->nproc_per_node;
    g->ranks = ddl_alloc_array(count, sizeof *g->ranks);
    g->polls = ddl_alloc_array(2 * count + FIXED_POLLS, sizeof *g->polls);
    g->polled = ddl_alloc_array(2 * count, sizeof(launch_output *));
    g->scratch = ddl_alloc(sizeof *g->scratch);
    if (g->ranks == NULL || g->polls == NULL || g->polled == NULL || g->scratch == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %zu ranks", count);
    return DDL_OK;
}

static ddl_status open_output(struct guardian *g, ddl_error *err)
{
    DDL_TRY(launch_pipe(g->wake, err));
    fcntl(g->wake[1], F_SETFL, O_NONBLOCK);
    launch_signals_children(g->wake[1]);
    DDL_TRY(launch_sink_create(STDOUT_FILENO, g->wake[1], &g->out, err));
    if (outputs_meet()) {
        g->err = g->out;
        return DDL_OK;
    }
    return launch_sink_create(STDERR_FILENO, g->wake[1], &g->err, err);
}

/* Let us have descriptors for all ranks, before any is started; *found is the limit to give back to them. */
static ddl_status need_descriptors(const struct guardian *g, struct rlimit *found, ddl_error *err)
{
    enum {
        PIPES = 2,
        NOTES = 1,
        LOGS = 2,
        OTHERS = 24
    }; /* others: our own, and those of a rank that is being started */
    int each = PIPES + NOTES + (g->options->log_dir != NULL ? LOGS : 0) + (g->exits != NULL ? 1 : 0);
    char what[32];
    if (getrlimit(RLIMIT_NOFILE, found) != 0)
        *found = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
    snprintf(what, sizeof what, "%d processes", g->options->nproc_per_node);
    const int needed = g->options->nproc_per_node * each + OTHERS;
    DDL_TRY(ddl_host_need_descriptors(needed, what, err));
    ddl_host_expect_descriptors(LAUNCH_SECRET_LOWEST + needed);
    return DDL_OK;
}

ddl_status launch_guardian_prepare(struct guardian *g, launch_start *start, ddl_error *err)
{
    DDL_TRY(make_rooms(g, err));
    DDL_TRY(need_descriptors(g, &start->fds, err));
    DDL_TRY(open_output(g, err));
    if (DDL_FAILPOINT_OS("launch.open", EMFILE) ||
        (start->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC)) < 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot open /dev/null");
    for (int i = 0; i < g->options->nproc_per_node; i++) {
        launch_rank_init(&g->ranks[i], g->options, i, g->out, g->err);
        g->nranks = i + 1;
        if (g->options->log_dir != NULL)
            DDL_TRY(launch_rank_open_logs(&g->ranks[i], g->options->log_dir, err));
    }
    return DDL_OK;
}

ddl_status launch_guardian_start_ranks(struct guardian *g, launch_start *start, ddl_error *err)
{
    int report[2];
    DDL_TRY(launch_pipe(report, err));
    g->start_report = report[0];
    start->report_fd = report[1];
    ddl_status status = DDL_OK;
    for (int i = 0; i < g->options->nproc_per_node && status == DDL_OK; i++) {
        status = launch_rank_start(&g->ranks[i], start, err);
        if (status == DDL_OK) {
            g->nrunning++;
            launch_exits_watch(g->exits, g->ranks[i].pid, i);
        }
    }
    close(report[1]);
    launch_secret_fini(g->job->secret);
    return status;
}

void launch_guardian_fini(struct guardian *g)
{
    launch_guardian_close_outputs(g);
    launch_exits_destroy(g->exits);
    if (g->err != g->out)
        launch_sink_destroy(g->err);
    launch_sink_destroy(g->out);
    launch_scratch_destroy(g->scratch);
    ddl_free(g->polled);
    ddl_free(g->polls);
    ddl_free(g->ranks);
}
