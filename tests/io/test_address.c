/* test_address.c - numeric addresses, splitting, and choosing an interface. */
#include "io/interface.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void numeric_addresses_come_back_as_text(void **state)
{
    static const struct {
        const char *text, *full;
        bool loopback;
    } cases[] = {
        { "10.0.0.1", "10.0.0.1:29500", false },
        { "127.0.0.1", "127.0.0.1:29500", true },
        { "127.9.9.9", "127.9.9.9:29500", true },
        { "0.0.0.0", "0.0.0.0:29500", false },
        { "::1", "[::1]:29500", true },
        { "2001:db8::7", "[2001:db8::7]:29500", false },
        { "fe80::1%lo", "[fe80::1%lo]:29500", false },
        { "::ffff:127.0.0.1", "[::ffff:127.0.0.1]:29500", true },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_address address;
        char host[DDL_ADDRESS_HOST_TEXT], full[DDL_ADDRESS_FULL_TEXT];
        assert_true(ddl_address_parse(cases[i].text, 29500, &address));
        ddl_address_host(&address, host);
        ddl_address_text(&address, full);
        assert_string_equal(host, cases[i].text);
        assert_string_equal(full, cases[i].full);
        assert_int_equal(ddl_address_port(&address), 29500);
        assert_int_equal(ddl_address_is_loopback(&address), cases[i].loopback);
        ddl_address_set_port(&address, 7);
        assert_int_equal(ddl_address_port(&address), 7);
    }
}

static void what_is_no_numeric_address_is_refused(void **state)
{
    static const char *const cases[] = { "",         "localhost", "10.0.0",   "10.0.0.256",      "10.0.0.1:7",
                                         "[::1]",    "1::2::3",   "fe80::1%", "fe80::1%nosuch0", "0x7f.0.0.1",
                                         "10.0.0.1 " };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_address address;
        if (ddl_address_parse(cases[i], 1, &address))
            fail_msg("'%s' was accepted", cases[i]);
    }
    char longest[500];
    memset(longest, ':', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    ddl_address address;
    assert_false(ddl_address_parse(longest, 1, &address));
}

static void host_and_port_are_split(void **state)
{
    static const struct {
        const char *text, *host; /* host NULL: refused */
        int port;
    } cases[] = {
        { "10.0.0.1:29500", "10.0.0.1", 29500 },
        { "node7.cluster:1", "node7.cluster", 1 },
        { "[::1]:65535", "::1", 65535 },
        { "::1:29500", NULL, 0 },
        { "node7", NULL, 0 },
        { "node7:", NULL, 0 },
        { "node7:0", NULL, 0 },
        { "node7:65536", NULL, 0 },
        { "node7:-1", NULL, 0 },
        { "node7: 1", NULL, 0 },
        { "node7:1x", NULL, 0 },
        { "node7:99999999999999999999", NULL, 0 },
        { ":1", NULL, 0 },
        { "[::1]", NULL, 0 },
        { "[::1:5", NULL, 0 },
        { "[]:5", NULL, 0 },
        { "", NULL, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char host[32];
        uint16_t port = 0;
        ddl_error error;
        ddl_status status = ddl_address_split("MASTER", cases[i].text, host, sizeof host, &port, &error);
        if (status != (cases[i].host != NULL ? DDL_OK : DDL_ECONFIG))
            fail_msg("'%s': %s", cases[i].text, ddl_status_name(status));
        if (status == DDL_OK) {
            assert_string_equal(host, cases[i].host);
            assert_int_equal(port, cases[i].port);
        } else {
            assert_non_null(strstr(error.text, "MASTER"));
        }
    }
}

static void a_chosen_interface_is_one_of_ours(void **state)
{
    /* Of the first eleven, the answer is loopback. */
    static const char *const good[] = { "lo",
                                        "127.0.0.0/8",
                                        "127.0.0.1",
                                        "127.0.0.1/32",
                                        "l*",
                                        "nosuch0,lo",
                                        "::ffff:127.0.0.1",
                                        "::ffff:127.0.0.0/127",
                                        "::ffff:127.255.255.255/104",
                                        "lo,0.0.0.0/0",
                                        "203.0.113.0/24,127.0.0.0/8,0.0.0.0/0",
                                        "^nosuch",
                                        "0.0.0.0/0",
                                        NULL };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ddl_address address;
        ddl_error error;
        if (ddl_interface_choose(good[i], NULL, &address, &error) != DDL_OK)
            fail_msg("%s: %s", good[i] != NULL ? good[i] : "(none)", error.text);
        assert_true(ddl_interface_is_local(&address));
        assert_int_equal(ddl_address_port(&address), 0);
        if (i < 11)
            assert_true(ddl_address_is_loopback(&address));
    }
}

