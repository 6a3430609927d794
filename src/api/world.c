/* world.c - meets the others and connects; hands what comes over the mesh to the communicator it is for. */
#include "api/world.h"

#include "api/comm.h"
#include "api/contexts.h"
#include "api/failure.h"
#include "api/gpu.h"
#include "api/issue.h"
#include "api/membership.h"
#include "api/settings.h"
#include "api/votes.h"
#include "api/watching.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"
#include "io/host.h"
#include "io/socket.h"
#include "io/wire.h"
#include "rendezvous/neighbours.h"
#include "rendezvous/proof.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EARLY_NOTICES = 256, /* held; of more, the oldest are forgotten */
    COPIES_NEAR_MS = 5,
    COPIES_LOOK_MS = 1,
    WATCH_MS = 250, /* from one look at those who are waited for to the next */
    GPUS_NEAR_MS = 50,
    GPUS_LOOK_MS = 1,
    LAST_MEETINGS_MS = 500,
    MOST_SPEAKERS = 64, /* ranks of a world that all tell who is missing */
    LANES_MOST_BYTES = 1 << 30,
    CROWDED_LANES_BYTES = 8 << 20 /* of all ranks of a host, of which then several share a CPU's caches */
};

#ifdef __APPLE__ /* whose libraries are not linked with it */
#include <crt_externs.h>
#define environ (*_NSGetEnviron())
#else
extern char **environ; /* which POSIX leaves to be declared by who reads it */
#endif

typedef struct early_notice { /* that a communicator failed which this rank has not made yet */
    ddl_link link;
    uint32_t id;
    int peer; /* in the world */
    ddl_notice notice;
} early_notice;

/* ---- communicators by id ---- */

static ddl_list *bucket(ddl_world *world, uint32_t id)
{
    return &world->by_id[id % DDL_WORLD_BUCKETS];
}

static ddl_comm *find(ddl_world *world, uint32_t id)
{
    DDL_LIST_FOR_EACH (link, bucket(world, id)) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, same_bucket);
        if (comm->id == id)
            return comm;
    }
    return NULL;
}

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

static bool is_freed(const ddl_world *world, uint32_t id)
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

static void hold_notice(ddl_world *world, uint32_t id, int peer, const ddl_notice *notice)
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
    ddl_list_append(bucket(world, comm->id), &comm->same_bucket);
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

ddl_sheet *ddl_world_sheets(ddl_world *world, int world_rank, int board)
{
    ddl_sheet *all = ddl_lanes_room(world->lanes, world_rank);
    return all + 2 * board;
}

uint64_t ddl_world_id(const ddl_world *world, int world_rank, uint32_t offer)
{
    return 1 + (uint64_t)world_rank + (uint64_t)offer * (uint64_t)world->config.nranks;
}

/* ---- what is on boards ---- */

static bool finish_posts(ddl_world *world)
{
    bool moved = false;
    if (world->posts_held)
        return false;
    world->posts_held = true;
    DDL_LIST_FOR_EACH (link, &world->posting)
        moved = ddl_posting_progress(DDL_CONTAINER(link, ddl_posting, link)) || moved;
    world->posts_held = false;
    return moved;
}

/* ---- what goes to GPUs and comes from them ---- */

static bool progress_copies(ddl_world *world)
{
    bool moved = false;
    DDL_LIST_FOR_EACH (link, &world->staged)
        moved = ddl_backend_progress_staged(DDL_CONTAINER(link, ddl_staging, link)) || moved;
    if (moved)
        world->copied_ns = ddl_now_ns();
    return moved;
}

static bool waits_for_copies(const ddl_staging *staging)
{
    DDL_LIST_FOR_EACH (link, &staging->running)
        if (ddl_staged_waits(DDL_CONTAINER(link, ddl_staged, link)))
            return true;
    return false;
}

/* Nothing wakes a sleeper at the end of a copy, which mostly is near, or when a stream comes to an operation,
 * which may be any time: after a while a look now and then will do. */
