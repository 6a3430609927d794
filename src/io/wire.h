/*
 * wire.h - a connected socket and, at level tls, the session on it: bytes go through either alike.
 *
 * Never blocks. Thread: one at a time per wire.
 */
#ifndef DDL_IO_WIRE_H
#define DDL_IO_WIRE_H

#include "io/tls_socket.h"

typedef struct ddl_wire {
    int fd;              /* -1: none */
    ddl_tls_socket *tls; /* NULL: plain */
} ddl_wire;

static const ddl_wire ddl_no_wire = { -1, NULL };

/* As ddl_socket_read and ddl_socket_write; errno EBADMSG: see ddl_wire_fail. */
ssize_t ddl_wire_read(ddl_wire *wire, void *data, size_t bytes);
ssize_t ddl_wire_write(ddl_wire *wire, const void *data, size_t bytes);

/* Send what a write has kept. False: not all is sent; errno EAGAIN if it has only to wait. */
bool ddl_wire_flush(ddl_wire *wire);

/* Whether a flush is due, and so whether the socket's being writable is of interest. */
bool ddl_wire_has_unsent(const ddl_wire *wire);

/* Whether a read would find bytes that no poll of the socket shows. */
bool ddl_wire_has_unread(const ddl_wire *wire);

/* The error after errno EBADMSG, without who it was: "TLS: what came was altered on its way". */
const char *ddl_wire_problem(const ddl_wire *wire);

/* Close and set to none; none is fine. */
void ddl_wire_close(ddl_wire *wire);

#endif
