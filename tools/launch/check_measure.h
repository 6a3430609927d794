/*
 * check_measure.h - how fast the links of a world are, and what its ranks say of themselves.
 *
 * It uses what every program uses, <ddl/ddl.h>.
 */
#ifndef DDL_LAUNCH_CHECK_MEASURE_H
#define DDL_LAUNCH_CHECK_MEASURE_H

#include <ddl/ddl.h>

#include <stdbool.h>

enum { CHECK_POINTS_MAX = 16 }; /* ranks whose links are measured: as pairs, they take time */

/* What one rank says of itself. */
typedef struct check_facts {
    char version[32], system[96];
    int node;
    double clock_ms; /* its wall clock less that of rank 0 */
} check_facts;

typedef struct check_measured {
    check_facts *facts; /* of each rank */
    int npoints, points[CHECK_POINTS_MAX];
    bool by_host; /* points are the first ranks of hosts, and not all ranks of one */
    double latency_us[CHECK_POINTS_MAX][CHECK_POINTS_MAX]; /* half of a round trip of 8 bytes */
    double mb_per_s[CHECK_POINTS_MAX][CHECK_POINTS_MAX];   /* sent from row to column */
} check_measured;

/* Every rank calls it; rank 0 then has all. Details of a failure are in ddl_last_error. */
ddl_status check_measure(ddl_comm *world, check_measured *measured);

void check_measured_fini(check_measured *measured);

#endif
