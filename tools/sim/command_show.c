/* command_show.c - ddl-sim show: a schedule as text, or as a graph for Graphviz. */
#include "sim.h"

#include "base/bytes.h"
#include "simulate/check.h"
#include "simulate/patterns.h"

#include <getopt.h>
#include <stdio.h>

typedef struct picture {
    const ddl_algorithm *row;
    ddl_shape shape;
    int rank; /* -1: all */
    ddl_schedule **schedules;
    ddl_checker *checker; /* has proved them, and knows rounds */
    size_t *counts;       /* of the v forms */
} picture;

static const char *const kinds[] = { "send", "recv", "recv_reduce", "reduce", "copy", "scale" };
static const char *const buffers[] = { "IN", "OUT", "SCRATCH" };

static bool shown(const picture *p, int rank)
{
    return p->schedules[rank] != NULL && (p->rank < 0 || p->rank == rank);
}

static size_t print_slice(char *text, size_t bytes, const picture *p, const ddl_slice *slice)
{
    size_t unit = p->shape.element_bytes;
    return (size_t)snprintf(text, bytes, "%s[%zu..%zu)", buffers[slice->buffer], slice->offset / unit,
                            (slice->offset + slice->bytes) / unit);
}

/* What the step does, in elements: "IN[0..4) -> rank 1 #0". */
static void print_step(char *text, size_t bytes, const picture *p, const ddl_schedule *s,
                       const ddl_step *step)
{
    char target[160], source[80] = "";
    size_t used = print_slice(target, sizeof target, p, &step->target.part[0]);
    if (step->target.part[1].bytes > 0) {
        target[used++] = '+';
        print_slice(target + used, sizeof target - used, p, &step->target.part[1]);
    }
    if (step->source.bytes > 0)
        print_slice(source, sizeof source, p, &step->source);
    size_t at;
    switch ((ddl_step_kind)step->kind) {
    case DDL_STEP_SEND:
        snprintf(text, bytes, "%s -> rank %d #%u", target, step->peer, step->number);
        return;
    case DDL_STEP_RECV:
        snprintf(text, bytes, "%s <- rank %d #%u", target, step->peer, step->number);
        return;
    case DDL_STEP_RECV_REDUCE:
        snprintf(text, bytes, "%s = %s op %s <- rank %d #%u (in %s)", target,
                 step->incoming_first ? "incoming" : "itself", step->incoming_first ? "itself" : "incoming",
                 step->peer, step->number, source);
        return;
    case DDL_STEP_COPY:
        snprintf(text, bytes, "%s = %s", target, source);
        return;
    case DDL_STEP_SCALE:
        snprintf(text, bytes, "%s = itself / %d", target, p->shape.nranks);
        return;
    case DDL_STEP_REDUCE:
        at = (size_t)snprintf(text, bytes, "%s =", target);
        for (uint32_t i = 0; i < step->noperands && at < bytes; i++) {
            print_slice(source, sizeof source, p, &s->operands[step->first_operand + i]);
            at += (size_t)snprintf(text + at, bytes - at, "%s %s", i > 0 ? " op" : "", source);
        }
        return;
    }
}

static void show_text(const picture *p)
{
    printf("%s/%s on %d ranks, count %zu, elements of %zu bytes%s\n", ddl_collective_name(p->row->collective),
           p->row->name, p->shape.nranks, p->shape.count, p->shape.element_bytes,
           p->shape.in_place ? ", in place" : "");
    for (int rank = 0; rank < p->shape.nranks; rank++) {
        const ddl_schedule *s = p->schedules[rank];
        if (!shown(p, rank))
            continue;
        printf("\nrank %d: %u steps, %u messages, %zu bytes of scratch\n", rank, s->nsteps, s->nmessages,
               s->scratch_bytes);
        for (uint32_t i = 0; i < s->nsteps; i++) {
            char text[1024];
            print_step(text, sizeof text, p, s, &s->steps[i]);
            printf("  step %-3u round %-3u %-11s %s", i, ddl_checker_round(p->checker, rank, i),
                   kinds[s->steps[i].kind], text);
            const char *separator = "   after ";
            for (uint32_t j = 0; j < i; j++)
                for (uint32_t k = 0; k < s->steps[j].nsuccessors; k++)
                    if (s->successors[s->steps[j].first_successor + k] == i) {
                        printf("%s%u", separator, j);
                        separator = ", ";
                    }
            putchar('\n');
        }
    }
}

