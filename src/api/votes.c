/* votes.c - words of all ranks on each call, the library's communicator, and calls that it performs. */
#include "api/votes.h"

#include "api/errand.h"
#include "api/gpu.h"
#include "api/issue.h"
#include "api/sampling.h"
#include "api/turns.h"
#include "backend/offload.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/failpoint.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* In the piece of an enter frame of a collective (1 and 5 are in failure.c): the sender leaves this call to
 * its GPU if all do; it performs it on its host; what names the library's communicator, from rank 0; whether
 * the sender's part of that has come up, where hosts go on without. */
enum { WORD_GPU = 2, WORD_HOST = 3, WORD_ID = 4, WORD_UP = 6 };

enum {
    BALLOTS = 64,         /* whose words are kept */
    BESIDE = BALLOTS / 2, /* words are said for so many that are not decided */
    WORD_BYTES = 12 + 4 + DDL_GPU_ID_BYTES,
    WORD_IS_QUESTION = 1, /* in a word's flags: it was said before, and the answer is missing */
    WORD_SHARES_GPU = 2,  /* and what the sender's facts say of that */
    ASK_FIRST_MS = 20,    /* what is said first may come before its receiver has the communicator */
    ASK_AFTER_MS = 200,   /* and then after twice as long, again and again */
    ASK_MOST_MS = 2000,
    LEFT_TICKS = 25, /* of 20 ms: who has left may have been done, and what it sent is still to arrive. No
                        clock, as a process that stood still has not looked meanwhile */
    STOP_MS = 10000,
    STOP_LATE_MS = 600, /* after a deadline: a cause has settled after 420 ms (500 if nobody waits), waiters
                           give up after 800 */
    CLOSE_MS = 800,
    UP_MS = 30000 /* see is_too_late */
};

typedef struct spoken { /* by a rank, on a ballot */
    uint64_t word;      /* twice the ballot, and 1 for WORD_GPU */
    uint64_t sequence;  /* of its call */
} spoken;

/* Of the library's communicator. AWAITS_OTHERS: this rank's part is up; UNUSED: it is done without. */
typedef enum progress { NOT_TRIED, AWAITS_ID, MAKING, AWAITS_OTHERS, MADE, UNUSED } progress;

struct ddl_votes {
    ddl_list requests;     /* by vote, oldest first */
    bool is_optional;      /* where the library cannot be used hosts go on without, as nobody asks for it */
    ddl_sampling sampling; /* which candidates are put to the vote */
    uint64_t ncandidates;  /* calls that could be */
    uint64_t nballots;     /* calls that were */
    uint64_t ndecided;     /* the first so many of them, by all words */
    spoken *words;         /* of each rank, its own too, by ballot modulo BALLOTS */
    ddl_offload_facts *facts; /* of each rank, as it said with its words for GPUs */
    ddl_offload_move *moves;
    const struct ddl_offload_ops *ops;
    ddl_offload *offload;
    ddl_errand *errand; /* what calls wait for, or NULL */
    int gpu;            /* -1: no call could go there so far */
    progress progress;
    int64_t begun_ns; /* when what it waits for, to be found or to come up, was begun */
    int nup;          /* ranks whose part has come up */
    bool is_down;     /* another rank's has not */
    bool has_id;
    uint8_t id[DDL_OFFLOAD_ID_BYTES];
    bool is_heard; /* something was that may let requests go on */
    uint64_t turn; /* the number by which it asks for turns */
    int nwanted;   /* own words for GPUs whose calls have not ended: it has the turn */
    uint64_t nbegun, nended;
    int64_t ask_ns; /* when missing words are asked for; 0 */
    int64_t ask_after_ms;
    uint64_t asked;  /* the oldest ballot that was not decided then */
    int left_ticks;  /* since it was noticed that a rank has left */
    int64_t stop_ns; /* until when GPUs are waited for after a failure; 0 */
};

typedef enum word { NO_WORD, HOST, GPU } word;

static spoken *word_of(const ddl_comm *comm, int rank, uint64_t ballot)
{
    return &comm->votes->words[(size_t)rank * BALLOTS + ballot % BALLOTS];
}

static word read_word(const ddl_comm *comm, int rank, uint64_t ballot)
{
    uint64_t said = word_of(comm, rank, ballot)->word;
    if (said / 2 != ballot)
        return NO_WORD;
    return said % 2 == 1 ? GPU : HOST;
}

static ddl_request *request_of(ddl_link *link)
{
    return DDL_CONTAINER(link, ddl_request, vote);
}

/* ---- life ---- */

