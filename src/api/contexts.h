/*
 * contexts.h - the list of live worlds, for what concerns the whole process: fork, exit, and stale handles.
 *
 * One of the few mutable globals. Thread: any.
 */
#ifndef DDL_API_CONTEXTS_H
#define DDL_API_CONTEXTS_H

#include "api/comm.h"

/* From the first call on, forked children close their copies of descriptors, and exit says goodbye. */
void ddl_contexts_add(ddl_world *world);
void ddl_contexts_remove(ddl_world *world);

/* A thread of it is stuck, so it is never freed: forked children close what that thread listens with. */
void ddl_contexts_lose(ddl_world *world);

/* Whether it is a communicator, or a handle of one that its world took along. Not in a forked child. */
bool ddl_contexts_have(const ddl_comm *comm);

/* Whether this process was forked from one that had a world. */
bool ddl_contexts_forked(void);

#endif
