/* staging.c - rooms and their stages: empty, on the way down, there, on the way up. */
#include "backend/staging.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/failpoint.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    LEAST_ROOM_BYTES = 64 * 1024,
    /* Rooms of an operation: three pieces run at a time, one comes down and one goes up. Large rooms hold one
     * piece each, and pinned memory is dear. */
    SMALL_ROOM_BYTES = 4 * 1024 * 1024,
    LARGE_ROOM_BYTES = 16 * 1024 * 1024,
    FEWEST_ROOMS = 3,
    LATCHES_LOOKED_AT = 4,
    CLASSES = sizeof((ddl_staging *)0)->rooms / sizeof(ddl_list)
};

typedef struct ddl_room { /* host memory that the GPU copies from and to */
    ddl_link link;
    int class;
    char *memory;
    ddl_mark *mark; /* of the last copy from it or to it */
} room;

/* ---- rooms ---- */

static int class_of(size_t bytes)
{
    int class = 0;
    while (((size_t)LEAST_ROOM_BYTES << class) < bytes)
        class ++;
    DDL_ASSERT(class < CLASSES);
    return class;
}

static void destroy_room(ddl_staging *staging, room *old)
{
    if (old->memory != NULL)
        staging->ops->free(staging->device, old->memory, (size_t)LEAST_ROOM_BYTES << old->class);
    if (old->mark != NULL)
        staging->ops->destroy_mark(staging->device, old->mark);
    ddl_free(old);
}

