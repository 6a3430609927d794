/*
 * idle_client.h - an engine's client that has nothing to do. Whoever needs an engine puts functions of its
 * own in place of those that are to do something.
 */
#ifndef DDL_TESTS_IO_IDLE_CLIENT_H
#define DDL_TESTS_IO_IDLE_CLIENT_H

#include "io/engine.h"

static inline bool idle_never(void *arg)
{
    (void)arg;
    return false;
}

static inline void idle_job(void *arg, ddl_link *job)
{
    (void)arg, (void)job;
}

static inline void idle_tick(void *arg, int64_t now_ns)
{
    (void)arg, (void)now_ns;
}

static inline ddl_engine_client idle_client(void *arg)
{
    return (ddl_engine_client){ .sweep = idle_never,
                                .needs_loop = idle_never,
                                .job = idle_job,
                                .tick = idle_tick,
                                .busy = idle_never,
                                .doze = idle_never,
                                .arg = arg };
}

#endif
