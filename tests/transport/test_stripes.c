/* test_stripes.c - messages that go over several connections: what comes, what cannot be, and the ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "pair.h"
#include "transport/mesh_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KIB = 1024, STRIPE = DDL_FRAME_STRIPE_BYTES };

/* ---- two ranks ---- */

static void every_connection_carries_stripes(void **state)
{
    (void)state;
    enum { BYTES = 3 * STRIPE }; /* which one of them would take, too */
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    message out, in;
    post_recv(&pair[1], &in, 1, BYTES, BYTES);
    ddl_engine_progress(pair[1].engine);
    ddl_engine_progress(pair[0].engine);
    post_send(&pair[0], &out, 1, BYTES, BYTES);
    for (int i = 0; i < nstreams; i++) {
        int there = 0;
        assert_int_equal(ioctl(streams[1][i], FIONREAD, &there), 0);
        assert_true(there > STRIPE);
    }
    deliver(pair, &out, &in);
    free(in.data);
    free(out.data);
    close_pair(pair);
}

/* Buffers of the least size: each write and read moves a part, and connections take turns at random. */
static void many_messages_go_both_ways_through_small_buffers(void **state)
{
    (void)state;
    enum { EACH = 10 };
    static const size_t sizes[] = { STRIPE + 1, 3 * STRIPE, 200001, 1000, 5 * STRIPE - 1 };
    static message out[2][EACH], in[2][EACH];
    side pair[2];
    int sockets[2], bytes = 1;
    open_pair(pair, sockets);
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < nstreams; i++)
            setsockopt(streams[rank][i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    for (int rank = 0; rank < 2; rank++) {
        ddl_transport *transport = ddl_mesh_transport(pair[rank].mesh);
        for (int i = 0; i < EACH; i++) {
            size_t size = sizes[i % 5];
            prepare(&in[rank][i], 1 - rank, (uint64_t)i + 1, size, size / 3, false);
            in[rank][i].done = transport->ops->recv(transport, &in[rank][i].xfer);
            prepare(&out[rank][i], 1 - rank, (uint64_t)i + 1, size, size / 2, true);
            out[rank][i].done = transport->ops->send(transport, &out[rank][i].xfer);
        }
    }
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < EACH; i++) {
            drive_until(pair, &in[rank][i].done);
            drive_until(pair, &out[rank][i].done);
            assert_arrived(&in[rank][i]);
        }
    for (int rank = 0; rank < 2; rank++) {
        assert_false(ddl_mesh_has_queued(pair[rank].mesh));
        assert_false(ddl_mesh_needs_loop(pair[rank].mesh));
        for (int i = 0; i < EACH; i++) {
            free(in[rank][i].data);
            free(out[rank][i].data);
        }
    }
    close_pair(pair);
}

/* Stripes that are under way are completed with their own bytes, the others never go, and what comes next
 * is in step. */
