/*
 * early.h - what came over a link before the local step that it is for was posted: small messages, whose
 * bytes are kept in chunks, and what a peer asks, grants or tells the place of.
 *
 * Chunks are the unit of the budget by which a peer sends such messages; there is room for all of it, so a
 * peer that needs more is broken. Entries come from a pool that all links of a mesh share, and go back there.
 *
 * Thread: the holder of the engine's baton.
 */
#ifndef DDL_TRANSPORT_EARLY_H
#define DDL_TRANSPORT_EARLY_H

#include "base/error.h"
#include "executor/transport.h"
#include "protocol/frame.h"

enum {
    DDL_CHUNK_BYTES = 2048,
    DDL_CHUNKS = 512, /* per link and direction: 1 MiB */
    DDL_NO_CHUNK = 0xffff
};

static inline uint32_t ddl_chunks_for(size_t bytes)
{
    return (uint32_t)((bytes + DDL_CHUNK_BYTES - 1) / DDL_CHUNK_BYTES);
}

/* Whether the frame is of the message with this key. */
static inline bool ddl_frame_is_of(const ddl_frame *frame, const ddl_key *key)
{
    return key->number == frame->number && key->sequence == frame->sequence && key->piece == frame->piece &&
           key->channel == frame->channel;
}

typedef struct ddl_early {
    ddl_link link;        /* in a list of its link */
    ddl_hashed operation; /* in by_operation */
    const ddl_list *list; /* the one that it is in */
    ddl_frame frame;
    uint16_t first_chunk, last_chunk; /* of an eager payload; chained by ddl_earlies.next_chunk */
    uint32_t received;
    ddl_frame_place place; /* of an offer, a place or a source */
} ddl_early;

/* Of a link whose peer was early: nothing of it is touched before. */
typedef struct ddl_early_room {
    uint16_t next_chunk[DDL_CHUNKS];
    uint8_t chunks[DDL_CHUNKS][DDL_CHUNK_BYTES];
} ddl_early_room;

typedef struct ddl_early_pool {
    ddl_list free, slabs;
    ddl_early_room *rooms; /* nrooms of them, of which nrooms_taken have an owner */
    int nrooms, nrooms_taken;
} ddl_early_pool;

typedef struct ddl_earlies { /* of a link */
    ddl_early_pool *pool;
    ddl_list messages;      /* and what senders ask and offer, oldest first */
    ddl_list grants;        /* and the places that receivers tell */
    ddl_table by_operation; /* both */
    int nwords;             /* entries that are no messages */
    ddl_early_room *room;
    bool owns_room;
    int nchunks; /* so many have been used */
    uint16_t free_chunk;
} ddl_earlies;

/* With room for so many links, in one piece. False: no memory; to be closed all the same. */
bool ddl_early_pool_open(ddl_early_pool *pool, int nlinks);
void ddl_early_pool_close(ddl_early_pool *pool);

/* Nothing can be held yet. */
void ddl_earlies_init(ddl_earlies *earlies, ddl_early_pool *pool);

/* Before the first frame may come. False: no memory. */
bool ddl_earlies_reserve(ddl_earlies *earlies);

/* Before the pool is closed. */
void ddl_earlies_fini(ddl_earlies *earlies);

/* NULL: there is none in this list. */
ddl_early *ddl_earlies_find(const ddl_earlies *earlies, const ddl_list *list, const ddl_key *key);

/* Hold a frame, at the end of this list. NULL: no memory, or the peer sends too many; err says which. */
ddl_early *ddl_earlies_hold(ddl_earlies *earlies, ddl_list *list, const ddl_frame *frame, ddl_error *err);

/* The next bytes of a message have come. False: more than the budget; err says so. */
bool ddl_earlies_fill(ddl_earlies *earlies, ddl_early *entry, const uint8_t *bytes, size_t count,
                      ddl_error *err);

/* Move the bytes that have come into an xfer. */
void ddl_earlies_drain(ddl_earlies *earlies, ddl_early *entry, ddl_xfer *xfer);

/* An entry is wanted no more, nor what bytes it has. */
void ddl_earlies_drop(ddl_earlies *earlies, ddl_early *entry);

/* Visit the frames that are held of an operation. */
void ddl_earlies_visit(const ddl_earlies *earlies, uint32_t channel, uint64_t sequence,
                       void (*visit)(void *arg, int peer, const ddl_frame *frame), void *arg, int peer);

#endif
