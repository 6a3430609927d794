/*
 * executor.c - walks a schedule: starts each step once all its predecessors are done.
 *
 * Every step enters the queue of ready steps exactly once, so the queue is an array as long as the
 * schedule, with a head and a tail. Local steps finish on the spot; messages finish on the spot or later,
 * by the transport's done callback.
 */
#include "executor/executor.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/size.h"
#include "executor/fusion.h"

#include <string.h>

typedef struct message {
    ddl_xfer xfer;
    ddl_run *run;
    uint32_t step;
    ddl_fusion fusion;
    bool posted;  /* the transport knows it */
    bool reduced; /* the reduce that it is fused with is done */
} message;

struct ddl_run {
    const ddl_schedule *schedule;
    ddl_binding binding;
    uint32_t *waiting; /* of each step: predecessors that are not done */
    uint32_t *ready;   /* steps in the order in which they became ready */
    uint32_t ready_head, ready_tail;
    uint32_t remaining;   /* steps not done; 0 when idle */
    uint32_t *message_of; /* of each step: see ddl_find_fusions */
    message *messages;
    const void **operands; /* room for the widest reduce */
};

static void message_done(ddl_xfer *xfer);

static uint32_t widest_reduce(const ddl_schedule *schedule)
{
    uint32_t widest = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++)
        if (schedule->steps[i].noperands > widest)
            widest = schedule->steps[i].noperands;
    return widest;
}

static void init_messages(ddl_run *run, const ddl_fusion fusions[])
{
    for (uint32_t i = 0; i < run->schedule->nsteps; i++) {
        const ddl_step *step = &run->schedule->steps[i];
        if (!ddl_step_is_message(step))
            continue;
        message *m = &run->messages[run->message_of[i]];
        m->run = run;
        m->step = i;
        m->fusion = fusions[run->message_of[i]];
        m->xfer.bytes = ddl_range_bytes(&step->target);
        m->xfer.done = message_done;
        m->xfer.unit_bytes = (uint8_t)run->schedule->element_bytes;
    }
}

/* What a run needs of each step and message lies behind it, in one piece of memory. */
ddl_status ddl_run_create(const ddl_schedule *schedule, ddl_run **out, ddl_error *err)
{
    const size_t nsteps = schedule->nsteps, nmessages = schedule->nmessages;
    const size_t messages_bytes = nmessages * sizeof(message);
    const size_t operands_bytes = widest_reduce(schedule) * sizeof(void *);
    ddl_run *run = ddl_alloc(sizeof *run + messages_bytes + operands_bytes + 3 * nsteps * sizeof(uint32_t));
    ddl_fusion *fusions = ddl_alloc_array(nmessages, sizeof *fusions);
    if (run == NULL || fusions == NULL) {
        ddl_free(fusions);
        ddl_free(run);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a run of %u steps", (unsigned)schedule->nsteps);
    }
    run->schedule = schedule;
    run->messages = (message *)(void *)(run + 1);
    run->operands = (const void **)(void *)((char *)run->messages + messages_bytes);
    run->waiting = (uint32_t *)(void *)((char *)run->operands + operands_bytes);
    run->ready = run->waiting + nsteps;
    run->message_of = run->ready + nsteps;
    ddl_find_fusions(schedule, run->message_of, fusions);
    init_messages(run, fusions);
    ddl_free(fusions);
    *out = run;
    return DDL_OK;
}

static void *place(const ddl_run *run, const ddl_slice *slice)
{
    switch (slice->buffer) {
    case DDL_BUFFER_IN:
        return (char *)run->binding.in + slice->offset;
    case DDL_BUFFER_OUT:
        return (char *)run->binding.out + slice->offset;
    case DDL_BUFFER_SCRATCH:
        break;
    }
    return (char *)run->binding.scratch + slice->offset;
}

static void step_done(ddl_run *run, uint32_t index)
{
    const ddl_step *step = &run->schedule->steps[index];
    for (uint32_t i = 0; i < step->nsuccessors; i++) {
        uint32_t successor = run->schedule->successors[step->first_successor + i];
        if (--run->waiting[successor] == 0)
            run->ready[run->ready_tail++] = successor;
    }
    run->remaining--;
}

