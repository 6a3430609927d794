/*
 * test_check.c - the checker objects to broken schedules, each proof for its own reason.
 *
 * Right schedules are built, broken in one place, and given to the checker.
 */
#include "base/bytes.h"
#include "schedule/builder.h"
#include "simulate/check.h"
#include "simulate/patterns.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 16 };

typedef struct world {
    ddl_collective collective;
    ddl_shape shape;
    ddl_schedule *schedules[MOST_RANKS];
    ddl_checker *checker;
    size_t *counts; /* of the v forms */
    char text[512]; /* of the last failure */
} world;

static world make_world(ddl_collective collective, const char *name, ddl_shape shape)
{
    world w = { .collective = collective, .shape = shape };
    w.shape.element_bytes = collective == DDL_COLLECTIVE_BARRIER ? 1 : 4;
    if (w.shape.stride == 0)
        w.shape.stride = w.shape.count;
    if (ddl_collective_is_uneven(collective))
        assert_true(ddl_pattern_apply(DDL_PATTERN_RISING, collective, w.shape.count,
                                      w.shape.stride - w.shape.count, &w.shape, &w.counts));
    assert_int_equal(ddl_checker_create(&w.checker, NULL), DDL_OK);
    for (int rank = 0; rank < shape.nranks && name != NULL; rank++) {
        ddl_shape own;
        ddl_collective role;
        if (!ddl_shape_of_rank(&w.shape, collective, rank, &own, &role))
            continue;
        const ddl_algorithm *row = ddl_catalogue_find(role, name);
        assert_non_null(row);
        assert_int_equal(row->build(&own, &w.schedules[rank], NULL), DDL_OK);
    }
    return w;
}

static void end_world(world *w)
{
    for (int rank = 0; rank < w->shape.nranks; rank++)
        ddl_schedule_destroy(w->schedules[rank]);
    ddl_free(w->counts);
    ddl_checker_destroy(w->checker);
}

static ddl_proof proof_that_fails(world *w)
{
    ddl_error err = { 0 };
    ddl_status status = ddl_check_schedules(w->checker, w->collective, &w->shape,
                                            (const ddl_schedule *const *)w->schedules, &err);
    ddl_proof failed = ddl_checker_failed(w->checker);
    snprintf(w->text, sizeof w->text, "%s", err.text);
    assert_int_equal(status, failed == DDL_PROOF_NONE ? DDL_OK : DDL_EINTERNAL);
    if (failed != DDL_PROOF_NONE) /* the text begins with the proof */
        assert_memory_equal(err.text, ddl_proof_name(failed), strlen(ddl_proof_name(failed)));
    return failed;
}

/* The nth step of this kind. */
static ddl_step *step_of(world *w, int rank, ddl_step_kind kind, int nth)
{
    ddl_schedule *s = w->schedules[rank];
    for (uint32_t i = 0; i < s->nsteps; i++)
        if (s->steps[i].kind == kind && nth-- == 0)
            return &s->steps[i];
    fail_msg("rank %d has no such step", rank);
    return NULL;
}

/* A step that waits for nobody, for whom nobody waits, and that does nothing: it was left out. */
static void leave_out_last(world *w, int rank)
{
    ddl_schedule *s = w->schedules[rank];
    uint32_t last = --s->nsteps;
    for (uint32_t i = 0; i < last; i++) {
        ddl_step *step = &s->steps[i];
        for (uint32_t j = 0; j < step->nsuccessors; j++)
            if (s->successors[step->first_successor + j] == last) {
                s->successors[step->first_successor + j] =
                    s->successors[step->first_successor + step->nsuccessors - 1];
                step->nsuccessors--;
                break;
            }
    }
}

static const ddl_shape five = { .nranks = 5, .count = 11 };
static const ddl_shape eight = { .nranks = 8, .count = 17 };

