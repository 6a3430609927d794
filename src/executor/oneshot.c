/* oneshot.c - what a rank reads from the sheets of others, in rounds, and does with it. */
#include "executor/oneshot_parts.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/size.h"

#include <string.h>

enum { OF_IN = -1, OF_OUT = -2, PART_BYTES = 8 * 1024 /* a multiple of any element */ };

typedef struct place { /* of an operand */
    int of;            /* IN, OUT, or the rank that posts it, */
    bool is_long;      /* with more than a sheet holds */
    size_t offset;
} place;

typedef struct action { /* a local step, or a message that is taken from a sheet */
    ddl_step_kind kind; /* copy, reduce or scale */
    place target;
    size_t bytes;
    uint32_t first_operand, noperands;
} action;

struct ddl_oneshot {
    int nranks;
    int element_shift; /* its bytes are a power of two, so that nothing has to be divided in each call */
    int nrounds;
    ddl_oneshot_round rounds[DDL_ONESHOT_ROUNDS];
    action *actions;
    uint32_t nactions;
    place *operands;
    uint32_t noperands;
    size_t common_bytes; /* see ddl_oneshot_common_bytes */
    ddl_slice result;    /* this rank's part, if they are not 0 */
};

typedef struct landing { /* a message that the schedule has land in scratch, and which stays on its sheet */
    ddl_slice slice;
    place from;
} landing;

typedef struct reading {               /* of what ranks say */
    const ddl_oneshot_posts *posts;    /* of each rank, for this one */
    landing landings[DDL_BOARD_RANKS]; /* of this round */
    int nlandings, round;
    ddl_oneshot *oneshot;
} reading;

/* ---- what this rank does with it ---- */

static bool find_operand(const reading *r, const ddl_slice *slice, place *found)
{
    if (slice->buffer != DDL_BUFFER_SCRATCH) {
        *found = (place){ slice->buffer == DDL_BUFFER_IN ? OF_IN : OF_OUT, false, slice->offset };
        return true;
    }
    for (int i = 0; i < r->nlandings; i++) {
        const landing *there = &r->landings[i];
        if (slice->offset < there->slice.offset || ddl_slice_end(slice) > ddl_slice_end(&there->slice))
            continue;
        *found = (place){ there->from.of, there->from.is_long,
                          there->from.offset + slice->offset - there->slice.offset };
        return r->posts[there->from.of].message[r->round].buffer != DDL_BUFFER_SCRATCH;
    }
    return false;
}

/* The operands are added after it. */
static action *add_action(reading *r, ddl_step_kind kind, const ddl_slice *target)
{
    ddl_oneshot *oneshot = r->oneshot;
    action *added = &oneshot->actions[oneshot->nactions++];
    *added = (action){ .kind = kind,
                       .target = { target->buffer == DDL_BUFFER_IN ? OF_IN : OF_OUT, false, target->offset },
                       .bytes = target->bytes,
                       .first_operand = oneshot->noperands };
    return added;
}

static void add_operand(reading *r, action *to, place operand)
{
    r->oneshot->operands[r->oneshot->noperands++] = operand;
    to->noperands++;
}

static bool add_local(reading *r, const ddl_step *step, const ddl_slice operands[], uint32_t noperands)
{
    const ddl_slice *target = &step->target.part[0];
    if (target->buffer == DDL_BUFFER_SCRATCH || step->target.part[1].bytes > 0 || noperands > DDL_BOARD_RANKS)
        return false;
    ddl_step_kind kind = step->kind == DDL_STEP_RECV_REDUCE ? DDL_STEP_REDUCE : (ddl_step_kind)step->kind;
    action *added = add_action(r, kind, target);
    for (uint32_t i = 0; i < noperands; i++) {
        place operand;
        if (!find_operand(r, &operands[i], &operand))
            return false;
        add_operand(r, added, operand);
    }
    return true;
}

