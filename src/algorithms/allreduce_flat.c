/*
 * Flat allreduce. Every rank sends its vector to all others and folds all vectors in rank order.
 * Rounds: 1, of p-1 messages. Sent per rank: (p-1)n. Reduced: (p-1)n. Best for: tiny n, few ranks.
 * Source: folklore; the baseline of Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005.
 */
#include "algorithms/builders.h"

void ddl_allreduce_flat(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_slice in = ddl_in_vector(shape), out = ddl_out_vector(shape);
    ddl_blocks all = ddl_scratch_landings(b, g.nranks, shape->count, shape->element_bytes);
    for (int i = 1; i < g.nranks; i++) {
        int peer = ddl_group_peer(&g, i);
        ddl_step_recv(b, peer, ddl_block(&all, peer));
        ddl_step_send(b, peer, in);
    }
    ddl_step_reduce_blocks(b, out, &all, g.rank, in);
    if (shape->average)
        ddl_step_scale(b, out);
}
