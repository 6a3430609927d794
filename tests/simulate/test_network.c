/*
 * test_network.c - the real executor over the virtual network: right results on real numbers whatever the
 * order of messages, times as the model says, and an end for every rank when one is lost.
 */
#include "algorithms/catalogue.h"
#include "base/bytes.h"
#include "simulate/check.h"
#include "simulate/network.h"
#include "simulate/patterns.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- a compute that is obviously right: int32, sum ---- */

static void sum(ddl_compute *compute, void *target, const void *const operands[], int noperands, size_t count,
                ddl_dtype dtype, ddl_op op)
{
    (void)compute;
    assert_int_equal(dtype, DDL_INT32);
    assert_int_equal(op, DDL_SUM);
    for (size_t i = 0; i < count; i++) {
        uint32_t total = 0;
        for (int j = 0; j < noperands; j++)
            total += ((const uint32_t *)operands[j])[i];
        ((uint32_t *)target)[i] = total;
    }
}

static void copy(ddl_compute *compute, void *target, const void *source, size_t bytes, bool past_caches)
{
    (void)compute;
    (void)past_caches;
    memcpy(target, source, bytes);
}

static void divide(ddl_compute *compute, void *target, size_t count, ddl_dtype dtype, int divisor)
{
    (void)compute;
    assert_int_equal(dtype, DDL_INT32);
    for (size_t i = 0; i < count; i++)
        ((int32_t *)target)[i] /= divisor;
}

static const struct ddl_compute_ops plain_ops = { sum, sum, NULL, copy, divide };

/* ---- a collective with real buffers ---- */

enum { GUARD = 8, MOST_RANKS = 32 }; /* elements on either side of a buffer that must stay */

typedef struct job {
    const ddl_algorithm *row;
    ddl_shape shape;
    size_t *counts; /* of the v forms */
    int node_of[MOST_RANKS];
    size_t in_elements[MOST_RANKS], out_elements[MOST_RANKS]; /* without guards */
    int32_t *in[MOST_RANKS], *out[MOST_RANKS], *before_in[MOST_RANKS], *before_out[MOST_RANKS];
    ddl_schedule *schedules[MOST_RANKS];
    ddl_compute compute;
} job;

static int32_t input_of(int rank, size_t i)
{
    uint64_t x = ((uint64_t)rank << 32) + i + 1;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return (int32_t)(x >> 40) - (1 << 23);
}

static bool is_one_of(ddl_collective collective, const ddl_collective *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (collective == all[i])
            return true;
    return false;
}

#define IS_ONE_OF(collective, ...)                                   \
    is_one_of((collective), (const ddl_collective[]){ __VA_ARGS__ }, \
              sizeof((const ddl_collective[]){ __VA_ARGS__ }) / sizeof(ddl_collective))

static bool scatters(ddl_collective c)
{
    return IS_ONE_OF(c, DDL_COLLECTIVE_SCATTER, DDL_COLLECTIVE_SCATTERV);
}

static bool gathers(ddl_collective c)
{
    return IS_ONE_OF(c, DDL_COLLECTIVE_GATHER, DDL_COLLECTIVE_GATHERV);
}

static bool exchanges(ddl_collective c)
{
    return IS_ONE_OF(c, DDL_COLLECTIVE_ALLTOALL, DDL_COLLECTIVE_ALLTOALLV);
}

static bool reduce_scatters(ddl_collective c)
{
    return IS_ONE_OF(c, DDL_COLLECTIVE_REDUCE_SCATTER, DDL_COLLECTIVE_REDUCE_SCATTERV);
}

static bool allgathers(ddl_collective c)
{
    return IS_ONE_OF(c, DDL_COLLECTIVE_ALLGATHER, DDL_COLLECTIVE_ALLGATHERV);
}

static bool blocks_in(ddl_collective c)
{
    return reduce_scatters(c) || exchanges(c) || scatters(c);
}

static bool blocks_out(ddl_collective c)
{
    return allgathers(c) || exchanges(c) || gathers(c);
}

