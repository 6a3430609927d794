/*
 * gpu_kinds - memory of a GPU of every kind that programs have, in an allreduce: gpu_kinds DRIVER
 *
 * Managed, of a pool in the order of a stream (as of cudaMallocAsync), and mapped to addresses that were
 * reserved before (cuMemMap, as of expandable segments); the other buffer is common device memory. Each
 * rank prints a line of JSON with what came of each kind: "exact"; "wrong"; an error of ddl; "none", as the
 * driver has no such memory; or which call of the driver failed.
 */
#include "../conformance/gpu_memory.h"

#include <ddl/ddl.h>

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 300000 };

static CUresult failed(const char *call, CUresult result, const char **what)
{
    if (result != CUDA_SUCCESS)
        *what = call;
    return result;
}

static void *alloc_common(size_t bytes, const char **what)
{
    void *memory = gpu_memory_alloc(bytes);
    *what = "cuMemAlloc";
    return memory;
}

static void *alloc_managed(size_t bytes, const char **what)
{
    void *memory = gpu_memory_alloc_managed(bytes);
    *what = "cuMemAllocManaged";
    return memory;
}

static void *alloc_of_pool(size_t bytes, const char **what)
{
    __typeof__(cuStreamCreate) *create;
    __typeof__(cuMemAllocAsync) *alloc;
    __typeof__(cuStreamSynchronize) *wait;
    CUstream stream;
    CUdeviceptr at = 0;
    *what = "none";
    if (!gpu_memory_find("cuMemAllocAsync", &alloc) || !gpu_memory_find("cuStreamCreate", &create) ||
        !gpu_memory_find("cuStreamSynchronize", &wait))
        return NULL;
    gpu_memory_enter();
    CUresult result = failed("cuStreamCreate", create(&stream, CU_STREAM_NON_BLOCKING), what);
    if (result == CUDA_SUCCESS)
        result = failed("cuMemAllocAsync", alloc(&at, bytes, stream), what);
    if (result == CUDA_SUCCESS)
        result = failed("cuStreamSynchronize", wait(stream), what);
    return gpu_memory_leave((int)result) ? (void *)(uintptr_t)at : NULL;
}

static void *alloc_mapped(size_t bytes, const char **what)
{
    __typeof__(cuCtxGetDevice) *device;
    __typeof__(cuMemGetAllocationGranularity) *grain;
    __typeof__(cuMemAddressReserve) *reserve;
    __typeof__(cuMemCreate) *create;
    __typeof__(cuMemMap) *map;
    __typeof__(cuMemSetAccess) *allow;
    CUmemAllocationProp of;
    CUmemAccessDesc access;
    CUmemGenericAllocationHandle made = 0;
    CUdeviceptr at = 0;
    size_t unit = 1;
    *what = "none";
    if (!gpu_memory_find("cuCtxGetDevice", &device) ||
        !gpu_memory_find("cuMemGetAllocationGranularity", &grain) ||
        !gpu_memory_find("cuMemAddressReserve", &reserve) || !gpu_memory_find("cuMemCreate", &create) ||
        !gpu_memory_find("cuMemMap", &map) || !gpu_memory_find("cuMemSetAccess", &allow))
        return NULL;
    memset(&of, 0, sizeof of);
    memset(&access, 0, sizeof access);
    of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    gpu_memory_enter();
    CUresult result = failed("cuCtxGetDevice", device(&of.location.id), what);
    if (result == CUDA_SUCCESS)
        result = failed("cuMemGetAllocationGranularity", grain(&unit, &of, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                        what);
    bytes = (bytes + unit - 1) / unit * unit;
    if (result == CUDA_SUCCESS)
        result = failed("cuMemAddressReserve", reserve(&at, bytes, 0, 0, 0), what);
    if (result == CUDA_SUCCESS)
        result = failed("cuMemCreate", create(&made, bytes, &of, 0), what);
    if (result == CUDA_SUCCESS)
        result = failed("cuMemMap", map(at, bytes, 0, made, 0), what);
    access.location = of.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (result == CUDA_SUCCESS)
        result = failed("cuMemSetAccess", allow(at, bytes, &access, 1), what);
    return gpu_memory_leave((int)result) ? (void *)(uintptr_t)at : NULL;
}

static float values[COUNT];

/* From memory of this kind into common memory, or the other way. */
static const char *reduce(void *in, void *out, ddl_comm *world)
{
    const int nranks = ddl_size(world);
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(i % 1000);
    if (!gpu_memory_write(in, values, sizeof values))
        return "cuMemcpyHtoD";
    memset(values, 0, sizeof values);
    if (!gpu_memory_write(out, values, sizeof values))
        return "cuMemcpyHtoD";
    ddl_status status = ddl_allreduce(in, out, COUNT, DDL_FLOAT32, DDL_SUM, world, NULL);
    if (status != DDL_OK) {
        fprintf(stderr, "gpu_kinds: %s\n", ddl_last_error()->text);
        return ddl_status_name(status);
    }
    if (!gpu_memory_read(values, out, sizeof values))
        return "cuMemcpyDtoH";
    for (int i = 0; i < COUNT; i++)
        if (values[i] != (float)(nranks * (i % 1000)))
            return "wrong";
    return "exact";
}

static const struct {
    const char *name;
    void *(*alloc)(size_t bytes, const char **what);
} kinds[] = { { "common", alloc_common },
              { "managed", alloc_managed },
              { "pool", alloc_of_pool },
              { "mapped", alloc_mapped } };

int main(int argc, char **argv)
{
    ddl_comm *world = NULL;
    const char *what = "", *came[sizeof kinds / sizeof *kinds];
    if (argc != 2 || ddl_init(&world, NULL) != DDL_OK || !gpu_memory_open(argv[1]))
        return 2;
    void *common = gpu_memory_alloc(sizeof values);
    if (common == NULL)
        return 2;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        /* Ranks that lack it say so together, as a rank that leaves out a call is in others' way. */
        void *memory = kinds[i].alloc(sizeof values, &what);
        int64_t have = memory != NULL;
        if (ddl_allreduce(&have, &have, 1, DDL_INT64, DDL_MIN, world, NULL) != DDL_OK)
            return 1;
        came[i] = have ? reduce(memory, common, world) : what;
        if (have && strcmp(came[i], "exact") == 0)
            came[i] = reduce(common, memory, world);
    }
    printf("{\"rank\": %d", ddl_rank(world));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        printf(", \"%s\": \"%s\"", kinds[i].name, came[i]);
    puts("}");
    return ddl_comm_free(&world) == DDL_OK ? 0 : 1;
}
