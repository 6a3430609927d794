/* choice_board.c - which calls go over a board, where there is one, and what they cost. */
#include "backend/choice_parts.h"

#include <math.h>

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
        return message_bytes >= ceil(model->pull_bytes) && model->crowding < FULL &&
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

/* Asked in each call, in the arithmetic of its thread: how that rounds decides nothing, as what a size, or
 * the share of a rank, is compared with is a whole number. */
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
    return ddl_choice_larger(1, (says_one_block ? total_bytes / nranks : total_bytes) / model->board_bytes);
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
    double turn_ns = ddl_choice_inside(model)->message_ns * (1 + IN_VAIN * (ranks - 1.5) / 0.5);
    double round_ns = ddl_choice_inside(model)->latency_ns + model->crowding * turn_ns;
    double lines_ns = (work->messages - work->rounds) * LINE * ddl_choice_inside(model)->message_ns;
    double even = ddl_choice_larger(0, 1 - 2 * (ceil(model->crowding) - model->crowding));
    double again = 1 - even * 0.5 / model->crowding;
    return pieces * (round_ns * (1 + (work->rounds - 1) * again) + lines_ns) +
           READ * ddl_choice_bytes_ns(model, work->sent_bytes, REDUCED * work->reduced_bytes);
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
    const double pieces = ddl_choice_larger(1, total_bytes / model->board_bytes);
    return posted_ns(model, &one, pieces);
}

bool ddl_choice_over_board(const ddl_cost_model *model, const ddl_algorithm *algorithm, const ddl_work *work,
                           const ddl_placement *placement, double total_bytes, double *ns)
{
    const ddl_collective collective = algorithm->collective;
    const int nranks = placement->nranks;
    if (work->rounds == 1 && ddl_choice_posts_for_root(model, collective, nranks, total_bytes)) {
        *ns = posted_for_root_ns(model, collective, work, nranks, total_bytes);
        return true;
    }
    if (!is_posted(model, algorithm, work, nranks, total_bytes))
        return false;
    *ns = posted_ns(model, work, posted_pieces(model, collective, nranks, total_bytes));
    return true;
}
