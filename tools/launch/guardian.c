/* guardian.c - one loop over the ranks' output, their ends, the launcher's signals and time. */
#include "guardian_parts.h"

#include "descendants.h"
#include "summary.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "io/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Times in milliseconds. */
enum {
    REPORT_MS = 1000,   /* for the others to report the failure that they see */
    ORPHANED_MS = 1000, /* from SIGTERM to SIGKILL for everything, when the launcher is gone */
    NOTICE_MS = 500,    /* after Ctrl-C: ranks that have not ended are waited for in words */
    SAME_KEY_MS = 200, /* one Ctrl-C may come twice: from the terminal, and from a wrapper that forwards it */
    END_LOOK_MS = 50,  /* the most between looks at what is left of a job that ends */
    COME_LOOK_MS = 200, /* between looks at who has called ddl_init */
};

/* ---- what comes from the launcher ---- */

/* Whether this SIGINT is of another Ctrl-C than the first. */
static bool is_another_interrupt(struct guardian *g, int64_t now_ns)
{
    if (g->interrupted_ns == 0) {
        g->interrupted_ns = now_ns;
        g->notice_ns = launch_in_ms(now_ns, NOTICE_MS);
    }
    return now_ns >= launch_in_ms(g->interrupted_ns, SAME_KEY_MS);
}

static void on_signal(struct guardian *g, int signal, int64_t now_ns)
{
    switch (signal) {
    case SIGTSTP:
        launch_guardian_signal(g, SIGSTOP);
        if (g->time_limit_ns != DDL_DEADLINE_NEVER) /* nothing is left of it if it is due by now */
            g->limit_left_ns = g->time_limit_ns > now_ns ? g->time_limit_ns - now_ns : 1;
        g->time_limit_ns = DDL_DEADLINE_NEVER;
        return;
    case SIGCONT:
        if (g->limit_left_ns > 0)
            g->time_limit_ns = now_ns + g->limit_left_ns;
        g->limit_left_ns = 0;
        launch_guardian_signal(g, SIGCONT);
        return;
    case SIGUSR1:
    case SIGUSR2:
        launch_guardian_signal(g, signal);
        return;
    default:
        break;
    }
    if (g->outcome.cause == LAUNCH_RANK_FAILED && g->outcome.first == NULL &&
        launch_outcome_is_by_signal(g->ranks, g->nranks, signal, now_ns))
        g->outcome.cause = LAUNCH_ENDED;
    if (g->outcome.cause == LAUNCH_ENDED)
        g->outcome.signal = signal;
    launch_guardian_set_cause(g, LAUNCH_SIGNALLED);
    launch_guardian_limit_flush(g, LAUNCH_FLUSH_MS, now_ns);
    if (signal == SIGINT && is_another_interrupt(g, now_ns)) {
        launch_guardian_limit_flush(g, LAUNCH_FLUSH_HURRIED_MS, now_ns);
        g->outcome.killed_on_request = g->outcome.killed_on_request || g->stage < KILLING;
        launch_guardian_kill(g, now_ns);
        return;
    }
    launch_guardian_ask_to_end(g, signal == SIGINT ? SIGTERM : signal, g->options->grace_ms, now_ns);
}

static void on_launcher_gone(struct guardian *g, int64_t now_ns)
{
    close(g->lifeline);
    g->lifeline = -1;
    launch_guardian_set_cause(g, LAUNCH_ORPHANED);
    launch_guardian_limit_flush(g, LAUNCH_FLUSH_HURRIED_MS, now_ns);
    launch_guardian_ask_to_end(g, SIGTERM, ORPHANED_MS, now_ns);
    (void)launch_guardian_signal_all(g, SIGTERM); /* there is no time for one after the other */
    g->leftovers_asked = true;
}

static void read_lifeline(struct guardian *g, int64_t now_ns)
{
    unsigned char numbers[64];
    ssize_t bytes = read(g->lifeline, numbers, sizeof numbers);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        on_launcher_gone(g, now_ns);
    for (ssize_t i = 0; i < bytes; i++)
        on_signal(g, numbers[i], now_ns);
}

/* ---- what comes from the ranks ---- */

static void read_start_report(struct guardian *g, int64_t now_ns)
{
    launch_start_failure failure;
    while (g->start_report >= 0) {
        ssize_t bytes = read(g->start_report, &failure, sizeof failure);
        if (bytes < 0)
            return;
        if (bytes == 0) { /* every rank runs its program */
            close(g->start_report);
            g->start_report = -1;
            return;
        }
        if (g->outcome.cause == LAUNCH_ENDED)
            g->outcome.os_errno = failure.os_errno;
        launch_guardian_set_cause(g, LAUNCH_NOT_STARTED);
        launch_guardian_kill(g, now_ns);
    }
}

