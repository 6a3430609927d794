/* driver.c - libcuda, by the dynamic loader. */
#include "cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static ddl_driver found; /* of the process, as its libraries are; valid if is_found */
static bool is_found;

static const char *const names[] = { "libcuda.so.1", "libcuda.so" };

static void *open_driver(ddl_error *err)
{
    void *library = NULL;
    char reasons[320] = "";
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof *names; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        size_t there = strlen(reasons);
        if (library == NULL)
            snprintf(reasons + there, sizeof reasons - there, "%s%.150s", there > 0 ? "; " : "", dlerror());
    }
    if (library == NULL)
        DDL_FAIL(err, DDL_EDEVICE, "the CUDA driver is not loaded, and not where the system looks: %s",
                 reasons);
    return library;
}

/* POSIX has it so: an object pointer that is one to a function. */
static void set_function(void *symbol, void *place)
{
    memcpy(place, &symbol, sizeof symbol);
}

static ddl_status find_function(void *library, const char *name, void *place, ddl_error *err)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        return DDL_FAIL(err, DDL_EDEVICE, "the CUDA driver, libcuda.so.1, has no %s: it is too old", name);
    set_function(symbol, place);
    return DDL_OK;
}

ddl_status ddl_driver_find(const ddl_driver **driver, ddl_error *err)
{
    if (!is_found) {
        void *library = open_driver(err);
        if (library == NULL)
            return DDL_EDEVICE;
#define FIND(function, name) DDL_TRY(find_function(library, name, &found.function, err));
        DDL_DRIVER_FUNCTIONS(FIND)
#undef FIND
#define FIND_EXTRA(function, name) set_function(dlsym(library, name), &found.function);
        DDL_DRIVER_EXTRAS(FIND_EXTRA)
#undef FIND_EXTRA
        is_found = true;
    }
    *driver = &found;
    return DDL_OK;
}

static _Thread_local struct entrance {
    int depth;
    CUstreamCaptureMode before; /* the thread's own */
} inside;

CUresult ddl_driver_enter(const ddl_driver *driver, CUcontext context)
{
    CUresult result = driver->cuCtxPushCurrent(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (inside.depth++ == 0) {
        inside.before = CU_STREAM_CAPTURE_MODE_RELAXED;
        (void)driver->cuThreadExchangeStreamCaptureMode(&inside.before);
    }
    return CUDA_SUCCESS;
}

void ddl_driver_leave(const ddl_driver *driver)
{
    CUcontext own;
    if (--inside.depth == 0)
        (void)driver->cuThreadExchangeStreamCaptureMode(&inside.before);
    (void)driver->cuCtxPopCurrent(&own);
}

ddl_status ddl_driver_failed(const ddl_driver *driver, CUresult result, const char *call, int gpu,
                             ddl_error *err)
{
    const char *name = NULL, *text = NULL;
    if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "an unknown error";
    if (driver->cuGetErrorString(result, &text) != CUDA_SUCCESS || text == NULL)
        text = "no text";
    char which[32] = "";
    if (gpu >= 0)
        snprintf(which, sizeof which, "GPU %d: ", gpu);
    return DDL_FAIL(err, result == CUDA_ERROR_OUT_OF_MEMORY ? DDL_ENOMEM : DDL_EDEVICE, "%s%s: %s (%s)",
                    which, call, name, text);
}
