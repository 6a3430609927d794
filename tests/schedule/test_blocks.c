/* test_blocks.c - blocks cover a vector exactly, and circular intervals wrap once. */
#include "schedule/blocks.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void blocks_of_a_vector_follow_each_other_without_gaps(void **state)
{
    (void)state;
    for (int nblocks = 1; nblocks <= 9; nblocks++)
        for (size_t count = 0; count <= 40; count++) {
            ddl_blocks blocks = ddl_blocks_of_vector(DDL_BUFFER_OUT, 8, nblocks, count, 4);
            size_t next = 8, smallest = count, largest = 0;
            for (int i = 0; i < nblocks; i++) {
                ddl_slice block = ddl_block(&blocks, i);
                assert_int_equal(block.offset, next);
                assert_int_equal(block.offset, 8 + 4 * (count * (size_t)i / (size_t)nblocks));
                next += block.bytes;
                smallest = block.bytes / 4 < smallest ? block.bytes / 4 : smallest;
                largest = block.bytes / 4 > largest ? block.bytes / 4 : largest;
            }
            assert_int_equal(next, 8 + 4 * count);
            assert_true(largest - smallest <= 1);
        }
}

static void a_vector_near_the_limit_of_size_t_is_cut_without_overflow(void **state)
{
    (void)state;
    ddl_blocks blocks = ddl_blocks_of_vector(DDL_BUFFER_IN, 0, 1000, SIZE_MAX - 7, 1);
    size_t next = 0;
    for (int i = 0; i < 1000; i++) {
        ddl_slice block = ddl_block(&blocks, i);
        assert_true(block.offset == next);
        next += block.bytes;
    }
    assert_true(next == SIZE_MAX - 7);
}

static void indices_of_blocks_wrap_around(void **state)
{
    (void)state;
    ddl_blocks blocks = ddl_blocks_apart(DDL_BUFFER_IN, 0, 5, 2, 10, 4);
    static const struct {
        int index;
        size_t offset;
    } cases[] = { { 0, 0 }, { 4, 160 }, { 5, 0 }, { -1, 160 }, { -6, 160 }, { 12, 80 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_slice block = ddl_block(&blocks, cases[i].index);
        assert_int_equal(block.offset, cases[i].offset);
        assert_int_equal(block.bytes, 8);
    }
}

static void a_circular_interval_has_two_parts_where_it_wraps(void **state)
{
    (void)state;
    ddl_blocks blocks = ddl_blocks_apart(DDL_BUFFER_IN, 0, 5, 2, 2, 4);
    static const struct {
        int first, n;
        size_t offset, bytes, wrapped;
    } cases[] = {
        { 0, 5, 0, 40, 0 },  { 3, 2, 24, 16, 0 }, { 3, 4, 24, 16, 16 },
        { -1, 2, 32, 8, 8 }, { 2, 0, 16, 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_range range = ddl_blocks_circular(&blocks, cases[i].first, cases[i].n);
        assert_int_equal(range.part[0].offset, cases[i].offset);
        assert_int_equal(range.part[0].bytes, cases[i].bytes);
        assert_int_equal(range.part[1].bytes, cases[i].wrapped);
        assert_int_equal(range.part[1].offset, 0);
        assert_int_equal(ddl_range_bytes(&range), 8 * cases[i].n);
    }
}

static void only_blocks_without_gaps_are_packed(void **state)
{
    (void)state;
    ddl_blocks apart = ddl_blocks_apart(DDL_BUFFER_IN, 0, 3, 2, 3, 4);
    ddl_blocks together = ddl_blocks_apart(DDL_BUFFER_IN, 0, 3, 2, 2, 4);
    ddl_blocks alone = ddl_blocks_apart(DDL_BUFFER_IN, 0, 1, 2, 3, 4);
    ddl_blocks vector = ddl_blocks_of_vector(DDL_BUFFER_IN, 0, 3, 7, 4);
    assert_false(ddl_blocks_packed(&apart));
    assert_true(ddl_blocks_packed(&together));
    assert_true(ddl_blocks_packed(&alone));
    assert_true(ddl_blocks_packed(&vector));
}

static void uneven_blocks_lie_where_they_are_said_to(void **state)
{
    (void)state;
    static const size_t counts[] = { 3, 0, 2, 0 }, packed[] = { 0, 3, 3, 5 }, apart[] = { 0, 4, 4, 9 };
    ddl_blocks together = ddl_blocks_of_uneven(DDL_BUFFER_OUT, 8, 4, (ddl_uneven){ counts, packed }, 4);
    ddl_blocks gaps = ddl_blocks_of_uneven(DDL_BUFFER_OUT, 8, 4, (ddl_uneven){ counts, apart }, 4);
    assert_true(ddl_blocks_packed(&together));
    assert_false(ddl_blocks_packed(&gaps));
    for (int i = 0; i < 4; i++) {
        ddl_slice block = ddl_block(&gaps, i);
        assert_int_equal(block.offset, 8 + 4 * apart[i]);
        assert_int_equal(block.bytes, 4 * counts[i]);
        assert_int_equal(ddl_block(&together, i).offset, 8 + 4 * packed[i]);
    }
    ddl_range range = ddl_blocks_circular(&together, 2, 3);
    assert_int_equal(range.part[0].offset, 8 + 12);
    assert_int_equal(range.part[0].bytes, 8);
    assert_int_equal(range.part[1].offset, 8);
    assert_int_equal(range.part[1].bytes, 12);
}

static void uneven_blocks_may_lie_in_any_order(void **state)
{
    (void)state;
    const size_t counts[] = { 2, 3, 0, 1 }, back[] = { 4, 1, 1, 0 }, on[] = { 1, 3, 6, 6 };
    ddl_blocks blocks = ddl_blocks_in_any_order(DDL_BUFFER_OUT, 8, 4, (ddl_uneven){ counts, back }, 4);
    assert_false(ddl_blocks_packed(&blocks));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ddl_block(&blocks, i).offset, 8 + back[i] * 4);
        assert_int_equal(ddl_block(&blocks, i).bytes, counts[i] * 4);
    }
    blocks = ddl_blocks_in_any_order(DDL_BUFFER_OUT, 8, 4, (ddl_uneven){ counts, on }, 4);
    assert_true(ddl_blocks_packed(&blocks));
}

static void peers_are_counted_around_the_ring(void **state)
{
    (void)state;
    ddl_group group = { 1, 4 };
    assert_int_equal(ddl_group_next(&group), 2);
    assert_int_equal(ddl_group_prev(&group), 0);
    assert_int_equal(ddl_group_peer(&group, -2), 3);
    assert_int_equal(ddl_group_peer(&group, 7), 0);
    assert_int_equal(ddl_group_peer(&group, -9), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_a_vector_follow_each_other_without_gaps),
        cmocka_unit_test(a_vector_near_the_limit_of_size_t_is_cut_without_overflow),
        cmocka_unit_test(indices_of_blocks_wrap_around),
        cmocka_unit_test(a_circular_interval_has_two_parts_where_it_wraps),
        cmocka_unit_test(only_blocks_without_gaps_are_packed),
        cmocka_unit_test(uneven_blocks_lie_where_they_are_said_to),
        cmocka_unit_test(uneven_blocks_may_lie_in_any_order),
        cmocka_unit_test(peers_are_counted_around_the_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
