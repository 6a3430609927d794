/* test_pull.c - messages that their receiver reads where they lie: whatever comes first, if it can, and only
 * while the sender stands by them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/failpoint.h"
#include "io/local.h"
#include "pair.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, SMALL = 4096 };

typedef enum turn { RECV_FIRST, SEND_FIRST, AT_ONCE, ORDERS } turn;

static void open_pulling(side pair[2])
{
    int sockets[2];
    by_lanes = pulling = true;
    open_pair(pair, sockets);
}

static void prepare_both(message *out, message *in, uint64_t sequence, size_t out_first_part,
                         size_t in_first_part)
{
    prepare(out, 1, sequence, MIB, out_first_part, true);
    prepare(in, 0, sequence, MIB, in_first_part, false);
    out->xfer.pulls = in->xfer.pulls = true;
}

static void post_both(side pair[2], message *out, message *in, turn order)
{
    bool send_first = order == SEND_FIRST;
    post(&pair[send_first ? 0 : 1], send_first ? out : in, send_first);
    if (order != AT_ONCE)
        drive(pair, 20);
    post(&pair[send_first ? 1 : 0], send_first ? in : out, !send_first);
}

static void free_both(message *out, message *in)
{
    free(out->data);
    free(in->data);
}

static void assert_both_end(side pair[2], message *out, message *in)
{
    drive_until(pair, &in->done);
    drive_until(pair, &out->done);
    assert_arrived(in);
    free_both(out, in);
}

/* Bytes that have gone through the lane from rank 0 to rank 1. */
static uint64_t in_lane(side pair[2])
{
    return ddl_lanes_out(pair[0].lanes, 1)->own;
}

static void large_messages_go_past_the_lane(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * ORDERS; i++) {
        side pair[2];
        message out, in;
        open_pulling(pair);
        prepare_both(&out, &in, 1, MIB, i < ORDERS ? MIB : 1000);
        post_both(pair, &out, &in, (turn)(i % ORDERS));
        assert_both_end(pair, &out, &in);
        assert_true(in_lane(pair) < SMALL);
        close_pair(pair);
    }
}

/* The receiver waits to be told the source, and there is no one source. */
static void what_lies_in_two_parts_is_asked_for(void **state)
{
    (void)state;
    for (int i = 0; i < ORDERS; i++) {
        side pair[2];
        message out, in;
        open_pulling(pair);
        prepare_both(&out, &in, 1, 1000, MIB);
        post_both(pair, &out, &in, (turn)i);
        assert_both_end(pair, &out, &in);
        assert_true(in_lane(pair) > MIB);
        close_pair(pair);
    }
}

static void who_would_rather_not_read_gives_a_grant(void **state)
{
    (void)state;
    for (int i = 0; i < ORDERS; i++) {
        side pair[2];
        message out, in;
        open_pulling(pair);
        prepare_both(&out, &in, 1, MIB, MIB);
        in.xfer.pulls = false;
        post_both(pair, &out, &in, (turn)i);
        assert_both_end(pair, &out, &in);
        assert_true(in_lane(pair) > MIB);
        close_pair(pair);
    }
}

#ifdef DDL_FAILPOINTS
static void what_cannot_be_read_comes_through_the_lane(void **state)
{
    (void)state;
    for (int i = 0; i < ORDERS; i++) {
        side pair[2];
        message out[3], in[3];
        open_pulling(pair);
        ddl_failpoint_arm("io.read_process:2"); /* after the first look, and only once: nobody tries again */
        for (uint64_t k = 0; k < 2; k++) {
            prepare_both(&out[k], &in[k], k + 1, MIB, MIB);
            post_both(pair, &out[k], &in[k], (turn)i);
        }
        for (int k = 0; k < 2; k++)
            assert_both_end(pair, &out[k], &in[k]);
        ddl_failpoint_arm(NULL);
        uint64_t before = in_lane(pair);
        assert_true(before > MIB); /* the second may have been due when the first was refused */
        prepare_both(&out[2], &in[2], 3, MIB, MIB);
        post_both(pair, &out[2], &in[2], (turn)i);
        assert_both_end(pair, &out[2], &in[2]);
        assert_true(in_lane(pair) > before + MIB);
        assert_int_equal(pair[0].lost + pair[1].lost, 0);
        close_pair(pair);
    }
}

/* As where another user, or a rule of the system, forbids it. */
static void who_may_not_read_from_the_start_is_sent_all(void **state)
{
    (void)state;
    side pair[2];
    message out, in;
    open_pulling(pair);
    prepare_both(&out, &in, 1, MIB, MIB);
    ddl_failpoint_arm("io.read_process");
    post_both(pair, &out, &in, RECV_FIRST);
    ddl_failpoint_arm(NULL);
    assert_both_end(pair, &out, &in);
    assert_true(in_lane(pair) > MIB);
    close_pair(pair);
}
#endif

/* Its sender has given it up, and writes other things there: half of this and half of that must never pass
 * for the message. */
