#include "gpu_stream.h"

#include "../support/now.h"
#include "gpu_memory.h"

#include <stdint.h>
#include <stdio.h>

/* For any GPU that drivers of today know; they compile it for the one that is there. */
static const char kernels[] =
    ".version 6.0\n"
    ".target sm_60\n"
    ".address_size 64\n"
    ".visible .entry add_to(.param .u64 memory, .param .u64 count, .param .f32 summand)\n"
    "{\n"
    "    .reg .pred %is_beyond;\n"
    "    .reg .b32 %block, %threads, %thread;\n"
    "    .reg .b64 %at, %count, %index, %offset;\n"
    "    .reg .f32 %summand, %value;\n"
    "    ld.param.u64 %at, [memory];\n"
    "    ld.param.u64 %count, [count];\n"
    "    ld.param.f32 %summand, [summand];\n"
    "    mov.u32 %block, %ctaid.x;\n"
    "    mov.u32 %threads, %ntid.x;\n"
    "    mov.u32 %thread, %tid.x;\n"
    "    mul.wide.u32 %index, %block, %threads;\n"
    "    cvt.u64.u32 %offset, %thread;\n"
    "    add.u64 %index, %index, %offset;\n"
    "    setp.ge.u64 %is_beyond, %index, %count;\n"
    "    @%is_beyond ret;\n"
    "    shl.b64 %offset, %index, 2;\n"
    "    add.u64 %at, %at, %offset;\n"
    "    ld.f32 %value, [%at];\n"
    "    add.f32 %value, %value, %summand;\n"
    "    st.f32 [%at], %value;\n"
    "    ret;\n"
    "}\n";
enum { THREADS = 256 };

/* As in cuda.h. */
enum { NON_BLOCKING = 1, CAPTURE_GLOBAL = 0, CAPTURE_RELAXED = 2, WAIT_GEQ = 0, NOT_SUPPORTED = 801 };

static struct {
    int (*create)(void **stream, unsigned flags);
    int (*destroy)(void *stream);
    int (*call)(void *stream, void (*function)(void *arg), void *arg);
    int (*copy)(unsigned long long to, unsigned long long from, size_t bytes, void *stream);
    int (*find_place)(unsigned long long *place, void *memory, unsigned flags);
    int (*wait_for_word)(void *stream, unsigned long long place, unsigned value, unsigned flags);
    int (*query)(void *stream);
    int (*wait)(void *stream);
    int (*capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*load)(void **module, const void *image);
    int (*find_kernel)(void **kernel, void *module, const char *name);
    int (*launch)(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters,
                  void **extra);
} driver;
static void *add_to;
static atomic_bool waits_at_words;

bool gpu_stream_load_kernels(void)
{
    void *module = NULL;
    if (!gpu_memory_find("cuModuleLoadData", &driver.load) ||
        !gpu_memory_find("cuModuleGetFunction", &driver.find_kernel) ||
        !gpu_memory_find("cuLaunchKernel", &driver.launch))
        return false;
    gpu_memory_enter();
    int result = driver.load(&module, kernels);
    if (result == 0)
        result = driver.find_kernel(&add_to, module, "add_to");
    if (result != 0)
        fprintf(stderr, "gpu_stream: the driver does not take a kernel: error %d\n", result);
    return gpu_memory_leave(result);
}

bool gpu_stream_open(void)
{
    (void)gpu_memory_find("cuStreamWaitValue32_v2", &driver.wait_for_word); /* or NULL */
    return gpu_memory_find("cuMemHostGetDevicePointer_v2", &driver.find_place) &&
           gpu_memory_find("cuStreamCreate", &driver.create) &&
           gpu_memory_find("cuStreamDestroy_v2", &driver.destroy) &&
           gpu_memory_find("cuLaunchHostFunc", &driver.call) &&
           gpu_memory_find("cuMemcpyAsync", &driver.copy) &&
           gpu_memory_find("cuStreamQuery", &driver.query) &&
           gpu_memory_find("cuStreamSynchronize", &driver.wait) &&
           gpu_memory_find("cuStreamBeginCapture_v2", &driver.capture) &&
           gpu_memory_find("cuStreamEndCapture", &driver.end_capture);
}

static void *create(unsigned flags)
{
    void *stream = NULL;
    gpu_memory_enter();
    int result = driver.create(&stream, flags);
    return gpu_memory_leave(result) ? stream : NULL;
}

void *gpu_stream_create(void)
{
    return create(NON_BLOCKING);
}

void *gpu_stream_create_blocking(void)
{
    return create(0);
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

bool gpu_door_make(gpu_door *door)
{
    door->is_open = gpu_memory_alloc_pinned(sizeof *door->is_open);
    if (door->is_open == NULL)
        return false;
    gpu_door_shut(door);
    return true;
}

void gpu_door_free(gpu_door *door)
{
    gpu_memory_free_pinned((void *)(uintptr_t)door->is_open);
}

void gpu_door_open(gpu_door *door)
{
    atomic_store(door->is_open, 1);
}

void gpu_door_shut(gpu_door *door)
{
    atomic_store(door->is_open, 0);
}

static void look_until_open(void *arg)
{
    const gpu_door *door = arg;
    while (atomic_load(door->is_open) == 0)
        nap_us(20);
}

bool gpu_stream_wait_at(void *stream, gpu_door *door)
{
    unsigned long long place = 0;
    int result = NOT_SUPPORTED;
    gpu_memory_enter();
    if (driver.wait_for_word != NULL && driver.find_place(&place, (void *)(uintptr_t)door->is_open, 0) == 0)
        result = driver.wait_for_word(stream, place, 1, WAIT_GEQ);
    atomic_store(&waits_at_words, result == 0);
    if (result == NOT_SUPPORTED)
        result = driver.call(stream, look_until_open, door);
    return gpu_memory_leave(result);
}

bool gpu_stream_waits_at_words(void)
{
    return atomic_load(&waits_at_words);
}

bool gpu_stream_copy(void *stream, void *to, const void *from, size_t bytes)
{
    gpu_memory_enter();
    return gpu_memory_leave(driver.copy((uintptr_t)to, (uintptr_t)from, bytes, stream));
}

bool gpu_stream_add(void *stream, void *memory, size_t count, float summand)
{
    unsigned long long at = (uintptr_t)memory, n = count;
    void *parameters[] = { &at, &n, &summand };
    gpu_memory_enter();
    return gpu_memory_leave(driver.launch(add_to, (unsigned)((count + THREADS - 1) / THREADS), 1, 1, THREADS,
                                          1, 1, 0, stream, parameters, NULL));
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
