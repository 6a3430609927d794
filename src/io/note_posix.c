/* note_posix.c - notes in pipes, each to be read once. */
#include "io/note.h"

#include "base/assert.h"
#include "base/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

ddl_status ddl_note_create(const void *data, size_t bytes, int *out, ddl_error *err)
{
    int ends[2];
    DDL_ASSERT(bytes > 0);
    DDL_ASSERT(bytes <= DDL_NOTE_BYTES);
    if (DDL_FAILPOINT_OS("io.note", EMFILE) || pipe(ends) != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot make a pipe to hand over a secret");
    for (int i = 0; i < 2; i++)
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    ssize_t count = write(ends[1], data, bytes); /* an empty pipe has room for it */
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
