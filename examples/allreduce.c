/*
 * allreduce.c - every process contributes some numbers, and every process gets their sums.
 *
 *     ddl-launch -np 4 ./allreduce
 *
 * Here: the mean and the spread of measurements of which each process has only its own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <ddl/ddl.h>

static void must(ddl_status status)
{
    if (status == DDL_OK)
        return;
    fprintf(stderr, "%s\n", ddl_last_error()->text);
    exit(EXIT_FAILURE);
}

int main(void)
{
    ddl_comm *world = NULL;
    must(ddl_init(&world, NULL));

    /* This process measures a thousand times something that is 20, more or less. */
    unsigned state = 12345u + (unsigned)ddl_rank(world);
    double sums[3] = { 0 }; /* how many, their sum, the sum of their squares */
    for (int i = 0; i < 1000; i++) {
        state = state * 1664525u + 1013904223u;
        double measured = 20 + (double)(state >> 8) / (1 << 24) - 0.5;
        sums[0] += 1;
        sums[1] += measured;
        sums[2] += measured * measured;
    }

    must(ddl_allreduce(sums, sums, 3, DDL_FLOAT64, DDL_SUM, world, NULL));

    double mean = sums[1] / sums[0];
    double spread = sqrt(sums[2] / sums[0] - mean * mean);
    if (ddl_rank(world) == 0)
        printf("%d process%s measured %.0f times: %.4f, spread %.4f\n", ddl_size(world),
               ddl_size(world) == 1 ? "" : "es", sums[0], mean, spread);
    must(ddl_comm_free(&world));
    if (fflush(stdout) != 0) { /* what was printed may not have been written before, and be lost */
        perror("standard output");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
