/*
 * test_wrong_calls.c - on several ranks: what makes no sense is refused, names its argument and changes
 * nothing; what ranks do not agree on is told to all of them. Ranks are threads of this process.
 */
#include "../support/now.h"
#include "call.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { RANKS = 3, ROOM = 400000 };

static bool world_works(const rank_thread *me)
{
    int32_t x = me->rank + 1;
    return ddl_allreduce(&x, &x, 1, DDL_INT32, DDL_SUM, me->world, NULL) == DDL_OK &&
           x == me->nranks * (me->nranks + 1) / 2;
}

/* ---- refused ---- */

enum { ELEMENTS = 8 };

struct refusal {
    rank_thread *me;
    float given[RANKS * ELEMENTS], got[RANKS * ELEMENTS];
    size_t counts[RANKS];
    call sound; /* that would be accepted, and of which a test makes one argument wrong */
};

static const char *the_error(void)
{
    return ddl_last_error()->text;
}

/* Also that this is so with a request, that nothing is written and that the order of operations goes on. */
static void refuse(struct refusal *r, const char *what, const call *c, const char *argument)
{
    rank_thread *me = r->me;
    ddl_request *never = (ddl_request *)(uintptr_t)r, *request = never;
    float before[RANKS * ELEMENTS];

    memcpy(before, r->got, sizeof before);
    for (int blocking = 0; blocking < 2; blocking++) {
        ddl_status status = call_make(c, me->world, blocking ? NULL : &request);
        bool good = status == DDL_EINVAL && ddl_last_error()->code == DDL_EINVAL && request == never &&
                    memcmp(before, r->got, sizeof before) == 0 && strstr(the_error(), argument) != NULL &&
                    strcmp(ddl_last_error()->operation, oracle_kind_name(c->kind)) == 0;
        if (!good)
            ranks_complain(me, "%s in %s: %s, request %s, \"%s\"", what, oracle_kind_name(c->kind),
                           ddl_status_name(status), request == never ? "untouched" : "written", the_error());
    }
    EXPECT(me, world_works(me));
}

static struct refusal refusal_of(rank_thread *me, oracle_kind kind)
{
    struct refusal r = { .me = me, .counts = { 2, 0, 3 } };
    r.sound = (call){ .kind = kind, .count = 2, .dtype = DDL_FLOAT32, .op = DDL_SUM, .root = me->rank };
    return r;
}

static bool gives(oracle_kind kind)
{
    return kind != ORACLE_BROADCAST && kind != ORACLE_BARRIER;
}

