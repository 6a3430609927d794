/* catalogue.c - the rows, and how each is built. */
#include "algorithms/catalogue.h"

#include "algorithms/builders.h"
#include "algorithms/work.h"
#include "base/assert.h"

#include <string.h>

/* ---- rows ---- */

/*
 * X(COLLECTIVE, collective, name, writer, takes, work, summary, source), Y with the two collectives that
 * it is made of and their work after that, and Z like Y without `work`, where that follows from theirs. BOTH
 * is such a row, and the same of the v form: its writer sees only blocks.
 */
#define BOTH(ROW, COLLECTIVE, collective, ...) \
    ROW(COLLECTIVE, collective, __VA_ARGS__)   \
    ROW(COLLECTIVE##V, collective##v, __VA_ARGS__)
#define ROWS(X, Y, Z)                                                                                        \
    X(ALLREDUCE, allreduce, flat, ddl_allreduce_flat, NULL, ddl_work_flat,                                   \
      "1 round, (p-1)n bytes; tiny vectors, few ranks", "folklore; Thakur, Rabenseifner, Gropp 2005")        \
    X(ALLREDUCE, allreduce, doubling, ddl_allreduce_doubling, NULL, ddl_work_doubling,                       \
      "log2 p rounds of n bytes; small vectors", "Thakur, Rabenseifner, Gropp 2005")                         \
    X(ALLREDUCE, allreduce, halving_doubling, ddl_allreduce_halving_doubling, NULL,                          \
      ddl_work_halving_doubling, "2 log2 p rounds, 2n(p-1)/p bytes for p = 2^k; medium and large vectors",   \
      "Rabenseifner 2004")                                                                                   \
    X(ALLREDUCE, allreduce, ring, ddl_allreduce_ring, NULL, ddl_work_allreduce_ring,                         \
      "2(p-1) rounds, 2n(p-1)/p bytes; very large vectors", "Patarasuk, Yuan 2009")                          \
    X(ALLREDUCE, allreduce, direct, ddl_allreduce_direct, NULL, ddl_work_allreduce_direct,                   \
      "2 rounds, 2n(p-1)/p bytes, rank order; few ranks, medium and large vectors",                          \
      "Thakur, Rabenseifner, Gropp 2005")                                                                    \
    X(ALLREDUCE, allreduce, circulant, ddl_allreduce_circulant, NULL, ddl_work_allreduce_circulant,          \
      "2 ceil(log2 p) rounds, 2n(p-1)/p bytes; medium and large vectors, any p", "Traff 2024")               \
    Z(ALLREDUCE, allreduce, tree, ddl_allreduce_tree, NULL,                                                  \
      "2 ceil(log2 p) rounds of n bytes, 2(p-1) messages in all; small vectors, ranks that share CPUs",      \
      "Thakur, Rabenseifner, Gropp 2005", REDUCE, ddl_work_reduce_binomial, BROADCAST,                       \
      ddl_work_broadcast_binomial)                                                                           \
    Z(ALLREDUCE, allreduce, knomial, ddl_allreduce_knomial, NULL,                                            \
      "2 ceil(log4 p) rounds of up to 3 messages of n bytes, 2(p-1) messages in all; tiny vectors",          \
      "Wilkins et al. 2023", REDUCE, ddl_work_reduce_knomial, BROADCAST, ddl_work_broadcast_knomial)         \
    X(ALLREDUCE, allreduce, two_level, ddl_allreduce_two_level, NULL, ddl_work_allreduce_two_level,          \
      "direct inside hosts, circulant between them: 2n(h-1)/h bytes per host; several ranks per host",       \
      "Jain et al. 2018; Traff 2024")                                                                        \
    Y(ALLREDUCE, allreduce, two_level_tree, ddl_allreduce_two_level_tree, NULL, ddl_work_two_level_tree,     \
      "two-level reduce, then broadcast: pipelined between hosts; large vectors, uneven hosts",              \
      "Jain et al. 2018; Traff 2024", REDUCE, ddl_work_reduce_two_level, BROADCAST,                          \
      ddl_work_broadcast_two_level)                                                                          \
    BOTH(X, REDUCE_SCATTER, reduce_scatter, direct, ddl_reduce_scatter_direct, NULL,                         \
         ddl_work_scatter_direct, "1 round, n(p-1)/p bytes, rank order; few ranks",                          \
         "Thakur, Rabenseifner, Gropp 2005")                                                                 \
    BOTH(X, REDUCE_SCATTER, reduce_scatter, ring, ddl_reduce_scatter_ring, NULL, ddl_work_scatter_chain,     \
         "p-1 rounds, n(p-1)/p bytes; large", "Patarasuk, Yuan 2009")                                        \
    X(REDUCE_SCATTER, reduce_scatter, halving, ddl_reduce_scatter_halving, ddl_power_of_two,                 \
      ddl_work_scatter_log, "log2 p rounds, n(p-1)/p bytes; p = 2^k", "Thakur, Rabenseifner, Gropp 2005")    \
    BOTH(X, REDUCE_SCATTER, reduce_scatter, circulant, ddl_reduce_scatter_circulant, NULL,                   \
         ddl_work_scatter_log, "ceil(log2 p) rounds, n(p-1)/p bytes; any p", "Traff 2024")                   \
    BOTH(Z, REDUCE_SCATTER, reduce_scatter, tree, ddl_reduce_scatter_tree, NULL,                             \
         "2 ceil(log2 p) rounds, 2(p-1) messages in all; small blocks, many ranks per CPU or host",          \
         "Thakur, Rabenseifner, Gropp 2005", REDUCE, ddl_work_reduce_binomial, SCATTER, ddl_work_root_log)   \
    BOTH(Z, REDUCE_SCATTER, reduce_scatter, knomial, ddl_reduce_scatter_knomial, NULL,                       \
         "ceil(log4 p) + ceil(log2 p) rounds, 2(p-1) messages in all; tiny blocks, many ranks",              \
         "Wilkins et al. 2023", REDUCE, ddl_work_reduce_knomial, SCATTER, ddl_work_root_log)                 \
    BOTH(Z, REDUCE_SCATTER, reduce_scatter, tree_direct, ddl_reduce_scatter_tree_direct, NULL,               \
         "ceil(log2 p) + 1 rounds, 2(p-1) messages in all; small blocks, many ranks per CPU",                \
         "Thakur, Rabenseifner, Gropp 2005", REDUCE, ddl_work_reduce_binomial, SCATTER,                      \
         ddl_work_root_direct)                                                                               \
    BOTH(Z, REDUCE_SCATTER, reduce_scatter, knomial_direct, ddl_reduce_scatter_knomial_direct, NULL,         \
         "ceil(log4 p) + 1 rounds, 2(p-1) messages in all; tiny blocks, many ranks per CPU",                 \
         "Wilkins et al. 2023", REDUCE, ddl_work_reduce_knomial, SCATTER, ddl_work_root_direct)              \
    BOTH(X, REDUCE_SCATTER, reduce_scatter, two_level, ddl_reduce_scatter_two_level, NULL,                   \
         ddl_work_reduce_scatter_two_level,                                                                  \
         "direct inside hosts, circulant between them: n(h-1)/h bytes per host; several ranks per host",     \
         "Jain et al. 2018; Traff 2024")                                                                     \
    BOTH(X, ALLGATHER, allgather, ring, ddl_allgather_ring, NULL, ddl_work_move_chain,                       \
         "p-1 rounds, n(p-1)/p bytes; large", "Thakur, Rabenseifner, Gropp 2005")                            \
    BOTH(X, ALLGATHER, allgather, direct, ddl_allgather_direct, NULL, ddl_work_move_direct,                  \
         "1 round, n(p-1)/p bytes; few ranks", "folklore")                                                   \
    X(ALLGATHER, allgather, doubling, ddl_allgather_doubling, ddl_power_of_two, ddl_work_move_log,           \
      "log2 p rounds, n(p-1)/p bytes; p = 2^k", "Thakur, Rabenseifner, Gropp 2005")                          \
    BOTH(X, ALLGATHER, allgather, circulant, ddl_allgather_circulant, NULL, ddl_work_move_log,               \
         "ceil(log2 p) rounds, n(p-1)/p bytes; any p", "Traff 2024")                                         \
    X(ALLGATHER, allgather, bruck, ddl_allgather_bruck, NULL, ddl_work_allgather_bruck,                      \
      "ceil(log2 p) rounds, n(p-1)/p bytes; small blocks, any p", "Bruck et al. 1997")                       \
    BOTH(X, ALLGATHER, allgather, two_level, ddl_allgather_two_level, NULL, ddl_work_allgather_two_level,    \
         "direct inside hosts, circulant between them: n(h-1)/h bytes per host; several ranks per host",     \
         "Jain et al. 2018; Traff 2024")                                                                     \
    BOTH(Z, ALLGATHER, allgather, tree, ddl_allgather_tree, NULL,                                            \
         "2 ceil(log2 p) rounds, 2(p-1) messages in all; small blocks, many ranks per CPU or host",          \
         "Thakur, Rabenseifner, Gropp 2005", GATHER, ddl_work_root_log, BROADCAST,                           \
         ddl_work_broadcast_binomial)                                                                        \
    BOTH(Z, ALLGATHER, allgather, knomial, ddl_allgather_knomial, NULL,                                      \
         "ceil(log2 p) + ceil(log4 p) rounds, 2(p-1) messages in all; tiny blocks, many ranks",              \
         "Wilkins et al. 2023", GATHER, ddl_work_root_log, BROADCAST, ddl_work_broadcast_knomial)            \
    BOTH(Z, ALLGATHER, allgather, direct_tree, ddl_allgather_direct_tree, NULL,                              \
         "1 + ceil(log2 p) rounds, 2(p-1) messages in all; small blocks, many ranks per CPU",                \
         "Thakur, Rabenseifner, Gropp 2005", GATHER, ddl_work_root_direct, BROADCAST,                        \
         ddl_work_broadcast_binomial)                                                                        \
    BOTH(Z, ALLGATHER, allgather, direct_knomial, ddl_allgather_direct_knomial, NULL,                        \
         "1 + ceil(log4 p) rounds, 2(p-1) messages in all; tiny blocks, many ranks per CPU",                 \
         "Wilkins et al. 2023", GATHER, ddl_work_root_direct, BROADCAST, ddl_work_broadcast_knomial)         \
    X(BROADCAST, broadcast, binomial, ddl_broadcast_binomial, NULL, ddl_work_broadcast_binomial,             \
      "ceil(log2 p) rounds of n bytes; small vectors", "Johnsson, Ho 1989")                                  \
    X(BROADCAST, broadcast, knomial, ddl_broadcast_knomial, NULL, ddl_work_broadcast_knomial,                \
      "ceil(log4 p) rounds of up to 3 messages of n bytes; tiny vectors", "Wilkins et al. 2023")             \
    X(BROADCAST, broadcast, flat, ddl_broadcast_flat, NULL, ddl_work_broadcast_flat,                         \
      "1 round, of p-1 messages of n bytes; tiny vectors, ranks that share memory",                          \
      "folklore; Pjesivac-Grbovic et al. 2007")                                                              \
    X(BROADCAST, broadcast, scatter_allgather, ddl_broadcast_scatter_allgather, NULL,                        \
      ddl_work_scatter_allgather, "2 ceil(log2 p) rounds, 2n(p-1)/p bytes; medium vectors",                  \
      "Thakur, Rabenseifner, Gropp 2005")                                                                    \
    Y(BROADCAST, broadcast, direct, ddl_broadcast_direct, NULL, ddl_work_broadcast_direct,                   \
      "2 rounds, 2n(p-1)/p bytes; medium and large vectors, few ranks on hosts of their own or on few CPUs", \
      "Thakur, Rabenseifner, Gropp 2005", SCATTER, ddl_work_root_direct, ALLGATHER, ddl_work_move_direct)    \
    X(BROADCAST, broadcast, circulant, ddl_broadcast_circulant, NULL, ddl_work_broadcast_circulant,          \
      "ceil(log2 p)-1 rounds more than blocks, about n bytes; large vectors", "Traff 2024")                  \
    X(BROADCAST, broadcast, two_level, ddl_broadcast_two_level, NULL, ddl_work_broadcast_two_level,          \
      "direct inside hosts, pipelined between them: about n bytes per host; several ranks per host",         \
      "Jain et al. 2018; Traff 2024")                                                                        \
    X(REDUCE, reduce, binomial, ddl_reduce_binomial, NULL, ddl_work_reduce_binomial,                         \
      "ceil(log2 p) rounds of n bytes; small vectors", "Johnsson, Ho 1989")                                  \
    X(REDUCE, reduce, knomial, ddl_reduce_knomial, NULL, ddl_work_reduce_knomial,                            \
      "ceil(log4 p) rounds of up to 3 messages of n bytes; tiny vectors", "Wilkins et al. 2023")             \
    X(REDUCE, reduce, flat, ddl_reduce_flat, NULL, ddl_work_reduce_flat,                                     \
      "1 round, of p-1 messages of n bytes, rank order; tiny vectors, ranks that share memory",              \
      "folklore; Pjesivac-Grbovic et al. 2007")                                                              \
    X(REDUCE, reduce, scatter_gather, ddl_reduce_scatter_gather, NULL, ddl_work_scatter_gather,              \
      "2 ceil(log2 p) rounds, 2n(p-1)/p bytes; medium vectors", "Rabenseifner 2004")                         \
    Y(REDUCE, reduce, direct, ddl_reduce_direct, NULL, ddl_work_reduce_direct,                               \
      "2 rounds, 2n(p-1)/p bytes, rank order; medium and large vectors, few ranks on hosts of their own",    \
      "Rabenseifner 2004", REDUCE_SCATTER, ddl_work_scatter_direct, GATHER, ddl_work_root_direct)            \
    X(REDUCE, reduce, circulant, ddl_reduce_circulant, NULL, ddl_work_reduce_circulant,                      \
      "ceil(log2 p)-1 rounds more than blocks, about n bytes; large vectors", "Traff 2024")                  \
    X(REDUCE, reduce, two_level, ddl_reduce_two_level, NULL, ddl_work_reduce_two_level,                      \
      "direct inside hosts, pipelined between them: about n bytes per host; several ranks per host",         \
      "Jain et al. 2018; Traff 2024")                                                                        \
    BOTH(X, ALLTOALL, alltoall, direct, ddl_alltoall_direct, NULL, ddl_work_move_direct,                     \
         "1 round, n(p-1)/p bytes; few ranks, small blocks", "Thakur, Rabenseifner, Gropp 2005")             \
    BOTH(X, ALLTOALL, alltoall, pairwise, ddl_alltoall_pairwise, NULL, ddl_work_pairwise,                    \
         "ceil((p-1)/4) rounds of 4, n(p-1)/p bytes; many ranks, large blocks",                              \
         "Thakur, Rabenseifner, Gropp 2005")                                                                 \
    X(ALLTOALL, alltoall, bruck, ddl_alltoall_bruck, NULL, ddl_work_alltoall_bruck,                          \
      "ceil(log2 p) rounds of about n/2 bytes; tiny blocks, many ranks", "Bruck et al. 1997")                \
    X(ALLTOALL, alltoall, two_level, ddl_alltoall_two_level, NULL, ddl_work_alltoall_two_level,              \
      "direct inside hosts, then between them, h-1 messages; small blocks, several ranks per host",          \
      "Traff, Rougier 2014")                                                                                 \
    X(BARRIER, barrier, dissemination, ddl_barrier_dissemination, NULL, ddl_work_barrier,                    \
      "ceil(log2 p) rounds of one byte", "Hensgen, Finkel, Manber 1988")                                     \
    X(BARRIER, barrier, flat, ddl_barrier_flat, NULL, ddl_work_barrier_flat,                                 \
      "1 round, of p-1 messages of one byte; few ranks", "folklore; Mellor-Crummey, Scott 1991")             \
    Y(BARRIER, barrier, tree, ddl_barrier_tree, NULL, ddl_work_barrier_tree,                                 \
      "2 ceil(log4 p) rounds, 2(p-1) messages in all; ranks that share CPUs", "Wilkins et al. 2023", REDUCE, \
      ddl_work_reduce_knomial, BROADCAST, ddl_work_broadcast_knomial)                                        \
    BOTH(X, GATHER, gather, direct, ddl_gather_direct, NULL, ddl_work_root_direct,                           \
         "1 round, n(p-1)/p bytes to the root; large blocks, few ranks", "folklore")                         \
    BOTH(X, GATHER, gather, binomial, ddl_gather_binomial, NULL, ddl_work_root_log,                          \
         "ceil(log2 p) rounds, n(p-1)/p bytes to the root; small blocks, many ranks",                        \
         "Thakur, Rabenseifner, Gropp 2005")                                                                 \
    BOTH(X, SCATTER, scatter, direct, ddl_scatter_direct, NULL, ddl_work_root_direct,                        \
         "1 round, n(p-1)/p bytes from the root; large blocks, few ranks", "folklore")                       \
    BOTH(X, SCATTER, scatter, binomial, ddl_scatter_binomial, NULL, ddl_work_root_log,                       \
         "ceil(log2 p) rounds, n(p-1)/p bytes from the root; small blocks, many ranks",                      \
         "Thakur, Rabenseifner, Gropp 2005")                                                                 \
    X(SEND, send, direct, ddl_send_direct, NULL, ddl_work_point_to_point, "1 message", "folklore")           \
    X(RECV, recv, direct, ddl_recv_direct, NULL, ddl_work_point_to_point, "1 message", "folklore")

/* ---- building ---- */

/* Tell the builder how IN and OUT lie in one memory. */
static void alias_buffers(ddl_builder *b, ddl_collective collective, const ddl_shape *shape)
{
    size_t own_start = shape->blocks.counts != NULL ? shape->blocks.starts[shape->rank]
                                                    : (size_t)shape->rank * shape->stride;
    size_t own_block = own_start * shape->element_bytes;
    const ddl_collective_facts *facts = &ddl_collectives[collective];
    if (facts->in == DDL_NOTHING || facts->out == DDL_NOTHING)
        return;
    ddl_builder_alias(b, facts->in == DDL_OWN_BLOCK ? own_block : 0,
                      facts->out == DDL_OWN_BLOCK ? own_block : 0);
}

/* All collectives on one rank: the result is the input. */
static void build_alone(ddl_builder *b, ddl_collective collective, const ddl_shape *shape)
{
    if (ddl_collectives[collective].in != DDL_NOTHING)
        ddl_step_copy(b, ddl_out_vector(shape), ddl_in_vector(shape));
}

static ddl_status build(ddl_collective collective, const char *name, bool (*takes)(int),
                        void (*write)(ddl_builder *, const ddl_shape *), const ddl_shape *shape,
                        ddl_schedule **schedule, ddl_error *err)
{
    bool point_to_point = ddl_collective_is_point_to_point(collective);
    DDL_ASSERT(shape->nranks > 0);
    DDL_ASSERT(!point_to_point || shape->root != shape->rank);
    DDL_ASSERT(!ddl_collective_is_uneven(collective) || shape->blocks.counts != NULL);
    DDL_ASSERT(collective != DDL_COLLECTIVE_ALLTOALLV || shape->out_blocks.counts != NULL);
    if (takes != NULL && !takes(shape->nranks))
        return DDL_FAIL(err, DDL_EUNSUPPORTED, "%s/%s does not work for %d ranks",
                        ddl_collective_name(collective), name, shape->nranks);
    ddl_builder *b;
    DDL_TRY(ddl_builder_create(&(ddl_group){ shape->rank, shape->nranks }, shape->element_bytes, &b, err));
    if (shape->in_place)
        alias_buffers(b, collective, shape);
    if (shape->nranks == 1)
        build_alone(b, collective, shape);
    else
        write(b, shape);
    return ddl_builder_finish(b, schedule, err);
}

#define BUILD(COLLECTIVE, collective, name, writer, takes, work, summary, source)                  \
    static ddl_status build_##collective##_##name(const ddl_shape *shape, ddl_schedule **schedule, \
                                                  ddl_error *err)                                  \
    {                                                                                              \
        return build(DDL_COLLECTIVE_##COLLECTIVE, #name, takes, writer, shape, schedule, err);     \
    }
#define BUILD_TWO(COLLECTIVE, collective, name, writer, takes, work, summary, source, ...) \
    BUILD(COLLECTIVE, collective, name, writer, takes, work, summary, source)
#define BUILD_BY_ROOT(COLLECTIVE, collective, name, writer, takes, summary, source, FIRST, first_work, \
                      SECOND, second_work)                                                             \
    static ddl_work work_##collective##_##name(const ddl_placement *where, double n)                   \
    {                                                                                                  \
        return ddl_work_by_root(where, first_work(where, n), second_work(where, n));                   \
    }                                                                                                  \
    BUILD(COLLECTIVE, collective, name, writer, takes, work, summary, source)
