/* pair.c - the two, and what they hear. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../io/idle_client.h"
#include "pair.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const ddl_signature signature = {
    .collective = 1, .dtype = 2, .op = 3, .algorithm = 4, .root = -1, .count = 5
};

static bool on_heard(void *arg, int peer, const ddl_frame *frame)
{
    (void)peer;
    (void)frame;
    side *me = arg;
    me->heard++;
    if (me->when_heard != NULL)
        me->when_heard(me);
    return !me->wants_nothing;
}

static bool on_agreement(void *arg, int peer, const ddl_frame *frame, ddl_view payload, ddl_error *err)
{
    (void)arg;
    (void)peer;
    (void)frame;
    (void)payload;
    (void)err;
    return true;
}

static void on_told(void *arg, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    (void)peer;
    (void)frame;
    side *me = arg;
    me->told++;
    me->notice = *notice;
}

static void on_left(void *arg, int peer)
{
    (void)peer;
    ((side *)arg)->left++;
}

static void on_lost(void *arg, int peer, int os_errno, const ddl_error *error)
{
    (void)os_errno;
    side *me = arg;
    me->lost++;
    me->lost_code = error != NULL ? error->code : DDL_EPEERLOST;
    snprintf(me->lost_text, sizeof me->lost_text, "%.299s", error != NULL ? error->text : "");
    if (error == NULL)
        return;
    ddl_notice why = { .code = error->code, .culprit = peer, .witness = 1 - peer };
    ddl_frame frame = { .type = DDL_FRAME_ABORT };
    snprintf(why.text, sizeof why.text, "%.300s", error->text);
    ddl_mesh_tell(me->mesh, peer, &frame, &why);
}

static bool sweep(void *arg)
{
    side *me = arg;
    atomic_store(&me->dozes, false);
    ddl_mesh_sweep(me->mesh);
    return false;
}

static bool needs_loop(void *arg)
{
    return ddl_mesh_needs_loop(((side *)arg)->mesh);
}

static bool doze(void *arg)
{
    side *me = arg;
    atomic_store(&me->dozes, true);
    return ddl_mesh_doze(me->mesh);
}

static bool busy(void *arg)
{
    return ((side *)arg)->is_busy;
}

bool by_lanes;
bool pulling;
int nstreams;
bool by_choice;
int streams[2][STREAMS_MOST];

void make_streams(void)
{
    for (int i = 0; i < nstreams; i++) {
        int sockets[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
        for (int rank = 0; rank < 2; rank++)
            streams[rank][i] = sockets[rank];
    }
}

void connect_over_tcp(const char *address, int unread, int sockets[2])
{
    struct sockaddr_in to = { .sin_family = AF_INET }, from = to;
    socklen_t bytes = sizeof to;
    assert_int_equal(inet_pton(AF_INET, address, &to.sin_addr), 1);
    assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &from.sin_addr), 1);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&to, sizeof to), 0);
    if (unread > 0)
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &unread, sizeof unread);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&to, &bytes), 0);
    sockets[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(sockets[0], (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(sockets[0], (struct sockaddr *)&to, sizeof to), 0);
    sockets[1] = accept(listener, NULL, NULL);
    assert_true(sockets[1] >= 0);
    close(listener);
}

void widen(const side *me, int rank)
{
    ddl_wire wires[STREAMS_MOST];
    for (int i = 0; i < nstreams; i++)
        wires[i] = (ddl_wire){ streams[rank][i], NULL };
    if (by_choice)
        assert_int_equal(ddl_mesh_widen_late(me->mesh, 1 - rank, wires, NULL), DDL_OK);
    else if (nstreams > 0)
        assert_int_equal(ddl_mesh_widen(me->mesh, 1 - rank, wires, nstreams, NULL), DDL_OK);
}

static void on_widen(void *arg, int peer)
{
    side *me = arg;
    (void)peer;
    me->asked_for_more++;
}

static bool on_unwanted(void *arg, const ddl_frame *frame)
{
    const side *me = arg;
    (void)frame;
    return !me->cancels_nothing;
}

void open_side(side *me, int rank, int socket)
{
    ddl_wire wires[2] = { ddl_no_wire, ddl_no_wire };
    wires[1 - rank].fd = socket;
    ddl_mesh_owner owner = { .heard = on_heard,
                             .told = on_told,
                             .agrees = on_agreement,
                             .left = on_left,
                             .lost = on_lost,
                             .cancels = on_unwanted,
                             .widen = on_widen,
                             .arg = me };
    ddl_engine_client client = idle_client(me);
    client.sweep = sweep;
    client.needs_loop = needs_loop;
    client.busy = busy;
    client.doze = doze;
    assert_int_equal(ddl_mesh_create(rank, 2, wires, me->lanes, me->heap, &owner, &me->mesh, NULL), DDL_OK);
    if (pulling)
        ddl_mesh_set_pull(me->mesh, 1);
    if (by_choice)
        ddl_mesh_let_choose(me->mesh, 1 - rank, nstreams);
    else
        widen(me, rank);
    assert_int_equal(ddl_engine_create(&client, false, &me->engine, NULL), DDL_OK);
    assert_true(ddl_engine_try_enter(me->engine)); /* kept: this thread drives both */
    assert_int_equal(ddl_mesh_open(me->mesh, me->engine, NULL), DDL_OK);
}

