/*
 * transport.h - what the executor needs of a way to move messages between ranks.
 *
 * A message is known by its key; both ends compute the same key from their own schedules. The transport
 * matches sends with receives by key, in any order, and moves bytes straight into the receive's parts.
 * Deadlines and failed peers are not the executor's business: a transport that loses a peer tells its
 * owner, who cancels the xfers of the runs concerned.
 *
 * Implemented by mesh_match.c, and by the virtual network in simulate.
 */
#ifndef DDL_EXECUTOR_TRANSPORT_H
#define DDL_EXECUTOR_TRANSPORT_H

#include "base/signature.h"
#include "base/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names a message between two ranks. */
typedef struct ddl_key {
    uint32_t channel;  /* communicator, and whether point to point */
    uint32_t piece;    /* of the operation, from 0 */
    uint64_t sequence; /* of the operation in its channel, from 1 */
    uint32_t number;   /* of the message in the piece, from 0 per directed pair */
} ddl_key;

typedef struct ddl_part {
    void *data; /* a send's is only read */
    size_t bytes;
} ddl_part;

/* One message being sent or received. Embedded in a run; the poster owns it until it is done or cancelled. */
typedef struct ddl_xfer ddl_xfer;
struct ddl_xfer {
    /* Set by the poster; unchanged until the end. */
    ddl_key key;
    int peer;
    ddl_part part[2]; /* the second has 0 bytes unless the message has two parts */
    size_t bytes;     /* of both parts; never 0 */
    const ddl_signature *signature;
    void (*done)(ddl_xfer *xfer); /* called once from the transport's progress, never from within a post */
    /*
     * NULL, or, for a receive of one part: its poster would rather take the bytes where they are than have
     * them in the part. A transport may pass them all, each once, in whole units and aligned to
     * them, from its progress or from within the post; they are valid during the call. What it passes on from
     * the part itself is bytes of the message, too.
     */
    void (*take)(ddl_xfer *xfer, size_t offset, const void *bytes, size_t count);
    /*
     * NULL, or the same as take, which also writes what becomes of the bytes to another place, where the peer
     * wants it; that may be where the bytes lie. A transport may call it for some bytes and take for others.
     */
    void (*give)(ddl_xfer *xfer, size_t offset, const void *bytes, void *to, size_t count);
    /*
     * The message that answers this one: it goes the other way, with what becomes of this one and as many
     * bytes. Its number, plus 1; 0: there is none. Whoever sends this one receives the answer where this one
     * lies, and touches that place in no other way; whoever receives it sends what take and give make.
     */
    uint32_t answer_plus_1;
    bool is_given;      /* of a send that is an answer: has_given of the receive that it answers */
    uint8_t unit_bytes; /* a power of two */
    bool past_caches;   /* a hint: what the message writes, or gives, is not looked at soon, and the caches
                           hold more useful things */
    bool pulls;         /* a hint: best read where it lies, if that can be. A send must have it where the
                           receive may have it */
    /* The transport's, between post and end; zero before. At the end the poster looks at what was taken, and
     * given; before that, at what has moved. */
    ddl_link link;
    ddl_hashed expected;
    size_t moved;
    size_t taken;               /* bytes that were passed to take; at the end all or none */
    size_t hole_at, hole_bytes; /* of the message: what does not come, or go, with the rest of it */
    void *pages;                /* where these bytes are, or go, at the peer */
    bool gives_back;            /* the sender's answer is this receive's: it is wanted where the bytes lie */
    bool has_given;             /* what is in the hole */
    uint8_t state;
    uint32_t stripes;     /* how many are begun; of a receive, a bit for each that is */
    uint32_t withdrawals; /* of its sender, when it said where the message lies */
};

typedef struct ddl_transport ddl_transport;

struct ddl_transport_ops {
    /* Executor; never blocks. True: the message has left and done will not be called. */
    bool (*send)(ddl_transport *transport, ddl_xfer *xfer);
    /* Executor; never blocks. True: the message is here already and done will not be called. */
    bool (*recv)(ddl_transport *transport, ddl_xfer *xfer);
    /* Executor, on cancel: forget the xfer; its memory is not touched from now on. */
    void (*cancel)(ddl_transport *transport, ddl_xfer *xfer);
};

struct ddl_transport { /* the first member of each implementation */
    const struct ddl_transport_ops *ops;
};

#endif
