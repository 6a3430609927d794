/* host_linux.c - facts from /proc, sysfs and Linux's own system calls. */
#define _GNU_SOURCE
#include "io/host.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/processor.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

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

/* ---- who this host is ---- */

static bool read_boot_id(uint8_t id[16])
{
    char text[64];
    int nibbles = 0;
    memset(id, 0, 16);
    if (!read_text("/proc/sys/kernel/random/boot_id", text, sizeof text))
        return false;
    for (const char *at = text; *at != '\0' && nibbles < 32; at++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, *at);
        if (digit != NULL)
            id[nibbles / 2] |= (uint8_t)((digit - digits) << (nibbles % 2 == 0 ? 4 : 0)), nibbles++;
    }
    return nibbles == 32;
}

/* The network namespace, for who does not see it in /proc; a number that counts from the boot. */
static bool read_namespace_cookie(uint64_t *cookie)
{
    socklen_t bytes = sizeof *cookie;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool known = getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, cookie, &bytes) == 0; /* Linux 5.14 */
    close(fd);
    return known;
}

/* Without /proc: what two hosts with one name and one machine id have in common, or else nobody has. */
static void guess_id(uint8_t id[16])
{
    char machine[64], name[DDL_HOST_NAME_TEXT], text[200];
    uint64_t cookie = 0;
    ddl_host_name(name);
    if (read_text("/etc/machine-id", machine, sizeof machine) && strlen(machine) >= 32 &&
        read_namespace_cookie(&cookie)) {
        snprintf(text, sizeof text, "%s %s %llu", machine, name, (unsigned long long)cookie);
        ddl_host_id_of(text, id);
    } else if (ddl_host_random(id, 16, NULL) != DDL_OK) {
        snprintf(text, sizeof text, "%s %d %lld", name, (int)getpid(), (long long)ddl_now_ns());
        ddl_host_id_of(text, id);
    }
    ddl_host_id_mark(id, false);
}

void ddl_host_id(uint8_t id[16])
{
    struct stat namespace;
    if (!read_boot_id(id) || stat("/proc/thread-self/ns/net", &namespace) != 0) {
        guess_id(id);
        return;
    }
    /* Two network namespaces do not share a loopback: they are two hosts to us. */
    uint64_t mixed = (uint64_t) namespace.st_ino * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t) namespace.st_dev;
    for (int i = 0; i < 8; i++)
        id[8 + i] ^= (uint8_t)(mixed >> (8 * i));
}

/* ---- control groups ---- */

/* The next of the lines "id:controllers:/path" of /proc/self/cgroup; version 2 has no controllers. */
static bool next_group(char **rest, const char **controllers, const char **group)
{
    for (char *line; (line = strsep(rest, "\n")) != NULL;) {
        char *first = strchr(line, ':'), *second = first != NULL ? strchr(first + 1, ':') : NULL;
        if (second == NULL)
            continue;
        *second = '\0';
        *controllers = first + 1;
        *group = second + 1;
        return true;
    }
    return false;
}

static bool is_listed(const char *controllers, const char *name)
{
    for (const char *at = controllers;; at++) {
        size_t bytes = strcspn(at, ",");
        if (bytes == strlen(name) && strncmp(at, name, bytes) == 0)
            return true;
        at += bytes;
        if (*at == '\0')
            return false;
    }
}

/* From a group (a path within mount) up to mount, each once. A container may see another path of its group
 * than its mount has: what is not there sets no limit. */
struct way {
    char folder[512];
    size_t mount_bytes;
};

static bool begin_way(struct way *way, const char *mount, const char *group)
{
    way->mount_bytes = strlen(mount);
    return (size_t)snprintf(way->folder, sizeof way->folder, "%s%s", mount, group) < sizeof way->folder;
}

static bool go_up(struct way *way)
{
    char *slash = strrchr(way->folder, '/');
    if (slash == NULL || (size_t)(slash - way->folder) < way->mount_bytes)
        return false;
    *slash = '\0';
    return true;
}

