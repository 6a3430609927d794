/*
 * guardian_parts.h - what the files of the guardian share. What their user needs is in guardian.h.
 */
#ifndef DDL_LAUNCH_GUARDIAN_PARTS_H
#define DDL_LAUNCH_GUARDIAN_PARTS_H

#include "guardian.h"

#include "exits.h"
#include "outcome.h"

#include "base/clock.h"

#include <poll.h>

/* How far the end of the job has come; it only grows. */
enum stage { RUNNING, REPORTING, ENDING, KILLING, GIVEN_UP };

struct guardian {
    const launch_job *job;
    const launch_options *options;
    launch_rank *ranks;
    int nranks, nrunning, nended;
    bool adopts;        /* orphans of the job become our children */
    bool childless;     /* no child was left when we last looked */
    bool anything_left; /* any process of the job, be it one that a rank left behind, when we last looked */
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
    int64_t failed_ns, stage_end_ns, killed_ns, time_limit_ns, limit_left_ns, all_ended_ns, last_output_ns;
    int64_t drain_start_ns; /* when all ranks had ended and our reader last kept up */
    /* A slow reader is waited for so long after the ranks' end, and after somebody asked; -1: for ever. */
    int64_t flush_ms, flush_asked_ns;
    launch_outcome outcome;
};

/* For a slow reader of our output, when the job was stopped on request; and when there is no time for that.
 */
enum { LAUNCH_FLUSH_MS = 5000, LAUNCH_FLUSH_HURRIED_MS = 500 };

/* What polls begins with; the pipes of the ranks follow. */
enum { POLL_LIFELINE, POLL_WAKE, POLL_START_REPORT, FIXED_POLLS };

static inline int64_t launch_in_ms(int64_t now_ns, int64_t ms)
{
    return now_ns + ms * DDL_NS_PER_MS;
}

static inline int64_t launch_sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- guardian_end.c ---- */

/* Why the job ended; what is said first counts. */
void launch_guardian_set_cause(struct guardian *g, launch_cause cause);

/* Signal the groups of all ranks that run. */
void launch_guardian_signal(struct guardian *g, int signal);

/* Everything of the job, wherever it went. False: nothing that there may be is reached. */
bool launch_guardian_signal_all(struct guardian *g, int signal);

/* Look what of the job is there, after children have been waited for, and set g->anything_left. Groups that
 * have ended are forgotten, as their numbers may be given to others. */
void launch_guardian_update_leftovers(struct guardian *g);

/* Kill everything of the job; to be called again while something is left, for what has been forked since. */
void launch_guardian_kill(struct guardian *g, int64_t now_ns);

/* Ask running ranks to end, by this signal; after grace they are killed. A later call may only shorten that.
 */
void launch_guardian_ask_to_end(struct guardian *g, int signal, int64_t grace_ms, int64_t now_ns);

/* The same by SIGTERM and for the grace of the options, as the job is over for this cause. */
void launch_guardian_stop_for(struct guardian *g, launch_cause cause, int64_t now_ns);

/* The others have had their second: ask them to end, but let who is just writing finish that. */
void launch_guardian_end_report(struct guardian *g, int64_t now_ns);

/* All ranks have ended: see to what they left. */
void launch_guardian_end_leftovers(struct guardian *g, int64_t now_ns);

/* What was killed does not end: note what it is, and wait for it no longer. */
void launch_guardian_give_up(struct guardian *g);

/* ---- guardian_output.c ---- */

/* A reader of our output who takes his time is from now on no reason to stay: he has ms for what is left. */
void launch_guardian_limit_flush(struct guardian *g, int64_t ms, int64_t now_ns);

/* Whether any rank's pipe is open. */
bool launch_guardian_outputs_open(const struct guardian *g);

/* Pass on what came, and close all pipes. */
void launch_guardian_close_outputs(struct guardian *g);

/* All ranks have ended, but their pipes have not: whether to wait for what still comes. */
bool launch_guardian_is_draining(struct guardian *g, int64_t now_ns);

/* Add the pipe to what the next poll waits for, unless our reader is too slow for more. */
void launch_guardian_add_poll(struct guardian *g, int *count, launch_output *output, bool full,
                              int64_t now_ns);

/* Pass on what a poll found, and a beginning of a line that was held for long enough. */
void launch_guardian_read_output(struct guardian *g, const struct pollfd *found, launch_output *output,
                                 int64_t now_ns);

/* See whether what was to be written could be: a job whose reader has gone is stopped. */
void launch_guardian_check_sinks(struct guardian *g, int64_t now_ns);

/* Whether all is written; if not, we are woken when it is. */
bool launch_guardian_sinks_idle(struct guardian *g);

/* The rest of the output is lost, if our reader has not kept up since then and has had his time. */
bool launch_guardian_cut_output(struct guardian *g, int64_t since_ns, int64_t now_ns);

/* ---- guardian_start.c ---- */

/* Memory, descriptors, sinks and logs for all ranks. */
DDL_MUST_USE ddl_status launch_guardian_prepare(struct guardian *g, launch_start *start, ddl_error *err);

/* On failure those that were started run on. */
DDL_MUST_USE ddl_status launch_guardian_start_ranks(struct guardian *g, launch_start *start, ddl_error *err);

/* Takes one that is half prepared, too. */
void launch_guardian_fini(struct guardian *g);

#endif
