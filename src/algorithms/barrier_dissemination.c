/*
 * Dissemination barrier. In round k a rank tells the one 2^k after it that it has come, and with it all
 * that it has heard of; a round's message waits for the rounds before.
 * Rounds: ceil(log2 p), of one byte. Best for: any p.
 * Source: Hensgen, Finkel and Manber, Int. J. Parallel Program. 17(1), 1988.
 */
#include "algorithms/builders.h"

void ddl_barrier_dissemination(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    for (int distance = 1; distance < g.nranks; distance *= 2) {
        ddl_builder_fence(b);
        ddl_step_recv(b, ddl_group_peer(&g, -distance), ddl_scratch(b, 1));
        ddl_step_send(b, ddl_group_peer(&g, distance), ddl_scratch(b, 1));
    }
}
