/* world_engine.c - what the engine drives for a world. */
#include "api/world_parts.h"

#include "api/abort.h"
#include "api/failure.h"
#include "api/issue.h"
#include "api/votes.h"
#include "api/watching.h"

enum {
    COPIES_NEAR_MS = 5,
    COPIES_LOOK_MS = 1,
    WATCH_MS = 250,    /* from one look at those who are waited for to the next */
    STOPPED_MS = 1000, /* a tick that comes so late after the one before it, where 200 ms is the most */
    WARY_TICKS = 10,
    GPUS_NEAR_MS = 50,
    GPUS_LOOK_MS = 1
};

bool ddl_world_finish_posts(ddl_world *world)
{
    bool moved = false;
    if (world->posts_held)
        return false;
    world->posts_held = true;
    DDL_LIST_FOR_EACH (link, &world->posting)
        moved = ddl_posting_progress(DDL_CONTAINER(link, ddl_posting, link)) || moved;
    world->posts_held = false;
    return moved;
}

/* ---- what goes to GPUs and comes from them ---- */

static bool progress_copies(ddl_world *world)
{
    bool moved = false;
    DDL_LIST_FOR_EACH (link, &world->staged)
        moved = ddl_backend_progress_staged(DDL_CONTAINER(link, ddl_staging, link)) || moved;
    if (moved)
        world->copied_ns = ddl_now_ns();
    return moved;
}

static bool waits_for_copies(const ddl_staging *staging)
{
    DDL_LIST_FOR_EACH (link, &staging->running)
        if (ddl_staged_waits(DDL_CONTAINER(link, ddl_staged, link)))
            return true;
    return false;
}

/* Nothing wakes a sleeper at the end of a copy, which mostly is near, or when a stream comes to an operation,
 * which may be any time: after a while a look now and then will do. */
static bool expects_copies(ddl_world *world)
{
    bool waits = false;
    DDL_LIST_FOR_EACH (link, &world->staged)
        waits = waits || waits_for_copies(DDL_CONTAINER(link, ddl_staging, link));
    ddl_engine_set_nap(world->engine, waits ? COPIES_LOOK_MS : 0);
    return waits && ddl_now_ns() - world->copied_ns < COPIES_NEAR_MS * DDL_NS_PER_MS;
}

static bool progress_votes(ddl_world *world)
{
    bool moved = false;
    if (world->posts_held || ddl_list_empty(&world->voting))
        return false;
    world->posts_held = true; /* nor may this list be walked meanwhile */
    DDL_LIST_FOR_EACH (link, &world->voting)
        moved = ddl_votes_progress(DDL_CONTAINER(link, ddl_comm, voting)) || moved;
    world->posts_held = false;
    return moved;
}

/* Nor does anything at the end of what they do among themselves. */
static bool expects_gpus(ddl_world *world)
{
    if (ddl_list_empty(&world->voting))
        return false;
    ddl_engine_set_nap(world->engine, GPUS_LOOK_MS);
    return ddl_now_ns() - world->voted_ns < GPUS_NEAR_MS * DDL_NS_PER_MS;
}

void ddl_world_finish_with(ddl_world *world)
{
    ddl_world_finish_posts(world);
    progress_votes(world);
}

/* ---- aborts ---- */

void ddl_world_tell_aborts(ddl_world *world)
{
    if (!atomic_exchange(&world->has_aborts, true))
        ddl_engine_submit(world->engine, &world->aborts);
}

static void take_aborts(ddl_world *world)
{
    atomic_store(&world->has_aborts, false); /* first: one that is left from now on is submitted again */
    DDL_LIST_FOR_EACH (link, &world->active)
        ddl_abort_do_pending(DDL_CONTAINER(link, ddl_comm, active));
}

/* ---- what the engine asks for ---- */

