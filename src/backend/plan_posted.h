/*
 * plan_posted.h - plans of calls that go over a board, where their schedules are such that they can.
 *
 * Thread: one at a time.
 */
#ifndef DDL_BACKEND_PLAN_POSTED_H
#define DDL_BACKEND_PLAN_POSTED_H

#include "backend/plan.h"

/* Of v forms, which may come with other counts each time: what was found possible for all ranks, in place and
 * not. All zero is an empty one; it is of one communicator. */
enum { DDL_POSTED_KNOWN = 4 };

typedef struct ddl_posted_memo {
    struct ddl_posted_known {
        const ddl_algorithm *algorithm; /* NULL: nothing yet */
        size_t element_bytes;
        bool average;
    } known[DDL_POSTED_KNOWN];
    unsigned next; /* makes room */
} ddl_posted_memo;

/*
 * As ddl_plan_create, for a shape whose post_bytes are not 0, with a ddl_oneshot for each phase. *plan is
 * NULL if such a call goes by messages: what all ranks find alike, whether their own calls are in place or
 * not.
 */
DDL_MUST_USE ddl_status ddl_plan_create_posted(const ddl_algorithm *algorithm, const ddl_shape *shape,
                                               ddl_cut_memo *cuts, ddl_posted_memo *memo, ddl_plan **plan,
                                               ddl_error *err);

#endif
