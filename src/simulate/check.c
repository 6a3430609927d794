/*
 * check.c - the proofs of check.h, and what each collective means.
 *
 * All schedules are turned into compact steps over atoms: the pieces into which the borders of all slices
 * cut a rank's memory, so that two slices share whole atoms or none. Where a message, copy or reduction
 * joins slices that are cut differently, the cuts of each are added to the other and everything is loaded
 * again, until they agree; from then on atoms correspond one to one.
 *
 * Then all ranks are executed at once, without any buffering: a message happens when both its send and its
 * receive have started. An atom holds two hashes. Its value: input atom at position x of rank r is
 * A(r) * B(x) for random 64-bit A and B, and sums add modulo 2^64, so that the finished sum of position x is
 * B(x) * (A(0) + ... + A(p-1)), and anything counted twice, missing or misplaced gives another number. Its
 * expression: which ranks' operands were combined in which order, without the position.
 *
 * A rank's memory is one line of elements: the user's buffers, which may share elements, then scratch.
 */
#include "simulate/check.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "simulate/cuts.h"

#include <stdio.h>
#include <string.h>

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

enum {
    NOT_STARTED,
    STARTED,
    DONE
}; /* of an action; in an array of their own, as others look at them often */

typedef struct message {
    int from, to;
    uint32_t number, elements, action;
} message;

typedef struct value {
    uint64_t sum, expression;
} value;

typedef struct extra_cut { /* found necessary by comparing the two ends of something */
    uint32_t position, next;
} extra_cut;

/* Elements of a buffer that a call gives: nblocks of count, stride apart. */
typedef struct area {
    size_t count, stride;
    int nblocks;
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
    array stack, sorted_sends, sorted_recvs, spare, starts, known;

    /* of the rank being loaded */
    ddl_cuts cuts;
    array predecessors, first_predecessor, stamps, searched, writers, readers, reader_links;
    uint32_t search;
};

/* ---- memory ---- */

/* Make room for count elements, keeping what is there. */
static bool reserve(array *a, size_t count, size_t element_bytes)
{
    if (count <= a->capacity)
        return true;
    size_t more = count > 2 * a->capacity ? count : 2 * a->capacity;
    void *grown = ddl_alloc_array(more, element_bytes);
    if (grown == NULL)
        return false;
    if (a->capacity > 0)
        memcpy(grown, a->data, a->capacity * element_bytes);
    ddl_free(a->data);
    a->data = grown;
    a->capacity = more;
    return true;
}

static ddl_status no_memory(ddl_error *err)
{
    return DDL_FAIL(err, DDL_ENOMEM, "no memory to check a schedule");
}

ddl_status ddl_checker_create(ddl_checker **out, ddl_error *err)
{
    ddl_checker *c = ddl_alloc(sizeof *c);
    if (c == NULL)
        return no_memory(err);
    *out = c;
    return DDL_OK;
}

void ddl_checker_destroy(ddl_checker *c)
{
    if (c == NULL)
        return;
    array *const arrays[] = { &c->states,       &c->partners,     &c->actions,
                              &c->successors,   &c->operands,     &c->positions,
                              &c->values,       &c->sends,        &c->recvs,
                              &c->extra,        &c->first_action, &c->first_atom,
                              &c->first_extra,  &c->stack,        &c->sorted_sends,
                              &c->sorted_recvs, &c->spare,        &c->starts,
                              &c->known,        &c->predecessors, &c->first_predecessor,
                              &c->stamps,       &c->searched,     &c->writers,
                              &c->readers,      &c->reader_links };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        ddl_free(arrays[i]->data);
    ddl_cuts_fini(&c->cuts);
    ddl_cuts_fini(&c->common[0]);
    ddl_cuts_fini(&c->common[1]);
    ddl_free(c);
}

ddl_proof ddl_checker_failed(const ddl_checker *c)
{
    return c->failed;
}

const char *ddl_proof_name(ddl_proof proof)
{
    static const char *const names[] = { "none",     "structure", "bounds", "overlap", "channel",
                                         "progress", "value",     "bits",   "scale" };
    return names[proof];
}

/* "return FAILED(c, err, DDL_PROOF_VALUE, "rank %d ...", rank);" */
#define FAILED(c, err, proof, ...) ((c)->failed = (proof), ddl_error_set((err), DDL_EINTERNAL, __VA_ARGS__))

/* ---- meanings ---- */

bool ddl_shape_of_rank(const ddl_shape *shape, ddl_collective collective, int rank, ddl_shape *own,
                       ddl_collective *role)
{
    *own = *shape;
    own->rank = rank;
    *role = collective;
    if (collective != DDL_COLLECTIVE_SEND && collective != DDL_COLLECTIVE_RECV)
        return true;
    int sender = shape->root, receiver = (shape->root + 1) % shape->nranks;
    own->root = rank == sender ? receiver : sender;
    *role = rank == sender ? DDL_COLLECTIVE_SEND : DDL_COLLECTIVE_RECV;
    return sender != receiver && (rank == sender || rank == receiver);
}

static uint64_t extent(const area *a)
{
    return a->nblocks == 0 ? 0 : (uint64_t)(a->nblocks - 1) * a->stride + a->count;
}

/* What a rank's buffers are, which of their elements may be touched, and where they lie. */
static layout layout_of(const ddl_checker *c, int rank, size_t scratch_bytes)
{
    const ddl_shape *s = &c->shape;
    area none = { 0, 0, 0 }, vector = { s->count, s->count, 1 }, blocks = { s->count, s->stride, s->nranks };
    layout l = { none, none, true, 0, 0, 0, 0 };
    bool joined = s->in_place;
    uint64_t own_block = (uint64_t)rank * s->stride;
    switch (c->collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
        l.in = l.out = vector;
        break;
    case DDL_COLLECTIVE_REDUCE:
        l.in = vector;
        if (rank == s->root)
            l.out = vector;
        else
            joined = false;
        break;
    case DDL_COLLECTIVE_REDUCE_SCATTER:
        l.in = blocks;
        l.out = vector;
        l.out_base = joined ? own_block : 0;
        break;
    case DDL_COLLECTIVE_ALLGATHER:
        l.in = vector;
        l.out = blocks;
        l.in_base = joined ? own_block : 0;
        break;
    case DDL_COLLECTIVE_ALLTOALL:
        l.in = l.out = blocks;
        break;
    case DDL_COLLECTIVE_BROADCAST:
        l.out = vector;
        l.out_is_written = rank != s->root;
        break;
    case DDL_COLLECTIVE_SEND:
    case DDL_COLLECTIVE_RECV:
        joined = false;
        if (rank == s->root)
            l.in = vector;
        else if (rank == (s->root + 1) % s->nranks)
            l.out = vector;
        break;
    case DDL_COLLECTIVE_BARRIER:
    case DDL_COLLECTIVE_COUNT:
        break;
    }
    if (!joined)
        l.out_base = extent(&l.in);
    uint64_t in_end = l.in_base + extent(&l.in), out_end = l.out_base + extent(&l.out);
    l.scratch_base = in_end > out_end ? in_end : out_end;
    l.end = l.scratch_base + (scratch_bytes + s->element_bytes - 1) / s->element_bytes;
    return l;
}

static uint64_t mixed(uint64_t x) /* splitmix64's output function: one to one, and well scattered */
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t rank_factor(int rank) /* A(r) */
{
    return mixed((uint64_t)rank + (UINT64_C(1) << 32)) | 1;
}