static void what_was_withdrawn_never_arrives(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        side pair[2];
        message out, in, next_out, next_in;
        open_pulling(pair);
        prepare_both(&out, &in, 1, MIB, MIB);
        if (i == RECV_FIRST)
            post(&pair[1], &in, false);
        post(&pair[0], &out, true);
        ddl_engine_progress(pair[0].engine); /* the peer is told where it lies */
        cancel(&pair[0], &out);
        memset(out.data, 0x55, MIB);
        if (i == SEND_FIRST)
            post(&pair[1], &in, false);
        drive(pair, 20);
        assert_false(in.done);
        cancel(&pair[1], &in);
        free_both(&out, &in);
        /* What comes after it is not withdrawn. */
        prepare_both(&next_out, &next_in, 2, MIB, MIB);
        post_both(pair, &next_out, &next_in, (turn)i);
        assert_both_end(pair, &next_out, &next_in);
        assert_true(in_lane(pair) < SMALL);
        close_pair(pair);
    }
}

/* What one operation gives up is no loss to another. */
static void what_was_not_withdrawn_arrives_all_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        side pair[2];
        message out, in, given_up, unread;
        open_pulling(pair);
        prepare_both(&given_up, &unread, 1, MIB, MIB);
        prepare_both(&out, &in, 2, MIB, MIB);
        if (i == RECV_FIRST)
            post(&pair[1], &in, false);
        post(&pair[0], &given_up, true);
        post(&pair[0], &out, true);
        ddl_engine_progress(pair[0].engine);
        cancel(&pair[0], &given_up);
        if (i == SEND_FIRST)
            post(&pair[1], &in, false);
        assert_both_end(pair, &out, &in);
        free_both(&given_up, &unread);
        close_pair(pair);
    }
}

/* Memory that takes long to come holds up its owner, in the post, and not the rank that reads it. */
static void the_sender_brings_its_pages(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char there[MIB / 4096] = { 0 };
    side pair[2];
    message out;
    open_pulling(pair);
    prepare(&out, 1, 1, MIB, MIB, true);
    void *fresh = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(fresh != MAP_FAILED);
    out.xfer.part[0].data = fresh;
    out.xfer.pulls = true;
    assert_int_equal(mincore(fresh, MIB, there), 0);
    assert_int_equal(there[0] & 1, 0);
    post(&pair[0], &out, true);
    assert_int_equal(mincore(fresh, MIB, there), 0);
    for (size_t i = 0; i < MIB / page; i++)
        assert_int_equal(there[i] & 1, 1);
    cancel(&pair[0], &out);
    munmap(fresh, MIB);
    free(out.data);
    close_pair(pair);
}

static void a_cancelled_receive_reads_nothing(void **state)
{
    (void)state;
    for (int due = 0; due < 2; due++) {
        side pair[2];
        message out, in;
        open_pulling(pair);
        prepare_both(&out, &in, 1, MIB, MIB);
        if (due) {
            post(&pair[0], &out, true);
            drive(pair, 20);
            post(&pair[1], &in, false); /* the source is known: it is to be read in the next sweep */
        } else {
            post(&pair[1], &in, false);
        }
        cancel(&pair[1], &in);
        if (!due)
            post(&pair[0], &out, true);
        drive(pair, 20);
        assert_true(!in.done && !out.done);
        for (size_t i = 0; i < MIB; i++)
            assert_int_equal(in.data[i], 0xee);
        cancel(&pair[0], &out);
        free_both(&out, &in);
        close_pair(pair);
    }
}

/* Heaps come first, at either end, though the receiver waits to be told a source. */
static void heaps_come_first(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * ORDERS; i++) {
        bool of_sender = i < ORDERS;
        side pair[2];
        message out, in;
        void *block;
        open_pulling(pair);
        prepare_both(&out, &in, 1, MIB, MIB);
        assert_int_equal(ddl_heap_alloc(pair[of_sender ? 0 : 1].heap, MIB, &block, NULL), DDL_OK);
        message *there = of_sender ? &out : &in;
        memcpy(block, there->data, MIB);
        free(there->data);
        there->data = there->xfer.part[0].data = block;
        post_both(pair, &out, &in, (turn)(i % ORDERS));
        deliver(pair, &out, &in);
        assert_true(in_lane(pair) < SMALL);
        free(of_sender ? in.data : out.data);
        close_pair(pair);
    }
}

/* The owner has been told that the calls differ; the link is not to blame. */
static void sources_of_another_operation_are_left_alone(void **state)
{
    (void)state;
    for (int i = 0; i < ORDERS; i++) {
        side pair[2];
        message out, in, next_out, next_in;
        ddl_signature other = signature;
        other.count++;
        open_pulling(pair);
        prepare_both(&out, &in, 1, MIB, MIB);
        in.xfer.signature = &other;
        post_both(pair, &out, &in, (turn)i);
        drive(pair, 20);
        assert_true(!in.done && !out.done);
        assert_int_equal(pair[0].lost + pair[1].lost, 0);
        cancel(&pair[0], &out);
        cancel(&pair[1], &in);
        free_both(&out, &in);
        prepare_both(&next_out, &next_in, 2, MIB, MIB);
        post_both(pair, &next_out, &next_in, (turn)i);
        assert_both_end(pair, &next_out, &next_in);
        close_pair(pair);
    }
}

