/* compute_cpu.c - the variant of the kernels that this machine runs best, behind the interface of compute.h.
 */
#include "compute/compute_cpu.h"

#include "base/assert.h"
#include "base/copy.h"
#include "base/dtype.h"
#include "base/floating.h"
#include "base/size.h"
#include "compute/kernels.h"

#include <string.h>

#ifdef DDL_KERNELS_X86
#include <cpuid.h>
#endif

enum {
    LEAST_PAST_BYTES = 256,
    PART_BYTES = 8 * 1024, /* a multiple of any element */
    MOST_BY_PARTS = 64     /* operands */
};

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
    const ddl_floating before = ddl_floating_enter();
    cpu->kernels->reduce[dtype][op](target, NULL, operands, noperands, 0, count);
    ddl_floating_leave(before);
}

static void reduce_twice(ddl_compute *compute, void *target, void *also, const void *const operands[2],
                         size_t count, ddl_dtype dtype, ddl_op op)
{
    DDL_ASSERT(ddl_op_takes(op, dtype));
    const struct cpu_compute *cpu = (const struct cpu_compute *)compute;
    const ddl_floating before = ddl_floating_enter();
    cpu->kernels->reduce[dtype][op](target, also, operands, 2, 0, count);
    ddl_floating_leave(before);
}

/* Through a part that stays in the nearest cache. */
static void reduce_by_parts(const struct cpu_compute *cpu, void *target, const void *const operands[],
                            int noperands, size_t count, ddl_dtype dtype, ddl_op op)
{
    _Alignas(64) uint8_t part[PART_BYTES];
    const size_t element_bytes = ddl_dtype_bytes(dtype), most = sizeof part / element_bytes;
    const void *from[MOST_BY_PARTS];
    for (size_t done = 0, here; done < count; done += here) {
        here = ddl_size_min(count - done, most);
        for (int k = 0; k < noperands; k++)
            from[k] = (const char *)operands[k] + done * element_bytes;
        cpu->kernels->reduce[dtype][op](part, NULL, from, noperands, 0, here);
        ddl_copy((char *)target + done * element_bytes, part, here * element_bytes, true);
    }
}

/* Whole lines of the target past the caches, and what is before and behind them by themselves. */
static void reduce_by_lines(const struct cpu_compute *cpu, char *target, const void *const operands[2],
                            size_t count, ddl_dtype dtype, ddl_op op)
{
    const size_t element_bytes = ddl_dtype_bytes(dtype);
    const size_t before = -(uintptr_t)target % DDL_KERNEL_LINE;
    const size_t lines = (count * element_bytes - before) / DDL_KERNEL_LINE;
    const size_t after = before + lines * DDL_KERNEL_LINE;
    const char *a = operands[0], *b = operands[1];
    const void *rest[2] = { a + after, b + after };
    cpu->kernels->reduce[dtype][op](target, NULL, operands, 2, 0, before / element_bytes);
    cpu->kernels->reduce_lines[dtype][op](target + before, a + before, b + before, lines);
    cpu->kernels->reduce[dtype][op](target + after, NULL, rest, 2, 0, count - after / element_bytes);
}

static void reduce_past(ddl_compute *compute, void *target, const void *const operands[], int noperands,
                        size_t count, ddl_dtype dtype, ddl_op op)
{
    const struct cpu_compute *cpu = (const struct cpu_compute *)compute;
    const size_t bytes = count * ddl_dtype_bytes(dtype);
    DDL_ASSERT(noperands >= 2);
    DDL_ASSERT(ddl_op_takes(op, dtype));
    const bool is_aligned =
        (uintptr_t)target % ddl_dtype_bytes(dtype) == 0; /* of a program that cares less */
    const ddl_floating before = ddl_floating_enter();
    if (bytes < LEAST_PAST_BYTES || noperands > MOST_BY_PARTS || !is_aligned)
        reduce(compute, target, operands, noperands, count, dtype, op);
    else if (noperands == 2 && cpu->kernels->reduce_lines[dtype][op] != NULL)
        reduce_by_lines(cpu, target, operands, count, dtype, op);
    else
        reduce_by_parts(cpu, target, operands, noperands, count, dtype, op);
    ddl_floating_leave(before);
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
    const ddl_floating before = ddl_floating_enter();
    cpu->kernels->scale[dtype](target, 0, count, divisor);
    ddl_floating_leave(before);
}

static const struct ddl_compute_ops cpu_ops = { reduce, reduce_past, reduce_twice, copy, scale };

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

enum { VARIANTS = sizeof variants / sizeof *variants };

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

const char *ddl_compute_cpu_name(size_t index)
{
    const size_t at = best() + index;
    return at < VARIANTS ? variants[at].name : NULL;
}

ddl_compute *ddl_compute_cpu_variant(const char *name)
{
    for (size_t i = best(); i < VARIANTS; i++)
        if (strcmp(variants[i].name, name) == 0)
            return (ddl_compute *)&variants[i].base;
    return NULL;
}
