/*
 * watch.h - readiness of a descriptor, and time, as events on the service loop.
 *
 * These keep libuv inside io: rendezvous code sees a descriptor, a callback, and a close that takes
 * effect at once. A watched descriptor is closed in a forked child (ddl_service_close_in_child).
 * Thread: service, for everything here.
 */
#ifndef DDL_IO_WATCH_H
#define DDL_IO_WATCH_H

#include "base/error.h"
#include "io/service.h"

#include <stdint.h>

enum { DDL_READABLE = 1, DDL_WRITABLE = 2 };

typedef struct ddl_watch ddl_watch;
typedef struct ddl_alarm ddl_alarm;
typedef struct ddl_poke ddl_poke;

/* events: DDL_READABLE, DDL_WRITABLE or both. An error of the descriptor shows as both. */
typedef void ddl_watch_event(void *arg, int events);

/* Watch fd for nothing yet. fd stays the caller's, and is not to be watched twice. */
DDL_MUST_USE ddl_status ddl_watch_open(ddl_service *service, int fd, ddl_watch_event *event, void *arg,
                                       ddl_watch **watch, ddl_error *err);

/* Call event while any of events is there; 0 rests. */
void ddl_watch_set(ddl_watch *watch, int events);

/* No event from now on; fd may be closed or handed on at once. NULL is fine. */
void ddl_watch_close(ddl_watch *watch);

/* A timer at rest. */
DDL_MUST_USE ddl_status ddl_alarm_open(ddl_service *service, void (*ring)(void *arg), void *arg,
                                       ddl_alarm **alarm, ddl_error *err);

/* Ring once, after_ms from now, instead of any earlier setting. */
void ddl_alarm_set(ddl_alarm *alarm, int64_t after_ms);
void ddl_alarm_rest(ddl_alarm *alarm);
void ddl_alarm_close(ddl_alarm *alarm);

/* A call from any thread that nobody waits for: each ring brings a call of heard after it; several may
 * bring one. */
DDL_MUST_USE ddl_status ddl_poke_open(ddl_service *service, void (*heard)(void *arg), void *arg,
                                      ddl_poke **poke, ddl_error *err);

/* Thread: any, while it is open. */
void ddl_poke_ring(ddl_poke *poke);

/* Not heard any more. NULL is fine. */
void ddl_poke_close(ddl_poke *poke);

#endif
