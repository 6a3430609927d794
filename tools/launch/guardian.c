/* guardian.c - one loop over the ranks' output, their ends, the launcher's signals and time. */
#include "guardian.h"

#include "descendants.h"
#include "exits.h"
#include "summary.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "io/host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Times in milliseconds. */
enum {
    REPORT_MS = 1000,   /* for the others to report the failure that they see */
    SPEAKING_MS = 1000, /* since its last output: a rank that is still at it */
    FULL_MS = 50,       /* until the next look, while our reader is too slow to tell who is silent */
    SPEECH_MS = 3000,   /* the most for a report */
    KILL_MS = 5000,     /* for the kernel to end what was killed */
    LEFTOVER_MS = 2000, /* from SIGTERM to SIGKILL for what ranks left behind; or the grace, if shorter */
    ORPHANED_MS = 1000, /* the same for everything, when the launcher is gone */
    QUIET_MS = 500,     /* silence after which a pipe that a leftover holds open is not waited for */
    DRAIN_MS = 5000,    /* and the most that it is waited for */
    FLUSH_MS = 5000,    /* for a slow reader of our output, when the job was stopped on request */
    FLUSH_HURRIED_MS = 200,
    GROUP_MS = 250,    /* the same for orphans that we cannot see, only their process group */
    NOTICE_MS = 500,   /* after Ctrl-C: ranks that have not ended are waited for in words */
    SAME_KEY_MS = 200, /* one Ctrl-C may come twice: from the terminal, and from a wrapper that forwards it */
    KILL_AGAIN_MS = 50,
    DRAIN_LOOK_MS = 50,
    COME_LOOK_MS = 200, /* between looks at who has called ddl_init */
};

/* How far the end of the job has come; it only grows. */
enum stage { RUNNING, REPORTING, ENDING, KILLING, GIVEN_UP };

struct guardian {
    const launch_job *job;
    const launch_options *options;
    launch_rank *ranks;
    int nranks, nrunning, nended;
    bool adopts;    /* orphans of the job become our children */
    bool childless; /* no child was left when we last looked */
    launch_exits *exits;

    launch_sink *out, *err; /* one and the same if both go to the same place */
    launch_scratch *scratch;
    int lifeline, wake[2], start_report;
    struct pollfd *polls;
    launch_output **polled; /* which output polls[FIXED_POLLS + i] is for */

    enum stage stage;
    bool leftovers_asked;
    bool some_stayed_out;   /* see launch_rank.stayed_out */
    int64_t come_look_ns;   /* when to look who has called ddl_init */
    int64_t interrupted_ns; /* the first SIGINT; 0: none */
    int64_t notice_ns;      /* when to say what is waited for */
    int64_t held_due_ns;    /* when the first beginning of a line has been held for long enough */
    int64_t failed_ns, stage_end_ns, killed_ns, time_limit_ns, all_ended_ns, last_output_ns;
    int64_t drain_start_ns; /* when all ranks had ended and our reader last kept up */
    /* A slow reader is waited for so long after the ranks' end, and after somebody asked; -1: for ever. */
    int64_t flush_ms, flush_asked_ns;
    launch_outcome outcome;
};

enum { POLL_LIFELINE, POLL_WAKE, POLL_START_REPORT, FIXED_POLLS };

static int64_t in_ms(int64_t now_ns, int64_t ms)
{
    return now_ns + ms * DDL_NS_PER_MS;
}

/* ---- ending processes ---- */

static void signal_running(struct guardian *g, int signal)
{
    for (int i = 0; i < g->nranks; i++) {
        pid_t pid = g->ranks[i].pid;
        if (g->ranks[i].running && kill(-pid, signal) != 0)
            kill(pid, signal); /* it has moved to another group */
    }
}

static void note_asked(struct guardian *g)
{
    for (int i = 0; i < g->nranks; i++)
        g->ranks[i].was_asked = g->ranks[i].was_asked || g->ranks[i].running;
}

/* Signal what is left of groups whose rank has ended; whether there is anything. */
static bool signal_left_groups(struct guardian *g, int signal)
{
    bool any = false;
    for (int i = 0; i < g->nranks; i++) {
        launch_rank *rank = &g->ranks[i];
        if (!rank->left_some)
            continue;
        rank->left_some = kill(-rank->pid, signal) == 0;
        any = any || rank->left_some;
        if (!rank->left_some)
            g->job->groups[i] = 0;
    }
    return any;
}

