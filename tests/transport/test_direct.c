/* test_direct.c - heaps, and messages that lie in them: moved at once, whatever comes first, and never too
 * late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/failpoint.h"
#include "pair.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, MIB = 1 << 20 };

/* ---- heaps ---- */

static void open_heap(side pair[2], int sockets[2])
{
    by_lanes = true;
    open_pair(pair, sockets);
}

static uint8_t *block_of(side *me, size_t bytes)
{
    void *block = NULL;
    assert_int_equal(ddl_heap_alloc(me->heap, bytes, &block, NULL), DDL_OK);
    assert_non_null(block);
    return block;
}

static bool is_zero(const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != 0)
            return false;
    return true;
}

static void blocks_are_zero_apart_and_used_again(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_heap(pair, sockets);
    uint8_t *first = block_of(&pair[0], 1), *second = block_of(&pair[0], 3 * PAGE),
            *third = block_of(&pair[0], PAGE);
    assert_int_equal((uintptr_t)first % PAGE, 0);
    assert_true(second >= first + PAGE);
    assert_true(third >= second + 3 * PAGE);
    assert_true(is_zero(second, 3 * PAGE));
    memset(second, 1, 3 * PAGE);
    memset(third, 2, PAGE);
    assert_true(ddl_heap_release(pair[0].heap, second));
    assert_false(ddl_heap_release(pair[0].heap, second)); /* twice */
    assert_false(ddl_heap_release(pair[0].heap, third + 1));
    assert_false(ddl_heap_release(pair[0].heap, &pair));
    uint8_t *large = block_of(&pair[0], 4 * PAGE), *small = block_of(&pair[0], 2 * PAGE);
    assert_true(large > third); /* does not fit the gap */
    assert_ptr_equal(small, second);
    assert_true(is_zero(small, 2 * PAGE)); /* though it was written before */
    assert_int_equal(third[PAGE - 1], 2);
    size_t offset;
    assert_true(ddl_heap_find(pair[0].heap, third + 5, PAGE - 5, &offset));
    assert_int_equal(offset, (size_t)(third + 5 - first));
    assert_false(ddl_heap_find(pair[0].heap, &offset, sizeof offset, &offset));
    assert_false(ddl_heap_find(pair[0].heap, first - 1, 2, &offset));
    close_pair(pair);
}

static void what_is_too_large_is_refused(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_heap(pair, sockets);
    size_t bytes;
    ddl_error error;
    void *block = NULL;
    ddl_lanes_heap(pair[0].lanes, 0, &bytes);
    assert_true(bytes > 0);
    const size_t too_large[] = { bytes + 1, SIZE_MAX, SIZE_MAX - PAGE, SIZE_MAX / 2 };
    for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++) {
        assert_int_equal(ddl_heap_alloc(pair[0].heap, too_large[i], &block, &error), DDL_ENOMEM);
        assert_null(block);
    }
#ifdef DDL_FAILPOINTS
    ddl_failpoint_arm("io.fallocate");
    assert_int_equal(ddl_heap_alloc(pair[0].heap, PAGE, &block, &error), DDL_ENOMEM);
    ddl_failpoint_arm(NULL);
#endif
    memset(block_of(&pair[0], PAGE), 1, PAGE);
    close_pair(pair);
}

static void without_shared_memory_blocks_are_ordinary(void **state)
{
    (void)state;
    ddl_heap *heap;
    void *one, *other;
    size_t offset;
    assert_int_equal(ddl_heap_create(NULL, 0, -1, 0, &heap, NULL), DDL_OK);
    assert_int_equal(ddl_heap_alloc(heap, 10 * PAGE, &one, NULL), DDL_OK);
    assert_int_equal(ddl_heap_alloc(heap, 1, &other, NULL), DDL_OK);
    assert_int_equal((uintptr_t)one % PAGE, 0);
    assert_true(is_zero(one, 10 * PAGE));
    memset(one, 1, 10 * PAGE);
    assert_false(ddl_heap_find(heap, one, PAGE, &offset));
    assert_true(ddl_heap_release(heap, one));
    assert_false(ddl_heap_release(heap, one));
    ddl_heap_destroy(heap); /* with the other block */
}

/* ---- messages ---- */

