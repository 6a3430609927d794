/*
 * layout.h - how the buffers of a call that are device memory lie in rooms of host memory, some pieces to
 * each.
 *
 * A room holds IN and OUT of a few neighbouring pieces, the blocks of each buffer a fixed distance apart; so
 * a schedule for it is one for the call itself, but with other starts of blocks. A call that is not cut lies
 * in its room as in its buffers: whether it goes over a board must not depend on where they are. Spans say
 * what has to come down into a room before a piece, and what goes up after it. Pure.
 */
#ifndef DDL_BACKEND_LAYOUT_H
#define DDL_BACKEND_LAYOUT_H

#include "algorithms/catalogue.h"
#include "base/error.h"

/* Copies of less do not fill the bus; more only delays what waits for them. A room is larger where it holds
 * one piece that is, or a call that is not cut. */
enum { DDL_ROOM_BYTES = 2 * 1024 * 1024 };

typedef struct ddl_layout {
    uint32_t pieces;    /* that a room holds */
    size_t piece_bytes; /* from one piece to the next, in a room as in the buffers */
    size_t block_count; /* elements from one block to the next in a room; 0: as in the buffers */
    size_t *starts;     /* of the blocks, as multiples of it; NULL: as in the buffers */
    size_t in_at, out_at, room_bytes;
    bool in_is_whole; /* in place: OUT is a part of IN, else IN is one of OUT, or both are the same */
} ddl_layout;

typedef struct ddl_span { /* of the first piece; those of others lie as many times piece_bytes further on */
    bool of_out;          /* which buffer */
    size_t room_offset, buffer_offset, bytes;
} ddl_span;

typedef struct ddl_spans {
    ddl_span *down, *up;
    size_t ndown, nup;
} ddl_spans;

/* For a call of this shape that is cut into npieces of piece_count elements. DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_layout_make(ddl_collective collective, const ddl_shape *shape, size_t piece_count,
                                        uint32_t npieces, ddl_layout *layout, ddl_error *err);
void ddl_layout_fini(ddl_layout *layout);

/* The shape of a schedule that runs in a room. */
ddl_shape ddl_layout_shape(const ddl_layout *layout, const ddl_shape *shape);

/* Of a schedule of that shape; `shape` is the call's own. DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_layout_spans(const ddl_layout *layout, const ddl_shape *shape,
                                         const ddl_schedule *schedule, ddl_spans *spans, ddl_error *err);
void ddl_spans_fini(ddl_spans *spans);

#endif