/* Of the rank's buffer of blocks (alltoallv: of IN or OUT): where one begins and how long it is. */
static size_t start_of(const job *j, int rank, int block, bool is_out)
{
    const ddl_uneven *uneven =
        is_out && j->shape.out_blocks.counts != NULL ? &j->shape.out_blocks : &j->shape.blocks;
    if (uneven->counts == NULL)
        return (size_t)block * j->shape.stride;
    int row = j->shape.out_blocks.counts != NULL ? rank : 0;
    return uneven->starts[row * j->shape.nranks + block];
}

static size_t count_of(const job *j, int rank, int block, bool is_out)
{
    const ddl_uneven *uneven =
        is_out && j->shape.out_blocks.counts != NULL ? &j->shape.out_blocks : &j->shape.blocks;
    if (uneven->counts == NULL)
        return j->shape.count;
    int row = j->shape.out_blocks.counts != NULL ? rank : 0;
    return uneven->counts[row * j->shape.nranks + block];
}

/* Elements of IN or OUT of one rank. */
static size_t elements_of(const job *j, int rank, bool is_out)
{
    ddl_collective c = j->row->collective;
    bool off_root = rank != j->shape.root;
    if (c == DDL_COLLECTIVE_BARRIER)
        return 0;
    if (off_root && (is_out ? gathers(c) : scatters(c)))
        return 0;
    if (!(is_out ? blocks_out(c) : blocks_in(c)))
        return count_of(j, rank, rank, is_out);
    int last = j->shape.nranks - 1;
    return start_of(j, rank, last, is_out) + count_of(j, rank, last, is_out);
}

/* Fresh memory whose elements all differ, with the guards. */
static int32_t *guarded(size_t elements, int rank)
{
    int32_t *memory = ddl_alloc_array(elements + 2 * GUARD, sizeof *memory);
    assert_non_null(memory);
    for (size_t i = 0; i < elements + 2 * GUARD; i++)
        memory[i] = input_of(rank, i + 1000000);
    return memory;
}

static int32_t *copy_of(const int32_t *memory, size_t elements)
{
    int32_t *copied = ddl_alloc_array(elements + 2 * GUARD, sizeof *copied);
    assert_non_null(copied);
    memcpy(copied, memory, (elements + 2 * GUARD) * sizeof *copied);
    return copied;
}

/* The v forms have counts of this pattern up to shape.count, and gaps as the stride has. */
static job make_job(const ddl_algorithm *row, ddl_shape shape, ddl_pattern pattern)
{
    job j = { .row = row, .shape = shape, .compute = { &plain_ops } };
    ddl_spread_apply((ddl_spread)((shape.count + (size_t)shape.root) % DDL_SPREAD_COUNT), shape.nranks,
                     j.node_of);
    ddl_collective c = row->collective;
    j.shape.element_bytes = c == DDL_COLLECTIVE_BARRIER ? 1 : 4;
    if (ddl_collective_is_uneven(c))
        assert_true(
            ddl_pattern_apply(pattern, c, shape.count, shape.stride - shape.count, &j.shape, &j.counts));
    for (int r = 0; r < shape.nranks; r++) {
        j.in_elements[r] = elements_of(&j, r, false);
        j.out_elements[r] = elements_of(&j, r, true);
        j.in[r] = guarded(j.in_elements[r], r);
        j.out[r] = guarded(j.out_elements[r], r + 100);
        for (size_t i = 0; i < j.in_elements[r]; i++)
            j.in[r][GUARD + i] = input_of(r, i);
        if (c == DDL_COLLECTIVE_BROADCAST && r == shape.root)
            for (size_t i = 0; i < j.out_elements[r]; i++)
                j.out[r][GUARD + i] = input_of(r, i);
        j.before_in[r] = copy_of(j.in[r], j.in_elements[r]);
        j.before_out[r] = copy_of(j.out[r], j.out_elements[r]);
    }
    return j;
}

