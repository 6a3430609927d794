/* catalogue.c - the rows, their costs in closed form, and what all builds have in common. */
#include "algorithms/catalogue.h"

#include "algorithms/builders.h"
#include "base/assert.h"

#include <string.h>

static const char *const collective_names[DDL_COLLECTIVE_COUNT] = {
    [DDL_COLLECTIVE_ALLREDUCE] = "allreduce",
    [DDL_COLLECTIVE_REDUCE_SCATTER] = "reduce_scatter",
    [DDL_COLLECTIVE_ALLGATHER] = "allgather",
    [DDL_COLLECTIVE_BROADCAST] = "broadcast",
    [DDL_COLLECTIVE_REDUCE] = "reduce",
    [DDL_COLLECTIVE_ALLTOALL] = "alltoall",
    [DDL_COLLECTIVE_BARRIER] = "barrier",
    [DDL_COLLECTIVE_SEND] = "send",
    [DDL_COLLECTIVE_RECV] = "recv",
    [DDL_COLLECTIVE_GATHER] = "gather",
    [DDL_COLLECTIVE_SCATTER] = "scatter",
    [DDL_COLLECTIVE_REDUCE_SCATTERV] = "reduce_scatterv",
    [DDL_COLLECTIVE_ALLGATHERV] = "allgatherv",
    [DDL_COLLECTIVE_GATHERV] = "gatherv",
    [DDL_COLLECTIVE_SCATTERV] = "scatterv",
    [DDL_COLLECTIVE_ALLTOALLV] = "alltoallv",
};

const char *ddl_collective_name(ddl_collective collective)
{
    DDL_ASSERT(collective < DDL_COLLECTIVE_COUNT);
    return collective_names[collective];
}

bool ddl_collective_parse(const char *name, ddl_collective *collective)
{
    for (int i = 0; i < DDL_COLLECTIVE_COUNT; i++)
        if (strcmp(name, collective_names[i]) == 0) {
            *collective = (ddl_collective)i;
            return true;
        }
    return false;
}

/* ---- costs ---- */

static double rounds_of(int nranks) /* ceil(log2 p) */
{
    return ddl_log2_ceil(nranks);
}

static bool power_of_two(int nranks)
{
    return (nranks & (nranks - 1)) == 0;
}

/* What each rank gives away of a buffer of which it keeps one block. */
static double all_but_own(int nranks, double total_bytes)
{
    return total_bytes * (nranks - 1) / nranks;
}

/* 1 if the fold before and after is needed. */
static double folds(int nranks)
{
    return power_of_two(nranks) ? 0 : 1;
}

/* ceil(log2) of the ranks that stay after the fold. */
static double rounds_after_fold(int nranks)
{
    return rounds_of(nranks) - folds(nranks);
}

/*
 * What goes between hosts is estimated for ranks that are placed host after host, L being the ranks of the
 * fullest host, and not below what then happens; where no formula says more, every round is taken to cross.
 */

static int hosts(const ddl_placement *where)
{
    return where->node_of == NULL ? 1 : where->nnodes;
}

static int least_local(const ddl_placement *where)
{
    int most;
    return ddl_hosts_least(where, &most);
}

static int most_local(const ddl_placement *where)
{
    int most;
    ddl_hosts_least(where, &most);
    return most;
}

static ddl_work cost(const ddl_placement *where, ddl_work local, double remote_rounds, double remote_bytes)
{
    local.remote_rounds = hosts(where) > 1 ? remote_rounds : 0;
    local.remote_bytes = hosts(where) > 1 ? remote_bytes : 0;
    return local;
}

/* Ranks of one host that send to another host when all send to the rank at this distance. */
static double crossing(const ddl_placement *where, int distance)
{
    int most = most_local(where), back = where->nranks - distance;
    int shorter = distance < back ? distance : back;
    return shorter < most ? shorter : most;
}

/* Rounds of those at distances 1, 2, 4, ... that are at L or more. */
static double far_rounds(const ddl_placement *where)
{
    int below = 0;
    while (2 << below <= most_local(where))
        below++;
    return rounds_of(where->nranks) - below;
}

