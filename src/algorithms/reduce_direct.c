/*
 * Direct reduce: a direct reduce-scatter, in which every block is folded in rank order at once, then everyone
 * sends its block of the result to the root.
 * Rounds: 2. Received by the root: 2n(p-1)/p. Reduced: n(p-1)/p. Best for: large n, few ranks that each have
 * a wire of their own. Source: Rabenseifner, Proc. ICCS 2004, LNCS 3036, with its phases in one round each.
 */
#include "algorithms/builders.h"

void ddl_reduce_direct(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    bool is_root = g.rank == shape->root;
    ddl_blocks in = ddl_in_cut(shape, g.nranks), out = ddl_out_cut(shape, g.nranks);
    ddl_slice own = ddl_block(&in, g.rank);
    /* OUT may be missing but at the root */
    ddl_slice result = is_root ? ddl_block(&out, g.rank) : ddl_scratch(b, own.bytes);
    ddl_reduce_scatter_direct_blocks(b, &g, &in, result);
    if (shape->average)
        ddl_step_scale(b, result);
    if (!is_root)
        ddl_step_send(b, shape->root, result);
    for (int i = 1; is_root && i < g.nranks; i++)
        ddl_step_recv(b, ddl_group_peer(&g, i), ddl_block(&out, g.rank + i));
}
