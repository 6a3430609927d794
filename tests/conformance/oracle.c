#include "oracle.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = { "allreduce", "reduce",          "reduce_scatter", "allgather",
                                          "broadcast", "alltoall",        "barrier",        "gather",
                                          "scatter",   "reduce_scatterv", "allgatherv",     "gatherv",
                                          "scatterv",  "alltoallv",       "shift",          "pair" };
static const char *const dtype_names[] = { "int8",  "uint8",  "int16",   "uint16",   "int32",   "uint32",
                                           "int64", "uint64", "float16", "bfloat16", "float32", "float64" };
static const char *const op_names[] = { "sum", "prod", "min", "max", "avg", "band", "bor", "bxor" };

enum { DTYPES = sizeof dtype_names / sizeof dtype_names[0], OPS = sizeof op_names / sizeof op_names[0] };

/* One element on its way through the naive arithmetic: integers as their bits, floats as double. */
typedef struct number {
    uint64_t bits;
    double real;
} number;

static int parse(const char *name, const char *const names[], int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

const char *oracle_kind_name(oracle_kind kind)
{
    return kind_names[kind];
}

const char *oracle_dtype_name(ddl_dtype dtype)
{
    return dtype_names[dtype];
}

const char *oracle_op_name(ddl_op op)
{
    return op_names[op];
}

int oracle_kind_parse(const char *name)
{
    return parse(name, kind_names, ORACLE_KINDS);
}

int oracle_dtype_parse(const char *name)
{
    return parse(name, dtype_names, DTYPES);
}

int oracle_op_parse(const char *name)
{
    return parse(name, op_names, OPS);
}

bool oracle_is_float(ddl_dtype dtype)
{
    return dtype >= DDL_FLOAT16;
}

static bool is_signed(ddl_dtype dtype)
{
    return dtype == DDL_INT8 || dtype == DDL_INT16 || dtype == DDL_INT32 || dtype == DDL_INT64;
}

bool oracle_reduces(oracle_kind kind)
{
    return kind == ORACLE_ALLREDUCE || kind == ORACLE_REDUCE || kind == ORACLE_REDUCE_SCATTER ||
           kind == ORACLE_REDUCE_SCATTERV;
}

bool oracle_is_uneven(oracle_kind kind)
{
    return kind >= ORACLE_REDUCE_SCATTERV && kind <= ORACLE_ALLTOALLV;
}

bool oracle_is_rooted(oracle_kind kind)
{
    return kind == ORACLE_BROADCAST || kind == ORACLE_REDUCE || kind == ORACLE_GATHER ||
           kind == ORACLE_SCATTER || kind == ORACLE_GATHERV || kind == ORACLE_SCATTERV;
}

uint64_t oracle_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t oracle_below(uint64_t *state, uint64_t limit)
{
    return oracle_next(state) % limit;
}

size_t oracle_block_count(const oracle_call *call, bool sends, int rank, int other)
{
    if (!oracle_is_uneven(call->kind))
        return call->count;
    if (call->kind != ORACLE_ALLTOALLV)
        return call->counts[other];
    return sends ? call->counts[rank * call->nranks + other] : call->counts[other * call->nranks + rank];
}

size_t oracle_block_start(const oracle_call *call, bool sends, int rank, int other)
{
    size_t start = 0;
    for (int r = 0; r < other; r++)
        start += oracle_block_count(call, sends, rank, r);
    return start;
}

static size_t all_blocks(const oracle_call *call, bool sends, int rank)
{
    return oracle_block_start(call, sends, rank, call->nranks);
}

size_t oracle_send_count(const oracle_call *call, int rank)
{
    switch (call->kind) {
    case ORACLE_REDUCE_SCATTER:
    case ORACLE_REDUCE_SCATTERV:
    case ORACLE_ALLTOALL:
    case ORACLE_ALLTOALLV:
        return all_blocks(call, true, rank);
    case ORACLE_SCATTER:
    case ORACLE_SCATTERV:
        return rank == call->root ? all_blocks(call, true, rank) : 0;
    case ORACLE_ALLGATHERV:
    case ORACLE_GATHERV:
        return call->counts[rank];
    case ORACLE_BROADCAST:
    case ORACLE_PAIR:
        return rank == call->root ? call->count : 0;
    case ORACLE_BARRIER:
        return 0;
    default:
        return call->count;
    }
}

size_t oracle_recv_count(const oracle_call *call, int rank)
{
    switch (call->kind) {
    case ORACLE_REDUCE:
        return rank == call->root ? call->count : 0;
    case ORACLE_ALLGATHER:
    case ORACLE_ALLGATHERV:
    case ORACLE_ALLTOALL:
    case ORACLE_ALLTOALLV:
        return all_blocks(call, false, rank);
    case ORACLE_GATHER:
    case ORACLE_GATHERV:
        return rank == call->root ? all_blocks(call, false, rank) : 0;
    case ORACLE_REDUCE_SCATTERV:
    case ORACLE_SCATTERV:
        return call->counts[rank];
    case ORACLE_PAIR:
        return rank == call->peer ? call->count : 0;
    case ORACLE_BARRIER:
        return 0;
    default:
        return call->count;
    }
}

/* ---- elements ---- */

struct small_float {
    int mantissa_bits, bias, max_exponent;
};

static const struct small_float float16_form = { 10, 15, 31 };
static const struct small_float bfloat16_form = { 7, 127, 255 };

static double small_float_decode(uint16_t bits, struct small_float form)
{
    int exponent = (bits & 0x7fff) >> form.mantissa_bits;
    int mantissa = bits & ((1 << form.mantissa_bits) - 1);
    double sign = bits & 0x8000 ? -1.0 : 1.0;

    if (exponent == form.max_exponent)
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - form.bias - form.mantissa_bits);
    return sign * ldexp(mantissa + (1 << form.mantissa_bits), exponent - form.bias - form.mantissa_bits);
}

