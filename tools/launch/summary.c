/* summary.c - the words for what became of a job. */
#include "summary.h"

#include "io/host.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHOWN_LINES = 10, SHOWN_LINE_BYTES = 2048 };

/* Append; what does not fit into memory any more is left out. */
__attribute__((format(printf, 2, 3))) static void say(ddl_bytes *text, const char *format, ...)
{
    char part[1024];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(part, sizeof part, format, args);
    va_end(args);
    if (bytes > 0)
        (void)ddl_bytes_append(text, part, (size_t)bytes < sizeof part ? (size_t)bytes : sizeof part - 1);
}

static void say_first(ddl_bytes *text, const launch_job *job, const launch_rank *first)
{
    char host[DDL_HOST_NAME_TEXT], name[32];
    ddl_host_name(host);
    say(text, "ddl-launch: rank %d on %s (pid %ld) failed first%s: ", first->rank, host, (long)first->pid,
        job->options->nnodes > 1 ? " on this node" : "");
    if (first->stayed_out) {
        say(text, "it ended with 0 before ddl_init, where others wait for it\n");
        return;
    }
    if (!WIFSIGNALED(first->status)) {
        say(text, "exit code %d\n", WEXITSTATUS(first->status));
        return;
    }
    int signal = WTERMSIG(first->status);
    say(text, "killed by %s", launch_signal_name(signal, name, sizeof name));
#ifdef WCOREDUMP
    if (WCOREDUMP(first->status))
        say(text, ", core dumped");
#endif
    say(text, "%s\n", signal == SIGKILL ? " (perhaps for lack of memory: see the system's log)" : "");
}

static void say_end(ddl_bytes *text, const launch_rank *rank)
{
    char name[32];
    if (rank->running)
        say(text, " did not end");
    else if (WIFSIGNALED(rank->status))
        say(text, " ended by %s", launch_signal_name(WTERMSIG(rank->status), name, sizeof name));
    else
        say(text, " ended with %d", WEXITSTATUS(rank->status));
}

static bool same_end(const launch_rank *a, const launch_rank *b)
{
    return a->running == b->running && (a->running || a->status == b->status);
}

/* Which ranks a line is about: those that ended on one side of the first failure, or all if there was none.
 */
typedef struct told_side {
    const launch_rank *first;
    bool before;
} told_side;

static bool is_told(const launch_rank *rank, told_side side)
{
    if (rank->pid == 0 || rank == side.first)
        return false;
    bool before = side.first != NULL && !rank->running && rank->order < side.first->order;
    return before == side.before;
}

typedef struct alike { /* those on a side that ended as `like` did */
    const launch_rank *like;
    told_side side;
} alike;

static bool is_alike(const launch_rank *rank, const void *arg)
{
    const alike *it = arg;
    return is_told(rank, it->side) && same_end(rank, it->like);
}

static bool is_cut(const launch_rank *rank, const void *arg)
{
    (void)arg;
    return launch_rank_log_error(rank) != 0;
}

/* " ranks 1-3,7": those that are so. */
static void say_ranks(ddl_bytes *text, const launch_rank *ranks, int nranks,
                      bool (*is_so)(const launch_rank *rank, const void *arg), const void *arg)
{
    int count = 0;
    for (int i = 0; i < nranks; i++)
        count += is_so(&ranks[i], arg);
    say(text, count == 1 ? " rank " : " ranks ");
    const char *between = "";
    for (int i = 0; i < nranks; i++) {
        if (!is_so(&ranks[i], arg))
            continue;
        int last = i;
        while (last + 1 < nranks && is_so(&ranks[last + 1], arg))
            last++;
        say(text, "%s%d", between, ranks[i].rank);
        if (last > i)
            say(text, "-%d", ranks[last].rank);
        between = ",";
        i = last;
    }
}

/* One line for the ranks on a side, by how they ended. */
static void say_others(ddl_bytes *text, const launch_rank *ranks, int nranks, told_side side)
{
    const char *between = "ddl-launch:";
    for (int i = 0; i < nranks; i++) {
        if (!is_told(&ranks[i], side))
            continue;
        bool told = false;
        for (int j = 0; j < i && !told; j++)
            told = is_told(&ranks[j], side) && same_end(&ranks[j], &ranks[i]);
        if (told)
            continue;
        say(text, "%s", between);
        say_ranks(text, ranks, nranks, is_alike, &(alike){ &ranks[i], side });
        say_end(text, &ranks[i]);
        between = ",";
    }
    if (between[0] == ',')
        say(text, "%s\n", side.first == NULL ? "" : side.before ? " before it" : " after it");
}

/* Of those that wrote something and ended by themselves with the same exit code, the one that was seen first;
 * NULL: none. */
static const launch_rank *find_spokesman(const launch_rank *silent, const launch_rank *ranks, int nranks)
{
    const launch_rank *found = NULL;
    for (const launch_rank *rank = ranks; rank < ranks + nranks; rank++)
        if (rank->pid != 0 && rank->tail.bytes > 0 && same_end(rank, silent) && WIFEXITED(silent->status) &&
            !rank->was_asked && (found == NULL || rank->order < found->order))
            found = rank;
    return found;
}

