/* test_sampling.c - how often there are votes where they bring nothing, and that ranks agree on which. */
#include "api/sampling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { AHEAD = 32, CALLS = 20000, RANKS = 4, ROUNDS = 60 };

static int count_votes(ddl_sampling *sampling, uint64_t first, uint64_t last, bool for_gpus)
{
    int nvotes = 0;
    for (uint64_t call = first; call <= last; call++)
        if (ddl_sampling_of(sampling, call, true) == DDL_SAMPLED_IN) {
            ddl_sampling_decided(sampling, call, for_gpus, AHEAD);
            nvotes++;
        }
    return nvotes;
}

static void who_stays_on_the_host_hardly_votes(void **state)
{
    ddl_sampling sampling;
    (void)state;
    ddl_sampling_init(&sampling, false);
    assert_int_equal(count_votes(&sampling, 1, 256, false), 9); /* 1, 2, 4, ... 256 */
    assert_int_equal(count_votes(&sampling, 257, 256 * 101, false), 100);
}

static void who_goes_to_gpus_votes_on_all(void **state)
{
    ddl_sampling sampling;
    (void)state;
    ddl_sampling_init(&sampling, false);
    assert_int_equal(count_votes(&sampling, 1, 100, true), 100);
    assert_int_equal(count_votes(&sampling, 101, 107, false), 7); /* now and then it may be otherwise */
    assert_int_equal(count_votes(&sampling, 108, 108, true), 1);
    assert_int_equal(count_votes(&sampling, 109, 115, false), 7);
    assert_int_equal(count_votes(&sampling, 116, 116 + AHEAD, false), AHEAD + 1); /* it has left them */
    assert_true(count_votes(&sampling, 117 + AHEAD, 10000, false) < 60);
    assert_int_equal(count_votes(&sampling, 10001, 10256, true) > 0, true);
    assert_int_equal(count_votes(&sampling, 10257, 10300, true), 44);
}

static void who_asks_for_it_always_votes(void **state)
{
    ddl_sampling sampling;
    (void)state;
    ddl_sampling_init(&sampling, true);
    assert_int_equal(ddl_sampling_of(&sampling, 1, false), DDL_SAMPLED_IN);
    assert_int_equal(ddl_sampling_of(&sampling, UINT64_MAX - 1, false), DDL_SAMPLED_IN);
}

/* A rank that hears decisions when chance will, and asks about calls as soon as chance will. */
typedef struct rank {
    ddl_sampling sampling;
    uint64_t next; /* that it has not asked about */
    uint64_t nballots, ndecided;
    uint64_t ballots[CALLS + 1]; /* calls that it votes on */
} rank;

/* As votes_words.c does. */
static void ask(rank *it, unsigned *seed)
{
    while (it->next <= CALLS && rand_r(seed) % 4 != 0) {
        ddl_sampled sampled = ddl_sampling_of(&it->sampling, it->next, it->nballots == it->ndecided);
        if (sampled == DDL_SAMPLED_OPEN ||
            (sampled == DDL_SAMPLED_IN && it->nballots == it->ndecided + AHEAD))
            return;
        if (sampled == DDL_SAMPLED_IN)
            it->ballots[it->nballots++] = it->next;
        it->next++;
    }
}

/* Long stretches of one kind, with a few of the other. */
static bool is_for_gpus(uint64_t call, unsigned kind)
{
    return (call / (kind % 700 + 20) % 2 == 0) != (call * 2654435761U % 61 == kind % 61);
}

static void ranks_vote_on_the_same_calls(void **state)
{
    static rank ranks[RANKS];
    uint64_t total = 0;
    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned seed = round + 1;
        for (int r = 0; r < RANKS; r++) {
            ddl_sampling_init(&ranks[r].sampling, false);
            ranks[r].next = 1;
            ranks[r].nballots = ranks[r].ndecided = 0;
        }
        for (bool done = false; !done;) {
            done = true;
            for (int r = 0; r < RANKS; r++) {
                rank *it = &ranks[r];
                ask(it, &seed);
                /* What all have said is decided, and heard sooner or later. */
                bool all = it->ndecided < it->nballots;
                for (int other = 0; other < RANKS; other++)
                    all = all && ranks[other].nballots > it->ndecided;
                if (all && rand_r(&seed) % 3 != 0) {
                    uint64_t call = it->ballots[it->ndecided++];
                    ddl_sampling_decided(&it->sampling, call, is_for_gpus(call, round * 7919), AHEAD);
                }
                done = done && it->next > CALLS && it->ndecided == it->nballots;
            }
        }
        for (int r = 1; r < RANKS; r++) {
            assert_int_equal(ranks[r].nballots, ranks[0].nballots);
            assert_memory_equal(ranks[r].ballots, ranks[0].ballots,
                                ranks[0].nballots * sizeof ranks[0].ballots[0]);
        }
        total += ranks[0].nballots;
    }
    assert_true(total > ROUNDS * CALLS / 10 &&
                total < ROUNDS * CALLS * 9 / 10); /* there was something to agree on */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_stays_on_the_host_hardly_votes),
        cmocka_unit_test(who_goes_to_gpus_votes_on_all),
        cmocka_unit_test(who_asks_for_it_always_votes),
        cmocka_unit_test(ranks_vote_on_the_same_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
