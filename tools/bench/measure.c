/* measure.c - the timing loop of ddl-bench. */
#include "measure.h"

#include <stdlib.h>
#include <time.h>

enum { MIN_ITERATIONS = 4, MAX_ITERATIONS = 20000 };

#define TRY(call)                       \
    do {                                \
        ddl_status try_status = (call); \
        if (try_status != DDL_OK)       \
            return try_status;          \
    } while (0)

double measure_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

int measure_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Run so many operations; what each took goes to times unless that is NULL. */
static ddl_status run(const struct measured *measured, long iterations, double times[], double *total_us)
{
    TRY(ddl_barrier(measured->world, NULL));
    double start_us = measure_now_us(), last_us = start_us;
    for (long i = 0; i < iterations; i++) {
        TRY(measured->run(measured->arg));
        if (times == NULL)
            continue;
        double stamp_us = measure_now_us();
        times[i] = stamp_us - last_us;
        last_us = stamp_us;
    }
    *total_us = measure_now_us() - start_us;
    return DDL_OK;
}

/* Try more and more operations until they take long enough to tell how many fit into the time given. */
static ddl_status choose_iterations(const struct measured *measured, double seconds, long *iterations)
{
    for (long tried = 1;; tried = tried * 4 < MAX_ITERATIONS ? tried * 4 : MAX_ITERATIONS) {
        double took_us;
        TRY(run(measured, tried, NULL, &took_us));
        TRY(ddl_allreduce(&took_us, &took_us, 1, DDL_FLOAT64, DDL_MAX, measured->world, NULL));
        if (took_us < seconds * 1e6 / 8 && tried < MAX_ITERATIONS)
            continue;
        double fit = seconds * 1e6 * (double)tried / took_us;
        *iterations = fit < MIN_ITERATIONS   ? MIN_ITERATIONS
                      : fit > MAX_ITERATIONS ? MAX_ITERATIONS
                                             : (long)fit;
        return DDL_OK;
    }
}

ddl_status measure(const struct measured *measured, const struct bench_options *options,
                   struct measurement *measurement)
{
    double total_us;
    long iterations = options->iterations;
    TRY(run(measured, options->warmup, NULL, &total_us));
    if (iterations == 0)
        TRY(choose_iterations(measured, options->seconds, &iterations));

    double *times = malloc((size_t)iterations * sizeof *times);
    int64_t all_have_memory = times != NULL;
    ddl_status status =
        ddl_allreduce(&all_have_memory, &all_have_memory, 1, DDL_INT64, DDL_MIN, measured->world, NULL);
    if (status == DDL_OK && !all_have_memory)
        status = DDL_ENOMEM;
    if (status == DDL_OK)
        status = run(measured, iterations, times, &total_us);
    if (status == DDL_OK) {
        qsort(times, (size_t)iterations, sizeof *times, measure_compare);
        double figures[3] = { times[iterations / 2], times[(long)((double)iterations * 0.99)],
                              total_us / (double)iterations };
        status = ddl_allreduce(figures, figures, 3, DDL_FLOAT64, DDL_MAX, measured->world, NULL);
        if (status == DDL_OK)
            *measurement = (struct measurement){ iterations, figures[0], figures[1], figures[2] };
    }
    free(times);
    return status;
}