ROWS(BUILD, BUILD_TWO, BUILD_BY_ROOT)

#define ROW(COLLECTIVE, collective, name, writer, takes, work, summary, source) \
    {                                                                           \
        #name, DDL_COLLECTIVE_##COLLECTIVE, summary,  source, takes,            \
        work,  build_##collective##_##name, { { 0 } }                           \
    },
#define ROW_TWO(COLLECTIVE, collective, name, writer, takes, work, summary, source, FIRST, first_work, \
                SECOND, second_work)                                                                   \
    { #name,                                                                                           \
      DDL_COLLECTIVE_##COLLECTIVE,                                                                     \
      summary,                                                                                         \
      source,                                                                                          \
      takes,                                                                                           \
      work,                                                                                            \
      build_##collective##_##name,                                                                     \
      { { DDL_COLLECTIVE_##FIRST, first_work }, { DDL_COLLECTIVE_##SECOND, second_work } } },
#define ROW_BY_ROOT(COLLECTIVE, collective, name, writer, takes, summary, source, FIRST, first_work, SECOND, \
                    second_work)                                                                             \
    ROW_TWO(COLLECTIVE, collective, name, writer, takes, work_##collective##_##name, summary, source, FIRST, \
            first_work, SECOND, second_work)
static const ddl_algorithm rows[] = { ROWS(ROW, ROW_TWO, ROW_BY_ROOT) };

bool ddl_shape_makes_sense(ddl_collective collective, const ddl_shape *shape)
{
    const ddl_collective_facts *facts = &ddl_collectives[collective];
    if (collective == DDL_COLLECTIVE_BROADCAST)
        return shape->in_place;
    if (!shape->in_place)
        return true;
    return facts->in != DDL_NOTHING && facts->out != DDL_NOTHING &&
           (!facts->is_rooted || shape->rank == shape->root);
}

const ddl_algorithm *ddl_catalogue(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}

const ddl_algorithm *ddl_catalogue_find(ddl_collective collective, const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].collective == collective && strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

int ddl_catalogue_index(const ddl_algorithm *algorithm)
{
    DDL_ASSERT(rows <= algorithm);
    DDL_ASSERT(algorithm < rows + sizeof rows / sizeof rows[0]);
    return (int)(algorithm - rows);
}

bool ddl_algorithm_takes(const ddl_algorithm *algorithm, int nranks)
{
    return algorithm->takes == NULL || algorithm->takes(nranks);
}
