/*
 * secret_file.c - files that are there whole, or soon, or not at all, and checked through the descriptor that
 * is read.
 */
#include "rendezvous/secret_parts.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "io/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAKE_TRIES = 10,
    WRITE_LIMIT_MS = 1000, /* for who has made the file to write it */
    LOOK_MS = 10,
    LEFT_S = 3600 /* so old is what nobody will put in its place any more */
};

#define BESIDE "secret.new-"

static ddl_status check_file(int fd, const char *path, ddl_error *err)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0)
        return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "cannot look at the secret in %s", path);
    if (!S_ISREG(facts.st_mode))
        return DDL_FAIL(err, DDL_ECONFIG, "the secret %s is no regular file", path);
    if (facts.st_uid != geteuid())
        return DDL_FAIL(err, DDL_ECONFIG, "the secret in %s belongs to user %ld, not to you (%ld)", path,
                        (long)facts.st_uid, (long)geteuid());
    if ((facts.st_mode & 077) != 0)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "others may read or write the secret in %s (mode %04o): chmod 600 %s", path,
                        (unsigned)facts.st_mode & 07777, path);
    return DDL_OK;
}

static ddl_status read_whole(int fd, const char *path, ddl_secret **out, ddl_error *err)
{
    char source[DDL_SECRET_SOURCE];
    DDL_TRY(check_file(fd, path, err));
    snprintf(source, sizeof source, "read from %s", path);
    ddl_secret *secret = ddl_secret_allocate(source, err);
    if (secret == NULL)
        return DDL_ENOMEM;
    while (secret->bytes < sizeof secret->data) {
        ssize_t count = DDL_FAILPOINT_OS("rendezvous.read", EIO)
                            ? -1
                            : read(fd, secret->data + secret->bytes, sizeof secret->data - secret->bytes);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            ddl_secret_destroy(secret);
            return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "cannot read the secret in %s", path);
        }
        if (count == 0)
            break;
        secret->bytes += (size_t)count;
    }
    return ddl_secret_settle(secret, out, err);
}

/* -1 with errno. O_NONBLOCK: a pipe planted there must not hold us. */
static int open_file(int folder, const char *name)
{
    return openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
}

static ddl_status fail_to_open(const char *path, ddl_error *err)
{
    if (errno == ELOOP || errno == EMLINK)
        return DDL_FAIL(err, DDL_ECONFIG, "the secret %s is a link; name the file itself", path);
    return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "cannot open the secret in %s", path);
}

ddl_status ddl_secret_read(const char *path, ddl_secret **secret, ddl_error *err)
{
    int fd = open_file(AT_FDCWD, path);
    if (fd < 0)
        return fail_to_open(path, err);
    ddl_status status = read_whole(fd, path, secret, err);
    close(fd);
    return status;
}

static bool write_all(int fd, ddl_view content)
{
    const uint8_t *at = content.data;
    if (!ddl_host_may_write(content.bytes))
        return false;
    while (content.bytes > 0) {
        ssize_t count = DDL_FAILPOINT_OS("rendezvous.write", ENOSPC) ? -1 : write(fd, at, content.bytes);
        if (count == 0) /* says no system; and yet nobody is to try for ever */
            errno = EIO;
        if (count == 0 || (count < 0 && errno != EINTR))
            return false;
        if (count > 0) {
            at += count;
            content.bytes -= (size_t)count;
        }
    }
    return true;
}

static bool write_file(int folder, const char *name, ddl_view content)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write_all(fd, content) && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && !written)
        unlinkat(folder, name, 0);
    errno = error;
    return written;
}

/* Where files have one name only: others may see the file while it is empty, see is_being_made. */
static bool lacks_links(int error)
{
    return error == EPERM || error == EOPNOTSUPP || error == ENOTSUP || error == ENOSYS || error == EXDEV ||
           error == EMLINK || error == EACCES;
}

/* What others wrote beside and were killed before they removed it. How old it is, the file system tells by
 * one clock: fresh has just been written. */
