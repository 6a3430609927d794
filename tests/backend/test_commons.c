/*
 * test_commons.c - calls over a board whose buffers all ranks reach: what is told instead of said, who writes
 * where, and that nobody is done with what somebody had given up; step by step, and with threads as ranks.
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
#include "backend/posting.h"
#include "base/clock.h"
#include "compute/compute_cpu.h"

enum {
    MOST_RANKS = 4,
    PAGE = 4096,
    PIECE = 16 * 1024, /* elements of 4 bytes */
    PIECES = 5,
    COUNT = PIECE * (PIECES - 1) + PIECE / 2 + 5, /* the last one is shorter, and ends within a page; */
    LEAST_COUNT = PIECE * (PIECES - 1) + 1105,    /* or so short that nobody tells its place anyway */
    HEAP_BYTES = 4 * 4 * PIECE * PIECES,
    PATIENCE_MS = 60000
};

#ifdef __SANITIZE_THREAD__ /* which takes thirty times as long */
enum { CALLS = 50 };
#else
enum { CALLS = 200 };
#endif

/* Where a rank has its buffers. */
enum where { ELSEWHERE, AT_PAGES, IN_PLACE, BESIDE_PAGES, IN_ONLY, WHERES };

typedef struct world {
    int nranks;
    bool average;
    int count; /* elements of a call */
    ddl_pad *pads;
    ddl_oneshot *oneshots[2][2][MOST_RANKS]; /* out of place and in place; of a piece and the last one */
    struct party {
        pthread_t thread;
        struct world *world;
        ddl_board board;
        ddl_posting posting;
        ddl_list busy;
        int rank, wrong, differences;
        char *heap;            /* all of it is reached, */
        bool is_closed;        /* unless it is not, */
        size_t hole, hole_end; /* but for what was withdrawn earlier */
        uintptr_t withdrawn, withdrawn_end;
        int nreached;
    } parties[MOST_RANKS];
} world;

typedef struct party party;

static void posted(void *arg)
{
    (void)arg;
}

static void differs(void *arg, int rank, uint64_t sequence, const ddl_signature *ours,
                    const ddl_signature *theirs)
{
    (void)rank, (void)sequence, (void)ours, (void)theirs;
    ((party *)arg)->differences++;
}

static bool find_own(void *arg, const void *data, size_t bytes, size_t *offset)
{
    const party *self = arg;
    const uintptr_t at = (uintptr_t)data - (uintptr_t)self->heap;
    *offset = at;
    return at < HEAP_BYTES && bytes <= HEAP_BYTES - at && (at >= self->hole_end || at + bytes <= self->hole);
}

static void *reach(void *arg, int rank, uint64_t offset, size_t bytes)
{
    party *self = arg;
    const party *other = &self->world->parties[rank];
    assert_int_not_equal(rank, self->rank);
    self->nreached++;
    return other->is_closed || bytes > HEAP_BYTES || offset > HEAP_BYTES - bytes ? NULL
                                                                                 : other->heap + offset;
}

static void withdraw(void *arg, void *pages, size_t bytes)
{
    party *self = arg;
    self->withdrawn = (uintptr_t)pages;
    self->withdrawn_end = self->withdrawn + bytes;
}

static size_t page_bytes(void)
{
    return PAGE;
}

static const ddl_commons commons = { find_own, reach, withdraw, page_bytes };

static void make_oneshots(world *w, bool in_place, bool is_last)
{
    const ddl_algorithm *row = ddl_catalogue_find(DDL_COLLECTIVE_ALLREDUCE, "direct");
    ddl_schedule *schedules[MOST_RANKS];
    ddl_error error;
    for (int rank = 0; rank < w->nranks; rank++) {
        const ddl_shape shape = { .rank = rank,
                                  .nranks = w->nranks,
                                  .count = (size_t)(is_last ? w->count % PIECE : PIECE),
                                  .stride = COUNT,
                                  .placement = { w->nranks, 1, NULL },
                                  .element_bytes = 4,
                                  .in_place = in_place,
                                  .average = w->average };
        assert_int_equal(row->build(&shape, &schedules[rank], &error), DDL_OK);
    }
    for (int rank = 0; rank < w->nranks; rank++) {
        ddl_oneshot_posts posts[MOST_RANKS];
        for (int other = 0; other < w->nranks; other++)
            posts[other] = ddl_oneshot_posts_for(schedules[other], rank);
        assert_int_equal(
            ddl_oneshot_create(schedules[rank], posts, &w->oneshots[in_place][is_last][rank], &error),
            DDL_OK);
    }
    for (int rank = 0; rank < w->nranks; rank++)
        ddl_schedule_destroy(schedules[rank]);
}

