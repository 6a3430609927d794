/* local_linux.c - memfd, eventfd, and abstract Unix sockets that carry descriptors. */
#define _GNU_SOURCE
#include "io/local.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "base/size.h"
#include "io/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { RESERVED_AT_ONCE = 16 * 1024 * 1024 }; /* a power of two, in pages */

/* ---- memory ---- */

ddl_status ddl_local_memory_create(size_t bytes, int *out, ddl_error *err)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    if (!ddl_host_may_write(bytes)) /* shared memory is a file to the system */
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot have %zu KiB of shared memory (see ulimit -f)",
                           bytes / 1024);
    int fd = DDL_FAILPOINT_OS("io.memfd", EMFILE) ? -1 : memfd_create("ddl", flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* an older kernel */
        fd = memfd_create("ddl", flags);
    if (fd < 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot create shared memory");
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int cause = errno;
        close(fd);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, cause, "cannot size %zu KiB of shared memory", bytes / 1024);
    }
    *out = fd;
    return DDL_OK;
}

ddl_status ddl_local_memory_check(int fd, size_t least_bytes, size_t *bytes, ddl_error *err)
{
    struct stat facts;
    int seals = DDL_FAILPOINT_OS("io.seals", EBADF) ? -1 : fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &facts) != 0 || facts.st_size < 0 ||
        (uintmax_t)facts.st_size < least_bytes || (uintmax_t)facts.st_size > SIZE_MAX)
        return DDL_FAIL(err, DDL_EPROTO, "what came is not %zu KiB of sealed shared memory",
                        least_bytes / 1024);
    *bytes = (size_t)facts.st_size;
    return DDL_OK;
}

ddl_status ddl_local_memory_map(int fd, size_t offset, size_t bytes, ddl_local_use use, void **out,
                                ddl_error *err)
{
    /* What may not be touched when it is mapped is not brought into memory, however much is locked. */
    int at_first = use == DDL_LOCAL_SPARSE ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *memory = DDL_FAILPOINT_OS("io.mmap", ENOMEM)
                       ? MAP_FAILED
                       : mmap(NULL, bytes, at_first, MAP_SHARED, fd, (off_t)offset);
    if (memory == MAP_FAILED)
        return DDL_FAIL_OS(err, DDL_ENOMEM, errno, "cannot map %zu KiB of shared memory", bytes / 1024);
    /* A child of fork has no part in it. */
    madvise(memory, bytes, MADV_DONTFORK);
    if (use == DDL_LOCAL_SPARSE) {
        madvise(memory, bytes, MADV_DONTDUMP);
        if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) != 0) {
            int cause = errno;
            munmap(memory, bytes);
            return DDL_FAIL_OS(err, DDL_ENOMEM, cause, "cannot use %zu KiB of shared memory", bytes / 1024);
        }
    }
    *out = memory;
    return DDL_OK;
}

void ddl_local_memory_unmap(void *memory, size_t bytes)
{
    if (memory != NULL)
        munmap(memory, bytes);
}

/* ---- parts ---- */

size_t ddl_local_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void ddl_local_pages_keep_in_children(void *pages, size_t bytes)
{
    madvise(pages, bytes, MADV_DOFORK);
}

void ddl_local_pages_set_dumped(void *pages, size_t bytes, bool dumped)
{
    madvise(pages, bytes, dumped ? MADV_DODUMP : MADV_DONTDUMP);
}

ddl_status ddl_local_pages_reserve(int fd, size_t offset, size_t bytes, ddl_error *err)
{
    size_t step = RESERVED_AT_ONCE;
    DDL_TRY(ddl_host_need_memory(bytes, err));
    for (size_t done = 0; done < bytes;) {
        size_t part = ddl_size_min(step, bytes - done);
        if (done > 0 && ddl_host_need_memory(bytes - done, err) != DDL_OK) { /* others take some too */
            ddl_local_pages_release(fd, offset, bytes);
            return DDL_ENOMEM;
        }
        int result = DDL_FAILPOINT_OS("io.fallocate", ENOMEM)
                         ? -1
                         : fallocate(fd, 0, (off_t)(offset + done), (off_t)part);
        if (result == 0) {
            done += part;
        } else if (errno != EINTR) {
            ddl_status status =
                DDL_FAIL_OS(err, DDL_ENOMEM, errno, "no memory for %zu KiB that can be shared", bytes / 1024);
            ddl_local_pages_release(fd, offset, bytes);
            return status;
        } else if (step > ddl_local_page_bytes()) {
            step /= 2; /* some kernels undo what a signal interrupts */
        }
    }
    return DDL_OK;
}

void ddl_local_pages_touch(void *pages, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE /* Linux 5.14 */
    const size_t page_bytes = ddl_local_page_bytes(), before = (uintptr_t)pages % page_bytes;
    (void)madvise((uint8_t *)pages - before, before + bytes, MADV_POPULATE_WRITE);
#else
    (void)pages;
    (void)bytes;
#endif
}

void ddl_local_pages_release(int fd, size_t offset, size_t bytes)
{
    int result;
    do {
        result = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
    } while (result != 0 && errno == EINTR);
}