static bool read_of_group(const char *folder, const char *file, char *text, size_t text_bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_text(path, text, text_bytes);
}

/* ---- CPUs of a group ---- */

/* Whole CPUs in a quota per period, one at least: two ranks are more than one and a half. 0 for no limit. */
static uint32_t quota_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    const long long cpus = quota < period ? 1 : quota / period;
    return cpus < UINT16_MAX ? (uint32_t)cpus : UINT16_MAX;
}

static uint32_t group_quota(const char *folder, bool second_version)
{
    char text[64];
    long long quota = 0, period = 0;
    if (second_version) {
        if (!read_of_group(folder, "cpu.max", text, sizeof text) ||
            sscanf(text, "%lld %lld", &quota, &period) != 2)
            return 0; /* "max" is no number */
        return quota_cpus(quota, period);
    }
    if (!read_of_group(folder, "cpu.cfs_quota_us", text, sizeof text))
        return 0;
    quota = atoll(text);
    if (!read_of_group(folder, "cpu.cfs_period_us", text, sizeof text))
        return 0;
    return quota_cpus(quota, atoll(text));
}

uint32_t ddl_host_cgroup_cpus(const char *membership, const char *root)
{
    char text[4096], *rest = text;
    const char *controllers, *group;
    char mount[256];
    struct way way;
    uint32_t least = 0;
    if (!read_text(membership, text, sizeof text))
        return 0;
    while (next_group(&rest, &controllers, &group)) {
        bool second_version = controllers[0] == '\0';
        if (!second_version && !is_listed(controllers, "cpu"))
            continue;
        snprintf(mount, sizeof mount, "%s%s", root, second_version ? "" : "/cpu");
        for (bool more = begin_way(&way, mount, group); more; more = go_up(&way)) {
            uint32_t quota = group_quota(way.folder, second_version);
            if (quota > 0 && (least == 0 || quota < least))
                least = quota;
        }
    }
    return least;
}

/* ---- memory of a group ---- */

static const struct memory_files {
    const char *mount, *limit, *used;
    const char *given_back[3]; /* of memory.stat: what the system takes back before it ends anybody */
} memory_files[] = {
    { "/sys/fs/cgroup/memory",
      "memory.limit_in_bytes",
      "memory.usage_in_bytes",
      { "total_inactive_file", "total_active_file", NULL } },
    { "/sys/fs/cgroup",
      "memory.max",
      "memory.current",
      { "inactive_file", "active_file", "slab_reclaimable" } },
};

/* False: there is no such file, or no number in it, as in "max". */
static bool read_number(const char *folder, const char *file, uint64_t *number)
{
    char text[64], *end;
    if (!read_of_group(folder, file, text, sizeof text))
        return false;
    *number = strtoull(text, &end, 10);
    return end != text;
}

static uint64_t number_of_line(const char *text, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, bytes) == 0 && line[bytes] == ' ')
            return strtoull(line + bytes, NULL, 10);
    }
    return 0;
}

/* What is in use and cannot be taken back but by putting it into swap. */
static uint64_t memory_held(const char *folder, const struct memory_files *files)
{
    char text[8192];
    uint64_t used = 0, given_back = 0;
    if (!read_number(folder, files->used, &used))
        return 0;
    if (read_of_group(folder, "memory.stat", text, sizeof text))
        for (int i = 0; i < 3 && files->given_back[i] != NULL; i++)
            given_back += number_of_line(text, files->given_back[i]);
    return used > given_back ? used - given_back : 0;
}

/* Of the swap that is free: which of it the group may have varies, and too much only means that the system
 * has the last word, as it has without this. */
static uint64_t free_swap(const char *folder, uint64_t limit)
{
    struct sysinfo facts;
    uint64_t most, swap = sysinfo(&facts) == 0 ? (uint64_t)facts.freeswap * facts.mem_unit : 0;
    if (read_number(folder, "memory.swap.max", &most) && most < swap)
        swap = most;
    if (read_number(folder, "memory.memsw.limit_in_bytes", &most) && most >= limit && most - limit < swap)
        swap = most - limit;
    return swap;
}

