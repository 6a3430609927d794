/* test_lanes.c - what is touched beforehand no call has to wait for; without that each page is waited for. */
#include "io/local.h"
#include "transport/lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { SKIPPED = 77, RANKS = 2, ROOM_BYTES = 4 << 20, USED_BYTES = 3 << 19, LANE_BYTES = 4 << 20 };

typedef struct host {
    ddl_roster *rosters[RANKS];
    ddl_lanes *lanes[RANKS];
} host;

static void open_host(host *h)
{
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(ddl_roster_create(rank, RANKS, &h->rosters[rank], NULL), DDL_OK);
        for (int i = 0; i < RANKS; i++)
            h->rosters[rank]->members[i].pid = getpid();
        ddl_roster_derive(h->rosters[rank]);
        assert_int_equal(
            ddl_lanes_create(h->rosters[rank], ROOM_BYTES, USED_BYTES, LANE_BYTES, &h->lanes[rank], NULL),
            DDL_OK);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        const ddl_lanes *other = h->lanes[1 - rank];
        assert_int_equal(ddl_lanes_join(h->lanes[rank], 1 - rank, dup(ddl_lanes_memory(other)),
                                        dup(ddl_lanes_bell(other)), NULL),
                         DDL_OK);
    }
}

static void close_host(host *h)
{
    for (int rank = 0; rank < RANKS; rank++) {
        ddl_lanes_destroy(h->lanes[rank]);
        ddl_roster_destroy(h->rosters[rank]);
    }
}

static long faults(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

/* Fill each lane and empty it again; returns the bytes that went through. */
static size_t pass_through_lanes(const host *h)
{
    static uint8_t data[64 * 1024];
    size_t passed = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        ddl_lane_end *out = ddl_lanes_out(h->lanes[rank], 1 - rank);
        ddl_lane_end *in = ddl_lanes_in(h->lanes[1 - rank], rank);
        const struct iovec part = { data, sizeof data };
        for (size_t count; (count = ddl_lane_write(out, &part, 1)) > 0;)
            passed += count;
        for (ddl_view view; (view = ddl_lane_peek(in)).bytes > 0; ddl_lane_take(in, view.bytes))
            for (size_t i = 0; i < view.bytes; i += 1024)
                assert_int_equal(((const volatile uint8_t *)view.data)[i], 0);
    }
    return passed;
}

/* Of the room. */
static const ddl_room_part parts[] = { { 64 * 1024, 1 << 20 }, { 2 << 20, USED_BYTES - (1 << 20) } };

static void use_rooms(const host *h)
{
    for (int rank = 0; rank < RANKS; rank++)
        for (int of = 0; of < RANKS; of++)
            for (int i = 0; i < 2; i++)
                memset((uint8_t *)ddl_lanes_room(h->lanes[rank], of) + parts[i].offset, rank, parts[i].bytes);
}

/* Of a host that is used, all of its lanes and two parts of the room; *pages: how many those are.
 */
static long faults_of_use(bool touched, size_t *pages)
{
    host h;
    open_host(&h);
    for (int rank = 0; touched && rank < RANKS; rank++)
        ddl_lanes_touch(h.lanes[rank], parts, 2);
    const long before = faults();
    const size_t passed = pass_through_lanes(&h);
    use_rooms(&h);
    const long during = faults() - before;
    close_host(&h);
    *pages = (passed + RANKS * (size_t)USED_BYTES) / ddl_local_page_bytes();
    return during;
}

static void who_comes_first_waits_for_no_page(void **state)
{
    (void)state;
    size_t pages;
#ifndef MADV_POPULATE_WRITE
    skip();
#else
    void *page =
        mmap(NULL, ddl_local_page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    const int code = madvise(page, ddl_local_page_bytes(), MADV_POPULATE_WRITE);
    munmap(page, ddl_local_page_bytes());
    if (code != 0)
        skip(); /* an old Linux */
#endif
    (void)faults_of_use(true, &pages); /* what else is used for the first time */
    const long untouched = faults_of_use(false, &pages);
    assert_true(pages >= 1024);
    assert_true(untouched >= (long)pages);
    assert_true(faults_of_use(true, &pages) < (long)pages / 8); /* of sanitizers, which keep books on them */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_comes_first_waits_for_no_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
