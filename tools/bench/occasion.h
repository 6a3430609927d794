/* occasion.h - where and when something was measured, for who reads it later. */
#ifndef DDL_BENCH_OCCASION_H
#define DDL_BENCH_OCCASION_H

struct occasion {
    char host[256];
    char date[32]; /* "2026-01-31T12:00:00Z" */
};

/* Here and now. What the system does not tell is empty. */
struct occasion occasion_now(void);

#endif
