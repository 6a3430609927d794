/* collective.c - the table of collectives. */
#include "algorithms/collective.h"

const ddl_collective_facts ddl_collectives[DDL_COLLECTIVE_COUNT] = {
    [DDL_COLLECTIVE_ALLREDUCE] = { "allreduce", DDL_VECTOR, DDL_VECTOR, .reduces = true },
    [DDL_COLLECTIVE_REDUCE_SCATTER] = { "reduce_scatter", DDL_ALL_BLOCKS, DDL_OWN_BLOCK, .reduces = true },
    [DDL_COLLECTIVE_ALLGATHER] = { "allgather", DDL_OWN_BLOCK, DDL_ALL_BLOCKS },
    [DDL_COLLECTIVE_BROADCAST] = { "broadcast", DDL_NOTHING, DDL_VECTOR, .is_rooted = true },
    [DDL_COLLECTIVE_REDUCE] = { "reduce", DDL_VECTOR, DDL_VECTOR, .out_at_root = true, .is_rooted = true,
                                .reduces = true },
    [DDL_COLLECTIVE_ALLTOALL] = { "alltoall", DDL_ALL_BLOCKS, DDL_ALL_BLOCKS },
    [DDL_COLLECTIVE_BARRIER] = { "barrier", DDL_NOTHING, DDL_NOTHING },
    [DDL_COLLECTIVE_GATHER] = { "gather", DDL_OWN_BLOCK, DDL_ALL_BLOCKS, .out_at_root = true,
                                .is_rooted = true },
    [DDL_COLLECTIVE_SCATTER] = { "scatter", DDL_ALL_BLOCKS, DDL_OWN_BLOCK, .in_at_root = true,
                                 .is_rooted = true },
    [DDL_COLLECTIVE_REDUCE_SCATTERV] = { "reduce_scatterv", DDL_ALL_BLOCKS, DDL_OWN_BLOCK, .reduces = true,
                                         .is_uneven = true },
    [DDL_COLLECTIVE_ALLGATHERV] = { "allgatherv", DDL_OWN_BLOCK, DDL_ALL_BLOCKS, .is_uneven = true },
    [DDL_COLLECTIVE_GATHERV] = { "gatherv", DDL_OWN_BLOCK, DDL_ALL_BLOCKS, .out_at_root = true,
                                 .is_rooted = true, .is_uneven = true },
    [DDL_COLLECTIVE_SCATTERV] = { "scatterv", DDL_ALL_BLOCKS, DDL_OWN_BLOCK, .in_at_root = true,
                                  .is_rooted = true, .is_uneven = true },
    [DDL_COLLECTIVE_ALLTOALLV] = { "alltoallv", DDL_ALL_BLOCKS, DDL_ALL_BLOCKS, .is_uneven = true },
    [DDL_COLLECTIVE_SEND] = { "send", DDL_VECTOR, DDL_NOTHING, .is_point_to_point = true },
    [DDL_COLLECTIVE_RECV] = { "recv", DDL_NOTHING, DDL_VECTOR, .is_point_to_point = true },
};
