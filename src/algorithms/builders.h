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

/* Of the vector, or of the block of this rank. */
static inline size_t ddl_shape_bytes(const ddl_shape *shape, int rank)
{
    return (shape->blocks.counts != NULL ? shape->blocks.counts[rank] : shape->count) * shape->element_bytes;
}

/* The whole IN and OUT of a collective on vectors, or the own block where only that is given. */
ddl_slice ddl_in_vector(const ddl_shape *shape);
ddl_slice ddl_out_vector(const ddl_shape *shape);

/* IN and OUT as vectors cut into nblocks. */
ddl_blocks ddl_in_cut(const ddl_shape *shape, int nblocks);
ddl_blocks ddl_out_cut(const ddl_shape *shape, int nblocks);

/* IN or OUT as one block per rank: of count elements, stride apart, or of uneven size. */
ddl_blocks ddl_in_blocks(const ddl_shape *shape);
ddl_blocks ddl_out_blocks(const ddl_shape *shape);

/* Scratch for nblocks blocks of count elements, one after the other. */
ddl_blocks ddl_scratch_packed(ddl_builder *b, int nblocks, size_t count, size_t element_bytes);

/* The same for messages to land in: large ones begin at cache lines. */
ddl_blocks ddl_scratch_landings(ddl_builder *b, int nblocks, size_t count, size_t element_bytes);

/* Scratch for blocks as large as these, one after the other; or for messages to land in. */
ddl_blocks ddl_scratch_like(ddl_builder *b, const ddl_blocks *blocks);
ddl_blocks ddl_scratch_landings_like(ddl_builder *b, const ddl_blocks *blocks);

/* Bytes of blocks first .. first+n-1 around the circle, without the gaps between them. */
size_t ddl_blocks_bytes(const ddl_blocks *blocks, int first, int n);

/*
 * Blocks travel together, so those with gaps between them are copied into scratch, or out of it: blocks
 * first .. first+n-1 around the circle, one after the other in `packed`.
 */
void ddl_pack_blocks(ddl_builder *b, ddl_slice packed, const ddl_blocks *blocks, int first, int n);
void ddl_unpack_blocks(ddl_builder *b, const ddl_blocks *blocks, int first, int n, ddl_slice packed);

/* Whether these blocks lie one after the other; and if so, where. */
bool ddl_blocks_as_one(const ddl_blocks *blocks, int first, int n, ddl_slice *one);

/* The same blocks as one slice, if they are one; else packed into fresh scratch. */
ddl_slice ddl_blocks_together(ddl_builder *b, const ddl_blocks *blocks, int first, int n);

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

/*
 * A k-nomial tree over ranks counted from the root: the node at `distance` has the ranks at distances
 * distance .. distance+size-1 below it, itself included. The children of a node are found by its lowest digit
 * to the base k that is not 0: they add something to a lower one.
 */
typedef struct ddl_tree {
    int radix, root, nranks;
    int distance; /* of this rank from the root */
    int place;    /* value of the lowest digit that is not 0; the root: the least radix^i >= nranks */
} ddl_tree;

ddl_tree ddl_tree_of(const ddl_shape *shape, int radix);
int ddl_tree_parent(const ddl_tree *tree); /* its rank; not of the root */

/* Ranks below this one, itself included. */
int ddl_tree_size(const ddl_tree *tree);

/* The child that adds `digit` at `place`: its rank and size; false if there is none. */
bool ddl_tree_child(const ddl_tree *tree, int place, int digit, int *rank, int *size);

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

/*
 * Allgather: the others' blocks arrive at their places in `all`. The own one is sent from `own`, and copied
 * to its place while the first messages travel; `own` may be that place, and is if there is only one member.
 */
void ddl_allgather_ring_blocks(ddl_builder *b, const ddl_group *g, ddl_slice own, const ddl_blocks *all);
/* Rank `full` has all blocks already, and is sent none; -1: there is no such rank. */
void ddl_allgather_circulant_blocks(ddl_builder *b, const ddl_group *g, ddl_slice own, const ddl_blocks *all,
                                    int full);
