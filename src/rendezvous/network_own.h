/*
 * network_own.h - where this rank listens, what it tells the others of that, and where these call it.
 *
 * Thread: any.
 */
#ifndef DDL_RENDEZVOUS_NETWORK_OWN_H
#define DDL_RENDEZVOUS_NETWORK_OWN_H

#include "protocol/roster.h"
#include "rendezvous/network.h"

#include <stdbool.h>

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

#endif
