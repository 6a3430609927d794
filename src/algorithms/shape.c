/* shape.c - a call's buffers as slices and blocks, and the arithmetic of ranks that algorithms share. */
#include "algorithms/builders.h"

#include "base/size.h"

ddl_slice ddl_in_vector(const ddl_shape *shape)
{
    return ddl_slice_of(DDL_BUFFER_IN, 0, shape->count * shape->element_bytes);
}

ddl_slice ddl_out_vector(const ddl_shape *shape)
{
    return ddl_slice_of(DDL_BUFFER_OUT, 0, shape->count * shape->element_bytes);
}

ddl_blocks ddl_in_cut(const ddl_shape *shape, int nblocks)
{
    return ddl_blocks_of_vector(DDL_BUFFER_IN, 0, nblocks, shape->count, shape->element_bytes);
}

ddl_blocks ddl_out_cut(const ddl_shape *shape, int nblocks)
{
    return ddl_blocks_of_vector(DDL_BUFFER_OUT, 0, nblocks, shape->count, shape->element_bytes);
}

ddl_blocks ddl_in_blocks(const ddl_shape *shape)
{
    return ddl_blocks_apart(DDL_BUFFER_IN, 0, shape->nranks, shape->count, shape->stride,
                            shape->element_bytes);
}

ddl_blocks ddl_out_blocks(const ddl_shape *shape)
{
    return ddl_blocks_apart(DDL_BUFFER_OUT, 0, shape->nranks, shape->count, shape->stride,
                            shape->element_bytes);
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

ddl_blocks ddl_scratch_landings(ddl_builder *b, int nblocks, size_t count, size_t element_bytes)
{
    /* Below this the gaps would cost more cache than alignment saves. Element sizes divide 64. */
    enum { WORTH_ALIGNING_BYTES = 1024, LINE_BYTES = 64 };
    size_t stride = count, elements_per_line = LINE_BYTES / element_bytes;
    if (count * element_bytes >= WORTH_ALIGNING_BYTES && elements_per_line > 0)
        stride = (count + elements_per_line - 1) / elements_per_line * elements_per_line;
    return scratch_apart(b, nblocks, count, stride, element_bytes);
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
