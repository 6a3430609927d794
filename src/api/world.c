/* world.c - the life of a world, from its options to its last goodbye. */
#include "api/world_parts.h"

#include "api/contexts.h"
#include "api/gpu.h"
#include "api/membership.h"
#include "api/settings.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "io/host.h"
#include "io/socket.h"
#include "io/wire.h"
#include "rendezvous/proof.h"

#include <string.h>
#include <unistd.h>

enum {
    LEAST_MEETINGS_MS = 100, /* where the time is up */
    LAST_MEETINGS_MS = 500,
    MOST_SPEAKERS = 64 /* ranks of a world that all tell who is missing */
};

#ifdef __APPLE__ /* whose libraries are not linked with it */
#include <crt_externs.h>
#define environ (*_NSGetEnviron())
#else
extern char **environ; /* which POSIX leaves to be declared by who reads it */
#endif

/* Whether another rank of this host tells who is missing. Where no launcher says which, all ranks do, unless
 * there are so many that what each asks the store for would keep it from its work. */
static bool is_quiet(const ddl_config *config)
{
    return config->local_rank > 0 || (config->local_rank < 0 && config->nranks > MOST_SPEAKERS);
}

/* Where there is no GPU nobody is to vote on whose buffers are on one. */
static bool may_use_nccl(const ddl_config *config)
{
    return config->gpu == DDL_GPU_NCCL || (config->gpu == DDL_GPU_AUTO && ddl_gpu_is_likely());
}

/* How long a pair that connects late may take. What a rank answers to a call it answers of itself, as a ping;
 * but a handshake takes longer, and there may be many at its door. */
static int64_t late_ms(const ddl_config *config)
{
    enum { LEAST_MS = 10 * 1000 };
    const int64_t ms = config->unresponsive_ms > LEAST_MS ? config->unresponsive_ms : LEAST_MS;
    return ms < config->start_timeout_ms ? ms : config->start_timeout_ms;
}

static ddl_bootstrap_options bootstrap_options(ddl_world *world, ddl_deadline deadline)
{
    return (ddl_bootstrap_options){
        .rank = world->config.rank,
        .nranks = world->config.nranks,
        .prover = world->prover,
        .encryption = world->encryption,
        .generator = DDL_GENERATOR_VERSION,
        .costs = world->config.costs,
        .ncosts = DDL_COST_CONSTANTS,
        .store = world->config.store,
        .master = world->config.master,
        .network = &world->config.network,
        .connect = world->config.connect,
        .nstreams = world->config.nstreams,
        .local = world->config.local_transport != DDL_LOCAL_TCP,
        .insists_on_memory = world->config.local_transport == DDL_LOCAL_SHM,
        .asks_nccl = world->config.gpu == DDL_GPU_NCCL,
        .may_use_nccl = may_use_nccl(&world->config),
        .may_have_gpu = ddl_gpu_may_be_there(),
        .quiet = is_quiet(&world->config),
        .make_ready = ddl_world_make_insisted,
        .arg = world,
        .service = world->service,
        .deadline = deadline,
        .late_ms = late_ms(&world->config),
    };
}

static ddl_status meet(ddl_world *world, ddl_wire wires[], ddl_deadline deadline, ddl_error *err)
{
    DDL_TRY(ddl_service_create(&world->service, err));
    const ddl_bootstrap_options options = bootstrap_options(world, deadline);
    return ddl_bootstrap_join(&options, &world->bootstrap, &world->roster, wires, err);
}

static ddl_status set_pull(ddl_world *world, ddl_error *err)
{
    ddl_cost_model model;
    DDL_TRY(ddl_cost_model_unpack(world->roster->costs, world->roster->ncosts, 1, &model, err));
    ddl_mesh_set_pull(world->mesh, model.pull_bytes < DDL_NEVER_PULL ? (size_t)model.pull_bytes : SIZE_MAX);
    return DDL_OK;
}

static void close_all(ddl_wire wires[], int count)
{
    for (int i = 0; i < count; i++)
        ddl_wire_close(&wires[i]);
}

/* What all must be agreed on, or have together, before they exchange messages. */
static ddl_status prepare(ddl_world *world, ddl_wire wires[], ddl_deadline deadline, ddl_error *err)
{
    DDL_TRY(ddl_world_check_settings(world, err));
    DDL_TRY(ddl_world_make_lanes(world, wires, deadline, err));
    return ddl_world_make_heap(world, err);
}

static ddl_status make_mesh(ddl_world *world, ddl_wire wires[], ddl_error *err)
{
    const ddl_mesh_owner owner = ddl_world_mesh_owner(world);
    DDL_TRY(ddl_mesh_create(world->config.rank, world->config.nranks, wires, world->lanes, world->heap,
                            &owner, &world->mesh, err));
    DDL_TRY(set_pull(world, err));
    return ddl_world_widen(world, err);
}

