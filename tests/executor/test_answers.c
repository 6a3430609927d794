/* test_answers.c - which messages bring back what becomes of others, as both ends find it by their schedules.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "algorithms/catalogue.h"
#include "compute/compute_cpu.h"
#include "executor/executor.h"
#include "schedule/builder.h"

enum { COUNT = 12, BYTES = COUNT * 4, MOST = 16 };

/* A transport in which every message is there already: element i of one from rank p is 100 * p + i. What may
 * be given is, back to where it lies, and looked at. */
typedef struct fake {
    ddl_transport base; /* first: see transport.h */
    bool keeps;         /* gives nothing */
    int nsends, nreceives, nanswered, ngiven;
    uint32_t sent[MOST],
        received[MOST]; /* their answers, by their numbers; receives: where give may be called */
} fake;

static bool fake_send(ddl_transport *transport, ddl_xfer *xfer)
{
    fake *f = (fake *)transport;
    assert_true(xfer->key.number < MOST);
    f->sent[xfer->key.number] = xfer->answer_plus_1;
    f->nsends++;
    f->nanswered += xfer->is_given;
    return true;
}

static bool fake_recv(ddl_transport *transport, ddl_xfer *xfer)
{
    fake *f = (fake *)transport;
    int32_t message[COUNT];
    const int count = (int)(xfer->bytes / 4);
    assert_true(xfer->key.number < MOST && xfer->bytes <= BYTES);
    f->received[xfer->key.number] = xfer->give != NULL ? xfer->answer_plus_1 : 0;
    f->nreceives++;
    for (int i = 0; i < count; i++)
        message[i] = 100 * xfer->peer + i;
    if (xfer->give == NULL || f->keeps) {
        memcpy(xfer->part[0].data, message, xfer->bytes);
        return true;
    }
    assert_non_null(xfer->take);
    xfer->give(xfer, 0, message, message, xfer->bytes / 3 / 4 * 4);
    xfer->take(xfer, xfer->bytes / 3 / 4 * 4, message + xfer->bytes / 3 / 4,
               xfer->bytes - xfer->bytes / 3 / 4 * 4);
    for (int i = 0; i < count; i++) /* of IN, whose element i is i; what was taken is as it came */
        assert_int_equal(message[i] - 100 * xfer->peer - i,
                         i < count / 3 ? message[0] - 100 * xfer->peer + i : 0);
    xfer->taken = xfer->bytes;
    xfer->has_given = true;
    f->ngiven++;
    return true;
}

static void fake_cancel(ddl_transport *transport, ddl_xfer *xfer)
{
    (void)transport, (void)xfer;
    fail_msg("nothing is ever pending");
}

static const struct ddl_transport_ops fake_ops = { fake_send, fake_recv, fake_cancel };

static fake run(ddl_schedule *schedule, bool in_place)
{
    static int32_t own[2 * COUNT], result[2 * COUNT], scratch[8 * COUNT] __attribute__((aligned(64)));
    const ddl_signature signature = { 0 };
    ddl_run *made;
    ddl_error error;
    fake transport = { .base = { &fake_ops } };
    for (int i = 0; i < 2 * COUNT; i++)
        own[i] = result[i] = i;
    assert_true(schedule->scratch_bytes <= sizeof scratch);
    assert_int_equal(ddl_run_create(schedule, &made, &error), DDL_OK);
    ddl_binding binding = { .in = in_place ? result : own,
                            .out = result,
                            .scratch = scratch,
                            .dtype = DDL_INT32,
                            .op = DDL_SUM,
                            .transport = &transport.base,
                            .compute = ddl_compute_cpu(),
                            .signature = &signature };
    assert_true(ddl_run_start(made, &binding));
    fake again = { .base = { &fake_ops }, .keeps = true }; /* what was given before is not given now */
    binding.transport = &again.base;
    assert_true(ddl_run_start(made, &binding));
    assert_int_equal(again.nanswered, 0);
    ddl_run_destroy(made);
    ddl_schedule_destroy(schedule);
    return transport;
}

/* ---- what algorithms do ---- */

