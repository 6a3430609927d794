/* abort.c - ends a communicator for everyone, because a thread of this rank says so. */
#include "api/abort.h"

#include "api/failure.h"
#include "api/gpu.h"
#include "api/last_error.h"

#include <stdio.h>

enum {
    LET_GO_MS = 400, /* for who has the engine, before what GPUs wait for is let go */
    LOOK_US = 500
};

/* The first of several has the last word. With the world's lock. */
static void end_alone(ddl_comm *comm, const ddl_notice *notice)
{
    if (!ddl_abort_of_alone(comm)) {
        comm->abort.alone_cause = *notice;
        atomic_store(&comm->abort.alone, true);
    }
}

void ddl_abort_alone_at_exit(ddl_world *world)
{
    atomic_store(&world->ends_alone, true); /* whoever is not found below sees that */
    pthread_mutex_lock(&world->lock);
    DDL_LIST_FOR_EACH (link, &world->comms) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, sibling);
        const ddl_notice notice = {
            .code = DDL_EABORTED, .culprit = comm->rank, .witness = comm->rank, .text = DDL_REQUEST_EXITED
        };
        if (atomic_load(&comm->abort.alone_in_offload))
            end_alone(comm, &notice);
    }
    pthread_mutex_unlock(&world->lock);
}

static bool is_any_alone_in_offload(ddl_world *world)
{
    bool is_any = false;
    pthread_mutex_lock(&world->lock);
    DDL_LIST_FOR_EACH (link, &world->comms)
        is_any = is_any || atomic_load(&DDL_CONTAINER(link, ddl_comm, sibling)->abort.alone_in_offload);
    pthread_mutex_unlock(&world->lock);
    return is_any;
}

void ddl_abort_await_alone_at_exit(ddl_world *world, ddl_deadline deadline)
{
    while (is_any_alone_in_offload(world) && !ddl_deadline_passed(deadline))
        ddl_pause_us(LOOK_US);
}

bool ddl_abort_hear(ddl_comm *comm)
{
    if (!ddl_abort_of_alone(comm))
        return false;
    if (!ddl_failure_is_final(comm))
        ddl_failure_end_alone(comm, &comm->abort.alone_cause);
    return true;
}

ddl_status ddl_abort_check_alone(const ddl_comm *comm, ddl_error *err)
{
    return ddl_abort_of_alone(comm) ? DDL_FAIL(err, DDL_EABORTED, "%s", comm->abort.alone_cause.text)
                                    : DDL_OK;
}

void ddl_abort_do_pending(ddl_comm *comm)
{
    if (!atomic_load(&comm->abort.pending))
        return;
    atomic_store(&comm->abort.pending, false);
    ddl_failure_raise(comm, &comm->abort.pending_notice);
}

/* The first of several has the last word. Whoever has the engine next does it. */
static void leave_to_holder(ddl_comm *comm, const ddl_notice *notice)
{
    pthread_mutex_lock(&comm->world->lock);
    if (comm->abort.pending_notice.code == DDL_OK) {
        comm->abort.pending_notice = *notice;
        atomic_store(&comm->abort.pending, true);
    }
    pthread_mutex_unlock(&comm->world->lock);
    ddl_world_tell_aborts(comm->world);
}

ddl_status ddl_comm_abort(ddl_comm *comm, const char *reason)
{
    DDL_TRY(ddl_comm_check_open(comm, "comm_abort"));
    ddl_notice notice = { .code = DDL_EABORTED, .culprit = comm->rank, .witness = comm->rank };
    char who[160];
    snprintf(notice.text, sizeof notice.text, "%s aborted it%s%.300s",
             ddl_comm_describe(comm, comm->rank, who, sizeof who), reason != NULL ? ": " : "",
             reason != NULL ? reason : "");
    for (char *c = notice.text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) /* as others will have it */
            *c = *c == '\n' || *c == '\r' ? ' ' : '?';
    if (comm->engine == NULL) {
        pthread_mutex_lock(&comm->world->lock);
        end_alone(comm, &notice);
        pthread_mutex_unlock(&comm->world->lock);
        return DDL_OK;
    }
    if (ddl_engine_enter(comm->engine, ddl_deadline_in_ms(LET_GO_MS))) {
        ddl_failure_raise(comm, &notice);
        ddl_mesh_flush(comm->mesh);
        ddl_engine_leave(comm->engine);
        return DDL_OK;
    }
    /* Who has it may be in a call of a GPU's driver that waits for a stream, which waits for an operation
     * that only the engine ends. */
    leave_to_holder(comm, &notice);
    ddl_gpu_let_go(comm);
    if (!ddl_engine_enter(comm->engine, ddl_deadline_in_ms(DDL_COMM_FREE_MS - LET_GO_MS))) {
        DDL_TRY(ddl_comm_check_open(comm, "comm_abort")); /* it was when this began */
        return ddl_last_error_set(DDL_ETIMEDOUT, comm->rank, "comm_abort",
                                  "the engine is stuck in another thread; when it goes on it aborts");
    }
    ddl_engine_leave(comm->engine);
    return DDL_OK;
}
