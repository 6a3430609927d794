/*
 * nccl_bench - NCCL by itself beside ddl, for tools/gpu_check: nccl_bench DRIVER NCCL BYTES ROUNDS
 *
 * Rank 0 prints a line of JSON. Alone: what a small allreduce takes by NCCL and by ddl, which leaves it to
 * NCCL with DDL_GPU=nccl, awaited and only begun in a stream, where ddl always copies. Several ranks, with
 * DDL_GPU=nccl: the speed of one of BYTES by both. The best round counts, of short times the median. If NCCL
 * does not take these ranks, as they share a GPU, the line says so.
 */
#include "../conformance/gpu_memory.h"
#include "../conformance/gpu_stream.h"
#include "../support/now.h"

#include <ddl/cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 301, WARM = 20, SMALL = 1000 };

/* As in nccl.h. */
enum { NCCL_FLOAT32 = 7, NCCL_SUM = 0, NCCL_INVALID_USAGE = 5 };
typedef struct nccl_id {
    char bytes[128];
} nccl_id;
static struct {
    int (*version)(int *version);
    int (*make_id)(nccl_id *id);
    int (*open)(void **comm, int nranks, nccl_id id, int rank);
    int (*allreduce)(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream);
    int (*close)(void *comm);
    const char *(*text)(int result);
    const char *(*last)(void *comm);
} nccl;

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "nccl_bench: %s failed: %s\n", what, ddl_last_error()->text);
    exit(1);
}

static void nccl_tell(int result, const char *what)
{
    fprintf(stderr, "nccl_bench: %s: %s: %s\n", what, nccl.text(result), nccl.last(NULL));
}

static void nccl_must(int result, const char *what)
{
    if (result == 0)
        return;
    nccl_tell(result, what);
    exit(1);
}

static void find(void *library, const char *name, void *place)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "nccl_bench: NCCL has no %s\n", name);
        exit(1);
    }
    memcpy(place, &symbol, sizeof symbol);
}

static void open_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "nccl_bench: %s\n", dlerror());
        exit(1);
    }
    find(library, "ncclGetVersion", &nccl.version);
    find(library, "ncclGetUniqueId", &nccl.make_id);
    find(library, "ncclCommInitRank", &nccl.open);
    find(library, "ncclAllReduce", &nccl.allreduce);
    find(library, "ncclCommDestroy", &nccl.close);
    find(library, "ncclGetErrorString", &nccl.text);
    find(library, "ncclGetLastError", &nccl.last);
}

typedef struct bench {
    ddl_comm *world;
    void *comm, *stream, *in, *out;
} bench;

/* For who reads what there is of the output of a program that hangs. */
static void say(const bench *b, const char *what)
{
    if (ddl_rank(b->world) == 0)
        fprintf(stderr, "nccl_bench: %s\n", what);
}

/* False: NCCL does not take these ranks, as one at least is told. Whatever else it says is a failure. */
static bool open_comm(bench *b)
{
    nccl_id id;
    memset(&id, 0, sizeof id);
    gpu_memory_enter();
    if (ddl_rank(b->world) == 0)
        nccl_must(nccl.make_id(&id), "ncclGetUniqueId");
    must(ddl_broadcast(&id, sizeof id, DDL_UINT8, 0, b->world, NULL) == DDL_OK, "telling the id");
    must(ddl_barrier(b->world, NULL) == DDL_OK, "barrier");
    say(b, "all ranks go to NCCL");
    int result = nccl.open(&b->comm, ddl_size(b->world), id, ddl_rank(b->world));
    int found[2] = { result == NCCL_INVALID_USAGE && ddl_size(b->world) > 1, result };
    if (result != 0 && !found[0]) /* at once, as another rank may hang because of that */
        nccl_tell(result, "ncclCommInitRank");
    gpu_memory_leave(0);
    must(ddl_allreduce(found, found, 2, DDL_INT32, DDL_MAX, b->world, NULL) == DDL_OK, "comparing");
    bool is_refused = found[0] != 0;
    if (found[1] != 0 && !is_refused)
        exit(1);
    if (is_refused)
        b->comm = NULL;
    else
        say(b, "NCCL has connected the ranks");
    return !is_refused;
}

static void by_nccl(const bench *b, size_t count)
{
    gpu_memory_enter();
    int result = nccl.allreduce(b->in, b->out, count, NCCL_FLOAT32, NCCL_SUM, b->comm, b->stream);
    gpu_memory_leave(0);
    nccl_must(result, "ncclAllReduce");
}

