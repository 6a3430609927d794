/*
 * test_communicators.c - communicators split from others: who is in them, several at once from several
 * threads, freed in any order, aborted. Ranks are threads of this process that meet at a mem:// store.
 */
#include "cases.h"
#include "ranks.h"

#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The sum of what each rank of comm gives is what it must be. */
static bool works(ddl_comm *comm)
{
    int32_t x[3] = { ddl_rank(comm) + 1, 7, -ddl_rank(comm) }, n = ddl_size(comm);
    return ddl_allreduce(x, x, 3, DDL_INT32, DDL_SUM, comm, NULL) == DDL_OK && x[0] == n * (n + 1) / 2 &&
           x[1] == 7 * n && x[2] == -n * (n - 1) / 2;
}

/* ---- who is in which ---- */

enum { SPLIT_RANKS = 5, NO_PART = -1 };

static const struct split_case {
    const char *name;
    int colors[SPLIT_RANKS], keys[SPLIT_RANKS];
    int rank[SPLIT_RANKS], size[SPLIT_RANKS]; /* that each gets */
} split_cases[] = {
    { "all together", { 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0 }, { 0, 1, 2, 3, 4 }, { 5, 5, 5, 5, 5 } },
    { "in reverse", { 3, 3, 3, 3, 3 }, { 4, 3, 2, 1, 0 }, { 4, 3, 2, 1, 0 }, { 5, 5, 5, 5, 5 } },
    { "each alone", { 4, 3, 2, 1, 0 }, { 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 } },
    { "even and odd", { 0, 1, 0, 1, 0 }, { 0, 0, 0, 0, 0 }, { 0, 0, 1, 1, 2 }, { 3, 2, 3, 2, 3 } },
    { "equal keys keep the order of ranks",
      { 7, 7, 7, 7, 7 },
      { 1, 0, 1, 0, 1 },
      { 2, 0, 3, 1, 4 },
      { 5, 5, 5, 5, 5 } },
    { "keys of any size and sign",
      { 0, 0, 0, 0, 0 },
      { INT_MAX, INT_MIN, 0, -1, 1 },
      { 4, 0, 2, 1, 3 },
      { 5, 5, 5, 5, 5 } },
    { "some take no part",
      { 0, -1, 0, INT_MIN, 0 },
      { 0, 0, 0, 0, 0 },
      { 0, NO_PART, 1, NO_PART, 2 },
      { 3, -1, 3, -1, 3 } },
    { "nobody does",
      { -1, -2, -3, -4, -5 },
      { 0, 0, 0, 0, 0 },
      { -1, -1, -1, -1, -1 },
      { -1, -1, -1, -1, -1 } },
    { "one alone does",
      { -1, -1, INT_MAX, -1, -1 },
      { 0, 0, 9, 0, 0 },
      { -1, -1, 0, -1, -1 },
      { -1, -1, 1, -1, -1 } },
};

/* How many of those of rank r's color are on its host, and have a lower rank in the part if that is asked. */
static int count_neighbours(const struct split_case *c, int r, bool lower)
{
    int count = 0;
    for (int other = 0; other < SPLIT_RANKS; other++)
        count += c->colors[other] == c->colors[r] && other % ranks_hosts() == r % ranks_hosts() &&
                 (!lower || c->rank[other] < c->rank[r]);
    return count;
}

static int count_hosts(const struct split_case *c, int r)
{
    bool seen[SPLIT_RANKS] = { false };
    int count = 0;
    for (int other = 0; other < SPLIT_RANKS; other++)
        if (c->colors[other] == c->colors[r] && !seen[other % ranks_hosts()]) {
            seen[other % ranks_hosts()] = true;
            count++;
        }
    return count;
}

