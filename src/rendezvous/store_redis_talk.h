/*
 * store_redis_talk.h - how a store talks to a Redis server: words into commands, entries of streams out of
 * replies.
 *
 * Pure. Knows nothing of runs. What a reply does not hold, or holds otherwise, is not found in it.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_TALK_H
#define DDL_RENDEZVOUS_STORE_REDIS_TALK_H

#include "rendezvous/store_meeting_record.h"
#include "rendezvous/store_redis_request.h"

enum {
    DDL_REDIS_NAME_TEXT = 600,
    DDL_REDIS_ID_TEXT = 48,
    DDL_REDIS_MOST_REPLIES = 12,
    DDL_REDIS_BATCH = 64, /* entries, channels or keys in one request */
    /* Of reading on, DDL_REDIS_BATCH at a time: a server could go on for ever. */
    DDL_REDIS_ROUNDS_MOST = 4096,
};

/* ---- requests ---- */

/* Names of keys. */
typedef struct ddl_redis_name {
    char text[DDL_REDIS_NAME_TEXT];
} ddl_redis_name;

ddl_view ddl_redis_name_of(ddl_redis_name *name, const char *owner, const char *what, const char *item);

/* A read of streams, each from behind an id. It waits if block_ms is above 0. */
typedef struct ddl_redis_reading {
    ddl_view names[DDL_REDIS_BATCH], ids[DDL_REDIS_BATCH];
    size_t count;
} ddl_redis_reading;

void ddl_redis_reading_add(ddl_redis_reading *reading, ddl_view name, const char *id);
void ddl_redis_request_read(ddl_redis_request *request, const ddl_redis_reading *reading, int64_t block_ms);

/* ---- replies ---- */

/* The entries that a read has found in a stream; *count of them, 0 if none. */
ddl_redis_reply *const *ddl_redis_entries_of(const ddl_redis_reply *reply, const char *name, size_t *count);

/* A field of an entry; data is NULL if it has no such. */
ddl_view ddl_redis_field_of(const ddl_redis_reply *entry, const char *field);

/* A token in a field; false if there is none. */
bool ddl_redis_token_of(const ddl_redis_reply *entry, const char *field, char token[DDL_TOKEN_TEXT]);

/* Remember the id of an entry as what has been read. */
void ddl_redis_note_id(const ddl_redis_reply *entry, char id[DDL_REDIS_ID_TEXT]);

/* How long after the entry of id that one was added whose id is at index of what EXEC says; below 0:
 * unknown. */
int64_t ddl_redis_ms_after(const char *id, const ddl_redis_reply *done, size_t index);

/* How many subscribe to the channel at index of a reply to PUBSUB NUMSUB. */
bool ddl_redis_is_there(const ddl_redis_reply *reply, size_t index);

#endif
