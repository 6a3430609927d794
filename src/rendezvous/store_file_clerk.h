/*
 * store_file_clerk.h - the files of a shared directory, by deadline: a thread does the calls that a file
 * server may never answer, and is given up if one takes too long.
 *
 * Calls go over a desk, which says how long they may take: until its deadline, and beyond it 0.7 s for all
 * calls together. The first that has no more time ends with DDL_ESTORE, which tells what has not returned,
 * and so does every later one over any desk of the clerk, at once. Should the call return after all, the
 * thread closes what was to be closed and ends; it touches nothing but what is the clerk's. A call that hangs
 * for 5 s is warned of, unless the desk has no deadline: then nobody waits who could be kept by the program's
 * log. Thread: any; who uses one desk with others takes turns with them.
 */
#ifndef DDL_RENDEZVOUS_STORE_FILE_CLERK_H
#define DDL_RENDEZVOUS_STORE_FILE_CLERK_H

#include "base/clock.h"
#include "rendezvous/store_file_record.h"

typedef struct ddl_clerk ddl_clerk;

typedef struct ddl_desk {
    ddl_clerk *clerk;
    ddl_deadline until;
} ddl_desk;

/* DDL_ERESOURCE: there is no thread for it. */
DDL_MUST_USE ddl_status ddl_clerk_create(ddl_clerk **clerk, ddl_error *err);

/* Nobody uses it any more. NULL is fine. Does not wait for a call that has been given up. */
void ddl_clerk_destroy(ddl_clerk *clerk);

/* Also for a call under way over it. A deadline that has not passed brings the time beyond it anew. Thread:
 * any. */
void ddl_desk_limit(ddl_desk *desk, ddl_deadline until);

/*
 * Whether calls that may be left out still leave time to those that may not, which say why a run has failed
 * and clear up: until the deadline, and 0.3 s beyond it.
 */
bool ddl_desk_has_time_to_spare(const ddl_desk *desk);

/* ---- records: as in store_file_record.h, with that errors of the file system ---- */

DDL_MUST_USE ddl_status ddl_desk_create(const ddl_desk *desk, const char *path, ddl_view content,
                                        bool *created, ddl_error *err);
DDL_MUST_USE ddl_status ddl_desk_replace(const ddl_desk *desk, const char *path, ddl_view content,
                                         ddl_error *err);
DDL_MUST_USE ddl_status ddl_desk_read(const ddl_desk *desk, const char *path, size_t limit,
                                      ddl_bytes *content, bool *found, ddl_error *err);
DDL_MUST_USE ddl_status ddl_desk_folder(const ddl_desk *desk, const char *path, ddl_error *err);
DDL_MUST_USE ddl_status ddl_desk_new_folder(const ddl_desk *desk, const char *path, ddl_error *err);
DDL_MUST_USE ddl_status ddl_desk_lock(const ddl_desk *desk, const char *path, int *fd, bool *held,
                                      ddl_error *err);
ddl_record_life ddl_desk_life_of(const ddl_desk *desk, const char *path);
void ddl_desk_remove_tree(const ddl_desk *desk, const char *path);

/* ---- other calls: 0 or an errno; ETIMEDOUT: the clerk was given up ---- */

/* Whether there is such a file. A network file system may answer from memory. */
int ddl_desk_find(const ddl_desk *desk, const char *path);

/* An empty file. EEXIST: it is there. */
int ddl_desk_touch(const ddl_desk *desk, const char *path);

int ddl_desk_remove(const ddl_desk *desk, const char *path);
int ddl_desk_remove_folder(const ddl_desk *desk, const char *path);

/* Open a folder, which makes a network file system look anew. */
void ddl_desk_refresh(const ddl_desk *desk, const char *path);

/* The names in a folder, for ddl_desk_next; none if it cannot be read. Release with ddl_bytes_fini. */
ddl_bytes ddl_desk_list(const ddl_desk *desk, const char *path);

/* The same, and DDL_ESTORE if it cannot be read; none if there is no such folder. */
DDL_MUST_USE ddl_status ddl_desk_names(const ddl_desk *desk, const char *path, ddl_bytes *names,
                                       ddl_error *err);

/* The name behind this one; NULL: the first, and behind the last. */
const char *ddl_desk_next(const ddl_bytes *names, const char *name);

/* How long ago path was written if reference was just now, in whole seconds; -1: unknown. */
int64_t ddl_desk_age_s(const ddl_desk *desk, const char *path, const char *reference);

/* The number of the device that a file is on: of two mounts of one server's directory it differs. 0: unknown.
 */
int64_t ddl_desk_device(const ddl_desk *desk, const char *path);

/* Close what ddl_desk_lock gave; once the clerk is given up: as soon as it can. *fd becomes -1. */
void ddl_desk_close(const ddl_desk *desk, int *fd);

#endif