static void right_schedules_are_proved(void **state)
{
    (void)state;
    static const char *const names[] = {
        "flat", "doubling", "halving_doubling", "ring", "direct", "circulant"
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (int average = 0; average < 2; average++) {
                ddl_shape shape = five;
                shape.in_place = in_place == 1;
                shape.average = average == 1;
                world w = make_world(DDL_COLLECTIVE_ALLREDUCE, names[i], shape);
                assert_int_equal(proof_that_fails(&w), DDL_PROOF_NONE);
                end_world(&w);
            }
}

/* ---- structure ---- */

static void a_wrong_count_of_predecessors_is_seen(void **state)
{
    (void)state;
    for (int wrong = -1; wrong <= 1; wrong += 2) {
        world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "flat", five);
        step_of(&w, 2, DDL_STEP_REDUCE, 0)->npredecessors += (uint32_t)wrong;
        assert_int_equal(proof_that_fails(&w), DDL_PROOF_STRUCTURE);
        end_world(&w);
    }
}

static void a_successor_that_comes_earlier_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "ring", five);
    ddl_schedule *s = w.schedules[1];
    for (uint32_t i = 1; i < s->nsteps; i++)
        if (s->steps[i].nsuccessors > 0) {
            s->successors[s->steps[i].first_successor] = i;
            break;
        }
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_STRUCTURE);
    end_world(&w);
}

static void slices_of_one_step_must_agree_in_size(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "flat", five);
    w.schedules[0]->operands[1].bytes -= 4;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_STRUCTURE);
    end_world(&w);
}

static void slices_of_one_step_must_not_overlap_in_part(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLTOALL, "direct", five);
    ddl_step *copy = step_of(&w, 3, DDL_STEP_COPY, 0);
    copy->source.buffer = copy->target.part[0].buffer;
    copy->source.offset = copy->target.part[0].offset - 4;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_STRUCTURE);
    end_world(&w);
}

static void a_schedule_of_another_rank_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "ring", five);
    ddl_schedule *swap = w.schedules[1];
    w.schedules[1] = w.schedules[2];
    w.schedules[2] = swap;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_STRUCTURE);
    end_world(&w);
}

/* ---- bounds ---- */

static void writing_the_input_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLGATHER, "ring", five);
    step_of(&w, 0, DDL_STEP_RECV, 0)->target.part[0] = ddl_slice_of(DDL_BUFFER_IN, 0, 44);
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_BOUNDS);
    end_world(&w);
}

static void writing_behind_the_result_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLGATHER, "ring", five);
    step_of(&w, 0, DDL_STEP_RECV, 0)->target.part[0].offset = 44 * 5 - 40;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_BOUNDS);
    end_world(&w);
}

static void touching_the_gaps_between_blocks_is_seen(void **state)
{
    (void)state;
    world w =
        make_world(DDL_COLLECTIVE_ALLTOALL, "direct", (ddl_shape){ .nranks = 4, .count = 5, .stride = 8 });
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_NONE);
    step_of(&w, 2, DDL_STEP_SEND, 1)->target.part[0].offset += 4;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_BOUNDS);
    end_world(&w);
}

static void a_reduce_must_not_touch_out_off_the_root(void **state)
{
    (void)state;
    world w =
        make_world(DDL_COLLECTIVE_REDUCE, "binomial", (ddl_shape){ .nranks = 5, .count = 3, .root = 1 });
    step_of(&w, 3, DDL_STEP_RECV, 0)->target.part[0] = ddl_slice_of(DDL_BUFFER_OUT, 0, 12);
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_BOUNDS);
    end_world(&w);
}

static void scratch_that_was_not_asked_for_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "flat", five);
    w.schedules[4]->scratch_bytes = 64;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_BOUNDS);
    end_world(&w);
}

static void half_an_element_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "ring", five);
    step_of(&w, 0, DDL_STEP_SEND, 0)->target.part[0].bytes -= 2;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_BOUNDS);
    end_world(&w);
}

/* ---- overlap ---- */

/* Remove one edge of the order. */
static void drop_edge(ddl_schedule *s, uint32_t from, uint32_t nth)
{
    ddl_step *step = &s->steps[from];
    uint32_t *successors = s->successors + step->first_successor;
    s->steps[successors[nth]].npredecessors--;
    successors[nth] = successors[--step->nsuccessors];
}

static bool leads_to(const ddl_schedule *s, uint32_t from, uint32_t to)
{
    if (from == to)
        return true;
    for (uint32_t i = 0; i < s->steps[from].nsuccessors; i++) {
        uint32_t next = s->successors[s->steps[from].first_successor + i];
        if (next <= to && leads_to(s, next, to))
            return true;
    }
    return false;
}

