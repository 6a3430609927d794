/* cut.c - the largest piece whose schedules are small enough, measured on ranks that stand in for all. */
#include "backend/cut.h"

#include "base/bytes.h"
#include "base/floating.h"
#include "base/size.h"
#include "executor/oneshot.h"

enum {
    MESSAGE_LIMIT = 2 * 1024 * 1024, /* what a transport takes at most */
    SCRATCH_MESSAGES = 3,            /* per piece: what is received to be reduced should stay in cache */
    /* The same of a call that is not cut. What stands in for all ranks and roots is only about right, so the
     * transport takes twice as much. */
    WHOLE_MESSAGE_BYTES = 1024 * 1024,
    WHOLE_SCRATCH_BYTES = 4 * 1024 * 1024,
    PIECE_ALIGNMENT = 64, /* elements; keeps blocks of neighbouring pieces off each other's cache lines */
    EVERY_RANK = 16       /* up to so many ranks on several hosts, each is looked at */
};

typedef struct extent { /* of a schedule; what decides how a call is cut */
    size_t message_bytes, scratch_bytes;
    size_t posted_bytes; /* in a round */
    bool is_posted;      /* it can be */
} extent;

/* No message of a piece is larger. */
static size_t message_bytes(const ddl_shape *shape)
{
    return shape->message_bytes > 0 ? shape->message_bytes : DDL_PIECE_BYTES;
}

static ddl_status measure_rank(const ddl_algorithm *algorithm, const ddl_shape *standing_in, extent *largest,
                               ddl_error *err)
{
    ddl_shape shape = *standing_in;
    for (int in_place = 0; in_place < 2; in_place++) {
        shape.in_place = in_place == 1;
        if (!ddl_shape_makes_sense(algorithm->collective, &shape))
            continue;
        ddl_schedule *schedule = NULL;
        DDL_TRY(algorithm->build(&shape, &schedule, err));
        largest->message_bytes = ddl_size_max(largest->message_bytes, schedule->largest_message);
        largest->scratch_bytes = ddl_size_max(largest->scratch_bytes, schedule->scratch_bytes);
        if (largest->is_posted) {
            const size_t posted_bytes = ddl_oneshot_bytes(schedule);
            largest->posted_bytes = ddl_size_max(largest->posted_bytes, posted_bytes);
            largest->is_posted = posted_bytes > 0;
        }
        ddl_schedule_destroy(schedule);
    }
    return DDL_OK;
}

static int ranks_on(const ddl_placement *placement, int host)
{
    int count = 0;
    for (int rank = 0; rank < placement->nranks; rank++)
        count += placement->node_of[rank] == host;
    return count;
}

/* Ranks have other parts on hosts with other numbers of them: of each number, the first and the last rank of
 * the first host that has it. */
static ddl_status measure_hosts(const ddl_algorithm *algorithm, const ddl_shape *standing_in, extent *largest,
                                ddl_error *err)
{
    const ddl_placement *placement = &standing_in->placement;
    ddl_shape shape = *standing_in;
    for (int host = 0; placement->node_of != NULL && placement->nnodes > 1 && host < placement->nnodes;
         host++) {
        int count = ranks_on(placement, host), earlier = 0, first = -1, last = -1;
        while (ranks_on(placement, earlier) != count)
            earlier++;
        for (int rank = 0; rank < placement->nranks; rank++)
            if (placement->node_of[rank] == host) {
                first = first < 0 ? rank : first;
                last = rank;
            }
        if (earlier < host)
            continue;
        for (int i = 0; i < (first == last ? 1 : 2); i++) {
            shape.rank = i == 0 ? first : last;
            DDL_TRY(measure_rank(algorithm, &shape, largest, err));
        }
    }
    return DDL_OK;
}

/*
 * The largest extent over a few ranks, in place and not. Ranks must cut a call in the same way, but their own
 * schedules differ by rank, only each rank knows whether its call is in place, and in an alltoallv each knows
 * its own counts only; so all of them look at these same stand-ins. Those of a v form have `count` in every
 * block. `even` is room for nranks counts and as many starts.
 */
