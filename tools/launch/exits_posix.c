/* exits_posix.c - where the order of ends is not known. */
#include "exits.h"

#include <stddef.h>

launch_exits *launch_exits_create(void)
{
    return NULL;
}

bool launch_exits_watch(launch_exits *exits, pid_t pid, int number)
{
    (void)exits;
    (void)pid;
    (void)number;
    return false;
}

int launch_exits_next(launch_exits *exits)
{
    (void)exits;
    return -1;
}

void launch_exits_destroy(launch_exits *exits)
{
    (void)exits;
}