static void refuse_of_kind(rank_thread *me, oracle_kind kind)
{
    struct refusal r = refusal_of(me, kind);
    size_t too_many[] = { SIZE_MAX - 1, 1, 1 }, too_large[] = { 1, SIZE_MAX / 8 + 1, 0 };
    size_t together[] = { SIZE_MAX / 8 / 2, SIZE_MAX / 8 / 2, SIZE_MAX / 8 / 2 }, other[] = { 2, 1, 3 };
    bool is_uneven = oracle_is_uneven(kind);
    call c;

    r.sound.send = r.given;
    r.sound.recv = r.got;
    r.sound.counts = r.sound.recv_counts = r.counts;
    r.counts[me->rank] = 2; /* something of every rank */
    for (int wrong = 0; wrong < 3 && oracle_is_rooted(kind); wrong++) {
        static const int roots[] = { -1, RANKS, 1 << 30 };
        c = r.sound;
        c.root = roots[wrong];
        refuse(&r, "a root outside", &c, "root");
    }
    c = r.sound;
    c.recv = NULL;
    refuse(&r, "no buffer to receive into", &c, kind == ORACLE_BROADCAST ? "buffer" : "recv");
    c = r.sound;
    c.dtype = 99;
    refuse(&r, "a type that does not exist", &c, "99");
    for (int dtype = DDL_FLOAT16; dtype <= DDL_FLOAT64 && oracle_reduces(kind); dtype++)
        for (int op = DDL_BAND; op <= DDL_BXOR; op++) {
            c = r.sound;
            c.dtype = dtype;
            c.op = op;
            refuse(&r, "bits of floats", &c, oracle_op_name((ddl_op)op));
        }
    if (gives(kind)) {
        c = r.sound;
        c.send = NULL;
        refuse(&r, "no buffer to send from", &c, "send");
        c = r.sound;
        c.send = r.got + 1; /* one element off any place that would be in place */
        c.recv = r.got + (kind == ORACLE_ALLGATHER || kind == ORACLE_ALLGATHERV || kind == ORACLE_GATHER ||
                                  kind == ORACLE_GATHERV
                              ? 0
                              : 2);
        refuse(&r, "buffers that overlap", &c, "overlap");
    }
    if (is_uneven) {
        c = r.sound;
        c.counts = NULL;
        refuse(&r, "no counts", &c, kind == ORACLE_ALLTOALLV ? "send_counts" : "counts");
        c = r.sound;
        c.counts = c.recv_counts = too_many;
        refuse(&r, "counts that add up to more than there is", &c, "overflow");
        c = r.sound;
        c.counts = c.recv_counts = too_large;
        c.dtype = DDL_FLOAT64;
        refuse(&r, "a count of more bytes than there are", &c, "overflow");
        c = r.sound;
        c.counts = c.recv_counts = together;
        c.dtype = DDL_FLOAT64;
        refuse(&r, "counts of more bytes together than there are", &c, "overflow");
    } else {
        c = r.sound;
        c.count = SIZE_MAX / 4 + 1;
        refuse(&r, "a count of more bytes than there are", &c, "overflow");
        c.count = sizeof(size_t) > 4 ? (size_t)(UINT64_C(1) << 47) : SIZE_MAX / 2;
        refuse(&r, "a count of more bytes than a machine addresses", &c, "overflow");
    }
    if (kind == ORACLE_ALLTOALLV) {
        c = r.sound;
        c.recv_counts = NULL;
        refuse(&r, "no counts of what comes", &c, "recv_counts");
        c = r.sound;
        c.recv_counts = too_many;
        refuse(&r, "too much that comes", &c, "overflow");
        c = r.sound;
        c.send = c.recv;
        c.recv_counts = other;
        refuse(&r, "in place with other counts", &c, "recv");
        for (int more = -1; more <= 1; more += 2) {
            memcpy(other, r.counts, sizeof other);
            other[me->rank] += (size_t)more;
            c = r.sound;
            c.recv_counts = other;
            refuse(&r, "more or less from itself than to itself", &c, "recv_counts");
        }
    }
}

/* One buffer is of all blocks, the other of one, which begins in the first anywhere, or ends in it. */
static void refuse_overlaps(rank_thread *me, oracle_kind kind)
{
    enum { COUNT = 8, ALL = RANKS * COUNT };
    struct refusal r = refusal_of(me, kind);
    float memory[COUNT + ALL + COUNT] = { 0 }, *all = memory + COUNT;
    const bool scatters = kind == ORACLE_SCATTER;
    r.sound.count = COUNT;
    for (int at = 1 - COUNT; at < ALL; at++) {
        call c = r.sound;
        if (at == me->rank * COUNT)
            continue; /* in place */
        c.send = scatters ? all : all + at;
        c.recv = scatters ? all + at : all;
        refuse(&r, "a block that overlaps", &c, "overlap");
    }
}

static void make_wrong_calls(rank_thread *me)
{
    for (int kind = 0; kind < ORACLE_SHIFT; kind++)
        if (kind != ORACLE_BARRIER)
            refuse_of_kind(me, (oracle_kind)kind);
    refuse_overlaps(me, ORACLE_ALLGATHER);
    refuse_overlaps(me, ORACLE_GATHER);
    refuse_overlaps(me, ORACLE_SCATTER);
}

static void what_makes_no_sense_is_refused_by_name_and_changes_nothing(void **state)
{
    (void)state;
    ranks_play("mem://refused", RANKS, make_wrong_calls, NULL);
}