static void end_job(job *j)
{
    for (int r = 0; r < j->shape.nranks; r++) {
        ddl_free(j->in[r]);
        ddl_free(j->out[r]);
        ddl_free(j->before_in[r]);
        ddl_free(j->before_out[r]);
        ddl_schedule_destroy(j->schedules[r]);
    }
    ddl_free(j->counts);
}

/* Whether the rank's IN and OUT are one memory. */
static bool is_joined(const job *j, int rank)
{
    ddl_collective c = j->row->collective;
    bool never = IS_ONE_OF(c, DDL_COLLECTIVE_BROADCAST, DDL_COLLECTIVE_SEND, DDL_COLLECTIVE_RECV,
                           DDL_COLLECTIVE_BARRIER);
    bool at_root = c == DDL_COLLECTIVE_REDUCE || gathers(c) || scatters(c);
    return j->shape.in_place && !never && (!at_root || rank == j->shape.root);
}

/* In place, where is the one buffer, and where in it do IN and OUT begin? */
static void place_buffers(const job *j, int rank, int32_t **in, int32_t **out)
{
    ddl_collective c = j->row->collective;
    *in = j->in[rank] + GUARD;
    *out = j->out[rank] + GUARD;
    if (!is_joined(j, rank))
        return;
    if (!allgathers(c) && !gathers(c)) {
        *out = *in + (reduce_scatters(c) || scatters(c) ? start_of(j, rank, rank, false) : 0);
        return;
    }
    size_t own_block = start_of(j, rank, rank, true);
    *in = *out + own_block;
    for (size_t i = 0; i < count_of(j, rank, rank, true); i++) {
        (*in)[i] = input_of(rank, i);
        j->before_out[rank][GUARD + own_block + i] = input_of(rank, i);
    }
}

static int32_t total_of(const job *j, size_t i)
{
    uint32_t total = 0;
    for (int r = 0; r < j->shape.nranks; r++)
        total += (uint32_t)input_of(r, i);
    return j->shape.average ? (int32_t)total / j->shape.nranks : (int32_t)total;
}

/* Element i of rank's OUT; false if it must be as before. */
static bool meant(const job *j, int rank, size_t i, int32_t *value)
{
    const ddl_shape *s = &j->shape;
    ddl_collective c = j->row->collective;
    if (blocks_out(c)) {
        for (int block = 0; block < s->nranks; block++) {
            size_t start = start_of(j, rank, block, true);
            if (i < start || i >= start + count_of(j, rank, block, true))
                continue;
            size_t from = exchanges(c) ? start_of(j, block, rank, false) : 0;
            *value = input_of(block, from + i - start);
            return true;
        }
        return false; /* between blocks */
    }
    if (scatters(c))
        *value = input_of(s->root, start_of(j, rank, rank, false) + i);
    else if (reduce_scatters(c))
        *value = total_of(j, start_of(j, rank, rank, false) + i);
    else if (c == DDL_COLLECTIVE_ALLREDUCE || c == DDL_COLLECTIVE_REDUCE)
        *value = total_of(j, i);
    else
        *value = input_of(s->root, i);
    if (c == DDL_COLLECTIVE_REDUCE)
        return rank == s->root;
    if (c == DDL_COLLECTIVE_SEND || c == DDL_COLLECTIVE_RECV)
        return rank == (s->root + 1) % s->nranks;
    return true;
}

