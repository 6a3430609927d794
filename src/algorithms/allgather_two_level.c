/*
 * Two-level allgather. As many ranks of each host as the smallest host has collect the blocks of their host,
 * dealt out among them; those of the same index on all hosts run a circulant allgather of what they
 * collected, all at the same time; then they give all that they have to the other ranks of their host. Blocks
 * travel together, so they are put into place at the end. Rounds: 2 inside hosts, ceil(log2 h) between h
 * hosts. Received by a host from others: each block once. Best for: several ranks per host. Source: Jain et
 * al., Proc. SC 2018 (inside hosts); Traff, arXiv 2410.14234, 2024 (between them).
 */
#include "algorithms/builders.h"

static void collect(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape, const ddl_blocks *carried)
{
    int index = hosts->local.rank;
    ddl_builder_members(b, hosts->local_ranks);
    if (index >= hosts->nslices) {
        ddl_step_send(b, index % hosts->nslices, ddl_in_vector(shape));
    } else {
        ddl_step_copy(b, ddl_hosts_place(hosts, shape, carried, shape->rank), ddl_in_vector(shape));
        for (int i = index + hosts->nslices; i < hosts->local.nranks; i += hosts->nslices)
            ddl_step_recv(b, i, ddl_hosts_place(hosts, shape, carried, hosts->local_ranks[i]));
    }
    ddl_builder_members(b, NULL);
}

static void put_into_place(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape,
                           const ddl_blocks *carried, int index)
{
    ddl_blocks out = ddl_out_blocks(shape);
    for (int rank = 0; rank < shape->nranks; rank++)
        if (rank != shape->rank && hosts->index_of[rank] % hosts->nslices == index)
            ddl_step_copy(b, ddl_block(&out, rank), ddl_hosts_place(hosts, shape, carried, rank));
}

void ddl_allgather_two_level(ddl_builder *b, const ddl_shape *shape)
{
    ddl_hosts hosts;
    if (!ddl_hosts_of(b, shape, &hosts))
        return;
    ddl_blocks *carried = ddl_builder_alloc(b, (size_t)hosts.nslices, sizeof *carried);
    if (carried == NULL)
        return;
    for (int i = 0; i < hosts.nslices; i++)
        carried[i] = ddl_hosts_carried(b, &hosts, shape, i);
    int index = hosts.local.rank;
    bool collects = index < hosts.nslices;
    collect(b, &hosts, shape, collects ? &carried[index] : NULL);
    if (collects && hosts.remote.nranks > 1) {
        ddl_builder_members(b, hosts.twins);
        ddl_allgather_circulant_blocks(b, &hosts.remote, ddl_block(&carried[index], hosts.remote.rank),
                                       &carried[index], -1);
    }
    ddl_builder_members(b, hosts.local_ranks);
    for (int i = 1; i < hosts.local.nranks; i++) {
        int peer = ddl_group_peer(&hosts.local, i);
        if (peer < hosts.nslices)
            ddl_step_recv(b, peer, ddl_blocks_between(&carried[peer], 0, hosts.remote.nranks));
        if (collects)
            ddl_step_send(b, peer, ddl_blocks_between(&carried[index], 0, hosts.remote.nranks));
    }
    ddl_builder_members(b, NULL);
    ddl_blocks out = ddl_out_blocks(shape);
    ddl_step_copy(b, ddl_block(&out, shape->rank), ddl_in_vector(shape));
    for (int i = 0; i < hosts.nslices; i++)
        put_into_place(b, &hosts, shape, &carried[i], i);
}
