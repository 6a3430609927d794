/*
 * test_posting.c - operations in turn over one board: who waits for whom, what late ones say, and that no mix
 * of calls from one rank, to one and among all ever reads what is overwritten; with threads as ranks.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "algorithms/catalogue.h"
#include "backend/plan.h"
#include "backend/posting.h"
#include "base/clock.h"
#include "compute/compute_cpu.h"

#if defined(__SANITIZE_THREAD__) /* takes ten times as long */
enum { CALLS = 500 };
#elif defined(__SANITIZE_ADDRESS__) /* of which only the first of each kind has something new for it */
enum { CALLS = 1000 };
#else
enum { CALLS = 4000 };
#endif

enum {
    MOST_RANKS = 5,
    COUNT = 6,
    LONG_COUNT = 600 /* more than a sheet holds */,
    IN_FLIGHT = 3,
    KINDS = 7,
    PATIENCE_MS = 60000
};

static const struct kind {
    ddl_collective collective;
    const char *algorithm;
    bool is_rooted;
} kinds[KINDS] = {
    { DDL_COLLECTIVE_ALLREDUCE, "flat", false },   { DDL_COLLECTIVE_BARRIER, "flat", false },
    { DDL_COLLECTIVE_GATHER, "direct", true },     { DDL_COLLECTIVE_SCATTER, "direct", true },
    { DDL_COLLECTIVE_BROADCAST, "flat", true },    { DDL_COLLECTIVE_REDUCE, "flat", true },
    { DDL_COLLECTIVE_ALLREDUCE, "direct", false }, /* of two rounds */
};

typedef struct party party;

typedef struct world {
    int nranks, count; /* of elements in a piece */
    ddl_pad *pads;
    ddl_oneshot *oneshots[KINDS][MOST_RANKS][MOST_RANKS]; /* of each kind, root and rank */
    struct party {
        pthread_t thread;
        struct world *world;
        ddl_board board;
        ddl_posting posting;
        ddl_list busy;
        int rank, looks, differences, wrong;
        void (*answer)(party *self); /* what happens as this rank has posted, once */
        int differing_rank;
        uint64_t differing_sequence;
    } parties[MOST_RANKS];
} world;

static void posted(void *arg)
{
    party *self = arg;
    void (*answer)(party *) = self->answer;
    self->answer = NULL;
    if (answer != NULL)
        answer(self);
}

static void differs(void *arg, int rank, uint64_t sequence, const ddl_signature *ours,
                    const ddl_signature *theirs)
{
    party *self = arg;
    assert_memory_not_equal(ours, theirs, sizeof *ours);
    self->differences++;
    self->differing_rank = rank;
    self->differing_sequence = sequence;
}

static void make_oneshots(world *w, int kind, int root)
{
    const ddl_algorithm *row = ddl_catalogue_find(kinds[kind].collective, kinds[kind].algorithm);
    ddl_schedule *schedules[MOST_RANKS];
    ddl_error error;
    for (int rank = 0; rank < w->nranks; rank++) {
        ddl_shape shape = { .rank = rank,
                            .nranks = w->nranks,
                            .root = root,
                            .count = (size_t)w->count,
                            .stride = (size_t)w->count,
                            .placement = { w->nranks, 1, NULL },
                            .element_bytes = 4,
                            .in_place = kinds[kind].collective == DDL_COLLECTIVE_BROADCAST };
        assert_int_equal(row->build(&shape, &schedules[rank], &error), DDL_OK);
    }
    for (int rank = 0; rank < w->nranks; rank++) {
        ddl_oneshot_posts posts[MOST_RANKS];
        for (int other = 0; other < w->nranks; other++)
            posts[other] = ddl_oneshot_posts_for(schedules[other], rank);
        assert_true(ddl_oneshot_is_possible(posts, w->nranks, kinds[kind].is_rooted));
        assert_int_equal(ddl_oneshot_create(schedules[rank], posts, &w->oneshots[kind][root][rank], &error),
                         DDL_OK);
    }
    for (int rank = 0; rank < w->nranks; rank++)
        ddl_schedule_destroy(schedules[rank]);
}