/* Of a host whose ranks send `bytes` to each rank elsewhere. */
static double to_all_others(const ddl_placement *where, double bytes)
{
    double most = most_local(where);
    return most * (where->nranks - most) * bytes;
}

/* Of a host in one circulant phase over n bytes. */
static double circulant_crossing(const ddl_placement *where, double n)
{
    double blocks = 0;
    for (int bound = where->nranks, skip; bound > 1; bound = skip) {
        skip = (bound + 1) / 2;
        blocks += crossing(where, skip) * (bound - skip);
    }
    return blocks * n / where->nranks;
}

/* Of the root's host when everyone elsewhere has a block for the root, or the other way round. */
static double to_root(const ddl_placement *where, double n)
{
    return n * (where->nranks - least_local(where)) / where->nranks;
}

static ddl_work work_flat(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 1, p - 1, (p - 1) * n, (p - 1) * n, 0, 0, 0 }, 1, to_all_others(where, n));
}

static ddl_work work_doubling(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double exchanges = rounds_after_fold(p) + folds(p), far = far_rounds(where);
    return cost(where, (ddl_work){ exchanges + folds(p), exchanges, exchanges * n, exchanges * n, 0, 0, 0 },
                far, far * most_local(where) * n);
}

static ddl_work work_halving_doubling(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double after = rounds_after_fold(p), fold = folds(p), most = most_local(where);
    int active = 1 << (int)after;
    return cost(where,
                (ddl_work){ 2 * after + 2 * fold, 2 * after + fold, 2 * all_but_own(active, n) + fold * n,
                            all_but_own(active, n) + fold * n, 0, 0, 0 },
                2 * far_rounds(where),
                2 * n * most * (fold > 0 ? 1.0 * (active - 1) / active : (p - most) / p) + 2 * fold * n);
}

static ddl_work work_allreduce_ring(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double bytes = all_but_own(p, n);
    return cost(where, (ddl_work){ 2 * (p - 1), 2 * (p - 1), 2 * bytes, bytes, 0, 0, 0 },
                2.0 * (p - 1) * hosts(where) / p, 2 * bytes);
}

static ddl_work work_allreduce_direct(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 2, 2 * (p - 1), 2 * all_but_own(p, n), all_but_own(p, n), 0, 0, 0 }, 2,
                2 * to_all_others(where, n / p));
}

static ddl_work work_allreduce_circulant(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double rounds = 2 * rounds_of(p);
    return cost(where, (ddl_work){ rounds, rounds, 2 * all_but_own(p, n), all_but_own(p, n), 0, 0, 0 },
                rounds, 2 * circulant_crossing(where, n));
}

static ddl_work work_move_chain(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ p - 1, p - 1, all_but_own(p, n), 0, 0, 0, 0 },
                1.0 * (p - 1) * hosts(where) / p, all_but_own(p, n));
}

static ddl_work work_move_direct(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 1, p - 1, all_but_own(p, n), 0, 0, 0, 0 }, 1, to_all_others(where, n / p));
}

static ddl_work work_move_log(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ rounds_of(p), rounds_of(p), all_but_own(p, n), 0, 0, 0, 0 }, rounds_of(p),
                circulant_crossing(where, n));
}

static ddl_work work_allgather_bruck(const ddl_placement *where, double n)
{
    int p = where->nranks;
    ddl_work work = work_move_log(where, n);
    double blocks = 0;
    for (int distance = 1; distance < p; distance *= 2)
        blocks += crossing(where, distance) * (p - distance < distance ? p - distance : distance);
    return cost(where, work, rounds_of(p), blocks * n / p);
}

/* The same with everything that is received, reduced. */
static ddl_work and_reduced(ddl_work work)
{
    work.reduced_bytes = work.sent_bytes;
    return work;
}

static ddl_work work_scatter_chain(const ddl_placement *where, double n)
{
    return and_reduced(work_move_chain(where, n));
}

static ddl_work work_scatter_direct(const ddl_placement *where, double n)
{
    return and_reduced(work_move_direct(where, n));
}

static ddl_work work_scatter_log(const ddl_placement *where, double n)
{
    return and_reduced(work_move_log(where, n));
}