static launch_rank *find_rank(struct guardian *g, pid_t pid)
{
    for (int i = 0; i < g->nranks; i++)
        if (g->ranks[i].running && g->ranks[i].pid == pid)
            return &g->ranks[i];
    return NULL;
}

static void note_exiting(struct guardian *g)
{
    for (int i = 0; i < g->nranks; i++)
        g->ranks[i].was_exiting = g->ranks[i].running && launch_is_exiting(g->ranks[i].pid);
}

static void on_failure(struct guardian *g, int64_t now_ns)
{
    if (g->outcome.cause == LAUNCH_ENDED)
        note_exiting(g);
    launch_guardian_set_cause(g, LAUNCH_RANK_FAILED);
    if (g->options->stop_on_failure && g->stage == RUNNING) {
        g->stage = REPORTING;
        g->failed_ns = now_ns;
        g->stage_end_ns = launch_in_ms(now_ns, REPORT_MS);
    }
}

static void on_rank_ended(struct guardian *g, launch_rank *rank, int status, int64_t now_ns)
{
    rank->running = false;
    rank->status = status;
    rank->order = ++g->nended;
    rank->ended_ns = now_ns;
    /* While its group lives its number is not given to anybody else; after that we must not use it. */
    rank->left_some = kill(-rank->pid, 0) == 0;
    if (!rank->left_some)
        g->job->groups[rank - g->ranks] = 0;
    if (--g->nrunning == 0)
        g->all_ended_ns = g->drain_start_ns = now_ns;
    launch_rank_note_end(rank);
    g->some_stayed_out = g->some_stayed_out || rank->stayed_out;
    if (status != 0)
        on_failure(g, now_ns);
}

/* Who has ended well, but without ddl_init, is waited for there by all others, as long as they may. */
static bool awaits_absent(const struct guardian *g)
{
    return g->some_stayed_out && g->stage == RUNNING && g->nrunning > 0 && g->options->stop_on_failure;
}

static void look_for_absent(struct guardian *g, int64_t now_ns)
{
    const launch_rank *absent = NULL;
    bool some_wait = false;
    g->come_look_ns = launch_in_ms(now_ns, COME_LOOK_MS);
    for (int i = g->nranks - 1; i >= 0; i--) {
        launch_rank *rank = &g->ranks[i];
        launch_rank_look(rank);
        absent = rank->stayed_out ? rank : absent;
        some_wait = some_wait || (rank->running && rank->has_come);
    }
    if (!some_wait)
        return;
    g->outcome.first = absent;
    on_failure(g, now_ns);
}

static void wait_for(struct guardian *g, launch_rank *rank, pid_t pid, int64_t now_ns)
{
    int status;
    if (waitpid(pid, &status, WNOHANG) != pid || rank == NULL)
        return;
    on_rank_ended(g, rank, status, now_ns);
    DDL_FAILPOINT_STALL("launch.ended");
}

/* Wait for all children that have ended: ranks in the order of their ends, and orphans that we adopted. */
static void collect_ended(struct guardian *g, int64_t now_ns)
{
    read_start_report(g, now_ns); /* before its writer's exit code is taken for the program's */
    bool seen_before = false;
    for (;;) {
        int number;
        while ((number = launch_exits_next(g->exits)) >= 0)
            if (g->ranks[number].running)
                wait_for(g, &g->ranks[number], g->ranks[number].pid, now_ns);
        siginfo_t info;
        memset(&info, 0, sizeof info);
        int found = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
        g->childless = found < 0 && errno == ECHILD;
        if (found < 0 || info.si_pid == 0)
            return;
        launch_rank *rank = find_rank(g, info.si_pid);
        if (rank != NULL && g->exits != NULL && !seen_before) {
            seen_before = true; /* it ended just now, perhaps after others: ask for the order again */
            continue;
        }
        seen_before = false;
        wait_for(g, rank, info.si_pid, now_ns);
    }
}

/* ---- time ---- */

/* Whoever pressed Ctrl-C is not to wonder whether it was noticed. */
static void say_what_is_waited_for(struct guardian *g, int64_t now_ns)
{
    g->notice_ns = DDL_DEADLINE_NEVER;
    if (g->stage != ENDING || now_ns >= g->stage_end_ns)
        return;
    int64_t ms = (g->stage_end_ns - now_ns) / DDL_NS_PER_MS;
    char text[96];
    int bytes = snprintf(text, sizeof text, "ddl-launch: stopping; SIGKILL in %lld s, or at another Ctrl-C\n",
                         (long long)(ms + 999) / 1000);
    launch_sink_put(g->err, NULL, (ddl_view){ text, (size_t)bytes });
}

