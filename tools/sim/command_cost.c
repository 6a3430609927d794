/* command_cost.c - ddl-sim cost: the real executor on a virtual network, beside the lower bound. */
#include "sim.h"

#include "base/bytes.h"
#include "simulate/check.h"
#include "simulate/network.h"
#include "simulate/patterns.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { ELEMENT_BYTES = 4 }; /* of float32 */

typedef struct question {
    int nranks;
    size_t total_bytes;
    ddl_placement placement;
    ddl_network_options network;
    bool is_printed;
} question;

typedef struct answer {
    double time_ns, bound_ns;
    ddl_work work;
} answer;

/* When one message has arrived. */
static double message_ns(const question *q)
{
    return q->network.latency_ns + 2 * q->network.overhead_ns;
}

/* When all have word of one rank at the earliest: each that has it tells one after the other. One has word of
 * all no earlier, as a rank takes one message after the other, too. */
static double word_to_all_ns(const question *q)
{
    double free_ns[SIM_MOST_RANKS] = { 0 }, last_ns = 0;
    for (int told = 1; told < q->nranks; told++) {
        int from = 0;
        for (int rank = 1; rank < told; rank++)
            from = free_ns[rank] < free_ns[from] ? rank : from;
        last_ns = free_ns[told] = free_ns[from] + message_ns(q);
        free_ns[from] += q->network.overhead_ns;
    }
    return last_ns;
}

/* Of n bytes in all, what the busiest rank at least sends or receives, and combines; and its first word. */
typedef struct least {
    double moved, reduced, word_ns;
} least;

static least least_of(ddl_collective collective, const question *q, double n)
{
    const double p = q->nranks, kept = n * (p - 1) / p, word_ns = word_to_all_ns(q);
    switch (collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
        return (least){ 2 * kept, kept, word_ns };
    case DDL_COLLECTIVE_REDUCE_SCATTER:
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
        return (least){ kept, kept, word_ns };
    case DDL_COLLECTIVE_ALLGATHER:
    case DDL_COLLECTIVE_ALLGATHERV:
    case DDL_COLLECTIVE_GATHER:
    case DDL_COLLECTIVE_GATHERV:
    case DDL_COLLECTIVE_SCATTER:
    case DDL_COLLECTIVE_SCATTERV:
    case DDL_COLLECTIVE_ALLTOALL:
    case DDL_COLLECTIVE_ALLTOALLV:
        return (least){ kept, 0, word_ns };
    case DDL_COLLECTIVE_BROADCAST:
        return (least){ n, 0, word_ns };
    case DDL_COLLECTIVE_REDUCE:
        return (least){ n, kept, word_ns };
    case DDL_COLLECTIVE_SEND:
    case DDL_COLLECTIVE_RECV:
        return (least){ n, 0, message_ns(q) };
    case DDL_COLLECTIVE_BARRIER:
    case DDL_COLLECTIVE_COUNT:
        break;
    }
    return (least){ 0, 0, word_ns };
}

/* What no algorithm can beat. Word, bytes and operands may all be under way at once, so the longest counts.
 */
static double lower_bound_ns(ddl_collective collective, const question *q, size_t bytes)
{
    if (q->nranks == 1 || (bytes == 0 && collective != DDL_COLLECTIVE_BARRIER))
        return 0;
    const least all = least_of(collective, q, (double)bytes);
    double bound_ns = all.word_ns;
    if (q->network.bytes_per_ns > 0)
        bound_ns = fmax(bound_ns, all.moved / q->network.bytes_per_ns);
    if (q->network.reduce_bytes_per_ns > 0)
        bound_ns = fmax(bound_ns, all.reduced / q->network.reduce_bytes_per_ns);
    return bound_ns;
}

