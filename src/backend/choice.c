/* choice.c - the cost of an algorithm, and the least of the catalogue. */
#include "backend/choice_parts.h"

#include "base/assert.h"
#include "base/floating.h"

#include <stdint.h>
#include <string.h>

/* Costs that differ by less than this share are equal: what is left are roundings. */
#define SAME 1e-9

enum place { ALONE, FIRST_OF_TWO, SECOND_OF_TWO };

/*
 * What rounds and messages inside hosts cost where others go between them. In an alltoall as in shared
 * memory, which ranks of a host mostly have in common, though nobody knows that of other hosts. On 2 hosts of
 * 2 ranks alltoalls of 8 B and 1 KiB for each pair took 0.5 to 0.75 of the time with one message between
 * hosts as with two, of 16 KiB 0.55 to 0.9, and on hosts of 3 and 1 0.35 to 0.6; without shared memory 0.5 to
 * 0.8, but for 16 KiB on the latter. Of others that was not measured.
 */
static const ddl_link_cost *inside_hosts(const ddl_cost_model *model, ddl_collective collective,
                                         const ddl_work *work)
{
    const bool is_known = collective == DDL_COLLECTIVE_ALLTOALL && work->remote_rounds > 0;
    return is_known ? &model->links[DDL_LINK_SHARED] : ddl_choice_inside(model);
}

static double phase_ns(const ddl_cost_model *model, ddl_phase phase, enum place place,
                       const ddl_placement *placement, double total_bytes)
{
    const ddl_choice_task task = { model,       phase.collective, placement->nranks,
                                   total_bytes, place != ALONE,   place == SECOND_OF_TWO };
    ddl_work work = phase.work(placement, total_bytes);
    const ddl_link_cost *local = inside_hosts(model, phase.collective, &work);
    const ddl_link_cost *remote = &model->links[DDL_LINK_REMOTE];
    double remote_share = work.rounds > 0 ? work.remote_rounds / work.rounds : 0;
    double latency_ns =
        (work.rounds - work.remote_rounds) * local->latency_ns + work.remote_rounds * remote->latency_ns;
    double message_ns = local->message_ns + (remote->message_ns - local->message_ns) * remote_share;
    double wire_ns = work.remote_bytes * remote->byte_ns; /* which the ranks of the host share */
    return ddl_choice_messages_ns(&task, &work, latency_ns, message_ns) +
           ddl_choice_overlapped(ddl_choice_moving_ns(&task, &work), wire_ns);
}

/* Where it has to be even, a broadcast that scatters first gathers a piece while it scatters the next one. */
static bool is_one_flow(const ddl_cost_model *model, const ddl_algorithm *algorithm, int nranks,
                        double total_bytes)
{
    return algorithm->work != NULL &&
           ddl_choice_has_to_be_even(model, algorithm->collective, nranks, total_bytes);
}

/*
 * By messages one round of broadcast or reduce is no better than a k-nomial tree: over TCP broadcasts of 4 B
 * to 8 KiB with 5 ranks on two CPUs took 1.03 to 1.4 of its time, reduces of 4 B to 16 KiB with 5, 8 and 12
 * ranks 0.95 to 1.15, though the costs of messages are 0.6 to 0.98 of it; between hosts nothing was measured.
 */
static double flat_ns(const ddl_cost_model *model, const ddl_phase *flat, const ddl_placement *placement,
                      double total_bytes)
{
    static const double OF_TREE = 1.1;
    const ddl_phase tree = { flat->collective, flat->collective == DDL_COLLECTIVE_BROADCAST
                                                   ? ddl_work_broadcast_knomial
                                                   : ddl_work_reduce_knomial };
    return ddl_choice_larger(phase_ns(model, *flat, ALONE, placement, total_bytes),
                             OF_TREE * phase_ns(model, tree, ALONE, placement, total_bytes));
}

double ddl_cost_ns(const ddl_cost_model *model, const ddl_algorithm *algorithm,
                   const ddl_placement *placement, double total_bytes)
{
    const ddl_phase *phases = algorithm->phases, alone = { algorithm->collective, algorithm->work };
    if (phases[0].work == NULL || is_one_flow(model, algorithm, placement->nranks, total_bytes)) {
        ddl_work work = algorithm->work(placement, total_bytes);
        double ns;
        if (ddl_choice_over_board(model, algorithm, &work, placement, total_bytes, &ns))
            return ns;
        const bool is_flat =
            algorithm->work == ddl_work_broadcast_flat || algorithm->work == ddl_work_reduce_flat;
        return is_flat ? flat_ns(model, &alone, placement, total_bytes)
                       : phase_ns(model, alone, ALONE, placement, total_bytes);
    }
    return phase_ns(model, phases[0], FIRST_OF_TWO, placement, total_bytes) +
           phase_ns(model, phases[1], SECOND_OF_TWO, placement, total_bytes);
}

int ddl_choice_place(double total_bytes)
{
    uint64_t bits;
    memcpy(&bits, &total_bytes, sizeof bits);
    return (int)(bits * UINT64_C(0x9e3779b97f4a7c15) >> 59); /* of 32: the highest bits depend on all */
}

static __attribute__((noinline)) const ddl_algorithm *cheapest(const ddl_cost_model *model,
                                                               ddl_collective collective,
                                                               const ddl_placement *placement,
                                                               double total_bytes)
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

const ddl_algorithm *ddl_choose(const ddl_cost_model *model, ddl_collective collective,
                                const ddl_placement *placement, double total_bytes)
{
    const ddl_floating before = ddl_floating_enter();
    const ddl_algorithm *best = cheapest(model, collective, placement, total_bytes);
    ddl_floating_leave(before);
    return best;
}
