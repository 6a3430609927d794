/*
 * comm_leave.c - leaving a communicator: what is in flight ends, its ranks meet once more, and it is no more.
 */
#include "api/comm.h"

#include "api/alone.h"
#include "api/contexts.h"
#include "api/failure.h"
#include "api/gpu.h"
#include "api/issue.h"
#include "api/last_error.h"
#include "api/lateness.h"
#include "api/repeat.h"
#include "api/stream.h"
#include "api/votes.h"

#include <stdio.h>
#include <string.h>

enum {
    AGAIN_MS = 1000,  /* for a second meeting */
    LAST_MS = 900,    /* for what GPUs still do, in all communicators together, */
    LEAST_MS = 50,    /* but for each of them, as where another one's has taken all of that */
    LEAST_NAPS = 4000 /* for threads that have waited */
};

/* For whom all that is in flight waits; -1: for nobody who is known, or for several. */
static int find_awaited(const ddl_comm *comm)
{
    int found = -1, nlate;
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        const int late = ddl_lateness_find(comm, DDL_CONTAINER(link, ddl_request, link), &nlate);
        if (late < 0 || nlate > 1 || (found >= 0 && late != found))
            return -1;
        found = late;
    }
    return found;
}

/* What GPUs still do to buffers of what was abandoned, first of all; to be appended to an error. */
typedef struct going_on {
    char text[192];
} going_on;

/* Holder: end what is still in flight; nobody will drive it any more. */
static void abandon_operations(ddl_comm *comm, ddl_deadline stopped, going_on *left)
{
    ddl_notice *cause = &comm->pool->cause;
    const int awaited = find_awaited(comm), left_ms = ddl_deadline_left_ms(stopped);
    going_on here = { "" };
    const int at_nccl_ms = left_ms - DDL_DRAIN_MS; /* copies on another GPU are waited for, too */
    comm->is_abandoned = true;
    ddl_failure_cancel(comm, at_nccl_ms > LEAST_MS ? at_nccl_ms : LEAST_MS, here.text, sizeof here.text);
    if (!ddl_failure_is_final(comm) && !ddl_list_empty(&comm->in_flight)) {
        *cause = (ddl_notice){ .code = DDL_EABORTED, .culprit = awaited, .witness = -1 };
        snprintf(cause->text, sizeof cause->text,
                 "the communicator was freed before the operation had ended%s", here.text);
    }
    if (left->text[0] == '\0')
        *left = here;
    for (ddl_link *first; (first = ddl_list_first(&comm->in_flight)) != NULL;) {
        ddl_request *request = DDL_CONTAINER(first, ddl_request, link);
        ddl_comm_untrack(request);
        request->status = cause->code;
        request->root_cause = true;
        ddl_request_end(request);
    }
    ddl_engine_wake(comm->engine);
}

ddl_status ddl_comm_destroy(ddl_comm *comm, ddl_deadline deadline, ddl_error *err)
{
    if (comm == NULL)
        return DDL_OK;
    ddl_world *world = comm->world;
    going_on ignored = { "" }; /* whoever frees it has ended all before */
    if (comm->engine != NULL) {
        if (!ddl_engine_enter(comm->engine, deadline)) {
            ddl_gpu_let_go(comm);
            /* Whoever is stuck in there may still touch it: it is lost, and the world with it. */
            return ddl_comm_kept_out(comm, err);
        }
        if (!ddl_list_empty(&comm->in_flight))
            abandon_operations(comm, ddl_deadline_in_ms(LAST_MS), &ignored);
        if (ddl_failure_is_known(comm) && !ddl_failure_is_final(comm))
            world->nbusy--;
        ddl_repeat_forget(comm);
        ddl_backend_close(comm->backend);
        ddl_shrink_free(comm);
        ddl_world_dismiss(world, comm);
        ddl_engine_leave(comm->engine);
    }
    if (comm->board_is_done)
        ddl_world_give_board(world, comm->board_index);
    pthread_mutex_lock(&world->lock);
    ddl_list_remove(&comm->sibling);
    world->nroots -= comm->root == comm;
    bool last = world->nroots == 0;
    pthread_mutex_unlock(&world->lock);
    ddl_votes_free(comm);
    ddl_alone_free(comm->alone);
    ddl_gpu_forget(comm);
    ddl_backend_destroy(comm->backend);
    ddl_free(comm->board);
    ddl_roster_destroy(comm->roster);
    ddl_request_pool_release(comm->pool);
    for (int i = 0; i < DDL_HISTORY; i++)
        ddl_free(comm->history[i].counts);
    ddl_table_fini(&comm->by_sequence);
    ddl_free(comm->members);
    ddl_free(comm->rank_of);
    ddl_free(comm->sent_to);
    ddl_free(comm->received_from);
    ddl_free(comm->starts);
    ddl_free(comm->cards);
    ddl_free(comm->entered);
    ddl_free(comm->messages);
    ddl_failure_fini(comm);
    if (comm->is_taken_along)
        ddl_contexts_bury(comm);
    else
        ddl_free(comm);
    return last ? ddl_world_destroy(world, deadline, err) : DDL_OK;
}