/* The others do not call at all: nothing of it has gone out. */
static void be_wrong_alone(rank_thread *me)
{
    for (int kind = 0; kind < ORACLE_SHIFT && me->rank == 1; kind++) {
        struct refusal r = refusal_of(me, (oracle_kind)kind);
        r.sound.dtype = 77;
        r.sound.send = r.given;
        r.sound.recv = r.got;
        r.sound.counts = r.sound.recv_counts = r.counts;
        EXPECT(me, kind == ORACLE_BARRIER || call_make(&r.sound, me->world, NULL) == DDL_EINVAL);
    }
    EXPECT(me, world_works(me));
}

static void a_refused_call_of_one_rank_does_not_disturb_the_others(void **state)
{
    (void)state;
    ranks_play("mem://refused-alone", RANKS, be_wrong_alone, NULL);
}

static void misuse_communicators(rank_thread *me)
{
    ddl_comm *part = NULL;

    EXPECT(me, ddl_comm_split(me->world, 0, 0, NULL) == DDL_EINVAL);
    EXPECT(me, strstr(the_error(), "part") != NULL);
    EXPECT(me, ddl_comm_split(NULL, 0, 0, &part) == DDL_EINVAL);
    EXPECT(me, strstr(the_error(), "comm") != NULL);
    EXPECT(me, part == NULL);
    EXPECT(me, ddl_comm_abort(NULL, "why not") == DDL_EINVAL);
    EXPECT(me, strstr(the_error(), "comm") != NULL);
    EXPECT(me, ddl_comm_shrink(NULL, &part) == DDL_EINVAL);
    EXPECT(me, ddl_comm_shrink(me->world, NULL) == DDL_EINVAL);
    EXPECT(me, strstr(the_error(), "survivors") != NULL);
    EXPECT(me, part == NULL);
    EXPECT(me, world_works(me));
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
    EXPECT(me, ddl_comm_free(&part) == DDL_OK);
}

static void nowhere_to_put_a_communicator_is_refused(void **state)
{
    (void)state;
    ranks_play("mem://misused", RANKS, misuse_communicators, NULL);
}

/* What a rank's role does not use, or has no elements of, may be missing. */
static void leave_out_the_unused(rank_thread *me)
{
    size_t nothing[RANKS] = { 0 }, last[RANKS] = { 0, 0, 4 };
    float given[12] = { 1, 2, 3, 4 }, got[12] = { 0 };
    const float *mine = me->rank == 2 ? given : NULL;
    float *own = me->rank == 2 ? got : NULL, *at_root = me->rank == 1 ? got : NULL;
    ddl_comm *w = me->world;

    for (int kind = 0; kind < ORACLE_SHIFT; kind++) {
        const call c = { .kind = (oracle_kind)kind,
                         .counts = nothing,
                         .recv_counts = nothing,
                         .dtype = DDL_FLOAT32,
                         .op = DDL_SUM,
                         .root = 1 };
        ddl_request *request = NULL;
        EXPECT(me, call_make(&c, w, NULL) == DDL_OK);
        EXPECT(me, call_make(&c, w, &request) == DDL_OK);
        EXPECT(me, ddl_wait(&request) == DDL_OK);
    }
    EXPECT(me, ddl_reduce(given, at_root, 4, DDL_FLOAT32, DDL_SUM, 1, w, NULL) == DDL_OK);
    EXPECT(me, ddl_gather(given, at_root, 4, DDL_FLOAT32, 1, w, NULL) == DDL_OK);
    EXPECT(me, ddl_scatter(me->rank == 1 ? given : NULL, got, 4, DDL_FLOAT32, 1, w, NULL) == DDL_OK);
    EXPECT(me, ddl_gatherv(mine, at_root, last, DDL_FLOAT32, 1, w, NULL) == DDL_OK);
    EXPECT(me, at_root == NULL || memcmp(got, given, 4 * sizeof given[0]) == 0);
    EXPECT(me, ddl_scatterv(me->rank == 1 ? given : NULL, own, last, DDL_FLOAT32, 1, w, NULL) == DDL_OK);
    EXPECT(me, own == NULL || memcmp(got, given, 4 * sizeof given[0]) == 0);
    EXPECT(me, ddl_allgatherv(mine, got, last, DDL_FLOAT32, w, NULL) == DDL_OK);
    EXPECT(me, memcmp(got, given, 4 * sizeof given[0]) == 0);
    EXPECT(me, ddl_reduce_scatterv(given, own, last, DDL_FLOAT32, DDL_MAX, w, NULL) == DDL_OK);
    EXPECT(me, own == NULL || memcmp(got, given, 4 * sizeof given[0]) == 0);
    EXPECT(me, ddl_alltoallv(mine, me->rank == 2 ? last : nothing, own, me->rank == 2 ? last : nothing,
                             DDL_FLOAT32, w, NULL) == DDL_OK);
    EXPECT(me, own == NULL || memcmp(got, given, 4 * sizeof given[0]) == 0);
}

