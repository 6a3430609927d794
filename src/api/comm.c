/* comm.c - making a communicator, leaving it, and facts about it. */
#include "api/comm.h"

#include "api/alone.h"
#include "api/contexts.h"
#include "api/failure.h"
#include "api/gpu.h"
#include "api/issue.h"
#include "api/last_error.h"
#include "api/repeat.h"
#include "api/stream.h"
#include "api/votes.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/size.h"
#include "compute/compute_cpu.h"
#include "io/local.h"
#include "protocol/overlay.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    AGAIN_MS = 1000,     /* for a second meeting */
    ABANDONED_MS = 1000, /* for what GPUs still do */
    LEAST_NAPS = 4000    /* for threads that have waited */
};

/* ---- making ---- */

/* The members as a roster of their own. */
static ddl_status enrol(ddl_comm *comm, ddl_error *err)
{
    const ddl_roster *all = comm->world->roster;
    DDL_TRY(ddl_roster_create(comm->rank, comm->nranks, &comm->roster, err));
    memcpy(comm->roster->run_id, all->run_id, sizeof all->run_id);
    for (int rank = 0; rank < comm->nranks; rank++) {
        comm->roster->members[rank] = all->members[comm->members[rank]];
        comm->roster->members[rank].rank = rank;
    }
    ddl_roster_derive(comm->roster);
    comm->sparse = ddl_roster_is_sparse(all) && !ddl_overlay_is_complete(comm->nranks);
    comm->placement = (ddl_placement){ comm->nranks, comm->roster->node_count, comm->roster->node_of };
    return DDL_OK;
}

static ddl_status allocate(ddl_comm *comm, const int members[])
{
    size_t nranks = (size_t)comm->nranks, nworld = (size_t)comm->world->config.nranks;
    comm->members = ddl_alloc_array(nranks, sizeof *comm->members);
    comm->rank_of = ddl_alloc_array(nworld, sizeof *comm->rank_of);
    comm->sent_to = ddl_alloc_array(nranks, sizeof *comm->sent_to);
    comm->received_from = ddl_alloc_array(nranks, sizeof *comm->received_from);
    comm->starts = ddl_alloc_array(2 * nranks, sizeof *comm->starts);
    comm->entered = ddl_alloc_array(nranks, sizeof *comm->entered);
    comm->messages = ddl_alloc_array(2 * nranks, sizeof *comm->messages);
    comm->failure.told_by = ddl_alloc_array(nranks, sizeof *comm->failure.told_by);
    comm->failure.calls = ddl_alloc_array(nranks, sizeof *comm->failure.calls);
    if (comm->members == NULL || comm->rank_of == NULL || comm->sent_to == NULL ||
        comm->received_from == NULL || comm->starts == NULL || comm->messages == NULL ||
        comm->entered == NULL || comm->failure.told_by == NULL || comm->failure.calls == NULL)
        return DDL_ENOMEM;
    for (size_t i = 0; i < nworld; i++)
        comm->rank_of[i] = -1;
    for (int rank = 0; rank < comm->nranks; rank++) {
        comm->members[rank] = members[rank];
        comm->rank_of[members[rank]] = rank;
    }
    return DDL_OK;
}

/* On one host pieces are as rank 0 says, within reason; elsewhere as they are best for connections. */
static size_t piece_bytes(const ddl_comm *comm)
{
    enum { LEAST = 64 * 1024, MOST = DDL_PIECE_BYTES };
    if (comm->placement.nnodes > 1 || comm->model.piece_bytes > MOST)
        return MOST;
    return comm->model.piece_bytes < LEAST ? LEAST : (size_t)comm->model.piece_bytes;
}

/* Something was posted. */
static void wake_members(void *arg)
{
    const ddl_comm *comm = arg;
    ddl_lanes_wake(comm->world->lanes, comm->members, comm->nranks);
}

static void post_differs(void *arg, int rank, uint64_t sequence, const ddl_signature *ours,
                         const ddl_signature *theirs)
{
    ddl_failure_differs(arg, sequence, ours, rank, theirs);
}

static bool find_common(void *arg, const void *data, size_t bytes, size_t *offset)
{
    const ddl_comm *comm = arg;
    return ddl_heap_find(comm->world->heap, data, bytes, offset);
}

