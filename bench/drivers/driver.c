/*
 * driver.c - checks a library's results, then times it; see driver.h.
 *
 * Ranks agree on the number of operations, and collect their times, by the library's own broadcast and
 * allgather: nothing else is there that all libraries could share.
 */
#include "driver.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_OPERATIONS = 1 << 17, MIN_OPERATIONS = 4 };

static int rank, nranks;
static size_t elements, block; /* of the greater buffer; of one rank's block of it */

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "driver: %s: ", measured.name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* ---- what goes in, and what has to come out ---- */

/* Whole numbers, so a sum is exact in whatever order it is made; they tell the rank and the place. */
static float element(int of_rank, size_t i)
{
    return (float)(256 * of_rank + (int)(i % 251));
}

static float sum(size_t i)
{
    return (float)(256 * (nranks * (nranks - 1) / 2) + nranks * (int)(i % 251));
}

static float own_part_of_sum(size_t i)
{
    return sum((size_t)rank * block + i);
}

static float one_block_of_each(size_t i)
{
    return element((int)(i / block), i % block);
}

static float own_block_of_each(size_t i)
{
    return element((int)(i / block), (size_t)rank * block + i % block);
}

static float of_root(size_t i)
{
    return element(0, i);
}

static float own_block_of_root(size_t i)
{
    return element(0, (size_t)rank * block + i);
}

enum shape { BLOCKS = 1, RECEIVES_BLOCK = 2, IN_PLACE = 4, ROOT_RECEIVES = 8 };

static const struct kind {
    const char *name;
    collective *const *operation;
    int shape;                   /* BLOCKS: its count is that of one of them */
    float (*expected)(size_t i); /* element i of the result; NULL: there is none */
} kinds[] = {
    { "allreduce", &measured.allreduce, 0, sum },
    { "allreduce_in_place", &measured.allreduce, IN_PLACE, sum },
    { "allgather", &measured.allgather, BLOCKS, one_block_of_each },
    { "reduce_scatter", &measured.reduce_scatter, BLOCKS | RECEIVES_BLOCK, own_part_of_sum },
    { "alltoall", &measured.alltoall, BLOCKS, own_block_of_each },
    { "broadcast", &measured.broadcast, 0, of_root },
    { "barrier", &measured.barrier, 0, NULL },
    { "reduce", &measured.reduce, ROOT_RECEIVES, sum },
    { "gather", &measured.gather, BLOCKS | ROOT_RECEIVES, one_block_of_each },
    { "scatter", &measured.scatter, BLOCKS | RECEIVES_BLOCK, own_block_of_root },
};

/* One size of one collective. */
struct workload {
    const struct kind *kind;
    size_t bytes, count;
    float *in, *out;
};

static void operate(const struct workload *work)
{
    (*work->kind->operation)(work->kind->shape & IN_PLACE ? work->out : work->in, work->out, work->count);
}

static void check(const struct workload *work)
{
    size_t received = work->kind->shape & RECEIVES_BLOCK ? block : elements;
    if (work->kind->shape & ROOT_RECEIVES && rank != 0)
        return;
    for (size_t i = 0; i < received; i++) {
        float expected = work->kind->expected(i);
        if (work->out[i] == expected)
            continue;
        printf("{\"wrong\": \"element %zu is %g, not %g\", \"rank\": %d, \"bytes\": %zu}\n", i,
               (double)work->out[i], (double)expected, rank, work->bytes);
        fflush(stdout);
        exit(1);
    }
}

static void prepare(struct workload *work)
{
    bool root = work->kind->expected == of_root && rank == 0;
    for (size_t i = 0; i < elements; i++) {
        work->in[i] = element(rank, i);
        work->out[i] = root ? of_root(i) : work->kind->shape & IN_PLACE ? work->in[i] : -1;
    }
}

static float *new_buffer(size_t bytes)
{
    void *buffer = NULL;
    if (posix_memalign(&buffer, 4096, bytes > 0 ? bytes : 1) != 0)
        fail("no memory for a buffer of %zu bytes", bytes);
    return buffer;
}

static float *allocate_there(size_t bytes)
{
    float *buffer = measured.allocate(bytes);
    if (buffer == NULL)
        fail("no memory for a buffer of %zu bytes", bytes);
    return buffer;
}

/* ---- time ---- */

