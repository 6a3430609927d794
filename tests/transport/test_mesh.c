/* test_mesh.c - matching, flow control and the ends of links, over a socket and over lanes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "io/socket.h"
#include "pair.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void messages_arrive_whichever_end_comes_first(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t bytes, send_first_part, recv_first_part;
        bool recv_first;
    } cases[] = {
        { "one byte, receive posted first", 1, 1, 1, true },
        { "one byte, early", 1, 1, 1, false },
        { "a chunk and a byte, early", 2049, 2049, 2049, false },
        { "largest eager, posted", 65536, 65536, 65536, true },
        { "largest eager, early", 65536, 65536, 65536, false },
        { "smallest bulk, posted", 65537, 65537, 65537, true },
        { "smallest bulk, early", 65537, 65537, 65537, false },
        { "largest bulk", DDL_FRAME_BULK_LIMIT, DDL_FRAME_BULK_LIMIT, DDL_FRAME_BULK_LIMIT, true },
        { "two parts, eager, posted", 5000, 1234, 4321, true },
        { "two parts, eager, early", 5000, 1234, 4321, false },
        { "two parts, bulk, posted", 300000, 1, 299999, true },
        { "two parts, bulk, early", 300000, 299999, 1, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        side pair[2];
        int sockets[2];
        open_pair(pair, sockets);
        message out, in;
        if (cases[i].recv_first)
            post_recv(&pair[1], &in, 1, cases[i].bytes, cases[i].recv_first_part);
        post_send(&pair[0], &out, 1, cases[i].bytes, cases[i].send_first_part);
        if (!cases[i].recv_first) {
            drive(pair, 20);
            post_recv(&pair[1], &in, 1, cases[i].bytes, cases[i].recv_first_part);
        }
        deliver(pair, &out, &in);
        assert_true(pair[1].heard > 0);
        free(out.data);
        free(in.data);
        close_pair(pair);
    }
}

/* CPU time for so many receives that wait at once, and whose messages come with the last one first. */
static clock_t time_of_many(int count)
{
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    message *in = calloc((size_t)count, sizeof *in), out;
    assert_non_null(in);
    for (int i = 0; i < count; i++)
        post_recv(&pair[1], &in[i], (uint64_t)i + 1, 4, 4);
    const clock_t begun = clock();
    for (int i = count - 1; i >= 0; i--) {
        post_send(&pair[0], &out, (uint64_t)i + 1, 4, 4);
        drive_until(pair, &in[i].done);
        free(out.data);
    }
    const clock_t took = clock() - begun;
    for (int i = 0; i < count; i++) {
        assert_arrived(&in[i]);
        free(in[i].data);
    }
    free(in);
    close_pair(pair);
    return took;
}

/* Four times as many take four times as long, not sixteen. */
static void a_message_is_found_however_many_wait(void **state)
{
    (void)state;
    enum { FEW = 8000, TRIES = 3 };
    bool is_found = false; /* other programs may have had the CPU's caches */
    for (int i = 0; i < TRIES && !is_found; i++) {
        const clock_t few = time_of_many(FEW), many = time_of_many(4 * FEW);
        is_found = many < 8 * few;
    }
    assert_true(is_found);
}

/* ---- receives that take bytes where they are ---- */

typedef struct reduction {
    message in;
    uint8_t *taken;   /* what came, in place */
    size_t next;      /* offset of the next byte; of stripes, which come in any order, how many have come */
    size_t elsewhere; /* bytes that were not passed on from the part */
} reduction;

static void take_bytes(ddl_xfer *xfer, size_t offset, const void *bytes, size_t count)
{
    reduction *r = DDL_CONTAINER(DDL_CONTAINER(xfer, message, xfer), reduction, in);
    if (nstreams == 0)
        assert_int_equal(offset, r->next);
    assert_true(count > 0);
    assert_int_equal(count % xfer->unit_bytes, 0);
    assert_int_equal((uintptr_t)bytes % xfer->unit_bytes, 0);
    memcpy(r->taken + offset, bytes, count);
    r->next += count;
    const uint8_t *part = xfer->part[0].data;
    if ((const uint8_t *)bytes < part || (const uint8_t *)bytes >= part + xfer->bytes)
        r->elsewhere += count;
}

static void post_taking_recv(side *to, reduction *r, uint64_t sequence, size_t bytes, uint8_t unit_bytes)
{
    memset(r, 0, sizeof *r);
    r->taken = malloc(bytes);
    assert_non_null(r->taken);
    prepare(&r->in, 0, sequence, bytes, bytes, false);
    r->in.xfer.take = take_bytes;
    r->in.xfer.unit_bytes = unit_bytes;
    ddl_transport *transport = ddl_mesh_transport(to->mesh);
    r->in.done = transport->ops->recv(transport, &r->in.xfer);
}

/* Units begin anywhere in a lane, and end behind the end of it, once a message was odd. */
static void bytes_are_taken_once_in_order_and_whole(void **state)
{
    (void)state;
    static const size_t sizes[] = { 8, 4096, 65536, 65544, 200000, 1 << 20, 24, 524288 };
    static const uint8_t units[] = { 1, 2, 4, 8 };
    for (size_t odd = 0; odd < 6; odd++) {
        side pair[2];
        int sockets[2];
        open_pair(pair, sockets);
        message out, in;
        uint64_t sequence = 1;
        if (odd > 0) { /* the stream is out of step from here on */
            post_send(&pair[0], &out, sequence, odd, odd);
            post_recv(&pair[1], &in, sequence++, odd, odd);
            drive_until(pair, &in.done);
            free(out.data);
            free(in.data);
        }
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            bool early = i % 2 == 1;
            reduction r;
            if (early) {
                post_send(&pair[0], &out, sequence, sizes[i], sizes[i]);
                drive(pair, 10);
            }
            post_taking_recv(&pair[1], &r, sequence, sizes[i], units[(i + odd) % 4]);
            if (!early)
                post_send(&pair[0], &out, sequence, sizes[i], sizes[i]);
            drive_until(pair, &r.in.done);
            drive_until(pair, &out.done);
            assert_int_equal(r.next, sizes[i]);
            assert_int_equal(r.in.xfer.taken, sizes[i]);
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(r.taken[k], pattern(sequence, k));
            if (by_lanes && odd == 0 && sizes[i] > DDL_FRAME_EAGER_LIMIT)
                assert_int_equal(r.elsewhere, sizes[i]); /* nothing was copied */
            free(out.data);
            free(r.in.data);
            free(r.taken);
            sequence++;
        }
        close_pair(pair);
    }
}

