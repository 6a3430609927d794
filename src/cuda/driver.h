/*
 * driver.h - the functions of the CUDA driver that are used here, found at run time.
 *
 * Nothing is linked with CUDA. The driver that the program has loaded is taken, and only where there is none,
 * one that the system finds. Its functions are the ones that have been there, with this meaning, since
 * CUDA 11.4.
 */
#ifndef DDL_CUDA_DRIVER_H
#define DDL_CUDA_DRIVER_H

#include "base/error.h"

#include <cuda.h>

/* Name in the driver, with its version, and the name in cuda.h. */
#define DDL_DRIVER_FUNCTIONS(X)                                               \
    X(cuInit, "cuInit")                                                       \
    X(cuDeviceGet, "cuDeviceGet")                                             \
    X(cuDeviceGetCount, "cuDeviceGetCount")                                   \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                   \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2")                                \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2")                                  \
    X(cuCtxGetDevice, "cuCtxGetDevice")                                       \
    X(cuMemHostAlloc, "cuMemHostAlloc")                                       \
    X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2")              \
    X(cuMemcpyAsync, "cuMemcpyAsync")                                         \
    X(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange")             \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority")               \
    X(cuStreamIsCapturing, "cuStreamIsCapturing")                             \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode") \
    X(cuLaunchHostFunc, "cuLaunchHostFunc")                                   \
    X(cuStreamDestroy, "cuStreamDestroy_v2")                                  \
    X(cuStreamGetCtx, "cuStreamGetCtx")                                       \
    X(cuStreamQuery, "cuStreamQuery")                                         \
    X(cuEventCreate, "cuEventCreate")                                         \
    X(cuEventDestroy, "cuEventDestroy_v2")                                    \
    X(cuEventRecord, "cuEventRecord")                                         \
    X(cuEventQuery, "cuEventQuery")                                           \
    X(cuGetErrorName, "cuGetErrorName")                                       \
    X(cuGetErrorString, "cuGetErrorString")

/* May be missing, and is NULL then. */
#define DDL_DRIVER_EXTRAS(X)                         \
    X(cuStreamWaitValue32, "cuStreamWaitValue32_v2") \
    X(cuDeviceGetUuid, "cuDeviceGetUuid_v2")

typedef struct ddl_driver {
#define DDL_DRIVER_MEMBER(function, name) __typeof__(function) *function;
    DDL_DRIVER_FUNCTIONS(DDL_DRIVER_MEMBER)
    DDL_DRIVER_EXTRAS(DDL_DRIVER_MEMBER)
#undef DDL_DRIVER_MEMBER
} ddl_driver;

/* Find it, once in a process. DDL_EDEVICE: there is none, or it lacks something; the text says what, and
 * where it was looked for. Not for two threads at once. */
DDL_MUST_USE ddl_status ddl_driver_find(const ddl_driver **driver, ddl_error *err);

/*
 * Have this context for the calls of this thread until it leaves, as every entrance does; and, so that the
 * program may capture a stream meanwhile, in whichever mode, call as one who has nothing to do with that:
 * nothing that is called here is to be in a graph. May be nested.
 */
CUresult ddl_driver_enter(const ddl_driver *driver, CUcontext context);
void ddl_driver_leave(const ddl_driver *driver);

/* A call that failed, of which this is the name; gpu: -1 if it was of none. */
ddl_status ddl_driver_failed(const ddl_driver *driver, CUresult result, const char *call, int gpu,
                             ddl_error *err);

#endif
