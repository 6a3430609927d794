/*
 * config.h - everything that decides how a world is made: options of the program, then the environment.
 *
 * A wrong value is an error that names the variable, the value and what is accepted; settings.h has the
 * names.
 */
#ifndef DDL_API_CONFIG_H
#define DDL_API_CONFIG_H

#include "algorithms/catalogue.h"
#include "backend/choice.h"
#include "base/clock.h"
#include "base/error.h"
#include "protocol/prover.h"
#include "protocol/roster.h"
#include "rendezvous/network.h"

/* How ranks of one host talk. */
typedef enum ddl_local_transport {
    DDL_LOCAL_AUTO, /* shared memory, or TCP with a warning where there is none */
    DDL_LOCAL_TCP,
    DDL_LOCAL_SHM /* shared memory or not at all */
} ddl_local_transport;

/* Who performs calls on buffers of GPUs. */
typedef enum ddl_gpu_use {
    DDL_GPU_AUTO,  /* NCCL where it can be used on all ranks, else hosts */
    DDL_GPU_NCCL,  /* NCCL; that it cannot be used at all is an error */
    DDL_GPU_STAGED /* hosts, always */
} ddl_gpu_use;

typedef struct ddl_config {
    int rank, nranks;
    bool knows_place;  /* all that it takes to meet the others has been read, be the rest wrong */
    bool may_be_tried; /* what is wrong is right elsewhere, and a program may find out here that it is not */
    char store[512];   /* URL */
    char master[300];  /* "address:port": names the meeting place */
    ddl_network network;
    ddl_local_transport local_transport;
    bool has_gpu;   /* ddl_local_device tells one */
    int local_rank; /* as launchers say; -1: they do not */
    ddl_gpu_use gpu;
    ddl_connect connect; /* of the world, if this is rank 0 */
    int nstreams; /* likewise: further connections between ranks of different hosts; 0: none, -1: auto */
    ddl_security security;
    char tls_ca[512], tls_cert[512], tls_key[512]; /* files; "" if none. Only at level tls, as is the next */
    char tls_job[128];                             /* in certificates' names of ranks; "": they name hosts */
    bool openssl_aes;                              /* likewise: nobody else's */
    int64_t start_timeout_ms, timeout_ms;
    ddl_deadline start_until; /* of ddl_init, from when it read these */
    bool timeout_is_given;    /* in ddl_options */
    int64_t unreachable_ms,
        unresponsive_ms; /* of a host without acknowledgements, a process without a sign */
    int64_t warn_ms;     /* after which an operation that waits tells for whom; then after twice as long */
    const ddl_algorithm *forced[DDL_COLLECTIVE_COUNT]; /* NULL: chosen by cost */
    double
        costs[DDL_COST_CONSTANTS]; /* defaults; on rank 0 with what DDL_PROFILE names. Rank 0's are for all */
} ddl_config;

/* options may be NULL. DDL_EINVAL: options make no sense; DDL_ECONFIG; DDL_EUNSUPPORTED: not in this version.
 */
DDL_MUST_USE ddl_status ddl_config_read(const ddl_options *options, ddl_config *config, ddl_error *err);

#endif
