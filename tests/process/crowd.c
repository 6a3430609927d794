/*
 * crowd - four ranks on two CPUs that keep beginning three to one: crowd ROUNDS [late]
 *
 * late: two on each, of which those on one compute while the others wait for them. A rank says in how many of
 * the rounds it moved while both did, and had for so long that nothing it knew of them held any more.
 * Fails if a rank is bound to less than it was when it has gone through all of them.
 */
#define _GNU_SOURCE
#include <ddl/ddl.h>

#include "../support/now.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUND_MS = 60, CALLS = 20, LATE_MS = 300, KNOWN_MS = 100 /* more than FRESH_MS of balance.c */ };

static _Atomic(int64_t) moved_ms; /* when this rank did so last */

static void listen(void *arg, const char *line)
{
    (void)arg;
    if (strstr(line, "where fewer ranks of this host are") != NULL)
        moved_ms = now_ms();
    fprintf(stderr, "%s\n", line);
}

static int nth_cpu(const cpu_set_t *set, int n)
{
    int cpu = 0;
    while (!CPU_ISSET(cpu, set) || n-- > 0)
        cpu++;
    return cpu;
}

/* Soon: it may be on its way. */
static bool may_use(const cpu_set_t *all)
{
    cpu_set_t now;
    for (const int64_t end_ms = now_ms() + 2000; now_ms() < end_ms; sched_yield())
        if (sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, all))
            return true;
    return false;
}

static ddl_status run(ddl_comm *world, const cpu_set_t *all)
{
    cpu_set_t one;
    int32_t is_over = 0;
    ddl_status status = ddl_barrier(world, NULL);
    CPU_ZERO(&one);
    CPU_SET(nth_cpu(all, ddl_rank(world) == 3), &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(0, sizeof *all, all);
    for (int64_t end_ms = now_ms() + ROUND_MS; status == DDL_OK && !is_over;) {
        for (int i = 0; status == DDL_OK && i < CALLS; i++)
            status = ddl_barrier(world, NULL);
        is_over = now_ms() >= end_ms;
        if (status == DDL_OK)
            status = ddl_allreduce(&is_over, &is_over, 1, DDL_INT32, DDL_MAX, world, NULL);
    }
    return status;
}

static ddl_status wait_for_others(ddl_comm *world, const cpu_set_t *all, int *moves)
{
    cpu_set_t one;
    int64_t times[] = { 0, INT64_MIN }; /* when the last began to compute, and the first ended, negated */
    ddl_status status = ddl_barrier(world, NULL);
    const bool computes = ddl_rank(world) > 1;
    CPU_ZERO(&one);
    CPU_SET(nth_cpu(all, computes), &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(0, sizeof *all, all);
    if (computes) {
        times[0] = now_ms();
        while (now_ms() < times[0] + LATE_MS)
            continue;
        times[1] = -now_ms();
    }
    if (status == DDL_OK)
        status = ddl_allreduce(times, times, 2, DDL_INT64, DDL_MAX, world, NULL);
    *moves += moved_ms > times[0] + KNOWN_MS && moved_ms < -times[1];
    return status;
}

int main(int argc, char **argv)
{
    ddl_comm *world = NULL;
    cpu_set_t all;
    int moves = 0;
    ddl_set_log(listen, NULL);
    ddl_status status = ddl_init(&world, NULL);
    if (argc < 2 || sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) != 2)
        return 2;
    bool is_free = true;
    for (int i = 0; status == DDL_OK && i < atoi(argv[1]); i++) {
        status = argc > 2 ? wait_for_others(world, &all, &moves) : run(world, &all);
        is_free = is_free && may_use(&all);
    }
    if (status == DDL_OK)
        status = ddl_comm_free(&world);
    if (status != DDL_OK)
        fprintf(stderr, "crowd: %s\n", ddl_last_error()->text);
    fprintf(stderr, "crowd: moved %d times while others computed\n", moves);
    if (!is_free)
        fprintf(stderr, "crowd: a thread may not use what it could\n");
    return status == DDL_OK && is_free ? 0 : 1;
}
