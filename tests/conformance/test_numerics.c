/*
 * test_numerics.c - what the numbers are: 16-bit floats rounded once, NaN, infinities, zeros of both signs,
 * averages, wrapping integers, and the same bits on all ranks whatever the algorithm.
 */
#include "oracle.h"
#include "ranks.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- rounded once, in rank order ---- */

enum { MOST_RANKS = 9, MOST_ELEMENTS = 40000 };

/* Any bits now and then, and numbers near one, where every rounding shows. */
static void fill_halves(ddl_dtype dtype, int rank, uint16_t values[], size_t count)
{
    uint64_t state = 77 * (uint64_t)(rank + 1) + (uint64_t)dtype;
    for (size_t i = 0; i < count; i++) {
        uint64_t random = oracle_next(&state);
        values[i] = random % 16 == 0 ? (uint16_t)(random >> 16)
                                     : oracle_half_of_value(dtype, ldexp((double)(int64_t)random, -62));
    }
}

static uint16_t rank_ordered(ddl_dtype dtype, ddl_op op, int nranks, uint16_t *const given[], size_t i)
{
    float all = (float)oracle_value_of_half(dtype, given[0][i]);
    for (int r = 1; r < nranks; r++) {
        float next = (float)oracle_value_of_half(dtype, given[r][i]);
        all = op == DDL_PROD ? all * next : all + next;
    }
    if (op != DDL_AVG)
        return oracle_half_of_value(dtype, (double)all);
    /* The finished sum is one of the type; its division is in float32. */
    all = (float)oracle_value_of_half(dtype, oracle_half_of_value(dtype, (double)all));
    return oracle_half_of_value(dtype, (double)(all / (float)nranks));
}

static bool same_half(ddl_dtype dtype, uint16_t a, uint16_t b)
{
    return a == b || (isnan(oracle_value_of_half(dtype, a)) && isnan(oracle_value_of_half(dtype, b)));
}

/* By allreduce, and by reduce_scatter with uneven blocks. */
static void sum_halves(rank_thread *me)
{
    static const ddl_op ops[] = { DDL_SUM, DDL_PROD, DDL_AVG };
    static const size_t counts[] = { 1, 7, 1000, MOST_ELEMENTS };
    uint16_t *given[MOST_RANKS], *got = calloc(MOST_ELEMENTS, sizeof *got);
    size_t blocks[MOST_RANKS];

    for (int r = 0; r < me->nranks; r++)
        given[r] = calloc(MOST_ELEMENTS, sizeof *given[r]);
    for (int half = 0; half < 2; half++)
        for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
                ddl_dtype dtype = half == 0 ? DDL_FLOAT16 : DDL_BFLOAT16;
                size_t count = counts[c], start = 0, own;
                for (int r = 0; r < me->nranks; r++) {
                    fill_halves(dtype, r, given[r], count);
                    blocks[r] = r < me->nranks - 1 ? count / (size_t)(r + 2) / (size_t)me->nranks : 0;
                    start += blocks[r];
                }
                blocks[me->nranks - 1] = count - start;
                EXPECT(me,
                       ddl_allreduce(given[me->rank], got, count, dtype, ops[o], me->world, NULL) == DDL_OK);
                for (size_t i = 0; i < count; i++)
                    EXPECT(me, same_half(dtype, got[i], rank_ordered(dtype, ops[o], me->nranks, given, i)));
                own = blocks[me->rank];
                start = 0;
                for (int r = 0; r < me->rank; r++)
                    start += blocks[r];
                EXPECT(me, ddl_reduce_scatterv(given[me->rank], got, blocks, dtype, ops[o], me->world,
                                               NULL) == DDL_OK);
                for (size_t i = 0; i < own; i++)
                    EXPECT(me, same_half(dtype, got[i],
                                         rank_ordered(dtype, ops[o], me->nranks, given, start + i)));
            }
    for (int r = 0; r < me->nranks; r++)
        free(given[r]);
    free(got);
}

static void direct_rounds_the_rank_ordered_float32_sum_once(void **state)
{
    (void)state;
    setenv("DDL_ALLREDUCE", "direct", 1);
    setenv("DDL_REDUCE_SCATTERV", "direct", 1);
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++)
        ranks_play("mem://direct", nranks, sum_halves, NULL);
    unsetenv("DDL_ALLREDUCE");
    unsetenv("DDL_REDUCE_SCATTERV");
}

