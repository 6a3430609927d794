/*
 * store_file_answers.h - rank 0's answers to those who ask for its run in a shared directory.
 *
 * While rank 0 waits it answers all. Who wants its place is answered as long as it has that, by a thread, the
 * keeper, of its own.
 */
#ifndef DDL_RENDEZVOUS_STORE_FILE_ANSWERS_H
#define DDL_RENDEZVOUS_STORE_FILE_ANSWERS_H

#include "rendezvous/store_file_run.h"

/* A disk may have room when we look again; but not for ever, as whoever asks cannot tell what keeps us. */
DDL_MUST_USE ddl_status ddl_file_answers_give(ddl_file_run *file, ddl_error *err);

/* Without a thread the lock alone keeps the place, and whoever looks at the store during the start-up. */
void ddl_file_answers_start(ddl_file_run *file);

/* Nothing if it was not started. */
void ddl_file_answers_stop(ddl_file_run *file);

#endif
