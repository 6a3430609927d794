/*
 * test_oneshot.c - calls over a board: which of the catalogue can go so, that all ranks find the same, and
 * that what comes out is what the schedules say; and that there are enough sheets, with threads as ranks.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "algorithms/catalogue.h"
#include "backend/plan.h"
#include "base/clock.h"
#include "compute/compute_cpu.h"
#include "executor/oneshot.h"
#include "schedule/builder.h"

enum { MOST_RANKS = 8, FEW = 100, MOST_COUNT = 700 /* more than a sheet holds */ };
#ifdef __SANITIZE_ADDRESS__ /* takes ten times as long */
enum { STEP = 99, COUNTS = 3 };
#else
enum { STEP = 33, COUNTS = 5 };
#endif

static bool is_among_all(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_ALLREDUCE || collective == DDL_COLLECTIVE_REDUCE_SCATTER ||
           collective == DDL_COLLECTIVE_REDUCE_SCATTERV || collective == DDL_COLLECTIVE_ALLGATHER ||
           collective == DDL_COLLECTIVE_ALLGATHERV || collective == DDL_COLLECTIVE_ALLTOALL ||
           collective == DDL_COLLECTIVE_BARRIER;
}

static bool is_rooted(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_BROADCAST || collective == DDL_COLLECTIVE_REDUCE ||
           collective == DDL_COLLECTIVE_GATHER || collective == DDL_COLLECTIVE_SCATTER;
}

static bool goes_over_a_board(ddl_collective collective)
{
    return is_among_all(collective) || is_rooted(collective);
}

static bool is_v_form(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_REDUCE_SCATTERV || collective == DDL_COLLECTIVE_ALLGATHERV;
}

typedef struct blocks {
    size_t counts[DDL_BOARD_RANKS + 1], starts[DDL_BOARD_RANKS + 1], total;
} blocks;

/* Even blocks, but in v forms rank i has i more. */
static blocks blocks_of(ddl_collective collective, int nranks, size_t count)
{
    blocks made = { .total = 0 };
    for (int i = 0; i < nranks; i++) {
        made.starts[i] = made.total;
        made.counts[i] = count + (is_v_form(collective) ? (size_t)i : 0);
        made.total += made.counts[i];
    }
    return made;
}

/* Whether this rank's call is in place where those that can be are. */
static bool is_in_place(const ddl_algorithm *row, int rank, int root, bool in_place)
{
    ddl_shape shape = { .rank = rank, .root = root, .in_place = in_place };
    return ddl_shape_makes_sense(row->collective, &shape) ? in_place : !in_place;
}

/* Of count elements of blocks that begin stride elements after each other. */
static void build_piece(const ddl_algorithm *row, int nranks, int root, size_t count, size_t stride,
                        const blocks *uneven, bool in_place, bool average, ddl_schedule *schedules[])
{
    ddl_error error;
    for (int rank = 0; rank < nranks; rank++) {
        ddl_shape shape = { .rank = rank,
                            .nranks = nranks,
                            .root = root,
                            .count = count,
                            .stride = stride,
                            .placement = { nranks, 1, NULL },
                            .element_bytes = 4,
                            .in_place = is_in_place(row, rank, root, in_place),
                            .average = average };
        if (is_v_form(row->collective)) {
            shape.blocks = (ddl_uneven){ uneven->counts, uneven->starts };
            shape.count = shape.stride = uneven->counts[nranks - 1];
        }
        assert_int_equal(row->build(&shape, &schedules[rank], &error), DDL_OK);
    }
}

static void build_all(const ddl_algorithm *row, int nranks, int root, size_t count, const blocks *uneven,
                      bool in_place, bool average, ddl_schedule *schedules[])
{
    build_piece(row, nranks, root, count, count, uneven, in_place, average, schedules);
}

static void destroy_all(ddl_schedule *schedules[], int nranks)
{
    for (int rank = 0; rank < nranks; rank++)
        ddl_schedule_destroy(schedules[rank]);
}

static void hear_all(ddl_schedule *const schedules[], int nranks, int rank, ddl_oneshot_posts posts[])
{
    for (int other = 0; other < nranks; other++)
        posts[other] = ddl_oneshot_posts_for(schedules[other], rank);
}

