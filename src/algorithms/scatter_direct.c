/*
 * Direct scatter. The root sends every rank its block, its successor first.
 * Rounds: 1, of p-1 messages from the root. Sent by the root: n(p-1)/p. Best for: large blocks, few ranks.
 * Source: folklore.
 */
#include "algorithms/builders.h"

void ddl_scatter_direct_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all)
{
    ddl_group g = ddl_shape_group(shape);
    if (g.rank != shape->root)
        ddl_step_recv(b, shape->root, ddl_block(all, g.rank));
    for (int i = 1; g.rank == shape->root && i < g.nranks; i++)
        ddl_step_send(b, ddl_group_peer(&g, i), ddl_block(all, g.rank + i));
}

void ddl_scatter_direct(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    if (g.rank != shape->root) {
        ddl_step_recv(b, shape->root, ddl_out_vector(shape));
        return;
    }
    ddl_blocks in = ddl_in_blocks(shape);
    for (int i = 1; i < g.nranks; i++)
        ddl_step_send(b, ddl_group_peer(&g, i), ddl_block(&in, g.rank + i));
    ddl_step_copy(b, ddl_out_vector(shape), ddl_block(&in, g.rank));
}
