/* backend_nccl.c - offload.h over NCCL: a communicator that never blocks, and a stream with its calls. */
#include "backend/offload.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/failpoint.h"
#include "base/thread.h"
#include "cuda/driver.h"
#include "cuda/nccl_library.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MARKS = 16 /* calls in the stream, at most */,
    LOOK_US = 50,
    LOOK_SELDOM_US = 20000,
    PART_MS = 5000 /* others that free the communicator do so within 4 s */
};

/* What NCCL may block in, a thread of its own does; who waits for that gives up after a while. */
typedef struct farewell {
    const nccl_library *nccl;
    nccl_comm *comm;
    CUcontext context;
    const ddl_driver *driver;
    int gpu, nranks;
    bool graceful;
    ddl_offload_tell *tell; /* or NULL */
    atomic_bool ended;
    atomic_int holders; /* the offload, and the thread if there is one: the last one frees it */
} farewell;

struct ddl_offload {
    const nccl_library *nccl;
    const ddl_driver *driver;
    int gpu;
    CUdevice device;
    CUcontext context; /* the GPU's primary one */
    CUstream stream;
    nccl_comm *comm;
    CUevent marks[MARKS]; /* of call n: n modulo MARKS */
    uint64_t nbegun, nmarked, nended;
    const char *last;  /* the function that began what is under way */
    farewell *parting; /* made with the communicator, so that stopping it needs no memory */
    bool is_parting;
};

static CUresult enter(const ddl_offload *offload)
{
    return ddl_driver_enter(offload->driver, offload->context);
}

static void leave(const ddl_offload *offload)
{
    ddl_driver_leave(offload->driver);
}

static ddl_status driver_failed(const ddl_offload *offload, CUresult result, const char *call, ddl_error *err)
{
    return ddl_driver_failed(offload->driver, result, call, offload->gpu, err);
}

/* One line of text, whatever the library has put together. */
static void clean(char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = ' ';
}

static ddl_status nccl_failed(const nccl_library *nccl, int gpu, nccl_comm *comm, nccl_result result,
                              const char *call, ddl_error *err)
{
    const char *text = nccl->ncclGetErrorString(result);
    const char *more = comm != NULL ? nccl->ncclGetLastError(comm) : NULL;
    DDL_FAIL(err, DDL_EDEVICE, "GPU %d: NCCL %d.%d.%d: %s: %.100s%s%.160s", gpu, nccl->version / 10000,
             nccl->version / 100 % 100, nccl->version % 100, call, text != NULL ? text : "an unknown error",
             more != NULL && more[0] != '\0' ? ": " : "", more != NULL ? more : "");
    clean(err->text);
    return DDL_EDEVICE;
}

/* ---- facts ---- */

static ddl_status find_libraries(const ddl_driver **driver, const nccl_library **nccl, ddl_error *err)
{
    DDL_TRY(ddl_driver_find(driver, err));
    return ddl_nccl_find(nccl, err);
}

/* NCCL heeds them more than what it is told. By the one it would block whoever drives, and with it what ends
 * calls. By the other all communicators of the process have one id, without a secret in it: an address, at
 * which rank 0 of each has to listen, so that ranks of two parts may meet each other. */
static ddl_status check_environment(ddl_error *err)
{
    const char *blocking = getenv("NCCL_COMM_BLOCKING"), *id = getenv("NCCL_COMM_ID");
    if (id != NULL)
        return DDL_FAIL(err, DDL_EUNSUPPORTED,
                        "NCCL_COMM_ID=%.60s would give all communicators of NCCL the same id; unset it", id);
    if (blocking == NULL || blocking[0] == '\0' || strcmp(blocking, "0") == 0)
        return DDL_OK;
    return DDL_FAIL(err, DDL_EUNSUPPORTED,
                    "NCCL_COMM_BLOCKING=%.20s would have NCCL block; unset it, or set it to 0", blocking);
}

/* By its own variable, which versions before 2.30 do not know; they refuse when they meet. */
static bool may_share_gpu(void)
{
    const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return shares != NULL && atoi(shares) != 0;
}

