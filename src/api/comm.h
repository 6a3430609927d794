/*
 * comm.h - a communicator: what a world consists of, and which operations are in flight on it.
 *
 * Two kinds of fields: those that the issuing thread touches, which the caller serialises, and those that
 * belong to the holder of the engine's baton. Which is which is said below.
 */
#ifndef DDL_API_COMM_H
#define DDL_API_COMM_H

#include "api/config.h"
#include "api/request.h"
#include "backend/backend_schedule.h"
#include "backend/choice.h"
#include "io/engine.h"
#include "io/service.h"
#include "protocol/notice.h"
#include "protocol/roster.h"
#include "rendezvous/bootstrap.h"
#include "transport/transport_mesh.h"

/* The two orders of operations on a communicator, as the wire knows them. */
enum { DDL_CHANNEL_COLLECTIVE = 0, DDL_CHANNEL_POINT_TO_POINT = 1 };

/* In place of a collective in signatures: the barrier at which ranks part. */
enum { DDL_SIGNATURE_FREE = 0xfe };

enum { DDL_HISTORY = 64 };

typedef struct ddl_past { /* an operation that was issued here */
    uint64_t sequence;
    ddl_signature signature;
} ddl_past;

struct ddl_comm {
    /* Constant after init. */
    ddl_config config;
    ddl_roster *roster;
    ddl_cost_model model;
    ddl_service *service; /* NULL in a world of one, as are the next three */
    ddl_bootstrap *bootstrap;
    ddl_engine *engine;
    ddl_mesh *mesh;
    ddl_backend *backend;
    ddl_request_pool *pool;
    ddl_link link; /* in the list of contexts (contexts.h) */
    bool forked;   /* set in a forked child only */

    /* The issuing thread. */
    int64_t timeout_ms;
    uint64_t issued;                   /* collective operations */
    uint64_t *sent_to, *received_from; /* point-to-point operations, per peer */
    struct ddl_chosen {                /* the last choice by cost of each collective */
        const ddl_algorithm *algorithm;
        size_t count, element_bytes;
    } chosen[DDL_COLLECTIVE_COUNT];

    /* Holder of the baton. */
    ddl_list in_flight; /* requests, oldest first */
    uint64_t *entered;  /* of each rank: the highest collective sequence that it is known to have entered */
    ddl_past history[DDL_HISTORY]; /* collective operations by sequence modulo its size */
    int ngone;                     /* peers that left */
    struct ddl_failure {
        bool failing;  /* a cause is known; others may follow until settle_ns */
        bool failed;   /* the cause is final, and in pool->cause */
        bool reported; /* some call has returned it */
        int64_t settle_ns;
        ddl_notice cause;
        bool *told_by;             /* of each rank: it has said that it failed; its leaving is no news */
        bool *disagrees_known;     /* mismatch: of each rank, whether its signature is known */
        ddl_signature *signatures; /* and which it is */
    } failure;
};

/* The failure machinery (failure.c). All for the holder of the baton. */
extern const ddl_mesh_owner ddl_failure_mesh_owner; /* arg is to be set to the comm */
void ddl_failure_tick(ddl_comm *comm, int64_t now_ns);
void ddl_failure_raise(ddl_comm *comm, const ddl_notice *notice);
/* Compare what peers said about this operation before it was issued here. */
void ddl_failure_check_early(ddl_comm *comm, const ddl_request *request);
/* A peer that this request needs has left. */
void ddl_failure_check_gone(ddl_comm *comm, const ddl_request *request);

/* "rank 3 (pid 812 on node7)" */
const char *ddl_comm_describe(const ddl_comm *comm, int rank, char *text, size_t capacity);

#endif