/* A message of a side whose data lies there, which is not to be freed. */
static void prepare_at(message *m, int peer, uint64_t sequence, uint8_t *data, size_t bytes, bool filled)
{
    memset(m, 0, sizeof *m);
    m->data = data;
    for (size_t i = 0; i < bytes; i++)
        data[i] = filled ? pattern(sequence, i) : 0xee;
    m->xfer.key = (ddl_key){ .sequence = sequence };
    m->xfer.peer = peer;
    m->xfer.part[0] = (ddl_part){ data, bytes };
    m->xfer.bytes = bytes;
    m->xfer.signature = &signature;
    prepare_done(m);
}

typedef struct reduction {
    message in;
    uint8_t *sums; /* a sum of 16-bit words, wrapping */
    size_t taken, given;
} reduction;

static void add(ddl_xfer *xfer, size_t offset, const void *bytes, size_t count)
{
    reduction *r = DDL_CONTAINER(DDL_CONTAINER(xfer, message, xfer), reduction, in);
    assert_int_equal((uintptr_t)bytes % 2, 0);
    assert_int_equal(count % 2, 0);
    assert_true(offset + count <= xfer->bytes);
    for (size_t i = 0; i < count; i++)
        r->sums[offset + i] = (uint8_t)(r->sums[offset + i] + ((const uint8_t *)bytes)[i]);
    r->taken += count;
}

/* Bytes that have gone through the lane from rank 0 to rank 1. */
static uint64_t in_lane(side pair[2])
{
    return ddl_lanes_out(pair[0].lanes, 1)->own;
}

static void messages_in_heaps_go_past_the_lane(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t bytes, send_shift, recv_shift;
        bool send_in_heap, recv_in_heap, reduced;
    } cases[] = {
        { "whole pages, put", MIB, 0, 0, false, true, false },
        { "whole pages, taken", MIB, 0, 0, true, false, false },
        { "whole pages, both", MIB, 0, 0, true, true, false },
        { "whole pages, reduced", MIB, 0, 0, true, false, true },
        { "whole pages, both, reduced", MIB, 0, 0, true, true, true },
        { "parts of pages at both ends, put", 300002, 10, 1234, false, true, false },
        { "parts of pages at both ends, taken", 300002, 1234, 10, true, false, false },
        { "parts of pages at both ends, reduced", 300002, 1234, 10, true, false, true },
        { "part of a page at the end", 5 * PAGE * 10 + 2, 0, 0, true, true, true },
        { "part of a page at the start", 5 * PAGE * 10 + 2, PAGE - 2, PAGE - 2, true, false, true },
        { "part of a page at the start, put", 5 * PAGE * 10 + 2, PAGE - 2, PAGE - 2, true, true, false },
    };
    enum { RECV_FIRST, SEND_FIRST, AT_ONCE, ORDERS };
    for (size_t i = 0; i < sizeof cases / sizeof *cases * ORDERS; i++) {
        size_t bytes = cases[i / ORDERS].bytes, order = i % ORDERS;
        side pair[2];
        int sockets[2];
        open_heap(pair, sockets);
        uint8_t *plain[2] = { aligned_alloc(PAGE, 2 * MIB), aligned_alloc(PAGE, 2 * MIB) };
        uint8_t *from = cases[i / ORDERS].send_in_heap ? block_of(&pair[0], 2 * MIB) : plain[0];
        uint8_t *to = cases[i / ORDERS].recv_in_heap ? block_of(&pair[1], 2 * MIB) : plain[1];
        message out;
        reduction r = { .sums = calloc(1, bytes) };
        prepare_at(&out, 1, 1, from + cases[i / ORDERS].send_shift, bytes, true);
        prepare_at(&r.in, 0, 1, to + cases[i / ORDERS].recv_shift, bytes, false);
        if (cases[i / ORDERS].reduced) {
            r.in.xfer.take = add;
            r.in.xfer.unit_bytes = 2;
        }
        post(&pair[order == RECV_FIRST], order == RECV_FIRST ? &r.in : &out, order != RECV_FIRST);
        if (order != AT_ONCE)
            drive(pair, 20);
        post(&pair[order != RECV_FIRST], order == RECV_FIRST ? &out : &r.in, order == RECV_FIRST);
        drive_until(pair, &r.in.done);
        drive_until(pair, &out.done);
        if (cases[i / ORDERS].reduced) {
            assert_int_equal(r.taken, bytes);
            assert_int_equal(r.in.xfer.taken, bytes);
            for (size_t k = 0; k < bytes; k++)
                assert_int_equal(r.sums[k], pattern(1, k));
        } else {
            assert_arrived(&r.in);
        }
        assert_true(in_lane(pair) < 3 * PAGE);
        for (int rank = 0; rank < 2; rank++)
            free(plain[rank]);
        free(r.sums);
        close_pair(pair);
    }
}

