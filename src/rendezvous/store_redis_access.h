/*
 * store_redis_access.h - what lets a rank in at a Redis server: whom it trusts, its certificate, its
 * password.
 *
 * All of it is in files that the URL names, on file systems that may hang; so it is read once, by deadline,
 * and kept for connections that are made later.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_ACCESS_H
#define DDL_RENDEZVOUS_STORE_REDIS_ACCESS_H

#include "base/clock.h"
#include "io/tls.h"
#include "rendezvous/store_redis_url.h"

typedef struct ddl_redis_access {
    ddl_tls_party *tls;                      /* NULL: plain */
    char password[DDL_REDIS_PASSWORD_BYTES]; /* "": none */
} ddl_redis_access;

/*
 * Read what url names. DDL_ECONFIG: a file is not what it should be. DDL_EUNSUPPORTED: a build without TLS.
 * DDL_ETIMEDOUT: a file server has not answered by the deadline.
 */
DDL_MUST_USE ddl_status ddl_redis_access_read(const ddl_redis_url *url, ddl_deadline deadline,
                                              ddl_redis_access **access, ddl_error *err);

/* Wipes the password. NULL is fine. */
void ddl_redis_access_destroy(ddl_redis_access *access);

#endif