static void tell_source(side *from, uint64_t address, uint64_t bytes)
{
    uint8_t payload[DDL_FRAME_PLACE_BYTES];
    ddl_frame frame = frame_of(DDL_FRAME_SOURCE, 1, 0);
    ddl_frame_place_encode(&(ddl_frame_place){ address, bytes }, payload);
    ddl_mesh_tell_bytes(from->mesh, 1, &frame, (ddl_view){ payload, sizeof payload });
    ddl_mesh_flush(from->mesh);
}

static void a_source_of_another_size_ends_the_link(void **state)
{
    (void)state;
    const uint32_t wrong[] = { 0, MIB - 1, MIB + 1, UINT32_MAX };
    for (size_t i = 0; i < 2 * sizeof wrong / sizeof *wrong; i++) {
        bool early = i % 2 == 0;
        side pair[2];
        message in;
        open_pulling(pair);
        prepare(&in, 0, 1, MIB, MIB, false);
        in.xfer.pulls = true;
        if (early) {
            tell_source(&pair[0], (uintptr_t)in.data, wrong[i / 2]);
            drive(pair, 5);
        }
        post(&pair[1], &in, false);
        if (!early)
            tell_source(&pair[0], (uintptr_t)in.data, wrong[i / 2]);
        drive(pair, 20);
        assert_int_equal(pair[1].lost, 1);
        assert_int_equal(pair[1].lost_code, DDL_EPROTO);
        assert_false(in.done);
        cancel(&pair[1], &in);
        free(in.data);
        close_pair(pair);
    }
}

/* An address at which nothing is: it is asked for as any other, and nothing else happens. */
static void a_source_that_is_nowhere_is_granted(void **state)
{
    (void)state;
    const uint64_t nowhere[] = { 0, 4096, UINT64_MAX, UINT64_MAX - MIB, UINT64_C(1) << 63 };
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        side pair[2];
        message in, out;
        open_pulling(pair);
        prepare_both(&out, &in, 1, MIB, MIB);
        post(&pair[1], &in, false);
        tell_source(&pair[0], nowhere[i], MIB);
        drive(pair, 20);
        assert_int_equal(pair[1].lost, 0);
        assert_false(in.done);
        post(&pair[0], &out, true);
        assert_both_end(pair, &out, &in);
        assert_true(in_lane(pair) > MIB);
        close_pair(pair);
    }
}

/* A process that got the number of one that has ended has nothing where that had its mark, or something else.
 */
static void a_process_without_the_mark_is_not_read(void **state)
{
    (void)state;
    static const uint64_t own = UINT64_C(0x1234567887654321);
    static const char text[] = "what lies there";
    char found[sizeof text] = "";
    const struct iovec part = { found, sizeof found };
    const uint64_t at = (uintptr_t)&own, there = (uintptr_t)text;
    const ddl_local_mark marks[] = { { at, own }, { at, own + 1 }, { 8, own } };
    ddl_error error;
    if (ddl_local_read(getpid(), &marks[0], 0, NULL, 0, &error) != DDL_OK)
        skip(); /* the system lets nobody read so */
    assert_int_equal(ddl_local_read(getpid(), &marks[1], there, &part, 1, &error), DDL_ERESOURCE);
    assert_int_equal(ddl_local_read(getpid(), &marks[2], there, &part, 1, &error), DDL_ERESOURCE);
    assert_int_equal(ddl_local_read(getpid(), &marks[1], 0, NULL, 0, &error), DDL_ERESOURCE);
    assert_int_equal(ddl_local_read(getpid(), &marks[0], 8, &part, 1, &error), DDL_ERESOURCE);
    assert_int_equal(ddl_local_read(getpid(), &marks[0], there, &part, 1, &error), DDL_OK);
    assert_string_equal(found, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_messages_go_past_the_lane),
        cmocka_unit_test(what_lies_in_two_parts_is_asked_for),
        cmocka_unit_test(who_would_rather_not_read_gives_a_grant),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(what_cannot_be_read_comes_through_the_lane),
        cmocka_unit_test(who_may_not_read_from_the_start_is_sent_all),
#endif
        cmocka_unit_test(what_was_withdrawn_never_arrives),
        cmocka_unit_test(what_was_not_withdrawn_arrives_all_the_same),
        cmocka_unit_test(the_sender_brings_its_pages),
        cmocka_unit_test(a_cancelled_receive_reads_nothing),
        cmocka_unit_test(heaps_come_first),
        cmocka_unit_test(sources_of_another_operation_are_left_alone),
        cmocka_unit_test(a_source_of_another_size_ends_the_link),
        cmocka_unit_test(a_source_that_is_nowhere_is_granted),
        cmocka_unit_test(a_process_without_the_mark_is_not_read),
    };
    return cmocka_run_group_tests_name("pull", tests, NULL, NULL);
}