/* Whether it has posted, and others may not have read it; or is about to, behind a vote. */
static bool is_on_board(const ddl_request *request)
{
    const bool waits_for_vote = request->vote.stage == DDL_VOTE_WAITS || request->vote.stage == DDL_VOTE_HOST;
    return ddl_link_linked(&request->task.post.link) ||
           (waits_for_vote && request->task.shape.post_bytes > 0);
}

static ddl_request *first_in_flight(const ddl_comm *comm, bool posts_only)
{
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        if (!posts_only || is_on_board(request))
            return request;
    }
    return NULL;
}

/* Until nothing is in flight, or no post, or the deadline. True: nothing is, and nothing has failed. */
static bool finish_operations(ddl_comm *comm, bool posts_only, ddl_deadline deadline)
{
    while (comm->engine != NULL && !ddl_deadline_passed(deadline)) {
        if (!ddl_engine_enter(comm->engine, deadline))
            return false;
        ddl_engine_drain(comm->engine);
        ddl_request *first = first_in_flight(comm, posts_only);
        if (first == NULL) {
            bool well = !ddl_failure_is_known(comm);
            ddl_engine_leave(comm->engine);
            return well;
        }
        /* Which goes on for a grace, for a failure that settles. */
        ddl_engine_wait_entered(comm->engine, &first->done, deadline - DDL_ENGINE_GRACE_MS * DDL_NS_PER_MS);
    }
    return comm->engine == NULL;
}

/* Threads that wait for requests use the engine until they have seen that theirs is done; all are. False: one
 * has not come so far by then, and not in so many naps either, as one that does not run would not. */
static bool see_waiters_off(ddl_comm *comm, ddl_deadline deadline)
{
    for (int nap = 0; atomic_load(&comm->pool->waiters) > 0; nap++) {
        if (nap >= LEAST_NAPS && ddl_deadline_passed(deadline))
            return false;
        ddl_engine_wake(comm->engine);
        ddl_pause_us(50);
    }
    return true;
}

/* What came of taking communicators down, beside errors of operations for which nobody has waited. */
typedef struct taking_down {
    ddl_deadline deadline, stopped; /* the second for what GPUs do */
    ddl_status streamed, stuck;
    ddl_error missing, why; /* of these two */
    going_on left;
} taking_down;

/* Nothing is in flight from here on, and nobody waits; or end->stuck is set, for the reason why. What is
 * at NCCL begins to close, as that takes a while, in which others can do so too. */
static void close_down(ddl_comm *comm, taking_down *end)
{
    ddl_alone_begin_close(comm->alone, end->stopped);
    if (comm->engine == NULL || end->stuck != DDL_OK)
        return;
    if (!ddl_engine_enter(comm->engine, end->deadline)) {
        end->stuck = ddl_comm_kept_out(comm, &end->why);
        return;
    }
    abandon_operations(comm, end->stopped, &end->left);
    ddl_votes_begin_close(comm, end->stopped);
    ddl_engine_leave(comm->engine);
    if (!see_waiters_off(comm, end->deadline))
        end->stuck =
            DDL_FAIL(&end->why, DDL_ETIMEDOUT,
                     "a thread that waits for an operation on %s does not run, though that has ended; "
                     "is it short of CPU time?",
                     comm->pool->prefix);
}

