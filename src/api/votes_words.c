/* votes_words.c - what ranks say of each call until it is decided. */
#include "api/votes_state.h"

#include "api/failure.h"
#include "api/gpu.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/failpoint.h"

#include <stdio.h>
#include <string.h>

enum {
    BESIDE = DDL_VOTES_BALLOTS / 2, /* words are said for so many that are not decided */
    WORD_BYTES = 12 + 4 + DDL_GPU_ID_BYTES,
    WORD_IS_QUESTION = 1, /* in a word's flags: it was said before, and the answer is missing */
    WORD_SHARES_GPU = 2,  /* and what the sender's facts say of that */
    ASK_FIRST_MS = 20,    /* what is said first may come before its receiver has the communicator */
    ASK_AFTER_MS = 200,   /* and then after twice as long, again and again */
    ASK_MOST_MS = 2000,
    LEFT_TICKS = 25 /* of 20 ms: who has left may have been done, and what it sent is still to arrive. No
                       clock, as a process that stood still has not looked meanwhile */
};

typedef enum choice { NO_CHOICE, HOST, GPU } choice;

/* Where the word of a rank on this ballot is, or another one that has the same place. */
static ddl_word *place_of(const ddl_comm *comm, int rank, uint64_t ballot)
{
    return &comm->votes->words[(size_t)rank * DDL_VOTES_BALLOTS + ballot % DDL_VOTES_BALLOTS];
}

/* NULL: the rank has said none, as far as is known here. */
static const ddl_word *word_of(const ddl_comm *comm, int rank, uint64_t ballot)
{
    const ddl_word *word = place_of(comm, rank, ballot);
    return word->ballot == ballot ? word : NULL;
}

/* False: it is known already, or a later one that has its place. */
static bool keep_word(ddl_comm *comm, int rank, ddl_word word)
{
    ddl_word *place = place_of(comm, rank, word.ballot);
    if (word.ballot <= place->ballot)
        return false;
    *place = word;
    return true;
}

/* ---- choosing ---- */

/* Whether a stream of the program waits for an operation. What NCCL does when it comes up, or is
 * aborted, may wait for all that is under way on the GPU, and so for that stream. */
static bool has_waiting_stream(const ddl_world *world)
{
    DDL_LIST_FOR_EACH (active, &world->active)
        DDL_LIST_FOR_EACH (link, &DDL_CONTAINER(active, ddl_comm, active)->in_flight)
            if (DDL_CONTAINER(link, ddl_request, link)->task.hold.latch != NULL)
                return true;
    return false;
}

/* Whether this rank can leave it to its GPU, and then does if all do; NO_CHOICE: that is not known yet, or it
 * has failed. Managed memory is where the program touches it, and stays with copies. An alltoall in place
 * NCCL does not have, and the order of a stream is kept by copies alone: what NCCL does when it comes up or
 * is aborted may wait for the whole GPU, and so for a stream that waits for this call. */
static choice choose(ddl_comm *comm, const ddl_request *request)
{
    ddl_votes *votes = comm->votes;
    const ddl_task *task = &request->task;
    bool exchanges = ddl_collective_exchanges(task->algorithm->collective);
    if (votes->progress == DDL_OFFLOAD_UNUSABLE || (votes->is_optional && has_waiting_stream(comm->world)))
        return HOST;
    if (request->is_empty) /* nothing of it is anywhere */
        return votes->offloading.gpu >= 0 && ddl_votes_take_turn(votes, votes->offloading.gpu) ? GPU : HOST;
    if (task->staging == NULL || task->hold.latch != NULL || ddl_gpu_is_managed(task->in) ||
        ddl_gpu_is_managed(task->out) || (exchanges && task->shape.in_place))
        return HOST;
    if (votes->progress == DDL_OFFLOAD_FINDING)
        ddl_votes_find(comm, request, task->staging->gpu);
    if (votes->progress == DDL_OFFLOAD_FINDING)
        return NO_CHOICE;
    if (votes->progress == DDL_OFFLOAD_UNUSABLE || votes->offloading.gpu != task->staging->gpu)
        return HOST;
    return ddl_votes_take_turn(votes, votes->offloading.gpu) ? GPU : HOST;
}