static void *reach_common(void *arg, int rank, uint64_t offset, size_t bytes)
{
    ddl_comm *comm = arg;
    size_t heap_bytes;
    char *heap = ddl_lanes_heap(comm->world->lanes, comm->members[rank], &heap_bytes);
    if (heap == NULL || (bytes <= heap_bytes && offset <= heap_bytes - bytes))
        return heap != NULL ? heap + offset : NULL;
    ddl_notice notice = { .code = DDL_EPROTO, .culprit = rank, .witness = comm->rank };
    char who[160];
    snprintf(notice.text, sizeof notice.text, "%s told a place for %zu bytes at %llu of a heap of %zu",
             ddl_comm_describe(comm, rank, who, sizeof who), bytes, (unsigned long long)offset, heap_bytes);
    ddl_failure_raise(comm, &notice);
    return NULL;
}

static void withdraw_common(void *arg, void *pages, size_t bytes)
{
    const ddl_comm *comm = arg;
    ddl_heap_withdraw(comm->world->heap, pages, bytes);
}

static const ddl_commons heaps = { find_common, reach_common, withdraw_common, ddl_local_page_bytes };

static ddl_status make_board(ddl_comm *comm, const int boards[], ddl_error *err)
{
    if (boards == NULL)
        return DDL_OK;
    comm->board = ddl_alloc(sizeof *comm->board);
    if (comm->board == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a board");
    comm->board->rank = comm->rank;
    comm->board->nranks = comm->nranks;
    for (int rank = 0; rank < comm->nranks; rank++)
        comm->board->sheets[rank] = ddl_world_sheets(comm->world, comm->members[rank], boards[rank]);
    ddl_board_begin(comm->board);
    return DDL_OK;
}

static ddl_status fill(ddl_comm *comm, const int members[], const int boards[], ddl_error *err)
{
    if (allocate(comm, members) != DDL_OK)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a communicator of %d ranks", comm->nranks);
    DDL_TRY(enrol(comm, err));
    const ddl_roster *all = comm->world->roster;
    DDL_TRY(
        ddl_cost_model_unpack(all->costs, all->ncosts, ddl_roster_crowding(comm->roster), &comm->model, err));
    comm->piece_bytes = piece_bytes(comm);
    char name[32] = "world", prefix[160];
    if (comm->id != DDL_ID_WORLD)
        snprintf(name, sizeof name, "part-%lu", (unsigned long)comm->id);
    snprintf(prefix, sizeof prefix, "comm=%s rank %d@%s", name, comm->rank,
             comm->roster->members[comm->rank].host);
    /* One for each call that may be kept for its repetition, and one that is under way. */
    int nrequests = comm->board_index >= 0 ? DDL_COLLECTIVE_COUNT + 1 : 1;
    comm->pool = ddl_request_pool_create(comm->rank, prefix, nrequests);
    if (comm->pool == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for requests");
    DDL_TRY(make_board(comm, boards, err));
    DDL_TRY(ddl_votes_create(comm, err));
    comm->model.shares_memory = comm->board != NULL;
    comm->model.board_bytes =
        comm->board == NULL ? 0 : (double)ddl_size_min(comm->piece_bytes, DDL_SHEET_BYTES);
    const ddl_posting_owner owner = { comm->board,           wake_members,
                                      post_differs,          comm,
                                      &comm->world->posting, comm->world->has_common_heaps ? &heaps : NULL };
    return ddl_backend_create(comm->mesh != NULL ? ddl_mesh_transport(comm->mesh) : NULL, comm->members,
                              ddl_compute_cpu(), &owner, ddl_roster_crowding(comm->world->roster) <= 1,
                              &comm->backend, err);
}

ddl_status ddl_comm_create(ddl_world *world, uint32_t id, const int members[], int nranks, int rank,
                           const int boards[], ddl_comm *root, int64_t timeout_ms, ddl_comm **out,
                           ddl_error *err)
{
    ddl_comm *comm = ddl_alloc(sizeof *comm);
    if (comm == NULL) {
        pthread_mutex_lock(&world->lock);
        bool unused = world->nroots == 0;
        pthread_mutex_unlock(&world->lock);
        if (unused)
            (void)ddl_world_destroy(world, ddl_now_ns(), NULL);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a communicator");
    }
    comm->world = world;
    comm->id = id;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->board_index = boards != NULL ? boards[rank] : -1;
    comm->engine = nranks > 1 ? world->engine : NULL;
    comm->mesh = nranks > 1 ? world->mesh : NULL;
    comm->root = root != NULL ? root : comm;
    comm->timeout_ms = timeout_ms;
    ddl_list_init(&comm->in_flight);
    for (int i = 0; i < DDL_COMM_BUCKETS; i++)
        ddl_list_init(&comm->by_sequence[i]);
    ddl_list_init(&comm->streamed);
    pthread_mutex_lock(&world->lock);
    ddl_list_append(&world->comms, &comm->sibling);
    world->nroots += root == NULL;
    pthread_mutex_unlock(&world->lock);
    ddl_status status = fill(comm, members, boards, err);
    if (status == DDL_OK && comm->engine != NULL) {
        if (!ddl_engine_enter(comm->engine, ddl_deadline_in_ms(DDL_COMM_FREE_MS)))
            status = DDL_FAIL(err, DDL_ETIMEDOUT, "the engine is stuck in another thread");
        else {
            if (!ddl_world_admit(world, comm))
                status = DDL_FAIL(err, DDL_ENOMEM, "no memory for a communicator");
            ddl_engine_leave(comm->engine);
        }
    }
    if (status != DDL_OK) {
        (void)ddl_comm_destroy(comm, ddl_deadline_in_ms(DDL_COMM_GRACE_MS), NULL);
        return status;
    }
    *out = comm;
    return DDL_OK;
}

/* Holder: end what is still in flight; nobody will drive it any more. */
static void abandon_operations(ddl_comm *comm)
{
    bool any = false;
    comm->is_abandoned = true;
    ddl_votes_cancel(comm, ABANDONED_MS);
    for (ddl_link *first; (first = ddl_list_first(&comm->in_flight)) != NULL;) {
        ddl_request *request = DDL_CONTAINER(first, ddl_request, link);
        ddl_comm_untrack(request);
        ddl_backend_cancel(&request->task);
        if (!comm->failure.failed && !any) {
            comm->pool->cause = (ddl_notice){ .code = DDL_EABORTED, .culprit = -1, .witness = -1 };
            snprintf(comm->pool->cause.text, sizeof comm->pool->cause.text,
                     "the communicator was freed before the operation had ended");
        }
        any = true;
        request->status = comm->pool->cause.code;
        request->root_cause = true;
        ddl_request_end(request);
    }
    ddl_engine_wake(comm->engine);
}

ddl_status ddl_comm_destroy(ddl_comm *comm, ddl_deadline deadline, ddl_error *err)
{
    if (comm == NULL)
        return DDL_OK;
    ddl_world *world = comm->world;
    if (comm->engine != NULL) {
        if (!ddl_engine_enter(comm->engine, deadline)) {
            ddl_gpu_let_go(comm);
            /* Whoever is stuck in there may still touch it: it is lost, and the world with it. */
            return DDL_FAIL(err, DDL_ETIMEDOUT, "the engine is stuck in another thread");
        }
        if (!ddl_list_empty(&comm->in_flight))
            abandon_operations(comm);
        if (comm->failure.failing && !comm->failure.failed)
            world->nbusy--;
        ddl_repeat_forget(comm);
        ddl_backend_close(comm->backend);
        ddl_shrink_free(comm);
        ddl_world_dismiss(world, comm);
        ddl_engine_leave(comm->engine);
    }
    if (comm->board_is_done)
        ddl_world_give_board(world, comm->board_index);
    pthread_mutex_lock(&world->lock);
    ddl_list_remove(&comm->sibling);
    world->nroots -= comm->root == comm;
    bool last = world->nroots == 0;
    pthread_mutex_unlock(&world->lock);
    ddl_votes_free(comm);
    ddl_alone_free(comm->alone);
    ddl_gpu_forget(comm);
    ddl_backend_destroy(comm->backend);
    ddl_free(comm->board);
    ddl_roster_destroy(comm->roster);
    ddl_request_pool_release(comm->pool);
    for (int i = 0; i < DDL_HISTORY; i++)
        ddl_free(comm->history[i].counts);
    ddl_free(comm->members);
    ddl_free(comm->rank_of);
    ddl_free(comm->sent_to);
    ddl_free(comm->received_from);
    ddl_free(comm->starts);
    ddl_free(comm->cards);
    ddl_free(comm->entered);
    ddl_free(comm->messages);
    ddl_free(comm->failure.told_by);
    ddl_free(comm->failure.calls);
    if (comm->is_taken_along)
        ddl_contexts_bury(comm);
    else
        ddl_free(comm);
    return last ? ddl_world_destroy(world, deadline, err) : DDL_OK;
}

void ddl_comm_track(ddl_comm *comm, ddl_request *request)
{
    ddl_list_append(&comm->in_flight, &request->link);
    ddl_list_append(&comm->by_sequence[request->task.sequence % DDL_COMM_BUCKETS], &request->same_bucket);
    if (comm->engine != NULL) /* alone there is nothing to drive, and no baton */
        comm->world->nbusy++;
}

void ddl_comm_untrack(ddl_request *request)
{
    ddl_list_remove(&request->link);
    ddl_list_remove(&request->same_bucket);
    if (request->engine != NULL)
        request->comm->world->nbusy--;
}

ddl_status ddl_init(ddl_comm **out, const ddl_options *options)
{
    if (out == NULL)
        return ddl_last_error_set(DDL_EINVAL, -1, "init", "world is NULL");
    if (ddl_contexts_forked())
        return ddl_last_error_set(
            DDL_EUNSUPPORTED, -1, "init",
            "a forked child must not use the library; start it with exec, or fork before ddl_init");
    ddl_contexts_clear_graves();
    ddl_error error;
    DDL_FAIL(&error, DDL_EINTERNAL, "no details");
    ddl_world *world = NULL;
    ddl_status status = ddl_world_create(options, &world, &error);
    if (status == DDL_OK) {
        int rank = world->config.rank, nranks = world->config.nranks;
        int *members = ddl_alloc_array(2 * (size_t)nranks, sizeof *members);
        if (members == NULL) {
            status = DDL_FAIL(&error, DDL_ENOMEM, "no memory for a communicator of %d ranks", nranks);
            (void)ddl_world_destroy(world, ddl_now_ns(), NULL);
        } else {
            for (int i = 0; i < nranks; i++)
                members[i] = i;
            const int *boards = NULL;
            if (ddl_world_may_have_boards(world, members, nranks) && ddl_world_take_board(world) == 0)
                boards = members + nranks; /* the first of each */
            status = ddl_comm_create(world, DDL_ID_WORLD, members, nranks, rank, boards, NULL,
                                     world->config.timeout_ms, out, &error);
            ddl_free(members);
        }
        error.rank = rank;
    }
    if (status == DDL_OK)
        return DDL_OK;
    snprintf(error.operation, sizeof error.operation, "init");
    return ddl_last_error_keep(&error);
}

/* ---- leaving ---- */

/* Whether it has posted, and others may not have read it; or is about to, behind a vote. */
static bool is_on_board(const ddl_request *request)
{
    const bool waits_for_vote = request->stage == DDL_VOTE_WAITS || request->stage == DDL_VOTE_HOST;
    return ddl_link_linked(&request->task.post.link) ||
           (waits_for_vote && request->task.shape.post_bytes > 0);
}

static ddl_request *first_in_flight(const ddl_comm *comm, bool posts_only)
{
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        if (!posts_only || is_on_board(request))
            return request;
    }
    return NULL;
}

/* Until nothing is in flight, or no post, or the deadline. True: nothing is, and nothing has failed. */
static bool finish_operations(ddl_comm *comm, bool posts_only, ddl_deadline deadline)
{
    while (comm->engine != NULL && !ddl_deadline_passed(deadline)) {
        if (!ddl_engine_enter(comm->engine, deadline))
            return false;
        ddl_engine_drain(comm->engine);
        ddl_request *first = first_in_flight(comm, posts_only);
        if (first == NULL) {
            bool well = !comm->failure.failing && !comm->failure.failed;
            ddl_engine_leave(comm->engine);
            return well;
        }
        ddl_engine_wait_entered(comm->engine, &first->done, deadline);
    }
    return comm->engine == NULL;
}

/* Threads that wait for requests use the engine until they have seen that theirs is done; all are. False: one
 * has not come so far by then, and not in so many naps either, as one that does not run would not. */
static bool see_waiters_off(ddl_comm *comm, ddl_deadline deadline)
{
    for (int nap = 0; atomic_load(&comm->pool->waiters) > 0; nap++) {
        if (nap >= LEAST_NAPS && ddl_deadline_passed(deadline))
            return false;
        ddl_engine_wake(comm->engine);
        struct timespec moment = { 0, 50 * 1000 };
        nanosleep(&moment, NULL);
    }
    return true;
}

/* Nothing is in flight from here on, and nobody waits; or *stuck is set, for the reason why. */
static void close_down(ddl_comm *comm, ddl_deadline deadline, ddl_status *stuck, ddl_error *why)
{
    if (comm->engine == NULL)
        return;
    if (*stuck != DDL_OK)
        return;
    if (!ddl_engine_enter(comm->engine, deadline)) {
        *stuck = DDL_FAIL(why, DDL_ETIMEDOUT, "the engine is stuck in another thread");
        return;
    }
    abandon_operations(comm);
    ddl_engine_leave(comm->engine);
    if (!see_waiters_off(comm, deadline))
        *stuck = DDL_FAIL(why, DDL_ETIMEDOUT,
                          "a thread that waits for an operation on %s does not run, though that has ended; "
                          "is it short of CPU time?",
                          comm->pool->prefix);
}

/* The next communicator after this one (NULL: the first), beside the root itself, that is freed with it. */
static ddl_comm *next_part(ddl_comm *root, const ddl_comm *after)
{
    ddl_comm *found = NULL;
    bool passed = after == NULL;
    pthread_mutex_lock(&root->world->lock);
    DDL_LIST_FOR_EACH (link, &root->world->comms) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, sibling);
        if (passed && found == NULL && comm->root == root && comm != root)
            found = comm;
        passed = passed || comm == after;
    }
    pthread_mutex_unlock(&root->world->lock);
    return found;
}

