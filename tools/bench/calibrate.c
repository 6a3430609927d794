/*
 * calibrate.c - what a link costs, between two ranks of one host and two ranks of different hosts.
 *
 * The other ranks wait meanwhile. What is measured is what the cost model of the library says of it: an
 * exchange of small messages takes a latency and the CPU of a message, one of large ones the time of their
 * bytes besides (docs/choice.md).
 */
#include "calibrate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "destination.h"
#include "measure.h"
#include "occasion.h"

enum {
    SMALL_BYTES = 4,
    LARGE_BYTES = 4 << 20,
    CACHED_BYTES = 256 << 10, /* what a reduction finds in the cache */
    BURST = 32,               /* messages in flight */
    WARM_UPS = 10,
    LEAST_ITERATIONS = 9,
    MOST_ITERATIONS = 4000,
    REDUCE_ROUNDS = 7,
    TEXT_BYTES = 8192
};

enum constant { LATENCY, MESSAGE, BYTE, REDUCE, CONSTANTS };

/* What is credible; beyond it something else was measured. */
static const struct {
    const char *name;
    double least, most;
} credible[CONSTANTS] = {
    [LATENCY] = { "latency_ns", 100, 1e9 },
    [MESSAGE] = { "message_ns", 10, 1e9 },
    [BYTE] = { "byte_ns", 0.001, 1e6 },
    [REDUCE] = { "reduce_ns", 0.001, 1e3 },
};

/* Two ranks that measure, as a communicator of their own. */
struct pair {
    ddl_comm *comm;
    bool first; /* of the two; its clock counts */
    char *send, *recv;
    size_t bytes;
};

struct calibration {
    const struct bench_options *options;
    ddl_comm *world;
    int *node_of;                    /* of each rank */
    struct destination *destination; /* rank 0's */
    char text[TEXT_BYTES];
    size_t text_bytes;
};

static bool good(ddl_status status)
{
    if (status != DDL_OK)
        fprintf(stderr, "ddl-bench: %s\n", status == DDL_ENOMEM ? "out of memory" : ddl_last_error()->text);
    return status == DDL_OK;
}

/* Whether something went well on every rank. */
static bool agreed(ddl_comm *world, bool ok)
{
    int64_t mine = ok, all = 0;
    return good(ddl_allreduce(&mine, &all, 1, DDL_INT64, DDL_MIN, world, NULL)) && all;
}

/* ---- what two ranks do ---- */

typedef ddl_status pair_operation(struct pair *pair);

static ddl_status ping_pong(struct pair *pair)
{
    ddl_status status = DDL_OK;
    if (pair->first)
        status = ddl_send(pair->send, pair->bytes, DDL_UINT8, 1, pair->comm, NULL);
    if (status == DDL_OK)
        status = ddl_recv(pair->recv, pair->bytes, DDL_UINT8, pair->first, pair->comm, NULL);
    if (status == DDL_OK && !pair->first)
        status = ddl_send(pair->send, pair->bytes, DDL_UINT8, 0, pair->comm, NULL);
    return status;
}

static ddl_status exchange(struct pair *pair)
{
    ddl_request *requests[2] = { NULL };
    ddl_status status = ddl_recv(pair->recv, pair->bytes, DDL_UINT8, pair->first, pair->comm, &requests[0]);
    if (status == DDL_OK)
        status = ddl_send(pair->send, pair->bytes, DDL_UINT8, pair->first, pair->comm, &requests[1]);
    ddl_status waited = ddl_wait_all(2, requests);
    return status != DDL_OK ? status : waited;
}

/* So many small messages in each direction, which are sent before any is received: requests, and the thread
 * that looks after them meanwhile, would cost more than messages in shared memory do. */
static ddl_status swap_many(struct pair *pair, int messages)
{
    ddl_status status = DDL_OK;
    for (int i = 0; i < messages && status == DDL_OK; i++)
        status = ddl_send(pair->send, pair->bytes, DDL_UINT8, pair->first, pair->comm, NULL);
    for (int i = 0; i < messages && status == DDL_OK; i++)
        status = ddl_recv(pair->recv, pair->bytes, DDL_UINT8, pair->first, pair->comm, NULL);
    return status;
}

