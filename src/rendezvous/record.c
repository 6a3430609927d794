/*
 * record.c - small files that are whole or not there.
 *
 * Layout: 0 magic 4 | 4 content bytes 4 | 8 FNV-1a-64 of the content 8 | 16 content.
 */
#include "rendezvous/record.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "io/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_BYTES = 16, LOCK_TRIES = 100 };

static const uint8_t magic[4] = { 'd', 'd', 'l', 'F' };

static uint64_t checksum(const uint8_t *data, size_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static ddl_status complain(ddl_error *err, const char *call, const char *path)
{
    return DDL_FAIL_OS(err, DDL_ESTORE, errno, "file store: %s %s failed", call, path);
}

static bool write_all(int fd, const uint8_t *data, size_t bytes)
{
    if (!ddl_host_may_write(bytes))
        return false;
    while (bytes > 0) {
        ssize_t count = DDL_FAILPOINT_OS("rendezvous.write", ENOSPC) ? -1 : write(fd, data, bytes);
        if (count == 0) /* says no system; and yet nobody is to try for ever */
            errno = EIO;
        if (count == 0 || (count < 0 && errno != EINTR))
            return false;
        if (count > 0) {
            data += count;
            bytes -= (size_t)count;
        }
    }
    return true;
}

static ddl_status check_written(const char *path, ddl_view content, ddl_error *err)
{
    ddl_bytes back = { 0 };
    bool found = false;
    DDL_TRY(ddl_record_read(path, content.bytes, &back, &found, err));
    bool same = found && back.bytes == content.bytes &&
                (back.bytes == 0 || memcmp(back.data, content.data, back.bytes) == 0);
    ddl_bytes_fini(&back);
    if (!same)
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s does not hold what was written to it", path);
    return DDL_OK;
}

/* Write a record under a fresh name beside path. */
static ddl_status write_beside(const char *path, ddl_view content, char beside[DDL_RECORD_PATH + 32],
                               ddl_error *err)
{
    ddl_bytes record = { 0 };
    uint8_t head[HEAD_BYTES], unique[8];
    int fd = -1;
    DDL_TRY(ddl_host_random(unique, sizeof unique, err));
    snprintf(beside, DDL_RECORD_PATH + 32, "%s.new-%08x%08x", path, (unsigned)ddl_get_u32(unique),
             (unsigned)ddl_get_u32(unique + 4));
    memcpy(head, magic, sizeof magic);
    ddl_put_u32(head + 4, (uint32_t)content.bytes);
    ddl_put_u64(head + 8, checksum(content.data, content.bytes));
    if (!ddl_bytes_append(&record, head, sizeof head) ||
        !ddl_bytes_append(&record, content.data, content.bytes)) {
        ddl_bytes_fini(&record);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a record of %zu bytes", content.bytes);
    }
    ddl_status status = DDL_OK;
    if (DDL_FAILPOINT_OS("rendezvous.open", EACCES) ||
        (fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)) < 0) {
        status = complain(err, "creating", beside);
    } else {
        /* Full disks and lost servers show here, at the latest; how it survives a crash is of no interest. */
        if (!write_all(fd, record.data, record.bytes) || DDL_FAILPOINT_OS("rendezvous.fsync", EIO) ||
            fsync(fd) != 0)
            status = complain(err, "writing", beside);
        if (close(fd) != 0 && status == DDL_OK)
            status = complain(err, "closing", beside);
        if (status != DDL_OK)
            unlink(beside);
    }
    ddl_bytes_fini(&record);
    return status;
}

/* A network file system may do what it was asked, and report the failure of its second attempt. */
static bool was_linked(const char *beside)
{
    struct stat info;
    return lstat(beside, &info) == 0 && info.st_nlink == 2;
}

static bool make_link(const char *beside, const char *path)
{
    if (DDL_FAILPOINT_OS("rendezvous.link", EACCES))
        return false;
    bool linked = link(beside, path) == 0 && !DDL_FAILPOINT_OS("rendezvous.linked", EEXIST);
    return linked || was_linked(beside);
}

