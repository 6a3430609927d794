/* test_cuts.c - positions are numbered in order, whether they are dense or far apart. */
#include "simulate/cuts.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void positions_are_numbered_in_order_and_once(void **state)
{
    (void)state;
    static const uint32_t lasts[] = { 0, 63, 64, 5000, 4000000000u };
    ddl_cuts cuts = { 0 };
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < sizeof lasts / sizeof lasts[0]; i++) {
            uint32_t last = lasts[i], step = last / 50 + 1;
            ddl_cuts_begin(&cuts, last, 100);
            assert_int_equal(cuts.dense, last <= 5000);
            for (uint64_t p = 0; p <= last; p += step) { /* from both ends */
                ddl_cuts_add(&cuts, (uint32_t)p);
                ddl_cuts_add(&cuts, last - last % step - (uint32_t)p);
            }
            assert_true(ddl_cuts_seal(&cuts));
            assert_int_equal(cuts.count, last / step + 1);
            for (uint32_t n = 0; n < cuts.count; n++) {
                assert_int_equal(cuts.positions[n], n * step);
                assert_int_equal(ddl_cuts_index(&cuts, n * step), n);
            }
        }
    ddl_cuts_fini(&cuts);
}

static void an_empty_set_has_no_positions(void **state)
{
    (void)state;
    ddl_cuts cuts = { 0 };
    ddl_cuts_begin(&cuts, 1000000, 1);
    assert_true(ddl_cuts_seal(&cuts));
    assert_int_equal(cuts.count, 0);
    ddl_cuts_fini(&cuts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_are_numbered_in_order_and_once),
        cmocka_unit_test(an_empty_set_has_no_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
