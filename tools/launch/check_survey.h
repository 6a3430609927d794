/*
 * check_survey.h - who came to the meeting place, and who can connect to whom, before any rank relies on it.
 *
 * It meets in the job's own store and listens where the job would, so that what is looked at is what will be
 * used; unlike a start-up it goes on when a pair cannot connect, and tells of every pair.
 */
#ifndef DDL_LAUNCH_CHECK_SURVEY_H
#define DDL_LAUNCH_CHECK_SURVEY_H

#include "api/config.h"
#include "protocol/roster.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct check_survey {
    ddl_roster *roster;   /* all ranks, with the addresses that they told */
    uint32_t *results;    /* rank 0: of connecting, [from * nranks + to]: 0 or an errno */
    double store_ms;      /* for one request to the store; on rank 0, where it takes longest */
    const char *security; /* "auth" */
    char proves[128];     /* how a rank proves that it belongs to the job, "" if not at all */
    bool goes_on;         /* every connection that a job needs can be made */
} check_survey;

/*
 * Every rank of the job calls it. On success *survey is to be given to check_survey_fini.
 * Errors as of ddl_init: who did not come, what is wrong with the settings.
 */
DDL_MUST_USE ddl_status check_survey_run(const ddl_config *config, check_survey *survey, ddl_error *err);

void check_survey_fini(check_survey *survey);

/* Whether a job needs this connection: it is the higher rank that calls. */
static inline bool check_survey_needs(int from, int to)
{
    return from > to;
}

#endif
