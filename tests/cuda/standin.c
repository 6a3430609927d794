/*
 * standin - a CUDA driver without a GPU, for tests: copies run on threads of their own, and may be slow or
 * fail.
 *
 * Device memory is addresses that nobody may touch, with the bytes elsewhere; so whoever reads or writes it
 * by itself dies at once. Each stream is a thread that works off its queue, so what is not ordered is not in
 * order.
 *
 * DDL_TEST_STANDIN, and DDL_TEST_STANDIN_<RANK> for one rank, say how it behaves, with commas between words.
 *     gpus=2     so many GPUs (1)
 *     delay=300  each operation of a stream takes up to so many microseconds more
 *     fail=5     the fifth asynchronous copy of the process is refused
 *     break=5    the fifth one fails while it runs, and everything after it
 *     answers=34 whoever asks where memory is gets this error
 *     hang=5     the fifth one does not end, nor does what comes after it in its stream
 *     hangs=5    nor do the fifth one and all after it
 *     refuse=cuEventRecord:5  the fifth call of that function is refused: this one, or, for want of memory,
 *                cuMemHostAlloc, cuStreamCreateWithPriority or cuEventCreate
 *     all=1      all other memory counts as that of GPU 0, from the start: a program for hosts tests copies
 *                so
 *     copies=1   a process in which nothing was copied fails when it ends
 *     functions=1  streams cannot wait for memory, only in functions of the host
 *     lazy=1     who loads a kernel waits until all streams are done, and has who calls the driver wait too
 *     gone=1     it goes when the process ends, takes pinned memory along, and says so to who calls it then
 *     pinning=1  who allocates pinned memory waits until all streams are done
 *     init=803   initialising it gives this error
 *     killed=6   initialising it ends the process by this signal
 *     stuck=1    initialising it says so on stderr, and does not return
 *
 * CUDA_VISIBLE_DEVICES leaves so many of the GPUs as it lists.
 */
#include "standin.h"
#include "../support/now.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GPUS_AT_MOST = 8, DEPTH = 16, PAGE_BYTES = 4096 };

typedef enum memory_kind { DEVICE, MANAGED, PINNED } memory_kind;

struct memory {
    struct memory *next;
    memory_kind kind;
    int gpu;
    char *address, *bytes; /* as the program sees it; where they are */
    size_t count;
};

struct CUctx_st {
    int gpu;
};

struct CUevent_st {
    struct CUevent_st *next; /* so that those of a GPU that was given up are not taken for lost */
    unsigned long recorded, done;
};

typedef enum work_kind { COPY, FILL, ADD, RECORD, AWAIT, WATCH, CALL, RUN } work_kind;

struct work {
    struct work *next;
    work_kind kind;
    char *to;
    const char *from;
    size_t count;
    unsigned value;
    float summand; /* of ADD, to so many floats */
    CUevent event;
    unsigned long number;
    const uint32_t *word; /* of WATCH, until it is number or beyond */
    CUhostFn function;
    void *arg;
    bool hangs, breaks;
    bool (*run)(void *arg); /* whether it broke */
};

struct CUstream_st {
    struct CUstream_st *next;
    struct work *first, **end;
    bool working, stopping, captured, captured_globally, is_blocking;
    int gpu;
    unsigned seed;
    pthread_t thread;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_set_up, broken;
    _Atomic(bool) has_gone; /* with the end of the process */
    int gpus, delay_us;
    long copies, fail, break_, hang, hangs, answers, all, functions, lazy, pinning, gone, init, killed, stuck,
        must_copy;
    bool is_loading;  /* lazily */
    char refused[40]; /* this function, in this call of those so far */
    long refuse, ncalls;
    struct CUctx_st contexts[GPUS_AT_MOST];
    CUstream defaults[GPUS_AT_MOST];
    struct memory *memories;
    struct CUstream_st *streams;
    struct CUevent_st *events;
    unsigned long created; /* what no call may make once it is warm */
    int captures;          /* of streams, in the global mode */
    bool is_spoilt;        /* one of them, by what another thread has called */
} driver = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .gpus = 1 };

