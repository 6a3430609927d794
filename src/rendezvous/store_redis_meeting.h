/*
 * store_redis_meeting.h - how the ranks of a run find it in a Redis server.
 *
 * Rank 0 takes the place, unless another lives there, and names its run in it; the others ask that run, and
 * are in when rank 0 has answered.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_MEETING_H
#define DDL_RENDEZVOUS_STORE_REDIS_MEETING_H

#include "rendezvous/store_redis_run.h"

/* Rank 0, whose token this is. DDL_ECONFIG: another has the place. */
DDL_MUST_USE ddl_status ddl_redis_meeting_begin(ddl_redis_run *redis, const uint8_t token[DDL_TOKEN_BYTES],
                                                ddl_error *err);

/* The others. DDL_ETIMEDOUT: rank 0 did not come. */
DDL_MUST_USE ddl_status ddl_redis_meeting_find(ddl_redis_run *redis, const ddl_store_options *options,
                                               ddl_deadline deadline, ddl_error *err);

/* Rank 0: echo every rank that asks for this run. */
DDL_MUST_USE ddl_status ddl_redis_meeting_hear_asks(ddl_redis_run *redis, ddl_redis_reply *const entries[],
                                                    size_t count, ddl_error *err);

/* A newer rank 0 may have taken the place, if our connection was away for long enough. */
DDL_MUST_USE ddl_status ddl_redis_meeting_check(ddl_redis_run *redis, ddl_error *err);

/* Rank 0 leaves the place, if it still has it. */
void ddl_redis_meeting_leave(ddl_redis_run *redis);

#endif