/* Whether nobody looks soon at what a reduce leaves in OUT: no other step, and it is where no operand is. */
static bool reduces_past_caches(const ddl_run *run, const ddl_step *step, const void *target,
                                const void *const operands[])
{
    if (!run->binding.past_caches || step->nsuccessors > 0 || step->target.part[0].buffer != DDL_BUFFER_OUT)
        return false;
    for (uint32_t i = 0; i < step->noperands; i++)
        if (operands[i] == target)
            return false;
    return true;
}

/* Combine two operands; also: where the result is wanted a second time, or NULL. */
static void combine(const ddl_run *run, void *target, void *also, const void *const operands[2], size_t bytes,
                    bool past_caches)
{
    ddl_compute *compute = run->binding.compute;
    const size_t count = bytes / run->schedule->element_bytes;
    if (past_caches && also == NULL)
        compute->ops->reduce_past(compute, target, operands, 2, count, run->binding.dtype, run->binding.op);
    else if (also != NULL)
        compute->ops->reduce_twice(compute, target, also, operands, count, run->binding.dtype,
                                   run->binding.op);
    else
        compute->ops->reduce(compute, target, operands, 2, count, run->binding.dtype, run->binding.op);
}

/* target = target op incoming, or incoming op target, of bytes that came for a recv_reduce from offset on.
 * also: only for a target in one part. */
static void reduce_incoming(const ddl_run *run, const ddl_step *step, size_t offset, const char *incoming,
                            char *also, size_t bytes)
{
    for (int i = 0; i < 2 && bytes > 0; i++) {
        const ddl_slice *part = &step->target.part[i];
        if (offset >= part->bytes) {
            offset -= part->bytes;
            continue;
        }
        size_t here = ddl_size_min(bytes, part->bytes - offset);
        void *target = (char *)place(run, part) + offset;
        const void *operands[2] = { step->incoming_first ? incoming : target,
                                    step->incoming_first ? target : incoming };
        combine(run, target, also, operands, here, false); /* which is an operand */
        incoming += here;
        bytes -= here;
        offset = 0;
    }
}

/* The same of a reduce that a receive is fused with. */
static void reduce_fused(const ddl_run *run, const message *m, size_t offset, const char *incoming,
                         char *also, size_t bytes)
{
    const ddl_step *reduce = &run->schedule->steps[m->fusion.reduce];
    const ddl_slice *slices = &run->schedule->operands[reduce->first_operand];
    const uint32_t received = m->fusion.operand, other = 1 - received;
    const void *operands[2];
    operands[received] = incoming;
    operands[other] = (char *)place(run, &slices[other]) + offset;
    void *target = (char *)place(run, &reduce->target.part[0]) + offset;
    combine(run, target, also, operands, bytes, reduces_past_caches(run, reduce, target, operands));
}

static void work_on_incoming(const ddl_xfer *xfer, size_t offset, const void *incoming, void *also,
                             size_t bytes)
{
    const message *m = DDL_CONTAINER(xfer, message, xfer);
    const ddl_step *step = &m->run->schedule->steps[m->step];
    if (step->kind == DDL_STEP_RECV_REDUCE)
        reduce_incoming(m->run, step, offset, incoming, also, bytes);
    else
        reduce_fused(m->run, m, offset, incoming, also, bytes);
}

static void take_incoming(ddl_xfer *xfer, size_t offset, const void *bytes, size_t count)
{
    work_on_incoming(xfer, offset, bytes, NULL, count);
}

static void give_incoming(ddl_xfer *xfer, size_t offset, const void *bytes, void *to, size_t count)
{
    work_on_incoming(xfer, offset, bytes, to, count);
}

/* A message has come: what was not taken on the way is still to be reduced. */
static void arrived(message *m)
{
    ddl_run *run = m->run;
    const ddl_step *step = &run->schedule->steps[m->step];
    DDL_ASSERT(m->xfer.taken == 0 || m->xfer.taken == m->xfer.bytes);
    m->reduced = m->fusion.reduce != DDL_NO_FUSION && m->xfer.taken > 0;
    if (step->kind == DDL_STEP_RECV_REDUCE && m->xfer.taken == 0)
        reduce_incoming(run, step, 0, place(run, &step->source), NULL, step->source.bytes);
}

