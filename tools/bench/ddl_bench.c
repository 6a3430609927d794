/*
 * ddl_bench.c - time a collective over sizes and algorithms; see --help and docs/bench.md.
 *
 * Every rank goes through the same steps. What only one of them can find wrong (memory, a wrong result, the
 * output file) is agreed on before anybody goes on, so that all end together.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "options.h"
#include "report.h"
#include "workload.h"

enum { MAX_ALGORITHMS = 32, EXIT_WRONG_FLAGS = 2 };

struct bench {
    const struct bench_options *options;
    const struct workload_kind *kind;
    ddl_comm *world;
    struct report *report; /* rank 0's */
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
static bool check(struct bench *bench, struct workload *workload, const char *algorithm)
{
    char reason[160];
    workload_fill(workload);
    if (!good(workload->kind->run(workload)))
        return false;
    bool right = workload_check(workload, reason, sizeof reason);
    if (!right)
        fprintf(stderr, "ddl-bench: rank %d: wrong result of %s by %s, %zu elements of %s: %s\n",
                workload->rank, workload->kind->name, algorithm, workload->count, bench->options->dtype_name,
                reason);
    return agreed(bench, right);
}

static bool bench_size(struct bench *bench, size_t count)
{
    const struct bench_options *options = bench->options;
    struct workload workload;
    struct measurement measurement;
    bool ready = workload_init(&workload, bench->kind, bench->world, count, options->dtype, options->op,
                               options->root, options->in_place);
    if (!ready)
        fprintf(stderr, "ddl-bench: out of memory for %zu elements of %s\n", count, options->dtype_name);
    if (!agreed(bench, ready)) {
        if (ready)
            workload_fini(&workload);
        return false;
    }
    const char *algorithm = ddl_algorithm_name(bench->world, bench->kind->name, count, options->dtype);
    if (algorithm == NULL)
        algorithm = "-";
    if (bench->report != NULL)
        report_progress(bench->report, algorithm, workload.elements * ddl_dtype_bytes(options->dtype));
    bool ok = check(bench, &workload, algorithm);
    workload_clear(&workload);
    ok = ok && good(measure(&workload, options, &measurement));
    if (ok && bench->report != NULL)
        report_row(bench->report, &workload, algorithm, &measurement);
    workload_fini(&workload);
    return ok;
}

static bool bench_sizes(struct bench *bench)
{
    const struct bench_options *options = bench->options;
    size_t last = SIZE_MAX;
    for (size_t bytes = options->min_bytes; bytes <= options->max_bytes; bytes *= options->factor) {
        size_t count = workload_count(bench->kind, bytes, options->dtype, ddl_size(bench->world));
        if (count != last && !bench_size(bench, count))
            return false;
        last = count;
        if (bytes > SIZE_MAX / options->factor)
            break;
    }
    return true;
}

/* What the world has to be for these flags. */
static bool check_world(const struct bench *bench)
{
    const struct bench_options *options = bench->options;
    int nranks = ddl_size(bench->world);
    const char *problem = NULL;
    if (bench->kind->has_root && options->root >= nranks)
        problem = "--root is not a rank of this job";
    if (strcmp(options->collective, "sendrecv") == 0 && nranks < 2)
        problem = "sendrecv takes two processes or more";
    if (problem != NULL && ddl_rank(bench->world) == 0)
        fprintf(stderr, "ddl-bench: %s; the job has %d\n", problem, nranks);
    return problem == NULL;
}

/* DDL_ALLREDUCE for "allreduce". */
static void force_algorithm(const char *collective, const char *algorithm)
{
    char variable[64];
    snprintf(variable, sizeof variable, "DDL_%s", collective);
    for (char *c = variable; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    setenv(variable, algorithm, 1);
}

/*
 * Measure all sizes in a world of their own, as algorithms are forced when a world is made. One that cannot
 * run in this world is left out where all of them are asked for, and an error where it was named.
 */
static int bench_world(struct bench *bench, const char *algorithm, bool *wrong_flags)
{
    if (algorithm != NULL)
        force_algorithm(bench->kind->name, algorithm);
    ddl_status status = ddl_init(&bench->world, NULL);
    bool all = bench->options->algorithm != NULL && strcmp(bench->options->algorithm, "all") == 0;
    if (all && (status == DDL_ECONFIG || status == DDL_EUNSUPPORTED)) {
        if (bench->report != NULL)
            report_left_out(bench->report, algorithm, ddl_last_error()->text);
        return EXIT_SUCCESS;
    }
    if (!good(status))
        return EXIT_FAILURE;
    bool ok = check_world(bench);
    *wrong_flags = !ok;
    if (ok && bench->report == NULL && ddl_rank(bench->world) == 0)
        ok = (bench->report =
                  report_open(bench->options, ddl_size(bench->world), ddl_node_count(bench->world))) != NULL;
    ok = agreed(bench, ok) && bench_sizes(bench);
    return good(ddl_comm_free(&bench->world)) && ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Whether the library has this algorithm; if not, say which it has. */
static bool is_known(const char *collective, const char *algorithm, const char *const names[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(algorithm, names[i]) == 0)
            return true;
    fprintf(stderr, "ddl-bench: --algorithm %s: %s has ", algorithm, collective);
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "%s%s", i > 0 ? ", " : "", names[i]);
    fprintf(stderr, "%s\n", count == 0 ? "none to choose from" : "");
    return false;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    switch (bench_options_parse(argc, argv, &options)) {
    case BENCH_HELP:
        fputs(bench_usage, stdout);
        return EXIT_SUCCESS;
    case BENCH_VERSION:
        printf("ddl-bench %s\n", ddl_version());
        return EXIT_SUCCESS;
    case BENCH_WRONG:
        fputs("ddl-bench: --help tells the flags\n", stderr);
        return EXIT_WRONG_FLAGS;
    case BENCH_RUN:
        break;
    }

    struct bench bench = { .options = &options, .kind = workload_kind_find(options.collective) };
    const char *names[MAX_ALGORITHMS] = { NULL };
    size_t count = ddl_algorithm_names(options.collective, names, MAX_ALGORITHMS);
    bool all = options.algorithm != NULL && strcmp(options.algorithm, "all") == 0;
    if (options.algorithm != NULL && !(all && count > 0) &&
        !is_known(options.collective, options.algorithm, names, count))
        return EXIT_WRONG_FLAGS;

    bool wrong_flags = false;
    int result = EXIT_SUCCESS;
    if (all)
        for (size_t i = 0; i < count && i < MAX_ALGORITHMS && result == EXIT_SUCCESS; i++)
            result = bench_world(&bench, names[i], &wrong_flags);
    else
        result = bench_world(&bench, options.algorithm, &wrong_flags);
    if (!report_close(bench.report))
        result = EXIT_FAILURE;
    return wrong_flags ? EXIT_WRONG_FLAGS : result;
}
