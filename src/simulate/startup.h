/*
 * startup.h - what a start-up costs: a model of messages, bytes and time, by number of ranks.
 *
 * Pure. It counts what the protocol says (docs/rendezvous.md) over a tcp store; time is counts times
 * constants, shared among the cores of a host, and the work of rank 0, which nobody shares.
 */
#ifndef DDL_SIMULATE_STARTUP_H
#define DDL_SIMULATE_STARTUP_H

#include <stdbool.h>

/* What things take, in ns of one core. */
typedef struct ddl_startup_costs {
    double rank_ns;         /* a process: to start, to read its settings, to meet, to listen */
    double connection_ns;   /* both ends of a connection, with its handshake */
    double introduction_ns; /* the same where an usher hands them out */
    double entry_ns;        /* a rank's entry in the roster, for each rank that reads it */
    double client_ns;       /* rank 0: a client of the store, with all of its requests */
    double bytes_per_ns;    /* rank 0: what its store sends */
    double round_trip_ns;   /* between hosts */
} ddl_startup_costs;

typedef struct ddl_startup_world {
    int nranks, ranks_per_host, cores_per_host;
    int host_bytes, address_bytes; /* of the texts of a rank's host name and address */
    bool lazy;                     /* the overlay is connected, and ranks to their usher, not all pairs */
} ddl_startup_world;

typedef struct ddl_startup {
    double store_requests, store_bytes; /* of all ranks, rank 0 included; requests without handshakes */
    double connections, introductions;  /* introductions: connections that ushers hand out */
    double mesh_messages, mesh_bytes;
    double connections_per_rank, store_bytes_per_rank;
    double seconds;
    bool is_beyond_store; /* the roster is more than the store takes: no run can start like this */
} ddl_startup;

enum {
    DDL_STARTUP_HOST_BYTES = 10,    /* "node-00017" */
    DDL_STARTUP_ADDRESS_BYTES = 14, /* "192.168.120.17" */
    DDL_STARTUP_COSTS = 13          /* constants of the cost model, in the roster */
};

/* As measured; startup.c says where. */
ddl_startup_costs ddl_startup_default(void);

ddl_startup ddl_startup_predict(const ddl_startup_world *world, const ddl_startup_costs *costs);

#endif
