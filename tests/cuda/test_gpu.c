/*
 * test_gpu.c - calls with buffers in memory of a GPU: which are refused, which are not touched by the host,
 * and that nothing is made once they are warm. Over what stands in for the driver, with two GPUs.
 */
#include "../conformance/gpu_memory.h"
#include "../conformance/gpu_stream.h"
#include "../conformance/ranks.h"

#include <ddl/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { FEW = 100, MANY = 3 * 1000 * 1000 };

static ddl_comm *alone;

static void set_driver_aside(void)
{
    /* The world comes first, and calls of the host: the driver is found although it is loaded later. */
    int64_t value = 7, sum = 0;
    assert_int_equal(ddl_init(&alone, NULL), DDL_OK);
    assert_int_equal(ddl_allreduce(&value, &sum, 1, DDL_INT64, DDL_SUM, alone, NULL), DDL_OK);
    assert_int_equal(sum, 7);
}

static int open_driver(void **state)
{
    (void)state;
    set_driver_aside();
    return gpu_memory_open(getenv("DDL_TEST_DRIVER")) && gpu_stream_open() ? 0 : -1;
}

static int free_alone(void **state)
{
    (void)state;
    return ddl_comm_free(&alone) == DDL_OK ? 0 : -1;
}

static void *device_floats(size_t count, float first)
{
    float *values = malloc(count * sizeof *values);
    void *device = gpu_memory_alloc(count * sizeof *values);
    assert_non_null(values);
    assert_non_null(device);
    for (size_t i = 0; i < count; i++)
        values[i] = first + (float)(i % 100);
    assert_true(gpu_memory_write(device, values, count * sizeof *values));
    free(values);
    return device;
}

static void assert_floats(const void *device, size_t count, float first, float factor)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    assert_true(gpu_memory_read(values, device, count * sizeof *values));
    for (size_t i = 0; i < count; i++)
        if (values[i] != factor * (first + (float)(i % 100)))
            fail_msg("element %zu is %g", i, (double)values[i]);
    free(values);
}

static void a_rank_alone_copies(void **state)
{
    (void)state;
    void *in = device_floats(MANY, 3), *out = device_floats(MANY, 0);
    assert_int_equal(ddl_allreduce(in, out, MANY, DDL_FLOAT32, DDL_SUM, alone, NULL), DDL_OK);
    assert_floats(out, MANY, 3, 1);
    assert_int_equal(ddl_allreduce(in, in, MANY, DDL_FLOAT32, DDL_SUM, alone, NULL), DDL_OK);
    assert_floats(in, MANY, 3, 1);
    unsigned long before = gpu_memory_created(); /* and no pinned memory is */
    void *again = device_floats(MANY, 5);
    ddl_request *request = NULL;
    assert_int_equal(ddl_allreduce(again, out, MANY, DDL_FLOAT32, DDL_SUM, alone, &request), DDL_OK);
    assert_int_equal(ddl_wait(&request), DDL_OK);
    assert_floats(out, MANY, 5, 1);
    assert_int_equal(gpu_memory_created(), before);
    gpu_memory_free(again);
    gpu_memory_free(in);
    gpu_memory_free(out);
}

static void assert_refused(const void *send, void *recv, const char *text)
{
    assert_int_equal(ddl_allreduce(send, recv, FEW, DDL_FLOAT32, DDL_SUM, alone, NULL), DDL_EINVAL);
    if (strstr(ddl_last_error()->text, text) == NULL)
        fail_msg("no %s in: %s", text, ddl_last_error()->text);
}

static void buffers_are_of_one_gpu_or_of_the_host(void **state)
{
    (void)state;
    float host[FEW];
    void *device = device_floats(FEW, 1), *pinned = gpu_memory_alloc_pinned(sizeof host);
    void *managed = gpu_memory_alloc_managed(sizeof host);
    memset(host, 0, sizeof host);
    assert_non_null(pinned);
    assert_non_null(managed);
    memset(pinned, 0, sizeof host);
    memset(managed, 0, sizeof host);
    assert_refused(device, host, "send is device memory of GPU 0, but recv is host memory");
    assert_refused(host, device, "send is host memory, but recv is device memory of GPU 0");
    assert_refused(pinned, device, "send is pinned host memory, but recv is device memory of GPU 0");
    assert_refused(managed, host, "send is managed memory of GPU 0, but recv is host memory");
    gpu_memory_choose(1);
    void *other = device_floats(FEW, 1);
    gpu_memory_choose(0);
    assert_refused(device, other, "send is device memory of GPU 0, but recv is device memory of GPU 1");

    assert_int_equal(ddl_allreduce(pinned, host, FEW, DDL_FLOAT32, DDL_SUM, alone, NULL), DDL_OK);
    assert_int_equal(ddl_allreduce(device, managed, FEW, DDL_FLOAT32, DDL_SUM, alone, NULL), DDL_OK);
    assert_floats(managed, FEW, 1, 1);
    assert_int_equal(ddl_broadcast(other, FEW, DDL_FLOAT32, 0, alone, NULL), DDL_OK);
    gpu_memory_free(device);
    gpu_memory_free(other);
    gpu_memory_free(managed);
    gpu_memory_free_pinned(pinned);
}

