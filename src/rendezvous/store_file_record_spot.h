/*
 * store_file_record_spot.h - where a file of a meeting place lies: its folder, opened on a way that is ours
 * alone.
 *
 * A path leads through the directory that the user names to the place, whose name begins with
 * DDL_RECORD_PLACE, and on into it. Up to the place links are followed: the user may have put them there. But
 * others may write to that directory, and so put something else in the place's stead at any time. So each
 * folder from the place on is opened by itself and looked at once it is open: it must be ours. Nobody else
 * can swap what lies in such a folder; calls relative to its descriptor go nowhere else. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_STORE_FILE_RECORD_SPOT_H
#define DDL_RENDEZVOUS_STORE_FILE_RECORD_SPOT_H

#include <stdbool.h>
#include <sys/stat.h>

#define DDL_RECORD_PLACE "ddl-"

enum { DDL_RECORD_PATH = 1024 };

typedef struct ddl_record_spot {
    int folder; /* for calls like openat */
    const char *name;
    char path[DDL_RECORD_PATH]; /* the whole, for errors; name is the end of it */
} ddl_record_spot;

/* Find the folder that path lies in, whether or not that is there. False with errno; EPERM: a folder on the
 * way is not ours. Slashes at the end do not count. */
bool ddl_record_spot_open(ddl_record_spot *spot, const char *path);

/* Leaves errno as it is. */
void ddl_record_spot_close(const ddl_record_spot *spot);

/* A directory that belongs to this user and that nobody else can write to. */
bool ddl_record_is_ours(const struct stat *info);

#endif
