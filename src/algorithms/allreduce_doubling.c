/*
 * Recursive doubling allreduce. In each round pairs exchange what they have summed so far; the operand
 * of the lower ranks comes first on both sides, so both compute the same expression. Ranks beyond the
 * largest 2^k give their vector to a neighbour before, and get the result after.
 * Rounds: log2 p (+2 if p is not 2^k). Sent per rank: n log2 p (+n). Reduced: the same. Best for: small n.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.
 */
#include "algorithms/builders.h"

void ddl_allreduce_doubling(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_fold fold = ddl_fold_of(&g);
    ddl_slice own = ddl_in_vector(shape), out = ddl_out_vector(shape);
    if (fold.virtual_rank < 0) {
        ddl_step_send(b, g.rank + 1, own);
        ddl_step_recv(b, g.rank + 1, out);
        return;
    }
    bool paired = g.rank < fold.npaired;
    if (paired) {
        ddl_step_recv_reduce(b, g.rank - 1, out, own, DDL_INCOMING_FIRST);
        own = out;
    }
    for (int distance = 1; distance < fold.nactive; distance *= 2) {
        int partner = fold.virtual_rank ^ distance, peer = ddl_fold_rank(&fold, partner);
        ddl_step_send(b, peer, own);
        ddl_step_recv_reduce(b, peer, out, own,
                             partner < fold.virtual_rank ? DDL_INCOMING_FIRST : DDL_OWN_FIRST);
        own = out;
    }
    if (shape->average)
        ddl_step_scale(b, out);
    if (paired)
        ddl_step_send(b, g.rank - 1, out);
}
