/*
 * ddl_launch.c - the launcher as its user meets it.
 *
 * It reads the command line, starts a guardian, forwards signals to it, and ends with its exit code. All
 * else is the guardian's, so that it goes on when the launcher is killed; and when the guardian is killed
 * the launcher ends what is left.
 */
#include "descendants.h"
#include "guardian.h"
#include "nodes.h"
#include "port.h"
#include "program.h"
#include "summary.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "io/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int fail(const ddl_error *err, int exit_code)
{
    fprintf(stderr, "ddl-launch: %s\n", err->text);
    return exit_code;
}

/*
 * Have 0, 1 and 2 open and nothing else: what we were given by chance is not for the ranks. Where there was
 * no standard output writing to it shall fail, and be told of; without standard error there is nowhere to
 * tell.
 */
static void tidy_descriptors(void)
{
    int fd;
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) != fd)
            break;
    DIR *directory = opendir("/dev/fd");
    if (directory == NULL) {
        for (fd = STDERR_FILENO + 1; fd < 1024; fd++)
            close(fd);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        fd = atoi(entry->d_name);
        if (fd > STDERR_FILENO && fd != dirfd(directory))
            close(fd);
    }
    closedir(directory);
}

/* Rank 0 reads what we would; but in the background of a terminal that is the shell's. */
static bool may_share_stdin(void)
{
    pid_t foreground = tcgetpgrp(STDIN_FILENO);
    return foreground < 0 || foreground == getpgrp();
}

static void print_quoted(const char *text, size_t bytes)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./,:@%";
    if (bytes > 0 && strspn(text, plain) >= bytes) {
        fwrite(text, 1, bytes, stdout);
        return;
    }
    putchar('\'');
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\'')
            fputs("'\\''", stdout);
        else
            putchar(text[i]);
    }
    putchar('\'');
}

static void print_word(const char *text)
{
    putchar(' ');
    print_quoted(text, strlen(text));
}

/* What we have printed is all there is to do; the exit code. */
static int end_output(void)
{
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !failed)
        return 0;
    ddl_error err;
    ddl_error_set_os(&err, DDL_ERESOURCE, errno, "cannot write to standard output");
    return fail(&err, LAUNCH_EXIT_FAILED);
}

/* For each rank, a line that a shell could run. */
static int dry_run(const launch_job *job)
{
    const launch_options *options = job->options;
    ddl_error err;
    for (int local = 0; local < options->nproc_per_node; local++) {
        launch_environment environment;
        if (launch_environment_create(options, local, job->port, ddl_host_cpus(NULL), -1, job->environment,
                                      &environment, &err) != DDL_OK)
            return fail(&err, LAUNCH_EXIT_FAILED);
        printf("env");
        for (char *const *entry = job->environment; *entry != NULL; entry++)
            if (launch_environment_drops(*entry) &&
                strncmp(*entry, "DDL_", 4) != 0) { /* no secret of ddl's */
                fputs(" -u ", stdout);
                print_quoted(*entry, strcspn(*entry, "="));
            }
        for (int i = 0; i < environment.nset; i++)
            print_word(environment.entries[i]);
        if (strchr(job->path, '=') != NULL) /* env would take it for a variable */
            fputs(" sh -c 'exec \"$0\" \"$@\"'", stdout);
        for (char **word = options->command; *word != NULL; word++)
            print_word(word == options->command ? job->path : *word);
        putchar('\n');
        launch_environment_destroy(&environment);
    }
    return end_output();
}

/* The guardian was killed: end what it leaves. Its ranks die with it, and what they left comes to us. */
static int end_orphans(const launch_job *job, int status)
{
    for (int i = 0; i < job->options->nproc_per_node; i++)
        if (job->groups[i] > 0)
            kill(-job->groups[i], SIGKILL);
    ddl_deadline deadline = ddl_deadline_in_ms(5000);
    int left;
    do {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        left = launch_descendants_signal(SIGKILL, 0, NULL, 0);
        if (left > 0)
            poll(NULL, 0, 5);
    } while (left > 0 && !ddl_deadline_passed(deadline));
    /* Not before, as that may end us, or hold us up: nobody need read it any more. */
    char name[32];
    fprintf(stderr, "ddl-launch: the guardian of this job was killed by %s; the job was ended\n",
            launch_signal_name(WTERMSIG(status), name, sizeof name));
    return launch_exit_code(status);
}

