/*
 * Flat barrier. Every rank tells all others that it has come.
 * Rounds: 1, of p-1 messages of one byte. Best for: ranks that share memory; few ranks.
 * Source: folklore; the centralised barriers of Mellor-Crummey and Scott, ACM TOCS 9(1), 1991.
 */
#include "algorithms/builders.h"

void ddl_barrier_flat(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    for (int i = 1; i < g.nranks; i++) {
        ddl_step_recv(b, ddl_group_peer(&g, -i), ddl_scratch(b, 1));
        ddl_step_send(b, ddl_group_peer(&g, i), ddl_scratch(b, 1));
    }
}
