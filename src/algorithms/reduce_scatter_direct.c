/*
 * Direct reduce-scatter. Every rank sends each block straight to the rank that owns it, which folds the
 * p copies in rank order, all at once.
 * Rounds: 1, of p-1 messages. Sent per rank: n(p-1)/p. Reduced: the same. Best for: few ranks.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.2.
 */
#include "algorithms/builders.h"

void ddl_reduce_scatter_direct_blocks(ddl_builder *b, const ddl_group *g, const ddl_blocks *in,
                                      ddl_slice result)
{
    ddl_slice own = ddl_block(in, g->rank);
    ddl_blocks copies = ddl_scratch_landings(b, g->nranks, own.bytes / in->element_bytes, in->element_bytes);
    /* Peers are taken in turn from the own rank on, so that no rank is everybody's first. */
    for (int i = 1; i < g->nranks; i++) {
        int peer = ddl_group_peer(g, i);
        ddl_step_recv(b, peer, ddl_block(&copies, peer));
        ddl_step_send(b, peer, ddl_block(in, peer));
    }
    ddl_step_reduce_blocks(b, result, &copies, g->rank, own);
}

void ddl_reduce_scatter_direct(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_blocks(shape);
    ddl_slice out = ddl_out_vector(shape);
    ddl_reduce_scatter_direct_blocks(b, &g, &in, out);
    if (shape->average)
        ddl_step_scale(b, out);
}