static ddl_status make_lifeline(int ends[2], ddl_error *err)
{
    if (DDL_FAILPOINT_OS("launch.socketpair", EMFILE) || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot make a socket");
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    return DDL_OK;
}

/* The table of process groups that the guardian keeps and we read if it dies. */
static ddl_status make_groups(launch_job *job, ddl_error *err)
{
    size_t bytes = (size_t)job->options->nproc_per_node * sizeof *job->groups;
    void *memory = DDL_FAILPOINT_OS("launch.mmap", ENOMEM)
                       ? MAP_FAILED
                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return DDL_FAIL_OS(err, DDL_ENOMEM, errno, "no memory for %d ranks", job->options->nproc_per_node);
    job->groups = memory;
    return DDL_OK;
}

/* Start the guardian and see it to its end. */
static int run(launch_job *job)
{
    ddl_error err;
    int lifeline[2];
    if (make_groups(job, &err) != DDL_OK || make_lifeline(lifeline, &err) != DDL_OK)
        return fail(&err, LAUNCH_EXIT_FAILED);
    launch_descendants_adopt(); /* for the case that the guardian is killed */
    launch_signals_forward(job->signals, lifeline[0]);
    /* What comes before the guardian has its own handlers waits for them. */
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t guardian = DDL_FAILPOINT_OS("launch.fork", EAGAIN) ? -1 : fork();
    if (guardian < 0) {
        ddl_error_set_os(&err, DDL_ERESOURCE, errno, "cannot start a process");
        return fail(&err, LAUNCH_EXIT_FAILED);
    }
    if (guardian == 0) {
        close(lifeline[0]);
        return launch_guardian_run(job, lifeline[1]);
    }
    close(lifeline[1]);
    launch_secret_fini(job->secret);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* It writes nothing; its end of the lifeline closes when it ends. Until then signals come. */
    struct pollfd end = { lifeline[0], POLLIN, 0 };
    while (poll(&end, 1, -1) < 0 && errno == EINTR)
        continue;
    int status;
    while (waitpid(guardian, &status, 0) < 0)
        if (errno != EINTR) {
            ddl_error_set_os(&err, DDL_EINTERNAL, errno, "cannot wait for the guardian");
            return fail(&err, LAUNCH_EXIT_FAILED);
        }
    return WIFSIGNALED(status) ? end_orphans(job, status) : WEXITSTATUS(status);
}

/*
 * Who has asked us to end by a signal sees that it ended us: a shell stops its script at Ctrl-C only if that
 * has killed what it runs. Returns the exit code, where there was no such signal.
 */
static int end_as_asked(int exit_code)
{
    static const int ending[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (exit_code == 128 + ending[i] && launch_signals_came(ending[i]))
            launch_signals_end_by(ending[i]);
    return exit_code;
}

/* What --check runs is installed beside this program, wherever links to it lead from. */
static ddl_status find_program(const launch_options *options, const char *called, char **path, int *exit_code,
                               ddl_error *err)
{
    char self[PATH_MAX];
    const bool known = options->check && (realpath("/proc/self/exe", self) != NULL ||
                                          (strchr(called, '/') != NULL && realpath(called, self) != NULL));
    const char *name = options->command[0], *slash = known ? strrchr(self, '/') : NULL;
    if (slash != NULL) {
        size_t folder_bytes = (size_t)(slash - self) + 1, bytes = folder_bytes + strlen(name) + 1;
        char *beside = ddl_alloc(bytes);
        if (beside == NULL)
            return DDL_FAIL(err, DDL_ENOMEM, "no memory for the name of the program");
        snprintf(beside, bytes, "%.*s%s", (int)folder_bytes, self, name);
        bool found = launch_program_find(beside, NULL, path, exit_code, NULL) == DDL_OK;
        ddl_free(beside);
        if (found)
            return DDL_OK;
    }
    return launch_program_find(name, getenv("PATH"), path, exit_code, err);
}

int main(int argc, char **argv)
{
    tidy_descriptors();
    launch_signals signals;
    launch_signals_note(&signals);
    launch_options options;
    ddl_error err;
    if (launch_options_parse(argc, argv, &options, &err) != DDL_OK)
        return fail(&err, LAUNCH_EXIT_USAGE);
    if (options.action == LAUNCH_ACTION_HELP) {
        launch_options_help(stdout);
        return end_output();
    }
    if (options.action == LAUNCH_ACTION_VERSION) {
        printf("ddl-launch %d.%d.%d\n", DDL_VERSION_MAJOR, DDL_VERSION_MINOR, DDL_VERSION_PATCH);
        return end_output();
    }
    launch_nodes_warn(&options);
    char *path;
    int exit_code, reserved = -1;
    if (find_program(&options, argv[0], &path, &exit_code, &err) != DDL_OK)
        return fail(&err, err.code == DDL_ENOMEM ? LAUNCH_EXIT_FAILED : exit_code);
    launch_secret secret = { NULL, 0 };
    if (options.action == LAUNCH_ACTION_RUN && launch_secret_find(&options, &secret, &err) != DDL_OK) {
        ddl_free(path);
        if (err.code == DDL_EABORTED) { /* who did that knows */
            launch_signals_end_by(SIGINT);
            return 128 + SIGINT;
        }
        return fail(&err, err.code == DDL_ECONFIG ? LAUNCH_EXIT_USAGE : LAUNCH_EXIT_FAILED);
    }
    launch_job job = { .options = &options,
                       .signals = &signals,
                       .path = path,
                       .environment = environ,
                       .port = options.master_port,
                       .secret = &secret,
                       .shares_stdin = may_share_stdin() };
    if (job.port == 0 && launch_port_reserve(&reserved, &job.port, &err) != DDL_OK)
        exit_code = fail(&err, LAUNCH_EXIT_FAILED);
    else
        exit_code = options.action == LAUNCH_ACTION_DRY_RUN ? dry_run(&job) : run(&job);
    if (reserved >= 0)
        close(reserved);
    launch_secret_fini(&secret);
    ddl_free(path);
    return end_as_asked(exit_code);
}
