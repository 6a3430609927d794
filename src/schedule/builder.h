/*
 * builder.h - how an algorithm writes down a rank's schedule.
 *
 * The algorithm adds steps in the order in which it thinks of them. The builder derives from the slices
 * that they touch which steps must wait for which, numbers the messages of each directed pair of ranks,
 * drops steps without bytes, and remembers its first error, so that an algorithm carries no tags,
 * dependency lists or checks. It also gives out scratch.
 *
 * Slices of one step either coincide or do not overlap; they must stay within the buffers (the checker
 * of src/simulate proves that).
 */
#ifndef DDL_SCHEDULE_BUILDER_H
#define DDL_SCHEDULE_BUILDER_H

#include "base/error.h"
#include "schedule/blocks.h"
#include "schedule/schedule.h"

typedef struct ddl_builder ddl_builder;

/* Which operand comes first in a reduction of what arrives with what is here. */
typedef enum ddl_operand_order { DDL_INCOMING_FIRST, DDL_OWN_FIRST } ddl_operand_order;

DDL_MUST_USE ddl_status ddl_builder_create(const ddl_group *group, size_t element_bytes,
                                           ddl_builder **builder, ddl_error *err);

/* IN and OUT lie in one memory: IN begins in_offset bytes, OUT out_offset bytes after its start. To be said
 * before the first step. */
void ddl_builder_alias(ddl_builder *b, size_t in_offset, size_t out_offset);

/*
 * End: the schedule, or the first error. Destroys the builder in both cases.
 * DDL_ENOMEM: no memory. DDL_EINVAL: scratch would exceed size_t.
 */
DDL_MUST_USE ddl_status ddl_builder_finish(ddl_builder *b, ddl_schedule **schedule, ddl_error *err);

/* Fresh scratch, aligned to 64 bytes, whose content is anything. */
ddl_slice ddl_scratch(ddl_builder *b, size_t bytes);

/*
 * Zeroed memory for the algorithm's own use, freed when the builder ends. NULL: there is none, which is
 * remembered as the first error.
 */
void *ddl_builder_alloc(ddl_builder *b, size_t count, size_t element_bytes);

/*
 * Peers of messages added from now on are indices into ranks, which must stay until others are said; NULL:
 * they are ranks themselves. So a phase that is written for the ranks of a group runs among some of them.
 */
void ddl_builder_members(ddl_builder *b, const int ranks[]);

/* A message to or from peer. Source and target may have up to two parts. */
void ddl_step_send(ddl_builder *b, int peer, ddl_slice source);
void ddl_step_send_range(ddl_builder *b, int peer, ddl_range source);
void ddl_step_recv(ddl_builder *b, int peer, ddl_slice target);
void ddl_step_recv_range(ddl_builder *b, int peer, ddl_range target);

/*
 * target = incoming op own, in the order said. own is target itself or disjoint from it, and cut into
 * parts alike. The message is received as early as can be: where target must wait, or holds an operand,
 * it lands in scratch of the builder's own first.
 */
void ddl_step_recv_reduce(ddl_builder *b, int peer, ddl_slice target, ddl_slice own, ddl_operand_order order);
void ddl_step_recv_reduce_range(ddl_builder *b, int peer, ddl_range target, ddl_range own,
                                ddl_operand_order order);

/* target = operands[0] op operands[1] ..., each as long as target, which may be one of them. */
void ddl_step_reduce(ddl_builder *b, ddl_slice target, const ddl_slice operands[], int noperands);

/* The same over all blocks of `operands` in order, with `own` taking the place of block `own_index`. */
void ddl_step_reduce_blocks(ddl_builder *b, ddl_slice target, const ddl_blocks *operands, int own_index,
                            ddl_slice own);

/* target = source; nothing if both are the same bytes. */
void ddl_step_copy(ddl_builder *b, ddl_slice target, ddl_slice source);

/* target = target / nranks */
void ddl_step_scale(ddl_builder *b, ddl_slice target);

/* Sends added from now on wait for every step added since the last fence. */
void ddl_builder_fence(ddl_builder *b);

/*
 * The same with room: a round begins with this call, and its sends wait for the steps of the round that is
 * `window` rounds back, so that no more than window rounds are under way. 1 is a fence; 8 is the most.
 */
void ddl_builder_round(ddl_builder *b, int window);

#endif
