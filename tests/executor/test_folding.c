/*
 * test_folding.c - where what is received goes: combined as it comes, if nobody else reads it; past the
 * caches, if nobody looks at it again; else where it was to land.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/compute_cpu.h"
#include "executor/executor.h"
#include "schedule/builder.h"

enum { COUNT = 12, BYTES = COUNT * 4, POISON = -77 };

/* A transport in which every message is there already: rank p sends 100 * p + i as element i. It lets the
 * receiver take it in two goes if it wants to, and leaves the landing poisoned then. */
typedef struct fake {
    ddl_transport base; /* first: see transport.h */
    int taken, past;    /* messages that were taken; that go past the caches */
    int sent, expected; /* messages that were sent; that were received before any was sent */
} fake;

static bool fake_send(ddl_transport *transport, ddl_xfer *xfer)
{
    (void)xfer;
    ((fake *)transport)->sent++;
    return true;
}

static bool fake_recv(ddl_transport *transport, ddl_xfer *xfer)
{
    int32_t message[COUNT], poison[COUNT];
    const size_t first = BYTES / 3;
    assert_int_equal(xfer->bytes, BYTES);
    ((fake *)transport)->past += xfer->past_caches;
    ((fake *)transport)->expected += ((fake *)transport)->sent == 0;
    for (int i = 0; i < COUNT; i++) {
        message[i] = 100 * xfer->peer + i;
        poison[i] = POISON;
    }
    if (xfer->take == NULL) {
        memcpy(xfer->part[0].data, message, BYTES);
        return true;
    }
    memcpy(xfer->part[0].data, poison, BYTES);
    xfer->take(xfer, 0, message, first);
    xfer->take(xfer, first, (const char *)message + first, BYTES - first);
    xfer->taken = BYTES;
    ((fake *)transport)->taken++;
    return true;
}

static void fake_cancel(ddl_transport *transport, ddl_xfer *xfer)
{
    (void)transport, (void)xfer;
    fail_msg("nothing is ever pending");
}

static const struct ddl_transport_ops fake_ops = { fake_send, fake_recv, fake_cancel };

static ddl_slice in(void)
{
    return ddl_slice_of(DDL_BUFFER_IN, 0, BYTES);
}

static ddl_slice out(int i)
{
    return ddl_slice_of(DDL_BUFFER_OUT, (size_t)i * BYTES, BYTES);
}

/* The real one, and how often it was told to put what it reduces past the caches. */
static int reduced_past;

static void real_reduce(ddl_compute *compute, void *target, const void *const operands[], int noperands,
                        size_t count, ddl_dtype dtype, ddl_op op)
{
    (void)compute;
    ddl_compute_cpu()->ops->reduce(ddl_compute_cpu(), target, operands, noperands, count, dtype, op);
}

static void real_reduce_past(ddl_compute *compute, void *target, const void *const operands[], int noperands,
                             size_t count, ddl_dtype dtype, ddl_op op)
{
    (void)compute;
    reduced_past++;
    ddl_compute_cpu()->ops->reduce_past(ddl_compute_cpu(), target, operands, noperands, count, dtype, op);
}

static void real_copy(ddl_compute *compute, void *target, const void *source, size_t bytes, bool past_caches)
{
    (void)compute;
    ddl_compute_cpu()->ops->copy(ddl_compute_cpu(), target, source, bytes, past_caches);
}

static const struct ddl_compute_ops counting_ops = { real_reduce, real_reduce_past, NULL, real_copy, NULL };

/* Runs what add has written down for rank 0 of 3, with i as element i of IN. */
static fake run_with(void (*add)(ddl_builder *b), bool past_caches, int32_t result[2 * COUNT])
{
    static int32_t own[COUNT], scratch[8 * COUNT] __attribute__((aligned(64)));
    const ddl_group group = { .rank = 0, .nranks = 3 };
    ddl_builder *builder;
    ddl_schedule *schedule;
    ddl_run *made;
    ddl_error error;
    fake transport = { .base = { &fake_ops } };
    const ddl_signature signature = { 0 };
    ddl_compute compute = { &counting_ops };
    reduced_past = 0;
    for (int i = 0; i < COUNT; i++)
        own[i] = i;
    assert_int_equal(ddl_builder_create(&group, 4, &builder, &error), DDL_OK);
    add(builder);
    assert_int_equal(ddl_builder_finish(builder, &schedule, &error), DDL_OK);
    assert_true(schedule->scratch_bytes <= sizeof scratch);
    assert_int_equal(ddl_run_create(schedule, &made, &error), DDL_OK);
    const ddl_binding binding = { .in = own,
                                  .out = result,
                                  .scratch = scratch,
                                  .dtype = DDL_INT32,
                                  .op = DDL_SUM,
                                  .transport = &transport.base,
                                  .compute = &compute,
                                  .past_caches = past_caches,
                                  .signature = &signature };
    assert_true(ddl_run_start(made, &binding));
    ddl_run_destroy(made);
    ddl_schedule_destroy(schedule);
    return transport;
}

