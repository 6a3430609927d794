/* outcome.h - what became of a job, and the exit code that says so. */
#ifndef DDL_LAUNCH_OUTCOME_H
#define DDL_LAUNCH_OUTCOME_H

#include "rank.h"

enum {
    LAUNCH_EXIT_USAGE = 2,
    LAUNCH_EXIT_TIME_LIMIT = 124,
    LAUNCH_EXIT_FAILED = 125,
    LAUNCH_MOST_UNKILLABLE = 16
};

/* Why a job ended. The first cause stays, unless launch_outcome_is_by_signal. */
typedef enum launch_cause {
    LAUNCH_ENDED, /* each rank by itself, all with 0 */
    LAUNCH_RANK_FAILED,
    LAUNCH_SIGNALLED, /* somebody asked the launcher to stop */
    LAUNCH_TIME_LIMIT,
    LAUNCH_OUTPUT_CLOSED, /* nobody reads what the ranks write */
    LAUNCH_NOT_STARTED,   /* a program could not be executed */
    LAUNCH_DEFECT,        /* the launcher could not do its part */
    LAUNCH_ORPHANED,      /* the launcher died */
} launch_cause;

typedef struct launch_outcome {
    launch_cause cause;
    int signal;               /* that the launcher got, if LAUNCH_SIGNALLED */
    const launch_rank *first; /* that failed, or that stayed out where others waited for it; NULL: none */
    int os_errno;             /* if LAUNCH_NOT_STARTED */
    ddl_error error;          /* if LAUNCH_DEFECT */
    bool time_limit, all_killed, output_cut;
    bool killed_on_request;     /* if all_killed: at a second Ctrl-C, not for want of time */
    int write_error;            /* errno of output that could not be written; 0: none */
    const launch_rank *log_cut; /* the first whose log is not complete; NULL: none */
    pid_t unkillable[LAUNCH_MOST_UNKILLABLE];
    int nunkillable;
    bool has_unseen; /* something is left that cannot be found, and so not be killed */
} launch_outcome;

/*
 * The rank that failed first; NULL: none failed. A process that ends closes its connections a moment before
 * its end can be seen, and on a busy machine those who then fail too may be seen to end before it. So of
 * ranks that ended together, or were about to when the first end was seen, it is one that crashed, or else
 * the only one that ended in another way than all others, or else the one that was seen first. Whoever was
 * asked to end by the launcher comes behind all who ended before that.
 */
const launch_rank *launch_outcome_find_culprit(const launch_rank *ranks, int nranks);

/* Give the culprit the lowest order of all that have failed. */
void launch_outcome_put_first(launch_rank *ranks, int nranks, const launch_rank *culprit);

/* Whether all ranks that have failed did so just now, by this signal: then it was sent to all processes of
 * the job, as schedulers do, and none of them failed by itself. */
bool launch_outcome_is_by_signal(const launch_rank *ranks, int nranks, int signal, int64_t now_ns);

/* The launcher's exit code. */
int launch_outcome_exit_code(const launch_outcome *outcome);

#endif
