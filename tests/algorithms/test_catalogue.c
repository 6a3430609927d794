/* test_catalogue.c - every row keeps its promised cost, and shapes that a row does not take are refused. */
#include "algorithms/catalogue.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "simulate/check.h"
#include "simulate/patterns.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A shape whose vector every algorithm can cut evenly; *counts, begun as NULL, is to be freed. */
static ddl_shape shape_of(const ddl_algorithm *row, int nranks, size_t count, size_t **counts)
{
    ddl_shape shape = { .nranks = nranks,
                        .count = count,
                        .stride = count,
                        .element_bytes = row->collective == DDL_COLLECTIVE_BARRIER ? 1 : 4,
                        .in_place = row->collective == DDL_COLLECTIVE_BROADCAST };
    if (ddl_collective_is_uneven(row->collective))
        assert_true(ddl_pattern_apply(DDL_PATTERN_EVEN, row->collective, count, 0, &shape, counts));
    return shape;
}

static ddl_shape even_shape(const ddl_algorithm *row, int nranks, size_t **counts)
{
    return shape_of(row, nranks, 64 * (size_t)nranks, counts);
}

static void every_row_costs_what_it_says(void **state)
{
    (void)state;
    static const int ranks[] = { 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 32, 33, 64 };
    ddl_checker *checker;
    size_t *counts = NULL;
    assert_int_equal(ddl_checker_create(&checker, NULL), DDL_OK);
    size_t nrows;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++)
        for (size_t j = 0; j < 2 * sizeof ranks / sizeof ranks[0]; j++) {
            int p = ranks[j / 2];
            if (!ddl_algorithm_takes(&rows[i], p))
                continue;
            /* Small and large, as pipelines have more blocks the more there is. */
            size_t count = (j % 2 == 0 ? 64 : 65536) * (size_t)p;
            ddl_shape shape = shape_of(&rows[i], p, count, &counts);
            double total = (double)shape.count * 4 * (ddl_collective_has_blocks(rows[i].collective) ? p : 1);
            ddl_error err = { 0 };
            if (ddl_check_algorithm(checker, &rows[i], &shape, &err) != DDL_OK)
                fail_msg("%s: %s", rows[i].name, err.text);
            ddl_work promised = rows[i].work(&(ddl_placement){ p, 1, NULL }, total),
                     measured = ddl_checker_measured(checker);
            /* Unless p is a power of two, some messages of later rounds need not wait for the earlier ones;
             * in a tree few ranks are as deep as the root has children; and of two phases the second may
             * begin before all ranks are through the first. */
            bool uneven = (p & (p - 1)) != 0 || ddl_collective_is_rooted(rows[i].collective) ||
                          rows[i].phases[0].work != NULL;
            if ((uneven ? measured.rounds > promised.rounds : measured.rounds != promised.rounds) ||
                measured.messages != promised.messages || measured.sent_bytes != promised.sent_bytes ||
                measured.reduced_bytes != promised.reduced_bytes ||
                (promised.mean_messages > 0 && fabs(promised.mean_messages - measured.mean_messages) > 1e-9))
                fail_msg("%s/%s on %d ranks: %g rounds, %g messages, %g bytes, %g reduced; promised %g, %g, "
                         "%g, %g",
                         ddl_collective_name(rows[i].collective), rows[i].name, p, measured.rounds,
                         measured.messages, measured.sent_bytes, measured.reduced_bytes, promised.rounds,
                         promised.messages, promised.sent_bytes, promised.reduced_bytes);
        }
    ddl_free(counts);
    ddl_checker_destroy(checker);
}