static ddl_work work_root_direct(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 1, p - 1, all_but_own(p, n), 0, 0, 0, 0 }, 1, to_root(where, n));
}

static ddl_work work_root_log(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ rounds_of(p), rounds_of(p), all_but_own(p, n), 0, 0, 0, 0 },
                far_rounds(where), to_root(where, n));
}

static ddl_work work_broadcast_binomial(const ddl_placement *where, double n)
{
    double rounds = rounds_of(where->nranks), far = far_rounds(where);
    return cost(where, (ddl_work){ rounds, rounds, rounds * n, 0, 0, 0, 0 }, far, far * n);
}

static ddl_work work_reduce_binomial(const ddl_placement *where, double n)
{
    return and_reduced(work_broadcast_binomial(where, n));
}

static ddl_work work_allreduce_tree(const ddl_placement *where, double n)
{
    ddl_work down = work_broadcast_binomial(where, n), up = work_reduce_binomial(where, n);
    up.rounds += down.rounds;
    up.mean_messages = 2.0 * (where->nranks - 1) / where->nranks;
    up.remote_rounds += down.remote_rounds;
    up.remote_bytes = up.remote_bytes > down.remote_bytes ? up.remote_bytes : down.remote_bytes;
    return up;
}

static ddl_work work_broadcast_knomial(const ddl_placement *where, double n)
{
    int p = where->nranks, most = most_local(where);
    double depth = 0, children = 0, far_depth = 0, far_children = 0;
    for (int place = 1; place < p; place *= DDL_KNOMIAL_RADIX) {
        for (int digit = 1; digit < DDL_KNOMIAL_RADIX; digit++) {
            children += digit * place < p;
            far_children += digit * place < p && place * DDL_KNOMIAL_RADIX > most;
        }
        depth += 1;
        far_depth += place * DDL_KNOMIAL_RADIX > most;
    }
    return cost(where, (ddl_work){ depth, children, children * n, 0, 0, 0, 0 }, far_depth, far_children * n);
}

static ddl_work work_reduce_knomial(const ddl_placement *where, double n)
{
    return and_reduced(work_broadcast_knomial(where, n));
}

static ddl_work work_scatter_allgather(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 2 * rounds_of(p), 2 * rounds_of(p), 2 * all_but_own(p, n), 0, 0, 0, 0 },
                far_rounds(where) + rounds_of(p), to_root(where, n) + circulant_crossing(where, n));
}

static ddl_work work_scatter_gather(const ddl_placement *where, double n)
{
    ddl_work work = work_scatter_allgather(where, n);
    work.reduced_bytes = all_but_own(where->nranks, n);
    return work;
}

/* Bytes that the root of a pipeline sends; *rounds as many as there are. */
static double pipelined(int nranks, double n, double *rounds)
{
    int nblocks = ddl_pipeline_blocks(nranks, n);
    *rounds = nblocks - 1 + rounds_of(nranks);
    return n / nblocks * *rounds;
}

static ddl_work work_broadcast_circulant(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double rounds, bytes = pipelined(p, n, &rounds), crossings = 0;
    for (int skip = p; skip > 1;) {
        skip = (skip + 1) / 2;
        crossings += crossing(where, skip);
    }
    return cost(where, (ddl_work){ rounds, rounds, bytes, 0, 0, 0, 0 }, rounds,
                p > 1 ? bytes * crossings / rounds_of(p) : 0);
}

static ddl_work work_reduce_circulant(const ddl_placement *where, double n)
{
    return and_reduced(work_broadcast_circulant(where, n));
}

static ddl_work work_pairwise(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double rounds = (p - 1 + DDL_PAIRWISE_WINDOW - 1) / DDL_PAIRWISE_WINDOW;
    return cost(where, (ddl_work){ rounds, p - 1, all_but_own(p, n), 0, 0, 0, 0 }, rounds,
                to_all_others(where, n / p));
}