static void add_and_give(ddl_xfer *xfer, size_t offset, const void *bytes, void *to, size_t count)
{
    reduction *r = DDL_CONTAINER(DDL_CONTAINER(xfer, message, xfer), reduction, in);
    add(xfer, offset, bytes, count);
    memcpy(to, r->sums + offset, count);
    r->given += count;
}

/* A message of rank 0, out of its heap, that is reduced by rank 1, and one of that with what becomes of it.
 */
typedef struct exchange {
    message out, back;
    reduction r;
    message answer; /* of rank 1 */
} exchange;

enum { SHIFT = 1234, ODD_BYTES = 300002, WHOLE_PAGES = ODD_BYTES / PAGE - 1, NUMBER = 2 };

/* What lies there is not touched. */
static void prepare_answer(message *m, int peer, uint8_t *data)
{
    prepare_at(m, peer, 1, data, 0, false);
    m->xfer.key.number = NUMBER;
    m->xfer.bytes = m->xfer.part[0].bytes = ODD_BYTES;
}

/* back: where rank 0 wants the answer; NULL: where its message lies. */
static void begin_exchange(exchange *x, side pair[2], uint8_t *back)
{
    memset(x, 0, sizeof *x);
    x->r.sums = malloc(ODD_BYTES);
    for (size_t i = 0; i < ODD_BYTES; i++)
        x->r.sums[i] = (uint8_t)i;
    prepare_at(&x->out, 1, 1, block_of(&pair[0], MIB) + SHIFT, ODD_BYTES, true);
    prepare_at(&x->r.in, 0, 1, aligned_alloc(PAGE, MIB), ODD_BYTES, false);
    prepare_answer(&x->back, 1, back != NULL ? back : x->out.data);
    prepare_answer(&x->answer, 0, x->r.sums);
    x->r.in.xfer.take = add;
    x->r.in.xfer.give = add_and_give;
    x->r.in.xfer.unit_bytes = 2;
    x->r.in.xfer.answer_plus_1 = NUMBER + 1;
    x->out.xfer.answer_plus_1 = back == NULL ? NUMBER + 1 : 0;
}

static void move_message(exchange *x, side pair[2], bool sends_first)
{
    post(&pair[sends_first ? 0 : 1], sends_first ? &x->out : &x->r.in, sends_first);
    drive(pair, 20);
    post(&pair[sends_first ? 1 : 0], sends_first ? &x->r.in : &x->out, !sends_first);
    drive_until(pair, &x->r.in.done);
    drive_until(pair, &x->out.done);
    assert_int_equal(x->r.taken, ODD_BYTES);
    for (size_t k = 0; k < ODD_BYTES; k++)
        assert_int_equal(x->r.sums[k], (uint8_t)(pattern(1, k) + k));
}

/* Whether whole pages of what became of the message lie at rank 0 already, where it wants them. */
static void assert_given(const exchange *x, bool given)
{
    const size_t head = PAGE - (uintptr_t)x->back.data % PAGE;
    assert_int_equal(x->r.in.xfer.has_given, given);
    assert_int_equal(x->r.given, given ? WHOLE_PAGES * PAGE : 0);
    for (size_t k = 0; k < ODD_BYTES; k++) {
        const bool is_there = given && k >= head && k < head + WHOLE_PAGES * PAGE;
        if (x->back.data == x->out.data || is_there)
            assert_int_equal(x->back.data[k], (uint8_t)(pattern(1, k) + (is_there ? k : 0)));
    }
}

static void end_exchange(exchange *x, side pair[2])
{
    const size_t middle = ODD_BYTES / 2;
    x->answer.xfer.is_given = x->r.in.xfer.has_given;
    x->r.sums[middle]++; /* what is there already does not go again */
    post(&pair[1], &x->answer, true);
    drive_until(pair, &x->back.done);
    drive_until(pair, &x->answer.done);
    for (size_t i = 0; i < ODD_BYTES; i++) {
        const bool is_new = i == middle && !x->answer.xfer.is_given;
        assert_int_equal(x->back.data[i], (uint8_t)(pattern(1, i) + i + is_new));
    }
    free(x->r.in.data);
    free(x->r.sums);
}

