/* mesh_read.c - bytes into frames; payloads go straight to where they belong. */
#include "transport/mesh_link.h"

#include "base/failpoint.h"
#include "base/size.h"
#include "io/socket.h"
#include "transport/moving.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    STAGING_BEFORE_BULK = 4 * 1024, /* when bulk is due: what lands here has to be copied */
    AHEAD_BYTES = 256 * 1024 /* more than a TLS session has read ahead, which the system does not count */
};

/* ---- frames ---- */

static void answer_ping(ddl_mesh_link *link)
{
    const ddl_frame answer = { .type = DDL_FRAME_PING, .number = 1 };
    if (ddl_mesh_may_answer(link->mesh, link->peer))
        ddl_mesh_queue_control(link, &answer, NULL);
}

/* Whether a frame may come as it is, by this way; err says why not. */
static bool is_in_order(const ddl_mesh_link *link, const ddl_frame *frame, ddl_error *err)
{
    if (frame->credit > DDL_CHUNKS - link->budget)
        DDL_FAIL(err, DDL_EPROTO, "credit for %u chunks of which only %u are out", (unsigned)frame->credit,
                 (unsigned)(DDL_CHUNKS - link->budget));
    else if (frame->type == DDL_FRAME_STRIPE)
        DDL_FAIL(err, DDL_EPROTO, "a stripe where none belongs");
    else if (ddl_frame_is_about_memory(frame->type) && link->in == NULL)
        DDL_FAIL(err, DDL_EPROTO, "a frame about memory that is not shared");
    else
        return true;
    return false;
}

static bool is_heard(ddl_mesh_link *link)
{
    const ddl_mesh_owner *owner = &link->mesh->owner;
    return owner->heard(owner->arg, link->peer, &link->frame);
}

/* A frame of a message, which was heard. */
static bool take_of_message(ddl_mesh_link *link, ddl_error *err)
{
    const ddl_frame *frame = &link->frame;
    switch ((ddl_frame_type)frame->type) {
    case DDL_FRAME_GRANT:
        return ddl_mesh_take_grant(link, frame, err);
    case DDL_FRAME_ASK:
        return ddl_mesh_take_ask(link, frame, err);
    case DDL_FRAME_TAKEN:
        return ddl_mesh_take_taken(link, frame, err);
    case DDL_FRAME_REST:
        return ddl_mesh_take_rest(link, frame, err);
    default:
        return ddl_mesh_take_message(link, frame, err);
    }
}

/* A header has come. False: the link is broken, err says why. */
static bool take_header(ddl_mesh_link *link, const uint8_t *bytes, ddl_error *err)
{
    ddl_frame frame;
    if (ddl_frame_decode(bytes, &frame, err) != DDL_OK || !is_in_order(link, &frame, err))
        return false;
    link->budget += frame.credit;
    link->frame = frame;
    link->payload_left = frame.bytes;
    link->sink = DDL_SINK_DROP;
    ddl_engine_moved(link->mesh->engine);
    switch ((ddl_frame_type)frame.type) {
    case DDL_FRAME_EAGER:
    case DDL_FRAME_BULK:
    case DDL_FRAME_GRANT:
    case DDL_FRAME_ASK:
    case DDL_FRAME_TAKEN:
    case DDL_FRAME_REST:
        return !is_heard(link) || take_of_message(link, err);
    case DDL_FRAME_ENTER:
        (void)is_heard(link);
        link->sink = DDL_SINK_NOTICE;
        break;
    case DDL_FRAME_ABORT:
    case DDL_FRAME_AGREE:
        link->sink = DDL_SINK_NOTICE;
        break;
    case DDL_FRAME_OFFER:
    case DDL_FRAME_PLACE:
    case DDL_FRAME_SOURCE:
        link->sink = is_heard(link) ? DDL_SINK_PLACE : DDL_SINK_DROP;
        break;
    case DDL_FRAME_GOODBYE:
        ddl_mesh_hear_goodbye(link);
        break;
    case DDL_FRAME_WIDENED:
        return ddl_mesh_hear_widened(link, err);
    case DDL_FRAME_PING:
        if (frame.number == 0)
            answer_ping(link);
        break;
    case DDL_FRAME_STRIPE: /* is none of these */
    case DDL_FRAME_CREDIT: /* which is taken already */
    case DDL_FRAME_TYPES:
        break;
    }
    return true;
}