static ddl_work work_alltoall_bruck(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double blocks = 0, remote_blocks = 0;
    for (int distance = 1; distance < p; distance *= 2) {
        int rest = p % (2 * distance); /* of the numbers below p, those with this bit */
        int with_bit = p / (2 * distance) * distance + (rest > distance ? rest - distance : 0);
        blocks += with_bit;
        remote_blocks += with_bit * crossing(where, distance);
    }
    return cost(where, (ddl_work){ rounds_of(p), rounds_of(p), blocks * n / p, 0, 0, 0, 0 }, rounds_of(p),
                remote_blocks * n / p);
}

static ddl_work work_barrier(const ddl_placement *where, double n)
{
    (void)n;
    int p = where->nranks;
    double bytes = 0;
    for (int distance = 1; distance < p; distance *= 2)
        bytes += crossing(where, distance);
    return cost(where, (ddl_work){ rounds_of(p), rounds_of(p), rounds_of(p), 0, 0, 0, 0 }, rounds_of(p),
                bytes);
}

static ddl_work work_point_to_point(const ddl_placement *where, double n)
{
    return cost(where, (ddl_work){ 1, 1, n, 0, 0, 0, 0 }, 1, n);
}

/* Those that carry a slice on the fullest host do the most. */

static ddl_work work_allreduce_two_level(const ddl_placement *where, double n)
{
    int h = hosts(where), most = most_local(where), least = least_local(where);
    double between = 2 * rounds_of(h), slice = n / least, kept = all_but_own(h, slice);
    return cost(where,
                (ddl_work){ (most > 1 ? 2 : 0) + between, 2 * (most - 1) + between,
                            (most - 1 + least - 1) * slice + 2 * kept, (most - 1) * slice + kept, 0, 0, 0 },
                between, 2 * all_but_own(h, n));
}

static ddl_work work_allgather_two_level(const ddl_placement *where, double n)
{
    int h = hosts(where), most = most_local(where), least = least_local(where);
    double between = rounds_of(h), slice = n / least, inside = (most > least ? 1 : 0) + (most > 1 ? 1 : 0);
    double elsewhere =
        1.0 * (where->nranks - least) / where->nranks; /* of all blocks, for the smallest host */
    return cost(
        where, (ddl_work){ inside + between, most - 1 + between, (most - 1 + elsewhere) * slice, 0, 0, 0, 0 },
        between, elsewhere * n);
}

static ddl_work work_broadcast_two_level(const ddl_placement *where, double n)
{
    int h = hosts(where), most = most_local(where), least = least_local(where);
    double between = 0, slice = n / least, bytes = h > 1 ? pipelined(h, slice, &between) : 0;
    return cost(where,
                (ddl_work){ (most > 1 ? 2 : 0) + between, most - 1 + least - 1 + between,
                            (most - 1 + least - 1) * slice + bytes, 0, 0, 0, 0 },
                between, least * bytes);
}

static ddl_work work_reduce_two_level(const ddl_placement *where, double n)
{
    ddl_work work = work_broadcast_two_level(where, n);
    work.reduced_bytes = work.sent_bytes - (least_local(where) - 1) * n / least_local(where);
    return work;
}

/* ---- rows ---- */

/*
 * X(COLLECTIVE, collective, name, writer, takes, work, summary, source). The v forms have the writers of the
 * even ones, which see only blocks.
 */
