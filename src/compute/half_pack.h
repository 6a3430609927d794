/*
 * half_pack.h - a vector of 16-bit floats at a time, where the instruction set has something to offer.
 *
 * If DDL_FLOAT16_PACK (DDL_BFLOAT16_PACK) is defined it is the number of elements in a float16_pack, the type
 * in memory at any alignment of an element, and float16_lanes holds them widened. Compilers do not find the
 * instructions that convert float16 in a plain loop, and in one over bfloat16 they shuffle where even and odd
 * elements could be worked on where they are. The results are those of half.h, bit for bit.
 */
#ifndef DDL_COMPUTE_HALF_PACK_H
#define DDL_COMPUTE_HALF_PACK_H

#include "compute/half.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)

#include <immintrin.h>

#define DDL_FLOAT16_PACK 16
typedef long long float16_pack __attribute__((vector_size(32), aligned(2), may_alias));
typedef __m512 float16_lanes;

/* Lanes that are NaN become the one NaN that is ever stored. */
static inline __m512 tidy_nan(__m512 lanes)
{
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)DDL_FLOAT32_NAN));
    return _mm512_mask_mov_ps(lanes, _mm512_cmp_ps_mask(lanes, lanes, _CMP_UNORD_Q), nan);
}

static inline float16_lanes float16_widen(float16_pack pack)
{
    return _mm512_cvtph_ps((__m256i)pack);
}

static inline float16_pack float16_narrow(float16_lanes lanes)
{
    return (float16_pack)_mm512_cvtps_ph(tidy_nan(lanes), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* Past the caches, to where a pack is aligned. */
static inline void float16_put(float16_pack *target, float16_pack pack)
{
    _mm256_stream_si256((__m256i *)target, (__m256i)pack);
}

#define DDL_BFLOAT16_PACK 32
typedef long long bfloat16_pack __attribute__((vector_size(64), aligned(2), may_alias));
typedef struct bfloat16_lanes {
    __m512 even, odd;
} bfloat16_lanes;

static inline bfloat16_lanes bfloat16_widen(bfloat16_pack pack)
{
    __m512i odd = _mm512_and_si512((__m512i)pack, _mm512_set1_epi32((int)0xffff0000));
    return (bfloat16_lanes){ _mm512_castsi512_ps(_mm512_slli_epi32((__m512i)pack, 16)),
                             _mm512_castsi512_ps(odd) };
}

/* Rounded to the upper half of each lane; the lower half is left over. */
static inline __m512i round_upper(__m512 lanes)
{
    __m512i bits = _mm512_castps_si512(tidy_nan(lanes));
    __m512i tie = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), tie);
}

static inline bfloat16_pack bfloat16_narrow(bfloat16_lanes lanes)
{
    __m512i even = _mm512_srli_epi32(round_upper(lanes.even), 16);
    return (bfloat16_pack)_mm512_mask_blend_epi16(0xaaaaaaaa, even, round_upper(lanes.odd));
}

#define LANES(op, intrinsic)                                                           \
    static inline bfloat16_lanes bfloat16_##op(bfloat16_lanes a, bfloat16_lanes b)     \
    {                                                                                  \
        return (bfloat16_lanes){ intrinsic(a.even, b.even), intrinsic(a.odd, b.odd) }; \
    }
LANES(add, _mm512_add_ps)
LANES(mul, _mm512_mul_ps)
LANES(div, _mm512_div_ps)
#undef LANES

static inline bfloat16_lanes bfloat16_all(float value)
{
    return (bfloat16_lanes){ _mm512_set1_ps(value), _mm512_set1_ps(value) };
}

#elif defined(__AVX2__) && defined(__F16C__)

#include <immintrin.h>

#define DDL_FLOAT16_PACK 8
typedef long long float16_pack __attribute__((vector_size(16), aligned(2), may_alias));
typedef __m256 float16_lanes;

/* Lanes that are NaN become the one NaN that is ever stored. */
static inline __m256 tidy_nan(__m256 lanes)
{
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)DDL_FLOAT32_NAN));
    return _mm256_blendv_ps(lanes, nan, _mm256_cmp_ps(lanes, lanes, _CMP_UNORD_Q));
}

static inline float16_lanes float16_widen(float16_pack pack)
{
    return _mm256_cvtph_ps((__m128i)pack);
}

static inline float16_pack float16_narrow(float16_lanes lanes)
{
    return (float16_pack)_mm256_cvtps_ph(tidy_nan(lanes), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* Past the caches, to where a pack is aligned. */
static inline void float16_put(float16_pack *target, float16_pack pack)
{
    _mm_stream_si128((__m128i *)target, (__m128i)pack);
}

#define DDL_BFLOAT16_PACK 16
typedef long long bfloat16_pack __attribute__((vector_size(32), aligned(2), may_alias));
typedef struct bfloat16_lanes {
    __m256 even, odd;
} bfloat16_lanes;

static inline bfloat16_lanes bfloat16_widen(bfloat16_pack pack)
{
    __m256i odd = _mm256_and_si256((__m256i)pack, _mm256_set1_epi32((int)0xffff0000));
    return (bfloat16_lanes){ _mm256_castsi256_ps(_mm256_slli_epi32((__m256i)pack, 16)),
                             _mm256_castsi256_ps(odd) };
}

/* Rounded to the upper half of each lane; the lower half is left over. */
static inline __m256i round_upper(__m256 lanes)
{
    __m256i bits = _mm256_castps_si256(tidy_nan(lanes));
    __m256i tie = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), tie);
}

static inline bfloat16_pack bfloat16_narrow(bfloat16_lanes lanes)
{
    __m256i even = _mm256_srli_epi32(round_upper(lanes.even), 16);
    return (bfloat16_pack)_mm256_blend_epi16(even, round_upper(lanes.odd), 0xaa);
}

#define LANES(op, intrinsic)                                                           \
    static inline bfloat16_lanes bfloat16_##op(bfloat16_lanes a, bfloat16_lanes b)     \
    {                                                                                  \
        return (bfloat16_lanes){ intrinsic(a.even, b.even), intrinsic(a.odd, b.odd) }; \
    }
LANES(add, _mm256_add_ps)
LANES(mul, _mm256_mul_ps)
LANES(div, _mm256_div_ps)
#undef LANES

static inline bfloat16_lanes bfloat16_all(float value)
{
    return (bfloat16_lanes){ _mm256_set1_ps(value), _mm256_set1_ps(value) };
}

#elif defined(__aarch64__) && defined(DDL_KERNELS_CONVERT)

#include <arm_neon.h>

#define DDL_FLOAT16_PACK 4
typedef uint16_t float16_pack __attribute__((vector_size(8), aligned(2), may_alias));
typedef float32x4_t float16_lanes;

static inline float16_lanes float16_widen(float16_pack pack)
{
    return vcvt_f32_f16((float16x4_t)pack);
}

static inline float16_pack float16_narrow(float16_lanes lanes)
{
    float32x4_t nan = vreinterpretq_f32_u32(vdupq_n_u32(DDL_FLOAT32_NAN));
    return (float16_pack)vcvt_f16_f32(vbslq_f32(vceqq_f32(lanes, lanes), lanes, nan));
}

#endif
#endif
