/* world.c - making a world and leaving it. */
#include "api/contexts.h"
#include "api/issue.h"
#include "api/last_error.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "compute/compute_cpu.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { FREE_TIMEOUT_MS = 5000 };

/* ---- making ---- */

/* The fullest host decides, so that all ranks choose the same algorithms. */
static double crowding(const ddl_roster *roster)
{
    double most = 1;
    for (int rank = 0; rank < roster->nranks; rank++) {
        uint32_t cpus = roster->members[rank].cpus > 0 ? roster->members[rank].cpus : 1;
        double here = (double)roster->local_size_of[rank] / cpus;
        most = here > most ? here : most;
    }
    return most;
}

static void close_mesh(ddl_comm *comm)
{
    if (comm->mesh == NULL)
        return;
    if (comm->engine != NULL && ddl_engine_enter(comm->engine, ddl_deadline_in_ms(FREE_TIMEOUT_MS))) {
        ddl_mesh_close(comm->mesh);
        ddl_engine_progress(comm->engine);
        ddl_engine_leave(comm->engine);
    }
}

/* Accepts what is half built. */
static void destroy(ddl_comm *comm)
{
    if (comm == NULL)
        return;
    close_mesh(comm);
    ddl_engine_destroy(comm->engine);
    ddl_mesh_destroy(comm->mesh);
    ddl_bootstrap_leave(comm->bootstrap);
    ddl_service_destroy(comm->service);
    ddl_backend_destroy(comm->backend);
    ddl_roster_destroy(comm->roster);
    ddl_request_pool_release(comm->pool);
    ddl_free(comm->sent_to);
    ddl_free(comm->received_from);
    ddl_free(comm->entered);
    ddl_free(comm->failure.told_by);
    ddl_free(comm->failure.disagrees_known);
    ddl_free(comm->failure.signatures);
    ddl_free(comm);
}

static ddl_status meet(ddl_comm *comm, int sockets[], ddl_error *err)
{
    DDL_TRY(ddl_service_create(&comm->service, err));
    ddl_bootstrap_options options = {
        .rank = comm->config.rank,
        .nranks = comm->config.nranks,
        .generator = DDL_GENERATOR_VERSION,
        .costs = comm->config.costs,
        .ncosts = DDL_COST_CONSTANTS,
        .store = comm->config.store,
        .master = comm->config.master,
        .iface = comm->config.iface[0] != '\0' ? comm->config.iface : NULL,
        .service = comm->service,
        .deadline = ddl_deadline_in_ms(comm->config.start_timeout_ms),
    };
    return ddl_bootstrap_join(&options, &comm->bootstrap, &comm->roster, sockets, err);
}

