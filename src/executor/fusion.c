/* fusion.c - compares what the steps of a schedule read and write. */
#include "executor/fusion.h"

#include "base/assert.h"

static bool same_slice(const ddl_slice *a, const ddl_slice *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->bytes == b->bytes;
}

static bool overlap(const ddl_slice *a, const ddl_slice *b)
{
    return a->buffer == b->buffer && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* ---- receives that are reduced as they come ---- */

static bool reads(const ddl_schedule *schedule, const ddl_step *step, const ddl_slice *slice)
{
    switch ((ddl_step_kind)step->kind) {
    case DDL_STEP_RECV:
        return false;
    case DDL_STEP_COPY:
        return overlap(&step->source, slice);
    case DDL_STEP_REDUCE:
        for (uint32_t i = 0; i < step->noperands; i++)
            if (overlap(&schedule->operands[step->first_operand + i], slice))
                return true;
        return false;
    case DDL_STEP_SEND:
    case DDL_STEP_RECV_REDUCE:
    case DDL_STEP_SCALE:
        break;
    }
    return overlap(&step->target.part[0], slice) || overlap(&step->target.part[1], slice);
}

/*
 * Fuse a receive with the step that combines what it brings with one other slice, if that is all that becomes
 * of it: what was received need not be where it was to land then. Having one successor does not say so, as
 * steps that follow from others are none.
 */
static void fuse_with_reduce(const ddl_schedule *schedule, const ddl_step *step, ddl_fusion *fusion)
{
    const ddl_slice *landing = &step->target.part[0];
    if (step->kind != DDL_STEP_RECV || step->target.part[1].bytes > 0 || step->nsuccessors != 1)
        return;
    const uint32_t next = schedule->successors[step->first_successor];
    const ddl_step *reduce = &schedule->steps[next];
    if (reduce->kind != DDL_STEP_REDUCE || reduce->noperands != 2)
        return;
    const ddl_slice *operands = &schedule->operands[reduce->first_operand];
    const bool is_first = same_slice(&operands[0], landing), is_second = same_slice(&operands[1], landing);
    if (is_first == is_second) /* it is no operand as a whole, or both */
        return;
    const bool is_target = same_slice(&reduce->target.part[0], landing);
    for (uint32_t i = 0; !is_target && i < schedule->nsteps; i++) /* else others read the result there */
        if (i != next && reads(schedule, &schedule->steps[i], landing))
            return;
    fusion->reduce = next;
    fusion->operand = is_first ? 0 : 1;
}

static void find_reduces(const ddl_schedule *schedule, uint32_t message_of[], ddl_fusion fusions[])
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++)
        message_of[i] = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        if (!ddl_step_is_message(&schedule->steps[i]))
            continue;
        ddl_fusion found = { DDL_NO_FUSION, 0, DDL_NO_FUSION, DDL_NO_FUSION };
        fusions[next] = found;
        fuse_with_reduce(schedule, &schedule->steps[i], &found);
        /* Of two messages that a reduce combines it is fused with the first. */
        if (found.reduce != DDL_NO_FUSION && fusions[message_of[found.reduce]].reduce != found.reduce) {
            fusions[next] = found;
            message_of[found.reduce] = next;
        }
        message_of[i] = next++;
    }
    DDL_ASSERT(next == schedule->nmessages);
}

/* ---- results that go back to whose other operand was ---- */

/* The same slice, of the memory that IN and OUT share, if they do. */
static ddl_slice in_memory(const ddl_schedule *schedule, ddl_slice slice)
{
    if (schedule->in_place && slice.buffer != DDL_BUFFER_SCRATCH) {
        slice.offset += slice.buffer == DDL_BUFFER_IN ? schedule->in_offset : schedule->out_offset;
        slice.buffer = DDL_BUFFER_IN;
    }
    return slice;
}

static bool meets(const ddl_schedule *schedule, const ddl_slice *a, const ddl_slice *b)
{
    ddl_slice first = in_memory(schedule, *a), second = in_memory(schedule, *b);
    return overlap(&first, &second);
}

static bool touches(const ddl_schedule *schedule, const ddl_step *step, const ddl_slice *slice)
{
    for (uint32_t i = 0; i < step->noperands; i++)
        if (meets(schedule, &schedule->operands[step->first_operand + i], slice))
            return true;
    return meets(schedule, &step->source, slice) || meets(schedule, &step->target.part[0], slice) ||
           meets(schedule, &step->target.part[1], slice);
}

/*
 * The step that answers a message, whose own step is first, and which is through with last: of this kind, of
 * this slice, and later, where no other step touches that slice. Steps are listed in an order in which they
 * could run.
 */
static uint32_t find_answer(const ddl_schedule *schedule, uint32_t first, uint32_t last, ddl_step_kind kind,
                            const ddl_slice *slice)
{
    const ddl_slice own = in_memory(schedule, *slice);
    uint32_t found = DDL_NO_FUSION;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const ddl_step *step = &schedule->steps[i];
        if (i == first || i == last || !touches(schedule, step, slice))
            continue;
        const ddl_slice there = in_memory(schedule, step->target.part[0]);
        const bool is_alone = found == DDL_NO_FUSION;
        const bool is_later = i > last;
        const bool is_of_slice = step->target.part[1].bytes == 0 && same_slice(&there, &own);
        if (step->kind != kind || !is_alone || !is_later || !is_of_slice)
            return DDL_NO_FUSION;
        found = i;
    }
    return found;
}

static void find_answers(const ddl_schedule *schedule, const uint32_t message_of[], ddl_fusion fusions[])
{
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        if (!ddl_step_is_message(&schedule->steps[i]))
            continue;
        ddl_fusion *fusion = &fusions[message_of[i]];
        const uint32_t last = fusion->reduce != DDL_NO_FUSION ? fusion->reduce : i;
        const ddl_step *end = &schedule->steps[last];
        if (end->kind == DDL_STEP_RECV || end->target.part[1].bytes > 0)
            continue; /* it is not combined, or lies in two parts */
        const bool is_send = end->kind == DDL_STEP_SEND;
        const uint32_t found =
            find_answer(schedule, i, last, is_send ? DDL_STEP_RECV : DDL_STEP_SEND, &end->target.part[0]);
        if (found == DDL_NO_FUSION)
            continue;
        fusion->answered_by = message_of[found];
        if (!is_send)
            fusions[message_of[found]].answers = message_of[i];
    }
}

void ddl_find_fusions(const ddl_schedule *schedule, uint32_t message_of[], ddl_fusion fusions[])
{
    find_reduces(schedule, message_of, fusions);
    if (schedule->nranks == 2) /* with more of them what is combined once is not the result */
        find_answers(schedule, message_of, fusions);
}
