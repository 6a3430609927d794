/*
 * blocks.h - a buffer seen as one block per rank, and the group of ranks.
 *
 * Three ways to cut: a vector of n elements into nearly equal blocks, block i being the elements
 * floor(n*i/B) .. floor(n*(i+1)/B); blocks of equal count that start `stride` elements apart; or blocks
 * each of its own count, where they are said to start.
 * Indices of blocks are taken modulo their number, so that algorithms may write rank - step.
 */
#ifndef DDL_SCHEDULE_BLOCKS_H
#define DDL_SCHEDULE_BLOCKS_H

#include "schedule/schedule.h"

typedef struct ddl_group {
    int rank, nranks;
} ddl_group;

/* Blocks of uneven size, in the order of their starts and without overlap; whoever uses it owns nothing. */
typedef struct ddl_uneven {
    const size_t *counts; /* elements of each block; NULL: even */
    const size_t *starts; /* elements from the start of the buffer to each block */
} ddl_uneven;

typedef struct ddl_blocks {
    ddl_buffer buffer;
    size_t offset; /* bytes, of the start of the vector, or of what starts and strides count from */
    int nblocks;
    size_t count;  /* elements of the vector, or of each block; unused for uneven blocks */
    size_t stride; /* elements; of even blocks only */
    ddl_uneven uneven;
    size_t element_bytes;
    bool is_vector;
    bool is_packed; /* each begins where the one before it ends */
} ddl_blocks;

/* The rank that is `distance` after this one, around the ring; distance may be negative. */
int ddl_group_peer(const ddl_group *group, int distance);

static inline int ddl_group_next(const ddl_group *group)
{
    return ddl_group_peer(group, 1);
}

static inline int ddl_group_prev(const ddl_group *group)
{
    return ddl_group_peer(group, -1);
}

static inline ddl_slice ddl_slice_of(ddl_buffer buffer, size_t offset, size_t bytes)
{
    return (ddl_slice){ buffer, offset, bytes };
}

static inline ddl_range ddl_range_of(ddl_slice slice)
{
    return (ddl_range){ { slice, { slice.buffer, 0, 0 } } };
}

/* A vector of count elements at `offset` bytes, cut into nblocks. */
ddl_blocks ddl_blocks_of_vector(ddl_buffer buffer, size_t offset, int nblocks, size_t count,
                                size_t element_bytes);

/* nblocks blocks of count elements, stride elements apart. */
ddl_blocks ddl_blocks_apart(ddl_buffer buffer, size_t offset, int nblocks, size_t count, size_t stride,
                            size_t element_bytes);

/* nblocks blocks of uneven.counts[i] elements, block i from element uneven.starts[i] after `offset` on. */
ddl_blocks ddl_blocks_of_uneven(ddl_buffer buffer, size_t offset, int nblocks, ddl_uneven uneven,
                                size_t element_bytes);

/* The same with blocks that need not be in the order of their starts. */
ddl_blocks ddl_blocks_in_any_order(ddl_buffer buffer, size_t offset, int nblocks, ddl_uneven uneven,
                                   size_t element_bytes);

/* No bytes lie between one block and the next. */
static inline bool ddl_blocks_packed(const ddl_blocks *blocks)
{
    return blocks->is_packed;
}

ddl_slice ddl_block(const ddl_blocks *blocks, int index);

/* Blocks first .. first+n-1 around the circle, n <= nblocks; the blocks must be packed. */
ddl_range ddl_blocks_circular(const ddl_blocks *blocks, int first, int n);

/* Blocks first .. end-1, without wrapping; the blocks must be packed. */
ddl_slice ddl_blocks_between(const ddl_blocks *blocks, int first, int end);

#endif
