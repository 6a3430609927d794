/* oneshot_parts.h - what oneshot.c takes from oneshot_posts.c. */
#ifndef DDL_EXECUTOR_ONESHOT_PARTS_H
#define DDL_EXECUTOR_ONESHOT_PARTS_H

#include "executor/oneshot.h"

/* What a rank says in a round to all others together, in the order in which it is on its sheet. */
typedef struct ddl_oneshot_saying {
    int nparts;
    ddl_slice parts[DDL_BOARD_RANKS]; /* of one buffer, the first of them first, none touching the next */
    size_t bytes;
} ddl_oneshot_saying;

/* False: it cannot be said by one sheet. */
bool ddl_oneshot_find_said(const ddl_schedule *schedule, int round, ddl_oneshot_saying *said);

static inline size_t ddl_slice_end(const ddl_slice *slice)
{
    return slice->offset + slice->bytes;
}

#endif
