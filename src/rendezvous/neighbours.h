/*
 * neighbours.h - ranks of one host hand each other the descriptors of their shared memory and of their bells.
 *
 * The lowest rank of the host, the usher, collects what its ranks share and hands it to all of them: so a
 * host with n ranks takes n calls and a few messages for each, where pairs that met by themselves took n
 * squared of both. All are connected to it. A pair that connects late has no memory in common.
 *
 * Comes after the mesh is connected and before it carries frames: what they have to tell each other first,
 * and agree on last, goes over the mesh's own connections, so a neighbour is whoever the usher has at the
 * other end of one. The descriptors go over Unix sockets whose name was told there. Whatever of it does not
 * work leaves a pair without, and its messages to TCP; only a lost connection is a failure.
 *
 * Blocks at most until half a second after the deadline, at the usher until a little before the earliest of
 * the others'. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_NEIGHBOURS_H
#define DDL_RENDEZVOUS_NEIGHBOURS_H

#include "base/clock.h"
#include "base/error.h"
#include "io/wire.h"
#include "protocol/roster.h"
#include "rendezvous/neighbours_apart.h"

#include <stdbool.h>

typedef struct ddl_neighbour {
    int memory_fd, bell_fd; /* -1: this pair has no memory in common */
} ddl_neighbour;

/*
 * others[rank] becomes what each rank of this host that is connected handed over, the caller's to close; -1s
 * for other ranks. own: what this rank hands over, -1s for nothing; wires[rank]: the mesh's connections,
 * non-blocking. Added to apart: whoever stays without for a reason that is this rank's to tell.
 * DDL_EPEERLOST, DDL_EPROTO, DDL_ETIMEDOUT: the error blames the rank; nothing was handed over then.
 */
DDL_MUST_USE ddl_status ddl_neighbours_meet(const ddl_roster *roster, ddl_wire wires[], ddl_neighbour own,
                                            ddl_deadline deadline, ddl_neighbour others[], ddl_apart *apart,
                                            ddl_error *err);

/* What a pair has in common. */
enum { DDL_SHARES_LANES = 1, DDL_SHARES_HEAPS = 2 };

/* shares[rank]: which of what that rank handed over this rank could map; becomes which both could. *common:
 * what all pairs of this host's ranks share. */
DDL_MUST_USE ddl_status ddl_neighbours_agree(const ddl_roster *roster, ddl_wire wires[],
                                             ddl_deadline deadline, uint8_t shares[], uint8_t *common,
                                             ddl_error *err);

#endif
