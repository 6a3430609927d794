/* test_workload.c - what ddl-bench takes for a right result, and that it notices a wrong one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "workload.h"

static const char *const collectives[] = { "allreduce", "reduce_scatter", "allgather", "broadcast",
                                           "reduce",    "alltoall",       "gather",    "scatter",
                                           "gatherv",   "scatterv",       "alltoallv", "reduce_scatterv",
                                           "allgatherv" };

static int join(void **state)
{
    ddl_comm *world = NULL;
    if (ddl_init(&world, NULL) != DDL_OK)
        return -1;
    *state = world;
    return 0;
}

static int leave(void **state)
{
    ddl_comm *world = *state;
    return ddl_comm_free(&world) == DDL_OK ? 0 : -1;
}

static void check_notices(ddl_comm *world, const char *collective, ddl_dtype dtype, ddl_op op, bool in_place)
{
    enum { COUNT = 3000 };
    struct workload w;
    char reason[160] = "";
    const struct workload_kind *kind = workload_kind_find(collective);
    assert_non_null(kind);
    assert_true(workload_init(&w, kind, world, COUNT, dtype, op, 0, in_place, false));
    workload_fill(&w);
    assert_int_equal(kind->run(&w), DDL_OK);
    assert_true(workload_check(&w, reason, sizeof reason));
    assert_string_equal(reason, "");

    static const size_t places[] = { 0, 1, 1020, 1021, COUNT - 1 };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint8_t *at = (uint8_t *)w.recv + places[i] * ddl_dtype_bytes(dtype);
        *at ^= 1;
        assert_false(workload_check(&w, reason, sizeof reason));
        assert_non_null(strstr(reason, "expected"));
        *at ^= 1;
    }
    assert_true(workload_check(&w, reason, sizeof reason));

    if (w.recv_memory != NULL) { /* what the last call left is not taken for the next one's result */
        workload_fill(&w);
        assert_false(workload_check(&w, reason, sizeof reason));
    }

    workload_fini(&w);
}

static void a_wrong_element_is_noticed(void **state)
{
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++) {
        const struct workload_kind *kind = workload_kind_find(collectives[c]);
        for (int dtype = DDL_INT8; dtype <= DDL_FLOAT64; dtype++)
            for (int op = DDL_SUM; op <= (dtype < DDL_FLOAT16 && kind->reduces ? DDL_BXOR : DDL_AVG); op++) {
                check_notices(*state, collectives[c], (ddl_dtype)dtype, (ddl_op)op, false);
                if (kind->in_place)
                    check_notices(*state, collectives[c], (ddl_dtype)dtype, (ddl_op)op, true);
            }
    }
}

static void data_that_never_came_are_noticed(void **state)
{
    struct workload w;
    char reason[160];
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++) {
        const struct workload_kind *kind = workload_kind_find(collectives[c]);
        if (strcmp(kind->name, "broadcast") == 0) /* has one buffer, and the root's is right from the start */
            continue;
        assert_true(workload_init(&w, kind, *state, 10, DDL_FLOAT32, DDL_SUM, 0, false, false));
        workload_fill(&w);
        assert_false(workload_check(&w, reason, sizeof reason));
        workload_fini(&w);
    }
}

/* All contribute the same, so that the average in a world of one is that in any. */
static void averages_are_exact_in_worlds_of_any_size(void **state)
{
    static const int sizes[] = { 1, 3, 256, 257, 2048, 2049, 4096 };
    const ddl_dtype dtypes[] = { DDL_BFLOAT16, DDL_FLOAT16, DDL_FLOAT32 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
            struct workload w;
            char reason[160] = "";
            assert_true(workload_init(&w, workload_kind_find("allreduce"), *state, 3000, dtypes[k], DDL_AVG,
                                      0, false, false));
            w.nranks = sizes[i];
            workload_fill(&w);
            assert_int_equal(w.kind->run(&w), DDL_OK);
            (void)workload_check(&w, reason, sizeof reason);
            assert_string_equal(reason, "");
            workload_fini(&w);
        }
}

static const struct {
    const char *collective;
    size_t bytes;
    ddl_dtype dtype;
    int nranks;
    size_t count;
} counts[] = {
    { "allreduce", 4, DDL_FLOAT32, 8, 1 },       { "allreduce", 1024, DDL_FLOAT64, 3, 128 },
    { "allreduce", 1, DDL_FLOAT64, 3, 1 },       { "allgather", 1024, DDL_FLOAT32, 4, 64 },
    { "reduce_scatter", 100, DDL_INT8, 3, 33 },  { "alltoall", 4, DDL_FLOAT32, 8, 1 },
    { "broadcast", 1000, DDL_BFLOAT16, 5, 500 }, { "barrier", 4, DDL_FLOAT32, 5, 0 },
    { "gather", 1024, DDL_FLOAT32, 4, 64 },      { "scatter", 1024, DDL_FLOAT32, 4, 64 },
    { "allgatherv", 1024, DDL_FLOAT32, 4, 64 },  { "alltoallv", 3, DDL_INT8, 4, 1 },
};

static void count_follows_from_the_size_of_the_greater_buffer(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        assert_int_equal(workload_count(workload_kind_find(counts[i].collective), counts[i].bytes,
                                        counts[i].dtype, counts[i].nranks),
                         counts[i].count);
}

static const struct {
    const char *collective;
    int nranks, root;
    double factor;
} factors[] = {
    /* those of nccl-tests */
    { "allreduce", 4, 0, 1.5 },
    { "allgather", 4, 0, 0.75 },
    { "reduce_scatter", 4, 0, 0.75 },
    { "alltoall", 4, 0, 0.75 },
    { "gather", 4, 3, 0.75 },
    { "scatter", 4, 0, 0.75 },
    { "broadcast", 4, 0, 1 },
    { "reduce", 4, 0, 1 },
    { "sendrecv", 4, 0, 1 },
    { "allgather", 1, 0, 0 },
    /* rank 0 keeps nothing; four ranks have 0, 2, 4 and 6 twelfths */
    { "alltoallv", 2, 0, 1 },
    { "alltoallv", 5, 0, 1 },
    { "allgatherv", 4, 0, 1 },
    { "reduce_scatterv", 4, 0, 1 },
    { "gatherv", 4, 0, 1 },
    { "gatherv", 4, 3, 0.5 },
    { "scatterv", 2, 0, 1 },
    { "scatterv", 2, 1, 0 },
    { "allgatherv", 1, 0, 0 },
};

static void bus_factors_count_what_the_busiest_rank_moves(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        struct workload w = { .kind = workload_kind_find(factors[i].collective),
                              .count = 3,
                              .root = factors[i].root };
        w.nranks = factors[i].nranks;
        w.elements = w.count * (size_t)(w.kind->blocks != NO_BLOCKS ? w.nranks : 1);
        assert_true(w.kind->bus_factor(&w) == factors[i].factor);
    }
    assert_null(workload_kind_find("shuffle"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_element_is_noticed),
        cmocka_unit_test(data_that_never_came_are_noticed),
        cmocka_unit_test(averages_are_exact_in_worlds_of_any_size),
        cmocka_unit_test(count_follows_from_the_size_of_the_greater_buffer),
        cmocka_unit_test(bus_factors_count_what_the_busiest_rank_moves),
    };
    return cmocka_run_group_tests(tests, join, leave);
}
