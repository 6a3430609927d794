/*
 * Two-level reduce: the two-level broadcast backward. A direct reduce-scatter inside each host; a pipelined
 * reduction of each slice among those that carry it, all slices at the same time, to the root's host; there
 * they give the slices to the root.
 * Rounds: 2 inside hosts, ceil(log2 h) + B - 1 between h hosts. Received by the root's host from others:
 * about n. Best for: several ranks per host. Source: Jain et al., Proc. SC 2018 (inside hosts); Traff, arXiv
 * 2407.18004, 2024 (between them).
 */
#include "algorithms/builders.h"

void ddl_reduce_two_level(ddl_builder *b, const ddl_shape *shape)
{
    ddl_hosts hosts;
    if (!ddl_hosts_of(b, shape, &hosts))
        return;
    ddl_blocks in = ddl_in_cut(shape, hosts.nslices), out = ddl_out_cut(shape, hosts.nslices);
    int index = hosts.local.rank;
    bool owns = index < hosts.nslices, is_root = shape->rank == shape->root;
    ddl_slice sum = { DDL_BUFFER_SCRATCH, 0, 0 };
    if (owns) /* OUT may be missing but at the root */
        sum = is_root ? ddl_block(&out, index) : ddl_scratch(b, ddl_block(&in, index).bytes);
    ddl_reduce_scatter_local(b, &hosts, &in, sum);
    if (owns && hosts.remote.nranks > 1) {
        ddl_slice partial = hosts.local.nranks == 1 ? ddl_block(&in, 0) : sum;
        ddl_builder_members(b, hosts.twins);
        ddl_reduce_circulant_slice(b, &hosts.remote, hosts.root_host, partial, sum, shape->element_bytes);
    }
    ddl_builder_members(b, hosts.local_ranks);
    if (hosts.remote.rank == hosts.root_host && owns && !is_root)
        ddl_step_send(b, hosts.root_index, sum);
    for (int i = 0; is_root && i < hosts.nslices; i++)
        if (i != index)
            ddl_step_recv(b, i, ddl_block(&out, i));
    ddl_builder_members(b, NULL);
    if (is_root && shape->average)
        ddl_step_scale(b, ddl_out_vector(shape));
}
