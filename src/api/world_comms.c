/* world_comms.c - knows the communicators of a world by their ids, also those to come. */
#include "api/world_parts.h"

#include "api/failure.h"
#include "base/assert.h"
#include "base/bytes.h"

#include <string.h>

enum { EARLY_NOTICES = 256 /* held; of more, the oldest are forgotten */ };

typedef struct early_notice { /* that a communicator failed which this rank has not made yet */
    ddl_link link;
    uint32_t id;
    int peer; /* in the world */
    ddl_notice notice;
} early_notice;

/* The first place in world->freed that holds this id or a greater one. */
static size_t place_among_freed(const ddl_world *world, uint32_t id)
{
    size_t low = 0, high = world->nfreed;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (world->freed[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool ddl_world_is_freed(const ddl_world *world, uint32_t id)
{
    size_t place = place_among_freed(world, id);
    return place < world->nfreed && world->freed[place] == id;
}

/* Room for one more than are active: each of them will be freed. */
static bool reserve_freed(ddl_world *world)
{
    size_t active = 1;
    DDL_LIST_FOR_EACH (link, &world->active) {
        (void)link;
        active++;
    }
    if (world->nfreed + active <= world->freed_capacity)
        return true;
    size_t capacity = 2 * (world->nfreed + active);
    uint32_t *more = ddl_alloc_array(capacity, sizeof *more);
    if (more == NULL)
        return false;
    if (world->nfreed > 0)
        memcpy(more, world->freed, world->nfreed * sizeof *more);
    ddl_free(world->freed);
    world->freed = more;
    world->freed_capacity = capacity;
    return true;
}

static void forget_notice(ddl_world *world, early_notice *early)
{
    ddl_list_remove(&early->link);
    ddl_free(early);
    world->nearly_notices--;
}

void ddl_world_hold_notice(ddl_world *world, uint32_t id, int peer, const ddl_notice *notice)
{
    early_notice *early = ddl_alloc(sizeof *early);
    if (early == NULL)
        return; /* without it the first operation there waits until its deadline */
    early->id = id;
    early->peer = peer;
    early->notice = *notice;
    ddl_list_append(&world->early_notices, &early->link);
    if (++world->nearly_notices > EARLY_NOTICES)
        forget_notice(world, DDL_CONTAINER(ddl_list_first(&world->early_notices), early_notice, link));
}

void ddl_world_forget_notices(ddl_world *world)
{
    for (ddl_link *first; (first = ddl_list_first(&world->early_notices)) != NULL;)
        forget_notice(world, DDL_CONTAINER(first, early_notice, link));
}

static void tell_early_notices(ddl_world *world, ddl_comm *comm)
{
    ddl_list turn;
    ddl_list_init(&turn);
    for (ddl_link *first; (first = ddl_list_take_first(&world->early_notices)) != NULL;)
        ddl_list_append(&turn, first);
    for (ddl_link *first; (first = ddl_list_take_first(&turn)) != NULL;) {
        early_notice *early = DDL_CONTAINER(first, early_notice, link);
        ddl_list_append(&world->early_notices, &early->link);
        if (early->id != comm->id)
            continue;
        int rank = comm->rank_of[early->peer];
        ddl_notice notice = early->notice;
        forget_notice(world, early);
        if (rank >= 0)
            ddl_failure_told(comm, rank, &notice);
    }
}

bool ddl_world_admit(ddl_world *world, ddl_comm *comm)
{
    if (!reserve_freed(world))
        return false;
    ddl_list_append(ddl_world_bucket(world, comm->id), &comm->same_bucket);
    ddl_list_append(&world->active, &comm->active);
    for (int rank = 0; rank < comm->nranks; rank++)
        comm->ngone += rank != comm->rank && ddl_mesh_is_gone(world->mesh, comm->members[rank]);
    tell_early_notices(world, comm);
    return true;
}

void ddl_world_dismiss(ddl_world *world, ddl_comm *comm)
{
    if (!ddl_link_linked(&comm->active))
        return;
    ddl_list_remove(&comm->same_bucket);
    ddl_list_remove(&comm->active);
    size_t place = place_among_freed(world, comm->id);
    DDL_ASSERT(world->nfreed < world->freed_capacity);
    memmove(world->freed + place + 1, world->freed + place, (world->nfreed - place) * sizeof *world->freed);
    world->freed[place] = comm->id;
    world->nfreed++;
    ddl_mesh_forget(world->mesh, comm->id * 2, 2);
}

uint32_t ddl_world_offer(ddl_world *world)
{
    return atomic_fetch_add(&world->offers, 1);
}

uint64_t ddl_world_id(const ddl_world *world, int world_rank, uint32_t offer)
{
    return 1 + (uint64_t)world_rank + (uint64_t)offer * (uint64_t)world->config.nranks;
}