/* Nearest, ties to even. */
static uint16_t small_float_encode(double value, struct small_float form)
{
    unsigned sign = signbit(value) ? 0x8000u : 0;
    unsigned infinity = (unsigned)form.max_exponent << form.mantissa_bits;
    int exponent, lowest = 1 - form.bias;
    double units;

    if (isnan(value))
        return (uint16_t)(sign | infinity | 1u << (form.mantissa_bits - 1));
    if (isinf(value))
        return (uint16_t)(sign | infinity);
    if (value == 0)
        return (uint16_t)sign;
    exponent = ilogb(value);
    if (exponent < lowest)
        exponent = lowest;
    if (exponent > form.max_exponent - form.bias - 1)
        return (uint16_t)(sign | infinity);
    /* Units of the last place; a carry out of the mantissa moves into the exponent by itself. */
    units = nearbyint(ldexp(fabs(value), form.mantissa_bits - exponent));
    return (uint16_t)(sign | (((unsigned)(exponent - lowest) << form.mantissa_bits) + (unsigned)units));
}

double oracle_value_of_half(ddl_dtype dtype, uint16_t bits)
{
    return small_float_decode(bits, dtype == DDL_FLOAT16 ? float16_form : bfloat16_form);
}

uint16_t oracle_half_of_value(ddl_dtype dtype, double value)
{
    return small_float_encode(value, dtype == DDL_FLOAT16 ? float16_form : bfloat16_form);
}

static number load(const void *buffer, size_t i, ddl_dtype dtype)
{
    number n = { 0, 0 };
    switch (dtype) {
    case DDL_INT8:
        n.bits = (uint64_t)(int64_t)((const int8_t *)buffer)[i];
        break;
    case DDL_UINT8:
        n.bits = ((const uint8_t *)buffer)[i];
        break;
    case DDL_INT16:
        n.bits = (uint64_t)(int64_t)((const int16_t *)buffer)[i];
        break;
    case DDL_UINT16:
        n.bits = ((const uint16_t *)buffer)[i];
        break;
    case DDL_INT32:
        n.bits = (uint64_t)(int64_t)((const int32_t *)buffer)[i];
        break;
    case DDL_UINT32:
        n.bits = ((const uint32_t *)buffer)[i];
        break;
    case DDL_INT64:
    case DDL_UINT64:
        n.bits = ((const uint64_t *)buffer)[i];
        break;
    case DDL_FLOAT16:
        n.real = small_float_decode(((const uint16_t *)buffer)[i], float16_form);
        break;
    case DDL_BFLOAT16:
        n.real = small_float_decode(((const uint16_t *)buffer)[i], bfloat16_form);
        break;
    case DDL_FLOAT32:
        n.real = (double)((const float *)buffer)[i];
        break;
    case DDL_FLOAT64:
        n.real = ((const double *)buffer)[i];
        break;
    }
    return n;
}

static void store(void *buffer, size_t i, ddl_dtype dtype, number n)
{
    switch (dtype) {
    case DDL_INT8:
    case DDL_UINT8:
        ((uint8_t *)buffer)[i] = (uint8_t)n.bits;
        break;
    case DDL_INT16:
    case DDL_UINT16:
        ((uint16_t *)buffer)[i] = (uint16_t)n.bits;
        break;
    case DDL_INT32:
    case DDL_UINT32:
        ((uint32_t *)buffer)[i] = (uint32_t)n.bits;
        break;
    case DDL_INT64:
    case DDL_UINT64:
        ((uint64_t *)buffer)[i] = n.bits;
        break;
    case DDL_FLOAT16:
        ((uint16_t *)buffer)[i] = small_float_encode(n.real, float16_form);
        break;
    case DDL_BFLOAT16:
        ((uint16_t *)buffer)[i] = small_float_encode(n.real, bfloat16_form);
        break;
    case DDL_FLOAT32:
        ((float *)buffer)[i] = (float)n.real;
        break;
    case DDL_FLOAT64:
        ((double *)buffer)[i] = n.real;
        break;
    }
}

