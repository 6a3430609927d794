/* guardian_end.c - a job is ended: its ranks are asked to, then killed, with all that they left. */
#include "guardian_parts.h"

#include "descendants.h"

/* Times in milliseconds. */
enum {
    SPEAKING_MS = 1000, /* since its last output: a rank that is still at it */
    FULL_MS = 50,       /* until the next look, while our reader is too slow to tell who is silent */
    SPEECH_MS = 3000,   /* the most for a report */
    KILL_MS = 5000,     /* for the kernel to end what was killed */
    REAP_MS = 50,       /* for what ends by itself just now, where nothing can be killed */
    LEFTOVER_MS = 2000, /* from SIGTERM to SIGKILL for what ranks left behind; or the grace, if shorter */
    GROUP_MS = 250,     /* the same for orphans that we cannot see, only their process group */
};

void launch_guardian_set_cause(struct guardian *g, launch_cause cause)
{
    if (g->outcome.cause == LAUNCH_ENDED)
        g->outcome.cause = cause;
}

void launch_guardian_signal(struct guardian *g, int signal)
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

bool launch_guardian_signal_all(struct guardian *g, int signal)
{
    launch_guardian_signal(g, signal);
    const bool sees_all = launch_descendants_signal(signal, 0, NULL, 0) >= 0;
    return sees_all || signal_left_groups(g, signal) || g->nrunning > 0;
}

void launch_guardian_update_leftovers(struct guardian *g)
{
    g->anything_left = g->nrunning > 0 || (g->adopts ? !g->childless : signal_left_groups(g, 0));
}

void launch_guardian_kill(struct guardian *g, int64_t now_ns)
{
    launch_guardian_update_leftovers(g);
    const bool something = g->anything_left;
    note_asked(g);
    const bool reaches = launch_guardian_signal_all(g, SIGKILL);
    if (g->stage >= KILLING)
        return;
    g->stage = KILLING;
    g->outcome.all_killed = something;
    g->killed_ns = now_ns;
    g->stage_end_ns = launch_in_ms(now_ns, reaches ? KILL_MS : REAP_MS);
}

void launch_guardian_ask_to_end(struct guardian *g, int signal, int64_t grace_ms, int64_t now_ns)
{
    note_asked(g);
    launch_guardian_signal(g, signal);
    launch_guardian_signal(g, SIGCONT); /* one that is stopped could not act on it */
    if (g->stage >= KILLING)
        return;
    int64_t end_ns = launch_in_ms(now_ns, grace_ms);
    if (g->stage < ENDING || end_ns < g->stage_end_ns)
        g->stage_end_ns = end_ns;
    g->stage = ENDING;
}

void launch_guardian_stop_for(struct guardian *g, launch_cause cause, int64_t now_ns)
{
    launch_guardian_set_cause(g, cause);
    launch_guardian_ask_to_end(g, SIGTERM, g->options->grace_ms, now_ns);
}

void launch_guardian_end_report(struct guardian *g, int64_t now_ns)
{
    int64_t quiet_ns = launch_in_ms(g->last_output_ns, SPEAKING_MS),
            most_ns = launch_in_ms(g->failed_ns, SPEECH_MS);
    if (launch_sink_full(g->out) || launch_sink_full(g->err))
        quiet_ns = launch_in_ms(now_ns, FULL_MS);
    if (now_ns < quiet_ns && now_ns < most_ns)
        g->stage_end_ns = launch_sooner(quiet_ns, most_ns);
    else
        launch_guardian_ask_to_end(g, SIGTERM, g->options->grace_ms, now_ns);
}

/*
 * All ranks have ended and what is left of their groups was killed. A group whose members have ended lasts
 * until somebody has waited for them, which is not in our power; so it is not waited for long.
 */
static void forget_groups(struct guardian *g, int64_t now_ns)
{
    int64_t since_ns = g->killed_ns > g->all_ended_ns ? g->killed_ns : g->all_ended_ns;
    for (int i = 0; i < g->nranks && now_ns >= launch_in_ms(since_ns, GROUP_MS); i++)
        g->ranks[i].left_some = false;
}

void launch_guardian_end_leftovers(struct guardian *g, int64_t now_ns)
{
    if (g->stage == KILLING && !g->adopts)
        forget_groups(g, now_ns);
    launch_guardian_update_leftovers(g);
    if (!g->anything_left) {
        /* What is draining ends by itself, unless a stranger holds the pipes. */
        if (!launch_guardian_is_draining(g, now_ns))
            launch_guardian_close_outputs(g);
        return;
    }
    if (g->leftovers_asked || g->stage >= KILLING ||
        (g->stage < ENDING && launch_guardian_is_draining(g, now_ns)))
        return;
    g->leftovers_asked = true;
    launch_guardian_ask_to_end(g, SIGTERM, launch_sooner(g->options->grace_ms, LEFTOVER_MS), now_ns);
    (void)launch_guardian_signal_all(g, SIGTERM);
    (void)launch_guardian_signal_all(g, SIGCONT);
}

void launch_guardian_give_up(struct guardian *g)
{
    g->stage = GIVEN_UP;
    int found = launch_descendants_signal(0, 0, g->outcome.unkillable, LAUNCH_MOST_UNKILLABLE);
    if (found < 0) {
        found = 0;
        for (int i = 0; i < g->nranks && found < LAUNCH_MOST_UNKILLABLE; i++)
            if (g->ranks[i].running || g->ranks[i].left_some)
                g->outcome.unkillable[found++] = g->ranks[i].pid;
    }
    g->outcome.has_unseen = found == 0;
    g->outcome.nunkillable = found < LAUNCH_MOST_UNKILLABLE ? found : LAUNCH_MOST_UNKILLABLE;
    launch_guardian_close_outputs(g);
}