static void on_time_limit(struct guardian *g, int64_t now_ns)
{
    g->time_limit_ns = DDL_DEADLINE_NEVER;
    if (g->flush_ms < 0)
        launch_guardian_limit_flush(g, LAUNCH_FLUSH_MS, now_ns);
    if (g->stage < ENDING && g->nrunning > 0) {
        g->outcome.time_limit = true;
        launch_guardian_stop_for(g, LAUNCH_TIME_LIMIT, now_ns);
    }
}

enum due { SAY_NOTICE, TIME_LIMIT, END_REPORT, KILL, GIVE_UP, LOOK_FOR_ABSENT };

/* What is to be done next, and in *due_ns when: here is all that waits for a time. */
static enum due next_due(const struct guardian *g, int64_t *due_ns)
{
    /* The end of a stage that concerns nobody any more may lie far behind. */
    const struct {
        enum due what;
        bool matters;
        int64_t ns;
    } timers[] = {
        { SAY_NOTICE, g->nrunning > 0, g->notice_ns },
        { TIME_LIMIT, true, g->time_limit_ns },
        { END_REPORT, g->stage == REPORTING && g->nrunning > 0, g->stage_end_ns },
        { KILL, g->stage == ENDING && g->anything_left, g->stage_end_ns },
        { GIVE_UP, g->stage == KILLING && g->anything_left, g->stage_end_ns },
        { LOOK_FOR_ABSENT, awaits_absent(g), g->come_look_ns },
    };
    enum due next = SAY_NOTICE;
    *due_ns = DDL_DEADLINE_NEVER;
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++)
        if (timers[i].matters && timers[i].ns < *due_ns) {
            next = timers[i].what;
            *due_ns = timers[i].ns;
        }
    return next;
}

/* Each leaves its timer later, or such that it does not matter any more. */
static void see_to(struct guardian *g, enum due what, int64_t now_ns)
{
    switch (what) {
    case SAY_NOTICE:
        say_what_is_waited_for(g, now_ns);
        break;
    case TIME_LIMIT:
        on_time_limit(g, now_ns);
        break;
    case END_REPORT:
        launch_guardian_end_report(g, now_ns);
        break;
    case KILL:
        launch_guardian_kill(g, now_ns);
        break;
    case GIVE_UP:
        launch_guardian_give_up(g);
        break;
    case LOOK_FOR_ABSENT:
        look_for_absent(g, now_ns);
        break;
    }
}

static void on_time(struct guardian *g, int64_t now_ns)
{
    int64_t due_ns;
    enum due what = next_due(g, &due_ns);
    while (due_ns <= now_ns) {
        see_to(g, what, now_ns);
        what = next_due(g, &due_ns);
    }
}

/* Whether to look at the end of the job after whatever happens, and often. */
static bool is_watched(const struct guardian *g)
{
    return g->nrunning == 0 || (g->stage == KILLING && g->anything_left);
}

/* Kill what has been forked since everything was killed; see to what ranks have left that have all ended. */
static void look_at_end(struct guardian *g, int64_t now_ns)
{
    if (g->stage == KILLING && g->anything_left)
        launch_guardian_kill(g, now_ns);
    if (g->nrunning == 0 && g->stage != GIVEN_UP)
        launch_guardian_end_leftovers(g, now_ns);
}

/* How long the loop may sleep, in milliseconds; -1: for ever. */
static int sleep_ms(const struct guardian *g, int64_t now_ns)
{
    int64_t until_ns;
    (void)next_due(g, &until_ns);
    if (is_watched(g))
        until_ns = launch_sooner(until_ns, launch_in_ms(now_ns, END_LOOK_MS));
    until_ns = launch_sooner(until_ns, g->held_due_ns);
    return until_ns == DDL_DEADLINE_NEVER ? -1 : ddl_deadline_left_ms(until_ns);
}

/* ---- the loop ---- */

