/* mesh_match.c - by keys, in any order; what comes for nobody yet is held. */
#include "transport/mesh_link.h"

#include "base/assert.h"
#include "transport/moving.h"

#include <sys/socket.h>

/* ---- the executor's interface ---- */

/* What its receiver has said of a message before it was posted here. */
typedef struct early_reply {
    uint8_t type;  /* of the frame: that it may come, or to which place; 0: nothing yet */
    bool is_alike; /* in a call as here */
    ddl_frame_place place;
} early_reply;

static early_reply take_early_reply(ddl_mesh_link *link, const ddl_xfer *xfer)
{
    early_reply reply = { 0 };
    ddl_early *early = ddl_earlies_find(&link->earlies, &link->earlies.grants, &xfer->key);
    if (early == NULL)
        return reply;
    reply.type = early->frame.type;
    reply.is_alike = ddl_signature_same(xfer->signature, &early->frame.signature);
    reply.place = early->place;
    ddl_earlies_drop(&link->earlies, early);
    return reply;
}

static bool wait_for_answer(ddl_mesh_link *link, ddl_xfer *xfer, ddl_mesh_xfer_state state)
{
    xfer->state = state;
    ddl_mesh_expect(link, &link->awaiting, xfer);
    return false;
}

/* Of a message that is large, or that nothing allows yet: it goes as its receiver has said, unless it lies
 * where that can fetch it. Where nothing was said, the receiver learns what lets it choose; of one that is
 * large, and can only be sent, it says by itself when that may come. */
static bool negotiate(ddl_mesh_link *link, ddl_xfer *xfer)
{
    const bool is_small = xfer->bytes <= DDL_FRAME_EAGER_LIMIT;
    const early_reply reply = take_early_reply(link, xfer);
    ddl_frame_place place;
    if (reply.type == DDL_FRAME_PLACE && reply.is_alike) {
        ddl_mesh_put_later(link, xfer, &reply.place);
        return false;
    }
    if (!is_small && ddl_mesh_find_place(link, xfer, &place)) {
        place = ddl_mesh_offer_of(xfer, &place);
        ddl_mesh_queue_place(link, xfer, DDL_FRAME_OFFER, &place);
        return wait_for_answer(link, xfer, DDL_XFER_OFFERED);
    }
    if (reply.type == DDL_FRAME_GRANT)
        return ddl_mesh_send_granted(link, xfer);
    const bool may_be_pulled = ddl_mesh_may_be_pulled(link, xfer);
    if (may_be_pulled && xfer->part[1].bytes == 0) {
        place = ddl_mesh_source_of(link, xfer);
        ddl_mesh_queue_place(link, xfer, DDL_FRAME_SOURCE, &place);
        return wait_for_answer(link, xfer, DDL_XFER_LENT);
    }
    if (is_small || may_be_pulled) {
        const ddl_frame ask = ddl_mesh_frame_of(xfer, DDL_FRAME_ASK);
        ddl_mesh_queue_control(link, &ask, NULL);
    }
    return wait_for_answer(link, xfer, DDL_XFER_AWAITING_GRANT);
}

static bool mesh_send(ddl_transport *transport, ddl_xfer *xfer)
{
    ddl_mesh *mesh = DDL_CONTAINER(transport, ddl_mesh, transport);
    ddl_mesh_link *link = &mesh->links[xfer->peer];
    DDL_ASSERT(xfer->bytes > 0);
    DDL_ASSERT(xfer->bytes <= DDL_FRAME_BULK_LIMIT);
    /* If the peer has gone the owner knows, or will from its own checks; nothing will move. Else this sends
     * again when they have met. */
    if (link->state != DDL_LINK_OPEN)
        return wait_for_answer(link, xfer, DDL_XFER_AWAITING_GRANT);
    const uint32_t cost = ddl_chunks_for(xfer->bytes);
    if (xfer->bytes <= DDL_FRAME_EAGER_LIMIT && link->budget >= cost) {
        link->budget -= cost;
        return ddl_mesh_send_frame(link, xfer, DDL_XFER_SENDING_EAGER);
    }
    return negotiate(link, xfer);
}

