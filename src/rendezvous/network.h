/*
 * network.h - what a user says of the network: DDL_IFACE, DDL_ADVERTISE, DDL_PORT_RANGE.
 *
 * Where a rank then listens is in network_own.h, where rank 0 is met in network_master.h. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_NETWORK_H
#define DDL_RENDEZVOUS_NETWORK_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"

/* What the launcher says of the hosts of a job. */
typedef enum ddl_spread {
    DDL_SPREAD_UNKNOWN,
    DDL_SPREAD_ONE, /* all ranks are on this host */
    DDL_SPREAD_SEVERAL
} ddl_spread;

/* All zero: nothing is said. */
typedef struct ddl_network {
    char iface[256];         /* a choice as of interface.h, "" if none */
    char advertise[256];     /* host by which others reach this one, "" if it is the one listened at */
    uint16_t advertise_port; /* for them: what the first of ports is; 0: ports are the same */
    ddl_port_range ports;    /* among which to listen */
    ddl_spread spread;
} ddl_network;

/* For those to whom nothing was said. */
extern const ddl_network ddl_network_unsaid;

/* Each may be NULL. DDL_ECONFIG: malformed. spread is left alone. */
DDL_MUST_USE ddl_status ddl_network_parse(const char *iface, const char *advertise, const char *ports,
                                          ddl_network *network, ddl_error *err);

/* The choice as interface.h takes it; NULL: none. */
const char *ddl_network_iface(const ddl_network *network);

/* The address, port 0, that DDL_ADVERTISE, which is set, stands for. DDL_ENETWORK: none. */
DDL_MUST_USE ddl_status ddl_network_resolve_advertise(const ddl_network *network, ddl_deadline deadline,
                                                      ddl_address *address, ddl_error *err);

#endif
