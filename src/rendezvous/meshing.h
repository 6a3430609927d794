/*
 * meshing.h - connects this rank to every other: lower ranks are called, higher ones call.
 *
 * All of it happens on the service loop; the owner waits. What it knows of the others is the roster.
 * Thread: any but service.
 */
#ifndef DDL_RENDEZVOUS_MESHING_H
#define DDL_RENDEZVOUS_MESHING_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"
#include "io/service.h"
#include "protocol/hello.h"
#include "rendezvous/encryption.h"
#include "rendezvous/network.h"

typedef struct ddl_meshing ddl_meshing;

/* Listen at place->listen for higher ranks of the run self->run_id, on one of ports (0: any); found[] is
 * which. encryption: NULL below level tls. */
DDL_MUST_USE ddl_status ddl_meshing_open(ddl_service *service, const ddl_hello_party *self,
                                         const ddl_encryption *encryption, const ddl_network_place *place,
                                         ddl_port_range ports, uint16_t found[DDL_NETWORK_LISTEN_MAX],
                                         ddl_meshing **meshing, ddl_error *err);

/* Begin to call the lower ranks. The roster must outlive the meshing. */
void ddl_meshing_start(ddl_meshing *meshing, const ddl_roster *roster);

/*
 * Wait until every rank is connected. DDL_ETIMEDOUT: not by the deadline; call again.
 * DDL_ENETWORK, DDL_EPEERLOST, DDL_EPROTO, ...: a rank cannot be had; the error blames it.
 */
DDL_MUST_USE ddl_status ddl_meshing_wait(ddl_meshing *meshing, ddl_deadline deadline, ddl_error *err);

/* connected[rank]: whether it is; the own rank counts as connected. */
void ddl_meshing_connected(ddl_meshing *meshing, bool connected[]);

/* Hand over the connections, none for the own rank. All are there. */
void ddl_meshing_take(ddl_meshing *meshing, ddl_wire wires[]);

/* Close the listener and every connection that was not taken. NULL is fine. */
void ddl_meshing_close(ddl_meshing *meshing);

#endif