static world *make_world_of(int nranks, int count)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->nranks = nranks;
    w->count = count;
    assert_int_equal(posix_memalign((void **)&w->pads, 128, (size_t)nranks * sizeof *w->pads), 0);
    memset(w->pads, 0, (size_t)nranks * sizeof *w->pads);
    for (int kind = 0; kind < KINDS; kind++)
        for (int root = 0; root < nranks; root++)
            make_oneshots(w, kind, root);
    for (int rank = 0; rank < nranks; rank++) {
        party *self = &w->parties[rank];
        self->world = w;
        self->rank = rank;
        self->board = ddl_board_of(rank, nranks);
        for (int other = 0; other < nranks; other++)
            self->board.pads[other] = &w->pads[other];
        ddl_list_init(&self->busy);
        const ddl_posting_owner owner = { &self->board, posted, differs, self, &self->busy, NULL };
        ddl_posting_init(&self->posting, &owner, ddl_compute_cpu());
    }
    return w;
}

static world *make_world(int nranks)
{
    return make_world_of(nranks, COUNT);
}

static void free_world(world *w)
{
    for (int rank = 0; rank < w->nranks; rank++)
        ddl_posting_fini(&w->parties[rank].posting);
    for (int kind = 0; kind < KINDS; kind++)
        for (int root = 0; root < w->nranks; root++)
            for (int rank = 0; rank < w->nranks; rank++)
                ddl_oneshot_destroy(w->oneshots[kind][root][rank]);
    free(w->pads);
    free(w);
}

/* ---- a call ---- */

typedef struct call {
    ddl_post post;
    ddl_signature signature;
    int kind, root, count;
    uint32_t piece, npieces; /* of so many elements */
    bool holds;              /* each piece but the first, until it is let go */
    bool is_done;
    int32_t in[MOST_RANKS * LONG_COUNT], out[MOST_RANKS * LONG_COUNT];
} call;

static void call_finished(ddl_post *post)
{
    DDL_CONTAINER(post, call, post)->is_done = true;
}

static bool next_piece(ddl_post *post)
{
    call *c = DDL_CONTAINER(post, call, post);
    if (c->piece + 1 == c->npieces)
        return false;
    c->piece++;
    post->in = (int32_t *)post->in + c->count;
    post->out = (int32_t *)post->out + c->count;
    post->is_held = c->holds;
    return true;
}

static int32_t value(uint64_t sequence, int rank, int i)
{
    return (int32_t)(sequence * 1000) + rank * 100 + i;
}

static void begin_pieces(party *self, call *c, int kind, int root, uint64_t sequence, uint32_t npieces,
                         bool holds)
{
    const ddl_collective collective = kinds[kind].collective;
    const int count = self->world->count;
    memset(c, 0, offsetof(call, in));
    c->kind = kind;
    c->root = root;
    c->count = count;
    c->npieces = npieces;
    c->holds = holds;
    c->signature =
        (ddl_signature){ .collective = (uint8_t)collective, .root = root, .count = (uint64_t)count };
    for (int i = 0; i < MOST_RANKS * count; i++) {
        c->in[i] = value(sequence, self->rank, i);
        c->out[i] = collective == DDL_COLLECTIVE_BROADCAST && self->rank == root ? c->in[i] : -1;
    }
    c->post = (ddl_post){ .oneshot = self->world->oneshots[kind][root][self->rank],
                          .signature = &c->signature,
                          .number = ddl_board_number(1, sequence),
                          .sequence = sequence,
                          .in = collective == DDL_COLLECTIVE_BROADCAST ? c->out : c->in,
                          .out = c->out,
                          .dtype = DDL_INT32,
                          .op = DDL_SUM,
                          .next = npieces > 1 ? next_piece : NULL,
                          .finished = call_finished };
    c->is_done = ddl_posting_start(&self->posting, &c->post, self->looks);
}

static void begin(party *self, call *c, int kind, int root, uint64_t sequence)
{
    begin_pieces(self, c, kind, root, sequence, 1, false);
}