static void what_a_role_does_not_use_may_be_anywhere(void **state)
{
    (void)state;
    size_t none = 0;
    float host[FEW] = { 0 };
    void *device = device_floats(FEW, 1);
    assert_int_equal(ddl_allreduce(device, host, 0, DDL_FLOAT32, DDL_SUM, alone, NULL), DDL_OK);
    assert_int_equal(ddl_allgatherv(device, host, &none, DDL_FLOAT32, alone, NULL), DDL_OK);
    assert_int_equal(ddl_barrier(alone, NULL), DDL_OK);
    assert_floats(device, FEW, 1, 1);
    gpu_memory_free(device);
}

/* ---- several ranks ---- */

static void sum_of_all(rank_thread *me, void *in, void *out, size_t count)
{
    ddl_request *request = NULL;
    EXPECT(me, ddl_allreduce(in, out, count, DDL_FLOAT32, DDL_SUM, me->world, &request) == DDL_OK);
    EXPECT(me, ddl_wait(&request) == DDL_OK);
}

static void warm_calls(rank_thread *me)
{
    static const size_t counts[] = { 1, FEW, 20000, MANY };
    void *in = device_floats(MANY, 1), *out = device_floats(MANY, 0);
    unsigned long before = 0;
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            sum_of_all(me, in, out, counts[i]);
        ranks_meet(me);
        if (round == 1)
            before = gpu_memory_created();
        ranks_meet(me); /* nobody goes on before all have looked */
    }
    if (gpu_memory_created() != before)
        ranks_complain(me, "warm calls made %lu things", gpu_memory_created() - before);
    assert_floats(out, MANY, 1, (float)me->nranks);
    assert_floats(in, MANY, 1, 1);
    gpu_memory_free(in);
    gpu_memory_free(out);
}

static void warm_calls_make_nothing(void **state)
{
    (void)state;
    ranks_play("mem://warm", 3, warm_calls, NULL);
}

/* Small calls of the host and of the GPU share a board, on which they have to keep their order. */
static void alternating_calls(rank_thread *me)
{
    enum { ROUNDS = 40 };
    void *device = device_floats(FEW, 1);
    for (int round = 0; round < ROUNDS; round++) {
        ddl_request *requests[3] = { NULL };
        int64_t sums[2] = { 1, 1 };
        bool at_gpu = (round + me->rank) % 3 != 0;
        void *own = at_gpu ? device : NULL;
        float host[FEW];
        for (int i = 0; i < FEW; i++)
            host[i] = 1;
        if (own == NULL)
            own = host;
        else
            EXPECT(me, gpu_memory_write(device, host, sizeof host));
        EXPECT(me,
               ddl_allreduce(&sums[0], &sums[0], 1, DDL_INT64, DDL_SUM, me->world, &requests[0]) == DDL_OK);
        EXPECT(me, ddl_allreduce(own, own, FEW, DDL_FLOAT32, DDL_SUM, me->world, &requests[1]) == DDL_OK);
        EXPECT(me,
               ddl_allreduce(&sums[1], &sums[1], 1, DDL_INT64, DDL_SUM, me->world, &requests[2]) == DDL_OK);
        EXPECT(me, ddl_wait_all(3, requests) == DDL_OK);
        EXPECT(me, !at_gpu || gpu_memory_read(host, device, sizeof host));
        EXPECT(me, sums[0] == me->nranks && sums[1] == me->nranks);
        EXPECT(me, host[0] == (float)me->nranks && host[FEW - 1] == (float)me->nranks);
    }
    gpu_memory_free(device);
}

static void host_and_device_calls_keep_their_order(void **state)
{
    (void)state;
    ranks_play("mem://alternating", 3, alternating_calls, NULL);
}

/* A call like the last one; true: with a buffer in the same place, but what was host memory is a GPU's, which
 * is the caller's then. */