/* How many messages were taken. */
static int run(void (*add)(ddl_builder *b), int32_t result[2 * COUNT])
{
    return run_with(add, false, result).taken;
}

static void assert_elements(const int32_t *got, int base, int step)
{
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(got[i], base + step * i);
}

static void add_plain(ddl_builder *b)
{
    ddl_slice landing = ddl_scratch(b, BYTES);
    ddl_step_recv(b, 1, landing);
    ddl_step_reduce(b, out(0), (ddl_slice[]){ landing, in() }, 2);
}

static void what_is_only_combined_is_taken(void **state)
{
    (void)state;
    int32_t got[2 * COUNT];
    assert_int_equal(run(add_plain, got), 1);
    assert_elements(got, 100, 2);
}

static void add_onto_itself(ddl_builder *b)
{
    ddl_step_recv(b, 1, out(0));
    ddl_step_reduce(b, out(0), (ddl_slice[]){ out(0), in() }, 2);
    ddl_step_send(b, 2, out(0));
    ddl_step_copy(b, out(1), out(0));
}

static void what_lands_where_the_sum_goes_is_taken_though_the_sum_is_read(void **state)
{
    (void)state;
    int32_t got[2 * COUNT];
    assert_int_equal(run(add_onto_itself, got), 1);
    assert_elements(got, 100, 2);
    assert_elements(got + COUNT, 100, 2);
}

static void add_later_reader(ddl_builder *b)
{
    ddl_slice landing = ddl_scratch(b, BYTES);
    ddl_step_recv(b, 1, landing);
    ddl_step_reduce(b, out(0), (ddl_slice[]){ landing, in() }, 2);
    ddl_step_reduce(b, out(1), (ddl_slice[]){ out(0), landing },
                    2); /* follows from the other: no successor */
}

static void add_second_reader(ddl_builder *b)
{
    ddl_slice landing = ddl_scratch(b, BYTES);
    ddl_step_recv(b, 1, landing);
    ddl_step_reduce(b, out(0), (ddl_slice[]){ landing, in() }, 2);
    ddl_step_copy(b, out(1), landing);
}

static void what_is_read_elsewhere_too_lands(void **state)
{
    (void)state;
    int32_t got[2 * COUNT];
    assert_int_equal(run(add_later_reader, got), 0);
    assert_elements(got, 100, 2);
    assert_elements(got + COUNT, 200, 3);
    assert_int_equal(run(add_second_reader, got), 0);
    assert_elements(got, 100, 2);
    assert_elements(got + COUNT, 100, 1);
}

static void add_two_messages(ddl_builder *b)
{
    ddl_slice first = ddl_scratch(b, BYTES), second = ddl_scratch(b, BYTES);
    ddl_step_recv(b, 1, first);
    ddl_step_recv(b, 2, second);
    ddl_step_reduce(b, out(0), (ddl_slice[]){ first, second }, 2);
}

static void of_two_messages_the_later_is_taken(void **state)
{
    (void)state;
    int32_t got[2 * COUNT];
    assert_true(run(add_two_messages, got) <= 1);
    assert_elements(got, 300, 2);
}

static void add_recv_reduce(ddl_builder *b)
{
    ddl_step_copy(b, out(0), in());
    ddl_step_recv_reduce(b, 1, out(0), out(0), DDL_INCOMING_FIRST);
    ddl_step_recv_reduce(b, 2, out(0), out(0), DDL_OWN_FIRST);
}

static void a_recv_reduce_takes_its_message(void **state)
{
    (void)state;
    int32_t got[2 * COUNT];
    assert_true(run(add_recv_reduce, got) >= 1); /* the second lands if it begins before the first has come */
    assert_elements(got, 300, 3);
}

static void add_exchange(ddl_builder *b)
{
    ddl_step_send(b, 1, in());
    ddl_step_recv(b, 1, out(0));
    ddl_step_send(b, 2, in());
    ddl_step_recv(b, 2, out(1));
}

/* Who sends much waits until it is expected. */
static void what_is_expected_is_said_before_anything_is_sent(void **state)
{
    (void)state;
    int32_t got[2 * COUNT];
    fake transport = run_with(add_exchange, false, got);
    assert_int_equal(transport.sent, 2);
    assert_int_equal(transport.expected, 2);
    assert_elements(got, 100, 1);
    assert_elements(got + COUNT, 200, 1);
}