static ddl_status swap(struct pair *pair)
{
    return swap_many(pair, 1);
}

static ddl_status burst(struct pair *pair)
{
    return swap_many(pair, BURST);
}

/* What the second has reaches the first, as it is. */
static ddl_status bring(struct pair *pair)
{
    if (pair->first)
        return ddl_recv(pair->recv, pair->bytes / sizeof(float), DDL_FLOAT32, 1, pair->comm, NULL);
    return ddl_send(pair->send, pair->bytes / sizeof(float), DDL_FLOAT32, 0, pair->comm, NULL);
}

/* The same, added to what the first has. */
static ddl_status bring_and_add(struct pair *pair)
{
    return ddl_reduce(pair->send, pair->recv, pair->bytes / sizeof(float), DDL_FLOAT32, DDL_SUM, 0,
                      pair->comm, NULL);
}

static ddl_status repeat(struct pair *pair, pair_operation *operation, long iterations, double times_us[])
{
    ddl_status status = DDL_OK;
    for (long i = 0; i < iterations && status == DDL_OK; i++) {
        double start_us = measure_now_us();
        status = operation(pair);
        times_us[i] = measure_now_us() - start_us;
    }
    return status;
}

/* The lower quartile: whatever else the machine does can only add to a time. */
static double typical(double times[], long count)
{
    qsort(times, (size_t)count, sizeof *times, measure_compare);
    return times[count / 4];
}

/* What the first takes, typical of so many repetitions as fit into the time; on the second it means nothing.
 */
static ddl_status time_operation(struct pair *pair, pair_operation *operation, size_t bytes, double seconds,
                                 double *typical_us)
{
    static const double us_per_s = 1e6;
    double tried_us[WARM_UPS];
    int64_t iterations = 0;
    pair->bytes = bytes;
    ddl_status status = repeat(pair, operation, WARM_UPS, tried_us);
    if (status != DDL_OK)
        return status;
    double fit = seconds * us_per_s / typical(tried_us, WARM_UPS);
    iterations = fit < LEAST_ITERATIONS  ? LEAST_ITERATIONS
                 : fit > MOST_ITERATIONS ? MOST_ITERATIONS
                                         : (int64_t)fit;
    if ((status = ddl_broadcast(&iterations, 1, DDL_INT64, 0, pair->comm, NULL)) != DDL_OK)
        return status;
    double *times_us = malloc((size_t)iterations * sizeof *times_us);
    if (times_us == NULL)
        return DDL_ENOMEM;
    status = repeat(pair, operation, iterations, times_us);
    *typical_us = typical(times_us, iterations);
    free(times_us);
    return status;
}

/* What a reduction adds to the transfer of its operand: the least of a few rounds of both. */
static ddl_status time_reduction(struct pair *pair, double seconds, double *reduce_us)
{
    double least_us = 0, least_added_us = 0;
    for (int round = 0; round < REDUCE_ROUNDS; round++) {
        double brought_us = 0, added_us = 0;
        ddl_status status = time_operation(pair, bring, CACHED_BYTES, seconds / REDUCE_ROUNDS, &brought_us);
        if (status == DDL_OK)
            status = time_operation(pair, bring_and_add, CACHED_BYTES, seconds / REDUCE_ROUNDS, &added_us);
        if (status != DDL_OK)
            return status;
        least_us = round == 0 || brought_us < least_us ? brought_us : least_us;
        least_added_us = round == 0 || added_us < least_added_us ? added_us : least_added_us;
    }
    *reduce_us = least_added_us - least_us;
    return DDL_OK;
}

