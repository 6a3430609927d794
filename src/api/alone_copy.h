/*
 * alone_copy.h - calls of a rank alone on buffers of its GPU.
 *
 * Nobody has to agree, and nobody drives: what the library does not perform (alone.h) is a copy from one
 * buffer to the other, by the stream of the communicator or at once.
 *
 * All for the thread that issues.
 */
#ifndef DDL_API_ALONE_COPY_H
#define DDL_API_ALONE_COPY_H

#include "api/issue.h"

/* As ddl_issue, for a call with a staging on a communicator of one rank. It never blocks with request NULL if
 * the communicator has a stream. */
ddl_status ddl_alone_copy_issue(ddl_comm *comm, ddl_call *call, ddl_request **request);

#endif
