/* mesh_link.c - finding what a frame is of, and what waits for the peer. */
#include "transport/mesh_link.h"

static uint64_t hash_of(int peer, uint32_t channel, uint64_t sequence, uint32_t piece, uint32_t number)
{
    uint64_t hash = sequence + UINT64_C(0x9e3779b97f4a7c15) * (piece + 31 * (uint64_t)number) +
                    UINT64_C(0xff51afd7ed558ccd) * (channel + 31 * (uint64_t)peer);
    hash ^= hash >> 32;
    return hash ^ hash >> 10;
}

/* What is to be put, taken or pulled is in turn for that, whatever else is said of it. */
static bool is_due(uint8_t state)
{
    return state == DDL_XFER_PUT_DUE || state == DDL_XFER_TAKE_DUE || state == DDL_XFER_PULL_DUE;
}

static ddl_xfer *find(const ddl_mesh_link *link, const ddl_frame *frame, bool receives)
{
    const uint64_t hash = hash_of(link->peer, frame->channel, frame->sequence, frame->piece, frame->number);
    DDL_LIST_FOR_EACH (each, ddl_table_row(&link->mesh->expected, hash)) {
        ddl_xfer *xfer = DDL_CONTAINER(each, ddl_xfer, expected.link);
        if (xfer->peer == link->peer && (xfer->state >= DDL_XFER_RECEIVING) == receives &&
            !is_due(xfer->state) && ddl_frame_is_of(frame, &xfer->key))
            return xfer;
    }
    return NULL;
}

ddl_xfer *ddl_mesh_find_receive(const ddl_mesh_link *link, const ddl_frame *frame)
{
    return find(link, frame, true);
}

ddl_xfer *ddl_mesh_find_awaiting(const ddl_mesh_link *link, const ddl_frame *frame)
{
    return find(link, frame, false);
}

ddl_frame ddl_mesh_frame_of(const ddl_xfer *xfer, ddl_frame_type type)
{
    return (ddl_frame){
        .type = (uint8_t)type,
        .channel = xfer->key.channel,
        .sequence = xfer->key.sequence,
        .piece = xfer->key.piece,
        .number = xfer->key.number,
        .signature = *xfer->signature,
    };
}

void ddl_mesh_want_link(ddl_mesh_link *link)
{
    if (link->state != DDL_LINK_UNUSED)
        return;
    link->state = DDL_LINK_MEETING;
    link->mesh->owner.reach(link->mesh->owner.arg, link->peer);
}

/* So many more, or fewer, posted xfers wait for the peer. */
static void count_expected(ddl_mesh_link *link, int change)
{
    bool before = link->expecting > 0;
    link->expecting += change;
    bool now = link->expecting > 0;
    if (link->in != NULL) /* lanes are looked at anyway */
        return;
    if (now && !before) {
        ddl_list_append(&link->mesh->hot, &link->hot);
        link->mesh->nhot++;
        ddl_mesh_want_link(link);
    } else if (before && !now) {
        ddl_list_remove(&link->hot);
        link->mesh->nhot--;
    }
}

void ddl_mesh_expect(ddl_mesh_link *link, ddl_list *list, ddl_xfer *xfer)
{
    const ddl_key *key = &xfer->key;
    ddl_list_append(list, &xfer->link);
    ddl_table_add(&link->mesh->expected, &xfer->expected,
                  hash_of(link->peer, key->channel, key->sequence, key->piece, key->number));
    count_expected(link, 1);
}

void ddl_mesh_stop_expecting(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_list_remove(&xfer->link);
    ddl_table_remove(&link->mesh->expected, &xfer->expected);
    count_expected(link, -1);
}

void ddl_mesh_await_message(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_mesh_expect(link, &link->receives, xfer);
}

void ddl_mesh_send_done(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_engine_moved(link->mesh->engine);
    xfer->done(xfer);
}

void ddl_mesh_receive_done(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_mesh_stop_expecting(link, xfer);
    xfer->state = DDL_XFER_IDLE;
    ddl_engine_moved(link->mesh->engine);
    xfer->done(xfer);
}

static bool has_striped_queued(const ddl_mesh_link *link)
{
    return link->stripes != NULL && ddl_stripes_has_queued(link->stripes);
}

void ddl_mesh_mark_dirty(ddl_mesh_link *link)
{
    bool blocked = ddl_mesh_holds(link) && !ddl_link_linked(&link->holding);
    bool due = link->state == DDL_LINK_OPEN && !link->deaf &&
               (link->control.bytes > 0 || blocked || !ddl_list_empty(&link->sending) ||
                ddl_mesh_has_unsent(link) || has_striped_queued(link));
    if (due && !ddl_link_linked(&link->dirty))
        ddl_list_append(&link->mesh->dirty, &link->dirty);
    else if (!due && ddl_link_linked(&link->dirty))
        ddl_list_remove(&link->dirty);
}
