/* work.c - what each algorithm costs a rank, in closed form. */
#include "algorithms/work.h"

#include "algorithms/builders.h"

static double rounds_of(int nranks) /* ceil(log2 p) */
{
    return ddl_log2_ceil(nranks);
}

bool ddl_power_of_two(int nranks)
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
    return ddl_power_of_two(nranks) ? 0 : 1;
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

ddl_work ddl_work_flat(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 1, p - 1, (p - 1) * n, (p - 1) * n, 0, 0, 0 }, 1, to_all_others(where, n));
}

/* Of all ranks that fold, exchange so many times and unfold; 0: all do the same. */
static double mean_folded(int nranks, double exchanges)
{
    double active = (double)(1 << (int)rounds_after_fold(nranks));
    return folds(nranks) > 0 ? (2 * (nranks - active) + active * exchanges) / nranks : 0;
}

ddl_work ddl_work_doubling(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double exchanges = rounds_after_fold(p) + folds(p), far = far_rounds(where);
    double mean = mean_folded(p, rounds_after_fold(p));
    return cost(where,
                (ddl_work){ exchanges + folds(p), exchanges, exchanges * n, exchanges * n, 0, 0, mean }, far,
                far * most_local(where) * n);
}

ddl_work ddl_work_halving_doubling(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double after = rounds_after_fold(p), fold = folds(p), most = most_local(where);
    int active = 1 << (int)after;
    return cost(where,
                (ddl_work){ 2 * after + 2 * fold, 2 * after + fold, 2 * all_but_own(active, n) + fold * n,
                            all_but_own(active, n) + fold * n, 0, 0, mean_folded(p, 2 * after) },
                2 * far_rounds(where),
                2 * n * most * (fold > 0 ? 1.0 * (active - 1) / active : (p - most) / p) + 2 * fold * n);
}

ddl_work ddl_work_allreduce_ring(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double bytes = all_but_own(p, n);
    return cost(where, (ddl_work){ 2 * (p - 1), 2 * (p - 1), 2 * bytes, bytes, 0, 0, 0 },
                2.0 * (p - 1) * hosts(where) / p, 2 * bytes);
}

ddl_work ddl_work_allreduce_direct(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 2, 2 * (p - 1), 2 * all_but_own(p, n), all_but_own(p, n), 0, 0, 0 }, 2,
                2 * to_all_others(where, n / p));
}

ddl_work ddl_work_allreduce_circulant(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double rounds = 2 * rounds_of(p);
    return cost(where, (ddl_work){ rounds, rounds, 2 * all_but_own(p, n), all_but_own(p, n), 0, 0, 0 },
                rounds, 2 * circulant_crossing(where, n));
}

ddl_work ddl_work_move_chain(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ p - 1, p - 1, all_but_own(p, n), 0, 0, 0, 0 },
                1.0 * (p - 1) * hosts(where) / p, all_but_own(p, n));
}

ddl_work ddl_work_move_direct(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 1, p - 1, all_but_own(p, n), 0, 0, 0, 0 }, 1, to_all_others(where, n / p));
}

ddl_work ddl_work_move_log(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ rounds_of(p), rounds_of(p), all_but_own(p, n), 0, 0, 0, 0 }, rounds_of(p),
                circulant_crossing(where, n));
}

ddl_work ddl_work_allgather_bruck(const ddl_placement *where, double n)
{
    int p = where->nranks;
    ddl_work work = ddl_work_move_log(where, n);
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

ddl_work ddl_work_scatter_chain(const ddl_placement *where, double n)
{
    return and_reduced(ddl_work_move_chain(where, n));
}

ddl_work ddl_work_scatter_direct(const ddl_placement *where, double n)
{
    return and_reduced(ddl_work_move_direct(where, n));
}

ddl_work ddl_work_scatter_log(const ddl_placement *where, double n)
{
    return and_reduced(ddl_work_move_log(where, n));
}

ddl_work ddl_work_root_direct(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 1, p - 1, all_but_own(p, n), 0, 0, 0, 0 }, 1, to_root(where, n));
}

ddl_work ddl_work_root_log(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ rounds_of(p), rounds_of(p), all_but_own(p, n), 0, 0, 0, 0 },
                far_rounds(where), to_root(where, n));
}

/* Messages on the mean where every rank but the root has one. */
static double once_each(const ddl_placement *where)
{
    return (double)(where->nranks - 1) / where->nranks;
}

ddl_work ddl_work_broadcast_flat(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 1, p - 1, (p - 1) * n, 0, 0, 0, once_each(where) }, 1,
                to_root(where, p * n));
}

