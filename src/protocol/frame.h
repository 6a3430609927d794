/*
 * frame.h - the unit of the mesh: a fixed header of 64 bytes, then as many bytes of payload as it says.
 *
 * Pure. Little endian. Every frame carries the key of the message it is about, and the signature of its
 * operation, so that the receiver can compare without further rounds. docs/wire.md has the layout.
 */
#ifndef DDL_PROTOCOL_FRAME_H
#define DDL_PROTOCOL_FRAME_H

#include "base/error.h"
#include "base/signature.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    /* Of the header, a line: payloads that are aligned to lines lie in a socket's pages as they do in memory,
     * if what goes before them is whole lines (docs/performance.md). */
    DDL_FRAME_BYTES = 64,
    DDL_FRAME_EAGER_LIMIT = 64 * 1024,      /* payload of an eager frame */
    DDL_FRAME_BULK_LIMIT = 2 * 1024 * 1024, /* payload of a bulk frame */
    DDL_FRAME_NOTICE_LIMIT = 1024,          /* payload of an abort, agree or enter frame */
    DDL_FRAME_PLACE_BYTES = 16,             /* payload of an offer, place or source frame, always */
    DDL_FRAME_STRIPE_BYTES = 64 * 1024,     /* payload of a stripe frame, but of the last of a message */
    DDL_FRAME_STRIPES = DDL_FRAME_BULK_LIMIT / DDL_FRAME_STRIPE_BYTES /* of a message, at most */
};

typedef enum ddl_frame_type {
    DDL_FRAME_EAGER = 1, /* a small message, sent without asking */
    DDL_FRAME_ASK,       /* a message that may not come as it is: a small one for which the sender has no
                            credit, or a large one that the receiver waits to be told the source of */
    DDL_FRAME_GRANT,     /* the receive of this key is posted: send it as bulk */
    DDL_FRAME_BULK,      /* a granted message */
    DDL_FRAME_CREDIT,    /* nothing but the credit field */
    DDL_FRAME_ENTER, /* the sender is in the operation of this sequence and signature, or what else the piece
                        says (ddl_enter_kind) */
    DDL_FRAME_ABORT, /* the sender's communicator failed; the payload says why (notice.h) */
    DDL_FRAME_GOODBYE, /* the sender will send nothing more */
    DDL_FRAME_AGREE,   /* who is left of a communicator that failed; the payload is for agreement.h */
    DDL_FRAME_OFFER,   /* the message lies in the sender's heap: take its pages from there */
    DDL_FRAME_PLACE,   /* the receive of this key is posted: put the message's pages into the heap, there */
    DDL_FRAME_TAKEN,   /* what was offered has been taken: send the rest; or was read at its source */
    DDL_FRAME_REST,    /* of a message whose pages were put or taken: what is not whole pages */
    DDL_FRAME_STRIPE, /* a part of a granted message, over one of several connections; credit is its number */
    DDL_FRAME_SOURCE, /* the message lies in the sender's memory: read it there, or grant it */
    DDL_FRAME_PING,   /* number 0: say something; 1: this is what was asked for */
    DDL_FRAME_WIDENED, /* the sender listens to the further connections, which were made late */
    DDL_FRAME_TYPES
} ddl_frame_type;

/* In the piece of an enter frame of a collective: what its sender says. Of the first two the payload, if any,
 * says who else is in the operation (sightings.h). */
typedef enum ddl_enter_kind {
    DDL_ENTER_IN = 0,        /* it is in the operation */
    DDL_ENTER_PASSED_ON = 1, /* it passes on who else is, and says nothing of itself */
    DDL_ENTER_VOTE_GPU = 2,  /* it leaves this call to its GPU if all do */
    DDL_ENTER_VOTE_HOST = 3, /* its host performs this call */
    DDL_ENTER_NCCL_ID = 4,   /* rank 0: this names NCCL's communicator */
    DDL_ENTER_FORGOTTEN = 5, /* it was in the operation, but knows no more how */
    DDL_ENTER_NCCL_UP = 6 /* whether its part of NCCL's communicator has come up, where hosts go on without */
} ddl_enter_kind;

