/*
 * interface.h - this machine's own addresses, and which of them to use.
 *
 * A choice, as DDL_IFACE has it, is a list: "ib0,eth*,10.0.0.0/8". An item is the name of an interface ("eth"
 * stands for eth0, eth1, ... too, "eth*" for all that begin so), a network or an address; the first that is
 * there counts. "^" excludes an item; before the first item, all of them: "^docker0,lo".
 */
#ifndef DDL_IO_INTERFACE_H
#define DDL_IO_INTERFACE_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"

/* "lo 127.0.0.1/8, eth0 10.0.0.5/24": addresses of the interfaces that are up, cut to fit text. */
void ddl_interfaces_text(char *text, size_t text_bytes);

/* Whether address is one of this machine's own. */
bool ddl_interface_is_local(const ddl_address *address);

/* Whether the loopback interface is down, by which a machine reaches any of its own addresses. */
bool ddl_interface_no_loopback(void);

/*
 * One of this machine's addresses, port 0, by the choice (NULL: any), and of several that fit alike:
 * preferred (an own address, or NULL); else one that leads out of this network; else what is not of a bridge
 * or tunnel for containers; IPv4 before IPv6, loopback last; of alike ones one that can be used now.
 * DDL_ECONFIG: the choice is malformed; DDL_ENETWORK: nothing fits. The text of both lists what there is.
 */
DDL_MUST_USE ddl_status ddl_interface_choose(const char *choice, const ddl_address *preferred,
                                             ddl_address *address, ddl_error *err);

/*
 * An address that was set just now cannot be used before the system has found that no other host has it (IPv6
 * duplicate address detection). Wait until this own one can, some seconds at most and not beyond the
 * deadline; false: it still cannot, as DDL_INTERFACE_NOT_YET says.
 */
bool ddl_interface_await(const ddl_address *own, ddl_deadline deadline);
#define DDL_INTERFACE_NOT_YET                                    \
    "is not usable yet (duplicate address detection), or never " \
    "will be, as another host has it too; see ip -6 addr"

/*
 * The address of the other family, IPv6 for IPv4, on the interface that has this own one, if the choice
 * (NULL: any) allows it. False: there is none that others can reach.
 */
bool ddl_interface_other_family(const char *choice, const ddl_address *own, ddl_address *other);

#endif
