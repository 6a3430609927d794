/*
 * guarded.h - memory for secrets: not in cores, not swapped where that can be had, cleared when it is freed.
 *
 * Each piece has pages of its own. Thread: any.
 */
#ifndef DDL_IO_GUARDED_H
#define DDL_IO_GUARDED_H

#include <stddef.h>

/* Zeroed memory, or NULL. */
void *ddl_guarded_alloc(size_t bytes);

/* bytes as it was allocated; NULL is fine. */
void ddl_guarded_free(void *memory, size_t bytes);

/* A forked child finds zeros there, where the system can do that. */
void ddl_guarded_forget_in_child(void *memory, size_t bytes);

#endif