enum { FILL = 512 }; /* as many chunks as a link's budget has */

/* Far more than the eager budget is on its way before the first receive is posted, and in reverse order. */
static void senders_that_run_ahead_are_neither_lost_nor_unbounded(void **state)
{
    (void)state;
    enum { MESSAGES = 400, BYTES = 5000 };
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    message *out = calloc(MESSAGES, sizeof *out), *in = calloc(MESSAGES, sizeof *in);
    for (int i = 0; i < MESSAGES; i++)
        post_send(&pair[0], &out[i], (uint64_t)i + 1, BYTES, BYTES);
    drive(pair, 100);
    int left_early = 0;
    for (int i = 0; i < MESSAGES; i++)
        left_early += out[i].done;
    assert_true(left_early > 0);
    assert_true(left_early <= FILL / 3); /* chunks of the budget over chunks of a message */
    for (int i = MESSAGES - 1; i >= 0; i--)
        post_recv(&pair[1], &in[i], (uint64_t)i + 1, BYTES, BYTES);
    for (int i = 0; i < MESSAGES; i++) {
        deliver(pair, &out[i], &in[i]);
        free(in[i].data);
        free(out[i].data);
    }
    /* The budget has come back: as many messages leave at once as before. */
    message again, back;
    post_send(&pair[0], &again, 1000, 60000, 60000);
    post_recv(&pair[1], &back, 1000, 60000, 60000);
    drive_until(pair, &back.done);
    assert_arrived(&back);
    free(again.data);
    free(back.data);
    free(out);
    free(in);
    close_pair(pair);
}

/* Newer operations that nobody receives have used up the budget; an older one must still get through. */
static void older_operation_never_waits_behind_newer_ones(void **state)
{
    (void)state;
    enum { NEWER = 100 };
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    message newer[NEWER], older_out, older_in;
    for (int i = 0; i < NEWER; i++)
        post_send(&pair[0], &newer[i], (uint64_t)i + 100, 64 * 1024, 64 * 1024);
    drive(pair, 50);
    post_recv(&pair[1], &older_in, 1, 4000, 4000);
    post_send(&pair[0], &older_out, 1, 4000, 4000);
    drive_until(pair, &older_in.done);
    assert_arrived(&older_in);
    message received[NEWER];
    for (int i = 0; i < NEWER; i++)
        post_recv(&pair[1], &received[i], (uint64_t)i + 100, 64 * 1024, 64 * 1024);
    for (int i = 0; i < NEWER; i++) {
        drive_until(pair, &received[i].done);
        assert_arrived(&received[i]);
        drive_until(pair, &newer[i].done);
        free(received[i].data);
        free(newer[i].data);
    }
    free(older_in.data);
    free(older_out.data);
    close_pair(pair);
}

static void both_directions_at_once_with_small_socket_buffers(void **state)
{
    (void)state;
    enum { EACH = 12, BYTES = 200000 };
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    for (int i = 0; i < 2; i++) {
        int bytes = 1; /* the kernel makes it its least: every write and read is partial */
        setsockopt(sockets[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    }
    side pair[2];
    open_sides(pair, sockets);
    message out[2][EACH], in[2][EACH];
    for (int rank = 0; rank < 2; rank++) {
        ddl_transport *transport = ddl_mesh_transport(pair[rank].mesh);
        for (int i = 0; i < EACH; i++) {
            size_t bytes = i % 2 == 0 ? BYTES : 1000;
            prepare(&in[rank][i], 1 - rank, (uint64_t)i + 1, bytes, bytes / 3, false);
            in[rank][i].done = transport->ops->recv(transport, &in[rank][i].xfer);
            prepare(&out[rank][i], 1 - rank, (uint64_t)i + 1, bytes, bytes / 2, true);
            out[rank][i].done = transport->ops->send(transport, &out[rank][i].xfer);
        }
    }
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < EACH; i++) {
            drive_until(pair, &in[rank][i].done);
            drive_until(pair, &out[rank][i].done);
            assert_arrived(&in[rank][i]);
        }
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < EACH; i++) {
            free(in[rank][i].data);
            free(out[rank][i].data);
        }
    close_pair(pair);
}

static void cancelled_receive_leaves_its_buffer_alone(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    message out, in;
    post_recv(&pair[1], &in, 1, 1500000, 1500000);
    drive(pair, 3); /* the grant crosses */
    post_send(&pair[0], &out, 1, 1500000, 1500000);
    ddl_engine_progress(pair[1].engine); /* and a part of the message is here */
    ddl_transport *transport = ddl_mesh_transport(pair[1].mesh);
    transport->ops->cancel(transport, &in.xfer);
    pair[1].wants_nothing = true;
    ddl_mesh_forget(pair[1].mesh, 0, 2);
    memset(in.data, 0x55, 1500000);
    drive_until(pair, &out.done);
    drive(pair, 50);
    for (size_t i = 0; i < 1500000; i++)
        assert_int_equal(in.data[i], 0x55);
    assert_false(in.done);
    assert_int_equal(pair[1].lost, 0); /* the stream stayed in step */
    free(out.data);
    free(in.data);
    close_pair(pair);
}

enum { OTHER = 4 }; /* a channel */

static void post_send_on_other(side *from, message *m, uint64_t sequence, size_t bytes)
{
    prepare(m, 1, sequence, bytes, bytes, true);
    m->xfer.key.channel = OTHER;
    ddl_transport *transport = ddl_mesh_transport(from->mesh);
    m->done = transport->ops->send(transport, &m->xfer);
}

