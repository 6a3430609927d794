/* size.h - arithmetic on a caller's sizes. Each returns false, and leaves *result alone, on overflow. */
#ifndef DDL_BASE_SIZE_H
#define DDL_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>

static inline bool ddl_size_mul(size_t a, size_t b, size_t *result)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *result = product;
    return true;
}

static inline bool ddl_size_add(size_t a, size_t b, size_t *result)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *result = sum;
    return true;
}

static inline size_t ddl_size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t ddl_size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
