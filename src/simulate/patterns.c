/* patterns.c - counts and hosts, each from the name of a kind and an index. */
#include "simulate/patterns.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "simulate/fingerprint.h"

const char *ddl_pattern_name(ddl_pattern pattern)
{
    static const char *const names[] = { "even", "empty", "one block", "rising", "random", "wild" };
    return names[pattern];
}

/* Of block `index` of n. */
static size_t count_of(ddl_pattern pattern, size_t index, size_t n, size_t largest)
{
    uint64_t random = ddl_fingerprint_mix(index + (UINT64_C(3) << 32));
    switch (pattern) {
    case DDL_PATTERN_EVEN:
        return largest;
    case DDL_PATTERN_EMPTY:
        break;
    case DDL_PATTERN_ONE_BLOCK:
        return index == n / 2 ? largest : 0;
    case DDL_PATTERN_RISING:
        return largest / n * (index + 1) + largest % n * (index + 1) / n;
    case DDL_PATTERN_RANDOM:
        return random % 3 == 0 ? 0 : (size_t)((random >> 8) % (largest + 1));
    case DDL_PATTERN_WILD:
        return random % 4 == 0 ? largest : (size_t)((random >> 8) % (largest < 3 ? largest + 1 : 3));
    case DDL_PATTERN_COUNT:
        break;
    }
    return 0;
}

/* Of what `from` sends `to`; in place both send each other the same. */
static size_t count_between(ddl_pattern pattern, size_t from, size_t to, size_t n, size_t largest,
                            bool symmetric)
{
    size_t low = symmetric && to < from ? to : from, high = symmetric && to < from ? from : to;
    if (pattern == DDL_PATTERN_RISING)
        return count_of(pattern, (low + high) % n, n, largest);
    if (pattern == DDL_PATTERN_ONE_BLOCK)
        return low == 0 && high == n - 1 ? largest : 0;
    return count_of(pattern, low * n + high, n * n, largest);
}

static void set_starts(size_t *starts, const size_t *counts, size_t n, size_t gap)
{
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        starts[i] = start;
        start += counts[i] + gap;
    }
}

bool ddl_pattern_apply(ddl_pattern pattern, ddl_collective collective, size_t largest, size_t gap,
                       ddl_shape *shape, size_t **memory)
{
    DDL_ASSERT(ddl_collective_is_uneven(collective));
    bool is_matrix = collective == DDL_COLLECTIVE_ALLTOALLV;
    size_t n = (size_t)shape->nranks, cells = is_matrix ? n * n : n;
    ddl_free(*memory);
    *memory = ddl_alloc_array((is_matrix ? 4 : 2) * cells, sizeof **memory);
    if (*memory == NULL)
        return false;
    size_t *counts = *memory, *starts = counts + cells;
    shape->blocks = (ddl_uneven){ counts, starts };
    shape->out_blocks = (ddl_uneven){ NULL, NULL };
    shape->count = shape->stride = 0;
    for (size_t i = 0; i < cells; i++) {
        counts[i] = is_matrix ? count_between(pattern, i / n, i % n, n, largest, shape->in_place)
                              : count_of(pattern, i, n, largest);
        shape->count = shape->count > counts[i] ? shape->count : counts[i];
    }
    shape->stride = shape->count;
    for (size_t row = 0; row < cells / n; row++)
        set_starts(starts + row * n, counts + row * n, n, gap);
    if (!is_matrix)
        return true;
    size_t *out_counts = starts + cells, *out_starts = out_counts + cells;
    for (size_t i = 0; i < cells; i++)
        out_counts[i] = counts[i % n * n + i / n];
    for (size_t row = 0; row < n; row++)
        set_starts(out_starts + row * n, out_counts + row * n, n, gap);
    shape->out_blocks = (ddl_uneven){ out_counts, out_starts };
    return true;
}

const char *ddl_spread_name(ddl_spread spread)
{
    static const char *const names[] = { "one host", "pairs", "fours", "round robin", "random", "alone" };
    return names[spread];
}

/* Any number that ranks of one host share. */
static int host_of(ddl_spread spread, int rank, int nranks)
{
    switch (spread) {
    case DDL_SPREAD_ONE_HOST:
        break;
    case DDL_SPREAD_PAIRS:
        return rank / 2;
    case DDL_SPREAD_FOURS:
        return rank / 4;
    case DDL_SPREAD_ROUND_ROBIN:
        return rank % 3;
    case DDL_SPREAD_RANDOM:
        return (int)(ddl_fingerprint_mix((uint64_t)rank + (UINT64_C(4) << 32)) % (uint64_t)(nranks / 3 + 1));
    case DDL_SPREAD_ALONE:
        return rank;
    case DDL_SPREAD_COUNT:
        break;
    }
    return 0;
}

ddl_placement ddl_spread_apply(ddl_spread spread, int nranks, int node_of[])
{
    int nnodes = 0;
    for (int rank = 0; rank < nranks; rank++) {
        int host = host_of(spread, rank, nranks), first = 0;
        while (host_of(spread, first, nranks) != host)
            first++;
        node_of[rank] = first == rank ? nnodes++ : node_of[first];
    }
    return (ddl_placement){ nranks, nnodes, node_of };
}
