/* test_cpus.c - how many CPUs a cgroup leaves. */
#include "launch/cpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tree {
    char root[64], membership[128];
};

static void write_file(const char *root, const char *name, const char *text)
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
        int cpus;
    } cases[] = {
        { "no cgroups", "", { { NULL } }, 0 },
        { "version 2, no limit", "0::/job\n", { { "job/cpu.max", "max 100000\n" } }, 0 },
        { "version 2, two CPUs", "0::/job\n", { { "job/cpu.max", "200000 100000\n" } }, 2 },
        { "version 2, a part of a CPU counts as one",
          "0::/job\n",
          { { "job/cpu.max", "250000 100000\n" } },
          3 },
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
        { "nonsense", "x\n::\n0:\n0::/job\n", { { "job/cpu.max", "many few\n" } }, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tree tree;
        snprintf(tree.root, sizeof tree.root, "/tmp/ddl-test-cpus-XXXXXX");
        assert_non_null(mkdtemp(tree.root));
        write_file(tree.root, "membership", cases[i].membership);
        snprintf(tree.membership, sizeof tree.membership, "%s/membership", tree.root);
        for (int f = 0; f < 3 && cases[i].files[f][0] != NULL; f++)
            write_file(tree.root, cases[i].files[f][0], cases[i].files[f][1]);
        int cpus = launch_cgroup_cpus(tree.membership, tree.root);
        if (cpus != cases[i].cpus)
            fail_msg("%s: %d CPUs, not %d", cases[i].name, cpus, cases[i].cpus);
        char remove[128];
        snprintf(remove, sizeof remove, "rm -r %s", tree.root);
        assert_int_equal(system(remove), 0);
    }
}

static void a_missing_list_of_cgroups_is_no_limit(void **state)
{
    (void)state;
    assert_int_equal(launch_cgroup_cpus("/nowhere/cgroup", "/nowhere"), 0);
}

static void at_least_one_cpu_is_usable(void **state)
{
    (void)state;
    int cpus = launch_usable_cpus();
    assert_true(cpus >= 1);
    assert_true(cpus <= sysconf(_SC_NPROCESSORS_CONF));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cgroup_limits_the_cpus),
        cmocka_unit_test(a_missing_list_of_cgroups_is_no_limit),
        cmocka_unit_test(at_least_one_cpu_is_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
