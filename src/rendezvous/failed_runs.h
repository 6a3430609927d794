/*
 * failed_runs.h - runs that have failed, as ranks of this process were told.
 *
 * Rank 0 of such a run stays for a moment, for those who have not heard of it yet. A program that tries
 * another setting at once would find it there, and take the failure of its last start for that of the next.
 * So who knows of a failure passes its run over. One of the few mutable globals. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_FAILED_RUNS_H
#define DDL_RENDEZVOUS_FAILED_RUNS_H

#include "protocol/roster.h"

/* Only the last 64 are kept, for 10 s: no run that has failed stays for longer. */
void ddl_failed_runs_add(const uint8_t run_id[DDL_RUN_ID_BYTES], int rank);

bool ddl_failed_runs_have(const uint8_t run_id[DDL_RUN_ID_BYTES], int rank);

#endif
