/*
 * Pipelined reduce on the circulant graph: the pipelined broadcast backward. What a rank receives there it
 * sends here, after it has added what it sends there.
 * Rounds: ceil(log2 p) + B - 1 for B blocks, the least possible. Received and reduced by the root:
 * n + (n/B)(ceil(log2 p) - 1). Best for: large n. The operator must commute.
 * Source: Traff, arXiv 2407.18004, 2024.
 */
#include "algorithms/builders.h"

enum { WINDOW = 2 };

void ddl_reduce_circulant_slice(ddl_builder *b, const ddl_group *g, int root, ddl_slice in, ddl_slice sum,
                                size_t element_bytes)
{
    int nblocks = ddl_pipeline_blocks(g->nranks, (double)in.bytes), nrounds;
    ddl_blocks own = ddl_slice_cut(in, nblocks, element_bytes),
               sums = ddl_slice_cut(sum, nblocks, element_bytes);
    const ddl_pipeline_round *rounds = ddl_pipeline_rounds(b, g, root, nblocks, &nrounds);
    bool *is_begun = ddl_builder_alloc(b, (size_t)nblocks, sizeof *is_begun); /* whether sums has a block */
    if (rounds == NULL || is_begun == NULL)
        return;
    for (int i = nrounds - 1; i >= 0; i--) {
        int sent = rounds[i].recv_block, arriving = rounds[i].sent_block;
        ddl_builder_round(b, WINDOW);
        if (rounds[i].to >= 0) {
            ddl_slice target = ddl_block(&sums, arriving);
            ddl_step_recv_reduce(b, rounds[i].to, target,
                                 is_begun[arriving] ? target : ddl_block(&own, arriving), DDL_OWN_FIRST);
            is_begun[arriving] = true;
        }
        if (rounds[i].from >= 0)
            ddl_step_send(b, rounds[i].from, ddl_block(is_begun[sent] ? &sums : &own, sent));
    }
}

void ddl_reduce_circulant(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_slice in = ddl_in_vector(shape), sum = ddl_out_vector(shape);
    if (g.rank != shape->root)
        sum = ddl_scratch(b, in.bytes); /* OUT may be missing here, and IN is the caller's */
    ddl_reduce_circulant_slice(b, &g, shape->root, in, sum, shape->element_bytes);
    if (g.rank == shape->root && shape->average)
        ddl_step_scale(b, sum);
}
