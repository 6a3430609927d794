/* test_vigil.c - what counts as a sign, when there was none for long enough, and what does not count. */
#include "protocol/vigil.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

static const ddl_vigil_limits limits = { .unresponsive_ns = 30000 * MS, .unreachable_ns = 15000 * MS };

/* Look every 250 ms until there is a verdict, or for a minute. Returns the ms that it took. */
static int look_until(ddl_vigil *vigil, ddl_signs *signs, void (*change)(ddl_signs *signs, int ms),
                      ddl_vigil_verdict *verdict)
{
    bool ping;
    int ms = 0;
    do {
        change(signs, ms);
        *verdict = ddl_vigil_look(vigil, signs, &limits, (1000000 + ms) * MS, &ping);
        ms += 250;
    } while (*verdict == DDL_VIGIL_ALIVE && ms < 60000);
    return ms - 250;
}

static void hears_nothing(ddl_signs *signs, int ms)
{
    (void)signs;
    (void)ms;
}

/* A ping each second, which the host acknowledges. */
static void pings_are_acknowledged(ddl_signs *signs, int ms)
{
    signs->taken += ms % 1000 == 0 ? 64 : 0;
}

/* Sent again after 200 ms, and then after twice as long each time. */
static void go_unacknowledged(ddl_signs *signs, int for_ms)
{
    signs->awaits_acks = for_ms > 0;
    signs->tries = 0;
    for (int at = 200; at <= for_ms; at = 2 * at + 200)
        signs->tries++;
}

static void nothing_is_acknowledged(ddl_signs *signs, int ms)
{
    go_unacknowledged(signs, ms - 500);
}

/* It is not tried again for as long as it was gone. */
static void the_network_was_gone_for_a_while(ddl_signs *signs, int ms)
{
    if (ms < 7000)
        go_unacknowledged(signs, ms);
    signs->heard += ms > 25800 ? 1 : 0;
}

static void the_host_acknowledges_what_it_does_not_take(ddl_signs *signs, int ms)
{
    signs->awaits_acks = true;
    signs->answers += ms % 1000 == 0 ? 1 : 0;
    signs->ack_ns = ms % 1000 * MS;
    signs->tries = 5;
}

/* Each second it sends again what it has not seen acknowledged. */
static void who_hears_nothing_sends_again(ddl_signs *signs, int ms)
{
    nothing_is_acknowledged(signs, ms);
    signs->ack_ns = ms % 1000 * MS;
}

static void who_hears_nothing_probes(ddl_signs *signs, int ms)
{
    nothing_is_acknowledged(signs, ms);
    signs->answers += ms % 1000 == 0 ? 1 : 0;
    signs->ack_ns = (20000 + ms) * MS;
}

/* It pings, as it waits too: large packets do not arrive there. */
static void who_misses_what_is_large_is_heard(ddl_signs *signs, int ms)
{
    nothing_is_acknowledged(signs, ms);
    signs->heard += ms % 3750 == 0 ? 64 : 0;
    signs->ack_ns = ms % 3750 * MS;
}

static void the_network_goes_then(ddl_signs *signs, int ms)
{
    signs->heard += ms < 10000 ? 1 : 0;
    go_unacknowledged(signs, ms - 10000);
}

static void a_slow_link_carries(ddl_signs *signs, int ms)
{
    signs->taken += 1500;
    signs->awaits_acks = ms > 0;
}

static void a_reader_reads(ddl_signs *signs, int ms)
{
    signs->taken += ms % 5000 == 0 ? 8 : 0;
}

static void it_answers(ddl_signs *signs, int ms)
{
    signs->heard += ms % 1000 == 0 ? 64 : 0;
    signs->awaits_acks = ms % 1000 == 500;
}

