/* compute_cpu.c - the variant of the kernels that this machine runs best, behind the interface of compute.h.
 */
#include "compute/compute_cpu.h"

#include "base/assert.h"
#include "base/copy.h"
#include "base/dtype.h"
#include "compute/kernels.h"

#include <string.h>

#ifdef DDL_KERNELS_X86
#include <cpuid.h>
#endif

struct cpu_compute {
    ddl_compute base;
    const char *name;
    const struct ddl_kernels *kernels;
};

static void reduce(ddl_compute *compute, void *target, const void *const operands[], int noperands,
                   size_t count, ddl_dtype dtype, ddl_op op)
{
    DDL_ASSERT(noperands >= 2);
    DDL_ASSERT(ddl_op_takes(op, dtype));
    const struct cpu_compute *cpu = (const struct cpu_compute *)compute;
    cpu->kernels->reduce[dtype][op](target, NULL, operands, noperands, 0, count);
}

static void reduce_twice(ddl_compute *compute, void *target, void *also, const void *const operands[2],
                         size_t count, ddl_dtype dtype, ddl_op op)
{
    DDL_ASSERT(ddl_op_takes(op, dtype));
    const struct cpu_compute *cpu = (const struct cpu_compute *)compute;
    cpu->kernels->reduce[dtype][op](target, also, operands, 2, 0, count);
}

static void copy(ddl_compute *compute, void *target, const void *source, size_t bytes, bool past_caches)
{
    (void)compute;
    ddl_copy(target, source, bytes, past_caches);
}

static void scale(ddl_compute *compute, void *target, size_t count, ddl_dtype dtype, int divisor)
{
    DDL_ASSERT(divisor >= 1);
    DDL_ASSERT((unsigned)dtype < DDL_DTYPE_COUNT);
    const struct cpu_compute *cpu = (const struct cpu_compute *)compute;
    cpu->kernels->scale[dtype](target, 0, count, divisor);
}

static const struct ddl_compute_ops cpu_ops = { "cpu", reduce, reduce_twice, copy, scale };

/* Best first. A machine that runs one of them runs all that follow it. */
static const struct cpu_compute variants[] = {
#ifdef DDL_KERNELS_X86
    { { &cpu_ops }, "avx512", &ddl_kernels_avx512 },
    { { &cpu_ops }, "avx2", &ddl_kernels_avx2 },
#endif
#ifdef DDL_KERNELS_NEON
    { { &cpu_ops }, "neon", &ddl_kernels_neon },
#endif
    { { &cpu_ops }, "plain", &ddl_kernels_plain },
};

static const char *const names[] = {
#ifdef DDL_KERNELS_X86
    "avx512", "avx2",
#endif
#ifdef DDL_KERNELS_NEON
    "neon",
#endif
    "plain",  NULL,
};

#ifdef DDL_KERNELS_X86
/* Not every compiler's __builtin_cpu_supports knows this one by name: clang 14 does not. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

/* The index of the first variant that this machine can run. */
static size_t best(void)
{
#ifdef DDL_KERNELS_X86
    if (!__builtin_cpu_supports("avx2") || !has_f16c())
        return 2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return 1;
#endif
    return 0;
}

/* What is const is never written: the interface takes a pointer to an object for those that have a state. */
ddl_compute *ddl_compute_cpu(void)
{
    return (ddl_compute *)&variants[best()].base;
}

const char *const *ddl_compute_cpu_variants(void)
{
    return &names[best()];
}

ddl_compute *ddl_compute_cpu_variant(const char *name)
{
    for (size_t i = best(); i < sizeof variants / sizeof *variants; i++)
        if (strcmp(variants[i].name, name) == 0)
            return (ddl_compute *)&variants[i].base;
    return NULL;
}