static int expected(const party *self, const call *c, int i)
{
    const int nranks = self->world->nranks, rank = self->rank;
    const uint64_t sequence = c->post.sequence;
    const int block = c->count, count = (int)c->npieces * block;
    int sum = 0;
    switch (kinds[c->kind].collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
    case DDL_COLLECTIVE_REDUCE:
        for (int other = 0; other < nranks; other++)
            sum += value(sequence, other, i);
        return i < count && (!kinds[c->kind].is_rooted || rank == c->root) ? sum : -1;
    case DDL_COLLECTIVE_BROADCAST:
        return i < count || rank == c->root ? value(sequence, c->root, i) : -1;
    case DDL_COLLECTIVE_SCATTER:
        return i < block ? value(sequence, c->root, rank * block + i) : -1;
    case DDL_COLLECTIVE_GATHER:
        return rank == c->root && i < nranks * block ? value(sequence, i / block, i % block) : -1;
    default:
        return -1;
    }
}

static int count_wrong(const party *self, const call *c)
{
    int wrong = 0;
    for (int i = 0; i < MOST_RANKS * c->count; i++)
        wrong += c->out[i] != expected(self, c, i);
    return wrong;
}

/* ---- two ranks, step by step ---- */

enum { FLAT, BARRIER, SCATTER = 3, BROADCAST = 4, REDUCE = 5, DIRECT = 6 };

/* It would write over nothing yet, but a few more would; and of long posts over the one before the last. */
static void a_root_is_so_many_calls_ahead_at_most(void **state)
{
    (void)state;
    for (int is_long = 0; is_long < 2; is_long++) {
        world *w = make_world_of(2, is_long ? LONG_COUNT : COUNT);
        party *a = &w->parties[0], *b = &w->parties[1];
        static call calls[2 * DDL_AHEAD][2];
        const int ahead = is_long ? 1 : DDL_AHEAD;
        uint64_t behind;
        for (int k = 0; k < 2 * ahead; k++) {
            begin(a, &calls[k][0], BROADCAST, 0, (uint64_t)k + 1);
            assert_int_equal(calls[k][0].is_done, k < ahead);
        }
        for (int k = 0; k < ahead; k++) {
            assert_false(ddl_posting_progress(&a->posting));
            assert_int_equal(ddl_posting_waits_behind(&a->posting, &behind)->collective,
                             DDL_COLLECTIVE_BROADCAST);
            assert_int_equal(behind, k + 1);
            begin(b, &calls[k][1], BROADCAST, 0, (uint64_t)k + 1);
            assert_true(calls[k][1].is_done);
            assert_int_equal(count_wrong(b, &calls[k][1]), 0);
            assert_true(ddl_posting_progress(&a->posting));
            assert_true(calls[k + ahead][0].is_done);
            assert_true(k + 1 == ahead || !calls[k + 1 + ahead][0].is_done);
        }
        assert_false(ddl_list_empty(&a->busy)); /* as the other one has yet to come to those */
        for (int k = ahead; k < 2 * ahead; k++) {
            begin(b, &calls[k][1], BROADCAST, 0, (uint64_t)k + 1);
            assert_true(calls[k][1].is_done);
            assert_int_equal(count_wrong(b, &calls[k][1]), 0);
        }
        assert_false(ddl_posting_progress(&a->posting));
        assert_true(ddl_list_empty(&a->busy));
        assert_true(ddl_list_empty(&b->busy));
        free_world(w);
    }
}

/* What is not long may follow. */
static void a_long_post_waits_for_all_that_are_behind(void **state)
{
    (void)state;
    world *w = make_world(2), *other = make_world_of(2, LONG_COUNT);
    party *a = &w->parties[0], *b = &w->parties[1];
    static call calls[4][2];
    for (int k = 0; k < 2; k++)
        begin(a, &calls[k][0], BROADCAST, 0, (uint64_t)k + 1);
    a->world = b->world = other; /* of whose calls the next one is */
    begin(a, &calls[2][0], BROADCAST, 0, 3);
    assert_true(calls[1][0].is_done && !calls[2][0].is_done);
    a->world = b->world = w;
    begin(b, &calls[0][1], BROADCAST, 0, 1);
    assert_false(ddl_posting_progress(&a->posting));
    begin(b, &calls[1][1], BROADCAST, 0, 2);
    assert_true(ddl_posting_progress(&a->posting));
    assert_true(calls[2][0].is_done);
    begin(a, &calls[3][0], BROADCAST, 0, 4);
    assert_true(calls[3][0].is_done);
    a->world = b->world = other;
    begin(b, &calls[2][1], BROADCAST, 0, 3);
    assert_int_equal(count_wrong(b, &calls[2][1]), 0);
    a->world = b->world = w;
    begin(b, &calls[3][1], BROADCAST, 0, 4);
    for (int k = 0; k < 4; k++)
        assert_true(calls[k][1].is_done && (k == 2 || count_wrong(b, &calls[k][1]) == 0));
    assert_false(ddl_posting_progress(&a->posting));
    assert_true(ddl_list_empty(&a->busy));
    free_world(w);
    free_world(other);
}

