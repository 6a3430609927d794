/* test_balance.c - which of several ranks moves, and where to. */
#include "io/host.h"
#include "transport/balance.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { RANKS_MOST = 8 };

/* Ranks 0, 1, ... are on these CPUs; -1 where one is not known. */
typedef struct situation {
    const char *name;
    int cpus[RANKS_MOST], nranks;
    int allowed[4], nallowed;
    int mover, to; /* -1: nobody moves */
} situation;

static int place(const situation *s, ddl_whereabouts ranks[])
{
    int known = 0;
    for (int rank = 0; rank < s->nranks; rank++)
        if (s->cpus[rank] >= 0)
            ranks[known++] = (ddl_whereabouts){ rank, s->cpus[rank] };
    return known;
}

static void the_highest_of_too_many_moves(void **state)
{
    (void)state;
    static const situation situations[] = {
        { "as many on each", { 0, 1, 1, 0 }, 4, { 0, 1 }, 2, -1, -1 },
        { "three and one", { 0, 0, 1, 0 }, 4, { 0, 1 }, 2, 3, 1 },
        { "one and three", { 1, 1, 1, 0 }, 4, { 0, 1 }, 2, 2, 0 },
        { "all on one", { 1, 1, 1, 1 }, 4, { 0, 1 }, 2, 3, 0 },
        { "an odd number is as even as it can be", { 0, 1, 0 }, 3, { 0, 1 }, 2, -1, -1 },
        { "all three on one", { 0, 0, 0 }, 3, { 0, 1 }, 2, 2, 1 },
        { "one of five too many", { 0, 0, 1, 0, 0 }, 5, { 0, 1 }, 2, 4, 1 },
        { "to the one with the fewest", { 2, 2, 2, 5, 5, 7 }, 6, { 2, 5, 7 }, 3, 2, 7 },
        { "an empty one", { 2, 2, 5 }, 3, { 2, 5, 7 }, 3, 1, 7 },
        { "who is not known does not count", { 0, 0, -1, 1 }, 4, { 0, 1 }, 2, -1, -1 },
        { "there is no other", { 0, 0, 0 }, 3, { 0 }, 1, -1, -1 },
        { "nothing is known of CPUs", { 0, 0, 0 }, 3, { 0 }, 0, -1, -1 },
    };
    for (size_t i = 0; i < sizeof situations / sizeof *situations; i++) {
        const situation *s = &situations[i];
        ddl_whereabouts ranks[RANKS_MOST];
        const int known = place(s, ranks);
        for (int rank = 0; rank < s->nranks; rank++) {
            const int to = ddl_balance_choose(ranks, known, rank, s->allowed, s->nallowed);
            if (to != (rank == s->mover ? s->to : -1))
                fail_msg("%s: rank %d goes to %d", s->name, rank, to);
        }
    }
}

/* However they begin, and each by itself: moves that are told before the next one looks. */
static void it_ends_evenly(void **state)
{
    (void)state;
    static const int cpus[] = { 0, 1, 2 };
    enum { RANKS = 7, STARTS = 2187 }; /* 3 to the 7th */
    for (int start = 0; start < STARTS; start++) {
        ddl_whereabouts ranks[RANKS];
        int count[3] = { 0 }, left = start, moves = 0;
        for (int rank = 0; rank < RANKS; rank++, left /= 3)
            ranks[rank] = (ddl_whereabouts){ rank, left % 3 };
        for (int round = 0; round < RANKS; round++)
            for (int rank = 0; rank < RANKS; rank++) {
                const int to = ddl_balance_choose(ranks, RANKS, rank, cpus, 3);
                moves += to >= 0;
                ranks[rank].cpu = to >= 0 ? to : ranks[rank].cpu;
            }
        for (int rank = 0; rank < RANKS; rank++)
            count[ranks[rank].cpu]++;
        for (int cpu = 0; cpu < 3; cpu++)
            assert_in_range(count[cpu], 2, 3);
        assert_in_range(moves, 0, 5);
    }
}

static void a_thread_moves_and_is_not_bound(void **state)
{
    (void)state;
    cpu_set_t before, after;
    int cpus[CPU_SETSIZE];
    const int count = ddl_host_list_cpus(cpus, CPU_SETSIZE);
    if (ddl_host_cpu() < 0 || count < 2)
        skip();
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(CPU_COUNT(&before), count);
    assert_true(ddl_host_move_thread(cpus[1]));
    assert_true(ddl_host_move_thread(cpus[0]));
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    int last = cpus[count - 1]; /* one that this thread may not use */
    CPU_CLR((size_t)last, &after);
    assert_int_equal(sched_setaffinity(0, sizeof after, &after), 0);
    assert_false(ddl_host_move_thread(last));
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_of_too_many_moves),
        cmocka_unit_test(it_ends_evenly),
        cmocka_unit_test(a_thread_moves_and_is_not_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