/* What the schedule has land in scratch stays on its sheet; the rest is copied to its place. */
static bool add_message(reading *r, const ddl_step *step)
{
    const ddl_slice *message = &r->posts[step->peer].message[r->round];
    r->oneshot->rounds[r->round].needs |= (ddl_board_ranks)1 << step->peer;
    const ddl_slice *lands = step->kind == DDL_STEP_RECV ? &step->target.part[0] : &step->source;
    if (message->bytes == 0 || message->bytes != lands->bytes)
        return false;
    place from = { step->peer, r->posts[step->peer].is_long[r->round], r->posts[step->peer].at[r->round] };
    if (lands->buffer == DDL_BUFFER_SCRATCH)
        r->landings[r->nlandings++] = (landing){ *lands, from };
    else if (message->buffer == DDL_BUFFER_SCRATCH)
        return false;
    else
        add_operand(r, add_action(r, DDL_STEP_COPY, lands), from);
    if (step->kind == DDL_STEP_RECV)
        return true;
    ddl_slice target = step->target.part[0];
    ddl_slice operands[2] = { step->incoming_first ? *lands : target,
                              step->incoming_first ? target : *lands };
    return add_local(r, step, operands, 2);
}

static void end_round(reading *r)
{
    r->oneshot->rounds[r->round++].end = r->oneshot->nactions;
    r->nlandings = 0; /* sheets are written anew */
}

static bool add_step(reading *r, const ddl_schedule *own, const ddl_step *step)
{
    if (ddl_step_is_message(step) && (int)step->number > r->round)
        end_round(r);
    switch ((ddl_step_kind)step->kind) {
    case DDL_STEP_SEND:
        return true;
    case DDL_STEP_RECV:
    case DDL_STEP_RECV_REDUCE:
        return add_message(r, step);
    case DDL_STEP_REDUCE:
        return add_local(r, step, &own->operands[step->first_operand], step->noperands);
    case DDL_STEP_COPY:
        return add_local(r, step, &step->source, 1);
    case DDL_STEP_SCALE:
        return add_local(r, step, NULL, 0);
    }
    return false;
}

static bool read_schedule(reading *r, const ddl_schedule *own)
{
    for (uint32_t i = 0; i < own->nsteps; i++)
        if (!add_step(r, own, &own->steps[i]))
            return false;
    end_round(r);
    return r->round == r->oneshot->nrounds;
}

/* ---- parts that are each one rank's in the buffers of all ---- */

static bool is_slice(const ddl_slice *slice, ddl_buffer buffer, const ddl_slice *like)
{
    return slice->buffer == buffer && slice->offset == like->offset && slice->bytes == like->bytes;
}

/* Of the first round what is reduced, and with what. */
static bool makes_result_of_all(const ddl_oneshot *oneshot, const ddl_oneshot_posts posts[],
                                const ddl_slice *result)
{
    for (uint32_t i = 0; i < oneshot->rounds[0].end; i++) {
        const action *act = &oneshot->actions[i];
        if (act->target.offset != result->offset || act->bytes != result->bytes)
            return false;
        for (uint32_t k = 0; k < act->noperands; k++) {
            const place *from = &oneshot->operands[act->first_operand + k];
            if (from->offset != (from->of >= 0 ? posts[from->of].at[0] : result->offset))
                return false;
        }
    }
    return true;
}

/* That of each rank is in the same place of all buffers. */
static bool is_in_place_of(const ddl_schedule *own, const ddl_oneshot_posts posts[], const ddl_slice *result)
{
    for (uint32_t i = 0; i < own->nsteps; i++) {
        const ddl_step *step = &own->steps[i];
        if (!ddl_step_is_message(step))
            continue;
        const ddl_slice *slice = &step->target.part[0], *their = posts[step->peer].message;
        const bool is_first = step->number == 0;
        if (step->kind == DDL_STEP_RECV_REDUCE || !is_slice(&their[0], DDL_BUFFER_IN, result) ||
            (step->kind == DDL_STEP_SEND && is_first && !is_slice(slice, DDL_BUFFER_IN, &their[1])) ||
            (step->kind == DDL_STEP_SEND && !is_first && !is_slice(slice, DDL_BUFFER_OUT, result)) ||
            (step->kind == DDL_STEP_RECV && !is_first && !is_slice(slice, DDL_BUFFER_OUT, &their[1])))
            return false;
    }
    return true;
}

