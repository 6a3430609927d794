/*
 * Tree allreduce. A binomial reduce to rank 0, then a binomial broadcast of the result. It has twice the
 * rounds of recursive doubling, but only 2(p-1) messages in all, where that has p log2 p.
 * Rounds: 2 ceil(log2 p). Sent by rank 0: n ceil(log2 p), by all: 2n(p-1). Best for: small n where ranks
 * share CPUs, so that it is the number of messages that counts. Source: Thakur, Rabenseifner and Gropp,
 * IJHPCA 19(1), 2005, section 4.5.
 */
#include "algorithms/builders.h"

void ddl_allreduce_tree(ddl_builder *b, const ddl_shape *shape)
{
    ddl_shape from_zero = *shape;
    from_zero.root = 0;
    ddl_reduce_binomial(b, &from_zero);
    ddl_broadcast_binomial(b, &from_zero);
}