/* How often to operate, so as to spend `seconds`; finding out is the warm-up. The same on every rank. */
static int choose_operations(const struct workload *work, double seconds)
{
    for (int tried = 1;; tried *= 2) {
        measured.barrier(NULL, NULL, 0);
        double start = now_us();
        for (int i = 0; i < tried; i++)
            operate(work);
        double spent = (now_us() - start) * 1e-6;

        float chosen = 0; /* exact, as MAX_OPERATIONS is below 2^24 */
        if (spent >= seconds / 8 || tried >= MAX_OPERATIONS) {
            double wanted = tried * seconds / spent;
            chosen = wanted > MAX_OPERATIONS   ? MAX_OPERATIONS
                     : wanted < MIN_OPERATIONS ? MIN_OPERATIONS
                                               : (int)wanted;
        }
        measured.broadcast(NULL, &chosen, 1);
        if (chosen > 0)
            return (int)chosen;
    }
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

enum { MEDIAN, MEAN, P99, TIMES };

/* Operations run back to back and each rank times its own; times[] is then that of the slowest rank. */
static void time_operations(const struct workload *work, int operations, float times[TIMES])
{
    static double durations[MAX_OPERATIONS];
    memset(durations, 0, sizeof durations); /* so that the loop does not wait for pages */

    measured.barrier(NULL, NULL, 0);
    double start = now_us(), last = start;
    for (int i = 0; i < operations; i++) {
        operate(work);
        double now = now_us();
        durations[i] = now - last;
        last = now;
    }
    qsort(durations, (size_t)operations, sizeof *durations, compare_doubles);
    const float own[TIMES] = {
        [MEDIAN] = (float)durations[operations / 2],
        [MEAN] = (float)((last - start) / operations),
        [P99] = (float)durations[(int)(operations * 0.99)],
    };

    float *all = new_buffer(sizeof own * (size_t)nranks);
    measured.allgather(own, all, TIMES);
    for (int t = 0; t < TIMES; t++) {
        times[t] = 0;
        for (int r = 0; r < nranks; r++)
            times[t] = all[r * TIMES + t] > times[t] ? all[r * TIMES + t] : times[t];
    }
    free(all);
}

static void measure(struct workload *work, double seconds)
{
    if (work->kind->expected != NULL) {
        prepare(work);
        operate(work);
        check(work);
    }
    int operations = choose_operations(work, seconds);
    float times[TIMES];
    time_operations(work, operations, times);
    if (work->kind->shape & IN_PLACE) { /* what the last one was made of is gone: of one more */
        prepare(work);
        operate(work);
    }
    if (work->kind->expected != NULL)
        check(work); /* of the last one: what is wrong only now and then has its chance too */

    if (rank != 0)
        return;
    printf("{\"library\": \"%s\", \"collective\": \"%s\", \"bytes\": %zu, \"operations\": %d, "
           "\"median_us\": %.3f, \"mean_us\": %.3f, \"p99_us\": %.3f}\n",
           measured.name, work->kind->name, work->bytes, operations, (double)times[MEDIAN],
           (double)times[MEAN], (double)times[P99]);
    fflush(stdout);
}

static const struct kind *find_kind(const char *name)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (strcmp(kinds[k].name, name) == 0 && *kinds[k].operation != NULL)
            return &kinds[k];
    fail("there is no %s", name);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        fail("usage: DRIVER COLLECTIVE SECONDS LIMIT_S BYTES...");
    unsigned limit_s = (unsigned)atoi(argv[3]);
    alarm(limit_s);
    measured.join(&argc, &argv, &rank, &nranks);

    struct workload work = { .kind = find_kind(argv[1]) };
    for (int i = 4; i < argc; i++) {
        alarm(limit_s);
        work.bytes = (size_t)strtoull(argv[i], NULL, 10);
        elements = work.bytes / sizeof(float);
        block = elements / (size_t)nranks;
        work.count = work.kind->shape & BLOCKS ? block : elements;
        if (elements * sizeof(float) != work.bytes ||
            (work.kind->shape & BLOCKS && block * (size_t)nranks != elements))
            fail("%zu bytes cannot be divided among %d ranks", work.bytes, nranks);
        float *(*allocate)(size_t) = measured.allocate != NULL ? allocate_there : new_buffer;
        void (*release)(void *) = measured.release != NULL ? measured.release : free;
        work.in = allocate(work.bytes);
        work.out = allocate(work.bytes);
        measure(&work, atof(argv[2]));
        release(work.in);
        release(work.out);
    }
    alarm(limit_s);
    measured.leave();
    return 0;
}
