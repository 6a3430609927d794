/* offloading.c - the end of what a communicator has at NCCL, and what is told of it. */
#include "api/offloading.h"

#include "api/gpu.h"
#include "api/turns.h"
#include "base/log.h"

void ddl_offloading_init(ddl_offloading *own)
{
    *own = (ddl_offloading){ .gpu = -1, .turn = ddl_turn_number() };
}

void ddl_offloading_abort(ddl_offloading *own)
{
    if (own->offload != NULL)
        own->ops->abort(own->offload);
}

void ddl_offloading_give_up_on(ddl_offloading *own, const char *prefix)
{
    own->is_closing = true;
    own->close_by = ddl_now_ns();
    ddl_log(DDL_LOG_WARNING, "%s: GPU %d: NCCL does not stop; it may still write to buffers of its calls",
            prefix, own->gpu);
}

void ddl_offloading_begin_close(ddl_offloading *own, bool has_failed, ddl_deadline latest)
{
    if (own->ops == NULL || own->is_closing)
        return;
    if (has_failed)
        ddl_offloading_abort(own);
    else if (own->offload != NULL)
        own->ops->part(own->offload, ddl_gpu_warn);
    own->is_closing = true;
    own->close_by = ddl_deadline_earlier(ddl_deadline_in_ms(DDL_OFFLOADING_CLOSE_MS), latest);
}

void ddl_offloading_close(ddl_offloading *own)
{
    if (own->ops != NULL)
        own->ops->close(own->offload, ddl_deadline_left_ms(own->close_by));
}

ddl_status ddl_offloading_unusable(ddl_error *err, const char *reason)
{
    return DDL_FAIL(err, DDL_EDEVICE,
                    "DDL_GPU=nccl, but NCCL cannot be used: %.340s; DDL_GPU=staged goes without it", reason);
}

void ddl_offloading_tell_usable(const char *prefix, const ddl_offload_facts *facts)
{
    ddl_log(DDL_LOG_DEBUG, "%s: calls on buffers of GPUs go to NCCL %u", prefix, facts->version);
}
