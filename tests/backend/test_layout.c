/* test_layout.c - what is copied between buffers and a room of a GPU's host. */
#include "backend/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { RANKS = 3, ELEMENT_BYTES = 4, PIECES = 3, PIECE = DDL_ROOM_BYTES / ELEMENT_BYTES };

/* Where one piece fills a room, blocks that lie apart in the buffer touch each other there. */
static void no_span_goes_over_into_another_block(void **state)
{
    const ddl_shape shape = { .rank = 1,
                              .nranks = RANKS,
                              .count = (size_t)PIECES * PIECE,
                              .stride = (size_t)PIECES * PIECE,
                              .element_bytes = ELEMENT_BYTES };
    const size_t piece_bytes = (size_t)PIECE * ELEMENT_BYTES;
    const ddl_algorithm *algorithm = ddl_catalogue_find(DDL_COLLECTIVE_ALLGATHER, "ring");
    ddl_layout layout;
    ddl_schedule *schedule;
    ddl_spans spans;
    ddl_error error;
    (void)state;
    assert_int_equal(ddl_layout_make(DDL_COLLECTIVE_ALLGATHER, &shape, PIECE, PIECES, &layout, &error),
                     DDL_OK);
    assert_int_equal(layout.pieces, 1);
    ddl_shape inside = ddl_layout_shape(&layout, &shape);
    inside.count = PIECE;
    assert_int_equal(algorithm->build(&inside, &schedule, &error), DDL_OK);
    assert_int_equal(ddl_layout_spans(&layout, &shape, schedule, &spans, &error), DDL_OK);
    assert_int_equal(spans.ndown, 1);
    assert_int_equal(spans.nup, RANKS);
    for (size_t block = 0; block < RANKS; block++) {
        assert_true(spans.up[block].of_out);
        assert_int_equal(spans.up[block].room_offset, layout.out_at + block * piece_bytes);
        assert_int_equal(spans.up[block].buffer_offset, block * PIECES * piece_bytes);
        assert_int_equal(spans.up[block].bytes, piece_bytes);
    }
    ddl_spans_fini(&spans);
    ddl_schedule_destroy(schedule);
    ddl_layout_fini(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(no_span_goes_over_into_another_block) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
