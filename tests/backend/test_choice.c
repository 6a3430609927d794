/*
 * test_choice.c - the cost model holds together: no collective costs more than others that together do the
 * same, time grows with size, and a rank more costs no more than its share.
 *
 * Of every job of 2 to 64 ranks, on one host or several, at sizes from 4 B to 256 MiB.
 */
#include "backend/choice.h"

#include "executor/board.h"

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MAX = 64, CPUS = 2 };

/* Sums of the same terms in another order. */
#define ROUNDING (1 + 1e-9)

/* Times the CPU time of a message, where its receiver sleeps until it comes; from 1.5 ranks per CPU on. */
#define WOKEN 2.5
/* The sender's part of that. */
#define WAKES 1.3
/* Times the CPU time of bytes, where all such ranks send and receive alike. */
#define IN_THE_WAY 1.15

/* ---- jobs ---- */

typedef int place(int rank, int nranks); /* the host of a rank */

static int on_one_host(int rank, int nranks)
{
    (void)rank;
    (void)nranks;
    return 0;
}

static int on_hosts_of_their_own(int rank, int nranks)
{
    (void)nranks;
    return rank;
}

static int on_hosts_of_four(int rank, int nranks)
{
    (void)nranks;
    return rank / 4;
}

static int on_two_hosts(int rank, int nranks)
{
    return rank < (nranks + 1) / 2 ? 0 : 1;
}

static int on_two_hosts_in_turn(int rank, int nranks)
{
    (void)nranks;
    return rank % 2;
}

static const struct layout {
    const char *name;
    place *host_of;
} layouts[] = {
    { "one host", on_one_host },
    { "hosts of their own", on_hosts_of_their_own },
    { "hosts of four", on_hosts_of_four },
    { "two hosts", on_two_hosts },
    { "two hosts in turn", on_two_hosts_in_turn },
};

struct job {
    int node_of[RANKS_MAX + 1];
    ddl_placement placement;
    ddl_cost_model model;
    char name[96];
};

static void make_job(struct job *job, const struct layout *layout, int nranks, bool crowded,
                     bool shares_memory)
{
    int on_node[RANKS_MAX + 1] = { 0 }, nnodes = 0;
    double crowding = 1;
    for (int rank = 0; rank < nranks; rank++) {
        int node = layout->host_of(rank, nranks);
        job->node_of[rank] = node;
        nnodes = node >= nnodes ? node + 1 : nnodes;
        on_node[node]++;
        if (crowded && (double)on_node[node] / CPUS > crowding)
            crowding = (double)on_node[node] / CPUS;
    }
    job->placement = (ddl_placement){ nranks, nnodes, nnodes > 1 ? job->node_of : NULL };
    job->model = ddl_cost_model_default(crowding);
    job->model.shares_memory = shares_memory && nnodes == 1;
    snprintf(job->name, sizeof job->name, "%d ranks on %s%s%s", nranks, layout->name,
             crowded ? ", crowded" : "", job->model.shares_memory ? ", with shared memory" : "");
}

/* What ranks that share memory have beside it, but for some communicators. */
static void give_board(struct job *job)
{
    size_t used = strlen(job->name);
    job->model.board_bytes = DDL_POST_BYTES;
    snprintf(job->name + used, sizeof job->name - used, " and a board");
}

enum { WAYS = 6 }; /* crowded or not, and which links a host has inside */

/* False: a job of several hosts, which another way has made already. */
static bool make_job_in_way(struct job *job, const struct layout *layout, int nranks, int way)
{
    make_job(job, layout, nranks, way % 2 == 1, way / 2 > 0);
    if (way / 2 > 0 && !job->model.shares_memory)
        return false;
    if (way / 2 == 2)
        give_board(job);
    return true;
}

static void for_each_job(void (*check)(const struct job *job))
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        for (int nranks = 2; nranks <= RANKS_MAX; nranks++)
            for (int way = 0; way < WAYS; way++) {
                struct job job;
                if (make_job_in_way(&job, &layouts[i], nranks, way))
                    check(&job);
            }
}

/* From 4 B to 256 MiB. */
static double size_of(int step)
{
    return ldexp(4, 2 * step);
}

enum { SIZES = 14 };

static bool has_buffers(ddl_collective collective)
{
    return collective != DDL_COLLECTIVE_BARRIER;
}

static double cheapest(const struct job *job, ddl_collective collective, double bytes)
{
    if (!has_buffers(collective))
        bytes = 0;
    const ddl_algorithm *chosen = ddl_choose(&job->model, collective, &job->placement, bytes);
    return ddl_cost_ns(&job->model, chosen, &job->placement, bytes);
}

/* ---- choosing ---- */

static void every_collective_has_a_row_for_any_number_of_ranks(void **state)
{
    size_t count;
    const ddl_algorithm *rows = ddl_catalogue(&count);
    (void)state;
    for (int collective = 0; collective < DDL_COLLECTIVE_COUNT; collective++) {
        bool takes_any = false;
        for (size_t i = 0; i < count && !takes_any; i++)
            takes_any = (int)rows[i].collective == collective && rows[i].takes == NULL;
        if (!takes_any)
            fail_msg("%s has none", ddl_collective_name((ddl_collective)collective));
    }
}

static void check_least(const struct job *job)
{
    size_t count;
    const ddl_algorithm *rows = ddl_catalogue(&count);
    for (int step = 0; step < SIZES; step++)
        for (int collective = 0; collective < DDL_COLLECTIVE_COUNT; collective++) {
            double bytes = size_of(step);
            const ddl_algorithm *chosen =
                ddl_choose(&job->model, (ddl_collective)collective, &job->placement, bytes);
            double least_ns = ddl_cost_ns(&job->model, chosen, &job->placement, bytes);
            assert_int_equal(chosen->collective, collective);
            assert_true(ddl_algorithm_takes(chosen, job->placement.nranks));
            for (size_t i = 0; i < count; i++) {
                if ((int)rows[i].collective != collective ||
                    !ddl_algorithm_takes(&rows[i], job->placement.nranks))
                    continue;
                double ns = ddl_cost_ns(&job->model, &rows[i], &job->placement, bytes);
                if (!(ns > 0 && isfinite(ns)) || ns < least_ns * (1 - 1e-8)) /* roundings are no reason */
                    fail_msg("%s: %s of %.0f bytes: %s at %g ns was chosen, %s has %g ns", job->name,
                             ddl_collective_name((ddl_collective)collective), bytes, chosen->name, least_ns,
                             rows[i].name, ns);
            }
        }
}

static void the_least_is_chosen(void **state)
{
    (void)state;
    for_each_job(check_least);
}

/* ---- one collective beside others ---- */

/*
 * Broadcast and reduce are made of a scatter and an allgather in two forms only; two levels for the allgather
 * alone are a little cheaper in places.
 */
#define FEW_FORMS 1.2

/* Where ranks share CPUs: a reduce of one form and a broadcast of another are a hair better than any form of
 * allreduce, and the first rank without a CPU of its own costs a hair more than its share. */
#define A_HAIR 1.02

/* Each piece of an allreduce over a board has two rounds, in the second of which little is said, and an
 * allgather says as much in fewer; the more ranks share a CPU, the more a round costs. 4 MiB took 2.8 ms with
 * 8 ranks on two CPUs and 8.0 with 16, as parts 3.1 and 7.4. */
