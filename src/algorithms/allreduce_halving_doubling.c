/*
 * Halving-doubling allreduce (Rabenseifner): a reduce-scatter by recursive halving, then an allgather by
 * recursive doubling, among the largest 2^k ranks; the others give their vector to a neighbour before,
 * and get the result after.
 * Rounds: 2 log2 p (+2 if p is not 2^k). Sent per rank: 2n(p'-1)/p' with p' = 2^k (+n). Reduced:
 * n(p'-1)/p' (+n). Best for: medium and large n, p = 2^k.
 * Source: Rabenseifner, Proc. ICCS 2004, LNCS 3036; Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005.
 */
#include "algorithms/builders.h"

static int rank_of(const void *fold, int virtual_rank)
{
    return ddl_fold_rank(fold, virtual_rank);
}

void ddl_allreduce_halving_doubling(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_fold fold = ddl_fold_of(&g);
    ddl_slice in = ddl_in_vector(shape), out = ddl_out_vector(shape);
    if (fold.virtual_rank < 0) {
        ddl_step_send(b, g.rank + 1, in);
        ddl_step_recv(b, g.rank + 1, out);
        return;
    }
    ddl_blocks work = ddl_out_cut(shape, fold.nactive), own = ddl_in_cut(shape, fold.nactive);
    bool paired = g.rank < fold.npaired;
    if (paired) {
        ddl_step_recv_reduce(b, g.rank - 1, out, in, DDL_INCOMING_FIRST);
        own = work;
    }
    ddl_slice result = ddl_block(&work, fold.virtual_rank);
    ddl_reduce_scatter_halving_blocks(b, fold.virtual_rank, fold.nactive, rank_of, &fold, &own, &work,
                                      result);
    if (shape->average)
        ddl_step_scale(b, result);
    ddl_allgather_doubling_blocks(b, fold.virtual_rank, fold.nactive, rank_of, &fold, result, &work);
    if (paired)
        ddl_step_send(b, g.rank - 1, out);
}
