/*
 * neighbours_usher.h - the lowest rank of a host, the usher, collects what its ranks share and hands it to
 * all of them.
 *
 * Where all ranks of a host are connected to each other when neighbours meet. So a host with n ranks takes n
 * calls and a few messages for each, where pairs that met by themselves took n squared of both.
 *
 * Blocks at most until half a second after the deadline, at the usher until a little before the earliest of
 * the others'. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_NEIGHBOURS_USHER_H
#define DDL_RENDEZVOUS_NEIGHBOURS_USHER_H

#include "rendezvous/neighbours.h"

/* As ddl_neighbours_meet and ddl_neighbours_agree, for worlds with ddl_roster_connects_hosts. */
DDL_MUST_USE ddl_status ddl_usher_meet(const ddl_roster *roster, ddl_wire wires[], ddl_neighbour own,
                                       ddl_deadline deadline, ddl_neighbour others[], ddl_apart *apart,
                                       ddl_error *err);
DDL_MUST_USE ddl_status ddl_usher_agree(const ddl_roster *roster, ddl_wire wires[], ddl_deadline deadline,
                                        uint8_t shares[], uint8_t *common, ddl_error *err);

#endif
