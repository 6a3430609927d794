/*
 * errand.h - what takes long before the first call can go to GPUs, done by a thread of its own.
 *
 * Finding NCCL may mean loading hundreds of megabytes, it looks at networks before it names a
 * communicator, and sets up much before that begins to meet others; whoever has the baton must not wait for
 * that. The thread touches nothing but the errand. So
 * a communicator that has failed, or is freed, leaves its errand. The process may end meanwhile; but where
 * the thread is in dlopen, the system's loader keeps the end waiting until that has returned.
 */
#ifndef DDL_API_ERRAND_H
#define DDL_API_ERRAND_H

#include "backend/offload.h"

typedef struct ddl_errand ddl_errand;

/* Begin to find NCCL, and what it says of a GPU. As the next two: DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_errand_look(int gpu, ddl_errand **errand, ddl_error *err);

/* Begin to make what names a communicator. */
DDL_MUST_USE ddl_status ddl_errand_name(const struct ddl_offload_ops *ops, int gpu, ddl_errand **errand,
                                        ddl_error *err);

/* Begin to open a communicator that was named. */
DDL_MUST_USE ddl_status ddl_errand_open(const struct ddl_offload_ops *ops, int gpu,
                                        const uint8_t id[DDL_OFFLOAD_ID_BYTES], int rank, int nranks,
                                        ddl_errand **errand, ddl_error *err);

bool ddl_errand_is_done(const ddl_errand *errand);

/* What it has found, once it is done; each kind of errand has a result of its own. As ddl_gpu_find_offload
 * and ddl_offload_ops.look_at_gpu. */
DDL_MUST_USE ddl_status ddl_errand_found(const ddl_errand *errand, const struct ddl_offload_ops **ops,
                                         ddl_offload_facts *facts, ddl_error *err);

/* What it has made, once it is done. As ddl_offload_ops.make_id. */
DDL_MUST_USE ddl_status ddl_errand_named(const ddl_errand *errand, uint8_t id[DDL_OFFLOAD_ID_BYTES],
                                         ddl_error *err);

/* What it has opened, once it is done: the caller closes it. As ddl_offload_ops.open. */
DDL_MUST_USE ddl_status ddl_errand_opened(ddl_errand *errand, ddl_offload **offload, ddl_error *err);

/* Done or not: it is not looked at again. What it has opened, or will have, and nobody has taken is aborted
 * and closed; for that this blocks, but not for longer than that. What has not ended then goes on by itself.
 * NULL is fine. */
void ddl_errand_leave(ddl_errand *errand, int timeout_ms);

#endif