static void buffers_that_a_rank_does_not_use_may_be_missing(void **state)
{
    (void)state;
    ranks_play("mem://unused", RANKS, leave_out_the_unused, NULL);
}

/* ---- not agreed on ---- */

enum { MOST_RANKS = 4 };

typedef struct side {
    oracle_kind kind;
    size_t count, counts[MOST_RANKS];
    int dtype, op, root;
} side;

#define V(kind, ...)                                             \
    {                                                            \
        ORACLE_##kind, 0, { __VA_ARGS__ }, DDL_INT32, DDL_SUM, 0 \
    }

/* What most call, and what one rank calls instead. */
static const struct disagreement {
    const char *name;
    side usual, odd;
} disagreements[] = {
    { "one count", V(ALLGATHERV, 1, 2, 3, 4), V(ALLGATHERV, 1, 5, 3, 4) },
    { "the first count", V(ALLGATHERV, 1, 2, 3, 4), V(ALLGATHERV, 2, 2, 3, 4) },
    { "two counts of the same sum", V(ALLGATHERV, 1, 3, 2, 4), V(ALLGATHERV, 3, 1, 2, 4) },
    { "counts of the same short hash", V(ALLGATHERV, 2, 1431, 1567, 9), V(ALLGATHERV, 4, 987, 2009, 9) },
    { "the place of the only block", V(ALLGATHERV, 5, 0, 0, 0), V(ALLGATHERV, 0, 5, 0, 0) },
    { "nothing and something", V(ALLGATHERV, 0, 0, 0, 0), V(ALLGATHERV, 0, 1, 0, 0) },
    { "something and nothing", V(ALLGATHERV, 0, 70000, 0, 0), V(ALLGATHERV, 0, 0, 0, 0) },
    { "a large count", V(ALLGATHERV, 90000, 1, 1, 1), V(ALLGATHERV, 90000, 2, 1, 1) },
    { "a large and a small one", V(ALLGATHERV, 90000, 1, 1, 1), V(ALLGATHERV, 1, 1, 1, 1) },
    { "one count", V(REDUCE_SCATTERV, 1, 2, 3, 4), V(REDUCE_SCATTERV, 1, 5, 3, 4) },
    { "two counts of the same sum", V(REDUCE_SCATTERV, 1, 3, 2, 4), V(REDUCE_SCATTERV, 3, 1, 2, 4) },
    { "counts of the same short hash", V(REDUCE_SCATTERV, 2, 1431, 1567, 9),
      V(REDUCE_SCATTERV, 4, 987, 2009, 9) },
    { "large counts", V(REDUCE_SCATTERV, 90000, 1, 1, 1), V(REDUCE_SCATTERV, 1, 90000, 1, 1) },
    { "one count", V(GATHERV, 1, 2, 3, 4), V(GATHERV, 1, 5, 3, 4) },
    { "two counts of the same sum", V(GATHERV, 1, 3, 2, 4), V(GATHERV, 3, 1, 2, 4) },
    { "counts of the same short hash", V(GATHERV, 2, 1431, 1567, 9), V(GATHERV, 4, 987, 2009, 9) },
    { "large counts", V(GATHERV, 90000, 90000, 1, 1), V(GATHERV, 90000, 90001, 1, 1) },
    { "one count", V(SCATTERV, 1, 2, 3, 4), V(SCATTERV, 1, 5, 3, 4) },
    { "two counts of the same sum", V(SCATTERV, 1, 3, 2, 4), V(SCATTERV, 3, 1, 2, 4) },
    { "counts of the same short hash", V(SCATTERV, 2, 1431, 1567, 9), V(SCATTERV, 4, 987, 2009, 9) },
    { "large counts", V(SCATTERV, 90000, 90000, 1, 1), V(SCATTERV, 90000, 90001, 1, 1) },
    { "with and without v",
      V(ALLGATHERV, 2, 2, 2, 2),
      { ORACLE_ALLGATHER, 2, { 0 }, DDL_INT32, DDL_SUM, 0 } },
    { "with and without v",
      V(REDUCE_SCATTERV, 2, 2, 2, 2),
      { ORACLE_REDUCE_SCATTER, 2, { 0 }, DDL_INT32, DDL_SUM, 0 } },
    { "with and without v", V(GATHERV, 2, 2, 2, 2), { ORACLE_GATHER, 2, { 0 }, DDL_INT32, DDL_SUM, 0 } },
    { "with and without v", V(SCATTERV, 2, 2, 2, 2), { ORACLE_SCATTER, 2, { 0 }, DDL_INT32, DDL_SUM, 0 } },
    { "different collectives", V(ALLGATHERV, 2, 2, 2, 2), V(REDUCE_SCATTERV, 2, 2, 2, 2) },
    { "the type",
      { ORACLE_ALLGATHERV, 0, { 1, 2, 3, 4 }, DDL_INT32, DDL_SUM, 0 },
      { ORACLE_ALLGATHERV, 0, { 1, 2, 3, 4 }, DDL_FLOAT32, DDL_SUM, 0 } },
    { "the operator",
      { ORACLE_REDUCE_SCATTERV, 0, { 1, 2, 3, 4 }, DDL_INT32, DDL_SUM, 0 },
      { ORACLE_REDUCE_SCATTERV, 0, { 1, 2, 3, 4 }, DDL_INT32, DDL_MAX, 0 } },
    { "the root",
      { ORACLE_GATHER, 3, { 0 }, DDL_INT32, DDL_SUM, 0 },
      { ORACLE_GATHER, 3, { 0 }, DDL_INT32, DDL_SUM, 1 } },
    { "the root",
      { ORACLE_SCATTERV, 0, { 1, 2, 3, 4 }, DDL_INT32, DDL_SUM, 0 },
      { ORACLE_SCATTERV, 0, { 1, 2, 3, 4 }, DDL_INT32, DDL_SUM, 1 } },
    { "the count",
      { ORACLE_SCATTER, 3, { 0 }, DDL_INT32, DDL_SUM, 0 },
      { ORACLE_SCATTER, 4, { 0 }, DDL_INT32, DDL_SUM, 0 } },
    { "the count",
      { ORACLE_GATHER, 70000, { 0 }, DDL_INT32, DDL_SUM, 0 },
      { ORACLE_GATHER, 70001, { 0 }, DDL_INT32, DDL_SUM, 0 } },
};