/* ---- known results ---- */

enum { KNOWN_RANKS = 4, COPIES = 70, EVERY_FLOAT = -1 };

#define NOT_A_NUMBER ((double)NAN)
#define INFINITE     ((double)INFINITY)

/* One element of each rank and what comes of them, by rule and not by rounding. */
static const struct known {
    const char *name;
    int dtype;
    ddl_op op;
    double given[KNOWN_RANKS], result;
} known[] = {
    { "one NaN is enough for the least",
      EVERY_FLOAT,
      DDL_MIN,
      { 1, -INFINITE, NOT_A_NUMBER, 2 },
      NOT_A_NUMBER },
    { "and for the greatest", EVERY_FLOAT, DDL_MAX, { NOT_A_NUMBER, INFINITE, 1, 2 }, NOT_A_NUMBER },
    { "also on the last rank", EVERY_FLOAT, DDL_MAX, { 1, 2, 3, NOT_A_NUMBER }, NOT_A_NUMBER },
    { "and for a sum", EVERY_FLOAT, DDL_SUM, { 1, NOT_A_NUMBER, INFINITE, 2 }, NOT_A_NUMBER },
    { "a product", EVERY_FLOAT, DDL_PROD, { 0, 0, 0, NOT_A_NUMBER }, NOT_A_NUMBER },
    { "an average", EVERY_FLOAT, DDL_AVG, { 1, NOT_A_NUMBER, 1, 1 }, NOT_A_NUMBER },
    { "-0 is less than +0", EVERY_FLOAT, DDL_MIN, { 0.0, 0.0, -0.0, 0.0 }, -0.0 },
    { "and +0 greater than -0", EVERY_FLOAT, DDL_MAX, { -0.0, -0.0, -0.0, 0.0 }, 0.0 },
    { "negative zeros add up to one", EVERY_FLOAT, DDL_SUM, { -0.0, -0.0, -0.0, -0.0 }, -0.0 },
    { "a positive zero among them wins", EVERY_FLOAT, DDL_SUM, { -0.0, -0.0, 0.0, -0.0 }, 0.0 },
    { "the average of negative zeros", EVERY_FLOAT, DDL_AVG, { -0.0, -0.0, -0.0, -0.0 }, -0.0 },
    { "signs of zero multiply", EVERY_FLOAT, DDL_PROD, { -0.0, -1, 0.0, -1 }, -0.0 },
    { "infinities of one sign", EVERY_FLOAT, DDL_SUM, { INFINITE, 1, INFINITE, -1 }, INFINITE },
    { "infinities of both signs", EVERY_FLOAT, DDL_SUM, { INFINITE, 1, 1, -INFINITE }, NOT_A_NUMBER },
    { "zero times infinity", EVERY_FLOAT, DDL_PROD, { 0, 1, 1, INFINITE }, NOT_A_NUMBER },
    { "the least infinity", EVERY_FLOAT, DDL_MIN, { INFINITE, 5, -INFINITE, 0 }, -INFINITE },
    { "the greatest infinity", EVERY_FLOAT, DDL_MAX, { INFINITE, 5, -INFINITE, 0 }, INFINITE },
    { "an infinite average", EVERY_FLOAT, DDL_AVG, { -INFINITE, 5, 7, 0 }, -INFINITE },
    { "an average is exact where it can be", EVERY_FLOAT, DDL_AVG, { 1, 2, 3, 4 }, 2.5 },
    { "a sum that overflows is not saved by the division",
      DDL_FLOAT16,
      DDL_AVG,
      { 65504, 65504, 65504, 65504 },
      INFINITE },
    { "nor one that is in the range of float32, but rounded to 16 bits first",
      DDL_BFLOAT16,
      DDL_AVG,
      { 0x1.fep127, 0x1p119, 0, 0 },
      INFINITE },
    { "nor in float64", DDL_FLOAT64, DDL_AVG, { 1e308, 1e308, 1e308, 1e308 }, INFINITE },
    { "float32 overflows", DDL_FLOAT32, DDL_SUM, { 3e38, 3e38, 3e38, 3e38 }, INFINITE },
    { "averages of integers go toward zero", DDL_INT32, DDL_AVG, { -1, -2, -3, -5 }, -2 },
    { "from both sides", DDL_INT64, DDL_AVG, { 1, 2, 3, 5 }, 2 },
    { "the sum wraps before it is divided", DDL_INT8, DDL_AVG, { 127, 1, 0, 0 }, -32 },
    { "without a sign too", DDL_UINT8, DDL_AVG, { 200, 100, 0, 0 }, 11 },
    { "int16 wraps", DDL_INT16, DDL_SUM, { 32767, 1, 0, 0 }, -32768 },
    { "products wrap", DDL_UINT16, DDL_PROD, { 65535, 65535, 65535, 65535 }, 1 },
    { "signed order", DDL_INT8, DDL_MIN, { 5, -128, 127, 0 }, -128 },
    { "unsigned order", DDL_UINT8, DDL_MAX, { 5, 128, 127, 0 }, 128 },
    { "one bit of each", DDL_UINT32, DDL_BOR, { 1, 2, 4, 8 }, 15 },
    { "the bits of all", DDL_INT64, DDL_BAND, { -1, -2, 7, 15 }, 6 },
    { "an even number of bits goes", DDL_UINT64, DDL_BXOR, { 3, 5, 3, 4 }, 1 },
};