/* Everything of the job, wherever it went. */
static void signal_all(struct guardian *g, int signal)
{
    signal_running(g, signal);
    if (launch_descendants_signal(signal, 0, NULL, 0) < 0)
        signal_left_groups(g, signal);
}

static bool anything_left(struct guardian *g)
{
    if (g->nrunning > 0)
        return true;
    return g->adopts ? !g->childless : signal_left_groups(g, 0);
}

static void kill_all(struct guardian *g, int64_t now_ns)
{
    bool something = anything_left(g);
    note_asked(g);
    signal_all(g, SIGKILL);
    if (g->stage >= KILLING)
        return;
    g->stage = KILLING;
    g->outcome.all_killed = something;
    g->killed_ns = now_ns;
    g->stage_end_ns = in_ms(now_ns, KILL_MS);
}

/* Ask running ranks to end, by this signal; after grace they are killed. A later call may only shorten that.
 */
static void ask_to_end(struct guardian *g, int signal, int64_t grace_ms, int64_t now_ns)
{
    note_asked(g);
    signal_running(g, signal);
    signal_running(g, SIGCONT); /* one that is stopped could not act on it */
    if (g->stage >= KILLING)
        return;
    int64_t end_ns = in_ms(now_ns, grace_ms);
    if (g->stage < ENDING || end_ns < g->stage_end_ns)
        g->stage_end_ns = end_ns;
    g->stage = ENDING;
}

/* A reader of our output who takes his time is from now on no reason to stay. */
static void limit_flush(struct guardian *g, int64_t ms, int64_t now_ns)
{
    g->flush_ms = ms;
    g->flush_asked_ns = now_ns;
}

/* Whether a reader who has not kept up since then has had his time. */
static bool reader_is_late(const struct guardian *g, int64_t since_ns, int64_t now_ns)
{
    if (g->flush_asked_ns > since_ns)
        since_ns = g->flush_asked_ns;
    /* Who was late once is not waited for again. */
    int64_t ms = g->outcome.output_cut ? FLUSH_HURRIED_MS : g->flush_ms;
    return g->flush_ms >= 0 && now_ns >= in_ms(since_ns, ms);
}

static void set_cause(struct guardian *g, launch_cause cause)
{
    if (g->outcome.cause == LAUNCH_ENDED)
        g->outcome.cause = cause;
}

/* The rest of the output is lost; if nobody asked the job to stop its time limit did. */
static void cut_output(struct guardian *g)
{
    g->outcome.output_cut = true;
    if (g->outcome.cause == LAUNCH_ENDED)
        g->outcome.time_limit = true;
    set_cause(g, LAUNCH_TIME_LIMIT);
}

static void stop_for(struct guardian *g, launch_cause cause, int64_t now_ns)
{
    set_cause(g, cause);
    ask_to_end(g, SIGTERM, g->options->grace_ms, now_ns);
}

/* ---- what comes from the launcher ---- */

/* Whether this SIGINT is of another Ctrl-C than the first. */
static bool is_another_interrupt(struct guardian *g, int64_t now_ns)
{
    if (g->interrupted_ns == 0) {
        g->interrupted_ns = now_ns;
        g->notice_ns = in_ms(now_ns, NOTICE_MS);
    }
    return now_ns >= in_ms(g->interrupted_ns, SAME_KEY_MS);
}

static void on_signal(struct guardian *g, int signal, int64_t now_ns)
{
    switch (signal) {
    case SIGTSTP:
        signal_running(g, SIGSTOP);
        return;
    case SIGCONT:
    case SIGUSR1:
    case SIGUSR2:
        signal_running(g, signal);
        return;
    default:
        break;
    }
    if (g->outcome.cause == LAUNCH_RANK_FAILED && g->outcome.absent == NULL &&
        launch_outcome_is_by_signal(g->ranks, g->nranks, signal, now_ns))
        g->outcome.cause = LAUNCH_ENDED;
    if (g->outcome.cause == LAUNCH_ENDED)
        g->outcome.signal = signal;
    set_cause(g, LAUNCH_SIGNALLED);
    limit_flush(g, FLUSH_MS, now_ns);
    if (signal == SIGINT && is_another_interrupt(g, now_ns)) {
        limit_flush(g, FLUSH_HURRIED_MS, now_ns);
        g->outcome.killed_on_request = g->outcome.killed_on_request || g->stage < KILLING;
        kill_all(g, now_ns);
        return;
    }
    ask_to_end(g, signal == SIGINT ? SIGTERM : signal, g->options->grace_ms, now_ns);
}