void close_side(side *me)
{
    if (me->mesh == NULL)
        return;
    ddl_mesh_close(me->mesh);
    ddl_engine_progress(me->engine);
    ddl_engine_leave(me->engine);
    assert_true(ddl_engine_destroy(me->engine, ddl_deadline_in_ms(5000)));
    ddl_mesh_destroy(me->mesh);
    ddl_heap_destroy(me->heap);
    ddl_lanes_destroy(me->lanes);
    ddl_roster_destroy(me->roster);
    memset(me, 0, sizeof *me);
}

void join_sides(side pair[2])
{
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(ddl_roster_create(rank, 2, &pair[rank].roster, NULL), DDL_OK);
        for (int i = 0; i < 2; i++)
            pair[rank].roster->members[i].pid = getpid();
        ddl_roster_derive(pair[rank].roster);
        assert_int_equal(ddl_lanes_create(pair[rank].roster, 0, 0, 1, &pair[rank].lanes, NULL), DDL_OK);
        size_t bytes;
        void *memory = ddl_lanes_heap(pair[rank].lanes, rank, &bytes);
        assert_int_equal(ddl_heap_create(memory, bytes, ddl_lanes_memory(pair[rank].lanes),
                                         ddl_lanes_heap_start(pair[rank].lanes), &pair[rank].heap, NULL),
                         DDL_OK);
    }
    for (int rank = 0; rank < 2; rank++) {
        const ddl_lanes *other = pair[1 - rank].lanes;
        assert_int_equal(ddl_lanes_join(pair[rank].lanes, 1 - rank, dup(ddl_lanes_memory(other)),
                                        dup(ddl_lanes_bell(other)), NULL),
                         DDL_OK);
    }
}

void open_sides(side pair[2], const int sockets[2])
{
    memset(pair, 0, 2 * sizeof *pair);
    if (by_lanes)
        join_sides(pair);
    make_streams();
    open_side(&pair[0], 0, sockets[0]);
    open_side(&pair[1], 1, sockets[1]);
}

void open_pair(side pair[2], int sockets[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    open_sides(pair, sockets);
}

void close_pair(side pair[2])
{
    close_side(&pair[0]);
    close_side(&pair[1]);
}

void drive_until(side pair[2], const bool *flag)
{
    ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    while (!*flag) {
        for (int i = 0; i < 2; i++)
            if (pair[i].mesh != NULL)
                ddl_engine_progress(pair[i].engine);
        if (ddl_deadline_passed(deadline))
            fail_msg("nothing came for %d ms", PATIENCE_MS);
    }
}

void drive(side pair[2], int turns)
{
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < 2; i++)
            if (pair[i].mesh != NULL)
                ddl_engine_progress(pair[i].engine);
}

static void on_done(ddl_xfer *xfer)
{
    DDL_CONTAINER(xfer, message, xfer)->done = true;
}

void prepare_done(message *m)
{
    m->xfer.done = on_done;
}

uint8_t pattern(uint64_t sequence, size_t i)
{
    return (uint8_t)(sequence * 7 + i * 13 + (i >> 8));
}

void prepare(message *m, int peer, uint64_t sequence, size_t bytes, size_t first_part, bool filled)
{
    memset(m, 0, sizeof *m);
    m->data = malloc(bytes);
    assert_non_null(m->data);
    for (size_t i = 0; i < bytes; i++)
        m->data[i] = filled ? pattern(sequence, i) : 0xee;
    m->xfer.key = (ddl_key){ .sequence = sequence };
    m->xfer.peer = peer;
    m->xfer.part[0] = (ddl_part){ m->data, first_part };
    m->xfer.part[1] = (ddl_part){ m->data + first_part, bytes - first_part };
    m->xfer.bytes = bytes;
    m->xfer.signature = &signature;
    prepare_done(m);
}

void post(side *me, message *m, bool sends)
{
    ddl_transport *transport = ddl_mesh_transport(me->mesh);
    m->done = sends ? transport->ops->send(transport, &m->xfer) : transport->ops->recv(transport, &m->xfer);
}

void cancel(side *me, message *m)
{
    ddl_transport *transport = ddl_mesh_transport(me->mesh);
    transport->ops->cancel(transport, &m->xfer);
}

void post_send(side *from, message *m, uint64_t sequence, size_t bytes, size_t first_part)
{
    prepare(m, 1, sequence, bytes, first_part, true);
    post(from, m, true);
}

void post_recv(side *to, message *m, uint64_t sequence, size_t bytes, size_t first_part)
{
    prepare(m, 0, sequence, bytes, first_part, false);
    post(to, m, false);
}

void assert_arrived(const message *m)
{
    for (size_t i = 0; i < m->xfer.bytes; i++)
        if (m->data[i] != pattern(m->xfer.key.sequence, i))
            fail_msg("message %d: byte %zu of %zu is wrong", (int)m->xfer.key.sequence, i, m->xfer.bytes);
}

void deliver(side pair[2], const message *out, const message *in)
{
    drive_until(pair, &in->done);
    drive_until(pair, &out->done);
    assert_arrived(in);
}

ddl_frame frame_of(ddl_frame_type type, uint64_t sequence, uint32_t bytes)
{
    return (ddl_frame){ .type = (uint8_t)type, .bytes = bytes, .sequence = sequence, .signature = signature };
}
