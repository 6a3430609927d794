/*
 * Binomial gather. Ranks are counted from the root, host after host; a rank collects the blocks of the ranks
 * below it in the tree, and passes them on as one message. The root receives into OUT.
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
    ddl_slice one;
    int child, size;
    for (int place = 1; place < tree->place; place *= 2) {
        if (!ddl_tree_child(tree, place, 1, &child, &size))
            continue;
        if (ddl_blocks_packed(out)) {
            ddl_step_recv_range(b, child, ddl_blocks_circular(out, child, size));
        } else if (ddl_blocks_as_one(out, child, size, &one)) {
            ddl_step_recv(b, child, one);
        } else { /* blocks travel together, so those with gaps between them land in scratch */
            ddl_slice landing = ddl_scratch(b, ddl_blocks_bytes(out, child, size));
            ddl_step_recv(b, child, landing);
            ddl_unpack_blocks(b, out, child, size, landing);
        }
    }
}

static void gather(ddl_builder *b, const ddl_line *line, ddl_slice own)
{
    ddl_tree tree = ddl_tree_of(&line->shape, 2);
    const ddl_blocks *out = &line->blocks; /* off the root only their sizes matter */
    int rank = line->shape.rank;
    if (tree.distance == 0) {
        receive_children(b, &tree, out);
        ddl_step_copy(b, ddl_block(out, rank), own);
        return;
    }
    if (ddl_tree_size(&tree) > 1) {
        ddl_slice below = ddl_scratch(b, ddl_blocks_bytes(out, rank, ddl_tree_size(&tree)));
        ddl_step_copy(b, ddl_slice_of(below.buffer, below.offset, own.bytes), own);
        receive_below(b, &tree, out, rank, below);
        own = below;
    }
    ddl_step_send(b, ddl_tree_parent(&tree), own);
}

void ddl_gather_binomial(ddl_builder *b, const ddl_shape *shape)
{
    ddl_line line;
    ddl_blocks out = ddl_out_blocks(shape);
    if (!ddl_line_of(b, shape, &out, &line))
        return;
    ddl_builder_members(b, line.ranks);
    gather(b, &line, ddl_in_vector(shape));
    ddl_builder_members(b, NULL);
}

void ddl_gather_binomial_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all)
{
    ddl_tree tree = ddl_tree_of(shape, 2);
    receive_children(b, &tree, all);
    if (tree.distance > 0)
        ddl_step_send_range(b, ddl_tree_parent(&tree),
                            ddl_blocks_circular(all, shape->rank, ddl_tree_size(&tree)));
}
