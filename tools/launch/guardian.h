/*
 * guardian.h - the process above the ranks of a node.
 *
 * It starts the ranks, passes their output on, decides when a job has failed, and sees to it that nothing
 * of the job remains. The launcher, its parent, only forwards signals and hands on its exit code; a
 * socket, the lifeline, joins the two. When the launcher dies, whatever killed it, the lifeline ends and
 * the guardian ends the job.
 */
#ifndef DDL_LAUNCH_GUARDIAN_H
#define DDL_LAUNCH_GUARDIAN_H

#include "rank.h"

/*
 * Run the job to its end. lifeline: numbers of signals come from it, one byte each. Returns the exit code
 * for the launcher. To be called in a process of its own, which does nothing else.
 */
int launch_guardian_run(const launch_job *job, int lifeline);

#endif