/* What a row says of bytes between hosts holds for ranks placed host after host. */
static void bytes_between_hosts_are_not_more_than_promised(void **state)
{
    (void)state;
    static const struct {
        int nranks;
        ddl_spread spread;
    } cases[] = { { 8, DDL_SPREAD_ONE_HOST }, { 8, DDL_SPREAD_FOURS },  { 16, DDL_SPREAD_FOURS },
                  { 16, DDL_SPREAD_PAIRS },   { 12, DDL_SPREAD_FOURS }, { 13, DDL_SPREAD_FOURS },
                  { 31, DDL_SPREAD_PAIRS },   { 7, DDL_SPREAD_ALONE },  { 64, DDL_SPREAD_FOURS } };
    ddl_checker *checker;
    size_t *counts = NULL;
    assert_int_equal(ddl_checker_create(&checker, NULL), DDL_OK);
    size_t nrows;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++)
        for (size_t j = 0; j < sizeof cases / sizeof cases[0]; j++) {
            int p = cases[j].nranks, node_of[64];
            if (!ddl_algorithm_takes(&rows[i], p))
                continue;
            /* Divisible by all numbers of slices and of blocks in them. */
            ddl_shape shape = shape_of(&rows[i], p, 64 * (size_t)p * 16, &counts);
            shape.placement = ddl_spread_apply(cases[j].spread, p, node_of);
            double total = (double)shape.count * 4 * (ddl_collective_has_blocks(rows[i].collective) ? p : 1);
            ddl_error err = { 0 };
            if (ddl_check_algorithm(checker, &rows[i], &shape, &err) != DDL_OK)
                fail_msg("%s: %s", rows[i].name, err.text);
            ddl_work promised = rows[i].work(&shape.placement, total),
                     measured = ddl_checker_measured(checker);
            bool one_host = shape.placement.nnodes == 1;
            if (measured.remote_bytes > promised.remote_bytes * 1.0001 ||
                (promised.remote_rounds > 0) == one_host || (measured.remote_bytes > 0 && one_host))
                fail_msg("%s/%s on %d ranks, %s: %g bytes between hosts, promised %g in %g rounds",
                         ddl_collective_name(rows[i].collective), rows[i].name, p,
                         ddl_spread_name(cases[j].spread), measured.remote_bytes, promised.remote_bytes,
                         promised.remote_rounds);
            if (strncmp(rows[i].name, "two_level", strlen("two_level")) == 0 &&
                (measured.messages > promised.messages ||
                 measured.sent_bytes > promised.sent_bytes * 1.0001 ||
                 measured.reduced_bytes > promised.reduced_bytes * 1.0001 ||
                 measured.rounds > promised.rounds))
                fail_msg("%s/%s on %d ranks, %s: %g rounds, %g messages, %g bytes, %g reduced; promised %g, "
                         "%g, %g, %g",
                         ddl_collective_name(rows[i].collective), rows[i].name, p,
                         ddl_spread_name(cases[j].spread), measured.rounds, measured.messages,
                         measured.sent_bytes, measured.reduced_bytes, promised.rounds, promised.messages,
                         promised.sent_bytes, promised.reduced_bytes);
        }
    ddl_free(counts);
    ddl_checker_destroy(checker);
}

static int sends_between_hosts(const ddl_algorithm *row, ddl_shape shape)
{
    int sends = 0;
    ddl_collective role;
    for (int rank = 0; rank < shape.nranks; rank++) {
        ddl_shape own;
        ddl_schedule *s;
        assert_true(ddl_shape_of_rank(&shape, row->collective, rank, &own, &role));
        assert_int_equal(row->build(&own, &s, NULL), DDL_OK);
        for (uint32_t i = 0; i < s->nsteps; i++)
            sends += s->steps[i].kind == DDL_STEP_SEND &&
                     shape.placement.node_of[rank] != shape.placement.node_of[s->steps[i].peer];
        ddl_schedule_destroy(s);
    }
    return sends;
}

/* Whichever rank is the root, and in whatever order ranks are spread over hosts of four. */
static void trees_of_blocks_enter_or_leave_each_host_once(void **state)
{
    (void)state;
    static const ddl_spread spreads[] = { DDL_SPREAD_FOURS, DDL_SPREAD_ROUND_ROBIN };
    static const ddl_collective collectives[] = { DDL_COLLECTIVE_GATHER, DDL_COLLECTIVE_SCATTER,
                                                  DDL_COLLECTIVE_GATHERV, DDL_COLLECTIVE_SCATTERV };
    size_t *counts = NULL;
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++)
        for (size_t j = 0; j < sizeof spreads / sizeof spreads[0]; j++)
            for (int root = 0; root < 12; root++) {
                const ddl_algorithm *row = ddl_catalogue_find(collectives[i], "binomial");
                int node_of[12];
                ddl_shape shape = shape_of(row, 12, 5, &counts);
                shape.root = root;
                shape.placement = ddl_spread_apply(spreads[j], 12, node_of);
                assert_int_equal(sends_between_hosts(row, shape), 2);
            }
    ddl_free(counts);
}

