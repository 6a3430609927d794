/*
 * gpu_memory.h - device memory for tests, of the CUDA driver or of what stands in for it.
 *
 * The library is opened by name at run time; builds without CUDA have this too.
 */
#ifndef DDL_TESTS_CONFORMANCE_GPU_MEMORY_H
#define DDL_TESTS_CONFORMANCE_GPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Open the driver, by its path or name, and take a GPU: that of LOCAL_RANK modulo their number. Prints why
 * not, and returns false. */
bool gpu_memory_open(const char *library);

/* Before ddl_init: be a program that has the driver from its start, where DDL_TEST_DRIVER_FIRST is set. */
void gpu_memory_expect(const char *library);

/* Take memory of another GPU from now on. False: there is none. */
bool gpu_memory_choose(int gpu);

/* NULL: there is not so much. */
void *gpu_memory_alloc(size_t bytes);
void *gpu_memory_alloc_managed(size_t bytes);
void *gpu_memory_alloc_pinned(size_t bytes);
void gpu_memory_free(void *memory);
void gpu_memory_free_pinned(void *memory);

/* False: the driver failed. */
bool gpu_memory_write(void *memory, const void *from, size_t bytes);
bool gpu_memory_read(void *to, const void *memory, size_t bytes);

/* A function of the driver, for what goes beyond memory; calls of it are between enter and leave, which says
 * whether its result was good. */
bool gpu_memory_find(const char *name, void *place);
void gpu_memory_enter(void);
bool gpu_memory_leave(int result);

/* How many streams, events and pieces of pinned memory have been made, as the stand-in counts them, which a
 * real driver does not; 0 then. */
bool gpu_memory_counts(void);
unsigned long gpu_memory_created(void);

/* How many streams and events there are, likewise. */
unsigned long gpu_memory_alive(void);

#endif
