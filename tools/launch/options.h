/*
 * options.h - what the command line of ddl-launch asks for.
 *
 * One table in options.c makes the parser and the text of --help. Flags end where the program begins:
 * everything from there on belongs to the program.
 */
#ifndef DDL_LAUNCH_OPTIONS_H
#define DDL_LAUNCH_OPTIONS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { LAUNCH_MAX_NPROC = 4096, LAUNCH_MAX_NODES = 65536, LAUNCH_DEFAULT_PORT = 29500 };

typedef enum launch_action {
    LAUNCH_ACTION_RUN,
    LAUNCH_ACTION_DRY_RUN,
    LAUNCH_ACTION_HELP,
    LAUNCH_ACTION_VERSION
} launch_action;

/* How many processes to start; all but a number is counted when the flags are known. */
typedef enum launch_nproc_rule {
    LAUNCH_NPROC_NOT_GIVEN, /* one */
    LAUNCH_NPROC_NUMBER,
    LAUNCH_NPROC_AUTO, /* the GPUs, or the CPUs if there are none */
    LAUNCH_NPROC_CPUS,
    LAUNCH_NPROC_GPUS
} launch_nproc_rule;

typedef enum launch_gpu_policy {
    LAUNCH_GPU_NOT_GIVEN, /* as local_rank, and nothing is set */
    LAUNCH_GPU_LOCAL_RANK,
    LAUNCH_GPU_EXCLUSIVE,
    LAUNCH_GPU_NONE
} launch_gpu_policy;

typedef struct launch_options {
    launch_action action;
    launch_nproc_rule nproc_rule;
    int nproc_per_node, nnodes, node_rank; /* node_rank is -1 until it is known */
    bool nnodes_given;                     /* one is a decision as well */
    const char *master_addr;
    int master_port; /* 0: any free one, one node only */
    const char *role;
    const char *run_id; /* NULL: none */
    launch_gpu_policy gpu_policy;
    bool check; /* command is what --check runs */
    bool standalone, cpu_only, stop_on_failure, no_prefix;
    int64_t grace_ms, timeout_ms; /* timeout_ms 0: no limit */
    const char *log_dir;          /* NULL: none */
    const char *security;         /* NULL: as DDL_SECURITY says */
    const char *secret_file;      /* NULL: found by itself */
    char **command;               /* program and arguments, ends with NULL */
    char *check_command[2];       /* what command is for --check */
} launch_options;

/* Texts in *options point into argv. DDL_EINVAL: the text says which flag, what it got and what it accepts.
 */
ddl_status launch_options_parse(int argc, char **argv, launch_options *options, ddl_error *err);

/* "exclusive"; NULL: not given. */
const char *launch_gpu_policy_name(launch_gpu_policy policy);

/* The text of --help. */
void launch_options_help(FILE *to);

#endif