static bool expects_copies(ddl_world *world)
{
    bool waits = false;
    DDL_LIST_FOR_EACH (link, &world->staged)
        waits = waits || waits_for_copies(DDL_CONTAINER(link, ddl_staging, link));
    ddl_engine_set_nap(world->engine, waits ? COPIES_LOOK_MS : 0);
    return waits && ddl_now_ns() - world->copied_ns < COPIES_NEAR_MS * DDL_NS_PER_MS;
}

static bool progress_votes(ddl_world *world)
{
    bool moved = false;
    if (world->posts_held || ddl_list_empty(&world->voting))
        return false;
    world->posts_held = true; /* nor may this list be walked meanwhile */
    DDL_LIST_FOR_EACH (link, &world->voting)
        moved = ddl_votes_progress(DDL_CONTAINER(link, ddl_comm, voting)) || moved;
    world->posts_held = false;
    return moved;
}

/* Nor does anything at the end of what they do among themselves. */
static bool expects_gpus(ddl_world *world)
{
    if (ddl_list_empty(&world->voting))
        return false;
    ddl_engine_set_nap(world->engine, GPUS_LOOK_MS);
    return ddl_now_ns() - world->voted_ns < GPUS_NEAR_MS * DDL_NS_PER_MS;
}

/* What a rank that has gone still took part in. */
static void finish_with(ddl_world *world)
{
    finish_posts(world);
    progress_votes(world);
}

/* ---- what the mesh tells ---- */

static bool on_heard(void *arg, int peer, const ddl_frame *frame)
{
    ddl_world *world = arg;
    uint32_t id = frame->channel / 2;
    ddl_comm *comm = find(world, id);
    if (comm == NULL)
        return !is_freed(world, id);
    int rank = comm->rank_of[peer];
    if (rank < 0 || comm->failure.failed)
        return false;
    return ddl_failure_heard(comm, rank, frame);
}

static void on_told(void *arg, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    ddl_world *world = arg;
    uint32_t id = frame->channel / 2;
    ddl_comm *comm = find(world, id);
    ddl_notice told = *notice;
    told.is_final = frame->number != 0;
    finish_with(world);
    if (comm == NULL) {
        if (!is_freed(world, id))
            hold_notice(world, id, peer, &told);
        return;
    }
    int rank = comm->rank_of[peer];
    if (rank >= 0)
        ddl_failure_told(comm, rank, &told);
}

static bool on_agreement(void *arg, int peer, const ddl_frame *frame, ddl_view payload, ddl_error *err)
{
    ddl_world *world = arg;
    ddl_comm *comm = find(world, frame->channel / 2);
    int rank = comm != NULL ? comm->rank_of[peer] : -1;
    return rank < 0 || ddl_shrink_heard(comm, rank, frame, payload, err);
}

/* Single operations are not cancelled, but for the last one, which may be left alone. */
static bool on_unwanted(void *arg, const ddl_frame *frame)
{
    const ddl_comm *comm = find(arg, frame->channel / 2);
    return comm != NULL && (comm->failure.failing || comm->failure.failed || comm->is_abandoned ||
                            frame->collective == DDL_SIGNATURE_FREE);
}

static void on_left(void *arg, int peer)
{
    ddl_world *world = arg;
    finish_with(world);
    DDL_LIST_FOR_EACH (link, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, active);
        int rank = comm->rank_of[peer];
        if (rank < 0)
            continue;
        ddl_failure_left(comm, rank);
        ddl_shrink_gone(comm, rank);
    }
}

static void on_lost(void *arg, int peer, int os_errno, const ddl_error *error)
{
    ddl_world *world = arg;
    finish_with(world);
    DDL_LIST_FOR_EACH (link, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, active);
        int rank = comm->rank_of[peer];
        if (rank < 0)
            continue;
        ddl_failure_lost(comm, rank, os_errno, error);
        ddl_shrink_gone(comm, rank);
    }
}

