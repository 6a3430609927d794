/* test_socket.c - what a host is seen to acknowledge, and that it is not when it hears nothing. */
#include "io/socket.h"

#include "base/clock.h"

#include <linux/filter.h>
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

/* A cut in one direction: who hears nothing sends again and again what he does not see acknowledged, and that
 * brings his old acknowledgements along. */
static void who_hears_nothing_does_not_answer(void **state)
{
    struct sock_filter nothing[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
    const struct sock_fprog filter = { 1, nothing };
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
    assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
    carry(ends[1], ends[0], 20);
    assert_int_equal(ddl_socket_write(ends[0], "ping", 4), 4);
    for (const ddl_deadline deadline = ddl_deadline_in_ms(60000); acks_of(ends[1]).tries < 3;
         poll(NULL, 0, 10))
        assert_false(ddl_deadline_passed(deadline));
    after = acks_of(ends[0]);
    assert_true(after.awaits_more);
    assert_int_not_equal(after.tries, 0);
    assert_int_equal(after.answers, before.answers);
    assert_int_equal(after.acked_bytes, before.acked_bytes);
    assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_DETACH_FILTER, &filter, sizeof filter), 0);
    after = when_all_is_acknowledged(ends[0]);
    assert_int_equal(after.acked_bytes, before.acked_bytes + 4);
    assert_int_not_equal(after.answers, before.answers);
    ddl_socket_close(&ends[0]);
    ddl_socket_close(&ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_is_acknowledged),
        cmocka_unit_test(who_hears_nothing_does_not_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