/* ---- saying ---- */

void ddl_votes_tell(ddl_comm *comm, int peer, ddl_frame frame, ddl_view payload)
{
    const size_t *counts = frame.signature.collective == DDL_COLLECTIVE_ALLTOALLV
                               ? ddl_failure_expected_counts(comm, frame.sequence)
                               : NULL;
    for (int rank = 0; rank < comm->nranks; rank++)
        if (rank != comm->rank && (peer < 0 || peer == rank)) {
            frame.signature.count = counts != NULL ? counts[rank] : frame.signature.count;
            ddl_mesh_tell_bytes(comm->mesh, comm->members[rank], &frame, payload);
        }
}

ddl_frame ddl_votes_frame_about(const ddl_comm *comm, uint64_t sequence, const ddl_signature *signature)
{
    ddl_frame frame =
        ddl_failure_enter_frame(ddl_channel_of(comm->id, DDL_CHANNEL_COLLECTIVE), sequence, signature);
    frame.number = 1; /* who else is in the call is not the question */
    return frame;
}

/* What this rank has said, to one rank, or to all others with peer -1. */
static void say_word(ddl_comm *comm, int peer, uint64_t ballot, uint32_t flags, ddl_frame frame)
{
    uint8_t bytes[WORD_BYTES] = { 0 };
    const ddl_offload_facts *facts = &comm->votes->facts[comm->rank];
    const bool is_gpu = word_of(comm, comm->rank, ballot)->for_gpu;
    frame.piece = is_gpu ? DDL_ENTER_VOTE_GPU : DDL_ENTER_VOTE_HOST;
    ddl_put_u64(bytes, ballot);
    ddl_put_u32(bytes + 8, flags | (is_gpu && facts->shares_gpu ? WORD_SHARES_GPU : 0));
    if (is_gpu) {
        ddl_put_u32(bytes + 12, facts->version);
        memcpy(bytes + 16, facts->gpu_id, DDL_GPU_ID_BYTES);
    }
    ddl_votes_tell(comm, peer, frame, (ddl_view){ bytes, sizeof bytes });
}

/* All ranks count their calls: if those that meet on a ballot have other numbers, then what was called
 * differs at the lower one, and who remembers that says what it was. */
static void check_same_call(ddl_comm *comm, int peer, uint64_t ballot)
{
    int low = comm->rank < peer ? comm->rank : peer, high = comm->rank < peer ? peer : comm->rank;
    const ddl_word *of_low = word_of(comm, low, ballot), *of_high = word_of(comm, high, ballot);
    if (of_low == NULL || of_high == NULL || of_low->sequence == of_high->sequence)
        return;
    char one[160], other[160];
    ddl_notice notice = { .code = DDL_EMISMATCH, .culprit = high, .witness = low };
    notice.sequence = of_low->sequence < of_high->sequence ? of_low->sequence : of_high->sequence;
    snprintf(
        notice.text, sizeof notice.text,
        "call %llu of %.120s meets call %llu of %.120s: one of them has called something else before; every "
        "rank must make the same calls",
        (unsigned long long)of_low->sequence, ddl_comm_describe(comm, low, one, sizeof one),
        (unsigned long long)of_high->sequence, ddl_comm_describe(comm, high, other, sizeof other));
    ddl_failure_raise(comm, &notice);
}

/* It becomes a ballot. False: what this rank says of it is not known yet. */
static bool put_to_vote(ddl_comm *comm, ddl_request *request)
{
    ddl_votes *votes = comm->votes;
    const choice chosen = choose(comm, request);
    if (chosen == NO_CHOICE)
        return false;
    request->vote.ballot = ++votes->nballots;
    request->vote.stage = DDL_VOTE_OPEN;
    request->task.shape.post_bytes = 0; /* whoever goes by a board does so in the order of calls */
    (void)keep_word(comm, comm->rank,
                    (ddl_word){ request->vote.ballot, request->task.sequence, chosen == GPU });
    say_word(comm, -1, request->vote.ballot, 0,
             ddl_votes_frame_about(comm, request->task.sequence, &request->task.signature));
    for (int rank = 0; rank < comm->nranks && !ddl_failure_is_known(comm); rank++)
        check_same_call(comm, rank, request->vote.ballot);
    return true;
}

