/*
 * lane.h - bytes from one process to another through memory that both have mapped: a ring with one writer and
 * one reader.
 *
 * Positions count bytes since the start and never wrap. Each end keeps its own position privately and
 * publishes it in the ring; what the other end publishes is checked before it is believed, so that a broken
 * peer can stop a lane but not lead anyone out of its memory. Nothing here waits or makes a system call.
 *
 * Order: bytes are written before the position that covers them is published (release) and read after it was
 * seen (acquire), which is all that weakly ordered machines need. How the ends sleep and wake each other is
 * in doze.h.
 *
 * Thread: one per end.
 */
#ifndef DDL_TRANSPORT_LANE_H
#define DDL_TRANSPORT_LANE_H

#include "base/bytes.h"
#include "base/outlet.h"

#include <stdatomic.h>
#include <sys/uio.h>

/* What of it lies in shared memory, beside the ring. Each position has cache lines of its own (two, as
 * neighbours are fetched in pairs). All zero is an empty lane. */
typedef struct ddl_lane {
    _Alignas(128) _Atomic(uint64_t) written; /* by the writer */
    _Atomic(uint32_t) wants_room;            /* the writer waits for room; the reader clears it */
    _Atomic(uint32_t) withdrawals;           /* by the writer */
    _Alignas(128) _Atomic(uint64_t) taken;   /* by the reader */
} ddl_lane;

/* One end of a lane. */
typedef struct ddl_lane_end {
    ddl_lane *lane;
    uint8_t *ring;
    size_t capacity;     /* a power of two */
    uint64_t own;        /* what this end publishes */
    uint64_t other;      /* what the other end has published, when last looked at */
    uint64_t before;     /* reader: own, before the last take */
    size_t largest_peek; /* reader */
    ddl_outlet outlet;
} ddl_lane_end;

/* An end of this lane, with a ring of so many bytes, at its start. */
void ddl_lane_open(ddl_lane_end *end, ddl_lane *lane, uint8_t *ring, size_t capacity);

/*
 * Writer: from now on what the reader was told about the writer's memory does not hold, before any of that is
 * written to. Both: how often that was said; of a reader that still finds the number with which it was told,
 * all that it has read before is as it was told.
 */
void ddl_lane_withdraw(ddl_lane_end *end);
uint32_t ddl_lane_withdrawals(const ddl_lane_end *end);

/* Writer: copy as much of the parts as there is room for; returns the bytes. Published in portions, so that
 * the reader can begin before the writer has finished. */
size_t ddl_lane_write(ddl_lane_end *end, const struct iovec parts[], int count);

/* Writer: bytes that could be written now. */
size_t ddl_lane_room(ddl_lane_end *end);

/* Writer: how far the reader says that it has come. */
uint64_t ddl_lane_taken(const ddl_lane_end *end);

/* Writer, after ddl_doze_begin: ask to be woken when there is room, of which there is none. */
void ddl_lane_want_room(ddl_lane_end *end);

/*
 * Reader, after a take: whether that was asked; asks are answered once. Fences only where the lane was at
 * least half full: to fill it from there takes the writer much longer than a taken position needs to become
 * visible.
 */
bool ddl_lane_room_wanted(ddl_lane_end *end);

/* Reader: the next bytes that lie in one piece; 0 bytes if there are none. Valid until they are taken. */
ddl_view ddl_lane_peek(ddl_lane_end *end);

/* Reader: have taken so many of the bytes that were peeked at. */
void ddl_lane_take(ddl_lane_end *end, size_t bytes);

/* Reader: whether the writer has published a position that cannot be. */
bool ddl_lane_is_broken(const ddl_lane_end *end);

#endif
