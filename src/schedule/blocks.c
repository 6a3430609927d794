/* blocks.c - where blocks begin and end. */
#include "schedule/blocks.h"

#include "base/assert.h"

int ddl_group_peer(const ddl_group *group, int distance)
{
    int peer = (group->rank + distance % group->nranks) % group->nranks;
    return peer < 0 ? peer + group->nranks : peer;
}

ddl_blocks ddl_blocks_of_vector(ddl_buffer buffer, size_t offset, int nblocks, size_t count,
                                size_t element_bytes)
{
    return (ddl_blocks){ .buffer = buffer,
                         .offset = offset,
                         .nblocks = nblocks,
                         .count = count,
                         .element_bytes = element_bytes,
                         .is_vector = true,
                         .is_packed = true };
}

ddl_blocks ddl_blocks_apart(ddl_buffer buffer, size_t offset, int nblocks, size_t count, size_t stride,
                            size_t element_bytes)
{
    DDL_ASSERT(stride >= count);
    return (ddl_blocks){ .buffer = buffer,
                         .offset = offset,
                         .nblocks = nblocks,
                         .count = count,
                         .stride = stride,
                         .element_bytes = element_bytes,
                         .is_packed = stride == count || nblocks == 1 };
}

ddl_blocks ddl_blocks_of_uneven(ddl_buffer buffer, size_t offset, int nblocks, ddl_uneven uneven,
                                size_t element_bytes)
{
    for (int i = 1; i < nblocks; i++)
        DDL_ASSERT(uneven.starts[i] >= uneven.starts[i - 1] + uneven.counts[i - 1]);
    return ddl_blocks_in_any_order(buffer, offset, nblocks, uneven, element_bytes);
}

ddl_blocks ddl_blocks_in_any_order(ddl_buffer buffer, size_t offset, int nblocks, ddl_uneven uneven,
                                   size_t element_bytes)
{
    bool is_packed = true;
    for (int i = 1; i < nblocks && is_packed; i++)
        is_packed = uneven.starts[i] == uneven.starts[i - 1] + uneven.counts[i - 1];
    return (ddl_blocks){ .buffer = buffer,
                         .offset = offset,
                         .nblocks = nblocks,
                         .uneven = uneven,
                         .element_bytes = element_bytes,
                         .is_packed = is_packed };
}

/* Elements from the offset to the start of a block. */
static size_t start_of(const ddl_blocks *blocks, int index)
{
    size_t i = (size_t)index, n = (size_t)blocks->nblocks;
    if (blocks->uneven.counts != NULL)
        return blocks->uneven.starts[i];
    if (!blocks->is_vector)
        return i * blocks->stride;
    /* floor(count * i / n) without overflow */
    return blocks->count / n * i + blocks->count % n * i / n;
}

/* Elements from the offset to the end of a block. */
static size_t end_of(const ddl_blocks *blocks, int index)
{
    if (blocks->uneven.counts != NULL)
        return blocks->uneven.starts[index] + blocks->uneven.counts[index];
    return blocks->is_vector ? start_of(blocks, index + 1) : start_of(blocks, index) + blocks->count;
}

ddl_slice ddl_blocks_between(const ddl_blocks *blocks, int first, int end)
{
    DDL_ASSERT(0 <= first);
    DDL_ASSERT(first <= end);
    DDL_ASSERT(end <= blocks->nblocks);
    DDL_ASSERT(end - first <= 1 || ddl_blocks_packed(blocks));
    size_t start = first < blocks->nblocks ? start_of(blocks, first) : end_of(blocks, first - 1);
    size_t stop = first < end ? end_of(blocks, end - 1) : start;
    return ddl_slice_of(blocks->buffer, blocks->offset + start * blocks->element_bytes,
                        (stop - start) * blocks->element_bytes);
}

static int wrapped(const ddl_blocks *blocks, int index)
{
    index %= blocks->nblocks;
    return index < 0 ? index + blocks->nblocks : index;
}

ddl_slice ddl_block(const ddl_blocks *blocks, int index)
{
    int i = wrapped(blocks, index);
    return ddl_blocks_between(blocks, i, i + 1);
}

ddl_range ddl_blocks_circular(const ddl_blocks *blocks, int first, int n)
{
    DDL_ASSERT(0 <= n);
    DDL_ASSERT(n <= blocks->nblocks);
    int start = wrapped(blocks, first), end = start + n;
    if (end <= blocks->nblocks)
        return ddl_range_of(ddl_blocks_between(blocks, start, end));
    return (ddl_range){ { ddl_blocks_between(blocks, start, blocks->nblocks),
                          ddl_blocks_between(blocks, 0, end - blocks->nblocks) } };
}
