/*
 * Scatter-allgather broadcast: a binomial scatter of p blocks, then a circulant allgather, in which nobody
 * sends to the root.
 * Rounds: 2 ceil(log2 p). Sent by the root: 2n(p-1)/p. Best for: medium n.
 * Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section 4.3; Traff, arXiv 2410.14234, 2024.
 */
#include "algorithms/builders.h"

void ddl_broadcast_scatter_allgather(ddl_builder *b, const ddl_shape *shape)
{
    ddl_group g = ddl_shape_group(shape);
    ddl_blocks blocks = ddl_out_cut(shape, g.nranks);
    ddl_scatter_binomial_blocks(b, shape, &blocks);
    ddl_allgather_circulant_blocks(b, &g, ddl_block(&blocks, g.rank), &blocks, shape->root);
}