ddl_work ddl_work_reduce_flat(const ddl_placement *where, double n)
{
    return and_reduced(ddl_work_broadcast_flat(where, n));
}

ddl_work ddl_work_broadcast_binomial(const ddl_placement *where, double n)
{
    double rounds = rounds_of(where->nranks), far = far_rounds(where);
    return cost(where, (ddl_work){ rounds, rounds, rounds * n, 0, 0, 0, once_each(where) }, far, far * n);
}

ddl_work ddl_work_reduce_binomial(const ddl_placement *where, double n)
{
    return and_reduced(ddl_work_broadcast_binomial(where, n));
}

ddl_work ddl_work_broadcast_knomial(const ddl_placement *where, double n)
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
    return cost(where, (ddl_work){ depth, children, children * n, 0, 0, 0, once_each(where) }, far_depth,
                far_children * n);
}

double ddl_knomial_queued(int nranks)
{
    double most = 0;
    for (int place = 1; place < nranks; place *= DDL_KNOMIAL_RADIX) { /* the first rank of each height */
        const int size = place < nranks - place ? place : nranks - place;
        double queued = 0;
        for (int below = 1; below < size; below *= DDL_KNOMIAL_RADIX) {
            const int children = (size - 1) / below;
            queued += (children < DDL_KNOMIAL_RADIX ? children : DDL_KNOMIAL_RADIX - 1) - 1;
        }
        most = queued > most ? queued : most;
    }
    return most;
}

ddl_work ddl_work_reduce_knomial(const ddl_placement *where, double n)
{
    return and_reduced(ddl_work_broadcast_knomial(where, n));
}

ddl_work ddl_work_scatter_allgather(const ddl_placement *where, double n)
{
    int p = where->nranks;
    return cost(where, (ddl_work){ 2 * rounds_of(p), 2 * rounds_of(p), 2 * all_but_own(p, n), 0, 0, 0, 0 },
                far_rounds(where) + rounds_of(p), to_root(where, n) + circulant_crossing(where, n));
}

