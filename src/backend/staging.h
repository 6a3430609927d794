/*
 * staging.h - operations on device memory: their bytes come down into rooms of host memory, piece by piece,
 * and results go up again, while schedules run in the rooms.
 *
 * A staging belongs to one communicator and one GPU. It keeps the rooms and what goes with them, so that once
 * warm nothing is allocated. Everything here is for whoever may touch the communicator's backend.
 */
#ifndef DDL_BACKEND_STAGING_H
#define DDL_BACKEND_STAGING_H

#include "backend/device.h"
#include "backend/plan.h"

enum { DDL_STAGED_ROOMS = 6 /* of one operation, at most */ };

/* Who cancels must not wait long for a GPU that hangs: others wait for their turn meanwhile. */
enum {
    DDL_DRAIN_MS = 250,
    DDL_HANGS_MS = 1000,  /* that was in vain: for so long nobody else waits for that GPU */
    DDL_DRAIN_LOOK_MS = 1 /* but this */
};

typedef struct ddl_staging { /* of one GPU */
    const struct ddl_device_ops *ops;
    ddl_device *device;
    int gpu;
    ddl_list rooms[40];      /* free ones, by the power of two of their pages */
    ddl_list spare;          /* ddl_staged: not in use */
    ddl_list running;        /* ddl_staged, oldest first */
    ddl_list latches;        /* ddl_latch, the one that was shut first at the front; the issuing thread's */
    size_t nlatches, ntaken; /* how many, and since all were looked at */
    ddl_list stock;          /* rooms that nobody has taken yet; the issuing thread's, too */
    bool is_stocked;
    ddl_list *busy; /* of `link`, while something is running; NULL: nobody looks */
    ddl_link link;
    ddl_mark *copied;          /* of copies on the GPU itself; NULL: there was none */
    bool lost;                 /* it did not end what was under way: nothing is begun any more */
    bool hangs;                /* nor has it failed, which would have ended that */
    ddl_deadline *hangs_until; /* of the GPU, for all who take turns: it has been waited for in vain; NULL:
                                  there are no others */
} ddl_staging;

/* busy and hangs_until must outlive it. DDL_EDEVICE: the GPU cannot be used; DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_staging_create(const struct ddl_device_ops *ops, int gpu, ddl_list *busy,
                                           ddl_deadline *hangs_until, ddl_staging **staging, ddl_error *err);

/* Nothing may be running. NULL is fine. */
void ddl_staging_destroy(ddl_staging *staging);

/* Make the rooms that an operation needs mostly, once, before the first stream waits for one: the driver may
 * wait for all streams when it makes another. If it does so here that keeps nobody from what streams wait
 * for. What cannot be made is made when it is needed. For the thread that issues; the holder takes them. */
void ddl_staging_make_stock(ddl_staging *staging);
void ddl_staging_take_stock(ddl_staging *staging);

/* Have a stream of the program wait for an operation, which has yet to begin, until `until` at most; open the
 * latch with its number when that has ended. It is kept here and shut again some time. owner: for
 * open_latches of the device. For the thread that issues. */
DDL_MUST_USE ddl_status ddl_staging_shut(ddl_staging *staging, void *stream, const void *owner,
                                         ddl_deadline until, ddl_hold *hold, ddl_error *err);

/* For a rank alone, whose results are copies: on the GPU itself, one at a time. */
DDL_MUST_USE ddl_status ddl_staging_copy(ddl_staging *staging, void *to, const void *from, size_t bytes,
                                         ddl_error *err);
DDL_MUST_USE ddl_status ddl_staging_look(ddl_staging *staging, bool *is_copied, ddl_error *err);
/* It has failed, or took too long: the buffers are not touched any more. What is under way is waited for, for
 * DDL_DRAIN_MS; but only looked at where another has just waited for this GPU in vain, or for NCCL there. */
void ddl_staging_drop(ddl_staging *staging);

/* Append to a text of at most so many bytes that what was under way goes on, if it was dropped and that is
 * so. */
void ddl_staging_tell_hanging(const ddl_staging *staging, char *text, size_t bytes);

/* ---- one operation ---- */

typedef struct ddl_staged ddl_staged;
struct ddl_room;

typedef enum ddl_stage { DDL_STAGE_EMPTY, DDL_STAGE_DOWN, DDL_STAGE_THERE, DDL_STAGE_UP } ddl_stage;

typedef struct ddl_staged_room {
    struct ddl_room *room;
    ddl_stage stage;
    uint32_t first_piece, npieces, unfinished;
} ddl_staged_room;

struct ddl_staged {
    ddl_link link;
    ddl_staging *staging;
    ddl_plan *plan; /* held while this is in use */
    void *owner;
    ddl_hold hold;       /* of the stream that it is an operation of */
    bool awaits_stream;  /* that has not come to it, and nothing begins before that */
    char *in, *out;      /* device memory */
    uint32_t next_piece; /* the first that is not on its way down */
    int nrooms;          /* 0: as long as it awaits its stream, too */
    ddl_staged_room rooms[DDL_STAGED_ROOMS];
    bool failed;
};

/* Bytes begin to come down, once the stream of the hold, if there is one, has come to it. The plan is of a
 * shape that is staged. Nothing is copied, and it ends with DDL_EDEVICE, if the hold is over before it is. */
DDL_MUST_USE ddl_status ddl_staged_begin(ddl_staging *staging, ddl_plan *plan, const void *in, void *out,
                                         ddl_hold hold, void *owner, ddl_staged **staged, ddl_error *err);

/* Whether a piece may run; it does so with these as IN and OUT. */
bool ddl_staged_is_there(const ddl_staged *staged, uint32_t piece);
void *ddl_staged_in(const ddl_staged *staged, uint32_t piece);
void *ddl_staged_out(const ddl_staged *staged, uint32_t piece);

/* A piece has run: its results may go up. */
DDL_MUST_USE ddl_status ddl_staged_finish_piece(ddl_staged *staged, uint32_t piece, ddl_error *err);

/* Look how far copies have come, and begin those that have become possible. *moved is set if something has.
 */
DDL_MUST_USE ddl_status ddl_staged_progress(ddl_staged *staged, bool *moved, ddl_error *err);

/* Whether every result is where it belongs. */
bool ddl_staged_is_over(const ddl_staged *staged);

/* Whether it waits for the GPU, rather than for pieces to run. */
bool ddl_staged_waits(const ddl_staged *staged);

/* The buffers are not touched any more, as with ddl_staging_drop where it has not ended by itself. */
void ddl_staged_end(ddl_staged *staged);

#endif
