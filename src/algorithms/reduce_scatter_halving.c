/*
 * Recursive halving reduce-scatter, for p = 2^k. In each round pairs at half the distance of the round
 * before exchange half of the blocks that they still work on.
 * Rounds: log2 p. Sent per rank: n(p-1)/p. Reduced: the same. Best for: medium data, p = 2^k.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.2.
 */
#include "algorithms/builders.h"

void ddl_reduce_scatter_halving_blocks(ddl_builder *b, int member, int nmembers, ddl_peer_of *peer_of,
                                       const void *arg, const ddl_blocks *in, const ddl_blocks *work,
                                       ddl_slice result)
{
    int first = 0; /* blocks first .. first + 2 * distance - 1 are still worked on */
    for (int distance = nmembers / 2; distance >= 1; distance /= 2) {
        int partner = member ^ distance, peer = peer_of(arg, partner);
        bool lower = member < partner;
        int keep = lower ? first : first + distance, give = lower ? first + distance : first;
        ddl_operand_order order = lower ? DDL_OWN_FIRST : DDL_INCOMING_FIRST;
        ddl_step_send(b, peer, ddl_blocks_together(b, in, give, distance));
        if (distance == 1)
            ddl_step_recv_reduce(b, peer, result, ddl_block(in, member), order);
        else
            ddl_step_recv_reduce(b, peer, ddl_blocks_between(work, keep, keep + distance),
                                 ddl_blocks_together(b, in, keep, distance), order);
        first = keep;
        in = work;
    }
}

void ddl_reduce_scatter_halving(ddl_builder *b, const ddl_shape *shape)
{
    ddl_blocks in = ddl_in_blocks(shape);
    ddl_blocks work = ddl_scratch_packed(b, shape->nranks, shape->count, shape->element_bytes);
    ddl_slice out = ddl_out_vector(shape);
    ddl_reduce_scatter_halving_blocks(b, shape->rank, shape->nranks, ddl_peer_is_member, NULL, &in, &work,
                                      out);
    if (shape->average)
        ddl_step_scale(b, out);
}
