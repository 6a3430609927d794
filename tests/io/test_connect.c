/* test_connect.c - of several addresses, the one that answers; of a range of ports, one that is free. */
#include "io/connect.h"

#include "io/socket.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An address of loopback at which a socket listens, with room for so many connections. */
static int listen_somewhere(int backlog, ddl_address *address)
{
    ddl_address any;
    int fd = -1;
    assert_true(ddl_address_parse("127.0.0.1", 0, &any));
    assert_int_equal(ddl_socket_listen(&any, backlog, &fd, address, NULL), DDL_OK);
    return fd;
}

/* An address at which nobody listens. */
static ddl_address closed_address(void)
{
    ddl_address address;
    int fd = listen_somewhere(1, &address);
    ddl_socket_close(&fd);
    return address;
}

static void the_one_that_answers_is_taken(void **state)
{
    ddl_address to[3], nowhere;
    int listener = listen_somewhere(8, &to[2]), fd = -1, which = -1;
    (void)state;
    to[0] = closed_address();
    assert_true(ddl_address_parse("fe80::1", 9, &nowhere)); /* of which network it does not say */
    to[1] = nowhere;
    assert_int_equal(ddl_connect_any(to, 3, ddl_deadline_in_ms(5000), &fd, &which, NULL), DDL_OK);
    assert_int_equal(which, 2);
    assert_int_equal(ddl_socket_error(fd), 0);
    ddl_socket_close(&fd);
    ddl_socket_close(&listener);
}

static void the_failure_that_tells_most_is_told(void **state)
{
    ddl_address to[3];
    ddl_error error;
    char text[DDL_ADDRESS_FULL_TEXT];
    int fd = -1, which = -1;
    (void)state;
    assert_true(ddl_address_parse("fe80::1", 9, &to[0]));
    to[1] = closed_address();
    to[2] = to[0];
    assert_int_equal(ddl_connect_any(to, 3, ddl_deadline_in_ms(5000), &fd, &which, &error), DDL_ENETWORK);
    ddl_address_text(&to[1], text);
    assert_int_equal(error.os_errno, ECONNREFUSED);
    assert_non_null(strstr(error.text, text));
    assert_int_equal(ddl_connect_any(to, 1, ddl_deadline_in_ms(5000), &fd, &which, &error), DDL_ENETWORK);
    assert_true(ddl_connect_lacks_route(error.os_errno));
    assert_int_equal(fd, -1);
}

/* A full queue of connections that nobody accepts: what comes then is not answered. */
static void one_that_never_answers_delays_by_a_head_start_only(void **state)
{
    enum { FILL = 8 };
    ddl_address to[2];
    ddl_error error;
    int silent = listen_somewhere(0, &to[0]), listener = listen_somewhere(8, &to[1]);
    int fill[FILL], fd = -1, which = -1;
    (void)state;
    for (int i = 0; i < FILL; i++)
        assert_int_equal(ddl_socket_connect(&to[0], &fill[i], NULL), DDL_OK);
    if (ddl_socket_wait(fill[FILL - 1], POLLOUT, ddl_deadline_in_ms(50)))
        skip(); /* this system has no such limit */
    int64_t start_ns = ddl_now_ns();
    assert_int_equal(ddl_connect_any(to, 1, ddl_deadline_in_ms(100), &fd, &which, &error), DDL_ENETWORK);
    assert_int_equal(error.os_errno, ETIMEDOUT);
    assert_true(ddl_now_ns() - start_ns >= 99 * DDL_NS_PER_MS);
    start_ns = ddl_now_ns();
    assert_int_equal(ddl_connect_any(to, 2, ddl_deadline_in_ms(20000), &fd, &which, &error), DDL_OK);
    assert_int_equal(which, 1);
    assert_true(ddl_now_ns() - start_ns < 10000 * DDL_NS_PER_MS);
    ddl_socket_close(&fd);
    for (int i = 0; i < FILL; i++)
        ddl_socket_close(&fill[i]);
    ddl_socket_close(&silent);
    ddl_socket_close(&listener);
}

static void a_port_of_a_range_is_found(void **state)
{
    ddl_address taken, any, bound;
    ddl_error error;
    int fd = -1, other = listen_somewhere(1, &taken);
    uint16_t port = ddl_address_port(&taken);
    (void)state;
    assert_true(ddl_address_parse("127.0.0.1", 0, &any));
    ddl_port_range one = { port, port };
    assert_int_equal(ddl_socket_listen_within(&any, one, 7, 1, &fd, &bound, &error), DDL_ENETWORK);
    assert_int_equal(error.os_errno, EADDRINUSE);
    assert_non_null(strstr(error.text, "DDL_PORT_RANGE"));
    /* Wherever the search begins, it goes once around. */
    ddl_port_range some = { port > 60000 ? port - 50 : port, port > 60000 ? port : port + 50 };
    for (int index = 0; index < 102; index += 17) {
        assert_int_equal(ddl_socket_listen_within(&any, some, index, 1, &fd, &bound, &error), DDL_OK);
        assert_in_range(ddl_address_port(&bound), some.first, some.last);
        assert_int_not_equal(ddl_address_port(&bound), port);
        ddl_socket_close(&fd);
    }
    ddl_socket_close(&other);
}

static void the_search_goes_on_at_the_first_port_after_the_last(void **state)
{
    enum { TRIES = 50 }; /* others may take the port before */
    ddl_address taken, any, bound;
    ddl_error error;
    ddl_status status = DDL_ENETWORK;
    int fd = -1;
    (void)state;
    assert_true(ddl_address_parse("127.0.0.1", 0, &any));
    for (int i = 0; i < TRIES && status != DDL_OK; i++) {
        int last = listen_somewhere(1, &taken);
        const uint16_t port = ddl_address_port(&taken);
        const ddl_port_range two = { port - 1, port };
        status = ddl_socket_listen_within(&any, two, 1, 1, &fd, &bound, &error);
        if (status == DDL_OK)
            assert_int_equal(ddl_address_port(&bound), port - 1);
        ddl_socket_close(&last);
    }
    assert_int_equal(status, DDL_OK);
    ddl_socket_close(&fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_one_that_answers_is_taken),
        cmocka_unit_test(the_failure_that_tells_most_is_told),
        cmocka_unit_test(one_that_never_answers_delays_by_a_head_start_only),
        cmocka_unit_test(a_port_of_a_range_is_found),
        cmocka_unit_test(the_search_goes_on_at_the_first_port_after_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