static fake run_algorithm(const char *name, int rank, int nranks, bool in_place, bool average)
{
    const ddl_algorithm *algorithm = ddl_catalogue_find(DDL_COLLECTIVE_ALLREDUCE, name);
    const int node_of[4] = { 0 };
    const ddl_shape shape = { .rank = rank,
                              .nranks = nranks,
                              .count = COUNT,
                              .stride = COUNT,
                              .placement = { nranks, 1, node_of },
                              .element_bytes = 4,
                              .in_place = in_place,
                              .average = average };
    ddl_schedule *schedule;
    ddl_error error;
    assert_non_null(algorithm);
    assert_int_equal(algorithm->build(&shape, &schedule, &error), DDL_OK);
    return run(schedule, in_place);
}

/* Each rank has the other one's half reduced there, and gets it back to where it was. */
static void allreduces_of_two_ranks_in_place_are_answered(void **state)
{
    (void)state;
    static const char *const names[] = { "halving_doubling", "ring", "direct", "circulant" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fake ranks[2];
        for (int rank = 0; rank < 2; rank++)
            ranks[rank] = run_algorithm(names[i], rank, 2, true, false);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(ranks[rank].ngiven, 1);
            assert_int_equal(ranks[rank].nanswered, 1);
            assert_int_not_equal(ranks[rank].sent[0], 0);
            assert_int_equal(ranks[rank].sent[0], ranks[1 - rank].received[0]); /* they say the same */
        }
    }
}

static void others_are_not(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        fake apart =
            run_algorithm("ring", rank, 2, false, false); /* whoever is in place may still be answered */
        assert_int_equal(apart.sent[0], 0);
        fake average =
            run_algorithm("ring", rank, 2, true, true); /* what is divided later is not the result */
        assert_int_equal(average.ngiven, 0);
        fake whole = run_algorithm("flat", rank, 2, true, false);
        assert_int_equal(whole.ngiven + (int)whole.sent[0], 0);
        fake more = run_algorithm("ring", rank, 3, true, false);
        assert_int_equal(more.ngiven + (int)more.sent[0] + (int)more.sent[1], 0);
    }
}

/* ---- what keeps a message from being answered ---- */

static ddl_slice half(ddl_buffer buffer, int i)
{
    return ddl_slice_of(buffer, (size_t)i * BYTES / 2, BYTES / 2);
}

/* OUT begins so many bytes behind IN. */
static fake run_apart(void (*add)(ddl_builder *b), size_t out_offset)
{
    const ddl_group group = { .rank = 0, .nranks = 2 };
    ddl_builder *builder;
    ddl_schedule *schedule;
    ddl_error error;
    assert_int_equal(ddl_builder_create(&group, 4, &builder, &error), DDL_OK);
    ddl_builder_alias(builder, 0, out_offset);
    add(builder);
    assert_int_equal(ddl_builder_finish(builder, &schedule, &error), DDL_OK);
    return run(schedule, true);
}

static fake run_steps(void (*add)(ddl_builder *b))
{
    return run_apart(add, 0);
}

static void add_both(ddl_builder *b)
{
    ddl_step_send(b, 1, half(DDL_BUFFER_IN, 1));
    ddl_step_recv_reduce(b, 1, half(DDL_BUFFER_OUT, 0), half(DDL_BUFFER_OUT, 0), DDL_OWN_FIRST);
    ddl_step_send(b, 1, half(DDL_BUFFER_OUT, 0));
    ddl_step_recv(b, 1, half(DDL_BUFFER_OUT, 1));
}

static void add_read_before(ddl_builder *b)
{
    ddl_step_copy(b, ddl_scratch(b, 4), ddl_slice_of(DDL_BUFFER_IN, BYTES - 4, 4));
    add_both(b);
}

static void add_read_after(ddl_builder *b)
{
    add_both(b);
    ddl_step_copy(b, ddl_scratch(b, 4), ddl_slice_of(DDL_BUFFER_OUT, BYTES - 4, 4));
}

static void add_sent_twice(ddl_builder *b)
{
    ddl_step_send(b, 1, half(DDL_BUFFER_IN, 1));
    add_both(b);
}

static void add_other_slice(ddl_builder *b)
{
    ddl_step_send(b, 1, half(DDL_BUFFER_IN, 1));
    ddl_step_recv(b, 1, ddl_slice_of(DDL_BUFFER_OUT, BYTES / 2, BYTES / 2 - 4));
}

/* Of a reduce that has to wait for something else it is not known yet. */
static void add_two_messages(ddl_builder *b)
{
    ddl_slice first = ddl_scratch(b, BYTES / 2), second = ddl_scratch(b, BYTES / 2);
    ddl_step_recv(b, 1, first);
    ddl_step_recv(b, 1, second);
    ddl_step_reduce(b, half(DDL_BUFFER_OUT, 0), (ddl_slice[]){ first, second }, 2);
    ddl_step_send(b, 1, half(DDL_BUFFER_OUT, 0));
}

