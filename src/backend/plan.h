/*
 * plan.h - how a call of one shape is run: its schedules, cut into pieces, ready to start.
 *
 * A large call repeats the short schedule of one piece, so that messages and scratch stay small, and
 * receiving, reducing and sending of neighbouring pieces overlap. Plans are cached by shape; running a
 * cached one allocates nothing.
 */
#ifndef DDL_BACKEND_PLAN_H
#define DDL_BACKEND_PLAN_H

#include "algorithms/catalogue.h"
#include "base/list.h"
#include "executor/executor.h"

enum { DDL_PIECES_IN_FLIGHT = 3 };

typedef struct ddl_plan {
    ddl_shape shape; /* of the whole call; stride as the whole call has it */
    const ddl_algorithm *algorithm;
    size_t piece_count;        /* elements of every piece but the last */
    uint32_t npieces;          /* at least 1 */
    ddl_schedule *full, *tail; /* tail: of the last piece; the same pointer as full where they are equal */
    size_t scratch_bytes;      /* per piece in flight */
    ddl_list idle;             /* ddl_plan_run: instances that nobody uses */
    int users;                 /* operations that run it now */
} ddl_plan;

/* What one operation needs to run a plan: a run per piece in flight. */
typedef struct ddl_plan_run {
    ddl_link link;
    ddl_plan *plan;
    int nslots;
    struct ddl_plan_slot {
        ddl_run *full, *tail; /* tail is NULL where the full run serves */
        ddl_run *active;
        void *scratch;
    } slots[DDL_PIECES_IN_FLIGHT];
} ddl_plan_run;

DDL_MUST_USE ddl_status ddl_plan_create(const ddl_algorithm *algorithm, const ddl_shape *shape,
                                        ddl_plan **plan, ddl_error *err);

/* No operation may be running it. NULL is fine. */
void ddl_plan_destroy(ddl_plan *plan);

/* An idle instance, made if there is none. Scratch is the taker's business. */
DDL_MUST_USE ddl_status ddl_plan_take(ddl_plan *plan, ddl_plan_run **run, ddl_error *err);
void ddl_plan_give_back(ddl_plan_run *run);

#endif