static void expect_results(const job *j)
{
    for (int r = 0; r < j->shape.nranks; r++) {
        ddl_collective c = j->row->collective;
        /* the result is in the memory called in */
        bool in_in = is_joined(j, r) && !allgathers(c) && !gathers(c);
        size_t at = in_in && (reduce_scatters(c) || scatters(c)) ? start_of(j, r, r, false) : 0;
        int32_t *memory = in_in ? j->in[r] : j->out[r],
                *expected = in_in ? j->before_in[r] : j->before_out[r];
        for (size_t i = 0; i < j->out_elements[r]; i++) {
            int32_t value;
            if (meant(j, r, i, &value))
                expected[GUARD + at + i] = value;
        }
        size_t elements = in_in ? j->in_elements[r] : j->out_elements[r];
        for (size_t i = 0; i < elements + 2 * GUARD; i++)
            if (memory[i] != expected[i])
                fail_msg("%s/%s on %d ranks, count %zu, stride %zu%s: rank %d element %zd is %d, not %d",
                         ddl_collective_name(c), j->row->name, j->shape.nranks, j->shape.count,
                         j->shape.stride, j->shape.in_place ? ", in place" : "", r, (ssize_t)i - GUARD,
                         memory[i], expected[i]);
        if (!in_in)
            assert_memory_equal(j->in[r], j->before_in[r], (j->in_elements[r] + 2 * GUARD) * sizeof(int32_t));
        else
            assert_memory_equal(j->out[r], j->before_out[r],
                                (j->out_elements[r] + 2 * GUARD) * sizeof(int32_t));
    }
}

/* Run it; *slowest_ns may be NULL. */
static ddl_status run_job(job *j, const ddl_network_options *options, double *slowest_ns, ddl_error *err)
{
    int nnodes = 0;
    for (int r = 0; r < j->shape.nranks; r++)
        nnodes = j->node_of[r] >= nnodes ? j->node_of[r] + 1 : nnodes;
    j->shape.placement = (ddl_placement){ j->shape.nranks, nnodes, j->node_of };
    ddl_network_options with_compute = *options;
    with_compute.compute = &j->compute;
    ddl_network *network;
    assert_int_equal(ddl_network_create(j->shape.nranks, &with_compute, &network, NULL), DDL_OK);
    for (int r = 0; r < j->shape.nranks; r++) {
        ddl_shape own;
        ddl_collective role;
        if (!ddl_shape_of_rank(&j->shape, j->row->collective, r, &own, &role))
            continue;
        int32_t *in, *out;
        place_buffers(j, r, &in, &out);
        assert_int_equal(ddl_catalogue_find(role, j->row->name)->build(&own, &j->schedules[r], NULL), DDL_OK);
        assert_int_equal(ddl_network_assign(network, r, j->schedules[r], in, out, DDL_INT32, DDL_SUM, NULL),
                         DDL_OK);
    }
    ddl_status status = ddl_network_run(network, err);
    if (slowest_ns != NULL)
        *slowest_ns = ddl_network_slowest_ns(network);
    ddl_network_destroy(network);
    return status;
}

static const ddl_network_options lan = {
    .latency_ns = 20e3,
    .bytes_per_ns = 3,
    .overhead_ns = 1e3,
    .reduce_bytes_per_ns = 10,
    .eager_bytes = 64,
    .seed = 1,
    .paused_rank = -1,
    .lost_rank = -1,
};

static void every_algorithm_is_right_on_real_numbers(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__ /* takes ten times as long, and finds what it finds with these */
    static const int ranks[] = { 1, 2, 3, 4, 5, 8, 13 };
#else
    static const int ranks[] = { 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 32 };
#endif
    static const size_t counts[] = { 0, 1, 2, 7, 31, 257 };
    size_t nrows;
    uint64_t seed = 0;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++)
        for (size_t p = 0; p < sizeof ranks / sizeof ranks[0]; p++)
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
                for (int variant = 0; variant < 4; variant++) {
                    bool point_to_point = rows[i].collective == DDL_COLLECTIVE_SEND ||
                                          rows[i].collective == DDL_COLLECTIVE_RECV;
                    if (!ddl_algorithm_takes(&rows[i], ranks[p]) || (point_to_point && ranks[p] == 1))
                        continue;
                    job j = make_job(&rows[i],
                                     (ddl_shape){ .nranks = ranks[p],
                                                  .root = (int)(seed % (uint64_t)ranks[p]),
                                                  .count = counts[c],
                                                  .stride = counts[c] + (variant & 1 ? 3 : 0),
                                                  .in_place = (variant & 2) != 0,
                                                  .average = c % 2 == 1 },
                                     (ddl_pattern)(seed % DDL_PATTERN_COUNT));
                    ddl_network_options options = lan;
                    options.seed = ++seed;
                    options.jitter_ns = variant & 1 ? 500e3 : 0; /* messages overtake each other */
                    options.eager_bytes = c % 2 == 0 ? 0 : 64;
                    ddl_error err = { 0 };
                    if (run_job(&j, &options, NULL, &err) != DDL_OK)
                        fail_msg("%s: %s", rows[i].name, err.text);
                    expect_results(&j);
                    end_job(&j);
                }
}

