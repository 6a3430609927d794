/* mesh_stripes.c - what a link is to its further connections. */
#include "transport/mesh_link.h"

#include "base/assert.h"
#include "io/socket.h"

static bool find_striped(void *arg, const ddl_frame *frame, ddl_xfer **found, ddl_error *err)
{
    ddl_mesh_link *link = arg;
    ddl_mesh *mesh = link->mesh;
    ddl_engine_moved(mesh->engine);
    if (!mesh->owner.heard(mesh->owner.arg, link->peer, frame))
        return true;
    ddl_xfer *xfer = ddl_mesh_find_receive(link, frame);
    if (xfer == NULL)
        return ddl_mesh_was_cancelled(link, frame, err);
    if (!ddl_signature_same(xfer->signature, &frame->signature))
        return true; /* the owner knows that */
    if (link->offered > 0 && xfer->state == DDL_XFER_RECEIVING_GRANTED && xfer->bytes > DDL_FRAME_EAGER_LIMIT)
        ddl_mesh_comes_in_stripes(link, xfer);
    if (xfer->state != DDL_XFER_RECEIVING_STRIPES) {
        DDL_FAIL(err, DDL_EPROTO, "a stripe of a message of %zu bytes that is not due in stripes",
                 xfer->bytes);
        return false;
    }
    if (ddl_frame_check_stripe(frame, xfer->bytes, xfer->stripes, err) != DDL_OK)
        return false;
    xfer->stripes |= UINT32_C(1) << frame->credit;
    *found = xfer;
    return true;
}

static void stripes_received(void *arg, ddl_xfer *xfer)
{
    ddl_mesh_link *link = arg;
    link->mesh->nstriped--;
    ddl_mesh_receive_done(link, xfer);
}

static void stripes_sent(void *arg, ddl_xfer *xfer)
{
    ddl_mesh_link *link = arg;
    link->mesh->nstriped--;
    xfer->state = DDL_XFER_IDLE;
    ddl_mesh_send_done(link, xfer);
}

static ddl_frame stripe_frame(void *arg, const ddl_xfer *xfer)
{
    (void)arg;
    return ddl_mesh_frame_of(xfer, DDL_FRAME_STRIPE);
}

static void stripes_left(void *arg)
{
    ddl_mesh_link *link = arg;
    if (link->state == DDL_LINK_LEAVING)
        ddl_mesh_leave(link);
}

static void stripes_lost(void *arg, int which, int os_errno, const ddl_error *error)
{
    ddl_mesh_connection_lost(arg, which + 2, os_errno, error);
}

/* What the peer said before it ended, on the first connection, goes before: why, for one. */
static void stripes_ended(void *arg, int which, int os_errno, const ddl_error *error)
{
    ddl_mesh_link *link = arg;
    if (link->state == DDL_LINK_OPEN)
        ddl_mesh_read_to_the_end(link);
    if (link->state == DDL_LINK_OPEN || link->state == DDL_LINK_LEAVING)
        ddl_mesh_connection_lost(link, which + 2, os_errno, error);
}

static void stripes_changed(void *arg)
{
    ddl_mesh_link *link = arg;
    ddl_mesh_mark_dirty(link);
    ddl_mesh_note_unread(link);
}

static void stripes_given_up(void *arg)
{
    ddl_mesh_link *link = arg;
    ddl_climb_limit(&link->climb, ddl_stripes_most(link->stripes));
    ddl_stripes_use(link->stripes, link->climb.count);
}

static ddl_status make_stripes(ddl_mesh_link *link, const ddl_wire wires[], int count, ddl_error *err)
{
    const ddl_stripes_owner owner = {
        .find = find_striped,
        .received = stripes_received,
        .sent = stripes_sent,
        .frame = stripe_frame,
        .left = stripes_left,
        .lost = stripes_lost,
        .ended = stripes_ended,
        .changed = stripes_changed,
        .given_up = link->offered > 0 ? stripes_given_up : NULL,
        .arg = link,
    };
    DDL_ASSERT(link->stripes == NULL);
    DDL_ASSERT(link->in == NULL);
    return ddl_stripes_create(wires, count, &owner, link->mesh->gathered, &link->stripes, err);
}

ddl_status ddl_mesh_widen(ddl_mesh *mesh, int peer, const ddl_wire wires[], int count, ddl_error *err)
{
    ddl_mesh_link *link = &mesh->links[peer];
    DDL_TRY(make_stripes(link, wires, count, err));
    ddl_mesh_await_in_stripes(link);
    return DDL_OK;
}

/* ---- as many as help ---- */

enum { ASK_FOR = 2 }; /* without further connections: whether one is what a network keeps waiting */

void ddl_mesh_let_choose(ddl_mesh *mesh, int peer, int most)
{
    ddl_mesh_link *link = &mesh->links[peer];
    mesh->by_choice = true;
    link->offered = most;
    ddl_climb_begin(&link->climb, ASK_FOR);
}

/* Both ends listen. */
static bool may_choose(const ddl_mesh_link *link)
{
    return link->stripes != NULL && link->peer_widened;
}

static void begin_to_choose(ddl_mesh_link *link)
{
    if (may_choose(link))
        ddl_climb_begin(&link->climb, ddl_stripes_most(link->stripes));
}

bool ddl_mesh_hear_widened(ddl_mesh_link *link, ddl_error *err)
{
    if (link->offered == 0 || link->peer_widened) {
        DDL_FAIL(err, DDL_EPROTO, "further connections where none were offered, or a second time");
        return false;
    }
    link->peer_widened = true;
    begin_to_choose(link);
    return true;
}

