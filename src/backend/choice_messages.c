/* choice_messages.c - what messages cost the CPUs of one host, whose ranks may be more than these. */
#include "backend/choice_parts.h"

#include <math.h>

/*
 * Where all ranks have something to send and to receive at the same time, and share CPUs, they are in each
 * other's way, but hardly in a ring: what a rank passes on there has just come, and is in its cache. Large
 * allgathers and reduce_scatters of 4 and 8 ranks on two CPUs took 1.0 to 1.65 times as long with two or
 * three partners as by a ring, and up to twice as long with seven; large allreduces of 3 to 8 ranks took 1.05
 * to 1.45 times as long by a ring as by a tree, which moves as much, and up to twice as long by others.
 */
static const double HARDLY = 0.05, BY_MEMORY = 0.1, MUCH = 0.15, LANDS = 0.1;

/*
 * Turns on the CPUs of ranks that all do the same at the same time: of three on two CPUs one comes after the
 * others. Large allreduces of three took 1.3 to 1.45 times as long with a third of the vector for each as by
 * a tree, which moves as much, but by halves.
 */
static double turns_of_all(const ddl_cost_model *model)
{
    static const double LAST = 0.1;
    return model->crowding + LAST * (ceil(model->crowding) - model->crowding) * ddl_choice_asleep(model);
}

static bool is_tree(const ddl_work *work) /* else all ranks work alike */
{
    return work->mean_messages > 0;
}

static double in_the_way(const ddl_cost_model *model, double more)
{
    return 1 + more * ddl_choice_asleep(model);
}

/*
 * Where ranks beyond a power of two fold first, the others exchange while those sleep: two of three that
 * share two CPUs have one each. Allreduces of 64 KiB to 4 MiB with three took 1.0 to 1.7 times as long up and
 * down a tree as by doubling or halving, in most runs 1.3 or more.
 */
static ddl_cost_model while_folded(const ddl_choice_task *task, const ddl_work *work)
{
    ddl_cost_model model = *task->model;
    double active = exp2(floor(log2(task->nranks)));
    if (task->collective == DDL_COLLECTIVE_ALLREDUCE && is_tree(work) && work->remote_rounds == 0)
        model.crowding = ddl_choice_larger(1, model.crowding * active / task->nranks);
    return model;
}

/* One round in which every rank sends to every other one, or two of them. */
static bool is_direct(const ddl_choice_task *task, const ddl_work *work)
{
    return work->rounds <= 2 && work->messages >= work->rounds * (task->nranks - 1);
}

/*
 * Of collectives in which something is passed on, inside one host. Two ranks have but each other. What is
 * small stays in a cache however it goes: allgathers of 64 KiB with 3 ranks took 1.25 times as long by a ring
 * as by two rounds that do not wait for each other, of 256 KiB as long.
 */
static bool is_ring(const ddl_choice_task *task, const ddl_work *work)
{
    static const double SMALL = 64 * 1024; /* bytes of a rank */
    if (task->total_bytes <= SMALL * task->nranks)
        return false;
    if (task->nranks == 2)
        return work->remote_rounds == 0;
    switch (task->collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
        return work->remote_rounds == 0 && work->rounds >= 2 * (task->nranks - 1);
    case DDL_COLLECTIVE_REDUCE_SCATTER:
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
    case DDL_COLLECTIVE_ALLGATHER:
    case DDL_COLLECTIVE_ALLGATHERV:
        return work->remote_rounds == 0 && work->rounds >= task->nranks - 1;
    default:
        return false;
    }
}

/*
 * How much more it takes where all ranks work alike. In shared memory nobody answers anybody, and a round in
 * which all send to all is not in the way: allgathers of 512 KiB and 4 MiB with 3 to 8 ranks took 0.7 to 0.9
 * of the time of a ring. What is reduced there lands first, as it is folded in rank order; in an allreduce
 * that is one of the two rounds. Large allreduces of 4 to 8 ranks took the same time however they went.
 */
static double how_much(const ddl_choice_task *task, const ddl_work *work)
{
    if (!task->model->shares_memory)
        return is_ring(task, work) ? HARDLY : MUCH;
    if (is_direct(task, work))
        return work->reduced_bytes > 0 ? LANDS / work->rounds : 0;
    if (task->collective == DDL_COLLECTIVE_ALLREDUCE)
        return 0;
    return is_ring(task, work) ? HARDLY : BY_MEMORY;
}

