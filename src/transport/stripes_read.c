/* stripes_read.c - receives stripes, each into the message that it belongs to. */
#include "transport/stripes_state.h"

#include "base/failpoint.h"
#include "base/size.h"
#include "transport/moving.h"

#include <errno.h>

enum { READS_PER_TURN = 8 };

static void end_stream(ddl_stripes_stream *s)
{
    ddl_stripes *stripes = s->stripes;
    s->ended = true;
    if (s->poll_open)
        uv_poll_stop(&s->poll);
    if (++stripes->nended == stripes->nstreams)
        stripes->owner.left(stripes->owner.arg);
}

static void give_up(ddl_stripes_stream *s)
{
    const ddl_stripes_owner *owner = &s->stripes->owner;
    s->deaf = true;
    owner->given_up(owner->arg);
    end_stream(s);
}

void ddl_stripes_lose(ddl_stripes_stream *s, int os_errno, const ddl_error *error)
{
    const ddl_stripes_owner *owner = &s->stripes->owner;
    const bool may_go_on = ddl_stripes_index_of(s) > 0 || ddl_list_empty(&s->stripes->waiting);
    if (owner->given_up != NULL && error == NULL && !s->carried && may_go_on)
        give_up(s);
    else
        owner->ended(owner->arg, ddl_stripes_index_of(s), os_errno, error);
}

/* A header has come. False: it cannot be. */
static bool take_header(ddl_stripes_stream *s, ddl_error *err)
{
    const ddl_stripes_owner *owner = &s->stripes->owner;
    ddl_frame frame;
    s->partial_bytes = 0;
    if (ddl_frame_decode(s->partial, &frame, err) != DDL_OK)
        return false;
    if (frame.type == DDL_FRAME_GOODBYE) {
        end_stream(s);
        return true;
    }
    if (frame.type != DDL_FRAME_STRIPE) {
        DDL_FAIL(err, DDL_EPROTO, "a frame of type %u on a connection for stripes", frame.type);
        return false;
    }
    s->in = NULL;
    s->carried = true;
    if (!owner->find(owner->arg, &frame, &s->in, err))
        return false;
    s->in_begin = s->in_at = (size_t)frame.credit * DDL_FRAME_STRIPE_BYTES;
    s->in_left = frame.bytes;
    return true;
}

/* The last byte of a stripe has come. */
static void finish_stripe(ddl_stripes_stream *s)
{
    const ddl_stripes_owner *owner = &s->stripes->owner;
    ddl_xfer *xfer = s->in;
    const size_t bytes = s->in_at - s->in_begin;
    s->in = NULL;
    if (xfer == NULL)
        return;
    if (xfer->take != NULL) {
        xfer->take(xfer, s->in_begin, (const char *)xfer->part[0].data + s->in_begin, bytes);
        xfer->taken += bytes;
    }
    xfer->moved += bytes;
    if (xfer->moved == xfer->bytes)
        owner->received(owner->arg, xfer);
}

/* The rest of a stripe, straight into its place, and the next header behind it. */
static int places_of(ddl_stripes_stream *s, struct iovec iov[DDL_STRIPES_PARTS + 1], size_t *payload,
                     size_t *wanted)
{
    int count = 0;
    *payload = s->in_left;
    if (s->in_left > 0 && s->in != NULL) {
        count = ddl_moving_parts_between(s->in, s->in_at, s->in_at + s->in_left, iov, 0);
    } else if (s->in_left > 0) {
        *payload = ddl_size_min(s->in_left, DDL_WIRE_ROOM_BYTES);
        iov[count++] = (struct iovec){ s->stripes->room, *payload };
    }
    *wanted = *payload;
    if (*payload == s->in_left) {
        iov[count++] = (struct iovec){ s->partial + s->partial_bytes, DDL_FRAME_BYTES - s->partial_bytes };
        *wanted += DDL_FRAME_BYTES - s->partial_bytes;
    }
    return count;
}

static void fail_to_read(ddl_stripes_stream *s, int os_errno)
{
    ddl_error error;
    if (os_errno != EBADMSG) {
        ddl_stripes_lose(s, os_errno, NULL);
        return;
    }
    DDL_FAIL(&error, DDL_EPROTO, "what TLS does not take: %s", ddl_wire_problem(&s->wire));
    ddl_stripes_lose(s, 0, &error);
}

/* One read. False: the socket was emptied, as a short read tells, or has ended. */
static bool read_some(ddl_stripes_stream *s)
{
    struct iovec iov[DDL_STRIPES_PARTS + 1];
    size_t payload, wanted;
    int count = places_of(s, iov, &payload, &wanted);
    ssize_t result =
        DDL_FAILPOINT_OS("mesh.recv", ECONNRESET) ? -1 : ddl_wire_read_parts(&s->wire, iov, count);
    if (result < 0 && errno == EINTR)
        return true;
    if (result <= 0) {
        int os_errno = result < 0 ? errno : s->reset_errno;
        if (os_errno != EAGAIN && os_errno != EWOULDBLOCK)
            fail_to_read(s, os_errno);
        return false;
    }
    size_t here = ddl_size_min((size_t)result, payload);
    s->bytes_read += (size_t)result;
    s->in_at += here;
    s->in_left -= here;
    s->partial_bytes += (size_t)result - here;
    if (here > 0 && s->in_left == 0)
        finish_stripe(s);
    ddl_error error;
    const bool is_whole = s->partial_bytes == DDL_FRAME_BYTES;
    if (!s->stripes->stopped &&
        !(is_whole ? take_header(s, &error)
                   : ddl_frame_check_begin(s->partial, s->partial_bytes, &error) == DDL_OK)) {
        ddl_stripes_lose(s, 0, &error);
        return false;
    }
    return (size_t)result == wanted;
}

void ddl_stripes_read(ddl_stripes_stream *s)
{
    for (int i = 0; i < READS_PER_TURN && ddl_stripes_is_read(s) && read_some(s); i++)
        ;
}

void ddl_stripes_read_to_the_end(ddl_stripes_stream *s)
{
    uint64_t before;
    do {
        before = s->bytes_read;
        (void)read_some(s);
    } while (ddl_stripes_is_read(s) && s->bytes_read != before);
}

void ddl_stripes_cancel_recv(ddl_stripes *stripes, const ddl_xfer *xfer)
{
    for (int i = 0; i < stripes->nstreams; i++)
        if (stripes->streams[i].in == xfer)
            stripes->streams[i].in = NULL;
}

static bool has_unread(const ddl_stripes_stream *s)
{
    return ddl_stripes_is_read(s) && ddl_wire_has_unread(&s->wire);
}

bool ddl_stripes_has_unread(const ddl_stripes *stripes)
{
    bool unread = false;
    for (int i = 0; i < stripes->nstreams && !unread; i++)
        unread = has_unread(&stripes->streams[i]);
    return unread;
}

void ddl_stripes_read_unread(ddl_stripes *stripes)
{
    for (int i = 0; i < stripes->nstreams; i++)
        if (has_unread(&stripes->streams[i]))
            ddl_stripes_read(&stripes->streams[i]);
}
