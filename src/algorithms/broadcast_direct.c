/*
 * Direct broadcast: the root sends every other rank its block of the vector, and all send their blocks to all
 * others, the root too, to which nobody sends.
 * Rounds: 2. Sent by the root: 2n(p-1)/p. Best for: large n, few ranks that each have a wire of their
 * own, or that share memory and CPUs.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.3, with its phases in one round each.
 */
#include "algorithms/builders.h"

void ddl_broadcast_direct(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks blocks = ddl_out_cut(shape, g.nranks);
    bool is_root = g.rank == shape->root;
    ddl_slice own = ddl_block(&blocks, g.rank);
    if (!is_root)
        ddl_step_recv(b, shape->root, own);
    for (int i = 1; is_root && i < g.nranks; i++)
        ddl_step_send(b, ddl_group_peer(&g, i), ddl_block(&blocks, g.rank + i));
    for (int i = 1; i < g.nranks; i++) {
        int peer = ddl_group_peer(&g, i);
        if (!is_root)
            ddl_step_recv(b, peer, ddl_block(&blocks, peer));
        if (peer != shape->root)
            ddl_step_send(b, peer, own);
    }
}