static bool piece_is_possible(const ddl_algorithm *row, int nranks, size_t count, size_t stride,
                              bool in_place)
{
    ddl_schedule *schedules[DDL_BOARD_RANKS + 1];
    blocks uneven = blocks_of(row->collective, nranks, count);
    build_piece(row, nranks, 0, count, stride, &uneven, in_place, false, schedules);
    ddl_oneshot_posts posts[DDL_BOARD_RANKS + 1];
    hear_all(schedules, nranks, 0, posts);
    bool possible = ddl_oneshot_is_possible(posts, nranks, is_rooted(row->collective));
    destroy_all(schedules, nranks);
    return possible;
}

static bool is_possible(const ddl_algorithm *row, int nranks, size_t count, bool in_place)
{
    return piece_is_possible(row, nranks, count, count, in_place);
}

static bool pieces_are_possible(const ddl_algorithm *row, int nranks, size_t piece, size_t last,
                                size_t stride)
{
    return piece_is_possible(row, nranks, piece, stride, false) &&
           piece_is_possible(row, nranks, piece, stride, true) &&
           piece_is_possible(row, nranks, last, stride, false) &&
           piece_is_possible(row, nranks, last, stride, true);
}

/* In rooms for GPUs the blocks of a piece are nearer to each other than in the buffers of ranks beside them,
 * who are to find the same on their sheets. */
static void check_any_stride(const ddl_algorithm *row, int nranks, size_t count, size_t stride, bool in_place)
{
    ddl_schedule *near[MOST_RANKS], *far[MOST_RANKS];
    ddl_oneshot_posts posts[2][MOST_RANKS];
    blocks all = blocks_of(row->collective, nranks, count);
    build_piece(row, nranks, 0, count, count, &all, in_place, false, near);
    build_piece(row, nranks, 0, count, stride, &all, in_place, false, far);
    for (int rank = 0; rank < nranks; rank++) {
        hear_all(near, nranks, rank, posts[0]);
        hear_all(far, nranks, rank, posts[1]);
        assert_true(ddl_oneshot_is_possible(posts[0], nranks, is_rooted(row->collective)));
        for (int other = 0; other < nranks; other++)
            for (int round = 0; round < DDL_ONESHOT_ROUNDS; round++) {
                assert_int_equal(posts[0][other].at[round], posts[1][other].at[round]);
                assert_int_equal(posts[0][other].message[round].bytes, posts[1][other].message[round].bytes);
            }
    }
    destroy_all(near, nranks);
    destroy_all(far, nranks);
}

static void rounds_of_all_to_all_are_what_can_go_over_a_board(void **state)
{
    (void)state;
    static const struct {
        ddl_collective collective;
        const char *name;
    } expected[] = {
        { DDL_COLLECTIVE_ALLREDUCE, "flat" },        { DDL_COLLECTIVE_ALLREDUCE, "direct" },
        { DDL_COLLECTIVE_REDUCE_SCATTER, "direct" }, { DDL_COLLECTIVE_REDUCE_SCATTERV, "direct" },
        { DDL_COLLECTIVE_ALLGATHER, "direct" },      { DDL_COLLECTIVE_ALLGATHERV, "direct" },
        { DDL_COLLECTIVE_ALLTOALL, "direct" },       { DDL_COLLECTIVE_BARRIER, "flat" },
        { DDL_COLLECTIVE_GATHER, "direct" },         { DDL_COLLECTIVE_SCATTER, "direct" },
        { DDL_COLLECTIVE_BROADCAST, "flat" },        { DDL_COLLECTIVE_REDUCE, "flat" },
    };
    const size_t count = DDL_BOARD_RANKS; /* something for every rank */
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const ddl_algorithm *row = ddl_catalogue_find(expected[i].collective, expected[i].name);
        assert_non_null(row);
        for (int nranks = 2; nranks <= DDL_BOARD_RANKS; nranks = nranks < 9 ? nranks + 1 : nranks * 2 - 2)
            for (int in_place = 0; in_place < 2; in_place++)
                assert_true(is_possible(row, nranks, count, in_place == 1));
    }
    assert_true(is_possible(ddl_catalogue_find(DDL_COLLECTIVE_BROADCAST, "binomial"), 2, 3, true));
    assert_true(is_possible(ddl_catalogue_find(DDL_COLLECTIVE_REDUCE, "binomial"), 2, 3, false));
    assert_false(is_possible(ddl_catalogue_find(DDL_COLLECTIVE_BROADCAST, "binomial"), 4, 3, true));
    assert_false(is_possible(ddl_catalogue_find(DDL_COLLECTIVE_REDUCE, "binomial"), 4, 3, false));
    assert_false(is_possible(ddl_catalogue_find(DDL_COLLECTIVE_ALLREDUCE, "doubling"), 4, 30, false));
    assert_false(is_possible(ddl_catalogue_find(DDL_COLLECTIVE_ALLGATHER, "ring"), 3, 30, false));
    assert_false(is_possible(ddl_catalogue_find(DDL_COLLECTIVE_BARRIER, "dissemination"), 3, 0, false));
}

