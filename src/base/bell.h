/*
 * bell.h - a lock with a bell: threads wait for it to ring, by the monotonic clock.
 *
 * Thread: any.
 */
#ifndef DDL_BASE_BELL_H
#define DDL_BASE_BELL_H

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct ddl_bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
} ddl_bell;

void ddl_bell_init(ddl_bell *bell);
void ddl_bell_fini(ddl_bell *bell);
void ddl_bell_lock(ddl_bell *bell);
void ddl_bell_unlock(ddl_bell *bell);

/* With the lock held: wake all who wait. */
void ddl_bell_ring(ddl_bell *bell);

/* With the lock held: wait for a ring (or none: check the condition again). False: the deadline has passed.
 */
bool ddl_bell_wait(ddl_bell *bell, ddl_deadline deadline);

#endif
