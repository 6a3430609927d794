/* program.c - looking for a program as a shell does, and saying what is wrong with it. */
#include "program.h"

#include "base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_executable(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0;
}

int launch_program_exit_code(int os_errno)
{
    return os_errno == ENOENT || os_errno == ENOTDIR ? LAUNCH_EXIT_NOT_FOUND : LAUNCH_EXIT_NOT_EXECUTABLE;
}

static ddl_status find_path(const char *name, char **path, int *exit_code, ddl_error *err)
{
    struct stat file;
    if (stat(name, &file) != 0) {
        *exit_code = launch_program_exit_code(errno);
        return DDL_FAIL_OS(err, DDL_ECONFIG, errno, "cannot start %.200s", name);
    }
    if (!is_executable(name)) {
        *exit_code = LAUNCH_EXIT_NOT_EXECUTABLE;
        if (S_ISDIR(file.st_mode))
            return DDL_FAIL(err, DDL_ECONFIG, "cannot start %.200s: it is a directory", name);
        return DDL_FAIL(err, DDL_ECONFIG,
                        "cannot start %.200s: it is not executable; use chmod +x, or name what "
                        "runs it first (python3 train.py)",
                        name);
    }
    if ((*path = ddl_text_copy(name)) == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the name of the program");
    return DDL_OK;
}

ddl_status launch_program_find(const char *name, const char *search, char **path, int *exit_code,
                               ddl_error *err)
{
    *exit_code = LAUNCH_EXIT_NOT_FOUND;
    if (strchr(name, '/') != NULL)
        return find_path(name, path, exit_code, err);
    if (name[0] == '\0')
        return DDL_FAIL(err, DDL_ECONFIG, "the name of the program is empty");
    if (search == NULL)
        search = "/usr/local/bin:/usr/bin:/bin";
    size_t longest = strlen(search) + strlen(name) + 4;
    char *candidate = ddl_alloc(longest);
    if (candidate == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for the name of the program");
    const char *at = search;
    for (;;) {
        int bytes = (int)strcspn(at, ":");
        snprintf(candidate, longest, "%.*s/%s", bytes > 0 ? bytes : 1, bytes > 0 ? at : ".", name);
        if (is_executable(candidate)) {
            *path = candidate;
            return DDL_OK;
        }
        if (at[bytes] == '\0')
            break;
        at += bytes + 1;
    }
    ddl_free(candidate);
    struct stat file;
    if (stat(name, &file) == 0)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "cannot start %.200s: no such program in PATH; for the file in this "
                        "directory write ./%.200s",
                        name, name);
    return DDL_FAIL(err, DDL_ECONFIG, "cannot start %.200s: no such program in PATH", name);
}