/* As the type would hold it: integers wrap, floats round. */
static number narrow(number n, ddl_dtype dtype)
{
    uint64_t room = 0;
    store(&room, 0, dtype, n);
    return load(&room, 0, dtype);
}

static bool less(number a, number b, ddl_dtype dtype)
{
    if (oracle_is_float(dtype)) {
        if (a.real == 0 && b.real == 0)
            return signbit(a.real) && !signbit(b.real);
        return a.real < b.real;
    }
    return is_signed(dtype) ? (int64_t)a.bits < (int64_t)b.bits : a.bits < b.bits;
}

static number combine(number a, number b, ddl_dtype dtype, ddl_op op)
{
    switch (op) {
    case DDL_SUM:
    case DDL_AVG:
        a.bits += b.bits;
        a.real += b.real;
        break;
    case DDL_PROD:
        a.bits *= b.bits;
        a.real *= b.real;
        break;
    case DDL_MIN:
    case DDL_MAX:
        if (oracle_is_float(dtype) && (isnan(a.real) || isnan(b.real)))
            a.real = (double)NAN;
        else if (op == DDL_MIN ? less(b, a, dtype) : less(a, b, dtype))
            a = b;
        break;
    case DDL_BAND:
        a.bits &= b.bits;
        break;
    case DDL_BOR:
        a.bits |= b.bits;
        break;
    case DDL_BXOR:
        a.bits ^= b.bits;
        break;
    }
    return a;
}

static number divide(number sum, int nranks, ddl_dtype dtype)
{
    sum = narrow(sum, dtype);
    if (dtype == DDL_FLOAT64)
        sum.real /= nranks;
    else if (oracle_is_float(dtype)) /* the division itself is in float32, also of 16-bit floats */
        sum.real = (double)((float)sum.real / (float)nranks);
    else if (is_signed(dtype))
        sum.bits = (uint64_t)((int64_t)sum.bits / nranks);
    else
        sum.bits /= (uint64_t)nranks;
    return sum;
}

/* ---- inputs ---- */

static number exact_value(const oracle_call *call, int rank, uint64_t random)
{
    number n = { random, 0 };
    int limit = call->nranks <= 32 ? 4 : 1; /* sums stay exact even in bfloat16, up to 256 */

    if (!oracle_reduces(call->kind))
        n.real = (double)(random % 255) - 127;
    else if (call->op == DDL_PROD) /* at most 2 * 2 * 2, so that no type overflows */
        n.real = (random & 1 ? 1.0 : -1.0) * (rank < 3 && (random & 6) == 0 ? 2.0 : 1.0);
    else
        n.real = (double)(random % (uint64_t)(2 * limit + 1)) - limit;
    return n;
}

/* Any order of combining gives the same: what is neither zero, infinite nor NaN stays a small integer. */
static number special_value(const oracle_call *call, uint64_t random)
{
    static const double special[] = { 0.0, -0.0, (double)INFINITY, -(double)INFINITY };
    static const double extremal[] = { 1.0, -1.0, 1.5, -2.25 };
    number n = { 0, 0 };
    bool extreme = call->op == DDL_MIN || call->op == DDL_MAX;

    if (random % 64 == 0)
        n.real = (double)NAN;
    else if (random % 2 == 0 && !extreme && random % 8 != 0) /* sums of negative zeros alone stay one */
        n.real = call->op == DDL_PROD ? 1.0 : -0.0;
    else if (random % 4 == 0)
        n.real = special[(random >> 8) % 4];
    else
        n.real = extremal[(random >> 8) % (extreme ? 4 : 2)];
    return n;
}

static number random_value(const oracle_call *call, uint64_t random)
{
    double unit = (double)(random >> 11) / 9007199254740992.0; /* 0 .. 1 */
    number n = { 0, 0 };
    n.real = call->op == DDL_PROD ? 0.9 + 0.2 * unit : 2000 * unit - 1000;
    return n;
}