/* A block of the root's is all that is needed, and rank 1 has not come. */
static void nobody_waits_for_more_than_is_needed(void **state)
{
    (void)state;
    world *w = make_world(3);
    static call calls[3];
    begin(&w->parties[0], &calls[0], SCATTER, 2, 1);
    assert_false(calls[0].is_done);
    assert_false(ddl_posting_progress(&w->parties[0].posting));
    begin(&w->parties[2], &calls[2], SCATTER, 2, 1);
    assert_true(calls[2].is_done);
    assert_true(ddl_posting_progress(&w->parties[0].posting));
    assert_true(calls[0].is_done);
    assert_int_equal(count_wrong(&w->parties[0], &calls[0]), 0);
    begin(&w->parties[1], &calls[1], SCATTER, 2, 1);
    assert_true(calls[1].is_done);
    for (int rank = 0; rank < 3; rank++)
        (void)ddl_posting_progress(&w->parties[rank].posting);
    free_world(w);
}

static call answers[3];

static void the_others_post(party *self)
{
    for (int rank = 0; rank < self->world->nranks; rank++)
        if (rank != self->rank)
            begin(&self->world->parties[rank], &answers[rank], FLAT, 0, 1);
}

/* What comes while it looks is seen at once, from whomever; and without looks it is left to progress. */
static void who_looks_again_sees_what_comes_meanwhile(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 3; nranks++)
        for (int looks = 0; looks < 2; looks++) {
            world *w = make_world(nranks);
            party *a = &w->parties[0];
            static call own;
            a->looks = looks;
            a->answer = the_others_post;
            begin(a, &own, FLAT, 0, 1);
            assert_null(a->answer);
            assert_int_equal(own.is_done, looks > 0);
            assert_int_equal(ddl_posting_progress(&a->posting), looks == 0);
            assert_int_equal(count_wrong(a, &own), 0);
            assert_true(ddl_list_empty(&a->busy));
            for (int rank = 1; rank < nranks; rank++) {
                (void)ddl_posting_progress(&w->parties[rank].posting);
                assert_int_equal(count_wrong(&w->parties[rank], &answers[rank]), 0);
            }
            free_world(w);
        }
}

/* Nobody comes: it is no less a call that waits. */
static void looks_in_vain_change_nothing(void **state)
{
    (void)state;
    world *w = make_world(2);
    party *a = &w->parties[0], *b = &w->parties[1];
    static call calls[2];
    a->looks = 100;
    begin(a, &calls[0], FLAT, 0, 1);
    assert_false(calls[0].is_done);
    assert_false(ddl_list_empty(&a->busy));
    assert_false(ddl_posting_progress(&a->posting));
    begin(b, &calls[1], FLAT, 0, 1);
    assert_true(calls[1].is_done);
    assert_true(ddl_posting_progress(&a->posting));
    assert_true(calls[0].is_done);
    assert_int_equal(count_wrong(a, &calls[0]), 0);
    free_world(w);
}

static void note_rank(void *arg, int rank, bool outgoing)
{
    (void)outgoing;
    *(int *)arg |= 1 << rank;
}

