/* command_startup.c - ddl-sim startup: what it takes to start so many ranks. */
#include "sim.h"

#include "protocol/store_wire.h"
#include "simulate/startup.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_RANKS = 1 << 20, MOST_ROWS = 32 };

struct rows {
    int nranks[MOST_ROWS];
    int count;
};

static void print_help(void)
{
    puts(
        "usage: ddl-sim startup [-p RANKS[,RANKS...]] [--per-host RANKS] [--cores N] [--rtt TIME] [--csv]\n\n"
        "Says by a model what a start-up over a tcp store takes where all pairs of ranks connect (eager)\n"
        "and where few do at first (lazy; DDL_CONNECT): requests to the store, five of each rank, and their\n"
        "bytes with those of their answers, connections, messages and bytes of the mesh, and time.\n\n"
        "  -p, --ranks RANKS  numbers of ranks (1024,4096,16384,65536,100000)\n"
        "  --per-host RANKS   ranks of each host (8)\n"
        "  --cores N          cores of each host (8)\n"
        "  --rtt TIME         round trip between hosts (50us)\n"
        "  --csv              numbers without units, for programs");
}

static bool read_rows(const char *text, void *target)
{
    struct rows *rows = target;
    rows->count = 0;
    for (char *end; rows->count < MOST_ROWS; text = end + 1) {
        long number = strtol(text, &end, 10);
        if (end == text || number < 2 || number > MOST_RANKS)
            return false;
        rows->nranks[rows->count++] = (int)number;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
    }
    return false;
}

static bool read_number(const char *text, void *number)
{
    return sim_parse_int(text, 1, MOST_RANKS, number);
}

/* Whether the row is of a start-up that cannot be. */
static bool print_row(const ddl_startup_world *world, const ddl_startup_costs *costs, bool csv)
{
    ddl_startup startup = ddl_startup_predict(world, costs);
    const char *connect = world->lazy ? "lazy" : "eager";
    if (csv) {
        printf("%d,%s,%.0f,%.0f,%.0f,%.0f,%.0f,%.4f\n", world->nranks, connect, startup.store_requests,
               startup.store_bytes, startup.connections, startup.mesh_messages, startup.mesh_bytes,
               startup.seconds);
        return startup.is_beyond_store;
    }
    char per_rank[32], store[32], mesh[32], time[32];
    sim_print_bytes(startup.store_bytes_per_rank, per_rank, sizeof per_rank);
    sim_print_bytes(startup.store_bytes, store, sizeof store);
    sim_print_bytes(startup.mesh_bytes, mesh, sizeof mesh);
    sim_print_time(startup.seconds * 1e9, time, sizeof time);
    printf("%7d %-6s %9.0f %11s %11s %10.0f %12.0f %12.0f %11s %10s%s\n", world->nranks, connect,
           startup.store_requests, per_rank, store, startup.connections_per_rank, startup.connections,
           startup.mesh_messages, mesh, time, startup.is_beyond_store ? " *" : "");
    return startup.is_beyond_store;
}

int sim_startup(int argc, char **argv)
{
    struct rows rows = { { 1024, 4096, 16384, 65536, 100000 }, 5 };
    ddl_startup_world world = {
        .ranks_per_host = 8,
        .cores_per_host = 8,
        .host_bytes = DDL_STARTUP_HOST_BYTES,
        .address_bytes = DDL_STARTUP_ADDRESS_BYTES,
    };
    ddl_startup_costs costs = ddl_startup_default();
    bool csv = false, any_beyond = false;
    const sim_option options[] = {
        { "ranks", 'p', read_rows, &rows, "numbers of ranks, from 2 to 1048576" },
        { "per-host", 0, read_number, &world.ranks_per_host, "a number of ranks" },
        { "cores", 0, read_number, &world.cores_per_host, "a number of cores" },
        { "rtt", 0, sim_read_time_ns, &costs.round_trip_ns, "a time such as 50us" },
        { "csv", 0, NULL, &csv, NULL },
        { NULL, 0, NULL, NULL, NULL },
    };
    const int code = sim_read_options(argc, argv, options, print_help);
    if (code != SIM_GO_ON)
        return code;
    if (optind < argc)
        return sim_usage_error("startup takes no '%s'", argv[optind]);
    puts(csv ? "ranks,connect,store_requests,store_bytes,connections,mesh_messages,mesh_bytes,seconds"
             : "  ranks connect requests  bytes/rank store bytes links/rank  connections     messages  mesh "
               "bytes       time");
    for (int i = 0; i < rows.count; i++)
        for (int lazy = 0; lazy < 2; lazy++) {
            world.nranks = rows.nranks[i];
            world.lazy = lazy == 1;
            any_beyond |= print_row(&world, &costs, csv);
        }
    if (any_beyond && !csv)
        printf(
            "* not possible: the roster would be above %d KiB, the most that a store takes; with the longest "
            "names of hosts and addresses that is 5,500 ranks\n",
            DDL_STORE_ROSTER_LIMIT >> 10);
    return SIM_OK;
}
