/* destination.c - a file beside the one asked for, which takes its place when it is complete. */
#include "destination.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, MOST_LINKS = 40, MOST_ATTEMPTS = 100, MODE_BITS = 07777, NEW_MODE = 0666 };

struct destination {
    const char *name;      /* as it was given */
    char path[PATH_BYTES]; /* where its links lead */
    char temporary[PATH_BYTES];
    bool none_beside; /* a file could not be made there, which is no fault of the one asked for */
    int fd;           /* of what is no regular file and so cannot be replaced; otherwise -1 */
};

static bool cannot_write(const struct destination *destination, int error)
{
    /* A pipe is opened without waiting for its reader, and nobody guesses that from the name of the error. */
    fprintf(stderr, "ddl-bench: cannot write %s: %s%s\n", destination->name,
            destination->none_beside ? "no file can be made beside it: " : "",
            error == ENXIO ? "it is a pipe that nobody reads, or a socket" : strerror(error));
    return false;
}

/* Links in the last place of the path; the system follows those before it. What they lead to need not be
 * there yet, which is why this is not realpath. */
static bool follow_links(char path[PATH_BYTES])
{
    for (int links = 0; links < MOST_LINKS; links++) {
        char target[PATH_BYTES];
        ssize_t read = readlink(path, target, sizeof target);
        if (read < 0)
            return errno == EINVAL || errno == ENOENT; /* no link, or nothing yet */
        const char *slash = strrchr(path, '/');
        size_t bytes = (size_t)read,
               start = target[0] == '/' || slash == NULL ? 0 : (size_t)(slash - path) + 1;
        if (start + bytes >= PATH_BYTES) {
            errno = ENAMETOOLONG;
            return false;
        }
        memcpy(path + start, target, bytes);
        path[start + bytes] = '\0';
    }
    errno = ELOOP;
    return false;
}

/* A new file beside it, with the mode of the one that it is to replace, if there is one. Below 0: none, and
 * errno says why. */
static int create_temporary(struct destination *destination)
{
    struct stat old;
    bool exists = lstat(destination->path, &old) == 0;
    if (exists && !S_ISREG(old.st_mode)) { /* which it was when it was opened, or it was not there */
        errno = EEXIST;
        return -1;
    }
    mode_t mode = exists ? old.st_mode & MODE_BITS : NEW_MODE;
    int fd = -1;
    for (int attempt = 0; fd < 0 && attempt < MOST_ATTEMPTS; attempt++) {
        int used = snprintf(destination->temporary, sizeof destination->temporary, "%s.%ld-%d",
                            destination->path, (long)getpid(), attempt);
        if (used < 0 || (size_t)used >= sizeof destination->temporary) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(destination->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0 && errno != EEXIST) {
            destination->none_beside = true;
            return -1;
        }
    }
    if (fd < 0 || !exists)
        return fd;
    /* Root keeps the owner too. Whoever may not give files away becomes the owner, as of any new file. */
    bool given = fchown(fd, old.st_uid, old.st_gid) == 0;
    if (fchmod(fd, given ? mode : mode & 0777) != 0) {
        int error = errno;
        close(fd);
        unlink(destination->temporary);
        errno = error;
        return -1;
    }
    return fd;
}

/* Whether a file can be put in the place of this one: the only answer that holds on every file system is that
 * of trying. */
static bool can_be_replaced(struct destination *destination)
{
    int fd = create_temporary(destination);
    if (fd < 0)
        return false;
    close(fd);
    unlink(destination->temporary);
    return true;
}

/* False: errno says why. */
static bool look(struct destination *destination)
{
    size_t name_bytes = strlen(destination->name);
    if (name_bytes >= PATH_BYTES) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(destination->path, destination->name, name_bytes + 1);
    /* Opening is how to learn whether what is there may be written. */
    int fd = open(destination->name, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT && follow_links(destination->path) && can_be_replaced(destination);
    struct stat opened, named;
    if (fstat(fd, &opened) == 0 && !S_ISREG(opened.st_mode)) {
        /* It stays open: the reader of a pipe takes the first close for the end. */
        destination->fd = fd;
        return fcntl(fd, F_SETFL, 0) == 0; /* writes wait */
    }
    close(fd);
    if (!follow_links(destination->path) || stat(destination->path, &named) != 0)
        return false;
    if (named.st_dev != opened.st_dev || named.st_ino != opened.st_ino) { /* /dev/fd/3 of a removed file */
        errno = ENOENT;
        return false;
    }
    return can_be_replaced(destination);
}

struct destination *destination_open(const char *name)
{
    struct destination *destination = calloc(1, sizeof *destination);
    if (destination == NULL) {
        fputs("ddl-bench: out of memory\n", stderr);
        return NULL;
    }
    destination->name = name;
    destination->fd = -1;
    if (look(destination))
        return destination;
    cannot_write(destination, errno);
    destination_close(destination);
    return NULL;
}

static bool write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        text += written;
        bytes -= (size_t)written;
    }
    return true;
}

static bool replace(struct destination *destination, const char *text, size_t bytes)
{
    int fd = create_temporary(destination);
    if (fd < 0)
        return cannot_write(destination, errno);
    int error = write_all(fd, text, bytes) && fsync(fd) == 0 ? 0 : errno;
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0 && rename(destination->temporary, destination->path) != 0)
        error = errno;
    if (error == 0)
        return true;
    unlink(destination->temporary);
    return cannot_write(destination, error);
}

bool destination_write(struct destination *destination, const char *text, size_t bytes)
{
    if (destination->fd < 0)
        return replace(destination, text, bytes);
    return write_all(destination->fd, text, bytes) || cannot_write(destination, errno);
}

void destination_close(struct destination *destination)
{
    if (destination != NULL && destination->fd >= 0)
        close(destination->fd);
    free(destination);
}
