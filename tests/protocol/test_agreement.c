/*
 * test_agreement.c - ranks that crash, or are cut off from each other, in the middle of agreeing on who is
 * left. All ranks run in one thread; a seed decides who reads what when, who crashes after how many of its
 * reports have left, and which links break.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "protocol/agreement.h"
#include "protocol/frame.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 9, QUEUE = 512, REPORT_BYTES = 8 + 2, SEEDS = 4000 };

typedef struct pipe { /* from one rank to another, in order */
    uint8_t reports[QUEUE][REPORT_BYTES];
    int head, tail;
    bool closed; /* by a crash; what is in it can still be read */
    bool seen;   /* its reader has seen the end */
    bool cut;    /* nothing passes any more, and nobody is told; what is in it is lost */
} pipe;

typedef struct world {
    int nranks;
    uint64_t random;
    bool crashed[RANKS];
    int writes_left[RANKS]; /* until the crash; -1: never */
    ddl_agreement *ranks[RANKS];
    pipe pipes[RANKS][RANKS];
} world;

static uint32_t draw(world *w, uint32_t below)
{
    w->random = w->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(w->random >> 33) % below;
}

static void crash(world *w, int rank)
{
    w->crashed[rank] = true;
    for (int other = 0; other < w->nranks; other++) {
        w->pipes[rank][other].closed = true;
        w->pipes[other][rank].closed = true;
    }
}

/* Send what is due; a crash may come between two of the peers. */
static void send_reports(world *w, int rank)
{
    ddl_bytes report = { 0 };
    while (!w->crashed[rank] && ddl_agreement_report(w->ranks[rank], &report)) {
        assert_int_equal(report.bytes, 8 + (w->nranks + 7) / 8);
        for (int peer = 0; peer < w->nranks && !w->crashed[rank]; peer++) {
            if (peer == rank)
                continue;
            if (w->writes_left[rank] == 0) {
                crash(w, rank);
                break;
            }
            if (w->writes_left[rank] > 0)
                w->writes_left[rank]--;
            pipe *to = &w->pipes[rank][peer];
            if (to->cut)
                continue;
            assert_true(to->tail < QUEUE);
            memcpy(to->reports[to->tail++], report.data, report.bytes);
        }
        report.bytes = 0;
    }
    ddl_bytes_fini(&report);
}

/* Read one report from a pipe, or its end. False: nothing is there. */
static bool read_pipe(world *w, int from, int to)
{
    pipe *p = &w->pipes[from][to];
    ddl_error error;
    if (p->head < p->tail) {
        size_t bytes = 8 + ((size_t)w->nranks + 7) / 8;
        ddl_view report = { p->reports[p->head++], bytes };
        assert_int_equal(ddl_agreement_hear(w->ranks[to], from, report, &error), DDL_OK);
    } else if (p->closed && !p->seen) {
        p->seen = true;
        ddl_agreement_lose(w->ranks[to], from);
    } else {
        return false;
    }
    send_reports(w, to);
    return true;
}

static void run(world *w)
{
    int quiet = 0;
    while (quiet < w->nranks * w->nranks * 8) {
        int from = (int)draw(w, (uint32_t)w->nranks), to = (int)draw(w, (uint32_t)w->nranks);
        if (from == to || w->crashed[to] || !read_pipe(w, from, to))
            quiet++;
        else
            quiet = 0;
    }
    bool moved = true; /* and what chance left over */
    while (moved) {
        moved = false;
        for (int from = 0; from < w->nranks; from++)
            for (int to = 0; to < w->nranks; to++)
                if (from != to && !w->crashed[to] && read_pipe(w, from, to))
                    moved = true;
    }
}

static void assert_same_decision(const world *w, int a, int b)
{
    for (int rank = 0; rank < w->nranks; rank++)
        assert_int_equal(ddl_agreement_is_gone(w->ranks[a], rank), ddl_agreement_is_gone(w->ranks[b], rank));
    assert_int_equal(ddl_agreement_offer(w->ranks[a]), ddl_agreement_offer(w->ranks[b]));
}

static void begin(world *w, uint64_t seed)
{
    ddl_error error;
    memset(w, 0, sizeof *w);
    w->random = seed;
    w->nranks = 2 + (int)draw(w, RANKS - 1);
    for (int rank = 0; rank < w->nranks; rank++) {
        assert_int_equal(ddl_agreement_create(rank, w->nranks, 100 + (uint32_t)rank, &w->ranks[rank], &error),
                         DDL_OK);
        w->writes_left[rank] = -1;
    }
}

static void end(world *w)
{
    for (int rank = 0; rank < w->nranks; rank++)
        ddl_agreement_destroy(w->ranks[rank]);
}

static void read_at_random(world *w, uint32_t reads)
{
    for (; reads > 0; reads--) {
        int from = (int)draw(w, (uint32_t)w->nranks), to = (int)draw(w, (uint32_t)w->nranks);
        if (from != to && !w->crashed[to])
            read_pipe(w, from, to);
    }
}

static void ranks_that_are_left_decide_the_same(void **state)
{
    (void)state;
    static world w;
    int decided = 0, minorities = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(&w, seed);
        int mortal = (int)draw(&w, (uint32_t)w.nranks); /* so many crash, some at once */
        for (int i = 0; i < mortal; i++)
            w.writes_left[draw(&w, (uint32_t)w.nranks)] = (int)draw(&w, 3 * (uint32_t)w.nranks);
        for (int i = 0; i < w.nranks; i++) { /* they enter at different times */
            read_at_random(&w, draw(&w, 20));
            ddl_agreement_enter(w.ranks[i]);
            send_reports(&w, i);
        }
        run(&w);
        int first = -1, left = 0;
        for (int rank = 0; rank < w.nranks; rank++)
            left += !w.crashed[rank];
        const bool are_enough = 2 * left > w.nranks || (2 * left == w.nranks && !w.crashed[0]);
        for (int rank = 0; rank < w.nranks; rank++) {
            if (w.crashed[rank])
                continue;
            const ddl_agreement_state result = ddl_agreement_result(w.ranks[rank]);
            if (result != DDL_AGREEMENT_DECIDED && (result != DDL_AGREEMENT_MINORITY || are_enough))
                fail_msg("seed %llu: rank %d of %d has not decided", (unsigned long long)seed, rank,
                         w.nranks);
            assert_false(ddl_agreement_is_gone(w.ranks[rank], rank));
            minorities += result == DDL_AGREEMENT_MINORITY;
            if (result == DDL_AGREEMENT_MINORITY)
                continue; /* others may know of one who had locked the set, and died */
            decided++;
            if (first >= 0)
                assert_same_decision(&w, first, rank);
            first = rank;
        }
        end(&w);
    }
    assert_true(decided > SEEDS); /* both really happen */
    assert_true(minorities > SEEDS / 20);
}