static void split_as_told(rank_thread *me)
{
    const struct split_case *c = me->arg;
    ddl_comm *part = me->world, *again = NULL;
    int r = me->rank;

    EXPECT(me, ddl_comm_split(me->world, c->colors[r], c->keys[r], &part) == DDL_OK);
    EXPECT(me, ddl_rank(part) == c->rank[r]);
    EXPECT(me, ddl_size(part) == c->size[r]);
    EXPECT(me, (part == NULL) == (c->rank[r] == NO_PART));
    EXPECT(me, part == NULL || works(part));
    EXPECT(me, works(me->world));
    EXPECT(me, part == NULL || ddl_local_size(part) == count_neighbours(c, r, false));
    EXPECT(me, part == NULL || ddl_local_rank(part) == count_neighbours(c, r, true));
    EXPECT(me, part == NULL || ddl_node_count(part) == count_hosts(c, r));
    if (part != NULL) { /* a part of the part: the same again, in reverse */
        EXPECT(me, ddl_comm_split(part, 1, -ddl_rank(part), &again) == DDL_OK);
        EXPECT(me, ddl_rank(again) == c->size[r] - 1 - c->rank[r]);
        EXPECT(me, works(again));
    }
    EXPECT(me, ddl_comm_free(&part) == DDL_OK);
    EXPECT(me, part == NULL);
    EXPECT(me, again == NULL || works(again));
    EXPECT(me, ddl_comm_free(&again) == DDL_OK);
    EXPECT(me, works(me->world));
}

static void ranks_of_one_color_are_together_in_the_order_of_their_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof split_cases / sizeof split_cases[0]; i++) {
        char complaint[1024];
        ranks_try("mem://split", SPLIT_RANKS, split_as_told, (void *)(uintptr_t)&split_cases[i], complaint);
        if (complaint[0] != '\0')
            fail_msg("%s: %s", split_cases[i].name, complaint);
    }
}

static void split_alone(rank_thread *me)
{
    ddl_comm *part = NULL, *none = me->world;
    EXPECT(me, ddl_comm_split(me->world, 4, 4, &part) == DDL_OK);
    EXPECT(me, ddl_rank(part) == 0);
    EXPECT(me, ddl_size(part) == 1);
    EXPECT(me, works(part));
    EXPECT(me, ddl_comm_split(part, -1, 0, &none) == DDL_OK);
    EXPECT(me, none == NULL);
    EXPECT(me, ddl_comm_free(&part) == DDL_OK);
}

static void a_world_of_one_splits_too(void **state)
{
    (void)state;
    ranks_play("mem://alone", 1, split_alone, NULL);
}

/* ---- independence ---- */

/* What waits on one does not hold up another. */
static void use_two(rank_thread *me)
{
    ddl_comm *left = NULL, *right = NULL;
    int32_t x = 1, ping = me->rank, pong = -1, last = me->nranks - 1;
    ddl_request *waiting = NULL, *sends[2] = { NULL };

    EXPECT(me, ddl_comm_split(me->world, 0, 0, &left) == DDL_OK);
    EXPECT(me, ddl_comm_split(me->world, 0, -me->rank, &right) == DDL_OK);
    if (me->rank != last)
        EXPECT(me, ddl_allreduce(&x, &x, 1, DDL_INT32, DDL_SUM, left, &waiting) == DDL_OK);
    for (int i = 0; i < 10; i++) {
        EXPECT(me, works(right));
        EXPECT(me, works(me->world));
    }
    if (me->rank == last)
        EXPECT(me, ddl_allreduce(&x, &x, 1, DDL_INT32, DDL_SUM, left, &waiting) == DDL_OK);
    EXPECT(me, ddl_wait(&waiting) == DDL_OK);
    EXPECT(me, x == me->nranks);

    /* Sends and receives match on their own communicator, whatever the order between two of them. */
    if (me->rank == 0) {
        int32_t one = 1, two = 2;
        EXPECT(me, ddl_send(&one, 1, DDL_INT32, 1, left, &sends[0]) == DDL_OK);
        EXPECT(me, ddl_send(&two, 1, DDL_INT32, last - 1, right, &sends[1]) == DDL_OK);
        EXPECT(me, ddl_wait_all(2, sends) == DDL_OK);
    } else if (me->rank == 1) {
        EXPECT(me, ddl_recv(&pong, 1, DDL_INT32, last, right, NULL) == DDL_OK);
        EXPECT(me, pong == 2);
        EXPECT(me, ddl_recv(&ping, 1, DDL_INT32, 0, left, NULL) == DDL_OK);
        EXPECT(me, ping == 1);
    }
    EXPECT(me, ddl_comm_free(&right) == DDL_OK);
    EXPECT(me, works(left));
    EXPECT(me, ddl_comm_free(&left) == DDL_OK);
}

