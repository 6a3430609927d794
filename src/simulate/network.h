/*
 * network.h - a virtual network, clock and compute under the real executor: all ranks in one thread.
 *
 * Each rank has a CPU, which does one thing at a time, and a port that sends and receives at the link's
 * bandwidth at once. A message takes: overhead on the sender's CPU, its turn at the sender's port, the
 * latency, its turn at the receiver's port, overhead on the receiver's CPU. Up to eager_bytes it leaves
 * without asking; beyond, when word of the posted receive has come. Everything follows from the options,
 * the seed among them: the same options give the same run.
 */
#ifndef DDL_SIMULATE_NETWORK_H
#define DDL_SIMULATE_NETWORK_H

#include "executor/compute.h"
#include "schedule/schedule.h"

#include "base/error.h"

typedef struct ddl_network ddl_network;

typedef struct ddl_network_options {
    double latency_ns;   /* from one host to the next */
    double bytes_per_ns; /* of a port, in each direction; 0: without limit */
    double overhead_ns;  /* of CPU per message, at each end */
    double
        reduce_bytes_per_ns; /* of operands after the first; also of scaling and copying; 0: without limit */
    size_t eager_bytes;
    uint64_t seed;
    double jitter_ns; /* latency grows by a random part of this, for each message anew */
    int paused_rank;  /* does nothing from pause_start_ns on for pause_ns; -1: none */
    double pause_start_ns, pause_ns;
    int lost_rank; /* its process ends at lost_ns, and each other rank's run is cancelled one latency later;
                      -1: none */
    double lost_ns;
    ddl_compute *compute; /* combines real values; NULL: buffers are not touched */
} ddl_network_options;

#define DDL_NETWORK_OPTIONS_INIT                                \
    {                                                           \
        .paused_rank = -1, .lost_rank = -1, .eager_bytes = 4096 \
    }

DDL_MUST_USE ddl_status ddl_network_create(int nranks, const ddl_network_options *options,
                                           ddl_network **network, ddl_error *err);

/*
 * Give a rank its part, which must outlive the network. in and out are its buffers; with no compute they
 * are not used.
 */
DDL_MUST_USE ddl_status ddl_network_assign(ddl_network *network, int rank, const ddl_schedule *schedule,
                                           void *in, void *out, ddl_dtype dtype, ddl_op op, ddl_error *err);

/*
 * Run all ranks from time 0 until each is done or cancelled. Once only.
 * DDL_EPEERLOST: the lost rank was not done before it was lost; blames it. DDL_EINTERNAL: a rank waits for
 * ever.
 */
DDL_MUST_USE ddl_status ddl_network_run(ddl_network *network, ddl_error *err);

/* When the last rank was done. */
double ddl_network_slowest_ns(const ddl_network *network);

void ddl_network_destroy(ddl_network *network);

#endif