static void whoever_is_waited_for_is_named(void **state)
{
    (void)state;
    world *w = make_world(3);
    party *a = &w->parties[0], *b = &w->parties[1], *c = &w->parties[2];
    static call gathered[3], next[DDL_AHEAD];
    int awaited = 0;
    const int GATHER = 2;
    begin(b, &gathered[1], GATHER, 1, 1); /* the root */
    begin(a, &gathered[0], GATHER, 1, 1);
    assert_true(gathered[0].is_done);
    assert_false(gathered[1].is_done);
    ddl_posting_visit_pending(&b->posting, &gathered[1].post, note_rank, &awaited);
    assert_int_equal(awaited, 1 << 2);
    assert_true(ddl_posting_has_posted(&b->posting, &gathered[1].post, 0));
    assert_false(ddl_posting_has_posted(&b->posting, &gathered[1].post, 2));
    for (int k = 0; k < DDL_AHEAD; k++) { /* the last one waits for rank 2 to come to the first call */
        begin(a, &next[k], GATHER, 1, (uint64_t)k + 2);
        assert_int_equal(next[k].is_done, k + 1 < DDL_AHEAD);
    }
    awaited = 0;
    ddl_posting_visit_pending(&a->posting, &next[DDL_AHEAD - 1].post, note_rank, &awaited);
    assert_int_equal(awaited, 1 << 2);
    uint64_t behind = 0;
    assert_int_equal(ddl_posting_waits_behind(&a->posting, &behind)->collective, DDL_COLLECTIVE_GATHER);
    assert_int_equal(behind, 1);
    assert_null(ddl_posting_waits_behind(&b->posting, &behind));
    begin(c, &gathered[2], GATHER, 1, 1);
    assert_true(gathered[2].is_done);
    assert_true(ddl_posting_progress(&a->posting));
    assert_true(ddl_posting_progress(&b->posting));
    assert_int_equal(count_wrong(b, &gathered[1]), 0);
    free_world(w);
}

static void each_round_is_waited_for(void **state)
{
    (void)state;
    world *w = make_world(3);
    party *a = &w->parties[0], *b = &w->parties[1], *c = &w->parties[2];
    static call calls[3];
    int awaited = 0;
    begin(a, &calls[0], DIRECT, 0, 1);
    begin(b, &calls[1], DIRECT, 0, 1);
    begin(c, &calls[2], DIRECT, 0, 1); /* has all of the first round, and posts the second */
    assert_false(calls[2].is_done);
    assert_false(ddl_posting_has_posted(&c->posting, &calls[2].post, 0));
    ddl_posting_visit_pending(&c->posting, &calls[2].post, note_rank, &awaited);
    assert_int_equal(awaited, 1 << 0 | 1 << 1);
    assert_true(ddl_posting_progress(&a->posting)); /* comes to the second */
    assert_false(calls[0].is_done);
    assert_false(ddl_posting_progress(&a->posting));
    assert_true(ddl_posting_has_posted(&c->posting, &calls[2].post, 0));
    awaited = 0;
    ddl_posting_visit_pending(&c->posting, &calls[2].post, note_rank, &awaited);
    assert_int_equal(awaited, 1 << 1);
    assert_true(ddl_posting_progress(&b->posting));
    assert_true(ddl_posting_progress(&a->posting));
    assert_true(ddl_posting_progress(&c->posting));
    for (int rank = 0; rank < 3; rank++) {
        assert_true(calls[rank].is_done);
        assert_int_equal(count_wrong(&w->parties[rank], &calls[rank]), 0);
        (void)ddl_posting_progress(&w->parties[rank].posting);
    }
    free_world(w);
}

static void pieces_follow_each_other(void **state)
{
    (void)state;
    world *w = make_world(2);
    party *a = &w->parties[0], *b = &w->parties[1];
    static call first[2], next[2];
    uint64_t behind;
    begin_pieces(a, &first[0], DIRECT, 0, 1, 3, false);
    assert_int_equal(first[0].post.ndone, 0);
    begin_pieces(b, &first[1], DIRECT, 0, 1, 3, false); /* has the first round, and posts the second */
    begin(b, &next[1], BARRIER, 0, 2);                  /* comes after all of them */
    assert_false(next[1].is_done);
    assert_true(ddl_posting_progress(&a->posting)); /* has all of the piece */
    assert_int_equal(first[0].post.ndone, 1);
    assert_int_equal(first[0].piece, 1);
    assert_false(first[0].is_done);
    assert_int_equal(first[1].piece, 0);
    assert_true(ddl_posting_progress(&b->posting));
    assert_int_equal(first[1].piece, 1);
    /* Not posted yet, but behind nobody. */
    assert_false(first[1].post.is_posted);
    assert_null(ddl_posting_waits_behind(&b->posting, &behind));
    assert_true(ddl_posting_has_posted(&b->posting, &first[1].post, 0));
    assert_false(ddl_posting_progress(&b->posting));
    assert_true(first[1].post.is_posted);
    assert_false(ddl_posting_has_posted(&b->posting, &first[1].post, 0));
    for (int i = 0; i < 6; i++) {
        (void)ddl_posting_progress(&a->posting);
        (void)ddl_posting_progress(&b->posting);
    }
    assert_true(first[0].is_done && first[1].is_done);
    assert_int_equal(count_wrong(a, &first[0]), 0);
    assert_int_equal(count_wrong(b, &first[1]), 0);
    begin(a, &next[0], BARRIER, 0, 2);
    assert_true(next[0].is_done);
    assert_true(ddl_posting_progress(&b->posting));
    assert_true(next[1].is_done);
    free_world(w);
}

