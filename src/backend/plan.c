/* plan.c - the schedules of a call's pieces. */
#include "backend/plan.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/copy.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_BLOCKS = 1 << 17 }; /* phases times ranks; beyond that schedules would take too much memory */

ddl_shape ddl_plan_shape(const ddl_plan *plan)
{
    return plan->shape.is_staged ? ddl_layout_shape(&plan->layout, &plan->shape) : plan->shape;
}

static ddl_status build(const ddl_plan *plan, const ddl_plan_phase *phase, ddl_schedule **schedule,
                        ddl_error *err)
{
    ddl_shape shape = ddl_plan_shape(plan);
    shape.count = phase->count;
    if (phase->counts != NULL)
        shape.blocks.counts = phase->counts;
    if (phase->out_counts != NULL)
        shape.out_blocks.counts = phase->out_counts;
    return plan->algorithm->build(&shape, schedule, err);
}

static ddl_status no_memory(ddl_error *err)
{
    return DDL_FAIL(err, DDL_ENOMEM, "no memory for a plan");
}

/* ---- phases ---- */

static int compare_pieces(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Where phases begin that some of n blocks ends at; returns how many were written. */
static size_t note_ends(const ddl_plan *plan, const size_t counts[], uint32_t *firsts)
{
    size_t n = 0;
    for (int i = 0; counts != NULL && i < plan->shape.nranks; i++) {
        firsts[n++] = (uint32_t)(counts[i] / plan->piece_count);
        firsts[n++] = (uint32_t)(counts[i] / plan->piece_count + (counts[i] % plan->piece_count != 0));
    }
    return n;
}

/* What a piece has of each block; NULL: no memory. */
static size_t *counts_of_piece(const ddl_plan *plan, const size_t counts[], uint32_t piece, size_t *most)
{
    size_t *own = ddl_alloc_array((size_t)plan->shape.nranks, sizeof *own);
    if (own == NULL)
        return NULL;
    size_t before = piece * plan->piece_count;
    for (int i = 0; i < plan->shape.nranks; i++) {
        size_t left = counts[i] > before ? counts[i] - before : 0;
        own[i] = ddl_size_min(left, plan->piece_count);
        *most = ddl_size_max(*most, own[i]);
    }
    return own;
}

static ddl_status find_uneven_phases(ddl_plan *plan, ddl_error *err)
{
    const ddl_shape *shape = &plan->shape;
    uint32_t *firsts = ddl_alloc_array((size_t)shape->nranks * 4 + 1, sizeof *firsts);
    if (firsts == NULL)
        return no_memory(err);
    size_t n = 1; /* piece 0 begins the first phase */
    if (plan->piece_count > 0) {
        n += note_ends(plan, shape->blocks.counts, firsts + n);
        n += note_ends(plan, shape->out_blocks.counts, firsts + n);
    }
    qsort(firsts, n, sizeof *firsts, compare_pieces);
    plan->phases = ddl_alloc_array(n, sizeof *plan->phases);
    for (size_t i = 0; plan->phases != NULL && i < n; i++)
        if (firsts[i] < plan->npieces && (i == 0 || firsts[i] != firsts[i - 1]))
            plan->phases[plan->nphases++].first_piece = firsts[i];
    ddl_free(firsts);
    if (plan->phases == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < plan->nphases; i++) {
        ddl_plan_phase *phase = &plan->phases[i];
        phase->counts = counts_of_piece(plan, shape->blocks.counts, phase->first_piece, &phase->count);
        if (shape->out_blocks.counts != NULL)
            phase->out_counts =
                counts_of_piece(plan, shape->out_blocks.counts, phase->first_piece, &phase->count);
        if (phase->counts == NULL || (shape->out_blocks.counts != NULL && phase->out_counts == NULL))
            return no_memory(err);
    }
    return DDL_OK;
}

static ddl_status find_phases(ddl_plan *plan, ddl_error *err)
{
    if (ddl_collective_is_uneven(plan->algorithm->collective) && plan->npieces > 1)
        return find_uneven_phases(plan, err);
    size_t last = plan->shape.count - (plan->npieces - 1) * plan->piece_count;
    plan->nphases = last != plan->piece_count && plan->npieces > 1 ? 2 : 1;
    plan->phases = ddl_alloc_array(plan->nphases, sizeof *plan->phases);
    if (plan->phases == NULL)
        return no_memory(err);
    plan->phases[0].count = plan->npieces > 1 ? plan->piece_count : last;
    plan->phases[plan->nphases - 1].first_piece = plan->nphases > 1 ? plan->npieces - 1 : 0;
    plan->phases[plan->nphases - 1].count = plan->nphases > 1 ? last : plan->phases[0].count;
    return DDL_OK;
}

/* ---- life ---- */

/* The caller's arrays, kept, in one piece of memory. False: no memory. */
static bool keep_arrays(ddl_plan *plan)
{
    const size_t n = (size_t)plan->shape.nranks;
    const size_t **arrays[] = { &plan->shape.blocks.counts, &plan->shape.blocks.starts,
                                &plan->shape.out_blocks.counts, &plan->shape.out_blocks.starts };
    enum { NARRAYS = sizeof arrays / sizeof *arrays };
    if (!ddl_collective_is_uneven(plan->algorithm->collective))
        return true;
    plan->arrays = ddl_alloc_array(NARRAYS * n, sizeof *plan->arrays);
    for (size_t i = 0; plan->arrays != NULL && i < NARRAYS; i++)
        if (*arrays[i] != NULL)
            *arrays[i] = memcpy(plan->arrays + i * n, *arrays[i], n * sizeof **arrays[i]);
    return plan->arrays != NULL;
}

/* What some rank has nothing of goes by messages. */
static bool may_be_posted(const ddl_plan *plan)
{
    return plan->npieces == 1 || !ddl_collective_is_uneven(plan->algorithm->collective);
}

static ddl_status fill(ddl_plan *plan, ddl_cut_memo *memo, bool *fits, ddl_error *err)
{
    ddl_cut cut;
    if (!keep_arrays(plan))
        return no_memory(err);
    DDL_TRY(ddl_cut_find(plan->algorithm, &plan->shape, memo, &cut, err));
    plan->piece_count = cut.piece_count;
    plan->npieces = cut.npieces;
    const bool is_wanted = plan->shape.post_bytes > 0;
    *fits = cut.is_posted == is_wanted && (!is_wanted || may_be_posted(plan));
    if (!*fits)
        return DDL_OK;
    if (plan->shape.is_staged)
        DDL_TRY(ddl_layout_make(plan->algorithm->collective, &plan->shape, plan->piece_count, plan->npieces,
                                &plan->layout, err));
    DDL_TRY(find_phases(plan, err));
    plan->keeps_schedules = (size_t)plan->nphases * (size_t)plan->shape.nranks <= KEPT_BLOCKS;
    for (uint32_t i = 0; i < plan->nphases; i++) {
        ddl_schedule *schedule = NULL;
        DDL_TRY(build(plan, &plan->phases[i], &schedule, err));
        plan->phases[i].schedule = schedule;
        DDL_TRY(ddl_cut_check(plan->algorithm, schedule->largest_message, err));
        if (plan->shape.is_staged)
            DDL_TRY(ddl_layout_spans(&plan->layout, &plan->shape, schedule, &plan->phases[i].spans, err));
        plan->scratch_bytes = ddl_size_max(plan->scratch_bytes, schedule->scratch_bytes);
        if (!plan->keeps_schedules) {
            ddl_schedule_destroy(schedule);
            plan->phases[i].schedule = NULL;
        }
    }
    return DDL_OK;
}

/* Of the buffers of all ranks of a host that a call touches. */
static double footprint_of(ddl_collective collective, const ddl_shape *shape)
{
    double bytes = (double)shape->count * (double)shape->element_bytes;
    double of_rank =
        bytes * (ddl_collective_has_blocks(collective) ? shape->nranks : 1) * (shape->in_place ? 1 : 2);
    int nnodes = shape->placement.nnodes > 1 ? shape->placement.nnodes : 1;
    return of_rank * shape->nranks / nnodes;
}

/*
 * Whether the caches of a host hold no more of what its ranks touch in such a call than they would of
 * anything else. Where a vector is reduced in place, what is written has just been read; and the rooms of
 * what is on a GPU are used again and again. On one EPYC 16 MiB out of place with 2 ranks took 1.3 times as
 * long through the caches, 4 MiB 0.85 times; over a board 16 MiB took 0.8 times as long through them, 64 MiB
 * 1.15 times. Elsewhere less is too much for them (ddl_copy_cached_bytes).
 */
static bool outgrows_caches(ddl_collective collective, const ddl_shape *shape)
{
    bool reduces_in_place =
        shape->in_place && (collective == DDL_COLLECTIVE_ALLREDUCE || collective == DDL_COLLECTIVE_REDUCE);
    return !shape->is_staged && !reduces_in_place &&
           footprint_of(collective, shape) > (double)ddl_copy_cached_bytes(shape->post_bytes > 0);
}

/* Where each rank has something for others at the same time, and nothing is reduced. Elsewhere two ranks that
 * copy one after the other, through shared memory, are no slower than one that copies alone. */
static bool moves_both_ways(ddl_collective collective)
{
    return ddl_collective_gathers_for_all(collective) || ddl_collective_exchanges(collective);
}

/* What is written is best not read from memory first, which the kernel does. That costs more than a copy
 * saves once a call outgrows the last cache: with 2 ranks allgathers of 64 MiB took 1.4 times as long when
 * pulled, those of 16 MiB 0.6 times; alltoalls of 64 MiB 1.0 to 1.2 times, those of 16 MiB 0.9 times. */
static bool is_worth_pulling(ddl_collective collective, const ddl_shape *shape)
{
    static const double CACHED_BYTES = 128 * 1024 * 1024;
    return moves_both_ways(collective) && footprint_of(collective, shape) <= CACHED_BYTES;
}

ddl_status ddl_plan_create(const ddl_algorithm *algorithm, const ddl_shape *shape, ddl_cut_memo *memo,
                           ddl_plan **out, ddl_error *err)
{
    ddl_plan *plan = ddl_alloc(sizeof *plan);
    if (plan == NULL)
        return no_memory(err);
    plan->algorithm = algorithm;
    plan->shape = *shape;
    ddl_list_init(&plan->idle);
    plan->past_caches = outgrows_caches(algorithm->collective, shape);
    plan->lends = moves_both_ways(algorithm->collective);
    plan->pulls = is_worth_pulling(algorithm->collective, shape);
    bool fits = false;
    ddl_status status = fill(plan, memo, &fits, err);
    if (status != DDL_OK || !fits) {
        ddl_plan_destroy(plan);
        plan = NULL;
    }
    *out = plan;
    return status;
}

static void destroy_run(ddl_plan_run *run)
{
    for (int i = 0; i < run->nslots; i++) {
        ddl_plan_slot *slot = &run->slots[i];
        for (uint32_t phase = 0; phase < run->plan->nphases; phase++)
            ddl_run_destroy(slot->runs[phase]);
    }
    ddl_free(run);
}

void ddl_plan_destroy(ddl_plan *plan)
{
    if (plan == NULL)
        return;
    DDL_ASSERT(plan->users == 0);
    for (ddl_link *first; (first = ddl_list_take_first(&plan->idle)) != NULL;)
        destroy_run(DDL_CONTAINER(first, ddl_plan_run, link));
    for (uint32_t i = 0; plan->phases != NULL && i < plan->nphases; i++) {
        ddl_schedule_destroy(plan->phases[i].schedule);
        ddl_free(plan->phases[i].counts);
        ddl_free(plan->phases[i].out_counts);
        ddl_spans_fini(&plan->phases[i].spans);
        ddl_oneshot_destroy(plan->phases[i].oneshot);
    }
    ddl_free(plan->phases);
    ddl_layout_fini(&plan->layout);
    ddl_free(plan->arrays);
    ddl_free(plan);
}

static bool same_counts(const ddl_uneven *a, const ddl_uneven *b, int nranks)
{
    if (a->counts == NULL || b->counts == NULL)
        return a->counts == b->counts;
    return memcmp(a->counts, b->counts, (size_t)nranks * sizeof *a->counts) == 0;
}

bool ddl_plan_fits(const ddl_plan *plan, const ddl_algorithm *algorithm, const ddl_shape *shape)
{
    const ddl_shape *own = &plan->shape;
    return plan->algorithm == algorithm && own->count == shape->count &&
           own->element_bytes == shape->element_bytes && own->root == shape->root &&
           own->stride == shape->stride && own->in_place == shape->in_place &&
           own->average == shape->average && own->is_staged == shape->is_staged &&
           same_counts(&own->blocks, &shape->blocks, shape->nranks) &&
           same_counts(&own->out_blocks, &shape->out_blocks, shape->nranks);
}

/* ---- running ---- */

static ddl_status prepare_slot(ddl_plan *plan, ddl_plan_slot *slot, ddl_error *err)
{
    for (uint32_t phase = 0; plan->keeps_schedules && phase < plan->nphases; phase++)
        DDL_TRY(ddl_run_create(plan->phases[phase].schedule, &slot->runs[phase], err));
    return DDL_OK;
}

ddl_status ddl_plan_take(ddl_plan *plan, ddl_plan_run **out, ddl_error *err)
{
    ddl_link *first = ddl_list_take_first(&plan->idle);
    if (first != NULL) {
        plan->users++;
        *out = DDL_CONTAINER(first, ddl_plan_run, link);
        return DDL_OK;
    }
    const size_t nslots = ddl_size_min(plan->npieces, DDL_PIECES_IN_FLIGHT);
    ddl_plan_run *run = ddl_alloc(sizeof *run + nslots * plan->nphases * sizeof *run->runs);
    if (run == NULL)
        return no_memory(err);
    run->plan = plan;
    run->nslots = (int)nslots;
    for (int i = 0; i < run->nslots; i++)
        run->slots[i].runs = run->runs + (size_t)i * plan->nphases;
    for (int i = 0; i < run->nslots; i++) {
        ddl_status status = prepare_slot(plan, &run->slots[i], err);
        if (status != DDL_OK) {
            destroy_run(run);
            return status;
        }
    }
    plan->nruns++;
    plan->users++;
    *out = run;
    return DDL_OK;
}

void ddl_plan_give_back(ddl_plan_run *run)
{
    ddl_plan *plan = run->plan;
    plan->users--;
    if (plan->nruns <= DDL_PLAN_RUNS_KEPT) {
        ddl_list_append(&plan->idle, &run->link);
        return;
    }
    plan->nruns--;
    destroy_run(run);
}

ddl_status ddl_plan_activate(ddl_plan_run *run, ddl_plan_slot *slot, uint32_t phase, ddl_error *err)
{
    DDL_ASSERT(slot->active == NULL);
    if (run->plan->keeps_schedules) {
        slot->active = slot->runs[phase];
        return DDL_OK;
    }
    DDL_TRY(build(run->plan, &run->plan->phases[phase], &slot->passing, err));
    ddl_status status = ddl_cut_check(run->plan->algorithm, slot->passing->largest_message, err);
    if (status == DDL_OK)
        status = ddl_run_create(slot->passing, &slot->active, err);
    if (status != DDL_OK)
        ddl_plan_deactivate(run, slot);
    return status;
}

void ddl_plan_deactivate(ddl_plan_run *run, ddl_plan_slot *slot)
{
    if (!run->plan->keeps_schedules) {
        ddl_run_destroy(slot->active);
        ddl_schedule_destroy(slot->passing);
        slot->passing = NULL;
    }
    slot->active = NULL;
}
