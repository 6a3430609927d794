/*
 * failure.c - from the first sign of trouble to one root cause that every rank reports.
 *
 * Whoever sees trouble (a lost peer, calls that do not match, a deadline) tells everyone its cause and
 * waits a moment for what others have seen. The best cause by ddl_notice_precedes is then final: it ends
 * all operations in flight, or else the next call. For a mismatch everyone also tells its own call, and the
 * lowest pair that disagrees is named: the one that rank 0 has found, as ranks may have heard of different
 * calls by then. Who has itself read what cannot be does not wait: only a mismatch, or the same from a lower
 * rank, could have taken precedence.
 */
#include "api/failure_parts.h"

#include "api/lateness.h"
#include "api/offloading.h"
#include "api/votes.h"
#include "api/watching.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum {
    SETTLE_MS = 50,           /* for the causes that others have seen to arrive */
    SETTLE_BROKEN_MS = 150,   /* and for ranks that are idle to say that they have not lost it */
    SETTLE_MISMATCH_MS = 200, /* and for ranks that have not come to the call, or are idle */
    SETTLE_SPARSE_MS = 200,   /* if they come by way of others */
    SETTLE_ALONE_MS = 550,    /* in all, if rank 0 does not say which calls differ: one that is idle hears of
                                 it within 200 ms, and waits for as long */
    SETTLE_ALONE_SPARSE_MS = 700, /* waiters give up 800 ms after a deadline */
    SETTLE_UNNAMED_MS = 400,      /* for somebody who knows more, when this rank can blame nobody */
    SETTLE_LATE_MS = 200,         /* for the rank that is late to say why */
    LATE_MS = 50,                 /* ticks come every 20 ms while a cause settles */
    SETTLE_MORE_MS = 300,         /* at most, for earlier and earlier calls that turn out to differ */
    /* An operation that takes longer is told to everyone, so that late ranks can be named; so many at a time,
     * the oldest first, as each is looked up by all others. */
    TELL_AFTER_MS = 100,
    TELL_MOST = 64,
    /* Operations in flight that each tick looks at, the oldest; those behind them a few times a second. */
    WATCH_MOST = 4096,
    TELL_AGAIN_MS = 1000, /* one that others wait behind */
    WARN_EVERY_MS = 900,  /* of what is waited for, at most */
};

bool ddl_failure_init(ddl_comm *comm)
{
    const size_t nranks = (size_t)comm->nranks;
    comm->failure.told_by = ddl_alloc_array(nranks, sizeof *comm->failure.told_by);
    comm->failure.calls = ddl_alloc_array(nranks, sizeof *comm->failure.calls);
    comm->failure.denied_by = ddl_alloc_array(nranks, sizeof *comm->failure.denied_by);
    return comm->failure.told_by != NULL && comm->failure.calls != NULL && comm->failure.denied_by != NULL;
}

void ddl_failure_fini(ddl_comm *comm)
{
    ddl_free(comm->failure.told_by);
    ddl_free(comm->failure.calls);
    ddl_free(comm->failure.denied_by);
}

void ddl_failure_tell_cause(ddl_comm *comm, int peer)
{
    const ddl_notice *cause = &comm->failure.cause;
    ddl_frame frame = { .type = DDL_FRAME_ABORT,
                        .channel = ddl_channel_of(comm->id, DDL_CHANNEL_COLLECTIVE),
                        .sequence = cause->sequence,
                        .number = ddl_failure_is_final(comm) || cause->is_final };
    ddl_failure_tell(comm, peer, &frame, cause);
}

/* Two ranks that do not reach each other hear of each other by whoever reaches both. */
static bool is_by_others(const ddl_comm *comm, const ddl_notice *notice)
{
    return comm->sparse || notice->code == DDL_EUNREACHABLE || notice->code == DDL_EUNRESPONSIVE;
}

