/* test_socket.c - what a host is seen to acknowledge, and that it is not when it hears nothing; and that a
 * connection is closed when nothing of it can be lost. */
#include "io/socket.h"
#include "io/wire.h"

#include "base/clock.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>

#include <cmocka.h>

static void connect_two(int ends[2])
{
    ddl_address at, from;
    ddl_error error;
    int listener = -1;
    assert_true(ddl_address_parse("127.0.0.1", 0, &at));
    assert_int_equal(ddl_socket_listen(&at, 1, &listener, &at, &error), DDL_OK);
    assert_int_equal(ddl_socket_connect(&at, &ends[0], &error), DDL_OK);
    assert_true(ddl_socket_wait(listener, POLLIN, ddl_deadline_in_ms(10000)));
    assert_int_equal(ddl_socket_accept(listener, &ends[1], &from), 0);
    ddl_socket_close(&listener);
}

static void carry(int from, int to, size_t bytes)
{
    static char data[64];
    assert_int_equal(ddl_socket_write(from, data, bytes), bytes);
    assert_true(ddl_socket_wait(to, POLLIN, ddl_deadline_in_ms(10000)));
    assert_int_equal(ddl_socket_read(to, data, sizeof data), bytes);
}

static ddl_socket_acks acks_of(int fd)
{
    ddl_socket_acks acks;
    assert_true(ddl_socket_ask_acks(fd, &acks));
    return acks;
}

static ddl_socket_acks when_all_is_acknowledged(int fd)
{
    const ddl_deadline deadline = ddl_deadline_in_ms(60000);
    ddl_socket_acks acks;
    while ((acks = acks_of(fd)).awaits_more && !ddl_deadline_passed(deadline))
        poll(NULL, 0, 10);
    assert_false(acks.awaits_more);
    return acks;
}

static void what_comes_is_acknowledged(void **state)
{
    int ends[2];
    ddl_socket_acks before, after;
    (void)state;
    connect_two(ends);
    if (!ddl_socket_ask_acks(ends[0], &before))
        skip(); /* this system does not tell */
    carry(ends[0], ends[1], 20);
    before = when_all_is_acknowledged(ends[0]);
    carry(ends[0], ends[1], 30);
    after = when_all_is_acknowledged(ends[0]);
    assert_int_equal(after.acked_bytes, before.acked_bytes + 30);
    assert_int_not_equal(after.answers, before.answers);
    ddl_socket_close(&ends[0]);
    ddl_socket_close(&ends[1]);
}

static void hear(int fd, bool anything)
{
    struct sock_filter nothing[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
    const struct sock_fprog filter = { 1, nothing };
    const int what = anything ? SO_DETACH_FILTER : SO_ATTACH_FILTER;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, what, &filter, sizeof filter), 0);
}

/* Twenty milliseconds in which nobody answers are busy ones, and those after the answer are not. */
static void the_time_without_an_acknowledgement_is_told(void **state)
{
    int ends[2];
    ddl_socket_acks before, after;
    (void)state;
    connect_two(ends);
    if (!ddl_socket_ask_acks(ends[0], &before))
        skip();
    carry(ends[0], ends[1], 20);
    before = when_all_is_acknowledged(ends[0]);
    hear(ends[1], false);
    assert_int_equal(ddl_socket_write(ends[0], "ping", 4), 4);
    poll(NULL, 0, 20);
    assert_true(acks_of(ends[0]).busy_us >= before.busy_us + 19 * 1000);
    hear(ends[1], true);
    before = when_all_is_acknowledged(ends[0]);
    poll(NULL, 0, 20);
    after = acks_of(ends[0]);
    assert_true(after.busy_us == before.busy_us);
    assert_false(after.has_unsent);
    ddl_socket_close(&ends[0]);
    ddl_socket_close(&ends[1]);
}

/* Of an idle connection tables on the way hear every minute, and its end comes late where there is none. */
static void an_idle_connection_stays_known(void **state)
{
    static const struct {
        int level, option, value;
    } wanted[] = { { SOL_SOCKET, SO_KEEPALIVE, 1 },
                   { IPPROTO_TCP, TCP_KEEPIDLE, 60 },
                   { IPPROTO_TCP, TCP_KEEPINTVL, 60 },
                   { IPPROTO_TCP, TCP_KEEPCNT, 120 } };
    int ends[2];
    ddl_socket_acks acks;
    (void)state;
    connect_two(ends);
    if (!ddl_socket_ask_acks(ends[0], &acks))
        skip();
    ddl_socket_stay_known(ends[0]);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int value = 0;
        socklen_t bytes = sizeof value;
        assert_int_equal(getsockopt(ends[0], wanted[i].level, wanted[i].option, &value, &bytes), 0);
        assert_int_equal(value, wanted[i].value);
    }
    ddl_socket_close(&ends[0]);
    ddl_socket_close(&ends[1]);
}