static void communicators_of_the_same_ranks_are_independent(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 4; nranks++)
        ranks_play("mem://independent", nranks, use_two, NULL);
}

enum { WORKERS = 3 };

struct worker {
    ddl_comm *comm;
    cases_plan plan;
    pthread_t thread;
    bool good;
    char failure[CASES_FAILURE_BYTES];
};

/* Free what it has used, while others still use theirs. */
static void *work(void *arg)
{
    struct worker *w = arg;
    w->good = cases_run(w->comm, &w->plan, w->failure);
    if (w->good && ddl_comm_free(&w->comm) != DDL_OK) {
        w->good = false;
        snprintf(w->failure, sizeof w->failure, "free: %.500s", ddl_last_error()->text);
    }
    return NULL;
}

static int cases_wanted(int cases)
{
    const char *scale = getenv("DDL_TEST_SCALE"); /* percent */
    int wanted = scale == NULL ? cases : (int)(cases * strtol(scale, NULL, 10) / 100);
    return wanted > 0 ? wanted : 1;
}

/* Each thread makes random calls and splits on a communicator of its own, this one on the world. */
static void work_on_several_threads(rank_thread *me)
{
    struct worker workers[WORKERS + 1];

    memset(workers, 0, sizeof workers);
    for (int w = 0; w <= WORKERS; w++) {
        workers[w].plan = (cases_plan){ .seed = 40 + (uint64_t)w,
                                        .ncases = cases_wanted(120),
                                        .max_count = 20000,
                                        .only = -1,
                                        .splits = true };
        if (w < WORKERS) /* the last one has parts of the ranks only */
            EXPECT(me, ddl_comm_split(me->world, w == 2 ? me->rank % 2 : 0, w == 1 ? -me->rank : 0,
                                      &workers[w].comm) == DDL_OK);
    }
    for (int w = 0; w < WORKERS; w++)
        EXPECT(me, pthread_create(&workers[w].thread, NULL, work, &workers[w]) == 0);
    workers[WORKERS].good = cases_run(me->world, &workers[WORKERS].plan, workers[WORKERS].failure);
    for (int w = 0; w < WORKERS; w++)
        pthread_join(workers[w].thread, NULL);
    for (int w = 0; w <= WORKERS; w++)
        if (!workers[w].good)
            ranks_complain(me, "thread %d: %.900s", w, workers[w].failure);
}

static void threads_use_communicators_of_their_own_at_once(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 4; nranks++)
        ranks_play("mem://several-threads", nranks, work_on_several_threads, NULL);
}

enum { SPLITTERS = 3, SPLITS = 20, MOST_PARTS = 24 };

struct splitter {
    ddl_comm *comm;
    pthread_t thread;
    const char *expected, *seen; /* seen: NULL if it was as expected each time */
};

/* What an algorithm is chosen for; all parts have the same ranks. */
static const char *chosen_on(const ddl_comm *part)
{
    return ddl_algorithm_name(part, "allreduce", 3000, DDL_FLOAT32);
}

static void *split_again_and_again(void *arg)
{
    struct splitter *s = arg;
    for (int i = 0; i < SPLITS && s->seen == NULL; i++) {
        ddl_comm *part = NULL;
        if (ddl_comm_split(s->comm, 0, 0, &part) != DDL_OK)
            s->seen = "no part";
        else if (strcmp(chosen_on(part), s->expected) != 0)
            s->seen = chosen_on(part);
        if (part != NULL && ddl_comm_free(&part) != DDL_OK)
            s->seen = "a failed free";
    }
    return NULL;
}

