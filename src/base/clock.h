/*
 * clock.h - monotonic time and deadlines. Wall-clock time is for log stamps alone.
 *
 * A deadline is an absolute monotonic time in nanoseconds. Pure code (schedules, protocol, executor) gets
 * times as arguments and never calls ddl_now_ns.
 */
#ifndef DDL_BASE_CLOCK_H
#define DDL_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef int64_t ddl_deadline; /* ns on the clock of ddl_now_ns */

#define DDL_NS_PER_MS      INT64_C(1000000)
#define DDL_NS_PER_S       INT64_C(1000000000)
#define DDL_DEADLINE_NEVER INT64_MAX

int64_t ddl_now_ns(void);

/* timeout_ms from now; saturates. */
ddl_deadline ddl_deadline_in_ms(int64_t timeout_ms);

bool ddl_deadline_passed(ddl_deadline deadline);

static inline ddl_deadline ddl_deadline_earlier(ddl_deadline a, ddl_deadline b)
{
    return a < b ? a : b;
}

/* Milliseconds left, rounded up, 0 if passed; fits an int, as poll wants it. */
int ddl_deadline_left_ms(ddl_deadline deadline);

/* Sleep so long, or until a signal comes: between looks at what cannot wake this thread up. */
void ddl_pause_us(int us);

#endif
