/*
 * store_redis_reply.h - what Redis says and hears: bytes to replies, words to commands.
 *
 * Pure. A Redis server is not trusted: a reply may hold up to 4,096 elements, arrays inside arrays four deep
 * below the outermost, lines (all but strings with a length) of 4 KiB, and all replies to a request, which
 * are kept until the last has come, 16 MiB; any other ends the conversation. hiredis parses; it is used here
 * alone.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_REPLY_H
#define DDL_RENDEZVOUS_STORE_REDIS_REPLY_H

#include "base/bytes.h"
#include "base/error.h"

enum {
    DDL_REDIS_ELEMENTS = 4096,
    DDL_REDIS_DEPTH = 4,
    DDL_REDIS_LINE_BYTES = 4 << 10,
    DDL_REDIS_REQUEST_BYTES = 16 << 20,
};

typedef enum ddl_redis_kind {
    DDL_REDIS_NIL,
    DDL_REDIS_TEXT, /* a string of any bytes, or a status */
    DDL_REDIS_INTEGER,
    DDL_REDIS_ARRAY,
    DDL_REDIS_ERROR
} ddl_redis_kind;

typedef struct ddl_redis_reply ddl_redis_reply;
struct ddl_redis_reply {
    ddl_redis_kind kind;
    int64_t integer;
    char *text; /* of a text or an error; a zero follows it */
    size_t text_bytes;
    ddl_redis_reply **items; /* of an array; none is NULL */
    size_t item_count;
};

/* Release a reply and all in it; NULL is fine. */
void ddl_redis_reply_destroy(ddl_redis_reply *reply);

typedef struct ddl_redis_reader ddl_redis_reader;
DDL_MUST_USE ddl_status ddl_redis_reader_create(ddl_redis_reader **reader, ddl_error *err);
void ddl_redis_reader_destroy(ddl_redis_reader *reader);

/* What comes from now on answers another request. */
void ddl_redis_reader_begin(ddl_redis_reader *reader);

/* Take in bytes. DDL_EPROTO: more than the replies to a request may have. DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_redis_reader_feed(ddl_redis_reader *reader, const void *data, size_t bytes,
                                              ddl_error *err);

/*
 * Give out the next whole reply (release with ddl_redis_reply_destroy), NULL if there is none yet.
 * DDL_EPROTO: these bytes are no reply, or one over a limit; the stream is of no more use.
 */
DDL_MUST_USE ddl_status ddl_redis_reader_next(ddl_redis_reader *reader, ddl_redis_reply **reply,
                                              ddl_error *err);

/* Append a command of count words; false when out of memory. */
DDL_MUST_USE bool ddl_redis_command(ddl_bytes *out, const ddl_view words[], size_t count);

#endif