/* The next communicator after this one (NULL: the first), beside the root itself, that is freed with it. */
static ddl_comm *next_part(ddl_comm *root, const ddl_comm *after)
{
    ddl_comm *found = NULL;
    bool passed = after == NULL;
    pthread_mutex_lock(&root->world->lock);
    DDL_LIST_FOR_EACH (link, &root->world->comms) {
        ddl_comm *comm = DDL_CONTAINER(link, ddl_comm, sibling);
        if (passed && found == NULL && comm->root == root && comm != root)
            found = comm;
        passed = passed || comm == after;
    }
    pthread_mutex_unlock(&root->world->lock);
    return found;
}

static bool has_failed(ddl_comm *comm, ddl_deadline deadline)
{
    bool failed = true;
    if (ddl_engine_enter(comm->engine, deadline)) {
        failed = ddl_failure_is_reported(comm);
        ddl_engine_leave(comm->engine);
    }
    return failed;
}

/* What others have posted last may not be what was posted here, if nobody here has needed it. They have met.
 */
static bool posts_agree(ddl_comm *comm, ddl_deadline deadline)
{
    bool agree = true;
    if (comm->board != NULL && ddl_engine_enter(comm->engine, deadline)) {
        ddl_backend_progress(comm->backend);
        agree = !ddl_failure_is_known(comm);
        ddl_engine_leave(comm->engine);
    }
    return agree;
}

/*
 * What others sent last may not be what was expected here, if nobody here has waited for it. They have met,
 * so it has been sent; between two hosts it may still be on its way. Whoever finds such a thing does not come
 * to the second meeting, which ends with the cause; as whoever left the first one alone does not, or has gone
 * since, which is nobody's failure any more.
 */
static ddl_status meet_again(ddl_comm *comm, const ddl_call *call, ddl_deadline deadline)
{
    const ddl_error before = *ddl_last_error();
    const int left_ms = ddl_deadline_left_ms(deadline);
    if (!ddl_engine_enter(comm->engine, deadline))
        return DDL_OK;
    ddl_engine_progress(comm->engine);
    comm->is_parting = !ddl_failure_is_known(comm);
    ddl_engine_leave(comm->engine);
    comm->timeout_ms = left_ms < 1 ? 1 : left_ms < AGAIN_MS ? left_ms : AGAIN_MS;
    ddl_status status = ddl_issue(comm, call, NULL);
    if (status == DDL_EMISMATCH || status == DDL_EPROTO)
        return status;
    if (status != DDL_OK)
        (void)ddl_last_error_keep(&before);
    return DDL_OK;
}

/* What operations in streams have come to is told here at last, the first failure of all. */
static void take_streamed(ddl_comm *comm, ddl_status *first, ddl_error *error)
{
    ddl_status status = ddl_stream_reap(comm);
    if (status == DDL_OK || *first != DDL_OK)
        return;
    *first = status;
    *error = *ddl_last_error();
}

/* What is stuck in one communicator may be in another next: the others are lost with it. */
static void destroy_unless(ddl_status *stuck, ddl_comm *comm, ddl_deadline deadline, ddl_error *why)
{
    if (*stuck == DDL_OK)
        *stuck = ddl_comm_destroy(comm, deadline, why);
    else
        ddl_gpu_let_go(comm);
}

/* To all: this rank has come to free it, too. */
static void tell_parting(ddl_comm *comm)
{
    const ddl_algorithm *meeting = ddl_choose(&comm->model, DDL_COLLECTIVE_BARRIER, &comm->placement, 0);
    const ddl_signature signature = { .collective = DDL_SIGNATURE_FREE,
                                      .dtype = 0xff,
                                      .op = 0xff,
                                      .algorithm = (uint8_t)ddl_catalogue_index(meeting),
                                      .root = -1 };
    ddl_failure_tell_next(comm, &signature);
    ddl_mesh_flush(comm->mesh);
}