static void a_message_cancelled_half_way_leaves_the_connections_usable(void **state)
{
    (void)state;
    enum { BYTES = 1024 * KIB };
    side pair[2];
    int sockets[2], least = 1;
    open_pair(pair, sockets);
    for (int i = 0; i < nstreams; i++)
        setsockopt(streams[0][i], SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
    message out, in, next_out, next_in;
    post_recv(&pair[1], &in, 1, BYTES, BYTES);
    ddl_engine_progress(pair[1].engine);
    ddl_engine_progress(pair[0].engine);
    post_send(&pair[0], &out, 1, BYTES, BYTES);
    assert_false(out.done);
    ddl_transport *transport = ddl_mesh_transport(pair[0].mesh);
    transport->ops->cancel(transport, &out.xfer);
    memset(out.data, 0x55, BYTES);
    post_recv(&pair[1], &next_in, 2, BYTES, BYTES / 2);
    post_send(&pair[0], &next_out, 2, BYTES, BYTES / 3);
    deliver(pair, &next_out, &next_in);
    assert_false(in.done);
    for (size_t i = 0; i < BYTES; i++)
        if (in.data[i] != pattern(1, i) && in.data[i] != 0xee)
            fail_msg("byte %zu is of neither the message nor the receiver", i);
    assert_int_equal(pair[0].lost + pair[1].lost, 0);
    transport = ddl_mesh_transport(pair[1].mesh);
    transport->ops->cancel(transport, &in.xfer);
    assert_false(ddl_mesh_needs_loop(pair[1].mesh));
    free(out.data);
    free(in.data);
    free(next_out.data);
    free(next_in.data);
    close_pair(pair);
}

static void the_end_of_any_connection_is_the_end_of_the_link_on_both_sides(void **state)
{
    (void)state;
    for (int broken = 0; broken < nstreams; broken++)
        for (int rank = 0; rank < 2; rank++) {
            side pair[2];
            int sockets[2];
            char which[32];
            open_pair(pair, sockets);
            drive(pair, 2);
            shutdown(streams[rank][broken], SHUT_RD); /* the other end sees nothing of it by itself */
            drive(pair, 20);
            for (int i = 0; i < 2; i++) {
                assert_int_equal(pair[i].left, 0);
                assert_int_equal(pair[i].lost, 1);
                assert_int_equal(pair[i].lost_code, DDL_EPEERLOST);
                assert_non_null(strstr(pair[i].lost_text, "of 4 was closed by the other end"));
            }
            snprintf(which, sizeof which, "connection %d of 4 ", broken + 2); /* beside the first one */
            assert_non_null(strstr(pair[rank].lost_text, which));
            close_pair(pair);
        }
}

enum { UNREAD = 4096 }; /* of a slow connection */

/* Though a slow connection takes no more stripes, it takes the goodbye, behind what it has. */
static void a_goodbye_leaves_also_where_the_network_is_slow(void **state)
{
    (void)state;
    enum { BYTES = 2048 * KIB };
    const int streams_before = nstreams;
    side pair[2];
    int sockets[2], slow[2];
    memset(pair, 0, sizeof pair);
    nstreams = 1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    connect_over_tcp("127.0.0.1", UNREAD, slow);
    for (int rank = 0; rank < 2; rank++) {
        streams[rank][0] = slow[rank];
        assert_int_equal(ioctl(slow[rank], FIONBIO, &(int){ 1 }), 0);
        open_side(&pair[rank], rank, sockets[rank]);
    }
    message out, in;
    post_recv(&pair[1], &in, 1, BYTES, BYTES);
    ddl_engine_progress(pair[1].engine);
    ddl_engine_progress(pair[0].engine);
    post_send(&pair[0], &out, 1, BYTES, BYTES);
    for (int i = 0; i < 20; i++)
        ddl_engine_progress(pair[0].engine);
    assert_false(out.done);
    ddl_transport *transport = ddl_mesh_transport(pair[0].mesh);
    transport->ops->cancel(transport, &out.xfer);
    close_side(&pair[0]);
    const ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    while (pair[1].left + pair[1].lost == 0 && !ddl_deadline_passed(deadline))
        ddl_engine_progress(pair[1].engine);
    assert_int_equal(pair[1].left, 1);
    assert_int_equal(pair[1].lost, 0);
    transport = ddl_mesh_transport(pair[1].mesh);
    transport->ops->cancel(transport, &in.xfer);
    close_side(&pair[1]);
    free(out.data);
    free(in.data);
    nstreams = streams_before;
}

/* ---- a rank, and the test in the place of its peer ---- */

typedef struct lone {
    side me; /* rank 1 */
    int first;
    message in;
} lone;

static void turn(lone *l)
{
    for (int i = 0; i < 6; i++)
        ddl_engine_progress(l->me.engine);
}

/* With a receive posted; its grant is there. */
static void open_lone(lone *l, size_t bytes)
{
    int sockets[2];
    memset(l, 0, sizeof *l);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    l->first = sockets[0];
    make_streams();
    open_side(&l->me, 1, sockets[1]);
    post_recv(&l->me, &l->in, 1, bytes, bytes);
    turn(l);
}

static void close_lone(lone *l)
{
    ddl_transport *transport = ddl_mesh_transport(l->me.mesh);
    transport->ops->cancel(transport, &l->in.xfer);
    close_side(&l->me);
    close(l->first);
    for (int i = 0; i < nstreams; i++)
        close(streams[0][i]);
    free(l->in.data);
}

static ddl_frame frame_for(const lone *l, uint8_t type, uint32_t number, size_t bytes)
{
    ddl_frame frame = frame_of((ddl_frame_type)type, l->in.xfer.key.sequence, (uint32_t)bytes);
    frame.credit = number;
    return frame;
}

/* In pieces, as the system delivers. */
static void put(lone *l, int fd, const void *data, size_t bytes)
{
    const char *at = data;
    for (size_t sent = 0; sent < bytes;) {
        size_t piece = bytes - sent < 10007 ? bytes - sent : 10007;
        ssize_t count = send(fd, at + sent, piece, MSG_NOSIGNAL);
        assert_true(count > 0);
        sent += (size_t)count;
        turn(l);
    }
}

static void put_frame(lone *l, int fd, const ddl_frame *frame)
{
    uint8_t header[DDL_FRAME_BYTES];
    ddl_frame_encode(frame, header);
    put(l, fd, header, 17);
    put(l, fd, header + 17, sizeof header - 17);
}

/* The stripe of this number, as it should be, but filled with what belongs to another message if so wanted.
 */
static void put_stripe(lone *l, int fd, uint32_t number, const ddl_frame *frame)
{
    uint8_t *bytes = malloc(frame->bytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < frame->bytes; i++)
        bytes[i] = pattern(frame->sequence, (size_t)number * STRIPE + i);
    put_frame(l, fd, frame);
    put(l, fd, bytes, frame->bytes);
    free(bytes);
}

static void put_good_stripe(lone *l, int fd, uint32_t number)
{
    ddl_frame frame =
        frame_for(l, DDL_FRAME_STRIPE, number, ddl_frame_stripe_bytes(l->in.xfer.bytes, number));
    put_stripe(l, fd, number, &frame);
}

static void stripes_land_whatever_their_order_and_connection(void **state)
{
    (void)state;
    static const struct {
        uint32_t number;
        int stream;
    } order[] = { { 3, 2 }, { 0, 2 }, { 2, 0 }, { 1, 1 } };
    lone l;
    open_lone(&l, 3 * STRIPE + 1000);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        assert_false(l.in.done);
        put_good_stripe(&l, streams[0][order[i].stream], order[i].number);
    }
    assert_true(l.in.done);
    assert_arrived(&l.in);
    assert_int_equal(l.me.lost, 0);
    close_lone(&l);
}

