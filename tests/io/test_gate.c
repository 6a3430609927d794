/* test_gate.c - what ends a sleep and what does not. Any descriptor that can be polled stands for the loop.
 */
#include "io/gate.h"

#include "../support/asleep.h"
#include "base/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 5000 };

struct sleeper {
    ddl_gate *gate;
    pthread_t thread;
    atomic_long number; /* of the thread; 0: it has not begun */
    atomic_int wakes;
    atomic_bool stop;
};

static void *sleep_on(void *arg)
{
    struct sleeper *sleeper = arg;
    atomic_store(&sleeper->number, asleep_number());
    while (!atomic_load(&sleeper->stop)) {
        ddl_gate_wait(sleeper->gate, 5000);
        atomic_fetch_add(&sleeper->wakes, 1);
    }
    return NULL;
}

/* How often it has woken up. Who has been woken does not sleep, even if it has not run yet. */
static int wakes_until_asleep(struct sleeper *sleeper)
{
    const ddl_deadline late = ddl_deadline_in_ms(PATIENCE_MS);
    while (atomic_load(&sleeper->number) == 0 || !asleep_is(atomic_load(&sleeper->number)))
        assert_false(ddl_deadline_passed(late));
    return atomic_load(&sleeper->wakes);
}

static void start(struct sleeper *sleeper, int loop_fd, bool one_shot)
{
    atomic_init(&sleeper->number, 0);
    atomic_init(&sleeper->wakes, 0);
    atomic_init(&sleeper->stop, false);
    assert_int_equal(ddl_gate_create(loop_fd, one_shot, &sleeper->gate, NULL), DDL_OK);
    assert_int_equal(pthread_create(&sleeper->thread, NULL, sleep_on, sleeper), 0);
    assert_int_equal(wakes_until_asleep(sleeper), 0);
}

static void finish(struct sleeper *sleeper)
{
    atomic_store(&sleeper->stop, true);
    ddl_gate_ring(sleeper->gate);
    pthread_join(sleeper->thread, NULL);
    ddl_gate_destroy(sleeper->gate);
}

static bool wakes_within_ms(struct sleeper *sleeper, int wakes, int ms)
{
    for (int i = 0; i < ms && atomic_load(&sleeper->wakes) < wakes; i++)
        usleep(1000);
    return atomic_load(&sleeper->wakes) >= wakes;
}

static void a_ring_ends_one_sleep(void **state)
{
    struct sleeper sleeper;
    int loop[2];
    (void)state;
    assert_int_equal(pipe(loop), 0);
    start(&sleeper, loop[0], true);
    ddl_gate_ring(sleeper.gate);
    assert_true(wakes_within_ms(&sleeper, 1, 2000));
    assert_int_equal(wakes_until_asleep(&sleeper), 1);
    finish(&sleeper);
    close(loop[0]), close(loop[1]);
}

static void a_ring_before_the_sleep_ends_it(void **state)
{
    ddl_gate *gate;
    int loop[2];
    (void)state;
    assert_int_equal(pipe(loop), 0);
    assert_int_equal(ddl_gate_create(loop[0], false, &gate, NULL), DDL_OK);
    ddl_gate_ring(gate);
    int64_t before_ns = ddl_now_ns();
    ddl_gate_wait(gate, 5000);
    assert_true(ddl_now_ns() - before_ns < 2 * DDL_NS_PER_S);
    before_ns = ddl_now_ns();
    ddl_gate_wait(gate, 30);
    assert_true(ddl_now_ns() - before_ns >= 29 * DDL_NS_PER_MS);
    ddl_gate_destroy(gate);
    close(loop[0]), close(loop[1]);
}

/* Off at first, as one-shot; on under the sleeper; and off again by what woke it. */
static void events_of_the_loop_wake_who_watches(void **state)
{
    struct sleeper sleeper;
    int loop[2];
    (void)state;
    assert_int_equal(pipe(loop), 0);
    start(&sleeper, loop[0], true);
    assert_int_equal(write(loop[1], "", 1), 1);
    assert_int_equal(wakes_until_asleep(&sleeper), 0);
    ddl_gate_watch(sleeper.gate, true);
    assert_true(wakes_within_ms(&sleeper, 1, 2000));
    const int before = wakes_until_asleep(&sleeper);
    assert_true(before <= 2); /* it may have had to look again */
    ddl_gate_watch(sleeper.gate, true);
    assert_true(wakes_within_ms(&sleeper, before + 1, 2000));
    finish(&sleeper);
    close(loop[0]), close(loop[1]);
}

/* What drives the loop switches a sleeper's watching off and on all the time. */
static void switching_wakes_nobody(void **state)
{
    struct sleeper sleeper;
    int loop[2];
    (void)state;
    assert_int_equal(pipe(loop), 0);
    start(&sleeper, loop[0], true);
    for (int i = 0; i < 200; i++) {
        ddl_gate_watch(sleeper.gate, true);
        usleep(500);
        ddl_gate_watch(sleeper.gate, false);
    }
    assert_true(atomic_load(&sleeper.wakes) <= 2);
    finish(&sleeper);
    close(loop[0]), close(loop[1]);
}

/* Once, after its time and not before; what is set anew forgets what was. */
static void an_alarm_ends_one_sleep_in_its_time(void **state)
{
    ddl_gate *gate;
    int loop[2];
    (void)state;
    assert_int_equal(pipe(loop), 0);
    assert_int_equal(ddl_gate_create(loop[0], true, &gate, NULL), DDL_OK);
    if (!ddl_gate_set_alarm(gate, 20 * DDL_NS_PER_MS)) { /* there are none in the portable build */
        ddl_gate_destroy(gate);
        close(loop[0]), close(loop[1]);
        skip();
    }
    const int64_t start_ns = ddl_now_ns();
    assert_int_equal(ddl_gate_wait(gate, 5000), DDL_GATE_ALARM);
    assert_in_range(ddl_now_ns() - start_ns, 20 * DDL_NS_PER_MS, 2 * DDL_NS_PER_S);
    assert_int_equal(ddl_gate_wait(gate, 30), DDL_GATE_TIME);

    assert_true(ddl_gate_set_alarm(gate, 5 * DDL_NS_PER_MS));
    assert_true(ddl_gate_rest(gate, 900 * DDL_NS_PER_MS));
    assert_false(ddl_gate_rest(gate, 10 * DDL_NS_PER_MS));

    assert_true(ddl_gate_set_alarm(gate, 5 * DDL_NS_PER_MS));
    assert_true(ddl_gate_set_alarm(gate, 900 * DDL_NS_PER_MS));
    assert_int_equal(ddl_gate_wait(gate, 30), DDL_GATE_TIME);

    assert_true(ddl_gate_set_alarm(gate, 1000));
    usleep(1000);
    ddl_gate_ring(gate);
    assert_int_equal(ddl_gate_wait(gate, 5000), DDL_GATE_EVENT);
    assert_int_equal(ddl_gate_wait(gate, 5000), DDL_GATE_ALARM); /* it was not lost beside the other */
    ddl_gate_destroy(gate);
    close(loop[0]), close(loop[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_ends_one_sleep),
        cmocka_unit_test(a_ring_before_the_sleep_ends_it),
        cmocka_unit_test(events_of_the_loop_wake_who_watches),
        cmocka_unit_test(switching_wakes_nobody),
        cmocka_unit_test(an_alarm_ends_one_sleep_in_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
