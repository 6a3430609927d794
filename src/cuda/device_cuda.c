/* device_cuda.c - device.h over the CUDA driver: two streams of one GPU, events, pinned memory. */
#include "base/bytes.h"
#include "base/clock.h"
#include "cuda/gpu.h"

enum { DRAIN_LOOK_US = 50 };

struct ddl_mark {
    CUevent event;
};

/* ---- life ---- */

/* The context stays for the life of the process: memory and latches in it are kept. */
static void close_device(ddl_device *device)
{
    if (device == NULL)
        return;
    if (device->context != NULL && !device->lost) {
        if (ddl_gpu_enter(device) == CUDA_SUCCESS) {
            for (int i = 0; i < 2; i++)
                if (device->streams[i] != NULL)
                    (void)device->driver->cuStreamDestroy(device->streams[i]);
            ddl_gpu_leave(device);
        }
    }
    ddl_free(device);
}

/* Streams that wait for nobody else's. Of the highest priority, as others then have queues of the GPU of
 * their own: a stream of the program that waits at a latch is not to be in front of the copies that it waits
 * for. */
static ddl_status make_streams(ddl_device *device, ddl_error *err)
{
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    int least = 0, greatest = 0;
    (void)device->driver->cuCtxGetStreamPriorityRange(&least, &greatest);
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++)
        result =
            device->driver->cuStreamCreateWithPriority(&device->streams[i], CU_STREAM_NON_BLOCKING, greatest);
    ddl_gpu_leave(device);
    return result == CUDA_SUCCESS ? DDL_OK
                                  : DDL_GPU_FAILED(device, result, "cuStreamCreateWithPriority", err);
}

static ddl_status find_context(ddl_device *device, ddl_error *err)
{
    CUresult result = device->driver->cuInit(0);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuInit", err);
    result = device->driver->cuDeviceGet(&device->device, device->gpu);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuDeviceGet", err);
    result = device->driver->cuDevicePrimaryCtxRetain(&device->context, device->device);
    if (result != CUDA_SUCCESS) {
        device->context = NULL;
        return DDL_GPU_FAILED(device, result, "cuDevicePrimaryCtxRetain", err);
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
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    result = ddl_pinned_take(device, bytes, memory);
    ddl_gpu_leave(device);
    return result == CUDA_SUCCESS ? DDL_OK : DDL_GPU_FAILED(device, result, "cuMemHostAlloc", err);
}

static void free_pinned(ddl_device *device, void *memory, size_t bytes)
{
    if (!device->lost)
        ddl_pinned_give(device, memory, bytes);
}

static ddl_status create_mark(ddl_device *device, ddl_mark **out, ddl_error *err)
{
    ddl_mark *mark = ddl_alloc(sizeof *mark);
    if (mark == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a mark");
    CUresult result = ddl_gpu_enter(device);
    if (result == CUDA_SUCCESS) {
        result = device->driver->cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING);
        ddl_gpu_leave(device);
    }
    if (result != CUDA_SUCCESS) {
        ddl_free(mark);
        return DDL_GPU_FAILED(device, result, "cuEventCreate", err);
    }
    *out = mark;
    return DDL_OK;
}

static void destroy_mark(ddl_device *device, ddl_mark *mark)
{
    if (!device->lost && ddl_gpu_enter(device) == CUDA_SUCCESS) {
        (void)device->driver->cuEventDestroy(mark->event);
        ddl_gpu_leave(device);
    }
    ddl_free(mark);
}

/* ---- copies ---- */

static ddl_status copy(ddl_device *device, ddl_direction direction, void *to, const void *from, size_t bytes,
                       ddl_error *err)
{
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    result = device->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes,
                                           device->streams[direction]);
    ddl_gpu_leave(device);
    return result == CUDA_SUCCESS ? DDL_OK : DDL_GPU_FAILED(device, result, "cuMemcpyAsync", err);
}

static ddl_status set_mark(ddl_device *device, ddl_direction direction, ddl_mark *mark, ddl_error *err)
{
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    result = device->driver->cuEventRecord(mark->event, device->streams[direction]);
    ddl_gpu_leave(device);
    return result == CUDA_SUCCESS ? DDL_OK : DDL_GPU_FAILED(device, result, "cuEventRecord", err);
}

