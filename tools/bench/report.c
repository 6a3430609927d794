/* report.c - the output of ddl-bench. */
#include "report.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "destination.h"
#include "occasion.h"

struct report {
    const struct bench_options *options;
    struct destination *destination; /* of JSON, or NULL */
    cJSON *json, *results, *choices; /* choices: NULL until there is one */
    double worst_percent; /* of all sizes: how much slower the chosen algorithm was than the best */
    size_t worst_bytes, nchoices;
    bool terminal, progress_shown;
};

static bool out_of_memory(void)
{
    fputs("ddl-bench: out of memory\n", stderr);
    return false;
}

static bool add_setting(cJSON *settings, const char *name)
{
    const char *value = getenv(name);
    char text[256];
    if (value == NULL || *value == '\0')
        return true;
    snprintf(text, sizeof text, "%s", value);
    for (char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80) /* JSON is UTF-8, and this may be anything */
            *at = '?';
    return cJSON_AddStringToObject(settings, name, text) != NULL;
}

/* Of rank 0: what is set of that which times depend on. No other, as some are secrets. */
static bool add_settings(cJSON *json, const char *collective)
{
    static const char *const names[] = {
        "DDL_TRANSPORT", "DDL_SECURITY", "DDL_TLS_AES", "DDL_STREAMS",
        "DDL_CONNECT",   "DDL_IFACE",    "DDL_GPU",     "DDL_PROFILE",
    };
    cJSON *settings = cJSON_AddObjectToObject(json, "settings");
    bool ok = settings != NULL;
    for (size_t i = 0; ok && i < sizeof names / sizeof names[0]; i++)
        ok = add_setting(settings, names[i]);
    char forced[64] = "DDL_"; /* DDL_ALLREDUCE */
    const size_t prefix = strlen(forced);
    for (size_t i = 0; collective[i] != '\0' && prefix + i < sizeof forced - 1; i++)
        forced[prefix + i] = (char)toupper((unsigned char)collective[i]);
    return ok && add_setting(settings, forced);
}

/* What was measured, before the results. */
static bool describe(struct report *report, int nranks, int nodes)
{
    const struct bench_options *options = report->options;
    if ((report->json = cJSON_CreateObject()) == NULL)
        return false;
    const struct workload_kind *kind = workload_kind_find(options->collective);
    const struct occasion occasion = occasion_now();
    bool ok = cJSON_AddStringToObject(report->json, "ddl", ddl_version()) != NULL &&
              cJSON_AddStringToObject(report->json, "date", occasion.date) != NULL &&
              cJSON_AddStringToObject(report->json, "host", occasion.host) != NULL &&
              add_settings(report->json, options->collective) &&
              cJSON_AddStringToObject(report->json, "collective", options->collective) != NULL &&
              cJSON_AddStringToObject(report->json, "dtype", options->dtype_name) != NULL &&
              cJSON_AddNumberToObject(report->json, "ranks", nranks) != NULL &&
              cJSON_AddNumberToObject(report->json, "nodes", nodes) != NULL &&
              cJSON_AddBoolToObject(report->json, "in_place", options->in_place) != NULL &&
              cJSON_AddBoolToObject(report->json, "shared_memory", options->shared_memory) != NULL;
    if (ok && kind->reduces)
        ok = cJSON_AddStringToObject(report->json, "op", options->op_name) != NULL;
    if (ok && kind->has_root)
        ok = cJSON_AddNumberToObject(report->json, "root", options->root) != NULL;
    return ok && (report->results = cJSON_AddArrayToObject(report->json, "results")) != NULL;
}

struct report *report_open(const struct bench_options *options, int nranks, int nodes)
{
    struct report *report = calloc(1, sizeof *report);
    if (report == NULL) {
        out_of_memory();
        return NULL;
    }
    report->options = options;
    report->terminal = isatty(STDERR_FILENO);
    if (options->json != NULL && (report->destination = destination_open(options->json)) == NULL)
        goto fail;
    if (options->json != NULL && !describe(report, nranks, nodes)) {
        out_of_memory();
        goto fail;
    }
    const struct workload_kind *kind = workload_kind_find(options->collective);
    printf("# ddl %s: %s", ddl_version(), options->collective);
    if (strcmp(options->collective, "barrier") != 0)
        printf(" of %s", options->dtype_name);
    if (kind->reduces)
        printf(" by %s", options->op_name);
    const char *profile = getenv("DDL_PROFILE");
    printf(", %d process%s on %d host%s%s%s\n", nranks, nranks == 1 ? "" : "es", nodes, nodes == 1 ? "" : "s",
           options->in_place ? ", in place" : "",
           options->shared_memory ? ", buffers from ddl_mem_alloc" : "");
    if (profile != NULL && *profile != '\0')
        printf("# chosen by the constants in %s\n", profile);
    printf("#%11s %12s  %-20s %12s %12s %12s %10s %10s\n", "bytes", "count", "algorithm", "median us",
           "p99 us", "iterations", "alg GB/s", "bus GB/s");
    fflush(stdout);
    return report;
fail:
    destination_close(report->destination);
    cJSON_Delete(report->json);
    free(report);
    return NULL;
}

static void clear_progress(struct report *report)
{
    if (report->progress_shown)
        fputs("\r\033[K", stderr);
    report->progress_shown = false;
}

