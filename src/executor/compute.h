/*
 * compute.h - what the executor needs of a way to combine elements: reduce, copy, scale.
 *
 * All pointers are aligned to the element at least. Calls finish before they return.
 * Implemented by compute_cpu.c; simulate has one that costs virtual time.
 */
#ifndef DDL_EXECUTOR_COMPUTE_H
#define DDL_EXECUTOR_COMPUTE_H

#include <ddl/ddl.h>

typedef struct ddl_compute ddl_compute;

struct ddl_compute_ops {
    /*
     * target[i] = operands[0][i] op operands[1][i] op ... in this order, for count elements. Two operands
     * or more. target may be the same pointer as one operand and overlaps none otherwise. DDL_AVG sums.
     * 16-bit floats accumulate in float32 and are rounded once.
     */
    void (*reduce)(ddl_compute *compute, void *target, const void *const operands[], int noperands,
                   size_t count, ddl_dtype dtype, ddl_op op);
    /* The same, of a result that nobody looks at soon, and that is best no operand: it goes past the caches,
     * if that can be. */
    void (*reduce_past)(ddl_compute *compute, void *target, const void *const operands[], int noperands,
                        size_t count, ddl_dtype dtype, ddl_op op);
    /* The same of two operands, with the result in two places; each may be the same pointer as one operand,
     * and overlaps none otherwise, nor the other. NULL where no transport has it called (ddl_xfer.give). */
    void (*reduce_twice)(ddl_compute *compute, void *target, void *also, const void *const operands[2],
                         size_t count, ddl_dtype dtype, ddl_op op);
    /* target and source do not overlap. past_caches: a hint, nobody looks at the target soon. */
    void (*copy)(ddl_compute *compute, void *target, const void *source, size_t bytes, bool past_caches);
    /* target[i] /= divisor as DDL_AVG defines it. */
    void (*scale)(ddl_compute *compute, void *target, size_t count, ddl_dtype dtype, int divisor);
};

struct ddl_compute { /* the first member of each implementation */
    const struct ddl_compute_ops *ops;
};

#endif
