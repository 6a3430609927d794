/*
 * collective.h - the collectives, and what there is to know of each before any algorithm.
 */
#ifndef DDL_ALGORITHMS_COLLECTIVE_H
#define DDL_ALGORITHMS_COLLECTIVE_H

#include <stdbool.h>

typedef enum ddl_collective {
    DDL_COLLECTIVE_ALLREDUCE,
    DDL_COLLECTIVE_REDUCE_SCATTER,
    DDL_COLLECTIVE_ALLGATHER,
    DDL_COLLECTIVE_BROADCAST,
    DDL_COLLECTIVE_REDUCE,
    DDL_COLLECTIVE_ALLTOALL,
    DDL_COLLECTIVE_BARRIER,
    DDL_COLLECTIVE_GATHER,
    DDL_COLLECTIVE_SCATTER,
    DDL_COLLECTIVE_REDUCE_SCATTERV, /* the v forms: blocks of uneven size */
    DDL_COLLECTIVE_ALLGATHERV,
    DDL_COLLECTIVE_GATHERV,
    DDL_COLLECTIVE_SCATTERV,
    DDL_COLLECTIVE_ALLTOALLV,
    DDL_COLLECTIVE_SEND,
    DDL_COLLECTIVE_RECV,
    DDL_COLLECTIVE_COUNT
} ddl_collective;

/* What a buffer of a rank holds. */
typedef enum ddl_content { DDL_NOTHING, DDL_VECTOR, DDL_OWN_BLOCK, DDL_ALL_BLOCKS } ddl_content;

typedef struct ddl_collective_facts {
    const char *name;             /* "allreduce", "reduce_scatter", ... as in the public calls without ddl_ */
    ddl_content in, out;          /* of a broadcast, whose buffer is both, only OUT */
    bool in_at_root, out_at_root; /* others have no such buffer */
    bool is_rooted;               /* one of the ranks is the root */
    bool reduces;                 /* takes an operator */
    bool is_uneven;               /* a v form */
    bool is_point_to_point;       /* between this rank and a peer, in place of a root */
} ddl_collective_facts;

extern const ddl_collective_facts ddl_collectives[DDL_COLLECTIVE_COUNT];

static inline const char *ddl_collective_name(ddl_collective collective)
{
    return ddl_collectives[collective].name;
}

static inline bool ddl_collective_is_uneven(ddl_collective collective)
{
    return ddl_collectives[collective].is_uneven;
}

static inline bool ddl_collective_is_rooted(ddl_collective collective)
{
    return ddl_collectives[collective].is_rooted;
}

static inline bool ddl_collective_reduces(ddl_collective collective)
{
    return ddl_collectives[collective].reduces;
}

static inline bool ddl_collective_is_point_to_point(ddl_collective collective)
{
    return ddl_collectives[collective].is_point_to_point;
}

/* Whether there is a type, and elements of it: all but a barrier. */
static inline bool ddl_collective_has_data(ddl_collective collective)
{
    return collective != DDL_COLLECTIVE_BARRIER;
}

/* Whether a buffer has a block for each rank, and counts are of a block. */
static inline bool ddl_collective_has_blocks(ddl_collective collective)
{
    const ddl_collective_facts *facts = &ddl_collectives[collective];
    return facts->in == DDL_ALL_BLOCKS || facts->out == DDL_ALL_BLOCKS;
}

/* A gather or scatter, between the root and each rank's own block. */
static inline bool ddl_collective_gathers_or_scatters(ddl_collective collective)
{
    return ddl_collective_is_rooted(collective) && ddl_collective_has_blocks(collective);
}

/* An allgather: all get each rank's own block. */
static inline bool ddl_collective_gathers_for_all(ddl_collective collective)
{
    const ddl_collective_facts *facts = &ddl_collectives[collective];
    return facts->in == DDL_OWN_BLOCK && facts->out == DDL_ALL_BLOCKS && !facts->is_rooted;
}

/* An alltoall. */
static inline bool ddl_collective_exchanges(ddl_collective collective)
{
    const ddl_collective_facts *facts = &ddl_collectives[collective];
    return facts->in == DDL_ALL_BLOCKS && facts->out == DDL_ALL_BLOCKS;
}

#endif