static world *make_world(int nranks, bool average, int count)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->nranks = nranks;
    w->average = average;
    w->count = count;
    assert_int_equal(posix_memalign((void **)&w->pads, 128, (size_t)nranks * sizeof *w->pads), 0);
    memset(w->pads, 0, (size_t)nranks * sizeof *w->pads);
    for (int how = 0; how < 4; how++)
        make_oneshots(w, how % 2 == 1, how / 2 == 1);
    for (int rank = 0; rank < nranks; rank++) {
        party *self = &w->parties[rank];
        self->world = w;
        self->rank = rank;
        assert_int_equal(posix_memalign((void **)&self->heap, PAGE, HEAP_BYTES), 0);
        self->board = ddl_board_of(rank, nranks);
        for (int other = 0; other < nranks; other++)
            self->board.pads[other] = &w->pads[other];
        ddl_list_init(&self->busy);
        const ddl_posting_owner owner = { &self->board, posted, differs, self, &self->busy, &commons };
        ddl_posting_init(&self->posting, &owner, ddl_compute_cpu());
    }
    return w;
}

static void free_world(world *w)
{
    for (int rank = 0; rank < w->nranks; rank++) {
        ddl_posting_fini(&w->parties[rank].posting);
        free(w->parties[rank].heap);
        for (int how = 0; how < 4; how++)
            ddl_oneshot_destroy(w->oneshots[how % 2][how / 2][rank]);
    }
    free(w->pads);
    free(w);
}

/* ---- a call ---- */

typedef struct call {
    ddl_post post;
    ddl_signature signature;
    party *self;
    enum where where;
    uint32_t piece;
    bool is_done;
    int32_t *in, *out; /* COUNT elements */
    int32_t elsewhere[2][COUNT];
} call;

static void call_finished(ddl_post *post)
{
    DDL_CONTAINER(post, call, post)->is_done = true;
}

static bool next_piece(ddl_post *post)
{
    call *c = DDL_CONTAINER(post, call, post);
    if (c->piece + 1 == PIECES)
        return false;
    c->piece++;
    post->in = (int32_t *)post->in + PIECE;
    post->out = (int32_t *)post->out + PIECE;
    post->oneshot = c->self->world->oneshots[c->in == c->out][c->piece + 1 == PIECES][c->self->rank];
    return true;
}

static void place_buffers(call *c)
{
    int32_t *heap = (int32_t *)(void *)c->self->heap, *other = heap + PIECE * PIECES;
    c->in = c->where == ELSEWHERE ? c->elsewhere[0] : c->where == BESIDE_PAGES ? heap + 3 : heap;
    c->out = c->where == ELSEWHERE || c->where == IN_ONLY ? c->elsewhere[1]
             : c->where == IN_PLACE                       ? c->in
             : c->where == BESIDE_PAGES                   ? other + 5
                                                          : other;
}

static int32_t value(uint64_t sequence, int rank, int i)
{
    return (int32_t)(sequence * 1000) + rank * 100 + i % 97;
}

static void begin(party *self, call *c, enum where where, uint64_t sequence)
{
    memset(&c->post, 0, sizeof c->post);
    c->self = self;
    c->where = where;
    c->piece = 0;
    place_buffers(c);
    c->signature = (ddl_signature){ .collective = DDL_COLLECTIVE_ALLREDUCE, .count = COUNT };
    for (int i = 0; i < self->world->count; i++) {
        c->out[i] = -1;
        c->in[i] = value(sequence, self->rank, i);
    }
    c->post = (ddl_post){ .oneshot = self->world->oneshots[c->in == c->out][0][self->rank],
                          .signature = &c->signature,
                          .number = ddl_board_number(1, sequence),
                          .sequence = sequence,
                          .in = c->in,
                          .out = c->out,
                          .vector = c->out,
                          .vector_bytes = sizeof(int32_t) * (size_t)self->world->count,
                          .dtype = DDL_INT32,
                          .op = self->world->average ? DDL_AVG : DDL_SUM,
                          .next = next_piece,
                          .finished = call_finished };
    c->is_done = ddl_posting_start(&self->posting, &c->post, 0);
}

