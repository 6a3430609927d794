/*
 * secret.h - the job's secret as the launcher comes by it: the same on all nodes, and the users' no more than
 * it has to be.
 *
 * On one node it is made for the job. On several it is that of a file: named, or .ddl/secret in the home
 * directory, which node 0 makes on first use; or what a person types at a terminal. Ranks are handed it by a
 * descriptor.
 */
#ifndef DDL_LAUNCH_SECRET_H
#define DDL_LAUNCH_SECRET_H

#include "options.h"

#include <stddef.h>

typedef struct launch_secret {
    void *note; /* what each rank is handed, NULL if nothing: level off */
    size_t bytes;
} launch_secret;

/* DDL_ECONFIG: there is none, in a sentence that names the ways to one. DDL_EABORTED: whoever was
 * asked pressed Ctrl-C. Blocks while somebody is asked. */
ddl_status launch_secret_find(const launch_options *options, launch_secret *secret, ddl_error *err);

/* Clears it. */
void launch_secret_fini(launch_secret *secret);

enum { LAUNCH_SECRET_LOWEST = 100 };

/*
 * A descriptor, close-on-exec, from which one rank can read it: LAUNCH_SECRET_LOWEST or above, as scripts use
 * low ones as they like. -1 if there is no secret.
 */
ddl_status launch_secret_hand_over(const launch_secret *secret, int *fd, ddl_error *err);

#endif