void oracle_fill(const oracle_call *call, uint64_t key, int rank, void *send)
{
    size_t count = oracle_send_count(call, rank);
    uint64_t state = key ^ (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15u;

    oracle_next(&state);
    for (size_t i = 0; i < count; i++) {
        uint64_t random = oracle_next(&state);
        if (call->values == ORACLE_EXACT)
            store(send, i, call->dtype, exact_value(call, rank, random));
        else if (call->values == ORACLE_SPECIAL)
            store(send, i, call->dtype, special_value(call, random));
        else
            store(send, i, call->dtype, random_value(call, random));
    }
}

/* ---- results ---- */

/* Which of the blocks that rank gets element i is in; *at is its place in that block. */
static int block_of(const oracle_call *call, int rank, size_t i, size_t *at)
{
    int from = 0;
    for (size_t count; i >= (count = oracle_block_count(call, false, rank, from)); from++)
        i -= count;
    *at = i;
    return from;
}

/* Element i of what rank gets, where no arithmetic is involved. */
static const void *moved_from(const oracle_call *call, const void *const sends[], int rank, size_t i,
                              size_t *at)
{
    int n = call->nranks, from;
    *at = i;
    switch (call->kind) {
    case ORACLE_ALLGATHER:
    case ORACLE_ALLGATHERV:
    case ORACLE_GATHER:
    case ORACLE_GATHERV:
        return sends[block_of(call, rank, i, at)];
    case ORACLE_ALLTOALL:
    case ORACLE_ALLTOALLV:
        from = block_of(call, rank, i, at);
        *at += oracle_block_start(call, true, from, rank);
        return sends[from];
    case ORACLE_SCATTER:
    case ORACLE_SCATTERV:
        *at += oracle_block_start(call, true, call->root, rank);
        return sends[call->root];
    case ORACLE_SHIFT:
        return sends[(rank - call->root % n + n) % n];
    default: /* broadcast, pair */
        return sends[call->root];
    }
}

static number reduced(const oracle_call *call, const void *const sends[], size_t at, double *magnitude)
{
    number sum = load(sends[0], at, call->dtype);
    *magnitude = fabs(sum.real);
    for (int r = 1; r < call->nranks; r++) {
        number next = load(sends[r], at, call->dtype);
        *magnitude += fabs(next.real);
        sum = combine(sum, next, call->dtype, call->op);
    }
    if (call->op == DDL_PROD)
        *magnitude = fabs(sum.real);
    return sum;
}

static double rounding_unit(ddl_dtype dtype)
{
    switch (dtype) {
    case DDL_FLOAT16:
        return ldexp(1, -10);
    case DDL_BFLOAT16:
        return ldexp(1, -7);
    case DDL_FLOAT32:
        return ldexp(1, -23);
    default:
        return ldexp(1, -52);
    }
}

static void print_number(char text[32], number n, ddl_dtype dtype)
{
    if (oracle_is_float(dtype))
        snprintf(text, 32, "%.17g", n.real);
    else if (is_signed(dtype))
        snprintf(text, 32, "%" PRId64, (int64_t)n.bits);
    else
        snprintf(text, 32, "%" PRIu64, n.bits);
}

static bool same(const oracle_call *call, number want, number have, double tolerance)
{
    if (!oracle_is_float(call->dtype))
        return want.bits == have.bits;
    if (isnan(want.real) || isnan(have.real))
        return isnan(want.real) && isnan(have.real);
    if (tolerance > 0)
        return fabs(want.real - have.real) <= tolerance;
    return want.real == have.real && signbit(want.real) == signbit(have.real);
}

bool oracle_agrees(const oracle_call *call, const void *const sends[], int rank, const void *got,
                   size_t *index, char want[32], char have[32])
{
    size_t count = oracle_recv_count(call, rank);
    bool scatters = call->kind == ORACLE_REDUCE_SCATTER || call->kind == ORACLE_REDUCE_SCATTERV;
    size_t block = scatters ? oracle_block_start(call, true, rank, rank) : 0;

    for (size_t i = 0; i < count; i++) {
        number found = load(got, i, call->dtype), expected;
        double tolerance = 0;
        if (oracle_reduces(call->kind)) {
            double magnitude;
            expected = reduced(call, sends, block + i, &magnitude);
            if (call->values == ORACLE_RANDOM && oracle_is_float(call->dtype))
                tolerance = magnitude * (call->nranks + 1) * rounding_unit(call->dtype);
            if (call->op == DDL_AVG) {
                if (tolerance > 0)
                    expected.real /= call->nranks;
                else
                    expected = divide(expected, call->nranks, call->dtype);
            }
        } else {
            size_t at;
            const void *source = moved_from(call, sends, rank, i, &at);
            expected = load(source, at, call->dtype);
        }
        if (tolerance <= 0)
            expected = narrow(expected, call->dtype);
        if (!same(call, expected, found, tolerance)) {
            *index = i;
            print_number(want, expected, call->dtype);
            print_number(have, found, call->dtype);
            return false;
        }
    }
    return true;
}