static bool take_other_memory(rank_thread *me, int page, void **taken)
{
    enum { PAGE = 4096, PAGES = 3 * PAGE };
    const bool is_root = me->rank == 0;
    const float before = 1, after = 2;
    float got = 0, *buffer = &got;
    void *device = NULL, *pages = NULL;
    if (is_root)
        pages = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(me, pages != MAP_FAILED);
    if (is_root)
        buffer = (float *)((char *)pages + (size_t)page * PAGE);
    *buffer = is_root ? before : 0;
    for (int i = 0; i < 3; i++)
        EXPECT(me, ddl_broadcast(buffer, 1, DDL_FLOAT32, 0, me->world, NULL) == DDL_OK);
    EXPECT(me, is_root || got == before);
    ranks_meet(me);
    if (is_root) { /* while the others wait */
        munmap(pages, PAGES);
        device = gpu_memory_alloc(PAGE);
        EXPECT(me, device != NULL && gpu_memory_write(device, &after, sizeof after));
    }
    ranks_meet(me);
    EXPECT(me, ddl_broadcast(is_root ? device : &got, 1, DDL_FLOAT32, 0, me->world, NULL) == DDL_OK);
    EXPECT(me, is_root || got == after);
    ranks_meet(me);
    *taken = device;
    return device == (void *)buffer;
}

/* The system puts what comes where something has gone; the more is taken, the fewer such places there are. */
static void another_kind_of_memory(rank_thread *me)
{
    enum { TIMES = 30 };
    void *taken[TIMES];
    int in_place = 0;
    for (int i = 0; i < TIMES; i++)
        in_place += take_other_memory(me, i % 3, &taken[i]);
    EXPECT(me, me->rank != 0 || in_place > 0);
    for (int i = 0; i < TIMES && me->rank == 0; i++)
        gpu_memory_free(taken[i]);
}

static void where_memory_is_is_asked_for_in_each_call(void **state)
{
    (void)state;
    ranks_play("mem://another", 2, another_kind_of_memory, NULL);
}

/* Parts have ranks of their own, but the GPU is the one that the rank has in the world. */
static void a_part(rank_thread *me)
{
    ddl_comm *part = NULL;
    EXPECT(me, ddl_comm_split(me->world, me->rank % 2, 0, &part) == DDL_OK);
    EXPECT(me, ddl_local_device(me->world) == me->rank % 2);
    EXPECT(me, ddl_local_device(part) == me->rank % 2);
    EXPECT(me, ddl_comm_free(&part) == DDL_OK);
}

static void a_rank_has_one_gpu_in_all_parts(void **state)
{
    (void)state;
    ranks_play("mem://parts", 4, a_part, NULL);
}

/* Rank 0 makes such calls beside those that all make, which go on as if there were none. */
static void a_stream_elsewhere(rank_thread *me)
{
    ddl_request *request = NULL;
    void *x = device_floats(FEW, 1);
    EXPECT(me, ddl_stream_begin(me->world, me->arg) == DDL_OK);
    for (int i = 0; me->rank == 0 && i < 2; i++) {
        ddl_status told = ddl_allreduce(x, x, FEW, DDL_FLOAT32, DDL_SUM, me->world, i == 0 ? NULL : &request);
        const char *text = ddl_last_error()->text;
        EXPECT(me, told == DDL_EINVAL && request == NULL);
        EXPECT(me, strstr(text, "memory of GPU 0, but the stream of ddl_stream_begin is of GPU 1") != NULL);
    }
    EXPECT(me, ddl_stream_end(me->world) == DDL_OK);
    /* The default stream is of whichever GPU. Of one rank, as what ranks have in one stream waits for each
     * other. */
    EXPECT(me, me->rank > 0 || ddl_stream_begin(me->world, NULL) == DDL_OK);
    sum_of_all(me, x, x, FEW);
    EXPECT(me, me->rank > 0 || ddl_stream_end(me->world) == DDL_OK);
    assert_floats(x, FEW, 1, (float)me->nranks);
    ranks_meet(me);
    gpu_memory_free(x);
}

static void a_stream_of_another_gpu_is_refused(void **state)
{
    (void)state;
    gpu_memory_choose(1);
    void *stream = gpu_stream_create();
    gpu_memory_choose(0);
    assert_non_null(stream);
    ranks_play("mem://elsewhere", 1, a_stream_elsewhere, stream);
    ranks_play("mem://elsewhere", 2, a_stream_elsewhere, stream);
    gpu_stream_destroy(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_alone_copies),
        cmocka_unit_test(buffers_are_of_one_gpu_or_of_the_host),
        cmocka_unit_test(what_a_role_does_not_use_may_be_anywhere),
        cmocka_unit_test(warm_calls_make_nothing),
        cmocka_unit_test(host_and_device_calls_keep_their_order),
        cmocka_unit_test(where_memory_is_is_asked_for_in_each_call),
        cmocka_unit_test(a_rank_has_one_gpu_in_all_parts),
        cmocka_unit_test(a_stream_of_another_gpu_is_refused),
    };
    return cmocka_run_group_tests(tests, open_driver, free_alone);
}
