/* socket.c - TCP sockets. */
#include "io/socket.h"

#include "base/assert.h"
#include "base/failpoint.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* the socket itself was told, see socket_posix.c */
#endif

static ddl_status out_of(ddl_error *err, int os_errno)
{
    ddl_status code = os_errno == EAFNOSUPPORT ? DDL_ENETWORK : DDL_ERESOURCE;
    return DDL_FAIL_OS(err, code, os_errno, "cannot make a socket");
}

ddl_status ddl_socket_listen(const ddl_address *address, int backlog, int *out, ddl_address *bound,
                             ddl_error *err)
{
    char text[DDL_ADDRESS_FULL_TEXT];
    ddl_address_text(address, text);
    int fd = -1, on = 1;
    if (DDL_FAILPOINT_OS("io.socket", EMFILE) || (fd = ddl_socket_new(address->socket.ss_family)) < 0)
        return out_of(err, errno);
    /* A port whose last connections still linger is usable at once; one that is listened on is not. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (DDL_FAILPOINT_OS("io.bind", EADDRINUSE) ||
        bind(fd, (const struct sockaddr *)&address->socket, address->bytes) != 0 ||
        DDL_FAILPOINT_OS("io.listen", EADDRINUSE) || listen(fd, backlog) != 0) {
        const bool lacks_port =
            errno == EADDRINUSE && ddl_address_port(address) == 0 && address->socket.ss_family != AF_UNIX;
        ddl_status status = lacks_port ? DDL_FAIL_OS(err, DDL_ERESOURCE, errno,
                                                     "cannot listen on %s: " DDL_SOCKET_NO_PORT, text)
                                       : DDL_FAIL_OS(err, DDL_ENETWORK, errno, "cannot listen on %s", text);
        close(fd);
        return status;
    }
    ddl_socket_local(fd, bound);
    *out = fd;
    return DDL_OK;
}

ddl_status ddl_socket_listen_within(const ddl_address *address, ddl_port_range ports, int index, int backlog,
                                    int *fd, ddl_address *bound, ddl_error *err)
{
    const int count = ports.last - ports.first + 1;
    char host[DDL_ADDRESS_HOST_TEXT];
    ddl_error why;
    DDL_ASSERT(ports.first > 0);
    DDL_ASSERT(count > 0);
    DDL_ASSERT(index >= 0);
    for (int i = 0; i < count; i++) {
        ddl_address at = *address;
        ddl_address_set_port(&at, (uint16_t)(ports.first + (index + i) % count));
        ddl_status status = ddl_socket_listen(&at, backlog, fd, bound, &why);
        if (status != DDL_ENETWORK || why.os_errno != EADDRINUSE) {
            if (status != DDL_OK && err != NULL)
                *err = why;
            return status;
        }
    }
    ddl_address_host(address, host);
    return DDL_FAIL_OS(
        err, DDL_ENETWORK, EADDRINUSE,
        "DDL_PORT_RANGE=%u-%u: all its ports are in use on %s; widen it, as each rank on a host needs one",
        ports.first, ports.last, host);
}

ddl_status ddl_socket_connect(const ddl_address *to, int *out, ddl_error *err)
{
    char text[DDL_ADDRESS_FULL_TEXT];
    int fd = -1, on = 1;
    if (DDL_FAILPOINT_OS("io.socket", EMFILE) || (fd = ddl_socket_new(to->socket.ss_family)) < 0)
        return out_of(err, errno);
    if (to->socket.ss_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (DDL_FAILPOINT_OS("io.connect", ENETUNREACH) ||
        (connect(fd, (const struct sockaddr *)&to->socket, to->bytes) != 0 && errno != EINPROGRESS &&
         errno != EINTR)) {
        ddl_address_text(to, text);
        ddl_status status = DDL_FAIL_OS(err, DDL_ENETWORK, errno, "cannot connect to %s", text);
        close(fd);
        return status;
    }
    *out = fd;
    return DDL_OK;
}

bool ddl_socket_lacks_port(const ddl_address *to, int os_errno)
{
    ddl_address any = { .bytes = to->bytes };
    int fd;
    any.socket.ss_family = to->socket.ss_family; /* and zeros: all addresses, whichever port */
    if (os_errno != EADDRNOTAVAIL || (fd = ddl_socket_new(to->socket.ss_family)) < 0)
        return false;
    const bool lacks = bind(fd, (const struct sockaddr *)&any.socket, any.bytes) != 0 && errno == EADDRINUSE;
    close(fd);
    return lacks;
}

int ddl_socket_error(int fd)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

