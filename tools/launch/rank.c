/* rank.c - starting one process. */
#include "rank.h"

#include "descendants.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "io/note.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

ddl_status launch_pipe(int ends[2], ddl_error *err)
{
    if (DDL_FAILPOINT_OS("launch.pipe", EMFILE) || pipe(ends) != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot make a pipe");
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return DDL_OK;
}

int launch_exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void init_output(launch_output *output, launch_rank *rank, const launch_options *options,
                        launch_sink *sink)
{
    *output = (launch_output){ .fd = -1,
                               .log_fd = -1,
                               .sink = sink,
                               .tail = &rank->tail,
                               .raw = options->no_prefix && options->nproc_per_node == 1,
                               .prefix = options->no_prefix ? "" : rank->prefix };
}

void launch_rank_init(launch_rank *rank, const launch_options *options, int local, launch_sink *out,
                      launch_sink *err)
{
    memset(rank, 0, sizeof *rank);
    rank->note = -1;
    rank->rank = options->node_rank * options->nproc_per_node + local;
    char widest[16];
    int width = snprintf(widest, sizeof widest, "%d", options->nnodes * options->nproc_per_node - 1);
    snprintf(rank->prefix, sizeof rank->prefix, "[%*d] ", width, rank->rank);
    init_output(&rank->out, rank, options, out);
    init_output(&rank->err, rank, options, err);
}

static ddl_status make_directories(char *path, ddl_error *err)
{
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char end = *at;
        *at = '\0';
        struct stat file;
        if (DDL_FAILPOINT_OS("launch.mkdir", EACCES) || (mkdir(path, 0777) != 0 && errno != EEXIST))
            return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "--log_dir: cannot make directory %.300s", path);
        if (stat(path, &file) != 0 || !S_ISDIR(file.st_mode))
            return DDL_FAIL(err, DDL_ECONFIG, "--log_dir: %.300s is not a directory", path);
        *at = end;
        if (end == '\0')
            return DDL_OK;
    }
}

static ddl_status open_log(const char *directory, const char *name, int *fd, ddl_error *err)
{
    char path[PATH_MAX + sizeof "/stdout"];
    struct stat file;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    /* A fifo would have it wait for a reader. */
    if (DDL_FAILPOINT_OS("launch.open", EMFILE) ||
        (*fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666)) < 0)
        return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "--log_dir: cannot write %.300s", path);
    if (fstat(*fd, &file) != 0 || !(S_ISREG(file.st_mode) || S_ISCHR(file.st_mode)))
        return DDL_FAIL(err, DDL_ECONFIG, "--log_dir: %.300s is no file", path);
    return DDL_OK;
}

ddl_status launch_rank_open_logs(launch_rank *rank, const char *directory, ddl_error *err)
{
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s/rank_%d", directory, rank->rank);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return DDL_FAIL(err, DDL_ECONFIG, "--log_dir: the name is too long");
    DDL_TRY(make_directories(path, err));
    DDL_TRY(open_log(path, "stdout", &rank->out.log_fd, err));
    return open_log(path, "stderr", &rank->err.log_fd, err);
}

/* In the child: become the program. */
static _Noreturn void become(const launch_rank *rank, const launch_start *start, pid_t guardian, int out,
                             int err, int secret, char *const *environment)
{
    const launch_job *job = start->job;
    setpgid(0, 0);
    launch_die_with(guardian);
    bool ready = (rank->rank == 0 && job->shares_stdin) || dup2(start->null_fd, STDIN_FILENO) >= 0;
    ready = ready && dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0;
    if (ready && secret >= 0)
        ready = fcntl(secret, F_SETFD, 0) == 0;
    if (ready) {
        setrlimit(RLIMIT_NOFILE, &start->fds);
        launch_signals_restore(job->signals);
        execve(job->path, job->options->command, environment);
    }
    launch_start_failure failure = { rank->rank, errno };
    ssize_t written = write(start->report_fd, &failure, sizeof failure);
    (void)written;
    _exit(127);
}

static pid_t fork_with_signals_held(void)
{
    /* One that comes before the child has its own dispositions waits for them. */
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = DDL_FAILPOINT_OS("launch.fork", EAGAIN) ? -1 : fork();
    int saved = errno;
    if (pid != 0)
        sigprocmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return pid;
}

ddl_status launch_rank_start(launch_rank *rank, const launch_start *start, ddl_error *err)
{
    DDL_ASSERT(rank->pid == 0);
    const launch_job *job = start->job;
    int local = rank->rank - job->options->node_rank * job->options->nproc_per_node;
    launch_environment environment = { NULL, 0 };
    int out[2] = { -1, -1 }, errs[2] = { -1, -1 }, secret;
    DDL_TRY(launch_secret_hand_over(job->secret, &secret, err));
    ddl_status status = launch_environment_create(job->options, local, job->port, start->cpus, secret,
                                                  job->environment, &environment, err);
    if (status == DDL_OK)
        status = launch_pipe(out, err);
    if (status == DDL_OK)
        status = launch_pipe(errs, err);
    pid_t guardian = getpid();
    pid_t pid = -1;
    if (status == DDL_OK && (pid = fork_with_signals_held()) < 0)
        status = DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot start a process for rank %d%s", rank->rank,
                             errno == EAGAIN ? " (ulimit -u, or the limit of a cgroup)" : "");
    if (status == DDL_OK && pid == 0)
        become(rank, start, guardian, out[1], errs[1], secret, environment.entries);
    launch_environment_destroy(&environment);
    /* Under another number: that of the rank's is where it looks for it in its ancestors. */
    const int note = secret >= 0 && status == DDL_OK ? fcntl(secret, F_DUPFD_CLOEXEC, secret + 1) : -1;
    if (secret >= 0)
        close(secret);
    if (out[1] >= 0)
        close(out[1]);
    if (errs[1] >= 0)
        close(errs[1]);
    if (status != DDL_OK) {
        if (out[0] >= 0)
            close(out[0]);
        if (errs[0] >= 0)
            close(errs[0]);
        return status;
    }
    setpgid(pid, pid); /* also by the child; whoever comes first */
    rank->pid = pid;
    rank->running = true;
    rank->note = note;
    rank->out.fd = out[0];
    rank->err.fd = errs[0];
    job->groups[local] = pid;
    return DDL_OK;
}

int launch_rank_log_error(const launch_rank *rank)
{
    return rank->out.log_error != 0 ? rank->out.log_error : rank->err.log_error;
}

static void close_note(launch_rank *rank)
{
    if (rank->note >= 0)
        close(rank->note);
    rank->note = -1;
}

void launch_rank_look(launch_rank *rank)
{
    if (rank->note < 0 || ddl_note_was_read(rank->note) <= 0)
        return;
    rank->has_come = true;
    close_note(rank);
}

void launch_rank_note_end(launch_rank *rank)
{
    launch_rank_look(rank);
    rank->stayed_out = rank->status == 0 && rank->note >= 0 && ddl_note_was_read(rank->note) == 0;
    close_note(rank);
}

void launch_rank_fini(launch_rank *rank, launch_scratch *scratch)
{
    close_note(rank);
    launch_output_close(&rank->out, scratch);
    launch_output_close(&rank->err, scratch);
}
