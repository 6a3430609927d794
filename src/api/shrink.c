/*
 * shrink.c - going on with the ranks that are left of a communicator.
 *
 * Who is left is agreed upon over the connections that are left (protocol/agreement.h). Reports may come
 * before this rank has called ddl_comm_shrink itself; the agreement is made then, and waits to be entered.
 */
#include "api/failure.h"
#include "api/last_error.h"
#include "api/watching.h"
#include "base/bytes.h"
#include "base/failpoint.h"
#include "protocol/agreement.h"

#include <stdio.h>
#include <string.h>

enum {
    LATE_MS = 100,      /* after a deadline, for what has come while this process was stopped */
    KEPT_OUT_MS = 1000, /* and for the thread that called, to take the engine */
    AHEAD = 8           /* agreements in which others may have given up while this rank is in one */
};

typedef enum shrinking_state {
    OPEN,
    DONE, /* there is a result */
    TAKEN /* which has been given to the caller */
} shrinking_state;

struct ddl_shrinking {
    uint64_t number; /* which agreement of the communicator, from 1 */
    ddl_agreement *agreement;
    shrinking_state state;
    bool is_telling; /* reports are being sent */
    ddl_bytes report;
    bool is_awaited; /* this rank's call is under way: */
    ddl_deadline deadline;
    int64_t late_ns;            /* when the first tick came after that; 0: none has */
    int late_rank;              /* who was awaited then, or -1 */
    atomic_bool is_over;        /* there is a result, or the call has run out of time; it waits for this */
    struct ddl_shrinking *next; /* others have begun it already */
};

static void end_call(ddl_comm *comm, struct ddl_shrinking *s)
{
    atomic_store(&s->is_over, true);
    ddl_engine_wake(comm->engine);
}

/* Holder: send what is due. To tell one may find its link lost and come back here; what is due for that is
 * sent when all have been told this, so that all hear the same in the same order. */
static void tell_reports(ddl_comm *comm, struct ddl_shrinking *s)
{
    if (s->is_telling)
        return;
    s->is_telling = true;
    while (ddl_agreement_report(s->agreement, &s->report)) {
        ddl_frame frame = { .type = DDL_FRAME_AGREE,
                            .channel = ddl_channel_of(comm->id, DDL_CHANNEL_COLLECTIVE),
                            .sequence = s->number };
        for (int rank = 0; rank < comm->nranks; rank++)
            if (rank != comm->rank)
                ddl_mesh_tell_bytes(comm->mesh, comm->members[rank], &frame, ddl_bytes_view(&s->report));
        s->report.bytes = 0;
    }
    s->is_telling = false;
}

/* Holder: and see whether that was all. */
static void advance(ddl_comm *comm)
{
    struct ddl_shrinking *s = comm->shrinking;
    tell_reports(comm, s);
    if (s->state != OPEN || ddl_agreement_result(s->agreement) == DDL_AGREEMENT_OPEN)
        return;
    s->state = DONE;
    end_call(comm, s);
}

static void free_shrinking(struct ddl_shrinking *s)
{
    if (s == NULL)
        return;
    free_shrinking(s->next);
    ddl_agreement_destroy(s->agreement);
    ddl_bytes_fini(&s->report);
    ddl_free(s);
}

/* Holder: who is left by what was decided, as ranks of the world; returns how many. *own: this one's place.
 */
static int find_left(const ddl_comm *comm, const ddl_agreement *agreement, int *members, int *own)
{
    int nleft = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (ddl_agreement_is_gone(agreement, rank))
            continue;
        if (rank == comm->rank)
            *own = nleft;
        members[nleft++] = comm->members[rank];
    }
    return nleft;
}

static void write_missed(int rank, const ddl_member *member, ddl_notice *notice)
{
    snprintf(notice->text, sizeof notice->text,
             "rank %d (pid %d on %s) was counted in by ddl_comm_shrink, but does not go on; look at its "
             "output",
             rank, (int)member->pid, member->host);
}

/* Holder: the others count this rank in, which does not go on with them. They are told so, now and whenever
 * they ask; without memory for that they wait for it in vain. */
static void forgo(const ddl_comm *comm, const ddl_agreement *agreement)
{
    ddl_world *world = comm->world;
    int *members = ddl_alloc_array((size_t)comm->nranks, sizeof *members), own = 0;
    if (members == NULL)
        return;
    const int nleft = find_left(comm, agreement, members, &own);
    const uint64_t id = ddl_world_id(world, members[0], ddl_agreement_offer(agreement));
    if (id <= DDL_ID_LIMIT && ddl_world_forgo(world, (uint32_t)id)) {
        const ddl_frame frame = { .type = DDL_FRAME_ABORT,
                                  .channel = ddl_channel_of((uint32_t)id, DDL_CHANNEL_COLLECTIVE),
                                  .number = true };
        ddl_notice notice = { .code = DDL_EPEERLOST, .culprit = own, .witness = own };
        write_missed(own, &comm->roster->members[comm->rank], &notice);
        for (int i = 0; i < nleft; i++)
            if (i != own)
                ddl_mesh_tell(comm->mesh, members[i], &frame, &notice);
    }
    ddl_free(members);
}

