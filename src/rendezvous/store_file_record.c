/*
 * store_file_record.c - small files that are whole or not there.
 *
 * Layout: 0 magic 4 | 4 content bytes 4 | 8 FNV-1a-64 of the content 8 | 16 content.
 */
#include "rendezvous/store_file_record.h"

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

/* ESTALE is what a network file system says of a folder that was removed while it was open. */
static int os_errno(void)
{
    return errno == ESTALE ? ENOENT : errno;
}

static ddl_status complain(ddl_error *err, const char *call, const char *path)
{
    return DDL_FAIL_OS(err, DDL_ESTORE, os_errno(), "file store: %s %s failed", call, path);
}

static ddl_status open_spot(ddl_record_spot *spot, const char *path, ddl_error *err)
{
    if (ddl_record_spot_open(spot, path))
        return DDL_OK;
    if (errno == EPERM)
        return DDL_FAIL_OS(
            err, DDL_ESTORE, EPERM,
            "file store: somebody has put a link, or what is not yours alone, in the way to %s", path);
    return complain(err, "opening the folder of", path);
}

/* ---- reading ---- */

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
    return os_errno() == ENOENT ? DDL_OK : complain(err, call, path);
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

static ddl_status read_at(const ddl_record_spot *spot, size_t limit, ddl_bytes *content, bool *found,
                          ddl_error *err)
{
    *found = false;
    /* O_NONBLOCK: a pipe planted there must not hold us. */
    int fd = DDL_FAILPOINT_OS("rendezvous.stale", ESTALE)
                 ? -1
                 : openat(spot->folder, spot->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return complain_unless_gone(err, "opening", spot->path);
    ddl_status status = read_record(fd, spot->path, limit, content, found, err);
    close(fd);
    return status;
}

ddl_status ddl_record_read(const char *path, size_t limit, ddl_bytes *content, bool *found, ddl_error *err)
{
    ddl_record_spot spot;
    ddl_error why;
    *found = false;
    ddl_status status = open_spot(&spot, path, &why);
    if (status != DDL_OK && why.os_errno == ENOENT)
        return DDL_OK;
    if (status != DDL_OK) {
        if (err != NULL)
            *err = why;
        return status;
    }
    status = read_at(&spot, limit, content, found, err);
    ddl_record_spot_close(&spot);
    return status;
}

/* ---- writing ---- */

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

/* A fresh name beside a record. */
enum { BESIDE = DDL_RECORD_PATH + 32 };

static ddl_status write_beside(const ddl_record_spot *spot, ddl_view content, char beside[BESIDE],
                               ddl_error *err)
{
    ddl_bytes record = { 0 };
    uint8_t head[HEAD_BYTES], unique[8];
    int fd = -1;
    DDL_TRY(ddl_host_random(unique, sizeof unique, err));
    snprintf(beside, BESIDE, "%s" DDL_RECORD_NEW "%08x%08x", spot->name, (unsigned)ddl_get_u32(unique),
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
        (fd = openat(spot->folder, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)) < 0) {
        status = complain(err, "creating", spot->path);
    } else {
        /* Full disks and lost servers show here, at the latest; how it survives a crash is of no interest. */
        if (!write_all(fd, record.data, record.bytes) || DDL_FAILPOINT_OS("rendezvous.fsync", EIO) ||
            fsync(fd) != 0)
            status = complain(err, "writing", spot->path);
        if (close(fd) != 0 && status == DDL_OK)
            status = complain(err, "closing", spot->path);
        if (status != DDL_OK)
            unlinkat(spot->folder, beside, 0);
    }
    ddl_bytes_fini(&record);
    return status;
}

/* A network file system may do what it was asked, and report the failure of its second attempt. */
static bool was_linked(const ddl_record_spot *spot, const char *beside)
{
    struct stat info;
    return fstatat(spot->folder, beside, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_nlink == 2;
}

static bool make_link(const ddl_record_spot *spot, const char *beside)
{
    if (DDL_FAILPOINT_OS("rendezvous.link", EACCES))
        return false;
    bool linked = linkat(spot->folder, beside, spot->folder, spot->name, 0) == 0 &&
                  !DDL_FAILPOINT_OS("rendezvous.linked", EEXIST);
    return linked || was_linked(spot, beside);
}

static ddl_status check_written(const ddl_record_spot *spot, ddl_view content, ddl_error *err)
{
    ddl_bytes back = { 0 };
    bool found = false;
    DDL_TRY(read_at(spot, content.bytes, &back, &found, err));
    bool same = found && back.bytes == content.bytes &&
                (back.bytes == 0 || memcmp(back.data, content.data, back.bytes) == 0);
    ddl_bytes_fini(&back);
    if (!same)
        return DDL_FAIL(err, DDL_ESTORE, "file store: %s does not hold what was written to it", spot->path);
    return DDL_OK;
}

static ddl_status create_at(const ddl_record_spot *spot, ddl_view content, bool *created, ddl_error *err)
{
    char beside[BESIDE];
    struct stat info;
    *created = false;
    if (fstatat(spot->folder, spot->name, &info, AT_SYMLINK_NOFOLLOW) ==
        0) /* spares the writing; link decides */
        return DDL_OK;
    DDL_TRY(write_beside(spot, content, beside, err));
    ddl_status status = DDL_OK;
    *created = make_link(spot, beside);
    if (!*created && errno != EEXIST)
        status = complain(err, "linking", spot->path);
    unlinkat(spot->folder, beside, 0);
    if (status == DDL_OK && *created)
        status = check_written(spot, content, err);
    return status;
}

ddl_status ddl_record_create(const char *path, ddl_view content, bool *created, ddl_error *err)
{
    ddl_record_spot spot;
    DDL_TRY(open_spot(&spot, path, err));
    ddl_status status = create_at(&spot, content, created, err);
    ddl_record_spot_close(&spot);
    return status;
}

static ddl_status replace_at(const ddl_record_spot *spot, ddl_view content, ddl_error *err)
{
    char beside[BESIDE];
    DDL_TRY(write_beside(spot, content, beside, err));
    if (DDL_FAILPOINT_OS("rendezvous.rename", EACCES) ||
        renameat(spot->folder, beside, spot->folder, spot->name) != 0) {
        ddl_status status = complain(err, "renaming to", spot->path);
        unlinkat(spot->folder, beside, 0);
        return status;
    }
    return check_written(spot, content, err);
}

ddl_status ddl_record_replace(const char *path, ddl_view content, ddl_error *err)
{
    ddl_record_spot spot;
    DDL_TRY(open_spot(&spot, path, err));
    ddl_status status = replace_at(&spot, content, err);
    ddl_record_spot_close(&spot);
    return status;
}

int ddl_record_touch(const char *path)
{
    ddl_record_spot spot;
    if (!ddl_record_spot_open(&spot, path))
        return os_errno();
    const int fd = openat(spot.folder, spot.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    const int error = fd >= 0 ? 0 : os_errno();
    if (fd >= 0)
        close(fd);
    ddl_record_spot_close(&spot);
    return error;
}

int ddl_record_remove(const char *path)
{
    ddl_record_spot spot;
    if (!ddl_record_spot_open(&spot, path))
        return os_errno();
    const int error = unlinkat(spot.folder, spot.name, 0) == 0 ? 0 : os_errno();
    ddl_record_spot_close(&spot);
    return error;
}

/* ---- folders ---- */

static ddl_status make_folder(const ddl_record_spot *spot, ddl_error *err)
{
    struct stat info;
    if (DDL_FAILPOINT_OS("rendezvous.mkdir", EACCES) ||
        (mkdirat(spot->folder, spot->name, 0700) != 0 && errno != EEXIST))
        return complain(err, "making directory", spot->path);
    if (fstatat(spot->folder, spot->name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return complain(err, "looking at", spot->path);
    if (!ddl_record_is_ours(&info))
        return DDL_FAIL(
            err, DDL_ESTORE,
            "file store: %s must be a directory that belongs to you and that nobody else can write to",
            spot->path);
    return DDL_OK;
}

ddl_status ddl_record_folder(const char *path, ddl_error *err)
{
    ddl_record_spot spot;
    DDL_TRY(open_spot(&spot, path, err));
    ddl_status status = make_folder(&spot, err);
    ddl_record_spot_close(&spot);
    return status;
}

static ddl_status make_new_folder(const ddl_record_spot *spot, ddl_error *err)
{
    if (DDL_FAILPOINT_OS("rendezvous.mkdir", EACCES))
        return complain(err, "making directory", spot->path);
    bool made = mkdirat(spot->folder, spot->name, 0700) == 0;
    /* A network file system may do what it was asked, and report the failure of its second attempt. What has
     * something in it no such attempt made. */
    if (!made && errno == EEXIST) {
        if (unlinkat(spot->folder, spot->name, AT_REMOVEDIR) != 0)
            errno = errno == ENOENT ? ENOENT : EEXIST;
        else
            made = mkdirat(spot->folder, spot->name, 0700) == 0;
    }
    return made ? DDL_OK : complain(err, "making directory", spot->path);
}

ddl_status ddl_record_new_folder(const char *path, ddl_error *err)
{
    ddl_record_spot spot;
    DDL_TRY(open_spot(&spot, path, err));
    ddl_status status = make_new_folder(&spot, err);
    ddl_record_spot_close(&spot);
    return status;
}

/* NULL with errno; EPERM: it is not ours. */
static DIR *list_in(int parent, const char *name)
{
    struct stat info;
    int fd = DDL_FAILPOINT_OS("rendezvous.list", ESTALE)
                 ? -1
                 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool ours = fd >= 0 && fstat(fd, &info) == 0 && ddl_record_is_ours(&info);
    DIR *folder = ours ? fdopendir(fd) : NULL;
    if (folder == NULL && fd >= 0)
        close(fd);
    if (fd >= 0 && !ours)
        errno = EPERM;
    return folder;
}

DIR *ddl_record_list(const char *path)
{
    ddl_record_spot spot;
    if (!ddl_record_spot_open(&spot, path))
        return NULL;
    DIR *folder = list_in(spot.folder, spot.name);
    ddl_record_spot_close(&spot);
    return folder;
}

/* By descriptors all the way: what a name stands for may change meanwhile, what is open may not. */
static void remove_tree(int parent, const char *name, int depth)
{
    DIR *folder = depth > 0 ? list_in(parent, name) : NULL;
    if (folder == NULL)
        return;
    for (struct dirent *item; (item = readdir(folder)) != NULL;) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(folder), item->d_name, 0) != 0)
            remove_tree(dirfd(folder), item->d_name, depth - 1);
    }
    closedir(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

void ddl_record_remove_tree(const char *path)
{
    ddl_record_spot spot;
    if (!ddl_record_spot_open(&spot, path))
        return;
    remove_tree(spot.folder, spot.name, 3);
    ddl_record_spot_close(&spot);
}

/* ---- locks ---- */

/* The file that was locked may have been removed, and made anew, between opening and locking. */
static bool still_there(int fd, const ddl_record_spot *spot)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 &&
           fstatat(spot->folder, spot->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

static ddl_status lock_at(const ddl_record_spot *spot, int *out, bool *held, ddl_error *err)
{
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        int fd = -1;
        if (DDL_FAILPOINT_OS("rendezvous.open", EACCES) ||
            (fd = openat(spot->folder, spot->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)) < 0)
            return complain(err, "opening", spot->path);
        if (!DDL_FAILPOINT("rendezvous.flock") && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(fd);
            *held = false;
            return DDL_OK;
        }
        /* A file system without locks cannot show who lives; all else works there. */
        if (still_there(fd, spot)) {
            *out = fd;
            *held = true;
            return DDL_OK;
        }
        close(fd);
    }
    return DDL_FAIL(err, DDL_ESTORE, "file store: %s was replaced %d times while it was being locked",
                    spot->path, LOCK_TRIES);
}

ddl_status ddl_record_lock(const char *path, int *fd, bool *held, ddl_error *err)
{
    ddl_record_spot spot;
    DDL_TRY(open_spot(&spot, path, err));
    ddl_status status = lock_at(&spot, fd, held, err);
    ddl_record_spot_close(&spot);
    return status;
}

ddl_record_life ddl_record_life_of(const char *path)
{
    ddl_record_spot spot;
    int fd = -1;
    if (ddl_record_spot_open(&spot, path)) {
        fd = openat(spot.folder, spot.name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        ddl_record_spot_close(&spot);
    }
    if (fd < 0)
        return os_errno() == ENOENT ? DDL_RECORD_ENDED : DDL_RECORD_UNKNOWN;
    ddl_record_life life = DDL_RECORD_ENDED;
    if (DDL_FAILPOINT_OS("rendezvous.flock", ENOLCK) || flock(fd, LOCK_SH | LOCK_NB) != 0)
        life = errno == EWOULDBLOCK ? DDL_RECORD_LIVES : DDL_RECORD_UNKNOWN;
    close(fd); /* and with it the lock that this took, if it did */
    return life;
}
