/*
 * builders.h - the algorithms as calls on a builder, so that larger collectives can be made of smaller ones.
 *
 * ddl_<collective>_<name>(b, shape) writes the whole collective for the buffers of a call. The phases
 * below them work on blocks wherever they lie; both allreduce and the collective of the same name use
 * them. All are for two ranks or more (catalogue.c deals with one).
 */
#ifndef DDL_ALGORITHMS_BUILDERS_H
#define DDL_ALGORITHMS_BUILDERS_H

#include "algorithms/catalogue.h"
#include "schedule/builder.h"

/* ---- views of a call's buffers ---- */

/* The whole IN and OUT of a collective on vectors. */
ddl_slice ddl_in_vector(const ddl_shape *shape);
ddl_slice ddl_out_vector(const ddl_shape *shape);

/* IN and OUT as vectors cut into nblocks. */
ddl_blocks ddl_in_cut(const ddl_shape *shape, int nblocks);
ddl_blocks ddl_out_cut(const ddl_shape *shape, int nblocks);

/* IN or OUT as one block of count elements per rank, stride apart. */
ddl_blocks ddl_in_blocks(const ddl_shape *shape);
ddl_blocks ddl_out_blocks(const ddl_shape *shape);

/* Scratch for nblocks blocks of count elements, one after the other. */
ddl_blocks ddl_scratch_packed(ddl_builder *b, int nblocks, size_t count, size_t element_bytes);

/* The same for messages to land in: large ones begin at cache lines. */
ddl_blocks ddl_scratch_landings(ddl_builder *b, int nblocks, size_t count, size_t element_bytes);

static inline ddl_group ddl_shape_group(const ddl_shape *shape)
{
    return (ddl_group){ shape->rank, shape->nranks };
}

/* ceil(log2 n), n >= 1 */
int ddl_log2_ceil(int n);

/*
 * For algorithms that want 2^k ranks: the first 2 * (p - 2^k) ranks pair up, evens sit out. Rank numbers
 * among the 2^k keep rank order.
 */
typedef struct ddl_fold {
    int nactive;      /* 2^k, the largest that is not more than the ranks */
    int npaired;      /* ranks 0 .. npaired-1 are paired, even with the odd one above */
    int virtual_rank; /* among the active, or -1 for a rank that sits out */
} ddl_fold;

ddl_fold ddl_fold_of(const ddl_group *group);
int ddl_fold_rank(const ddl_fold *fold, int virtual_rank);

/* ---- phases ---- */

/*
 * Reduce-scatter of the blocks `in`: block `rank` of the reduction ends in `result`. `work` holds partial
 * sums at the blocks' own places; `in` is only read, unless work is the same memory. result may be the own
 * block of work or of in.
 */
void ddl_reduce_scatter_ring_blocks(ddl_builder *b, const ddl_group *g, const ddl_blocks *in,
                                    const ddl_blocks *work, ddl_slice result);
void ddl_reduce_scatter_circulant_blocks(ddl_builder *b, const ddl_group *g, const ddl_blocks *in,
                                         const ddl_blocks *work, ddl_slice result);
/* Needs no work; operands are folded in rank order, all at once. */
void ddl_reduce_scatter_direct_blocks(ddl_builder *b, const ddl_group *g, const ddl_blocks *in,
                                      ddl_slice result);
/* For 2^k members, of which this is number `member`; peer_of gives their ranks. Ends with block `member` in
 * result. */
typedef int ddl_peer_of(const void *arg, int member);
void ddl_reduce_scatter_halving_blocks(ddl_builder *b, int member, int nmembers, ddl_peer_of *peer_of,
                                       const void *arg, const ddl_blocks *in, const ddl_blocks *work,
                                       ddl_slice result);

/* Allgather: the own block of `all` is in place already, and the others arrive at theirs. */
void ddl_allgather_ring_blocks(ddl_builder *b, const ddl_group *g, const ddl_blocks *all);
void ddl_allgather_circulant_blocks(ddl_builder *b, const ddl_group *g, const ddl_blocks *all);
/* The own block is sent from `own`, wherever that lies. */
void ddl_allgather_direct_blocks(ddl_builder *b, const ddl_group *g, ddl_slice own, const ddl_blocks *all);
void ddl_allgather_doubling_blocks(ddl_builder *b, int member, int nmembers, ddl_peer_of *peer_of,
                                   const void *arg, const ddl_blocks *all);

/* peer_of for a group in which members are the ranks. */
int ddl_peer_is_member(const void *arg, int member);

/* ---- collectives ---- */

void ddl_allreduce_flat(ddl_builder *b, const ddl_shape *shape);
void ddl_allreduce_doubling(ddl_builder *b, const ddl_shape *shape);
void ddl_allreduce_halving_doubling(ddl_builder *b, const ddl_shape *shape);
void ddl_allreduce_ring(ddl_builder *b, const ddl_shape *shape);
void ddl_allreduce_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_allreduce_circulant(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_ring(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_circulant(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_halving(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_ring(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_circulant(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_doubling(ddl_builder *b, const ddl_shape *shape);
void ddl_broadcast_binomial(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_binomial(ddl_builder *b, const ddl_shape *shape);
void ddl_alltoall_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_alltoall_pairwise(ddl_builder *b, const ddl_shape *shape);
void ddl_barrier_dissemination(ddl_builder *b, const ddl_shape *shape);
void ddl_send_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_recv_direct(ddl_builder *b, const ddl_shape *shape);

#endif
