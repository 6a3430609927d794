/*
 * test_doze.c - falling asleep and waking: two threads meet in the few nanoseconds that matter, again and
 * again, and in no round one of them sleeps for whom the other does not ring.
 *
 * Nobody really sleeps here: both say what they would do, so a lost wake-up is seen in the round in which it
 * happens, and a round takes less than a microsecond. How many rounds there are in the time depends on what
 * else the machine does.
 */
#if defined(__linux__)
#define _GNU_SOURCE /* for processors of threads */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "transport/doze.h"
#include "transport/lane.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 256, PAUSES = 32, MOST_PAUSES = 1000, JITTER = 16 };

static int64_t seconds = 2;

/* What two ranks share, on lines of their own. */
typedef struct meeting {
    ddl_lane_end out, in;
    _Atomic(uint64_t) last; /* round; the sleeper says so as it begins that */
    bool by_lane; /* the sleeper writes to a lane and waits for room; else it waits for what is published */
    _Alignas(128) ddl_doze doze;
    _Alignas(128) _Atomic(uint64_t) published;
    _Alignas(128) _Atomic(uint64_t) sleeper_at; /* the round that each is ready for, or has ended */
    _Alignas(128) _Atomic(uint64_t) teller_at;
    _Alignas(128) bool rang; /* by the teller, before it has ended */
    uint64_t lost, slept;    /* by the sleeper */
} meeting;

/* Each thread has a processor of its own, of those that there are for this process: on one they would take
 * turns and never meet. False: there is but one. */
static bool stay_apart(pthread_t thread, int which)
{
#if defined(__linux__)
    cpu_set_t all, own;
    CPU_ZERO(&own);
    if (sched_getaffinity(getpid(), sizeof all, &all) != 0 || CPU_COUNT(&all) < 2)
        return false;
    int cpu = -1;
    for (int found = -1; found < which; found += CPU_ISSET(cpu, &all) ? 1 : 0)
        cpu++;
    CPU_SET(cpu, &own);
    return pthread_setaffinity_np(thread, sizeof own, &own) == 0;
#else
    (void)thread;
    return which >= 0;
#endif
}

static void await(_Atomic(uint64_t) *other, uint64_t place)
{
    for (int looks = 1; atomic_load_explicit(other, memory_order_acquire) < place; looks++)
        if (looks % 1024 == 0)
            sched_yield();
}

/* Both begin a round at about the same time, and go on after so many pauses, more or less. */
static void begin_round(_Atomic(uint64_t) *own, _Atomic(uint64_t) *other, uint64_t round, int pauses,
                        unsigned *seed)
{
    atomic_store_explicit(own, 2 * round, memory_order_release);
    await(other, 2 * round);
    *seed = *seed * 1103515245u + 12345u;
    for (volatile int left = pauses + (int)(*seed >> 16) % JITTER; left > 0; left--)
        ;
}

static void end_round(_Atomic(uint64_t) *own, _Atomic(uint64_t) *other, uint64_t round)
{
    atomic_store_explicit(own, 2 * round + 1, memory_order_release);
    await(other, 2 * round + 1);
}

/* In the teller's cache before it is needed, as with somebody who has just looked. */
static void fetch(_Atomic(uint32_t) *word)
{
    (void)atomic_load_explicit(word, memory_order_relaxed);
}

/* Take all that is in the lane; it was full. */
static bool take_all(meeting *m)
{
    bool wanted = false;
    for (ddl_view view; (view = ddl_lane_peek(&m->in)).bytes > 0;) {
        ddl_lane_take(&m->in, view.bytes);
        wanted = ddl_lane_room_wanted(&m->in) || wanted;
    }
    return wanted;
}

static void *tell(void *arg)
{
    meeting *m = arg;
    unsigned seed = 1;
    for (uint64_t round = 1; round <= m->last; round++) {
        begin_round(&m->teller_at, &m->sleeper_at, round, PAUSES, &seed);
        fetch(&m->doze.is_asleep);
        if (m->by_lane) {
            fetch(&m->in.lane->wants_room);
            m->rang = take_all(m);
            if (m->rang) {
                ddl_doze_told();
                m->rang = ddl_doze_take(&m->doze);
            }
        } else {
            atomic_store_explicit(&m->published, round, memory_order_release);
            ddl_doze_told();
            m->rang = ddl_doze_take(&m->doze);
        }
        end_round(&m->teller_at, &m->sleeper_at, round);
    }
    return NULL;
}

static bool is_there(meeting *m, uint64_t round)
{
    return m->by_lane ? ddl_lane_room(&m->out) > 0
                      : atomic_load_explicit(&m->published, memory_order_acquire) == round;
}

static void *sleep_or_see(void *arg)
{
    meeting *m = arg;
    static const uint8_t bytes[SMALL];
    const struct iovec part = { (void *)(uintptr_t)bytes, SMALL };
    unsigned seed = 2;
    int pauses = PAUSES;
    const ddl_deadline end = ddl_deadline_in_ms(seconds * 1000);
    for (uint64_t round = 1; round <= m->last; round++) {
        if (m->lost > 0 || (round % 1024 == 0 && ddl_deadline_passed(end)))
            m->last = round;
        if (m->by_lane)
            (void)ddl_lane_write(&m->out, &part, 1); /* full */
        begin_round(&m->sleeper_at, &m->teller_at, round, pauses, &seed);
        ddl_doze_begin(&m->doze);
        if (m->by_lane)
            ddl_lane_want_room(&m->out);
        ddl_doze_look_again();
        const bool seen = is_there(m, round);
        m->slept += seen ? 0 : 1;
        /* Stay where it is as likely as not that it sleeps: there the two meet. */
        pauses += seen && pauses > 0 ? -1 : !seen && pauses < MOST_PAUSES ? 1 : 0;
        end_round(&m->sleeper_at, &m->teller_at, round);
        m->lost += !seen && !m->rang ? 1 : 0;
        ddl_doze_end(&m->doze);
        atomic_store_explicit(&m->out.lane->wants_room, 0, memory_order_relaxed); /* if it was not taken */
    }
    return NULL;
}

static void meet(bool by_lane)
{
    static meeting m;
    memset(&m, 0, sizeof m);
    size_t bytes = (ddl_lane_bytes(SMALL) + 127) / 128 * 128;
    void *memory = aligned_alloc(128, bytes);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    ddl_lane_open(&m.out, memory, SMALL);
    ddl_lane_open(&m.in, memory, SMALL);
    m.last = UINT64_MAX;
    m.by_lane = by_lane;
    pthread_t sleeper, teller;
    assert_int_equal(pthread_create(&teller, NULL, tell, &m), 0);
    assert_int_equal(pthread_create(&sleeper, NULL, sleep_or_see, &m), 0);
    const bool apart = stay_apart(sleeper, 0) && stay_apart(teller, 1);
    pthread_join(sleeper, NULL);
    pthread_join(teller, NULL);
    free(memory);
    if (m.lost > 0)
        fail_msg("in round %llu somebody sleeps and would not be woken", (unsigned long long)m.last);
    if (!apart)
        skip(); /* one processor: nothing can be lost */
    assert_true(m.slept > 0);
}

static void who_waits_for_news_is_woken(void **state)
{
    (void)state;
    meet(false);
}

static void who_waits_for_room_is_woken(void **state)
{
    (void)state;
    meet(true);
}

/* test_doze [SECONDS]: for each test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        seconds = strtoll(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_for_news_is_woken),
        cmocka_unit_test(who_waits_for_room_is_woken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
