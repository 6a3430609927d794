/* test_host.c - who a host is, whose its disk, what cgroups leave, who calls at a door, its descriptors; made
 * otherwise. */
#define _GNU_SOURCE

#include "../support/folder.h"
#include "io/host.h"
#include "io/local.h"
#include "io/socket.h"

#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

static bool write_file(const char *folder, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    bool written = file != NULL && fputs(text, file) >= 0;
    return (file == NULL || fclose(file) == 0) && written;
}

static bool write_table(const char *text)
{
    return write_file("/var/lib/nfs", "etab", text);
}

/* Whose folder /var/lib is, as others come to mount what is there. 0: as it should.
 */
static int look_at_disks(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/var/lib", "tmpfs", 0, NULL) != 0 || mkdir("/var/lib/nfs", 0755) != 0)
        return SKIPPED;
    if (!ddl_host_keeps("/var/lib"))
        return 1;
    if (ddl_host_keeps("/proc") || ddl_host_keeps("/var/lib/nowhere"))
        return 2;
    if (!write_table("") || !ddl_host_keeps("/var/lib"))
        return 3;
    if (!write_table("/home\t10.0.0.0/8(rw,sync)\n") || ddl_host_keeps("/var/lib"))
        return 4;
    return 0;
}

/* In a process of its own, as what it mounts is to be nobody else's. */
static void expect_of(int (*look)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(look());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void what_others_may_mount_is_not_kept_to_oneself(void **state)
{
    (void)state;
    expect_of(look_at_disks);
}

/* Guessed: equal for equal machine ids, names and network namespaces, without a machine id never. */
static int look_at_oneself(void)
{
    uint8_t known[16], first[16], second[16];
    char name[DDL_HOST_NAME_TEXT];
    ddl_host_id(known);
    ddl_host_name(name);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/proc", "tmpfs", 0, NULL) != 0 || mount("none", "/etc", "tmpfs", 0, NULL) != 0)
        return SKIPPED;
    ddl_host_id(first);
    ddl_host_id(second);
    if (!ddl_host_id_is_sure(known) || ddl_host_id_is_sure(first) || memcmp(first, second, 16) == 0)
        return 1;
    if (!write_file("/etc", "machine-id", "0123456789abcdef0123456789abcdef\n"))
        return 2;
    ddl_host_id(first);
    if (ddl_host_id_is_sure(first) || memcmp(first, known, 16) == 0)
        return 3;
    ddl_host_id(second);
    if (memcmp(first, second, 16) != 0)
        return SKIPPED; /* this kernel does not tell network namespaces apart */
    if (unshare(CLONE_NEWUTS) != 0 || sethostname("another", 7) != 0)
        return SKIPPED;
    ddl_host_id(second);
    if (memcmp(first, second, 16) == 0)
        return 4;
    if (sethostname(name, strlen(name)) != 0 || unshare(CLONE_NEWNET) != 0)
        return SKIPPED;
    ddl_host_id(second);
    return memcmp(first, second, 16) == 0 ? 5 : 0;
}

static void who_sees_no_proc_guesses_its_host(void **state)
{
    (void)state;
    expect_of(look_at_oneself);
}

static bool leaves(unsigned mebibytes)
{
    return ddl_host_need_memory((uint64_t)mebibytes << 20, NULL) == DDL_OK;
}

static bool refuses(unsigned mebibytes, const char *words)
{
    ddl_error error;
    return ddl_host_need_memory((uint64_t)mebibytes << 20, &error) == DDL_ENOMEM &&
           strstr(error.text, words) != NULL;
}

/* Of both versions: a limit is of a group further up; of 60 MiB in use there, 40 are files that the system
 * has on disk. */
static int look_at_groups(void)
{
    static const char root[] = "/sys/fs/cgroup", group[] = "/sys/fs/cgroup/job",
                      old[] = "/sys/fs/cgroup/memory";
    char path[64];
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", root, "tmpfs", 0, NULL) != 0 || mkdir(group, 0755) != 0 ||
        mkdir("/sys/fs/cgroup/job/rank", 0755) != 0 || mkdir(old, 0755) != 0)
        return SKIPPED;
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)getpid());
    if (!write_file(root, "mine", "0::/job/rank\n") ||
        mount("/sys/fs/cgroup/mine", path, NULL, MS_BIND, NULL) != 0)
        return SKIPPED;
    if (!leaves(1 << 20)) /* nobody says anything */
        return 1;
    if (!write_file("/sys/fs/cgroup/job/rank", "memory.max", "max\n") ||
        !write_file(group, "memory.max", "104857600\n") || !write_file(group, "memory.swap.max", "0\n"))
        return 2;
    if (!leaves(90) ||
        !refuses(101, "no memory for 103424 KiB: /sys/fs/cgroup/job/memory.max allows 102400 KiB, 0"))
        return 3;
    if (!write_file(group, "memory.current", "62914560\n") || leaves(50) ||
        !write_file(group, "memory.stat",
                    "anon 7\nactive_file 10485760\ninactive_file 20971520\nslab_reclaimable 10485760\n") ||
        !leaves(79) || !refuses(80, "20480 KiB are in use"))
        return 4;
    if (!write_file(group, "memory.swap.max", "max\n") || !leaves(79))
        return 5;
    /* As in a container: its path is not that of the mount, whose root is its group. */
    if (!write_file(root, "mine", "7:cpu,cpuacct:/\n4:hugetlb,memory:/docker/0123\n0::/\n") ||
        !leaves(1 << 20) || !write_file(old, "memory.limit_in_bytes", "104857600\n") ||
        !write_file(old, "memory.memsw.limit_in_bytes", "104857600\n") ||
        !write_file(old, "memory.usage_in_bytes", "62914560\n") ||
        !write_file(old, "memory.stat", "inactive_file 9\ntotal_inactive_file 41943040\n"))
        return 6;
    if (!leaves(79) ||
        !refuses(80, "/sys/fs/cgroup/memory/memory.limit_in_bytes allows 102400 KiB, 20480 KiB"))
        return 7;
    if (!write_file(old, "memory.limit_in_bytes", "9223372036854771712\n") || !leaves(1 << 20))
        return 8;
    return 0;
}