#define ROWS(X)                                                                                            \
    X(ALLREDUCE, allreduce, flat, ddl_allreduce_flat, NULL, work_flat,                                     \
      "1 round, (p-1)n bytes; tiny vectors, few ranks", "folklore; Thakur, Rabenseifner, Gropp 2005")      \
    X(ALLREDUCE, allreduce, doubling, ddl_allreduce_doubling, NULL, work_doubling,                         \
      "log2 p rounds of n bytes; small vectors", "Thakur, Rabenseifner, Gropp 2005")                       \
    X(ALLREDUCE, allreduce, halving_doubling, ddl_allreduce_halving_doubling, NULL, work_halving_doubling, \
      "2 log2 p rounds, 2n(p-1)/p bytes for p = 2^k; medium and large vectors", "Rabenseifner 2004")       \
    X(ALLREDUCE, allreduce, ring, ddl_allreduce_ring, NULL, work_allreduce_ring,                           \
      "2(p-1) rounds, 2n(p-1)/p bytes; very large vectors", "Patarasuk, Yuan 2009")                        \
    X(ALLREDUCE, allreduce, direct, ddl_allreduce_direct, NULL, work_allreduce_direct,                     \
      "2 rounds, 2n(p-1)/p bytes, rank order; few ranks, medium and large vectors",                        \
      "Thakur, Rabenseifner, Gropp 2005")                                                                  \
    X(ALLREDUCE, allreduce, circulant, ddl_allreduce_circulant, NULL, work_allreduce_circulant,            \
      "2 ceil(log2 p) rounds, 2n(p-1)/p bytes; medium and large vectors, any p", "Traff 2024")             \
    X(ALLREDUCE, allreduce, tree, ddl_allreduce_tree, NULL, work_allreduce_tree,                           \
      "2 ceil(log2 p) rounds of n bytes, 2(p-1) messages in all; small vectors, ranks that share CPUs",    \
      "Thakur, Rabenseifner, Gropp 2005")                                                                  \
    X(ALLREDUCE, allreduce, two_level, ddl_allreduce_two_level, NULL, work_allreduce_two_level,            \
      "direct inside hosts, circulant between them: 2n(h-1)/h bytes per host; several ranks per host",     \
      "Jain et al. 2018; Traff 2024")                                                                      \
    X(REDUCE_SCATTER, reduce_scatter, ring, ddl_reduce_scatter_ring, NULL, work_scatter_chain,             \
      "p-1 rounds, n(p-1)/p bytes; large", "Patarasuk, Yuan 2009")                                         \
    X(REDUCE_SCATTER, reduce_scatter, direct, ddl_reduce_scatter_direct, NULL, work_scatter_direct,        \
      "1 round, n(p-1)/p bytes, rank order; few ranks", "Thakur, Rabenseifner, Gropp 2005")                \
    X(REDUCE_SCATTER, reduce_scatter, circulant, ddl_reduce_scatter_circulant, NULL, work_scatter_log,     \
      "ceil(log2 p) rounds, n(p-1)/p bytes; any p", "Traff 2024")                                          \
    X(REDUCE_SCATTER, reduce_scatter, halving, ddl_reduce_scatter_halving, power_of_two, work_scatter_log, \
      "log2 p rounds, n(p-1)/p bytes; p = 2^k", "Thakur, Rabenseifner, Gropp 2005")                        \
    X(ALLGATHER, allgather, ring, ddl_allgather_ring, NULL, work_move_chain,                               \
      "p-1 rounds, n(p-1)/p bytes; large", "Thakur, Rabenseifner, Gropp 2005")                             \
    X(ALLGATHER, allgather, direct, ddl_allgather_direct, NULL, work_move_direct,                          \
      "1 round, n(p-1)/p bytes; few ranks", "folklore")                                                    \
    X(ALLGATHER, allgather, circulant, ddl_allgather_circulant, NULL, work_move_log,                       \
      "ceil(log2 p) rounds, n(p-1)/p bytes; any p", "Traff 2024")                                          \
    X(ALLGATHER, allgather, doubling, ddl_allgather_doubling, power_of_two, work_move_log,                 \
      "log2 p rounds, n(p-1)/p bytes; p = 2^k", "Thakur, Rabenseifner, Gropp 2005")                        \
    X(ALLGATHER, allgather, bruck, ddl_allgather_bruck, NULL, work_allgather_bruck,                        \
      "ceil(log2 p) rounds, n(p-1)/p bytes; small blocks, any p", "Bruck et al. 1997")                     \
    X(ALLGATHER, allgather, two_level, ddl_allgather_two_level, NULL, work_allgather_two_level,            \
      "direct inside hosts, circulant between them: n(h-1)/h bytes per host; several ranks per host",      \
      "Jain et al. 2018; Traff 2024")                                                                      \
    X(BROADCAST, broadcast, binomial, ddl_broadcast_binomial, NULL, work_broadcast_binomial,               \
      "ceil(log2 p) rounds of n bytes; small vectors", "Johnsson, Ho 1989")                                \
    X(BROADCAST, broadcast, knomial, ddl_broadcast_knomial, NULL, work_broadcast_knomial,                  \
      "ceil(log4 p) rounds of up to 3 messages of n bytes; tiny vectors", "Wilkins et al. 2023")           \
    X(BROADCAST, broadcast, scatter_allgather, ddl_broadcast_scatter_allgather, NULL,                      \
      work_scatter_allgather, "2 ceil(log2 p) rounds, 2n(p-1)/p bytes; medium vectors",                    \
      "Thakur, Rabenseifner, Gropp 2005")                                                                  \
    X(BROADCAST, broadcast, circulant, ddl_broadcast_circulant, NULL, work_broadcast_circulant,            \
      "ceil(log2 p)-1 rounds more than blocks, about n bytes; large vectors", "Traff 2024")                \
    X(BROADCAST, broadcast, two_level, ddl_broadcast_two_level, NULL, work_broadcast_two_level,            \
      "direct inside hosts, pipelined between them: about n bytes per host; several ranks per host",       \
      "Jain et al. 2018; Traff 2024")                                                                      \
    X(REDUCE, reduce, binomial, ddl_reduce_binomial, NULL, work_reduce_binomial,                           \
      "ceil(log2 p) rounds of n bytes; small vectors", "Johnsson, Ho 1989")                                \
    X(REDUCE, reduce, knomial, ddl_reduce_knomial, NULL, work_reduce_knomial,                              \
      "ceil(log4 p) rounds of up to 3 messages of n bytes; tiny vectors", "Wilkins et al. 2023")           \
    X(REDUCE, reduce, scatter_gather, ddl_reduce_scatter_gather, NULL, work_scatter_gather,                \
      "2 ceil(log2 p) rounds, 2n(p-1)/p bytes; medium vectors", "Rabenseifner 2004")                       \
    X(REDUCE, reduce, circulant, ddl_reduce_circulant, NULL, work_reduce_circulant,                        \
      "ceil(log2 p)-1 rounds more than blocks, about n bytes; large vectors", "Traff 2024")                \
    X(REDUCE, reduce, two_level, ddl_reduce_two_level, NULL, work_reduce_two_level,                        \
      "direct inside hosts, pipelined between them: about n bytes per host; several ranks per host",       \
      "Jain et al. 2018; Traff 2024")                                                                      \
    X(ALLTOALL, alltoall, direct, ddl_alltoall_direct, NULL, work_move_direct,                             \
      "1 round, n(p-1)/p bytes; few ranks, small blocks", "Thakur, Rabenseifner, Gropp 2005")              \
    X(ALLTOALL, alltoall, pairwise, ddl_alltoall_pairwise, NULL, work_pairwise,                            \
      "ceil((p-1)/4) rounds of 4, n(p-1)/p bytes; many ranks, large blocks",                               \
      "Thakur, Rabenseifner, Gropp 2005")                                                                  \
    X(ALLTOALL, alltoall, bruck, ddl_alltoall_bruck, NULL, work_alltoall_bruck,                            \
      "ceil(log2 p) rounds of about n/2 bytes; tiny blocks, many ranks", "Bruck et al. 1997")              \
    X(BARRIER, barrier, dissemination, ddl_barrier_dissemination, NULL, work_barrier,                      \
      "ceil(log2 p) rounds of one byte", "Hensgen, Finkel, Manber 1988")                                   \
    X(GATHER, gather, direct, ddl_gather_direct, NULL, work_root_direct,                                   \
      "1 round, n(p-1)/p bytes to the root; large blocks, few ranks", "folklore")                          \
    X(GATHER, gather, binomial, ddl_gather_binomial, NULL, work_root_log,                                  \
      "ceil(log2 p) rounds, n(p-1)/p bytes to the root; small blocks, many ranks",                         \
      "Thakur, Rabenseifner, Gropp 2005")                                                                  \
    X(SCATTER, scatter, direct, ddl_scatter_direct, NULL, work_root_direct,                                \
      "1 round, n(p-1)/p bytes from the root; large blocks, few ranks", "folklore")                        \
    X(SCATTER, scatter, binomial, ddl_scatter_binomial, NULL, work_root_log,                               \
      "ceil(log2 p) rounds, n(p-1)/p bytes from the root; small blocks, many ranks",                       \
      "Thakur, Rabenseifner, Gropp 2005")                                                                  \
    X(REDUCE_SCATTERV, reduce_scatterv, ring, ddl_reduce_scatter_ring, NULL, work_scatter_chain,           \
      "p-1 rounds, n(p-1)/p bytes; large", "Patarasuk, Yuan 2009")                                         \
    X(REDUCE_SCATTERV, reduce_scatterv, direct, ddl_reduce_scatter_direct, NULL, work_scatter_direct,      \
      "1 round, n(p-1)/p bytes, rank order; few ranks", "Thakur, Rabenseifner, Gropp 2005")                \
    X(REDUCE_SCATTERV, reduce_scatterv, circulant, ddl_reduce_scatter_circulant, NULL, work_scatter_log,   \
      "ceil(log2 p) rounds, n(p-1)/p bytes; any p", "Traff 2024")                                          \
    X(ALLGATHERV, allgatherv, ring, ddl_allgather_ring, NULL, work_move_chain,                             \
      "p-1 rounds, n(p-1)/p bytes; large, even", "Thakur, Rabenseifner, Gropp 2005")                       \
    X(ALLGATHERV, allgatherv, direct, ddl_allgather_direct, NULL, work_move_direct,                        \
      "1 round, n(p-1)/p bytes; few ranks", "folklore")                                                    \
    X(ALLGATHERV, allgatherv, circulant, ddl_allgather_circulant, NULL, work_move_log,                     \
      "ceil(log2 p) rounds, n(p-1)/p bytes; any p", "Traff 2024")                                          \
    X(GATHERV, gatherv, direct, ddl_gather_direct, NULL, work_root_direct,                                 \
      "1 round, n(p-1)/p bytes to the root; large blocks, few ranks", "folklore")                          \
    X(GATHERV, gatherv, binomial, ddl_gather_binomial, NULL, work_root_log,                                \
      "ceil(log2 p) rounds, n(p-1)/p bytes to the root; small blocks, many ranks",                         \
      "Thakur, Rabenseifner, Gropp 2005")                                                                  \
    X(SCATTERV, scatterv, direct, ddl_scatter_direct, NULL, work_root_direct,                              \
      "1 round, n(p-1)/p bytes from the root; large blocks, few ranks", "folklore")                        \
    X(SCATTERV, scatterv, binomial, ddl_scatter_binomial, NULL, work_root_log,                             \
      "ceil(log2 p) rounds, n(p-1)/p bytes from the root; small blocks, many ranks",                       \
      "Thakur, Rabenseifner, Gropp 2005")                                                                  \
    X(ALLTOALLV, alltoallv, direct, ddl_alltoall_direct, NULL, work_move_direct,                           \
      "1 round, n(p-1)/p bytes; few ranks, small blocks", "Thakur, Rabenseifner, Gropp 2005")              \
    X(ALLTOALLV, alltoallv, pairwise, ddl_alltoall_pairwise, NULL, work_pairwise,                          \
      "p-1 rounds, n(p-1)/p bytes; many ranks, large blocks", "Thakur, Rabenseifner, Gropp 2005")          \
    X(SEND, send, direct, ddl_send_direct, NULL, work_point_to_point, "1 message", "folklore")             \
    X(RECV, recv, direct, ddl_recv_direct, NULL, work_point_to_point, "1 message", "folklore")

