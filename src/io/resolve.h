/*
 * resolve.h - from a host's name to addresses, in bounded time.
 *
 * A name server that does not answer must not hold anybody: the lookup runs on a thread that is given up once
 * its time is over. Numeric addresses and "localhost" never ask anyone. No reverse lookups, ever.
 */
#ifndef DDL_IO_RESOLVE_H
#define DDL_IO_RESOLVE_H

#include "base/clock.h"
#include "base/error.h"
#include "io/address.h"

enum { DDL_RESOLVE_MAX = 8 };

/*
 * Up to DDL_RESOLVE_MAX addresses of name, each with port, in the order to try them; 10 s at most.
 * DDL_ENETWORK: the name is unknown, or nobody answered by the deadline. Thread: any.
 */
DDL_MUST_USE ddl_status ddl_resolve(const char *name, uint16_t port, ddl_deadline deadline,
                                    ddl_address addresses[DDL_RESOLVE_MAX], int *count, ddl_error *err);

/* The same, and again while the name is unknown, as that of a host which has just been started may be: all in
 * all by the deadline, and 10 s at most. */
DDL_MUST_USE ddl_status ddl_resolve_soon(const char *name, uint16_t port, ddl_deadline deadline,
                                         ddl_address addresses[DDL_RESOLVE_MAX], int *count, ddl_error *err);

#endif
