/*
 * listener.h - a door on the service loop: accepts connections, hears their hello, lets in whom its owner
 * welcomes, and gets rid of everybody else within 5 s.
 *
 * It knows nothing of what happens behind the door. Strangers cost at most a bounded number of connections,
 * and 4 KiB each, and from one address no more than a part of that; one that stays silent makes room for
 * newcomers. At level tls a session comes before the hello, and costs up to 112 KiB, with certificates more;
 * one is begun only for who begins as TLS does, others hear in clear why they are refused.
 *
 * Those turned away are counted and told of in the log: the first at once, then their number, every 10 s at
 * most, and at the end. Thread: service, for everything here, unless said otherwise.
 */
#ifndef DDL_RENDEZVOUS_LISTENER_H
#define DDL_RENDEZVOUS_LISTENER_H

#include "base/error.h"
#include "io/address.h"
#include "io/service.h"
#include "protocol/hello.h"
#include "rendezvous/encryption.h"

typedef struct ddl_listener ddl_listener;

/* The owner's part; arg is ddl_listener_options.arg. */
typedef struct ddl_listener_events {
    /* The hello is in order, but not proved: let it in if it is? Calls ddl_hello_judge, and harms nobody. */
    void (*judge)(void *arg, ddl_hello *hello, const ddl_address *from);
    /* The handshake is refused, by us or by the client (hello->verdict); for whoever must tell others. May be
     * NULL. */
    void (*refused)(void *arg, const ddl_hello *hello, const ddl_address *from);
    /* Both sides agree: the connection is the owner's. */
    void (*entered)(void *arg, ddl_wire wire, const ddl_hello *hello, const ddl_address *from);
} ddl_listener_events;

typedef struct ddl_listener_options {
    ddl_service *service;
    ddl_hello_party self; /* whom the door's hellos present; the nonce is made anew for each */
    ddl_port_range ports; /* among which the port is found, beginning with that of the own rank; 0: the
                             address has it */
    const ddl_encryption *encryption; /* NULL below level tls */
    const ddl_listener_events *events;
    void *arg;
} ddl_listener_options;

/* How many strangers a door of so many ranks has places for, unless the service allows fewer. Thread: any. */
int ddl_listener_places(int nranks);

/* Open the door at address. *bound is where. Errors as of ddl_socket_listen. */
DDL_MUST_USE ddl_status ddl_listener_open(const ddl_listener_options *options, const ddl_address *address,
                                          ddl_address *bound, ddl_listener **listener, ddl_error *err);

/* Nobody enters from now on; strangers at the door are sent away. NULL is fine. */
void ddl_listener_close(ddl_listener *listener);

#endif
