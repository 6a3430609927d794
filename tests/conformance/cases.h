/*
 * cases.h - random calls of the public API, each compared with the oracle.
 *
 * From one seed every rank derives the same batches of calls: one call, or up to eight in flight at once,
 * completed in an order and by a way (wait, wait_all, wait_any, test, another thread) that each rank draws
 * for itself. They run on the communicator that was given and on parts of it, and parts of parts, which are
 * split off and freed as they go: some while operations are in flight on them, some not before the
 * communicator that they come from. Buffers are guarded on both sides, inputs must stay as they were, and
 * where the contract says that all ranks get the same bits, their digests are compared through the library
 * too.
 */
#ifndef DDL_TESTS_CONFORMANCE_CASES_H
#define DDL_TESTS_CONFORMANCE_CASES_H

#include "oracle.h"

/* Memory that the host cannot touch. False: it failed. */
typedef struct cases_memory {
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory);
    bool (*write)(void *memory, const void *from, size_t bytes);
    bool (*read)(void *to, const void *memory, size_t bytes);
} cases_memory;

typedef struct cases_plan {
    uint64_t seed;
    int ncases;                    /* calls to make, at least */
    size_t max_count;              /* elements in the largest buffer of a call */
    int only;                      /* an oracle_kind, or -1 for all */
    const cases_memory *elsewhere; /* where buffers are in most calls; NULL: never */
    unsigned host_one_in;          /* of so many calls, one of them is not */
    bool splits; /* on parts of the communicator too; freeing it then frees those that are left */
} cases_plan;

enum { CASES_FAILURE_BYTES = 1200 };

/* Run the plan on this rank; false and a line in words at the first thing that is not as it must be. */
bool cases_run(ddl_comm *comm, const cases_plan *plan, char failure[CASES_FAILURE_BYTES]);

#endif
