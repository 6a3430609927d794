/* backend_schedule.c - starts pieces, keeps three in flight, caches plans and scratch. */
#include "backend/backend_schedule.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/size.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 64,
    PLANS = 128, /* cached; the least recently used idle one makes room */
    SCRATCH_ALIGNMENT = 64,
    SCRATCH_CLASSES = 40, /* by powers of two from SCRATCH_LEAST */
    SCRATCH_LEAST = 4096
};

typedef struct scratch { /* at the start of a free block */
    ddl_link link;
} scratch;

struct ddl_backend {
    ddl_transport *transport;
    ddl_compute *compute;
    const int *peers;
    ddl_list buckets[BUCKETS]; /* of cached_plan */
    uint64_t clock;            /* counts starts; the age of plans */
    int nplans;
    ddl_list free_scratch[SCRATCH_CLASSES];
};

typedef struct cached_plan {
    ddl_plan *plan;
    ddl_link link;
    uint64_t used_at;
} cached_plan;

/* ---- scratch ---- */

static int scratch_class(size_t bytes)
{
    int class = 0;
    while (((size_t)SCRATCH_LEAST << class) < bytes)
        class ++;
    DDL_ASSERT(class < SCRATCH_CLASSES);
    return class;
}

static void *take_scratch(ddl_backend *backend, size_t bytes)
{
    int class = scratch_class(bytes);
    ddl_link *first = ddl_list_take_first(&backend->free_scratch[class]);
    if (first != NULL)
        return DDL_CONTAINER(first, scratch, link);
    void *memory = NULL;
    if (DDL_FAILPOINT("backend.scratch") ||
        posix_memalign(&memory, SCRATCH_ALIGNMENT, (size_t)SCRATCH_LEAST << class) != 0)
        return NULL;
    return memory;
}

static void give_scratch(ddl_backend *backend, void *memory, size_t bytes)
{
    scratch *block = memory;
    memset(&block->link, 0, sizeof block->link);
    ddl_list_append(&backend->free_scratch[scratch_class(bytes)], &block->link);
}

/* ---- the plan cache ---- */

static size_t bucket_of(const ddl_algorithm *algorithm, const ddl_shape *shape)
{
    uint64_t hash = (uintptr_t)algorithm / sizeof *algorithm;
    hash = hash * 31 + shape->count;
    hash = hash * 31 + (unsigned)shape->root;
    hash = hash * 31 + shape->element_bytes + (shape->in_place ? 16 : 0) + (shape->average ? 32 : 0);
    for (int i = 0; shape->blocks.counts != NULL && i < shape->nranks; i++)
        hash = hash * 31 + shape->blocks.counts[i];
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return hash >> 58;
}

static void drop_plan(ddl_backend *backend, cached_plan *cached)
{
    ddl_list_remove(&cached->link);
    ddl_plan_destroy(cached->plan);
    ddl_free(cached);
    backend->nplans--;
}

static void make_room(ddl_backend *backend)
{
    while (backend->nplans >= PLANS) {
        cached_plan *oldest = NULL;
        for (int i = 0; i < BUCKETS; i++)
            DDL_LIST_FOR_EACH (link, &backend->buckets[i]) {
                cached_plan *cached = DDL_CONTAINER(link, cached_plan, link);
                if (cached->plan->users == 0 && (oldest == NULL || cached->used_at < oldest->used_at))
                    oldest = cached;
            }
        if (oldest == NULL)
            return; /* all in use: the cache grows for a while */
        drop_plan(backend, oldest);
    }
}

