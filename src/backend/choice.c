/* choice.c - the cost model and its minimum over the catalogue. */
#include "backend/choice.h"

#include "algorithms/work.h"
#include "backend/plan.h"
#include "base/assert.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Costs that differ by less than this share are equal: what is left are roundings. */
#define SAME 1e-9

const char *const ddl_cost_names[DDL_COST_CONSTANTS] = {
    "local.latency_ns",  "local.message_ns",  "local.byte_ns",     "remote.latency_ns", "remote.message_ns",
    "remote.byte_ns",    "shared.latency_ns", "shared.message_ns", "shared.byte_ns",    "reduce_ns",
    "local.piece_bytes", "local.pull_bytes",  "local.lane_bytes",
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
            /* Fitted to the times of all algorithms with 2, 3, 4, 6 and 8 ranks on two CPUs (docs/choice.md). */
            [DDL_LINK_SHARED] = { .latency_ns = 900, .message_ns = 1200, .byte_ns = 0.27 },
        },
        /* What is in L2 anyway, at 50 GB/s. */
        .reduce_ns = 0.02,
        .piece_bytes = DDL_PIECE_BYTES,
        .pull_bytes = DDL_NEVER_PULL,
        .lane_bytes = 1,
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
    constants[3 * DDL_LINK_KINDS + 1] = model->piece_bytes;
    constants[3 * DDL_LINK_KINDS + 2] = model->pull_bytes;
    constants[3 * DDL_LINK_KINDS + 3] = model->lane_bytes;
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
                               .piece_bytes = constants[3 * DDL_LINK_KINDS + 1],
                               .pull_bytes = constants[3 * DDL_LINK_KINDS + 2],
                               .lane_bytes = constants[3 * DDL_LINK_KINDS + 3],
                               .crowding = crowding > 1 ? crowding : 1 };
    for (int kind = 0; kind < DDL_LINK_KINDS; kind++)
        model->links[kind] =
            (ddl_link_cost){ constants[3 * kind], constants[3 * kind + 1], constants[3 * kind + 2] };
    return DDL_OK;
}

/* What these links cost. */
static const ddl_link_cost *inside(const ddl_cost_model *model)
{
    return &model->links[model->shares_memory ? DDL_LINK_SHARED : DDL_LINK_LOCAL];
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
    bool is_part;   /* of another collective */
    bool is_behind; /* and the second one */
};

static double bytes_ns(const ddl_cost_model *model, double sent_bytes, double reduced_bytes)
{
    return sent_bytes * inside(model)->byte_ns + reduced_bytes * model->reduce_ns;
}

/* From 0, where every rank has a CPU, to 1, where ranks sleep whenever they wait. */
static double asleep(const ddl_cost_model *model)
{
    static const double ALWAYS = 1.5; /* ranks per CPU */
    return model->crowding < ALWAYS ? (model->crowding - 1) / (ALWAYS - 1) : 1;
}

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
    return model->crowding + LAST * (ceil(model->crowding) - model->crowding) * asleep(model);
}

static bool is_tree(const ddl_work *work) /* else all ranks work alike */
{
    return work->mean_messages > 0;
}

static double in_the_way(const ddl_cost_model *model, double more)
{
    return 1 + more * asleep(model);
}

/*
 * Where ranks beyond a power of two fold first, the others exchange while those sleep: two of three that
 * share two CPUs have one each. Allreduces of 64 KiB to 4 MiB with three took 1.0 to 1.7 times as long up and
 * down a tree as by doubling or halving, in most runs 1.3 or more.
 */
static ddl_cost_model while_folded(const struct task *task, const ddl_work *work)
{
    ddl_cost_model model = *task->model;
    double active = exp2(floor(log2(task->nranks)));
    if (task->collective == DDL_COLLECTIVE_ALLREDUCE && is_tree(work) && work->remote_rounds == 0)
        model.crowding = larger(1, model.crowding * active / task->nranks);
    return model;
}

/* One round in which every rank sends to every other one, or two of them. */
static bool is_direct(const struct task *task, const ddl_work *work)
{
    return work->rounds <= 2 && work->messages >= work->rounds * (task->nranks - 1);
}

/*
 * Of collectives in which something is passed on, inside one host. Two ranks have but each other. What is
 * small stays in a cache however it goes: allgathers of 64 KiB with 3 ranks took 1.25 times as long by a ring
 * as by two rounds that do not wait for each other, of 256 KiB as long.
 */
