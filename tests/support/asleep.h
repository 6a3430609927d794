/*
 * asleep.h - whether a thread of this process sleeps, as the system sees it: for tests of what wakes a
 * sleeper, and of what does not.
 */
#ifndef DDL_TESTS_SUPPORT_ASLEEP_H
#define DDL_TESTS_SUPPORT_ASLEEP_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

/* Of the caller, for others to look at. */
static inline long asleep_number(void)
{
#ifdef __linux__
    return syscall(SYS_gettid);
#else
    return 1;
#endif
}

/* Where the system does not tell, it does after 50 ms. A thread that was woken is not, until it sleeps again.
 */
static inline bool asleep_is(long number)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", number);
    FILE *stat = fopen(path, "r");
    if (stat == NULL)
        return usleep(50 * 1000) == 0;
    const bool is_read = fgets(line, sizeof line, stat) != NULL;
    fclose(stat);
    const char *name_end = strrchr(line, ')');
    return is_read && name_end != NULL && strncmp(name_end, ") S", 3) == 0;
}

#endif