static void remove_leftovers(int folder, const char *fresh)
{
    struct stat now, then;
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd >= 0 ? fdopendir(fd) : NULL;
    if (names == NULL && fd >= 0)
        close(fd);
    if (names == NULL)
        return;
    const bool known = fstatat(folder, fresh, &now, AT_SYMLINK_NOFOLLOW) == 0;
    for (struct dirent *item; known && (item = readdir(names)) != NULL;)
        if (strncmp(item->d_name, BESIDE, sizeof BESIDE - 1) == 0 &&
            fstatat(folder, item->d_name, &then, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(then.st_mode) &&
            then.st_uid == geteuid() && then.st_mtime < now.st_mtime - LEFT_S)
            unlinkat(folder, item->d_name, 0);
    closedir(names);
}

/* Write a fresh secret beside, and link it to its name unless that has been taken meanwhile. */
static ddl_status make_file(int folder, const char *path, bool *made, ddl_error *err)
{
    uint8_t unique[8];
    char beside[40];
    ddl_secret *secret = NULL;
    DDL_TRY(ddl_host_random(unique, sizeof unique, err));
    snprintf(beside, sizeof beside, BESIDE "%08x%08x", (unsigned)ddl_get_u32(unique),
             (unsigned)ddl_get_u32(unique + 4));
    DDL_TRY(ddl_secret_make("", &secret, err));
    secret->data[secret->bytes++] = '\n';
    bool written = write_file(folder, beside, ddl_secret_view(secret));
    if (written)
        remove_leftovers(folder, beside);
    *made = written && !DDL_FAILPOINT_OS("rendezvous.link", EPERM) &&
            !DDL_FAILPOINT_OS("rendezvous.link-exdev", EXDEV) &&
            !DDL_FAILPOINT_OS("rendezvous.link-emlink", EMLINK) &&
            !DDL_FAILPOINT_OS("rendezvous.link-eacces", EACCES) &&
            linkat(folder, beside, folder, "secret", 0) == 0;
    int error = errno;
    if (written)
        unlinkat(folder, beside, 0);
    if (written && !*made && lacks_links(error)) {
        *made = write_file(folder, "secret", ddl_secret_view(secret));
        error = errno;
    }
    ddl_secret_destroy(secret);
    if (*made || (written && error == EEXIST))
        return DDL_OK;
    return DDL_FAIL_OS(err, DDL_ECONFIG, error,
                       "cannot make the secret in %s; name another file in DDL_SECRET_FILE", path);
}

/* Whoever makes it may be stopped, and nobody knows whether for good; so it is for its user to remove it. */
static ddl_status fail_half_made(int fd, const char *path, ddl_error *err)
{
    struct stat facts;
    DDL_TRY(check_file(fd, path, err));
    bool is_empty = fstat(fd, &facts) != 0 || facts.st_size == 0;
    return DDL_FAIL(
        err, DDL_ECONFIG,
        "the secret in %s %s, as if whoever made it had been stopped: remove it, and another is made", path,
        is_empty ? "is empty" : "has less than 16 bytes");
}

/* Whether another process has made this file and not yet written all of it, as far as can be told. */
static bool is_being_made(int fd)
{
    struct stat facts;
    return fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size < DDL_SECRET_LEAST;
}

ddl_status ddl_secret_read_in_folder(int folder, const char *path, bool may_make, bool *made,
                                     ddl_secret **secret, ddl_error *err)
{
    const ddl_deadline whole_by = ddl_deadline_in_ms(WRITE_LIMIT_MS);
    *secret = NULL;
    *made = false;
    for (int tries = 0; tries < MAKE_TRIES;) {
        int fd = open_file(folder, "secret");
        if (fd >= 0 && is_being_made(fd) && !ddl_deadline_passed(whole_by)) {
            close(fd);
            (void)poll(NULL, 0, LOOK_MS);
            continue;
        }
        if (fd >= 0) {
            ddl_status status =
                is_being_made(fd) ? fail_half_made(fd, path, err) : read_whole(fd, path, secret, err);
            close(fd);
            return status;
        }
        if (errno != ENOENT)
            return fail_to_open(path, err);
        if (!may_make)
            return DDL_OK;
        tries++;
        DDL_TRY(make_file(folder, path, made, err));
    }
    return DDL_FAIL(err, DDL_ECONFIG, "the secret in %s was removed %d times", path, MAKE_TRIES);
}
