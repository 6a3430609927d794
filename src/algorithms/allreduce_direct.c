/*
 * Direct allreduce: every rank gathers the others' copies of its own block, folds them in rank order, all
 * at once, and sends the result to everyone.
 * Rounds: 2, of p-1 messages each. Sent per rank: 2n(p-1)/p. Reduced: n(p-1)/p. Best for: medium and
 * large n with few ranks; 16-bit floats, as each result is rounded once.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.2 (its first phase is there for
 * long messages and operators that do not commute).
 */
#include "algorithms/builders.h"

void ddl_allreduce_direct(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks in = ddl_in_cut(shape, g.nranks), out = ddl_out_cut(shape, g.nranks);
    ddl_slice result = ddl_block(&out, g.rank);
    ddl_reduce_scatter_direct_blocks(b, &g, &in, result);
    if (shape->average)
        ddl_step_scale(b, result);
    ddl_allgather_direct_blocks(b, &g, result, &out);
}
