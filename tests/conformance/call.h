/*
 * call.h - a call by its parts, so that a test can make any of them wrong or another than that of other
 * ranks.
 */
#ifndef DDL_TESTS_CONFORMANCE_CALL_H
#define DDL_TESTS_CONFORMANCE_CALL_H

#include "oracle.h"

typedef struct call {
    oracle_kind kind;
    const void *send;
    void *recv;
    size_t count;
    const size_t *counts, *recv_counts; /* v forms; the second of alltoallv */
    int dtype, op, root;                /* as int: out of range here and there; of a pair the peer */
    bool receives;                      /* of a pair: a receive rather than a send */
} call;

/* Of any kind but ORACLE_SHIFT. */
ddl_status call_make(const call *c, ddl_comm *comm, ddl_request **request);

#endif