/* Whether enough of the ranks are left who have not lost each other; lost: by each, a bit for each. */
static bool can_go_on(const world *w, const uint32_t lost[])
{
    for (uint32_t set = 1; set < 1u << w->nranks; set++) {
        int count = 0;
        bool is_whole = true;
        for (int rank = 0; rank < w->nranks; rank++)
            if ((set >> rank & 1) != 0) {
                count++;
                is_whole = is_whole && (lost[rank] & set) == 0;
            }
        if (is_whole && (2 * count > w->nranks || (2 * count == w->nranks && (set & 1) != 0)))
            return true;
    }
    return false;
}

/* They have lost each other before they agree, or some of it while they do, and still hear each other. */
static bool somebody_goes_on(world *w, const uint32_t lost[], bool in_between)
{
    uint32_t later[RANKS];
    for (int rank = 0; rank < w->nranks; rank++) {
        later[rank] = in_between ? lost[rank] & draw(w, 1u << w->nranks) : 0;
        for (int other = 0; other < w->nranks; other++)
            if (((lost[rank] & ~later[rank]) >> other & 1) != 0)
                ddl_agreement_lose(w->ranks[rank], other);
    }
    const int first = (int)draw(w, (uint32_t)w->nranks);
    for (int i = 0; i < w->nranks; i++) {
        const int rank = (first + i) % w->nranks;
        read_at_random(w, draw(w, 20));
        ddl_agreement_enter(w->ranks[rank]);
        send_reports(w, rank);
    }
    for (int rank = 0; rank < w->nranks; rank++)
        for (int other = 0; other < w->nranks; other++)
            if ((later[rank] >> other & 1) != 0) {
                read_at_random(w, draw(w, 20));
                ddl_agreement_lose(w->ranks[rank], other);
                send_reports(w, rank);
            }
    run(w);
    int decided = -1;
    for (int rank = 0; rank < w->nranks; rank++) {
        const ddl_agreement_state result = ddl_agreement_result(w->ranks[rank]);
        assert_int_not_equal(result, DDL_AGREEMENT_OPEN);
        if (result == DDL_AGREEMENT_DECIDED && decided >= 0)
            assert_same_decision(w, decided, rank);
        if (result == DDL_AGREEMENT_DECIDED)
            decided = rank;
    }
    return decided >= 0;
}

/* A network was cut, and is whole again: each side has lost one rank of the other, which all of it name as
 * the cause, or some of it more. */
static void some_go_on_after_a_cut_that_healed(void **state)
{
    (void)state;
    static world w;
    int in_vain = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(&w, seed);
        const uint32_t all = (1u << w.nranks) - 1;
        uint32_t sides[2] = { 0 }, lost[RANKS];
        while (sides[0] == 0 || sides[0] == all)
            sides[0] = draw(&w, 1u << w.nranks);
        sides[1] = all & ~sides[0];
        int causes[2];
        for (int side = 0; side < 2; side++)
            do
                causes[side] = (int)draw(&w, (uint32_t)w.nranks);
            while ((sides[1 - side] >> causes[side] & 1) == 0);
        const bool some_know_more = draw(&w, 2) == 0;
        for (int rank = 0; rank < w.nranks; rank++) {
            const int side = (int)(sides[1] >> rank & 1);
            lost[rank] = 1u << causes[side];
            if (some_know_more)
                lost[rank] |= sides[1 - side] & draw(&w, 1u << w.nranks);
        }
        const bool in_between = draw(&w, 4) == 0, does = somebody_goes_on(&w, lost, in_between);
        if (!does && !in_between)
            fail_msg("seed %llu: nobody of %d goes on", (unsigned long long)seed, w.nranks);
        in_vain += !does;
        end(&w);
    }
    assert_true(in_vain < SEEDS / 50); /* who is lost after a proposal may have been needed for it */
}

static void some_go_on_whoever_has_lost_whom(void **state)
{
    (void)state;
    static world w;
    int could = 0, could_not = 0, in_vain = 0;
    for (uint64_t seed = 1; seed <= 2 * SEEDS; seed++) {
        begin(&w, seed);
        uint32_t lost[RANKS] = { 0 };
        for (int links = (int)draw(&w, (uint32_t)(w.nranks * w.nranks) / 2); links > 0; links--) {
            const int rank = (int)draw(&w, (uint32_t)w.nranks), other = (int)draw(&w, (uint32_t)w.nranks);
            if (rank != other)
                lost[rank] |= 1u << other;
        }
        const bool can = can_go_on(&w, lost), does = somebody_goes_on(&w, lost, false);
        in_vain += can && !does;
        could += can;
        could_not += !can;
        end(&w);
    }
    assert_true(in_vain < SEEDS / 1000);
    assert_true(could > SEEDS / 4);
    assert_true(could_not > SEEDS / 4);
}

static void cut(world *w, int from, int to)
{
    pipe *p = &w->pipes[from][to];
    p->cut = true;
    p->tail = p->head;
}

/* Ranks enter, some late; sides, or single links, one way or both, are cut at any time; whoever is cut off
 * from another takes it for gone, some time later. Whatever else comes of that, no two ranks go on with two
 * sets, and all end. */