static ddl_status look_at_gpu(int gpu, ddl_offload_facts *facts, ddl_error *err)
{
    const ddl_driver *driver;
    const nccl_library *nccl;
    DDL_TRY(check_environment(err));
    DDL_TRY(find_libraries(&driver, &nccl, err));
    CUdevice device;
    CUuuid uuid;
    if (driver->cuDeviceGetUuid == NULL)
        return DDL_FAIL(
            err, DDL_EUNSUPPORTED,
            "the CUDA driver, libcuda.so.1, has no cuDeviceGetUuid_v2, which tells GPUs apart: it "
            "is older than CUDA 11.4");
    CUresult result = driver->cuDeviceGet(&device, gpu);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetUuid(&uuid, device);
    if (result != CUDA_SUCCESS)
        return ddl_driver_failed(driver, result, "cuDeviceGetUuid", gpu, err);
    facts->version = (uint32_t)nccl->version;
    facts->shares_gpu = may_share_gpu();
    memcpy(facts->gpu_id, &uuid, DDL_GPU_ID_BYTES);
    return DDL_OK;
}

/* ---- life ---- */

static void let_go(farewell *parting)
{
    if (atomic_fetch_sub(&parting->holders, 1) == 1)
        free(parting);
}

static bool is_well(nccl_result result)
{
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
}

static void tell_of_no_end(const farewell *parting)
{
    char line[200];
    snprintf(line, sizeof line, "GPU %d: %s within %d s%s; it is aborted here", parting->gpu,
             parting->nranks > 1 ? "other ranks have not parted at NCCL"
                                 : "NCCL has not ended its communicator of one rank",
             PART_MS / 1000, parting->nranks > 1 ? ", as where one has died" : "");
    if (parting->tell != NULL)
        parting->tell(line);
}

/* All ranks have to, and one may never do; nor may NCCL itself. False: it has to be aborted. */
static bool finalize(const farewell *parting)
{
    const ddl_deadline deadline = ddl_deadline_in_ms(PART_MS);
    int look_us = LOOK_US;
    nccl_result state = parting->nccl->ncclCommFinalize(parting->comm);
    while (is_well(state)) {
        if (parting->nccl->ncclCommGetAsyncError(parting->comm, &state) != NCCL_SUCCESS)
            return false;
        if (state == NCCL_SUCCESS)
            return true;
        if (ddl_deadline_passed(deadline)) {
            tell_of_no_end(parting);
            return false;
        }
        ddl_pause_us(look_us);
        if (look_us < LOOK_SELDOM_US)
            look_us *= 2;
    }
    return false;
}

static void *part(void *arg)
{
    farewell *parting = arg;
    /* The thread ends with it. A driver that has gone, at the end of the process, must not be called by NCCL.
     */
    const bool has_gone = ddl_driver_enter(parting->driver, parting->context) == CUDA_ERROR_DEINITIALIZED;
    if (!has_gone && parting->graceful && finalize(parting))
        (void)parting->nccl->ncclCommDestroy(parting->comm);
    else if (!has_gone)
        (void)parting->nccl->ncclCommAbort(parting->comm);
    atomic_store(&parting->ended, true);
    let_go(parting);
    return NULL;
}

/* Where there is no thread for it what is under way stays so, and settle and close see that. */
static void begin_parting(ddl_offload *offload, bool graceful, ddl_offload_tell *tell)
{
    farewell *parting = offload->parting;
    if (offload->is_parting || offload->comm == NULL)
        return;
    parting->nccl = offload->nccl;
    parting->comm = offload->comm;
    parting->context = offload->context;
    parting->driver = offload->driver;
    parting->gpu = offload->gpu;
    parting->graceful = graceful;
    parting->tell = tell;
    atomic_store(&parting->holders, 2);
    offload->is_parting = !DDL_FAILPOINT("nccl.part") && ddl_thread_start_detached(part, parting) == 0;
    if (!offload->is_parting)
        atomic_store(&parting->holders, 1);
}

static bool has_parted(ddl_offload *offload, int timeout_ms)
{
    ddl_deadline deadline = ddl_deadline_in_ms(timeout_ms);
    if (offload->comm == NULL)
        return true;
    if (!offload->is_parting)
        return false;
    while (!atomic_load(&offload->parting->ended) && !ddl_deadline_passed(deadline))
        ddl_pause_us(LOOK_US);
    return atomic_load(&offload->parting->ended);
}

static void abort_offload(ddl_offload *offload)
{
    begin_parting(offload, false, NULL);
}

static void part_offload(ddl_offload *offload, ddl_offload_tell *tell)
{
    begin_parting(offload, true, tell);
}

/* NCCL's end is not yet that of the stream, which may have to see that its kernel was told to stop. */
static bool settle(ddl_offload *offload, int timeout_ms)
{
    ddl_deadline deadline = ddl_deadline_in_ms(timeout_ms);
    if (!has_parted(offload, timeout_ms))
        return false;
    if (offload->stream == NULL)
        return true;
    if (enter(offload) != CUDA_SUCCESS)
        return false;
    CUresult result;
    while ((result = offload->driver->cuStreamQuery(offload->stream)) == CUDA_ERROR_NOT_READY &&
           !ddl_deadline_passed(deadline))
        ddl_pause_us(LOOK_US);
    leave(offload);
    return result != CUDA_ERROR_NOT_READY;
}