void report_progress(struct report *report, const char *algorithm, size_t bytes)
{
    if (!report->terminal)
        return;
    clear_progress(report);
    fprintf(stderr, "%s %s: %zu bytes ...", report->options->collective, algorithm, bytes);
    fflush(stderr);
    report->progress_shown = true;
}

static bool add_result(struct report *report, const struct report_row *row, double algorithm_gbps,
                       double bus_gbps)
{
    const struct measurement *m = &row->measurement;
    const char *algorithm = report->options->algorithm;
    const bool is_compared = algorithm != NULL && strcmp(algorithm, "all") == 0;
    cJSON *result = cJSON_CreateObject();
    if (result == NULL || !cJSON_AddItemToArray(report->results, result))
        return false;
    return cJSON_AddStringToObject(result, "algorithm", row->algorithm) != NULL &&
           (!is_compared || cJSON_AddBoolToObject(result, "chosen", row->chosen) != NULL) &&
           cJSON_AddNumberToObject(result, "bytes", (double)row->bytes) != NULL &&
           cJSON_AddNumberToObject(result, "count", (double)row->count) != NULL &&
           cJSON_AddNumberToObject(result, "iterations", (double)m->iterations) != NULL &&
           cJSON_AddNumberToObject(result, "median_us", m->median_us) != NULL &&
           cJSON_AddNumberToObject(result, "p99_us", m->p99_us) != NULL &&
           cJSON_AddNumberToObject(result, "mean_us", m->mean_us) != NULL &&
           cJSON_AddNumberToObject(result, "algorithm_GBps", algorithm_gbps) != NULL &&
           cJSON_AddNumberToObject(result, "bus_GBps", bus_gbps) != NULL;
}

static bool add_choice(struct report *report, const struct report_row *chosen, const struct report_row *best,
                       double percent)
{
    if (report->choices == NULL &&
        (report->choices = cJSON_AddArrayToObject(report->json, "choices")) == NULL)
        return false;
    cJSON *choice = cJSON_CreateObject();
    if (choice == NULL || !cJSON_AddItemToArray(report->choices, choice))
        return false;
    return cJSON_AddNumberToObject(choice, "bytes", (double)chosen->bytes) != NULL &&
           cJSON_AddStringToObject(choice, "chosen", chosen->algorithm) != NULL &&
           cJSON_AddNumberToObject(choice, "chosen_us", chosen->measurement.mean_us) != NULL &&
           cJSON_AddStringToObject(choice, "best", best->algorithm) != NULL &&
           cJSON_AddNumberToObject(choice, "best_us", best->measurement.mean_us) != NULL &&
           cJSON_AddNumberToObject(choice, "slower_percent", percent) != NULL;
}

void report_row(struct report *report, const struct report_row *row)
{
    const struct measurement *m = &row->measurement;
    double algorithm_gbps = m->median_us > 0 ? (double)row->bytes / m->median_us * 1e-3 : 0;
    double bus_gbps = algorithm_gbps * row->bus_factor;
    char algorithm[64];
    snprintf(algorithm, sizeof algorithm, "%s%s", row->algorithm, row->chosen ? "*" : "");
    clear_progress(report);
    printf("%12zu %12zu  %-20s %12.2f %12.2f %12ld %10.3f %10.3f\n", row->bytes, row->count, algorithm,
           m->median_us, m->p99_us, m->iterations, algorithm_gbps, bus_gbps);
    fflush(stdout);
    if (report->destination != NULL && !add_result(report, row, algorithm_gbps, bus_gbps)) {
        out_of_memory();
        exit(EXIT_FAILURE);
    }
}

void report_choice(struct report *report, const struct report_row *chosen, const struct report_row *best)
{
    double best_us = best->measurement.mean_us, chosen_us = chosen->measurement.mean_us;
    double percent = best_us > 0 ? (chosen_us / best_us - 1) * 100 : 0;
    printf("# %zu bytes: chosen %s, %.2f us in the mean; best %s, %.2f us; %.1f %% slower\n", chosen->bytes,
           chosen->algorithm, chosen_us, best->algorithm, best_us, percent);
    fflush(stdout);
    if (report->nchoices++ == 0 || percent > report->worst_percent) {
        report->worst_percent = percent;
        report->worst_bytes = chosen->bytes;
    }
    if (report->destination != NULL && !add_choice(report, chosen, best, percent)) {
        out_of_memory();
        exit(EXIT_FAILURE);
    }
}

void report_left_out(struct report *report, const char *algorithm, const char *reason)
{
    clear_progress(report);
    printf("# %s is left out: %s\n", algorithm, reason);
    fflush(stdout);
}

static bool write_json(struct report *report)
{
    char *text = cJSON_Print(report->json);
    if (text == NULL)
        return out_of_memory();
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in the place of the end, which a file does not have */
    bool ok = destination_write(report->destination, text, bytes + 1);
    cJSON_free(text);
    return ok;
}

bool report_close(struct report *report, bool complete)
{
    bool ok = true;
    if (report == NULL)
        return true;
    clear_progress(report);
    if (report->nchoices > 0)
        report->worst_percent > 0
            ? printf("# the chosen one is at most %.1f %% slower than the best, at %zu bytes\n",
                     report->worst_percent, report->worst_bytes)
            : printf("# the chosen one is the best at every size\n");
    if (report->destination != NULL && complete)
        ok = write_json(report);
    destination_close(report->destination);
    cJSON_Delete(report->json);
    free(report);
    return ok;
}
