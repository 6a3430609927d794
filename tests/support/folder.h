/* folder.h - an end to a folder that a test has made, with all that is in it. */
#ifndef DDL_TESTS_SUPPORT_FOLDER_H
#define DDL_TESTS_SUPPORT_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

/* 0: it is gone. */
static inline int remove_folder(const char *path)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    return system(command);
}

#endif
