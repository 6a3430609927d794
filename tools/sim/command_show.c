/* command_show.c - ddl-sim show: a schedule as text, or as a graph for Graphviz. */
#include "sim.h"

#include "base/bytes.h"
#include "simulate/check.h"
#include "simulate/patterns.h"

#include <stdio.h>
#include <unistd.h>

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
         "  --dot            a graph for Graphviz: ddl-sim show allreduce/ring -p 4 --dot | dot -Tsvg > "
         "ring.svg");
}

typedef struct wish {              /* what is to be shown */
    int nranks, rank, root, count; /* rank -1: all; root -1: none was named; count -1: as many as suit it */
    bool in_place, average, dot;
    ddl_placement placement;
    bool any; /* shown */
} wish;

static int show_row(void *arg, const ddl_algorithm *row)
{
    wish *w = arg;
    const bool even_blocks =
        ddl_collective_has_blocks(row->collective) && !ddl_collective_is_uneven(row->collective);
    const size_t elements = w->count >= 0 ? (size_t)w->count : even_blocks ? 1 : (size_t)w->nranks;
    picture p = { .row = row, .shape = sim_shape(row, w->nranks, elements), .rank = w->rank };
    p.shape.root = sim_has_root_or_peer(row->collective) && w->root >= 0 ? w->root : 0;
    p.shape.in_place = p.shape.in_place || w->in_place;
    p.shape.placement = w->placement;
    p.shape.average = w->average && ddl_collective_reduces(row->collective);
    if (w->any && !w->dot)
        putchar('\n');
    w->any = true;
    return show(&p, w->dot);
}

static int note_root(void *any, const ddl_algorithm *row)
{
    *(bool *)any = *(bool *)any || sim_has_root_or_peer(row->collective);
    return SIM_OK;
}

static bool read_count(const char *text, void *count)
{
    return sim_parse_int(text, 0, 1 << 24, count);
}

int sim_show(int argc, char **argv)
{
    wish w = { .rank = -1, .root = -1, .count = -1 };
    bool any_has_root = false;
    const sim_option options[] = {
        { "ranks", 'p', sim_read_ranks, &w.nranks, "a number of ranks from 1 to 1024" },
        { "rank", 0, sim_read_rank, &w.rank, "a rank" },
        { "count", 0, read_count, &w.count, "a number of elements" },
        { "root", 0, sim_read_rank, &w.root, "a rank" },
        { "in-place", 0, NULL, &w.in_place, NULL },
        { "average", 0, NULL, &w.average, NULL },
        { "dot", 0, NULL, &w.dot, NULL },
        { "hosts", 0, sim_read_hosts, &w.placement, "hosts such as 2x4 or 4,3,1" },
        { NULL, 0, NULL, NULL, NULL },
    };
    const int code = sim_read_options(argc, argv, options, print_help);
    if (code != SIM_GO_ON)
        return code;
    if (optind >= argc)
        return sim_usage_error("show needs the name of an algorithm (ddl-sim list)");
    if (optind + 1 < argc)
        return sim_usage_error("show takes one name, not also '%s'", argv[optind + 1]);
    if (sim_place("show", &w.placement, &w.nranks) != SIM_OK)
        return SIM_USAGE;
    if (w.rank >= w.nranks || w.root >= w.nranks)
        return sim_usage_error("rank %d is not among %d ranks", w.rank >= w.nranks ? w.rank : w.root,
                               w.nranks);
    const int found = sim_visit(argv[optind], w.nranks, note_root, &any_has_root);
    if (found == SIM_OK && w.root >= 0 && !any_has_root)
        return sim_usage_error("%s has no root", argv[optind]);
    return found == SIM_OK ? sim_visit(argv[optind], w.nranks, show_row, &w) : found;
}
