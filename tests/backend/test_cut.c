/* test_cut.c - what is known of other counts changes no cut, and saves the schedules that it was measured on.
 */
#include "backend/cut.h"

#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MIB = 1024 * 1024, CALLS = 200 };

/* Counts as programs have them: most are small, few outgrow a message. */
static size_t some_count(void)
{
    static const size_t most[] = { 1, 3, 64, 1000, 10000, 100000, MIB, 5 * MIB };
    return (size_t)rand() % (most[(size_t)rand() % (sizeof most / sizeof *most)] + 1);
}

static void assert_same_with_a_memo(const ddl_algorithm *row, int nranks, size_t post_bytes)
{
    static const size_t element_bytes[] = { 1, 4, 8 };
    ddl_cut_memo memo = { .next = 0 };
    for (int i = 0; i < CALLS; i++) {
        const size_t count = some_count();
        const ddl_shape shape = { .rank = rand() % nranks,
                                  .nranks = nranks,
                                  .count = count,
                                  .stride = count,
                                  .element_bytes = element_bytes[rand() % 3],
                                  .message_bytes = rand() % 4 == 0 ? 128 * 1024 : 0,
                                  .post_bytes = post_bytes,
                                  .placement = { nranks, 1, NULL },
                                  .average =
                                      row->collective == DDL_COLLECTIVE_REDUCE_SCATTERV && rand() % 2 == 0 };
        ddl_cut fresh, known;
        ddl_error error;
        assert_int_equal(ddl_cut_find(row, &shape, NULL, &fresh, &error), DDL_OK);
        assert_int_equal(ddl_cut_find(row, &shape, &memo, &known, &error), DDL_OK);
        if (fresh.piece_count != known.piece_count || fresh.npieces != known.npieces ||
            fresh.is_posted != known.is_posted)
            fail_msg("%s/%s of %zu x %zu bytes, %d ranks, post %zu: %zu x %u, posted %d; by a memo %zu x %u, "
                     "posted %d",
                     ddl_collective_name(row->collective), row->name, count, shape.element_bytes, nranks,
                     post_bytes, fresh.piece_count, fresh.npieces, fresh.is_posted, known.piece_count,
                     known.npieces, known.is_posted);
    }
}

static void what_is_known_changes_no_cut(void **state)
{
    (void)state;
    size_t nrows, nuneven = 0;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    srand(1);
    for (size_t i = 0; i < nrows; i++) {
        if (!ddl_collective_is_uneven(rows[i].collective))
            continue;
        nuneven++;
        for (int nranks = 2; nranks <= 9; nranks++)
            if (ddl_algorithm_takes(&rows[i], nranks)) {
                assert_same_with_a_memo(&rows[i], nranks, 0);
                assert_same_with_a_memo(&rows[i], nranks, 256 * 1024);
            }
    }
    assert_true(nuneven >= 5);
}

static void how_a_thread_rounds_changes_no_cut(void **state)
{
    (void)state;
    const ddl_algorithm *row = ddl_catalogue_find(DDL_COLLECTIVE_ALLREDUCE, "direct");
    for (size_t count = 1000; count < 2000000; count += 9999)
        for (int posted = 0; posted < 2; posted++) {
            const ddl_shape shape = { .nranks = 2,
                                      .count = count,
                                      .element_bytes = 4,
                                      .message_bytes = 256 * 1024,
                                      .post_bytes = posted ? 256 * 1024 : 0,
                                      .placement = { 2, 1, NULL } };
            ddl_cut usual, other;
            ddl_error error;
            assert_int_equal(ddl_cut_find(row, &shape, NULL, &usual, &error), DDL_OK);
            assert_int_equal(fesetround(FE_UPWARD), 0);
            const ddl_status status = ddl_cut_find(row, &shape, NULL, &other, &error);
            const int direction = fegetround();
            assert_int_equal(fesetround(FE_TONEAREST), 0);
            assert_int_equal(direction, FE_UPWARD);
            assert_int_equal(status, DDL_OK);
            assert_int_equal(other.piece_count, usual.piece_count);
            assert_int_equal(other.npieces, usual.npieces);
        }
}

static const ddl_algorithm *counted;
static int nbuilt;

static ddl_status build_and_count(const ddl_shape *shape, ddl_schedule **schedule, ddl_error *err)
{
    nbuilt++;
    return counted->build(shape, schedule, err);
}

static ddl_algorithm counting(ddl_collective collective)
{
    counted = ddl_catalogue_find(collective, "direct");
    ddl_algorithm row = *counted;
    row.build = build_and_count;
    return row;
}

/* Schedules that were built for the cut of a call with so large blocks. */
static int built_for(const ddl_algorithm *row, size_t count, ddl_cut_memo *memo)
{
    const ddl_shape shape = {
        .nranks = 4, .count = count, .stride = count, .element_bytes = 4, .placement = { 4, 1, NULL }
    };
    ddl_cut cut;
    ddl_error error;
    nbuilt = 0;
    assert_int_equal(ddl_cut_find(row, &shape, memo, &cut, &error), DDL_OK);
    return nbuilt;
}

static void smaller_blocks_are_not_measured_again(void **state)
{
    (void)state;
    const ddl_algorithm row = counting(DDL_COLLECTIVE_ALLGATHERV);
    ddl_cut_memo memo = { .next = 0 };
    assert_true(built_for(&row, 1000, &memo) > 0);
    assert_int_equal(built_for(&row, 1000, &memo), 0);
    assert_int_equal(built_for(&row, 7, &memo), 0);
    assert_true(built_for(&row, 0, &memo) > 0);
    assert_true(built_for(&row, 1001, &memo) > 0);
    assert_true(built_for(&row, 1001, NULL) > 0);
}

/* Whose ranks do not know of the same counts, so that no count is looked at. */
static void an_alltoallv_is_measured_once(void **state)
{
    (void)state;
    const ddl_algorithm row = counting(DDL_COLLECTIVE_ALLTOALLV);
    ddl_cut_memo memo = { .next = 0 };
    assert_true(built_for(&row, 7, &memo) > 0);
    assert_int_equal(built_for(&row, 0, &memo), 0);
    assert_int_equal(built_for(&row, 5 * MIB, &memo), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_known_changes_no_cut),
        cmocka_unit_test(how_a_thread_rounds_changes_no_cut),
        cmocka_unit_test(smaller_blocks_are_not_measured_again),
        cmocka_unit_test(an_alltoallv_is_measured_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
