/*
 * store_wire.h - messages between a store's client and its server, after the hello.
 *
 * Pure. Both directions use one form, little endian: 0 body bytes 4 | 4 id 4 | 8 kind 1 | 9 flags 1 |
 * 10 key bytes 2 | 12 zero 4 | 16 key | value. A reply carries the id of its request; id 0 is the server
 * speaking first. Every length is checked before a byte of the body is taken in.
 */
#ifndef DDL_PROTOCOL_STORE_WIRE_H
#define DDL_PROTOCOL_STORE_WIRE_H

#include "base/bytes.h"
#include "base/error.h"

enum {
    DDL_STORE_HEAD_BYTES = 16,
    DDL_STORE_KEY_LIMIT = 256,
    DDL_STORE_VALUE_LIMIT = 64 << 10,
    DDL_STORE_ROSTER_LIMIT = 1 << 20, /* of the one value that grows with the number of ranks */
    DDL_STORE_SEAL_ROOM = 36          /* on top of either, for the proof that goes with a value */
};

/* X(kind, name, from client, takes a key, takes a value) */
#define DDL_STORE_KINDS(X)                                                                             \
    X(DDL_STORE_SET_NEW, 1, true, true, true)     /* create key; it is an error if it exists */        \
    X(DDL_STORE_GET, 2, true, true, false)        /* with DDL_STORE_WAIT: reply once the key exists */ \
    X(DDL_STORE_CANCEL, 3, true, false, false)    /* forget the waiting get of this id; no reply */    \
    X(DDL_STORE_WILL, 4, true, false, true)       /* fail with this error if the connection breaks */  \
    X(DDL_STORE_FAIL, 5, true, false, true)       /* fail the meeting with this error */               \
    X(DDL_STORE_LOOK, 6, true, true, true)        /* which of so many keys of this kind there are */   \
    X(DDL_STORE_DONE, 16, false, false, false)    /* set_new and will worked */                        \
    X(DDL_STORE_VALUE, 17, false, false, true)    /* get: here it is; look: a bit for each key */      \
    X(DDL_STORE_EXISTS, 18, false, false, true)   /* set_new: there is this value already */           \
    X(DDL_STORE_MISSING, 19, false, false, false) /* get without DDL_STORE_WAIT: no such key */        \
    X(DDL_STORE_FAILED, 20, false, false, true)   /* the meeting has failed with this error */         \
    X(DDL_STORE_REFUSED, 21, false, false, true)  /* this request is over a limit, says this error */

typedef enum ddl_store_kind {
#define X(kind, number, from_client, key, value) kind = number,
    DDL_STORE_KINDS(X)
#undef X
} ddl_store_kind;

enum {
    DDL_STORE_WAIT = 1, /* on DDL_STORE_GET */
    DDL_STORE_GONE = 1  /* on DDL_STORE_EXISTS: whoever set the key has left since */
};

typedef struct ddl_store_message {
    ddl_store_kind kind;
    uint8_t flags;
    uint32_t id;
    ddl_view key, value;
} ddl_store_message;

/* Append a message's wire form; false when out of memory. The message is ours: its limits are asserted. */
bool ddl_store_message_encode(const ddl_store_message *message, ddl_bytes *bytes);

/* Bytes on their way to become messages. Zero it, then set the two first fields. */
typedef struct ddl_store_inbox {
    bool from_client;   /* whose messages these are */
    size_t value_limit; /* of one value; at most DDL_STORE_ROSTER_LIMIT + DDL_STORE_SEAL_ROOM */
    ddl_bytes held;
    size_t taken; /* of held, by messages already given out */
} ddl_store_inbox;

/* Take in bytes. DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_store_inbox_feed(ddl_store_inbox *inbox, const void *data, size_t bytes,
                                             ddl_error *err);

/*
 * Give out the next whole message, if there is one; its views hold until the next feed.
 * DDL_EPROTO: malformed or over a limit; the stream is of no more use.
 */
DDL_MUST_USE ddl_status ddl_store_inbox_next(ddl_store_inbox *inbox, ddl_store_message *message, bool *found,
                                             ddl_error *err);
void ddl_store_inbox_fini(ddl_store_inbox *inbox);

/* What a look has as its value: how many keys. */
enum { DDL_STORE_COUNT_BYTES = 4 };

/* An error as a value: 0 code 4 | 4 culprit 4 | 8 errno 4 | 12 text, cut to 511 bytes. */
enum { DDL_STORE_ERROR_BYTES = 12 + 512 };
size_t ddl_store_error_encode(const ddl_error *error, uint8_t value[DDL_STORE_ERROR_BYTES]);

/* DDL_EPROTO: value is no error; otherwise fills *error and returns DDL_OK. */
DDL_MUST_USE ddl_status ddl_store_error_decode(ddl_view value, ddl_error *error, ddl_error *err);

#endif
