/* descendants_posix.c - where descendants cannot be listed; process groups have to do. */
#include "descendants.h"

bool launch_descendants_adopt(void)
{
    return false;
}

int launch_descendants_signal(int signal, pid_t except, pid_t *pids, int most)
{
    (void)signal;
    (void)except;
    (void)pids;
    (void)most;
    return -1;
}

bool launch_is_exiting(pid_t pid)
{
    (void)pid;
    return false;
}

void launch_die_with(pid_t parent)
{
    (void)parent; /* the guardian sees its launcher go, and kills process groups */
}

void launch_rename_process(const char *name)
{
    (void)name;
}
