/*
 * offloading.h - what a communicator has at NCCL, and how that ends: of one with several ranks, which vote on
 * calls (votes.h), or of a rank alone (alone.h).
 *
 * For one thread at a time per communicator.
 */
#ifndef DDL_API_OFFLOADING_H
#define DDL_API_OFFLOADING_H

#include "backend/offload.h"
#include "base/clock.h"

/* How long NCCL is waited for. */
enum {
    DDL_OFFLOADING_STOP_MS = 10000,    /* to stop what it does, after a failure */
    DDL_OFFLOADING_STOP_LATE_MS = 600, /* and then after deadlines of calls: a cause has settled after 570 ms,
                                          waiters give up after 800 */
    DDL_OFFLOADING_CLOSE_MS = 800      /* to close its communicator */
};

/* Of an error whose calls it has not stopped: they may go on. */
#define DDL_OFFLOADING_MAY_WRITE "; NCCL does not stop here, and may still write to the buffers of its calls"

typedef struct ddl_offloading {
    const struct ddl_offload_ops *ops; /* NULL: not found so far */
    ddl_offload *offload;              /* NULL: not opened so far */
    int gpu;                           /* -1: no call could go there so far */
    uint64_t turn;                     /* the number by which it asks for turns (turns.h) */
    bool is_closing;
    ddl_deadline close_by; /* then: how long that is waited for */
} ddl_offloading;

void ddl_offloading_init(ddl_offloading *own);

/* Begin to stop what is under way; again, where there was no thread for it. */
void ddl_offloading_abort(ddl_offloading *own);

/* It does not stop: it is not waited for at the end either. This is a warning in the log; prefix is that of
 * the communicator's messages. */
void ddl_offloading_give_up_on(ddl_offloading *own, const char *prefix);

/* Nothing is under way, nor will be again: begin to part from the others, or with has_failed to abort, as
 * they may not part any more. Until `latest` at most close waits for that. Once is enough. */
void ddl_offloading_begin_close(ddl_offloading *own, bool has_failed, ddl_deadline latest);

/* Blocks. Its closing may have begun. */
void ddl_offloading_close(ddl_offloading *own);

/* Why it is an error that NCCL, which was asked for, cannot be used: DDL_EDEVICE. */
ddl_status ddl_offloading_unusable(ddl_error *err, const char *reason);

/* A line in the log: it is open. */
void ddl_offloading_tell_usable(const char *prefix, const ddl_offload_facts *facts);

#endif