ddl_status ddl_votes_create(ddl_comm *comm, ddl_error *err)
{
    size_t nranks = (size_t)comm->nranks;
    if (comm->world->voting_rule == DDL_VOTING_NEVER || comm->mesh == NULL)
        return DDL_OK;
    ddl_votes *votes = comm->votes = ddl_alloc(sizeof *votes);
    if (votes == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for votes");
    ddl_list_init(&votes->requests);
    votes->is_optional = comm->world->voting_rule == DDL_VOTING_SAMPLED;
    ddl_sampling_init(&votes->sampling, !votes->is_optional);
    votes->gpu = -1;
    votes->turn = ddl_turn_number();
    votes->words = ddl_alloc_array(nranks * BALLOTS, sizeof *votes->words);
    votes->facts = ddl_alloc_array(nranks, sizeof *votes->facts);
    votes->moves = ddl_alloc_array(nranks, sizeof *votes->moves);
    if (votes->words == NULL || votes->facts == NULL || votes->moves == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for votes of %d ranks", comm->nranks);
    return DDL_OK;
}

void ddl_votes_free(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    if (votes == NULL)
        return;
    ddl_errand_leave(votes->errand);
    if (votes->ops != NULL)
        votes->ops->close(votes->offload, CLOSE_MS);
    ddl_free(votes->words);
    ddl_free(votes->facts);
    ddl_free(votes->moves);
    ddl_free(votes);
    comm->votes = NULL;
}

static void end_errand(ddl_votes *votes)
{
    ddl_errand_leave(votes->errand);
    votes->errand = NULL;
}

/* ---- trouble ---- */

static void raise_device(ddl_comm *comm, const ddl_request *request, int culprit, const char *text)
{
    ddl_notice notice = { .code = DDL_EDEVICE, .culprit = culprit, .witness = comm->rank };
    notice.sequence = request->task.sequence;
    snprintf(notice.operation, sizeof notice.operation, "%s", ddl_request_operation(request));
    snprintf(notice.text, sizeof notice.text, "%s", text);
    ddl_failure_raise(comm, &notice);
}

/* It was asked for, so there is no going on without it. */
static void raise_unusable(ddl_comm *comm, const ddl_request *request, int culprit, const char *reason)
{
    char text[480];
    snprintf(text, sizeof text,
             "DDL_GPU=nccl, but NCCL cannot be used: %.340s; DDL_GPU=staged goes without it", reason);
    raise_device(comm, request, culprit, text);
}

static void raise_own(ddl_comm *comm, const ddl_request *request, const ddl_error *error)
{
    char who[160], reason[340];
    snprintf(reason, sizeof reason, "%.120s: %.200s", ddl_comm_describe(comm, comm->rank, who, sizeof who),
             error->text);
    raise_unusable(comm, request, comm->rank, reason);
}

/* All ranks count their calls: if those that meet on a ballot have other numbers, then what was called
 * differs at the lower one, and who remembers that says what it was. */
static void check_same_call(ddl_comm *comm, int peer, uint64_t ballot)
{
    int low = comm->rank < peer ? comm->rank : peer, high = comm->rank < peer ? peer : comm->rank;
    uint64_t of_low = word_of(comm, low, ballot)->sequence, of_high = word_of(comm, high, ballot)->sequence;
    if (read_word(comm, low, ballot) == NO_WORD || read_word(comm, high, ballot) == NO_WORD ||
        of_low == of_high)
        return;
    char one[160], other[160];
    ddl_notice notice = { .code = DDL_EMISMATCH, .culprit = high, .witness = low };
    notice.sequence = of_low < of_high ? of_low : of_high;
    snprintf(
        notice.text, sizeof notice.text,
        "call %llu of %.120s meets call %llu of %.120s: one of them has called something else before; every "
        "rank must make the same calls",
        (unsigned long long)of_low, ddl_comm_describe(comm, low, one, sizeof one),
        (unsigned long long)of_high, ddl_comm_describe(comm, high, other, sizeof other));
    ddl_failure_raise(comm, &notice);
}

/* ---- turns ---- */

static bool take_turn(ddl_votes *votes, int gpu)
{
    if (votes->nwanted == 0 && !ddl_turn_take(gpu, votes->turn))
        return false;
    votes->nwanted++;
    return true;
}

/* One call less. */
static void give_turn(ddl_votes *votes)
{
    if (--votes->nwanted == 0)
        ddl_turn_give(votes->gpu);
}

/* ---- which calls ---- */

bool ddl_votes_takes_op(ddl_op op, ddl_dtype dtype)
{
    if (dtype == DDL_INT16 || dtype == DDL_UINT16)
        return false;
    bool is_float = dtype >= DDL_FLOAT16;
    return op == DDL_SUM || op == DDL_PROD || (!is_float && (op == DDL_MIN || op == DDL_MAX));
}

static bool has_blocks(const ddl_shape *shape)
{
    for (int rank = 0; rank < shape->nranks; rank++)
        if (shape->blocks.counts[rank] > 0)
            return true;
    return false;
}

/* Whether there is something to do, as far as that is known to all. */
static bool has_elements(const ddl_shape *shape)
{
    bool is_secret = shape->out_blocks.counts != NULL; /* of an alltoallv each rank knows its own part */
    return is_secret || (shape->blocks.counts != NULL ? has_blocks(shape) : shape->count > 0);
}

/* Whether it could be put to the vote: the same on all ranks, if they make the same call. */
static bool is_candidate(const ddl_comm *comm, const ddl_request *request)
{
    const ddl_task *task = &request->task;
    if (task->signature.collective >= DDL_COLLECTIVE_COUNT) /* the library's own */
        return false;
    switch (task->algorithm->collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
    case DDL_COLLECTIVE_REDUCE:
    case DDL_COLLECTIVE_REDUCE_SCATTER:
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
        if (!ddl_votes_takes_op(task->op, task->dtype))
            return false;
        break;
    case DDL_COLLECTIVE_ALLGATHER:
    case DDL_COLLECTIVE_BROADCAST:
    case DDL_COLLECTIVE_GATHER:
    case DDL_COLLECTIVE_SCATTER:
    case DDL_COLLECTIVE_ALLTOALL:
    case DDL_COLLECTIVE_ALLGATHERV:
    case DDL_COLLECTIVE_GATHERV:
    case DDL_COLLECTIVE_SCATTERV:
    case DDL_COLLECTIVE_ALLTOALLV:
        break;
    default:
        return false;
    }
    if (!has_elements(&task->shape))
        return false;
    return comm->votes->is_optional ? request->is_large : !ddl_backend_goes_by_board(comm->backend, task);
}

/* ---- where it is optional ---- */

static bool is_coming_up(const ddl_votes *votes)
{
    return votes->progress >= AWAITS_ID && votes->progress <= AWAITS_OTHERS;
}

/* From now on hosts perform all calls of this communicator, for this reason. */
static void go_without(ddl_comm *comm, ddl_log_level level, const char *reason)
{
    ddl_votes *votes = comm->votes;
    votes->progress = UNUSED;
    end_errand(votes);
    if (votes->offload != NULL) /* it has no calls yet, so what still goes on in it is no concern of theirs */
        votes->ops->abort(votes->offload);
    ddl_log(level, "%s: calls on buffers of GPUs go through the hosts, as NCCL cannot be used: %s",
            comm->pool->prefix, reason);
}

/* Hosts wait for a library that they can do without for UP_MS, and not so long that a call that waits for it
 * would have no time left. */
static bool is_too_late(const ddl_comm *comm)
{
    const int64_t now_ns = ddl_now_ns();
    if (!comm->votes->is_optional)
        return false;
    DDL_LIST_FOR_EACH (link, &comm->in_flight) {
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        const bool waits =
            request->stage != DDL_VOTE_NONE || request->task.signature.collective == DDL_SIGNATURE_FREE;
        const int64_t waited_ms = (now_ns - request->issued_ns) / DDL_NS_PER_MS;
        if (waits && request->issued_ns != 0 && waited_ms > request->timeout_ms / 4 * 3)
            return true;
    }
    return now_ns - comm->votes->begun_ns > UP_MS * DDL_NS_PER_MS;
}

/* Whether a stream of the program waits for an operation. What the library does when it comes up, or is
 * aborted, may wait for all that is under way on the GPU, and so for that stream. */
static bool has_waiting_stream(const ddl_world *world)
{
    DDL_LIST_FOR_EACH (active, &world->active)
        DDL_LIST_FOR_EACH (link, &DDL_CONTAINER(active, ddl_comm, active)->in_flight)
            if (DDL_CONTAINER(link, ddl_request, link)->task.hold.latch != NULL)
                return true;
    return false;
}

/* This rank knows what it has to say of itself, or that it has nothing to say. False: not yet, or it never
 * will. */
static bool introduce(ddl_comm *comm, const ddl_request *request, int gpu)
{
    ddl_votes *votes = comm->votes;
    ddl_error error;
    ddl_status status = DDL_OK;
    if (votes->gpu >= 0)
        return true;
    if (votes->errand == NULL) {
        votes->errand = ddl_errand_look(gpu);
        votes->begun_ns = ddl_now_ns();
    }
    if (votes->errand == NULL)
        status = DDL_FAIL(&error, DDL_ENOMEM, "no memory for NCCL");
    else if (ddl_errand_is_done(votes->errand))
        status = ddl_errand_found(votes->errand, &votes->ops, &votes->facts[comm->rank], &error);
    else if (is_too_late(comm))
        status = DDL_FAIL(&error, DDL_ETIMEDOUT, "it is still being loaded");
    else
        return false;
    end_errand(votes);
    if (status == DDL_OK)
        votes->gpu = gpu;
    else if (votes->is_optional)
        go_without(comm, DDL_LOG_INFO, error.text);
    else
        raise_own(comm, request, &error);
    return status == DDL_OK || votes->is_optional;
}

/* Whether this rank can leave it to its GPU, and then does if all do; NO_WORD: that is not known yet, or it
 * has failed. Managed memory is where the program touches it, and stays with copies. An alltoall in place
 * NCCL does not have, and the order of a stream is kept by copies alone: what NCCL does when it comes up or
 * is aborted may wait for the whole GPU, and so for a stream that waits for this call. */
static word choose_word(ddl_comm *comm, const ddl_request *request)
{
    ddl_votes *votes = comm->votes;
    const ddl_task *task = &request->task;
    bool exchanges = task->algorithm->collective == DDL_COLLECTIVE_ALLTOALL ||
                     task->algorithm->collective == DDL_COLLECTIVE_ALLTOALLV;
    if (votes->progress == UNUSED || (votes->is_optional && has_waiting_stream(comm->world)))
        return HOST;
    if (request->is_empty) /* nothing of it is anywhere */
        return votes->gpu >= 0 && take_turn(votes, votes->gpu) ? GPU : HOST;
    if (task->staging == NULL || task->hold.latch != NULL || ddl_gpu_is_managed(task->in) ||
        ddl_gpu_is_managed(task->out) || (exchanges && task->shape.in_place))
        return HOST;
    if (!introduce(comm, request, task->staging->gpu))
        return NO_WORD;
    return votes->gpu == task->staging->gpu && take_turn(votes, votes->gpu) ? GPU : HOST;
}

/* ---- words ---- */

static void tell(ddl_comm *comm, int peer, ddl_frame frame, ddl_view payload)
{
    const size_t *counts = frame.collective == DDL_COLLECTIVE_ALLTOALLV
                               ? ddl_failure_expected_counts(comm, frame.sequence)
                               : NULL;
    for (int rank = 0; rank < comm->nranks; rank++)
        if (rank != comm->rank && (peer < 0 || peer == rank)) {
            frame.count = counts != NULL ? counts[rank] : frame.count;
            ddl_mesh_tell_bytes(comm->mesh, comm->members[rank], &frame, payload);
        }
}

static ddl_frame frame_about(const ddl_comm *comm, uint64_t sequence, const ddl_signature *signature)
{
    ddl_frame frame = ddl_failure_enter_frame(comm->id * 2 + DDL_CHANNEL_COLLECTIVE, sequence, signature);
    frame.number = 1; /* who else is in the call is not the question */
    return frame;
}

/* What this rank has said, to one rank, or to all others with peer -1. */
static void say_word(ddl_comm *comm, int peer, uint64_t ballot, uint32_t flags, ddl_frame frame)
{
    uint8_t bytes[WORD_BYTES] = { 0 };
    const ddl_offload_facts *facts = &comm->votes->facts[comm->rank];
    bool is_gpu = read_word(comm, comm->rank, ballot) == GPU;
    frame.piece = is_gpu ? WORD_GPU : WORD_HOST;
    ddl_put_u64(bytes, ballot);
    ddl_put_u32(bytes + 8, flags | (is_gpu && facts->shares_gpu ? WORD_SHARES_GPU : 0));
    if (is_gpu) {
        ddl_put_u32(bytes + 12, facts->version);
        memcpy(bytes + 16, facts->gpu_id, DDL_GPU_ID_BYTES);
    }
    tell(comm, peer, frame, (ddl_view){ bytes, sizeof bytes });
}

/* It becomes a ballot. False: what this rank says of it is not known yet. */
static bool put_to_vote(ddl_comm *comm, ddl_request *request)
{
    ddl_votes *votes = comm->votes;
    word chosen = choose_word(comm, request);
    if (chosen == NO_WORD)
        return false;
    request->ballot = ++votes->nballots;
    request->stage = DDL_VOTE_OPEN;
    request->task.shape.post_bytes = 0; /* whoever goes by a board does so in the order of calls */
    *word_of(comm, comm->rank, request->ballot) =
        (spoken){ 2 * request->ballot + (chosen == GPU), request->task.sequence };
    say_word(comm, -1, request->ballot, 0,
             frame_about(comm, request->task.sequence, &request->task.signature));
    for (int rank = 0; rank < comm->nranks && !comm->failure.failing; rank++)
        check_same_call(comm, rank, request->ballot);
    return true;
}

/*
 * In the order of calls, and for BESIDE ballots that are not decided at most. A rank that has decided one has
 * heard everybody's word for it, so it is at most BESIDE ahead of what another has decided, and what it says
 * at most BALLOTS ahead: no word that is still wanted is overwritten.
 */
static void say_next(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    DDL_LIST_FOR_EACH (link, &votes->requests) {
        ddl_request *request = request_of(link);
        if (request->stage != DDL_VOTE_WAITS)
            continue;
        ddl_sampled sampled = request->candidate == 0 ? DDL_SAMPLED_OUT
                                                      : ddl_sampling_of(&votes->sampling, request->candidate,
                                                                        votes->nballots == votes->ndecided);
        if (sampled == DDL_SAMPLED_OPEN)
            return;
        if (sampled == DDL_SAMPLED_OUT)
            request->stage = DDL_VOTE_HOST;
        else if (votes->nballots == votes->ndecided + BESIDE || !put_to_vote(comm, request))
            return;
        if (comm->failure.failing)
            return;
    }
}

/* In the order of ballots too. */
static void decide(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    DDL_LIST_FOR_EACH (link, &votes->requests) {
        ddl_request *request = request_of(link);
        bool is_gpu = true;
        if (request->stage == DDL_VOTE_WAITS)
            return;
        if (request->stage != DDL_VOTE_OPEN)
            continue;
        for (int rank = 0; rank < comm->nranks; rank++) {
            word said = read_word(comm, rank, request->ballot);
            if (said == NO_WORD)
                return;
            is_gpu = is_gpu && said == GPU;
        }
        votes->ndecided++;
        DDL_ASSERT(request->ballot == votes->ndecided);
        request->stage = is_gpu ? DDL_VOTE_GPU : DDL_VOTE_HOST;
        if (votes->is_optional)
            ddl_sampling_decided(&votes->sampling, request->candidate, is_gpu, BESIDE);
        if (!is_gpu && read_word(comm, comm->rank, request->ballot) == GPU)
            give_turn(votes);
    }
}

static void vote(ddl_comm *comm)
{
    uint64_t ndecided;
    do {
        ndecided = comm->votes->ndecided;
        say_next(comm);
        decide(comm);
    } while (comm->votes->ndecided > ndecided && !comm->failure.failing);
}

/* Whether it has to wait for what was called before it: boards are used in the order of calls, and whether a
 * candidate goes by one may not be known yet. */
static bool is_behind(const ddl_votes *votes, const ddl_request *request)
{
    if (!votes->is_optional || request->task.shape.post_bytes == 0)
        return false;
    DDL_LIST_FOR_EACH (link, &votes->requests) {
        ddl_vote stage = request_of(link)->stage;
        if (stage == DDL_VOTE_WAITS || stage == DDL_VOTE_HOST)
            return true;
    }
    return false;
}

bool ddl_votes_begin(ddl_comm *comm, ddl_request *request)
{
    ddl_votes *votes = comm->votes;
    if (!ddl_request_is_collective(request))
        return false;
    bool is_first = ddl_list_empty(&votes->requests);
    if (is_candidate(comm, request)) {
        request->candidate = ++votes->ncandidates;
        if (is_first && ddl_sampling_of(&votes->sampling, request->candidate, true) == DDL_SAMPLED_OUT)
            return false;
    } else if (!is_behind(votes, request)) {
        return false;
    }
    if (comm->failure.failing) /* by what early frames said; it ends with that */
        return true;
    if (is_first)
        ddl_list_append(&comm->world->voting, &comm->voting);
    request->stage = DDL_VOTE_WAITS;
    ddl_list_append(&votes->requests, &request->vote);
    votes->is_heard = true;
    comm->world->posts_held = true; /* who is lost meanwhile would have this list walked inside this walk */
    vote(comm);
    comm->world->posts_held = false;
    return true;
}

bool ddl_votes_is_word(const ddl_frame *frame)
{
    return frame->type == DDL_FRAME_ENTER && frame->channel % 2 == DDL_CHANNEL_COLLECTIVE &&
           ((frame->piece >= WORD_GPU && frame->piece <= WORD_ID) || frame->piece == WORD_UP);
}

static void take_word(ddl_comm *comm, int peer, const ddl_frame *frame, const uint8_t *bytes)
{
    ddl_votes *votes = comm->votes;
    uint64_t ballot = ddl_get_u64(bytes);
    uint32_t flags = ddl_get_u32(bytes + 8);
    spoken *place = word_of(comm, peer, ballot);
    if (ballot > place->word / 2) {
        *place = (spoken){ 2 * ballot + (frame->piece == WORD_GPU), frame->sequence };
        votes->is_heard = true;
        check_same_call(comm, peer, ballot);
    }
    if (frame->piece == WORD_GPU) {
        votes->facts[peer].version = ddl_get_u32(bytes + 12);
        votes->facts[peer].shares_gpu = (flags & WORD_SHARES_GPU) != 0;
        memcpy(votes->facts[peer].gpu_id, bytes + 16, DDL_GPU_ID_BYTES);
    }
    const ddl_signature signature = { .collective = frame->collective,
                                      .dtype = frame->dtype,
                                      .op = frame->op,
                                      .algorithm = frame->algorithm,
                                      .root = frame->root,
                                      .count = frame->count };
    if ((flags & WORD_IS_QUESTION) != 0 && read_word(comm, comm->rank, ballot) != NO_WORD)
        say_word(comm, peer, ballot, 0, frame_about(comm, frame->sequence, &signature));
}

static void take_id(ddl_comm *comm, int peer, ddl_view payload)
{
    ddl_votes *votes = comm->votes;
    if (peer != 0 || votes->has_id)
        return;
    memcpy(votes->id, payload.data, sizeof votes->id);
    votes->has_id = votes->is_heard = true;
}

/* Each other rank says one of them, once. */
static void take_up(ddl_votes *votes, bool is_up)
{
    if (is_up)
        votes->nup++;
    else
        votes->is_down = true;
    votes->is_heard = true;
}

static uint8_t first_byte(ddl_view payload)
{
    return *(const uint8_t *)payload.data;
}

static bool is_sound(const ddl_comm *comm, const ddl_frame *frame, ddl_view payload)
{
    if (frame->piece == WORD_ID)
        return payload.bytes == DDL_OFFLOAD_ID_BYTES;
    if (frame->piece == WORD_UP)
        return payload.bytes == 1 && first_byte(payload) <= 1;
    if (payload.bytes != WORD_BYTES)
        return false;
    uint64_t ballot = ddl_get_u64(payload.data);
    return ballot > 0 && ballot <= comm->votes->ndecided + BALLOTS;
}

void ddl_votes_heard(ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload)
{
    if (comm->failure.failing)
        return;
    if (comm->votes == NULL || !is_sound(comm, frame, payload)) {
        char who[160];
        ddl_notice notice = { .code = DDL_EPROTO, .culprit = peer, .witness = comm->rank };
        notice.sequence = frame->sequence;
        snprintf(notice.text, sizeof notice.text, "%s sent a malformed word about NCCL",
                 ddl_comm_describe(comm, peer, who, sizeof who));
        ddl_failure_raise(comm, &notice);
    } else if (frame->piece == WORD_ID) {
        take_id(comm, peer, payload);
    } else if (frame->piece == WORD_UP) {
        take_up(comm->votes, first_byte(payload) != 0);
    } else if (!DDL_FAILPOINT("votes.word")) { /* as if it came before there was this communicator */
        take_word(comm, peer, frame, payload.data);
    }
}

/* ---- the library's communicator ---- */

/* Once, to all: whether this rank's part has come up. */
static void say_up(ddl_comm *comm, const ddl_request *request, bool is_up)
{
    const uint8_t byte = is_up ? 1 : 0;
    ddl_frame frame = frame_about(comm, request->task.sequence, &request->task.signature);
    frame.piece = WORD_UP;
    tell(comm, -1, frame, (ddl_view){ &byte, 1 });
}

/* On all ranks the same: they judge the same facts. */
static bool agree(ddl_comm *comm, const ddl_request *request)
{
    const ddl_offload_facts *facts = comm->votes->facts;
    char one[160], other[160], reason[340];
    for (int high = 1; high < comm->nranks; high++)
        for (int low = 0; low < high; low++) {
            const ddl_offload_facts *a = &facts[low], *b = &facts[high];
            bool same_gpu = memcmp(a->gpu_id, b->gpu_id, DDL_GPU_ID_BYTES) == 0;
            bool is_allowed = !same_gpu || (a->shares_gpu && b->shares_gpu);
            if (a->version == b->version && is_allowed)
                continue;
            ddl_comm_describe(comm, low, one, sizeof one);
            ddl_comm_describe(comm, high, other, sizeof other);
            if (!is_allowed)
                snprintf(reason, sizeof reason,
                         "%.120s and %.120s use the same GPU, without NCCL_MULTI_RANK_GPU_ENABLE=1 on both",
                         one, other);
            else
                snprintf(reason, sizeof reason, "%.120s has NCCL %u, but %.120s has %u", one, a->version,
                         other, b->version);
            if (comm->votes->is_optional)
                go_without(comm, same_gpu ? DDL_LOG_DEBUG : DDL_LOG_WARNING, reason);
            else
                raise_unusable(comm, request, high, reason);
            return false;
        }
    return true;
}

/* Rank 0 names it, only now, as the library keeps what it has made for an id until all have met by it. */
static ddl_status name_it(ddl_comm *comm, const ddl_request *request, ddl_error *err)
{
    ddl_votes *votes = comm->votes;
    if (votes->errand == NULL && (votes->errand = ddl_errand_name(votes->ops, votes->gpu)) == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for NCCL");
    if (!ddl_errand_is_done(votes->errand))
        return DDL_OK;
    ddl_status status = ddl_errand_named(votes->errand, votes->id, err);
    end_errand(votes);
    if (status != DDL_OK)
        return status;
    votes->has_id = true;
    ddl_frame frame = frame_about(comm, request->task.sequence, &request->task.signature);
    frame.piece = WORD_ID;
    tell(comm, -1, frame, (ddl_view){ votes->id, sizeof votes->id });
    return DDL_OK;
}

static void blame_others(ddl_comm *comm, const ddl_request *request, const ddl_error *error)
{
    char who[160];
    ddl_notice notice = { .code = DDL_EDEVICE, .culprit = -1, .witness = comm->rank };
    notice.sequence = request->task.sequence;
    snprintf(notice.text, sizeof notice.text, "%s: %.300s",
             ddl_comm_describe(comm, comm->rank, who, sizeof who), error->text);
    ddl_failure_raise(comm, &notice);
}

static ddl_status step(ddl_comm *comm, const ddl_request *request, bool *is_others, ddl_error *err)
{
    ddl_votes *votes = comm->votes;
    bool is_open = false;
    if (votes->progress == AWAITS_ID && comm->rank == 0)
        DDL_TRY(name_it(comm, request, err));
    if (votes->progress == AWAITS_ID && votes->has_id) {
        votes->progress = MAKING;
        return votes->ops->open(votes->gpu, votes->id, comm->rank, comm->nranks, &votes->offload, err);
    }
    if (votes->progress == MAKING)
        DDL_TRY(votes->ops->look_at_opening(votes->offload, &is_open, is_others, err));
    if (is_open) {
        votes->progress = AWAITS_OTHERS;
        votes->nup++;
        if (votes->is_optional)
            say_up(comm, request, true);
    }
    if (votes->progress < AWAITS_OTHERS && is_too_late(comm)) /* who has said that it is up keeps to that */
        return DDL_FAIL(err, DDL_ETIMEDOUT, "it has not come up in time");
    return DDL_OK;
}

static void not_made(ddl_comm *comm, const ddl_request *request, bool is_others, const ddl_error *error)
{
    if (comm->votes->is_optional) {
        say_up(comm, request, false);
        go_without(comm, DDL_LOG_WARNING, error->text);
    } else if (is_others) {
        blame_others(comm, request, error);
    } else {
        raise_own(comm, request, error);
    }
}

/* One step further, for a request that waits for it. True: it is made. */
static bool make(ddl_comm *comm, const ddl_request *request, bool *moved)
{
    ddl_votes *votes = comm->votes;
    const progress before = votes->progress;
    ddl_error error;
    bool is_others = false;
    if (votes->progress == NOT_TRIED && agree(comm, request)) {
        votes->progress = AWAITS_ID;
        votes->begun_ns = ddl_now_ns();
    }
    if (is_coming_up(votes) && votes->is_down)
        go_without(comm, DDL_LOG_DEBUG, "another rank tells why");
    else if (is_coming_up(votes) && step(comm, request, &is_others, &error) != DDL_OK)
        not_made(comm, request, is_others, &error);
    if (votes->progress == AWAITS_OTHERS && (!votes->is_optional || votes->nup == comm->nranks)) {
        votes->progress = MADE;
        ddl_log(DDL_LOG_DEBUG, "%s: calls on buffers of GPUs go to NCCL %u", comm->pool->prefix,
                votes->facts[comm->rank].version);
    }
    *moved = *moved || votes->progress != before;
    return votes->progress == MADE;
}

/* ---- performing ---- */

/* Bytes from the start of a buffer of one block for each rank. */
static size_t block_start(const ddl_shape *shape, int rank)
{
    size_t start = shape->blocks.counts != NULL ? shape->blocks.starts[rank] : (size_t)rank * shape->stride;
    return start * shape->element_bytes;
}

static size_t block_bytes(const ddl_shape *shape, int rank)
{
    return (shape->blocks.counts != NULL ? shape->blocks.counts[rank] : shape->count) * shape->element_bytes;
}

static size_t received_start(const ddl_shape *shape, int rank)
{
    return shape->out_blocks.counts != NULL ? shape->out_blocks.starts[rank] * shape->element_bytes
                                            : block_start(shape, rank);
}

static size_t received_bytes(const ddl_shape *shape, int rank)
{
    return shape->out_blocks.counts != NULL ? shape->out_blocks.counts[rank] * shape->element_bytes
                                            : block_bytes(shape, rank);
}

/* What a rank has for each to be reduced there, and what it gets. */
static void describe_reductions(const ddl_comm *comm, const ddl_task *task)
{
    const ddl_shape *shape = &task->shape;
    for (int rank = 0; rank < comm->nranks; rank++)
        comm->votes->moves[rank] =
            (ddl_offload_move){ .from = (const char *)task->in + block_start(shape, rank),
                                .sent_bytes = block_bytes(shape, rank),
                                .to = rank == comm->rank ? task->out : NULL };
}

/* Which of its blocks a rank sends and receives, for what NCCL has no call of its own. */
static void describe_moves(const ddl_comm *comm, const ddl_task *task)
{
    const ddl_shape *shape = &task->shape;
    const char *in = task->in;
    char *out = task->out;
    ddl_collective collective = task->algorithm->collective;
    bool gathers = collective == DDL_COLLECTIVE_GATHER || collective == DDL_COLLECTIVE_GATHERV;
    bool scatters = collective == DDL_COLLECTIVE_SCATTER || collective == DDL_COLLECTIVE_SCATTERV;
    bool sends_own = gathers || collective == DDL_COLLECTIVE_ALLGATHERV;
    for (int rank = 0; rank < comm->nranks; rank++) {
        ddl_offload_move *move = &comm->votes->moves[rank];
        size_t own_bytes = block_bytes(shape, comm->rank), its_bytes = block_bytes(shape, rank);
        *move = (ddl_offload_move){ .sent_bytes = 0 };
        if (rank == comm->rank && shape->in_place)
            continue;
        if (sends_own && (!gathers || rank == shape->root)) {
            move->from = in;
            move->sent_bytes = own_bytes;
        } else if (!sends_own && (!scatters || comm->rank == shape->root)) {
            move->from = in + block_start(shape, rank);
            move->sent_bytes = its_bytes;
        }
        if (scatters && rank == shape->root) {
            move->to = out;
            move->received_bytes = own_bytes;
        } else if (!scatters && (!gathers || comm->rank == shape->root)) {
            move->to = out + received_start(shape, rank);
            move->received_bytes = received_bytes(shape, rank);
        }
    }
}

ddl_offload_kind ddl_votes_kind(ddl_collective collective)
{
    switch (collective) {
    case DDL_COLLECTIVE_ALLREDUCE:
        return DDL_OFFLOAD_ALLREDUCE;
    case DDL_COLLECTIVE_REDUCE:
        return DDL_OFFLOAD_REDUCE;
    case DDL_COLLECTIVE_REDUCE_SCATTER:
        return DDL_OFFLOAD_REDUCE_SCATTER;
    case DDL_COLLECTIVE_ALLGATHER:
        return DDL_OFFLOAD_ALLGATHER;
    case DDL_COLLECTIVE_BROADCAST:
        return DDL_OFFLOAD_BROADCAST;
    case DDL_COLLECTIVE_REDUCE_SCATTERV:
        return DDL_OFFLOAD_REDUCE_SCATTERV;
    default:
        return DDL_OFFLOAD_MOVES;
    }
}

/* True: it is under way, or has failed. */
static bool start(ddl_comm *comm, ddl_request *request)
{
    ddl_votes *votes = comm->votes;
    const ddl_task *task = &request->task;
    ddl_offload_call call = { .kind = ddl_votes_kind(task->algorithm->collective),
                              .in = task->in,
                              .out = task->out,
                              .count = task->shape.count,
                              .dtype = task->dtype,
                              .op = task->op,
                              .root = task->shape.root,
                              .nranks = comm->nranks,
                              .moves = votes->moves };
    if (call.kind == DDL_OFFLOAD_BROADCAST)
        call.in = task->out;
    if (call.kind == DDL_OFFLOAD_REDUCE_SCATTERV)
        describe_reductions(comm, task);
    if (call.kind == DDL_OFFLOAD_MOVES)
        describe_moves(comm, task);
    bool taken = false;
    ddl_error error;
    ddl_status status = votes->ops->start(votes->offload, &call, &taken, &error);
    if (status == DDL_OK && !taken)
        return false;
    request->stage = DDL_VOTE_RUNNING;
    request->number = votes->nbegun++;
    if (status != DDL_OK) /* a part of it may be under way */
        ddl_issue_fail(request, &error);
    return true;
}

static void leave(ddl_comm *comm, ddl_request *request)
{
    ddl_list_remove(&request->vote);
    request->stage = DDL_VOTE_NONE;
    if (ddl_list_empty(&comm->votes->requests))
        ddl_list_remove(&comm->voting);
}

/* Those that go by hosts do at once; the others in their order, which is that of all ranks. */
static bool go_on(ddl_comm *comm)
{
    bool moved = false, in_turn = true;
    DDL_LIST_FOR_EACH (link, &comm->votes->requests) {
        ddl_request *request = request_of(link);
        if (comm->failure.failing)
            return true;
        if (request->stage == DDL_VOTE_HOST) {
            leave(comm, request);
            ddl_issue_begin(request);
            moved = true;
        } else if (request->stage == DDL_VOTE_GPU && in_turn) {
            in_turn = make(comm, request, &moved) && start(comm, request);
            moved = moved || in_turn;
            if (comm->votes->progress == UNUSED) {
                in_turn = moved = true;
                give_turn(comm->votes);
                leave(comm, request);
                ddl_issue_begin(request);
            }
        }
    }
    return moved;
}

/* Calls of the library end in the order in which they began. */
static bool finish(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    ddl_error error;
    bool is_others = false;
    uint64_t nended = votes->nended;
    ddl_request *first = request_of(ddl_list_first(&votes->requests));
    ddl_status status = votes->ops->look(votes->offload, &nended, &is_others, &error);
    if (status != DDL_OK && is_others)
        blame_others(comm, first, &error);
    else if (status != DDL_OK)
        ddl_issue_fail(first, &error);
    bool moved = status != DDL_OK || nended > votes->nended;
    votes->nended = nended;
    DDL_LIST_FOR_EACH (link, &votes->requests) {
        ddl_request *request = request_of(link);
        if (comm->failure.failing || request->stage != DDL_VOTE_RUNNING || request->number >= nended)
            break;
        leave(comm, request);
        give_turn(votes);
        ddl_issue_finished(&request->task);
    }
    return moved;
}

bool ddl_votes_progress(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    bool moved = false;
    if (comm->failure.failing)
        return false;
    if (votes->nended < votes->nbegun)
        moved = finish(comm);
    bool may_go_on = votes->is_heard || moved || votes->errand != NULL || is_coming_up(votes) ||
                     votes->nended < votes->nbegun;
    votes->is_heard = false;
    if (may_go_on && !comm->failure.failing && !ddl_list_empty(&votes->requests)) {
        vote(comm);
        moved = go_on(comm) || moved;
    }
    if (moved)
        comm->world->voted_ns = ddl_now_ns();
    return moved;
}

/* ---- deadlines and the end ---- */

static void ask(ddl_comm *comm, const ddl_request *request)
{
    for (int rank = 0; rank < comm->nranks; rank++)
        if (read_word(comm, rank, request->ballot) == NO_WORD)
            say_word(comm, rank, request->ballot, WORD_IS_QUESTION,
                     frame_about(comm, request->task.sequence, &request->task.signature));
}

void ddl_votes_tick(ddl_comm *comm, int64_t now_ns)
{
    ddl_votes *votes = comm->votes;
    if (votes == NULL || ddl_list_empty(&votes->requests))
        return;
    if (comm->ngone > 0 && votes->left_ticks < LEFT_TICKS)
        votes->left_ticks++;
    if (votes->ask_ns == 0 || votes->asked != votes->ndecided + 1) {
        votes->asked = votes->ndecided + 1;
        votes->ask_after_ms = votes->ndecided == 0 ? ASK_FIRST_MS : ASK_AFTER_MS;
    } else if (now_ns < votes->ask_ns) {
        return;
    } else {
        DDL_LIST_FOR_EACH (link, &votes->requests)
            if (request_of(link)->stage == DDL_VOTE_OPEN)
                ask(comm, request_of(link));
        votes->ask_after_ms = votes->ask_after_ms < ASK_MOST_MS ? 2 * votes->ask_after_ms : ASK_MOST_MS;
    }
    votes->ask_ns = now_ns + votes->ask_after_ms * DDL_NS_PER_MS;
}

void ddl_votes_visit_pending(const ddl_comm *comm, const ddl_request *request,
                             void (*visit)(void *arg, int rank, bool outgoing), void *arg)
{
    if (request->stage == DDL_VOTE_NONE)
        return;
    const ddl_votes *votes = comm->votes;
    bool is_decided = request->stage > DDL_VOTE_OPEN; /* its words may be overwritten */
    uint64_t ballot = request->stage == DDL_VOTE_OPEN ? request->ballot : votes->ndecided + 1;
    for (int rank = 0; rank < comm->nranks; rank++)
        if (rank != comm->rank &&
            (is_decided ? votes->left_ticks == LEFT_TICKS : read_word(comm, rank, ballot) == NO_WORD))
            visit(arg, rank, false);
}

static bool is_on_errand(const ddl_votes *votes)
{
    return votes->errand != NULL && !ddl_errand_is_done(votes->errand);
}

bool ddl_votes_is_stuck(const ddl_comm *comm, const ddl_request *request)
{
    return request->stage > DDL_VOTE_OPEN || (request->stage == DDL_VOTE_WAITS && is_on_errand(comm->votes));
}

void ddl_votes_raise_stuck(ddl_comm *comm, const ddl_request *request)
{
    const ddl_votes *votes = comm->votes;
    bool is_own = is_on_errand(votes); /* nobody else has a part in that */
    ddl_notice notice = { .code = DDL_EDEVICE,
                          .culprit = is_own ? comm->rank : -1,
                          .witness = comm->rank,
                          .sequence = request->task.sequence };
    char who[160], where[32] = "";
    int gpu = request->task.staging != NULL ? request->task.staging->gpu : votes->gpu;
    ddl_comm_describe(comm, comm->rank, who, sizeof who);
    if (gpu >= 0) /* else it is an earlier call that keeps one with buffers on the host */
        snprintf(where, sizeof where, "GPU %d: ", gpu);
    snprintf(notice.operation, sizeof notice.operation, "%s", ddl_request_operation(request));
    if (is_own)
        snprintf(notice.text, sizeof notice.text,
                 "%s: %sNCCL has not come up within %lld ms (DDL_TIMEOUT); is what it is loaded from slow, "
                 "or does it hang? NCCL_DEBUG=INFO tells more",
                 who, where, (long long)request->timeout_ms);
    else
        snprintf(notice.text, sizeof notice.text,
                 "%s: %sNCCL has not %s within %lld ms (DDL_TIMEOUT), though every rank has called it; "
                 "does a GPU hang, or the network between them? NCCL_DEBUG=INFO tells more",
                 who, where, votes->progress == MADE ? "finished" : "connected all ranks",
                 (long long)request->timeout_ms);
    ddl_failure_raise(comm, &notice);
}

void ddl_votes_abort(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    if (votes != NULL && votes->offload != NULL)
        votes->ops->abort(votes->offload);
}

static bool is_running(const ddl_votes *votes)
{
    return votes != NULL && votes->nended < votes->nbegun;
}

/* Beyond their deadlines waiters wait a little, and would not be told why. */
static int64_t stop_limit(const ddl_comm *comm, int64_t limit_ns)
{
    DDL_LIST_FOR_EACH (link, &comm->in_flight) { /* of any kind: all end together */
        const ddl_request *request = DDL_CONTAINER(link, ddl_request, link);
        int64_t late_ns = request->deadline < DDL_DEADLINE_NEVER - STOP_LATE_MS * DDL_NS_PER_MS
                              ? request->deadline + STOP_LATE_MS * DDL_NS_PER_MS
                              : DDL_DEADLINE_NEVER;
        if (late_ns < limit_ns)
            limit_ns = late_ns;
    }
    return limit_ns;
}

bool ddl_votes_have_stopped(ddl_comm *comm, int64_t now_ns)
{
    ddl_votes *votes = comm->votes;
    if (!is_running(votes))
        return true;
    ddl_votes_abort(comm); /* again, where there was no thread for it */
    if (votes->ops->settle(votes->offload, 0))
        return true;
    if (votes->stop_ns == 0) { /* it may wait for all that is under way on the GPU, as it gives memory back */
        ddl_gpu_let_go(comm);
        votes->stop_ns = now_ns + STOP_MS * DDL_NS_PER_MS;
    }
    votes->stop_ns = stop_limit(comm, votes->stop_ns);
    return now_ns >= votes->stop_ns;
}

bool ddl_votes_cancel(ddl_comm *comm, int timeout_ms)
{
    ddl_votes *votes = comm->votes;
    bool stopped = true;
    if (votes == NULL)
        return true;
    if (is_running(votes)) {
        ddl_gpu_let_go(comm);
        ddl_votes_abort(comm);
        stopped = votes->ops->settle(votes->offload, timeout_ms);
    }
    if (!stopped) /* and nothing else goes to that GPU in this process: the turn is kept */
        ddl_log(DDL_LOG_WARNING, "%s: GPU %d: NCCL does not stop; it may still write to buffers of its calls",
                comm->pool->prefix, votes->gpu);
    else if (votes->nwanted > 0)
        ddl_turn_give(votes->gpu);
    votes->nwanted = 0;
    votes->nended = votes->nbegun;
    for (ddl_link *first; (first = ddl_list_first(&votes->requests)) != NULL;)
        leave(comm, request_of(first));
    return stopped;
}
