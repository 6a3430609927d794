/*
 * Pipelined reduce on the circulant graph: the pipelined broadcast backward. What a rank receives there it
 * sends here, after it has added what it sends there.
 * Rounds: ceil(log2 p) + B - 1 for B blocks, the least possible. Received and reduced by the root:
 * n + (n/B)(ceil(log2 p) - 1). Best for: large n. The operator must commute.
 * Source: Traff, arXiv 2407.18004, 2024.
 */
#include "algorithms/builders.h"

enum { WINDOW = 2 };

void ddl_reduce_circulant(ddl_builder *b, const ddl_shape *shape)
{
    ddl_slice out = ddl_out_vector(shape);
    int nblocks = ddl_pipeline_blocks(shape->nranks, (double)out.bytes), nrounds;
    ddl_blocks in = ddl_in_cut(shape, nblocks), sums = ddl_out_cut(shape, nblocks);
    const ddl_pipeline_round *rounds = ddl_pipeline_rounds(b, shape, nblocks, &nrounds);
    bool *is_begun = ddl_builder_alloc(b, (size_t)nblocks, sizeof *is_begun); /* whether sums has a block */
    if (rounds == NULL || is_begun == NULL)
        return;
    if (shape->rank != shape->root) /* OUT may be missing here, and IN is the caller's */
        sums = ddl_blocks_of_vector(DDL_BUFFER_SCRATCH, ddl_scratch(b, out.bytes).offset, nblocks,
                                    shape->count, shape->element_bytes);
    for (int i = nrounds - 1; i >= 0; i--) {
        int sent = rounds[i].recv_block, arriving = rounds[i].sent_block;
        ddl_builder_round(b, WINDOW);
        if (rounds[i].to >= 0) {
            ddl_slice sum = ddl_block(&sums, arriving);
            ddl_step_recv_reduce(b, rounds[i].to, sum, is_begun[arriving] ? sum : ddl_block(&in, arriving),
                                 DDL_OWN_FIRST);
            is_begun[arriving] = true;
        }
        if (rounds[i].from >= 0)
            ddl_step_send(b, rounds[i].from, ddl_block(is_begun[sent] ? &sums : &in, sent));
    }
    if (shape->rank == shape->root && shape->average)
        ddl_step_scale(b, out);
}