/* Whoever is gone had come here and waited for this rank, which is too late to meet anybody. */
static bool others_have_parted(ddl_comm *comm, ddl_deadline deadline)
{
    if (!ddl_engine_enter(comm->engine, deadline))
        return false;
    ddl_engine_progress(comm->engine); /* nobody may have looked for long */
    bool parted = comm->ngone > 0 && !ddl_failure_is_known(comm) && ddl_list_empty(&comm->in_flight);
    for (int rank = 0; parted && rank < comm->nranks; rank++) {
        const bool freed = ddl_failure_has_told_of_freeing(comm, rank, comm->issued + 1);
        parted = freed || rank == comm->rank || !ddl_mesh_is_gone(comm->mesh, comm->members[rank]);
    }
    if (parted)
        tell_parting(comm);
    ddl_engine_leave(comm->engine);
    return parted;
}

/* For the first operation of comm that did not end by the deadline, which ends now, and for whom it waits; in
 * the numbers of the communicator that is freed, comm or one with which it is. */
static ddl_status tell_unended(ddl_comm *comm, const ddl_comm *freed)
{
    char what[64] = "an operation", who[160] = "";
    int late = -1, nlate = 0;
    if (ddl_engine_enter(comm->engine, ddl_deadline_in_ms(DDL_COMM_GRACE_MS))) {
        const ddl_request *first = first_in_flight(comm, false);
        if (first != NULL) {
            snprintf(what, sizeof what, "%s#%llu", ddl_request_operation(first),
                     (unsigned long long)first->task.sequence);
            late = ddl_lateness_find(comm, first, &nlate);
        }
        ddl_engine_leave(comm->engine);
        if (first == NULL)
            return DDL_OK;
    }
    ddl_error error;
    ddl_error_set(&error, DDL_ETIMEDOUT, "%s of %s had not ended%s%s%s; its request ends now", what,
                  comm->pool->prefix, late >= 0 ? ", for which this rank waits for " : "",
                  late >= 0 ? ddl_comm_describe(comm, late, who, sizeof who) : "",
                  nlate > 1 ? " and others" : "");
    error.rank = freed->rank;
    error.culprit = late >= 0 ? freed->rank_of[comm->members[late]] : -1;
    snprintf(error.operation, sizeof error.operation, "comm_free");
    return ddl_last_error_keep(&error);
}

/* With all others, once more, so that nobody leaves while one of them needs it. Who has met them knows that
 * they have read what was on the board. */
static ddl_status meet_to_free(ddl_comm *comm, ddl_deadline deadline)
{
    const ddl_deadline half = ddl_deadline_in_ms(ddl_deadline_left_ms(deadline) / 2);
    const bool read = comm->board_index >= 0 && finish_operations(comm, true, half);
    /* It is issued last, but does not always end last. */
    ddl_call call = { .collective = DDL_COLLECTIVE_BARRIER, .as = DDL_SIGNATURE_FREE };
    comm->timeout_ms = ddl_deadline_left_ms(deadline) > 0 ? ddl_deadline_left_ms(deadline) : 1;
    ddl_status status = ddl_issue(comm, &call, NULL);
    /* Who waits for others there looks at the connections to those alone. */
    const bool has_unheard = comm->board == NULL && comm->nranks > 2;
    if (status == DDL_OK && has_unheard)
        status = meet_again(comm, &call, deadline);
    if (status == DDL_OK && !finish_operations(comm, false, deadline))
        status = tell_unended(comm, comm);
    if (status == DDL_OK && !has_unheard && !posts_agree(comm, deadline))
        status = meet_again(comm, &call, deadline);
    comm->board_is_done = status == DDL_OK && read;
    return status;
}

static void take_down(ddl_comm *comm, taking_down *end)
{
    take_streamed(comm, &end->streamed, &end->missing);
    destroy_unless(&end->stuck, comm, end->deadline, &end->why);
}