/* ---- building ---- */

/* Tell the builder how IN and OUT lie in one memory. */
static void alias_buffers(ddl_builder *b, ddl_collective collective, const ddl_shape *shape)
{
    size_t own_start = shape->blocks.counts != NULL ? shape->blocks.starts[shape->rank]
                                                    : (size_t)shape->rank * shape->stride;
    size_t own_block = own_start * shape->element_bytes;
    switch (collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
    case DDL_COLLECTIVE_REDUCE:
    case DDL_COLLECTIVE_ALLTOALL:
    case DDL_COLLECTIVE_ALLTOALLV:
        ddl_builder_alias(b, 0, 0);
        break;
    case DDL_COLLECTIVE_REDUCE_SCATTER:
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
    case DDL_COLLECTIVE_SCATTER:
    case DDL_COLLECTIVE_SCATTERV:
        ddl_builder_alias(b, 0, own_block);
        break;
    case DDL_COLLECTIVE_ALLGATHER:
    case DDL_COLLECTIVE_ALLGATHERV:
    case DDL_COLLECTIVE_GATHER:
    case DDL_COLLECTIVE_GATHERV:
        ddl_builder_alias(b, own_block, 0);
        break;
    case DDL_COLLECTIVE_BROADCAST:
    case DDL_COLLECTIVE_BARRIER:
    case DDL_COLLECTIVE_SEND:
    case DDL_COLLECTIVE_RECV:
    case DDL_COLLECTIVE_COUNT:
        break;
    }
}

