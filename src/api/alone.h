/*
 * alone.h - calls of a rank alone that go to NCCL on its GPU, where DDL_GPU=nccl.
 *
 * Nobody has to agree, and nobody drives: the call makes NCCL's communicator, has it perform the call,
 * and waits. What NCCL has no call of its own for the GPU copies, as where it is not asked for.
 *
 * All for the thread that issues.
 */
#ifndef DDL_API_ALONE_H
#define DDL_API_ALONE_H

#include "api/issue.h"

/* A call with a staging on a communicator of one rank, in the order of no stream. *taken false: it does not
 * go there. DDL_EDEVICE: it cannot, or has not ended by its deadline; buffers are free, unless the text says
 * otherwise. DDL_ENOMEM. */
DDL_MUST_USE ddl_status ddl_alone_perform(ddl_comm *comm, const ddl_call *call, ddl_deadline deadline,
                                          bool *taken, ddl_error *err);

/* As ddl_votes_begin_close. For both NULL is fine. */
void ddl_alone_begin_close(ddl_alone *alone, ddl_deadline latest);
void ddl_alone_free(ddl_alone *alone);

#endif
