/* test_frame.c - the mesh's frames and notices: what goes in comes out, and what is malformed is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "protocol/frame.h"
#include "protocol/notice.h"

#include <string.h>

static ddl_frame sample(void)
{
    return (ddl_frame){ .type = DDL_FRAME_EAGER,
                        .bytes = 4096,
                        .credit = 7,
                        .channel = 1,
                        .sequence = UINT64_C(0x0123456789abcdef),
                        .piece = 3,
                        .number = 0x7edcba98,
                        .signature.collective = 2,
                        .signature.dtype = 10,
                        .signature.op = 0xff,
                        .signature.algorithm = 5,
                        .signature.root = -1,
                        .signature.count = UINT64_MAX };
}

static void frame_survives_the_wire(void **state)
{
    (void)state;
    ddl_frame before = sample(), after = { 0 };
    uint8_t bytes[DDL_FRAME_BYTES];
    ddl_frame_encode(&before, bytes);
    assert_int_equal(ddl_frame_decode(bytes, &after, NULL), DDL_OK);
    assert_int_equal(after.type, before.type);
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(after.credit, before.credit);
    assert_int_equal(after.channel, before.channel);
    assert_true(after.sequence == before.sequence);
    assert_int_equal(after.piece, before.piece);
    assert_int_equal(after.number, before.number);
    assert_int_equal(after.signature.collective, before.signature.collective);
    assert_int_equal(after.signature.dtype, before.signature.dtype);
    assert_int_equal(after.signature.op, before.signature.op);
    assert_int_equal(after.signature.algorithm, before.signature.algorithm);
    assert_int_equal(after.signature.root, before.signature.root);
    assert_true(after.signature.count == before.signature.count);
}

/* So that a payload lies in the pages of a socket as it does in memory. The end of a header says nothing yet.
 */
static void headers_are_whole_lines_and_end_in_zeros(void **state)
{
    (void)state;
    static const uint8_t zeros[16];
    ddl_frame frame = sample(), after;
    uint8_t bytes[DDL_FRAME_BYTES];
    assert_int_equal(DDL_FRAME_BYTES % 64, 0);
    memset(bytes, 0xff, sizeof bytes);
    ddl_frame_encode(&frame, bytes);
    assert_memory_equal(bytes + 48, zeros, sizeof zeros);
    for (size_t at = 48; at < DDL_FRAME_BYTES; at++) {
        bytes[at] = 1;
        assert_int_equal(ddl_frame_decode(bytes, &after, NULL), DDL_EPROTO);
        bytes[at] = 0;
    }
    assert_int_equal(ddl_frame_decode(bytes, &after, NULL), DDL_OK);
}

static void frame_is_little_endian_at_fixed_offsets(void **state)
{
    (void)state;
    ddl_frame frame = sample();
    uint8_t bytes[DDL_FRAME_BYTES];
    ddl_frame_encode(&frame, bytes);
    static const uint8_t sequence[] = { 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01 };
    assert_memory_equal(bytes + 16, sequence, sizeof sequence);
    assert_int_equal(bytes[0], 0x1f);
    assert_int_equal(bytes[1], 0xdd);
    assert_int_equal(bytes[5], 0x10);
}

static void frame_with_a_wrong_field_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        uint8_t value;
    } cases[] = {
        { "magic", 0, 0x20 },
        { "magic, second byte", 1, 0 },
        { "type 0", 2, 0 },
        { "type beyond the last", 2, DDL_FRAME_TYPES },
        { "type 255", 2, 255 },
        { "the zero byte", 3, 1 },
        { "payload of 16 MiB", 7, 1 },
        { "operation 2^62", 23, 0x40 },
        { "operation 2^63", 23, 0x80 },
        { "message 2^31", 31, 0x80 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ddl_frame frame = sample();
        uint8_t bytes[DDL_FRAME_BYTES];
        ddl_frame_encode(&frame, bytes);
        bytes[cases[i].offset] = cases[i].value;
        ddl_error error;
        if (ddl_frame_decode(bytes, &frame, &error) != DDL_EPROTO)
            fail_msg("accepted a frame with a wrong %s", cases[i].name);
        assert_int_equal(error.code, DDL_EPROTO);
    }
}

