/* choice.c - the cost model and its minimum over the catalogue. */
#include "backend/choice.h"

#include "backend/plan.h"
#include "base/assert.h"

const char *const ddl_cost_names[DDL_COST_CONSTANTS] = {
    "local.latency_ns",  "local.message_ns", "local.byte_ns", "remote.latency_ns",
    "remote.message_ns", "remote.byte_ns",   "reduce_ns",
};

ddl_cost_model ddl_cost_model_default(double crowding)
{
    return (ddl_cost_model){
        .links = {
            /* Loopback TCP on a 2.6 GHz server core: 3.5 us one way when polled, 3 us of CPU per message,
             * 3 GB/s. */
            [DDL_LINK_LOCAL] = { .latency_ns = 4000, .message_ns = 3000, .byte_ns = 0.33 },
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

static bool is_gather_or_scatter(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_GATHER || collective == DDL_COLLECTIVE_GATHERV ||
           collective == DDL_COLLECTIVE_SCATTER || collective == DDL_COLLECTIVE_SCATTERV;
}

/*
 * What the ranks send in the mean. In rooted collectives one of them moves more than the others, who then
 * leave their CPUs to it: only the mean is moved by all at once. In gather and scatter each rank but the root
 * has one message, and a block is handed on in every other round of a tree.
 */
static double mean_bytes(ddl_collective collective, int nranks, const ddl_work *work, double total_bytes)
{
    double mean = work->sent_bytes;
    if (collective == DDL_COLLECTIVE_BROADCAST || collective == DDL_COLLECTIVE_REDUCE)
        mean = total_bytes;
    if (is_gather_or_scatter(collective)) {
        double once = total_bytes * (nranks - 1) / nranks, handed_on = total_bytes * work->rounds / 2;
        mean = (handed_on > once ? handed_on : once) / nranks;
    }
    return mean < work->sent_bytes ? mean : work->sent_bytes;
}

static double mean_messages(ddl_collective collective, int nranks, const ddl_work *work)
{
    return is_gather_or_scatter(collective) ? (double)(nranks - 1) / nranks : work->messages;
}

/* All ranks take turns for what they do in the mean; the CPU of what one does beyond it is its own. */
static double in_turns(double busiest, double mean, double crowding)
{
    return mean * crowding + busiest - mean;
}

double ddl_cost_ns(const ddl_cost_model *model, const ddl_algorithm *algorithm,
                   const ddl_placement *placement, double total_bytes)
{
    const ddl_link_cost *local = &model->links[DDL_LINK_LOCAL], *remote = &model->links[DDL_LINK_REMOTE];
    ddl_work work = algorithm->work(placement, total_bytes);
    double remote_share = work.rounds > 0 ? work.remote_rounds / work.rounds : 0;
    double latency_ns =
        (work.rounds - work.remote_rounds) * local->latency_ns + work.remote_rounds * remote->latency_ns;
    double message_ns = local->message_ns + (remote->message_ns - local->message_ns) * remote_share;
    double messages = in_turns(work.messages, mean_messages(algorithm->collective, placement->nranks, &work),
                               model->crowding);
    double bytes =
        in_turns(work.sent_bytes, mean_bytes(algorithm->collective, placement->nranks, &work, total_bytes),
                 model->crowding);
    double cpu_ns = bytes * local->byte_ns + work.reduced_bytes * model->reduce_ns * model->crowding;
    /* The ranks of a host share its wire. Pieces in flight hide the lesser of wire and CPU but for one. */
    double wire_ns = work.remote_bytes * remote->byte_ns;
    double longer_ns = cpu_ns > wire_ns ? cpu_ns : wire_ns;
    double hidden_ns = (cpu_ns + wire_ns - longer_ns) * (1 - 1.0 / DDL_PIECES_IN_FLIGHT);
    return latency_ns + messages * message_ns + cpu_ns + wire_ns - hidden_ns;
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
        if (best == NULL || ns < best_ns) {
            best = &rows[i];
            best_ns = ns;
        }
    }
    DDL_ASSERT(best != NULL);
    return best;
}
