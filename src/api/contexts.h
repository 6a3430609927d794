/*
 * contexts.h - the list of live worlds, for what concerns the whole process: fork, exit, and stale handles.
 *
 * One of the few mutable globals. Thread: any.
 */
#ifndef DDL_API_CONTEXTS_H
#define DDL_API_CONTEXTS_H

#include "api/comm.h"

/* From here on a forked child may not call, and closes its copies of descriptors: those with which ranks
 * meet, those between ranks once they have shaken hands, and of a world that is made all. */
void ddl_contexts_add(ddl_world *world);
/* From here on, exit says goodbye. */
void ddl_contexts_made(ddl_world *world);
void ddl_contexts_remove(ddl_world *world);

/* A thread of it is stuck, so it is never freed: forked children close what that thread listens with. */
void ddl_contexts_lose(ddl_world *world);

/*
 * Keep the memory of a communicator that its world took along, so that no other gets its address while its
 * handle may still be freed. ddl_contexts_dig_up frees it, and returns whether it was there;
 * ddl_contexts_clear_graves all of them.
 */
void ddl_contexts_bury(ddl_comm *comm);
bool ddl_contexts_dig_up(ddl_comm *comm);
void ddl_contexts_clear_graves(void);

/* Whether this process was forked from one that had a world. */
bool ddl_contexts_forked(void);

/* Whether it was, or is exiting and has said goodbye to other ranks. */
bool ddl_contexts_have_ended(void);

#endif