static uint64_t position_factor(uint64_t position) /* B(x) */
{
    return mixed(position + (UINT64_C(2) << 32)) | 1;
}

static uint64_t scaled(uint64_t hash)
{
    return mixed(hash ^ UINT64_C(0x5ca1ed));
}

/* The value that element x of a rank's OUT must have at the end; A_all is the sum of all A(r). */
static uint64_t meant(const ddl_checker *c, int rank, uint64_t x, uint64_t A_all)
{
    const ddl_shape *s = &c->shape;
    switch (c->collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
    case DDL_COLLECTIVE_REDUCE:
        return position_factor(x) * A_all;
    case DDL_COLLECTIVE_REDUCE_SCATTER:
        return position_factor((uint64_t)rank * s->stride + x) * A_all;
    case DDL_COLLECTIVE_ALLGATHER: /* block j is the IN of rank j */
        return position_factor(x % s->stride) * rank_factor((int)(x / s->stride));
    case DDL_COLLECTIVE_ALLTOALL: /* block j is the block of rank j's IN that is for this rank */
        return position_factor((uint64_t)rank * s->stride + x % s->stride) *
               rank_factor((int)(x / s->stride));
    case DDL_COLLECTIVE_BROADCAST:
    case DDL_COLLECTIVE_SEND:
    case DDL_COLLECTIVE_RECV:
        return position_factor(x) * rank_factor(s->root);
    case DDL_COLLECTIVE_BARRIER:
    case DDL_COLLECTIVE_COUNT:
        break;
    }
    DDL_ASSERT(false);
    return 0;
}

static bool reduces(ddl_collective collective)
{
    return collective == DDL_COLLECTIVE_ALLREDUCE || collective == DDL_COLLECTIVE_REDUCE_SCATTER ||
           collective == DDL_COLLECTIVE_REDUCE;
}

/* ---- structure and bounds ---- */

static const char *const kind_names[] = { "send", "recv", "recv_reduce", "reduce", "copy", "scale" };
static const char *const buffer_names[] = { "IN", "OUT", "SCRATCH" };

static bool within(const area *a, uint64_t first, uint64_t count)
{
    if (a->nblocks == 0)
        return false;
    if (a->nblocks == 1 || a->stride == a->count)
        return first + count <= (uint64_t)a->nblocks * a->count;
    return first / a->stride < (uint64_t)a->nblocks && first % a->stride + count <= a->count;
}

static ddl_status prove_slice(ddl_checker *c, const ddl_schedule *s, const layout *l, uint32_t step,
                              const ddl_slice *slice, bool written, ddl_error *err)
{
    if (slice->bytes == 0)
        return DDL_OK;
    size_t unit = c->shape.element_bytes;
    if (slice->offset % unit != 0 || slice->bytes % unit != 0)
        return FAILED(c, err, DDL_PROOF_BOUNDS,
                      "bounds: rank %d step %u: %s+%zu of %zu bytes splits an element", s->rank, step,
                      buffer_names[slice->buffer], slice->offset, slice->bytes);
    uint64_t first = slice->offset / unit, count = slice->bytes / unit;
    bool ok = false;
    switch (slice->buffer) {
    case DDL_BUFFER_IN:
        ok = !written && within(&l->in, first, count);
        break;
    case DDL_BUFFER_OUT:
        ok = (!written || l->out_is_written) && within(&l->out, first, count);
        break;
    case DDL_BUFFER_SCRATCH:
        ok = slice->offset <= s->scratch_bytes && slice->bytes <= s->scratch_bytes - slice->offset;
        break;
    }
    if (!ok)
        return FAILED(c, err, DDL_PROOF_BOUNDS,
                      "bounds: rank %d step %u (%s) %s %s+%zu of %zu bytes, which is not its to %s", s->rank,
                      step, kind_names[s->steps[step].kind], written ? "writes" : "reads",
                      buffer_names[slice->buffer], slice->offset, slice->bytes, written ? "write" : "read");
    return DDL_OK;
}

static bool is_message(const ddl_step *step)
{
    return step->kind == DDL_STEP_SEND || step->kind == DDL_STEP_RECV || step->kind == DDL_STEP_RECV_REDUCE;
}

static uint32_t unit_of(const ddl_checker *c, const layout *l, const ddl_slice *slice)
{
    uint64_t base = slice->buffer == DDL_BUFFER_IN    ? l->in_base
                    : slice->buffer == DDL_BUFFER_OUT ? l->out_base
                                                      : l->scratch_base;
    return (uint32_t)(base + slice->offset / c->shape.element_bytes);
}

static bool overlaps(const ddl_checker *c, const layout *l, const ddl_slice *x, const ddl_slice *y)
{
    uint64_t x_first = unit_of(c, l, x), y_first = unit_of(c, l, y);
    uint64_t x_end = x_first + x->bytes / c->shape.element_bytes,
             y_end = y_first + y->bytes / c->shape.element_bytes;
    return x_first < y_end && y_first < x_end;
}

/* Within one step, what is written must not overlap what is read, but for an operand that is the target. */
static ddl_status prove_step(ddl_checker *c, const ddl_schedule *s, const layout *l, uint32_t index,
                             ddl_error *err)
{
    const ddl_step *step = &s->steps[index];
    size_t bytes = ddl_range_bytes(&step->target);
    bool sizes_agree = bytes > 0 && step->target.part[0].bytes > 0, clash = false;
    bool written = step->kind != DDL_STEP_SEND;
    for (int i = 0; i < 2; i++)
        DDL_TRY(prove_slice(c, s, l, index, &step->target.part[i], written, err));
    if (written && step->target.part[1].bytes > 0)
        clash = overlaps(c, l, &step->target.part[0], &step->target.part[1]);
    if (is_message(step) && (step->peer < 0 || step->peer >= s->nranks || step->peer == s->rank))
        return FAILED(c, err, DDL_PROOF_STRUCTURE, "structure: rank %d step %u has peer %d", s->rank, index,
                      step->peer);
    if (!is_message(step) && step->target.part[1].bytes > 0)
        sizes_agree = false;
    if (step->kind == DDL_STEP_RECV_REDUCE || step->kind == DDL_STEP_COPY) {
        DDL_TRY(prove_slice(c, s, l, index, &step->source, step->kind == DDL_STEP_RECV_REDUCE, err));
        sizes_agree = sizes_agree && step->source.bytes == bytes;
        for (int i = 0; i < 2 && sizes_agree; i++)
            clash = clash ||
                    (step->target.part[i].bytes > 0 && overlaps(c, l, &step->source, &step->target.part[i]));
    }
    if (step->kind == DDL_STEP_REDUCE) {
        sizes_agree = sizes_agree && step->noperands >= 2;
        for (uint32_t i = 0; i < step->noperands; i++) {
            const ddl_slice *operand = &s->operands[step->first_operand + i];
            DDL_TRY(prove_slice(c, s, l, index, operand, false, err));
            sizes_agree = sizes_agree && operand->bytes == bytes;
            if (sizes_agree && overlaps(c, l, operand, &step->target.part[0]))
                clash = clash || unit_of(c, l, operand) != unit_of(c, l, &step->target.part[0]);
        }
    }
    if (!sizes_agree)
        return FAILED(c, err, DDL_PROOF_STRUCTURE, "structure: rank %d step %u (%s): slices differ in size",
                      s->rank, index, kind_names[step->kind]);
    if (clash)
        return FAILED(c, err, DDL_PROOF_STRUCTURE, "structure: rank %d step %u (%s): slices overlap in part",
                      s->rank, index, kind_names[step->kind]);
    return DDL_OK;
}