ddl_status ddl_record_create(const char *path, ddl_view content, bool *created, ddl_error *err)
{
    char beside[DDL_RECORD_PATH + 32];
    struct stat info;
    if (lstat(path, &info) == 0) { /* spares the writing; link decides */
        *created = false;
        return DDL_OK;
    }
    DDL_TRY(write_beside(path, content, beside, err));
    ddl_status status = DDL_OK;
    *created = true;
    if (!make_link(beside, path)) {
        *created = false;
        if (errno != EEXIST)
            status = complain(err, "linking", path);
    }
    unlink(beside);
    if (status == DDL_OK && *created)
        status = check_written(path, content, err);
    return status;
}

ddl_status ddl_record_replace(const char *path, ddl_view content, ddl_error *err)
{
    char beside[DDL_RECORD_PATH + 32];
    DDL_TRY(write_beside(path, content, beside, err));
    if (DDL_FAILPOINT_OS("rendezvous.rename", EACCES) || rename(beside, path) != 0) {
        ddl_status status = complain(err, "renaming to", path);
        unlink(beside);
        return status;
    }
    return check_written(path, content, err);
}

/* At most bytes; fewer at the end of the file. -1 with errno. */
static ssize_t read_all(int fd, uint8_t *data, size_t bytes)
{
    size_t have = 0;
    while (have < bytes) {
        const bool fails =
            DDL_FAILPOINT_OS("rendezvous.read", EIO) || DDL_FAILPOINT_OS("rendezvous.stale", ESTALE);
        ssize_t count = fails ? -1 : read(fd, data + have, bytes - have);
        if (count < 0 && errno != EINTR)
            return -1;
        if (count == 0)
            break;
        if (count > 0)
            have += (size_t)count;
    }
    return (ssize_t)have;
}

/* A network file system says ESTALE of a file that was replaced or removed, also where it was open before. */
static ddl_status complain_unless_gone(ddl_error *err, const char *call, const char *path)
{
    return errno == ENOENT || errno == ESTALE ? DDL_OK : complain(err, call, path);
}

static ddl_status read_record(int fd, const char *path, size_t limit, ddl_bytes *content, bool *found,
                              ddl_error *err)
{
    struct stat info;
    if (DDL_FAILPOINT_OS("rendezvous.stale", ESTALE) || fstat(fd, &info) != 0)
        return complain_unless_gone(err, "looking at", path);
    if (!S_ISREG(info.st_mode) || info.st_size < 0 || (uint64_t)info.st_size > (uint64_t)limit + HEAD_BYTES)
        return DDL_FAIL_OS(err, DDL_ESTORE, EBADMSG, "file store: %s is no record of ours", path);
    size_t bytes = (size_t)info.st_size;
    uint8_t *data = ddl_alloc(bytes);
    if (data == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a record of %zu bytes", bytes);
    ssize_t have = read_all(fd, data, bytes);
    ddl_status status = have < 0 ? complain_unless_gone(err, "reading", path) : DDL_OK;
    bool whole = have >= HEAD_BYTES && memcmp(data, magic, sizeof magic) == 0 &&
                 ddl_get_u32(data + 4) == (size_t)have - HEAD_BYTES &&
                 ddl_get_u64(data + 8) == checksum(data + HEAD_BYTES, (size_t)have - HEAD_BYTES);
    if (status == DDL_OK && whole) {
        if (!ddl_bytes_append(content, data + HEAD_BYTES, (size_t)have - HEAD_BYTES))
            status = DDL_FAIL(err, DDL_ENOMEM, "no memory for a record of %zu bytes", bytes);
        *found = status == DDL_OK;
    }
    ddl_free(data);
    return status;
}

ddl_status ddl_record_read(const char *path, size_t limit, ddl_bytes *content, bool *found, ddl_error *err)
{
    *found = false;
    /* O_NONBLOCK: a pipe planted there must not hold us. */
    int fd = DDL_FAILPOINT_OS("rendezvous.stale", ESTALE)
                 ? -1
                 : open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return complain_unless_gone(err, "opening", path);
    ddl_status status = read_record(fd, path, limit, content, found, err);
    close(fd);
    return status;
}

ddl_status ddl_record_folder(const char *path, ddl_error *err)
{
    struct stat info;
    if (DDL_FAILPOINT_OS("rendezvous.mkdir", EACCES) || (mkdir(path, 0700) != 0 && errno != EEXIST))
        return complain(err, "making directory", path);
    if (lstat(path, &info) != 0)
        return complain(err, "looking at", path);
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return DDL_FAIL(
            err, DDL_ESTORE,
            "file store: %s must be a directory that belongs to you and that nobody else can write to", path);
    return DDL_OK;
}

ddl_status ddl_record_new_folder(const char *path, ddl_error *err)
{
    if (DDL_FAILPOINT_OS("rendezvous.mkdir", EACCES))
        return complain(err, "making directory", path);
    bool made = mkdir(path, 0700) == 0;
    /* A network file system may do what it was asked, and report the failure of its second attempt. What has
     * something in it no such attempt made. */
    if (!made && errno == EEXIST) {
        if (rmdir(path) != 0)
            errno = errno == ENOENT ? ENOENT : EEXIST;
        else
            made = mkdir(path, 0700) == 0;
    }
    return made ? DDL_OK : complain(err, "making directory", path);
}

DIR *ddl_record_list(const char *path)
{
    int fd = DDL_FAILPOINT_OS("rendezvous.list", ESTALE)
                 ? -1
                 : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL && fd >= 0)
        close(fd);
    return folder;
}