#define PIECES_OF_TWO_ROUNDS 1.5

/* Small messages of a root that follow each other (transport/mesh_hold.c). */
enum { LEAVES_TOGETHER = 4096 };

static const struct rule {
    ddl_collective whole, parts[2];
    double tolerance;
} rules[] = {
    { DDL_COLLECTIVE_ALLREDUCE, { DDL_COLLECTIVE_REDUCE, DDL_COLLECTIVE_BROADCAST }, ROUNDING },
    { DDL_COLLECTIVE_ALLREDUCE, { DDL_COLLECTIVE_REDUCE_SCATTER, DDL_COLLECTIVE_ALLGATHER }, ROUNDING },
    { DDL_COLLECTIVE_ALLGATHER, { DDL_COLLECTIVE_GATHER, DDL_COLLECTIVE_BROADCAST }, ROUNDING },
    { DDL_COLLECTIVE_REDUCE_SCATTER, { DDL_COLLECTIVE_REDUCE, DDL_COLLECTIVE_SCATTER }, ROUNDING },
    { DDL_COLLECTIVE_BROADCAST, { DDL_COLLECTIVE_SCATTER, DDL_COLLECTIVE_ALLGATHER }, FEW_FORMS },
    { DDL_COLLECTIVE_REDUCE, { DDL_COLLECTIVE_REDUCE_SCATTER, DDL_COLLECTIVE_GATHER }, FEW_FORMS },
};

static void check_rules(const struct job *job)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        for (int step = 0; step < SIZES; step++) {
            double bytes = size_of(step);
            bool on_board = job->model.board_bytes > 0;
            if (on_board && bytes < 8 * job->placement.nranks)
                continue; /* no block for everyone, of doubles */
            if (on_board && rules[i].tolerance == FEW_FORMS)
                break; /* of one rank goes by messages, and a part of it does not */
            if (rules[i].parts[1] == DDL_COLLECTIVE_SCATTER && !job->model.shares_memory &&
                bytes <= LEAVES_TOGETHER * job->placement.nranks)
                continue; /* a scatter costs what it does in a row, which one behind a reduce is not */
            double whole_ns = cheapest(job, rules[i].whole, bytes);
            double parts_ns =
                cheapest(job, rules[i].parts[0], bytes) + cheapest(job, rules[i].parts[1], bytes);
            bool hair = rules[i].whole == DDL_COLLECTIVE_ALLREDUCE &&
                        rules[i].parts[0] == DDL_COLLECTIVE_REDUCE && job->model.crowding > 1;
            double tolerance = hair ? A_HAIR : rules[i].tolerance;
            if (on_board && bytes > job->model.board_bytes && rules[i].whole == DDL_COLLECTIVE_ALLREDUCE &&
                rules[i].parts[0] == DDL_COLLECTIVE_REDUCE_SCATTER)
                tolerance = PIECES_OF_TWO_ROUNDS;
            if (whole_ns > parts_ns * tolerance)
                fail_msg("%s, %.0f bytes: %s costs %.0f ns, %s + %s %.0f ns", job->name, bytes,
                         ddl_collective_name(rules[i].whole), whole_ns,
                         ddl_collective_name(rules[i].parts[0]), ddl_collective_name(rules[i].parts[1]),
                         parts_ns);
        }
}

static void no_collective_costs_more_than_two_that_do_the_same(void **state)
{
    (void)state;
    for_each_job(check_rules);
}

/* The same data twice as even blocks: the v forms have no reason to cost less than half or more than twice.
 */
static const ddl_collective with_v[][2] = {
    { DDL_COLLECTIVE_REDUCE_SCATTER, DDL_COLLECTIVE_REDUCE_SCATTERV },
    { DDL_COLLECTIVE_ALLGATHER, DDL_COLLECTIVE_ALLGATHERV },
    { DDL_COLLECTIVE_GATHER, DDL_COLLECTIVE_GATHERV },
    { DDL_COLLECTIVE_SCATTER, DDL_COLLECTIVE_SCATTERV },
    { DDL_COLLECTIVE_ALLTOALL, DDL_COLLECTIVE_ALLTOALLV },
};

static void check_v(const struct job *job)
{
    for (size_t i = 0; i < sizeof with_v / sizeof with_v[0]; i++)
        for (int step = 0; step < SIZES; step++) {
            double even_ns = cheapest(job, with_v[i][0], size_of(step));
            double uneven_ns = cheapest(job, with_v[i][1], size_of(step));
            if (even_ns > uneven_ns * ROUNDING)
                fail_msg("%s, %.0f bytes: %s costs %.0f ns, %s %.0f ns", job->name, size_of(step),
                         ddl_collective_name(with_v[i][0]), even_ns, ddl_collective_name(with_v[i][1]),
                         uneven_ns);
        }
}

static void even_blocks_cost_no_more_than_blocks_of_any_size(void **state)
{
    (void)state;
    for_each_job(check_v);
}

/* ---- growing ---- */

/* Twice as much, but on the way there both sides of where each rank has a block of doubles of its own. */
static double next_size(const struct job *job, double bytes)
{
    double edge = 8 * job->placement.nranks;
    if (bytes < edge)
        return bytes == edge - 1 ? edge : fmin(2 * bytes, edge - 1);
    return 2 * bytes;
}

static void check_growth_in_bytes(const struct job *job)
{
    for (int collective = 0; collective < DDL_COLLECTIVE_COUNT; collective++) {
        double before_ns = 0;
        for (double bytes = 4; bytes <= size_of(SIZES - 1); bytes = next_size(job, bytes)) {
            double ns = cheapest(job, (ddl_collective)collective, bytes);
            if (ns * ROUNDING < before_ns || (has_buffers((ddl_collective)collective) && ns == before_ns))
                fail_msg("%s: %s of %.0f bytes costs %.0f ns, of less %.0f ns", job->name,
                         ddl_collective_name((ddl_collective)collective), bytes, ns, before_ns);
            before_ns = ns;
        }
    }
}

static void more_bytes_cost_more(void **state)
{
    (void)state;
    for_each_job(check_growth_in_bytes);
}

/*
 * A rank more may cost its share of what p ranks move, and where p ranks took ceil(log2 p) rounds and more
 * are needed now, two rounds more (of allreduce, which goes there and back). But a rank is no longer many
 * calls ahead on a board of more than DDL_BOARD_FEW.
 */
static void check_step(const struct job *job, const struct job *next, ddl_collective collective, double bytes)
{
    if (ddl_choice_posts_for_root(&job->model, collective, job->placement.nranks, bytes) &&
        !ddl_choice_posts_for_root(&next->model, collective, next->placement.nranks, bytes))
        return;
    ddl_link_kind kind = next->placement.nnodes > 1 ? DDL_LINK_REMOTE : DDL_LINK_LOCAL;
    if (next->model.shares_memory)
        kind = DDL_LINK_SHARED;
    const ddl_link_cost *link = &next->model.links[kind];
    double woken = next->model.crowding > 1 ? WOKEN : 1;
    double round_ns = link->latency_ns + link->message_ns * woken * next->model.crowding;
    bool first_without_cpu = job->model.crowding == 1 && next->model.crowding > 1;
    double share = (1 + 2.0 / job->placement.nranks) * (first_without_cpu ? IN_THE_WAY : 1);
    double ns = cheapest(job, collective, bytes), next_ns = cheapest(next, collective, bytes);
    if (next_ns > (ns * share + 2 * round_ns) * (next->model.crowding > 1 ? A_HAIR : ROUNDING))
        fail_msg("%s of %.0f bytes: %s take %.0f ns, one more %.0f ns", ddl_collective_name(collective),
                 bytes, job->name, ns, next_ns);
}

