/*
 * kernels.h - the loops under compute_cpu.c: one table of them for each instruction set.
 *
 * kernels.c is compiled once per table; compute_cpu.c chooses one that the machine can run. All tables give
 * the same bits.
 */
#ifndef DDL_COMPUTE_KERNELS_H
#define DDL_COMPUTE_KERNELS_H

#include "base/dtype.h"

#if defined(DDL_KERNELS_PLAIN_ALONE)
/* by the option -Dkernels=plain */
#elif defined(__x86_64__)
#define DDL_KERNELS_X86
#elif defined(__aarch64__)
#define DDL_KERNELS_NEON
#endif

/* Elements first .. first+count of target from those of the operands; see compute.h. first is a multiple
 * of 64. also: of two operands, where the result goes as well; NULL: nowhere. */
typedef void ddl_kernel_reduce(void *target, void *also, const void *const operands[], int noperands,
                               size_t first, size_t count);

/* Whole lines of target, which begins with one, from those of two operands, past the caches; target may be
 * the same memory as one of them. */
typedef void ddl_kernel_reduce_lines(void *target, const void *a, const void *b, size_t nlines);

enum { DDL_KERNEL_LINE = 64 /* bytes */ };

/* Elements first .. first+count of target, divided; first is a multiple of 64. */
typedef void ddl_kernel_scale(void *target, size_t first, size_t count, int divisor);

struct ddl_kernels {
    ddl_kernel_reduce *reduce[DDL_DTYPE_COUNT][DDL_OP_COUNT]; /* NULL: not defined for this type */
    ddl_kernel_reduce_lines *reduce_lines[DDL_DTYPE_COUNT][DDL_OP_COUNT]; /* likewise, or all: cannot be */
    ddl_kernel_scale *scale[DDL_DTYPE_COUNT];
};

extern const struct ddl_kernels ddl_kernels_plain;
#ifdef DDL_KERNELS_X86
extern const struct ddl_kernels ddl_kernels_avx2;
extern const struct ddl_kernels ddl_kernels_avx512;
#endif
#ifdef DDL_KERNELS_NEON
extern const struct ddl_kernels ddl_kernels_neon;
#endif

#endif