static void the_last_operation_and_message_are_below_their_limits(void **state)
{
    (void)state;
    for (int beyond = 0; beyond < 2; beyond++) {
        ddl_frame operation = sample(), message = sample(), after;
        uint8_t bytes[DDL_FRAME_BYTES];
        operation.sequence = DDL_FRAME_SEQUENCE_LIMIT - 1 + (uint64_t)beyond;
        ddl_frame_encode(&operation, bytes);
        assert_int_equal(ddl_frame_decode(bytes, &after, NULL), beyond ? DDL_EPROTO : DDL_OK);
        message.number = DDL_FRAME_NUMBER_LIMIT - 1 + (uint32_t)beyond;
        ddl_frame_encode(&message, bytes);
        assert_int_equal(ddl_frame_decode(bytes, &after, NULL), beyond ? DDL_EPROTO : DDL_OK);
    }
}

static void payload_is_bounded_by_type(void **state)
{
    (void)state;
    static const struct {
        uint8_t type;
        uint32_t most;
    } cases[] = {
        { DDL_FRAME_EAGER, DDL_FRAME_EAGER_LIMIT },
        { DDL_FRAME_BULK, DDL_FRAME_BULK_LIMIT },
        { DDL_FRAME_ABORT, DDL_FRAME_NOTICE_LIMIT },
        { DDL_FRAME_ASK, 0 },
        { DDL_FRAME_GRANT, 0 },
        { DDL_FRAME_CREDIT, 0 },
        { DDL_FRAME_ENTER, DDL_FRAME_NOTICE_LIMIT },
        { DDL_FRAME_GOODBYE, 0 },
        { DDL_FRAME_OFFER, DDL_FRAME_PLACE_BYTES },
        { DDL_FRAME_PLACE, DDL_FRAME_PLACE_BYTES },
        { DDL_FRAME_TAKEN, 0 },
        { DDL_FRAME_REST, DDL_FRAME_BULK_LIMIT },
        { DDL_FRAME_STRIPE, DDL_FRAME_STRIPE_BYTES },
    };
    static const uint32_t beyond[] = { 1, 0x7fffffff, 0x80000000 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ddl_frame frame = sample();
        uint8_t bytes[DDL_FRAME_BYTES];
        frame.type = cases[i].type;
        frame.bytes = cases[i].most;
        ddl_frame_encode(&frame, bytes);
        assert_int_equal(ddl_frame_decode(bytes, &frame, NULL), DDL_OK);
        for (size_t j = 0; j < sizeof beyond / sizeof *beyond; j++) {
            frame.bytes = cases[i].most + beyond[j];
            ddl_frame_encode(&frame, bytes);
            assert_int_equal(ddl_frame_decode(bytes, &frame, NULL), DDL_EPROTO);
        }
    }
}