static void no_more_than_may_be_posted(void **state)
{
    (void)state;
    const ddl_algorithm *flat = ddl_catalogue_find(DDL_COLLECTIVE_ALLREDUCE, "flat");
    assert_true(is_possible(flat, 3, DDL_POST_BYTES / 4, false));
    assert_false(is_possible(flat, 3, DDL_POST_BYTES / 4 + 1, false));
    assert_false(is_possible(flat, 3, 0, false)); /* nothing is said at all */
    const ddl_algorithm *direct = ddl_catalogue_find(DDL_COLLECTIVE_ALLTOALL, "direct");
    assert_true(is_possible(direct, 4, DDL_POST_BYTES / 16, false));
    assert_true(is_possible(direct, 5, DDL_POST_BYTES / 16, false)); /* but for its own */
    assert_false(is_possible(direct, 5, DDL_POST_BYTES / 16 + 1, false));
    assert_false(is_possible(flat, DDL_BOARD_RANKS + 1, 1, false));
    /* Of two rounds, the blocks of the others. */
    const ddl_algorithm *two = ddl_catalogue_find(DDL_COLLECTIVE_ALLREDUCE, "direct");
    for (int nranks = 2; nranks <= 8; nranks++) {
        size_t block = DDL_POST_BYTES / 4 / ((size_t)nranks - 1);
        assert_true(is_possible(two, nranks, block * (size_t)nranks, false));
        assert_false(is_possible(two, nranks, (block + 1) * (size_t)nranks, false));
        assert_false(is_possible(two, nranks, (size_t)nranks - 1, false)); /* some have nothing to say */
    }
}

/* ---- results ---- */

typedef struct world {
    _Alignas(128) ddl_pad pads[MOST_RANKS];
    ddl_board boards[MOST_RANKS];
} world;

/* One after another, in the same memory: making it costs more than what is tested. */
static world *make_world(int nranks)
{
    static world made;
    memset(made.pads, 0, (size_t)nranks * sizeof *made.pads);
    for (int rank = 0; rank < nranks; rank++) {
        made.boards[rank] = ddl_board_of(rank, nranks);
        for (int other = 0; other < nranks; other++)
            made.boards[rank].pads[other] = &made.pads[other];
    }
    return &made;
}

/* The first of those that have not been seen to have posted with the last post, if it has; -1: it has not;
 * nranks: all have been seen. */
static int see_next(ddl_board *board)
{
    const ddl_board_ranks left = ddl_board_unseen(board, board->posts, board->others);
    const int rank = left != 0 ? __builtin_ctzll(left) : board->nranks;
    if (left != 0 && !ddl_board_has_posted(board, board->posts, rank))
        return -1;
    if (left != 0)
        ddl_board_see(board, board->posts, rank);
    return rank;
}

static float value(int rank, size_t i)
{
    return (float)rank * 1000.5f + (float)i * 0.1f;
}

