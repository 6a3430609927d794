/* guardian_output.c - what the ranks write is passed on, as fast as our reader takes it. */
#include "guardian_parts.h"

#include <errno.h>

/* Times in milliseconds. */
enum {
    QUIET_MS = 500,  /* silence after which a pipe that a leftover holds open is not waited for */
    DRAIN_MS = 5000, /* and the most that it is waited for */
};

/* Bytes: that of Linux, which gives a sixteenth of it unless asked for more. */
enum { MOST_IN_PIPE = 1 << 20 };

void launch_guardian_limit_flush(struct guardian *g, int64_t ms, int64_t now_ns)
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
    int64_t ms = g->outcome.output_cut ? LAUNCH_FLUSH_HURRIED_MS : g->flush_ms;
    return g->flush_ms >= 0 && now_ns >= launch_in_ms(since_ns, ms);
}

bool launch_guardian_cut_output(struct guardian *g, int64_t since_ns, int64_t now_ns)
{
    if (!reader_is_late(g, since_ns, now_ns))
        return false;
    g->outcome.output_cut = true;
    if (g->outcome.cause == LAUNCH_ENDED)
        g->outcome.time_limit = true; /* nobody else has asked the job to stop */
    launch_guardian_set_cause(g, LAUNCH_TIME_LIMIT);
    return true;
}

void launch_guardian_check_sinks(struct guardian *g, int64_t now_ns)
{
    launch_sink *sinks[] = { g->out, g->err };
    for (int i = 0; i < 2; i++) {
        int error = launch_sink_error(sinks[i]);
        if (error == EPIPE && g->stage == RUNNING && g->nrunning > 0)
            launch_guardian_stop_for(g, LAUNCH_OUTPUT_CLOSED, now_ns);
        else if (error == EPIPE)
            launch_guardian_set_cause(g, LAUNCH_OUTPUT_CLOSED);
        else if (error != 0 && g->outcome.write_error == 0)
            g->outcome.write_error = error;
    }
}

bool launch_guardian_outputs_open(const struct guardian *g)
{
    for (int i = 0; i < g->nranks; i++)
        if (g->ranks[i].out.fd >= 0 || g->ranks[i].err.fd >= 0)
            return true;
    return false;
}

/* What is in the pipe while our reader is too slow to be given more; a log is to have it all the same. One
 * that still writes has no end. */
static void take_rest(launch_output *output, launch_scratch *scratch)
{
    const int64_t now_ns = ddl_now_ns();
    for (size_t bytes = 0; bytes < MOST_IN_PIPE && output->fd >= 0; bytes += LAUNCH_READ_BYTES)
        if (!launch_output_read(output, scratch, now_ns))
            return;
}

void launch_guardian_close_outputs(struct guardian *g)
{
    for (int i = 0; i < g->nranks; i++) {
        take_rest(&g->ranks[i].out, g->scratch);
        take_rest(&g->ranks[i].err, g->scratch);
        launch_rank_fini(&g->ranks[i], g->scratch);
    }
}

bool launch_guardian_is_draining(struct guardian *g, int64_t now_ns)
{
    if (!launch_guardian_outputs_open(g))
        return false;
    if (launch_sink_full(g->out) || launch_sink_full(g->err)) {
        if (launch_guardian_cut_output(g, g->all_ended_ns, now_ns))
            return false;
        g->drain_start_ns = now_ns; /* a slow reader: what is in the pipes is not lost */
    }
    int64_t since_ns = g->last_output_ns > g->drain_start_ns ? g->last_output_ns : g->drain_start_ns;
    return now_ns < launch_in_ms(since_ns, QUIET_MS) && now_ns < launch_in_ms(g->drain_start_ns, DRAIN_MS);
}

void launch_guardian_add_poll(struct guardian *g, int *count, launch_output *output, bool full,
                              int64_t now_ns)
{
    if (output->fd < 0)
        return;
    if (full) {
        launch_output_defer(output, now_ns);
        return;
    }
    g->held_due_ns = launch_sooner(g->held_due_ns, launch_output_due(output, g->last_output_ns));
    g->polled[*count - FIXED_POLLS] = output;
    g->polls[(*count)++] = (struct pollfd){ output->fd, POLLIN, 0 };
}

void launch_guardian_read_output(struct guardian *g, const struct pollfd *found, launch_output *output,
                                 int64_t now_ns)
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

bool launch_guardian_sinks_idle(struct guardian *g)
{
    /* Ask both: each is to wake us. */
    bool out_idle = launch_sink_idle(g->out), err_idle = launch_sink_idle(g->err);
    return out_idle && err_idle;
}
