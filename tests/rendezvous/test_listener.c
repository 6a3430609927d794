/* test_listener.c - the door takes turns with what else is on its loop, and little from strangers. */
#include "rendezvous/listener.h"

#include "base/log.h"
#include "io/socket.h"
#include "io/watch.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

enum { CALLERS = 200, ACCEPTS_PER_TURN = 64, PATIENCE_MS = 20000 };

/* Who calls says what is no hello, so whoever is accepted is refused on the spot, and counts. */
struct crowd {
    ddl_service *service;
    ddl_listener *listener;
    ddl_watch *other;    /* on the same loop, and always ready */
    int always[2], done; /* done: written to when all were seen */
    int callers[CALLERS];
    int refused, refused_before, most, turns; /* between two events of other */
    ddl_status status;
};

static void on_other(void *arg, int events)
{
    struct crowd *crowd = arg;
    int since = crowd->refused - crowd->refused_before;
    (void)events;
    crowd->most = since > crowd->most ? since : crowd->most;
    crowd->turns += since > 0 ? 1 : 0;
    crowd->refused_before = crowd->refused;
    if (crowd->refused == CALLERS) {
        ddl_watch_set(crowd->other, 0);
        (void)!write(crowd->done, "x", 1);
    }
}

static void judge(void *arg, ddl_hello *hello, const ddl_address *from)
{
    (void)arg, (void)from;
    ddl_hello_judge(hello, DDL_HELLO_NOT_DDL);
}

static void refused(void *arg, const ddl_hello *hello, const ddl_address *from)
{
    (void)hello, (void)from;
    ((struct crowd *)arg)->refused++;
}

static void entered(void *arg, ddl_wire wire, const ddl_hello *hello, const ddl_address *from)
{
    (void)arg, (void)hello, (void)from;
    ddl_wire_close(&wire);
}

/* All have called, and spoken, before the loop has its first turn. */
static void gather(void *arg)
{
    static const ddl_listener_events events = { judge, refused, entered };
    static const char nonsense[DDL_HELLO_CLIENT_BYTES] = "nonsense";
    struct crowd *crowd = arg;
    const ddl_listener_options options = {
        .service = crowd->service,
        .self = { .channel = DDL_CHANNEL_MESH, .nranks = CALLERS }, /* so many may wait to be accepted */
        .events = &events,
        .arg = crowd,
    };
    ddl_address address, bound;
    bool well =
        ddl_address_parse("127.0.0.1", 0, &address) &&
        ddl_listener_open(&options, &address, &bound, &crowd->listener, NULL) == DDL_OK &&
        ddl_watch_open(crowd->service, crowd->always[0], on_other, crowd, &crowd->other, NULL) == DDL_OK;
    for (int i = 0; i < CALLERS && well; i++) {
        int fd = crowd->callers[i] = socket(AF_INET, SOCK_STREAM, 0);
        well = fd >= 0 && connect(fd, (struct sockaddr *)&bound.socket, bound.bytes) == 0 &&
               write(fd, nonsense, sizeof nonsense) == (ssize_t)sizeof nonsense;
    }
    if (well)
        ddl_watch_set(crowd->other, DDL_READABLE);
    crowd->status = well ? DDL_OK : DDL_ENETWORK;
}

static void disperse(void *arg)
{
    struct crowd *crowd = arg;
    ddl_watch_close(crowd->other);
    ddl_listener_close(crowd->listener);
}

static void a_crowd_at_the_door_leaves_others_their_turns(void **state)
{
    static struct crowd crowd;
    int done[2];
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR); /* not of each whom it turns away */
    assert_int_equal(pipe(crowd.always), 0);
    assert_int_equal(write(crowd.always[1], "x", 1), 1);
    assert_int_equal(pipe(done), 0);
    crowd.done = done[1];
    assert_int_equal(ddl_service_create(&crowd.service, NULL), DDL_OK);
    ddl_service_call(crowd.service, gather, &crowd);
    assert_int_equal(crowd.status, DDL_OK);
    struct pollfd all_seen = { .fd = done[0], .events = POLLIN };
    assert_int_equal(poll(&all_seen, 1, PATIENCE_MS), 1);
    ddl_service_call(crowd.service, disperse, &crowd);
    ddl_service_destroy(crowd.service);
    assert_int_equal(crowd.refused, CALLERS);
    assert_in_range(crowd.most, 1, ACCEPTS_PER_TURN);
    assert_true(crowd.turns >= CALLERS / ACCEPTS_PER_TURN);
    for (int i = 0; i < CALLERS; i++)
        close(crowd.callers[i]);
    for (int i = 0; i < 2; i++) {
        close(crowd.always[i]);
        close(done[i]);
    }
}

