/*
 * ddl_bench.c - time a collective over sizes and algorithms; see --help and docs/bench.md.
 *
 * What else ddl-bench does is in calibrate.c and consistency.c.
 *
 * Every rank goes through the same steps. What only one of them can find wrong (memory, a wrong result, the
 * output file) is agreed on before anybody goes on, so that all end together.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate.h"
#include "consistency.h"
#include "first.h"
#include "measure.h"
#include "options.h"
#include "report.h"
#include "workload.h"

enum { MAX_ALGORITHMS = 32, MAX_SIZES = 64 };

/* All algorithms of the collective at all sizes: for --algorithm all. */
struct comparison {
    size_t nsizes, nalgorithms;
    size_t counts[MAX_SIZES];
    const char *chosen[MAX_SIZES];
    const char *names[MAX_ALGORITHMS];
    bool left_out[MAX_ALGORITHMS];
    struct report_row best[MAX_SIZES][MAX_ALGORITHMS]; /* of all rounds */
};

struct bench {
    const struct bench_options *options;
    const struct workload_kind *kind;
    ddl_comm *world;
    struct report *report;         /* rank 0's */
    struct comparison *comparison; /* NULL if one algorithm is measured */
    size_t algorithm;              /* the one at hand of the comparison */
};

static bool good(ddl_status status)
{
    if (status != DDL_OK)
        fprintf(stderr, "ddl-bench: %s\n", status == DDL_ENOMEM ? "out of memory" : ddl_last_error()->text);
    return status == DDL_OK;
}

/* Whether something went well on every rank. */
static bool agreed(struct bench *bench, bool ok)
{
    int64_t all = ok;
    return good(ddl_allreduce(&all, &all, 1, DDL_INT64, DDL_MIN, bench->world, NULL)) && all;
}

/* Run the operation once on known values. */
static bool check(struct bench *bench, struct workload *workload)
{
    bool right = false;
    return good(workload_try(workload, bench->options->dtype_name, &right)) && agreed(bench, right);
}

static ddl_status run_workload(void *arg)
{
    struct workload *workload = arg;
    return workload->kind->run(workload);
}

/* The name of the algorithm that a call of so many elements runs in this world. */
static const char *algorithm_of(const struct bench *bench, size_t count)
{
    const char *name = ddl_algorithm_name(bench->world, bench->kind->name, count, bench->options->dtype);
    return name != NULL ? name : "-";
}

static bool bench_size(struct bench *bench, size_t count, struct report_row *row)
{
    const struct bench_options *options = bench->options;
    struct workload workload;
    const struct measured measured = { bench->world, run_workload, &workload };
    bool ready = workload_init(&workload, bench->kind, bench->world, count, options->dtype, options->op,
                               options->root, options->in_place, options->shared_memory);
    if (!ready)
        fprintf(stderr, "ddl-bench: out of memory for %zu elements of %s%s%s\n", count, options->dtype_name,
                workload.problem != NULL ? ": " : "", workload.problem != NULL ? workload.problem : "");
    if (!agreed(bench, ready)) {
        if (ready)
            workload_fini(&workload);
        return false;
    }
    *row = (struct report_row){ .algorithm = algorithm_of(bench, count),
                                .bytes = workload.elements * ddl_dtype_bytes(options->dtype),
                                .count = count,
                                .bus_factor = bench->kind->bus_factor(&workload) };
    if (bench->report != NULL)
        report_progress(bench->report, row->algorithm, row->bytes);
    bool ok = check(bench, &workload);
    /* Of the values that were checked, not of zeros, which some processors write quicker. */
    ok = ok && good(measure(&measured, options, &row->measurement));
    workload_fini(&workload);
    return ok;
}

/* Of the sizes asked for, those that come out different; how many. */
static size_t list_sizes(const struct bench *bench, size_t counts[MAX_SIZES])
{
    const struct bench_options *options = bench->options;
    size_t nsizes = 0;
    for (size_t bytes = options->min_bytes; bytes <= options->max_bytes; bytes *= (size_t)options->factor) {
        size_t count = workload_count(bench->kind, bytes, options->dtype, ddl_size(bench->world));
        if (nsizes == 0 || count != counts[nsizes - 1])
            counts[nsizes++] = count;
        if (bytes > SIZE_MAX / (size_t)options->factor) /* so there are at most 63 sizes */
            break;
    }
    return nsizes;
}