static ddl_status run(const ddl_algorithm *row, const question *q, ddl_schedule **schedules, size_t **counts,
                      ddl_checker *checker, ddl_network *network, answer *a, ddl_error *err)
{
    const size_t nblocks = ddl_collective_has_blocks(row->collective) ? (size_t)q->nranks : 1;
    const size_t elements = q->total_bytes / ELEMENT_BYTES / nblocks;
    if (elements == 0 && q->total_bytes > 0 && row->collective != DDL_COLLECTIVE_BARRIER)
        return DDL_FAIL(err, DDL_EINVAL, "%s/%s of %zu bytes: the least with %d ranks is %zu, or 0",
                        ddl_collective_name(row->collective), row->name, q->total_bytes, q->nranks,
                        nblocks * ELEMENT_BYTES);
    ddl_shape shape = sim_shape(row, q->nranks, elements);
    shape.placement = q->placement;
    shape.in_place = true; /* as large vectors mostly are */
    if (ddl_collective_is_uneven(row->collective) &&
        !ddl_pattern_apply(DDL_PATTERN_EVEN, row->collective, elements, 0, &shape, counts))
        return DDL_FAIL(err, DDL_ENOMEM, "out of memory");
    for (int rank = 0; rank < q->nranks; rank++) {
        ddl_shape own;
        ddl_collective role;
        if (!ddl_shape_of_rank(&shape, row->collective, rank, &own, &role))
            continue;
        DDL_TRY(ddl_catalogue_find(role, row->name)->build(&own, &schedules[rank], err));
        DDL_TRY(ddl_network_assign(network, rank, schedules[rank], NULL, NULL, DDL_FLOAT32, DDL_SUM, err));
    }
    DDL_TRY(
        ddl_check_schedules(checker, row->collective, &shape, (const ddl_schedule *const *)schedules, err));
    DDL_TRY(ddl_network_run(network, err));
    a->work = ddl_checker_measured(checker);
    a->time_ns = ddl_network_slowest_ns(network);
    a->bound_ns = lower_bound_ns(row->collective, q, elements * nblocks * ELEMENT_BYTES);
    return DDL_OK;
}

static ddl_status ask(const ddl_algorithm *row, const question *q, answer *a, ddl_error *err)
{
    ddl_checker *checker = NULL;
    ddl_network *network = NULL;
    ddl_schedule **schedules = ddl_alloc_array((size_t)q->nranks, sizeof *schedules);
    ddl_status status = DDL_ENOMEM;
    size_t *counts = NULL;
    if (schedules == NULL)
        DDL_FAIL(err, DDL_ENOMEM, "out of memory");
    else if ((status = ddl_checker_create(&checker, err)) == DDL_OK &&
             (status = ddl_network_create(q->nranks, &q->network, &network, err)) == DDL_OK)
        status = run(row, q, schedules, &counts, checker, network, a, err);
    ddl_network_destroy(network);
    ddl_checker_destroy(checker);
    for (int rank = 0; schedules != NULL && rank < q->nranks; rank++)
        ddl_schedule_destroy(schedules[rank]);
    ddl_free(schedules);
    ddl_free(counts);
    return status;
}

static void print_answer(const ddl_algorithm *row, const question *q, const answer *a)
{
    char name[64], time[32], bound[32], sent[32], ratio[32] = "-";
    snprintf(name, sizeof name, "%s/%s", ddl_collective_name(row->collective), row->name);
    sim_print_time(a->time_ns, time, sizeof time);
    sim_print_time(a->bound_ns, bound, sizeof bound);
    sim_print_bytes(a->work.sent_bytes, sent, sizeof sent);
    if (a->bound_ns > 0)
        snprintf(ratio, sizeof ratio, "%.2f", a->time_ns / a->bound_ns);
    printf("%-28s %10s %12s %7s %7.0f %9.0f %12s", name, time, bound, ratio, a->work.rounds, a->work.messages,
           sent);
    if (q->placement.nnodes > 1) {
        sim_print_bytes(a->work.remote_bytes, sent, sizeof sent);
        printf(" %12s", sent);
    }
    putchar('\n');
}

static void print_question(const question *q)
{
    char bytes[32], latency[32], overhead[32];
    sim_print_bytes((double)q->total_bytes, bytes, sizeof bytes);
    sim_print_time(q->network.latency_ns, latency, sizeof latency);
    sim_print_time(q->network.overhead_ns, overhead, sizeof overhead);
    printf("%d ranks, %s, latency %s, bandwidth %.4g Gbit/s, overhead %s per message and end, reduce %.4g "
           "GB/s\n\n",
           q->nranks, bytes, latency, q->network.bytes_per_ns * 8, overhead, q->network.reduce_bytes_per_ns);
    printf("%-28s %10s %12s %7s %7s %9s %12s", "", "time", "lower bound", "ratio", "rounds", "messages",
           "bytes/rank");
    puts(q->placement.nnodes > 1 ? "   bytes/host" : "");
}