/* Every edge that the builder derived is necessary, unless other edges imply it. */
static void each_dropped_dependency_is_seen(void **state)
{
    (void)state;
    static const struct {
        ddl_collective collective;
        const char *name;
    } cases[] = {
        { DDL_COLLECTIVE_ALLREDUCE, "flat" },      { DDL_COLLECTIVE_ALLREDUCE, "doubling" },
        { DDL_COLLECTIVE_ALLREDUCE, "ring" },      { DDL_COLLECTIVE_ALLREDUCE, "halving_doubling" },
        { DDL_COLLECTIVE_ALLREDUCE, "direct" },    { DDL_COLLECTIVE_ALLREDUCE, "circulant" },
        { DDL_COLLECTIVE_REDUCE_SCATTER, "ring" }, { DDL_COLLECTIVE_REDUCE_SCATTER, "circulant" },
        { DDL_COLLECTIVE_ALLGATHER, "circulant" }, { DDL_COLLECTIVE_ALLTOALL, "direct" },
        { DDL_COLLECTIVE_REDUCE, "binomial" },     { DDL_COLLECTIVE_BROADCAST, "binomial" },
        { DDL_COLLECTIVE_GATHER, "binomial" },     { DDL_COLLECTIVE_SCATTERV, "binomial" },
    };
    int nseen = 0, nimplied = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            ddl_shape shape = { .nranks = 5, .count = 11, .in_place = in_place == 1, .average = true };
            world w = make_world(cases[i].collective, cases[i].name, shape);
            for (uint32_t from = 0; from < w.schedules[2]->nsteps; from++)
                for (uint32_t nth = 0; nth < w.schedules[2]->steps[from].nsuccessors; nth++) {
                    world broken = make_world(cases[i].collective, cases[i].name, shape);
                    ddl_schedule *s = broken.schedules[2];
                    uint32_t to = s->successors[s->steps[from].first_successor + nth];
                    drop_edge(s, from, nth);
                    bool implied = leads_to(s, from, to);
                    if (proof_that_fails(&broken) != (implied ? DDL_PROOF_NONE : DDL_PROOF_OVERLAP))
                        fail_msg("%s/%s%s: step %u -> %u: %s", ddl_collective_name(cases[i].collective),
                                 cases[i].name, in_place ? " in place" : "", from, to, broken.text);
                    nseen += !implied;
                    nimplied += implied;
                    end_world(&broken);
                }
            end_world(&w);
        }
    assert_true(nseen > 150);
    assert_int_equal(nimplied, 0);
}

static void a_landing_used_twice_without_order_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "flat", five);
    ddl_step *second = step_of(&w, 1, DDL_STEP_RECV, 1);
    second->target = step_of(&w, 1, DDL_STEP_RECV, 0)->target;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_OVERLAP);
    assert_non_null(strstr(w.text, "rank 1"));
    end_world(&w);
}

static void in_place_buffers_are_one_memory(void **state)
{
    (void)state;
    /* Schedules for separate buffers reuse OUT without waiting for IN. */
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "ring", five);
    w.shape.in_place = true;
    assert_true(proof_that_fails(&w) != DDL_PROOF_NONE);
    end_world(&w);
}

/* ---- channel ---- */

static void a_message_to_another_peer_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "ring", five);
    step_of(&w, 0, DDL_STEP_SEND, 0)->peer = 3;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_CHANNEL);
    end_world(&w);
}

static void a_message_left_out_is_seen_on_either_side(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        world w = make_world(DDL_COLLECTIVE_BROADCAST, "binomial", (ddl_shape){ .nranks = 2, .count = 3 });
        leave_out_last(&w, rank);
        assert_int_equal(proof_that_fails(&w), DDL_PROOF_CHANNEL);
        assert_non_null(strstr(w.text, rank == 0 ? "does not send" : "does not expect"));
        end_world(&w);
    }
}

static void messages_that_differ_in_bytes_are_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "direct", five);
    step_of(&w, 4, DDL_STEP_SEND, 0)->target.part[0].bytes -= 4;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_CHANNEL);
    assert_non_null(strstr(w.text, "bytes"));
    end_world(&w);
}