static bool names(int rank)
{
    char name[24];
    snprintf(name, sizeof name, "rank %d ", rank);
    return strstr(the_error(), name) != NULL;
}

/*
 * Whose part was only to send, or nothing, may have been done before anybody could disagree: then a later
 * call tells, however many there were before. All name both of the pair, the higher as the culprit.
 */
static void end_in_mismatch(rank_thread *me, ddl_status status)
{
    double began = now_s();

    while (status == DDL_OK && now_s() - began < RANKS_TIMEOUT_MS / 1000.0)
        status = ddl_barrier(me->world, NULL);
    EXPECT(me, status == DDL_EMISMATCH);
}

static void end_with(rank_thread *me, int lower, int higher)
{
    EXPECT(me, ddl_last_error()->culprit == higher);
    EXPECT(me, names(lower));
    EXPECT(me, names(higher));
    EXPECT(me, ddl_barrier(me->world, NULL) == DDL_EABORTED);
}

struct pairing {
    const struct disagreement *what;
    int odd_rank;
    atomic_int nothers; /* ranks that were told of another pair than the first to disagree */
};

static void disagree(rank_thread *me)
{
    struct pairing *p = me->arg;
    const side *s = me->rank == p->odd_rank ? &p->what->odd : &p->what->usual;
    void *given = calloc(ROOM, 4), *got = calloc(ROOM, 4);
    const call c = { .kind = s->kind,
                     .send = given,
                     .recv = got,
                     .count = s->count,
                     .counts = s->counts,
                     .recv_counts = s->counts,
                     .dtype = s->dtype,
                     .op = s->op,
                     .root = s->root };
    int other = p->odd_rank == 0 ? 1 : 0;

    EXPECT(me, world_works(me));
    ranks_meet(me); /* a failure that is found by a fast rank ends what a slow one has not finished */
    end_in_mismatch(me, call_make(&c, me->world, NULL));
    if (!names(other)) { /* which came to the call when the others had given it up */
        atomic_fetch_add(&p->nothers, 1);
        for (other = 0; other == p->odd_rank || (other < me->nranks && !names(other));)
            other++;
    }
    end_with(me, other < p->odd_rank ? other : p->odd_rank, other < p->odd_rank ? p->odd_rank : other);
    ddl_comm_free(&me->world);
    free(given);
    free(got);
}

