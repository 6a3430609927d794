/*
 * meshing_incoming.h - whom of those that call this rank it lets in.
 *
 * A caller has said the last word of the handshake, and cannot know that it was heard: a door at which too
 * many stand may have closed. So the door says one more byte, and only when that has come is the pair
 * connected. A door says it only when it has the roster, so nobody calls with a connection that it cannot
 * judge.
 *
 * Thread: service.
 */
#ifndef DDL_RENDEZVOUS_MESHING_INCOMING_H
#define DDL_RENDEZVOUS_MESHING_INCOMING_H

#include "rendezvous/meshing_pairs.h"

/* Of a listener whose arg is the meshing. */
extern const ddl_listener_events ddl_incoming_events;

/* Who called before the roster was here may not be on the host that it says. */
void ddl_incoming_check_early(ddl_meshing *meshing);

/* That it is in, which it waits for. */
void ddl_incoming_let_in(const ddl_meshing *meshing, ddl_wire *wire);

#endif