static ddl_status look_at_mark(ddl_device *device, const ddl_mark *mark, bool *passed, ddl_error *err)
{
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    result = device->driver->cuEventQuery(mark->event);
    ddl_gpu_leave(device);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return DDL_GPU_FAILED(device, result, "copying", err);
    *passed = result == CUDA_SUCCESS;
    return DDL_OK;
}

static CUresult look_at_streams(const ddl_device *device)
{
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return result;
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++)
        result = device->driver->cuStreamQuery(device->streams[i]);
    ddl_gpu_leave(device);
    return result;
}

static ddl_drained drain(ddl_device *device, int timeout_ms)
{
    ddl_deadline deadline = ddl_deadline_in_ms(timeout_ms);
    CUresult result;
    while ((result = look_at_streams(device)) == CUDA_ERROR_NOT_READY && !ddl_deadline_passed(deadline))
        ddl_pause_us(DRAIN_LOOK_US);
    if (result == CUDA_SUCCESS)
        return DDL_DRAINED;
    device->lost = true;
    return result == CUDA_ERROR_NOT_READY ? DDL_DRAIN_LATE : DDL_DRAIN_FAILED;
}

static ddl_status copy_along(ddl_device *device, void *stream, void *to, const void *from, size_t bytes,
                             ddl_error *err)
{
    CUresult result = ddl_gpu_enter(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuCtxPushCurrent", err);
    ddl_status status = ddl_gpu_refuse_captured(device, stream, err);
    if (status == DDL_OK && bytes > 0)
        result = device->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                               bytes, stream);
    ddl_gpu_leave(device);
    if (result != CUDA_SUCCESS)
        return DDL_GPU_FAILED(device, result, "cuMemcpyAsync", err);
    return status;
}

/* ---- the plugin ---- */

static ddl_status count(int *gpus, ddl_error *err)
{
    const ddl_driver *driver;
    DDL_TRY(ddl_driver_find(&driver, err));
    CUresult result = driver->cuInit(0);
    *gpus = 0;
    if (result == CUDA_ERROR_NO_DEVICE)
        return DDL_OK;
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetCount(gpus);
    return result == CUDA_SUCCESS ? DDL_OK : ddl_driver_failed(driver, result, "counting GPUs", -1, err);
}

static CUresult find_device(const ddl_driver *driver, CUstream stream, CUdevice *device)
{
    CUcontext context;
    CUresult result = driver->cuStreamGetCtx(stream, &context);
    if (result == CUDA_SUCCESS)
        result = ddl_driver_enter(driver, context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuCtxGetDevice(device);
    ddl_driver_leave(driver);
    return result;
}

static int number_of(const ddl_driver *driver, CUdevice device)
{
    CUdevice other;
    int gpus = 0;
    (void)driver->cuDeviceGetCount(&gpus);
    for (int gpu = 0; gpu < gpus; gpu++)
        if (driver->cuDeviceGet(&other, gpu) == CUDA_SUCCESS && other == device)
            return gpu;
    return -1;
}

/* CUDA's own streams are of the context in which they are named, which is that of the buffers. */
static int gpu_of_stream(void *stream)
{
    const ddl_driver *driver;
    ddl_error ignored; /* it has been found */
    CUdevice device;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return -1;
    if (ddl_driver_find(&driver, &ignored) != DDL_OK || find_device(driver, stream, &device) != CUDA_SUCCESS)
        return -1;
    return number_of(driver, device);
}

static const struct ddl_device_ops ops;

static ddl_status create_latch(ddl_device *device, ddl_latch **latch, ddl_error *err)
{
    DDL_TRY(ddl_latch_create(device, latch, err));
    (*latch)->ops = &ops;
    return DDL_OK;
}

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
    .count = count,
    .gpu_of_stream = gpu_of_stream,
    .create_latch = create_latch,
    .destroy_latch = ddl_latch_destroy,
    .shut_latch = ddl_latch_shut,
    .look_at_latch = ddl_latch_look,
    .open_latch = ddl_latch_open,
    .look_whether_open = ddl_latch_look_whether_open,
    .open_latches = ddl_latch_open_all,
    .is_latch_free = ddl_latch_is_free,
    .copy_along = copy_along,
};

ddl_device_plugin ddl_cuda_plugin;

const struct ddl_device_ops *ddl_cuda_plugin(ddl_error *err)
{
    const ddl_driver *driver;
    return ddl_driver_find(&driver, err) == DDL_OK ? &ops : NULL;
}