/* All are told of the first pair, unless one of that was held up for the 0.2 s in which it can be heard of;
 * that does not happen three times in a row. */
static void counts_that_differ_between_ranks_are_told_to_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof disagreements / sizeof disagreements[0]; i++)
        for (int nranks = 2; nranks <= MOST_RANKS; nranks++) {
            struct pairing p = { .what = &disagreements[i], .odd_rank = nranks == 3 ? 0 : nranks - 1 };
            char complaint[1024] = "";

            for (int tries = 0; complaint[0] == '\0' && (tries == 0 || p.nothers > 0); tries++) {
                if (tries == 3)
                    fail_msg("%s of %s: told of another pair, three times", p.what->name,
                             oracle_kind_name(p.what->usual.kind));
                p.nothers = 0;
                ranks_try("mem://disagree", nranks, disagree, &p, complaint);
            }
            if (complaint[0] != '\0')
                fail_msg("%s of %s, rank %d of %d is odd: %s", p.what->name,
                         oracle_kind_name(p.what->usual.kind), p.odd_rank, nranks, complaint);
        }
}

/* Of another array a rank knows no more than that it is another; so each tells its own program what it has.
 */
static void show_counts(rank_thread *me)
{
    atomic_int *nshown = me->arg;
    const size_t counts[2][RANKS] = { { 2, 0, 3 }, { 2, 1, 3 } };
    const char *shown[] = { "the counts of this rank are 2, 0, 3", "the counts of this rank are 2, 1, 3" };
    const int which = me->rank == RANKS - 1;
    int32_t given[RANKS * ELEMENTS] = { 0 }, got[RANKS * ELEMENTS];

    EXPECT(me, world_works(me));
    ranks_meet(me);
    end_in_mismatch(me, ddl_allgatherv(given, got, counts[which], DDL_INT32, me->world, NULL));
    if (strstr(the_error(), shown[which]) != NULL)
        atomic_fetch_add(nshown, 1);
    EXPECT(me, strstr(the_error(), shown[!which]) == NULL);
    ddl_comm_free(&me->world);
}

/* But for one that comes when it is over; that does not happen three times in a row. */
static void each_rank_shows_the_counts_that_it_has(void **state)
{
    (void)state;
    atomic_int nshown = 0;
    for (int tries = 0; nshown < RANKS && tries < 3; tries++) {
        nshown = 0;
        ranks_play("mem://shown", RANKS, show_counts, &nshown);
    }
    assert_int_equal(nshown, RANKS);
}

/* One block of an alltoallv: what `from` sends and what `to` expects; all others agree on `rest`. */
static const struct exchange {
    const char *name;
    size_t sent, expected, rest;
} exchanges[] = {
    { "one more than is expected", 4, 3, 2 },
    { "one less", 3, 4, 2 },
    { "something for nothing", 3, 0, 0 },
    { "nothing for something", 0, 3, 0 },
    { "something for nothing, among others", 3, 0, 5 },
    { "nothing for something, among others", 0, 3, 5 },
    { "much for little", 90000, 5, 2 },
    { "little for much", 5, 90000, 2 },
    { "much for nothing", 90000, 0, 7 },
    { "nothing for much", 0, 90000, 7 },
};

