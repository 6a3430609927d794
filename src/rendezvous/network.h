/*
 * network.h - what a user says of the network (DDL_IFACE, DDL_ADVERTISE, DDL_PORT_RANGE), and what follows:
 * where a rank listens, what it tells the others, and where rank 0 is met.
 */
#ifndef DDL_RENDEZVOUS_NETWORK_H
#define DDL_RENDEZVOUS_NETWORK_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"
#include "io/resolve.h"
#include "protocol/roster.h"

#include <stdbool.h>

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

/* ---- this rank ---- */

enum { DDL_NETWORK_LISTEN_MAX = 2 };

/* Where a rank listens for the others, and where they call it. */
typedef struct ddl_network_place {
    ddl_address listen[DDL_NETWORK_LISTEN_MAX]; /* port 0 */
    int nlisten;
    ddl_address advertise; /* port 0 */
    bool advertises;       /* else what it listens at is told */
} ddl_network_place;

/*
 * Choose: what DDL_IFACE says, or the own address that leads to the store ("" if it has none). The same
 * interface in the other family too where the meeting place is a name or a directory, as then ranks may have
 * come to it in either. DDL_ENETWORK: no such interface, its address cannot be used, or DDL_ADVERTISE cannot
 * be resolved; DDL_ECONFIG: DDL_IFACE is malformed.
 */
DDL_MUST_USE ddl_status ddl_network_choose(const ddl_network *network, const char *store, const char *master,
                                           const char *leads, ddl_deadline deadline, ddl_network_place *place,
                                           ddl_error *err);

/* Write into *member what others call; ports are those that place->listen came to. */
void ddl_network_tell(const ddl_network *network, const ddl_network_place *place, const uint16_t ports[],
                      ddl_member *member);

/* At most that many addresses at which self calls peer, in order; 0: the peer gave nonsense. */
enum { DDL_NETWORK_CALL_MAX = 2 };
int ddl_network_call(const ddl_member *self, const ddl_member *peer, bool is_neighbour,
                     ddl_address addresses[DDL_NETWORK_CALL_MAX]);

/* ---- rank 0 ---- */

enum { DDL_NETWORK_MASTER_MAX = DDL_RESOLVE_MAX + 1 };

/*
 * The addresses at which rank 0 is met, if a user says that it is at host and port: where to listen, if
 * serves, else where to call. A name that means loopback here, as Debian has it, or that nobody knows though
 * it is this host's own, is no use to other hosts: then, and behind a NAT, the interface counts.
 * DDL_ENETWORK: the name cannot be resolved; DDL_ECONFIG: a link-local address of IPv6 without an interface.
 */
DDL_MUST_USE ddl_status ddl_network_find_master(const ddl_network *network, bool serves, const char *host,
                                                uint16_t port, ddl_deadline deadline,
                                                ddl_address addresses[DDL_NETWORK_MASTER_MAX], int *count,
                                                ddl_error *err);

#endif