static bool is_ring(const struct task *task, const ddl_work *work)
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
static double how_much(const struct task *task, const ddl_work *work)
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
static bool has_to_be_even(const ddl_cost_model *model, ddl_collective collective, int nranks,
                           double total_bytes)
{
    static const double SMALL = 512 * 1024;
    enum { FEWEST = 3, MOST = 6 }; /* ranks */
    return collective == DDL_COLLECTIVE_BROADCAST && model->shares_memory && asleep(model) == 1 &&
           nranks >= FEWEST && nranks <= MOST && total_bytes > SMALL;
}

static double how_uneven(const struct task *task, const ddl_work *work)
{
    static const double UNEVEN = 0.08;
    const bool is_even = is_direct(task, work) && work->rounds > 1;
    const bool matters = has_to_be_even(task->model, task->collective, task->nranks, task->total_bytes);
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
static double more_for_vector(const struct task *task, const ddl_work *work)
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
static double share_of_root(const struct task *task, const ddl_work *work)
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
static double vector_ns(const struct task *task, const ddl_work *work)
{
    double mean = task->total_bytes * (task->nranks - 1) / task->nranks, again = 0;
    double crowding = task->model->crowding;
    bool reduces = work->reduced_bytes > 0;
    if (reduces && work->reduced_bytes < task->total_bytes)
        again = task->total_bytes * work->rounds / 4 / task->nranks;
    double of_root = bytes_ns(task->model, work->sent_bytes * share_of_root(task, work), work->reduced_bytes);
    double of_one = bytes_ns(task->model, mean + again, reduces ? mean : 0);
    double in_turn = of_one * crowding * in_the_way(task->model, more_for_vector(task, work));
    double held_up = larger(of_root - of_one, 0) * (1 - 1 / crowding) / (DDL_PIECES_IN_FLIGHT * crowding);
    return in_turn < of_root ? of_root : in_turn + held_up;
}

/*
 * Gather and scatter: in a tree a block is handed on in every other round, for a quarter of what it takes
 * from the root, as it has just come and is in the cache; in shared memory, where all is in the cache, for
 * more than from the root: straight from it scatters of 8 KiB to 16 MiB with 4 and 8 ranks took 0.4 to 0.95
 * of the time of a tree, and gathers from 64 KiB on. The root as above.
 */
static double blocks_ns(const struct task *task, const ddl_work *work)
{
    double once = task->total_bytes * (task->nranks - 1) / task->nranks;
    double by_hand = task->model->shares_memory ? 1.6 : 0.25;
    double again = larger(task->total_bytes * work->rounds / 2 - once, 0) * by_hand;
    return overlapped(bytes_ns(task->model, work->sent_bytes / 2, 0),
                      bytes_ns(task->model, (once + again) / task->nranks, 0) * task->model->crowding);
}

/*
 * In all others every rank does what the busiest does, or its share of it on the mean, but not less than must
 * be moved; and they take turns.
 */
static double equals_ns(const struct task *task, const ddl_work *work)
{
    double once = task->total_bytes * (task->nranks - 1) / task->nranks;
    double least = task->collective == DDL_COLLECTIVE_ALLREDUCE ? 2 * once : once;
    double share = work->mean_messages > 0 ? work->mean_messages / work->messages : 1;
    double of_one = bytes_ns(task->model, larger(work->sent_bytes * share, least),
                             work->reduced_bytes > 0 ? larger(work->reduced_bytes * share, once) : 0);
    double turns =
        share == 1 && task->model->shares_memory ? turns_of_all(task->model) : task->model->crowding;
    const ddl_cost_model folded = while_folded(task, work);
    return larger(bytes_ns(task->model, work->sent_bytes, work->reduced_bytes),
                  of_one * turns * in_the_way(&folded, how_much(task, work)));
}

static double moving_ns(const struct task *task, const ddl_work *work)
{
    if (task->collective == DDL_COLLECTIVE_BROADCAST || task->collective == DDL_COLLECTIVE_REDUCE)
        return vector_ns(task, work);
    return ddl_collective_gathers_or_scatters(task->collective) ? blocks_ns(task, work)
                                                                : equals_ns(task, work);
}

/* Messages of a rank on the mean. In gather and scatter each rank but the root has one. */
static double mean_messages(const struct task *task, const ddl_work *work)
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
static double messages_in_turn(const struct task *task, const ddl_work *work)
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
        return task->is_behind ? work->messages * (1 - BEHIND * asleep(task->model)) : work->messages;
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
static double queued_messages(const struct task *task, const ddl_work *work)
{
    static const double SHARE = 0.55;
    const bool is_knomial = is_tree(work) && work->messages > work->rounds;
    if (task->collective != DDL_COLLECTIVE_BROADCAST || !is_knomial || work->remote_rounds > 0 ||
        task->model->shares_memory)
        return 0;
    return SHARE * ddl_knomial_queued(task->nranks);
}

/* A broadcast or scatter inside a host: its root waits for nobody, if the call is no more than that. */
static bool is_from_root(const struct task *task, const ddl_work *work)
{
    return work->remote_rounds == 0 && !task->is_part &&
           (task->collective == DDL_COLLECTIVE_BROADCAST || task->collective == DDL_COLLECTIVE_SCATTER ||
            task->collective == DDL_COLLECTIVE_SCATTERV);
}

/* Of those of a root: see transport/mesh_hold.c. */
static bool leave_together(const struct task *task, const ddl_work *work)
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
static double messages_ns(const struct task *task, const ddl_work *work, double latency_ns, double message_ns)
{
    static const double WAKING = 0.3, SWITCHING = 1.2, MANY = 0.5; /* times the CPU time of a message */
    static const double SEEN = 0.42;                               /* of the latency, in a row */
    static const double TOGETHER = 0.07;                           /* of the messages of a root */
    double crowding = task->model->crowding, waiting = asleep(task->model);
    double received = mean_messages(task, work), switching = SWITCHING;
    if (work->remote_rounds == 0 && received > 4 * work->rounds)
        switching += task->model->shares_memory ? 2 * MANY : MANY;
    double sent_ns = message_ns * (1 + WAKING * waiting), in_turn = messages_in_turn(task, work);
    double turns_ns = received * crowding * (sent_ns + message_ns * switching * waiting);
    double rest_ns = (latency_ns + queued_messages(task, work) * message_ns) * (1 - 1 / crowding) / 2;
    double alone_ns = larger(latency_ns + in_turn * sent_ns, turns_ns) + rest_ns;
    if (!is_from_root(task, work))
        return alone_ns;
    double seen = 1 - (1 - SEEN) * waiting;
    double of_root = leave_together(task, work) ? TOGETHER : 1;
    double in_a_row_ns =
        overlapped(latency_ns * seen + in_turn * sent_ns * of_root, turns_ns * waiting) + rest_ns * seen;
    return task->collective == DDL_COLLECTIVE_BROADCAST ? larger(alone_ns, in_a_row_ns) : in_a_row_ns;
}

/* ---- over a board ---- */

static bool is_between_two(const ddl_cost_model *model, int nranks)
{
    return nranks == 2 && model->crowding <= 1;
}

/* Or shares, which ranks make, as large as a block. */
static bool has_blocks(ddl_collective collective)
{
    switch (collective) {
    case DDL_COLLECTIVE_BROADCAST:
    case DDL_COLLECTIVE_REDUCE:
    case DDL_COLLECTIVE_ALLGATHERV: /* one rank may have it all */
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
        return false;
    default:
        return true;
    }
}

/*
 * Where each rank has a CPU, a message is read while the rest of it is written, and what is posted only when
 * all of it is; but a message costs more. With 2 ranks on an EPYC all collectives took 0.5 to 0.95 of the
 * time over a board with messages of up to 64 KiB, near and far, 0.85 to 1 with messages of up to 1 MiB.
 * Those of more than 64 KiB from memory of ddl_mem_alloc go without a copy, and took 1.3 to 3 times as long
 * over a board. With more ranks that have a CPU each nothing was measured.
 *
 * In an alltoall only one rank reads what another says. With 4 and 8 ranks on two CPUs messages above 64 KiB
 * took 0.6 to 1 of the time over a board on the EPYC, and on the Xeon, where they are read in the memory of
 * their sender, 0.5 to 0.75. Allgathers of 3 and 4 ranks up to 16 MiB took 0.75 to 1 of it where they are
 * read there. With 8, all of which read what one has posted while it is in their caches, or beyond those, an
 * allgather took 1.2 to 2 times as long when pulled.
 *
 * With 12, 16 and 24 ranks on two CPUs of another EPYC alltoalls with messages of 128 KiB to 1 MiB took 1.2
 * to 3.5 times as long as over a board, since the lanes of all no longer fit the caches; on the Xeon, with
 * 16, they took 0.9 to 1.04 of its time.
 */
static bool is_better_by_messages(const ddl_cost_model *model, ddl_collective collective, int nranks,
                                  double total_bytes)
{
    static const double SMALL = 64 * 1024, GATHERED = 64 * 1024 * 1024;
    static const double FULL = 3, PACKED = 6; /* ranks per CPU */
    const double message_bytes = total_bytes / nranks;
    const bool gathers = ddl_collective_gathers_for_all(collective);
    if (is_between_two(model, nranks))
        return (has_blocks(collective) ? message_bytes : total_bytes) > DDL_POSTED_BETWEEN_TWO_BYTES;
    if (model->crowding <= 1 && total_bytes > DDL_POSTED_UNCROWDED_BYTES)
        return true;
    if (message_bytes <= SMALL)
        return false;
    if (gathers)
        return message_bytes >= model->pull_bytes && model->crowding < FULL &&
               total_bytes * nranks <= GATHERED;
    return collective == DDL_COLLECTIVE_ALLTOALL && model->crowding < PACKED;
}

/* Whether all that a rank has to say is on one sheet: in a gather that is a block. */
static bool is_posted_ahead(const ddl_cost_model *model, ddl_collective collective, int nranks,
                            double total_bytes)
{
    const double said_bytes = collective == DDL_COLLECTIVE_GATHER ? total_bytes / nranks : total_bytes;
    return model->board_bytes > 0 && nranks <= DDL_BOARD_FEW && said_bytes <= DDL_POSTED_AHEAD_BYTES;
}

/*
 * Of what is large a tree has one copy in and one out for each rank, a board one in and the others out, and
 * from it all vectors are summed at once. On two CPUs reduces of 64 KiB to 128 MiB with 3 to 48 ranks took
 * 0.44 to 1.07 of the time of the best by messages, but a root sums alone, however many CPUs there are; of 2
 * ranks on one CPU nothing is gained from 1 MiB on. Broadcasts with 5 to 48 ranks took 0.19 to 0.95, and
 * those with 3 and 4 0.6 to 1.02; but from memory of ddl_mem_alloc, which messages need not copy in, 1.1 to
 * 1.8 with 3 to 6 ranks (of one piece, with 5 and 6, 0.75 to 1.14), 0.37 to 1.3 with 7 and more. Where few
 * ranks share a CPU, on many, nothing was measured.
 */
static bool is_posted_large(const ddl_cost_model *model, ddl_collective collective, int nranks,
                            double total_bytes)
{
    enum { FEWEST_TO_SUM = 3, FEWEST_TO_HEAR = 5, FEWEST_TO_HEAR_MUCH = 7 }; /* ranks */
    static const double LARGE = 64 * 1024, CPUS_TO_SUM = 2, SHARING = 2;
    const bool is_pulled = model->pull_bytes < DDL_NEVER_PULL && total_bytes >= model->pull_bytes;
    if (model->board_bytes == 0 || model->crowding <= 1 || total_bytes < LARGE || is_pulled)
        return false;
    if (collective == DDL_COLLECTIVE_REDUCE)
        return nranks >= FEWEST_TO_SUM && nranks <= CPUS_TO_SUM * model->crowding;
    const int fewest = total_bytes > model->board_bytes ? FEWEST_TO_HEAR_MUCH : FEWEST_TO_HEAR;
    return collective == DDL_COLLECTIVE_BROADCAST && model->crowding >= SHARING && nranks >= fewest;
}

/*
 * Small ones with 3 to 8 ranks on two CPUs of an EPYC took 0.48 to 0.8 of the time by messages (far from each
 * other 0.6 to 1.23). What is longer than a sheet waits for the last post: with 3 and 4 ranks those of 8 KiB
 * took 1.35 to 2.2 times as long. With 12 and 16 ranks, of which none may be many calls ahead, small ones
 * took 4 to 8 times as long. Large gathers and scatters, of which each rank has a part of its own, took 1 to
 * 2 times as long.
 */
bool ddl_choice_posts_for_root(const ddl_cost_model *model, ddl_collective collective, int nranks,
                               double total_bytes)
{
    switch (collective) {
    case DDL_COLLECTIVE_BROADCAST:
    case DDL_COLLECTIVE_REDUCE:
    case DDL_COLLECTIVE_GATHER:
    case DDL_COLLECTIVE_SCATTER:
        return is_posted_ahead(model, collective, nranks, total_bytes) ||
               is_posted_large(model, collective, nranks, total_bytes);
    default:
        return false;
    }
}

size_t ddl_choice_post_bytes(const ddl_cost_model *model, ddl_collective collective, int nranks,
                             double total_bytes)
{
    if (is_better_by_messages(model, collective, nranks, total_bytes))
        return 0;
    switch (collective) {
    case DDL_COLLECTIVE_ALLGATHERV: /* one rank may have it all */
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
        return total_bytes <= model->board_bytes ? (size_t)model->board_bytes : 0;
    default:
        return (size_t)model->board_bytes;
    }
}

enum { WIDEST_ELEMENT = 8 };

/* Whether the call goes over the board: of one round, or an allreduce of two in which all send to all
 * (executor/oneshot.h). A larger one between two takes as long by `direct` as by others, and a third of it
 * where both reach the buffers: in that one this can be told (backend/telling.h). */
static bool is_posted(const ddl_cost_model *model, const ddl_algorithm *algorithm, const ddl_work *work,
                      int nranks, double total_bytes)
{
    const ddl_collective collective = algorithm->collective;
    switch (collective) {
    case DDL_COLLECTIVE_ALLGATHER:
    case DDL_COLLECTIVE_ALLGATHERV:
    case DDL_COLLECTIVE_ALLREDUCE:
    case DDL_COLLECTIVE_REDUCE_SCATTER:
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
    case DDL_COLLECTIVE_ALLTOALL:
    case DDL_COLLECTIVE_BARRIER:
        break;
    default:
        return false;
    }
    bool has_all_blocks = total_bytes >= WIDEST_ELEMENT * nranks; /* else not all have something to say */
    const bool is_between = collective == DDL_COLLECTIVE_ALLREDUCE && is_between_two(model, nranks);
    if (is_between && total_bytes > DDL_POSTED_UNCROWDED_BYTES && strcmp(algorithm->name, "direct") != 0)
        return false;
    bool has_rounds =
        work->rounds == 1 || (work->rounds == 2 && collective == DDL_COLLECTIVE_ALLREDUCE && has_all_blocks);
    return has_rounds && work->messages == work->rounds * (nranks - 1) &&
           ddl_choice_post_bytes(model, collective, nranks, total_bytes) > 0;
}

/* Pieces that a posted call is cut into. */
static double posted_pieces(const ddl_cost_model *model, ddl_collective collective, int nranks,
                            double total_bytes)
{
    bool says_one_block = collective == DDL_COLLECTIVE_ALLGATHER;
    return larger(1, (says_one_block ? total_bytes / nranks : total_bytes) / model->board_bytes);
}

/*
 * A rank posts once in a round, however many read, and takes what all others posted straight into its result.
 * Whatever the number of ranks on a CPU, a sheet has to come to that only once: allreduces of 2, 3, 4 and 8
 * ranks on two CPUs took 0.15 to 0.24 ns more for each byte of the others'. Where two ranks and more share a
 * CPU they look in vain before it is their turn: 8 to 32 ranks took 2.5 to 4 us for each turn. A second round
 * finds some of them awake, but where a CPU has one rank more than another, whose ranks wait for it in both:
 * with 3, 5 and 7 on two CPUs it took 0.8 to 0.95 of the first. What is reduced has just been read:
 * allreduces of 128 KiB to 16 MiB with 2 ranks took 0.7 to 1 of the time in one round, which reduces all of
 * it, as in two, which reduce half.
 *
 * However little a sheet says, a line of it comes from another cache; the first of a round with its latency.
 * Without that an allreduce of 512 bytes in two rounds would cost less, with 64 ranks that have a CPU each,
 * than one of 256, which has no block for everyone and goes in one.
 */
static double posted_ns(const ddl_cost_model *model, const ddl_work *work, double pieces)
{
    static const double READ = 0.7;    /* of what sending and receiving a byte costs */
    static const double REDUCED = 0.5; /* of what reducing one does */
    static const double IN_VAIN = 1.5; /* times the CPU time of a message */
    static const double LINE = 0.07;   /* likewise, of each sheet but the first */
    double ranks = model->crowding < 1.5 ? 1.5 : model->crowding < 2 ? model->crowding : 2;
    double turn_ns = inside(model)->message_ns * (1 + IN_VAIN * (ranks - 1.5) / 0.5);
    double round_ns = inside(model)->latency_ns + model->crowding * turn_ns;
    double lines_ns = (work->messages - work->rounds) * LINE * inside(model)->message_ns;
    double even = larger(0, 1 - 2 * (ceil(model->crowding) - model->crowding));
    double again = 1 - even * 0.5 / model->crowding;
    return pieces * (round_ns * (1 + (work->rounds - 1) * again) + lines_ns) +
           READ * bytes_ns(model, work->sent_bytes, REDUCED * work->reduced_bytes);
}

/*
 * From one rank, or to one. All ranks but one read it, or are read, and take turns where they share
 * CPUs. Who is many calls ahead finds more to do when it is its turn.
 */
static double posted_for_root_ns(const ddl_cost_model *model, ddl_collective collective, const ddl_work *work,
                                 int nranks, double total_bytes)
{
    static const double AHEAD = 0.55;
    if (is_posted_ahead(model, collective, nranks, total_bytes))
        return AHEAD * posted_ns(model, work, 1);
    const double all_bytes = total_bytes * model->crowding * (nranks - 1) / nranks;
    const ddl_work one = { .rounds = 1,
                           .messages = nranks - 1,
                           .sent_bytes = all_bytes,
                           .reduced_bytes = work->reduced_bytes > 0 ? all_bytes : 0 };
    const double pieces = larger(1, total_bytes / model->board_bytes);
    return posted_ns(model, &one, pieces);
}

/* ---- the sum ---- */

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
    return is_known ? &model->links[DDL_LINK_SHARED] : inside(model);
}

