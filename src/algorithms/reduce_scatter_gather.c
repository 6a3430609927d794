/*
 * Reduce by reduce-scatter (circulant), then gather (binomial) of the blocks, each in its place.
 * Rounds: 2 ceil(log2 p). Received by the root: 2n(p-1)/p. Reduced: n(p-1)/p. Best for: medium n.
 * Source: Rabenseifner, Proc. ICCS 2004, LNCS 3036; Traff, arXiv 2410.14234, 2024.
 */
#include "algorithms/builders.h"

void ddl_reduce_scatter_gather(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_cut(shape, g.nranks), work = ddl_out_cut(shape, g.nranks);
    if (g.rank != shape->root) { /* OUT may be missing here */
        ddl_slice scratch = ddl_scratch(b, ddl_in_vector(shape).bytes);
        work = ddl_blocks_of_vector(DDL_BUFFER_SCRATCH, scratch.offset, g.nranks, shape->count,
                                    shape->element_bytes);
    }
    ddl_slice result = ddl_block(&work, g.rank);
    ddl_reduce_scatter_circulant_blocks(b, &g, &in, &work, result);
    if (shape->average)
        ddl_step_scale(b, result);
    ddl_gather_binomial_blocks(b, shape, &work);
}
