/*
 * plan.h - how a call of one shape is run: its schedules, cut into pieces, ready to start.
 *
 * A large call repeats the short schedule of one piece, so that messages and scratch stay small, and
 * receiving, reducing and sending of neighbouring pieces overlap. Pieces that are alike share a schedule and
 * make up a phase: an even call has one, and one for a shorter last piece; in a v form a phase ends wherever
 * some block does. Plans are cached by shape; running a cached one allocates nothing, unless it has so many
 * phases that their schedules are made when they are due.
 */
#ifndef DDL_BACKEND_PLAN_H
#define DDL_BACKEND_PLAN_H

#include "backend/cut.h"
#include "backend/layout.h"
#include "base/list.h"
#include "executor/executor.h"
#include "executor/oneshot.h"

enum { DDL_PIECES_IN_FLIGHT = 3 };

typedef struct ddl_plan_phase {
    uint32_t first_piece;
    size_t count;                /* elements, of the vector or of the largest block */
    size_t *counts, *out_counts; /* v forms of several pieces: of each block */
    ddl_schedule *schedule;      /* NULL: made for each piece */
    ddl_spans spans;             /* staged: of its first piece */
    ddl_oneshot *oneshot;        /* of its pieces over a board; NULL: they go by messages */
} ddl_plan_phase;

typedef struct ddl_plan {
    ddl_shape shape; /* of the whole call; arrays of counts and starts are the plan's own: */
    size_t *arrays;  /* all of them; NULL: there are none */
    const ddl_algorithm *algorithm;
    size_t piece_count; /* elements of every piece, of each block, unless it ends */
    uint32_t npieces;   /* at least 1 */
    ddl_plan_phase *phases;
    uint32_t nphases;
    bool keeps_schedules;
    bool past_caches;     /* see ddl_binding */
    bool lends, pulls;    /* likewise */
    size_t scratch_bytes; /* per piece in flight */
    ddl_layout layout;    /* staged */
    ddl_list idle;        /* ddl_plan_run: instances that nobody uses */
    unsigned nruns;       /* instances that there are */
    int users;            /* operations that run it now */
} ddl_plan;

enum { DDL_PLAN_RUNS_KEPT = 1024 };

typedef struct ddl_plan_slot { /* for a piece in flight */
    ddl_run **runs;            /* of each phase */
    ddl_schedule *passing;     /* of the active run, if the plan keeps none */
    ddl_run *active;
    uint32_t piece; /* of the active run */
    void *scratch;
} ddl_plan_slot;

/* What one operation needs to run a plan. */
typedef struct ddl_plan_run {
    ddl_link link;
    ddl_plan *plan;
    int nslots;
    ddl_plan_slot slots[DDL_PIECES_IN_FLIGHT];
    ddl_run *runs[]; /* of all slots */
} ddl_plan_run;

/* Cut, see ddl_cut_find; shape's arrays are copied. With post_bytes in the shape it is cut for a board, and
 * *plan is NULL if it cannot go over one, as far as its own schedules say. DDL_ENOMEM; else as
 * algorithm->build. */
DDL_MUST_USE ddl_status ddl_plan_create(const ddl_algorithm *algorithm, const ddl_shape *shape,
                                        ddl_cut_memo *memo, ddl_plan **plan, ddl_error *err);

/* No operation may be running it. NULL is fine. */
void ddl_plan_destroy(ddl_plan *plan);

/* Whether a call of this shape is run by a plan for that one. */
bool ddl_plan_fits(const ddl_plan *plan, const ddl_algorithm *algorithm, const ddl_shape *shape);

/* The shape of the plan's schedules, but for what differs from phase to phase. */
ddl_shape ddl_plan_shape(const ddl_plan *plan);

/* An idle instance, made if there is none. Scratch is the taker's business. Given back it is kept for the
 * next one, unless there are very many: what a burst of calls took is not the plan's for ever. */
DDL_MUST_USE ddl_status ddl_plan_take(ddl_plan *plan, ddl_plan_run **run, ddl_error *err);
void ddl_plan_give_back(ddl_plan_run *run);

/* Make the run of a phase the active one of a slot. Fails only if the plan keeps no schedules. */
DDL_MUST_USE ddl_status ddl_plan_activate(ddl_plan_run *run, ddl_plan_slot *slot, uint32_t phase,
                                          ddl_error *err);
/* The active run has ended, or was cancelled. */
void ddl_plan_deactivate(ddl_plan_run *run, ddl_plan_slot *slot);

#endif
