/*
 * channel.h - the numbers of the two orders of operations that each communicator has on the wire.
 *
 * Pure. Collectives are counted together, messages of each pair and direction by themselves.
 */
#ifndef DDL_PROTOCOL_CHANNEL_H
#define DDL_PROTOCOL_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ddl_channel_kind {
    DDL_CHANNEL_COLLECTIVE,
    DDL_CHANNEL_POINT_TO_POINT,
    DDL_CHANNEL_KINDS
} ddl_channel_kind;

/* id: of the communicator; of the world it is 0. */
static inline uint32_t ddl_channel_of(uint32_t id, ddl_channel_kind kind)
{
    return id * DDL_CHANNEL_KINDS + (uint32_t)kind;
}

static inline bool ddl_channel_is_collective(uint32_t channel)
{
    return channel % DDL_CHANNEL_KINDS == DDL_CHANNEL_COLLECTIVE;
}

/* The id of its communicator. */
static inline uint32_t ddl_channel_communicator(uint32_t channel)
{
    return channel / DDL_CHANNEL_KINDS;
}

#endif
