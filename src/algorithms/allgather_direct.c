/*
 * Direct allgather. Every rank sends its block to all others.
 * Rounds: 1, of p-1 messages. Sent per rank: n(p-1)/p. Best for: few ranks.
 * Source: folklore.
 */
#include "algorithms/builders.h"

void ddl_allgather_direct_blocks(ddl_builder *b, const ddl_group *g, ddl_slice own, const ddl_blocks *all)
{
    for (int i = 1; i < g->nranks; i++) {
        int peer = ddl_group_peer(g, i);
        ddl_step_recv(b, peer, ddl_block(all, peer));
        ddl_step_send(b, peer, own);
    }
}

void ddl_allgather_direct(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks out = ddl_out_blocks(shape);
    ddl_allgather_direct_blocks(b, &g, ddl_in_vector(shape), &out);
    ddl_step_copy(b, ddl_block(&out, g.rank), ddl_in_vector(shape));
}