static void messages_numbered_differently_are_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "ring", five);
    step_of(&w, 2, DDL_STEP_SEND, 0)->number = 1;
    step_of(&w, 2, DDL_STEP_SEND, 1)->number = 0;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_CHANNEL);
    end_world(&w);
}

static void a_rank_that_does_nothing_is_missed(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "ring", five);
    ddl_schedule_destroy(w.schedules[3]);
    w.schedules[3] = NULL;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_CHANNEL);
    end_world(&w);
}

/* ---- progress ---- */

/* Each of two ranks waits for the other before it sends. */
static void a_deadlock_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, NULL, (ddl_shape){ .nranks = 2, .count = 4 });
    for (int rank = 0; rank < 2; rank++) {
        ddl_builder *b;
        assert_int_equal(ddl_builder_create(&(ddl_group){ rank, 2 }, 4, &b, NULL), DDL_OK);
        ddl_slice out = ddl_slice_of(DDL_BUFFER_OUT, 0, 16);
        ddl_step_recv(b, 1 - rank, out);
        ddl_step_send(b, 1 - rank, out);
        assert_int_equal(ddl_builder_finish(b, &w.schedules[rank], NULL), DDL_OK);
    }
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_PROGRESS);
    assert_non_null(strstr(w.text, "waits for ever"));
    end_world(&w);
}

/* Sends that wait for each other around a ring work only if someone buffers a message. */
static void a_ring_that_needs_buffering_is_seen(void **state)
{
    (void)state;
    for (int buffered = 0; buffered < 2; buffered++) {
        world w = make_world(DDL_COLLECTIVE_ALLTOALL, NULL, (ddl_shape){ .nranks = 3, .count = 1 });
        for (int rank = 0; rank < 3; rank++) {
            ddl_group g = { rank, 3 };
            ddl_blocks in = ddl_blocks_apart(DDL_BUFFER_IN, 0, 3, 1, 1, 4);
            ddl_blocks out = ddl_blocks_apart(DDL_BUFFER_OUT, 0, 3, 1, 1, 4);
            ddl_builder *b;
            assert_int_equal(ddl_builder_create(&g, 4, &b, NULL), DDL_OK);
            ddl_slice token = ddl_scratch(b, 4);
            for (int i = 1; i < 3; i++) {
                int to = ddl_group_peer(&g, i), from = ddl_group_peer(&g, -i);
                /* The receive is posted when the send has left: both touch the token. */
                if (buffered) {
                    ddl_step_copy(b, token, ddl_block(&in, to));
                    ddl_step_send(b, to, token);
                    ddl_step_recv(b, from, token);
                    ddl_step_copy(b, ddl_block(&out, from), token);
                } else {
                    ddl_step_send(b, to, ddl_block(&in, to));
                    ddl_step_recv(b, from, ddl_block(&out, from));
                }
            }
            ddl_step_copy(b, ddl_block(&out, rank), ddl_block(&in, rank));
            assert_int_equal(ddl_builder_finish(b, &w.schedules[rank], NULL), DDL_OK);
        }
        assert_int_equal(proof_that_fails(&w), buffered ? DDL_PROOF_PROGRESS : DDL_PROOF_NONE);
        end_world(&w);
    }
}

/* ---- value ---- */

static void an_operand_counted_twice_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "flat", five);
    ddl_schedule *s = w.schedules[2];
    s->operands[3] = s->operands[4];
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_VALUE);
    end_world(&w);
}

static void a_step_left_out_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLGATHER, "direct", five);
    leave_out_last(&w, 1); /* the copy of the own block */
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_VALUE);
    end_world(&w);
}

static void a_shifted_slice_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLTOALL, "pairwise", eight);
    ddl_step *send = step_of(&w, 5, DDL_STEP_SEND, 2);
    send->target.part[0].offset += send->target.part[0].offset == 0 ? 4 : (size_t)-4;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_VALUE);
    end_world(&w);
}

static void scratch_that_was_never_written_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_REDUCE_SCATTER, "direct", five);
    ddl_schedule *s = w.schedules[0];
    ddl_step *reduce = step_of(&w, 0, DDL_STEP_REDUCE, 0);
    ddl_slice *operand = &s->operands[reduce->first_operand + 1];
    s->scratch_bytes += 64;
    operand->offset = s->scratch_bytes - 64;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_VALUE);
    end_world(&w);
}