static bool has_failed(ddl_comm *comm, ddl_deadline deadline)
{
    bool failed = true;
    if (ddl_engine_enter(comm->engine, deadline)) {
        failed = comm->failure.failed && comm->failure.reported;
        ddl_engine_leave(comm->engine);
    }
    return failed;
}

/* What others have posted last may not be what was posted here, if nobody here has needed it. They have met.
 */
static bool posts_agree(ddl_comm *comm, ddl_deadline deadline)
{
    bool agree = true;
    if (comm->board != NULL && ddl_engine_enter(comm->engine, deadline)) {
        ddl_backend_progress(comm->backend);
        agree = !comm->failure.failing;
        ddl_engine_leave(comm->engine);
    }
    return agree;
}

/*
 * What others sent last may not be what was expected here, if nobody here has waited for it. They have met,
 * so it has been sent; between two hosts it may still be on its way. Whoever finds such a thing does not come
 * to the second meeting, which ends with the cause; as whoever left the first one alone does not, or has gone
 * since, which is nobody's failure any more.
 */
static ddl_status meet_again(ddl_comm *comm, const ddl_call *call, ddl_deadline deadline)
{
    const ddl_error before = *ddl_last_error();
    const int left_ms = ddl_deadline_left_ms(deadline);
    if (!ddl_engine_enter(comm->engine, deadline))
        return DDL_OK;
    ddl_engine_progress(comm->engine);
    comm->is_parting = !comm->failure.failing;
    ddl_engine_leave(comm->engine);
    comm->timeout_ms = left_ms < 1 ? 1 : left_ms < AGAIN_MS ? left_ms : AGAIN_MS;
    ddl_status status = ddl_issue(comm, call, NULL);
    if (status == DDL_EMISMATCH || status == DDL_EPROTO)
        return status;
    if (status != DDL_OK)
        (void)ddl_last_error_keep(&before);
    return DDL_OK;
}

