/*
 * transport_mesh.c - links, matching, flow control. See transport_mesh.h for the protocol.
 */
#include "transport/transport_mesh.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/size.h"
#include "io/local.h"
#include "io/socket.h"
#include "transport/doze.h"
#include "transport/early.h"
#include "transport/moving.h"
#include "transport/stripes.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    CONTROL_BYTES = 1024,
    CREDIT_AT = DDL_CHUNKS / 2, /* consumed chunks that are told without waiting for a frame to ride on */
    STAGING_BYTES = 64 * 1024 + DDL_FRAME_BYTES,
    STAGING_BEFORE_BULK = 4 * 1024, /* when bulk is due: what lands here has to be copied */
    GATHERED_BYTES = 2 * 1024, /* so few are copied together: one part costs the kernel less than several */
    READS_PER_TURN = 8,
    POLLED_LINKS = 4 /* up to so many expected links are read without asking the loop */
};

/* ddl_xfer.state */
enum {
    IDLE,
    SENDING_EAGER,
    SENDING_BULK,
    SENDING_REST,
    SENDING_STRIPES,
    AWAITING_GRANT,
    OFFERED, /* awaiting that it is taken, or a place to put it */
    LENT,    /* likewise, or a grant: the peer was told the source */
    PUT_DUE,
    RECEIVING,
    RECEIVING_GRANTED,
    RECEIVING_STRIPES,
    RECEIVING_PLACED, /* the peer may write into the heap */
    TAKE_DUE,
    PULL_DUE,
    RECEIVING_REST
};

typedef enum sink { SINK_NONE, SINK_XFER, SINK_EARLY, SINK_NOTICE, SINK_PLACE, SINK_DROP } sink_kind;

typedef enum link_state {
    LINK_OPEN,
    LINK_UNUSED,  /* not connected, as nobody wants it to be */
    LINK_MEETING, /* not connected yet */
    LINK_LEAVING, /* the peer has said goodbye, but not yet behind its last stripes */
    LINK_LEFT,
    LINK_LOST
} link_state;

typedef struct peer_link {
    ddl_mesh *mesh;
    int peer;
    ddl_wire wire;
    ddl_stripes *stripes;   /* further connections; NULL: none */
    ddl_lane_end *in, *out; /* the stream is two lanes; NULL: it is the connection */
    bool shares_heaps;
    uint8_t *heap; /* the peer's */
    size_t heap_bytes;
    link_state state;
    uv_poll_t poll;
    bool poll_open, wants_writable;
    bool last_words; /* the owner is being told that the link is lost, and may still answer */
    bool deaf; /* a write failed. What the peer said before it closed may still be unread: reading tells the
                  end */

    /* Incoming */
    uint64_t bytes_read;
    uint8_t partial[DDL_FRAME_BYTES]; /* a header that has not come whole */
    size_t partial_bytes;
    ddl_frame frame;     /* whose payload is coming */
    size_t payload_left; /* of it */
    sink_kind sink;
    ddl_xfer *sink_xfer;
    ddl_early *sink_early;
    uint8_t notice[DDL_FRAME_NOTICE_LIMIT];
    ddl_list receives; /* posted xfers, oldest first */
    ddl_earlies earlies;
    uint32_t bulk_due;   /* receives granted, message not begun */
    uint32_t credit_due; /* chunks consumed and not told */

    /* Outgoing */
    uint32_t budget;   /* chunks that may still be sent eagerly */
    ddl_list sending;  /* xfers whose frame is due; the first may be under way */
    ddl_list awaiting; /* xfers that wait for a grant */
    ddl_bytes control; /* frames without xfer */
    size_t control_sent;
    uint8_t header[DDL_FRAME_BYTES]; /* of the first of sending */
    size_t header_sent;
    uint32_t header_credit; /* in it */
    bool begun;             /* the first of sending has its header encoded */
    bool flushing;

    int expecting;   /* posted receives and awaited grants */
    bool nudge_due;  /* something was written to the lane since the peer was last looked at */
    ddl_link hot;    /* in mesh->hot while expecting > 0 */
    ddl_link dirty;  /* in mesh->dirty while something is queued */
    ddl_link unread; /* in mesh->unread while its TLS session holds bytes that no poll shows */
} peer_link;

struct ddl_mesh {
    ddl_transport transport;
    int rank, nranks;
    ddl_mesh_owner owner;
    ddl_engine *engine;
    ddl_lanes *lanes; /* NULL: none */
    ddl_heap *heap;   /* the own one; NULL: none */
    size_t page_bytes;
    size_t pull_bytes;   /* messages of so many and more are read at their source where that is possible */
    peer_link **by_lane; /* those whose stream is lanes; nby_lane of them */
    int *nudges_due;     /* to these of their ranks, nnudges_due of them */
    int nby_lane, nnudges_due;
    uv_poll_t bell; /* of the lanes */
    bool bell_open;
    peer_link *links; /* nranks; the own one is unused */
    ddl_list hot, dirty, unread;
    ddl_list due; /* xfers whose pages are to be put or taken */
    int nhot;
    int nstriped; /* xfers that go in stripes */
    ddl_early_pool early_pool;
    bool closed;
    uint8_t *staging;
    uint8_t gathered[DDL_WIRE_ROOM_BYTES]; /* also the stripes' room */
};

static void link_lost(peer_link *link, int os_errno, const ddl_error *error);
static void link_broke(peer_link *link, int os_errno);
static void stop_watching(peer_link *link);
static void let_go_of_heap(peer_link *link);
static void flush(peer_link *link);
static void note_unread(peer_link *link);

/* ---- small parts ---- */

static ddl_xfer *find_xfer(const ddl_list *list, const ddl_frame *frame)
{
    DDL_LIST_FOR_EACH (link, list) {
        ddl_xfer *xfer = DDL_CONTAINER(link, ddl_xfer, link);
        if (ddl_frame_is_of(frame, &xfer->key))
            return xfer;
    }
    return NULL;
}

static ddl_frame frame_of(const ddl_xfer *xfer, ddl_frame_type type)
{
    const ddl_signature *signature = xfer->signature;
    return (ddl_frame){
        .type = (uint8_t)type,
        .channel = xfer->key.channel,
        .sequence = xfer->key.sequence,
        .piece = xfer->key.piece,
        .number = xfer->key.number,
        .collective = signature->collective,
        .dtype = signature->dtype,
        .op = signature->op,
        .algorithm = signature->algorithm,
        .root = signature->root,
        .count = signature->count,
    };
}

/* Then the sizes of its messages are the same at both ends, or one of the ends is broken. */
static bool same_operation(const ddl_signature *signature, const ddl_frame *frame)
{
    return signature->collective == frame->collective && signature->dtype == frame->dtype &&
           signature->op == frame->op && signature->algorithm == frame->algorithm &&
           signature->root == frame->root && signature->count == frame->count;
}

/* Something is to go through the link: from the first time on it is being connected. */
static void want_link(peer_link *link)
{
    if (link->state != LINK_UNUSED)
        return;
    link->state = LINK_MEETING;
    link->mesh->owner.reach(link->mesh->owner.arg, link->peer);
}

static void expect(peer_link *link, int change)
{
    bool before = link->expecting > 0;
    link->expecting += change;
    bool now = link->expecting > 0;
    if (link->in != NULL) /* lanes are looked at anyway */
        return;
    if (now && !before) {
        ddl_list_append(&link->mesh->hot, &link->hot);
        link->mesh->nhot++;
        want_link(link);
    } else if (before && !now) {
        ddl_list_remove(&link->hot);
        link->mesh->nhot--;
    }
}

/* Lanes have taken the place of the connection, where there are any. */
static bool is_encrypted(const peer_link *link)
{
    return link->wire.tls != NULL && link->out == NULL;
}

static bool has_unsent(const peer_link *link)
{
    return is_encrypted(link) && ddl_wire_has_unsent(&link->wire);
}

static bool has_striped_queued(const peer_link *link)
{
    return link->stripes != NULL && ddl_stripes_has_queued(link->stripes);
}

/* Keep the link among those to be written to exactly while something is queued. */
static void mark_dirty(peer_link *link)
{
    bool due = link->state == LINK_OPEN && !link->deaf &&
               (link->control.bytes > 0 || !ddl_list_empty(&link->sending) || has_unsent(link) ||
                has_striped_queued(link));
    if (due && !ddl_link_linked(&link->dirty))
        ddl_list_append(&link->mesh->dirty, &link->dirty);
    else if (!due && ddl_link_linked(&link->dirty))
        ddl_list_remove(&link->dirty);
}

/* ---- control frames ---- */

static void queue_control(peer_link *link, const ddl_frame *frame, const void *payload)
{
    if (link->state >= LINK_LEAVING && !link->last_words)
        return;
    want_link(link);
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
        link_lost(link, 0, &error);
        return;
    }
    link->credit_due = 0;
    mark_dirty(link);
}

/* Both ends say so of the same messages. */
static bool goes_in_stripes(const peer_link *link, const ddl_xfer *xfer)
{
    return link->stripes != NULL && xfer->bytes > DDL_FRAME_EAGER_LIMIT;
}

static void queue_grant(peer_link *link, ddl_xfer *xfer)
{
    ddl_frame grant = frame_of(xfer, DDL_FRAME_GRANT);
    if (goes_in_stripes(link, xfer)) {
        xfer->state = RECEIVING_STRIPES;
        xfer->stripes = 0;
        link->mesh->nstriped++;
    } else {
        xfer->state = RECEIVING_GRANTED;
        link->bulk_due++;
    }
    queue_control(link, &grant, NULL);
}

