/* stripes_write.c - sends stripes, each over the connection that takes it first. */
#include "transport/stripes_state.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "base/size.h"
#include "io/socket.h"
#include "transport/moving.h"

#include <errno.h>

void ddl_stripes_watch_for(ddl_stripes_stream *s, bool writable)
{
    s->blocked = writable;
    if (s->watched == writable)
        return;
    s->watched = writable;
    if (s->poll_open && !s->ended && !s->stripes->stopped)
        ddl_engine_watch(s->stripes->engine, &s->poll, UV_READABLE | (writable ? UV_WRITABLE : 0),
                         ddl_stripes_on_poll);
}

/* Whether there is, or now will be, a stripe to send. */
static bool begin_stripe(ddl_stripes_stream *s)
{
    ddl_stripes *stripes = s->stripes;
    ddl_link *first = ddl_list_first(&stripes->waiting);
    if (s->out != NULL || first == NULL || ddl_stripes_index_of(s) >= stripes->nused)
        return s->out != NULL;
    ddl_xfer *xfer = DDL_CONTAINER(first, ddl_xfer, link);
    ddl_frame frame = stripes->owner.frame(stripes->owner.arg, xfer);
    const uint32_t number = xfer->stripes++;
    if (xfer->stripes == ddl_frame_stripes_of(xfer->bytes)) {
        ddl_list_remove(&xfer->link);
        ddl_list_append(&stripes->leaving, &xfer->link);
    }
    s->out = xfer;
    s->carried = true;
    s->out_at = (size_t)number * DDL_FRAME_STRIPE_BYTES;
    s->out_left = ddl_frame_stripe_bytes(xfer->bytes, number);
    frame.type = DDL_FRAME_STRIPE;
    frame.credit = number;
    frame.bytes = (uint32_t)s->out_left;
    ddl_frame_encode(&frame, s->header);
    s->header_sent = 0;
    return true;
}

static bool between_frames(const ddl_stripes_stream *s)
{
    return s->out == NULL || s->header_sent == 0;
}

static bool has_rest(const ddl_stripes_stream *s)
{
    return s->rest.bytes > 0;
}

static void take_rest_as_sent(ddl_stripes_stream *s, size_t bytes)
{
    s->rest_sent += bytes;
    if (s->rest_sent == s->rest.bytes)
        s->rest.bytes = s->rest_sent = 0;
}

/* Bytes of a stripe have left. */
static void take_stripe_as_sent(ddl_stripes_stream *s, size_t bytes)
{
    size_t of_header = ddl_size_min(bytes, DDL_FRAME_BYTES - s->header_sent);
    s->header_sent += of_header;
    s->out_at += bytes - of_header;
    s->out_left -= bytes - of_header;
    s->out->moved += bytes - of_header;
}

/* A stripe that is whole. What TLS has kept is not sent yet. The message, if that was its last byte: the
 * caller tells. */
static ddl_xfer *end_stripe(ddl_stripes_stream *s)
{
    ddl_xfer *xfer = s->out;
    if (xfer == NULL || s->header_sent < DDL_FRAME_BYTES || s->out_left > 0 || ddl_wire_has_unsent(&s->wire))
        return NULL;
    s->out = NULL;
    for (int i = 0; i < s->stripes->nstreams; i++)
        if (s->stripes->streams[i].out == xfer)
            return NULL;
    return xfer->moved == xfer->bytes ? xfer : NULL;
}

static void fail_to_write(ddl_stripes_stream *s)
{
    const ddl_stripes_owner *owner = &s->stripes->owner;
    ddl_error error;
    if (ddl_socket_is_full(errno)) {
        ddl_stripes_watch_for(s, true);
    } else if (ddl_socket_is_hung_up(errno)) {
        s->deaf = true;
        s->reset_errno = errno == ECONNRESET ? errno : 0;
        ddl_stripes_watch_for(s, false);
    } else if (errno == EBADMSG) {
        DDL_FAIL(&error, DDL_EPROTO, "what TLS does not take: %s", ddl_wire_problem(&s->wire));
        owner->lost(owner->arg, ddl_stripes_index_of(s), 0, &error);
    } else {
        owner->lost(owner->arg, ddl_stripes_index_of(s), errno, NULL);
    }
}

/* One write. False: nothing to write, or the socket takes no more. *finished: the message whose last byte
 * left. */
static bool write_some(ddl_stripes_stream *s, ddl_xfer **finished)
{
    struct iovec iov[1 + DDL_STRIPES_PARTS];
    int count = 0;
    *finished = NULL;
    if (s->deaf || s->blocked)
        return false;
    const bool rest = has_rest(s) && between_frames(s);
    if (rest) {
        iov[count++] = (struct iovec){ s->rest.data + s->rest_sent, s->rest.bytes - s->rest_sent };
    } else if (begin_stripe(s)) {
        if (s->header_sent < DDL_FRAME_BYTES)
            iov[count++] = (struct iovec){ s->header + s->header_sent, DDL_FRAME_BYTES - s->header_sent };
        count = ddl_moving_parts_between(s->out, s->out_at, s->out_at + s->out_left, iov, count);
    } else if (!ddl_wire_has_unsent(&s->wire)) {
        return false;
    }
    ssize_t result = DDL_FAILPOINT_OS("mesh.send", ECONNRESET)
                         ? -1
                         : ddl_wire_write_parts(&s->wire, iov, count, s->stripes->room);
    if (result < 0 && errno == EINTR)
        return true;
    if (result < 0) {
        fail_to_write(s);
        return false;
    }
    if (rest)
        take_rest_as_sent(s, (size_t)result);
    else if (s->out != NULL)
        take_stripe_as_sent(s, (size_t)result);
    *finished = end_stripe(s);
    return true;
}

