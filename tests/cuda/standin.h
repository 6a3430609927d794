/* standin.h - what the stand-in for NCCL needs of the one for the driver, beside what cuda.h has. */
#ifndef DDL_TESTS_CUDA_STANDIN_H
#define DDL_TESTS_CUDA_STANDIN_H

#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>

/* Where the bytes of device memory are; NULL: they go beyond what was allocated. */
char *standin_bytes(const void *address, size_t count);

/* Call this in a stream, when it is its turn. True: it broke. */
CUresult standin_run(CUstream stream, bool (*run)(void *arg), void *arg);

#endif
