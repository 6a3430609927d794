/*
 * sightings.h - what a rank knows of who has entered an operation, and of how rank 0 called it: the payload
 * that an enter frame may have.
 *
 * Pure. Where not all pairs are connected such frames go from neighbour to neighbour, so that in the end all
 * know what any of them does. Bytes from outside: every length is checked before use.
 */
#ifndef DDL_PROTOCOL_SIGHTINGS_H
#define DDL_PROTOCOL_SIGHTINGS_H

#include "base/bytes.h"
#include "protocol/frame.h"

enum {
    DDL_SIGHTINGS_HEAD_BYTES = 24,
    DDL_SIGHTINGS_RANKS = 8 * (DDL_FRAME_NOTICE_LIMIT - DDL_SIGHTINGS_HEAD_BYTES) /* at most so many */
};

typedef struct ddl_sightings {
    int nranks;
    bool has_first; /* how rank 0 called it is known, and is this: */
    ddl_signature first;
    const uint8_t *bits; /* of nranks */
} ddl_sightings;

static inline bool ddl_sightings_has(const ddl_sightings *sightings, int rank)
{
    return (sightings->bits[rank / 8] >> rank % 8 & 1) != 0;
}

/* The head, then a bit for each rank whose entered[rank] is at least sequence; sightings->bits is not used.
 * Returns how many bytes that is, at most DDL_FRAME_NOTICE_LIMIT. */
size_t ddl_sightings_encode(const ddl_sightings *sightings, const uint64_t entered[], uint64_t sequence,
                            uint8_t *bytes);

/* The bits stay in the view. DDL_EPROTO: malformed, or not of so many ranks. */
DDL_MUST_USE ddl_status ddl_sightings_decode(ddl_view view, int nranks, ddl_sightings *sightings,
                                             ddl_error *err);

#endif
