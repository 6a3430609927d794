/*
 * Two-level reduce-scatter: the two-level allgather backward. As many ranks of each host as the smallest host
 * has carry the blocks of all ranks, dealt out among them: inside each host everyone sends each of them what
 * it carries, packed, and it folds that in rank order; those of the same index on all hosts run a circulant
 * reduce-scatter of the sums, all at the same time; then they give the blocks to their owners.
 * Rounds: 1 inside hosts, ceil(log2 h) between h hosts, 1 more inside hosts if these differ in size. Sent by
 * a host to others: each block of others once. Best for: several ranks per host. Source: Jain et al., Proc.
 * SC 2018 (inside hosts); Traff, arXiv 2410.14234, 2024 (between them).
 */
#include "algorithms/builders.h"

/* In the place of this host: the sum of all ranks, of the blocks of this host that this rank carries. */
static void sum_carried(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape,
                        const ddl_blocks *carried)
{
    const ddl_group *local = &hosts->local;
    ddl_slice own = ddl_hosts_pack(b, hosts, shape, carried, local->rank);
    ddl_builder_members(b, hosts->local_ranks);
    if (local->nranks > 1) {
        ddl_blocks copies =
            ddl_scratch_landings(b, local->nranks, own.bytes / shape->element_bytes, shape->element_bytes);
        for (int i = 1; i < local->nranks; i++) {
            int peer = ddl_group_peer(local, i);
            ddl_step_recv(b, peer, ddl_block(&copies, peer));
        }
        ddl_hosts_deal(b, hosts, shape);
        ddl_step_reduce_blocks(b, own, &copies, local->rank, own);
    }
    ddl_slice result = ddl_block(carried, hosts->remote.rank);
    if (hosts->remote.nranks > 1) {
        ddl_builder_members(b, hosts->twins);
        ddl_reduce_scatter_circulant_blocks(b, &hosts->remote, carried, carried, result);
    }
    if (shape->average)
        ddl_step_scale(b, result);
}

void ddl_reduce_scatter_two_level(ddl_builder *b, const ddl_shape *shape)
{
    ddl_hosts hosts;
    if (!ddl_hosts_of(b, shape, &hosts))
        return;
    int index = hosts.local.rank;
    ddl_slice out = ddl_out_vector(shape);
    if (index >= hosts.nslices) {
        ddl_builder_members(b, hosts.local_ranks);
        ddl_hosts_deal(b, &hosts, shape);
        ddl_step_recv(b, index % hosts.nslices, out);
    } else {
        ddl_blocks carried = ddl_hosts_carried(b, &hosts, shape, index);
        sum_carried(b, &hosts, shape, &carried);
        ddl_builder_members(b, hosts.local_ranks);
        ddl_step_copy(b, out, ddl_hosts_place(&hosts, shape, &carried, shape->rank));
        for (int i = index + hosts.nslices; i < hosts.local.nranks; i += hosts.nslices)
            ddl_step_send(b, i, ddl_hosts_place(&hosts, shape, &carried, hosts.local_ranks[i]));
    }
    ddl_builder_members(b, NULL);
}
