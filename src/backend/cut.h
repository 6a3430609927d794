/*
 * cut.h - into how many pieces a call is cut, which all its ranks have to find alike.
 *
 * Thread: one at a time for a memo.
 */
#ifndef DDL_BACKEND_CUT_H
#define DDL_BACKEND_CUT_H

#include "algorithms/catalogue.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ddl_cut {
    size_t piece_count; /* elements of every piece, of each block, unless it ends */
    uint32_t npieces;   /* at least 1 */
    bool is_posted;     /* pieces can go over a board, as far as the schedules of one rank can tell */
} ddl_cut;

/* To find it takes the schedules of several ranks. The v forms, which may come with other counts each time,
 * are not measured anew for that. All zero is an empty one; it is of one communicator. */
enum { DDL_CUTS_KNOWN = 8 };

typedef struct ddl_cut_memo {
    struct ddl_cut_known {
        const ddl_algorithm *algorithm; /* NULL: nothing yet */
        size_t element_bytes, message_bytes, post_bytes;
        bool average;
        size_t whole, piece; /* elements of each block that were looked at first, and that were few enough */
        bool is_posted;
    } known[DDL_CUTS_KNOWN];
    unsigned next; /* makes room */
} ddl_cut_memo;

/* memo may be NULL. DDL_ENOMEM; else as algorithm->build. */
DDL_MUST_USE ddl_status ddl_cut_find(const ddl_algorithm *algorithm, const ddl_shape *shape,
                                     ddl_cut_memo *memo, ddl_cut *cut, ddl_error *err);

/* Of the largest message of a schedule: the transport takes no more than a limit. The ranks that stand in for
 * all show it before any schedule is kept. */
DDL_MUST_USE ddl_status ddl_cut_check(const ddl_algorithm *algorithm, size_t largest_bytes, ddl_error *err);

#endif