static ddl_status make_engine(ddl_world *world, ddl_deadline deadline, ddl_error *err)
{
    const ddl_engine_client client = ddl_world_engine_client(world);
    world->vigils = ddl_alloc_array((size_t)world->config.nranks, sizeof *world->vigils);
    if (world->vigils == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d ranks", world->config.nranks);
    DDL_TRY(ddl_engine_create(&client, ddl_roster_is_crowded(world->roster), &world->engine, err));
    if (!ddl_engine_enter(world->engine, deadline))
        return DDL_FAIL(err, DDL_ETIMEDOUT, "the engine is stuck in another thread (DDL_START_TIMEOUT)");
    ddl_status status = ddl_mesh_open(world->mesh, world->engine, err);
    ddl_engine_leave(world->engine);
    if (status == DDL_OK)
        ddl_world_await_arrivals(world);
    return status;
}

static ddl_status connect_all(ddl_world *world, ddl_error *err)
{
    ddl_wire *wires = ddl_alloc_array((size_t)world->config.nranks, sizeof *wires);
    if (wires == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d connections", world->config.nranks);
    for (int rank = 0; rank < world->config.nranks; rank++)
        wires[rank] = ddl_no_wire;
    world->wires = wires;
    const ddl_deadline deadline = world->config.start_until;
    ddl_status status = meet(world, wires, deadline, err);
    DDL_FAILPOINT_STALL("api.met");
    if (status != DDL_OK)
        return status;
    status = prepare(world, wires, deadline, err);
    if (status != DDL_OK) {
        close_all(wires, world->config.nranks);
        return status;
    }
    DDL_TRY(make_mesh(world, wires, err));
    return make_engine(world, deadline, err);
}

static ddl_status be_alone(ddl_world *world, ddl_error *err)
{
    DDL_TRY(ddl_roster_create(0, 1, &world->roster, err));
    ddl_host_name(world->roster->members[0].host);
    world->roster->members[0].pid = (int32_t)getpid();
    world->roster->members[0].cpus = 1;
    world->roster->ncosts = DDL_COST_CONSTANTS;
    memcpy(world->roster->costs, world->config.costs, sizeof world->config.costs);
    ddl_roster_derive(world->roster);
    return ddl_world_make_heap(world, err);
}

/* Also where the start fails, which may be for want of what was meant; not where it is unknown which rank
 * this is. */
static void warn_of_unknown_settings(const ddl_config *config)
{
    char unknown[640];
    if (config->nranks == 0 || config->rank != 0)
        return;
    ddl_settings_unknown(environ, unknown, sizeof unknown);
    if (unknown[0] != '\0')
        ddl_log(DDL_LOG_WARNING, "ignored, as ddl has no such setting: %s", unknown);
}

/* What shows that this rank belongs to the job. */
static ddl_status find_membership(ddl_world *world, ddl_error *err)
{
    return ddl_membership_find(&world->config, &world->prover, &world->encryption, err);
}

/* Whether this rank can take part by itself. */
static ddl_status check_oneself(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    const ddl_status status = ddl_config_read(options, config, err);
    warn_of_unknown_settings(config);
    if (status != DDL_OK || config->nranks == 1)
        return status;
    return ddl_bootstrap_need_descriptors(config->rank, config->nranks, config->connect, err);
}

/*
 * It cannot; the others would wait for it, if they did not hear why. Not where they wait no longer than it
 * takes to tell them; nor of what a program may try on all ranks, as ddl-bench does each algorithm: all
 * find it by themselves, and go on to the next try at once.
 */
static void tell_lack(ddl_world *world, ddl_error *err)
{
    enum { TELLING_MS = 1500 };
    const ddl_error lack = *err;
    const ddl_deadline deadline = world->config.start_until;
    ddl_error ignored, told;
    if (!world->config.knows_place || world->config.may_be_tried || world->config.nranks == 1 ||
        ddl_deadline_left_ms(deadline) < TELLING_MS || !ddl_bootstrap_may_tell() ||
        find_membership(world, &ignored) != DDL_OK || ddl_service_create(&world->service, &ignored) != DDL_OK)
        return;
    ddl_bootstrap_options options = bootstrap_options(world, deadline);
    options.lack = &lack;
    if (ddl_bootstrap_join(&options, &world->bootstrap, &world->roster, NULL, &told) == lack.code)
        *err = told;
}

ddl_status ddl_world_create(const ddl_options *options, ddl_world **out, ddl_error *err)
{
    ddl_world *world = ddl_alloc(sizeof *world);
    if (world == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a world");
    pthread_mutex_init(&world->lock, NULL);
    ddl_list_init(&world->comms);
    ddl_list_init(&world->active);
    ddl_list_init(&world->early_words);
    ddl_list_init(&world->posting);
    ddl_list_init(&world->staged);
    ddl_list_init(&world->voting);
    for (int i = 0; i < DDL_WORLD_BUCKETS; i++)
        ddl_list_init(&world->by_id[i]);
    ddl_contexts_add(world);
    ddl_host_fill_standard();
    ddl_status status = check_oneself(options, &world->config, err);
    if (status != DDL_OK)
        tell_lack(world, err);
    if (status == DDL_OK)
        status = find_membership(world, err);
    if (status == DDL_OK)
        status = world->config.nranks == 1 ? be_alone(world, err) : connect_all(world, err);
    if (status != DDL_OK) {
        err->rank = world->config.nranks > 0 ? world->config.rank : -1;
        if (world->config.nranks > 1)
            ddl_bootstrap_blame_oneself(world->config.rank, err);
        (void)ddl_world_destroy(world, ddl_now_ns(), NULL);
        return status;
    }
    ddl_contexts_made(world);
    ddl_free(world->wires);
    world->wires = NULL;
    *out = world;
    return DDL_OK;
}

/* ---- the end ---- */

/* What was told to ranks that are being connected for it, an abort for one, is to reach them. */
static void await_meetings(ddl_world *world, ddl_deadline deadline)
{
    bool awaited = ddl_roster_is_sparse(world->roster);
    while (awaited && !ddl_deadline_passed(deadline) && ddl_engine_enter(world->engine, deadline)) {
        ddl_engine_progress(world->engine);
        awaited = ddl_mesh_awaits_meeting(world->mesh);
        ddl_engine_leave(world->engine);
        if (awaited)
            (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(1));
    }
}

static void close_mesh(ddl_world *world, ddl_deadline deadline)
{
    if (world->mesh == NULL || world->engine == NULL)
        return;
    const ddl_deadline least = ddl_deadline_in_ms(LEAST_MEETINGS_MS);
    await_meetings(world, ddl_deadline_earlier(ddl_deadline_in_ms(LAST_MEETINGS_MS),
                                               deadline > least ? deadline : least));
    if (ddl_engine_enter(world->engine, ddl_deadline_in_ms(DDL_COMM_FREE_MS))) {
        ddl_world_take_arrivals(world); /* who is connected just now hears the goodbye too */
        ddl_deadline most = ddl_deadline_in_ms(DDL_WORLD_PARTING_MS);
        ddl_mesh_say_goodbye(world->mesh);
        ddl_mesh_part(world->mesh, deadline < most ? deadline : most);
        ddl_mesh_close(world->mesh);
        ddl_engine_progress(world->engine);
        ddl_bootstrap_shut_door(world->bootstrap);
        ddl_engine_leave(world->engine);
    }
}

/* The service thread first: it tells the engine of ranks that come. */
static ddl_status end_threads(ddl_world *world, ddl_deadline deadline, ddl_error *err)
{
    if (world->service != NULL)
        (void)!ddl_service_check(world->service, deadline, NULL); /* if in vain, nobody waits for it below */
    ddl_bootstrap_leave(world->bootstrap);
    if (!ddl_service_destroy(world->service)) {
        ddl_service_is_lost(world->service, err);
        return DDL_ETIMEDOUT;
    }
    world->service = NULL; /* forked children would look at it, if the world is lost all the same */
    if (!ddl_engine_destroy(world->engine, deadline))
        return DDL_FAIL(
            err, DDL_ETIMEDOUT,
            "the engine's thread is stuck; is it stopped, by a debugger say, or short of CPU time?");
    return DDL_OK;
}

ddl_status ddl_world_destroy(ddl_world *world, ddl_deadline deadline, ddl_error *err)
{
    if (world == NULL)
        return DDL_OK;
    ddl_contexts_remove(world);
    if (world->exited) { /* another thread does, and has said goodbye: the process takes it all along */
        ddl_contexts_lose(world);
        return DDL_OK;
    }
    close_mesh(world, deadline);
    if (end_threads(world, deadline, err) != DDL_OK) {
        ddl_contexts_lose(world);
        return DDL_ETIMEDOUT;
    }
    ddl_mesh_destroy(world->mesh);
    ddl_heap_destroy(world->heap);
    ddl_lanes_destroy(world->lanes);
    ddl_encryption_destroy(world->encryption);
    ddl_proof_destroy(world->prover);
    ddl_roster_destroy(world->roster);
    ddl_world_forget_words(world);
    ddl_free(world->wires);
    ddl_free(world->vigils);
    ddl_free(world->freed);
    pthread_mutex_destroy(&world->lock);
    ddl_free(world);
    return DDL_OK;
}
