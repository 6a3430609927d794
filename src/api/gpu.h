/*
 * gpu.h - whether buffers of a call are memory of a GPU, and how such a call is then performed.
 *
 * A process that has not loaded the CUDA driver has no device memory, so a program of the host pays for one
 * look at what it has loaded. The plugin that knows CUDA is loaded at the first buffer that needs it.
 */
#ifndef DDL_API_GPU_H
#define DDL_API_GPU_H

#include "api/issue.h"
#include "backend/offload.h"
#include "io/loaded.h"

/* Whether it is worth asking where buffers are. are_known: they are those of the call before, so that, where
 * there was no driver then, they are not looked at as closely as to see that there is one now. Thread: any.
 */
static inline bool ddl_gpu_may_be_used(bool are_known)
{
    return are_known ? ddl_loaded_may_be_there() : ddl_loaded_is_news();
}

/* Whether buffers of this process may come to be memory of a GPU: there is a driver. Loads nothing. Thread:
 * any. */
bool ddl_gpu_may_be_there(void);

/* Whether buffers of this process may come to be memory of a GPU that NCCL can use: this ddl knows NCCL, and
 * there is a driver. Loads nothing. Thread: any. */
bool ddl_gpu_is_likely(void);

/*
 * Look at the buffers of a call that has been checked, and set its staging if they are device memory, or its
 * refusal if that cannot be used: the text says why, and what was looked for where. DDL_EINVAL: they are not
 * all of one GPU. Thread: the one that issues.
 */
ddl_status ddl_gpu_look(ddl_comm *comm, ddl_call *call);

/* A call whose buffers had been found good cannot begin after all. */
void ddl_gpu_refuse(ddl_call *call, const ddl_error *error);

/* The plugin, loaded if need be. DDL_EUNSUPPORTED: there is none, or it is not of this build; DDL_EDEVICE:
 * there is no driver. Thread: any. */
ddl_status ddl_gpu_plugin(const struct ddl_device_ops **ops, ddl_error *err);

/* Streams that wait for operations of this communicator go on, as nobody can end them; NULL: all, as the
 * process ends. Thread: any. */
void ddl_gpu_let_go(const ddl_comm *comm);

/* What calls that GPUs perform among themselves need. May take long: NCCL is loaded. DDL_EUNSUPPORTED,
 * DDL_EDEVICE: why there is none. Thread: any. */
DDL_MUST_USE ddl_status ddl_gpu_find_offload(const struct ddl_offload_ops **ops, ddl_error *err);

/* A warning in the log, as ddl_offload_tell. Thread: any. */
void ddl_gpu_warn(const char *line);

/* Whether it is managed memory, as far as the driver can tell. NULL is not. Thread: any. */
bool ddl_gpu_is_managed(const void *memory);

/* Nothing may be in flight. */
void ddl_gpu_forget(ddl_comm *comm);

#endif
