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
 */
#include "base/bytes.h"
#include "cuda/gpu.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct latch {
    ddl_latch base;
    CUevent before, behind;  /* what the stream has before it; that it has gone on */
    _Atomic(uint32_t) *word; /* pinned; the GPU waits until it is `number` or beyond, as it only grows */
    CUdeviceptr place;       /* of it, for the GPU */
    uint32_t number;         /* that it was shut with last */
    bool was_shut;
    pthread_mutex_t lock; /* of what follows, for streams that wait in a function of the host */
    pthread_cond_t opened;
} latch;

static latch *own(ddl_latch *base)
{
    return (latch *)base;
}

static bool is_open(const latch *l)
{
    return (int32_t)(atomic_load_explicit(l->word, memory_order_acquire) - l->number) >= 0;
}

/* ---- life ---- */

static CUresult make_word(latch *l)
{
    const ddl_driver *driver = l->base.device->driver;
    void *memory = NULL;
    CUresult result = driver->cuMemHostAlloc(&memory, sizeof *l->word,
                                             CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != CUDA_SUCCESS)
        return result;
    l->word = memory;
    atomic_init(l->word, 0);
    return driver->cuMemHostGetDevicePointer(&l->place, memory, 0);
}

static CUresult make_parts(latch *l)
{
    const ddl_driver *driver = l->base.device->driver;
    CUresult result = ddl_gpu_enter(l->base.device);
    if (result != CUDA_SUCCESS)
        return result;
    result = make_word(l);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventCreate(&l->before, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventCreate(&l->behind, CU_EVENT_DISABLE_TIMING);
    ddl_gpu_leave(l->base.device);
    return result;
}

ddl_status ddl_latch_create(ddl_device *device, ddl_latch **out, ddl_error *err)
{
    latch *l = ddl_alloc(sizeof *l);
    if (l == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a latch");
    l->base.device = device;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->opened, NULL);
    CUresult result = make_parts(l);
    if (result != CUDA_SUCCESS) {
        ddl_latch_destroy(&l->base);
        return DDL_GPU_FAILED(device, result, "making a latch", err);
    }
    *out = &l->base;
    return DDL_OK;
}

static bool has_gone_on(const latch *l)
{
    const ddl_driver *driver = l->base.device->driver;
    if (!l->was_shut)
        return true;
    return is_open(l) && driver->cuEventQuery(l->behind) == CUDA_SUCCESS;
}

void ddl_latch_destroy(ddl_latch *base)
{
    latch *l = own(base);
    const ddl_device *device = base->device;
    if (device->lost || ddl_gpu_enter(device) != CUDA_SUCCESS)
        return;
    bool is_free = has_gone_on(l);
    if (is_free && l->word != NULL)
        (void)device->driver->cuMemFreeHost((void *)(uintptr_t)l->word);
    if (is_free && l->before != NULL)
        (void)device->driver->cuEventDestroy(l->before);
    if (is_free && l->behind != NULL)
        (void)device->driver->cuEventDestroy(l->behind);
    ddl_gpu_leave(device);
    if (!is_free)
        return;
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->opened);
    ddl_free(l);
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
    pthread_mutex_lock(&l->lock);
    while (!is_open(l))
        pthread_cond_wait(&l->opened, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

static CUresult have_it_wait(latch *l, CUstream stream)
{
    const ddl_driver *driver = l->base.device->driver;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver->cuStreamWaitValue32 != NULL)
        result = driver->cuStreamWaitValue32(stream, l->place, l->number, CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
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

ddl_status ddl_latch_shut(ddl_latch *base, void *stream, ddl_error *err)
{
    latch *l = own(base);
    const ddl_device *device = base->device;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    result = device->driver->cuStreamIsCapturing(stream, &capture);
    if (result == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE) {
        l->number++;
        l->was_shut = true;
        result = shut(l, stream);
    }
    ddl_gpu_leave(device);
    if (capture != CU_STREAM_CAPTURE_STATUS_NONE)
        return DDL_FAIL(err, DDL_EUNSUPPORTED,
                        "the stream is being captured into a graph, in which operations cannot be");
    if (result == CUDA_SUCCESS)
        return DDL_OK;
    ddl_latch_open(base);
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

void ddl_latch_open(ddl_latch *base)
{
    latch *l = own(base);
    pthread_mutex_lock(&l->lock);
    atomic_store_explicit(l->word, l->number,
                          memory_order_release); /* pairs with is_open, and with the GPU */
    pthread_cond_broadcast(&l->opened);
    pthread_mutex_unlock(&l->lock);
}