/* What operations in streams have come to is told here at last, the first failure of all. */
static void take_streamed(ddl_comm *comm, ddl_status *first, ddl_error *error)
{
    ddl_status status = ddl_stream_reap(comm);
    if (status == DDL_OK || *first != DDL_OK)
        return;
    *first = status;
    *error = *ddl_last_error();
}

/* What is stuck in one communicator may be in another next: the others are lost with it. */
static void destroy_unless(ddl_status *stuck, ddl_comm *comm, ddl_deadline deadline, ddl_error *why)
{
    if (*stuck == DDL_OK)
        *stuck = ddl_comm_destroy(comm, deadline, why);
    else
        ddl_gpu_let_go(comm);
}

/* Whoever is gone had come here and waited for this rank, which is too late to meet anybody. */
static bool others_have_parted(ddl_comm *comm, ddl_deadline deadline)
{
    if (!ddl_engine_enter(comm->engine, deadline))
        return false;
    ddl_engine_progress(comm->engine); /* nobody may have looked for long */
    bool parted = comm->ngone > 0 && !comm->failure.failing && ddl_list_empty(&comm->in_flight);
    for (int rank = 0; parted && rank < comm->nranks; rank++)
        parted = rank == comm->rank || !ddl_mesh_is_gone(comm->mesh, comm->members[rank]) ||
                 comm->entered[rank] > comm->issued;
    ddl_engine_leave(comm->engine);
    return parted;
}

