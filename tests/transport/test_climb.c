/* test_climb.c - how many connections are used over networks of several kinds. */
#include "base/clock.h"
#include "transport/climb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { LOOK_MS = 20, MEGABYTE = 1000 * 1000, MOST = 8 };

/* A network that lets each connection do so much, and all together no more than the link does. */
typedef struct network {
    const char *name;
    uint64_t each, link; /* MB/s; each 0: no limit */
    int others;          /* that fill the link too, over one connection each */
    int ends;            /* with so many in use */
} network;

typedef struct sender {
    ddl_climb climb;
    ddl_climb_look look;
    int64_t now_ns;
    int nchanges;
} sender;

static void begin(sender *s)
{
    *s = (sender){ .look.has_more = true };
    ddl_climb_begin(&s->climb, MOST);
}

static uint64_t rate_of(const network *n, int count)
{
    const uint64_t share = n->link * (uint64_t)count / (uint64_t)(count + n->others);
    const uint64_t allowed = n->each * (uint64_t)count;
    return n->each > 0 && allowed < share ? allowed : share;
}

/* One look later; busy: of 20 ms. */
static void pass(sender *s, uint64_t megabytes_per_s, int busy_ms)
{
    s->now_ns += LOOK_MS * DDL_NS_PER_MS;
    if (ddl_climb_rests(&s->climb, s->now_ns))
        return;
    s->look.busy_us += (uint64_t)busy_ms * 1000;
    s->look.acked_bytes += megabytes_per_s * MEGABYTE * (uint64_t)busy_ms / 1000;
    s->nchanges += ddl_climb_see(&s->climb, &s->look, s->now_ns);
}

static void send_for(sender *s, const network *n, int looks)
{
    for (int i = 0; i < looks; i++)
        pass(s, rate_of(n, s->climb.count), LOOK_MS);
}

static void as_many_are_used_as_help(void **state)
{
    (void)state;
    static const network networks[] = {
        { "each may do a fifth", 25, 125, 0, 4 }, /* eight would not be twice as fast */
        { "each may do an eighth", 25, 200, 0, 8 },
        { "each may do less than all that there are", 10, 1000, 0, MOST },
        { "each may do half", 60, 120, 0, 2 },
        { "each may do more than half", 90, 120, 0, 1 },
        { "the link is the limit", 0, 125, 0, 1 },
        { "the link is the limit, and shared", 0, 125, 1, 1 },
        { "the link is shared with two others", 0, 125, 2, 2 }, /* at their expense */
        { "nothing goes", 0, 0, 0, 1 },
    };
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        sender s;
        begin(&s);
        while (s.now_ns < 2000 * DDL_NS_PER_MS || s.climb.before > 0)
            send_for(&s, &networks[i], 1);
        if (s.climb.count != networks[i].ends)
            fail_msg("%s: %d connections", networks[i].name, s.climb.count);
    }
}

/* One look of 20 ms does not tell. */
static void single_looks_do_not_decide(void **state)
{
    (void)state;
    sender s;
    begin(&s);
    for (int i = 0; i < 200 || s.climb.before > 0; i++)
        pass(&s, (i % 2 == 0 ? 30 : 10) * (uint64_t)s.climb.count, LOOK_MS);
    assert_int_equal(s.climb.count, MOST);
}

/* Soon once, then ever more seldom; for good it is never given up. */
static void what_was_in_vain_is_tried_again(void **state)
{
    (void)state;
    enum { AN_HOUR = 3600 * 1000 / LOOK_MS };
    static const network narrow = { .link = 100 }, limited = { .each = 25, .link = 1000 };
    sender s;
    begin(&s);
    send_for(&s, &narrow, 3000 / LOOK_MS);
    assert_int_equal(s.nchanges, 4); /* there and back */
    send_for(&s, &narrow, AN_HOUR);
    assert_in_range(s.nchanges, 2 * 50, 2 * 65);
    const int64_t since_ns = s.now_ns;
    while (s.climb.count < MOST)
        send_for(&s, &limited, 1);
    assert_true(s.now_ns - since_ns < (DDL_CLIMB_LAST_PAUSE_MS + 3000) * DDL_NS_PER_MS);
    assert_true(s.climb.pause_ms <= 2 * DDL_CLIMB_FIRST_PAUSE_MS); /* what is new is looked at soon */
}