static void try_three_times(int fd)
{
    for (const ddl_deadline deadline = ddl_deadline_in_ms(60000); acks_of(fd).tries < 3; poll(NULL, 0, 10))
        assert_false(ddl_deadline_passed(deadline));
}

/* A cut in one direction: who hears nothing sends again and again what he does not see acknowledged, and that
 * brings his old acknowledgements along. */
static void who_hears_nothing_does_not_answer(void **state)
{
    int ends[2];
    ddl_socket_acks before, after;
    (void)state;
    connect_two(ends);
    if (!ddl_socket_ask_acks(ends[0], &before))
        skip();
    carry(ends[0], ends[1], 20);
    carry(ends[1], ends[0], 20);
    (void)when_all_is_acknowledged(ends[1]);
    before = when_all_is_acknowledged(ends[0]);
    hear(ends[1], false);
    carry(ends[1], ends[0], 20);
    assert_int_equal(ddl_socket_write(ends[0], "ping", 4), 4);
    try_three_times(ends[1]);
    after = acks_of(ends[0]);
    assert_true(after.awaits_more);
    assert_int_not_equal(after.tries, 0);
    assert_int_equal(after.answers, before.answers);
    assert_int_equal(after.acked_bytes, before.acked_bytes);
    hear(ends[1], true);
    after = when_all_is_acknowledged(ends[0]);
    assert_int_equal(after.acked_bytes, before.acked_bytes + 4);
    assert_int_not_equal(after.answers, before.answers);
    ddl_socket_close(&ends[0]);
    ddl_socket_close(&ends[1]);
}

/* Nor where he believes that there is no room: his probes have no data, and acknowledge nothing. */
static void who_probes_does_not_answer(void **state)
{
    static char data[256 * 1024];
    int ends[2];
    ddl_socket_acks before, after;
    (void)state;
    connect_two(ends);
    if (!ddl_socket_ask_acks(ends[0], &before))
        skip();
    while (ddl_socket_wait(ends[1], POLLOUT, ddl_deadline_in_ms(500)))
        (void)ddl_socket_write(ends[1], data, sizeof data);
    hear(ends[1], false);
    while (ddl_socket_wait(ends[0], POLLIN, ddl_deadline_in_ms(100)))
        assert_true(ddl_socket_read(ends[0], data, sizeof data) > 0);
    assert_int_equal(ddl_socket_write(ends[0], "ping", 4), 4);
    const int64_t begin_ns = ddl_now_ns();
    before = acks_of(ends[0]);
    try_three_times(ends[1]);
    after = acks_of(ends[0]);
    assert_true(after.awaits_more);
    assert_int_not_equal(after.answers, before.answers);
    assert_true(after.ago_ns >= before.ago_ns + (ddl_now_ns() - begin_ns) / 2);
    assert_int_equal(after.acked_bytes, before.acked_bytes);
    ddl_socket_close(&ends[0]);
    ddl_socket_close(&ends[1]);
}

/* As much as fits the connection while nobody reads; returns how much that was. */
static size_t fill(int fd)
{
    static const char data[64 * 1024];
    size_t written = 0;
    for (ssize_t part; (part = ddl_socket_write(fd, data, sizeof data)) > 0;)
        written += (size_t)part;
    return written;
}

/* Up to so many bytes, and fewer where the stream ends; an error fails, and so does a stream that stays open.
 */
static size_t take(int fd, size_t most)
{
    static char data[64 * 1024];
    size_t taken = 0;
    while (taken < most) {
        assert_true(ddl_socket_wait(fd, POLLIN, ddl_deadline_in_ms(10000)));
        const size_t left = most - taken;
        ssize_t part = ddl_socket_read(fd, data, left < sizeof data ? left : sizeof data);
        assert_true(part >= 0);
        if (part == 0)
            break;
        taken += (size_t)part;
    }
    return taken;
}

static bool parts(ddl_wire *wire, bool is_all, short *events)
{
    char room[256];
    return ddl_wire_part(wire, is_all, room, sizeof room, events);
}