static void no_two_sets_are_decided_whatever_is_cut(void **state)
{
    (void)state;
    static world w;
    int decided = 0, excluded = 0, minorities = 0, split = 0;
    for (uint64_t seed = 1; seed <= 5 * SEEDS; seed++) {
        bool broken[RANKS][RANKS] = { { false } }, entered[RANKS] = { false };
        begin(&w, seed);
        const int ncuts = (int)draw(&w, 3);
        for (int i = 0; i < w.nranks; i++) {
            int rank = (int)draw(&w, (uint32_t)w.nranks);
            while (entered[rank])
                rank = (rank + 1) % w.nranks;
            entered[rank] = true;
            for (int n = 0; n < ncuts && draw(&w, (uint32_t)w.nranks) == 0; n++) {
                const uint32_t side = draw(&w, 1u << w.nranks), ways = draw(&w, 3);
                for (int a = 0; a < w.nranks; a++)
                    for (int b = 0; b < w.nranks; b++)
                        if ((side >> a & 1) != 0 && (side >> b & 1) == 0) {
                            if (ways != 1)
                                cut(&w, a, b);
                            if (ways != 0)
                                cut(&w, b, a);
                            broken[a][b] = broken[b][a] = true;
                        }
            }
            read_at_random(&w, draw(&w, 30));
            ddl_agreement_enter(w.ranks[rank]);
            send_reports(&w, rank);
        }
        read_at_random(&w, draw(&w, 60));
        for (int left = w.nranks * w.nranks;
             left > 0;) { /* those who are cut off are found so, in any order */
            const int a = (int)draw(&w, (uint32_t)w.nranks), b = (int)draw(&w, (uint32_t)w.nranks);
            left--;
            if (a == b || !broken[a][b])
                continue;
            ddl_agreement_lose(w.ranks[a], b);
            send_reports(&w, a);
            read_at_random(&w, draw(&w, 10));
        }
        for (int a = 0; a < w.nranks; a++)
            for (int b = 0; b < w.nranks; b++)
                if (broken[a][b]) {
                    ddl_agreement_lose(w.ranks[a], b);
                    send_reports(&w, a);
                }
        run(&w);
        int first = -1, others = 0;
        for (int rank = 0; rank < w.nranks; rank++) {
            const ddl_agreement_state result = ddl_agreement_result(w.ranks[rank]);
            if (result == DDL_AGREEMENT_OPEN)
                fail_msg("seed %llu: rank %d of %d has not ended", (unsigned long long)seed, rank, w.nranks);
            decided += result == DDL_AGREEMENT_DECIDED;
            excluded += result == DDL_AGREEMENT_EXCLUDED;
            minorities += result == DDL_AGREEMENT_MINORITY;
            others += result != DDL_AGREEMENT_DECIDED;
            if (result == DDL_AGREEMENT_DECIDED && first >= 0)
                assert_same_decision(&w, first, rank);
            if (result == DDL_AGREEMENT_DECIDED)
                first = rank;
        }
        split += first >= 0 && others > 0;
        end(&w);
    }
    assert_true(decided > SEEDS); /* all of it really happens */
    assert_true(excluded > SEEDS / 20);
    assert_true(minorities > SEEDS / 20);
    assert_true(split > SEEDS / 20);
}

/* As above, but that a rank finds only those lost that it awaits, as ddl_comm_shrink does: that is enough for
 * all to end. */
static void all_end_where_only_the_awaited_are_found(void **state)
{
    (void)state;
    static world w;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bool broken[RANKS][RANKS] = { { false } };
        begin(&w, seed);
        const uint32_t links = draw(&w, 4);
        const int first = (int)draw(&w, (uint32_t)w.nranks);
        for (int i = 0; i < w.nranks; i++) {
            read_at_random(&w, draw(&w, 30));
            ddl_agreement_enter(w.ranks[(first + i) % w.nranks]);
            send_reports(&w, (first + i) % w.nranks);
            for (uint32_t n = 0; n < links && draw(&w, 2) == 0; n++) {
                const int a = (int)draw(&w, (uint32_t)w.nranks), b = (int)draw(&w, (uint32_t)w.nranks);
                if (a == b)
                    continue;
                cut(&w, a, b);
                if (draw(&w, 2) == 0)
                    cut(&w, b, a);
                broken[a][b] = broken[b][a] = true;
            }
        }
        for (bool found = true; found;) {
            run(&w);
            found = false;
            for (int i = 0; i < w.nranks * w.nranks && !found; i++) {
                const int a = (first + i) % w.nranks, b = i / w.nranks;
                found = broken[a][b] && ddl_agreement_awaits(w.ranks[a], b);
                if (found)
                    ddl_agreement_lose(w.ranks[a], b);
            }
            for (int rank = 0; rank < w.nranks; rank++)
                send_reports(&w, rank);
        }
        for (int rank = 0; rank < w.nranks; rank++)
            if (ddl_agreement_result(w.ranks[rank]) == DDL_AGREEMENT_OPEN)
                fail_msg("seed %llu: rank %d of %d has not ended", (unsigned long long)seed, rank, w.nranks);
        end(&w);
    }
}

/* Two wait, and the third is cut off before it comes: what it has heard of them is not enough. */
static void who_comes_late_and_is_cut_off_does_not_go_on(void **state)
{
    (void)state;
    static world w;
    ddl_error error;
    memset(&w, 0, sizeof w);
    w.nranks = 3;
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(ddl_agreement_create(rank, 3, 0, &w.ranks[rank], &error), DDL_OK);
        w.writes_left[rank] = -1;
    }
    for (int rank = 0; rank < 2; rank++) {
        ddl_agreement_enter(w.ranks[rank]);
        send_reports(&w, rank);
    }
    run(&w);
    for (int rank = 0; rank < 2; rank++) {
        cut(&w, 2, rank);
        cut(&w, rank, 2);
    }
    ddl_agreement_enter(w.ranks[2]);
    send_reports(&w, 2);
    run(&w);
    assert_int_equal(ddl_agreement_result(w.ranks[2]), DDL_AGREEMENT_OPEN);
    for (int rank = 0; rank < 2; rank++) {
        ddl_agreement_lose(w.ranks[2], rank);
        ddl_agreement_lose(w.ranks[rank], 2);
        send_reports(&w, 2);
        send_reports(&w, rank);
    }
    run(&w);
    assert_int_equal(ddl_agreement_result(w.ranks[2]), DDL_AGREEMENT_MINORITY);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(ddl_agreement_result(w.ranks[rank]), DDL_AGREEMENT_DECIDED);
        assert_true(ddl_agreement_is_gone(w.ranks[rank], 2));
    }
    end(&w);
}

