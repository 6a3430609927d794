/*
 * Flat reduce. Every rank sends its vector to the root, which folds all in rank order at once, so that 16-bit
 * floats are rounded once.
 * Rounds: 1, of p-1 messages to the root. Received by the root: (p-1)n. Reduced: (p-1)n. Best for: tiny n,
 * few ranks, and what is posted where the root can read it. Source: folklore; the linear algorithm of
 * Pjesivac-Grbovic et al., Cluster Computing 10(2), 2007.
 */
#include "algorithms/builders.h"

void ddl_reduce_flat(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_slice in = ddl_in_vector(shape), out = ddl_out_vector(shape);
    if (g.rank != shape->root) {
        ddl_step_send(b, shape->root, in);
        return;
    }
    ddl_blocks all = ddl_scratch_landings(b, g.nranks, shape->count, shape->element_bytes);
    for (int i = 1; i < g.nranks; i++)
        ddl_step_recv(b, ddl_group_peer(&g, i), ddl_block(&all, g.rank + i));
    ddl_step_reduce_blocks(b, out, &all, g.rank, in);
    if (shape->average)
        ddl_step_scale(b, out);
}
