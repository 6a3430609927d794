/*
 * Recursive doubling allgather, for p = 2^k. In each round pairs exchange all that they have.
 * Rounds: log2 p. Sent per rank: n(p-1)/p. Best for: small and medium data, p = 2^k.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.1.
 */
#include "algorithms/builders.h"

void ddl_allgather_doubling_blocks(ddl_builder *b, int member, int nmembers, ddl_peer_of *peer_of,
                                   const void *arg, ddl_slice own, const ddl_blocks *all)
{
    for (int distance = 1; distance < nmembers; distance *= 2) {
        int partner = member ^ distance, peer = peer_of(arg, partner);
        int have = member / distance * distance, get = partner / distance * distance;
        ddl_step_recv(b, peer, ddl_blocks_between(all, get, get + distance));
        ddl_step_send(b, peer, distance == 1 ? own : ddl_blocks_between(all, have, have + distance));
        if (distance == 1)
            ddl_step_copy(b, ddl_block(all, member), own);
    }
}

void ddl_allgather_doubling(ddl_builder *b, const ddl_shape *shape)
{
    ddl_blocks out = ddl_out_blocks(shape);
    ddl_slice own = ddl_in_vector(shape);
    if (ddl_blocks_packed(&out)) {
        ddl_allgather_doubling_blocks(b, shape->rank, shape->nranks, ddl_peer_is_member, NULL, own, &out);
        return;
    }
    /* Blocks travel together, so those with gaps between them are gathered in scratch. */
    ddl_blocks packed = ddl_scratch_packed(b, shape->nranks, shape->count, shape->element_bytes);
    ddl_allgather_doubling_blocks(b, shape->rank, shape->nranks, ddl_peer_is_member, NULL, own, &packed);
    ddl_step_copy(b, ddl_block(&out, shape->rank), own);
    for (int i = 1; i < shape->nranks; i++)
        ddl_step_copy(b, ddl_block(&out, shape->rank + i), ddl_block(&packed, shape->rank + i));
}