static void find_common(ddl_oneshot *oneshot, const ddl_schedule *own, const ddl_oneshot_posts posts[])
{
    if (oneshot->nrounds != 2 || oneshot->rounds[1].nparts != 1)
        return;
    const ddl_slice *result = &oneshot->rounds[1].parts[0];
    const uint32_t others = (uint32_t)oneshot->nranks - 1;
    if (result->buffer != DDL_BUFFER_OUT || !makes_result_of_all(oneshot, posts, result) ||
        !is_in_place_of(own, posts, result) || oneshot->nactions != oneshot->rounds[0].end + others)
        return; /* in the second round all is copied, and that is all */
    size_t end = ddl_slice_end(result);
    for (int rank = 0; rank < oneshot->nranks; rank++)
        if (rank != own->rank)
            end = ddl_size_max(end, ddl_slice_end(&posts[rank].message[1]));
    oneshot->result = *result;
    oneshot->common_bytes = end;
}

size_t ddl_oneshot_common_bytes(const ddl_oneshot *oneshot)
{
    return oneshot->common_bytes;
}

void ddl_oneshot_forgo_common(ddl_oneshot *oneshot)
{
    oneshot->common_bytes = 0;
}

/* ---- life ---- */

static uint32_t operands_at_most(const ddl_schedule *schedule)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++)
        count += schedule->steps[i].noperands > 2 ? schedule->steps[i].noperands : 2;
    return count;
}

static ddl_status keep_posts(ddl_oneshot *oneshot, const ddl_schedule *own, ddl_error *err)
{
    for (int round = 0; round < oneshot->nrounds; round++) {
        ddl_oneshot_saying said;
        bool found = ddl_oneshot_find_said(own, round, &said);
        DDL_ASSERT(found);                                                  /* or there were no rounds */
        if (said.nparts == 0 || said.parts[0].buffer == DDL_BUFFER_SCRATCH) /* which nobody reads */
            continue;
        size_t bytes = (size_t)said.nparts * sizeof *said.parts;
        oneshot->rounds[round].parts = ddl_alloc(bytes);
        if (oneshot->rounds[round].parts == NULL)
            return DDL_FAIL(err, DDL_ENOMEM, "no memory for a call of %d ranks", own->nranks);
        memcpy(oneshot->rounds[round].parts, said.parts, bytes);
        oneshot->rounds[round].nparts = said.nparts;
        oneshot->rounds[round].bytes = said.bytes;
    }
    return DDL_OK;
}

ddl_status ddl_oneshot_create(const ddl_schedule *own, const ddl_oneshot_posts posts[], ddl_oneshot **out,
                              ddl_error *err)
{
    ddl_oneshot *oneshot = ddl_alloc(sizeof *oneshot);
    reading *r = ddl_alloc(sizeof *r);
    if (oneshot != NULL) {
        oneshot->nranks = own->nranks;
        DDL_ASSERT((own->element_bytes & (own->element_bytes - 1)) == 0);
        oneshot->element_shift = __builtin_ctzll(own->element_bytes);
        oneshot->nrounds = posts[own->rank].rounds;
        oneshot->actions = ddl_alloc_array(2 * (size_t)own->nsteps, sizeof *oneshot->actions);
        oneshot->operands = ddl_alloc_array(operands_at_most(own), sizeof *oneshot->operands);
    }
    if (oneshot == NULL || r == NULL || oneshot->actions == NULL || oneshot->operands == NULL) {
        ddl_free(r);
        ddl_oneshot_destroy(oneshot);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a call of %d ranks", own->nranks);
    }
    *r = (reading){ .posts = posts, .oneshot = oneshot };
    bool read = read_schedule(r, own);
    DDL_ASSERT(read); /* of the whole catalogue, by a test */
    ddl_free(r);
    ddl_status status = keep_posts(oneshot, own, err);
    if (status != DDL_OK) {
        ddl_oneshot_destroy(oneshot);
        return status;
    }
    find_common(oneshot, own, posts);
    *out = oneshot;
    return DDL_OK;
}

