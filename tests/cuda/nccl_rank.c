/*
 * nccl_rank - a rank with buffers on a GPU of its own, for tests of what goes to NCCL: nccl_rank DRIVER WHAT
 *
 * Tells in lines of JSON how its calls ended, whether their results were exact, and the time since the line
 * before. WHAT is a row of the table below.
 */
#define _GNU_SOURCE /* CPU_SET */
#include "../conformance/gpu_memory.h"
#include "../conformance/gpu_stream.h"
#include "../support/now.h"

#include <ddl/cuda.h>
#include <ddl/ddl.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 50000 /* floats: too many for a board */, MANY = 300, ROUNDS = 40, PARTS = 6 };

static ddl_comm *world;
static int rank, nranks;

static void tell(const char *event, ddl_status status, bool exact)
{
    static int64_t before_ms;
    const int64_t ms = now_ms() - before_ms;
    const ddl_error *error = ddl_last_error();
    printf("{\"event\": \"%s\", \"status\": \"%s\", \"culprit\": %d, \"text\": \"%s\", \"exact\": %s, "
           "\"ms\": %" PRId64 "}\n",
           event, ddl_status_name(status), status != DDL_OK ? error->culprit : -1,
           status != DDL_OK ? error->text : "", exact ? "true" : "false", ms);
    fflush(stdout);
    before_ms += ms;
}

static void *need(void *memory)
{
    if (memory == NULL)
        exit(3);
    return memory;
}

static float scratch[COUNT];

static void fill(void *memory, bool is_host, float value)
{
    for (int i = 0; i < COUNT; i++)
        scratch[i] = value;
    if (is_host)
        memcpy(memory, scratch, sizeof scratch);
    else if (!gpu_memory_write(memory, scratch, sizeof scratch))
        exit(4);
}

static bool holds(const void *memory, bool is_host, float value)
{
    memset(scratch, 0xff, sizeof scratch);
    if (is_host)
        memcpy(scratch, memory, sizeof scratch);
    else if (!gpu_memory_read(scratch, memory, sizeof scratch))
        exit(4);
    for (int i = 0; i < COUNT; i++)
        if (scratch[i] != value)
            return false;
    return true;
}

typedef struct call {
    void *in, *out;
    bool is_host;
    ddl_request *request;
    float sum; /* that it is to have */
} call;

/* Of values that no other call has. */
static call make_call(void *(*alloc)(size_t bytes), int number, int of_ranks)
{
    call made = { .in = need(alloc(sizeof scratch)), .out = need(alloc(sizeof scratch)) };
    made.is_host = alloc == malloc;
    fill(made.in, made.is_host, (float)(number + 1) * (float)(rank + 1));
    made.sum = (float)(number + 1) * (float)(of_ranks * (of_ranks + 1)) / 2;
    return made;
}

static bool is_exact(const call *it)
{
    return holds(it->out, it->is_host, it->sum);
}

static ddl_status begin(call *it, ddl_comm *comm)
{
    return ddl_allreduce(it->in, it->out, COUNT, DDL_FLOAT32, DDL_SUM, comm, &it->request);
}

/* Blocking, and told. */
static void reduce(const char *event, void *(*alloc)(size_t bytes), int number, ddl_comm *comm)
{
    call it = make_call(alloc, number, ddl_size(comm));
    ddl_status status = ddl_allreduce(it.in, it.out, COUNT, DDL_FLOAT32, DDL_SUM, comm, NULL);
    tell(event, status, status == DDL_OK && is_exact(&it));
}

static void send_token(int to)
{
    int token = 1;
    if (ddl_send(&token, 1, DDL_INT32, to, world, NULL) != DDL_OK)
        exit(5);
}

static void take_token(int from)
{
    int token = 0;
    if (ddl_recv(&token, 1, DDL_INT32, from, world, NULL) != DDL_OK)
        exit(5);
}

/* ---- what it does ---- */