static ddl_status measure(const ddl_algorithm *algorithm, const ddl_shape *own, size_t count, size_t *even,
                          extent *largest, ddl_error *err)
{
    const ddl_collective collective = algorithm->collective;
    const int nranks = own->nranks;
    const bool point_to_point = ddl_collective_is_point_to_point(collective);
    ddl_shape shape = *own;
    shape.count = count;
    shape.root = point_to_point ? nranks - 1 : 0;
    if (ddl_collective_is_uneven(collective)) {
        for (int i = 0; i < nranks; i++) {
            even[i] = count;
            even[nranks + i] = (size_t)i * count;
        }
        shape.blocks = (ddl_uneven){ even, even + nranks };
        if (collective == DDL_COLLECTIVE_ALLTOALLV)
            shape.out_blocks = shape.blocks;
    }
    *largest = (extent){ .is_posted = own->post_bytes > 0 };
    if (own->placement.nnodes > 1 && nranks <= EVERY_RANK && !point_to_point) {
        for (shape.rank = 0; shape.rank < nranks; shape.rank++)
            DDL_TRY(measure_rank(algorithm, &shape, largest, err));
        return DDL_OK;
    }
    if (point_to_point) {
        shape.rank = 0;
        return measure_rank(algorithm, &shape, largest, err);
    }
    const int ranks[] = { 0, 1, nranks / 2,
                          nranks - 1 }; /* rising, so that those of few ranks are found once */
    int last = -1;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        if (ranks[i] > last && ranks[i] < nranks) {
            last = shape.rank = ranks[i];
            DDL_TRY(measure_rank(algorithm, &shape, largest, err));
        }
    return measure_hosts(algorithm, &shape, largest, err);
}

/* Reductions are cut so that what is reduced stays in cache, and alltoallv as its ranks do not know the same.
 */
static bool may_stay_whole(ddl_collective collective)
{
    return !ddl_collective_reduces(collective) && collective != DDL_COLLECTIVE_ALLTOALLV;
}

/*
 * What is only moved gains from being cut only where there is much of it, as both directions of a connection
 * are then busy at once; so a call without large messages stays whole, and each of them needs one grant.
 */
static bool is_small_enough(ddl_collective collective, const ddl_shape *shape, const extent *of, size_t count)
{
    if (of->is_posted)
        return of->posted_bytes <= shape->post_bytes;
    if (count == shape->count && may_stay_whole(collective))
        return of->message_bytes <= WHOLE_MESSAGE_BYTES && of->scratch_bytes <= WHOLE_SCRATCH_BYTES;
    size_t limit = message_bytes(shape);
    return of->message_bytes <= limit && of->scratch_bytes <= SCRATCH_MESSAGES * limit;
}

/* The count that would bring schedules of this one's proportions under the limits. */
static size_t shrunken(const ddl_shape *shape, const extent *of, size_t count)
{
    double share = 1, limit = (double)message_bytes(shape);
    if (!of->is_posted && (double)of->message_bytes > limit)
        share = limit / (double)of->message_bytes;
    if (of->is_posted)
        share = (double)shape->post_bytes / (double)of->posted_bytes;
    else if ((double)of->scratch_bytes > SCRATCH_MESSAGES * limit) {
        double scratch_share = SCRATCH_MESSAGES * limit / (double)of->scratch_bytes;
        share = scratch_share < share ? scratch_share : share;
    }
    size_t smaller = (size_t)((double)count * share);
    if (smaller >= count)
        smaller = count - 1;
    if (smaller > PIECE_ALIGNMENT)
        smaller -= smaller % PIECE_ALIGNMENT;
    return smaller > 0 ? smaller : 1;
}

ddl_status ddl_cut_check(const ddl_algorithm *algorithm, size_t largest_bytes, ddl_error *err)
{
    if (largest_bytes <= MESSAGE_LIMIT)
        return DDL_OK;
    return DDL_FAIL(err, DDL_EINTERNAL, "%s makes a message of %zu bytes; the limit is %d", algorithm->name,
                    largest_bytes, MESSAGE_LIMIT);
}

/* The count to begin with. The largest one of an alltoallv is not the same everywhere: begin with what is. */
static size_t first_count(ddl_collective collective, const ddl_shape *shape)
{
    return collective == DDL_COLLECTIVE_ALLTOALLV ? message_bytes(shape) / shape->element_bytes
                                                  : shape->count;
}

typedef struct ddl_cut_known finding; /* what was measured */

