/* backend_schedule.c - starts pieces, keeps three in flight, and has their scratch ready. */
#include "backend/backend_schedule.h"

#include "backend/plan_cache.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    SCRATCH_ALIGNMENT = 64,
    SCRATCH_CLASSES = 40, /* by powers of two from SCRATCH_LEAST */
    SCRATCH_LEAST = 256,
    /* Not all that a burst of calls took: idle bytes, and blocks of a class, of which a few are kept whatever
     * they take. */
    SCRATCH_BYTES_KEPT = 64 * 1024 * 1024,
    SCRATCH_MOST_KEPT = 1024,
    SCRATCH_LEAST_KEPT = 16
};

typedef struct scratch { /* at the start of a free block */
    ddl_link link;
} scratch;

struct ddl_backend {
    ddl_transport *transport;
    ddl_compute *compute;
    const int *peers;
    ddl_posting posting; /* without a board: unused */
    ddl_plan_cache *plans;
    ddl_list free_scratch[SCRATCH_CLASSES];
    unsigned nfree_scratch[SCRATCH_CLASSES];
    size_t free_scratch_bytes;
};

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
    if (first != NULL) {
        backend->nfree_scratch[class]--;
        backend->free_scratch_bytes -= (size_t)SCRATCH_LEAST << class;
        return DDL_CONTAINER(first, scratch, link);
    }
    void *memory = NULL;
    if (DDL_FAILPOINT("backend.scratch") ||
        posix_memalign(&memory, SCRATCH_ALIGNMENT, (size_t)SCRATCH_LEAST << class) != 0)
        return NULL;
    memset(memory, 0,
           SCRATCH_LEAST); /* barriers send a byte of it, which is not to be anything of the program's */
    return memory;
}

static bool has_enough_scratch(const ddl_backend *backend, int class)
{
    const unsigned nfree = backend->nfree_scratch[class];
    return nfree >= SCRATCH_LEAST_KEPT &&
           (nfree >= SCRATCH_MOST_KEPT || backend->free_scratch_bytes >= SCRATCH_BYTES_KEPT);
}

static void give_scratch(ddl_backend *backend, void *memory, size_t bytes)
{
    const int class = scratch_class(bytes);
    if (has_enough_scratch(backend, class)) {
        free(memory);
        return;
    }
    scratch *block = memory;
    memset(&block->link, 0, sizeof block->link);
    ddl_list_append(&backend->free_scratch[class], &block->link);
    backend->nfree_scratch[class]++;
    backend->free_scratch_bytes += (size_t)SCRATCH_LEAST << class;
}

/* ---- pieces ---- */

static void piece_finished(ddl_run *run, void *arg);

/* Where a piece finds IN and OUT. */
static void bind_buffers(const ddl_task *task, const ddl_plan *plan, uint32_t piece, ddl_binding *binding)
{
    size_t offset = piece * plan->piece_count * plan->shape.element_bytes;
    if (task->staged != NULL) {
        binding->in = ddl_staged_in(task->staged, piece);
        binding->out = ddl_staged_out(task->staged, piece);
        return;
    }
    binding->in = task->in != NULL ? (char *)(uintptr_t)task->in + offset : NULL;
    binding->out = task->out != NULL ? (char *)task->out + offset : NULL;
}

static ddl_status finish_piece(ddl_task *task, uint32_t piece, ddl_error *err)
{
    task->pieces_left--;
    return task->staged != NULL ? ddl_staged_finish_piece(task->staged, piece, err) : DDL_OK;
}

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
    slot->piece = piece;
    ddl_binding binding = {
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
        .past_caches = plan->past_caches,
        .lends = plan->lends,
        .pulls = plan->pulls,
        .finished = piece_finished,
        .arg = task,
    };
    bind_buffers(task, plan, piece, &binding);
    *at_once = ddl_run_start(slot->active, &binding);
    if (!*at_once)
        return DDL_OK;
    ddl_plan_deactivate(task->run, slot);
    return finish_piece(task, piece, err);
}

static bool may_start_piece(const ddl_task *task)
{
    return task->next_piece < task->run->plan->npieces &&
           (task->staged == NULL || ddl_staged_is_there(task->staged, task->next_piece));
}

