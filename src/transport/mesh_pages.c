/* mesh_pages.c - whole pages are put or taken at once; what is left of a message goes through the lane. */
#include "transport/mesh_link.h"

#include "transport/moving.h"

#include <sys/uio.h>

/* ---- places in heaps ---- */

enum { LEAST_PAGES_BYTES = 32 * 1024 }; /* less goes through the lane as fast */

/* Make the whole pages of a message that begins at this offset of a heap its hole. False: too few to care. */
static bool cut_pages(const ddl_mesh *mesh, ddl_xfer *xfer, size_t offset)
{
    size_t head = (mesh->page_bytes - offset % mesh->page_bytes) % mesh->page_bytes;
    size_t unit_bytes = xfer->unit_bytes > 0 ? xfer->unit_bytes : 1;
    /* Not in the middle of an element, which may lie anywhere for all we know. */
    if (xfer->bytes < head + LEAST_PAGES_BYTES || head % unit_bytes != 0)
        return false;
    xfer->hole_at = head;
    xfer->hole_bytes = (xfer->bytes - head) / mesh->page_bytes * mesh->page_bytes;
    return xfer->hole_bytes > 0;
}

bool ddl_mesh_find_place(const ddl_mesh_link *link, ddl_xfer *xfer, ddl_frame_place *place)
{
    const ddl_mesh *mesh = link->mesh;
    size_t offset;
    if (!link->shares_heaps || mesh->heap == NULL || xfer->part[1].bytes > 0 ||
        !ddl_heap_find(mesh->heap, xfer->part[0].data, xfer->bytes, &offset) ||
        !cut_pages(mesh, xfer, offset))
        return false;
    *place = (ddl_frame_place){ offset, xfer->bytes };
    return true;
}

void ddl_mesh_withdraw(const ddl_mesh *mesh, const ddl_xfer *xfer)
{
    ddl_heap_withdraw(mesh->heap, (uint8_t *)xfer->part[0].data + xfer->hole_at, xfer->hole_bytes);
}

void ddl_mesh_queue_place(ddl_mesh_link *link, const ddl_xfer *xfer, ddl_frame_type type,
                          const ddl_frame_place *place)
{
    uint8_t payload[DDL_FRAME_PLACE_BYTES];
    ddl_frame frame = ddl_mesh_frame_of(xfer, type);
    frame.bytes = sizeof payload;
    ddl_frame_place_encode(place, payload);
    ddl_mesh_queue_control(link, &frame, payload);
}

/* An offer tells more in the upper half of its place's bytes (protocol/frame.h). */
ddl_frame_place ddl_mesh_offer_of(const ddl_xfer *xfer, const ddl_frame_place *place)
{
    return (ddl_frame_place){ place->offset, (uint64_t)xfer->answer_plus_1 << 32 | place->bytes };
}

/* Find the pages there of a message of this rank's; its hole is cut then. False: the peer told nonsense; the
 * link has ended. */
static bool find_pages(ddl_mesh_link *link, ddl_xfer *xfer, const ddl_frame_place *place)
{
    if (place->bytes == xfer->bytes && place->offset <= link->heap_bytes &&
        place->bytes <= link->heap_bytes - place->offset &&
        cut_pages(link->mesh, xfer, (size_t)place->offset)) {
        xfer->pages = link->heap + place->offset + xfer->hole_at;
        return true;
    }
    ddl_error error;
    DDL_FAIL(&error, DDL_EPROTO, "a place for %llu bytes at %llu of a heap of %zu, where %zu are due",
             (unsigned long long)place->bytes, (unsigned long long)place->offset, link->heap_bytes,
             xfer->bytes);
    ddl_mesh_link_lost(link, 0, &error);
    return false;
}

/*
 * Pages are put and taken one message at a time, between sweeps: what is queued for the others meanwhile
 * leaves first, or they would wait while this rank copies, and it while they do.
 */
void ddl_mesh_put_later(ddl_mesh_link *link, ddl_xfer *xfer, const ddl_frame_place *place)
{
    bool found = find_pages(link, xfer, place);
    xfer->state = found ? DDL_XFER_PUT_DUE
                        : DDL_XFER_AWAITING_GRANT; /* as any other that waits on a link that has ended */
    ddl_mesh_expect(link, found ? &link->mesh->due : &link->awaiting, xfer);
}

