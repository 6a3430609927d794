/* outlet.c - ordinary stores, as long as they are quick. */
#include "base/outlet.h"

#include "base/clock.h"
#include "base/copy.h"
#include "base/processor.h"
#include "base/size.h"

#include <stdatomic.h>

enum {
    LINE = 64,
    TIMED_BYTES = 16 * 1024,      /* at most, of a copy */
    ORDINARY_BYTES = 256 * 1024,  /* from one timed copy to the next, in the mean */
    STREAMED_BYTES = 1024 * 1024, /* likewise, where such a copy may take ten times as long */
    SMOOTHING = 4
};

/* 20 to 120 ps for a byte where cores share a cache, 340 to 450 where they do not; on EPYC of the fifth
 * generation 12 to 21, and 60 to 75 in a board, 37 in lanes (docs/performance.md). */
ddl_outlet_limits ddl_outlet_find_limits(void)
{
    return ddl_processor_is_amd_26() ? (ddl_outlet_limits){ .dear_ps = 50, .cheap_ps = 35, .most_ps = 100 }
                                     : (ddl_outlet_limits){ .dear_ps = 200, .cheap_ps = 150, .most_ps = 400 };
}

/* Of other makers these stores were not measured where somebody reads what they write. */
static bool may_stream(void)
{
#ifdef __x86_64__
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}

/* Into the nearest cache, so that only the stores are timed. */
static void fetch(const char *source, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += LINE)
        (void)*(const volatile char *)(source + at);
}

void ddl_outlet_time(ddl_outlet *outlet, int64_t ps)
{
    const ddl_outlet_limits limits = ddl_outlet_find_limits();
    const int counts = ps < limits.most_ps ? (int)ps : limits.most_ps;
    outlet->ordinary_ps += (counts - outlet->ordinary_ps) / SMOOTHING;
    outlet->streams = outlet->ordinary_ps > (outlet->streams ? limits.cheap_ps : limits.dear_ps);
    /* What is written in a cycle of so many bytes would have the same readers each time, who may be the only
     * ones that share a cache, or do not. */
    const size_t mean = outlet->streams ? STREAMED_BYTES : ORDINARY_BYTES;
    outlet->chance = outlet->chance * 1664525 + 1013904223; /* Numerical Recipes, 7.1 */
    outlet->until_timed = mean / 2 + (size_t)((uint64_t)mean * outlet->chance >> 32);
}

/* By ordinary stores. */
static void time_copy(ddl_outlet *outlet, void *target, const void *source, size_t bytes)
{
    fetch(source, bytes);
    const int64_t begin_ns = ddl_now_ns();
    ddl_copy(target, source, bytes, false);
    atomic_thread_fence(memory_order_seq_cst); /* they are done then */
    ddl_outlet_time(outlet, (ddl_now_ns() - begin_ns) * 1000 / (int64_t)bytes);
}

void ddl_outlet_copy_many(ddl_outlet *outlet, void *target, const void *source, size_t bytes)
{
    char *const to = target;
    const char *const from = source;
    size_t before = bytes, timed = 0;
    if (outlet->until_timed < bytes && may_stream()) {
        timed = ddl_size_min(bytes, TIMED_BYTES);
        before = ddl_size_min(outlet->until_timed, bytes - timed) / LINE * LINE;
    }
    outlet->until_timed -= ddl_size_min(before, outlet->until_timed);
    ddl_copy(to, from, before, outlet->streams);
    if (timed == 0)
        return;
    time_copy(outlet, to + before, from + before, timed);
    const size_t done = before + timed;
    outlet->until_timed -= ddl_size_min(bytes - done, outlet->until_timed);
    ddl_copy(to + done, from + done, bytes - done, outlet->streams);
}