/* As the collective defines it, folded in rank order. */
static void expect(ddl_collective collective, int rank, int root, int nranks, const blocks *all, bool average,
                   float *out, size_t *count)
{
    bool reduces = collective == DDL_COLLECTIVE_ALLREDUCE || collective == DDL_COLLECTIVE_REDUCE_SCATTER ||
                   collective == DDL_COLLECTIVE_REDUCE_SCATTERV || collective == DDL_COLLECTIVE_REDUCE;
    bool is_whole = collective == DDL_COLLECTIVE_ALLREDUCE || collective == DDL_COLLECTIVE_REDUCE;
    size_t first = is_whole ? 0 : all->starts[rank];
    *count = 0;
    if (rank != root && (collective == DDL_COLLECTIVE_REDUCE || collective == DDL_COLLECTIVE_GATHER))
        return;
    if (collective == DDL_COLLECTIVE_BROADCAST || collective == DDL_COLLECTIVE_SCATTER) {
        size_t from = collective == DDL_COLLECTIVE_SCATTER ? first : 0;
        for (*count = 0; *count < all->counts[rank]; (*count)++)
            out[*count] = value(root, from + *count);
        return;
    }
    if (reduces) {
        *count = all->counts[rank];
        for (size_t i = 0; i < *count; i++) {
            out[i] = value(0, first + i);
            for (int other = 1; other < nranks; other++)
                out[i] += value(other, first + i);
            out[i] = average ? out[i] / (float)nranks : out[i];
        }
        return;
    }
    for (int other = 0; other < nranks && collective != DDL_COLLECTIVE_BARRIER; other++)
        for (size_t i = 0; i < all->counts[other]; i++)
            out[(*count)++] = value(other, collective == DDL_COLLECTIVE_ALLTOALL ? first + i : i);
}

static size_t input_count(ddl_collective collective, int rank, int root, const blocks *all)
{
    bool from_root = collective == DDL_COLLECTIVE_BROADCAST || collective == DDL_COLLECTIVE_SCATTER;
    if (collective == DDL_COLLECTIVE_BARRIER || (from_root && rank != root))
        return 0;
    bool of_own = collective == DDL_COLLECTIVE_ALLREDUCE || collective == DDL_COLLECTIVE_ALLGATHER ||
                  collective == DDL_COLLECTIVE_ALLGATHERV || collective == DDL_COLLECTIVE_BROADCAST ||
                  collective == DDL_COLLECTIVE_REDUCE || collective == DDL_COLLECTIVE_GATHER;
    return of_own ? all->counts[rank] : all->total;
}

/* Where in one memory IN and OUT begin, for a call in place; in elements. */
static void place(ddl_collective collective, int rank, const blocks *all, size_t *in, size_t *out)
{
    *in = *out = 0;
    if (collective == DDL_COLLECTIVE_ALLGATHER || collective == DDL_COLLECTIVE_ALLGATHERV ||
        collective == DDL_COLLECTIVE_GATHER)
        *in = all->starts[rank];
    if (collective == DDL_COLLECTIVE_REDUCE_SCATTER || collective == DDL_COLLECTIVE_REDUCE_SCATTERV ||
        collective == DDL_COLLECTIVE_SCATTER)
        *out = all->starts[rank];
}

/* A piece of a call, at first elements of each block, by all ranks in step. */
static void run_piece(const ddl_algorithm *row, int nranks, int root, size_t first, size_t count,
                      size_t stride, const blocks *all, bool in_place, bool average, float *const ins[],
                      float *const outs[])
{
    ddl_schedule *schedules[MOST_RANKS];
    ddl_oneshot *oneshots[MOST_RANKS];
    ddl_error error;
    build_piece(row, nranks, root, count, stride, all, in_place, average, schedules);
    world *w = make_world(nranks);
    const ddl_signature signature = { .collective = (uint8_t)row->collective };
    for (int rank = 0; rank < nranks; rank++) {
        ddl_oneshot_posts posts[DDL_BOARD_RANKS];
        hear_all(schedules, nranks, rank, posts);
        assert_int_equal(ddl_oneshot_create(schedules[rank], posts, &oneshots[rank], &error), DDL_OK);
    }
    for (int round = 0; round < ddl_oneshot_rounds(oneshots[0]); round++) {
        for (int rank = 0; rank < nranks; rank++) {
            const ddl_oneshot_round *own = ddl_oneshot_round_of(oneshots[rank], round);
            const ddl_slice *parts = own->parts;
            size_t said = 0;
            const int nparts = own->nparts;
            const float *from = nparts > 0 && parts[0].buffer == DDL_BUFFER_IN ? ins[rank] : outs[rank];
            for (int i = 0; i < nparts; i++) {
                assert_int_not_equal(parts[i].buffer, DDL_BUFFER_SCRATCH);
                assert_int_equal(parts[i].buffer, parts[0].buffer);
                said += parts[i].bytes;
            }
            assert_true(said <= ddl_oneshot_bytes(schedules[rank]));
            assert_int_equal(said, own->bytes);
            ddl_board_post(&w->boards[rank], 7, 1, &signature, from + first, parts, nparts, said);
        }
        for (int rank = 0; rank < nranks; rank++)
            while (see_next(&w->boards[rank]) < nranks)
                continue; /* all have posted, as they are in step */
        for (int rank = 0; rank < nranks; rank++)
            ddl_oneshot_finish(oneshots[rank], round, &w->boards[rank], ins[rank] + first, outs[rank] + first,
                               ddl_compute_cpu(), DDL_FLOAT32, average ? DDL_AVG : DDL_SUM, nranks % 2 == 1);
    }
    for (int rank = 0; rank < nranks; rank++)
        ddl_oneshot_destroy(oneshots[rank]);
    destroy_all(schedules, nranks);
}

