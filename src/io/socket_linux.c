/* socket_linux.c - sockets made with their flags in one call, so that no fork slips in between. */
#define _GNU_SOURCE
#include "io/socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
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

bool ddl_socket_ask_acks(int fd, ddl_socket_acks *acks)
{
    struct tcp_info info; /* of which older kernels fill less */
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        bytes < offsetof(struct tcp_info, tcpi_data_segs_in) + sizeof info.tcpi_data_segs_in)
        return false;
    if (info.tcpi_segs_in == 0) /* of a connection, which began with one: they are not counted here */
        return false;
    /* What this host does not let out waits like what a closed window keeps back, but nobody answers probes.
     */
    const bool is_kept = info.tcpi_notsent_bytes > 0 && info.tcpi_probes > 1;
    *acks = (ddl_socket_acks){ .acked_bytes = info.tcpi_bytes_acked,
                               .awaits_more = info.tcpi_unacked > 0 || is_kept,
                               .answers = info.tcpi_segs_in - info.tcpi_data_segs_in,
                               .ago_ns = (int64_t)info.tcpi_last_ack_recv * 1000000,
                               .tries = (unsigned)info.tcpi_retransmits + info.tcpi_probes,
                               .busy_us = info.tcpi_busy_time,
                               .has_unsent = info.tcpi_notsent_bytes > 0 };
    return true;
}

void ddl_socket_stay_known(int fd)
{
    const int on = 1, idle_s = 60, probes = 120;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}
