/* stripes.c - the connections of a pair that carry stripes: what each sends and receives. */
#include "transport/stripes.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/size.h"
#include "io/socket.h"
#include "transport/moving.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READS_PER_TURN = 8,
    STRIPE_PARTS = 2,         /* of a message's bytes, and so of a stripe's */
    UNSENT_BYTES = 128 * 1024 /* a slow connection is not to swallow stripes that others could carry */
};

typedef struct stream {
    ddl_stripes *stripes;
    ddl_wire wire;
    uv_poll_t poll;
    bool poll_open;
    bool ended;   /* the peer has said goodbye */
    bool blocked; /* the socket takes no more; a poll tells when it does */
    bool watched; /* by the poll, for that */
    bool deaf;    /* a write failed; reading tells the end */
    bool carried; /* stripes, or the beginning of one, in either direction */

    ddl_xfer *out; /* whose stripe is being sent */
    size_t out_at, out_left;
    uint8_t header[DDL_FRAME_BYTES];
    size_t header_sent;
    ddl_bytes rest; /* of what was cancelled, and a goodbye: goes before the next stripe */
    size_t rest_sent;

    uint8_t partial[DDL_FRAME_BYTES]; /* the next header */
    size_t partial_bytes;
    ddl_xfer *in; /* whose stripe comes; NULL: nobody wants it */
    size_t in_begin, in_at, in_left;
    uint64_t bytes_read;
    ddl_vigil vigil; /* over what has been sent */
} stream;

struct ddl_stripes {
    ddl_stripes_owner owner;
    uint8_t *room;
    ddl_list waiting; /* messages of which stripes are to be begun, oldest first */
    ddl_list leaving; /* all their stripes are begun */
    int next;         /* stream that takes the next stripe */
    int nended;
    bool flushing, stopped, closed;
    int nstreams, nused;
    stream streams[];
};

static void on_poll(uv_poll_t *poll, int status, int events);

/* ---- writing ---- */

static void watch_for(stream *s, bool writable)
{
    s->blocked = writable;
    if (s->watched == writable)
        return;
    s->watched = writable;
    if (s->poll_open && !s->ended && !s->stripes->stopped)
        uv_poll_start(&s->poll, UV_READABLE | (writable ? UV_WRITABLE : 0), on_poll);
}

static int index_of(const stream *s)
{
    return (int)(s - s->stripes->streams);
}

/* Whether there is, or now will be, a stripe to send. */
static bool begin_stripe(stream *s)
{
    ddl_stripes *stripes = s->stripes;
    ddl_link *first = ddl_list_first(&stripes->waiting);
    if (s->out != NULL || first == NULL || index_of(s) >= stripes->nused)
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

static bool between_frames(const stream *s)
{
    return s->out == NULL || s->header_sent == 0;
}

static bool has_rest(const stream *s)
{
    return s->rest.bytes > 0;
}

static void take_rest_as_sent(stream *s, size_t bytes)
{
    s->rest_sent += bytes;
    if (s->rest_sent == s->rest.bytes)
        s->rest.bytes = s->rest_sent = 0;
}

/* Bytes of a stripe have left. */
static void take_stripe_as_sent(stream *s, size_t bytes)
{
    size_t of_header = ddl_size_min(bytes, DDL_FRAME_BYTES - s->header_sent);
    s->header_sent += of_header;
    s->out_at += bytes - of_header;
    s->out_left -= bytes - of_header;
    s->out->moved += bytes - of_header;
}

/* A stripe that is whole. What TLS has kept is not sent yet. The message, if that was its last byte: the
 * caller tells. */
static ddl_xfer *end_stripe(stream *s)
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

static void fail_to_write(stream *s)
{
    const ddl_stripes_owner *owner = &s->stripes->owner;
    ddl_error error;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM) {
        watch_for(s, true);
    } else if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
        s->deaf = true;
        watch_for(s, false);
    } else if (errno == EBADMSG) {
        DDL_FAIL(&error, DDL_EPROTO, "what TLS does not take: %s", ddl_wire_problem(&s->wire));
        owner->lost(owner->arg, index_of(s), 0, &error);
    } else {
        owner->lost(owner->arg, index_of(s), errno, NULL);
    }
}

