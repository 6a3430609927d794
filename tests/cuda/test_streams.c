/*
 * test_streams.c - operations in the order of streams of the program: what is before one, what is after it,
 * and what becomes of a stream whose operation fails. Over what stands in for the driver, or over a real one.
 *
 * test_streams [list|TEST]: names the tests; runs one of them.
 */
#include "../conformance/gpu_memory.h"
#include "../conformance/gpu_stream.h"
#include "../conformance/ranks.h"
#include "../support/now.h"

#include <ddl/cuda.h>

#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

enum { FEW = 100, MANY = 1000 * 1000, CHAIN = 3, SOON_MS = 100, NOBODY_MS = 400, BETWEEN_LOOKS_US = 200 };

static int open_driver(void **state)
{
    (void)state;
    return gpu_memory_open(getenv("DDL_TEST_DRIVER")) && gpu_stream_open() && gpu_stream_load_kernels() ? 0
                                                                                                        : -1;
}

/* ---- what a rank has ---- */

typedef struct gear {
    void *stream;
    float *near;  /* pinned: what goes into the buffer, and what comes out of it */
    void *in, *x; /* device memory */
    size_t count;
    gpu_door before; /* work that takes as long as the test wants */
} gear;

static bool gear_init(rank_thread *me, gear *g, size_t count, float first)
{
    g->count = count;
    g->stream = gpu_stream_create();
    g->near = gpu_memory_alloc_pinned(2 * count * sizeof(float));
    g->in = gpu_memory_alloc(count * sizeof(float));
    g->x = gpu_memory_alloc(count * sizeof(float));
    if (!gpu_door_make(&g->before) || g->stream == NULL || g->near == NULL || g->in == NULL || g->x == NULL)
        return false;
    memset(g->near, 0,
           2 * count * sizeof(float)); /* what is there too early, or is read too early, are zeros */
    if (!gpu_memory_write(g->in, g->near, count * sizeof(float)) ||
        !gpu_memory_write(g->x, g->near, count * sizeof(float)))
        return false;
    for (size_t i = 0; i < count; i++)
        g->near[i] = first + (float)(i % 10);
    ranks_meet(me); /* to allocate may wait for what is under way, too */
    return true;
}

/* Freeing memory waits for everything that is under way on the GPU, which the ranks share: so all stop here.
 */
static void gear_fini(rank_thread *me, gear *g)
{
    gpu_door_open(&g->before); /* if the test ended early */
    gpu_stream_wait(g->stream);
    ranks_meet(me);
    gpu_stream_destroy(g->stream);
    gpu_memory_free(g->in);
    gpu_memory_free(g->x);
    gpu_memory_free_pinned(g->near);
    gpu_door_free(&g->before);
    ranks_meet(me);
}

/* What comes before operations: it begins when the door is opened, and writes their input at last. */
static bool put_before(gear *g)
{
    return gpu_stream_wait_at(g->stream, &g->before) &&
           gpu_stream_copy(g->stream, g->in, g->near, g->count * sizeof(float));
}

/* What comes after them reads their output at once. */
static bool put_after(gear *g)
{
    return gpu_stream_copy(g->stream, g->near + g->count, g->x, g->count * sizeof(float));
}

static bool came_out(const gear *g, float first, float factor)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->near[g->count + i] != factor * (first + (float)(i % 10)))
            return false;
    return true;
}

/* ---- order ---- */

/* Nothing has gone past the door yet. */
static void let_through(rank_thread *me, gear *g)
{
    EXPECT(me, put_after(g));
    EXPECT(me, !gpu_stream_is_idle(g->stream));
    gpu_door_open(&g->before);
    EXPECT(me, gpu_stream_wait(g->stream));
}

