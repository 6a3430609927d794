/*
 * check_plan.h - what the files of the checker share: all ranks' schedules as actions over atoms.
 *
 * Atoms are the pieces into which the borders of all slices cut a rank's memory, so that two slices share
 * whole atoms or none. A rank's memory is one line of elements: the user's buffers, which may share
 * elements, then scratch. check_load.c fills the plan, check_local.c, check_channel.c and check_run.c prove
 * it, check.c says what collectives mean. Private to check*.c.
 */
#ifndef DDL_SIMULATE_CHECK_PLAN_H
#define DDL_SIMULATE_CHECK_PLAN_H

#include "simulate/check.h"
#include "simulate/cuts.h"

#define NONE UINT32_MAX

typedef struct array {
    void *data;
    size_t capacity; /* elements */
} array;

/* ---- the compact form ---- */

typedef struct atoms { /* first .. first+count-1, of all atoms of all ranks */
    uint32_t first, count;
} atoms;

typedef struct action { /* a step */
    atoms target[2];
    uint32_t source;        /* first atom of the source, of as many atoms as the target */
    uint32_t first_operand; /* in checker.operands: the first atom of each */
    uint32_t noperands;
    uint32_t first_successor, nsuccessors; /* in checker.successors, which holds actions */
    uint32_t waiting;                      /* predecessors not yet done */
    uint32_t round;                        /* messages on the longest way to its end */
    uint8_t kind;
    bool incoming_first;
} action;

/* Of an action; in an array of their own, as other actions look at them often. */
enum { NOT_STARTED, STARTED, DONE };

typedef struct message {
    int from, to;
    uint32_t number, elements, action;
} message;

typedef struct atom_value {
    uint64_t sum, expression;
} atom_value;

typedef struct extra_cut { /* found necessary by comparing the two ends of something */
    uint32_t position, next;
} extra_cut;

/* Elements of a buffer that a call gives: nblocks of count, stride apart, or of uneven size. */
typedef struct area {
    size_t count, stride;
    int nblocks;
    ddl_uneven uneven;
} area;

typedef struct layout { /* of one rank's memory */
    area in, out;       /* that may be read */
    bool out_is_written;
    uint64_t in_base, out_base, scratch_base, end; /* elements */
} layout;

struct ddl_checker {
    ddl_collective collective;
    ddl_shape shape;
    ddl_proof failed;
    bool locals_proved; /* structure, bounds and overlap, which more cuts do not change */

    uint32_t nactions, nsuccessors, noperands, natoms, nsends, nrecvs, nextra;
    array actions, states, partners, successors, operands, positions, values, sends, recvs, extra;
    array first_action; /* of each rank, and one more */
    array first_atom;
    array first_extra;  /* of each rank: its newest extra cut, or NONE */
    ddl_cuts common[2]; /* cuts of IN and of OUT that some rank has, once ranks were seen to differ */
    bool has_common;
    array schedules; /* of the ranks from 0 on that are kept */
    int nschedules;
    array stack, sorted_sends, sorted_recvs, spare, starts, known;

    /* of the rank being loaded */
    ddl_cuts cuts;
    array predecessors, first_predecessor, stamps, searched, writers, readers, reader_links;
    uint32_t search;
};

/* return FAILED(c, err, DDL_PROOF_VALUE, "value: rank %d ...", rank); */
#define FAILED(c, err, proof, ...) ((c)->failed = (proof), ddl_error_set((err), DDL_EINTERNAL, __VA_ARGS__))

/* ---- check.c ---- */

/* Make room for count elements, keeping what is there. False: out of memory. */
bool ddl_checker_reserve(array *a, size_t count, size_t element_bytes);
ddl_status ddl_checker_no_memory(ddl_error *err);

/* What a rank's buffers are, which of their elements may be touched, and where they lie. */
layout ddl_checker_layout(const ddl_checker *c, int rank, size_t scratch_bytes);

/* The rank that an action belongs to. */
int ddl_checker_rank_of(const ddl_checker *c, uint32_t action);

/* "recv_reduce" */
const char *ddl_checker_kind_name(int kind);

static inline uint64_t block_start(const area *a, int block)
{
    return a->uneven.counts != NULL ? a->uneven.starts[block] : (uint64_t)block * a->stride;
}

static inline uint64_t block_end(const area *a, int block)
{
    return block_start(a, block) + (a->uneven.counts != NULL ? a->uneven.counts[block] : a->count);
}

/* Elements from the first block to the end of the last one. */
static inline uint64_t extent(const area *a)
{
    return a->nblocks == 0 ? 0 : block_end(a, a->nblocks - 1);
}