static void on_knows(void *arg, int peer, const ddl_frame *frame, ddl_view payload)
{
    ddl_world *world = arg;
    ddl_comm *comm = find(world, frame->channel / 2);
    int rank = comm != NULL ? comm->rank_of[peer] : -1;
    bool is_collective = frame->channel % 2 == DDL_CHANNEL_COLLECTIVE;
    if (rank >= 0 && ddl_votes_is_word(frame))
        ddl_votes_heard(comm, rank, frame, payload);
    else if (rank >= 0 && is_collective && comm->sparse && !comm->failure.failed)
        ddl_failure_knows(comm, rank, frame, payload);
}

/* ---- ranks that connect late ---- */

static void on_reach(void *arg, int peer)
{
    ddl_bootstrap_reach(((ddl_world *)arg)->bootstrap, peer);
}

static void on_widen(void *arg, int peer)
{
    ddl_bootstrap_widen(((ddl_world *)arg)->bootstrap, peer);
}

static void on_met(void *arg, int peer)
{
    ddl_world *world = arg;
    DDL_LIST_FOR_EACH (link, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, active);
        if (comm->rank_of[peer] >= 0)
            ddl_failure_met(comm, comm->rank_of[peer]);
    }
}

/* Large messages to and from a rank go over these. */
static ddl_status widen(ddl_world *world, int rank, const ddl_wire streams[], ddl_error *err)
{
    int count = ddl_roster_streams(world->roster, rank);
    return count > 0 ? ddl_mesh_widen(world->mesh, rank, streams, count, err) : DDL_OK;
}

/* Or all goes on as it does. */
static void widen_late(ddl_world *world, ddl_meshing_outcome *outcome)
{
    ddl_status status = outcome->error.code;
    if (outcome->has_come)
        status = ddl_mesh_widen_late(world->mesh, outcome->rank, outcome->streams, &outcome->error);
    if (status != DDL_OK)
        ddl_log(DDL_LOG_INFO, "rank %d: large messages to rank %d go on over one connection: %s",
                world->config.rank, outcome->rank, outcome->error.text);
}

static void meet_late(ddl_world *world, ddl_meshing_outcome *outcome)
{
    if (outcome->has_come && widen(world, outcome->rank, outcome->streams, &outcome->error) != DDL_OK)
        ddl_wire_close(&outcome->wire);
    if (outcome->wire.fd >= 0)
        ddl_mesh_meet(world->mesh, outcome->rank, outcome->wire);
    else
        ddl_mesh_miss(world->mesh, outcome->rank, &outcome->error);
}

/* Thread: service. */
static void on_arrival(void *arg)
{
    ddl_world *world = arg;
    if (!atomic_exchange(&world->arrived, true))
        ddl_engine_submit(world->engine, &world->arrivals);
}

void ddl_world_tell_aborts(ddl_world *world)
{
    if (!atomic_exchange(&world->has_aborts, true))
        ddl_engine_submit(world->engine, &world->aborts);
}

static void take_aborts(ddl_world *world)
{
    atomic_store(&world->has_aborts, false); /* first: one that is left from now on is submitted again */
    DDL_LIST_FOR_EACH (link, &world->active)
        ddl_comm_do_left_abort(DDL_CONTAINER(link, ddl_comm, active));
}

static void take_arrivals(ddl_world *world)
{
    ddl_meshing_outcome outcome;
    atomic_store(&world->arrived, false); /* first: what comes from now on is submitted again */
    finish_posts(world);
    while (ddl_bootstrap_next(world->bootstrap, &outcome))
        (outcome.widens ? widen_late : meet_late)(world, &outcome);
    ddl_engine_wake(world->engine); /* who waits must see that there is a new connection to wait for */
}

/* ---- what the engine drives ---- */

static bool sweep(void *arg)
{
    ddl_world *world = arg;
    bool posted = finish_posts(world);
    bool copied = !ddl_list_empty(&world->staged) && progress_copies(world);
    return ddl_mesh_sweep(world->mesh) || posted || copied;
}

/* Where calls may go to GPUs. */
static bool sweep_votes(void *arg)
{
    bool swept = sweep(arg);
    return progress_votes(arg) || swept;
}