/* The graph: successors are later steps, and their counts of predecessors are right. Lists predecessors. */
static ddl_status prove_graph(ddl_checker *c, const ddl_schedule *s, ddl_error *err)
{
    uint32_t edges = 0;
    if (!reserve(&c->first_predecessor, (size_t)s->nsteps + 1, sizeof(uint32_t)) ||
        !reserve(&c->stamps, s->nsteps, sizeof(uint32_t)) ||
        !reserve(&c->searched, s->nsteps, sizeof(uint32_t)))
        return no_memory(err);
    uint32_t *first = c->first_predecessor.data, *filled = c->stamps.data;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        first[i] = edges;
        filled[i] = 0;
        edges += s->steps[i].npredecessors;
    }
    first[s->nsteps] = edges;
    if (!reserve(&c->predecessors, edges, sizeof(uint32_t)))
        return no_memory(err);
    uint32_t *predecessors = c->predecessors.data;
    for (uint32_t i = 0; i < s->nsteps; i++)
        for (uint32_t j = 0; j < s->steps[i].nsuccessors; j++) {
            uint32_t successor = s->successors[s->steps[i].first_successor + j];
            if (successor <= i || successor >= s->nsteps ||
                filled[successor] == s->steps[successor].npredecessors)
                return FAILED(c, err, DDL_PROOF_STRUCTURE,
                              "structure: rank %d step %u has successor %u, which does not wait for it",
                              s->rank, i, successor);
            predecessors[first[successor] + filled[successor]++] = i;
        }
    for (uint32_t i = 0; i < s->nsteps; i++)
        if (filled[i] != s->steps[i].npredecessors)
            return FAILED(c, err, DDL_PROOF_STRUCTURE,
                          "structure: rank %d step %u waits for %u steps, but follows %u", s->rank, i,
                          s->steps[i].npredecessors, filled[i]);
    if (s->nsteps > 0) {
        memset(c->stamps.data, 0, s->nsteps * sizeof(uint32_t));
        memset(c->searched.data, 0, s->nsteps * sizeof(uint32_t));
    }
    return DDL_OK;
}

/* ---- overlap ---- */

/* Whether step `from` is finished before step `to` starts. */
static bool ordered(ddl_checker *c, uint32_t from, uint32_t to, bool *failed)
{
    uint32_t *stamps = c->stamps.data, *searched = c->searched.data;
    const uint32_t *first = c->first_predecessor.data, *predecessors = c->predecessors.data;
    if (stamps[from] == to + 1)
        return true;
    /* Search backward; steps before `from` cannot lead to it. */
    uint32_t search = ++c->search;
    size_t depth = 0;
    for (uint32_t next = to;;) {
        for (uint32_t i = first[next]; i < first[next + 1]; i++) {
            uint32_t p = predecessors[i];
            if (p == from)
                return true;
            if (p < from || searched[p] == search)
                continue;
            searched[p] = search;
            if (!reserve(&c->stack, depth + 1, sizeof(uint32_t))) {
                *failed = true;
                return false;
            }
            ((uint32_t *)c->stack.data)[depth++] = p;
        }
        if (depth == 0)
            return false;
        next = ((uint32_t *)c->stack.data)[--depth];
    }
}

typedef struct reader_link {
    uint32_t step, older;
} reader_link;

typedef struct overlap_state {
    uint32_t nreaders;
    uint32_t step, other; /* a pair that is not ordered */
    bool found, failed;
} overlap_state;

static void overlap_read(ddl_checker *c, overlap_state *o, uint32_t first, uint32_t count)
{
    uint32_t *writers = c->writers.data, *newest = c->readers.data;
    for (uint32_t a = first; a < first + count && !o->found && !o->failed; a++) {
        if (writers[a] != NONE && writers[a] != o->step && !ordered(c, writers[a], o->step, &o->failed)) {
            o->found = true;
            o->other = writers[a];
        }
        if (!reserve(&c->reader_links, (size_t)o->nreaders + 1, sizeof(reader_link))) {
            o->failed = true;
            return;
        }
        ((reader_link *)c->reader_links.data)[o->nreaders] = (reader_link){ o->step, newest[a] };
        newest[a] = o->nreaders++;
    }
}

static void overlap_write(ddl_checker *c, overlap_state *o, uint32_t first, uint32_t count)
{
    uint32_t *writers = c->writers.data, *newest = c->readers.data;
    const reader_link *links = c->reader_links.data;
    for (uint32_t a = first; a < first + count && !o->found && !o->failed; a++) {
        bool read_by_others = false;
        for (uint32_t r = newest[a]; r != NONE && !o->found; r = links[r].older) {
            if (links[r].step == o->step)
                continue;
            read_by_others = true;
            if (!ordered(c, links[r].step, o->step, &o->failed)) {
                o->found = true;
                o->other = links[r].step;
            }
        }
        /* Readers were seen to be after the writer. */
        if (!read_by_others && writers[a] != NONE && writers[a] != o->step &&
            !ordered(c, writers[a], o->step, &o->failed)) {
            o->found = true;
            o->other = writers[a];
        }
        writers[a] = o->step;
        newest[a] = NONE;
    }
}

/* Steps in order, each against the last writer and the readers since of all atoms that it touches. */
static ddl_status prove_overlap(ddl_checker *c, const ddl_schedule *s, const action *actions,
                                uint32_t first_atom, uint32_t natoms, ddl_error *err)
{
    if (!reserve(&c->writers, natoms, sizeof(uint32_t)) || !reserve(&c->readers, natoms, sizeof(uint32_t)))
        return no_memory(err);
    memset(c->writers.data, 0xff, natoms * sizeof(uint32_t));
    memset(c->readers.data, 0xff, natoms * sizeof(uint32_t));
    c->search = 0;
    overlap_state o = { 0, 0, 0, false, false };
    const uint32_t *first = c->first_predecessor.data, *predecessors = c->predecessors.data;
    uint32_t *stamps = c->stamps.data;
    for (o.step = 0; o.step < s->nsteps && !o.found && !o.failed; o.step++) {
        const ddl_step *step = &s->steps[o.step];
        const action *a = &actions[o.step];
        for (uint32_t i = first[o.step]; i < first[o.step + 1]; i++)
            stamps[predecessors[i]] = o.step + 1;
        uint32_t count = a->target[0].count + a->target[1].count;
        if (step->kind == DDL_STEP_COPY)
            overlap_read(c, &o, a->source - first_atom, count);
        if (step->kind == DDL_STEP_RECV_REDUCE)
            overlap_write(c, &o, a->source - first_atom, count);
        for (uint32_t i = 0; step->kind == DDL_STEP_REDUCE && i < a->noperands; i++)
            overlap_read(c, &o, ((uint32_t *)c->operands.data)[a->first_operand + i] - first_atom, count);
        for (int i = 0; i < 2; i++) {
            if (a->target[i].count == 0)
                continue;
            if (step->kind == DDL_STEP_SEND)
                overlap_read(c, &o, a->target[i].first - first_atom, a->target[i].count);
            else
                overlap_write(c, &o, a->target[i].first - first_atom, a->target[i].count);
        }
        if (o.found)
            break;
    }
    if (o.failed)
        return no_memory(err);
    if (o.found)
        return FAILED(c, err, DDL_PROOF_OVERLAP,
                      "overlap: rank %d: steps %u (%s) and %u (%s) touch the same bytes and neither waits "
                      "for the other",
                      s->rank, o.other, kind_names[s->steps[o.other].kind], o.step,
                      kind_names[s->steps[o.step].kind]);
    return DDL_OK;
}

