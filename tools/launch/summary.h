/* summary.h - what the launcher says at the end of a job that did not simply succeed. */
#ifndef DDL_LAUNCH_SUMMARY_H
#define DDL_LAUNCH_SUMMARY_H

#include "outcome.h"

/* Append the summary to text: nothing for a job that succeeded. */
void launch_summary(const launch_job *job, const launch_outcome *outcome, launch_rank *ranks, int nranks,
                    ddl_bytes *text);

#endif
