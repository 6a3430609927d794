/* hosts.c - which ranks share this rank's host, and which ones carry the same slice on the others. */
#include "algorithms/builders.h"

#include "base/assert.h"

enum { HOSTS_AT_ONCE = 256 };

static int host_of(const ddl_placement *placement, int rank)
{
    return placement->node_of == NULL ? 0 : placement->node_of[rank];
}

int ddl_hosts_least(const ddl_placement *placement, int *most)
{
    int least = placement->nranks, nhosts = placement->node_of == NULL ? 1 : placement->nnodes;
    *most = 0;
    for (int first = 0; first < nhosts; first += HOSTS_AT_ONCE) {
        int counts[HOSTS_AT_ONCE] = { 0 };
        for (int rank = 0; rank < placement->nranks; rank++) {
            int host = host_of(placement, rank) - first;
            if (0 <= host && host < HOSTS_AT_ONCE)
                counts[host]++;
        }
        for (int i = 0; i < HOSTS_AT_ONCE && first + i < nhosts; i++) {
            least = counts[i] < least ? counts[i] : least;
            *most = counts[i] > *most ? counts[i] : *most;
        }
    }
    return least;
}

bool ddl_hosts_of(ddl_builder *b, const ddl_shape *shape, ddl_hosts *hosts)
{
    ddl_placement where = shape->placement;
    where.nranks = shape->nranks;
    int p = where.nranks, nhosts = where.node_of == NULL ? 1 : where.nnodes, most;
    int *memory = ddl_builder_alloc(b, 2 * (size_t)p + 3 * (size_t)nhosts, sizeof *memory);
    if (memory == NULL)
        return false;
    int *index_of = memory, *by_host = index_of + p, *twins = by_host + p, *counts = twins + nhosts;
    int *firsts = counts + nhosts, host = host_of(&where, shape->rank);
    for (int rank = 0; rank < p; rank++)
        index_of[rank] = counts[host_of(&where, rank)]++;
    for (int i = 1; i < nhosts; i++)
        firsts[i] = firsts[i - 1] + counts[i - 1];
    for (int rank = 0; rank < p; rank++) {
        by_host[firsts[host_of(&where, rank)] + index_of[rank]] = rank;
        if (index_of[rank] == index_of[shape->rank])
            twins[host_of(&where, rank)] = rank;
    }
    *hosts = (ddl_hosts){ .nslices = ddl_hosts_least(&where, &most),
                          .local = { index_of[shape->rank], counts[host] },
                          .local_ranks = by_host + firsts[host],
                          .remote = { host, nhosts },
                          .twins = twins,
                          .counts = counts,
                          .by_host = by_host,
                          .firsts = firsts,
                          .index_of = index_of,
                          .root_host = host_of(&where, shape->root),
                          .root_index = index_of[shape->root] };
    DDL_ASSERT(hosts->nslices > 0);
    return true;
}

/* The root first, its neighbours, and then the other hosts. NULL: no memory. */
static int *line_up(ddl_builder *b, const ddl_hosts *hosts, int nranks)
{
    int *ranks = ddl_builder_alloc(b, (size_t)nranks, sizeof *ranks), n = 0;
    for (int i = 0; ranks != NULL && i < hosts->remote.nranks; i++) {
        int host = (hosts->root_host + i) % hosts->remote.nranks;
        int count = hosts->counts[host], first = i == 0 ? hosts->root_index : 0;
        for (int j = 0; j < count; j++)
            ranks[n++] = hosts->by_host[hosts->firsts[host] + (first + j) % count];
    }
    return ranks;
}

static bool is_circle(const int ranks[], int nranks)
{
    for (int i = 0; i < nranks; i++)
        if (ranks[i] != (ranks[0] + i) % nranks)
            return false;
    return true;
}

bool ddl_line_of(ddl_builder *b, const ddl_shape *shape, const ddl_blocks *blocks, ddl_line *line)
{
    ddl_hosts hosts;
    *line = (ddl_line){ *shape, *blocks, NULL };
    if (shape->placement.node_of == NULL)
        return true;
    size_t n = (size_t)shape->nranks, *counts = ddl_builder_alloc(b, 2 * n, sizeof *counts);
    int *ranks = ddl_hosts_of(b, shape, &hosts) ? line_up(b, &hosts, shape->nranks) : NULL;
    if (counts == NULL || ranks == NULL)
        return false;
    if (is_circle(ranks, shape->nranks))
        return true;
    for (size_t i = 0; i < n; i++) {
        ddl_slice block = ddl_block(blocks, ranks[i]);
        counts[i] = block.bytes / blocks->element_bytes;
        counts[n + i] = (block.offset - blocks->offset) / blocks->element_bytes;
        if (ranks[i] == shape->rank)
            line->shape.rank = (int)i;
    }
    line->shape.root = 0;
    line->blocks = ddl_blocks_in_any_order(blocks->buffer, blocks->offset, shape->nranks,
                                           (ddl_uneven){ counts, counts + n }, blocks->element_bytes);
    line->ranks = ranks;
    return true;
}

