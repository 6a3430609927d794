/* balance.c - see balance.h. */
#include "transport/balance.h"

#include "base/clock.h"
#include "base/log.h"
#include "io/host.h"

#include <stdatomic.h>

enum {
    FRESH_MS = 100, /* what was told before may not be so any more */
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

static const ddl_whereabouts *find_highest(const ddl_whereabouts ranks[], int nranks, int cpu)
{
    const ddl_whereabouts *highest = NULL;
    for (int i = 0; i < nranks; i++)
        if (ranks[i].cpu == cpu && (highest == NULL || ranks[i].rank > highest->rank))
            highest = &ranks[i];
    return highest;
}

int ddl_balance_choose(const ddl_whereabouts ranks[], int nranks, int rank, const int cpus[], int ncpus)
{
    const ddl_whereabouts *own = NULL;
    for (int i = 0; i < nranks; i++)
        own = ranks[i].rank == rank ? &ranks[i] : own;
    if (own == NULL || ncpus == 0 || find_highest(ranks, nranks, own->cpu) != own)
        return -1;
    int best = -1,
        fewest = count_on(ranks, nranks, own->cpu) - 1; /* one fewer is no better when this is there */
    for (int i = 0; i < ncpus; i++) {
        const int count = count_on(ranks, nranks, cpus[i]);
        if (count < fewest) {
            fewest = count;
            best = cpus[i];
        }
    }
    return best;
}

/* ---- telling and moving ---- */

/* A word: the milliseconds of the clock that all have, and the CPU. */
enum { CPU_BITS = 16 };

static uint64_t word_of(int cpu, int64_t now_ns)
{
    return (uint64_t)(now_ns / DDL_NS_PER_MS) << CPU_BITS | (uint64_t)cpu;
}

/* Nor is what comes from a clock that is ahead, as that of a container may be. */
static bool is_fresh(uint64_t word, int64_t now_ns)
{
    const int64_t age_ms = now_ns / DDL_NS_PER_MS - (int64_t)(word >> CPU_BITS);
    return age_ms > -FRESH_MS && age_ms < FRESH_MS;
}

static bool shares_cpus(const ddl_roster *roster, int rank)
{
    const ddl_member *own = &roster->members[roster->rank], *other = &roster->members[rank];
    return own->first_cpu == other->first_cpu && own->cpus == other->cpus;
}

/* Of those that have told lately, with this rank. */
static int find_ranks(ddl_lanes *lanes, const ddl_roster *roster, int64_t now_ns, ddl_whereabouts ranks[])
{
    int nranks = 0;
    for (int rank = 0; rank < roster->nranks && nranks < DDL_BALANCE_RANKS; rank++) {
        const _Atomic(uint64_t) *place = ddl_lanes_place(lanes, rank);
        if (place == NULL || !shares_cpus(roster, rank))
            continue;
        const uint64_t word = atomic_load_explicit(place, memory_order_relaxed);
        if (is_fresh(word, now_ns))
            ranks[nranks++] = (ddl_whereabouts){ rank, (int)(word & ((1 << CPU_BITS) - 1)) };
    }
    return nranks;
}

static int64_t next_pause(const ddl_balance *balance, int64_t now_ns)
{
    const bool is_long_ago = now_ns - balance->next_ns > LONGEST_PAUSE_MS * DDL_NS_PER_MS;
    if (balance->pause_ns == 0 || is_long_ago)
        return FIRST_PAUSE_MS * DDL_NS_PER_MS;
    return balance->pause_ns < LONGEST_PAUSE_MS * DDL_NS_PER_MS / 2 ? 2 * balance->pause_ns
                                                                    : LONGEST_PAUSE_MS * DDL_NS_PER_MS;
}

void ddl_balance_look(ddl_balance *balance, ddl_lanes *lanes, const ddl_roster *roster, int64_t now_ns)
{
    ddl_whereabouts ranks[DDL_BALANCE_RANKS];
    int cpus[CPUS_MOST];
    const int cpu = ddl_host_cpu();
    if (lanes == NULL || cpu < 0 || cpu >= 1 << CPU_BITS || !ddl_roster_is_crowded(roster) ||
        roster->local_size_of[roster->rank] > DDL_BALANCE_RANKS)
        return;
    _Atomic(uint64_t) *own = ddl_lanes_place(lanes, roster->rank);
    atomic_store_explicit(own, word_of(cpu, now_ns), memory_order_relaxed);
    if (now_ns < balance->next_ns)
        return;
    const int nranks = find_ranks(lanes, roster, now_ns, ranks);
    if (count_on(ranks, nranks, cpu) < 2)
        return;
    const int chosen =
        ddl_balance_choose(ranks, nranks, roster->rank, cpus, ddl_host_list_cpus(cpus, CPUS_MOST));
    if (chosen < 0 || !ddl_host_move_thread(chosen))
        return;
    atomic_store_explicit(own, word_of(chosen, now_ns), memory_order_relaxed);
    ddl_log(DDL_LOG_DEBUG, "rank %d moves from CPU %d to CPU %d, where fewer ranks of this host are",
            roster->rank, cpu, chosen);
    balance->pause_ns = next_pause(balance, now_ns);
    balance->next_ns = now_ns + balance->pause_ns;
}
