/*
 * latch.c - a stream of the program waits for a word in pinned memory.
 *
 * cuStreamWaitValue32 waits without a thread, and the processor opens the latch by writing the word. Where
 * the driver has no such wait (before CUDA 11.7), or declines it (some virtual machines), a function of the
 * host that sleeps until then is put into the stream. That works everywhere, but the driver may run all such
 * functions of a process on one thread, one after the other, so that operations in several streams may wait
 * for each other; so it is second choice.
 *
 * Events would not do: a stream waits for an event as it was last recorded, and what ends an operation is no
 * work of the GPU's that could be recorded beforehand.
 *
 * The driver may have every thread that calls it wait until all work of the GPU is done: when it loads a
 * kernel or frees memory, or its queue is full. If that work waits at a latch, those who would open it are
 * kept too, with the lock that they hold. So a thread that never calls the driver, the warden, opens what has
 * not been opened in time, and nobody calls the driver with the lock that it needs.
 */
#include "base/bell.h"
#include "base/bytes.h"
#include "base/thread.h"
#include "cuda/gpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 1024 }; /* of a page */

/*
 * Locks, in the order in which they are taken: that of process.bell, then the open_lock of a latch. One
 * thread at a time has a latch, from create to destroy. Where no lock is named a field is his, or does not
 * change any more.
 */
typedef struct latch {
    ddl_latch base;
    ddl_link made; /* into process.all; with its lock */
    const ddl_driver *driver;
    int gpu;
    CUevent before, behind; /* what the stream has before it; that it has gone on */
    CUdeviceptr place;      /* of word, for the GPU */

    /* How it was shut last. Who has the latch writes it with the lock of process.bell, and reads it without;
     * others read it with that, or, in the stream, before it may be shut again. */
    struct {
        bool ever;
        uint32_t number;
        const void *owner;
        ddl_deadline until; /* when the warden opens it */
    } shut;
    _Atomic(uint32_t) overdue; /* the last number that the warden has opened */

    pthread_mutex_t open_lock; /* of what follows; the words only grow, and are also read without it */
    _Atomic(uint32_t) *word;   /* pinned: the GPU waits until it is shut.number or beyond */
    _Atomic(uint32_t) opened;  /* the same for this process, once the driver may have gone, too */
    pthread_cond_t opened_now; /* for streams that wait in a function of the host */
} latch;

/* What the latches of a process share, with the lock of its bell. They are never destroyed: a stream of the
 * program may not have gone on yet, and the driver frees pinned memory only after everything on the GPU. */
static struct {
    ddl_bell bell;       /* for the warden: there is one to be opened before what it waits for */
    ddl_list all, spare; /* spare: of ddl_latch, which may not have gone on */
    size_t nspare;
    _Atomic(uint32_t) *words; /* pinned, for the latches that come, of all GPUs */
    size_t words_left;
    bool has_warden;
    ddl_deadline next;   /* when it wakes */
    atomic_bool is_over; /* nobody would open them any more; also read without the lock */
} process = {
    .all = { { &process.all.head, &process.all.head } },
    .spare = { { &process.spare.head, &process.spare.head } },
    .next = DDL_DEADLINE_NEVER,
};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_bell(void)
{
    ddl_bell_init(&process.bell);
}

static void lock_process(void)
{
    pthread_once(&once, init_bell);
    ddl_bell_lock(&process.bell);
}

static void unlock_process(void)
{
    ddl_bell_unlock(&process.bell);
}

static latch *own(ddl_latch *base)
{
    return (latch *)base;
}

static bool is_open_to(const latch *l, uint32_t number)
{
    return (int32_t)(atomic_load(&l->opened) - number) >= 0;
}

static bool is_open(const latch *l)
{
    return is_open_to(l, l->shut.number);
}

/* In its context. */
static bool has_gone_on(const latch *l)
{
    if (!l->shut.ever)
        return true;
    return is_open(l) && l->driver->cuEventQuery(l->behind) == CUDA_SUCCESS;
}

/* The driver takes its memory along when it goes, by an exit handler of its own. */
static bool is_there(const latch *l)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char resident;
    return mincore((void *)((uintptr_t)l->word / page_bytes * page_bytes), 1, &resident) == 0 ||
           errno != ENOMEM; /* which is that nothing is mapped there */
}

/* Whoever opens it late, for an earlier number, does not take back what has been opened since. */
static void open_to(latch *l, uint32_t number)
{
    pthread_mutex_lock(&l->open_lock);
    if (!is_open_to(l, number)) {
        atomic_store(&l->opened, number);
        if (!atomic_load(&process.is_over) || is_there(l))
            atomic_store_explicit(l->word, number, memory_order_release); /* pairs with the GPU */
    }
    pthread_cond_broadcast(&l->opened_now);
    pthread_mutex_unlock(&l->open_lock);
}

/* ---- the warden ---- */