/* The context stays for the life of the process, as that of the copies does. */
static void free_of_driver(ddl_offload *offload)
{
    if (offload->context == NULL)
        return;
    if (enter(offload) == CUDA_SUCCESS) {
        for (int i = 0; i < MARKS; i++)
            if (offload->marks[i] != NULL)
                (void)offload->driver->cuEventDestroy(offload->marks[i]);
        if (offload->stream != NULL)
            (void)offload->driver->cuStreamDestroy(offload->stream);
        leave(offload);
    }
}

static void close_offload(ddl_offload *offload, int timeout_ms)
{
    if (offload == NULL)
        return;
    begin_parting(offload, true, NULL);
    if (has_parted(offload, timeout_ms) && settle(offload, 0))
        free_of_driver(offload);
    if (offload->parting != NULL)
        let_go(offload->parting);
    ddl_free(offload);
}

/* A stream that waits for nobody else's, and its marks. */
static ddl_status make_stream(ddl_offload *offload, ddl_error *err)
{
    const ddl_driver *driver = offload->driver;
    CUresult result = driver->cuDeviceGet(&offload->device, offload->gpu);
    if (result != CUDA_SUCCESS)
        return driver_failed(offload, result, "cuDeviceGet", err);
    result = driver->cuDevicePrimaryCtxRetain(&offload->context, offload->device);
    if (result != CUDA_SUCCESS) {
        offload->context = NULL;
        return driver_failed(offload, result, "cuDevicePrimaryCtxRetain", err);
    }
    result = enter(offload);
    if (result != CUDA_SUCCESS)
        return driver_failed(offload, result, "cuCtxPushCurrent", err);
    result = driver->cuStreamCreateWithPriority(&offload->stream, CU_STREAM_NON_BLOCKING, 0);
    for (int i = 0; i < MARKS && result == CUDA_SUCCESS; i++)
        result = driver->cuEventCreate(&offload->marks[i], CU_EVENT_DISABLE_TIMING);
    leave(offload);
    return result == CUDA_SUCCESS ? DDL_OK : driver_failed(offload, result, "cuEventCreate", err);
}

static ddl_status begin_to_meet(ddl_offload *offload, const uint8_t *id, int rank, int nranks, ddl_error *err)
{
    nccl_id name;
    memcpy(name.bytes, id, sizeof name.bytes);
    nccl_config config = { .bytes = sizeof config,
                           .magic = (unsigned)NCCL_MAGIC,
                           .version = NCCL_CONFIG_VERSION,
                           .blocking = 0,
                           .unset = INT_MIN };
    CUresult entered = enter(offload);
    if (entered != CUDA_SUCCESS)
        return driver_failed(offload, entered, "cuCtxPushCurrent", err);
    nccl_result result = offload->nccl->ncclCommInitRankConfig(&offload->comm, nranks, name, rank, &config);
    leave(offload);
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
        return DDL_OK;
    return nccl_failed(offload->nccl, offload->gpu, offload->comm, result, "ncclCommInitRankConfig", err);
}

