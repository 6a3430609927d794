/*
 * socket.h - TCP sockets as ddl wants them: non-blocking, close-on-exec, without delay, never SIGPIPE.
 *
 * Thread: any.
 */
#ifndef DDL_IO_SOCKET_H
#define DDL_IO_SOCKET_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"

#include <sys/types.h>

/* What keeps a host from making connections, and from listening at whichever port is free. */
#define DDL_SOCKET_NO_PORT \
    "no local port is free: see net.ipv4.ip_local_port_range, and connections in TIME_WAIT (ss -ant)"

/*
 * Listen on exactly this address; port 0 takes a free one. *bound is what it came to.
 * DDL_ENETWORK with os_errno: EADDRINUSE, EADDRNOTAVAIL, ... DDL_ERESOURCE: out of descriptors; with
 * EADDRINUSE of ports, which may pass.
 */
DDL_MUST_USE ddl_status ddl_socket_listen(const ddl_address *address, int backlog, int *fd,
                                          ddl_address *bound, ddl_error *err);

/*
 * The same on a port of this range, which has one; the index of the first to try is taken modulo their
 * number, so that those who listen side by side need not try them all. DDL_ENETWORK: all are in use.
 */
DDL_MUST_USE ddl_status ddl_socket_listen_within(const ddl_address *address, ddl_port_range ports, int index,
                                                 int backlog, int *fd, ddl_address *bound, ddl_error *err);

/*
 * Begin to connect. The socket is writable when it has come to something; ask ddl_socket_error what.
 * DDL_ENETWORK with os_errno: failed at once.
 */
DDL_MUST_USE ddl_status ddl_socket_connect(const ddl_address *to, int *fd, ddl_error *err);

/* 0, or the errno of an asynchronous failure. */
int ddl_socket_error(int fd);

/* 0 with *fd and *from set, or an errno (EAGAIN: nobody waits). */
int ddl_socket_accept(int listener, int *fd, ddl_address *from);

/* Bytes moved, 0 at the end of the stream (read), or -1 with errno; EINTR is dealt with. */
ssize_t ddl_socket_read(int fd, void *data, size_t bytes);
ssize_t ddl_socket_write(int fd, const void *data, size_t bytes);

/* As read, without taking the bytes. */
ssize_t ddl_socket_peek(int fd, void *data, size_t bytes);
/* As read, into one place and then another; the second may have no room. */
ssize_t ddl_socket_read_two(int fd, void *first, size_t first_bytes, void *second, size_t second_bytes);
ssize_t ddl_socket_write_two(int fd, const void *first, size_t first_bytes, const void *second,
                             size_t second_bytes);

/* Block until fd has any of the poll events or the deadline has passed (false). */
bool ddl_socket_wait(int fd, short events, ddl_deadline deadline);

/* Whether a connect to there that failed with this errno did so as no local port is free. An address of this
 * host that is not usable yet has the same errno. */
bool ddl_socket_lacks_port(const ddl_address *to, int os_errno);

/* Whether a connect has come to its end, and well. */
bool ddl_socket_is_connected(int fd);

/* This end's address; zero family if it cannot be told. */
void ddl_socket_local(int fd, ddl_address *address);

/* Whether this process listens at that port, at whichever address. For advice: asks the system of each
 * descriptor, and of no more than a few thousand. */
bool ddl_socket_is_own_port(uint16_t port);

/*
 * Of a connection that stays inside this host: send at once. BBR, the congestion control that many hosts have
 * set, sends by a timer, at the rate that it believes the path to bear. Of memory it believes anything: of
 * some connections 1 Tbit/s, of others 30 Gbit/s, and there 512 KiB each way take 175 us and not 85. The rate
 * of reno is never what limits; every Linux has it, and allows it to everyone unless its administrator took
 * it away. Between hosts the choice is the administrator's.
 */
void ddl_socket_avoid_pacing(int fd);

/* Close and set to -1; -1 is fine. */
void ddl_socket_close(int *fd);

/* The same, but of the connection nothing stays, so that its port may be listened at at once. */
void ddl_socket_drop(int *fd);

/* What differs between systems: a new socket with both flags set, or -1 with errno. */
int ddl_socket_new(int family);
int ddl_socket_new_datagram(int family);
int ddl_socket_accept_new(int listener, struct sockaddr *from, socklen_t *from_bytes);

/* How many bytes have come and were not read. */
size_t ddl_socket_unread(int fd);

/* Why a write was not done, of errno: for now, as there is no room; for good, as the other end is gone. */
bool ddl_socket_is_full(int os_errno);
bool ddl_socket_is_hung_up(int os_errno);

/* Whether the system gave a connection up, for this reason, as it heard nothing of the other host, or was
 * told that it is not to be reached; not as the process there has ended. */
bool ddl_socket_is_cut_off(int os_errno);

/* Whether what was a socket is none any more, for this reason: this process has closed its descriptor, or put
 * another file in its place. */
bool ddl_socket_is_closed_here(int os_errno);

/* What the host at the other end has acknowledged, and whether something sent was not. False where a system
 * does not tell that. */
typedef struct ddl_socket_acks {
    uint64_t acked_bytes;
    bool awaits_more;
    unsigned answers; /* segments from there without data: acknowledgements, but probes too */
    int64_t ago_ns;   /* that any segment from there acknowledged something, or the same again */
    unsigned tries;   /* since anything was acknowledged, to send it again */
    uint64_t busy_us; /* in which something was unacknowledged, ever; 0 where a system does not tell that */
    bool has_unsent;  /* something waits that was never sent */
} ddl_socket_acks;
bool ddl_socket_ask_acks(int fd, ddl_socket_acks *acks);

/* Have an idle connection say something every minute, for as long as two hours without an answer, so that
 * what keeps a table of connections on the way does not forget it. */
void ddl_socket_stay_known(int fd);

/* Of a socket over which nothing more is sent (SHUT_WR): whether the other end's host has acknowledged all
 * bytes; true where a system does not tell that. */
bool ddl_socket_is_acked(int fd);

/* Whether the other end has closed or broken the connection, though what it said before may still be unread;
 * false where a system does not tell that. */
bool ddl_socket_has_ended(int fd);

#endif