static void a_barrier_must_hear_of_every_rank(void **state)
{
    (void)state;
    for (uint32_t dropped = 0; dropped < 2; dropped++) {
        world w = make_world(DDL_COLLECTIVE_BARRIER, "dissemination", (ddl_shape){ .nranks = 8 });
        assert_int_equal(proof_that_fails(&w), DDL_PROOF_NONE);
        if (dropped == 1) { /* the last round's send no longer waits for the round before */
            ddl_schedule *s = w.schedules[3];
            for (uint32_t i = 0; i + 2 < s->nsteps; i++)
                while (i >= s->nsteps - 4 && s->steps[i].nsuccessors > 0)
                    drop_edge(s, i, 0);
            assert_int_equal(proof_that_fails(&w), DDL_PROOF_VALUE);
            assert_non_null(strstr(w.text, "barrier"));
        }
        end_world(&w);
    }
}

/* ---- bits ---- */

static void swapped_operands_on_one_rank_are_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, "doubling", eight);
    ddl_schedule *s = w.schedules[6];
    ddl_step *reduce = step_of(&w, 6, DDL_STEP_REDUCE, 2); /* the last round's */
    ddl_slice swap = s->operands[reduce->first_operand];
    s->operands[reduce->first_operand] = s->operands[reduce->first_operand + 1];
    s->operands[reduce->first_operand + 1] = swap;
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_BITS);
    assert_non_null(strstr(w.text, "rank 6"));
    end_world(&w);
}

static void a_received_operand_on_the_wrong_side_is_seen(void **state)
{
    (void)state;
    ddl_shape shape = { .nranks = 3, .count = 4, .in_place = true };
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, NULL, shape);
    /* Everyone adds what it gets on its own right: the same sums in other orders. */
    for (int rank = 0; rank < 3; rank++) {
        ddl_group g = { rank, 3 };
        ddl_builder *b;
        assert_int_equal(ddl_builder_create(&g, 4, &b, NULL), DDL_OK);
        ddl_slice out = ddl_slice_of(DDL_BUFFER_OUT, 0, 16);
        ddl_builder_alias(b, 0, 0);
        ddl_step_send(b, ddl_group_next(&g), out);
        ddl_step_send(b, ddl_group_prev(&g), out);
        ddl_step_recv_reduce(b, ddl_group_next(&g), out, out, DDL_OWN_FIRST);
        ddl_step_recv_reduce(b, ddl_group_prev(&g), out, out, DDL_OWN_FIRST);
        assert_int_equal(ddl_builder_finish(b, &w.schedules[rank], NULL), DDL_OK);
    }
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_BITS);
    end_world(&w);
}

/* ---- scale ---- */

static void a_missing_or_repeated_division_is_seen(void **state)
{
    (void)state;
    ddl_shape shape = five;
    shape.average = true;
    world without = make_world(DDL_COLLECTIVE_ALLREDUCE, "flat", shape);
    leave_out_last(&without, 3);
    assert_int_equal(proof_that_fails(&without), DDL_PROOF_SCALE);
    end_world(&without);

    world undue = make_world(DDL_COLLECTIVE_ALLREDUCE, "flat", shape);
    undue.shape.average = false;
    assert_int_equal(proof_that_fails(&undue), DDL_PROOF_SCALE);
    end_world(&undue);
}

static void dividing_before_summing_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLREDUCE, NULL,
                         (ddl_shape){ .nranks = 2, .count = 4, .in_place = true, .average = true });
    for (int rank = 0; rank < 2; rank++) {
        ddl_builder *b;
        assert_int_equal(ddl_builder_create(&(ddl_group){ rank, 2 }, 4, &b, NULL), DDL_OK);
        ddl_builder_alias(b, 0, 0);
        ddl_slice out = ddl_slice_of(DDL_BUFFER_OUT, 0, 16);
        ddl_step_scale(b, out);
        ddl_step_send(b, 1 - rank, out);
        ddl_step_recv_reduce(b, 1 - rank, out, out, rank == 0 ? DDL_OWN_FIRST : DDL_INCOMING_FIRST);
        assert_int_equal(ddl_builder_finish(b, &w.schedules[rank], NULL), DDL_OK);
    }
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_VALUE);
    end_world(&w);
}

