/*
 * Circulant reduce-scatter. Slot i of rank r stands for block r+i. The skips are p, ceil(p/2), ... , 1:
 * for two that follow each other, s' > s, slots s .. s'-1 go to rank r+s, which adds them to its slots
 * 0 .. s'-s-1. After the last skip slot 0 is done.
 * Rounds: ceil(log2 p). Sent per rank: n(p-1)/p. Reduced: the same. Best for: medium and large data, any p.
 * The operator must commute.
 * Source: Traff, arXiv 2410.14234, 2024, algorithm 1.
 */
#include "algorithms/builders.h"

/* Send n slots from `first` on; in one message, so blocks with gaps between them are packed first. */
static void send_slots(ddl_builder *b, const ddl_group *g, int peer, const ddl_blocks *blocks, int first,
                       int n)
{
    if (ddl_blocks_packed(blocks)) {
        ddl_step_send_range(b, peer, ddl_blocks_circular(blocks, g->rank + first, n));
        return;
    }
    ddl_step_send(b, peer, ddl_blocks_together(b, blocks, g->rank + first, n));
}

/* Receive n slots and combine them with the own slots 0 .. n-1 of `in` into those of `work`. */
static void recv_reduce_slots(ddl_builder *b, const ddl_group *g, int peer, const ddl_blocks *in,
                              const ddl_blocks *work, int n)
{
    if (ddl_blocks_packed(in)) {
        ddl_step_recv_reduce_range(b, peer, ddl_blocks_circular(work, g->rank, n),
                                   ddl_blocks_circular(in, g->rank, n), DDL_INCOMING_FIRST);
        return;
    }
    ddl_step_recv_range(b, peer, ddl_blocks_circular(work, g->rank, n));
    for (int i = 0; i < n; i++) {
        ddl_slice slot = ddl_block(work, g->rank + i);
        ddl_step_reduce(b, slot, (ddl_slice[2]){ slot, ddl_block(in, g->rank + i) }, 2);
    }
}

void ddl_reduce_scatter_circulant_blocks(ddl_builder *b, const ddl_group *g, const ddl_blocks *in,
                                         const ddl_blocks *work, ddl_slice result)
{
    int skip = (g->nranks + 1) / 2, nslots = g->nranks - skip;
    ddl_slice own = ddl_block(in, g->rank);
    if (skip > 1) {
        send_slots(b, g, ddl_group_peer(g, skip), in, skip, nslots);
        recv_reduce_slots(b, g, ddl_group_peer(g, -skip), in, work, nslots);
        if (nslots < skip) /* nothing was added to this slot, so it is not in work yet */
            ddl_step_copy(b, ddl_block(work, g->rank + nslots), ddl_block(in, g->rank + nslots));
        own = ddl_block(work, g->rank);
        in = work;
    }
    for (int last = skip; last > 2; last = skip) {
        skip = (last + 1) / 2;
        nslots = last - skip;
        send_slots(b, g, ddl_group_peer(g, skip), work, skip, nslots);
        recv_reduce_slots(b, g, ddl_group_peer(g, -skip), work, work, nslots);
    }
    ddl_step_send(b, ddl_group_next(g), ddl_block(in, g->rank + 1));
    ddl_step_recv_reduce(b, ddl_group_prev(g), result, own, DDL_INCOMING_FIRST);
}

void ddl_reduce_scatter_circulant(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_blocks(shape);
    ddl_blocks work = ddl_scratch_like(b, &in);
    ddl_slice out = ddl_out_vector(shape);
    ddl_reduce_scatter_circulant_blocks(b, &g, &in, &work, out);
    if (shape->average)
        ddl_step_scale(b, out);
}