void ddl_mesh_take_later(ddl_mesh_link *link, ddl_xfer *xfer, const ddl_frame_place *offer)
{
    const ddl_frame_place place = { offer->offset, (uint32_t)offer->bytes };
    bool found = find_pages(link, xfer, &place);
    xfer->gives_back = xfer->answer_plus_1 != 0 && xfer->answer_plus_1 == offer->bytes >> 32;
    xfer->state = found ? DDL_XFER_TAKE_DUE : DDL_XFER_RECEIVING;
    ddl_mesh_expect(link, found ? &link->mesh->due : &link->receives, xfer);
}

void ddl_mesh_let_go_of_heap(ddl_mesh_link *link)
{
    if (!link->shares_heaps)
        return;
    DDL_LIST_FOR_EACH (each, &link->mesh->due) {
        ddl_xfer *xfer = DDL_CONTAINER(each, ddl_xfer, link);
        if (xfer->peer != link->peer)
            continue;
        bool sends = xfer->state == DDL_XFER_PUT_DUE;
        ddl_list_remove(&xfer->link);
        xfer->state =
            sends ? DDL_XFER_AWAITING_GRANT : DDL_XFER_RECEIVING; /* in vain, until it is cancelled */
        ddl_list_append(sends ? &link->awaiting : &link->receives, &xfer->link);
    }
    link->shares_heaps = false;
    link->heap = NULL;
    link->heap_bytes = 0;
    ddl_lanes_drop_heap(link->mesh->lanes, link->peer);
}

/* ---- sources that are read where they are ---- */

bool ddl_mesh_may_be_pulled(const ddl_mesh_link *link, const ddl_xfer *xfer)
{
    return link->in != NULL && xfer->pulls && xfer->bytes >= link->mesh->pull_bytes &&
           xfer->bytes > DDL_FRAME_EAGER_LIMIT;
}

bool ddl_mesh_is_pulled(const ddl_mesh_link *link, const ddl_xfer *xfer)
{
    return ddl_mesh_may_be_pulled(link, xfer) && ddl_lanes_can_pull(link->mesh->lanes, link->peer);
}

/* Memory that takes long to come, as that of a file on a server, is to hold up the rank whose it is, not the
 * one that reads it. */
static void have_pages(const ddl_mesh *mesh, const ddl_part *part)
{
    const volatile uint8_t *data = part->data;
    for (size_t at = 0; at < part->bytes; at += mesh->page_bytes)
        (void)data[at];
    (void)data[part->bytes - 1];
}

ddl_frame_place ddl_mesh_source_of(const ddl_mesh_link *link, const ddl_xfer *xfer)
{
    have_pages(link->mesh, &xfer->part[0]);
    uint64_t withdrawals = ddl_lane_withdrawals(link->out);
    return (ddl_frame_place){ (uintptr_t)xfer->part[0].data, withdrawals << 32 | xfer->bytes };
}

void ddl_mesh_pull_later(ddl_mesh_link *link, ddl_xfer *xfer, const ddl_frame_place *source)
{
    bool sound = (uint32_t)source->bytes == xfer->bytes;
    xfer->withdrawals = (uint32_t)(source->bytes >> 32);
    xfer->pages = (void *)(uintptr_t)source->offset;
    xfer->state = sound ? DDL_XFER_PULL_DUE : DDL_XFER_RECEIVING;
    ddl_mesh_expect(link, sound ? &link->mesh->due : &link->receives, xfer);
    if (sound)
        return;
    ddl_error error;
    DDL_FAIL(&error, DDL_EPROTO, "%lu bytes to be read at their source, where %zu are due",
             (unsigned long)(uint32_t)source->bytes, xfer->bytes);
    ddl_mesh_link_lost(link, 0, &error);
}

/* ---- what the peer says of them ---- */

static bool hold_place(ddl_mesh_link *link, ddl_list *list, const ddl_frame_place *place, ddl_error *err)
{
    ddl_early *entry = ddl_earlies_hold(&link->earlies, list, &link->frame, err);
    if (entry != NULL)
        entry->place = *place;
    return entry != NULL;
}