static void what_becomes_of_a_message_is_given_back_where_both_know_of_it(void **state)
{
    (void)state;
    static const struct {
        uint32_t sent, received;
        bool gives;
    } answers[] = { { 3, 3, true }, { 0, 0, false }, { 3, 0, false }, { 0, 3, false }, { 3, 4, false } };
    for (size_t i = 0; i < 2 * sizeof answers / sizeof *answers; i++) {
        side pair[2];
        int sockets[2];
        exchange x;
        open_heap(pair, sockets);
        begin_exchange(&x, pair, NULL);
        x.out.xfer.answer_plus_1 = answers[i / 2].sent;
        x.r.in.xfer.answer_plus_1 = answers[i / 2].received;
        x.r.in.xfer.give = answers[i / 2].received != 0 ? add_and_give : NULL;
        move_message(&x, pair, i % 2 == 0);
        assert_given(&x, answers[i / 2].gives);
        post(&pair[0], &x.back, false);
        end_exchange(&x, pair);
        close_pair(pair);
    }
}

static void what_becomes_of_a_message_is_given_to_a_place_that_is_known(void **state)
{
    (void)state;
    static const struct {
        size_t shift; /* of the place, in its page */
        uint64_t sequence;
        uint64_t count; /* of its signature */
        bool gives;
    } places[] = {
        { SHIFT, 1, 0, true }, { SHIFT, 2, 0, false }, { SHIFT, 1, 77, false }, { SHIFT + 2, 1, 0, false }
    };
    for (size_t i = 0; i < 2 * sizeof places / sizeof *places; i++) {
        side pair[2];
        int sockets[2];
        exchange x;
        message other;
        ddl_signature its_own = signature;
        its_own.count += places[i / 2].count;
        open_heap(pair, sockets);
        uint8_t *block = block_of(&pair[0], MIB);
        begin_exchange(&x, pair, block + places[i / 2].shift);
        prepare_answer(&other, 1,
                       x.back.data); /* the receive that is posted before; perhaps of something else */
        other.xfer.key.sequence = places[i / 2].sequence;
        other.xfer.signature = &its_own;
        const bool is_it = places[i / 2].sequence == 1 && places[i / 2].count == 0;
        post(&pair[0], is_it ? &x.back : &other, false);
        drive(pair, 20);
        move_message(&x, pair, i % 2 == 0);
        assert_given(&x, places[i / 2].gives);
        if (!is_it) {
            cancel(&pair[0], &other);
            prepare_answer(&x.back, 1, block_of(&pair[0], MIB));
            post(&pair[0], &x.back, false);
        }
        end_exchange(&x, pair);
        close_pair(pair);
    }
}

/* Nor one that is told for memory outside the heap, which is a grant. */
static void an_answer_is_given_to_no_place_that_cannot_be(void **state)
{
    (void)state;
    enum { WHOLE, ENDS_BEHIND, BEGINS_BEHIND, WRAPS, SHORTER, LONGER, GRANTED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        side pair[2];
        int sockets[2];
        exchange x;
        size_t heap_bytes, offset;
        open_heap(pair, sockets);
        (void)ddl_lanes_heap(pair[0].lanes, 0, &heap_bytes);
        begin_exchange(&x, pair, block_of(&pair[0], MIB) + SHIFT);
        assert_true(ddl_heap_find(pair[0].heap, x.back.data, ODD_BYTES, &offset));
        const size_t end = heap_bytes - PAGE + SHIFT; /* aligned as the message */
        const ddl_frame_place places[WAYS] = { [WHOLE] = { offset, ODD_BYTES },
                                               [ENDS_BEHIND] = { end, ODD_BYTES },
                                               [BEGINS_BEHIND] = { heap_bytes + SHIFT, ODD_BYTES },
                                               [WRAPS] = { (uint64_t)0 - PAGE + SHIFT, ODD_BYTES },
                                               [SHORTER] = { offset, ODD_BYTES - PAGE },
                                               [LONGER] = { offset, ODD_BYTES + PAGE } };
        ddl_frame frame = frame_of(way == GRANTED ? DDL_FRAME_GRANT : DDL_FRAME_PLACE, 1, 0);
        uint8_t payload[DDL_FRAME_PLACE_BYTES];
        ddl_frame_place_encode(&places[way], payload);
        frame.number = NUMBER;
        ddl_mesh_tell_bytes(pair[0].mesh, 1, &frame,
                            (ddl_view){ payload, way == GRANTED ? 0 : sizeof payload });
        ddl_mesh_flush(pair[0].mesh);
        drive(pair, 20);
        move_message(&x, pair, true);
        assert_given(&x, way == WHOLE);
        assert_int_equal(pair[1].lost, 0);
        free(x.r.in.data);
        free(x.r.sums);
        close_pair(pair);
    }
}