/* Rank 0 has them all in flight before another rank has begun one. */
static void many(void)
{
    static call calls[MANY];
    ddl_request *requests[MANY];
    ddl_status status = DDL_OK;
    bool exact = true;
    for (int i = 0; i < MANY; i++)
        calls[i] = make_call(gpu_memory_alloc, i, nranks);
    if (rank != 0)
        take_token(0);
    for (int i = 0; i < MANY && status == DDL_OK; i++) {
        status = begin(&calls[i], world);
        requests[i] = calls[i].request;
    }
    for (int other = 1; rank == 0 && other < nranks; other++)
        send_token(other);
    if (status == DDL_OK)
        status = ddl_wait_all(MANY, requests);
    for (int i = 0; i < MANY && status == DDL_OK; i++)
        exact = exact && is_exact(&calls[i]);
    tell("many", status, exact);
}

/* Some calls have their buffers in host memory on one rank. */
static void mixed(void)
{
    static call calls[MANY];
    ddl_request *requests[MANY];
    ddl_status status = DDL_OK;
    bool exact = true;
    for (int i = 0; i < MANY; i++)
        calls[i] = make_call(i % 5 == rank ? malloc : gpu_memory_alloc, i, nranks);
    for (int i = 0; i < MANY && status == DDL_OK; i++) {
        status = begin(&calls[i], world);
        requests[i] = calls[i].request;
    }
    if (status == DDL_OK)
        status = ddl_wait_all(MANY, requests);
    for (int i = 0; i < MANY && status == DDL_OK; i++)
        exact = exact && is_exact(&calls[i]);
    tell("mixed", status, exact);
}

/* Blocking calls with host memory, all alike; but rank 1 has requests now and then, and while rank 2 waits
 * for a message it cannot do with a call as it did with the one before. */
static void again(void)
{
    enum { CALLS = 700, OFTEN = 3, FROM = 100, TO = 200 };
    float *in = need(malloc(sizeof scratch)), *out = need(malloc(sizeof scratch));
    ddl_request *request = NULL, *message = NULL;
    ddl_status status = DDL_OK;
    bool exact = true;
    int token = 0;
    for (int i = 0; i < CALLS && status == DDL_OK; i++) {
        fill(in, true, (float)(i + 1) * (float)(rank + 1));
        if (rank == 2 && i == FROM)
            status = ddl_recv(&token, 1, DDL_INT32, 0, world, &message);
        if (rank == 0 && i == TO)
            send_token(2);
        if (status == DDL_OK)
            status = ddl_allreduce(in, out, COUNT, DDL_FLOAT32, DDL_SUM, world,
                                   rank == 1 && i % OFTEN == 0 ? &request : NULL);
        if (status == DDL_OK && request != NULL)
            status = ddl_wait(&request);
        exact = exact && holds(out, true, (float)(i + 1) * (float)(nranks * (nranks + 1)) / 2);
        if (message != NULL && i == TO && status == DDL_OK)
            status = ddl_wait(&message);
    }
    free(in);
    free(out);
    tell("again", status, exact);
}

static ddl_comm *part;

static void *drive(void *unused)
{
    int token;
    (void)unused;
    (void)ddl_recv(&token, 1, DDL_INT32, 0, part, NULL); /* which never comes */
    return NULL;
}

/* The last rank ends; the others go on without it, and in a communicator of theirs. Another thread of rank 1
 * drives all the time, so that it hears words of a communicator that it has not made yet. */
static void shrink(void)
{
    ddl_comm *left = NULL;
    pthread_t driver;
    if (ddl_comm_split(world, rank == nranks - 1 ? -1 : 0, rank, &part) != DDL_OK)
        exit(5);
    if (rank == nranks - 1) {
        for (int other = 0; other < rank; other++) /* not while they need it for the split */
            take_token(other);
        _exit(0);
    }
    send_token(nranks - 1);
    if (rank == 1 && pthread_create(&driver, NULL, drive, NULL) != 0)
        exit(6);
    (void)ddl_barrier(world, NULL);
    ddl_status status = ddl_comm_shrink(world, &left);
    tell("shrink", status, true);
    for (int i = 0; status == DDL_OK && i < 3; i++)
        reduce("reduce", gpu_memory_alloc, i, left);
    (void)ddl_barrier(left, NULL); /* none of them leaves before the others are done */
    _exit(0);                      /* what the thread waits for is no matter here */
}

/* Rank 1 leaves in a call; rank 0 begins that when it has. */
static void leave_inside(void)
{
    reduce("first", gpu_memory_alloc, 0, world);
    if (rank == 1) {
        call it = make_call(gpu_memory_alloc, 1, nranks);
        ddl_status status = begin(&it, world);
        send_token(0);
        tell("left", status, true);
        exit(0);
    }
    if (rank == 0)
        take_token(1);
    reduce("second", gpu_memory_alloc, 1, world);
}