/* A dashed edge from a send to the receive of the same number. */
static void show_message(const picture *p, int rank, uint32_t index)
{
    const ddl_step *send = &p->schedules[rank]->steps[index];
    const ddl_schedule *to = p->schedules[send->peer];
    if (!shown(p, send->peer))
        return;
    for (uint32_t i = 0; i < to->nsteps; i++) {
        const ddl_step *recv = &to->steps[i];
        bool receives = recv->kind == DDL_STEP_RECV || recv->kind == DDL_STEP_RECV_REDUCE;
        if (receives && recv->peer == rank && recv->number == send->number)
            printf("  r%d_%u -> r%d_%u [style=dashed];\n", rank, index, send->peer, i);
    }
}

static void show_dot(const picture *p)
{
    printf("digraph \"%s/%s\" {\n  rankdir=LR;\n  node [shape=box, fontsize=10];\n",
           ddl_collective_name(p->row->collective), p->row->name);
    for (int rank = 0; rank < p->shape.nranks; rank++) {
        const ddl_schedule *s = p->schedules[rank];
        if (!shown(p, rank))
            continue;
        printf("  subgraph cluster_%d {\n    label=\"rank %d\";\n", rank, rank);
        for (uint32_t i = 0; i < s->nsteps; i++) {
            char text[1024];
            print_step(text, sizeof text, p, s, &s->steps[i]);
            printf("    r%d_%u [label=\"%s\\n%s\"];\n", rank, i, kinds[s->steps[i].kind], text);
            for (uint32_t j = 0; j < s->steps[i].nsuccessors; j++)
                printf("    r%d_%u -> r%d_%u;\n", rank, i, rank,
                       s->successors[s->steps[i].first_successor + j]);
        }
        puts("  }");
    }
    for (int rank = 0; rank < p->shape.nranks; rank++)
        for (uint32_t i = 0; shown(p, rank) && i < p->schedules[rank]->nsteps; i++)
            if (p->schedules[rank]->steps[i].kind == DDL_STEP_SEND)
                show_message(p, rank, i);
    puts("}");
}

static ddl_status build_all(picture *p, ddl_error *err)
{
    for (int rank = 0; rank < p->shape.nranks; rank++) {
        ddl_shape own;
        ddl_collective role;
        if (!ddl_shape_of_rank(&p->shape, p->row->collective, rank, &own, &role))
            continue;
        DDL_TRY(ddl_catalogue_find(role, p->row->name)->build(&own, &p->schedules[rank], err));
    }
    DDL_TRY(ddl_checker_create(&p->checker, err));
    return ddl_check_schedules(p->checker, p->row->collective, &p->shape,
                               (const ddl_schedule *const *)p->schedules, err);
}

static int show(picture *p, bool dot)
{
    ddl_error err = { 0 };
    int code = SIM_FAILED;
    p->schedules = ddl_alloc_array((size_t)p->shape.nranks, sizeof(ddl_schedule *));
    bool counted =
        !ddl_collective_is_uneven(p->row->collective) ||
        ddl_pattern_apply(DDL_PATTERN_RISING, p->row->collective, p->shape.count, 0, &p->shape, &p->counts);
    if (p->schedules == NULL || !counted)
        fputs("ddl-sim: out of memory\n", stderr);
    else if (build_all(p, &err) != DDL_OK)
        fprintf(stderr, "ddl-sim: %s\n", err.text);
    else
        code = SIM_OK;
    if (code == SIM_OK && dot)
        show_dot(p);
    else if (code == SIM_OK)
        show_text(p);
    ddl_checker_destroy(p->checker);
    for (int rank = 0; p->schedules != NULL && rank < p->shape.nranks; rank++)
        ddl_schedule_destroy(p->schedules[rank]);
    ddl_free(p->schedules);
    ddl_free(p->counts);
    return code;
}

static void print_help(void)
{
    puts("usage: ddl-sim show NAME -p RANKS [options]\n\n"
         "Prints every step of an algorithm's schedules: what it reads and writes, whom it sends to, and "
         "which\n"
         "steps it waits for. A round is the number of messages on the longest way to a step's end.\n\n"
         "  -p, --ranks N    number of ranks (1 to 1024)\n"
         "  --rank R         only this rank\n"
         "  --count N        elements, per rank where the collective is on blocks (default: ranks for\n"
         "                   vectors, 1 for blocks)\n"
         "                   the v forms: of the largest block, the others being smaller; default: ranks\n"
         "  --root R         of rooted collectives; the sender of send and recv (default 0)\n"
         "  --in-place       send and receive buffers are the same\n"
         "  --hosts HOSTS    ranks placed host after host: 2x4 is two hosts of four, 4,3,1 are three\n"
         "  --average        end with the division of an average\n"
         "  --dot            a graph for Graphviz: ddl-sim show ring -p 4 --dot | dot -Tsvg > ring.svg");
}