/* ---- what is taken from who has proved nothing ---- */

enum { TAKE_BYTES = 512, LEAVES_IN_MS = 50 };

static atomic_size_t taken; /* by recv, in this process */

/* In the place of libc's, for the library too. */
ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    struct iovec part = { data, bytes };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    ssize_t count = recvmsg(fd, &message, flags);
    if (count > 0 && (flags & MSG_PEEK) == 0)
        atomic_fetch_add(&taken, (size_t)count);
    return count;
}

struct door {
    ddl_service *service;
    ddl_listener *listener;
    ddl_address bound;
    ddl_status status;
};

static void open_door(void *arg)
{
    static const ddl_listener_events events = { judge, NULL, entered };
    struct door *door = arg;
    const ddl_listener_options options = {
        .service = door->service,
        .self = { .channel = DDL_CHANNEL_STORE, .nranks = 2, .generator = 5 },
        .events = &events,
    };
    ddl_address address;
    door->status = ddl_address_parse("127.0.0.1", 0, &address)
                       ? ddl_listener_open(&options, &address, &door->bound, &door->listener, NULL)
                       : DDL_EINTERNAL;
}

static void close_door(void *arg)
{
    ddl_listener_close(((struct door *)arg)->listener);
}

static void read_whole(int fd, uint8_t *data, size_t bytes)
{
    for (ssize_t count; bytes > 0; data += count, bytes -= (size_t)count)
        assert_true((count = read(fd, data, bytes)) > 0);
}

/* It goes on talking, in pieces, until the door closes on it. */
static size_t taken_from(const struct door *door, bool is_newer, size_t piece)
{
    static const uint8_t more[4 * TAKE_BYTES];
    const ddl_hello_party self = { .channel = DDL_CHANNEL_STORE, .rank = 1, .nranks = 2, .generator = 6 };
    ddl_hello hello;
    uint8_t said[DDL_HELLO_CLIENT_BYTES], reply[DDL_HELLO_SERVER_BYTES];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_return_code(fd, errno);
    assert_return_code(connect(fd, (const struct sockaddr *)&door->bound.socket, door->bound.bytes), errno);
    atomic_store(&taken, 0);
    ddl_hello_start_client(&hello, &self);
    memcpy(said, ddl_hello_output(&hello).data, sizeof said);
    said[8] = (uint8_t)(is_newer ? DDL_HELLO_VERSION + 1 : DDL_HELLO_VERSION);
    assert_int_equal(write(fd, said, sizeof said), sizeof said);
    read_whole(fd, reply, sizeof reply);
    assert_int_equal(reply[10], is_newer ? DDL_HELLO_OTHER_VERSION : DDL_HELLO_OTHER_GENERATOR);
    for (size_t sent = 0; sent < sizeof more; sent += piece) {
        struct pollfd ended = { .fd = fd };
        if (send(fd, more, piece, MSG_NOSIGNAL) < 0 || poll(&ended, 1, LEAVES_IN_MS) == 1)
            break;
    }
    close(fd);
    return atomic_load(&taken);
}

static void of_who_proves_nothing_a_bounded_part_is_read(void **state)
{
    static const size_t pieces[] = { 100, 383, 384, 385, 1000, 2048 };
    struct door door = { 0 };
    (void)state;
    ddl_log_set_level(DDL_LOG_ERROR);
    assert_int_equal(ddl_service_create(&door.service, NULL), DDL_OK);
    ddl_service_call(door.service, open_door, &door);
    assert_int_equal(door.status, DDL_OK);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        assert_int_equal(taken_from(&door, true, pieces[i]), TAKE_BYTES);
        assert_in_range(taken_from(&door, false, pieces[i]), 1, TAKE_BYTES);
    }
    assert_int_equal(ddl_service_other_version(door.service), DDL_HELLO_VERSION + 1);
    ddl_service_call(door.service, close_door, &door);
    ddl_service_destroy(door.service);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_at_the_door_leaves_others_their_turns),
        cmocka_unit_test(of_who_proves_nothing_a_bounded_part_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
