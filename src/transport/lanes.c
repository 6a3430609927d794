/* lanes.c - where in the shared memory what lies, and who sleeps. */
#include "transport/lanes.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/size.h"
#include "io/host.h"
#include "io/local.h"
#include "protocol/overlay.h"
#include "transport/doze.h"

#include <unistd.h>

enum { PAGE_BYTES = 4096, LARGEST_LANE = 2 * 1024 * 1024, TOUCHED_MOST = 16 * 1024 * 1024 };

/*
 * A rank's memory: its control, the room, the lanes to it, their rings, and the heap. What is looked at of
 * lanes that nobody uses is a few pages for all of them, and not beside what all others have to look at, as
 * the system maps what is near by with it.
 */

/* The beginning of a rank's memory. */
struct control {
    _Alignas(128) ddl_doze doze;
    /* Where, in memory of the rank alone, these random bytes lie as well: whoever finds them there reads the
     * right process. */
    _Alignas(128) uint64_t mark;
    uint64_t mark_address;
    _Alignas(128) _Atomic(uint64_t) place; /* see balance.c */
};

struct pair { /* this rank and another of the host */
    ddl_lane_end in, out;
    void *memory; /* the other's; NULL: not joined */
    void *heap;   /* the other's; NULL: it has none, or none that is used */
    size_t heap_bytes;
    bool shares_heaps;
    enum { UNKNOWN, READABLE, UNREADABLE } source; /* the other's memory, for this rank */
    int bell_fd;                                   /* the other's */
};

struct ddl_lanes {
    const ddl_roster *roster;
    size_t capacity;                              /* of a lane */
    size_t room_bytes, lanes_bytes, memory_bytes; /* behind which the heap begins */
    void *memory, *heap;
    size_t heap_bytes;
    int memory_fd, bell_fd;
    bool said_asleep;
    atomic_bool rang;
    uint64_t mark;      /* see control */
    struct pair *pairs; /* of each rank of the world */
    int npairs;
};

/* At least the message of a piece, but less where many ranks would take much memory. The two lanes of a pair
 * go round in a cache of 1 MiB, which larger ones do not (16 KiB took 1.3 times as long with 512 KiB); so
 * more is for machines only that want it. */