static void rows_are_found_by_collective_and_name(void **state)
{
    (void)state;
    size_t nrows;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    assert_int_equal(nrows, 78);
    for (size_t i = 0; i < nrows; i++) {
        assert_ptr_equal(ddl_catalogue_find(rows[i].collective, rows[i].name), &rows[i]);
        assert_int_equal(ddl_catalogue_index(&rows[i]), i);
        assert_true(strlen(rows[i].summary) > 0);
        assert_true(strlen(rows[i].source) > 0);
    }
    assert_null(ddl_catalogue_find(DDL_COLLECTIVE_BARRIER, "ring"));
}

static void rows_for_powers_of_two_refuse_other_numbers(void **state)
{
    (void)state;
    static const struct {
        ddl_collective collective;
        const char *name;
    } cases[] = { { DDL_COLLECTIVE_REDUCE_SCATTER, "halving" }, { DDL_COLLECTIVE_ALLGATHER, "doubling" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ddl_algorithm *row = ddl_catalogue_find(cases[i].collective, cases[i].name);
        ddl_shape shape = even_shape(row, 6, NULL);
        ddl_schedule *schedule = NULL;
        ddl_error err = { 0 };
        assert_false(ddl_algorithm_takes(row, 6));
        assert_true(ddl_algorithm_takes(row, 8));
        assert_int_equal(row->build(&shape, &schedule, &err), DDL_EUNSUPPORTED);
        assert_null(schedule);
        assert_non_null(strstr(err.text, "6 ranks"));
    }
}

static ddl_schedule *build(ddl_collective collective, const char *name, ddl_shape shape)
{
    ddl_schedule *schedule;
    assert_int_equal(ddl_catalogue_find(collective, name)->build(&shape, &schedule, NULL), DDL_OK);
    return schedule;
}

static void one_rank_only_copies_and_in_place_does_nothing(void **state)
{
    (void)state;
    size_t nrows, *counts = NULL;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++) {
        if (rows[i].collective == DDL_COLLECTIVE_SEND || rows[i].collective == DDL_COLLECTIVE_RECV)
            continue;
        for (int in_place = 0; in_place < 2; in_place++) {
            ddl_shape shape = even_shape(&rows[i], 1, &counts);
            shape.in_place = in_place == 1;
            shape.average = true;
            ddl_schedule *schedule;
            assert_int_equal(rows[i].build(&shape, &schedule, NULL), DDL_OK);
            bool copies = !in_place && rows[i].collective != DDL_COLLECTIVE_BROADCAST &&
                          rows[i].collective != DDL_COLLECTIVE_BARRIER;
            assert_int_equal(schedule->nsteps, copies);
            ddl_schedule_destroy(schedule);
        }
    }
    ddl_free(counts);
}

static void direct_and_flat_fold_in_rank_order_with_one_rounding(void **state)
{
    (void)state;
    static const struct {
        ddl_collective collective;
        const char *name;
    } cases[] = { { DDL_COLLECTIVE_ALLREDUCE, "flat" },
                  { DDL_COLLECTIVE_ALLREDUCE, "direct" },
                  { DDL_COLLECTIVE_REDUCE_SCATTER, "direct" },
                  { DDL_COLLECTIVE_REDUCE, "flat" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int rank = 0; rank < 5; rank++) {
            ddl_schedule *s =
                build(cases[i].collective, cases[i].name,
                      (ddl_shape){ .rank = rank, .nranks = 5, .count = 5, .stride = 5, .element_bytes = 4 });
            int nreduces = 0;
            for (uint32_t j = 0; j < s->nsteps; j++) {
                if (s->steps[j].kind != DDL_STEP_REDUCE)
                    continue;
                nreduces++;
                assert_int_equal(s->steps[j].noperands, 5);
                const ddl_slice *operands = &s->operands[s->steps[j].first_operand];
                for (uint32_t k = 0; k < 5; k++)
                    assert_int_equal(operands[k].buffer,
                                     k == (uint32_t)rank ? DDL_BUFFER_IN : DDL_BUFFER_SCRATCH);
                /* What rank k sent is the k-th operand. */
                for (uint32_t k = 0; k < j; k++)
                    if (s->steps[k].kind == DDL_STEP_RECV)
                        assert_int_equal(s->steps[k].target.part[0].offset,
                                         operands[s->steps[k].peer].offset);
            }
            assert_int_equal(nreduces, cases[i].collective != DDL_COLLECTIVE_REDUCE || rank == 0);
            ddl_schedule_destroy(s);
        }
}

/* What can be received from the start on is posted at the start. */
static void first_receives_wait_for_nothing(void **state)
{
    (void)state;
    size_t nrows, *counts = NULL;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++)
        for (int rank = 0; rank < 8; rank++) {
            ddl_shape shape = even_shape(&rows[i], 8, &counts);
            ddl_collective role;
            shape.root = rank == 0 ? 1 : 0;
            if (rows[i].collective == DDL_COLLECTIVE_SEND || rows[i].collective == DDL_COLLECTIVE_RECV)
                shape.rank = rank;
            else
                assert_true(ddl_shape_of_rank(&shape, rows[i].collective, rank, &shape, &role));
            /* A second phase receives where the first one reads. */
            bool reads_out_again = rows[i].collective == DDL_COLLECTIVE_ALLREDUCE ||
                                   strncmp(rows[i].name, "scatter_", 8) == 0 ||
                                   rows[i].phases[0].work != NULL;
            ddl_schedule *s;
            assert_int_equal(rows[i].build(&shape, &s, NULL), DDL_OK);
            for (uint32_t j = 0; j < s->nsteps; j++)
                if (s->steps[j].kind == DDL_STEP_RECV && !reads_out_again &&
                    s->steps[j].target.part[0].buffer == DDL_BUFFER_OUT)
                    assert_int_equal(s->steps[j].npredecessors, 0);
                else if (s->steps[j].kind == DDL_STEP_RECV && !reads_out_again &&
                         s->steps[j].target.part[0].buffer == DDL_BUFFER_SCRATCH)
                    assert_int_equal(s->steps[j].npredecessors, 0);
            ddl_schedule_destroy(s);
        }
    ddl_free(counts);
}

