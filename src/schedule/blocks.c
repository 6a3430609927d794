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
    return (ddl_blocks){ buffer, offset, nblocks, count, 0, element_bytes, true };
}

ddl_blocks ddl_blocks_apart(ddl_buffer buffer, size_t offset, int nblocks, size_t count, size_t stride,
                            size_t element_bytes)
{
    DDL_ASSERT(stride >= count);
    return (ddl_blocks){ buffer, offset, nblocks, count, stride, element_bytes, false };
}

bool ddl_blocks_packed(const ddl_blocks *blocks)
{
    return blocks->is_vector || blocks->stride == blocks->count || blocks->nblocks == 1;
}

/* Elements from the start of block 0 to the start of block `index`, which may be one past the last. */
static size_t border(const ddl_blocks *blocks, int index)
{
    size_t i = (size_t)index, n = (size_t)blocks->nblocks;
    if (!blocks->is_vector)
        return i * blocks->stride;
    /* floor(count * i / n) without overflow */
    return blocks->count / n * i + blocks->count % n * i / n;
}

ddl_slice ddl_blocks_between(const ddl_blocks *blocks, int first, int end)
{
    DDL_ASSERT(0 <= first);
    DDL_ASSERT(first <= end);
    DDL_ASSERT(end <= blocks->nblocks);
    DDL_ASSERT(end - first <= 1 || ddl_blocks_packed(blocks));
    size_t start = border(blocks, first);
    size_t stop = blocks->is_vector ? border(blocks, end)
                  : first == end    ? start
                                    : border(blocks, end - 1) + blocks->count;
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

ddl_slice ddl_blocks_stretch(const ddl_blocks *blocks, int first, int n, int *taken)
{
    DDL_ASSERT(n > 0);
    int start = wrapped(blocks, first), end = start + 1;
    if (ddl_blocks_packed(blocks))
        end = start + n < blocks->nblocks ? start + n : blocks->nblocks;
    *taken = end - start;
    return ddl_blocks_between(blocks, start, end);
}
