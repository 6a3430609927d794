/*
 * connect.h - one connection to whichever of several addresses answers.
 *
 * Thread: any.
 */
#ifndef DDL_IO_CONNECT_H
#define DDL_IO_CONNECT_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"

enum { DDL_CONNECT_MAX = 16 };

/*
 * Connect to one of at most DDL_CONNECT_MAX addresses: tried in order, each with a head start of 250 ms, and
 * the first that answers wins (RFC 8305). *which is its index. DDL_ENETWORK with os_errno and the address:
 * none answered by the deadline; of several failures one that is not about routes. DDL_ERESOURCE: out of
 * descriptors.
 */
DDL_MUST_USE ddl_status ddl_connect_any(const ddl_address to[], int count, ddl_deadline deadline, int *fd,
                                        int *which, ddl_error *err);

/* Whether this errno of a connect says that there is no way to the address, rather than nobody at it. */
bool ddl_connect_lacks_route(int os_errno);

#endif
