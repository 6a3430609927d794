/* socket_posix.c - sockets whose flags are set after they were made. */
#include "io/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static int with_flags(int fd)
{
    if (fd < 0)
        return -1;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
#ifdef SO_NOSIGPIPE
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return fd;
}

int ddl_socket_new(int family)
{
    return with_flags(socket(family, SOCK_STREAM, 0));
}

int ddl_socket_new_datagram(int family)
{
    return with_flags(socket(family, SOCK_DGRAM, 0));
}

int ddl_socket_accept_new(int listener, struct sockaddr *from, socklen_t *from_bytes)
{
    return with_flags(accept(listener, from, from_bytes));
}

bool ddl_socket_has_ended(int fd)
{
    (void)fd;
    return false;
}

bool ddl_socket_ask_acks(int fd, ddl_socket_acks *acks)
{
    (void)fd;
    (void)acks;
    return false;
}

void ddl_socket_stay_known(int fd)
{
    (void)fd;
}