#ifdef DDL_FAILPOINTS
/* Each write of a frame that was copied together takes half of it only, down to single bytes. */
static void frames_that_leave_in_parts_arrive_whole(void **state)
{
    (void)state;
    enum { MESSAGES = 8 };
    side pair[2];
    int sockets[2];
    message sent[MESSAGES], received[MESSAGES];
    open_pair(pair, sockets);
    ddl_failpoint_arm("mesh.short");
    for (int i = 0; i < MESSAGES; i++) {
        size_t bytes = 1 + 250 * (size_t)i;
        post_recv(&pair[1], &received[i], (uint64_t)i + 1, bytes, bytes / 3);
        post_send(&pair[0], &sent[i], (uint64_t)i + 1, bytes, bytes / 2);
    }
    for (int i = 0; i < MESSAGES; i++) {
        deliver(pair, &sent[i], &received[i]);
        free(sent[i].data);
        free(received[i].data);
    }
    assert_true(ddl_failpoint_hits() > 4 * MESSAGES);
    ddl_failpoint_arm(NULL);
    close_pair(pair);
}
#endif

/* A communicator that was freed here must not keep the budget of the link, nor asks and grants. */
static void forgotten_channels_give_their_budget_back(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    static message lost[FILL], asking, granted, later[FILL / 2];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < FILL; i++) {
            post_send_on_other(&pair[0], &lost[i], (uint64_t)i + 1, 2048);
            drive_until(pair, &lost[i].done);
        }
        post_send_on_other(&pair[0], &asking, FILL + 1, 100);
        assert_false(asking.done); /* the budget is spent: this one asks */
        prepare(&granted, 1, FILL + 2, 70000, 70000, false);
        granted.xfer.key.channel = OTHER;
        ddl_transport *transport = ddl_mesh_transport(pair[0].mesh);
        assert_false(transport->ops->recv(transport, &granted.xfer)); /* its grant is early over there */
        drive(pair, 20);
        ddl_mesh_forget(pair[1].mesh, OTHER, 2);
        drive(pair, 20);
        for (int i = 0; i < FILL / 2; i++) { /* eager again, with nobody who asked for it yet */
            post_send(&pair[0], &later[i], (uint64_t)(round * FILL + i + 1), 2048, 2048);
            drive_until(pair, &later[i].done);
        }
        for (int i = 0; i < FILL / 2; i++) {
            message in;
            post_recv(&pair[1], &in, (uint64_t)(round * FILL + i + 1), 2048, 2048);
            drive_until(pair, &in.done);
            assert_arrived(&in);
            free(in.data);
            free(later[i].data);
        }
        drive(pair, 20); /* until the last credit has come back */
        transport->ops->cancel(transport, &asking.xfer);
        transport->ops->cancel(transport, &granted.xfer);
        for (int i = 0; i < FILL; i++)
            free(lost[i].data);
        free(asking.data);
        free(granted.data);
    }
    assert_int_equal(pair[0].lost + pair[1].lost, 0);
    close_pair(pair);
}

/* What was queued behind a message that fills the socket, and is cancelled, has cost nothing. */
static void cancelled_eager_messages_give_their_budget_back(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    ddl_transport *transport = ddl_mesh_transport(pair[0].mesh);
    static message bulk, landing, queued[FILL], later[FILL];
    post_recv(&pair[1], &landing, 1, 1024 * 1024, 1024 * 1024);
    ddl_engine_progress(pair[1].engine);
    ddl_engine_progress(pair[0].engine);
    post_send(&pair[0], &bulk, 1, 1024 * 1024, 1024 * 1024); /* more than the socket takes at once */
    assert_false(bulk.done);
    for (int i = 0; i < FILL; i++) {
        post_send(&pair[0], &queued[i], (uint64_t)i + 2, 2048, 2048);
        assert_false(queued[i].done);
    }
    for (int i = 0; i < FILL; i++) {
        transport->ops->cancel(transport, &queued[i].xfer);
        free(queued[i].data);
    }
    deliver(pair, &bulk, &landing);
    for (int i = 0; i < FILL;
         i++) { /* nobody has asked for them: without budget they would wait for a grant */
        post_send(&pair[0], &later[i], (uint64_t)i + 1000, 2048, 2048);
        drive_until(pair, &later[i].done);
        free(later[i].data);
    }
    free(bulk.data);
    free(landing.data);
    close_pair(pair);
}

/* Its buffer is the user's again, so what is left is sent from a copy; the stream stays in step. */
static void half_sent_message_is_completed_with_its_own_bytes(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    message out, in;
    post_recv(&pair[1], &in, 1, 1024 * 1024, 1024 * 1024);
    ddl_engine_progress(pair[1].engine);
    ddl_engine_progress(pair[0].engine);
    post_send(&pair[0], &out, 1, 1024 * 1024, 1024 * 1024); /* more than the socket takes at once */
    assert_false(out.done);
    ddl_transport *transport = ddl_mesh_transport(pair[0].mesh);
    transport->ops->cancel(transport, &out.xfer);
    memset(out.data, 0x55, 1024 * 1024);
    ddl_notice notice = { .code = DDL_ETIMEDOUT, .culprit = 1, .witness = 0 };
    ddl_frame abort_frame = { .type = DDL_FRAME_ABORT };
    ddl_mesh_tell(pair[0].mesh, 1, &abort_frame, &notice);
    drive_until(pair, &in.done);
    assert_arrived(&in);
    drive(pair, 10);
    assert_int_equal(pair[1].told, 1);
    assert_int_equal(pair[1].lost, 0);
    assert_false(out.done);
    free(out.data);
    free(in.data);
    close_pair(pair);
}

#ifdef DDL_FAILPOINTS
/* There is no memory for a copy: the link ends in the middle of the message, and nothing that is said then is
 * taken for the rest of it. */
