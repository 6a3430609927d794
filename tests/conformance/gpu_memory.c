#include "gpu_memory.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As in cuda.h. */
typedef unsigned long long device_pointer;
static struct {
    int (*init)(unsigned flags);
    int (*count)(int *count);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*alloc)(device_pointer *pointer, size_t bytes);
    int (*alloc_managed)(device_pointer *pointer, size_t bytes, unsigned flags);
    int (*alloc_pinned)(void **memory, size_t bytes, unsigned flags);
    int (*free)(device_pointer pointer);
    int (*free_pinned)(void *memory);
    int (*write)(device_pointer to, const void *from, size_t bytes);
    int (*read)(void *to, device_pointer from, size_t bytes);
    unsigned long (*created)(void), (*alive)(void);
} driver;
static void *context, *opened;

enum { ATTACH_GLOBAL = 1 };

static bool find(void *library, const char *name, void *place)
{
    void *symbol = dlsym(library, name);
    memcpy(place, &symbol, sizeof symbol);
    return symbol != NULL;
}

bool gpu_memory_choose(int gpu)
{
    return driver.retain(&context, gpu) == 0;
}

static bool take_gpu(void)
{
    const char *rank = getenv("LOCAL_RANK");
    int count = 0;
    return driver.init(0) == 0 && driver.count(&count) == 0 && count > 0 &&
           gpu_memory_choose((rank != NULL ? atoi(rank) : 0) % count);
}

void gpu_memory_expect(const char *path)
{
    if (getenv("DDL_TEST_DRIVER_FIRST") != NULL && dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL)
        fprintf(stderr, "gpu_memory: %s\n", dlerror());
}

bool gpu_memory_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "gpu_memory: %s\n", dlerror());
        return false;
    }
    opened = library;
    find(library, "standin_created", &driver.created);
    find(library, "standin_alive", &driver.alive);
    bool good =
        find(library, "cuInit", &driver.init) && find(library, "cuDeviceGetCount", &driver.count) &&
        find(library, "cuDevicePrimaryCtxRetain", &driver.retain) &&
        find(library, "cuCtxPushCurrent_v2", &driver.push) &&
        find(library, "cuCtxPopCurrent_v2", &driver.pop) && find(library, "cuMemAlloc_v2", &driver.alloc) &&
        find(library, "cuMemAllocManaged", &driver.alloc_managed) &&
        find(library, "cuMemHostAlloc", &driver.alloc_pinned) &&
        find(library, "cuMemFree_v2", &driver.free) && find(library, "cuMemFreeHost", &driver.free_pinned) &&
        find(library, "cuMemcpyHtoD_v2", &driver.write) && find(library, "cuMemcpyDtoH_v2", &driver.read) &&
        take_gpu();
    if (!good)
        fprintf(stderr, "gpu_memory: %s has no GPU, or lacks a function\n", path);
    return good;
}

/* The thread's own context is left as it is. */
static bool done(int result)
{
    void *own = NULL;
    driver.pop(&own);
    return result == 0;
}

void *gpu_memory_alloc(size_t bytes)
{
    device_pointer pointer = 0;
    driver.push(context);
    return done(driver.alloc(&pointer, bytes)) ? (void *)(uintptr_t)pointer : NULL;
}

void *gpu_memory_alloc_managed(size_t bytes)
{
    device_pointer pointer = 0;
    driver.push(context);
    return done(driver.alloc_managed(&pointer, bytes, ATTACH_GLOBAL)) ? (void *)(uintptr_t)pointer : NULL;
}

void *gpu_memory_alloc_pinned(size_t bytes)
{
    void *memory = NULL;
    driver.push(context);
    return done(driver.alloc_pinned(&memory, bytes, 0)) ? memory : NULL;
}

void gpu_memory_free(void *memory)
{
    driver.push(context);
    done(driver.free((uintptr_t)memory));
}

void gpu_memory_free_pinned(void *memory)
{
    driver.push(context);
    done(driver.free_pinned(memory));
}

/* A copy from memory that is not pinned may return when it has read that, before it has written; one to the
 * host has done all that was before it, and itself. */
bool gpu_memory_write(void *memory, const void *from, size_t bytes)
{
    char last;
    driver.push(context);
    int result = driver.write((uintptr_t)memory, from, bytes);
    if (result == 0 && bytes > 0)
        result = driver.read(&last, (uintptr_t)memory + bytes - 1, 1);
    return done(result);
}

bool gpu_memory_read(void *to, const void *memory, size_t bytes)
{
    driver.push(context);
    return done(driver.read(to, (uintptr_t)memory, bytes));
}

bool gpu_memory_find(const char *name, void *place)
{
    return find(opened, name, place);
}

void gpu_memory_enter(void)
{
    driver.push(context);
}

bool gpu_memory_leave(int result)
{
    return done(result);
}

bool gpu_memory_counts(void)
{
    return driver.created != NULL;
}

unsigned long gpu_memory_created(void)
{
    return driver.created != NULL ? driver.created() : 0;
}

unsigned long gpu_memory_alive(void)
{
    return driver.alive != NULL ? driver.alive() : 0;
}