/* Of an operation that failed here, or of another than the receiver thinks. */
static void stripes_that_nobody_wants_are_dropped(void **state)
{
    (void)state;
    lone l;
    open_lone(&l, 2 * STRIPE);
    ddl_frame stranger = frame_for(&l, DDL_FRAME_STRIPE, 7, 12345);
    stranger.sequence = 99;
    put_stripe(&l, streams[0][0], 7, &stranger);
    ddl_frame other = frame_for(&l, DDL_FRAME_STRIPE, 1, 777);
    other.signature.count++;
    put_stripe(&l, streams[0][1], 1, &other);
    put_good_stripe(&l, streams[0][0], 0);
    put_good_stripe(&l, streams[0][1], 1);
    assert_true(l.in.done);
    assert_arrived(&l.in);
    assert_int_equal(l.me.lost, 0);
    close_lone(&l);
}

static void frames_that_cannot_be_end_the_link(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t message_bytes;
        int stream; /* -1: the first connection */
        uint8_t type;
        uint32_t number;
        size_t bytes;
        bool again;
    } cases[] = {
        { "a number beyond the last", 2 * STRIPE, 0, DDL_FRAME_STRIPE, 2, STRIPE, false },
        { "a number far beyond the last", 2 * STRIPE, 0, DDL_FRAME_STRIPE, UINT32_MAX, STRIPE, false },
        { "a byte too few", 2 * STRIPE, 1, DDL_FRAME_STRIPE, 1, STRIPE - 1, false },
        { "more than the last has", 2 * STRIPE - 5, 1, DDL_FRAME_STRIPE, 1, STRIPE, false },
        { "less than the last has", 2 * STRIPE - 5, 1, DDL_FRAME_STRIPE, 1, 1, false },
        { "the same twice", 3 * STRIPE, 2, DDL_FRAME_STRIPE, 1, STRIPE, true },
        { "of a message that is small", 1000, 0, DDL_FRAME_STRIPE, 0, 1000, false },
        { "no bytes", 2 * STRIPE, 0, DDL_FRAME_STRIPE, 0, 0, false },
        { "an eager message beside stripes", 1000, 0, DDL_FRAME_EAGER, 0, 1000, false },
        { "a whole message beside stripes", 2 * STRIPE, 0, DDL_FRAME_BULK, 0, 2 * STRIPE, false },
        { "credit beside stripes", 2 * STRIPE, 0, DDL_FRAME_CREDIT, 0, 0, false },
        { "a stripe on the first connection", 2 * STRIPE, -1, DDL_FRAME_STRIPE, 0, STRIPE, false },
        { "a whole message where stripes are due", 2 * STRIPE, -1, DDL_FRAME_BULK, 0, 2 * STRIPE, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lone l;
        open_lone(&l, cases[i].message_bytes);
        if (cases[i].again)
            put_good_stripe(&l, streams[0][(cases[i].stream + 1) % nstreams], cases[i].number);
        assert_int_equal(l.me.lost, 0);
        ddl_frame frame = frame_for(&l, cases[i].type, cases[i].number, cases[i].bytes);
        put_frame(&l, cases[i].stream < 0 ? l.first : streams[0][cases[i].stream], &frame);
        if (l.me.lost != 1 || l.me.lost_code != DDL_EPROTO)
            fail_msg("%s: lost %d times, %s", cases[i].name, l.me.lost, ddl_status_name(l.me.lost_code));
        assert_false(l.in.done);
        close_lone(&l);
    }
}

static void bytes_that_are_no_frames_end_the_link(void **state)
{
    (void)state;
    static const char nonsense[] =
        "GET / HTTP/1.1\r\nHost: example\r\nUser-Agent: nobody\r\nAccept: nothing\r\n\r\n";
    static const size_t pieces[] = { DDL_FRAME_BYTES, 4 }; /* a few bytes are enough to tell */
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        lone l;
        open_lone(&l, 2 * STRIPE);
        put(&l, streams[0][2], nonsense, pieces[i]);
        assert_int_equal(l.me.lost, 1);
        assert_int_equal(l.me.lost_code, DDL_EPROTO);
        close_lone(&l);
    }
}

