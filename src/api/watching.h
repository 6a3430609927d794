/*
 * watching.h - whether those who are waited for give signs of life, and the failure if they do not.
 *
 * All for the holder of the baton, each time that the world is watching.
 */
#ifndef DDL_API_WATCHING_H
#define DDL_API_WATCHING_H

#include "api/comm.h"

/* peer is waited for; whether it lives. */
ddl_vigil_verdict ddl_watching_look(ddl_comm *comm, int peer, int64_t now_ns);

/* Of what has waited for half a second: those for whom it does are to show that they live. */
void ddl_watching_look_for_signs(ddl_comm *comm, const ddl_request *request, int64_t now_ns);

/* While any operation has waited as long: to whom something lies unacknowledged, whether it waits for that
 * rank or not. What was sent before may be all that others wait for. */
void ddl_watching_look_at_acks(ddl_world *world, int64_t now_ns);

/* peer says that this rank gives no sign of life. If what is sent there is not acknowledged it cannot come.
 */
void ddl_watching_answer(ddl_comm *comm, int peer);

/* Where a pair has several: whether one of them is cut off, though the rank is not. */
void ddl_watching_look_at_connections(ddl_world *world, int64_t now_ns);

#endif
