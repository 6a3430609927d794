/* test_outcome.c - whose failure it was, by how and when ranks ended. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../tools/launch/outcome.h"

#include "base/clock.h"

enum { MOST = 4, NOBODY = -1 };

/* Wait statuses: of an exit code; of a signal it is the number. */
#define EXIT(code) ((code) << 8)

/* A rank's end, of those given; order 0 ends their list. */
struct end {
    int order, status, after_ms;
    bool was_asked, was_exiting;
};

#define ENDS(number, how) .order = (number), .status = (how)

static void check(const char *what, const struct end ends[MOST], int expected)
{
    launch_rank ranks[MOST] = { { 0 } };
    int nranks = 0;
    for (int i = 0; i < MOST && ends[i].order != 0; i++, nranks++)
        ranks[i] = (launch_rank){ .rank = i,
                                  .order = ends[i].order,
                                  .status = ends[i].status,
                                  .ended_ns = ends[i].after_ms * DDL_NS_PER_MS,
                                  .was_asked = ends[i].was_asked,
                                  .was_exiting = ends[i].was_exiting };
    const launch_rank *culprit = launch_outcome_find_culprit(ranks, nranks);
    const int found = culprit != NULL ? culprit->rank : NOBODY;
    if (found != expected)
        fail_msg("%s: rank %d, expected %d", what, found, expected);
}

static void of_ends_that_came_together_the_cause_is_found(void **state)
{
    static const struct {
        const char *what;
        struct end ends[MOST];
        int culprit;
    } cases[] = {
        { "all ended well", { { ENDS(1, 0) }, { ENDS(2, 0) } }, NOBODY },
        { "who ended well first is none", { { ENDS(1, 0) }, { ENDS(2, EXIT(1)) } }, 1 },
        { "of two the first, 3 then 1", { { ENDS(1, EXIT(3)) }, { ENDS(2, EXIT(1)) } }, 0 },
        { "of two the first, 1 then 3", { { ENDS(2, EXIT(3)) }, { ENDS(1, EXIT(1)) } }, 1 },
        { "the one that differs", { { ENDS(1, EXIT(1)) }, { ENDS(2, EXIT(1)) }, { ENDS(3, EXIT(9)) } }, 2 },
        { "of two that differ none",
          { { ENDS(2, EXIT(3)) }, { ENDS(1, EXIT(1)) }, { ENDS(3, EXIT(9)) } },
          1 },
        { "who differs but ends later",
          { { ENDS(1, EXIT(1)) }, { ENDS(2, EXIT(1)) }, { ENDS(3, EXIT(9)), .after_ms = 101 } },
          0 },
        { "unless it was ending already",
          { { ENDS(1, EXIT(1)) },
            { ENDS(2, EXIT(1)) },
            { ENDS(3, EXIT(9)), .after_ms = 101, .was_exiting = true } },
          2 },
        { "who was asked to end comes behind",
          { { ENDS(1, EXIT(1)), .was_asked = true }, { ENDS(2, EXIT(1)) } },
          1 },
        { "of those who were asked the first",
          { { ENDS(2, EXIT(1)), .was_asked = true }, { ENDS(1, EXIT(1)), .was_asked = true } },
          1 },
        { "the launcher's SIGKILL is no crash",
          { { ENDS(1, EXIT(1)) }, { ENDS(2, SIGKILL), .was_asked = true } },
          0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(cases[i].what, cases[i].ends, cases[i].culprit);
}

static void a_crash_is_the_cause_whoever_is_seen_first(void **state)
{
    static const struct {
        const char *name;
        int signal;
        bool is_crash;
    } cases[] = {
        { "SIGSEGV", SIGSEGV, true },  { "SIGBUS", SIGBUS, true },   { "SIGILL", SIGILL, true },
        { "SIGFPE", SIGFPE, true },    { "SIGKILL", SIGKILL, true }, { "SIGTERM", SIGTERM, false },
        { "SIGABRT", SIGABRT, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(cases[i].name, (const struct end[MOST]){ { ENDS(1, EXIT(1)) }, { ENDS(2, cases[i].signal) } },
              cases[i].is_crash ? 1 : 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_ends_that_came_together_the_cause_is_found),
        cmocka_unit_test(a_crash_is_the_cause_whoever_is_seen_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