static void stripes_are_exactly_those_of_their_message(void **state)
{
    (void)state;
    enum { S = DDL_FRAME_STRIPE_BYTES };
    static const struct {
        const char *name;
        size_t message_bytes;
        uint32_t number, bytes, come;
        bool fits;
    } cases[] = {
        { "the first of two", S + 1, 0, S, 0, true },
        { "a last one of a byte", S + 1, 1, 1, 1, true },
        { "the last of a whole number", 3 * S, 2, S, 3, true },
        { "the last of the largest", DDL_FRAME_BULK_LIMIT, 31, S, 0x7fffffff, true },
        { "all others are here", 32 * S - 7, 31, S - 7, 0x7fffffff, true },
        { "behind the last", 3 * S, 3, S, 0, false },
        { "behind the last of the largest", DDL_FRAME_BULK_LIMIT, 32, S, 0, false },
        { "a number that wraps", 3 * S, UINT32_MAX, S, 0, false },
        { "too short", 3 * S, 1, S - 1, 0, false },
        { "too short at the end", 3 * S - 5, 2, S - 6, 0, false },
        { "too long at the end", 3 * S - 5, 2, S, 0, false },
        { "the second time", 3 * S, 1, S, 2, false },
        { "the last, the second time", DDL_FRAME_BULK_LIMIT, 31, S, UINT32_C(1) << 31, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ddl_frame frame = sample();
        ddl_error error = { .code = DDL_OK };
        frame.type = DDL_FRAME_STRIPE;
        frame.credit = cases[i].number;
        frame.bytes = cases[i].bytes;
        ddl_status status = ddl_frame_check_stripe(&frame, cases[i].message_bytes, cases[i].come, &error);
        if (status != (cases[i].fits ? DDL_OK : DDL_EPROTO) || (!cases[i].fits && error.text[0] == '\0'))
            fail_msg("%s: %s", cases[i].name, ddl_status_name(status));
    }
}

/* However large a message is, its stripes are its bytes, each once. */
static void stripes_add_up(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes <= DDL_FRAME_BULK_LIMIT;
         bytes = bytes < 10 ? bytes + 1 : bytes * 3 / 2 - 1) {
        size_t sum = 0;
        const uint32_t count = ddl_frame_stripes_of(bytes);
        assert_true(count >= 1 && count <= DDL_FRAME_STRIPES);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(sum, (size_t)i * DDL_FRAME_STRIPE_BYTES);
            assert_true(ddl_frame_stripe_bytes(bytes, i) > 0);
            sum += ddl_frame_stripe_bytes(bytes, i);
        }
        assert_int_equal(sum, bytes);
    }
}

static void message_without_payload_is_refused(void **state)
{
    (void)state;
    ddl_frame frame = sample();
    uint8_t bytes[DDL_FRAME_BYTES];
    frame.bytes = 0;
    ddl_frame_encode(&frame, bytes);
    assert_int_equal(ddl_frame_decode(bytes, &frame, NULL), DDL_EPROTO);
    frame.type = DDL_FRAME_REST; /* may have been whole pages */
    ddl_frame_encode(&frame, bytes);
    assert_int_equal(ddl_frame_decode(bytes, &frame, NULL), DDL_OK);
}

static void places_are_whole_or_refused(void **state)
{
    (void)state;
    const ddl_frame_place before = { UINT64_C(0x0123456789abcdef), UINT64_MAX - 1 };
    uint8_t bytes[DDL_FRAME_PLACE_BYTES], header[DDL_FRAME_BYTES];
    ddl_frame_place_encode(&before, bytes);
    ddl_frame_place after = ddl_frame_place_decode(bytes);
    assert_true(after.offset == before.offset && after.bytes == before.bytes);
    ddl_frame frame = sample();
    for (uint32_t type = DDL_FRAME_OFFER; type <= DDL_FRAME_PLACE; type++)
        for (frame.bytes = 0; frame.bytes < DDL_FRAME_PLACE_BYTES; frame.bytes++) {
            frame.type = (uint8_t)type;
            ddl_frame_encode(&frame, header);
            assert_int_equal(ddl_frame_decode(header, &(ddl_frame){ 0 }, NULL), DDL_EPROTO);
        }
}

static void notice_survives_the_wire(void **state)
{
    (void)state;
    ddl_notice before = { .code = DDL_EPEERLOST, .culprit = 3, .witness = -1, .sequence = 41, .broke = true };
    strcpy(before.operation, "allreduce");
    memset(before.text, 'x', sizeof before.text - 1); /* the longest there is */
    uint8_t bytes[DDL_FRAME_NOTICE_LIMIT];
    size_t count = ddl_notice_encode(&before, bytes);
    ddl_notice after;
    assert_int_equal(ddl_notice_decode((ddl_view){ bytes, count }, 4, &after, NULL), DDL_OK);
    assert_int_equal(after.code, before.code);
    assert_int_equal(after.culprit, before.culprit);
    assert_int_equal(after.witness, before.witness);
    assert_true(after.sequence == before.sequence);
    assert_true(after.broke);
    assert_string_equal(after.operation, before.operation);
    assert_string_equal(after.text, before.text);
}

