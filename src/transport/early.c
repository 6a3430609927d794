/* early.c - lists by arrival, and the same entries by their operation, to be found by. */
#include "transport/early.h"

#include "base/bytes.h"
#include "base/size.h"
#include "transport/moving.h"

#include <string.h>

enum { LIMIT = 1 << 20 /* entries that are no messages, held per link; more is a broken peer */ };

typedef struct slab { /* of entries; kept until the end */
    ddl_link link;
    ddl_early entries[64];
} slab;

/* ---- the pool ---- */

static bool add_slab(ddl_early_pool *pool)
{
    slab *added = ddl_alloc(sizeof *added);
    if (added == NULL)
        return false;
    ddl_list_append(&pool->slabs, &added->link);
    for (size_t i = 0; i < sizeof added->entries / sizeof *added->entries; i++)
        ddl_list_append(&pool->free, &added->entries[i].link);
    return true;
}

bool ddl_early_pool_open(ddl_early_pool *pool, int nlinks)
{
    ddl_list_init(&pool->free);
    ddl_list_init(&pool->slabs);
    pool->nrooms = nlinks;
    pool->rooms = nlinks > 0 ? ddl_pages_alloc((size_t)nlinks * sizeof *pool->rooms) : NULL;
    return (nlinks == 0 || pool->rooms != NULL) && add_slab(pool);
}

void ddl_early_pool_close(ddl_early_pool *pool)
{
    ddl_pages_free(pool->rooms, (size_t)pool->nrooms * sizeof *pool->rooms);
    pool->rooms = NULL;
    for (ddl_link *first; (first = ddl_list_take_first(&pool->slabs)) != NULL;)
        ddl_free(DDL_CONTAINER(first, slab, link));
}

static ddl_early *take(ddl_early_pool *pool)
{
    if (ddl_list_empty(&pool->free) && !add_slab(pool))
        return NULL;
    return DDL_CONTAINER(ddl_list_take_first(&pool->free), ddl_early, link);
}

/* ---- life ---- */

void ddl_earlies_init(ddl_earlies *earlies, ddl_early_pool *pool)
{
    earlies->pool = pool;
    ddl_list_init(&earlies->messages);
    ddl_list_init(&earlies->grants);
}

bool ddl_earlies_reserve(ddl_earlies *earlies)
{
    enum { FIRST_ROWS = 16 };
    ddl_early_pool *pool = earlies->pool;
    earlies->free_chunk = DDL_NO_CHUNK;
    earlies->owns_room = pool->nrooms_taken == pool->nrooms;
    earlies->room =
        earlies->owns_room ? ddl_pages_alloc(sizeof *earlies->room) : &pool->rooms[pool->nrooms_taken++];
    return ddl_table_init(&earlies->by_operation, FIRST_ROWS) && earlies->room != NULL;
}

void ddl_earlies_fini(ddl_earlies *earlies)
{
    if (earlies->owns_room)
        ddl_pages_free(earlies->room, sizeof *earlies->room);
    earlies->room = NULL;
    ddl_table_fini(&earlies->by_operation);
}

/* ---- entries ---- */

static uint64_t hash_of(uint32_t channel, uint64_t sequence)
{
    return UINT64_C(7) * channel + sequence;
}

/* Those that may be of this operation; NULL: there is none. */
static const ddl_list *row_of(const ddl_earlies *earlies, uint32_t channel, uint64_t sequence)
{
    if (earlies->by_operation.nobjects == 0)
        return NULL;
    return ddl_table_row(&earlies->by_operation, hash_of(channel, sequence));
}

ddl_early *ddl_earlies_find(const ddl_earlies *earlies, const ddl_list *list, const ddl_key *key)
{
    const ddl_list *row = row_of(earlies, key->channel, key->sequence);
    if (row == NULL)
        return NULL;
    DDL_LIST_FOR_EACH (each, row) {
        ddl_early *entry = DDL_CONTAINER(each, ddl_early, operation.link);
        if (entry->list == list && ddl_frame_is_of(&entry->frame, key))
            return entry;
    }
    return NULL;
}

