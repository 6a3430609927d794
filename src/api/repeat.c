/* repeat.c - keeps requests of calls over the board as they were described, and starts them again. */
#include "api/repeat.h"

#include "api/failure.h"

/* So that a loop of such calls takes notice of what comes by other ways; of messages that do not belong here
 * while what they are compared with is remembered, as no rank is further ahead than DDL_AHEAD. */
enum { SWEEP_EVERY = DDL_HISTORY / 4, DRIVE_EVERY = 256 };
_Static_assert((int)SWEEP_EVERY + (int)DDL_AHEAD < (int)DDL_HISTORY, "what comes late is still compared");

static void repeat_finished(ddl_task *task)
{
    (void)task; /* is not running any more, which is what is looked at */
}

static bool repeat_is_done(void *arg)
{
    ddl_request *request = arg;
    ddl_backend_progress(request->comm->backend);
    return !ddl_task_is_running(&request->task);
}

static void drop_repeat(ddl_repeat *repeat)
{
    if (repeat->request == NULL)
        return;
    repeat->plan->users--;
    ddl_request_give_back(repeat->request);
    repeat->request = NULL;
}

void ddl_repeat_forget(ddl_comm *comm)
{
    for (int i = 0; i < DDL_COLLECTIVE_COUNT; i++)
        drop_repeat(&comm->repeats[i]);
}

/* Room for the arrays of calls goes to a request that calls with arrays may have. */
static void leave_room(ddl_comm *comm, ddl_request *request)
{
    ddl_request *next = request->kept != NULL ? ddl_request_take(comm->pool) : NULL;
    if (next == NULL)
        return;
    if (next->kept == NULL) {
        next->kept = request->kept;
        next->kept_bytes = request->kept_bytes;
        request->kept = NULL;
        request->kept_bytes = 0;
    }
    ddl_request_give_back(next);
}

/* Candidates for votes are counted, by all ranks alike: one that is repeated would not be. */
bool ddl_repeat_keep(ddl_comm *comm, const ddl_call *call, ddl_request *request, ddl_plan *plan)
{
    if (request->vote.candidate != 0 || plan == NULL || request->status != DDL_OK || call->staging != NULL ||
        call->counts != NULL || call->as != 0)
        return false;
    ddl_repeat *repeat = &comm->repeats[call->collective];
    drop_repeat(repeat);
    leave_room(comm, request);
    plan->users++;
    *repeat = (ddl_repeat){ request,  plan,       call->count,    call->dtype,
                            call->op, call->root, call->in_place, call->extent };
    request->task.finished = repeat_finished;
    return true;
}

/* But for the buffers. */
static bool is_like(const ddl_repeat *repeat, const ddl_call *call)
{
    return repeat->request != NULL && repeat->count == call->count && repeat->dtype == call->dtype &&
           repeat->op == call->op && repeat->root == call->root && call->as == 0 && call->counts == NULL;
}

bool ddl_repeat_recall(const ddl_comm *comm, ddl_call *call)
{
    const ddl_repeat *repeat = &comm->repeats[call->collective];
    call->is_repeated = is_like(repeat, call);
    if (!call->is_repeated)
        return false;
    call->extent = repeat->extent;
    const ddl_task *task = &repeat->request->task;
    if (task->in != call->in || task->out != call->out)
        return false;
    call->in_place = repeat->in_place;
    return true;
}

/* Holder: the others are not there. From now on it is a request like others. */
static ddl_status wait_for_repeat(ddl_comm *comm, ddl_repeat *repeat)
{
    ddl_request *request = repeat->request;
    repeat->plan->users--;
    repeat->request = NULL;
    request->task.finished = ddl_issue_finished;
    request->timeout_ms = comm->timeout_ms;
    request->limit = ddl_comm_timeout_name(comm, request->timeout_ms);
    atomic_store(&request->done, false);
    request->told = false;
    ddl_comm_track(comm, request);
    ddl_failure_check_early(comm, request);
    ddl_failure_check_gone(comm, request);
    ddl_issue_set_deadline(request);
    ddl_mesh_flush(comm->mesh);
    return ddl_request_wait_entered(&request);
}

/* Inline in the path of small calls. */
static inline __attribute__((always_inline)) void leave(ddl_comm *comm)
{
    if (++comm->nrepeated % DRIVE_EVERY == 0)
        ddl_engine_progress(comm->engine);
    else if (comm->nrepeated % SWEEP_EVERY == 0)
        ddl_engine_sweep(comm->engine);
    ddl_engine_leave(comm->engine);
}

void ddl_repeat_leave(ddl_comm *comm)
{
    leave(comm);
}

bool ddl_repeat_call(ddl_comm *comm, const ddl_call *call, ddl_status *status)
{
    ddl_repeat *repeat = &comm->repeats[call->collective];
    if (!call->is_repeated || repeat->in_place != call->in_place || !ddl_engine_try_enter(comm->engine))
        return false;
    ddl_engine_drain(comm->engine);
    if (!ddl_failure_is_quiet(comm) || comm->world->nbusy > 0 || ddl_mesh_has_queued(comm->mesh)) {
        ddl_engine_leave(comm->engine);
        return false;
    }
    ddl_request *request = repeat->request;
    ddl_task *task = &request->task;
    task->in = call->in;
    task->out = call->out;
    task->sequence = ++comm->issued;
    (void)ddl_issue_remember(comm, task);
    if (!ddl_backend_repeat(task, repeat->plan, ddl_engine_looks(comm->engine)) &&
        !ddl_engine_linger(comm->engine, repeat_is_done, request)) {
        *status = wait_for_repeat(comm, repeat);
        return true;
    }
    leave(comm);
    *status = DDL_OK;
    return true;
}
