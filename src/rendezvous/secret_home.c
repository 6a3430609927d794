/* secret_home.c - the folders of this user in which a secret is kept: at home, and on this host. */
#include "rendezvous/secret_parts.h"

#include "base/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    ddl_status status = ddl_secret_read_in_folder(folder, path, may_make, &made_here, secret, err);
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
    ddl_status status = ddl_secret_read_in_folder(folder, path, true, &made, secret, err);
    close(folder);
    return status;
}