/*
 * In a tree a rank may have twice the work of another, and those that share a CPU need not have an equal
 * share of it. By `direct` each has the same to do. In shared memory broadcasts of 1 MiB with 3 to 6 ranks on
 * two CPUs took 0.5 to 0.85 of the time of the better tree, of 16 and 64 MiB 0.65 to 0.95 (with 3 ranks as
 * long), but of 256 KiB up to 1.45 times as long, and of 4 MiB 0.85 to 1.3 times. With 7 ranks nothing is
 * gained, with 8 those of 2 and 4 MiB took 1.2 to 1.45 times as long, with 12 up to twice. Where ranks hardly
 * share CPUs nothing was measured.
 */
bool ddl_choice_has_to_be_even(const ddl_cost_model *model, ddl_collective collective, int nranks,
                               double total_bytes)
{
    static const double SMALL = 512 * 1024;
    enum { FEWEST = 3, MOST = 6 }; /* ranks */
    return collective == DDL_COLLECTIVE_BROADCAST && model->shares_memory && ddl_choice_asleep(model) == 1 &&
           nranks >= FEWEST && nranks <= MOST && total_bytes > SMALL;
}

static double how_uneven(const ddl_choice_task *task, const ddl_work *work)
{
    static const double UNEVEN = 0.08;
    const bool is_even = is_direct(task, work) && work->rounds > 1;
    const bool matters =
        ddl_choice_has_to_be_even(task->model, task->collective, task->nranks, task->total_bytes);
    return matters && !is_even && !task->is_part ? UNEVEN : 0;
}

/*
 * The same of a broadcast or reduce. What is folded several at a time lands first: large reduces of 3 and 4
 * ranks took 1.0 to 1.2 times as long so as up a tree of halves, over TCP 1.0 to 1.7 times; but there those
 * of up to 64 KiB with 4 ranks and of 256 KiB with 8 took 0.65 to 1.0 of the time, so half of it is counted.
 * In shared memory a tree of halves took 0.7 to 1.15 of the time of a pipeline with 3, 4 and 8 ranks on one
 * EPYC, and 1.0 to 1.25 on another: it is taken to be as much in the way. Over TCP reduce_scatters of 1 MiB
 * with 8 ranks took 1.1 to 1.6 times as long up and down a tree as by a ring.
 */
static double more_for_vector(const ddl_choice_task *task, const ddl_work *work)
{
    const bool shares_memory = task->model->shares_memory;
    if (work->reduced_bytes == 0)
        return is_tree(work) ? how_uneven(task, work) : MUCH;
    if (!is_tree(work))
        return shares_memory ? HARDLY : MUCH;
    const double lands = work->messages > work->rounds ? LANDS : 0;
    return HARDLY + (shares_memory ? lands : lands / 2);
}

/*
 * Of what an exchange takes, the part of a root that only sends or only receives. Over TCP inside a host the
 * sender's CPU does most of the work of both ends: broadcasts of 4 to 64 MiB to two others, on two CPUs, took
 * 1.3 to 1.4 times as long straight from the root as when it sends a third of the vector to each.
 */
static double share_of_root(const ddl_choice_task *task, const ddl_work *work)
{
    static const double SENDING = 0.65;
    const bool sends = task->collective == DDL_COLLECTIVE_BROADCAST && !task->is_part;
    return sends && !task->model->shares_memory && work->remote_rounds == 0 ? SENDING : 0.5;
}

/*
 * Broadcast and reduce: the ranks take turns for p-1 vectors in all, however these travel, while the root is
 * busy with its part. What that is more than the mean holds the others up, but for the pieces in flight. A
 * reduce that scatters first moves the blocks once more, up a tree.
 */
static double vector_ns(const ddl_choice_task *task, const ddl_work *work)
{
    double mean = task->total_bytes * (task->nranks - 1) / task->nranks, again = 0;
    double crowding = task->model->crowding;
    bool reduces = work->reduced_bytes > 0;
    if (reduces && work->reduced_bytes < task->total_bytes)
        again = task->total_bytes * work->rounds / 4 / task->nranks;
    double of_root =
        ddl_choice_bytes_ns(task->model, work->sent_bytes * share_of_root(task, work), work->reduced_bytes);
    double of_one = ddl_choice_bytes_ns(task->model, mean + again, reduces ? mean : 0);
    double in_turn = of_one * crowding * in_the_way(task->model, more_for_vector(task, work));
    double held_up =
        ddl_choice_larger(of_root - of_one, 0) * (1 - 1 / crowding) / (DDL_PIECES_IN_FLIGHT * crowding);
    return in_turn < of_root ? of_root : in_turn + held_up;
}