/* ---- everything ---- */

typedef enum mutation {
    OTHER_PEER,
    OTHER_NUMBER,
    SHIFTED,
    SHORTER,
    OTHER_KIND,
    SHIFTED_SOURCE,
    MUTATIONS
} mutation;

/* False: makes no sense for this step. */
static bool mutate(ddl_step *step, int nranks, mutation m)
{
    bool message = step->peer >= 0;
    switch (m) {
    case OTHER_PEER:
        step->peer = (step->peer + 1) % nranks;
        return message;
    case OTHER_NUMBER:
        step->number++;
        return message;
    case SHIFTED:
        step->target.part[0].offset += step->target.part[0].offset == 0 ? 4 : (size_t)-4;
        return true;
    case SHORTER:
        step->target.part[0].bytes -= 4;
        return true;
    case OTHER_KIND:
        step->kind = step->kind == DDL_STEP_SEND   ? DDL_STEP_RECV
                     : step->kind == DDL_STEP_RECV ? DDL_STEP_SEND
                                                   : step->kind;
        return step->kind == DDL_STEP_RECV || step->kind == DDL_STEP_SEND;
    case SHIFTED_SOURCE:
        step->source.offset += step->source.offset == 0 ? 4 : (size_t)-4;
        return step->kind == DDL_STEP_COPY;
    case MUTATIONS:
        break;
    }
    return false;
}

/* Any of these changes to any step of any rank breaks the collective, so the checker must object. */
static void every_small_change_to_every_step_is_seen(void **state)
{
    (void)state;
    static const struct {
        ddl_collective collective;
        int nranks;
    } cases[] = {
        { DDL_COLLECTIVE_ALLREDUCE, 3 },      { DDL_COLLECTIVE_ALLREDUCE, 4 },
        { DDL_COLLECTIVE_REDUCE_SCATTER, 4 }, { DDL_COLLECTIVE_ALLGATHER, 4 },
        { DDL_COLLECTIVE_ALLTOALL, 3 },       { DDL_COLLECTIVE_BROADCAST, 5 },
        { DDL_COLLECTIVE_REDUCE, 5 },         { DDL_COLLECTIVE_SEND, 3 },
        { DDL_COLLECTIVE_GATHER, 5 },         { DDL_COLLECTIVE_SCATTER, 5 },
        { DDL_COLLECTIVE_GATHERV, 5 },        { DDL_COLLECTIVE_SCATTERV, 5 },
        { DDL_COLLECTIVE_ALLGATHERV, 4 },     { DDL_COLLECTIVE_REDUCE_SCATTERV, 4 },
        { DDL_COLLECTIVE_ALLTOALLV, 4 },
    };
    size_t nrows, nseen = 0;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t j = 0; j < nrows; j++) {
            if (rows[j].collective != cases[i].collective)
                continue;
            ddl_shape shape = { .nranks = cases[i].nranks,
                                .count = 9,
                                .root = cases[i].collective == DDL_COLLECTIVE_REDUCE };
            world w = make_world(cases[i].collective, rows[j].name, shape);
            for (int rank = 0; rank < shape.nranks; rank++)
                for (uint32_t step = 0; w.schedules[rank] != NULL && step < w.schedules[rank]->nsteps; step++)
                    for (int m = 0; m < MUTATIONS; m++) {
                        ddl_step saved = w.schedules[rank]->steps[step];
                        bool sensible = mutate(&w.schedules[rank]->steps[step], shape.nranks, (mutation)m);
                        if (sensible && proof_that_fails(&w) == DDL_PROOF_NONE)
                            fail_msg("%s/%s: mutation %d of rank %d step %u was not seen",
                                     ddl_collective_name(rows[j].collective), rows[j].name, m, rank, step);
                        nseen += sensible;
                        w.schedules[rank]->steps[step] = saved;
                    }
            assert_int_equal(proof_that_fails(&w), DDL_PROOF_NONE);
            end_world(&w);
        }
    assert_true(nseen > 1000);
}