/* In the piece of an enter frame of a message: from which of its ends that comes. */
enum { DDL_ENTER_FROM_SENDER, DDL_ENTER_FROM_RECEIVER };

/* No communicator gets so far, nor an operation: what says so is not what a rank has written. */
#define DDL_FRAME_SEQUENCE_LIMIT (UINT64_C(1) << 62)
#define DDL_FRAME_NUMBER_LIMIT   (UINT32_C(1) << 31)

/* Where a message lies, or goes: payload of offer and place, which are about a heap, and of source. */
typedef struct ddl_frame_place {
    uint64_t offset; /* in the heap; of a source: address in the process of the sender */
    uint64_t bytes; /* of the whole message. In the upper half a source has how often the sender had withdrawn
                       one, and an offer one more than the number of the message that it expects there with
                       what becomes of this one, or 0 */
} ddl_frame_place;

/* Field by field as ddl_key of the executor, which this layer does not know. */
typedef struct ddl_frame {
    uint8_t type;
    uint32_t bytes;  /* of payload that follows */
    uint32_t credit; /* eager chunks that the sender of this frame has consumed since it last said so */
    uint32_t channel;
    uint64_t sequence;
    uint32_t piece, number;
    ddl_signature signature;
} ddl_frame;

/* Whether such a frame comes from the receiver of the message that it is about. */
static inline bool ddl_frame_is_from_receiver(uint8_t type)
{
    return type == DDL_FRAME_GRANT || type == DDL_FRAME_PLACE || type == DDL_FRAME_TAKEN;
}

/* Whether it is about memory that both ranks can reach. */
static inline bool ddl_frame_is_about_memory(uint8_t type)
{
    return (type >= DDL_FRAME_OFFER && type <= DDL_FRAME_REST) || type == DDL_FRAME_SOURCE;
}

/* Whether an enter frame of a collective with this piece is a word about NCCL, with a payload of its own. */
static inline bool ddl_enter_is_about_nccl(uint32_t piece)
{
    switch (piece) {
    case DDL_ENTER_VOTE_GPU:
    case DDL_ENTER_VOTE_HOST:
    case DDL_ENTER_NCCL_ID:
    case DDL_ENTER_NCCL_UP:
        return true;
    default:
        return false;
    }
}

/* How many stripes a message has, and the bytes of one of them; it begins at its number times
 * DDL_FRAME_STRIPE_BYTES. Number: below the count. */
static inline uint32_t ddl_frame_stripes_of(size_t message_bytes)
{
    return (uint32_t)((message_bytes + DDL_FRAME_STRIPE_BYTES - 1) / DDL_FRAME_STRIPE_BYTES);
}

static inline size_t ddl_frame_stripe_bytes(size_t message_bytes, uint32_t number)
{
    size_t left = message_bytes - (size_t)number * DDL_FRAME_STRIPE_BYTES;
    return left < DDL_FRAME_STRIPE_BYTES ? left : DDL_FRAME_STRIPE_BYTES;
}

/* DDL_EPROTO: not a stripe that is missing of a message of so many bytes, of which those in the mask have
 * come. */
DDL_MUST_USE ddl_status ddl_frame_check_stripe(const ddl_frame *frame, size_t message_bytes, uint32_t come,
                                               ddl_error *err);

void ddl_frame_encode(const ddl_frame *frame, uint8_t bytes[DDL_FRAME_BYTES]);

void ddl_frame_place_encode(const ddl_frame_place *place, uint8_t bytes[DDL_FRAME_PLACE_BYTES]);
ddl_frame_place ddl_frame_place_decode(const uint8_t bytes[DDL_FRAME_PLACE_BYTES]);

/* DDL_EPROTO: these, of which there may be few, are not the beginning of a header. */
DDL_MUST_USE ddl_status ddl_frame_check_begin(const uint8_t *bytes, size_t count, ddl_error *err);

/* DDL_EPROTO: not a frame, or a field beyond its limit. */
DDL_MUST_USE ddl_status ddl_frame_decode(const uint8_t bytes[DDL_FRAME_BYTES], ddl_frame *frame,
                                         ddl_error *err);

#endif