ddl_work ddl_work_scatter_gather(const ddl_placement *where, double n)
{
    ddl_work work = ddl_work_scatter_allgather(where, n);
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

ddl_work ddl_work_broadcast_circulant(const ddl_placement *where, double n)
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

ddl_work ddl_work_reduce_circulant(const ddl_placement *where, double n)
{
    return and_reduced(ddl_work_broadcast_circulant(where, n));
}

ddl_work ddl_work_pairwise(const ddl_placement *where, double n)
{
    int p = where->nranks;
    double rounds = (p - 1 + DDL_PAIRWISE_WINDOW - 1) / DDL_PAIRWISE_WINDOW;
    return cost(where, (ddl_work){ rounds, p - 1, all_but_own(p, n), 0, 0, 0, 0 }, rounds,
                to_all_others(where, n / p));
}

ddl_work ddl_work_alltoall_bruck(const ddl_placement *where, double n)
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

ddl_work ddl_work_barrier(const ddl_placement *where, double n)
{
    (void)n;
    int p = where->nranks;
    double bytes = 0;
    for (int distance = 1; distance < p; distance *= 2)
        bytes += crossing(where, distance);
    return cost(where, (ddl_work){ rounds_of(p), rounds_of(p), rounds_of(p), 0, 0, 0, 0 }, rounds_of(p),
                bytes);
}

ddl_work ddl_work_barrier_flat(const ddl_placement *where, double n)
{
    (void)n;
    int p = where->nranks;
    return cost(where, (ddl_work){ 1, p - 1, p - 1, 0, 0, 0, 0 }, 1, to_all_others(where, 1));
}

ddl_work ddl_work_point_to_point(const ddl_placement *where, double n)
{
    return cost(where, (ddl_work){ 1, 1, n, 0, 0, 0, 0 }, 1, n);
}

/* Those that carry a slice on the fullest host do the most. */

ddl_work ddl_work_allreduce_two_level(const ddl_placement *where, double n)
{
    int h = hosts(where), most = most_local(where), least = least_local(where);
    double between = 2 * rounds_of(h), slice = n / least, kept = all_but_own(h, slice);
    return cost(where,
                (ddl_work){ (most > 1 ? 2 : 0) + between, 2 * (most - 1) + between,
                            (most - 1 + least - 1) * slice + 2 * kept, (most - 1) * slice + kept, 0, 0, 0 },
                between, 2 * all_but_own(h, n));
}

ddl_work ddl_work_allgather_two_level(const ddl_placement *where, double n)
{
    int h = hosts(where), most = most_local(where), least = least_local(where);
    double between = rounds_of(h), slice = n / least, inside = (most > least ? 1 : 0) + (most > 1 ? 1 : 0);
    double elsewhere =
        1.0 * (where->nranks - least) / where->nranks; /* of all blocks, for the smallest host */
    return cost(
        where, (ddl_work){ inside + between, most - 1 + between, (most - 1 + elsewhere) * slice, 0, 0, 0, 0 },
        between, elsewhere * n);
}

ddl_work ddl_work_broadcast_two_level(const ddl_placement *where, double n)
{
    int h = hosts(where), most = most_local(where), least = least_local(where);
    double between = 0, slice = n / least, bytes = h > 1 ? pipelined(h, slice, &between) : 0;
    return cost(where,
                (ddl_work){ (most > 1 ? 2 : 0) + between, most - 1 + least - 1 + between,
                            (most - 1 + least - 1) * slice + bytes, 0, 0, 0, 0 },
                between, least * bytes);
}

ddl_work ddl_work_reduce_two_level(const ddl_placement *where, double n)
{
    ddl_work work = ddl_work_broadcast_two_level(where, n);
    work.reduced_bytes = work.sent_bytes - (least_local(where) - 1) * n / least_local(where);
    return work;
}

ddl_work ddl_work_reduce_scatter_two_level(const ddl_placement *where, double n)
{
    int most = most_local(where), least = least_local(where);
    ddl_work work = and_reduced(ddl_work_allgather_two_level(where, n));
    work.messages += most > least && least > 1 ? 1 : 0; /* a block more to give to its owner */
    return work;
}

ddl_work ddl_work_alltoall_two_level(const ddl_placement *where, double n)
{
    int p = where->nranks, h = hosts(where), most = most_local(where), least = least_local(where);
    int served = (most + least - 1) / least; /* ranks of its host for which one carries */
    double rounds = (h > 1) + (most > 1) + (most > least);
    double inside = n * (most - 1) / least, between = served * (p - most) * n / p;
    return cost(where, (ddl_work){ rounds, most - 1 + h - 1, inside + between, 0, 0, 0, 0 }, 1,
                to_all_others(where, n / p));
}

/* ---- by way of rank 0, or of two others ---- */

ddl_work ddl_work_by_root(const ddl_placement *where, ddl_work to_root, ddl_work from_root)
{
    ddl_work both = to_root;
    both.rounds += from_root.rounds;
    both.messages = from_root.messages > to_root.messages ? from_root.messages : to_root.messages;
    both.sent_bytes = from_root.sent_bytes > to_root.sent_bytes ? from_root.sent_bytes : to_root.sent_bytes;
    both.remote_rounds += from_root.remote_rounds;
    both.remote_bytes += from_root.remote_bytes;
    both.mean_messages = 2 * once_each(where);
    return both;
}

ddl_work ddl_work_barrier_tree(const ddl_placement *where, double n)
{
    (void)n;
    ddl_work down = ddl_work_broadcast_knomial(where, 1);
    return ddl_work_by_root(where, down, down);
}

static ddl_work sum_of(ddl_work a, ddl_work b)
{
    return (ddl_work){ a.rounds + b.rounds,
                       a.messages + b.messages,
                       a.sent_bytes + b.sent_bytes,
                       a.reduced_bytes + b.reduced_bytes,
                       a.remote_rounds + b.remote_rounds,
                       a.remote_bytes + b.remote_bytes,
                       0 };
}

/* Rank 0 has slices to send in the reduction too. */
ddl_work ddl_work_two_level_tree(const ddl_placement *where, double n)
{
    double least = least_local(where);
    ddl_work work = sum_of(ddl_work_reduce_two_level(where, n), ddl_work_broadcast_two_level(where, n));
    double received = (least - 1) * (n / least);
    work.messages -= least - 1;
    work.sent_bytes -= received;
    return work;
}

ddl_work ddl_work_broadcast_direct(const ddl_placement *where, double n)
{
    ddl_work work = sum_of(ddl_work_root_direct(where, n), ddl_work_move_direct(where, n));
    work.mean_messages = where->nranks - 1;
    return work;
}

ddl_work ddl_work_reduce_direct(const ddl_placement *where, double n)
{
    double p = where->nranks;
    ddl_work work = sum_of(ddl_work_scatter_direct(where, n), ddl_work_root_direct(where, n));
    work.mean_messages = (p - 1) * (p + 1) / p;
    return work;
}
