/*
 * Pairwise alltoall. In exchange i every rank sends to the one i after it and receives from the one i
 * before it. Four exchanges are under way at a time: enough to hide latencies, and no rank is sent to by
 * many. Rounds: ceil((p-1)/4). Sent per rank: n(p-1)/p. Best for: large blocks, many ranks. Source: Thakur,
 * Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.4.
 */
#include "algorithms/builders.h"

void ddl_alltoall_pairwise(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_blocks(shape), out = ddl_out_blocks(shape), landings = out;
    if (shape->in_place) /* a block may arrive before the one in its place has left */
        landings = ddl_scratch_landings_like(b, &out);
    for (int i = 1; i < g.nranks; i++) {
        ddl_builder_round(b, DDL_PAIRWISE_WINDOW);
        ddl_step_recv(b, ddl_group_peer(&g, -i), ddl_block(&landings, g.rank - i));
        ddl_step_send(b, ddl_group_peer(&g, i), ddl_block(&in, g.rank + i));
    }
    ddl_step_copy(b, ddl_block(&out, g.rank), ddl_block(&in, g.rank));
    for (int i = 1; shape->in_place && i < g.nranks; i++)
        ddl_step_copy(b, ddl_block(&out, g.rank - i), ddl_block(&landings, g.rank - i));
}
