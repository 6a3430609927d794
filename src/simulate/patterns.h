/*
 * patterns.h - kinds of uneven counts and of placements on hosts, to be swept by the checker and by tests.
 *
 * From the same arguments everyone makes the same ones.
 */
#ifndef DDL_SIMULATE_PATTERNS_H
#define DDL_SIMULATE_PATTERNS_H

#include "algorithms/catalogue.h"

typedef enum ddl_pattern {
    DDL_PATTERN_EVEN,
    DDL_PATTERN_EMPTY,     /* all zero */
    DDL_PATTERN_ONE_BLOCK, /* all but one zero */
    DDL_PATTERN_RISING,
    DDL_PATTERN_RANDOM, /* zeros among them */
    DDL_PATTERN_WILD,   /* few large ones, many tiny ones */
    DDL_PATTERN_COUNT
} ddl_pattern;

const char *ddl_pattern_name(ddl_pattern pattern);

/*
 * Give a v form's shape, of nranks and in_place as it says, the counts of this pattern, none above
 * `largest`: blocks (alltoallv: the matrices that ddl_check_algorithm wants), and count, which is the largest
 * of them. gap elements are left between blocks, as in a piece of a larger call. *memory, which must begin as
 * NULL or as a call before left it, holds the arrays; release it with ddl_free. False: out of memory.
 */
bool ddl_pattern_apply(ddl_pattern pattern, ddl_collective collective, size_t largest, size_t gap,
                       ddl_shape *shape, size_t **memory);

/* Where ranks are. */
typedef enum ddl_spread {
    DDL_SPREAD_ONE_HOST,
    DDL_SPREAD_PAIRS, /* two per host; the last one may have one */
    DDL_SPREAD_FOURS,
    DDL_SPREAD_ROUND_ROBIN, /* over three hosts */
    DDL_SPREAD_RANDOM,      /* hosts of different size, ranks in no order */
    DDL_SPREAD_ALONE,       /* one per host */
    DDL_SPREAD_COUNT
} ddl_spread;

const char *ddl_spread_name(ddl_spread spread);

/* The placement of nranks ranks; node_of has room for them, and must stay. */
ddl_placement ddl_spread_apply(ddl_spread spread, int nranks, int node_of[]);

#endif