static void a_rank_more_costs_no_more_than_its_share(void **state)
{
    static const int grow_rank_by_rank[] = { 0,
                                             1 }; /* of layouts; elsewhere a rank more may be a host more */
    (void)state;
    for (size_t i = 0; i < sizeof grow_rank_by_rank / sizeof grow_rank_by_rank[0]; i++)
        for (int nranks = 2; nranks < RANKS_MAX; nranks++)
            for (int way = 0; way < WAYS; way++) {
                struct job job, next;
                if (!make_job_in_way(&job, &layouts[grow_rank_by_rank[i]], nranks, way) ||
                    !make_job_in_way(&next, &layouts[grow_rank_by_rank[i]], nranks + 1, way))
                    continue;
                for (int collective = 0; collective < DDL_COLLECTIVE_COUNT; collective++)
                    for (int step = 0; step < SIZES; step++)
                        check_step(&job, &next, (ddl_collective)collective, size_of(step));
            }
}

static void where_all_have_a_cpu_and_in_exchanges_what_is_large_goes_by_messages(void **state)
{
    (void)state;
    static const struct {
        ddl_collective collective;
        int nranks;
        double crowding;
        double bytes;
        bool is_posted;
    } cases[] = {
        { DDL_COLLECTIVE_ALLREDUCE, 3, 1, 32 * 1024, true },
        { DDL_COLLECTIVE_ALLREDUCE, 3, 1, 32 * 1024 + 4, false },
        { DDL_COLLECTIVE_ALLGATHER, 3, 1, 64 * 1024, false },
        { DDL_COLLECTIVE_BROADCAST, 3, 1, 64 * 1024, false },
        { DDL_COLLECTIVE_ALLREDUCE, 2, 1, 128 * 1024, true },
        { DDL_COLLECTIVE_ALLREDUCE, 2, 1, 128 * 1024 + 4, false },
        { DDL_COLLECTIVE_ALLGATHER, 2, 1, 128 * 1024, true },
        { DDL_COLLECTIVE_ALLTOALL, 2, 1, 128 * 1024 + 8, false },
        { DDL_COLLECTIVE_BROADCAST, 2, 1, 64 * 1024, true },
        { DDL_COLLECTIVE_BROADCAST, 2, 1, 64 * 1024 + 4, false },
        { DDL_COLLECTIVE_REDUCE, 2, 1, 64 * 1024, true },
        { DDL_COLLECTIVE_REDUCE, 2, 1, 64 * 1024 + 4, false },
        { DDL_COLLECTIVE_ALLGATHERV, 2, 1, 64 * 1024 + 4, false },
        { DDL_COLLECTIVE_REDUCE_SCATTERV, 2, 1, 64 * 1024, true },
        { DDL_COLLECTIVE_ALLREDUCE, 4, 2, 1 << 30, true },
        { DDL_COLLECTIVE_ALLGATHER, 4, 2, 1 << 30, true },
        { DDL_COLLECTIVE_ALLTOALL, 4, 2, 4 * 64 * 1024, true },
        { DDL_COLLECTIVE_ALLTOALL, 4, 2, 4 * 64 * 1024 + 16, false },
        { DDL_COLLECTIVE_ALLTOALL, 4, 5.5, 1 << 30, false },
        { DDL_COLLECTIVE_ALLTOALL, 4, 6, 1 << 30, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job job;
        make_job(&job, &layouts[0], cases[i].nranks, cases[i].crowding > 1, true);
        job.model.crowding = cases[i].crowding;
        job.model.board_bytes = DDL_POST_BYTES;
        job.model.pull_bytes = INFINITY;
        assert_int_equal(
            ddl_choice_post_bytes(&job.model, cases[i].collective, job.placement.nranks, cases[i].bytes),
            cases[i].is_posted ? DDL_POST_BYTES : 0);
    }
}

/* In which what both reach can be told. */
static void larger_allreduces_between_two_go_over_the_board_in_two_rounds(void **state)
{
    struct job job;
    (void)state;
    make_job(&job, &layouts[0], 2, false, true);
    job.model.crowding = 1;
    job.model.board_bytes = DDL_POST_BYTES;
    static const struct {
        double bytes;
        const char *name;
    } cases[] = { { 32 * 1024, "flat" }, { 32 * 1024 + 4, "direct" }, { 128 * 1024, "direct" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(
            ddl_choose(&job.model, DDL_COLLECTIVE_ALLREDUCE, &job.placement, cases[i].bytes)->name,
            cases[i].name);
}

/* What is small, where a root may be ahead; and what is large, which a tree of messages copies more often. */
static void calls_of_one_root_go_over_the_board(void **state)
{
    (void)state;
    static const struct {
        ddl_collective collective;
        int nranks;
        double crowding, bytes;
        const char *name; /* of a round; NULL: it goes by messages */
    } cases[] = {
        { DDL_COLLECTIVE_BROADCAST, 4, 2, 2048, "knomial" },
        { DDL_COLLECTIVE_BROADCAST, 4, 2, 2049, NULL },
        { DDL_COLLECTIVE_BROADCAST, 3, 2, 4, "knomial" },
        { DDL_COLLECTIVE_BROADCAST, 4, 1, 4, "knomial" },
        { DDL_COLLECTIVE_BROADCAST, 5, 2.5, 4, "flat" },
        { DDL_COLLECTIVE_BROADCAST, 8, 4, 2048, "flat" },
        { DDL_COLLECTIVE_BROADCAST, 8, 1, 4, "flat" },
        { DDL_COLLECTIVE_BROADCAST, 9, 4.5, 4, NULL },
        { DDL_COLLECTIVE_REDUCE, 4, 2, 2048, "knomial" },
        { DDL_COLLECTIVE_REDUCE, 8, 4, 2048, "flat" },
        { DDL_COLLECTIVE_REDUCE, 8, 4, 2049, NULL },
        { DDL_COLLECTIVE_REDUCE, 9, 1, 4, NULL },
        { DDL_COLLECTIVE_BROADCAST, 8, 4, 65535, NULL },
        { DDL_COLLECTIVE_BROADCAST, 8, 4, 65536, "flat" },
        { DDL_COLLECTIVE_BROADCAST, 5, 2.5, DDL_POST_BYTES, "flat" },
        { DDL_COLLECTIVE_BROADCAST, 6, 3, DDL_POST_BYTES + 1, NULL },
        { DDL_COLLECTIVE_BROADCAST, 7, 3.5, 1 << 26, "flat" },
        { DDL_COLLECTIVE_BROADCAST, 8, 4, 2e9, "flat" },
        { DDL_COLLECTIVE_BROADCAST, 41, 1.025, 65536, NULL },
        { DDL_COLLECTIVE_REDUCE, 9, 1.125, 65536, NULL },
        { DDL_COLLECTIVE_REDUCE, 8, 2, 1 << 20, NULL },
        { DDL_COLLECTIVE_BROADCAST, 64, 32, 1 << 26, "flat" },
        { DDL_COLLECTIVE_BROADCAST, 8, 1, 65536, NULL },
        { DDL_COLLECTIVE_BROADCAST, 4, 2, 65536, NULL },
        { DDL_COLLECTIVE_REDUCE, 8, 4, 65535, NULL },
        { DDL_COLLECTIVE_REDUCE, 3, 1.5, 65536, "knomial" },
        { DDL_COLLECTIVE_REDUCE, 24, 12, 1 << 20, "flat" },
        { DDL_COLLECTIVE_REDUCE, 2, 2, 65536, NULL },
        { DDL_COLLECTIVE_GATHER, 3, 1.5, 12, "direct" },
        { DDL_COLLECTIVE_GATHER, 8, 4, 8 * 2048, "direct" },
        { DDL_COLLECTIVE_GATHER, 8, 4, 8 * 2049, NULL },
        { DDL_COLLECTIVE_GATHER, 9, 4.5, 72, NULL },
        { DDL_COLLECTIVE_SCATTER, 8, 4, 2048, "direct" },
        { DDL_COLLECTIVE_SCATTER, 8, 4, 2056, NULL },
        { DDL_COLLECTIVE_SCATTER, 8, 4, 65536, NULL },
        { DDL_COLLECTIVE_SCATTERV, 8, 4, 64, NULL },
        { DDL_COLLECTIVE_ALLREDUCE, 4, 2, 4, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job job;
        make_job(&job, &layouts[0], cases[i].nranks, cases[i].crowding > 1, true);
        job.model.crowding = cases[i].crowding;
        job.model.board_bytes = DDL_POST_BYTES;
        const bool is_posted =
            ddl_choice_posts_for_root(&job.model, cases[i].collective, cases[i].nranks, cases[i].bytes);
        const char *name = ddl_choose(&job.model, cases[i].collective, &job.placement, cases[i].bytes)->name;
        assert_int_equal(is_posted, cases[i].name != NULL);
        if (is_posted)
            assert_string_equal(name, cases[i].name);
        else if (cases[i].collective != DDL_COLLECTIVE_ALLREDUCE)
            assert_string_not_equal(name, "flat");
        job.model.pull_bytes = 64 * 1024; /* who receives reads it where it is */
        assert_int_equal(
            ddl_choice_posts_for_root(&job.model, cases[i].collective, cases[i].nranks, cases[i].bytes),
            cases[i].name != NULL && cases[i].bytes < job.model.pull_bytes);
        job.model.pull_bytes = DDL_NEVER_PULL;
        job.model.board_bytes = 0;
        assert_false(
            ddl_choice_posts_for_root(&job.model, cases[i].collective, cases[i].nranks, cases[i].bytes));
        if (cases[i].collective != DDL_COLLECTIVE_ALLREDUCE)
            assert_string_not_equal(
                ddl_choose(&job.model, cases[i].collective, &job.placement, cases[i].bytes)->name, "flat");
    }
}

static void a_barrier_over_a_board_is_flat_and_else_a_tree(void **state)
{
    struct job job;
    (void)state;
    make_job(&job, &layouts[0], 8, true, true);
    job.model.board_bytes = DDL_POST_BYTES;
    assert_string_equal(ddl_choose(&job.model, DDL_COLLECTIVE_BARRIER, &job.placement, 0)->name, "flat");
    make_job(&job, &layouts[0], 8, true, false);
    assert_string_equal(ddl_choose(&job.model, DDL_COLLECTIVE_BARRIER, &job.placement, 0)->name, "tree");
}

/* Where ranks share CPUs, a ring is for TCP; a round in which all send to all is in nobody's way in memory.
 */
static void much_goes_directly_in_shared_memory(void **state)
{
    static const double MUCH = 4 * 1024 * 1024, LITTLE = 64 * 1024;
    struct job job;
    (void)state;
    make_job(&job, &layouts[0], 4, true, true);
    assert_string_equal(ddl_choose(&job.model, DDL_COLLECTIVE_ALLGATHER, &job.placement, MUCH)->name,
                        "direct");
    assert_string_equal(ddl_choose(&job.model, DDL_COLLECTIVE_SCATTER, &job.placement, LITTLE)->name,
                        "direct");
    make_job(&job, &layouts[0], 4, true, false);
    assert_string_equal(ddl_choose(&job.model, DDL_COLLECTIVE_ALLGATHER, &job.placement, MUCH)->name, "ring");
}

static const char *broadcast_by(int nranks, double crowding, bool shares_memory, double bytes)
{
    struct job job;
    make_job(&job, &layouts[0], nranks, true, shares_memory);
    job.model.crowding = crowding;
    return ddl_choose(&job.model, DDL_COLLECTIVE_BROADCAST, &job.placement, bytes)->name;
}

/* Where a tree gives one CPU more to do than another, as far as that was measured. */
static void a_large_broadcast_is_shared_evenly_where_few_ranks_share_cpus(void **state)
{
    static const double MIB = 1024 * 1024;
    (void)state;
    for (int nranks = 3; nranks <= 6; nranks++)
        for (double bytes = MIB; bytes <= 256 * MIB; bytes *= 2)
            assert_string_equal(broadcast_by(nranks, nranks / 2., true, bytes), "direct");
    assert_string_equal(broadcast_by(4, 2, true, 0.75 * MIB), "direct");
    for (double bytes = MIB; bytes <= 256 * MIB; bytes *= 2) {
        for (int nranks = 7; nranks <= 32; nranks++)
            assert_string_equal(broadcast_by(nranks, nranks / 2., true, bytes), "binomial");
        for (int nranks = 8; nranks <= 16; nranks *= 2)
            assert_string_equal(broadcast_by(nranks, 2, true, bytes), "binomial");
        assert_string_not_equal(broadcast_by(5, 1.25, true, bytes), "direct");
        assert_string_not_equal(broadcast_by(8, 4. / 3, true, bytes), "direct");
        assert_string_not_equal(broadcast_by(32, 2, true, bytes), "direct");
        assert_string_equal(broadcast_by(4, 2, false, bytes), "binomial");
    }
    assert_string_equal(broadcast_by(4, 2, true, 0.5 * MIB), "binomial");
    assert_string_equal(broadcast_by(6, 3, true, 0.5 * MIB), "binomial");
}

/* As a part of something else a broadcast costs the same however even it is. */
static void a_part_costs_no_more_where_it_is_uneven(void **state)
{
    static const double BYTES = 4 * 1024 * 1024;
    size_t count;
    const ddl_algorithm *rows = ddl_catalogue(&count);
    struct job few;
    (void)state;
    make_job(&few, &layouts[0], 6, true, true);
    few.model.crowding = 2;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].collective != DDL_COLLECTIVE_ALLGATHER || strcmp(rows[i].name, "tree") != 0)
            continue;
        const ddl_algorithm alone[] = {
            { .collective = DDL_COLLECTIVE_GATHER, .work = rows[i].phases[0].work },
            { .collective = DDL_COLLECTIVE_BROADCAST, .work = rows[i].phases[1].work }
        };
        const double parts_ns = ddl_cost_ns(&few.model, &alone[0], &few.placement, BYTES) +
                                ddl_cost_ns(&few.model, &alone[1], &few.placement, BYTES);
        /* The gather is the same alone; of the broadcast 8 % of its bytes are more. */
        const double byte_ns = few.model.links[DDL_LINK_SHARED].byte_ns;
        const double uneven_ns = 0.08 * BYTES * 5 / 6 * byte_ns * 2;
        const double both_ns = ddl_cost_ns(&few.model, &rows[i], &few.placement, BYTES);
        assert_true(parts_ns - both_ns > 0.9 * uneven_ns);
        return;
    }
    fail();
}

static bool goes_up_a_tree(ddl_collective collective, int nranks, double crowding)
{
    static const double MUCH = 4 * 1024 * 1024;
    struct job job;
    make_job(&job, &layouts[0], nranks, true, false);
    job.model.crowding = crowding;
    const char *name = ddl_choose(&job.model, collective, &job.placement, MUCH)->name;
    return strcmp(name, "binomial") == 0 || strcmp(name, "knomial") == 0 || strcmp(name, "tree") == 0;
}

/* Of three ranks on two CPUs the root of a tree has one to itself, and two that exchange have one each. */
static void three_ranks_on_two_cpus_need_no_tree(void **state)
{
    (void)state;
    assert_false(goes_up_a_tree(DDL_COLLECTIVE_BROADCAST, 3, 1.5));
    assert_true(goes_up_a_tree(DDL_COLLECTIVE_BROADCAST, 4, 2));
    assert_true(goes_up_a_tree(DDL_COLLECTIVE_BROADCAST, 5, 2.5));
    assert_false(goes_up_a_tree(DDL_COLLECTIVE_ALLREDUCE, 3, 1.5));
    assert_true(goes_up_a_tree(DDL_COLLECTIVE_ALLREDUCE, 5, 2.5));
}

enum { ON_ONE_HOST, ON_HOSTS_OF_THEIR_OWN, ON_HOSTS_OF_FOUR, ON_TWO_HOSTS }; /* of layouts */

static bool goes_by_two_levels(int layout, int nranks, bool crowded, double block_bytes)
{
    struct job job;
    make_job(&job, &layouts[layout], nranks, crowded, false);
    const double bytes = block_bytes * nranks;
    const char *name = ddl_choose(&job.model, DDL_COLLECTIVE_ALLTOALL, &job.placement, bytes)->name;
    return strcmp(name, "two_level") == 0;
}

/* What is large is moved once; and without neighbours, or without other hosts, there is nothing to gain. */
static void small_alltoalls_have_few_messages_between_hosts(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        for (double bytes = 4; bytes <= 4096; bytes *= 4) {
            assert_true(goes_by_two_levels(ON_TWO_HOSTS, 3, crowded == 1, bytes));
            assert_true(goes_by_two_levels(ON_TWO_HOSTS, 4, crowded == 1, bytes));
            assert_true(goes_by_two_levels(ON_TWO_HOSTS, 8, crowded == 1, bytes));
            assert_true(goes_by_two_levels(ON_HOSTS_OF_FOUR, 16, crowded == 1, bytes));
        }
        for (double bytes = 262144; bytes <= 4194304; bytes *= 4) {
            assert_false(goes_by_two_levels(ON_TWO_HOSTS, 4, crowded == 1, bytes));
            assert_false(goes_by_two_levels(ON_TWO_HOSTS, 8, crowded == 1, bytes));
            assert_false(goes_by_two_levels(ON_HOSTS_OF_FOUR, 16, crowded == 1, bytes));
        }
        for (double bytes = 4; bytes <= 4194304; bytes *= 4) {
            assert_false(goes_by_two_levels(ON_ONE_HOST, 8, crowded == 1, bytes));
            assert_false(goes_by_two_levels(ON_HOSTS_OF_THEIR_OWN, 8, crowded == 1, bytes));
        }
    }
}

