/*
 * trees.c - collectives by way of rank 0: a reduction or gather to it, then a broadcast or scatter from it.
 *
 * They have about twice the rounds of forms in which all ranks work alike, but with trees only 2(p-1)
 * messages in all, where those have p log2 p; and in trees over ranks that are placed host after host few
 * messages cross between hosts. Best for: little data where ranks share CPUs, or many of them a host. The
 * two-level form is pipelined between hosts: best for much data on hosts with uneven numbers of ranks. Rounds
 * and bytes: those of both phases. Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.5
 * (binomial); Wilkins et al., Proc. IEEE CLUSTER 2023 (k-nomial).
 */
#include "algorithms/builders.h"

static ddl_shape from_zero(const ddl_shape *shape)
{
    ddl_shape rooted = *shape;
    rooted.root = 0;
    return rooted;
}

/* ---- allreduce ---- */

void ddl_allreduce_tree(ddl_builder *b, const ddl_shape *shape)
{
    ddl_shape rooted = from_zero(shape);
    ddl_reduce_binomial(b, &rooted);
    ddl_broadcast_binomial(b, &rooted);
}

void ddl_allreduce_knomial(ddl_builder *b, const ddl_shape *shape)
{
    ddl_shape rooted = from_zero(shape);
    ddl_reduce_knomial(b, &rooted);
    ddl_broadcast_knomial(b, &rooted);
}

void ddl_allreduce_two_level_tree(ddl_builder *b, const ddl_shape *shape)
{
    ddl_shape rooted = from_zero(shape);
    ddl_reduce_two_level(b, &rooted);
    ddl_broadcast_two_level(b, &rooted);
}

/* ---- barrier ---- */

/* A byte from each child tells that all ranks below it have come, and one from the parent that all have. */
void ddl_barrier_tree(ddl_builder *b, const ddl_shape *shape)
{
    ddl_shape rooted = from_zero(shape);
    ddl_tree tree = ddl_tree_of(&rooted, DDL_KNOMIAL_RADIX);
    int child, size;
    for (int place = 1; place < tree.place; place *= tree.radix)
        for (int digit = 1; digit < tree.radix; digit++)
            if (ddl_tree_child(&tree, place, digit, &child, &size))
                ddl_step_recv(b, child, ddl_scratch(b, 1));
    ddl_builder_fence(b);
    if (tree.distance > 0) {
        ddl_step_send(b, ddl_tree_parent(&tree), ddl_scratch(b, 1));
        ddl_step_recv(b, ddl_tree_parent(&tree), ddl_scratch(b, 1));
    }
    ddl_builder_fence(b);
    for (int place = tree.place / tree.radix; place >= 1; place /= tree.radix)
        for (int digit = 1; digit < tree.radix; digit++)
            if (ddl_tree_child(&tree, place, digit, &child, &size))
                ddl_step_send(b, child, ddl_scratch(b, 1));
}

/* ---- allgather ---- */

typedef void gather_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all);
typedef void broadcast_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice data);

/* Blocks travel together, so those with gaps between them do so in scratch. */
static void allgather_by(ddl_builder *b, const ddl_shape *shape, gather_blocks *gather,
                         broadcast_slice *broadcast)
{
    ddl_shape rooted = from_zero(shape);
    ddl_blocks out = ddl_out_blocks(shape), all = out;
    bool packed = ddl_blocks_packed(&out);
    if (!packed)
        all = ddl_scratch_like(b, &out);
    ddl_slice together = ddl_blocks_between(&all, 0, shape->nranks);
    ddl_step_copy(b, ddl_block(&all, shape->rank), ddl_in_vector(shape));
    gather(b, &rooted, &all);
    broadcast(b, &rooted, together);
    if (!packed)
        ddl_unpack_blocks(b, &out, 0, shape->nranks, together);
}

void ddl_allgather_tree(ddl_builder *b, const ddl_shape *shape)
{
    allgather_by(b, shape, ddl_gather_binomial_blocks, ddl_broadcast_binomial_slice);
}

void ddl_allgather_knomial(ddl_builder *b, const ddl_shape *shape)
{
    allgather_by(b, shape, ddl_gather_binomial_blocks, ddl_broadcast_knomial_slice);
}

void ddl_allgather_direct_tree(ddl_builder *b, const ddl_shape *shape)
{
    allgather_by(b, shape, ddl_gather_direct_blocks, ddl_broadcast_binomial_slice);
}

void ddl_allgather_direct_knomial(ddl_builder *b, const ddl_shape *shape)
{
    allgather_by(b, shape, ddl_gather_direct_blocks, ddl_broadcast_knomial_slice);
}

/* ---- reduce-scatter ---- */

typedef void scatter_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all);
typedef void reduce_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice own, ddl_slice sum);

static void reduce_scatter_by(ddl_builder *b, const ddl_shape *shape, reduce_slice *reduce,
                              scatter_blocks *scatter)
{
    ddl_shape rooted = from_zero(shape);
    ddl_blocks in = ddl_in_blocks(shape);
    ddl_slice own = ddl_blocks_together(b, &in, 0, shape->nranks), out = ddl_out_vector(shape);
    ddl_blocks sums = ddl_scratch_like(b, &in);
    reduce(b, &rooted, own, ddl_blocks_between(&sums, 0, shape->nranks));
    scatter(b, &rooted, &sums);
    ddl_step_copy(b, out, ddl_block(&sums, shape->rank));
    if (shape->average)
        ddl_step_scale(b, out);
}

void ddl_reduce_scatter_tree(ddl_builder *b, const ddl_shape *shape)
{
    reduce_scatter_by(b, shape, ddl_reduce_binomial_slice, ddl_scatter_binomial_blocks);
}

void ddl_reduce_scatter_knomial(ddl_builder *b, const ddl_shape *shape)
{
    reduce_scatter_by(b, shape, ddl_reduce_knomial_slice, ddl_scatter_binomial_blocks);
}

void ddl_reduce_scatter_tree_direct(ddl_builder *b, const ddl_shape *shape)
{
    reduce_scatter_by(b, shape, ddl_reduce_binomial_slice, ddl_scatter_direct_blocks);
}

void ddl_reduce_scatter_knomial_direct(ddl_builder *b, const ddl_shape *shape)
{
    reduce_scatter_by(b, shape, ddl_reduce_knomial_slice, ddl_scatter_direct_blocks);
}
