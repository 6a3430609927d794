/*
 * Ring allgather. Every rank passes on what it received last.
 * Rounds: p-1. Sent per rank: n(p-1)/p. Best for: large data, any p.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.1.
 */
#include "algorithms/builders.h"

void ddl_allgather_ring_blocks(ddl_builder *b, const ddl_group *g, ddl_slice own, const ddl_blocks *all)
{
    for (int step = 0; step < g->nranks - 1; step++) {
        ddl_step_recv(b, ddl_group_prev(g), ddl_block(all, g->rank - step - 1));
        ddl_step_send(b, ddl_group_next(g), step == 0 ? own : ddl_block(all, g->rank - step));
    }
    ddl_step_copy(b, ddl_block(all, g->rank), own);
}

void ddl_allgather_ring(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks out = ddl_out_blocks(shape);
    ddl_allgather_ring_blocks(b, &g, ddl_in_vector(shape), &out);
}
