/*
 * store_redis_link_parts.h - a link to Redis as its files share it. What its users need is in
 * store_redis_link.h.
 *
 * Thread: one at a time per link.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_LINK_PARTS_H
#define DDL_RENDEZVOUS_STORE_REDIS_LINK_PARTS_H

#include "io/resolve.h"
#include "io/stream.h"
#include "rendezvous/store_redis_access.h"
#include "rendezvous/store_redis_link.h"

enum {
    DDL_REDIS_CONNECT_LEAST_MS = 1000, /* for one of several addresses */
    DDL_REDIS_READ_BYTES = 16 << 10,
    DDL_REDIS_CHANNEL_TEXT = 128
};

typedef struct ddl_redis_connection {
    ddl_stream *stream; /* NULL: not connected */
    ddl_redis_reader *reader;
    int owed; /* replies to requests that nobody waits for any more */
} ddl_redis_connection;

enum { DDL_REDIS_COMMANDS, DDL_REDIS_PRESENCE };

struct ddl_redis_link {
    ddl_redis_url url;
    char channel[DDL_REDIS_CHANNEL_TEXT];
    char where[300]; /* "redis://host:port/db" */
    ddl_address addresses[DDL_RESOLVE_MAX];
    int address_count;
    ddl_redis_access *access;
    ddl_redis_connection connections[2];
    int *held;                /* the owner's; what a forked child has to close */
    ddl_deadline start_limit; /* of the start-up; a request gets its full time before it */
    ddl_deadline end;         /* of everything */
    ddl_deadline unsteady_until, presence_pause;
    int generation;    /* how often we have connected for requests */
    bool is_met;       /* something at one of the addresses has taken a connection */
    bool has_answered; /* in words of Redis */
    bool is_broken;    /* Redis could not be reached; why tells */
    ddl_error why;
};

static inline ddl_status ddl_redis_link_say_why(const ddl_redis_link *link, ddl_error *err)
{
    if (err != NULL)
        *err = link->why;
    return link->why.code;
}

/* ---- store_redis_link_connections.c: the two connections ---- */

/* One try of all addresses. DDL_ENETWORK: another try may do. */
DDL_MUST_USE ddl_status ddl_redis_link_up(ddl_redis_link *link, int which, ddl_deadline deadline,
                                          ddl_error *err);

void ddl_redis_link_drop(ddl_redis_link *link, int which);

/* Send a request and take its replies. Those of earlier ones that nobody waited for come first. */
DDL_MUST_USE ddl_status ddl_redis_link_talk(ddl_redis_link *link, ddl_redis_connection *connection,
                                            const ddl_redis_request *request, ddl_deadline deadline,
                                            ddl_redis_reply *replies[], ddl_error *err);

/* Read until there is a reply; NULL if none came by the deadline, whatever else keeps coming. */
DDL_MUST_USE ddl_status ddl_redis_link_next(ddl_redis_link *link, ddl_redis_connection *connection,
                                            ddl_deadline deadline, ddl_redis_reply **reply, ddl_error *err);

/* ---- store_redis_link.c ---- */

/* The connection that shows that we are here may have broken without anybody having read from it. */
DDL_MUST_USE ddl_status ddl_redis_link_renew_presence(ddl_redis_link *link, ddl_deadline limit,
                                                      ddl_error *err);

#endif