static void give_credit(peer_link *link, uint32_t chunks)
{
    link->credit_due += chunks;
    if (link->credit_due < CREDIT_AT)
        return;
    ddl_frame credit = { .type = DDL_FRAME_CREDIT };
    queue_control(link, &credit, NULL);
}

/* ---- writing ---- */

static void want_writable(peer_link *link, bool wanted);

/* The peer may have to be woken. That is looked at once per turn, when there is nothing more to tell and the
 * look, which must wait until what was written is visible, holds up nobody. */
static void owe_nudge(peer_link *link)
{
    if (!link->nudge_due)
        link->mesh->nudges_due[link->mesh->nnudges_due++] = link->peer;
    link->nudge_due = true;
}

static void pay_nudges(ddl_mesh *mesh)
{
    if (mesh->nnudges_due == 0)
        return;
    ddl_lanes_wake(mesh->lanes, mesh->nudges_due, mesh->nnudges_due);
    for (int i = 0; i < mesh->nnudges_due; i++)
        mesh->links[mesh->nudges_due[i]].nudge_due = false;
    mesh->nnudges_due = 0;
}

/* As sendmsg, without waiting. */
static ssize_t write_lane(peer_link *link, const struct iovec *iov, int count)
{
    size_t written = ddl_lane_write(link->out, iov, count);
    if (written == 0) {
        errno = EAGAIN;
        return -1;
    }
    owe_nudge(link);
    return (ssize_t)written;
}

static ssize_t send_parts(peer_link *link, struct iovec *iov, int count)
{
    if (link->out != NULL)
        return write_lane(link, iov, count);
    if (DDL_FAILPOINT_OS("mesh.send", ECONNRESET))
        return -1;
    if (is_encrypted(link))
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

static ssize_t receive_parts(peer_link *link, struct iovec *iov, int count)
{
    if (DDL_FAILPOINT_OS("mesh.recv", ECONNRESET))
        return -1;
    if (is_encrypted(link))
        return ddl_wire_read_parts(&link->wire, iov, count);
    if (count == 1)
        return recv(link->wire.fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT);
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = (unsigned)count };
    return recvmsg(link->wire.fd, &message, MSG_DONTWAIT);
}

static void begin_frame(peer_link *link, ddl_xfer *xfer)
{
    ddl_frame frame = frame_of(xfer, xfer->state == SENDING_EAGER  ? DDL_FRAME_EAGER
                                     : xfer->state == SENDING_REST ? DDL_FRAME_REST
                                                                   : DDL_FRAME_BULK);
    frame.bytes = (uint32_t)(xfer->bytes - xfer->hole_bytes);
    frame.credit = link->header_credit = link->credit_due;
    link->credit_due = 0;
    ddl_frame_encode(&frame, link->header);
    link->header_sent = 0;
    link->begun = true;
}

/* One write. False: nothing to write, or the socket takes no more. *finished: the xfer whose last byte left.
 */
static bool write_some(peer_link *link, ddl_xfer **finished)
{
    *finished = NULL;
    if (link->deaf)
        return false;
    ddl_link *first = ddl_list_first(&link->sending);
    ddl_xfer *xfer = first != NULL ? DDL_CONTAINER(first, ddl_xfer, link) : NULL;
    struct iovec iov[2 + DDL_MOVING_PARTS];
    int count = 0;
    size_t control = 0;
    bool between_frames = !link->begun || link->header_sent == 0;
    if (between_frames && link->control.bytes > 0) {
        control = link->control.bytes - link->control_sent;
        iov[count++] = (struct iovec){ link->control.data + link->control_sent, control };
    }
    if (xfer != NULL) {
        if (!link->begun)
            begin_frame(link, xfer);
        if (link->header_sent < DDL_FRAME_BYTES)
            iov[count++] =
                (struct iovec){ link->header + link->header_sent, DDL_FRAME_BYTES - link->header_sent };
        count = ddl_moving_parts_left(xfer, iov, count);
    }
    if (count == 0 && xfer == NULL && !has_unsent(link)) {
        want_writable(link, false);
        return false;
    }
    ssize_t result = send_parts(link, iov, count);
    if (result < 0) {
        if (errno == EINTR)
            return true;
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM)
            want_writable(link, true);
        else if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
            link->deaf = true;
        else
            link_broke(link, errno);
        return false;
    }
    size_t written = (size_t)result;
    if (control > 0) {
        size_t part = ddl_size_min(written, control);
        link->control_sent += part;
        written -= part;
        if (link->control_sent == link->control.bytes)
            link->control.bytes = link->control_sent = 0;
    }
    if (xfer == NULL)
        return true;
    size_t part = ddl_size_min(written, DDL_FRAME_BYTES - link->header_sent);
    link->header_sent += part;
    ddl_moving_advance(xfer, written - part);
    /* What TLS has kept is not sent yet: nobody would flush it once everything is taken for done. */
    if (link->header_sent == DDL_FRAME_BYTES && xfer->moved == xfer->bytes && !has_unsent(link)) {
        ddl_list_remove(&xfer->link);
        xfer->state = IDLE;
        link->begun = false;
        *finished = xfer;
    }
    return true;
}

/* Write until nothing is left or the socket is full, and tell posters of finished xfers. */
static void flush(peer_link *link)
{
    if (link->flushing || link->state != LINK_OPEN)
        return;
    link->flushing = true;
    ddl_xfer *finished;
    while (link->state == LINK_OPEN && write_some(link, &finished))
        if (finished != NULL) {
            ddl_engine_moved(link->mesh->engine);
            finished->done(finished);
        }
    link->flushing = false;
    if (link->stripes != NULL && link->state == LINK_OPEN)
        ddl_stripes_flush(link->stripes);
    mark_dirty(link);
}

/* Queue an xfer's frame; true if it left whole at once. Control frames ahead of it leave with it. */
static bool send_frame(peer_link *link, ddl_xfer *xfer, int state)
{
    bool idle = ddl_list_empty(&link->sending) && !link->flushing;
    xfer->state = (uint8_t)state;
    ddl_list_append(&link->sending, &xfer->link);
    if (!idle)
        return false;
    link->flushing = true;
    ddl_xfer *finished = NULL;
    while (link->state == LINK_OPEN && finished == NULL && write_some(link, &finished))
        ;
    link->flushing = false;
    mark_dirty(link);
    return finished == xfer;
}

/* A granted message goes; true if it left whole at once. */
static bool send_granted(peer_link *link, ddl_xfer *xfer)
{
    if (!goes_in_stripes(link, xfer))
        return send_frame(link, xfer, SENDING_BULK);
    xfer->state = SENDING_STRIPES;
    link->mesh->nstriped++;
    bool left = ddl_stripes_send(link->stripes, xfer);
    if (left) {
        link->mesh->nstriped--;
        xfer->state = IDLE;
    }
    mark_dirty(link);
    return left;
}

/* ---- messages that lie in a heap, or go there ---- */

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

/* Where a message lies that the peer can reach; its hole is cut then. */
static bool find_place(const peer_link *link, ddl_xfer *xfer, ddl_frame_place *place)
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

/* The operation is over, but the peer may not know: it must not reach what is the program's again. */
static void withdraw(const ddl_mesh *mesh, const ddl_xfer *xfer)
{
    ddl_heap_withdraw(mesh->heap, (uint8_t *)xfer->part[0].data + xfer->hole_at, xfer->hole_bytes);
}

static void queue_place(peer_link *link, const ddl_xfer *xfer, ddl_frame_type type,
                        const ddl_frame_place *place)
{
    uint8_t payload[DDL_FRAME_PLACE_BYTES];
    ddl_frame frame = frame_of(xfer, type);
    frame.bytes = sizeof payload;
    ddl_frame_place_encode(place, payload);
    queue_control(link, &frame, payload);
}

/* Find the pages there of a message of this rank's; its hole is cut then. False: the peer told nonsense; the
 * link has ended. */
static bool find_pages(peer_link *link, ddl_xfer *xfer, const ddl_frame_place *place)
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
    link_lost(link, 0, &error);
    return false;
}

/*
 * Pages are put and taken one message at a time, between sweeps: what is queued for the others meanwhile
 * leaves first, or they would wait while this rank copies, and it while they do.
 */
static void put_later(peer_link *link, ddl_xfer *xfer, const ddl_frame_place *place)
{
    bool found = find_pages(link, xfer, place);
    xfer->state = found ? PUT_DUE : AWAITING_GRANT; /* as any other that waits on a link that has ended */
    ddl_list_append(found ? &link->mesh->due : &link->awaiting, &xfer->link);
    expect(link, 1);
}

static void take_later(peer_link *link, ddl_xfer *xfer, const ddl_frame_place *place)
{
    bool found = find_pages(link, xfer, place);
    xfer->state = found ? TAKE_DUE : RECEIVING;
    ddl_list_append(found ? &link->mesh->due : &link->receives, &xfer->link);
    expect(link, 1);
}

/* ---- messages that are read at their source ---- */

/*
 * A receiver that reads such a message gives no grant by itself: it waits for the source, or for a question
 * if there is none to tell. So a sender says one or the other wherever the peer might wait.
 */
static bool may_be_pulled(const peer_link *link, const ddl_xfer *xfer)
{
    return link->in != NULL && xfer->pulls && xfer->bytes >= link->mesh->pull_bytes &&
           xfer->bytes > DDL_FRAME_EAGER_LIMIT;
}