/* One write. False: nothing to write, or the socket takes no more. *finished: the message whose last byte
 * left. */
static bool write_some(stream *s, ddl_xfer **finished)
{
    struct iovec iov[1 + STRIPE_PARTS];
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
        stream *s = &stripes->streams[stripes->next];
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

void ddl_stripes_use(ddl_stripes *stripes, int count)
{
    DDL_ASSERT(count > 0);
    DDL_ASSERT(count <= stripes->nstreams);
    stripes->nused = count;
}

bool ddl_stripes_look(const ddl_stripes *stripes, ddl_climb_look *look)
{
    ddl_climb_look all = { .has_more = !ddl_list_empty(&stripes->waiting) };
    for (int i = 0; i < stripes->nused; i++) {
        ddl_socket_acks acks;
        if (!ddl_socket_ask_acks(stripes->streams[i].wire.fd, &acks))
            return false;
        all.acked_bytes += acks.acked_bytes;
        all.busy_us += acks.busy_us / (uint64_t)stripes->nused;
        all.has_more = all.has_more || acks.has_unsent;
    }
    *look = all;
    return true;
}

int ddl_stripes_count(const ddl_stripes *stripes)
{
    return stripes->nstreams;
}

int ddl_stripes_most(const ddl_stripes *stripes)
{
    int sound = 0, most = 1;
    while (!stripes->stopped && sound < stripes->nstreams && !stripes->streams[sound].deaf)
        sound++;
    while (2 * most <= sound)
        most *= 2;
    return most;
}

/* Whether what was sent over it has not been acknowledged for too long, whatever comes of the others. */
static bool is_cut_off(stream *s, const ddl_vigil_limits *limits, int64_t now_ns)
{
    ddl_socket_acks acks;
    bool ping;
    if (!s->carried || s->ended || s->deaf || !ddl_socket_ask_acks(s->wire.fd, &acks))
        return false;
    const ddl_signs signs = { .heard = s->bytes_read,
                              .taken = acks.acked_bytes,
                              .has_acks = true,
                              .awaits_acks = acks.awaits_more,
                              .answers = acks.answers,
                              .ack_ns = acks.ago_ns,
                              .tries = acks.tries };
    return ddl_vigil_look(&s->vigil, &signs, limits, now_ns, &ping) == DDL_VIGIL_UNREACHABLE;
}

int ddl_stripes_find_cut_off(ddl_stripes *stripes, const ddl_vigil_limits *limits, int64_t now_ns)
{
    int found = -1;
    for (int i = 0; i < stripes->nstreams && !stripes->stopped; i++)
        if (is_cut_off(&stripes->streams[i], limits, now_ns) && found < 0)
            found = i;
    return found;
}

uint64_t ddl_stripes_heard(const ddl_stripes *stripes)
{
    uint64_t bytes = 0;
    for (int i = 0; i < stripes->nstreams; i++)
        bytes += stripes->streams[i].bytes_read;
    return bytes;
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

static bool keep_rest(stream *s)
{
    struct iovec parts[STRIPE_PARTS];
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
        stream *s = &stripes->streams[i];
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
        const stream *s = &stripes->streams[i];
        queued = !s->deaf && (messages || has_rest(s) || ddl_wire_has_unsent(&s->wire));
    }
    return queued && !stripes->stopped;
}

/* ---- reading ---- */

static void end_stream(stream *s)
{
    ddl_stripes *stripes = s->stripes;
    s->ended = true;
    if (s->poll_open)
        uv_poll_stop(&s->poll);
    if (++stripes->nended == stripes->nstreams)
        stripes->owner.left(stripes->owner.arg);
}

static void give_up(stream *s)
{
    const ddl_stripes_owner *owner = &s->stripes->owner;
    s->deaf = true;
    owner->given_up(owner->arg);
    end_stream(s);
}

static void lose(stream *s, int os_errno, const ddl_error *error)
{
    const ddl_stripes_owner *owner = &s->stripes->owner;
    const bool may_go_on = index_of(s) > 0 || ddl_list_empty(&s->stripes->waiting);
    if (owner->given_up != NULL && error == NULL && !s->carried && may_go_on)
        give_up(s);
    else
        owner->ended(owner->arg, index_of(s), os_errno, error);
}

/* A header has come. False: it cannot be. */
static bool take_header(stream *s, ddl_error *err)
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
static void finish_stripe(stream *s)
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
static int places_of(stream *s, struct iovec iov[STRIPE_PARTS + 1], size_t *payload, size_t *wanted)
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

static void fail_to_read(stream *s, int os_errno)
{
    ddl_error error;
    if (os_errno != EBADMSG) {
        lose(s, os_errno, NULL);
        return;
    }
    DDL_FAIL(&error, DDL_EPROTO, "what TLS does not take: %s", ddl_wire_problem(&s->wire));
    lose(s, 0, &error);
}

/* One read. False: the socket was emptied, as a short read tells, or has ended. */
static bool read_some(stream *s)
{
    struct iovec iov[STRIPE_PARTS + 1];
    size_t payload, wanted;
    int count = places_of(s, iov, &payload, &wanted);
    ssize_t result =
        DDL_FAILPOINT_OS("mesh.recv", ECONNRESET) ? -1 : ddl_wire_read_parts(&s->wire, iov, count);
    if (result < 0 && errno == EINTR)
        return true;
    if (result <= 0) {
        int os_errno = result < 0 ? errno : 0;
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
        lose(s, 0, &error);
        return false;
    }
    return (size_t)result == wanted;
}

static bool is_read(const stream *s)
{
    return !s->ended && !s->stripes->stopped;
}

static void read_stream(stream *s)
{
    for (int i = 0; i < READS_PER_TURN && is_read(s) && read_some(s); i++)
        ;
}

/* Of a socket with an error: take what is unread. A short read is not the end of it here. */
static void read_to_the_end(stream *s)
{
    uint64_t before;
    do {
        before = s->bytes_read;
        (void)read_some(s);
    } while (is_read(s) && s->bytes_read != before);
}

void ddl_stripes_cancel_recv(ddl_stripes *stripes, const ddl_xfer *xfer)
{
    for (int i = 0; i < stripes->nstreams; i++)
        if (stripes->streams[i].in == xfer)
            stripes->streams[i].in = NULL;
}

static bool has_unread(const stream *s)
{
    return is_read(s) && ddl_wire_has_unread(&s->wire);
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
            read_stream(&stripes->streams[i]);
}

/* ---- the loop ---- */

static void on_poll(uv_poll_t *poll, int status, int events)
{
    stream *s = poll->data;
    const ddl_stripes_owner *owner = &s->stripes->owner;
    if (status < 0) { /* the loop tells an error, whatever it is, so; what is unread comes first */
        read_to_the_end(s);
        if (is_read(s))
            lose(s, ECONNRESET, NULL);
        return;
    }
    if ((events & UV_WRITABLE) != 0) {
        s->blocked =
            false; /* another watch only if it stays so, as the loop forgets the socket until its next turn */
        ddl_stripes_flush(s->stripes);
        if (!s->blocked)
            watch_for(s, false);
    }
    if ((events & UV_READABLE) != 0)
        read_stream(s);
    owner->changed(owner->arg);
}

static void on_poll_closed(uv_handle_t *handle)
{
    stream *s = handle->data;
    ddl_wire_close(&s->wire);
}

/* ---- life ---- */

/* How much a socket takes that its network has not; 0: whatever fits. */
static void bound_unsent(const stream *s, int bytes)
{
#ifdef TCP_NOTSENT_LOWAT
    setsockopt(s->wire.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
#else
    (void)s;
    (void)bytes;
#endif
}

ddl_status ddl_stripes_create(const ddl_wire wires[], int count, const ddl_stripes_owner *owner,
                              uint8_t room[DDL_WIRE_ROOM_BYTES], ddl_stripes **out, ddl_error *err)
{
    DDL_ASSERT(count > 0);
    ddl_stripes *stripes = ddl_alloc(sizeof *stripes + (size_t)count * sizeof stripes->streams[0]);
    if (stripes == NULL) {
        for (int i = 0; i < count; i++) {
            ddl_wire wire = wires[i];
            ddl_wire_close(&wire);
        }
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d connections to a rank", count);
    }
    stripes->owner = *owner;
    stripes->room = room;
    stripes->nstreams = stripes->nused = count;
    ddl_list_init(&stripes->waiting);
    ddl_list_init(&stripes->leaving);
    bool enough = true;
    for (int i = 0; i < count; i++) {
        stream *s = &stripes->streams[i];
        s->stripes = stripes;
        s->wire = wires[i];
        enough = enough && (s->wire.tls == NULL || ddl_tls_socket_hurry(s->wire.tls));
        bound_unsent(s, UNSENT_BYTES);
    }
    if (!enough) {
        ddl_stripes_destroy(stripes);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d sessions with a rank", count);
    }
    *out = stripes;
    return DDL_OK;
}

ddl_status ddl_stripes_open(ddl_stripes *stripes, ddl_engine *engine, ddl_error *err)
{
    for (int i = 0; i < stripes->nstreams; i++) {
        stream *s = &stripes->streams[i];
        int code = DDL_FAILPOINT("stripes.watch")
                       ? UV_ENOSPC
                       : uv_poll_init(ddl_engine_loop(engine), &s->poll, s->wire.fd);
        if (code == 0) {
            s->poll.data = s;
            s->poll_open = true;
            code = uv_poll_start(&s->poll, UV_READABLE, on_poll);
        }
        if (code != 0)
            return DDL_FAIL_OS(err, DDL_ERESOURCE, -code, "cannot watch a connection for stripes");
    }
    return DDL_OK;
}

bool ddl_stripes_have_ended(const ddl_stripes *stripes)
{
    return stripes->closed || stripes->nended == stripes->nstreams;
}

void ddl_stripes_stop(ddl_stripes *stripes)
{
    stripes->stopped = true;
    for (int i = 0; i < stripes->nstreams; i++)
        if (stripes->streams[i].poll_open)
            uv_poll_stop(&stripes->streams[i].poll);
}

void ddl_stripes_shut(ddl_stripes *stripes)
{
    ddl_stripes_stop(stripes);
    for (int i = 0; i < stripes->nstreams; i++)
        shutdown(stripes->streams[i].wire.fd, SHUT_WR);
}

void ddl_stripes_say_goodbye(ddl_stripes *stripes)
{
    const ddl_frame goodbye = { .type = DDL_FRAME_GOODBYE };
    uint8_t header[DDL_FRAME_BYTES];
    ddl_frame_encode(&goodbye, header);
    for (int i = 0; i < stripes->nstreams && !stripes->stopped; i++) {
        stream *s = &stripes->streams[i];
        ddl_xfer *finished;
        /* Not in the middle of a stripe: that this rank is lost is what the peer then is to hear. */
        if (!between_frames(s) || !ddl_bytes_append(&s->rest, header, sizeof header))
            continue;
        bound_unsent(s, 0); /* it is the last chance */
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
        stream *s = &stripes->streams[i];
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

void ddl_stripes_close(ddl_stripes *stripes)
{
    if (stripes->closed)
        return;
    stripes->closed = stripes->stopped = true;
    for (int i = 0; i < stripes->nstreams; i++) {
        stream *s = &stripes->streams[i];
        if (s->poll_open)
            uv_close((uv_handle_t *)&s->poll, on_poll_closed);
        else
            ddl_wire_close(&s->wire);
        s->poll_open = false;
    }
}

void ddl_stripes_destroy(ddl_stripes *stripes)
{
    if (stripes == NULL)
        return;
    for (int i = 0; i < stripes->nstreams; i++) {
        ddl_wire_close(&stripes->streams[i].wire);
        ddl_bytes_fini(&stripes->streams[i].rest);
    }
    ddl_free(stripes);
}

void ddl_stripes_close_in_child(const ddl_stripes *stripes)
{
    for (int i = 0; i < stripes->nstreams; i++)
        if (stripes->streams[i].wire.fd >= 0)
            close(stripes->streams[i].wire.fd);
}