/*
 * Gather and scatter: in a tree a block is handed on in every other round, for a quarter of what it takes
 * from the root, as it has just come and is in the cache; in shared memory, where all is in the cache, for
 * more than from the root: straight from it scatters of 8 KiB to 16 MiB with 4 and 8 ranks took 0.4 to 0.95
 * of the time of a tree, and gathers from 64 KiB on. The root as above.
 */
static double blocks_ns(const ddl_choice_task *task, const ddl_work *work)
{
    double once = task->total_bytes * (task->nranks - 1) / task->nranks;
    double by_hand = task->model->shares_memory ? 1.6 : 0.25;
    double again = ddl_choice_larger(task->total_bytes * work->rounds / 2 - once, 0) * by_hand;
    return ddl_choice_overlapped(ddl_choice_bytes_ns(task->model, work->sent_bytes / 2, 0),
                                 ddl_choice_bytes_ns(task->model, (once + again) / task->nranks, 0) *
                                     task->model->crowding);
}

/*
 * In all others every rank does what the busiest does, or its share of it on the mean, but not less than must
 * be moved; and they take turns.
 */
static double equals_ns(const ddl_choice_task *task, const ddl_work *work)
{
    double once = task->total_bytes * (task->nranks - 1) / task->nranks;
    double least = task->collective == DDL_COLLECTIVE_ALLREDUCE ? 2 * once : once;
    double share = work->mean_messages > 0 ? work->mean_messages / work->messages : 1;
    double of_one = ddl_choice_bytes_ns(
        task->model, ddl_choice_larger(work->sent_bytes * share, least),
        work->reduced_bytes > 0 ? ddl_choice_larger(work->reduced_bytes * share, once) : 0);
    double turns =
        share == 1 && task->model->shares_memory ? turns_of_all(task->model) : task->model->crowding;
    const ddl_cost_model folded = while_folded(task, work);
    return ddl_choice_larger(ddl_choice_bytes_ns(task->model, work->sent_bytes, work->reduced_bytes),
                             of_one * turns * in_the_way(&folded, how_much(task, work)));
}

double ddl_choice_moving_ns(const ddl_choice_task *task, const ddl_work *work)
{
    if (task->collective == DDL_COLLECTIVE_BROADCAST || task->collective == DDL_COLLECTIVE_REDUCE)
        return vector_ns(task, work);
    return ddl_collective_gathers_or_scatters(task->collective) ? blocks_ns(task, work)
                                                                : equals_ns(task, work);
}

/* Messages of a rank on the mean. In gather and scatter each rank but the root has one. */
static double mean_messages(const ddl_choice_task *task, const ddl_work *work)
{
    if (ddl_collective_gathers_or_scatters(task->collective))
        return (double)(task->nranks - 1) / task->nranks;
    return work->mean_messages > 0 ? work->mean_messages : work->messages;
}

/*
 * Messages on the way through the rounds. Inside a host the sender's CPU does most of the work of both ends,
 * so the root of a gather or reduce takes what comes for a quarter of what it costs to send: with 4 to 8
 * ranks a gather straight to the root took 4 to 5 us, up a tree as long or longer, but a scatter 4.2 us for
 * each message of the root. Behind a reduce, where ranks share CPUs, a scatter costs it a little less, as
 * nobody else has anything to send: with 4 ranks reduce_scatters of up to 4 KiB took 0.85 to 0.9 of the time
 * with three messages of the root as with two and one of another rank, with 8 ranks and seven 1.0 to 1.1.
 */
static double messages_in_turn(const ddl_choice_task *task, const ddl_work *work)
{
    static const double BEHIND = 0.05;
    if (work->remote_rounds > 0 || task->model->shares_memory) /* there both ends copy */
        return work->messages;
    switch (task->collective) {
    case DDL_COLLECTIVE_REDUCE:
    case DDL_COLLECTIVE_GATHER:
    case DDL_COLLECTIVE_GATHERV:
        return 0.75 * work->rounds + 0.25 * work->messages;
    case DDL_COLLECTIVE_SCATTER:
        return task->is_behind ? work->messages * (1 - BEHIND * ddl_choice_asleep(task->model))
                               : work->messages;
    default:
        return work->messages;
    }
}