static bool is_pulled(const peer_link *link, const ddl_xfer *xfer)
{
    return may_be_pulled(link, xfer) && ddl_lanes_can_pull(link->mesh->lanes, link->peer);
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

static ddl_frame_place source_of(const peer_link *link, const ddl_xfer *xfer)
{
    have_pages(link->mesh, &xfer->part[0]);
    uint64_t withdrawals = ddl_lane_withdrawals(link->out);
    return (ddl_frame_place){ (uintptr_t)xfer->part[0].data, withdrawals << 32 | xfer->bytes };
}

static void pull_later(peer_link *link, ddl_xfer *xfer, const ddl_frame_place *source)
{
    bool sound = (uint32_t)source->bytes == xfer->bytes;
    xfer->withdrawals = (uint32_t)(source->bytes >> 32);
    xfer->pages = (void *)(uintptr_t)source->offset;
    xfer->state = sound ? PULL_DUE : RECEIVING;
    ddl_list_append(sound ? &link->mesh->due : &link->receives, &xfer->link);
    expect(link, 1);
    if (sound)
        return;
    ddl_error error;
    DDL_FAIL(&error, DDL_EPROTO, "%lu bytes to be read at their source, where %zu are due",
             (unsigned long)(uint32_t)source->bytes, xfer->bytes);
    link_lost(link, 0, &error);
}

/* ---- the executor's interface ---- */

static bool mesh_send(ddl_transport *transport, ddl_xfer *xfer)
{
    ddl_mesh *mesh = DDL_CONTAINER(transport, ddl_mesh, transport);
    peer_link *link = &mesh->links[xfer->peer];
    DDL_ASSERT(xfer->bytes > 0);
    DDL_ASSERT(xfer->bytes <= DDL_FRAME_BULK_LIMIT);
    /* If the peer has gone the owner knows, or will from its own checks; nothing will move. Else this sends
     * again when they have met. */
    if (link->state != LINK_OPEN) {
        xfer->state = AWAITING_GRANT;
        ddl_list_append(&link->awaiting, &xfer->link);
        expect(link, 1);
        return false;
    }
    bool small = xfer->bytes <= DDL_FRAME_EAGER_LIMIT;
    uint32_t cost = ddl_chunks_for(xfer->bytes);
    if (small && link->budget >= cost) {
        link->budget -= cost;
        return send_frame(link, xfer, SENDING_EAGER);
    }
    ddl_early *grant = ddl_earlies_find(&link->earlies, &link->earlies.grants, &xfer->key);
    ddl_frame_place place = { 0 };
    uint8_t granted = 0; /* the type of it */
    bool alike = false;
    if (grant != NULL) {
        granted = grant->frame.type;
        alike = same_operation(xfer->signature, &grant->frame);
        place = grant->place;
        ddl_earlies_drop(&link->earlies, grant);
    }
    if (granted == DDL_FRAME_PLACE && alike) {
        put_later(link, xfer, &place);
        return false;
    }
    bool offered = !small && find_place(link, xfer, &place);
    if (granted == DDL_FRAME_GRANT && !offered)
        return send_granted(link, xfer);
    bool lends = may_be_pulled(link, xfer), asked = small || lends;
    bool lent = lends && !offered && xfer->part[1].bytes == 0;
    if (offered) {
        queue_place(link, xfer, DDL_FRAME_OFFER, &place);
    } else if (lent) {
        place = source_of(link, xfer);
        queue_place(link, xfer, DDL_FRAME_SOURCE, &place);
    } else if (asked) {
        ddl_frame ask = frame_of(xfer, DDL_FRAME_ASK);
        queue_control(link, &ask, NULL);
    }
    xfer->state = offered ? OFFERED : lent ? LENT : AWAITING_GRANT;
    ddl_list_append(&link->awaiting, &xfer->link);
    expect(link, 1);
    return false;
}

/* Take over an eager message that came early. True: it is whole. */
static bool take_early_message(peer_link *link, ddl_xfer *xfer, ddl_early *entry)
{
    ddl_frame frame = entry->frame;
    bool whole = entry->received == frame.bytes;
    ddl_earlies_drain(&link->earlies, entry, xfer);
    ddl_earlies_drop(&link->earlies, entry);
    if (!whole) {
        link->sink = SINK_XFER;
        link->sink_xfer = xfer;
        return false;
    }
    give_credit(link, ddl_chunks_for(frame.bytes));
    return true;
}

static void await_message(peer_link *link, ddl_xfer *xfer)
{
    ddl_list_append(&link->receives, &xfer->link);
    expect(link, 1);
}

/* Of a message that does not come by itself: say how it may come, or take what was offered, or is to be read.
 * said: what the sender has said of it; NULL: nothing. */
static void invite(peer_link *link, ddl_xfer *xfer, const ddl_early *said)
{
    ddl_frame_place place;
    uint8_t type = said != NULL ? said->frame.type : 0;
    /* Written into the heap, the bytes stay in the cache of who writes there the next time as well. */
    if (xfer->take == NULL && xfer->bytes > DDL_FRAME_EAGER_LIMIT && find_place(link, xfer, &place)) {
        ddl_moving_advance(xfer, 0);
        xfer->state = RECEIVING_PLACED;
        queue_place(link, xfer, DDL_FRAME_PLACE, &place);
    } else if (type == DDL_FRAME_OFFER) {
        take_later(link, xfer, &said->place);
        return;
    } else if (type == DDL_FRAME_SOURCE && is_pulled(link, xfer)) {
        pull_later(link, xfer, &said->place);
        return;
    } else if (type != 0 || !is_pulled(link, xfer)) {
        queue_grant(link, xfer);
    }
    await_message(link, xfer);
}

static bool mesh_recv(ddl_transport *transport, ddl_xfer *xfer)
{
    ddl_mesh *mesh = DDL_CONTAINER(transport, ddl_mesh, transport);
    peer_link *link = &mesh->links[xfer->peer];
    DDL_ASSERT(xfer->bytes > 0);
    DDL_ASSERT(xfer->bytes <= DDL_FRAME_BULK_LIMIT);
    xfer->state = RECEIVING;
    ddl_early *entry = ddl_earlies_find(&link->earlies, &link->earlies.messages, &xfer->key);
    if (entry == NULL && xfer->bytes > DDL_FRAME_EAGER_LIMIT) {
        invite(link, xfer, NULL);
        return false;
    }
    if (entry != NULL && entry->frame.type != DDL_FRAME_EAGER) {
        ddl_early said = *entry;
        ddl_earlies_drop(&link->earlies, entry);
        if (said.frame.type != DDL_FRAME_ASK && !same_operation(xfer->signature, &said.frame))
            await_message(link, xfer);
        else
            invite(link, xfer, &said);
        return false;
    }
    /* Of another size under the same key: the signatures differ then, and the owner has been told. So it has
     * where an offer, or a place, is of another operation. */
    if (entry != NULL && entry->frame.bytes == xfer->bytes && take_early_message(link, xfer, entry)) {
        xfer->state = IDLE;
        return true;
    }
    await_message(link, xfer);
    return false;
}

/* Put a copy of what is left of the frame that is under way before everything else that is queued. */
static bool finish_from_copy(peer_link *link, ddl_xfer *xfer)
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
    mark_dirty(link);
    return true;
}

/* False: the link cannot go on, as there is no memory. */
static bool cancel_striped(peer_link *link, const ddl_xfer *xfer)
{
    if (xfer->state != SENDING_STRIPES && xfer->state != RECEIVING_STRIPES)
        return true;
    link->mesh->nstriped--;
    if (xfer->state == SENDING_STRIPES)
        return ddl_stripes_cancel_send(link->stripes, xfer);
    ddl_stripes_cancel_recv(link->stripes, xfer);
    return true;
}

static void end_without_memory(peer_link *link)
{
    ddl_error error;
    DDL_FAIL(&error, DDL_ENOMEM, "no memory for the rest of a message");
    link->deaf = true; /* whatever is said now would be taken for the rest */
    link_lost(link, 0, &error);
    shutdown(link->wire.fd, SHUT_WR);
}

static void mesh_cancel(ddl_transport *transport, ddl_xfer *xfer)
{
    ddl_mesh *mesh = DDL_CONTAINER(transport, ddl_mesh, transport);
    peer_link *link = &mesh->links[xfer->peer];
    if (xfer->state == IDLE)
        return;
    bool under_way = link->begun && link->header_sent > 0 && ddl_list_first(&link->sending) == &xfer->link;
    /* What has not left takes its chunks, and the credit in its header, back: the link may live on. */
    if (xfer->state == SENDING_EAGER && !under_way)
        link->budget += ddl_chunks_for(xfer->bytes);
    if (link->begun && ddl_list_first(&link->sending) == &xfer->link) {
        link->credit_due += under_way ? 0 : link->header_credit;
        link->begun = false;
    }
    bool receives = xfer->state >= RECEIVING;
    if (xfer->state == AWAITING_GRANT || xfer->state == OFFERED || xfer->state == LENT ||
        xfer->state == PUT_DUE || receives)
        expect(link, -1);
    if (xfer->state == OFFERED || xfer->state == RECEIVING_PLACED)
        withdraw(mesh, xfer);
    if (xfer->state == LENT)
        ddl_lane_withdraw(link->out);
    ddl_list_remove(&xfer->link);
    bool sound = cancel_striped(link, xfer);
    if (xfer->state == RECEIVING_GRANTED)
        link->bulk_due--;
    if (receives && link->sink == SINK_XFER && link->sink_xfer == xfer)
        link->sink = SINK_DROP;
    xfer->state = IDLE;
    /* Half a message cannot be taken back, and must not be completed with other bytes. */
    if (under_way && link->state == LINK_OPEN)
        sound = finish_from_copy(link, xfer);
    if (!sound)
        end_without_memory(link);
    if (link->stripes != NULL)
        mark_dirty(link);
}