/* ---- the model itself ---- */

static void constants_travel_as_an_array(void **state)
{
    double constants[DDL_COST_CONSTANTS], back[DDL_COST_CONSTANTS];
    ddl_cost_model model = ddl_cost_model_default(1);
    (void)state;
    for (int i = 0; i < DDL_COST_CONSTANTS; i++)
        constants[i] = 1.25 + i;
    assert_int_equal(ddl_cost_model_unpack(constants, DDL_COST_CONSTANTS, 4, &model, NULL), DDL_OK);
    assert_true(model.crowding == 4);
    ddl_cost_model_pack(&model, back);
    assert_memory_equal(back, constants, sizeof back);
    assert_int_equal(ddl_cost_model_unpack(constants, DDL_COST_CONSTANTS, 0.5, &model, NULL), DDL_OK);
    assert_true(model.crowding == 1);
}

static void constants_that_no_model_has_are_refused(void **state)
{
    static const double wrong[] = { 0, -1, DDL_COST_LIMIT, (double)NAN, (double)INFINITY };
    double constants[DDL_COST_CONSTANTS + 1];
    ddl_cost_model model, before = ddl_cost_model_default(1);
    ddl_error error;
    (void)state;
    ddl_cost_model_pack(&before, constants);
    model = before;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        for (int at = 0; at < DDL_COST_CONSTANTS; at++) {
            double was = constants[at];
            constants[at] = wrong[i];
            assert_int_equal(ddl_cost_model_unpack(constants, DDL_COST_CONSTANTS, 1, &model, &error),
                             DDL_EPROTO);
            assert_non_null(strstr(error.text, ddl_cost_names[at]));
            constants[at] = was;
        }
    assert_int_equal(ddl_cost_model_unpack(constants, DDL_COST_CONSTANTS - 1, 1, &model, &error), DDL_EPROTO);
    assert_int_equal(ddl_cost_model_unpack(constants, DDL_COST_CONSTANTS + 1, 1, &model, &error), DDL_EPROTO);
    assert_memory_equal(&model, &before, sizeof model);
}

