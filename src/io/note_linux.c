/* note_linux.c - notes in sealed anonymous memory. */
#define _GNU_SOURCE
#include "io/note.h"

#include "base/assert.h"
#include "base/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "ddl-note"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

ddl_status ddl_note_create(const void *data, size_t bytes, int *out, ddl_error *err)
{
    DDL_ASSERT(bytes > 0);
    DDL_ASSERT(bytes <= DDL_NOTE_BYTES);
    if (DDL_FAILPOINT_OS("io.note", EMFILE))
        return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot create memory to hand over a secret");
    int fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* an older kernel */
        fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) /* not permitted here */
        return ddl_note_in_socket(data, bytes, out, err);
    if (write(fd, data, bytes) != (ssize_t)bytes ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
        ddl_status status =
            DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "cannot write a secret to hand over (see ulimit -f)");
        close(fd);
        return status;
    }
    *out = fd;
    return DDL_OK;
}

/* The process that started pid, 0 if there is none or it is not told. */
static int parent_of(int pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    size_t count = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[count] = '\0';
    int parent = 0;
    const char *rest = strrchr(text, ')'); /* a program's name may hold anything */
    return rest != NULL && sscanf(rest, ") %*c %d", &parent) == 1 ? parent : 0;
}

int ddl_note_of_ancestor(int number)
{
    enum { GENERATIONS = 16 };
    int pid = (int)getppid();
    for (int i = 0; i < GENERATIONS && pid > 1; i++, pid = parent_of(pid)) {
        char path[64], target[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
        ssize_t bytes = readlink(path, target, sizeof target - 1);
        if (bytes < 0)
            continue;
        target[bytes] = '\0';
        if (strncmp(target, "/memfd:" NAME " ", sizeof "/memfd:" NAME) != 0)
            continue;
        struct stat facts;
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0 && fstat(fd, &facts) == 0 && facts.st_uid == geteuid())
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}