/* Whatever operation it is about. */
static void nothing_but_stripes_and_goodbyes_may_come(void **state)
{
    (void)state;
    for (uint8_t type = 1; type < DDL_FRAME_TYPES; type++) {
        lone l;
        if (type == DDL_FRAME_STRIPE || type == DDL_FRAME_GOODBYE)
            continue;
        open_lone(&l, 2 * STRIPE);
        const bool has_place = type == DDL_FRAME_OFFER || type == DDL_FRAME_PLACE;
        const bool is_message = type == DDL_FRAME_EAGER || type == DDL_FRAME_BULK;
        ddl_frame frame = frame_for(&l, type, 0, has_place ? DDL_FRAME_PLACE_BYTES : is_message);
        frame.sequence = 99;
        put_frame(&l, streams[0][0], &frame);
        if (l.me.lost != 1 || l.me.lost_code != DDL_EPROTO)
            fail_msg("type %d: lost %d times", type, l.me.lost);
        close_lone(&l);
    }
}

/* The first connection's goodbye says nothing of what is still on its way over others. */
/* Whether the stream to this end is over: not before all that came over it has been read. */
static bool is_over(int fd)
{
    uint8_t bytes[256];
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        continue;
    return got == 0;
}

/* Then its side of all connections ends, for which who has left waits. */
static void a_goodbye_waits_for_the_last_stripes(void **state)
{
    (void)state;
    const ddl_frame goodbye = { .type = DDL_FRAME_GOODBYE };
    for (int order = 0; order < 2; order++) { /* the first connection's comes first, or last */
        lone l;
        open_lone(&l, 2 * STRIPE);
        if (order == 0) {
            put_frame(&l, l.first, &goodbye);
            close(l.first);
            turn(&l);
        }
        put_good_stripe(&l, streams[0][0], 0);
        put_frame(&l, streams[0][0], &goodbye);
        put_frame(&l, streams[0][2], &goodbye);
        assert_int_equal(l.me.left, 0);
        put_good_stripe(&l, streams[0][1], 1);
        assert_true(l.in.done);
        assert_arrived(&l.in);
        assert_int_equal(l.me.left, 0);
        put_frame(&l, streams[0][1], &goodbye);
        if (order == 1) {
            assert_int_equal(l.me.left, 0);
            assert_false(is_over(l.first) || is_over(streams[0][0]));
            put_frame(&l, l.first, &goodbye);
            assert_true(is_over(l.first));
        }
        assert_int_equal(l.me.left, 1);
        for (int i = 0; i < 3; i++)
            assert_true(is_over(streams[0][i]));
        assert_int_equal(l.me.lost, 0);
        assert_true(ddl_mesh_is_gone(l.me.mesh, 0));
        if (order == 0)
            l.first = -1;
        close_lone(&l);
    }
}

/* The network goes when it has said goodbye on some of its connections; the clock is the test's. */
static void who_is_cut_off_between_its_goodbyes_is_found(void **state)
{
    (void)state;
    enum { LOOK_MS = 400, LIMIT_MS = 15000 };
    const ddl_frame goodbye = { .type = DDL_FRAME_GOODBYE };
    const ddl_vigil_limits limits = { 30 * DDL_NS_PER_S, LIMIT_MS * DDL_NS_PER_MS };
    lone l;
    open_lone(&l, 2 * STRIPE);
    put_frame(&l, l.first, &goodbye);
    int64_t now_ms = 0;
    for (int said = 0; said < nstreams - 1; said++) {
        put_frame(&l, streams[0][said], &goodbye);
        for (int64_t since_ms = 0; since_ms < LIMIT_MS - 2 * LOOK_MS; since_ms += LOOK_MS) {
            ddl_mesh_watch_stripes(l.me.mesh, &limits, (now_ms += LOOK_MS) * DDL_NS_PER_MS);
            assert_int_equal(l.me.lost + l.me.left, 0);
        }
    }
    for (int64_t since_ms = 0; since_ms < 4 * LOOK_MS; since_ms += LOOK_MS)
        ddl_mesh_watch_stripes(l.me.mesh, &limits, (now_ms += LOOK_MS) * DDL_NS_PER_MS);
    assert_int_equal(l.me.lost, 1);
    assert_int_equal(l.me.lost_code, DDL_EUNREACHABLE);
    assert_true(ddl_mesh_is_gone(l.me.mesh, 0));
    close_lone(&l);
}

static void an_end_without_goodbye_is_a_lost_peer_also_after_one_elsewhere(void **state)
{
    (void)state;
    const ddl_frame goodbye = { .type = DDL_FRAME_GOODBYE };
    lone l;
    open_lone(&l, 2 * STRIPE);
    put_frame(&l, l.first, &goodbye);
    put_frame(&l, streams[0][0], &goodbye);
    shutdown(streams[0][1], SHUT_WR);
    turn(&l);
    assert_int_equal(l.me.left, 0);
    assert_int_equal(l.me.lost, 1);
    assert_int_equal(l.me.lost_code, DDL_EPEERLOST);
    close_lone(&l);
}

