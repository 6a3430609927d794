/*
 * Bruck's alltoall. The block for the rank i after this one is to travel i steps around the circle: in round
 * k, by 2^k, if i has that bit. Blocks that travel together are packed; a block comes to rest in its round
 * for the highest bit of i.
 * Rounds: ceil(log2 p). Sent per rank: about n/2 in each. Best for: tiny blocks, many ranks.
 * Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE Trans. Parallel Distrib. Syst. 8(11), 1997.
 */
#include "algorithms/builders.h"

void ddl_alltoall_bruck(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_blocks(shape), out = ddl_out_blocks(shape);
    ddl_slice *at = ddl_builder_alloc(b, (size_t)g.nranks, sizeof *at); /* where block i is now */
    if (at == NULL)
        return;
    for (int i = 0; i < g.nranks; i++)
        at[i] = ddl_block(&in, g.rank + i);
    for (int distance = 1; distance < g.nranks; distance *= 2) {
        int n = 0;
        for (int i = distance; i < g.nranks; i++)
            n += (i & distance) != 0;
        ddl_blocks sent = ddl_scratch_packed(b, n, shape->count, shape->element_bytes);
        ddl_blocks arriving = ddl_scratch_packed(b, n, shape->count, shape->element_bytes);
        int next = 0;
        for (int i = distance; i < g.nranks; i++)
            if ((i & distance) != 0) {
                ddl_step_copy(b, ddl_block(&sent, next), at[i]);
                at[i] = ddl_block(&arriving, next++);
            }
        ddl_step_recv(b, ddl_group_peer(&g, -distance), ddl_blocks_between(&arriving, 0, n));
        ddl_step_send(b, ddl_group_peer(&g, distance), ddl_blocks_between(&sent, 0, n));
    }
    for (int i = 0; i < g.nranks; i++)
        ddl_step_copy(b, ddl_block(&out, g.rank - i), at[i]);
}
