/*
 * stream.h - operations that streams of the program are ordered with, and that nobody waits for.
 *
 * All for the thread that issues.
 */
#ifndef DDL_API_STREAM_H
#define DDL_API_STREAM_H

#include "api/issue.h"

/* As ddl_issue, for a call with a staging on a communicator that has a stream, where it never blocks with
 * request NULL, or of a rank alone. DDL_EINVAL: the stream is of another GPU. */
ddl_status ddl_stream_issue(ddl_comm *comm, ddl_call *call, ddl_request **request);

/* Take back what has ended; the failure of the first that ended badly, if that was not told yet. */
ddl_status ddl_stream_reap(ddl_comm *comm);

#endif
