/*
 * collectives - one rank of a sweep: random calls against the serial oracle, over real processes.
 *
 *     ddl-launch --nproc_per_node 4 collectives --seed 7 --cases 200 [--max-count 20000] [--only allreduce]
 *                                               [--splits 0] [--gpu libcuda.so.1]
 *
 * --splits 0: on the world alone, not on parts of it. --gpu DRIVER: most buffers are memory of
 * a GPU, by this driver or what stands in for it.
 * Prints "ok N cases" or what was wrong, and which seed shows it again.
 */
#include "../conformance/cases.h"
#include "../conformance/gpu_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATION_TIMEOUT_MS = 60000 };

static int usage(const char *reason, const char *argument)
{
    fprintf(stderr,
            "collectives: %s: %s\nusage: collectives [--seed S] [--cases N] [--max-count M] [--only NAME] "
            "[--splits 0|1] [--gpu DRIVER]\n",
            reason, argument);
    return 2;
}

static bool number(const char *text, unsigned long long *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

int main(int argc, char *argv[])
{
    cases_plan plan = { .seed = 1, .ncases = 100, .max_count = 20000, .only = -1, .splits = true };
    static const cases_memory on_gpu = { gpu_memory_alloc, gpu_memory_free, gpu_memory_write,
                                         gpu_memory_read };
    char failure[CASES_FAILURE_BYTES];
    const char *driver = NULL;
    ddl_comm *world = NULL;
    bool good;

    for (int i = 1; i < argc; i += 2) {
        unsigned long long value = 0;
        if (i + 1 == argc)
            return usage("needs a value", argv[i]);
        if (strcmp(argv[i], "--gpu") == 0) {
            driver = argv[i + 1];
            continue;
        }
        if (strcmp(argv[i], "--only") == 0) {
            if ((plan.only = oracle_kind_parse(argv[i + 1])) < 0)
                return usage("no such operation", argv[i + 1]);
            continue;
        }
        if (!number(argv[i + 1], &value))
            return usage("not a number", argv[i + 1]);
        if (strcmp(argv[i], "--seed") == 0)
            plan.seed = value;
        else if (strcmp(argv[i], "--cases") == 0)
            plan.ncases = (int)value;
        else if (strcmp(argv[i], "--max-count") == 0)
            plan.max_count = (size_t)value;
        else if (strcmp(argv[i], "--splits") == 0)
            plan.splits = value != 0;
        else
            return usage("unknown flag", argv[i]);
    }
    if (driver != NULL)
        gpu_memory_expect(driver);
    if (ddl_init(&world, NULL) != DDL_OK) {
        fprintf(stderr, "collectives: %s\n", ddl_last_error()->text);
        return 1;
    }
    if (plan.only >= ORACLE_SHIFT && ddl_size(world) == 1)
        return usage("needs two ranks", oracle_kind_name((oracle_kind)plan.only));
    if (driver != NULL) {
        if (!gpu_memory_open(driver))
            return 1;
        plan.elsewhere = &on_gpu;
        const char *one_in = getenv("DDL_TEST_HOST_ONE_IN");
        plan.host_one_in = one_in != NULL ? (unsigned)atoi(one_in) : 4;
    }
    ddl_comm_set_timeout(world, OPERATION_TIMEOUT_MS);
    good = cases_run(world, &plan, failure);
    if (!good)
        fprintf(stderr, "collectives: %s\n", failure);
    if (ddl_comm_free(&world) != DDL_OK && good) {
        fprintf(stderr, "collectives: ddl_comm_free: %s\n", ddl_last_error()->text);
        good = false;
    }
    if (good)
        printf("ok %d cases\n", plan.ncases);
    return good ? 0 : 1;
}
