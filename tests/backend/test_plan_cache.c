/*
 * test_plan_cache.c - which plans are kept, by number and by what they take. A plan that was kept has its
 * instances still; one that was made again has none. And what ranks find in plans by themselves.
 */
#include "backend/plan_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MANY = 5000, LEAST = 128, MOST = 4096, MOST_IN_FLIGHT = 32, RANKS = 64, COUNT_TOLD = 32 * 1024 };

static ddl_shape shape_of(int nranks, size_t count)
{
    return (ddl_shape){ .nranks = nranks, .count = count, .element_bytes = 4, .in_place = true };
}

static ddl_plan *find(ddl_plan_cache *cache, ddl_collective collective, const char *name,
                      const ddl_shape *shape)
{
    ddl_plan *plan;
    ddl_error error;
    assert_int_equal(ddl_plan_cache_find(cache, ddl_catalogue_find(collective, name), shape, &plan, &error),
                     DDL_OK);
    return plan;
}

static ddl_plan *find_ring(ddl_plan_cache *cache, int nranks, size_t count)
{
    const ddl_shape shape = shape_of(nranks, count);
    return find(cache, DDL_COLLECTIVE_ALLREDUCE, "ring", &shape);
}

/* So many calls of this size at a time. */
static void call(ddl_plan_cache *cache, int nranks, size_t count, int in_flight)
{
    ddl_plan_run *runs[MOST_IN_FLIGHT];
    ddl_error error;
    for (int i = 0; i < in_flight; i++)
        assert_int_equal(ddl_plan_take(find_ring(cache, nranks, count), &runs[i], &error), DDL_OK);
    for (int i = 0; i < in_flight; i++)
        ddl_plan_give_back(runs[i]);
}

static ddl_plan_cache *after_many_calls(int nranks, int in_flight)
{
    ddl_plan_cache *cache = ddl_plan_cache_create(false);
    assert_non_null(cache);
    for (size_t count = 1; count <= MANY; count++)
        call(cache, nranks, count, in_flight);
    return cache;
}

/* Of those of after_many_calls: the latest, without a gap. */
static int count_kept(ddl_plan_cache *cache, int nranks)
{
    int kept = 0;
    while (kept < MANY && find_ring(cache, nranks, (size_t)(MANY - kept))->nruns > 0)
        kept++;
    return kept;
}

static void small_plans_are_kept_by_number(void **state)
{
    (void)state;
    ddl_plan_cache *cache = after_many_calls(2, 1);
    assert_int_equal(count_kept(cache, 2), MOST);
    ddl_plan_cache_destroy(cache);
}

static void many_calls_in_flight_count(void **state)
{
    (void)state;
    ddl_plan_cache *one = after_many_calls(8, 1), *many = after_many_calls(8, MOST_IN_FLIGHT);
    const int kept_of_one = count_kept(one, 8), kept_of_many = count_kept(many, 8);
    assert_in_range(kept_of_one, LEAST, MOST - 1);
    assert_in_range(kept_of_many, LEAST, kept_of_one / 5);
    ddl_plan_cache_destroy(one);
    ddl_plan_cache_destroy(many);
}

static void large_plans_are_kept_all_the_same(void **state)
{
    (void)state;
    enum { CALLS = 2 * LEAST, LARGE = 512 };
    ddl_plan_cache *cache = ddl_plan_cache_create(false);
    assert_non_null(cache);
    for (size_t count = 1; count <= CALLS; count++)
        call(cache, LARGE, count, 1);
    for (size_t count = CALLS; count > CALLS - LEAST; count--)
        assert_int_equal(find_ring(cache, LARGE, count)->nruns, 1);
    assert_int_equal(find_ring(cache, LARGE, CALLS - LEAST)->nruns, 0);
    ddl_plan_cache_destroy(cache);
}

static void the_least_recently_used_makes_room_unless_it_is_in_use(void **state)
{
    (void)state;
    enum { USED_OFTEN = 1, IN_USE, IDLE };
    ddl_plan_cache *cache = ddl_plan_cache_create(false);
    ddl_plan_run *run;
    ddl_error error;
    assert_non_null(cache);
    for (size_t count = USED_OFTEN; count <= IDLE; count++)
        call(cache, 2, count, 1);
    assert_int_equal(ddl_plan_take(find_ring(cache, 2, IN_USE), &run, &error), DDL_OK);
    for (size_t count = IDLE + 1; count <= MANY; count++) {
        call(cache, 2, count, 1);
        assert_int_equal(find_ring(cache, 2, USED_OFTEN)->nruns, 1);
    }
    assert_ptr_equal(find_ring(cache, 2, IN_USE), run->plan);
    assert_int_equal(find_ring(cache, 2, IDLE)->nruns, 0);
    ddl_plan_give_back(run);
    ddl_plan_cache_destroy(cache);
}

