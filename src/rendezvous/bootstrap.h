/*
 * bootstrap.h - from "rank 3 of 8, meet at 10.0.0.1:29500" to a roster, through a store.
 *
 * Costs O(1) store requests per rank over tcp, and where it is told who is missing one more for each rank
 * that had come, if those were 64 at most; rank 0 does work linear in the number of ranks, and so does a rank
 * that is not quiet every 5 s while it waits: in a line it says how many have come and which are missing.
 * Ranks may start in any order and minutes apart.
 */
#ifndef DDL_RENDEZVOUS_BOOTSTRAP_H
#define DDL_RENDEZVOUS_BOOTSTRAP_H

#include "base/clock.h"
#include "base/error.h"
#include "io/service.h"
#include "protocol/prover.h"
#include "protocol/roster.h"
#include "rendezvous/encryption.h"
#include "rendezvous/meshing.h"
#include "rendezvous/network.h"

typedef struct ddl_bootstrap ddl_bootstrap;

typedef struct ddl_bootstrap_options {
    int rank, nranks;
    const char *store;          /* URL: "tcp://host:port", "file:///dir", "redis://host:port", "mem://name" */
    const char *master;         /* "address:port": names the meeting place inside other stores than tcp; for a
                                   tcp store it is the store's own address */
    const ddl_network *network; /* what the user says of it; NULL: nothing */
    ddl_connect connect;        /* rank 0: which pairs connect at the start, for all */
    int nstreams;             /* rank 0: further connections between ranks of different hosts, for all; -1: as
                                 many as ddl_roster_offer_streams says */
    const ddl_prover *prover; /* shows the others that this rank belongs to the job; NULL: nobody has to */
    const ddl_encryption *encryption; /* of connections, at level tls; NULL: none */
    bool local;                       /* ranks of this host may be connected through Unix sockets */
    bool insists_on_memory;           /* that is shared with these; told to all, as is the next */
    bool asks_nccl, may_use_nccl, may_have_gpu;
    bool quiet;          /* a rank of this host that is not tells who is missing */
    uint32_t generator;  /* version of the schedule generator; all ranks must have the same */
    const double *costs; /* rank 0: constants of its cost model, for the roster; ncosts of them */
    int ncosts;
    /* What this rank needs besides, once all have come: all hear it if it fails. NULL: nothing. */
    ddl_status (*make_ready)(void *arg, const ddl_roster *roster, ddl_error *err);
    void *arg;
    const ddl_error *lack; /* why this rank cannot take part, which the others are told; NULL: it can */
    ddl_service *service;
    ddl_deadline deadline;
    int64_t late_ms; /* for a pair that connects late */
} ddl_bootstrap_options;

/* What this process tells of itself: to who opens a connection (*self), and in its record (*own, all but
 * addresses). Both zero before. */
DDL_MUST_USE ddl_status ddl_bootstrap_know_oneself(int rank, int nranks, uint32_t generator,
                                                   const ddl_prover *prover, ddl_hello_party *self,
                                                   ddl_member *own, ddl_error *err);

/* An error of this rank is to be told to others: put "rank 3 on node7[812]: " before its text and `more`
 * behind it, and blame the rank. */
void ddl_bootstrap_sign(const ddl_member *own, const char *more, ddl_error *err);

/* Name this rank as the culprit, if nobody is named yet, of a start that failed for what it has, or could not
 * do by itself. */
void ddl_bootstrap_blame_oneself(int rank, ddl_error *err);

/*
 * Make sure, raising the soft limit where that is allowed, that a rank of a world can open as many
 * descriptors as it will need. To be asked first of all: who runs out of them half-way may be ended by a
 * library below. DDL_ERESOURCE with both numbers.
 */
DDL_MUST_USE ddl_status ddl_bootstrap_need_descriptors(int rank, int nranks, ddl_connect connect,
                                                       ddl_error *err);

/* For how many strangers at each of its doors a rank has descriptors beside those that the ranks take; the
 * soft limit is raised for them, too. As for ddl_service_set_strangers. */
int ddl_bootstrap_strangers(int rank, int nranks, ddl_connect connect);

/* Whether there are as many as it takes to tell others what this rank lacks. */
bool ddl_bootstrap_may_tell(void);

/* Whether there is room for the further connections of ddl_roster_offer_streams besides. */
bool ddl_bootstrap_may_have_streams(int rank, int nranks);

/*
 * Open the store (rank 0 serves it where it is tcp), choose this rank's address and listen there for the
 * mesh, meet the others, connect to those that the roster says and shake hands. On success *roster (owned by
 * the caller) says who is there and wires[rank] is a connected, non-blocking, close-on-exec socket to
 * each other rank, of TCP or inside a host a Unix one, and its session (none for the own, and for those that
 * connect late); the caller owns them. Lower ranks are connected to, higher ones accepted from. DDL_ECONFIG:
 * duplicate rank (the latecomer gets it), another world size, malformed interface, bad URL. DDL_EAUTH: what
 * answers does not have this job's secret, or the other way round. DDL_ETIMEDOUT: who is missing.
 * DDL_ENETWORK (no such interface, too), DDL_ESTORE, DDL_EPROTO, DDL_EPEERLOST (blames the rank). What this
 * rank lacks, if it does, once it has come (within 2 s; rank 0 4 s) and the others, as far as they are there,
 * have heard of it (1.5 s at most). Blocks at most until the deadline, and for so long after a failure.
 * *bootstrap is set at once, for ddl_bootstrap_close_in_child alone until this has succeeded, and NULL if it
 * has not.
 */
DDL_MUST_USE ddl_status ddl_bootstrap_join(const ddl_bootstrap_options *options, ddl_bootstrap **bootstrap,
                                           ddl_roster **roster, ddl_wire wires[], ddl_error *err);

/* The further connections to a rank that was connected at the start, roster->nstreams; none where
 * ddl_roster_streams says so. The caller's. */
void ddl_bootstrap_take_streams(ddl_bootstrap *bootstrap, int rank, ddl_wire streams[]);

/*
 * Pairs that connect late, as in meshing.h; where all connect at the start nothing comes of any of these.
 * hear is called on the service thread when there is an outcome.
 */
void ddl_bootstrap_listen(ddl_bootstrap *bootstrap, void (*hear)(void *arg), void *arg);
void ddl_bootstrap_reach(ddl_bootstrap *bootstrap, int rank);
void ddl_bootstrap_widen(ddl_bootstrap *bootstrap, int rank);
bool ddl_bootstrap_next(ddl_bootstrap *bootstrap, ddl_meshing_outcome *outcome);

/* Holder of the engine, under whose baton reach and next are called: they find nothing any more. */
void ddl_bootstrap_shut_door(ddl_bootstrap *bootstrap);

/* Close listeners and server, remove this run's keys; hear is not called any more, unless the service thread
 * is lost. Call before destroying the service. NULL is fine. */
void ddl_bootstrap_leave(ddl_bootstrap *bootstrap);

/* As the process ends without leaving: remove what would be left of the run in a file or in Redis. */
void ddl_bootstrap_clear_up(ddl_bootstrap *bootstrap, ddl_deadline deadline);

/* In a forked child: close descriptors without a word on the wire. */
void ddl_bootstrap_close_in_child(ddl_bootstrap *bootstrap);

#endif
