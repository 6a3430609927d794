/*
 * Binomial reduce: the binomial broadcast backward. Ranks are counted from the root; a rank adds what
 * those send it that add a bit below its lowest, nearest first, and passes the sum on.
 * Rounds: ceil(log2 p). Received and reduced by the root: n ceil(log2 p). Best for: small n.
 * Source: Johnsson and Ho, IEEE Trans. Comput. 38(9), 1989.
 */
#include "algorithms/builders.h"

void ddl_reduce_binomial_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice own, ddl_slice sum)
{
    ddl_group root = { shape->root, shape->nranks };
    int distance = ddl_group_peer(&(ddl_group){ shape->rank, shape->nranks }, -shape->root);
    bool is_root = distance == 0;
    int bit = 1;
    for (; bit < shape->nranks && (distance & bit) == 0; bit *= 2) {
        if (distance + bit >= shape->nranks)
            continue;
        if (bit == 1 && !is_root)
            sum = ddl_scratch(b, own.bytes); /* OUT may be missing here, and IN is the caller's */
        ddl_step_recv_reduce(b, ddl_group_peer(&root, distance + bit), sum, own, DDL_OWN_FIRST);
        own = sum;
    }
    if (!is_root)
        ddl_step_send(b, ddl_group_peer(&root, distance - bit), own);
}

void ddl_reduce_binomial(ddl_builder *b, const ddl_shape *shape)
{
    ddl_reduce_binomial_slice(b, shape, ddl_in_vector(shape), ddl_out_vector(shape));
    if (shape->rank == shape->root && shape->average)
        ddl_step_scale(b, ddl_out_vector(shape));
}