int ddl_hosts_ncarried(const ddl_hosts *hosts, int host, int index)
{
    return (hosts->counts[host] - index + hosts->nslices - 1) / hosts->nslices;
}

/* Of the ranks of a host that this index carries for, those before `end` among the host's. */
static size_t carried_bytes(const ddl_hosts *hosts, const ddl_shape *shape, int host, int index, int end)
{
    size_t bytes = 0;
    for (int i = index; i < end; i += hosts->nslices)
        bytes += ddl_shape_bytes(shape, hosts->by_host[hosts->firsts[host] + i]);
    return bytes;
}

ddl_blocks ddl_hosts_carried(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape, int index)
{
    size_t nhosts = (size_t)hosts->remote.nranks, start = 0;
    size_t *counts = ddl_builder_alloc(b, 2 * nhosts, sizeof *counts);
    if (counts == NULL) /* the builder knows */
        return ddl_blocks_apart(DDL_BUFFER_SCRATCH, 0, hosts->remote.nranks, 0, 0, shape->element_bytes);
    size_t *starts = counts + nhosts;
    for (size_t host = 0; host < nhosts; host++) {
        counts[host] =
            carried_bytes(hosts, shape, (int)host, index, hosts->counts[host]) / shape->element_bytes;
        starts[host] = start;
        start += counts[host];
    }
    ddl_slice scratch = ddl_scratch(b, start * shape->element_bytes);
    return ddl_blocks_of_uneven(DDL_BUFFER_SCRATCH, scratch.offset, hosts->remote.nranks,
                                (ddl_uneven){ counts, starts }, shape->element_bytes);
}

ddl_slice ddl_hosts_place(const ddl_hosts *hosts, const ddl_shape *shape, const ddl_blocks *carried, int rank)
{
    int host = host_of(&shape->placement, rank), place = hosts->index_of[rank];
    ddl_slice of_host = ddl_block(carried, host);
    size_t before = carried_bytes(hosts, shape, host, place % hosts->nslices, place);
    return ddl_slice_of(of_host.buffer, of_host.offset + before, ddl_shape_bytes(shape, rank));
}

ddl_slice ddl_hosts_pack(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape,
                         const ddl_blocks *carried, int index)
{
    ddl_blocks in = ddl_in_blocks(shape);
    for (int rank = 0; rank < shape->nranks; rank++)
        if (hosts->index_of[rank] % hosts->nslices == index)
            ddl_step_copy(b, ddl_hosts_place(hosts, shape, carried, rank), ddl_block(&in, rank));
    return ddl_blocks_between(carried, 0, hosts->remote.nranks);
}

void ddl_hosts_deal(ddl_builder *b, const ddl_hosts *hosts, const ddl_shape *shape)
{
    for (int i = 1; i < hosts->local.nranks; i++) {
        int peer = ddl_group_peer(&hosts->local, i);
        if (peer >= hosts->nslices)
            continue;
        ddl_blocks carried = ddl_hosts_carried(b, hosts, shape, peer);
        ddl_step_send(b, peer, ddl_hosts_pack(b, hosts, shape, &carried, peer));
    }
}

void ddl_reduce_scatter_local(ddl_builder *b, const ddl_hosts *hosts, const ddl_blocks *in, ddl_slice result)
{
    const ddl_group *g = &hosts->local;
    bool owns = g->rank < hosts->nslices;
    if (g->nranks == 1)
        return;
    ddl_builder_members(b, hosts->local_ranks);
    ddl_blocks copies = { .nblocks = 0 };
    if (owns)
        copies = ddl_scratch_landings(b, g->nranks, result.bytes / in->element_bytes, in->element_bytes);
    for (int i = 1; i < g->nranks; i++) {
        int peer = ddl_group_peer(g, i);
        if (owns)
            ddl_step_recv(b, peer, ddl_block(&copies, peer));
        if (peer < hosts->nslices)
            ddl_step_send(b, peer, ddl_block(in, peer));
    }
    if (owns)
        ddl_step_reduce_blocks(b, result, &copies, g->rank, ddl_block(in, g->rank));
    ddl_builder_members(b, NULL);
}

void ddl_allgather_local(ddl_builder *b, const ddl_hosts *hosts, const ddl_blocks *all, int full)
{
    const ddl_group *g = &hosts->local;
    ddl_builder_members(b, hosts->local_ranks);
    for (int i = 1; i < g->nranks; i++) {
        int peer = ddl_group_peer(g, i);
        if (peer < hosts->nslices && g->rank != full)
            ddl_step_recv(b, peer, ddl_block(all, peer));
        if (g->rank < hosts->nslices && peer != full)
            ddl_step_send(b, peer, ddl_block(all, g->rank));
    }
    ddl_builder_members(b, NULL);
}
