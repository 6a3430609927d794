/*
 * device.h - what operations on device memory need of a GPU: pinned host memory, copies that run by
 * themselves, marks that say how far they have come, and latches that keep streams of the program waiting.
 *
 * A device has two queues of copies, down to the host and up to the GPU; each is worked off in order, and
 * neither waits for the other. Implemented by the plugin in src/cuda, which is a shared object of its own, so
 * this header is its binary interface too. All for one thread at a time per device, whichever that is;
 * latches and copy_along for one thread at a time too, which may be another one, but look_at_latch is of the
 * first; alloc and create_mark are for both.
 */
#ifndef DDL_BACKEND_DEVICE_H
#define DDL_BACKEND_DEVICE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ddl_device ddl_device; /* one GPU, as this process uses it */
typedef struct ddl_mark ddl_mark;     /* a place in a queue; may be set again and again */

typedef enum ddl_direction { DDL_DOWN, DDL_UP } ddl_direction;

/* What came of waiting for the queues: they are empty; the GPU still works on them; or it has failed, and
 * touches no memory any more. */
typedef enum ddl_drained { DDL_DRAINED, DDL_DRAIN_LATE, DDL_DRAIN_FAILED } ddl_drained;

/* A place in a stream of the program, beyond which the stream does not go before the latch is opened. May be
 * shut again once the stream has gone on. The plugin's has this at its beginning. */
typedef struct ddl_latch {
    ddl_link link; /* of whoever keeps it */
    const struct ddl_device_ops *ops;
    ddl_device *device;
    bool waits_in_function; /* of the host, as it was shut last: the driver has no wait for memory */
} ddl_latch;

/* Overdue: it was opened at `until`, by nobody who knows of the operation. */
typedef enum ddl_latch_state { DDL_LATCH_SHUT, DDL_LATCH_OPEN, DDL_LATCH_OVERDUE } ddl_latch_state;

/* A stream of the program that is kept at a latch for one operation. latch NULL: there is none. */
typedef struct ddl_hold {
    ddl_latch *latch;
    uint32_t number; /* that it was shut with */
} ddl_hold;

/* Of failures: DDL_EDEVICE, with what the driver says and the number of the GPU. None of these blocks, but
 * where it says so. */
struct ddl_device_ops {
    uint32_t interface; /* DDL_DEVICE_INTERFACE of the build; first, for ever */
    /* gpu: as this process numbers them. May take a while. */
    ddl_status (*open)(int gpu, ddl_device **device, ddl_error *err);
    /* NULL is fine. Where drain was in vain, close, free and destroy_mark leave to the process what the GPU
     * may still use. */
    void (*close)(ddl_device *device);
    /* Host memory that the GPU copies from and to by itself; aligned to a page. May take a while. */
    ddl_status (*alloc)(ddl_device *device, size_t bytes, void **memory, ddl_error *err);
    /* It is kept for the next alloc of so many bytes: the driver would wait for all of the GPU. */
    void (*free)(ddl_device *device, void *memory, size_t bytes);
    ddl_status (*create_mark)(ddl_device *device, ddl_mark **mark, ddl_error *err);
    void (*destroy_mark)(ddl_device *device, ddl_mark *mark);
    /* Append a copy to a queue. */
    ddl_status (*copy)(ddl_device *device, ddl_direction direction, void *to, const void *from, size_t bytes,
                       ddl_error *err);
    /* The mark is passed when everything that this queue has now is done. */
    ddl_status (*set_mark)(ddl_device *device, ddl_direction direction, ddl_mark *mark, ddl_error *err);
    ddl_status (*look_at_mark)(ddl_device *device, const ddl_mark *mark, bool *passed, ddl_error *err);
    /* Block until both queues are empty, but not for longer than that. */
    ddl_drained (*drain)(ddl_device *device, int timeout_ms);
    /* How many GPUs this process sees. */
    ddl_status (*count)(int *gpus, ddl_error *err);
    /* Of which of them a stream (a CUstream) is. -1: it is of any, as CUDA's default stream, or the driver
     * cannot tell; if it has failed, whatever is put into the stream tells. Thread: any. */
    int (*gpu_of_stream)(void *stream);
    ddl_status (*create_latch)(ddl_device *device, ddl_latch **latch, ddl_error *err);
    /* It is open, and kept for another create_latch once the stream has gone on. */
    void (*destroy_latch)(ddl_latch *latch);
    /* Append to a stream (a CUstream): it waits there, until this number is opened; a thread of the plugin
     * does that at `until` if nobody has, as all others may be kept by the driver. On failure it does not
     * wait. */
    ddl_status (*shut_latch)(ddl_latch *latch, void *stream, const void *owner, ddl_deadline until,
                             uint32_t *number, ddl_error *err);
    /* Whether what was in the stream before it was shut is done. */
    ddl_status (*look_at_latch)(ddl_latch *latch, bool *reached, ddl_error *err);
    /* The stream goes on when it has come here. Thread: any. */
    void (*open_latch)(ddl_latch *latch, uint32_t number);
    ddl_latch_state (*look_whether_open)(const ddl_latch *latch, uint32_t number);
    /* Every latch of this owner; NULL: of the process, and none can be shut any more, as it ends. Thread:
     * any. */
    void (*open_latches)(const void *owner);
    /* Whether it may be shut again. */
    bool (*is_latch_free)(ddl_latch *latch);
    /* Append a copy to a stream of the program, if there are bytes. DDL_EUNSUPPORTED: the stream is being
     * captured. */
    ddl_status (*copy_along)(ddl_device *device, void *stream, void *to, const void *from, size_t bytes,
                             ddl_error *err);
};

/* The stream may go on. Thread: any. */
static inline void ddl_hold_end(ddl_hold hold)
{
    if (hold.latch != NULL)
        hold.latch->ops->open_latch(hold.latch, hold.number);
}

/* Whether it may, though nobody has come to the end of the operation yet. Thread: any. */
static inline bool ddl_hold_is_over(ddl_hold hold)
{
    return hold.latch != NULL &&
           hold.latch->ops->look_whether_open(hold.latch, hold.number) != DDL_LATCH_SHUT;
}

/* And nobody knows why. Thread: any. */
static inline bool ddl_hold_is_overdue(ddl_hold hold)
{
    return hold.latch != NULL &&
           hold.latch->ops->look_whether_open(hold.latch, hold.number) == DDL_LATCH_OVERDUE;
}

/* Changes with anything above. */
enum { DDL_DEVICE_INTERFACE = 8 };

/* What the plugin exports as "ddl_cuda_plugin". NULL: err tells why not. */
typedef const struct ddl_device_ops *ddl_device_plugin(ddl_error *err);

#endif
