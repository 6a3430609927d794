/*
 * port_owner.h - who listens at a port that is taken.
 *
 * The store of another run tells its run to whoever asks, before anything has to be proved; so two jobs that
 * were given the same port can be told apart by it. Nothing that is said here is proved. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_PORT_OWNER_H
#define DDL_RENDEZVOUS_PORT_OWNER_H

#include "io/address.h"
#include "protocol/hello.h"

#include <stddef.h>

enum { DDL_PORT_OWNER_TEXT = 128 };

typedef enum ddl_port_owner {
    DDL_PORT_STRANGER, /* another program, or a run of another level */
    DDL_PORT_RUN,      /* of ddl as this one, and may be this one, started twice */
    DDL_PORT_SELF      /* this process, in which rank 0 of such a run lives */
} ddl_port_owner;

/*
 * Ask for less than a second, and leave without a trace in the run that is asked. self is who asks. text
 * is to follow "in use by": "rank 0 of run 5f2a9c01 of ddl (2 ranks)", or what else is known; of a run of
 * another level, or of level tls, that is its level.
 */
ddl_port_owner ddl_port_owner_find(const ddl_hello_party *self, const ddl_address *at,
                                   char text[DDL_PORT_OWNER_TEXT]);

#endif
