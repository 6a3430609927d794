/*
 * meshing_pairs.h - the pairs of which this rank is one, as the files of the meshing share them.
 *
 * What a user of the meshing needs is in meshing.h. Thread: service.
 */
#ifndef DDL_RENDEZVOUS_MESHING_PAIRS_H
#define DDL_RENDEZVOUS_MESHING_PAIRS_H

#include "base/bell.h"
#include "io/watch.h"
#include "rendezvous/listener.h"
#include "rendezvous/meshing.h"
#include "rendezvous/meshing_introducer.h"

/* Who has called, as it says; of one who did before the roster was here that is all that is known. */
typedef struct ddl_caller {
    char host[DDL_HOST_TEXT];
    int32_t pid;
    unsigned nplaced; /* connections of it that got a place, those that lost it again included */
    bool is_local;    /* by way of a Unix socket */
} ddl_caller;

/* A rank, or further connections to one that is connected. */
typedef struct ddl_wish {
    int rank;
    bool widens;
} ddl_wish;

struct ddl_meshing {
    ddl_service *service;
    ddl_hello_party self;
    ddl_listener *listeners[DDL_NETWORK_LISTEN_MAX];
    ddl_listener *local_door;   /* for ranks of this host, if this is their usher; NULL: there is none */
    ddl_introducer *introducer; /* of the usher */
    int usher;                  /* who introduces this rank to others; -1: nobody */
    const ddl_encryption *encryption;
    const ddl_roster *roster;
    struct ddl_outgoing *
        *calls;        /* to each rank; NULL: none. Service thread, but failed ones: under the bell */
    ddl_wire *wires;   /* service thread writes, under the bell; none: not connected, or taken */
    ddl_wire *streams; /* likewise: further ones, nstreams of each rank. NULL: there are none */
    int nstreams;
    int *nwires;         /* service thread: how many there were, of both kinds */
    ddl_caller *callers; /* service thread */
    bool *met;           /* service thread: is, or was, connected, or has failed */
    bool *widened;       /* likewise: with further connections that are made late */
    struct {             /* calls to the service thread: what they are about, and their outcome */
        ddl_network_place place;
        ddl_port_range ports;
        bool local;
        uint16_t found[DDL_NETWORK_LISTEN_MAX];
        const ddl_roster *roster;
        ddl_status status;
        ddl_error error;
    } asked;
    ddl_bell bell; /* guards what follows; rings when status or missing settle */
    int missing;
    int unmet;        /* those whom this rank's usher has not introduced yet */
    int64_t heard_ns; /* when it said something, or let this rank in */
    int untold;       /* of the usher: who has to take first what is under way to it; -1: nobody */
    ddl_status status;
    ddl_error error;
    ddl_deadline last_call; /* of those connected at the start: who cannot be reached then is named */

    /* Pairs that connect late, and those that widen. */
    ddl_poke *poke;      /* somebody is wanted */
    ddl_wish *wanted;    /* each at most once */
    bool *was_wanted[2]; /* [whether further connections] of each rank */
    ddl_wish *settled;   /* whose outcome is to be taken */
    int nwanted, nsettled;
    int64_t limit_ms;        /* for each of them to answer, from the first call or knock */
    void (*tell)(void *arg); /* of an outcome; NULL: not yet */
    void *tell_arg;
};

/* Thread: any. */
bool ddl_pairs_is_late(const ddl_meshing *meshing, int rank);

/* The first failure stands. */
void ddl_pairs_fail(ddl_meshing *meshing, const ddl_error *error);

/* Tell the owner if there is an outcome of pairs that connect late. Thread: any. */
void ddl_pairs_tell(ddl_meshing *meshing);

/* With the bell's lock: the outcome for what is made late stands. */
void ddl_pairs_settle(ddl_meshing *meshing, ddl_wish wish);

/* Whether the next connection makes it whole. */
bool ddl_pairs_is_last(const ddl_meshing *meshing, int rank);

/* Thread: any, with the bell's lock. */
ddl_wire *ddl_pairs_streams(const ddl_meshing *meshing, int rank);

/* Whether further connections to this rank are made once it has met. */
bool ddl_pairs_may_widen(const ddl_meshing *meshing, int rank);

/* Whether this one, or none, is to be made any more. */
bool ddl_pairs_is_settled(const ddl_meshing *meshing, ddl_wish wish);

/* Whether all connections to this rank that it is to have now are, or were, there. */
bool ddl_pairs_is_whole(const ddl_meshing *meshing, int rank);

/* With the bell's lock, once the roster is here. */
void ddl_pairs_be_met(ddl_meshing *meshing, int rank);

/* One more connection to this rank. True: that is all. */
bool ddl_pairs_connected(ddl_meshing *meshing, int rank, ddl_wire wire);

/* With the bell's lock: what there is of a pair that will not be whole; if it widens, of that. */
void ddl_pairs_drop(ddl_meshing *meshing, ddl_wish wish);

#endif