static void half_sent_message_that_cannot_be_completed_ends_the_link(void **state)
{
    (void)state;
    enum { BYTES = 1024 * 1024 };
    side pair[2];
    int sockets[2];
    message out, in;
    open_pair(pair, sockets);
    post_recv(&pair[1], &in, 1, BYTES, BYTES);
    ddl_engine_progress(pair[1].engine);
    ddl_engine_progress(pair[0].engine);
    post_send(&pair[0], &out, 1, BYTES, BYTES);
    assert_false(out.done);
    while (in.data[0] != pattern(1, 0)) /* from now on there is room for more */
        ddl_engine_progress(pair[1].engine);
    ddl_transport *transport = ddl_mesh_transport(pair[0].mesh);
    ddl_failpoint_arm("base.realloc");
    transport->ops->cancel(transport, &out.xfer);
    ddl_failpoint_arm(NULL);
    assert_int_equal(pair[0].lost, 1); /* whose owner has last words */
    assert_int_equal(pair[0].lost_code, DDL_ENOMEM);
    assert_true(ddl_mesh_is_gone(pair[0].mesh, 1));
    ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    while (pair[1].lost == 0 && !ddl_deadline_passed(deadline))
        drive(pair, 1);
    assert_int_equal(pair[1].lost, 1);
    assert_int_equal(pair[1].lost_code, DDL_EPEERLOST);
    assert_int_equal(pair[1].told, 0);
    assert_false(in.done);
    size_t at = 0;
    while (at < BYTES && in.data[at] == pattern(1, at))
        at++;
    assert_in_range(at, 1, BYTES - 1);
    for (; at < BYTES; at++)
        if (in.data[at] != 0xee)
            fail_msg("byte %zu is of something else", at);
    transport = ddl_mesh_transport(pair[1].mesh);
    transport->ops->cancel(transport, &in.xfer);
    free(out.data);
    free(in.data);
    close_pair(pair);
}
#endif

#ifdef __linux__
ssize_t __real_sendmsg(int fd, const struct msghdr *parts, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *parts, int flags);

static int nrefused, refusal; /* so many writes end with this error */

ssize_t __wrap_sendmsg(int fd, const struct msghdr *parts, int flags)
{
    if (nrefused == 0)
        return __real_sendmsg(fd, parts, flags);
    nrefused--;
    errno = refusal;
    return -1;
}

static void what_the_system_has_no_room_for_is_written_later(void **state)
{
    enum { LONG = 5000 }; /* goes by that call */
    static const int refusals[] = { EAGAIN, ENOBUFS, ENOMEM };
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        side pair[2];
        int sockets[2];
        message sent, received;
        open_pair(pair, sockets);
        refusal = refusals[i];
        nrefused = 3;
        post_send(&pair[0], &sent, 1, LONG, LONG);
        post_recv(&pair[1], &received, 1, LONG, LONG);
        drive_until(pair, &received.done);
        assert_arrived(&received);
        drive_until(pair, &sent.done);
        assert_int_equal(nrefused, 0);
        assert_int_equal(pair[0].lost + pair[1].lost, 0);
        free(sent.data);
        free(received.data);
        close_pair(pair);
    }
}
#endif

static void goodbye_and_death_are_told_apart(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    close_side(&pair[0]);
    drive(pair, 10);
    assert_int_equal(pair[1].left, 1);
    assert_int_equal(pair[1].lost, 0);
    assert_true(ddl_mesh_is_gone(pair[1].mesh, 0));
    close_side(&pair[1]);

    open_pair(pair, sockets);
    shutdown(sockets[0], SHUT_RDWR); /* as the kernel does for a process that was killed */
    drive(pair, 10);
    assert_int_equal(pair[1].left, 0);
    assert_int_equal(pair[1].lost, 1);
    assert_int_equal(pair[1].lost_code, DDL_EPEERLOST);
    close_pair(pair);
}