static void run(const ddl_algorithm *row, int nranks, int root, size_t count, size_t piece, bool in_place,
                bool average)
{
    enum { ROOM = MOST_RANKS * (MOST_COUNT + MOST_RANKS) };
    static float in[MOST_RANKS][ROOM], out[MOST_RANKS][ROOM];
    ddl_collective collective = row->collective;
    blocks all = blocks_of(collective, nranks, count);
    float *ins[MOST_RANKS], *outs[MOST_RANKS];
    for (int rank = 0; rank < nranks; rank++) {
        bool own_in_place = is_in_place(row, rank, root, in_place);
        size_t in_start = 0, out_start = 0;
        if (own_in_place)
            place(collective, rank, &all, &in_start, &out_start);
        ins[rank] = (own_in_place ? out[rank] : in[rank]) + in_start;
        outs[rank] = out[rank] + out_start;
        for (size_t i = 0; i < ROOM; i++)
            in[rank][i] = out[rank][i] = -1;
        for (size_t i = 0; i < input_count(collective, rank, root, &all); i++)
            ins[rank][i] = value(rank, i);
    }
    for (size_t first = 0; first < count; first += piece)
        run_piece(row, nranks, root, first, count - first < piece ? count - first : piece, count, &all,
                  in_place, average, ins, outs);
    for (int rank = 0; rank < nranks; rank++) {
        static float expected[ROOM];
        size_t expected_count;
        expect(collective, rank, root, nranks, &all, average, expected, &expected_count);
        if (collective == DDL_COLLECTIVE_REDUCE) /* each algorithm folds in an order of its own */
            for (size_t i = 0; i < expected_count; i++)
                assert_float_equal(outs[rank][i], expected[i], expected[i] * 1e-6f + 1e-3f);
        else
            assert_memory_equal(outs[rank], expected, expected_count * sizeof(float));
        assert_true(is_in_place(row, rank, root, in_place) || outs[rank][expected_count] == -1);
    }
}

static void whatever_is_possible_gives_the_right_result(void **state)
{
    (void)state;
    size_t nrows, run_rows = 0, run_pieces = 0;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++)
        for (int nranks = 2; nranks <= MOST_RANKS && goes_over_a_board(rows[i].collective); nranks++)
            for (size_t count = 1; count <= MOST_COUNT; count += count == FEW ? MOST_COUNT - FEW : STEP) {
                if (!ddl_algorithm_takes(&rows[i], nranks) || !is_possible(&rows[i], nranks, count, false) ||
                    !is_possible(&rows[i], nranks, count, true))
                    continue;
                bool reduces = rows[i].collective == DDL_COLLECTIVE_ALLREDUCE ||
                               rows[i].collective == DDL_COLLECTIVE_REDUCE ||
                               rows[i].collective == DDL_COLLECTIVE_REDUCE_SCATTER;
                const size_t piece = count / 3 + 1, last = count - 2 * piece;
                const bool has_pieces = count > 3 * MOST_RANKS && !is_v_form(rows[i].collective) &&
                                        pieces_are_possible(&rows[i], nranks, piece, last, count);
                run_pieces += has_pieces;
                for (int in_place = 0; has_pieces && in_place < 2; in_place++)
                    check_any_stride(&rows[i], nranks, piece, count, in_place == 1);
                for (int how = 0; how < (reduces ? 4 : 2); how++)
                    for (int root = 0; root < (is_rooted(rows[i].collective) ? nranks : 1); root++) {
                        run(&rows[i], nranks, root, count, count, how % 2 == 1, how / 2 == 1);
                        if (has_pieces)
                            run(&rows[i], nranks, root, count, piece, how % 2 == 1, how / 2 == 1);
                    }
                run_rows++;
            }
    assert_true(run_rows > 9 * (MOST_RANKS - 1) * COUNTS);
    assert_true(run_pieces > 7 * (MOST_RANKS - 1) * (COUNTS - 1));
}

