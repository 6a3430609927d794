/* test_check_report.c - the tables of a check, for hosts with names of any length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../tools/launch/check_report.h"

enum { MOST = 20, TEXT_BYTES = 16384 };

static ddl_member members[MOST];
static int node_of[MOST], local_rank_of[MOST];
static check_facts facts[MOST];
static ddl_roster roster = { .members = members, .node_of = node_of, .local_rank_of = local_rank_of };
static const check_survey survey = { .roster = &roster, .security = "auth" };
static check_measured measured = { .facts = facts };

/* Ranks, each on the host of its own that names[rank] is, or all on names[0]. */
static void place(int nranks, bool by_host, const char *const names[])
{
    roster.nranks = nranks;
    roster.node_count = by_host ? nranks : 1;
    measured.by_host = by_host;
    measured.npoints = nranks < CHECK_POINTS_MAX ? nranks : CHECK_POINTS_MAX;
    for (int rank = 0; rank < nranks; rank++) {
        ddl_member *member = &members[rank];
        *member = (ddl_member){ .rank = rank, .cpus = 2, .port = (uint16_t)(1000 + rank) };
        snprintf(member->host, sizeof member->host, "%s", names[by_host ? rank : 0]);
        strcpy(member->address, rank == 1 ? "2001:db8:1:2:3:4:5:6" : "10.0.0.1");
        node_of[rank] = by_host ? rank : 0;
        facts[rank] = (check_facts){ .version = "0.1.0", .system = "Linux", .node = node_of[rank] };
        if (rank < CHECK_POINTS_MAX)
            measured.points[rank] = rank;
    }
}

/* What is said of the ranks, or of what was measured. */
static const char *report(bool of_ranks)
{
    static char text[TEXT_BYTES];
    const ddl_config config = { .store = "a store" };
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    int usual = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    if (of_ranks)
        check_report_ranks(&config, &survey);
    else
        (void)check_report_measured(&survey, &measured);
    fflush(stdout);
    dup2(usual, STDOUT_FILENO);
    close(usual);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void columns_are_as_wide_as_the_widest_name(void **state)
{
    (void)state;
    place(2, true, (const char *const[]){ "gpu-cluster-worker-001.internal.example", "short" });
    assert_non_null(strstr(
        report(true), "\n"
                      "rank  host                                     listens at, for others       CPUs\n"
                      "   0  gpu-cluster-worker-001.internal.example  10.0.0.1:1000                   2\n"
                      "   1  short                                    [2001:db8:1:2:3:4:5:6]:1001     2\n"));
    assert_non_null(strstr(report(false),
                           "\n"
                           "host                                     ddl       clock, ms  system\n"
                           "gpu-cluster-worker-001.internal.example  0.1.0         +0.00  Linux\n"
                           "short                                    0.1.0         +0.00  Linux\n"));
    place(2, true, (const char *const[]){ "nodea", "nodeb" });
    assert_non_null(strstr(report(true), "\n"
                                         "rank  host              listens at, for others       CPUs\n"
                                         "   0  nodea             10.0.0.1:1000                   2\n"));
}

static void hosts_of_links_differ_and_lack_only_what_all_have(void **state)
{
    (void)state;
    place(2, true,
          (const char *const[]){ "gpu-cluster-worker-001.internal.example",
                                 "gpu-cluster-worker-002.internal.example" });
    assert_non_null(strstr(report(false), " bytes)\n"
                                          "                        rank        0        1\n"
                                          "gpu-cluster-worker-001     0        .      0.0\n"
                                          "gpu-cluster-worker-002     1      0.0        .\n"));
    place(2, true, (const char *const[]){ "node.east.example", "node.west.example" });
    assert_non_null(strstr(report(false), "\n"
                                          "node.east        0        .      0.0\n"
                                          "node.west        1      0.0        .\n"));
    place(2, true, (const char *const[]){ "worker-at.example", "example" });
    assert_non_null(strstr(report(false), "\n"
                                          "worker-at.example     0        .      0.0\n"
                                          "example               1      0.0        .\n"));
    place(2, false, (const char *const[]){ "node.example" });
    assert_non_null(strstr(report(false), "\n"
                                          "node             0        .      0.0\n"
                                          "node             1      0.0        .\n"));
}

static void what_is_not_measured_is_said(void **state)
{
    static const char *const names[MOST] = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "j",
                                             "k", "l", "m", "n", "o", "p", "q", "r", "s", "t" };
    (void)state;
    place(MOST, true, names);
    assert_non_null(strstr(report(false), "\nof 20 hosts, the links between the first 16 are measured\n"));
    place(17, false, names);
    assert_non_null(strstr(report(false), "\nof 17 ranks, the links between the first 16 are measured\n"));
    place(16, false, names);
    assert_null(strstr(report(false), "are measured"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_as_wide_as_the_widest_name),
        cmocka_unit_test(hosts_of_links_differ_and_lack_only_what_all_have),
        cmocka_unit_test(what_is_not_measured_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