/* Where all end at once for a reason that only one of them tells, it need not have been seen to end first. */
static void say_tail(ddl_bytes *text, const launch_rank *first, const launch_rank *ranks, int nranks)
{
    ddl_view lines[SHOWN_LINES];
    const launch_rank *rank = first->tail.bytes > 0 ? first : find_spokesman(first, ranks, nranks);
    if (rank == NULL) {
        say(text, "ddl-launch: rank %d wrote nothing\n", first->rank);
        return;
    }
    if (rank == first)
        say(text, "ddl-launch: the last lines of rank %d:\n", rank->rank);
    else
        say(text, "ddl-launch: rank %d wrote nothing; the last lines of rank %d, which ended as it did:\n",
            first->rank, rank->rank);
    const int count = launch_tail_lines(&rank->tail, lines, SHOWN_LINES);
    for (int i = 0; i < count; i++) {
        size_t bytes = lines[i].bytes < SHOWN_LINE_BYTES ? lines[i].bytes : SHOWN_LINE_BYTES;
        say(text, "%s", rank->prefix);
        (void)ddl_bytes_append(text, lines[i].data, bytes);
        say(text, "%s\n", bytes < lines[i].bytes ? " ..." : "");
    }
}

static void say_not_started(ddl_bytes *text, const launch_job *job, int os_errno)
{
    const char *hint =
        os_errno == ENOENT
            ? "; is there what it is run by: the interpreter in a script's first line, a binary's loader?"
        : os_errno == ENOEXEC
            ? "; a script needs a first line such as #!/bin/sh, a binary a machine of its kind"
            : "";
    say(text, "ddl-launch: cannot start %.300s: %s%s\n", job->path, strerror(os_errno), hint);
}

static void say_cause(const launch_job *job, const launch_outcome *outcome, const launch_rank *ranks,
                      int nranks, ddl_bytes *text)
{
    bool was_stopped = false;
    char name[32];
    const char *killed = !outcome->all_killed         ? ""
                         : outcome->killed_on_request ? " by SIGKILL, at the second Ctrl-C"
                                                      : " by SIGKILL, as it did not end in time";
    for (int i = 0; i < nranks; i++)
        was_stopped = was_stopped || ranks[i].was_asked;
    switch (outcome->cause) {
    case LAUNCH_ENDED:
    case LAUNCH_ORPHANED:
        break;
    case LAUNCH_RANK_FAILED:
        say_first(text, job, outcome->first);
        break;
    case LAUNCH_SIGNALLED:
        say(text, "ddl-launch: got %s; the job was stopped%s\n",
            launch_signal_name(outcome->signal, name, sizeof name), killed);
        break;
    case LAUNCH_OUTPUT_CLOSED:
        say(text, "ddl-launch: nobody reads the output any more%s%s\n",
            was_stopped ? "; the job was stopped" : "", killed);
        break;
    case LAUNCH_NOT_STARTED:
        say_not_started(text, job, outcome->os_errno);
        break;
    case LAUNCH_DEFECT:
        say(text, "ddl-launch: %s\n", outcome->error.text);
        break;
    case LAUNCH_TIME_LIMIT:
        break;
    }
    if (outcome->time_limit)
        say(text, "ddl-launch: time limit of %g s reached (--timeout); the job was stopped%s\n",
            (double)job->options->timeout_ms / 1e3, killed);
}

static void say_output_errors(const launch_outcome *outcome, const launch_rank *ranks, int nranks,
                              ddl_bytes *text)
{
    if (outcome->write_error == EBADF)
        say(text, "ddl-launch: output was lost: standard output is closed; >/dev/null says that it is not "
                  "wanted\n");
    else if (outcome->write_error != 0)
        say(text, "ddl-launch: output was lost: %s\n", strerror(outcome->write_error));
    if (outcome->log_cut == NULL)
        return;
    int cut = 0;
    for (int i = 0; i < nranks; i++)
        cut += is_cut(&ranks[i], NULL);
    say(text, "ddl-launch: --log_dir: the log%s of", cut > 1 ? "s" : "");
    say_ranks(text, ranks, nranks, is_cut, NULL);
    say(text, " %s not complete: %s\n", cut > 1 ? "are" : "is",
        strerror(launch_rank_log_error(outcome->log_cut)));
}

void launch_summary(const launch_job *job, const launch_outcome *outcome, launch_rank *ranks, int nranks,
                    ddl_bytes *text)
{
    say_output_errors(outcome, ranks, nranks, text);
    say_cause(job, outcome, ranks, nranks, text);
    bool tells_ranks = outcome->cause == LAUNCH_RANK_FAILED || outcome->cause == LAUNCH_TIME_LIMIT ||
                       outcome->cause == LAUNCH_SIGNALLED;
    const launch_rank *first = outcome->cause == LAUNCH_RANK_FAILED ? outcome->first : NULL;
    if (tells_ranks && first != NULL)
        say_others(text, ranks, nranks, (told_side){ first, .before = true });
    if (tells_ranks)
        say_others(text, ranks, nranks, (told_side){ first, .before = false });
    for (int i = 0; i < outcome->nunkillable; i++)
        say(text, "%s%ld", i == 0 ? "ddl-launch: these processes could not be killed: " : ", ",
            (long)outcome->unkillable[i]);
    if (outcome->nunkillable > 0)
        say(text, "\n");
    if (outcome->has_unseen)
        say(text,
            "ddl-launch: processes that the ranks have started are still there; they cannot be found; "
            "where there is no /proc, or that of another namespace, mount it (mount -t proc proc /proc), and "
            "end them by hand\n");
    if (first != NULL && nranks > 1)
        say_tail(text, first, ranks, nranks);
}