static void by_ddl(const bench *b, size_t count)
{
    must(ddl_allreduce(b->in, b->out, count, DDL_FLOAT32, DDL_SUM, b->world, NULL) == DDL_OK, "allreduce");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The medians of NCCL and of ddl, in turns, as whoever always came first would be measured otherwise. */
static void time_small(const bench *b, bool in_stream, double median_us[2])
{
    static double taken[2][CALLS];
    void (*const calls[2])(const bench *, size_t) = { by_nccl, by_ddl };
    for (int i = -WARM; i < CALLS; i++)
        for (int which = 0; which < 2; which++) {
            double begun = now_s();
            calls[which](b, SMALL);
            if (!in_stream && which == 0)
                must(gpu_stream_wait(b->stream), "a stream");
            if (i >= 0)
                taken[which][i] = (now_s() - begun) * 1e6;
            must(gpu_stream_wait(b->stream), "a stream");
        }
    for (int which = 0; which < 2; which++) {
        qsort(taken[which], CALLS, sizeof taken[which][0], compare);
        median_us[which] = taken[which][CALLS / 2];
    }
}

static bool is_one(const bench *b)
{
    float found[SMALL] = { 0 };
    must(gpu_memory_read(found, b->out, sizeof found), "reading");
    for (int i = 0; i < SMALL; i++)
        if (found[i] != 1)
            return false;
    return true;
}

static void measure_alone(const bench *b)
{
    double call_us[2], begun_us[2];
    must(!is_one(b), "clearing the output");
    by_ddl(b, SMALL);
    must(is_one(b), "the sum of one, which is wrong");
    time_small(b, false, call_us);
    must(ddl_stream_begin(b->world, b->stream) == DDL_OK, "stream_begin");
    time_small(b, true, begun_us);
    must(ddl_stream_end(b->world) == DDL_OK, "stream_end");
    printf("\"nccl_us\": %.2f, \"ddl_us\": %.2f, \"nccl_begun_us\": %.2f, \"ddl_begun_us\": %.2f}\n",
           call_us[0], call_us[1], begun_us[0], begun_us[1]);
}

static double speed(const bench *b, void (*call)(const bench *, size_t), size_t bytes, int rounds)
{
    double best = 0;
    for (int i = 0; i <= rounds; i++) { /* the first one is for warming up */
        must(ddl_barrier(b->world, NULL) == DDL_OK, "barrier");
        double begun = now_s();
        call(b, bytes / sizeof(float));
        must(gpu_stream_wait(b->stream), "a stream");
        double found = (double)bytes / (now_s() - begun) / 1e9;
        best = i > 0 && found > best ? found : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    bench b = { .world = NULL };
    int version = 0;
    if (argc != 5)
        return 2;
    size_t bytes = (size_t)atoll(argv[3]);
    int rounds = atoi(argv[4]);
    must(ddl_init(&b.world, NULL) == DDL_OK, "init");
    must(gpu_memory_open(argv[1]) && gpu_stream_open(), "opening the driver");
    open_library(argv[2]);
    nccl_must(nccl.version(&version), "ncclGetVersion");
    b.stream = gpu_stream_create();
    b.in = gpu_memory_alloc(bytes);
    b.out = gpu_memory_alloc(bytes);
    float *ones = malloc(bytes);
    must(b.stream != NULL && b.in != NULL && b.out != NULL && ones != NULL, "allocating");
    for (size_t i = 0; i < bytes / sizeof *ones; i++)
        ones[i] = 1;
    must(gpu_memory_write(b.in, ones, bytes), "writing");
    const float none[SMALL] = { 0 };
    must(gpu_memory_write(b.out, none, sizeof none), "writing");
    bool is_open = open_comm(&b), tells = ddl_rank(b.world) == 0;
    if (tells)
        printf("{\"ranks\": %d, \"version\": %d, ", ddl_size(b.world), version);
    if (!is_open) {
        if (tells)
            printf("\"refused\": \"%s\"}\n", nccl.text(NCCL_INVALID_USAGE));
    } else if (ddl_size(b.world) == 1) {
        measure_alone(&b);
    } else {
        double alone = speed(&b, by_nccl, bytes, rounds);
        say(&b, "NCCL is done by itself");
        must(gpu_memory_write(b.out, ones, bytes), "writing");
        double with_ddl = speed(&b, by_ddl, bytes, rounds);
        must(gpu_memory_read(ones, b.out, bytes), "reading");
        for (size_t i = 0; i < bytes / sizeof *ones; i++)
            must(ones[i] == (float)ddl_size(b.world), "the sum, which is wrong");
        if (tells)
            printf("\"nccl\": %.2f, \"ddl\": %.2f}\n", alone, with_ddl);
    }
    free(ones);
    gpu_memory_enter();
    if (b.comm != NULL)
        nccl_must(nccl.close(b.comm), "ncclCommDestroy");
    gpu_memory_leave(0);
    must(ddl_comm_free(&b.world) == DDL_OK, "free");
    gpu_memory_free(b.in);
    gpu_memory_free(b.out);
    return 0;
}