/*
 * A rank between the root and others of a k-nomial broadcast sends to several of them one after the other,
 * which over TCP inside a host keeps it busy; what would come next in a tree of halves comes from another
 * rank. With 8 ranks broadcasts of up to 4 KiB took 1.1 to 1.6 times as long with three messages of such a
 * rank as with one at a time, and allgathers of up to 64 KiB by a gather and one of them 1.2 times.
 */
static double queued_messages(const ddl_choice_task *task, const ddl_work *work)
{
    static const double SHARE = 0.55;
    const bool is_knomial = is_tree(work) && work->messages > work->rounds;
    if (task->collective != DDL_COLLECTIVE_BROADCAST || !is_knomial || work->remote_rounds > 0 ||
        task->model->shares_memory)
        return 0;
    return SHARE * ddl_knomial_queued(task->nranks);
}

/* A broadcast or scatter inside a host: its root waits for nobody, if the call is no more than that. */
static bool is_from_root(const ddl_choice_task *task, const ddl_work *work)
{
    return work->remote_rounds == 0 && !task->is_part &&
           (task->collective == DDL_COLLECTIVE_BROADCAST || task->collective == DDL_COLLECTIVE_SCATTER ||
            task->collective == DDL_COLLECTIVE_SCATTERV);
}

/* Of those of a root: see transport/mesh_hold.c. */
static bool leave_together(const ddl_choice_task *task, const ddl_work *work)
{
    static const double HELD = 4096;
    return !task->model->shares_memory && work->sent_bytes <= HELD * work->messages;
}

/*
 * What rounds and messages take beside their bytes: the way through all rounds, or all messages of the ranks
 * that take turns on a CPU, whichever is longer. Those sleep until a message comes, and are woken by its
 * sender: 5 us for each message of all ranks together were measured on two CPUs with 3 to 8 ranks, in every
 * algorithm. Of more than four ranks at once a fifth more: alltoalls of 16 to 256 KiB with 6 to 8 ranks took
 * 1.25 to 1.4 times as long directly as pairwise with a window of four, with 5 ranks as long.
 *
 * Where ranks share CPUs, calls in a row whose root waits for nobody took 4.1 us for each message of the
 * root, with 4 to 8 ranks, and nothing for the rounds after it, which count for a call that stands alone.
 * Small messages of such a root leave together (transport/mesh_hold.c), and cost next to nothing: straight
 * from the root scatters of 64 B to 4 KiB for each of 4 to 16 ranks took 0.6 to 1.0 of the time of a tree. A
 * broadcast costs no less in a row than as a part of another collective.
 */
double ddl_choice_messages_ns(const ddl_choice_task *task, const ddl_work *work, double latency_ns,
                              double message_ns)
{
    static const double WAKING = 0.3, SWITCHING = 1.2, MANY = 0.5; /* times the CPU time of a message */
    static const double SEEN = 0.42;                               /* of the latency, in a row */
    static const double TOGETHER = 0.07;                           /* of the messages of a root */
    double crowding = task->model->crowding, waiting = ddl_choice_asleep(task->model);
    double received = mean_messages(task, work), switching = SWITCHING;
    if (work->remote_rounds == 0 && received > 4 * work->rounds)
        switching += task->model->shares_memory ? 2 * MANY : MANY;
    double sent_ns = message_ns * (1 + WAKING * waiting), in_turn = messages_in_turn(task, work);
    double turns_ns = received * crowding * (sent_ns + message_ns * switching * waiting);
    double rest_ns = (latency_ns + queued_messages(task, work) * message_ns) * (1 - 1 / crowding) / 2;
    double alone_ns = ddl_choice_larger(latency_ns + in_turn * sent_ns, turns_ns) + rest_ns;
    if (!is_from_root(task, work))
        return alone_ns;
    double seen = 1 - (1 - SEEN) * waiting;
    double of_root = leave_together(task, work) ? TOGETHER : 1;
    double in_a_row_ns =
        ddl_choice_overlapped(latency_ns * seen + in_turn * sent_ns * of_root, turns_ns * waiting) +
        rest_ns * seen;
    return task->collective == DDL_COLLECTIVE_BROADCAST ? ddl_choice_larger(alone_ns, in_a_row_ns)
                                                        : in_a_row_ns;
}
