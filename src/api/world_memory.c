/* world_memory.c - the memory that ranks of a host share. */
#include "api/world_parts.h"

#include "base/bytes.h"
#include "base/size.h"
#include "rendezvous/neighbours.h"

enum {
    LANES_MOST_BYTES = 1 << 30,
    CROWDED_LANES_BYTES = 8 << 20 /* of all ranks of a host, of which then several share a CPU's caches */
};

/* Join with those of the neighbours that handed something over. */
static ddl_status join_lanes(ddl_world *world, ddl_wire wires[], ddl_neighbour others[], uint8_t shares[],
                             ddl_apart *apart, ddl_deadline deadline, ddl_error *err)
{
    const ddl_roster *roster = world->roster;
    ddl_neighbour own = { -1, -1 };
    if (world->lanes != NULL)
        own = (ddl_neighbour){ ddl_lanes_memory(world->lanes), ddl_lanes_bell(world->lanes) };
    DDL_TRY(ddl_neighbours_meet(roster, wires, own, deadline, others, apart, err));
    for (int rank = 0; rank < roster->nranks; rank++) {
        ddl_error error;
        if (others[rank].memory_fd < 0)
            continue;
        if (ddl_lanes_join(world->lanes, rank, others[rank].memory_fd, others[rank].bell_fd, &error) ==
            DDL_OK)
            shares[rank] = ddl_lanes_share_heaps(world->lanes, rank) ? DDL_SHARES_LANES | DDL_SHARES_HEAPS
                                                                     : DDL_SHARES_LANES;
        else
            ddl_apart_add(apart, rank, &error);
    }
    uint8_t common = 0;
    DDL_TRY(ddl_neighbours_agree(roster, wires, deadline, shares, &common, err));
    if ((common & DDL_SHARES_LANES) != 0)
        atomic_store(&world->free_boards, (1U << DDL_BOARDS) - 1);
    world->has_common_heaps = (common & DDL_SHARES_HEAPS) != 0;
    for (int rank = 0; rank < roster->nranks; rank++) {
        if (world->lanes != NULL && (shares[rank] & DDL_SHARES_LANES) == 0)
            ddl_lanes_part(world->lanes, rank);
        else if (world->lanes != NULL && (shares[rank] & DDL_SHARES_HEAPS) == 0)
            ddl_lanes_drop_heap(world->lanes, rank);
        if (world->config.local_transport == DDL_LOCAL_SHM && ddl_roster_is_neighbour(roster, rank) &&
            ddl_roster_connects(roster, rank) && (shares[rank] & DDL_SHARES_LANES) == 0) {
            ddl_status status =
                DDL_FAIL(err, DDL_EUNSUPPORTED,
                         "DDL_TRANSPORT=shm: no shared memory with rank %d on the same host; a warning "
                         "above, or there, says why",
                         rank);
            err->culprit = rank;
            return status;
        }
    }
    return DDL_OK;
}

/* And what is written of the pad of the first board, which is the world's if that is on one host. */
static void touch_lanes(const ddl_world *world, bool has_board)
{
    const int blocks = 2; /* of two ranks each may say both */
    const size_t said =
        world->roster->nranks == 2 ? blocks * DDL_POSTED_BETWEEN_TWO_BYTES : DDL_POSTED_UNCROWDED_BYTES;
    const ddl_room_part parts[] = { { 0, offsetof(ddl_pad, pages) },
                                    { offsetof(ddl_pad, pages[0]), said },
                                    { offsetof(ddl_pad, pages[1]), said } };
    ddl_lanes_touch(world->lanes, parts, has_board ? 3 : 0);
}

static bool has_board(const ddl_roster *roster)
{
    return roster->local_size_of[roster->rank] <= DDL_BOARD_RANKS;
}