/* Whether who is told this tells all others, who may not be told by its witness. */
static bool is_passed_on(const ddl_comm *comm, const ddl_notice *notice)
{
    const bool is_of_itself = notice->code == DDL_EPEERLOST && notice->culprit == notice->witness;
    return is_of_itself || is_by_others(comm, notice);
}

/* Whether rank 0 of this communicator is to say what the cause is. */
static bool is_for_first(const ddl_comm *comm)
{
    return comm->failure.cause.code == DDL_EMISMATCH && comm->nranks > 2 && comm->rank != 0 &&
           !ddl_mesh_is_gone(comm->mesh, comm->members[0]);
}

/* Of a mismatch more is known when all ranks have come to the call. */
static int64_t settle_ms(const ddl_comm *comm, const ddl_notice *notice)
{
    if (notice->code == DDL_EPROTO && notice->witness == comm->rank && !comm->sparse)
        return 0;
    if (notice->culprit < 0)
        return SETTLE_UNNAMED_MS;
    if (notice->code == DDL_ETIMEDOUT)
        return SETTLE_LATE_MS;
    bool may_know_more = notice->code == DDL_EMISMATCH && comm->nranks > 2;
    if (may_know_more)
        return SETTLE_MISMATCH_MS + (comm->sparse ? SETTLE_SPARSE_MS : 0);
    if (is_by_others(comm, notice))
        return SETTLE_SPARSE_MS;
    return ddl_failure_may_be_cut(comm, notice) ? SETTLE_BROKEN_MS : SETTLE_MS;
}

/* Calls that may differ too, but that no message has compared so far. The first that differs is to be named,
 * so everyone compares all that are in flight before the cause; with each tick some, the oldest first. */
static void tell_calls_before(ddl_comm *comm, uint64_t sequence)
{
    const bool were_held = comm->world->posts_held;
    comm->world->posts_held = true; /* a peer that is lost meanwhile ends calls that are in this list */
    int ntold = 0;
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        if (!ddl_request_is_collective(request) || request->told)
            continue;
        if (request->task.sequence >= sequence || ntold++ == TELL_MOST)
            break;
        request->told = true;
        ddl_failure_tell_entered(comm, -1, request->task.sequence, &request->task.signature, true);
    }
    comm->world->posts_held = were_held;
}

/* Of the cause that is known now: all that others need of it. */
static void tell_all(ddl_comm *comm, bool with_cause)
{
    const ddl_notice *cause = &comm->failure.cause;
    if (with_cause)
        ddl_failure_tell_cause(comm, -1);
    if (!ddl_failure_is_of_calls(cause))
        return;
    const uint64_t sequence = cause->sequence;
    tell_calls_before(comm, sequence);
    /* The last of all: of each rank that is remembered where nobody knows yet which call the cause is about.
     */
    const ddl_signature *own = ddl_failure_own_signature(comm, sequence);
    if (own != NULL)
        ddl_failure_tell_entered(comm, -1, sequence, own, true);
}

/* Whatever it is; and ranks that are late may have something better to say than that they are. */
static bool ends_any_call(ddl_status code)
{
    return code != DDL_EMISMATCH && code != DDL_EPROTO && code != DDL_ETIMEDOUT;
}

/* Whether this is the cause rather than the one known. That which ranks have had as their end stands, even if
 * a better one is known here: they have heard less than who comes late. */
static bool precedes(const ddl_notice *notice, const ddl_notice *cause)
{
    if (notice->is_final != cause->is_final)
        return notice->is_final;
    return ddl_notice_precedes(notice, cause);
}

/* Until when this rank waits for better causes, now that this is the one. anew: what it has waited for so far
 * says nothing of that. */
