/* test_progress.c - what is said while ranks wait. */
#include "rendezvous/progress.h"

#include "base/log.h"

#include <ddl/ddl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char said[256];

static void keep(void *arg, const char *line)
{
    (void)arg;
    snprintf(said, sizeof said, "%s", line);
}

static void the_time_left_is_told_however_long_it_is(void **state)
{
    static const struct {
        int64_t left_s;
        const char *text;
    } cases[] = {
        { 100, "waiting for rank 1, 100 s left" },
        { INT64_C(25) * 24 * 3600,
          "waiting for rank 1, 2160000 s left" }, /* more milliseconds than an int has */
        { INT64_C(100) * 365 * 24 * 3600, "waiting for rank 1, 3153600000 s left" },
        { -1, "waiting for rank 1, 0 s left" },
    };
    (void)state;
    ddl_set_log(keep, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_progress progress;
        ddl_progress_start(&progress, ddl_now_ns() + cases[i].left_s * DDL_NS_PER_S);
        said[0] = '\0';
        ddl_progress_tell(&progress, "rank %d", 1);
        assert_string_equal(said, ""); /* not due */
        progress.next = ddl_now_ns();
        ddl_progress_tell(&progress, "rank %d", 1);
        if (strstr(said, cases[i].text) == NULL)
            fail_msg("'%s', not '%s'", said, cases[i].text);
    }
    ddl_set_log(NULL, NULL);
}

static void ranks_are_told_as_ranges(void **state)
{
    static const bool in[] = { true, true, false, true, false, true, true, true };
    char text[64];
    (void)state;
    ddl_progress_ranks(in, 8, true, text, sizeof text);
    assert_string_equal(text, "0-1, 3, 5-7");
    ddl_progress_ranks(in, 8, true, text, 11);
    assert_string_equal(text, "0-1, ...");
    ddl_progress_ranks(in, 2, false, text, sizeof text);
    assert_string_equal(text, "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_left_is_told_however_long_it_is),
        cmocka_unit_test(ranks_are_told_as_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