/* ---- loading: from steps over slices to actions over atoms ---- */

static ddl_status add_extra_cut(ddl_checker *c, int rank, uint32_t position, ddl_error *err)
{
    if (!reserve(&c->extra, (size_t)c->nextra + 1, sizeof(extra_cut)))
        return no_memory(err);
    uint32_t *newest = (uint32_t *)c->first_extra.data + rank;
    ((extra_cut *)c->extra.data)[c->nextra] = (extra_cut){ position, *newest };
    *newest = c->nextra++;
    return DDL_OK;
}

static void cut_slice(ddl_checker *c, const layout *l, const ddl_slice *slice)
{
    if (slice->bytes == 0)
        return;
    uint32_t first = unit_of(c, l, slice);
    ddl_cuts_add(&c->cuts, first);
    ddl_cuts_add(&c->cuts, first + (uint32_t)(slice->bytes / c->shape.element_bytes));
}

static bool has_source(const ddl_step *step)
{
    return step->kind == DDL_STEP_COPY || step->kind == DDL_STEP_RECV_REDUCE;
}

static ddl_status find_cuts(ddl_checker *c, const ddl_schedule *s, const layout *l, int rank, ddl_error *err)
{
    size_t nslices = 2 * (size_t)s->nsteps;
    for (uint32_t i = 0; i < s->nsteps; i++)
        nslices += s->steps[i].noperands;
    ddl_cuts_begin(&c->cuts, (uint32_t)l->end, 2 * nslices);
    ddl_cuts_add(&c->cuts, 0);
    ddl_cuts_add(&c->cuts, (uint32_t)l->scratch_base);
    ddl_cuts_add(&c->cuts, (uint32_t)l->end);
    const area *areas[2] = { &l->in, &l->out };
    for (int i = 0; i < 2; i++) {
        uint32_t base = (uint32_t)(i == 0 ? l->in_base : l->out_base);
        bool apart = areas[i]->stride != areas[i]->count && areas[i]->count > 0;
        ddl_cuts_add(&c->cuts, base);
        ddl_cuts_add(&c->cuts, base + (uint32_t)extent(areas[i]));
        for (int j = 0; apart && j < areas[i]->nblocks; j++) {
            ddl_cuts_add(&c->cuts, base + (uint32_t)((size_t)j * areas[i]->stride));
            ddl_cuts_add(&c->cuts, base + (uint32_t)((size_t)j * areas[i]->stride + areas[i]->count));
        }
    }
    for (int i = 0; i < 2 && c->has_common; i++)
        for (uint32_t j = 0; extent(areas[i]) > 0 && j < c->common[i].count; j++)
            ddl_cuts_add(&c->cuts, (uint32_t)(i == 0 ? l->in_base : l->out_base) + c->common[i].positions[j]);
    for (uint32_t i = 0; i < s->nsteps; i++) {
        const ddl_step *step = &s->steps[i];
        cut_slice(c, l, &step->target.part[0]);
        cut_slice(c, l, &step->target.part[1]);
        if (has_source(step))
            cut_slice(c, l, &step->source);
        for (uint32_t j = 0; j < step->noperands; j++)
            cut_slice(c, l, &s->operands[step->first_operand + j]);
    }
    const extra_cut *extra = c->extra.data;
    for (uint32_t i = ((uint32_t *)c->first_extra.data)[rank]; i != NONE; i = extra[i].next)
        ddl_cuts_add(&c->cuts, extra[i].position);
    return ddl_cuts_seal(&c->cuts) ? DDL_OK : no_memory(err);
}

static atoms atoms_of(const ddl_checker *c, const layout *l, const ddl_slice *slice, uint32_t first_atom)
{
    if (slice->bytes == 0)
        return (atoms){ first_atom, 0 };
    uint32_t start = unit_of(c, l, slice);
    uint32_t first = ddl_cuts_index(&c->cuts, start);
    uint32_t end = ddl_cuts_index(&c->cuts, start + (uint32_t)(slice->bytes / c->shape.element_bytes));
    return (atoms){ first_atom + first, end - first };
}

/* Parts of one or two ranks' memory that correspond element by element. */
typedef struct side {
    int rank;
    atoms part[2];
} side;

/*
 * Whether both sides are cut alike. Where not, the missing cuts are noted. The sides have as many
 * elements. Positions are those of the atoms' starts.
 */
static ddl_status compare_cuts(ddl_checker *c, const side *x, const side *y, bool *alike, ddl_error *err)
{
    const uint32_t *positions = c->positions.data;
    const side *sides[2] = { x, y };
    uint32_t atom[2] = { x->part[0].first, y->part[0].first };
    uint32_t moved[2] = { 0, 0 }; /* elements of the atom that were compared before */
    int part[2] = { 0, 0 };
    uint32_t left[2] = { x->part[0].count, y->part[0].count };
    while (left[0] > 0 && left[1] > 0) {
        /* An atom ends where the next one of its rank begins. */
        uint32_t rest[2];
        for (int i = 0; i < 2; i++)
            rest[i] = positions[atom[i] + 1] - positions[atom[i]] - moved[i];
        uint32_t step = rest[0] < rest[1] ? rest[0] : rest[1];
        for (int i = 0; i < 2; i++) {
            if (rest[i] != step) {
                moved[i] += step;
                *alike = false;
                DDL_TRY(add_extra_cut(c, sides[i]->rank, positions[atom[i]] + moved[i], err));
                continue;
            }
            moved[i] = 0;
            atom[i]++;
            if (--left[i] == 0 && part[i] == 0) {
                part[i] = 1;
                atom[i] = sides[i]->part[1].first;
                left[i] = sides[i]->part[1].count;
            }
        }
    }
    return DDL_OK;
}

static bool single_atoms(const side *x, const side *y)
{
    return x->part[0].count == 1 && y->part[0].count == 1 && x->part[1].count == 0 && y->part[1].count == 0;
}

static side side_of(int rank, const atoms *part)
{
    return (side){ rank, { part[0], part[1] } };
}