static void set_settling(ddl_comm *comm, const ddl_notice *notice, bool anew)
{
    ddl_failure *failure = &comm->failure;
    const int64_t now_ns = ddl_now_ns(), shortly_ns = now_ns + SETTLE_MS * DDL_NS_PER_MS;
    if (anew) {
        failure->settle_ns = now_ns + settle_ms(comm, notice) * DDL_NS_PER_MS;
        failure->latest_ns = ddl_deadline_earlier(failure->settle_ns + SETTLE_MORE_MS * DDL_NS_PER_MS,
                                                  failure->began_ns + SETTLE_ALONE_SPARSE_MS * DDL_NS_PER_MS);
    }
    const bool is_of_another_call = ddl_failure_is_known(comm) && ddl_failure_is_of_calls(notice) &&
                                    notice->sequence != failure->cause.sequence;
    if (is_of_another_call) { /* to hear how others called that */
        const int64_t least_ns = ddl_deadline_earlier(shortly_ns, failure->latest_ns);
        if (failure->settle_ns < least_ns)
            failure->settle_ns = least_ns;
    }
    if (notice->is_final) /* for others' ends */
        failure->settle_ns = ddl_deadline_earlier(failure->settle_ns, shortly_ns);
    if (failure->settle_ns <= now_ns)
        ddl_engine_tick_soon(comm->engine);
}

/* Take this for the cause if there is none, or it is a better one; that is then in phase next. True: it is
 * taken, and nobody told so far. */
static bool take(ddl_comm *comm, const ddl_notice *notice, ddl_failure_phase next)
{
    ddl_failure *failure = &comm->failure;
    const bool is_first = !ddl_failure_is_known(comm);
    const bool is_why_held = failure->phase == DDL_FAILURE_HELD && ends_any_call(notice->code);
    const bool is_why_late = failure->cause.code == DDL_ETIMEDOUT && notice->code != DDL_ETIMEDOUT;
    if (ddl_failure_is_final(comm))
        return false;
    if (!is_first && !is_why_held && !precedes(notice, &failure->cause))
        return false;
    if (is_first) {
        failure->began_ns = ddl_now_ns();
        comm->world->nbusy++;
        ddl_votes_abort(comm);
    }
    set_settling(comm, notice, is_first || failure->cause.culprit < 0 || is_why_late || is_why_held);
    ddl_engine_tick_often(comm->engine);
    failure->phase = next;
    failure->is_late = false;
    failure->took_ns = ddl_now_ns();
    failure->cause = *notice;
    ddl_failure_doubt_anew(comm);
    return true;
}

static void adopt(ddl_comm *comm, const ddl_notice *notice, bool tell)
{
    if (take(comm, notice, DDL_FAILURE_SETTLING))
        tell_all(comm, tell);
}

/*
 * A board shows what others called before the loop has been run, which may have to tell why they have given
 * that call up: who comes late with another one is not to hear that they differ. Nothing is passed on by
 * whoever has seen that, so this may wait until the loop has been run.
 */
void ddl_failure_hold(ddl_comm *comm, const ddl_notice *notice)
{
    if (!take(comm, notice, DDL_FAILURE_HELD))
        return;
    comm->failure.held_loops = ddl_engine_loops(comm->engine);
    ddl_engine_tick_soon(comm->engine);
}

static void release(ddl_comm *comm)
{
    const int64_t least_ns = ddl_now_ns() + settle_ms(comm, &comm->failure.cause) * DDL_NS_PER_MS;
    if (comm->failure.settle_ns < least_ns)
        comm->failure.settle_ns = least_ns;
    comm->failure.phase = DDL_FAILURE_SETTLING;
    tell_all(comm, true);
}

/* True: with this tick others are told. */
static bool release_held(ddl_comm *comm)
{
    if (ddl_engine_loops(comm->engine) == comm->failure.held_loops) {
        ddl_engine_tick_soon(comm->engine);
        return false;
    }
    release(comm);
    return true;
}

/*
 * Who comes late to a call that others have given up may read why from one of them, and only then what
 * another had sent in it, which is not the call that he makes. That is no news; a mismatch that others tell
 * of is.
 */
