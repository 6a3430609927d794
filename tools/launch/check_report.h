/*
 * check_report.h - what a person reads of a check: tables, what is wrong, a verdict.
 */
#ifndef DDL_LAUNCH_CHECK_REPORT_H
#define DDL_LAUNCH_CHECK_REPORT_H

#include "check_measure.h"
#include "check_survey.h"

/* Who is there and where. */
void check_report_ranks(const ddl_config *config, const check_survey *survey);

/* Which connections cannot be made, each with what to do; returns how many of them a job needs. */
int check_report_reach(const check_survey *survey);

/* Versions, clocks, tables of links; returns the number of warnings. */
int check_report_measured(const check_survey *survey, const check_measured *measured);

#endif
