/*
 * network_master.h - the addresses at which rank 0 is met, if a user says that it is at host and port.
 *
 * A name that means loopback here, as Debian has it, or that nobody knows though it is this host's own, is no
 * use to other hosts: then, and behind a NAT, the interface counts. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_NETWORK_MASTER_H
#define DDL_RENDEZVOUS_NETWORK_MASTER_H

#include "io/resolve.h"
#include "rendezvous/network.h"

enum { DDL_NETWORK_MASTER_MAX = DDL_RESOLVE_MAX + 1 };

/*
 * Where to listen, as rank 0: at the interface instead of what other hosts cannot use. DDL_ENETWORK: the name
 * cannot be resolved; DDL_ECONFIG: a link-local address of IPv6 without an interface.
 */
DDL_MUST_USE ddl_status ddl_master_addresses_to_listen(const ddl_network *network, const char *host,
                                                       uint16_t port, ddl_deadline deadline,
                                                       ddl_address addresses[DDL_NETWORK_MASTER_MAX],
                                                       int *count, ddl_error *err);

/* Where to call rank 0, which may be on this host: at what the name says, and at the interface too. Errors
 * alike. */
DDL_MUST_USE ddl_status ddl_master_addresses_to_call(const ddl_network *network, const char *host,
                                                     uint16_t port, ddl_deadline deadline,
                                                     ddl_address addresses[DDL_NETWORK_MASTER_MAX],
                                                     int *count, ddl_error *err);

#endif
