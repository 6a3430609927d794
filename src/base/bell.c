/* bell.c - a lock with a bell, over a condition variable. */
#include "base/bell.h"

#include "base/assert.h"

#include <time.h>

#if defined(__APPLE__)
/* Condition variables know the wall clock only: sleep in slices that a jump of it cannot stretch. */
#define BELL_CLOCK CLOCK_REALTIME
#define SLICE_NS   (100 * DDL_NS_PER_MS)
#else
#define BELL_CLOCK CLOCK_MONOTONIC
#define SLICE_NS   (3600 * DDL_NS_PER_S)
#endif

void ddl_bell_init(ddl_bell *bell)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#if !defined(__APPLE__)
    int error = pthread_condattr_setclock(&attributes, BELL_CLOCK);
    DDL_ASSERT(error == 0);
#endif
    pthread_cond_init(&bell->rung, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&bell->lock, NULL);
}

void ddl_bell_fini(ddl_bell *bell)
{
    pthread_cond_destroy(&bell->rung);
    pthread_mutex_destroy(&bell->lock);
}

void ddl_bell_lock(ddl_bell *bell)
{
    pthread_mutex_lock(&bell->lock);
}

void ddl_bell_unlock(ddl_bell *bell)
{
    pthread_mutex_unlock(&bell->lock);
}

void ddl_bell_ring(ddl_bell *bell)
{
    pthread_cond_broadcast(&bell->rung);
}

bool ddl_bell_wait(ddl_bell *bell, ddl_deadline deadline)
{
    int64_t left_ns = deadline - ddl_now_ns();
    if (left_ns <= 0)
        return false;
    if (left_ns > SLICE_NS)
        left_ns = SLICE_NS;
    struct timespec until;
    clock_gettime(BELL_CLOCK, &until);
    int64_t until_ns = until.tv_nsec + left_ns;
    until.tv_sec += (time_t)(until_ns / DDL_NS_PER_S);
    until.tv_nsec = (long)(until_ns % DDL_NS_PER_S);
    pthread_cond_timedwait(&bell->rung, &bell->lock, &until);
    return true;
}