static void reduce_operands(ddl_run *run, const ddl_step *step)
{
    const ddl_slice *slices = &run->schedule->operands[step->first_operand];
    const void **operands = run->operands;
    for (uint32_t i = 0; i < step->noperands; i++)
        operands[i] = place(run, &slices[i]);
    ddl_compute *compute = run->binding.compute;
    void *target = place(run, &step->target.part[0]);
    const size_t count = step->target.part[0].bytes / run->schedule->element_bytes;
    if (reduces_past_caches(run, step, target, operands))
        compute->ops->reduce_past(compute, target, operands, (int)step->noperands, count, run->binding.dtype,
                                  run->binding.op);
    else
        compute->ops->reduce(compute, target, operands, (int)step->noperands, count, run->binding.dtype,
                             run->binding.op);
}

/* What a step writes to OUT that no other step looks at; of what is sent, the receiver knows that. */
static bool goes_past_caches(const ddl_run *run, const ddl_step *step)
{
    bool is_alone = step->npredecessors == 0 && step->nsuccessors == 0;
    return run->binding.past_caches &&
           (step->kind == DDL_STEP_SEND || (is_alone && step->target.part[0].buffer == DDL_BUFFER_OUT));
}

/* True if it finished at once. */
static bool start_message(ddl_run *run, const ddl_step *step, uint32_t index)
{
    message *m = &run->messages[run->message_of[index]];
    ddl_xfer *xfer = &m->xfer;
    xfer->key = run->binding.key;
    xfer->key.number = step->number;
    xfer->peer = run->binding.peers != NULL ? run->binding.peers[step->peer] : step->peer;
    const ddl_signature *of_pair =
        step->kind == DDL_STEP_SEND ? run->binding.sent_signatures : run->binding.received_signatures;
    xfer->signature = of_pair != NULL ? &of_pair[step->peer] : run->binding.signature;
    xfer->moved = xfer->taken = xfer->hole_at = xfer->hole_bytes = 0;
    xfer->pulls = step->kind == DDL_STEP_SEND ? run->binding.lends : run->binding.pulls;
    m->reduced = false;
    /* Nothing but this message keeps the reduce from running: so it may run as the bytes come. */
    bool may_take = step->kind == DDL_STEP_RECV_REDUCE ||
                    (m->fusion.reduce != DDL_NO_FUSION && run->waiting[m->fusion.reduce] == 1);
    xfer->take = may_take ? take_incoming : NULL;
    xfer->give = may_take && m->fusion.answered_by != DDL_NO_FUSION ? give_incoming : NULL;
    xfer->past_caches = goes_past_caches(run, step) || (xfer->give != NULL && run->binding.past_caches);
    xfer->answer_plus_1 = m->fusion.answered_by == DDL_NO_FUSION
                              ? 0
                              : run->schedule->steps[run->messages[m->fusion.answered_by].step].number + 1;
    xfer->gives_back = xfer->has_given = false;
    xfer->is_given = m->fusion.answers != DDL_NO_FUSION && run->messages[m->fusion.answers].xfer.has_given;
    if (step->kind == DDL_STEP_RECV_REDUCE) {
        xfer->part[0] = (ddl_part){ place(run, &step->source), step->source.bytes };
        xfer->part[1] = (ddl_part){ NULL, 0 };
    } else {
        for (int i = 0; i < 2; i++)
            xfer->part[i] =
                (ddl_part){ step->target.part[i].bytes > 0 ? place(run, &step->target.part[i]) : NULL,
                            step->target.part[i].bytes };
    }
    ddl_transport *transport = run->binding.transport;
    m->posted = true;
    bool finished = step->kind == DDL_STEP_SEND ? transport->ops->send(transport, xfer)
                                                : transport->ops->recv(transport, xfer);
    if (!finished)
        return false;
    m->posted = false;
    arrived(m);
    return true;
}

/* Whether this reduce was done while its operand came. */
static bool is_reduced(const ddl_run *run, uint32_t index)
{
    const message *m = run->schedule->nmessages > 0 ? &run->messages[run->message_of[index]] : NULL;
    return m != NULL && m->fusion.reduce == index && m->reduced;
}

