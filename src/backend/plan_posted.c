/* plan_posted.c - from the schedules of all ranks to what this one does on a board. */
#include "backend/plan_posted.h"

/* Whether such a call may go over a board. All ranks have to know it in whole, which excludes what has counts
 * that only some are told. */
static bool may_be_posted(ddl_collective collective)
{
    const ddl_collective_facts *facts = &ddl_collectives[collective];
    return !facts->is_point_to_point && collective != DDL_COLLECTIVE_ALLTOALLV &&
           !(facts->is_rooted && facts->is_uneven);
}

/* What all ranks say to this one in a piece, and whether it goes over the board. */
static ddl_status hear_all(const ddl_plan *plan, size_t count, bool in_place, ddl_oneshot_posts posts[],
                           bool *possible, ddl_error *err)
{
    ddl_shape shape = plan->shape;
    shape.count = count;
    for (shape.rank = 0; shape.rank < shape.nranks; shape.rank++) {
        shape.in_place = in_place;
        if (!ddl_shape_makes_sense(plan->algorithm->collective, &shape))
            shape.in_place = !in_place;
        ddl_schedule *schedule;
        DDL_TRY(plan->algorithm->build(&shape, &schedule, err));
        posts[shape.rank] = ddl_oneshot_posts_for(schedule, plan->shape.rank);
        ddl_schedule_destroy(schedule);
    }
    *possible =
        ddl_oneshot_is_possible(posts, shape.nranks, ddl_collective_is_rooted(plan->algorithm->collective));
    return DDL_OK;
}

/* Whether ranks in whose place this one would be, if its call were in place or if it were not, would tell
 * where their buffers are. */
static ddl_status would_tell(const ddl_plan *plan, size_t count, const ddl_oneshot_posts posts[], bool *would,
                             ddl_error *err)
{
    ddl_shape shape = plan->shape;
    ddl_schedule *schedule;
    ddl_oneshot *oneshot = NULL;
    shape.count = count;
    shape.in_place = !plan->shape.in_place;
    DDL_TRY(plan->algorithm->build(&shape, &schedule, err));
    ddl_status status = ddl_oneshot_create(schedule, posts, &oneshot, err);
    *would = status == DDL_OK && ddl_oneshot_common_bytes(oneshot) > 0;
    ddl_oneshot_destroy(oneshot);
    ddl_schedule_destroy(schedule);
    return status;
}

/* ---- what is known ---- */

/* Whether it is possible depends on no counts, but that each rank has something to say, which its posts show,
 * in place or not, and no more than a post may, to which the cut sees. Of even calls plans are kept, so it is
 * not asked often. */
static bool is_known(const ddl_posted_memo *memo, const ddl_plan *plan)
{
    for (int i = 0; i < DDL_POSTED_KNOWN && plan->shape.blocks.counts != NULL; i++)
        if (memo->known[i].algorithm == plan->algorithm &&
            memo->known[i].element_bytes == plan->shape.element_bytes &&
            memo->known[i].average == plan->shape.average)
            return true;
    return false;
}

static void remember(ddl_posted_memo *memo, const ddl_plan *plan)
{
    if (plan->shape.blocks.counts != NULL && !is_known(memo, plan))
        memo->known[memo->next++ % DDL_POSTED_KNOWN] =
            (struct ddl_posted_known){ plan->algorithm, plan->shape.element_bytes, plan->shape.average };
}

/* ---- derivation ---- */

/* All ranks have to find the same, whether their own call is in place or not. */
static ddl_status derive_oneshot(const ddl_plan *plan, ddl_plan_phase *phase, ddl_posted_memo *memo,
                                 ddl_error *err)
{
    const bool is_barrier = plan->algorithm->collective == DDL_COLLECTIVE_BARRIER;
    const int own = plan->shape.in_place ? 1 : 0, other = 1 - own;
    ddl_oneshot_posts posts[2][DDL_BOARD_RANKS];
    bool possible[2];
    DDL_TRY(hear_all(plan, phase->count, own == 1, posts[own], &possible[own], err));
    const bool is_heard = possible[own] && !is_barrier && !is_known(memo, plan);
    possible[other] = possible[own];
    if (is_heard)
        DDL_TRY(hear_all(plan, phase->count, other == 1, posts[other], &possible[other], err));
    if (!possible[other])
        return DDL_OK;
    remember(memo, plan);
    DDL_TRY(ddl_oneshot_create(phase->schedule, posts[own], &phase->oneshot, err));
    bool would = true;
    if (ddl_oneshot_common_bytes(phase->oneshot) > 0) {
        if (!is_heard)
            DDL_TRY(hear_all(plan, phase->count, other == 1, posts[other], &possible[other], err));
        DDL_TRY(would_tell(plan, phase->count, posts[other], &would, err));
    }
    if (!would)
        ddl_oneshot_forgo_common(phase->oneshot);
    return DDL_OK;
}

ddl_status ddl_plan_create_posted(const ddl_algorithm *algorithm, const ddl_shape *shape, ddl_cut_memo *cuts,
                                  ddl_posted_memo *memo, ddl_plan **plan, ddl_error *err)
{
    *plan = NULL;
    if (!may_be_posted(algorithm->collective))
        return DDL_OK;
    DDL_TRY(ddl_plan_create(algorithm, shape, cuts, plan, err));
    bool is_posted = *plan != NULL && (*plan)->keeps_schedules;
    ddl_status status = DDL_OK;
    for (uint32_t i = 0; is_posted && status == DDL_OK && i < (*plan)->nphases; i++) {
        status = derive_oneshot(*plan, &(*plan)->phases[i], memo, err);
        is_posted = (*plan)->phases[i].oneshot != NULL;
    }
    if (status != DDL_OK || !is_posted) {
        ddl_plan_destroy(*plan);
        *plan = NULL;
    }
    return status;
}