struct exchanging {
    const struct exchange *what;
    int from, to;
};

static void exchange_wrongly(rank_thread *me)
{
    const struct exchanging *e = me->arg;
    size_t sends[MOST_RANKS], receives[MOST_RANKS];
    void *given = calloc(ROOM, 4), *got = calloc(ROOM, 4);

    for (int r = 0; r < me->nranks; r++)
        sends[r] = receives[r] = e->what->rest;
    if (me->rank == e->from)
        sends[e->to] = e->what->sent;
    if (me->rank == e->to)
        receives[e->from] = e->what->expected;
    EXPECT(me, world_works(me));
    ranks_meet(me); /* a failure that is found by a fast rank ends what a slow one has not finished */
    end_in_mismatch(me, ddl_alltoallv(given, sends, got, receives, DDL_INT32, me->world, NULL));
    end_with(me, e->from < e->to ? e->from : e->to, e->from < e->to ? e->to : e->from);
    ddl_comm_free(&me->world);
    free(given);
    free(got);
}

static void what_is_sent_to_a_rank_must_be_what_it_expects(void **state)
{
    static const struct {
        int nranks, from, to;
    } pairs[] = { { 2, 0, 1 }, { 2, 1, 0 }, { 3, 2, 0 }, { 4, 1, 3 }, { 4, 3, 2 } };
    (void)state;
    for (size_t i = 0; i < sizeof exchanges / sizeof exchanges[0]; i++)
        for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
            struct exchanging e = { &exchanges[i], pairs[p].from, pairs[p].to };
            char complaint[1024];

            ranks_try("mem://exchange", pairs[p].nranks, exchange_wrongly, &e, complaint);
            if (complaint[0] != '\0')
                fail_msg("%s, from rank %d to %d of %d: %s", e.what->name, e.from, e.to, pairs[p].nranks,
                         complaint);
        }
}

/* A send and a receive that meet: rank `from` sends what rank `to` does not expect. */
static const struct letter {
    const char *name;
    size_t sent, expected;
    int sent_type, expected_type;
    const char *text[2];
} letters[] = {
    { "more", 4, 3, DDL_INT32, DDL_INT32, { "sends 4 int32 to", "expects 3 int32" } },
    { "less", 4, 8, DDL_INT32, DDL_INT32, { "sends 4 int32 to", "expects 8 int32" } },
    { "another type", 8, 8, DDL_INT32, DDL_FLOAT32, { "sends 8 int32 to", "expects 8 float32" } },
    { "much", 90000, 89999, DDL_INT8, DDL_INT8, { "sends 90000 int8 to", "expects 89999 int8" } },
    { "more than is sent at once",
      390000,
      3,
      DDL_INT32,
      DDL_INT32,
      { "sends 390000 int32", "expects 3 int32" } },
    { "nothing", 0, 3, DDL_INT32, DDL_INT32, { "sends 0 int32 to", "expects 3 int32" } },
    { "less than is sent at once",
      3,
      390000,
      DDL_INT32,
      DDL_INT32,
      { "sends 3 int32", "expects 390000 int32" } },
};

struct correspondence {
    const struct letter *what;
    int from, to;
};

static void send_wrongly(rank_thread *me)
{
    const struct correspondence *c = me->arg;
    void *buffer = calloc(ROOM, 4);
    ddl_status status = DDL_OK;
    char sender[24];

    EXPECT(me, world_works(me));
    ranks_meet(me); /* a failure that is found by a fast rank ends what a slow one has not finished */
    if (me->rank == c->from)
        status = ddl_send(buffer, c->what->sent, c->what->sent_type, c->to, me->world, NULL);
    if (me->rank == c->to)
        status = ddl_recv(buffer, c->what->expected, c->what->expected_type, c->from, me->world, NULL);
    end_in_mismatch(me, status);
    snprintf(sender, sizeof sender, ": rank %d (pid", c->from);
    EXPECT(me, strstr(the_error(), sender) != NULL);
    EXPECT(me,
           strstr(the_error(), c->what->text[0]) != NULL && strstr(the_error(), c->what->text[1]) != NULL);
    end_with(me, c->from < c->to ? c->from : c->to, c->from < c->to ? c->to : c->from);
    ddl_comm_free(&me->world);
    free(buffer);
}

