/* balance.c - see balance.h. */
#include "transport/balance.h"

#include "base/clock.h"
#include "base/log.h"
#include "io/host.h"

#include <stdatomic.h>

enum {
    FRESH_MS = 60,  /* of three looks of one who sleeps; what was told before may not be so any more */
    ARRIVE_MS = 20, /* others would follow one who is still seen where it was */
    FIRST_PAUSE_MS = 20,
    LONGEST_PAUSE_MS = 10000, /* where the system knows better, as others use a CPU */
    CPUS_MOST = 1024
};

/* ---- choosing ---- */

static int count_on(const ddl_whereabouts ranks[], int nranks, int cpu)
{
    int count = 0;
    for (int i = 0; i < nranks; i++)
        count += ranks[i].cpu == cpu;
    return count;
}

static const ddl_whereabouts *find_mover(const ddl_whereabouts ranks[], int nranks, int cpu)
{
    const ddl_whereabouts *highest = NULL;
    for (int i = 0; i < nranks; i++)
        if (ranks[i].cpu == cpu && ranks[i].may_move && (highest == NULL || ranks[i].rank > highest->rank))
            highest = &ranks[i];
    return highest;
}

static int index_of(int cpu, const int cpus[], int ncpus)
{
    for (int i = 0; i < ncpus; i++)
        if (cpus[i] == cpu)
            return i;
    return 0;
}

int ddl_balance_choose(const ddl_whereabouts ranks[], int nranks, int rank, const int cpus[], int ncpus)
{
    const ddl_whereabouts *own = NULL;
    for (int i = 0; i < nranks; i++)
        own = ranks[i].rank == rank ? &ranks[i] : own;
    if (own == NULL || find_mover(ranks, nranks, own->cpu) != own)
        return -1;
    const int begin = index_of(own->cpu, cpus, ncpus);
    int best = -1,
        fewest = count_on(ranks, nranks, own->cpu) - 1; /* one fewer is one too many with this one */
    for (int i = 0; i < ncpus; i++) {
        const int cpu = cpus[(begin + i) % ncpus], count = count_on(ranks, nranks, cpu);
        if (count < fewest) {
            fewest = count;
            best = cpu;
        }
    }
    return best;
}

/* ---- telling and moving ---- */

/* A word: the milliseconds of the clock that all have, whether the rank may move, and the CPU. */
enum { CPU_BITS = 16 };
#define CPU_MASK  ((UINT64_C(1) << CPU_BITS) - 1)
#define MAY_MOVE  (UINT64_C(1) << CPU_BITS)
#define TIME_BITS (CPU_BITS + 1)

static void tell(_Atomic(uint64_t) *place, int cpu, bool may_move, int64_t now_ns)
{
    const uint64_t word =
        (uint64_t)(now_ns / DDL_NS_PER_MS) << TIME_BITS | (may_move ? MAY_MOVE : 0) | (uint64_t)cpu;
    atomic_store_explicit(place, word, memory_order_relaxed);
}

/* Nor is what comes from a clock that is ahead, as that of a container may be. */
static bool is_fresh(uint64_t word, int64_t now_ns)
{
    const int64_t age_ms = now_ns / DDL_NS_PER_MS - (int64_t)(word >> TIME_BITS);
    return age_ms > -FRESH_MS && age_ms < FRESH_MS;
}

static bool shares_cpus(const ddl_roster *roster, int rank)
{
    const ddl_member *own = &roster->members[roster->rank], *other = &roster->members[rank];
    return own->first_cpu == other->first_cpu && own->cpus == other->cpus;
}

/* Of this host, with this one. False: of one that shares the CPUs it is not known where it is, as it
 * computes, and uses one of them. */
static bool find_ranks(ddl_lanes *lanes, const ddl_roster *roster, int64_t now_ns, ddl_whereabouts ranks[],
                       int *nranks)
{
    *nranks = 0;
    for (int rank = 0; rank < roster->nranks; rank++) {
        if (rank != roster->rank && !ddl_roster_is_neighbour(roster, rank))
            continue;
        const _Atomic(uint64_t) *place = ddl_lanes_place(lanes, rank);
        const uint64_t word = place != NULL ? atomic_load_explicit(place, memory_order_relaxed) : 0;
        const bool is_sharer = shares_cpus(roster, rank);
        if (is_fresh(word, now_ns))
            ranks[(*nranks)++] = (ddl_whereabouts){ .rank = rank,
                                                    .cpu = (int)(word & CPU_MASK),
                                                    .may_move = is_sharer && (word & MAY_MOVE) != 0 };
        else if (is_sharer)
            return false;
    }
    return true;
}

static int64_t next_pause(const ddl_balance *balance, int64_t now_ns)
{
    const bool is_long_ago = now_ns - balance->next_ns > LONGEST_PAUSE_MS * DDL_NS_PER_MS;
    if (balance->pause_ns == 0 || is_long_ago)
        return FIRST_PAUSE_MS * DDL_NS_PER_MS;
    return balance->pause_ns < LONGEST_PAUSE_MS * DDL_NS_PER_MS / 2 ? 2 * balance->pause_ns
                                                                    : LONGEST_PAUSE_MS * DDL_NS_PER_MS;
}

/* Where a quota is what there is too little of, CPUs are idle, and the system spreads threads by itself. */
static bool is_of_use(const ddl_roster *roster)
{
    return ddl_roster_is_crowded(roster) && roster->members[roster->rank].first_cpu != DDL_HOST_ANY_CPU &&
           roster->local_size_of[roster->rank] <= DDL_BALANCE_RANKS;
}

void ddl_balance_look(ddl_balance *balance, ddl_lanes *lanes, const ddl_roster *roster, ddl_engine *engine,
                      int64_t now_ns)
{
    ddl_whereabouts ranks[DDL_BALANCE_RANKS];
    int cpus[CPUS_MOST], nranks;
    if (lanes == NULL || !is_of_use(roster))
        return;
    const int cpu = ddl_host_cpu(), ncpus = ddl_host_list_cpus(cpus, CPUS_MOST);
    if (cpu < 0 || cpu > (int)CPU_MASK)
        return;
    _Atomic(uint64_t) *own = ddl_lanes_place(lanes, roster->rank);
    const bool may_move = ncpus > 1 && now_ns >= balance->next_ns;
    tell(own, now_ns < balance->arrives_ns ? balance->chosen : cpu, may_move, now_ns);
    if (!may_move || !find_ranks(lanes, roster, now_ns, ranks, &nranks))
        return;
    const int chosen = ddl_balance_choose(ranks, nranks, roster->rank, cpus, ncpus);
    if (chosen < 0)
        return;
    tell(own, chosen, false, now_ns); /* at once, lest others choose it too */
    balance->pause_ns = next_pause(balance, now_ns);
    balance->next_ns = now_ns + balance->pause_ns;
    balance->arrives_ns = now_ns + ARRIVE_MS * DDL_NS_PER_MS;
    balance->chosen = chosen;
    ddl_log(DDL_LOG_DEBUG, "rank %d moves from CPU %d to CPU %d, where fewer ranks of this host are",
            roster->rank, cpu, chosen);
    ddl_engine_move(engine, chosen);
}