/* The payload of link->frame is complete. */
static bool finish_payload(ddl_mesh_link *link, ddl_error *err)
{
    ddl_mesh_sink sink = link->sink;
    link->sink = DDL_SINK_NONE;
    if (link->frame.type == DDL_FRAME_EAGER && sink != DDL_SINK_EARLY)
        ddl_mesh_give_credit(link, ddl_chunks_for(link->frame.bytes));
    if (sink == DDL_SINK_XFER) {
        ddl_mesh_receive_done(link, link->sink_xfer);
    } else if (sink == DDL_SINK_PLACE) {
        ddl_frame_place place = ddl_frame_place_decode(link->notice);
        return link->frame.type == DDL_FRAME_OFFER   ? ddl_mesh_take_offer(link, &place, err)
               : link->frame.type == DDL_FRAME_PLACE ? ddl_mesh_take_place(link, &place, err)
                                                     : ddl_mesh_take_source(link, &place, err);
    } else if (sink == DDL_SINK_NOTICE && link->frame.type == DDL_FRAME_ENTER) {
        if (link->mesh->owner.knows != NULL)
            link->mesh->owner.knows(link->mesh->owner.arg, link->peer, &link->frame,
                                    (ddl_view){ link->notice, link->frame.bytes });
    } else if (sink == DDL_SINK_NOTICE && link->frame.type == DDL_FRAME_AGREE) {
        return link->mesh->owner.agrees(link->mesh->owner.arg, link->peer, &link->frame,
                                        (ddl_view){ link->notice, link->frame.bytes }, err);
    } else if (sink == DDL_SINK_NOTICE) {
        ddl_notice notice;
        if (ddl_notice_decode((ddl_view){ link->notice, link->frame.bytes }, link->mesh->nranks, &notice,
                              err) != DDL_OK)
            return false;
        link->mesh->owner.told(link->mesh->owner.arg, link->peer, &link->frame, &notice);
    }
    return true;
}

static bool take_payload(ddl_mesh_link *link, const uint8_t *bytes, size_t count, ddl_error *err)
{
    switch (link->sink) {
    case DDL_SINK_XFER:
        ddl_moving_fill(link->sink_xfer, bytes, count);
        break;
    case DDL_SINK_EARLY:
        if (!ddl_earlies_fill(&link->earlies, link->sink_early, bytes, count, err))
            return false;
        break;
    case DDL_SINK_NOTICE:
    case DDL_SINK_PLACE:
        memcpy(link->notice + (link->frame.bytes - link->payload_left), bytes, count);
        break;
    case DDL_SINK_DROP:
    case DDL_SINK_NONE:
        break;
    }
    link->payload_left -= count;
    return link->payload_left > 0 || finish_payload(link, err);
}

/* A header in a lane may change while it is looked at, if its writer is broken: what is checked must be what
 * is used. */
static const uint8_t *own_copy(ddl_mesh_link *link, const uint8_t *header)
{
    if (link->in == NULL)
        return header;
    memcpy(link->partial, header, DDL_FRAME_BYTES);
    atomic_signal_fence(memory_order_seq_cst);
    return link->partial;
}

/* Bytes in the staging area, or in a lane: headers and payloads in any pieces. */
static bool take_bytes(ddl_mesh_link *link, const uint8_t *bytes, size_t count, ddl_error *err)
{
    while (count > 0 && link->state == DDL_LINK_OPEN) { /* what it was before may have ended it */
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
            return ddl_frame_check_begin(link->partial, count, err) == DDL_OK;
        }
        if (!take_header(link, own_copy(link, bytes), err))
            return false;
        bytes += DDL_FRAME_BYTES;
        count -= DDL_FRAME_BYTES;
    }
    return true;
}

/* ---- the connection ---- */

static ssize_t receive_parts(ddl_mesh_link *link, struct iovec *iov, int count)
{
    if (DDL_FAILPOINT_OS("mesh.recv", ECONNRESET))
        return -1;
    if (ddl_mesh_is_encrypted(link))
        return ddl_wire_read_parts(&link->wire, iov, count);
    if (count == 1)
        return recv(link->wire.fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT);
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = (unsigned)count };
    return recvmsg(link->wire.fd, &message, MSG_DONTWAIT);
}

/* One read. False: the socket was emptied, or the link has ended. */
static bool read_socket(ddl_mesh_link *link)
{
    uint8_t *staging = link->mesh->staging;
    size_t room = link->bulk_due > 0 ? STAGING_BEFORE_BULK : DDL_MESH_STAGING_BYTES;
    struct iovec iov[DDL_MOVING_PARTS + 1];
    int count = 0;
    size_t direct = 0;
    if (link->payload_left > 0 && link->sink == DDL_SINK_XFER) {
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
            ddl_mesh_link_broke(link, errno);
        return false;
    }
    if (result == 0) {
        ddl_mesh_link_lost(link, link->reset_errno, NULL);
        return false;
    }
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
    /* Ranks of the same host are heard of through the loop as well, and must not wait for those of others. */
    const bool is_alone = link->mesh->nby_lane == 0;
    ddl_engine_received(link->mesh->engine, (size_t)result, is_alone ? link->payload_left : 0);
    if (!sound) {
        ddl_mesh_link_lost(link, 0, &error);
        return false;
    }
    return link->state == DDL_LINK_OPEN && (size_t)result == wanted;
}

