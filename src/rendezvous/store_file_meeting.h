/*
 * store_file_meeting.h - how the ranks of a run find it in a shared directory.
 *
 * Rank 0 takes the place, unless another lives there, and names its run in it; the others ask that run, and
 * are in when rank 0 has answered.
 */
#ifndef DDL_RENDEZVOUS_STORE_FILE_MEETING_H
#define DDL_RENDEZVOUS_STORE_FILE_MEETING_H

#include "rendezvous/store_file_run.h"

/* The folder is made and removed by all: somebody who leaves may remove it before there is a file in it. */
DDL_MUST_USE ddl_status ddl_file_meeting_make(const ddl_file_run *file, ddl_error *err);

/* Rank 0, whose token this is. DDL_ECONFIG: another has the place. */
DDL_MUST_USE ddl_status ddl_file_meeting_begin(ddl_file_run *file, const uint8_t token[DDL_TOKEN_BYTES],
                                               ddl_error *err);

/* The others. DDL_ETIMEDOUT: rank 0 did not come. */
DDL_MUST_USE ddl_status ddl_file_meeting_find(ddl_file_run *file, const ddl_store_options *options,
                                              ddl_deadline deadline, ddl_error *err);

/* Nobody of ddl removes the directory that the user names; who does takes the place along. */
DDL_MUST_USE ddl_status ddl_file_meeting_check_directory(const ddl_file_run *file, ddl_error *err);

/* A newer rank 0 may have taken the place, where locks do not keep it out. */
DDL_MUST_USE ddl_status ddl_file_meeting_check(const ddl_file_run *file, ddl_error *err);

/* Rank 0, once all know how the run came out, or the deadline has passed. What is at the place by then may be
 * another's, where locks did not keep him out. */
void ddl_file_meeting_leave(ddl_file_run *file, ddl_deadline deadline);

#endif
