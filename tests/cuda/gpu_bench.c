/*
 * gpu_bench - what tools/gpu_check measures: gpu_bench DRIVER BYTES ROUNDS
 *
 * Rank 0 prints a line of JSON with the speed of copies alone (GB/s), that of an allreduce of as many bytes
 * on device memory and on host memory, and the time that a call in the order of a stream takes on the host.
 * The best round counts, of host times the median. Results are looked at.
 */
#include "../conformance/gpu_memory.h"
#include "../conformance/gpu_stream.h"
#include "../support/now.h"

#include <ddl/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 101, SMALL = 1000, PERIOD = 1000 };

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "gpu_bench: %s failed: %s\n", what, ddl_last_error()->text);
    exit(1);
}

/* Of all ranks at once, as they share the link; the slowest of them counts. */
static double copies(ddl_comm *world, void *stream, void *to, const void *from, size_t bytes, int rounds)
{
    double best = 0;
    for (int i = 0; i < rounds; i++) {
        must(ddl_barrier(world, NULL) == DDL_OK, "barrier");
        double begun = now_s();
        must(gpu_stream_copy(stream, to, from, bytes) && gpu_stream_wait(stream), "a copy");
        double speed = (double)bytes / (now_s() - begun) / 1e9;
        must(ddl_allreduce(&speed, &speed, 1, DDL_FLOAT64, DDL_MIN, world, NULL) == DDL_OK, "comparing");
        best = speed > best ? speed : best;
    }
    return best;
}

static double allreduces(ddl_comm *world, void *x, size_t bytes, int rounds)
{
    double best = 0;
    for (int i = 0; i <= rounds; i++) { /* the first one is for warming up */
        must(ddl_barrier(world, NULL) == DDL_OK, "barrier");
        double begun = now_s();
        must(ddl_allreduce(x, x, bytes / sizeof(float), DDL_FLOAT32, DDL_MAX, world, NULL) == DDL_OK,
             "allreduce");
        double speed = (double)bytes / (now_s() - begun) / 1e9;
        best = i > 0 && speed > best ? speed : best;
    }
    return best;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double host_us(ddl_comm *world, void *stream, void *x)
{
    double taken[CALLS];
    must(ddl_stream_begin(world, stream) == DDL_OK, "stream_begin");
    for (int i = 0; i < CALLS; i++) {
        double begun = now_s();
        must(ddl_allreduce(x, x, SMALL, DDL_FLOAT32, DDL_MAX, world, NULL) == DDL_OK, "a call in a stream");
        taken[i] = (now_s() - begun) * 1e6;
        must(gpu_stream_wait(stream), "a stream");
    }
    must(ddl_stream_end(world) == DDL_OK, "stream_end");
    qsort(taken, CALLS, sizeof *taken, compare);
    return taken[CALLS / 2];
}

/* Of so many ranks; 1: one's own as rank 0. */
static float value(int nranks, size_t i)
{
    return (float)(PERIOD * (nranks - 1)) + (float)(i % PERIOD);
}

static bool is_maximum(const float *values, size_t count, int nranks)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] != value(nranks, i))
            return false;
    return true;
}

int main(int argc, char **argv)
{
    ddl_comm *world = NULL;
    if (argc != 4)
        return 2;
    size_t bytes = (size_t)atoll(argv[2]);
    int rounds = atoi(argv[3]);
    must(ddl_init(&world, NULL) == DDL_OK, "init");
    must(gpu_memory_open(argv[1]) && gpu_stream_open(), "opening the driver");
    void *stream = gpu_stream_create(), *x = gpu_memory_alloc(bytes);
    float *near = gpu_memory_alloc_pinned(bytes);
    must(stream != NULL && x != NULL && near != NULL, "allocating");
    const size_t count = bytes / sizeof *near;
    const int nranks = ddl_size(world);
    for (size_t i = 0; i < count; i++)
        near[i] = value(ddl_rank(world) + 1, i);
    must(gpu_memory_write(x, near, bytes), "writing");
    double up = copies(world, stream, x, near, bytes, rounds);
    double down = copies(world, stream, near, x, bytes, rounds);
    double host = allreduces(world, near, bytes, rounds), device = allreduces(world, x, bytes, rounds);
    double call_us = host_us(world, stream, x);
    must(is_maximum(near, count, nranks), "the maximum in host memory, which is wrong");
    memset(near, 0, bytes);
    must(gpu_memory_read(near, x, bytes), "reading");
    must(is_maximum(near, count, nranks), "the maximum in device memory, which is wrong");
    if (ddl_rank(world) == 0)
        printf(
            "{\"ranks\": %d, \"bytes\": %zu, \"up\": %.2f, \"down\": %.2f, \"host\": %.2f, \"device\": %.2f, "
            "\"call_us\": %.1f}\n",
            nranks, bytes, up, down, host, device, call_us);
    must(ddl_comm_free(&world) == DDL_OK, "free");
    gpu_memory_free(x);
    gpu_memory_free_pinned(near);
    return 0;
}