/* Of several blocks: the last one that does not start after this element. */
static inline int block_at(const area *a, uint64_t element)
{
    if (a->uneven.counts == NULL) {
        uint64_t block = a->stride == 0 ? 0 : element / a->stride;
        return block < (uint64_t)a->nblocks ? (int)block : a->nblocks - 1;
    }
    int low = 0, high = a->nblocks;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (a->uneven.starts[middle] <= element)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Whether elements first .. first+count-1 of the buffer are given, none of them in a gap; count > 0. */
static inline bool within(const area *a, uint64_t first, uint64_t count)
{
    if (a->nblocks == 0)
        return false;
    if (a->uneven.counts == NULL && (a->nblocks == 1 || a->stride == a->count))
        return first + count <= (uint64_t)a->nblocks * a->count;
    int block = block_at(a, first);
    uint64_t end = block_end(a, block);
    if (first >= end || first < block_start(a, block))
        return false;
    while (first + count > end && ++block < a->nblocks) { /* blocks that follow without a gap */
        if (block_end(a, block) == block_start(a, block))
            continue;
        if (block_start(a, block) != end)
            return false;
        end = block_end(a, block);
    }
    return first + count <= end;
}

/* Whether values must be known at the borders of the area's blocks. */
static inline bool has_borders(const ddl_checker *c, const area *a, bool is_out)
{
    /* Elsewhere an atom of a result comes from one rank's vector, so that it ends where a block does. */
    bool exchanges = c->collective == DDL_COLLECTIVE_ALLTOALL || c->collective == DDL_COLLECTIVE_ALLTOALLV;
    return a->uneven.counts != NULL || (a->stride != a->count && a->count > 0) || (is_out && exchanges);
}

static inline bool is_message(const ddl_step *step)
{
    return step->kind == DDL_STEP_SEND || step->kind == DDL_STEP_RECV || step->kind == DDL_STEP_RECV_REDUCE;
}

/* Elements in these bytes; a division takes longer than most of what is done with them. */
static inline uint64_t elements_in(const ddl_checker *c, size_t bytes)
{
    return c->shape.element_bytes == 4 ? bytes / 4 : bytes / c->shape.element_bytes;
}

/* Where a slice begins on the line of the rank's elements. */
static inline uint32_t unit_of(const ddl_checker *c, const layout *l, const ddl_slice *slice)
{
    uint64_t base = slice->buffer == DDL_BUFFER_IN    ? l->in_base
                    : slice->buffer == DDL_BUFFER_OUT ? l->out_base
                                                      : l->scratch_base;
    return (uint32_t)(base + elements_in(c, slice->offset));
}

/* ---- check_local.c: structure, bounds and overlap, which concern one rank's schedule alone ---- */

ddl_status ddl_checker_prove_steps(ddl_checker *c, const ddl_schedule *s, const layout *l, ddl_error *err);

/* After ddl_checker_prove_steps of the same schedule. Its actions touch natoms atoms from first_atom on. */
ddl_status ddl_checker_prove_overlap(ddl_checker *c, const ddl_schedule *s, const action *actions,
                                     uint32_t first_atom, uint32_t natoms, ddl_error *err);

/* ---- check_load.c: from steps over slices to actions over atoms ---- */

/* Parts of one or two ranks' memory that correspond element by element. */
typedef struct side {
    int rank;
    atoms part[2];
} side;

ddl_status ddl_checker_load_rank(ddl_checker *c, int rank, const ddl_schedule *schedule, ddl_error *err);

/* The sides have equally many elements. Where they are cut differently the missing cuts are noted, and
 * *alike becomes false. */
ddl_status ddl_checker_compare_cuts(ddl_checker *c, const side *x, const side *y, bool *alike,
                                    ddl_error *err);

/* The common case in which there is nothing to compare. */
static inline bool single_atoms(const side *x, const side *y)
{
    return x->part[0].count == 1 && y->part[0].count == 1 && x->part[1].count == 0 && y->part[1].count == 0;
}

static inline side side_of(int rank, const atoms *part)
{
    return (side){ rank, { part[0], part[1] } };
}

/*
 * Give each rank the cuts of IN and OUT that any rank has. More atoms than necessary do no harm, and
 * following cuts from rank to rank would take as many rounds of loading as the algorithm has.
 */
ddl_status ddl_checker_share_cuts(ddl_checker *c, ddl_error *err);

/* ---- check_channel.c ---- */

/*
 * Find each message's other end. *alike becomes false, and the missing cuts are noted, where the two ends
 * of a message are cut differently.
 */
ddl_status ddl_checker_prove_channels(ddl_checker *c, bool *alike, ddl_error *err);

/* ---- check_run.c: executes all ranks at once, without any buffering ---- */

/* Atoms' values are what they are at the end, unless progress fails. */
ddl_status ddl_checker_execute(ddl_checker *c, ddl_error *err);

/* After executing a barrier: whether some action of `rank` comes after the entry of `other`. */
bool ddl_checker_heard(const ddl_checker *c, int rank, int other);

#endif