static void who_parts_loses_nothing_though_the_peer_goes_on_talking(void **state)
{
    (void)state;
    for (int reads_all = 0; reads_all < 2; reads_all++) {
        int ends[2];
        short events = 0;
        connect_two(ends);
        ddl_wire wire = { .fd = ends[0] };
        const size_t bytes = fill(ends[0]);
        assert_true(bytes > 0);
        assert_int_equal(ddl_socket_write(ends[1], "before", 6), 6);
        assert_false(parts(&wire, true, &events));
        assert_int_equal(events, POLLIN);
        size_t taken = 0;
        for (int turns = 0; !parts(&wire, true, &events); turns++) {
            assert_true(turns < 1000);
            taken += take(ends[1], 64 * 1024);
            assert_int_equal(ddl_socket_write(ends[1], "meanwhile", 9), 9);
            (void)ddl_socket_wait(-1, 0, ddl_deadline_in_ms(1));
        }
        if (reads_all) { /* what is in the buffers of the peer's host */
            assert_int_equal(taken + take(ends[1], bytes + 1), bytes); /* up to the end of the stream */
        } else {
            ddl_wire_close(&wire);
            assert_int_equal(ddl_socket_write(ends[1], "afterwards", 10), 10);
            assert_int_equal(taken + take(ends[1], bytes - taken), bytes);
        }
        ddl_wire_close(&wire);
        ddl_socket_close(&ends[1]);
    }
}

static void what_is_not_all_written_keeps_the_stream_open_and_is_read_from(void **state)
{
    int ends[2];
    short events = 0;
    (void)state;
    connect_two(ends);
    ddl_wire wire = { .fd = ends[0] };
    assert_int_equal(ddl_socket_write(ends[1], "meanwhile", 9), 9);
    assert_true(ddl_socket_wait(ends[0], POLLIN, ddl_deadline_in_ms(10000)));
    assert_false(parts(&wire, false, &events));
    assert_int_equal(events, POLLOUT);
    char byte;
    assert_int_equal(ddl_socket_peek(ends[0], &byte, 1), -1); /* it was read */
    shutdown(ends[1], SHUT_WR);                               /* it still hears */
    assert_true(ddl_socket_wait(ends[0], POLLIN, ddl_deadline_in_ms(10000)));
    assert_false(parts(&wire, false, &events));
    assert_int_equal(events, POLLOUT);
    carry(ends[0], ends[1], 1);
    ddl_wire_close(&wire);
    ddl_socket_close(&ends[1]);
}

static void who_has_closed_too_or_broken_it_is_waited_for_no_longer(void **state)
{
    (void)state;
    for (int breaks = 0; breaks < 2; breaks++) {
        int ends[2];
        short events = 0;
        connect_two(ends);
        ddl_wire wire = { .fd = ends[0] };
        (void)fill(ends[0]);
        if (breaks)
            ddl_socket_close(&ends[1]); /* with what it has not read */
        else
            shutdown(ends[1], SHUT_WR);
        assert_true(ddl_socket_wait(ends[0], POLLIN, ddl_deadline_in_ms(10000)));
        assert_true(parts(&wire, true, &events));
        ddl_wire_close(&wire);
        ddl_socket_close(&ends[1]);
    }
}

/* The peer, or what lies between: they are told apart to the program. */
static void errors_tell_who_has_ended_a_connection(void **state)
{
    static const int cut_off[] = { ETIMEDOUT, EHOSTUNREACH, ENETUNREACH };
    static const int hung_up[] = { EPIPE, ECONNRESET, ENOTCONN };
    (void)state;
    for (size_t i = 0; i < sizeof cut_off / sizeof cut_off[0]; i++) {
        assert_true(ddl_socket_is_cut_off(cut_off[i]) && !ddl_socket_is_hung_up(cut_off[i]));
        assert_true(ddl_socket_is_hung_up(hung_up[i]) && !ddl_socket_is_cut_off(hung_up[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_is_acknowledged),
        cmocka_unit_test(the_time_without_an_acknowledgement_is_told),
        cmocka_unit_test(an_idle_connection_stays_known),
        cmocka_unit_test(who_hears_nothing_does_not_answer),
        cmocka_unit_test(who_probes_does_not_answer),
        cmocka_unit_test(who_parts_loses_nothing_though_the_peer_goes_on_talking),
        cmocka_unit_test(what_is_not_all_written_keeps_the_stream_open_and_is_read_from),
        cmocka_unit_test(who_has_closed_too_or_broken_it_is_waited_for_no_longer),
        cmocka_unit_test(errors_tell_who_has_ended_a_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