static void what_goes_past_the_caches_is_given_back_but_to_no_other_place(void **state)
{
    (void)state;
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        side pair[2];
        int sockets[2];
        exchange x;
        open_heap(pair, sockets);
        begin_exchange(&x, pair, elsewhere ? block_of(&pair[0], MIB) + SHIFT : NULL);
        x.r.in.xfer.past_caches = true;
        if (elsewhere)
            post(&pair[0], &x.back, false);
        drive(pair, 20);
        move_message(&x, pair, true);
        assert_given(&x, !elsewhere);
        if (!elsewhere)
            post(&pair[0], &x.back, false);
        end_exchange(&x, pair);
        close_pair(pair);
    }
}

static void an_answer_that_comes_too_late_is_written_nowhere(void **state)
{
    (void)state;
    for (int told = 0; told < 2; told++) {
        side pair[2];
        int sockets[2];
        exchange x;
        open_heap(pair, sockets);
        begin_exchange(&x, pair, told ? block_of(&pair[0], MIB) + SHIFT : NULL);
        if (told)
            post(&pair[0], &x.back, false);
        post(&pair[0], &x.out, true);
        ddl_engine_progress(pair[0].engine); /* the offer is on its way, and the place */
        cancel(&pair[0], &x.out);
        if (told)
            cancel(&pair[0], &x.back);
        memset(x.out.data, 0x55, ODD_BYTES);
        memset(x.back.data, 0x55, ODD_BYTES);
        post(&pair[1], &x.r.in, false);
        drive(pair, 20);
        assert_int_equal(x.r.given, WHOLE_PAGES * PAGE);
        assert_false(x.r.in.done);
        for (size_t i = 0; i < ODD_BYTES; i++) {
            assert_int_equal(x.out.data[i], 0x55);
            assert_int_equal(x.back.data[i], 0x55);
        }
        cancel(&pair[1], &x.r.in);
        free(x.r.in.data);
        free(x.r.sums);
        close_pair(pair);
    }
}

/* The peer learns of an offer only when its sender is done with it. */
static void what_was_offered_is_withdrawn_with_its_content(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_heap(pair, sockets);
    uint8_t *block = block_of(&pair[0], 2 * MIB), *to = malloc(MIB);
    message out, in;
    prepare_at(&out, 1, 1, block + 100, MIB, true);
    post(&pair[0], &out, true);
    ddl_engine_progress(pair[0].engine);
    cancel(&pair[0], &out);
    for (size_t i = 0; i < MIB; i++) /* it is still what the program put there */
        assert_int_equal(out.data[i], pattern(1, i));
    memset(out.data, 0x55, MIB); /* and the program's again */
    size_t offset;
    assert_false(ddl_heap_find(pair[0].heap, out.data, MIB, &offset));
    prepare_at(&in, 0, 1, to, MIB, false);
    post(&pair[1], &in, false);
    drive(pair, 20);
    size_t head = PAGE - 100 % PAGE; /* which would have come with the rest */
    for (size_t i = head; i < MIB - PAGE; i++)
        assert_int_equal(in.data[i], pattern(1, i));
    assert_false(in.done);
    cancel(&pair[1], &in);
    free(to);
    close_pair(pair);
}

static void what_comes_too_late_is_written_nowhere(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_heap(pair, sockets);
    uint8_t *block = block_of(&pair[1], 2 * MIB), *from = malloc(MIB);
    message out, in;
    prepare_at(&in, 0, 1, block, MIB, false);
    post(&pair[1], &in, false);
    ddl_engine_progress(pair[1].engine); /* the place is on its way */
    cancel(&pair[1], &in);
    memset(block, 0x55, MIB);
    prepare_at(&out, 1, 1, from, MIB, true);
    post(&pair[0], &out, true);
    drive_until(pair, &out.done); /* it has put its pages */
    for (size_t i = 0; i < MIB; i++)
        assert_int_equal(block[i], 0x55);
    /* The place is never used again, also when the block is released. */
    assert_true(ddl_heap_release(pair[1].heap, block));
    uint8_t *next = block_of(&pair[1], PAGE);
    assert_true(next >= block + 2 * MIB || next < block);
    size_t offset;
    assert_true(ddl_heap_find(pair[1].heap, block_of(&pair[1], 4 * MIB) + 3 * MIB, PAGE, &offset));
    free(from);
    close_pair(pair);
}

