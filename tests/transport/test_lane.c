/*
 * test_lane.c - the ring: what goes in comes out, in any portions; full and empty; positions that lie; and
 * two threads at it at once, asleep whenever there is nothing to do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/size.h"
#include "transport/doze.h"
#include "transport/lane.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 256, LARGE = 128 * 1024 };

#ifdef __SANITIZE_THREAD__
static uint64_t stress_bytes = 64 << 20;
#else
static uint64_t stress_bytes = 256 << 20;
#endif

typedef struct fixture {
    void *memory;
    ddl_lane_end out, in;
} fixture;

static void open_lane(fixture *f, size_t capacity)
{
    size_t bytes = (sizeof(ddl_lane) + capacity + 127) / 128 * 128;
    f->memory = aligned_alloc(128, bytes);
    assert_non_null(f->memory);
    memset(f->memory, 0, bytes);
    ddl_lane_open(&f->out, f->memory, (uint8_t *)f->memory + sizeof(ddl_lane), capacity);
    ddl_lane_open(&f->in, f->memory, (uint8_t *)f->memory + sizeof(ddl_lane), capacity);
}

static void close_lane(fixture *f)
{
    free(f->memory);
}

/* The byte at a place of the endless stream that tests send. */
static uint8_t byte_at(uint64_t place)
{
    return (uint8_t)((place * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

static void fill(uint8_t *bytes, size_t count, uint64_t place)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = byte_at(place + i);
}

/* Take at most limit bytes; returns how many were there. */
static size_t take_checked(ddl_lane_end *in, uint64_t place, size_t limit)
{
    ddl_view view = ddl_lane_peek(in);
    size_t count = ddl_size_min(view.bytes, limit);
    const uint8_t *bytes = view.data;
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != byte_at(place + i))
            fail_msg("byte %llu is %u", (unsigned long long)(place + i), bytes[i]);
    if (count > 0)
        ddl_lane_take(in, count);
    return count;
}

static size_t write_checked(ddl_lane_end *out, uint64_t place, size_t first, size_t second)
{
    static uint8_t bytes[LARGE * 2];
    fill(bytes, first + second, place);
    struct iovec parts[2] = { { bytes, first }, { bytes + first, second } };
    return ddl_lane_write(out, parts, 2);
}

/* ---- one thread ---- */

static void comes_out_as_it_went_in(void **state)
{
    (void)state;
    fixture f;
    open_lane(&f, SMALL);
    uint64_t written = 0, taken = 0;
    /* Every pair of portions, so that the ring's end falls into each place of them. */
    for (size_t first = 0; first < 70; first++)
        for (size_t second = 1; second < 90; second += 7) {
            size_t count = write_checked(&f.out, written, first, second);
            assert_int_equal(count, first + second);
            written += count;
            while (taken < written) {
                size_t got = take_checked(&f.in, taken, 1 + (first + second) / 2);
                assert_true(got > 0);
                taken += got;
            }
            assert_int_equal(ddl_lane_peek(&f.in).bytes, 0);
        }
    close_lane(&f);
}

static void takes_no_more_than_fits(void **state)
{
    (void)state;
    fixture f;
    open_lane(&f, SMALL);
    assert_int_equal(ddl_lane_room(&f.out), SMALL);
    assert_int_equal(write_checked(&f.out, 0, 200, 200), SMALL);
    assert_int_equal(ddl_lane_room(&f.out), 0);
    assert_int_equal(write_checked(&f.out, SMALL, 1, 0), 0);
    assert_int_equal(take_checked(&f.in, 0, 10), 10);
    assert_int_equal(write_checked(&f.out, SMALL, 4, 20), 10);
    size_t taken = 10;
    while (taken < SMALL + 10) {
        size_t got = take_checked(&f.in, taken, SIZE_MAX);
        assert_true(got > 0);
        taken += got;
    }
    assert_int_equal(ddl_lane_room(&f.out), SMALL);
    close_lane(&f);
}

static void room_is_told_once(void **state)
{
    (void)state;
    fixture f;
    open_lane(&f, SMALL);
    assert_int_equal(write_checked(&f.out, 0, SMALL, 0), SMALL);
    assert_int_equal(take_checked(&f.in, 0, 1), 1);
    assert_false(ddl_lane_room_wanted(&f.in));
    assert_int_equal(write_checked(&f.out, SMALL, 1, 0), 1);
    ddl_lane_want_room(&f.out);
    assert_int_equal(take_checked(&f.in, 1, 1), 1);
    assert_true(ddl_lane_room_wanted(&f.in));
    assert_int_equal(take_checked(&f.in, 2, 1), 1);
    assert_false(ddl_lane_room_wanted(&f.in));
    close_lane(&f);
}

/* A peer that writes anything into the memory leads nobody out of it. */
static void positions_that_cannot_be_are_not_believed(void **state)
{
    (void)state;
    static const uint64_t lies[] = { SMALL + 1, SMALL * 2, UINT64_MAX, UINT64_MAX - SMALL,
                                     UINT64_C(1) << 63 };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        fixture f;
        open_lane(&f, SMALL);
        atomic_store(&((ddl_lane *)f.memory)->written, lies[i]);
        assert_int_equal(ddl_lane_peek(&f.in).bytes, 0);
        assert_true(ddl_lane_is_broken(&f.in));
        close_lane(&f);

        open_lane(&f, SMALL);
        assert_int_equal(write_checked(&f.out, 0, 100, 0), 100);
        atomic_store(&((ddl_lane *)f.memory)->taken, 100 + lies[i]);
        size_t room = ddl_lane_room(&f.out);
        assert_true(room <= SMALL);
        assert_true(write_checked(&f.out, 100, 300, 100) <= room);
        close_lane(&f);
    }
}