/* There would be another one for a part without a board, as the last of many communicators is. */
static void split_on_several_threads(rank_thread *me)
{
    struct splitter splitters[SPLITTERS];
    ddl_comm *parts[MOST_PARTS] = { NULL };
    bool differs = false;

    memset(splitters, 0, sizeof splitters);
    for (int i = 0; i < MOST_PARTS; i++) {
        EXPECT(me, ddl_comm_split(me->world, 0, 0, &parts[i]) == DDL_OK);
        differs = differs || strcmp(chosen_on(parts[i]), chosen_on(me->world)) != 0;
    }
    EXPECT(me, strcmp(chosen_on(parts[0]), chosen_on(me->world)) == 0);
    const char *transport = getenv("DDL_TRANSPORT");
    const bool has_boards =
        SHARES_MEMORY && ranks_hosts() == 1 && (transport == NULL || strcmp(transport, "tcp") != 0);
    EXPECT(me, differs == has_boards);
    for (int i = SPLITTERS; i < MOST_PARTS; i++)
        EXPECT(me, ddl_comm_free(&parts[i]) == DDL_OK);
    for (int i = 0; i < SPLITTERS; i++) {
        splitters[i] = (struct splitter){ .comm = parts[i], .expected = chosen_on(me->world) };
        EXPECT(me, pthread_create(&splitters[i].thread, NULL, split_again_and_again, &splitters[i]) == 0);
    }
    for (int i = 0; i < SPLITTERS; i++)
        pthread_join(splitters[i].thread, NULL);
    for (int i = 0; i < SPLITTERS; i++)
        if (splitters[i].seen != NULL)
            ranks_complain(me, "thread %d: %s, not %s", i, splitters[i].seen, splitters[i].expected);
}

static void what_other_threads_split_does_not_change_what_is_chosen(void **state)
{
    (void)state;
    ranks_play("mem://splitters", 6, split_on_several_threads, NULL);
}

/* ---- the end ---- */

enum { CHAIN = 3 };

/* The world, a part of all of it, a part of that, and one of that: freed in the order given, as all use them.
 */
static void free_a_chain(rank_thread *me)
{
    const int *order = me->arg;
    ddl_comm *chain[CHAIN] = { NULL };

    for (int i = 0; i < CHAIN; i++)
        EXPECT(me, ddl_comm_split(i == 0 ? me->world : chain[i - 1], 0, -me->rank, &chain[i]) == DDL_OK);
    for (int i = 0; i < CHAIN; i++) {
        for (int k = 0; k < CHAIN; k++)
            EXPECT(me, chain[k] == NULL || works(chain[k]));
        EXPECT(me, ddl_comm_free(&chain[order[i]]) == DDL_OK);
        EXPECT(me, chain[order[i]] == NULL);
    }
    EXPECT(me, works(me->world));
}

/* An algorithm for powers of two on a part of three: the call is refused on all of them, and changes nothing;
 * splitting that part again is not the user's call, and works. */