bool ddl_mesh_take_offer(ddl_mesh_link *link, const ddl_frame_place *place, ddl_error *err)
{
    ddl_xfer *xfer = ddl_mesh_find_receive(link, &link->frame);
    if (xfer == NULL)
        return hold_place(link, &link->earlies.messages, place, err);
    bool waits = xfer->state == DDL_XFER_RECEIVING || xfer->state == DDL_XFER_RECEIVING_GRANTED;
    if (!waits || !ddl_signature_same(xfer->signature, &link->frame.signature))
        return true; /* it was told another place, and puts it there; or the owner knows that they differ */
    link->bulk_due -= xfer->state == DDL_XFER_RECEIVING_GRANTED ? 1 : 0;
    ddl_mesh_stop_expecting(link, xfer);
    ddl_mesh_take_later(link, xfer, place);
    return true;
}

bool ddl_mesh_take_source(ddl_mesh_link *link, const ddl_frame_place *source, ddl_error *err)
{
    ddl_xfer *xfer = ddl_mesh_find_receive(link, &link->frame);
    if (xfer == NULL)
        return hold_place(link, &link->earlies.messages, source, err);
    if (xfer->state != DDL_XFER_RECEIVING || !ddl_signature_same(xfer->signature, &link->frame.signature))
        return true; /* it was granted, or told a place; or the owner knows that they differ */
    ddl_mesh_stop_expecting(link, xfer);
    ddl_mesh_pull_later(link, xfer, source);
    return true;
}

bool ddl_mesh_take_place(ddl_mesh_link *link, const ddl_frame_place *place, ddl_error *err)
{
    ddl_xfer *xfer = ddl_mesh_find_awaiting(link, &link->frame);
    if (xfer == NULL)
        return hold_place(link, &link->earlies.grants, place, err);
    if (!ddl_signature_same(xfer->signature, &link->frame.signature))
        return true;
    ddl_mesh_stop_expecting(link, xfer);
    ddl_mesh_put_later(link, xfer, place);
    return true;
}

bool ddl_mesh_take_taken(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = ddl_mesh_find_awaiting(link, frame);
    if (xfer == NULL)
        return ddl_mesh_was_cancelled(link, frame, err);
    if (xfer->state != DDL_XFER_OFFERED && xfer->state != DDL_XFER_LENT) {
        DDL_FAIL(err, DDL_EPROTO, "what was not offered was taken");
        return false;
    }
    ddl_mesh_stop_expecting(link, xfer);
    if (xfer->state == DDL_XFER_LENT) {
        xfer->state = DDL_XFER_IDLE;
        ddl_mesh_send_done(link, xfer);
        return true;
    }
    ddl_moving_advance(xfer, 0);
    /* Also if nothing is left: that the sender still stood by its offer is what makes the message whole. */
    if (ddl_mesh_send_frame(link, xfer, DDL_XFER_SENDING_REST))
        ddl_mesh_send_done(link, xfer);
    return true;
}

bool ddl_mesh_take_rest(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = ddl_mesh_find_receive(link, frame);
    if (xfer == NULL)
        return ddl_mesh_was_cancelled(link, frame, err);
    if ((xfer->state != DDL_XFER_RECEIVING_PLACED && xfer->state != DDL_XFER_RECEIVING_REST) ||
        frame->bytes != xfer->bytes - xfer->hole_bytes) {
        DDL_FAIL(err, DDL_EPROTO, "a rest of %u bytes that is not due", (unsigned)frame->bytes);
        return false;
    }
    xfer->state = DDL_XFER_RECEIVING_REST;
    if (frame->bytes == 0) {
        ddl_mesh_receive_done(link, xfer);
        return true;
    }
    link->sink = DDL_SINK_XFER;
    link->sink_xfer = xfer;
    return true;
}

/* ---- moving ---- */

static void put_pages(ddl_mesh_link *link, ddl_xfer *xfer)
{
    if (!xfer->is_given)
        ddl_moving_copy_out(xfer, xfer->hole_at, xfer->pages, xfer->hole_bytes);
    ddl_moving_advance(xfer, 0);
    if (ddl_mesh_send_frame(link, xfer, DDL_XFER_SENDING_REST))
        ddl_mesh_send_done(link, xfer);
}

