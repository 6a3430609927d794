/*
 * test_plan.c - how a call is cut into pieces. Every rank must cut it in the same way, whatever its own
 * schedule looks like and whether its own call is in place, or the ranks wait for each other's messages
 * for ever.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/plan.h"

static const size_t counts[] = { 0, 1, 1000, 65537, 169720, 183347, 210817, 253211, 1000000, 4000001 };

static bool of_blocks(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_REDUCE_SCATTER || collective == DDL_COLLECTIVE_ALLGATHER ||
           collective == DDL_COLLECTIVE_ALLTOALL;
}

static bool is_uneven(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_REDUCE_SCATTERV || collective == DDL_COLLECTIVE_ALLGATHERV ||
           collective == DDL_COLLECTIVE_GATHERV || collective == DDL_COLLECTIVE_SCATTERV ||
           collective == DDL_COLLECTIVE_ALLTOALLV;
}

static bool may_be_in_place(ddl_collective collective, int rank, int root)
{
    if (collective == DDL_COLLECTIVE_REDUCE || collective == DDL_COLLECTIVE_GATHER ||
        collective == DDL_COLLECTIVE_SCATTER || collective == DDL_COLLECTIVE_GATHERV ||
        collective == DDL_COLLECTIVE_SCATTERV)
        return rank == root;
    return collective == DDL_COLLECTIVE_ALLREDUCE || of_blocks(collective) || is_uneven(collective);
}

enum { MOST_RANKS = 16 };

/* Blocks whose largest has `count`: rank i has i times as much as rank 1, from the end. In an alltoallv that
 * is what each rank knows, and others may know of less. */
static ddl_uneven rising(int nranks, size_t count, size_t block_counts[MOST_RANKS], size_t starts[MOST_RANKS])
{
    size_t start = 0;
    for (int i = 0; i < nranks; i++) {
        block_counts[i] = i + 1 == nranks ? count : count / (size_t)nranks * (size_t)i;
        starts[i] = start;
        start += block_counts[i];
    }
    return (ddl_uneven){ block_counts, starts };
}

/* All of it, each block once, whole and in order: what the pieces of a plan make up. */
static void assert_pieces_make_up(const ddl_plan *plan, const size_t block_counts[])
{
    for (int rank = 0; rank < plan->shape.nranks; rank++) {
        size_t covered = 0;
        for (uint32_t phase = 0; phase < plan->nphases; phase++) {
            uint32_t end = phase + 1 < plan->nphases ? plan->phases[phase + 1].first_piece : plan->npieces;
            size_t each = plan->phases[phase].counts[rank];
            uint32_t pieces = end - plan->phases[phase].first_piece;
            assert_true(each == 0 || covered == plan->phases[phase].first_piece * plan->piece_count);
            assert_true(pieces == 1 || each == 0 || each == plan->piece_count);
            covered += each * pieces;
        }
        assert_int_equal(covered, block_counts[rank]);
    }
}

/* The cut of one rank's call. */
static void cut(const ddl_algorithm *row, int rank, int nranks, int root, size_t count, bool in_place,
                size_t *piece_count, uint32_t *npieces)
{
    ddl_shape shape = { .rank = rank,
                        .nranks = nranks,
                        .root = root,
                        .count = count,
                        .stride = count,
                        .element_bytes = 4,
                        .placement = { nranks, 1, NULL },
                        .in_place = in_place || row->collective == DDL_COLLECTIVE_BROADCAST };
    size_t block_counts[MOST_RANKS], starts[MOST_RANKS];
    if (is_uneven(row->collective))
        shape.blocks = rising(nranks, count, block_counts, starts);
    if (row->collective == DDL_COLLECTIVE_ALLTOALLV)
        shape.out_blocks = shape.blocks;
    ddl_plan *plan = NULL;
    ddl_error error;
    if (ddl_plan_create(row, &shape, &plan, &error) != DDL_OK)
        fail_msg("%s/%s: %s", ddl_collective_name(row->collective), row->name, error.text);
    *piece_count = plan->piece_count;
    *npieces = plan->npieces;
    for (uint32_t phase = 0; phase < plan->nphases; phase++)
        assert_true(plan->phases[phase].schedule->largest_message <= 1024 * 1024);
    if (is_uneven(row->collective))
        assert_pieces_make_up(plan, block_counts);
    ddl_plan_destroy(plan);
}

static void compare_ranks(const ddl_algorithm *row, int nranks, int root, size_t count)
{
    size_t first_count = 0;
    uint32_t first_pieces = 0;
    for (int rank = 0; rank < nranks; rank++)
        for (int in_place = 0; in_place < 2; in_place++) {
            if (in_place == 1 && !may_be_in_place(row->collective, rank, root))
                continue;
            size_t piece_count;
            uint32_t npieces;
            cut(row, rank, nranks, root, count, in_place == 1, &piece_count, &npieces);
            if (rank == 0 && in_place == 0) {
                first_count = piece_count;
                first_pieces = npieces;
            }
            if (piece_count != first_count || npieces != first_pieces)
                fail_msg("%s/%s on %d ranks, count %zu, root %d: rank %d%s cuts pieces of %zu, rank 0 of %zu",
                         ddl_collective_name(row->collective), row->name, nranks, count, root, rank,
                         in_place == 1 ? " in place" : "", piece_count, first_count);
        }
}

static void every_rank_cuts_a_call_in_the_same_way(void **state)
{
    (void)state;
    static const int sizes[] = { 2, 3, 4, 5, 6, 7, 8, 9, 13 };
    size_t rows;
    const ddl_algorithm *catalogue = ddl_catalogue(&rows);
    for (size_t i = 0; i < rows; i++) {
        const ddl_algorithm *row = &catalogue[i];
        if (row->collective == DDL_COLLECTIVE_BARRIER || row->collective == DDL_COLLECTIVE_SEND ||
            row->collective == DDL_COLLECTIVE_RECV)
            continue;
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            if (row->takes != NULL && !row->takes(sizes[j]))
                continue;
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                compare_ranks(row, sizes[j], 0, counts[k]);
                compare_ranks(row, sizes[j], sizes[j] - 1, counts[k]);
            }
        }
    }
}

static void both_ends_of_a_send_cut_it_in_the_same_way(void **state)
{
    (void)state;
    const ddl_algorithm *send = ddl_catalogue_find(DDL_COLLECTIVE_SEND, "direct");
    const ddl_algorithm *recv = ddl_catalogue_find(DDL_COLLECTIVE_RECV, "direct");
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        size_t sent, received;
        uint32_t pieces_sent, pieces_received;
        cut(send, 2, 5, 4, counts[k], false, &sent, &pieces_sent);
        cut(recv, 4, 5, 2, counts[k], false, &received, &pieces_received);
        assert_int_equal(sent, received);
        assert_int_equal(pieces_sent, pieces_received);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_cuts_a_call_in_the_same_way),
        cmocka_unit_test(both_ends_of_a_send_cut_it_in_the_same_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
