/* builder.c - appends steps and hands what they touch to order.h. */
#include "schedule/builder.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/size.h"
#include "schedule/order.h"

#include <stddef.h>
#include <string.h>

enum { SCRATCH_ALIGNMENT = 64, MOST_ROUNDS = 9 };

struct kept { /* in front of what was asked for */
    struct kept *older;
    max_align_t memory[];
};

struct ddl_builder {
    ddl_group group;
    size_t element_bytes, scratch_bytes, largest_message;
    ddl_order *order;
    struct {
        int space;     /* of the order */
        size_t offset; /* where the buffer begins in it */
    } place[3];        /* of each ddl_buffer */
    ddl_step *steps;
    uint32_t nsteps, steps_capacity, nmessages;
    ddl_slice *operands;
    uint32_t noperands, operands_capacity;
    uint32_t *numbers;             /* next message to each rank, then from each rank */
    uint32_t fence_from, fence_to; /* sends wait for these steps */
    uint32_t rounds[MOST_ROUNDS];  /* the first steps of the latest rounds, the newest first */
    const int *members;            /* ranks that peers stand for; NULL: themselves */
    struct kept *kept;             /* memory for the algorithm, newest first */
    ddl_status status;             /* the first error */
};

ddl_status ddl_builder_create(const ddl_group *group, size_t element_bytes, ddl_builder **out, ddl_error *err)
{
    DDL_ASSERT(group->nranks > 0);
    DDL_ASSERT(0 <= group->rank);
    DDL_ASSERT(group->rank < group->nranks);
    DDL_ASSERT(element_bytes > 0);
    ddl_builder *b = ddl_alloc(sizeof *b);
    if (b == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a schedule");
    b->group = *group;
    b->element_bytes = element_bytes;
    b->order = ddl_order_create();
    b->numbers = ddl_alloc_array(2 * (size_t)group->nranks, sizeof *b->numbers);
    for (int i = 0; i < 3; i++)
        b->place[i].space = i;
    if (b->order == NULL || b->numbers == NULL)
        b->status = DDL_ENOMEM;
    *out = b;
    return DDL_OK;
}

void ddl_builder_alias(ddl_builder *b, size_t in_offset, size_t out_offset)
{
    DDL_ASSERT(b->nsteps == 0);
    b->place[DDL_BUFFER_OUT].space = b->place[DDL_BUFFER_IN].space;
    b->place[DDL_BUFFER_IN].offset = in_offset;
    b->place[DDL_BUFFER_OUT].offset = out_offset;
}

static void destroy(ddl_builder *b)
{
    for (struct kept *kept = b->kept, *older; kept != NULL; kept = older) {
        older = kept->older;
        ddl_free(kept);
    }
    ddl_order_destroy(b->order);
    ddl_free(b->numbers);
    ddl_free(b->steps);
    ddl_free(b->operands);
    ddl_free(b);
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Steps, successors and operands live in one piece of memory behind the schedule. */
static ddl_schedule *assemble(const ddl_builder *b)
{
    size_t edges = ddl_order_edges(b->order);
    size_t steps_at = aligned(sizeof(ddl_schedule));
    size_t operands_at = aligned(steps_at + b->nsteps * sizeof *b->steps);
    size_t successors_at = aligned(operands_at + b->noperands * sizeof *b->operands);
    char *memory = ddl_alloc(successors_at + edges * sizeof(uint32_t));
    if (memory == NULL)
        return NULL;
    ddl_schedule *schedule = (ddl_schedule *)(void *)memory;
    *schedule = (ddl_schedule){
        .rank = b->group.rank,
        .nranks = b->group.nranks,
        .element_bytes = b->element_bytes,
        .scratch_bytes = b->scratch_bytes,
        .largest_message = b->largest_message,
        .in_place = b->place[DDL_BUFFER_OUT].space == b->place[DDL_BUFFER_IN].space,
        .in_offset = b->place[DDL_BUFFER_IN].offset,
        .out_offset = b->place[DDL_BUFFER_OUT].offset,
        .nsteps = b->nsteps,
        .nmessages = b->nmessages,
        .steps = (ddl_step *)(void *)(memory + steps_at),
        .operands = (ddl_slice *)(void *)(memory + operands_at),
        .successors = (uint32_t *)(void *)(memory + successors_at),
    };
    if (b->nsteps > 0)
        memcpy(schedule->steps, b->steps, b->nsteps * sizeof *b->steps);
    if (b->noperands > 0)
        memcpy(schedule->operands, b->operands, b->noperands * sizeof *b->operands);

    /* Turn predecessors into successors: count, lay out, fill. */
    ddl_step *steps = schedule->steps;
    for (uint32_t i = 0; i < b->nsteps; i++) {
        const uint32_t *before = ddl_order_predecessors(b->order, i, &steps[i].npredecessors);
        for (uint32_t j = 0; j < steps[i].npredecessors; j++)
            steps[before[j]].nsuccessors++;
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < b->nsteps; i++) {
        steps[i].first_successor = next;
        next += steps[i].nsuccessors;
        steps[i].nsuccessors = 0;
    }
    for (uint32_t i = 0; i < b->nsteps; i++) {
        uint32_t count;
        const uint32_t *before = ddl_order_predecessors(b->order, i, &count);
        for (uint32_t j = 0; j < count; j++) {
            ddl_step *step = &steps[before[j]];
            schedule->successors[step->first_successor + step->nsuccessors++] = i;
        }
    }
    return schedule;
}

ddl_status ddl_builder_finish(ddl_builder *b, ddl_schedule **out, ddl_error *err)
{
    if (b->status == DDL_OK && ddl_order_failed(b->order))
        b->status = DDL_ENOMEM;
    ddl_schedule *schedule = b->status == DDL_OK ? assemble(b) : NULL;
    ddl_status status = b->status == DDL_OK && schedule == NULL ? DDL_ENOMEM : b->status;
    destroy(b);
    if (status == DDL_EINVAL)
        return DDL_FAIL(err, status, "the scratch memory of this operation would overflow size_t");
    if (status != DDL_OK)
        return DDL_FAIL(err, status, "no memory for a schedule");
    *out = schedule;
    return DDL_OK;
}

ddl_slice ddl_scratch(ddl_builder *b, size_t bytes)
{
    ddl_slice slice = ddl_slice_of(DDL_BUFFER_SCRATCH, b->scratch_bytes, bytes);
    size_t end;
    if (!ddl_size_add(b->scratch_bytes, bytes, &end) || end > SIZE_MAX - SCRATCH_ALIGNMENT) {
        if (b->status == DDL_OK)
            b->status = DDL_EINVAL;
        slice.bytes = 0;
        return slice;
    }
    b->scratch_bytes = aligned(end);
    return slice;
}

void *ddl_builder_alloc(ddl_builder *b, size_t count, size_t element_bytes)
{
    size_t bytes;
    struct kept *kept = NULL;
    if (ddl_size_mul(count, element_bytes, &bytes) && ddl_size_add(bytes, sizeof *kept, &bytes))
        kept = ddl_alloc(bytes);
    if (kept == NULL) {
        if (b->status == DDL_OK)
            b->status = DDL_ENOMEM;
        return NULL;
    }
    kept->older = b->kept;
    b->kept = kept;
    return kept->memory;
}

void ddl_builder_members(ddl_builder *b, const int ranks[])
{
    b->members = ranks;
}

static void read_slice(ddl_builder *b, const ddl_slice *slice)
{
    ddl_order_read(b->order, b->place[slice->buffer].space, b->place[slice->buffer].offset + slice->offset,
                   slice->bytes);
}

static void write_slice(ddl_builder *b, const ddl_slice *slice)
{
    ddl_order_write(b->order, b->place[slice->buffer].space, b->place[slice->buffer].offset + slice->offset,
                    slice->bytes);
}

static bool busy_slice(const ddl_builder *b, const ddl_slice *slice)
{
    return ddl_order_busy(b->order, b->place[slice->buffer].space,
                          b->place[slice->buffer].offset + slice->offset, slice->bytes);
}

/* Whether both slices begin at the same byte of the same memory. */
static bool same_place(const ddl_builder *b, const ddl_slice *x, const ddl_slice *y)
{
    return b->place[x->buffer].space == b->place[y->buffer].space &&
           b->place[x->buffer].offset + x->offset == b->place[y->buffer].offset + y->offset;
}

static bool same_range(const ddl_builder *b, const ddl_range *x, const ddl_range *y)
{
    return same_place(b, &x->part[0], &y->part[0]) &&
           (x->part[1].bytes == 0 || same_place(b, &x->part[1], &y->part[1]));
}

/* A new step, declared to the order; NULL after an error. */
static ddl_step *begin(ddl_builder *b, ddl_step_kind kind)
{
    if (b->status == DDL_OK && ddl_order_failed(b->order))
        b->status = DDL_ENOMEM;
    if (b->status != DDL_OK)
        return NULL;
    if (b->nsteps == b->steps_capacity) {
        uint32_t more = b->steps_capacity == 0 ? 8 : 2 * b->steps_capacity;
        ddl_step *grown = ddl_alloc_array(more, sizeof *grown);
        if (grown == NULL) {
            b->status = DDL_ENOMEM;
            return NULL;
        }
        if (b->nsteps > 0)
            memcpy(grown, b->steps, b->nsteps * sizeof *grown);
        ddl_free(b->steps);
        b->steps = grown;
        b->steps_capacity = more;
    }
    ddl_order_begin(b->order);
    ddl_step *step = &b->steps[b->nsteps++];
    step->kind = (uint8_t)kind;
    step->peer = -1;
    return step;
}

/* The first part is empty only if the second one is. */
static ddl_range tidied(ddl_range range)
{
    return range.part[0].bytes > 0 ? range : ddl_range_of(range.part[1]);
}

static ddl_step *begin_message(ddl_builder *b, ddl_step_kind kind, int peer, ddl_range target)
{
    DDL_ASSERT(0 <= peer);
    if (b->members != NULL)
        peer = b->members[peer];
    DDL_ASSERT(peer < b->group.nranks);
    DDL_ASSERT(peer != b->group.rank);
    ddl_step *step = begin(b, kind);
    if (step == NULL)
        return NULL;
    step->peer = peer;
    step->target = target;
    step->number = b->numbers[kind == DDL_STEP_SEND ? peer : b->group.nranks + peer]++;
    b->nmessages++;
    b->largest_message = ddl_size_max(b->largest_message, ddl_range_bytes(&target));
    return step;
}

void ddl_step_send_range(ddl_builder *b, int peer, ddl_range source)
{
    source = tidied(source);
    if (source.part[0].bytes == 0)
        return;
    ddl_step *step = begin_message(b, DDL_STEP_SEND, peer, source);
    if (step == NULL)
        return;
    read_slice(b, &source.part[0]);
    read_slice(b, &source.part[1]);
    for (uint32_t i = b->fence_from; i < b->fence_to; i++)
        ddl_order_after(b->order, i);
    ddl_order_end(b->order);
}

void ddl_step_recv_range(ddl_builder *b, int peer, ddl_range target)
{
    target = tidied(target);
    if (target.part[0].bytes == 0)
        return;
    ddl_step *step = begin_message(b, DDL_STEP_RECV, peer, target);
    if (step == NULL)
        return;
    write_slice(b, &target.part[0]);
    write_slice(b, &target.part[1]);
    ddl_order_end(b->order);
}

/* target = incoming op target, in one step, as nothing has to wait. */
static void recv_reduce_at_once(ddl_builder *b, int peer, const ddl_range *target, ddl_operand_order order)
{
    ddl_slice landing = ddl_scratch(b, ddl_range_bytes(target));
    ddl_step *step = begin_message(b, DDL_STEP_RECV_REDUCE, peer, *target);
    if (step == NULL)
        return;
    step->source = landing;
    step->incoming_first = order == DDL_INCOMING_FIRST;
    write_slice(b, &landing);
    for (int i = 0; i < 2; i++) {
        read_slice(b, &target->part[i]);
        write_slice(b, &target->part[i]);
    }
    ddl_order_end(b->order);
}

void ddl_step_recv_reduce_range(ddl_builder *b, int peer, ddl_range target, ddl_range own,
                                ddl_operand_order order)
{
    size_t bytes = ddl_range_bytes(&target);
    if (bytes == 0 || b->status != DDL_OK)
        return;
    DDL_ASSERT(target.part[0].bytes == own.part[0].bytes);
    DDL_ASSERT(target.part[1].bytes == own.part[1].bytes);
    target = tidied(target);
    own = tidied(own);
    bool in_place = same_range(b, &target, &own);
    bool busy = busy_slice(b, &target.part[0]) || busy_slice(b, &target.part[1]);
    if (in_place && !busy) {
        recv_reduce_at_once(b, peer, &target, order);
        return;
    }
    ddl_range incoming = target;
    if (in_place || busy)
        incoming = ddl_range_of(ddl_scratch(b, bytes));
    ddl_step_recv_range(b, peer, incoming);
    size_t done = 0;
    for (int i = 0; i < 2; i++) {
        ddl_slice arrived = target.part[i];
        if (in_place || busy)
            arrived = ddl_slice_of(DDL_BUFFER_SCRATCH, incoming.part[0].offset + done, target.part[i].bytes);
        bool incoming_first = order == DDL_INCOMING_FIRST;
        ddl_step_reduce(
            b, target.part[i],
            (ddl_slice[2]){ incoming_first ? arrived : own.part[i], incoming_first ? own.part[i] : arrived },
            2);
        done += target.part[i].bytes;
    }
}

void ddl_step_send(ddl_builder *b, int peer, ddl_slice source)
{
    ddl_step_send_range(b, peer, ddl_range_of(source));
}

void ddl_step_recv(ddl_builder *b, int peer, ddl_slice target)
{
    ddl_step_recv_range(b, peer, ddl_range_of(target));
}

void ddl_step_recv_reduce(ddl_builder *b, int peer, ddl_slice target, ddl_slice own, ddl_operand_order order)
{
    ddl_step_recv_reduce_range(b, peer, ddl_range_of(target), ddl_range_of(own), order);
}

/* Of the reduction that was begun last. */
static bool add_operand(ddl_builder *b, const ddl_slice *operand)
{
    if (b->noperands == b->operands_capacity) {
        uint32_t more = b->operands_capacity == 0 ? 16 : 2 * b->operands_capacity;
        ddl_slice *grown = ddl_alloc_array(more, sizeof *grown);
        if (grown == NULL) {
            b->status = DDL_ENOMEM;
            return false;
        }
        if (b->noperands > 0)
            memcpy(grown, b->operands, b->noperands * sizeof *grown);
        ddl_free(b->operands);
        b->operands = grown;
        b->operands_capacity = more;
    }
    b->operands[b->noperands++] = *operand;
    read_slice(b, operand);
    return true;
}

/* Begin a reduction; false if there is nothing to do or no memory. */
static bool begin_reduce(ddl_builder *b, ddl_slice target, int noperands)
{
    DDL_ASSERT(noperands >= 2);
    ddl_step *step = target.bytes > 0 ? begin(b, DDL_STEP_REDUCE) : NULL;
    if (step == NULL)
        return false;
    step->target = ddl_range_of(target);
    step->first_operand = b->noperands;
    step->noperands = (uint32_t)noperands;
    return true;
}

static void end_reduce(ddl_builder *b, ddl_slice target)
{
    write_slice(b, &target);
    ddl_order_end(b->order);
}

void ddl_step_reduce(ddl_builder *b, ddl_slice target, const ddl_slice operands[], int noperands)
{
    if (!begin_reduce(b, target, noperands))
        return;
    for (int i = 0; i < noperands; i++) {
        DDL_ASSERT(operands[i].bytes == target.bytes);
        if (!add_operand(b, &operands[i]))
            return;
    }
    end_reduce(b, target);
}

void ddl_step_reduce_blocks(ddl_builder *b, ddl_slice target, const ddl_blocks *operands, int own_index,
                            ddl_slice own)
{
    if (!begin_reduce(b, target, operands->nblocks))
        return;
    for (int i = 0; i < operands->nblocks; i++) {
        ddl_slice operand = i == own_index ? own : ddl_block(operands, i);
        DDL_ASSERT(operand.bytes == target.bytes);
        if (!add_operand(b, &operand))
            return;
    }
    end_reduce(b, target);
}

void ddl_step_copy(ddl_builder *b, ddl_slice target, ddl_slice source)
{
    if (b->status != DDL_OK)
        return;
    DDL_ASSERT(target.bytes == source.bytes);
    if (target.bytes == 0 || same_place(b, &target, &source))
        return;
    ddl_step *step = begin(b, DDL_STEP_COPY);
    if (step == NULL)
        return;
    step->target = ddl_range_of(target);
    step->source = source;
    read_slice(b, &source);
    write_slice(b, &target);
    ddl_order_end(b->order);
}

void ddl_step_scale(ddl_builder *b, ddl_slice target)
{
    if (target.bytes == 0)
        return;
    ddl_step *step = begin(b, DDL_STEP_SCALE);
    if (step == NULL)
        return;
    step->target = ddl_range_of(target);
    read_slice(b, &target);
    write_slice(b, &target);
    ddl_order_end(b->order);
}

void ddl_builder_fence(ddl_builder *b)
{
    ddl_builder_round(b, 1);
}

void ddl_builder_round(ddl_builder *b, int window)
{
    DDL_ASSERT(1 <= window);
    DDL_ASSERT(window < MOST_ROUNDS);
    if (b->nsteps == b->rounds[0])
        return; /* nothing was added, so the last round goes on */
    memmove(b->rounds + 1, b->rounds, (MOST_ROUNDS - 1) * sizeof b->rounds[0]);
    b->rounds[0] = b->nsteps;
    b->fence_from = b->rounds[window];
    b->fence_to = b->rounds[window - 1];
}
