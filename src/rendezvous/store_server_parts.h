/*
 * store_server_parts.h - the store's server as its files share it. What its users need is in store_server.h.
 *
 * All of it is for the service thread, but where it is said.
 */
#ifndef DDL_RENDEZVOUS_STORE_SERVER_PARTS_H
#define DDL_RENDEZVOUS_STORE_SERVER_PARTS_H

#include "base/bell.h"
#include "io/watch.h"
#include "protocol/store_wire.h"
#include "rendezvous/listener.h"
#include "rendezvous/store_server.h"
#include "rendezvous/store_server_keys.h"

typedef struct ddl_store_client {
    ddl_link link;
    ddl_store_server *server;
    ddl_wire wire;
    ddl_watch *watch;
    ddl_hello_party party;
    ddl_store_inbox inbox;
    ddl_bytes outbox;
    size_t sent;           /* of outbox */
    ddl_list waits, owned; /* owned: entries that it set */
    int wait_count;
    bool has_will, knows_outcome, closing;
    bool behind; /* requests wait in inbox until it has read replies */
    ddl_error will;
} ddl_store_client;

struct ddl_store_server {
    ddl_service *service;
    ddl_deadline start_limit; /* of the run; its thread has as long for what rank 0 asks */
    ddl_hello_party self;
    ddl_listener *listeners[DDL_STORE_SERVER_DOORS];
    int listener_count;
    const ddl_encryption *encryption;
    ddl_list clients;
    int client_count, closing_count; /* closing_count: clients given up and not yet removed */
    ddl_store_keys keys;
    size_t stored_bytes;
    bool failed, settled;
    bool told_rogue; /* of a client that was given up for what it said */
    ddl_error failure;
    ddl_bell bell;          /* guards all_know and is_awaited_here; rings when one turns true */
    bool all_know, leaving; /* leaving: somebody waits for the bell */
    const char *awaited;    /* kind of the keys that rank 0 waits for, or NULL */
    int awaited_count;      /* so many keys of it are missing */
    bool is_awaited_here;   /* they have come, or the run has failed */
    struct {                /* a door that is to be opened, and what came of it */
        ddl_address address, bound;
        ddl_status status;
        ddl_error error;
    } opening;
};

/* ---- store_server_clients.c: clients ---- */

/* One that has entered; wire is taken over. */
void ddl_store_client_add(ddl_store_server *server, ddl_wire wire, const ddl_hello_party *party);

void ddl_store_client_say(ddl_store_client *client, ddl_store_kind kind, uint8_t flags, uint32_t id,
                          ddl_view value);
void ddl_store_client_say_error(ddl_store_client *client, ddl_store_kind kind, uint32_t id,
                                const ddl_error *error);
__attribute__((format(printf, 3, 4))) void ddl_store_client_refuse(ddl_store_client *client, uint32_t id,
                                                                   const char *format, ...);

/* It reads its replies, so that more may be asked. */
bool ddl_store_client_has_room(const ddl_store_client *client);

/* Mark for removal; ddl_store_server_sweep does it, so that no caller up the stack holds a freed client. */
void ddl_store_client_give_up(ddl_store_client *client);

/* It says what no rank says: if it takes part, as its will says, that ends the run. */
void ddl_store_client_give_up_for(ddl_store_client *client, const ddl_error *why);

/* At once, without its will. */
void ddl_store_client_remove(ddl_store_client *client);

/* Remove all that were given up, and execute their wills. */
void ddl_store_server_sweep(ddl_store_server *server);

/* The first cause stands; everybody hears it at once, asked or not. */
void ddl_store_server_fail(ddl_store_server *server, const ddl_error *cause);

/* ---- store_server_requests.c: what clients ask ---- */

/* Serve what is in its inbox, as far as it reads its replies. */
void ddl_store_client_serve(ddl_store_client *client);

/* It waits for nothing any more. */
void ddl_store_client_drop_waits(ddl_store_client *client);

/* ---- store_server_own.c: what rank 0 asks ---- */

/* What rank 0 waits for is there, or will not come. */
void ddl_store_server_end_waiting(ddl_store_server *server);

/* A key was set. */
void ddl_store_server_count_awaited(ddl_store_server *server, ddl_view key);

#endif