static ddl_status check_group(const char *folder, const struct memory_files *files, uint64_t bytes,
                              ddl_error *err)
{
    uint64_t limit, kept = bytes / 256; /* about the pages, which counts too */
    if (!read_number(folder, files->limit, &limit) || limit >= INT64_MAX / 2) /* none, in version 1 */
        return DDL_OK;
    uint64_t held = memory_held(folder, files), may = limit + free_swap(folder, limit);
    if (held <= may && bytes <= may - held && kept <= may - held - bytes)
        return DDL_OK;
    return DDL_FAIL(err, DDL_ENOMEM, "no memory for %llu KiB: %.300s/%s allows %llu KiB, %llu KiB are in use",
                    (unsigned long long)bytes / 1024, folder, files->limit, (unsigned long long)limit / 1024,
                    (unsigned long long)held / 1024);
}

ddl_status ddl_host_need_memory(uint64_t bytes, ddl_error *err)
{
    char text[4096], *rest = text;
    const char *controllers, *group;
    struct way way;
    if (!read_text("/proc/self/cgroup", text, sizeof text))
        return DDL_OK;
    while (next_group(&rest, &controllers, &group)) {
        bool second_version = controllers[0] == '\0';
        if (!second_version && !is_listed(controllers, "memory"))
            continue;
        const struct memory_files *files = &memory_files[second_version];
        for (bool more = begin_way(&way, files->mount, group); more; more = go_up(&way))
            DDL_TRY(check_group(way.folder, files, bytes, err));
    }
    return DDL_OK;
}

/* ---- CPUs ---- */

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

int ddl_host_cpu(void)
{
    return sched_getcpu();
}

int ddl_host_list_cpus(int cpus[], int most)
{
    cpu_set_t set; /* of 1024; where there are more the system refuses */
    int count = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < most; cpu++)
        if (CPU_ISSET(cpu, &set))
            cpus[count++] = cpu;
    return count;
}

int ddl_host_thread(void)
{
    return gettid();
}

/* A thread that may use all of its cpuset is to follow that, as it has: it is given all CPUs that there may
 * be, of which the system takes those. One that may use fewer is given the same again. One that may use only
 * one is left alone, as a program may narrow a thread for a moment. */
void ddl_host_move_thread(int thread, int cpu)
{
    cpu_set_t before, one, every, after;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    memset(&every, 0xff, sizeof every);
    if (sched_getaffinity(thread, sizeof before, &before) != 0 || !CPU_ISSET((size_t)cpu, &before) ||
        CPU_COUNT(&before) < 2 || sched_setaffinity(thread, sizeof one, &one) != 0)
        return;
    if (sched_getaffinity(thread, sizeof after, &after) != 0 || !CPU_EQUAL(&after, &one))
        return; /* the program has said something else meanwhile */
    (void)sched_setaffinity(thread, sizeof every, &every);
    if (sched_getaffinity(thread, sizeof after, &after) == 0 && !CPU_EQUAL(&after, &before))
        (void)sched_setaffinity(thread, sizeof before, &before);
}

/* A quota that is tighter than the mask counts as one of all processes together: they are mostly of one
 * container. */
uint16_t ddl_host_cpus(uint16_t *first)
{
    int lowest;
    uint32_t allowed = affinity_cpus(&lowest),
             quota = ddl_host_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    bool has_quota = quota > 0 && quota < allowed;
    uint32_t count = has_quota ? quota : allowed;
    if (first != NULL)
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
    /* 140 ns, and sooner from the last cache than from the other core's own (docs/performance.md) */
    return ddl_processor_is_intel_server();
}

bool ddl_host_lines_return_late(void)
{
    return ddl_host_cores_are_far() ||
           ddl_processor_is_amd_25(); /* 7 ns, if the reader still has it (likewise) */
}
