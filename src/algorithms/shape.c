/* shape.c - a call's buffers as slices and blocks, and the arithmetic of ranks that algorithms share. */
#include "algorithms/builders.h"

#include "base/assert.h"
#include "base/size.h"

ddl_slice ddl_in_vector(const ddl_shape *shape)
{
    return ddl_slice_of(DDL_BUFFER_IN, 0, ddl_shape_bytes(shape, shape->rank));
}

ddl_slice ddl_out_vector(const ddl_shape *shape)
{
    return ddl_slice_of(DDL_BUFFER_OUT, 0, ddl_shape_bytes(shape, shape->rank));
}

ddl_blocks ddl_in_cut(const ddl_shape *shape, int nblocks)
{
    return ddl_blocks_of_vector(DDL_BUFFER_IN, 0, nblocks, shape->count, shape->element_bytes);
}

ddl_blocks ddl_out_cut(const ddl_shape *shape, int nblocks)
{
    return ddl_blocks_of_vector(DDL_BUFFER_OUT, 0, nblocks, shape->count, shape->element_bytes);
}

ddl_blocks ddl_slice_cut(ddl_slice slice, int nblocks, size_t element_bytes)
{
    return ddl_blocks_of_vector(slice.buffer, slice.offset, nblocks, slice.bytes / element_bytes,
                                element_bytes);
}

static ddl_blocks blocks_of(const ddl_shape *shape, ddl_buffer buffer, const ddl_uneven *uneven)
{
    if (uneven->counts != NULL)
        return ddl_blocks_of_uneven(buffer, 0, shape->nranks, *uneven, shape->element_bytes);
    return ddl_blocks_apart(buffer, 0, shape->nranks, shape->count, shape->stride, shape->element_bytes);
}

ddl_blocks ddl_in_blocks(const ddl_shape *shape)
{
    return blocks_of(shape, DDL_BUFFER_IN, &shape->blocks);
}

ddl_blocks ddl_out_blocks(const ddl_shape *shape)
{
    return blocks_of(shape, DDL_BUFFER_OUT,
                     shape->out_blocks.counts != NULL ? &shape->out_blocks : &shape->blocks);
}

static ddl_blocks scratch_apart(ddl_builder *b, int nblocks, size_t count, size_t stride,
                                size_t element_bytes)
{
    size_t bytes = SIZE_MAX; /* too much is for the builder to tell */
    if (!ddl_size_mul((size_t)nblocks, stride, &bytes) || !ddl_size_mul(bytes, element_bytes, &bytes))
        bytes = SIZE_MAX;
    ddl_slice slice = ddl_scratch(b, bytes);
    return ddl_blocks_apart(DDL_BUFFER_SCRATCH, slice.offset, nblocks, count, stride, element_bytes);
}

ddl_blocks ddl_scratch_packed(ddl_builder *b, int nblocks, size_t count, size_t element_bytes)
{
    return scratch_apart(b, nblocks, count, count, element_bytes);
}

/* Elements that a landing of `count` takes. */
static size_t landing(size_t count, size_t element_bytes)
{
    /* Below this the gaps would cost more cache than alignment saves. Element sizes divide 64. */
    enum { WORTH_ALIGNING_BYTES = 1024, LINE_BYTES = 64 };
    size_t elements_per_line = LINE_BYTES / element_bytes;
    if (count * element_bytes < WORTH_ALIGNING_BYTES || elements_per_line == 0)
        return count;
    return (count + elements_per_line - 1) / elements_per_line * elements_per_line;
}

ddl_blocks ddl_scratch_landings(ddl_builder *b, int nblocks, size_t count, size_t element_bytes)
{
    return scratch_apart(b, nblocks, count, landing(count, element_bytes), element_bytes);
}

static size_t block_count(const ddl_blocks *blocks, int index)
{
    return ddl_block(blocks, index).bytes / blocks->element_bytes;
}

static ddl_blocks scratch_uneven(ddl_builder *b, const ddl_blocks *like, bool for_landing)
{
    size_t nblocks = (size_t)like->nblocks, end = 0, bytes;
    size_t *counts = ddl_builder_alloc(b, 2 * nblocks, sizeof *counts);
    if (counts == NULL) /* the builder knows */
        return ddl_blocks_apart(DDL_BUFFER_SCRATCH, 0, like->nblocks, 0, 0, like->element_bytes);
    size_t *starts = counts + nblocks;
    for (int i = 0; i < like->nblocks; i++) {
        counts[i] = block_count(like, i);
        starts[i] = end;
        end += for_landing ? landing(counts[i], like->element_bytes) : counts[i];
    }
    if (!ddl_size_mul(end, like->element_bytes, &bytes))
        bytes = SIZE_MAX;
    ddl_slice slice = ddl_scratch(b, bytes);
    return ddl_blocks_of_uneven(DDL_BUFFER_SCRATCH, slice.offset, like->nblocks,
                                (ddl_uneven){ counts, starts }, like->element_bytes);
}

static bool is_even(const ddl_blocks *blocks)
{
    return !blocks->is_vector && blocks->uneven.counts == NULL;
}

