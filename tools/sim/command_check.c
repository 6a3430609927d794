/*
 * command_check.c - ddl-sim check: sweeps the catalogue through the checker.
 *
 * Which shapes are proved is told by the table of efforts below. Beyond it:
 *
 * - Blocks with gaps between them, and averages: for the counts 1 and p+1; instead of the plain shape where
 *   things are tried in turn.
 * - Hosts: six placements for rows that look at it, v forms too.
 * - The v forms: counts of each pattern (patterns.h) with four sizes, gaps and places; one shape of random
 *   counts where two worlds share the work.
 * - p = 4096: rows in which a rank has few steps (has_few_steps), one shape in which every rank has a block,
 *   or a pipeline many; in place, and on hosts of four for rows that look at it. The v forms are left out, as
 *   they have the writers of the even ones.
 */
#include "sim.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "simulate/check.h"
#include "simulate/patterns.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_RANKS = 65536,
    LARGE_VECTOR = 1000003,
    LEAST_TO_PIPELINE = 6007,
    MOST_TO_PIPELINE = 200000000,
    LARGE_BLOCK = 10007,
    LARGE_BLOCK_OF_MANY = 1031,
    SMALL_WORLD = 64, /* beyond, count 1 has no gaps or averages */
    LARGEST_WORLD = 4096,
    FEW_STEPS = 10 * 12 /* ten times log2 of it */
};

#define DEFAULT_RANGE "1-64,127,128,129,600,1024"

/* Which counts are tried for p ranks. */
enum counts {
    EVERY,         /* 0 .. 2p+1, and a large one */
    MOST,          /* of those between p+1 and 2p-1 one of four, each with other ranks */
    SEVEN,         /* 0, 1, p-1, p, p+1, 2p+1 and a large one */
    THREE,         /* 1, p+1 and a large one */
    HALF_OF_SEVEN, /* the other half is for another world of about the same size */
    HALF_OF_TWO,   /* 1 or p+1, likewise */
};

/* Which roots, where there is one. */
enum roots { EACH_ROOT, FIRST_MIDDLE_LAST, ROOT_IN_TURN };

/* How much is tried for so many ranks. Where the count is a mere factor of all offsets, as in blocks of equal
 * count, few will do. */
typedef struct effort {
    int most_ranks;
    enum counts vector_counts, block_counts;
    enum roots roots;
    bool in_turn; /* not all places, hosts and v forms, but such that each p and each count meets all */
    size_t large_block;
} effort;

static const effort efforts[] = {
    { 8, EVERY, EVERY, EACH_ROOT, false, LARGE_BLOCK },
    { 16, EVERY, EVERY, FIRST_MIDDLE_LAST, false, LARGE_BLOCK },
    { 32, EVERY, SEVEN, ROOT_IN_TURN, true, LARGE_BLOCK },
    { SMALL_WORLD, MOST, SEVEN, ROOT_IN_TURN, true, LARGE_BLOCK },
    { 599, SEVEN, THREE, ROOT_IN_TURN, true, LARGE_BLOCK_OF_MANY },
    { MAX_RANKS, HALF_OF_SEVEN, HALF_OF_TWO, ROOT_IN_TURN, true, LARGE_BLOCK_OF_MANY },
};

static const effort *effort_for(int nranks)
{
    const effort *found = efforts;
    while (nranks > found->most_ranks)
        found++;
    return found;
}

typedef struct sweep {
    ddl_checker *checker;
    const ddl_algorithm *row;
    uint64_t nproved;
    ddl_placement placement; /* the only one to be proved, if one was asked for */
    ddl_spread spread;       /* of a placement */
    ddl_pattern pattern;     /* v forms: of the counts */
    size_t *counts;
} sweep;

static bool prove(sweep *s, const ddl_shape *shape)
{
    ddl_error err = { 0 };
    s->nproved++;
    if (ddl_check_algorithm(s->checker, s->row, shape, &err) == DDL_OK)
        return true;
    fflush(stdout);
    fprintf(stderr, "ddl-sim: %s/%s on %d ranks%s%s, count %zu%s%s, stride %zu, root %d%s%s: %s\n",
            ddl_collective_name(s->row->collective), s->row->name, shape->nranks,
            shape->placement.node_of != NULL ? " spread " : "",
            shape->placement.node_of != NULL ? ddl_spread_name(s->spread) : "", shape->count,
            shape->blocks.counts != NULL ? " " : "",
            shape->blocks.counts != NULL ? ddl_pattern_name(s->pattern) : "", shape->stride, shape->root,
            shape->in_place ? ", in place" : "", shape->average ? ", average" : "", err.text);
    return false;
}