static bool needs_loop(void *arg)
{
    return ddl_mesh_needs_loop(((ddl_world *)arg)->mesh);
}

static void job(void *arg, ddl_link *link)
{
    ddl_world *world = arg;
    if (link == &world->arrivals)
        take_arrivals(world);
    else if (link == &world->aborts)
        take_aborts(world);
    else
        ddl_issue_job(link);
    ddl_mesh_flush(world->mesh);
}

static void tick(void *arg, int64_t now_ns)
{
    ddl_world *world = arg;
    world->is_watching = now_ns - world->watched_ns >= WATCH_MS * DDL_NS_PER_MS;
    if (world->is_watching)
        world->watched_ns = now_ns;
    world->posts_held = true;
    DDL_LIST_FOR_EACH (link, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, active);
        ddl_failure_tick(comm, now_ns);
        ddl_shrink_tick(comm, now_ns);
    }
    world->posts_held = false;
    ddl_mesh_choose(world->mesh, now_ns);
    if (world->is_watching)
        ddl_watching_look_at_connections(world, now_ns);
    ddl_mesh_flush(world->mesh);
}

static void locate(void *arg, int64_t now_ns)
{
    ddl_world *world = arg;
    ddl_balance_look(&world->balance, world->lanes, world->roster, world->engine, now_ns);
}

static bool busy(void *arg)
{
    const ddl_world *world = arg;
    return world->nbusy > 0 || ddl_mesh_has_queued(world->mesh);
}

static bool doze(void *arg)
{
    ddl_world *world = arg;
    bool missed = ddl_mesh_doze(world->mesh);
    missed = finish_posts(world) || missed;
    if (!ddl_list_empty(&world->staged)) /* a post that has just ended may have left something to do */
        missed = progress_copies(world) || missed;
    return expects_copies(world) || missed;
}

static bool doze_votes(void *arg)
{
    bool missed = doze(arg);
    missed = progress_votes(arg) || missed;
    return expects_gpus(arg) || missed;
}

/* ---- life ---- */

/* Whether another rank of this host tells who is missing. Where no launcher says which, all ranks do, unless
 * there are so many that what each asks the store for would keep it from its work. */
static bool is_quiet(const ddl_config *config)
{
    return config->local_rank > 0 || (config->local_rank < 0 && config->nranks > MOST_SPEAKERS);
}

/* Where there is no GPU nobody is to vote on whose buffers are on one. */
static bool may_use_nccl(const ddl_config *config)
{
    return config->gpu == DDL_GPU_NCCL || (config->gpu == DDL_GPU_AUTO && ddl_gpu_is_likely());
}

static ddl_status meet(ddl_world *world, ddl_wire wires[], ddl_deadline deadline, ddl_error *err)
{
    DDL_TRY(ddl_service_create(&world->service, err));
    ddl_bootstrap_options options = {
        .rank = world->config.rank,
        .nranks = world->config.nranks,
        .prover = world->prover,
        .encryption = world->encryption,
        .generator = DDL_GENERATOR_VERSION,
        .costs = world->config.costs,
        .ncosts = DDL_COST_CONSTANTS,
        .store = world->config.store,
        .master = world->config.master,
        .network = &world->config.network,
        .connect = world->config.connect,
        .nstreams = world->config.nstreams,
        .local = world->config.local_transport != DDL_LOCAL_TCP,
        .insists_on_memory = world->config.local_transport == DDL_LOCAL_SHM,
        .asks_nccl = world->config.gpu == DDL_GPU_NCCL,
        .may_use_nccl = may_use_nccl(&world->config),
        .quiet = is_quiet(&world->config),
        .service = world->service,
        .deadline = deadline,
        .late_ms = world->config.start_timeout_ms,
    };
    return ddl_bootstrap_join(&options, &world->bootstrap, &world->roster, wires, err);
}

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

