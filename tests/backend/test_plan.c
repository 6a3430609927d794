/*
 * test_plan.c - how a call is cut into pieces. Every rank must cut it in the same way, whatever its own
 * schedule looks like and whether its own call is in place, or the ranks wait for each other's messages
 * for ever.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/plan.h"
#include "base/copy.h"

static size_t message_bytes; /* of shapes; 0: the default */

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

/* What each piece of a phase has of each block; of a single one that is all of them. */
static const size_t *counts_of(const ddl_plan *plan, uint32_t phase)
{
    return plan->npieces > 1 ? plan->phases[phase].counts : plan->shape.blocks.counts;
}

/* All of it, each block once, whole and in order: what the pieces of a plan make up. */
static void assert_pieces_make_up(const ddl_plan *plan, const size_t block_counts[])
{
    for (int rank = 0; rank < plan->shape.nranks; rank++) {
        size_t covered = 0;
        for (uint32_t phase = 0; phase < plan->nphases; phase++) {
            uint32_t end = phase + 1 < plan->nphases ? plan->phases[phase + 1].first_piece : plan->npieces;
            size_t each = counts_of(plan, phase)[rank];
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
                        .message_bytes = message_bytes,
                        .placement = { nranks, 1, NULL },
                        .in_place = in_place || row->collective == DDL_COLLECTIVE_BROADCAST };
    size_t block_counts[MOST_RANKS], starts[MOST_RANKS];
    if (is_uneven(row->collective))
        shape.blocks = rising(nranks, count, block_counts, starts);
    if (row->collective == DDL_COLLECTIVE_ALLTOALLV)
        shape.out_blocks = shape.blocks;
    ddl_plan *plan = NULL;
    ddl_error error;
    if (ddl_plan_create(row, &shape, NULL, &plan, &error) != DDL_OK)
        fail_msg("%s/%s: %s", ddl_collective_name(row->collective), row->name, error.text);
    *piece_count = plan->piece_count;
    *npieces = plan->npieces;
    for (uint32_t phase = 0; phase < plan->nphases; phase++)
        assert_true(plan->phases[phase].schedule->largest_message <= 2 * 1024 * 1024);
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

static void compare_all_ranks(const int sizes[], size_t nsizes)
{
    size_t rows;
    const ddl_algorithm *catalogue = ddl_catalogue(&rows);
    for (size_t i = 0; i < rows; i++) {
        const ddl_algorithm *row = &catalogue[i];
        if (row->collective == DDL_COLLECTIVE_BARRIER || row->collective == DDL_COLLECTIVE_SEND ||
            row->collective == DDL_COLLECTIVE_RECV)
            continue;
        for (size_t j = 0; j < nsizes; j++) {
            if (row->takes != NULL && !row->takes(sizes[j]))
                continue;
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                compare_ranks(row, sizes[j], 0, counts[k]);
                compare_ranks(row, sizes[j], sizes[j] - 1, counts[k]);
            }
        }
    }
}

static void every_rank_cuts_a_call_in_the_same_way(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__ /* takes ten times as long, and finds what it finds with these */
    static const int sizes[] = { 2, 3, 6 };
#else
    static const int sizes[] = { 2, 3, 4, 5, 6, 7, 8, 9, 13 };
#endif
    compare_all_ranks(sizes, sizeof sizes / sizeof *sizes);
}

/* No message is more than the transport takes, on any rank, however unevenly ranks are spread over hosts: on
 * 17 to 33 ranks one host has two or five of them and the others have one each. */
static void no_rank_has_a_message_that_is_too_large(void **state)
{
    (void)state;
    enum { RANKS = 33 };
    static const int sizes[] = { 17, 20, 33 }, crowds[] = { 2, 5 };
    int node_of[RANKS];
    size_t rows, block_counts[RANKS], starts[RANKS];
    const ddl_algorithm *catalogue = ddl_catalogue(&rows);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
            for (size_t k = 0; k < sizeof crowds / sizeof *crowds; k++) {
                const int nranks = sizes[j];
                for (int rank = 0, node = 0; rank < nranks; rank++) { /* ranks 5 .. are together */
                    node_of[rank] = node;
                    node += rank < 5 || rank >= 4 + crowds[k];
                    block_counts[rank] = 3000000;
                    starts[rank] = (size_t)rank * 3000000;
                }
                if (strncmp(catalogue[i].name, "two_level", strlen("two_level")) != 0 &&
                    strcmp(catalogue[i].name, "binomial") != 0)
                    continue;
                for (int rank = 0; rank < nranks; rank++) {
                    ddl_shape shape = { .rank = rank,
                                        .nranks = nranks,
                                        .root = 6,
                                        .count = 3000000,
                                        .stride = 3000000,
                                        .blocks = { block_counts, starts },
                                        .element_bytes = 4,
                                        .placement = { nranks, nranks - crowds[k] + 1, node_of },
                                        .in_place = catalogue[i].collective == DDL_COLLECTIVE_BROADCAST };
                    ddl_plan *plan = NULL;
                    ddl_error error;
                    if (!is_uneven(catalogue[i].collective))
                        shape.blocks = (ddl_uneven){ NULL, NULL };
                    if (ddl_plan_create(&catalogue[i], &shape, NULL, &plan, &error) != DDL_OK)
                        fail_msg("%s/%s, rank %d of %d: %s", ddl_collective_name(catalogue[i].collective),
                                 catalogue[i].name, rank, nranks, error.text);
                    assert_true(plan->phases[0].schedule->largest_message <= 2 * 1024 * 1024);
                    assert_true(plan->scratch_bytes <= 4 * 1024 * 1024);
                    ddl_plan_destroy(plan);
                }
            }
}

/* So many uneven blocks that schedules are not kept: scratch has room for those of every phase. */
static void scratch_has_room_for_every_phase_although_none_is_kept(void **state)
{
    (void)state;
    enum { RANKS = 300 };
    static size_t block_counts[RANKS], starts[RANKS], piece_counts[RANKS];
    static const struct {
        ddl_collective collective;
        const char *name;
    } cases[] = { { DDL_COLLECTIVE_GATHERV, "binomial" }, { DDL_COLLECTIVE_ALLGATHERV, "circulant" } };
    for (int rank = 0; rank < RANKS; rank++) {
        block_counts[rank] = (size_t)(rank + 1) * 30000;
        starts[rank] = rank > 0 ? starts[rank - 1] + block_counts[rank - 1] : 0;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ddl_algorithm *row = ddl_catalogue_find(cases[i].collective, cases[i].name);
        ddl_shape shape = { .rank = 128,
                            .nranks = RANKS,
                            .count = block_counts[RANKS - 1],
                            .stride = block_counts[RANKS - 1],
                            .blocks = { block_counts, starts },
                            .element_bytes = 4,
                            .placement = { RANKS, 1, NULL } };
        ddl_plan *plan = NULL;
        ddl_error error;
        assert_int_equal(ddl_plan_create(row, &shape, NULL, &plan, &error), DDL_OK);
        assert_false(plan->keeps_schedules);
        for (uint32_t phase = 0; phase < plan->nphases; phase += 37) {
            ddl_schedule *schedule;
            memcpy(piece_counts, counts_of(plan, phase), sizeof piece_counts);
            ddl_shape piece = shape;
            piece.count = plan->phases[phase].count;
            piece.blocks.counts = piece_counts;
            assert_int_equal(row->build(&piece, &schedule, &error), DDL_OK);
            assert_true(schedule->scratch_bytes <= plan->scratch_bytes);
            ddl_schedule_destroy(schedule);
        }
        ddl_plan_destroy(plan);
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

/* The cut of four ranks; bytes are those of the call's count. */
static uint32_t pieces_of(ddl_collective collective, const char *name, size_t bytes)
{
    size_t piece_count;
    uint32_t npieces;
    cut(ddl_catalogue_find(collective, name), 1, 4, 0, bytes / 4, false, &piece_count, &npieces);
    return npieces;
}

static void only_much_or_what_is_reduced_is_cut(void **state)
{
    (void)state;
    enum { KIB = 1024, MIB = 1024 * 1024 };
    /* One message of up to 1 MiB; more is cut into 512 KiB. */
    assert_int_equal(pieces_of(DDL_COLLECTIVE_BROADCAST, "binomial", MIB), 1);
    assert_int_equal(pieces_of(DDL_COLLECTIVE_BROADCAST, "binomial", MIB + 4), 3);
    assert_int_equal(pieces_of(DDL_COLLECTIVE_SEND, "direct", MIB), 1);
    /* Messages of half of all blocks. */
    assert_int_equal(pieces_of(DDL_COLLECTIVE_ALLGATHER, "doubling", 512 * KIB), 1);
    assert_int_equal(pieces_of(DDL_COLLECTIVE_ALLGATHER, "doubling", MIB), 4);
    assert_int_equal(pieces_of(DDL_COLLECTIVE_ALLTOALL, "direct", MIB), 1);
    assert_true(pieces_of(DDL_COLLECTIVE_ALLTOALL, "direct", MIB + 4) >= 3);
    /* What is received to be reduced stays in cache. */
    assert_int_equal(pieces_of(DDL_COLLECTIVE_REDUCE, "binomial", 512 * KIB), 1);
    assert_true(pieces_of(DDL_COLLECTIVE_REDUCE, "binomial", 4 * MIB) >= 8);
}

/* Each rank knows its own counts only; one of these is where the search for a cut begins. */
static void ranks_with_other_counts_cut_an_alltoallv_in_the_same_way(void **state)
{
    (void)state;
    static const size_t largest[] = { 1, 49152, 65535, 65536, 65537, 70000, 1000000 };
    for (int nranks = 2; nranks <= 16; nranks++)
        for (int pairwise = 0; pairwise < 2; pairwise++) {
            const ddl_algorithm *row =
                ddl_catalogue_find(DDL_COLLECTIVE_ALLTOALLV, pairwise ? "pairwise" : "direct");
            size_t first, piece_count;
            uint32_t npieces;
            cut(row, 0, nranks, 0, largest[0], false, &first, &npieces);
            for (size_t i = 1; i < sizeof largest / sizeof *largest; i++) {
                cut(row, 1, nranks, 0, largest[i], i % 2 == 0, &piece_count, &npieces);
                assert_int_equal(piece_count, first);
            }
        }
}

/* With root 0 nobody sends to rank 0; with another root the messages to it may be the largest. */
static void what_stays_whole_is_taken_for_every_root(void **state)
{
    (void)state;
    static const size_t whole[] = { 262144, 262145, 524288, 576717, 1048576 };
    size_t rows, piece_count;
    uint32_t npieces;
    const ddl_algorithm *catalogue = ddl_catalogue(&rows);
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < sizeof whole / sizeof *whole; k++)
            for (int root = 0; catalogue[i].collective == DDL_COLLECTIVE_BROADCAST && root < 11; root++)
                for (int rank = 0; rank < 11; rank++)
                    cut(&catalogue[i], rank, 11, root, whole[k], true, &piece_count, &npieces);
}

/* The rules hold for pieces of any size, and what is reduced is cut accordingly. */
static void pieces_are_as_small_as_is_said(void **state)
{
    size_t piece_count;
    uint32_t npieces, by_default;
    const ddl_algorithm *flat = ddl_catalogue_find(DDL_COLLECTIVE_ALLREDUCE, "flat");
    (void)state;
    cut(flat, 0, 2, 0, 1 << 20, false, &piece_count, &by_default);
    assert_int_equal(piece_count * 4, DDL_PIECE_BYTES);
    for (message_bytes = 64 * 1024; message_bytes < DDL_PIECE_BYTES; message_bytes *= 2) {
        cut(flat, 0, 2, 0, 1 << 20, false, &piece_count, &npieces);
        assert_int_equal(piece_count * 4, message_bytes);
        assert_int_equal(npieces, by_default * (DDL_PIECE_BYTES / message_bytes));
    }
    message_bytes = 64 * 1024;
    compare_all_ranks((const int[]){ 3, 4 }, 2);
    message_bytes = 0;
}

/* A call between two ranks of one host whose buffers have so many bytes each. */
static ddl_plan *plan_between_two(ddl_collective collective, const char *name, size_t bytes, bool in_place,
                                  size_t post_bytes)
{
    enum { RANKS = 2 };
    const bool is_vector = collective == DDL_COLLECTIVE_ALLREDUCE || collective == DDL_COLLECTIVE_BROADCAST;
    const size_t count = bytes / 4 / (is_vector ? 1 : RANKS);
    const ddl_shape shape = { .rank = 1,
                              .nranks = RANKS,
                              .count = count,
                              .stride = count,
                              .placement = { RANKS, 1, NULL },
                              .element_bytes = 4,
                              .in_place = in_place,
                              .post_bytes = post_bytes };
    ddl_plan *plan;
    assert_int_equal(ddl_plan_create(ddl_catalogue_find(collective, name), &shape, NULL, &plan, NULL),
                     DDL_OK);
    return plan;
}

/* Each buffer is so many quarters of what the caches hold, over a board or not. */
static bool goes_past_caches(ddl_collective collective, const char *name, size_t quarters, bool in_place,
                             size_t post_bytes)
{
    const size_t bytes = quarters * (ddl_copy_cached_bytes(post_bytes > 0) / 4);
    ddl_plan *plan = plan_between_two(collective, name, bytes, in_place, post_bytes);
    bool past_caches = plan->past_caches;
    ddl_plan_destroy(plan);
    return past_caches;
}

/* More than the caches hold, of all buffers of a host's ranks; and what is reduced in place has just been
 * read. */
static void what_outgrows_the_caches_goes_past_them(void **state)
{
    (void)state;
    assert_false(goes_past_caches(DDL_COLLECTIVE_ALLTOALL, "direct", 1, false, 0));
    assert_true(goes_past_caches(DDL_COLLECTIVE_ALLTOALL, "direct", 2, false, 0));
    assert_true(goes_past_caches(DDL_COLLECTIVE_ALLREDUCE, "direct", 2, false, 0));
    assert_false(goes_past_caches(DDL_COLLECTIVE_ALLREDUCE, "direct", 8, true, 0));
    assert_true(goes_past_caches(DDL_COLLECTIVE_ALLGATHER, "ring", 8, true, 0));
    assert_false(goes_past_caches(DDL_COLLECTIVE_BROADCAST, "binomial", 2, true, 0));
    assert_true(goes_past_caches(DDL_COLLECTIVE_BROADCAST, "binomial", 8, true, 0));
    assert_false(goes_past_caches(DDL_COLLECTIVE_ALLGATHER, "direct", 1, false, 256 * 1024));
    assert_true(goes_past_caches(DDL_COLLECTIVE_ALLGATHER, "direct", 2, false, 256 * 1024));
}

static bool is_pulled(ddl_collective collective, const char *name, size_t mebibytes)
{
    ddl_plan *plan = plan_between_two(collective, name, mebibytes << 20, false, 0);
    assert_true(plan->lends || !plan->pulls);
    bool pulls = plan->pulls;
    ddl_plan_destroy(plan);
    return pulls;
}

/* Calls in which all have something for others, up to 128 MiB with the buffers of both. */
static void what_is_exchanged_is_pulled_while_caches_hold_it(void **state)
{
    (void)state;
    assert_true(is_pulled(DDL_COLLECTIVE_ALLTOALL, "direct", 32));
    assert_false(is_pulled(DDL_COLLECTIVE_ALLTOALL, "direct", 33));
    assert_true(is_pulled(DDL_COLLECTIVE_ALLGATHER, "ring", 32));
    assert_false(is_pulled(DDL_COLLECTIVE_ALLGATHER, "ring", 33));
    assert_false(is_pulled(DDL_COLLECTIVE_BROADCAST, "binomial", 1));
    assert_false(is_pulled(DDL_COLLECTIVE_ALLREDUCE, "direct", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_other_counts_cut_an_alltoallv_in_the_same_way),
        cmocka_unit_test(what_stays_whole_is_taken_for_every_root),
        cmocka_unit_test(only_much_or_what_is_reduced_is_cut),
        cmocka_unit_test(every_rank_cuts_a_call_in_the_same_way),
        cmocka_unit_test(pieces_are_as_small_as_is_said),
        cmocka_unit_test(what_outgrows_the_caches_goes_past_them),
        cmocka_unit_test(what_is_exchanged_is_pulled_while_caches_hold_it),
        cmocka_unit_test(no_rank_has_a_message_that_is_too_large),
        cmocka_unit_test(scratch_has_room_for_every_phase_although_none_is_kept),
        cmocka_unit_test(both_ends_of_a_send_cut_it_in_the_same_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