static void a_message_must_be_what_its_receiver_expects(void **state)
{
    static const struct {
        int nranks, from, to;
    } pairs[] = { { 2, 0, 1 }, { 2, 1, 0 }, { 3, 2, 0 } };
    (void)state;
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
            struct correspondence c = { &letters[i], pairs[p].from, pairs[p].to };
            char complaint[1024];

            ranks_try("mem://letter", pairs[p].nranks, send_wrongly, &c, complaint);
            if (complaint[0] != '\0')
                fail_msg("%s, from rank %d to %d of %d: %s", c.what->name, c.from, c.to, pairs[p].nranks,
                         complaint);
        }
}

/* On a part ranks are told by their numbers there, and the world goes on. */
static void disagree_on_a_part(rank_thread *me)
{
    ddl_comm *part = NULL;
    ddl_status status;
    int32_t x[4] = { 0 };

    EXPECT(me, ddl_comm_split(me->world, 0, -me->rank, &part) == DDL_OK);
    status = ddl_allreduce(x, x, me->rank == 0 ? 3 : 4, DDL_INT32, DDL_SUM, part, NULL);
    if (status == DDL_OK)
        status = ddl_barrier(part, NULL);
    EXPECT(me, status == DDL_EMISMATCH);
    EXPECT(me, ddl_last_error()->culprit == me->nranks - 1);
    EXPECT(me, ddl_last_error()->rank == ddl_rank(part));
    EXPECT(me, world_works(me));
    EXPECT(me, ddl_comm_free(&part) == DDL_OK);
    EXPECT(me, world_works(me));
}

static void a_disagreement_on_a_part_breaks_the_part_alone(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++)
        ranks_play("mem://part", nranks, disagree_on_a_part, NULL);
}

/* ---- memory that is none ---- */

enum { MEBIBYTE = 1 << 20 };

static void send_what_cannot_be_read(rank_thread *me)
{
    const int protection = me->rank == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *buffer = mmap(NULL, MEBIBYTE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) {
        ranks_complain(me, "no memory");
        return;
    }
    const ddl_status status = me->rank == 0   ? ddl_send(buffer, MEBIBYTE, DDL_INT8, 1, me->world, NULL)
                              : me->rank == 1 ? ddl_recv(buffer, MEBIBYTE, DDL_INT8, 0, me->world, NULL)
                                              : ddl_barrier(me->world, NULL);
    EXPECT(me, status == DDL_ERESOURCE);
    EXPECT(me, ddl_last_error()->culprit == 0);
    EXPECT(me, strstr(ddl_last_error()->text, "Bad address") != NULL);
    EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
    munmap(buffer, MEBIBYTE);
}

/* Over sockets, that is, where the system finds out. */
static void a_buffer_that_is_no_memory_is_its_own_ranks_fault(void **state)
{
    (void)state;
    const char *transport = getenv("DDL_TRANSPORT");
    if (transport == NULL || strcmp(transport, "tcp") != 0)
        skip();
    ranks_play("mem://none", 3, send_what_cannot_be_read, NULL);
}

static void be_quiet(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_makes_no_sense_is_refused_by_name_and_changes_nothing),
        cmocka_unit_test(a_refused_call_of_one_rank_does_not_disturb_the_others),
        cmocka_unit_test(nowhere_to_put_a_communicator_is_refused),
        cmocka_unit_test(buffers_that_a_rank_does_not_use_may_be_missing),
        cmocka_unit_test(counts_that_differ_between_ranks_are_told_to_all),
        cmocka_unit_test(each_rank_shows_the_counts_that_it_has),
        cmocka_unit_test(what_is_sent_to_a_rank_must_be_what_it_expects),
        cmocka_unit_test(a_message_must_be_what_its_receiver_expects),
        cmocka_unit_test(a_disagreement_on_a_part_breaks_the_part_alone),
        cmocka_unit_test(a_buffer_that_is_no_memory_is_its_own_ranks_fault),
    };
    ddl_set_log(be_quiet, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