static void all_small_worlds_are_proved_with_gaps_and_averages(void **state)
{
    (void)state;
    ddl_checker *checker;
    assert_int_equal(ddl_checker_create(&checker, NULL), DDL_OK);
    size_t nrows, *counts = NULL;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++)
        for (int nranks = 2; nranks <= 8; nranks++)
            for (size_t count = 0; count <= 9; count++)
                for (int variant = 0; variant < 8; variant++) {
                    ddl_shape shape = { .nranks = nranks,
                                        .root = (int)count % nranks,
                                        .count = count,
                                        .stride = count + (variant & 1 ? 2 : 0),
                                        .element_bytes = rows[i].collective == DDL_COLLECTIVE_BARRIER ? 1 : 8,
                                        .in_place = (variant & 2) != 0,
                                        .average = (variant & 4) != 0 };
                    ddl_error err = { 0 };
                    int node_of[8];
                    shape.placement = ddl_spread_apply(
                        (ddl_spread)((count + (size_t)variant) % DDL_SPREAD_COUNT), nranks, node_of);
                    if (ddl_collective_is_uneven(rows[i].collective))
                        assert_true(ddl_pattern_apply((ddl_pattern)(count % DDL_PATTERN_COUNT),
                                                      rows[i].collective, count, shape.stride - count, &shape,
                                                      &counts));
                    if (ddl_algorithm_takes(&rows[i], nranks) &&
                        ddl_check_algorithm(checker, &rows[i], &shape, &err) != DDL_OK)
                        fail_msg("%s on %d ranks, count %zu, variant %d: %s", rows[i].name, nranks, count,
                                 variant, err.text);
                }
    ddl_free(counts);
    ddl_checker_destroy(checker);
}

/*
 * Calls of more than 2^32 elements. Their schedules are built as they are; as all borders lie at multiples of
 * UNIT elements, the checker takes that many bytes for an element.
 */
static void calls_beyond_2_to_32_elements_are_proved(void **state)
{
    (void)state;
    static const size_t unit = (size_t)1 << 27;
    static const int ranks[] = { 2, 3, 5, 8, 13 };
    size_t nrows, *counts = NULL, *small_counts = NULL;
    const ddl_algorithm *rows = ddl_catalogue(&nrows);
    for (size_t i = 0; i < nrows; i++)
        for (size_t j = 0; j < 2 * sizeof ranks / sizeof ranks[0]; j++) {
            int p = ranks[j / 2];
            ddl_collective c = rows[i].collective;
            if (!ddl_algorithm_takes(&rows[i], p) || c == DDL_COLLECTIVE_BARRIER)
                continue;
            size_t units = 64 * (size_t)p; /* all numbers of blocks divide it */
            ddl_shape large = { .nranks = p,
                                .root = p / 2,
                                .count = units * unit,
                                .stride = (units + j % 2) * unit,
                                .element_bytes = 4,
                                .in_place = c == DDL_COLLECTIVE_BROADCAST },
                      small = large;
            assert_true(large.count > UINT32_MAX);
            small.count = units;
            small.stride = units + j % 2;
            small.element_bytes = 4 * unit;
            if (ddl_collective_is_uneven(c)) {
                assert_true(
                    ddl_pattern_apply(DDL_PATTERN_RISING, c, large.count, j % 2 * unit, &large, &counts));
                assert_true(ddl_pattern_apply(DDL_PATTERN_RISING, c, units, j % 2, &small, &small_counts));
            }
            world w = { .collective = c, .shape = small };
            assert_int_equal(ddl_checker_create(&w.checker, NULL), DDL_OK);
            for (int rank = 0; rank < p; rank++) {
                ddl_shape own;
                ddl_collective role;
                if (!ddl_shape_of_rank(&large, c, rank, &own, &role))
                    continue;
                assert_int_equal(
                    ddl_catalogue_find(role, rows[i].name)->build(&own, &w.schedules[rank], NULL), DDL_OK);
                w.schedules[rank]->element_bytes = small.element_bytes;
            }
            if (proof_that_fails(&w) != DDL_PROOF_NONE)
                fail_msg("%s/%s on %d ranks: %s", ddl_collective_name(c), rows[i].name, p, w.text);
            end_world(&w);
        }
    ddl_free(counts);
    ddl_free(small_counts);
}

