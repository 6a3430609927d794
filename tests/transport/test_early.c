/*
 * test_early.c - what is held comes out as it went in, and no peer can have more held than there is room for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "transport/early.h"

#include <stdlib.h>
#include <string.h>

typedef struct bench {
    ddl_early_pool pool;
    ddl_earlies earlies;
} bench;

static void open_bench(bench *b)
{
    memset(b, 0, sizeof *b);
    assert_true(ddl_early_pool_open(&b->pool, 0));
    ddl_earlies_init(&b->earlies, &b->pool);
    assert_true(ddl_earlies_reserve(&b->earlies));
}

static void close_bench(bench *b)
{
    ddl_earlies_fini(&b->earlies);
    ddl_early_pool_close(&b->pool);
}

static ddl_frame frame_of(ddl_frame_type type, uint64_t sequence, size_t bytes)
{
    return (ddl_frame){ .type = (uint8_t)type, .channel = 3, .sequence = sequence, .bytes = (uint32_t)bytes };
}

static ddl_early *hold(bench *b, ddl_list *list, ddl_frame frame)
{
    ddl_error error;
    ddl_early *entry = ddl_earlies_hold(&b->earlies, list, &frame, &error);
    assert_non_null(entry);
    return entry;
}

static ddl_early *find(bench *b, const ddl_list *list, uint64_t sequence)
{
    const ddl_key key = { .channel = 3, .sequence = sequence };
    return ddl_earlies_find(&b->earlies, list, &key);
}

static int free_chunks(const bench *b)
{
    int count = DDL_CHUNKS - b->earlies.nchunks;
    for (uint16_t chunk = b->earlies.free_chunk; chunk != DDL_NO_CHUNK;
         chunk = b->earlies.room->next_chunk[chunk])
        count++;
    return count;
}

/* Several at a time, whose bytes come in pieces of any size, in turns. */
static void messages_come_out_as_they_came(void **state)
{
    (void)state;
    enum { MESSAGES = 3, BYTES = 5 * DDL_CHUNK_BYTES + 77 };
    bench b;
    open_bench(&b);
    for (size_t piece = 1; piece < 3 * DDL_CHUNK_BYTES; piece = piece * 3 + 1) {
        static uint8_t said[MESSAGES][BYTES], got[BYTES];
        ddl_early *entries[MESSAGES];
        ddl_error error;
        for (int i = 0; i < MESSAGES; i++) {
            entries[i] = hold(&b, &b.earlies.messages, frame_of(DDL_FRAME_EAGER, (uint64_t)i, BYTES));
            for (size_t k = 0; k < BYTES; k++)
                said[i][k] = (uint8_t)(k * 7 + k / 251 + (size_t)i * 31 + piece);
        }
        for (size_t at = 0; at < BYTES; at += piece)
            for (int i = 0; i < MESSAGES; i++)
                assert_true(ddl_earlies_fill(&b.earlies, entries[i], said[i] + at,
                                             BYTES - at < piece ? BYTES - at : piece, &error));
        for (int i = MESSAGES - 1; i >= 0; i--) {
            ddl_xfer xfer = { .part = { { got, BYTES } }, .bytes = BYTES };
            memset(got, 0, sizeof got);
            assert_ptr_equal(find(&b, &b.earlies.messages, (uint64_t)i), entries[i]);
            ddl_earlies_drain(&b.earlies, entries[i], &xfer);
            ddl_earlies_drop(&b.earlies, entries[i]);
            assert_memory_equal(got, said[i], BYTES);
            assert_int_equal(xfer.moved, BYTES);
            assert_null(find(&b, &b.earlies.messages, (uint64_t)i));
        }
        assert_int_equal(free_chunks(&b), DDL_CHUNKS);
    }
    close_bench(&b);
}

static void more_bytes_than_the_budget_are_refused(void **state)
{
    (void)state;
    static const uint8_t chunk[DDL_CHUNK_BYTES];
    bench b;
    ddl_error error;
    open_bench(&b);
    ddl_early *entry = hold(&b, &b.earlies.messages, frame_of(DDL_FRAME_EAGER, 1, UINT32_MAX));
    for (int i = 0; i < DDL_CHUNKS; i++)
        assert_true(ddl_earlies_fill(&b.earlies, entry, chunk, sizeof chunk, &error));
    assert_false(ddl_earlies_fill(&b.earlies, entry, chunk, 1, &error));
    assert_int_equal(error.code, DDL_EPROTO);
    ddl_earlies_drop(&b.earlies, entry); /* and nothing of it stays */
    assert_int_equal(free_chunks(&b), DDL_CHUNKS);
    close_bench(&b);
}

