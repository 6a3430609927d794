/* store_redis_none.c - a build without hiredis: redis:// is known, and what it would take is told. */
#include "rendezvous/store.h"

static ddl_status none_open(const ddl_store_options *options, const char *rest, ddl_deadline deadline,
                            ddl_store **store, ddl_error *err)
{
    (void)options;
    (void)rest;
    (void)deadline;
    (void)store;
    return DDL_FAIL(err, DDL_EUNSUPPORTED,
                    "DDL_STORE names a Redis server, and this ddl was built without Redis; install hiredis "
                    "(libhiredis-dev) and build it again, or use tcp:// or file://");
}

const struct ddl_store_ops ddl_store_redis = { .scheme = "redis", .form = "host:port", .open = none_open };
const struct ddl_store_ops ddl_store_rediss = { .scheme = "rediss", .form = "host:port", .open = none_open };
