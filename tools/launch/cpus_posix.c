/* cpus_posix.c - usable CPUs where only their number can be asked for. */
#include "cpus.h"

#include <unistd.h>

int launch_usable_cpus(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online >= 1 ? (int)online : 1;
}
