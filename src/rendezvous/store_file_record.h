/*
 * store_file_record.h - small files that are whole or not there: how ranks leave messages in a shared
 * directory.
 *
 * A record carries its length and a checksum, so a reader never takes in a part of one, whatever the file
 * system does. Every write is read back. Files are the user's alone (0600). No link is followed, and nothing
 * is done in a folder of the place that is not the user's alone (store_file_record_spot.h). Thread: any.
 */
#ifndef DDL_RENDEZVOUS_STORE_FILE_RECORD_H
#define DDL_RENDEZVOUS_STORE_FILE_RECORD_H

#include "base/bytes.h"
#include "base/error.h"
#include "rendezvous/store_file_record_spot.h"

#include <dirent.h>
#include <stdbool.h>

/* Behind the name of a record as long as it is not in its place. */
#define DDL_RECORD_NEW ".new-"

/* Create path with this content, unless it exists. DDL_ESTORE: the system says no, as the text tells. */
DDL_MUST_USE ddl_status ddl_record_create(const char *path, ddl_view content, bool *created, ddl_error *err);

/* Put this content in place of whatever path holds. */
DDL_MUST_USE ddl_status ddl_record_replace(const char *path, ddl_view content, ddl_error *err);

/*
 * Read path into *content (release with ddl_bytes_fini). *found is false if there is no such file, or not
 * the whole of it yet. DDL_ESTORE: it cannot be read, or is no record.
 */
DDL_MUST_USE ddl_status ddl_record_read(const char *path, size_t limit, ddl_bytes *content, bool *found,
                                        ddl_error *err);

/* An empty file, where none was; 0 or an errno. */
int ddl_record_touch(const char *path);

/* Remove a file; 0 or an errno. */
int ddl_record_remove(const char *path);

/* Make a directory for the user alone, or accept one that is there and is such. */
DDL_MUST_USE ddl_status ddl_record_folder(const char *path, ddl_error *err);

/* Make a directory for the user alone that was not there, or was empty. DDL_ESTORE with EEXIST: something is
 * there. */
DDL_MUST_USE ddl_status ddl_record_new_folder(const char *path, ddl_error *err);

/* Open a directory of the user's alone for reading; NULL with errno. Close with closedir. */
DIR *ddl_record_list(const char *path);

/* Remove a directory of the user's alone with what is in it, three levels deep; best effort. What is no such
 * directory stays, and so does one in it that is not. */
void ddl_record_remove_tree(const char *path);

/*
 * A file whose existence shows that a process lives: open path, made if need be, and lock it until *fd is
 * closed. *held is false if another process has it.
 */
DDL_MUST_USE ddl_status ddl_record_lock(const char *path, int *fd, bool *held, ddl_error *err);

/* What a file made by ddl_record_lock tells of the process that made it. */
typedef enum ddl_record_life {
    DDL_RECORD_LIVES,  /* it holds the file */
    DDL_RECORD_ENDED,  /* nobody holds the file, or it is gone; sure only on the host of that process */
    DDL_RECORD_UNKNOWN /* this file system has no locks */
} ddl_record_life;
ddl_record_life ddl_record_life_of(const char *path);

#endif