static ddl_status time_all(struct pair *pair, double seconds, bool with_reduce, double constants[CONSTANTS])
{
    double ping_us = 0, small_us = 0, burst_us = 0, large_us = 0, reduce_us = 0;
    ddl_status status = time_operation(pair, ping_pong, SMALL_BYTES, seconds, &ping_us);
    if (status == DDL_OK)
        status = time_operation(pair, swap, SMALL_BYTES, seconds, &small_us);
    if (status == DDL_OK)
        status = time_operation(pair, burst, SMALL_BYTES, seconds, &burst_us);
    if (status == DDL_OK)
        status = time_operation(pair, exchange, LARGE_BYTES, 2 * seconds, &large_us);
    if (status == DDL_OK && with_reduce)
        status = time_reduction(pair, 2 * seconds, &reduce_us);
    if (status != DDL_OK)
        return status;
    constants[LATENCY] = ping_us / 2 * 1e3;
    /* One swap takes a latency and a message's CPU; where that is lost in noise, or in waking from sleep,
     * many at once take nothing but CPU. */
    constants[MESSAGE] = (small_us - ping_us / 2) * 1e3;
    if (constants[MESSAGE] < burst_us / BURST * 1e3)
        constants[MESSAGE] = burst_us / BURST * 1e3;
    constants[BYTE] = (large_us - small_us) * 1e3 / LARGE_BYTES;
    constants[REDUCE] = reduce_us * 1e3 / CACHED_BYTES;
    /* A reduction that the transfer hides, or that is lost in noise, costs next to nothing. */
    if (with_reduce && constants[REDUCE] < credible[REDUCE].least)
        constants[REDUCE] = credible[REDUCE].least;
    return DDL_OK;
}

/* ---- which two ---- */

/* The first two ranks of one host, or the first ranks of two hosts; false if there are none. */
static bool find_pair(const struct calibration *c, bool remote, int ranks[2])
{
    int nranks = ddl_size(c->world);
    for (int i = 0; i < nranks; i++)
        for (int j = i + 1; j < nranks; j++)
            if ((c->node_of[i] != c->node_of[j]) == remote) {
                ranks[0] = i;
                ranks[1] = j;
                return true;
            }
    return false;
}

static bool measure_pair(struct pair *pair, const struct calibration *c, bool remote,
                         double constants[CONSTANTS])
{
    pair->first = ddl_rank(pair->comm) == 0;
    pair->send = malloc(LARGE_BYTES);
    pair->recv = malloc(LARGE_BYTES);
    bool ok = pair->send != NULL && pair->recv != NULL;
    if (!ok)
        fputs("ddl-bench: out of memory\n", stderr);
    if (ok) { /* some processors write zeros quicker than other values */
        memset(pair->send, 1, LARGE_BYTES);
        memset(pair->recv, 1, LARGE_BYTES);
    }
    ok = agreed(pair->comm, ok) && good(time_all(pair, c->options->seconds, !remote, constants));
    free(pair->send);
    free(pair->recv);
    return ok;
}

/* ---- the profile ---- */

__attribute__((format(printf, 2, 3))) static void add(struct calibration *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(c->text + c->text_bytes, sizeof c->text - c->text_bytes, format, arguments);
    va_end(arguments);
    if (used > 0 && (size_t)used < sizeof c->text - c->text_bytes)
        c->text_bytes += (size_t)used;
}

static void add_heading(struct calibration *c)
{
    const struct occasion occasion = occasion_now();
    add(c, "# Costs of links for DDL_PROFILE, measured by ddl-bench --calibrate of ddl %s\n", ddl_version());
    add(c, "# on %s, %s, by %d processes on %d host%s.\n", occasion.host, occasion.date, ddl_size(c->world),
        ddl_node_count(c->world), ddl_node_count(c->world) == 1 ? "" : "s");
}

