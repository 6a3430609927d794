/* stripes.c - the connections of a pair that carry stripes, from the first look to the last. */
#include "transport/stripes_state.h"

#include "base/assert.h"
#include "base/failpoint.h"
#include "io/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

enum { UNSENT_BYTES = 128 * 1024 /* a slow connection is not to swallow stripes that others could carry */ };

void ddl_stripes_bound_unsent(const ddl_stripes_stream *s, int bytes)
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
        ddl_stripes_stream *s = &stripes->streams[i];
        s->stripes = stripes;
        s->wire = wires[i];
        enough = enough && (s->wire.tls == NULL || ddl_tls_socket_hurry(s->wire.tls));
        ddl_stripes_bound_unsent(s, UNSENT_BYTES);
    }
    if (!enough) {
        ddl_stripes_destroy(stripes);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for %d sessions with a rank", count);
    }
    *out = stripes;
    return DDL_OK;
}

/* ---- the loop ---- */

void ddl_stripes_on_poll(uv_poll_t *poll, int status, int events)
{
    ddl_stripes_stream *s = poll->data;
    const ddl_stripes_owner *owner = &s->stripes->owner;
    if (status < 0) { /* the loop tells an error, whatever it is, so; what is unread comes first */
        ddl_stripes_read_to_the_end(s);
        if (ddl_stripes_is_read(s))
            ddl_stripes_lose(s, ECONNRESET, NULL);
        return;
    }
    if ((events & UV_WRITABLE) != 0) {
        s->blocked =
            false; /* another watch only if it stays so, as the loop forgets the socket until its next turn */
        ddl_stripes_flush(s->stripes);
        if (!s->blocked)
            ddl_stripes_watch_for(s, false);
    }
    if ((events & UV_READABLE) != 0)
        ddl_stripes_read(s);
    owner->changed(owner->arg);
}

static void on_poll_closed(uv_handle_t *handle)
{
    ddl_stripes_stream *s = handle->data;
    ddl_wire_close(&s->wire);
}

ddl_status ddl_stripes_open(ddl_stripes *stripes, ddl_engine *engine, ddl_error *err)
{
    stripes->engine = engine;
    for (int i = 0; i < stripes->nstreams; i++) {
        ddl_stripes_stream *s = &stripes->streams[i];
        int code = DDL_FAILPOINT("stripes.watch")
                       ? UV_ENOSPC
                       : uv_poll_init(ddl_engine_loop(engine), &s->poll, s->wire.fd);
        if (code == 0) {
            s->poll.data = s;
            s->poll_open = true;
            code = ddl_engine_watch(engine, &s->poll, UV_READABLE, ddl_stripes_on_poll);
        }
        if (code != 0)
            return DDL_FAIL_OS(err, DDL_ERESOURCE, -code, "cannot watch a connection for stripes");
    }
    return DDL_OK;
}

/* ---- facts ---- */

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
static bool is_cut_off(ddl_stripes_stream *s, const ddl_vigil_limits *limits, int64_t now_ns)
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

bool ddl_stripes_have_ended(const ddl_stripes *stripes)
{
    return stripes->closed || stripes->nended == stripes->nstreams;
}

/* ---- the end ---- */

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

void ddl_stripes_close(ddl_stripes *stripes)
{
    if (stripes->closed)
        return;
    stripes->closed = stripes->stopped = true;
    for (int i = 0; i < stripes->nstreams; i++) {
        ddl_stripes_stream *s = &stripes->streams[i];
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
