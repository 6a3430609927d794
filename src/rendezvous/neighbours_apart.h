/*
 * neighbours_apart.h - the ranks of this host with which there will be no shared memory, for one warning
 * about all.
 *
 * Whatever goes wrong with many ranks mostly does so for one reason: the first is told.
 */
#ifndef DDL_RENDEZVOUS_NEIGHBOURS_APART_H
#define DDL_RENDEZVOUS_NEIGHBOURS_APART_H

#include "base/error.h"

#include <stdbool.h>

typedef struct ddl_apart {
    int nranks;
    bool *ranks;   /* nranks of them; the caller's */
    bool some;     /* of ranks */
    bool all;      /* nobody shares with this rank */
    ddl_error why; /* if there are any */
} ddl_apart;

void ddl_apart_add(ddl_apart *apart, int rank, const ddl_error *why);
void ddl_apart_add_all(ddl_apart *apart, const ddl_error *why);

/* Log the warning, if there are any. */
void ddl_apart_warn(const ddl_apart *apart);

#endif
