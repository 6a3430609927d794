/* oneshot.c - from schedules of few rounds to reads of sheets. */
#include "executor/oneshot.h"

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
    size_t common_bytes; /* see there */
    ddl_slice result;    /* this rank's part, if they are not 0 */
};

typedef struct landing { /* a message that the schedule has land in scratch, and which stays on its sheet */
    ddl_slice slice;
    place from;
} landing;

typedef struct reading {               /* of what ranks say */
    const ddl_oneshot_word *words;     /* of each rank to this one */
    landing landings[DDL_BOARD_RANKS]; /* of this round */
    int nlandings, round;
    ddl_oneshot *oneshot;
} reading;

/* ---- what ranks say ---- */

static bool is_sent_in(const ddl_step *step, int round)
{
    return step->kind == DDL_STEP_SEND && step->number == (uint32_t)round;
}

/* Whether no message of this round waits for what this step, which is of it, does. */
static bool comes_after_messages(const ddl_schedule *schedule, const ddl_step *step, int round)
{
    for (uint32_t i = 0; i < step->nsuccessors; i++)
        if (is_sent_in(&schedule->steps[schedule->successors[step->first_successor + i]], round))
            return false;
    return true;
}

/*
 * How many rounds there are, of messages at both ends that are numbered by their round, and leave before
 * anything else of it happens; 0: it is not so. sent and received are in each of them.
 */
static int count_rounds(const ddl_schedule *schedule, uint32_t sent[], uint32_t received[])
{
    int round = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const ddl_step *step = &schedule->steps[i];
        if (ddl_step_is_message(step)) {
            if (step->number >= DDL_ONESHOT_ROUNDS || (int)step->number < round ||
                step->target.part[1].bytes > 0)
                return 0;
            round = (int)step->number;
            (step->kind == DDL_STEP_SEND ? sent : received)[round]++;
        }
        if (step->kind != DDL_STEP_SEND && !comes_after_messages(schedule, step, round))
            return 0;
    }
    return round + 1;
}

/* As one of all, who have each something to say to each in each round; or, in one round, as the one or one of
 * the others, where one rank has messages for all others or from all. */
static bool has_its_messages(const ddl_schedule *schedule, int rounds, const uint32_t sent[],
                             const uint32_t received[])
{
    uint32_t others = (uint32_t)schedule->nranks - 1;
    bool among_all = rounds > 0;
    for (int round = 0; round < rounds; round++)
        among_all = among_all && sent[round] == others && received[round] == others;
    bool is_one = (sent[0] == others && received[0] == 0) || (sent[0] == 0 && received[0] == others);
    bool is_other = sent[0] + received[0] == 1;
    return among_all || (rounds == 1 && (is_one || is_other));
}

/* What a rank says in a round to all others together, in the order in which it is on its sheet. */
typedef struct saying {
    int nparts;
    ddl_slice parts[DDL_BOARD_RANKS]; /* of one buffer, the first of them first, none touching the next */
    size_t bytes;
} saying;

static size_t end_of(const ddl_slice *slice)
{
    return slice->offset + slice->bytes;
}

static void insert(saying *said, ddl_slice slice)
{
    int at = said->nparts++;
    for (; at > 0 && said->parts[at - 1].offset > slice.offset; at--)
        said->parts[at] = said->parts[at - 1];
    said->parts[at] = slice;
}

/* Those that touch or overlap become one, which changes no place on the sheet. So that does not depend on
 * what is between them in a buffer, which only its owner knows (backend/layout.h). */
static void join(saying *said)
{
    int kept = 0;
    for (int i = 1; i < said->nparts; i++) {
        ddl_slice *last = &said->parts[kept], *next = &said->parts[i];
        if (next->offset > end_of(last))
            said->parts[++kept] = *next;
        else if (end_of(next) > end_of(last))
            last->bytes = end_of(next) - last->offset;
    }
    said->nparts = kept + 1;
    for (int i = 0; i < said->nparts; i++)
        said->bytes += said->parts[i].bytes;
}

static bool find_said(const ddl_schedule *schedule, int round, saying *said)
{
    said->nparts = 0;
    said->bytes = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const ddl_slice *slice = &schedule->steps[i].target.part[0];
        if (!is_sent_in(&schedule->steps[i], round))
            continue;
        if (said->nparts == DDL_BOARD_RANKS || (said->nparts > 0 && slice->buffer != said->parts[0].buffer))
            return false;
        insert(said, *slice);
    }
    if (said->nparts > 0)
        join(said);
    return true;
}