ddl_early *ddl_earlies_hold(ddl_earlies *earlies, ddl_list *list, const ddl_frame *frame, ddl_error *err)
{
    if (frame->type != DDL_FRAME_EAGER && ++earlies->nwords > LIMIT) {
        DDL_FAIL(
            err, DDL_EPROTO,
            "more than %d asks and grants for operations that were not issued here; a program that is so far "
            "ahead has to wait for some of its requests",
            LIMIT);
        return NULL;
    }
    ddl_early *entry = take(earlies->pool);
    if (entry == NULL) {
        DDL_FAIL(err, DDL_ENOMEM, "no memory to hold an early message");
        return NULL;
    }
    ddl_table_add(&earlies->by_operation, &entry->operation, hash_of(frame->channel, frame->sequence));
    entry->list = list;
    entry->frame = *frame;
    entry->received = 0;
    entry->first_chunk = entry->last_chunk = DDL_NO_CHUNK;
    ddl_list_append(list, &entry->link);
    return entry;
}

static void free_chunks(ddl_earlies *earlies, ddl_early *entry)
{
    for (uint16_t chunk = entry->first_chunk; chunk != DDL_NO_CHUNK;) {
        uint16_t next = earlies->room->next_chunk[chunk];
        earlies->room->next_chunk[chunk] = earlies->free_chunk;
        earlies->free_chunk = chunk;
        chunk = next;
    }
    entry->first_chunk = entry->last_chunk = DDL_NO_CHUNK;
}

void ddl_earlies_drop(ddl_earlies *earlies, ddl_early *entry)
{
    free_chunks(earlies, entry);
    earlies->nwords -= entry->frame.type != DDL_FRAME_EAGER ? 1 : 0;
    ddl_table_remove(&earlies->by_operation, &entry->operation);
    ddl_list_remove(&entry->link);
    ddl_list_append(&earlies->pool->free, &entry->link);
}

/* ---- their bytes ---- */

/* DDL_NO_CHUNK: there is none. */
static uint16_t take_chunk(ddl_earlies *earlies)
{
    const uint16_t chunk = earlies->free_chunk;
    if (chunk == DDL_NO_CHUNK)
        return earlies->nchunks < DDL_CHUNKS ? (uint16_t)earlies->nchunks++ : DDL_NO_CHUNK;
    earlies->free_chunk = earlies->room->next_chunk[chunk];
    return chunk;
}

/* False: there is none. */
static bool add_chunk(ddl_earlies *earlies, ddl_early *entry)
{
    const uint16_t chunk = take_chunk(earlies);
    if (chunk == DDL_NO_CHUNK)
        return false;
    earlies->room->next_chunk[chunk] = DDL_NO_CHUNK;
    if (entry->last_chunk == DDL_NO_CHUNK)
        entry->first_chunk = chunk;
    else
        earlies->room->next_chunk[entry->last_chunk] = chunk;
    entry->last_chunk = chunk;
    return true;
}

bool ddl_earlies_fill(ddl_earlies *earlies, ddl_early *entry, const uint8_t *bytes, size_t count,
                      ddl_error *err)
{
    while (count > 0) {
        size_t at = entry->received % DDL_CHUNK_BYTES;
        if (at == 0 && !add_chunk(earlies, entry)) {
            DDL_FAIL(err, DDL_EPROTO, "more early bytes than the budget of %d KiB",
                     DDL_CHUNKS * DDL_CHUNK_BYTES / 1024);
            return false;
        }
        size_t fits = ddl_size_min(count, DDL_CHUNK_BYTES - at);
        memcpy(earlies->room->chunks[entry->last_chunk] + at, bytes, fits);
        entry->received += (uint32_t)fits;
        bytes += fits;
        count -= fits;
    }
    return true;
}

void ddl_earlies_drain(ddl_earlies *earlies, ddl_early *entry, ddl_xfer *xfer)
{
    size_t left = entry->received;
    for (uint16_t chunk = entry->first_chunk; chunk != DDL_NO_CHUNK;
         chunk = earlies->room->next_chunk[chunk]) {
        size_t count = ddl_size_min(left, DDL_CHUNK_BYTES);
        ddl_moving_fill(xfer, earlies->room->chunks[chunk], count);
        left -= count;
    }
    free_chunks(earlies, entry);
}

void ddl_earlies_visit(const ddl_earlies *earlies, uint32_t channel, uint64_t sequence,
                       void (*visit)(void *arg, int peer, const ddl_frame *frame), void *arg, int peer)
{
    const ddl_list *row = row_of(earlies, channel, sequence);
    if (row == NULL)
        return;
    DDL_LIST_FOR_EACH (each, row) {
        const ddl_early *entry = DDL_CONTAINER(each, ddl_early, operation.link);
        if (entry->frame.channel == channel && entry->frame.sequence == sequence)
            visit(arg, peer, &entry->frame);
    }
}