static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;

/* ---- how it behaves ---- */

static void read_words(const char *words)
{
    struct {
        const char *name;
        long *value;
    } known[] = {
        { "fail=", &driver.fail },       { "break=", &driver.break_ },        { "hang=", &driver.hang },
        { "answers=", &driver.answers }, { "functions=", &driver.functions }, { "init=", &driver.init },
        { "killed=", &driver.killed },   { "stuck=", &driver.stuck },         { "all=", &driver.all },
        { "lazy=", &driver.lazy },       { "copies=", &driver.must_copy },    { "pinning=", &driver.pinning },
        { "gone=", &driver.gone },       { "hangs=", &driver.hangs }
    };
    for (const char *word = words; word != NULL;
         word = strchr(word, ',') != NULL ? strchr(word, ',') + 1 : NULL) {
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strncmp(word, known[i].name, strlen(known[i].name)) == 0)
                *known[i].value = atol(word + strlen(known[i].name));
        if (strncmp(word, "gpus=", 5) == 0)
            driver.gpus = atoi(word + 5) < GPUS_AT_MOST ? atoi(word + 5) : GPUS_AT_MOST;
        if (strncmp(word, "delay=", 6) == 0)
            driver.delay_us = atoi(word + 6);
        if (strncmp(word, "refuse=", 7) == 0 &&
            sscanf(word + 7, "%39[^:]:%ld", driver.refused, &driver.refuse) != 2)
            abort();
    }
}

/* A list of numbers, which ends before what is none. */
static int count_visible(const char *list)
{
    int count = 0;
    while (*list >= '0' && *list <= '9') {
        count++;
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return count;
}

static void set_up(void)
{
    char variable[64] = "";
    const char *rank = getenv("RANK");
    if (driver.is_set_up)
        return;
    driver.is_set_up = true;
    read_words(getenv("DDL_TEST_STANDIN"));
    if (rank != NULL)
        snprintf(variable, sizeof variable, "DDL_TEST_STANDIN_%.20s", rank);
    read_words(rank != NULL ? getenv(variable) : NULL);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL && count_visible(visible) < driver.gpus)
        driver.gpus = count_visible(visible);
    for (int i = 0; i < GPUS_AT_MOST; i++)
        driver.contexts[i].gpu = i;
}

/* Nobody initialises it in a program that knows no GPUs. */
__attribute__((constructor)) static void set_up_for_all(void)
{
    const char *words = getenv("DDL_TEST_STANDIN");
    if (words != NULL && strstr(words, "all=1") != NULL)
        set_up();
}

__attribute__((destructor)) static void look_for_copies(void)
{
    if (driver.must_copy != 0 && driver.copies == 0) {
        fputs("standin: nothing was copied\n", stderr);
        _exit(1);
    }
}

static CUresult lock(bool needs_context)
{
    pthread_mutex_lock(&driver.lock);
    while (driver.is_loading)
        pthread_cond_wait(&driver.changed, &driver.lock);
    if (!driver.is_set_up)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (driver.has_gone)
        return CUDA_ERROR_DEINITIALIZED;
    if (driver.broken)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    return needs_context && (depth == 0 || stack[depth - 1] == NULL) ? CUDA_ERROR_INVALID_CONTEXT
                                                                     : CUDA_SUCCESS;
}