int ddl_socket_accept(int listener, int *out, ddl_address *from)
{
    int on = 1, fd = -1;
    memset(from, 0, sizeof *from);
    from->bytes = sizeof from->socket;
    do {
        if (DDL_FAILPOINT_OS("io.accept", EMFILE))
            return EMFILE;
        fd = ddl_socket_accept_new(listener, (struct sockaddr *)&from->socket, &from->bytes);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0)
        return errno == EWOULDBLOCK ? EAGAIN : errno;
    if (from->socket.ss_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *out = fd;
    return 0;
}

ssize_t ddl_socket_read(int fd, void *data, size_t bytes)
{
    ssize_t count;
    do {
        if (DDL_FAILPOINT_OS("io.read", ECONNRESET))
            return -1;
        count = recv(fd, data, bytes, 0);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EWOULDBLOCK)
        errno = EAGAIN;
    return count;
}

ssize_t ddl_socket_peek(int fd, void *data, size_t bytes)
{
    ssize_t count;
    do {
        count = recv(fd, data, bytes, MSG_PEEK);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EWOULDBLOCK)
        errno = EAGAIN;
    return count;
}

ssize_t ddl_socket_read_two(int fd, void *first, size_t first_bytes, void *second, size_t second_bytes)
{
    struct iovec parts[] = { { first, first_bytes }, { second, second_bytes } };
    if (second_bytes == 0)
        return ddl_socket_read(fd, first, first_bytes);
    ssize_t count;
    do {
        if (DDL_FAILPOINT_OS("io.read", ECONNRESET))
            return -1;
        count = readv(fd, parts, 2);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EWOULDBLOCK)
        errno = EAGAIN;
    return count;
}

ssize_t ddl_socket_write_two(int fd, const void *first, size_t first_bytes, const void *second,
                             size_t second_bytes)
{
    struct iovec parts[] = { { (void *)(uintptr_t)first, first_bytes },
                             { (void *)(uintptr_t)second, second_bytes } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    ssize_t count;
    do {
        if (DDL_FAILPOINT_OS("io.write", ECONNRESET))
            return -1;
        count = sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EWOULDBLOCK)
        errno = EAGAIN;
    return count;
}

ssize_t ddl_socket_write(int fd, const void *data, size_t bytes)
{
    ssize_t count;
    do {
        if (DDL_FAILPOINT_OS("io.write", ECONNRESET))
            return -1;
        count = send(fd, data, bytes, MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EWOULDBLOCK)
        errno = EAGAIN;
    return count;
}

bool ddl_socket_wait(int fd, short events, ddl_deadline deadline)
{
    struct pollfd item = { .fd = fd, .events = events };
    for (;;) {
        int left_ms = ddl_deadline_left_ms(deadline);
        int found = poll(&item, 1, left_ms);
        if (found > 0)
            return true;
        if (found == 0 && left_ms == 0)
            return false;
        if (found < 0 && errno != EINTR)
            return true; /* the read or write that follows tells what is wrong */
    }
}

bool ddl_socket_is_connected(int fd)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    return getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0;
}

void ddl_socket_local(int fd, ddl_address *address)
{
    memset(address, 0, sizeof *address);
    address->bytes = sizeof address->socket;
    if (getsockname(fd, (struct sockaddr *)&address->socket, &address->bytes) != 0)
        memset(address, 0, sizeof *address);
}

bool ddl_socket_is_own_port(uint16_t port)
{
    enum { LOOKED_AT = 4096 };
    for (int fd = 0; fd < LOOKED_AT; fd++) {
        int listens = 0;
        socklen_t bytes = sizeof listens;
        ddl_address local;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0)
            continue;
        ddl_socket_local(fd, &local);
        const sa_family_t family = ((const struct sockaddr *)&local.socket)->sa_family;
        if ((family == AF_INET || family == AF_INET6) && ddl_address_port(&local) == port)
            return true;
    }
    return false;
}

void ddl_socket_avoid_pacing(int fd)
{
#ifdef TCP_CONGESTION
    ddl_address own, other = { .bytes = sizeof other.socket };
    ddl_socket_local(fd, &own);
    if (own.socket.ss_family == AF_UNIX)
        return;
    if (getpeername(fd, (struct sockaddr *)&other.socket, &other.bytes) == 0 &&
        ddl_address_same_host(&own, &other))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
#else
    (void)fd;
#endif
}

void ddl_socket_drop(int *fd)
{
    const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };
    if (*fd >= 0)
        setsockopt(*fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ddl_socket_close(fd);
}

bool ddl_socket_is_acked(int fd)
{
    int unacked = 0;   /* the end itself counts as one byte */
#if defined(SO_NWRITE) /* macOS */
    socklen_t bytes = sizeof unacked;
    return getsockopt(fd, SOL_SOCKET, SO_NWRITE, &unacked, &bytes) != 0 || unacked <= 1;
#elif defined(FIONWRITE) /* BSD */
    return ioctl(fd, FIONWRITE, &unacked) != 0 || unacked <= 1;
#elif defined(TIOCOUTQ)  /* Linux */
    return ioctl(fd, TIOCOUTQ, &unacked) != 0 || unacked <= 1;
#else
    (void)fd;
    return unacked == 0;
#endif
}

size_t ddl_socket_unread(int fd)
{
    int unread = 0;
    return ioctl(fd, FIONREAD, &unread) == 0 && unread > 0 ? (size_t)unread : 0;
}

bool ddl_socket_is_full(int os_errno)
{
    return os_errno == EAGAIN || os_errno == EWOULDBLOCK || os_errno == ENOBUFS || os_errno == ENOMEM;
}

bool ddl_socket_is_hung_up(int os_errno)
{
    return os_errno == EPIPE || os_errno == ECONNRESET || os_errno == ENOTCONN;
}

bool ddl_socket_is_cut_off(int os_errno)
{
    return os_errno == ETIMEDOUT || os_errno == EHOSTUNREACH || os_errno == ENETUNREACH;
}

bool ddl_socket_is_closed_here(int os_errno)
{
    return os_errno == EBADF || os_errno == ENOTSOCK;
}

void ddl_socket_close(int *fd)
{
    const int closed = *fd;
    *fd = -1; /* first: a child that is forked meanwhile may look here for what it is to close */
    if (closed >= 0)
        close(closed);
}
