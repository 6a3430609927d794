/* note.c - reading a note, from memory or from a pipe. */
#include "io/note.h"

#include "base/bytes.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
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
    } else if (S_ISFIFO(facts.st_mode)) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        if (poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0)
            count = read(fd, data, DDL_NOTE_BYTES); /* it was written in one piece */
    }
    if (count <= 0)
        return false;
    *bytes = (size_t)count;
    return true;
}
