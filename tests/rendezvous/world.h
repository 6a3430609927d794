/*
 * world.h - threads as ranks, for tests of start-up: each with its own service, all joining one store.
 *
 * The threads only record; the test asserts.
 */
#ifndef DDL_TESTS_RENDEZVOUS_WORLD_H
#define DDL_TESTS_RENDEZVOUS_WORLD_H

#include "rendezvous/bootstrap.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

enum { WORLD_MAX = 40 };

struct world_rank {
    /* Set before world_start: */
    int rank, nranks;
    bool apart; /* no connections through Unix sockets */
    bool quiet; /* does not tell who is missing */
    const char *store, *master, *iface;
    const char *secret; /* NULL: level off */
    uint32_t generator;
    const double *costs; /* of rank 0; ncosts of them */
    int ncosts;
    int64_t timeout_ms;
    int rounds; /* how often it joins and leaves; 0 is once */
    bool stays; /* keeps its bootstrap until world_finish, instead of leaving at once */
    /* Set by the thread: */
    ddl_status status; /* of the first round that failed, or else the last */
    ddl_error error;
    double seconds; /* of the last round's join */
    int rounds_done;
    bool links_work; /* after success: every link is set up right, and leads to the rank it is said to */
    int run_id_first, node_count, local_size;
    /* The thread's own: */
    bool running;
    pthread_t thread;
    ddl_service *service;
    ddl_prover *prover;
    ddl_bootstrap *bootstrap;
    ddl_roster *roster;
    ddl_wire wires[WORLD_MAX];
};

/* nranks ranks of one world that all do as they should. */
void world_init(struct world_rank ranks[], int nranks, const char *store, int64_t timeout_ms);

/* Start this rank's thread. */
void world_start(struct world_rank *rank);

/* Wait for its thread; what stays is still there. */
void world_rest(struct world_rank *rank);

/* Wait for its thread; it is idle then, and may be started again. */
void world_finish(struct world_rank *rank);

/* Once no rank is running: end the threads of their services. */
void world_end(void);

/* Fork a process that joins as rank and then waits for ever. Call it while no thread runs. */
pid_t world_fork(const struct world_rank *rank);

/* Kill a forked rank with SIGKILL, and reap it. */
void world_kill(pid_t pid);

/*
 * Wait, as if this were rank observer of that world (which must not be there yet), until rank has published
 * its record, and return the port of its mesh listener.
 */
int world_await_member(const struct world_rank *like, int observer, int rank);

/* A TCP port of 127.0.0.1 that was free a moment ago, and "tcp://127.0.0.1:PORT" for it. */
int world_free_port(void);
const char *world_tcp_url(char url[64]);

#endif
