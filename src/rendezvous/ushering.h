/*
 * ushering.h - how ranks of a host are connected by way of its usher.
 *
 * Where all pairs of a host are connected at the start, each of its ranks calls its usher (introducer.h) by
 * way of a Unix socket, and is handed connections to the others of the host. Whoever cannot do that calls
 * them all.
 *
 * Thread: service.
 */
#ifndef DDL_RENDEZVOUS_USHERING_H
#define DDL_RENDEZVOUS_USHERING_H

#include "rendezvous/calling.h"

/* Whether this rank will be the usher of its host only the roster says. Who finds no door calls as it calls
 * ranks of other hosts. */
void ddl_ushering_open_door(ddl_meshing *meshing, ddl_listener_options options);

/* Who introduces the ranks of this host. False: that failed. */
bool ddl_ushering_settle(ddl_meshing *meshing);

/* Those who came before there was a roster. */
void ddl_ushering_welcome_early(ddl_meshing *meshing);

/* What the usher has to say. call: to the usher, which is connected. Nobody looks at its connection any more
 * when it may be the owner's. */
void ddl_ushering_hear(ddl_meshing *meshing, ddl_calling *call);

/* The usher has nothing to hand to this rank, nor of it to others. */
void ddl_ushering_do_without(ddl_meshing *meshing);

#endif