static const struct ddl_transport_ops mesh_ops = { "mesh", mesh_send, mesh_recv, mesh_cancel };

/* ---- reading ---- */

static void receive_done(peer_link *link, ddl_xfer *xfer)
{
    ddl_list_remove(&xfer->link);
    xfer->state = IDLE;
    expect(link, -1);
    ddl_engine_moved(link->mesh->engine);
    xfer->done(xfer);
}

static bool hold_early(peer_link *link, const ddl_frame *frame, ddl_list *list, ddl_error *err)
{
    ddl_early *entry = ddl_earlies_hold(&link->earlies, list, frame, err);
    if (entry != NULL && frame->type == DDL_FRAME_EAGER) {
        link->sink = SINK_EARLY;
        link->sink_early = entry;
    }
    return entry != NULL;
}

/* What is left of a message whose pages were put or taken; may be nothing. */
static bool take_rest(peer_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = find_xfer(&link->receives, frame);
    if (xfer == NULL)
        return true; /* cancelled since */
    if ((xfer->state != RECEIVING_PLACED && xfer->state != RECEIVING_REST) ||
        frame->bytes != xfer->bytes - xfer->hole_bytes) {
        DDL_FAIL(err, DDL_EPROTO, "a rest of %u bytes that is not due", (unsigned)frame->bytes);
        return false;
    }
    xfer->state = RECEIVING_REST;
    if (frame->bytes == 0) {
        receive_done(link, xfer);
        return true;
    }
    link->sink = SINK_XFER;
    link->sink_xfer = xfer;
    return true;
}

static bool take_message(peer_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = find_xfer(&link->receives, frame);
    bool whole = xfer != NULL && xfer->state != RECEIVING_STRIPES;
    if (whole && xfer->bytes == frame->bytes && xfer->hole_bytes == 0) {
        if (xfer->state == RECEIVING_GRANTED)
            link->bulk_due--;
        xfer->state = RECEIVING;
        link->sink = SINK_XFER;
        link->sink_xfer = xfer;
        return true;
    }
    if (xfer != NULL && same_operation(xfer->signature, frame)) {
        DDL_FAIL(err, DDL_EPROTO, "a message of %u bytes where one of %zu is due%s", (unsigned)frame->bytes,
                 xfer->bytes, whole ? "" : " in stripes");
        return false;
    }
    if (frame->type == DDL_FRAME_EAGER)
        return hold_early(link, frame, &link->earlies.messages, err);
    link->sink = SINK_DROP; /* granted, and cancelled since */
    return true;
}

static void stop_expecting(peer_link *link, ddl_xfer *xfer)
{
    ddl_list_remove(&xfer->link);
    expect(link, -1);
}

static void send_done(peer_link *link, ddl_xfer *xfer)
{
    ddl_engine_moved(link->mesh->engine);
    xfer->done(xfer);
}

static bool take_grant(peer_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = find_xfer(&link->awaiting, frame);
    if (xfer == NULL)
        return hold_early(link, frame, &link->earlies.grants, err);
    if (xfer->state == OFFERED) /* the offer is on its way, and is answered by another frame */
        return true;
    stop_expecting(link, xfer);
    if (send_granted(link, xfer))
        send_done(link, xfer);
    return true;
}

/* The pages of an offer were taken. */
static bool take_taken(peer_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = find_xfer(&link->awaiting, frame);
    if (xfer == NULL)
        return true; /* cancelled since */
    if (xfer->state != OFFERED && xfer->state != LENT) {
        DDL_FAIL(err, DDL_EPROTO, "what was not offered was taken");
        return false;
    }
    stop_expecting(link, xfer);
    if (xfer->state == LENT) {
        xfer->state = IDLE;
        send_done(link, xfer);
        return true;
    }
    ddl_moving_advance(xfer, 0);
    /* Also if nothing is left: that the sender still stood by its offer is what makes the message whole. */
    if (send_frame(link, xfer, SENDING_REST))
        send_done(link, xfer);
    return true;
}

static bool hold_place(peer_link *link, ddl_list *list, const ddl_frame_place *place, ddl_error *err)
{
    ddl_early *entry = ddl_earlies_hold(&link->earlies, list, &link->frame, err);
    if (entry != NULL)
        entry->place = *place;
    return entry != NULL;
}

/* The sender says where its message lies. */
static bool take_offer(peer_link *link, const ddl_frame_place *place, ddl_error *err)
{
    ddl_xfer *xfer = find_xfer(&link->receives, &link->frame);
    if (xfer == NULL)
        return hold_place(link, &link->earlies.messages, place, err);
    bool waits = xfer->state == RECEIVING || xfer->state == RECEIVING_GRANTED;
    if (!waits || !same_operation(xfer->signature, &link->frame))
        return true; /* it was told another place, and puts it there; or the owner knows that they differ */
    link->bulk_due -= xfer->state == RECEIVING_GRANTED ? 1 : 0;
    stop_expecting(link, xfer);
    take_later(link, xfer, place);
    return true;
}

/* The sender says at which address its message lies. */
static bool take_source(peer_link *link, const ddl_frame_place *source, ddl_error *err)
{
    ddl_xfer *xfer = find_xfer(&link->receives, &link->frame);
    if (xfer == NULL)
        return hold_place(link, &link->earlies.messages, source, err);
    if (xfer->state != RECEIVING || !same_operation(xfer->signature, &link->frame))
        return true; /* it was granted, or told a place; or the owner knows that they differ */
    stop_expecting(link, xfer);
    pull_later(link, xfer, source);
    return true;
}

/* The receiver says where it wants a message. */
static bool take_place(peer_link *link, const ddl_frame_place *place, ddl_error *err)
{
    ddl_xfer *xfer = find_xfer(&link->awaiting, &link->frame);
    if (xfer == NULL)
        return hold_place(link, &link->earlies.grants, place, err);
    if (!same_operation(xfer->signature, &link->frame))
        return true;
    stop_expecting(link, xfer);
    put_later(link, xfer, place);
    return true;
}

static void put_pages(peer_link *link, ddl_xfer *xfer)
{
    ddl_moving_copy_out(xfer, xfer->hole_at, xfer->pages, xfer->hole_bytes);
    ddl_moving_advance(xfer, 0);
    if (send_frame(link, xfer, SENDING_REST))
        send_done(link, xfer);
}

/* What is left to come, if anything, comes with the sender's word that it had not given up. */
static void take_pages(peer_link *link, ddl_xfer *xfer)
{
    if (xfer->take != NULL)
        xfer->take(xfer, xfer->hole_at, xfer->pages, xfer->hole_bytes);
    else
        ddl_moving_copy_in(xfer, xfer->hole_at, xfer->pages, xfer->hole_bytes);
    ddl_moving_advance(xfer, 0);
    ddl_frame taken = frame_of(xfer, DDL_FRAME_TAKEN);
    queue_control(link, &taken, NULL);
    xfer->state = RECEIVING_REST;
    await_message(link, xfer);
}

/* Read a message at its source. What cannot be read there, as memory of devices, has to come through the
 * lane, and so has everything after it; so has what was read while the sender withdrew something. */
static void pull(peer_link *link, ddl_xfer *xfer)
{
    struct iovec parts[2];
    int count = ddl_moving_parts_between(xfer, 0, xfer->bytes, parts, 0);
    if (ddl_lanes_pull(link->mesh->lanes, link->peer, (uintptr_t)xfer->pages, parts, count) &&
        ddl_lane_withdrawals(link->in) == xfer->withdrawals) {
        ddl_frame taken = frame_of(xfer, DDL_FRAME_TAKEN);
        queue_control(link, &taken, NULL);
        xfer->state = IDLE;
        xfer->done(xfer);
        return;
    }
    queue_grant(link, xfer); /* in vain, if it is this one that was withdrawn */
    await_message(link, xfer);
}

/* One message whose pages are due. */
static void move_pages(ddl_mesh *mesh)
{
    ddl_link *first = ddl_list_first(&mesh->due);
    if (first == NULL)
        return;
    ddl_xfer *xfer = DDL_CONTAINER(first, ddl_xfer, link);
    peer_link *link = &mesh->links[xfer->peer];
    ddl_engine_moved(mesh->engine);
    stop_expecting(link, xfer);
    if (xfer->state == PUT_DUE)
        put_pages(link, xfer);
    else if (xfer->state == PULL_DUE)
        pull(link, xfer);
    else
        take_pages(link, xfer);
    ddl_mesh_flush(mesh);
}

static bool take_ask(peer_link *link, const ddl_frame *frame, ddl_error *err)
{
    ddl_xfer *xfer = find_xfer(&link->receives, frame);
    if (xfer == NULL)
        return hold_early(link, frame, &link->earlies.messages, err);
    if (xfer->state == RECEIVING) /* else whoever asks is broken */
        queue_grant(link, xfer);
    return true;
}

static void leave(peer_link *link)
{
    ddl_mesh *mesh = link->mesh;
    link->state = LINK_LEFT;
    let_go_of_heap(link);
    stop_watching(link);
    mesh->owner.left(mesh->owner.arg, link->peer);
}

/* Its last messages may still be on their way over other connections. */
static void hear_goodbye(peer_link *link)
{
    if (link->stripes == NULL || ddl_stripes_have_ended(link->stripes)) {
        leave(link);
        return;
    }
    link->state = LINK_LEAVING;
    uv_poll_stop(&link->poll);
    mark_dirty(link);
    note_unread(link);
}

