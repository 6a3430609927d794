/*
 * Binomial broadcast. Ranks are counted from the root; a rank hears from the one that lacks its lowest
 * bit, and passes on to those that add a lower one, the largest subtree first.
 * Rounds: ceil(log2 p). Sent by the root: n ceil(log2 p). Best for: small n.
 * Source: Johnsson and Ho, IEEE Trans. Comput. 38(9), 1989.
 */
#include "algorithms/builders.h"

void ddl_broadcast_binomial_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice data)
{
    ddl_group root = { shape->root, shape->nranks };
    int distance = ddl_group_peer(&(ddl_group){ shape->rank, shape->nranks }, -shape->root);
    int bit = 1;
    while (bit < shape->nranks && (distance & bit) == 0)
        bit *= 2;
    if (distance != 0)
        ddl_step_recv(b, ddl_group_peer(&root, distance - bit), data);
    for (bit /= 2; bit >= 1; bit /= 2)
        if (distance + bit < shape->nranks)
            ddl_step_send(b, ddl_group_peer(&root, distance + bit), data);
}

void ddl_broadcast_binomial(ddl_builder *b, const ddl_shape *shape)
{
    ddl_broadcast_binomial_slice(b, shape, ddl_out_vector(shape));
}