ddl_status ddl_local_pages_detach(void *pages, size_t bytes, ddl_error *err)
{
    void *own = DDL_FAILPOINT_OS("io.detach", ENOMEM)
                    ? MAP_FAILED
                    : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        return DDL_FAIL_OS(err, DDL_ENOMEM, errno, "cannot replace %zu KiB of shared memory", bytes / 1024);
    memcpy(own, pages, bytes);
    if (mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) != MAP_FAILED)
        return DDL_OK;
    int cause = errno;
    munmap(own, bytes);
    return DDL_FAIL_OS(err, DDL_ENOMEM, cause, "cannot replace %zu KiB of shared memory", bytes / 1024);
}

void ddl_local_pages_close(void *pages, size_t bytes)
{
    mmap(pages, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* ---- what lies in the memory of another process ---- */

/* The mark comes with the rest in one call, which is about one process from its beginning to its end. */
ddl_status ddl_local_read(int pid, const ddl_local_mark *mark, uint64_t address, const struct iovec parts[],
                          int count, ddl_error *err)
{
    uint64_t found = 0;
    struct iovec here[DDL_LOCAL_READ_PARTS + 1] = { { &found, sizeof found } };
    DDL_ASSERT(count <= DDL_LOCAL_READ_PARTS);
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        here[i + 1] = parts[i];
        bytes += parts[i].iov_len;
    }
    const struct iovec there[] = { { (void *)(uintptr_t)mark->address, sizeof found },
                                   { (void *)(uintptr_t)address, bytes } };
    ssize_t got = DDL_FAILPOINT_OS("io.read_process", EFAULT)
                      ? -1
                      : process_vm_readv(pid, here, (unsigned long)count + 1, there, count > 0 ? 2 : 1, 0);
    if (got >= 0 && (size_t)got == sizeof found + bytes && found == mark->value)
        return DDL_OK;
    return DDL_FAIL_OS(err, DDL_ERESOURCE, got < 0 ? errno : EFAULT,
                       "cannot read %zu bytes of the memory of process %d", bytes, pid);
}

/* ---- bells ---- */

ddl_status ddl_local_bell_create(int *out, ddl_error *err)
{
    int fd = DDL_FAILPOINT_OS("io.eventfd", EMFILE) ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot make a bell (see ulimit -n)");
    *out = fd;
    return DDL_OK;
}

void ddl_local_bell_ring(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one); /* full: it rings already */
    (void)written;
}

void ddl_local_bell_silence(int fd)
{
    uint64_t rings;
    ssize_t got = read(fd, &rings, sizeof rings);
    (void)got;
}

/* ---- doors ---- */

static socklen_t address_of(const char name[DDL_LOCAL_NAME_BYTES], struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, DDL_LOCAL_NAME_BYTES); /* a leading zero: abstract */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + DDL_LOCAL_NAME_BYTES);
}

static ddl_status new_socket(int *fd, ddl_error *err)
{
    *fd = DDL_FAILPOINT_OS("io.unix", EMFILE)
              ? -1
              : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot make a Unix socket (see ulimit -n)");
    return DDL_OK;
}

bool ddl_local_address(const uint8_t id[DDL_LOCAL_ID_BYTES], int number, ddl_address *address)
{
    struct sockaddr_un local = { .sun_family = AF_UNIX };
    char name[sizeof local.sun_path - 1];
    int used = snprintf(name, sizeof name, "ddl-%d-", number);
    for (size_t i = 0; i < DDL_LOCAL_ID_BYTES; i++)
        used += snprintf(name + used, sizeof name - (size_t)used, "%02x", id[i]);
    memcpy(local.sun_path + 1, name, (size_t)used); /* a leading zero: abstract */
    memset(address, 0, sizeof *address);
    memcpy(&address->socket, &local, sizeof local);
    address->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
    return true;
}

