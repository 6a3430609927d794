/*
 * stripes.h - large messages between two ranks, in stripes that go over several connections at a time.
 *
 * For pairs of ranks that one TCP connection cannot keep busy, where networks limit each by itself, say. What
 * is here moves stripes of messages that were granted, and goodbyes; everything else goes over the pair's
 * first connection, which the mesh has. Which connection takes which stripe is decided as they take them, and
 * each stripe stands for itself, so nothing depends on the order in which connections deliver.
 *
 * It knows messages, not operations: the owner finds the receive that a stripe is for, and decides what the
 * end of a connection means. No copy is made, and nothing allocated, but to cancel what is half sent.
 * Thread: the holder of the engine's baton.
 */
#ifndef DDL_TRANSPORT_STRIPES_H
#define DDL_TRANSPORT_STRIPES_H

#include "base/error.h"
#include "executor/transport.h"
#include "io/engine.h"
#include "io/wire.h"
#include "protocol/frame.h"
#include "protocol/vigil.h"
#include "transport/climb.h"

#include <poll.h>

typedef struct ddl_stripes ddl_stripes;

typedef struct ddl_stripes_owner {
    /* A stripe comes: *xfer is the receive that it is for, and counts it as come (xfer->stripes); NULL,
     * nobody wants it. False: it cannot be, err says why. */
    bool (*find)(void *arg, const ddl_frame *frame, ddl_xfer **xfer, ddl_error *err);
    /* The last byte of a message has come; has left. May post and cancel. */
    void (*received)(void *arg, ddl_xfer *xfer);
    void (*sent)(void *arg, ddl_xfer *xfer);
    /* The frame of a stripe that is to go. */
    ddl_frame (*frame)(void *arg, const ddl_xfer *xfer);
    /* The peer has said goodbye on all of them. */
    void (*left)(void *arg);
    /* This one, counted from 0, ended without a goodbye (os_errno 0), broke, or carried what it must not
     * (error is set then). */
    void (*lost)(void *arg, int which, int os_errno, const ddl_error *error);
    /* Reading came to the end of a connection, or to what cannot be: why may be said on the pair's first one.
     */
    void (*ended)(void *arg, int which, int os_errno, const ddl_error *error);
    /* Whether something is queued, or unread, may be different now. */
    void (*changed)(void *arg);
    /* One ended or broke before it had carried anything, and is not used. NULL: then it is lost, too. */
    void (*given_up)(void *arg);
    void *arg;
} ddl_stripes_owner;

/* The connections are taken over, also on failure. room: for what is written and for what nobody wants; it
 * may be shared, and must outlive this. */
DDL_MUST_USE ddl_status ddl_stripes_create(const ddl_wire wires[], int count, const ddl_stripes_owner *owner,
                                           uint8_t room[DDL_WIRE_ROOM_BYTES], ddl_stripes **stripes,
                                           ddl_error *err);

/* Watch the connections. */
DDL_MUST_USE ddl_status ddl_stripes_open(ddl_stripes *stripes, ddl_engine *engine, ddl_error *err);

/* True: the message has left. Else it is in a list by xfer->link until sent is called. */
bool ddl_stripes_send(ddl_stripes *stripes, ddl_xfer *xfer);

/* Forget a message, whose link the caller takes out of its list. Of one that is half sent the rest of what
 * was begun goes from a copy; false: there is no memory for that, and the pair cannot go on. */
bool ddl_stripes_cancel_send(ddl_stripes *stripes, const ddl_xfer *xfer);
void ddl_stripes_cancel_recv(ddl_stripes *stripes, const ddl_xfer *xfer);

/* From now on begin stripes on the first `count` connections only; at first all are used. */
void ddl_stripes_use(ddl_stripes *stripes, int count);

/* What the network has made of that. False: the system does not tell. */
bool ddl_stripes_look(const ddl_stripes *stripes, ddl_climb_look *look);

/* How many connections there are, and how many can be used: as many of the first as none of which was given
 * up, in a power of two; 1 if they were closed. */
int ddl_stripes_count(const ddl_stripes *stripes);
int ddl_stripes_most(const ddl_stripes *stripes);

/* The first on which nothing has been acknowledged for the limit at which a host cannot be reached, or -1: to
 * be called a few times a second. */
int ddl_stripes_find_cut_off(ddl_stripes *stripes, const ddl_vigil_limits *limits, int64_t now_ns);

/* How many bytes have come over all of them. */
uint64_t ddl_stripes_heard(const ddl_stripes *stripes);

/* Write what the connections take. */
void ddl_stripes_flush(ddl_stripes *stripes);

/* Whether something waits to be written, or was decrypted and not read, which no poll shows. */
bool ddl_stripes_has_queued(const ddl_stripes *stripes);
bool ddl_stripes_has_unread(const ddl_stripes *stripes);
void ddl_stripes_read_unread(ddl_stripes *stripes);

/* Whether the peer has said goodbye on all of them, or they were closed. */
bool ddl_stripes_have_ended(const ddl_stripes *stripes);

/* Say goodbye, as far as that goes at once. */
void ddl_stripes_say_goodbye(ddl_stripes *stripes);

/* After that: whether closing loses nothing of it, see ddl_wire_part; if it does, what to wait for is in
 * *wait. */
bool ddl_stripes_part(ddl_stripes *stripes, struct pollfd *wait);

/* The pair is lost: watch nothing any more, and let the peer see the end. */
void ddl_stripes_shut(ddl_stripes *stripes);

/* Watch nothing any more. */
void ddl_stripes_stop(ddl_stripes *stripes);

/* Close everything. It is freed by destroy once the loop has run. */
void ddl_stripes_close(ddl_stripes *stripes);

/* NULL is fine. */
void ddl_stripes_destroy(ddl_stripes *stripes);

/* In a forked child. */
void ddl_stripes_close_in_child(const ddl_stripes *stripes);

#endif
