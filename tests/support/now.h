/*
 * now.h - the monotonic clock and naps, for programs that know ddl by its public header alone.
 *
 * Tests of what is inside have base/clock.h for that.
 */
#ifndef DDL_TESTS_SUPPORT_NOW_H
#define DDL_TESTS_SUPPORT_NOW_H

#include <stdint.h>
#include <time.h>

static inline int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t now_ms(void)
{
    return now_ns() / 1000000;
}

static inline double now_s(void)
{
    return (double)now_ns() / 1e9;
}

static inline void nap_us(long us)
{
    const struct timespec moment = { us / 1000000, us % 1000000 * 1000 };
    nanosleep(&moment, NULL);
}

#endif