/* ---- deciding ---- */

/*
 * In the order of calls, and for BESIDE ballots that are not decided at most. A rank that has decided one has
 * heard everybody's word for it, so it is at most BESIDE ahead of what another has decided, and what it says
 * at most DDL_VOTES_BALLOTS ahead: no word that is still wanted is overwritten.
 */
static void say_next(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    DDL_LIST_FOR_EACH (link, &votes->requests) {
        ddl_request *request = ddl_votes_request_of(link);
        if (request->vote.stage != DDL_VOTE_WAITS)
            continue;
        ddl_sampled sampled = request->vote.candidate == 0
                                  ? DDL_SAMPLED_OUT
                                  : ddl_sampling_of(&votes->sampling, request->vote.candidate,
                                                    votes->nballots == votes->ndecided);
        if (sampled == DDL_SAMPLED_OPEN)
            return;
        if (sampled == DDL_SAMPLED_OUT)
            request->vote.stage = DDL_VOTE_HOST;
        else if (votes->nballots == votes->ndecided + BESIDE || !put_to_vote(comm, request))
            return;
        if (ddl_failure_is_known(comm))
            return;
    }
}

/* In the order of ballots too. */
static void decide(ddl_comm *comm)
{
    ddl_votes *votes = comm->votes;
    DDL_LIST_FOR_EACH (link, &votes->requests) {
        ddl_request *request = ddl_votes_request_of(link);
        bool is_gpu = true;
        if (request->vote.stage == DDL_VOTE_WAITS)
            return;
        if (request->vote.stage != DDL_VOTE_OPEN)
            continue;
        for (int rank = 0; rank < comm->nranks; rank++) {
            const ddl_word *word = word_of(comm, rank, request->vote.ballot);
            if (word == NULL)
                return;
            is_gpu = is_gpu && word->for_gpu;
        }
        votes->ndecided++;
        DDL_ASSERT(request->vote.ballot == votes->ndecided);
        request->vote.stage = is_gpu ? DDL_VOTE_GPU : DDL_VOTE_HOST;
        if (votes->is_optional)
            ddl_sampling_decided(&votes->sampling, request->vote.candidate, is_gpu, BESIDE);
        if (!is_gpu && word_of(comm, comm->rank, request->vote.ballot)->for_gpu)
            ddl_votes_give_turn(votes);
    }
}

void ddl_votes_vote(ddl_comm *comm)
{
    uint64_t ndecided;
    do {
        ndecided = comm->votes->ndecided;
        say_next(comm);
        decide(comm);
    } while (comm->votes->ndecided > ndecided && !ddl_failure_is_known(comm));
}

/* ---- hearing ---- */

bool ddl_votes_is_word(const ddl_frame *frame)
{
    return frame->type == DDL_FRAME_ENTER && ddl_channel_is_collective(frame->channel) &&
           ddl_enter_is_about_nccl(frame->piece);
}

