/*
 * gate.h - where a thread sleeps until a loop has events, a doorbell rings, or time is up.
 *
 * A gate watches the descriptor of a libuv loop without running the loop, so that the baton can be given
 * back before blocking. Watching can be switched off while somebody drives the loop: then only the
 * doorbell ends the sleep. Implemented with epoll on Linux (gate_linux.c) and poll elsewhere (gate_posix.c).
 */
#ifndef DDL_IO_GATE_H
#define DDL_IO_GATE_H

#include "base/error.h"

#include <stdbool.h>

typedef struct ddl_gate ddl_gate;

/*
 * one_shot: a wake-up by the loop switches watching off again until the next ddl_gate_watch, so that a
 * sleeper who cannot get the baton is not woken over and over.
 */
DDL_MUST_USE ddl_status ddl_gate_create(int loop_fd, bool one_shot, ddl_gate **gate, ddl_error *err);
void ddl_gate_destroy(ddl_gate *gate);

typedef enum ddl_gate_end { DDL_GATE_TIME, DDL_GATE_ALARM, DDL_GATE_EVENT } ddl_gate_end;

/* Sleep at most timeout_ms (-1: no limit). What ended it: an event or the doorbell rather than the alarm,
 * which then ends the next sleep. One thread at a time. */
ddl_gate_end ddl_gate_wait(ddl_gate *gate, int timeout_ms);

/* End the current or else the next wait. Thread: any. */
void ddl_gate_ring(ddl_gate *gate);

/* Of a one-shot gate: end the wait or rest after so long (above 0, below a second), once; what was set before
 * is no more. False: it has no alarm. Thread: any. */
bool ddl_gate_set_alarm(ddl_gate *gate, long ns);

/* Sleep for so long, or until the alarm rings. True: it rang. */
bool ddl_gate_rest(ddl_gate *gate, long ns);

/* Switch watching of the loop on or off; it starts on, unless one_shot. Thread: any. */
void ddl_gate_watch(ddl_gate *gate, bool on);

/* In a forked child. */
void ddl_gate_close_in_child(ddl_gate *gate);

#endif
