/* socket_linux.c - sockets made with their flags in one call, so that no fork slips in between. */
#define _GNU_SOURCE
#include "io/socket.h"

#include <poll.h>
#include <sys/socket.h>

int ddl_socket_new(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int ddl_socket_new_datagram(int family)
{
    return socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int ddl_socket_accept_new(int listener, struct sockaddr *from, socklen_t *from_bytes)
{
    return accept4(listener, from, from_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

bool ddl_socket_has_ended(int fd)
{
    struct pollfd ended = { .fd = fd, .events = POLLRDHUP };
    return poll(&ended, 1, 0) > 0;
}
