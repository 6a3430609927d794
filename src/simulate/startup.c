/* startup.c - counts of a start-up, and their price. */
#include "simulate/startup.h"

#include "protocol/hello.h"
#include "protocol/overlay.h"
#include "protocol/store_wire.h"

enum {
    HELLO_BYTES = DDL_HELLO_CLIENT_BYTES + DDL_HELLO_SERVER_BYTES + DDL_HELLO_FINISH_BYTES,
    HELLO_MESSAGES = 3,
    MESH_MESSAGES = HELLO_MESSAGES + 1, /* the door confirms, by a byte */
    NOTE_BYTES = 488, /* of an usher, which introduces eight ranks to eight others at a time */
    NOTE_RANKS = 8,
    /* The will is set; then the others set their own member, get the roster, set their own meshed and get
     * settled. Rank 0 sets all four, and reads what the others have set where it is: in its own memory. */
    REQUESTS = 5,
    KEYS = sizeof "memberrostermeshedsettled" - 1,
    NUMBERED_KEYS = 2,
    SEALS = 4, /* of the values of those keys, whoever sets them */
    WILL_BYTES =
        12 + sizeof "rank  on [1234567] ended before all ranks were connected; look at its output" - 1,
    MEMBER_HEAD_BYTES = 36,
    ROSTER_HEAD_BYTES = 28 + 8 * DDL_STARTUP_COSTS,
    ROSTER_ENTRY_HEAD_BYTES = 2 + MEMBER_HEAD_BYTES,
    ROUND_TRIPS = 10 /* one after the other: two connections with a handshake, the five requests and what is
                        between them */
};

/* Fitted to bench/startup.py on 2 cores of an AMD EPYC, Linux 6.18, but for introductions, which were
 * measured on another machine that takes 1.4 times as long: docs/rendezvous.md has model and measurement side
 * by side. */
ddl_startup_costs ddl_startup_default(void)
{
    return (ddl_startup_costs){
        .rank_ns = 4e6,
        .connection_ns = 130e3,
        .introduction_ns = 60e3,
        .entry_ns = 3e3,
        .client_ns = 100e3,
        .bytes_per_ns = 1,
        .round_trip_ns = 50e3,
    };
}

static int digits(int number)
{
    int count = 1;
    for (; number >= 10; number /= 10)
        count++;
    return count;
}

/* Of a rank's requests to the store, with their answers. */
static double request_bytes(const ddl_startup_world *world, double roster_bytes)
{
    const int number = 1 + digits(world->nranks - 1); /* ".17" */
    return 2 * REQUESTS * DDL_STORE_HEAD_BYTES + KEYS + NUMBERED_KEYS * number + SEALS * DDL_STORE_SEAL_ROOM +
           WILL_BYTES + number + world->host_bytes + MEMBER_HEAD_BYTES + world->host_bytes +
           world->address_bytes + roster_bytes;
}

/* Pairs whose connection an usher hands out, in the whole world. */
static double introductions(const ddl_startup_world *world, double local)
{
    return world->lazy || local < 3 ? 0 : world->nranks / local * (local - 1) * (local - 2) / 2;
}

/* Pairs of a host's usher and another rank of it, if its ranks follow each other, which the overlay lacks. */
static int beside_overlay(const ddl_startup_world *world, int local)
{
    int pairs = 0;
    for (int distance = 1; distance < local; distance++)
        pairs += !ddl_overlay_has(world->nranks, 0, distance);
    return pairs;
}

static double connections_per_rank(const ddl_startup_world *world, int local)
{
    if (!world->lazy)
        return world->nranks - 1;
    return ddl_overlay_degree(world->nranks) + 2.0 * beside_overlay(world, local) / local;
}

ddl_startup ddl_startup_predict(const ddl_startup_world *world, const ddl_startup_costs *costs)
{
    double n = world->nranks;
    double local = world->ranks_per_host < world->nranks ? world->ranks_per_host : n;
    double per_rank = connections_per_rank(world, (int)local);
    double introduced = introductions(world, local);
    double roster_bytes =
        ROSTER_HEAD_BYTES + n * (ROSTER_ENTRY_HEAD_BYTES + world->host_bytes + world->address_bytes);
    ddl_startup startup = {
        .connections_per_rank = per_rank,
        .connections = n * per_rank / 2,
        .introductions = introduced,
        .store_requests = n * REQUESTS,
        .store_bytes_per_rank = HELLO_BYTES + request_bytes(world, roster_bytes),
        .is_beyond_store = roster_bytes > DDL_STORE_ROSTER_LIMIT,
    };
    double called = startup.connections - introduced, notes = 2 * introduced / NOTE_RANKS;
    startup.mesh_messages = called * MESH_MESSAGES + notes;
    startup.mesh_bytes = called * (HELLO_BYTES + MESH_MESSAGES - HELLO_MESSAGES) + notes * NOTE_BYTES;
    startup.store_bytes = n * startup.store_bytes_per_rank;
    double rank_ns = costs->rank_ns + called / n * costs->connection_ns +
                     introduced / n * costs->introduction_ns + n * costs->entry_ns;
    double rounds = local / world->cores_per_host; /* of ranks that take turns on a core */
    double host_ns = rank_ns * (rounds > 1 ? rounds : 1);
    double server_ns = n * costs->client_ns + startup.store_bytes / costs->bytes_per_ns;
    /* Where ranks share the cores with the server, its work is one more share. */
    startup.seconds = (host_ns + server_ns + ROUND_TRIPS * costs->round_trip_ns) / 1e9;
    return startup;
}