/* As where it comes first what the peer said on the first one may come after it. */
static void why_a_peer_ends_is_heard_before_the_end_of_a_further_connection(void **state)
{
    (void)state;
    enum { BYTES = 1024 * KIB };
    lone l = { .first = -1 };
    int sockets[2];
    uint8_t header[DDL_FRAME_BYTES], payload[DDL_FRAME_NOTICE_LIMIT];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    l.first = sockets[1];
    make_streams();
    open_side(&l.me, 0, sockets[0]);
    post_send(&l.me, &l.in, 1, BYTES, BYTES); /* who only sends hears of the first connection by the loop */
    ddl_frame grant = frame_for(&l, DDL_FRAME_GRANT, 0, 0);
    put_frame(&l, l.first, &grant);
    assert_false(l.in.done); /* the buffers are full */
    ddl_notice why = { .code = DDL_ETIMEDOUT, .culprit = 1, .witness = 1, .text = "the reason" };
    ddl_frame abort = { .type = DDL_FRAME_ABORT, .bytes = (uint32_t)ddl_notice_encode(&why, payload) };
    ddl_frame_encode(&abort, header);
    for (int i = 0; i < nstreams; i++)
        shutdown(streams[1][i], SHUT_RDWR);
    assert_int_equal(send(l.first, header, sizeof header, MSG_NOSIGNAL), sizeof header);
    assert_int_equal(send(l.first, payload, abort.bytes, MSG_NOSIGNAL), abort.bytes);
    turn(&l);
    assert_int_equal(l.me.told, 1);
    assert_int_equal(l.me.lost, 1);
    ddl_transport *transport = ddl_mesh_transport(l.me.mesh);
    transport->ops->cancel(transport, &l.in.xfer);
    close_side(&l.me);
    close(l.first);
    for (int i = 0; i < nstreams; i++)
        close(streams[1][i]);
    free(l.in.data);
}

enum { FED_MOST = 100 * 1000 };

static void put_another(side *me)
{
    const ddl_frame enter = frame_of(DDL_FRAME_ENTER, 1, 0);
    uint8_t header[DDL_FRAME_BYTES];
    ddl_frame_encode(&enter, header);
    if (me->heard < FED_MOST)
        assert_int_equal(send(me->fed_by, header, sizeof header, MSG_NOSIGNAL), sizeof header);
}

/* One that always has more to say on the first one is lost all the same. */
static void who_goes_on_sending_is_lost_with_a_further_connection(void **state)
{
    (void)state;
    side me;
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    memset(&me, 0, sizeof me);
    make_streams();
    open_side(&me, 0, sockets[0]);
    me.when_heard = put_another;
    me.fed_by = sockets[1];
    put_another(&me);
    for (int i = 0; i < nstreams; i++)
        shutdown(streams[1][i], SHUT_RDWR);
    ddl_engine_progress(me.engine);
    assert_int_equal(me.lost, 1);
    assert_in_range(me.heard, 1, FED_MOST / 10);
    close_side(&me);
    close(sockets[1]);
    for (int i = 0; i < nstreams; i++)
        close(streams[1][i]);
}

/* The system says so but once, here to who writes, and then that the connection has ended. */
static void a_connection_that_was_reset_is_told_as_that(void **state)
{
    (void)state;
    enum { BYTES = 1024 * KIB };
    const int streams_before = nstreams;
    lone l = { .first = -1 };
    int sockets[2], stream[2];
    uint8_t header[DDL_FRAME_BYTES];
    nstreams = 1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    connect_over_tcp("127.0.0.1", UNREAD, stream);
    assert_int_equal(ioctl(stream[0], FIONBIO, &(int){ 1 }), 0);
    streams[0][0] = stream[0];
    l.first = sockets[1];
    open_side(&l.me, 0, sockets[0]);
    post_send(&l.me, &l.in, 1, BYTES, BYTES);
    const ddl_frame grant = frame_for(&l, DDL_FRAME_GRANT, 0, 0);
    ddl_frame_encode(&grant, header);
    const struct linger at_once = { 1, 0 };
    setsockopt(stream[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    assert_int_equal(send(l.first, header, sizeof header, MSG_NOSIGNAL), sizeof header); /* heard first */
    close(stream[1]);
    turn(&l);
    assert_int_equal(l.me.lost, 1);
    assert_non_null(strstr(l.me.lost_text, "connection 2 of 2 broke (Connection reset by peer)"));
    cancel(&l.me, &l.in);
    close_side(&l.me);
    close(l.first);
    free(l.in.data);
    nstreams = streams_before;
}

/* A receiver does not know beforehand, and a message is one or the other. */
static void what_is_large_comes_as_its_sender_chooses(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint8_t types[3];
        bool arrives;
    } cases[] = {
        { "whole", { DDL_FRAME_BULK }, true },
        { "in stripes", { DDL_FRAME_STRIPE, DDL_FRAME_STRIPE }, true },
        { "first a stripe, then whole", { DDL_FRAME_STRIPE, DDL_FRAME_BULK }, false },
        { "the same stripe twice", { DDL_FRAME_STRIPE, 0, DDL_FRAME_STRIPE }, false },
    };
    by_choice = true;
    nstreams = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lone l;
        open_lone(&l, 2 * STRIPE);
        widen(&l.me, 1);
        for (uint32_t k = 0; k < 3; k++) {
            ddl_frame whole = frame_for(&l, DDL_FRAME_BULK, 0, 2 * STRIPE);
            if (cases[i].types[k] == DDL_FRAME_STRIPE)
                put_good_stripe(&l, streams[0][k % 2], k % 2);
            else if (cases[i].types[k] == DDL_FRAME_BULK && cases[i].arrives)
                put_stripe(&l, l.first, 0, &whole);
            else if (cases[i].types[k] == DDL_FRAME_BULK)
                put_frame(&l, l.first, &whole);
        }
        if (l.in.done != cases[i].arrives || (l.me.lost == 0) != cases[i].arrives)
            fail_msg("%s: lost %d times, %s", cases[i].name, l.me.lost, l.me.lost_text);
        if (cases[i].arrives)
            assert_arrived(&l.in);
        close_lone(&l);
    }
    by_choice = false;
    nstreams = 3;
}

