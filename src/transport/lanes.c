/* lanes.c - where in the shared memory what lies, and who sleeps. */
#include "transport/lanes.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "io/host.h"
#include "io/local.h"

#include <unistd.h>

enum { PAGE_BYTES = 4096 };

/* The addresses that all heaps of a host may take up in each of its ranks. */
static const uint64_t heaps_limit = UINT64_C(1) << 44;

/* The beginning of a rank's memory. */
struct control {
    _Alignas(128) _Atomic(uint32_t) asleep;
};

struct pair { /* this rank and another of the host */
    ddl_lane_end in, out;
    void *memory; /* the other's; NULL: not joined */
    size_t memory_bytes;
    int bell_fd; /* the other's */
};

struct ddl_lanes {
    const ddl_roster *roster;
    size_t capacity; /* of a lane */
    size_t room_bytes;
    size_t heap_start, memory_bytes; /* the heap is what lies between */
    void *memory;
    int memory_fd, bell_fd;
    bool said_asleep;
    struct pair *pairs; /* of each rank of the world */
};

/* The message of a piece; the lanes of a pair go round in a cache of 1 MiB, which larger ones did not (16 KiB
 * took 1.3 times as long). Less where many ranks would take much memory. */
static size_t capacity_for(int local_ranks)
{
    if (local_ranks <= 16)
        return 256 * 1024;
    return local_ranks <= 64 ? 64 * 1024 : 16 * 1024;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static size_t lane_stride(size_t capacity)
{
    return whole_pages(ddl_lane_bytes(capacity));
}

/* The lane in a rank's memory by which local_rank writes to it. */
static void *lane_at(const ddl_lanes *lanes, void *memory, int local_rank)
{
    return (uint8_t *)memory + PAGE_BYTES + lanes->room_bytes +
           (size_t)local_rank * lane_stride(lanes->capacity);
}

/* As much as there is memory; what is not used costs nothing but addresses, and where these are limited there
 * is none. */
static size_t heap_bytes_for(int local_ranks)
{
    uint64_t page_bytes = ddl_local_page_bytes(), bytes = ddl_host_memory();
    uint64_t share = heaps_limit / (uint64_t)local_ranks;
    bytes = bytes < share ? bytes : share;
    return ddl_host_limits_addresses() || bytes > SIZE_MAX / 2 ? 0
                                                               : (size_t)(bytes / page_bytes * page_bytes);
}

/* With a heap, or else without. */
static ddl_status create_memory(ddl_lanes *lanes, int local_ranks, ddl_error *err)
{
    size_t heap_bytes = heap_bytes_for(local_ranks);
    lanes->memory_bytes = lanes->heap_start + heap_bytes;
    if (heap_bytes > 0 &&
        ddl_local_memory_create(lanes->memory_bytes, &lanes->memory_fd, &lanes->memory, err) == DDL_OK) {
        ddl_local_pages_keep_in_children((uint8_t *)lanes->memory + lanes->heap_start, heap_bytes);
        return DDL_OK;
    }
    lanes->memory_bytes = lanes->heap_start;
    return ddl_local_memory_create(lanes->memory_bytes, &lanes->memory_fd, &lanes->memory, err);
}

ddl_status ddl_lanes_create(const ddl_roster *roster, size_t room_bytes, ddl_lanes **out, ddl_error *err)
{
    ddl_lanes *lanes = ddl_alloc(sizeof *lanes);
    if (lanes == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for lanes");
    int local_ranks = roster->local_size_of[roster->rank];
    lanes->roster = roster;
    lanes->capacity = capacity_for(local_ranks);
    lanes->room_bytes = whole_pages(room_bytes);
    size_t system_page_bytes = ddl_local_page_bytes();
    lanes->heap_start = PAGE_BYTES + lanes->room_bytes + (size_t)local_ranks * lane_stride(lanes->capacity);
    lanes->heap_start = (lanes->heap_start + system_page_bytes - 1) / system_page_bytes * system_page_bytes;
    lanes->memory_fd = lanes->bell_fd = -1;
    lanes->pairs = ddl_alloc_array((size_t)roster->nranks, sizeof *lanes->pairs);
    ddl_status status = DDL_OK;
    if (lanes->pairs == NULL)
        status = DDL_FAIL(err, DDL_ENOMEM, "no memory for lanes to %d ranks", roster->nranks);
    if (status == DDL_OK)
        status = create_memory(lanes, local_ranks, err);
    if (status == DDL_OK)
        status = ddl_local_bell_create(&lanes->bell_fd, err);
    if (status != DDL_OK) {
        ddl_lanes_destroy(lanes);
        return status;
    }
    *out = lanes;
    return DDL_OK;
}

int ddl_lanes_memory(const ddl_lanes *lanes)
{
    return lanes->memory_fd;
}

int ddl_lanes_bell(const ddl_lanes *lanes)
{
    return lanes->bell_fd;
}

ddl_status ddl_lanes_join(ddl_lanes *lanes, int peer, int memory_fd, int bell_fd, ddl_error *err)
{
    struct pair *pair = &lanes->pairs[peer];
    const ddl_roster *roster = lanes->roster;
    DDL_ASSERT(pair->memory == NULL);
    ddl_status status =
        ddl_local_memory_map(memory_fd, lanes->heap_start, &pair->memory_bytes, &pair->memory, err);
    close(memory_fd); /* the mapping stays */
    if (status != DDL_OK) {
        close(bell_fd);
        return status;
    }
    pair->bell_fd = bell_fd;
    ddl_lane_open(&pair->in, lane_at(lanes, lanes->memory, roster->local_rank_of[peer]), lanes->capacity);
    ddl_lane_open(&pair->out, lane_at(lanes, pair->memory, roster->local_rank_of[roster->rank]),
                  lanes->capacity);
    return DDL_OK;
}

void ddl_lanes_part(ddl_lanes *lanes, int peer)
{
    struct pair *pair = &lanes->pairs[peer];
    if (pair->memory == NULL)
        return;
    ddl_local_memory_unmap(pair->memory, pair->memory_bytes);
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

void *ddl_lanes_room(ddl_lanes *lanes, int rank)
{
    void *memory = rank == lanes->roster->rank ? lanes->memory : lanes->pairs[rank].memory;
    DDL_ASSERT(memory != NULL);
    return (uint8_t *)memory + PAGE_BYTES;
}

void *ddl_lanes_heap(const ddl_lanes *lanes, int rank, size_t *bytes)
{
    bool own = rank == lanes->roster->rank;
    uint8_t *memory = own ? lanes->memory : lanes->pairs[rank].memory;
    size_t all = own ? lanes->memory_bytes : lanes->pairs[rank].memory_bytes;
    DDL_ASSERT(memory != NULL);
    *bytes = (all - lanes->heap_start) / ddl_local_page_bytes() * ddl_local_page_bytes();
    return *bytes > 0 ? memory + lanes->heap_start : NULL;
}

size_t ddl_lanes_heap_start(const ddl_lanes *lanes)
{
    return lanes->heap_start;
}

void ddl_lanes_nudge(ddl_lanes *lanes, int peer)
{
    const struct pair *pair = &lanes->pairs[peer];
    struct control *control = pair->memory;
    if (atomic_load_explicit(&control->asleep, memory_order_relaxed) != 0 &&
        atomic_exchange_explicit(&control->asleep, 0, memory_order_relaxed) != 0)
        ddl_local_bell_ring(pair->bell_fd);
}

void ddl_lanes_set_asleep(ddl_lanes *lanes, bool asleep)
{
    struct control *control = lanes->memory;
    if (!asleep && !lanes->said_asleep)
        return;
    lanes->said_asleep = asleep;
    atomic_store_explicit(&control->asleep, asleep, memory_order_relaxed);
}

void ddl_lanes_destroy(ddl_lanes *lanes)
{
    if (lanes == NULL)
        return;
    for (int peer = 0; peer < lanes->roster->nranks && lanes->pairs != NULL; peer++)
        ddl_lanes_part(lanes, peer);
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