/* The first operation that did not end by the deadline. */
static ddl_status tell_unended(ddl_comm *comm)
{
    char what[64] = "an operation";
    if (ddl_engine_enter(comm->engine, ddl_deadline_in_ms(DDL_COMM_GRACE_MS))) {
        const ddl_request *first = first_in_flight(comm, false);
        if (first != NULL)
            snprintf(what, sizeof what, "%s#%llu", ddl_request_operation(first),
                     (unsigned long long)first->task.sequence);
        ddl_engine_leave(comm->engine);
        if (first == NULL)
            return DDL_OK;
    }
    return ddl_last_error_set(DDL_ETIMEDOUT, comm->rank, "comm_free",
                              "%s of %s had not ended; its request ends now", what, comm->pool->prefix);
}

ddl_status ddl_comm_check(const ddl_comm *comm, const char *operation)
{
    if (comm == NULL)
        return ddl_last_error_set(DDL_EINVAL, -1, operation, "comm is NULL");
    if (ddl_contexts_forked())
        return ddl_last_error_set(DDL_EUNSUPPORTED, comm->rank, operation,
                                  "a forked child must not use the library");
    return DDL_OK;
}

ddl_status ddl_comm_free(ddl_comm **handle)
{
    if (handle == NULL || *handle == NULL)
        return DDL_OK;
    ddl_comm *comm = *handle;
    *handle = NULL;
    if (ddl_contexts_forked()) /* its memory is the price: nothing here may be touched in a forked child */
        return ddl_last_error_set(DDL_EUNSUPPORTED, -1, "comm_free",
                                  "a forked child must not use the library");
    if (ddl_contexts_dig_up(comm))
        return DDL_OK;
    if (comm->world->exited) /* by a later exit handler, or a destructor: the process takes it all along */
        return DDL_OK;
    ddl_status status = DDL_OK, streamed = DDL_OK; /* of operations for which nobody has waited */
    ddl_error error;
    const ddl_error before = *ddl_last_error();
    ddl_deadline deadline = ddl_deadline_in_ms(DDL_COMM_FREE_MS);
    bool is_root = comm->root == comm;
    for (ddl_comm *part = NULL; is_root && (part = next_part(comm, part)) != NULL;)
        part->board_is_done = finish_operations(part, false, deadline) && part->board_index >= 0;
    int left_ms = ddl_deadline_left_ms(deadline);
    bool met = false;
    if (left_ms <= 0) {
        status = ddl_last_error_set(DDL_ETIMEDOUT, comm->rank, "comm_free",
                                    "operations on parts of %s had not ended; their requests end now",
                                    comm->pool->prefix);
    } else if (comm->engine != NULL && !has_failed(comm, deadline) && !others_have_parted(comm, deadline)) {
        /* Who has met the others knows that they have read what was on the board. */
        bool read = comm->board_index >= 0 && finish_operations(comm, true, ddl_deadline_in_ms(left_ms / 2));
        /* Meet once more, so that nobody leaves while others need it; it is issued last, but does not
         * always end last. */
        ddl_call call = { .collective = DDL_COLLECTIVE_BARRIER, .as = DDL_SIGNATURE_FREE };
        comm->timeout_ms = ddl_deadline_left_ms(deadline) > 0 ? ddl_deadline_left_ms(deadline) : 1;
        status = ddl_issue(comm, &call, NULL);
        /* Who waits for others there looks at the connections to those alone. */
        const bool has_unheard = comm->board == NULL && comm->nranks > 2;
        if (status == DDL_OK && has_unheard)
            status = meet_again(comm, &call, deadline);
        if (status == DDL_OK && !finish_operations(comm, false, deadline))
            status = tell_unended(comm);
        if (status == DDL_OK && !has_unheard && !posts_agree(comm, deadline))
            status = meet_again(comm, &call, deadline);
        met = status == DDL_OK;
        comm->board_is_done = met && read;
    }
    const int rank = comm->rank;
    const ddl_deadline least = ddl_deadline_in_ms(DDL_COMM_GRACE_MS),
                       end = deadline > least ? deadline : least;
    ddl_status stuck = DDL_OK;
    ddl_error why;
    for (ddl_comm *part = NULL; is_root && (part = next_part(comm, stuck == DDL_OK ? NULL : part)) != NULL;) {
        part->is_taken_along = true;
        part->board_is_done = part->board_is_done && met && posts_agree(part, deadline);
        close_down(part, end, &stuck, &why);
        take_streamed(part, &streamed, &error);
        destroy_unless(&stuck, part, end, &why);
    }
    close_down(comm, end, &stuck, &why);
    take_streamed(comm, &streamed, &error);
    destroy_unless(&stuck, comm, end, &why);
    if (streamed != DDL_OK) /* results are missing, whatever else has gone wrong */
        return ddl_last_error_keep(&error);
    if (stuck != DDL_OK)
        return ddl_last_error_set(stuck, rank, "comm_free", "%s", why.text);
    if (status == DDL_EABORTED) { /* has failed meanwhile, which those have heard whom it concerns */
        (void)ddl_last_error_keep(&before);
        status = DDL_OK;
    }
    return status;
}