void ddl_failure_raise(ddl_comm *comm, const ddl_notice *notice)
{
    if (notice->code != DDL_EMISMATCH || !ddl_failure_is_known(comm) ||
        !ends_any_call(comm->failure.cause.code))
        adopt(comm, notice, true);
}

void ddl_failure_met(ddl_comm *comm, int peer)
{
    if (comm->failure.phase >= DDL_FAILURE_SETTLING)
        ddl_failure_tell_cause(comm, peer);
}

void ddl_failure_told(ddl_comm *comm, int peer, const ddl_notice *notice)
{
    ddl_notice sound = *notice;
    if (sound.culprit >= comm->nranks)
        sound.culprit = -1;
    if (sound.witness >= comm->nranks)
        sound.witness = -1;
    comm->failure.told_by[peer] = true;
    adopt(comm, &sound, is_passed_on(comm, &sound));
    ddl_failure_doubt_told(comm, peer, &sound);
    if (comm->failure.phase == DDL_FAILURE_HELD && sound.code == DDL_EMISMATCH)
        release(comm); /* as others know of it, it is their cause, whatever the loop has yet to tell here */
    if (peer == 0 && is_for_first(comm) && comm->failure.cause.is_final) {
        comm->failure.settle_ns = ddl_now_ns();
        ddl_engine_tick_soon(comm->engine);
    }
    if (sound.code == DDL_EUNRESPONSIVE && sound.culprit == comm->rank && sound.witness >= 0)
        ddl_watching_answer(comm, sound.witness);
    if (sound.code == DDL_ETIMEDOUT && sound.culprit == comm->rank)
        ddl_engine_tick_soon(comm->engine); /* to say why, if it is known */
}

bool ddl_failure_cause_is_earlier_than(const ddl_comm *comm, const ddl_request *request)
{
    return ddl_request_is_collective(request) && ddl_failure_is_of_calls(&comm->failure.cause) &&
           comm->failure.cause.sequence < request->task.sequence;
}

bool ddl_failure_cause_is_later_than(const ddl_comm *comm, const ddl_request *request)
{
    return ddl_request_is_collective(request) && ddl_failure_is_of_calls(&comm->failure.cause) &&
           comm->failure.cause.sequence > request->task.sequence;
}

/* ---- the end ---- */

void ddl_failure_cancel(ddl_comm *comm, int timeout_ms, char *text, size_t bytes)
{
    const ddl_staging *hanging = NULL;
    const size_t there = strlen(text);
    if (!ddl_votes_cancel(comm, timeout_ms))
        snprintf(text + there, bytes - there, DDL_OFFLOADING_MAY_WRITE);
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        ddl_task *task = &DDL_CONTAINER(link, ddl_request, link)->task;
        ddl_backend_cancel(task);
        if (task->staging != NULL && task->staging->hangs)
            hanging = task->staging;
    }
    if (hanging != NULL)
        ddl_staging_tell_hanging(hanging, text, bytes);
}

static int64_t due_ns(const ddl_comm *comm)
{
    const ddl_failure *failure = &comm->failure;
    const int64_t alone_ms = comm->sparse ? SETTLE_ALONE_SPARSE_MS : SETTLE_ALONE_MS;
    const int64_t alone_ns = failure->began_ns + alone_ms * DDL_NS_PER_MS;
    const int64_t known_ns = failure->took_ns + SETTLE_MS * DDL_NS_PER_MS;
    if (is_for_first(comm) && !failure->cause.is_final)
        return alone_ns > failure->settle_ns ? alone_ns : failure->settle_ns;
    return known_ns < failure->settle_ns && ddl_failure_knows_all_calls(comm) ? known_ns : failure->settle_ns;
}