/* Where nothing tells that more would help; sockets like these do not tell at all. */
static void one_connection_carries_what_is_large_at_first(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    message out, in;
    by_choice = true;
    nstreams = 2;
    open_pair(pair, sockets);
    for (int rank = 0; rank < 2; rank++)
        widen(&pair[rank], rank);
    post_recv(&pair[1], &in, 1, 3 * STRIPE, 3 * STRIPE);
    ddl_engine_progress(pair[1].engine);
    ddl_engine_progress(pair[0].engine);
    post_send(&pair[0], &out, 1, 3 * STRIPE, 3 * STRIPE);
    ddl_mesh_choose(pair[0].mesh, ddl_now_ns());
    for (int i = 0; i < nstreams; i++) {
        int there = 0;
        assert_int_equal(ioctl(streams[1][i], FIONREAD, &there), 0);
        assert_int_equal(there, 0);
    }
    deliver(pair, &out, &in);
    free(in.data);
    free(out.data);
    close_pair(pair);
    by_choice = false;
    nstreams = 3;
}

/* ---- connections that are made late ---- */

static void open_to_choose(lone *l)
{
    by_choice = true;
    nstreams = 4;
    open_lone(l, 2 * STRIPE);
}

static void close_chosen(lone *l)
{
    close_lone(l);
    by_choice = false;
    nstreams = 3;
}

static bool has_said_widened(const lone *l)
{
    uint8_t bytes[16 * DDL_FRAME_BYTES];
    ddl_frame frame;
    const ssize_t got = recv(l->first, bytes, sizeof bytes, MSG_DONTWAIT);
    for (ssize_t at = 0; at + DDL_FRAME_BYTES <= got; at += DDL_FRAME_BYTES) {
        assert_int_equal(ddl_frame_decode(bytes + at, &frame, NULL), DDL_OK);
        if (frame.type == DDL_FRAME_WIDENED)
            return true;
    }
    return false;
}

/* Each by itself, and all of them; messages go on over the first, or over what is left. */
static void what_ends_before_it_has_carried_anything_is_given_up(void **state)
{
    (void)state;
    for (int broken = 0; broken < 16; broken++) {
        lone l;
        open_to_choose(&l);
        assert_false(has_said_widened(&l));
        widen(&l.me, 1);
        assert_true(has_said_widened(&l));
        for (int i = 0; i < nstreams; i++)
            if ((broken >> i & 1) != 0)
                shutdown(streams[0][i], SHUT_RDWR);
        turn(&l);
        const int sound = broken % 2 == 0 ? 0 : broken % 4 == 1 ? 1 : broken % 8 == 3 ? 2 : 3;
        const ddl_frame whole = frame_for(&l, DDL_FRAME_BULK, 0, 2 * STRIPE);
        if (broken == 15) {
            put_stripe(&l, l.first, 0, &whole);
        } else {
            put_good_stripe(&l, streams[0][sound], 0);
            put_good_stripe(&l, streams[0][sound], 1);
        }
        assert_true(l.in.done);
        assert_arrived(&l.in);
        assert_int_equal(l.me.lost, 0);
        if (broken != 15) {
            shutdown(streams[0][sound], SHUT_RDWR);
            turn(&l);
            assert_int_equal(l.me.lost, 1);
        }
        close_chosen(&l);
    }
}

/* Who says what cannot be said is broken, whether anything has been carried or not. */
static void nonsense_on_one_that_was_made_late_ends_the_link(void **state)
{
    (void)state;
    lone l;
    open_to_choose(&l);
    widen(&l.me, 1);
    put(&l, streams[0][2], "GET / HTTP/1.1", 14);
    assert_int_equal(l.me.lost, 1);
    assert_int_equal(l.me.lost_code, DDL_EPROTO);
    close_chosen(&l);
}

/* Its connections are closed: what the others would say over them is not awaited. */
static void who_is_parting_takes_no_more_connections(void **state)
{
    (void)state;
    lone l;
    open_to_choose(&l);
    ddl_mesh_say_goodbye(l.me.mesh);
    widen(&l.me, 1);
    assert_false(has_said_widened(&l));
    for (int i = 0; i < nstreams; i++)
        assert_true(is_over(streams[0][i]));
    close_chosen(&l);
}

