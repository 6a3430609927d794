/* test_plan_posted.c - that a v form can go over a board is known of other counts, and is so. */
#include "backend/plan_posted.h"

#include "executor/board.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST_RANKS = 9, CALLS = 40 };

static bool goes_posted(const ddl_algorithm *row, const ddl_shape *shape, ddl_posted_memo *memo)
{
    ddl_plan *plan;
    ddl_error error;
    assert_int_equal(ddl_plan_create_posted(row, shape, NULL, memo, &plan, &error), DDL_OK);
    const bool is_posted = plan != NULL;
    assert_true(!is_posted || plan->phases[0].oneshot != NULL);
    ddl_plan_destroy(plan);
    return is_posted;
}

/* Blocks of any size, one in eight calls with an empty one; how many of the calls go over the board. */
static int assert_same_with_a_memo(const ddl_algorithm *row, int nranks, ddl_posted_memo *memo)
{
    static const size_t most[] = { 1, 8, 500, 16000, 65536, 80000 };
    int nposted = 0;
    for (int i = 0; i < CALLS; i++) {
        size_t counts[MOST_RANKS], starts[MOST_RANKS], start = 0, largest = 0;
        const size_t below = most[(size_t)rand() % (sizeof most / sizeof *most)];
        for (int rank = 0; rank < nranks; rank++) {
            counts[rank] = 1 + (size_t)rand() % below;
            if (i % 8 == 7 && rank == i / 8 % nranks)
                counts[rank] = 0;
            largest = counts[rank] > largest ? counts[rank] : largest;
            starts[rank] = start;
            start += counts[rank];
        }
        const ddl_shape shape = { .rank = rand() % nranks,
                                  .nranks = nranks,
                                  .count = largest,
                                  .stride = largest,
                                  .element_bytes = rand() % 2 == 0 ? 4 : 8,
                                  .post_bytes = DDL_POST_BYTES,
                                  .placement = { nranks, 1, NULL },
                                  .blocks = { counts, starts },
                                  .in_place = rand() % 2 == 0 };
        ddl_posted_memo nothing = { .next = 0 };
        const bool usual = goes_posted(row, &shape, &nothing), known = goes_posted(row, &shape, memo);
        if (usual != known)
            fail_msg("%s/%s, call %d of %d ranks: posted %d, by a memo %d",
                     ddl_collective_name(row->collective), row->name, i, nranks, usual, known);
        nposted += usual;
    }
    return nposted;
}

static void what_is_known_changes_no_way(void **state)
{
    (void)state;
    size_t nrows;
    int nposted = 0;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    srand(1);
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++) {
        ddl_posted_memo memo = { .next = 0 };
        for (size_t i = 0; i < nrows; i++)
            if (ddl_collective_is_uneven(rows[i].collective) && ddl_algorithm_takes(&rows[i], nranks))
                nposted += assert_same_with_a_memo(&rows[i], nranks, &memo);
    }
    assert_true(nposted > 8 * CALLS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_known_changes_no_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