/* Numbers as a profile takes them: no exponents. */
static bool add_constants(struct calibration *c, const char *kind, const int ranks[2],
                          const double constants[CONSTANTS])
{
    bool remote = strcmp(kind, "remote") == 0;
    add(c, "\n# between ranks %d and %d, which are on %s\n", ranks[0], ranks[1],
        remote ? "different hosts" : "one host");
    for (int i = 0; i < CONSTANTS; i++) {
        if (remote && i == REDUCE)
            continue;
        const char *name = credible[i].name;
        if (!(constants[i] >= credible[i].least && constants[i] <= credible[i].most)) {
            fprintf(
                stderr,
                "ddl-bench: %s.%s came out as %g, and %g to %g is credible; nothing is written, calibrate "
                "when the machine is quiet\n",
                kind, name, constants[i], credible[i].least, credible[i].most);
            return false;
        }
        if (i == REDUCE)
            add(c, "%s = %.5f\n", name, constants[i]);
        else
            add(c, "%s.%s = %.*f\n", kind, name, i == BYTE ? 5 : 0, constants[i]);
    }
    return true;
}

/* What links inside a host are called, as the environment has it: where ranks are on several hosts, the model
 * knows one kind inside them, however they talk. */
static const char *inside(const ddl_comm *world)
{
#ifndef DDL_PORTABLE /* which has no shared memory */
    const char *transport = getenv("DDL_TRANSPORT");
    if (ddl_node_count(world) == 1 && (transport == NULL || strcmp(transport, "tcp") != 0))
        return "shared";
#endif
    (void)world;
    return "local";
}

/* Measure one kind of link if there is one; every rank calls it. */
static bool calibrate_kind(struct calibration *c, const char *kind)
{
    bool remote = strcmp(kind, "remote") == 0;
    int ranks[2], rank = ddl_rank(c->world);
    double constants[CONSTANTS] = { 0 };
    if (!find_pair(c, remote, ranks)) {
        add(c, "\n# no two ranks were on %s: %s links keep their defaults\n",
            remote ? "different hosts" : "one host", kind);
        return true;
    }
    struct pair pair = { NULL };
    bool takes_part = rank == ranks[0] || rank == ranks[1];
    bool ok = good(ddl_comm_split(c->world, takes_part ? 0 : -1, 0, &pair.comm));
    if (!ok)
        return false;
    if (takes_part)
        ok = measure_pair(&pair, c, remote, constants);
    ok = good(ddl_comm_free(&pair.comm)) && ok;
    if (!agreed(c->world, ok))
        return false;
    if (!good(ddl_broadcast(constants, CONSTANTS, DDL_FLOAT64, ranks[0], c->world, NULL)))
        return false;
    return agreed(c->world, rank != 0 || add_constants(c, kind, ranks, constants));
}

/* ---- the course ---- */

static bool learn_places(struct calibration *c)
{
    int32_t mine = ddl_node_rank(c->world);
    c->node_of = calloc((size_t)ddl_size(c->world), sizeof *c->node_of);
    _Static_assert(sizeof mine == sizeof *c->node_of, "int is an int32_t here");
    if (!agreed(c->world, c->node_of != NULL))
        return false;
    return good(ddl_allgather(&mine, c->node_of, 1, DDL_INT32, c->world, NULL));
}

static bool run(struct calibration *c)
{
    bool rank_0 = ddl_rank(c->world) == 0;
    if (rank_0)
        c->destination = destination_open(c->options->profile);
    if (!agreed(c->world, !rank_0 || c->destination != NULL))
        return false;
    add_heading(c);
    bool ok = learn_places(c) && calibrate_kind(c, inside(c->world)) && calibrate_kind(c, "remote");
    bool written = ok && rank_0 && destination_write(c->destination, c->text, c->text_bytes);
    if (written)
        fputs(c->text, stdout);
    return ok && agreed(c->world, !rank_0 || written);
}

int calibrate(const struct bench_options *options)
{
    struct calibration c = { .options = options };
    if (!good(ddl_init(&c.world, NULL)))
        return EXIT_FAILURE;
    bool enough = ddl_size(c.world) >= 2;
    if (!enough)
        fputs("ddl-bench: --calibrate takes two processes or more\n", stderr);
    bool ok = enough && run(&c);
    destination_close(c.destination);
    free(c.node_of);
    ok = good(ddl_comm_free(&c.world)) && ok;
    return !enough ? EXIT_WRONG_FLAGS : ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