static void remove_tree(const char *path, int depth)
{
    DIR *folder = depth > 0 ? ddl_record_list(path) : NULL;
    for (struct dirent *item; folder != NULL && (item = readdir(folder)) != NULL;) {
        char inner[DDL_RECORD_PATH];
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0 ||
            (size_t)snprintf(inner, sizeof inner, "%s/%s", path, item->d_name) >= sizeof inner)
            continue;
        if (unlink(inner) != 0)
            remove_tree(inner, depth - 1);
    }
    if (folder != NULL)
        closedir(folder);
    rmdir(path);
}

void ddl_record_remove_tree(const char *path)
{
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
        remove_tree(path, 3);
}

/* The file that was locked may have been removed, and made anew, between opening and locking. */
static bool still_there(int fd, const char *path)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && lstat(path, &named) == 0 && open_file.st_ino == named.st_ino &&
           open_file.st_dev == named.st_dev;
}

ddl_status ddl_record_lock(const char *path, int *out, bool *held, ddl_error *err)
{
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        int fd = -1;
        if (DDL_FAILPOINT_OS("rendezvous.open", EACCES) ||
            (fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)) < 0)
            return complain(err, "opening", path);
        if (!DDL_FAILPOINT("rendezvous.flock") && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(fd);
            *held = false;
            return DDL_OK;
        }
        /* A file system without locks cannot show who lives; all else works there. */
        if (still_there(fd, path)) {
            *out = fd;
            *held = true;
            return DDL_OK;
        }
        close(fd);
    }
    return DDL_FAIL(err, DDL_ESTORE, "file store: %s was replaced %d times while it was being locked", path,
                    LOCK_TRIES);
}

ddl_record_life ddl_record_life_of(const char *path)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? DDL_RECORD_ENDED : DDL_RECORD_UNKNOWN;
    ddl_record_life life = DDL_RECORD_ENDED;
    if (DDL_FAILPOINT_OS("rendezvous.flock", ENOLCK) || flock(fd, LOCK_SH | LOCK_NB) != 0)
        life = errno == EWOULDBLOCK ? DDL_RECORD_LIVES : DDL_RECORD_UNKNOWN;
    close(fd); /* and with it the lock that this took, if it did */
    return life;
}
