/* errand.c - a thread for what a library on GPUs takes long for, and what it has found. */
#include "api/errand.h"

#include "api/gpu.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <string.h>

typedef enum state { GOES, DONE, LEFT } state;

struct ddl_errand {
    _Atomic state state; /* who comes second, to the end or to leaving, frees it */
    int gpu;
    const struct ddl_offload_ops *ops; /* NULL: to be found */
    ddl_offload_facts facts;
    uint8_t id[DDL_OFFLOAD_ID_BYTES];
    ddl_status status;
    ddl_error error;
};

static ddl_status look(ddl_errand *errand)
{
    DDL_TRY(ddl_gpu_find_offload(&errand->ops, &errand->error));
    return errand->ops->look_at_gpu(errand->gpu, &errand->facts, &errand->error);
}

static void *run(void *arg)
{
    ddl_errand *errand = arg;
    errand->status =
        errand->ops != NULL ? errand->ops->make_id(errand->gpu, errand->id, &errand->error) : look(errand);
    if (atomic_exchange(&errand->state, DONE) == LEFT)
        ddl_free(errand);
    return NULL;
}

/* Where there is no thread for it others wait. */
static ddl_errand *begin(const struct ddl_offload_ops *ops, int gpu)
{
    ddl_errand *errand = ddl_alloc(sizeof *errand);
    if (errand == NULL)
        return NULL;
    atomic_init(&errand->state, GOES);
    errand->ops = ops;
    errand->gpu = gpu;
    if (DDL_FAILPOINT("api.thread") || ddl_thread_start_detached(run, errand) != 0)
        run(errand);
    return errand;
}

ddl_errand *ddl_errand_look(int gpu)
{
    return begin(NULL, gpu);
}

ddl_errand *ddl_errand_name(const struct ddl_offload_ops *ops, int gpu)
{
    return begin(ops, gpu);
}

bool ddl_errand_is_done(const ddl_errand *errand)
{
    return atomic_load(&errand->state) == DONE;
}

static ddl_status status_of(const ddl_errand *errand, ddl_error *err)
{
    if (errand->status != DDL_OK)
        *err = errand->error;
    return errand->status;
}

ddl_status ddl_errand_found(const ddl_errand *errand, const struct ddl_offload_ops **ops,
                            ddl_offload_facts *facts, ddl_error *err)
{
    DDL_TRY(status_of(errand, err));
    *ops = errand->ops;
    *facts = errand->facts;
    return DDL_OK;
}

ddl_status ddl_errand_named(const ddl_errand *errand, uint8_t id[DDL_OFFLOAD_ID_BYTES], ddl_error *err)
{
    DDL_TRY(status_of(errand, err));
    memcpy(id, errand->id, DDL_OFFLOAD_ID_BYTES);
    return DDL_OK;
}

void ddl_errand_leave(ddl_errand *errand)
{
    if (errand != NULL && atomic_exchange(&errand->state, LEFT) == DONE)
        ddl_free(errand);
}
