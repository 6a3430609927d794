/* plan_cache.c - least recently used plans make room, and each new one is looked at for whether it goes
 * over a board. */
#include "backend/plan_cache.h"

#include "base/bytes.h"
#include "base/size.h"

#include <stdint.h>

/* A program may go round hundreds of sizes, one for each layer of a model, and to make a plan takes longer
 * than most calls. But in the v forms each call may be another one. */
enum {
    BUCKET_BITS = 8,
    BUCKETS = 1 << BUCKET_BITS,
    LEAST_PLANS = 128, /* are kept whatever they take */
    MOST_PLANS = 4096,
    MOST_BYTES = 10 * 1024 * 1024,
    /* About, for a step beside itself, in a schedule with what it has for a board, and in a run: */
    SCHEDULED_BYTES = 64,
    WAITING_BYTES = 16,
    MESSAGE_BYTES = 256 /* and for each message of it */
};

typedef struct entry {
    ddl_plan *plan;
    size_t post_bytes; /* that was asked for */
    size_t bytes;
    unsigned nruns;  /* that bytes counts */
    ddl_link link;   /* in its bucket */
    ddl_link by_use; /* the least recently used idle one makes room */
} entry;

struct ddl_plan_cache {
    bool has_board;
    ddl_list buckets[BUCKETS]; /* of entry */
    ddl_list by_use;           /* likewise, that which was used last at the end */
    size_t nplans, bytes;
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
    return cache;
}

static void drop(ddl_plan_cache *cache, entry *old)
{
    ddl_list_remove(&old->link);
    ddl_list_remove(&old->by_use);
    cache->nplans--;
    cache->bytes -= old->bytes;
    ddl_plan_destroy(old->plan);
    ddl_free(old);
}

void ddl_plan_cache_destroy(ddl_plan_cache *cache)
{
    if (cache == NULL)
        return;
    for (ddl_link *first; (first = ddl_list_first(&cache->by_use)) != NULL;)
        drop(cache, DDL_CONTAINER(first, entry, by_use));
    ddl_free(cache);
}

static size_t bucket_of(const ddl_algorithm *algorithm, const ddl_shape *shape)
{
    uint64_t hash = (uintptr_t)algorithm / sizeof *algorithm;
    hash = hash * 31 + shape->count;
    hash = hash * 31 + (unsigned)shape->root;
    hash = hash * 31 + shape->element_bytes + (shape->in_place ? 16 : 0) + (shape->average ? 32 : 0) +
           (shape->is_staged ? 64 : 0);
    for (int i = 0; shape->blocks.counts != NULL && i < shape->nranks; i++)
        hash = hash * 31 + shape->blocks.counts[i];
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return hash >> (64 - BUCKET_BITS);
}

static bool is_full(const ddl_plan_cache *cache)
{
    return cache->nplans >= LEAST_PLANS && (cache->nplans >= MOST_PLANS || cache->bytes >= MOST_BYTES);
}

