/*
 * order.c - a sorted array of intervals per space, each with its last writer and the readers since.
 *
 * Algorithms touch one block after its neighbour, so an interval is nearly always found next to the last
 * one found, and is inserted next to the last one inserted: the array has a gap there, which moves along.
 * Lists of readers share their tails, so that splitting an interval copies one index.
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
    interval *intervals; /* with all free room between index gap-1 and index gap */
    uint32_t count, capacity, gap;
    uint32_t cursor; /* where the last search ended */
} space;

typedef struct reader {
    uint32_t step, older;
} reader;

typedef struct order_step {
    uint32_t first_edge; /* into edges */
    uint32_t stamp;      /* the latest step that has this one as a predecessor, plus one */
} order_step;

enum { FIRST_ROOM = 12 }; /* elements; what a few ranks need takes no further memory */

struct ddl_order {
    space spaces[DDL_ORDER_SPACES];
    reader *readers;
    uint32_t nreaders, readers_capacity;
    order_step *steps;
    uint32_t nsteps, steps_capacity;
    uint32_t *edges; /* predecessors, step after step */
    uint32_t nedges, edges_capacity;
    bool failed;
    struct { /* of each array, until it outgrows it */
        interval intervals[DDL_ORDER_SPACES][FIRST_ROOM];
        reader readers[FIRST_ROOM];
        order_step steps[FIRST_ROOM];
        uint32_t edges[FIRST_ROOM];
    } first;
};

/* Make room for one more element; false when out of memory. */
static bool reserve(void **array, const void *first, uint32_t count, uint32_t *capacity, size_t element_bytes)
{
    if (count < *capacity)
        return true;
    uint32_t more = *capacity * 2;
    void *grown = ddl_alloc_array(more, element_bytes);
    if (grown == NULL)
        return false;
    if (count > 0)
        memcpy(grown, *array, count * element_bytes);
    if (*array != first)
        ddl_free(*array);
    *array = grown;
    *capacity = more;
    return true;
}

static interval *at(const space *s, uint32_t index)
{
    return &s->intervals[index < s->gap ? index : index + (s->capacity - s->count)];
}

static void move_gap(space *s, uint32_t index)
{
    uint32_t room = s->capacity - s->count;
    if (index < s->gap)
        memmove(&s->intervals[index + room], &s->intervals[index], (s->gap - index) * sizeof *s->intervals);
    else if (index > s->gap)
        memmove(&s->intervals[s->gap], &s->intervals[s->gap + room], (index - s->gap) * sizeof *s->intervals);
    s->gap = index;
}

/* False: out of memory. */
static bool insert(ddl_order *order, space *s, uint32_t index, interval added)
{
    if (s->count == s->capacity) {
        move_gap(s, s->count); /* all in one piece */
        if (!reserve((void **)&s->intervals, order->first.intervals[s - order->spaces], s->count,
                     &s->capacity, sizeof *s->intervals))
            return false;
    }
    move_gap(s, index);
    s->intervals[s->gap++] = added;
    s->count++;
    return true;
}

static void drop(space *s, uint32_t first, uint32_t end)
{
    move_gap(s, end);
    s->gap = first;
    s->count -= end - first;
}

ddl_order *ddl_order_create(void)
{
    ddl_order *order = ddl_alloc(sizeof *order);
    if (order == NULL)
        return NULL;
    for (int i = 0; i < DDL_ORDER_SPACES; i++) {
        order->first.intervals[i][0] = (interval){ 0, NONE, NONE };
        order->spaces[i] = (space){ order->first.intervals[i], 1, FIRST_ROOM, 1, 0 };
    }
    order->readers = order->first.readers;
    order->steps = order->first.steps;
    order->edges = order->first.edges;
    order->readers_capacity = order->steps_capacity = order->edges_capacity = FIRST_ROOM;
    return order;
}

void ddl_order_destroy(ddl_order *order)
{
    if (order == NULL)
        return;
    for (int i = 0; i < DDL_ORDER_SPACES; i++)
        if (order->spaces[i].intervals != order->first.intervals[i])
            ddl_free(order->spaces[i].intervals);
    if (order->readers != order->first.readers)
        ddl_free(order->readers);
    if (order->steps != order->first.steps)
        ddl_free(order->steps);
    if (order->edges != order->first.edges)
        ddl_free(order->edges);
    ddl_free(order);
}

