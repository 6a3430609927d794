/*
 * footprint.h - which bytes of a call's buffers a schedule needs to be there, and which it leaves written.
 *
 * Where the buffers are elsewhere than where the schedule runs, these are what has to be brought and what has
 * to be taken back; nothing else may be touched. Pure.
 */
#ifndef DDL_BACKEND_FOOTPRINT_H
#define DDL_BACKEND_FOOTPRINT_H

#include "base/error.h"
#include "schedule/schedule.h"

typedef struct ddl_interval {
    size_t from, to; /* bytes; to is beyond the last one */
} ddl_interval;

typedef struct ddl_intervals { /* in order, and apart; all zero is none */
    ddl_interval *each;
    size_t count, capacity;
} ddl_intervals;

typedef struct ddl_footprint {
    ddl_intervals needed;  /* read before they are written */
    ddl_intervals written; /* in the end */
} ddl_footprint;

/*
 * Of IN and OUT that begin at bytes in_at and out_at of one memory; they may overlap, as they do in place.
 * DDL_ENOMEM. On failure nothing needs to be released.
 */
DDL_MUST_USE ddl_status ddl_footprint_find(const ddl_schedule *schedule, size_t in_at, size_t out_at,
                                           ddl_footprint *footprint, ddl_error *err);
void ddl_footprint_fini(ddl_footprint *footprint);

#endif
