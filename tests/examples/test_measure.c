/* test_measure.c - the figures of ddl-bench, of an operation whose times are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "../conformance/ranks.h"
#include "measure.h"

enum { CALLS = 100, MOST_CALLS_US = 1000, SLOW_CALLS_US = 20 * 1000 };

struct operation {
    int rank, calls;
};

/* On rank 1 each call takes its time, and 2 of 100 take more. */
static ddl_status run(void *arg)
{
    struct operation *operation = arg;
    const int call = operation->calls++;
    const long us = call == 10 || call == 90 ? SLOW_CALLS_US : MOST_CALLS_US;
    if (operation->rank == 1)
        nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
    return DDL_OK;
}

static void measure_calls(rank_thread *me)
{
    const struct bench_options options = { .iterations = CALLS };
    struct operation operation = { .rank = me->rank };
    const struct measured measured = { me->world, run, &operation };
    struct measurement found;
    if (measure(&measured, &options, &found) != DDL_OK) {
        EXPECT(me, !"measured");
        return;
    }
    EXPECT(me, found.iterations == CALLS && operation.calls == CALLS);
    EXPECT(me, found.median_us >= MOST_CALLS_US);
    EXPECT(me, found.median_us < SLOW_CALLS_US);
    EXPECT(me, found.p99_us >= SLOW_CALLS_US);
    EXPECT(me, found.mean_us >= (98.0 * MOST_CALLS_US + 2.0 * SLOW_CALLS_US) / CALLS);
}

static void figures_are_of_the_slowest_rank_and_show_its_slowest_calls(void **state)
{
    (void)state;
    ranks_play("mem://measure", 2, measure_calls, NULL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_of_the_slowest_rank_and_show_its_slowest_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
