/*
 * work.h - what each algorithm costs a rank, in closed form: the work of a row of the catalogue.
 *
 * Each takes where the ranks are and the bytes of the whole buffer (see ddl_algorithm.work in catalogue.h).
 */
#ifndef DDL_ALGORITHMS_WORK_H
#define DDL_ALGORITHMS_WORK_H

#include "algorithms/catalogue.h"

bool ddl_power_of_two(int nranks);

typedef ddl_work ddl_work_of(const ddl_placement *placement, double total_bytes);

ddl_work_of ddl_work_flat, ddl_work_doubling, ddl_work_halving_doubling, ddl_work_allreduce_ring,
    ddl_work_allreduce_direct, ddl_work_allreduce_circulant, ddl_work_move_chain, ddl_work_move_direct,
    ddl_work_move_log, ddl_work_allgather_bruck, ddl_work_scatter_chain, ddl_work_scatter_direct,
    ddl_work_scatter_log, ddl_work_root_direct, ddl_work_root_log, ddl_work_broadcast_binomial,
    ddl_work_reduce_binomial, ddl_work_broadcast_knomial, ddl_work_reduce_knomial, ddl_work_scatter_allgather,
    ddl_work_scatter_gather, ddl_work_broadcast_circulant, ddl_work_reduce_circulant, ddl_work_pairwise,
    ddl_work_alltoall_bruck, ddl_work_barrier, ddl_work_barrier_flat, ddl_work_point_to_point,
    ddl_work_allreduce_two_level, ddl_work_allgather_two_level, ddl_work_broadcast_two_level,
    ddl_work_reduce_two_level, ddl_work_reduce_scatter_two_level, ddl_work_alltoall_two_level,
    ddl_work_barrier_tree, ddl_work_two_level_tree, ddl_work_broadcast_direct, ddl_work_reduce_direct,
    ddl_work_broadcast_flat, ddl_work_reduce_flat;

/* In a k-nomial broadcast: messages that the busiest rank between the root and others sends while those
 * before them, to ranks of the same round, are on their way. */
double ddl_knomial_queued(int nranks);

/* Of two that follow each other, of which the first brings everything to a root and the second sends it out.
 */
ddl_work ddl_work_by_root(const ddl_placement *where, ddl_work to_root, ddl_work from_root);

#endif
