/*
 * Bruck's allgather. In round k a rank gives the one 2^k before it the first 2^k of the blocks that it has,
 * its own and those after it around the circle; the last round brings what is still missing.
 * Rounds: ceil(log2 p). Sent per rank: n(p-1)/p. Best for: small blocks, any p. Blocks arrive at their
 * places, as a message may have two parts, so nothing is rotated. Source: Bruck, Ho, Kipnis, Upfal and
 * Weathersby, IEEE Trans. Parallel Distrib. Syst. 8(11), 1997.
 */
#include "algorithms/builders.h"

static void gather(ddl_builder *b, const ddl_group *g, const ddl_blocks *all)
{
    for (int distance = 1; distance < g->nranks; distance *= 2) {
        int n = g->nranks - distance < distance ? g->nranks - distance : distance;
        ddl_step_recv_range(b, ddl_group_peer(g, distance), ddl_blocks_circular(all, g->rank + distance, n));
        ddl_step_send_range(b, ddl_group_peer(g, -distance), ddl_blocks_circular(all, g->rank, n));
    }
}

void ddl_allgather_bruck(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks out = ddl_out_blocks(shape);
    ddl_step_copy(b, ddl_block(&out, g.rank), ddl_in_vector(shape));
    if (ddl_blocks_packed(&out)) {
        gather(b, &g, &out);
        return;
    }
    /* Blocks travel together, so those with gaps between them are gathered in scratch. */
    ddl_blocks packed = ddl_scratch_like(b, &out);
    ddl_step_copy(b, ddl_block(&packed, g.rank), ddl_in_vector(shape));
    gather(b, &g, &packed);
    for (int i = 1; i < g.nranks; i++)
        ddl_step_copy(b, ddl_block(&out, g.rank + i), ddl_block(&packed, g.rank + i));
}
