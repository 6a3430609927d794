/* test_network.c - what is said of the network, and which addresses follow. */
#include "rendezvous/network.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void settings_are_read_or_refused(void **state)
{
    static const struct {
        const char *advertise, *ports;
        const char *host; /* NULL: refused */
        uint16_t port, first, last;
    } cases[] = {
        { NULL, NULL, "", 0, 0, 0 },
        { NULL, "30000", "", 0, 30000, 30000 },
        { NULL, "1-65535", "", 0, 1, 65535 },
        { "203.0.113.7", NULL, "203.0.113.7", 0, 0, 0 },
        { "gate.example", "30000-30003", "gate.example", 0, 30000, 30003 },
        { "203.0.113.7:31000", "30000-30003", "203.0.113.7", 31000, 30000, 30003 },
        { "fd00::7", NULL, "fd00::7", 0, 0, 0 },
        { "[fd00::7]:31000", "30000-30003", "fd00::7", 31000, 30000, 30003 },
        { "gate:65532", "30000-30003", "gate", 65532, 30000, 30003 },
        { "gate:65533", "30000-30003", NULL, 0, 0, 0 },
        { "203.0.113.7:31000", NULL, NULL, 0, 0, 0 },
        { "gate:", "30000-30003", NULL, 0, 0, 0 },
        { ":31000", "30000-30003", NULL, 0, 0, 0 },
        { "gate,port", NULL, NULL, 0, 0, 0 },
        { "10.0.0.0/8", NULL, NULL, 0, 0, 0 },
        { "::", NULL, NULL, 0, 0, 0 },
        { NULL, "0-5", NULL, 0, 0, 0 },
        { NULL, "5-4", NULL, 0, 0, 0 },
        { NULL, "5-", NULL, 0, 0, 0 },
        { NULL, "-5", NULL, 0, 0, 0 },
        { NULL, "5-65536", NULL, 0, 0, 0 },
        { NULL, "5-99999999999999999999", NULL, 0, 0, 0 },
        { NULL, "5-6 ", NULL, 0, 0, 0 },
        { NULL, "5,6", NULL, 0, 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_network network = { .iface = "" };
        ddl_error error;
        const char *value = cases[i].advertise != NULL ? cases[i].advertise : cases[i].ports;
        ddl_status status = ddl_network_parse(NULL, cases[i].advertise, cases[i].ports, &network, &error);
        if (status != (cases[i].host != NULL ? DDL_OK : DDL_ECONFIG))
            fail_msg("%s, %s: %s", cases[i].advertise, cases[i].ports, ddl_status_name(status));
        if (status != DDL_OK) {
            assert_non_null(
                strstr(error.text, cases[i].advertise != NULL ? "DDL_ADVERTISE=" : "DDL_PORT_RANGE="));
            assert_non_null(strstr(error.text, value));
            continue;
        }
        assert_string_equal(network.advertise, cases[i].host);
        assert_int_equal(network.advertise_port, cases[i].port);
        assert_int_equal(network.ports.first, cases[i].first);
        assert_int_equal(network.ports.last, cases[i].last);
    }
}

static void what_is_told_is_what_others_can_call(void **state)
{
    ddl_network network = { .iface = "" };
    ddl_network_place place = { .nlisten = 1 };
    ddl_member member = { .rank = 0 };
    const uint16_t ports[] = { 30002, 40000 };
    (void)state;
    assert_true(ddl_address_parse("10.88.0.2", 0, &place.listen[0]));
    assert_true(ddl_address_parse("fd88::2", 0, &place.listen[1]));
    ddl_network_tell(&network, &place, ports, &member);
    assert_string_equal(member.address, "10.88.0.2");
    assert_int_equal(member.port, 30002);
    assert_string_equal(member.other, "");

    place.nlisten = 2;
    ddl_network_tell(&network, &place, ports, &member);
    assert_string_equal(member.other, "fd88::2");
    assert_int_equal(member.other_port, 40000);
    assert_false(member.is_inner);

    place.nlisten = 1;
    assert_int_equal(ddl_network_parse(NULL, "203.0.113.7:31000", "30000-30003", &network, NULL), DDL_OK);
    assert_true(ddl_address_parse("203.0.113.7", 0, &place.advertise));
    place.advertises = true;
    ddl_network_tell(&network, &place, ports, &member);
    assert_string_equal(member.address, "203.0.113.7");
    assert_int_equal(member.port, 31002);
    assert_string_equal(member.other, "10.88.0.2");
    assert_int_equal(member.other_port, 30002);
    assert_true(member.is_inner);
}

static void who_is_behind_the_same_gate_calls_inside_it(void **state)
{
    static const ddl_member inside = { .address = "203.0.113.7",
                                       .port = 31000,
                                       .other = "10.88.0.2",
                                       .other_port = 30000,
                                       .is_inner = true },
                            beside = { .address = "203.0.113.7",
                                       .port = 31001,
                                       .other = "10.88.0.3",
                                       .other_port = 30001,
                                       .is_inner = true },
                            outside = { .address = "10.77.0.1", .port = 5 },
                            both = { .address = "10.77.0.2", .port = 6, .other = "fd77::2", .other_port = 7 };
    static const struct {
        const ddl_member *self, *peer;
        bool is_neighbour;
        const char *first, *second;
    } cases[] = {
        { &outside, &inside, false, "203.0.113.7:31000", NULL },
        { &beside, &inside, false, "10.88.0.2:30000", NULL },
        { &outside, &inside, true, "10.88.0.2:30000", NULL },
        { &inside, &outside, false, "10.77.0.1:5", NULL },
        { &outside, &both, false, "10.77.0.2:6", "[fd77::2]:7" },
        { &inside, &both, true, "10.77.0.2:6", "[fd77::2]:7" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_address addresses[DDL_NETWORK_CALL_MAX];
        char text[DDL_ADDRESS_FULL_TEXT];
        int count = ddl_network_call(cases[i].self, cases[i].peer, cases[i].is_neighbour, addresses);
        assert_int_equal(count, cases[i].second != NULL ? 2 : 1);
        ddl_address_text(&addresses[0], text);
        assert_string_equal(text, cases[i].first);
        if (count > 1) {
            ddl_address_text(&addresses[1], text);
            assert_string_equal(text, cases[i].second);
        }
    }
    ddl_address addresses[DDL_NETWORK_CALL_MAX];
    ddl_member nonsense = { .address = "nodea", .port = 5 };
    assert_int_equal(ddl_network_call(&outside, &nonsense, false, addresses), 0);
}

/* Which may be one that other hosts cannot use, but nobody is sent to /etc/hosts for it. */
static void an_address_may_be_written_in_short(void **state)
{
    static const char *const shorts[] = { "127.1", "0x7f000001", "2130706433" };
    const ddl_network network = { .spread = DDL_SPREAD_SEVERAL }; /* for which a name would be replaced */
    (void)state;
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++) {
        ddl_address addresses[DDL_NETWORK_MASTER_MAX];
        int count = 0;
        assert_int_equal(ddl_network_find_master(&network, true, shorts[i], 29500, ddl_deadline_in_ms(5000),
                                                 addresses, &count, NULL),
                         DDL_OK);
        assert_int_equal(count, 1);
        assert_true(ddl_address_is_loopback(&addresses[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_read_or_refused),
        cmocka_unit_test(what_is_told_is_what_others_can_call),
        cmocka_unit_test(who_is_behind_the_same_gate_calls_inside_it),
        cmocka_unit_test(an_address_may_be_written_in_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
