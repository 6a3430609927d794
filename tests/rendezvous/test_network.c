/* test_network.c - what is said of the network, and which addresses follow. */
#include "rendezvous/network_master.h"
#include "rendezvous/network_own.h"

#include "io/interface.h"
#include "io/resolve.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        assert_int_equal(ddl_master_addresses_to_listen(&network, shorts[i], 29500, ddl_deadline_in_ms(5000),
                                                        addresses, &count, NULL),
                         DDL_OK);
        assert_int_equal(count, 1);
        assert_true(ddl_address_is_loopback(&addresses[0]));
    }
}

#ifdef DDL_TEST_NAMES

/* Names as a resolver of the test's own has them; the host's own name it does not know. */
static const struct {
    const char *name, *addresses[3];
} names[] = {
    { "loop.example", { "127.0.1.1" } },
    { "both.example", { "127.0.1.1", "10.88.0.7" } },
    { "gate.example", { "203.0.113.7" } },
};

ddl_status __real_ddl_resolve(const char *name, uint16_t port, ddl_deadline deadline,
                              ddl_address addresses[DDL_RESOLVE_MAX], int *count, ddl_error *err);
ddl_status __wrap_ddl_resolve(const char *name, uint16_t port, ddl_deadline deadline,
                              ddl_address addresses[DDL_RESOLVE_MAX], int *count, ddl_error *err);
ddl_status __wrap_ddl_resolve_soon(const char *name, uint16_t port, ddl_deadline deadline,
                                   ddl_address addresses[DDL_RESOLVE_MAX], int *count, ddl_error *err);

ddl_status __wrap_ddl_resolve(const char *name, uint16_t port, ddl_deadline deadline,
                              ddl_address addresses[DDL_RESOLVE_MAX], int *count, ddl_error *err)
{
    if (isdigit((unsigned char)name[0]))
        return __real_ddl_resolve(name, port, deadline, addresses, count, err);
    *count = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int k = 0; strcmp(name, names[i].name) == 0 && names[i].addresses[k] != NULL; k++)
            assert_true(ddl_address_parse(names[i].addresses[k], port, &addresses[(*count)++]));
    return *count > 0 ? DDL_OK : DDL_FAIL(err, DDL_ENETWORK, "nobody knows %s", name);
}

/* What a rank looks up that is not rank 0. */
static bool looked_up_soon;

ddl_status __wrap_ddl_resolve_soon(const char *name, uint16_t port, ddl_deadline deadline,
                                   ddl_address addresses[DDL_RESOLVE_MAX], int *count, ddl_error *err)
{
    looked_up_soon = true;
    return __wrap_ddl_resolve(name, port, deadline, addresses, count, err);
}

static void check_addresses(const char *what, const char *const expected[2], const ddl_address found[],
                            int count)
{
    int nexpected = 0;
    while (nexpected < 2 && expected[nexpected] != NULL)
        nexpected++;
    if (count != nexpected)
        fail_msg("%s: %d addresses instead of %d", what, count, nexpected);
    for (int i = 0; i < count; i++) {
        char text[DDL_ADDRESS_HOST_TEXT];
        ddl_address_host(&found[i], text);
        if (strcmp(text, expected[i]) != 0 || ddl_address_port(&found[i]) != 29500)
            fail_msg("%s: address %d is %s, not %s", what, i, text, expected[i]);
    }
}

