/*
 * store_redis_link.h - a rank's two connections to a Redis server: one for requests, one that shows that it
 * is there.
 *
 * A request is several commands that go out together. It is answered within a limit, connections that break
 * being made anew in that time. The second connection subscribes to a channel as long as the link stands:
 * Redis counts subscribers, so others see at once when this process has ended. Thread: one at a time per
 * link.
 */
#ifndef DDL_RENDEZVOUS_STORE_REDIS_LINK_H
#define DDL_RENDEZVOUS_STORE_REDIS_LINK_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "rendezvous/store_redis_request.h"
#include "rendezvous/store_redis_url.h"

typedef struct ddl_redis_link ddl_redis_link;

/*
 * Connect, and subscribe to channel. held[0] and held[1] are kept to the descriptors of the connections, or
 * -1. What the files that url names hold is read before that, and never again. Until start_limit every
 * request has its full time. DDL_ECONFIG, DDL_EAUTH: certificates, password. DDL_ETIMEDOUT: a file server has
 * not answered by start_limit. DDL_ESTORE: the server is not reached, does not answer, or is none.
 * DDL_ENETWORK: its name is not known.
 */
DDL_MUST_USE ddl_status ddl_redis_link_create(const ddl_redis_url *url, const char *channel, int held[2],
                                              ddl_deadline start_limit, ddl_redis_link **link,
                                              ddl_error *err);
void ddl_redis_link_destroy(ddl_redis_link *link);

/*
 * Send a request and take its replies, request->count of them (to be released). Errors that are replies are
 * up to the caller. DDL_ESTORE: Redis is not reached, or has not answered within 5 s or 0.9 s beyond deadline
 * and start limit, which are for all requests beyond the start limit together; and so is every later request.
 * DDL_ENETWORK: a request for one connection has lost it.
 */
DDL_MUST_USE ddl_status ddl_redis_link_exchange(ddl_redis_link *link, ddl_redis_request *request,
                                                ddl_deadline deadline, ddl_redis_reply *replies[],
                                                ddl_error *err);
void ddl_redis_link_release(ddl_redis_reply *replies[], int count);

/* Send a request of one command without waiting, unless the reply to another such is still to come. */
void ddl_redis_link_post(ddl_redis_link *link, ddl_redis_request *request);

/* Whether such a request could be posted now. */
bool ddl_redis_link_is_idle(const ddl_redis_link *link);

/* The reply to what was posted, NULL while it has not come. Does not wait. */
ddl_redis_reply *ddl_redis_link_collect(ddl_redis_link *link);

/* See to it that others see us; while a request waits that is done anyway. DDL_ESTORE. */
DDL_MUST_USE ddl_status ddl_redis_link_keep_presence(ddl_redis_link *link, ddl_error *err);

/* Close the connection for requests; the next one opens it again. */
void ddl_redis_link_rest(ddl_redis_link *link);

/* The start limit comes earlier. */
void ddl_redis_link_hurry(ddl_redis_link *link, ddl_deadline limit);

/* There is none any more. */
void ddl_redis_link_started(ddl_redis_link *link);

/* Whether a connection had to be made anew just now: others may be about to do the same, and not be seen. */
bool ddl_redis_link_is_unsteady(const ddl_redis_link *link);

/* Changes with the connection for requests; a WATCH ends with it. */
int ddl_redis_link_generation(const ddl_redis_link *link);

/* "redis://host:port/db", for texts. */
const char *ddl_redis_link_where(const ddl_redis_link *link);

/* This machine's numeric address that reaches the server. */
void ddl_redis_link_address(const ddl_redis_link *link, char address[], size_t address_bytes);

/* DDL_ESTORE with what Redis says in an error, or that the reply does not fit. */
ddl_status ddl_redis_link_refused(const ddl_redis_link *link, const ddl_redis_reply *reply, ddl_error *err);

/* The first of replies that is an error, as ddl_redis_link_refused. */
DDL_MUST_USE ddl_status ddl_redis_link_check(const ddl_redis_link *link, ddl_redis_reply *const replies[],
                                             int count, ddl_error *err);

#endif
