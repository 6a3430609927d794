/* cpus_linux.c - usable CPUs by affinity mask and cgroup quota. */
#define _GNU_SOURCE
#include "cpus.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int affinity_cpus(void)
{
    /* The kernel refuses a set smaller than its own, so larger ones are tried in turn. */
    for (int ncpus = 1024; ncpus <= 1 << 20; ncpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)ncpus);
        if (set == NULL)
            break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)ncpus);
        int found = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (found > 0)
            return found;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online >= 1 ? (int)online : 1;
}

/* The words of a one-line file; false if it cannot be read. */
static bool read_line(const char *directory, const char *name, char *line, int bytes)
{
    char path[2 * PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    if (file == NULL)
        return false;
    bool read = fgets(line, bytes, file) != NULL;
    fclose(file);
    return read;
}

/* What one directory of a hierarchy allows, rounded up; 0: no limit. */
static int directory_cpus(const char *directory, bool version2)
{
    char line[64];
    long long quota = -1, period = 0;
    if (version2) {
        if (!read_line(directory, "cpu.max", line, sizeof line) ||
            sscanf(line, "%lld %lld", &quota, &period) != 2)
            return 0; /* no file, or "max ..." */
    } else {
        if (!read_line(directory, "cpu.cfs_quota_us", line, sizeof line) || sscanf(line, "%lld", &quota) != 1)
            return 0;
        if (!read_line(directory, "cpu.cfs_period_us", line, sizeof line) ||
            sscanf(line, "%lld", &period) != 1)
            return 0;
    }
    if (quota <= 0 || period <= 0)
        return 0;
    long long cpus = quota / period + (quota % period != 0);
    return cpus < INT_MAX ? (int)cpus : INT_MAX;
}

static bool names_cpu(const char *controllers)
{
    size_t word;
    for (const char *at = controllers; *at != '\0'; at += word + (at[word] == ',')) {
        word = strcspn(at, ",");
        if (word == 3 && strncmp(at, "cpu", 3) == 0)
            return true;
    }
    return false;
}

int launch_cgroup_cpus(const char *membership, const char *root)
{
    FILE *file = fopen(membership, "re");
    if (file == NULL)
        return 0;
    int fewest = 0;
    char line[PATH_MAX + 64];
    while (fgets(line, sizeof line, file) !=
           NULL) { /* "ID:CONTROLLERS:PATH"; version 2 names no controllers */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *controllers++ = '\0';
        *path++ = '\0';
        bool version2 = controllers[0] == '\0';
        if (!version2 && !names_cpu(controllers))
            continue;
        /* Each ancestor may limit too. In a container the path may be the host's: then only its start exists.
         */
        char directory[2 * PATH_MAX];
        for (;;) {
            snprintf(directory, sizeof directory, "%s%s%s", root, version2 ? "" : "/cpu", path);
            int cpus = directory_cpus(directory, version2);
            if (cpus > 0 && (fewest == 0 || cpus < fewest))
                fewest = cpus;
            char *slash = strrchr(path, '/');
            if (slash == NULL)
                break;
            *slash = '\0';
        }
    }
    fclose(file);
    return fewest;
}

int launch_usable_cpus(void)
{
    int cpus = affinity_cpus();
    int limited = launch_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    return limited > 0 && limited < cpus ? limited : cpus;
}
