/* wire.c - one or the other. */
#include "io/wire.h"

#include "base/size.h"
#include "io/socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

ssize_t ddl_wire_read(ddl_wire *wire, void *data, size_t bytes)
{
    return wire->tls != NULL ? ddl_tls_socket_read(wire->tls, data, bytes)
                             : ddl_socket_read(wire->fd, data, bytes);
}

ssize_t ddl_wire_write(ddl_wire *wire, const void *data, size_t bytes)
{
    return wire->tls != NULL ? ddl_tls_socket_write(wire->tls, data, bytes, false)
                             : ddl_socket_write(wire->fd, data, bytes);
}

/* Copy parts one behind the other, as many bytes as there are, or is room for; they are the parts' no more.
 */
static size_t gather(struct iovec *iov, int count, uint8_t *room, size_t room_bytes)
{
    size_t gathered = 0;
    for (int i = 0; i < count && gathered < room_bytes; i++) {
        size_t part = ddl_size_min(iov[i].iov_len, room_bytes - gathered);
        memcpy(room + gathered, iov[i].iov_base, part);
        iov[i].iov_base = (char *)iov[i].iov_base + part;
        iov[i].iov_len -= part;
        gathered += part;
    }
    return gathered;
}

static ssize_t write_sealed(ddl_tls_socket *tls, struct iovec *iov, int count, uint8_t *room)
{
    size_t left = 0, sent = 0;
    for (int i = 0; i < count; i++)
        left += iov[i].iov_len;
    if (left == 0)
        return ddl_tls_socket_write(tls, NULL, 0, false);
    for (int i = 0; left > 0;) {
        const uint8_t *from = iov[i].iov_base;
        size_t part = iov[i].iov_len / DDL_TLS_RECORD_BYTES * DDL_TLS_RECORD_BYTES;
        if (part == 0) {
            from = room;
            part = gather(iov + i, count - i, room, DDL_WIRE_ROOM_BYTES);
        }
        ssize_t taken = ddl_tls_socket_write(tls, from, part, part < left);
        if (taken < 0)
            return sent > 0 ? (ssize_t)sent : -1; /* what is wrong shows again */
        if (from != room) {
            iov[i].iov_base = (char *)iov[i].iov_base + taken;
            iov[i].iov_len -= (size_t)taken;
        }
        sent += (size_t)taken;
        left -= (size_t)taken;
        if ((size_t)taken < part)
            break;
        while (left > 0 && iov[i].iov_len == 0)
            i++;
    }
    return (ssize_t)sent;
}

static ssize_t read_sealed(ddl_tls_socket *tls, const struct iovec *iov, int count)
{
    size_t got = 0;
    for (int i = 0; i < count; i++)
        for (size_t at = 0; at < iov[i].iov_len;) {
            ssize_t part = ddl_tls_socket_read(tls, (char *)iov[i].iov_base + at, iov[i].iov_len - at);
            if (part <= 0)
                return got > 0 ? (ssize_t)got : part; /* what ended it shows again */
            at += (size_t)part;
            got += (size_t)part;
        }
    return (ssize_t)got;
}

ssize_t ddl_wire_write_parts(ddl_wire *wire, struct iovec *iov, int count, uint8_t room[DDL_WIRE_ROOM_BYTES])
{
    if (wire->tls != NULL)
        return write_sealed(wire->tls, iov, count, room);
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = (unsigned)count };
    return sendmsg(wire->fd, &message, MSG_NOSIGNAL);
}

ssize_t ddl_wire_read_parts(ddl_wire *wire, struct iovec *iov, int count)
{
    if (wire->tls != NULL)
        return read_sealed(wire->tls, iov, count);
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = (unsigned)count };
    return recvmsg(wire->fd, &message, MSG_DONTWAIT);
}

bool ddl_wire_flush(ddl_wire *wire)
{
    return wire->tls == NULL || ddl_tls_socket_write(wire->tls, NULL, 0, false) == 0;
}

bool ddl_wire_has_unsent(const ddl_wire *wire)
{
    return wire->tls != NULL && ddl_tls_socket_has_unsent(wire->tls);
}

bool ddl_wire_has_unread(const ddl_wire *wire)
{
    return wire->tls != NULL && ddl_tls_socket_has_unread(wire->tls);
}

bool ddl_wire_part(ddl_wire *wire, bool is_all, void *room, size_t bytes, short *events)
{
    enum { READS = 8 };
    if (is_all && ddl_wire_has_unsent(wire) && !ddl_wire_flush(wire)) {
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return true;
        is_all = false;
    }
    if (is_all)
        shutdown(wire->fd, SHUT_WR);
    *events = is_all ? POLLIN : POLLOUT;
    for (int i = 0; i < READS; i++) {
        ssize_t got = ddl_socket_read(wire->fd, room, bytes);
        if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return true;
        if (got <= 0)
            return is_all && (got == 0 || ddl_socket_is_acked(wire->fd));
    }
    return false;
}

const char *ddl_wire_problem(const ddl_wire *wire)
{
    return wire->tls != NULL ? ddl_tls_socket_problem(wire->tls) : "";
}

void ddl_wire_close(ddl_wire *wire)
{
    ddl_tls_socket_destroy(wire->tls);
    wire->tls = NULL;
    ddl_socket_close(&wire->fd);
}