/* Who waits for this rank need not; also where it has waited itself, in vain. */
void ddl_shrink_free(ddl_comm *comm)
{
    if (comm->shrinking != NULL)
        DDL_FAILPOINT_STALL("api.shrink_free");
    for (struct ddl_shrinking *s = comm->shrinking; s != NULL; s = s->next) {
        if (s->state != TAKEN) {
            ddl_agreement_give_up(s->agreement);
            tell_reports(comm, s);
            if (ddl_agreement_forgo(s->agreement)) /* as others may decide what it has accepted */
                forgo(comm, s->agreement);
        }
        ddl_mesh_flush(comm->mesh);
    }
    free_shrinking(comm->shrinking);
    comm->shrinking = NULL;
}

/*
 * What the communicator has failed by may be a rank whose connection is there. A process that stands still
 * has ended, for all that the others do, whether it wakes up again or not. A host that is cut off is so from
 * the host of who has seen that, and others may well hear it.
 */
static void heed_cause(const ddl_comm *comm, struct ddl_shrinking *s)
{
    const ddl_notice *cause = ddl_failure_cause(comm);
    const int *node_of = comm->roster->node_of;
    const bool is_cut_off = cause->code == DDL_EUNREACHABLE;
    if (!ddl_failure_is_final(comm) || cause->culprit < 0 || cause->culprit == comm->rank)
        return;
    if (is_cut_off)
        ddl_agreement_suspect(s->agreement, cause->culprit);
    if (cause->code == DDL_EUNRESPONSIVE ||
        (is_cut_off && cause->witness >= 0 && node_of[cause->witness] == node_of[comm->rank]))
        ddl_agreement_lose(s->agreement, cause->culprit);
}

