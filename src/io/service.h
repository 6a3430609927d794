/*
 * service.h - a libuv loop with a thread of its own, for what must answer while nobody drives the data
 * engine: listeners, handshakes with strangers, the store's server.
 *
 * Everything on the loop happens on the service thread. Other threads hand it work with ddl_service_call.
 */
#ifndef DDL_IO_SERVICE_H
#define DDL_IO_SERVICE_H

#include "base/clock.h"
#include "base/error.h"

#include <uv.h>

enum { DDL_SERVICE_TURNED_AWAY = 400 };

typedef struct ddl_service ddl_service;

/* Starts the thread, with every signal blocked in it. */
DDL_MUST_USE ddl_status ddl_service_create(ddl_service **service, ddl_error *err);

/* Thread: service. */
uv_loop_t *ddl_service_loop(ddl_service *service);

/*
 * Run function(arg) on the service thread and return when it has returned. what: this, for a message, as
 * "opening a door"; a literal. The thread has until the deadline, but most of a second at least.
 *
 * DDL_ETIMEDOUT: it did not do it. If it has not begun by now it never will. The thread is stuck, and from
 * now on lost: later calls fail at once, and should it wake up it closes the descriptors that are held and
 * ends. Until then it may touch what it knew, so nothing of that is freed, ever. Thread: any but service.
 */
DDL_MUST_USE ddl_status ddl_service_call(ddl_service *service, const char *what, void (*function)(void *arg),
                                         void *arg, ddl_deadline deadline, ddl_error *err);

/* A call that does nothing: DDL_OK if the thread is well. */
DDL_MUST_USE ddl_status ddl_service_check(ddl_service *service, ddl_deadline deadline, ddl_error *err);

/* Whether a call has ended by DDL_ETIMEDOUT, and *why, unless that is NULL. Thread: any. */
bool ddl_service_is_lost(ddl_service *service, ddl_error *why);

/* After a call with this arg has ended so: whether it had begun. Thread: any but service. */
bool ddl_service_may_use(ddl_service *service, const void *arg);

/*
 * What keeps the doors on this loop from letting anybody in, as errno tells: descriptors or memory that this
 * process lacks; 0: nothing. So who has waited in vain can say why. Thread: any.
 */
void ddl_service_set_lack(ddl_service *service, int os_errno);
int ddl_service_lack(const ddl_service *service);

/*
 * How many of those who have not proved anything may stand at each door on this loop, as there are
 * descriptors for no more; 0: as many as the door has places for. For doors that are opened from now on.
 * Thread: any.
 */
void ddl_service_set_strangers(ddl_service *service, int most);
int ddl_service_strangers(const ddl_service *service);

/* Who of those that speak as ranks do was refused by a door on this loop last, and why; "": nobody. To the
 * same end. Thread: any. */
void ddl_service_set_turned_away(ddl_service *service, const char *text);
void ddl_service_turned_away(ddl_service *service, char text[DDL_SERVICE_TURNED_AWAY]);

/*
 * Stop the thread and release the loop. All handles must have been closed before (their close callbacks
 * are run here). NULL is fine. False: the thread is lost, and the service stays. Thread: any but service.
 */
bool ddl_service_destroy(ddl_service *service);

/*
 * Descriptors that a forked child has to close: hold tells of one, release forgets it. False: no memory.
 * Thread: service.
 */
DDL_MUST_USE bool ddl_service_hold(ddl_service *service, int fd);
void ddl_service_release(ddl_service *service, int fd);

/*
 * In a forked child: close the loop's descriptor and all that are held, without running anything.
 * Async-signal-safe.
 */
void ddl_service_close_in_child(ddl_service *service);

#endif