/* Rank 1 leaves as soon as it is done. The others stay until they are told, as whoever frees the world
 * without it breaks what is in flight there. */
static void leave_after(void)
{
    reduce("first", gpu_memory_alloc, 0, world);
    reduce("second", gpu_memory_alloc, 1, world);
    if (rank == 1)
        exit(0);
    (void)getchar();
}

/* Rank 1 exits with a call at NCCL. */
static void exit_inside(void)
{
    reduce("first", gpu_memory_alloc, 0, world);
    call it = make_call(gpu_memory_alloc, 1, nranks);
    ddl_status status = begin(&it, world);
    if (rank == 1) {
        take_token(0); /* before it, rank 0's word came */
        exit(status);
    }
    send_token(1);
    tell("second", status == DDL_OK ? ddl_wait(&it.request) : status, false);
}

static call late; /* made by the handler, if it has buffers */

/* A handler of the program that is called after the library's. */
static void wait_for_gpu(void)
{
    int (*wait)(void);
    if (late.in != NULL)
        tell("late", ddl_allreduce(late.in, late.out, COUNT, DDL_FLOAT32, DDL_SUM, part, NULL), true);
    if (!gpu_memory_find("cuCtxSynchronize", &wait))
        _exit(7);
    gpu_memory_enter();
    if (!gpu_memory_leave(wait()))
        _exit(8);
}

static void *call_alone(void *it)
{
    (void)ddl_allreduce(((call *)it)->in, ((call *)it)->out, COUNT, DDL_FLOAT32, DDL_SUM, part, NULL);
    return NULL;
}

/* With a call of another thread at NCCL, of a rank alone in the world or in a part of it. */
static void exit_alone(void)
{
    static call it;
    pthread_t other;
    part = world;
    if (nranks > 1 && ddl_comm_split(world, rank, 0, &part) != DDL_OK)
        exit(5);
    it = make_call(gpu_memory_alloc, 0, 1);
    ddl_status status = ddl_allreduce(it.in, it.out, COUNT, DDL_FLOAT32, DDL_SUM, part, NULL);
    tell("first", status, holds(it.out, false, (float)rank + 1));
    if (pthread_create(&other, NULL, call_alone, &it) != 0)
        exit(6);
    nap_us(300 * 1000);
    exit(0);
}

/* With nothing at NCCL, but a call by a handler, of a rank alone likewise. */
static void exit_before_a_call(void)
{
    part = world;
    if (nranks > 1 && ddl_comm_split(world, rank, 0, &part) != DDL_OK)
        exit(5);
    call it = make_call(gpu_memory_alloc, 0, 1);
    ddl_status status = ddl_allreduce(it.in, it.out, COUNT, DDL_FLOAT32, DDL_SUM, part, NULL);
    tell("first", status, holds(it.out, false, (float)rank + 1));
    late = make_call(gpu_memory_alloc, 1, 1);
    exit(0);
}

/* Whether a capture in the global mode is left as it is. */
static bool capture_around(void (*run)(void))
{
    void *stream = need(gpu_stream_open() ? gpu_stream_create() : NULL);
    if (!gpu_stream_capture_globally(stream))
        exit(6);
    run();
    return gpu_stream_end_capture(stream);
}

static void reduce_first(void)
{
    reduce("first", gpu_memory_alloc, 0, world);
}

static void reduce_second(void)
{
    reduce("second", gpu_memory_alloc, 1, world);
}

static void free_world(void)
{
    tell("free", ddl_comm_free(&world), true);
}

static void capture_before_nccl(void)
{
    tell("spoilt", DDL_OK, !capture_around(reduce_first));
}

static void capture_behind_nccl(void)
{
    reduce_first();
    tell("kept", DDL_OK, capture_around(reduce_second));
    tell("spoilt", DDL_OK, !capture_around(free_world));
}

/* A handler that is called after the driver's, and gives threads of NCCL time to call that. */
static void stay_a_while(void)
{
    nap_us(700 * 1000);
}

static atomic_bool has_told;

static void hear(void *unused, const char *line)
{
    (void)unused;
    if (strstr(line, "have not parted at NCCL within 5 s") != NULL)
        atomic_store(&has_told, true);
}

