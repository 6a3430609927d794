/*
 * meshing_outgoing.h - this rank's calls to others.
 *
 * Of a pair the higher rank calls, so two calls never cross. Where pairs connect late the lower one may be
 * the first that wants to: it knocks. A knock is a call like others, whose handshake says who it is; whoever
 * hears it hangs up and calls.
 *
 * Where a pair is to have further connections these are called one after the other, each once the door has
 * confirmed the one before with its byte (meshing_incoming.h). If they are made late the pair has met before,
 * and stays as it was if they cannot be had.
 *
 * Thread: service.
 */
#ifndef DDL_RENDEZVOUS_MESHING_OUTGOING_H
#define DDL_RENDEZVOUS_MESHING_OUTGOING_H

#include "rendezvous/meshing_pairs.h"

/* One rank being called. */
typedef struct ddl_outgoing ddl_outgoing;

/* Call a rank, or knock at its door; nothing if that is being done, or the pair has met, or has widened. */
void ddl_outgoing_start(ddl_meshing *meshing, ddl_wish wish);

/* It has knocked: call it at once. */
void ddl_outgoing_hurry(ddl_meshing *meshing, ddl_wish wish);

/* "rank 3 on nodeB[4711] at 10.0.0.12:41873" */
void ddl_outgoing_describe(const ddl_outgoing *call, char *text, size_t text_bytes);

/* Why it has failed. Thread: any, with the bell's lock. */
const ddl_error *ddl_outgoing_error(const ddl_outgoing *call);

void ddl_outgoing_forget(ddl_outgoing *call);

#endif
