/* test_overlay.c - who is connected from the start where others connect late, and what is passed on along
 * these pairs. */
#include "protocol/overlay.h"
#include "protocol/sightings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 600 };

static void pairs_are_the_same_both_ways(void **state)
{
    (void)state;
    for (int n = 1; n <= 70; n++)
        for (int a = 0; a < n; a++) {
            int degree = 0;
            assert_false(ddl_overlay_has(n, a, a));
            for (int b = 0; b < n; b++) {
                assert_int_equal(ddl_overlay_has(n, a, b), ddl_overlay_has(n, b, a));
                degree += ddl_overlay_has(n, a, b);
            }
            assert_int_equal(degree, ddl_overlay_degree(n));
        }
}

static void few_pairs_and_known_ones(void **state)
{
    static const struct {
        int n, degree;
    } cases[] = {
        { 1, 0 }, { 2, 1 }, { 3, 2 }, { 5, 4 }, { 6, 4 }, { 7, 6 }, { 8, 5 }, { 9, 6 }, { 512, 17 }
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ddl_overlay_degree(cases[i].n), cases[i].degree);
        assert_int_equal(ddl_overlay_is_complete(cases[i].n), cases[i].degree == cases[i].n - 1);
    }
}

/* How many of n ranks hear what rank `from` tells, if those that are gone pass nothing on; *hops: the last
 * one. */
static int count_hearers(int n, int from, const bool gone[], int *hops)
{
    static int distance[RANKS_MOST], queue[RANKS_MOST];
    int first = 0, last = 0;
    for (int rank = 0; rank < n; rank++)
        distance[rank] = -1;
    distance[from] = 0;
    queue[last++] = from;
    while (first < last) {
        int at = queue[first++];
        *hops = distance[at];
        for (int rank = 0; rank < n; rank++)
            if (distance[rank] < 0 && !gone[rank] && ddl_overlay_has(n, at, rank)) {
                distance[rank] = distance[at] + 1;
                queue[last++] = rank;
            }
    }
    return last;
}

static void all_hear_in_few_hops(void **state)
{
    static const bool nobody[RANKS_MOST];
    (void)state;
    for (int n = 2; n <= RANKS_MOST; n += n < 40 ? 1 : 37) {
        int hops = 0, limit = 0;
        while (1 << limit < n)
            limit++;
        assert_int_equal(count_hearers(n, n / 3, nobody, &hops), n);
        assert_true(hops <= limit);
    }
}

static void all_who_are_left_hear_though_many_are_gone(void **state)
{
    static bool gone[RANKS_MOST];
    (void)state;
    srand(7);
    for (int round = 0; round < 300; round++) {
        int n = 6 + rand() % 100, ngone = 0, hops = 0;
        memset(gone, 0, sizeof gone);
        while (ngone < ddl_overlay_degree(n) - 1) {
            int rank = 1 + rand() % (n - 1);
            ngone += !gone[rank];
            gone[rank] = true;
        }
        assert_int_equal(count_hearers(n, 0, gone, &hops), n - ngone);
    }
}

static void sightings_come_back_as_they_were(void **state)
{
    static const int counts[] = { 1, 7, 8, 9, 512, DDL_SIGHTINGS_RANKS };
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int n = counts[i];
        uint8_t bytes[DDL_FRAME_NOTICE_LIMIT];
        uint64_t *entered = calloc((size_t)n, sizeof *entered);
        ddl_sightings is, was = { .nranks = n, .has_first = i % 2 == 0 };
        assert_non_null(entered);
        if (was.has_first) {
            was.first.collective = 1, was.first.dtype = 2, was.first.op = 3, was.first.algorithm = 4;
            was.first.root = -1;
            was.first.count = UINT64_MAX - 5;
        }
        for (int rank = 0; rank < n; rank++)
            entered[rank] = (uint64_t)(rank % 7);
        size_t count = ddl_sightings_encode(&was, entered, 4, bytes);
        assert_true(count <= DDL_FRAME_NOTICE_LIMIT);
        assert_int_equal(ddl_sightings_decode((ddl_view){ bytes, count }, n, &is, NULL), DDL_OK);
        assert_int_equal(is.has_first, was.has_first);
        assert_int_equal(is.first.collective, was.first.collective);
        assert_int_equal(is.first.dtype, was.first.dtype);
        assert_int_equal(is.first.op, was.first.op);
        assert_int_equal(is.first.algorithm, was.first.algorithm);
        assert_int_equal(is.first.root, was.first.root);
        assert_true(is.first.count == was.first.count);
        for (int rank = 0; rank < n; rank++)
            assert_int_equal(ddl_sightings_has(&is, rank), rank % 7 >= 4);
        assert_int_equal(ddl_sightings_decode((ddl_view){ bytes, count - 1 }, n, &is, NULL), DDL_EPROTO);
        assert_int_equal(ddl_sightings_decode((ddl_view){ bytes, count }, n + 1, &is, NULL), DDL_EPROTO);
        assert_int_equal(ddl_sightings_decode((ddl_view){ bytes, 0 }, n, &is, NULL), DDL_EPROTO);
        free(entered);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_the_same_both_ways),
        cmocka_unit_test(few_pairs_and_known_ones),
        cmocka_unit_test(all_hear_in_few_hops),
        cmocka_unit_test(all_who_are_left_hear_though_many_are_gone),
        cmocka_unit_test(sightings_come_back_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