static double processor_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* The process stays for longer than NCCL has to end its communicator. */
static void free_early(void)
{
    reduce("first", gpu_memory_alloc, 0, world);
    (void)ddl_comm_free(&world);
    nap_us(8 * 1000 * 1000);
}

/* Rank 1 dies with nothing at NCCL; the others hear of that on the host, and do not try to part with it. */
static void idle_with_the_dead(void)
{
    ddl_set_log(hear, NULL);
    reduce("first", gpu_memory_alloc, 0, world);
    if (rank == 1) {
        take_token(0); /* which is through with it */
        take_token(2);
        (void)raise(SIGKILL);
    }
    send_token(1);
    tell("second", ddl_barrier(world, NULL), true);
    (void)ddl_comm_free(&world);
    nap_us(6 * 1000 * 1000);
    tell("quiet", atomic_load(&has_told) ? DDL_ETIMEDOUT : DDL_OK, true);
}

/* Rank 1 dies as it frees a part; rank 0 does not wait for it for ever, nor busily. */
static void part_with_the_dead(void)
{
    enum { PATIENCE_MS = 30000 };
    ddl_set_log(hear, NULL);
    if (ddl_comm_split(world, 0, rank, &part) != DDL_OK)
        exit(5);
    reduce("first", gpu_memory_alloc, 0, part);
    (void)ddl_comm_free(&part);
    const double before_s = processor_s();
    for (int ms = 0; !atomic_load(&has_told) && ms < PATIENCE_MS; ms += 100)
        nap_us(100 * 1000);
    tell("told", atomic_load(&has_told) ? DDL_OK : DDL_ETIMEDOUT, processor_s() - before_s < 0.1);
    _exit(0);
}

/* Rank 0 is ahead by more calls than are remembered, none of which needs another rank. */
static void apart(void)
{
    for (int i = 0; rank == 0 && i < MANY; i++)
        if (ddl_broadcast(NULL, 0, DDL_FLOAT32, 0, world, NULL) != DDL_OK)
            exit(5);
    if (rank == 0)
        send_token(1);
    else
        take_token(0);
    reduce("reduce", gpu_memory_alloc, 0, world);
}

/* Calls of two communicators of the same ranks, one after the other, and then at a time and in another order
 * on rank 1. */
static void two(void)
{
    ddl_comm *comms[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++)
        if (ddl_comm_split(world, 0, rank, &comms[i]) != DDL_OK)
            exit(5);
    call calls[2] = { make_call(gpu_memory_alloc, 0, nranks), make_call(gpu_memory_alloc, 1, nranks) };
    for (int i = 0; i < 2; i++)
        reduce("alone", gpu_memory_alloc, i, comms[i]);
    ddl_status status = DDL_OK;
    bool exact = true;
    for (int round = 0; round < ROUNDS && status == DDL_OK && exact; round++) {
        for (int i = 0; i < 2 && status == DDL_OK; i++) {
            int which = rank == 1 ? 1 - i : i;
            status = begin(&calls[which], comms[which]);
        }
        for (int i = 0; i < 2 && status == DDL_OK; i++)
            status = ddl_wait(&calls[i].request);
        exact = status == DDL_OK && is_exact(&calls[0]) && is_exact(&calls[1]);
    }
    tell("both", status, exact);
    for (int i = 0; i < 2 && status == DDL_OK; i++)
        reduce("again", gpu_memory_alloc, i, comms[i]);
}

/* Each with a communicator of NCCL, which the world takes along. */
static void parts(void)
{
    for (int i = 0; i < PARTS; i++) {
        ddl_comm *made = NULL;
        if (ddl_comm_split(world, 0, rank, &made) != DDL_OK)
            exit(5);
        reduce("part", gpu_memory_alloc, i, made);
    }
}

/* The same for each rank alone. */
static void parts_alone(void)
{
    const int own = rank;
    rank = 0; /* of each part */
    for (int i = 0; i < PARTS; i++) {
        ddl_comm *made = NULL;
        if (ddl_comm_split(world, own, 0, &made) != DDL_OK)
            exit(5);
        reduce("part", gpu_memory_alloc, i, made);
    }
}

static void *find_in_nccl(const char *name)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    return library != NULL ? dlsym(library, name) : NULL;
}