/* As for another rank, which has found out less. */
static void who_waits_half_of_the_time_finds_out_too(void **state)
{
    (void)state;
    static const network limited = { .each = 25, .link = 1000 };
    sender s;
    begin(&s);
    for (int i = 0; s.climb.count < MOST || s.climb.before > 0; i++) {
        assert_true(i < 10000 / LOOK_MS);
        pass(&s, rate_of(&limited, s.climb.count), i % 2 == 0 ? LOOK_MS : 1);
    }
}

/* A link that does twice as much from the moment on in which two are tried, or half as much while half are.
 */
static void what_a_lucky_moment_has_brought_is_given_up(void **state)
{
    (void)state;
    static const network narrow = { .link = 50 }, wide = { .link = 100 },
                         limited = { .each = 25, .link = 1000 };
    sender s;
    begin(&s);
    while (s.climb.before == 0)
        send_for(&s, &narrow, 1);
    while (s.climb.count == 2)
        send_for(&s, &wide, 1);
    assert_int_equal(s.climb.before, 2); /* it has found two to be twice as fast */
    send_for(&s, &wide, 4000 / LOOK_MS);
    while (s.climb.before > 0)
        send_for(&s, &wide, 1);
    assert_int_equal(s.climb.count, 1);
    begin(&s);
    send_for(&s, &limited, 3000 / LOOK_MS);
    while (s.climb.before == 0)
        send_for(&s, &limited, 1);
    assert_int_equal(s.climb.count, MOST / 2);
    while (s.climb.before > 0)
        pass(&s, 200, LOOK_MS); /* as much over half of them as over all before */
    send_for(&s, &limited, 3000 / LOOK_MS);
    while (s.climb.before > 0)
        send_for(&s, &limited, 1);
    assert_int_equal(s.climb.count, MOST);
}

/* Whatever was being tried. */
static void what_there_is_no_more_is_not_gone_back_to(void **state)
{
    (void)state;
    static const network limited = { .each = 25, .link = 1000 };
    for (int most = 1; most < MOST; most *= 2)
        for (int descends = 0; descends < 2; descends++) {
            sender s;
            begin(&s);
            if (descends)
                send_for(&s, &limited, 2000 / LOOK_MS);
            while (s.climb.before == 0 || s.climb.descends != (descends != 0))
                send_for(&s, &limited, 1);
            ddl_climb_limit(&s.climb, most);
            for (int i = 0; i < 10000 / LOOK_MS; i++) {
                assert_true(s.climb.count <= most);
                assert_true(s.climb.before <= most);
                send_for(&s, &limited, 1);
            }
            while (s.climb.before > 0)
                send_for(&s, &limited, 1);
            assert_int_equal(s.climb.count, most);
        }
}

