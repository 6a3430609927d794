/* test_builder.c - what waits for what, which steps exist, and how messages are numbered. */
#include "base/failpoint.h"
#include "schedule/builder.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>

static ddl_builder *new_builder(int rank, int nranks)
{
    ddl_builder *b;
    assert_int_equal(ddl_builder_create(&(ddl_group){ rank, nranks }, 4, &b, NULL), DDL_OK);
    return b;
}

static ddl_schedule *finish(ddl_builder *b)
{
    ddl_schedule *schedule;
    assert_int_equal(ddl_builder_finish(b, &schedule, NULL), DDL_OK);
    return schedule;
}

/* Whether `later` directly waits for `earlier`. */
static bool follows(const ddl_schedule *s, uint32_t earlier, uint32_t later)
{
    for (uint32_t i = 0; i < s->steps[earlier].nsuccessors; i++)
        if (s->successors[s->steps[earlier].first_successor + i] == later)
            return true;
    return false;
}

static ddl_slice in(size_t offset, size_t bytes)
{
    return ddl_slice_of(DDL_BUFFER_IN, offset, bytes);
}

static ddl_slice out(size_t offset, size_t bytes)
{
    return ddl_slice_of(DDL_BUFFER_OUT, offset, bytes);
}

static void a_read_waits_for_the_last_write_of_the_same_bytes(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 2);
    ddl_step_recv(b, 1, out(0, 16));  /* 0 */
    ddl_step_recv(b, 1, out(16, 16)); /* 1 */
    ddl_step_send(b, 1, out(8, 8));   /* 2 */
    ddl_step_send(b, 1, out(8, 16));  /* 3 */
    ddl_schedule *s = finish(b);
    assert_int_equal(s->steps[0].npredecessors, 0);
    assert_int_equal(s->steps[1].npredecessors, 0);
    assert_int_equal(s->steps[2].npredecessors, 1);
    assert_true(follows(s, 0, 2));
    assert_int_equal(s->steps[3].npredecessors, 2);
    assert_true(follows(s, 0, 3));
    assert_true(follows(s, 1, 3));
    ddl_schedule_destroy(s);
}

static void a_write_waits_for_all_reads_since_the_last_write(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 3);
    ddl_step_recv(b, 1, out(0, 16)); /* 0 */
    ddl_step_send(b, 1, out(0, 8));  /* 1 */
    ddl_step_send(b, 2, out(4, 12)); /* 2 */
    ddl_step_recv(b, 2, out(0, 16)); /* 3 */
    ddl_schedule *s = finish(b);
    assert_true(follows(s, 1, 3));
    assert_true(follows(s, 2, 3));
    assert_false(follows(s, 0, 3)); /* implied by both */
    assert_int_equal(s->steps[3].npredecessors, 2);
    ddl_schedule_destroy(s);
}

static void a_write_waits_for_an_unread_write(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 2);
    ddl_step_recv(b, 1, out(0, 16));
    ddl_step_recv(b, 1, out(8, 4));
    ddl_schedule *s = finish(b);
    assert_true(follows(s, 0, 1));
    ddl_schedule_destroy(s);
}

static void reads_do_not_wait_for_each_other(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 3);
    ddl_step_send(b, 1, in(0, 16));
    ddl_step_send(b, 2, in(0, 16));
    ddl_step_copy(b, out(0, 16), in(0, 16));
    ddl_schedule *s = finish(b);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(s->steps[i].npredecessors, 0);
    ddl_schedule_destroy(s);
}

static void buffers_that_share_memory_are_one(void **state)
{
    (void)state;
    for (int aliased = 0; aliased < 2; aliased++) {
        ddl_builder *b = new_builder(0, 2);
        if (aliased)
            ddl_builder_alias(b, 0, 32); /* OUT is IN from byte 32 on */
        ddl_step_send(b, 1, in(32, 8));
        ddl_step_recv(b, 1, out(0, 8));
        ddl_step_recv(b, 1, out(8, 8));
        ddl_schedule *s = finish(b);
        assert_int_equal(follows(s, 0, 1), aliased);
        assert_int_equal(s->steps[2].npredecessors, 0);
        ddl_schedule_destroy(s);
    }
}

