/* stream.c - a socket and, if there is one, the TLS session in front of it. */
#include "io/stream.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "io/socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum { PIECE_BYTES = 16 << 10 };

struct ddl_stream {
    int fd;
    ddl_tls *tls; /* NULL: plain */
    char where[DDL_ADDRESS_FULL_TEXT];
};

static ddl_status broken(const ddl_stream *stream, int os_errno, ddl_error *err)
{
    if (os_errno == 0)
        return DDL_FAIL(err, DDL_ENETWORK, "%s closed the connection", stream->where);
    return DDL_FAIL_OS(err, DDL_ENETWORK, os_errno, "the connection to %s broke", stream->where);
}

/* ---- bytes on the wire ---- */

static ddl_status send_all(ddl_stream *stream, const uint8_t *data, size_t bytes, ddl_deadline deadline,
                           ddl_error *err)
{
    for (size_t sent = 0; sent < bytes;) {
        ssize_t count = ddl_socket_write(stream->fd, data + sent, bytes - sent);
        if (count > 0)
            sent += (size_t)count;
        else if (count < 0 && errno != EAGAIN)
            return broken(stream, errno, err);
        else if (!ddl_socket_wait(stream->fd, POLLOUT, deadline))
            return DDL_FAIL(err, DDL_ETIMEDOUT, "%s takes no more bytes", stream->where);
    }
    return DDL_OK;
}

static ddl_status receive(ddl_stream *stream, void *data, size_t bytes, ddl_deadline deadline, size_t *count,
                          ddl_error *err)
{
    for (;;) {
        ssize_t got = ddl_socket_read(stream->fd, data, bytes);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return broken(stream, got == 0 ? 0 : errno, err);
        if (got > 0) {
            *count = (size_t)got;
            return DDL_OK;
        }
        if (!ddl_socket_wait(stream->fd, POLLIN, deadline)) {
            *count = 0;
            return DDL_OK;
        }
    }
}

/* What the session has for the peer. */
static ddl_status flush(ddl_stream *stream, ddl_deadline deadline, ddl_error *err)
{
    uint8_t piece[PIECE_BYTES];
    size_t bytes;
    while ((bytes = ddl_tls_output(stream->tls, piece, sizeof piece)) > 0)
        DDL_TRY(send_all(stream, piece, bytes, deadline, err));
    return DDL_OK;
}

/* Feed the session; *got is false if nothing came by the deadline. */
static ddl_status fill(ddl_stream *stream, ddl_deadline deadline, bool *got, ddl_error *err)
{
    uint8_t piece[PIECE_BYTES];
    size_t bytes;
    DDL_TRY(receive(stream, piece, sizeof piece, deadline, &bytes, err));
    *got = bytes > 0;
    return ddl_tls_feed(stream->tls, piece, bytes, err);
}

/* ---- opening ---- */

/*
 * A connect to a port of this machine on which nobody listens can meet itself, where the system happens to
 * pick that very port for it.
 */
static bool met_itself(const ddl_stream *stream)
{
    ddl_address local;
    char text[DDL_ADDRESS_FULL_TEXT];
    ddl_socket_local(stream->fd, &local);
    ddl_address_text(&local, text);
    return strcmp(text, stream->where) == 0;
}

static ddl_status connect_to(ddl_stream *stream, const ddl_address *to, ddl_deadline deadline, ddl_error *err)
{
    DDL_TRY(ddl_socket_connect(to, &stream->fd, err));
    int error = ddl_socket_wait(stream->fd, POLLOUT, deadline) ? ddl_socket_error(stream->fd) : ETIMEDOUT;
    if (error == 0 && met_itself(stream))
        error = ECONNREFUSED;
    if (error != 0)
        return DDL_FAIL_OS(err, DDL_ENETWORK, error, "cannot connect to %s", stream->where);
    return DDL_OK;
}

static ddl_status shake_hands(ddl_stream *stream, ddl_deadline deadline, ddl_error *err)
{
    for (;;) {
        bool done = false, got = true;
        ddl_error unwanted;
        ddl_status status = ddl_tls_shake(stream->tls, &done, err);
        ddl_status flushed = flush(stream, deadline, status == DDL_OK ? err : &unwanted);
        if (status != DDL_OK || flushed != DDL_OK || done)
            return status != DDL_OK ? status : flushed;
        if (fill(stream, deadline, &got, &unwanted) != DDL_OK)
            return DDL_FAIL(
                err, DDL_ENETWORK,
                "TLS with %s: it closed the connection in the handshake; does it speak TLS on that port?",
                stream->where);
        if (!got || ddl_deadline_passed(deadline))
            return DDL_FAIL(err, DDL_ENETWORK,
                            "TLS with %s: it does not answer; does it speak TLS on that port?",
                            stream->where);
    }
}

ddl_status ddl_stream_open(const ddl_address *to, ddl_tls_party *party, const char *peer_name,
                           ddl_deadline deadline, ddl_stream **out, ddl_error *err)
{
    ddl_stream *stream = ddl_alloc(sizeof *stream);
    if (stream == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a connection");
    stream->fd = -1;
    ddl_address_text(to, stream->where);
    ddl_status status = connect_to(stream, to, deadline, err);
    if (status == DDL_OK && party != NULL)
        status = ddl_tls_create(party, peer_name, stream->where, &stream->tls, err);
    if (status == DDL_OK && party != NULL)
        status = shake_hands(stream, deadline, err);
    if (status != DDL_OK) {
        ddl_stream_close(stream);
        return status;
    }
    *out = stream;
    return DDL_OK;
}

/* ---- use ---- */

ddl_status ddl_stream_write(ddl_stream *stream, const void *data, size_t bytes, ddl_deadline deadline,
                            ddl_error *err)
{
    if (stream->tls == NULL)
        return send_all(stream, data, bytes, deadline, err);
    DDL_TRY(ddl_tls_write(stream->tls, data, bytes, err));
    return flush(stream, deadline, err);
}

ddl_status ddl_stream_read(ddl_stream *stream, void *data, size_t bytes, ddl_deadline deadline, size_t *count,
                           ddl_error *err)
{
    DDL_ASSERT(bytes > 0);
    if (stream->tls == NULL)
        return receive(stream, data, bytes, deadline, count, err);
    /* What comes may be of no use; that does not make more time. */
    for (bool last = false;; last = ddl_deadline_passed(deadline)) {
        bool ended = false, got = true;
        DDL_TRY(ddl_tls_read(stream->tls, data, bytes, count, &ended, err));
        DDL_TRY(flush(stream, deadline, err)); /* an answer to a change of keys */
        if (*count > 0)
            return DDL_OK;
        if (ended)
            return broken(stream, 0, err);
        if (last)
            return DDL_OK;
        DDL_TRY(fill(stream, deadline, &got, err));
        if (!got)
            return DDL_OK;
    }
}

void ddl_stream_local(const ddl_stream *stream, ddl_address *address)
{
    ddl_socket_local(stream->fd, address);
}

int ddl_stream_descriptor(const ddl_stream *stream)
{
    return stream->fd;
}

void ddl_stream_close(ddl_stream *stream)
{
    ddl_error unwanted;
    if (stream == NULL)
        return;
    if (stream->tls != NULL) {
        ddl_tls_end(stream->tls);
        (void)!flush(stream, ddl_now_ns(), &unwanted); /* a courtesy */
    }
    ddl_tls_destroy(stream->tls);
    ddl_socket_close(&stream->fd);
    ddl_free(stream);
}