static ddl_status open_offload(int gpu, const uint8_t id[DDL_OFFLOAD_ID_BYTES], int rank, int nranks,
                               ddl_offload **out, ddl_error *err)
{
    ddl_offload *offload = ddl_alloc(sizeof *offload);
    if (offload == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for NCCL");
    offload->gpu = gpu;
    offload->parting = calloc(1, sizeof *offload->parting);
    if (offload->parting == NULL) {
        ddl_free(offload);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for NCCL");
    }
    atomic_init(&offload->parting->holders, 1);
    offload->parting->nranks = nranks;
    ddl_status status = find_libraries(&offload->driver, &offload->nccl, err);
    if (status == DDL_OK)
        status = make_stream(offload, err);
    if (status == DDL_OK)
        status = begin_to_meet(offload, id, rank, nranks, err);
    if (status != DDL_OK) {
        abort_offload(offload);
        close_offload(offload, 0);
        return status;
    }
    *out = offload;
    return DDL_OK;
}

static ddl_status make_id(int gpu, uint8_t id[DDL_OFFLOAD_ID_BYTES], ddl_error *err)
{
    const ddl_driver *driver;
    const nccl_library *nccl;
    nccl_id made;
    DDL_TRY(find_libraries(&driver, &nccl, err));
    nccl_result result = nccl->ncclGetUniqueId(&made);
    if (result != NCCL_SUCCESS)
        return nccl_failed(nccl, gpu, NULL, result, "ncclGetUniqueId", err);
    memcpy(id, made.bytes, sizeof made.bytes);
    return DDL_OK;
}

/* ---- calls ---- */

/* What NCCL has no type for goes as bytes. */
static nccl_type type_of(ddl_dtype dtype, size_t *count)
{
    switch (dtype) {
    case DDL_INT8:
        return NCCL_INT8;
    case DDL_INT32:
        return NCCL_INT32;
    case DDL_UINT32:
        return NCCL_UINT32;
    case DDL_INT64:
        return NCCL_INT64;
    case DDL_UINT64:
        return NCCL_UINT64;
    case DDL_FLOAT16:
        return NCCL_FLOAT16;
    case DDL_BFLOAT16:
        return NCCL_BFLOAT16;
    case DDL_FLOAT32:
        return NCCL_FLOAT32;
    case DDL_FLOAT64:
        return NCCL_FLOAT64;
    case DDL_INT16:
    case DDL_UINT16:
        *count *= 2;
        return NCCL_UINT8;
    case DDL_UINT8:
        break;
    }
    return NCCL_UINT8;
}

static nccl_op op_of(ddl_op op)
{
    switch (op) {
    case DDL_PROD:
        return NCCL_PROD;
    case DDL_MIN:
        return NCCL_MIN;
    case DDL_MAX:
        return NCCL_MAX;
    default:
        return NCCL_SUM;
    }
}

static nccl_result move_with(const ddl_offload *offload, int rank, const ddl_offload_move *move)
{
    const nccl_library *nccl = offload->nccl;
    nccl_result result = NCCL_SUCCESS;
    if (move->sent_bytes > 0)
        result =
            nccl->ncclSend(move->from, move->sent_bytes, NCCL_UINT8, rank, offload->comm, offload->stream);
    if (move->received_bytes > 0 && is_well(result))
        result =
            nccl->ncclRecv(move->to, move->received_bytes, NCCL_UINT8, rank, offload->comm, offload->stream);
    return result;
}

/* What all have for this rank is reduced there. */
static nccl_result reduce_at(const ddl_offload *offload, const ddl_offload_call *call, int rank)
{
    const ddl_offload_move *move = &call->moves[rank];
    size_t count = move->sent_bytes / ddl_dtype_bytes(call->dtype);
    nccl_type type = type_of(call->dtype, &count);
    if (count == 0)
        return NCCL_SUCCESS;
    return offload->nccl->ncclReduce(move->from, move->to, count, type, op_of(call->op), rank, offload->comm,
                                     offload->stream);
}

/* All of it at once, as one call. */
static nccl_result group(const ddl_offload *offload, const ddl_offload_call *call)
{
    nccl_result result = offload->nccl->ncclGroupStart();
    if (result != NCCL_SUCCESS)
        return result;
    for (int rank = 0; rank < call->nranks && is_well(result); rank++)
        result = call->kind == DDL_OFFLOAD_MOVES ? move_with(offload, rank, &call->moves[rank])
                                                 : reduce_at(offload, call, rank);
    nccl_result ended = offload->nccl->ncclGroupEnd(); /* also after a failure: groups are the thread's */
    return is_well(result) ? ended : result;
}

static nccl_result perform(ddl_offload *offload, const ddl_offload_call *call)
{
    const nccl_library *nccl = offload->nccl;
    size_t count = call->count;
    nccl_type type = type_of(call->dtype, &count);
    nccl_op op = op_of(call->op);
    switch (call->kind) {
    case DDL_OFFLOAD_ALLREDUCE:
        offload->last = "ncclAllReduce";
        return nccl->ncclAllReduce(call->in, call->out, count, type, op, offload->comm, offload->stream);
    case DDL_OFFLOAD_REDUCE:
        offload->last = "ncclReduce";
        return nccl->ncclReduce(call->in, call->out, count, type, op, call->root, offload->comm,
                                offload->stream);
    case DDL_OFFLOAD_REDUCE_SCATTER:
        offload->last = "ncclReduceScatter";
        return nccl->ncclReduceScatter(call->in, call->out, count, type, op, offload->comm, offload->stream);
    case DDL_OFFLOAD_ALLGATHER:
        offload->last = "ncclAllGather";
        return nccl->ncclAllGather(call->in, call->out, count, type, offload->comm, offload->stream);
    case DDL_OFFLOAD_BROADCAST:
        offload->last = "ncclBroadcast";
        return nccl->ncclBroadcast(call->in, call->out, count, type, call->root, offload->comm,
                                   offload->stream);
    case DDL_OFFLOAD_REDUCE_SCATTERV:
        offload->last = "ncclReduce";
        return group(offload, call);
    case DDL_OFFLOAD_MOVES:
        break;
    }
    offload->last = "ncclSend and ncclRecv";
    return group(offload, call);
}

/* ---- looking ---- */

/* *moved_on: NCCL has done what it was asked; a communicator that does not block may still be about to put
 * a call into the stream. */
static ddl_status look_at_state(ddl_offload *offload, const char *call, bool *moved_on, bool *is_others,
                                ddl_error *err)
{
    nccl_result state = NCCL_SUCCESS;
    nccl_result result = offload->nccl->ncclCommGetAsyncError(offload->comm, &state);
    if (result == NCCL_SUCCESS)
        result = state;
    *moved_on = result == NCCL_SUCCESS;
    *is_others = result == NCCL_REMOTE_ERROR;
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
        return DDL_OK;
    return nccl_failed(offload->nccl, offload->gpu, offload->comm, result, call, err);
}

static ddl_status look_at_opening(ddl_offload *offload, bool *is_open, bool *is_others, ddl_error *err)
{
    return look_at_state(offload, "ncclCommInitRankConfig", is_open, is_others, err);
}

static ddl_status set_mark(ddl_offload *offload, ddl_error *err)
{
    CUresult result =
        offload->driver->cuEventRecord(offload->marks[offload->nmarked % MARKS], offload->stream);
    if (result != CUDA_SUCCESS)
        return driver_failed(offload, result, "cuEventRecord", err);
    offload->nmarked++;
    return DDL_OK;
}

static ddl_status look_at_marks(ddl_offload *offload, ddl_error *err)
{
    while (offload->nended < offload->nmarked) {
        CUresult result = offload->driver->cuEventQuery(offload->marks[offload->nended % MARKS]);
        if (result == CUDA_ERROR_NOT_READY)
            break;
        if (result != CUDA_SUCCESS)
            return driver_failed(offload, result, offload->last, err);
        offload->nended++;
    }
    return DDL_OK;
}

static ddl_status look_inside(ddl_offload *offload, bool *is_others, ddl_error *err)
{
    bool is_there = false;
    DDL_TRY(look_at_state(offload, offload->last, &is_there, is_others, err));
    if (is_there && offload->nmarked < offload->nbegun)
        DDL_TRY(set_mark(offload, err));
    return look_at_marks(offload, err);
}

static ddl_status look(ddl_offload *offload, uint64_t *nended, bool *is_others, ddl_error *err)
{
    *is_others = false;
    CUresult result = enter(offload);
    if (result != CUDA_SUCCESS)
        return driver_failed(offload, result, "cuCtxPushCurrent", err);
    ddl_status status = look_inside(offload, is_others, err);
    leave(offload);
    *nended = offload->nended;
    return status;
}

static ddl_status start(ddl_offload *offload, const ddl_offload_call *call, bool *taken, ddl_error *err)
{
    *taken = offload->nmarked == offload->nbegun && offload->nbegun - offload->nended < MARKS;
    if (!*taken)
        return DDL_OK;
    CUresult entered = enter(offload);
    if (entered != CUDA_SUCCESS)
        return driver_failed(offload, entered, "cuCtxPushCurrent", err);
    nccl_result result = perform(offload, call);
    ddl_status status = DDL_OK;
    offload->nbegun++;
    if (result == NCCL_SUCCESS)
        status = set_mark(offload, err);
    else if (result != NCCL_IN_PROGRESS)
        status = nccl_failed(offload->nccl, offload->gpu, offload->comm, result, offload->last, err);
    leave(offload);
    return status;
}

/* ---- the plugin ---- */

static const struct ddl_offload_ops ops = {
    .interface = DDL_OFFLOAD_INTERFACE,
    .look_at_gpu = look_at_gpu,
    .make_id = make_id,
    .open = open_offload,
    .look_at_opening = look_at_opening,
    .start = start,
    .look = look,
    .abort = abort_offload,
    .settle = settle,
    .part = part_offload,
    .close = close_offload,
};

ddl_offload_plugin ddl_cuda_offload;

const struct ddl_offload_ops *ddl_cuda_offload(ddl_error *err)
{
    const ddl_driver *driver;
    const nccl_library *nccl;
    return find_libraries(&driver, &nccl, err) == DDL_OK ? &ops : NULL;
}
