/*
 * stripes_state.h - the connections that carry stripes, as the files of stripes share them. What their users
 * need is in stripes.h.
 *
 * All of it is for the holder of the engine's baton.
 */
#ifndef DDL_TRANSPORT_STRIPES_STATE_H
#define DDL_TRANSPORT_STRIPES_STATE_H

#include "base/bytes.h"
#include "transport/stripes.h"

enum { DDL_STRIPES_PARTS = 2 /* of a message's bytes, and so of a stripe's */ };

typedef struct ddl_stripes_stream {
    ddl_stripes *stripes;
    ddl_wire wire;
    uv_poll_t poll;
    bool poll_open;
    bool ended;      /* the peer has said goodbye */
    bool blocked;    /* the socket takes no more; a poll tells when it does */
    bool watched;    /* by the poll, for that */
    bool deaf;       /* a write failed; reading tells the end */
    int reset_errno; /* and why, if the system has said so */
    bool carried;    /* stripes, or the beginning of one, in either direction */
    ddl_vigil vigil; /* over what has been sent */

    /* stripes_write.c */
    ddl_xfer *out; /* whose stripe is being sent */
    size_t out_at, out_left;
    uint8_t header[DDL_FRAME_BYTES];
    size_t header_sent;
    ddl_bytes rest; /* of what was cancelled, and a goodbye: goes before the next stripe */
    size_t rest_sent;

    /* stripes_read.c */
    uint8_t partial[DDL_FRAME_BYTES]; /* the next header */
    size_t partial_bytes;
    ddl_xfer *in; /* whose stripe comes; NULL: nobody wants it */
    size_t in_begin, in_at, in_left;
    uint64_t bytes_read;
} ddl_stripes_stream;

struct ddl_stripes {
    ddl_stripes_owner owner;
    ddl_engine *engine; /* from ddl_stripes_open on */
    uint8_t *room;
    ddl_list waiting; /* messages of which stripes are to be begun, oldest first */
    ddl_list leaving; /* all their stripes are begun */
    int next;         /* stream that takes the next stripe */
    int nended;
    bool flushing, stopped, closed;
    int nstreams, nused;
    ddl_stripes_stream streams[];
};

static inline int ddl_stripes_index_of(const ddl_stripes_stream *s)
{
    return (int)(s - s->stripes->streams);
}

static inline bool ddl_stripes_is_read(const ddl_stripes_stream *s)
{
    return !s->ended && !s->stripes->stopped;
}

/* ---- stripes.c ---- */

/* For the loop's poll, as it stands: also for writing, where the socket took no more. */
void ddl_stripes_on_poll(uv_poll_t *poll, int status, int events);

/* How much a socket takes that its network has not; 0: whatever fits. */
void ddl_stripes_bound_unsent(const ddl_stripes_stream *s, int bytes);

/* ---- stripes_write.c ---- */

/* Whether the socket takes no more, so that the loop is to tell when it does. */
void ddl_stripes_watch_for(ddl_stripes_stream *s, bool writable);

/* ---- stripes_read.c ---- */

/* What has come, for this turn. */
void ddl_stripes_read(ddl_stripes_stream *s);

/* Of a socket with an error: take what is unread. A short read is not the end of it here. */
void ddl_stripes_read_to_the_end(ddl_stripes_stream *s);

/* It broke, or carried what cannot be. */
void ddl_stripes_lose(ddl_stripes_stream *s, int os_errno, const ddl_error *error);

#endif
