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

/* Sleep at most timeout_ms (-1: no limit). False: nothing but the time ended it. One thread at a time. */
bool ddl_gate_wait(ddl_gate *gate, int timeout_ms);

/* End the current or else the next wait. Thread: any. */
void ddl_gate_ring(ddl_gate *gate);

/* Switch watching of the loop on or off; it starts on, unless one_shot. Thread: any. */
void ddl_gate_watch(ddl_gate *gate, bool on);

/* In a forked child. */
void ddl_gate_close_in_child(ddl_gate *gate);

#endif