static void use_what_is_forced(rank_thread *me)
{
    int32_t x[4] = { 0 }, mine = me->rank;
    ddl_comm *part = NULL, *again = NULL;
    EXPECT(me, ddl_allgather(&mine, x, 1, DDL_INT32, me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_comm_split(me->world, me->rank == 3, 0, &part) == DDL_OK);
    ddl_status expected = ddl_size(part) == 3 ? DDL_ECONFIG : DDL_OK;
    EXPECT(me, ddl_allgather(&mine, x, 1, DDL_INT32, part, NULL) == expected);
    EXPECT(me, expected == DDL_OK || strstr(ddl_last_error()->text, "DDL_ALLGATHER=doubling") != NULL);
    EXPECT(me, (ddl_algorithm_name(part, "allgather", 1, DDL_INT32) == NULL) == (expected != DDL_OK));
    EXPECT(me, works(part));
    EXPECT(me, ddl_comm_split(part, 0, 0, &again) == DDL_OK);
    EXPECT(me, works(again));
}

static void forced_algorithm_that_does_not_take_a_part_is_refused_there(void **state)
{
    (void)state;
    setenv("DDL_ALLGATHER", "doubling", 1);
    ranks_play("mem://forced", 4, use_what_is_forced, NULL);
    unsetenv("DDL_ALLGATHER");
}

static void parts_are_freed_in_any_order(void **state)
{
    static int orders[][CHAIN] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                   { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        ranks_play("mem://chain", 3, free_a_chain, orders[i]);
}

/* Those that are left are freed with it, and what is in flight on them completes before. */
static void free_the_world_first(rank_thread *me)
{
    enum { COUNT = 50000 };
    ddl_comm *part = NULL, *of_part = NULL, *idle = NULL;
    int32_t *x = calloc(3, COUNT * sizeof *x);
    ddl_request *requests[3] = { NULL };

    EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
    EXPECT(me, ddl_comm_split(part, 0, -me->rank, &of_part) == DDL_OK);
    EXPECT(me, ddl_comm_split(me->world, me->rank == 0 ? -1 : 0, 0, &idle) == DDL_OK);
    for (int i = 0; i < 3 * COUNT; i++)
        x[i] = i;
    EXPECT(me, ddl_allreduce(x, x, COUNT, DDL_INT32, DDL_SUM, me->world, &requests[0]) == DDL_OK);
    EXPECT(me, ddl_allreduce(x + COUNT, x + COUNT, COUNT, DDL_INT32, DDL_SUM, part, &requests[1]) == DDL_OK);
    EXPECT(me, ddl_allreduce(x + 2 * COUNT, x + 2 * COUNT, COUNT, DDL_INT32, DDL_SUM, of_part,
                             &requests[2]) == DDL_OK);
    if (me->nranks % 2 == 1) /* before the world, or after it */
        EXPECT(me, ddl_comm_free(&part) == DDL_OK && part == NULL);
    EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
    EXPECT(me, ddl_wait_all(3, requests) == DDL_OK);
    EXPECT(me, ddl_comm_free(&of_part) == DDL_OK && of_part == NULL);
    EXPECT(me, ddl_comm_free(&part) == DDL_OK && part == NULL);
    EXPECT(me, ddl_comm_free(&idle) == DDL_OK && idle == NULL);
    for (int i = 0; i < 3 * COUNT; i++)
        EXPECT(me, x[i] == me->nranks * i);
    free(x);
}

static void the_world_takes_along_what_was_split_from_it(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 4; nranks++)
        ranks_play("mem://world-first", nranks, free_the_world_first, NULL);
}

/* A handle of a part that went with its world is not that of one that was made since. */
static void free_what_went_along(rank_thread *me)
{
    enum { PARTS = 4 };
    ddl_comm *gone[PARTS] = { NULL }, *others[PARTS] = { NULL }, *left = NULL;

    for (int i = 0; i < PARTS; i++)
        EXPECT(me, ddl_comm_split(me->world, 0, 0, &gone[i]) == DDL_OK);
    EXPECT(me, ddl_comm_shrink(me->world, &left) == DDL_OK);
    EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
    for (int i = 0; i < PARTS; i++)
        EXPECT(me, ddl_comm_split(left, 0, 0, &others[i]) == DDL_OK);
    for (int i = 0; i < PARTS; i++) {
        EXPECT(me, ddl_comm_free(&gone[i]) == DDL_OK && gone[i] == NULL);
        EXPECT(me, works(others[i]));
    }
    EXPECT(me, ddl_comm_free(&left) == DDL_OK);
    for (int i = 0; i < PARTS; i += 2) /* the rest is left to the next ddl_init */
        EXPECT(me, ddl_comm_free(&others[i]) == DDL_OK);
}

static void a_handle_that_went_along_is_nobody_elses(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 3; nranks++)
        ranks_play("mem://went-along", nranks, free_what_went_along, NULL);
}

/* Of all ranks, as these are one process; one of them counts while the others wait. */
static long descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    long count = 0;
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