void ddl_order_begin(ddl_order *order)
{
    if (order->failed || !reserve((void **)&order->steps, order->first.steps, order->nsteps,
                                  &order->steps_capacity, sizeof *order->steps)) {
        order->failed = true;
        return;
    }
    order->steps[order->nsteps++] = (order_step){ .first_edge = order->nedges };
}

static uint32_t current(const ddl_order *order)
{
    return order->nsteps - 1;
}

void ddl_order_after(ddl_order *order, uint32_t step)
{
    if (order->failed || order->steps[step].stamp == order->nsteps)
        return;
    DDL_ASSERT(step < current(order));
    if (!reserve((void **)&order->edges, order->first.edges, order->nedges, &order->edges_capacity,
                 sizeof *order->edges)) {
        order->failed = true;
        return;
    }
    order->steps[step].stamp = order->nsteps;
    order->edges[order->nedges++] = step;
}

static bool holds(const space *s, uint32_t index, size_t position)
{
    return at(s, index)->start <= position && (index + 1 == s->count || position < at(s, index + 1)->start);
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
        if (at(s, middle)->start <= position)
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
    const interval *found = at(s, index);
    if (found->start == position)
        return index;
    if (!insert(order, s, index + 1, (interval){ position, found->writer, found->readers })) {
        order->failed = true;
        return index;
    }
    return s->cursor = index + 1;
}

void ddl_order_read(ddl_order *order, int which, size_t offset, size_t bytes)
{
    space *s = &order->spaces[which];
    if (order->failed || bytes == 0)
        return;
    uint32_t first = cut(order, s, offset), end = cut(order, s, offset + bytes);
    for (uint32_t i = first; i < end && !order->failed; i++) {
        interval *piece = at(s, i);
        if (piece->readers != NONE && order->readers[piece->readers].step == current(order))
            continue;
        if (piece->writer == current(order))
            continue;
        if (piece->writer != NONE)
            ddl_order_after(order, piece->writer);
        if (!reserve((void **)&order->readers, order->first.readers, order->nreaders,
                     &order->readers_capacity, sizeof *order->readers)) {
            order->failed = true;
            return;
        }
        order->readers[order->nreaders] = (reader){ current(order), piece->readers };
        piece->readers = order->nreaders++;
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
        const interval *piece = at(s, i);
        bool read_by_others = false;
        for (uint32_t r = piece->readers; r != NONE; r = order->readers[r].older)
            if (order->readers[r].step != current(order)) {
                ddl_order_after(order, order->readers[r].step);
                read_by_others = true;
            }
        /* Readers have waited for the writer already. */
        if (!read_by_others && piece->writer != NONE && piece->writer != current(order))
            ddl_order_after(order, piece->writer);
    }
    at(s, first)->writer = current(order);
    at(s, first)->readers = NONE;
    if (end - first > 1)
        drop(s, first + 1, end);
    s->cursor = first;
}

bool ddl_order_busy(ddl_order *order, int which, size_t offset, size_t bytes)
{
    space *s = &order->spaces[which];
    if (bytes == 0)
        return false;
    for (uint32_t i = find(s, offset); i < s->count && at(s, i)->start < offset + bytes; i++)
        if (at(s, i)->writer != NONE || at(s, i)->readers != NONE)
            return true;
    return false;
}

void ddl_order_end(ddl_order *order)
{
    if (order->failed)
        return;
    uint32_t step = current(order), first = order->steps[step].first_edge;
    bool implied = false;
    for (uint32_t i = first; i < order->nedges; i++) {
        uint32_t count;
        const uint32_t *further = ddl_order_predecessors(order, order->edges[i], &count);
        if (count > IMPLIED_SEARCH_LIMIT)
            continue;
        for (uint32_t j = 0; j < count; j++)
            if (order->steps[further[j]].stamp == order->nsteps) {
                order->steps[further[j]].stamp = 0;
                implied = true;
            }
    }
    if (!implied)
        return;
    uint32_t kept = first;
    for (uint32_t i = first; i < order->nedges; i++)
        if (order->steps[order->edges[i]].stamp == order->nsteps)
            order->edges[kept++] = order->edges[i];
    order->nedges = kept;
}

const uint32_t *ddl_order_predecessors(const ddl_order *order, uint32_t step, uint32_t *count)
{
    uint32_t first = order->steps[step].first_edge;
    uint32_t end = step + 1 < order->nsteps ? order->steps[step + 1].first_edge : order->nedges;
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