static ddl_status convert_step(ddl_checker *c, const ddl_schedule *s, const layout *l, uint32_t index,
                               uint32_t first_action, uint32_t first_atom, bool *alike, ddl_error *err)
{
    const ddl_step *step = &s->steps[index];
    action *a = (action *)c->actions.data + first_action + index;
    *a = (action){ .kind = step->kind,
                   .incoming_first = step->incoming_first,
                   .waiting = step->npredecessors,
                   .first_operand = c->noperands,
                   .noperands = step->noperands,
                   .first_successor = c->nsuccessors,
                   .nsuccessors = step->nsuccessors };
    for (int i = 0; i < 2; i++)
        a->target[i] = atoms_of(c, l, &step->target.part[i], first_atom);
    side target = side_of(s->rank, a->target);
    if (has_source(step)) {
        side source = { s->rank, { atoms_of(c, l, &step->source, first_atom), { first_atom, 0 } } };
        a->source = source.part[0].first;
        if (!single_atoms(&source, &target))
            DDL_TRY(compare_cuts(c, &source, &target, alike, err));
    }
    if (!reserve(&c->operands, (size_t)c->noperands + step->noperands, sizeof(uint32_t)))
        return no_memory(err);
    for (uint32_t i = 0; i < step->noperands; i++) {
        atoms operand = atoms_of(c, l, &s->operands[step->first_operand + i], first_atom);
        ((uint32_t *)c->operands.data)[c->noperands++] = operand.first;
        side from = { s->rank, { operand, { first_atom, 0 } } };
        if (!single_atoms(&from, &target))
            DDL_TRY(compare_cuts(c, &from, &target, alike, err));
    }
    if (!reserve(&c->successors, (size_t)c->nsuccessors + step->nsuccessors, sizeof(uint32_t)))
        return no_memory(err);
    uint32_t *successors = (uint32_t *)c->successors.data + c->nsuccessors;
    for (uint32_t i = 0; i < step->nsuccessors; i++)
        successors[i] = first_action + s->successors[step->first_successor + i];
    c->nsuccessors += step->nsuccessors;
    return DDL_OK;
}

static ddl_status note_message(ddl_checker *c, const ddl_schedule *s, uint32_t index, uint32_t first_action,
                               ddl_error *err)
{
    const ddl_step *step = &s->steps[index];
    bool sends = step->kind == DDL_STEP_SEND;
    array *list = sends ? &c->sends : &c->recvs;
    uint32_t *count = sends ? &c->nsends : &c->nrecvs;
    if (!reserve(list, (size_t)*count + 1, sizeof(message)))
        return no_memory(err);
    ((message *)list->data)[(*count)++] =
        (message){ sends ? s->rank : step->peer, sends ? step->peer : s->rank, step->number,
                   (uint32_t)(ddl_range_bytes(&step->target) / c->shape.element_bytes),
                   first_action + index };
    return DDL_OK;
}

static ddl_status load_rank(ddl_checker *c, int rank, const ddl_schedule *given, ddl_error *err)
{
    static const ddl_schedule idle = { .nranks = 1 };
    const ddl_schedule *s = given != NULL ? given : &idle;
    layout l = layout_of(c, rank, s->scratch_bytes);
    if (l.end >= UINT32_MAX)
        return DDL_FAIL(err, DDL_EINVAL, "a shape of more than 2^32 elements per rank cannot be checked");
    if (given != NULL && (s->rank != rank || s->nranks != c->shape.nranks))
        return FAILED(c, err, DDL_PROOF_STRUCTURE, "structure: the schedule of rank %d says rank %d of %d",
                      rank, s->rank, s->nranks);
    if (!c->locals_proved) {
        for (uint32_t i = 0; i < s->nsteps; i++)
            DDL_TRY(prove_step(c, s, &l, i, err));
        DDL_TRY(prove_graph(c, s, err));
    }
    uint32_t first_action = c->nactions, first_atom = c->natoms;
    uint32_t noperands = c->noperands, nsuccessors = c->nsuccessors;
    size_t nactions = (size_t)c->nactions + s->nsteps;
    if (!reserve(&c->actions, nactions, sizeof(action)) || !reserve(&c->states, nactions, sizeof(uint8_t)) ||
        !reserve(&c->partners, nactions, sizeof(uint32_t)))
        return no_memory(err);
    for (uint32_t i = 0; i < s->nsteps; i++) {
        ((uint8_t *)c->states.data)[first_action + i] = NOT_STARTED;
        ((uint32_t *)c->partners.data)[first_action + i] = NONE;
    }
    bool alike = false;
    while (!alike) {
        alike = true;
        c->noperands = noperands;
        c->nsuccessors = nsuccessors;
        DDL_TRY(find_cuts(c, s, &l, rank, err));
        if (!reserve(&c->positions, (size_t)first_atom + c->cuts.count, sizeof(uint32_t)))
            return no_memory(err);
        memcpy((uint32_t *)c->positions.data + first_atom, c->cuts.positions,
               c->cuts.count * sizeof(uint32_t));
        for (uint32_t i = 0; i < s->nsteps; i++)
            DDL_TRY(convert_step(c, s, &l, i, first_action, first_atom, &alike, err));
    }
    /* The last cut, where memory ends, takes a number too, so that every atom has an end. */
    if (c->natoms > UINT32_MAX - c->cuts.count)
        return DDL_FAIL(err, DDL_EINVAL, "a shape of more than 2^32 atoms cannot be checked");
    c->natoms += c->cuts.count;
    c->nactions += s->nsteps;
    if (!c->locals_proved)
        DDL_TRY(
            prove_overlap(c, s, (action *)c->actions.data + first_action, first_atom, c->cuts.count, err));
    for (uint32_t i = 0; i < s->nsteps; i++)
        if (is_message(&s->steps[i]))
            DDL_TRY(note_message(c, s, i, first_action, err));
    ((uint32_t *)c->first_action.data)[rank + 1] = c->nactions;
    ((uint32_t *)c->first_atom.data)[rank + 1] = c->natoms;
    return DDL_OK;
}

/* ---- channel ---- */

/* Stable sort of indices of messages by one of their ranks. */
static void sort_by_rank(ddl_checker *c, const message *messages, uint32_t count, bool by_receiver,
                         const uint32_t *from, uint32_t *to)
{
    uint32_t *starts = c->starts.data;
    memset(starts, 0, ((size_t)c->shape.nranks + 1) * sizeof *starts);
    for (uint32_t i = 0; i < count; i++)
        starts[(by_receiver ? messages[i].to : messages[i].from) + 1]++;
    for (int i = 0; i < c->shape.nranks; i++)
        starts[i + 1] += starts[i];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t m = from != NULL ? from[i] : i;
        to[starts[by_receiver ? messages[m].to : messages[m].from]++] = m;
    }
}

/*
 * Both lists by receiver, then sender, then the order of steps; they must then go hand in hand. Where the
 * two ends of a message are cut differently, the missing cuts are noted.
 */