/* No call can end before the door is opened, which happens after the last one has returned. */
static void chain(rank_thread *me)
{
    static const size_t counts[] = { 1, FEW, MANY };
    for (size_t size = 0; size < sizeof counts / sizeof *counts; size++) {
        gear g;
        size_t count = counts[size];
        EXPECT(me, gear_init(me, &g, count, 1));
        EXPECT(me, put_before(&g));
        EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
        EXPECT(me, ddl_allreduce(g.in, g.x, count, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        for (int i = 1; i < CHAIN; i++)
            EXPECT(me, ddl_allreduce(g.x, g.x, count, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        EXPECT(me, ddl_stream_end(me->world) == DDL_OK);
        let_through(me, &g);
        float factor = 1;
        for (int i = 0; i < CHAIN; i++)
            factor *= (float)me->nranks;
        EXPECT(me, came_out(&g, 1, factor));
        gear_fini(me, &g);
    }
}

static void streams_are_ordered_on_both_sides(void **state)
{
    (void)state;
    ranks_play("mem://chain", 3, chain, NULL);
}

/* Kernels read what an operation has written, and write what the next one reads. */
static void between_kernels(rank_thread *me)
{
    static const size_t counts[] = { 1, FEW, MANY };
    for (size_t size = 0; size < sizeof counts / sizeof *counts; size++) {
        gear g;
        size_t count = counts[size];
        EXPECT(me, gear_init(me, &g, count, 1));
        EXPECT(me, put_before(&g));
        EXPECT(me, gpu_stream_add(g.stream, g.in, count, 2));
        EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
        EXPECT(me, ddl_allreduce(g.in, g.x, count, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        EXPECT(me, gpu_stream_add(g.stream, g.x, count, 3));
        EXPECT(me, ddl_allreduce(g.x, g.x, count, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        EXPECT(me, ddl_stream_end(me->world) == DDL_OK);
        EXPECT(me, gpu_stream_add(g.stream, g.x, count, 5));
        let_through(me, &g);
        const float n = (float)me->nranks;
        for (size_t i = 0; i < count; i++)
            EXPECT(me, g.near[count + i] == n * (n * (g.near[i] + 2) + 3) + 5);
        gear_fini(me, &g);
    }
}

static void operations_lie_between_kernels(void **state)
{
    (void)state;
    ranks_play("mem://kernels", 3, between_kernels, NULL);
}

static void two_streams(rank_thread *me)
{
    gear late, early;
    EXPECT(me, gear_init(me, &late, FEW, 1) && gear_init(me, &early, MANY, 2));
    EXPECT(me, put_before(&late) && put_before(&early));
    /* Different communicators: one does not keep the other waiting. */
    ddl_comm *other = NULL;
    EXPECT(me, ddl_comm_split(me->world, 0, 0, &other) == DDL_OK);
    EXPECT(me, ddl_stream_begin(me->world, late.stream) == DDL_OK);
    EXPECT(me, ddl_stream_begin(other, early.stream) == DDL_OK);
    EXPECT(me, ddl_allreduce(late.in, late.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_allreduce(early.in, early.x, MANY, DDL_FLOAT32, DDL_SUM, other, NULL) == DDL_OK);
    EXPECT(me, put_after(&late) && put_after(&early));
    gpu_door_open(&early.before);
    EXPECT(me, gpu_stream_wait(early.stream));
    EXPECT(me, came_out(&early, 2, (float)me->nranks));
    EXPECT(me, !gpu_stream_is_idle(late.stream));
    gpu_door_open(&late.before);
    EXPECT(me, gpu_stream_wait(late.stream));
    EXPECT(me, came_out(&late, 1, (float)me->nranks));
    EXPECT(me, ddl_stream_end(me->world) == DDL_OK && ddl_stream_end(other) == DDL_OK);
    gear_fini(me, &late);
    gear_fini(me, &early);
}

static void streams_do_not_wait_for_each_other(void **state)
{
    (void)state;
    ranks_play("mem://two", 2, two_streams, NULL);
}

static void with_a_request(rank_thread *me)
{
    gear g;
    ddl_request *request = NULL;
    bool is_done = true;
    float sum = 0;
    EXPECT(me, gear_init(me, &g, FEW, 1) && put_before(&g));
    EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
    EXPECT(me, ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, &request) == DDL_OK);
    EXPECT(me, ddl_stream_end(me->world) == DDL_OK);
    EXPECT(me, put_after(&g));
    EXPECT(me, ddl_test(&request, &is_done) == DDL_OK && !is_done);
    gpu_door_open(&g.before);
    EXPECT(me, ddl_wait(&request) == DDL_OK);
    EXPECT(me, gpu_memory_read(&sum, g.x, sizeof sum) && sum == (float)me->nranks); /* without the stream */
    EXPECT(me, gpu_stream_wait(g.stream) && came_out(&g, 1, (float)me->nranks));
    gear_fini(me, &g);
}

static void a_request_tells_when_the_operation_has_ended(void **state)
{
    (void)state;
    ranks_play("mem://request", 2, with_a_request, NULL);
}

/* Host memory and barriers know of no stream; freeing waits for what is under way. */
static void amid_others(rank_thread *me)
{
    gear g;
    int64_t one = 1, sum = 0;
    EXPECT(me, gear_init(me, &g, MANY, 1) && put_before(&g));
    EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
    gpu_door_open(&g.before);
    EXPECT(me, ddl_allreduce(g.in, g.x, MANY, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_allreduce(&one, &sum, 1, DDL_INT64, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, sum == me->nranks);
    EXPECT(me, ddl_barrier(me->world, NULL) == DDL_OK);
    EXPECT(me, put_after(&g));
    EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
    EXPECT(me, gpu_stream_wait(g.stream));
    EXPECT(me, came_out(&g, 1, (float)me->nranks));
    gear_fini(me, &g);
}

static void other_calls_and_freeing_go_with_it(void **state)
{
    (void)state;
    ranks_play("mem://amid", 2, amid_others, NULL);
}

static void warm(rank_thread *me)
{
    gear g;
    unsigned long before = 0;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
    for (int round = 0; round < 4; round++) {
        gpu_door_shut(&g.before);
        EXPECT(me, put_before(&g)); /* all of a round are in flight together */
        for (int i = 0; i < 5; i++)
            EXPECT(me, ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        gpu_door_open(&g.before);
        EXPECT(me, gpu_stream_wait(g.stream));
        ranks_meet(me);
        before = round == 1 ? gpu_memory_created() : before;
        ranks_meet(me);
    }
    EXPECT(me, gpu_memory_created() == before);
    EXPECT(me, ddl_stream_end(me->world) == DDL_OK);
    gear_fini(me, &g);
}

static void warm_calls_make_nothing(void **state)
{
    (void)state;
    if (!gpu_memory_counts())
        skip();
    ranks_play("mem://warm", 2, warm, NULL);
}

/* Many of a stream that does not come to them; the calls of another are warm after about as many. */
static void beside_a_slow_one(rank_thread *me)
{
    enum { SLOW = 60, WARM = 3 * SLOW, CALLS = 3 * WARM, COUNT = 20000 };
    gear slow, fast;
    unsigned long before = 0;
    EXPECT(me, gear_init(me, &slow, COUNT, 1) && gear_init(me, &fast, COUNT, 2));
    EXPECT(me, put_before(&slow));
    EXPECT(me, ddl_stream_begin(me->world, slow.stream) == DDL_OK);
    for (int i = 0; i < SLOW; i++)
        EXPECT(me, ddl_allreduce(slow.in, slow.x, COUNT, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, put_after(&slow) && ddl_stream_end(me->world) == DDL_OK);
    EXPECT(me, ddl_stream_begin(me->world, fast.stream) == DDL_OK);
    EXPECT(me, gpu_stream_copy(fast.stream, fast.in, fast.near, COUNT * sizeof(float)));
    for (int i = 0; i < CALLS; i++) {
        if (i == WARM) {
            ranks_meet(me);
            before = gpu_memory_created();
            ranks_meet(me);
        }
        EXPECT(me, ddl_allreduce(fast.in, fast.x, COUNT, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        EXPECT(me, gpu_stream_wait(fast.stream));
    }
    ranks_meet(me);
    EXPECT(me, gpu_memory_created() == before);
    EXPECT(me, put_after(&fast) && gpu_stream_wait(fast.stream) && came_out(&fast, 2, (float)me->nranks));
    EXPECT(me, !gpu_stream_is_idle(slow.stream));
    gpu_door_open(&slow.before);
    EXPECT(me, gpu_stream_wait(slow.stream) && came_out(&slow, 1, (float)me->nranks));
    EXPECT(me, ddl_stream_end(me->world) == DDL_OK);
    gear_fini(me, &slow);
    gear_fini(me, &fast);
}

static void a_slow_stream_makes_the_calls_of_another_make_nothing(void **state)
{
    (void)state;
    ranks_play("mem://slow", 2, beside_a_slow_one, NULL);
}

/* ---- a rank alone ---- */

static void alone(rank_thread *me)
{
    gear g;
    ddl_request *request = NULL;
    EXPECT(me, gear_init(me, &g, MANY, 3) && put_before(&g));
    EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
    EXPECT(me, ddl_allreduce(g.in, g.x, MANY, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_broadcast(g.x, MANY, DDL_FLOAT32, 0, me->world, NULL) == DDL_OK);
    EXPECT(me, put_after(&g));
    EXPECT(me, !gpu_stream_is_idle(g.stream));
    gpu_door_open(&g.before);
    EXPECT(me, gpu_stream_wait(g.stream));
    EXPECT(me, came_out(&g, 3, 1));
    EXPECT(me, ddl_allgather(g.in, g.x, MANY, DDL_FLOAT32, me->world, &request) == DDL_OK);
    EXPECT(me, ddl_wait(&request) == DDL_OK);
    EXPECT(me, ddl_stream_end(me->world) == DDL_OK);
    gear_fini(me, &g);
}

static void a_rank_alone_leaves_it_to_the_stream(void **state)
{
    (void)state;
    ranks_play("mem://alone", 1, alone, NULL);
}

static void calls_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    ddl_comm *alone = NULL;
    assert_int_equal(ddl_stream_begin(NULL, NULL), DDL_EINVAL);
    assert_int_equal(ddl_stream_end(NULL), DDL_EINVAL);
    assert_int_equal(ddl_local_device(NULL), -1);
    assert_int_equal(ddl_init(&alone, NULL), DDL_OK);
    assert_int_equal(ddl_stream_end(alone), DDL_EINVAL);
    assert_int_equal(ddl_stream_begin(alone, NULL), DDL_OK);
    assert_int_equal(ddl_stream_begin(alone, NULL), DDL_EINVAL);
    assert_int_equal(ddl_stream_end(alone), DDL_OK);
    assert_int_equal(ddl_local_device(alone), 0);
    assert_int_equal(ddl_comm_free(&alone), DDL_OK);
}

static void the_default_stream(rank_thread *me)
{
    float values[FEW] = { 0 };
    void *x = gpu_memory_alloc(sizeof values);
    EXPECT(me, x != NULL && gpu_memory_write(x, values, sizeof values));
    ranks_meet(me); /* a copy of the other rank would wait for what the default stream waits for */
    /* Of one rank: the ranks share the process, and operations in one stream wait for each other. */
    EXPECT(me, me->rank > 0 || ddl_stream_begin(me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_allreduce(x, x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, gpu_stream_wait(NULL));
    EXPECT(me, me->rank > 0 || ddl_stream_end(me->world) == DDL_OK);
    ranks_meet(me);
    gpu_memory_free(x);
}

static void null_is_the_default_stream(void **state)
{
    (void)state;
    ranks_play("mem://default", 2, the_default_stream, NULL);
}

/* ---- failures: in each the stream goes on, and the next call tells ---- */

static void expect_failure(rank_thread *me, ddl_status told, ddl_status status, int culprit, const char *text)
{
    const ddl_error *error = ddl_last_error();
    if (told != status || error->culprit != culprit || strstr(error->text, text) == NULL)
        ranks_complain(me, "told %s, culprit %d: %s", ddl_status_name(told), error->culprit, error->text);
}

static void nobody_comes(rank_thread *me)
{
    gear g;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    if (me->rank == 0) {
        EXPECT(me, ddl_comm_set_timeout(me->world, NOBODY_MS) == DDL_OK);
        EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
        EXPECT(me, ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        EXPECT(me, put_after(&g) && gpu_stream_wait(g.stream));
        expect_failure(me, ddl_barrier(me->world, NULL), DDL_ETIMEDOUT, 1, "has not entered it");
        EXPECT(me, ddl_stream_end(me->world) == DDL_OK); /* it has been told */
    }
    ranks_meet(me);
    EXPECT(me, me->rank == 0 || ddl_barrier(me->world, NULL) != DDL_OK); /* it has been told, or disagrees */
    gear_fini(me, &g);
}

static void a_timeout_lets_the_stream_go_on(void **state)
{
    (void)state;
    ranks_play("mem://nobody", 2, nobody_comes, NULL);
}

static void the_stream_is_late(rank_thread *me)
{
    gear g;
    int64_t one = 1;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    EXPECT(me, me->rank != 1 || put_before(&g));
    EXPECT(me, ddl_comm_set_timeout(me->world, me->rank == 1 ? SOON_MS : RANKS_TIMEOUT_MS) == DDL_OK);
    EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
    EXPECT(me, ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    if (me->rank == 0)
        EXPECT(me, gpu_stream_wait(g.stream)); /* the other rank's failure opens it */
    ddl_status told = DDL_OK;
    const int64_t begun_ms = now_ms();
    /* Until it is told; the call is none of a stream. */
    while (told == DDL_OK && now_ms() - begun_ms < RANKS_TIMEOUT_MS) {
        told = ddl_stream_end(me->world);
        if (told == DDL_OK) {
            nap_us(BETWEEN_LOOKS_US);
            told = ddl_stream_begin(me->world, g.stream);
        }
    }
    expect_failure(me, told, DDL_EDEVICE, 1, "the stream of GPU 0 has not come to it within");
    EXPECT(me, ddl_allreduce(&one, &one, 1, DDL_INT64, DDL_SUM, me->world, NULL) == DDL_EABORTED);
    gpu_door_open(&g.before);
    EXPECT(me, gpu_stream_wait(g.stream));
    gear_fini(me, &g);
}

static void a_stream_that_does_not_come_is_told(void **state)
{
    (void)state;
    ranks_play("mem://late", 2, the_stream_is_late, NULL);
}

static void aborted(rank_thread *me)
{
    gear g;
    int64_t one = 1;
    EXPECT(me, gear_init(me, &g, MANY, 1));
    if (me->rank == 0) {
        EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
        for (int i = 0; i < CHAIN; i++)
            EXPECT(me, ddl_allreduce(g.in, g.x, MANY, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        EXPECT(me, put_after(&g));
    }
    ranks_meet(me);
    if (me->rank == 1)
        EXPECT(me, ddl_comm_abort(me->world, "enough") == DDL_OK);
    EXPECT(me, gpu_stream_wait(g.stream));
    ddl_status told = ddl_allreduce(&one, &one, 1, DDL_INT64, DDL_SUM, me->world, NULL);
    if (me->rank == 0)
        expect_failure(me, told, DDL_EABORTED, 1, "enough");
    gear_fini(me, &g);
}

static void an_abort_lets_the_stream_go_on(void **state)
{
    (void)state;
    ranks_play("mem://aborted", 2, aborted, NULL);
}

static void *abort_soon(void *comm)
{
    nap_us(SOON_MS * 1000);
    return ddl_comm_abort(comm, "enough") == DDL_OK ? comm : NULL;
}

/* A rank alone that waits for what its stream has before the operation. */
static void aborted_alone(rank_thread *me)
{
    gear g;
    pthread_t thread;
    ddl_request *request = NULL;
    void *aborted_it = NULL;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    const int64_t begun_ms = now_ms();
    EXPECT(me, put_before(&g));
    EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
    EXPECT(me, pthread_create(&thread, NULL, abort_soon, me->world) == 0);
    ddl_status told = ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, &request);
    if (told == DDL_OK)
        told = ddl_wait(&request);
    expect_failure(me, told, DDL_EABORTED, 0, "enough");
    EXPECT(me, now_ms() - begun_ms < RANKS_TIMEOUT_MS / 2);
    EXPECT(me, pthread_join(thread, &aborted_it) == 0 && aborted_it != NULL);
    gear_fini(me, &g);
}

static void an_abort_ends_what_a_rank_alone_waits_for(void **state)
{
    (void)state;
    ranks_play("mem://aborted-alone", 1, aborted_alone, NULL);
}

static void freeing(rank_thread *me)
{
    gear g;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    if (me->rank == 0) {
        EXPECT(me, ddl_comm_set_timeout(me->world, NOBODY_MS) == DDL_OK);
        EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
        EXPECT(me, ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        EXPECT(me, gpu_stream_wait(g.stream));
        expect_failure(me, ddl_comm_free(&me->world), DDL_ETIMEDOUT, 1, "has not entered it");
    }
    ranks_meet(me);
    EXPECT(me, me->rank == 0 || ddl_barrier(me->world, NULL) != DDL_OK); /* it has been told, or disagrees */
    gear_fini(me, &g);
}

static void freeing_tells_what_no_call_has_told(void **state)
{
    (void)state;
    ranks_play("mem://freeing", 2, freeing, NULL);
}

/* Rank 0 has an operation that rank 1 has aborted, and was not told. */
static bool have_one_aborted(rank_thread *me, gear *g)
{
    bool well = gear_init(me, g, FEW, 1);
    if (me->rank == 0)
        well = well && ddl_stream_begin(me->world, g->stream) == DDL_OK &&
               ddl_allreduce(g->in, g->x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK;
    ranks_meet(me);
    if (me->rank == 1)
        well = well && ddl_comm_abort(me->world, "enough") == DDL_OK;
    well = well && gpu_stream_wait(g->stream);
    ranks_meet(me);
    return well;
}

static void aborted_and_freed(rank_thread *me)
{
    gear g;
    EXPECT(me, have_one_aborted(me, &g));
    if (me->rank == 0)
        expect_failure(me, ddl_comm_free(&me->world), DDL_EABORTED, 1, "allreduce#1");
    gear_fini(me, &g);
}

static void freeing_tells_of_an_abort(void **state)
{
    (void)state;
    ranks_play("mem://aborted-freed", 2, aborted_and_freed, NULL);
}

/* Where another thread drives just then, a call is left to it, and a later one tells. */
static ddl_status reduce_until_told(rank_thread *me, gear *g)
{
    ddl_status told = DDL_OK;
    while (told == DDL_OK && gpu_stream_wait(g->stream))
        told = ddl_allreduce(g->in, g->x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL);
    return told;
}

static void aborted_and_split(rank_thread *me)
{
    gear g;
    ddl_comm *part = NULL;
    EXPECT(me, have_one_aborted(me, &g));
    if (me->rank == 0) {
        expect_failure(me, ddl_comm_split(me->world, 0, 0, &part), DDL_EABORTED, 1, "allreduce#1");
        for (int i = 0; i < CHAIN; i++) /* each is told by itself */
            expect_failure(me, reduce_until_told(me, &g), DDL_EABORTED, 1, "enough");
        EXPECT(me, gpu_stream_wait(g.stream));
    }
    gear_fini(me, &g);
}

static void splitting_and_later_calls_tell(void **state)
{
    (void)state;
    ranks_play("mem://aborted-split", 2, aborted_and_split, NULL);
}

static void aborted_and_shrunk(rank_thread *me)
{
    gear g;
    ddl_comm *left = NULL;
    EXPECT(me, have_one_aborted(me, &g));
    EXPECT(me, ddl_comm_shrink(me->world, &left) == DDL_OK);
    EXPECT(me, me->rank > 0 || ddl_stream_end(me->world) == DDL_OK);
    EXPECT(me, ddl_barrier(left, NULL) == DDL_OK && ddl_comm_free(&left) == DDL_OK);
    gear_fini(me, &g);
}

static void shrinking_takes_it_as_told(void **state)
{
    (void)state;
    ranks_play("mem://aborted-shrunk", 2, aborted_and_shrunk, NULL);
}

/* Operations that end after that are no news either: not to ddl_stream_end, and not to ddl_comm_free. */
static void late_and_shrunk(rank_thread *me)
{
    gear g;
    ddl_comm *left = NULL;
    EXPECT(me, gear_init(me, &g, FEW, 1) && put_before(&g));
    EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
    EXPECT(me, ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, me->rank == 0 || ddl_comm_abort(me->world, "enough") == DDL_OK);
    EXPECT(me, ddl_comm_shrink(me->world, &left) == DDL_OK);
    EXPECT(me, ddl_stream_end(me->world) == DDL_OK);
    EXPECT(me, ddl_barrier(left, NULL) == DDL_OK && ddl_comm_free(&left) == DDL_OK);
    EXPECT(me, ddl_comm_free(&me->world) == DDL_OK);
    gear_fini(me, &g);
}

static void what_ends_after_shrinking_is_no_news(void **state)
{
    (void)state;
    ranks_play("mem://late-shrunk", 2, late_and_shrunk, NULL);
}

static void an_exchange(rank_thread *me)
{
    gear g;
    int peer = 1 - me->rank;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
    expect_failure(me, ddl_send(g.in, FEW, DDL_FLOAT32, peer, me->world, NULL), DDL_EUNSUPPORTED, -1,
                   "ddl_stream_end");
    expect_failure(me, ddl_recv(g.x, FEW, DDL_FLOAT32, peer, me->world, NULL), DDL_EUNSUPPORTED, -1,
                   "ddl_stream_end");
    EXPECT(me, gpu_stream_is_idle(g.stream));
    EXPECT(me, ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, gpu_stream_wait(g.stream) && ddl_stream_end(me->world) == DDL_OK);
    gear_fini(me, &g);
}

static void sending_in_a_stream_is_refused(void **state)
{
    (void)state;
    ranks_play("mem://exchange", 2, an_exchange, NULL);
}

/* ---- exit: in a process of its own, and a handler that the program has registered waits for the stream ----
 */

static void *stream_at_exit;

static void wait_at_exit(void)
{
    _exit(gpu_stream_wait(stream_at_exit) ? 0 : 1);
}

static void exiting(rank_thread *me)
{
    gear g;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    if (me->rank == 0) {
        EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
        EXPECT(me, ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
        EXPECT(me, !gpu_stream_is_idle(g.stream));
        stream_at_exit = g.stream;
        exit(2); /* unless wait_at_exit has its way */
    }
    ranks_meet(me);
}

static int exit_amid_an_operation(void)
{
    void *state;
    if (open_driver(&state) != 0 || atexit(wait_at_exit) != 0)
        return 3;
    alarm(RANKS_TIMEOUT_MS / 1000);
    ranks_play("mem://exiting", 2, exiting, NULL);
    return 4;
}

static void exiting_lets_the_stream_go_on(void **state)
{
    (void)state;
    char program[] = "/proc/self/exe", argument[] = "exiting";
    char *const arguments[] = { program, argument, NULL };
    pid_t child;
    int status = -1;
    assert_int_equal(posix_spawn(&child, program, NULL, NULL, arguments, environ), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void captured(rank_thread *me)
{
    gear g;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    void *stream = me->rank == 1 ? gpu_stream_create() : g.stream; /* is left as it is */
    EXPECT(me, me->rank != 1 || gpu_stream_capture(stream));
    EXPECT(me, ddl_stream_begin(me->world, stream) == DDL_OK);
    ddl_status told = ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL);
    if (me->rank == 0) {
        EXPECT(me, told == DDL_OK && gpu_stream_wait(stream));
        told = ddl_stream_end(me->world);
    }
    expect_failure(me, told, DDL_EUNSUPPORTED, 1, "is being captured into a graph");
    gear_fini(me, &g);
}

/* A copy could be in a graph, but where there are more ranks it would be refused. */
static void captured_alone(rank_thread *me)
{
    gear g;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    void *stream = gpu_stream_create();
    EXPECT(me, gpu_stream_capture(stream) && ddl_stream_begin(me->world, stream) == DDL_OK);
    const bool in_place = me->arg != NULL;
    ddl_status told = ddl_allreduce(in_place ? g.x : g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL);
    expect_failure(me, told, DDL_EUNSUPPORTED, 0, "is being captured into a graph");
    gear_fini(me, &g);
}

static void a_stream_that_is_captured_is_refused(void **state)
{
    (void)state;
    int in_place;
    ranks_play("mem://captured", 2, captured, NULL);
    ranks_play("mem://captured", 1, captured_alone, NULL);
    ranks_play("mem://captured", 1, captured_alone, &in_place);
}

/* As CUDA has it of streams that wait for the default one, which is not to be used meanwhile. */
static void beside_a_capture_of_one_that_blocks(rank_thread *me)
{
    gear g;
    EXPECT(me, gear_init(me, &g, FEW, 1));
    void *stream = me->rank == 1 ? gpu_stream_create_blocking() : NULL;
    ranks_meet(me); /* what they have done so far may be in the default stream */
    EXPECT(me, stream == NULL || gpu_stream_capture(stream));
    EXPECT(me, ddl_stream_begin(me->world, me->rank == 1 ? NULL : g.stream) == DDL_OK);
    ddl_status told = ddl_allreduce(g.in, g.x, FEW, DDL_FLOAT32, DDL_SUM, me->world, NULL);
    EXPECT(me, stream == NULL || gpu_stream_end_capture(stream));
    if (me->rank == 0) {
        EXPECT(me, told == DDL_OK && gpu_stream_wait(g.stream));
        told = ddl_stream_end(me->world);
    }
    expect_failure(me, told, DDL_EUNSUPPORTED, 1, "default stream cannot be used while");
    ranks_meet(me);
    gear_fini(me, &g);
}

static void the_default_stream_is_refused_while_one_that_waits_for_it_is_captured(void **state)
{
    (void)state;
    ranks_play("mem://implicit", 2, beside_a_capture_of_one_that_blocks, NULL);
}

/* The first calls, too, which allocate: in the order of a stream, with a request, and as they come. */
static void beside_a_capture(rank_thread *me)
{
    gear g, other;
    ddl_request *request = NULL;
    EXPECT(me, gear_init(me, &g, MANY, 1) && gear_init(me, &other, FEW, 2));
    EXPECT(me, gpu_stream_copy(g.stream, g.in, g.near, MANY * sizeof(float)) && gpu_stream_wait(g.stream));
    ranks_meet(me);
    EXPECT(me, me->rank != 0 || gpu_stream_capture_globally(other.stream));
    ranks_meet(me);
    EXPECT(me, ddl_allreduce(g.in, g.x, MANY, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_allreduce(g.in, g.x, MANY, DDL_FLOAT32, DDL_SUM, me->world, &request) == DDL_OK);
    EXPECT(me, ddl_wait(&request) == DDL_OK);
    EXPECT(me, ddl_stream_begin(me->world, g.stream) == DDL_OK);
    for (int i = 0; i < 3; i++)
        EXPECT(me, ddl_allreduce(g.in, g.x, MANY, DDL_FLOAT32, DDL_SUM, me->world, NULL) == DDL_OK);
    EXPECT(me, ddl_allreduce(g.in, g.x, MANY, DDL_FLOAT32, DDL_SUM, me->world, &request) == DDL_OK);
    EXPECT(me, ddl_wait(&request) == DDL_OK);
    EXPECT(me, ddl_stream_end(me->world) == DDL_OK);
    ranks_meet(me);
    EXPECT(me, me->rank != 0 || gpu_stream_end_capture(other.stream));
    ranks_meet(me);
    EXPECT(me, put_after(&g) && gpu_stream_wait(g.stream) && came_out(&g, 1, (float)me->nranks));
    gear_fini(me, &g);
    gear_fini(me, &other);
}

static void a_capture_of_the_program_is_let_alone(void **state)
{
    (void)state;
    ranks_play("mem://graph", 2, beside_a_capture, NULL);
}

int main(int argc, char *argv[])
{
    if (argc > 1 && strcmp(argv[1], "exiting") == 0)
        return exit_amid_an_operation();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_ordered_on_both_sides),
        cmocka_unit_test(operations_lie_between_kernels),
        cmocka_unit_test(streams_do_not_wait_for_each_other),
        cmocka_unit_test(a_request_tells_when_the_operation_has_ended),
        cmocka_unit_test(other_calls_and_freeing_go_with_it),
        cmocka_unit_test(warm_calls_make_nothing),
        cmocka_unit_test(a_slow_stream_makes_the_calls_of_another_make_nothing),
        cmocka_unit_test(a_rank_alone_leaves_it_to_the_stream),
        cmocka_unit_test(calls_that_make_no_sense_are_refused),
        cmocka_unit_test(null_is_the_default_stream),
        cmocka_unit_test(a_timeout_lets_the_stream_go_on),
        cmocka_unit_test(a_stream_that_does_not_come_is_told),
        cmocka_unit_test(an_abort_lets_the_stream_go_on),
        cmocka_unit_test(an_abort_ends_what_a_rank_alone_waits_for),
        cmocka_unit_test(freeing_tells_what_no_call_has_told),
        cmocka_unit_test(freeing_tells_of_an_abort),
        cmocka_unit_test(splitting_and_later_calls_tell),
        cmocka_unit_test(shrinking_takes_it_as_told),
        cmocka_unit_test(what_ends_after_shrinking_is_no_news),
        cmocka_unit_test(sending_in_a_stream_is_refused),
        cmocka_unit_test(exiting_lets_the_stream_go_on),
        cmocka_unit_test(a_stream_that_is_captured_is_refused),
        cmocka_unit_test(the_default_stream_is_refused_while_one_that_waits_for_it_is_captured),
        cmocka_unit_test(a_capture_of_the_program_is_let_alone),
    };
    const bool is_list = argc > 1 && strcmp(argv[1], "list") == 0;
    for (size_t i = 0; is_list && i < sizeof tests / sizeof *tests; i++)
        puts(tests[i].name);
    if (is_list)
        return 0;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_driver, NULL);
}
