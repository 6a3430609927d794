/*
 * store_redis_request.h - several commands to a Redis server that go out together.
 *
 * Pure.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_REQUEST_H
#define DDL_RENDEZVOUS_STORE_REDIS_REQUEST_H

#include "rendezvous/store_redis_reply.h"

#include <string.h>

/* Zero it, then add commands. Exchanging or posting it (store_redis_link.h) uses it up. */
typedef struct ddl_redis_request {
    ddl_bytes bytes;
    int count;        /* of commands, and so of replies */
    int64_t block_ms; /* how long Redis may take over it */
    bool once;        /* of no use on another connection than the one at hand */
    bool incomplete;  /* out of memory */
    bool repeated;    /* was sent again, as the first reply was lost */
} ddl_redis_request;

static inline ddl_view ddl_redis_word(const char *text)
{
    return (ddl_view){ text, strlen(text) };
}

static inline void ddl_redis_request_add(ddl_redis_request *request, const ddl_view words[], size_t count)
{
    request->incomplete = !ddl_redis_command(&request->bytes, words, count) || request->incomplete;
    request->count++;
}

#define DDL_REDIS_ADD(request, ...)                                   \
    ddl_redis_request_add(request, (const ddl_view[]){ __VA_ARGS__ }, \
                          sizeof((const ddl_view[]){ __VA_ARGS__ }) / sizeof(ddl_view))

#endif