/* Holder. */
static ddl_status create(ddl_comm *comm, uint64_t number, struct ddl_shrinking **out, ddl_error *err)
{
    struct ddl_shrinking *s = ddl_alloc(sizeof *s);
    if (s == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to agree on who is left");
    ddl_status status =
        ddl_agreement_create(comm->rank, comm->nranks, ddl_world_offer(comm->world), &s->agreement, err);
    if (status != DDL_OK) {
        ddl_free(s);
        return status;
    }
    s->number = number;
    atomic_init(&s->is_over, false);
    heed_cause(comm, s);
    for (int rank = 0; rank < comm->nranks; rank++)
        if (rank != comm->rank && ddl_mesh_is_gone(comm->mesh, comm->members[rank]))
            ddl_agreement_lose(s->agreement, rank);
    *out = s;
    return DDL_OK;
}

/* Holder: make the agreement that this rank is to enter now the current one. */
static ddl_status begin(ddl_comm *comm, ddl_error *err)
{
    struct ddl_shrinking *s = comm->shrinking;
    if (s == NULL)
        return create(comm, 1, &comm->shrinking, err);
    if (s->state != TAKEN)
        return DDL_OK; /* the call before this one ran out of time */
    if (s->next == NULL)
        DDL_TRY(create(comm, s->number + 1, &s->next, err));
    comm->shrinking = s->next;
    s->next = NULL;
    free_shrinking(s);
    return DDL_OK;
}

/* The agreement of this number, made if nobody has begun it here. NULL: that is over or far ahead, or no
 * memory; who is not listened to for that is waited for in vain. */
static struct ddl_shrinking *reach(ddl_comm *comm, uint64_t number)
{
    ddl_error ignored;
    if (comm->shrinking == NULL && create(comm, 1, &comm->shrinking, &ignored) != DDL_OK)
        return NULL;
    struct ddl_shrinking *s = comm->shrinking;
    if (number < s->number || number - s->number > AHEAD)
        return NULL;
    for (; s->number < number; s = s->next)
        if (s->next == NULL && create(comm, s->number + 1, &s->next, &ignored) != DDL_OK)
            return NULL;
    return s;
}

bool ddl_shrink_heard(ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload, ddl_error *err)
{
    struct ddl_shrinking *s = reach(comm, frame->sequence);
    if (s == NULL)
        return true;
    const bool was_missed = ddl_agreement_is_missed(s->agreement);
    if (ddl_agreement_hear(s->agreement, peer, payload, err) != DDL_OK)
        return false;
    if (ddl_agreement_is_missed(s->agreement) && !was_missed)
        forgo(comm, s->agreement);
    advance(comm);
    return true;
}

void ddl_shrink_gone(ddl_comm *comm, int peer)
{
    for (struct ddl_shrinking *s = comm->shrinking; s != NULL; s = s->next)
        ddl_agreement_lose(s->agreement, peer);
    if (comm->shrinking != NULL)
        advance(comm);
}

static void end_wait(ddl_comm *comm, struct ddl_shrinking *s)
{
    if (!s->is_awaited)
        return;
    s->is_awaited = false;
    comm->world->nbusy--;
    ddl_agreement_leave(s->agreement);
}

void ddl_shrink_tick(ddl_comm *comm, int64_t now_ns)
{
    struct ddl_shrinking *s = comm->shrinking;
    if (s == NULL || !s->is_awaited)
        return;
    if (now_ns > s->deadline && s->late_ns == 0) {
        s->late_ns = now_ns;
        s->late_rank = ddl_agreement_awaited(s->agreement);
    }
    if (s->late_ns != 0 && now_ns - s->late_ns >= KEPT_OUT_MS * DDL_NS_PER_MS) {
        end_wait(comm, s);
        return;
    }
    if (s->late_ns != 0 && now_ns - s->late_ns >= LATE_MS * DDL_NS_PER_MS)
        end_call(comm, s);
    heed_cause(comm, s); /* which may have come after the first report */
    for (int rank = 0; rank < comm->nranks; rank++)
        if (comm->world->is_watching && ddl_agreement_awaits(s->agreement, rank) &&
            ddl_watching_look(comm, rank, now_ns) != DDL_VIGIL_ALIVE)
            ddl_agreement_lose(s->agreement, rank);
    advance(comm);
}

static ddl_status fail_late(const ddl_comm *comm, int late, ddl_error *err)
{
    char who[160];
    const bool has_called = late >= 0 && ddl_agreement_has_entered(comm->shrinking->agreement, late);
    ddl_status status =
        DDL_FAIL(err, DDL_ETIMEDOUT, "%s has %s within %lld ms (%s)",
                 late >= 0 ? ddl_comm_describe(comm, late, who, sizeof who) : "somebody",
                 has_called ? "called ddl_comm_shrink, but not ended it" : "not called ddl_comm_shrink",
                 (long long)comm->timeout_ms, ddl_comm_timeout_name(comm, comm->timeout_ms));
    err->culprit = late;
    return status;
}

/* Others had less time, and were enough. */
static ddl_status fail_given_up(const ddl_comm *comm, int late, ddl_error *err)
{
    char who[160];
    (void)DDL_FAIL(err, DDL_ETIMEDOUT,
                   "%s has not called ddl_comm_shrink, and ranks that waited for it have given up",
                   ddl_comm_describe(comm, late, who, sizeof who));
    return ddl_error_blame(err, late);
}

/* Holder: what was agreed upon, as arguments of the new communicator. Others that were waited for in vain
 * give up too: after the deadline that is no reason. */
static ddl_status read_result(ddl_comm *comm, int *members, int *nleft, int *own, uint64_t *id,
                              ddl_error *err)
{
    const struct ddl_shrinking *s = comm->shrinking;
    const ddl_agreement *agreement = s->agreement;
    const ddl_agreement_state result = ddl_agreement_result(agreement);
    if (result != DDL_AGREEMENT_DECIDED && s->late_ns != 0 && s->late_rank >= 0)
        return fail_late(comm, s->late_rank, err);
    switch (result) {
    case DDL_AGREEMENT_OPEN:
        return fail_late(comm, ddl_agreement_awaited(agreement), err);
    case DDL_AGREEMENT_EXCLUDED:
        return DDL_FAIL(err, DDL_EABORTED, "other ranks hear this one no more, and do not go on with it");
    case DDL_AGREEMENT_MINORITY:
        if (ddl_agreement_given_up_for(agreement) >= 0)
            return fail_given_up(comm, ddl_agreement_given_up_for(agreement), err);
        return DDL_FAIL(
            err, DDL_EABORTED,
            "fewer than half of the %d ranks are left, or half without the lowest: they do not go on",
            comm->nranks);
    case DDL_AGREEMENT_DECIDED:
        break;
    }
    *nleft = find_left(comm, agreement, members, own);
    *id = ddl_world_id(comm->world, members[0], ddl_agreement_offer(agreement));
    return *id > DDL_ID_LIMIT ? DDL_FAIL(err, DDL_ERESOURCE, "no ids are left for communicators") : DDL_OK;
}

/* Wait for the agreement, then read it. */
static ddl_status agree(ddl_comm *comm, int *members, int *nleft, int *own, uint64_t *id, ddl_error *err)
{
    ddl_deadline deadline = ddl_deadline_in_ms(comm->timeout_ms);
    if (!ddl_engine_enter(comm->engine, deadline))
        return ddl_comm_kept_out(comm, err);
    ddl_status status = begin(comm, err);
    if (status != DDL_OK) {
        ddl_engine_leave(comm->engine);
        return status;
    }
    struct ddl_shrinking *s = comm->shrinking;
    if (!s->is_awaited) /* as after a call that was kept from the engine */
        comm->world->nbusy++;
    heed_cause(comm, s); /* others' reports may have come before that was final */
    s->is_awaited = true;
    s->deadline = deadline;
    s->late_ns = 0;
    atomic_store(&s->is_over, s->state == DONE);
    ddl_agreement_enter(s->agreement);
    advance(comm);
    ddl_mesh_flush(comm->mesh);
    ddl_engine_wait_entered(comm->engine, &s->is_over, deadline);
    if (!ddl_engine_enter(comm->engine, ddl_deadline_in_ms(KEPT_OUT_MS)))
        return ddl_comm_kept_out(comm, err);
    end_wait(comm, s);
    if (s->state == DONE)
        s->state = TAKEN;
    status = read_result(comm, members, nleft, own, id, err);
    ddl_engine_leave(comm->engine);
    return status;
}

/* What was agreed upon could not be made here. */
static void forgo_unmade(ddl_comm *comm)
{
    if (!ddl_engine_enter(comm->engine, ddl_deadline_in_ms(KEPT_OUT_MS)))
        return;
    forgo(comm, comm->shrinking->agreement);
    ddl_mesh_flush(comm->mesh);
    ddl_engine_leave(comm->engine);
}

/* Holder: rank `place` of what was made has given up before it knew that it is counted in. All are told so,
 * and whoever shrinks that again does not wait for it. */
static void leave_behind(ddl_comm *made, int place)
{
    ddl_error ignored;
    ddl_notice notice = { .code = DDL_EPEERLOST, .culprit = place, .witness = place };
    write_missed(place, &made->roster->members[place], &notice);
    ddl_failure_raise(made, &notice);
    if (made->shrinking != NULL || create(made, 1, &made->shrinking, &ignored) == DDL_OK)
        ddl_agreement_lose(made->shrinking->agreement, place);
}

/* Of those that were counted in. */
static void leave_behind_who_gave_up(ddl_comm *comm, ddl_comm *made)
{
    const ddl_agreement *agreement = comm->shrinking->agreement;
    if (!ddl_engine_enter(comm->engine, ddl_deadline_in_ms(KEPT_OUT_MS)))
        return;
    for (int rank = 0, place = 0; rank < comm->nranks; rank++) {
        if (ddl_agreement_is_gone(agreement, rank))
            continue;
        if (ddl_agreement_has_given_up(agreement, rank))
            leave_behind(made, place);
        place++;
    }
    ddl_mesh_flush(comm->mesh);
    ddl_engine_leave(comm->engine);
}

static ddl_status shrink(ddl_comm *comm, ddl_comm **survivors, ddl_error *err)
{
    int *members = ddl_alloc_array((size_t)comm->nranks, sizeof *members);
    if (members == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a communicator of %d ranks", comm->nranks);
    int nleft = 1, own = 0;
    uint64_t id = 0;
    ddl_status status = DDL_OK;
    if (comm->engine != NULL) {
        status = agree(comm, members, &nleft, &own, &id, err);
    } else {
        members[0] = comm->members[comm->rank];
        id = ddl_world_id(comm->world, members[0], ddl_world_offer(comm->world));
    }
    if (status == DDL_OK) {
        status = ddl_comm_create(comm->world, (uint32_t)id, members, nleft, own, NULL,
                                 comm->root == comm ? NULL : comm->root, comm->timeout_ms, survivors, err);
        if (status != DDL_OK && comm->engine != NULL)
            forgo_unmade(comm);
        else if (status == DDL_OK && comm->engine != NULL)
            leave_behind_who_gave_up(comm, *survivors);
    }
    ddl_free(members);
    return status;
}

ddl_status ddl_comm_shrink(ddl_comm *comm, ddl_comm **survivors)
{
    if (comm == NULL || survivors == NULL)
        return ddl_last_error_set(DDL_EINVAL, comm != NULL ? comm->rank : -1, "comm_shrink", "%s is NULL",
                                  comm == NULL ? "comm" : "survivors");
    DDL_TRY(ddl_comm_check_open(comm, "comm_shrink"));
    ddl_error error;
    ddl_error_set(&error, DDL_EINTERNAL, "no details");
    ddl_comm *made = NULL;
    ddl_status status = shrink(comm, &made, &error);
    if (status == DDL_OK) {
        comm->is_given_up = true; /* who calls this knows that something has failed */
        *survivors = made;
        return DDL_OK;
    }
    error.rank = comm->rank;
    snprintf(error.operation, sizeof error.operation, "comm_shrink");
    return ddl_last_error_keep(&error);
}