/* What all ranks decide by itself follows from the two kinds of schedules; what each then makes of its own
 * must never fail, however many ranks there are. */
static void what_is_possible_works_on_every_rank(void **state)
{
    (void)state;
    size_t nrows, nmade = 0;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++)
        for (int nranks = 2; nranks <= DDL_BOARD_RANKS && goes_over_a_board(rows[i].collective);
             nranks += nranks < 12 ? 1 : nranks / 4) {
            const size_t count = DDL_BOARD_RANKS; /* something for every rank */
            if (!ddl_algorithm_takes(&rows[i], nranks) || !is_possible(&rows[i], nranks, count, false) ||
                !is_possible(&rows[i], nranks, count, true))
                continue;
            size_t common[2] = { 0 };
            nmade++;
            for (int in_place = 0; in_place < 2; in_place++) {
                ddl_schedule *schedules[DDL_BOARD_RANKS];
                ddl_error error;
                blocks all = blocks_of(rows[i].collective, nranks, count);
                build_all(&rows[i], nranks, nranks / 2, count, &all, in_place == 1, true, schedules);
                for (int rank = 0; rank < nranks; rank++) {
                    ddl_oneshot *made;
                    ddl_oneshot_posts posts[DDL_BOARD_RANKS];
                    hear_all(schedules, nranks, rank, posts);
                    assert_int_equal(ddl_oneshot_create(schedules[rank], posts, &made, &error), DDL_OK);
                    /* All ranks have to find the same of what they may tell of their buffers, too. */
                    if (rank == 0)
                        common[in_place] = ddl_oneshot_common_bytes(made);
                    assert_int_equal(ddl_oneshot_common_bytes(made), common[in_place]);
                    ddl_oneshot_destroy(made);
                }
                destroy_all(schedules, nranks);
            }
            if (&rows[i] == ddl_catalogue_find(DDL_COLLECTIVE_ALLREDUCE, "direct"))
                assert_int_equal(common[0], 4 * count);
            if (rows[i].collective != DDL_COLLECTIVE_ALLREDUCE)
                assert_int_equal(common[0], 0);
            assert_true(common[1] == common[0] || nranks == 2);
        }
    assert_true(nmade > 10 * 15);
}

/* ---- buffers that others reach ---- */

enum { BLOCK = 64, HAND_RANKS = 3 };

/* How a schedule by hand is otherwise than the direct allreduce. */
typedef struct twist {
    const char *name;
    int takes;                      /* part i of OUT is made of part i + takes of IN */
    int lands;                      /* that of another rank is put so many parts behind its place */
    int says;                       /* rank 0 says part i + says of IN where part i is due */
    bool copies_first, copies_last; /* something else to OUT, in a round */
} twist;

static ddl_slice part_of(ddl_buffer buffer, int i)
{
    return ddl_slice_of(buffer, (size_t)i * BLOCK, BLOCK);
}

static ddl_schedule *build_by_hand(int rank, const twist *t)
{
    ddl_builder *b;
    ddl_schedule *schedule;
    ddl_error error;
    assert_int_equal(ddl_builder_create(&(ddl_group){ rank, HAND_RANKS }, 4, &b, &error), DDL_OK);
    const ddl_slice own = part_of(DDL_BUFFER_IN, (rank + t->takes) % HAND_RANKS);
    ddl_slice operands[HAND_RANKS] = { own };
    for (int i = 1; i < HAND_RANKS; i++) {
        const int peer = (rank + i) % HAND_RANKS;
        operands[i] = ddl_scratch(b, BLOCK);
        ddl_step_recv(b, peer, operands[i]);
        const int says = rank == 0 ? t->says : 0;
        ddl_step_send(b, peer, part_of(DDL_BUFFER_IN, (peer + t->takes + says) % HAND_RANKS));
    }
    ddl_step_reduce(b, part_of(DDL_BUFFER_OUT, rank), operands, HAND_RANKS);
    if (t->copies_first)
        ddl_step_copy(b, part_of(DDL_BUFFER_OUT, 3 * HAND_RANKS), own);
    for (int i = 1; i < HAND_RANKS; i++) {
        const int peer = (rank + i) % HAND_RANKS;
        ddl_step_send(b, peer, part_of(DDL_BUFFER_OUT, rank));
        ddl_step_recv(b, peer, part_of(DDL_BUFFER_OUT, peer + t->lands));
    }
    if (t->copies_last)
        ddl_step_copy(b, part_of(DDL_BUFFER_OUT, 3 * HAND_RANKS),
                      part_of(DDL_BUFFER_OUT, (rank + 1) % HAND_RANKS + t->lands));
    assert_int_equal(ddl_builder_finish(b, &schedule, &error), DDL_OK);
    return schedule;
}