/* One row whose work is known: what each constant does to its cost. */
static double known_rounds = 4, known_mean = 0;
static bool known_reduces = true;

static ddl_work known_work(const ddl_placement *placement, double total_bytes)
{
    bool apart = placement->nnodes > 1;
    return (ddl_work){ .rounds = known_rounds,
                       .messages = 8,
                       .sent_bytes = 2 * total_bytes,
                       .reduced_bytes = known_reduces ? total_bytes : 0,
                       .mean_messages = known_mean,
                       .remote_rounds = apart ? 1 : 0,
                       .remote_bytes = apart ? 3 * total_bytes : 0 };
}

static void each_constant_has_its_part(void **state)
{
    const ddl_algorithm row = { .name = "known", .collective = DDL_COLLECTIVE_ALLREDUCE, .work = known_work };
    const ddl_placement together = { 4, 1, NULL }, apart = { 2, 2, (const int[]){ 0, 1 } };
    const ddl_cost_model model = { .links = { { 100, 10, 0.5 }, { 1000, 20, 8 } },
                                   .reduce_ns = 0.25,
                                   .crowding = 3 };
    (void)state;
    /* The messages of three ranks in turn, which is more than the way through all rounds; these as far as
     * they are not others' turns; bytes, reduced. */
    double alone_ns = 8 * 10 * 3 * WOKEN + 4 * 100 / 3.0 + (128 * 0.5 + 64 * 0.25) * 3 * IN_THE_WAY;
    assert_true(fabs(ddl_cost_ns(&model, &row, &together, 64) - alone_ns) < 1e-6);
    /* With as many rounds as rings take the way is longer than the turns; and of more than 64 KiB for each
     * nobody is much in anybody's way. */
    known_rounds = 6;
    const double way_ns = 6 * 100 * 4 / 3.0 + 8 * 10 * WAKES, whole = 4 * 65536;
    double small_ring_ns = way_ns + whole * (2 * 0.5 + 0.25) * 3 * IN_THE_WAY;
    assert_true(fabs(ddl_cost_ns(&model, &row, &together, whole) - small_ring_ns) < 1e-6);
    double ring_ns = way_ns + (whole + 1) * (2 * 0.5 + 0.25) * 3 * 1.05;
    assert_true(fabs(ddl_cost_ns(&model, &row, &together, whole + 1) - ring_ns) < 1e-6);
    /* Of messages of more than four ranks at once each costs half a message more. */
    known_rounds = 1;
    double many_ns = 8 * 10 * 3 * (WOKEN + 0.5) + 100 / 3.0 + (128 * 0.5 + 64 * 0.25) * 3 * IN_THE_WAY;
    assert_true(fabs(ddl_cost_ns(&model, &row, &together, 64) - many_ns) < 1e-6);
    known_rounds = 4;
    /* A quarter of the rounds, and so of the messages, is remote, and the way is longer than the turns; the
     * wire hides all but a third of the CPU. */
    double cpu_ns = (128 * 0.5 + 64 * 0.25) * 3 * IN_THE_WAY, wire_ns = 192 * 8;
    double expected = (3 * 100 + 1000) * 4 / 3.0 + 8 * 12.5 * WAKES + wire_ns + cpu_ns / 3;
    assert_true(fabs(ddl_cost_ns(&model, &row, &apart, 64) - expected) < 1e-6);
    /* In an alltoall rounds and messages inside hosts are as in shared memory. */
    ddl_algorithm exchange = row;
    exchange.collective = DDL_COLLECTIVE_ALLTOALL;
    ddl_cost_model shared = model;
    shared.links[DDL_LINK_SHARED] = (ddl_link_cost){ 60, 4, 0.1 };
    expected = (3 * 60 + 1000) * 4 / 3.0 + 8 * 8 * WAKES + wire_ns + cpu_ns / 3;
    assert_true(fabs(ddl_cost_ns(&shared, &exchange, &apart, 64) - expected) < 1e-6);
    double on_one_host = ddl_cost_ns(&model, &exchange, &together, 64);
    assert_true(fabs(ddl_cost_ns(&shared, &exchange, &together, 64) - on_one_host) < 1e-6);
}