int sim_show(int argc, char **argv)
{
    enum {
        OPTION_RANK = 256,
        OPTION_COUNT,
        OPTION_ROOT,
        OPTION_IN_PLACE,
        OPTION_AVERAGE,
        OPTION_DOT,
        OPTION_HOSTS
    };
    static const struct option options[] = { { "ranks", required_argument, NULL, 'p' },
                                             { "rank", required_argument, NULL, OPTION_RANK },
                                             { "count", required_argument, NULL, OPTION_COUNT },
                                             { "root", required_argument, NULL, OPTION_ROOT },
                                             { "in-place", no_argument, NULL, OPTION_IN_PLACE },
                                             { "average", no_argument, NULL, OPTION_AVERAGE },
                                             { "dot", no_argument, NULL, OPTION_DOT },
                                             { "hosts", required_argument, NULL, OPTION_HOSTS },
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    int option, nranks = 0, rank = -1, root = 0, count = -1;
    bool in_place = false, average = false, dot = false;
    int node_of[SIM_MOST_RANKS];
    ddl_placement placement = { 0, 0, NULL };
    optind = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":p:h", options, NULL)) != -1) {
        bool good = true;
        const char *wanted = "";
        switch (option) {
        case 'p':
            good = sim_parse_int(optarg, 1, 1024, &nranks);
            wanted = "a number of ranks from 1 to 1024";
            break;
        case OPTION_RANK:
            good = sim_parse_int(optarg, 0, 1023, &rank);
            wanted = "a rank";
            break;
        case OPTION_COUNT:
            good = sim_parse_int(optarg, 0, 1 << 24, &count);
            wanted = "a number of elements";
            break;
        case OPTION_ROOT:
            good = sim_parse_int(optarg, 0, 1023, &root);
            wanted = "a rank";
            break;
        case OPTION_IN_PLACE:
            in_place = true;
            break;
        case OPTION_AVERAGE:
            average = true;
            break;
        case OPTION_DOT:
            dot = true;
            break;
        case OPTION_HOSTS:
            good = sim_parse_hosts(optarg, node_of, &placement);
            wanted = "hosts such as 2x4 or 4,3,1";
            break;
        case 'h':
            print_help();
            return SIM_OK;
        default:
            return sim_bad_option(argc, argv, option);
        }
        if (!good)
            return sim_usage_error("'%s' is not %s", optarg, wanted);
    }
    if (optind >= argc)
        return sim_usage_error("show needs the name of an algorithm (ddl-sim list)");
    if (optind + 1 < argc)
        return sim_usage_error("show takes one name, not also '%s'", argv[optind + 1]);
    if (sim_place("show", &placement, &nranks) != SIM_OK)
        return SIM_USAGE;
    if (rank >= nranks || root >= nranks)
        return sim_usage_error("rank %d is not among %d ranks", rank >= nranks ? rank : root, nranks);
    size_t nrows;
    ddl_catalogue(&nrows);
    const ddl_algorithm **rows = ddl_alloc_array(nrows, sizeof *rows);
    if (rows == NULL)
        return sim_usage_error("out of memory");
    size_t found = sim_find(argv[optind], rows);
    int code = found > 0 ? SIM_OK : SIM_USAGE;
    bool any = false;
    for (size_t i = 0; i < found && code == SIM_OK; i++) {
        bool point_to_point = ddl_collective_is_point_to_point(rows[i]->collective);
        if (!ddl_algorithm_takes(rows[i], nranks) || (point_to_point && nranks == 1))
            continue;
        bool even_blocks =
            ddl_collective_has_blocks(rows[i]->collective) && !ddl_collective_is_uneven(rows[i]->collective);
        size_t elements = count >= 0 ? (size_t)count : even_blocks ? 1 : (size_t)nranks;
        picture p = { .row = rows[i], .shape = sim_shape(rows[i], nranks, elements), .rank = rank };
        p.shape.root = sim_has_root_or_peer(rows[i]->collective) ? root : 0;
        p.shape.in_place = p.shape.in_place || in_place;
        p.shape.placement = placement;
        p.shape.average = average && ddl_collective_reduces(rows[i]->collective);
        if (any && !dot)
            putchar('\n');
        any = true;
        code = show(&p, dot);
    }
    if (code == SIM_OK && !any)
        code = sim_usage_error("%s does not work for %d ranks", argv[optind], nranks);
    ddl_free(rows);
    return code;
}
