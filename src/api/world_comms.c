/* world_comms.c - knows the communicators of a world by their ids, also those to come. */
#include "api/world_parts.h"

#include "api/failure.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "protocol/agreement.h"

#include <string.h>

enum {
    EARLY_WORDS = 256,
    EARLY_WORDS_OF_EACH = 4 /* held, by all ranks; of more, the oldest are forgotten */
};

typedef struct early_word { /* of a communicator which this rank has not made yet */
    ddl_link link;
    int peer; /* in the world */
    ddl_frame frame;
    bool is_report; /* on who is left of it; else a notice that it failed */
    size_t bytes;
    uint8_t data[]; /* the report, or a ddl_notice */
} early_word;

/* The first place in world->freed that holds this id or a greater one. */
static size_t place_among_freed(const ddl_world *world, uint32_t id)
{
    size_t low = 0, high = world->nfreed;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (world->freed[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool ddl_world_is_freed(const ddl_world *world, uint32_t id)
{
    size_t place = place_among_freed(world, id);
    return place < world->nfreed && world->freed[place] == id;
}

/* Room for one more than are active: each of them will be freed. */
static bool reserve_freed(ddl_world *world)
{
    size_t active = 1;
    DDL_LIST_FOR_EACH (link, &world->active) {
        (void)link;
        active++;
    }
    if (world->nfreed + active <= world->freed_capacity)
        return true;
    size_t capacity = 2 * (world->nfreed + active);
    uint32_t *more = ddl_alloc_array(capacity, sizeof *more);
    if (more == NULL)
        return false;
    if (world->nfreed > 0)
        memcpy(more, world->freed, world->nfreed * sizeof *more);
    ddl_free(world->freed);
    world->freed = more;
    world->freed_capacity = capacity;
    return true;
}

/* For which there is room. */
static void add_freed(ddl_world *world, uint32_t id)
{
    size_t place = place_among_freed(world, id);
    DDL_ASSERT(world->nfreed < world->freed_capacity);
    memmove(world->freed + place + 1, world->freed + place, (world->nfreed - place) * sizeof *world->freed);
    world->freed[place] = id;
    world->nfreed++;
    ddl_mesh_forget(world->mesh, ddl_channel_of(id, DDL_CHANNEL_COLLECTIVE), DDL_CHANNEL_KINDS);
}

static void forget_word(ddl_world *world, early_word *word)
{
    ddl_list_remove(&word->link);
    ddl_free(word);
    world->nearly_words--;
}

/* Without it the first operation there, or the agreement, waits until its deadline. */
static void hold_word(ddl_world *world, int peer, const ddl_frame *frame, bool is_report, ddl_view data)
{
    early_word *word = ddl_alloc(sizeof *word + data.bytes);
    if (word == NULL)
        return;
    word->peer = peer;
    word->frame = *frame;
    word->is_report = is_report;
    word->bytes = data.bytes;
    if (data.bytes > 0)
        memcpy(word->data, data.data, data.bytes);
    ddl_list_append(&world->early_words, &word->link);
    if (++world->nearly_words > EARLY_WORDS + EARLY_WORDS_OF_EACH * world->config.nranks)
        forget_word(world, DDL_CONTAINER(ddl_list_first(&world->early_words), early_word, link));
}

void ddl_world_hold_notice(ddl_world *world, int peer, const ddl_frame *frame, const ddl_notice *notice)
{
    hold_word(world, peer, frame, false, (ddl_view){ notice, sizeof *notice });
}

void ddl_world_hold_report(ddl_world *world, int peer, const ddl_frame *frame, ddl_view report)
{
    hold_word(world, peer, frame, true, report);
}

void ddl_world_forget_words(ddl_world *world)
{
    for (ddl_link *first; (first = ddl_list_first(&world->early_words)) != NULL;)
        forget_word(world, DDL_CONTAINER(first, early_word, link));
}

/* Who reports nonsense is waited for in vain. */
static void hand_over(ddl_comm *comm, int rank, const early_word *word)
{
    ddl_notice notice;
    ddl_error ignored;
    if (word->is_report) {
        (void)ddl_shrink_heard(comm, rank, &word->frame, (ddl_view){ word->data, word->bytes }, &ignored);
        return;
    }
    memcpy(&notice, word->data, sizeof notice);
    ddl_failure_told(comm, rank, &notice);
}

/* Take out the oldest word for this id. NULL: there is none. */
static early_word *take_word(ddl_world *world, uint32_t id)
{
    DDL_LIST_FOR_EACH (link, &world->early_words) {
        early_word *word = DDL_CONTAINER(link, early_word, link);
        if (ddl_channel_communicator(word->frame.channel) == id) {
            ddl_list_remove(&word->link);
            world->nearly_words--;
            return word;
        }
    }
    return NULL;
}

static void hand_over_words(ddl_world *world, ddl_comm *comm)
{
    for (early_word *word; (word = take_word(world, comm->id)) != NULL; ddl_free(word)) {
        const int rank = comm->rank_of[word->peer];
        if (rank >= 0)
            hand_over(comm, rank, word);
    }
}

void ddl_world_answer_apart(ddl_world *world, int peer, const ddl_frame *frame, ddl_view report)
{
    ddl_bytes answer = { 0 };
    const ddl_frame reply = { .type = DDL_FRAME_AGREE,
                              .channel = frame->channel,
                              .sequence = frame->sequence };
    if (ddl_mesh_may_answer(world->mesh, peer) && ddl_agreement_answer_apart(report, &answer))
        ddl_mesh_tell_bytes(world->mesh, peer, &reply, ddl_bytes_view(&answer));
    ddl_bytes_fini(&answer);
}

bool ddl_world_admit(ddl_world *world, ddl_comm *comm)
{
    if (!reserve_freed(world))
        return false;
    ddl_list_append(ddl_world_bucket(world, comm->id), &comm->same_bucket);
    ddl_list_append(&world->active, &comm->active);
    for (int rank = 0; rank < comm->nranks; rank++)
        comm->ngone += rank != comm->rank && ddl_mesh_is_gone(world->mesh, comm->members[rank]);
    if (comm->ngone > 0 && comm->board != NULL)
        ddl_board_stay_near(comm->board);
    hand_over_words(world, comm);
    return true;
}

void ddl_world_dismiss(ddl_world *world, ddl_comm *comm)
{
    if (!ddl_link_linked(&comm->active))
        return;
    ddl_list_remove(&comm->same_bucket);
    ddl_list_remove(&comm->active);
    add_freed(world, comm->id);
}

bool ddl_world_forgo(ddl_world *world, uint32_t id)
{
    if (ddl_world_find(world, id) != NULL || ddl_world_is_freed(world, id) || !reserve_freed(world))
        return false;
    add_freed(world, id);
    for (early_word *word; (word = take_word(world, id)) != NULL; ddl_free(word))
        if (word->is_report)
            ddl_world_answer_apart(world, word->peer, &word->frame, (ddl_view){ word->data, word->bytes });
    return true;
}

uint32_t ddl_world_offer(ddl_world *world)
{
    return atomic_fetch_add(&world->offers, 1);
}

uint64_t ddl_world_id(const ddl_world *world, int world_rank, uint32_t offer)
{
    return 1 + (uint64_t)world_rank + (uint64_t)offer * (uint64_t)world->config.nranks;
}
