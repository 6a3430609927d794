/* cuts.c - a bit per position where positions are dense, a sorted array where they are not. */
#include "simulate/cuts.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <string.h>

static bool reserve(uint32_t **array, size_t count, size_t *capacity)
{
    if (count <= *capacity)
        return true;
    size_t more = count > 2 * *capacity ? count : 2 * *capacity;
    uint32_t *grown = ddl_alloc_array(more, sizeof *grown);
    if (grown == NULL)
        return false;
    if (*capacity > 0)
        memcpy(grown, *array, *capacity * sizeof *grown);
    ddl_free(*array);
    *array = grown;
    *capacity = more;
    return true;
}

static bool reserve_words(ddl_cuts *cuts)
{
    if (cuts->nwords <= cuts->words_capacity)
        return true;
    ddl_free(cuts->bits);
    ddl_free(cuts->numbers);
    cuts->bits = ddl_alloc_array(cuts->nwords, sizeof *cuts->bits);
    cuts->numbers = ddl_alloc_array(cuts->nwords, 64 * sizeof *cuts->numbers);
    cuts->words_capacity = cuts->bits != NULL && cuts->numbers != NULL ? cuts->nwords : 0;
    return cuts->words_capacity > 0;
}

void ddl_cuts_begin(ddl_cuts *cuts, uint32_t last, size_t expected)
{
    cuts->count = 0;
    cuts->failed = false;
    cuts->nwords = (size_t)last / 64 + 1;
    cuts->dense = cuts->nwords <= 4 * expected + 64;
    if (!cuts->dense)
        return;
    if (reserve_words(cuts)) {
        memset(cuts->bits, 0, cuts->nwords * sizeof *cuts->bits);
    } else {
        cuts->failed = true;
        cuts->dense = false;
    }
}

void ddl_cuts_add_sparse(ddl_cuts *cuts, uint32_t position)
{
    if (cuts->failed)
        return;
    if (cuts->count > 0 && cuts->positions[cuts->count - 1] == position)
        return;
    if (!reserve(&cuts->positions, (size_t)cuts->count + 1, &cuts->positions_capacity)) {
        cuts->failed = true;
        return;
    }
    cuts->positions[cuts->count++] = position;
}

/* Number the set bits and list their positions. */
static bool seal_dense(ddl_cuts *cuts)
{
    cuts->count = 0;
    for (size_t i = 0; i < cuts->nwords; i++) {
        if (cuts->bits[i] == 0)
            continue;
        if (!reserve(&cuts->positions, (size_t)cuts->count + 64, &cuts->positions_capacity))
            return false;
        for (uint64_t word = cuts->bits[i]; word != 0; word &= word - 1) {
            size_t position = i * 64 + (size_t)__builtin_ctzll(word);
            cuts->numbers[position] = cuts->count;
            cuts->positions[cuts->count++] = (uint32_t)position;
        }
    }
    return true;
}

static void swap_with_spare(ddl_cuts *cuts)
{
    uint32_t *sorted = cuts->spare;
    size_t capacity = cuts->spare_capacity;
    cuts->spare = cuts->positions;
    cuts->spare_capacity = cuts->positions_capacity;
    cuts->positions = sorted;
    cuts->positions_capacity = capacity;
}

/* Radix sort by bytes, lowest first, then drop repetitions. */
static bool seal_sparse(ddl_cuts *cuts)
{
    if (!reserve(&cuts->spare, cuts->count, &cuts->spare_capacity))
        return false;
    uint32_t all = 0;
    for (uint32_t i = 0; i < cuts->count; i++)
        all |= cuts->positions[i];
    for (unsigned shift = 0; shift < 32 && all >> shift != 0; shift += 8) {
        uint32_t starts[257] = { 0 };
        for (uint32_t i = 0; i < cuts->count; i++)
            starts[(cuts->positions[i] >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++)
            starts[i + 1] += starts[i];
        for (uint32_t i = 0; i < cuts->count; i++)
            cuts->spare[starts[cuts->positions[i] >> shift & 255]++] = cuts->positions[i];
        swap_with_spare(cuts);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cuts->count; i++)
        if (kept == 0 || cuts->positions[kept - 1] != cuts->positions[i])
            cuts->positions[kept++] = cuts->positions[i];
    cuts->count = kept;
    return true;
}

bool ddl_cuts_seal(ddl_cuts *cuts)
{
    return !cuts->failed && (cuts->dense ? seal_dense(cuts) : seal_sparse(cuts));
}

uint32_t ddl_cuts_index_sparse(const ddl_cuts *cuts, uint32_t position)
{
    uint32_t low = 0, high = cuts->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (cuts->positions[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    DDL_ASSERT(cuts->positions[low] == position);
    return low;
}

void ddl_cuts_fini(ddl_cuts *cuts)
{
    ddl_free(cuts->positions);
    ddl_free(cuts->bits);
    ddl_free(cuts->numbers);
    ddl_free(cuts->spare);
    memset(cuts, 0, sizeof *cuts);
}
