/* consistency.c - one collective and two others, in turn, at each size. */
#include "consistency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "workload.h"

enum { ATTEMPTS = 3 };

static const struct rule {
    const char *whole, *parts[2];
} rules[] = {
    { "allreduce", { "reduce", "broadcast" } },  { "allreduce", { "reduce_scatter", "allgather" } },
    { "allgather", { "gather", "broadcast" } },  { "reduce_scatter", { "reduce", "scatter" } },
    { "broadcast", { "scatter", "allgather" } },
};

/* The buffers of one rule at one size: of the whole, then of its parts. */
struct contest {
    struct workload workloads[3];
    double whole_us, parts_us; /* the best of all rounds, in the mean; -1 before the first */
};

static bool good(ddl_status status)
{
    if (status != DDL_OK)
        fprintf(stderr, "ddl-bench: %s\n", status == DDL_ENOMEM ? "out of memory" : ddl_last_error()->text);
    return status == DDL_OK;
}

static ddl_status run_whole(void *arg)
{
    struct workload *whole = &((struct contest *)arg)->workloads[0];
    return whole->kind->run(whole);
}

static ddl_status run_parts(void *arg)
{
    struct workload *parts = &((struct contest *)arg)->workloads[1];
    ddl_status status = parts[0].kind->run(&parts[0]);
    return status == DDL_OK ? parts[1].kind->run(&parts[1]) : status;
}

/* Buffers for all three, or for none. */
static bool open_contest(struct contest *contest, const struct rule *rule, size_t bytes, ddl_comm *world,
                         const struct bench_options *options)
{
    const char *names[3] = { rule->whole, rule->parts[0], rule->parts[1] };
    *contest = (struct contest){ .whole_us = -1, .parts_us = -1 };
    for (int i = 0; i < 3; i++) {
        const struct workload_kind *kind = workload_kind_find(names[i]);
        size_t count = workload_count(kind, bytes, options->dtype, ddl_size(world));
        if (!workload_init(&contest->workloads[i], kind, world, count, options->dtype, options->op,
                           options->root, false, false)) {
            while (--i >= 0)
                workload_fini(&contest->workloads[i]);
            return false;
        }
    }
    return true;
}

static void close_contest(struct contest *contest)
{
    for (int i = 0; i < 3; i++)
        workload_fini(&contest->workloads[i]);
}

/* Each of the three, once on known values. False on all ranks where one has a wrong result. */
static bool check_results(struct contest *contest, ddl_comm *world, const struct bench_options *options)
{
    int64_t all_right = 1;
    for (int i = 0; i < 3; i++) {
        struct workload *workload = &contest->workloads[i];
        bool right = false;
        if (!good(workload_try(workload, options->dtype_name, &right)))
            return false;
        all_right = all_right && right;
    }
    return good(ddl_allreduce(&all_right, &all_right, 1, DDL_INT64, DDL_MIN, world, NULL)) && all_right;
}

/* So many rounds; more of them can only lower what both took. */
static ddl_status hold_contest(struct contest *contest, ddl_comm *world, const struct bench_options *options)
{
    const struct measured whole = { world, run_whole, contest }, parts = { world, run_parts, contest };
    for (int round = 0; round < options->rounds; round++) {
        struct measurement one, two;
        ddl_status status = measure(&whole, options, &one);
        if (status == DDL_OK)
            status = measure(&parts, options, &two);
        if (status != DDL_OK)
            return status;
        if (contest->whole_us < 0 || one.mean_us < contest->whole_us)
            contest->whole_us = one.mean_us;
        if (contest->parts_us < 0 || two.mean_us < contest->parts_us)
            contest->parts_us = two.mean_us;
    }
    return DDL_OK;
}

/* One rule at one size. *held: it holds, the same on every rank. */
static bool compare(const struct rule *rule, size_t bytes, ddl_comm *world,
                    const struct bench_options *options, bool *held)
{
    struct contest contest;
    int64_t ready = open_contest(&contest, rule, bytes, world, options), all_ready = 0;
    bool ok = good(ddl_allreduce(&ready, &all_ready, 1, DDL_INT64, DDL_MIN, world, NULL));
    if (ok && !all_ready && ddl_rank(world) == 0)
        fprintf(stderr, "ddl-bench: out of memory for %zu bytes\n", bytes);
    ok = ok && all_ready && check_results(&contest, world, options);
    /* What looks inconsistent may be a disturbance: it is looked at again. All ranks have the same figures.
     */
    *held = false;
    for (int attempt = 0; attempt < ATTEMPTS && ok && !*held; attempt++) {
        ok = good(hold_contest(&contest, world, options));
        *held = contest.whole_us <= contest.parts_us * (1 + options->tolerance / 100);
    }
    if (ready)
        close_contest(&contest);
    if (!ok)
        return false;
    if (ddl_rank(world) == 0) {
        char parts[64];
        snprintf(parts, sizeof parts, "%s + %s", rule->parts[0], rule->parts[1]);
        printf("%12zu  %-16s %12.2f  %-28s %12.2f %8.2f%s\n", bytes, rule->whole, contest.whole_us, parts,
               contest.parts_us, contest.whole_us / contest.parts_us, *held ? "" : "  INCONSISTENT");
        fflush(stdout);
    }
    return true;
}

static int compare_all(ddl_comm *world, const struct bench_options *options)
{
    int result = EXIT_SUCCESS;
    if (options->root >= ddl_size(world)) {
        if (ddl_rank(world) == 0)
            fprintf(stderr, "ddl-bench: --root %d is not a rank of this job, which has %d\n", options->root,
                    ddl_size(world));
        return EXIT_WRONG_FLAGS;
    }
    if (ddl_rank(world) == 0)
        printf("# ddl %s: one collective beside two, %d process%s; at most %.0f %% longer is consistent\n"
               "#%11s  %-16s %12s  %-28s %12s %8s\n",
               ddl_version(), ddl_size(world), ddl_size(world) == 1 ? "" : "es", options->tolerance, "bytes",
               "one", "mean us", "two", "mean us", "ratio");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (size_t bytes = options->min_bytes; bytes <= options->max_bytes;
             bytes *= (size_t)options->factor) {
            bool held = false;
            if (!compare(&rules[i], bytes, world, options, &held))
                return EXIT_FAILURE;
            if (!held)
                result = EXIT_FAILURE;
            if (bytes > SIZE_MAX / (size_t)options->factor)
                break;
        }
    return result;
}

int consistency(const struct bench_options *options)
{
    ddl_comm *world = NULL;
    if (!good(ddl_init(&world, NULL)))
        return EXIT_FAILURE;
    int result = compare_all(world, options);
    return good(ddl_comm_free(&world)) ? result : EXIT_FAILURE;
}