static void large_schedules_are_built_in_good_time(void **state)
{
    (void)state;
    /* Quadratic building would be some billions of steps here, and the test would run into its limit. */
    for (int i = 0; i < 20; i++) {
        ddl_schedule *s =
            build(DDL_COLLECTIVE_ALLREDUCE, "ring",
                  (ddl_shape){ .rank = i, .nranks = 20000, .count = 40000, .element_bytes = 4 });
        assert_int_equal(s->nmessages, 4 * 19999);
        ddl_schedule_destroy(s);
    }
}

#ifdef DDL_FAILPOINTS
static void running_out_of_memory_in_any_build_is_an_error(void **state)
{
    (void)state;
    size_t nrows, *counts = NULL;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++)
        for (int rank = 0; rank < 5; rank++) {
            int p = ddl_algorithm_takes(&rows[i], 5) ? 5 : 4, node_of[5], nth = 0;
            ddl_collective c = rows[i].collective;
            ddl_shape shape = shape_of(&rows[i], p, 70000, &counts), own = shape;
            ddl_collective role;
            own.rank = rank % p;
            own.root = (rank + 1) % p;
            own.stride += ddl_collective_has_blocks(c) ? 16 : 0; /* with gaps, blocks are packed in scratch */
            own.placement = ddl_spread_apply(DDL_SPREAD_PAIRS, p, node_of);
            if (c != DDL_COLLECTIVE_SEND && c != DDL_COLLECTIVE_RECV)
                assert_true(ddl_shape_of_rank(&own, c, rank % p, &own, &role));
            for (ddl_status status = DDL_ENOMEM; status != DDL_OK;) {
                char setting[32];
                ddl_schedule *schedule = NULL;
                snprintf(setting, sizeof setting, "base.alloc:%d", ++nth);
                ddl_failpoint_arm(setting);
                status = rows[i].build(&own, &schedule, NULL);
                ddl_failpoint_arm(NULL);
                assert_true(status == DDL_OK || status == DDL_ENOMEM);
                assert_true((schedule != NULL) == (status == DDL_OK));
                ddl_schedule_destroy(schedule);
            }
            assert_true(nth > 5);
        }
    ddl_free(counts);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_costs_what_it_says),
        cmocka_unit_test(bytes_between_hosts_are_not_more_than_promised),
        cmocka_unit_test(trees_of_blocks_enter_or_leave_each_host_once),
        cmocka_unit_test(rows_are_found_by_collective_and_name),
        cmocka_unit_test(rows_for_powers_of_two_refuse_other_numbers),
        cmocka_unit_test(one_rank_only_copies_and_in_place_does_nothing),
        cmocka_unit_test(direct_and_flat_fold_in_rank_order_with_one_rounding),
        cmocka_unit_test(first_receives_wait_for_nothing),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(running_out_of_memory_in_any_build_is_an_error),
#endif
        cmocka_unit_test(large_schedules_are_built_in_good_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