static ddl_status make_lanes(ddl_world *world, ddl_wire wires[], ddl_deadline deadline, ddl_error *err)
{
    const ddl_roster *roster = world->roster;
    ddl_apart apart = { .nranks = roster->nranks };
    if (roster->local_size_of[roster->rank] == 1)
        return DDL_OK;
    if (world->config.local_transport != DDL_LOCAL_TCP) {
        ddl_cost_model model;
        DDL_TRY(ddl_cost_model_unpack(roster->costs, roster->ncosts, 1, &model, err));
        size_t lane_bytes = model.lane_bytes < LANES_MOST_BYTES ? (size_t)model.lane_bytes : LANES_MOST_BYTES;
        if (ddl_roster_crowding(roster) > 1)
            lane_bytes =
                ddl_size_min(lane_bytes, CROWDED_LANES_BYTES / (size_t)roster->local_size_of[roster->rank]);
        const size_t board_bytes = 2 * sizeof(ddl_sheet);
        const bool has_board = roster->local_size_of[roster->rank] <= DDL_BOARD_RANKS;
        ddl_status status = ddl_lanes_create(roster, DDL_BOARDS * board_bytes, has_board ? board_bytes : 0,
                                             lane_bytes, &world->lanes, err);
        if (status != DDL_OK && world->config.local_transport == DDL_LOCAL_SHM)
            return status;
        if (status != DDL_OK && status != DDL_EUNSUPPORTED)
            ddl_apart_add_all(&apart, err);
    }
    ddl_neighbour *others = ddl_alloc_array((size_t)roster->nranks, sizeof *others);
    uint8_t *shares = ddl_alloc_array((size_t)roster->nranks, sizeof *shares);
    apart.ranks = ddl_alloc_array((size_t)roster->nranks, sizeof *apart.ranks);
    ddl_status status = others != NULL && shares != NULL && apart.ranks != NULL
                            ? join_lanes(world, wires, others, shares, &apart, deadline, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for %d neighbours", roster->nranks);
    ddl_apart_warn(&apart);
    ddl_free(apart.ranks);
    ddl_free(others);
    ddl_free(shares);
    return status;
}

static ddl_status make_heap(ddl_world *world, ddl_error *err)
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

static void close_all(ddl_wire wires[], int count)
{
    for (int i = 0; i < count; i++)
        ddl_wire_close(&wires[i]);
}

/* Ranks vote on what goes to NCCL, and all must take part. */
static ddl_status check_all_ask(const ddl_roster *roster, ddl_error *err)
{
    const ddl_member *first = &roster->members[0];
    int rank = 1;
    while (rank < roster->nranks && roster->members[rank].asks_nccl == first->asks_nccl)
        rank++;
    if (rank == roster->nranks)
        return DDL_OK;
    const ddl_member *other = &roster->members[rank];
    const ddl_member *has = first->asks_nccl ? first : other, *has_not = first->asks_nccl ? other : first;
    (void)DDL_FAIL(
        err, DDL_ECONFIG,
        "rank %d on %s[%d] has DDL_GPU=nccl, and rank %d on %s[%d] has not; set it for all ranks or "
        "for none",
        has->rank, has->host, (int)has->pid, has_not->rank, has_not->host, (int)has_not->pid);
    return ddl_error_blame(err, rank), DDL_ECONFIG;
}

/* NCCL knows no encryption. */
static bool may_not_send_in_clear(const ddl_world *world)
{
    const ddl_roster *roster = world->roster;
    bool one_host = roster->node_count == 1 && ddl_host_id_is_sure(roster->members[0].host_id);
    return world->config.security == DDL_SECURITY_TLS && !one_host;
}

static ddl_status insist_on_nccl(const ddl_world *world, ddl_error *err)
{
    if (ddl_roster_is_sparse(world->roster))
        return DDL_FAIL(err, DDL_ECONFIG,
                        "DDL_GPU=nccl, but not all pairs of the %d ranks are connected at the start; set "
                        "DDL_CONNECT=eager on rank 0, or DDL_GPU=staged",
                        world->roster->nranks);
    if (may_not_send_in_clear(world))
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "DDL_GPU=nccl and DDL_SECURITY=tls, with ranks on several hosts, or where that is not "
            "known as /proc is hidden: NCCL would send between them in clear; set DDL_GPU=staged, "
            "or another level");
    return DDL_OK;
}