static bool prove_roots(sweep *s, ddl_shape shape, size_t turn)
{
    const int p = shape.nranks, ends[] = { 0, p / 2, p - 1 };
    shape.root = 0;
    if (!sim_has_root_or_peer(s->row->collective))
        return prove(s, &shape);
    switch (effort_for(p)->roots) {
    case EACH_ROOT:
        for (shape.root = 0; shape.root < p; shape.root++)
            if (!prove(s, &shape))
                return false;
        return true;
    case FIRST_MIDDLE_LAST:
        for (int i = 0; i < 3; i++) {
            shape.root = ends[i];
            if (!prove(s, &shape))
                return false;
        }
        return true;
    case ROOT_IN_TURN:
        shape.root = ends[(shape.count + turn) % 3];
        return prove(s, &shape);
    }
    return false;
}

static void add_gaps(const sweep *s, ddl_shape *shape)
{
    shape->stride += ddl_collective_has_blocks(s->row->collective) ? 3 : 0;
}

/* What of gaps and averages this row knows, one after the other. */
static bool prove_variants(sweep *s, ddl_shape shape)
{
    shape.root = sim_has_root_or_peer(s->row->collective) ? shape.nranks - 1 : 0;
    ddl_shape apart = shape;
    add_gaps(s, &apart);
    if (apart.stride != shape.stride && !prove(s, &apart))
        return false;
    shape.average = ddl_collective_reduces(s->row->collective);
    return !shape.average || prove(s, &shape);
}

/* Whether a call may be in place or not, as the caller likes. */
static bool place_is_free(ddl_collective collective)
{
    return collective != DDL_COLLECTIVE_BROADCAST && collective != DDL_COLLECTIVE_BARRIER &&
           !ddl_collective_is_point_to_point(collective);
}

/* One count, with its roots, in place or not; for two counts with gaps and averages too. */
static bool prove_places(sweep *s, ddl_shape shape, size_t turn)
{
    const size_t p = (size_t)shape.nranks;
    const bool in_turn = effort_for(shape.nranks)->in_turn;
    const bool is_free = place_is_free(s->row->collective);
    const bool has_variants = shape.count == p + 1 || (shape.count == 1 && p <= SMALL_WORLD);
    if (has_variants && in_turn) { /* instead of the plain shape, which other counts have */
        add_gaps(s, &shape);
        shape.average = ddl_collective_reduces(s->row->collective);
    }
    if (is_free)
        shape.in_place = in_turn && (turn + p) % 2 == 1;
    for (;;) {
        if (!prove_roots(s, shape, turn) || (has_variants && !in_turn && !prove_variants(s, shape)))
            return false;
        if (!is_free || in_turn || shape.in_place)
            return true;
        shape.in_place = true;
    }
}

/* Of gather and scatter, whose trees go host after host. */
static bool is_in_line(const ddl_algorithm *row)
{
    const bool is_gather =
        row->collective == DDL_COLLECTIVE_GATHER || row->collective == DDL_COLLECTIVE_GATHERV;
    const bool is_scatter =
        row->collective == DDL_COLLECTIVE_SCATTER || row->collective == DDL_COLLECTIVE_SCATTERV;
    return (is_gather || is_scatter) && strcmp(row->name, "binomial") == 0;
}

static bool looks_at_placement(const ddl_algorithm *row)
{
    return strncmp(row->name, "two_level", strlen("two_level")) == 0 || is_in_line(row);
}

/* The v forms have said already whether in place. */
static bool prove_placed(sweep *s, const ddl_shape *shape, size_t turn)
{
    return ddl_collective_is_uneven(s->row->collective) ? prove_roots(s, *shape, turn)
                                                        : prove_places(s, *shape, turn);
}

/* On several placements, for a row that looks at it. */
static bool prove_shape(sweep *s, ddl_shape shape, size_t turn)
{
    const int nranks = shape.nranks;
    shape.placement = s->placement.nranks > 0 ? s->placement : (ddl_placement){ nranks, 1, NULL };
    if (s->placement.nranks > 0 || !looks_at_placement(s->row))
        return prove_placed(s, &shape, turn);
    int *node_of = ddl_alloc_array((size_t)nranks, sizeof *node_of);
    if (node_of == NULL) {
        fputs("ddl-sim: out of memory\n", stderr);
        return false;
    }
    bool proved = true;
    for (int i = 0; i < DDL_SPREAD_COUNT && proved; i++) {
        if (effort_for(nranks)->in_turn && (turn / 2 + (size_t)nranks) % DDL_SPREAD_COUNT != (size_t)i)
            continue;
        s->spread = (ddl_spread)i;
        shape.placement = ddl_spread_apply(s->spread, nranks, node_of);
        proved = prove_placed(s, &shape, turn);
    }
    ddl_free(node_of);
    return proved;
}

