/* mesh_write.c - control frames first, then the frames of xfers, each whole before the next. */
#include "transport/mesh_link.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "base/size.h"
#include "io/socket.h"
#include "transport/moving.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    GATHERED_BYTES = 2 * 1024, /* so few are copied together: one part costs the kernel less than several */
    CREDIT_AT = DDL_CHUNKS / 2 /* consumed chunks that are told without waiting for a frame to ride on */
};

/* ---- control frames ---- */

static bool may_go_in_stripes(const ddl_mesh_link *link, const ddl_xfer *xfer)
{
    return link->stripes != NULL && xfer->bytes > DDL_FRAME_EAGER_LIMIT;
}

/* As the receiver knows before it comes; where its sender chooses, the first stripe tells. */
static bool is_due_in_stripes(const ddl_mesh_link *link, const ddl_xfer *xfer)
{
    return may_go_in_stripes(link, xfer) && link->offered == 0;
}

void ddl_mesh_queue_control(ddl_mesh_link *link, const ddl_frame *frame, const void *payload)
{
    if (link->state >= DDL_LINK_LEAVING && !link->last_words)
        return;
    ddl_mesh_want_link(link);
    ddl_frame with_credit = *frame;
    with_credit.credit = link->credit_due;
    uint8_t bytes[DDL_FRAME_BYTES];
    const size_t before = link->control.bytes;
    ddl_frame_encode(&with_credit, bytes);
    if (!ddl_bytes_append(&link->control, bytes, sizeof bytes) ||
        !ddl_bytes_append(&link->control, payload, frame->bytes)) {
        ddl_error error;
        link->control.bytes = before; /* half a frame must not be followed by another */
        DDL_FAIL(&error, DDL_ENOMEM, "no memory for a control frame");
        ddl_mesh_link_lost(link, 0, &error);
        return;
    }
    link->credit_due = 0;
    link->bytes_said += link->control.bytes - before;
    ddl_mesh_mark_dirty(link);
}

static void await_stripes(ddl_mesh_link *link, ddl_xfer *xfer)
{
    xfer->state = DDL_XFER_RECEIVING_STRIPES;
    xfer->stripes = 0;
    link->mesh->nstriped++;
}

void ddl_mesh_comes_in_stripes(ddl_mesh_link *link, ddl_xfer *xfer)
{
    DDL_ASSERT(xfer->state == DDL_XFER_RECEIVING_GRANTED);
    link->bulk_due--;
    await_stripes(link, xfer);
}

void ddl_mesh_await_in_stripes(ddl_mesh_link *link)
{
    DDL_LIST_FOR_EACH (each, &link->receives) {
        ddl_xfer *xfer = DDL_CONTAINER(each, ddl_xfer, link);
        if (xfer->state == DDL_XFER_RECEIVING_GRANTED && is_due_in_stripes(link, xfer))
            ddl_mesh_comes_in_stripes(link, xfer);
    }
}

void ddl_mesh_queue_grant(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_frame grant = ddl_mesh_frame_of(xfer, DDL_FRAME_GRANT);
    if (is_due_in_stripes(link, xfer)) {
        await_stripes(link, xfer);
    } else {
        xfer->state = DDL_XFER_RECEIVING_GRANTED;
        link->bulk_due++;
    }
    ddl_mesh_queue_control(link, &grant, NULL);
}

void ddl_mesh_give_credit(ddl_mesh_link *link, uint32_t chunks)
{
    link->credit_due += chunks;
    if (link->credit_due < CREDIT_AT)
        return;
    ddl_frame credit = { .type = DDL_FRAME_CREDIT };
    ddl_mesh_queue_control(link, &credit, NULL);
}

/* ---- lanes ---- */

/* The peer may have to be woken. That is looked at once per turn, when there is nothing more to tell and the
 * look, which must wait until what was written is visible, holds up nobody. */
void ddl_mesh_owe_nudge(ddl_mesh_link *link)
{
    if (!link->nudge_due)
        link->mesh->nudges_due[link->mesh->nnudges_due++] = link->peer;
    link->nudge_due = true;
}

void ddl_mesh_pay_nudges(ddl_mesh *mesh)
{
    if (mesh->nnudges_due == 0)
        return;
    ddl_lanes_wake(mesh->lanes, mesh->nudges_due, mesh->nnudges_due);
    for (int i = 0; i < mesh->nnudges_due; i++)
        mesh->links[mesh->nudges_due[i]].nudge_due = false;
    mesh->nnudges_due = 0;
}

/* As sendmsg, without waiting. */
static ssize_t write_lane(ddl_mesh_link *link, const struct iovec *iov, int count)
{
    size_t written = ddl_lane_write(link->out, iov, count);
    if (written == 0) {
        errno = EAGAIN;
        return -1;
    }
    ddl_mesh_owe_nudge(link);
    return (ssize_t)written;
}