/* NCCL comes up for the world, and its id is made, for as long as a part goes on with its calls. */
static void beside(void)
{
    union {
        void *object;
        int (*came)(void);
        void (*let_on)(void);
    } symbol;
    if (ddl_comm_split(world, 0, rank, &part) != DDL_OK)
        exit(5);
    call it = make_call(gpu_memory_alloc, 0, nranks);
    ddl_status status = begin(&it, world);
    for (int step = 1; step <= 2 && status == DDL_OK; step++) {
        while ((symbol.object = find_in_nccl("standin_nccl_came")) == NULL)
            nap_us(1000);
        while (symbol.came() < step && (step == 1 || rank == 0)) /* rank 0 makes the id */
            nap_us(1000);
        int sum = 1;
        bool done = true;
        for (int i = 0; i < 3 && status == DDL_OK; i++)
            status = ddl_allreduce(&sum, &sum, 1, DDL_INT32, DDL_SUM, part, NULL);
        if (status == DDL_OK)
            status = ddl_test(&it.request, &done);
        tell("beside", status, !done);
        symbol.object = find_in_nccl("standin_nccl_let_on");
        symbol.let_on();
    }
    if (status == DDL_OK)
        status = ddl_wait(&it.request);
    tell("reduce", status, status == DDL_OK && is_exact(&it));
}

/* ---- groups of the program's own ---- */

static void call_group(const char *name)
{
    union {
        void *object;
        int (*call)(void);
    } symbol = { .object = find_in_nccl(name) };
    if (symbol.object == NULL || symbol.call() != 0)
        exit(5);
}

static atomic_bool group_is_open, group_may_end;

static void *keep_group_open(void *unused)
{
    call_group("ncclGroupStart");
    atomic_store(&group_is_open, true);
    while (!atomic_load(&group_may_end))
        nap_us(1000);
    call_group("ncclGroupEnd");
    return unused;
}

/* Which is a group of sends and receives of ddl's. */
static void exchange(const char *event)
{
    float *out = need(gpu_memory_alloc(sizeof scratch)), *in = need(gpu_memory_alloc(sizeof scratch));
    fill(in, false, (float)rank + 1);
    ddl_status status = ddl_broadcast(in, COUNT, DDL_FLOAT32, 0, world, NULL);
    if (status == DDL_OK)
        status = ddl_alltoall(in, out, COUNT / (size_t)nranks, DDL_FLOAT32, world, NULL);
    memset(scratch, 0, sizeof scratch);
    bool exact = gpu_memory_read(scratch, out, sizeof scratch);
    for (size_t i = 0; i < COUNT / (size_t)nranks * (size_t)nranks; i++)
        exact = exact && scratch[i] == 1;
    tell(event, status, exact);
}

/* That of another thread, which calls nothing of ddl's meanwhile; and one that has ended. */
static void group_beside(void)
{
    pthread_t other;
    reduce("first", gpu_memory_alloc, 0, world);
    if (pthread_create(&other, NULL, keep_group_open, NULL) != 0)
        exit(6);
    while (!atomic_load(&group_is_open))
        nap_us(1000);
    reduce("beside", gpu_memory_alloc, 1, world);
    exchange("exchange");
    atomic_store(&group_may_end, true);
    pthread_join(other, NULL);
    call_group("ncclGroupStart");
    call_group("ncclGroupEnd");
    reduce("after", gpu_memory_alloc, 2, world);
}

/* What include/ddl/cuda.h forbids, and says what comes of it. */
static void group_around(void)
{
    reduce("first", gpu_memory_alloc, 0, world);
    call it = make_call(gpu_memory_alloc, 1, nranks);
    fill(it.out, false, 7);
    call_group("ncclGroupStart");
    ddl_status status = ddl_allreduce(it.in, it.out, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL);
    tell("inside", status, holds(it.out, false, 7));
    call_group("ncclGroupEnd");
    while (!is_exact(&it))
        nap_us(1000);
    tell("ended", DDL_OK, true);
}

static void managed(void)
{
    reduce("managed", gpu_memory_alloc_managed, 0, world);
}

static void wait_at_door(void *is_open)
{
    while (!atomic_load((atomic_bool *)is_open))
        nap_us(1000);
}