/* All collectives on one rank: the result is the input. */
static void build_alone(ddl_builder *b, ddl_collective collective, const ddl_shape *shape)
{
    if (collective != DDL_COLLECTIVE_BROADCAST && collective != DDL_COLLECTIVE_BARRIER)
        ddl_step_copy(b, ddl_out_vector(shape), ddl_in_vector(shape));
}

/* The v forms. */
static bool has_counts(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_REDUCE_SCATTERV || collective == DDL_COLLECTIVE_ALLGATHERV ||
           collective == DDL_COLLECTIVE_GATHERV || collective == DDL_COLLECTIVE_SCATTERV ||
           collective == DDL_COLLECTIVE_ALLTOALLV;
}

static ddl_status build(ddl_collective collective, const char *name, bool (*takes)(int),
                        void (*write)(ddl_builder *, const ddl_shape *), const ddl_shape *shape,
                        ddl_schedule **schedule, ddl_error *err)
{
    bool point_to_point = collective == DDL_COLLECTIVE_SEND || collective == DDL_COLLECTIVE_RECV;
    DDL_ASSERT(shape->nranks > 0);
    DDL_ASSERT(!point_to_point || shape->root != shape->rank);
    DDL_ASSERT(!has_counts(collective) || shape->blocks.counts != NULL);
    DDL_ASSERT(collective != DDL_COLLECTIVE_ALLTOALLV || shape->out_blocks.counts != NULL);
    if (takes != NULL && !takes(shape->nranks))
        return DDL_FAIL(err, DDL_EUNSUPPORTED, "%s/%s does not work for %d ranks",
                        ddl_collective_name(collective), name, shape->nranks);
    ddl_builder *b;
    DDL_TRY(ddl_builder_create(&(ddl_group){ shape->rank, shape->nranks }, shape->element_bytes, &b, err));
    if (shape->in_place)
        alias_buffers(b, collective, shape);
    if (shape->nranks == 1)
        build_alone(b, collective, shape);
    else
        write(b, shape);
    return ddl_builder_finish(b, schedule, err);
}