static void a_wrong_interface_lists_what_there_is(void **state)
{
    /* The first twelve are well-formed and fit nothing. */
    static const char *const bad[] = { "nosuch0",
                                       "203.0.113.0/24",
                                       "2001:db8::/32",
                                       "203.0.113.9",
                                       "nosuch0,nosuch*",
                                       "lo,^lo",
                                       "lo,^127.0.0.0/8,^::1",
                                       "^0.0.0.0/0,::/0",
                                       "^l,^*",
                                       "lo0",
                                       "::ffff:203.0.113.9",
                                       "::ffff:203.0.113.0/120",
                                       "127.0.0.1,",
                                       ",lo",
                                       "^",
                                       "lo,^",
                                       "/",
                                       "127.0.0.0/33",
                                       "127.0.0.0/",
                                       "127.0.0/8",
                                       "lo/8",
                                       "::/129",
                                       "::ffff:127.0.0.0/95",
                                       "::ffff:127.0.0.1/2147483648",
                                       "lo,127.0.0.0/8x" };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ddl_address address;
        ddl_error error;
        if (ddl_interface_choose(bad[i], NULL, &address, &error) != (i < 12 ? DDL_ENETWORK : DDL_ECONFIG))
            fail_msg("%s: %s", bad[i], ddl_status_name(error.code));
        assert_non_null(strstr(error.text, bad[i]));
        assert_non_null(strstr(error.text, "127.0.0.1/8"));
    }
}

static void the_preferred_of_those_that_fit_is_taken(void **state)
{
    ddl_address loopback, address;
    (void)state;
    assert_true(ddl_address_parse("127.0.0.1", 9, &loopback));
    assert_int_equal(ddl_interface_choose("0.0.0.0/0", &loopback, &address, NULL), DDL_OK);
    assert_true(ddl_address_same_host(&address, &loopback));
    assert_int_equal(ddl_address_port(&address), 0);
    assert_int_equal(ddl_interface_choose("::1,0.0.0.0/0", NULL, &address, NULL), DDL_OK);
}

static void an_address_is_among_others_whatever_its_port(void **state)
{
    ddl_address others[2], mapped, foreign;
    (void)state;
    assert_true(ddl_address_parse("::1", 1, &others[0]));
    assert_true(ddl_address_parse("127.0.0.1", 2, &others[1]));
    assert_true(ddl_address_parse("::ffff:127.0.0.1", 3, &mapped));
    assert_true(ddl_address_parse("203.0.113.9", 1, &foreign));
    assert_true(ddl_address_is_among(&mapped, others, 2));
    assert_false(ddl_address_is_among(&mapped, others, 1));
    assert_false(ddl_address_is_among(&foreign, others, 2));
}

static void foreign_addresses_are_not_local(void **state)
{
    ddl_address address;
    (void)state;
    assert_true(ddl_address_parse("203.0.113.9", 0, &address));
    assert_false(ddl_interface_is_local(&address));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numeric_addresses_come_back_as_text),
        cmocka_unit_test(what_is_no_numeric_address_is_refused),
        cmocka_unit_test(host_and_port_are_split),
        cmocka_unit_test(a_chosen_interface_is_one_of_ours),
        cmocka_unit_test(a_wrong_interface_lists_what_there_is),
        cmocka_unit_test(the_preferred_of_those_that_fit_is_taken),
        cmocka_unit_test(an_address_is_among_others_whatever_its_port),
        cmocka_unit_test(foreign_addresses_are_not_local),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