/* A header has come. False: the link is broken, err says why. */
static bool take_header(peer_link *link, const uint8_t *bytes, ddl_error *err)
{
    ddl_mesh *mesh = link->mesh;
    ddl_frame frame;
    if (ddl_frame_decode(bytes, &frame, err) != DDL_OK)
        return false;
    if (frame.credit > DDL_CHUNKS - link->budget) {
        DDL_FAIL(err, DDL_EPROTO, "credit for %u chunks of which only %u are out", (unsigned)frame.credit,
                 (unsigned)(DDL_CHUNKS - link->budget));
        return false;
    }
    if (frame.type == DDL_FRAME_STRIPE) {
        DDL_FAIL(err, DDL_EPROTO, "a stripe where none belongs");
        return false;
    }
    if (frame.type >= DDL_FRAME_OFFER && link->in == NULL) {
        DDL_FAIL(err, DDL_EPROTO, "a frame about memory that is not shared");
        return false;
    }
    link->budget += frame.credit;
    link->frame = frame;
    link->payload_left = frame.bytes;
    ddl_engine_moved(mesh->engine);
    switch ((ddl_frame_type)frame.type) {
    case DDL_FRAME_EAGER:
    case DDL_FRAME_BULK:
        link->sink = SINK_DROP;
        return !mesh->owner.heard(mesh->owner.arg, link->peer, &frame) || take_message(link, &frame, err);
    case DDL_FRAME_GRANT:
        return !mesh->owner.heard(mesh->owner.arg, link->peer, &frame) || take_grant(link, &frame, err);
    case DDL_FRAME_ASK:
        return !mesh->owner.heard(mesh->owner.arg, link->peer, &frame) || take_ask(link, &frame, err);
    case DDL_FRAME_ENTER:
        mesh->owner.heard(mesh->owner.arg, link->peer, &frame);
        link->sink = SINK_NOTICE;
        return true;
    case DDL_FRAME_ABORT:
    case DDL_FRAME_AGREE:
        link->sink = SINK_NOTICE;
        return true;
    case DDL_FRAME_GOODBYE:
        hear_goodbye(link);
        return true;
    case DDL_FRAME_OFFER:
    case DDL_FRAME_PLACE:
    case DDL_FRAME_SOURCE:
        link->sink = mesh->owner.heard(mesh->owner.arg, link->peer, &frame) ? SINK_PLACE : SINK_DROP;
        return true;
    case DDL_FRAME_TAKEN:
        return !mesh->owner.heard(mesh->owner.arg, link->peer, &frame) || take_taken(link, &frame, err);
    case DDL_FRAME_REST:
        link->sink = SINK_DROP;
        return !mesh->owner.heard(mesh->owner.arg, link->peer, &frame) || take_rest(link, &frame, err);
    case DDL_FRAME_STRIPE:
    case DDL_FRAME_CREDIT:
    case DDL_FRAME_TYPES:
        break;
    }
    return true;
}

/* The payload of link->frame is complete. */
static bool finish_payload(peer_link *link, ddl_error *err)
{
    sink_kind sink = link->sink;
    link->sink = SINK_NONE;
    if (link->frame.type == DDL_FRAME_EAGER && sink != SINK_EARLY)
        give_credit(link, ddl_chunks_for(link->frame.bytes));
    if (sink == SINK_XFER) {
        receive_done(link, link->sink_xfer);
    } else if (sink == SINK_PLACE) {
        ddl_frame_place place = ddl_frame_place_decode(link->notice);
        return link->frame.type == DDL_FRAME_OFFER   ? take_offer(link, &place, err)
               : link->frame.type == DDL_FRAME_PLACE ? take_place(link, &place, err)
                                                     : take_source(link, &place, err);
    } else if (sink == SINK_NOTICE && link->frame.type == DDL_FRAME_ENTER) {
        if (link->mesh->owner.knows != NULL)
            link->mesh->owner.knows(link->mesh->owner.arg, link->peer, &link->frame,
                                    (ddl_view){ link->notice, link->frame.bytes });
    } else if (sink == SINK_NOTICE && link->frame.type == DDL_FRAME_AGREE) {
        link->mesh->owner.agrees(link->mesh->owner.arg, link->peer, &link->frame,
                                 (ddl_view){ link->notice, link->frame.bytes });
    } else if (sink == SINK_NOTICE) {
        ddl_notice notice;
        if (ddl_notice_decode((ddl_view){ link->notice, link->frame.bytes }, link->mesh->nranks, &notice,
                              err) != DDL_OK)
            return false;
        link->mesh->owner.told(link->mesh->owner.arg, link->peer, &link->frame, &notice);
    }
    return true;
}

static bool take_payload(peer_link *link, const uint8_t *bytes, size_t count, ddl_error *err)
{
    switch (link->sink) {
    case SINK_XFER:
        ddl_moving_fill(link->sink_xfer, bytes, count);
        break;
    case SINK_EARLY:
        if (!ddl_earlies_fill(&link->earlies, link->sink_early, bytes, count, err))
            return false;
        break;
    case SINK_NOTICE:
    case SINK_PLACE:
        memcpy(link->notice + (link->frame.bytes - link->payload_left), bytes, count);
        break;
    case SINK_DROP:
    case SINK_NONE:
        break;
    }
    link->payload_left -= count;
    return link->payload_left > 0 || finish_payload(link, err);
}

/* A header in a lane may change while it is looked at, if its writer is broken: what is checked must be what
 * is used. */
static const uint8_t *own_copy(peer_link *link, const uint8_t *header)
{
    if (link->in == NULL)
        return header;
    memcpy(link->partial, header, DDL_FRAME_BYTES);
    atomic_signal_fence(memory_order_seq_cst);
    return link->partial;
}

/* Bytes in the staging area, or in a lane: headers and payloads in any pieces. */
static bool take_bytes(peer_link *link, const uint8_t *bytes, size_t count, ddl_error *err)
{
    while (count > 0) {
        if (link->payload_left > 0) {
            size_t part = ddl_size_min(count, link->payload_left);
            if (!take_payload(link, bytes, part, err))
                return false;
            bytes += part;
            count -= part;
            continue;
        }
        if (count < DDL_FRAME_BYTES) {
            memcpy(link->partial, bytes, count);
            link->partial_bytes = count;
            return true;
        }
        if (!take_header(link, own_copy(link, bytes), err))
            return false;
        bytes += DDL_FRAME_BYTES;
        count -= DDL_FRAME_BYTES;
    }
    return true;
}

/* One read. False: the socket was emptied, or the link has ended. */
static bool read_socket(peer_link *link)
{
    uint8_t *staging = link->mesh->staging;
    size_t room = link->bulk_due > 0 ? STAGING_BEFORE_BULK : STAGING_BYTES;
    struct iovec iov[DDL_MOVING_PARTS + 1];
    int count = 0;
    size_t direct = 0;
    if (link->payload_left > 0 && link->sink == SINK_XFER) {
        count = ddl_moving_parts_left(link->sink_xfer, iov, 0);
        direct = link->payload_left;
    }
    size_t kept = link->partial_bytes;
    memcpy(staging, link->partial, kept);
    iov[count++] = (struct iovec){ staging + kept, room - kept };
    size_t wanted = direct + room - kept;
    ssize_t result = receive_parts(link, iov, count);
    if (result < 0) {
        if (errno == EINTR)
            return true;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            link_broke(link, errno);
        return false;
    }
    if (result == 0) {
        link_lost(link, 0, NULL);
        return false;
    }
    ddl_engine_moved(link->mesh->engine);
    size_t got = (size_t)result;
    link->bytes_read += got;
    ddl_error error;
    bool sound = true;
    if (direct > 0) {
        size_t part = ddl_size_min(got, direct);
        ddl_moving_advance(link->sink_xfer, part);
        if (link->sink_xfer->take != NULL)
            ddl_moving_pass_part(link->sink_xfer);
        link->payload_left -= part;
        got -= part;
        if (link->payload_left == 0)
            sound = finish_payload(link, &error);
    }
    size_t staged = kept + got;
    link->partial_bytes = 0;
    if (sound && staged > 0)
        sound = take_bytes(link, staging, staged, &error);
    if (!sound) {
        link_lost(link, 0, &error);
        return false;
    }
    return link->state == LINK_OPEN && (size_t)result == wanted;
}

/* A header that has come in two pieces, or the beginning of one. Returns the bytes used. */
static size_t take_partial(peer_link *link, ddl_view bytes, bool *sound, ddl_error *err)
{
    size_t used = ddl_size_min(bytes.bytes, DDL_FRAME_BYTES - link->partial_bytes);
    memcpy(link->partial + link->partial_bytes, bytes.data, used);
    link->partial_bytes += used;
    if (link->partial_bytes == DDL_FRAME_BYTES) {
        link->partial_bytes = 0;
        *sound = take_header(link, link->partial, err);
    }
    return used;
}