static int count_wrong(const call *c)
{
    const world *w = c->self->world;
    int wrong = 0;
    for (int i = 0; i < w->count; i++) {
        int32_t sum = 0;
        for (int rank = 0; rank < w->nranks; rank++)
            sum += value(c->post.sequence, rank, i);
        wrong += c->out[i] != (w->average ? sum / w->nranks : sum);
        wrong += c->in != c->out && c->in[i] != value(c->post.sequence, c->self->rank, i);
    }
    return wrong;
}

/* All in turn until nothing moves. */
static void go_on(world *w)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < w->nranks; rank++)
            moved = ddl_posting_progress(&w->parties[rank].posting) || moved;
    }
}

static call *make_calls(int count)
{
    call *calls = calloc((size_t)count, sizeof *calls);
    assert_non_null(calls);
    return calls;
}

/* ---- step by step ---- */

static void check(int nranks, int count, const enum where wheres[], uint64_t posts)
{
    world *w = make_world(nranks, count % 2 == 0, count);
    call *calls = make_calls(nranks);
    for (int rank = 0; rank < nranks; rank++)
        begin(&w->parties[rank], &calls[rank], wheres[rank], 1);
    go_on(w);
    for (int rank = 0; rank < nranks; rank++) {
        if (!calls[rank].is_done || count_wrong(&calls[rank]) > 0)
            fail_msg("%d ranks, of which rank %d has its buffers %d: %d wrong", nranks, rank, wheres[rank],
                     calls[rank].is_done ? count_wrong(&calls[rank]) : COUNT);
        assert_int_equal(w->parties[rank].withdrawn_end, 0);
        if (posts > 0)
            assert_int_equal(w->parties[rank].board.posts, posts);
    }
    free(calls);
    free_world(w);
}

static void wherever_buffers_are_the_result_is_right(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++)
        for (int mix = 0; mix < WHERES * WHERES * (nranks > 2 ? WHERES : 1); mix++) {
            const enum where wheres[MOST_RANKS] = { mix % WHERES, mix / WHERES % WHERES,
                                                    mix / WHERES / WHERES, mix % 3 };
            check(nranks, (mix % 4 < 2 ? COUNT : LEAST_COUNT) - mix % 2, wheres, 0);
        }
}

/* All but the last, and the first where it begins within a page; each group of them in two posts. */
static void pieces_whose_places_are_told_go_together(void **state)
{
    (void)state;
    static const enum where at_pages[MOST_RANKS] = { AT_PAGES, IN_PLACE, AT_PAGES, IN_PLACE },
                            one_beside[MOST_RANKS] = { AT_PAGES, AT_PAGES, BESIDE_PAGES, AT_PAGES },
                            one_elsewhere[MOST_RANKS] = { AT_PAGES, ELSEWHERE, IN_PLACE, AT_PAGES };
    for (int i = 0; i < 2; i++) {
        const int count = i == 0 ? COUNT : LEAST_COUNT;
        check(MOST_RANKS, count, at_pages, 2 + 2);
        check(MOST_RANKS, count, one_beside, 2 + 2 + 2);
        check(MOST_RANKS, count, one_elsewhere, 2 * PIECES);
    }
}

/* As an earlier call has left it: no place is told of pieces that are not all in one that is reached. */
static void what_was_withdrawn_is_not_told_again(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++) {
        world *w = make_world(3, false, COUNT);
        call *calls = make_calls(3);
        party *a = &w->parties[0];
        a->hole =
            (size_t)(what * PIECES + 2) * PIECE * sizeof(int32_t); /* in the third piece of IN, or of OUT */
        a->hole_end = a->hole + PAGE;
        for (int rank = 0; rank < 3; rank++)
            begin(&w->parties[rank], &calls[rank], AT_PAGES, 1);
        go_on(w);
        for (int rank = 0; rank < 3; rank++) {
            assert_true(calls[rank].is_done);
            assert_int_equal(count_wrong(&calls[rank]), 0);
        }
        assert_int_equal(a->board.posts, 2 * PIECES);
        free(calls);
        free_world(w);
    }
}

/* ---- giving up ---- */

static void note_rank(void *arg, int rank, bool outgoing)
{
    (void)outgoing;
    *(int *)arg |= 1 << rank;
}

