/* clock.c - the monotonic clock. */
#include "base/clock.h"

#include <limits.h>
#include <time.h>

int64_t ddl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * DDL_NS_PER_S + now.tv_nsec;
}

ddl_deadline ddl_deadline_in_ms(int64_t timeout_ms)
{
    int64_t now = ddl_now_ns();
    if (timeout_ms > (DDL_DEADLINE_NEVER - now) / DDL_NS_PER_MS)
        return DDL_DEADLINE_NEVER;
    return now + timeout_ms * DDL_NS_PER_MS;
}

bool ddl_deadline_passed(ddl_deadline deadline)
{
    return ddl_now_ns() >= deadline;
}

int ddl_deadline_left_ms(ddl_deadline deadline)
{
    int64_t now = ddl_now_ns();
    if (now >= deadline)
        return 0;
    int64_t left_ms = (deadline - now - 1) / DDL_NS_PER_MS + 1;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

void ddl_pause_us(int us)
{
    const struct timespec pause = { us / 1000000, us % 1000000 * 1000L };
    nanosleep(&pause, NULL);
}
