/*
 * stream.h - a connection to a server, plain or TLS, for callers that block: every call has a deadline.
 *
 * Thread: one at a time per stream.
 */
#ifndef DDL_IO_STREAM_H
#define DDL_IO_STREAM_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"
#include "io/tls.h"

typedef struct ddl_stream ddl_stream;

/*
 * Connect to one address and, where party is given, make TLS of it: the server's certificate must name
 * peer_name. DDL_ENETWORK: it refuses or is not reached by the deadline. DDL_EAUTH, DDL_EPROTO: see tls.h.
 */
DDL_MUST_USE ddl_status ddl_stream_open(const ddl_address *to, ddl_tls_party *party, const char *peer_name,
                                        ddl_deadline deadline, ddl_stream **stream, ddl_error *err);

/* Write all of it. DDL_ENETWORK: the connection broke. DDL_ETIMEDOUT: not by the deadline; of no more use. */
DDL_MUST_USE ddl_status ddl_stream_write(ddl_stream *stream, const void *data, size_t bytes,
                                         ddl_deadline deadline, ddl_error *err);

/*
 * Read at least one byte, at most so many. A deadline that has passed takes what is there; *count is 0 if
 * nothing came. DDL_ENETWORK: the connection broke or was closed.
 */
DDL_MUST_USE ddl_status ddl_stream_read(ddl_stream *stream, void *data, size_t bytes, ddl_deadline deadline,
                                        size_t *count, ddl_error *err);

/* This end's address. */
void ddl_stream_local(const ddl_stream *stream, ddl_address *address);

/* For a forked child, which has to close it. */
int ddl_stream_descriptor(const ddl_stream *stream);

/* Without waiting; NULL is fine. */
void ddl_stream_close(ddl_stream *stream);

#endif
