/*
 * Pipelined broadcast on the circulant graph. In every round each rank sends one block and receives one, to
 * and from the ranks at one of the distances of the circulant allgather; pipeline.c says which.
 * Rounds: ceil(log2 p) + B - 1 for B blocks, the least possible. Sent by the root: n + (n/B)(ceil(log2 p) -
 * 1). Best for: large n. Source: Traff, arXiv 2407.18004, 2024.
 */
#include "algorithms/builders.h"

/* The next block is on its way while one is received. */
enum { WINDOW = 2 };

void ddl_broadcast_circulant_slice(ddl_builder *b, const ddl_group *g, int root, ddl_slice data,
                                   size_t element_bytes)
{
    int nblocks = ddl_pipeline_blocks(g->nranks, (double)data.bytes), nrounds;
    ddl_blocks blocks = ddl_slice_cut(data, nblocks, element_bytes);
    const ddl_pipeline_round *rounds = ddl_pipeline_rounds(b, g, root, nblocks, &nrounds);
    for (int i = 0; rounds != NULL && i < nrounds; i++) {
        ddl_builder_round(b, WINDOW);
        if (rounds[i].from >= 0)
            ddl_step_recv(b, rounds[i].from, ddl_block(&blocks, rounds[i].recv_block));
        if (rounds[i].to >= 0)
            ddl_step_send(b, rounds[i].to, ddl_block(&blocks, rounds[i].sent_block));
    }
}

void ddl_broadcast_circulant(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_broadcast_circulant_slice(b, &g, shape->root, ddl_out_vector(shape), shape->element_bytes);
}
