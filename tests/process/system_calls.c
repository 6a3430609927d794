/*
 * system_calls - a rank that counts: where the others have come already, a call makes no system call.
 *
 * Two ranks with a core each, over shared memory. Rank 0 comes some 20 us later than the other, which still
 * looks then, and sleeps nowhere. The kernel hands every system call of its thread to a handler while a byte
 * says so (PR_SET_SYSCALL_USER_DISPATCH, Linux 5.11): it notes the first of a call, performs it, and lets
 * the others of that call pass. One whose first yields the core has waited for the other, which lacked one.
 */
#include <ddl/ddl.h>

#include "../support/now.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

enum { OFF, ON, ALLOW = 0, BLOCK = 1 };
enum { WARM_UP = 500, ROUNDS = 2000, LATER_NS = 20000, SKIPPED = 77 };

/* Of calls that need not wait, how many may make one, as a core is taken away now and then for long; and how
 * many may have to wait, as where other programs run. */
enum { BY_CHANCE = ROUNDS / 20, MOST_WAIT = ROUNDS / 10 * 9 };

static volatile char selector = ALLOW;
static volatile sig_atomic_t first; /* its number; -1: none */

static void on_system_call(int number, siginfo_t *info, void *context)
{
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number;
    selector = ALLOW;
    first = info->si_syscall;
    long result = syscall(info->si_syscall, regs[REG_RDI], regs[REG_RSI], regs[REG_RDX], regs[REG_R10],
                          regs[REG_R8], regs[REG_R9]);
    regs[REG_RAX] = result == -1 ? -errno : result;
}

static void wait_a_moment(void)
{
    for (const int64_t until_ns = now_ns() + LATER_NS; now_ns() < until_ns;)
        continue;
}

static double data[512], all[2 * 512];

static ddl_status barrier(ddl_comm *world)
{
    return ddl_barrier(world, NULL);
}

static ddl_status allreduce_8_bytes(ddl_comm *world)
{
    return ddl_allreduce(data, data, 1, DDL_FLOAT64, DDL_MAX, world, NULL);
}

static ddl_status allreduce_4_kib(ddl_comm *world)
{
    return ddl_allreduce(data, data, 512, DDL_FLOAT64, DDL_MAX, world, NULL);
}

static ddl_status broadcast_from_the_other(ddl_comm *world)
{
    return ddl_broadcast(data, 64, DDL_FLOAT64, 1, world, NULL);
}

static ddl_status reduce_to_this(ddl_comm *world)
{
    return ddl_reduce(data, data, 64, DDL_FLOAT64, DDL_MAX, 0, world, NULL);
}

static ddl_status allgather_1_kib(ddl_comm *world)
{
    return ddl_allgather(data, all, 128, DDL_FLOAT64, world, NULL);
}

static const struct kind {
    const char *name;
    ddl_status (*call)(ddl_comm *world);
} kinds[] = {
    { "barrier", barrier },
    { "allreduce of 8 bytes", allreduce_8_bytes },
    { "allreduce of 4 KiB", allreduce_4_kib },
    { "broadcast of 512 bytes", broadcast_from_the_other },
    { "reduce of 512 bytes", reduce_to_this },
    { "allgather of 1 KiB", allgather_1_kib },
};

static bool is_quiet(const struct kind *kind, ddl_comm *world)
{
    int waited = 0, others = 0, last = -1;
    for (int round = -WARM_UP; round < ROUNDS; round++) {
        const bool counts = round >= 0 && ddl_rank(world) == 0;
        if (counts)
            wait_a_moment();
        first = -1;
        selector = counts ? BLOCK : ALLOW;
        ddl_status status = kind->call(world);
        selector = ALLOW;
        if (status != DDL_OK) {
            fprintf(stderr, "system_calls: %s\n", ddl_last_error()->text);
            return false;
        }
        if (first == SYS_sched_yield) {
            waited++;
        } else if (first != -1) {
            others++;
            last = first;
        }
    }
    if (ddl_rank(world) == 0)
        printf("%s: %d calls waited, %d of the others made a system call, the last number %d\n", kind->name,
               waited, others, last);
    return waited <= MOST_WAIT && others <= BY_CHANCE;
}

/* That the counter counts, and the call comes to its result. */
static bool works(void)
{
    selector = BLOCK;
    const long process = syscall(SYS_getpid);
    selector = ALLOW;
    return first == SYS_getpid && process == getpid();
}

int main(void)
{
    ddl_comm *world = NULL;
    struct sigaction action = { .sa_sigaction = on_system_call, .sa_flags = SA_SIGINFO };
    bool good = true;
    sigaction(SIGSYS, &action, NULL);
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) /* who waits there yields at once */
        return SKIPPED;
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, 0, 0, &selector) != 0)
        return SKIPPED;
    if (!works()) {
        fprintf(stderr, "system_calls: the counter does not count\n");
        return 1;
    }
    if (ddl_init(&world, NULL) != DDL_OK) {
        fprintf(stderr, "system_calls: %s\n", ddl_last_error()->text);
        return 1;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        good = is_quiet(&kinds[i], world) && good;
    good = ddl_comm_free(&world) == DDL_OK && good;
    prctl(PR_SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, NULL);
    return good ? 0 : 1;
}