static void *make_stream(void)
{
    return need(gpu_stream_open() && gpu_stream_load_kernels() ? gpu_stream_create() : NULL);
}

/* Two calls, with kernels before, between and after them, and one that is waited for; no stream has come to
 * them when they have been begun. */
static void streams(void)
{
    atomic_bool is_open = false;
    call it = make_call(gpu_memory_alloc, 0, nranks), other = make_call(gpu_memory_alloc, 1, nranks);
    void *stream = make_stream();
    bool good = gpu_stream_call(stream, wait_at_door, &is_open) && gpu_stream_add(stream, it.in, COUNT, 2);
    ddl_status status = ddl_stream_begin(world, stream);
    if (status == DDL_OK)
        status = ddl_allreduce(it.in, it.out, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL);
    good = good && gpu_stream_add(stream, it.out, COUNT, 3);
    if (status == DDL_OK)
        status = ddl_allreduce(it.out, it.out, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL);
    if (status == DDL_OK)
        status = ddl_stream_end(world);
    good = good && gpu_stream_add(stream, it.out, COUNT, 5) && !gpu_stream_is_idle(stream);
    tell("begun", status, good);
    atomic_store(&is_open, true);
    if (status == DDL_OK)
        status = ddl_allreduce(other.in, other.out, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL);
    tell("behind", status, is_exact(&other));
    good = gpu_stream_wait(stream);
    const float n = (float)nranks;
    tell("streams", DDL_OK, good && holds(it.out, false, n * (it.sum + 2 * n + 3) + 5));
    gpu_stream_destroy(stream);
}

static atomic_int nmade;

static void hear_of_nccl(void *unused, const char *line)
{
    (void)unused;
    if (strstr(line, "calls on buffers of GPUs go to NCCL") != NULL)
        atomic_fetch_add(&nmade, 1);
}

/* While a stream waits for an operation of a part, a call in the world goes by hosts, and the next one does
 * not. */
static void stream_beside(void)
{
    atomic_bool is_open = false;
    ddl_set_log(hear_of_nccl, NULL);
    if (ddl_comm_split(world, 0, rank, &part) != DDL_OK)
        exit(5);
    call it = make_call(gpu_memory_alloc, 0, nranks), other = make_call(gpu_memory_alloc, 1, nranks);
    void *stream = make_stream();
    bool good = gpu_stream_call(stream, wait_at_door, &is_open) && ddl_stream_begin(part, stream) == DDL_OK;
    ddl_status status = ddl_allreduce(it.in, it.out, COUNT, DDL_FLOAT32, DDL_SUM, part, NULL);
    if (status == DDL_OK)
        status = ddl_allreduce(other.in, other.out, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL);
    tell("by hosts", status, good && is_exact(&other) && atomic_load(&nmade) == 0);
    atomic_store(&is_open, true);
    good = gpu_stream_wait(stream);
    tell("in the stream", ddl_stream_end(part), good && is_exact(&it));
    reduce("by NCCL", gpu_memory_alloc, 2, world);
    tell("made", DDL_OK, atomic_load(&nmade) == 1);
    gpu_stream_destroy(stream);
    (void)ddl_comm_free(&part);
}

/* That of the last rank does not come to the call. */
static void stuck_stream(void)
{
    atomic_bool is_open = rank < nranks - 1;
    reduce("first", gpu_memory_alloc, 0, world);
    call it = make_call(gpu_memory_alloc, 0, nranks);
    void *stream = make_stream();
    bool good = gpu_stream_call(stream, wait_at_door, &is_open) && ddl_stream_begin(world, stream) == DDL_OK;
    ddl_status status = begin(&it, world);
    if (status == DDL_OK)
        status = ddl_wait(&it.request);
    tell("stuck", status, good);
    tell("kept", DDL_OK, rank < nranks - 1 || !gpu_stream_is_idle(stream)); /* by what is before it */
    atomic_store(&is_open, true);
    tell("goes on", DDL_OK, gpu_stream_wait(stream));
    gpu_stream_destroy(stream);
}

/* What the call has left is this program's again, once it has failed. */
static void fail(void)
{
    reduce("first", gpu_memory_alloc, 0, world);
    call it = make_call(gpu_memory_alloc, 0, nranks);
    ddl_status status = ddl_allreduce(it.in, it.out, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL);
    fill(it.out, false, 7);
    tell("failed", status, true);
    (void)ddl_comm_free(&world); /* waits for what NCCL still does */
    tell("kept", DDL_OK, holds(it.out, false, 7));
}