/* The peer closed with bytes unread, so the connection is reset; its goodbye came before that and counts. */
static void goodbye_is_heard_although_the_connection_was_reset(void **state)
{
    (void)state;
    side me = { 0 };
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    open_side(&me, 1, sockets[1]);
    ddl_engine_progress(me.engine);
    ddl_frame enter = { .type = DDL_FRAME_ENTER }, goodbye = { .type = DDL_FRAME_GOODBYE };
    ddl_mesh_tell(me.mesh, 0, &enter, NULL);
    ddl_mesh_flush(me.mesh);
    uint8_t bytes[DDL_FRAME_BYTES];
    ddl_frame_encode(&goodbye, bytes);
    assert_true(write(sockets[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes);
    close(sockets[0]);
    for (int turn = 0; turn < 5; turn++)
        ddl_engine_progress(me.engine);
    assert_int_equal(me.left, 1);
    assert_int_equal(me.lost, 0);
    close_side(&me);
}

/* Whoever sent what is no frame hears why that was the end. */
static void check_last_words(int socket)
{
    uint8_t said[DDL_FRAME_BYTES + DDL_FRAME_NOTICE_LIMIT];
    ddl_frame frame;
    ddl_notice notice;
    ssize_t count = recv(socket, said, sizeof said, MSG_DONTWAIT);
    assert_true(count > DDL_FRAME_BYTES);
    assert_int_equal(ddl_frame_decode(said, &frame, NULL), DDL_OK);
    assert_int_equal(frame.type, DDL_FRAME_ABORT);
    assert_int_equal(frame.bytes, count - DDL_FRAME_BYTES);
    assert_int_equal(ddl_notice_decode((ddl_view){ said + DDL_FRAME_BYTES, frame.bytes }, 2, &notice, NULL),
                     DDL_OK);
    assert_int_equal(notice.code, DDL_EPROTO);
    assert_int_equal(notice.culprit, 0);
    assert_non_null(strstr(notice.text, "no frame"));
}

static void bytes_that_are_no_frames_end_the_link(void **state)
{
    (void)state;
    static const char *const nonsense[] = {
        "GET / HTTP/1.1\r\nHost: example\r\nUser-Agent: nobody\r\nAccept: nothing\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello, more or less ..........................."
    };
    static const size_t pieces[] = { DDL_FRAME_BYTES, 4 }; /* a few bytes are enough to tell */
    for (size_t i = 0; i < 2 * (sizeof nonsense / sizeof *nonsense); i++) {
        const size_t count = pieces[i % 2];
        side me = { 0 };
        int sockets[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
        open_side(&me, 1, sockets[1]);
        assert_true(write(sockets[0], nonsense[i / 2], count) == (ssize_t)count);
        for (int turn = 0; turn < 5; turn++)
            ddl_engine_progress(me.engine);
        assert_int_equal(me.lost, 1);
        assert_int_equal(me.lost_code, DDL_EPROTO);
        check_last_words(sockets[0]);
        close_side(&me);
        close(sockets[0]);
    }
}

static void more_early_bytes_than_the_budget_end_the_link(void **state)
{
    (void)state;
    side me = { 0 };
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    open_side(&me, 1, sockets[1]);
    uint8_t payload[DDL_FRAME_BYTES + 16 * 1024] = { 0 };
    for (uint64_t sequence = 1; sequence <= FILL / 8 + 8 && me.lost == 0; sequence++) {
        ddl_frame frame = { .type = DDL_FRAME_EAGER, .bytes = 16 * 1024, .sequence = sequence };
        ddl_frame_encode(&frame, payload);
        assert_true(write(sockets[0], payload, sizeof payload) == (ssize_t)sizeof payload);
        for (int turn = 0; turn < 3; turn++)
            ddl_engine_progress(me.engine);
    }
    assert_int_equal(me.lost, 1);
    assert_int_equal(me.lost_code, DDL_EPROTO);
    close_side(&me);
    close(sockets[0]);
}

/* A header, and as much of its payload. */
static void say(int socket, const ddl_frame *frame, size_t payload)
{
    static uint8_t said[DDL_FRAME_BYTES + 4000];
    ddl_frame_encode(frame, said);
    assert_true(write(socket, said, DDL_FRAME_BYTES + payload) == (ssize_t)(DDL_FRAME_BYTES + payload));
}

/* Of what came early the size is looked at when it is due, and not when all of it has come: it never might.
 */
static void an_early_message_of_another_size_ends_the_link(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 3999, 4001, DDL_FRAME_EAGER_LIMIT };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        side me = { 0 };
        message in;
        int sockets[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
        open_side(&me, 1, sockets[1]);
        const ddl_frame frame = frame_of(DDL_FRAME_EAGER, 1, sizes[i]);
        say(sockets[0], &frame, 3999);
        for (int turn = 0; turn < 3; turn++)
            ddl_engine_progress(me.engine);
        assert_int_equal(me.lost, 0);
        post_recv(&me, &in, 1, 4000, 4000);
        assert_false(in.done);
        assert_int_equal(me.lost, 1);
        assert_int_equal(me.lost_code, DDL_EPROTO);
        assert_non_null(strstr(me.lost_text, "where one of 4000 is due"));
        cancel(&me, &in);
        free(in.data);
        close_side(&me);
        close(sockets[0]);
    }
}

static void put_into_lane(side *from, const void *bytes, size_t count)
{
    struct iovec part = { (void *)bytes, count };
    assert_int_equal(ddl_lane_write(ddl_lanes_out(from->lanes, 1), &part, 1), count);
}

/* By rank 0, beside all that its mesh does. */
static void inject(side pair[2], const int sockets[2], const ddl_frame *frame, size_t payload)
{
    static uint8_t said[DDL_FRAME_BYTES + 4000];
    ddl_frame_encode(frame, said);
    if (pair[0].lanes == NULL) {
        say(sockets[0], frame, payload);
        return;
    }
    put_into_lane(&pair[0], said, DDL_FRAME_BYTES + payload);
}

/* What is sent only once it was asked for is dropped where the asking may have been cancelled since, and ends
 * the link elsewhere: whether nobody waits for it, or somebody for what comes by itself. */
static void what_nobody_has_asked_for_ends_the_link(void **state)
{
    (void)state;
    static const ddl_frame_type types[] = { DDL_FRAME_BULK, DDL_FRAME_REST, DDL_FRAME_TAKEN };
    const size_t ntypes = by_lanes ? 3 : 1; /* the others are of memory that is shared */
    for (size_t i = 0; i < ntypes; i++)
        for (int is_posted = 0; is_posted < 2; is_posted++)
            for (int cancels = 0; cancels < 2; cancels++) {
                const size_t payload = types[i] == DDL_FRAME_TAKEN ? 0 : 4000;
                const ddl_frame frame = frame_of(types[i], 1, (uint32_t)payload);
                const bool is_refused = cancels == 0 || (is_posted == 1 && payload > 0);
                side pair[2];
                message in;
                int sockets[2];
                open_pair(pair, sockets);
                pair[1].cancels_nothing = cancels == 0;
                if (is_posted == 1)
                    post_recv(&pair[1], &in, 1, 4000, 4000);
                inject(pair, sockets, &frame, payload);
                for (int turn = 0; turn < 5; turn++)
                    ddl_engine_progress(pair[1].engine);
                assert_int_equal(pair[1].lost, is_refused);
                if (is_refused)
                    assert_int_equal(pair[1].lost_code, DDL_EPROTO);
                if (is_posted == 1) {
                    assert_false(in.done);
                    cancel(&pair[1], &in);
                    free(in.data);
                }
                close_pair(pair);
            }
}

static void notices_reach_the_owner(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    ddl_notice notice = { .code = DDL_ETIMEDOUT, .culprit = 1, .witness = 0, .sequence = 9 };
    strcpy(notice.text, "rank 1 is late");
    ddl_frame abort_frame = { .type = DDL_FRAME_ABORT };
    ddl_mesh_tell(pair[0].mesh, 1, &abort_frame, &notice);
    drive(pair, 5);
    assert_int_equal(pair[1].told, 1);
    assert_int_equal(pair[1].notice.code, DDL_ETIMEDOUT);
    assert_string_equal(pair[1].notice.text, "rank 1 is late");
    close_pair(pair);
}

static int visited;

static void count_visit(void *arg, int peer, const ddl_frame *frame)
{
    const uint64_t *sequence = arg;
    assert_int_equal(peer, 0);
    assert_true(frame->sequence == *sequence);
    assert_true(frame->signature.count == signature.count);
    visited++;
}

static void early_frames_can_be_looked_at(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    message out, in;
    post_send(&pair[0], &out, 7, 100, 100);
    drive(pair, 5);
    uint64_t seven = 7;
    visited = 0;
    ddl_mesh_visit_early(pair[1].mesh, 0, 7, count_visit, &seven);
    assert_int_equal(visited, 1);
    ddl_mesh_visit_early(pair[1].mesh, 0, 8, count_visit, &seven);
    ddl_mesh_visit_early(pair[1].mesh, 1, 7, count_visit, &seven);
    assert_int_equal(visited, 1);
    post_recv(&pair[1], &in, 7, 100, 100);
    assert_true(in.done);
    assert_arrived(&in);
    visited = 0;
    ddl_mesh_visit_early(pair[1].mesh, 0, 7, count_visit, &seven);
    assert_int_equal(visited, 0);
    free(out.data);
    free(in.data);
    close_pair(pair);
}

/* Whatever else has come: operations that are remembered together, forgotten ones, messages of all kinds. */
static void early_frames_of_many_operations_are_told_apart(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    enum { OPERATIONS = 500, APART = 64 };
#else
    enum { OPERATIONS = 2000, APART = 64 };
#endif
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    message *out = calloc(OPERATIONS, sizeof *out), *in = calloc(OPERATIONS, sizeof *in);
    for (int i = 0; i < OPERATIONS; i++) /* eager ones first, then what asks, or what needs no asking */
        post_send(&pair[0], &out[i], (uint64_t)i * APART + 1, i % 3 == 0 ? 70000 : 10, 10);
    drive(pair, 50);
    for (int i = 0; i < OPERATIONS; i++) {
        uint64_t sequence = (uint64_t)i * APART + 1;
        visited = 0;
        ddl_mesh_visit_early(pair[1].mesh, 0, sequence, count_visit, &sequence);
        assert_int_equal(visited, i % 3 == 0 ? 0 : 1);
        ddl_mesh_visit_early(pair[1].mesh, 0, sequence + 1, count_visit, &sequence);
        assert_true(visited <= 1);
    }
    for (int i = OPERATIONS - 1; i >= 0; i--) {
        uint64_t sequence = (uint64_t)i * APART + 1;
        post_recv(&pair[1], &in[i], sequence, i % 3 == 0 ? 70000 : 10, 10);
        visited = 0;
        ddl_mesh_visit_early(pair[1].mesh, 0, sequence, count_visit, &sequence);
        assert_int_equal(visited, 0);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        deliver(pair, &out[i], &in[i]);
        free(out[i].data);
        free(in[i].data);
    }
    free(out);
    free(in);
    close_pair(pair);
}

/* ---- what the kernel is asked for ---- */

#ifdef __linux__

static void paces_like(const char *expected, const int sockets[2])
{
    for (int i = 0; i < 2; i++) {
        char name[16] = "";
        socklen_t bytes = sizeof name;
        assert_int_equal(getsockopt(sockets[i], IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
        assert_string_equal(name, expected);
    }
}

/* Set one that is not reno; skips the test where the system allows none. */
static const char *set_other_than_reno(const int sockets[2])
{
    static const char *const names[] = { "cubic", "bbr" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        socklen_t bytes = (socklen_t)strlen(names[i]);
        if (setsockopt(sockets[0], IPPROTO_TCP, TCP_CONGESTION, names[i], bytes) == 0 &&
            setsockopt(sockets[1], IPPROTO_TCP, TCP_CONGESTION, names[i], bytes) == 0)
            return names[i];
    }
    close(sockets[0]);
    close(sockets[1]);
    skip();
    return NULL;
}

static void nothing_is_paced_inside_a_host(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    /* Other addresses are other hosts, where it is not ours to set. */
    connect_over_tcp("127.0.0.2", 0, sockets);
    const char *other = set_other_than_reno(sockets);
    open_sides(pair, sockets);
    paces_like(other, sockets);
    close_pair(pair);
    connect_over_tcp("127.0.0.1", 0, sockets);
    (void)set_other_than_reno(sockets);
    open_sides(pair, sockets);
    paces_like("reno", sockets);
    close_pair(pair);
}

#endif

#ifndef DDL_PORTABLE

/* ---- lanes alone ---- */

static void nonsense_in_a_lane_ends_the_link(void **state)
{
    (void)state;
    static const char nonsense[] =
        "GET / HTTP/1.1\r\nHost: example\r\nUser-Agent: nobody\r\nAccept: nothing\r\n\r\n";
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    put_into_lane(&pair[0], nonsense, 3); /* which are too few to tell */
    drive(pair, 2);
    assert_int_equal(pair[1].lost, 0);
    put_into_lane(&pair[0], nonsense + 3, 1);
    drive(pair, 2);
    assert_int_equal(pair[1].lost, 1);
    assert_int_equal(pair[1].lost_code, DDL_EPROTO);
    assert_int_equal(pair[0].told, 1);
    assert_int_equal(pair[0].notice.code, DDL_EPROTO);
    close_pair(pair);
}

/* Neighbours have no further connections. */
static void a_stripe_in_a_lane_ends_the_link(void **state)
{
    (void)state;
    const ddl_frame stripe = { .type = DDL_FRAME_STRIPE, .bytes = 8 };
    uint8_t header[DDL_FRAME_BYTES];
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    ddl_frame_encode(&stripe, header);
    put_into_lane(&pair[0], header, sizeof header);
    drive(pair, 2);
    assert_int_equal(pair[1].lost, 1);
    assert_int_equal(pair[1].lost_code, DDL_EPROTO);
    close_pair(pair);
}

static void positions_that_cannot_be_end_the_link(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    ddl_lane_end *out = ddl_lanes_out(pair[0].lanes, 1);
    atomic_store(&out->lane->written, out->capacity + 1);
    drive(pair, 2);
    assert_int_equal(pair[1].lost, 1);
    assert_int_equal(pair[1].lost_code, DDL_EPROTO);
    close_pair(pair);
}

static void bytes_on_the_connection_beside_lanes_end_the_link(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    assert_int_equal(write(sockets[0], "x", 1), 1);
    drive(pair, 2);
    assert_int_equal(pair[1].lost, 1);
    assert_int_equal(pair[1].lost_code, DDL_EPROTO);
    close_pair(pair);
}

/* What lies in the lane when the connection ends was said before it. */
static void what_was_said_before_death_is_heard(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    ddl_frame enter = { .type = DDL_FRAME_ENTER }, goodbye = { .type = DDL_FRAME_GOODBYE };
    uint8_t bytes[2 * DDL_FRAME_BYTES];
    ddl_frame_encode(&enter, bytes);
    ddl_frame_encode(&goodbye, bytes + DDL_FRAME_BYTES);
    put_into_lane(&pair[0], bytes, sizeof bytes);
    shutdown(sockets[0], SHUT_RDWR);
    uv_run(ddl_engine_loop(pair[1].engine), UV_RUN_NOWAIT); /* the end is seen before the lane is looked at */
    drive(pair, 2);
    assert_int_equal(pair[1].heard, 1);
    assert_int_equal(pair[1].left, 1);
    assert_int_equal(pair[1].lost, 0);
    close_pair(pair);
}

/* A rank that sleeps is woken by what comes, and one that waits for room by room. */
static void sleepers_are_woken(void **state)
{
    (void)state;
    enum { BYTES = 700 * 1024 };
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    drive(pair, 3);
    assert_false(ddl_mesh_doze(pair[1].mesh));
    message out, in;
    prepare(&out, 1, 1, BYTES, BYTES, true);
    prepare(&in, 0, 1, BYTES, BYTES, false);
    assert_false(pair[1].mesh == NULL ||
                 ddl_mesh_transport(pair[1].mesh)->ops->recv(ddl_mesh_transport(pair[1].mesh), &in.xfer));
    ddl_engine_progress(pair[1].engine); /* the grant leaves, to one that is awake */
    ddl_engine_progress(pair[0].engine);
    assert_false(ddl_mesh_doze(pair[1].mesh));
    assert_false(ddl_mesh_transport(pair[0].mesh)->ops->send(ddl_mesh_transport(pair[0].mesh), &out.xfer));
    ddl_mesh_flush(pair[0].mesh);
    assert_true(ddl_socket_wait(ddl_lanes_bell(pair[1].lanes), POLLIN, ddl_deadline_in_ms(0)));
    /* More than fits: the sender sleeps, and the receiver's taking wakes it. */
    assert_false(ddl_mesh_doze(pair[0].mesh));
    assert_false(
        ddl_lanes_have_rung(pair[0].lanes)); /* it has, and the engine was told when it fell asleep */
    assert_false(ddl_socket_wait(ddl_lanes_bell(pair[0].lanes), POLLIN, ddl_deadline_in_ms(0)));
    ddl_engine_progress(pair[1].engine);
    assert_true(ddl_socket_wait(ddl_lanes_bell(pair[0].lanes), POLLIN, ddl_deadline_in_ms(0)));
    assert_true(ddl_lanes_have_rung(pair[1].lanes));
    assert_false(ddl_lanes_have_rung(pair[1].lanes));
    drive_until(pair, &in.done);
    assert_arrived(&in);
    drive_until(pair, &out.done);
    /* Nobody who is awake is rung. */
    assert_false(ddl_socket_wait(ddl_lanes_bell(pair[0].lanes), POLLIN, ddl_deadline_in_ms(0)));
    free(in.data);
    free(out.data);
    close_pair(pair);
}

/* With junk, so that nothing more can be said from this rank to the other. */
static void fill_lane(const side *from, int to)
{
    static uint8_t junk[1 << 20];
    ddl_lane_end *out = ddl_lanes_out(from->lanes, to);
    struct iovec part = { junk, ddl_lane_room(out) };
    assert_true(part.iov_len > 0 && part.iov_len <= sizeof junk);
    assert_int_equal(ddl_lane_write(out, &part, 1), part.iov_len);
}

/* Both leave, and neither has room for what it says last. */
static void who_leaves_makes_room_for_who_leaves_too(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    for (int rank = 0; rank < 2; rank++) {
        fill_lane(&pair[rank], !rank);
        ddl_mesh_say_goodbye(pair[rank].mesh);
    }
    ddl_mesh_part(pair[0].mesh, ddl_now_ns()); /* not yet */
    const ddl_deadline late = ddl_deadline_in_ms(PATIENCE_MS);
    ddl_mesh_part(pair[1].mesh, late);
    ddl_mesh_part(pair[0].mesh, late);
    assert_false(ddl_deadline_passed(late));
    close_pair(pair);
}

static void who_leaves_does_not_wait_for_the_dead_to_make_room(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_pair(pair, sockets);
    fill_lane(&pair[0], 1);
    ddl_mesh_say_goodbye(pair[0].mesh);
    shutdown(sockets[1], SHUT_RDWR);
    const ddl_deadline late = ddl_deadline_in_ms(PATIENCE_MS);
    ddl_mesh_part(pair[0].mesh, late);
    assert_false(ddl_deadline_passed(late));
    close_pair(pair);
}

static int test_lanes(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whichever_end_comes_first),
        cmocka_unit_test(a_message_is_found_however_many_wait),
        cmocka_unit_test(bytes_are_taken_once_in_order_and_whole),
        cmocka_unit_test(senders_that_run_ahead_are_neither_lost_nor_unbounded),
        cmocka_unit_test(older_operation_never_waits_behind_newer_ones),
        cmocka_unit_test(cancelled_receive_leaves_its_buffer_alone),
        cmocka_unit_test(forgotten_channels_give_their_budget_back),
        cmocka_unit_test(cancelled_eager_messages_give_their_budget_back),
        cmocka_unit_test(half_sent_message_is_completed_with_its_own_bytes),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(half_sent_message_that_cannot_be_completed_ends_the_link),
#endif
        cmocka_unit_test(goodbye_and_death_are_told_apart),
        cmocka_unit_test(notices_reach_the_owner),
        cmocka_unit_test(early_frames_can_be_looked_at),
        cmocka_unit_test(early_frames_of_many_operations_are_told_apart),
        cmocka_unit_test(what_nobody_has_asked_for_ends_the_link),
        cmocka_unit_test(nonsense_in_a_lane_ends_the_link),
        cmocka_unit_test(a_stripe_in_a_lane_ends_the_link),
        cmocka_unit_test(positions_that_cannot_be_end_the_link),
        cmocka_unit_test(bytes_on_the_connection_beside_lanes_end_the_link),
        cmocka_unit_test(what_was_said_before_death_is_heard),
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(who_leaves_makes_room_for_who_leaves_too),
        cmocka_unit_test(who_leaves_does_not_wait_for_the_dead_to_make_room),
    };
    by_lanes = true;
    return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}

#else

static int test_lanes(void)
{
    return 0;
}

#endif

/* ---- a thread that sleeps ---- */

typedef struct awaited {
    message message;
    side *side;
    atomic_bool done;
    int64_t done_ns;
} awaited;

static void tell_sleeper(ddl_xfer *xfer)
{
    awaited *in = DDL_CONTAINER(DDL_CONTAINER(xfer, message, xfer), awaited, message);
    in->done_ns = ddl_now_ns();
    atomic_store(&in->done, true);
    ddl_engine_wake(in->side->engine);
}

static void *await(void *arg)
{
    awaited *in = arg;
    DDL_ASSERT(ddl_engine_wait(in->side->engine, &in->done, ddl_deadline_in_ms(PATIENCE_MS)));
    return NULL;
}

/* How long it does not hear what comes over connections that another thread has just filled; -1: it may not
 * have slept. */
static int64_t deaf_ns(void)
{
    enum { ASLEEP_MS = 10 /* and it looks by itself after 20 */, STRIPES = 3, SMALL = 1024 };
    const size_t bytes = (size_t)STRIPES * DDL_FRAME_STRIPE_BYTES;
    side pair[2];
    int sockets[2];
    const int small = SMALL;
    open_pair(pair, sockets);
    setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    for (int i = 0; i < nstreams; i++)
        setsockopt(streams[0][i], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    message out, taken, sent;
    awaited in = { .side = &pair[0] };
    prepare(&in.message, 1, 1, bytes, bytes, false);
    in.message.xfer.done = tell_sleeper;
    post(&pair[0], &in.message, false);
    post_recv(&pair[1], &taken, 1, bytes, bytes);
    drive(pair, 4); /* both are granted */
    pair[0].is_busy = true;
    ddl_engine_leave(pair[0].engine);

    pthread_t thread;
    const int64_t start_ns = ddl_now_ns();
    atomic_store(&pair[0].dozes, false);
    assert_int_equal(pthread_create(&thread, NULL, await, &in), 0);
    while (!atomic_load(&pair[0].dozes) && ddl_now_ns() - start_ns < PATIENCE_MS * DDL_NS_PER_MS)
        sched_yield();
    assert_true(ddl_engine_enter(pair[0].engine, ddl_deadline_in_ms(PATIENCE_MS)));
    post_send(&pair[0], &out, 1, bytes, bytes);
    assert_false(out.done);
    ddl_engine_leave(pair[0].engine);
    prepare(&sent, 0, 1, bytes, bytes, true);
    const int64_t sent_ns = ddl_now_ns();
    post(&pair[1], &sent, true);
    while (!atomic_load(&in.done) && ddl_now_ns() - sent_ns < PATIENCE_MS * DDL_NS_PER_MS)
        ddl_engine_progress(pair[1].engine);
    pthread_join(thread, NULL);
    assert_true(ddl_engine_enter(pair[0].engine, ddl_deadline_in_ms(PATIENCE_MS)));
    drive_until(pair, &taken.done);
    drive_until(pair, &sent.done);
    drive_until(pair, &out.done);
    assert_arrived(&in.message);
    assert_arrived(&taken);
    close_pair(pair);
    free(in.message.data);
    free(taken.data);
    free(sent.data);
    free(out.data);
    return sent_ns - start_ns < ASLEEP_MS * DDL_NS_PER_MS ? in.done_ns - sent_ns : -1;
}

static void who_sleeps_hears_although_another_fills_the_connection(void **state)
{
    (void)state;
    enum { TRIES = 20, SOON_NS = 5000 * 1000 };
    int soon = 0, late = 0;
    for (int i = 0; i < TRIES; i++) {
        const int64_t ns = deaf_ns();
        soon += ns >= 0 && ns < SOON_NS;
        late += ns >= SOON_NS;
    }
#ifndef __SANITIZE_THREAD__ /* where no try may be quick enough to count */
    assert_in_range(soon, 1, TRIES);
#endif
    assert_in_range(late, 0, soon); /* half of them, as others may have the CPU */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whichever_end_comes_first),
        cmocka_unit_test(a_message_is_found_however_many_wait),
        cmocka_unit_test(bytes_are_taken_once_in_order_and_whole),
        cmocka_unit_test(senders_that_run_ahead_are_neither_lost_nor_unbounded),
        cmocka_unit_test(older_operation_never_waits_behind_newer_ones),
        cmocka_unit_test(both_directions_at_once_with_small_socket_buffers),
        cmocka_unit_test(cancelled_receive_leaves_its_buffer_alone),
        cmocka_unit_test(forgotten_channels_give_their_budget_back),
        cmocka_unit_test(an_early_message_of_another_size_ends_the_link),
        cmocka_unit_test(what_nobody_has_asked_for_ends_the_link),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(frames_that_leave_in_parts_arrive_whole),
#endif
#ifdef __linux__
        cmocka_unit_test(what_the_system_has_no_room_for_is_written_later),
        cmocka_unit_test(nothing_is_paced_inside_a_host),
#endif
        cmocka_unit_test(cancelled_eager_messages_give_their_budget_back),
        cmocka_unit_test(half_sent_message_is_completed_with_its_own_bytes),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(half_sent_message_that_cannot_be_completed_ends_the_link),
#endif
        cmocka_unit_test(goodbye_and_death_are_told_apart),
        cmocka_unit_test(goodbye_is_heard_although_the_connection_was_reset),
        cmocka_unit_test(bytes_that_are_no_frames_end_the_link),
        cmocka_unit_test(more_early_bytes_than_the_budget_end_the_link),
        cmocka_unit_test(notices_reach_the_owner),
        cmocka_unit_test(early_frames_can_be_looked_at),
        cmocka_unit_test(early_frames_of_many_operations_are_told_apart),
        cmocka_unit_test(who_sleeps_hears_although_another_fills_the_connection),
    };
    const struct CMUnitTest tests_with_stripes[] = {
        cmocka_unit_test(messages_arrive_whichever_end_comes_first),
        cmocka_unit_test(bytes_are_taken_once_in_order_and_whole),
        cmocka_unit_test(older_operation_never_waits_behind_newer_ones),
        cmocka_unit_test(both_directions_at_once_with_small_socket_buffers),
        cmocka_unit_test(cancelled_receive_leaves_its_buffer_alone),
        cmocka_unit_test(forgotten_channels_give_their_budget_back),
        cmocka_unit_test(goodbye_and_death_are_told_apart),
        cmocka_unit_test(notices_reach_the_owner),
        cmocka_unit_test(who_sleeps_hears_although_another_fills_the_connection),
    };
    int failed = cmocka_run_group_tests_name("connections", tests, NULL, NULL);
    nstreams = 3;
    failed += cmocka_run_group_tests_name("connections with stripes", tests_with_stripes, NULL, NULL);
    nstreams = 0;
    return failed + test_lanes();
}