static void split_and_free_often(rank_thread *me)
{
    enum { ROUNDS = 100, KEPT = 4 };
    ddl_comm *kept[KEPT] = { NULL };
    long before, with_parts;

    EXPECT(me, works(me->world));
    ranks_meet(me);
    before = me->rank == 0 ? descriptors() : 0;
    ranks_meet(me);
    for (int round = 0; round < ROUNDS; round++) {
        ddl_comm **slot = &kept[round % KEPT];
        EXPECT(me, ddl_comm_free(slot) == DDL_OK);
        EXPECT(me, ddl_comm_split(me->world, (me->rank + round) % 2, round, slot) == DDL_OK);
        EXPECT(me, works(*slot));
    }
    ranks_meet(me);
    with_parts = me->rank == 0 ? descriptors() : 0;
    EXPECT(me, with_parts == before);
    ranks_meet(me);
    for (int i = 0; i < KEPT; i++)
        EXPECT(me, ddl_comm_free(&kept[i]) == DDL_OK);
}

static void parts_use_the_connections_that_there_are(void **state)
{
    (void)state;
    ranks_play("mem://often", 4, split_and_free_often, NULL);
}

/* ---- abort ---- */

static bool aborted_by(ddl_status status, int culprit, const char *reason)
{
    const ddl_error *error = ddl_last_error();
    return status == DDL_EABORTED && error->code == DDL_EABORTED && error->culprit == culprit &&
           (reason == NULL || strstr(error->text, reason) != NULL);
}

/* All but world rank 0 are blocked in it, or have a request in flight, when that one aborts. */
static void abort_a_part(rank_thread *me)
{
    const char *reason = me->arg;
    ddl_comm *part = NULL, *other = NULL, *of_part = NULL;
    int32_t x[2] = { 1, 2 }, culprit = me->nranks - 1;
    ddl_request *request = NULL;

    EXPECT(me, ddl_comm_split(me->world, 0, -me->rank, &part) == DDL_OK);
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &other) == DDL_OK);
    EXPECT(me, ddl_comm_split(part, 0, 0, &of_part) == DDL_OK);
    ranks_meet(me); /* a split that is not done on every rank would be ended too */
    if (me->rank == 0) {
        char with_more[80] = ""; /* which is told as text of one line, here as everywhere */
        if (reason != NULL)
            snprintf(with_more, sizeof with_more, "%s\n\x1b!", reason);
        EXPECT(me, ddl_comm_abort(part, reason != NULL ? with_more : NULL) == DDL_OK);
        EXPECT(me, aborted_by(ddl_barrier(part, NULL), culprit, reason));
        EXPECT(me, reason == NULL || strstr(ddl_last_error()->text, " ?!") != NULL);
    } else if (me->rank == 1) {
        EXPECT(me, aborted_by(ddl_allreduce(x, x, 1, DDL_INT32, DDL_SUM, part, NULL), culprit, reason));
    } else {
        ddl_status status = ddl_allreduce(x, x, 1, DDL_INT32, DDL_SUM, part, &request);
        EXPECT(me, aborted_by(status == DDL_OK ? ddl_wait(&request) : status, culprit, reason));
    }
    for (int again = 0; again < 3; again++)
        EXPECT(me, ddl_allreduce(x, x, 1, DDL_INT32, DDL_SUM, part, NULL) == DDL_EABORTED);
    EXPECT(me, works(other));
    EXPECT(me, works(me->world));
    EXPECT(me, works(of_part)); /* it shares no operations with what it came from */
    EXPECT(me, ddl_comm_free(&part) == DDL_OK);
    EXPECT(me, part == NULL);
    EXPECT(me, works(of_part));
    EXPECT(me, ddl_comm_free(&of_part) == DDL_OK);
    EXPECT(me, ddl_comm_free(&other) == DDL_OK);
}

static void abort_ends_the_calls_of_all_ranks_on_this_communicator_alone(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 4; nranks++) {
        ranks_play("mem://abort", nranks, abort_a_part, (void *)(uintptr_t) "the reactor is too hot");
        ranks_play("mem://abort-why", nranks, abort_a_part, NULL);
    }
}

