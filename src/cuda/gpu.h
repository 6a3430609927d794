/* gpu.h - one GPU as this process uses it, for the files of this folder that copy and wait. */
#ifndef DDL_CUDA_GPU_H
#define DDL_CUDA_GPU_H

#include "backend/device.h"
#include "cuda/driver.h"

struct ddl_device {
    const ddl_driver *driver;
    int gpu;
    CUdevice device;
    CUcontext context;   /* the GPU's primary one, which programs share */
    CUstream streams[2]; /* by ddl_direction */
    bool lost;           /* something may be under way for ever */
};

/* `return DDL_GPU_FAILED(device, result, "cuMemcpyAsync", err)` */
#define DDL_GPU_FAILED(device, result, call, err) \
    ddl_driver_failed((device)->driver, (result), (call), (device)->gpu, (err))

/* Threads take turns, and each has a context of its own, if any. */
static inline CUresult ddl_gpu_enter(const ddl_device *device)
{
    return ddl_driver_enter(device->driver, device->context);
}

static inline void ddl_gpu_leave(const ddl_device *device)
{
    ddl_driver_leave(device->driver);
}

/* Pinned memory, which is given back instead of freed (pinned.c). In the device's context. */
CUresult ddl_pinned_take(const ddl_device *device, size_t bytes, void **memory);
void ddl_pinned_give(const ddl_device *device, void *memory, size_t bytes);

/* Whether operations can be in this stream of the program (latch.c). In the device's context.
 * DDL_EUNSUPPORTED: it is being captured into a graph; or it is the default one, and another is that waits
 * for it. */
ddl_status ddl_gpu_refuse_captured(const ddl_device *device, void *stream, ddl_error *err);

/* Of ddl_device_ops (latch.c). */
ddl_status ddl_latch_create(ddl_device *device, ddl_latch **latch, ddl_error *err);
void ddl_latch_destroy(ddl_latch *latch);
ddl_status ddl_latch_shut(ddl_latch *latch, void *stream, const void *owner, ddl_deadline until,
                          uint32_t *number, ddl_error *err);
ddl_status ddl_latch_look(ddl_latch *latch, bool *reached, ddl_error *err);
void ddl_latch_open(ddl_latch *latch, uint32_t number);
ddl_latch_state ddl_latch_look_whether_open(const ddl_latch *latch, uint32_t number);
void ddl_latch_open_all(const void *owner);
bool ddl_latch_is_free(ddl_latch *latch);

#endif
