/*
 * meeting.h - two threads that meet in the few nanoseconds that matter, again and again: rounds that both
 * begin at about the same time, each on a processor of its own, with pauses by which one steers to where the
 * other is.
 *
 * A teller publishes something in each round, and a sleeper says that it falls asleep and looks once more.
 * Nobody really sleeps: both say what they would do, so a lost wake-up is seen in its round, which takes a
 * microsecond.
 */
#ifndef DDL_TESTS_TRANSPORT_MEETING_H
#define DDL_TESTS_TRANSPORT_MEETING_H

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

typedef struct meeting meeting;
struct meeting {
    void (*prepare)(meeting *m, uint64_t round); /* sleeper, before the round; NULL: nothing */
    bool (*tell)(meeting *m, uint64_t round);    /* teller: whether it rings */
    bool (*sees)(meeting *m,
                 uint64_t round); /* sleeper, having said that it sleeps: whether it stays awake */
    void (*wake_up)(meeting *m, uint64_t round); /* sleeper, after the round */
    void *arg;
    /* The meeting's. */
    ddl_deadline end;
    _Atomic(uint64_t) last; /* round; the sleeper says so as it begins that */
    _Alignas(128) _Atomic(uint64_t)
        sleeper_at; /* twice the round that each is ready for, and one more at its end */
    _Alignas(128) _Atomic(uint64_t) teller_at;
    _Alignas(128) bool rang; /* by the teller, before it has ended */
    uint64_t lost, slept;    /* by the sleeper */
};

static inline void meeting_await(_Atomic(uint64_t) *other, uint64_t place)
{
    for (int looks = 1; atomic_load_explicit(other, memory_order_acquire) < place; looks++)
        if (looks % 1024 == 0)
            sched_yield();
}

/* Go on when both are there and after so many pauses, more or less. */
static inline void meeting_begin(_Atomic(uint64_t) *own, _Atomic(uint64_t) *other, uint64_t round, int pauses,
                                 unsigned *seed)
{
    enum { JITTER = 16 };
    atomic_store_explicit(own, 2 * round, memory_order_release);
    meeting_await(other, 2 * round);
    *seed = *seed * 1103515245u + 12345u;
    for (volatile int left = pauses + (int)(*seed >> 16) % JITTER; left > 0; left--)
        ;
}

static inline void meeting_end(_Atomic(uint64_t) *own, _Atomic(uint64_t) *other, uint64_t round)
{
    atomic_store_explicit(own, 2 * round + 1, memory_order_release);
    meeting_await(other, 2 * round + 1);
}

enum { MEETING_PAUSES = 32, MEETING_MOST_PAUSES = 1000 };

static inline void *meeting_teller(void *arg)
{
    meeting *m = arg;
    unsigned seed = 1;
    for (uint64_t round = 1; round <= m->last; round++) {
        meeting_begin(&m->teller_at, &m->sleeper_at, round, MEETING_PAUSES, &seed);
        m->rang = m->tell(m, round);
        meeting_end(&m->teller_at, &m->sleeper_at, round);
    }
    return NULL;
}

static inline void *meeting_sleeper(void *arg)
{
    meeting *m = arg;
    unsigned seed = 2;
    int pauses = MEETING_PAUSES;
    for (uint64_t round = 1; round <= m->last; round++) {
        if (m->lost > 0 || (round % 1024 == 0 && ddl_deadline_passed(m->end)))
            m->last = round;
        if (m->prepare != NULL)
            m->prepare(m, round);
        meeting_begin(&m->sleeper_at, &m->teller_at, round, pauses, &seed);
        const bool seen = m->sees(m, round);
        m->slept += seen ? 0 : 1;
        /* Stay where it is as likely as not that it sleeps: there the two meet. */
        pauses += seen && pauses > 0 ? -1 : !seen && pauses < MEETING_MOST_PAUSES ? 1 : 0;
        meeting_end(&m->sleeper_at, &m->teller_at, round);
        m->lost += !seen && !m->rang ? 1 : 0;
        m->wake_up(m, round);
    }
    return NULL;
}

/* A processor for each thread, of those that there are for this process: on one they would take turns and
 * never meet. False: there is but one. Linux; elsewhere the system spreads threads. */
static inline bool meeting_pin(pthread_t thread, int which)
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

/* So long, or until a wake-up is lost; true if they had a processor each. */
static inline bool meeting_hold(meeting *m, int64_t seconds)
{
    pthread_t sleeper, teller;
    m->last = UINT64_MAX;
    m->end = ddl_deadline_in_ms(seconds * 1000);
    assert_int_equal(pthread_create(&teller, NULL, meeting_teller, m), 0);
    assert_int_equal(pthread_create(&sleeper, NULL, meeting_sleeper, m), 0);
    const bool apart = meeting_pin(sleeper, 0) && meeting_pin(teller, 1);
    pthread_join(sleeper, NULL);
    pthread_join(teller, NULL);
    return apart;
}

static inline void meeting_check(const meeting *m, bool apart)
{
    if (m->lost > 0)
        fail_msg("in round %llu somebody sleeps and would not be woken", (unsigned long long)m->last);
    if (!apart)
        skip(); /* one processor: nothing can be lost */
    assert_true(m->slept > 0);
}

#endif
