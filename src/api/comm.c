/* comm.c - a communicator as it is made, and facts about it. */
#include "api/comm.h"

#include "api/contexts.h"
#include "api/failure.h"
#include "api/last_error.h"
#include "api/votes.h"
#include "base/bytes.h"
#include "base/size.h"
#include "compute/compute_cpu.h"
#include "io/local.h"
#include "protocol/overlay.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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
    enum { FIRST_ROWS = 64 };
    size_t nranks = (size_t)comm->nranks, nworld = (size_t)comm->world->config.nranks;
    comm->members = ddl_alloc_array(nranks, sizeof *comm->members);
    comm->rank_of = ddl_alloc_array(nworld, sizeof *comm->rank_of);
    comm->sent_to = ddl_alloc_array(nranks, sizeof *comm->sent_to);
    comm->received_from = ddl_alloc_array(nranks, sizeof *comm->received_from);
    comm->starts = ddl_alloc_array(2 * nranks, sizeof *comm->starts);
    comm->entered = ddl_alloc_array(nranks, sizeof *comm->entered);
    comm->messages = ddl_alloc_array(2 * nranks, sizeof *comm->messages);
    if (comm->members == NULL || comm->rank_of == NULL || comm->sent_to == NULL ||
        comm->received_from == NULL || comm->starts == NULL || comm->messages == NULL ||
        comm->entered == NULL || !ddl_failure_init(comm) || !ddl_table_init(&comm->by_sequence, FIRST_ROWS))
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

_Static_assert((size_t)DDL_POSTED_AHEAD_BYTES <= (size_t)DDL_SHEET_BYTES, "who posts so much may be ahead");

static ddl_status make_board(ddl_comm *comm, const int boards[], ddl_error *err)
{
    if (boards == NULL)
        return DDL_OK;
    comm->board = ddl_alloc(sizeof *comm->board);
    if (comm->board == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a board");
    *comm->board = ddl_board_of(comm->rank, comm->nranks);
    for (int rank = 0; rank < comm->nranks; rank++)
        comm->board->pads[rank] = ddl_world_pad(comm->world, comm->members[rank], boards[rank]);
    const unsigned own = 1U << boards[comm->rank];
    ddl_board_begin(comm->board, (atomic_fetch_or(&comm->world->used_boards, own) & own) == 0);
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
    comm->shares_cpus = ddl_roster_crowding(all) > 1;
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
        comm->board == NULL ? 0 : (double)ddl_size_min(comm->piece_bytes, DDL_POST_BYTES);
    const ddl_posting_owner owner = { comm->board,           wake_members,
                                      post_differs,          comm,
                                      &comm->world->posting, comm->world->has_common_heaps ? &heaps : NULL };
    return ddl_backend_create(comm->mesh != NULL ? ddl_mesh_transport(comm->mesh) : NULL, comm->members,
                              ddl_compute_cpu(), &owner, &comm->backend, err);
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
    comm->timeout_ms = comm->set_timeout_ms = timeout_ms;
    ddl_list_init(&comm->in_flight);
    ddl_list_init(&comm->streamed);
    pthread_mutex_lock(&world->lock);
    ddl_list_append(&world->comms, &comm->sibling);
    world->nroots += root == NULL;
    pthread_mutex_unlock(&world->lock);
    ddl_status status = fill(comm, members, boards, err);
    if (status == DDL_OK && comm->engine != NULL) {
        if (!ddl_engine_enter(comm->engine, ddl_deadline_in_ms(DDL_COMM_FREE_MS)))
            status = ddl_comm_kept_out(comm, err);
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

/* Each rank numbers what it sends to each other one from 1, and so what it receives. */
uint64_t ddl_comm_message_hash(ddl_collective direction, int peer, uint64_t sequence)
{
    const uint64_t line = 2 * (uint64_t)peer + (direction == DDL_COLLECTIVE_SEND);
    return sequence + UINT64_C(0x9e3779b97f4a7c15) * (line + 1);
}

static uint64_t hash_of(const ddl_task *task)
{
    if (ddl_channel_is_collective(task->channel))
        return task->sequence;
    return ddl_comm_message_hash(task->algorithm->collective, task->shape.root, task->sequence);
}

void ddl_comm_track(ddl_comm *comm, ddl_request *request)
{
    ddl_list_append(&comm->in_flight, &request->link);
    ddl_table_add(&comm->by_sequence, &request->by_sequence, hash_of(&request->task));
    if (comm->engine != NULL) /* alone there is nothing to drive, and no baton */
        comm->world->nbusy++;
}

void ddl_comm_untrack(ddl_request *request)
{
    ddl_list_remove(&request->link);
    ddl_table_remove(&request->comm->by_sequence, &request->by_sequence);
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
        if (nranks > 1 && error.culprit < 0)
            error.culprit = rank; /* who has no memory for it */
    }
    if (status == DDL_OK)
        return DDL_OK;
    snprintf(error.operation, sizeof error.operation, "init");
    return ddl_last_error_keep(&error);
}

/* ---- facts ---- */

ddl_status ddl_comm_check(const ddl_comm *comm, const char *operation)
{
    if (comm == NULL)
        return ddl_last_error_set(DDL_EINVAL, -1, operation, "comm is NULL");
    if (ddl_contexts_forked())
        return ddl_last_error_set(
            DDL_EUNSUPPORTED, comm->rank, operation,
            "a forked child must not use the library; start it with exec, or fork before ddl_init");
    return DDL_OK;
}

/* By an exit handler that comes later, or a destructor. */
static ddl_status refuse_at_exit(const ddl_comm *comm, const char *operation)
{
    if (!comm->world->exited || comm->engine == NULL)
        return DDL_OK;
    return ddl_last_error_set(DDL_EABORTED, comm->rank, operation, "%s: " DDL_REQUEST_EXITED,
                              comm->pool->prefix);
}

ddl_status ddl_comm_kept_out(const ddl_comm *comm, ddl_error *err)
{
    if (comm->world->exited)
        return DDL_FAIL(err, DDL_EABORTED, DDL_REQUEST_EXITED);
    return DDL_FAIL(err, DDL_ETIMEDOUT, "the engine is stuck in another thread");
}

ddl_status ddl_comm_check_open(const ddl_comm *comm, const char *operation)
{
    DDL_TRY(ddl_comm_check(comm, operation));
    return ddl_contexts_have_ended() ? refuse_at_exit(comm, operation) : DDL_OK;
}

const char *ddl_comm_timeout_name(const ddl_comm *comm, int64_t timeout_ms)
{
    const ddl_config *config = &comm->world->config;
    if (timeout_ms == config->timeout_ms)
        return config->timeout_is_given ? "ddl_options.timeout_ms" : "DDL_TIMEOUT";
    return timeout_ms == comm->set_timeout_ms ? "ddl_comm_set_timeout" : "the limit of this call";
}

const char *ddl_comm_describe(const ddl_comm *comm, int rank, char *text, size_t capacity)
{
    const ddl_member *member = &comm->roster->members[rank];
    snprintf(text, capacity, "rank %d (pid %d on %s)", rank, (int)member->pid, member->host);
    return text;
}

ddl_status ddl_comm_set_timeout(ddl_comm *comm, int64_t timeout_ms)
{
    DDL_TRY(ddl_comm_check(comm, "comm_set_timeout"));
    if (timeout_ms <= 0)
        return ddl_last_error_set(DDL_EINVAL, comm->rank, "comm_set_timeout",
                                  "%lld ms is not greater than zero", (long long)timeout_ms);
    comm->timeout_ms = comm->set_timeout_ms = timeout_ms;
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
