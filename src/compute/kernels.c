/*
 * kernels.c - plain loops that the compiler vectorises for the instruction set it is told to use.
 *
 * A reduction reads every operand once. Up to four are combined in registers; more go through a piece of
 * accumulators that stays in the first-level cache. 16-bit floats widen on loading and round on storing, so
 * they are rounded once however many operands there are. target and also are read, as operands, no later than
 * they are written, element by element: that is what lets each be the same memory as one operand.
 *
 * Every NaN that is stored is the positive quiet NaN without payload, so that the variants agree.
 * DDL_KERNELS names the table that this compilation makes.
 *
 * Each type needs functions of its own, which macros define:
 *
 *   DEFINE_REDUCE(name, ...)             name, a ddl_kernel_reduce, with helpers name_...
 *   DEFINE_REDUCE_LINES(name, ...)       name_lines, a ddl_kernel_reduce_lines, where there is a PUT_LINE
 *   DEFINE_REDUCES(name, ...)            both of these
 *   DEFINE_FLOAT16_LINES(name, ...)      name_lines of packs of float16
 *   DEFINE_SCALE(name, ...)              name, a ddl_kernel_scale
 *   DEFINE_INTEGER_REDUCES(bits)         both, for each operation on integers of so many bits
 *   DEFINE_INTEGER_SCALE(type, ...)      scale_type
 *   DEFINE_SINGLES(type, name)           sum_name, prod_name and scale_name, one 16-bit float at a time
 *   DEFINE_PACKS_THEN_SINGLES(op, type)  op_type and op_type_lines, of op_type_packs and op_type_singles
 *   DEFINE_FLOAT_MIN_MAX(type, ...)      both, for min_type and max_type
 *
 * load makes an accumulator of an element, combine joins two of them, and store makes an element of one.
 */
#include "compute/kernels.h"
#include "compute/half.h"
#include "compute/half_pack.h"

enum { ACCUMULATOR_BYTES = 8192 };

/* For loops inside a loop: left to itself, gcc 12 interchanges the two and then vectorises neither. */
#define NOT_INLINED __attribute__((noinline))

/* Store a line past the caches; where there are packs too, of which lines of 16-bit floats are made. */
#if defined(__AVX512F__) && defined(DDL_FLOAT16_PACK) && defined(DDL_BFLOAT16_PACK)
#define PUT_LINE(target, line) _mm512_stream_si512((void *)(target), _mm512_load_si512((const void *)(line)))
#elif defined(__AVX2__) && defined(DDL_FLOAT16_PACK) && defined(DDL_BFLOAT16_PACK)
#define PUT_LINE(target, line) put_line(target, line)
static inline void put_line(void *target, const void *line)
{
    __m256i *to = target;
    const __m256i *from = line;
    _mm256_stream_si256(to, _mm256_load_si256(from));
    _mm256_stream_si256(to + 1, _mm256_load_si256(from + 1));
}
#endif

/* Iterations depend on each other nowhere: target is an operand or overlaps none. */
#if defined(__clang__)
#define VECTOR_LOOP(i, count) \
    _Pragma("clang loop vectorize(assume_safety)") for (size_t i = 0; i < (count); i++)
#else
#define VECTOR_LOOP(i, count) _Pragma("GCC ivdep") for (size_t i = 0; i < (count); i++)
#endif

/* The elements of an operand from this one on. */
#define AT(element, operand, offset) ((const element *)(operand) + (offset))