/* Goodbyes are awaited on those that may have carried something, and have not ended. */
static void who_leaves_is_not_waited_for_where_nothing_can_come(void **state)
{
    (void)state;
    const ddl_frame goodbye = { .type = DDL_FRAME_GOODBYE }, widened = { .type = DDL_FRAME_WIDENED };
    for (int way = 0; way < 5; way++) {
        lone l;
        open_to_choose(&l);
        if (way > 0)
            widen(&l.me, 1);
        if (way > 1)
            put_frame(&l, l.first, &widened);
        for (int i = 1; i < nstreams && way == 3; i++)
            shutdown(streams[0][i], SHUT_RDWR);
        turn(&l);
        put_frame(&l, l.first, &goodbye);
        if (way == 4)
            for (int i = 1; i < nstreams; i++)
                put_frame(&l, streams[0][i], &goodbye);
        assert_int_equal(l.me.left, way < 2);
        if (way == 2) { /* it has ended without a word, and never said anything */
            for (int i = 0; i < nstreams; i++)
                shutdown(streams[0][i], SHUT_RDWR);
            turn(&l);
        } else if (way > 2) {
            put_frame(&l, streams[0][0], &goodbye);
        }
        assert_int_equal(l.me.left, 1);
        assert_int_equal(l.me.lost, 0);
        if (way == 0) /* they come too late */
            widen(&l.me, 1);
        close_chosen(&l);
    }
}

/* Between two of them, as they are inside. */
static void join_to_choose(side pair[2], int sockets[2])
{
    by_choice = true;
    nstreams = 4;
    open_pair(pair, sockets);
}

static ddl_climb *climb_of(const side *me, int peer)
{
    return &me->mesh->links[peer].climb;
}

/* From rank 0 to rank 1 over so many, as its climb would have it. */
static void send_over(side pair[2], int count, message *out, message *in, uint64_t sequence)
{
    climb_of(&pair[0], 1)->count = count;
    ddl_stripes_use(pair[0].mesh->links[1].stripes, count);
    post_recv(&pair[1], in, sequence, 4 * STRIPE, 4 * STRIPE);
    ddl_engine_progress(pair[1].engine);
    ddl_engine_progress(pair[0].engine);
    post_send(&pair[0], out, sequence, 4 * STRIPE, 4 * STRIPE);
}

static void a_sender_has_as_many_as_both_ends_listen_to(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    message out, in;
    join_to_choose(pair, sockets);
    widen(&pair[0], 0);
    drive(pair, 2);
    assert_int_equal(climb_of(&pair[0], 1)->most, 2); /* it asks for more, with which rank 1 may be busy */
    widen(&pair[1], 1);
    drive(pair, 2);
    assert_int_equal(climb_of(&pair[0], 1)->most, 4);
    assert_int_equal(climb_of(&pair[1], 0)->most, 4);
    send_over(pair, 2, &out, &in, 1);
    deliver(pair, &out, &in);
    free(in.data);
    free(out.data);
    shutdown(streams[0][3], SHUT_RDWR);
    drive(pair, 2);
    assert_int_equal(climb_of(&pair[0], 1)->most, 2);
    assert_int_equal(climb_of(&pair[1], 0)->most, 2);
    assert_int_equal(pair[0].lost + pair[1].lost, 0);
    shutdown(streams[0][1], SHUT_RDWR); /* over which it has sent, and the other has received */
    drive(pair, 2);
    assert_int_equal(pair[0].lost, 1);
    assert_int_equal(pair[1].lost, 1);
    close_pair(pair);
    by_choice = false;
    nstreams = 3;
}

/* Which nobody has received, as far as is known. */
static void what_has_been_sent_over_one_that_ends_is_lost(void **state)
{
    (void)state;
    const ddl_frame widened = { .type = DDL_FRAME_WIDENED };
    lone l = { .first = -1 };
    int sockets[2];
    by_choice = true;
    nstreams = 4;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    l.first = sockets[1];
    make_streams();
    open_side(&l.me, 0, sockets[0]);
    widen(&l.me, 0);
    put_frame(&l, l.first, &widened);
    climb_of(&l.me, 1)->count = 2;
    ddl_stripes_use(l.me.mesh->links[1].stripes, 2);
    post_send(&l.me, &l.in, 1, 2 * STRIPE, 2 * STRIPE);
    const ddl_frame grant = frame_for(&l, DDL_FRAME_GRANT, 0, 0);
    put_frame(&l, l.first, &grant);
    assert_int_equal(l.me.lost, 0);
    shutdown(streams[1][0], SHUT_RDWR);
    turn(&l);
    assert_int_equal(l.me.lost, 1);
    ddl_transport *transport = ddl_mesh_transport(l.me.mesh);
    transport->ops->cancel(transport, &l.in.xfer);
    close_side(&l.me);
    close(l.first);
    for (int i = 0; i < nstreams; i++)
        close(streams[1][i]);
    free(l.in.data);
    by_choice = false;
    nstreams = 3;
}

