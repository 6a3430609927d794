/*
 * rank.h - one process of the job on this node: how it is started and what became of it.
 *
 * Each rank leads a process group of its own, reads nothing (rank 0: what the launcher reads), writes into
 * two pipes, and has no descriptor but these three and the one that holds the job's secret.
 */
#ifndef DDL_LAUNCH_RANK_H
#define DDL_LAUNCH_RANK_H

#include "environment.h"
#include "output.h"
#include "secret.h"
#include "signals.h"

#include <sys/resource.h>
#include <sys/types.h>

/* What the launcher hands to its guardian. */
typedef struct launch_job {
    const launch_options *options;
    const launch_signals *signals; /* as the launcher found them */
    const char *path;              /* the file to execute */
    char *const *environment;      /* as inherited */
    int port;
    launch_secret *secret;
    bool shares_stdin;      /* rank 0 reads what the launcher would */
    volatile pid_t *groups; /* shared with the launcher: the process group of each rank, 0 if it is gone */
} launch_job;

/* What all ranks of a job are started with. */
typedef struct launch_start {
    const launch_job *job;
    int cpus;
    int null_fd;
    int report_fd;     /* a child that cannot execute its program writes a launch_start_failure here */
    struct rlimit fds; /* limit of descriptors to give to ranks */
} launch_start;

typedef struct launch_start_failure {
    int rank, os_errno;
} launch_start_failure;

typedef struct launch_rank {
    int rank; /* in the world */
    pid_t pid;
    bool running;
    bool left_some;   /* ended, but its process group did not */
    int status;       /* as waitpid gives it, once it has ended */
    int note;         /* that holds its secret, to see whether it was read; -1: none, or it was */
    bool has_come;    /* it was: it has called ddl_init */
    bool stayed_out;  /* ended with 0, and had not read it: it has not called ddl_init */
    int order;        /* of the ends of ranks, from 1, as well as it is known */
    int64_t ended_ns; /* when it was seen */
    bool was_exiting; /* when the first failure was seen, which was another rank's */
    bool was_asked;   /* to end, by a signal of the launcher, before it did */
    char prefix[24];
    launch_output out, err;
    launch_tail tail;
} launch_rank;

/* Prepare rank number local of this node. Its output goes to the sinks. */
void launch_rank_init(launch_rank *rank, const launch_options *options, int local, launch_sink *out,
                      launch_sink *err);

/* Open its log files below directory, making directories as needed. DDL_ECONFIG. */
ddl_status launch_rank_open_logs(launch_rank *rank, const char *directory, ddl_error *err);

/* Start its process. DDL_ERESOURCE, DDL_ENOMEM: there is no process. */
ddl_status launch_rank_start(launch_rank *rank, const launch_start *start, ddl_error *err);

/* Look whether it has called ddl_init; that is not known where there is no secret. */
void launch_rank_look(launch_rank *rank);

/* It has ended; the status is known. */
void launch_rank_note_end(launch_rank *rank);

/* Close what is open. */
void launch_rank_fini(launch_rank *rank, launch_scratch *scratch);

/* errno of what its log files lack; 0: they are complete. */
int launch_rank_log_error(const launch_rank *rank);

/* The exit code by which a shell tells this wait status. */
int launch_exit_code(int status);

/* A pipe; both ends close-on-exec, the read end not blocking. */
ddl_status launch_pipe(int ends[2], ddl_error *err);

#endif