static void in_rooted_collectives_only_the_mean_is_crowded(void **state)
{
    /* The busiest has 8 messages, sends 128 bytes and reduces 64 in 4 rounds of 100 ns; there are four ranks,
     * each of them a third of the time on a CPU. */
    const double rounds = 4 * 100, turns = 8 * 3 * 10 * WOKEN;
    /* The root of a scatter or broadcast waits for nobody, and the turns do not hide all that it does. What
     * is small leaves it together, and a broadcast costs no less than one that stands alone. */
    const double sent_on = turns + (0.42 * rounds + 8 * 10 * WAKES) / 3;
    const double scattered = 0.75 * 3 * 10 * WOKEN, root = 0.42 * rounds + 8 * 10 * WAKES;
    const double small_root = 0.42 * rounds + 8 * 10 * WAKES * 0.07;
    /* Of the 8 messages one in each round is sent, and the others are taken for a quarter. */
    const double gathered = rounds + (4 * 0.75 + 8 * 0.25) * 10 * WAKES;
    const double vector = 48 * 3 * IN_THE_WAY + (64 - 48) * 2 / 27.0;
    /* A root that sends has more than half of what an exchange takes. */
    const double sent = 48 * 3 * IN_THE_WAY + (128 * 0.65 - 48) * 2 / 27.0;
    /* 48 bytes for all once and 80 more handed on, for a quarter; the root is busy with 128 / 2 meanwhile */
    const double blocks = 64 + (48 + 80 / 4.0) / 4 * 3 / 3;
    const struct {
        ddl_collective collective;
        double bytes_factor, rounds, messages, bytes, reduced;
    } cases[] = {
        { DDL_COLLECTIVE_ALLREDUCE, 1, rounds, turns, 128 * 3 * IN_THE_WAY, 64 * 3 * IN_THE_WAY },
        { DDL_COLLECTIVE_ALLTOALLV, 1, rounds, turns, 128 * 3 * IN_THE_WAY, 64 * 3 * IN_THE_WAY },
        /* three vectors of 64 bytes in all, that is 48 for each; a little of what the root does beyond that
         */
        { DDL_COLLECTIVE_BROADCAST, 1, rounds, turns, sent, vector },
        { DDL_COLLECTIVE_BROADCAST, 1024, 0.42 * rounds, sent_on, sent, vector },
        { DDL_COLLECTIVE_REDUCE, 1, rounds, turns, vector, vector },
        { DDL_COLLECTIVE_GATHER, 1, rounds, gathered, blocks, 0 },
        { DDL_COLLECTIVE_SCATTERV, 1, 0.42 * rounds, small_root + scattered / 3, blocks, 0 },
        { DDL_COLLECTIVE_SCATTERV, 1024, 0.42 * rounds, root + scattered / 3, blocks, 0 },
    };
    const ddl_placement together = { 4, 1, NULL };
    const ddl_cost_model model = { .links = { { 100, 10, 0.5 }, { 1000, 20, 8 } },
                                   .reduce_ns = 0.25,
                                   .crowding = 3 };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ddl_algorithm row = { .name = "known", .collective = cases[i].collective, .work = known_work };
        const double factor = cases[i].bytes_factor;
        const double ns = ddl_cost_ns(&model, &row, &together, 64 * factor);
        const double expected = cases[i].messages + cases[i].rounds / 3 +
                                factor * (cases[i].bytes * 0.5 + cases[i].reduced * 0.25);
        if (fabs(ns - expected) > 1e-6)
            fail_msg("%s costs %g ns, not %g", ddl_collective_name(cases[i].collective), ns, expected);
    }
}

static void costs_of(double bytes, const ddl_algorithm *row, const ddl_cost_model *model, double expected)
{
    const ddl_placement together = { 4, 1, NULL };
    double ns = ddl_cost_ns(model, row, &together, bytes);
    if (fabs(ns - expected) > 1e-6)
        fail_msg("%s of %g rounds costs %g ns, not %g", ddl_collective_name(row->collective), known_rounds,
                 ns, expected);
}

static void costs(const ddl_algorithm *row, const ddl_cost_model *model, double expected)
{
    costs_of(64, row, model, expected);
}

/* Over TCP what is folded several at a time lands first, and ranks of a broadcast that hand on to several
 * keep the last ones waiting. Each rank is a third of the time on a CPU. */