static CUresult unlock(CUresult result)
{
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* Locks; on failure returns from the calling function. */
#define ENTER(needs_context)                    \
    do {                                        \
        CUresult entered = lock(needs_context); \
        if (entered != CUDA_SUCCESS)            \
            return unlock(entered);             \
    } while (0)

/* Whether what is called may not be, as some thread captures a stream, and this one is not to be let alone
 * with that: the capture is spoilt then. With the lock. */
static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static bool spoils_a_capture(void)
{
    const bool spoils = driver.captures > 0 && capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    driver.is_spoilt = driver.is_spoilt || spoils;
    return spoils;
}

#define ENTER_UNSAFE(needs_context)                               \
    do {                                                          \
        ENTER(needs_context);                                     \
        if (spoils_a_capture())                                   \
            return unlock(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); \
    } while (0)

/* Of copies. */
static bool does_hang(long number)
{
    return number == driver.hang || (driver.hangs > 0 && number >= driver.hangs);
}

/* With the lock. */
static bool is_refused(const char *function)
{
    return strcmp(function, driver.refused) == 0 && ++driver.ncalls == driver.refuse;
}

/* For tests. */
unsigned long standin_created(void);
unsigned long standin_created(void)
{
    pthread_mutex_lock(&driver.lock);
    unsigned long created = driver.created;
    pthread_mutex_unlock(&driver.lock);
    return created;
}

unsigned long standin_alive(void);
unsigned long standin_alive(void)
{
    unsigned long alive = 0;
    pthread_mutex_lock(&driver.lock);
    for (const struct CUstream_st *stream = driver.streams; stream != NULL; stream = stream->next)
        alive++;
    for (const struct CUevent_st *event = driver.events; event != NULL; event = event->next)
        alive++;
    pthread_mutex_unlock(&driver.lock);
    return alive;
}

/* ---- initialisation, contexts, errors ---- */

static void go(void)
{
    pthread_mutex_lock(&driver.lock);
    driver.broken = driver.has_gone = true;
    for (const struct memory *memory = driver.memories; memory != NULL; memory = memory->next)
        if (memory->kind == PINNED)
            munmap(memory->bytes, memory->count);
    pthread_mutex_unlock(&driver.lock);
}

CUresult CUDAAPI cuInit(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&driver.lock);
    set_up();
    if (driver.gone == 1 && atexit(go) == 0)
        driver.gone++;
    if (driver.killed != 0)
        raise((int)driver.killed);
    if (driver.stuck != 0) {
        fputs("standin: stuck\n", stderr);
        for (;;)
            pause();
    }
    if (driver.init != 0)
        return unlock((CUresult)driver.init);
    return unlock(driver.gpus > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    ENTER(false);
    *count = driver.gpus;
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(false);
    if (ordinal < 0 || ordinal >= driver.gpus)
        return unlock(CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return unlock(CUDA_SUCCESS);
}

#ifndef STANDIN_IS_OLD
/* GPUs of one number are one GPU, whichever process asks. */
CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    ENTER(false);
    memset(uuid, 0, sizeof *uuid);
    snprintf(uuid->bytes, sizeof uuid->bytes, "stand-in %d", device);
    return unlock(CUDA_SUCCESS);
}
#endif

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(false);
    *context = &driver.contexts[device];
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context)
{
    if (driver.has_gone)
        return CUDA_ERROR_DEINITIALIZED;
    if (depth == DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *context)
{
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    if (depth == 0)
        return cuCtxPushCurrent(context);
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    ENTER(true);
    *device = stack[depth - 1]->gpu;
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_STANDIN";
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text)
{
    (void)error;
    *text = "the stand-in was told to fail";
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

static char *map(size_t bytes, int protection)
{
    void *memory = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static CUresult allocate(memory_kind kind, size_t bytes, char **address)
{
    struct memory *new = bytes > 0 ? calloc(1, sizeof *new) : NULL;
    if (new == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    new->kind = kind;
    new->gpu = stack[depth - 1]->gpu;
    new->count = (bytes + PAGE_BYTES - 1) / PAGE_BYTES *PAGE_BYTES;
    new->bytes = map(new->count, PROT_READ | PROT_WRITE);
    new->address = kind == DEVICE ? map(new->count, PROT_NONE) : new->bytes;
    if (new->bytes == NULL || new->address == NULL)
        abort();
    new->next = driver.memories;
    driver.memories = new;
    *address = new->address;
    return CUDA_SUCCESS;
}

static bool is_idle(void)
{
    for (const struct CUstream_st *stream = driver.streams; stream != NULL; stream = stream->next)
        if (stream->first != NULL || stream->working)
            return false;
    return true;
}

/* As the real one, it waits for everything that is under way. */
static CUresult release(const void *address)
{
    while (!is_idle() && driver.hang == 0 && driver.hangs == 0)
        pthread_cond_wait(&driver.changed, &driver.lock);
    for (struct memory **place = &driver.memories; *place != NULL; place = &(*place)->next)
        if ((*place)->address == address) {
            struct memory *old = *place;
            *place = old->next;
            munmap(old->bytes, old->count);
            if (old->kind == DEVICE)
                munmap(old->address, old->count);
            free(old);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static const struct memory *find(uintptr_t address)
{
    for (const struct memory *memory = driver.memories; memory != NULL; memory = memory->next)
        if (address >= (uintptr_t)memory->address && address < (uintptr_t)memory->address + memory->count)
            return memory;
    return NULL;
}

/* Where these bytes are; NULL: they go beyond what was allocated. */
static char *bytes_of(uintptr_t address, size_t count)
{
    const struct memory *memory = find(address);
    if (memory == NULL)
        return (char *)address;
    size_t offset = address - (uintptr_t)memory->address;
    return count <= memory->count - offset ? memory->bytes + offset : NULL;
}

char *standin_bytes(const void *address, size_t count)
{
    pthread_mutex_lock(&driver.lock);
    char *bytes = bytes_of((uintptr_t)address, count);
    pthread_mutex_unlock(&driver.lock);
    return bytes;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    char *address = NULL;
    ENTER(true);
    CUresult result = allocate(DEVICE, bytes, &address);
    *pointer = (CUdeviceptr)(uintptr_t)address;
    return unlock(result);
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    char *address = NULL;
    (void)flags;
    ENTER(true);
    CUresult result = allocate(MANAGED, bytes, &address);
    *pointer = (CUdeviceptr)(uintptr_t)address;
    return unlock(result);
}

CUresult CUDAAPI cuMemFree(CUdeviceptr pointer)
{
    ENTER(true);
    return unlock(release((void *)(uintptr_t)pointer));
}

CUresult CUDAAPI cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    char *address = NULL;
    (void)flags;
    ENTER_UNSAFE(true);
    if (is_refused(__func__))
        return unlock(CUDA_ERROR_OUT_OF_MEMORY);
    while (driver.pinning != 0 && !is_idle())
        pthread_cond_wait(&driver.changed, &driver.lock);
    driver.created++;
    CUresult result = allocate(PINNED, bytes, &address);
    *memory = address;
    return unlock(result);
}

CUresult CUDAAPI cuMemFreeHost(void *memory)
{
    ENTER(true);
    return unlock(release(memory));
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *pointer, void *memory, unsigned flags)
{
    (void)flags;
    *pointer = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                        CUdeviceptr pointer)
{
    ENTER(false);
    const struct memory *memory = find((uintptr_t)pointer);
    if (driver.answers != 0)
        return unlock((CUresult)driver.answers);
    for (unsigned i = 0; i < count; i++)
        switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *)data[i] = memory == NULL && driver.all != 0 ? (unsigned)CU_MEMORYTYPE_DEVICE
                                   : memory == NULL                  ? 0
                                   : memory->kind == PINNED          ? (unsigned)CU_MEMORYTYPE_HOST
                                                                     : (unsigned)CU_MEMORYTYPE_DEVICE;
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            *(unsigned *)data[i] = memory != NULL && memory->kind == MANAGED;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)data[i] = memory != NULL ? memory->gpu : driver.all != 0 ? 0 : -2;
            break;
        default:
            return unlock(CUDA_ERROR_INVALID_VALUE);
        }
    return unlock(CUDA_SUCCESS);
}

/* ---- streams ---- */

/* Without the lock, but for the waiting. */
static void perform(struct work *work)
{
    switch (work->kind) {
    case COPY:
        memmove(work->to, work->from, work->count);
        break;
    case FILL:
        for (size_t i = 0; i < work->count; i += sizeof work->value)
            memcpy(work->to + i, &work->value, sizeof work->value);
        break;
    case ADD:
        for (size_t i = 0; i < work->count; i++)
            ((float *)(void *)work->to)[i] += work->summand;
        break;
    case CALL:
        work->function(work->arg);
        break;
    case RUN:
        work->breaks = work->run(work->arg);
        break;
    case RECORD:
    case AWAIT:
    case WATCH:
        break;
    }
}

/* The processor writes the word whenever it likes, and tells nobody. */
static void watch(const struct CUstream_st *stream, const struct work *work)
{
    while (!stream->stopping && !driver.broken && /* first: then there may be no word */
           (int32_t)(__atomic_load_n(work->word, __ATOMIC_ACQUIRE) - (uint32_t)work->number) < 0) {
        pthread_mutex_unlock(&driver.lock);
        nap_us(20);
        pthread_mutex_lock(&driver.lock);
    }
}

static void work_off(struct CUstream_st *stream, struct work *work)
{
    while (work->kind == AWAIT && work->event->done < work->number && !driver.broken)
        pthread_cond_wait(&driver.changed, &driver.lock);
    if (work->kind == WATCH)
        watch(stream, work);
    while (work->hangs && !stream->stopping)
        pthread_cond_wait(&driver.changed, &driver.lock);
    driver.broken = driver.broken || work->breaks;
    pthread_mutex_unlock(&driver.lock);
    if (driver.delay_us > 0)
        nap_us(rand_r(&stream->seed) % driver.delay_us);
    if (!work->hangs && !work->breaks)
        perform(work);
    pthread_mutex_lock(&driver.lock);
    driver.broken = driver.broken || work->breaks;
    if (work->kind == RECORD)
        work->event->done = work->number;
}

static void *run_stream(void *arg)
{
    struct CUstream_st *stream = arg;
    pthread_mutex_lock(&driver.lock);
    for (;;) {
        struct work *work = stream->first;
        if (work != NULL) {
            stream->working = true;
            work_off(stream, work);
            stream->first = work->next;
            if (stream->first == NULL)
                stream->end = &stream->first;
            free(work);
            stream->working = false;
            pthread_cond_broadcast(&driver.changed);
        } else if (stream->stopping) {
            break;
        } else {
            pthread_cond_wait(&driver.changed, &driver.lock);
        }
    }
    pthread_mutex_unlock(&driver.lock);
    return NULL;
}

static CUstream make_stream(void)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        abort();
    driver.created++;
    stream->end = &stream->first;
    stream->gpu = stack[depth - 1]->gpu;
    stream->seed = (unsigned)driver.created;
    stream->next = driver.streams;
    driver.streams = stream;
    if (pthread_create(&stream->thread, NULL, run_stream, stream) != 0)
        abort();
    return stream;
}

/* NULL is the context's default stream. */
static CUstream stream_of(CUstream stream)
{
    CUstream *of_context = &driver.defaults[stack[depth - 1]->gpu];
    if (stream == NULL && *of_context == NULL)
        *of_context = make_stream();
    return stream != NULL ? stream : *of_context;
}

static CUresult append(CUstream stream, struct work what)
{
    struct work *work = malloc(sizeof *work);
    if (work == NULL)
        abort();
    stream = stream_of(stream);
    if (stream->captured) { /* a graph would have it */
        free(work);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    *work = what;
    *stream->end = work;
    stream->end = &work->next;
    pthread_cond_broadcast(&driver.changed);
    return CUDA_SUCCESS;
}

CUresult standin_run(CUstream stream, bool (*run)(void *arg), void *arg)
{
    ENTER(true);
    return unlock(append(stream, (struct work){ .kind = RUN, .run = run, .arg = arg }));
}

CUresult CUDAAPI cuStreamCreate(CUstream *out, unsigned flags)
{
    ENTER_UNSAFE(true);
    *out = make_stream();
    (*out)->is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0; /* though it waits for no other here */
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    (void)flags;
    (void)priority;
    ENTER_UNSAFE(true);
    if (is_refused(__func__))
        return unlock(CUDA_ERROR_OUT_OF_MEMORY);
    *out = make_stream();
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    ENTER(false);
    *context = &driver.contexts[stream->gpu];
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    ENTER(true);
    stream->captured = true;
    stream->captured_globally = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    driver.captures += stream->captured_globally;
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    ENTER(true);
    const bool is_spoilt = stream->captured_globally && driver.is_spoilt;
    driver.captures -= stream->captured_globally;
    driver.is_spoilt = driver.is_spoilt && driver.captures > 0;
    stream->captured = stream->captured_globally = false;
    *graph = NULL;
    return unlock(is_spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    const CUstreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* Which keeps the default stream of its context from use. */
static bool is_one_captured_that_blocks(int gpu)
{
    for (const struct CUstream_st *stream = driver.streams; stream != NULL; stream = stream->next)
        if (stream->gpu == gpu && stream->captured && stream->is_blocking)
            return true;
    return false;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    ENTER(true);
    if (stream == NULL && is_one_captured_that_blocks(stack[depth - 1]->gpu))
        return unlock(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    bool captured = stream_of(stream)->captured;
    *status = captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags)
{
    ENTER(true);
    if (driver.functions != 0)
        return unlock(CUDA_ERROR_NOT_SUPPORTED);
    const struct memory *memory = find((uintptr_t)word);
    if (flags != CU_STREAM_WAIT_VALUE_GEQ || memory == NULL || memory->kind != PINNED)
        return unlock(CUDA_ERROR_INVALID_VALUE);
    return unlock(append(
        stream, (struct work){ .kind = WATCH, .word = (const uint32_t *)(uintptr_t)word, .number = value }));
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void *arg)
{
    ENTER(true);
    return unlock(append(stream, (struct work){ .kind = CALL, .function = function, .arg = arg }));
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
    pthread_mutex_lock(&driver.lock);
    for (struct CUstream_st **place = &driver.streams; *place != NULL; place = &(*place)->next)
        if (*place == stream) {
            *place = stream->next;
            break;
        }
    stream->stopping = true;
    pthread_cond_broadcast(&driver.changed);
    pthread_mutex_unlock(&driver.lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamQuery(CUstream stream)
{
    ENTER_UNSAFE(true);
    stream = stream_of(stream);
    return unlock(stream->first != NULL || stream->working ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream)
{
    ENTER_UNSAFE(true);
    stream = stream_of(stream);
    while ((stream->first != NULL || stream->working) && !driver.broken)
        pthread_cond_wait(&driver.changed, &driver.lock);
    return unlock(driver.broken ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
    ENTER(true);
    for (struct CUstream_st *stream = driver.streams; stream != NULL && !driver.broken;)
        if (stream->first == NULL && !stream->working) {
            stream = stream->next;
        } else {
            pthread_cond_wait(&driver.changed, &driver.lock);
            stream = driver.streams;
        }
    return unlock(driver.broken ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS);
}

/* ---- events ---- */

CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    ENTER(true);
    if (is_refused(__func__))
        return unlock(CUDA_ERROR_OUT_OF_MEMORY);
    driver.created++;
    *event = calloc(1, sizeof **event);
    if (*event == NULL)
        abort();
    (*event)->next = driver.events;
    driver.events = *event;
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventDestroy(CUevent event)
{
    pthread_mutex_lock(&driver.lock);
    for (struct CUevent_st **place = &driver.events; *place != NULL; place = &(*place)->next)
        if (*place == event) {
            *place = event->next;
            break;
        }
    free(event);
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
    ENTER(true);
    if (is_refused(__func__))
        return unlock(CUDA_ERROR_INVALID_HANDLE);
    return unlock(
        append(stream, (struct work){ .kind = RECORD, .event = event, .number = ++event->recorded }));
}

CUresult CUDAAPI cuEventQuery(CUevent event)
{
    ENTER_UNSAFE(true);
    return unlock(event->done == event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    ENTER(true);
    return unlock(append(stream, (struct work){ .kind = AWAIT, .event = event, .number = event->recorded }));
}

/* ---- copies ---- */

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t count, CUstream stream)
{
    ENTER(true);
    char *target = bytes_of((uintptr_t)to, count), *source = bytes_of((uintptr_t)from, count);
    long number = ++driver.copies;
    if (target == NULL || source == NULL)
        return unlock(CUDA_ERROR_INVALID_VALUE);
    if (number == driver.fail)
        return unlock(CUDA_ERROR_ILLEGAL_ADDRESS);
    return unlock(append(stream, (struct work){ .kind = COPY,
                                                .to = target,
                                                .from = source,
                                                .count = count,
                                                .hangs = does_hang(number),
                                                .breaks = number == driver.break_ }));
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    ENTER(true);
    char *target = bytes_of((uintptr_t)to, count * sizeof value);
    if (target == NULL)
        return unlock(CUDA_ERROR_INVALID_VALUE);
    return unlock(append(
        stream, (struct work){ .kind = FILL, .to = target, .count = count * sizeof value, .value = value }));
}

/* ---- kernels ---- */

/* It knows one, by its name: that of tests/conformance/gpu_stream.c. */
static const char kernel_name[] = "add_to";

struct CUmod_st {
    const char *image;
};

struct CUfunc_st {
    CUmodule module;
};

static struct CUmod_st only_module;
static struct CUfunc_st only_kernel = { &only_module };

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER(true);
    driver.is_loading = driver.lazy != 0;
    while (driver.is_loading && !is_idle())
        pthread_cond_wait(&driver.changed, &driver.lock);
    driver.is_loading = false;
    pthread_cond_broadcast(&driver.changed);
    if (strncmp(image, ".version", 8) != 0)
        return unlock(CUDA_ERROR_INVALID_PTX);
    only_module.image = image;
    *module = &only_module;
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *kernel, CUmodule module, const char *name)
{
    ENTER(true);
    if (strcmp(name, kernel_name) != 0 || strstr(module->image, name) == NULL)
        return unlock(CUDA_ERROR_NOT_FOUND);
    *kernel = &only_kernel;
    return unlock(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLaunchKernel(CUfunction kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                CUstream stream, void **parameters, void **extra)
{
    unsigned long long at, count;
    float summand;
    ENTER(true);
    if (kernel != &only_kernel || grid_y * grid_z * block_y * block_z != 1 || shared_bytes != 0 ||
        extra != NULL)
        return unlock(CUDA_ERROR_INVALID_VALUE);
    memcpy(&at, parameters[0], sizeof at);
    memcpy(&count, parameters[1], sizeof count);
    memcpy(&summand, parameters[2], sizeof summand);
    if (count > (unsigned long long)grid_x * block_x) /* the others have no thread */
        count = (unsigned long long)grid_x * block_x;
    char *bytes = bytes_of((uintptr_t)at, count * sizeof summand);
    if (bytes == NULL)
        return unlock(CUDA_ERROR_INVALID_VALUE);
    return unlock(
        append(stream, (struct work){ .kind = ADD, .to = bytes, .count = count, .summand = summand }));
}

/* ---- copies that are waited for ---- */

/* Whoever calls these has seen to it that nothing else is under way there. */
static CUresult copy_now(uintptr_t to, uintptr_t from, size_t count)
{
    char *target = bytes_of(to, count), *source = bytes_of(from, count);
    if (target == NULL || source == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(target, source, count);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t count)
{
    ENTER(true);
    return unlock(copy_now((uintptr_t)to, (uintptr_t)from, count));
}

CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t count)
{
    ENTER(true);
    return unlock(copy_now((uintptr_t)to, (uintptr_t)from, count));
}