static void only_what_can_be_combined_as_it_comes_is_given(void **state)
{
    (void)state;
    fake f = run_steps(add_two_messages);
    assert_int_equal(f.nreceives, 2);
    assert_true(f.ngiven <= 1);
}

static void add_received_first(ddl_builder *b)
{
    ddl_step_recv(b, 1, half(DDL_BUFFER_OUT, 1));
    ddl_step_send(b, 1, half(DDL_BUFFER_OUT, 1));
}

static void add_to_the_second_half(ddl_builder *b)
{
    ddl_step_send(b, 1, half(DDL_BUFFER_IN, 1));
    ddl_step_recv(b, 1, half(DDL_BUFFER_OUT, 0));
}

static void places_are_those_in_the_memory_that_both_share(void **state)
{
    (void)state;
    assert_int_equal(run_apart(add_to_the_second_half, 0).sent[0], 0);
    assert_int_equal(run_apart(add_to_the_second_half, BYTES / 2).sent[0], 1);
    assert_int_equal(run_apart(add_both, 4).sent[0], 0);
}

static void only_what_nobody_else_touches_is_answered(void **state)
{
    (void)state;
    fake both = run_steps(add_both);
    assert_int_equal(both.sent[0], 2);
    assert_int_equal(both.received[0], 2);
    assert_int_equal(both.nanswered, 1);
    void (*const lists[])(ddl_builder *) = { add_read_before, add_read_after, add_sent_twice, add_other_slice,
                                             add_received_first };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        fake f = run_steps(lists[i]);
        for (int k = 0; k < f.nsends; k++)
            assert_int_equal(f.sent[k], 0);
    }
}

static void add_sent_before(ddl_builder *b) /* what goes there is not the result yet */
{
    ddl_step_send(b, 1, half(DDL_BUFFER_OUT, 0));
    ddl_step_recv_reduce(b, 1, half(DDL_BUFFER_OUT, 0), half(DDL_BUFFER_OUT, 0), DDL_OWN_FIRST);
}

static void add_changed(ddl_builder *b)
{
    ddl_step_recv_reduce(b, 1, half(DDL_BUFFER_OUT, 0), half(DDL_BUFFER_OUT, 0), DDL_OWN_FIRST);
    ddl_step_scale(b, ddl_slice_of(DDL_BUFFER_OUT, 0, 4));
    ddl_step_send(b, 1, half(DDL_BUFFER_OUT, 0));
}

static void add_two_operands(ddl_builder *b)
{
    ddl_step_recv_reduce(b, 1, half(DDL_BUFFER_OUT, 0), half(DDL_BUFFER_OUT, 0), DDL_OWN_FIRST);
    ddl_step_recv_reduce(b, 1, half(DDL_BUFFER_OUT, 0), half(DDL_BUFFER_OUT, 0), DDL_OWN_FIRST);
    ddl_step_send(b, 1, half(DDL_BUFFER_OUT, 0));
}

static void add_result_sent_twice(ddl_builder *b) /* neither is the only one to bring it back */
{
    ddl_step_recv_reduce(b, 1, half(DDL_BUFFER_OUT, 0), half(DDL_BUFFER_OUT, 0), DDL_OWN_FIRST);
    ddl_step_send(b, 1, half(DDL_BUFFER_OUT, 0));
    ddl_step_send(b, 1, half(DDL_BUFFER_OUT, 0));
}

static void only_the_result_is_an_answer(void **state)
{
    (void)state;
    void (*const lists[])(ddl_builder *) = { add_sent_before, add_changed, add_two_operands,
                                             add_result_sent_twice };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        fake f = run_steps(lists[i]);
        assert_true(f.nreceives > 0);
        assert_int_equal(f.ngiven + f.nanswered, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allreduces_of_two_ranks_in_place_are_answered),
        cmocka_unit_test(others_are_not),
        cmocka_unit_test(only_what_can_be_combined_as_it_comes_is_given),
        cmocka_unit_test(places_are_those_in_the_memory_that_both_share),
        cmocka_unit_test(only_what_nobody_else_touches_is_answered),
        cmocka_unit_test(only_the_result_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
