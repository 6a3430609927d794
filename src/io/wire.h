/*
 * wire.h - a connected socket and, at level tls, the session on it: bytes go through either alike.
 *
 * Never blocks. Thread: one at a time per wire.
 */
#ifndef DDL_IO_WIRE_H
#define DDL_IO_WIRE_H

#include "io/tls_socket.h"

#include <sys/uio.h>

enum { DDL_WIRE_ROOM_BYTES = DDL_TLS_RECORD_BYTES };

typedef struct ddl_wire {
    int fd;              /* -1: none */
    ddl_tls_socket *tls; /* NULL: plain */
} ddl_wire;

static const ddl_wire ddl_no_wire = { -1, NULL };

/* As ddl_socket_read and ddl_socket_write; errno EBADMSG: see ddl_wire_problem. */
ssize_t ddl_wire_read(ddl_wire *wire, void *data, size_t bytes);
ssize_t ddl_wire_write(ddl_wire *wire, const void *data, size_t bytes);

/*
 * The same of several parts, one behind the other. Through TLS what fills records is encrypted from where it
 * lies; what does not, a header for one, goes into a record with what follows it, by way of room. iov is
 * changed. What was written will all go; with nothing to write it flushes.
 */
ssize_t ddl_wire_write_parts(ddl_wire *wire, struct iovec *iov, int count, uint8_t room[DDL_WIRE_ROOM_BYTES]);
ssize_t ddl_wire_read_parts(ddl_wire *wire, struct iovec *iov, int count);

/* Send what a write has kept. False: not all is sent; errno EAGAIN if it has only to wait. */
bool ddl_wire_flush(ddl_wire *wire);

/* Whether a flush is due, and so whether the socket's being writable is of interest. */
bool ddl_wire_has_unsent(const ddl_wire *wire);

/* Whether a read would find bytes that no poll of the socket shows. */
bool ddl_wire_has_unread(const ddl_wire *wire);

/*
 * The last step before closing a wire. Closing resets a connection of which bytes were not read, or to which
 * some come later, and a reset drops what had not left this host. So what comes is read and dropped, and once
 * all is written (is_all) nothing more is sent. True: closing loses nothing; the other end has closed too, or
 * its host has acknowledged everything, or the connection is broken. False: call it again, once the socket is
 * ready for *events (poll), or soon.
 */
bool ddl_wire_part(ddl_wire *wire, bool is_all, void *room, size_t bytes, short *events);

/* The error after errno EBADMSG, without who it was: "TLS: what came was altered on its way". */
const char *ddl_wire_problem(const ddl_wire *wire);

/* Close and set to none; none is fine. */
void ddl_wire_close(ddl_wire *wire);

#endif
