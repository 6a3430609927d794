/*
 * Two-level broadcast. The root gives each rank of its host that carries a slice its slice; those that carry
 * the same slice on all hosts run a pipelined broadcast of it, all slices at the same time; then a direct
 * allgather inside the host.
 * Rounds: 2 inside hosts, ceil(log2 h) + B - 1 between h hosts. Sent by the root's host to others: about n.
 * Best for: several ranks per host.
 * Source: Jain et al., Proc. SC 2018 (inside hosts); Traff, arXiv 2407.18004, 2024 (between them).
 */
#include "algorithms/builders.h"

void ddl_broadcast_two_level(ddl_builder *b, const ddl_shape *shape)
{
    ddl_hosts hosts;
    if (!ddl_hosts_of(b, shape, &hosts))
        return;
    ddl_blocks slices = ddl_out_cut(shape, hosts.nslices);
    int index = hosts.local.rank;
    bool owns = index < hosts.nslices, is_root = shape->rank == shape->root;
    bool with_root = hosts.remote.rank == hosts.root_host;
    ddl_builder_members(b, hosts.local_ranks);
    if (with_root && owns && !is_root)
        ddl_step_recv(b, hosts.root_index, ddl_block(&slices, index));
    for (int i = 0; is_root && i < hosts.nslices; i++)
        if (i != index)
            ddl_step_send(b, i, ddl_block(&slices, i));
    if (owns && hosts.remote.nranks > 1) {
        ddl_builder_members(b, hosts.twins);
        ddl_broadcast_circulant_slice(b, &hosts.remote, hosts.root_host, ddl_block(&slices, index),
                                      shape->element_bytes);
    }
    ddl_allgather_local(b, &hosts, &slices, with_root ? hosts.root_index : -1);
}