/* As pieces of one operation are. */
static void each_of_several_places_is_withdrawn(void **state)
{
    (void)state;
    enum { MESSAGES = 3, BYTES = MIB / 2 };
    side pair[2];
    int sockets[2];
    open_heap(pair, sockets);
    uint8_t *block = block_of(&pair[1], 2 * MIB), *from = malloc(BYTES);
    message out, in[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) {
        prepare_at(&in[i], 0, (uint64_t)i + 1, block + i * BYTES, BYTES, false);
        post(&pair[1], &in[i], false);
    }
    ddl_engine_progress(pair[1].engine);
    for (int i = 0; i < MESSAGES; i++)
        cancel(&pair[1], &in[i]);
    memset(block, 0x55, 2 * MIB);
    for (int i = 0; i < MESSAGES; i++) {
        prepare_at(&out, 1, (uint64_t)i + 1, from, BYTES, true);
        post(&pair[0], &out, true);
        drive_until(pair, &out.done);
    }
    for (size_t i = 0; i < 2 * MIB; i++)
        assert_int_equal(block[i], 0x55);
    size_t offset; /* what was promised to nobody is as good as before */
    assert_false(ddl_heap_find(pair[1].heap, block + MESSAGES * BYTES - 1, PAGE, &offset));
    assert_true(ddl_heap_find(pair[1].heap, block + MESSAGES * BYTES, PAGE, &offset));
    free(from);
    close_pair(pair);
}

/* Pages begin in the middle of its elements. */
static void what_is_not_aligned_goes_by_the_lane(void **state)
{
    (void)state;
    for (int receives = 0; receives < 2; receives++) {
        side pair[2];
        int sockets[2];
        open_heap(pair, sockets);
        uint8_t *from = block_of(&pair[0], 2 * MIB) + (receives ? 0 : 2), *to = malloc(MIB);
        message out;
        reduction r = { .sums = calloc(1, MIB) };
        prepare_at(&out, 1, 1, from, MIB, true);
        prepare_at(&r.in, 0, 1, receives ? block_of(&pair[1], 2 * MIB) + 2 : to, MIB, false);
        out.xfer.unit_bytes = r.in.xfer.unit_bytes = 4;
        if (!receives)
            r.in.xfer.take = add;
        post(&pair[1], &r.in, false);
        post(&pair[0], &out, true);
        drive_until(pair, &r.in.done);
        drive_until(pair, &out.done);
        for (size_t i = 0; i < MIB; i++)
            assert_int_equal(receives ? r.in.data[i] : r.sums[i], pattern(1, i));
        assert_true(receives || in_lane(pair) > MIB);
        free(r.sums);
        free(to);
        close_pair(pair);
    }
}

/* The owner has been told that the calls differ; the link is not to blame. */
static void places_of_another_operation_are_left_alone(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        side pair[2];
        int sockets[2];
        open_heap(pair, sockets);
        bool send_first = order % 2 == 0, offered = order / 2 == 0;
        ddl_signature other = signature;
        other.count++;
        uint8_t *plain = malloc(MIB);
        message out, in, next_out, next_in;
        prepare_at(&out, 1, 1, offered ? block_of(&pair[0], MIB) : plain, MIB, true);
        prepare_at(&in, 0, 1, offered ? plain : block_of(&pair[1], MIB), MIB / 2, false);
        in.xfer.signature = &other;
        post(&pair[send_first ? 0 : 1], send_first ? &out : &in, send_first);
        drive(pair, 10);
        post(&pair[send_first ? 1 : 0], send_first ? &in : &out, !send_first);
        drive(pair, 10);
        assert_true(!in.done && !out.done);
        assert_int_equal(pair[0].lost + pair[1].lost, 0);
        cancel(&pair[0], &out);
        cancel(&pair[1], &in);
        post_send(&pair[0], &next_out, 2, MIB, MIB);
        post_recv(&pair[1], &next_in, 2, MIB, MIB);
        drive_until(pair, &next_in.done);
        assert_arrived(&next_in);
        free(next_out.data);
        free(next_in.data);
        free(plain);
        close_pair(pair);
    }
}

