/* copy.c - stores that bypass the caches, where the processor has them. */
#include "base/copy.h"

#include "base/size.h"

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifdef __SSE2__

static void copy_past_caches(uint8_t *target, const uint8_t *source, size_t bytes)
{
    enum { LINE = 64 };
    size_t before = ddl_size_min(bytes, -(uintptr_t)target & (LINE - 1));
    memcpy(target, source, before);
    size_t end = before + (bytes - before) / LINE * LINE;
    for (size_t at = before; at < end; at += LINE)
        for (size_t part = 0; part < LINE; part += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(void *)(target + at + part),
                             _mm_loadu_si128((const __m128i *)(const void *)(source + at + part)));
    _mm_sfence(); /* a release does not order these stores */
    memcpy(target + end, source + end, bytes - end);
}

#else

static void copy_past_caches(uint8_t *target, const uint8_t *source, size_t bytes)
{
    memcpy(target, source, bytes);
}

#endif

void ddl_copy(void *target, const void *source, size_t bytes, bool past_caches)
{
    if (bytes == 0) /* then there may be no places either */
        return;
    if (past_caches)
        copy_past_caches(target, source, bytes);
    else
        memcpy(target, source, bytes);
}