/* Take what lies in the lane in one piece, where it lies. False: nothing, or the link has ended. */
static bool read_lane(peer_link *link)
{
    ddl_view bytes = ddl_lane_peek(link->in);
    ddl_error error;
    bool sound = true;
    if (bytes.bytes == 0) {
        if (!ddl_lane_is_broken(link->in))
            return false;
        DDL_FAIL(&error, DDL_EPROTO, "a lane whose positions cannot be");
        link_lost(link, 0, &error);
        return false;
    }
    size_t used = bytes.bytes;
    if (link->payload_left == 0 && (link->partial_bytes > 0 || bytes.bytes < DDL_FRAME_BYTES))
        used = take_partial(link, bytes, &sound, &error);
    else
        sound = take_bytes(link, bytes.data, bytes.bytes, &error);
    ddl_lane_take(link->in, used);
    link->bytes_read += used;
    ddl_engine_moved(link->mesh->engine);
    if (!sound)
        link_lost(link, 0, &error);
    return link->state == LINK_OPEN;
}

static void read_lanes_of(peer_link *link)
{
    for (int i = 0; i < READS_PER_TURN && link->state == LINK_OPEN && read_lane(link); i++)
        if (ddl_lane_room_wanted(link->in))
            owe_nudge(link);
}

static bool read_some(peer_link *link)
{
    return link->in != NULL ? read_lane(link) : read_socket(link);
}

/*
 * A short read means that the socket was empty at that moment, so another read is not worth its price;
 * but after a header of bulk data the direct read follows at once.
 */
static void read_link(peer_link *link)
{
    for (int i = 0; i < READS_PER_TURN && link->state == LINK_OPEN; i++) {
        bool more = read_socket(link);
        bool in_bulk = link->payload_left > 0 && link->sink == SINK_XFER && i == 0;
        if (!more && !in_bulk)
            break;
    }
    note_unread(link);
}

/* A session may hold half a record that is decrypted, of which the socket knows nothing. */
static void note_unread(peer_link *link)
{
    bool due = link->state == LINK_OPEN && is_encrypted(link) && ddl_wire_has_unread(&link->wire);
    due = due || (link->stripes != NULL && link->state != LINK_LOST && ddl_stripes_has_unread(link->stripes));
    if (due && !ddl_link_linked(&link->unread))
        ddl_list_append(&link->mesh->unread, &link->unread);
    else if (!due && ddl_link_linked(&link->unread))
        ddl_list_remove(&link->unread);
}

static void read_unread(ddl_mesh *mesh)
{
    ddl_list turn;
    ddl_list_init(&turn);
    for (ddl_link *first; (first = ddl_list_take_first(&mesh->unread)) != NULL;)
        ddl_list_append(&turn, first);
    for (ddl_link *first; (first = ddl_list_take_first(&turn)) != NULL;) {
        peer_link *link = DDL_CONTAINER(first, peer_link, unread);
        if (link->stripes != NULL)
            ddl_stripes_read_unread(link->stripes);
        read_link(link);
    }
}

/* ---- the loop ---- */

/* Of a socket with an error: take what is unread. A short read is not the end of it here. */
static void read_to_the_end(peer_link *link)
{
    uint64_t before, most = link->bytes_read + (link->in != NULL ? link->in->capacity : UINT64_MAX / 2);
    do {
        before = link->bytes_read;
        read_some(link);
    } while (link->state == LINK_OPEN && link->bytes_read != before && before < most);
}

/* The connection of a pair that talks by lanes has ended, or carries what it never should. What the peer said
 * before lies in the lane. */
static void end_of_connection(peer_link *link)
{
    uint8_t byte;
    ssize_t got = recv(link->wire.fd, &byte, 1, MSG_DONTWAIT);
    int cause = got < 0 ? errno : 0;
    if (cause == EAGAIN || cause == EWOULDBLOCK || cause == EINTR)
        return;
    read_to_the_end(link);
    if (link->state != LINK_OPEN)
        return;
    ddl_error error;
    if (got > 0)
        DDL_FAIL(&error, DDL_EPROTO, "bytes on a connection beside lanes");
    link_lost(link, cause, got > 0 ? &error : NULL);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    peer_link *link = poll->data;
    if (link->in != NULL && status >= 0) {
        end_of_connection(link);
        pay_nudges(link->mesh);
        return;
    }
    /* The loop tells an error of the socket, whatever it is, as UV_EBADF and watches no more. What the peer
     * said before it closed may still be unread, a goodbye for one; reading on comes to the error itself. */
    if (status < 0) {
        read_to_the_end(link);
        if (link->state == LINK_OPEN)
            link_lost(link, ECONNRESET, NULL);
        pay_nudges(link->mesh);
        return;
    }
    if ((events & UV_WRITABLE) != 0)
        flush(link);
    if ((events & UV_READABLE) != 0)
        read_link(link);
    pay_nudges(link->mesh);
}

static void on_poll_closed(uv_handle_t *handle)
{
    peer_link *link = handle->data;
    ddl_wire_close(&link->wire);
}

static void want_writable(peer_link *link, bool wanted)
{
    if (link->out != NULL) /* tried at every sweep; before sleep, see ddl_mesh_doze */
        return;
    if (link->wants_writable == wanted || !link->poll_open || link->state == LINK_LOST)
        return;
    link->wants_writable = wanted;
    uv_poll_start(&link->poll, UV_READABLE | (wanted ? UV_WRITABLE : 0), on_poll);
}

static void stop_watching(peer_link *link)
{
    if (link->poll_open)
        uv_poll_stop(&link->poll);
    if (link->stripes != NULL)
        ddl_stripes_stop(link->stripes);
    mark_dirty(link);
}

/* Of a rank that has gone: its memory is the system's again once nobody has it mapped. */
static void let_go_of_heap(peer_link *link)
{
    if (!link->shares_heaps)
        return;
    DDL_LIST_FOR_EACH (each, &link->mesh->due) {
        ddl_xfer *xfer = DDL_CONTAINER(each, ddl_xfer, link);
        if (xfer->peer != link->peer)
            continue;
        bool sends = xfer->state == PUT_DUE;
        ddl_list_remove(&xfer->link);
        xfer->state = sends ? AWAITING_GRANT : RECEIVING; /* in vain, until it is cancelled */
        ddl_list_append(sends ? &link->awaiting : &link->receives, &xfer->link);
    }
    link->shares_heaps = false;
    link->heap = NULL;
    link->heap_bytes = 0;
    ddl_lanes_drop_heap(link->mesh->lanes, link->peer);
}

/* Who sent what cannot be is there to hear why nobody listens any more: as far as that goes at once, and not
 * in the middle of a message. */
static void say_last_words(peer_link *link)
{
    struct iovec words = { link->control.data + link->control_sent,
                           link->control.bytes - link->control_sent };
    bool between_frames = !link->begun || link->header_sent == 0;
    if (between_frames && words.iov_len > 0)
        (void)!send_parts(link, &words, 1);
}

/* What is known of a peer when the first of several connections with it ends: whichever of them broke, both
 * sides end them all. */
static void describe_end(const peer_link *link, int number, int os_errno, ddl_error *error)
{
    const int count = 1 + ddl_stripes_count(link->stripes);
    char reason[96];
    if (os_errno != 0 && strerror_r(os_errno, reason, sizeof reason) == 0)
        (void)ddl_error_set(error, DDL_EPEERLOST,
                            "connection %d of %d broke (%s): its process ended, or its host or the network "
                            "ended that connection",
                            number, count, reason);
    else
        (void)ddl_error_set(error, DDL_EPEERLOST,
                            "connection %d of %d was closed by the other end: its process ended, or another "
                            "of these connections broke",
                            number, count);
}

/* The connection of this number, from 1, which is the pair's first. */
static void connection_lost(peer_link *link, int number, int os_errno, const ddl_error *error)
{
    ddl_error one_of_several;
    link_state before = link->state;
    link->state = LINK_LOST;
    link->last_words = before == LINK_OPEN && error != NULL && !link->deaf;
    if (error == NULL && link->stripes != NULL) {
        describe_end(link, number, os_errno, &one_of_several);
        error = &one_of_several;
    }
    let_go_of_heap(link);
    stop_watching(link);
    note_unread(link);
    if (before < LINK_LEFT)
        link->mesh->owner.lost(link->mesh->owner.arg, link->peer, os_errno, error);
    if (link->last_words)
        say_last_words(link);
    link->last_words = false;
    if (link->stripes == NULL)
        return;
    /* One of its connections has ended: the peer sees it by the others, where that one does not tell it. */
    ddl_stripes_shut(link->stripes);
    shutdown(link->wire.fd, SHUT_WR);
}

static void link_lost(peer_link *link, int os_errno, const ddl_error *error)
{
    connection_lost(link, 1, os_errno, error);
}

/* Reading or writing failed. */
static void link_broke(peer_link *link, int os_errno)
{
    ddl_error error;
    if (!is_encrypted(link) || os_errno != EBADMSG) {
        link_lost(link, os_errno, NULL);
        return;
    }
    DDL_FAIL(&error, DDL_EPROTO, "what TLS does not take: %s", ddl_wire_problem(&link->wire));
    link_lost(link, 0, &error);
}

/* ---- stripes ---- */

