/* device_cuda.c - device.h over the CUDA driver: two streams of one GPU, events, pinned memory. */
#include "backend/device.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "cuda/driver.h"

#include <time.h>

enum { DRAIN_LOOK_US = 50 };

struct ddl_device {
    const ddl_driver *driver;
    int gpu;
    CUdevice device;
    CUcontext context;   /* the GPU's primary one, which programs share */
    CUstream streams[2]; /* by ddl_direction */
    bool lost;           /* something may be under way for ever */
};

struct ddl_mark {
    CUevent event;
};

/* `return FAILED(device, result, "cuMemcpyAsync", err)` */
#define FAILED(device, result, call, err) \
    ddl_driver_failed((device)->driver, (result), (call), (device)->gpu, (err))

/* Threads take turns, and each has a context of its own, if any. */
static CUresult enter(const ddl_device *device)
{
    return device->driver->cuCtxPushCurrent(device->context);
}

static void leave(const ddl_device *device)
{
    CUcontext own;
    (void)device->driver->cuCtxPopCurrent(&own);
}

/* ---- life ---- */

static void close_device(ddl_device *device)
{
    if (device == NULL)
        return;
    if (device->context != NULL && !device->lost) {
        if (enter(device) == CUDA_SUCCESS) {
            for (int i = 0; i < 2; i++)
                if (device->streams[i] != NULL)
                    (void)device->driver->cuStreamDestroy(device->streams[i]);
            leave(device);
        }
        (void)device->driver->cuDevicePrimaryCtxRelease(device->device);
    }
    ddl_free(device);
}

/* Streams that wait for nobody else's. */
static ddl_status make_streams(ddl_device *device, ddl_error *err)
{
    CUresult result = enter(device);
    if (result != CUDA_SUCCESS)
        return FAILED(device, result, "cuCtxPushCurrent", err);
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++)
        result = device->driver->cuStreamCreate(&device->streams[i], CU_STREAM_NON_BLOCKING);
    leave(device);
    return result == CUDA_SUCCESS ? DDL_OK : FAILED(device, result, "cuStreamCreate", err);
}

static ddl_status find_context(ddl_device *device, ddl_error *err)
{
    CUresult result = device->driver->cuInit(0);
    if (result != CUDA_SUCCESS)
        return FAILED(device, result, "cuInit", err);
    result = device->driver->cuDeviceGet(&device->device, device->gpu);
    if (result != CUDA_SUCCESS)
        return FAILED(device, result, "cuDeviceGet", err);
    result = device->driver->cuDevicePrimaryCtxRetain(&device->context, device->device);
    if (result != CUDA_SUCCESS) {
        device->context = NULL;
        return FAILED(device, result, "cuDevicePrimaryCtxRetain", err);
    }
    return DDL_OK;
}