static size_t place_on_sheet(const saying *said, const ddl_slice *message)
{
    size_t before = 0;
    int i = 0;
    while (end_of(&said->parts[i]) < end_of(message))
        before += said->parts[i++].bytes;
    return before + message->offset - said->parts[i].offset;
}

/* ---- what this rank does with it ---- */

static bool find_operand(const reading *r, const ddl_slice *slice, place *found)
{
    if (slice->buffer != DDL_BUFFER_SCRATCH) {
        *found = (place){ slice->buffer == DDL_BUFFER_IN ? OF_IN : OF_OUT, false, slice->offset };
        return true;
    }
    for (int i = 0; i < r->nlandings; i++) {
        const landing *there = &r->landings[i];
        if (slice->offset < there->slice.offset || end_of(slice) > end_of(&there->slice))
            continue;
        *found = (place){ there->from.of, there->from.is_long,
                          there->from.offset + slice->offset - there->slice.offset };
        return r->words[there->from.of].message[r->round].buffer != DDL_BUFFER_SCRATCH;
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
    const ddl_slice *message = &r->words[step->peer].message[r->round];
    r->oneshot->rounds[r->round].needs |= (ddl_board_ranks)1 << step->peer;
    const ddl_slice *lands = step->kind == DDL_STEP_RECV ? &step->target.part[0] : &step->source;
    if (message->bytes == 0 || message->bytes != lands->bytes)
        return false;
    place from = { step->peer, r->words[step->peer].is_long[r->round], r->words[step->peer].at[r->round] };
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

/* Whether nothing is put into scratch but what comes, which stays on its sheet instead; *says_scratch: what
 * it says is from there all the same; *reads: anything of what comes. */
static bool needs_no_scratch(const ddl_schedule *schedule, bool *says_scratch, bool *reads)
{
    *says_scratch = *reads = false;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const ddl_step *step = &schedule->steps[i];
        const bool is_scratch = step->target.part[0].buffer == DDL_BUFFER_SCRATCH;
        if (step->kind == DDL_STEP_SEND)
            *says_scratch = *says_scratch || is_scratch;
        else if (step->kind != DDL_STEP_RECV || !is_scratch)
            *reads = true;
        const bool is_local = step->kind != DDL_STEP_SEND && step->kind != DDL_STEP_RECV;
        if (is_local && (is_scratch || step->target.part[1].bytes > 0))
            return false;
    }
    return true;
}

/* The rounds of a schedule that is of such rounds; else 0. *word is told how it uses scratch. */
static int rounds_of(const ddl_schedule *schedule, uint32_t sent[], ddl_oneshot_word *word)
{
    uint32_t received[DDL_ONESHOT_ROUNDS] = { 0 };
    if (schedule->nranks < 2 || schedule->nranks > DDL_BOARD_RANKS ||
        !needs_no_scratch(schedule, &word->says_scratch, &word->reads))
        return 0;
    const int rounds = count_rounds(schedule, sent, received);
    return has_its_messages(schedule, rounds, sent, received) ? rounds : 0;
}

size_t ddl_oneshot_bytes(const ddl_schedule *schedule)
{
    uint32_t sent[DDL_ONESHOT_ROUNDS] = { 0 };
    ddl_oneshot_word word;
    const int rounds = rounds_of(schedule, sent, &word);
    saying said;
    size_t most = rounds > 0 ? 1 : 0;
    for (int round = 0; round < rounds; round++) {
        if (!find_said(schedule, round, &said))
            return 0;
        most = said.bytes > most ? said.bytes : most;
    }
    return most;
}

ddl_oneshot_word ddl_oneshot_word_to(const ddl_schedule *schedule, int rank)
{
    ddl_oneshot_word word = { .rounds = 0 };
    uint32_t sent[DDL_ONESHOT_ROUNDS] = { 0 };
    const int rounds = rounds_of(schedule, sent, &word);
    saying said;
    for (int round = 0; round < rounds; round++) {
        if (!find_said(schedule, round, &said) || said.bytes > DDL_POST_BYTES)
            return word;
        word.is_long[round] = said.bytes > DDL_SHEET_BYTES;
        for (uint32_t i = 0; i < schedule->nsteps; i++)
            if (is_sent_in(&schedule->steps[i], round) && schedule->steps[i].peer == rank) {
                word.message[round] = schedule->steps[i].target.part[0];
                word.at[round] = place_on_sheet(&said, &word.message[round]);
            }
    }
    word.sent = sent[0];
    word.rounds = rounds;
    return word;
}

/* With as many messages as there are pairs, or others. */
bool ddl_oneshot_is_possible(const ddl_oneshot_word words[], int nranks, bool may_be_rooted)
{
    uint32_t others = (uint32_t)nranks - 1, messages = 0;
    bool says_scratch = false, reads = false;
    for (int rank = 0; rank < nranks; rank++) {
        if (words[rank].rounds == 0 || words[rank].rounds != words[0].rounds)
            return false;
        messages += words[rank].sent;
        says_scratch = says_scratch || words[rank].says_scratch;
        reads = reads || words[rank].reads;
    }
    if (says_scratch && reads)
        return false;
    return messages == (uint32_t)nranks * others || (may_be_rooted && messages == others);
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
static bool makes_result_of_all(const ddl_oneshot *oneshot, const ddl_oneshot_word words[],
                                const ddl_slice *result)
{
    for (uint32_t i = 0; i < oneshot->rounds[0].end; i++) {
        const action *act = &oneshot->actions[i];
        if (act->target.offset != result->offset || act->bytes != result->bytes)
            return false;
        for (uint32_t k = 0; k < act->noperands; k++) {
            const place *from = &oneshot->operands[act->first_operand + k];
            if (from->offset != (from->of >= 0 ? words[from->of].at[0] : result->offset))
                return false;
        }
    }
    return true;
}

/* That of each rank is in the same place of all buffers. */
static bool is_in_place_of(const ddl_schedule *own, const ddl_oneshot_word words[], const ddl_slice *result)
{
    for (uint32_t i = 0; i < own->nsteps; i++) {
        const ddl_step *step = &own->steps[i];
        if (!ddl_step_is_message(step))
            continue;
        const ddl_slice *slice = &step->target.part[0], *their = words[step->peer].message;
        const bool is_first = step->number == 0;
        if (step->kind == DDL_STEP_RECV_REDUCE || !is_slice(&their[0], DDL_BUFFER_IN, result) ||
            (step->kind == DDL_STEP_SEND && is_first && !is_slice(slice, DDL_BUFFER_IN, &their[1])) ||
            (step->kind == DDL_STEP_SEND && !is_first && !is_slice(slice, DDL_BUFFER_OUT, result)) ||
            (step->kind == DDL_STEP_RECV && !is_first && !is_slice(slice, DDL_BUFFER_OUT, &their[1])))
            return false;
    }
    return true;
}

static void find_common(ddl_oneshot *oneshot, const ddl_schedule *own, const ddl_oneshot_word words[])
{
    if (oneshot->nrounds != 2 || oneshot->rounds[1].nparts != 1)
        return;
    const ddl_slice *result = &oneshot->rounds[1].parts[0];
    const uint32_t others = (uint32_t)oneshot->nranks - 1;
    if (result->buffer != DDL_BUFFER_OUT || !makes_result_of_all(oneshot, words, result) ||
        !is_in_place_of(own, words, result) || oneshot->nactions != oneshot->rounds[0].end + others)
        return; /* in the second round all is copied, and that is all */
    size_t end = end_of(result);
    for (int rank = 0; rank < oneshot->nranks; rank++)
        if (rank != own->rank)
            end = ddl_size_max(end, end_of(&words[rank].message[1]));
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
        saying said;
        bool found = find_said(own, round, &said);
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

ddl_status ddl_oneshot_create(const ddl_schedule *own, const ddl_oneshot_word words[], ddl_oneshot **out,
                              ddl_error *err)
{
    const ddl_oneshot_word *word = &words[own->rank];
    ddl_oneshot *oneshot = ddl_alloc(sizeof *oneshot);
    reading *r = ddl_alloc(sizeof *r);
    if (oneshot != NULL) {
        oneshot->nranks = own->nranks;
        DDL_ASSERT((own->element_bytes & (own->element_bytes - 1)) == 0);
        oneshot->element_shift = __builtin_ctzll(own->element_bytes);
        oneshot->nrounds = word->rounds;
        oneshot->actions = ddl_alloc_array(2 * (size_t)own->nsteps, sizeof *oneshot->actions);
        oneshot->operands = ddl_alloc_array(operands_at_most(own), sizeof *oneshot->operands);
    }
    if (oneshot == NULL || r == NULL || oneshot->actions == NULL || oneshot->operands == NULL) {
        ddl_free(r);
        ddl_oneshot_destroy(oneshot);
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for a call of %d ranks", own->nranks);
    }
    *r = (reading){ .words = words, .oneshot = oneshot };
    bool read = read_schedule(r, own);
    DDL_ASSERT(read); /* of the whole catalogue, by a test */
    ddl_free(r);
    ddl_status status = keep_posts(oneshot, own, err);
    if (status != DDL_OK) {
        ddl_oneshot_destroy(oneshot);
        return status;
    }
    find_common(oneshot, own, words);
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