static void more_words_than_anyone_needs_are_refused(void **state)
{
    (void)state;
    enum { LIMIT = 1 << 20 };
    bench b;
    ddl_error error;
    open_bench(&b);
    const ddl_frame ask = frame_of(DDL_FRAME_ASK, 1, 0);
    for (int i = 0; i < LIMIT; i++)
        assert_non_null(ddl_earlies_hold(&b.earlies, &b.earlies.messages, &ask, &error));
    assert_null(ddl_earlies_hold(&b.earlies, &b.earlies.messages, &ask, &error));
    assert_int_equal(error.code, DDL_EPROTO);
    close_bench(&b);
}

static void ignore_frame(void *arg, int peer, const ddl_frame *frame)
{
    (void)arg;
    (void)peer;
    (void)frame;
}

/* Walking all that is held each time would be 4,000 million steps. */
static void many_entries_are_found_by_their_operation(void **state)
{
    (void)state;
    enum { HELD = 20000, LOOKS = 100000 };
    bench b;
    open_bench(&b);
    for (uint64_t i = 0; i < HELD; i++)
        hold(&b, i % 2 == 0 ? &b.earlies.messages : &b.earlies.grants, frame_of(DDL_FRAME_ASK, i, 0));
    const int64_t begin_ns = ddl_now_ns();
    for (uint64_t i = HELD; i < HELD + LOOKS; i++) {
        assert_null(find(&b, &b.earlies.messages, i));
        ddl_earlies_visit(&b.earlies, 3, i, ignore_frame, NULL, 1);
    }
    assert_true(ddl_now_ns() - begin_ns < 4000 * DDL_NS_PER_MS);
    for (uint64_t i = 0; i < HELD; i += 77) {
        assert_int_equal(find(&b, i % 2 == 0 ? &b.earlies.messages : &b.earlies.grants, i)->frame.sequence,
                         i);
        assert_null(find(&b, i % 2 == 1 ? &b.earlies.messages : &b.earlies.grants, i));
    }
    close_bench(&b);
}

typedef struct tally {
    int count, peer;
    uint64_t sequence;
} tally;

static void count_frame(void *arg, int peer, const ddl_frame *frame)
{
    tally *t = arg;
    assert_int_equal(peer, t->peer);
    assert_int_equal(frame->sequence, t->sequence);
    t->count++;
}

/* Of both lists, also where operations have the same row, and where more of one are held than are counted. */
static void frames_of_an_operation_are_visited(void **state)
{
    (void)state;
    enum { MANY = UINT16_MAX + 10, ALIKE = 1 << 20 };
    bench b;
    open_bench(&b);
    for (int i = 0; i < MANY; i++)
        hold(&b, &b.earlies.grants, frame_of(DDL_FRAME_GRANT, 5, 0));
    hold(&b, &b.earlies.messages, frame_of(DDL_FRAME_ASK, 5, 0));
    hold(&b, &b.earlies.messages, frame_of(DDL_FRAME_ASK, 5 + ALIKE, 0));
    const uint64_t asked[] = { 5, 5 + ALIKE, 5 + 2 * ALIKE, 6 };
    const int expected[] = { MANY + 1, 1, 0, 0 };
    for (int i = 0; i < 4; i++) {
        tally t = { .peer = 2, .sequence = asked[i] };
        ddl_earlies_visit(&b.earlies, 3, asked[i], count_frame, &t, 2);
        assert_int_equal(t.count, expected[i]);
    }
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_out_as_they_came),
        cmocka_unit_test(more_bytes_than_the_budget_are_refused),
        cmocka_unit_test(more_words_than_anyone_needs_are_refused),
        cmocka_unit_test(many_entries_are_found_by_their_operation),
        cmocka_unit_test(frames_of_an_operation_are_visited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