static void steps_without_bytes_are_dropped_and_not_numbered(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 2);
    ddl_step_send(b, 1, in(0, 0));
    ddl_step_recv(b, 1, out(0, 0));
    ddl_step_recv_reduce(b, 1, out(0, 0), in(0, 0), DDL_OWN_FIRST);
    ddl_step_reduce(b, out(0, 0), (ddl_slice[2]){ in(0, 0), in(0, 0) }, 2);
    ddl_step_copy(b, out(0, 0), in(0, 0));
    ddl_step_scale(b, out(0, 0));
    ddl_step_send(b, 1, in(0, 4));
    ddl_schedule *s = finish(b);
    assert_int_equal(s->nsteps, 1);
    assert_int_equal(s->nmessages, 1);
    assert_int_equal(s->steps[0].number, 0);
    ddl_schedule_destroy(s);
}

static void a_copy_onto_itself_is_dropped(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(1, 2);
    ddl_builder_alias(b, 16, 0);
    ddl_step_copy(b, out(16, 8), in(0, 8));
    ddl_step_copy(b, out(16, 8), in(8, 8));
    ddl_schedule *s = finish(b);
    assert_int_equal(s->nsteps, 1);
    assert_int_equal(s->steps[0].source.offset, 8);
    ddl_schedule_destroy(s);
}

static void messages_are_numbered_per_directed_pair(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 3);
    ddl_step_send(b, 1, in(0, 4));
    ddl_step_recv(b, 1, out(0, 4));
    ddl_step_send(b, 2, in(0, 4));
    ddl_step_send(b, 1, in(0, 4));
    ddl_step_recv_reduce(b, 1, out(4, 4), out(4, 4), DDL_OWN_FIRST);
    ddl_schedule *s = finish(b);
    static const uint32_t numbers[] = { 0, 0, 0, 1, 1 };
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(s->steps[i].number, numbers[i]);
    assert_int_equal(s->nmessages, 5);
    assert_int_equal(s->largest_message, 4);
    ddl_schedule_destroy(s);
}

static void a_fresh_target_is_reduced_in_one_step(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 2);
    ddl_step_recv_reduce(b, 1, out(0, 100), out(0, 100), DDL_INCOMING_FIRST);
    ddl_schedule *s = finish(b);
    assert_int_equal(s->nsteps, 1);
    assert_int_equal(s->steps[0].kind, DDL_STEP_RECV_REDUCE);
    assert_true(s->steps[0].incoming_first);
    assert_int_equal(s->steps[0].source.buffer, DDL_BUFFER_SCRATCH);
    assert_int_equal(s->steps[0].source.bytes, 100);
    assert_int_equal(s->scratch_bytes, 128);
    ddl_schedule_destroy(s);
}

static void a_busy_target_does_not_hold_up_the_receive(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 2);
    ddl_step_send(b, 1, out(0, 8));
    ddl_step_recv_reduce(b, 1, out(0, 8), out(0, 8), DDL_OWN_FIRST);
    ddl_schedule *s = finish(b);
    assert_int_equal(s->nsteps, 3);
    assert_int_equal(s->steps[1].kind, DDL_STEP_RECV);
    assert_int_equal(s->steps[1].target.part[0].buffer, DDL_BUFFER_SCRATCH);
    assert_int_equal(s->steps[1].npredecessors, 0);
    assert_int_equal(s->steps[2].kind, DDL_STEP_REDUCE);
    assert_true(follows(s, 0, 2));
    assert_true(follows(s, 1, 2));
    assert_int_equal(s->operands[0].buffer, DDL_BUFFER_OUT); /* own first */
    assert_int_equal(s->operands[1].buffer, DDL_BUFFER_SCRATCH);
    ddl_schedule_destroy(s);
}

static void an_operand_elsewhere_is_combined_where_the_message_lands(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 2);
    ddl_step_recv_reduce(b, 1, out(0, 8), in(0, 8), DDL_INCOMING_FIRST);
    ddl_schedule *s = finish(b);
    assert_int_equal(s->nsteps, 2);
    assert_int_equal(s->scratch_bytes, 0);
    assert_int_equal(s->steps[0].target.part[0].buffer, DDL_BUFFER_OUT);
    assert_int_equal(s->operands[0].buffer, DDL_BUFFER_OUT);
    assert_int_equal(s->operands[1].buffer, DDL_BUFFER_IN);
    ddl_schedule_destroy(s);
}

static void a_wrapped_range_is_one_message_and_two_reductions(void **state)
{
    (void)state;
    ddl_blocks blocks = ddl_blocks_of_vector(DDL_BUFFER_OUT, 0, 4, 8, 4);
    ddl_builder *b = new_builder(0, 2);
    ddl_range range = ddl_blocks_circular(&blocks, 3, 2);
    ddl_step_send_range(b, 1, range);
    ddl_step_recv_reduce_range(b, 1, range, range, DDL_OWN_FIRST);
    ddl_schedule *s = finish(b);
    assert_int_equal(s->nmessages, 2);
    assert_int_equal(s->nsteps, 4);
    assert_int_equal(s->steps[1].target.part[0].bytes, 16); /* one landing */
    assert_int_equal(s->steps[2].target.part[0].offset, 24);
    assert_int_equal(s->steps[3].target.part[0].offset, 0);
    assert_int_equal(s->operands[s->steps[3].first_operand + 1].offset, 8);
    ddl_schedule_destroy(s);
}