/* Copies nothing: the own place in `all` is not touched. */
void ddl_allgather_direct_blocks(ddl_builder *b, const ddl_group *g, ddl_slice own, const ddl_blocks *all);
void ddl_allgather_doubling_blocks(ddl_builder *b, int member, int nmembers, ddl_peer_of *peer_of,
                                   const void *arg, ddl_slice own, const ddl_blocks *all);

/* peer_of for a group in which members are the ranks. */
int ddl_peer_is_member(const void *arg, int member);

/*
 * The blocks `all` of a vector, which lie in place at the root, go to the ranks of their numbers; on the way
 * a rank holds those of the ranks below it too. The gather is the way back.
 */
void ddl_scatter_binomial_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all);
void ddl_gather_binomial_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all);

/* The same between each rank and the root. */
void ddl_scatter_direct_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all);
void ddl_gather_direct_blocks(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *all);

/* Of the k-nomial broadcast and reduce. */
enum { DDL_KNOMIAL_RADIX = 4 };

/* A broadcast of `data` from shape->root, and a reduction of `own` into `sum` there, without the division of
 * an average; elsewhere `sum` is not touched. */
void ddl_broadcast_binomial_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice data);
void ddl_broadcast_knomial_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice data);
void ddl_reduce_binomial_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice own, ddl_slice sum);
void ddl_reduce_knomial_slice(ddl_builder *b, const ddl_shape *shape, ddl_slice own, ddl_slice sum);

/* Exchanges of an alltoall that are under way at a time. */
enum { DDL_PAIRWISE_WINDOW = 4 };

/* ---- pipelining (pipeline.c) ---- */

/* Blocks into which a broadcast or reduction of so many bytes among p ranks is cut. */
int ddl_pipeline_blocks(int nranks, double bytes);

/* What a rank does in a round of a pipelined broadcast; peers are ranks, -1 for none. */
typedef struct ddl_pipeline_round {
    int to, from;               /* -1: sends or receives nothing */
    int sent_block, recv_block; /* its number */
} ddl_pipeline_round;

/*
 * All rounds of a pipelined broadcast of nblocks from the root: ceil(log2 p) + nblocks - 1 of them, which is
 * *nrounds. NULL: the builder had no memory, and knows.
 */
const ddl_pipeline_round *ddl_pipeline_rounds(ddl_builder *b, const ddl_group *g, int root, int nblocks,
                                              int *nrounds);

/* A pipelined broadcast of `data`, and a pipelined reduction of `in` into `sum` at the root; elsewhere `sum`
 * is for partial sums, which are as large. */
void ddl_broadcast_circulant_slice(ddl_builder *b, const ddl_group *g, int root, ddl_slice data,
                                   size_t element_bytes);
void ddl_reduce_circulant_slice(ddl_builder *b, const ddl_group *g, int root, ddl_slice in, ddl_slice sum,
                                size_t element_bytes);

/* A slice as a vector cut into nblocks. */
ddl_blocks ddl_slice_cut(ddl_slice slice, int nblocks, size_t element_bytes);

/* ---- hosts (hosts.c) ---- */

/*
 * A vector is cut into as many slices as the host with the fewest ranks has; on each host the rank of index i
 * among the local ones, counted in rank order, carries slice i. Ranks beyond that carry none.
 */
typedef struct ddl_hosts {
    int nslices;
    ddl_group local;        /* this rank's index among the ranks of its host */
    const int *local_ranks; /* their ranks */
    ddl_group remote;       /* this rank's host among the hosts */
    const int *twins;       /* of each host: the rank of the same index; of use to those that carry a slice */
    const int *counts;      /* of each host: its ranks */
    const int *by_host;     /* all ranks, host after host, in the order of their indices */
    const int *firsts;      /* of each host: where its ranks begin there */
    const int *index_of;    /* of each rank: its index on its host */
    int root_host, root_index;
} ddl_hosts;

/* False: the builder had no memory, and knows. */
bool ddl_hosts_of(ddl_builder *b, const ddl_shape *shape, ddl_hosts *hosts);