bool ddl_local_is_own_user(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

ddl_status ddl_local_pair(int ends[2], ddl_error *err)
{
    if (DDL_FAILPOINT_OS("io.unix_pair", EMFILE) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot make a pair of Unix sockets (see ulimit -n)");
    return DDL_OK;
}

/* Closes fd on failure. */
static ddl_status check_user(int fd, ddl_error *err)
{
    if (ddl_local_is_own_user(fd))
        return DDL_OK;
    close(fd);
    return DDL_FAIL(err, DDL_EAUTH, "a process of another user is at the other end of a Unix socket");
}

ddl_status ddl_local_listen(int backlog, char name[DDL_LOCAL_NAME_BYTES], int *out, ddl_error *err)
{
    uint8_t random[12];
    int fd;
    DDL_TRY(ddl_host_random(random, sizeof random, err));
    int used = snprintf(name, DDL_LOCAL_NAME_BYTES, "ddl-");
    for (size_t i = 0; i < sizeof random; i++)
        used += snprintf(name + used, (size_t)(DDL_LOCAL_NAME_BYTES - used), "%02x", random[i]);
    memset(name + used, 0, (size_t)(DDL_LOCAL_NAME_BYTES - used));
    DDL_TRY(new_socket(&fd, err));
    struct sockaddr_un address;
    socklen_t bytes = address_of(name, &address);
    if (bind(fd, (struct sockaddr *)&address, bytes) != 0 || listen(fd, backlog) != 0) {
        int cause = errno;
        close(fd);
        return DDL_FAIL_OS(err, DDL_ERESOURCE, cause, "cannot listen on a Unix socket");
    }
    *out = fd;
    return DDL_OK;
}

ddl_status ddl_local_connect(const char name[DDL_LOCAL_NAME_BYTES], int *out, ddl_error *err)
{
    struct sockaddr_un address;
    socklen_t bytes = address_of(name, &address);
    int fd;
    DDL_TRY(new_socket(&fd, err));
    if (DDL_FAILPOINT_OS("io.unix_connect", ECONNREFUSED) ||
        connect(fd, (struct sockaddr *)&address, bytes) != 0) {
        int cause = errno;
        close(fd);
        return DDL_FAIL_OS(err, DDL_ENETWORK, cause, "cannot connect to a Unix socket");
    }
    DDL_TRY(check_user(fd, err));
    *out = fd;
    return DDL_OK;
}

ddl_status ddl_local_accept(int listener, int *out, ddl_error *err)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
        return DDL_FAIL(err, DDL_ETIMEDOUT, "nobody calls");
    if (fd < 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot accept on a Unix socket");
    DDL_TRY(check_user(fd, err));
    *out = fd;
    return DDL_OK;
}

union ancillary {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(DDL_LOCAL_FDS_MOST * sizeof(int))];
};

ddl_status ddl_local_send(int fd, const void *note, size_t bytes, const int descriptors[], int count,
                          ddl_error *err)
{
    const size_t descriptor_bytes = (size_t)count * sizeof(int);
    union ancillary ancillary;
    DDL_ASSERT(count >= 0);
    DDL_ASSERT(count <= DDL_LOCAL_FDS_MOST);
    memset(&ancillary, 0, sizeof ancillary);
    struct iovec part = { (void *)note, bytes };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (count > 0) {
        message.msg_control = &ancillary;
        message.msg_controllen = CMSG_SPACE(descriptor_bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(descriptor_bytes);
        memcpy(CMSG_DATA(header), descriptors, descriptor_bytes);
    }
    const bool fails = count > 0 && (DDL_FAILPOINT_OS("io.unix_send", ETOOMANYREFS) ||
                                     DDL_FAILPOINT_OS("io.unix_deny", EPERM));
    ssize_t sent = fails ? -1 : sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS))
        return DDL_FAIL_OS(err, DDL_ETIMEDOUT, errno, "descriptors cannot be handed over now");
    if (sent < 0 && (errno == EPERM || errno == EACCES))
        return DDL_FAIL_OS(err, DDL_EUNSUPPORTED, errno,
                           "descriptors may not be handed over; a security module of the system forbids it");
    if (sent != (ssize_t)bytes)
        return DDL_FAIL_OS(err, DDL_EPEERLOST, sent < 0 ? errno : 0, "cannot hand over descriptors");
    return DDL_OK;
}

/* Who may have another one, and does not get those, is not let. */
static ddl_status lacks_some(int fd, ddl_error *err)
{
    const int another = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (another < 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, EMFILE,
                           "it was handed more descriptors than it can have (see ulimit -n)");
    close(another);
    return DDL_FAIL(err, DDL_EUNSUPPORTED,
                    "the system withholds descriptors that it was handed, as a security module may "
                    "(DDL_TRANSPORT=tcp needs none)");
}

ddl_status ddl_local_receive(int fd, void *note, size_t bytes, int descriptors[], int room, int *count,
                             ddl_error *err)
{
    union ancillary ancillary;
    struct iovec part = { note, bytes };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &ancillary, .msg_controllen = sizeof ancillary
    };
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return DDL_FAIL(err, DDL_ETIMEDOUT, "nothing has come");
    if (got <= 0)
        return DDL_FAIL_OS(err, DDL_EPEERLOST, got < 0 ? errno : 0,
                           "the other end of a Unix socket has gone");
    int received[DDL_LOCAL_FDS_MOST], found = 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        found = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(received, CMSG_DATA(header), (size_t)found * sizeof(int)); /* no more fit the buffer */
    }
    const bool are_withheld = found > 0 && DDL_FAILPOINT_OS("io.unix_withhold", EACCES);
    if (are_withheld || ((message.msg_flags & MSG_CTRUNC) != 0 && found < room)) {
        for (int i = 0; i < found; i++)
            close(received[i]);
        return lacks_some(fd, err);
    }
    if (got != (ssize_t)bytes || found > room || (message.msg_flags & MSG_CTRUNC) != 0) {
        for (int i = 0; i < found; i++)
            close(received[i]);
        return DDL_FAIL(err, DDL_EPROTO,
                        "a note of %zd bytes with %d descriptors%s, not %zu and at most %d (see ulimit -n)",
                        got, found, (message.msg_flags & MSG_CTRUNC) != 0 ? " and more" : "", bytes, room);
    }
    memcpy(descriptors, received, (size_t)found * sizeof(int));
    *count = found;
    return DDL_OK;
}
