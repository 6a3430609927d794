/*
 * check.h - proves that the schedules of all ranks together perform a collective.
 *
 * What is proved, for one shape, over all ranks at once:
 *   structure  steps come after their predecessors, and sizes within a step agree;
 *   bounds     only bytes that the call gives are read, and only those of its result, or scratch, written;
 *   overlap    no two unordered steps of a rank touch the same bytes unless both only read them;
 *   channel    for each ordered pair of ranks, messages sent and expected agree in number, order and bytes;
 *   progress   everything completes although no message is buffered: no deadlock;
 *   value      every input is counted exactly once, and results are where the collective's meaning says;
 *   bits       each element of an allreduce is the same expression, operands in the same order, on all ranks;
 *   scale      an average is divided exactly once, after summing.
 *
 * The meanings of the collectives live in check.c. Nothing here knows an algorithm.
 */
#ifndef DDL_SIMULATE_CHECK_H
#define DDL_SIMULATE_CHECK_H

#include "algorithms/catalogue.h"

typedef enum ddl_proof {
    DDL_PROOF_NONE, /* all succeeded */
    DDL_PROOF_STRUCTURE,
    DDL_PROOF_BOUNDS,
    DDL_PROOF_OVERLAP,
    DDL_PROOF_CHANNEL,
    DDL_PROOF_PROGRESS,
    DDL_PROOF_VALUE,
    DDL_PROOF_BITS,
    DDL_PROOF_SCALE
} ddl_proof;

/* Keeps its memory from one proof to the next. */
typedef struct ddl_checker ddl_checker;

DDL_MUST_USE ddl_status ddl_checker_create(ddl_checker **checker, ddl_error *err);
void ddl_checker_destroy(ddl_checker *checker);

/*
 * Build the schedules of all ranks and prove them. shape->rank is ignored. For send and recv, rank `root`
 * sends to the next one. For alltoallv blocks and out_blocks are matrices, row after row: row r is what
 * rank r's shape has, so that element (i, j) of blocks.counts is element (j, i) of out_blocks.counts.
 * DDL_EINTERNAL: a proof failed; the text begins with its name. Else as build.
 */
DDL_MUST_USE ddl_status ddl_check_algorithm(ddl_checker *checker, const ddl_algorithm *algorithm,
                                            const ddl_shape *shape, ddl_error *err);

/* The same for given schedules, of rank 0 .. nranks-1; NULL is a rank that does nothing. */
DDL_MUST_USE ddl_status ddl_check_schedules(ddl_checker *checker, ddl_collective collective,
                                            const ddl_shape *shape, const ddl_schedule *const schedules[],
                                            ddl_error *err);

/* Which proof failed last time. */
ddl_proof ddl_checker_failed(const ddl_checker *checker);
const char *ddl_proof_name(ddl_proof proof);

/* What the schedules proved last cost, in the terms of ddl_algorithm.work, but for remote_rounds, which is 0.
 */
ddl_work ddl_checker_measured(const ddl_checker *checker);

/* Of a step of the schedules proved last: messages on the longest way from the start to its end. */
uint32_t ddl_checker_round(const ddl_checker *checker, int rank, uint32_t step);

/* The shape as `rank` sees it when all ranks are considered together, as in ddl_check_algorithm: its role and
 * its buffers. False: the rank has no part in it (point to point). *role is the collective whose schedule the
 * rank runs. */
bool ddl_shape_of_rank(const ddl_shape *shape, ddl_collective collective, int rank, ddl_shape *own,
                       ddl_collective *role);

#endif
