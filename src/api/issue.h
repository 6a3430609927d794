/* issue.h - from checked arguments to an operation in flight. */
#ifndef DDL_API_ISSUE_H
#define DDL_API_ISSUE_H

#include "api/comm.h"

typedef struct ddl_call { /* what a public function has been asked to do, checked */
    ddl_collective collective;
    const void *in;
    void *out;
    size_t count, stride;
    ddl_dtype dtype; /* with element_bytes 1 and no_dtype for a barrier */
    ddl_op op;
    bool has_dtype, has_op, has_root;
    int root; /* or the peer */
    bool in_place;
    bool parting; /* the barrier of ddl_comm_free */
} ddl_call;

/* Block until done if request is NULL. */
ddl_status ddl_issue(ddl_comm *comm, const ddl_call *call, ddl_request **request);

/* The algorithm that this call would run. */
const ddl_algorithm *ddl_issue_algorithm(const ddl_comm *comm, ddl_collective collective, size_t count,
                                         size_t element_bytes);

/* What the engine drives; arg is the comm. */
bool ddl_issue_sweep(void *arg);
bool ddl_issue_needs_loop(void *arg);
void ddl_issue_job(void *arg, ddl_link *job);
void ddl_issue_tick(void *arg, int64_t now_ns);
bool ddl_issue_busy(void *arg);

#endif
