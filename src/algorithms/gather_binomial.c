/*
 * Binomial gather. Ranks are counted from the root; a rank collects the blocks of the ranks below it in the
 * tree, which follow each other, and passes them on as one message. The root receives into OUT.
 * Rounds: ceil(log2 p). Received by the root: n(p-1)/p. Best for: small blocks, many ranks.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.
 */
#include "algorithms/builders.h"

/* The blocks of all children, each child's one after the other, follow the own one in `below`. */
static void receive_below(ddl_builder *b, const ddl_tree *tree, const ddl_blocks *blocks, int rank,
                          ddl_slice below)
{
    size_t offset = below.offset + ddl_block(blocks, rank).bytes;
    int child, size;
    for (int place = 1; place < tree->place; place *= 2)
        if (ddl_tree_child(tree, place, 1, &child, &size)) {
            size_t bytes = ddl_blocks_bytes(blocks, child, size);
            ddl_step_recv(b, child, ddl_slice_of(below.buffer, offset, bytes));
            offset += bytes;
        }
}

/* To where the blocks of all ranks lie, each in its place. */
static void receive_children(ddl_builder *b, const ddl_tree *tree, const ddl_blocks *out)
{
    int child, size;
    for (int place = 1; place < tree->place; place *= 2) {
        if (!ddl_tree_child(tree, place, 1, &child, &size))
            continue;
        if (ddl_blocks_packed(out)) {
            ddl_step_recv_range(b, child, ddl_blocks_circular(out, child, size));
        } else if (size == 1) {
            ddl_step_recv(b, child, ddl_block(out, child));
        } else { /* blocks travel together, so those with gaps between them land in scratch */
            ddl_slice landing = ddl_scratch(b, ddl_blocks_bytes(out, child, size));
            ddl_step_recv(b, child, landing);
            ddl_unpack_blocks(b, out, child, size, landing);
        }
    }
}

void ddl_gather_binomial(ddl_builder *b, const ddl_shape *shape)
{
    ddl_tree tree = ddl_tree_of(shape, 2);
    ddl_blocks out = ddl_out_blocks(shape); /* off the root only their sizes matter */
    ddl_slice own = ddl_in_vector(shape);
    if (shape->rank == shape->root) {
        receive_children(b, &tree, &out);
        ddl_step_copy(b, ddl_block(&out, shape->rank), own);
        return;
    }
    if (ddl_tree_size(&tree) > 1) {
        ddl_slice below = ddl_scratch(b, ddl_blocks_bytes(&out, shape->rank, ddl_tree_size(&tree)));
        ddl_step_copy(b, ddl_slice_of(below.buffer, below.offset, own.bytes), own);
        receive_below(b, &tree, &out, shape->rank, below);
        own = below;
    }
    ddl_step_send(b, ddl_tree_parent(&tree), own);
}

void ddl_gather_binomial_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all)
{
    ddl_tree tree = ddl_tree_of(shape, 2);
    receive_children(b, &tree, all);
    if (tree.distance > 0)
        ddl_step_send_range(b, ddl_tree_parent(&tree),
                            ddl_blocks_circular(all, shape->rank, ddl_tree_size(&tree)));
}
