/*
 * oneshot.h - a schedule of one round, turned into what is left of it where all can read what all have said.
 *
 * Where every rank sends every other one message at once, or one rank has a message for all others or from
 * all, and these are all messages, a rank can as well post what it sends on a board and take its part of what
 * the others posted, reducing straight from their sheets. What is posted and what is read follows from the
 * schedules of all ranks, so the checker's proof of them holds for this too.
 */
#ifndef DDL_EXECUTOR_ONESHOT_H
#define DDL_EXECUTOR_ONESHOT_H

#include "base/error.h"
#include "executor/board.h"
#include "executor/compute.h"
#include "schedule/schedule.h"

typedef struct ddl_oneshot ddl_oneshot;

/* All that one rank has to know of the schedule of another. */
typedef struct ddl_oneshot_word {
    bool may_be;    /* of one round, with no more to say than a sheet holds */
    uint32_t sent;  /* messages */
    ddl_slice said; /* what goes to all others together, of IN or OUT; SCRATCH: nothing that anyone reads */
    ddl_slice message; /* what goes to that one rank; no bytes: nothing */
} ddl_oneshot_word;

/* What this schedule has for rank. */
ddl_oneshot_word ddl_oneshot_word_to(const ddl_schedule *schedule, int rank);

/*
 * Whether the schedules of all ranks for one call, of which these are the words to any of them, are of one
 * round, and no rank has more to say than a sheet holds: a round in which all have something to say to all,
 * or also one of one rank and the others (may_be_rooted). Ranks differ in whether their calls are in place:
 * it is possible for all of them only if it is for both kinds of schedules.
 */
bool ddl_oneshot_is_possible(const ddl_oneshot_word words[], int nranks, bool may_be_rooted);

/* Whether it may be, as far as this rank's own schedule says. */
bool ddl_oneshot_is_possible_for(const ddl_schedule *own);

/* Of the rank of this schedule, where it is possible; words: of all ranks to it. Neither need outlive it.
 * DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_oneshot_create(const ddl_schedule *own, const ddl_oneshot_word words[],
                                           ddl_oneshot **oneshot, ddl_error *err);

/* NULL is fine. */
void ddl_oneshot_destroy(ddl_oneshot *oneshot);

/* What this rank has to post, of IN or OUT. */
ddl_slice ddl_oneshot_posts(const ddl_oneshot *oneshot);

/* From whom it needs something. */
ddl_board_ranks ddl_oneshot_needs(const ddl_oneshot *oneshot);

/* Those have posted: the rest of the schedule. in is only read, unless the operation is in place. */
void ddl_oneshot_finish(const ddl_oneshot *oneshot, const ddl_board *board, void *in, void *out,
                        ddl_compute *compute, ddl_dtype dtype, ddl_op op);

#endif
