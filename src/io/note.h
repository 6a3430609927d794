/*
 * note.h - a few bytes that a process leaves in a descriptor for those that it starts: not in their
 * arguments, nor in their environment.
 *
 * note_linux.c and note_posix.c each implement ddl_note_create and ddl_note_of_ancestor. Thread: any.
 */
#ifndef DDL_IO_NOTE_H
#define DDL_IO_NOTE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { DDL_NOTE_BYTES = 4352 };

/* What the note that holds a job's secret begins with: a descriptor of the same number may hold anything
 * else. */
#define DDL_NOTE_MAGIC "ddl-key\n"

/* A close-on-exec descriptor from which these bytes, at most DDL_NOTE_BYTES, can be read; nobody can change
 * them any more. */
DDL_MUST_USE ddl_status ddl_note_create(const void *data, size_t bytes, int *fd, ddl_error *err);

/* The same in a socket, where the system has, or permits, nothing better. */
DDL_MUST_USE ddl_status ddl_note_in_socket(const void *data, size_t bytes, int *fd, ddl_error *err);

/* Read the note in fd into data, which has room for DDL_NOTE_BYTES; false: there is none. Others can
 * read it again. */
bool ddl_note_read(int fd, void *data, size_t *bytes);

/* Say in the note that it was read, for whoever left it; and whether somebody has: 1 yes, 0 no, -1 it cannot
 * be known, as of one in a socket. */
void ddl_note_mark(int fd);
int ddl_note_was_read(int fd);

/*
 * A note that the process which started us, or that one's parent and so on, was left under this number: a
 * wrapper may have closed ours, as Python's subprocess does. -1 if there is none, or no way to know.
 */
int ddl_note_of_ancestor(int number);

#endif
