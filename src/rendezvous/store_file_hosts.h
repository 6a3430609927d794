/*
 * store_file_hosts.h - which processes of a run are on this host, as far as their files have told.
 *
 * That never changes, so no file is read for it twice: with a slow file server it is one for each rank.
 * Thread: one at a time.
 */
#ifndef DDL_RENDEZVOUS_STORE_FILE_HOSTS_H
#define DDL_RENDEZVOUS_STORE_FILE_HOSTS_H

#include "base/bytes.h"
#include "rendezvous/store_meeting_record.h"

typedef struct ddl_file_hosts { /* all zero: nothing is known */
    ddl_bytes known;            /* in the order of the tokens */
} ddl_file_hosts;

/* Whether it is known of the process with this token; then *is_ours tells. */
bool ddl_file_hosts_find(const ddl_file_hosts *hosts, const char *token, bool *is_ours);

/* It is now. What there is no memory for is not remembered. */
void ddl_file_hosts_add(ddl_file_hosts *hosts, const char *token, bool is_ours);

void ddl_file_hosts_fini(ddl_file_hosts *hosts);

#endif
