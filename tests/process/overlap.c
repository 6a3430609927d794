/*
 * overlap - one of two ranks that compute while they communicate.
 *
 *     overlap REQUESTS MIB_EACH ROUNDS
 *
 * Measures blocking allreduces of so many MiB of float32 each, one after the other; makes a computation that
 * takes as long; then starts them all with requests, computes without calling the library, and waits. Rank 0
 * prints a line "communication SECONDS computation SECONDS together SECONDS", the median of each over the
 * rounds; a rank that finds a wrong result says so and fails.
 */
#include <ddl/ddl.h>

#include "../support/now.h"

#include <stdio.h>
#include <stdlib.h>

enum { REQUESTS_AT_MOST = 64, ROUNDS_AT_MOST = 99 };

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double values[], int count)
{
    qsort(values, (size_t)count, sizeof values[0], compare);
    return values[count / 2];
}

/* A chain of multiplications that no compiler shortens; memory stays out of it. */
static double compute(unsigned long long steps)
{
    double x = 1.0;
    for (unsigned long long i = 0; i < steps; i++)
        x = x * 1.0000001 + 1e-9;
    return x;
}

struct work {
    ddl_comm *world;
    int nrequests;
    size_t count;
    float *memory;
};

static int fail(const char *what)
{
    fprintf(stderr, "overlap: %s: %s\n", what, ddl_last_error()->text);
    exit(1);
}

static void fill(struct work *w)
{
    for (size_t i = 0; i < (size_t)w->nrequests * w->count; i++)
        w->memory[i] = (float)(i % 1000);
}

static void check(const struct work *w)
{
    for (size_t i = 0; i < (size_t)w->nrequests * w->count; i++)
        if (w->memory[i] != (float)(i % 1000) * (float)ddl_size(w->world))
            fail("a result is wrong");
}

static void meet(const struct work *w)
{
    if (ddl_barrier(w->world, NULL) != DDL_OK)
        fail("barrier");
}

static double communicate(struct work *w)
{
    double began;

    fill(w);
    meet(w);
    began = now_s();
    for (int i = 0; i < w->nrequests; i++) {
        float *x = w->memory + (size_t)i * w->count;
        if (ddl_allreduce(x, x, w->count, DDL_FLOAT32, DDL_SUM, w->world, NULL) != DDL_OK)
            fail("allreduce");
    }
    began = now_s() - began;
    check(w);
    return began;
}

static double do_both(struct work *w, unsigned long long steps, double *result)
{
    ddl_request *requests[REQUESTS_AT_MOST];
    double began;

    fill(w);
    meet(w);
    began = now_s();
    for (int i = 0; i < w->nrequests; i++) {
        float *x = w->memory + (size_t)i * w->count;
        if (ddl_allreduce(x, x, w->count, DDL_FLOAT32, DDL_SUM, w->world, &requests[i]) != DDL_OK)
            fail("allreduce");
    }
    *result += compute(steps);
    if (ddl_wait_all((size_t)w->nrequests, requests) != DDL_OK)
        fail("wait_all");
    began = now_s() - began;
    check(w);
    return began;
}

/* Steps that take as long, by doubling and then in proportion. */
static unsigned long long calibrate(double length, double *result)
{
    unsigned long long steps = 1000000;
    double took = 0;

    while (took < 0.1) {
        double began = now_s();
        steps *= 2;
        *result += compute(steps);
        took = now_s() - began;
    }
    return (unsigned long long)((double)steps * length / took);
}

int main(int argc, char *argv[])
{
    struct work w = { NULL, 1, 0, NULL };
    double communication[ROUNDS_AT_MOST], computation[ROUNDS_AT_MOST], together[ROUNDS_AT_MOST];
    double result = 0, length, all[3];
    unsigned long long steps;
    int rounds;

    if (argc != 4)
        return fprintf(stderr, "usage: overlap REQUESTS MIB_EACH ROUNDS\n"), 2;
    w.nrequests = atoi(argv[1]);
    w.count = (size_t)atoi(argv[2]) << 18;
    rounds = atoi(argv[3]);
    if (w.nrequests < 1 || w.nrequests > REQUESTS_AT_MOST || rounds < 1 || rounds > ROUNDS_AT_MOST)
        return fprintf(stderr, "overlap: an argument is out of range\n"), 2;
    if ((w.memory = malloc((size_t)w.nrequests * w.count * sizeof *w.memory)) == NULL)
        return fprintf(stderr, "overlap: no memory\n"), 1;
    if (ddl_init(&w.world, NULL) != DDL_OK)
        fail("init");
    communicate(&w); /* to warm up */
    for (int i = 0; i < rounds; i++)
        communication[i] = communicate(&w);
    length = median(communication, rounds);
    if (ddl_broadcast(&length, 1, DDL_FLOAT64, 0, w.world, NULL) != DDL_OK)
        fail("broadcast");
    steps = calibrate(length, &result);
    for (int i = 0; i < rounds; i++) {
        double began;
        meet(&w);
        began = now_s();
        result += compute(steps);
        computation[i] = now_s() - began;
        together[i] = do_both(&w, steps, &result);
    }
    all[0] = length;
    all[1] = median(computation, rounds);
    all[2] = median(together, rounds);
    if (ddl_allreduce(all, all, 3, DDL_FLOAT64, DDL_MAX, w.world, NULL) != DDL_OK)
        fail("allreduce of times");
    if (ddl_rank(w.world) == 0)
        printf("communication %.6f computation %.6f together %.6f\n", all[0], all[1], all[2]);
    if (ddl_comm_free(&w.world) != DDL_OK)
        fail("free");
    free(w.memory);
    return result > 0 ? 0 : 1;
}