static int awaited_by(const party *self, const call *c)
{
    int awaited = 0;
    ddl_posting_visit_pending(&self->posting, &c->post, note_rank, &awaited);
    return awaited;
}

static call *begin_two_of_three(world *w)
{
    call *calls = make_calls(3);
    begin(&w->parties[0], &calls[0], IN_PLACE, 1);
    begin(&w->parties[1], &calls[1], AT_PAGES, 1);
    return calls;
}

static void nobody_is_done_with_what_was_given_up(void **state)
{
    (void)state;
    world *w = make_world(3, false, COUNT);
    party *a = &w->parties[0];
    call *calls = begin_two_of_three(w);
    ddl_posting_cancel(&a->posting, &calls[0].post);
    assert_true(a->withdrawn == (uintptr_t)calls[0].out);
    assert_true(a->withdrawn_end == (uintptr_t)(calls[0].out + PIECE * (PIECES - 1)));
    memset(calls[0].in, 0, sizeof(int32_t) * COUNT); /* which the others still read */
    begin(&w->parties[2], &calls[2], AT_PAGES, 1);
    go_on(w);
    for (int rank = 1; rank < 3; rank++) {
        assert_false(calls[rank].is_done);
        assert_int_equal(calls[rank].post.round, 0);
        assert_int_equal(awaited_by(&w->parties[rank], &calls[rank]), 1 << 0);
        ddl_posting_cancel(&w->parties[rank].posting, &calls[rank].post);
    }
    free(calls);
    free_world(w);
}

/* Who has told what it made may be given up by others after that: all that was theirs had been read. */
static void who_has_all_is_done(void **state)
{
    (void)state;
    world *w = make_world(2, false, COUNT);
    call *calls = make_calls(2);
    begin(&w->parties[0], &calls[0], AT_PAGES, 1);
    begin(&w->parties[1], &calls[1], IN_PLACE, 1);             /* has the first round, and posts the second */
    assert_true(ddl_posting_progress(&w->parties[0].posting)); /* has both of all but the last piece */
    assert_int_equal(calls[0].piece, PIECES - 1);
    assert_int_equal(calls[0].post.ndone, PIECES - 1);
    assert_int_equal(calls[1].post.round, 1);
    assert_int_equal(w->parties[0].board.said_bytes, 0); /* as it has written it there */
    assert_int_equal(w->parties[1].board.said_bytes, 0);
    ddl_posting_cancel(&w->parties[1].posting, &calls[1].post);
    assert_true(w->parties[1].withdrawn == (uintptr_t)calls[1].out);
    assert_false(ddl_posting_progress(&w->parties[0].posting));
    assert_int_equal(calls[0].post.told_bytes, 0); /* of the last one, which ends within a page */
    ddl_posting_cancel(&w->parties[0].posting, &calls[0].post);
    assert_int_equal(w->parties[0].withdrawn_end, 0);
    for (int i = 0; i < PIECE * (PIECES - 1); i++)
        assert_int_equal(calls[0].out[i], value(1, 0, i) + value(1, 1, i));
    free(calls);
    free_world(w);
}

static void who_is_not_reached_is_not_read(void **state)
{
    (void)state;
    world *w = make_world(3, false, COUNT);
    w->parties[0].is_closed = true;
    call *calls = begin_two_of_three(w);
    begin(&w->parties[2], &calls[2], ELSEWHERE, 1);
    go_on(w);
    const int nreached = w->parties[1].nreached;
    go_on(w);
    assert_int_equal(w->parties[1].nreached, nreached); /* once was enough */
    for (int rank = 0; rank < 3; rank++) {
        assert_false(calls[rank].is_done);
        assert_int_equal(awaited_by(&w->parties[rank], &calls[rank]), rank > 0 ? 1 << 0 : 1 << 1 | 1 << 2);
        ddl_posting_cancel(&w->parties[rank].posting, &calls[rank].post);
        assert_int_equal(w->parties[rank].withdrawn_end > 0, rank < 2);
    }
    free(calls);
    free_world(w);
}