static void each_kind_of_silence_has_its_verdict(void **state)
{
    static const struct {
        void (*change)(ddl_signs *signs, int ms);
        bool has_acks;
        ddl_vigil_verdict verdict;
        int ms;
    } cases[] = {
        { hears_nothing, false, DDL_VIGIL_UNRESPONSIVE, 30000 },
        { pings_are_acknowledged, true, DDL_VIGIL_UNRESPONSIVE, 30000 },
        { nothing_is_acknowledged, true, DDL_VIGIL_UNREACHABLE, 15500 },
        { the_network_was_gone_for_a_while, true, DDL_VIGIL_ALIVE, 59750 },
        { the_host_acknowledges_what_it_does_not_take, true, DDL_VIGIL_UNRESPONSIVE, 30000 },
        { who_hears_nothing_sends_again, true, DDL_VIGIL_UNREACHABLE, 15500 },
        { who_hears_nothing_probes, true, DDL_VIGIL_UNREACHABLE, 15500 },
        { who_misses_what_is_large_is_heard, true, DDL_VIGIL_UNREACHABLE, 15500 },
        { the_network_goes_then, true, DDL_VIGIL_UNREACHABLE, 25000 },
        { a_slow_link_carries, true, DDL_VIGIL_ALIVE, 59750 },
        { a_reader_reads, false, DDL_VIGIL_ALIVE, 59750 },
        { it_answers, true, DDL_VIGIL_ALIVE, 59750 },
        { it_answers, false, DDL_VIGIL_ALIVE, 59750 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ddl_vigil vigil = { 0 };
        ddl_signs signs = { .has_acks = cases[i].has_acks };
        ddl_vigil_verdict verdict;
        assert_int_equal(look_until(&vigil, &signs, cases[i].change, &verdict), cases[i].ms);
        assert_int_equal(verdict, cases[i].verdict);
    }
}

static void there_are_several_pings_in_the_shorter_limit(void **state)
{
    ddl_vigil vigil = { 0 };
    const ddl_signs signs = { 0 };
    int npings = 0;
    bool ping;
    (void)state;
    for (int ms = 0; ms < 15000; ms += 125) {
        ddl_vigil_look(&vigil, &signs, &limits, (1 + ms) * MS, &ping);
        npings += ping;
    }
    assert_int_equal(npings, 7); /* none before there was silence */
}

/* Who got no CPU, or did not wait for it meanwhile, has no right to say how long it was silent. */
static void time_in_which_nobody_looked_does_not_count(void **state)
{
    ddl_vigil vigil = { 0 };
    const ddl_signs signs = { 0 };
    bool ping;
    int64_t now_ns = 1000 * MS;
    (void)state;
    for (int i = 0; i < 100; i++) { /* every two seconds and more: it begins anew */
        assert_int_equal(ddl_vigil_look(&vigil, &signs, &limits, now_ns, &ping), DDL_VIGIL_ALIVE);
        assert_false(ping);
        now_ns += 2500 * MS;
    }
    vigil = (ddl_vigil){ 0 };
    for (int i = 0; i < 60; i++) { /* every two: a quarter of it counts */
        assert_int_equal(ddl_vigil_look(&vigil, &signs, &limits, now_ns, &ping), DDL_VIGIL_ALIVE);
        now_ns += 2000 * MS;
    }
    assert_int_equal(ddl_vigil_look(&vigil, &signs, &limits, now_ns, &ping), DDL_VIGIL_UNRESPONSIVE);
}

/* Another operation that waits for it, later, learns at once what is known; it may be waking up, though. */
static void who_was_found_silent_is_so_until_there_is_a_sign(void **state)
{
    ddl_vigil vigil = { 0 };
    ddl_signs signs = { 0 };
    ddl_vigil_verdict verdict;
    bool ping;
    (void)state;
    (void)look_until(&vigil, &signs, hears_nothing, &verdict);
    assert_int_equal(verdict, DDL_VIGIL_UNRESPONSIVE);
    assert_int_equal(ddl_vigil_look(&vigil, &signs, &limits, 2000000 * MS, &ping), DDL_VIGIL_UNRESPONSIVE);
    signs.heard++;
    assert_int_equal(ddl_vigil_look(&vigil, &signs, &limits, 3000000 * MS, &ping), DDL_VIGIL_ALIVE);
    assert_int_equal(ddl_vigil_look(&vigil, &signs, &limits, 4000000 * MS, &ping), DDL_VIGIL_ALIVE);
}

/* It may have ended since, and what comes to it then would have its last data lost. */
static void who_is_sending_is_not_pinged(void **state)
{
    ddl_vigil vigil = { 0 };
    ddl_signs signs = { .has_acks = true };
    bool ping;
    (void)state;
    for (int ms = 0; ms < 60000; ms += 250) {
        signs.heard += ms % 2000 == 0 ? 1500 : 0;
        ddl_vigil_look(&vigil, &signs, &limits, (1000000 + ms) * MS, &ping);
        assert_false(ping);
    }
}

/* It was cut off long ago, but something came from it until now: TCP tries seldom by then. */
static void who_is_hardly_tried_any_more_is_not_waited_for(void **state)
{
    const ddl_vigil_limits short_one = { .unresponsive_ns = 60000 * MS, .unreachable_ns = 4000 * MS };
    ddl_vigil vigil = { 0 };
    ddl_signs signs = { .has_acks = true, .awaits_acks = true, .tries = 9 };
    ddl_vigil_verdict verdict = DDL_VIGIL_ALIVE;
    bool ping;
    int ms = 0;
    (void)state;
    for (; verdict == DDL_VIGIL_ALIVE && ms < 30000; ms += 250)
        verdict = ddl_vigil_look(&vigil, &signs, &short_one, (1000000 + ms) * MS, &ping);
    assert_int_equal(verdict, DDL_VIGIL_UNREACHABLE);
    assert_in_range(ms, 8000, 9000);
}

/* However long the limit is, what it is told is not a sign that a rank gives, though its host takes it. */
static void pings_that_are_taken_are_no_signs(void **state)
{
    const ddl_vigil_limits long_ones = { .unresponsive_ns = 3600 * 1000 * MS, .unreachable_ns = 1000 * MS };
    ddl_vigil vigil = { 0 };
    ddl_signs signs = { .has_acks = true };
    ddl_vigil_verdict verdict = DDL_VIGIL_ALIVE;
    int64_t ms = 0;
    bool ping;
    (void)state;
    for (; ms < 5000 * 1000 && verdict == DDL_VIGIL_ALIVE; ms += 250) {
        verdict = ddl_vigil_look(&vigil, &signs, &long_ones, (1000000 + ms) * MS, &ping);
        signs.said += ping ? 64 : 0;
        signs.taken += ping ? 90 : 0; /* with encryption */
    }
    assert_int_equal(verdict, DDL_VIGIL_UNRESPONSIVE);
    assert_int_equal(ms, 3600 * 1000 + 250);
}

/* Where the limit of processes is the shorter one, a host that is gone is not said to answer. */
static void the_limits_may_be_the_other_way_round(void **state)
{
    const ddl_vigil_limits short_ones = { .unresponsive_ns = 5000 * MS, .unreachable_ns = 15000 * MS };
    ddl_vigil vigil = { 0 };
    ddl_signs signs = { .has_acks = true };
    ddl_vigil_verdict verdict = DDL_VIGIL_ALIVE;
    bool ping;
    (void)state;
    for (int ms = 0; ms < 10000 && verdict == DDL_VIGIL_ALIVE; ms += 250) {
        go_unacknowledged(&signs, ms - 1000);
        verdict = ddl_vigil_look(&vigil, &signs, &short_ones, (1000000 + ms) * MS, &ping);
    }
    assert_int_equal(verdict, DDL_VIGIL_UNREACHABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_silence_has_its_verdict),
        cmocka_unit_test(there_are_several_pings_in_the_shorter_limit),
        cmocka_unit_test(who_is_sending_is_not_pinged),
        cmocka_unit_test(pings_that_are_taken_are_no_signs),
        cmocka_unit_test(time_in_which_nobody_looked_does_not_count),
        cmocka_unit_test(who_is_hardly_tried_any_more_is_not_waited_for),
        cmocka_unit_test(who_was_found_silent_is_so_until_there_is_a_sign),
        cmocka_unit_test(the_limits_may_be_the_other_way_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
