/*
 * plan_cache.c - least recently used plans make room.
 *
 * Calls of the v forms may come with counts that never come again. So the plan of a first one is let go after
 * a few others, while its memory is still in the caches of the processor for the next; the call stays known,
 * and if it comes again its plan is kept.
 */
#include "backend/plan_cache.h"

#include "backend/plan_posted.h"
#include "base/bytes.h"
#include "base/size.h"

#include <stdint.h>
#include <string.h>

/* A program may go round hundreds of sizes, one for each layer of a model, and to make a plan takes longer
 * than most calls. */
enum {
    BUCKET_BITS = 8,
    BUCKETS = 1 << BUCKET_BITS,
    LEAST_PLANS = 128, /* are kept whatever they take */
    MOST_PLANS = 4096,
    MOST_ONCE = 16, /* plans of v forms that came but once */
    KNOWN_BITS = 9,
    KNOWN_SETS = 1 << KNOWN_BITS, /* of calls of v forms that came */
    KNOWN_IN_SET = 8,
    MOST_BYTES = 10 * 1024 * 1024,
    MOST_PASSED = 16,
    /* About, for a step beside itself, in a schedule with what it has for a board, and in a run: */
    SCHEDULED_BYTES = 64,
    WAITING_BYTES = 16,
    MESSAGE_BYTES = 256 /* and for each message of it */
};

typedef struct entry {
    uint64_t hash;
    ddl_plan *plan;
    size_t post_bytes; /* that was asked for */
    size_t bytes;
    unsigned nruns;  /* that bytes counts */
    ddl_link link;   /* in its bucket */
    ddl_link by_use; /* the least recently used idle one makes room */
    bool is_once;    /* of a v form, and has not been found again */
    bool is_awaited; /* made by a look: the call that it is for comes yet */
} entry;

struct ddl_plan_cache {
    bool has_board;
    ddl_list buckets[BUCKETS]; /* of entry */
    ddl_list by_use;           /* likewise, that which was used last at the end; */
    ddl_list once;             /* or in this one */
    size_t nplans, nonce, bytes;
    uint64_t known[KNOWN_SETS][KNOWN_IN_SET]; /* hashes, in each set that which came last first; 0: none */
    ddl_cut_memo cuts;
    ddl_posted_memo posted;
};

ddl_plan_cache *ddl_plan_cache_create(bool has_board)
{
    ddl_plan_cache *cache = ddl_alloc(sizeof *cache);
    if (cache == NULL)
        return NULL;
    cache->has_board = has_board;
    for (int i = 0; i < BUCKETS; i++)
        ddl_list_init(&cache->buckets[i]);
    ddl_list_init(&cache->by_use);
    ddl_list_init(&cache->once);
    return cache;
}

static void drop(ddl_plan_cache *cache, entry *old)
{
    ddl_list_remove(&old->link);
    ddl_list_remove(&old->by_use);
    cache->nplans--;
    cache->nonce -= old->is_once;
    cache->bytes -= old->bytes;
    ddl_plan_destroy(old->plan);
    ddl_free(old);
}

void ddl_plan_cache_destroy(ddl_plan_cache *cache)
{
    if (cache == NULL)
        return;
    ddl_list *lists[] = { &cache->once, &cache->by_use };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (ddl_link *first; (first = ddl_list_first(lists[i])) != NULL;)
            drop(cache, DDL_CONTAINER(first, entry, by_use));
    ddl_free(cache);
}

static uint64_t hash_of(const ddl_algorithm *algorithm, const ddl_shape *shape)
{
    uint64_t hash = (uintptr_t)algorithm / sizeof *algorithm;
    hash = hash * 31 + shape->count;
    hash = hash * 31 + (unsigned)shape->root;
    hash = hash * 31 + shape->post_bytes;
    hash = hash * 31 + shape->element_bytes + (shape->in_place ? 16 : 0) + (shape->average ? 32 : 0) +
           (shape->is_staged ? 64 : 0);
    for (int i = 0; shape->blocks.counts != NULL && i < shape->nranks; i++)
        hash = hash * 31 + shape->blocks.counts[i];
    return hash * UINT64_C(0x9e3779b97f4a7c15);
}

static ddl_list *bucket_of(ddl_plan_cache *cache, uint64_t hash)
{
    return &cache->buckets[hash >> (64 - BUCKET_BITS)];
}

/* Whether such a call came before; from now on it did. Two that hash alike pass for one another. */
static bool has_come(ddl_plan_cache *cache, uint64_t hash)
{
    uint64_t *set = cache->known[hash >> (64 - KNOWN_BITS)];
    size_t i = 0;
    while (i < KNOWN_IN_SET - 1 && set[i] != hash)
        i++;
    const bool is_known = set[i] == hash;
    memmove(set + 1, set, i * sizeof *set);
    set[0] = hash;
    return is_known;
}

static bool is_full(const ddl_plan_cache *cache)
{
    return cache->nplans >= LEAST_PLANS && (cache->nplans >= MOST_PLANS || cache->bytes >= MOST_BYTES);
}

static bool has_enough_once(const ddl_plan_cache *cache)
{
    return cache->nonce >= MOST_ONCE;
}

/* Those in use are as good as new; some of them are passed by, not all that there may be. */
static void make_room_in(ddl_plan_cache *cache, ddl_list *list,
                         bool (*lacks_room)(const ddl_plan_cache *cache))
{
    for (int npassed = 0; npassed < MOST_PASSED && lacks_room(cache) && !ddl_list_empty(list);) {
        entry *old = DDL_CONTAINER(ddl_list_first(list), entry, by_use);
        if (old->plan->users == 0) {
            drop(cache, old);
            continue;
        }
        ddl_list_remove(&old->by_use);
        ddl_list_append(list, &old->by_use);
        npassed++;
    }
}

