/*
 * store_redis_remedy.h - what to do about errors that Redis gives.
 *
 * Pure.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_REMEDY_H
#define DDL_RENDEZVOUS_STORE_REDIS_REMEDY_H

#include "rendezvous/store_redis_reply.h"

enum {
    DDL_REDIS_SAID_TEXT = 160,  /* of what Redis says */
    DDL_REDIS_REASON_TEXT = 360 /* and what to do about it */
};

bool ddl_redis_is_error(const ddl_redis_reply *reply, const char *begins);

/* It does nothing for now, but will again. */
bool ddl_redis_is_not_yet(const ddl_redis_reply *reply);

/* NULL: unknown. */
const char *ddl_redis_remedy(const ddl_redis_reply *reply);

/* What Redis says, made fit to be shown, and what to do about it. */
void ddl_redis_reason(const ddl_redis_reply *reply, char reason[DDL_REDIS_REASON_TEXT]);

#endif
