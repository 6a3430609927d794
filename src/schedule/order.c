/*
 * order.c - a sorted array of intervals per space, each with its last writer and the readers since.
 *
 * Algorithms touch the same blocks again and again, in rising order, so an interval is nearly always
 * found next to the last one found and hardly ever inserted in the middle. Lists of readers share their
 * tails, so that splitting an interval copies one index.
 */
#include "schedule/order.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <string.h>

#define NONE UINT32_MAX

/* A predecessor with more predecessors than this is not searched for implied ones. */
enum { IMPLIED_SEARCH_LIMIT = 4 };

typedef struct interval { /* up to where the next one starts; the last one has no end */
    size_t start;
    uint32_t writer;  /* step, or NONE */
    uint32_t readers; /* since the writer: index of the newest in ddl_order.readers, or NONE */
} interval;

typedef struct space {
    interval *intervals;
    uint32_t count, capacity;
    uint32_t cursor; /* where the last search ended */
} space;

typedef struct reader {
    uint32_t step, older;
} reader;

struct ddl_order {
    space spaces[DDL_ORDER_SPACES];
    reader *readers;
    uint32_t nreaders, readers_capacity;
    uint32_t *first_edge; /* of each step, into edges */
    uint32_t *stamp;      /* of each step: the latest step that has it as a predecessor, plus one */
    uint32_t nsteps, steps_capacity;
    uint32_t *edges; /* predecessors, step after step */
    uint32_t nedges, edges_capacity;
    bool failed;
};

/* Make room for one more element; false when out of memory. */
static bool reserve(void **array, uint32_t count, uint32_t *capacity, size_t element_bytes)
{
    if (count < *capacity)
        return true;
    uint32_t more = *capacity == 0 ? 32 : *capacity * 2;
    void *grown = ddl_alloc_array(more, element_bytes);
    if (grown == NULL)
        return false;
    if (count > 0)
        memcpy(grown, *array, count * element_bytes);
    ddl_free(*array);
    *array = grown;
    *capacity = more;
    return true;
}

ddl_order *ddl_order_create(void)
{
    ddl_order *order = ddl_alloc(sizeof *order);
    if (order == NULL)
        return NULL;
    for (int i = 0; i < DDL_ORDER_SPACES; i++) {
        space *s = &order->spaces[i];
        if (!reserve((void **)&s->intervals, s->count, &s->capacity, sizeof *s->intervals)) {
            ddl_order_destroy(order);
            return NULL;
        }
        s->intervals[s->count++] = (interval){ 0, NONE, NONE };
    }
    return order;
}

void ddl_order_destroy(ddl_order *order)
{
    if (order == NULL)
        return;
    for (int i = 0; i < DDL_ORDER_SPACES; i++)
        ddl_free(order->spaces[i].intervals);
    ddl_free(order->readers);
    ddl_free(order->first_edge);
    ddl_free(order->stamp);
    ddl_free(order->edges);
    ddl_free(order);
}

void ddl_order_begin(ddl_order *order)
{
    uint32_t capacity = order->steps_capacity;
    if (order->failed || !reserve((void **)&order->stamp, order->nsteps, &capacity, sizeof *order->stamp) ||
        !reserve((void **)&order->first_edge, order->nsteps, &order->steps_capacity,
                 sizeof *order->first_edge)) {
        order->failed = true;
        return;
    }
    order->stamp[order->nsteps] = 0;
    order->first_edge[order->nsteps] = order->nedges;
    order->nsteps++;
}

static uint32_t current(const ddl_order *order)
{
    return order->nsteps - 1;
}

void ddl_order_after(ddl_order *order, uint32_t step)
{
    if (order->failed || order->stamp[step] == order->nsteps)
        return;
    DDL_ASSERT(step < current(order));
    if (!reserve((void **)&order->edges, order->nedges, &order->edges_capacity, sizeof *order->edges)) {
        order->failed = true;
        return;
    }
    order->stamp[step] = order->nsteps;
    order->edges[order->nedges++] = step;
}

static bool holds(const space *s, uint32_t index, size_t position)
{
    return s->intervals[index].start <= position &&
           (index + 1 == s->count || position < s->intervals[index + 1].start);
}

/* Index of the interval that position lies in. */
static uint32_t find(space *s, size_t position)
{
    if (holds(s, s->cursor, position))
        return s->cursor;
    if (s->cursor + 1 < s->count && holds(s, s->cursor + 1, position))
        return ++s->cursor;
    uint32_t low = 0, high = s->count; /* the answer is in [low, high) */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (s->intervals[middle].start <= position)
            low = middle;
        else
            high = middle;
    }
    return s->cursor = low;
}

