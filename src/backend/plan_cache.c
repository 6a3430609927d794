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

/* A program may go round hundreds of sizes, one for each layer of a model, and to make a plan takes longer
 * than most calls. */
enum {
    BUCKET_BITS = 8,
    BUCKETS = 1 << BUCKET_BITS,
    LEAST_PLANS = 128, /* are kept whatever they take */
    MOST_PLANS = 4096,
    MOST_ONCE = 16,    /* plans of calls that came but once */
    MOST_KNOWN = 4096, /* calls whose plans were let go */
    MOST_BYTES = 10 * 1024 * 1024,
    MOST_PASSED = 16,
    /* About, for a step beside itself, in a schedule with what it has for a board, and in a run: */
    SCHEDULED_BYTES = 64,
    WAITING_BYTES = 16,
    MESSAGE_BYTES = 256 /* and for each message of it */
};

typedef enum standing {
    KEPT,  /* its plan is the cache's until others need the room */
    ONCE,  /* of a v form, and came but once */
    KNOWN, /* likewise, and its plan was let go */
    STANDINGS
} standing;

typedef struct entry {
    uint64_t hash;
    ddl_plan *plan;    /* NULL: KNOWN */
    size_t post_bytes; /* that was asked for */
    size_t bytes;
    unsigned nruns;  /* that bytes counts */
    ddl_link link;   /* in its bucket */
    ddl_link by_use; /* the least recently used idle one makes room */
    standing standing;
} entry;

struct ddl_plan_cache {
    bool has_board;
    ddl_list buckets[BUCKETS]; /* of entry */
    struct {
        ddl_list by_use; /* likewise, that which was used last at the end */
        size_t n;
    } of[STANDINGS];
    size_t bytes; /* of all plans */
    ddl_cut_memo cuts;
};

ddl_plan_cache *ddl_plan_cache_create(bool has_board)
{
    ddl_plan_cache *cache = ddl_alloc(sizeof *cache);
    if (cache == NULL)
        return NULL;
    cache->has_board = has_board;
    for (int i = 0; i < BUCKETS; i++)
        ddl_list_init(&cache->buckets[i]);
    for (int i = 0; i < STANDINGS; i++)
        ddl_list_init(&cache->of[i].by_use);
    return cache;
}

/* As the one of its list that was used last. */
static void list(ddl_plan_cache *cache, entry *one, standing where)
{
    one->standing = where;
    ddl_list_append(&cache->of[where].by_use, &one->by_use);
    cache->of[where].n++;
}

static void unlist(ddl_plan_cache *cache, entry *one)
{
    ddl_list_remove(&one->by_use);
    cache->of[one->standing].n--;
}

static void let_go(ddl_plan_cache *cache, entry *old)
{
    cache->bytes -= old->bytes;
    ddl_plan_destroy(old->plan);
    old->plan = NULL;
    old->bytes = 0;
}

static void drop(ddl_plan_cache *cache, entry *old)
{
    unlist(cache, old);
    ddl_list_remove(&old->link);
    let_go(cache, old);
    ddl_free(old);
}

static entry *oldest(ddl_plan_cache *cache, standing where)
{
    return DDL_CONTAINER(ddl_list_first(&cache->of[where].by_use), entry, by_use);
}

void ddl_plan_cache_destroy(ddl_plan_cache *cache)
{
    if (cache == NULL)
        return;
    for (int i = 0; i < STANDINGS; i++)
        while (cache->of[i].n > 0)
            drop(cache, oldest(cache, (standing)i));
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

static bool is_full(const ddl_plan_cache *cache)
{
    const size_t nplans = cache->of[KEPT].n + cache->of[ONCE].n;
    return nplans >= LEAST_PLANS && (nplans >= MOST_PLANS || cache->bytes >= MOST_BYTES);
}

static bool has_enough_once(const ddl_plan_cache *cache)
{
    return cache->of[ONCE].n >= MOST_ONCE;
}

static void retire(ddl_plan_cache *cache, entry *old)
{
    if (old->standing == KEPT) {
        drop(cache, old);
        return;
    }
    let_go(cache, old);
    unlist(cache, old);
    list(cache, old, KNOWN);
    if (cache->of[KNOWN].n > MOST_KNOWN)
        drop(cache, oldest(cache, KNOWN));
}

/* Those in use are as good as new; some of them are passed by, not all that there may be. */
static void make_room_in(ddl_plan_cache *cache, standing where,
                         bool (*lacks_room)(const ddl_plan_cache *cache))
{
    for (int npassed = 0; npassed < MOST_PASSED && cache->of[where].n > 0 && lacks_room(cache);) {
        entry *old = oldest(cache, where);
        if (old->plan->users == 0) {
            retire(cache, old);
            continue;
        }
        unlist(cache, old);
        list(cache, old, where);
        npassed++;
    }
}

/* If all are in use the cache grows for a while. */
static void make_room(ddl_plan_cache *cache)
{
    make_room_in(cache, ONCE, has_enough_once);
    make_room_in(cache, ONCE, is_full);
    make_room_in(cache, KEPT, is_full);
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
        DDL_TRY(ddl_plan_create_posted(algorithm, shape, &cache->cuts, plan, err));
    return *plan != NULL ? DDL_OK : ddl_plan_create(algorithm, &by_messages, &cache->cuts, plan, err);
}

static ddl_status make(ddl_plan_cache *cache, const ddl_algorithm *algorithm, const ddl_shape *shape,
                       entry **made, ddl_error *err)
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
    new->hash = hash_of(algorithm, shape);
    new->post_bytes = shape->post_bytes;
    ddl_list_append(bucket_of(cache, new->hash), &new->link);
    weigh(cache, new);
    *made = new;
    return DDL_OK;
}

/* Of two calls that are as good as never hashed alike, one may pass for the other where its plan was let go.
 */
static entry *look_up(ddl_plan_cache *cache, const ddl_algorithm *algorithm, const ddl_shape *shape)
{
    const uint64_t hash = hash_of(algorithm, shape);
    DDL_LIST_FOR_EACH (link, bucket_of(cache, hash)) {
        entry *there = DDL_CONTAINER(link, entry, link);
        if (there->hash == hash && (there->plan == NULL || (there->post_bytes == shape->post_bytes &&
                                                            ddl_plan_fits(there->plan, algorithm, shape))))
            return there;
    }
    return NULL;
}

ddl_status ddl_plan_cache_find(ddl_plan_cache *cache, const ddl_algorithm *algorithm, const ddl_shape *shape,
                               ddl_plan **found, ddl_error *err)
{
    entry *fitting = look_up(cache, algorithm, shape);
    const bool came_before = fitting != NULL;
    if (came_before && fitting->plan == NULL) {
        drop(cache, fitting);
        fitting = NULL;
    }
    if (fitting == NULL)
        DDL_TRY(make(cache, algorithm, shape, &fitting, err));
    else
        unlist(cache, fitting);
    list(cache, fitting, !came_before && ddl_collective_is_uneven(algorithm->collective) ? ONCE : KEPT);
    if (fitting->nruns != fitting->plan->nruns)
        weigh(cache, fitting);
    *found = fitting->plan;
    return DDL_OK;
}