static ddl_status fill_slot(ddl_task *task, ddl_plan_slot *slot, ddl_error *err)
{
    bool at_once = true;
    while (at_once && may_start_piece(task))
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

static void fail(ddl_task *task, const ddl_error *error)
{
    if (task->staged != NULL)
        task->staged->failed = true; /* so that it is told once */
    task->failed(task, error);       /* who cancels it, with everything else */
}

static void piece_finished(ddl_run *run, void *arg)
{
    ddl_task *task = arg;
    ddl_plan_slot *slot = task->run->slots;
    while (slot->active != run)
        slot++;
    ddl_plan_deactivate(task->run, slot);
    ddl_error error;
    if (finish_piece(task, slot->piece, &error) != DDL_OK || fill_slot(task, slot, &error) != DDL_OK) {
        fail(task, &error);
        return;
    }
    if (task->pieces_left > 0 || task->staged != NULL) /* whose results are still to go up */
        return;
    release(task);
    task->finished(task);
}

/* ---- over the board ---- */

static void unpin(ddl_task *task)
{
    task->posted_plan->users--;
}

static void post_finished(ddl_post *post)
{
    ddl_task *task = DDL_CONTAINER(post, ddl_task, post);
    unpin(task);
    ddl_error error;
    if (task->staged == NULL)
        task->finished(task);
    else if (finish_piece(task, task->next_piece, &error) != DDL_OK)
        fail(task, &error);
}

/* Of a staged task, what it says comes down first; until then it keeps its place in the order of posts. */
static void bind_post(ddl_task *task)
{
    ddl_post *post = &task->post;
    const uint32_t piece = task->next_piece;
    post->is_held = task->staged != NULL && !ddl_staged_is_there(task->staged, piece);
    if (post->is_held)
        return;
    ddl_binding binding;
    bind_buffers(task, task->posted_plan, piece, &binding);
    post->in = (void *)(uintptr_t)binding.in;
    post->out = binding.out;
}

/* Describe the piece that is next. */
static void begin_posted_piece(ddl_task *task)
{
    const ddl_plan *plan = task->posted_plan;
    const bool is_last = task->next_piece + 1 == plan->npieces;
    task->post.oneshot = plan->phases[is_last ? plan->nphases - 1 : 0].oneshot;
    bind_post(task);
}

/* Of a staged task the next one has to wait for the GPU to be told of this one, which may fail. */
static bool next_posted_piece(ddl_post *post)
{
    ddl_task *task = DDL_CONTAINER(post, ddl_task, post);
    if (task->next_piece + 1 == task->posted_plan->npieces)
        return false;
    task->piece_is_done = post->is_held = task->staged != NULL;
    if (task->staged == NULL) {
        task->next_piece++;
        begin_posted_piece(task);
    }
    return true;
}

bool ddl_backend_repeat(ddl_task *task, ddl_plan *plan, int looks)
{
    ddl_post *post = &task->post;
    task->posted_plan = plan;
    task->next_piece = 0;
    if (plan->npieces > 1 || task->staged != NULL) {
        task->pieces_left = plan->npieces;
        task->piece_is_done = false;
        begin_posted_piece(task);
    } else { /* as begin_posted_piece does, for what is repeated most */
        post->in = (void *)(uintptr_t)task->in;
        post->out = task->out;
    }
    post->vector = task->out;
    post->number = ddl_board_number(task->channel, task->sequence);
    post->sequence = task->sequence;
    post->round = 0;
    post->is_posted = false;
    post->told_bytes = 0;
    post->ndone = 0;
    plan->users++;
    bool done = ddl_posting_start(&task->backend->posting, &task->post, looks);
    if (done)
        unpin(task);
    return done;
}

static ddl_status start_post(ddl_task *task, ddl_plan *plan, bool *done, ddl_error *err)
{
    if (task->staging != NULL)
        DDL_TRY(
            ddl_staged_begin(task->staging, plan, task->in, task->out, task->hold, task, &task->staged, err));
    task->post = (ddl_post){
        .oneshot = plan->phases[0].oneshot,
        .signature = &task->signature,
        .vector_bytes = plan->shape.count * plan->shape.element_bytes,
        .dtype = task->dtype,
        .op = task->op,
        .past_caches = plan->past_caches,
        .next = plan->npieces > 1 ? next_posted_piece : NULL,
        .finished = post_finished,
    };
    *done = ddl_backend_repeat(task, plan, 0);
    if (!*done || task->staged == NULL)
        return DDL_OK;
    *done = false; /* it still goes up */
    ddl_status status = finish_piece(task, task->next_piece, err);
    if (status != DDL_OK)
        ddl_backend_cancel(task);
    return status;
}

void ddl_backend_progress(ddl_backend *backend)
{
    ddl_posting_progress(&backend->posting);
}

/* ---- in rooms ---- */

/* What has come down may be posted. */
static void let_go(ddl_task *task)
{
    if (!ddl_link_linked(&task->post.link) || !task->post.is_held)
        return;
    begin_posted_piece(task);
    if (!task->post.is_held)
        ddl_posting_progress(&task->backend->posting);
}

static void end_staged(ddl_task *task)
{
    if (task->run != NULL)
        release(task);
    ddl_staged_end(task->staged);
    task->staged = NULL;
}

static bool progress_staged(ddl_task *task)
{
    ddl_error error;
    bool moved = false;
    ddl_status status = ddl_staged_progress(task->staged, &moved, &error);
    if (task->piece_is_done && status == DDL_OK) {
        task->piece_is_done = false;
        moved = true;
        status = finish_piece(task, task->next_piece++, &error);
    }
    if (moved && status == DDL_OK)
        let_go(task);
    for (int i = 0; task->run != NULL && i < task->run->nslots; i++)
        if (moved && status == DDL_OK && task->run->slots[i].active == NULL)
            status = fill_slot(task, &task->run->slots[i], &error);
    if (status != DDL_OK) {
        fail(task, &error);
    } else if (task->pieces_left == 0 && ddl_staged_is_over(task->staged)) {
        end_staged(task);
        task->finished(task);
        moved = true;
    }
    return moved;
}

bool ddl_backend_progress_staged(ddl_staging *staging)
{
    bool moved = false;
    DDL_LIST_FOR_EACH (link, &staging->running) {
        const ddl_staged *staged = DDL_CONTAINER(link, ddl_staged, link);
        if (!staged->failed)
            moved = progress_staged(staged->owner) || moved;
    }
    return moved;
}

/* ---- tasks ---- */

/* An instance of the plan, with scratch. */
static ddl_status take_run(ddl_task *task, ddl_plan *plan, ddl_error *err)
{
    DDL_TRY(ddl_plan_take(plan, &task->run, err));
    for (int i = 0; i < task->run->nslots && plan->scratch_bytes > 0; i++) {
        task->run->slots[i].scratch = take_scratch(task->backend, plan->scratch_bytes);
        if (task->run->slots[i].scratch == NULL) {
            release(task);
            return DDL_FAIL(err, DDL_ENOMEM, "no memory for %zu bytes of scratch", plan->scratch_bytes);
        }
    }
    return DDL_OK;
}

static ddl_status start_pieces(ddl_task *task, ddl_plan *plan, ddl_error *err)
{
    if (task->staging != NULL)
        DDL_TRY(
            ddl_staged_begin(task->staging, plan, task->in, task->out, task->hold, task, &task->staged, err));
    task->next_piece = task->phase = 0;
    task->pieces_left = plan->npieces;
    for (int i = 0; i < task->run->nslots; i++)
        DDL_TRY(fill_slot(task, &task->run->slots[i], err));
    return DDL_OK;
}

bool ddl_backend_goes_by_board(ddl_backend *backend, const ddl_task *task)
{
    ddl_plan *plan;
    ddl_error ignored;
    if (task->shape.post_bytes == 0)
        return false;
    return ddl_plan_cache_look(backend->plans, task->algorithm, &task->shape, &plan, &ignored) != DDL_OK ||
           plan->phases[0].oneshot != NULL;
}

ddl_status ddl_backend_start(ddl_backend *backend, ddl_task *task, bool *done, ddl_error *err)
{
    ddl_plan *plan;
    DDL_TRY(ddl_plan_cache_find(backend->plans, task->algorithm, &task->shape, &plan, err));
    task->backend = backend;
    if (plan->phases[0].oneshot != NULL)
        return start_post(task, plan, done, err);
    DDL_TRY(take_run(task, plan, err));
    ddl_status status = start_pieces(task, plan, err);
    if (status != DDL_OK) {
        ddl_backend_cancel(task);
        return status;
    }
    *done = task->pieces_left == 0 && (task->staged == NULL || ddl_staged_is_over(task->staged));
    if (*done && task->staged != NULL)
        end_staged(task);
    else if (*done)
        release(task);
    return DDL_OK;
}

void ddl_backend_cancel(ddl_task *task)
{
    if (ddl_link_linked(&task->post.link)) {
        ddl_posting_cancel(&task->backend->posting, &task->post);
        unpin(task);
    }
    for (int i = 0; task->run != NULL && i < task->run->nslots; i++)
        if (task->run->slots[i].active != NULL) {
            ddl_run_cancel(task->run->slots[i].active);
            ddl_plan_deactivate(task->run, &task->run->slots[i]);
        }
    if (task->staged != NULL)
        end_staged(task);
    else if (task->run != NULL)
        release(task);
}

bool ddl_backend_waits_for_gpu(const ddl_task *task)
{
    return task->staged != NULL && ddl_staged_waits(task->staged);
}

bool ddl_backend_waits_for_stream(const ddl_task *task)
{
    return task->staged != NULL && task->staged->awaits_stream;
}

bool ddl_backend_has_posted(const ddl_task *task, int rank)
{
    return ddl_link_linked(&task->post.link) &&
           ddl_posting_has_posted(&task->backend->posting, &task->post, rank);
}

bool ddl_backend_is_halfway(const ddl_task *task)
{
    return ddl_link_linked(&task->post.link) && (task->post.round > 0 || task->post.ndone > 0) &&
           ddl_posting_is_begun(&task->backend->posting, &task->post);
}

double ddl_backend_share_done(const ddl_task *task)
{
    const ddl_plan_run *run = task->run;
    const ddl_plan *posted = task->posted_plan;
    if (run == NULL) /* in one piece nobody knows more than whether it is done */
        return posted != NULL && posted->npieces > 1 ? (double)task->next_piece / posted->npieces : -1;
    double pieces = run->plan->npieces - task->pieces_left;
    for (int i = 0; i < run->nslots; i++)
        if (run->slots[i].active != NULL)
            pieces += ddl_run_share_moved(run->slots[i].active);
    return pieces / run->plan->npieces;
}

const ddl_signature *ddl_backend_waits_behind(ddl_backend *backend, uint64_t *sequence)
{
    return ddl_posting_waits_behind(&backend->posting, sequence);
}

void ddl_backend_visit_pending(const ddl_task *task, void (*visit)(void *arg, int peer, bool outgoing),
                               void *arg)
{
    if (ddl_link_linked(&task->post.link))
        ddl_posting_visit_pending(&task->backend->posting, &task->post, visit, arg);
    if (task->run == NULL)
        return;
    for (int i = 0; i < task->run->nslots; i++)
        if (task->run->slots[i].active != NULL)
            ddl_run_visit_pending(task->run->slots[i].active, visit, arg);
}

/* ---- life ---- */

ddl_status ddl_backend_create(ddl_transport *transport, const int *peers, ddl_compute *compute,
                              const ddl_posting_owner *owner, ddl_backend **out, ddl_error *err)
{
    ddl_backend *backend = ddl_alloc(sizeof *backend);
    if (backend == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a backend");
    backend->plans = ddl_plan_cache_create(owner->board != NULL);
    if (backend->plans == NULL) {
        ddl_free(backend);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a backend");
    }
    backend->transport = transport;
    backend->compute = compute;
    backend->peers = peers;
    ddl_posting_init(&backend->posting, owner, compute);
    for (int i = 0; i < SCRATCH_CLASSES; i++)
        ddl_list_init(&backend->free_scratch[i]);
    *out = backend;
    return DDL_OK;
}

void ddl_backend_close(ddl_backend *backend)
{
    if (backend != NULL)
        ddl_posting_fini(&backend->posting);
}

void ddl_backend_destroy(ddl_backend *backend)
{
    if (backend == NULL)
        return;
    ddl_plan_cache_destroy(backend->plans);
    for (int i = 0; i < SCRATCH_CLASSES; i++)
        for (ddl_link *first; (first = ddl_list_take_first(&backend->free_scratch[i])) != NULL;)
            free(DDL_CONTAINER(first, scratch, link));
    ddl_free(backend);
}
