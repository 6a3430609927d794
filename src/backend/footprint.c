/* footprint.c - walks the steps in an order in which whoever reads comes after whoever writes. */
#include "backend/footprint.h"

#include "base/bytes.h"
#include "base/size.h"

#include <string.h>

/* ---- intervals ---- */

/* The first one that does not end before this byte. */
static size_t place_of(const ddl_intervals *set, size_t byte)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->each[middle].to < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool reserve(ddl_intervals *set)
{
    if (set->count < set->capacity)
        return true;
    size_t capacity = set->capacity > 0 ? 2 * set->capacity : 8;
    ddl_interval *more = ddl_alloc_array(capacity, sizeof *more);
    if (more == NULL)
        return false;
    if (set->count > 0)
        memcpy(more, set->each, set->count * sizeof *more);
    ddl_free(set->each);
    set->each = more;
    set->capacity = capacity;
    return true;
}

/* False: no memory. */
static bool add(ddl_intervals *set, size_t from, size_t to)
{
    if (from == to)
        return true;
    size_t first = place_of(set, from), end = first;
    while (end < set->count && set->each[end].from <= to) {
        from = ddl_size_min(from, set->each[end].from);
        to = ddl_size_max(to, set->each[end].to);
        end++;
    }
    if (end == first && !reserve(set))
        return false;
    memmove(set->each + first + 1, set->each + end, (set->count - end) * sizeof *set->each);
    set->count = set->count + 1 - (end - first);
    set->each[first] = (ddl_interval){ from, to };
    return true;
}

/* What of it is not in `but`. */
static bool add_rest(ddl_intervals *set, const ddl_intervals *but, size_t from, size_t to)
{
    for (size_t i = place_of(but, from); i < but->count && but->each[i].from < to && from < to; i++) {
        if (but->each[i].from > from && !add(set, from, but->each[i].from))
            return false;
        from = ddl_size_max(from, but->each[i].to);
    }
    return from >= to || add(set, from, to);
}

/* ---- steps ---- */

typedef struct walk {
    size_t in_at, out_at;
    ddl_footprint *footprint;
    bool failed;
} walk;

static bool locate(const walk *w, const ddl_slice *slice, size_t *from)
{
    if (slice->buffer == DDL_BUFFER_SCRATCH || slice->bytes == 0)
        return false;
    *from = slice->offset + (slice->buffer == DDL_BUFFER_IN ? w->in_at : w->out_at);
    return true;
}

static void read_slice(walk *w, const ddl_slice *slice)
{
    size_t from;
    if (locate(w, slice, &from) &&
        !add_rest(&w->footprint->needed, &w->footprint->written, from, from + slice->bytes))
        w->failed = true;
}

static void write_slice(walk *w, const ddl_slice *slice)
{
    size_t from;
    if (locate(w, slice, &from) && !add(&w->footprint->written, from, from + slice->bytes))
        w->failed = true;
}

static void read_step(walk *w, const ddl_schedule *schedule, const ddl_step *step)
{
    switch ((ddl_step_kind)step->kind) {
    case DDL_STEP_RECV:
        break;
    case DDL_STEP_COPY:
        read_slice(w, &step->source);
        break;
    case DDL_STEP_REDUCE:
        for (uint32_t i = 0; i < step->noperands; i++)
            read_slice(w, &schedule->operands[step->first_operand + i]);
        break;
    case DDL_STEP_SEND:
    case DDL_STEP_RECV_REDUCE:
    case DDL_STEP_SCALE:
        read_slice(w, &step->target.part[0]);
        read_slice(w, &step->target.part[1]);
        break;
    }
}

static void write_step(walk *w, const ddl_step *step)
{
    if (step->kind == DDL_STEP_RECV_REDUCE)
        write_slice(w, &step->source); /* where the message lands */
    if (step->kind != DDL_STEP_SEND) {
        write_slice(w, &step->target.part[0]);
        write_slice(w, &step->target.part[1]);
    }
}

ddl_status ddl_footprint_find(const ddl_schedule *schedule, size_t in_at, size_t out_at,
                              ddl_footprint *footprint, ddl_error *err)
{
    *footprint = (ddl_footprint){ .needed = { NULL, 0, 0 } };
    walk w = { in_at, out_at, footprint, false };
    for (uint32_t i = 0; i < schedule->nsteps && !w.failed; i++) {
        read_step(&w, schedule, &schedule->steps[i]);
        write_step(&w, &schedule->steps[i]);
    }
    if (!w.failed)
        return DDL_OK;
    ddl_footprint_fini(footprint);
    return DDL_FAIL(err, DDL_ENOMEM, "no memory for what a schedule of %u steps reads and writes",
                    (unsigned)schedule->nsteps);
}

void ddl_footprint_fini(ddl_footprint *footprint)
{
    ddl_free(footprint->needed.each);
    ddl_free(footprint->written.each);
    *footprint = (ddl_footprint){ .needed = { NULL, 0, 0 } };
}
