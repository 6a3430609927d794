/* local_device.c - which GPU of its host a rank is to use. */
#include "api/gpu.h"
#include "api/last_error.h"

#include <ddl/cuda.h>

/* As the launcher counts, which may have shared out CPUs so too; else in the order of ranks. */
static int local_rank(const ddl_world *world)
{
    return world->config.local_rank >= 0 ? world->config.local_rank
                                         : world->roster->local_rank_of[world->config.rank];
}

int ddl_local_device(const ddl_comm *comm)
{
    const struct ddl_device_ops *ops;
    ddl_error error;
    int gpus = 0;
    if (ddl_comm_check(comm, "local_device") != DDL_OK)
        return -1;
    const ddl_world *world = comm->world;
    ddl_status status =
        world->config.has_gpu
            ? ddl_gpu_plugin(&ops, &error)
            : DDL_FAIL(&error, DDL_EUNSUPPORTED, "ranks have no GPUs of their own (DDL_GPU_POLICY=none)");
    if (status == DDL_OK)
        status = ops->count(&gpus, &error);
    if (status == DDL_OK && gpus == 0)
        status = DDL_FAIL(&error, DDL_EDEVICE,
                          "this process sees no GPU; is CUDA_VISIBLE_DEVICES empty, or --gloo given?");
    if (status == DDL_OK)
        return local_rank(world) % gpus;
    (void)ddl_last_error_set(status, comm->rank, "local_device", "%s", error.text);
    return -1;
}
