/* cpus.h - how many CPUs this process may use. */
#ifndef DDL_LAUNCH_CPUS_H
#define DDL_LAUNCH_CPUS_H

/* At least 1: the CPUs in this process's affinity mask, or fewer where a cgroup limits CPU time. */
int launch_usable_cpus(void);

#ifndef DDL_PORTABLE
/*
 * CPUs' worth of time, rounded up, that the cgroups listed in the file `membership` (as /proc/self/cgroup)
 * leave this process, looked up below the directory `root` (as /sys/fs/cgroup). 0: no limit found.
 */
int launch_cgroup_cpus(const char *membership, const char *root);
#endif

#endif