/* All ranks find the same. */
static ddl_status choose_voting(ddl_world *world, ddl_error *err)
{
    const ddl_roster *roster = world->roster;
    DDL_TRY(check_all_ask(roster, err));
    if (world->config.gpu == DDL_GPU_NCCL) {
        world->voting_rule = DDL_VOTING_ALWAYS;
        return insist_on_nccl(world, err);
    }
    bool all_may = !ddl_roster_is_sparse(roster) && !may_not_send_in_clear(world);
    for (int rank = 0; rank < roster->nranks; rank++)
        all_may = all_may && roster->members[rank].may_use_nccl;
    world->voting_rule = all_may ? DDL_VOTING_SAMPLED : DDL_VOTING_NEVER;
    if (!all_may && roster->members[roster->rank].may_use_nccl)
        ddl_log(
            DDL_LOG_DEBUG,
            "rank %d: calls on buffers of GPUs go through the hosts: a rank declines NCCL or has no driver, "
            "pairs connect late, or DDL_SECURITY=tls is set on several hosts",
            roster->rank);
    return DDL_OK;
}

/* All ranks find the same. Who cannot share, for another reason than that it does not want to, tells that
 * later. */
static ddl_status check_transports(const ddl_roster *roster, ddl_error *err)
{
    for (int i = 0; i < roster->nranks; i++)
        for (int k = 0; roster->members[i].insists_on_memory && k < roster->nranks; k++) {
            const ddl_member *insists = &roster->members[i], *declines = &roster->members[k];
            if (!declines->declines_memory || roster->node_of[i] != roster->node_of[k])
                continue;
            (void)DDL_FAIL(err, DDL_ECONFIG,
                           "rank %d on %s[%d] has DDL_TRANSPORT=shm, but rank %d on %s[%d] has "
                           "DDL_TRANSPORT=tcp; set the same for both",
                           i, insists->host, (int)insists->pid, k, declines->host, (int)declines->pid);
            return ddl_error_blame(err, k), DDL_ECONFIG;
        }
    return DDL_OK;
}

static ddl_status widen_all(ddl_world *world, ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (int rank = 0; rank < world->config.nranks && status == DDL_OK; rank++) {
        ddl_wire streams[DDL_STREAMS_MAX];
        if (!ddl_roster_connects(world->roster, rank))
            continue;
        ddl_bootstrap_take_streams(world->bootstrap, rank, streams);
        status = widen(world, rank, streams, err);
    }
    return status;
}

static void let_choose(ddl_world *world)
{
    for (int rank = 0; rank < world->config.nranks; rank++) {
        const int most = ddl_roster_most_streams(world->roster, rank);
        if (most > 0)
            ddl_mesh_let_choose(world->mesh, rank, most);
    }
}

static ddl_status set_pull(ddl_world *world, ddl_error *err)
{
    ddl_cost_model model;
    DDL_TRY(ddl_cost_model_unpack(world->roster->costs, world->roster->ncosts, 1, &model, err));
    ddl_mesh_set_pull(world->mesh, model.pull_bytes < DDL_NEVER_PULL ? (size_t)model.pull_bytes : SIZE_MAX);
    return DDL_OK;
}

