/* note_posix.c - notes in sockets whose other end is closed: what was sent stays to be looked at. */
#include "io/note.h"

#include "base/assert.h"
#include "base/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

ddl_status ddl_note_create(const void *data, size_t bytes, int *out, ddl_error *err)
{
    int ends[2];
    DDL_ASSERT(bytes > 0);
    DDL_ASSERT(bytes <= DDL_NOTE_BYTES);
    if (DDL_FAILPOINT_OS("io.note", EMFILE) || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
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

int ddl_note_of_ancestor(int number)
{
    (void)number;
    return -1;
}
