/* note.c - reading a note, from memory or from a socket in which it waits. */
#include "io/note.h"

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
