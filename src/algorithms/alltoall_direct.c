/*
 * Direct alltoall. All messages are on their way at once; each rank begins with its successor.
 * Rounds: 1, of p-1 messages. Sent per rank: n(p-1)/p. Best for: few ranks, or small blocks.
 * Source: folklore; Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.4.
 */
#include "algorithms/builders.h"

void ddl_alltoall_direct(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_blocks(shape), out = ddl_out_blocks(shape), landings = out;
    if (shape->in_place) /* a block may arrive before the one in its place has left */
        landings = ddl_scratch_landings_like(b, &out);
    for (int i = 1; i < g.nranks; i++) {
        int peer = ddl_group_peer(&g, i);
        ddl_step_recv(b, peer, ddl_block(&landings, peer));
        ddl_step_send(b, peer, ddl_block(&in, peer));
    }
    ddl_step_copy(b, ddl_block(&out, g.rank), ddl_block(&in, g.rank));
    for (int i = 1; shape->in_place && i < g.nranks; i++)
        ddl_step_copy(b, ddl_block(&out, g.rank + i), ddl_block(&landings, g.rank + i));
}
