/* choice.c - the cost model and its minimum over the catalogue. */
#include "backend/choice.h"

#include "backend/plan.h"
#include "base/assert.h"

/* Costs that differ by less than this share are equal: what is left are roundings. */
#define SAME 1e-9

const char *const ddl_cost_names[DDL_COST_CONSTANTS] = {
    "local.latency_ns",  "local.message_ns", "local.byte_ns", "remote.latency_ns",
    "remote.message_ns", "remote.byte_ns",   "reduce_ns",
};

ddl_cost_model ddl_cost_model_default(double crowding)
{
    return (ddl_cost_model){
        .links = {
            /* Loopback TCP on a 2.6 GHz server core: 3.5 us one way when polled, 4 us of CPU per message,
             * 3 GB/s. */
            [DDL_LINK_LOCAL] = { .latency_ns = 4000, .message_ns = 4000, .byte_ns = 0.33 },
            /* 10 Gbit/s Ethernet through a switch. */
            [DDL_LINK_REMOTE] = { .latency_ns = 20000, .message_ns = 4000, .byte_ns = 0.85 },
        },
        /* What is in L2 anyway, at 50 GB/s. */
        .reduce_ns = 0.02,
        .crowding = crowding > 1 ? crowding : 1,
    };
}

void ddl_cost_model_pack(const ddl_cost_model *model, double constants[DDL_COST_CONSTANTS])
{
    for (int kind = 0; kind < DDL_LINK_KINDS; kind++) {
        constants[3 * kind] = model->links[kind].latency_ns;
        constants[3 * kind + 1] = model->links[kind].message_ns;
        constants[3 * kind + 2] = model->links[kind].byte_ns;
    }
    constants[3 * DDL_LINK_KINDS] = model->reduce_ns;
}

