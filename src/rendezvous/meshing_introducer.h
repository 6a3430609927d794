/*
 * meshing_introducer.h - the usher of a host, its lowest rank, connects the others there to each other.
 *
 * Each of them has called it by way of a Unix socket, where both have proved who they are. For each two the
 * usher makes a pair of Unix sockets and hands one end to each. So a host with n ranks takes n calls and as
 * many handshakes, where pairs that called each other took n squared of both, which made most of a start-up.
 *
 * Whoever came to the usher another way cannot be handed anything: the others hear that, and the higher of
 * each two calls the lower.
 *
 * Thread: service.
 */
#ifndef DDL_RENDEZVOUS_MESHING_INTRODUCER_H
#define DDL_RENDEZVOUS_MESHING_INTRODUCER_H

#include "base/error.h"
#include "io/service.h"
#include "protocol/roster.h"

/* Whether there is anybody to introduce on this host: all its pairs are connected at the start, and there are
 * some without its usher. */
bool ddl_introduces(const ddl_roster *roster);

/* The lowest rank of this host. */
int ddl_usher_of(const ddl_roster *roster);

typedef struct ddl_introducer ddl_introducer;

/* How far it is, when all have come: left is -1 if all have been told of all others, and nothing is called
 * any more; else the first that still has to take what is under way to it. denied: the system lets nothing
 * more be handed over, which it did before; the end of another that this one has cannot be taken back, so the
 * two will never be connected. NULL: it does. */
typedef void ddl_introducer_told(void *arg, int left, const ddl_error *denied);

/* At the usher. The roster must outlive it. */
DDL_MUST_USE ddl_status ddl_introducer_open(ddl_service *service, const ddl_roster *roster,
                                            ddl_introducer_told *told, void *arg, ddl_introducer **introducer,
                                            ddl_error *err);

/* A rank of this host has called the usher. fd: the Unix socket, which must stay until all is done; -1: it
 * came another way. Each rank once. */
void ddl_introducer_welcome(ddl_introducer *introducer, int rank, int fd);

/* NULL is fine. */
void ddl_introducer_close(ddl_introducer *introducer);

/* What the usher says on that socket. */
enum { DDL_INTRODUCTIONS = 60 };
typedef struct ddl_introductions {
    int count;                    /* 0: it waits for more to come */
    int ranks[DDL_INTRODUCTIONS]; /* of this host */
    int fds[DDL_INTRODUCTIONS];   /* connected to that rank, the caller's; -1: one of both is to call */
} ddl_introductions;

/* At the others: the next of it. DDL_ETIMEDOUT: nothing has come. DDL_EPEERLOST: the usher has gone.
 * DDL_EPROTO: it says something else. */
DDL_MUST_USE ddl_status ddl_introductions_take(const ddl_roster *roster, int fd,
                                               ddl_introductions *introductions, ddl_error *err);

#endif
