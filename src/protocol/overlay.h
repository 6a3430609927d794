/*
 * overlay.h - the pairs of ranks that are connected from the start even where the others connect when they
 * need it: each rank and those at distances 1, 2, 4, ... on both sides of it, in a circle.
 *
 * Pure. What all are to hear goes along these, from rank to rank: it takes at most ceil(log2 n) hops, and
 * as long as fewer ranks are gone than one has neighbours here, whoever is left is still reached. Schedules
 * whose distances are powers of two need no other pairs.
 */
#ifndef DDL_PROTOCOL_OVERLAY_H
#define DDL_PROTOCOL_OVERLAY_H

#include <stdbool.h>

/* Whether ranks a and b of n are neighbours here. The same both ways. */
static inline bool ddl_overlay_has(int n, int a, int b)
{
    unsigned up = (unsigned)((b - a + n) % n), down = (unsigned)n - up;
    return up != 0 && ((up & (up - 1)) == 0 || (down & (down - 1)) == 0);
}

/* How many neighbours each rank has. */
static inline int ddl_overlay_degree(int n)
{
    int degree = 0;
    for (int other = 1; other < n; other++)
        degree += ddl_overlay_has(n, 0, other);
    return degree;
}

/* Whether all pairs are neighbours. */
static inline bool ddl_overlay_is_complete(int n)
{
    return ddl_overlay_degree(n) == n - 1;
}

#endif