static bool find_striped(void *arg, const ddl_frame *frame, ddl_xfer **found, ddl_error *err)
{
    peer_link *link = arg;
    ddl_mesh *mesh = link->mesh;
    ddl_engine_moved(mesh->engine);
    if (!mesh->owner.heard(mesh->owner.arg, link->peer, frame))
        return true;
    ddl_xfer *xfer = find_xfer(&link->receives, frame);
    if (xfer == NULL || !same_operation(xfer->signature, frame))
        return true; /* granted, and cancelled since; or the owner knows that the operations differ */
    if (xfer->state != RECEIVING_STRIPES) {
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
    peer_link *link = arg;
    link->mesh->nstriped--;
    receive_done(link, xfer);
}

static void stripes_sent(void *arg, ddl_xfer *xfer)
{
    peer_link *link = arg;
    link->mesh->nstriped--;
    xfer->state = IDLE;
    send_done(link, xfer);
}

static ddl_frame stripe_frame(void *arg, const ddl_xfer *xfer)
{
    (void)arg;
    return frame_of(xfer, DDL_FRAME_STRIPE);
}

static void stripes_left(void *arg)
{
    peer_link *link = arg;
    if (link->state == LINK_LEAVING)
        leave(link);
}

static void stripes_lost(void *arg, int which, int os_errno, const ddl_error *error)
{
    connection_lost(arg, which + 2, os_errno, error);
}

/* What the peer said before it ended, on the first connection, goes before: why, for one. */
static void stripes_ended(void *arg, int which, int os_errno, const ddl_error *error)
{
    peer_link *link = arg;
    if (link->state == LINK_OPEN)
        read_to_the_end(link);
    if (link->state == LINK_OPEN || link->state == LINK_LEAVING)
        connection_lost(link, which + 2, os_errno, error);
}

static void stripes_changed(void *arg)
{
    peer_link *link = arg;
    mark_dirty(link);
    note_unread(link);
}

ddl_status ddl_mesh_widen(ddl_mesh *mesh, int peer, const ddl_wire wires[], int count, ddl_error *err)
{
    peer_link *link = &mesh->links[peer];
    DDL_ASSERT(link->stripes == NULL);
    DDL_ASSERT(link->in == NULL);
    const ddl_stripes_owner owner = { find_striped,  stripes_received, stripes_sent,
                                      stripe_frame,  stripes_left,     stripes_lost,
                                      stripes_ended, stripes_changed,  link };
    return ddl_stripes_create(wires, count, &owner, mesh->gathered, &link->stripes, err);
}

/* ---- the engine's client ---- */

bool ddl_mesh_sweep(ddl_mesh *mesh)
{
    ddl_mesh_flush(mesh);
    if (mesh->lanes != NULL)
        ddl_lanes_set_asleep(mesh->lanes, false);
    for (int i = 0; i < mesh->nby_lane; i++)
        read_lanes_of(mesh->by_lane[i]);
    read_unread(mesh);
    if (mesh->nhot > POLLED_LINKS) {
        ddl_mesh_flush(mesh);
        move_pages(mesh);
        return false;
    }
    /* Reading may change the list of hot links: take them one by one. */
    peer_link *hot[POLLED_LINKS];
    int count = 0;
    DDL_LIST_FOR_EACH (link, &mesh->hot)
        hot[count++] = DDL_CONTAINER(link, peer_link, hot);
    for (int i = 0; i < count; i++)
        if (hot[i]->state == LINK_OPEN)
            read_link(hot[i]);
    ddl_mesh_flush(mesh);
    move_pages(mesh);
    return false; /* what moves is told by ddl_engine_moved */
}

bool ddl_mesh_needs_loop(const ddl_mesh *mesh)
{
    return mesh->nhot > POLLED_LINKS || mesh->nstriped > 0;
}

bool ddl_mesh_doze(ddl_mesh *mesh)
{
    if (!ddl_list_empty(&mesh->unread))
        return true;
    if (mesh->lanes == NULL)
        return false;
    if (!ddl_list_empty(&mesh->due))
        return true;
    ddl_lanes_set_asleep(mesh->lanes, true);
    for (int i = 0; i < mesh->nby_lane; i++)
        if (ddl_link_linked(&mesh->by_lane[i]->dirty))
            ddl_lane_want_room(mesh->by_lane[i]->out);
    ddl_doze_look_again();
    for (int i = 0; i < mesh->nby_lane; i++) {
        peer_link *link = mesh->by_lane[i];
        if (link->state == LINK_OPEN && (ddl_lane_peek(link->in).bytes > 0 ||
                                         (ddl_link_linked(&link->dirty) && ddl_lane_room(link->out) > 0)))
            return true;
    }
    return false;
}

void ddl_mesh_flush(ddl_mesh *mesh)
{
    /* Flushing one link may take others from the list, or add to it. */
    ddl_list turn;
    ddl_list_init(&turn);
    for (ddl_link *first; (first = ddl_list_take_first(&mesh->dirty)) != NULL;)
        ddl_list_append(&turn, first);
    for (ddl_link *first; (first = ddl_list_take_first(&turn)) != NULL;) {
        peer_link *link = DDL_CONTAINER(first, peer_link, dirty);
        flush(link);
        mark_dirty(link);
    }
    pay_nudges(mesh);
}

/* ---- for the owner ---- */

ddl_transport *ddl_mesh_transport(ddl_mesh *mesh)
{
    return &mesh->transport;
}

bool ddl_mesh_has_queued(const ddl_mesh *mesh)
{
    return !ddl_list_empty(&mesh->dirty);
}

bool ddl_mesh_is_gone(const ddl_mesh *mesh, int peer)
{
    return peer != mesh->rank && mesh->links[peer].state >= LINK_LEFT;
}

bool ddl_mesh_is_linked(const ddl_mesh *mesh, int peer)
{
    link_state state = mesh->links[peer].state;
    return peer != mesh->rank && (state == LINK_OPEN || state == LINK_MEETING);
}

bool ddl_mesh_awaits_meeting(const ddl_mesh *mesh)
{
    for (int peer = 0; peer < mesh->nranks; peer++)
        if (mesh->links[peer].state == LINK_MEETING && mesh->links[peer].control.bytes > 0)
            return true;
    return false;
}

void ddl_mesh_visit_early(ddl_mesh *mesh, uint32_t channel, uint64_t sequence,
                          void (*visit)(void *arg, int peer, const ddl_frame *frame), void *arg)
{
    for (int peer = 0; peer < mesh->nranks; peer++)
        if (peer != mesh->rank)
            ddl_earlies_visit(&mesh->links[peer].earlies, channel, sequence, visit, arg, peer);
}

void ddl_mesh_tell_bytes(ddl_mesh *mesh, int peer, const ddl_frame *frame, ddl_view payload)
{
    DDL_ASSERT(peer != mesh->rank);
    DDL_ASSERT(payload.bytes <= DDL_FRAME_NOTICE_LIMIT);
    ddl_frame with_payload = *frame;
    with_payload.bytes = (uint32_t)payload.bytes;
    queue_control(&mesh->links[peer], &with_payload, payload.data);
}

void ddl_mesh_tell(ddl_mesh *mesh, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    uint8_t payload[DDL_FRAME_NOTICE_LIMIT];
    size_t bytes = notice != NULL ? ddl_notice_encode(notice, payload) : 0;
    ddl_mesh_tell_bytes(mesh, peer, frame, (ddl_view){ payload, bytes });
}

static void forget_early(peer_link *link, ddl_early *entry)
{
    if (link->sink == SINK_EARLY && link->sink_early == entry)
        link->sink = SINK_DROP; /* its end gives the credit */
    else if (entry->frame.type == DDL_FRAME_EAGER)
        give_credit(link, ddl_chunks_for(entry->frame.bytes));
    ddl_earlies_drop(&link->earlies, entry);
}

void ddl_mesh_forget(ddl_mesh *mesh, uint32_t first_channel, uint32_t count)
{
    for (int peer = 0; peer < mesh->nranks; peer++) {
        peer_link *link = &mesh->links[peer];
        ddl_list *lists[] = { &link->earlies.messages, &link->earlies.grants };
        if (link->sink == SINK_PLACE && link->frame.channel - first_channel < count)
            link->sink = SINK_DROP;
        for (int i = 0; i < 2 && peer != mesh->rank; i++) {
            ddl_list turn;
            ddl_list_init(&turn);
            for (ddl_link *first; (first = ddl_list_take_first(lists[i])) != NULL;)
                ddl_list_append(&turn, first);
            for (ddl_link *first; (first = ddl_list_take_first(&turn)) != NULL;) {
                ddl_early *entry = DDL_CONTAINER(first, ddl_early, link);
                ddl_list_append(lists[i], &entry->link);
                if (entry->frame.channel - first_channel < count)
                    forget_early(link, entry);
            }
        }
    }
}

static bool send_goodbye(peer_link *link)
{
    ddl_frame goodbye = { .type = DDL_FRAME_GOODBYE };
    if (link->stripes != NULL)
        ddl_stripes_say_goodbye(link->stripes);
    queue_control(link, &goodbye, NULL);
    flush(link);
    return link->control.bytes == 0;
}

/* Closing a socket with unread bytes in it resets the connection, and hurries what the peer has not read. */
static void drain(const peer_link *link)
{
    for (int i = 0; i < READS_PER_TURN; i++)
        if (recv(link->wire.fd, link->mesh->staging, STAGING_BYTES, MSG_DONTWAIT) <= 0)
            return;
}

void ddl_mesh_say_goodbye(ddl_mesh *mesh)
{
    for (int peer = 0; peer < mesh->nranks; peer++)
        if (peer != mesh->rank && mesh->links[peer].state == LINK_OPEN)
            send_goodbye(&mesh->links[peer]);
    pay_nudges(mesh);
}

void ddl_mesh_close(ddl_mesh *mesh)
{
    if (mesh->closed)
        return;
    mesh->closed = true;
    for (int peer = 0; peer < mesh->nranks; peer++) {
        peer_link *link = &mesh->links[peer];
        if (peer == mesh->rank)
            continue;
        if (link->state == LINK_OPEN) {
            send_goodbye(link);
            drain(link);
        }
        link->state = LINK_LOST; /* also to one that is being met */
        if (link->stripes != NULL)
            ddl_stripes_close(link->stripes);
        if (link->poll_open)
            uv_close((uv_handle_t *)&link->poll, on_poll_closed);
        link->poll_open = false;
    }
    pay_nudges(mesh);
    if (mesh->bell_open)
        uv_close((uv_handle_t *)&mesh->bell, NULL);
    mesh->bell_open = false;
}

/* ---- life ---- */

/* Room for control frames, so that the first of them in a running operation allocates nothing. */
static bool reserve_control(peer_link *link)
{
    static const uint8_t room[CONTROL_BYTES];
    bool reserved = ddl_bytes_append(&link->control, room, sizeof room);
    link->control.bytes = 0;
    return reserved;
}

static bool reserve(peer_link *link)
{
    return ddl_earlies_reserve(&link->earlies) && (link->control.bytes > 0 || reserve_control(link)) &&
           (link->wire.tls == NULL || ddl_tls_socket_hurry(link->wire.tls));
}

/* It has woken a sleeper, and that is all: lanes are looked at by every sweep, and before every sleep. */
static void on_bell(uv_poll_t *poll, int status, int events)
{
    ddl_mesh *mesh = poll->data;
    (void)status, (void)events;
    ddl_local_bell_silence(ddl_lanes_bell(mesh->lanes));
}

ddl_status ddl_mesh_create(int rank, int nranks, const ddl_wire wires[], ddl_lanes *lanes, ddl_heap *heap,
                           const ddl_mesh_owner *owner, ddl_mesh **out, ddl_error *err)
{
    ddl_mesh *mesh = ddl_alloc(sizeof *mesh);
    peer_link *links = ddl_alloc_array((size_t)nranks, sizeof *links);
    uint8_t *staging = ddl_alloc(STAGING_BYTES);
    peer_link **by_lane = ddl_alloc_array((size_t)nranks, sizeof(peer_link *));
    int *nudges_due = ddl_alloc_array((size_t)nranks, sizeof *nudges_due);
    if (mesh == NULL || links == NULL || staging == NULL || by_lane == NULL || nudges_due == NULL) {
        ddl_free(nudges_due);
        ddl_free(by_lane);
        ddl_free(mesh);
        ddl_free(links);
        ddl_free(staging);
        for (int peer = 0; peer < nranks; peer++) {
            ddl_wire wire = wires[peer];
            ddl_wire_close(&wire);
        }
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d links", nranks);
    }
    mesh->transport.ops = &mesh_ops;
    mesh->rank = rank;
    mesh->nranks = nranks;
    mesh->owner = *owner;
    mesh->links = links;
    mesh->staging = staging;
    mesh->lanes = lanes;
    mesh->heap = heap;
    mesh->page_bytes = ddl_local_page_bytes();
    mesh->pull_bytes = SIZE_MAX;
    mesh->by_lane = by_lane;
    mesh->nudges_due = nudges_due;
    ddl_list_init(&mesh->hot);
    ddl_list_init(&mesh->dirty);
    ddl_list_init(&mesh->unread);
    ddl_list_init(&mesh->due);
    bool enough = ddl_early_pool_open(&mesh->early_pool);
    for (int peer = 0; peer < nranks; peer++) {
        peer_link *link = &links[peer];
        link->mesh = mesh;
        link->peer = peer;
        link->wire = wires[peer];
        link->state = link->wire.fd >= 0 || peer == rank ? LINK_OPEN : LINK_UNUSED;
        if (lanes != NULL && peer != rank && ddl_lanes_reach(lanes, peer)) {
            link->in = ddl_lanes_in(lanes, peer);
            link->out = ddl_lanes_out(lanes, peer);
            link->shares_heaps = ddl_lanes_share_heaps(lanes, peer);
            link->heap = ddl_lanes_heap(lanes, peer, &link->heap_bytes);
            by_lane[mesh->nby_lane++] = link;
            ddl_tls_socket_destroy(link->wire.tls); /* of which only the end is of interest from now on */
            link->wire.tls = NULL;
        }
        ddl_list_init(&link->receives);
        ddl_earlies_init(&link->earlies, &mesh->early_pool);
        ddl_list_init(&link->sending);
        ddl_list_init(&link->awaiting);
        link->budget = DDL_CHUNKS;
    }
    for (int peer = 0; peer < nranks && enough; peer++)
        enough = peer == rank || links[peer].state == LINK_UNUSED || reserve(&links[peer]);
    if (!enough) {
        ddl_mesh_destroy(mesh);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d links", nranks);
    }
    *out = mesh;
    return DDL_OK;
}

void ddl_mesh_set_pull(ddl_mesh *mesh, size_t least_bytes)
{
    mesh->pull_bytes = least_bytes;
}

static ddl_status open_bell(ddl_mesh *mesh, ddl_error *err)
{
    int code = uv_poll_init(ddl_engine_loop(mesh->engine), &mesh->bell, ddl_lanes_bell(mesh->lanes));
    if (code == 0) {
        mesh->bell.data = mesh;
        mesh->bell_open = true;
        code = uv_poll_start(&mesh->bell, UV_READABLE, on_bell);
    }
    return code == 0 ? DDL_OK : DDL_FAIL_OS(err, DDL_ERESOURCE, -code, "cannot watch the bell of lanes");
}

static ddl_status watch(peer_link *link, ddl_error *err)
{
    int code = uv_poll_init(ddl_engine_loop(link->mesh->engine), &link->poll, link->wire.fd);
    if (code != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, -code, "cannot watch the connection to rank %d", link->peer);
    link->poll.data = link;
    link->poll_open = true;
    ddl_socket_avoid_pacing(link->wire.fd);
    code = uv_poll_start(&link->poll, UV_READABLE, on_poll);
    if (code != 0)
        return DDL_FAIL_OS(err, DDL_ERESOURCE, -code, "cannot watch the connection to rank %d", link->peer);
    return link->stripes != NULL ? ddl_stripes_open(link->stripes, link->mesh->engine, err) : DDL_OK;
}

ddl_status ddl_mesh_open(ddl_mesh *mesh, ddl_engine *engine, ddl_error *err)
{
    mesh->engine = engine;
    for (int peer = 0; peer < mesh->nranks; peer++) {
        if (peer == mesh->rank || mesh->links[peer].state == LINK_UNUSED)
            continue;
        DDL_TRY(watch(&mesh->links[peer], err));
        note_unread(&mesh->links[peer]);
    }
    return mesh->nby_lane > 0 ? open_bell(mesh, err) : DDL_OK;
}

/* ---- pairs that are connected late ---- */

/* What was to be sent before there was a connection is sent now. */
static void send_what_waited(peer_link *link)
{
    ddl_list turn;
    ddl_list_init(&turn);
    for (ddl_link *first; (first = ddl_list_take_first(&link->awaiting)) != NULL;)
        ddl_list_append(&turn, first);
    for (ddl_link *first; (first = ddl_list_first(&turn)) != NULL;) {
        ddl_xfer *xfer = DDL_CONTAINER(first, ddl_xfer, link);
        stop_expecting(link, xfer);
        if (mesh_send(&link->mesh->transport, xfer))
            send_done(link, xfer);
    }
}

void ddl_mesh_meet(ddl_mesh *mesh, int peer, ddl_wire wire)
{
    peer_link *link = &mesh->links[peer];
    ddl_error error;
    if (mesh->closed || (link->state != LINK_UNUSED && link->state != LINK_MEETING)) {
        ddl_wire_close(&wire);
        return;
    }
    link->wire = wire;
    ddl_status status = reserve(link) ? DDL_OK : DDL_FAIL(&error, DDL_ENOMEM, "no memory for a link");
    if (status == DDL_OK)
        status = watch(link, &error);
    if (status != DDL_OK) {
        link_lost(link, 0, &error);
        return;
    }
    link->state = LINK_OPEN;
    note_unread(link);
    mark_dirty(link);
    ddl_engine_moved(mesh->engine);
    mesh->owner.met(mesh->owner.arg, peer);
    send_what_waited(link);
    ddl_mesh_flush(mesh);
}

void ddl_mesh_miss(ddl_mesh *mesh, int peer, const ddl_error *error)
{
    peer_link *link = &mesh->links[peer];
    if (mesh->closed || (link->state != LINK_UNUSED && link->state != LINK_MEETING))
        return;
    ddl_engine_moved(mesh->engine);
    if (error->code != DDL_EPEERLOST) {
        link_lost(link, 0, error);
        return;
    }
    link->state = LINK_LEFT;
    mesh->owner.left(mesh->owner.arg, peer);
}

void ddl_mesh_destroy(ddl_mesh *mesh)
{
    if (mesh == NULL)
        return;
    for (int peer = 0; peer < mesh->nranks; peer++) {
        peer_link *link = &mesh->links[peer];
        ddl_wire_close(&link->wire);
        ddl_stripes_destroy(link->stripes);
        ddl_earlies_fini(&link->earlies);
        ddl_bytes_fini(&link->control);
    }
    ddl_early_pool_close(&mesh->early_pool);
    ddl_free(mesh->links);
    ddl_free(mesh->nudges_due);
    ddl_free(mesh->by_lane);
    ddl_free(mesh->staging);
    ddl_free(mesh);
}

void ddl_mesh_close_in_child(ddl_mesh *mesh)
{
    for (int peer = 0; peer < mesh->nranks; peer++) {
        if (mesh->links[peer].wire.fd >= 0)
            close(mesh->links[peer].wire.fd);
        if (mesh->links[peer].stripes != NULL)
            ddl_stripes_close_in_child(mesh->links[peer].stripes);
    }
}