/* Of a broadcast: who has read a piece waits for the root, which waits for who has not come. */
static void who_keeps_a_root_waiting_is_late_and_not_the_root(void **state)
{
    (void)state;
    world *w = make_world_of(3, LONG_COUNT);
    party *a = &w->parties[0], *b = &w->parties[1], *c = &w->parties[2];
    static call calls[3];
    begin_pieces(a, &calls[0], BROADCAST, 0, 1, 3, false);
    begin_pieces(b, &calls[1], BROADCAST, 0, 1, 3, false);
    for (int i = 0; i < 4; i++) {
        (void)ddl_posting_progress(&a->posting);
        (void)ddl_posting_progress(&b->posting);
    }
    assert_int_equal(calls[0].piece, 1);
    assert_int_equal(calls[1].piece, 1);
    assert_true(calls[1].post.is_posted);
    assert_true(ddl_posting_has_posted(&b->posting, &calls[1].post, 0));
    assert_false(ddl_posting_has_posted(&b->posting, &calls[1].post, 2));
    assert_true(ddl_posting_has_posted(&a->posting, &calls[0].post, 1));
    assert_false(ddl_posting_has_posted(&a->posting, &calls[0].post, 2));
    assert_false(ddl_posting_is_begun(&a->posting, &calls[0].post));
    assert_false(ddl_posting_is_begun(&b->posting, &calls[1].post));
    begin_pieces(c, &calls[2], BROADCAST, 0, 1, 3, false); /* has the first piece, and no more */
    for (int i = 0; i < 4; i++) {
        (void)ddl_posting_progress(&a->posting);
        (void)ddl_posting_progress(&b->posting);
    }
    assert_int_equal(calls[0].piece, 2);
    assert_true(ddl_posting_is_begun(&a->posting, &calls[0].post));
    assert_true(ddl_posting_has_posted(&b->posting, &calls[1].post, 0));
    assert_false(ddl_posting_has_posted(&b->posting, &calls[1].post, 2));
    assert_false(ddl_posting_has_posted(&a->posting, &calls[0].post, 2));
    for (int i = 0; i < 6; i++)
        for (int rank = 0; rank < 3; rank++)
            (void)ddl_posting_progress(&w->parties[rank].posting);
    for (int rank = 0; rank < 3; rank++) {
        assert_true(calls[rank].is_done);
        assert_int_equal(count_wrong(&w->parties[rank], &calls[rank]), 0);
    }
    free_world(w);
}

/* As by a GPU that has yet to bring it; and it may be given up so. */
static void a_piece_may_have_to_wait(void **state)
{
    (void)state;
    world *w = make_world(2);
    party *a = &w->parties[0], *b = &w->parties[1];
    static call calls[2];
    begin_pieces(a, &calls[0], FLAT, 0, 1, 3, true);
    begin_pieces(b, &calls[1], FLAT, 0, 1, 3, false);
    assert_true(ddl_posting_progress(&a->posting));
    assert_true(calls[0].post.is_held);
    for (int i = 0; i < 3; i++) {
        assert_false(ddl_posting_progress(&a->posting));
        assert_false(ddl_posting_progress(&b->posting));
    }
    assert_int_equal(calls[1].piece, 1);
    calls[0].post.is_held = false;
    assert_true(ddl_posting_progress(&a->posting));
    assert_true(ddl_posting_progress(&b->posting));
    assert_int_equal(calls[0].piece, 2);
    assert_int_equal(calls[1].piece, 2);
    ddl_posting_cancel(&a->posting, &calls[0].post);
    ddl_posting_cancel(&b->posting, &calls[1].post);
    for (int i = 0; i < 2 * COUNT; i++) {
        assert_int_equal(calls[0].out[i], expected(a, &calls[0], i));
        assert_int_equal(calls[1].out[i], expected(b, &calls[1], i));
    }
    assert_int_equal(calls[0].out[2 * COUNT], -1);
    assert_int_equal(calls[1].out[2 * COUNT], -1);
    free_world(w);
}

