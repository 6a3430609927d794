/* gpu_stream.h - streams of a program for tests, with what runs in them; of the driver that gpu_memory.h has
 * opened. */
#ifndef DDL_TESTS_CONFORMANCE_GPU_STREAM_H
#define DDL_TESTS_CONFORMANCE_GPU_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* After gpu_memory_open. */
bool gpu_stream_open(void);

/* On the GPU of gpu_memory.h, waiting for no other one. NULL: the driver failed. */
void *gpu_stream_create(void);
/* Waiting for the default one, which waits for it. */
void *gpu_stream_create_blocking(void);
void gpu_stream_destroy(void *stream);

/* Put work into a stream; false: the driver failed. function runs on a thread of the driver. */
bool gpu_stream_call(void *stream, void (*function)(void *arg), void *arg);
bool gpu_stream_copy(void *stream, void *to, const void *from, size_t bytes);

/* A door that streams do not go past before it is opened; shut again when none waits at it. Where the driver
 * has no wait for memory it is a function of the host, of which some drivers run one at a time. Pinned
 * memory: what makes it or takes it away may wait for what is under way. */
typedef struct gpu_door {
    _Atomic(unsigned) *is_open;
} gpu_door;
bool gpu_door_make(gpu_door *door);
void gpu_door_free(gpu_door *door);
void gpu_door_open(gpu_door *door);
void gpu_door_shut(gpu_door *door);
bool gpu_stream_wait_at(void *stream, gpu_door *door);
bool gpu_stream_waits_at_words(void); /* at the last door: for memory */

/* A kernel that adds to each of so many floats in device memory; they are loaded before the first one. */
bool gpu_stream_load_kernels(void);
bool gpu_stream_add(void *stream, void *memory, size_t count, float summand);

/* Whether everything in it is done; and until it is. */
bool gpu_stream_is_idle(void *stream);
bool gpu_stream_wait(void *stream);

/* From now on it is captured into a graph. */
bool gpu_stream_capture(void *stream);

/* The same in the mode in which no thread may allocate, ask for events and such like meanwhile; and until
 * here. False: somebody has. Thread: the same. */
bool gpu_stream_capture_globally(void *stream);
bool gpu_stream_end_capture(void *stream);

#endif
