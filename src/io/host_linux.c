/* host_linux.c - facts from /proc, sysfs and Linux's own system calls. */
#define _GNU_SOURCE
#include "io/host.h"

#include "base/bytes.h"
#include "base/failpoint.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool read_text(const char *path, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t count = fread(text, 1, text_bytes - 1, file);
    fclose(file);
    text[count] = '\0';
    return count > 0;
}

void ddl_host_id(uint8_t id[16])
{
    char text[64] = "";
    struct stat namespace;
    memset(id, 0, 16);
    if (read_text("/proc/sys/kernel/random/boot_id", text, sizeof text)) {
        int nibbles = 0;
        for (const char *at = text; *at != '\0' && nibbles < 32; at++) {
            const char *digits = "0123456789abcdef", *digit = strchr(digits, *at);
            if (digit != NULL)
                id[nibbles / 2] |= (uint8_t)((digit - digits) << (nibbles % 2 == 0 ? 4 : 0)), nibbles++;
        }
    }
    /* Two network namespaces do not share a loopback: they are two hosts to us. */
    if (stat("/proc/self/ns/net", &namespace) == 0) {
        uint64_t mixed =
            (uint64_t) namespace.st_ino * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t) namespace.st_dev;
        for (int i = 0; i < 8; i++)
            id[8 + i] ^= (uint8_t)(mixed >> (8 * i));
    }
}

static uint32_t affinity_cpus(int *first)
{
    *first = 0;
    for (int cpus = 1024; cpus <= 1 << 16; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (set == NULL)
            break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        while (count > 0 && !CPU_ISSET_S((size_t)*first, bytes, set))
            ++*first;
        CPU_FREE(set);
        if (count > 0)
            return (uint32_t)count;
    }
    return 1;
}

/* CPUs that quota per period comes to, rounded up; 0 for no limit. */
static uint32_t quota_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    return (uint32_t)((quota + period - 1) / period);
}

static uint32_t group_quota(const char *folder, bool second_version)
{
    char path[600], text[64];
    long long quota = 0, period = 0;
    if (second_version) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        if (!read_text(path, text, sizeof text) || sscanf(text, "%lld %lld", &quota, &period) != 2)
            return 0; /* "max" is no number */
        return quota_cpus(quota, period);
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_text(path, text, sizeof text))
        return 0;
    quota = atoll(text);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!read_text(path, text, sizeof text))
        return 0;
    return quota_cpus(quota, atoll(text));
}

/* The tightest quota on the way from group (a path within mount) up to mount. */
static uint32_t tightest_quota(const char *mount, const char *group, bool second_version)
{
    char folder[512];
    uint32_t least = 0;
    size_t mount_bytes = strlen(mount);
    if ((size_t)snprintf(folder, sizeof folder, "%s%s", mount, group) >= sizeof folder)
        return 0;
    for (;;) {
        uint32_t quota = group_quota(folder, second_version);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < mount_bytes)
            return least;
        *slash = '\0';
    }
}

static uint32_t cgroup_cpus(void)
{
    char text[4096];
    uint32_t least = 0;
    if (!read_text("/proc/self/cgroup", text, sizeof text))
        return 0;
    /* Lines are "id:controllers:/path"; version 2 has no controllers. */
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        controllers++;
        uint32_t quota = 0;
        if (controllers[0] == '\0')
            quota = tightest_quota("/sys/fs/cgroup", group, true);
        else if (strcmp(controllers, "cpu") == 0 || strncmp(controllers, "cpu,", 4) == 0 ||
                 strstr(controllers, ",cpu,") != NULL || strcmp(controllers, "cpuacct,cpu") == 0)
            quota = tightest_quota("/sys/fs/cgroup/cpu", group, false);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
    }
    return least;
}

/* A quota counts as one of all processes together, also of those that are bound to CPUs of their own: they
 * are mostly of one container. */
uint16_t ddl_host_cpus(uint16_t *first)
{
    int lowest;
    uint32_t allowed = affinity_cpus(&lowest), quota = cgroup_cpus();
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    bool has_quota = quota > 0 && (quota < allowed || (long)quota < all);
    uint32_t count = has_quota ? quota : allowed;
    *first = has_quota || lowest >= DDL_HOST_ANY_CPU ? DDL_HOST_ANY_CPU : (uint16_t)lowest;
    return count < UINT16_MAX ? (uint16_t)count : UINT16_MAX;
}

ddl_status ddl_host_random(void *data, size_t bytes, ddl_error *err)
{
    size_t have = 0;
    while (have < bytes) {
        ssize_t count =
            DDL_FAILPOINT_OS("io.random", ENOSYS) ? -1 : getrandom((uint8_t *)data + have, bytes - have, 0);
        if (count < 0 && errno != EINTR)
            return DDL_FAIL_OS(err, DDL_ERESOURCE, errno, "the system gives no random bytes");
        if (count > 0)
            have += (size_t)count;
    }
    return DDL_OK;
}

/* What a server of NFS lets others mount is on a disk of its own; exportfs notes here what that is. */
static bool exports_some(void)
{
    struct stat facts;
    return stat("/var/lib/nfs/etab", &facts) == 0 && facts.st_size > 0;
}

bool ddl_host_keeps(const char *folder)
{
    /* From <linux/magic.h>, which does not have them all: ext2 to 4, XFS, Btrfs, tmpfs, ramfs, overlayfs,
     * ZFS, F2FS. */
    static const uint32_t kept[] = { 0xef53,     0x58465342, 0x9123683e, 0x01021994,
                                     0x858458f6, 0x794c7630, 0x2fc12fc1, 0xf2f52010 };
    struct statfs facts;
    if (exports_some() || statfs(folder, &facts) != 0)
        return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if ((uint32_t)facts.f_type == kept[i])
            return true;
    return false;
}

bool ddl_host_cores_are_far(void)
{
    /* The servers of this maker: 140 ns, and sooner from the last cache than from the other core's own
     * (docs/performance.md). */
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
#else
    return false;
#endif
}
