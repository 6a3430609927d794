/*
 * standin_kinds - the stand-in's memory of pools, and such as is mapped to addresses: all of it is device
 * memory there, and the addresses are what is allocated.
 */
#include <cuda.h>

#include <stdbool.h>

enum { GRAIN = 2 << 20, MADE = 17 };

static bool is_of_device(const CUmemLocation *where)
{
    return where->type == CU_MEM_LOCATION_TYPE_DEVICE && where->id >= 0;
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemAlloc(pointer, bytes);
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *of,
                                               CUmemAllocationGranularity_flags flags)
{
    (void)flags;
    *bytes = GRAIN;
    return is_of_device(&of->location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                     unsigned long long flags)
{
    if (bytes % GRAIN != 0 || alignment != 0 || wanted != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return cuMemAlloc(pointer, bytes);
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                             const CUmemAllocationProp *of, unsigned long long flags)
{
    *handle = MADE;
    return bytes % GRAIN == 0 && flags == 0 && of->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                   is_of_device(&of->location)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return pointer != 0 && bytes % GRAIN == 0 && offset == 0 && handle == MADE && flags == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
                                size_t count)
{
    return pointer != 0 && bytes % GRAIN == 0 && count == 1 && is_of_device(&access->location) &&
                   access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
