/*
 * Circulant allgather: the circulant reduce-scatter backward. Slot i of rank r stands for block r+i. The
 * skips are 1, ..., ceil(p/2), p: for two that follow each other, s < s', slots 0 .. s'-s-1 go to rank r-s,
 * where they are slots s .. s'-1.
 * Rounds: ceil(log2 p). Sent per rank: n(p-1)/p. Best for: any size, any p.
 * Source: Traff, arXiv 2410.14234, 2024, algorithm 2.
 */
#include "algorithms/builders.h"

/* The rounds for skips below `bound`, which is one of them, in rising order. */
static void gather_below(ddl_builder *b, const ddl_group *g, ddl_slice own, const ddl_blocks *all, int full,
                         int bound)
{
    if (bound == 1)
        return;
    int skip = (bound + 1) / 2, from = ddl_group_peer(g, skip), to = ddl_group_peer(g, -skip);
    gather_below(b, g, own, all, full, skip);
    if (g->rank != full)
        ddl_step_recv_range(b, from, ddl_blocks_circular(all, g->rank + skip, bound - skip));
    if (to != full && bound - skip > 1)
        ddl_step_send_range(b, to, ddl_blocks_circular(all, g->rank, bound - skip));
    else if (to != full)
        ddl_step_send(b, to, own);
    if (skip == 1)
        ddl_step_copy(b, ddl_block(all, g->rank), own);
}

void ddl_allgather_circulant_blocks(ddl_builder *b, const ddl_group *g, ddl_slice own, const ddl_blocks *all,
                                    int full)
{
    gather_below(b, g, own, all, full, g->nranks);
}

void ddl_allgather_circulant(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks out = ddl_out_blocks(shape);
    ddl_slice own = ddl_in_vector(shape);
    if (ddl_blocks_packed(&out)) {
        ddl_allgather_circulant_blocks(b, &g, own, &out, -1);
        return;
    }
    /* Blocks travel together, so those with gaps between them are gathered in scratch. */
    ddl_blocks packed = ddl_scratch_like(b, &out);
    ddl_allgather_circulant_blocks(b, &g, own, &packed, -1);
    ddl_step_copy(b, ddl_block(&out, g.rank), own);
    for (int i = 1; i < g.nranks; i++)
        ddl_step_copy(b, ddl_block(&out, g.rank + i), ddl_block(&packed, g.rank + i));
}
