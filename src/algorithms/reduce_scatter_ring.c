/*
 * Ring reduce-scatter. Rank r ends with block r of the reduction.
 * Rounds: p-1. Sent per rank: n(p-1)/p. Reduced: the same. Best for: large data, any p.
 * Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009.
 */
#include "algorithms/builders.h"

void ddl_reduce_scatter_ring_blocks(ddl_builder *b, const ddl_group *g, const ddl_blocks *in,
                                    const ddl_blocks *work, ddl_slice result)
{
    ddl_slice partial = ddl_block(in, g->rank - 1);
    for (int step = 1; step < g->nranks; step++) {
        int block = g->rank - step - 1;
        ddl_step_send(b, ddl_group_next(g), partial);
        partial = step == g->nranks - 1 ? result : ddl_block(work, block);
        ddl_step_recv_reduce(b, ddl_group_prev(g), partial, ddl_block(in, block), DDL_INCOMING_FIRST);
    }
}

void ddl_reduce_scatter_ring(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_blocks(shape);
    ddl_blocks work = ddl_scratch_landings_like(b, &in);
    ddl_slice out = ddl_out_vector(shape);
    ddl_reduce_scatter_ring_blocks(b, &g, &in, &work, out);
    if (shape->average)
        ddl_step_scale(b, out);
}