static bool sweep(void *arg)
{
    ddl_world *world = arg;
    bool posted = ddl_world_finish_posts(world);
    bool copied = !ddl_list_empty(&world->staged) && progress_copies(world);
    ddl_mesh_sweep(world->mesh);
    return posted || copied;
}

/* Where calls may go to GPUs. */
static bool sweep_votes(void *arg)
{
    bool swept = sweep(arg);
    return progress_votes(arg) || swept;
}

static bool needs_loop(void *arg)
{
    return ddl_mesh_needs_loop(((ddl_world *)arg)->mesh);
}

static void job(void *arg, ddl_link *link)
{
    ddl_world *world = arg;
    if (link == &world->arrivals)
        ddl_world_take_arrivals(world);
    else if (link == &world->aborts)
        take_aborts(world);
    else
        ddl_issue_job(link);
    ddl_mesh_flush(world->mesh);
}

/*
 * Where a whole job was stopped, by Ctrl-Z for one, and goes on, no operation is to fail for that: time in
 * which this process did not run does not count. If only others are stopped their time does, and who was
 * stopped alone is told by them. A process that is often late gets no CPU rather, and has its time count.
 */
static void forgive_own_stop(ddl_world *world, int64_t now_ns)
{
    const int64_t before_ns = world->ticked_ns;
    const bool is_late = before_ns > 0 && now_ns - before_ns > STOPPED_MS * DDL_NS_PER_MS;
    const bool is_often = world->wary_ticks > 0;
    world->ticked_ns = now_ns;
    if (is_late)
        world->wary_ticks = WARY_TICKS;
    else if (is_often)
        world->wary_ticks--;
    if (!is_late || is_often)
        return;
    DDL_LIST_FOR_EACH (each, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(each, ddl_comm, active);
        DDL_LIST_FOR_EACH (link, &comm->in_flight)
            ddl_issue_put_off(DDL_CONTAINER(link, ddl_request, link), before_ns, now_ns);
    }
}

static void tick(void *arg, int64_t now_ns)
{
    ddl_world *world = arg;
    forgive_own_stop(world, now_ns);
    world->is_watching = now_ns - world->watched_ns >= WATCH_MS * DDL_NS_PER_MS;
    if (world->is_watching)
        world->watched_ns = now_ns;
    world->posts_held = true;
    if (world->is_watching)
        ddl_watching_look_at_acks(world, now_ns);
    DDL_LIST_FOR_EACH (link, &world->active) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, active);
        ddl_failure_tick(comm, now_ns);
        ddl_shrink_tick(comm, now_ns);
    }
    world->posts_held = false;
    ddl_mesh_choose(world->mesh, now_ns);
    if (world->is_watching)
        ddl_watching_look_at_connections(world, now_ns);
    ddl_mesh_flush(world->mesh);
}

static void locate(void *arg, int64_t now_ns)
{
    ddl_world *world = arg;
    ddl_balance_look(&world->balance, world->lanes, world->roster, world->engine, now_ns);
}

static bool busy(void *arg)
{
    const ddl_world *world = arg;
    return world->nbusy > 0 || ddl_mesh_has_queued(world->mesh);
}

static bool doze(void *arg)
{
    ddl_world *world = arg;
    bool missed = ddl_mesh_doze(world->mesh);
    missed = ddl_world_finish_posts(world) || missed;
    if (!ddl_list_empty(&world->staged)) /* a post that has just ended may have left something to do */
        missed = progress_copies(world) || missed;
    return expects_copies(world) || missed;
}

static bool doze_votes(void *arg)
{
    bool missed = doze(arg);
    missed = progress_votes(arg) || missed;
    return expects_gpus(arg) || missed;
}

ddl_engine_client ddl_world_engine_client(ddl_world *world)
{
    ddl_engine_client client = { sweep, needs_loop, job, tick, locate, busy, doze, world };
    if (world->voting_rule != DDL_VOTING_NEVER) {
        client.sweep = sweep_votes;
        client.doze = doze_votes;
    }
    return client;
}