ddl_status ddl_mesh_widen_late(ddl_mesh *mesh, int peer, const ddl_wire wires[], ddl_error *err)
{
    ddl_mesh_link *link = &mesh->links[peer];
    const ddl_frame widened = { .type = DDL_FRAME_WIDENED };
    if (link->state != DDL_LINK_OPEN || mesh->parting) {
        for (int i = 0; i < link->offered; i++) {
            ddl_wire wire = wires[i];
            ddl_wire_close(&wire);
        }
        return DDL_OK;
    }
    DDL_TRY(make_stripes(link, wires, link->offered, err));
    for (int i = 0; i < link->offered; i++)
        ddl_socket_stay_known(wires[i].fd);
    ddl_status status = ddl_stripes_open(link->stripes, mesh->engine, err);
    if (status != DDL_OK) { /* the peer sees that they end, and neither has sent anything */
        ddl_stripes_close(link->stripes);
        ddl_climb_begin(&link->climb, 1);
        return status;
    }
    ddl_mesh_queue_control(link, &widened, NULL);
    begin_to_choose(link);
    ddl_mesh_flush_link(link);
    return DDL_OK;
}

/* What the connections in use have done. */
static bool look(const ddl_mesh_link *link, ddl_climb_look *found)
{
    ddl_socket_acks acks;
    if (link->climb.count > 1)
        return ddl_stripes_look(link->stripes, found);
    if (!ddl_socket_ask_acks(link->wire.fd, &acks))
        return false;
    *found = (ddl_climb_look){ acks.acked_bytes, acks.busy_us,
                               acks.has_unsent || !ddl_list_empty(&link->sending) };
    return true;
}

static void ask_for_more(ddl_mesh_link *link)
{
    const ddl_mesh_owner *owner = &link->mesh->owner;
    ddl_climb_begin(&link->climb, 1);
    owner->widen(owner->arg, link->peer);
}

static void choose(ddl_mesh_link *link, int64_t now_ns)
{
    ddl_climb_look found;
    if (!look(link, &found))
        return;
    link->sent_large = found.has_more;
    if (!ddl_climb_see(&link->climb, &found, now_ns))
        return;
    if (may_choose(link))
        ddl_stripes_use(link->stripes, link->climb.count);
    else
        ask_for_more(link);
}

void ddl_mesh_choose(ddl_mesh *mesh, int64_t now_ns)
{
    for (int peer = 0; peer < mesh->nranks && mesh->by_choice; peer++) {
        ddl_mesh_link *link = &mesh->links[peer];
        if (link->offered > 0 && link->sent_large && link->state == DDL_LINK_OPEN &&
            !ddl_climb_rests(&link->climb, now_ns))
            choose(link, now_ns);
    }
}

/* ---- cut off ---- */

/* Of a rank that is heard by the first one, as whoever waits for something asks for a sign: if it is not, it
 * is its host that is cut off, which is found by others. */
static void watch(ddl_mesh_link *link, const ddl_vigil_limits *limits, int64_t now_ns)
{
    const int which = ddl_stripes_find_cut_off(link->stripes, limits, now_ns);
    ddl_error error;
    if (link->bytes_read != link->heard_before)
        link->heard_ns = now_ns;
    link->heard_before = link->bytes_read;
    if (which < 0 || now_ns - link->heard_ns > limits->unreachable_ns / 2)
        return;
    (void)ddl_error_set(
        &error, DDL_EUNREACHABLE,
        "on connection %d of %d nothing has been acknowledged for %.1f s "
        "(DDL_UNREACH_TIMEOUT), though the rank is heard; does something on the way drop that "
        "connection? DDL_STREAMS=1 does with one",
        which + 2, 1 + ddl_stripes_count(link->stripes), (double)limits->unreachable_ns / 1e9);
    ddl_mesh_connection_lost(link, which + 2, 0, &error);
}

/* Of a rank that has said goodbye on the first one: what it sent before that comes over the others, and the
 * end of each, or it is cut off. */
static void watch_leaving(ddl_mesh_link *link, const ddl_vigil_limits *limits, int64_t now_ns)
{
    const ddl_vigil_limits silence = { limits->unreachable_ns, limits->unreachable_ns };
    const ddl_signs signs = { .heard = ddl_stripes_heard(link->stripes) };
    ddl_error error;
    bool ping; /* nobody answers any more */
    if (ddl_vigil_look(&link->leaving, &signs, &silence, now_ns, &ping) == DDL_VIGIL_ALIVE)
        return;
    (void)ddl_error_set(&error, DDL_EUNREACHABLE,
                        "it has left, but nothing came over the rest of its %d connections for %.1f s "
                        "(DDL_UNREACH_TIMEOUT); is its host down, or cut off?",
                        1 + ddl_stripes_count(link->stripes), (double)limits->unreachable_ns / 1e9);
    ddl_mesh_link_lost(link, 0, &error);
}

void ddl_mesh_watch_stripes(ddl_mesh *mesh, const ddl_vigil_limits *limits, int64_t now_ns)
{
    for (int peer = 0; peer < mesh->nranks; peer++) {
        ddl_mesh_link *link = &mesh->links[peer];
        if (link->stripes != NULL && link->state == DDL_LINK_OPEN)
            watch(link, limits, now_ns);
        else if (link->state == DDL_LINK_LEAVING)
            watch_leaving(link, limits, now_ns);
    }
}