/* ---- frames ---- */

static ssize_t send_parts(ddl_mesh_link *link, struct iovec *iov, int count)
{
    if (link->out != NULL)
        return write_lane(link, iov, count);
    if (DDL_FAILPOINT_OS("mesh.send", ECONNRESET))
        return -1;
    if (ddl_mesh_is_encrypted(link))
        return ddl_wire_write_parts(&link->wire, iov, count, link->mesh->gathered);
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += iov[i].iov_len;
    if (bytes > GATHERED_BYTES) {
        struct msghdr message = { .msg_iov = iov, .msg_iovlen = (unsigned)count };
        return sendmsg(link->wire.fd, &message, MSG_NOSIGNAL);
    }
    uint8_t *end = link->mesh->gathered;
    for (int i = 0; i < count; end += iov[i++].iov_len)
        memcpy(end, iov[i].iov_base, iov[i].iov_len);
    if (DDL_FAILPOINT("mesh.short"))
        bytes = (bytes + 1) / 2;
    return send(link->wire.fd, link->mesh->gathered, bytes, MSG_NOSIGNAL);
}

static void begin_frame(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_frame frame = ddl_mesh_frame_of(xfer, xfer->state == DDL_XFER_SENDING_EAGER  ? DDL_FRAME_EAGER
                                              : xfer->state == DDL_XFER_SENDING_REST ? DDL_FRAME_REST
                                                                                     : DDL_FRAME_BULK);
    frame.bytes = (uint32_t)(xfer->bytes - xfer->hole_bytes);
    frame.credit = link->header_credit = link->credit_due;
    link->credit_due = 0;
    ddl_frame_encode(&frame, link->header);
    link->header_sent = 0;
    link->begun = true;
}

/* The system says but once that a connection was reset, and then that it has ended. */
static void become_deaf(ddl_mesh_link *link, int os_errno)
{
    link->deaf = true;
    link->reset_errno = os_errno == ECONNRESET ? os_errno : 0;
}

/* What a write is to take, and how much of what is held and of control is in front of the message. */
typedef struct going_out {
    ddl_xfer *xfer; /* NULL: none */
    struct iovec iov[3 + DDL_MOVING_PARTS];
    int count;
    size_t held, control;
} going_out;

static void add_part(going_out *out, uint8_t *data, size_t bytes)
{
    out->iov[out->count++] = (struct iovec){ data, bytes };
}

static void gather_parts(ddl_mesh_link *link, going_out *out)
{
    ddl_link *first = ddl_list_first(&link->sending);
    const bool between_frames = !link->begun || link->header_sent == 0;
    out->xfer = first != NULL ? DDL_CONTAINER(first, ddl_xfer, link) : NULL;
    out->count = 0;
    out->held = ddl_mesh_holds(link) ? link->held_bytes - link->held_sent : 0;
    out->control = between_frames ? link->control.bytes - link->control_sent : 0;
    if (out->held > 0)
        add_part(out, link->held + link->held_sent, out->held);
    if (out->control > 0)
        add_part(out, link->control.data + link->control_sent, out->control);
    if (out->xfer == NULL)
        return;
    if (!link->begun)
        begin_frame(link, out->xfer);
    if (link->header_sent < DDL_FRAME_BYTES)
        add_part(out, link->header + link->header_sent, DDL_FRAME_BYTES - link->header_sent);
    out->count = ddl_moving_parts_left(out->xfer, out->iov, out->count);
}

static void fail_to_write(ddl_mesh_link *link)
{
    if (ddl_socket_is_full(errno))
        ddl_mesh_want_writable(link, true);
    else if (ddl_socket_is_hung_up(errno))
        become_deaf(link, errno);
    else
        ddl_mesh_link_broke(link, errno);
}

/* So many bytes of these have left. The message whose last byte was among them, or NULL. */
static ddl_xfer *take_as_sent(ddl_mesh_link *link, const going_out *out, size_t bytes)
{
    ddl_xfer *xfer = out->xfer;
    link->has_left = true;
    const size_t of_held = ddl_size_min(bytes, out->held);
    const size_t of_control = ddl_size_min(bytes - of_held, out->control);
    if (out->held > 0)
        ddl_mesh_held_left(link, of_held);
    link->control_sent += of_control;
    if (link->control_sent == link->control.bytes)
        link->control.bytes = link->control_sent = 0;
    if (xfer == NULL)
        return NULL;
    bytes -= of_held + of_control;
    const size_t of_header = ddl_size_min(bytes, DDL_FRAME_BYTES - link->header_sent);
    link->header_sent += of_header;
    ddl_moving_advance(xfer, bytes - of_header);
    /* What TLS has kept is not sent yet: nobody would flush it once everything is taken for done. */
    if (link->header_sent < DDL_FRAME_BYTES || xfer->moved < xfer->bytes || ddl_mesh_has_unsent(link))
        return NULL;
    ddl_list_remove(&xfer->link);
    xfer->state = DDL_XFER_IDLE;
    link->begun = false;
    return xfer;
}

