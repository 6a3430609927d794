/*
 * allocations - a rank that counts: once warm, repeated operations allocate nothing, on any thread, and who
 * calls from one thread takes no lock for a small one.
 *
 * With several operations in flight the pool of runs may still grow when more of them overlap than ever
 * before; that is bounded by what can overlap, and does not go on with the rounds.
 *
 * malloc and its family are defined here, over those of glibc, so every allocation in the process passes
 * by; likewise pthread_mutex_lock. The process is a rank under a launcher; each prints what it counted and
 * fails if that is not zero.
 */
#include <ddl/ddl.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static atomic_bool counting;
static atomic_ulong allocations, first_bytes;
static _Atomic(void *) first_caller;

static void note(size_t bytes, void *caller)
{
    if (!atomic_load(&counting))
        return;
    if (atomic_fetch_add(&allocations, 1) == 0) {
        atomic_store(&first_bytes, bytes);
        atomic_store(&first_caller, caller);
    }
}

void *malloc(size_t bytes)
{
    note(bytes, __builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    note(count * bytes, __builtin_return_address(0));
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    note(bytes, __builtin_return_address(0));
    return __libc_realloc(memory, bytes);
}

void *memalign(size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes)
{
    note(bytes, __builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    note(bytes, __builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    note(bytes, __builtin_return_address(0));
    *memory = __libc_memalign(alignment, bytes);
    return *memory == NULL ? ENOMEM : 0;
}

void free(void *memory)
{
    __libc_free(memory);
}

static _Thread_local unsigned long locks; /* that this thread has taken */
static _Atomic(void *) real_lock;

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    void *found = atomic_load(&real_lock);
    int (*lock)(pthread_mutex_t *);
    if (found == NULL) {
        found = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        atomic_store(&real_lock, found);
    }
    memcpy(&lock, &found, sizeof lock);
    locks++;
    return lock(mutex);
}

/* ---- */

enum { WARM_UP = 200, ROUNDS = 1000, IN_FLIGHT = 4, LARGEST = 300000, MOST_RANKS = 16 };

static const size_t counts[] = { 1, 100, 5000, 40000, LARGEST };

/* Sizes, operations, pieces of each, and what one run may be made of. */
enum { OVERLAPPING = 5 * IN_FLIGHT * 3 * 10 };

/* Large counts are repeated less often: the pieces of one call are many repetitions by themselves. */
static int rounds_of(size_t count, int rounds)
{
    return count <= 5000 ? rounds : rounds / (int)(count / 5000);
}

static ddl_status blocking(float *data, size_t count, ddl_comm *world)
{
    return ddl_allreduce(data, data, count, DDL_FLOAT32, DDL_MAX, world, NULL);
}

static ddl_status in_flight(float *data, size_t count, ddl_comm *world)
{
    ddl_request *requests[IN_FLIGHT] = { NULL };
    size_t part = count / IN_FLIGHT + 1;
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        ddl_status status =
            ddl_allreduce(data + i * part, data + i * part, part, DDL_FLOAT32, DDL_MAX, world, &requests[i]);
        if (status != DDL_OK)
            return status;
    }
    return ddl_wait_all(IN_FLIGHT, requests);
}

/* Blocks of 1, 2, ... shares of about count elements in all; a rank sends each what it gets from each. */
static ddl_status uneven(float *data, size_t count, ddl_comm *world)
{
    static float out[LARGEST + MOST_RANKS];
    size_t blocks[MOST_RANKS], same[MOST_RANKS];
    int nranks = ddl_size(world), rank = ddl_rank(world);
    for (int i = 0; i < nranks; i++) {
        blocks[i] = 2 * count * (size_t)(i + 1) / ((size_t)nranks * (size_t)(nranks + 1));
        same[i] = count / (size_t)nranks / (rank == i ? 2 : 1);
    }
    ddl_status status = ddl_allgatherv(data, out, blocks, DDL_FLOAT32, world, NULL);
    if (status == DDL_OK)
        status = ddl_reduce_scatterv(data, out, blocks, DDL_FLOAT32, DDL_MAX, world, NULL);
    if (status == DDL_OK)
        status = ddl_alltoallv(data, same, out, same, DDL_FLOAT32, world, NULL);
    if (status == DDL_OK)
        status = ddl_gatherv(data, rank == 0 ? out : NULL, blocks, DDL_FLOAT32, 0, world, NULL);
    if (status == DDL_OK)
        status = ddl_scatterv(rank == 0 ? data : NULL, out, blocks, DDL_FLOAT32, 0, world, NULL);
    return status;
}

/* Each of the others once, and a message to the next rank. */
static ddl_status all_kinds(float *data, size_t count, ddl_comm *world)
{
    static float out[LARGEST + MOST_RANKS];
    const int nranks = ddl_size(world), next = (ddl_rank(world) + 1) % nranks;
    const int before = (ddl_rank(world) + nranks - 1) % nranks;
    const size_t block = count / (size_t)nranks;
    ddl_request *sending = NULL;
    ddl_status status = ddl_barrier(world, NULL);
    if (status == DDL_OK)
        status = ddl_broadcast(data, count, DDL_FLOAT32, 0, world, NULL);
    if (status == DDL_OK)
        status = ddl_reduce(data, out, count, DDL_FLOAT32, DDL_MAX, 0, world, NULL);
    if (status == DDL_OK)
        status = ddl_allgather(data, out, block, DDL_FLOAT32, world, NULL);
    if (status == DDL_OK)
        status = ddl_reduce_scatter(data, out, block, DDL_FLOAT32, DDL_MAX, world, NULL);
    if (status == DDL_OK)
        status = ddl_alltoall(data, out, block, DDL_FLOAT32, world, NULL);
    if (status == DDL_OK)
        status = ddl_gather(data, out, block, DDL_FLOAT32, 0, world, NULL);
    if (status == DDL_OK)
        status = ddl_scatter(data, out, block, DDL_FLOAT32, 0, world, NULL);
    if (status != DDL_OK || nranks == 1)
        return status;
    status = ddl_send(data, count, DDL_FLOAT32, next, world, &sending);
    if (status == DDL_OK)
        status = ddl_recv(out, count, DDL_FLOAT32, before, world, NULL);
    return status == DDL_OK ? ddl_wait(&sending) : status;
}

/* As the layers of a model have: each was called once when the counting begins. */
static ddl_status many_sizes(float *data, size_t count, ddl_comm *world)
{
    static size_t turn;
    const size_t size = count + turn++ % WARM_UP;
    return count > 5000 ? DDL_OK : ddl_allreduce(data, data, size, DDL_FLOAT32, DDL_MAX, world, NULL);
}

static ddl_status repeat(ddl_status (*way)(float *, size_t, ddl_comm *), float *data, int rounds,
                         ddl_comm *world)
{
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
        for (int i = 0; i < rounds_of(counts[k], rounds); i++) {
            ddl_status status = way(data, counts[k], world);
            if (status != DDL_OK)
                return status;
        }
    return DDL_OK;
}

static bool run(const char *name, ddl_status (*way)(float *, size_t, ddl_comm *), unsigned long allowed,
                float *data, ddl_comm *world)
{
    ddl_status status = repeat(way, data, WARM_UP, world);
    if (status == DDL_OK)
        status = ddl_barrier(world, NULL);
    atomic_store(&allocations, 0);
    atomic_store(&counting, true);
    if (status == DDL_OK)
        status = repeat(way, data, ROUNDS, world);
    atomic_store(&counting, false);
    if (status != DDL_OK) {
        fprintf(stderr, "allocations: %s\n", ddl_last_error()->text);
        return false;
    }
    printf("rank %d, %s: %lu allocations", ddl_rank(world), name, atomic_load(&allocations));
    if (atomic_load(&allocations) > 0)
        printf(", the first of %lu bytes, called from %p", atomic_load(&first_bytes),
               atomic_load(&first_caller));
    printf("\n");
    return atomic_load(&allocations) <= allowed;
}

/* Of calls of 4 bytes, in some of which a rank may have to sleep, as another program has a CPU. */
static bool takes_no_lock(float *data, ddl_comm *world)
{
    enum { CALLS = 10000, MOST = CALLS / 10 };
    ddl_status status = ddl_barrier(world, NULL);
    locks = 0;
    for (int i = 0; status == DDL_OK && i < CALLS; i++)
        status = blocking(data, 1, world);
    const unsigned long taken = locks;
    if (status != DDL_OK) {
        fprintf(stderr, "allocations: %s\n", ddl_last_error()->text);
        return false;
    }
    printf("rank %d: %lu locks in %d calls\n", ddl_rank(world), taken, CALLS);
    return taken <= MOST;
}

int main(void)
{
    ddl_comm *world = NULL;
    float *data = calloc(LARGEST + IN_FLIGHT, sizeof *data);
    bool good;
    void *probe;

    if (data == NULL || ddl_init(&world, NULL) != DDL_OK) {
        fprintf(stderr, "allocations: %s\n", ddl_last_error()->text);
        return 1;
    }
    /* That the counter counts, and that a library's allocation would pass by it. */
    atomic_store(&counting, true);
    probe = strdup("counted");
    atomic_store(&counting, false);
    free(probe);
    if (atomic_load(&allocations) != 1) {
        fprintf(stderr, "allocations: the counter does not count\n");
        return 1;
    }
    good = run("blocking", blocking, 0, data, world);
    good = run("in flight", in_flight, OVERLAPPING, data, world) && good;
    if (locks == 0) { /* of its requests */
        fprintf(stderr, "allocations: the counter of locks does not count\n");
        return 1;
    }
    good = run("uneven", uneven, 0, data, world) && good;
    good = run("all kinds", all_kinds, 0, data, world) && good;
    good = run("many sizes", many_sizes, 0, data, world) && good;
    if (ddl_size(world) == 2) /* a CPU for each */
        good = takes_no_lock(data, world) && good;
    good = ddl_comm_free(&world) == DDL_OK && good;
    free(data);
    return good ? 0 : 1;
}