/* If all are in use the cache grows for a while. */
static void make_room(ddl_plan_cache *cache)
{
    DDL_LIST_FOR_EACH (link, &cache->by_use) {
        entry *old = DDL_CONTAINER(link, entry, by_use);
        if (!is_full(cache))
            return;
        if (old->plan->users == 0)
            drop(cache, old);
    }
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

/* Whether such a call may go over a board. All ranks have to know it in whole, which excludes what has counts
 * that only some are told. */
static bool may_be_posted(ddl_collective collective)
{
    const ddl_collective_facts *facts = &ddl_collectives[collective];
    return !facts->is_point_to_point && collective != DDL_COLLECTIVE_ALLTOALLV &&
           !(facts->is_rooted && facts->is_uneven);
}

/* What all ranks say to this one in a piece, and whether it goes over the board. */
static ddl_status hear_all(const ddl_plan *plan, size_t count, bool in_place, ddl_oneshot_word words[],
                           bool *possible, ddl_error *err)
{
    ddl_shape shape = plan->shape;
    shape.count = count;
    for (shape.rank = 0; shape.rank < shape.nranks; shape.rank++) {
        shape.in_place = in_place;
        if (!ddl_plan_makes_sense(plan->algorithm->collective, &shape))
            shape.in_place = !in_place;
        ddl_schedule *schedule;
        DDL_TRY(plan->algorithm->build(&shape, &schedule, err));
        words[shape.rank] = ddl_oneshot_word_to(schedule, plan->shape.rank);
        ddl_schedule_destroy(schedule);
    }
    *possible =
        ddl_oneshot_is_possible(words, shape.nranks, ddl_collective_is_rooted(plan->algorithm->collective));
    return DDL_OK;
}

/* Whether ranks in whose place this one would be, if its call were in place or if it were not, would tell
 * where their buffers are. */
static ddl_status would_tell(const ddl_plan *plan, size_t count, const ddl_oneshot_word words[], bool *would,
                             ddl_error *err)
{
    ddl_shape shape = plan->shape;
    ddl_schedule *schedule;
    ddl_oneshot *oneshot = NULL;
    shape.count = count;
    shape.in_place = !plan->shape.in_place;
    DDL_TRY(plan->algorithm->build(&shape, &schedule, err));
    ddl_status status = ddl_oneshot_create(schedule, words, &oneshot, err);
    *would = status == DDL_OK && ddl_oneshot_common_bytes(oneshot) > 0;
    ddl_oneshot_destroy(oneshot);
    ddl_schedule_destroy(schedule);
    return status;
}

/* All ranks have to find the same, whether their own call is in place or not. */
static ddl_status derive_oneshot(const ddl_plan *plan, ddl_plan_phase *phase, ddl_error *err)
{
    ddl_oneshot_word words[2][DDL_BOARD_RANKS];
    bool possible[2] = { false, plan->algorithm->collective == DDL_COLLECTIVE_BARRIER };
    for (int in_place = 0; in_place < 2 && !possible[in_place]; in_place++)
        DDL_TRY(hear_all(plan, phase->count, in_place == 1, words[in_place], &possible[in_place], err));
    if (!possible[0] || !possible[1])
        return DDL_OK;
    const int own = plan->shape.in_place ? 1 : 0;
    DDL_TRY(ddl_oneshot_create(phase->schedule, words[own], &phase->oneshot, err));
    bool would = true;
    if (ddl_oneshot_common_bytes(phase->oneshot) > 0)
        DDL_TRY(would_tell(plan, phase->count, words[1 - own], &would, err));
    if (!would)
        ddl_oneshot_forgo_common(phase->oneshot);
    return DDL_OK;
}

/* *plan is NULL if it cannot go over the board. */
static ddl_status make_posted(const ddl_plan_cache *cache, const ddl_algorithm *algorithm,
                              const ddl_shape *shape, ddl_plan **plan, ddl_error *err)
{
    *plan = NULL;
    if (shape->post_bytes == 0 || !cache->has_board || !may_be_posted(algorithm->collective))
        return DDL_OK;
    DDL_TRY(ddl_plan_create(algorithm, shape, plan, err));
    bool is_posted = *plan != NULL && (*plan)->keeps_schedules;
    ddl_status status = DDL_OK;
    for (uint32_t i = 0; is_posted && status == DDL_OK && i < (*plan)->nphases; i++) {
        status = derive_oneshot(*plan, &(*plan)->phases[i], err);
        is_posted = (*plan)->phases[i].oneshot != NULL;
    }
    if (status != DDL_OK || !is_posted) {
        ddl_plan_destroy(*plan);
        *plan = NULL;
    }
    return status;
}

static ddl_status make_plan(const ddl_plan_cache *cache, const ddl_algorithm *algorithm,
                            const ddl_shape *shape, ddl_plan **plan, ddl_error *err)
{
    ddl_shape by_messages = *shape;
    by_messages.post_bytes = 0;
    DDL_TRY(make_posted(cache, algorithm, shape, plan, err));
    return *plan != NULL ? DDL_OK : ddl_plan_create(algorithm, &by_messages, plan, err);
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
    new->post_bytes = shape->post_bytes;
    ddl_list_append(&cache->buckets[bucket_of(algorithm, shape)], &new->link);
    ddl_list_append(&cache->by_use, &new->by_use);
    cache->nplans++;
    weigh(cache, new);
    *made = new;
    return DDL_OK;
}

ddl_status ddl_plan_cache_find(ddl_plan_cache *cache, const ddl_algorithm *algorithm, const ddl_shape *shape,
                               ddl_plan **found, ddl_error *err)
{
    entry *fitting = NULL;
    DDL_LIST_FOR_EACH (link, &cache->buckets[bucket_of(algorithm, shape)]) {
        entry *there = DDL_CONTAINER(link, entry, link);
        if (there->post_bytes == shape->post_bytes && ddl_plan_fits(there->plan, algorithm, shape)) {
            fitting = there;
            break;
        }
    }
    if (fitting == NULL)
        DDL_TRY(make(cache, algorithm, shape, &fitting, err));
    if (fitting->nruns != fitting->plan->nruns)
        weigh(cache, fitting);
    ddl_list_remove(&fitting->by_use);
    ddl_list_append(&cache->by_use, &fitting->by_use);
    *found = fitting->plan;
    return DDL_OK;
}