/* If all are in use the cache grows for a while. */
static void make_room(ddl_plan_cache *cache)
{
    make_room_in(cache, &cache->once, has_enough_once);
    make_room_in(cache, &cache->once, is_full);
    make_room_in(cache, &cache->by_use, is_full);
}

/* About what a plan takes with its runs, of which there are as many as were in flight at a time. */
static size_t bytes_of(const ddl_plan *plan)
{
    const size_t array_bytes = (size_t)plan->shape.nranks * sizeof(size_t);
    const size_t nslots = ddl_size_min(plan->npieces, DDL_PIECES_IN_FLIGHT);
    size_t bytes = sizeof *plan + plan->nphases * sizeof *plan->phases, run_bytes = 0;
    bytes += plan->shape.blocks.counts != NULL ? 2 * array_bytes : 0;
    bytes += plan->shape.out_blocks.counts != NULL ? 2 * array_bytes : 0;
    for (uint32_t i = 0; i < plan->nphases; i++) {
        const ddl_plan_phase *phase = &plan->phases[i];
        bytes += phase->counts != NULL ? array_bytes : 0;
        bytes += phase->out_counts != NULL ? array_bytes : 0;
        if (phase->schedule == NULL)
            continue;
        bytes += phase->schedule->nsteps * (sizeof(ddl_step) + SCHEDULED_BYTES);
        run_bytes += phase->schedule->nsteps * WAITING_BYTES + phase->schedule->nmessages * MESSAGE_BYTES;
    }
    return bytes +
           plan->nruns * (sizeof(ddl_plan_run) + nslots * (plan->nphases * sizeof(ddl_run *) + run_bytes));
}

static void weigh(ddl_plan_cache *cache, entry *there)
{
    cache->bytes -= there->bytes;
    there->bytes = bytes_of(there->plan);
    there->nruns = there->plan->nruns;
    cache->bytes += there->bytes;
}

static ddl_status make_plan(ddl_plan_cache *cache, const ddl_algorithm *algorithm, const ddl_shape *shape,
                            ddl_plan **plan, ddl_error *err)
{
    ddl_shape by_messages = *shape;
    by_messages.post_bytes = 0;
    *plan = NULL;
    if (cache->has_board && shape->post_bytes > 0)
        DDL_TRY(ddl_plan_create_posted(algorithm, shape, &cache->cuts, &cache->posted, plan, err));
    return *plan != NULL ? DDL_OK : ddl_plan_create(algorithm, &by_messages, &cache->cuts, plan, err);
}

static ddl_status make(ddl_plan_cache *cache, const ddl_algorithm *algorithm, const ddl_shape *shape,
                       uint64_t hash, entry **made, ddl_error *err)
{
    make_room(cache);
    entry *new = ddl_alloc(sizeof *new);
    if (new == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a plan");
    ddl_status status = make_plan(cache, algorithm, shape, &new->plan, err);
    if (status != DDL_OK) {
        ddl_free(new);
        return status;
    }
    new->hash = hash;
    new->post_bytes = shape->post_bytes;
    ddl_list_append(bucket_of(cache, hash), &new->link);
    new->is_once = ddl_collective_is_uneven(algorithm->collective) && !has_come(cache, hash);
    ddl_list_append(new->is_once ? &cache->once : &cache->by_use, &new->by_use);
    cache->nplans++;
    cache->nonce += new->is_once;
    weigh(cache, new);
    *made = new;
    return DDL_OK;
}

static entry *look_up(ddl_plan_cache *cache, const ddl_algorithm *algorithm, const ddl_shape *shape,
                      uint64_t hash)
{
    DDL_LIST_FOR_EACH (link, bucket_of(cache, hash)) {
        entry *there = DDL_CONTAINER(link, entry, link);
        if (there->hash == hash && there->post_bytes == shape->post_bytes &&
            ddl_plan_fits(there->plan, algorithm, shape))
            return there;
    }
    return NULL;
}

ddl_status ddl_plan_cache_look(ddl_plan_cache *cache, const ddl_algorithm *algorithm, const ddl_shape *shape,
                               ddl_plan **found, ddl_error *err)
{
    const uint64_t hash = hash_of(algorithm, shape);
    entry *fitting = look_up(cache, algorithm, shape, hash);
    if (fitting == NULL) {
        DDL_TRY(make(cache, algorithm, shape, hash, &fitting, err));
        fitting->is_awaited = true;
    }
    *found = fitting->plan;
    return DDL_OK;
}

ddl_status ddl_plan_cache_find(ddl_plan_cache *cache, const ddl_algorithm *algorithm, const ddl_shape *shape,
                               ddl_plan **found, ddl_error *err)
{
    const uint64_t hash = hash_of(algorithm, shape);
    entry *fitting = look_up(cache, algorithm, shape, hash);
    if (fitting == NULL) {
        DDL_TRY(make(cache, algorithm, shape, hash, &fitting, err));
    } else if (!fitting->is_awaited) {
        cache->nonce -= fitting->is_once;
        fitting->is_once = false;
        ddl_list_remove(&fitting->by_use);
        ddl_list_append(&cache->by_use, &fitting->by_use);
    }
    fitting->is_awaited = false;
    if (fitting->nruns != fitting->plan->nruns)
        weigh(cache, fitting);
    *found = fitting->plan;
    return DDL_OK;
}
