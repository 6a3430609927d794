/* program.h - which file a command's first word means. */
#ifndef DDL_LAUNCH_PROGRAM_H
#define DDL_LAUNCH_PROGRAM_H

#include "base/error.h"

/* As shells say it. */
enum { LAUNCH_EXIT_NOT_EXECUTABLE = 126, LAUNCH_EXIT_NOT_FOUND = 127 };

/*
 * The path of the file to execute, copied into *path (release with ddl_free): name itself if it holds a
 * slash, else the first executable of that name in the directories that search lists (as PATH does).
 * On failure *exit_code is one of those above. DDL_ECONFIG, DDL_ENOMEM.
 */
ddl_status launch_program_find(const char *name, const char *search, char **path, int *exit_code,
                               ddl_error *err);

/* The exit code for an execve that failed with os_errno. */
int launch_program_exit_code(int os_errno);

#endif
