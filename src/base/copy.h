/* copy.h - copying what is long. */
#ifndef DDL_BASE_COPY_H
#define DDL_BASE_COPY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Copy so many bytes between places that do not overlap. Past the caches: whole lines of the target are
 * written without being read first, and stay in no cache; for memory that nobody looks at soon. What was
 * written so is seen by whoever sees a later release of this thread, as after any copy.
 */
void ddl_copy(void *target, const void *source, size_t bytes, bool past_caches);

/* So much of what a host's ranks touch in one call is best copied through its caches; more goes past them.
 * posted: what they read of each other comes from the cache, however large the call is (executor/board.h),
 * which makes a difference on some processors. */
size_t ddl_copy_cached_bytes(bool posted);

#endif
