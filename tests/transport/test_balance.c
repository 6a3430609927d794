/* test_balance.c - which of several ranks moves, and where to; and how a thread does, which is not bound by
 * it. */
#include "base/clock.h"
#include "io/host.h"
#include "transport/balance.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MOST = 8 };

/* Ranks 0, 1, ... are on these CPUs; -1 where one is not known. */
typedef struct situation {
    const char *name;
    int cpus[RANKS_MOST], nranks;
    int allowed[4], nallowed;
    int mover, to; /* -1: nobody moves */
    int bound;     /* may not move; -1: all may */
} situation;

static int place(const situation *s, ddl_whereabouts ranks[])
{
    int known = 0;
    for (int rank = 0; rank < s->nranks; rank++)
        if (s->cpus[rank] >= 0)
            ranks[known++] = (ddl_whereabouts){ rank, s->cpus[rank], rank != s->bound };
    return known;
}

static void the_highest_of_too_many_moves(void **state)
{
    (void)state;
    static const situation situations[] = {
        { "as many on each", { 0, 1, 1, 0 }, 4, { 0, 1 }, 2, -1, -1, -1 },
        { "three and one", { 0, 0, 1, 0 }, 4, { 0, 1 }, 2, 3, 1, -1 },
        { "one and three", { 1, 1, 1, 0 }, 4, { 0, 1 }, 2, 2, 0, -1 },
        { "all on one", { 1, 1, 1, 1 }, 4, { 0, 1 }, 2, 3, 0, -1 },
        { "an odd number is as even as it can be", { 0, 1, 0 }, 3, { 0, 1 }, 2, -1, -1, -1 },
        { "all three on one", { 0, 0, 0 }, 3, { 0, 1 }, 2, 2, 1, -1 },
        { "one of five too many", { 0, 0, 1, 0, 0 }, 5, { 0, 1 }, 2, 4, 1, -1 },
        { "to the one with the fewest", { 2, 2, 2, 5, 5, 7 }, 6, { 2, 5, 7 }, 3, 2, 7, -1 },
        { "an empty one", { 2, 2, 5 }, 3, { 2, 5, 7 }, 3, 1, 7, -1 },
        { "who is not known does not count", { 0, 0, -1, 1 }, 4, { 0, 1 }, 2, -1, -1, -1 },
        { "who is bound leaves it to the next", { 0, 0, 1, 0 }, 4, { 0, 1 }, 2, 1, 1, 3 },
        { "of several the next one", { 3, 3, 3 }, 3, { 1, 3, 5 }, 3, 2, 5, -1 },
        { "there is no other", { 0, 0, 0 }, 3, { 0 }, 1, -1, -1, -1 },
        { "nothing is known of CPUs", { 0, 0, 0 }, 3, { 0 }, 0, -1, -1, -1 },
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
            ranks[rank] = (ddl_whereabouts){ rank, left % 3, true };
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

/* ---- by what they tell each other ---- */

enum { SHARERS = 3, ROOM_BYTES = 1 << 20, LANE_BYTES = 64 * 1024 };

static int moved_to = -1; /* by the last look */

void __wrap_ddl_engine_move(ddl_engine *engine, int cpu);
int __real_ddl_host_cpu(void);
int __wrap_ddl_host_cpu(void);
int __real_ddl_host_list_cpus(int cpus[], int most);
int __wrap_ddl_host_list_cpus(int cpus[], int most);

static bool are_all_on_the_first; /* of two CPUs */

void __wrap_ddl_engine_move(ddl_engine *engine, int cpu)
{
    (void)engine;
    moved_to = cpu;
}

int __wrap_ddl_host_cpu(void)
{
    return are_all_on_the_first ? 0 : __real_ddl_host_cpu();
}

int __wrap_ddl_host_list_cpus(int cpus[], int most)
{
    if (!are_all_on_the_first)
        return __real_ddl_host_list_cpus(cpus, most);
    cpus[0] = 0;
    cpus[1] = 1;
    return 2;
}

/* Three ranks are on the first of two CPUs. The others have told so at this time of their clock, and the last
 * one looks at that of its own; where it moves to, or -1. */
static int look_at_what_was_told(int64_t told_ms, int64_t now_ms)
{
    ddl_roster *rosters[SHARERS];
    ddl_lanes *lanes[SHARERS];
    for (int rank = 0; rank < SHARERS; rank++) {
        assert_int_equal(ddl_roster_create(rank, SHARERS, &rosters[rank], NULL), DDL_OK);
        for (int i = 0; i < SHARERS; i++) {
            rosters[rank]->members[i].pid = getpid();
            rosters[rank]->members[i].cpus = 2;
        }
        ddl_roster_derive(rosters[rank]);
        assert_int_equal(ddl_lanes_create(rosters[rank], ROOM_BYTES, 0, LANE_BYTES, &lanes[rank], NULL),
                         DDL_OK);
    }
    for (int rank = 0; rank < SHARERS; rank++)
        for (int other = 0; other < SHARERS; other++)
            if (other != rank)
                assert_int_equal(ddl_lanes_join(lanes[rank], other, dup(ddl_lanes_memory(lanes[other])),
                                                dup(ddl_lanes_bell(lanes[other])), NULL),
                                 DDL_OK);
    are_all_on_the_first = true;
    for (int rank = 0; rank < SHARERS; rank++) {
        ddl_balance balance = { 0 };
        moved_to = -1;
        ddl_balance_look(&balance, lanes[rank], rosters[rank], NULL,
                         (rank < SHARERS - 1 ? told_ms : now_ms) * DDL_NS_PER_MS);
    }
    are_all_on_the_first = false;
    for (int rank = 0; rank < SHARERS; rank++) {
        ddl_lanes_destroy(lanes[rank]);
        ddl_roster_destroy(rosters[rank]);
    }
    return moved_to;
}

static void nobody_moves_by_what_was_told_long_ago_or_is_to_come(void **state)
{
    enum { NOW_MS = 1000000 };
    (void)state;
    assert_int_equal(look_at_what_was_told(NOW_MS - 10, NOW_MS), 1);
    assert_int_equal(look_at_what_was_told(NOW_MS + 10, NOW_MS), 1);
    assert_int_equal(look_at_what_was_told(NOW_MS - 1000, NOW_MS), -1);
    assert_int_equal(look_at_what_was_told(NOW_MS + 1000, NOW_MS), -1); /* of a clock that is ahead */
}

/* ---- moving ---- */

static void *move_that(void *arg)
{
    const int *what = arg;
    ddl_host_move_thread(what[0], what[1]);
    return NULL;
}

static bool may_use(const cpu_set_t *set)
{
    cpu_set_t now;
    return sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, set);
}

/* By another thread, after which it may use these again. It runs meanwhile, as who sleeps is nowhere; and
 * asks again, as the system may take it elsewhere before it has run there. */
static void move_to(int cpu, const cpu_set_t *set)
{
    bool was_there = false;
    for (int tries = 0; tries < 50 && !was_there; tries++) {
        pthread_t mover;
        int what[] = { ddl_host_thread(), cpu };
        assert_int_equal(pthread_create(&mover, NULL, move_that, what), 0);
        for (const ddl_deadline end = ddl_deadline_in_ms(100); !ddl_deadline_passed(end) && !was_there;
             sched_yield())
            was_there = ddl_host_cpu() == cpu;
        assert_int_equal(pthread_join(mover, NULL), 0);
        assert_true(may_use(set));
    }
    assert_true(was_there);
}

static void a_thread_moves_and_is_not_bound(void **state)
{
    (void)state;
    cpu_set_t all, fewer;
    int cpus[CPU_SETSIZE];
    const int count = ddl_host_list_cpus(cpus, CPU_SETSIZE);
    if (ddl_host_cpu() < 0 || count < 2)
        skip();
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(CPU_COUNT(&all), count);
    for (int i = 0; i < 2; i++)
        move_to(cpus[i], &all);
    fewer = all; /* as a program that binds its thread: to what it has said, and nothing else */
    CPU_CLR((size_t)cpus[count - 1], &fewer);
    assert_int_equal(sched_setaffinity(0, sizeof fewer, &fewer), 0);
    move_to(cpus[0], &fewer);
    ddl_host_move_thread(ddl_host_thread(), cpus[count - 1]);
    for (const ddl_deadline end = ddl_deadline_in_ms(50); !ddl_deadline_passed(end);)
        assert_int_not_equal(ddl_host_cpu(), cpus[count - 1]);
    assert_true(may_use(&fewer));
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_of_too_many_moves),
        cmocka_unit_test(it_ends_evenly),
        cmocka_unit_test(nobody_moves_by_what_was_told_long_ago_or_is_to_come),
        cmocka_unit_test(a_thread_moves_and_is_not_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
