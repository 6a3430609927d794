/*
 * survivors.c - training goes on without a process that is lost.
 *
 *     ddl-launch -np 4 --on_failure continue ./survivors [RANK STEP]
 *
 * A line is fitted to points by gradient descent; each process has its share of the points. Kill one of them
 * (or have it kill itself: RANK in STEP): the others shrink the communicator, share all points anew among
 * themselves, take what the furthest of them has reached, and go on. So they find the same line.
 *
 * What a step needs beyond a communicator has to be in every process, or where others reach it, as a file:
 * here, the points are made from their numbers.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <ddl/ddl.h>

enum { POINTS = 20000, STEPS = 400 };

typedef struct model { /* what training has reached; the same in all processes that are in the same step */
    double step, slope, offset;
} model;

enum { MODEL_VALUES = sizeof(model) / sizeof(double) };

/* Between 0 and 1, of a point. */
static double noise(uint32_t point, uint32_t salt)
{
    uint32_t bits = (point * 2 + salt) * 2654435761u;
    bits ^= bits >> 15;
    bits *= 2246822519u;
    return (double)(bits >> 8) / (1 << 24);
}

/* Each process sums over the points of its rank; every process moves along the mean of all. */
static ddl_status take_step(ddl_comm *comm, model *reached)
{
    const double rate = 0.5;
    double sums[2] = { 0 };
    for (uint32_t point = (uint32_t)ddl_rank(comm); point < POINTS; point += (uint32_t)ddl_size(comm)) {
        const double x = noise(point, 0), y = 3 * x + 1 + 0.1 * (noise(point, 1) - 0.5);
        const double excess = reached->slope * x + reached->offset - y;
        sums[0] += excess * x;
        sums[1] += excess;
    }
    const ddl_status status = ddl_allreduce(sums, sums, 2, DDL_FLOAT64, DDL_SUM, comm, NULL);
    if (status == DDL_OK) {
        reached->slope -= rate * sums[0] / POINTS;
        reached->offset -= rate * sums[1] / POINTS;
        reached->step++;
    }
    return status;
}

/* A failure may have come to some while others were through with the step: all take what the furthest has.
 * Only what has come whole: of a broadcast that fails a part may be there. */
static ddl_status catch_up(ddl_comm *comm, model *reached)
{
    double *steps = calloc((size_t)ddl_size(comm), sizeof *steps);
    if (steps == NULL)
        return DDL_ENOMEM;
    ddl_status status = ddl_allgather(&reached->step, steps, 1, DDL_FLOAT64, comm, NULL);
    int furthest = 0;
    for (int rank = 1; rank < ddl_size(comm); rank++)
        if (steps[rank] > steps[furthest])
            furthest = rank;
    free(steps);
    if (status != DDL_OK)
        return status;
    model whole = *reached;
    status = ddl_broadcast(&whole, MODEL_VALUES, DDL_FLOAT64, furthest, comm, NULL);
    if (status == DDL_OK)
        *reached = whole;
    return status;
}

/* From now on without those who are lost. False: this process cannot go on; an error is printed. */
static bool go_on_without_the_lost(ddl_comm **comm)
{
    ddl_comm *rest = NULL;
    if (ddl_comm_shrink(*comm, &rest) != DDL_OK) {
        fprintf(stderr, "this process cannot go on: %s\n", ddl_last_error()->text);
        return false;
    }
    if (ddl_rank(rest) == 0)
        printf("%d of %d processes go on\n", ddl_size(rest), ddl_size(*comm));
    (void)ddl_comm_free(comm); /* it has failed, which is known */
    *comm = rest;
    return true;
}

int main(int argc, char **argv)
{
    ddl_comm *comm = NULL;
    if (argc != 1 && argc != 3) {
        fprintf(stderr, "usage: survivors [RANK STEP]\n");
        return 2;
    }
    if (ddl_init(&comm, NULL) != DDL_OK) {
        fprintf(stderr, "%s\n", ddl_last_error()->text);
        return EXIT_FAILURE;
    }
    const bool is_victim = argc == 3 && atoi(argv[1]) == ddl_rank(comm);
    model reached = { 0 };
    /* Nobody leaves before all are through: who has to shrink needs the others. (It may fail for some of them
     * still; these know the result, too.) */
    for (bool is_even = true, all_are_through = false; !all_are_through;) {
        const bool is_through = is_even && reached.step >= STEPS;
        if (is_victim && reached.step >= atoi(argv[2]))
            kill(getpid(), SIGKILL);
        const ddl_status status = !is_even     ? catch_up(comm, &reached)
                                  : is_through ? ddl_barrier(comm, NULL)
                                               : take_step(comm, &reached);
        if (status != DDL_OK && !go_on_without_the_lost(&comm))
            return EXIT_FAILURE;
        is_even = status == DDL_OK;
        all_are_through = is_even && is_through;
    }
    if (ddl_rank(comm) == 0)
        printf("y = %.4f x + %.4f, found by %d process%s\n", reached.slope, reached.offset, ddl_size(comm),
               ddl_size(comm) == 1 ? "" : "es");
    (void)ddl_comm_free(&comm); /* the result is known, whoever does not come */
    if (fflush(stdout) != 0) {
        perror("standard output");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