/* Index of the interval that starts at position, made by cutting one in two if need be. */
static uint32_t cut(ddl_order *order, space *s, size_t position)
{
    uint32_t index = find(s, position);
    if (s->intervals[index].start == position)
        return index;
    if (!reserve((void **)&s->intervals, s->count, &s->capacity, sizeof *s->intervals)) {
        order->failed = true;
        return index;
    }
    interval *at = &s->intervals[index + 1];
    memmove(at + 1, at, (s->count - index - 1) * sizeof *at);
    *at = (interval){ position, at[-1].writer, at[-1].readers };
    s->count++;
    return s->cursor = index + 1;
}

void ddl_order_read(ddl_order *order, int which, size_t offset, size_t bytes)
{
    space *s = &order->spaces[which];
    if (order->failed || bytes == 0)
        return;
    uint32_t first = cut(order, s, offset), end = cut(order, s, offset + bytes);
    for (uint32_t i = first; i < end && !order->failed; i++) {
        interval *at = &s->intervals[i];
        if (at->readers != NONE && order->readers[at->readers].step == current(order))
            continue;
        if (at->writer == current(order))
            continue;
        if (at->writer != NONE)
            ddl_order_after(order, at->writer);
        if (!reserve((void **)&order->readers, order->nreaders, &order->readers_capacity,
                     sizeof *order->readers)) {
            order->failed = true;
            return;
        }
        order->readers[order->nreaders] = (reader){ current(order), at->readers };
        at->readers = order->nreaders++;
    }
}

void ddl_order_write(ddl_order *order, int which, size_t offset, size_t bytes)
{
    space *s = &order->spaces[which];
    if (order->failed || bytes == 0)
        return;
    uint32_t first = cut(order, s, offset), end = cut(order, s, offset + bytes);
    if (order->failed)
        return;
    for (uint32_t i = first; i < end; i++) {
        interval *at = &s->intervals[i];
        bool read_by_others = false;
        for (uint32_t r = at->readers; r != NONE; r = order->readers[r].older)
            if (order->readers[r].step != current(order)) {
                ddl_order_after(order, order->readers[r].step);
                read_by_others = true;
            }
        /* Readers have waited for the writer already. */
        if (!read_by_others && at->writer != NONE && at->writer != current(order))
            ddl_order_after(order, at->writer);
    }
    s->intervals[first].writer = current(order);
    s->intervals[first].readers = NONE;
    if (end - first > 1) {
        memmove(&s->intervals[first + 1], &s->intervals[end], (s->count - end) * sizeof *s->intervals);
        s->count -= end - first - 1;
    }
    s->cursor = first;
}

bool ddl_order_busy(ddl_order *order, int which, size_t offset, size_t bytes)
{
    space *s = &order->spaces[which];
    if (bytes == 0)
        return false;
    for (uint32_t i = find(s, offset); i < s->count && s->intervals[i].start < offset + bytes; i++)
        if (s->intervals[i].writer != NONE || s->intervals[i].readers != NONE)
            return true;
    return false;
}

void ddl_order_end(ddl_order *order)
{
    if (order->failed)
        return;
    uint32_t step = current(order), first = order->first_edge[step];
    bool implied = false;
    for (uint32_t i = first; i < order->nedges; i++) {
        uint32_t count;
        const uint32_t *further = ddl_order_predecessors(order, order->edges[i], &count);
        if (count > IMPLIED_SEARCH_LIMIT)
            continue;
        for (uint32_t j = 0; j < count; j++)
            if (order->stamp[further[j]] == order->nsteps) {
                order->stamp[further[j]] = 0;
                implied = true;
            }
    }
    if (!implied)
        return;
    uint32_t kept = first;
    for (uint32_t i = first; i < order->nedges; i++)
        if (order->stamp[order->edges[i]] == order->nsteps)
            order->edges[kept++] = order->edges[i];
    order->nedges = kept;
}

const uint32_t *ddl_order_predecessors(const ddl_order *order, uint32_t step, uint32_t *count)
{
    uint32_t first = order->first_edge[step];
    uint32_t end = step + 1 < order->nsteps ? order->first_edge[step + 1] : order->nedges;
    *count = end - first;
    return order->edges + first;
}

uint32_t ddl_order_edges(const ddl_order *order)
{
    return order->nedges;
}

bool ddl_order_failed(const ddl_order *order)
{
    return order->failed;
}