static void add_final(ddl_builder *b)
{
    ddl_step_recv(b, 1, out(0));
    ddl_step_copy(b, out(1), in());
}

static void add_passed_on(ddl_builder *b)
{
    ddl_step_recv(b, 1, out(0));
    ddl_step_send(b, 2, out(0));
}

static void add_over_what_was_sent(ddl_builder *b)
{
    ddl_step_copy(b, out(0), in());
    ddl_step_send(b, 2, out(0));
    ddl_step_recv(b, 1, out(0));
}

static void add_landing(ddl_builder *b)
{
    ddl_step_recv(b, 1, ddl_scratch(b, BYTES));
}

static void only_what_no_other_step_touches_goes_past_the_caches(void **state)
{
    (void)state;
    int32_t got[2 * COUNT];
    assert_int_equal(run_with(add_final, true, got).past, 1);
    assert_elements(got, 100, 1);
    assert_elements(got + COUNT, 0, 1);
    assert_int_equal(run_with(add_final, false, got).past, 0);
    assert_int_equal(run_with(add_passed_on, true, got).past, 0);
    assert_int_equal(run_with(add_over_what_was_sent, true, got).past, 0);
    assert_elements(got, 100, 1);
    assert_int_equal(run_with(add_landing, true, got).past, 0);
}

static void add_copied_on(ddl_builder *b)
{
    ddl_slice landing = ddl_scratch(b, BYTES);
    ddl_step_recv(b, 1, landing);
    ddl_step_reduce(b, out(0), (ddl_slice[]){ landing, in() }, 2);
    ddl_step_copy(b, out(1), out(0));
}

static void add_three(ddl_builder *b)
{
    ddl_slice first = ddl_scratch(b, BYTES), second = ddl_scratch(b, BYTES);
    ddl_step_recv(b, 1, first);
    ddl_step_recv(b, 2, second);
    ddl_step_reduce(b, out(0), (ddl_slice[]){ first, second, in() }, 3);
}

static void add_to_scratch(ddl_builder *b)
{
    ddl_slice landing = ddl_scratch(b, BYTES), sum = ddl_scratch(b, BYTES);
    ddl_step_recv(b, 1, landing);
    ddl_step_reduce(b, sum, (ddl_slice[]){ landing, in() }, 2);
}

static void add_onto_landing(ddl_builder *b)
{
    ddl_step_recv(b, 1, out(0));
    ddl_step_reduce(b, out(0), (ddl_slice[]){ out(0), in() }, 2);
}

static void add_onto_operand(ddl_builder *b)
{
    ddl_slice landing = ddl_scratch(b, BYTES);
    ddl_step_copy(b, out(0), in());
    ddl_step_recv(b, 1, landing);
    ddl_step_reduce(b, out(0), (ddl_slice[]){ landing, out(0) }, 2);
}

static void the_same_holds_for_what_is_reduced(void **state)
{
    (void)state;
    int32_t got[2 * COUNT];
    (void)run_with(add_plain, true, got);
    assert_int_equal(reduced_past, 2); /* as it comes, in two goes */
    assert_elements(got, 100, 2);
    (void)run_with(add_three, true, got);
    assert_int_equal(reduced_past, 1); /* once all has come */
    assert_elements(got, 300, 3);
    (void)run_with(add_plain, false, got);
    assert_int_equal(reduced_past, 0);
    (void)run_with(add_onto_landing, true, got); /* in which nothing has landed */
    assert_int_equal(reduced_past, 2);
    assert_elements(got, 100, 2);
    (void)run_with(add_copied_on, true, got);
    assert_int_equal(reduced_past, 0);
    assert_elements(got + COUNT, 100, 2);
    (void)run_with(add_onto_operand, true, got);
    assert_int_equal(reduced_past, 0);
    assert_elements(got, 100, 2);
    (void)run_with(add_to_scratch, true, got);
    assert_int_equal(reduced_past, 0);
    (void)run_with(add_recv_reduce, true, got); /* whose target is read first */
    assert_int_equal(reduced_past, 0);
    assert_elements(got, 300, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_only_combined_is_taken),
        cmocka_unit_test(what_lands_where_the_sum_goes_is_taken_though_the_sum_is_read),
        cmocka_unit_test(what_is_read_elsewhere_too_lands),
        cmocka_unit_test(of_two_messages_the_later_is_taken),
        cmocka_unit_test(a_recv_reduce_takes_its_message),
        cmocka_unit_test(what_is_expected_is_said_before_anything_is_sent),
        cmocka_unit_test(only_what_no_other_step_touches_goes_past_the_caches),
        cmocka_unit_test(the_same_holds_for_what_is_reduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