static void several_at_a_time_take_longer(void **state)
{
    static const struct {
        int nranks, queued;
    } jobs[] = { { 5, 0 }, { 6, 0 }, { 7, 1 }, { 8, 2 }, { 17, 2 }, { 25, 3 }, { 32, 4 }, { 64, 4 } };
    const ddl_cost_model model = { .links = { { 100, 10, 0.5 } }, .reduce_ns = 0.25, .crowding = 3 };
    const double turns = 8 * 3 * 10 * WOKEN, vector = 48 * (0.5 + 0.25);
    const double rest = (64 * 0.5 + 64 * 0.25 - vector) * 2 / 27.0;
    ddl_algorithm row = { .name = "known", .collective = DDL_COLLECTIVE_REDUCE, .work = known_work };
    (void)state;
    known_mean = 8;
    costs(&row, &model, turns + 4 * 100 / 3.0 + vector * 3 * 1.1 + rest);
    known_rounds = 8;
    costs(&row, &model, 8 * 100 * 4 / 3.0 + 8 * 10 * WAKES + vector * 3 * 1.05 + rest);
    known_reduces = false;
    row.collective = DDL_COLLECTIVE_BROADCAST;
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        const ddl_placement together = { jobs[i].nranks, 1, NULL };
        const double of_one = 64 * (jobs[i].nranks - 1) * 0.5 / jobs[i].nranks, of_root = 128 * 0.65 * 0.5;
        const double bytes = of_one * 3 + (of_root - of_one) * 2 / 27.0;
        known_rounds = 4; /* with 8 messages */
        const double several_ns = turns + (4 * 100 + jobs[i].queued * 0.55 * 10) / 3.0 + bytes;
        assert_true(fabs(ddl_cost_ns(&model, &row, &together, 64) - several_ns) < 1e-6);
        known_rounds = 8; /* one at a time */
        const double one_ns = 8 * 100 * 4 / 3.0 + 8 * 10 * WAKES + bytes;
        assert_true(fabs(ddl_cost_ns(&model, &row, &together, 64) - one_ns) < 1e-6);
    }
    known_rounds = 4, known_mean = 0, known_reduces = true;
}

/* What each of them costs, but that the root has a little less to do for a scatter that comes second. */
static void a_scatter_behind_a_reduce_is_not_alone(void **state)
{
    const ddl_cost_model model = { .links = { { 100, 10, 0.5 } }, .reduce_ns = 0.25, .crowding = 3 };
    const double blocks = (64 + (48 + 80 / 4.0) / 4 * 3 / 3) * 0.5;
    const double vector = 48 * (0.5 + 0.25), held_up = (64 * 0.5 + 64 * 0.25 - vector) * 2 / 27.0;
    const double reduced = 8 * 3 * 10 * WOKEN + 4 * 100 / 3.0 + vector * 3 * IN_THE_WAY + held_up;
    const double scattered = 4 * 100 * 4 / 3.0 + blocks;
    ddl_algorithm row = { .name = "known",
                          .collective = DDL_COLLECTIVE_REDUCE_SCATTER,
                          .phases = { { DDL_COLLECTIVE_REDUCE, known_work },
                                      { DDL_COLLECTIVE_SCATTER, known_work } } };
    (void)state;
    costs(&row, &model, reduced + scattered + 8 * 10 * WAKES * 0.95);
    row.phases[0] = (ddl_phase){ DDL_COLLECTIVE_SCATTER, known_work };
    row.phases[1] = (ddl_phase){ DDL_COLLECTIVE_REDUCE, known_work };
    costs(&row, &model, reduced + scattered + 8 * 10 * WAKES);
    /* Where each rank has a CPU, the order makes no difference; at half of the way, half of it. */
    const ddl_placement together = { 4, 1, NULL };
    ddl_cost_model roomy = { .links = { { 100, 10, 0.5 } }, .reduce_ns = 0.25, .crowding = 1 };
    const ddl_algorithm other_row = row;
    row.phases[0] = (ddl_phase){ DDL_COLLECTIVE_REDUCE, known_work };
    row.phases[1] = (ddl_phase){ DDL_COLLECTIVE_SCATTER, known_work };
    double less_ns =
        ddl_cost_ns(&roomy, &other_row, &together, 64) - ddl_cost_ns(&roomy, &row, &together, 64);
    assert_true(fabs(less_ns) < 1e-6);
    roomy.crowding = 1.25;
    less_ns = ddl_cost_ns(&roomy, &other_row, &together, 64) - ddl_cost_ns(&roomy, &row, &together, 64);
    assert_true(fabs(less_ns - 8 * 10 * 1.15 * 0.025) < 1e-6);
}

/* Shared memory has shares of its own. Four ranks, each of them two fifths of the time on a CPU. */
static void where_ranks_share_memory_they_are_less_in_the_way(void **state)
{
    const double crowding = 2.5, turns = 2.5 + 0.1 * 0.5; /* of the three that four equals take */
    const ddl_cost_model model = { .links = { [DDL_LINK_SHARED] = { 10, 10, 0.5 } },
                                   .reduce_ns = 0.25,
                                   .shares_memory = true,
                                   .crowding = crowding };
    const double bytes = 128 * 0.5 + 64 * 0.25, a_round = 10 * (1 - 1 / crowding) / 2;
    const double messages = 8 * 10 * crowding * WOKEN, vector = 48 * (0.5 + 0.25);
    const double rest = (64 * 0.5 + 64 * 0.25 - vector) * (1 - 1 / crowding) / (3 * crowding);
    ddl_algorithm row = { .name = "known", .collective = DDL_COLLECTIVE_ALLREDUCE, .work = known_work };
    (void)state;
    costs(&row, &model, messages + 4 * a_round + bytes * turns);
    known_rounds = 1; /* all to all at once, which lands; of more than four ranks a message more for each */
    costs(&row, &model, messages + 8 * 10 * crowding + a_round + bytes * turns * 1.1);
    known_rounds = 2;
    row.collective = DDL_COLLECTIVE_REDUCE_SCATTER;
    costs(&row, &model, messages + 2 * a_round + bytes * turns * 1.05);
    known_rounds = 3; /* a ring, if it is large */
    costs(&row, &model, messages + 3 * a_round + bytes * turns * 1.1);
    costs_of(64 * 8192, &row, &model, messages + 3 * a_round + 8192 * bytes * turns * 1.05);
    row.collective = DDL_COLLECTIVE_ALLTOALL;
    costs(&row, &model, messages + 3 * a_round + bytes * turns * 1.1);
    known_rounds = 4;
    row.collective = DDL_COLLECTIVE_REDUCE; /* in pipelines */
    costs(&row, &model, messages + 4 * a_round + vector * crowding * 1.05 + rest);
    known_mean = 8; /* up a tree whose ranks fold two at a time, and then one */
    costs(&row, &model, messages + 4 * a_round + vector * crowding * 1.15 + rest);
    known_rounds = 8;
    costs(&row, &model, messages + 8 * a_round + vector * crowding * 1.05 + rest);
    known_rounds = 4, known_mean = 0;
    /* 48 bytes in all, and 80 handed on, for more than from the root. */
    row.collective = DDL_COLLECTIVE_GATHER;
    costs(&row, &model,
          4 * 10 + 8 * 10 * WAKES + 4 * a_round + (48 + 80 * 1.6) / 4 * 0.5 * crowding + 64 * 0.5 / 3);
}