static void the_heap_of_who_has_gone_is_let_go(void **state)
{
    (void)state;
    for (int graceful = 0; graceful < 2; graceful++) {
        side pair[2];
        int sockets[2];
        size_t bytes;
        open_heap(pair, sockets);
        uint8_t *to = malloc(MIB);
        message out, in;
        prepare_at(&out, 1, 1, block_of(&pair[0], MIB), MIB, true);
        post(&pair[0], &out, true);
        ddl_engine_progress(pair[0].engine);
        prepare_at(&in, 0, 1, to, MIB, false);
        post(&pair[1], &in, false);
        ddl_mesh_sweep(pair[1].mesh); /* the offer is taken, but not answered */
        cancel(&pair[0], &out);
        assert_non_null(ddl_lanes_heap(pair[1].lanes, 0, &bytes));
        if (!graceful)
            shutdown(sockets[0], SHUT_RDWR);
        else
            close_side(&pair[0]);
        ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
        while (pair[1].lost + pair[1].left == 0 && !ddl_deadline_passed(deadline))
            ddl_engine_progress(pair[1].engine);
        assert_int_equal(pair[1].lost + pair[1].left, 1);
        assert_null(ddl_lanes_heap(pair[1].lanes, 0, &bytes));
        assert_int_equal(bytes, 0);
        assert_false(in.done); /* its sender had given up */
        cancel(&pair[1], &in);
        free(to);
        close_pair(pair);
    }
}

static void a_cancelled_message_that_is_due_moves_nothing(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_heap(pair, sockets);
    uint8_t *block = block_of(&pair[0], MIB), *to = malloc(MIB);
    message out, in;
    prepare_at(&out, 1, 1, block, MIB, true);
    post(&pair[0], &out, true);
    drive(pair, 20);
    prepare_at(&in, 0, 1, to, MIB, false);
    post(&pair[1], &in, false); /* the offer is there: its pages are due */
    cancel(&pair[1], &in);
    drive(pair, 20);
    assert_true(!in.done && !out.done);
    for (size_t i = 0; i < MIB; i++)
        assert_int_equal(to[i], 0xee);
    cancel(&pair[0], &out);
    /* The link lives on. */
    prepare_at(&out, 1, 2, block, MIB, true);
    prepare_at(&in, 0, 2, to, MIB, false);
    post(&pair[1], &in, false);
    post(&pair[0], &out, true);
    deliver(pair, &out, &in);
    free(to);
    close_pair(pair);
}

static void send_frame_about(side *from, ddl_frame_type type, uint64_t offset, uint64_t bytes)
{
    uint8_t payload[DDL_FRAME_PLACE_BYTES];
    ddl_frame frame = frame_of((ddl_frame_type)type, 1, 0);
    ddl_frame_place_encode(&(ddl_frame_place){ offset, bytes }, payload);
    bool has_place = type == DDL_FRAME_OFFER || type == DDL_FRAME_PLACE || type == DDL_FRAME_SOURCE;
    ddl_view view = { payload, has_place ? sizeof payload : 0 };
    ddl_mesh_tell_bytes(from->mesh, 1, &frame, view);
    ddl_mesh_flush(from->mesh);
}

static void places_that_cannot_be_end_the_link(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_heap(pair, sockets);
    size_t heap_bytes;
    ddl_lanes_heap(pair[0].lanes, 0, &heap_bytes);
    close_pair(pair);
    const struct {
        ddl_frame_type type;
        uint64_t offset, bytes;
        bool sends; /* rank 1, which hears it, sends */
    } cases[] = {
        { DDL_FRAME_OFFER, heap_bytes, MIB, false },
        { DDL_FRAME_OFFER, heap_bytes - PAGE, MIB, false },
        { DDL_FRAME_OFFER, UINT64_MAX - PAGE, MIB, false },
        { DDL_FRAME_OFFER, 0, MIB - 1, false },
        { DDL_FRAME_OFFER, 0, UINT64_MAX, false },
        { DDL_FRAME_PLACE, heap_bytes - MIB + PAGE, MIB, true },
        { DDL_FRAME_PLACE, UINT64_MAX, MIB, true },
        { DDL_FRAME_PLACE, 0, MIB + 1, true },
        { DDL_FRAME_TAKEN, 0, 0, true },
        { DDL_FRAME_REST, 0, 0, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int early = 0; early < (cases[i].type >= DDL_FRAME_TAKEN ? 1 : 2); early++) {
            open_heap(pair, sockets);
            uint8_t *data = malloc(MIB);
            message m;
            prepare_at(&m, 0, 1, data, MIB, cases[i].sends);
            if (early) {
                send_frame_about(&pair[0], cases[i].type, cases[i].offset, cases[i].bytes);
                drive(pair, 5);
            }
            post(&pair[1], &m, cases[i].sends);
            if (!early)
                send_frame_about(&pair[0], cases[i].type, cases[i].offset, cases[i].bytes);
            drive(pair, 20);
            assert_int_equal(pair[1].lost, 1);
            assert_int_equal(pair[1].lost_code, DDL_EPROTO);
            assert_false(m.done);
            cancel(&pair[1], &m);
            free(data);
            close_pair(pair);
        }
    }
}

