/*
 * aside.h - what a file server may keep from ever returning, done by a thread of its own, by deadline.
 *
 * For reads at the start of a world; the files of a store have a thread that stays
 * (rendezvous/store_file_clerk.h). Thread: any.
 */
#ifndef DDL_BASE_ASIDE_H
#define DDL_BASE_ASIDE_H

#include "base/clock.h"
#include "base/error.h"

typedef struct ddl_aside {
    ddl_status (*act)(void *state, ddl_error *err);
    void (*release)(void *state); /* of what act may have left in it, and of itself */
    void *state;                  /* touches nothing that the caller may release */
    const char *what;             /* "reading a profile", for texts; the caller's, no part of state */
} ddl_aside;

/*
 * Do it, and return what act did. DDL_ETIMEDOUT with *lost: it has not returned by the deadline, though it
 * had 0.1 s at least, and state is no longer the caller's; the thread releases it should act return after
 * all. A warning tells of one that takes 5 s. Who can have no further thread acts itself.
 */
DDL_MUST_USE ddl_status ddl_aside_run(const ddl_aside *aside, ddl_deadline deadline, bool *lost,
                                      ddl_error *err);

#endif
