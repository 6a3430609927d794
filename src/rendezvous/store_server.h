/*
 * store_server.h - the tcp store's server: one run's keys, on the service loop of rank 0.
 *
 * It speaks protocol/store_wire.h behind a listener. It notices when a client's connection ends, and
 * executes its will. Thread: any but service.
 */
#ifndef DDL_RENDEZVOUS_STORE_SERVER_H
#define DDL_RENDEZVOUS_STORE_SERVER_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"
#include "io/service.h"
#include "protocol/hello.h"
#include "rendezvous/encryption.h"
#include "rendezvous/store.h"

typedef struct ddl_store_server ddl_store_server;

enum { DDL_STORE_SERVER_DOORS = 4 }; /* addresses at which one server listens, at most */

/* Serve the run self->run_id of self->nranks ranks at address; encryption: NULL below level tls. Errors as of
 * ddl_socket_listen, and DDL_ETIMEDOUT as service.h has it. */
DDL_MUST_USE ddl_status ddl_store_server_open(ddl_service *service, const ddl_hello_party *self,
                                              const ddl_encryption *encryption, const ddl_address *address,
                                              ddl_deadline deadline, ddl_address *bound,
                                              ddl_store_server **server, ddl_error *err);

/* Serve it at this address too, which must not be one too many. Errors as before. */
DDL_MUST_USE ddl_status ddl_store_server_open_also(ddl_store_server *server, const ddl_address *address,
                                                   ddl_deadline deadline, ddl_error *err);

/*
 * For rank 0 itself, at store: look for these keys, and wait for them until the deadline. DDL_ETIMEDOUT; or
 * what the run has failed with.
 */
DDL_MUST_USE ddl_status ddl_store_server_get_many(ddl_store_server *server, const ddl_store *store,
                                                  const ddl_store_many *many, ddl_deadline deadline,
                                                  ddl_error *err);

/*
 * Once all clients know how the run came out (failed or settled), or at the deadline, close everything.
 * NULL is fine. If the service thread is lost the server stays.
 */
void ddl_store_server_close(ddl_store_server *server, ddl_deadline deadline);

#endif
