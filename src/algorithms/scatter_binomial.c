/*
 * Binomial scatter: the binomial gather backward. A rank receives the blocks of all ranks below it in the
 * tree as one message, and passes each child's on, the largest part first. The root sends from IN.
 * Rounds: ceil(log2 p). Sent by the root: n(p-1)/p. Best for: small blocks, many ranks.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.
 */
#include "algorithms/builders.h"

/* From where the blocks of all ranks lie, each in its place. */
static void send_children(ddl_builder *b, const ddl_tree *tree, const ddl_blocks *in)
{
    int child, size;
    for (int place = tree->place / 2; place >= 1; place /= 2) {
        if (!ddl_tree_child(tree, place, 1, &child, &size))
            continue;
        if (ddl_blocks_packed(in))
            ddl_step_send_range(b, child, ddl_blocks_circular(in, child, size));
        else
            ddl_step_send(b, child, ddl_blocks_together(b, in, child, size));
    }
}

/* `below` has the own block, then those of the children, the smallest part first. */
static void send_below(ddl_builder *b, const ddl_tree *tree, const ddl_blocks *blocks, ddl_slice below)
{
    size_t end = below.offset + below.bytes;
    int child, size;
    for (int place = tree->place / 2; place >= 1; place /= 2)
        if (ddl_tree_child(tree, place, 1, &child, &size)) {
            size_t bytes = ddl_blocks_bytes(blocks, child, size);
            end -= bytes;
            ddl_step_send(b, child, ddl_slice_of(below.buffer, end, bytes));
        }
}

static void scatter(ddl_builder *b, const ddl_line *line, ddl_slice own)
{
    ddl_tree tree = ddl_tree_of(&line->shape, 2);
    const ddl_blocks *in = &line->blocks; /* off the root only their sizes matter */
    int rank = line->shape.rank;
    if (tree.distance == 0) {
        send_children(b, &tree, in);
        ddl_step_copy(b, own, ddl_block(in, rank));
        return;
    }
    if (ddl_tree_size(&tree) == 1) {
        ddl_step_recv(b, ddl_tree_parent(&tree), own);
        return;
    }
    ddl_slice below = ddl_scratch(b, ddl_blocks_bytes(in, rank, ddl_tree_size(&tree)));
    ddl_step_recv(b, ddl_tree_parent(&tree), below);
    send_below(b, &tree, in, below);
    ddl_step_copy(b, own, ddl_slice_of(below.buffer, below.offset, own.bytes));
}

void ddl_scatter_binomial(ddl_builder *b, const ddl_shape *shape)
{
    ddl_line line;
    ddl_blocks in = ddl_in_blocks(shape);
    if (!ddl_line_of(b, shape, &in, &line))
        return;
    ddl_builder_members(b, line.ranks);
    scatter(b, &line, ddl_out_vector(shape));
    ddl_builder_members(b, NULL);
}

void ddl_scatter_binomial_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all)
{
    ddl_tree tree = ddl_tree_of(shape, 2);
    if (tree.distance > 0)
        ddl_step_recv_range(b, ddl_tree_parent(&tree),
                            ddl_blocks_circular(all, shape->rank, ddl_tree_size(&tree)));
    send_children(b, &tree, all);
}
