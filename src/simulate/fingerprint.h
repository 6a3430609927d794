/*
 * fingerprint.h - the numbers that stand for inputs in the checker.
 *
 * Element x of rank r's input is A(r) * B(x) for random odd A and B of 64 bits, and sums add modulo 2^64,
 * so that the finished sum of element x is B(x) * (A(0) + ... + A(p-1)).
 */
#ifndef DDL_SIMULATE_FINGERPRINT_H
#define DDL_SIMULATE_FINGERPRINT_H

#include <stdint.h>

/* The output function of splitmix64: one to one, and well scattered. */
static inline uint64_t ddl_fingerprint_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint64_t ddl_fingerprint_rank(int rank) /* A(r) */
{
    return ddl_fingerprint_mix((uint64_t)rank + (UINT64_C(1) << 32)) | 1;
}

static inline uint64_t ddl_fingerprint_position(uint64_t position) /* B(x) */
{
    return ddl_fingerprint_mix(position + (UINT64_C(2) << 32)) | 1;
}

/* Not linear, so that dividing before summing is told from dividing after. */
static inline uint64_t ddl_fingerprint_scaled(uint64_t hash)
{
    return ddl_fingerprint_mix(hash ^ UINT64_C(0x5ca1ed));
}

#endif