static void on_launcher_gone(struct guardian *g, int64_t now_ns)
{
    close(g->lifeline);
    g->lifeline = -1;
    set_cause(g, LAUNCH_ORPHANED);
    limit_flush(g, FLUSH_HURRIED_MS, now_ns);
    ask_to_end(g, SIGTERM, ORPHANED_MS, now_ns);
    signal_all(g, SIGTERM); /* there is no time for one after the other */
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
        set_cause(g, LAUNCH_NOT_STARTED);
        kill_all(g, now_ns);
    }
}

static launch_rank *find_rank(struct guardian *g, pid_t pid)
{
    for (int i = 0; i < g->nranks; i++)
        if (g->ranks[i].running && g->ranks[i].pid == pid)
            return &g->ranks[i];
    return NULL;
}

static void on_failure(struct guardian *g, int64_t now_ns)
{
    set_cause(g, LAUNCH_RANK_FAILED);
    if (g->options->stop_on_failure && g->stage == RUNNING) {
        g->stage = REPORTING;
        g->failed_ns = now_ns;
        g->stage_end_ns = in_ms(now_ns, REPORT_MS);
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
    launch_rank *absent = NULL;
    bool some_wait = false;
    if (now_ns < g->come_look_ns)
        return;
    g->come_look_ns = in_ms(now_ns, COME_LOOK_MS);
    for (int i = g->nranks - 1; i >= 0; i--) {
        launch_rank *rank = &g->ranks[i];
        launch_rank_look(rank);
        absent = rank->stayed_out ? rank : absent;
        some_wait = some_wait || (rank->running && rank->has_come);
    }
    if (!some_wait || !awaits_absent(g))
        return;
    g->outcome.absent = absent;
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

/* ---- output ---- */

static void check_sinks(struct guardian *g, int64_t now_ns)
{
    launch_sink *sinks[] = { g->out, g->err };
    for (int i = 0; i < 2; i++) {
        int error = launch_sink_error(sinks[i]);
        if (error == EPIPE && g->stage == RUNNING && g->nrunning > 0)
            stop_for(g, LAUNCH_OUTPUT_CLOSED, now_ns);
        else if (error != 0 && error != EPIPE && g->outcome.write_error == 0)
            g->outcome.write_error = error;
    }
}

static bool outputs_open(const struct guardian *g)
{
    for (int i = 0; i < g->nranks; i++)
        if (g->ranks[i].out.fd >= 0 || g->ranks[i].err.fd >= 0)
            return true;
    return false;
}

static void close_outputs(struct guardian *g)
{
    for (int i = 0; i < g->nranks; i++)
        launch_rank_fini(&g->ranks[i], g->scratch);
}

/* All ranks have ended, but their pipes have not: whether to wait for what still comes. */
static bool draining(struct guardian *g, int64_t now_ns)
{
    if (!outputs_open(g))
        return false;
    if (launch_sink_full(g->out) || launch_sink_full(g->err)) {
        if (reader_is_late(g, g->all_ended_ns, now_ns)) {
            cut_output(g);
            return false;
        }
        g->drain_start_ns = now_ns; /* a slow reader: what is in the pipes is not lost */
    }
    int64_t since_ns = g->last_output_ns > g->drain_start_ns ? g->last_output_ns : g->drain_start_ns;
    return now_ns < in_ms(since_ns, QUIET_MS) && now_ns < in_ms(g->drain_start_ns, DRAIN_MS);
}

/* ---- time ---- */

/*
 * All ranks have ended and what is left of their groups was killed. A group whose members have ended lasts
 * until somebody has waited for them, which is not in our power; so it is not waited for long.
 */
static void forget_groups(struct guardian *g, int64_t now_ns)
{
    int64_t since_ns = g->killed_ns > g->all_ended_ns ? g->killed_ns : g->all_ended_ns;
    for (int i = 0; i < g->nranks && now_ns >= in_ms(since_ns, GROUP_MS); i++)
        g->ranks[i].left_some = false;
}

/* All ranks have ended: see to what they left. */
static void end_leftovers(struct guardian *g, int64_t now_ns)
{
    if (g->stage == KILLING && !g->adopts)
        forget_groups(g, now_ns);
    if (!anything_left(g)) {
        if (!draining(g, now_ns)) /* else the pipes end by themselves, unless a stranger holds them */
            close_outputs(g);
        return;
    }
    if (g->leftovers_asked || g->stage >= KILLING || (g->stage < ENDING && draining(g, now_ns)))
        return;
    g->leftovers_asked = true;
    ask_to_end(g, SIGTERM, g->options->grace_ms < LEFTOVER_MS ? g->options->grace_ms : LEFTOVER_MS, now_ns);
    signal_all(g, SIGTERM);
    signal_all(g, SIGCONT);
}

static void give_up(struct guardian *g)
{
    g->stage = GIVEN_UP;
    int found = launch_descendants_signal(0, 0, g->outcome.unkillable, LAUNCH_MOST_UNKILLABLE);
    if (found < 0) {
        found = 0;
        for (int i = 0; i < g->nranks && found < LAUNCH_MOST_UNKILLABLE; i++)
            if (g->ranks[i].running || g->ranks[i].left_some)
                g->outcome.unkillable[found++] = g->ranks[i].pid;
    }
    g->outcome.nunkillable = found < LAUNCH_MOST_UNKILLABLE ? found : LAUNCH_MOST_UNKILLABLE;
    close_outputs(g);
}

/* The others have had their second: ask them to end, but let who is just writing finish that. */
static void end_report(struct guardian *g, int64_t now_ns)
{
    int64_t quiet_ns = in_ms(g->last_output_ns, SPEAKING_MS), most_ns = in_ms(g->failed_ns, SPEECH_MS);
    if (launch_sink_full(g->out) || launch_sink_full(g->err))
        quiet_ns = in_ms(now_ns, FULL_MS);
    if (now_ns < quiet_ns && now_ns < most_ns)
        g->stage_end_ns = quiet_ns < most_ns ? quiet_ns : most_ns;
    else
        ask_to_end(g, SIGTERM, g->options->grace_ms, now_ns);
}

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

static void on_time(struct guardian *g, int64_t now_ns)
{
    if (now_ns >= g->notice_ns && g->nrunning > 0)
        say_what_is_waited_for(g, now_ns);
    if (now_ns >= g->time_limit_ns) {
        g->time_limit_ns = DDL_DEADLINE_NEVER;
        if (g->flush_ms < 0)
            limit_flush(g, FLUSH_MS, now_ns);
        if (g->stage < ENDING && g->nrunning > 0) {
            g->outcome.time_limit = true;
            stop_for(g, LAUNCH_TIME_LIMIT, now_ns);
        }
    }
    if (g->stage == REPORTING && g->nrunning > 0 && now_ns >= g->stage_end_ns)
        end_report(g, now_ns);
    else if (g->stage == ENDING && anything_left(g) && now_ns >= g->stage_end_ns)
        kill_all(g, now_ns);
    else if (g->stage == KILLING && anything_left(g) && now_ns >= g->stage_end_ns)
        give_up(g);
    else if (g->stage == KILLING && anything_left(g))
        kill_all(g, now_ns); /* also what has been forked meanwhile */
    if (g->nrunning == 0 && g->stage != GIVEN_UP)
        end_leftovers(g, now_ns);
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How long the loop may sleep, in milliseconds; -1: for ever. */
static int sleep_ms(struct guardian *g, int64_t now_ns)
{
    int64_t until_ns = g->nrunning > 0 ? sooner(g->time_limit_ns, g->notice_ns) : DDL_DEADLINE_NEVER;
    /* Of what on_time sees to; the end of a stage that concerns nobody any more may lie far behind. */
    bool is_ending = (g->stage == ENDING || g->stage == KILLING) && anything_left(g);
    if ((g->stage == REPORTING && g->nrunning > 0) || is_ending)
        until_ns = sooner(until_ns, g->stage_end_ns);
    if (g->stage == KILLING && is_ending)
        until_ns = sooner(until_ns, in_ms(now_ns, KILL_AGAIN_MS));
    if (g->nrunning == 0)
        until_ns = sooner(until_ns, in_ms(now_ns, DRAIN_LOOK_MS));
    if (awaits_absent(g))
        until_ns = sooner(until_ns, g->come_look_ns);
    until_ns = sooner(until_ns, g->held_due_ns);
    if (until_ns == DDL_DEADLINE_NEVER)
        return -1;
    return ddl_deadline_left_ms(until_ns);
}

/* ---- the loop ---- */

static void add_poll(struct guardian *g, int *count, launch_output *output, bool full, int64_t now_ns)
{
    if (output->fd < 0)
        return;
    if (full) {
        launch_output_defer(output, now_ns);
        return;
    }
    g->held_due_ns = sooner(g->held_due_ns, launch_output_due(output, g->last_output_ns));
    g->polled[*count - FIXED_POLLS] = output;
    g->polls[(*count)++] = (struct pollfd){ output->fd, POLLIN, 0 };
}

static void read_output(struct guardian *g, const struct pollfd *found, launch_output *output, int64_t now_ns)
{
    bool due = now_ns >= launch_output_due(output, g->last_output_ns);
    if (found->revents == 0 && !due)
        return;
    /* Also if it is due: what came since we looked may be the end of the line. */
    if (launch_output_read(output, g->scratch, now_ns))
        g->last_output_ns = now_ns;
    if (output->fd >= 0 && now_ns >= launch_output_due(output, g->last_output_ns))
        launch_output_pass(output, g->scratch);
}

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
        add_poll(g, &count, &g->ranks[i].out, out_full, now_ns);
        add_poll(g, &count, &g->ranks[i].err, err_full, now_ns);
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
        read_output(g, &g->polls[i], g->polled[i - FIXED_POLLS], now_ns);
    char woken[256];
    while (read(g->wake[0], woken, sizeof woken) == (ssize_t)sizeof woken)
        continue;
    int nended = g->nended;
    collect_ended(g, now_ns);
    if (g->nended > nended && g->lifeline >= 0)
        read_lifeline(g, now_ns); /* as what ended them may have come to the launcher too */
    look_for_absent(g, now_ns);
    check_sinks(g, now_ns);
    on_time(g, now_ns);
}

static bool sinks_idle(struct guardian *g)
{
    /* Ask both: each is to wake us. */
    bool out_idle = launch_sink_idle(g->out), err_idle = launch_sink_idle(g->err);
    return out_idle && err_idle;
}

static bool job_over(struct guardian *g)
{
    return g->stage == GIVEN_UP || (g->nrunning == 0 && !outputs_open(g) && !anything_left(g));
}

/* Let the sinks write what they have; as long as it takes, unless somebody wants the job to stop. */
static void flush(struct guardian *g)
{
    int64_t begun_ns = ddl_now_ns();
    while (!sinks_idle(g)) {
        if (reader_is_late(g, begun_ns, ddl_now_ns())) {
            cut_output(g);
            break;
        }
        turn(g);
    }
    check_sinks(g, ddl_now_ns()); /* the last of it may have failed after the last turn looked */
}

/* ---- beginning and end ---- */

static bool same_file(int a, int b)
{
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* One that the launcher found closed is not. */
static bool is_writable(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
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
    if (same_file(STDOUT_FILENO, STDERR_FILENO) &&
        is_writable(STDOUT_FILENO) ==
            is_writable(STDERR_FILENO)) { /* two writers would tear each other's lines */
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

static ddl_status start_ranks(struct guardian *g, launch_start *start, ddl_error *err)
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

static ddl_status prepare(struct guardian *g, launch_start *start, ddl_error *err)
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

static void supervise(struct guardian *g)
{
    while (!job_over(g))
        turn(g);
    flush(g);
    g->outcome.first =
        g->outcome.absent != NULL ? g->outcome.absent : launch_outcome_first(g->ranks, g->nranks);
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

static void fini(struct guardian *g)
{
    close_outputs(g);
    launch_exits_destroy(g->exits);
    if (g->err != g->out)
        launch_sink_destroy(g->err);
    launch_sink_destroy(g->out);
    launch_scratch_destroy(g->scratch);
    ddl_free(g->polled);
    ddl_free(g->polls);
    ddl_free(g->ranks);
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
    if (prepare(g, &start, &error) != DDL_OK) {
        fprintf(stderr, "ddl-launch: %s\n", error.text);
        fini(g);
        return error.code == DDL_ECONFIG ? LAUNCH_EXIT_USAGE : LAUNCH_EXIT_FAILED;
    }
    if (job->options->timeout_ms > 0)
        g->time_limit_ns = ddl_deadline_in_ms(job->options->timeout_ms);
    if (start_ranks(g, &start, &error) != DDL_OK) {
        g->outcome.error = error;
        set_cause(g, LAUNCH_DEFECT);
        kill_all(g, ddl_now_ns());
    }
    close(start.null_fd);
    supervise(g);
    int code = launch_outcome_exit_code(&g->outcome);
    if (!sinks_idle(g))
        _exit(code); /* a thread hangs in a write that nobody takes */
    fini(g);
    return code;
}
