/*
 * pinned.c - pinned memory that the process keeps, to be used again.
 *
 * The driver frees pinned memory only after everything that is under way on the GPU, streams of the program
 * among it that may be waiting for this very thread. So it is never freed: what nobody uses lies here, by its
 * own first bytes, no more of it than was in use at a time.
 */
#include "cuda/gpu.h"

#include <pthread.h>

typedef struct spare { /* at the beginning of what it is about */
    ddl_link link;
    int gpu;
    size_t bytes;
} spare;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ddl_list spares = { { &spares.head, &spares.head } }; /* of the process, as pinned memory is */

static void *take(int gpu, size_t bytes)
{
    spare *found = NULL;
    pthread_mutex_lock(&lock);
    DDL_LIST_FOR_EACH (link, &spares) {
        spare *s = DDL_CONTAINER(link, spare, link);
        if (found == NULL && s->gpu == gpu && s->bytes == bytes)
            found = s;
    }
    if (found != NULL)
        ddl_list_remove(&found->link);
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult ddl_pinned_take(const ddl_device *device, size_t bytes, void **memory)
{
    size_t least = bytes > sizeof(spare) ? bytes : sizeof(spare);
    *memory = take(device->gpu, least);
    if (*memory != NULL)
        return CUDA_SUCCESS;
    return device->driver->cuMemHostAlloc(memory, least,
                                          CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}

void ddl_pinned_give(const ddl_device *device, void *memory, size_t bytes)
{
    spare *s = memory;
    *s = (spare){ .gpu = device->gpu, .bytes = bytes > sizeof(spare) ? bytes : sizeof(spare) };
    pthread_mutex_lock(&lock);
    ddl_list_prepend(&spares, &s->link);
    pthread_mutex_unlock(&lock);
}