/* What goes over a board: a latency, a turn of each rank and a line of each sheet but one in each round, and
 * what is read. */
static void posts_cost_turns_of_all(void **state)
{
    const ddl_placement nine = { 9, 1, NULL }, five = { 5, 1, NULL };
    ddl_cost_model model = { .links = { [DDL_LINK_SHARED] = { 10, 20, 0.5 } },
                             .reduce_ns = 0.25,
                             .shares_memory = true,
                             .board_bytes = DDL_POST_BYTES,
                             .crowding = 1 };
    const ddl_algorithm row = { .name = "known", .collective = DDL_COLLECTIVE_ALLREDUCE, .work = known_work };
    const double read = 0.7 * (128 * 0.5 + 64 * 0.125), crowded_round = 10 + 2.5 * 20 * 2.5, line = 0.07 * 20;
    (void)state;
    known_rounds = 1; /* 8 messages of one of nine ranks */
    assert_true(fabs(ddl_cost_ns(&model, &row, &nine, 64) - (10 + 20 + 7 * line + read)) < 1e-6);
    model.crowding = 2.5;
    assert_true(fabs(ddl_cost_ns(&model, &row, &nine, 64) - (crowded_round + 7 * line + read)) < 1e-6);
    known_rounds = 2; /* or of one of five, one of whose CPUs has a rank more than the other */
    assert_true(fabs(ddl_cost_ns(&model, &row, &five, 64) - (crowded_round * 2 + 6 * line + read)) < 1e-6);
    model.crowding = 3;
    const double even_round = 10 + 2.5 * 20 * 3;
    assert_true(fabs(ddl_cost_ns(&model, &row, &five, 64) - (even_round * (2 - 0.5 / 3) + 6 * line + read)) <
                1e-6);
    model.crowding = 2.5;
    /* Without a block for everyone, of doubles, it may have to go by messages. */
    assert_true(ddl_cost_ns(&model, &row, &five, 39) > crowded_round * 3);
    known_rounds = 4;
}

/* A program goes through few sizes; these are to be remembered beside each other. */
static void usual_sizes_have_places_of_their_own(void **state)
{
    (void)state;
    unsigned taken = 0;
    int places = 0;
    for (int size = 2; size < 30; size += 2) {
        int chosen = ddl_choice_place((double)(1 << size));
        assert_in_range(chosen, 0, DDL_CHOICES - 1);
        places += (taken >> chosen & 1) == 0;
        taken |= 1U << chosen;
    }
    assert_true(places >= 8); /* of 14 */
}

static void assert_chosen_alike(const struct job *job)
{
    static const int directions[] = { FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };
    for (int collective = 0; collective < DDL_COLLECTIVE_COUNT; collective++)
        for (double bytes = 4; bytes < 1e8; bytes = floor(bytes * 1.5) + 4) {
            const ddl_collective c = (ddl_collective)collective;
            const size_t posted = ddl_choice_post_bytes(&job->model, c, job->placement.nranks, bytes);
            const ddl_algorithm *usual = ddl_choose(&job->model, c, &job->placement, bytes);
            for (size_t i = 0; i < sizeof directions / sizeof *directions; i++) {
                assert_int_equal(fesetround(directions[i]), 0);
                const ddl_algorithm *chosen = ddl_choose(&job->model, c, &job->placement, bytes);
                const size_t other = ddl_choice_post_bytes(&job->model, c, job->placement.nranks, bytes);
                const int direction = fegetround();
                assert_int_equal(fesetround(FE_TONEAREST), 0);
                assert_int_equal(direction, directions[i]);
                assert_int_equal(other, posted);
                if (chosen != usual)
                    fail_msg("%s, %s of %.0f bytes: %s, and %s where its thread rounds otherwise", job->name,
                             ddl_collective_name(c), bytes, usual->name, chosen->name);
            }
        }
}

/* What one rank has is just as much as is pulled, but for how that rounds. */
static void assert_posted_alike(struct job *job)
{
    static const int directions[] = { FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };
    static const double BYTES = 196610; /* a third of which is rounded up */
    const int nranks = job->placement.nranks;
    job->model.pull_bytes = BYTES / nranks;
    job->model.crowding = 2;
    job->model.board_bytes = 256 * 1024;
    const size_t usual = ddl_choice_post_bytes(&job->model, DDL_COLLECTIVE_ALLGATHERV, nranks, BYTES);
    for (size_t i = 0; i < sizeof directions / sizeof *directions; i++) {
        assert_int_equal(fesetround(directions[i]), 0);
        const size_t other = ddl_choice_post_bytes(&job->model, DDL_COLLECTIVE_ALLGATHERV, nranks, BYTES);
        assert_int_equal(fesetround(FE_TONEAREST), 0);
        assert_int_equal(other, usual);
    }
}

static void how_a_thread_rounds_changes_no_choice(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= RANKS_MAX; nranks = nranks < 9 ? nranks + 1 : nranks + 11)
        for (int way = 0; way < WAYS; way++)
            for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
                struct job job;
                if (!make_job_in_way(&job, &layouts[i], nranks, way))
                    continue;
                job.model.pull_bytes = way % 2 == 0 ? DDL_NEVER_PULL : 1;
                assert_chosen_alike(&job);
                assert_posted_alike(&job);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_has_a_row_for_any_number_of_ranks),
        cmocka_unit_test(the_least_is_chosen),
        cmocka_unit_test(no_collective_costs_more_than_two_that_do_the_same),
        cmocka_unit_test(even_blocks_cost_no_more_than_blocks_of_any_size),
        cmocka_unit_test(more_bytes_cost_more),
        cmocka_unit_test(where_all_have_a_cpu_and_in_exchanges_what_is_large_goes_by_messages),
        cmocka_unit_test(larger_allreduces_between_two_go_over_the_board_in_two_rounds),
        cmocka_unit_test(calls_of_one_root_go_over_the_board),
        cmocka_unit_test(a_barrier_over_a_board_is_flat_and_else_a_tree),
        cmocka_unit_test(much_goes_directly_in_shared_memory),
        cmocka_unit_test(a_large_broadcast_is_shared_evenly_where_few_ranks_share_cpus),
        cmocka_unit_test(a_part_costs_no_more_where_it_is_uneven),
        cmocka_unit_test(three_ranks_on_two_cpus_need_no_tree),
        cmocka_unit_test(small_alltoalls_have_few_messages_between_hosts),
        cmocka_unit_test(a_rank_more_costs_no_more_than_its_share),
        cmocka_unit_test(constants_travel_as_an_array),
        cmocka_unit_test(constants_that_no_model_has_are_refused),
        cmocka_unit_test(how_a_thread_rounds_changes_no_choice),
        cmocka_unit_test(usual_sizes_have_places_of_their_own),
        cmocka_unit_test(each_constant_has_its_part),
        cmocka_unit_test(in_rooted_collectives_only_the_mean_is_crowded),
        cmocka_unit_test(posts_cost_turns_of_all),
        cmocka_unit_test(several_at_a_time_take_longer),
        cmocka_unit_test(a_scatter_behind_a_reduce_is_not_alone),
        cmocka_unit_test(where_ranks_share_memory_they_are_less_in_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
