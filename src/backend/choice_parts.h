/*
 * choice_parts.h - what the files of the choice share. What their users need is in choice.h.
 */
#ifndef DDL_BACKEND_CHOICE_PARTS_H
#define DDL_BACKEND_CHOICE_PARTS_H

#include "algorithms/work.h"
#include "backend/choice.h"
#include "backend/plan.h"

/* What these links cost. */
static inline const ddl_link_cost *ddl_choice_inside(const ddl_cost_model *model)
{
    return &model->links[model->shares_memory ? DDL_LINK_SHARED : DDL_LINK_LOCAL];
}

static inline double ddl_choice_larger(double a, double b)
{
    return a > b ? a : b;
}

/* Two things at once, but for one of the pieces in flight. */
static inline double ddl_choice_overlapped(double a, double b)
{
    return ddl_choice_larger(a, b) + (a + b - ddl_choice_larger(a, b)) / DDL_PIECES_IN_FLIGHT;
}

/* What a call is, beside what an algorithm makes of it. */
typedef struct ddl_choice_task {
    const ddl_cost_model *model;
    ddl_collective collective;
    int nranks;
    double total_bytes;
    bool is_part;   /* of another collective */
    bool is_behind; /* and the second one */
} ddl_choice_task;

static inline double ddl_choice_bytes_ns(const ddl_cost_model *model, double sent_bytes, double reduced_bytes)
{
    return sent_bytes * ddl_choice_inside(model)->byte_ns + reduced_bytes * model->reduce_ns;
}

/* From 0, where every rank has a CPU, to 1, where ranks sleep whenever they wait. */
static inline double ddl_choice_asleep(const ddl_cost_model *model)
{
    static const double ALWAYS = 1.5; /* ranks per CPU */
    return model->crowding < ALWAYS ? (model->crowding - 1) / (ALWAYS - 1) : 1;
}

/* ---- choice_messages.c: CPU time of one host ---- */

/* Of messages as such, and of what is in them. */
double ddl_choice_messages_ns(const ddl_choice_task *task, const ddl_work *work, double latency_ns,
                              double message_ns);
double ddl_choice_moving_ns(const ddl_choice_task *task, const ddl_work *work);

/* Whether a broadcast costs the more, the less evenly its ranks are busy. */
bool ddl_choice_has_to_be_even(const ddl_cost_model *model, ddl_collective collective, int nranks,
                               double total_bytes);

/* ---- choice_board.c ---- */

/* Whether this algorithm's calls go over a board, and what such a call costs. */
bool ddl_choice_over_board(const ddl_cost_model *model, const ddl_algorithm *algorithm, const ddl_work *work,
                           const ddl_placement *placement, double total_bytes, double *ns);

#endif