/* Opens what is due, and returns when the next one is. */
static ddl_deadline open_due(void)
{
    ddl_deadline next = DDL_DEADLINE_NEVER;
    DDL_LIST_FOR_EACH (link, &process.all) {
        latch *l = DDL_CONTAINER(link, latch, made);
        if (is_open(l))
            continue;
        if (ddl_deadline_passed(l->shut.until)) {
            atomic_store(&l->overdue, l->shut.number); /* first: who finds it open knows why */
            open_to(l, l->shut.number);
        } else if (l->shut.until < next)
            next = l->shut.until;
    }
    return next;
}

static void *keep_watch(void *arg)
{
    lock_process();
    while (!atomic_load(&process.is_over)) {
        process.next = open_due();
        (void)ddl_bell_wait(&process.bell, process.next);
    }
    unlock_process();
    return arg;
}

/* With the lock. */
static ddl_status have_warden(ddl_error *err)
{
    if (!process.has_warden && ddl_thread_start_detached(keep_watch, NULL) != 0)
        return DDL_FAIL(err, DDL_ERESOURCE, "no thread for streams that wait");
    process.has_warden = true;
    return DDL_OK;
}

/* ---- life ---- */

/* From a page, as the driver may wait for streams when it makes another. */
static bool take_word(latch *l)
{
    lock_process();
    const bool has_word = process.words_left > 0;
    if (has_word)
        l->word = &process.words[--process.words_left];
    unlock_process();
    return has_word;
}

/* Of several threads that do so at once the last one's is used up. */
static CUresult make_page(const ddl_device *device)
{
    void *page = NULL;
    CUresult result = ddl_pinned_take(device, WORDS * sizeof *process.words, &page);
    if (result != CUDA_SUCCESS)
        return result;
    lock_process();
    process.words = page;
    process.words_left = WORDS;
    unlock_process();
    return CUDA_SUCCESS;
}

static CUresult make_word(latch *l)
{
    while (!take_word(l)) {
        CUresult result = make_page(l->base.device);
        if (result != CUDA_SUCCESS)
            return result;
    }
    atomic_init(l->word, 0);
    return l->driver->cuMemHostGetDevicePointer(&l->place, (void *)(uintptr_t)l->word, 0);
}

