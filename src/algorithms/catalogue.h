/*
 * catalogue.h - every algorithm there is: one row each, swept by the checker and offered to users.
 *
 * Pure: a schedule depends on nothing but the shape, so every rank can build its own part alone.
 */
#ifndef DDL_ALGORITHMS_CATALOGUE_H
#define DDL_ALGORITHMS_CATALOGUE_H

#include "algorithms/collective.h"
#include "base/error.h"
#include "schedule/blocks.h"
#include "schedule/schedule.h"

/* Where ranks are; all on one host if node_of is NULL. */
typedef struct ddl_placement {
    int nranks, nnodes;
    const int *node_of; /* of each rank: its host, 0 .. nnodes-1, numbered by their lowest rank */
} ddl_placement;

/* Of messages of a piece, where nothing else is said. */
enum { DDL_PIECE_BYTES = 512 * 1024 };

/*
 * Everything that a schedule depends on. A large call is run as pieces: count is then that of a piece,
 * and stride that of the whole call. IN and OUT are as the public call gives them, moved forward by the
 * offset of the piece.
 */
typedef struct ddl_shape {
    int rank, nranks;
    int root;              /* of rooted collectives; send, recv: the peer; else 0 */
    size_t count;          /* elements as in the public call: of the vector (allreduce, reduce, broadcast,
                              send, recv) or per rank (reduce_scatter, allgather, alltoall, gather, scatter);
                              v forms: the largest of counts (alltoallv: of both), which cuts it into pieces */
    size_t stride;         /* elements from one rank's block to the next in the buffer of nranks blocks
                              (reduce_scatter, scatter: IN; allgather, gather: OUT; alltoall: both); >= count */
    ddl_uneven blocks;     /* v forms: of the buffer of nranks blocks, packed in rank order in the whole call;
                              in a piece counts are what it has of each block, while starts stay. alltoallv:
                              of IN */
    ddl_uneven out_blocks; /* alltoallv: of OUT */
    ddl_placement placement; /* its nranks is that of the shape */
    size_t element_bytes;
    size_t message_bytes; /* no message of a piece is to be larger; 0: DDL_PIECE_BYTES */
    size_t post_bytes; /* if it can go over a board it does, in pieces of which no rank has more to say in a
                          round; 0: it goes by messages; for who makes plans, not for algorithms */
    bool in_place;     /* as the public call defines it: IN and OUT are the same memory (allreduce,
                          reduce at the root, alltoall(v), and broadcast always: only OUT is used), or IN is
                          the own block of OUT (allgather(v), gather(v) at the root), or OUT the own block of
                          IN (reduce_scatter(v), scatter(v) at the root) */
    bool average;      /* end with the scale step of DDL_AVG */
    bool is_staged; /* IN and OUT are elsewhere, and pieces run in rooms of their own (backend/layout.h); for
                       who makes plans, not for algorithms */
} ddl_shape;

/* Whether such a rank may call it so; in place or not. */
bool ddl_shape_makes_sense(ddl_collective collective, const ddl_shape *shape);

/* One of the two collectives that an algorithm is made of, one after the other. */
typedef struct ddl_phase {
    ddl_collective collective;
    struct ddl_work (*work)(const ddl_placement *placement, double total_bytes);
} ddl_phase;

typedef struct ddl_algorithm {
    const char *name; /* "ring" */
    ddl_collective collective;
    const char *summary;       /* one line: rounds, bytes, what it is best for */
    const char *source;        /* paper or book */
    bool (*takes)(int nranks); /* whether it works for this many ranks; NULL: any */
    /*
     * What one rank does at most, for the cost model: rounds on the critical path, messages and bytes
     * sent (or received, where that is more), and bytes reduced; and what of it crosses between hosts.
     * total_bytes is the whole buffer: the vector, or nranks blocks (v forms: all blocks together).
     */
    struct ddl_work (*work)(const ddl_placement *placement, double total_bytes);
    /*
     * Build the schedule of shape->rank; release with ddl_schedule_destroy.
     * DDL_EUNSUPPORTED: not for so many ranks. DDL_ENOMEM. DDL_EINVAL: scratch would overflow size_t.
     */
    ddl_status (*build)(const ddl_shape *shape, ddl_schedule **schedule, ddl_error *err);
    ddl_phase phases[2]; /* whose costs it has together; without work: it is of one piece */
} ddl_algorithm;

typedef struct ddl_work {
    double rounds, messages, sent_bytes, reduced_bytes;
    double remote_rounds; /* of the rounds, those that go between hosts; 0 on one host */
    double remote_bytes;  /* that the ranks of one host together send to other hosts, or receive, where that
                             is more, at most */
    double mean_messages; /* of all ranks, where that is far from what one does at most; 0: it is not */
} ddl_work;

/* Whether the row works for this many ranks. */
bool ddl_algorithm_takes(const ddl_algorithm *algorithm, int nranks);

/* All rows; *count of them. The first row of a collective is not special. */
const ddl_algorithm *ddl_catalogue(size_t *count);

/* The row of this collective and name; NULL if there is none. */
const ddl_algorithm *ddl_catalogue_find(ddl_collective collective, const char *name);

/* Of a row: its index in the catalogue, which goes into signatures. */
int ddl_catalogue_index(const ddl_algorithm *algorithm);

/*
 * Bumped whenever any generated schedule, how calls are cut into pieces, the order of the catalogue, the
 * choice, or what lies where in memory that ranks share changes; ranks compare it, and not the library's
 * version, when they meet, as both ends of a message must come from the same generator.
 */
enum { DDL_GENERATOR_VERSION = 27 };

#endif