#define BUILD(COLLECTIVE, collective, name, writer, takes, work, summary, source)                  \
    static ddl_status build_##collective##_##name(const ddl_shape *shape, ddl_schedule **schedule, \
                                                  ddl_error *err)                                  \
    {                                                                                              \
        return build(DDL_COLLECTIVE_##COLLECTIVE, #name, takes, writer, shape, schedule, err);     \
    }
ROWS(BUILD)

#define ROW(COLLECTIVE, collective, name, writer, takes, work, summary, source) \
    { #name, DDL_COLLECTIVE_##COLLECTIVE, summary, source, takes, work, build_##collective##_##name },
static const ddl_algorithm rows[] = { ROWS(ROW) };

const ddl_algorithm *ddl_catalogue(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}

const ddl_algorithm *ddl_catalogue_find(ddl_collective collective, const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].collective == collective && strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

int ddl_catalogue_index(const ddl_algorithm *algorithm)
{
    DDL_ASSERT(rows <= algorithm);
    DDL_ASSERT(algorithm < rows + sizeof rows / sizeof rows[0]);
    return (int)(algorithm - rows);
}

bool ddl_algorithm_takes(const ddl_algorithm *algorithm, int nranks)
{
    return algorithm->takes == NULL || algorithm->takes(nranks);
}