#ifdef DDL_FAILPOINTS
/* At one end, or the other: no stripe goes into what nobody watches. */
static void all_goes_on_where_they_cannot_be_watched(void **state)
{
    (void)state;
    for (int way = 0; way < 16; way++) {
        const int fails = way % 2, first = way / 2 % 2, leaves = way / 8;
        /* Or the second one makes them when the first has said that it listens. */
        const bool at_once = way / 4 % 2 == 0;
        side pair[2];
        int sockets[2];
        message out, in;
        char where[32];
        join_to_choose(pair, sockets);
        for (int k = 0; k < 2; k++) {
            const int rank = k == 0 ? first : 1 - first;
            snprintf(where, sizeof where, "stripes.watch:%d", 1 + way % 4);
            ddl_failpoint_arm(rank == fails ? where : NULL);
            ddl_wire wires[STREAMS_MOST];
            for (int i = 0; i < nstreams; i++)
                wires[i] = (ddl_wire){ streams[rank][i], NULL };
            const ddl_status status = ddl_mesh_widen_late(pair[rank].mesh, 1 - rank, wires, NULL);
            assert_int_equal(status, rank == fails ? DDL_ERESOURCE : DDL_OK);
            ddl_failpoint_arm(NULL);
            if (!at_once)
                drive(pair, 3);
        }
        drive(pair, 3);
        assert_int_equal(climb_of(&pair[fails], 1 - fails)->most, 1);
        assert_in_range(climb_of(&pair[1 - fails], fails)->most, 1, 2);
        climb_of(&pair[0], 1)->count = 1;
        post_recv(&pair[1], &in, 1, 4 * STRIPE, 4 * STRIPE);
        ddl_engine_progress(pair[1].engine);
        ddl_engine_progress(pair[0].engine);
        post_send(&pair[0], &out, 1, 4 * STRIPE, 4 * STRIPE);
        deliver(pair, &out, &in);
        free(in.data);
        free(out.data);
        assert_int_equal(pair[0].lost + pair[1].lost, 0);
        ddl_mesh_say_goodbye(pair[leaves].mesh);
        drive(pair, 3);
        assert_int_equal(pair[1 - leaves].left, 1);
        close_pair(pair);
    }
    by_choice = false;
    nstreams = 3;
}
#endif

static void nobody_widens_twice_or_what_was_not_offered(void **state)
{
    (void)state;
    const ddl_frame widened = { .type = DDL_FRAME_WIDENED };
    lone l;
    open_to_choose(&l);
    put_frame(&l, l.first, &widened); /* the peer may be the first */
    assert_int_equal(l.me.lost, 0);
    put_frame(&l, l.first, &widened);
    assert_int_equal(l.me.lost, 1);
    assert_int_equal(l.me.lost_code, DDL_EPROTO);
    widen(&l.me, 1); /* closed, as there is nobody any more */
    assert_true(is_over(streams[0][0]));
    close_chosen(&l);
    open_lone(&l, 2 * STRIPE);
    put_frame(&l, l.first, &widened);
    assert_int_equal(l.me.lost, 1);
    assert_int_equal(l.me.lost_code, DDL_EPROTO);
    close_lone(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_connection_carries_stripes),
        cmocka_unit_test(many_messages_go_both_ways_through_small_buffers),
        cmocka_unit_test(a_message_cancelled_half_way_leaves_the_connections_usable),
        cmocka_unit_test(the_end_of_any_connection_is_the_end_of_the_link_on_both_sides),
        cmocka_unit_test(a_goodbye_leaves_also_where_the_network_is_slow),
        cmocka_unit_test(stripes_land_whatever_their_order_and_connection),
        cmocka_unit_test(stripes_that_nobody_wants_are_dropped),
        cmocka_unit_test(frames_that_cannot_be_end_the_link),
        cmocka_unit_test(bytes_that_are_no_frames_end_the_link),
        cmocka_unit_test(nothing_but_stripes_and_goodbyes_may_come),
        cmocka_unit_test(a_goodbye_waits_for_the_last_stripes),
        cmocka_unit_test(who_is_cut_off_between_its_goodbyes_is_found),
        cmocka_unit_test(an_end_without_goodbye_is_a_lost_peer_also_after_one_elsewhere),
        cmocka_unit_test(why_a_peer_ends_is_heard_before_the_end_of_a_further_connection),
        cmocka_unit_test(who_goes_on_sending_is_lost_with_a_further_connection),
        cmocka_unit_test(a_connection_that_was_reset_is_told_as_that),
        cmocka_unit_test(what_is_large_comes_as_its_sender_chooses),
        cmocka_unit_test(one_connection_carries_what_is_large_at_first),
        cmocka_unit_test(what_ends_before_it_has_carried_anything_is_given_up),
        cmocka_unit_test(nonsense_on_one_that_was_made_late_ends_the_link),
        cmocka_unit_test(who_is_parting_takes_no_more_connections),
        cmocka_unit_test(who_leaves_is_not_waited_for_where_nothing_can_come),
        cmocka_unit_test(nobody_widens_twice_or_what_was_not_offered),
        cmocka_unit_test(a_sender_has_as_many_as_both_ends_listen_to),
        cmocka_unit_test(what_has_been_sent_over_one_that_ends_is_lost),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(all_goes_on_where_they_cannot_be_watched),
#endif
    };
    nstreams = 3;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