/* Three rounds of one exchange each; sends of the third wait for the first, as two may be under way. */
static void a_window_lets_rounds_overlap(void **state)
{
    (void)state;
    ddl_builder *b;
    ddl_schedule *s;
    assert_int_equal(ddl_builder_create(&(ddl_group){ 0, 4 }, 4, &b, NULL), DDL_OK);
    for (int i = 1; i <= 3; i++) {
        ddl_builder_round(b, 2);
        ddl_builder_round(b, 2); /* an empty round is none */
        ddl_step_recv(b, i, ddl_slice_of(DDL_BUFFER_OUT, (size_t)i * 8, 8));
        ddl_step_send(b, i, ddl_slice_of(DDL_BUFFER_IN, (size_t)i * 8, 8));
    }
    assert_int_equal(ddl_builder_finish(b, &s, NULL), DDL_OK);
    assert_int_equal(s->nsteps, 6);
    static const uint32_t npredecessors[] = { 0, 0, 0, 0, 0, 2 };
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(s->steps[i].npredecessors, npredecessors[i]);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(s->steps[i].nsuccessors, 1);
        assert_int_equal(s->successors[s->steps[i].first_successor], 5);
    }
    ddl_schedule_destroy(s);
}

static void peers_are_members_while_members_are_said(void **state)
{
    (void)state;
    static const int members[] = { 5, 2 };
    ddl_builder *b;
    ddl_schedule *s;
    assert_int_equal(ddl_builder_create(&(ddl_group){ 2, 6 }, 4, &b, NULL), DDL_OK);
    ddl_builder_members(b, members);
    ddl_step_send(b, 0, ddl_slice_of(DDL_BUFFER_IN, 0, 8));
    ddl_builder_members(b, NULL);
    ddl_step_send(b, 0, ddl_slice_of(DDL_BUFFER_IN, 0, 8));
    ddl_step_send(b, 5, ddl_slice_of(DDL_BUFFER_IN, 0, 8));
    assert_int_equal(ddl_builder_finish(b, &s, NULL), DDL_OK);
    static const struct {
        int peer;
        uint32_t number;
    } expected[] = { { 5, 0 }, { 0, 0 }, { 5, 1 } };
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(s->steps[i].peer, expected[i].peer);
        assert_int_equal(s->steps[i].number, expected[i].number);
    }
    ddl_schedule_destroy(s);
}

static void memory_of_an_algorithm_is_zero_and_too_much_is_told(void **state)
{
    (void)state;
    ddl_builder *b;
    ddl_schedule *s = NULL;
    assert_int_equal(ddl_builder_create(&(ddl_group){ 0, 2 }, 4, &b, NULL), DDL_OK);
    size_t *first = ddl_builder_alloc(b, 100, sizeof *first),
           *second = ddl_builder_alloc(b, 1, sizeof *second);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(first[i], 0);
    first[99] = 1;
    assert_int_equal(*second, 0);
    assert_null(ddl_builder_alloc(b, SIZE_MAX, 2));
    assert_int_equal(ddl_builder_finish(b, &s, NULL), DDL_ENOMEM);
    assert_null(s);
}

static void sends_behind_a_fence_wait_for_the_round_before(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 2);
    ddl_step_recv(b, 1, out(0, 4)); /* 0 */
    ddl_step_send(b, 1, in(0, 4));  /* 1 */
    ddl_builder_fence(b);
    ddl_step_recv(b, 1, out(4, 4)); /* 2 */
    ddl_step_send(b, 1, in(4, 4));  /* 3 */
    ddl_schedule *s = finish(b);
    assert_int_equal(s->steps[2].npredecessors, 0);
    assert_int_equal(s->steps[3].npredecessors, 2);
    ddl_schedule_destroy(s);
}

static void scratch_is_aligned_and_does_not_overlap(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 2);
    ddl_slice x = ddl_scratch(b, 1), y = ddl_scratch(b, 65), z = ddl_scratch(b, 4);
    assert_int_equal(x.offset, 0);
    assert_int_equal(y.offset, 64);
    assert_int_equal(z.offset, 192);
    ddl_schedule *s = finish(b);
    assert_int_equal(s->scratch_bytes, 256);
    ddl_schedule_destroy(s);
}