/* This rank's. */
static ddl_status make_own(ddl_world *world, const ddl_roster *roster, ddl_error *err)
{
    ddl_cost_model model;
    DDL_TRY(ddl_cost_model_unpack(roster->costs, roster->ncosts, 1, &model, err));
    size_t lane_bytes = model.lane_bytes < LANES_MOST_BYTES ? (size_t)model.lane_bytes : LANES_MOST_BYTES;
    if (ddl_roster_crowding(roster) > 1)
        lane_bytes =
            ddl_size_min(lane_bytes, CROWDED_LANES_BYTES / (size_t)roster->local_size_of[roster->rank]);
    const size_t board_bytes = sizeof(ddl_pad);
    return ddl_lanes_create(roster, DDL_BOARDS * board_bytes, has_board(roster) ? board_bytes : 0, lane_bytes,
                            &world->lanes, err);
}

ddl_status ddl_world_make_insisted(void *arg, const ddl_roster *roster, ddl_error *err)
{
    ddl_world *world = arg;
    if (world->config.local_transport != DDL_LOCAL_SHM || roster->local_size_of[roster->rank] == 1)
        return DDL_OK;
    return make_own(world, roster, err);
}

ddl_status ddl_world_make_lanes(ddl_world *world, ddl_wire wires[], ddl_deadline deadline, ddl_error *err)
{
    const ddl_roster *roster = world->roster;
    ddl_apart apart = { .nranks = roster->nranks };
    if (roster->local_size_of[roster->rank] == 1)
        return DDL_OK;
    if (world->config.local_transport == DDL_LOCAL_AUTO) {
        ddl_status status = make_own(world, roster, err);
        if (status != DDL_OK && status != DDL_EUNSUPPORTED)
            ddl_apart_add_all(&apart, err);
    }
    ddl_neighbour *others = ddl_alloc_array((size_t)roster->nranks, sizeof *others);
    uint8_t *shares = ddl_alloc_array((size_t)roster->nranks, sizeof *shares);
    apart.ranks = ddl_alloc_array((size_t)roster->nranks, sizeof *apart.ranks);
    ddl_status status = others != NULL && shares != NULL && apart.ranks != NULL
                            ? join_lanes(world, wires, others, shares, &apart, deadline, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for %d neighbours", roster->nranks);
    if (status == DDL_OK && world->lanes != NULL && !ddl_roster_is_crowded(roster))
        touch_lanes(world, has_board(roster)); /* where CPUs are shared, all would wait for all others' */
    ddl_apart_warn(&apart);
    ddl_free(apart.ranks);
    ddl_free(others);
    ddl_free(shares);
    return status;
}

ddl_status ddl_world_make_heap(ddl_world *world, ddl_error *err)
{
    size_t bytes = 0, start = 0;
    void *memory = NULL;
    int fd = -1;
    if (world->lanes != NULL) {
        memory = ddl_lanes_heap(world->lanes, world->config.rank, &bytes);
        start = ddl_lanes_heap_start(world->lanes);
        fd = ddl_lanes_memory(world->lanes);
    }
    return ddl_heap_create(memory, bytes, fd, start, &world->heap, err);
}

/* ---- boards ---- */

int ddl_world_take_board(ddl_world *world)
{
    unsigned boards = atomic_load(&world->free_boards);
    while (boards != 0 && !atomic_compare_exchange_weak(&world->free_boards, &boards, boards & (boards - 1)))
        continue;
    return boards != 0 ? __builtin_ctz(boards) : -1;
}

void ddl_world_give_board(ddl_world *world, int board)
{
    if (board >= 0)
        atomic_fetch_or(&world->free_boards, 1U << board);
}

bool ddl_world_may_have_boards(const ddl_world *world, const int members[], int nranks)
{
    if (nranks < 2 || nranks > DDL_BOARD_RANKS)
        return false;
    for (int i = 1; i < nranks; i++)
        if (world->roster->node_of[members[i]] != world->roster->node_of[members[0]])
            return false;
    return true;
}

ddl_pad *ddl_world_pad(ddl_world *world, int world_rank, int board)
{
    ddl_pad *all = ddl_lanes_room(world->lanes, world_rank);
    return all + board;
}