static void only_parts_in_the_same_place_of_all_buffers_are_common(void **state)
{
    (void)state;
    static const twist twists[] = {
        { "none", 0, 0, 0, false, false },
        { "made of another part", 1, 0, 0, false, false },
        { "one says another part", 0, 0, 1, false, false },
        { "put elsewhere", 0, HAND_RANKS, 0, false, false },
        { "more is made", 0, 0, 0, true, false },
        { "more is made of what was made", 0, 0, 0, false, true },
    };
    for (size_t i = 0; i < sizeof twists / sizeof *twists; i++) {
        ddl_schedule *schedules[HAND_RANKS];
        ddl_oneshot_posts posts[HAND_RANKS];
        ddl_error error;
        for (int rank = 0; rank < HAND_RANKS; rank++)
            schedules[rank] = build_by_hand(rank, &twists[i]);
        for (int rank = 0; rank < HAND_RANKS; rank++) {
            ddl_oneshot *made;
            hear_all(schedules, HAND_RANKS, rank, posts);
            assert_true(ddl_oneshot_is_possible(posts, HAND_RANKS, false));
            assert_int_equal(ddl_oneshot_create(schedules[rank], posts, &made, &error), DDL_OK);
            if (ddl_oneshot_common_bytes(made) != (i == 0 ? HAND_RANKS * BLOCK : 0))
                fail_msg("%s: %zu bytes of rank %d", twists[i].name, ddl_oneshot_common_bytes(made), rank);
            ddl_oneshot_destroy(made);
        }
        destroy_all(schedules, HAND_RANKS);
    }
}

/* By which users make their containers large enough. */
_Static_assert(sizeof(ddl_pad) == 784 * 1024, "docs/rendezvous.md, Memory of a host, tells another size");

/* ---- one board after another ---- */

/* Between posts there may be any number of operations that go by messages. */
static void what_was_posted_before_is_not_taken_for_what_comes(void **state)
{
    (void)state;
    static const uint64_t distances[] = { 0,          1,          1 << 15,    1 << 16,
                                          1ULL << 30, 1ULL << 31, 1ULL << 32, 1ULL << 33 };
    const ddl_signature signature = { .count = 1 };
    for (size_t i = 0; i < sizeof distances / sizeof distances[0]; i++) {
        world *w = make_world(2);
        ddl_board *first = &w->boards[0], *second = &w->boards[1];
        uint64_t sequence = 1;
        for (int post = 0; post < 3 * DDL_SHEETS; post++) {
            const uint64_t number = ddl_board_number(7, sequence);
            ddl_board_post(first, number, sequence, &signature, NULL, NULL, 0, 0);
            assert_int_equal(see_next(first), -1);
            assert_false(ddl_board_has_posted(first, first->posts, 1));
            ddl_board_post(second, number, sequence, &signature, NULL, NULL, 0, 0);
            assert_int_equal(see_next(first), 1);
            assert_int_equal(see_next(second), 0);
            sequence += distances[i];
        }
    }
}