/* If it comes late to that, as its process has stood still, not before it has read what has come by then. */
static bool is_settled(ddl_comm *comm, int64_t now_ns)
{
    ddl_failure *failure = &comm->failure;
    const int64_t late_ns = now_ns - due_ns(comm);
    const unsigned loops = ddl_engine_loops(comm->engine);
    if (late_ns < 0)
        return false;
    if (late_ns < LATE_MS * DDL_NS_PER_MS || (failure->is_late && loops != failure->late_loops))
        return true;
    if (!failure->is_late)
        failure->late_loops = loops;
    failure->is_late = true;
    ddl_engine_tick_soon(comm->engine);
    return false;
}

/* "DDL_EPEERLOST allreduce#41 comm=world rank 2@node: ...", with the operation that it is of, or else the
 * oldest one that it ends. */
static void log_cause(const ddl_comm *comm, ddl_log_level level)
{
    const ddl_notice *cause = &comm->pool->cause;
    const ddl_link *first = ddl_list_first(&comm->in_flight);
    const char *operation = cause->operation;
    uint64_t sequence = cause->sequence;
    char place[64] = "";
    if (operation[0] == '\0' && first != NULL) {
        const ddl_request *oldest = DDL_CONTAINER(first, ddl_request, link);
        operation = ddl_request_operation(oldest);
        sequence = oldest->task.sequence;
    }
    if (operation[0] != '\0' && sequence > 0)
        snprintf(place, sizeof place, "%s#%llu ", operation, (unsigned long long)sequence);
    else if (operation[0] != '\0')
        snprintf(place, sizeof place, "%s ", operation);
    ddl_log(level, "%s %s%s: %s", ddl_status_name(cause->code), place, comm->pool->prefix, cause->text);
}

static void settle(ddl_comm *comm)
{
    ddl_failure *failure = &comm->failure;
    if (ddl_failure_is_of_calls(&failure->cause) && !failure->cause.is_final)
        ddl_failure_find_lowest_pair(comm);
    ddl_failure_doubt_end(comm);
    failure->phase = DDL_FAILURE_FINAL;
    comm->world->nbusy--;
    comm->pool->cause = failure->cause;
    if (failure->cause.code == DDL_EPEERLOST && failure->cause.witness == comm->rank)
        comm->pool->cause_os_errno = failure->os_errno;
    /* Once more, from every rank: who comes late may read any of them first, and then that it has left. */
    ddl_failure_tell_cause(comm, -1);
    ddl_mesh_flush(comm->mesh);
    /* A part that nobody is using has no news: the world tells. */
    const bool is_of_work = failure->cause.code == DDL_EMISMATCH || failure->cause.code == DDL_EPROTO;
    bool is_news =
        (comm->root == comm || !ddl_list_empty(&comm->in_flight)) && (is_of_work || !comm->is_parting);
    ddl_failure_cancel(comm, 0, comm->pool->cause.text, sizeof comm->pool->cause.text);
    if (ddl_failure_is_of_calls(&failure->cause))
        ddl_failure_add_own_counts(comm, &comm->pool->cause);
    log_cause(comm, is_news ? DDL_LOG_ERROR : DDL_LOG_DEBUG);
    ddl_mesh_forget(comm->mesh, ddl_channel_of(comm->id, DDL_CHANNEL_COLLECTIVE), DDL_CHANNEL_KINDS);
    if (!ddl_list_empty(&comm->in_flight))
        (void)ddl_failure_report(comm);
    for (ddl_link *first; (first = ddl_list_first(&comm->in_flight)) != NULL;) {
        ddl_request *request = DDL_CONTAINER(first, ddl_request, link);
        ddl_comm_untrack(request);
        request->status = failure->cause.code;
        request->root_cause = true;
        ddl_request_end(request);
    }
    ddl_engine_wake(comm->engine);
}

void ddl_failure_end_alone(ddl_comm *comm, const ddl_notice *cause)
{
    comm->failure.phase = DDL_FAILURE_FINAL;
    comm->failure.cause = comm->pool->cause = *cause;
}