/* Who comes after another has stopped waiting does not go on with it; when that waits again both do. */
static void who_has_left_locks_nothing(void **state)
{
    (void)state;
    static world w;
    ddl_error error;
    memset(&w, 0, sizeof w);
    w.nranks = 2;
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(ddl_agreement_create(rank, 2, 0, &w.ranks[rank], &error), DDL_OK);
        w.writes_left[rank] = -1;
    }
    ddl_agreement_enter(w.ranks[1]);
    send_reports(&w, 1);
    ddl_agreement_leave(w.ranks[1]);
    ddl_agreement_enter(w.ranks[0]);
    send_reports(&w, 0);
    run(&w);
    assert_int_equal(ddl_agreement_result(w.ranks[0]), DDL_AGREEMENT_OPEN);
    assert_int_equal(ddl_agreement_awaited(w.ranks[0]), 1);
    ddl_agreement_enter(w.ranks[1]);
    send_reports(&w, 1);
    run(&w);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(ddl_agreement_result(w.ranks[rank]), DDL_AGREEMENT_DECIDED);
    end(&w);
}

static ddl_agreement_state of_so_many(int nranks, const int gone[], int ngone, int rank)
{
    static world w;
    ddl_error error;
    memset(&w, 0, sizeof w);
    w.nranks = nranks;
    for (int r = 0; r < nranks; r++) {
        assert_int_equal(ddl_agreement_create(r, nranks, 0, &w.ranks[r], &error), DDL_OK);
        w.writes_left[r] = -1;
    }
    for (int i = 0; i < ngone; i++)
        crash(&w, gone[i]);
    for (int r = 0; r < nranks; r++)
        if (!w.crashed[r]) {
            ddl_agreement_enter(w.ranks[r]);
            send_reports(&w, r);
        }
    run(&w);
    ddl_agreement_state result = ddl_agreement_result(w.ranks[rank]);
    end(&w);
    return result;
}

static void half_goes_on_only_with_the_lowest_rank(void **state)
{
    (void)state;
    static const struct {
        int nranks, gone[4], ngone, rank;
        ddl_agreement_state result;
    } cases[] = {
        { 4, { 3 }, 1, 0, DDL_AGREEMENT_DECIDED },        { 4, { 2, 3 }, 2, 1, DDL_AGREEMENT_DECIDED },
        { 4, { 0, 3 }, 2, 1, DDL_AGREEMENT_MINORITY },    { 5, { 0, 1 }, 2, 4, DDL_AGREEMENT_DECIDED },
        { 5, { 2, 3, 4 }, 3, 0, DDL_AGREEMENT_MINORITY }, { 2, { 0 }, 1, 1, DDL_AGREEMENT_MINORITY },
        { 2, { 1 }, 1, 0, DDL_AGREEMENT_DECIDED },        { 3, { 0 }, 0, 2, DDL_AGREEMENT_DECIDED },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(of_so_many(cases[i].nranks, cases[i].gone, cases[i].ngone, cases[i].rank),
                         cases[i].result);
}

static void rank_that_others_have_given_up_is_excluded(void **state)
{
    (void)state;
    ddl_agreement *own, *other;
    ddl_error error;
    ddl_bytes report = { 0 };
    assert_int_equal(ddl_agreement_create(0, 5, 0, &own, &error), DDL_OK);
    assert_int_equal(ddl_agreement_create(1, 5, 0, &other, &error), DDL_OK);
    ddl_agreement_lose(other, 0);
    ddl_agreement_enter(other);
    assert_true(ddl_agreement_report(other, &report));
    ddl_agreement_enter(own);
    assert_int_equal(ddl_agreement_hear(own, 1, ddl_bytes_view(&report), &error), DDL_OK);
    assert_true(ddl_agreement_is_gone(own, 1)); /* which does not listen to this one */
    assert_int_equal(ddl_agreement_result(own), DDL_AGREEMENT_OPEN);
    ddl_agreement_lose(own, 2);
    ddl_agreement_lose(own, 3);
    do
        report.bytes = 0;
    while (ddl_agreement_report(own, &report));
    assert_int_equal(ddl_agreement_result(own), DDL_AGREEMENT_EXCLUDED);
    ddl_agreement_lose(own, 4); /* that changes nothing any more */
    ddl_agreement_leave(own);
    assert_int_equal(ddl_agreement_result(own), DDL_AGREEMENT_EXCLUDED);
    ddl_bytes_fini(&report);
    ddl_agreement_destroy(own);
    ddl_agreement_destroy(other);
}

enum { LOST = 1, ACCEPTED, DECIDED, GIVEN_UP };

static ddl_status hear(ddl_agreement *own, int peer, uint8_t says, uint8_t by, uint8_t set)
{
    ddl_error error;
    const uint8_t report[9] = { says, 0, by, 0, (uint8_t)(100 + peer), 0, 0, 0, set };
    return ddl_agreement_hear(own, peer, (ddl_view){ report, sizeof report }, &error);
}

static void assert_says(ddl_agreement *own, uint8_t says, uint8_t by, uint8_t set)
{
    ddl_bytes report = { 0 };
    assert_true(ddl_agreement_report(own, &report));
    const uint8_t *bytes = report.data;
    assert_int_equal(bytes[0], says);
    assert_int_equal(bytes[2], by);
    assert_int_equal(bytes[8], set);
    ddl_bytes_fini(&report);
}

static void assert_says_nothing(ddl_agreement *own)
{
    ddl_bytes report = { 0 };
    assert_false(ddl_agreement_report(own, &report));
    ddl_bytes_fini(&report);
}

static ddl_agreement *entered(int rank, int nranks)
{
    ddl_agreement *own;
    ddl_error error;
    assert_int_equal(ddl_agreement_create(rank, nranks, 100 + (uint32_t)rank, &own, &error), DDL_OK);
    ddl_agreement_enter(own);
    assert_says(own, LOST, 0, 0);
    return own;
}

/* Rank 2 of 5 leads, and knows of what 0 and 1 have proposed: 1's goes, in whatever order it was heard. */
static void proposal_of_the_highest_is_taken_up(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        ddl_agreement *own = entered(2, 5);
        for (int i = 0; i < 2; i++) {
            const uint8_t by = (uint8_t)(i == order), gone = by == 0 ? 1 << 4 : 1 << 0;
            assert_int_equal(hear(own, 3, ACCEPTED, by, gone), DDL_OK);
        }
        ddl_agreement_lose(own, 0);
        assert_says(own, ACCEPTED, 1, 1 << 0); /* it follows 1 now */
        assert_says(own, LOST, 0, 1);
        ddl_agreement_lose(own, 1);
        assert_says(own, LOST, 0, 3);
        assert_int_equal(hear(own, 3, LOST, 0, 3), DDL_OK);
        assert_says_nothing(own);
        assert_int_equal(ddl_agreement_awaited(own), 4);
        assert_int_equal(hear(own, 4, LOST, 0, 1), DDL_OK); /* it follows 1 as yet */
        assert_says_nothing(own);
        assert_int_equal(hear(own, 4, LOST, 0, 3), DDL_OK);
        assert_says(own, ACCEPTED, 2, 1 << 0);
        assert_says_nothing(own);
        ddl_agreement_destroy(own);
    }
}

