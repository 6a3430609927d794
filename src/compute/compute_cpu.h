/* compute_cpu.h - reduce, copy and scale on the CPU, vectorised for what the machine has (chosen at run
 * time). */
#ifndef DDL_COMPUTE_COMPUTE_CPU_H
#define DDL_COMPUTE_COMPUTE_CPU_H

#include "executor/compute.h"

/* Stateless; one object serves every thread. */
ddl_compute *ddl_compute_cpu(void);

/* The variants that this machine can run, the best first: "plain", "avx2", "avx512", "neon"; NULL: there are
 * no more. For tests and benchmarks. */
const char *ddl_compute_cpu_name(size_t index);
ddl_compute *ddl_compute_cpu_variant(const char *name);

#endif
