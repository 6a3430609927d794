/*
 * moving.h - how far a message has come: which of its bytes are next, out of its parts or into them.
 *
 * A message may have a hole: bytes that move by another way than the rest, all at once, before the rest
 * begins. A receive may take its bytes where they are (ddl_xfer.take).
 *
 * Pure. Thread: the holder of the message.
 */
#ifndef DDL_TRANSPORT_MOVING_H
#define DDL_TRANSPORT_MOVING_H

#include "executor/transport.h"

#include <sys/uio.h>

enum { DDL_MOVING_PARTS = 3 }; /* that may be left: two, one of which has the hole */

/* Append what is left of a message, at most DDL_MOVING_PARTS, to iov; returns the new count. */
int ddl_moving_parts_left(const ddl_xfer *xfer, struct iovec *iov, int count);

/* Append the parts of a message without a hole from one of its bytes to before another, at most two, to iov;
 * returns the new count. */
int ddl_moving_parts_between(const ddl_xfer *xfer, size_t from, size_t to, struct iovec *iov, int count);

/* So many bytes more have left, or have come into their parts. With 0: the hole was cut, and may be what is
 * next. */
void ddl_moving_advance(ddl_xfer *xfer, size_t bytes);

/* Take in bytes that have come, and advance. */
void ddl_moving_fill(ddl_xfer *xfer, const uint8_t *bytes, size_t count);

/* Pass on to who takes them the bytes that have come into the part and were not passed on yet. */
void ddl_moving_pass_part(ddl_xfer *xfer);

/* Copy to, or from, the bytes of a message from one on, wherever it has come. */
void ddl_moving_copy_in(const ddl_xfer *xfer, size_t at, const uint8_t *bytes, size_t count);
void ddl_moving_copy_out(const ddl_xfer *xfer, size_t at, uint8_t *bytes, size_t count);

#endif