/* ---- time ---- */

static double time_of(ddl_collective collective, const char *name, int nranks, size_t count,
                      const ddl_network_options *options)
{
    job j = make_job(ddl_catalogue_find(collective, name),
                     (ddl_shape){ .nranks = nranks, .count = count, .stride = count, .in_place = true },
                     DDL_PATTERN_EVEN);
    double ns = -1;
    assert_int_equal(run_job(&j, options, &ns, NULL), DDL_OK);
    end_job(&j);
    return ns;
}

static void expect_near(double got, double expected, double tolerance)
{
    if (fabs(got - expected) > tolerance * expected)
        fail_msg("%g ns, expected %g ns", got, expected);
}

static void a_message_takes_overhead_latency_and_bytes(void **state)
{
    (void)state;
    /* Eager: it leaves at once. Else when word of the receive, posted at 0, has come. */
    expect_near(time_of(DDL_COLLECTIVE_SEND, "direct", 2, 3, &lan), 1e3 + 20e3 + 12 / 3.0 + 1e3, 1e-9);
    expect_near(time_of(DDL_COLLECTIVE_SEND, "direct", 2, 3000, &lan), 20e3 + 20e3 + 12000 / 3.0 + 1e3, 1e-9);
}

static void a_ports_messages_share_its_bandwidth(void **state)
{
    (void)state;
    ddl_network_options options = {
        .bytes_per_ns = 1, .eager_bytes = 1 << 20, .paused_rank = -1, .lost_rank = -1
    };
    /* Seven blocks of 4000 bytes leave each port, and seven come in, at the same time. */
    expect_near(time_of(DDL_COLLECTIVE_ALLTOALL, "direct", 8, 1000, &options), 7 * 4000, 1e-9);
}

static void times_are_near_the_closed_forms(void **state)
{
    (void)state;
    ddl_network_options options = lan;
    options.overhead_ns = 0;
    options.eager_bytes = 1 << 30;
    double a = options.latency_ns, b = 1 / options.bytes_per_ns, g = 1 / options.reduce_bytes_per_ns,
           n = 64000;
    size_t count = 16000;
    expect_near(time_of(DDL_COLLECTIVE_ALLREDUCE, "ring", 8, count, &options),
                14 * a + 2 * n * b * 7 / 8 + n * g * 7 / 8, 0.01);
    expect_near(time_of(DDL_COLLECTIVE_ALLREDUCE, "circulant", 8, count, &options),
                6 * a + 2 * n * b * 7 / 8 + n * g * 7 / 8, 0.01);
    expect_near(time_of(DDL_COLLECTIVE_ALLREDUCE, "halving_doubling", 8, count, &options),
                6 * a + 2 * n * b * 7 / 8 + n * g * 7 / 8, 0.01);
    expect_near(time_of(DDL_COLLECTIVE_ALLREDUCE, "direct", 8, count, &options),
                2 * a + 2 * n * b * 7 / 8 + n * g * 7 / 8, 0.01);
    expect_near(time_of(DDL_COLLECTIVE_ALLREDUCE, "doubling", 8, count, &options), 3 * (a + n * b + n * g),
                0.01);
    expect_near(time_of(DDL_COLLECTIVE_BARRIER, "dissemination", 8, 0, &options), 3 * a, 0.01);
}

