/*
 * lateness.h - for whom an operation waits, and what is said of it when that takes too long.
 *
 * All for the holder of the baton.
 */
#ifndef DDL_API_LATENESS_H
#define DDL_API_LATENESS_H

#include "api/comm.h"

/* The lowest rank that is late, or -1; *nlate: how many there are. Of a message it is the other end. */
int ddl_lateness_find(const ddl_comm *comm, const ddl_request *request, int *nlate);

/* Nothing is wrong yet, but whoever looks on may wonder. False: it is for others to say. */
bool ddl_lateness_warn(const ddl_comm *comm, const ddl_request *request, int64_t now_ns);

/* Its deadline has passed. */
void ddl_lateness_raise(ddl_comm *comm, ddl_request *request, int64_t now_ns);

/* Somebody ran out of time, maybe with NCCL: say why, if this rank knows. If he blames this rank, it may know
 * why it is late: others go on as soon as they have what they need, while results still go up to a GPU here,
 * or this rank waits for another in an operation before that one. If he could blame nobody, this rank may see
 * from its side who is late, or be it; what it says is adopted only if it names somebody.
 */
void ddl_lateness_explain(ddl_comm *comm, int64_t now_ns);

#endif
