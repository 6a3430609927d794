/*
 * offload.h - calls that GPUs perform among themselves: what a communicator needs of NCCL for that.
 *
 * Implemented by the plugin in src/cuda; as device.h this is its binary interface too. All for one
 * thread at a time per communicator, whichever that is. Nothing here waits for other ranks, or for a GPU, but
 * where it says so: what takes long goes on by itself, and is looked at.
 */
#ifndef DDL_BACKEND_OFFLOAD_H
#define DDL_BACKEND_OFFLOAD_H

#include "base/error.h"

#include <ddl/ddl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ddl_offload ddl_offload; /* this rank's part of a communicator of NCCL */

enum { DDL_OFFLOAD_ID_BYTES = 128, DDL_GPU_ID_BYTES = 16 };

typedef struct ddl_offload_facts { /* that ranks compare */
    uint32_t version;              /* of NCCL, as it counts: 22703 is 2.27.3 */
    uint8_t gpu_id[DDL_GPU_ID_BYTES];
    bool shares_gpu; /* it was told to take several ranks on one GPU; whether it can, it says when opened */
} ddl_offload_facts;

typedef enum ddl_offload_kind {
    DDL_OFFLOAD_ALLREDUCE,
    DDL_OFFLOAD_REDUCE,
    DDL_OFFLOAD_REDUCE_SCATTER,
    DDL_OFFLOAD_ALLGATHER,
    DDL_OFFLOAD_BROADCAST,
    /* What NCCL has no call of its own for: */
    DDL_OFFLOAD_REDUCE_SCATTERV, /* what ranks send to one is reduced there, into its `to` */
    DDL_OFFLOAD_MOVES            /* each rank sends something to some others */
} ddl_offload_kind;

typedef struct ddl_offload_move { /* between this rank and one of all, itself included */
    const void *from;
    size_t sent_bytes; /* 0: nothing is sent */
    void *to;
    size_t received_bytes;
} ddl_offload_move;

typedef struct ddl_offload_call {
    ddl_offload_kind kind;
    const void *in;
    void *out;
    size_t count; /* elements, as in the public call */
    ddl_dtype dtype;
    ddl_op op;
    int root;
    int nranks;
    const ddl_offload_move *moves; /* one for each rank; read by start only */
} ddl_offload_call;

/* Hears what happens when nobody is there to be told, as a line for the log. Thread: any. */
typedef void ddl_offload_tell(const char *line);

/* Of failures: DDL_EDEVICE, with NCCL's text and the number of the GPU; DDL_EUNSUPPORTED: it is not
 * there, or too old; DDL_ENOMEM. */
struct ddl_offload_ops {
    uint32_t interface; /* DDL_OFFLOAD_INTERFACE of the build; first, for ever */
    /* gpu: as this process numbers them. May take a while. Thread: any, as for make_id. */
    ddl_status (*look_at_gpu)(int gpu, ddl_offload_facts *facts, ddl_error *err);
    /* What names a new communicator, to be told to its other ranks; they have to open it, as something waits
     * for them. May take a while. */
    ddl_status (*make_id)(int gpu, uint8_t id[DDL_OFFLOAD_ID_BYTES], ddl_error *err);
    /* Begin to meet the others. May take a while, with what comes before they meet. Thread: any, as above; it
     * may end before they have met. */
    ddl_status (*open)(int gpu, const uint8_t id[DDL_OFFLOAD_ID_BYTES], int rank, int nranks,
                       ddl_offload **offload, ddl_error *err);
    /* *is_open: it has met them. On failure, *is_others: another rank's part has failed, as far as
     * NCCL can tell. */
    ddl_status (*look_at_opening)(ddl_offload *offload, bool *is_open, bool *is_others, ddl_error *err);
    /* Begin a call; they run one after the other. *taken false: there is no room now, ask again. */
    ddl_status (*start)(ddl_offload *offload, const ddl_offload_call *call, bool *taken, ddl_error *err);
    /* *nended: how many calls have ended, since it was opened. *is_others: as above. */
    ddl_status (*look)(ddl_offload *offload, uint64_t *nended, bool *is_others, ddl_error *err);
    /* Begin to stop whatever is under way; again, if it could not begin. Only this, settle and close may
     * follow. */
    void (*abort)(ddl_offload *offload);
    /* Block until buffers of what was aborted are not touched any more, but not for longer than that. False:
     * they may be. */
    bool (*settle)(ddl_offload *offload, int timeout_ms);
    /* Begin to part from the others, where nothing is under way. Only this, abort, settle and close may
     * follow. If others do not part it is aborted after some seconds, which is told (NULL: to nobody), by a
     * thread of its own. */
    void (*part)(ddl_offload *offload, ddl_offload_tell *tell);
    /* Part from the others, if that was not begun; blocks, but not for longer than that. What has not ended
     * then goes on by itself. NULL is fine. */
    void (*close)(ddl_offload *offload, int timeout_ms);
};

/* Changes with anything above. */
enum { DDL_OFFLOAD_INTERFACE = 4 };

/* What the plugin exports as "ddl_cuda_offload". NULL: err tells why not. */
typedef const struct ddl_offload_ops *ddl_offload_plugin(ddl_error *err);

#endif
