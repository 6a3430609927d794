/*
 * oracle.h - what every call must give, computed serially and naively from the inputs of all ranks.
 *
 * It knows nothing of schedules, algorithms or the library's arithmetic: 16-bit floats are encoded here by
 * their definition. Two kinds of calls stand for point to point: "shift", in which every rank sends to the
 * rank root places after it, and "pair", in which root sends to peer.
 */
#ifndef DDL_TESTS_CONFORMANCE_ORACLE_H
#define DDL_TESTS_CONFORMANCE_ORACLE_H

#include <ddl/ddl.h>

typedef enum oracle_kind {
    ORACLE_ALLREDUCE,
    ORACLE_REDUCE,
    ORACLE_REDUCE_SCATTER,
    ORACLE_ALLGATHER,
    ORACLE_BROADCAST,
    ORACLE_ALLTOALL,
    ORACLE_BARRIER,
    ORACLE_GATHER,
    ORACLE_SCATTER,
    ORACLE_REDUCE_SCATTERV,
    ORACLE_ALLGATHERV,
    ORACLE_GATHERV,
    ORACLE_SCATTERV,
    ORACLE_ALLTOALLV,
    ORACLE_SHIFT,
    ORACLE_PAIR,
    ORACLE_KINDS
} oracle_kind;

/* Which inputs, and so how a result is compared. */
typedef enum oracle_values {
    ORACLE_EXACT,   /* any integers; floats whose result is exact in any order: compared bit by bit */
    ORACLE_SPECIAL, /* floats: NaN, infinities and zeros of both signs among a few that are exact; NaN equals
                       NaN */
    ORACLE_RANDOM   /* floats that round: compared within the error that n roundings may make */
} oracle_values;

typedef struct oracle_call {
    oracle_kind kind;
    ddl_dtype dtype;
    ddl_op op;
    int nranks;
    int root;     /* of rooted collectives; shift: how far; pair: who sends */
    int peer;     /* pair: who receives */
    size_t count; /* as in the public call; not of the v forms */
    oracle_values values;
    const size_t *counts; /* v forms: of each rank; alltoallv: what rank i sends to j is at i * nranks + j */
} oracle_call;

/* "allreduce", "shift", ... */
const char *oracle_kind_name(oracle_kind kind);

const char *oracle_dtype_name(ddl_dtype dtype);
const char *oracle_op_name(ddl_op op);

/* The value of this name, as printed above; -1 if there is none. */
int oracle_kind_parse(const char *name);
int oracle_dtype_parse(const char *name);
int oracle_op_parse(const char *name);

bool oracle_is_float(ddl_dtype dtype);
bool oracle_reduces(oracle_kind kind);
bool oracle_is_uneven(oracle_kind kind); /* a v form */
bool oracle_is_rooted(oracle_kind kind);

/* Elements that rank gives, and that it gets. A broadcast's one buffer is given by root and got by all. */
size_t oracle_send_count(const oracle_call *call, int rank);
size_t oracle_recv_count(const oracle_call *call, int rank);

/*
 * Of the blocks that one rank gives to (or gets from) each, and that lie packed in one buffer: elements of
 * that of `other`, and those before it. The collective must have such a buffer at that rank.
 */
size_t oracle_block_count(const oracle_call *call, bool sends, int rank, int other);
size_t oracle_block_start(const oracle_call *call, bool sends, int rank, int other);

/* Fill send with what rank gives in this call; the same key gives the same values on every rank. */
void oracle_fill(const oracle_call *call, uint64_t key, int rank, void *send);

/*
 * Whether got is what rank must get where every rank r gave sends[r]. If not, *index is the first wrong
 * element, and want and have its two values in words (sizes of 32 suffice).
 */
bool oracle_agrees(const oracle_call *call, const void *const sends[], int rank, const void *got,
                   size_t *index, char want[32], char have[32]);

/* 16-bit floats by their definition; a value is rounded to the nearest, ties to even. */
double oracle_value_of_half(ddl_dtype dtype, uint16_t bits);
uint16_t oracle_half_of_value(ddl_dtype dtype, double value);

/* A step of a small random generator (splitmix64), for tests that must be repeatable from a seed. */
uint64_t oracle_next(uint64_t *state);

/* 0 .. limit-1; limit > 0. */
uint64_t oracle_below(uint64_t *state, uint64_t limit);

#endif