/* Whether a message may come so: by itself, or because it was granted. */
static bool is_due(const ddl_xfer *xfer, const ddl_frame *frame)
{
    const ddl_mesh_xfer_state due =
        frame->type == DDL_FRAME_BULK ? DDL_XFER_RECEIVING_GRANTED : DDL_XFER_RECEIVING;
    return xfer->state == due && xfer->bytes == frame->bytes;
}

/* Only who is broken sends what is not, if both are in the same operation. */
static void set_not_due(ddl_error *err, const ddl_frame *frame, const ddl_xfer *xfer)
{
    DDL_FAIL(err, DDL_EPROTO, "a message of %u bytes where one of %zu is due%s", (unsigned)frame->bytes,
             xfer->bytes, frame->bytes == xfer->bytes ? " in another way" : "");
}

/* Take over an eager message that came early. True: it is whole. */
static bool take_early_message(ddl_mesh_link *link, ddl_xfer *xfer, ddl_early *entry)
{
    ddl_frame frame = entry->frame;
    bool whole = entry->received == frame.bytes;
    ddl_earlies_drain(&link->earlies, entry, xfer);
    ddl_earlies_drop(&link->earlies, entry);
    if (!whole) {
        link->sink = DDL_SINK_XFER;
        link->sink_xfer = xfer;
        return false;
    }
    ddl_mesh_give_credit(link, ddl_chunks_for(frame.bytes));
    return true;
}

/* Of a message that does not come by itself: say how it may come, or take what was offered, or is to be read.
 * said: what the sender has said of it; NULL: nothing. */
static void invite(ddl_mesh_link *link, ddl_xfer *xfer, const ddl_early *said)
{
    const uint8_t type = said != NULL ? said->frame.type : 0;
    ddl_frame_place place;
    /* Written into the heap, the bytes stay in the cache of who writes there the next time as well. */
    if (xfer->take == NULL && xfer->bytes > DDL_FRAME_EAGER_LIMIT &&
        ddl_mesh_find_place(link, xfer, &place)) {
        ddl_moving_advance(xfer, 0);
        xfer->state = DDL_XFER_RECEIVING_PLACED;
        ddl_mesh_queue_place(link, xfer, DDL_FRAME_PLACE, &place);
        ddl_mesh_await_message(link, xfer);
        return;
    }
    if (type == DDL_FRAME_OFFER) {
        ddl_mesh_take_later(link, xfer, &said->place);
        return;
    }
    const bool is_pulled = ddl_mesh_is_pulled(link, xfer);
    if (type == DDL_FRAME_SOURCE && is_pulled) {
        ddl_mesh_pull_later(link, xfer, &said->place);
        return;
    }
    if (type != 0 || !is_pulled) /* else its sender says where it is, or asks */
        ddl_mesh_queue_grant(link, xfer);
    ddl_mesh_await_message(link, xfer);
}

static bool mesh_recv(ddl_transport *transport, ddl_xfer *xfer)
{
    ddl_mesh *mesh = DDL_CONTAINER(transport, ddl_mesh, transport);
    ddl_mesh_link *link = &mesh->links[xfer->peer];
    DDL_ASSERT(xfer->bytes > 0);
    DDL_ASSERT(xfer->bytes <= DDL_FRAME_BULK_LIMIT);
    xfer->state = DDL_XFER_RECEIVING;
    ddl_early *entry = ddl_earlies_find(&link->earlies, &link->earlies.messages, &xfer->key);
    if (entry == NULL && xfer->bytes > DDL_FRAME_EAGER_LIMIT) {
        invite(link, xfer, NULL);
        return false;
    }
    if (entry != NULL && entry->frame.type != DDL_FRAME_EAGER) {
        ddl_early said = *entry;
        ddl_earlies_drop(&link->earlies, entry);
        if (said.frame.type != DDL_FRAME_ASK && !ddl_signature_same(xfer->signature, &said.frame.signature))
            ddl_mesh_await_message(link, xfer);
        else
            invite(link, xfer, &said);
        return false;
    }
    const bool fits = entry != NULL && entry->frame.bytes == xfer->bytes;
    if (fits && take_early_message(link, xfer, entry)) {
        xfer->state = DDL_XFER_IDLE;
        return true;
    }
    ddl_mesh_await_message(link, xfer);
    /* Where signatures differ the owner has been told. So it has where an offer, or a place, is of another
     * operation. */
    if (entry != NULL && !fits && ddl_signature_same(xfer->signature, &entry->frame.signature)) {
        ddl_error error;
        set_not_due(&error, &entry->frame, xfer);
        ddl_mesh_link_lost(link, 0, &error);
    }
    return false;
}