static void *end(void *unused)
{
    nap_us(300 * 1000);
    (void)ddl_comm_abort(world, "enough");
    return unused;
}

/* By another thread, while the call waits for NCCL. */
static void aborted(void)
{
    pthread_t other;
    call it = make_call(gpu_memory_alloc, 0, nranks);
    if (pthread_create(&other, NULL, end, NULL) != 0)
        exit(6);
    tell("began", DDL_OK, true);
    ddl_status status = ddl_allreduce(it.in, it.out, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL);
    tell("aborted", status, true);
    pthread_join(other, NULL);
}

/* A call in NCCL, while a stream of rank 0 waits for another one behind it, which nobody else makes. */
static void aborted_before_a_stream(void)
{
    pthread_t other;
    reduce("first", gpu_memory_alloc, 0, world);
    call it = make_call(gpu_memory_alloc, 0, nranks), behind = make_call(gpu_memory_alloc, 1, nranks);
    void *stream = make_stream();
    const bool has_stream = rank == 0;
    ddl_status status = begin(&it, world);
    if (status == DDL_OK && has_stream)
        status = ddl_stream_begin(world, stream);
    if (status == DDL_OK && has_stream)
        status = ddl_allreduce(behind.in, behind.out, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL);
    if (pthread_create(&other, NULL, end, NULL) != 0)
        exit(6);
    tell("began", status, gpu_stream_is_idle(stream) != has_stream);
    if (has_stream && gpu_stream_wait(stream))
        tell("behind", ddl_stream_end(world), true);
    tell("aborted", ddl_wait(&it.request), true);
    pthread_join(other, NULL);
}

static const struct {
    const char *name;
    void (*run)(void);
} rows[] = { { "many", many },
             { "mixed", mixed },
             { "again", again },
             { "shrink", shrink },
             { "leave-inside", leave_inside },
             { "leave-after", leave_after },
             { "capture-before-nccl", capture_before_nccl },
             { "capture-behind-nccl", capture_behind_nccl },
             { "exit-inside", exit_inside },
             { "exit-alone", exit_alone },
             { "end-inside", exit_inside },
             { "end-alone", exit_alone },
             { "end-behind-the-driver", exit_inside },
             { "exit-before-a-call", exit_before_a_call },
             { "part-with-the-dead", part_with_the_dead },
             { "free-early", free_early },
             { "idle-with-the-dead", idle_with_the_dead },
             { "apart", apart },
             { "two", two },
             { "parts", parts },
             { "parts-alone", parts_alone },
             { "beside", beside },
             { "group-beside", group_beside },
             { "group-around", group_around },
             { "managed", managed },
             { "streams", streams },
             { "stream-beside", stream_beside },
             { "stuck-stream", stuck_stream },
             { "fail", fail },
             { "aborted", aborted },
             { "aborted-before-a-stream", aborted_before_a_stream } };

/* The lowest that it may use, as the others do. */
static bool stay_on_one_cpu(void)
{
    cpu_set_t all, one;
    int first = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return false;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strncmp(argv[2], "exit-", 5) == 0 && atexit(wait_for_gpu) != 0)
        return 6;
    if (argc == 3 && strncmp(argv[2], "end-", 4) == 0 && atexit(stay_a_while) != 0)
        return 6;
    if (argc > 1)
        gpu_memory_expect(argv[1]);
    /* Whose handler is registered first is called last. */
    if (argc == 3 && (strcmp(argv[2], "end-inside") == 0 || strcmp(argv[2], "end-alone") == 0) &&
        !gpu_memory_open(argv[1]))
        return 2;
    if (argc == 3 && strcmp(argv[2], "again") == 0 && !stay_on_one_cpu())
        return 7;
    ddl_status status = ddl_init(&world, NULL);
    tell("init", status, true);
    if (status != DDL_OK || argc != 3 || !gpu_memory_open(argv[1]))
        return 2;
    rank = ddl_rank(world);
    nranks = ddl_size(world);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, argv[2]) == 0)
            rows[i].run();
    if (world != NULL)
        tell("free", ddl_comm_free(&world), true);
    return 0;
}