/*
 * Where, in the heap of the peer, what becomes of the pages that are taken is wanted: where they lie, or in a
 * place that the peer has told already; NULL: that is not known, or other pages of the message would be
 * meant. The message that answers finds the place again, and has nothing to put there.
 */
static uint8_t *place_of_answer(ddl_mesh_link *link, const ddl_xfer *xfer)
{
    ddl_key key = xfer->key;
    if (xfer->give == NULL || xfer->answer_plus_1 == 0)
        return NULL;
    if (xfer->gives_back)
        return xfer->pages;
    if (xfer->past_caches) /* a copy that fetches nothing first is quicker there (docs/performance.md) */
        return NULL;
    key.number = xfer->answer_plus_1 - 1;
    const ddl_early *told = ddl_earlies_find(&link->earlies, &link->earlies.grants, &key);
    if (told == NULL || told->frame.type != DDL_FRAME_PLACE ||
        !ddl_signature_same(xfer->signature, &told->frame.signature))
        return NULL;
    const size_t page_bytes = link->mesh->page_bytes;
    const uint8_t *source = (const uint8_t *)xfer->pages - xfer->hole_at;
    const uint64_t source_offset = (uint64_t)(source - link->heap), offset = told->place.offset;
    if (told->place.bytes != xfer->bytes || offset > link->heap_bytes ||
        xfer->bytes > link->heap_bytes - offset || offset % page_bytes != source_offset % page_bytes)
        return NULL;
    return link->heap + offset + xfer->hole_at;
}

/* What is left to come, if anything, comes with the sender's word that it had not given up. */
static void take_pages(ddl_mesh_link *link, ddl_xfer *xfer)
{
    uint8_t *answer = place_of_answer(link, xfer);
    xfer->has_given = answer != NULL;
    if (answer != NULL)
        xfer->give(xfer, xfer->hole_at, xfer->pages, answer, xfer->hole_bytes);
    else if (xfer->take != NULL)
        xfer->take(xfer, xfer->hole_at, xfer->pages, xfer->hole_bytes);
    else
        ddl_moving_copy_in(xfer, xfer->hole_at, xfer->pages, xfer->hole_bytes);
    ddl_moving_advance(xfer, 0);
    ddl_frame taken = ddl_mesh_frame_of(xfer, DDL_FRAME_TAKEN);
    ddl_mesh_queue_control(link, &taken, NULL);
    xfer->state = DDL_XFER_RECEIVING_REST;
    ddl_mesh_await_message(link, xfer);
}

/* Read a message at its source. What cannot be read there, as memory of devices, has to come through the
 * lane, and so has everything after it; so has what was read while the sender withdrew something. */
static void pull(ddl_mesh_link *link, ddl_xfer *xfer)
{
    struct iovec parts[2];
    int count = ddl_moving_parts_between(xfer, 0, xfer->bytes, parts, 0);
    if (ddl_lanes_pull(link->mesh->lanes, link->peer, (uintptr_t)xfer->pages, parts, count) &&
        ddl_lane_withdrawals(link->in) == xfer->withdrawals) {
        ddl_frame taken = ddl_mesh_frame_of(xfer, DDL_FRAME_TAKEN);
        ddl_mesh_queue_control(link, &taken, NULL);
        xfer->state = DDL_XFER_IDLE;
        xfer->done(xfer);
        return;
    }
    ddl_mesh_queue_grant(link, xfer); /* in vain, if it is this one that was withdrawn */
    ddl_mesh_await_message(link, xfer);
}

void ddl_mesh_move_pages(ddl_mesh *mesh)
{
    ddl_link *first = ddl_list_first(&mesh->due);
    if (first == NULL)
        return;
    ddl_xfer *xfer = DDL_CONTAINER(first, ddl_xfer, link);
    ddl_mesh_link *link = &mesh->links[xfer->peer];
    ddl_engine_moved(mesh->engine);
    ddl_mesh_stop_expecting(link, xfer);
    if (xfer->state == DDL_XFER_PUT_DUE)
        put_pages(link, xfer);
    else if (xfer->state == DDL_XFER_PULL_DUE)
        pull(link, xfer);
    else
        take_pages(link, xfer);
    ddl_mesh_flush(mesh);
}
