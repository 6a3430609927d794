/*
 * store_redis_life.h - who of a run in a Redis server still lives.
 *
 * Rank 0 looks for the others, these for rank 0; the will of whoever is gone is executed.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_LIFE_H
#define DDL_RENDEZVOUS_STORE_REDIS_LIFE_H

#include "rendezvous/store_redis_run.h"

enum {
    DDL_REDIS_LIFE_INTERVAL_MS = 800, /* between looks at who still lives */
    DDL_REDIS_LIFE_AGAIN_MS = 200,    /* before somebody who seems to be gone is looked for once more */
};

/* Rank 0: of the others nobody is known yet. */
DDL_MUST_USE ddl_status ddl_redis_life_init(ddl_redis_run *redis, ddl_error *err);
void ddl_redis_life_fini(ddl_redis_run *redis);

/* Rank 0. What nobody of this run has said there is passed over: whoever can write could remove it as well.
 */
void ddl_redis_life_hear_will(ddl_redis_run *redis, const ddl_redis_reply *entry);

/* From time to time while we wait: are we still seen, and are the others? */
DDL_MUST_USE ddl_status ddl_redis_life_look(ddl_redis_run *redis, ddl_error *err);

/* Rank 0 seems to have left: look a moment later whether that is so. */
DDL_MUST_USE ddl_status ddl_redis_life_look_twice(ddl_redis_run *redis, bool *gone, ddl_error *err);

/* Rank 0 is gone: fail with its will, if it has left one. Unlike others it leaves the place with its run. */
DDL_MUST_USE ddl_status ddl_redis_life_mourn(ddl_redis_run *redis, ddl_error *err);

/* The run is over without a word; what was set in it since rank 0 removed it is removed too. */
DDL_MUST_USE ddl_status ddl_redis_life_report_lost(ddl_redis_run *redis, ddl_error *err);

/* Whether nobody else has to hear anything more: all know that the run is settled, or have left. */
DDL_MUST_USE ddl_status ddl_redis_life_all_know(ddl_redis_run *redis, int64_t block_ms, bool *all,
                                                ddl_error *err);

#endif
