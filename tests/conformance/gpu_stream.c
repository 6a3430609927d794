#include "gpu_stream.h"

#include "gpu_memory.h"

#include <stdint.h>

enum { NON_BLOCKING = 1, CAPTURE_GLOBAL = 0, CAPTURE_RELAXED = 2 }; /* as in cuda.h */

static struct {
    int (*create)(void **stream, unsigned flags);
    int (*destroy)(void *stream);
    int (*call)(void *stream, void (*function)(void *arg), void *arg);
    int (*copy)(unsigned long long to, unsigned long long from, size_t bytes, void *stream);
    int (*query)(void *stream);
    int (*wait)(void *stream);
    int (*capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
} driver;

bool gpu_stream_open(void)
{
    return gpu_memory_find("cuStreamCreate", &driver.create) &&
           gpu_memory_find("cuStreamDestroy_v2", &driver.destroy) &&
           gpu_memory_find("cuLaunchHostFunc", &driver.call) &&
           gpu_memory_find("cuMemcpyAsync", &driver.copy) &&
           gpu_memory_find("cuStreamQuery", &driver.query) &&
           gpu_memory_find("cuStreamSynchronize", &driver.wait) &&
           gpu_memory_find("cuStreamBeginCapture_v2", &driver.capture) &&
           gpu_memory_find("cuStreamEndCapture", &driver.end_capture);
}

void *gpu_stream_create(void)
{
    void *stream = NULL;
    gpu_memory_enter();
    int result = driver.create(&stream, NON_BLOCKING);
    return gpu_memory_leave(result) ? stream : NULL;
}

void gpu_stream_destroy(void *stream)
{
    gpu_memory_enter();
    gpu_memory_leave(driver.destroy(stream));
}

bool gpu_stream_call(void *stream, void (*function)(void *arg), void *arg)
{
    gpu_memory_enter();
    return gpu_memory_leave(driver.call(stream, function, arg));
}

bool gpu_stream_copy(void *stream, void *to, const void *from, size_t bytes)
{
    gpu_memory_enter();
    return gpu_memory_leave(driver.copy((uintptr_t)to, (uintptr_t)from, bytes, stream));
}

bool gpu_stream_is_idle(void *stream)
{
    gpu_memory_enter();
    return gpu_memory_leave(driver.query(stream));
}

bool gpu_stream_wait(void *stream)
{
    gpu_memory_enter();
    return gpu_memory_leave(driver.wait(stream));
}

bool gpu_stream_capture(void *stream)
{
    gpu_memory_enter();
    return gpu_memory_leave(driver.capture(stream, CAPTURE_RELAXED));
}

bool gpu_stream_capture_globally(void *stream)
{
    gpu_memory_enter();
    return gpu_memory_leave(driver.capture(stream, CAPTURE_GLOBAL));
}

bool gpu_stream_end_capture(void *stream)
{
    void *graph; /* is left as it is */
    gpu_memory_enter();
    return gpu_memory_leave(driver.end_capture(stream, &graph));
}
