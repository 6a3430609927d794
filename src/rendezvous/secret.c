/* secret.c - files that are there whole, or soon, or not at all, and checked through the descriptor that is
 * read. */
#include "rendezvous/secret.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "io/address.h"
#include "io/guarded.h"
#include "io/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RANDOM_BYTES = DDL_SECRET_TEXT / 2,
    MAKE_TRIES = 10,
    WRITE_LIMIT_MS = 1000, /* for who has made the file to write it */
    LOOK_MS = 10,
    LEFT_S = 3600 /* so old is what nobody will put in its place any more */
};

#define BESIDE "secret.new-"

struct ddl_secret {
    char source[DDL_SECRET_SOURCE];
    size_t bytes;
    uint8_t data[DDL_SECRET_MOST + 3]; /* and room for a line end, and to see that there is more */
};

static ddl_secret *allocate(const char *source, ddl_error *err)
{
    ddl_secret *secret = ddl_guarded_alloc(sizeof *secret);
    if (secret == NULL) {
        (void)DDL_FAIL(err, DDL_ENOMEM, "no memory for a secret");
        return NULL;
    }
    ddl_guarded_forget_in_child(secret, sizeof *secret);
    snprintf(secret->source, sizeof secret->source, "%s", source);
    return secret;
}

void ddl_secret_destroy(ddl_secret *secret)
{
    ddl_guarded_free(secret, sizeof *secret);
}

ddl_view ddl_secret_view(const ddl_secret *secret)
{
    return (ddl_view){ secret->data, secret->bytes };
}

const char *ddl_secret_source(const ddl_secret *secret)
{
    return secret->source;
}

/* What was taken in is a secret only now. */
static ddl_status settle(ddl_secret *secret, ddl_secret **out, ddl_error *err)
{
    if (secret->bytes > 0 && secret->data[secret->bytes - 1] == '\n')
        secret->bytes--;
    if (secret->bytes > 0 && secret->data[secret->bytes - 1] == '\r')
        secret->bytes--;
    if (secret->bytes >= DDL_SECRET_LEAST && secret->bytes <= DDL_SECRET_MOST) {
        *out = secret;
        return DDL_OK;
    }
    ddl_status status = DDL_FAIL(
        err, DDL_ECONFIG, "the secret %s has %s than %d bytes; a good one is made by: openssl rand -hex 32",
        secret->source, secret->bytes < DDL_SECRET_LEAST ? "less" : "more",
        secret->bytes < DDL_SECRET_LEAST ? DDL_SECRET_LEAST : DDL_SECRET_MOST);
    ddl_secret_destroy(secret);
    return status;
}

ddl_status ddl_secret_create(ddl_view content, const char *source, ddl_secret **out, ddl_error *err)
{
    ddl_secret *secret = allocate(source, err);
    if (secret == NULL)
        return DDL_ENOMEM;
    secret->bytes = content.bytes < sizeof secret->data ? content.bytes : sizeof secret->data;
    memcpy(secret->data, content.data, secret->bytes);
    return settle(secret, out, err);
}

ddl_status ddl_secret_make(const char *source, ddl_secret **out, ddl_error *err)
{
    static const char digits[] = "0123456789abcdef";
    ddl_secret *secret = allocate(source, err);
    if (secret == NULL)
        return DDL_ENOMEM;
    ddl_status status = ddl_host_random(secret->data, RANDOM_BYTES, err);
    if (status != DDL_OK) {
        ddl_secret_destroy(secret);
        return status;
    }
    for (int i = RANDOM_BYTES - 1; i >= 0; i--) {
        uint8_t value = secret->data[i];
        secret->data[2 * i] = (uint8_t)digits[value >> 4];
        secret->data[2 * i + 1] = (uint8_t)digits[value & 15];
    }
    secret->bytes = DDL_SECRET_TEXT;
    *out = secret;
    return DDL_OK;
}

/* ---- files ---- */

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
    ddl_secret *secret = allocate(source, err);
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
    return settle(secret, out, err);
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