static void what_was_not_said_was_not_accepted(void **state)
{
    (void)state;
    ddl_agreement *own = entered(2, 3);
    assert_int_equal(hear(own, 0, ACCEPTED, 0, 0), DDL_OK);
    assert_int_equal(hear(own, 1, ACCEPTED, 1, 1), DDL_OK); /* before the report was sent */
    assert_says_nothing(own);
    ddl_agreement_lose(own, 0);
    assert_says(own, ACCEPTED, 1, 1); /* first: the next that is followed has to know of it */
    assert_says(own, LOST, 0, 1);
    assert_says_nothing(own);
    ddl_agreement_destroy(own);
}

/* 0 leaves out 3 and 4, which have lost 1 and 2; then 1 is lost before it has accepted. */
static void too_few_that_accept_decide_nothing(void **state)
{
    (void)state;
    for (int accepted = 1; accepted <= 2; accepted++) {
        ddl_agreement *own = entered(0, 5);
        assert_int_equal(hear(own, 1, LOST, 0, 0x18), DDL_OK);
        assert_int_equal(hear(own, 2, LOST, 0, 0x18), DDL_OK);
        assert_int_equal(hear(own, 3, LOST, 0, 0x02), DDL_OK);
        assert_int_equal(hear(own, 4, LOST, 0, 0x06), DDL_OK);
        assert_int_equal(ddl_agreement_awaited(own), 3);
        assert_says_nothing(own); /* 3 does not know yet that 2 has lost it */
        assert_int_equal(hear(own, 3, LOST, 0, 0x06), DDL_OK);
        assert_says(own, ACCEPTED, 0, 0x18);
        for (int rank = 2; rank > 2 - accepted; rank--) {
            assert_int_equal(ddl_agreement_awaited(own), 1);
            assert_int_equal(hear(own, rank, ACCEPTED, 0, 0x18), DDL_OK);
        }
        ddl_agreement_lose(own, 1);
        assert_says(own, accepted == 2 ? DECIDED : GIVEN_UP, 0, accepted == 2 ? 0x18 : 0x02);
        assert_int_equal(ddl_agreement_result(own),
                         accepted == 2 ? DDL_AGREEMENT_DECIDED : DDL_AGREEMENT_MINORITY);
        ddl_agreement_destroy(own);
    }
}

/* What a rank accepted of another before it says nothing of this proposal. */
static void older_acceptances_do_not_count(void **state)
{
    (void)state;
    ddl_agreement *own = entered(2, 5);
    ddl_agreement_lose(own, 0);
    ddl_agreement_lose(own, 1);
    assert_says(own, LOST, 0, 3);
    assert_int_equal(hear(own, 3, ACCEPTED, 0, 2), DDL_OK);
    assert_int_equal(hear(own, 3, LOST, 0, 3), DDL_OK);
    assert_int_equal(hear(own, 4, LOST, 0, 3), DDL_OK);
    assert_says(own, ACCEPTED, 2, 2);
    assert_int_equal(hear(own, 4, ACCEPTED, 2, 2), DDL_OK);
    assert_says_nothing(own);
    assert_int_equal(ddl_agreement_awaited(own), 3);
    assert_int_equal(hear(own, 3, LOST, 0, 3), DDL_OK);
    assert_says_nothing(own); /* it proposes once */
    assert_int_equal(hear(own, 3, ACCEPTED, 2, 2), DDL_OK);
    assert_says(own, DECIDED, 0, 2);
    assert_int_equal(ddl_agreement_offer(own), 103); /* that of the set, which has been told by 3 */
    ddl_agreement_destroy(own);
}

/* 0 hears all, 1 and 2 do not hear each other: the lower one stays, if it is not the one that is blamed. */
static void who_is_blamed_does_not_stay_for_its_number(void **state)
{
    (void)state;
    for (int suspect = -1; suspect <= 3; suspect++) {
        ddl_agreement *own = entered(0, 4);
        ddl_agreement_suspect(own, suspect);
        assert_int_equal(hear(own, 1, LOST, 0, 0x4), DDL_OK);
        assert_int_equal(hear(own, 2, LOST, 0, 0x2), DDL_OK);
        assert_int_equal(hear(own, 3, LOST, 0, 0), DDL_OK);
        assert_says(own, ACCEPTED, 0, suspect == 1 ? 0x2 : 0x4);
        ddl_agreement_destroy(own);
    }
    ddl_agreement *own = entered(0, 5); /* but if it has lost fewer */
    ddl_agreement_suspect(own, 1);
    assert_int_equal(hear(own, 1, LOST, 0, 0x8), DDL_OK);
    assert_int_equal(hear(own, 2, LOST, 0, 0x8), DDL_OK);
    assert_int_equal(hear(own, 3, LOST, 0, 0x6), DDL_OK);
    assert_int_equal(hear(own, 4, LOST, 0, 0), DDL_OK);
    assert_says(own, ACCEPTED, 0, 0x8);
    ddl_agreement_destroy(own);
}

