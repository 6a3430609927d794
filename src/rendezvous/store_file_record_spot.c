/* store_file_record_spot.c - the way to a record, folder by folder. */
#include "rendezvous/store_file_record_spot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* For a step on the way: a file server is to be asked no more than by a call with the whole path. glibc has
 * no O_SEARCH, and what it has for that under this name alone, unless it is asked for all of Linux. */
#ifndef O_SEARCH
#ifdef __O_PATH
#define O_SEARCH __O_PATH
#else
#define O_SEARCH O_RDONLY
#endif
#endif

bool ddl_record_is_ours(const struct stat *info)
{
    return S_ISDIR(info->st_mode) && info->st_uid == geteuid() && (info->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Open the folder named by the first bytes of text. */
static int step_to(int folder, const char *text, size_t bytes, int flags)
{
    char name[DDL_RECORD_PATH];
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    return openat(folder, bytes > 0 ? name : ".", O_SEARCH | O_DIRECTORY | O_CLOEXEC | flags);
}

static int step_to_ours(int folder, const char *text, size_t bytes)
{
    struct stat info;
    const int inner = step_to(folder, text, bytes, O_NOFOLLOW);
    if (inner < 0 && (errno == ENOTDIR || errno == ELOOP || errno == EMLINK)) /* a link, as systems differ */
        errno = EPERM;
    if (inner < 0 || (fstat(inner, &info) == 0 && ddl_record_is_ours(&info)))
        return inner;
    close(inner);
    errno = EPERM;
    return -1;
}

static bool is_place(const char *name)
{
    return strncmp(name, DDL_RECORD_PLACE, sizeof DDL_RECORD_PLACE - 1) == 0;
}

/* The first of the names from which on folders have to be ours. That of the directory may look like one, too.
 */
static const char *find_place(const ddl_record_spot *spot)
{
    const char *place = spot->name;
    for (const char *at = spot->path; at < spot->name && !is_place(spot->name); at = strchr(at, '/') + 1)
        if (is_place(at))
            place = at;
    return place;
}

bool ddl_record_spot_open(ddl_record_spot *spot, const char *path)
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    if (bytes >= sizeof spot->path) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(spot->path, path, bytes);
    spot->path[bytes] = '\0';
    const char *slash = strrchr(spot->path, '/');
    spot->name = slash != NULL ? slash + 1 : spot->path;
    const char *at = find_place(spot);
    spot->folder = step_to(AT_FDCWD, spot->path, (size_t)(at - spot->path), 0);
    while (spot->folder >= 0 && at < spot->name) {
        const char *end = strchr(at, '/');
        const int inner = step_to_ours(spot->folder, at, (size_t)(end - at));
        ddl_record_spot_close(spot);
        spot->folder = inner;
        at = end + 1;
    }
    return spot->folder >= 0;
}

void ddl_record_spot_close(const ddl_record_spot *spot)
{
    const int error = errno;
    close(spot->folder);
    errno = error;
}