static void print_help(void)
{
    puts(
        "usage: ddl-sim cost NAME -p RANKS --bytes SIZE [options]\n\n"
        "Runs the real executor on a virtual network and prints the time of the slowest rank, the messages\n"
        "and bytes of the busiest one, and a lower bound of all algorithms: the longest of the times that\n"
        "it takes until word of a rank can have reached all, until the least possible bytes have passed the\n"
        "busiest port, and until its rank has combined the least possible operands.\n\n"
        "  -p, --ranks N       number of ranks (1 to 1024)\n"
        "  --bytes SIZE        of the vector, or of all blocks together: 4, 64K, 1M; as many elements of\n"
        "                      4 bytes as fit, alike for all blocks\n"
        "  --latency TIME      from one rank to another (default 20us)\n"
        "  --bandwidth RATE    of a rank's port, each way (default 25Gbit)\n"
        "  --overhead TIME     of CPU per message, at each end (default 2us)\n"
        "  --reduce RATE       of combining operands (default 10GB)\n"
        "  --hosts HOSTS       ranks placed host after host: 2x4 is two hosts of four, 4,3,1 are three; "
        "prints\n"
        "                      what a host sends to others, on the same network\n"
        "  --jitter TIME       added to latencies at random, up to this (default 0s)\n"
        "  --seed N            of the random numbers (default 1)");
}

static bool read_seed(const char *text, void *seed)
{
    int number;
    if (!sim_parse_int(text, 0, INT32_MAX, &number))
        return false;
    *(uint64_t *)seed = (uint64_t)number;
    return true;
}

static int answer_for(void *arg, const ddl_algorithm *row)
{
    question *q = arg;
    ddl_error err = { 0 };
    answer a = { 0 };
    if (!q->is_printed)
        print_question(q);
    q->is_printed = true;
    if (ask(row, q, &a, &err) == DDL_OK) {
        print_answer(row, q, &a);
        return SIM_OK;
    }
    fprintf(stderr, "ddl-sim: %s\n", err.text);
    return SIM_FAILED;
}

int sim_cost(int argc, char **argv)
{
    question q = { .network = DDL_NETWORK_OPTIONS_INIT, .total_bytes = SIZE_MAX };
    q.network.latency_ns = 20e3;
    q.network.bytes_per_ns = 25.0 / 8;
    q.network.overhead_ns = 2e3;
    q.network.reduce_bytes_per_ns = 10;
    q.network.seed = 1;
    const sim_option options[] = {
        { "ranks", 'p', sim_read_ranks, &q.nranks, "a number of ranks from 1 to 1024" },
        { "bytes", 0, sim_read_size, &q.total_bytes, "a size such as 4, 64K or 1M" },
        { "latency", 0, sim_read_time_ns, &q.network.latency_ns, "a time such as 20us" },
        { "bandwidth", 0, sim_read_rate, &q.network.bytes_per_ns, "a rate such as 25Gbit or 3GB" },
        { "overhead", 0, sim_read_time_ns, &q.network.overhead_ns, "a time such as 2us" },
        { "reduce", 0, sim_read_rate, &q.network.reduce_bytes_per_ns, "a rate such as 10GB" },
        { "jitter", 0, sim_read_time_ns, &q.network.jitter_ns, "a time such as 5us" },
        { "seed", 0, read_seed, &q.network.seed, "a whole number" },
        { "hosts", 0, sim_read_hosts, &q.placement, "hosts such as 2x4 or 4,3,1" },
        { NULL, 0, NULL, NULL, NULL },
    };
    const int code = sim_read_options(argc, argv, options, print_help);
    if (code != SIM_GO_ON)
        return code;
    if (optind >= argc)
        return sim_usage_error("cost needs the name of an algorithm (ddl-sim list)");
    if (optind + 1 < argc)
        return sim_usage_error("cost takes one name, not also '%s'", argv[optind + 1]);
    if (sim_place("cost", &q.placement, &q.nranks) != SIM_OK)
        return SIM_USAGE;
    if (q.total_bytes == SIZE_MAX)
        return sim_usage_error("cost needs a size: --bytes 1M");
    return sim_visit(argv[optind], q.nranks, answer_for, &q);
}