static size_t capacity_for(int local_ranks, size_t lane_bytes)
{
    size_t capacity = local_ranks <= 16 ? 256 * 1024 : local_ranks <= 64 ? 64 * 1024 : 16 * 1024;
    while (capacity < LARGEST_LANE && 2 * capacity <= lane_bytes / (size_t)local_ranks)
        capacity *= 2;
    return capacity;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* A page between them, as what is a power of two apart has the same places in caches. */
static size_t ring_stride(size_t capacity)
{
    return whole_pages(capacity) + PAGE_BYTES;
}

static uint8_t *first_lane(const ddl_lanes *lanes, void *memory)
{
    return (uint8_t *)memory + PAGE_BYTES + lanes->room_bytes;
}

static uint8_t *ring_of(const ddl_lanes *lanes, void *memory, int local_rank)
{
    return first_lane(lanes, memory) + lanes->lanes_bytes + (size_t)local_rank * ring_stride(lanes->capacity);
}

/* An end of the lane in a rank's memory by which local_rank writes to it. */
static void open_lane(const ddl_lanes *lanes, void *memory, int local_rank, ddl_lane_end *end)
{
    ddl_lane *first = (ddl_lane *)(void *)first_lane(lanes, memory);
    ddl_lane_open(end, first + local_rank, ring_of(lanes, memory, local_rank), lanes->capacity);
}

/* As much as there is memory; what is not used costs nothing but addresses, and where these are limited there
 * is none. */
static size_t heap_bytes_for(int local_ranks)
{
    const uint64_t limit = sizeof(void *) > 4 ? UINT64_C(1) << 44 : UINT64_C(1) << 29;
    uint64_t page_bytes = ddl_local_page_bytes(), bytes = ddl_host_memory();
    if (bytes > limit / (uint64_t)local_ranks)
        bytes = limit / (uint64_t)local_ranks;
    return ddl_host_limits_addresses() ? 0 : (size_t)(bytes / page_bytes * page_bytes);
}

/* Of all ranks here, and the lanes between those that are connected at the start: the usher and each of the
 * others have two more than the overlay's. They touch it only later, and would be killed where the memory is
 * not there then. */
static uint64_t bytes_of_all(const ddl_lanes *lanes, size_t used_bytes)
{
    const ddl_roster *roster = lanes->roster;
    const int others = roster->local_size_of[roster->rank] - 1;
    const int few = ddl_overlay_degree(roster->nranks) + 2;
    const int links = ddl_roster_is_sparse(roster) && few < others ? few : others;
    return (uint64_t)(others + 1) * ((uint64_t)links * ring_stride(lanes->capacity) + used_bytes);
}

static ddl_status create_memory(ddl_lanes *lanes, size_t heap_bytes, ddl_error *err)
{
    DDL_TRY(ddl_local_memory_create(lanes->memory_bytes + heap_bytes, &lanes->memory_fd, err));
    ddl_status status =
        ddl_local_memory_map(lanes->memory_fd, 0, lanes->memory_bytes, DDL_LOCAL_DENSE, &lanes->memory, err);
    if (status == DDL_OK && heap_bytes > 0)
        status = ddl_local_memory_map(lanes->memory_fd, lanes->memory_bytes, heap_bytes, DDL_LOCAL_SPARSE,
                                      &lanes->heap, err);
    if (status == DDL_OK) {
        lanes->heap_bytes = heap_bytes;
        ddl_local_pages_keep_in_children(lanes->heap, heap_bytes);
        return DDL_OK;
    }
    ddl_local_memory_unmap(lanes->memory, lanes->memory_bytes);
    lanes->memory = NULL;
    close(lanes->memory_fd);
    lanes->memory_fd = -1;
    return status;
}

ddl_status ddl_lanes_create(const ddl_roster *roster, size_t room_bytes, size_t used_bytes, size_t lane_bytes,
                            ddl_lanes **out, ddl_error *err)
{
    ddl_lanes *lanes = ddl_alloc(sizeof *lanes);
    if (lanes == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for lanes");
    int local_ranks = roster->local_size_of[roster->rank];
    lanes->roster = roster;
    lanes->capacity = capacity_for(local_ranks, lane_bytes);
    lanes->room_bytes = whole_pages(room_bytes);
    size_t system_page_bytes = ddl_local_page_bytes();
    lanes->lanes_bytes = whole_pages((size_t)local_ranks * sizeof(ddl_lane));
    lanes->memory_bytes = PAGE_BYTES + lanes->room_bytes + lanes->lanes_bytes +
                          (size_t)local_ranks * ring_stride(lanes->capacity);
    lanes->memory_bytes =
        (lanes->memory_bytes + system_page_bytes - 1) / system_page_bytes * system_page_bytes;
    lanes->memory_fd = lanes->bell_fd = -1;
    lanes->npairs = roster->nranks;
    lanes->pairs = ddl_alloc_array((size_t)roster->nranks, sizeof *lanes->pairs);
    ddl_status status = DDL_OK;
    if (lanes->pairs == NULL)
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory for lanes to %d ranks", roster->nranks);
    if (status == DDL_OK)
        status = ddl_host_need_memory(bytes_of_all(lanes, used_bytes), err);
    const bool is_enough = status == DDL_OK;
    size_t heap_bytes = heap_bytes_for(local_ranks);
    if (is_enough)
        status = create_memory(lanes, heap_bytes, err);
    if (status != DDL_OK && is_enough && heap_bytes > 0)
        status = create_memory(lanes, 0, err);
    if (status == DDL_OK)
        status = ddl_local_bell_create(&lanes->bell_fd, err);
    if (status == DDL_OK)
        status = ddl_host_random(&lanes->mark, sizeof lanes->mark, err);
    if (status != DDL_OK) {
        ddl_lanes_destroy(lanes);
        return status;
    }
    struct control *control = lanes->memory;
    control->mark = lanes->mark;
    control->mark_address = (uintptr_t)&lanes->mark;
    *out = lanes;
    return DDL_OK;
}

int ddl_lanes_memory(const ddl_lanes *lanes)
{
    return lanes->memory_fd;
}

_Atomic(uint64_t) *ddl_lanes_place(ddl_lanes *lanes, int rank)
{
    struct control *control = rank == lanes->roster->rank ? lanes->memory : lanes->pairs[rank].memory;
    return control != NULL ? &control->place : NULL;
}

int ddl_lanes_bell(const ddl_lanes *lanes)
{
    return lanes->bell_fd;
}

/* What the other one handed over: all of it in one piece, if there are addresses for its heap too. */
static ddl_status map_memory(const ddl_lanes *lanes, struct pair *pair, int memory_fd, ddl_error *err)
{
    const size_t page_bytes = ddl_local_page_bytes();
    size_t bytes;
    void *memory;
    DDL_TRY(ddl_local_memory_check(memory_fd, lanes->memory_bytes, &bytes, err));
    const size_t heap_bytes = (bytes - lanes->memory_bytes) / page_bytes * page_bytes;
    const bool may_map = !ddl_host_limits_addresses();
    pair->shares_heaps =
        heap_bytes == 0 || (may_map && ddl_local_memory_map(memory_fd, 0, lanes->memory_bytes + heap_bytes,
                                                            DDL_LOCAL_SPARSE, &memory, err) == DDL_OK);
    if (heap_bytes == 0 || !pair->shares_heaps)
        return ddl_local_memory_map(memory_fd, 0, lanes->memory_bytes, DDL_LOCAL_DENSE, &pair->memory, err);
    pair->memory = memory;
    pair->heap = (uint8_t *)memory + lanes->memory_bytes;
    pair->heap_bytes = heap_bytes;
    return DDL_OK;
}

ddl_status ddl_lanes_join(ddl_lanes *lanes, int peer, int memory_fd, int bell_fd, ddl_error *err)
{
    struct pair *pair = &lanes->pairs[peer];
    const ddl_roster *roster = lanes->roster;
    DDL_ASSERT(pair->memory == NULL);
    ddl_status status = map_memory(lanes, pair, memory_fd, err);
    close(memory_fd); /* the mapping stays */
    if (status != DDL_OK) {
        close(bell_fd);
        return status;
    }
    pair->bell_fd = bell_fd;
    open_lane(lanes, lanes->memory, roster->local_rank_of[peer], &pair->in);
    open_lane(lanes, pair->memory, roster->local_rank_of[roster->rank], &pair->out);
    return DDL_OK;
}

static void touch_all_but_rings(const ddl_lanes *lanes, void *memory, const ddl_room_part parts[], int nparts)
{
    uint8_t *room = (uint8_t *)memory + PAGE_BYTES;
    ddl_local_pages_touch(memory, PAGE_BYTES);
    for (int i = 0; i < nparts; i++)
        ddl_local_pages_touch(room + parts[i].offset, parts[i].bytes);
    ddl_local_pages_touch(first_lane(lanes, memory), lanes->lanes_bytes);
}

void ddl_lanes_touch(ddl_lanes *lanes, const ddl_room_part parts[], int nparts)
{
    const ddl_roster *roster = lanes->roster;
    const int own = roster->local_rank_of[roster->rank];
    const size_t bytes =
        ddl_size_min(lanes->capacity, TOUCHED_MOST / (size_t)roster->local_size_of[roster->rank]);
    touch_all_but_rings(lanes, lanes->memory, parts, nparts);
    for (int peer = 0; peer < roster->nranks; peer++)
        if (lanes->pairs[peer].memory != NULL)
            ddl_local_pages_touch(ring_of(lanes, lanes->memory, roster->local_rank_of[peer]), bytes);
    for (int peer = 0; peer < roster->nranks; peer++) { /* which they have touched meanwhile */
        if (lanes->pairs[peer].memory == NULL)
            continue;
        touch_all_but_rings(lanes, lanes->pairs[peer].memory, parts, nparts);
        ddl_local_pages_touch(ring_of(lanes, lanes->pairs[peer].memory, own), bytes);
    }
}

void ddl_lanes_drop_heap(ddl_lanes *lanes, int peer)
{
    struct pair *pair = &lanes->pairs[peer];
    ddl_local_memory_unmap(pair->heap, pair->heap_bytes);
    pair->heap = NULL;
    pair->heap_bytes = 0;
    pair->shares_heaps = false;
}

bool ddl_lanes_share_heaps(const ddl_lanes *lanes, int peer)
{
    return lanes->pairs[peer].shares_heaps;
}

void ddl_lanes_part(ddl_lanes *lanes, int peer)
{
    struct pair *pair = &lanes->pairs[peer];
    if (pair->memory == NULL)
        return;
    ddl_lanes_drop_heap(lanes, peer);
    ddl_local_memory_unmap(pair->memory, lanes->memory_bytes);
    close(pair->bell_fd);
    pair->memory = NULL;
}

bool ddl_lanes_reach(const ddl_lanes *lanes, int peer)
{
    return lanes->pairs[peer].memory != NULL;
}

ddl_lane_end *ddl_lanes_out(ddl_lanes *lanes, int peer)
{
    return &lanes->pairs[peer].out;
}

ddl_lane_end *ddl_lanes_in(ddl_lanes *lanes, int peer)
{
    return &lanes->pairs[peer].in;
}

/* False: the process that is known by this number here is another one, or does not let itself be read. */
static bool read_there(const ddl_lanes *lanes, int peer, uint64_t address, const struct iovec parts[],
                       int count)
{
    ddl_error error;
    const struct control *control = lanes->pairs[peer].memory;
    const ddl_local_mark mark = { control->mark_address, control->mark };
    return ddl_local_read(lanes->roster->members[peer].pid, &mark, address, parts, count, &error) == DDL_OK;
}

bool ddl_lanes_can_pull(ddl_lanes *lanes, int peer)
{
    struct pair *pair = &lanes->pairs[peer];
    if (pair->source == UNKNOWN)
        pair->source = read_there(lanes, peer, 0, NULL, 0) ? READABLE : UNREADABLE;
    return pair->source == READABLE;
}

bool ddl_lanes_pull(ddl_lanes *lanes, int peer, uint64_t address, const struct iovec parts[], int count)
{
    bool read = read_there(lanes, peer, address, parts, count);
    if (!read)
        lanes->pairs[peer].source = UNREADABLE;
    return read;
}

void *ddl_lanes_room(ddl_lanes *lanes, int rank)
{
    void *memory = rank == lanes->roster->rank ? lanes->memory : lanes->pairs[rank].memory;
    DDL_ASSERT(memory != NULL);
    return (uint8_t *)memory + PAGE_BYTES;
}

void *ddl_lanes_heap(const ddl_lanes *lanes, int rank, size_t *bytes)
{
    bool own = rank == lanes->roster->rank;
    *bytes = own ? lanes->heap_bytes : lanes->pairs[rank].heap_bytes;
    return own ? lanes->heap : lanes->pairs[rank].heap;
}

size_t ddl_lanes_heap_start(const ddl_lanes *lanes)
{
    return lanes->memory_bytes;
}

/* Aside, so that who finds nobody asleep, as in most small calls, saves no registers. */
static __attribute__((noinline)) void ring_for_sleepers(ddl_lanes *lanes, const int peers[], int npeers)
{
    for (int i = 0; i < npeers; i++) {
        const struct pair *pair = &lanes->pairs[peers[i]];
        struct control *control = pair->memory;
        if (peers[i] != lanes->roster->rank && ddl_doze_take(&control->doze)) {
            ddl_local_bell_ring(pair->bell_fd);
            atomic_store_explicit(&lanes->rang, true, memory_order_relaxed);
        }
    }
}

bool ddl_lanes_have_rung(ddl_lanes *lanes)
{
    return atomic_exchange_explicit(&lanes->rang, false, memory_order_relaxed);
}

void ddl_lanes_wake(ddl_lanes *lanes, const int peers[], int npeers)
{
    const int own = lanes->roster->rank;
    ddl_doze_told();
    for (int i = 0; i < npeers; i++) {
        if (peers[i] == own)
            continue;
        const struct control *control = lanes->pairs[peers[i]].memory;
        if (ddl_doze_sees(&control->doze)) {
            ring_for_sleepers(lanes, peers + i, npeers - i);
            return;
        }
    }
}

void ddl_lanes_set_asleep(ddl_lanes *lanes, bool asleep)
{
    struct control *control = lanes->memory;
    if (!asleep && !lanes->said_asleep)
        return;
    lanes->said_asleep = asleep;
    if (asleep)
        ddl_doze_begin(&control->doze);
    else
        ddl_doze_end(&control->doze);
}

void ddl_lanes_destroy(ddl_lanes *lanes)
{
    if (lanes == NULL)
        return;
    for (int peer = 0; peer < lanes->npairs && lanes->pairs != NULL; peer++)
        ddl_lanes_part(lanes, peer);
    ddl_local_memory_unmap(lanes->heap, lanes->heap_bytes);
    ddl_local_memory_unmap(lanes->memory, lanes->memory_bytes);
    if (lanes->memory_fd >= 0)
        close(lanes->memory_fd);
    if (lanes->bell_fd >= 0)
        close(lanes->bell_fd);
    ddl_free(lanes->pairs);
    ddl_free(lanes);
}

void ddl_lanes_close_in_child(ddl_lanes *lanes)
{
    for (int peer = 0; peer < lanes->roster->nranks; peer++)
        if (lanes->pairs[peer].memory != NULL)
            close(lanes->pairs[peer].bell_fd);
    close(lanes->memory_fd);
    close(lanes->bell_fd);
}