/* Who was seen to have posted may give its pad to another board before its signature was looked at. */
static void what_the_next_board_says_is_not_taken_for_what_was_posted(void **state)
{
    (void)state;
    const ddl_signature signature = { .count = 1 }, other = { .count = 2 };
    for (int posts = 1; posts <= DDL_SHEETS + 2; posts++) {
        world *w = make_world(2);
        ddl_board *first = &w->boards[0], *second = &w->boards[1], next = *second;
        for (int post = 0; post < posts; post++) {
            ddl_board_post(first, ddl_board_number(7, 1), 1, &signature, NULL, NULL, 0, 0);
            ddl_board_post(second, ddl_board_number(7, 1), 1, &signature, NULL, NULL, 0, 0);
            assert_int_equal(see_next(first), 1);
            assert_int_equal(see_next(second), 0);
            assert_true(ddl_board_still_has_posted(first, first->posts, 1));
        }
        ddl_board_begin(&next, false);
        for (uint64_t post = first->posts; post > 0 && first->posts - post < DDL_AHEAD; post--) {
            assert_false(ddl_board_still_has_posted(first, post, 1));
            assert_false(ddl_board_has_posted(first, post, 1));
        }
        ddl_board_post(&next, ddl_board_number(8, 1), 1, &other, NULL, NULL, 0, 0);
        for (uint64_t post = first->posts; post > 0 && first->posts - post < DDL_AHEAD; post--)
            assert_false(ddl_board_still_has_posted(first, post, 1));
    }
}

/* ---- threads ---- */

enum { THREADS = 4, WORDS = DDL_POST_BYTES / 8, PATIENCE_MS = 60000 };

static uint64_t nposts = 20000;

/* Mostly few; now and then as many as may be posted, and none. */
static size_t words_of(uint64_t post)
{
    return post % 256 == 0 ? WORDS : post % 16 == 0 ? 0 : post % 48;
}

typedef struct talker {
    pthread_t thread;
    ddl_board *board;
    int wrong;
    uint64_t words[WORDS];
} talker;

static void *talk(void *arg)
{
    talker *self = arg;
    ddl_board *board = self->board;
    ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS + (int64_t)nposts);
    uint64_t *words = self->words;
    for (uint64_t k = 1; k <= nposts; k++) {
        const size_t count = words_of(k);
        for (size_t i = 0; i < count; i++)
            words[i] = k * 100 + (uint64_t)board->rank;
        const ddl_signature signature = { .count = k };
        const ddl_slice whole = { DDL_BUFFER_IN, 0, count * sizeof *words };
        ddl_board_post(board, ddl_board_number(3, k), k, &signature, words, &whole, 1, whole.bytes);
        for (int next; (next = see_next(board)) != board->nranks;)
            if (next < 0) {
                sched_yield();
                if (ddl_deadline_passed(deadline)) {
                    self->wrong++;
                    return NULL;
                }
            }
        for (int rank = 0; rank < board->nranks; rank++) {
            memcpy(words, ddl_board_bytes(board, rank, whole.bytes > DDL_SHEET_BYTES), whole.bytes);
            self->wrong += ddl_board_signature(board, board->posts, rank).count != k;
            for (size_t i = 0; i < count; i++)
                self->wrong += words[i] != k * 100 + (uint64_t)rank;
        }
    }
    return NULL;
}

static void everyone_reads_what_all_have_posted(void **state)
{
    (void)state;
    world *w = make_world(THREADS);
    static talker talkers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        talkers[i].board = &w->boards[i];
        assert_int_equal(pthread_create(&talkers[i].thread, NULL, talk, &talkers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(talkers[i].thread, NULL), 0);
        assert_int_equal(talkers[i].wrong, 0);
    }
}

/* test_oneshot [POSTS]: so many of each of the threads. */
int main(int argc, char **argv)
{
    if (argc > 1)
        nposts = strtoull(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_of_all_to_all_are_what_can_go_over_a_board),
        cmocka_unit_test(no_more_than_may_be_posted),
        cmocka_unit_test(whatever_is_possible_gives_the_right_result),
        cmocka_unit_test(what_is_possible_works_on_every_rank),
        cmocka_unit_test(only_parts_in_the_same_place_of_all_buffers_are_common),
        cmocka_unit_test(what_was_posted_before_is_not_taken_for_what_comes),
        cmocka_unit_test(what_the_next_board_says_is_not_taken_for_what_was_posted),
        cmocka_unit_test(everyone_reads_what_all_have_posted),
    };
#ifdef __SANITIZE_THREAD__ /* which has nothing to say of a single thread, and takes ten times as long */
    cmocka_set_test_filter("everyone_*");
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
