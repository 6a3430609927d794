/* test_compute_cpu.c - every variant of the kernels against a slow oracle that shares no code with them. */
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "compute/compute_cpu.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

enum { MAX_OPERANDS = 32, MAX_COUNT = 5000, GUARD = 64, SLACK = 8 };

/* ---- the oracle: one element at a time, floats as the real numbers that they stand for ---- */

struct format { /* of a 16-bit float */
    int fraction_bits, least_exponent, greatest_exponent;
    uint16_t nan;
};

static const struct format float16 = { 10, -14, 15, 0x7e00 };
static const struct format bfloat16 = { 7, -126, 127, 0x7fc0 };

static double value_of_half(uint16_t half, const struct format *format)
{
    int biased = (half & 0x7fff) >> format->fraction_bits;
    int fraction = half & ((1 << format->fraction_bits) - 1);
    double sign = half & 0x8000 ? -1.0 : 1.0;
    if (biased == format->greatest_exponent - format->least_exponent + 2)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (biased == 0)
        return sign * ldexp(fraction, format->least_exponent - format->fraction_bits);
    return sign * ldexp(fraction + (1 << format->fraction_bits),
                        biased - 1 + format->least_exponent - format->fraction_bits);
}

static uint16_t half_of_value(double value, const struct format *format)
{
    if (isnan(value))
        return format->nan;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    uint16_t infinity =
        (uint16_t)((format->greatest_exponent - format->least_exponent + 2) << format->fraction_bits);
    if (isinf(magnitude))
        return sign | infinity;
    int exponent = magnitude > 0 ? ilogb(magnitude) : format->least_exponent;
    if (exponent < format->least_exponent)
        exponent = format->least_exponent;
    if (exponent > format->greatest_exponent)
        return sign | infinity;
    /* In units of the last place; nearbyint rounds ties to even. A carry lands in the next exponent by
     * itself. */
    double units = nearbyint(ldexp(magnitude, format->fraction_bits - exponent));
    uint32_t bits = (uint32_t)(exponent - format->least_exponent) << format->fraction_bits;
    bits += (uint32_t)units;
    return (uint16_t)(sign | (bits < infinity ? bits : infinity));
}

/* The value on which MIN and MAX agree: NaN wins, -0 is less than +0. */
static double lesser(double a, double b)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

static float combine_float(float a, float b, ddl_op op)
{
    switch (op) {
    case DDL_SUM:
    case DDL_AVG:
        return a + b;
    case DDL_PROD:
        return a * b;
    case DDL_MIN:
        return (float)lesser((double)a, (double)b);
    default:
        return -(float)lesser(-(double)a, -(double)b);
    }
}

static double combine_double(double a, double b, ddl_op op)
{
    switch (op) {
    case DDL_SUM:
    case DDL_AVG:
        return a + b;
    case DDL_PROD:
        return a * b;
    case DDL_MIN:
        return lesser(a, b);
    default:
        return -lesser(-a, -b);
    }
}

static uint64_t combine_bits(uint64_t a, uint64_t b, ddl_op op)
{
    switch (op) {
    case DDL_SUM:
    case DDL_AVG:
        return a + b;
    case DDL_PROD:
        return a * b;
    case DDL_BAND:
        return a & b;
    case DDL_BOR:
        return a | b;
    default:
        return a ^ b;
    }
}

static bool is_signed(ddl_dtype dtype)
{
    return dtype == DDL_INT8 || dtype == DDL_INT16 || dtype == DDL_INT32 || dtype == DDL_INT64;
}

/* An integer element, widened with its sign. */
static uint64_t get_integer(const uint8_t *at, ddl_dtype dtype)
{
    uint64_t value = 0;
    size_t bytes = ddl_dtype_bytes(dtype);
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    if (is_signed(dtype) && bytes < 8 && at[bytes - 1] >= 0x80)
        value |= UINT64_MAX << 8 * bytes;
    return value;
}

