/*
 * environment.h - the environment of one rank: what the launcher sets, then what it inherited.
 *
 * Variables by which an outer launcher or scheduler told a process its own rank are not passed on: they
 * would contradict ours. Nor are those with which a secret is given; ours is handed over by a descriptor.
 */
#ifndef DDL_LAUNCH_ENVIRONMENT_H
#define DDL_LAUNCH_ENVIRONMENT_H

#include "options.h"

typedef struct launch_environment {
    char **entries; /* "NAME=value", ends with NULL, as execve wants it */
    int nset;       /* the first so many were set here */
} launch_environment;

/* port: where rank 0 is reached. cpus: those that this node's ranks share. secret_fd: where this rank finds
 * the job's secret, or -1. DDL_ENOMEM. */
ddl_status launch_environment_create(const launch_options *options, int local_rank, int port, int cpus,
                                     int secret_fd, char *const *inherited, launch_environment *environment,
                                     ddl_error *err);
/* Whether such an inherited entry is not passed on. */
bool launch_environment_drops(const char *entry);
void launch_environment_destroy(launch_environment *environment);

#endif