/* Nothing was in flight: the next call tells. */
static void abort_an_idle_world(rank_thread *me)
{
    char reason[3000] = "no need\nfor it";
    int32_t x = 1;

    memset(reason + strlen(reason), '!', sizeof reason - strlen(reason) - 1);
    reason[sizeof reason - 1] = '\0';
    EXPECT(me, works(me->world));
    ranks_meet(me);
    if (me->rank == me->nranks - 1)
        EXPECT(me, ddl_comm_abort(me->world, reason) == DDL_OK);
    EXPECT(me,
           aborted_by(ddl_allreduce(&x, &x, 1, DDL_INT32, DDL_SUM, me->world, NULL), me->nranks - 1, "need"));
    EXPECT(me, strchr(ddl_last_error()->text, '\n') == NULL); /* one line, however long the reason is */
    EXPECT(me, ddl_comm_abort(me->world, "again") == DDL_OK);
    EXPECT(me, ddl_barrier(me->world, NULL) == DDL_EABORTED);
}

static void an_abort_is_told_by_the_next_call(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 4; nranks++)
        ranks_play("mem://idle", nranks, abort_an_idle_world, NULL);
}

/* Two at once: all name the same one of them. */
static void abort_twice(rank_thread *me)
{
    static _Atomic int named[RANKS_AT_MOST];
    int32_t x = 1;

    named[me->rank] = -1;
    EXPECT(me, works(me->world));
    ranks_meet(me);
    if (me->rank < 2)
        EXPECT(me, ddl_comm_abort(me->world, "me first") == DDL_OK);
    EXPECT(me, ddl_allreduce(&x, &x, 1, DDL_INT32, DDL_SUM, me->world, NULL) == DDL_EABORTED);
    named[me->rank] = ddl_last_error()->culprit;
    ranks_meet(me);
    EXPECT(me, named[me->rank] == 0 || named[me->rank] == 1);
    EXPECT(me, named[me->rank] == named[0]);
}

static void of_two_who_abort_all_name_one(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++)
        ranks_play("mem://two", 3, abort_twice, NULL);
}

/* Rank 1 sends rank 3 what that one does not wait for, and the other way round; none of them has to look at
 * what comes from the other. */
static void differ_unheard(rank_thread *me)
{
    enum { ROUNDS = 12 };
    for (int round = 0; round < ROUNDS; round++) {
        ddl_comm *part = NULL;
        float given[16] = { 0 }, got[16];
        bool told = false;
        EXPECT(me, ddl_comm_split(me->world, 0, 0, &part) == DDL_OK);
        if (part == NULL)
            return;
        ddl_status status = me->rank == 1 ? ddl_gather(given, got, 4, DDL_FLOAT32, 3, part, NULL)
                                          : ddl_scatter(given, got, 4, DDL_FLOAT32, 3, part, NULL);
        for (int i = 0; i < 4; i++) {
            told = told || (status == DDL_EMISMATCH && ddl_last_error()->culprit == 1);
            status = i < 3 ? ddl_barrier(part, NULL) : ddl_comm_free(&part);
        }
        told = told || (status == DDL_EMISMATCH && ddl_last_error()->culprit == 1);
        EXPECT(me, told);
        EXPECT(me, works(me->world));
    }
}

static void what_nobody_waited_for_is_told_in_the_end(void **state)
{
    (void)state;
    ranks_play("mem://unheard", 4, differ_unheard, NULL);
}

static void be_quiet(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_color_are_together_in_the_order_of_their_keys),
        cmocka_unit_test(a_world_of_one_splits_too),
        cmocka_unit_test(communicators_of_the_same_ranks_are_independent),
        cmocka_unit_test(threads_use_communicators_of_their_own_at_once),
        cmocka_unit_test(what_other_threads_split_does_not_change_what_is_chosen),
        cmocka_unit_test(forced_algorithm_that_does_not_take_a_part_is_refused_there),
        cmocka_unit_test(parts_are_freed_in_any_order),
        cmocka_unit_test(the_world_takes_along_what_was_split_from_it),
        cmocka_unit_test(a_handle_that_went_along_is_nobody_elses),
        cmocka_unit_test(parts_use_the_connections_that_there_are),
        cmocka_unit_test(abort_ends_the_calls_of_all_ranks_on_this_communicator_alone),
        cmocka_unit_test(an_abort_is_told_by_the_next_call),
        cmocka_unit_test(of_two_who_abort_all_name_one),
        cmocka_unit_test(what_nobody_waited_for_is_told_in_the_end),
    };
    ddl_set_log(be_quiet, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