static CUresult make_parts(latch *l)
{
    CUresult result = make_word(l);
    if (result == CUDA_SUCCESS)
        result = l->driver->cuEventCreate(&l->before, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = l->driver->cuEventCreate(&l->behind, CU_EVENT_DISABLE_TIMING);
    return result;
}

/* It could not be made. */
static void unmake(latch *l)
{
    if (l->before != NULL)
        (void)l->driver->cuEventDestroy(l->before);
    if (l->behind != NULL)
        (void)l->driver->cuEventDestroy(l->behind);
    pthread_mutex_destroy(&l->open_lock);
    pthread_cond_destroy(&l->opened_now);
    ddl_free(l);
}

static latch *take_first_spare(int gpu)
{
    latch *found = NULL;
    lock_process();
    DDL_LIST_FOR_EACH (link, &process.spare) {
        latch *l = own(DDL_CONTAINER(link, ddl_latch, link));
        if (found == NULL && l->gpu == gpu)
            found = l;
    }
    if (found != NULL)
        ddl_list_remove(&found->base.link);
    process.nspare -= found != NULL;
    unlock_process();
    return found;
}

static void keep_spare(latch *l)
{
    lock_process();
    ddl_list_append(&process.spare, &l->base.link);
    process.nspare++;
    unlock_process();
}

/* One that has gone on. */
static latch *take_spare(int gpu)
{
    lock_process();
    size_t left = process.nspare;
    unlock_process();
    for (latch *l; left > 0 && (l = take_first_spare(gpu)) != NULL; left--) {
        if (has_gone_on(l))
            return l;
        keep_spare(l);
    }
    return NULL;
}

static ddl_status make(ddl_device *device, latch **out, ddl_error *err)
{
    latch *l = ddl_alloc(sizeof *l);
    if (l == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a latch");
    l->base.device = device;
    l->driver = device->driver;
    l->gpu = device->gpu;
    pthread_mutex_init(&l->open_lock, NULL);
    pthread_cond_init(&l->opened_now, NULL);
    CUresult result = make_parts(l);
    if (result != CUDA_SUCCESS) {
        unmake(l);
        return DDL_GPU_FAILED(device, result, "making a latch", err);
    }
    lock_process();
    ddl_status status = have_warden(err);
    if (status == DDL_OK)
        ddl_list_append(&process.all, &l->made);
    unlock_process();
    if (status != DDL_OK)
        unmake(l);
    else
        *out = l;
    return status;
}

ddl_status ddl_latch_create(ddl_device *device, ddl_latch **out, ddl_error *err)
{
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    latch *l = take_spare(device->gpu);
    ddl_status status = l != NULL ? DDL_OK : make(device, &l, err);
    ddl_gpu_leave(device);
    if (status != DDL_OK)
        return status;
    l->base.device = device;
    *out = &l->base;
    return DDL_OK;
}

void ddl_latch_destroy(ddl_latch *base)
{
    if (base->device->lost)
        return;
    base->device = NULL;
    keep_spare(own(base));
}

bool ddl_latch_is_free(ddl_latch *base)
{
    if (ddl_gpu_enter(base->device) != CUDA_SUCCESS)
        return false;
    bool is_free = has_gone_on(own(base));
    ddl_gpu_leave(base->device);
    return is_free;
}

/* ---- shutting ---- */

/* On a thread of the driver, which must not call CUDA. */
static void CUDA_CB sleep_until_open(void *arg)
{
    latch *l = arg;
    pthread_mutex_lock(&l->open_lock);
    while (!is_open(l))
        pthread_cond_wait(&l->opened_now, &l->open_lock);
    pthread_mutex_unlock(&l->open_lock);
}

static CUresult have_it_wait(latch *l, CUstream stream)
{
    const ddl_driver *driver = l->driver;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver->cuStreamWaitValue32 != NULL)
        result = driver->cuStreamWaitValue32(stream, l->place, l->shut.number, CU_STREAM_WAIT_VALUE_GEQ);
    l->base.waits_in_function = result == CUDA_ERROR_NOT_SUPPORTED;
    if (l->base.waits_in_function)
        result = driver->cuLaunchHostFunc(stream, sleep_until_open, l);
    return result;
}

static CUresult shut(latch *l, CUstream stream)
{
    const ddl_driver *driver = l->base.device->driver;
    CUresult result = driver->cuEventRecord(l->before, stream);
    if (result == CUDA_SUCCESS)
        result = have_it_wait(l, stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventRecord(l->behind, stream);
    return result;
}

/* False: the process ends. */
static bool take_number(latch *l, const void *owner, ddl_deadline until)
{
    lock_process();
    bool may = !atomic_load(&process.is_over);
    if (may) {
        l->shut.number++;
        l->shut.ever = true;
        l->shut.owner = owner;
        l->shut.until = until;
        if (until < process.next)
            ddl_bell_ring(&process.bell);
    }
    unlock_process();
    return may;
}

ddl_status ddl_gpu_refuse_captured(const ddl_device *device, void *stream, ddl_error *err)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = device->driver->cuStreamIsCapturing(stream, &capture);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return DDL_FAIL(
            err, DDL_EUNSUPPORTED,
            "CUDA's default stream cannot be used while a stream that waits for it is being captured "
            "into a graph; begin with another stream, or make that one with cudaStreamNonBlocking");
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuStreamIsCapturing", err);
    if (capture != CU_STREAM_CAPTURE_STATUS_NONE)
        return DDL_FAIL(err, DDL_EUNSUPPORTED,
                        "the stream is being captured into a graph, in which operations cannot be");
    return DDL_OK;
}

ddl_status ddl_latch_shut(ddl_latch *base, void *stream, const void *owner, ddl_deadline until,
                          uint32_t *number, ddl_error *err)
{
    latch *l = own(base);
    const ddl_device *device = base->device;
    bool may = true;
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    ddl_status status = ddl_gpu_refuse_captured(device, stream, err);
    if (status == DDL_OK && (may = take_number(l, owner, until)))
        result = shut(l, stream);
    ddl_gpu_leave(device);
    if (status != DDL_OK)
        return status;
    if (!may)
        return DDL_FAIL(err, DDL_EUNSUPPORTED, "the process ends, and operations in streams with it");
    *number = l->shut.number;
    if (result == CUDA_SUCCESS)
        return DDL_OK;
    ddl_latch_open(base, l->shut.number);
    return DDL_GPU_FAILED(device, result, "ordering with a stream", err);
}

/* ---- after that ---- */

ddl_status ddl_latch_look(ddl_latch *base, bool *reached, ddl_error *err)
{
    const ddl_device *device = base->device;
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    result = device->driver->cuEventQuery(own(base)->before);
    ddl_gpu_leave(device);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return DDL_GPU_FAILED(device, result, "the work before it in its stream", err);
    *reached = result == CUDA_SUCCESS;
    return DDL_OK;
}

void ddl_latch_open(ddl_latch *base, uint32_t number)
{
    open_to(own(base), number);
}

ddl_latch_state ddl_latch_look_whether_open(const ddl_latch *base, uint32_t number)
{
    const latch *l = (const latch *)base;
    if (!is_open_to(l, number))
        return DDL_LATCH_SHUT;
    return atomic_load(&l->overdue) == number ? DDL_LATCH_OVERDUE : DDL_LATCH_OPEN;
}

void ddl_latch_open_all(const void *owner)
{
    lock_process();
    if (owner == NULL)
        atomic_store(&process.is_over, true);
    DDL_LIST_FOR_EACH (link, &process.all) {
        latch *l = DDL_CONTAINER(link, latch, made);
        if (owner == NULL || l->shut.owner == owner)
            open_to(l, l->shut.number);
    }
    ddl_bell_ring(&process.bell);
    unlock_process();
}