static void what_cgroups_do_not_leave_is_refused(void **state)
{
    (void)state;
    expect_of(look_at_groups);
}

struct tree {
    char root[64], membership[128];
};

static void write_below(const char *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(path, 0777);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void a_cgroup_limits_the_cpus(void **state)
{
    (void)state;
    static const struct {
        const char *name, *membership;
        const char *files[3][2]; /* below the root, and what they hold */
        uint32_t cpus;
    } cases[] = {
        { "no cgroups", "", { { NULL } }, 0 },
        { "version 2, no limit", "0::/job\n", { { "job/cpu.max", "max 100000\n" } }, 0 },
        { "version 2, two CPUs", "0::/job\n", { { "job/cpu.max", "200000 100000\n" } }, 2 },
        { "version 2, a part of a CPU is none", "0::/job\n", { { "job/cpu.max", "250000 100000\n" } }, 2 },
        { "version 2, less than one", "0::/job\n", { { "job/cpu.max", "1000 100000\n" } }, 1 },
        { "version 2, the parent allows less",
          "0::/job/part\n",
          { { "job/part/cpu.max", "800000 100000\n" }, { "job/cpu.max", "400000 100000\n" } },
          4 },
        { "version 2, in a container the path is the host's",
          "0::/docker/abc\n",
          { { "cpu.max", "300000 100000\n" } },
          3 },
        { "version 1",
          "5:memory:/job\n4:cpu,cpuacct:/job\n",
          { { "cpu/job/cpu.cfs_quota_us", "150000\n" }, { "cpu/job/cpu.cfs_period_us", "50000\n" } },
          3 },
        { "version 1, no limit",
          "4:cpuacct,cpu:/\n",
          { { "cpu/cpu.cfs_quota_us", "-1\n" }, { "cpu/cpu.cfs_period_us", "100000\n" } },
          0 },
        { "another controller's limit is none of ours",
          "4:cpuset:/job\n",
          { { "cpu/job/cpu.cfs_quota_us", "1\n" } },
          0 },
        { "more than there can be", "0::/job\n", { { "job/cpu.max", "9223372036854775807 1\n" } }, 65535 },
        { "nonsense", "x\n::\n0:\n0::/job\n", { { "job/cpu.max", "many few\n" } }, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tree tree;
        snprintf(tree.root, sizeof tree.root, "/tmp/ddl-test-cpus-XXXXXX");
        assert_non_null(mkdtemp(tree.root));
        write_below(tree.root, "membership", cases[i].membership);
        snprintf(tree.membership, sizeof tree.membership, "%s/membership", tree.root);
        for (int f = 0; f < 3 && cases[i].files[f][0] != NULL; f++)
            write_below(tree.root, cases[i].files[f][0], cases[i].files[f][1]);
        uint32_t cpus = ddl_host_cgroup_cpus(tree.membership, tree.root);
        if (cpus != cases[i].cpus)
            fail_msg("%s: %u CPUs, not %u", cases[i].name, (unsigned)cpus, (unsigned)cases[i].cpus);
        assert_int_equal(remove_folder(tree.root), 0);
    }
}

static void a_missing_list_of_cgroups_is_no_limit(void **state)
{
    (void)state;
    assert_int_equal(ddl_host_cgroup_cpus("/nowhere/cgroup", "/nowhere"), 0);
}

static bool become_another(void)
{
    return setgid(65534) == 0 && setuid(65534) == 0;
}

/* Root can, but not where it is alone. */
static bool can_become_another(void)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(become_another() ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* As nobody in particular: call at a door of this user, and be called. 0: both were refused. */
static int be_another(const char door[DDL_LOCAL_NAME_BYTES], int own_door)
{
    ddl_error error;
    int fd;
    if (!become_another())
        return 4;
    if (ddl_local_connect(door, &fd, &error) != DDL_EAUTH)
        return 1;
    if (!ddl_socket_wait(own_door, POLLIN, ddl_deadline_in_ms(10000)))
        return 2;
    return ddl_local_accept(own_door, &fd, &error) == DDL_EAUTH ? 0 : 3;
}

static void another_user_is_neither_let_in_nor_called(void **state)
{
    char doors[2][DDL_LOCAL_NAME_BYTES];
    int listeners[2], status, fd;
    ddl_error error;
    (void)state;
    if (geteuid() != 0 || !can_become_another())
        skip();
    for (int i = 0; i < 2; i++)
        assert_int_equal(ddl_local_listen(2, doors[i], &listeners[i], NULL), DDL_OK);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(be_another(doors[0], listeners[1]));
    /* Its call at the first door may have come to its end already, and counts as another's all the same. */
    assert_true(ddl_socket_wait(listeners[0], POLLIN, ddl_deadline_in_ms(10000)));
    assert_int_equal(ddl_local_accept(listeners[0], &fd, &error), DDL_EAUTH);
    assert_int_equal(ddl_local_connect(doors[1], &fd, NULL), DDL_OK); /* root made that door */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(fd);
    for (int i = 0; i < 2; i++)
        close(listeners[i]);
}

/* For how many descriptors the system has room. */
static int room_for_descriptors(void)
{
    char line[200];
    int room = -1;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (room < 0 && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "FDSize: %d", &room);
    fclose(file);
    return room;
}

static void room_for_descriptors_is_made_at_once(void **state)
{
    (void)state;
    const int before = room_for_descriptors(), lowest = dup(STDERR_FILENO);
    close(lowest);
    assert_true(before > 0);
    struct rlimit few = { .rlim_cur = (rlim_t)before + 100 }, found;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &found), 0);
    few.rlim_max = found.rlim_max;

    ddl_host_expect_descriptors(before - lowest - 1); /* for which there is room */
    assert_int_equal(room_for_descriptors(), before);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    ddl_host_expect_descriptors(100000); /* as many as are allowed */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &found), 0);
    const int most = room_for_descriptors();
    assert_true(most >= before + 100);
    assert_true(most < 100000);

    const int next = dup(STDERR_FILENO); /* nothing is left open */
    assert_int_equal(next, lowest);
    close(next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_user_is_neither_let_in_nor_called),
        cmocka_unit_test(what_cgroups_do_not_leave_is_refused),
        cmocka_unit_test(a_cgroup_limits_the_cpus),
        cmocka_unit_test(a_missing_list_of_cgroups_is_no_limit),
        cmocka_unit_test(who_sees_no_proc_guesses_its_host),
        cmocka_unit_test(what_others_may_mount_is_not_kept_to_oneself),
        cmocka_unit_test(room_for_descriptors_is_made_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
