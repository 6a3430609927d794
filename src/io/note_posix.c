/* note_posix.c - where there is no memory with a descriptor, notes are in sockets. */
#include "io/note.h"

#include "base/failpoint.h"

ddl_status ddl_note_create(const void *data, size_t bytes, int *out, ddl_error *err)
{
    if (DDL_FAILPOINT_OS("io.note", EMFILE))
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot make a socket to hand over a secret");
    return ddl_note_in_socket(data, bytes, out, err);
}

int ddl_note_of_ancestor(int number)
{
    (void)number;
    return -1;
}
