/* plan.c - cutting a call into pieces and building their schedules. */
#include "backend/plan.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/size.h"

enum {
    MESSAGE_LIMIT = 1024 * 1024, /* what a transport takes at most */
    MESSAGE_BYTES = 256 * 1024,  /* no message of a piece is larger */
    SCRATCH_BYTES = 768 * 1024,  /* per piece: what is received to be reduced should stay in L2 */
    PIECE_ALIGNMENT = 64 /* elements; keeps blocks of neighbouring pieces off each other's cache lines */
};

static ddl_status build(const ddl_plan *plan, size_t count, ddl_schedule **schedule, ddl_error *err)
{
    ddl_shape shape = plan->shape;
    shape.count = count;
    return plan->algorithm->build(&shape, schedule, err);
}

typedef struct plan_extent { /* of a schedule; what decides how a call is cut */
    size_t message_bytes, scratch_bytes;
} plan_extent;

/*
 * The largest extent over a few ranks, in place and not. Ranks must cut a call in the same way, but their own
 * schedules differ by rank, and only each rank knows whether its call is in place; so all of them look at
 * these same stand-ins.
 */
static ddl_status measure(const ddl_plan *plan, size_t count, plan_extent *largest, ddl_error *err)
{
    const ddl_collective collective = plan->algorithm->collective;
    const int nranks = plan->shape.nranks;
    const int ranks[] = { 0, 1 % nranks, nranks / 2, nranks - 1 };
    const bool point_to_point = collective == DDL_COLLECTIVE_SEND || collective == DDL_COLLECTIVE_RECV;
    *largest = (plan_extent){ 0, 0 };
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            ddl_shape shape = plan->shape;
            shape.count = count;
            shape.in_place = in_place == 1;
            shape.rank = point_to_point ? 0 : ranks[i];
            shape.root = point_to_point ? nranks - 1 : 0;
            bool makes_sense = collective == DDL_COLLECTIVE_BROADCAST ? shape.in_place
                               : collective == DDL_COLLECTIVE_REDUCE  ? !shape.in_place || shape.rank == 0
                                                                      : !point_to_point || !shape.in_place;
            if (!makes_sense)
                continue;
            ddl_schedule *schedule = NULL;
            DDL_TRY(plan->algorithm->build(&shape, &schedule, err));
            largest->message_bytes = ddl_size_max(largest->message_bytes, schedule->largest_message);
            largest->scratch_bytes = ddl_size_max(largest->scratch_bytes, schedule->scratch_bytes);
            ddl_schedule_destroy(schedule);
        }
    return DDL_OK;
}

static bool is_small_enough(const plan_extent *extent)
{
    return extent->message_bytes <= MESSAGE_BYTES && extent->scratch_bytes <= SCRATCH_BYTES;
}

/* The count that would bring schedules of this one's proportions under the limits. */
static size_t shrunken(const plan_extent *extent, size_t count)
{
    double share = 1;
    if (extent->message_bytes > MESSAGE_BYTES)
        share = (double)MESSAGE_BYTES / (double)extent->message_bytes;
    if (extent->scratch_bytes > SCRATCH_BYTES) {
        double scratch_share = (double)SCRATCH_BYTES / (double)extent->scratch_bytes;
        share = scratch_share < share ? scratch_share : share;
    }
    size_t smaller = (size_t)((double)count * share);
    if (smaller >= count)
        smaller = count - 1;
    if (smaller > PIECE_ALIGNMENT)
        smaller -= smaller % PIECE_ALIGNMENT;
    return smaller > 0 ? smaller : 1;
}

/* Find the largest piece that is small enough, and this rank's schedule of it. */
static ddl_status cut(ddl_plan *plan, ddl_error *err)
{
    size_t count = plan->shape.count;
    plan_extent largest;
    DDL_TRY(measure(plan, count, &largest, err));
    while (!is_small_enough(&largest) && count > 1) {
        count = shrunken(&largest, count);
        DDL_TRY(measure(plan, count, &largest, err));
    }
    plan->piece_count = count;
    plan->npieces = plan->shape.count == 0 ? 1 : (uint32_t)((plan->shape.count + count - 1) / count);
    DDL_TRY(build(plan, count, &plan->full, err));
    if (plan->full->largest_message > MESSAGE_LIMIT)
        return DDL_FAIL(err, DDL_EINTERNAL, "%s makes a message of %zu bytes; the limit is %d",
                        plan->algorithm->name, plan->full->largest_message, MESSAGE_LIMIT);
    return DDL_OK;
}

ddl_status ddl_plan_create(const ddl_algorithm *algorithm, const ddl_shape *shape, ddl_plan **out,
                           ddl_error *err)
{
    ddl_plan *plan = ddl_alloc(sizeof *plan);
    if (plan == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a plan");
    plan->algorithm = algorithm;
    plan->shape = *shape;
    ddl_list_init(&plan->idle);
    ddl_status status = cut(plan, err);
    if (status != DDL_OK)
        goto fail;
    size_t last = shape->count - (plan->npieces - 1) * plan->piece_count;
    plan->tail = plan->full;
    if (last != plan->piece_count) {
        plan->tail = NULL;
        if ((status = build(plan, last, &plan->tail, err)) != DDL_OK)
            goto fail;
    }
    plan->scratch_bytes = ddl_size_max(plan->full->scratch_bytes, plan->tail->scratch_bytes);
    *out = plan;
    return DDL_OK;
fail:
    ddl_plan_destroy(plan);
    return status;
}

static void destroy_run(ddl_plan_run *run)
{
    for (int i = 0; i < run->nslots; i++) {
        ddl_run_destroy(run->slots[i].full);
        ddl_run_destroy(run->slots[i].tail);
    }
    ddl_free(run);
}

void ddl_plan_destroy(ddl_plan *plan)
{
    if (plan == NULL)
        return;
    DDL_ASSERT(plan->users == 0);
    for (ddl_link *first; (first = ddl_list_take_first(&plan->idle)) != NULL;)
        destroy_run(DDL_CONTAINER(first, ddl_plan_run, link));
    if (plan->tail != plan->full)
        ddl_schedule_destroy(plan->tail);
    ddl_schedule_destroy(plan->full);
    ddl_free(plan);
}

ddl_status ddl_plan_take(ddl_plan *plan, ddl_plan_run **out, ddl_error *err)
{
    ddl_link *first = ddl_list_take_first(&plan->idle);
    if (first != NULL) {
        plan->users++;
        *out = DDL_CONTAINER(first, ddl_plan_run, link);
        return DDL_OK;
    }
    ddl_plan_run *run = ddl_alloc(sizeof *run);
    if (run == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory to run a plan");
    run->plan = plan;
    run->nslots = plan->npieces < DDL_PIECES_IN_FLIGHT ? (int)plan->npieces : DDL_PIECES_IN_FLIGHT;
    for (int i = 0; i < run->nslots; i++) {
        ddl_status status = ddl_run_create(plan->full, &run->slots[i].full, err);
        if (status == DDL_OK && plan->tail != plan->full)
            status = ddl_run_create(plan->tail, &run->slots[i].tail, err);
        if (status != DDL_OK) {
            destroy_run(run);
            return status;
        }
    }
    plan->users++;
    *out = run;
    return DDL_OK;
}

void ddl_plan_give_back(ddl_plan_run *run)
{
    run->plan->users--;
    ddl_list_append(&run->plan->idle, &run->link);
}