static double phase_ns(const ddl_cost_model *model, ddl_phase phase, enum place place,
                       const ddl_placement *placement, double total_bytes)
{
    const struct task task = { model,       phase.collective, placement->nranks,
                               total_bytes, place != ALONE,   place == SECOND_OF_TWO };
    ddl_work work = phase.work(placement, total_bytes);
    const ddl_link_cost *local = inside_hosts(model, phase.collective, &work);
    const ddl_link_cost *remote = &model->links[DDL_LINK_REMOTE];
    double remote_share = work.rounds > 0 ? work.remote_rounds / work.rounds : 0;
    double latency_ns =
        (work.rounds - work.remote_rounds) * local->latency_ns + work.remote_rounds * remote->latency_ns;
    double message_ns = local->message_ns + (remote->message_ns - local->message_ns) * remote_share;
    double wire_ns = work.remote_bytes * remote->byte_ns; /* which the ranks of the host share */
    return messages_ns(&task, &work, latency_ns, message_ns) + overlapped(moving_ns(&task, &work), wire_ns);
}

/* Where it has to be even, a broadcast that scatters first gathers a piece while it scatters the next one. */
static bool is_one_flow(const ddl_cost_model *model, const ddl_algorithm *algorithm, int nranks,
                        double total_bytes)
{
    return algorithm->work != NULL && has_to_be_even(model, algorithm->collective, nranks, total_bytes);
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
    return larger(phase_ns(model, *flat, ALONE, placement, total_bytes),
                  OF_TREE * phase_ns(model, tree, ALONE, placement, total_bytes));
}

double ddl_cost_ns(const ddl_cost_model *model, const ddl_algorithm *algorithm,
                   const ddl_placement *placement, double total_bytes)
{
    const ddl_phase *phases = algorithm->phases, alone = { algorithm->collective, algorithm->work };
    if (phases[0].work == NULL || is_one_flow(model, algorithm, placement->nranks, total_bytes)) {
        ddl_work work = algorithm->work(placement, total_bytes);
        if (work.rounds == 1 &&
            ddl_choice_posts_for_root(model, algorithm->collective, placement->nranks, total_bytes))
            return posted_for_root_ns(model, algorithm->collective, &work, placement->nranks, total_bytes);
        if (is_posted(model, algorithm, &work, placement->nranks, total_bytes))
            return posted_ns(model, &work,
                             posted_pieces(model, algorithm->collective, placement->nranks, total_bytes));
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