/* It has room for one piece there, and says that there are as many as the others have. */
static void who_tells_nonsense_is_not_read(void **state)
{
    (void)state;
    world *w = make_world(3, false, COUNT);
    call *calls = begin_two_of_three(w);
    for (int what = 0; what < 2; what++) {
        uint64_t *place = (uint64_t *)(void *)w->parties[1].board.pads[1]->sheets[1].bytes;
        place[what] = HEAP_BYTES - sizeof(int32_t) * PIECE;
    }
    begin(&w->parties[2], &calls[2], AT_PAGES, 1);
    go_on(w);
    for (int rank = 0; rank < 3; rank++) {
        assert_false(calls[rank].is_done);
        assert_int_equal(awaited_by(&w->parties[rank], &calls[rank]), rank == 1 ? 1 << 0 | 1 << 2 : 1 << 1);
        ddl_posting_cancel(&w->parties[rank].posting, &calls[rank].post);
    }
    free(calls);
    free_world(w);
}

/* Not the first piece, which shares its page with something else; to the end of the page of the last one. */
static void pages_are_withdrawn_whole(void **state)
{
    (void)state;
    world *w = make_world(2, false, COUNT);
    call *calls = make_calls(2);
    for (int rank = 0; rank < 2; rank++)
        begin(&w->parties[rank], &calls[rank], BESIDE_PAGES, 1);
    while (calls[0].piece == 0)
        for (int rank = 0; rank < 2; rank++)
            (void)ddl_posting_progress(&w->parties[rank].posting);
    (void)ddl_posting_progress(&w->parties[0].posting);
    const uintptr_t told = (uintptr_t)(calls[0].out + PIECE),
                    end = (uintptr_t)(calls[0].out + PIECE * (PIECES - 1));
    for (int rank = 0; rank < 2; rank++)
        ddl_posting_cancel(&w->parties[rank].posting, &calls[rank].post);
    assert_int_not_equal(end % PAGE, 0);
    assert_true(w->parties[0].withdrawn == told / PAGE * PAGE);
    assert_true(w->parties[0].withdrawn_end == (end / PAGE + 1) * PAGE);
    free(calls);
    free_world(w);
}

/* ---- threads ---- */

static uint32_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(x >> 32);
}

static void *take_part(void *arg)
{
    party *self = arg;
    call *c = calloc(1, sizeof *c);
    const ddl_deadline deadline = ddl_deadline_in_ms(PATIENCE_MS);
    self->wrong += c == NULL;
    for (uint64_t sequence = 1; self->wrong == 0 && sequence <= CALLS; sequence++) {
        const uint32_t what = mix(sequence * 64 + (uint64_t)self->rank);
        begin(self, c, what % 4 == 0 ? what / 4 % WHERES : 1 + what / 4 % 2, sequence);
        while (!c->is_done && !ddl_deadline_passed(deadline))
            if (!ddl_posting_progress(&self->posting))
                sched_yield();
        self->wrong += c->is_done ? count_wrong(c) : 1;
    }
    while (self->wrong == 0 && !ddl_list_empty(&self->busy) && !ddl_deadline_passed(deadline))
        (void)ddl_posting_progress(&self->posting);
    free(c);
    return NULL;
}

static void any_mix_of_places_is_right(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++) {
        world *w = make_world(nranks, nranks == 3, COUNT);
        for (int rank = 0; rank < nranks; rank++)
            assert_int_equal(pthread_create(&w->parties[rank].thread, NULL, take_part, &w->parties[rank]), 0);
        for (int rank = 0; rank < nranks; rank++) {
            assert_int_equal(pthread_join(w->parties[rank].thread, NULL), 0);
            assert_int_equal(w->parties[rank].wrong, 0);
            assert_int_equal(w->parties[rank].differences, 0);
            assert_int_equal(w->parties[rank].withdrawn_end, 0);
        }
        free_world(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wherever_buffers_are_the_result_is_right),
        cmocka_unit_test(pieces_whose_places_are_told_go_together),
        cmocka_unit_test(what_was_withdrawn_is_not_told_again),
        cmocka_unit_test(nobody_is_done_with_what_was_given_up),
        cmocka_unit_test(who_has_all_is_done),
        cmocka_unit_test(who_is_not_reached_is_not_read),
        cmocka_unit_test(who_tells_nonsense_is_not_read),
        cmocka_unit_test(pages_are_withdrawn_whole),
        cmocka_unit_test(any_mix_of_places_is_right),
    };
#ifdef __SANITIZE_THREAD__ /* which has nothing to say of a single thread */
    cmocka_set_test_filter("any_*");
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