/* Rank 0 has another count in each call. */
static ddl_plan *find_uneven(ddl_plan_cache *cache, int of_rank_0)
{
    size_t counts[RANKS], starts[RANKS], start = 0;
    ddl_shape shape = shape_of(RANKS, (size_t)RANKS * 100);
    for (int rank = 0; rank < RANKS; rank++) {
        counts[rank] = rank == 0 ? (size_t)of_rank_0 : (size_t)rank * 100;
        starts[rank] = start;
        start += counts[rank];
    }
    shape.in_place = false;
    shape.blocks = (ddl_uneven){ counts, starts };
    return find(cache, DDL_COLLECTIVE_ALLGATHERV, "ring", &shape);
}

static void plans_of_v_forms_count(void **state)
{
    (void)state;
    enum { CALLS = 1000 };
    ddl_plan_cache *cache = ddl_plan_cache_create(false);
    assert_non_null(cache);
    for (int i = 1; i <= CALLS; i++) {
        ddl_plan_run *run;
        ddl_error error;
        find_uneven(cache, i); /* or it were let go soon, as one that came but once */
        assert_int_equal(ddl_plan_take(find_uneven(cache, i), &run, &error), DDL_OK);
        ddl_plan_give_back(run);
    }
    int kept = 0;
    while (kept < CALLS && find_uneven(cache, CALLS - kept)->nruns > 0)
        kept++;
    assert_in_range(kept, LEAST, CALLS / 2);
    ddl_plan_cache_destroy(cache);
}

/* The plan of an allgatherv that rank 0 gives so many elements to; whether it was there already. */
static bool call_uneven_of_two(ddl_plan_cache *cache, size_t of_rank_0)
{
    enum { TWO = 2 };
    const size_t counts[TWO] = { of_rank_0, 1 }, starts[TWO] = { 0, of_rank_0 };
    ddl_shape shape = { .nranks = TWO, .count = of_rank_0, .element_bytes = 4, .blocks = { counts, starts } };
    ddl_plan *plan = find(cache, DDL_COLLECTIVE_ALLGATHERV, "ring", &shape);
    const bool was_there = plan->nruns > 0;
    ddl_plan_run *run;
    ddl_error error;
    assert_int_equal(ddl_plan_take(plan, &run, &error), DDL_OK);
    ddl_plan_give_back(run);
    return was_there;
}

/* Another one in each call takes little room, and none from what is called again. */
static void what_is_called_once_makes_room_for_its_like(void **state)
{
    (void)state;
    enum { CALLS = 3000, ONCE = 16 };
    ddl_plan_cache *cache = ddl_plan_cache_create(false);
    assert_non_null(cache);
    const ddl_plan *even = find_ring(cache, 2, 1);
    assert_false(call_uneven_of_two(cache, 1));
    for (size_t i = 1; i <= CALLS; i++)
        assert_int_equal(call_uneven_of_two(cache, i), i == 1);
    assert_ptr_equal(find_ring(cache, 2, 1), even);
    assert_true(call_uneven_of_two(cache, 1));
    for (size_t i = CALLS; i > 1; i--)
        assert_int_equal(call_uneven_of_two(cache, i), i > CALLS - ONCE);
    ddl_plan_cache_destroy(cache);
}

/* As it is done for calls that may be put to the vote: each is looked at, and then made. */
static void a_look_is_no_call(void **state)
{
    (void)state;
    enum { CALLS = 100, ONCE = 16, TWO = 2 };
    ddl_plan_cache *cache = ddl_plan_cache_create(false);
    assert_non_null(cache);
    for (size_t i = 1; i <= CALLS; i++) {
        const size_t counts[TWO] = { i, 1 }, starts[TWO] = { 0, i };
        ddl_shape shape = { .nranks = TWO, .count = i, .element_bytes = 4, .blocks = { counts, starts } };
        const ddl_algorithm *ring = ddl_catalogue_find(DDL_COLLECTIVE_ALLGATHERV, "ring");
        ddl_plan *plan;
        ddl_error error;
        assert_int_equal(ddl_plan_cache_look(cache, ring, &shape, &plan, &error), DDL_OK);
        assert_false(call_uneven_of_two(cache, i));
        assert_int_equal(plan->nruns, 1);
    }
    for (size_t i = CALLS - ONCE; i >= 1; i--)
        assert_false(call_uneven_of_two(cache, i));
    ddl_plan_cache_destroy(cache);
}

