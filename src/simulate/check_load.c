/*
 * check_load.c - turns steps over slices into actions over atoms.
 *
 * Where a message, copy or reduction joins slices that are cut differently, the cuts of each are added to
 * the other and everything is loaded again, until they agree; from then on atoms correspond one to one.
 */
#include "simulate/check_plan.h"

#include <string.h>

static ddl_status add_extra_cut(ddl_checker *c, int rank, uint32_t position, ddl_error *err)
{
    if (!ddl_checker_reserve(&c->extra, (size_t)c->nextra + 1, sizeof(extra_cut)))
        return ddl_checker_no_memory(err);
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
    ddl_cuts_add(&c->cuts, first + (uint32_t)elements_in(c, slice->bytes));
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
        ddl_cuts_add(&c->cuts, base);
        ddl_cuts_add(&c->cuts, base + (uint32_t)extent(areas[i]));
        for (int j = 0; has_borders(c, areas[i], i == 1) && j < areas[i]->nblocks; j++) {
            ddl_cuts_add(&c->cuts, base + (uint32_t)block_start(areas[i], j));
            ddl_cuts_add(&c->cuts, base + (uint32_t)block_end(areas[i], j));
        }
    }
    for (int i = 0; i < 2 && c->has_common; i++)
        for (uint32_t j = 0; j < c->common[i].count && c->common[i].positions[j] <= extent(areas[i]); j++)
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
    return ddl_cuts_seal(&c->cuts) ? DDL_OK : ddl_checker_no_memory(err);
}

static atoms atoms_of(const ddl_checker *c, const layout *l, const ddl_slice *slice, uint32_t first_atom)
{
    if (slice->bytes == 0)
        return (atoms){ first_atom, 0 };
    uint32_t start = unit_of(c, l, slice);
    uint32_t first = ddl_cuts_index(&c->cuts, start);
    uint32_t end = ddl_cuts_index(&c->cuts, start + (uint32_t)elements_in(c, slice->bytes));
    return (atoms){ first_atom + first, end - first };
}

ddl_status ddl_checker_compare_cuts(ddl_checker *c, const side *x, const side *y, bool *alike, ddl_error *err)
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
            DDL_TRY(ddl_checker_compare_cuts(c, &source, &target, alike, err));
    }
    if (!ddl_checker_reserve(&c->operands, (size_t)c->noperands + step->noperands, sizeof(uint32_t)))
        return ddl_checker_no_memory(err);
    for (uint32_t i = 0; i < step->noperands; i++) {
        atoms operand = atoms_of(c, l, &s->operands[step->first_operand + i], first_atom);
        ((uint32_t *)c->operands.data)[c->noperands++] = operand.first;
        side from = { s->rank, { operand, { first_atom, 0 } } };
        if (!single_atoms(&from, &target))
            DDL_TRY(ddl_checker_compare_cuts(c, &from, &target, alike, err));
    }
    if (!ddl_checker_reserve(&c->successors, (size_t)c->nsuccessors + step->nsuccessors, sizeof(uint32_t)))
        return ddl_checker_no_memory(err);
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
    if (!ddl_checker_reserve(list, (size_t)*count + 1, sizeof(message)))
        return ddl_checker_no_memory(err);
    ((message *)list->data)[(*count)++] =
        (message){ sends ? s->rank : step->peer, sends ? step->peer : s->rank, step->number,
                   (uint32_t)elements_in(c, ddl_range_bytes(&step->target)), first_action + index };
    return DDL_OK;
}

ddl_status ddl_checker_load_rank(ddl_checker *c, int rank, const ddl_schedule *given, ddl_error *err)
{
    static const ddl_schedule idle = { .nranks = 1 };
    const ddl_schedule *s = given != NULL ? given : &idle;
    layout l = ddl_checker_layout(c, rank, s->scratch_bytes);
    if (l.end >= UINT32_MAX)
        return DDL_FAIL(err, DDL_EINVAL, "a shape of more than 2^32 elements per rank cannot be checked");
    if (given != NULL && (s->rank != rank || s->nranks != c->shape.nranks))
        return FAILED(c, err, DDL_PROOF_STRUCTURE, "structure: the schedule of rank %d says rank %d of %d",
                      rank, s->rank, s->nranks);
    if (!c->locals_proved)
        DDL_TRY(ddl_checker_prove_steps(c, s, &l, err));
    uint32_t first_action = c->nactions, first_atom = c->natoms;
    uint32_t noperands = c->noperands, nsuccessors = c->nsuccessors;
    size_t nactions = (size_t)c->nactions + s->nsteps;
    if (!ddl_checker_reserve(&c->actions, nactions, sizeof(action)) ||
        !ddl_checker_reserve(&c->states, nactions, sizeof(uint8_t)) ||
        !ddl_checker_reserve(&c->partners, nactions, sizeof(uint32_t)))
        return ddl_checker_no_memory(err);
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
        if (!ddl_checker_reserve(&c->positions, (size_t)first_atom + c->cuts.count, sizeof(uint32_t)))
            return ddl_checker_no_memory(err);
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
        DDL_TRY(ddl_checker_prove_overlap(c, s, (action *)c->actions.data + first_action, first_atom,
                                          c->cuts.count, err));
    for (uint32_t i = 0; i < s->nsteps; i++)
        if (is_message(&s->steps[i]))
            DDL_TRY(note_message(c, s, i, first_action, err));
    ((uint32_t *)c->first_action.data)[rank + 1] = c->nactions;
    ((uint32_t *)c->first_atom.data)[rank + 1] = c->natoms;
    return DDL_OK;
}

ddl_status ddl_checker_share_cuts(ddl_checker *c, ddl_error *err)
{
    const uint32_t *positions = c->positions.data, *first_atom = c->first_atom.data;
    for (int i = 0; i < 2; i++) {
        uint64_t most = 0;
        for (int rank = 0; rank < c->shape.nranks; rank++) {
            layout l = ddl_checker_layout(c, rank, 0);
            uint64_t elements = extent(i == 0 ? &l.in : &l.out);
            most = elements > most ? elements : most;
        }
        ddl_cuts_begin(&c->common[i], (uint32_t)most, c->natoms / (uint32_t)c->shape.nranks);
        for (int rank = 0; rank < c->shape.nranks; rank++) {
            layout l = ddl_checker_layout(c, rank, 0);
            uint64_t base = i == 0 ? l.in_base : l.out_base, elements = extent(i == 0 ? &l.in : &l.out);
            for (uint32_t a = first_atom[rank]; a < first_atom[rank + 1]; a++)
                if (base <= positions[a] && positions[a] <= base + elements)
                    ddl_cuts_add(&c->common[i], (uint32_t)(positions[a] - base));
        }
        if (!ddl_cuts_seal(&c->common[i]))
            return ddl_checker_no_memory(err);
    }
    c->has_common = true;
    return DDL_OK;
}
