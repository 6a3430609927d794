/*
 * plan_cache.h - the plans of the calls that came last, by shape.
 *
 * Everything here is for the holder of the engine's baton only.
 */
#ifndef DDL_BACKEND_PLAN_CACHE_H
#define DDL_BACKEND_PLAN_CACHE_H

#include "backend/plan.h"

typedef struct ddl_plan_cache ddl_plan_cache;

/* has_board: of a communicator that has one. NULL: no memory. */
ddl_plan_cache *ddl_plan_cache_create(bool has_board);

/* No plan may have users. NULL is fine. */
void ddl_plan_cache_destroy(ddl_plan_cache *cache);

/* The plan for such a call, made if it is not there; valid until the next find, or while it has users. With
 * post_bytes in the shape it goes over the board, which its phases have a oneshot for, if that is possible.
 * As ddl_plan_create. */
DDL_MUST_USE ddl_status ddl_plan_cache_find(ddl_plan_cache *cache, const ddl_algorithm *algorithm,
                                            const ddl_shape *shape, ddl_plan **found, ddl_error *err);

/* Likewise, for one who wants to know how such a call would go, before it is found for it. */
DDL_MUST_USE ddl_status ddl_plan_cache_look(ddl_plan_cache *cache, const ddl_algorithm *algorithm,
                                            const ddl_shape *shape, ddl_plan **found, ddl_error *err);

#endif