/* The file "secret" in a folder that is ours; *secret is NULL if there is none and none may be made. */
static ddl_status read_in_folder(int folder, const char *path, bool may_make, bool *made, ddl_secret **secret,
                                 ddl_error *err)
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

/* ---- folders ---- */

/* A directory of ours to which others have no more than these rights; -1 with errno, EPERM if it is another.
 */
static int open_folder(const char *path, bool may_make, unsigned forbidden)
{
    struct stat facts;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && may_make) {
        if (DDL_FAILPOINT_OS("rendezvous.mkdir", EACCES) || (mkdir(path, 0700) != 0 && errno != EEXIST))
            return -1;
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0)
        return -1;
    if (fstat(fd, &facts) == 0 && facts.st_uid == geteuid() && (facts.st_mode & forbidden) == 0)
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

static ddl_status fail_at_folder(const char *path, ddl_error *err)
{
    if (errno == EPERM || errno == ENOTDIR || errno == ELOOP)
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "%s, which holds the secret of your jobs, must be a directory that belongs to you and "
            "that nobody else can write to; or name a file in DDL_SECRET_FILE",
            path);
    return DDL_FAIL_OS(err, DDL_ECONFIG, errno,
                       "cannot use %s, which holds the secret of your jobs; name a file in DDL_SECRET_FILE",
                       path);
}

static bool find_home(char *home, size_t home_bytes)
{
    const char *named = getenv("HOME");
    struct passwd entry, *found = NULL;
    char buffer[2048];
    if (named == NULL || named[0] != '/') {
        if (getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &found) != 0 || found == NULL ||
            entry.pw_dir[0] != '/')
            return false;
        named = entry.pw_dir;
    }
    return (size_t)snprintf(home, home_bytes, "%s", named) < home_bytes;
}

bool ddl_secret_is_of_home(const char *source, char path[DDL_SECRET_PATH])
{
    static const char file[] = "/.ddl/secret", read_from[] = "read from ";
    if (!find_home(path, DDL_SECRET_PATH - sizeof file) ||
        strncmp(source, read_from, sizeof read_from - 1) != 0)
        return false;
    strcat(path, file);
    const char *named = source + sizeof read_from - 1;
    const size_t bytes = strlen(path), named_bytes = strcspn(named, ",");
    const bool is_cut_off = strlen(source) == DDL_SECRET_SOURCE - 1;
    if (is_cut_off && named_bytes < bytes && strncmp(named, path, named_bytes) == 0) {
        path[0] = '\0';
        return true;
    }
    return strncmp(named, path, bytes) == 0 && (named[bytes] == '\0' || named[bytes] == ',');
}

/* The name is to be read whole, and so is what is said behind it of who handed the secret over. */
static void tell_job(const char *of, const char *job, char source[DDL_SECRET_SOURCE])
{
    enum { NAME = 64, BEHIND = 32 };
    char named[NAME + 32];
    snprintf(named, sizeof named, ", for --rdzv_id %.*s", NAME, job);
    snprintf(source, DDL_SECRET_SOURCE, "%.*s%s", DDL_SECRET_SOURCE - 1 - BEHIND - (int)strlen(named), of,
             named);
}

ddl_status ddl_secret_name_job(ddl_secret **secret, const char *job, ddl_error *err)
{
    static const char between[] = "\n--rdzv_id ";
    char source[DDL_SECRET_SOURCE];
    if (job == NULL)
        return DDL_OK;
    ddl_secret *plain = *secret;
    const size_t bytes = plain->bytes + sizeof between - 1 + strlen(job);
    uint8_t *named = ddl_guarded_alloc(bytes);
    ddl_status status = DDL_FAIL(err, DDL_ENOMEM, "no memory for a secret");
    *secret = NULL;
    if (named != NULL) {
        memcpy(named, plain->data, plain->bytes);
        memcpy(named + plain->bytes, between, sizeof between - 1);
        memcpy(named + plain->bytes + sizeof between - 1, job, strlen(job));
        tell_job(plain->source, job, source);
        status = ddl_secret_create((ddl_view){ named, bytes }, source, secret, err);
        ddl_guarded_free(named, bytes);
    }
    ddl_secret_destroy(plain);
    return status;
}

