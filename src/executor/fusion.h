/*
 * fusion.h - what may be done with a message while it comes, as its schedule shows.
 *
 * A receive may be fused with the reduce that follows it: the reduce takes the bytes where they are, and they
 * need not land first. Of two ranks, what becomes of a message may also go back to where that was sent from:
 * the transport may then write it there as it is made, and the message that answers has nothing left to move.
 */
#ifndef DDL_EXECUTOR_FUSION_H
#define DDL_EXECUTOR_FUSION_H

#include "schedule/schedule.h"

enum { DDL_NO_FUSION = UINT32_MAX };

/* Of one message. A step and messages, by their indices; or DDL_NO_FUSION. */
typedef struct ddl_fusion {
    uint32_t reduce;      /* of a receive: the step that combines it with one other slice, and may do so as it
                             comes */
    uint32_t operand;     /* of that step: which one is received, 0 or 1 */
    uint32_t answered_by; /* of either: the message that goes the other way with what becomes of this one */
    uint32_t answers;     /* of a send: the receive that is answered by it */
} ddl_fusion;

/*
 * Of all messages of a schedule, numbered in the order of their steps. message_of: of each step that is a
 * message its number, and of each reduce that is fused with one that message's; of others 0.
 */
void ddl_find_fusions(const ddl_schedule *schedule, uint32_t message_of[], ddl_fusion fusions[]);

#endif
