/*
 * balance.h - ranks that share CPUs take as many of them on each.
 *
 * A rank that waits yields, and so never leaves its CPU idle; the system, which moves threads to idle CPUs at
 * once, and others in its own time, may leave three ranks on one CPU and one on another for as long as many
 * calls take, each of which then takes half as long again. So ranks tell each other on which CPU they drive,
 * and one of those that are too many moves. It is not bound: it may be moved again, by the system, too.
 */
#ifndef DDL_TRANSPORT_BALANCE_H
#define DDL_TRANSPORT_BALANCE_H

#include "io/engine.h"
#include "transport/lanes.h"

enum { DDL_BALANCE_RANKS = 64 /* of a host; with more nobody looks */ };

typedef struct ddl_balance {   /* zeroed at first */
    int64_t next_ns, pause_ns; /* when this rank may move again, and how long it waits after that */
    int64_t arrives_ns;        /* by then it is where it was to move, */
    int chosen;                /* which it tells others until then */
} ddl_balance;

/* Where a rank is as others know it. */
typedef struct ddl_whereabouts {
    int rank, cpu;
    bool may_move; /* else it is only counted */
} ddl_whereabouts;

/* To which of these CPUs, all that it may use, the rank is to move so that they have as many ranks each, give
 * or take one; -1: it is not the one to move, which is the highest of those that may on a CPU that has too
 * many. Of several that are as good it is the next one. Pure. */
int ddl_balance_choose(const ddl_whereabouts ranks[], int nranks, int rank, const int cpus[], int ncpus);

/* To be called every few milliseconds by a thread of the program that waits: tell where it is, and have the
 * engine move it if it is to, and all that share its CPUs wait as well. lanes NULL: nobody is told. Holder.
 */
void ddl_balance_look(ddl_balance *balance, ddl_lanes *lanes, const ddl_roster *roster, ddl_engine *engine,
                      int64_t now_ns);

#endif