/* The interface, where DDL_IFACE names one, is 127.0.0.1 here: every machine has that. */
static void rank_0_is_met_where_other_hosts_can_call_it(void **state)
{
    static const char iface[] = "127.0.0.1";
    char own[256];
    const struct {
        const char *what, *host;
        ddl_network network;
        const char *listens[2], *calls[2];
    } cases[] = {
        { "an address", "10.88.0.7", { .iface = "" }, { "10.88.0.7" }, { "10.88.0.7" } },
        { "a name that is also loopback",
          "both.example",
          { .spread = DDL_SPREAD_SEVERAL },
          { "10.88.0.7" },
          { "10.88.0.7" } },
        { "a name for loopback, an interface is chosen",
          "loop.example",
          { .iface = "127.0.0.1" },
          { iface },
          { "127.0.1.1", iface } },
        { "a name for loopback, several hosts",
          "loop.example",
          { .iface = "127.0.0.1", .spread = DDL_SPREAD_SEVERAL },
          { iface },
          { "127.0.1.1", iface } },
        { "a name for loopback, one host",
          "loop.example",
          { .iface = "127.0.0.1", .spread = DDL_SPREAD_ONE },
          { "127.0.1.1" },
          { "127.0.1.1" } },
        { "the own name, which nobody knows",
          own,
          { .iface = "", .spread = DDL_SPREAD_ONE },
          { "127.0.0.1" },
          { "127.0.0.1" } },
        { "behind a gate",
          "gate.example",
          { .iface = "127.0.0.1", .advertise = "203.0.113.7" },
          { iface },
          { "203.0.113.7", iface } },
        { "behind another gate",
          "gate.example",
          { .iface = "127.0.0.1", .advertise = "203.0.113.8" },
          { "203.0.113.7" },
          { "203.0.113.7" } },
        { "an own address, and a gate",
          "127.0.0.1",
          { .iface = "127.0.0.1", .advertise = "127.0.0.1" },
          { "127.0.0.1" },
          { "127.0.0.1" } },
    };
    (void)state;
    assert_int_equal(gethostname(own, sizeof own), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddl_address addresses[DDL_NETWORK_MASTER_MAX];
        const ddl_deadline deadline = ddl_deadline_in_ms(5000);
        int count = 0;
        assert_int_equal(ddl_master_addresses_to_listen(&cases[i].network, cases[i].host, 29500, deadline,
                                                        addresses, &count, NULL),
                         DDL_OK);
        check_addresses(cases[i].what, cases[i].listens, addresses, count);
        assert_int_equal(ddl_master_addresses_to_call(&cases[i].network, cases[i].host, 29500, deadline,
                                                      addresses, &count, NULL),
                         DDL_OK);
        check_addresses(cases[i].what, cases[i].calls, addresses, count);
    }
}

/* Where nothing says how many hosts there are: rank 0 stays where the name says, who calls tries both. */
static void a_name_for_loopback_is_left_where_nothing_is_said(void **state)
{
    char text[DDL_ADDRESS_HOST_TEXT];
    const char *listens[2] = { "127.0.1.1" }, *calls[2] = { "127.0.1.1", text };
    ddl_address addresses[DDL_NETWORK_MASTER_MAX], chosen;
    const ddl_deadline deadline = ddl_deadline_in_ms(5000);
    int count = 0;
    (void)state;
    assert_int_equal(ddl_interface_choose(NULL, NULL, &chosen, NULL), DDL_OK);
    ddl_address_host(&chosen, text);
    assert_int_equal(ddl_master_addresses_to_listen(&ddl_network_unsaid, "loop.example", 29500, deadline,
                                                    addresses, &count, NULL),
                     DDL_OK);
    check_addresses("listens", listens, addresses, count);
    assert_int_equal(ddl_master_addresses_to_call(&ddl_network_unsaid, "loop.example", 29500, deadline,
                                                  addresses, &count, NULL),
                     DDL_OK);
    check_addresses("calls", calls, addresses, count);
}

/* It may be that of a host which is just being started; but not for rank 0, which is on it. */
static void an_unknown_name_is_tried_again_by_who_calls(void **state)
{
    ddl_address addresses[DDL_NETWORK_MASTER_MAX];
    ddl_error error;
    int count = 0;
    (void)state;
    looked_up_soon = false;
    assert_int_equal(ddl_master_addresses_to_listen(&ddl_network_unsaid, "nobody.example", 29500,
                                                    ddl_deadline_in_ms(5000), addresses, &count, &error),
                     DDL_ENETWORK);
    assert_false(looked_up_soon);
    assert_non_null(strstr(error.text, "nobody.example"));
    assert_int_equal(ddl_master_addresses_to_call(&ddl_network_unsaid, "nobody.example", 29500,
                                                  ddl_deadline_in_ms(5000), addresses, &count, &error),
                     DDL_ENETWORK);
    assert_true(looked_up_soon);
    assert_non_null(strstr(error.text, "nobody.example"));
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_read_or_refused),
        cmocka_unit_test(what_is_told_is_what_others_can_call),
        cmocka_unit_test(who_is_behind_the_same_gate_calls_inside_it),
        cmocka_unit_test(an_address_may_be_written_in_short),
#ifdef DDL_TEST_NAMES
        cmocka_unit_test(rank_0_is_met_where_other_hosts_can_call_it),
        cmocka_unit_test(a_name_for_loopback_is_left_where_nothing_is_said),
        cmocka_unit_test(an_unknown_name_is_tried_again_by_who_calls),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