static void scratch_beyond_size_t_is_an_error_that_is_kept(void **state)
{
    (void)state;
    ddl_builder *b = new_builder(0, 2);
    (void)ddl_scratch(b, SIZE_MAX - 100);
    (void)ddl_scratch(b, SIZE_MAX - 100);
    ddl_step_send(b, 1, in(0, 4));
    ddl_schedule *schedule = NULL;
    ddl_error err = { 0 };
    assert_int_equal(ddl_builder_finish(b, &schedule, &err), DDL_EINVAL);
    assert_null(schedule);
    assert_non_null(err.text);
}

static void a_long_schedule_keeps_every_dependency(void **state)
{
    (void)state;
    enum { ROUNDS = 3000 };
    ddl_builder *b = new_builder(0, 2);
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t at = 4 * (i * 1021 % ROUNDS); /* out of order */
        ddl_step_recv(b, 1, out(at, 4));
    }
    for (size_t i = 0; i < ROUNDS; i++)
        ddl_step_send(b, 1, out(4 * i, 4));
    ddl_schedule *s = finish(b);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        assert_int_equal(s->steps[ROUNDS + i].npredecessors, 1);
        assert_int_equal(s->steps[i].nsuccessors, 1);
        uint32_t successor = s->successors[s->steps[i].first_successor];
        assert_int_equal(s->steps[successor].target.part[0].offset, s->steps[i].target.part[0].offset);
    }
    ddl_schedule_destroy(s);
}

#ifdef DDL_FAILPOINTS
static ddl_status build_something(void)
{
    ddl_builder *b;
    DDL_TRY(ddl_builder_create(&(ddl_group){ 0, 2 }, 4, &b, NULL));
    for (size_t i = 0; i < 100; i++) {
        ddl_step_recv_reduce(b, 1, out(16 * i, 8), out(16 * i, 8), DDL_OWN_FIRST);
        ddl_step_send(b, 1, out(16 * i + 4, 8));
        ddl_step_recv_reduce(b, 1, out(16 * i, 16), out(16 * i, 16), DDL_OWN_FIRST);
        ddl_builder_fence(b);
    }
    ddl_schedule *schedule;
    DDL_TRY(ddl_builder_finish(b, &schedule, NULL));
    ddl_schedule_destroy(schedule);
    return DDL_OK;
}

static void running_out_of_memory_anywhere_is_an_error(void **state)
{
    (void)state;
    ddl_status status = DDL_ENOMEM;
    int nth = 0;
    while (status != DDL_OK) {
        char setting[32];
        snprintf(setting, sizeof setting, "base.alloc:%d", ++nth);
        ddl_failpoint_arm(setting);
        status = build_something();
        ddl_failpoint_arm(NULL);
        assert_true(status == DDL_OK || status == DDL_ENOMEM);
    }
    assert_true(nth > 10);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_waits_for_the_last_write_of_the_same_bytes),
        cmocka_unit_test(a_write_waits_for_all_reads_since_the_last_write),
        cmocka_unit_test(a_write_waits_for_an_unread_write),
        cmocka_unit_test(reads_do_not_wait_for_each_other),
        cmocka_unit_test(buffers_that_share_memory_are_one),
        cmocka_unit_test(steps_without_bytes_are_dropped_and_not_numbered),
        cmocka_unit_test(a_copy_onto_itself_is_dropped),
        cmocka_unit_test(messages_are_numbered_per_directed_pair),
        cmocka_unit_test(a_fresh_target_is_reduced_in_one_step),
        cmocka_unit_test(a_busy_target_does_not_hold_up_the_receive),
        cmocka_unit_test(an_operand_elsewhere_is_combined_where_the_message_lands),
        cmocka_unit_test(a_wrapped_range_is_one_message_and_two_reductions),
        cmocka_unit_test(a_window_lets_rounds_overlap),
        cmocka_unit_test(peers_are_members_while_members_are_said),
        cmocka_unit_test(memory_of_an_algorithm_is_zero_and_too_much_is_told),
        cmocka_unit_test(sends_behind_a_fence_wait_for_the_round_before),
        cmocka_unit_test(scratch_is_aligned_and_does_not_overlap),
        cmocka_unit_test(scratch_beyond_size_t_is_an_error_that_is_kept),
        cmocka_unit_test(a_long_schedule_keeps_every_dependency),
#ifdef DDL_FAILPOINTS
        cmocka_unit_test(running_out_of_memory_anywhere_is_an_error),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