ddl_status ddl_cost_model_unpack(const double constants[], int count, double crowding, ddl_cost_model *model,
                                 ddl_error *err)
{
    if (count != DDL_COST_CONSTANTS)
        return DDL_FAIL(err, DDL_EPROTO, "rank 0 chooses algorithms by %d constants, this rank by %d", count,
                        (int)DDL_COST_CONSTANTS);
    for (int i = 0; i < count; i++)
        if (!(constants[i] > 0 && constants[i] < DDL_COST_LIMIT)) /* NaN is neither */
            return DDL_FAIL(err, DDL_EPROTO, "rank 0 has %g for %s", constants[i], ddl_cost_names[i]);
    *model = (ddl_cost_model){ .reduce_ns = constants[3 * DDL_LINK_KINDS],
                               .crowding = crowding > 1 ? crowding : 1 };
    for (int kind = 0; kind < DDL_LINK_KINDS; kind++)
        model->links[kind] =
            (ddl_link_cost){ constants[3 * kind], constants[3 * kind + 1], constants[3 * kind + 2] };
    return DDL_OK;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Two things at once, but for one of the pieces in flight. */
static double overlapped(double a, double b)
{
    return larger(a, b) + (a + b - larger(a, b)) / DDL_PIECES_IN_FLIGHT;
}

/* ---- CPU time of one host ---- */

/* What a call is, beside what an algorithm makes of it. */
struct task {
    const ddl_cost_model *model;
    ddl_collective collective;
    int nranks;
    double total_bytes;
};

static double bytes_ns(const ddl_cost_model *model, double sent_bytes, double reduced_bytes)
{
    return sent_bytes * model->links[DDL_LINK_LOCAL].byte_ns + reduced_bytes * model->reduce_ns;
}

/*
 * Broadcast and reduce: the ranks take turns for p-1 vectors in all, however these travel, while the root,
 * which only sends or only receives, is busy with half of what an exchange takes. A reduce that scatters
 * first moves the blocks once more, up a tree.
 */
static double vector_ns(const struct task *task, const ddl_work *work)
{
    double mean = task->total_bytes * (task->nranks - 1) / task->nranks, again = 0;
    bool reduces = work->reduced_bytes > 0;
    if (reduces && work->reduced_bytes < task->total_bytes)
        again = task->total_bytes * work->rounds / 4 / task->nranks;
    return larger(bytes_ns(task->model, work->sent_bytes / 2, work->reduced_bytes),
                  bytes_ns(task->model, mean + again, reduces ? mean : 0) * task->model->crowding);
}

/* Gather and scatter: in a tree a block is handed on in every other round; the root as above. */
static double blocks_ns(const struct task *task, const ddl_work *work)
{
    double once = task->total_bytes * (task->nranks - 1) / task->nranks;
    double handed_on = larger(once, task->total_bytes * work->rounds / 2);
    return overlapped(bytes_ns(task->model, work->sent_bytes / 2, 0),
                      bytes_ns(task->model, handed_on / task->nranks, 0) * task->model->crowding);
}

/* In all others every rank does what the busiest does, or its share of it on the mean, and they take turns.
 */
static double equals_ns(const struct task *task, const ddl_work *work)
{
    double share = work->mean_messages > 0 ? work->mean_messages / work->messages : 1;
    double of_all =
        bytes_ns(task->model, work->sent_bytes * share, work->reduced_bytes * share) * task->model->crowding;
    return larger(bytes_ns(task->model, work->sent_bytes, work->reduced_bytes), of_all);
}

static bool is_gather_or_scatter(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_GATHER || collective == DDL_COLLECTIVE_GATHERV ||
           collective == DDL_COLLECTIVE_SCATTER || collective == DDL_COLLECTIVE_SCATTERV;
}

static double moving_ns(const struct task *task, const ddl_work *work)
{
    if (task->collective == DDL_COLLECTIVE_BROADCAST || task->collective == DDL_COLLECTIVE_REDUCE)
        return vector_ns(task, work);
    return is_gather_or_scatter(task->collective) ? blocks_ns(task, work) : equals_ns(task, work);
}

/* How many messages follow each other on a CPU. In gather and scatter each rank but the root has one. */
static double messages_in_turn(const struct task *task, const ddl_work *work)
{
    double by_all = work->mean_messages;
    if (is_gather_or_scatter(task->collective))
        by_all = (double)(task->nranks - 1) / task->nranks;
    else if (by_all == 0)
        by_all = work->messages;
    return by_all * task->model->crowding + work->messages - by_all;
}

/* ---- the sum ---- */

double ddl_cost_ns(const ddl_cost_model *model, const ddl_algorithm *algorithm,
                   const ddl_placement *placement, double total_bytes)
{
    const ddl_link_cost *local = &model->links[DDL_LINK_LOCAL], *remote = &model->links[DDL_LINK_REMOTE];
    const struct task task = { model, algorithm->collective, placement->nranks, total_bytes };
    ddl_work work = algorithm->work(placement, total_bytes);
    double remote_share = work.rounds > 0 ? work.remote_rounds / work.rounds : 0;
    double latency_ns =
        (work.rounds - work.remote_rounds) * local->latency_ns + work.remote_rounds * remote->latency_ns;
    double message_ns = local->message_ns + (remote->message_ns - local->message_ns) * remote_share;
    double wire_ns = work.remote_bytes * remote->byte_ns; /* which the ranks of the host share */
    return latency_ns + messages_in_turn(&task, &work) * message_ns +
           overlapped(moving_ns(&task, &work), wire_ns);
}

const ddl_algorithm *ddl_choose(const ddl_cost_model *model, ddl_collective collective,
                                const ddl_placement *placement, double total_bytes)
{
    size_t count;
    const ddl_algorithm *rows = ddl_catalogue(&count);
    const ddl_algorithm *best = NULL;
    double best_ns = 0;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].collective != collective || !ddl_algorithm_takes(&rows[i], placement->nranks))
            continue;
        double ns = ddl_cost_ns(model, &rows[i], placement, total_bytes);
        if (best == NULL || ns < best_ns * (1 - SAME)) {
            best = &rows[i];
            best_ns = ns;
        }
    }
    DDL_ASSERT(best != NULL);
    return best;
}
