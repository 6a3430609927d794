/*
 * K-nomial reduce, k = 4: the k-nomial broadcast backward. A rank folds its own vector with those of up to
 * three children at once, so that 16-bit floats are rounded less often than in a binomial tree.
 * Rounds: ceil(log4 p), of up to 3 messages. Received by the root: 3n ceil(log4 p) at most. Best for: tiny n.
 * Source: Wilkins et al., Proc. IEEE CLUSTER 2023 (generalised radices).
 */
#include "algorithms/builders.h"

void ddl_reduce_knomial_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice own, ddl_slice sum)
{
    ddl_tree tree = ddl_tree_of(shape, DDL_KNOMIAL_RADIX);
    if (tree.distance > 0 && tree.place > 1)
        sum = ddl_scratch(b, own.bytes); /* OUT may be missing here, and IN is the caller's */
    int child, size;
    for (int place = 1; place < tree.place; place *= tree.radix) {
        ddl_slice operands[DDL_KNOMIAL_RADIX] = { own };
        int noperands = 1;
        for (int digit = 1; digit < tree.radix; digit++)
            if (ddl_tree_child(&tree, place, digit, &child, &size)) {
                operands[noperands] = ddl_scratch(b, own.bytes);
                ddl_step_recv(b, child, operands[noperands++]);
            }
        if (noperands == 1)
            break;
        ddl_step_reduce(b, sum, operands, noperands);
        own = sum;
    }
    if (tree.distance > 0)
        ddl_step_send(b, ddl_tree_parent(&tree), own);
}

void ddl_reduce_knomial(ddl_builder *b, const ddl_shape *shape)
{
    ddl_reduce_knomial_slice(b, shape, ddl_in_vector(shape), ddl_out_vector(shape));
    if (shape->rank == shape->root && shape->average)
        ddl_step_scale(b, ddl_out_vector(shape));
}