/* False: the link cannot go on, as there is no memory. */
static bool cancel_striped(ddl_mesh_link *link, const ddl_xfer *xfer)
{
    if (xfer->state != DDL_XFER_SENDING_STRIPES && xfer->state != DDL_XFER_RECEIVING_STRIPES)
        return true;
    link->mesh->nstriped--;
    if (xfer->state == DDL_XFER_SENDING_STRIPES)
        return ddl_stripes_cancel_send(link->stripes, xfer);
    ddl_stripes_cancel_recv(link->stripes, xfer);
    return true;
}

static void end_without_memory(ddl_mesh_link *link)
{
    ddl_error error;
    DDL_FAIL(&error, DDL_ENOMEM, "no memory for the rest of a message");
    link->deaf = true; /* whatever is said now would be taken for the rest */
    ddl_mesh_link_lost(link, 0, &error);
    shutdown(link->wire.fd, SHUT_WR);
}

static void mesh_cancel(ddl_transport *transport, ddl_xfer *xfer)
{
    ddl_mesh *mesh = DDL_CONTAINER(transport, ddl_mesh, transport);
    ddl_mesh_link *link = &mesh->links[xfer->peer];
    if (xfer->state == DDL_XFER_IDLE)
        return;
    bool under_way = link->begun && link->header_sent > 0 && ddl_list_first(&link->sending) == &xfer->link;
    /* What has not left takes its chunks, and the credit in its header, back: the link may live on. */
    if (xfer->state == DDL_XFER_SENDING_EAGER && !under_way)
        link->budget += ddl_chunks_for(xfer->bytes);
    if (link->begun && ddl_list_first(&link->sending) == &xfer->link) {
        link->credit_due += under_way ? 0 : link->header_credit;
        link->begun = false;
    }
    bool receives = xfer->state >= DDL_XFER_RECEIVING;
    if (xfer->state == DDL_XFER_OFFERED || xfer->state == DDL_XFER_RECEIVING_PLACED)
        ddl_mesh_withdraw(mesh, xfer);
    if (xfer->state == DDL_XFER_LENT)
        ddl_lane_withdraw(link->out);
    if (ddl_link_linked(&xfer->expected.link))
        ddl_mesh_stop_expecting(link, xfer);
    else
        ddl_list_remove(&xfer->link);
    bool sound = cancel_striped(link, xfer);
    if (xfer->state == DDL_XFER_RECEIVING_GRANTED)
        link->bulk_due--;
    if (receives && link->sink == DDL_SINK_XFER && link->sink_xfer == xfer)
        link->sink = DDL_SINK_DROP;
    xfer->state = DDL_XFER_IDLE;
    /* Half a message cannot be taken back, and must not be completed with other bytes. */
    if (under_way && link->state == DDL_LINK_OPEN)
        sound = ddl_mesh_finish_from_copy(link, xfer);
    if (!sound)
        end_without_memory(link);
    if (link->stripes != NULL)
        ddl_mesh_mark_dirty(link);
}

const struct ddl_transport_ops ddl_mesh_ops = { mesh_send, mesh_recv, mesh_cancel };

/* ---- frames ---- */

static bool hold_early(ddl_mesh_link *link, const ddl_frame *frame, ddl_list *list, ddl_error *err)
{
    ddl_early *entry = ddl_earlies_hold(&link->earlies, list, frame, err);
    if (entry != NULL && frame->type == DDL_FRAME_EAGER) {
        link->sink = DDL_SINK_EARLY;
        link->sink_early = entry;
    }
    return entry != NULL;
}

