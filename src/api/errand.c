/* errand.c - a thread for what NCCL takes long for, and what it has found. */
#include "api/errand.h"

#include "api/gpu.h"
#include "api/offloading.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <string.h>

enum { LOOK_US = 50 };

typedef enum state { GOES, DONE, LEFT } state;

struct ddl_errand {
    _Atomic state state; /* who comes second, to the end or to leaving, frees it */
    ddl_status (*work)(ddl_errand *errand);
    int gpu, rank, nranks;
    const struct ddl_offload_ops *ops;
    ddl_offload_facts facts;
    uint8_t id[DDL_OFFLOAD_ID_BYTES];
    ddl_offload *offload; /* that nobody has taken yet; else NULL */
    ddl_status status;
    ddl_error error;
};

static ddl_status look(ddl_errand *errand)
{
    DDL_TRY(ddl_gpu_find_offload(&errand->ops, &errand->error));
    return errand->ops->look_at_gpu(errand->gpu, &errand->facts, &errand->error);
}

static ddl_status name(ddl_errand *errand)
{
    return errand->ops->make_id(errand->gpu, errand->id, &errand->error);
}

static ddl_status open_it(ddl_errand *errand)
{
    return errand->ops->open(errand->gpu, errand->id, errand->rank, errand->nranks, &errand->offload,
                             &errand->error);
}

static void end(ddl_errand *errand, int timeout_ms)
{
    if (errand->offload != NULL) {
        errand->ops->abort(errand->offload);
        errand->ops->close(errand->offload, timeout_ms);
    }
    ddl_free(errand);
}

static void *run(void *arg)
{
    ddl_errand *errand = arg;
    errand->status = errand->work(errand);
    if (atomic_exchange(&errand->state, DONE) == LEFT)
        end(errand, DDL_OFFLOADING_CLOSE_MS);
    return NULL;
}

static ddl_status create(ddl_status (*work)(ddl_errand *errand), const struct ddl_offload_ops *ops, int gpu,
                         ddl_errand **out, ddl_error *err)
{
    ddl_errand *errand = ddl_alloc(sizeof *errand);
    if (errand == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for NCCL");
    atomic_init(&errand->state, GOES);
    errand->work = work;
    errand->ops = ops;
    errand->gpu = gpu;
    *out = errand;
    return DDL_OK;
}

/* Where there is no thread for it others wait. */
static void begin(ddl_errand *errand)
{
    if (DDL_FAILPOINT("api.thread") || ddl_thread_start_detached(run, errand) != 0)
        run(errand);
}

ddl_status ddl_errand_look(int gpu, ddl_errand **errand, ddl_error *err)
{
    DDL_TRY(create(look, NULL, gpu, errand, err));
    begin(*errand);
    return DDL_OK;
}

ddl_status ddl_errand_name(const struct ddl_offload_ops *ops, int gpu, ddl_errand **errand, ddl_error *err)
{
    DDL_TRY(create(name, ops, gpu, errand, err));
    begin(*errand);
    return DDL_OK;
}

ddl_status ddl_errand_open(const struct ddl_offload_ops *ops, int gpu, const uint8_t id[DDL_OFFLOAD_ID_BYTES],
                           int rank, int nranks, ddl_errand **errand, ddl_error *err)
{
    DDL_TRY(create(open_it, ops, gpu, errand, err));
    memcpy((*errand)->id, id, DDL_OFFLOAD_ID_BYTES);
    (*errand)->rank = rank;
    (*errand)->nranks = nranks;
    begin(*errand);
    return DDL_OK;
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
    DDL_ASSERT(errand->work == look);
    DDL_TRY(status_of(errand, err));
    *ops = errand->ops;
    *facts = errand->facts;
    return DDL_OK;
}

ddl_status ddl_errand_named(const ddl_errand *errand, uint8_t id[DDL_OFFLOAD_ID_BYTES], ddl_error *err)
{
    DDL_ASSERT(errand->work == name);
    DDL_TRY(status_of(errand, err));
    memcpy(id, errand->id, DDL_OFFLOAD_ID_BYTES);
    return DDL_OK;
}

ddl_status ddl_errand_opened(ddl_errand *errand, ddl_offload **offload, ddl_error *err)
{
    DDL_ASSERT(errand->work == open_it);
    DDL_TRY(status_of(errand, err));
    *offload = errand->offload;
    errand->offload = NULL;
    return DDL_OK;
}

void ddl_errand_leave(ddl_errand *errand, int timeout_ms)
{
    const ddl_deadline deadline = ddl_deadline_in_ms(timeout_ms);
    if (errand == NULL)
        return;
    while (errand->work == open_it && !ddl_errand_is_done(errand) && !ddl_deadline_passed(deadline))
        ddl_pause_us(LOOK_US);
    if (atomic_exchange(&errand->state, LEFT) == DONE)
        end(errand, ddl_deadline_left_ms(deadline));
}
