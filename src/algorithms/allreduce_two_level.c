/*
 * Two-level allreduce. A direct reduce-scatter inside each host; then those that carry the same slice on all
 * hosts run the circulant allreduce of it, all slices at the same time; then a direct allgather inside the
 * host. So a host sends no more than it must, and all of its ranks share the work.
 * Rounds: 2 inside hosts, 2 ceil(log2 h) between h hosts. Sent by a host to others: 2n(h-1)/h. Best for:
 * several ranks per host. Source: Jain et al., Proc. SC 2018 (inside hosts); Traff, arXiv 2410.14234, 2024
 * (between them).
 */
#include "algorithms/builders.h"

void ddl_allreduce_two_level(ddl_builder *b, const ddl_shape *shape)
{
    ddl_hosts hosts;
    if (!ddl_hosts_of(b, shape, &hosts))
        return;
    ddl_blocks in = ddl_in_cut(shape, hosts.nslices), out = ddl_out_cut(shape, hosts.nslices);
    bool owns = hosts.local.rank < hosts.nslices;
    ddl_slice slice = ddl_block(&out, hosts.local.rank);
    ddl_reduce_scatter_local(b, &hosts, &in, slice);
    if (owns && hosts.remote.nranks > 1) {
        ddl_slice partial = hosts.local.nranks == 1 ? ddl_block(&in, 0) : slice;
        ddl_blocks all = ddl_slice_cut(slice, hosts.remote.nranks, shape->element_bytes);
        ddl_blocks own = ddl_slice_cut(partial, hosts.remote.nranks, shape->element_bytes);
        ddl_slice result = ddl_block(&all, hosts.remote.rank);
        ddl_builder_members(b, hosts.twins);
        ddl_reduce_scatter_circulant_blocks(b, &hosts.remote, &own, &all, result);
        if (shape->average)
            ddl_step_scale(b, result);
        ddl_allgather_circulant_blocks(b, &hosts.remote, ddl_block(&all, hosts.remote.rank), &all, -1);
        ddl_builder_members(b, NULL);
    } else if (owns && shape->average) {
        ddl_step_scale(b, slice);
    }
    ddl_allgather_local(b, &hosts, &out, -1);
}
