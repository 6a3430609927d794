/*
 * Flat broadcast. The root sends the vector to every other rank.
 * Rounds: 1, of p-1 messages of the root. Sent by the root: (p-1)n. Best for: tiny n, few ranks, and what is
 * posted where all can read it. Source: folklore; the linear algorithm of Pjesivac-Grbovic et al., Cluster
 * Computing 10(2), 2007.
 */
#include "algorithms/builders.h"

void ddl_broadcast_flat(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    if (g.rank != shape->root)
        ddl_step_recv(b, shape->root, ddl_out_vector(shape));
    for (int i = 1; g.rank == shape->root && i < g.nranks; i++)
        ddl_step_send(b, ddl_group_peer(&g, i), ddl_out_vector(shape));
}