static ddl_status find_plan(ddl_backend *backend, const ddl_task *task, ddl_plan **plan, ddl_error *err)
{
    ddl_list *bucket = &backend->buckets[bucket_of(task->algorithm, &task->shape)];
    DDL_LIST_FOR_EACH (link, bucket) {
        cached_plan *cached = DDL_CONTAINER(link, cached_plan, link);
        if (ddl_plan_fits(cached->plan, task->algorithm, &task->shape)) {
            cached->used_at = ++backend->clock;
            *plan = cached->plan;
            return DDL_OK;
        }
    }
    make_room(backend);
    cached_plan *cached = ddl_alloc(sizeof *cached);
    if (cached == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a plan");
    ddl_status status = ddl_plan_create(task->algorithm, &task->shape, &cached->plan, err);
    if (status != DDL_OK) {
        ddl_free(cached);
        return status;
    }
    cached->used_at = ++backend->clock;
    ddl_list_append(bucket, &cached->link);
    backend->nplans++;
    *plan = cached->plan;
    return DDL_OK;
}

/* ---- pieces ---- */

static void piece_finished(ddl_run *run, void *arg);

/* Start the next piece in this slot; *at_once: it has finished. */
static ddl_status start_piece(ddl_task *task, ddl_plan_slot *slot, bool *at_once, ddl_error *err)
{
    const ddl_plan *plan = task->run->plan;
    uint32_t piece = task->next_piece;
    uint32_t phase = task->phase;
    if (phase + 1 < plan->nphases && plan->phases[phase + 1].first_piece <= piece)
        phase++;
    DDL_TRY(ddl_plan_activate(task->run, slot, phase, err));
    task->phase = phase;
    task->next_piece++;
    size_t offset = piece * plan->piece_count * plan->shape.element_bytes;
    ddl_binding binding = {
        .in = task->in != NULL ? (char *)task->in + offset : NULL,
        .out = task->out != NULL ? (char *)task->out + offset : NULL,
        .scratch = slot->scratch,
        .dtype = task->dtype,
        .op = task->op,
        .transport = task->backend->transport,
        .compute = task->backend->compute,
        .key = { .channel = task->channel, .piece = piece, .sequence = task->sequence },
        .peers = task->backend->peers,
        .signature = &task->signature,
        .sent_signatures = task->sent_signatures,
        .received_signatures = task->received_signatures,
        .finished = piece_finished,
        .arg = task,
    };
    *at_once = ddl_run_start(slot->active, &binding);
    if (*at_once) {
        ddl_plan_deactivate(task->run, slot);
        task->pieces_left--;
    }
    return DDL_OK;
}

static ddl_status fill_slot(ddl_task *task, ddl_plan_slot *slot, ddl_error *err)
{
    bool at_once = true;
    while (at_once && task->next_piece < task->run->plan->npieces)
        DDL_TRY(start_piece(task, slot, &at_once, err));
    return DDL_OK;
}

static void release(ddl_task *task)
{
    ddl_plan_run *run = task->run;
    for (int i = 0; i < run->nslots; i++) {
        if (run->slots[i].scratch != NULL)
            give_scratch(task->backend, run->slots[i].scratch, run->plan->scratch_bytes);
        run->slots[i].scratch = NULL;
    }
    task->run = NULL;
    ddl_plan_give_back(run);
}

static void piece_finished(ddl_run *run, void *arg)
{
    ddl_task *task = arg;
    ddl_plan_slot *slot = task->run->slots;
    while (slot->active != run)
        slot++;
    ddl_plan_deactivate(task->run, slot);
    task->pieces_left--;
    ddl_error error;
    if (fill_slot(task, slot, &error) != DDL_OK) {
        task->failed(task, &error); /* who cancels it, with everything else */
        return;
    }
    if (task->pieces_left > 0)
        return;
    release(task);
    task->finished(task);
}

ddl_status ddl_backend_start(ddl_backend *backend, ddl_task *task, bool *done, ddl_error *err)
{
    ddl_plan *plan = NULL;
    DDL_TRY(find_plan(backend, task, &plan, err));
    DDL_TRY(ddl_plan_take(plan, &task->run, err));
    task->backend = backend;
    for (int i = 0; i < task->run->nslots && plan->scratch_bytes > 0; i++) {
        task->run->slots[i].scratch = take_scratch(backend, plan->scratch_bytes);
        if (task->run->slots[i].scratch == NULL) {
            release(task);
            return DDL_FAIL(err, DDL_ENOMEM, "no memory for %zu bytes of scratch", plan->scratch_bytes);
        }
    }
    task->next_piece = task->phase = 0;
    task->pieces_left = plan->npieces;
    for (int i = 0; i < task->run->nslots; i++) {
        ddl_status status = fill_slot(task, &task->run->slots[i], err);
        if (status != DDL_OK) {
            ddl_backend_cancel(task);
            return status;
        }
    }
    *done = task->pieces_left == 0;
    if (*done)
        release(task);
    return DDL_OK;
}

void ddl_backend_cancel(ddl_task *task)
{
    if (task->run == NULL)
        return;
    for (int i = 0; i < task->run->nslots; i++)
        if (task->run->slots[i].active != NULL) {
            ddl_run_cancel(task->run->slots[i].active);
            ddl_plan_deactivate(task->run, &task->run->slots[i]);
        }
    release(task);
}

void ddl_backend_visit_pending(const ddl_task *task, void (*visit)(void *arg, int peer, bool outgoing),
                               void *arg)
{
    if (task->run == NULL)
        return;
    for (int i = 0; i < task->run->nslots; i++)
        if (task->run->slots[i].active != NULL)
            ddl_run_visit_pending(task->run->slots[i].active, visit, arg);
}

/* ---- life ---- */

ddl_status ddl_backend_create(ddl_transport *transport, const int *peers, ddl_compute *compute,
                              ddl_backend **out, ddl_error *err)
{
    ddl_backend *backend = ddl_alloc(sizeof *backend);
    if (backend == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a backend");
    backend->transport = transport;
    backend->compute = compute;
    backend->peers = peers;
    for (int i = 0; i < BUCKETS; i++)
        ddl_list_init(&backend->buckets[i]);
    for (int i = 0; i < SCRATCH_CLASSES; i++)
        ddl_list_init(&backend->free_scratch[i]);
    *out = backend;
    return DDL_OK;
}

void ddl_backend_destroy(ddl_backend *backend)
{
    if (backend == NULL)
        return;
    for (int i = 0; i < BUCKETS; i++)
        for (ddl_link *first; (first = ddl_list_first(&backend->buckets[i])) != NULL;)
            drop_plan(backend, DDL_CONTAINER(first, cached_plan, link));
    for (int i = 0; i < SCRATCH_CLASSES; i++)
        for (ddl_link *first; (first = ddl_list_take_first(&backend->free_scratch[i])) != NULL;)
            free(DDL_CONTAINER(first, scratch, link));
    ddl_free(backend);
}