/* An atom of the result that lies over two blocks was looked at in its first element only. */
static void a_wrong_block_behind_a_right_one_is_seen(void **state)
{
    (void)state;
    world w = make_world(DDL_COLLECTIVE_ALLTOALL, NULL, (ddl_shape){ .nranks = 3, .count = 2 });
    for (int rank = 0; rank < 3; rank++) {
        ddl_group g = { rank, 3 };
        ddl_blocks in = ddl_blocks_apart(DDL_BUFFER_IN, 0, 3, 2, 2, 4);
        ddl_blocks out = ddl_blocks_apart(DDL_BUFFER_OUT, 0, 3, 2, 2, 4);
        ddl_builder *b;
        assert_int_equal(ddl_builder_create(&g, 4, &b, NULL), DDL_OK);
        /* Rank 0 takes blocks 0 and 1 of its own input for those of ranks 0 and 1. */
        for (int peer = 0; peer < 3; peer++) {
            if (peer == rank)
                continue;
            if (!(rank == 0 && peer == 1))
                ddl_step_recv(b, peer, ddl_block(&out, peer));
            if (!(rank == 1 && peer == 0))
                ddl_step_send(b, peer, ddl_block(&in, peer));
        }
        if (rank == 0)
            ddl_step_copy(b, ddl_blocks_between(&out, 0, 2), ddl_blocks_between(&in, 0, 2));
        else
            ddl_step_copy(b, ddl_block(&out, rank), ddl_block(&in, rank));
        assert_int_equal(ddl_builder_finish(b, &w.schedules[rank], NULL), DDL_OK);
    }
    assert_int_equal(proof_that_fails(&w), DDL_PROOF_VALUE);
    assert_non_null(strstr(w.text, "rank 0 element 2"));
    end_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_schedules_are_proved),
        cmocka_unit_test(a_wrong_count_of_predecessors_is_seen),
        cmocka_unit_test(a_successor_that_comes_earlier_is_seen),
        cmocka_unit_test(slices_of_one_step_must_agree_in_size),
        cmocka_unit_test(slices_of_one_step_must_not_overlap_in_part),
        cmocka_unit_test(a_schedule_of_another_rank_is_seen),
        cmocka_unit_test(writing_the_input_is_seen),
        cmocka_unit_test(writing_behind_the_result_is_seen),
        cmocka_unit_test(touching_the_gaps_between_blocks_is_seen),
        cmocka_unit_test(a_reduce_must_not_touch_out_off_the_root),
        cmocka_unit_test(scratch_that_was_not_asked_for_is_seen),
        cmocka_unit_test(half_an_element_is_seen),
        cmocka_unit_test(each_dropped_dependency_is_seen),
        cmocka_unit_test(a_landing_used_twice_without_order_is_seen),
        cmocka_unit_test(in_place_buffers_are_one_memory),
        cmocka_unit_test(a_message_to_another_peer_is_seen),
        cmocka_unit_test(a_message_left_out_is_seen_on_either_side),
        cmocka_unit_test(messages_that_differ_in_bytes_are_seen),
        cmocka_unit_test(messages_numbered_differently_are_seen),
        cmocka_unit_test(a_rank_that_does_nothing_is_missed),
        cmocka_unit_test(a_deadlock_is_seen),
        cmocka_unit_test(a_ring_that_needs_buffering_is_seen),
        cmocka_unit_test(an_operand_counted_twice_is_seen),
        cmocka_unit_test(a_step_left_out_is_seen),
        cmocka_unit_test(a_shifted_slice_is_seen),
        cmocka_unit_test(scratch_that_was_never_written_is_seen),
        cmocka_unit_test(a_wrong_block_behind_a_right_one_is_seen),
        cmocka_unit_test(a_barrier_must_hear_of_every_rank),
        cmocka_unit_test(swapped_operands_on_one_rank_are_seen),
        cmocka_unit_test(a_received_operand_on_the_wrong_side_is_seen),
        cmocka_unit_test(a_missing_or_repeated_division_is_seen),
        cmocka_unit_test(dividing_before_summing_is_seen),
        cmocka_unit_test(every_small_change_to_every_step_is_seen),
        cmocka_unit_test(all_small_worlds_are_proved_with_gaps_and_averages),
        cmocka_unit_test(calls_beyond_2_to_32_elements_are_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
