/*
 * failure_state.h - what a communicator knows of its failure, as a part of it. Its users read it by
 * failure.h.
 *
 * All for the holder of the baton; of a rank alone, for the thread that issues.
 */
#ifndef DDL_API_FAILURE_STATE_H
#define DDL_API_FAILURE_STATE_H

#include "base/clock.h"
#include "protocol/frame.h"
#include "protocol/notice.h"

/* It goes down this list, and never back. */
typedef enum ddl_failure_phase {
    DDL_FAILURE_NONE,
    DDL_FAILURE_HELD,     /* a cause is known, but nobody is told of it until the loop has been run */
    DDL_FAILURE_SETTLING, /* all are told; better causes may follow until settle_ns */
    DDL_FAILURE_FINAL,    /* the cause is final, and in pool->cause */
    DDL_FAILURE_REPORTED  /* and some call has returned it, or will once it is waited for */
} ddl_failure_phase;

typedef struct ddl_told_call { /* a collective call that a rank has told of */
    uint64_t sequence;         /* 0: of none */
    ddl_signature signature;
} ddl_told_call;

typedef struct ddl_failure {
    /* In one byte, of one type to the compiler, as each small call looks at both (ddl_failure_is_quiet). */
    ddl_failure_phase phase : 7;
    unsigned is_asked : 1; /* others wait in operations to which this rank has not come, up to: */
    uint64_t asked;
    unsigned held_loops; /* of the engine, when it was held */
    int64_t settle_ns, latest_ns;
    int64_t began_ns, took_ns; /* since when there is a cause, and this is it */
    bool is_late;              /* to settle, and was when the loop had been run so often: */
    unsigned late_loops;
    ddl_notice cause;
    int os_errno;  /* of a cause that this rank has seen: what the system said, or 0 */
    bool *told_by; /* of each rank: it has said that it failed; its leaving is no news */
    /* Of a cause that a rank was lost: who has not lost it, and how many these are (failure_doubt.c); and
     * that this rank is to say whether it has, once the engine's loop has been run more often than: */
    bool *denied_by;
    int ndenials;
    bool is_doubted;
    unsigned doubted_loops;
    ddl_told_call *calls; /* of each rank: the last one */
    /* Of what operations wait behind, as not all have come to it: which one, and when others are told
     * (again) that this rank was in it. */
    uint64_t behind;
    int64_t behind_tell_ns;
} ddl_failure;

#endif