/* As a shell reads it as it was. */
static void put_in_words(const char *path, char *text)
{
    static const char special[] = " \t!\"#$&'()*;<=>?[\\]^`{|}~";
    for (; *path != '\0'; path++) {
        if (strchr(special, *path) != NULL)
            *text++ = '\\';
        *text++ = *path;
    }
    *text = '\0';
}

void ddl_secret_errand(const char *host, const char *path, char errand[DDL_SECRET_ERRAND])
{
    char words[2 * DDL_SECRET_PATH], own[DDL_HOST_NAME_TEXT];
    ddl_address address;
    if (strcasecmp(host, "localhost") == 0 ||
        (ddl_address_parse(host, 0, &address) && ddl_address_is_loopback(&address))) {
        ddl_host_name(own);
        host = own;
    }
    bool v6 = strchr(host, ':') != NULL;
    put_in_words(path, words);
    snprintf(errand, DDL_SECRET_ERRAND, "(umask 077; mkdir -p ~/.ddl && scp %s%.256s%s:%s ~/.ddl/secret)",
             v6 ? "[" : "", host, v6 ? "]" : "", words);
}

/* A network file system may answer from memory; opening a folder makes it look anew. */
static void refresh(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
}

ddl_status ddl_secret_of_home(bool may_make, char path[DDL_SECRET_PATH], bool *made, ddl_secret **secret,
                              ddl_error *err)
{
    char home[DDL_SECRET_PATH - 40], folder_path[DDL_SECRET_PATH - 10];
    bool made_here = false;
    *secret = NULL;
    if (!find_home(home, sizeof home))
        return DDL_FAIL(err, DDL_ECONFIG,
                        "no secret for this job: there is no home directory to keep one in; name a file in "
                        "DDL_SECRET_FILE");
    snprintf(folder_path, sizeof folder_path, "%s/.ddl", home);
    snprintf(path, DDL_SECRET_PATH, "%s/secret", folder_path);
    refresh(home);
    int folder = open_folder(folder_path, may_make, S_IWGRP | S_IWOTH);
    if (folder < 0 && errno == ENOENT && !may_make)
        return DDL_OK;
    if (folder < 0)
        return fail_at_folder(folder_path, err);
    ddl_status status = read_in_folder(folder, path, may_make, &made_here, secret, err);
    close(folder);
    if (made != NULL)
        *made = made_here;
    return status;
}

ddl_status ddl_secret_of_host(ddl_secret **secret, ddl_error *err)
{
    const char *named = getenv("XDG_RUNTIME_DIR");
    char base[DDL_SECRET_PATH - 30], folder_path[DDL_SECRET_PATH - 20], path[DDL_SECRET_PATH];
    int folder = -1;
    bool made;
    for (int i = 0; i < 2 && folder < 0; i++) {
        if (i == 0 && (named == NULL || named[0] != '/' || strlen(named) >= sizeof base))
            continue;
        if (i == 0)
            snprintf(base, sizeof base, "%s", named);
        else
            snprintf(base, sizeof base, "/run/user/%ld", (long)geteuid());
        int base_fd = open_folder(base, false, 077);
        if (base_fd < 0)
            continue;
        close(base_fd);
        snprintf(folder_path, sizeof folder_path, "%s/ddl", base);
        folder = open_folder(folder_path, true, 077);
    }
    if (folder < 0) {
        snprintf(folder_path, sizeof folder_path, "/tmp/ddl-%ld", (long)geteuid());
        folder = open_folder(folder_path, true, 077);
    }
    if (folder < 0)
        return fail_at_folder(folder_path, err);
    snprintf(path, sizeof path, "%s/secret", folder_path);
    ddl_status status = read_in_folder(folder, path, true, &made, secret, err);
    close(folder);
    return status;
}
