/*
 * store_redis_run.h - a run in a Redis server, as the files of that store share it.
 *
 * Here is what it is called there, what ranks tell each other under seals, and how it comes out. What the
 * keys are is in store_redis.c.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_RUN_H
#define DDL_RENDEZVOUS_STORE_REDIS_RUN_H

#include "protocol/store_wire.h"
#include "rendezvous/store.h"
#include "rendezvous/store_redis_link.h"
#include "rendezvous/store_redis_talk.h"

enum {
    DDL_REDIS_SLICE_MS = 1000, /* so long does Redis hold a request of one who waits */
    DDL_REDIS_KEY_TEXT = DDL_STORE_KEY_LIMIT + 1,
};

typedef struct ddl_redis_run {
    ddl_store base; /* held: the connections of link */
    ddl_hello_party self;
    ddl_redis_link *link;
    char prefix[DDL_REDIS_PREFIX_TEXT];
    char place[DDL_REDIS_NAME_TEXT - 200];              /* "ddl:10.0.0.1:29500" */
    char run[DDL_REDIS_PREFIX_TEXT + DDL_RUN_TEXT + 2]; /* "ddl:RUN" */
    char token[DDL_TOKEN_TEXT], host_token[DDL_TOKEN_TEXT];
    char expiry[16]; /* seconds, as text */
    ddl_deadline next_life_look, next_poll;
    bool host_missed;
    ddl_error odd_meet; /* why the record at the place was passed over */
    int64_t written_ns; /* the record there, whose run we asked, or that we have replaced */
    bool is_modest;     /* of ddl_store_options */
    bool has_begun;     /* rank 0: meet names our run */
    bool came_late;     /* entered a run that was settled already */
    bool has_will, settled, failed;
    char first_key[DDL_REDIS_KEY_TEXT]; /* that we have created; "" if none */
    bool is_forged;                     /* failed, since nobody of the run has said how it came out */
    ddl_error will, failure;
    struct ddl_redis_member *members; /* rank 0 */
    int member_count, member_room;
    char ask_from[DDL_REDIS_ID_TEXT], wills_from[DDL_REDIS_ID_TEXT]; /* rank 0: what has been read of these */
} ddl_redis_run;

/* ---- names ---- */

void ddl_redis_run_name(ddl_redis_run *redis, const uint8_t *run_id);
ddl_view ddl_redis_run_key(const ddl_redis_run *redis, ddl_redis_name *name, const char *key);
ddl_view ddl_redis_run_channel(const ddl_redis_run *redis, ddl_redis_name *name, const char *token);

/* Ask how many subscribe to the channel of a token. */
void ddl_redis_run_count(ddl_redis_request *request, const ddl_redis_run *redis, const char *token);

/* ---- seals ---- */

ddl_seal ddl_redis_run_seal(const ddl_redis_run *redis);

/* Names under which is sealed what a rank tells rank 0: "will/TOKEN". */
enum { DDL_REDIS_TOLD_NAME = DDL_TOKEN_TEXT + 8 };
const char *ddl_redis_run_told(const char *field, const char *token, char name[DDL_REDIS_TOLD_NAME]);

/* Whether a rank of this run has said this under this name; what is *value then. */
bool ddl_redis_run_is_sealed(const ddl_redis_run *redis, const char *name, ddl_view said, ddl_view *value);

/* Set name once, to one field, with our token; and see to its removal. Part of a transaction, its first. */
void ddl_redis_run_create(ddl_redis_request *request, const ddl_redis_run *redis, ddl_view name,
                          const char *field, ddl_view value);

/* Tell rank 0 our will, which counts once we have set key, or that we need nothing more. Part of a
 * transaction. */
void ddl_redis_run_tell(ddl_redis_request *request, const ddl_redis_run *redis, const char *field,
                        ddl_view value, const char *key);

/* ---- how the run comes out ---- */

DDL_MUST_USE ddl_status ddl_redis_run_failure(const ddl_redis_run *redis, ddl_error *err);

/* What nobody of this run has said ends the run, but is not passed on. */
void ddl_redis_run_hear_end(ddl_redis_run *redis, const ddl_redis_reply *entry);

/* Fail the run, unless it is settled or has failed. */
DDL_MUST_USE ddl_status ddl_redis_run_fail(ddl_redis_run *redis, const ddl_error *cause,
                                           ddl_deadline deadline, ddl_error *err);

/* Remove a run with all its keys; best effort. Only names that belong to it are taken from the index. */
void ddl_redis_run_remove(ddl_redis_run *redis, const char *run);

#endif