ddl_blocks ddl_scratch_like(ddl_builder *b, const ddl_blocks *blocks)
{
    if (is_even(blocks))
        return ddl_scratch_packed(b, blocks->nblocks, blocks->count, blocks->element_bytes);
    return scratch_uneven(b, blocks, false);
}

ddl_blocks ddl_scratch_landings_like(ddl_builder *b, const ddl_blocks *blocks)
{
    if (is_even(blocks))
        return ddl_scratch_landings(b, blocks->nblocks, blocks->count, blocks->element_bytes);
    return scratch_uneven(b, blocks, true);
}

size_t ddl_blocks_bytes(const ddl_blocks *blocks, int first, int n)
{
    size_t bytes = 0;
    if (is_even(blocks)) {
        if (!ddl_size_mul((size_t)n, blocks->count * blocks->element_bytes, &bytes))
            bytes = SIZE_MAX; /* too much is for the builder to tell */
        return bytes;
    }
    if (blocks->is_packed) {
        ddl_range range = ddl_blocks_circular(blocks, first, n);
        return ddl_range_bytes(&range);
    }
    for (int i = 0; i < n; i++)
        bytes += ddl_block(blocks, first + i).bytes;
    return bytes;
}

void ddl_pack_blocks(ddl_builder *b, ddl_slice packed, const ddl_blocks *blocks, int first, int n)
{
    size_t offset = packed.offset;
    for (int i = 0; i < n; i++) {
        ddl_slice block = ddl_block(blocks, first + i);
        ddl_step_copy(b, ddl_slice_of(packed.buffer, offset, block.bytes), block);
        offset += block.bytes;
    }
}

void ddl_unpack_blocks(ddl_builder *b, const ddl_blocks *blocks, int first, int n, ddl_slice packed)
{
    size_t offset = packed.offset;
    for (int i = 0; i < n; i++) {
        ddl_slice block = ddl_block(blocks, first + i);
        ddl_step_copy(b, block, ddl_slice_of(packed.buffer, offset, block.bytes));
        offset += block.bytes;
    }
}

bool ddl_blocks_as_one(const ddl_blocks *blocks, int first, int n, ddl_slice *one)
{
    ddl_slice all = ddl_block(blocks, first);
    for (int i = 1; i < n; i++) {
        ddl_slice next = ddl_block(blocks, first + i);
        if (next.offset != all.offset + all.bytes)
            return false;
        all.bytes += next.bytes;
    }
    *one = all;
    return true;
}

ddl_slice ddl_blocks_together(ddl_builder *b, const ddl_blocks *blocks, int first, int n)
{
    ddl_slice one;
    if (ddl_blocks_packed(blocks)) {
        ddl_range range = ddl_blocks_circular(blocks, first, n);
        if (range.part[1].bytes == 0)
            return range.part[0];
    } else if (ddl_blocks_as_one(blocks, first, n, &one)) {
        return one;
    }
    ddl_slice packed = ddl_scratch(b, ddl_blocks_bytes(blocks, first, n));
    ddl_pack_blocks(b, packed, blocks, first, n);
    return packed;
}

ddl_tree ddl_tree_of(const ddl_shape *shape, int radix)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_tree tree = { radix, shape->root, shape->nranks, ddl_group_peer(&g, -shape->root), 1 };
    while (tree.place < tree.nranks && tree.distance / tree.place % radix == 0)
        tree.place *= radix;
    return tree;
}

static int rank_at(const ddl_tree *tree, int distance)
{
    return ddl_group_peer(&(ddl_group){ tree->root, tree->nranks }, distance);
}

int ddl_tree_parent(const ddl_tree *tree)
{
    DDL_ASSERT(tree->distance > 0);
    return rank_at(tree, tree->distance - tree->distance / tree->place % tree->radix * tree->place);
}

static int size_from(const ddl_tree *tree, int distance, int place)
{
    return distance + place < tree->nranks ? place : tree->nranks - distance;
}

int ddl_tree_size(const ddl_tree *tree)
{
    return size_from(tree, tree->distance, tree->place);
}

bool ddl_tree_child(const ddl_tree *tree, int place, int digit, int *rank, int *size)
{
    int distance = tree->distance + digit * place;
    if (distance >= tree->nranks)
        return false;
    *rank = rank_at(tree, distance);
    *size = size_from(tree, distance, place);
    return true;
}

int ddl_log2_ceil(int n)
{
    int log = 0;
    while (n > 1 << log)
        log++;
    return log;
}

ddl_fold ddl_fold_of(const ddl_group *group)
{
    ddl_fold fold = { 1, 0, 0 };
    while (fold.nactive <= group->nranks / 2)
        fold.nactive *= 2;
    fold.npaired = 2 * (group->nranks - fold.nactive);
    if (group->rank >= fold.npaired)
        fold.virtual_rank = group->rank - fold.npaired / 2;
    else
        fold.virtual_rank = group->rank % 2 == 1 ? group->rank / 2 : -1;
    return fold;
}

int ddl_fold_rank(const ddl_fold *fold, int virtual_rank)
{
    return virtual_rank < fold->npaired / 2 ? 2 * virtual_rank + 1 : virtual_rank + fold->npaired / 2;
}

int ddl_peer_is_member(const void *arg, int member)
{
    (void)arg;
    return member;
}
