/*
 * half.h - 16-bit floats widened to float32 and rounded back, without branches so that loops vectorise.
 *
 * Widening is exact. Narrowing rounds once to nearest, ties to even, through subnormals to infinity. A NaN
 * becomes the positive quiet NaN without payload, in both directions: what a sum of two NaNs keeps of
 * them depends on the processor, and results may not.
 */
#ifndef DDL_COMPUTE_HALF_H
#define DDL_COMPUTE_HALF_H

#include <stdint.h>
#include <string.h>

#define DDL_FLOAT16_NAN  UINT16_C(0x7e00)
#define DDL_BFLOAT16_NAN UINT16_C(0x7fc0)
#define DDL_FLOAT32_NAN  UINT32_C(0x7fc00000)
#define DDL_FLOAT64_NAN  UINT64_C(0x7ff8000000000000)

static inline uint32_t ddl_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ddl_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* As a conditional, but never a jump, which would keep loops from being vectorised. */
static inline uint32_t ddl_select(int condition, uint32_t yes, uint32_t no)
{
    return no ^ ((yes ^ no) & (0u - (uint32_t)condition));
}

static inline float ddl_float_of_bfloat16(uint16_t half)
{
    return ddl_float_of_bits((uint32_t)half << 16);
}

static inline uint16_t ddl_bfloat16_of_float(float value)
{
    uint32_t bits = ddl_bits_of_float(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)ddl_select((bits & 0x7fffffff) > 0x7f800000, DDL_BFLOAT16_NAN, rounded);
}

/* The exponent of a float16 counts from 15, that of a float32 from 127; its fraction is 13 bits shorter. */
static inline float ddl_float_of_float16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    /* A subnormal is its fraction in units of 2^-24: put it below a leading one, then take that away. */
    float subnormal = ddl_float_of_bits(magnitude + ((127 - 14) << 23)) - 0x1p-14f;
    uint32_t result = magnitude + ((127 - 15) << 23);
    result = ddl_select(magnitude < 0x0400 << 13, ddl_bits_of_float(subnormal), result);
    result = ddl_select(magnitude >= 0x7c00 << 13, 0x7f800000, result) | sign;
    return ddl_float_of_bits(ddl_select(magnitude > 0x7c00 << 13, DDL_FLOAT32_NAN, result));
}

static inline uint16_t ddl_float16_of_float(float value)
{
    uint32_t bits = ddl_bits_of_float(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    /* Below 2^-14 results are multiples of 2^-24: adding 0.5 makes that the unit of the sum, and so rounds.
     */
    uint32_t subnormal = ddl_bits_of_float(ddl_float_of_bits(magnitude) + 0.5f) - 0x3f000000;
    /* Half a unit, less one when the kept fraction is even; a carry into the exponent is right, up to
     * infinity. */
    uint32_t result = (magnitude - ((127 - 15) << 23) + 0x0fff + (magnitude >> 13 & 1)) >> 13;
    result = ddl_select(magnitude < 0x38800000, subnormal, result);
    result = ddl_select(magnitude >= 0x47800000, 0x7c00, result) | sign;
    return (uint16_t)ddl_select(magnitude > 0x7f800000, DDL_FLOAT16_NAN, result);
}

#endif