static void put(void *at, ddl_dtype dtype, double value)
{
    int64_t integer = oracle_is_float(dtype) ? 0 : (int64_t)value;

    if (dtype == DDL_FLOAT64)
        *(double *)at = value;
    else if (dtype == DDL_FLOAT32)
        *(float *)at = (float)value;
    else if (oracle_is_float(dtype))
        *(uint16_t *)at = oracle_half_of_value(dtype, value);
    else if (ddl_dtype_bytes(dtype) == 8)
        *(int64_t *)at = integer;
    else if (ddl_dtype_bytes(dtype) == 4)
        *(uint32_t *)at = (uint32_t)integer;
    else if (ddl_dtype_bytes(dtype) == 2)
        *(uint16_t *)at = (uint16_t)integer;
    else
        *(uint8_t *)at = (uint8_t)integer;
}

static bool is_nan(const void *at, ddl_dtype dtype)
{
    if (dtype == DDL_FLOAT64)
        return isnan(*(const double *)at);
    if (dtype == DDL_FLOAT32)
        return isnan(*(const float *)at);
    return oracle_is_float(dtype) && isnan(oracle_value_of_half(dtype, *(const uint16_t *)at));
}

static ddl_status combine(rank_thread *me, oracle_kind kind, const void *given, void *got, ddl_dtype dtype,
                          ddl_op op)
{
    ddl_status status = DDL_OK;

    if (kind == ORACLE_ALLREDUCE)
        return ddl_allreduce(given, got, COPIES, dtype, op, me->world, NULL);
    if (kind == ORACLE_REDUCE_SCATTER)
        return ddl_reduce_scatter(given, got, COPIES, dtype, op, me->world, NULL);
    for (int root = 0; root < me->nranks && status == DDL_OK; root++)
        status = ddl_reduce(given, root == me->rank ? got : NULL, COPIES, dtype, op, root, me->world, NULL);
    return status;
}

static void check_known(rank_thread *me, oracle_kind kind, const struct known *k, ddl_dtype dtype)
{
    uint64_t given[KNOWN_RANKS * COPIES], got[COPIES], want = 0;
    size_t bytes = ddl_dtype_bytes(dtype);

    for (size_t i = 0; i < KNOWN_RANKS * COPIES; i++)
        put((char *)given + i * bytes, dtype, k->given[me->rank]);
    put(&want, dtype, k->result);
    EXPECT(me, combine(me, kind, given, got, dtype, k->op) == DDL_OK);
    for (size_t i = 0; i < COPIES; i++) {
        const char *at = (const char *)got + i * bytes;
        bool good = isnan(k->result) ? is_nan(at, dtype) : memcmp(at, &want, bytes) == 0;
        if (!good)
            ranks_complain(me, "%s: %s of %s: element %zu is wrong", oracle_kind_name(kind), k->name,
                           oracle_dtype_name(dtype), i);
    }
}