/* met: with all others of comm. */
static void close_down_parts(ddl_comm *comm, bool met, ddl_deadline deadline, taking_down *end)
{
    for (ddl_comm *part = NULL; (part = next_part(comm, part)) != NULL;) {
        part->is_taken_along = true;
        part->board_is_done = part->board_is_done && met && posts_agree(part, deadline);
        close_down(part, end);
    }
}

static void take_down_parts(ddl_comm *comm, taking_down *end)
{
    for (ddl_comm *part = NULL; (part = next_part(comm, end->stuck == DDL_OK ? NULL : part)) != NULL;)
        take_down(part, end);
}

/* Until nothing is in flight on the communicators that are freed with it. */
static ddl_status finish_parts(ddl_comm *comm, ddl_deadline deadline)
{
    ddl_status status = DDL_OK;
    for (ddl_comm *part = NULL; (part = next_part(comm, part)) != NULL;) {
        part->board_is_done = finish_operations(part, false, deadline) && part->board_index >= 0;
        if (status == DDL_OK && part->engine != NULL && ddl_deadline_passed(deadline))
            status = tell_unended(part, comm);
    }
    return status;
}

/* Who frees a communicator may free the buffers next. */
static ddl_status tell_going_on(ddl_status status, const going_on *left)
{
    ddl_error error = *ddl_last_error();
    if (status == DDL_OK || strstr(error.text, left->text) != NULL)
        return status;
    const size_t there = strlen(error.text);
    snprintf(error.text + there, sizeof error.text - there, "%s", left->text);
    return ddl_last_error_keep(&error);
}

/* There is nothing to be done, or nothing can be: *status. */
static bool is_free_already(ddl_comm *comm, ddl_status *status)
{
    *status = DDL_OK;
    if (ddl_contexts_forked()) /* its memory is the price: nothing here may be touched in a forked child */
        *status =
            ddl_last_error_set(DDL_EUNSUPPORTED, -1, "comm_free", "a forked child must not use the library");
    return *status != DDL_OK || ddl_contexts_dig_up(comm) ||
           comm->world->exited; /* a later exit handler, or a destructor: the process takes it all along */
}

ddl_status ddl_comm_free(ddl_comm **handle)
{
    ddl_status status;
    if (handle == NULL || *handle == NULL)
        return DDL_OK;
    ddl_comm *comm = *handle;
    *handle = NULL;
    if (is_free_already(comm, &status))
        return status;
    const ddl_error before = *ddl_last_error();
    const ddl_deadline deadline = ddl_deadline_in_ms(DDL_COMM_FREE_MS);
    const bool is_root = comm->root == comm;
    status = is_root ? finish_parts(comm, deadline) : DDL_OK;
    bool meets = false;
    if (status == DDL_OK &&
        (meets = comm->engine != NULL && !has_failed(comm, deadline) && !others_have_parted(comm, deadline)))
        status = meet_to_free(comm, deadline);
    const int rank = comm->rank;
    const ddl_deadline least = ddl_deadline_in_ms(DDL_COMM_GRACE_MS);
    taking_down end = { .deadline = deadline > least ? deadline : least,
                        .stopped = ddl_deadline_in_ms(LAST_MS) };
    if (is_root)
        close_down_parts(comm, meets && status == DDL_OK, deadline, &end);
    close_down(comm, &end);
    if (is_root)
        take_down_parts(comm, &end);
    take_down(comm, &end);
    if (end.streamed != DDL_OK) /* results are missing, whatever else has gone wrong */
        return tell_going_on(ddl_last_error_keep(&end.missing), &end.left);
    if (end.stuck != DDL_OK)
        return tell_going_on(ddl_last_error_set(end.stuck, rank, "comm_free", "%s", end.why.text), &end.left);
    if (status == DDL_EABORTED) { /* has failed meanwhile, which those have heard whom it concerns */
        (void)ddl_last_error_keep(&before);
        return DDL_OK;
    }
    return tell_going_on(status, &end.left);
}
