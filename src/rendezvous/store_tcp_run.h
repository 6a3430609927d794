/*
 * store_tcp_run.h - a run at a server of rank 0, as the files of that store share it.
 *
 * Here is how the ranks come there; what they ask is in store_tcp.c.
 */
#ifndef DDL_RENDEZVOUS_STORE_TCP_RUN_H
#define DDL_RENDEZVOUS_STORE_TCP_RUN_H

#include "protocol/store_wire.h"
#include "rendezvous/store.h"
#include "rendezvous/store_server.h"

typedef struct ddl_tcp_run {
    ddl_store base; /* held[0]: the connection's descriptor */
    ddl_wire wire;
    uint32_t next_id;
    ddl_store_inbox inbox;
    ddl_bytes rest;           /* of a message that was cut by its deadline: it goes before the next */
    ddl_store_server *server; /* rank 0 */
    ddl_deadline end;         /* of all questions: beyond the deadline of the start */
    bool is_silent;           /* it has left a question without an answer, and said nothing since */
    bool failed;
    ddl_error failure;
    char where[DDL_ADDRESS_FULL_TEXT];
} ddl_tcp_run;

/* ---- store_tcp_meeting.c: how a rank is let in ---- */

/* Rank 0 calls at the one address where it listens; for others addresses has room for all of a name. What a
 * stranger may have said at one of them is final once there is nothing to hope for at the others. host and
 * rest: as it was named, without and with its port. */
DDL_MUST_USE ddl_status ddl_tcp_run_enter(ddl_tcp_run *tcp, const ddl_store_options *options,
                                          const char *host, ddl_address addresses[], int count,
                                          const char *rest, ddl_deadline deadline, ddl_error *err);

/* ---- store_tcp_serving.c: rank 0 opens its server ---- */

/* At all of these addresses that are this host's; *bound is the first of them. host: as they were named.
 * DDL_ENETWORK: none is this host's, or the port is in use at one of them. */
DDL_MUST_USE ddl_status ddl_tcp_run_serve(ddl_tcp_run *tcp, const ddl_store_options *options,
                                          const ddl_address addresses[], int count, const char *host,
                                          ddl_deadline deadline, ddl_address *bound, ddl_error *err);

#endif