static void put_integer(uint8_t *at, ddl_dtype dtype, uint64_t value)
{
    for (size_t i = 0; i < ddl_dtype_bytes(dtype); i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static void put_float(uint8_t *at, float value)
{
    static const uint32_t nan = 0x7fc00000;
    memcpy(at, isnan(value) ? (const void *)&nan : (const void *)&value, sizeof value);
}

static void put_double(uint8_t *at, double value)
{
    static const uint64_t nan = 0x7ff8000000000000;
    memcpy(at, isnan(value) ? (const void *)&nan : (const void *)&value, sizeof value);
}

static float get_float(const uint8_t *at)
{
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

static double get_double(const uint8_t *at)
{
    double value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint16_t get_half(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void oracle_reduce(uint8_t *target, const uint8_t *const operands[], int noperands, size_t count,
                          ddl_dtype dtype, ddl_op op)
{
    size_t bytes = ddl_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        uint8_t *to = target + i * bytes;
        if (dtype == DDL_FLOAT16 || dtype == DDL_BFLOAT16) {
            const struct format *format = dtype == DDL_FLOAT16 ? &float16 : &bfloat16;
            float result = (float)value_of_half(get_half(operands[0] + i * bytes), format);
            for (int k = 1; k < noperands; k++)
                result = combine_float(result,
                                       (float)value_of_half(get_half(operands[k] + i * bytes), format), op);
            uint16_t half = half_of_value((double)result, format);
            memcpy(to, &half, sizeof half);
        } else if (dtype == DDL_FLOAT32) {
            float result = get_float(operands[0] + i * bytes);
            for (int k = 1; k < noperands; k++)
                result = combine_float(result, get_float(operands[k] + i * bytes), op);
            put_float(to, result);
        } else if (dtype == DDL_FLOAT64) {
            double result = get_double(operands[0] + i * bytes);
            for (int k = 1; k < noperands; k++)
                result = combine_double(result, get_double(operands[k] + i * bytes), op);
            put_double(to, result);
        } else {
            uint64_t result = get_integer(operands[0] + i * bytes, dtype);
            for (int k = 1; k < noperands; k++) {
                uint64_t x = get_integer(operands[k] + i * bytes, dtype);
                bool less = is_signed(dtype) ? (int64_t)x < (int64_t)result : x < result;
                if (op == DDL_MIN || op == DDL_MAX)
                    result = less == (op == DDL_MIN) ? x : result;
                else
                    result = combine_bits(result, x, op);
            }
            put_integer(to, dtype, result);
        }
    }
}

static void oracle_scale(uint8_t *target, size_t count, ddl_dtype dtype, int divisor)
{
    size_t bytes = ddl_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        uint8_t *at = target + i * bytes;
        if (dtype == DDL_FLOAT16 || dtype == DDL_BFLOAT16) {
            const struct format *format = dtype == DDL_FLOAT16 ? &float16 : &bfloat16;
            float quotient = (float)value_of_half(get_half(at), format) / (float)divisor;
            uint16_t half = half_of_value((double)quotient, format);
            memcpy(at, &half, sizeof half);
        } else if (dtype == DDL_FLOAT32) {
            put_float(at, get_float(at) / (float)divisor);
        } else if (dtype == DDL_FLOAT64) {
            put_double(at, get_double(at) / (double)divisor);
        } else if (is_signed(dtype)) {
            put_integer(at, dtype, (uint64_t)((int64_t)get_integer(at, dtype) / divisor));
        } else {
            put_integer(at, dtype, get_integer(at, dtype) / (uint64_t)divisor);
        }
    }
}

/* ---- data ---- */

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Bit patterns that are worth meeting: zeros, ones, the least and greatest numbers, infinities, NaNs. */
static const uint16_t special_float16[] = { 0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400,
                                            0x8400, 0x3c00, 0xbc00, 0x3555, 0x7bff, 0xfbff,
                                            0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xfd55 };
static const uint16_t special_bfloat16[] = { 0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080,
                                             0x8080, 0x3f80, 0xbf80, 0x3eaa, 0x7f7f, 0xff7f,
                                             0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xffaa };
static const uint32_t special_float32[] = { 0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff,
                                            0x00800000, 0x80800000, 0x3f800000, 0xbf800000, 0x3eaaaaab,
                                            0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
                                            0xffc00000, 0x7f800001, 0xffaaaaaa };
static const uint64_t special_float64[] = { 0x0000000000000000, 0x8000000000000000, 0x0000000000000001,
                                            0x8000000000000001, 0x000fffffffffffff, 0x0010000000000000,
                                            0x8010000000000000, 0x3ff0000000000000, 0xbff0000000000000,
                                            0x3fd5555555555555, 0x7fefffffffffffff, 0xffefffffffffffff,
                                            0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
                                            0xfff8000000000000, 0x7ff0000000000001, 0xfff5555555555555 };
static const uint64_t special_integer[] = { 0,
                                            1,
                                            2,
                                            3,
                                            0x7f,
                                            0x80,
                                            0xff,
                                            0xaa,
                                            0x7fff,
                                            0x8000,
                                            0x7fffffff,
                                            0x80000000,
                                            INT64_MAX,
                                            (uint64_t)INT64_MIN,
                                            UINT64_MAX,
                                            UINT64_MAX - 1,
                                            UINT64_MAX - 2,
                                            0x5555 };

enum { SPECIALS = 18 };

static void put_special(uint8_t *at, ddl_dtype dtype, size_t index)
{
    switch (dtype) {
    case DDL_FLOAT16:
        memcpy(at, &special_float16[index], 2);
        break;
    case DDL_BFLOAT16:
        memcpy(at, &special_bfloat16[index], 2);
        break;
    case DDL_FLOAT32:
        memcpy(at, &special_float32[index], 4);
        break;
    case DDL_FLOAT64:
        memcpy(at, &special_float64[index], 8);
        break;
    default:
        put_integer(at, dtype, special_integer[index]);
    }
}

/* A number near one, where sums and products neither vanish nor overflow; for integers any bits. */
static void put_moderate(uint8_t *at, ddl_dtype dtype, uint64_t bits)
{
    double value = ldexp((double)(int64_t)bits, -62);
    uint16_t half;
    switch (dtype) {
    case DDL_FLOAT16:
        half = half_of_value(value, &float16);
        memcpy(at, &half, sizeof half);
        break;
    case DDL_BFLOAT16:
        half = half_of_value(value, &bfloat16);
        memcpy(at, &half, sizeof half);
        break;
    case DDL_FLOAT32:
        put_float(at, (float)value);
        break;
    case DDL_FLOAT64:
        put_double(at, value);
        break;
    default:
        put_integer(at, dtype, bits);
    }
}

static void fill(uint8_t *data, size_t count, ddl_dtype dtype, uint64_t *state)
{
    size_t bytes = ddl_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t choice = next_random(state), bits = next_random(state);
        if (choice % 8 == 0)
            put_special(data + i * bytes, dtype, bits % SPECIALS);
        else if (choice % 8 < 4)
            memcpy(data + i * bytes, &bits, bytes);
        else
            put_moderate(data + i * bytes, dtype, bits);
    }
}

/* ---- the sweep ---- */

static void assert_same(const uint8_t *actual, const uint8_t *expected, size_t count, size_t element_bytes,
                        const char *what)
{
    if (memcmp(actual, expected, count * element_bytes) == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        uint64_t a = 0, e = 0;
        memcpy(&a, actual + i * element_bytes, element_bytes);
        memcpy(&e, expected + i * element_bytes, element_bytes);
        if (a != e)
            fail_msg("%s: element %zu of %zu is %#llx, not %#llx", what, i, count, (unsigned long long)a,
                     (unsigned long long)e);
    }
}

struct sweep {
    uint8_t *operands[MAX_OPERANDS]; /* what the operands hold */
    uint8_t *work[MAX_OPERANDS];     /* where the kernels read them, at some offset */
    uint8_t *target, *expected;
    bool past; /* the caches */
};

static void sweep_init(struct sweep *sweep)
{
    size_t bytes = (MAX_COUNT + SLACK) * 8 + 2 * GUARD;
    for (int k = 0; k < MAX_OPERANDS; k++) {
        assert_non_null(sweep->operands[k] = malloc(bytes));
        assert_non_null(sweep->work[k] = malloc(bytes));
    }
    assert_non_null(sweep->target = malloc(bytes));
    assert_non_null(sweep->expected = malloc(bytes));
    sweep->past = false;
}

static void sweep_fini(struct sweep *sweep)
{
    for (int k = 0; k < MAX_OPERANDS; k++) {
        free(sweep->operands[k]);
        free(sweep->work[k]);
    }
    free(sweep->target);
    free(sweep->expected);
}

/*
 * Reduce count elements that begin `offset` elements past a boundary of 64 bytes, each operand at another
 * offset if `spread`; the target is operand `alias`, or separate memory if that is negative. Nothing beside
 * the target's elements may be written.
 */
static void check_reduce(struct sweep *sweep, const char *variant, int noperands, size_t count,
                         ddl_dtype dtype, ddl_op op, int alias, size_t offset, bool spread)
{
    size_t bytes = ddl_dtype_bytes(dtype);
    const void *operands[MAX_OPERANDS];
    for (int k = 0; k < noperands; k++) {
        uint8_t *at = sweep->work[k] + GUARD + (spread ? (offset + (size_t)k) % SLACK : offset) * bytes;
        memset(at - GUARD, 0xa5, GUARD);
        memcpy(at, sweep->operands[k], count * bytes);
        memset(at + count * bytes, 0xa5, GUARD);
        operands[k] = at;
    }
    uint8_t *target = alias < 0 ? sweep->target + GUARD + offset * bytes : (uint8_t *)operands[alias];
    if (alias < 0)
        memset(target - GUARD, 0xa5, count * bytes + 2 * GUARD);

    ddl_compute *compute = ddl_compute_cpu_variant(variant);
    if (sweep->past)
        compute->ops->reduce_past(compute, target, operands, noperands, count, dtype, op);
    else
        compute->ops->reduce(compute, target, operands, noperands, count, dtype, op);

    char what[128];
    snprintf(what, sizeof what, "%s %s %s, %d operands, target %d, offset %zu%s", variant,
             ddl_dtype_name(dtype), ddl_op_name(op), noperands, alias, offset,
             sweep->past ? ", past the caches" : "");
    assert_same(target, sweep->expected, count, bytes, what);
    for (size_t i = 1; i <= GUARD; i++) {
        assert_int_equal(target[-(ptrdiff_t)i], 0xa5);
        assert_int_equal(target[count * bytes + i - 1], 0xa5);
    }
    for (int k = 0; k < noperands; k++)
        if (k != alias)
            assert_memory_equal(operands[k], sweep->operands[k], count * bytes);
}

enum { NO_OPERAND = -1 };

/* The same of two operands with the result in two places, each of which is an operand or separate memory. */
static void check_twice(struct sweep *sweep, const char *variant, size_t count, ddl_dtype dtype, ddl_op op,
                        const int places[2], size_t offset)
{
    const size_t bytes = ddl_dtype_bytes(dtype);
    uint8_t *targets[2];
    const void *operands[2];
    for (int k = 0; k < 2; k++) {
        uint8_t *at = sweep->work[k] + GUARD + (offset + (size_t)k) % SLACK * bytes;
        memset(at - GUARD, 0xa5, count * bytes + 2 * GUARD);
        memcpy(at, sweep->operands[k], count * bytes);
        operands[k] = at;
        uint8_t *apart = (k == 0 ? sweep->target : sweep->work[2]) + GUARD + offset * bytes;
        if (places[k] == NO_OPERAND)
            memset(apart - GUARD, 0xa5, count * bytes + 2 * GUARD);
        targets[k] = places[k] == NO_OPERAND ? apart : NULL;
    }
    for (int k = 0; k < 2; k++)
        if (places[k] != NO_OPERAND)
            targets[k] = (uint8_t *)operands[places[k]];

    ddl_compute *compute = ddl_compute_cpu_variant(variant);
    compute->ops->reduce_twice(compute, targets[0], targets[1], operands, count, dtype, op);

    char what[128];
    snprintf(what, sizeof what, "%s %s %s, targets %d and %d, offset %zu", variant, ddl_dtype_name(dtype),
             ddl_op_name(op), places[0], places[1], offset);
    for (int k = 0; k < 2; k++) {
        assert_same(targets[k], sweep->expected, count, bytes, what);
        for (size_t i = 1; i <= GUARD; i++) {
            assert_int_equal(targets[k][-(ptrdiff_t)i], 0xa5);
            assert_int_equal(targets[k][count * bytes + i - 1], 0xa5);
        }
        if (places[0] != k && places[1] != k)
            assert_memory_equal(operands[k], sweep->operands[k], count * bytes);
    }
}

static void for_each_reduction(void (*check)(struct sweep *, const char *variant, int noperands, ddl_dtype,
                                             ddl_op),
                               size_t count)
{
    static const int operand_counts[] = { 2, 3, 4, 5, 6, 9, 32 };
    struct sweep sweep;
    uint64_t state = 1;
    sweep_init(&sweep);
    for (int dtype = 0; dtype < DDL_DTYPE_COUNT; dtype++)
        for (int op = 0; op < DDL_OP_COUNT; op++) {
            if (!ddl_op_takes((ddl_op)op, (ddl_dtype)dtype))
                continue;
            for (int k = 0; k < MAX_OPERANDS; k++)
                fill(sweep.operands[k], count, (ddl_dtype)dtype, &state);
            for (size_t n = 0; n < sizeof operand_counts / sizeof *operand_counts; n++) {
                oracle_reduce(sweep.expected, (const uint8_t *const *)sweep.operands, operand_counts[n],
                              count, (ddl_dtype)dtype, (ddl_op)op);
                for (size_t v = 0; ddl_compute_cpu_name(v) != NULL; v++)
                    check(&sweep, ddl_compute_cpu_name(v), operand_counts[n], (ddl_dtype)dtype, (ddl_op)op);
            }
        }
    sweep_fini(&sweep);
}

static void check_counts(struct sweep *sweep, const char *variant, int noperands, ddl_dtype dtype, ddl_op op)
{
    for (size_t count = 0; count <= 67; count++)
        check_reduce(sweep, variant, noperands, count, dtype, op, -1, 0, false);
    check_reduce(sweep, variant, noperands, 1000, dtype, op, -1, 0, false);
    check_reduce(sweep, variant, noperands, MAX_COUNT, dtype, op, -1, 1, true);
}

static void check_targets(struct sweep *sweep, const char *variant, int noperands, ddl_dtype dtype, ddl_op op)
{
    static const size_t counts[] = { 1, 15, 16, 33, 67, 1000, MAX_COUNT };
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        check_reduce(sweep, variant, noperands, counts[c], dtype, op, 0, c % SLACK, false);
        check_reduce(sweep, variant, noperands, counts[c], dtype, op, noperands / 2, c % SLACK, true);
        check_reduce(sweep, variant, noperands, counts[c], dtype, op, noperands - 1, c % SLACK, true);
    }
}

static void check_alignments(struct sweep *sweep, const char *variant, int noperands, ddl_dtype dtype,
                             ddl_op op)
{
    for (size_t offset = 0; offset < SLACK; offset++)
        for (int alias = -1; alias <= 0; alias++) {
            check_reduce(sweep, variant, noperands, 67, dtype, op, alias, offset, false);
            check_reduce(sweep, variant, noperands, 130, dtype, op, alias, offset, true);
        }
}

static void check_past(struct sweep *sweep, const char *variant, int noperands, ddl_dtype dtype, ddl_op op)
{
    static const size_t counts[] = { 0, 1, 67, 127, 130, 255, 513, 1023, 1024, 1033, MAX_COUNT };
    sweep->past = true;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        check_reduce(sweep, variant, noperands, counts[c], dtype, op, NO_OPERAND, c % SLACK, true);
    for (size_t offset = 0; offset < SLACK; offset++)
        for (int alias = NO_OPERAND; alias < 2; alias++)
            check_reduce(sweep, variant, noperands, 1100, dtype, op, alias, offset, false);
}

static void check_two_targets(struct sweep *sweep, const char *variant, int noperands, ddl_dtype dtype,
                              ddl_op op)
{
    static const int places[][2] = {
        { NO_OPERAND, NO_OPERAND }, { 0, 1 }, { 1, 0 }, { NO_OPERAND, 1 }, { 0, NO_OPERAND }
    };
    static const size_t counts[] = { 0, 1, 15, 16, 33, 67, 1000, MAX_COUNT };
    for (size_t p = 0; noperands == 2 && p < sizeof places / sizeof *places; p++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            check_twice(sweep, variant, counts[c], dtype, op, places[p], c % SLACK);
}

static void reduce_is_right_for_every_count(void **state)
{
    (void)state;
    for_each_reduction(check_counts, MAX_COUNT);
}

static void reduce_may_write_over_any_one_operand(void **state)
{
    (void)state;
    for_each_reduction(check_targets, MAX_COUNT);
}

static void the_result_may_go_past_the_caches(void **state)
{
    (void)state;
    for_each_reduction(check_past, MAX_COUNT);
}

static void the_result_may_go_to_two_places(void **state)
{
    (void)state;
    for_each_reduction(check_two_targets, MAX_COUNT);
}

static void reduce_takes_any_alignment_of_an_element(void **state)
{
    (void)state;
    for_each_reduction(check_alignments, 130);
}

/* Also so many that a way past the caches has no places for them. */
static void there_may_be_any_number_of_operands(void **state)
{
    enum { MOST_OPERANDS = 2000 };
    static const int operand_counts[] = { 63, 64, 65, 200, MOST_OPERANDS };
    static uint16_t ones[MAX_COUNT], target[MAX_COUNT], expected[MAX_COUNT];
    const void *operands[MOST_OPERANDS];
    (void)state;
    for (size_t i = 0; i < MAX_COUNT; i++)
        ones[i] = half_of_value(1, &float16);
    for (int k = 0; k < MOST_OPERANDS; k++)
        operands[k] = ones;
    for (size_t v = 0; ddl_compute_cpu_name(v) != NULL; v++)
        for (size_t n = 0; n < sizeof operand_counts / sizeof *operand_counts; n++) {
            ddl_compute *compute = ddl_compute_cpu_variant(ddl_compute_cpu_name(v));
            for (size_t i = 0; i < MAX_COUNT; i++)
                expected[i] = half_of_value(operand_counts[n], &float16);
            compute->ops->reduce_past(compute, target, operands, operand_counts[n], MAX_COUNT, DDL_FLOAT16,
                                      DDL_SUM);
            assert_same((uint8_t *)target, (uint8_t *)expected, MAX_COUNT, sizeof *target,
                        ddl_compute_cpu_name(v));
        }
}

/* Whoever disturbs only adds, so the least of many times counts, and of several tries the best. */
static int64_t least_ns(ddl_compute *compute, const void *const operands[], int noperands, ddl_dtype dtype,
                        ddl_op op)
{
    static uint16_t target[MAX_COUNT];
    int64_t least = INT64_MAX;
    for (int i = 0; i < 20; i++) {
        const int64_t begin_ns = ddl_now_ns();
        compute->ops->reduce(compute, target, operands, noperands, MAX_COUNT, dtype, op);
        const int64_t took_ns = ddl_now_ns() - begin_ns;
        least = took_ns < least ? took_ns : least;
    }
    return least;
}

/* Loops over more than four that are not vectorised took 6 to 13 times as long as one over two that is. */
static void least_and_greatest_of_many_halves_take_their_share(void **state)
{
    enum { MORE = 5, TRIES = 20, TIMES = 4 };
    static const ddl_dtype dtypes[] = { DDL_FLOAT16, DDL_BFLOAT16 };
    static uint16_t from[MORE][MAX_COUNT];
    const void *const operands[MORE] = { from[0], from[1], from[2], from[3], from[4] };
    (void)state;
    for (int v = 0; ddl_compute_cpu_name(v) != NULL; v++)
        for (int i = 0; i < 4; i++) {
            ddl_compute *compute = ddl_compute_cpu_variant(ddl_compute_cpu_name(v));
            const ddl_dtype dtype = dtypes[i % 2];
            const ddl_op op = i < 2 ? DDL_MIN : DDL_MAX;
            int64_t two = 0, more = 1;
            for (int k = 0; k < TRIES && more > TIMES * two; k++) {
                two = least_ns(compute, operands, 2, dtype, op);
                more = least_ns(compute, operands, MORE, dtype, op);
            }
            if (more > TIMES * two)
                fail_msg("%s %s of %s: %lld ns of two operands, %lld ns of %d", ddl_compute_cpu_name(v),
                         ddl_op_name(op), ddl_dtype_name(dtype), (long long)two, (long long)more, MORE);
        }
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Which no program may ask for, and where this processor gives them all the same: no result is a wrong one.
 */
static void elements_between_two_places_are_reduced_all_the_same(void **state)
{
    enum { COUNT = 4096 };
    static uint8_t memory[4][COUNT * 8 + GUARD];
    const void *const operands[] = { memory[0] + 1, memory[1] + 1 };
    uint64_t random = 5;
    (void)state;
    for (int dtype = 0; dtype < DDL_DTYPE_COUNT; dtype++) {
        fill(memory[0] + 1, COUNT, (ddl_dtype)dtype, &random);
        fill(memory[1] + 1, COUNT, (ddl_dtype)dtype, &random);
        oracle_reduce(memory[2], (const uint8_t *const *)operands, 2, COUNT, (ddl_dtype)dtype, DDL_SUM);
        for (size_t v = 0; ddl_compute_cpu_name(v) != NULL; v++) {
            ddl_compute *compute = ddl_compute_cpu_variant(ddl_compute_cpu_name(v));
            compute->ops->reduce_past(compute, memory[3] + 1, operands, 2, COUNT, (ddl_dtype)dtype, DDL_SUM);
            assert_same(memory[3] + 1, memory[2], COUNT, ddl_dtype_bytes((ddl_dtype)dtype),
                        ddl_compute_cpu_name(v));
        }
    }
}
#endif

/* ---- special values ---- */

static void reduce_combines_every_pair_of_special_values(void **state)
{
    (void)state;
    struct sweep sweep;
    sweep_init(&sweep);
    for (int dtype = 0; dtype < DDL_DTYPE_COUNT; dtype++) {
        size_t bytes = ddl_dtype_bytes((ddl_dtype)dtype);
        for (size_t i = 0; i < SPECIALS * SPECIALS; i++) {
            put_special(sweep.operands[0] + i * bytes, (ddl_dtype)dtype, i / SPECIALS);
            put_special(sweep.operands[1] + i * bytes, (ddl_dtype)dtype, i % SPECIALS);
        }
        for (int op = 0; op < DDL_OP_COUNT; op++) {
            if (!ddl_op_takes((ddl_op)op, (ddl_dtype)dtype))
                continue;
            oracle_reduce(sweep.expected, (const uint8_t *const *)sweep.operands, 2, SPECIALS * SPECIALS,
                          (ddl_dtype)dtype, (ddl_op)op);
            for (size_t v = 0; ddl_compute_cpu_name(v) != NULL; v++)
                for (int past = 0; past < 2; past++) {
                    sweep.past = past == 1;
                    check_reduce(&sweep, ddl_compute_cpu_name(v), 2, SPECIALS * SPECIALS, (ddl_dtype)dtype,
                                 (ddl_op)op, -1, 0, false);
                }
        }
    }
    sweep_fini(&sweep);
}

/* Written out by hand, so that oracle and kernels cannot err together. */
static const struct {
    const char *name;
    ddl_dtype dtype;
    ddl_op op;
    uint32_t operands[5];
    int noperands;
    uint32_t result;
} known[] = {
    { "1 + 2^-11 is a tie and goes to even", DDL_FLOAT16, DDL_SUM, { 0x3c00, 0x1000 }, 2, 0x3c00 },
    { "1 + 2^-10 + 2^-11 is a tie and goes to even", DDL_FLOAT16, DDL_SUM, { 0x3c01, 0x1000 }, 2, 0x3c02 },
    { "rounding once keeps two halves of a unit",
      DDL_FLOAT16,
      DDL_SUM,
      { 0x3c00, 0x1000, 0x1000 },
      3,
      0x3c01 },
    { "65504 + 16 overflows", DDL_FLOAT16, DDL_SUM, { 0x7bff, 0x4c00 }, 2, 0x7c00 },
    { "65504 + 15 does not", DDL_FLOAT16, DDL_SUM, { 0x7bff, 0x4b80 }, 2, 0x7bff },
    { "overflow on the way is not overflow", DDL_FLOAT16, DDL_SUM, { 0x7bff, 0x7bff, 0xfbff }, 3, 0x7bff },
    { "subnormals add up to the least normal", DDL_FLOAT16, DDL_SUM, { 0x03ff, 0x0001 }, 2, 0x0400 },
    { "half of the least subnormal goes to zero", DDL_FLOAT16, DDL_PROD, { 0x0001, 0x3800 }, 2, 0x0000 },
    { "three quarters of it do not", DDL_FLOAT16, DDL_PROD, { 0x8001, 0x3a00 }, 2, 0x8001 },
    { "infinity less infinity", DDL_FLOAT16, DDL_SUM, { 0x7c00, 0xfc00 }, 2, 0x7e00 },
    { "a signalling NaN", DDL_FLOAT16, DDL_SUM, { 0xfc01, 0x3c00 }, 2, 0x7e00 },
    { "NaN is the least", DDL_FLOAT16, DDL_MIN, { 0xfc00, 0x3c00, 0x7d00 }, 3, 0x7e00 },
    { "NaN is the greatest", DDL_FLOAT16, DDL_MAX, { 0xfd00, 0x3c00, 0x7c00 }, 3, 0x7e00 },
    { "-0 is less than +0", DDL_FLOAT16, DDL_MIN, { 0x0000, 0x8000 }, 2, 0x8000 },
    { "+0 is greater than -0", DDL_FLOAT16, DDL_MAX, { 0x0000, 0x8000 }, 2, 0x0000 },
    { "1 + 2^-8 is a tie and goes to even", DDL_BFLOAT16, DDL_SUM, { 0x3f80, 0x3b80 }, 2, 0x3f80 },
    { "rounding once keeps two halves of a unit",
      DDL_BFLOAT16,
      DDL_SUM,
      { 0x3f80, 0x3b80, 0x3b80 },
      3,
      0x3f81 },
    { "the greatest number doubled", DDL_BFLOAT16, DDL_SUM, { 0x7f7f, 0x7f7f }, 2, 0x7f80 },
    { "a NaN whose payload would round away", DDL_BFLOAT16, DDL_SUM, { 0x7f81, 0x0000 }, 2, 0x7fc0 },
    { "the NaN with all bits set", DDL_BFLOAT16, DDL_SUM, { 0xffff, 0x3f80 }, 2, 0x7fc0 },
    { "subnormals", DDL_BFLOAT16, DDL_SUM, { 0x0001, 0x0002 }, 2, 0x0003 },
    { "-0 is less than +0", DDL_BFLOAT16, DDL_MIN, { 0x0000, 0x8000, 0x0000 }, 3, 0x8000 },
    { "NaN is the greatest", DDL_BFLOAT16, DDL_MAX, { 0x7f80, 0xffc1 }, 2, 0x7fc0 },
    { "one and one", DDL_FLOAT32, DDL_SUM, { 0x3f800000, 0x3f800000 }, 2, 0x40000000 },
    { "-0 and -0", DDL_FLOAT32, DDL_SUM, { 0x80000000, 0x80000000 }, 2, 0x80000000 },
    { "two NaNs", DDL_FLOAT32, DDL_SUM, { 0xffc12345, 0x7f812345 }, 2, 0x7fc00000 },
    { "zero times infinity", DDL_FLOAT32, DDL_PROD, { 0x80000000, 0x7f800000 }, 2, 0x7fc00000 },
    { "NaN is the least, before -infinity", DDL_FLOAT32, DDL_MIN, { 0xff800000, 0x7fc00001 }, 2, 0x7fc00000 },
    { "NaN is the greatest", DDL_FLOAT32, DDL_MAX, { 0x7f800000, 0xffc00001 }, 2, 0x7fc00000 },
    { "+0 is greater than -0", DDL_FLOAT32, DDL_MAX, { 0x80000000, 0x00000000 }, 2, 0x00000000 },
    { "the order of operands is kept",
      DDL_FLOAT32,
      DDL_SUM,
      { 0x4b800000, 0x3f800000, 0x3f800000, 0xcb800000 },
      4,
      0 },
    { "int8 wraps", DDL_INT8, DDL_SUM, { 0x7f, 0x01 }, 2, 0x80 },
    { "uint8 wraps", DDL_UINT8, DDL_SUM, { 0xff, 0x02 }, 2, 0x01 },
    { "uint16 products do not overflow int", DDL_UINT16, DDL_PROD, { 0xffff, 0xffff, 0xffff }, 3, 0xffff },
    { "int32 wraps", DDL_INT32, DDL_PROD, { 0x80000000, 0xffffffff }, 2, 0x80000000 },
    { "signed minimum", DDL_INT32, DDL_MIN, { 0x80000000, 0x7fffffff }, 2, 0x80000000 },
    { "unsigned minimum", DDL_UINT32, DDL_MIN, { 0x80000000, 0x7fffffff }, 2, 0x7fffffff },
    { "exclusive or of five", DDL_UINT8, DDL_BXOR, { 1, 2, 4, 8, 1 }, 5, 14 },
};

static void reduce_gives_known_results(void **state)
{
    (void)state;
    enum { COPIES = 70 }; /* in vectors and in what is left over */
    for (size_t v = 0; ddl_compute_cpu_name(v) != NULL; v++)
        for (size_t c = 0; c < sizeof known / sizeof *known; c++) {
            uint64_t memory[5][COPIES], target[COPIES];
            const void *operands[5];
            size_t bytes = ddl_dtype_bytes(known[c].dtype);
            for (int k = 0; k < known[c].noperands; k++) {
                for (size_t i = 0; i < COPIES; i++)
                    memcpy((uint8_t *)memory[k] + i * bytes, &known[c].operands[k], bytes);
                operands[k] = memory[k];
            }
            ddl_compute *compute = ddl_compute_cpu_variant(ddl_compute_cpu_name(v));
            compute->ops->reduce(compute, target, operands, known[c].noperands, COPIES, known[c].dtype,
                                 known[c].op);
            for (size_t i = 0; i < COPIES; i++) {
                uint32_t result = 0;
                memcpy(&result, (uint8_t *)target + i * bytes, bytes);
                if (result != known[c].result)
                    fail_msg("%s: %s %s, %s: element %zu is %#x, not %#x", ddl_compute_cpu_name(v),
                             ddl_dtype_name(known[c].dtype), ddl_op_name(known[c].op), known[c].name, i,
                             (unsigned)result, (unsigned)known[c].result);
            }
        }
}

/* Every pattern of a 16-bit float meets the numbers that make it round: widened, combined, rounded. */
static void every_half_survives_or_rounds_as_the_oracle_says(void **state)
{
    (void)state;
    enum { PATTERNS = 65536 };
    static const uint16_t others[] = {
        0x8000, 0x3c00, 0x3f80, 0x0001, 0x3555, 0x1000, 0x3b80, 0x7bff, 0x7f7f
    };
    uint16_t *all = malloc(PATTERNS * sizeof *all), *other = malloc(PATTERNS * sizeof *other);
    uint16_t *target = malloc(PATTERNS * sizeof *target), *expected = malloc(PATTERNS * sizeof *expected);
    assert_non_null(all);
    assert_non_null(other);
    assert_non_null(target);
    assert_non_null(expected);
    for (size_t i = 0; i < PATTERNS; i++)
        all[i] = (uint16_t)i;
    for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
        for (size_t i = 0; i < PATTERNS; i++)
            other[i] = others[o];
        for (int dtype = DDL_FLOAT16; dtype <= DDL_BFLOAT16; dtype++)
            for (int op = DDL_SUM; op <= DDL_MAX; op++) {
                const void *operands[] = { all, other };
                oracle_reduce((uint8_t *)expected, (const uint8_t *const *)operands, 2, PATTERNS,
                              (ddl_dtype)dtype, (ddl_op)op);
                for (size_t v = 0; ddl_compute_cpu_name(v) != NULL; v++) {
                    ddl_compute *compute = ddl_compute_cpu_variant(ddl_compute_cpu_name(v));
                    compute->ops->reduce(compute, target, operands, 2, PATTERNS, (ddl_dtype)dtype,
                                         (ddl_op)op);
                    assert_same((uint8_t *)target, (uint8_t *)expected, PATTERNS, sizeof *target,
                                ddl_compute_cpu_name(v));
                }
            }
    }
    free(all);
    free(other);
    free(target);
    free(expected);
}

static void scale_divides_as_avg_is_defined(void **state)
{
    (void)state;
    static const int divisors[] = { 1,    2,     3,     7,     127,   128,      255,
                                    1000, 32768, 65535, 65536, 65537, 16777217, INT32_MAX };
    static const size_t counts[] = { 0, 1, 7, 31, 67, 1000, MAX_COUNT };
    uint64_t random = 3;
    uint8_t *from = malloc(MAX_COUNT * 8), *work = malloc(MAX_COUNT * 8 + 2 * GUARD),
            *expected = malloc(MAX_COUNT * 8);
    assert_non_null(from);
    assert_non_null(work);
    assert_non_null(expected);
    for (int dtype = 0; dtype < DDL_DTYPE_COUNT; dtype++) {
        size_t bytes = ddl_dtype_bytes((ddl_dtype)dtype);
        fill(from, MAX_COUNT, (ddl_dtype)dtype, &random);
        for (size_t i = 0; i < SPECIALS; i++)
            put_special(from + i * bytes, (ddl_dtype)dtype, i);
        for (size_t d = 0; d < sizeof divisors / sizeof *divisors; d++) {
            memcpy(expected, from, MAX_COUNT * bytes);
            oracle_scale(expected, MAX_COUNT, (ddl_dtype)dtype, divisors[d]);
            for (size_t v = 0; ddl_compute_cpu_name(v) != NULL; v++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    uint8_t *target = work + bytes * (c % 2);
                    memcpy(target, from, counts[c] * bytes);
                    memset(target + counts[c] * bytes, 0xa5, GUARD);
                    ddl_compute *compute = ddl_compute_cpu_variant(ddl_compute_cpu_name(v));
                    compute->ops->scale(compute, target, counts[c], (ddl_dtype)dtype, divisors[d]);
                    char what[96];
                    snprintf(what, sizeof what, "%s %s by %d", ddl_compute_cpu_name(v),
                             ddl_dtype_name((ddl_dtype)dtype), divisors[d]);
                    assert_same(target, expected, counts[c], bytes, what);
                    for (size_t i = 0; i < GUARD; i++)
                        assert_int_equal(target[counts[c] * bytes + i], 0xa5);
                }
        }
    }
    free(from);
    free(work);
    free(expected);
}

static void copy_copies(void **state)
{
    (void)state;
    ddl_compute *compute = ddl_compute_cpu();
    uint8_t from[100], to[102];
    uint64_t random = 4;
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)next_random(&random);
    memset(to, 0xa5, sizeof to);
    compute->ops->copy(compute, to + 1, from, sizeof from, false);
    assert_memory_equal(to + 1, from, sizeof from);
    assert_int_equal(to[0], 0xa5);
    assert_int_equal(to[101], 0xa5);
    compute->ops->copy(compute, NULL, NULL, 0, true);
}

static void the_best_variant_is_the_first_of_those_that_run_here(void **state)
{
    size_t count = 0;
    (void)state;
    for (; ddl_compute_cpu_name(count) != NULL; count++)
        assert_non_null(ddl_compute_cpu_variant(ddl_compute_cpu_name(count)));
    assert_true(count > 0);
    assert_ptr_equal(ddl_compute_cpu(), ddl_compute_cpu_variant(ddl_compute_cpu_name(0)));
    assert_string_equal(ddl_compute_cpu_name(count - 1), "plain");
    assert_null(ddl_compute_cpu_variant("sse9"));
}

/* ---- whatever the thread has asked for ---- */

enum { SUMMED = 100 };

static void ask_for_other_arithmetic(void)
{
    assert_int_equal(fesetround(FE_UPWARD), 0);
#ifdef __x86_64__
    _mm_setcsr(_mm_getcsr() | 0x8040); /* subnormals are flushed, and taken for zeros */
#endif
}

static bool has_other_arithmetic(void)
{
#ifdef __x86_64__
    if ((_mm_getcsr() & 0x8040) != 0x8040)
        return false;
#endif
    return fegetround() == FE_UPWARD;
}

/* Subnormals, and what has to be rounded. */
static void fill_with_care(void *at, ddl_dtype dtype, int seed)
{
    for (int i = 0; i < SUMMED; i++) {
        const float f =
            i % 2 == 0 ? ldexpf((float)(i + seed), -149) : 1.0f + (float)seed * ldexpf((float)i, -24);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        if (dtype == DDL_FLOAT32)
            ((float *)at)[i] = f;
        else if (dtype == DDL_FLOAT64)
            ((double *)at)[i] = i % 2 == 0 ? ldexp(i + seed, -1074) : 1.0 + seed * ldexp(i, -53);
        else if (dtype == DDL_BFLOAT16)
            ((uint16_t *)at)[i] = i % 2 == 0 ? (uint16_t)(i + seed) : (uint16_t)(bits >> 16);
        else
            ((uint16_t *)at)[i] = i % 2 == 0 ? (uint16_t)(i + seed) : (uint16_t)(0x3c00 + seed * i % 64);
    }
}

static void compute_all(ddl_compute *compute, ddl_dtype dtype, const void *const operands[2],
                        uint64_t results[4][SUMMED])
{
    static uint64_t also[SUMMED];
    memset(results, 0, 4 * sizeof results[0]);
    compute->ops->reduce(compute, results[0], operands, 2, SUMMED, dtype, DDL_SUM);
    compute->ops->reduce_past(compute, results[1], operands, 2, SUMMED, dtype, DDL_SUM);
    compute->ops->reduce_twice(compute, results[2], also, operands, SUMMED, dtype, DDL_SUM);
    memcpy(results[3], results[0], sizeof results[3]);
    compute->ops->scale(compute, results[3], SUMMED, dtype, 3);
}

static void results_do_not_depend_on_what_the_thread_has_asked_for(void **state)
{
    static const ddl_dtype dtypes[] = { DDL_FLOAT16, DDL_BFLOAT16, DDL_FLOAT32, DDL_FLOAT64 };
    static uint64_t a[SUMMED], b[SUMMED], usual[4][SUMMED], other[4][SUMMED];
    const void *const operands[] = { a, b };
    (void)state;
    for (size_t v = 0; ddl_compute_cpu_name(v) != NULL; v++)
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            ddl_compute *compute = ddl_compute_cpu_variant(ddl_compute_cpu_name(v));
            fenv_t before;
            fill_with_care(a, dtypes[i], 1);
            fill_with_care(b, dtypes[i], 3);
            compute_all(compute, dtypes[i], operands, usual);
            assert_int_equal(fegetenv(&before), 0);
            ask_for_other_arithmetic();
            compute_all(compute, dtypes[i], operands, other);
            const bool is_restored = has_other_arithmetic();
            assert_int_equal(fesetenv(&before), 0);
            assert_true(is_restored);
            if (memcmp(usual, other, sizeof usual) != 0)
                fail_msg("%s of %s", ddl_compute_cpu_name(v), ddl_dtype_name(dtypes[i]));
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_what_the_thread_has_asked_for),
        cmocka_unit_test(reduce_is_right_for_every_count),
        cmocka_unit_test(reduce_may_write_over_any_one_operand),
        cmocka_unit_test(the_result_may_go_past_the_caches),
        cmocka_unit_test(the_result_may_go_to_two_places),
        cmocka_unit_test(there_may_be_any_number_of_operands),
        cmocka_unit_test(least_and_greatest_of_many_halves_take_their_share),
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(elements_between_two_places_are_reduced_all_the_same),
#endif
        cmocka_unit_test(reduce_takes_any_alignment_of_an_element),
        cmocka_unit_test(reduce_combines_every_pair_of_special_values),
        cmocka_unit_test(reduce_gives_known_results),
        cmocka_unit_test(every_half_survives_or_rounds_as_the_oracle_says),
        cmocka_unit_test(scale_divides_as_avg_is_defined),
        cmocka_unit_test(copy_copies),
        cmocka_unit_test(the_best_variant_is_the_first_of_those_that_run_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
