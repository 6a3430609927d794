/*
 * check_run.c - executes all ranks at once, without any buffering: a message happens when both its send and
 * its receive have started.
 *
 * An atom holds two hashes: its value (fingerprint.h), and its expression, which says what ranks' operands
 * were combined in which order, without the position.
 */
#include "simulate/check_plan.h"

#include "base/assert.h"
#include "simulate/fingerprint.h"

#include <string.h>

/* What atoms hold before the operation: inputs, and elsewhere something that is like nothing else. */
static ddl_status set_inputs(ddl_checker *c, ddl_error *err)
{
    if (!ddl_checker_reserve(&c->values, c->natoms, sizeof(atom_value)))
        return ddl_checker_no_memory(err);
    atom_value *values = c->values.data;
    const uint32_t *positions = c->positions.data, *first_atom = c->first_atom.data;
    for (int rank = 0; rank < c->shape.nranks; rank++) {
        layout l = ddl_checker_layout(c, rank, 0);
        bool broadcasts = c->collective == DDL_COLLECTIVE_BROADCAST && rank == c->shape.root;
        uint64_t begin = broadcasts ? l.out_base : l.in_base;
        uint64_t end = begin + extent(broadcasts ? &l.out : &l.in);
        uint64_t A = ddl_fingerprint_rank(rank), expression = ddl_fingerprint_mix((uint64_t)rank);
        for (uint32_t i = first_atom[rank]; i < first_atom[rank + 1]; i++) {
            if (begin <= positions[i] && positions[i] < end)
                values[i] = (atom_value){ A * ddl_fingerprint_position(positions[i] - begin), expression };
            else
                values[i] = (atom_value){ UINT64_C(0xdeadbeef) * (i + 1) ^ UINT64_C(0x6a09e667f3bcc908),
                                          ~(uint64_t)i };
        }
    }
    return DDL_OK;
}

static uint64_t expression_of(uint64_t so_far, uint64_t operand)
{
    return ((so_far << 23 | so_far >> 41) ^ operand) * UINT64_C(0x9fb21c651e98df25);
}

static atom_value combined(atom_value x, atom_value y)
{
    uint64_t expression = expression_of(expression_of(2, x.expression), y.expression);
    return (atom_value){ x.sum + y.sum, ddl_fingerprint_mix(expression) };
}

static void reduce_atoms(ddl_checker *c, const action *a)
{
    atom_value *values = c->values.data;
    const uint32_t *operands = (uint32_t *)c->operands.data + a->first_operand;
    for (uint32_t i = 0; i < a->target[0].count; i++) {
        atom_value result = { 0, a->noperands };
        for (uint32_t j = 0; j < a->noperands; j++) {
            const atom_value *operand = &values[operands[j] + i];
            result.sum += operand->sum;
            result.expression = expression_of(result.expression, operand->expression);
        }
        result.expression = ddl_fingerprint_mix(result.expression);
        values[a->target[0].first + i] = result;
    }
}

static void copy_atoms(ddl_checker *c, const action *send, const action *recv)
{
    atom_value *values = c->values.data;
    bool reducing = recv->kind == DDL_STEP_RECV_REDUCE;
    atoms from[2] = { send->target[0], send->target[1] }, to[2] = { recv->target[0], recv->target[1] };
    uint32_t landing = recv->source;
    int f = 0, t = 0;
    for (;;) {
        if (from[f].count == 0 && (f == 1 || from[++f].count == 0))
            return;
        if (to[t].count == 0)
            t = 1;
        const atom_value incoming = values[from[f].first];
        atom_value *target = &values[to[t].first];
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
    atom_value *values = c->values.data;
    if (a->kind == DDL_STEP_REDUCE) {
        reduce_atoms(c, a);
        return;
    }
    for (uint32_t i = 0; i < a->target[0].count; i++) {
        atom_value *target = &values[a->target[0].first + i];
        if (a->kind == DDL_STEP_COPY)
            *target = values[a->source + i];
        else
            *target = (atom_value){ ddl_fingerprint_scaled(target->sum),
                                    ddl_fingerprint_scaled(target->expression) };
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
    if (!ddl_checker_reserve(&c->known, c->nactions * nwords, sizeof(uint64_t)))
        return ddl_checker_no_memory(err);
    if (c->nactions > 0)
        memset(c->known.data, 0, c->nactions * nwords * sizeof(uint64_t));
    for (uint32_t i = 0; i < c->nactions; i++) {
        int rank = ddl_checker_rank_of(c, i);
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
        int rank = ddl_checker_rank_of(c, i), peer = ddl_checker_rank_of(c, partner);
        return FAILED(c, err, DDL_PROOF_PROGRESS,
                      "progress: rank %d waits for ever in step %u (%s, peer %d): the peer's step %u waits "
                      "for steps that never end",
                      rank, i - ((uint32_t *)c->first_action.data)[rank], ddl_checker_kind_name(a->kind),
                      peer, partner - ((uint32_t *)c->first_action.data)[peer]);
    }
    DDL_ASSERT(false); /* a step waits only for earlier ones, so the first that is not done was started */
    return DDL_EINTERNAL;
}

bool ddl_checker_heard(const ddl_checker *c, int rank, int other)
{
    const uint32_t *first = c->first_action.data;
    for (uint32_t i = first[rank]; i < first[rank + 1]; i++)
        if ((known_to(c, i)[other / 64] >> other % 64 & 1) != 0)
            return true;
    return false;
}

ddl_status ddl_checker_execute(ddl_checker *c, ddl_error *err)
{
    DDL_TRY(set_inputs(c, err));
    if (c->collective == DDL_COLLECTIVE_BARRIER)
        DDL_TRY(set_knowledge(c, err));
    if (!ddl_checker_reserve(&c->stack, c->nactions, sizeof(uint32_t)))
        return ddl_checker_no_memory(err);
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