static ddl_status prove_channels(ddl_checker *c, bool *alike, ddl_error *err)
{
    if (!reserve(&c->sorted_sends, c->nsends, sizeof(uint32_t)) ||
        !reserve(&c->spare, c->nrecvs, sizeof(uint32_t)) ||
        !reserve(&c->sorted_recvs, c->nrecvs, sizeof(uint32_t)))
        return no_memory(err);
    const message *sends = c->sends.data, *recvs = c->recvs.data;
    uint32_t *sorted_sends = c->sorted_sends.data, *sorted_recvs = c->sorted_recvs.data;
    sort_by_rank(c, sends, c->nsends, true, NULL, sorted_sends); /* they are by sender already */
    sort_by_rank(c, recvs, c->nrecvs, false, NULL, c->spare.data);
    sort_by_rank(c, recvs, c->nrecvs, true, c->spare.data, sorted_recvs);
    const action *actions = c->actions.data;
    uint32_t *partners = c->partners.data;
    for (uint32_t i = 0; i < c->nsends || i < c->nrecvs; i++) {
        const message *s = i < c->nsends ? &sends[sorted_sends[i]] : NULL;
        const message *r = i < c->nrecvs ? &recvs[sorted_recvs[i]] : NULL;
        bool same_pair = s != NULL && r != NULL && s->to == r->to && s->from == r->from;
        if (!same_pair) {
            bool send_is_first =
                r == NULL || (s != NULL && (s->to < r->to || (s->to == r->to && s->from < r->from)));
            if (send_is_first)
                return FAILED(c, err, DDL_PROOF_CHANNEL,
                              "channel: rank %d sends message %u to rank %d, which does not expect it",
                              s->from, s->number, s->to);
            return FAILED(c, err, DDL_PROOF_CHANNEL,
                          "channel: rank %d expects message %u from rank %d, which does not send it", r->to,
                          r->number, r->from);
        }
        const message *before = i > 0 ? &sends[sorted_sends[i - 1]] : NULL;
        bool continues = before != NULL && before->to == s->to && before->from == s->from;
        uint32_t number = continues ? before->number + 1 : 0;
        if (s->number != number || r->number != number)
            return FAILED(c, err, DDL_PROOF_CHANNEL,
                          "channel: message %u from rank %d to rank %d is number %u where it is sent and %u "
                          "where it is received",
                          number, s->from, s->to, s->number, r->number);
        if (s->elements != r->elements)
            return FAILED(c, err, DDL_PROOF_CHANNEL,
                          "channel: message %u from rank %d to rank %d has %zu bytes where it is sent and "
                          "%zu where it is received",
                          number, s->from, s->to, s->elements * c->shape.element_bytes,
                          r->elements * c->shape.element_bytes);
        partners[s->action] = r->action;
        partners[r->action] = s->action;
        /* A recv_reduce's landing is cut like its target. */
        side from = side_of(s->from, actions[s->action].target),
             to = side_of(s->to, actions[r->action].target);
        if (!single_atoms(&from, &to))
            DDL_TRY(compare_cuts(c, &from, &to, alike, err));
    }
    return DDL_OK;
}

/*
 * Give each rank the cuts of IN and OUT that any rank has. More atoms than necessary do no harm, and
 * following cuts from rank to rank would take as many rounds of loading as the algorithm has.
 */
static ddl_status share_cuts(ddl_checker *c, ddl_error *err)
{
    const uint32_t *positions = c->positions.data, *first_atom = c->first_atom.data;
    for (int i = 0; i < 2; i++) {
        uint64_t most = 0;
        for (int rank = 0; rank < c->shape.nranks; rank++) {
            layout l = layout_of(c, rank, 0);
            uint64_t elements = extent(i == 0 ? &l.in : &l.out);
            most = elements > most ? elements : most;
        }
        ddl_cuts_begin(&c->common[i], (uint32_t)most, c->natoms / (uint32_t)c->shape.nranks);
        for (int rank = 0; rank < c->shape.nranks; rank++) {
            layout l = layout_of(c, rank, 0);
            uint64_t base = i == 0 ? l.in_base : l.out_base, elements = extent(i == 0 ? &l.in : &l.out);
            for (uint32_t a = first_atom[rank]; a < first_atom[rank + 1]; a++)
                if (base <= positions[a] && positions[a] <= base + elements)
                    ddl_cuts_add(&c->common[i], (uint32_t)(positions[a] - base));
        }
        if (!ddl_cuts_seal(&c->common[i]))
            return no_memory(err);
    }
    c->has_common = true;
    return DDL_OK;
}

/* ---- execution: progress and values ---- */

