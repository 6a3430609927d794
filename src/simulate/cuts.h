/*
 * cuts.h - a set of positions on a line, numbered in order: they cut it into atoms.
 *
 * Filled, sealed, then asked. Made to be used again and again without new memory.
 */
#ifndef DDL_SIMULATE_CUTS_H
#define DDL_SIMULATE_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ddl_cuts { /* all zero is ready for ddl_cuts_begin */
    uint32_t *positions;  /* in order, each once, after ddl_cuts_seal */
    uint32_t count;
    /* the rest is private */
    bool dense; /* a bit per position; else positions are sorted */
    uint64_t *bits;
    uint32_t *numbers; /* of each position whose bit is set */
    uint32_t *spare;   /* to sort with */
    size_t nwords, words_capacity, positions_capacity, spare_capacity;
    bool failed;
} ddl_cuts;

/* Empty the set. Positions will be 0 .. last, about `expected` of them, repetitions counted. */
void ddl_cuts_begin(ddl_cuts *cuts, uint32_t last, size_t expected);
static inline void ddl_cuts_add(ddl_cuts *cuts, uint32_t position);

/* False: out of memory. */
bool ddl_cuts_seal(ddl_cuts *cuts);

/* The number of a position that was added. */
static inline uint32_t ddl_cuts_index(const ddl_cuts *cuts, uint32_t position);

void ddl_cuts_fini(ddl_cuts *cuts);

/* ---- private: most positions are dense, and a proof asks for several of each step ---- */

void ddl_cuts_add_sparse(ddl_cuts *cuts, uint32_t position);
uint32_t ddl_cuts_index_sparse(const ddl_cuts *cuts, uint32_t position);

static inline void ddl_cuts_add(ddl_cuts *cuts, uint32_t position)
{
    if (cuts->dense)
        cuts->bits[position / 64] |= UINT64_C(1) << position % 64;
    else
        ddl_cuts_add_sparse(cuts, position);
}

static inline uint32_t ddl_cuts_index(const ddl_cuts *cuts, uint32_t position)
{
    return cuts->dense ? cuts->numbers[position] : ddl_cuts_index_sparse(cuts, position);
}

#endif