static bool prove_even(sweep *s, int nranks, size_t count, size_t turn)
{
    return prove_shape(s, sim_shape(s->row, nranks, count), turn);
}

static bool prove_uneven(sweep *s, int nranks, ddl_pattern pattern, size_t largest, size_t gap, bool in_place)
{
    ddl_shape shape = sim_shape(s->row, nranks, 0);
    shape.in_place = in_place;
    shape.average = ddl_collective_reduces(s->row->collective) && gap > 0;
    s->pattern = pattern;
    if (!ddl_pattern_apply(pattern, s->row->collective, largest, gap, &shape, &s->counts)) {
        fputs("ddl-sim: out of memory\n", stderr);
        return false;
    }
    return prove_shape(s, shape, (size_t)pattern);
}

/* The v forms. */
static bool prove_patterns(sweep *s, int nranks)
{
    static const size_t sizes[] = { 1, 2, 7, 1031 };
    const effort *tried = effort_for(nranks);
    if (tried->block_counts == HALF_OF_TWO) /* the even forms have the other shapes */
        return prove_uneven(s, nranks, DDL_PATTERN_RANDOM, 7, nranks % 2 == 0 ? 0 : 3, nranks % 3 == 0);
    for (int pattern = 0; pattern < DDL_PATTERN_COUNT; pattern++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (size_t variant = 0; variant < 4; variant++) {
                size_t turn = (size_t)pattern + i + (size_t)nranks;
                if (tried->in_turn && (turn % 4 != variant || turn / 4 % 2 != i % 2))
                    continue;
                if (!prove_uneven(s, nranks, (ddl_pattern)pattern, sizes[i], variant & 1 ? 3 : 0,
                                  (variant & 2) != 0))
                    return false;
            }
    return true;
}

static bool works_for(const ddl_algorithm *row, int nranks)
{
    bool point_to_point = ddl_collective_is_point_to_point(row->collective);
    return ddl_algorithm_takes(row, nranks) && !(point_to_point && nranks == 1);
}

/* The checker numbers the elements of a rank by 32 bits. In a schedule of one round all vectors land at one.
 */
static bool is_countable(const ddl_algorithm *row, int nranks, size_t count)
{
    const ddl_placement where = { nranks, 1, NULL };
    return row->work(&where, (double)count).sent_bytes + 3.0 * (double)count < UINT32_MAX;
}

/* 0 .. 2p+1, or most of them. */
static bool prove_range(sweep *s, int nranks, bool every)
{
    const size_t p = (size_t)nranks;
    for (size_t count = 0; count <= 2 * p + 1; count++) {
        /* Every rank has something there, and some have one more: how many is all that differs. */
        const bool is_between = count > p + 1 && count < 2 * p - 1;
        if (is_between && !every && (count + p) % 4 != 0)
            continue;
        if (!prove_even(s, nranks, count, count))
            return false;
    }
    return true;
}

/* Pipelines have more blocks the more there is. */
static bool prove_pipelines(sweep *s, int nranks)
{
    size_t turn = 0; /* these counts are alike modulo 2 and 3 */
    for (size_t count = LEAST_TO_PIPELINE; count < MOST_TO_PIPELINE; count *= 4)
        if (is_countable(s->row, nranks, count) && !prove_even(s, nranks, count, turn++))
            return false;
    return true;
}

/* Of the counts 0, 1, p-1, p, p+1, 2p+1 and a large one those that are tried. */
static bool prove_seven(sweep *s, int nranks, enum counts which, size_t large)
{
    enum { ONE = 1, ONE_MORE = 4, LARGE = 6, COUNTS };
    const size_t p = (size_t)nranks, counts[COUNTS] = { 0, 1, p - 1, p, p + 1, 2 * p + 1, large };
    const bool is_half = which == HALF_OF_SEVEN || which == HALF_OF_TWO;
    for (size_t i = 0; i < COUNTS; i++) {
        const bool is_other_half = (i % 2 == 0) == (nranks % 1024 == 0);
        const bool is_of_two = i == ONE || i == ONE_MORE;
        if ((is_half && is_other_half) || (which == HALF_OF_TWO && !is_of_two) ||
            (which == THREE && !is_of_two && i != LARGE))
            continue;
        if (!prove_even(s, nranks, counts[i], i))
            return false;
    }
    return true;
}

static bool prove_ranks(sweep *s, int nranks)
{
    const ddl_collective collective = s->row->collective;
    if (!works_for(s->row, nranks))
        return true;
    if (collective == DDL_COLLECTIVE_BARRIER)
        return prove_even(s, nranks, 0, 0);
    if (ddl_collective_is_uneven(collective))
        return prove_patterns(s, nranks);
    const effort *tried = effort_for(nranks);
    const bool has_blocks = ddl_collective_has_blocks(collective);
    const enum counts which = has_blocks ? tried->block_counts : tried->vector_counts;
    const size_t large = has_blocks ? tried->large_block : LARGE_VECTOR;
    if (which != EVERY && which != MOST)
        return prove_seven(s, nranks, which, large);
    const bool is_pipeline = collective == DDL_COLLECTIVE_BROADCAST || collective == DDL_COLLECTIVE_REDUCE;
    return prove_range(s, nranks, which == EVERY) && (!is_pipeline || prove_pipelines(s, nranks)) &&
           prove_even(s, nranks, large, 0) && prove_even(s, nranks, large, 1);
}

/* "1-64,127": the next part of it; false if it is none. *text is moved behind it. */
static bool next_range(const char **text, int *first, int *last)
{
    char part[32];
    size_t n = strcspn(*text, ",");
    if (n == 0 || n >= sizeof part)
        return false;
    memcpy(part, *text, n);
    part[n] = '\0';
    *text += n;
    if (**text == ',' && *++*text == '\0')
        return false;
    char *dash = strchr(part, '-');
    if (dash != NULL)
        *dash = '\0';
    return sim_parse_int(part, 1, MAX_RANKS, first) &&
           sim_parse_int(dash != NULL ? dash + 1 : part, *first, MAX_RANKS, last);
}

static bool valid_ranges(const char *ranges)
{
    int first, last;
    do {
        if (!next_range(&ranges, &first, &last))
            return false;
    } while (*ranges != '\0');
    return true;
}

static bool works_for_some(const ddl_algorithm *row, const char *ranges)
{
    int first, last;
    while (*ranges != '\0' && next_range(&ranges, &first, &last))
        for (int p = first; p <= last; p++)
            if (works_for(row, p))
                return true;
    return false;
}

/* Of a rank that is no root. With a step for each other rank, or each block, all together have millions. */
static bool has_few_steps(const ddl_algorithm *row, ddl_shape shape)
{
    ddl_schedule *schedule = NULL;
    shape.rank = shape.root + 1;
    if (row->build(&shape, &schedule, NULL) != DDL_OK)
        return true; /* the proof tells why */
    bool few = schedule->nsteps <= FEW_STEPS;
    ddl_schedule_destroy(schedule);
    return few;
}

static bool prove_largest(sweep *s)
{
    ddl_collective collective = s->row->collective;
    if (!ddl_algorithm_takes(s->row, LARGEST_WORLD) || ddl_collective_is_uneven(collective) ||
        ddl_collective_is_point_to_point(collective))
        return true;
    int node_of[LARGEST_WORLD];
    bool is_pipeline = collective == DDL_COLLECTIVE_BROADCAST || collective == DDL_COLLECTIVE_REDUCE;
    ddl_shape shape = sim_shape(s->row, LARGEST_WORLD,
                                is_pipeline                             ? LARGE_VECTOR
                                : ddl_collective_has_blocks(collective) ? 1
                                                                        : LARGEST_WORLD + 1);
    shape.in_place = shape.in_place || place_is_free(collective);
    shape.placement = (ddl_placement){ LARGEST_WORLD, 1, NULL };
    s->spread = DDL_SPREAD_FOURS;
    if (looks_at_placement(s->row))
        shape.placement = ddl_spread_apply(s->spread, LARGEST_WORLD, node_of);
    return !has_few_steps(s->row, shape) || prove(s, &shape);
}

static bool prove_row(sweep *s, const char *ranges, bool whole)
{
    int64_t start_ns = ddl_now_ns();
    s->nproved = 0;
    int first, last;
    while (*ranges != '\0' && next_range(&ranges, &first, &last))
        for (int p = first; p <= last; p++)
            if (!prove_ranks(s, p))
                return false;
    if (whole && !prove_largest(s))
        return false;
    char name[64];
    snprintf(name, sizeof name, "%s/%s", ddl_collective_name(s->row->collective), s->row->name);
    printf("%-28s %7llu shapes proved in %6.2f s\n", name, (unsigned long long)s->nproved,
           (double)(ddl_now_ns() - start_ns) / 1e9);
    fflush(stdout);
    return true;
}

static void print_help(void)
{
    puts("usage: ddl-sim check [NAME] [-p RANGE]\n\n"
         "Proves, for all ranks together, that an algorithm's schedules match, cannot deadlock, count every\n"
         "input exactly once and put results where they belong, touch nothing else, and combine operands in\n"
         "the same order on every rank.\n\n"
         "  -p, --ranks RANGE  numbers of ranks, such as 1-16,100 (default " DEFAULT_RANGE ",\n"
         "                     and 4096 for algorithms in which a rank has few steps there)\n"
         "  --hosts HOSTS      ranks placed host after host: 2x4 is two hosts of four, 4,3,1 are three;\n"
         "                     instead of a range (default: six placements where they matter)\n\n"
         "Counts are 0 .. 2p+1 and a large one for p <= 64 (one of four between p+1 and 2p-1 for p > 32),\n"
         "and 0, 1, p-1, p, p+1, 2p+1 and a large one beyond; fewer where a count only multiplies offsets.");
}

static bool read_ranges(const char *text, void *ranges)
{
    *(const char **)ranges = text;
    return valid_ranges(text);
}

/* All that name stands for, or all there are if it is NULL; how many: 0, which has been told, if there are
 * none for any of these ranks (NULL: the default ones). */
static size_t choose_rows(const char *name, const char *ranges, const ddl_algorithm *rows[])
{
    size_t count;
    const ddl_algorithm *all = ddl_catalogue(&count);
    for (size_t i = 0; i < count; i++)
        rows[i] = &all[i];
    if (name == NULL || (count = sim_find(name, rows)) == 0 || ranges == NULL)
        return count;
    for (size_t i = 0; i < count; i++)
        if (works_for_some(rows[i], ranges))
            return count;
    (void)sim_usage_error("%s does not work for %s ranks", name, ranges);
    return 0;
}

static int check(sweep *s, const char *name, const char *ranges)
{
    size_t count;
    ddl_catalogue(&count);
    const ddl_algorithm **rows = ddl_alloc_array(count, sizeof *rows);
    ddl_error err = { 0 };
    int code = SIM_FAILED;
    if (rows == NULL || ddl_checker_create(&s->checker, &err) != DDL_OK) {
        fputs("ddl-sim: out of memory\n", stderr);
    } else {
        count = choose_rows(name, ranges, rows);
        code = count > 0 ? SIM_OK : SIM_USAGE;
        for (size_t i = 0; i < count && code == SIM_OK; i++) {
            s->row = rows[i];
            if (!prove_row(s, ranges != NULL ? ranges : DEFAULT_RANGE, ranges == NULL))
                code = SIM_FAILED;
        }
    }
    ddl_checker_destroy(s->checker);
    ddl_free(s->counts);
    ddl_free(rows);
    return code;
}

int sim_check(int argc, char **argv)
{
    sweep s = { .checker = NULL };
    char all_ranks[16];
    const char *ranges = NULL, *name = NULL;
    const sim_option options[] = {
        { "ranks", 'p', read_ranges, &ranges,
          "a range of ranks; give numbers from 1 to 65536 such as 1-64,127" },
        { "hosts", 0, sim_read_hosts, &s.placement, "hosts such as 2x4 or 4,3,1" },
        { NULL, 0, NULL, NULL, NULL },
    };
    const int code = sim_read_options(argc, argv, options, print_help);
    if (code != SIM_GO_ON)
        return code;
    if (optind < argc)
        name = argv[optind++];
    if (optind < argc)
        return sim_usage_error("check takes one name, not also '%s'", argv[optind]);
    if (ranges != NULL && s.placement.nranks > 0)
        return sim_usage_error("-p and --hosts both say how many ranks there are");
    if (s.placement.nranks > 0) {
        snprintf(all_ranks, sizeof all_ranks, "%d", s.placement.nranks);
        ranges = all_ranks;
    }
    return check(&s, name, ranges);
}