static ddl_status make_room(ddl_staging *staging, int class, room **out, ddl_error *err)
{
    room *new = DDL_FAILPOINT("backend.room") ? NULL : ddl_alloc(sizeof *new);
    void *memory = NULL;
    if (new == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for staging");
    new->class = class;
    ddl_status status = staging->ops->alloc(staging->device, (size_t)LEAST_ROOM_BYTES << class, &memory, err);
    new->memory = memory;
    if (status == DDL_OK)
        status = staging->ops->create_mark(staging->device, &new->mark, err);
    if (status != DDL_OK) {
        destroy_room(staging, new);
        return status;
    }
    *out = new;
    return DDL_OK;
}

static ddl_status take_room(ddl_staging *staging, size_t bytes, room **out, ddl_error *err)
{
    const int class = class_of(bytes);
    ddl_link *first = NULL;
    for (int larger = class; larger < CLASSES && first == NULL; larger++)
        first = ddl_list_take_first(&staging->rooms[larger]);
    if (first == NULL)
        return make_room(staging, class, out, err);
    *out = DDL_CONTAINER(first, room, link);
    return DDL_OK;
}

/* The last one used is the one that caches know best. */
static void give_room(ddl_staging *staging, room *back)
{
    ddl_list_prepend(&staging->rooms[back->class], &back->link);
}

void ddl_staging_make_stock(ddl_staging *staging)
{
    room *made;
    ddl_error ignored;
    if (staging->is_stocked)
        return;
    staging->is_stocked = true;
    for (int i = 0; i < DDL_STAGED_ROOMS; i++) {
        if (make_room(staging, class_of(DDL_ROOM_BYTES), &made, &ignored) != DDL_OK)
            return;
        ddl_list_append(&staging->stock, &made->link);
    }
}

void ddl_staging_take_stock(ddl_staging *staging)
{
    for (ddl_link *first; (first = ddl_list_take_first(&staging->stock)) != NULL;)
        give_room(staging, DDL_CONTAINER(first, room, link));
}

/* ---- life ---- */

ddl_status ddl_staging_create(const struct ddl_device_ops *ops, int gpu, ddl_list *busy,
                              ddl_deadline *hangs_until, ddl_staging **out, ddl_error *err)
{
    ddl_staging *staging = ddl_alloc(sizeof *staging);
    if (staging == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for staging");
    staging->ops = ops;
    staging->gpu = gpu;
    staging->busy = busy;
    staging->hangs_until = hangs_until;
    ddl_list_init(&staging->spare);
    ddl_list_init(&staging->running);
    ddl_list_init(&staging->latches);
    ddl_list_init(&staging->stock);
    for (int i = 0; i < CLASSES; i++)
        ddl_list_init(&staging->rooms[i]);
    ddl_status status = ops->open(gpu, &staging->device, err);
    if (status != DDL_OK) {
        ddl_staging_destroy(staging);
        return status;
    }
    *out = staging;
    return DDL_OK;
}

void ddl_staging_destroy(ddl_staging *staging)
{
    if (staging == NULL)
        return;
    DDL_ASSERT(ddl_list_empty(&staging->running));
    ddl_staging_take_stock(staging);
    for (int i = 0; i < CLASSES; i++)
        for (ddl_link *first; (first = ddl_list_take_first(&staging->rooms[i])) != NULL;)
            destroy_room(staging, DDL_CONTAINER(first, room, link));
    for (ddl_link *first; (first = ddl_list_take_first(&staging->spare)) != NULL;)
        ddl_free(DDL_CONTAINER(first, ddl_staged, link));
    for (ddl_link *first; (first = ddl_list_take_first(&staging->latches)) != NULL;)
        staging->ops->destroy_latch(DDL_CONTAINER(first, ddl_latch, link));
    if (staging->copied != NULL)
        staging->ops->destroy_mark(staging->device, staging->copied);
    staging->ops->close(staging->device);
    ddl_free(staging);
}

/* ---- copies of a rank alone ---- */

static ddl_status check_not_lost(const ddl_staging *staging, ddl_error *err)
{
    if (staging->lost)
        return DDL_FAIL(err, DDL_EDEVICE, "GPU %d did not end what an earlier operation had begun",
                        staging->gpu);
    return DDL_OK;
}

ddl_status ddl_staging_copy(ddl_staging *staging, void *to, const void *from, size_t bytes, ddl_error *err)
{
    DDL_TRY(check_not_lost(staging, err));
    if (staging->copied == NULL)
        DDL_TRY(staging->ops->create_mark(staging->device, &staging->copied, err));
    DDL_TRY(staging->ops->copy(staging->device, DDL_UP, to, from, bytes, err));
    return staging->ops->set_mark(staging->device, DDL_UP, staging->copied, err);
}

ddl_status ddl_staging_look(ddl_staging *staging, bool *is_copied, ddl_error *err)
{
    return staging->ops->look_at_mark(staging->device, staging->copied, is_copied, err);
}

void ddl_staging_drop(ddl_staging *staging)
{
    if (staging->lost)
        return;
    const bool is_known = staging->hangs_until != NULL && !ddl_deadline_passed(*staging->hangs_until);
    const int limit_ms = is_known ? DDL_DRAIN_LOOK_MS : DDL_DRAIN_MS;
    const ddl_drained drained = staging->ops->drain(staging->device, limit_ms);
    staging->lost = drained != DDL_DRAINED;
    staging->hangs = drained == DDL_DRAIN_LATE;
    if (staging->hangs && !is_known && staging->hangs_until != NULL)
        *staging->hangs_until = ddl_deadline_in_ms(DDL_HANGS_MS);
}

void ddl_staging_tell_hanging(const ddl_staging *staging, char *text, size_t bytes)
{
    const size_t there = strlen(text);
    if (staging->hangs)
        snprintf(
            text + there, bytes - there,
            "; GPU %d does not end what it had begun here, and may still write to the buffers of its calls",
            staging->gpu);
}

/* ---- streams of the program ---- */

/* Those that are free go to the front. */
static void sort_latches(ddl_staging *staging)
{
    staging->ntaken = 0;
    DDL_LIST_FOR_EACH (link, &staging->latches) {
        if (!staging->ops->is_latch_free(DDL_CONTAINER(link, ddl_latch, link)))
            continue;
        ddl_list_remove(link);
        ddl_list_prepend(&staging->latches, link);
    }
}

static bool take_free_latch(ddl_staging *staging, ddl_latch **out)
{
    ddl_link *first;
    for (int i = 0; i < LATCHES_LOOKED_AT && (first = ddl_list_take_first(&staging->latches)) != NULL; i++) {
        *out = DDL_CONTAINER(first, ddl_latch, link);
        if (staging->ops->is_latch_free(*out))
            return true;
        ddl_list_append(&staging->latches, first);
    }
    return false;
}

/*
 * The one that was shut first is likely to be free first. Those that are not go behind the others: another
 * stream may keep them for long. Where it keeps many, all are looked at now and then before there is one
 * more: not more often than costs as much as four looks each time.
 */
static ddl_status take_latch(ddl_staging *staging, ddl_latch **out, ddl_error *err)
{
    staging->ntaken++;
    if (take_free_latch(staging, out))
        return DDL_OK;
    if (staging->ntaken >= staging->nlatches / LATCHES_LOOKED_AT) {
        sort_latches(staging);
        if (take_free_latch(staging, out))
            return DDL_OK;
    }
    DDL_TRY(staging->ops->create_latch(staging->device, out, err));
    staging->nlatches++;
    return DDL_OK;
}

ddl_status ddl_staging_shut(ddl_staging *staging, void *stream, const void *owner, ddl_deadline until,
                            ddl_hold *hold, ddl_error *err)
{
    ddl_hold new = { 0 };
    DDL_TRY(take_latch(staging, &new.latch, err));
    ddl_list_append(&staging->latches, &new.latch->link);
    DDL_TRY(staging->ops->shut_latch(new.latch, stream, owner, until, &new.number, err));
    *hold = new;
    return DDL_OK;
}

/* ---- copies ---- */

typedef struct copying { /* of one span, in all pieces of a phase that a room has */
    ddl_staged *staged;
    const ddl_staged_room *in_room;
    ddl_direction direction;
} copying;

/* Whoever was to end it came late, and its buffers are the program's again. */
static ddl_status check_held(const ddl_staged *staged, ddl_error *err)
{
    if (ddl_hold_is_over(staged->hold))
        return DDL_FAIL(err, DDL_EDEVICE,
                        "its stream has gone on without it, as calls of the driver of GPU %d did not return; "
                        "does the program load kernels or free memory while operations are in its streams?",
                        staged->staging->gpu);
    return DDL_OK;
}

static ddl_status copy(const copying *c, const ddl_span *span, uint32_t piece, size_t bytes, ddl_error *err)
{
    const ddl_staged *staged = c->staged;
    size_t step = staged->plan->layout.piece_bytes;
    char *near = c->in_room->room->memory + span->room_offset + (piece - c->in_room->first_piece) * step;
    char *far = (span->of_out ? staged->out : staged->in) + span->buffer_offset + piece * step;
    bool down = c->direction == DDL_DOWN;
    DDL_TRY(check_held(staged, err));
    return staged->staging->ops->copy(staged->staging->device, c->direction, down ? near : far,
                                      down ? far : near, bytes, err);
}

/* Pieces that a span takes up wholly lie behind one another, and are one copy. */
static ddl_status copy_span(const copying *c, const ddl_span *span, uint32_t first, uint32_t end,
                            ddl_error *err)
{
    if (span->bytes == c->staged->plan->layout.piece_bytes)
        return copy(c, span, first, (end - first) * span->bytes, err);
    for (uint32_t piece = first; piece < end; piece++)
        DDL_TRY(copy(c, span, piece, span->bytes, err));
    return DDL_OK;
}

static uint32_t end_of_phase(const ddl_plan *plan, uint32_t phase)
{
    return phase + 1 < plan->nphases ? plan->phases[phase + 1].first_piece : plan->npieces;
}

/* Everything that this room's pieces need, or have written. *any: there is something. */
static ddl_status copy_room(ddl_staged *staged, const ddl_staged_room *in_room, ddl_direction direction,
                            bool *any, ddl_error *err)
{
    const ddl_plan *plan = staged->plan;
    const copying c = { staged, in_room, direction };
    uint32_t piece = in_room->first_piece, end = piece + in_room->npieces, phase = 0;
    *any = false;
    for (; piece < end; phase++) {
        uint32_t last = end_of_phase(plan, phase);
        if (last <= piece)
            continue;
        last = last < end ? last : end;
        const ddl_spans *spans = &plan->phases[phase].spans;
        size_t count = direction == DDL_DOWN ? spans->ndown : spans->nup;
        for (size_t i = 0; i < count; i++) {
            DDL_TRY(copy_span(&c, direction == DDL_DOWN ? &spans->down[i] : &spans->up[i], piece, last, err));
            *any = true;
        }
        piece = last;
    }
    if (!*any)
        return DDL_OK;
    return staged->staging->ops->set_mark(staged->staging->device, direction, in_room->room->mark, err);
}

/* ---- stages ---- */

static ddl_status bring_down(ddl_staged *staged, ddl_staged_room *in_room, ddl_error *err)
{
    uint32_t left = staged->plan->npieces - staged->next_piece;
    bool any;
    in_room->first_piece = staged->next_piece;
    in_room->npieces = left < staged->plan->layout.pieces ? left : staged->plan->layout.pieces;
    in_room->unfinished = in_room->npieces;
    staged->next_piece += in_room->npieces;
    in_room->stage = DDL_STAGE_DOWN;
    DDL_TRY(copy_room(staged, in_room, DDL_DOWN, &any, err));
    if (!any)
        in_room->stage = DDL_STAGE_THERE;
    return DDL_OK;
}

/* Rooms take turns. */
static const ddl_staged_room *room_of(const ddl_staged *staged, uint32_t piece)
{
    return &staged->rooms[piece / staged->plan->layout.pieces % (uint32_t)staged->nrooms];
}

/* As much as there are rooms for; they become empty in any order, as some have nothing to take up. */
static ddl_status bring_next(ddl_staged *staged, ddl_error *err)
{
    while (staged->next_piece < staged->plan->npieces) {
        ddl_staged_room *in_room = &staged->rooms[room_of(staged, staged->next_piece) - staged->rooms];
        if (in_room->stage != DDL_STAGE_EMPTY)
            break;
        DDL_TRY(bring_down(staged, in_room, err));
    }
    return DDL_OK;
}

static ddl_status take_up(ddl_staged *staged, ddl_staged_room *in_room, ddl_error *err)
{
    bool any;
    in_room->stage = DDL_STAGE_UP;
    DDL_TRY(copy_room(staged, in_room, DDL_UP, &any, err));
    if (any)
        return DDL_OK;
    in_room->stage = DDL_STAGE_EMPTY;
    return bring_next(staged, err);
}

bool ddl_staged_is_there(const ddl_staged *staged, uint32_t piece)
{
    if (staged->nrooms == 0)
        return false;
    const ddl_staged_room *in_room = room_of(staged, piece);
    return in_room->stage == DDL_STAGE_THERE && piece >= in_room->first_piece &&
           piece < in_room->first_piece + in_room->npieces;
}

static void *place_of(const ddl_staged *staged, uint32_t piece, size_t offset)
{
    const ddl_staged_room *in_room = room_of(staged, piece);
    return in_room->room->memory + offset + (piece - in_room->first_piece) * staged->plan->layout.piece_bytes;
}

void *ddl_staged_in(const ddl_staged *staged, uint32_t piece)
{
    return place_of(staged, piece, staged->plan->layout.in_at);
}

void *ddl_staged_out(const ddl_staged *staged, uint32_t piece)
{
    return place_of(staged, piece, staged->plan->layout.out_at);
}

ddl_status ddl_staged_finish_piece(ddl_staged *staged, uint32_t piece, ddl_error *err)
{
    ddl_staged_room *in_room = &staged->rooms[room_of(staged, piece) - staged->rooms];
    DDL_ASSERT(in_room->stage == DDL_STAGE_THERE);
    return --in_room->unfinished > 0 ? DDL_OK : take_up(staged, in_room, err);
}

static ddl_status look(ddl_staged *staged, ddl_staged_room *in_room, bool *moved, ddl_error *err)
{
    const ddl_staging *staging = staged->staging;
    bool passed = false;
    if (in_room->stage != DDL_STAGE_DOWN && in_room->stage != DDL_STAGE_UP)
        return DDL_OK;
    DDL_TRY(staging->ops->look_at_mark(staging->device, in_room->room->mark, &passed, err));
    if (!passed)
        return DDL_OK;
    *moved = true;
    in_room->stage = in_room->stage == DDL_STAGE_UP ? DDL_STAGE_EMPTY : DDL_STAGE_THERE;
    return in_room->stage == DDL_STAGE_EMPTY ? bring_next(staged, err) : DDL_OK;
}

static int rooms_for(const ddl_plan *plan)
{
    int wanted = DDL_STAGED_ROOMS;
    if (plan->layout.room_bytes > SMALL_ROOM_BYTES)
        wanted = plan->layout.room_bytes > LARGE_ROOM_BYTES ? FEWEST_ROOMS : FEWEST_ROOMS + 1;
    uint32_t useful = (plan->npieces + plan->layout.pieces - 1) / plan->layout.pieces;
    return useful < (uint32_t)wanted ? (int)useful : wanted;
}

static ddl_status fill_rooms(ddl_staged *staged, ddl_error *err)
{
    int wanted = rooms_for(staged->plan);
    while (staged->nrooms < wanted) {
        ddl_staged_room *in_room = &staged->rooms[staged->nrooms];
        DDL_TRY(take_room(staged->staging, staged->plan->layout.room_bytes, &in_room->room, err));
        staged->nrooms++;
    }
    return bring_next(staged, err);
}

static ddl_status look_at_stream(ddl_staged *staged, bool *moved, ddl_error *err)
{
    bool reached = false;
    DDL_TRY(staged->staging->ops->look_at_latch(staged->hold.latch, &reached, err));
    if (!reached)
        return DDL_OK;
    *moved = true;
    staged->awaits_stream = false;
    return fill_rooms(staged, err);
}

ddl_status ddl_staged_progress(ddl_staged *staged, bool *moved, ddl_error *err)
{
    if (staged->awaits_stream)
        return look_at_stream(staged, moved, err);
    for (int i = 0; i < staged->nrooms; i++)
        DDL_TRY(look(staged, &staged->rooms[i], moved, err));
    return check_held(staged, err); /* last: what counts as done was so in time */
}

bool ddl_staged_is_over(const ddl_staged *staged)
{
    for (int i = 0; i < staged->nrooms; i++)
        if (staged->rooms[i].stage != DDL_STAGE_EMPTY)
            return false;
    return staged->next_piece == staged->plan->npieces;
}

static bool is_copying(const ddl_staged *staged)
{
    for (int i = 0; i < staged->nrooms; i++)
        if (staged->rooms[i].stage == DDL_STAGE_DOWN || staged->rooms[i].stage == DDL_STAGE_UP)
            return true;
    return false;
}

bool ddl_staged_waits(const ddl_staged *staged)
{
    return staged->awaits_stream || is_copying(staged);
}

/* ---- operations ---- */

static ddl_staged *take_staged(ddl_staging *staging)
{
    ddl_link *first = ddl_list_take_first(&staging->spare);
    if (first == NULL)
        return ddl_alloc(sizeof(ddl_staged));
    ddl_staged *staged = DDL_CONTAINER(first, ddl_staged, link);
    memset(staged, 0, sizeof *staged);
    return staged;
}

ddl_status ddl_staged_begin(ddl_staging *staging, ddl_plan *plan, const void *in, void *out, ddl_hold hold,
                            void *owner, ddl_staged **begun, ddl_error *err)
{
    DDL_TRY(check_not_lost(staging, err));
    ddl_staged *staged = take_staged(staging);
    if (staged == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for staging");
    staged->staging = staging;
    staged->plan = plan;
    staged->owner = owner;
    staged->hold = hold;
    staged->awaits_stream = hold.latch != NULL;
    staged->in = (char *)(uintptr_t)in;
    staged->out = out;
    plan->users++;
    if (ddl_list_empty(&staging->running) && staging->busy != NULL)
        ddl_list_append(staging->busy, &staging->link);
    ddl_list_append(&staging->running, &staged->link);
    /* Operations that wait in a stream, one after the other, need no rooms yet. */
    ddl_status status = !staged->awaits_stream ? fill_rooms(staged, err) : DDL_OK;
    if (status != DDL_OK) {
        ddl_staged_end(staged);
        return status;
    }
    *begun = staged;
    return DDL_OK;
}

void ddl_staged_end(ddl_staged *staged)
{
    ddl_staging *staging = staged->staging;
    if (is_copying(staged) || staged->failed)
        ddl_staging_drop(staging);
    for (int i = 0; i < staged->nrooms; i++)
        give_room(staging, staged->rooms[i].room);
    staged->plan->users--;
    ddl_list_remove(&staged->link);
    if (ddl_list_empty(&staging->running) && staging->busy != NULL)
        ddl_list_remove(&staging->link);
    ddl_list_append(&staging->spare, &staged->link);
}
