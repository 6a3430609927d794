/*
 * outlet.h - writing what other cores of the host read next, by the stores that cost both ends less.
 *
 * An ordinary store takes a line first from who read it last. Between cores that share a cache that is quick;
 * between others, of another die or socket, it may take ten times what the copy does. Stores that bypass the
 * caches take nothing from anybody, but then the line comes from memory to who reads it. Which is better
 * follows from how long an ordinary copy takes. That may change while a job runs, as a host moves its virtual
 * CPUs, so some of the copies are timed.
 */
#ifndef DDL_BASE_OUTLET_H
#define DDL_BASE_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { DDL_OUTLET_LEAST_BYTES = 8 * 1024 /* what is shorter always goes by ordinary stores */ };

/* All zero to begin with, but for memory that is new: the first writes to it wait for pages, not for caches.
 * Thread: one at a time. */
typedef struct ddl_outlet {
    bool streams;    /* past the caches */
    int ordinary_ps; /* that a byte takes by ordinary stores: mean of the timed copies, the last ones most */
    size_t until_timed; /* bytes, until the next copy is timed */
    uint32_t chance;    /* by which that is so many */
} ddl_outlet;

/* Ordinary stores that take longer than dear_ps for a byte are given up, and taken up again when they take no
 * longer than cheap_ps: a board's readers may be of both kinds. What takes longer than most_ps was
 * interrupted, counts as that, and is not enough by itself. */
typedef struct ddl_outlet_limits {
    int dear_ps, cheap_ps, most_ps;
} ddl_outlet_limits;

/* Of this processor. */
ddl_outlet_limits ddl_outlet_find_limits(void);

/* That an ordinary copy took so many ps for a byte: whether the next ones go past the caches. */
void ddl_outlet_time(ddl_outlet *outlet, int64_t ps);

void ddl_outlet_copy_many(ddl_outlet *outlet, void *target, const void *source, size_t bytes);

/* Copy to where others read it; the places do not overlap. As after any copy, whoever sees a later
 * release of this thread sees it. */
static inline void ddl_outlet_copy(ddl_outlet *outlet, void *target, const void *source, size_t bytes)
{
    if (bytes < DDL_OUTLET_LEAST_BYTES)
        memcpy(target, source, bytes);
    else
        ddl_outlet_copy_many(outlet, target, source, bytes);
}

#endif
