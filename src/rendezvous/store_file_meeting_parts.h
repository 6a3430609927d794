/*
 * store_file_meeting_parts.h - the meeting place as the files about it share it. What their users need is in
 * store_file_meeting.h.
 *
 * Thread: that of who uses the store.
 */
#ifndef DDL_RENDEZVOUS_STORE_FILE_MEETING_PARTS_H
#define DDL_RENDEZVOUS_STORE_FILE_MEETING_PARTS_H

#include "rendezvous/store_file_meeting.h"

enum { DDL_FILE_PLACE_TRIES = 10 }; /* others make, replace and remove what is at the place */

/* The record at the place; *found is false if there is none. Errors as of ddl_meet_decode. */
DDL_MUST_USE ddl_status ddl_file_meeting_read(const ddl_file_run *file, ddl_meet *meet, bool *found,
                                              ddl_error *err);

bool ddl_file_meeting_names_run(const ddl_meet *meet, const uint8_t *run_id);

/* When that was written, if reference was just now: both by the clock of whatever serves these files. */
int64_t ddl_file_meeting_written_ns(const ddl_file_run *file, const char *reference);

/* Ask the run that was named last, by the file at path; *asked is false if its folder is gone, so that it is
 * over. */
DDL_MUST_USE ddl_status ddl_file_meeting_ask(const ddl_file_run *file, char path[DDL_RECORD_PATH],
                                             bool *asked, ddl_error *err);

/* The last name in the path of our run; empty: there is none, or it is another's. */
const char *ddl_file_meeting_run_name(const ddl_file_run *file);

#endif
