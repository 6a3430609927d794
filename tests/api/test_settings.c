/* test_settings.c - which variables are settings, and what may have been meant by others. */
#include "api/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const struct {
    const char *name, *told; /* NULL: it is known */
} cases[] = {
    { "DDL_ALLREDUCE", NULL },
    { "DDL_REDUCE_SCATTERV", NULL },
    { "DDL_TIMEOUT", NULL },
    { "DDL_LAUNCH", NULL },
    { "DDL_SECRET_FD", NULL },
    { "DDL_FAILPOINTS", NULL },
    { "DDL_TEST_ANYTHING", NULL },
    { "DDL", NULL },
    { "MY_DDL_FOO", NULL },
    { "DDL_ALL_REDUCE", "DDL_ALL_REDUCE (DDL_ALLREDUCE?)" },
    { "DDL_ALL_TO_ALL_V", "DDL_ALL_TO_ALL_V (DDL_ALLTOALLV?)" }, /* more than two away, but for underscores */
    { "DDL_Timeouts", "DDL_Timeouts (DDL_TIMEOUT?)" },
    { "DDL_START_TIMOEUT", "DDL_START_TIMOEUT (DDL_START_TIMEOUT?)" },
    { "DDL_START_TIMO", "DDL_START_TIMO" },
    { "DDL_SECURE", "DDL_SECURE (DDL_SECRET?)" },
    { "DDL_GPUS", "DDL_GPUS (DDL_GPU?)" },
    { "DDL_FOO", "DDL_FOO" }, /* two away from DDL_LOG, as much is */
    { "DDL_", "DDL_" },
    { "DDL_\033[2J", "DDL_??2J" },
    { "DDL_A_VARIABLE_WITH_A_NAME_THAT_IS_LONGER_THAN_ANY", "DDL_A_VARIABLE_WITH_A_NAME_THAT_IS_LONG..." },
};

static void what_is_no_setting_is_named_with_what_is_near(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char variable[100], text[640];
        char *environment[] = { variable, NULL };
        snprintf(variable, sizeof variable, "%s=value", cases[i].name);
        ddl_settings_unknown(environment, text, sizeof text);
        assert_string_equal(text, cases[i].told != NULL ? cases[i].told : "");
    }
}

static void five_are_listed_and_the_others_counted(void **state)
{
    char *environment[] = { "DDL_A=1", "PATH=/bin", "DDL_B=1", "DDL_C=", "DDL_LOG=info", "DDL_D=1", "DDL_E=1",
                            "DDL_F=1", "DDL_G=1",   "DDL_H=1", NULL };
    char text[640], small[20];
    (void)state;
    ddl_settings_unknown(environment, text, sizeof text);
    assert_string_equal(text, "DDL_A, DDL_B, DDL_D, DDL_E, DDL_F, and 2 more");
    ddl_settings_unknown(environment, small, sizeof small);
    assert_memory_equal(small, text, sizeof small - 1);
    assert_int_equal(small[sizeof small - 1], 0);
    ddl_settings_unknown(environment + 10, text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_setting_is_named_with_what_is_near),
        cmocka_unit_test(five_are_listed_and_the_others_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