static void what_comes_a_second_time_is_kept(void **state)
{
    (void)state;
    enum { CALLS = 1000, ONCE = 16 };
    ddl_plan_cache *cache = ddl_plan_cache_create(false);
    assert_non_null(cache);
    for (int round = 0; round < 4; round++)
        for (size_t i = 1; i <= CALLS; i++) {
            const bool was_there = call_uneven_of_two(cache, i);
            if (round != 1 ||
                i <= CALLS - ONCE) /* of the last ones of the first round some are there still */
                assert_int_equal(was_there, round > 1);
        }
    for (size_t i = 1; i <= 2 * MANY; i++) /* of more than are known the first is as good as new */
        assert_false(call_uneven_of_two(cache, CALLS + i));
    assert_false(call_uneven_of_two(cache, CALLS + 1));
    for (size_t i = 1; i <= ONCE; i++)
        assert_false(call_uneven_of_two(cache, CALLS + 2 * MANY + i));
    assert_false(call_uneven_of_two(cache, CALLS + 1));
    assert_true(call_uneven_of_two(cache, CALLS + 1));
    assert_true(call_uneven_of_two(cache, CALLS));
    ddl_plan_cache_destroy(cache);
}

static void runs_of_a_burst_are_not_all_kept(void **state)
{
    (void)state;
    enum { IN_FLIGHT = 2 * DDL_PLAN_RUNS_KEPT };
    static ddl_plan_run *runs[IN_FLIGHT];
    ddl_plan_cache *cache = ddl_plan_cache_create(false);
    ddl_error error;
    assert_non_null(cache);
    ddl_plan *plan = find_ring(cache, 2, 1);
    for (int i = 0; i < IN_FLIGHT; i++)
        assert_int_equal(ddl_plan_take(plan, &runs[i], &error), DDL_OK);
    assert_int_equal(plan->nruns, IN_FLIGHT);
    for (int i = 0; i < IN_FLIGHT; i++)
        ddl_plan_give_back(runs[i]);
    assert_int_equal(plan->nruns, DDL_PLAN_RUNS_KEPT);
    assert_int_equal(plan->users, 0);
    assert_int_equal(ddl_plan_take(plan, &runs[0], &error), DDL_OK);
    assert_int_equal(plan->nruns, DDL_PLAN_RUNS_KEPT); /* one of those */
    ddl_plan_give_back(runs[0]);
    ddl_plan_cache_destroy(cache);
}

static size_t bytes_told(const char *algorithm, int nranks, bool in_place)
{
    ddl_plan_cache *cache = ddl_plan_cache_create(true);
    assert_non_null(cache);
    ddl_shape shape = shape_of(nranks, COUNT_TOLD);
    shape.placement = (ddl_placement){ nranks, 1, NULL };
    shape.post_bytes = DDL_POST_BYTES;
    shape.in_place = in_place;
    const ddl_plan *plan = find(cache, DDL_COLLECTIVE_ALLREDUCE, algorithm, &shape);
    assert_non_null(plan->phases[0].oneshot);
    const size_t bytes = ddl_oneshot_common_bytes(plan->phases[0].oneshot);
    ddl_plan_cache_destroy(cache);
    return bytes;
}

/* Each rank knows of itself alone whether its call is in place. */
static void all_tell_the_same_of_their_buffers(void **state)
{
    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        for (int nranks = 2; nranks <= 8; nranks++)
            assert_int_equal(bytes_told("direct", nranks, in_place == 1), 4 * COUNT_TOLD);
        assert_int_equal(bytes_told("halving_doubling", 2, in_place == 1), 0); /* as it is in place */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_plans_are_kept_by_number),
        cmocka_unit_test(many_calls_in_flight_count),
        cmocka_unit_test(large_plans_are_kept_all_the_same),
        cmocka_unit_test(the_least_recently_used_makes_room_unless_it_is_in_use),
        cmocka_unit_test(plans_of_v_forms_count),
        cmocka_unit_test(what_is_called_once_makes_room_for_its_like),
        cmocka_unit_test(a_look_is_no_call),
        cmocka_unit_test(what_comes_a_second_time_is_kept),
        cmocka_unit_test(runs_of_a_burst_are_not_all_kept),
        cmocka_unit_test(all_tell_the_same_of_their_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