static ddl_status open_device(int gpu, ddl_device **out, ddl_error *err)
{
    ddl_device *device = ddl_alloc(sizeof *device);
    if (device == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a GPU");
    device->gpu = gpu;
    ddl_status status = ddl_driver_find(&device->driver, err);
    if (status == DDL_OK)
        status = find_context(device, err);
    if (status == DDL_OK)
        status = make_streams(device, err);
    if (status != DDL_OK) {
        close_device(device);
        return status;
    }
    *out = device;
    return DDL_OK;
}

/* ---- memory and marks ---- */

static ddl_status alloc_pinned(ddl_device *device, size_t bytes, void **memory, ddl_error *err)
{
    CUresult result = enter(device);
    if (result != CUDA_SUCCESS)
        return FAILED(device, result, "cuCtxPushCurrent", err);
    result = device->driver->cuMemHostAlloc(memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
    leave(device);
    return result == CUDA_SUCCESS ? DDL_OK : FAILED(device, result, "cuMemHostAlloc", err);
}

static void free_pinned(ddl_device *device, void *memory)
{
    if (device->lost || enter(device) != CUDA_SUCCESS)
        return;
    (void)device->driver->cuMemFreeHost(memory);
    leave(device);
}

static ddl_status create_mark(ddl_device *device, ddl_mark **out, ddl_error *err)
{
    ddl_mark *mark = ddl_alloc(sizeof *mark);
    if (mark == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a mark");
    CUresult result = enter(device);
    if (result == CUDA_SUCCESS) {
        result = device->driver->cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING);
        leave(device);
    }
    if (result != CUDA_SUCCESS) {
        ddl_free(mark);
        return FAILED(device, result, "cuEventCreate", err);
    }
    *out = mark;
    return DDL_OK;
}

static void destroy_mark(ddl_device *device, ddl_mark *mark)
{
    if (!device->lost && enter(device) == CUDA_SUCCESS) {
        (void)device->driver->cuEventDestroy(mark->event);
        leave(device);
    }
    ddl_free(mark);
}

/* ---- copies ---- */

static ddl_status copy(ddl_device *device, ddl_direction direction, void *to, const void *from, size_t bytes,
                       ddl_error *err)
{
    CUresult result = enter(device);
    if (result != CUDA_SUCCESS)
        return FAILED(device, result, "cuCtxPushCurrent", err);
    result = device->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes,
                                           device->streams[direction]);
    leave(device);
    return result == CUDA_SUCCESS ? DDL_OK : FAILED(device, result, "cuMemcpyAsync", err);
}

static ddl_status set_mark(ddl_device *device, ddl_direction direction, ddl_mark *mark, ddl_error *err)
{
    CUresult result = enter(device);
    if (result != CUDA_SUCCESS)
        return FAILED(device, result, "cuCtxPushCurrent", err);
    result = device->driver->cuEventRecord(mark->event, device->streams[direction]);
    leave(device);
    return result == CUDA_SUCCESS ? DDL_OK : FAILED(device, result, "cuEventRecord", err);
}

static ddl_status look_at_mark(ddl_device *device, const ddl_mark *mark, bool *passed, ddl_error *err)
{
    CUresult result = enter(device);
    if (result != CUDA_SUCCESS)
        return FAILED(device, result, "cuCtxPushCurrent", err);
    result = device->driver->cuEventQuery(mark->event);
    leave(device);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return FAILED(device, result, "copying", err);
    *passed = result == CUDA_SUCCESS;
    return DDL_OK;
}

static CUresult look_at_streams(const ddl_device *device)
{
    CUresult result = enter(device);
    if (result != CUDA_SUCCESS)
        return result;
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++)
        result = device->driver->cuStreamQuery(device->streams[i]);
    leave(device);
    return result;
}

static bool drain(ddl_device *device, int timeout_ms)
{
    ddl_deadline deadline = ddl_deadline_in_ms(timeout_ms);
    struct timespec moment = { 0, DRAIN_LOOK_US * 1000 };
    CUresult result;
    while ((result = look_at_streams(device)) == CUDA_ERROR_NOT_READY && !ddl_deadline_passed(deadline))
        nanosleep(&moment, NULL);
    device->lost = device->lost || result != CUDA_SUCCESS;
    return !device->lost;
}

/* ---- the plugin ---- */

static const struct ddl_device_ops ops = {
    .interface = DDL_DEVICE_INTERFACE,
    .open = open_device,
    .close = close_device,
    .alloc = alloc_pinned,
    .free = free_pinned,
    .create_mark = create_mark,
    .destroy_mark = destroy_mark,
    .copy = copy,
    .set_mark = set_mark,
    .look_at_mark = look_at_mark,
    .drain = drain,
};

ddl_device_plugin ddl_cuda_plugin;

const struct ddl_device_ops *ddl_cuda_plugin(ddl_error *err)
{
    const ddl_driver *driver;
    return ddl_driver_find(&driver, err) == DDL_OK ? &ops : NULL;
}