/* True if it finished at once, as everything but messages does. */
static bool start_step(ddl_run *run, uint32_t index)
{
    const ddl_step *step = &run->schedule->steps[index];
    ddl_compute *compute = run->binding.compute;
    const ddl_slice *target = &step->target.part[0];
    switch ((ddl_step_kind)step->kind) {
    case DDL_STEP_SEND:
    case DDL_STEP_RECV:
    case DDL_STEP_RECV_REDUCE:
        return start_message(run, step, index);
    case DDL_STEP_REDUCE:
        if (!is_reduced(run, index))
            reduce_operands(run, step);
        break;
    case DDL_STEP_COPY:
        compute->ops->copy(compute, place(run, target), place(run, &step->source), target->bytes,
                           goes_past_caches(run, step));
        break;
    case DDL_STEP_SCALE:
        compute->ops->scale(compute, place(run, target), target->bytes / run->schedule->element_bytes,
                            run->binding.dtype, run->schedule->nranks);
        break;
    }
    return true;
}

static void advance(ddl_run *run)
{
    while (run->ready_head < run->ready_tail) {
        uint32_t index = run->ready[run->ready_head++];
        if (start_step(run, index))
            step_done(run, index);
    }
}

static bool may_begin(const ddl_run *run, uint32_t index, bool receive)
{
    const ddl_step *step = &run->schedule->steps[index];
    return step->npredecessors == 0 && receive == (ddl_step_is_message(step) && step->kind != DDL_STEP_SEND);
}

static void get_ready(ddl_run *run, uint32_t index)
{
    run->ready[run->ready_tail++] = index;
}

bool ddl_run_start(ddl_run *run, const ddl_binding *binding)
{
    DDL_ASSERT(run->remaining == 0);
    run->binding = *binding;
    run->remaining = run->schedule->nsteps;
    run->ready_head = run->ready_tail = 0;
    for (uint32_t i = 0; i < run->schedule->nsteps; i++)
        run->waiting[i] = run->schedule->steps[i].npredecessors;
    /* As they are listed, but receives before the first send, as who sends much waits until it is expected.
     */
    bool expects = false;
    for (uint32_t i = 0; i < run->schedule->nsteps; i++) {
        bool sends = run->schedule->steps[i].kind == DDL_STEP_SEND;
        for (uint32_t k = i + 1; sends && !expects && k < run->schedule->nsteps; k++)
            if (may_begin(run, k, true))
                get_ready(run, k);
        expects = expects || sends;
        if (may_begin(run, i, false) || (!expects && may_begin(run, i, true)))
            get_ready(run, i);
    }
    advance(run);
    return run->remaining == 0;
}

static void message_done(ddl_xfer *xfer)
{
    message *m = DDL_CONTAINER(xfer, message, xfer);
    ddl_run *run = m->run;
    m->posted = false;
    arrived(m);
    step_done(run, m->step);
    advance(run);
    if (run->remaining == 0)
        run->binding.finished(run, run->binding.arg);
}

void ddl_run_cancel(ddl_run *run)
{
    if (run->remaining == 0)
        return;
    for (uint32_t i = 0; i < run->schedule->nmessages; i++) {
        message *m = &run->messages[i];
        if (m->posted)
            run->binding.transport->ops->cancel(run->binding.transport, &m->xfer);
        m->posted = false;
    }
    run->remaining = 0;
}

void ddl_run_visit_pending(const ddl_run *run, void (*visit)(void *arg, int peer, bool outgoing), void *arg)
{
    if (run->remaining == 0)
        return;
    for (uint32_t i = 0; i < run->schedule->nmessages; i++)
        if (run->messages[i].posted) {
            const ddl_step *step = &run->schedule->steps[run->messages[i].step];
            visit(arg, step->peer, step->kind == DDL_STEP_SEND);
        }
}

double ddl_run_share_moved(const ddl_run *run)
{
    double moved = 0, all = 0;
    for (uint32_t i = 0; i < run->schedule->nmessages; i++) {
        const message *m = &run->messages[i];
        const bool is_due = run->waiting[m->step] == 0;
        all += (double)m->xfer.bytes;
        if (is_due) /* it was posted then, and is done if it no longer is */
            moved += (double)(m->posted ? m->xfer.moved : m->xfer.bytes);
    }
    return all > 0 ? moved / all : 0;
}

void ddl_run_destroy(ddl_run *run)
{
    if (run == NULL)
        return;
    ddl_run_cancel(run);
    ddl_free(run);
}
