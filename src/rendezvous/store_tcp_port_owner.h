/*
 * store_tcp_port_owner.h - who listens at a port that is taken.
 *
 * The store of another run tells its run to whoever asks, before anything has to be proved; so two jobs that
 * were given the same port can be told apart by it. Nothing that is said here is proved. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_STORE_TCP_PORT_OWNER_H
#define DDL_RENDEZVOUS_STORE_TCP_PORT_OWNER_H

#include "io/address.h"
#include "protocol/hello.h"

#include <stddef.h>

enum { DDL_PORT_OWNER_TEXT = 128 };

/*
 * Ask for less than a second, and leave without a trace in the run that is asked. self is who asks. text
 * is to follow "in use by": "rank 0 of run 5f2a9c01 of ddl (2 ranks)", or what else is known; of a run of
 * another level, or of level tls, that is its level. True: it is a run of ddl as this one, and may
 * be this one, started twice.
 */
bool ddl_port_owner_text(const ddl_hello_party *self, const ddl_address *at, char text[DDL_PORT_OWNER_TEXT]);

#endif