static int rank_of_action(const ddl_checker *c, uint32_t index)
{
    const uint32_t *first = c->first_action.data;
    int low = 0, high = c->shape.nranks;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* What atoms hold before the operation: inputs, and elsewhere something that is like nothing else. */
static ddl_status set_inputs(ddl_checker *c, ddl_error *err)
{
    if (!reserve(&c->values, c->natoms, sizeof(value)))
        return no_memory(err);
    value *values = c->values.data;
    const uint32_t *positions = c->positions.data, *first_atom = c->first_atom.data;
    for (int rank = 0; rank < c->shape.nranks; rank++) {
        layout l = layout_of(c, rank, 0);
        bool broadcasts = c->collective == DDL_COLLECTIVE_BROADCAST && rank == c->shape.root;
        uint64_t begin = broadcasts ? l.out_base : l.in_base;
        uint64_t end = begin + extent(broadcasts ? &l.out : &l.in);
        uint64_t A = rank_factor(rank), expression = mixed((uint64_t)rank);
        for (uint32_t i = first_atom[rank]; i < first_atom[rank + 1]; i++) {
            if (begin <= positions[i] && positions[i] < end)
                values[i] = (value){ A * position_factor(positions[i] - begin), expression };
            else
                values[i] =
                    (value){ UINT64_C(0xdeadbeef) * (i + 1) ^ UINT64_C(0x6a09e667f3bcc908), ~(uint64_t)i };
        }
    }
    return DDL_OK;
}

static uint64_t expression_of(uint64_t so_far, uint64_t operand)
{
    return ((so_far << 23 | so_far >> 41) ^ operand) * UINT64_C(0x9fb21c651e98df25);
}

static value combined(value x, value y)
{
    uint64_t expression = expression_of(expression_of(2, x.expression), y.expression);
    return (value){ x.sum + y.sum, mixed(expression) };
}

static void reduce_atoms(ddl_checker *c, const action *a)
{
    value *values = c->values.data;
    const uint32_t *operands = (uint32_t *)c->operands.data + a->first_operand;
    for (uint32_t i = 0; i < a->target[0].count; i++) {
        value result = { 0, a->noperands };
        for (uint32_t j = 0; j < a->noperands; j++) {
            const value *operand = &values[operands[j] + i];
            result.sum += operand->sum;
            result.expression = expression_of(result.expression, operand->expression);
        }
        result.expression = mixed(result.expression);
        values[a->target[0].first + i] = result;
    }
}

static void copy_atoms(ddl_checker *c, const action *send, const action *recv)
{
    value *values = c->values.data;
    bool reducing = recv->kind == DDL_STEP_RECV_REDUCE;
    atoms from[2] = { send->target[0], send->target[1] }, to[2] = { recv->target[0], recv->target[1] };
    uint32_t landing = recv->source;
    int f = 0, t = 0;
    for (;;) {
        if (from[f].count == 0 && (f == 1 || from[++f].count == 0))
            return;
        if (to[t].count == 0)
            t = 1;
        const value incoming = values[from[f].first];
        value *target = &values[to[t].first];
        if (reducing) {
            values[landing++] = incoming;
            *target = recv->incoming_first ? combined(incoming, *target) : combined(*target, incoming);
        } else {
            *target = incoming;
        }
        from[f].first++;
        from[f].count--;
        to[t].first++;
        to[t].count--;
    }
}

static void run_local(ddl_checker *c, const action *a)
{
    value *values = c->values.data;
    if (a->kind == DDL_STEP_REDUCE) {
        reduce_atoms(c, a);
        return;
    }
    for (uint32_t i = 0; i < a->target[0].count; i++) {
        value *target = &values[a->target[0].first + i];
        if (a->kind == DDL_STEP_COPY)
            *target = values[a->source + i];
        else
            *target = (value){ scaled(target->sum), scaled(target->expression) };
    }
}

/* Which ranks' entry an action knows of, as bits; only for the barrier. */
static uint64_t *known_to(const ddl_checker *c, uint32_t index)
{
    size_t nwords = ((size_t)c->shape.nranks + 63) / 64;
    return (uint64_t *)c->known.data + index * nwords;
}

static void tell(const ddl_checker *c, uint32_t from, uint32_t to)
{
    size_t nwords = ((size_t)c->shape.nranks + 63) / 64;
    uint64_t *target = known_to(c, to);
    const uint64_t *source = known_to(c, from);
    for (size_t i = 0; i < nwords; i++)
        target[i] |= source[i];
}

static ddl_status set_knowledge(ddl_checker *c, ddl_error *err)
{
    size_t nwords = ((size_t)c->shape.nranks + 63) / 64;
    if (!reserve(&c->known, c->nactions * nwords, sizeof(uint64_t)))
        return no_memory(err);
    if (c->nactions > 0)
        memset(c->known.data, 0, c->nactions * nwords * sizeof(uint64_t));
    for (uint32_t i = 0; i < c->nactions; i++) {
        int rank = rank_of_action(c, i);
        known_to(c, i)[rank / 64] |= UINT64_C(1) << rank % 64;
    }
    return DDL_OK;
}

static uint32_t complete(ddl_checker *c, uint32_t index, uint32_t depth)
{
    action *actions = c->actions.data, *a = &actions[index];
    const uint32_t *successors = (uint32_t *)c->successors.data + a->first_successor;
    uint32_t *stack = c->stack.data;
    ((uint8_t *)c->states.data)[index] = DONE;
    for (uint32_t i = 0; i < a->nsuccessors; i++) {
        if (c->collective == DDL_COLLECTIVE_BARRIER)
            tell(c, index, successors[i]);
        if (actions[successors[i]].round < a->round)
            actions[successors[i]].round = a->round;
        if (--actions[successors[i]].waiting == 0)
            stack[depth++] = successors[i];
    }
    return depth;
}

static ddl_status tell_deadlock(ddl_checker *c, ddl_error *err)
{
    const action *actions = c->actions.data;
    for (uint32_t i = 0; i < c->nactions; i++) {
        const action *a = &actions[i];
        if (((uint8_t *)c->states.data)[i] != STARTED)
            continue;
        uint32_t partner = ((uint32_t *)c->partners.data)[i];
        int rank = rank_of_action(c, i), peer = rank_of_action(c, partner);
        return FAILED(c, err, DDL_PROOF_PROGRESS,
                      "progress: rank %d waits for ever in step %u (%s, peer %d): the peer's step %u waits "
                      "for steps that never end",
                      rank, i - ((uint32_t *)c->first_action.data)[rank], kind_names[a->kind], peer,
                      partner - ((uint32_t *)c->first_action.data)[peer]);
    }
    DDL_ASSERT(false); /* a step waits only for earlier ones, so the first that is not done was started */
    return DDL_EINTERNAL;
}

static ddl_status execute(ddl_checker *c, ddl_error *err)
{
    if (!reserve(&c->stack, c->nactions, sizeof(uint32_t)))
        return no_memory(err);
    action *actions = c->actions.data;
    uint8_t *states = c->states.data;
    const uint32_t *partners = c->partners.data;
    uint32_t *stack = c->stack.data, depth = 0, ndone = 0;
    for (uint32_t i = c->nactions; i-- > 0;)
        if (actions[i].waiting == 0)
            stack[depth++] = i;
    while (depth > 0) {
        uint32_t index = stack[--depth], partner = partners[index];
        states[index] = STARTED;
        if (partner == NONE) {
            run_local(c, &actions[index]);
        } else {
            if (states[partner] == NOT_STARTED)
                continue;
            bool sends = actions[index].kind == DDL_STEP_SEND;
            action *send = &actions[sends ? index : partner], *recv = &actions[sends ? partner : index];
            copy_atoms(c, send, recv);
            if (recv->round < send->round + 1)
                recv->round = send->round + 1;
            if (c->collective == DDL_COLLECTIVE_BARRIER)
                tell(c, sends ? index : partner, sends ? partner : index);
            depth = complete(c, partner, depth);
            ndone++;
        }
        depth = complete(c, index, depth);
        ndone++;
    }
    return ndone == c->nactions ? DDL_OK : tell_deadlock(c, err);
}

/* ---- results ---- */

static ddl_status tell_wrong_value(ddl_checker *c, int rank, uint64_t x, uint64_t got, uint64_t sum,
                                   bool average, ddl_error *err)
{
    if (average && got == sum)
        return FAILED(c, err, DDL_PROOF_SCALE, "scale: rank %d element %llu of OUT is the sum, never divided",
                      rank, (unsigned long long)x);
    if (got == scaled(average ? scaled(sum) : sum))
        return FAILED(c, err, DDL_PROOF_SCALE, "scale: rank %d element %llu of OUT is divided once too often",
                      rank, (unsigned long long)x);
    return FAILED(
        c, err, DDL_PROOF_VALUE,
        "value: rank %d element %llu of OUT is not the %s (an input is missing, misplaced or counted twice)",
        rank, (unsigned long long)x, ddl_collective_name(c->collective));
}

static ddl_status prove_values(ddl_checker *c, ddl_error *err)
{
    const value *values = c->values.data;
    const uint32_t *positions = c->positions.data, *first_atom = c->first_atom.data;
    bool average = c->shape.average && reduces(c->collective) && c->shape.nranks > 1;
    uint64_t A_all = 0;
    for (int rank = 0; rank < c->shape.nranks; rank++)
        A_all += rank_factor(rank);
    for (int rank = 0; rank < c->shape.nranks; rank++) {
        layout l = layout_of(c, rank, 0);
        uint64_t end = l.out_base + extent(&l.out);
        for (uint32_t i = first_atom[rank]; i < first_atom[rank + 1]; i++) {
            if (positions[i] < l.out_base || positions[i] >= end)
                continue;
            uint64_t x = positions[i] - l.out_base;
            if (!within(&l.out, x, 1))
                continue; /* between blocks: proved untouched */
            uint64_t sum = meant(c, rank, x, A_all);
            if (values[i].sum != (average ? scaled(sum) : sum))
                return tell_wrong_value(c, rank, x, values[i].sum, sum, average, err);
        }
    }
    return DDL_OK;
}

/* Every rank's OUT against rank 0's, atom by atom; ranks may be cut differently. */
static ddl_status prove_bits(ddl_checker *c, ddl_error *err)
{
    const value *values = c->values.data;
    const uint32_t *positions = c->positions.data, *first_atom = c->first_atom.data;
    layout first = layout_of(c, 0, 0);
    for (int rank = 1; rank < c->shape.nranks; rank++) {
        layout l = layout_of(c, rank, 0);
        uint32_t i = first_atom[0], j = first_atom[rank];
        while (positions[i] < first.out_base)
            i++;
        while (positions[j] < l.out_base)
            j++;
        for (uint64_t x = 0; x < c->shape.count;) {
            if (values[i].expression != values[j].expression)
                return FAILED(
                    c, err, DDL_PROOF_BITS,
                    "bits: element %llu is computed in another order of operands on rank %d than on rank 0",
                    (unsigned long long)x, rank);
            uint64_t i_end = positions[i + 1] - first.out_base, j_end = positions[j + 1] - l.out_base;
            x = i_end < j_end ? i_end : j_end;
            i += i_end == x;
            j += j_end == x;
        }
    }
    return DDL_OK;
}

/* A rank must not be done before it has heard, through however many others, of every rank. */
static ddl_status prove_barrier(ddl_checker *c, ddl_error *err)
{
    size_t nwords = ((size_t)c->shape.nranks + 63) / 64;
    const uint32_t *first = c->first_action.data;
    for (int rank = 0; rank < c->shape.nranks && c->shape.nranks > 1; rank++)
        for (int other = 0; other < c->shape.nranks; other++) {
            bool heard = other == rank;
            for (uint32_t i = first[rank]; i < first[rank + 1] && !heard; i++)
                heard = (((uint64_t *)c->known.data)[i * nwords + (size_t)other / 64] >> other % 64 & 1) != 0;
            if (!heard)
                return FAILED(c, err, DDL_PROOF_VALUE,
                              "value: rank %d leaves the barrier without having heard of rank %d", rank,
                              other);
        }
    return DDL_OK;
}

/* ---- costs ---- */

static double elements_of(const ddl_checker *c, const action *a)
{
    const uint32_t *positions = c->positions.data;
    double elements = 0;
    for (int i = 0; i < 2; i++)
        if (a->target[i].count > 0)
            elements += positions[a->target[i].first + a->target[i].count] - positions[a->target[i].first];
    return elements;
}

uint32_t ddl_checker_round(const ddl_checker *c, int rank, uint32_t step)
{
    uint32_t first = ((uint32_t *)c->first_action.data)[rank];
    DDL_ASSERT(first + step < ((uint32_t *)c->first_action.data)[rank + 1]);
    return ((action *)c->actions.data)[first + step].round;
}

ddl_work ddl_checker_measured(const ddl_checker *c)
{
    ddl_work most = { 0, 0, 0, 0 };
    const action *actions = c->actions.data;
    const uint32_t *first = c->first_action.data;
    for (int rank = 0; rank < c->shape.nranks; rank++) {
        double messages[2] = { 0, 0 }, elements[2] = { 0, 0 }, reduced = 0; /* sent, received */
        for (uint32_t i = first[rank]; i < first[rank + 1]; i++) {
            const action *a = &actions[i];
            double n = elements_of(c, a);
            bool sends = a->kind == DDL_STEP_SEND;
            if (((uint32_t *)c->partners.data)[i] != NONE) {
                messages[sends ? 0 : 1]++;
                elements[sends ? 0 : 1] += n;
            }
            if (a->kind == DDL_STEP_RECV_REDUCE)
                reduced += n;
            if (a->kind == DDL_STEP_REDUCE)
                reduced += n * (a->noperands - 1);
            if (most.rounds < a->round)
                most.rounds = a->round;
        }
        for (int i = 0; i < 2; i++) {
            if (most.messages < messages[i])
                most.messages = messages[i];
            if (most.sent_bytes < elements[i] * (double)c->shape.element_bytes)
                most.sent_bytes = elements[i] * (double)c->shape.element_bytes;
        }
        if (most.reduced_bytes < reduced * (double)c->shape.element_bytes)
            most.reduced_bytes = reduced * (double)c->shape.element_bytes;
    }
    return most;
}

/* ---- all of it ---- */

/* Where schedules come from; `done` gives one back. */
typedef struct source {
    ddl_status (*get)(const struct source *source, const ddl_checker *c, int rank,
                      const ddl_schedule **schedule, ddl_error *err);
    void (*done)(const ddl_schedule *schedule);
    const ddl_algorithm *algorithm;
    const ddl_schedule *const *schedules;
} source;

static ddl_status load(ddl_checker *c, const source *from, ddl_error *err)
{
    c->nactions = c->nsuccessors = c->noperands = c->natoms = c->nsends = c->nrecvs = 0;
    ((uint32_t *)c->first_action.data)[0] = ((uint32_t *)c->first_atom.data)[0] = 0;
    for (int rank = 0; rank < c->shape.nranks; rank++) {
        const ddl_schedule *schedule = NULL;
        DDL_TRY(from->get(from, c, rank, &schedule, err));
        ddl_status status = load_rank(c, rank, schedule, err);
        from->done(schedule);
        DDL_TRY(status);
    }
    c->locals_proved = true;
    return DDL_OK;
}

static ddl_status prove(ddl_checker *c, const source *from, ddl_error *err)
{
    size_t nranks = (size_t)c->shape.nranks;
    c->failed = DDL_PROOF_NONE;
    c->locals_proved = false;
    c->nextra = 0;
    c->has_common = false;
    if (!reserve(&c->first_action, nranks + 1, sizeof(uint32_t)) ||
        !reserve(&c->first_atom, nranks + 1, sizeof(uint32_t)) ||
        !reserve(&c->first_extra, nranks, sizeof(uint32_t)) ||
        !reserve(&c->starts, nranks + 1, sizeof(uint32_t)))
        return no_memory(err);
    memset(c->first_extra.data, 0xff, nranks * sizeof(uint32_t));
    for (bool alike = false; !alike;) {
        alike = true;
        DDL_TRY(load(c, from, err));
        DDL_TRY(prove_channels(c, &alike, err));
        if (!alike && !c->has_common)
            DDL_TRY(share_cuts(c, err));
    }
    DDL_TRY(set_inputs(c, err));
    if (c->collective == DDL_COLLECTIVE_BARRIER)
        DDL_TRY(set_knowledge(c, err));
    DDL_TRY(execute(c, err));
    if (c->collective == DDL_COLLECTIVE_BARRIER)
        return prove_barrier(c, err);
    DDL_TRY(prove_values(c, err));
    if (c->collective == DDL_COLLECTIVE_ALLREDUCE && c->shape.count > 0)
        DDL_TRY(prove_bits(c, err));
    return DDL_OK;
}

static ddl_status build_rank(const source *from, const ddl_checker *c, int rank,
                             const ddl_schedule **schedule, ddl_error *err)
{
    ddl_shape own;
    ddl_collective role;
    if (!ddl_shape_of_rank(&c->shape, c->collective, rank, &own, &role))
        return DDL_OK;
    const ddl_algorithm *algorithm = from->algorithm;
    if (role != algorithm->collective) /* the other end of a message */
        algorithm = ddl_catalogue_find(role, algorithm->name);
    DDL_ASSERT(algorithm != NULL);
    ddl_schedule *built;
    DDL_TRY(algorithm->build(&own, &built, err));
    *schedule = built;
    return DDL_OK;
}

static void destroy_built(const ddl_schedule *schedule)
{
    ddl_schedule_destroy((ddl_schedule *)schedule);
}

static ddl_status given_rank(const source *from, const ddl_checker *c, int rank,
                             const ddl_schedule **schedule, ddl_error *err)
{
    (void)c;
    (void)err;
    *schedule = from->schedules[rank];
    return DDL_OK;
}

static void keep_given(const ddl_schedule *schedule)
{
    (void)schedule;
}

static void set_shape(ddl_checker *c, ddl_collective collective, const ddl_shape *shape)
{
    DDL_ASSERT(shape->nranks > 0);
    DDL_ASSERT(shape->stride >= shape->count);
    c->collective = collective;
    c->shape = *shape;
}

ddl_status ddl_check_algorithm(ddl_checker *c, const ddl_algorithm *algorithm, const ddl_shape *shape,
                               ddl_error *err)
{
    set_shape(c, algorithm->collective, shape);
    return prove(c, &(source){ build_rank, destroy_built, algorithm, NULL }, err);
}

ddl_status ddl_check_schedules(ddl_checker *c, ddl_collective collective, const ddl_shape *shape,
                               const ddl_schedule *const schedules[], ddl_error *err)
{
    set_shape(c, collective, shape);
    return prove(c, &(source){ given_rank, keep_given, NULL, schedules }, err);
}