/*
 * Where there is a block for each rank, the one of index i carries those of the ranks of indices i, i +
 * nslices, ... on every host: scratch with one block per host, of the blocks of its ranks in their order.
 */
ddl_blocks ddl_hosts_carried(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape, int index);

/* How many of them there are of one host. */
int ddl_hosts_ncarried(const ddl_hosts *hosts, int host, int index);

/* Where in that the block of `rank` lies. */
ddl_slice ddl_hosts_place(const ddl_hosts *hosts, const ddl_shape *shape, const ddl_blocks *carried,
                          int rank);

/* What IN has for `index` to carry, copied there, as one slice. */
ddl_slice ddl_hosts_pack(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape,
                         const ddl_blocks *carried, int index);

/* Send each other rank of the host what it carries of IN. Peers are to be those of the host. */
void ddl_hosts_deal(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape);

/*
 * A rooted call with its ranks in line: the root, the others of its host, and then host after host. `shape`
 * and `blocks`, of the buffer with a block for each rank, count places in the line; `ranks`, for
 * ddl_builder_members, has who stands there. NULL: all is as it was, as ranks stand in line around the
 * circle.
 */
typedef struct ddl_line {
    ddl_shape shape;
    ddl_blocks blocks;
    const int *ranks;
} ddl_line;

/* False: the builder had no memory, and knows. */
bool ddl_line_of(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *blocks, ddl_line *line);

/* Ranks of the hosts with the fewest and with the most. */
int ddl_hosts_least(const ddl_placement *placement, int *most);

/*
 * Among the ranks of a host: its sum of the slices `in`, folded in rank order, ends in `result` at those that
 * carry them. Does nothing where a rank is alone.
 */
void ddl_reduce_scatter_local(ddl_builder *b, const ddl_hosts *hosts, const ddl_blocks *in, ddl_slice result);

/* Those that carry slices send them to the others of their host, but for the one of index `full`; -1: none.
 */
void ddl_allgather_local(ddl_builder *b, const ddl_hosts *hosts, const ddl_blocks *all, int full);

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
void ddl_alltoall_two_level(ddl_builder *b, const ddl_shape *shape);
void ddl_allreduce_tree(ddl_builder *b, const ddl_shape *shape);
void ddl_allreduce_knomial(ddl_builder *b, const ddl_shape *shape);
void ddl_allreduce_two_level(ddl_builder *b, const ddl_shape *shape);
void ddl_allreduce_two_level_tree(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_tree(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_knomial(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_tree_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_knomial_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_two_level(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_tree(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_knomial(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_direct_tree(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_direct_knomial(ddl_builder *b, const ddl_shape *shape);
void ddl_broadcast_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_two_level(ddl_builder *b, const ddl_shape *shape);
void ddl_broadcast_two_level(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_two_level(ddl_builder *b, const ddl_shape *shape);
void ddl_broadcast_flat(ddl_builder *b, const ddl_shape *shape);
void ddl_broadcast_knomial(ddl_builder *b, const ddl_shape *shape);
void ddl_broadcast_circulant(ddl_builder *b, const ddl_shape *shape);
void ddl_broadcast_scatter_allgather(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_flat(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_knomial(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_circulant(ddl_builder *b, const ddl_shape *shape);
void ddl_reduce_scatter_gather(ddl_builder *b, const ddl_shape *shape);
void ddl_allgather_bruck(ddl_builder *b, const ddl_shape *shape);
void ddl_alltoall_bruck(ddl_builder *b, const ddl_shape *shape);
void ddl_gather_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_gather_binomial(ddl_builder *b, const ddl_shape *shape);
void ddl_scatter_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_scatter_binomial(ddl_builder *b, const ddl_shape *shape);
void ddl_barrier_tree(ddl_builder *b, const ddl_shape *shape);
void ddl_barrier_dissemination(ddl_builder *b, const ddl_shape *shape);
void ddl_barrier_flat(ddl_builder *b, const ddl_shape *shape);
void ddl_send_direct(ddl_builder *b, const ddl_shape *shape);
void ddl_recv_direct(ddl_builder *b, const ddl_shape *shape);

#endif