static void who_differs_is_noticed_though_the_call_was_done(void **state)
{
    (void)state;
    world *w = make_world(2);
    party *a = &w->parties[0], *b = &w->parties[1];
    static call own, theirs, next;
    begin(a, &own, BROADCAST, 0, 1);
    assert_true(own.is_done);
    assert_false(ddl_list_empty(&a->busy)); /* still to be looked after */
    begin(b, &theirs, BROADCAST, 1, 1);     /* another root: neither needs the other */
    assert_true(theirs.is_done);
    (void)ddl_posting_progress(&a->posting);
    assert_int_equal(a->differences, 1);
    assert_int_equal(a->differing_rank, 1);
    assert_int_equal(a->differing_sequence, 1);
    begin(b, &next, BARRIER, 0, 2);
    assert_int_equal(b->differences, 1);
    assert_false(next.is_done);
    assert_false(ddl_posting_progress(&b->posting));
    ddl_posting_cancel(&b->posting, &next.post);
    assert_true(ddl_list_empty(&a->busy));
    assert_true(ddl_list_empty(&b->busy));
    free_world(w);
}

/* After the other one began to wait, which does not need what is said there. */
static void who_differs_is_noticed_while_waiting(void **state)
{
    (void)state;
    world *w = make_world(2);
    party *a = &w->parties[0], *b = &w->parties[1];
    static call own, next, theirs;
    uint64_t behind;
    begin(a, &own, REDUCE, 1, 1);
    assert_true(own.is_done);
    begin(a, &next, FLAT, 0, 2);
    assert_false(next.is_done);
    assert_int_equal(ddl_posting_waits_behind(&a->posting, &behind)->collective, DDL_COLLECTIVE_REDUCE);
    assert_int_equal(behind, 1);
    begin(b, &theirs, BROADCAST, 1, 1);
    assert_false(ddl_posting_progress(&a->posting));
    assert_int_equal(a->differences, 0);
    assert_null(ddl_posting_waits_behind(&a->posting, &behind));
    assert_int_equal(a->differences, 1);
    assert_int_equal(a->differing_sequence, 1);
    ddl_posting_cancel(&a->posting, &next.post);
    (void)ddl_posting_progress(&b->posting);
    free_world(w);
}

/* A root that has gone on learns of it with the first call in which it needs the others. */
static void who_differs_is_noticed_in_later_calls(void **state)
{
    (void)state;
    for (int ahead = 1; ahead < DDL_AHEAD; ahead++) {
        world *w = make_world(3);
        static call calls[DDL_AHEAD + 1][3];
        const int GATHER = 2;
        for (int k = 0; k < ahead; k++) {
            begin(&w->parties[0], &calls[k][0], SCATTER, 0, (uint64_t)k + 1);
            assert_true(calls[k][0].is_done);
        }
        begin(&w->parties[0], &calls[ahead][0], GATHER, 0, (uint64_t)ahead + 1);
        for (int k = 0; k <= ahead; k++) /* rank 1 has another root in the first call, which needs nobody */
            for (int rank = 1; rank < 3; rank++)
                begin(&w->parties[rank], &calls[k][rank], k < ahead ? SCATTER : GATHER,
                      k == 0 && rank == 1 ? 1 : 0, (uint64_t)k + 1);
        (void)ddl_posting_progress(&w->parties[0].posting);
        assert_int_equal(w->parties[0].differences, 1);
        assert_int_equal(w->parties[0].differing_rank, 1);
        assert_int_equal(w->parties[0].differing_sequence, 1);
        assert_false(calls[ahead][0].is_done);
        for (int rank = 0; rank < 3; rank++)
            for (int k = 0; k <= ahead; k++)
                ddl_posting_cancel(&w->parties[rank].posting, &calls[k][rank].post);
        free_world(w);
    }
}

