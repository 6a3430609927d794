/* note.c - reading a note, from memory or from a socket in which it waits. */
#include "io/note.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

bool ddl_note_read(int fd, void *data, size_t *bytes)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0)
        return false;
    ssize_t count = -1;
    if (S_ISREG(facts.st_mode)) {
        count = facts.st_size <= DDL_NOTE_BYTES ? pread(fd, data, DDL_NOTE_BYTES, 0) : -1;
    } else if (S_ISSOCK(facts.st_mode)) {
        count = recv(fd, data, DDL_NOTE_BYTES, MSG_PEEK | MSG_DONTWAIT); /* it stays for others */
    }
    if (count <= 0)
        return false;
    *bytes = (size_t)count;
    return true;
}

/* In its mode: that of a note is the same by whichever descriptor, and its owner may still open it. Who runs
 * as another user by now may not change that, but may the offset, which all have that were handed down with
 * it. */
enum { READ_MODE = S_IRUSR, MODE_BITS = S_IRWXU | S_IRWXG | S_IRWXO, READ_OFFSET = DDL_NOTE_BYTES + 1 };

void ddl_note_mark(int fd)
{
    struct stat facts;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && fchmod(fd, READ_MODE) != 0)
        lseek(fd, READ_OFFSET, SEEK_SET);
}

int ddl_note_was_read(int fd)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode))
        return -1;
    return (facts.st_mode & MODE_BITS) == READ_MODE || lseek(fd, 0, SEEK_CUR) == READ_OFFSET;
}

/* A socket whose other end is closed: what was sent stays to be looked at. */
ddl_status ddl_note_in_socket(const void *data, size_t bytes, int *out, ddl_error *err)
{
    int ends[2];
    DDL_ASSERT(bytes > 0);
    DDL_ASSERT(bytes <= DDL_NOTE_BYTES);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot make a socket to hand over a secret");
    for (int i = 0; i < 2; i++)
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    ssize_t count = send(ends[1], data, bytes, 0); /* an empty socket has room for it */
    ddl_status status = DDL_OK;
    if (count != (ssize_t)bytes) {
        status = DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot write a secret to hand over");
        close(ends[0]);
    } else {
        *out = ends[0];
    }
    close(ends[1]);
    return status;
}
