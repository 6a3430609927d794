/* layout.c - rooms, and the spans of a schedule in them. */
#include "backend/layout.h"

#include "backend/footprint.h"
#include "base/bytes.h"
#include "base/size.h"

enum { LINE_BYTES = 64 };

static size_t whole_lines(size_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static size_t blocks_of(ddl_content content, const ddl_shape *shape)
{
    return content == DDL_NOTHING ? 0 : content == DDL_ALL_BLOCKS ? (size_t)shape->nranks : 1;
}

/* Blocks that IN and OUT of this rank have; a vector is one. */
static void count_blocks(ddl_collective collective, const ddl_shape *shape, size_t *in, size_t *out)
{
    const ddl_collective_facts *facts = &ddl_collectives[collective];
    bool is_root = shape->rank == shape->root;
    *in = facts->in_at_root && !is_root ? 0 : blocks_of(facts->in, shape);
    *out = facts->out_at_root && !is_root ? 0 : blocks_of(facts->out, shape);
}

typedef struct extent {           /* bytes of IN or OUT in a room */
    size_t blocks, bytes, own_at; /* own_at: from its start to the own block */
} extent;

/* As the buffers of the call are. */
static void measure_buffer(const ddl_shape *shape, const ddl_uneven *uneven, extent *buffer)
{
    size_t last = (size_t)shape->nranks - 1, rank = (size_t)shape->rank, count;
    if (buffer->blocks <= 1) {
        count = buffer->blocks * (uneven->counts != NULL ? uneven->counts[rank] : shape->count);
    } else if (uneven->counts != NULL) {
        count = uneven->starts[last] + uneven->counts[last];
        buffer->own_at = uneven->starts[rank] * shape->element_bytes;
    } else {
        count = last * shape->stride + shape->count;
        buffer->own_at = rank * shape->stride * shape->element_bytes;
    }
    buffer->bytes = count * shape->element_bytes;
}

static void measure_blocks(const ddl_shape *shape, size_t block_bytes, extent *buffer)
{
    buffer->bytes = buffer->blocks * block_bytes;
    buffer->own_at = (size_t)shape->rank * block_bytes;
}

/* In place the buffer with fewer blocks is the own block of the other one. */
static void place_buffers(const extent *in, const extent *out, bool in_place, ddl_layout *layout)
{
    if (!in_place) {
        layout->out_at = whole_lines(in->bytes);
        layout->room_bytes = layout->out_at + whole_lines(out->bytes);
        return;
    }
    layout->in_is_whole = in->blocks > out->blocks;
    layout->in_at = in->blocks < out->blocks && in->blocks > 0 ? out->own_at : 0;
    layout->out_at = layout->in_is_whole ? in->own_at : 0;
    layout->room_bytes = whole_lines(ddl_size_max(in->bytes, out->bytes));
}

static const ddl_uneven *out_blocks_of(const ddl_shape *shape)
{
    return shape->out_blocks.counts != NULL ? &shape->out_blocks : &shape->blocks;
}

/* Of several pieces: as many as fill a room, or one. */
static bool lay_out_pieces(const ddl_shape *shape, size_t piece_count, uint32_t npieces, extent *in,
                           extent *out, ddl_layout *layout)
{
    size_t blocks = shape->in_place ? ddl_size_max(in->blocks, out->blocks) : in->blocks + out->blocks;
    size_t fitting = DDL_ROOM_BYTES / ddl_size_max(1, blocks * layout->piece_bytes);
    layout->pieces = (uint32_t)ddl_size_min(npieces, ddl_size_max(1, fitting));
    layout->block_count = layout->pieces * piece_count;
    layout->starts = ddl_alloc_array((size_t)shape->nranks, sizeof *layout->starts);
    for (int rank = 0; layout->starts != NULL && rank < shape->nranks; rank++)
        layout->starts[rank] = (size_t)rank * layout->block_count;
    measure_blocks(shape, layout->block_count * shape->element_bytes, in);
    measure_blocks(shape, layout->block_count * shape->element_bytes, out);
    return layout->starts != NULL;
}

ddl_status ddl_layout_make(ddl_collective collective, const ddl_shape *shape, size_t piece_count,
                           uint32_t npieces, ddl_layout *layout, ddl_error *err)
{
    extent in = { 0, 0, 0 }, out = { 0, 0, 0 };
    count_blocks(collective, shape, &in.blocks, &out.blocks);
    *layout = (ddl_layout){ .pieces = 1, .piece_bytes = piece_count * shape->element_bytes };
    if (npieces == 1) {
        measure_buffer(shape, &shape->blocks, &in);
        measure_buffer(shape, out_blocks_of(shape), &out);
    } else if (!lay_out_pieces(shape, piece_count, npieces, &in, &out, layout)) {
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a plan");
    }
    place_buffers(&in, &out, shape->in_place, layout);
    return DDL_OK;
}

void ddl_layout_fini(ddl_layout *layout)
{
    ddl_free(layout->starts);
    layout->starts = NULL;
}

ddl_shape ddl_layout_shape(const ddl_layout *layout, const ddl_shape *shape)
{
    ddl_shape inside = *shape;
    if (layout->starts == NULL)
        return inside;
    inside.stride = layout->block_count;
    if (inside.blocks.counts != NULL)
        inside.blocks.starts = layout->starts;
    if (inside.out_blocks.counts != NULL)
        inside.out_blocks.starts = layout->starts;
    return inside;
}

/* ---- spans ---- */

/* Elements from the start of a buffer of the call to one of its blocks. */
static size_t start_in_buffer(const ddl_shape *shape, bool of_out, size_t block)
{
    const ddl_uneven *uneven = of_out ? out_blocks_of(shape) : &shape->blocks;
    return uneven->counts != NULL ? uneven->starts[block] : block * shape->stride;
}

/* As much of these bytes of a room, from the first on, as lies in one block. */
static ddl_span first_span(const ddl_layout *layout, const ddl_shape *shape, ddl_interval bytes)
{
    size_t block_bytes = layout->block_count * shape->element_bytes;
    bool apart = !shape->in_place;
    bool of_out = apart ? bytes.from >= layout->out_at : !layout->in_is_whole;
    size_t base = apart && of_out ? layout->out_at : 0;
    size_t limit = apart && !of_out ? ddl_size_min(bytes.to, layout->out_at) : bytes.to;
    if (layout->starts == NULL)
        return (ddl_span){ of_out, bytes.from, bytes.from - base, limit - bytes.from };
    size_t block = (bytes.from - base) / block_bytes;
    size_t inside = (bytes.from - base) % block_bytes;
    limit = ddl_size_min(limit, base + (block + 1) * block_bytes);
    return (ddl_span){ of_out, bytes.from,
                       start_in_buffer(shape, of_out, block) * shape->element_bytes + inside,
                       limit - bytes.from };
}

static size_t count_spans(const ddl_layout *layout, const ddl_shape *shape, const ddl_intervals *set,
                          ddl_span *spans)
{
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++)
        for (ddl_interval left = set->each[i]; left.from < left.to; count++) {
            ddl_span span = first_span(layout, shape, left);
            if (spans != NULL)
                spans[count] = span;
            left.from += span.bytes;
        }
    return count;
}