static void look_up_known(rank_thread *me)
{
    oracle_kind kind = *(const oracle_kind *)me->arg;

    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        for (int dtype = 0; dtype <= DDL_FLOAT64; dtype++)
            if (known[k].dtype == dtype ||
                (known[k].dtype == EVERY_FLOAT && oracle_is_float((ddl_dtype)dtype)))
                check_known(me, kind, &known[k], (ddl_dtype)dtype);
}

enum { MOST_ALGORITHMS = 16 };

/* Play once for each algorithm of the first kinds of reductions, forced by its variable. */
static void by_each_algorithm(int nranks, size_t nkinds, rank_part *part)
{
    static oracle_kind kinds[] = { ORACLE_ALLREDUCE, ORACLE_REDUCE, ORACLE_REDUCE_SCATTER };
    static const char *const variables[] = { "DDL_ALLREDUCE", "DDL_REDUCE", "DDL_REDUCE_SCATTER" };

    for (size_t k = 0; k < nkinds; k++) {
        const char *names[MOST_ALGORITHMS];
        size_t count = ddl_algorithm_names(oracle_kind_name(kinds[k]), names, MOST_ALGORITHMS);

        assert_in_range(count, 1, MOST_ALGORITHMS);
        for (size_t i = 0; i < count; i++) {
            char where[80];
            snprintf(where, sizeof where, "mem://%s-%s-%d", oracle_kind_name(kinds[k]), names[i], nranks);
            setenv(variables[k], names[i], 1);
            ranks_play(where, nranks, part, &kinds[k]);
            unsetenv(variables[k]);
        }
    }
}

static void every_algorithm_gives_the_known_results(void **state)
{
    (void)state;
    by_each_algorithm(KNOWN_RANKS, 3, look_up_known);
}

/* ---- the same bits ---- */

enum { ALIKE_COUNT = 3000 };

/* What differs in the last place, overflows and carries payloads in its NaNs, where all get the result. */
static void compare_bits(rank_thread *me)
{
    static const ddl_op ops[] = { DDL_SUM, DDL_PROD, DDL_MIN, DDL_MAX, DDL_AVG };
    uint64_t *given = calloc(ALIKE_COUNT, 8), *got = calloc(ALIKE_COUNT, 8);
    uint64_t *all = calloc((size_t)me->nranks * ALIKE_COUNT, 8);
    uint64_t state = 1000 + (uint64_t)me->rank;

    for (int dtype = DDL_FLOAT16; dtype <= DDL_FLOAT64; dtype++)
        for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++) {
            size_t bytes = ddl_dtype_bytes((ddl_dtype)dtype) * ALIKE_COUNT;
            for (size_t i = 0; i < ALIKE_COUNT; i++)
                given[i] = oracle_next(&state);
            EXPECT(me, ddl_allreduce(given, got, ALIKE_COUNT, (ddl_dtype)dtype, ops[o], me->world, NULL) ==
                           DDL_OK);
            EXPECT(me, ddl_allgather(got, all, bytes, DDL_UINT8, me->world, NULL) == DDL_OK);
            for (int r = 0; r < me->nranks; r++)
                EXPECT(me, memcmp((const char *)all + (size_t)r * bytes, got, bytes) == 0);
        }
    free(given);
    free(got);
    free(all);
}

static void every_allreduce_gives_all_ranks_the_same_bits(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 8; nranks *= 2)
        by_each_algorithm(nranks, 1, compare_bits);
}

/* Also after a test that failed half way. */
static int force_nothing(void **state)
{
    (void)state;
    for (int kind = 0; kind < ORACLE_SHIFT; kind++) {
        char variable[64] = "DDL_";
        for (const char *from = oracle_kind_name((oracle_kind)kind); *from != '\0'; from++)
            variable[strlen(variable)] = (char)toupper((unsigned char)*from);
        unsetenv(variable);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(direct_rounds_the_rank_ordered_float32_sum_once, force_nothing),
        cmocka_unit_test_setup(every_algorithm_gives_the_known_results, force_nothing),
        cmocka_unit_test_setup(every_allreduce_gives_all_ranks_the_same_bits, force_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