/* 2 has lost too many before it has heard that it was proposed. */
static void who_had_given_up_learns_that_it_was_counted_in(void **state)
{
    (void)state;
    ddl_agreement *own = entered(2, 5);
    for (int gone = 0; gone < 5; gone += gone == 1 ? 2 : 1)
        ddl_agreement_lose(own, gone);
    assert_says(own, GIVEN_UP, 0, 0x1b);
    assert_int_equal(hear(own, 0, ACCEPTED, 0, 0x10), DDL_OK); /* which may come to nothing */
    assert_int_equal(hear(own, 0, DECIDED, 0, 0x04), DDL_OK);  /* by others, or so they say */
    assert_false(ddl_agreement_is_missed(own));
    assert_int_equal(hear(own, 3, DECIDED, 0, 0x10), DDL_OK);
    assert_true(ddl_agreement_is_missed(own));
    assert_int_equal(ddl_agreement_offer(own), 103);
    for (int rank = 0; rank < 5; rank++)
        assert_int_equal(ddl_agreement_is_gone(own, rank), rank == 4);
    assert_says_nothing(own);
    assert_int_equal(ddl_agreement_result(own), DDL_AGREEMENT_MINORITY);
    ddl_agreement_destroy(own);
    own = entered(2, 5); /* who leaves after it has accepted may be counted in by who hears that */
    assert_false(ddl_agreement_forgo(own));
    assert_int_equal(hear(own, 1, ACCEPTED, 0, 0x04), DDL_OK);
    assert_false(ddl_agreement_forgo(own));
    assert_int_equal(hear(own, 1, ACCEPTED, 1, 0x11), DDL_OK);
    assert_true(ddl_agreement_forgo(own));
    assert_true(ddl_agreement_is_missed(own));
    assert_int_equal(ddl_agreement_offer(own), 101);
    assert_true(ddl_agreement_is_gone(own, 0) && !ddl_agreement_is_gone(own, 2));
    ddl_agreement_destroy(own);
    own = entered(2, 5); /* and who has decided has missed nothing */
    assert_int_equal(hear(own, 3, DECIDED, 0, 0x10), DDL_OK);
    assert_int_equal(hear(own, 0, DECIDED, 0, 0x10), DDL_OK);
    assert_false(ddl_agreement_is_missed(own));
    assert_int_equal(ddl_agreement_offer(own), 103);
    ddl_agreement_destroy(own);
}

/* 1 has lost 2, which does not say so, but was lost itself since. */
static void what_the_lost_have_lost_does_not_matter(void **state)
{
    (void)state;
    ddl_agreement *own = entered(0, 4);
    assert_int_equal(hear(own, 1, LOST, 0, 1 << 2), DDL_OK);
    assert_int_equal(hear(own, 2, LOST, 0, 0), DDL_OK);
    assert_int_equal(hear(own, 3, LOST, 0, 0), DDL_OK);
    assert_says_nothing(own);
    assert_int_equal(ddl_agreement_awaited(own), 2);
    ddl_agreement_lose(own, 1);
    assert_says(own, ACCEPTED, 0, 1 << 1);
    assert_says(own, LOST, 0, 1 << 1);
    ddl_agreement_destroy(own);
}

static void what_was_lost_stays_lost(void **state)
{
    (void)state;
    ddl_agreement *own = entered(0, 3);
    assert_int_equal(hear(own, 1, LOST, 0, 1 << 2), DDL_OK);
    assert_int_equal(hear(own, 1, LOST, 0, 0), DDL_OK); /* which was said before */
    assert_int_equal(hear(own, 2, LOST, 0, 1 << 1), DDL_OK);
    assert_says(own, ACCEPTED, 0, 1 << 2); /* of two in conflict one stays */
    ddl_agreement_destroy(own);
}

/* Before a rank enters it only listens; and it is in no hurry to be told the end. */
static void who_has_not_entered_says_nothing(void **state)
{
    (void)state;
    ddl_agreement *own;
    ddl_error error;
    assert_int_equal(ddl_agreement_create(1, 4, 0, &own, &error), DDL_OK);
    ddl_agreement_lose(own, 3);
    assert_int_equal(hear(own, 0, ACCEPTED, 0, 1 << 3), DDL_OK);
    assert_says_nothing(own);
    ddl_agreement_enter(own);
    assert_says(own, ACCEPTED, 0, 1 << 3);
    assert_says(own, LOST, 0, 1 << 3);
    assert_int_equal(ddl_agreement_awaited(own), 0);
    assert_false(ddl_agreement_awaits(own, 2)); /* but the proposer, who decides */
    ddl_agreement_destroy(own);

    assert_int_equal(ddl_agreement_create(1, 4, 0, &own, &error), DDL_OK);
    assert_int_equal(hear(own, 0, DECIDED, 0, 1 << 3), DDL_OK);
    assert_int_equal(ddl_agreement_result(own), DDL_AGREEMENT_OPEN);
    ddl_agreement_enter(own);
    assert_int_equal(ddl_agreement_result(own), DDL_AGREEMENT_OPEN);
    assert_says(own, DECIDED, 0, 1 << 3);
    assert_int_equal(ddl_agreement_result(own), DDL_AGREEMENT_DECIDED);
    assert_int_equal(ddl_agreement_offer(own), 100);
    ddl_agreement_destroy(own);
}

static void who_enters_again_says_so_again(void **state)
{
    (void)state;
    ddl_agreement *own = entered(1, 3);
    ddl_agreement_leave(own);
    assert_int_equal(hear(own, 0, ACCEPTED, 0, 0), DDL_OK);
    assert_says_nothing(own);
    ddl_agreement_enter(own);
    assert_int_equal(hear(own, 2, ACCEPTED, 0, 0), DDL_OK); /* before this rank has said anything */
    assert_says(own, ACCEPTED, 0, 0);
    assert_says(own, LOST, 0, 0);
    ddl_agreement_leave(own); /* having accepted */
    ddl_agreement_lose(own, 2);
    assert_says(own, LOST, 0, 1 << 2);
    ddl_agreement_destroy(own);
}