static ddl_status connect_all(ddl_world *world, ddl_error *err)
{
    ddl_wire *wires = ddl_alloc_array((size_t)world->config.nranks, sizeof *wires);
    if (wires == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d connections", world->config.nranks);
    for (int rank = 0; rank < world->config.nranks; rank++)
        wires[rank] = ddl_no_wire;
    world->wires = wires;
    ddl_deadline deadline = ddl_deadline_in_ms(world->config.start_timeout_ms);
    ddl_status status = meet(world, wires, deadline, err);
    DDL_FAILPOINT_STALL("api.met");
    if (status == DDL_OK && ((status = choose_voting(world, err)) != DDL_OK ||
                             (status = check_transports(world->roster, err)) != DDL_OK))
        close_all(wires, world->config.nranks);
    if (status == DDL_OK && ((status = make_lanes(world, wires, deadline, err)) != DDL_OK ||
                             (status = make_heap(world, err)) != DDL_OK))
        close_all(wires, world->config.nranks);
    if (status == DDL_OK) {
        const ddl_mesh_owner owner = { .heard = on_heard,
                                       .told = on_told,
                                       .agrees = on_agreement,
                                       .left = on_left,
                                       .lost = on_lost,
                                       .cancels = on_unwanted,
                                       .arg = world,
                                       .reach = on_reach,
                                       .met = on_met,
                                       .widen = on_widen,
                                       .knows = on_knows };
        status = ddl_mesh_create(world->config.rank, world->config.nranks, wires, world->lanes, world->heap,
                                 &owner, &world->mesh, err);
    }
    if (status == DDL_OK)
        status = set_pull(world, err);
    if (status == DDL_OK && world->roster->chooses_streams)
        let_choose(world);
    else if (status == DDL_OK)
        status = widen_all(world, err);
    if (status != DDL_OK)
        return status;
    ddl_engine_client client = { sweep, needs_loop, job, tick, locate, busy, doze, world };
    if (world->voting_rule != DDL_VOTING_NEVER) {
        client.sweep = sweep_votes;
        client.doze = doze_votes;
    }
    world->vigils = ddl_alloc_array((size_t)world->config.nranks, sizeof *world->vigils);
    if (world->vigils == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d ranks", world->config.nranks);
    DDL_TRY(ddl_engine_create(&client, ddl_roster_is_crowded(world->roster), &world->engine, err));
    if (!ddl_engine_enter(world->engine, deadline))
        return DDL_FAIL(err, DDL_ETIMEDOUT, "the engine is stuck in another thread (DDL_START_TIMEOUT)");
    status = ddl_mesh_open(world->mesh, world->engine, err);
    ddl_engine_leave(world->engine);
    if (status == DDL_OK)
        ddl_bootstrap_listen(world->bootstrap, on_arrival, world);
    return status;
}

static ddl_status be_alone(ddl_world *world, ddl_error *err)
{
    DDL_TRY(ddl_roster_create(0, 1, &world->roster, err));
    ddl_host_name(world->roster->members[0].host);
    world->roster->members[0].pid = (int32_t)getpid();
    world->roster->members[0].cpus = 1;
    world->roster->ncosts = DDL_COST_CONSTANTS;
    memcpy(world->roster->costs, world->config.costs, sizeof world->config.costs);
    ddl_roster_derive(world->roster);
    return make_heap(world, err);
}

/* Also where the start fails, which may be for want of what was meant; not where it is unknown which rank
 * this is. */
static void warn_of_unknown_settings(const ddl_config *config)
{
    char unknown[640];
    if (config->nranks == 0 || config->rank != 0)
        return;
    ddl_settings_unknown(environ, unknown, sizeof unknown);
    if (unknown[0] != '\0')
        ddl_log(DDL_LOG_WARNING, "ignored, as ddl has no such setting: %s", unknown);
}

ddl_status ddl_world_create(const ddl_options *options, ddl_world **out, ddl_error *err)
{
    ddl_world *world = ddl_alloc(sizeof *world);
    if (world == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a world");
    pthread_mutex_init(&world->lock, NULL);
    ddl_list_init(&world->comms);
    ddl_list_init(&world->active);
    ddl_list_init(&world->early_notices);
    ddl_list_init(&world->posting);
    ddl_list_init(&world->staged);
    ddl_list_init(&world->voting);
    for (int i = 0; i < DDL_WORLD_BUCKETS; i++)
        ddl_list_init(&world->by_id[i]);
    ddl_contexts_add(world);
    ddl_host_fill_standard();
    ddl_status status = ddl_config_read(options, &world->config, err);
    warn_of_unknown_settings(&world->config);
    if (status == DDL_OK && world->config.nranks > 1)
        status = ddl_bootstrap_need_descriptors(world->config.rank, world->config.nranks,
                                                world->config.connect, err);
    if (status == DDL_OK)
        status = ddl_membership_find(&world->config, &world->prover, err);
    if (status == DDL_OK)
        status = ddl_membership_encrypt(&world->config, world->prover, &world->encryption, err);
    if (status == DDL_OK)
        status = world->config.nranks == 1 ? be_alone(world, err) : connect_all(world, err);
    if (status != DDL_OK) {
        err->rank = world->config.nranks > 0 ? world->config.rank : -1;
        (void)ddl_world_destroy(world, ddl_now_ns(), NULL);
        return status;
    }
    ddl_contexts_made(world);
    ddl_free(world->wires);
    world->wires = NULL;
    *out = world;
    return DDL_OK;
}

/* What was told to ranks that are being connected for it, an abort for one, is to reach them. */
static void await_meetings(ddl_world *world)
{
    ddl_deadline deadline = ddl_deadline_in_ms(LAST_MEETINGS_MS);
    bool awaited = ddl_roster_is_sparse(world->roster);
    while (awaited && !ddl_deadline_passed(deadline) && ddl_engine_enter(world->engine, deadline)) {
        ddl_engine_progress(world->engine);
        awaited = ddl_mesh_awaits_meeting(world->mesh);
        ddl_engine_leave(world->engine);
        if (awaited)
            (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(1));
    }
}

static void close_mesh(ddl_world *world, ddl_deadline deadline)
{
    if (world->mesh == NULL || world->engine == NULL)
        return;
    await_meetings(world);
    if (ddl_engine_enter(world->engine, ddl_deadline_in_ms(DDL_COMM_FREE_MS))) {
        take_arrivals(world); /* who is connected just now hears the goodbye too */
        ddl_deadline most = ddl_deadline_in_ms(DDL_WORLD_PARTING_MS);
        ddl_mesh_say_goodbye(world->mesh);
        ddl_mesh_part(world->mesh, deadline < most ? deadline : most);
        ddl_mesh_close(world->mesh);
        ddl_engine_progress(world->engine);
        ddl_bootstrap_shut_door(world->bootstrap);
        ddl_engine_leave(world->engine);
    }
}

/* The service thread first: it tells the engine of ranks that come. */
static ddl_status end_threads(ddl_world *world, ddl_deadline deadline, ddl_error *err)
{
    if (world->service != NULL)
        (void)!ddl_service_check(world->service, deadline, NULL); /* if in vain, nobody waits for it below */
    ddl_bootstrap_leave(world->bootstrap);
    if (!ddl_service_destroy(world->service)) {
        ddl_service_is_lost(world->service, err);
        return DDL_ETIMEDOUT;
    }
    world->service = NULL; /* forked children would look at it, if the world is lost all the same */
    if (!ddl_engine_destroy(world->engine, deadline))
        return DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "the engine's thread is stuck; is it stopped, by a debugger say, or short of CPU time?");
    return DDL_OK;
}

ddl_status ddl_world_destroy(ddl_world *world, ddl_deadline deadline, ddl_error *err)
{
    if (world == NULL)
        return DDL_OK;
    ddl_contexts_remove(world);
    close_mesh(world, deadline);
    if (end_threads(world, deadline, err) != DDL_OK) {
        ddl_contexts_lose(world);
        return DDL_ETIMEDOUT;
    }
    ddl_mesh_destroy(world->mesh);
    ddl_heap_destroy(world->heap);
    ddl_lanes_destroy(world->lanes);
    ddl_encryption_destroy(world->encryption);
    ddl_proof_destroy(world->prover);
    ddl_roster_destroy(world->roster);
    for (ddl_link *first; (first = ddl_list_first(&world->early_notices)) != NULL;)
        forget_notice(world, DDL_CONTAINER(first, early_notice, link));
    ddl_free(world->wires);
    ddl_free(world->vigils);
    ddl_free(world->freed);
    pthread_mutex_destroy(&world->lock);
    ddl_free(world);
    return DDL_OK;
}