static void notice_that_is_cut_or_absurd_is_refused(void **state)
{
    (void)state;
    ddl_notice notice = { .code = DDL_ETIMEDOUT, .culprit = 1, .witness = 0 };
    strcpy(notice.operation, "barrier");
    uint8_t bytes[DDL_FRAME_NOTICE_LIMIT];
    size_t count = ddl_notice_encode(&notice, bytes);
    ddl_notice out;
    for (size_t cut = 0; cut < 29; cut++)
        assert_int_equal(ddl_notice_decode((ddl_view){ bytes, cut }, 4, &out, NULL), DDL_EPROTO);
    assert_int_equal(ddl_notice_decode((ddl_view){ bytes, count }, 4, &out, NULL), DDL_OK);
    assert_int_equal(ddl_notice_decode((ddl_view){ bytes, count }, 1, &out, NULL),
                     DDL_EPROTO); /* rank 1 of 1 */
    for (unsigned bits = 0; bits < 256; bits++) {
        bytes[20] = (uint8_t)bits;
        assert_int_equal(ddl_notice_decode((ddl_view){ bytes, count }, 4, &out, NULL),
                         bits <= 1 ? DDL_OK : DDL_EPROTO);
    }
    bytes[20] = 0;
    bytes[0] = 0;
    bytes[1] = bytes[2] = bytes[3] = 0; /* DDL_OK is no cause */
    assert_int_equal(ddl_notice_decode((ddl_view){ bytes, count }, 4, &out, NULL), DDL_EPROTO);
}

/* Who adopts a notice tells it in a frame. */
static void notice_is_of_an_operation_that_frames_have(void **state)
{
    (void)state;
    for (int beyond = 0; beyond < 2; beyond++) {
        ddl_notice notice = { .code = DDL_ETIMEDOUT, .culprit = 1, .witness = 0 }, out;
        uint8_t bytes[DDL_FRAME_NOTICE_LIMIT];
        notice.sequence = DDL_FRAME_SEQUENCE_LIMIT - 1 + (uint64_t)beyond;
        size_t count = ddl_notice_encode(&notice, bytes);
        assert_int_equal(ddl_notice_decode((ddl_view){ bytes, count }, 4, &out, NULL),
                         beyond ? DDL_EPROTO : DDL_OK);
    }
}

static void notice_text_cannot_carry_terminal_codes(void **state)
{
    (void)state;
    ddl_notice notice = { .code = DDL_EPEERLOST, .culprit = 0, .witness = 0 };
    strcpy(notice.text, "\x1b[2Jgone\n");
    uint8_t bytes[DDL_FRAME_NOTICE_LIMIT];
    size_t count = ddl_notice_encode(&notice, bytes);
    ddl_notice out;
    assert_int_equal(ddl_notice_decode((ddl_view){ bytes, count }, 2, &out, NULL), DDL_OK);
    assert_string_equal(out.text, "?[2Jgone?");
}