/* Wait for something to happen, and see to it. */
static void turn(struct guardian *g)
{
    int64_t now_ns = ddl_now_ns();
    int count = FIXED_POLLS;
    g->polls[POLL_LIFELINE] = (struct pollfd){ g->lifeline, POLLIN, 0 };
    g->polls[POLL_WAKE] = (struct pollfd){ g->wake[0], POLLIN, 0 };
    g->polls[POLL_START_REPORT] = (struct pollfd){ g->start_report, POLLIN, 0 };
    g->held_due_ns = DDL_DEADLINE_NEVER;
    bool out_full = launch_sink_full(g->out), err_full = launch_sink_full(g->err);
    for (int i = 0; i < g->nranks; i++) {
        launch_guardian_add_poll(g, &count, &g->ranks[i].out, out_full, now_ns);
        launch_guardian_add_poll(g, &count, &g->ranks[i].err, err_full, now_ns);
    }
    if (poll(g->polls, (nfds_t)count, sleep_ms(g, now_ns)) < 0)
        for (int i = 0; i < count; i++)
            g->polls[i].revents = 0; /* interrupted: the wake byte is there */
    now_ns = ddl_now_ns();
    if (g->polls[POLL_LIFELINE].revents != 0) {
        collect_ended(g, now_ns); /* who ended by itself before it is asked to */
        read_lifeline(g, now_ns);
    }
    for (int i = FIXED_POLLS; i < count; i++)
        launch_guardian_read_output(g, &g->polls[i], g->polled[i - FIXED_POLLS], now_ns);
    char woken[256];
    while (read(g->wake[0], woken, sizeof woken) == (ssize_t)sizeof woken)
        continue;
    int nended = g->nended;
    collect_ended(g, now_ns);
    launch_guardian_update_leftovers(g);
    if (g->nended > nended && g->lifeline >= 0)
        read_lifeline(g, now_ns); /* as what ended them may have come to the launcher too */
    launch_guardian_check_sinks(g, now_ns);
    look_at_end(g, now_ns);
    on_time(g, now_ns);
}

static bool job_over(const struct guardian *g)
{
    return g->stage == GIVEN_UP ||
           (g->nrunning == 0 && !launch_guardian_outputs_open(g) && !g->anything_left);
}

/* Let the sinks write what they have; as long as it takes, unless somebody wants the job to stop. */
static void flush(struct guardian *g)
{
    int64_t begun_ns = ddl_now_ns();
    while (!launch_guardian_sinks_idle(g)) {
        if (launch_guardian_cut_output(g, begun_ns, ddl_now_ns()))
            break;
        turn(g);
    }
    /* The last of it may have failed after the last turn looked. */
    launch_guardian_check_sinks(g, ddl_now_ns());
}

static void find_culprit(struct guardian *g)
{
    if (g->outcome.first != NULL) /* one that stayed out was found before */
        return;
    g->outcome.first = launch_outcome_find_culprit(g->ranks, g->nranks);
    if (g->outcome.first != NULL)
        launch_outcome_put_first(g->ranks, g->nranks, g->outcome.first);
}

static void supervise(struct guardian *g)
{
    while (!job_over(g))
        turn(g);
    flush(g);
    find_culprit(g);
    for (int i = g->nranks - 1; i >= 0; i--)
        if (launch_rank_log_error(&g->ranks[i]) != 0)
            g->outcome.log_cut = &g->ranks[i];
    ddl_bytes text = { NULL, 0, 0 };
    /* A check that has found something has said what. */
    bool told = g->options->check && g->outcome.cause == LAUNCH_RANK_FAILED &&
                launch_outcome_exit_code(&g->outcome) == 1;
    if (!told)
        launch_summary(g->job, &g->outcome, g->ranks, g->nranks, &text);
    launch_sink_put(g->err, NULL, ddl_bytes_view(&text));
    ddl_bytes_fini(&text);
    flush(g);
}

int launch_guardian_run(const launch_job *job, int lifeline)
{
    struct guardian guardian = { .job = job,
                                 .options = job->options,
                                 .lifeline = lifeline,
                                 .start_report = -1,
                                 .wake = { -1, -1 },
                                 .time_limit_ns = DDL_DEADLINE_NEVER,
                                 .notice_ns = DDL_DEADLINE_NEVER,
                                 .flush_ms = -1 };
    struct guardian *g = &guardian;
    launch_start start = { .job = job, .cpus = ddl_host_cpus(NULL), .null_fd = -1 };
    /* Ctrl-C in a terminal, and who kills the launcher's process group, must not reach us: the lifeline
     * tells. */
    setsid();
    launch_rename_process("ddl-guardian");
    g->adopts = launch_descendants_adopt();
    g->exits = launch_exits_create();
    ddl_error error;
    if (launch_guardian_prepare(g, &start, &error) != DDL_OK) {
        fprintf(stderr, "ddl-launch: %s\n", error.text);
        launch_guardian_fini(g);
        return error.code == DDL_ECONFIG ? LAUNCH_EXIT_USAGE : LAUNCH_EXIT_FAILED;
    }
    if (job->options->timeout_ms > 0)
        g->time_limit_ns = ddl_deadline_in_ms(job->options->timeout_ms);
    if (launch_guardian_start_ranks(g, &start, &error) != DDL_OK) {
        g->outcome.error = error;
        launch_guardian_set_cause(g, LAUNCH_DEFECT);
        launch_guardian_kill(g, ddl_now_ns());
    }
    close(start.null_fd);
    supervise(g);
    int code = launch_outcome_exit_code(&g->outcome);
    if (!launch_guardian_sinks_idle(g))
        _exit(code); /* a thread hangs in a write that nobody takes */
    launch_guardian_fini(g);
    return code;
}