/* ---- facts ---- */

const char *ddl_comm_timeout_name(const ddl_comm *comm, int64_t timeout_ms)
{
    return timeout_ms == comm->world->config.timeout_ms ? "DDL_TIMEOUT" : "ddl_comm_set_timeout";
}

const char *ddl_comm_describe(const ddl_comm *comm, int rank, char *text, size_t capacity)
{
    const ddl_member *member = &comm->roster->members[rank];
    snprintf(text, capacity, "rank %d (pid %d on %s)", rank, (int)member->pid, member->host);
    return text;
}

ddl_status ddl_comm_set_timeout(ddl_comm *comm, int64_t timeout_ms)
{
    if (comm == NULL)
        return ddl_last_error_set(DDL_EINVAL, -1, "comm_set_timeout", "comm is NULL");
    if (ddl_contexts_forked())
        return ddl_last_error_set(DDL_EUNSUPPORTED, comm->rank, "comm_set_timeout",
                                  "a forked child must not use the library");
    if (timeout_ms <= 0)
        return ddl_last_error_set(DDL_EINVAL, comm->rank, "comm_set_timeout",
                                  "%lld ms is not greater than zero", (long long)timeout_ms);
    comm->timeout_ms = timeout_ms;
    return DDL_OK;
}

int ddl_rank(const ddl_comm *comm)
{
    return comm != NULL ? comm->rank : -1;
}

int ddl_size(const ddl_comm *comm)
{
    return comm != NULL ? comm->nranks : -1;
}

int ddl_local_rank(const ddl_comm *comm)
{
    return comm != NULL ? comm->roster->local_rank_of[comm->rank] : -1;
}

int ddl_local_size(const ddl_comm *comm)
{
    return comm != NULL ? comm->roster->local_size_of[comm->rank] : -1;
}

int ddl_node_rank(const ddl_comm *comm)
{
    return comm != NULL ? comm->roster->node_of[comm->rank] : -1;
}

int ddl_node_count(const ddl_comm *comm)
{
    return comm != NULL ? comm->roster->node_count : -1;
}

#define TEXT_OF(number)                   #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *ddl_version(void)
{
    return VERSION_TEXT(DDL_VERSION_MAJOR, DDL_VERSION_MINOR, DDL_VERSION_PATCH);
}