/* ---- threads ---- */

static uint32_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(x >> 32);
}

static bool await(party *self, const call *c, ddl_deadline deadline)
{
    for (uint32_t looks = 1; !c->is_done; looks++) {
        if (!ddl_posting_progress(&self->posting) && looks % 64 == 0)
            sched_yield();
        if (looks % 4096 == 0 && ddl_deadline_passed(deadline))
            return false;
    }
    return true;
}

/* The same calls on all ranks, of which each may have some in flight; now and then a rank is slow. Every
 * other one looks again. At times the same call is made so often that a root is as far ahead as it may be. */
static void *take_part(void *arg)
{
    party *self = arg;
    const int nranks = self->world->nranks;
    call *calls = calloc(IN_FLIGHT, sizeof *calls);
    ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    self->looks = self->rank % 2 * 30;
    self->wrong += calls == NULL;
    for (uint64_t sequence = 1; self->wrong == 0 && sequence <= CALLS + IN_FLIGHT; sequence++) {
        call *c = &calls[sequence % IN_FLIGHT];
        const bool is_streak = mix(sequence / 64) % 4 == 0;
        uint32_t what = mix((is_streak ? sequence / 64 : sequence) * 64 + (uint64_t)nranks);
        const int kind = (int)(what % KINDS), root = (int)(what / KINDS) % nranks;
        if (sequence > IN_FLIGHT)
            self->wrong += await(self, c, deadline) ? count_wrong(self, c) : 1;
        if (self->wrong > 0 || sequence > CALLS)
            continue;
        const ddl_collective collective = kinds[kind].collective;
        const bool may_have_pieces =
            collective == DDL_COLLECTIVE_ALLREDUCE || collective == DDL_COLLECTIVE_BROADCAST;
        begin_pieces(self, c, kind, root, sequence, may_have_pieces ? 1 + what / 1024 % MOST_RANKS : 1,
                     false);
        if (mix(sequence * 64 + (uint64_t)self->rank + 8) % 64 == 0)
            sched_yield();
    }
    while (self->wrong == 0 && !ddl_list_empty(&self->busy) && !ddl_deadline_passed(deadline))
        (void)ddl_posting_progress(&self->posting);
    free(calls);
    return NULL;
}

static void any_mix_of_calls_is_right(void **state)
{
    (void)state;
    for (int how = 0; how < 2 * (MOST_RANKS - 1); how++) {
        const int nranks = 2 + how / 2;
        world *w = make_world_of(nranks, how % 2 == 0 ? COUNT : LONG_COUNT);
        for (int rank = 0; rank < nranks; rank++)
            assert_int_equal(pthread_create(&w->parties[rank].thread, NULL, take_part, &w->parties[rank]), 0);
        for (int rank = 0; rank < nranks; rank++) {
            assert_int_equal(pthread_join(w->parties[rank].thread, NULL), 0);
            assert_int_equal(w->parties[rank].wrong, 0);
            assert_int_equal(w->parties[rank].differences, 0);
            assert_true(ddl_list_empty(&w->parties[rank].busy));
        }
        free_world(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_is_so_many_calls_ahead_at_most),
        cmocka_unit_test(a_long_post_waits_for_all_that_are_behind),
        cmocka_unit_test(nobody_waits_for_more_than_is_needed),
        cmocka_unit_test(who_looks_again_sees_what_comes_meanwhile),
        cmocka_unit_test(looks_in_vain_change_nothing),
        cmocka_unit_test(whoever_is_waited_for_is_named),
        cmocka_unit_test(each_round_is_waited_for),
        cmocka_unit_test(pieces_follow_each_other),
        cmocka_unit_test(who_keeps_a_root_waiting_is_late_and_not_the_root),
        cmocka_unit_test(a_piece_may_have_to_wait),
        cmocka_unit_test(who_differs_is_noticed_though_the_call_was_done),
        cmocka_unit_test(who_differs_is_noticed_while_waiting),
        cmocka_unit_test(who_differs_is_noticed_in_later_calls),
        cmocka_unit_test(any_mix_of_calls_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