static ddl_status connect_world(ddl_comm *comm, ddl_error *err)
{
    int *sockets = ddl_alloc_array((size_t)comm->config.nranks, sizeof *sockets);
    if (sockets == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d sockets", comm->config.nranks);
    ddl_status status = meet(comm, sockets, err);
    if (status == DDL_OK) {
        ddl_mesh_owner owner = ddl_failure_mesh_owner;
        owner.arg = comm;
        status = ddl_mesh_create(comm->config.rank, comm->config.nranks, sockets, &owner, &comm->mesh, err);
    }
    ddl_free(sockets);
    if (status != DDL_OK)
        return status;
    ddl_engine_client client = { ddl_issue_sweep, ddl_issue_needs_loop, ddl_issue_job,
                                 ddl_issue_tick,  ddl_issue_busy,       comm };
    const ddl_member *self = &comm->roster->members[comm->config.rank];
    bool crowded = (uint32_t)comm->roster->local_size_of[comm->config.rank] > self->cpus;
    DDL_TRY(ddl_engine_create(&client, crowded, &comm->engine, err));
    bool entered = ddl_engine_enter(comm->engine, DDL_DEADLINE_NEVER);
    DDL_ASSERT(entered);
    status = ddl_mesh_open(comm->mesh, comm->engine, err);
    ddl_engine_leave(comm->engine);
    return status;
}

static ddl_status world_of_one(ddl_comm *comm, ddl_error *err)
{
    DDL_TRY(ddl_roster_create(0, 1, &comm->roster, err));
    snprintf(comm->roster->members[0].host, DDL_HOST_TEXT, "this host");
    comm->roster->members[0].cpus = 1;
    comm->roster->ncosts = DDL_COST_CONSTANTS;
    memcpy(comm->roster->costs, comm->config.costs, sizeof comm->config.costs);
    ddl_roster_derive(comm->roster);
    return DDL_OK;
}

static ddl_status build(ddl_comm *comm, ddl_error *err)
{
    size_t nranks = (size_t)comm->config.nranks;
    comm->timeout_ms = comm->config.timeout_ms;
    ddl_list_init(&comm->in_flight);
    comm->sent_to = ddl_alloc_array(nranks, sizeof *comm->sent_to);
    comm->received_from = ddl_alloc_array(nranks, sizeof *comm->received_from);
    comm->entered = ddl_alloc_array(nranks, sizeof *comm->entered);
    comm->failure.told_by = ddl_alloc_array(nranks, sizeof *comm->failure.told_by);
    comm->failure.disagrees_known = ddl_alloc_array(nranks, sizeof *comm->failure.disagrees_known);
    comm->failure.signatures = ddl_alloc_array(nranks, sizeof *comm->failure.signatures);
    if (comm->sent_to == NULL || comm->received_from == NULL || comm->entered == NULL ||
        comm->failure.told_by == NULL || comm->failure.disagrees_known == NULL ||
        comm->failure.signatures == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a world of %zu ranks", nranks);
    DDL_TRY(nranks == 1 ? world_of_one(comm, err) : connect_world(comm, err));
    DDL_TRY(ddl_cost_model_unpack(comm->roster->costs, comm->roster->ncosts, crowding(comm->roster),
                                  &comm->model, err));
    char prefix[160];
    snprintf(prefix, sizeof prefix, "comm=world rank %d@%s", comm->config.rank,
             comm->roster->members[comm->config.rank].host);
    comm->pool = ddl_request_pool_create(comm->config.rank, prefix);
    if (comm->pool == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for requests");
    return ddl_backend_create(comm->mesh != NULL ? ddl_mesh_transport(comm->mesh) : NULL, ddl_compute_cpu(),
                              &comm->backend, err);
}

ddl_status ddl_init(ddl_comm **world, const ddl_options *options)
{
    if (world == NULL)
        return ddl_last_error_set(DDL_EINVAL, -1, "init", "world is NULL");
    if (ddl_contexts_forked())
        return ddl_last_error_set(
            DDL_EUNSUPPORTED, -1, "init",
            "a forked child must not use the library; start it with exec, or fork before ddl_init");
    ddl_error error;
    DDL_FAIL(&error, DDL_EINTERNAL, "no details");
    ddl_comm *comm = ddl_alloc(sizeof *comm);
    ddl_status status = comm == NULL ? DDL_FAIL(&error, DDL_ENOMEM, "no memory for a communicator")
                                     : ddl_config_read(options, &comm->config, &error);
    if (status == DDL_OK)
        status = build(comm, &error);
    if (status == DDL_OK) {
        ddl_contexts_add(comm);
        *world = comm;
        return DDL_OK;
    }
    error.rank = comm != NULL && comm->config.nranks > 0 ? comm->config.rank : -1;
    snprintf(error.operation, sizeof error.operation, "init");
    destroy(comm);
    return ddl_last_error_keep(&error);
}

/* ---- leaving ---- */

/* Holder: end what is still in flight; nobody will drive it any more. */
static void abandon_operations(ddl_comm *comm)
{
    bool any = false;
    for (ddl_link *first; (first = ddl_list_take_first(&comm->in_flight)) != NULL;) {
        ddl_request *request = DDL_CONTAINER(first, ddl_request, link);
        ddl_backend_cancel(&request->task);
        if (!comm->failure.failed && !any) {
            comm->pool->cause = (ddl_notice){ .code = DDL_EABORTED, .culprit = -1, .witness = -1 };
            snprintf(comm->pool->cause.text, sizeof comm->pool->cause.text,
                     "the communicator was freed before the operation had ended");
        }
        any = true;
        request->status = comm->pool->cause.code;
        request->root_cause = true;
        atomic_store(&request->done, true);
    }
    ddl_engine_wake(comm->engine);
}

/* Let operations in flight complete, then meet once more, so that nobody leaves while others need it. */
static ddl_status part(ddl_comm *comm)
{
    ddl_call call = { .collective = DDL_COLLECTIVE_BARRIER, .parting = true };
    comm->timeout_ms = FREE_TIMEOUT_MS;
    ddl_deadline deadline = ddl_deadline_in_ms(FREE_TIMEOUT_MS);
    ddl_status status = ddl_issue(comm, &call, NULL);
    /* The barrier is the last operation issued, not always the last to end. */
    while (status == DDL_OK && !ddl_deadline_passed(deadline)) {
        if (!ddl_engine_enter(comm->engine, deadline))
            break;
        ddl_link *first = ddl_list_first(&comm->in_flight);
        if (first == NULL) {
            ddl_engine_leave(comm->engine);
            break;
        }
        ddl_engine_wait_entered(comm->engine, &DDL_CONTAINER(first, ddl_request, link)->done, deadline);
    }
    return status;
}

/* Threads that wait for requests use the engine until they have seen that theirs is done; all are. */
static void see_waiters_off(ddl_comm *comm)
{
    ddl_deadline deadline = ddl_deadline_in_ms(FREE_TIMEOUT_MS);
    while (atomic_load(&comm->pool->waiters) > 0 && !ddl_deadline_passed(deadline)) {
        ddl_engine_wake(comm->engine);
        struct timespec moment = { 0, 50 * 1000 };
        nanosleep(&moment, NULL);
    }
}

ddl_status ddl_comm_free(ddl_comm **handle)
{
    if (handle == NULL || *handle == NULL)
        return DDL_OK;
    ddl_comm *comm = *handle;
    *handle = NULL;
    if (comm->forked) /* its memory is the price: nothing here may be touched in a forked child */
        return ddl_last_error_set(DDL_EUNSUPPORTED, comm->config.rank, "comm_free",
                                  "a forked child must not use the library");
    ddl_status status = DDL_OK;
    if (comm->engine != NULL) {
        ddl_deadline deadline = ddl_deadline_in_ms(FREE_TIMEOUT_MS);
        bool failed = true;
        if (ddl_engine_enter(comm->engine, deadline)) {
            failed = comm->failure.failed && comm->failure.reported;
            ddl_engine_leave(comm->engine);
        }
        if (!failed)
            status = part(comm);
        if (ddl_engine_enter(comm->engine, deadline)) {
            abandon_operations(comm);
            ddl_engine_leave(comm->engine);
        }
        see_waiters_off(comm);
    }
    ddl_contexts_remove(comm);
    destroy(comm);
    return status == DDL_EABORTED ? DDL_OK : status;
}

/* ---- facts ---- */

ddl_status ddl_comm_set_timeout(ddl_comm *comm, int64_t timeout_ms)
{
    if (comm == NULL)
        return ddl_last_error_set(DDL_EINVAL, -1, "comm_set_timeout", "comm is NULL");
    if (ddl_contexts_forked())
        return ddl_last_error_set(DDL_EUNSUPPORTED, comm->config.rank, "comm_set_timeout",
                                  "a forked child must not use the library");
    if (timeout_ms <= 0)
        return ddl_last_error_set(DDL_EINVAL, comm->config.rank, "comm_set_timeout",
                                  "%lld ms is not greater than zero", (long long)timeout_ms);
    comm->timeout_ms = timeout_ms;
    return DDL_OK;
}

int ddl_rank(const ddl_comm *comm)
{
    return comm != NULL ? comm->config.rank : -1;
}

int ddl_size(const ddl_comm *comm)
{
    return comm != NULL ? comm->config.nranks : -1;
}

int ddl_local_rank(const ddl_comm *comm)
{
    return comm != NULL ? comm->roster->local_rank_of[comm->config.rank] : -1;
}

int ddl_local_size(const ddl_comm *comm)
{
    return comm != NULL ? comm->roster->local_size_of[comm->config.rank] : -1;
}

int ddl_node_rank(const ddl_comm *comm)
{
    return comm != NULL ? comm->roster->node_of[comm->config.rank] : -1;
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
