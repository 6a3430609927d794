/*
 * Circulant allreduce: circulant reduce-scatter, then circulant allgather.
 * Rounds: 2 ceil(log2 p). Sent per rank: 2n(p-1)/p. Reduced: n(p-1)/p. Best for: medium and large n, any p.
 * Source: Traff, arXiv 2410.14234, 2024, algorithm 2.
 */
#include "algorithms/builders.h"

void ddl_allreduce_circulant(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_cut(shape, g.nranks), out = ddl_out_cut(shape, g.nranks);
    ddl_slice result = ddl_block(&out, g.rank);
    ddl_reduce_scatter_circulant_blocks(b, &g, &in, &out, result);
    if (shape->average)
        ddl_step_scale(b, result);
    ddl_allgather_circulant_blocks(b, &g, ddl_block(&out, g.rank), &out, -1);
}