/*
 * A short read means that the socket was empty at that moment, so another read is not worth its price;
 * but after a header of bulk data the direct read follows at once.
 */
void ddl_mesh_read_link(ddl_mesh_link *link)
{
    for (int i = 0; i < DDL_MESH_READS_PER_TURN && link->state == DDL_LINK_OPEN; i++) {
        bool more = read_socket(link);
        bool in_bulk = link->payload_left > 0 && link->sink == DDL_SINK_XFER && i == 0;
        if (!more && !in_bulk)
            break;
    }
    ddl_mesh_note_unread(link);
}

/* ---- lanes ---- */

/* A header that has come in two pieces, or the beginning of one. Returns the bytes used. */
static size_t take_partial(ddl_mesh_link *link, ddl_view bytes, bool *sound, ddl_error *err)
{
    size_t used = ddl_size_min(bytes.bytes, DDL_FRAME_BYTES - link->partial_bytes);
    memcpy(link->partial + link->partial_bytes, bytes.data, used);
    link->partial_bytes += used;
    if (link->partial_bytes == DDL_FRAME_BYTES) {
        link->partial_bytes = 0;
        *sound = take_header(link, link->partial, err);
    } else {
        *sound = ddl_frame_check_begin(link->partial, link->partial_bytes, err) == DDL_OK;
    }
    return used;
}

/* Take what lies in the lane in one piece, where it lies. False: nothing, or the link has ended. */
static bool read_lane(ddl_mesh_link *link)
{
    ddl_view bytes = ddl_lane_peek(link->in);
    ddl_error error;
    bool sound = true;
    if (bytes.bytes == 0) {
        if (!ddl_lane_is_broken(link->in))
            return false;
        DDL_FAIL(&error, DDL_EPROTO, "a lane whose positions cannot be");
        ddl_mesh_link_lost(link, 0, &error);
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
        ddl_mesh_link_lost(link, 0, &error);
    return link->state == DDL_LINK_OPEN;
}

void ddl_mesh_read_lanes_of(ddl_mesh_link *link)
{
    for (int i = 0; i < DDL_MESH_READS_PER_TURN && link->state == DDL_LINK_OPEN && read_lane(link); i++)
        if (ddl_lane_room_wanted(link->in))
            ddl_mesh_owe_nudge(link);
}

/* ---- all that there is ---- */

static bool read_some(ddl_mesh_link *link)
{
    return link->in != NULL ? read_lane(link) : read_socket(link);
}

/* What is there now, and so the end if there is one; whoever goes on sending does not hold this rank up. */
void ddl_mesh_read_to_the_end(ddl_mesh_link *link)
{
    const size_t there =
        link->in != NULL ? link->in->capacity : ddl_socket_unread(link->wire.fd) + AHEAD_BYTES;
    const uint64_t most = link->bytes_read + there;
    uint64_t before;
    do {
        before = link->bytes_read;
        read_some(link);
    } while (link->state == DDL_LINK_OPEN && link->bytes_read != before && before < most);
}

/* A session may hold half a record that is decrypted, of which the socket knows nothing. */
void ddl_mesh_note_unread(ddl_mesh_link *link)
{
    bool due =
        link->state == DDL_LINK_OPEN && ddl_mesh_is_encrypted(link) && ddl_wire_has_unread(&link->wire);
    due = due ||
          (link->stripes != NULL && link->state != DDL_LINK_LOST && ddl_stripes_has_unread(link->stripes));
    if (due && !ddl_link_linked(&link->unread))
        ddl_list_append(&link->mesh->unread, &link->unread);
    else if (!due && ddl_link_linked(&link->unread))
        ddl_list_remove(&link->unread);
}

void ddl_mesh_read_unread(ddl_mesh *mesh)
{
    ddl_list turn;
    ddl_list_take_all(&mesh->unread, &turn);
    for (ddl_link *first; (first = ddl_list_take_first(&turn)) != NULL;) {
        ddl_mesh_link *link = DDL_CONTAINER(first, ddl_mesh_link, unread);
        if (link->stripes != NULL)
            ddl_stripes_read_unread(link->stripes);
        ddl_mesh_read_link(link);
    }
}
