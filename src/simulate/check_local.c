/*
 * check_local.c - proofs about one rank's schedule alone: structure, bounds and overlap.
 *
 * Overlap: steps are taken in order, each against the last writer and the readers since of all atoms that
 * it touches; a path in the graph must lead from the earlier to the later one.
 */
#include "simulate/check_plan.h"

#include <string.h>

/* ---- structure and bounds ---- */

static const char *const buffer_names[] = { "IN", "OUT", "SCRATCH" };

static ddl_status prove_slice(ddl_checker *c, const ddl_schedule *s, const layout *l, uint32_t step,
                              const ddl_slice *slice, bool written, ddl_error *err)
{
    if (slice->bytes == 0)
        return DDL_OK;
    uint64_t first = elements_in(c, slice->offset), count = elements_in(c, slice->bytes);
    size_t unit = c->shape.element_bytes;
    if (first * unit != slice->offset || count * unit != slice->bytes)
        return FAILED(c, err, DDL_PROOF_BOUNDS,
                      "bounds: rank %d step %u: %s+%zu of %zu bytes splits an element", s->rank, step,
                      buffer_names[slice->buffer], slice->offset, slice->bytes);
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
                      step, ddl_checker_kind_name(s->steps[step].kind), written ? "writes" : "reads",
                      buffer_names[slice->buffer], slice->offset, slice->bytes, written ? "write" : "read");
    return DDL_OK;
}

static bool overlaps(const ddl_checker *c, const layout *l, const ddl_slice *x, const ddl_slice *y)
{
    uint64_t x_first = unit_of(c, l, x), y_first = unit_of(c, l, y);
    uint64_t x_end = x_first + elements_in(c, x->bytes), y_end = y_first + elements_in(c, y->bytes);
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
                      s->rank, index, ddl_checker_kind_name(step->kind));
    if (clash)
        return FAILED(c, err, DDL_PROOF_STRUCTURE, "structure: rank %d step %u (%s): slices overlap in part",
                      s->rank, index, ddl_checker_kind_name(step->kind));
    return DDL_OK;
}

/* The graph: successors are later steps, and their counts of predecessors are right. Lists predecessors. */
static ddl_status prove_graph(ddl_checker *c, const ddl_schedule *s, ddl_error *err)
{
    uint32_t edges = 0;
    if (!ddl_checker_reserve(&c->first_predecessor, (size_t)s->nsteps + 1, sizeof(uint32_t)) ||
        !ddl_checker_reserve(&c->stamps, s->nsteps, sizeof(uint32_t)) ||
        !ddl_checker_reserve(&c->searched, s->nsteps, sizeof(uint32_t)))
        return ddl_checker_no_memory(err);
    uint32_t *first = c->first_predecessor.data, *filled = c->stamps.data;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        first[i] = edges;
        filled[i] = 0;
        edges += s->steps[i].npredecessors;
    }
    first[s->nsteps] = edges;
    if (!ddl_checker_reserve(&c->predecessors, edges, sizeof(uint32_t)))
        return ddl_checker_no_memory(err);
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

ddl_status ddl_checker_prove_steps(ddl_checker *c, const ddl_schedule *s, const layout *l, ddl_error *err)
{
    for (uint32_t i = 0; i < s->nsteps; i++)
        DDL_TRY(prove_step(c, s, l, i, err));
    return prove_graph(c, s, err);
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
            if (!ddl_checker_reserve(&c->stack, depth + 1, sizeof(uint32_t))) {
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
    if (!ddl_checker_reserve(&c->reader_links, (size_t)o->nreaders + count, sizeof(reader_link))) {
        o->failed = true;
        return;
    }
    for (uint32_t a = first; a < first + count && !o->found && !o->failed; a++) {
        if (writers[a] != NONE && writers[a] != o->step && !ordered(c, writers[a], o->step, &o->failed)) {
            o->found = true;
            o->other = writers[a];
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
ddl_status ddl_checker_prove_overlap(ddl_checker *c, const ddl_schedule *s, const action *actions,
                                     uint32_t first_atom, uint32_t natoms, ddl_error *err)
{
    if (!ddl_checker_reserve(&c->writers, natoms, sizeof(uint32_t)) ||
        !ddl_checker_reserve(&c->readers, natoms, sizeof(uint32_t)))
        return ddl_checker_no_memory(err);
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
        return ddl_checker_no_memory(err);
    if (o.found)
        return FAILED(c, err, DDL_PROOF_OVERLAP,
                      "overlap: rank %d: steps %u (%s) and %u (%s) touch the same bytes and neither waits "
                      "for the other",
                      s->rank, o.other, ddl_checker_kind_name(s->steps[o.other].kind), o.step,
                      ddl_checker_kind_name(s->steps[o.step].kind));
    return DDL_OK;
}