#define DEFINE_REDUCE(name, element, accumulator, load, combine, store)                                    \
    static inline accumulator name##_of_4(element a, element b, element c, element d)                      \
    {                                                                                                      \
        return combine(combine(combine(load(a), load(b)), load(c)), load(d));                              \
    }                                                                                                      \
                                                                                                           \
    NOT_INLINED static void name##_begin(accumulator *restrict sums, const element *a, const element *b,   \
                                         const element *c, const element *d, size_t count)                 \
    {                                                                                                      \
        VECTOR_LOOP(i, count)                                                                              \
        {                                                                                                  \
            sums[i] = name##_of_4(a[i], b[i], c[i], d[i]);                                                 \
        }                                                                                                  \
    }                                                                                                      \
                                                                                                           \
    NOT_INLINED static void name##_add(accumulator *restrict sums, const element *x, size_t count)         \
    {                                                                                                      \
        VECTOR_LOOP(i, count)                                                                              \
        {                                                                                                  \
            sums[i] = combine(sums[i], load(x[i]));                                                        \
        }                                                                                                  \
    }                                                                                                      \
                                                                                                           \
    NOT_INLINED static void name##_end(element *t, const accumulator *restrict sums, const element *x,     \
                                       size_t count)                                                       \
    {                                                                                                      \
        VECTOR_LOOP(i, count)                                                                              \
        {                                                                                                  \
            t[i] = store(combine(sums[i], load(x[i])));                                                    \
        }                                                                                                  \
    }                                                                                                      \
                                                                                                           \
    static void name##_of_many(element *t, const void *const operands[], int noperands, size_t first,      \
                               size_t count)                                                               \
    {                                                                                                      \
        accumulator sums[ACCUMULATOR_BYTES / sizeof(accumulator)];                                         \
        for (size_t done = 0, piece; done < count; done += piece) {                                        \
            piece = count - done < sizeof sums / sizeof *sums ? count - done : sizeof sums / sizeof *sums; \
            name##_begin(sums, AT(element, operands[0], first + done),                                     \
                         AT(element, operands[1], first + done), AT(element, operands[2], first + done),   \
                         AT(element, operands[3], first + done), piece);                                   \
            for (int operand = 4; operand < noperands - 1; operand++)                                      \
                name##_add(sums, AT(element, operands[operand], first + done), piece);                     \
            name##_end(t + done, sums, AT(element, operands[noperands - 1], first + done), piece);         \
        }                                                                                                  \
    }                                                                                                      \
                                                                                                           \
    static void name(void *target, void *also, const void *const operands[], int noperands, size_t first,  \
                     size_t count)                                                                         \
    {                                                                                                      \
        element *t = (element *)target + first;                                                            \
        const element *a = AT(element, operands[0], first);                                                \
        const element *b = AT(element, operands[1], first);                                                \
        if (also != NULL) {                                                                                \
            element *u = (element *)also + first;                                                          \
            VECTOR_LOOP(i, count)                                                                          \
            {                                                                                              \
                t[i] = u[i] = store(combine(load(a[i]), load(b[i])));                                      \
            }                                                                                              \
        } else if (noperands == 2) {                                                                       \
            VECTOR_LOOP(i, count)                                                                          \
            {                                                                                              \
                t[i] = store(combine(load(a[i]), load(b[i])));                                             \
            }                                                                                              \
        } else if (noperands == 3) {                                                                       \
            const element *c = AT(element, operands[2], first);                                            \
            VECTOR_LOOP(i, count)                                                                          \
            {                                                                                              \
                t[i] = store(combine(combine(load(a[i]), load(b[i])), load(c[i])));                        \
            }                                                                                              \
        } else if (noperands == 4) {                                                                       \
            const element *c = AT(element, operands[2], first);                                            \
            const element *d = AT(element, operands[3], first);                                            \
            VECTOR_LOOP(i, count)                                                                          \
            {                                                                                              \
                t[i] = store(name##_of_4(a[i], b[i], c[i], d[i]));                                         \
            }                                                                                              \
        } else {                                                                                           \
            name##_of_many(t, operands, noperands, first, count);                                          \
        }                                                                                                  \
    }

/* A line is made as a whole, in registers. */
#ifdef PUT_LINE

/* A loop of few iterations: gcc would unroll it before it looks for vectors. */
#if defined(__clang__)
#define SHORT_VECTOR_LOOP VECTOR_LOOP
#else
#define SHORT_VECTOR_LOOP(i, count) _Pragma("GCC unroll 1") VECTOR_LOOP(i, count)
#endif

#define DEFINE_REDUCE_LINES(name, element, load, combine, store)                                    \
    static void name##_lines(void *target, const void *a_lines, const void *b_lines, size_t nlines) \
    {                                                                                               \
        enum { IN_LINE = DDL_KERNEL_LINE / sizeof(element) };                                       \
        _Static_assert(DDL_KERNEL_LINE % sizeof(element) == 0, "a line is of whole elements");      \
        const element *a = a_lines, *b = b_lines;                                                   \
        for (element *t = target; nlines > 0; nlines--, t += IN_LINE, a += IN_LINE, b += IN_LINE) { \
            _Alignas(DDL_KERNEL_LINE) element line[IN_LINE];                                        \
            SHORT_VECTOR_LOOP(i, IN_LINE)                                                           \
            {                                                                                       \
                line[i] = store(combine(load(a[i]), load(b[i])));                                   \
            }                                                                                       \
            PUT_LINE(t, line);                                                                      \
        }                                                                                           \
        _mm_sfence(); /* a release does not order these stores */                                   \
    }

#else
#define DEFINE_REDUCE_LINES(name, element, load, combine, store)
#endif

/* Each pack by itself: a line that was written in packs and is read as a whole is not forwarded. */
#ifdef PUT_LINE
#define DEFINE_FLOAT16_LINES(name, combine)                                                         \
    static void name##_lines(void *target, const void *a_lines, const void *b_lines, size_t nlines) \
    {                                                                                               \
        const float16_pack *a = a_lines, *b = b_lines;                                              \
        float16_pack *t = target;                                                                   \
        for (size_t i = 0; i < nlines * (DDL_KERNEL_LINE / sizeof *t); i++)                         \
            float16_put(t + i, float16_narrow(combine(float16_widen(a[i]), float16_widen(b[i]))));  \
        _mm_sfence(); /* as above */                                                                \
    }
#else
#define DEFINE_FLOAT16_LINES(name, combine)
#endif

#define DEFINE_REDUCES(name, element, accumulator, load, combine, store) \
    DEFINE_REDUCE(name, element, accumulator, load, combine, store)      \
    DEFINE_REDUCE_LINES(name, element, load, combine, store)

#define DEFINE_SCALE(name, element, divisor_type, limit, load, store)                  \
    static void name(void *target, size_t first, size_t count, int divisor)            \
    {                                                                                  \
        const divisor_type by = (divisor_type)(divisor < (limit) ? divisor : (limit)); \
        element *t = (element *)target + first;                                        \
        VECTOR_LOOP(i, count)                                                          \
        t[i] = store(load(t[i]) / by);                                                 \
    }

#define DEFINE_MIN_MAX(type)                      \
    static inline type min_##type(type a, type b) \
    {                                             \
        return a < b ? a : b;                     \
    }                                             \
    static inline type max_##type(type a, type b) \
    {                                             \
        return a < b ? b : a;                     \
    }

DEFINE_MIN_MAX(int8_t)
DEFINE_MIN_MAX(int16_t)
DEFINE_MIN_MAX(int32_t)
DEFINE_MIN_MAX(int64_t)
DEFINE_MIN_MAX(uint8_t)
DEFINE_MIN_MAX(uint16_t)
DEFINE_MIN_MAX(uint32_t)
DEFINE_MIN_MAX(uint64_t)

#define SAME(x)   (x)
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define MULU(a, b) \
    (1u * (a) * (b)) /* in unsigned int at least: two uint16_t would multiply as int, and overflow */
#define AND(a, b) ((a) & (b))
#define OR(a, b)  ((a) | (b))
#define XOR(a, b) ((a) ^ (b))

/* Signed and unsigned integers wrap to the same bits, so what wraps is done unsigned for both. */
#define DEFINE_INTEGER_REDUCES(bits)                                                               \
    DEFINE_REDUCES(sum_int##bits, uint##bits##_t, uint##bits##_t, SAME, ADD, SAME)                 \
    DEFINE_REDUCES(prod_int##bits, uint##bits##_t, uint##bits##_t, SAME, MULU, SAME)               \
    DEFINE_REDUCES(band_int##bits, uint##bits##_t, uint##bits##_t, SAME, AND, SAME)                \
    DEFINE_REDUCES(bor_int##bits, uint##bits##_t, uint##bits##_t, SAME, OR, SAME)                  \
    DEFINE_REDUCES(bxor_int##bits, uint##bits##_t, uint##bits##_t, SAME, XOR, SAME)                \
    DEFINE_REDUCES(min_int##bits, int##bits##_t, int##bits##_t, SAME, min_int##bits##_t, SAME)     \
    DEFINE_REDUCES(max_int##bits, int##bits##_t, int##bits##_t, SAME, max_int##bits##_t, SAME)     \
    DEFINE_REDUCES(min_uint##bits, uint##bits##_t, uint##bits##_t, SAME, min_uint##bits##_t, SAME) \
    DEFINE_REDUCES(max_uint##bits, uint##bits##_t, uint##bits##_t, SAME, max_uint##bits##_t, SAME)

DEFINE_INTEGER_REDUCES(8)
DEFINE_INTEGER_REDUCES(16)
DEFINE_INTEGER_REDUCES(32)
DEFINE_INTEGER_REDUCES(64)

/*
 * Integers are divided as floating-point numbers, as there are no vector instructions for integers: a
 * quotient n/d that is no whole number is at least 1/d away from one, which the wider type still tells apart.
 * A divisor beyond all values of an 8 or 16-bit type may as well be 65536, which float32 holds.
 */
#define TO_FLOAT(x)  ((float)(x))
#define TO_DOUBLE(x) ((double)(x))
#define DEFINE_INTEGER_SCALE(type, wider, limit, widen) \
    static inline type type##_of_##wider(wider x)       \
    {                                                   \
        return (type)x;                                 \
    }                                                   \
    DEFINE_SCALE(scale_##type, type, wider, limit, widen, type##_of_##wider)

DEFINE_INTEGER_SCALE(int8_t, float, 65536, TO_FLOAT)
DEFINE_INTEGER_SCALE(uint8_t, float, 65536, TO_FLOAT)
DEFINE_INTEGER_SCALE(int16_t, float, 65536, TO_FLOAT)
DEFINE_INTEGER_SCALE(uint16_t, float, 65536, TO_FLOAT)
DEFINE_INTEGER_SCALE(int32_t, double, INT32_MAX, TO_DOUBLE)
DEFINE_INTEGER_SCALE(uint32_t, double, INT32_MAX, TO_DOUBLE)
DEFINE_SCALE(scale_int64_t, int64_t, int64_t, INT32_MAX, SAME, SAME)
DEFINE_SCALE(scale_uint64_t, uint64_t, uint64_t, INT32_MAX, SAME, SAME)

static inline float store_float32(float value)
{
    return value != value ? ddl_float_of_bits(DDL_FLOAT32_NAN) : value;
}

static inline double store_float64(double value)
{
    return value != value ? (double)ddl_float_of_bits(DDL_FLOAT32_NAN) : value;
}

DEFINE_REDUCES(sum_float32, float, float, SAME, ADD, store_float32)
DEFINE_REDUCES(prod_float32, float, float, SAME, MUL, store_float32)
DEFINE_SCALE(scale_float32, float, float, INT32_MAX, SAME, store_float32)
DEFINE_REDUCES(sum_float64, double, double, SAME, ADD, store_float64)
DEFINE_REDUCES(prod_float64, double, double, SAME, MUL, store_float64)
DEFINE_SCALE(scale_float64, double, double, INT32_MAX, SAME, store_float64)

/* Sums, products and division of 16-bit floats, one at a time: without lines, as where there are some there
 * are packs. */
#define DEFINE_SINGLES(type, name)                                                               \
    DEFINE_REDUCE(sum_##name, uint16_t, float, ddl_float_of_##type, ADD, ddl_##type##_of_float)  \
    DEFINE_REDUCE(prod_##name, uint16_t, float, ddl_float_of_##type, MUL, ddl_##type##_of_float) \
    DEFINE_SCALE(scale_##name, uint16_t, float, INT32_MAX, ddl_float_of_##type, ddl_##type##_of_float)

#if defined(DDL_FLOAT16_PACK) || defined(DDL_BFLOAT16_PACK)

/* What a loop over packs works on are vectors already, so clang need not say that it makes none of it. */
#if defined(__clang__)
#define PACKS_BEGIN _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wpass-failed\"")
#define PACKS_END   _Pragma("clang diagnostic pop")
#else
#define PACKS_BEGIN
#define PACKS_END
#endif

#ifdef PUT_LINE
#define DEFINE_LINES_OF_PACKS(op, type)                                                        \
    static void op##_##type##_lines(void *target, const void *a, const void *b, size_t nlines) \
    {                                                                                          \
        op##_##type##_packs_lines(target, a, b, nlines);                                       \
    }
#else
#define DEFINE_LINES_OF_PACKS(op, type)
#endif

/* Whole packs, then the elements that are left. */
#define DEFINE_PACKS_THEN_SINGLES(op, type, pack_count)                                                      \
    static void op##_##type(void *target, void *also, const void *const operands[], int noperands,           \
                            size_t first, size_t count)                                                      \
    {                                                                                                        \
        size_t packed = count - count % (pack_count);                                                        \
        op##_##type##_packs(target, also, operands, noperands, first / (pack_count), packed / (pack_count)); \
        op##_##type##_singles(target, also, operands, noperands, first + packed, count - packed);            \
    }                                                                                                        \
    DEFINE_LINES_OF_PACKS(op, type)

#endif

#ifdef DDL_FLOAT16_PACK
DEFINE_SINGLES(float16, float16_singles)
PACKS_BEGIN
DEFINE_REDUCE(sum_float16_packs, float16_pack, float16_lanes, float16_widen, ADD, float16_narrow)
DEFINE_REDUCE(prod_float16_packs, float16_pack, float16_lanes, float16_widen, MUL, float16_narrow)
DEFINE_FLOAT16_LINES(sum_float16_packs, ADD)
DEFINE_FLOAT16_LINES(prod_float16_packs, MUL)
DEFINE_SCALE(scale_float16_packs, float16_pack, float, INT32_MAX, float16_widen, float16_narrow)
DEFINE_PACKS_THEN_SINGLES(sum, float16, DDL_FLOAT16_PACK)
DEFINE_PACKS_THEN_SINGLES(prod, float16, DDL_FLOAT16_PACK)

static void scale_float16(void *target, size_t first, size_t count, int divisor)
{
    size_t packed = count - count % DDL_FLOAT16_PACK;
    scale_float16_packs(target, first / DDL_FLOAT16_PACK, packed / DDL_FLOAT16_PACK, divisor);
    scale_float16_singles(target, first + packed, count - packed, divisor);
}
PACKS_END
#else
DEFINE_SINGLES(float16, float16)
#endif

#ifdef DDL_BFLOAT16_PACK
DEFINE_SINGLES(bfloat16, bfloat16_singles)
PACKS_BEGIN
DEFINE_REDUCES(sum_bfloat16_packs, bfloat16_pack, bfloat16_lanes, bfloat16_widen, bfloat16_add,
               bfloat16_narrow)
DEFINE_REDUCES(prod_bfloat16_packs, bfloat16_pack, bfloat16_lanes, bfloat16_widen, bfloat16_mul,
               bfloat16_narrow)
DEFINE_PACKS_THEN_SINGLES(sum, bfloat16, DDL_BFLOAT16_PACK)
DEFINE_PACKS_THEN_SINGLES(prod, bfloat16, DDL_BFLOAT16_PACK)

static void scale_bfloat16(void *target, size_t first, size_t count, int divisor)
{
    const bfloat16_lanes by = bfloat16_all((float)divisor);
    const size_t packed = count - count % DDL_BFLOAT16_PACK;
    bfloat16_pack *t = (bfloat16_pack *)target + first / DDL_BFLOAT16_PACK;
    for (size_t i = 0; i < packed / DDL_BFLOAT16_PACK; i++)
        t[i] = bfloat16_narrow(bfloat16_div(bfloat16_widen(t[i]), by));
    scale_bfloat16_singles(target, first + packed, count - packed, divisor);
}
PACKS_END
#else
DEFINE_SINGLES(bfloat16, bfloat16)
#endif

/*
 * MIN and MAX of floats compare integers: the bits, with all but the sign inverted where it is set, are in
 * the order of the numbers, -0 below +0. A NaN loads as the key beyond every number on the side that wins.
 *
 * Of conditional expressions gcc 12 makes jumps where accumulators have 16 bits, as what wins is known then,
 * and vectorises nothing; those of more bits are slower without them.
 */
#define EITHER(condition, yes, no) ((condition) ? (yes) : (no))
static inline int16_t either_without_jump(int condition, int16_t yes, int16_t no)
{
    return (int16_t)(no ^ ((yes ^ no) & -condition));
}

#define DEFINE_FLOAT_MIN_MAX(type, bits, infinity, nan, either)                                    \
    static inline int##bits##_t order_##type(uint##bits##_t x)                                     \
    {                                                                                              \
        uint##bits##_t all_if_negative = (uint##bits##_t)(0u - (uint##bits##_t)(x >> (bits - 1))); \
        return (int##bits##_t)(x ^ (uint##bits##_t)(all_if_negative >> 1));                        \
    }                                                                                              \
    static inline int is_nan_##type(uint##bits##_t x)                                              \
    {                                                                                              \
        int##bits##_t magnitude = (int##bits##_t)(x & INT##bits##_MAX);                            \
        return magnitude > (int##bits##_t)(infinity);                                              \
    }                                                                                              \
    static inline int##bits##_t load_min_##type(uint##bits##_t x)                                  \
    {                                                                                              \
        return either(is_nan_##type(x), INT##bits##_MIN, order_##type(x));                         \
    }                                                                                              \
    static inline int##bits##_t load_max_##type(uint##bits##_t x)                                  \
    {                                                                                              \
        return either(is_nan_##type(x), INT##bits##_MAX, order_##type(x));                         \
    }                                                                                              \
    static inline uint##bits##_t store_ordered_##type(int##bits##_t key)                           \
    {                                                                                              \
        uint##bits##_t x = (uint##bits##_t)order_##type((uint##bits##_t)key);                      \
        return is_nan_##type(x) ? (nan) : x;                                                       \
    }                                                                                              \
    DEFINE_REDUCES(min_##type, uint##bits##_t, int##bits##_t, load_min_##type, min_int##bits##_t,  \
                   store_ordered_##type)                                                           \
    DEFINE_REDUCES(max_##type, uint##bits##_t, int##bits##_t, load_max_##type, max_int##bits##_t,  \
                   store_ordered_##type)

DEFINE_FLOAT_MIN_MAX(float16, 16, 0x7c00, DDL_FLOAT16_NAN, either_without_jump)
DEFINE_FLOAT_MIN_MAX(bfloat16, 16, 0x7f80, DDL_BFLOAT16_NAN, either_without_jump)
DEFINE_FLOAT_MIN_MAX(float32, 32, 0x7f800000, DDL_FLOAT32_NAN, EITHER)
DEFINE_FLOAT_MIN_MAX(float64, 64, 0x7ff0000000000000, DDL_FLOAT64_NAN, EITHER)

/* ---- the table ---- */

#define FLOAT_ROW(type, form)                                                                       \
    {                                                                                               \
        [DDL_SUM] = sum_##type##form, [DDL_AVG] = sum_##type##form, [DDL_PROD] = prod_##type##form, \
        [DDL_MIN] = min_##type##form, [DDL_MAX] = max_##type##form,                                 \
    }
#define INTEGER_ROW(type, wrapping, form)                                                               \
    {                                                                                                   \
        [DDL_SUM] = sum_##wrapping##form, [DDL_AVG] = sum_##wrapping##form,                             \
        [DDL_PROD] = prod_##wrapping##form, [DDL_MIN] = min_##type##form, [DDL_MAX] = max_##type##form, \
        [DDL_BAND] = band_##wrapping##form, [DDL_BOR] = bor_##wrapping##form,                           \
        [DDL_BXOR] = bxor_##wrapping##form,                                                             \
    }
#define TABLE(form)                                                                                     \
    {                                                                                                   \
        [DDL_INT8] = INTEGER_ROW(int8, int8, form), [DDL_UINT8] = INTEGER_ROW(uint8, int8, form),       \
        [DDL_INT16] = INTEGER_ROW(int16, int16, form), [DDL_UINT16] = INTEGER_ROW(uint16, int16, form), \
        [DDL_INT32] = INTEGER_ROW(int32, int32, form), [DDL_UINT32] = INTEGER_ROW(uint32, int32, form), \
        [DDL_INT64] = INTEGER_ROW(int64, int64, form), [DDL_UINT64] = INTEGER_ROW(uint64, int64, form), \
        [DDL_FLOAT16] = FLOAT_ROW(float16, form), [DDL_BFLOAT16] = FLOAT_ROW(bfloat16, form),           \
        [DDL_FLOAT32] = FLOAT_ROW(float32, form), [DDL_FLOAT64] = FLOAT_ROW(float64, form),             \
    }

const struct ddl_kernels DDL_KERNELS = {
    .reduce = TABLE(),
#ifdef PUT_LINE
    .reduce_lines = TABLE(_lines),
#endif
    .scale = {
        [DDL_INT8] = scale_int8_t,
        [DDL_UINT8] = scale_uint8_t,
        [DDL_INT16] = scale_int16_t,
        [DDL_UINT16] = scale_uint16_t,
        [DDL_INT32] = scale_int32_t,
        [DDL_UINT32] = scale_uint32_t,
        [DDL_INT64] = scale_int64_t,
        [DDL_UINT64] = scale_uint64_t,
        [DDL_FLOAT16] = scale_float16,
        [DDL_BFLOAT16] = scale_bfloat16,
        [DDL_FLOAT32] = scale_float32,
        [DDL_FLOAT64] = scale_float64,
    },
};
