/*
 * Ring allreduce: ring reduce-scatter, then ring allgather.
 * Rounds: 2(p-1). Sent per rank: 2n(p-1)/p. Reduced: n(p-1)/p. Best for: very large n, and links that
 * suffer from many connections at once.
 * Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009.
 */
#include "algorithms/builders.h"

void ddl_allreduce_ring(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_cut(shape, g.nranks), out = ddl_out_cut(shape, g.nranks);
    ddl_slice result = ddl_block(&out, g.rank);
    ddl_reduce_scatter_ring_blocks(b, &g, &in, &out, result);
    if (shape->average)
        ddl_step_scale(b, result);
    ddl_allgather_ring_blocks(b, &g, ddl_block(&out, g.rank), &out);
}
