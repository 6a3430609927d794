/*
 * workload.h - one collective at one size: its buffers, what a rank does, and whether the result is right.
 */
#ifndef DDL_BENCH_WORKLOAD_H
#define DDL_BENCH_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ddl/ddl.h>

struct workload;

/* Which of a collective's buffers hold one block for each rank. */
enum workload_blocks { NO_BLOCKS, BLOCKS_SENT, BLOCKS_RECEIVED, BLOCKS_BOTH };

struct workload_kind {
    const char *name;
    enum workload_blocks blocks; /* if any, the count is that of one block and the size that of all */
    bool uneven;                 /* the count is that of the mean block; see workload_init */
    bool reduces;                /* combines elements by an operator */
    bool in_place;               /* can be done in place */
    bool has_root;
    /* Bus bandwidth over algorithm bandwidth, as nccl-tests defines it: of the size, what the busiest rank
     * has to send or to receive. The same on every rank. */
    double (*bus_factor)(const struct workload *workload);
    ddl_status (*run)(struct workload *workload);
};

/* By name; NULL if there is none. */
const struct workload_kind *workload_kind_find(const char *name);

/* All names, with a blank before each, and the end of the line. */
void workload_list_kinds(FILE *file);

struct workload {
    const struct workload_kind *kind;
    ddl_comm *world;
    ddl_dtype dtype;
    ddl_op op;
    int root, rank, nranks;
    size_t count;            /* as given to the call; of the mean block where they are uneven */
    size_t elements;         /* of the greater buffer */
    size_t *counts, *starts; /* of the blocks, nranks of each; NULL where there are none */
    void *send, *recv;
    bool shared;                     /* the memory is from ddl_mem_alloc */
    void *send_memory, *recv_memory; /* what was allocated; recv_memory is NULL in place */
    const char *problem; /* what ddl says of a failed init, until its next failure; NULL: nothing */
};

/* How many elements such a call has for a buffer of about so many bytes; at least one, but 0 for a barrier.
 */
size_t workload_count(const struct workload_kind *kind, size_t bytes, ddl_dtype dtype, int nranks);

/*
 * Buffers, untouched. False when out of memory; then there is nothing to release. Uneven blocks grow from
 * none for the first rank to twice the mean for the last, in equal steps; alltoallv moves the one of index (i
 * + j) % nranks from rank i to rank j.
 */
bool workload_init(struct workload *workload, const struct workload_kind *kind, ddl_comm *world, size_t count,
                   ddl_dtype dtype, ddl_op op, int root, bool in_place, bool shared);
void workload_fini(struct workload *workload);

/* Distinct values for every rank, chosen so that the result is exact whatever the order of additions. */
void workload_fill(struct workload *workload);

/* After fill and run: whether this rank has what it should; if not, the reason, as a text without line end.
 */
bool workload_check(const struct workload *workload, char *reason, size_t reason_bytes);

/* Fill, run, check: *right, whether this rank has what it should, else stderr says what it has. dtype_name is
 * for that. */
ddl_status workload_try(struct workload *workload, const char *dtype_name, bool *right);

#endif