bool ddl_mesh_take_message(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = ddl_mesh_find_receive(link, frame);
    if (xfer != NULL && is_due(xfer, frame)) {
        if (xfer->state == DDL_XFER_RECEIVING_GRANTED)
            link->bulk_due--;
        xfer->state = DDL_XFER_RECEIVING;
        link->sink = DDL_SINK_XFER;
        link->sink_xfer = xfer;
        return true;
    }
    if (xfer != NULL && ddl_signature_same(xfer->signature, &frame->signature)) {
        set_not_due(err, frame, xfer);
        return false;
    }
    if (frame->type == DDL_FRAME_EAGER)
        return hold_early(link, frame, &link->earlies.messages, err);
    link->sink = DDL_SINK_DROP;
    return xfer != NULL || ddl_mesh_was_cancelled(link, frame, err);
}

bool ddl_mesh_was_cancelled(const ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err)
{
    const ddl_mesh_owner *owner = &link->mesh->owner;
    if (owner->cancels == NULL || owner->cancels(owner->arg, frame))
        return true;
    DDL_FAIL(err, DDL_EPROTO, "a frame of type %u for which nobody had asked", (unsigned)frame->type);
    return false;
}

bool ddl_mesh_take_grant(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = ddl_mesh_find_awaiting(link, frame);
    if (xfer == NULL)
        return hold_early(link, frame, &link->earlies.grants, err);
    if (xfer->state == DDL_XFER_OFFERED) /* the offer is on its way, and is answered by another frame */
        return true;
    ddl_mesh_stop_expecting(link, xfer);
    if (ddl_mesh_send_granted(link, xfer))
        ddl_mesh_send_done(link, xfer);
    return true;
}

bool ddl_mesh_take_ask(ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = ddl_mesh_find_receive(link, frame);
    if (xfer == NULL)
        return hold_early(link, frame, &link->earlies.messages, err);
    if (xfer->state == DDL_XFER_RECEIVING) /* else whoever asks is broken */
        ddl_mesh_queue_grant(link, xfer);
    return true;
}

/* ---- what came for steps that were not posted ---- */

void ddl_mesh_visit_early(ddl_mesh *mesh, uint32_t channel, uint64_t sequence,
                          void (*visit)(void *arg, int peer, const ddl_frame *frame), void *arg)
{
    for (int peer = 0; peer < mesh->nranks; peer++)
        if (peer != mesh->rank)
            ddl_earlies_visit(&mesh->links[peer].earlies, channel, sequence, visit, arg, peer);
}

static void forget_early(ddl_mesh_link *link, ddl_early *entry)
{
    if (link->sink == DDL_SINK_EARLY && link->sink_early == entry)
        link->sink = DDL_SINK_DROP; /* its end gives the credit */
    else if (entry->frame.type == DDL_FRAME_EAGER)
        ddl_mesh_give_credit(link, ddl_chunks_for(entry->frame.bytes));
    ddl_earlies_drop(&link->earlies, entry);
}

void ddl_mesh_forget(ddl_mesh *mesh, uint32_t first_channel, uint32_t count)
{
    for (int peer = 0; peer < mesh->nranks; peer++) {
        ddl_mesh_link *link = &mesh->links[peer];
        ddl_list *lists[] = { &link->earlies.messages, &link->earlies.grants };
        if (link->sink == DDL_SINK_PLACE && link->frame.channel - first_channel < count)
            link->sink = DDL_SINK_DROP;
        for (int i = 0; i < 2 && peer != mesh->rank; i++) {
            ddl_list turn;
            ddl_list_take_all(lists[i], &turn);
            for (ddl_link *first; (first = ddl_list_take_first(&turn)) != NULL;) {
                ddl_early *entry = DDL_CONTAINER(first, ddl_early, link);
                ddl_list_append(lists[i], &entry->link);
                if (entry->frame.channel - first_channel < count)
                    forget_early(link, entry);
            }
        }
    }
}
