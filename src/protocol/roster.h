/*
 * roster.h - who is in the world: one member per rank, as published in the store, and its wire form.
 *
 * Pure. Decoders take bytes from outside: every length is checked before use.
 */
#ifndef DDL_PROTOCOL_ROSTER_H
#define DDL_PROTOCOL_ROSTER_H

#include "base/bytes.h"
#include "base/error.h"

#include <stdbool.h>

enum { DDL_HOST_TEXT = 64, DDL_ADDRESS_TEXT = 64, DDL_RUN_ID_BYTES = 16, DDL_HOST_ID_BYTES = 16 };

/* Rank 0's constants of the cost model: how many there may be, and what each is less than. */
enum { DDL_ROSTER_COSTS = 32 };
#define DDL_ROSTER_COST_LIMIT 1e12

/* Connections for stripes between two ranks, at most. */
enum { DDL_STREAMS_MAX = 16 };

/* With DDL_STREAMS=auto: between two hosts in each direction, and of one rank, at most; of these those alone
 * are made that are wanted. */
enum { DDL_STREAMS_OF_HOSTS = 8, DDL_STREAMS_OF_RANK = 256 };

/* Which pairs are connected at the start; the others are when something goes between them. */
typedef enum ddl_connect {
    DDL_CONNECT_EAGER, /* all */
    DDL_CONNECT_LAZY,  /* the overlay's (overlay.h), and each rank with the lowest of its host, its usher */
    DDL_CONNECT_LAZY_REMOTE /* the overlay's, and all inside a host */
} ddl_connect;

typedef struct ddl_member {
    int rank;
    int32_t pid;
    uint16_t cpus, first_cpu;           /* that this process may use: how many, and the lowest (host.h) */
    uint8_t host_id[DDL_HOST_ID_BYTES]; /* equal for ranks on one host (boot id; see host.h) */
    char host[DDL_HOST_TEXT];           /* node name, for messages only; never resolved */
    char address[DDL_ADDRESS_TEXT];     /* numeric IPv4 or IPv6 where its mesh listener is reached */
    uint16_t port;
    char other[DDL_ADDRESS_TEXT]; /* another such, or "" */
    uint16_t other_port;
    bool asks_nccl;                          /* DDL_GPU=nccl, which all must have or none */
    bool may_use_nccl;                       /* it is asked for, or nobody's wish and there may be a GPU */
    bool may_have_gpu;                       /* on which buffers of its calls are */
    bool declines_memory, insists_on_memory; /* DDL_TRANSPORT=tcp, DDL_TRANSPORT=shm: not on one host */
    bool declines_streams;                   /* it may not open that many descriptors */
    bool is_check;                           /* it runs no program: ddl-launch --check */
    bool is_inner; /* other is for those alone whose own address is the same: address is that of a NAT before
                     them */
} ddl_member;

typedef struct ddl_roster {
    uint8_t run_id[DDL_RUN_ID_BYTES]; /* fresh random per run, made by rank 0 */
    int rank, nranks;                 /* rank: of this process */
    ddl_member *members;              /* nranks of them */
    ddl_connect connect;              /* as rank 0 says */
    int nstreams;                     /* as rank 0 says: see ddl_roster_most_streams */
    bool chooses_streams;             /* likewise: they are made when one connection is too slow for a sender,
                                         which uses as many as help */
    int ncosts;                       /* constants by which rank 0 says that algorithms are chosen */
    double costs[DDL_ROSTER_COSTS];   /* each above 0 and below DDL_ROSTER_COST_LIMIT */
    /* Derived, the same on every rank: */
    int node_count;                     /* hosts, ordered by their lowest rank */
    int *node_of;                       /* of each rank: index of its host */
    int *local_rank_of, *local_size_of; /* of each rank among those on its host */
    int *sharers_of; /* of each rank: those on its host with the same CPUs, itself included */
    uint64_t *order; /* for ddl_roster_derive */
} ddl_roster;

/* How many ranks there are for each CPU that they may use, where that is most; 1 if there are fewer. */
double ddl_roster_crowding(const ddl_roster *roster);

/* Whether there are more ranks than CPUs where this rank is. */
bool ddl_roster_is_crowded(const ddl_roster *roster);

/* Append the wire form of a member / of all members. False when out of memory. */
bool ddl_member_encode(const ddl_member *member, ddl_bytes *bytes);
bool ddl_roster_encode(const ddl_roster *roster, ddl_bytes *bytes);

/* DDL_EPROTO: malformed. */
DDL_MUST_USE ddl_status ddl_member_decode(ddl_view bytes, ddl_member *member, ddl_error *err);
DDL_MUST_USE ddl_status ddl_roster_decode(ddl_view bytes, int rank, ddl_roster **roster, ddl_error *err);

/* DDL_ECONFIG: one side is a job and the other a check, as rank 0 tells the member. */
DDL_MUST_USE ddl_status ddl_member_suits(const ddl_member *member, bool is_check, ddl_error *err);

/* nranks members, all zero, as are run_id and costs. Fill them in, then call ddl_roster_derive. */
DDL_MUST_USE ddl_status ddl_roster_create(int rank, int nranks, ddl_roster **roster, ddl_error *err);
void ddl_roster_derive(ddl_roster *roster);
void ddl_roster_destroy(ddl_roster *roster);

/* Whether this other rank is on the same host as this process. */
static inline bool ddl_roster_is_neighbour(const ddl_roster *roster, int rank)
{
    return rank != roster->rank && roster->node_of[rank] == roster->node_of[roster->rank];
}

/* Whether these two ranks are connected before anybody begins. The same on every rank. */
bool ddl_roster_connects_pair(const ddl_roster *roster, int one, int other);

/* Whether this process and that other rank are. */
static inline bool ddl_roster_connects(const ddl_roster *roster, int rank)
{
    return ddl_roster_connects_pair(roster, roster->rank, rank);
}

/* How many connections for stripes this process and that other rank make with their first; 0: that carries
 * everything, as it does inside a host. The same both ways. */
int ddl_roster_streams(const ddl_roster *roster, int rank);

/* How many they come to have, then or later. */
int ddl_roster_most_streams(const ddl_roster *roster, int rank);

/* Whether connections are made later as well, with ranks or for stripes. The same on every rank. */
bool ddl_roster_keeps_doors(const ddl_roster *roster);

/* Of rank 0, with DDL_STREAMS=auto: have senders choose, out of so many that those of all
 * ranks of a host do for the link of a host, and that no rank has many. A power of two, or none. */
void ddl_roster_offer_streams(ddl_roster *roster);

/* Whether all pairs of ranks that are on one host are connected before anybody begins. The same on every
 * rank. */
bool ddl_roster_connects_hosts(const ddl_roster *roster);

/* Whether there may be pairs that are not. The same on every rank. */
bool ddl_roster_is_sparse(const ddl_roster *roster);

#endif