/* As a link that is not slow any more, which takes at once what it is given. */
static void what_shows_nothing_is_not_kept(void **state)
{
    (void)state;
    static const network narrow = { .link = 25 };
    static const struct {
        int busy_ms, busy_each, pause_ms; /* of a look; one of so many looks; between looks */
        int64_t in_vain_ms;
    } programs[] = { { LOOK_MS / 2, 1, 0, (1 + DDL_CLIMB_IDLE) * LOOK_MS },
                     { LOOK_MS, 4, 0, (1 + DDL_CLIMB_IDLE * 4 / 3) * LOOK_MS },
                     { LOOK_MS, 3, 2000, DDL_CLIMB_TRIAL_MS } };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        sender s;
        begin(&s);
        while (s.climb.before == 0)
            send_for(&s, &narrow, 1);
        assert_int_equal(s.climb.count, 2);
        const int64_t began_ns = s.now_ns;
        for (int k = 1; s.climb.count == 2; k++) {
            s.now_ns += programs[i].pause_ms * DDL_NS_PER_MS;
            pass(&s, 1000, k % programs[i].busy_each == 0 ? programs[i].busy_ms : 1);
        }
        const int64_t limit_ms = programs[i].in_vain_ms, each_ms = programs[i].pause_ms + LOOK_MS;
        assert_in_range((s.now_ns - began_ns) / DDL_NS_PER_MS, limit_ms - each_ms, limit_ms + each_ms);
        assert_int_equal(s.climb.count, 1);
        assert_int_equal(s.climb.before, 0);
    }
}

/* What a program with pauses sends tells nothing of the network, and what it takes at once needs no more. */
static void more_are_tried_only_of_what_is_busy_and_keeps_others_waiting(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int busy_ms, waits_each; /* of a look; one of so many looks sees something wait */
    } programs[] = {
        { "sends now and then", 1, 1 },    { "pauses for a half", LOOK_MS / 2, 1 },
        { "pauses", LOOK_MS * 7 / 10, 1 }, { "nothing waits", LOOK_MS, 0 },
        { "something waits", LOOK_MS, 2 },
    };
    for (size_t k = 0; k < sizeof programs / sizeof *programs; k++) {
        sender s;
        begin(&s);
        for (int i = 0; i < 2000; i++) {
            s.look.has_more = programs[k].waits_each > 0 && i % programs[k].waits_each == 0;
            pass(&s, 25, programs[k].busy_ms);
        }
        if (s.nchanges != 0)
            fail_msg("%s: %d connections", programs[k].name, s.climb.count);
    }
}

/* It sends as much over one connection, which is always busy, as over more, which are less so. */
static void who_sends_no_faster_over_more_goes_back(void **state)
{
    (void)state;
    enum { BUSY_MS = LOOK_MS * 3 / 4 };
    sender s;
    begin(&s);
    for (int i = 0; i < 2000 || s.climb.before > 0; i++)
        if (s.climb.count == 1)
            pass(&s, 30, LOOK_MS);
        else
            pass(&s, 30 * LOOK_MS / BUSY_MS, BUSY_MS);
    assert_int_equal(s.climb.count, 1);
}

/* The sums of other connections are no continuation, and new ones begin slowly. */
static void what_went_before_a_change_does_not_count(void **state)
{
    (void)state;
    sender s;
    begin(&s);
    while (s.climb.count < MOST || s.climb.before > 0) {
        const int before = s.climb.count, seen = s.climb.nseen;
        assert_true(s.now_ns < 4000 * DDL_NS_PER_MS);
        pass(&s, seen < DDL_CLIMB_SETTLE ? 1 : 25 * (uint64_t)before, LOOK_MS);
        if (s.climb.count != before)
            s.look = (ddl_climb_look){ 1000000000000, 5, true };
    }
    assert_int_equal(s.climb.count, MOST);
    assert_true(s.climb.base == (uint64_t)25 * MOST * MEGABYTE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_are_used_as_help),
        cmocka_unit_test(single_looks_do_not_decide),
        cmocka_unit_test(what_was_in_vain_is_tried_again),
        cmocka_unit_test(who_waits_half_of_the_time_finds_out_too),
        cmocka_unit_test(more_are_tried_only_of_what_is_busy_and_keeps_others_waiting),
        cmocka_unit_test(who_sends_no_faster_over_more_goes_back),
        cmocka_unit_test(what_went_before_a_change_does_not_count),
        cmocka_unit_test(what_a_lucky_moment_has_brought_is_given_up),
        cmocka_unit_test(what_there_is_no_more_is_not_gone_back_to),
        cmocka_unit_test(what_shows_nothing_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
