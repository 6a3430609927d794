/* copy.c - by the way that is quick on this processor. */
#include "base/copy.h"

#include "base/processor.h"
#include "base/size.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum {
    LINE = 64,
    LEAST_BYTES = 2 * 1024, /* memcpy does what is shorter by vectors too */
    MIB = 1024 * 1024
};

/* Copy whole lines; the target begins with one. */
typedef void copy_lines(uint8_t *target, const uint8_t *source, size_t bytes);

#ifdef __x86_64__

#include <immintrin.h>

enum { PAGE_BYTES = 4096 /* the processor's own fetching ahead ends with the page */ };

__attribute__((target("avx2"))) static inline __m256i load(const uint8_t *source)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)source);
}

/*
 * Past the caches. Stores of 16 bytes took an eighth longer. What is fetched ahead of the source may lie
 * behind its end, which a prefetch does not mind.
 */
__attribute__((target("avx2"), always_inline)) static inline void stream(uint8_t *target,
                                                                         const uint8_t *source, size_t bytes,
                                                                         bool passes_by)
{
    for (size_t at = 0; at < bytes; at += LINE) {
        const char *ahead = (const char *)((uintptr_t)source + at + PAGE_BYTES);
        if (passes_by)
            _mm_prefetch(ahead, _MM_HINT_NTA);
        else
            _mm_prefetch(ahead, _MM_HINT_T0);
        __m256i *to = (__m256i *)(void *)(target + at);
        _mm256_stream_si256(to, load(source + at));
        _mm256_stream_si256(to + 1, load(source + at + sizeof *to));
    }
    _mm_sfence(); /* a release does not order these stores */
}

__attribute__((target("avx2"))) static void stream_lines(uint8_t *target, const uint8_t *source, size_t bytes)
{
    stream(target, source, bytes, false);
}

/* What is fetched of the source passes by the caches too: better on EPYC, twice as long on Xeon. */
__attribute__((target("avx2"))) static void stream_source_too(uint8_t *target, const uint8_t *source,
                                                              size_t bytes)
{
    stream(target, source, bytes, true);
}

/* The beginning of the next page of the source; nothing behind its end, which somebody may be about to write.
 */
static inline void fetch_next_page(const uint8_t *source, size_t bytes)
{
    const size_t next = PAGE_BYTES - (uintptr_t)source % PAGE_BYTES;
    if (next + LINE < bytes) {
        _mm_prefetch((const char *)source + next, _MM_HINT_T0);
        _mm_prefetch((const char *)source + next + LINE, _MM_HINT_T0);
    }
}

__attribute__((target("avx2"))) static void store_lines(uint8_t *target, const uint8_t *source, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        fetch_next_page(source + at, bytes - at);
        for (const size_t end = at + ddl_size_min(bytes - at, PAGE_BYTES); at < end; at += LINE) {
            __m256i *to = (__m256i *)(void *)(target + at);
            _mm256_store_si256(to, load(source + at));
            _mm256_store_si256(to + 1, load(source + at + sizeof *to));
        }
    }
}

/*
 * memcpy copies what is long by the processor's string instruction. On AMD's family 25 it may do half of what
 * vectors do where another core reads what is written, for seconds at a time, and does a tenth where the
 * target lies 1 to 15 bytes behind the source in their pages. On a later one it is the quicker way
 * (docs/performance.md).
 */
static copy_lines *better_than_memcpy(bool past_caches)
{
    if (!__builtin_cpu_supports("avx2"))
        return NULL;
    if (past_caches)
        return __builtin_cpu_is("amd") ? stream_source_too : stream_lines;
    return ddl_processor_is_amd_25() ? store_lines : NULL;
}

#else

static copy_lines *better_than_memcpy(bool past_caches)
{
    (void)past_caches;
    return NULL;
}

#endif

void ddl_copy(void *target, const void *source, size_t bytes, bool past_caches)
{
    copy_lines *copy = bytes < LEAST_BYTES ? NULL : better_than_memcpy(past_caches);
    if (copy == NULL) {
        if (bytes > 0) /* or there may be no places either */
            memcpy(target, source, bytes);
        return;
    }
    uint8_t *to = target;
    const uint8_t *from = source;
    const size_t before = -(uintptr_t)to % LINE, lines = (bytes - before) / LINE * LINE;
    memcpy(to, from, before);
    copy(to + before, from + before, lines);
    memcpy(to + before + lines, from + before + lines, bytes - before - lines);
}

/* Eight cores of an EPYC of the third generation share a last cache, which holds 32 MiB. */
static size_t what_stays_in_last_caches(void)
{
    enum { CORES = 8 };
    static atomic_long counted; /* once, as the system reads a file for it */
    long cores = atomic_load_explicit(&counted, memory_order_relaxed);
    if (cores == 0) {
        cores = sysconf(_SC_NPROCESSORS_ONLN);
        atomic_store_explicit(&counted, cores, memory_order_relaxed);
    }
    return (size_t)(cores > CORES ? (cores + CORES - 1) / CORES : 1) * 20 * MIB;
}

size_t ddl_copy_cached_bytes(bool posted)
{
    const size_t elsewhere = posted ? 128 * MIB : (ddl_processor_is_intel_server() ? 4 : 32) * MIB;
    return ddl_processor_is_epyc_3() ? ddl_size_min(what_stays_in_last_caches(), elsewhere) : elsewhere;
}
