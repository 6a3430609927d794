/*
 * redis_server.h - a Redis server of a test's own: on a free port, in a directory of its own, gone at the
 * end.
 */
#ifndef DDL_TESTS_RENDEZVOUS_REDIS_SERVER_H
#define DDL_TESTS_RENDEZVOUS_REDIS_SERVER_H

#include "base/bytes.h"

/*
 * Start one, unless it runs; its port, or 0 where there is no redis-server or a build without Redis (said on
 * stderr). Call it from the main thread. A server that does not come up ends the program.
 */
int redis_server_port(void);

/* Its port for rediss://, or 0 as above and in tests that are built without MAKE_CERTIFICATES. */
int redis_server_tls_port(void);

/* The file of the authority that vouches for its certificate. */
const char *redis_server_authority(void);

/* One command, as separate words, and what the server says (its first bytes, up to reply_bytes, and a zero).
 */
void redis_server_ask(const ddl_view words[], size_t count, char *reply, size_t reply_bytes);

/* How many keys it holds. */
int redis_server_keys(void);

/* Stop it and remove its directory. Fine if there is none. */
void redis_server_stop(void);

#endif
