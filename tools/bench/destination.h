/*
 * destination.h - the file that results go to: it has all of them, or what it had before.
 *
 * It is opened before anything is measured, so that a place that cannot be written is told then, and touched
 * when the results are there, so that an interrupted run changes nothing.
 */
#ifndef DDL_BENCH_DESTINATION_H
#define DDL_BENCH_DESTINATION_H

#include <stdbool.h>
#include <stddef.h>

struct destination;

/* Links are followed. NULL, after saying why, if it cannot be written. The name is kept, not copied. */
struct destination *destination_open(const char *name);

/* Call it once. A regular file is replaced and keeps its mode; what is none, a pipe or a device, is written
 * to. False, after saying why, if that fails. */
bool destination_write(struct destination *destination, const char *text, size_t bytes);

/* NULL is fine. */
void destination_close(struct destination *destination);

#endif
