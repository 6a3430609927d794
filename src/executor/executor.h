/*
 * executor.h - runs a schedule over a transport and a compute. Reads no clock and no socket.
 *
 * A run holds the counters and xfers for one schedule; it is made once and started many times, and
 * starting it allocates nothing. One thread at a time: the one that drives the transport.
 */
#ifndef DDL_EXECUTOR_EXECUTOR_H
#define DDL_EXECUTOR_EXECUTOR_H

#include "base/error.h"
#include "executor/compute.h"
#include "executor/transport.h"
#include "schedule/schedule.h"

typedef struct ddl_run ddl_run;

typedef struct ddl_binding {
    void *in, *out; /* of this piece; in is only read, unless the operation is in place */
    void *scratch;  /* schedule->scratch_bytes, aligned to 64 */
    ddl_dtype dtype;
    ddl_op op;
    ddl_transport *transport;
    ddl_compute *compute;
    ddl_key key;       /* of the run's messages; number is ignored */
    bool past_caches;  /* a hint: nobody looks soon at what the operation leaves in OUT; see ddl_xfer */
    bool lends, pulls; /* hints: messages may be read where they lie, and should be. What one rank pulls all
                          that send to it lend */
    const int *peers;  /* of each rank of the schedule: its number in the transport; NULL: the same */
    /* Valid until the run ends. Where what two ranks have to agree on differs from pair to pair (alltoallv),
     * signatures of messages to and from each rank take the place of the one for all. */
    const ddl_signature *signature, *sent_signatures, *received_signatures;
    /* Called once when the last step is done, from the transport's progress; not if start returned true. */
    void (*finished)(ddl_run *run, void *arg);
    void *arg;
} ddl_binding;

/* The schedule must outlive the run. */
DDL_MUST_USE ddl_status ddl_run_create(const ddl_schedule *schedule, ddl_run **run, ddl_error *err);

/* Begin. True: everything is done already, and finished will not be called. */
bool ddl_run_start(ddl_run *run, const ddl_binding *binding);

/* Stop: cancels every xfer. finished will not be called; buffers are not touched from now on. Idle runs:
 * nothing. */
void ddl_run_cancel(ddl_run *run);

/* Ranks of the schedule that this run still waits for: calls visit(arg, peer, outgoing) per pending message.
 */
void ddl_run_visit_pending(const ddl_run *run, void (*visit)(void *arg, int peer, bool outgoing), void *arg);

/* How much of its messages a started run has sent and received so far, from 0 to 1. */
double ddl_run_share_moved(const ddl_run *run);

/* NULL is fine. Cancels first. */
void ddl_run_destroy(ddl_run *run);

#endif
