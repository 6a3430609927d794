/* mesh_link.c - finding what a frame is of, and what waits for the peer. */
#include "transport/mesh_link.h"

#include "base/assert.h"

ddl_xfer *ddl_mesh_find_xfer(const ddl_list *list, const ddl_frame *frame)
{
    DDL_LIST_FOR_EACH (link, list) {
        ddl_xfer *xfer = DDL_CONTAINER(link, ddl_xfer, link);
        if (ddl_frame_is_of(frame, &xfer->key))
            return xfer;
    }
    return NULL;
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

void ddl_mesh_expect(ddl_mesh_link *link, int change)
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

void ddl_mesh_stop_expecting(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_list_remove(&xfer->link);
    ddl_mesh_expect(link, -1);
}

void ddl_mesh_await_message(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_list_append(&link->receives, &xfer->link);
    ddl_mesh_expect(link, 1);
}

void ddl_mesh_send_done(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_engine_moved(link->mesh->engine);
    xfer->done(xfer);
}

void ddl_mesh_receive_done(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_list_remove(&xfer->link);
    xfer->state = DDL_XFER_IDLE;
    ddl_mesh_expect(link, -1);
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