static void the_same_seed_gives_the_same_run(void **state)
{
    (void)state;
    ddl_network_options options = lan;
    options.jitter_ns = 50e3;
    options.seed = 7;
    double first = time_of(DDL_COLLECTIVE_ALLREDUCE, "circulant", 7, 1000, &options);
    double again = time_of(DDL_COLLECTIVE_ALLREDUCE, "circulant", 7, 1000, &options);
    options.seed = 8;
    double other = time_of(DDL_COLLECTIVE_ALLREDUCE, "circulant", 7, 1000, &options);
    assert_true(first == again);
    assert_true(first != other);
}

/* ---- pauses and losses ---- */

static void a_paused_rank_delays_everyone_and_changes_nothing(void **state)
{
    (void)state;
    size_t nrows;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++) {
        if (rows[i].collective != DDL_COLLECTIVE_ALLREDUCE)
            continue;
        for (int paused = 0; paused < 5; paused++) {
            job j = make_job(&rows[i], (ddl_shape){ .nranks = 5, .count = 1000, .stride = 1000 },
                             DDL_PATTERN_EVEN);
            ddl_network_options options = lan;
            options.paused_rank = paused;
            options.pause_start_ns = 10e3;
            options.pause_ns = 5e6;
            double ns;
            assert_int_equal(run_job(&j, &options, &ns, NULL), DDL_OK);
            assert_true(ns > 5e6);
            assert_true(ns < 6e6);
            expect_results(&j);
            end_job(&j);
        }
    }
}

static void every_survivor_ends_when_a_rank_is_lost(void **state)
{
    (void)state;
    size_t nrows;
    int nlost = 0;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++) {
        if (rows[i].collective == DDL_COLLECTIVE_SEND || rows[i].collective == DDL_COLLECTIVE_RECV)
            continue;
        for (int lost = 0; lost < 8; lost++)
            for (double at_ns = 0; at_ns < 200e3; at_ns += 13e3) {
                job j = make_job(&rows[i],
                                 (ddl_shape){ .nranks = 8, .count = 400, .stride = 400, .in_place = true },
                                 DDL_PATTERN_EVEN);
                ddl_network_options options = lan;
                options.lost_rank = lost;
                options.lost_ns = at_ns;
                ddl_error err = { 0 };
                ddl_status status = run_job(&j, &options, NULL, &err);
                if (status == DDL_EPEERLOST) {
                    assert_int_equal(err.culprit, lost);
                    nlost++;
                } else {
                    assert_int_equal(status, DDL_OK); /* it had done its part before */
                }
                end_job(&j);
            }
    }
    assert_true(nlost > 500);
}

/* A rank that was never given its part is waited for, which is told, not endured. */
static void a_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    const ddl_algorithm *row = ddl_catalogue_find(DDL_COLLECTIVE_SEND, "direct");
    ddl_shape shape = {
        .rank = 0, .nranks = 3, .root = 2, .count = 5000, .stride = 5000, .element_bytes = 4
    };
    ddl_schedule *schedule;
    ddl_network *network;
    ddl_error err = { 0 };
    assert_int_equal(row->build(&shape, &schedule, NULL), DDL_OK);
    assert_int_equal(ddl_network_create(3, &lan, &network, NULL), DDL_OK);
    assert_int_equal(ddl_network_assign(network, 0, schedule, NULL, NULL, DDL_INT32, DDL_SUM, NULL), DDL_OK);
    assert_int_equal(ddl_network_run(network, &err), DDL_EINTERNAL);
    assert_non_null(strstr(err.text, "rank 0 waits for ever for rank 2"));
    ddl_network_destroy(network);
    ddl_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_right_on_real_numbers),
        cmocka_unit_test(a_message_takes_overhead_latency_and_bytes),
        cmocka_unit_test(a_ports_messages_share_its_bandwidth),
        cmocka_unit_test(times_are_near_the_closed_forms),
        cmocka_unit_test(the_same_seed_gives_the_same_run),
        cmocka_unit_test(a_paused_rank_delays_everyone_and_changes_nothing),
        cmocka_unit_test(every_survivor_ends_when_a_rank_is_lost),
        cmocka_unit_test(a_rank_that_never_comes_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