static void report_for_which_there_is_no_memory_stays_due(void **state)
{
    (void)state;
    ddl_agreement *own = entered(0, 3);
    ddl_agreement_lose(own, 2);
    ddl_bytes full = { .bytes = SIZE_MAX - 3, .capacity = SIZE_MAX - 3 };
    assert_false(ddl_agreement_report(own, &full));
    assert_int_equal(full.bytes, SIZE_MAX - 3);
    assert_says(own, LOST, 0, 1 << 2);
    ddl_agreement_destroy(own);
}

static void numbers_of_proposers_have_two_bytes(void **state)
{
    (void)state;
    enum { NRANKS = 600, LEADER = 256, SET_BYTES = NRANKS / 8 };
    ddl_agreement *own;
    ddl_error error;
    ddl_bytes report = { 0 };
    uint8_t says[8 + SET_BYTES] = { LOST };
    memset(says + 8, 0xff, LEADER / 8);
    assert_int_equal(ddl_agreement_create(LEADER, NRANKS, 0, &own, &error), DDL_OK);
    for (int rank = 0; rank < LEADER; rank++)
        ddl_agreement_lose(own, rank);
    ddl_agreement_enter(own);
    for (int rank = LEADER + 1; rank < NRANKS; rank++)
        assert_int_equal(ddl_agreement_hear(own, rank, (ddl_view){ says, sizeof says }, &error), DDL_OK);
    assert_true(ddl_agreement_report(own, &report));
    const uint8_t *bytes = report.data;
    assert_int_equal(bytes[0], ACCEPTED);
    assert_int_equal(bytes[2] | bytes[3] << 8, LEADER);
    ddl_bytes_fini(&report);
    ddl_agreement_destroy(own);
}

/* Of whom others have said that they go on without it. */
static void who_was_left_out_is_told_so(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        ddl_agreement *own = entered(2, 3);
        if (way == 0)
            assert_int_equal(hear(own, 0, ACCEPTED, 0, 1 << 2), DDL_OK);
        else if (way == 1)
            assert_int_equal(hear(own, 0, GIVEN_UP, 0, 1 << 2), DDL_OK);
        ddl_agreement_lose(own, 0);
        ddl_agreement_lose(own, 1);
        assert_says(own, GIVEN_UP, 0, 3);
        assert_int_equal(ddl_agreement_result(own),
                         way < 2 ? DDL_AGREEMENT_EXCLUDED : DDL_AGREEMENT_MINORITY);
        ddl_agreement_destroy(own);
    }
}

/* Who has said that it goes on with a set does so, though its call has run out of time. */
static void who_has_accepted_stays(void **state)
{
    (void)state;
    ddl_agreement *own = entered(0, 3);
    assert_int_equal(hear(own, 1, LOST, 0, 0), DDL_OK);
    assert_int_equal(hear(own, 2, LOST, 0, 0), DDL_OK);
    assert_says(own, ACCEPTED, 0, 0);
    ddl_agreement_leave(own);
    assert_int_equal(hear(own, 1, ACCEPTED, 0, 0), DDL_OK);
    assert_int_equal(hear(own, 2, ACCEPTED, 0, 0), DDL_OK);
    assert_says(own, DECIDED, 0, 0);
    ddl_agreement_destroy(own);
}

/* Whether it has heard of the others or not. */
static void who_has_no_part_in_it_is_not_waited_for(void **state)
{
    (void)state;
    ddl_error error;
    ddl_agreement *own = entered(0, 3), *other;
    ddl_bytes answer = { 0 };
    assert_int_equal(ddl_agreement_create(1, 3, 0, &other, &error), DDL_OK);
    assert_int_equal(hear(other, 0, LOST, 0, 0), DDL_OK);
    ddl_agreement_give_up(other);
    assert_says(other, GIVEN_UP, 0, 0);
    assert_int_equal(hear(own, 1, GIVEN_UP, 0, 0), DDL_OK);
    assert_int_equal(ddl_agreement_awaited(own), 2);
    assert_says(own, LOST, 0, 1 << 1);

    for (uint8_t says = LOST; says <= GIVEN_UP; says++) {
        const uint8_t report[9] = { says, 0, 0, 0, 7, 0, 0, 0, 1 << 1 };
        assert_int_equal(ddl_agreement_answer_apart((ddl_view){ report, sizeof report }, &answer),
                         says == LOST);
    }
    assert_int_equal(ddl_agreement_hear(own, 2, ddl_bytes_view(&answer), &error), DDL_OK);
    assert_says(own, GIVEN_UP, 0, 1 << 1 | 1 << 2);
    const uint8_t cut[7] = { LOST }, much[DDL_FRAME_NOTICE_LIMIT + 1] = { LOST };
    assert_false(ddl_agreement_answer_apart((ddl_view){ cut, sizeof cut }, &answer));
    assert_false(ddl_agreement_answer_apart((ddl_view){ much, sizeof much }, &answer));
    ddl_bytes_fini(&answer);
    ddl_agreement_destroy(own);
    ddl_agreement_destroy(other);
}

/* Ranks 0 and 1 of five have heard of a third, which has not entered; the rest is lost. */
static int given_up_for(uint8_t lost_by_1)
{
    ddl_agreement *own = entered(0, 5);
    ddl_agreement_lose(own, 3);
    ddl_agreement_lose(own, 4);
    assert_says(own, LOST, 0, 1 << 3 | 1 << 4);
    assert_int_equal(hear(own, 1, GIVEN_UP, 0, lost_by_1), DDL_OK);
    assert_says(own, GIVEN_UP, 0, 1 << 1 | 1 << 3 | 1 << 4);
    assert_int_equal(ddl_agreement_result(own), DDL_AGREEMENT_MINORITY);
    const int absent = ddl_agreement_given_up_for(own);
    ddl_agreement_destroy(own);
    return absent;
}

static void who_has_lost_the_absent_did_not_give_up_for_it(void **state)
{
    (void)state;
    assert_int_equal(given_up_for(1 << 3 | 1 << 4), 2);
    assert_int_equal(given_up_for(1 << 2 | 1 << 3 | 1 << 4), -1);
}

