/* startup.c - counts of a start-up, and their price. */
#include "simulate/startup.h"

#include "protocol/hello.h"
#include "protocol/overlay.h"
#include "protocol/store_wire.h"

enum {
    HELLO_BYTES = DDL_HELLO_CLIENT_BYTES + DDL_HELLO_SERVER_BYTES + DDL_HELLO_FINISH_BYTES,
    HELLO_MESSAGES = 3,
    REQUESTS = 5, /* will, member, roster, meshed, settled */
    REQUEST_BYTES =
        160, /* of a request and its answer, with keys and seals, but without a roster or a member */
    MEMBER_BYTES = 60, /* a rank's record: fixed fields, a short host name and an address */
    ROSTER_HEAD_BYTES = 28 + 8 * 26,
    ROUND_TRIPS = 10 /* one after the other: two connections with a handshake, the five requests and what is
                        between them */
};

/* Fitted to bench/startup.py on 2 cores of an AMD EPYC, Linux 6.18: docs/rendezvous.md has model and
 * measurement side by side. */
ddl_startup_costs ddl_startup_default(void)
{
    return (ddl_startup_costs){
        .rank_ns = 4e6,
        .connection_ns = 130e3,
        .entry_ns = 3e3,
        .client_ns = 100e3,
        .bytes_per_ns = 1,
        .round_trip_ns = 50e3,
    };
}

ddl_startup ddl_startup_predict(const ddl_startup_world *world, const ddl_startup_costs *costs)
{
    double n = world->nranks;
    double per_rank = world->lazy ? ddl_overlay_degree(world->nranks) : n - 1;
    double roster_bytes = ROSTER_HEAD_BYTES + n * MEMBER_BYTES;
    ddl_startup startup = {
        .connections_per_rank = per_rank,
        .connections = n * per_rank / 2,
        .store_requests = n * REQUESTS,
        .store_bytes_per_rank = HELLO_BYTES + REQUESTS * REQUEST_BYTES + MEMBER_BYTES + roster_bytes,
        .is_beyond_store = roster_bytes > DDL_STORE_ROSTER_LIMIT,
    };
    int words = world->lazy ? HELLO_MESSAGES + 1 : HELLO_MESSAGES; /* the door confirms */
    startup.mesh_messages = startup.connections * words;
    startup.mesh_bytes = startup.connections * (HELLO_BYTES + words - HELLO_MESSAGES);
    startup.store_bytes = n * startup.store_bytes_per_rank;
    double local = world->ranks_per_host < world->nranks ? world->ranks_per_host : n;
    double rank_ns = costs->rank_ns + per_rank / 2 * costs->connection_ns + n * costs->entry_ns;
    double rounds = local / world->cores_per_host; /* of ranks that take turns on a core */
    double host_ns = rank_ns * (rounds > 1 ? rounds : 1);
    double server_ns = n * costs->client_ns + startup.store_bytes / costs->bytes_per_ns;
    /* Where ranks share the cores with the server, its work is one more share. */
    startup.seconds = (host_ns + server_ns + ROUND_TRIPS * costs->round_trip_ns) / 1e9;
    return startup;
}
