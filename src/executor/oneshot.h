/*
 * oneshot.h - a schedule of few rounds, turned into what is left of it where all can read what all have said.
 *
 * Where every rank sends every other one message at once, or one rank has a message for all others or from
 * all, and these are all messages, a rank can as well post what it sends on a board and take its part of what
 * the others posted, reducing straight from their sheets. Two rounds, in each of which all have something to
 * say to all, are two posts. What is posted and what is read follows from the schedules of all ranks, so the
 * checker's proof of them holds for this too.
 */
#ifndef DDL_EXECUTOR_ONESHOT_H
#define DDL_EXECUTOR_ONESHOT_H

#include "base/error.h"
#include "executor/board.h"
#include "executor/compute.h"
#include "schedule/schedule.h"

enum { DDL_ONESHOT_ROUNDS = 2 };

typedef struct ddl_oneshot ddl_oneshot;

/* What a rank posts, as far as another has to know it. */
typedef struct ddl_oneshot_posts {
    int rounds;                            /* with no more to say in any than a post may; 0: it cannot be */
    uint32_t sent;                         /* messages, in each round */
    bool says_scratch, reads;              /* something of SCRATCH; something of what comes */
    ddl_slice message[DDL_ONESHOT_ROUNDS]; /* what goes to that one rank, of IN or OUT; SCRATCH: nothing that
                                              anyone reads; no bytes: nothing */
    size_t at[DDL_ONESHOT_ROUNDS];         /* where it is in what the rank posts, */
    bool is_long[DDL_ONESHOT_ROUNDS];      /* which is longer than a sheet */
} ddl_oneshot_posts;

/* The buffers of a rank, where this one reaches them. */
typedef struct ddl_oneshot_buffers {
    const char *in;
    char *out; /* NULL: it does not, and what the rank says is on its sheet */
} ddl_oneshot_buffers;

/* What the rank of this schedule posts, for rank. */
ddl_oneshot_posts ddl_oneshot_posts_for(const ddl_schedule *schedule, int rank);

/*
 * Whether the schedules of all ranks for one call, of which these are the posts for any of them, are of such
 * rounds, and no rank has more to say than a post may: rounds in which all have something to say to all,
 * or also one of one rank and the others (may_be_rooted). Ranks differ in whether their calls are in place:
 * it is possible for all of them only if it is for both kinds of schedules.
 */
bool ddl_oneshot_is_possible(const ddl_oneshot_posts posts[], int nranks, bool may_be_rooted);

/* What the rank of this schedule would have to say in the round in which that is most, at least 1; 0: as far
 * as this schedule says, it is not of such rounds. */
size_t ddl_oneshot_bytes(const ddl_schedule *own);

/* Of the rank of this schedule, where it is possible; posts: of all ranks, for it. Neither need outlive it.
 * DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_oneshot_create(const ddl_schedule *own, const ddl_oneshot_posts posts[],
                                           ddl_oneshot **oneshot, ddl_error *err);

/* NULL is fine. */
void ddl_oneshot_destroy(ddl_oneshot *oneshot);

/* How many there are; they are numbered from 0. */
int ddl_oneshot_rounds(const ddl_oneshot *oneshot);

/* What this rank does with a round once it has finished the one before. */
typedef struct ddl_oneshot_round {
    ddl_slice *parts; /* to be posted, of IN or OUT, one after the other: so many, and so many bytes */
    int nparts;
    size_t bytes;
    ddl_board_ranks needs; /* from whom it needs something */
    uint32_t end;          /* of its actions, which are what it does then */
} ddl_oneshot_round;

const ddl_oneshot_round *ddl_oneshot_round_of(const ddl_oneshot *oneshot, int round);

/* Those have posted: the rest of the round. in is only read, unless the operation is in place. past_caches:
 * see ddl_binding. */
void ddl_oneshot_finish(const ddl_oneshot *oneshot, int round, const ddl_board *board, void *in, void *out,
                        ddl_compute *compute, ddl_dtype dtype, ddl_op op, bool past_caches);

/*
 * Whether each rank makes one part of OUT from the same part of IN of all, and then all say their parts to
 * all, so that whoever reaches the buffers of the others may read there in the first round, and write there
 * what comes of it, instead of saying it in the second. Nobody else uses that part of them meanwhile. How
 * many bytes of IN, and of OUT, all ranks together use so; 0: it is not so.
 */
size_t ddl_oneshot_common_bytes(const ddl_oneshot *oneshot);

/* It is not to be so, as it is not for ranks whose calls are in place, or are not. */
void ddl_oneshot_forgo_common(ddl_oneshot *oneshot);

/* As finish, of the first round, where it is so. buffers: of each rank; this one's are not looked at. */
void ddl_oneshot_finish_in(const ddl_oneshot *oneshot, const ddl_board *board,
                           const ddl_oneshot_buffers buffers[], void *in, void *out, ddl_compute *compute,
                           ddl_dtype dtype, ddl_op op, bool past_caches);

#endif
