/*
 * K-nomial broadcast, k = 4: as the binomial one, but with ranks counted from the root in digits to the base
 * 4, so that a rank passes on to three at a time. Rounds: ceil(log4 p), of up to 3 messages. Sent by the
 * root: 3n ceil(log4 p) at most. Best for: tiny n. Source: Wilkins et al., Proc. IEEE CLUSTER 2023
 * (generalised radices).
 */
#include "algorithms/builders.h"

void ddl_broadcast_knomial_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice data)
{
    ddl_tree tree = ddl_tree_of(shape, DDL_KNOMIAL_RADIX);
    if (tree.distance > 0)
        ddl_step_recv(b, ddl_tree_parent(&tree), data);
    int child, size;
    for (int place = tree.place / tree.radix; place >= 1; place /= tree.radix)
        for (int digit = 1; digit < tree.radix; digit++)
            if (ddl_tree_child(&tree, place, digit, &child, &size))
                ddl_step_send(b, child, data);
}

void ddl_broadcast_knomial(ddl_builder *b, const ddl_shape *shape)
{
    ddl_broadcast_knomial_slice(b, shape, ddl_out_vector(shape));
}
