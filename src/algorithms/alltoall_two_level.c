/*
 * Two-level alltoall. As many ranks of each host as the smallest host has carry the blocks for all ranks,
 * dealt out among them. Inside each host everyone gives each of them what it carries; each sorts that by
 * hosts, and exchanges it with those of its index there; then it gives what has come for others of its host
 * to them. On hosts of one size there are none, and what comes from ranks that follow each other arrives in
 * place. Rounds: 1 inside hosts, 1 between h hosts, 1 more inside hosts if these differ in size. Messages of
 * a rank between hosts: h-1. Sent by a host to others: each block once. Best for: small blocks, several ranks
 * per host. Source: Traff and Rougier, Proc. EuroMPI/ASIA 2014.
 */
#include "algorithms/builders.h"

/* What a rank that carries blocks has to sort. */
typedef struct carrier {
    const ddl_shape *shape;
    const ddl_hosts *hosts;
    ddl_blocks in;
    ddl_blocks *given;   /* by each rank of this host: as ddl_hosts_carried; nothing by itself */
    ddl_blocks *results; /* for each rank of this host for which it carries, itself first: of all ranks */
} carrier;

/* What the rank of index `local` has for `rank`. */
static ddl_slice given(const carrier *c, int local, int rank)
{
    if (local == c->hosts->local.rank)
        return ddl_block(&c->in, rank);
    return ddl_hosts_place(c->hosts, c->shape, &c->given[local], rank);
}

static bool begin(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape, carrier *c)
{
    int index = hosts->local.rank, nresults = ddl_hosts_ncarried(hosts, hosts->remote.rank, index);
    *c = (carrier){ .shape = shape, .hosts = hosts, .in = ddl_in_blocks(shape) };
    c->given = ddl_builder_alloc(b, (size_t)(hosts->local.nranks + nresults), sizeof *c->given);
    if (c->given == NULL)
        return false;
    c->results = c->given + hosts->local.nranks;
    c->results[0] = ddl_out_blocks(shape);
    for (int i = 1; i < nresults; i++)
        c->results[i] = ddl_scratch_packed(b, shape->nranks, shape->count, shape->element_bytes);
    return true;
}

static void collect(ddl_builder *b, carrier *c)
{
    const ddl_hosts *hosts = c->hosts;
    for (int i = 1; i < hosts->local.nranks; i++) {
        int peer = ddl_group_peer(&hosts->local, i);
        c->given[peer] = ddl_hosts_carried(b, hosts, c->shape, hosts->local.rank);
        ddl_step_recv(b, peer, ddl_blocks_between(&c->given[peer], 0, hosts->remote.nranks));
    }
}

static void send_to(ddl_builder *b, const carrier *c, int host)
{
    const ddl_hosts *hosts = c->hosts;
    int index = hosts->local.rank, nlocal = hosts->local.nranks, next = 0;
    int nblocks = ddl_hosts_ncarried(hosts, host, index) * nlocal;
    ddl_blocks sent = ddl_scratch_packed(b, nblocks, c->shape->count, c->shape->element_bytes);
    for (int i = index; i < hosts->counts[host]; i += hosts->nslices)
        for (int local = 0; local < nlocal; local++)
            ddl_step_copy(b, ddl_block(&sent, next++),
                          given(c, local, hosts->by_host[hosts->firsts[host] + i]));
    ddl_step_send(b, host, ddl_blocks_between(&sent, 0, nblocks));
}

/* The ranks of a host follow each other, and so do their blocks in OUT. */
static bool arrives_in_place(const carrier *c, int host)
{
    const int *ranks = c->hosts->by_host + c->hosts->firsts[host];
    int last = c->hosts->counts[host] - 1;
    return ranks[last] - ranks[0] == last && ddl_blocks_packed(&c->results[0]);
}

static void recv_from(ddl_builder *b, const carrier *c, int host)
{
    const ddl_hosts *hosts = c->hosts;
    const int *ranks = hosts->by_host + hosts->firsts[host];
    int n = hosts->counts[host], next = 0;
    int nresults = ddl_hosts_ncarried(hosts, hosts->remote.rank, hosts->local.rank);
    if (nresults == 1 && arrives_in_place(c, host)) {
        ddl_step_recv(b, host, ddl_blocks_between(&c->results[0], ranks[0], ranks[0] + n));
        return;
    }
    ddl_blocks come = ddl_scratch_packed(b, nresults * n, c->shape->count, c->shape->element_bytes);
    ddl_step_recv(b, host, ddl_blocks_between(&come, 0, nresults * n));
    for (int i = 0; i < nresults; i++)
        for (int remote = 0; remote < n; remote++)
            ddl_step_copy(b, ddl_block(&c->results[i], ranks[remote]), ddl_block(&come, next++));
}

/* What is given for the rank of index `i` of this host. */
static void keep(ddl_builder *b, const carrier *c, int i)
{
    const ddl_hosts *hosts = c->hosts;
    const ddl_blocks *result = &c->results[i / hosts->nslices];
    for (int local = 0; local < hosts->local.nranks; local++)
        ddl_step_copy(b, ddl_block(result, hosts->local_ranks[local]),
                      given(c, local, hosts->local_ranks[i]));
}

/* In place, OUT is written once nothing is left of IN. */
static void exchange(ddl_builder *b, const carrier *c)
{
    const ddl_hosts *hosts = c->hosts;
    int index = hosts->local.rank, nlocal = hosts->local.nranks;
    ddl_builder_members(b, hosts->twins);
    for (int i = 1; i < hosts->remote.nranks; i++)
        send_to(b, c, ddl_group_peer(&hosts->remote, i));
    for (int i = index + hosts->nslices; i < nlocal; i += hosts->nslices)
        keep(b, c, i);
    keep(b, c, index);
    for (int i = 1; i < hosts->remote.nranks; i++)
        recv_from(b, c, ddl_group_peer(&hosts->remote, -i));
    ddl_builder_members(b, hosts->local_ranks);
    for (int i = index + hosts->nslices; i < nlocal; i += hosts->nslices)
        ddl_step_send(b, i, ddl_blocks_between(&c->results[i / hosts->nslices], 0, c->shape->nranks));
}

static void recv_result(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape)
{
    ddl_blocks out = ddl_out_blocks(shape);
    bool is_packed = ddl_blocks_packed(&out);
    ddl_blocks come = out;
    if (!is_packed)
        come = ddl_scratch_packed(b, shape->nranks, shape->count, shape->element_bytes);
    ddl_slice all = ddl_blocks_between(&come, 0, shape->nranks);
    ddl_step_recv(b, hosts->local.rank % hosts->nslices, all);
    if (!is_packed)
        ddl_unpack_blocks(b, &out, 0, shape->nranks, all);
}

void ddl_alltoall_two_level(ddl_builder *b, const ddl_shape *shape)
{
    ddl_hosts hosts;
    carrier own;
    if (!ddl_hosts_of(b, shape, &hosts))
        return;
    ddl_builder_members(b, hosts.local_ranks);
    if (hosts.local.rank >= hosts.nslices) {
        ddl_hosts_deal(b, &hosts, shape);
        recv_result(b, &hosts, shape);
    } else if (begin(b, &hosts, shape, &own)) {
        collect(b, &own);
        ddl_hosts_deal(b, &hosts, shape);
        exchange(b, &own);
    }
    ddl_builder_members(b, NULL);
}