/* What was offered is not to be asked for, and comes but once. */
static void a_message_that_is_taken_does_not_come_again(void **state)
{
    (void)state;
    side pair[2];
    int sockets[2];
    open_heap(pair, sockets);
    uint8_t *block = block_of(&pair[0], MIB), *data = malloc(MIB);
    message in;
    prepare_at(&in, 0, 1, data, MIB, false);
    memset(block, 0x33, MIB);
    post(&pair[1], &in, false);
    send_frame_about(&pair[0], DDL_FRAME_OFFER, 0, MIB);
    drive(pair, 5);
    assert_int_equal(data[MIB - 1], 0x33);
    send_frame_about(&pair[0], DDL_FRAME_ASK, 0, 0);
    drive(pair, 5);
    assert_int_equal(pair[1].lost, 0);
    const ddl_frame bulk = frame_of(DDL_FRAME_BULK, 1, MIB);
    uint8_t header[DDL_FRAME_BYTES];
    ddl_frame_encode(&bulk, header);
    struct iovec part = { header, sizeof header };
    assert_int_equal(ddl_lane_write(ddl_lanes_out(pair[0].lanes, 1), &part, 1), sizeof header);
    drive(pair, 5);
    assert_int_equal(pair[1].lost, 1);
    assert_false(in.done);
    cancel(&pair[1], &in);
    free(data);
    close_pair(pair);
}

static void places_are_nonsense_where_no_memory_is_shared(void **state)
{
    (void)state;
    for (int type = DDL_FRAME_OFFER; type <= DDL_FRAME_SOURCE; type++) {
        if (type == DDL_FRAME_STRIPE) /* which is about something else */
            continue;
        side pair[2];
        int sockets[2];
        by_lanes = false;
        open_pair(pair, sockets);
        send_frame_about(&pair[0], (ddl_frame_type)type, 0, MIB);
        drive(pair, 20);
        assert_int_equal(pair[1].lost, 1);
        assert_int_equal(pair[1].lost_code, DDL_EPROTO);
        close_pair(pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_zero_apart_and_used_again),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(without_shared_memory_blocks_are_ordinary),
        cmocka_unit_test(messages_in_heaps_go_past_the_lane),
        cmocka_unit_test(what_becomes_of_a_message_is_given_back_where_both_know_of_it),
        cmocka_unit_test(what_becomes_of_a_message_is_given_to_a_place_that_is_known),
        cmocka_unit_test(an_answer_is_given_to_no_place_that_cannot_be),
        cmocka_unit_test(what_goes_past_the_caches_is_given_back_but_to_no_other_place),
        cmocka_unit_test(an_answer_that_comes_too_late_is_written_nowhere),
        cmocka_unit_test(what_was_offered_is_withdrawn_with_its_content),
        cmocka_unit_test(what_comes_too_late_is_written_nowhere),
        cmocka_unit_test(each_of_several_places_is_withdrawn),
        cmocka_unit_test(what_is_not_aligned_goes_by_the_lane),
        cmocka_unit_test(places_of_another_operation_are_left_alone),
        cmocka_unit_test(the_heap_of_who_has_gone_is_let_go),
        cmocka_unit_test(a_cancelled_message_that_is_due_moves_nothing),
        cmocka_unit_test(places_that_cannot_be_end_the_link),
        cmocka_unit_test(a_message_that_is_taken_does_not_come_again),
        cmocka_unit_test(places_are_nonsense_where_no_memory_is_shared),
    };
    return cmocka_run_group_tests_name("direct", tests, NULL, NULL);
}