static void root_cause_is_chosen_by_a_fixed_order(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ddl_notice first, second; /* first precedes second, and not the other way round */
    } cases[] = {
        { "a mismatch before a lost peer",
          { .code = DDL_EMISMATCH, .witness = 5, .culprit = 6 },
          { .code = DDL_EPEERLOST, .culprit = 0 } },
        { "a mismatch before bytes that cannot be",
          { .code = DDL_EMISMATCH, .witness = 5, .culprit = 6 },
          { .code = DDL_EPROTO, .culprit = 0 } },
        { "bytes that cannot be before a lost peer: who hears them hangs up",
          { .code = DDL_EPROTO, .culprit = 2 },
          { .code = DDL_EPEERLOST, .culprit = 0 } },
        { "a lost peer before a time-out",
          { .code = DDL_EPEERLOST, .culprit = 7 },
          { .code = DDL_ETIMEDOUT, .culprit = 0 } },
        { "the lowest disagreeing pair by its lower rank",
          { .code = DDL_EMISMATCH, .witness = 0, .culprit = 3 },
          { .code = DDL_EMISMATCH, .witness = 1, .culprit = 2 } },
        { "of the earliest operation, as ranks that differ in one do in those behind it",
          { .code = DDL_EMISMATCH, .witness = 1, .culprit = 2, .sequence = 7 },
          { .code = DDL_EMISMATCH, .witness = 0, .culprit = 1, .sequence = 8 } },
        { "then by its higher rank",
          { .code = DDL_EMISMATCH, .witness = 0, .culprit = 1 },
          { .code = DDL_EMISMATCH, .witness = 0, .culprit = 2 } },
        { "the lowest lost rank",
          { .code = DDL_EPEERLOST, .culprit = 1 },
          { .code = DDL_EPEERLOST, .culprit = 2 } },
        { "of that, what it says itself",
          { .code = DDL_EPEERLOST, .culprit = 1, .witness = 1 },
          { .code = DDL_EPEERLOST, .culprit = 1, .witness = 0 } },
        { "a lost peer before what a GPU says",
          { .code = DDL_EPEERLOST, .culprit = 3 },
          { .code = DDL_EDEVICE, .culprit = 1 } },
        { "a host that is cut off before a process that is silent, maybe for that",
          { .code = DDL_EUNREACHABLE, .culprit = 3 },
          { .code = DDL_EUNRESPONSIVE, .culprit = 1 } },
        { "a process that is silent before a time-out",
          { .code = DDL_EUNRESPONSIVE, .culprit = 3 },
          { .code = DDL_ETIMEDOUT, .culprit = 1 } },
        { "somebody before nobody",
          { .code = DDL_ETIMEDOUT, .culprit = 9 },
          { .code = DDL_ETIMEDOUT, .culprit = -1 } },
        { "also if it is in a later operation",
          { .code = DDL_ETIMEDOUT, .culprit = 9, .sequence = 8 },
          { .code = DDL_ETIMEDOUT, .culprit = -1, .sequence = 7 } },
        { "who is late for the earlier operation: others are for a later one, as they wait for it",
          { .code = DDL_ETIMEDOUT, .culprit = 2, .sequence = 7 },
          { .code = DDL_ETIMEDOUT, .culprit = 1, .sequence = 8 } },
        { "an operation before none",
          { .code = DDL_ETIMEDOUT, .culprit = 2, .sequence = 7 },
          { .code = DDL_ETIMEDOUT, .culprit = 1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!ddl_notice_precedes(&cases[i].first, &cases[i].second) ||
            ddl_notice_precedes(&cases[i].second, &cases[i].first))
            fail_msg("not in order: %s", cases[i].name);
        assert_false(ddl_notice_precedes(&cases[i].first, &cases[i].first));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_survives_the_wire),
        cmocka_unit_test(headers_are_whole_lines_and_end_in_zeros),
        cmocka_unit_test(frame_is_little_endian_at_fixed_offsets),
        cmocka_unit_test(frame_with_a_wrong_field_is_refused),
        cmocka_unit_test(the_last_operation_and_message_are_below_their_limits),
        cmocka_unit_test(payload_is_bounded_by_type),
        cmocka_unit_test(stripes_are_exactly_those_of_their_message),
        cmocka_unit_test(stripes_add_up),
        cmocka_unit_test(message_without_payload_is_refused),
        cmocka_unit_test(places_are_whole_or_refused),
        cmocka_unit_test(notice_survives_the_wire),
        cmocka_unit_test(notice_that_is_cut_or_absurd_is_refused),
        cmocka_unit_test(notice_is_of_an_operation_that_frames_have),
        cmocka_unit_test(notice_text_cannot_carry_terminal_codes),
        cmocka_unit_test(root_cause_is_chosen_by_a_fixed_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
