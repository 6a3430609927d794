/*
 * schedule.h - one rank's part of a collective, as data: a flat array of steps over slices.
 *
 * A finished schedule is immutable. It knows no pointers, no tags, no transport and no clock; a run
 * (executor.h) binds it to buffers. Made by the builder (builder.h) only.
 */
#ifndef DDL_SCHEDULE_SCHEDULE_H
#define DDL_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ddl_buffer { DDL_BUFFER_IN, DDL_BUFFER_OUT, DDL_BUFFER_SCRATCH } ddl_buffer;

typedef struct ddl_slice {
    ddl_buffer buffer;
    size_t offset, bytes;
} ddl_slice;

/*
 * Up to two slices of one buffer that travel as one message: a circular interval of blocks wraps at most
 * once. The second part is empty unless it wraps.
 */
typedef struct ddl_range {
    ddl_slice part[2];
} ddl_range;

typedef enum ddl_step_kind {
    DDL_STEP_SEND,        /* target is read and sent to peer */
    DDL_STEP_RECV,        /* target is written by a message from peer */
    DDL_STEP_RECV_REDUCE, /* a message from peer lands in source (scratch), then target = target op source */
    DDL_STEP_REDUCE,      /* target = fold of the operands, in listed order; target may be one of them */
    DDL_STEP_COPY,        /* target = source */
    DDL_STEP_SCALE        /* target = target / nranks (the end of DDL_AVG) */
} ddl_step_kind;

typedef struct ddl_step {
    uint8_t kind;           /* ddl_step_kind */
    bool incoming_first;    /* recv_reduce: target = source op target, so that operands keep rank order */
    int peer;               /* send, recv, recv_reduce: the other rank; else -1 */
    uint32_t number;        /* of the message from sender to receiver, counted from 0 per directed pair */
    uint32_t npredecessors; /* steps that must finish before this one starts */
    uint32_t first_successor, nsuccessors; /* in ddl_schedule.successors */
    uint32_t first_operand, noperands;     /* reduce: in ddl_schedule.operands */
    ddl_range target;
    ddl_slice source;
} ddl_step;

typedef struct ddl_schedule {
    int rank, nranks;
    size_t element_bytes;
    size_t scratch_bytes;   /* to be given to a run, aligned to 64 bytes */
    size_t largest_message; /* bytes */
    bool in_place;          /* IN and OUT lie in one memory, where they begin at these offsets */
    size_t in_offset, out_offset;
    uint32_t nsteps, nmessages; /* nmessages: send, recv and recv_reduce steps */
    ddl_step *steps;            /* in an order in which every step comes after its predecessors */
    uint32_t *successors;       /* indices of steps */
    ddl_slice *operands;
} ddl_schedule;

/* Whether a step is of a message, at either end. */
static inline bool ddl_step_is_message(const ddl_step *step)
{
    return step->kind == DDL_STEP_SEND || step->kind == DDL_STEP_RECV || step->kind == DDL_STEP_RECV_REDUCE;
}

static inline size_t ddl_range_bytes(const ddl_range *range)
{
    return range->part[0].bytes + range->part[1].bytes;
}

void ddl_schedule_destroy(ddl_schedule *schedule);

#endif