static void more_ranks_than_a_report_has_room_for_are_refused(void **state)
{
    (void)state;
    ddl_agreement *agreement = NULL;
    ddl_error error;
    ddl_bytes report = { 0 };
    assert_int_equal(ddl_agreement_create(0, 8129, 0, &agreement, &error), DDL_EUNSUPPORTED);
    assert_int_equal(ddl_agreement_create(0, 8128, 0, &agreement, &error), DDL_OK);
    ddl_agreement_enter(agreement);
    assert_true(ddl_agreement_report(agreement, &report));
    assert_int_equal(report.bytes, 1024);
    ddl_bytes_fini(&report);
    ddl_agreement_destroy(agreement);
}

static void who_is_awaited_is_known(void **state)
{
    (void)state;
    ddl_agreement *own;
    ddl_error error;
    ddl_bytes report = { 0 };
    assert_int_equal(ddl_agreement_create(1, 4, 0, &own, &error), DDL_OK);
    ddl_agreement_lose(own, 0);
    ddl_agreement_enter(own);
    assert_true(ddl_agreement_report(own, &report));
    assert_int_equal(ddl_agreement_awaited(own), 2);
    assert_int_equal(ddl_agreement_result(own), DDL_AGREEMENT_OPEN);
    ddl_bytes_fini(&report);
    ddl_agreement_destroy(own);

    own = entered(1, 4);
    assert_int_equal(hear(own, 0, LOST, 0, 0), DDL_OK);
    assert_true(ddl_agreement_awaits(own, 0));
    assert_int_equal(ddl_agreement_awaited(own), 2); /* which has not entered */
    assert_int_equal(hear(own, 2, LOST, 0, 0), DDL_OK);
    assert_int_equal(hear(own, 3, LOST, 0, 0), DDL_OK);
    assert_int_equal(ddl_agreement_awaited(own), 0); /* to propose */
    assert_true(ddl_agreement_awaits(own, 2)); /* it may be 2 for which 0 waits, as 2 has lost this one */
    ddl_agreement_destroy(own);
}

static void malformed_reports_are_refused_and_change_nothing(void **state)
{
    (void)state;
    ddl_agreement *own = entered(0, 5);
    ddl_error error;
    uint8_t sound[9] = { LOST };
    static const struct {
        size_t bytes;
        uint8_t report[10];
    } cases[] = {
        { 8, { LOST } },
        { 10, { LOST } },
        { 0, { LOST } },
        { 9, { 0 } },
        { 9, { GIVEN_UP + 1 } },
        { 9, { LOST, 1 } },
        { 9, { LOST, 0, 1 } },                          /* a proposer, of what is no proposal */
        { 9, { LOST, 0, 0, 0, 0, 0, 0, 0, 0x20 } },     /* a rank that is not */
        { 9, { LOST, 0, 0, 0, 0, 0, 0, 0, 0x02 } },     /* the sender itself */
        { 9, { GIVEN_UP, 0, 0, 0, 0, 0, 0, 0, 0x02 } }, /* likewise */
        { 9, { ACCEPTED, 0, 2, 0, 0, 0, 0, 0, 0x02 } }, /* what leaves it out */
        { 9, { ACCEPTED, 0, 5 } },                      /* by a rank that is not */
        { 9, { ACCEPTED } },                            /* by this one, which has proposed nothing */
        { 9, { ACCEPTED, 0, 1, 0, 0, 0, 0, 0, 0x1c } }, /* what leaves too few */
        { 9, { DECIDED, 0, 0, 0, 0, 0, 0, 0, 0x07 } },  /* likewise */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(ddl_agreement_hear(own, 1, (ddl_view){ cases[i].report, cases[i].bytes }, &error),
                         DDL_EPROTO);
    assert_says_nothing(own);
    assert_false(ddl_agreement_is_gone(own, 1));
    assert_int_equal(ddl_agreement_hear(own, 1, (ddl_view){ sound, sizeof sound }, &error), DDL_OK);
    ddl_agreement_destroy(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_are_left_decide_the_same),
        cmocka_unit_test(some_go_on_after_a_cut_that_healed),
        cmocka_unit_test(some_go_on_whoever_has_lost_whom),
        cmocka_unit_test(no_two_sets_are_decided_whatever_is_cut),
        cmocka_unit_test(all_end_where_only_the_awaited_are_found),
        cmocka_unit_test(who_comes_late_and_is_cut_off_does_not_go_on),
        cmocka_unit_test(who_has_left_locks_nothing),
        cmocka_unit_test(half_goes_on_only_with_the_lowest_rank),
        cmocka_unit_test(rank_that_others_have_given_up_is_excluded),
        cmocka_unit_test(proposal_of_the_highest_is_taken_up),
        cmocka_unit_test(what_was_not_said_was_not_accepted),
        cmocka_unit_test(too_few_that_accept_decide_nothing),
        cmocka_unit_test(older_acceptances_do_not_count),
        cmocka_unit_test(who_is_blamed_does_not_stay_for_its_number),
        cmocka_unit_test(who_had_given_up_learns_that_it_was_counted_in),
        cmocka_unit_test(what_the_lost_have_lost_does_not_matter),
        cmocka_unit_test(what_was_lost_stays_lost),
        cmocka_unit_test(who_has_not_entered_says_nothing),
        cmocka_unit_test(who_enters_again_says_so_again),
        cmocka_unit_test(report_for_which_there_is_no_memory_stays_due),
        cmocka_unit_test(numbers_of_proposers_have_two_bytes),
        cmocka_unit_test(who_was_left_out_is_told_so),
        cmocka_unit_test(who_has_accepted_stays),
        cmocka_unit_test(who_has_no_part_in_it_is_not_waited_for),
        cmocka_unit_test(who_has_lost_the_absent_did_not_give_up_for_it),
        cmocka_unit_test(more_ranks_than_a_report_has_room_for_are_refused),
        cmocka_unit_test(who_is_awaited_is_known),
        cmocka_unit_test(malformed_reports_are_refused_and_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