/* Each stream in turn, so that all carry something before one carries more. True: the message of the
 * caller's, if any, has left; others are told. */
static bool write_in_turns(ddl_stripes *stripes, const ddl_xfer *own)
{
    bool own_left = false;
    stripes->flushing = true;
    for (int idle = 0; idle < stripes->nstreams && !stripes->stopped;) {
        ddl_xfer *finished;
        ddl_stripes_stream *s = &stripes->streams[stripes->next];
        stripes->next = (stripes->next + 1) % stripes->nstreams;
        idle = write_some(s, &finished) ? 0 : idle + 1;
        if (finished == NULL)
            continue;
        ddl_list_remove(&finished->link);
        own_left = own_left || finished == own;
        if (finished != own)
            stripes->owner.sent(stripes->owner.arg, finished);
    }
    stripes->flushing = false;
    return own_left;
}

void ddl_stripes_flush(ddl_stripes *stripes)
{
    if (!stripes->flushing && !stripes->stopped)
        write_in_turns(stripes, NULL);
}

bool ddl_stripes_send(ddl_stripes *stripes, ddl_xfer *xfer)
{
    /* Else it would be told of others from within a post. */
    bool idle = ddl_list_empty(&stripes->waiting) && ddl_list_empty(&stripes->leaving) && !stripes->flushing;
    xfer->stripes = 0;
    ddl_list_append(&stripes->waiting, &xfer->link);
    return idle && !stripes->stopped && write_in_turns(stripes, xfer);
}

static bool keep_rest(ddl_stripes_stream *s)
{
    struct iovec parts[DDL_STRIPES_PARTS];
    int count = ddl_moving_parts_between(s->out, s->out_at, s->out_at + s->out_left, parts, 0);
    /* Nothing is queued behind a stripe that is under way but a goodbye, which comes last. */
    DDL_ASSERT(!has_rest(s));
    bool kept = ddl_bytes_append(&s->rest, s->header + s->header_sent, DDL_FRAME_BYTES - s->header_sent);
    for (int i = 0; i < count; i++)
        kept = kept && ddl_bytes_append(&s->rest, parts[i].iov_base, parts[i].iov_len);
    return kept;
}

bool ddl_stripes_cancel_send(ddl_stripes *stripes, const ddl_xfer *xfer)
{
    bool sound = true;
    for (int i = 0; i < stripes->nstreams; i++) {
        ddl_stripes_stream *s = &stripes->streams[i];
        if (s->out != xfer)
            continue;
        /* Half a stripe cannot be taken back, and must not be completed with other bytes. */
        if (s->header_sent > 0 && !s->deaf && !stripes->stopped && !keep_rest(s)) {
            s->rest.bytes = 0;
            s->deaf = true; /* whatever is said now would be taken for the rest */
            sound = false;
        }
        s->out = NULL;
    }
    return sound;
}

bool ddl_stripes_has_queued(const ddl_stripes *stripes)
{
    const bool messages = !ddl_list_empty(&stripes->waiting) || !ddl_list_empty(&stripes->leaving);
    bool queued = false;
    for (int i = 0; i < stripes->nstreams && !queued; i++) {
        const ddl_stripes_stream *s = &stripes->streams[i];
        queued = !s->deaf && (messages || has_rest(s) || ddl_wire_has_unsent(&s->wire));
    }
    return queued && !stripes->stopped;
}

/* ---- the end ---- */

void ddl_stripes_say_goodbye(ddl_stripes *stripes)
{
    const ddl_frame goodbye = { .type = DDL_FRAME_GOODBYE };
    uint8_t header[DDL_FRAME_BYTES];
    ddl_frame_encode(&goodbye, header);
    for (int i = 0; i < stripes->nstreams && !stripes->stopped; i++) {
        ddl_stripes_stream *s = &stripes->streams[i];
        ddl_xfer *finished;
        /* Not in the middle of a stripe: that this rank is lost is what the peer then is to hear. */
        if (!between_frames(s) || !ddl_bytes_append(&s->rest, header, sizeof header))
            continue;
        ddl_stripes_bound_unsent(s, 0); /* it is the last chance */
        s->blocked = false;
        while (has_rest(s) && write_some(s, &finished))
            ;
        (void)ddl_wire_flush(&s->wire);
    }
}

bool ddl_stripes_part(ddl_stripes *stripes, struct pollfd *wait)
{
    bool all = true;
    for (int i = 0; i < stripes->nstreams && !stripes->stopped; i++) {
        ddl_stripes_stream *s = &stripes->streams[i];
        ddl_xfer *finished;
        s->blocked = false;
        while (has_rest(s) && between_frames(s) && write_some(s, &finished))
            ;
        struct pollfd own = { .fd = s->wire.fd };
        if (s->deaf || !between_frames(s) ||
            ddl_wire_part(&s->wire, !has_rest(s), stripes->room, DDL_WIRE_ROOM_BYTES, &own.events))
            continue;
        *wait = own;
        all = false;
    }
    return all;
}