static bool bench_sizes(struct bench *bench)
{
    size_t counts[MAX_SIZES], nsizes = list_sizes(bench, counts);
    for (size_t i = 0; i < nsizes; i++) {
        struct report_row row;
        if (!bench_size(bench, counts[i], &row))
            return false;
        if (bench->report != NULL)
            report_row(bench->report, &row);
    }
    return true;
}

/* What the world has to be for these flags. */
static bool check_world(const struct bench *bench)
{
    const struct bench_options *options = bench->options;
    int nranks = ddl_size(bench->world);
    const char *problem = NULL;
    char root[64];
    snprintf(root, sizeof root, "--root %d is not a rank of this job", options->root);
    if (bench->kind->has_root && options->root >= nranks)
        problem = root;
    if (strcmp(options->collective, "sendrecv") == 0 && nranks < 2)
        problem = "sendrecv takes a job of two processes or more";
    if (problem != NULL && ddl_rank(bench->world) == 0)
        fprintf(stderr, "ddl-bench: %s, which has %d\n", problem, nranks);
    return problem == NULL;
}

/* DDL_ALLREDUCE for "allreduce". */
static const char *variable_of(const char *collective, char variable[64])
{
    snprintf(variable, 64, "DDL_%s", collective);
    for (char *c = variable; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    return variable;
}

static void force_algorithm(const char *collective, const char *algorithm)
{
    char variable[64];
    setenv(variable_of(collective, variable), algorithm, 1);
}

static void unforce_algorithm(const char *collective)
{
    char variable[64];
    unsetenv(variable_of(collective, variable));
}

/* Make a world; algorithm: forced in it, or NULL. */
static ddl_status open_world(struct bench *bench, const char *algorithm)
{
    if (algorithm != NULL)
        force_algorithm(bench->kind->name, algorithm);
    return ddl_init(&bench->world, NULL);
}

/* Do `work` in the world and leave it; the first one checks the flags and opens the report. */
static int in_world(struct bench *bench, bool (*work)(struct bench *bench))
{
    bool ok = true, wrong_flags = !check_world(bench);
    if (!wrong_flags && bench->report == NULL && ddl_rank(bench->world) == 0)
        ok = (bench->report =
                  report_open(bench->options, ddl_size(bench->world), ddl_node_count(bench->world))) != NULL;
    ok = agreed(bench, ok && !wrong_flags) && work(bench);
    ok = good(ddl_comm_free(&bench->world)) && ok;
    return wrong_flags ? EXIT_WRONG_FLAGS : ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int bench_one(struct bench *bench)
{
    return good(open_world(bench, bench->options->algorithm)) ? in_world(bench, bench_sizes) : EXIT_FAILURE;
}

/* ---- all algorithms ---- */

/* In a world in which none is forced: the sizes, and what is chosen for each. */
static bool survey(struct bench *bench)
{
    struct comparison *comparison = bench->comparison;
    comparison->nsizes = list_sizes(bench, comparison->counts);
    for (size_t i = 0; i < comparison->nsizes; i++)
        comparison->chosen[i] = algorithm_of(bench, comparison->counts[i]);
    return true;
}

static bool measure_algorithm(struct bench *bench)
{
    struct comparison *comparison = bench->comparison;
    for (size_t i = 0; i < comparison->nsizes; i++) {
        struct report_row row, *best = &comparison->best[i][bench->algorithm];
        if (!bench_size(bench, comparison->counts[i], &row))
            return false;
        row.chosen = strcmp(row.algorithm, comparison->chosen[i]) == 0;
        if (best->algorithm == NULL || row.measurement.mean_us < best->measurement.mean_us)
            *best = row;
    }
    return true;
}

/* As algorithms are forced when a world is made, each has a world of its own. */
static int run_algorithm(struct bench *bench)
{
    struct comparison *comparison = bench->comparison;
    const char *name = comparison->names[bench->algorithm];
    if (comparison->left_out[bench->algorithm])
        return EXIT_SUCCESS;
    ddl_status status = open_world(bench, name);
    if (status == DDL_ECONFIG || status == DDL_EUNSUPPORTED) { /* not for so many ranks */
        if (bench->report != NULL)
            report_left_out(bench->report, name, ddl_last_error()->text);
        comparison->left_out[bench->algorithm] = true;
        return EXIT_SUCCESS;
    }
    return good(status) ? in_world(bench, measure_algorithm) : EXIT_FAILURE;
}

static void report_comparison(const struct bench *bench)
{
    const struct comparison *comparison = bench->comparison;
    for (size_t i = 0; i < comparison->nsizes; i++) {
        const struct report_row *chosen = NULL, *best = NULL;
        for (size_t j = 0; j < comparison->nalgorithms; j++) {
            const struct report_row *row = &comparison->best[i][j];
            if (row->algorithm == NULL)
                continue;
            report_row(bench->report, row);
            if (row->chosen)
                chosen = row;
            if (best == NULL || row->measurement.mean_us < best->measurement.mean_us)
                best = row;
        }
        if (chosen != NULL)
            report_choice(bench->report, chosen, best);
    }
}

static int bench_all(struct bench *bench)
{
    struct comparison *comparison = bench->comparison;
    unforce_algorithm(bench->kind->name);
    int result = good(open_world(bench, NULL)) ? in_world(bench, survey) : EXIT_FAILURE;
    /* In another order in each round, as whoever comes first finds caches and clocks colder. */
    for (int round = 0; round < bench->options->rounds; round++)
        for (size_t i = 0; i < comparison->nalgorithms && result == EXIT_SUCCESS; i++) {
            bench->algorithm = (i + (size_t)round) % comparison->nalgorithms;
            result = run_algorithm(bench);
        }
    if (result == EXIT_SUCCESS && bench->report != NULL)
        report_comparison(bench);
    return result;
}

/* ---- the command ---- */

static bool is_all(const struct bench_options *options)
{
    return options->algorithm != NULL && strcmp(options->algorithm, "all") == 0;
}

/* Whether the library has the algorithm that is asked for, or any, where all are; if not, say which it has.
 */
static bool check_algorithm(const struct bench_options *options)
{
    const char *names[MAX_ALGORITHMS] = { NULL };
    if (options->algorithm == NULL)
        return true;
    size_t count = ddl_algorithm_names(options->collective, names, MAX_ALGORITHMS);
    if (is_all(options) && count > 0)
        return true;
    for (size_t i = 0; i < count; i++)
        if (strcmp(options->algorithm, names[i]) == 0)
            return true;
    fprintf(stderr, "ddl-bench: --algorithm %s: %s has ", options->algorithm, options->collective);
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "%s%s", i > 0 ? ", " : "", names[i]);
    fprintf(stderr, "%s\n", count == 0 ? "none to choose from" : "");
    return false;
}

static int bench_collective(const struct bench_options *options)
{
    struct bench bench = { .options = options, .kind = workload_kind_find(options->collective) };
    const char *names[MAX_ALGORITHMS] = { NULL };
    const bool all = is_all(options);
    if (all) {
        size_t count = ddl_algorithm_names(options->collective, names, MAX_ALGORITHMS);
        if ((bench.comparison = calloc(1, sizeof *bench.comparison)) == NULL)
            return good(DDL_ENOMEM) ? EXIT_SUCCESS : EXIT_FAILURE;
        bench.comparison->nalgorithms = count < MAX_ALGORITHMS ? count : MAX_ALGORITHMS;
        memcpy(bench.comparison->names, names, sizeof names);
    }
    int result = all ? bench_all(&bench) : bench_one(&bench);
    free(bench.comparison);
    return report_close(bench.report, result == EXIT_SUCCESS) ? result : EXIT_FAILURE;
}

/* All ranks have the same command line, and what is wrong with it is said by the first. */
static enum bench_parsed read_flags(int argc, char **argv, struct bench_options *options)
{
    const int hush = first_hush_others();
    enum bench_parsed parsed = bench_options_parse(argc, argv, options);
    if (parsed == BENCH_WRONG)
        fputs("ddl-bench: --help tells the flags\n", stderr);
    if (parsed == BENCH_RUN && !check_algorithm(options))
        parsed = BENCH_WRONG;
    first_end_hush(hush);
    return parsed;
}

static int run(int argc, char **argv)
{
    struct bench_options options;
    switch (read_flags(argc, argv, &options)) {
    case BENCH_HELP:
        if (first_may_be_here())
            fputs(bench_usage, stdout);
        return EXIT_SUCCESS;
    case BENCH_VERSION:
        if (first_may_be_here())
            printf("ddl-bench %s\n", ddl_version());
        return EXIT_SUCCESS;
    case BENCH_WRONG:
        return EXIT_WRONG_FLAGS;
    case BENCH_RUN:
        break;
    }

    if (options.mode == BENCH_CALIBRATE)
        return calibrate(&options);
    if (options.mode == BENCH_CONSISTENCY)
        return consistency(&options);
    return bench_collective(&options);
}

int main(int argc, char **argv)
{
    int result = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("ddl-bench: cannot write standard output; what it should have is lost\n", stderr);
        return result == EXIT_SUCCESS ? EXIT_FAILURE : result;
    }
    return result;
}