/* ---- two threads ---- */

/* Each sleeps by the rule that ranks follow (doze.h), at a bell of its own. */
typedef struct sleeper {
    _Alignas(128) ddl_doze doze;
    pthread_mutex_t lock;
    pthread_cond_t rung;
    bool bell;
    int sleeps, late;
} sleeper;

typedef struct stress {
    fixture f;
    sleeper writer, reader;
    unsigned seed;
} stress;

static void nudge(sleeper *other)
{
    ddl_doze_told();
    if (!ddl_doze_take(&other->doze))
        return;
    pthread_mutex_lock(&other->lock);
    other->bell = true;
    pthread_cond_signal(&other->rung);
    pthread_mutex_unlock(&other->lock);
}

static bool there_is_room(ddl_lane_end *end)
{
    return ddl_lane_room(end) > 0;
}

static bool there_is_something(ddl_lane_end *end)
{
    return ddl_lane_peek(end).bytes > 0;
}

static void sleep_until(sleeper *self, ddl_lane_end *end, bool (*ready)(ddl_lane_end *end))
{
    ddl_doze_begin(&self->doze);
    if (ready == there_is_room)
        ddl_lane_want_room(end);
    ddl_doze_look_again();
    if (ready(end)) {
        ddl_doze_end(&self->doze);
        return;
    }
    self->sleeps++;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&self->lock);
    while (!self->bell)
        if (pthread_cond_timedwait(&self->rung, &self->lock, &until) != 0) {
            self->late++; /* nobody rang: a lost wake-up */
            break;
        }
    self->bell = false;
    pthread_mutex_unlock(&self->lock);
}

static size_t next_size(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    unsigned kind = *seed >> 29, value = *seed >> 8;
    return kind < 5 ? 1 + value % 200 : 1 + value % (LARGE / 2);
}

static void *write_all(void *arg)
{
    stress *s = arg;
    uint8_t *bytes = malloc(LARGE);
    unsigned seed = s->seed;
    for (uint64_t place = 0; place < stress_bytes;) {
        size_t wanted = ddl_size_min(next_size(&seed), (size_t)(stress_bytes - place));
        fill(bytes, wanted, place);
        for (size_t done = 0; done < wanted;) {
            struct iovec part = { bytes + done, wanted - done };
            size_t count = ddl_lane_write(&s->f.out, &part, 1);
            done += count;
            if (count > 0) {
                nudge(&s->reader);
            } else {
                sleep_until(&s->writer, &s->f.out, there_is_room);
            }
        }
        place += wanted;
    }
    free(bytes);
    return NULL;
}

static void bytes_cross_threads_and_nobody_oversleeps(void **state)
{
    (void)state;
    static stress s;
    memset(&s, 0, sizeof s);
    s.seed = 1;
    open_lane(&s.f, 8 * 1024); /* small, so that it is full and empty all the time */
    pthread_mutex_init(&s.writer.lock, NULL);
    pthread_mutex_init(&s.reader.lock, NULL);
    pthread_cond_init(&s.writer.rung, NULL);
    pthread_cond_init(&s.reader.rung, NULL);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_all, &s), 0);
    unsigned seed = 2;
    for (uint64_t place = 0; place < stress_bytes;) {
        size_t count = take_checked(&s.f.in, place, next_size(&seed));
        place += count;
        if (count == 0) {
            sleep_until(&s.reader, &s.f.in, there_is_something);
            continue;
        }
        if (ddl_lane_room_wanted(&s.f.in))
            nudge(&s.writer);
    }
    pthread_join(writer, NULL);
    assert_int_equal(s.reader.late + s.writer.late, 0);
    assert_true(s.reader.sleeps + s.writer.sleeps > 0);
    assert_int_equal(ddl_lane_peek(&s.f.in).bytes, 0);
    close_lane(&s.f);
}

/* test_lane [MIB]: so much goes through the threads' lane. */
int main(int argc, char **argv)
{
    if (argc > 1)
        stress_bytes = strtoull(argv[1], NULL, 10) << 20;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_out_as_it_went_in),
        cmocka_unit_test(takes_no_more_than_fits),
        cmocka_unit_test(room_is_told_once),
        cmocka_unit_test(positions_that_cannot_be_are_not_believed),
        cmocka_unit_test(bytes_cross_threads_and_nobody_oversleeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