static void take_word(ddl_comm *comm, int peer, const ddl_frame *frame, const uint8_t *bytes)
{
    ddl_votes *votes = comm->votes;
    uint64_t ballot = ddl_get_u64(bytes);
    uint32_t flags = ddl_get_u32(bytes + 8);
    if (keep_word(comm, peer, (ddl_word){ ballot, frame->sequence, frame->piece == DDL_ENTER_VOTE_GPU })) {
        votes->is_heard = true;
        check_same_call(comm, peer, ballot);
    }
    if (frame->piece == DDL_ENTER_VOTE_GPU) {
        votes->facts[peer].version = ddl_get_u32(bytes + 12);
        votes->facts[peer].shares_gpu = (flags & WORD_SHARES_GPU) != 0;
        memcpy(votes->facts[peer].gpu_id, bytes + 16, DDL_GPU_ID_BYTES);
    }
    if ((flags & WORD_IS_QUESTION) != 0 && word_of(comm, comm->rank, ballot) != NULL)
        say_word(comm, peer, ballot, 0, ddl_votes_frame_about(comm, frame->sequence, &frame->signature));
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
static void take_up(ddl_votes *votes, int peer, bool is_up)
{
    if (is_up)
        votes->nup++;
    else
        votes->is_down = true;
    votes->has_spoken[peer] = votes->is_heard = true;
}

static uint8_t first_byte(ddl_view payload)
{
    return *(const uint8_t *)payload.data;
}

static bool is_sound(const ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload)
{
    if (frame->piece == DDL_ENTER_NCCL_ID)
        return payload.bytes == DDL_OFFLOAD_ID_BYTES;
    if (frame->piece == DDL_ENTER_NCCL_UP)
        return payload.bytes == 1 && first_byte(payload) <= 1 && !comm->votes->has_spoken[peer];
    if (payload.bytes != WORD_BYTES)
        return false;
    uint64_t ballot = ddl_get_u64(payload.data);
    return ballot > 0 && ballot <= comm->votes->ndecided + DDL_VOTES_BALLOTS;
}

void ddl_votes_heard(ddl_comm *comm, int peer, const ddl_frame *frame, ddl_view payload)
{
    if (ddl_failure_is_known(comm))
        return;
    if (comm->votes == NULL || !is_sound(comm, peer, frame, payload)) {
        char who[160];
        ddl_notice notice = { .code = DDL_EPROTO, .culprit = peer, .witness = comm->rank };
        notice.sequence = frame->sequence;
        snprintf(notice.text, sizeof notice.text, "%s sent a malformed word about NCCL",
                 ddl_comm_describe(comm, peer, who, sizeof who));
        ddl_failure_raise(comm, &notice);
    } else if (frame->piece == DDL_ENTER_NCCL_ID) {
        take_id(comm, peer, payload);
    } else if (frame->piece == DDL_ENTER_NCCL_UP) {
        take_up(comm->votes, peer, first_byte(payload) != 0);
    } else if (!DDL_FAILPOINT("votes.word")) { /* as if it came before there was this communicator */
        take_word(comm, peer, frame, payload.data);
    }
}

/* ---- what is missing ---- */

static void ask(ddl_comm *comm, const ddl_request *request)
{
    for (int rank = 0; rank < comm->nranks; rank++)
        if (word_of(comm, rank, request->vote.ballot) == NULL)
            say_word(comm, rank, request->vote.ballot, WORD_IS_QUESTION,
                     ddl_votes_frame_about(comm, request->task.sequence, &request->task.signature));
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
            if (ddl_votes_request_of(link)->vote.stage == DDL_VOTE_OPEN)
                ask(comm, ddl_votes_request_of(link));
        votes->ask_after_ms = 2 * votes->ask_after_ms < ASK_MOST_MS ? 2 * votes->ask_after_ms : ASK_MOST_MS;
    }
    votes->ask_ns = now_ns + votes->ask_after_ms * DDL_NS_PER_MS;
}

void ddl_votes_visit_pending(const ddl_comm *comm, const ddl_request *request,
                             void (*visit)(void *arg, int rank, bool outgoing), void *arg)
{
    if (request->vote.stage == DDL_VOTE_NOT_VOTED)
        return;
    const ddl_votes *votes = comm->votes;
    bool is_decided = request->vote.stage > DDL_VOTE_OPEN; /* its words may be overwritten */
    uint64_t ballot = request->vote.stage == DDL_VOTE_OPEN ? request->vote.ballot : votes->ndecided + 1;
    for (int rank = 0; rank < comm->nranks; rank++)
        if (rank != comm->rank &&
            (is_decided ? votes->left_ticks == LEFT_TICKS : word_of(comm, rank, ballot) == NULL))
            visit(arg, rank, false);
}