/* One write. False: nothing to write, or the socket takes no more. *finished: the xfer whose last byte left.
 */
static bool write_some(ddl_mesh_link *link, ddl_xfer **finished)
{
    *finished = NULL;
    if (link->deaf)
        return false;
    going_out out;
    gather_parts(link, &out);
    if (out.count == 0 && out.xfer == NULL && !ddl_mesh_has_unsent(link)) {
        ddl_mesh_want_writable(link, false);
        return false;
    }
    const ssize_t result = send_parts(link, out.iov, out.count);
    if (result < 0 && errno == EINTR)
        return true;
    if (result < 0) {
        fail_to_write(link);
        return false;
    }
    *finished = take_as_sent(link, &out, (size_t)result);
    return true;
}

void ddl_mesh_flush_link(ddl_mesh_link *link)
{
    if (link->flushing || link->state != DDL_LINK_OPEN)
        return;
    link->flushing = true;
    ddl_xfer *finished;
    while (link->state == DDL_LINK_OPEN && write_some(link, &finished))
        if (finished != NULL) {
            ddl_engine_moved(link->mesh->engine);
            finished->done(finished);
        }
    link->flushing = false;
    if (link->stripes != NULL && link->state == DDL_LINK_OPEN)
        ddl_stripes_flush(link->stripes);
    ddl_mesh_mark_dirty(link);
}

void ddl_mesh_write_held(ddl_mesh_link *link)
{
    ddl_xfer *finished;
    if (!link->flushing)
        while (link->state == DDL_LINK_OPEN && ddl_mesh_holds(link) && ddl_list_empty(&link->sending) &&
               write_some(link, &finished))
            ;
    ddl_mesh_mark_dirty(link);
}

bool ddl_mesh_send_frame(ddl_mesh_link *link, ddl_xfer *xfer, ddl_mesh_xfer_state state)
{
    bool idle = ddl_list_empty(&link->sending) && !link->flushing;
    const bool small = idle && state == DDL_XFER_SENDING_EAGER && ddl_mesh_is_small(link, xfer);
    if (small && ddl_mesh_hold(link, xfer))
        return true;
    xfer->state = (uint8_t)state;
    ddl_list_append(&link->sending, &xfer->link);
    if (!idle)
        return false;
    link->flushing = true;
    ddl_xfer *finished = NULL;
    while (link->state == DDL_LINK_OPEN && finished == NULL && write_some(link, &finished))
        ;
    link->flushing = false;
    ddl_mesh_mark_dirty(link);
    if (small)
        ddl_mesh_sent_small(link->mesh);
    return finished == xfer;
}

bool ddl_mesh_send_granted(ddl_mesh_link *link, ddl_xfer *xfer)
{
    link->sent_large = true;
    if (!may_go_in_stripes(link, xfer) || (link->offered > 0 && link->climb.count == 1))
        return ddl_mesh_send_frame(link, xfer, DDL_XFER_SENDING_BULK);
    xfer->state = DDL_XFER_SENDING_STRIPES;
    link->mesh->nstriped++;
    bool left = ddl_stripes_send(link->stripes, xfer);
    if (left) {
        link->mesh->nstriped--;
        xfer->state = DDL_XFER_IDLE;
    }
    ddl_mesh_mark_dirty(link);
    return left;
}

/* ---- when a message, or the link, has to end ---- */

bool ddl_mesh_finish_from_copy(ddl_mesh_link *link, ddl_xfer *xfer)
{
    ddl_bytes bytes = { 0 };
    struct iovec parts[DDL_MOVING_PARTS];
    int count = ddl_moving_parts_left(xfer, parts, 0);
    bool copied =
        ddl_bytes_append(&bytes, link->header + link->header_sent, DDL_FRAME_BYTES - link->header_sent);
    for (int i = 0; i < count; i++)
        copied = copied && ddl_bytes_append(&bytes, parts[i].iov_base, parts[i].iov_len);
    copied = copied && ddl_bytes_append(&bytes, link->control.data + link->control_sent,
                                        link->control.bytes - link->control_sent);
    if (!copied) {
        ddl_bytes_fini(&bytes);
        return false;
    }
    ddl_bytes_fini(&link->control);
    link->control = bytes;
    link->control_sent = 0;
    ddl_mesh_mark_dirty(link);
    return true;
}

void ddl_mesh_say_last_words(ddl_mesh_link *link)
{
    struct iovec words = { link->control.data + link->control_sent,
                           link->control.bytes - link->control_sent };
    bool between_frames = (!link->begun || link->header_sent == 0) && link->held_sent == 0;
    if (between_frames && words.iov_len > 0)
        (void)!send_parts(link, &words, 1);
}
