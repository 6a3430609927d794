/* test_profile.c - what a cost profile may hold, and how what it may not hold is told. */
#include "backend/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* From a copy of exactly this size, so that the sanitizer sees a read beyond it. */
static ddl_status parse(const char *text, size_t bytes, ddl_cost_model *model, ddl_error *error)
{
    char *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    if (bytes > 0)
        memcpy(copy, text, bytes);
    ddl_status status = ddl_profile_parse("dir/profile", (ddl_view){ copy, bytes }, model, error);
    free(copy);
    return status;
}

static void what_a_profile_names_is_set_and_the_rest_stays(void **state)
{
    static const char text[] = "# made on nodeA\n"
                               "\n"
                               "local.latency_ns = 1234.5\n"
                               "  local.byte_ns=0.25# as measured\r\n"
                               "\tremote.message_ns\t=\t7 \n"
                               "reduce_ns = .125";
    ddl_cost_model model = ddl_cost_model_default(3), expected = model;
    (void)state;
    expected.links[DDL_LINK_LOCAL].latency_ns = 1234.5;
    expected.links[DDL_LINK_LOCAL].byte_ns = 0.25;
    expected.links[DDL_LINK_REMOTE].message_ns = 7;
    expected.reduce_ns = 0.125;
    assert_int_equal(parse(text, sizeof text - 1, &model, NULL), DDL_OK);
    assert_memory_equal(&model, &expected, sizeof model);
}

static void every_constant_can_be_named(void **state)
{
    double constants[DDL_COST_CONSTANTS];
    (void)state;
    for (int i = 0; i < DDL_COST_CONSTANTS; i++) {
        char text[64];
        ddl_cost_model model = ddl_cost_model_default(1);
        int bytes = snprintf(text, sizeof text, "%s = 77.5\n", ddl_cost_names[i]);
        assert_int_equal(parse(text, (size_t)bytes, &model, NULL), DDL_OK);
        ddl_cost_model_pack(&model, constants);
        assert_true(constants[i] == 77.5);
    }
}

static void nothing_is_the_defaults(void **state)
{
    static const char *const texts[] = { "", "\n\n\n", "   ", "# nothing", "#\n#local.byte_ns = 1\n" };
    ddl_cost_model model = ddl_cost_model_default(2), expected = model;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(parse(texts[i], strlen(texts[i]), &model, NULL), DDL_OK);
        assert_memory_equal(&model, &expected, sizeof model);
    }
}

static void what_is_wrong_is_told_with_its_line(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "local.byte_ns", "dir/profile:1: 'local.byte_ns': a line is NAME = VALUE" },
        { "\nlocal.byte_ns 3\n", "dir/profile:2: 'local.byte_ns 3'" },
        { "#\n#\nlocal.bytes = 1",
          "dir/profile:3: there is no constant 'local.bytes'; accepted are local.latency_ns" },
        { "LOCAL.BYTE_NS = 1", "no constant 'LOCAL.BYTE_NS'" },
        { "= 1", "no constant ''" },
        { "\x1b[31m = 1", "no constant '?[31m'" },
        { "reduce_ns = 1\nreduce_ns = 1", "dir/profile:2: reduce_ns is given twice" },
        { "reduce_ns =", "dir/profile:1: reduce_ns = '': accepted is a decimal number" },
        { "reduce_ns = # 3", "reduce_ns = ''" },
        { "reduce_ns = .", "reduce_ns = '.'" },
        { "reduce_ns = 0", "greater than 0" },
        { "reduce_ns = 0.000", "greater than 0" },
        { "reduce_ns = -1", "reduce_ns = '-1'" },
        { "reduce_ns = +1", "reduce_ns = '+1'" },
        { "reduce_ns = 1,5", "reduce_ns = '1,5'" },
        { "reduce_ns = 1.2.3", "reduce_ns = '1.2.3'" },
        { "reduce_ns = 1e3", "reduce_ns = '1e3'" },
        { "reduce_ns = nan", "reduce_ns = 'nan'" },
        { "reduce_ns = inf", "reduce_ns = 'inf'" },
        { "reduce_ns = 0x10", "reduce_ns = '0x10'" },
        { "reduce_ns = 1000000000000", "less than 1e+12" },
        { "reduce_ns = 1 2", "reduce_ns = '1 2'" },
        { "reduce_ns == 1", "reduce_ns = '= 1'" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_cost_model model = ddl_cost_model_default(1), before = model;
        ddl_error error;
        assert_int_equal(parse(cases[i].text, strlen(cases[i].text), &model, &error), DDL_ECONFIG);
        if (strstr(error.text, cases[i].message) == NULL)
            fail_msg("'%s' is told as: %s", cases[i].text, error.text);
        assert_memory_equal(&model, &before, sizeof model);
    }
}

static void numbers_too_long_for_a_double_are_refused(void **state)
{
    char text[600] = "reduce_ns = ";
    ddl_error error;
    ddl_cost_model model = ddl_cost_model_default(1);
    (void)state;
    memset(text + 12, '9', 500);
    assert_int_equal(parse(text, 512, &model, &error), DDL_ECONFIG);
    text[12] = '.'; /* the quotient of two infinities */
    assert_int_equal(parse(text, 512, &model, &error), DDL_ECONFIG);
    memset(text + 13, '0', 50);
    assert_int_equal(parse(text, 100, &model, &error), DDL_OK);
    assert_true(model.reduce_ns > 0);
}

static void any_byte_anywhere_leads_to_a_clean_end(void **state)
{
    static const char text[] = "# x\nlocal.byte_ns = 0.33\nreduce_ns=1\n";
    char changed[sizeof text];
    (void)state;
    for (size_t at = 0; at < sizeof text - 1; at++)
        for (int byte = 0; byte < 256; byte++) {
            ddl_cost_model model = ddl_cost_model_default(1);
            ddl_error error;
            memcpy(changed, text, sizeof text);
            changed[at] = (char)byte;
            ddl_status status = parse(changed, sizeof text - 1, &model, &error);
            assert_true(status == DDL_OK || status == DDL_ECONFIG);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_profile_names_is_set_and_the_rest_stays),
        cmocka_unit_test(every_constant_can_be_named),
        cmocka_unit_test(nothing_is_the_defaults),
        cmocka_unit_test(what_is_wrong_is_told_with_its_line),
        cmocka_unit_test(numbers_too_long_for_a_double_are_refused),
        cmocka_unit_test(any_byte_anywhere_leads_to_a_clean_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
