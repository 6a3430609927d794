/*
 * meshing_usher.h - how ranks of a host are connected by way of its usher.
 *
 * Where all pairs of a host are connected at the start, each of its ranks calls its usher
 * (meshing_introducer.h) by way of a Unix socket, and is handed connections to the others of the host.
 * Whoever cannot do that calls them all.
 *
 * Thread: service.
 */
#ifndef DDL_RENDEZVOUS_MESHING_USHER_H
#define DDL_RENDEZVOUS_MESHING_USHER_H

#include "rendezvous/meshing_outgoing.h"

/* Whether this rank will be the usher of its host only the roster says. Who finds no door calls as it calls
 * ranks of other hosts. */
void ddl_meshing_usher_open_door(ddl_meshing *meshing, ddl_listener_options options);

/* Who introduces the ranks of this host. False: that failed. */
bool ddl_meshing_usher_settle(ddl_meshing *meshing);

/* Those who came before there was a roster. */
void ddl_meshing_usher_welcome_early(ddl_meshing *meshing);

/* What the usher has to say. call: to the usher, which is connected. Nobody looks at its connection any more
 * when it may be the owner's. */
void ddl_meshing_usher_hear(ddl_meshing *meshing, ddl_outgoing *call);

/* The usher has nothing to hand to this rank, nor of it to others. */
void ddl_meshing_usher_do_without(ddl_meshing *meshing);

#endif