static __attribute__((noinline)) ddl_status find_anew(const ddl_algorithm *algorithm, const ddl_shape *shape,
                                                      finding *found, ddl_error *err)
{
    const ddl_collective collective = algorithm->collective;
    size_t *even = NULL;
    if (ddl_collective_is_uneven(collective) &&
        (even = ddl_alloc_array((size_t)shape->nranks * 2, sizeof *even)) == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a plan");
    extent largest;
    size_t count = first_count(collective, shape);
    ddl_status status = measure(algorithm, shape, count, even, &largest, err);
    while (status == DDL_OK && !is_small_enough(collective, shape, &largest, count) && count > 1) {
        count = shrunken(shape, &largest, count);
        status = measure(algorithm, shape, count, even, &largest, err);
    }
    ddl_free(even);
    if (status != DDL_OK)
        return status;
    found->piece = count;
    found->is_posted = largest.is_posted;
    return ddl_cut_check(algorithm, largest.message_bytes, err);
}

static ddl_status find(const ddl_algorithm *algorithm, const ddl_shape *shape, finding *found, ddl_error *err)
{
    const ddl_floating before = ddl_floating_enter();
    const ddl_status status = find_anew(algorithm, shape, found, err);
    ddl_floating_leave(before);
    return status;
}

/* ---- what is known ---- */

/* Of what was small enough without being cut, blocks that are smaller, but not empty, are too; and if it
 * could be posted, they can. Nothing else is said of other counts. */
static bool settles(const finding *known, size_t whole)
{
    const bool is_whole = known->piece == known->whole && known->is_posted == (known->post_bytes > 0);
    return whole == known->whole || (is_whole && whole > 0 && whole < known->whole);
}

static bool is_alike(const finding *known, const ddl_algorithm *algorithm, const ddl_shape *shape)
{
    return known->algorithm == algorithm && known->element_bytes == shape->element_bytes &&
           known->message_bytes == shape->message_bytes && known->post_bytes == shape->post_bytes &&
           known->average == shape->average;
}

/* From a memo, or for it: one that is like this takes the place of its like. */
static ddl_status remember(const ddl_algorithm *algorithm, const ddl_shape *shape, ddl_cut_memo *memo,
                           finding *found, ddl_error *err)
{
    finding *place = NULL;
    for (int i = 0; i < DDL_CUTS_KNOWN && place == NULL; i++)
        if (is_alike(&memo->known[i], algorithm, shape))
            place = &memo->known[i];
    if (place != NULL && settles(place, found->whole)) {
        found->piece = place->piece == place->whole ? found->whole : place->piece;
        found->is_posted = place->is_posted;
        return DDL_OK;
    }
    DDL_TRY(find(algorithm, shape, found, err));
    if (place == NULL)
        place = &memo->known[memo->next++ % DDL_CUTS_KNOWN];
    *place = *found;
    return DDL_OK;
}

/* Pieces over a board are as large as each other, so that all ranks have something to say in the last one. */
static size_t evened_out(size_t total, size_t most)
{
    const size_t npieces = total / most + (total % most != 0);
    const size_t even = total / npieces + (total % npieces != 0);
    const size_t aligned = (even + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
    const bool leaves_enough = npieces * PIECE_ALIGNMENT <= even / 2; /* for the last one */
    return leaves_enough && aligned <= most ? aligned : even;
}

ddl_status ddl_cut_find(const ddl_algorithm *algorithm, const ddl_shape *shape, ddl_cut_memo *memo,
                        ddl_cut *cut, ddl_error *err)
{
    finding found = { .algorithm = algorithm,
                      .element_bytes = shape->element_bytes,
                      .message_bytes = shape->message_bytes,
                      .post_bytes = shape->post_bytes,
                      .average = shape->average,
                      .whole = first_count(algorithm->collective, shape) };
    if (memo != NULL && ddl_collective_is_uneven(algorithm->collective))
        DDL_TRY(remember(algorithm, shape, memo, &found, err));
    else
        DDL_TRY(find(algorithm, shape, &found, err));
    size_t count = found.piece;
    if (found.is_posted && count > 0 && count < shape->count)
        count = evened_out(shape->count, count);
    const size_t pieces = count == 0 ? 0 : shape->count / count + (shape->count % count != 0);
    if (pieces > UINT32_MAX)
        return DDL_FAIL(err, DDL_EINVAL, "%zu elements are too many for one call", shape->count);
    *cut = (ddl_cut){ count, pieces > 0 ? (uint32_t)pieces : 1, found.is_posted };
    return DDL_OK;
}
