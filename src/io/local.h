/*
 * local.h - what only processes of one host can do for each other: share memory, read each other's, hand over
 * descriptors, and ring a bell that a loop hears.
 *
 * Linux only; elsewhere every call that makes something fails with DDL_EUNSUPPORTED, and ranks of one host
 * talk over TCP. Thread: any.
 */
#ifndef DDL_IO_LOCAL_H
#define DDL_IO_LOCAL_H

#include "base/error.h"
#include "io/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* ---- memory ---- */

/* Anonymous memory with a descriptor by which others can map it; zero, and never to change its size, so that
 * nobody can make an access to it fail. It lives as long as anyone has it open or mapped; no name is left
 * behind. A forked child does not have it. What nobody touches takes up addresses only. */
DDL_MUST_USE ddl_status ddl_local_memory_create(size_t bytes, int *fd, ddl_error *err);

/* How large the memory is that came with this descriptor. DDL_EPROTO: it is no such memory, smaller than
 * least_bytes, or could still change its size. */
DDL_MUST_USE ddl_status ddl_local_memory_check(int fd, size_t least_bytes, size_t *bytes, ddl_error *err);

/* Map so much of it. Sparse: nothing of it is to be in memory because it is mapped, also where everything is
 * locked, nor in a core. */
typedef enum ddl_local_use { DDL_LOCAL_DENSE, DDL_LOCAL_SPARSE } ddl_local_use;
DDL_MUST_USE ddl_status ddl_local_memory_map(int fd, size_t offset, size_t bytes, ddl_local_use use,
                                             void **memory, ddl_error *err);

/* NULL is fine. */
void ddl_local_memory_unmap(void *memory, size_t bytes);

/* ---- parts of such memory, in whole pages; offsets are those in the descriptor ---- */

size_t ddl_local_page_bytes(void);

/* Children of fork share these pages. */
void ddl_local_pages_keep_in_children(void *pages, size_t bytes);

/* Whether they are in a core of this process. */
void ddl_local_pages_set_dumped(void *pages, size_t bytes, bool dumped);

/* Have them there, so that touching them cannot fail. DDL_ENOMEM: there are not so many. */
DDL_MUST_USE ddl_status ddl_local_pages_reserve(int fd, size_t offset, size_t bytes, ddl_error *err);

/* Have mapped pages there now, so that nobody waits for them who touches them later. Where the system cannot,
 * or has not as much, nothing is done. */
void ddl_local_pages_touch(void *pages, size_t bytes);

/* Give their memory back; they are zero afterwards. */
void ddl_local_pages_release(int fd, size_t offset, size_t bytes);

/* Put private pages with the same content in their place: others who have them mapped reach this process no
 * more. DDL_ENOMEM: nothing has changed. */
DDL_MUST_USE ddl_status ddl_local_pages_detach(void *pages, size_t bytes, ddl_error *err);

/* Keep the addresses, but nothing behind them. */
void ddl_local_pages_close(void *pages, size_t bytes);

/* ---- what lies in the memory of another process ---- */

typedef struct ddl_local_mark { /* what only the right process has there */
    uint64_t address, value;
} ddl_local_mark;

enum { DDL_LOCAL_READ_PARTS = 2 };

/* Copy from there into these parts, one after the other, DDL_LOCAL_READ_PARTS at most; with none, see whether
 * that can be. DDL_ERESOURCE: it cannot be read, as there is no such memory or process, another one has the
 * number meanwhile (it has not the mark), or the system does not let this one. Parts may have been written to
 * all the same. */
DDL_MUST_USE ddl_status ddl_local_read(int pid, const ddl_local_mark *mark, uint64_t address,
                                       const struct iovec parts[], int count, ddl_error *err);

/* ---- bells ---- */

/* A descriptor that is readable from a ring until it is silenced. */
DDL_MUST_USE ddl_status ddl_local_bell_create(int *fd, ddl_error *err);
void ddl_local_bell_ring(int fd);
void ddl_local_bell_silence(int fd);

/* ---- doors ---- */

enum { DDL_LOCAL_NAME_BYTES = 32, DDL_LOCAL_FDS_MOST = 250, DDL_LOCAL_ID_BYTES = 16 };

/* Where sockets (socket.h) of this host, and network namespace, meet, under a name without a place in the
 * file system: the door of this number of a group that has this id. False: there is no such thing. */
bool ddl_local_address(const uint8_t id[DDL_LOCAL_ID_BYTES], int number, ddl_address *address);

/* Whether a process of this user is at the other end of such a socket. */
bool ddl_local_is_own_user(int fd);

/* Two ends of a connection, non-blocking and close-on-exec. */
DDL_MUST_USE ddl_status ddl_local_pair(int ends[2], ddl_error *err);

/*
 * A listening socket that only processes of this host (and network namespace) reach, under a fresh random
 * name without a place in the file system.
 */
DDL_MUST_USE ddl_status ddl_local_listen(int backlog, char name[DDL_LOCAL_NAME_BYTES], int *fd,
                                         ddl_error *err);

/* Connect to it; never blocks. DDL_ENETWORK: nobody listens. DDL_EAUTH: a process of another user does. */
DDL_MUST_USE ddl_status ddl_local_connect(const char name[DDL_LOCAL_NAME_BYTES], int *fd, ddl_error *err);

/* Take a caller, non-blocking. DDL_ETIMEDOUT: nobody calls. DDL_EAUTH: a process of another user did; it was
 * turned away. */
DDL_MUST_USE ddl_status ddl_local_accept(int listener, int *fd, ddl_error *err);

/*
 * Send, and receive, a note together with descriptors, at most DDL_LOCAL_FDS_MOST. DDL_ETIMEDOUT: it could
 * not be sent, as others have to take first what is under way, or nothing has come yet. DDL_EPEERLOST: the
 * other end has gone. DDL_EPROTO: something else came, or more than room descriptors. DDL_ERESOURCE: this
 * process cannot have so many. DDL_EUNSUPPORTED: the system lets nobody hand over descriptors. What is
 * received is close-on-exec.
 */
DDL_MUST_USE ddl_status ddl_local_send(int fd, const void *note, size_t bytes, const int descriptors[],
                                       int count, ddl_error *err);
DDL_MUST_USE ddl_status ddl_local_receive(int fd, void *note, size_t bytes, int descriptors[], int room,
                                          int *count, ddl_error *err);

#endif
