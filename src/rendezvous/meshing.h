/*
 * meshing.h - connects this rank to others: lower ranks are called, higher ones call.
 *
 * All of it happens on the service loop. What it knows of the others is the roster. It says which pairs are
 * connected at the start, and the owner waits for these. The other pairs connect late: when either end asks
 * for it. Whatever has a deadline may end by DDL_ETIMEDOUT, as service.h has it. Thread: any but service,
 * where nothing else is said.
 */
#ifndef DDL_RENDEZVOUS_MESHING_H
#define DDL_RENDEZVOUS_MESHING_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"
#include "io/service.h"
#include "protocol/hello.h"
#include "rendezvous/encryption.h"
#include "rendezvous/network_own.h"

typedef struct ddl_meshing ddl_meshing;

/* Listen at place->listen for higher ranks of the run self->run_id, on one of ports (0: any); found[] is
 * which. encryption: NULL below level tls. local: ranks of this host may be connected through Unix sockets.
 */
DDL_MUST_USE ddl_status ddl_meshing_open(ddl_service *service, const ddl_hello_party *self,
                                         const ddl_encryption *encryption, const ddl_network_place *place,
                                         ddl_port_range ports, bool local, ddl_deadline deadline,
                                         uint16_t found[DDL_NETWORK_LISTEN_MAX], ddl_meshing **meshing,
                                         ddl_error *err);

/* Begin to call the lower ranks of those to be connected at the start. The roster must outlive the meshing.
 * limit_ms: after so long at most a rank that is connected late cannot be had. */
DDL_MUST_USE ddl_status ddl_meshing_start(ddl_meshing *meshing, const ddl_roster *roster, int64_t limit_ms,
                                          ddl_deadline deadline, ddl_error *err);

/*
 * Wait until all of them are connected. DDL_ETIMEDOUT: not by the deadline; call again.
 * DDL_ENETWORK, DDL_EPEERLOST, DDL_EPROTO, ...: a rank cannot be had; the error blames it.
 */
DDL_MUST_USE ddl_status ddl_meshing_wait(ddl_meshing *meshing, ddl_deadline deadline, ddl_error *err);

/* connected[rank]: whether it is; the own rank, and those that connect late, count as connected. */
void ddl_meshing_connected(ddl_meshing *meshing, bool connected[]);

/* Hand over the connections; none for the own rank, and for those that connect late. The others are there. */
void ddl_meshing_take(ddl_meshing *meshing, ddl_wire wires[]);

/* The same of the further connections to a rank, roster->nstreams; none where ddl_roster_streams says so. */
void ddl_meshing_take_streams(ddl_meshing *meshing, int rank, ddl_wire streams[]);

/* From now on ranks can be connected, and pairs widened, late. */
DDL_MUST_USE ddl_status ddl_meshing_serve(ddl_meshing *meshing, ddl_deadline deadline, ddl_error *err);

/* Call hear on the service thread when there is an outcome; it may already be there. It must not wait for a
 * call into the meshing. */
void ddl_meshing_listen(ddl_meshing *meshing, void (*hear)(void *arg), void *arg);

/* Connect to this rank, if it is not connected nor about to be. Never blocks. Thread: any. */
void ddl_meshing_reach(ddl_meshing *meshing, int rank);

/* Make the further connections to it that are made late, if this is not being done. The same. */
void ddl_meshing_widen(ddl_meshing *meshing, int rank);

/* What came of a rank that connects late; also without having been asked for, when it was the other end that
 * asked. */
typedef struct ddl_meshing_outcome {
    int rank;
    bool widens;     /* or of further connections alone: as many as ddl_roster_most_streams says */
    bool has_come;   /* else there are none, and why: */
    ddl_error error; /* DDL_EPEERLOST: it is not there any more. DDL_EUNREACHABLE, DDL_EUNRESPONSIVE, ... */
    ddl_wire wire;   /* connected, the caller's; none where pairs widen */
    ddl_wire streams[DDL_STREAMS_MAX]; /* further ones: as many as ddl_roster_streams says, or these */
} ddl_meshing_outcome;

/* The next outcome; each rank has at most one of each kind. False: there is none. Never blocks. Thread: any.
 */
bool ddl_meshing_next(ddl_meshing *meshing, ddl_meshing_outcome *outcome);

/* In a forked child. */
void ddl_meshing_close_in_child(const ddl_meshing *meshing);

/* Close the listener and every connection that was not taken. NULL is fine. DDL_ETIMEDOUT: the service thread
 * is lost, and the meshing stays, with its roster. */
ddl_status ddl_meshing_close(ddl_meshing *meshing, ddl_deadline deadline, ddl_error *err);

#endif
