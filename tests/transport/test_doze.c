/*
 * test_doze.c - falling asleep and waking: in no round of a meeting one sleeps for whom the other does not
 * ring.
 */
#if defined(__linux__)
#define _GNU_SOURCE /* for processors of threads */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "meeting.h"
#include "transport/doze.h"
#include "transport/lane.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL = 256 };

static int64_t seconds = 2;

/* What two ranks share, on lines of their own. */
typedef struct shared {
    ddl_lane_end out, in;
    _Alignas(128) ddl_doze doze;
    _Alignas(128) _Atomic(uint64_t) published;
} shared;

static void wake_up(meeting *m, uint64_t round)
{
    (void)round;
    ddl_doze_end(&((shared *)m->arg)->doze);
}

/* ---- who waits for what is published ---- */

static bool tell_news(meeting *m, uint64_t round)
{
    shared *s = m->arg;
    (void)ddl_doze_sees(&s->doze); /* in the cache, as with somebody who has just looked */
    atomic_store_explicit(&s->published, round, memory_order_release);
    ddl_doze_told();
    return ddl_doze_take(&s->doze);
}

static bool sees_news(meeting *m, uint64_t round)
{
    shared *s = m->arg;
    ddl_doze_begin(&s->doze);
    ddl_doze_look_again();
    return atomic_load_explicit(&s->published, memory_order_acquire) == round;
}

static void who_waits_for_news_is_woken(void **state)
{
    (void)state;
    static shared s;
    meeting m = { .tell = tell_news, .sees = sees_news, .wake_up = wake_up, .arg = &s };
    meeting_check(&m, meeting_hold(&m, seconds));
}

/* ---- a writer who waits for room in a lane ---- */

static void fill_lane(meeting *m, uint64_t round)
{
    (void)round;
    static uint8_t bytes[SMALL];
    shared *s = m->arg;
    const struct iovec part = { bytes, SMALL };
    atomic_store_explicit(&s->out.lane->wants_room, 0, memory_order_relaxed); /* if it was not taken */
    (void)ddl_lane_write(&s->out, &part, 1);
}

static bool make_room(meeting *m, uint64_t round)
{
    (void)round;
    shared *s = m->arg;
    (void)ddl_doze_sees(&s->doze);
    (void)atomic_load_explicit(&s->in.lane->wants_room, memory_order_relaxed);
    bool wanted = false;
    for (ddl_view view; (view = ddl_lane_peek(&s->in)).bytes > 0;) {
        ddl_lane_take(&s->in, view.bytes);
        wanted = ddl_lane_room_wanted(&s->in) || wanted;
    }
    if (!wanted)
        return false;
    ddl_doze_told();
    return ddl_doze_take(&s->doze);
}

static bool sees_room(meeting *m, uint64_t round)
{
    (void)round;
    shared *s = m->arg;
    ddl_doze_begin(&s->doze);
    ddl_lane_want_room(&s->out);
    ddl_doze_look_again();
    return ddl_lane_room(&s->out) > 0;
}

static void who_waits_for_room_is_woken(void **state)
{
    (void)state;
    static shared s;
    size_t bytes = (sizeof(ddl_lane) + SMALL + 127) / 128 * 128;
    void *memory = aligned_alloc(128, bytes);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    ddl_lane_open(&s.out, memory, (uint8_t *)memory + sizeof(ddl_lane), SMALL);
    ddl_lane_open(&s.in, memory, (uint8_t *)memory + sizeof(ddl_lane), SMALL);
    meeting m = { .prepare = fill_lane, .tell = make_room, .sees = sees_room, .wake_up = wake_up, .arg = &s };
    const bool apart = meeting_hold(&m, seconds);
    free(memory);
    meeting_check(&m, apart);
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