void ddl_oneshot_destroy(ddl_oneshot *oneshot)
{
    if (oneshot == NULL)
        return;
    for (int round = 0; round < DDL_ONESHOT_ROUNDS; round++)
        ddl_free(oneshot->rounds[round].parts);
    ddl_free(oneshot->actions);
    ddl_free(oneshot->operands);
    ddl_free(oneshot);
}

int ddl_oneshot_rounds(const ddl_oneshot *oneshot)
{
    return oneshot->nrounds;
}

const ddl_oneshot_round *ddl_oneshot_round_of(const ddl_oneshot *oneshot, int round)
{
    return &oneshot->rounds[round];
}

/* ---- running ---- */

/* What a round is finished with. */
typedef struct work {
    const ddl_oneshot *oneshot;
    const ddl_board *board;
    const ddl_oneshot_buffers *buffers; /* NULL: all say what they say on their sheets */
    void *in, *out;
    ddl_compute *compute;
    ddl_dtype dtype;
    ddl_op op;
} work;

static inline const char *find(const work *w, const place *from)
{
    if (from->of < 0)
        return (const char *)(from->of == OF_IN ? w->in : w->out) + from->offset;
    if (w->buffers != NULL && w->buffers[from->of].out != NULL)
        return w->buffers[from->of].in + w->oneshot->result.offset;
    return (const char *)ddl_board_bytes(w->board, from->of, from->is_long) + from->offset;
}

/* So many bytes of an action, from the given one on. */
static inline void perform(const work *w, const action *act, size_t begin, size_t bytes, bool past_caches)
{
    const void *operands[DDL_BOARD_RANKS];
    for (uint32_t k = 0; k < act->noperands; k++)
        operands[k] = find(w, &w->oneshot->operands[act->first_operand + k]) + begin;
    void *target = (char *)(act->target.of == OF_IN ? w->in : w->out) + act->target.offset + begin;
    const size_t count = bytes >> w->oneshot->element_shift;
    ddl_compute *compute = w->compute;
    if (act->kind == DDL_STEP_REDUCE && past_caches && act + 1 == &w->oneshot->actions[w->oneshot->nactions])
        compute->ops->reduce_past(compute, target, operands, (int)act->noperands, count, w->dtype, w->op);
    else if (act->kind == DDL_STEP_REDUCE)
        compute->ops->reduce(compute, target, operands, (int)act->noperands, count, w->dtype, w->op);
    else if (act->kind == DDL_STEP_COPY)
        compute->ops->copy(compute, target, operands[0], bytes, past_caches);
    else
        compute->ops->scale(compute, target, count, w->dtype, w->oneshot->nranks);
}

void ddl_oneshot_finish(const ddl_oneshot *oneshot, int round, const ddl_board *board, void *in, void *out,
                        ddl_compute *compute, ddl_dtype dtype, ddl_op op, bool past_caches)
{
    const work w = { oneshot, board, NULL, in, out, compute, dtype, op };
    for (uint32_t i = round > 0 ? oneshot->rounds[round - 1].end : 0; i < oneshot->rounds[round].end; i++)
        perform(&w, &oneshot->actions[i], 0, oneshot->actions[i].bytes, past_caches);
}

/* What was made last is in the nearest cache when it is written to the others. */
void ddl_oneshot_finish_in(const ddl_oneshot *oneshot, const ddl_board *board,
                           const ddl_oneshot_buffers buffers[], void *in, void *out, ddl_compute *compute,
                           ddl_dtype dtype, ddl_op op, bool past_caches)
{
    const work w = { oneshot, board, buffers, in, out, compute, dtype, op };
    const ddl_slice *result = &oneshot->result;
    for (size_t done = 0; done < result->bytes; done += PART_BYTES) {
        const size_t bytes = ddl_size_min(result->bytes - done, PART_BYTES), at = result->offset + done;
        for (uint32_t i = 0; i < oneshot->rounds[0].end; i++)
            perform(&w, &oneshot->actions[i], done, bytes, false);
        for (int i = 1; i < oneshot->nranks; i++) {
            const int rank = (board->rank + i) % oneshot->nranks;
            if (buffers[rank].out != NULL)
                compute->ops->copy(compute, buffers[rank].out + at, (char *)out + at, bytes, past_caches);
        }
    }
}