static bool make_spans(const ddl_layout *layout, const ddl_shape *shape, const ddl_intervals *set,
                       ddl_span **spans, size_t *count)
{
    *count = count_spans(layout, shape, set, NULL);
    *spans = ddl_alloc_array(*count, sizeof **spans);
    if (*spans == NULL)
        return false;
    count_spans(layout, shape, set, *spans);
    return true;
}

ddl_status ddl_layout_spans(const ddl_layout *layout, const ddl_shape *shape, const ddl_schedule *schedule,
                            ddl_spans *spans, ddl_error *err)
{
    ddl_footprint footprint;
    DDL_TRY(ddl_footprint_find(schedule, layout->in_at, layout->out_at, &footprint, err));
    *spans = (ddl_spans){ NULL, NULL, 0, 0 };
    bool made = make_spans(layout, shape, &footprint.needed, &spans->down, &spans->ndown) &&
                make_spans(layout, shape, &footprint.written, &spans->up, &spans->nup);
    ddl_footprint_fini(&footprint);
    if (made)
        return DDL_OK;
    ddl_spans_fini(spans);
    return DDL_FAIL(err, DDL_ENOMEM, "no memory for a plan");
}

void ddl_spans_fini(ddl_spans *spans)
{
    ddl_free(spans->down);
    ddl_free(spans->up);
    *spans = (ddl_spans){ NULL, NULL, 0, 0 };
}