ddl_status ddl_failure_report(ddl_comm *comm)
{
    DDL_ASSERT(ddl_failure_is_final(comm));
    comm->failure.phase = DDL_FAILURE_REPORTED;
    return comm->failure.cause.code;
}

/* What this rank waits for may be that others begin an operation that is done here: who did something else
 * there knows only if it is told, and hears it only once he has come there. */
static void tell_what_is_before(ddl_comm *comm, int64_t now_ns)
{
    ddl_failure *failure = &comm->failure;
    uint64_t sequence;
    const ddl_signature *before = ddl_backend_waits_behind(comm->backend, &sequence);
    if (before == NULL || sequence != failure->behind) {
        failure->behind = before != NULL ? sequence : 0;
        failure->behind_tell_ns = now_ns + TELL_AFTER_MS * DDL_NS_PER_MS;
    } else if (now_ns >= failure->behind_tell_ns) {
        ddl_failure_tell_entered(comm, -1, sequence, before, false);
        failure->behind_tell_ns = now_ns + TELL_AGAIN_MS * DDL_NS_PER_MS;
    }
}

static bool is_to_be_told(const ddl_request *request, int64_t now_ns)
{
    const int64_t after_ms =
        request->timeout_ms / 4 < TELL_AFTER_MS ? request->timeout_ms / 4 : TELL_AFTER_MS;
    return !request->told && now_ns - request->issued_ns > after_ms * DDL_NS_PER_MS;
}

void ddl_failure_tick(ddl_comm *comm, int64_t now_ns)
{
    if (ddl_failure_is_final(comm))
        return;
    if (comm->failure.phase == DDL_FAILURE_HELD && !release_held(comm))
        return;
    if (ddl_failure_is_known(comm)) {
        ddl_lateness_explain(comm, now_ns);
        ddl_failure_doubt_tick(comm);
        if (comm->failure.cause.code == DDL_EMISMATCH)
            ddl_failure_pay_news(comm);
        if (ddl_failure_is_of_calls(&comm->failure.cause))
            tell_calls_before(comm, comm->failure.cause.sequence);
        if (is_settled(comm, now_ns) && ddl_votes_have_stopped(comm, now_ns))
            settle(comm);
        return;
    }
    ddl_failure_pay_news(comm);
    ddl_votes_tick(comm, now_ns);
    if (!ddl_list_empty(&comm->in_flight))
        tell_what_is_before(comm, now_ns);
    int ntold = 0, nwatched = 0;
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        if (++nwatched > WATCH_MOST && !comm->world->is_watching)
            break;
        if (ntold < TELL_MOST && is_to_be_told(request, now_ns)) {
            ntold++;
            request->told = true;
            if (ddl_request_is_collective(request))
                ddl_failure_tell_entered(comm, -1, request->task.sequence, &request->task.signature, false);
            else
                ddl_failure_tell_other_end(comm, &request->task);
        }
        ddl_failure_check_gone(comm, request);
        if (comm->world->is_watching && !ddl_failure_is_known(comm))
            ddl_watching_look_for_signs(comm, request, now_ns);
        if (!ddl_failure_is_known(comm) && now_ns >= request->warn_ns && now_ns < request->deadline) {
            /* One for all that are in flight, and for all communicators, as it may take a while to write. */
            if (now_ns - comm->world->warned_ns >= WARN_EVERY_MS * DDL_NS_PER_MS &&
                ddl_lateness_warn(comm, request, now_ns))
                comm->world->warned_ns = now_ns;
            request->warn_ns = now_ns + (now_ns - request->issued_ns);
        }
        if (!ddl_failure_is_known(comm) && now_ns >= request->deadline)
            ddl_lateness_raise(comm, request, now_ns);
        if (ddl_failure_is_known(comm))
            break;
    }
    ddl_mesh_flush(comm->mesh);
}
